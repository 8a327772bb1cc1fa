"""Outcomes that others wait for, on threads and on event loops."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcome(Generic[T]):
    """The outcome of something under way. Nobody who waits can cancel it.

    An interrupt may leave a Future locked, and then whoever asks it anything hangs; this has no lock.

    >>> outcome = Outcome[int]()
    >>> outcome.settle(1)
    >>> outcome.settle(2)
    >>> outcome.is_settled, outcome.result
    (True, 1)
    """

    def __init__(self) -> None:
        self._results: list[T] = []  # the first counts
        self._wake_ups: deque[Callable[[], object]] = deque()

    @property
    def is_settled(self) -> bool:
        """Whether there is a result."""
        return bool(self._results)

    @property
    def result(self) -> T:
        """The result, which must be there."""
        return self._results[0]

    def settle(self, result: T) -> None:
        """Give the result, unless there is one, and wake those who wait."""
        self._results.append(result)
        with suppress(IndexError):  # none is left
            while True:
                self._wake_ups.popleft()()

    def wait(self, seconds: float) -> None:
        """Wait for so many seconds at most; the whole of them, if an interrupt came as the result was given."""
        woken = queue.SimpleQueue[None]()
        wake_up = partial(woken.put, None)
        self._wake_ups.append(wake_up)
        if not self._results:
            with suppress(queue.Empty):
                woken.get(timeout=seconds)
        with suppress(ValueError):  # it was called
            self._wake_ups.remove(wake_up)

    async def await_(self, seconds: float) -> None:
        """:meth:`wait`, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        woken = loop.create_future()

        def wake_up() -> None:
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(woken.set_result, None)

        self._wake_ups.append(wake_up)
        try:
            if not self._results:
                await asyncio.wait([woken], timeout=seconds)
        finally:  # also if it is cancelled
            with suppress(ValueError):
                self._wake_ups.remove(wake_up)
