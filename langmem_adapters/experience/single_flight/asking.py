"""Single flight for models: who waits for whom, where several ask the same or a stream is still being read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from langmem_adapters import views
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.cached import FunctionCache
from langmem_adapters.experience.functions.arguments import Arguments
from langmem_adapters.experience.functions.rules import Invocation
from langmem_adapters.experience.single_flight.flights import Flight
from langmem_adapters.experience.switches import Switches
from langmem_adapters.sharing import Shared
from langmem_adapters.warn_once import WarnOnce

__all__ = ["CachedModel", "RequestArguments", "SingleFlightAnswers"]

_reading: ContextVar[tuple[Flight, ...]] = ContextVar("langmem_reading", default=())


class RequestArguments(Arguments):
    """The arguments of a model call, which come with their key."""

    def key(self, counted: Mapping[str, Any], owner: str = "") -> str:  # noqa: ARG002 - of no method
        """What the request is known by."""
        return str(counted["key"])

    def made_by(self, owner: str = "") -> str:  # noqa: ARG002 - same
        """Nothing: all that is asked may be compared."""
        return ""

    def request(self, counted: Mapping[str, Any]) -> Any:
        """What was asked."""
        return counted["question"]


class SingleFlightAnswers(Shared):
    """What the hosts' answers have in common: calls that are in flight, and scores in the making."""

    _calls: FunctionCache
    _counts: Counter[str]
    _warn: WarnOnce

    def flush(self) -> None:
        """Wait for the scores that are being made in the background."""
        self._calls.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also for those that are made on it."""
        await self._calls.aflush()

    def pass_by(self, error: SerializationError) -> None:
        """Count and tell a request that has no key, as it cannot be told from another."""
        self._counts["unkeyed"] += 1
        self._warn("requests without a key bypass the cache", error)

    @staticmethod
    def _read_by(turn: Invocation, thread: threading.Thread | None, *, begun: bool = True) -> None:
        """Note who reads a stream, or is about to: they must not wait for themselves, if they ask the same again."""
        own = turn.flight
        if own is not None:
            own.reader = thread
            if begun:
                own.read_on()
            else:
                own.hand_out(begun=False)
            others = (flight for flight in _reading.get() if flight is not own and not flight.landed.done())
            _reading.set((*others, own))

    @staticmethod
    @contextmanager
    def _handed_out(turn: Invocation) -> Iterator[None]:
        """While a reader has a piece of a stream, who may never ask for the next."""
        flight = turn.flight
        if flight is None:
            yield
            return
        flight.hand_out()
        try:
            yield
        finally:
            flight.read_on()

    def _apart(self, key: str) -> AbstractContextManager[None]:
        """Apart from a stream of the same that is read here, or about to be."""
        flight = self._calls.in_air(key)
        own = flight is not None and (flight in _reading.get() or flight.reader is threading.current_thread())
        return self._calls.led(Invocation((), {}, flight=flight if own else None))


class CachedModel(Switches):
    """What every host's model with a cache can be asked about its cache."""

    _answers: Any  # SingleFlightAnswers, of each host its own kind

    def stats(self) -> dict[str, Any]:
        """Hits, misses, shared (hits for which somebody else had just asked), stored, refused, errors, scored.

        And what the hits have saved: saved_tokens, saved_seconds, and saved_money by the ``prices`` of the cache.
        """
        stats: dict[str, Any] = self._answers.stats()
        return stats

    def flush(self) -> None:
        """Wait for the scores that are being made in the background."""
        self._answers.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also for those that are made on it."""
        await self._answers.aflush()

    def _of_model(self, wrapped: object) -> str:
        return views.attempt(self, lambda: views.statistics(self.stats(), title=f"Cached {type(wrapped).__name__}"))
