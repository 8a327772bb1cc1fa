"""Locks that no forked child waits for."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from langmem_adapters.concurrency import forks

__all__ = ["ForkSafeLock", "WholeLock"]


class ForkSafeLock:
    """One at a time among the threads of a process.

    A thread of the parent that held the lock while it forked is not there in the child, and would never let go: so
    each process has a lock of its own.

    >>> lock = ForkSafeLock()
    >>> with lock.held():
    ...     print("alone")
    alone
    """

    _new: Callable[[], Any] = staticmethod(threading.Lock)

    def __init__(self) -> None:
        self._by_process: dict[int, Any] = {}

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the only thread in the block."""
        with self._own():
            yield

    @contextlib.contextmanager
    def taken(self, seconds: float) -> Iterator[bool]:
        """Wait so long at the most. Gives whether this is the only thread in the block; if not, another is.

        >>> with ForkSafeLock().taken(0.0) as alone:
        ...     alone
        True
        """
        own = self._own()
        alone = own.acquire(timeout=seconds)
        try:
            yield alone
        finally:
            if alone:
                own.release()

    def _own(self) -> Any:
        return self._by_process.setdefault(os.getpid(), self._new())  # the first of several threads makes it


class WholeLock(ForkSafeLock):
    """One at a time, and no fork in the middle: the child would have the half of what is being done.

    For what is soon done, as a fork waits for it, though not for ever. No thread takes it twice: one that has it still
    was interrupted, as a notebook's cell is, and goes on with it.

    >>> with WholeLock():
    ...     print("alone")
    alone
    """

    _new = staticmethod(threading.RLock)

    def __enter__(self) -> None:
        forks.begin()
        try:
            self._own().acquire()
        except BaseException:
            forks.end()
            raise

    def __exit__(self, *_: object) -> None:
        own = self._own()
        with contextlib.suppress(RuntimeError):  # as soon as it is not this thread's any more
            while True:
                own.release()
        forks.end()
