"""Names of a package that are loaded at their first use (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazily"]


def lazily(package: dict[str, Any], where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` for a package, from its globals and the module of each lazy name."""
    own = package["__name__"]

    def load(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {own!r} has no attribute {name!r}")
        value = package[name] = getattr(importlib.import_module(f"{own}.{where[name]}"), name)
        return value

    return load, lambda: sorted({*package, *where})
