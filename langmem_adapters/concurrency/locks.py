"""Locks that no forked child waits for, nor anybody whom an interrupt came upon, as it comes upon a notebook's cell.

An interrupt comes where a function of Python's begins, so also before the first line of an ``__exit__``; but not
before one that is written in C.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Hashable, Iterator
from typing import Any

__all__ = ["ForkSafeLock", "let_go", "lock_of"]


class ForkSafeLock:
    """One at a time among the threads of a process.

    A thread of the parent that held the lock while it forked is not there in the child, and would never let go: so
    each process has a lock of its own.

    >>> lock = ForkSafeLock()
    >>> with lock.held():
    ...     print("alone")
    alone
    """

    def __init__(self) -> None:
        self._by_process: dict[int, Any] = {}

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Be the only thread in the block."""
        return self._own()  # type: ignore[no-any-return] # itself: its __exit__ is in C

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
                let_go(own)

    def _own(self) -> Any:
        return self._by_process.setdefault(os.getpid(), threading.RLock())  # the first of several threads makes it


def lock_of(place: Hashable) -> ForkSafeLock:
    """The one lock that this process has for a place, as long as anybody holds on to it.

    >>> kept = lock_of("a folder")
    >>> kept is lock_of("a folder")
    True
    """
    with _making.held():
        return _of_places.setdefault(place, ForkSafeLock())


def let_go(lock: Any) -> None:
    """Release an RLock, and what an interrupt has left of it: no thread takes it twice."""
    with contextlib.suppress(RuntimeError):  # as soon as it is not this thread's any more
        while True:
            lock.release()


_making = ForkSafeLock()
_of_places: weakref.WeakValueDictionary[Hashable, ForkSafeLock] = weakref.WeakValueDictionary()
