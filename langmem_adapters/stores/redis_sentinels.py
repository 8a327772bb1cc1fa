"""Connections to the primary that sentinels name, which are dropped soon after these name another.

redis-py asks the sentinels when it connects, and not again. When an operator triggers a failover, the old primary goes
on serving its connected clients for some ten seconds, and what it accepts then is lost. So the sentinels are asked
again and again in the background.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from redis import ConnectionPool
from redis.exceptions import RedisError
from redis.sentinel import SentinelConnectionPool

from langmem_adapters.concurrency.background import start_thread
from langmem_adapters.stores.redis_connections import LastUses, close_pool, drop_half_made

T = TypeVar("T")

_POLL_SECONDS = 0.5  # between an answer of the sentinels and the next question
_ANSWER_TIMEOUT_SECONDS = 60.0  # after a question that was never answered, such as a parent's before a fork


class SentinelWatch:
    """Watches for failovers, in the background, while connections of a Sentinel pool are used.

    ``call`` calls a function with one of them; ``last_uses`` tells whether those to the sentinels were idle for long.
    """

    def __init__(
        self, pool: SentinelConnectionPool, call: Callable[[Callable[[Any], Any]], Any], last_uses: LastUses
    ) -> None:
        pool.sentinel_manager.sentinels = _Sentinels(pool.sentinel_manager.sentinels)
        self._pool = pool
        self._call = call
        self._last_uses = last_uses
        self._next_poll = 0.0
        self._closed = False

    def call(self, exchange: Callable[[Any], T]) -> T:
        """Call ``exchange`` with a connection; if it is time, have the sentinels asked, without waiting for them."""
        if self._last_uses.was_long_ago(self._pool):  # this call may have to connect, and so to ask them: over new ones
            for pool in self._sentinel_pools():
                pool.disconnect(inuse_connections=False)
        if time.monotonic() >= self._next_poll:
            self._next_poll, self._closed = time.monotonic() + _ANSWER_TIMEOUT_SECONDS, False
            with suppress(RuntimeError):  # no thread can be started
                start_thread(threading.Thread(target=self._poll, name="langmem-sentinels", daemon=True))
        try:
            return self._call(exchange)  # type: ignore[no-any-return]
        except BaseException as error:
            drop_half_made(self._sentinel_pools(), error)
            raise

    def close(self) -> None:
        """Leave no sentinel connection of the store's own open, even if one is in use."""
        self._closed = True
        for pool in self._sentinel_pools():
            close_pool(pool)

    def _sentinel_pools(self) -> list[ConnectionPool]:
        return [sentinel.connection_pool for sentinel in self._pool.sentinel_manager.sentinels]

    def _poll(self) -> None:
        """Ask for the primary: redis-py then closes connections to any other, those in use when they come back."""
        with suppress(RedisError):  # the next caller that connects gets the error
            self._pool.get_master_address()  # type: ignore[no-untyped-call]
        self._next_poll = time.monotonic() + _POLL_SECONDS
        if self._closed:
            self.close()


class _Sentinels(list[Any]):
    """The sentinels, for several threads at once: each asks all of them in turn, and none is lost.

    redis-py swaps the one that answers with the first, while other threads go through the list and swap it too: these
    ask the same sentinel twice and another never, and one may take the place of another for ever.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __setitem__(self, place: Any, sentinel: Any) -> None:
        """Move a sentinel to the front; the others keep their order."""
        if place == 0:
            super().__setitem__(slice(None), [sentinel, *(each for each in self if each is not sentinel)])
