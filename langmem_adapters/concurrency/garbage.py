"""Garbage collection rests while many objects are made: it would scan them over and over, and take half of the time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

from langmem_adapters.concurrency.forks import call_in_child

T = TypeVar("T")

MIN_COUNT = 500
"""So many objects are worth a pause."""

_is_paused = False


def build_many(count: int, build: Callable[[], T]) -> T:
    """What ``build`` makes, without garbage collection if it is many objects; the first of several callers resumes it.

    Nothing in it should wait, as other threads' garbage stays meanwhile.
    """
    global _is_paused  # noqa: PLW0603 - one collector a process
    if count < MIN_COUNT or not gc.isenabled():
        return build()
    # No functions of ours, as an interrupt is raised where one begins, and the collector would rest for ever.
    try:
        _is_paused = True
        gc.disable()
        return build()
    finally:
        _is_paused = False
        gc.enable()


def _reset_after_fork() -> None:
    """In a forked child, no other thread goes on building."""
    global _is_paused  # noqa: PLW0603 - same
    if _is_paused:
        gc.enable()
        _is_paused = False


call_in_child(_reset_after_fork)
