"""Outcomes that threads and event loops wait for."""

import asyncio

from langmem_adapters.concurrency.outcomes import Outcome


async def test_who_waits_no_more_leaves_nothing_behind() -> None:
    outcome = Outcome[None]()
    outcome.wait(0)
    await outcome.await_(0)
    waiting = asyncio.ensure_future(outcome.await_(60))
    await asyncio.sleep(0)
    assert outcome._wake_ups
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert not outcome._wake_ups
