"""A circuit breaker: while a server is down, calls fail at once, until a probe in the background finds it back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from langmem_adapters.concurrency.background import start_thread
from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.warn_once import BREAKER_SUFFIX

T = TypeVar("T")

GRACE_SECONDS = 0.25
"""Seconds that the call which sends a probe waits for its result, unless the call has a short timeout."""
PATIENCE_SECONDS = 0.2
"""Seconds that a cache may delay a call, once, when its store or index does not answer."""
_PROBE_PAUSE_SECONDS = 0.5
_log = logging.getLogger("langmem_adapters")


class Breaker:
    """Stops calls to a store or a server that is down.

    It opens when a call fails because the server is down and no call has succeeded since that one began. The next call
    then sends a probe, waits for it a moment, and fails if it does not succeed; other calls fail at once.

    Args:
        probe: Asks the server anything, and raises what that raises. Called on a thread of its own.
        describe: Makes the sentence for an error.
        is_down: Whether an error means that the server is down, rather than that it refuses this call.
        clock: Gives monotonic seconds.
        pause: Seconds between the end of a probe and the next probe.
        grace: Seconds that the call which sends a probe waits for it.
    """

    def __init__(
        self,
        probe: Callable[[], object],
        describe: Callable[[Exception], str] = str,
        *,
        is_down: Callable[[Exception], bool] = lambda _: True,
        clock: Callable[[], float] = time.monotonic,
        pause: float = _PROBE_PAUSE_SECONDS,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._probe = probe
        self._describe = describe
        self._is_down = is_down
        self._clock = clock
        self._pause = pause
        self._grace = grace
        self._successes = 0
        self._sentence: str | None = None  # None: closed
        reset_in_child(self)

    def reset_state(self) -> None:
        """Have no probe running."""
        self._lock = threading.Lock()
        self._probe_thread: threading.Thread | None = None
        self._next_probe_at = 0.0

    def guard(self, call: Callable[[], T], *, may_close: bool = True) -> T:
        """Make a call; if the server is known to be down, raise StoreUnavailable instead.

        ``may_close`` as for :meth:`after_call`.
        """
        successes = self.before_call()
        try:
            answer = call()
        except Exception as error:
            self.after_call(successes, error)
            raise
        self.after_call(successes, None, may_close=may_close)
        return answer

    def before_call(self) -> int:
        """Raise StoreUnavailable if the server is known to be down. Returns what :meth:`after_call` needs."""
        if self._sentence is not None:
            self._probe_or_raise()
        return self._successes

    def after_call(self, successes: int, error: BaseException | None, *, may_close: bool = True) -> None:
        """Note how a call ended. ``may_close``: if it succeeded, the calls that failed would succeed too."""
        if isinstance(error, Exception):
            if self._successes == successes and self._is_down(error):
                self._open(self._describe(error))
        elif error is None and may_close:
            self._successes += 1
            if self._sentence is not None:
                self._close()

    def _open(self, sentence: str) -> None:
        if self._sentence is None:
            self._next_probe_at = 0.0
            _log.info("%s; calls fail at once until it answers", sentence)  # no warning, since the caller gets an error
        self._sentence = sentence

    def _close(self) -> None:
        sentence, self._sentence = self._sentence, None
        if sentence is not None:  # unless another thread has closed it already
            _log.info("it answers again, after: %s", sentence)

    def _probe_or_raise(self) -> None:
        thread = self._send_probe()
        if thread is not None and thread.ident is not None:
            thread.join(self._grace)
        sentence = self._sentence
        if sentence is not None:
            raise StoreUnavailable(sentence + BREAKER_SUFFIX)

    def _send_probe(self) -> threading.Thread | None:
        """Start a probe if one is due and none is running."""
        try:
            with self._lock:
                if self._probe_thread is not None or self._clock() < self._next_probe_at:
                    return None
                thread = threading.Thread(target=self._run_probe, name="langmem-probe", daemon=True)
                self._probe_thread = thread
            start_thread(thread)
        except RuntimeError:  # the interpreter is shutting down
            self._run_probe()
        except BaseException:  # an interrupt: others would wait for ever for a probe that may not run
            self._probe_thread = None
            raise
        return thread

    def _run_probe(self) -> None:
        try:
            self._probe()
        except Exception as error:  # noqa: BLE001 - the next caller is told
            if self._sentence is not None:  # unless a call has succeeded meanwhile
                self._sentence = self._describe(error)
        else:
            self._close()
        finally:
            self._next_probe_at = self._clock() + self._pause
            self._probe_thread = None
