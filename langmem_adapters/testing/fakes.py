"""Stand-ins for what a test must be able to set."""

from __future__ import annotations


class FakeClock:
    """Unix time that moves when told to.

    >>> clock = FakeClock(100.0)
    >>> clock.advance(5)
    >>> clock()
    105.0
    """

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now: float = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds
