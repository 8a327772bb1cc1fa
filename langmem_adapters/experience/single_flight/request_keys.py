"""The keys of the requests that cached models get, for callers who find out later that an answer is of no use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_request_keys: ContextVar[list[str] | None] = ContextVar("langmem_noted", default=None)


@contextmanager
def collect_request_keys() -> Iterator[list[str]]:
    """Collect the keys of the requests that cached models get in this block."""
    keys: list[str] = []
    token = _request_keys.set(keys)
    try:
        yield keys
    finally:
        _request_keys.reset(token)


def record_request_key(key: str) -> None:
    """Report the key of a request to the :func:`collect_request_keys` block around it, if there is one."""
    if (keys := _request_keys.get()) is not None:
        keys.append(key)
