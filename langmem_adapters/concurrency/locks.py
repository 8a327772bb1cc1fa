"""Locks that neither a fork nor an interrupt, such as that of a notebook's cell, leaves locked.

An interrupt is raised where a Python function begins, so it can come before the first line of an ``__exit__``; but
not before one that is written in C.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Hashable, Iterator
from typing import Any


class ForkSafeLock:
    """A reentrant lock for the threads of one process.

    If a thread held the lock while its process forked, that thread does not exist in the child and would never release
    it. So each process has a lock of its own.

    >>> lock = ForkSafeLock()
    >>> with lock.held():
    ...     print("alone")
    alone
    """

    def __init__(self) -> None:
        self._locks_by_pid: dict[int, Any] = {}

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Hold the lock in a ``with`` block."""
        return self._process_lock()  # type: ignore[no-any-return] # itself: its __exit__ is in C

    @contextlib.contextmanager
    def try_hold(self, seconds: float) -> Iterator[bool]:
        """Wait at most so many seconds. Yields whether this thread has the lock; if not, another has it.

        >>> with ForkSafeLock().try_hold(0.0) as acquired:
        ...     acquired
        True
        """
        lock = self._process_lock()
        acquired = lock.acquire(timeout=seconds)
        try:
            yield acquired
        finally:
            if acquired:
                release_fully(lock)

    def _process_lock(self) -> Any:
        return self._locks_by_pid.setdefault(os.getpid(), threading.RLock())  # several threads may make it at once


def lock_of(key: Hashable) -> ForkSafeLock:
    """The one lock of this process for a key, for as long as anyone keeps a reference to it.

    >>> lock = lock_of("a folder")
    >>> lock is lock_of("a folder")
    True
    """
    with _registry_lock.held():
        return _locks_by_key.setdefault(key, ForkSafeLock())


def release_fully(lock: Any) -> None:
    """Release an RLock, even if an interrupt left it acquired twice: no thread here acquires it twice on purpose."""
    with contextlib.suppress(RuntimeError):  # raised once this thread does not hold it any more
        while True:
            lock.release()


_registry_lock = ForkSafeLock()
_locks_by_key: weakref.WeakValueDictionary[Hashable, ForkSafeLock] = weakref.WeakValueDictionary()
