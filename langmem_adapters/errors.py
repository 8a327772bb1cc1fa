"""Every error this library raises.

::

    LangmemError
    ├── StoreError            the backend failed; raised from the driver's error
    │   ├── StoreUnavailable  it cannot be reached, opened or locked
    │   └── Conflict          a guarded write lost the race
    ├── ModelError            a model failed, or its answer cannot be used
    ├── SearchError           the search backend failed
    ├── SerializationError    a value cannot be stored, or stored bytes cannot be read
    │   └── Damaged           no key can decrypt these bytes: this value alone is lost
    │       └── NotSealed     these bytes were never encrypted, so they may be intact
    ├── ConfigurationError    an argument or a setting is wrong; also a ValueError
    └── MissingDependency     an extra is not installed, or too old; also an ImportError
"""

from __future__ import annotations

import sys

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
    """The root of all errors of this library."""


class StoreError(LangmemError):
    """A store failed; the driver's own error is its ``__cause__``."""


class StoreUnavailable(StoreError):  # noqa: N818 - the name is promised; "StoreUnavailableError" says no more
    """A store cannot be reached, opened or locked in time."""


class Conflict(StoreError):  # noqa: N818 - as in HTTP 409
    """A guarded write found another value than the expected one; nothing was written."""


class ModelError(LangmemError):
    """A model failed, or its answer cannot be used; the model's own error, if it raised one, is the ``__cause__``."""


class SearchError(LangmemError):
    """A search backend failed."""


class SerializationError(LangmemError):
    """A value cannot be stored without loss, or stored bytes cannot be read."""


class Damaged(SerializationError):  # noqa: N818 - it says what the value is
    """Raised by a codec for bytes that no key can decrypt; other values are still served."""


class NotSealed(Damaged):
    """Raised by a codec for bytes that it never wrote. They may be older than it and intact: nothing replaces them."""


class ConfigurationError(LangmemError, ValueError):
    """An argument or a setting is wrong; the message says which, and what is expected."""


class MissingDependency(LangmemError, ImportError):  # noqa: N818 - it names what is missing
    """A package of an optional extra is not installed, or does not fit the other installed packages."""

    package: str
    extra: str

    def __init__(self, package: str, extra: str = "", *, asked_for_by: str = "") -> None:
        if not extra:  # unpickled, as from another process: the only argument is the whole message
            super().__init__(package)
            self.package = self.extra = ""
            return
        reason = f", and {asked_for_by} asks for it" if asked_for_by else ""
        if mismatch := _version_mismatch():
            problem = f"{package} cannot be imported{reason}: {mismatch}"
            remedy = "Bring it up to date with: pip install --upgrade"
        else:
            problem = f"{package} is not installed{reason}"
            remedy = "Install it with: pip install"
        super().__init__(f'{problem}. {remedy} "langmem_adapters[{extra}]"')  # the Windows shell has no single quotes
        self.package = package
        self.extra = extra


def _version_mismatch() -> ImportError | None:
    """The ImportError being handled, if the package is there but too old: a part of it is missing, not the whole."""
    error: object = sys.exc_info()[1]
    if isinstance(error, MissingDependency):  # raised again, with asked_for_by
        error = error.__cause__
    if not isinstance(error, ImportError):
        return None
    if not isinstance(error, ModuleNotFoundError):
        return error
    parent = sys.modules.get((error.name or "").rpartition(".")[0])
    return error if getattr(parent, "__file__", None) else None  # in a namespace package, a whole package is missing
