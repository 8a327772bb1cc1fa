"""Switches that bypass or refresh every cache for some calls; by context variables, so for one task or thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

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
    """Skip look-ups inside this block, and replace what is stored by the new results.

    If a new result is not kept (it cannot be stored, or an answer was cut off), the old one is removed all the same.
    A call that fails leaves the old result.
    """
    token = _read.set(False)
    try:
        yield
    finally:
        _read.reset(token)


def may_read() -> bool:
    """Whether look-ups are switched on here."""
    return _read.get()


def may_write() -> bool:
    """Whether storing is switched on here."""
    return _write.get()
