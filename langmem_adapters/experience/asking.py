"""While a model is asked: who waits for whom, where several ask the same or a stream is still being read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from langmem_adapters.experience.cached import FunctionCache
from langmem_adapters.experience.flights import Flight
from langmem_adapters.experience.rules import Turn

__all__ = ["Asking"]

_reading: ContextVar[tuple[Flight, ...]] = ContextVar("langmem_reading", default=())


class Asking:
    """The part of the hosts' answers that knows of calls in the air."""

    _calls: FunctionCache
    _open: dict[str, tuple[Flight, int | None]]

    @contextmanager
    def _held(self, turn: Turn) -> Iterator[None]:
        """While the model answers: if it fails, or nobody reads on, others may try."""
        try:
            yield
        except BaseException:
            self._calls.let_go(turn)
            raise

    @contextmanager
    def _read_by(self, turn: Turn, thread: int | None) -> Iterator[None]:
        """While a stream is read: its reader must not wait for itself, if it asks the same again."""
        if turn.flight is None:
            yield
            return
        self._open[turn.key] = (turn.flight, thread)
        _reading.set((*(flight for flight in _reading.get() if not flight.landed.done()), turn.flight))
        try:
            yield
        finally:
            self._open.pop(turn.key, None)

    def _apart(self, key: str) -> AbstractContextManager[None]:
        """Apart from a stream of the same that is being read here."""
        flight, thread = self._open.get(key, (None, None))
        own = flight in _reading.get() or thread == threading.get_ident()
        return self._calls.led(Turn((), {}, flight=flight if own else None))
