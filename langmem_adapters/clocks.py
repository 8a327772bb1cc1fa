"""The time at which something is written."""

from __future__ import annotations

import time
from collections.abc import Callable

_STEP_SECONDS = 1e-6
_latest = (0.0, 0)  # a reading of the clock, and how many before it were the same


def _time_between_ticks() -> float:
    """The Unix time, and a microsecond more for each reading that is the same as the one before."""
    global _latest  # noqa: PLW0603 - one per process; two threads at once may get the same time
    now = time.time()
    tick, repeats = _latest
    repeats = repeats + 1 if now == tick else 0
    _latest = now, repeats
    return now + _STEP_SECONDS * repeats


_is_coarse = time.get_clock_info("time").resolution > _STEP_SECONDS
unix_time: Callable[[], float] = _time_between_ticks if _is_coarse else time.time
"""The Unix time; what is written later comes later, though Windows ticks 64 times a second before Python 3.13.

A clock that is fine is read as it is: with steps, it would go back, and data would outlive a clock that a test stops.
"""
