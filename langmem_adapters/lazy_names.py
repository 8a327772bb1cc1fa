"""Names of a package that are loaded at their first use (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_attributes(
    package: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` for a package, from its globals and the module of each lazy name."""
    package_name = package["__name__"]

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package_name!r} has no attribute {name!r}")
        value = package[name] = getattr(importlib.import_module(f"{package_name}.{modules[name]}"), name)
        return value

    return load, lambda: sorted({*package, *modules})
