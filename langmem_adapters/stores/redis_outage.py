"""Which errors of a Redis server mean that it is down, which may pass, and retries of a call that failed by one."""

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
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from langmem_adapters.concurrency import pauses

T = TypeVar("T")

LOST_CONNECTION_ERRORS = (RedisConnectionError, RedisTimeoutError)
"""After these, it is unknown whether the command was executed. (The answer that a server is loading is among them.)"""

REPLICA_ERRORS = (ReadOnlyError, MasterDownError)
"""What a replica answers to writes, and to everything if it has lost its primary and may not serve stale data."""

NO_FREE_CONNECTION = "No connection available"
"""redis-py's message when all connections of a pool are in use."""

TLS_HANG_UPS = ("EOF occurred", "(EOF)")
"""In Python's messages about a server that hangs up in a TLS handshake, or just after it: it is going down, or is full.

Or it refuses the client's certificate by TLS 1.3, and closes before Python has read that.
"""

_PERMANENT_MESSAGES = (NO_FREE_CONNECTION, "SSL", "X509", "certificate")
_CLUSTER_DOWN_MESSAGE = "The cluster is down"  # longer messages say that it takes reads, or that one slot is not served
_PARTIAL_COVERAGE_MESSAGE = "All slots are not covered"  # redis-py's message, if a given client is told to require all
BUSY_PREFIX = "BUSY "
"""How a server begins each answer while a script or a function of somebody's runs for too long."""
_FIRST_PAUSE_SECONDS = 0.05  # each later pause is twice as long
_MAX_PAUSE_SECONDS = 0.5


class CredentialsError(RedisConnectionError):
    """A credential provider has failed, which gives the login of each new connection."""


class ClosedInUseError(RedisConnectionError):
    """Another thread has closed the connection, as the owner of a client may at any time."""


def is_down(error: Exception) -> bool:
    """Whether the server is out of reach, as opposed to one that refuses the call, and would again.

    A cluster that has lost slots counts as down: it serves nothing, or not the keys in those slots.
    """
    if isinstance(error, SlotNotCoveredError) or str(error).startswith(_PARTIAL_COVERAGE_MESSAGE):
        return True
    if isinstance(error, ClusterDownError):
        return str(error) == _CLUSTER_DOWN_MESSAGE
    if isinstance(error, RedisClusterException):  # of the last of its nodes
        return isinstance(error.__cause__, LOST_CONNECTION_ERRORS) and is_down(error.__cause__)
    if isinstance(error, AuthenticationError | AuthorizationError | MaxConnectionsError | ClosedInUseError):
        return False
    text = str(error)
    may_pass = any(words in text for words in TLS_HANG_UPS) or not any(words in text for words in _PERMANENT_MESSAGES)
    return isinstance(error, LOST_CONNECTION_ERRORS) and may_pass


def is_temporary(error: Exception) -> bool:
    """Whether the same call may succeed in a moment: connection, timeout, LOADING, BUSY, READONLY, TRYAGAIN and such.

    So may a call that found all connections of its process busy, unless it has waited for one already.
    """
    is_busy = str(error).startswith(BUSY_PREFIX)
    return is_busy or is_down(error) or isinstance(error, (*REPLICA_ERRORS, TryAgainError, MaxConnectionsError))


@dataclass(frozen=True)
class Retries:
    """Exponential backoff with jitter; no attempt begins more than ``seconds`` after the first.

    If the first is refused, the seconds count from its answer: a paused server may take long to say that another one is
    the primary by now.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = pauses.sleep

    def call(
        self,
        attempt: Callable[[], T],
        should_retry: Callable[[Exception], bool] = is_temporary,
        before_retry: Callable[[Exception], None] = lambda _: None,
    ) -> T:
        """Return what ``attempt`` returns, or raise its last error, or the first one that will not pass."""
        deadline = self.clock() + self.seconds
        is_first = True
        max_pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return attempt()
            except Exception as error:
                if is_first and isinstance(error, ResponseError):
                    deadline = self.clock() + self.seconds
                is_first = False
                pause = random.uniform(max_pause / 2, max_pause)  # noqa: S311 - so that many callers do not retry at once
                if not should_retry(error) or self.clock() + pause > deadline:
                    raise
                self.sleep(pause)
                before_retry(error)
            max_pause = min(2 * max_pause, _MAX_PAUSE_SECONDS)
