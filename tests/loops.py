"""Whether an event loop goes on while something else is at work, and what is cancelled on one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from langmem_adapters.concurrency import workers
from langmem_adapters.flow import Flow, arun

__all__ = ["cancel_as_the_loop_ends", "cancel_before_the_next_step", "ticking"]

_EVERY = 0.01  # seconds
_THREADS = Path("/proc/self/task")  # of this process, where the system is Linux


@contextlib.asynccontextmanager
async def ticking() -> AsyncIterator[list[float]]:
    """Gives the seconds by which each tick of the loop was late, in a list that grows until the block ends.

    What other processes took from this one does not count: the time in which the loop's thread could have run and
    had no processor, and that in which another thread had none, which may have held Python's lock.
    """
    late: list[float] = []

    async def tick() -> None:
        waited = _waited()
        while True:
            due = time.perf_counter() + _EVERY
            await asyncio.sleep(_EVERY)
            lateness, before, waited = time.perf_counter() - due, waited, _waited()
            late.append(lateness - _without_processor(before, waited))

    ticker = asyncio.create_task(tick())
    try:
        yield late
        await asyncio.sleep(_EVERY)  # so that the last of the block is counted too
    finally:
        ticker.cancel()


def _waited() -> dict[str, float]:
    """The seconds for which each thread was ready to run and had no processor, so far; nothing but on Linux."""
    waited = {}
    for schedule in _THREADS.glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has just ended
            waited[schedule.parent.name] = int(schedule.read_text().split()[1]) / 1e9
    return waited


def _without_processor(before: dict[str, float], after: dict[str, float]) -> float:
    waits = {thread: seconds - before.get(thread, 0.0) for thread, seconds in after.items()}
    return waits.pop(str(threading.get_native_id()), 0.0) + max(waits.values(), default=0.0)


async def cancel_as_the_loop_ends(work: Coroutine[Any, Any, None], rounds: int) -> None:
    """Cancel a request as a server does that ends; so many rounds later, asyncio cancels all that is left."""
    request = asyncio.create_task(work)
    await asyncio.sleep(0)
    request.cancel()
    for _ in range(rounds):
        await asyncio.sleep(0)


async def cancel_before_the_next_step(task: asyncio.Task[Any]) -> list[asyncio.Task[None]]:
    """Cancel a task in a step of its own: no worker begins what it asks for next. Gives what is to be waited for."""
    release = threading.Event()

    def hold() -> Flow[None]:
        release.wait(60)
        yield from ()

    held = [asyncio.create_task(arun(hold())) for _ in range(workers._MAX_RUNNING)]
    await asyncio.sleep(0)
    task.cancel()
    task.add_done_callback(lambda _: release.set())
    return held
