"""Waiting for what other threads and processes do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["auntil", "until"]

_PATIENCE = 120  # seconds until a test counts as hanging


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.001)


async def auntil(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "it does not happen"
        await asyncio.sleep(0.001)
