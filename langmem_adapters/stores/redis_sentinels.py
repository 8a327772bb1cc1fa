"""Connections to the primary that sentinels name, which leave it soon after these have named another.

redis-py asks the sentinels when it connects, and not again. Where an operator has them fail over, the primary of before
goes on for some ten seconds with all who are connected to it, and what it takes then is lost. So, beside the calls, the
sentinels are asked again and again.
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
_LONGEST = 60.0  # after a question that was never answered, as that of a parent before a fork


class SentinelWatch:
    """Watches for failovers, in the background, while connections of a Sentinel pool are used.

    Args:
        pool: Asks the sentinels.
        on: Talks on one of its connections.
    """

    def __init__(self, pool: SentinelConnectionPool, on: Callable[[Callable[[Any], Any]], Any]) -> None:
        self._pool = pool
        self._on = on
        self._due = 0.0
        self._closed = False

    def on(self, talk: Callable[[Any], T]) -> T:
        """Talk on a connection; where it is time, have the sentinels asked, and do not wait for them."""
        if time.monotonic() >= self._due:
            self._due, self._closed = time.monotonic() + _LONGEST, False
            with suppress(RuntimeError):  # no thread can be started
                threading.Thread(target=self._ask, name="langmem-sentinels", daemon=True).start()
        return self._on(talk)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Leave no connection to a sentinel of our own behind, also if one is being asked."""
        self._closed = True
        for sentinel in self._pool.sentinel_manager.sentinels:
            hang_up(sentinel.connection_pool)

    def _ask(self) -> None:
        """Ask who is the primary: redis-py closes connections to another, those in use when they come back."""
        with suppress(RedisError):  # whoever connects is told
            self._pool.get_master_address()  # type: ignore[no-untyped-call]
        self._due = time.monotonic() + _SECONDS
        if self._closed:
            self.close()
