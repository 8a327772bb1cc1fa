"""Retries and a circuit breaker for a Redis server that does not answer.

:class:`Retries` repeats a call whose failure may pass by itself. A
:class:`~langmem_adapters.concurrency.breaker.Breaker` remembers that nothing helped: from then on a call costs
microseconds instead of a timeout, until a probe beside the calls finds the server back.
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
"""Whether the command was carried out, nobody knows. (An answer that the server is loading is among them.)"""

REPLICA = (ReadOnlyError, MasterDownError)
"""What a replica answers to writes, and to all else where it has lost its primary and is to show nothing old."""

NONE_FREE = "No connection available"
"""As redis-py says that all of a pool are in use."""

_LASTING = (NONE_FREE, "SSL", "X509", "certificate", "Invalid Database")
_NO_SLOTS = "The cluster is down"  # more words say that it takes reads, or that one slot is not served
_PARTIAL = "All slots are not covered"  # so redis-py, where a given client is told to want all
_FIRST_PAUSE = 0.05  # seconds; each further one is twice as long
_LONGEST_PAUSE = 0.5


def is_down(error: Exception) -> bool:
    """Whether the server is out of reach, as opposed to one that refuses something, and will again.

    So is a cluster that has lost slots: it serves nothing, or what lies in them by nobody.
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
    """Whether the same call may go better in a moment: connection, timeout, LOADING, READONLY, MASTERDOWN, TRYAGAIN.

    So may one that found all connections of its process busy, unless it has waited for one already.
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
        """Give what ``attempt`` gives, or raise the last of its errors, or the first that will not pass."""
        end = self.clock() + self.seconds
        longest = _FIRST_PAUSE
        while True:
            try:
                return attempt()
            except Exception as error:
                pause = random.uniform(longest / 2, longest)  # noqa: S311 - so that many do not come back at once
                if not passes(error) or self.clock() + pause > end:
                    raise
                self.sleep(pause)
                before_next(error)
            longest = min(2 * longest, _LONGEST_PAUSE)
