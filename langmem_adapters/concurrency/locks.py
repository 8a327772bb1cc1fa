"""Locks that neither a fork nor an interrupt, such as that of a notebook's cell, leaves locked.

An interrupt is raised where a Python function begins, so it can come before the first line of an ``__exit__``; but
not before one that is written in C.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import Any

_LOST_SECONDS = 1.0  # between two looks; if both find a lock held by one holder, and not in use, it counts as lost


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


class RecoverableLock:
    """A reentrant lock around what ``is_in_use`` tells of: it is replaced if its holder was kept from releasing it.

    For blocks whose ends are in Python, and that end their use of the thing itself in C.
    """

    def __init__(self, is_in_use: Callable[[], bool]) -> None:
        self._lock = threading.RLock()
        self._is_in_use = is_in_use
        self._turns = 0  # how often it was acquired

    def acquire(self) -> None:
        """Wait until it is free, or lost."""
        unused_turn = -1  # in which the latest look found it not in use: a turn that ends now is so for a moment, too
        while True:
            is_acquired = (lock := self._lock).acquire(timeout=_LOST_SECONDS)
            with _registry_lock.held():  # so that nobody replaces what another begins to hold
                if is_acquired and self._lock is lock:
                    self._turns += 1
                    return
                turn = -1 if self._is_in_use() else self._turns
                if self._lock is lock and turn == unused_turn != -1:
                    self._lock = threading.RLock()
                unused_turn = turn
            if is_acquired:  # too late
                lock.release()

    def release(self) -> None:
        """Release it fully. Does nothing on a thread that does not hold it any more."""
        release_fully(self._lock)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


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
