"""Whether an event loop goes on while something else is at work."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

__all__ = ["ticking"]

_EVERY = 0.01  # seconds


@contextlib.asynccontextmanager
async def ticking() -> AsyncIterator[list[float]]:
    """Gives the seconds by which each tick of the loop was late, in a list that grows until the block ends."""
    late: list[float] = []

    async def tick() -> None:
        while True:
            due = time.perf_counter() + _EVERY
            await asyncio.sleep(_EVERY)
            late.append(time.perf_counter() - due)

    ticker = asyncio.create_task(tick())
    try:
        yield late
        await asyncio.sleep(_EVERY)  # so that the last of the block is counted too
    finally:
        ticker.cancel()
