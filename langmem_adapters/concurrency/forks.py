"""Prevent a fork in the middle of another thread's work on a file.

SQLite's record of a file's locks is copied with the process: a child that was forked during another thread's
transaction would find the file locked for ever, by a thread that does not exist in it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

_MAX_WAIT_SECONDS = 2.0  # of a fork, or of work that begins during one
_work_depths: dict[int, int] = {}  # by thread: how many nested transactions it is in
_calls_before_fork: list[Callable[[], object]] = []
_work_allowed = threading.Event()
_work_allowed.set()
_fork_lock = threading.RLock()  # held by the thread that forks
_register_at_fork: Callable[..., None] = getattr(os, "register_at_fork", lambda **_: None)  # Windows has no fork


def call_in_child(call: Callable[[], object]) -> None:
    """Have forked children call this first: threads are not copied, and one of them may have held a lock."""
    _register_at_fork(after_in_child=call)


def call_before_fork(call: Callable[[], object]) -> None:
    """Have this called before each fork, once no work is running, or the running work takes too long."""
    _calls_before_fork.append(call)


def begin_work() -> None:
    """Begin work, after waiting while a fork is being made, unless this thread has begun some already."""
    thread = threading.get_ident()
    if thread in _work_depths:
        _work_depths[thread] += 1
        return
    _work_depths[thread] = 1  # before the check: a fork looks here after it has cleared the event
    if _work_allowed.is_set():
        return
    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while not _work_allowed.is_set() and time.monotonic() < deadline:  # repeated, as the next fork may have begun
        del _work_depths[thread]
        _work_allowed.wait(_MAX_WAIT_SECONDS)
        _work_depths[thread] = 1


def end_work() -> None:
    """End the work."""
    thread = threading.get_ident()
    if _work_depths[thread] > 1:
        _work_depths[thread] -= 1
    else:
        del _work_depths[thread]


class _NoFork:
    """Wraps short work: a fork waits for it, though not for ever."""

    def __enter__(self) -> None:
        begin_work()

    def __exit__(self, *_: object) -> None:
        end_work()


no_fork: _NoFork = _NoFork()
"""``with no_fork, lock.held():`` runs alone, and no child gets a half-finished change."""


def _before_fork() -> None:
    _fork_lock.acquire(timeout=_MAX_WAIT_SECONDS)  # else the end of another fork would let work begin during this one
    _work_allowed.clear()
    own_thread, deadline = threading.get_ident(), time.monotonic() + _MAX_WAIT_SECONDS
    while any(other != own_thread for other in list(_work_depths)) and time.monotonic() < deadline:
        time.sleep(0.0005)
    _work_depths[own_thread] = _work_depths.get(own_thread, 0) + 1  # so that these calls may begin work
    try:
        for call in _calls_before_fork:
            call()
    finally:
        end_work()


def _after_fork_in_parent() -> None:
    _work_allowed.set()
    with contextlib.suppress(RuntimeError):  # another thread still holds it
        _fork_lock.release()


def _after_fork_in_child() -> None:
    """Only the thread that forked exists here."""
    global _work_allowed, _fork_lock  # other threads may have held their locks
    own_thread = threading.get_ident()
    for thread in [thread for thread in _work_depths if thread != own_thread]:
        del _work_depths[thread]
    _work_allowed, _fork_lock = threading.Event(), threading.RLock()
    _work_allowed.set()


_register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class _Resettable(Protocol):
    def reset_state(self) -> None:
        """Have a lock that nobody holds, and no work running."""


_resettables: weakref.WeakSet[_Resettable] = weakref.WeakSet()


def reset_in_child(resettable: _Resettable) -> None:
    """Initialise an object now, and again in each forked child."""
    resettable.reset_state()
    _resettables.add(resettable)


def _reset_all() -> None:
    for resettable in list(_resettables):
        resettable.reset_state()


call_in_child(_reset_all)
