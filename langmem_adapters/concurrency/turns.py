"""Turns of the flows of one process that change the same thing, since those that change it at once only fail."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Generator, Hashable
from functools import partial
from itertools import count

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.concurrency.outcomes import Outcome
from langmem_adapters.concurrency.workers import Flow, Step

_MAX_TURN_SECONDS = 1.0  # after which the next one is let in, so that a slow change does not hold up fast ones


class _Lines:
    """Who waits for a turn, by what it is for; the first has it."""

    def __init__(self) -> None:
        reset_in_child(self)

    def reset_state(self) -> None:
        self._lock = threading.RLock()  # reentrant: garbage collection may close an abandoned flow while it is held
        self._lines: dict[Hashable, deque[Outcome[None]]] = {}

    def join(self, key: Hashable, ticket: Outcome[None]) -> None:
        with self._lock:
            line = self._lines.setdefault(key, deque())
            line.append(ticket)
            self._lines[key] = line  # again, as such a flow may have been the last in this line
            self._call_first(line)

    def leave(self, key: Hashable, ticket: Outcome[None]) -> None:
        with self._lock:
            line = self._lines.get(key, deque())
            with contextlib.suppress(ValueError):  # it has left, or stands in the line of a parent process
                line.remove(ticket)
            self._call_first(line)
            if not line:
                self._lines.pop(key, None)

    def first(self, key: Hashable) -> Outcome[None] | None:
        with self._lock:
            line = self._lines.get(key)  # a forked child has none of its parent's
            return line[0] if line else None

    @staticmethod
    def _call_first(line: deque[Outcome[None]]) -> None:
        if line and not line[0].is_settled:
            line[0].settle(None)


_lines = _Lines()


class Turn:
    """A place in a line of this process, once it is taken."""

    def __init__(self, key: Hashable) -> None:
        self.attempts = count()  # of the change that it is for
        self._key = key
        self._ticket: Outcome[None] | None = None

    def take(self) -> Flow[None]:
        """Wait until it is this flow's turn. Later calls do nothing: a turn that took too long is over."""
        if self._ticket is not None:
            return
        self._ticket = ticket = Outcome[None]()
        _lines.join(self._key, ticket)
        while not ticket.is_settled and (first := _lines.first(self._key)):
            yield Step(partial(ticket.wait, _MAX_TURN_SECONDS), partial(ticket.await_, _MAX_TURN_SECONDS))
            if not ticket.is_settled:
                _lines.leave(self._key, first)  # unless it has left

    def end(self) -> None:
        """Let the next one have its turn."""
        if self._ticket is not None:
            _lines.leave(self._key, self._ticket)


@contextlib.contextmanager
def turn_for(key: Hashable) -> Generator[Turn]:
    """A turn to take at changing what ``key`` names, which ends with the block.

    Nobody's change depends on it: others, such as other processes, change the same without.
    """
    turn = Turn(key)
    try:
        yield turn
    finally:
        turn.end()
