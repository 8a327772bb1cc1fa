"""Every error this library raises.

::

    LangmemError
    ├── StoreError            the backend failed; raised from the driver's error
    │   ├── StoreUnavailable  it cannot be reached, opened or locked
    │   └── Conflict          a guarded write lost the race
    ├── ModelError            a model failed, or its answer cannot be used
    ├── SearchError           the search backend failed
    ├── SerializationError    a value cannot be stored, or stored bytes cannot be read
    │   └── Damaged           no key would read them: this value alone is lost
    │       └── NotSealed     they were never encrypted, so they may be whole
    ├── ConfigurationError    an argument or a setting is wrong; also a ValueError
    └── MissingDependency     an extra is not installed, or too old; also an ImportError
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "ConfigurationError",
    "Conflict",
    "Damaged",
    "LangmemError",
    "MissingDependency",
    "ModelError",
    "NotSealed",
    "SearchError",
    "SerializationError",
    "StoreError",
    "StoreUnavailable",
]


class LangmemError(Exception):
    """Anything that goes wrong inside this library."""


class StoreError(LangmemError):
    """A store failed; the driver's own error is its ``__cause__``."""


class StoreUnavailable(StoreError):  # noqa: N818 - the name is promised; "StoreUnavailableError" says no more
    """A store cannot be reached, opened or locked in time."""


class Conflict(StoreError):  # noqa: N818 - as in HTTP 409
    """A guarded write found another value than the one it was told to expect."""


class ModelError(LangmemError):
    """A model failed, or its answer cannot be used; the model's own error, if it raised one, is the ``__cause__``."""


class SearchError(LangmemError):
    """A search backend failed."""


class SerializationError(LangmemError):
    """A value cannot be stored without loss, or stored bytes cannot be read."""


class Damaged(SerializationError):  # noqa: N818 - it says what the value is
    """A codec raises it for bytes that no key can read; values beside them are still read."""


class NotSealed(Damaged):
    """A codec raises it for bytes that it never wrote: they may be whole, so nothing replaces them."""


class ConfigurationError(LangmemError, ValueError):
    """An argument or a setting is wrong; the message says which, and what is right."""


class MissingDependency(LangmemError, ImportError):  # noqa: N818 - it names what is missing
    """A package of an optional extra is not installed, or does not fit what else is there."""

    package: str
    extra: str

    def __init__(self, package: str, extra: str = "", *, asked_for_by: str = "") -> None:
        if not extra:  # a whole sentence: this is how pools and queues recreate an error of another process
            super().__init__(package)
            self.package = self.extra = ""
            return
        why = f", and {asked_for_by} asks for it" if asked_for_by else ""
        if misfit := _misfit():
            told = f"{package} cannot be imported{why}: {misfit}. Bring it up to date with: pip install --upgrade"
        else:
            told = f"{package} is not installed{why}. Install it with: pip install"
        super().__init__(f'{told} "langmem_adapters[{extra}]"')  # Windows' shell knows no single quotes
        self.package = package
        self.extra = extra


def _misfit() -> ImportError | None:
    """The ImportError being handled, unless a whole package is missing: then a part is, of one that is too old."""
    error: object = sys.exc_info()[1]
    if isinstance(error, MissingDependency):  # raised again, with who asks for it
        error = error.__cause__
    if not isinstance(error, ImportError):
        return None
    if not isinstance(error, ModuleNotFoundError):
        return error
    around = sys.modules.get((error.name or "").rpartition(".")[0])
    return error if getattr(around, "__file__", None) else None  # in a namespace package, a whole package is missing


@contextmanager
def search_errors(index: str) -> Iterator[None]:
    """Turn the store errors of an index's database into SearchErrors."""
    try:
        yield
    except Conflict:
        raise
    except StoreError as error:
        raise SearchError(f"the {index} index failed: {error}") from error
