"""The time at which something is written."""

from __future__ import annotations

import time

__all__ = ["unix_time"]

_latest = (0.0, 0)  # a reading of the clock, and how many before it were the same


def unix_time() -> float:
    """The Unix time, and a microsecond more for each reading that is the same as the one before.

    So what is written later comes later, though the clock ticks 64 times a second, as on Windows before Python 3.13.
    """
    global _latest  # noqa: PLW0603 - one per process; two threads at once may get the same time
    now = time.time()
    tick, repeats = _latest
    repeats = repeats + 1 if now == tick else 0
    _latest = now, repeats
    return now + 1e-6 * repeats
