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

__all__ = ["anew_in_child", "before", "begin", "end", "in_child", "no_fork"]

_LONGEST = 2.0  # seconds: the longest wait of a fork, or of work that begins during one
_under_way: dict[int, int] = {}  # by thread: how many nested transactions it is in
_before: list[Callable[[], object]] = []
_may_begin = threading.Event()
_may_begin.set()
_turn = threading.RLock()  # held by the thread that forks


def in_child(call: Callable[[], object]) -> None:
    """Have forked children call this first: threads are not copied, and one of them may have held a lock."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=call)


def before(call: Callable[[], object]) -> None:
    """Have this called before each fork, once no work is running, or the running work takes too long."""
    _before.append(call)


def begin() -> None:
    """Begin work, after waiting while a fork is being made, unless this thread has begun some already."""
    me = threading.get_ident()
    if me in _under_way:
        _under_way[me] += 1
        return
    _under_way[me] = 1  # before the check: a fork looks here after it has cleared the event
    deadline = time.monotonic() + _LONGEST
    while not _may_begin.is_set() and time.monotonic() < deadline:  # repeated, as the next fork may have begun
        del _under_way[me]
        _may_begin.wait(_LONGEST)
        _under_way[me] = 1


def end() -> None:
    """End the work."""
    me = threading.get_ident()
    if _under_way[me] > 1:
        _under_way[me] -= 1
    else:
        del _under_way[me]


class _NoFork:
    """Wraps short work: a fork waits for it, though not for ever."""

    def __enter__(self) -> None:
        begin()

    def __exit__(self, *_: object) -> None:
        end()


no_fork: _NoFork = _NoFork()
"""``with no_fork, lock.held():`` runs alone, and no child gets a half-finished change."""


def _before_fork() -> None:
    _turn.acquire(timeout=_LONGEST)  # else the end of another fork would let work begin during this one
    _may_begin.clear()
    me, deadline = threading.get_ident(), time.monotonic() + _LONGEST
    while any(thread != me for thread in list(_under_way)) and time.monotonic() < deadline:
        time.sleep(0.0005)
    _under_way[me] = _under_way.get(me, 0) + 1  # so that these calls may begin work
    try:
        for call in _before:
            call()
    finally:
        end()


def _after_fork_in_parent() -> None:
    _may_begin.set()
    with contextlib.suppress(RuntimeError):  # another thread still holds it
        _turn.release()


def _after_fork_in_child() -> None:
    """Only the thread that forked exists here."""
    global _may_begin, _turn  # other threads may have held their locks
    me = threading.get_ident()
    for thread in [thread for thread in _under_way if thread != me]:
        del _under_way[thread]
    _may_begin, _turn = threading.Event(), threading.RLock()
    _may_begin.set()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class _Begun(Protocol):
    def begin_anew(self) -> None:
        """Have a lock that nobody holds, and no work running."""


_begun: weakref.WeakSet[_Begun] = weakref.WeakSet()


def anew_in_child(begun: _Begun) -> None:
    """Initialise an object now, and again in each forked child."""
    begun.begin_anew()
    _begun.add(begun)


def _begin_all_anew() -> None:
    for begun in list(_begun):
        begun.begin_anew()


in_child(_begin_all_anew)
