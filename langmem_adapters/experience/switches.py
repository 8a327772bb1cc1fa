"""Switching every cache off, or anew, for a few calls; per task and thread, by a context variable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

__all__ = ["Switches", "bypass", "may_read", "may_write", "refresh"]

_read: ContextVar[bool] = ContextVar("langmem_may_read", default=True)
_write: ContextVar[bool] = ContextVar("langmem_may_write", default=True)


@contextlib.contextmanager
def bypass() -> Iterator[None]:
    """Neither look up nor store inside this block.

    >>> with bypass():
    ...     may_read(), may_write()
    (False, False)
    """
    with refresh():
        token = _write.set(False)
        try:
            yield
        finally:
            _write.reset(token)


@contextlib.contextmanager
def refresh() -> Iterator[None]:
    """Ask anew inside this block, and store what comes back in place of what was there.

    What comes back and is not kept (it cannot be written, an answer was cut off) takes what was there away too: it
    was asked for anew. A call that fails leaves it.
    """
    token = _read.set(False)
    try:
        yield
    finally:
        _read.reset(token)


def may_read() -> bool:
    """Whether a look-up is wanted here."""
    return _read.get()


def may_write() -> bool:
    """Whether storing is wanted here."""
    return _write.get()


class Switches:
    """:func:`bypass` and :func:`refresh` as methods of what has a cache: ``with model.bypass():``."""

    bypass = staticmethod(bypass)
    refresh = staticmethod(refresh)
