"""Connections to the primary that sentinels name, which are dropped soon after these name another.

redis-py asks the sentinels when it connects, and not again. When an operator triggers a failover, the old primary goes
on serving its connected clients for some ten seconds, and what it accepts then is lost. So the sentinels are asked
again and again in the background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from langmem_adapters.stores.redis_connections import hang_up

__all__ = ["SentinelWatch"]

T = TypeVar("T")

_SECONDS = 0.5  # between an answer of the sentinels and the next question
_LONGEST = 60.0  # after a question that was never answered, such as a parent's before a fork


class SentinelWatch:
    """Watches for failovers, in the background, while connections of a Sentinel pool are used.

    Args:
        pool: Asks the sentinels.
        on: Calls a function with one of its connections.
    """

    def __init__(self, pool: SentinelConnectionPool, on: Callable[[Callable[[Any], Any]], Any]) -> None:
        self._pool = pool
        self._on = on
        self._due = 0.0
        self._closed = False

    def on(self, talk: Callable[[Any], T]) -> T:
        """Call ``talk`` with a connection; if it is time, have the sentinels asked, without waiting for them."""
        if time.monotonic() >= self._due:
            self._due, self._closed = time.monotonic() + _LONGEST, False
            with suppress(RuntimeError):  # no thread can be started
                threading.Thread(target=self._ask, name="langmem-sentinels", daemon=True).start()
        return self._on(talk)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Leave no sentinel connection of the store's own open, even if one is in use."""
        self._closed = True
        for sentinel in self._pool.sentinel_manager.sentinels:
            hang_up(sentinel.connection_pool)

    def _ask(self) -> None:
        """Ask for the primary: redis-py then closes connections to any other, those in use when they come back."""
        with suppress(RedisError):  # the next caller that connects gets the error
            self._pool.get_master_address()  # type: ignore[no-untyped-call]
        self._due = time.monotonic() + _SECONDS
        if self._closed:
            self.close()
