"""What the Redis store does while its server does not answer: tries again for a moment, then fails at once.

:class:`Patience` repeats a call whose failure may pass by itself. :class:`Breaker` remembers that nothing helped:
from then on a call costs microseconds instead of a timeout, until a probe beside the calls finds the server back.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    MaxConnectionsError,
    ReadOnlyError,
    RedisClusterException,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from langmem_adapters.errors import StoreUnavailable

__all__ = ["LOST", "Breaker", "Patience", "is_down", "may_pass"]

T = TypeVar("T")

LOST = (RedisConnectionError, RedisTimeoutError)
"""Whether the command was carried out, nobody knows. (An answer that the server is loading is among them.)"""

_LASTING = ("No connection available", "SSL", "certificate", "Invalid Database")
_FIRST_PAUSE = 0.05  # seconds; each further one is twice as long
_LONGEST_PAUSE = 0.5
_PROBE_PAUSE = 0.5  # seconds between two probes
_PROBE_GRACE = 0.25  # seconds that the call which sends a probe waits for its answer
_log = logging.getLogger("langmem_adapters")


def is_down(error: Exception) -> bool:
    """Whether the server is out of reach, as opposed to one that refuses something, and will again."""
    if isinstance(error, RedisClusterException):  # of the last of its nodes
        return isinstance(error.__cause__, LOST) and is_down(error.__cause__)
    lasting = isinstance(error, AuthenticationError | AuthorizationError | MaxConnectionsError) or any(
        words in str(error) for words in _LASTING
    )
    return isinstance(error, LOST) and not lasting


def may_pass(error: Exception) -> bool:
    """Whether the same call may go better in a moment: connection, timeout, LOADING, READONLY, TRYAGAIN.

    So may one that found all connections of its process busy, unless it has waited for one already.
    """
    return is_down(error) or isinstance(error, ReadOnlyError | TryAgainError | MaxConnectionsError)


@dataclass(frozen=True)
class Patience:
    """Repeats a call after growing, jittered pauses; no try begins more than ``seconds`` after the first."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

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


class Breaker:
    """Stops calls to a server that is down.

    It breaks when a call fails because the server is down, and none has succeeded since that call began. Then the
    next call has a probe sent, waits for it a moment, and fails if it does not succeed; others fail at once.

    Args:
        probe: Asks the server anything, and raises what it raises. Called on a thread of its own.
        said: The sentence for an error.
        clock: Gives monotonic seconds.
        pause: Seconds between the end of a probe and the next.
        grace: Seconds that the call which sends a probe waits for it.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        said: Callable[[Exception], str],
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: float = _PROBE_PAUSE,
        grace: float = _PROBE_GRACE,
    ) -> None:
        self._probe = probe
        self._said = said
        self._clock = clock
        self._pause = pause
        self._grace = grace
        self._successes = 0
        self._sentence: str | None = None  # None: whole
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._probing: threading.Thread | None = None
        self._rests_until = 0.0

    def guard(self, call: Callable[[], T]) -> T:
        """Make a call, unless the server is known to be down: then raise StoreUnavailable."""
        if self._sentence is not None:
            self._look()
        before = self._successes
        try:
            result = call()
        except Exception as error:
            if self._successes == before and is_down(error):
                self._break(error)
            raise
        self._successes += 1
        if self._sentence is not None:
            self._mend()
        return result

    def _break(self, error: Exception) -> None:
        if self._sentence is None:
            self._rests_until = 0.0
            _log.info(  # no warning, as the caller is told by the error
                "%s; calls fail at once until it answers", self._said(error)
            )
        self._sentence = self._said(error)

    def _mend(self) -> None:
        self._sentence = None
        _log.info("Redis answers again")

    def _look(self) -> None:
        if self._pid != os.getpid():
            self._begin()  # the probe's thread is the parent's, and the lock may have been held
        probing = self._send_probe()
        if probing is not None and probing.ident is not None:
            probing.join(self._grace)
        sentence = self._sentence
        if sentence is not None:
            raise StoreUnavailable(
                f"{sentence}; it is asked again in a moment, and until it answers calls fail at once"
            )

    def _send_probe(self) -> threading.Thread | None:
        """Start a probe, if one is due and none is on its way."""
        with self._lock:
            if self._probing is not None or self._clock() < self._rests_until:
                return None
            thread = self._probing = threading.Thread(target=self._ask, name="langmem-redis-probe", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending
            self._ask()
        return thread

    def _ask(self) -> None:
        try:
            self._probe()
        except Exception as error:  # noqa: BLE001 - whoever calls next is told
            if self._sentence is not None:  # nobody else has found it back meanwhile
                self._sentence = self._said(error)
        else:
            self._mend()
        finally:
            self._rests_until = self._clock() + self._pause
            self._probing = None
