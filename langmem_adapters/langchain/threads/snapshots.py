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

_READ_METHODS: Final = {"messages", "aget_messages"}
_WRITE_METHODS: Final = {"add_messages"}
_ENTER_METHODS: Final = {"_enter_history", "_aenter_history"}
_EXIT_METHODS: Final = {"_exit_history", "_aexit_history"}
_INPUT_VARIABLE: Final = "input_messages"  # their variable for what the model was shown
_RUN_VARIABLE: Final = "run"  # their variable for the turn's run in traces
_MAX_OPEN_TURNS: Final = 256  # that may run at once through one object


class Reader(NamedTuple):
    """Identifies a read: the calling function's name, the run of its chain step, and what an ending turn was shown.

    ``last_write`` is the latest write when the read began.
    Nothing else tells the two reads of a turn apart: each is in a run of its own, and their callbacks have no common
    parent. If the first were kept for the whole chain, or for the next read after a turn that failed, it would show
    outdated messages.
    """

    name: str
    run_id: UUID | None
    last_write: object
    input_messages: list[BaseMessage] | None

    @classmethod
    def from_caller(cls, last_write: object) -> Reader:
        """Identify the caller of the history's property or method that calls this."""
        frame = _caller(inspect.currentframe(), _READ_METHODS)
        name = frame.f_code.co_name if frame else ""
        messages = frame.f_locals.get(_INPUT_VARIABLE) if frame and name in _EXIT_METHODS else None
        return cls(name, _run_id(), last_write, messages if isinstance(messages, list) else None)


def is_cut_off() -> bool:
    """Whether the method of a history that calls this is given a stream that its reader has left.

    Without asyncio, ``RunnableWithMessageHistory`` then takes the part that has arrived for the whole answer. The steps
    below the turn that produced it have not ended.
    """
    frame = _caller(inspect.currentframe(), _WRITE_METHODS)
    if frame is None or frame.f_code.co_name not in _EXIT_METHODS:
        return False
    steps = getattr(frame.f_locals.get(_RUN_VARIABLE), "child_runs", None) or ()
    return any(step.end_time is None for step in steps)


def _caller(frame: FrameType | None, methods: set[str]) -> FrameType | None:
    """The caller of these methods of a history, from outside of the history and of a class derived from it."""
    caller = frame.f_back if frame else None
    while caller and caller.f_code.co_name in methods:
        caller = caller.f_back
    return caller


def _run_id() -> UUID | None:
    """The id of the current run; None outside of a run, and before Python 3.11 in coroutines."""
    config = var_child_runnable_config.get()
    return getattr(config.get("callbacks"), "parent_run_id", None) if config else None


class _OpenTurn(NamedTuple):
    """How many messages a turn was given, and the last of them."""

    length: int
    last: BaseMessage | None

    def is_prefix_of(self, messages: list[BaseMessage]) -> bool:
        """Whether these messages begin with them; they have been through JSON, where an artifact may change."""
        if self.last is None:
            return True
        if self.length > len(messages):
            return False
        last = messages[self.length - 1]
        return (last.type, last.id, last.content) == (self.last.type, self.last.id, self.last.content)


class Snapshots:
    """The reads to repeat: those of turns until they end, and the latest of a step until something is written.

    It is the context manager of each write.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._open_turns: deque[_OpenTurn] = deque(maxlen=_MAX_OPEN_TURNS)
        self._latest_read: tuple[UUID, object, list[BaseMessage]] | None = None
        self.last_write = object()  # a new one after each write

    def messages_for(self, reader: Reader) -> list[BaseMessage] | None:
        """The messages for this read; None if it must read from the store."""
        if reader.input_messages is not None and (turn := self._close_turn(reader.input_messages)):
            return reader.input_messages[: turn.length]
        latest_read = self._latest_read  # once, as another thread may replace it
        if latest_read is None:
            return None
        run_id, last_write, messages = latest_read
        return messages if run_id == reader.run_id and last_write is reader.last_write else None

    def _close_turn(self, input_messages: list[BaseMessage]) -> _OpenTurn | None:
        """The turn that ends here; None if a subclass or a wrapper showed other messages than were read here."""
        with no_fork, self._lock.held():
            candidates = [turn for turn in self._open_turns if turn.is_prefix_of(input_messages)]
            # A turn adds a message: one that failed, and was shown what this one was asked, is not this one.
            turn = max(candidates, key=lambda turn: (turn.length < len(input_messages), turn.length), default=None)
            if turn is not None:
                self._open_turns.remove(turn)
            return turn

    def keep(self, reader: Reader, messages: list[BaseMessage]) -> None:
        """Remember what was read."""
        if reader.name in _ENTER_METHODS:
            with no_fork, self._lock.held():
                self._open_turns.append(_OpenTurn(len(messages), messages[-1] if messages else None))
        elif reader.run_id is not None:
            self._latest_read = reader.run_id, reader.last_write, messages

    def __enter__(self) -> None:
        """Surround a write."""

    def __exit__(self, *_: object) -> None:
        """Let a step read again after a write; turns that have begun still end with what they began with.

        A read that was under way meanwhile may lack what was written, so it is not repeated either.
        """
        self.last_write, self._latest_read = object(), None
