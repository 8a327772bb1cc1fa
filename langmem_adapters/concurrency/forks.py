"""No fork in the middle of what another thread does to a file.

What SQLite knows of a file's locks is copied with the process: a child that was forked in the middle of a transaction
of another thread would find the file locked for ever, by a thread that it does not have.
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

_LONGEST = 2.0  # seconds that a fork, or what begins meanwhile, waits at the most
_under_way: dict[int, int] = {}  # by thread: how many transactions it is in
_before: list[Callable[[], object]] = []
_may_begin = threading.Event()
_may_begin.set()
_turn = threading.RLock()  # held by the thread that forks


def in_child(call: Callable[[], object]) -> None:
    """Have a forked child begin with this call: threads do not come along, and one may have held a lock."""
    if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
        os.register_at_fork(after_in_child=call)


def before(call: Callable[[], object]) -> None:
    """Have this called before each fork, once nothing is under way, or what is takes too long."""
    _before.append(call)


def begin() -> None:
    """Wait while a fork is under way, unless this thread is in the middle of something already."""
    me = threading.get_ident()
    if me in _under_way:
        _under_way[me] += 1
        return
    _under_way[me] = 1  # before the look: a fork looks here after it has closed the door
    deadline = time.monotonic() + _LONGEST
    while not _may_begin.is_set() and time.monotonic() < deadline:  # again, as the next fork may have begun
        del _under_way[me]
        _may_begin.wait(_LONGEST)
        _under_way[me] = 1


def end() -> None:
    """Say that it is over."""
    me = threading.get_ident()
    if _under_way[me] > 1:
        _under_way[me] -= 1
    else:
        del _under_way[me]


class _NoFork:
    """Around what is soon done, as a fork waits for it, though not for ever."""

    def __enter__(self) -> None:
        begin()

    def __exit__(self, *_: object) -> None:
        end()


no_fork: _NoFork = _NoFork()
"""``with no_fork, lock.held():`` is alone, and no child gets the half of what is being done."""


def _before_fork() -> None:
    _turn.acquire(timeout=_LONGEST)  # else the end of another fork would open the door in the middle of this one
    _may_begin.clear()
    me, deadline = threading.get_ident(), time.monotonic() + _LONGEST
    while any(thread != me for thread in list(_under_way)) and time.monotonic() < deadline:
        time.sleep(0.0005)
    _under_way[me] = _under_way.get(me, 0) + 1  # so that these may begin something
    try:
        for call in _before:
            call()
    finally:
        end()


def _after_fork_in_parent() -> None:
    _may_begin.set()
    with contextlib.suppress(RuntimeError):  # another has it still
        _turn.release()


def _after_fork_in_child() -> None:
    """Only the thread that forked is here."""
    global _may_begin, _turn  # others may have held their locks
    me = threading.get_ident()
    for thread in [thread for thread in _under_way if thread != me]:
        del _under_way[thread]
    _may_begin, _turn = threading.Event(), threading.RLock()
    _may_begin.set()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class _Begun(Protocol):
    def begin_anew(self) -> None:
        """Have a lock that nobody holds, and nothing under way."""


_begun: weakref.WeakSet[_Begun] = weakref.WeakSet()


def anew_in_child(begun: _Begun) -> None:
    """Have it begin now, and anew in each forked child."""
    begun.begin_anew()
    _begun.add(begun)


def _begin_all_anew() -> None:
    for begun in list(_begun):
        begun.begin_anew()


in_child(_begin_all_anew)
