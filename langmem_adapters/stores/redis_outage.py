"""Retries and a circuit breaker for a Redis server that does not answer.

:class:`Retries` repeats a call whose failure may be temporary. A
:class:`~langmem_adapters.concurrency.breaker.Breaker` remembers that no retry helped: from then on a call costs
microseconds instead of a timeout, until a probe in the background finds the server back.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    MaxConnectionsError,
    ReadOnlyError,
    RedisClusterException,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from langmem_adapters.concurrency import pauses

__all__ = ["LOST", "REPLICA", "Retries", "is_down", "may_pass"]

T = TypeVar("T")

LOST = (RedisConnectionError, RedisTimeoutError)
"""After these, it is unknown whether the command was executed. (The answer that a server is loading is among them.)"""

REPLICA = (ReadOnlyError, MasterDownError)
"""What a replica answers to writes, and to everything if it has lost its primary and may not serve stale data."""

NONE_FREE = "No connection available"
"""redis-py's message when all connections of a pool are in use."""

_LASTING = (NONE_FREE, "SSL", "X509", "certificate", "Invalid Database")
_NO_SLOTS = "The cluster is down"  # longer messages say that it takes reads, or that one slot is not served
_PARTIAL = "All slots are not covered"  # redis-py's message, if a given client is told to require all
_FIRST_PAUSE = 0.05  # seconds; each later pause is twice as long
_LONGEST_PAUSE = 0.5


def is_down(error: Exception) -> bool:
    """Whether the server is out of reach, as opposed to one that refuses the call, and would again.

    A cluster that has lost slots counts as down: it serves nothing, or not the keys in those slots.
    """
    if isinstance(error, SlotNotCoveredError) or str(error).startswith(_PARTIAL):
        return True
    if isinstance(error, ClusterDownError):
        return str(error) == _NO_SLOTS
    if isinstance(error, RedisClusterException):  # of the last of its nodes
        return isinstance(error.__cause__, LOST) and is_down(error.__cause__)
    lasting = isinstance(error, AuthenticationError | AuthorizationError | MaxConnectionsError) or any(
        words in str(error) for words in _LASTING
    )
    return isinstance(error, LOST) and not lasting


def may_pass(error: Exception) -> bool:
    """Whether the same call may succeed in a moment: connection, timeout, LOADING, READONLY, MASTERDOWN, TRYAGAIN.

    So may a call that found all connections of its process busy, unless it has waited for one already.
    """
    return is_down(error) or isinstance(error, (*REPLICA, TryAgainError, MaxConnectionsError))


@dataclass(frozen=True)
class Retries:
    """Exponential backoff with jitter; no attempt begins more than ``seconds`` after the first."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = pauses.sleep

    def call(
        self,
        attempt: Callable[[], T],
        passes: Callable[[Exception], bool] = may_pass,
        before_next: Callable[[Exception], None] = lambda _: None,
    ) -> T:
        """Return what ``attempt`` returns, or raise its last error, or the first one that will not pass."""
        end = self.clock() + self.seconds
        longest = _FIRST_PAUSE
        while True:
            try:
                return attempt()
            except Exception as error:
                pause = random.uniform(longest / 2, longest)  # noqa: S311 - so that many callers do not retry at once
                if not passes(error) or self.clock() + pause > end:
                    raise
                self.sleep(pause)
                before_next(error)
            longest = min(2 * longest, _LONGEST_PAUSE)
