"""A circuit breaker: calls to what is down fail at once, until a probe beside the calls finds it back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.warn_once import BROKEN

__all__ = ["GRACE", "PATIENCE", "Breaker"]

T = TypeVar("T")

GRACE = 0.25
"""Seconds that the call which sends a probe waits for its answer, unless it is in a hurry."""
PATIENCE = 0.2
"""Seconds that a call may be late for its cache, once, when the store or an index of that does not answer."""
_PAUSE = 0.5  # seconds between two probes
_log = logging.getLogger("langmem_adapters")


class Breaker:
    """Stops calls to a store or a server that is down.

    It breaks when a call fails because that is down, and none has succeeded since the call began. Then the next call
    has a probe sent, waits for it a moment, and fails if it does not succeed; others fail at once.

    Args:
        probe: Asks it anything, and raises what that raises. Called on a thread of its own.
        said: The sentence for an error.
        is_down: Whether an error says that it is down, as opposed to one that refuses something, and will again.
        clock: Gives monotonic seconds.
        pause: Seconds between the end of a probe and the next.
        grace: Seconds that the call which sends a probe waits for it.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        said: Callable[[Exception], str] = str,
        *,
        is_down: Callable[[Exception], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
        pause: float = _PAUSE,
        grace: float = GRACE,
    ) -> None:
        self._probe = probe
        self._said = said
        self._is_down = is_down
        self._clock = clock
        self._pause = pause
        self._grace = grace
        self._successes = 0
        self._sentence: str | None = None  # None: whole
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Have no probe on its way."""
        self._lock = threading.Lock()
        self._probing: threading.Thread | None = None
        self._rests_until = 0.0

    def guard(self, call: Callable[[], T]) -> T:
        """Make a call, unless it is known to be down: then raise StoreUnavailable."""
        with self.watching():
            return call()

    @contextmanager
    def watching(self, *, tells: bool = True) -> Iterator[None]:
        """:meth:`guard` for what is done in a block, which may be a part of a flow; ``tells`` as of :meth:`ended`."""
        successes = self.begun()
        try:
            yield
        except Exception as error:
            self.ended(successes, error)
            raise
        self.ended(successes, None, tells=tells)

    def begun(self) -> int:
        """Raise StoreUnavailable, where it is known to be down. Gives what :meth:`ended` is to be told."""
        if self._sentence is not None:
            self._look()
        return self._successes

    def ended(self, successes: int, error: BaseException | None, *, tells: bool = True) -> None:
        """Take note of how a call ended; ``tells`` whether its success says that what failed would succeed too."""
        if isinstance(error, Exception):
            if self._successes == successes and self._is_down(error):
                self._break(self._said(error))
        elif error is None and tells:
            self._successes += 1
            if self._sentence is not None:
                self._mend()

    def _break(self, sentence: str) -> None:
        if self._sentence is None:
            self._rests_until = 0.0
            _log.info("%s; calls fail at once until it answers", sentence)  # no warning, as the error tells the caller
        self._sentence = sentence

    def _mend(self) -> None:
        sentence, self._sentence = self._sentence, None
        if sentence is not None:  # nobody else has found it back meanwhile
            _log.info("it answers again, after: %s", sentence)

    def _look(self) -> None:
        probing = self._send_probe()
        if probing is not None and probing.ident is not None:
            probing.join(self._grace)
        sentence = self._sentence
        if sentence is not None:
            raise StoreUnavailable(sentence + BROKEN)

    def _send_probe(self) -> threading.Thread | None:
        """Start a probe, if one is due and none is on its way."""
        with self._lock:
            if self._probing is not None or self._clock() < self._rests_until:
                return None
            thread = self._probing = threading.Thread(target=self._ask, name="langmem-probe", daemon=True)
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
