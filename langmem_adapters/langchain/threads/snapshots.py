"""Keeps what the runs that read a history were given, so that each ends with what it began with.

``RunnableWithMessageHistory`` reads a history when a turn begins, and again when it ends: it cuts off as many messages
from what the model was shown as the second read returns. So the second read is answered from what the model was shown.
"""

from __future__ import annotations

import inspect
from collections import deque
from types import FrameType
from typing import Final, NamedTuple
from uuid import UUID

from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import var_child_runnable_config

from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock

__all__ = ["Reader", "Snapshots", "is_cut_off"]

_READS: Final = {"messages", "aget_messages"}
_WRITES: Final = {"add_messages"}
_BEGINS: Final = {"_enter_history", "_aenter_history"}
_ENDS: Final = {"_exit_history", "_aexit_history"}
_SHOWN: Final = "input_messages"  # their variable for what the model was shown
_RUN: Final = "run"  # their variable for the turn's run in traces
_TURNS: Final = 256  # that may run at once through one object


class Reader(NamedTuple):
    """Identifies a read: the calling function's name, the run of its chain step, and what an ending turn was shown.

    Nothing else tells the two reads of a turn apart: each is in a run of its own, and their callbacks have no common
    parent. If the first were kept for the whole chain, or for the next read after a turn that failed, it would show
    outdated messages.
    """

    name: str
    run_id: UUID | None
    shown: list[BaseMessage] | None

    @classmethod
    def of_now(cls) -> Reader:
        """Identify the caller of the history's property or method that calls this."""
        frame = _caller(inspect.currentframe(), _READS)
        name = frame.f_code.co_name if frame else ""
        return cls(name, _run_id(), _shown(frame) if frame and name in _ENDS else None)


def is_cut_off() -> bool:
    """Whether the method of a history that calls this is given a stream that its reader has left.

    Without asyncio, ``RunnableWithMessageHistory`` then takes the part that has arrived for the whole answer. The steps
    below the turn that produced it have not ended.
    """
    frame = _caller(inspect.currentframe(), _WRITES)
    if frame is None or frame.f_code.co_name not in _ENDS:
        return False
    steps = getattr(frame.f_locals.get(_RUN), "child_runs", None) or ()
    return any(step.end_time is None for step in steps)


def _caller(frame: FrameType | None, methods: set[str]) -> FrameType | None:
    """The caller of these methods of a history, from outside of the history and of a class derived from it."""
    frame = frame and frame.f_back
    while frame and frame.f_code.co_name in methods:
        frame = frame.f_back
    return frame


def _run_id() -> UUID | None:
    """The id of the current run; None outside of a run, and before Python 3.11 in coroutines."""
    config = var_child_runnable_config.get()
    return getattr(config.get("callbacks"), "parent_run_id", None) if config else None


def _shown(frame: FrameType) -> list[BaseMessage] | None:
    shown = frame.f_locals.get(_SHOWN)
    return shown if isinstance(shown, list) else None


class _Begun(NamedTuple):
    """How many messages a turn was given, and the last of them."""

    length: int
    last: BaseMessage | None

    def begins(self, shown: list[BaseMessage]) -> bool:
        """Whether these messages begin with them; they have been through JSON, where an artifact may change."""
        if self.last is None or self.length > len(shown):
            return self.last is None
        last = shown[self.length - 1]
        return (last.type, last.id, last.content) == (self.last.type, self.last.id, self.last.content)


class Snapshots:
    """The reads to repeat: those of turns until they end, and the latest of a step until something is written."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._begun: deque[_Begun] = deque(maxlen=_TURNS)
        self._read: tuple[UUID, list[BaseMessage]] | None = None

    def known(self, reader: Reader) -> list[BaseMessage] | None:
        """The messages for this read; None if it must read from the store."""
        if reader.shown is not None and (turn := self._ended(reader.shown)):
            return reader.shown[: turn.length]
        return self._read[1] if self._read is not None and self._read[0] == reader.run_id else None

    def _ended(self, shown: list[BaseMessage]) -> _Begun | None:
        """The turn that ends here; None if a subclass or a wrapper showed other messages than were read here."""
        with no_fork, self._lock.held():
            fitting = [begun for begun in self._begun if begun.begins(shown)]
            turn = max(fitting, key=lambda begun: begun.length, default=None)
            if turn is not None:
                self._begun.remove(turn)
            return turn

    def keep(self, reader: Reader, messages: list[BaseMessage]) -> None:
        """Remember what was read."""
        if reader.name in _BEGINS:
            with no_fork, self._lock.held():
                self._begun.append(_Begun(len(messages), messages[-1] if messages else None))
        elif reader.run_id is not None:
            self._read = reader.run_id, messages

    def written(self) -> None:
        """Let a step read again; turns that have begun still end with what they began with."""
        self._read = None
