"""Record a turn whatever happens to it: the question, and as much of the answer as there was."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import groupby
from types import TracebackType
from typing import Any, Final, Generic, TypeVar, overload

from typing_extensions import Self

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, LangmemError
from langmem_adapters.flow import has_loop
from langmem_adapters.model import Message
from langmem_adapters.providers.content import THOUGHT_TYPES
from langmem_adapters.text import tool_calls_of, without_calls

INTERRUPTED: Final = "interrupted"
"""Key in a message's metadata: set on the last message of a turn that was interrupted."""

P = TypeVar("P")
S = TypeVar("S")

_SILENT_TYPES = THOUGHT_TYPES | {"text"}
# Calls of a provider's own tools, whose results follow them in the same message.
_SERVER_CALL_TYPES = frozenset({"server_tool_use", "mcp_tool_use", "server_tool_call", "server_tool_call_chunk"})
_log = logging.getLogger("langmem_adapters")


class Turn(Generic[P]):
    """A question and its answer, written in one append when the ``with`` or ``async with`` block ends.

    The turn is interrupted when the block is left by an exception (including cancellation, KeyboardInterrupt and
    GeneratorExit) or before a stream that it watches is exhausted. Then tool calls without a result are dropped,
    so that a model may be shown what is stored, and the last message is marked. The exception is not suppressed.

    Args:
        question: What was asked.
        pieces: The types of an answer's pieces.
        gather: Makes messages of the pieces.
        write, awrite: Append messages to the history, blocking and not.
        mark: Marks the last message of an interrupted turn.
        new_id: Gives an id to a message that has none, so that an interrupted write can be repeated.
    """

    def __init__(
        self,
        question: Message,
        *,
        pieces: tuple[type, ...],
        gather: Callable[[Sequence[P]], list[Message]],
        write: Callable[[Sequence[Message]], None],
        awrite: Callable[[Sequence[Message]], Awaitable[None]],
        mark: Callable[[Message], Message],
        new_id: Callable[[], str],
    ) -> None:
        self._question = question
        self._types = pieces
        self._gather = gather
        self._write = write
        self._awrite = awrite
        self._mark = mark
        self._new_id = new_id
        self._pieces: list[P] = []
        self._open = False
        self._started_pid = 0  # the process id
        self._streams = Counts()

    def add(self, piece: P) -> None:
        """Add a piece of the answer: some text, or a message such as a tool's result."""
        if not self._open:
            raise ConfigurationError("a turn takes pieces of its answer only inside of its with block")
        if not isinstance(piece, self._types):
            raise ConfigurationError(f"an answer is made of texts and messages, not of {type(piece).__name__}")
        self._pieces.append(piece)

    @overload
    def watch(self, pieces: AsyncIterable[S]) -> AsyncGenerator[S, None]: ...
    @overload
    def watch(self, pieces: Iterable[S]) -> Generator[S, None, None]: ...
    def watch(self, pieces: Any) -> Any:
        """Pass a stream on, and add each of its pieces. A stream that is not read to its end interrupts the turn."""
        self._streams.add("begun")
        return self._watch_async(pieces) if isinstance(pieces, AsyncIterable) else self._watch_sync(pieces)

    def _watch_sync(self, pieces: Iterable[P]) -> Generator[P, None, None]:
        for piece in pieces:
            self.add(piece)
            yield piece
        self._streams.add("ended")

    async def _watch_async(self, pieces: AsyncIterable[P]) -> AsyncGenerator[P, None]:
        async for piece in pieces:
            self.add(piece)
            yield piece
        self._streams.add("ended")

    def __enter__(self) -> Self:
        if self._started_pid:
            raise ConfigurationError("a turn is recorded once; make another with record_turn()")
        self._started_pid, self._open = os.getpid(), True
        return self

    async def __aenter__(self) -> Self:
        return self.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._write(self._close(error))
        except LangmemError:
            self._log_or_raise(error)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not has_loop():  # the loop was closed before a generator of it was collected
            self.__exit__(kind, error, trace)
            return
        try:
            await _finish_write(partial(self._awrite, self._close(error)))
        except LangmemError:
            self._log_or_raise(error)

    def _log_or_raise(self, error: BaseException | None) -> None:
        """Called in an ``except`` clause: must not replace what ended the turn, above all a cancellation."""
        if error is None:
            raise  # noqa: PLE0704 - called where an exception is being handled
        _log.exception("a turn that ended with %s could not be stored", type(error).__name__)

    def _close(self, error: BaseException | None) -> list[Message]:
        """Take no more pieces; the messages to be stored, of which each has an id."""
        self._open = False
        if self._started_pid != os.getpid():  # a forked child collected a generator of its parent, which records it
            return []
        messages = [self._question, *self._gather(self._pieces)]
        if error is not None or self._streams["begun"] != self._streams["ended"]:
            messages = close_interrupted(messages, self._mark)
        return [message if message.id else message.model_copy(update={"id": self._new_id()}) for message in messages]


def merge_pieces(pieces: Sequence[str | Message]) -> list[Message]:
    """Messages as they are; consecutive texts become one assistant message."""
    messages: list[Message] = []
    for is_text, run in groupby(pieces, lambda piece: isinstance(piece, str)):
        if not is_text:
            messages += [piece for piece in run if isinstance(piece, Message)]
        elif text := "".join(piece for piece in run if isinstance(piece, str)):
            messages.append(Message(role="assistant", content=text))
    return messages


def close_interrupted(messages: Sequence[Message], mark: Callable[[Message], Message]) -> list[Message]:
    """The messages of an interrupted turn as they are stored: the last one is marked."""
    closed = _drop_open_calls(messages)
    if closed:
        closed[-1] = mark(closed[-1])
    return closed


def mark_interrupted(message: Message) -> Message:
    """Copy a message with the mark of an interrupted turn."""
    return message.model_copy(update={"metadata": {**message.metadata, INTERRUPTED: True}})


def _drop_open_calls(messages: Sequence[Message]) -> list[Message]:
    """Drop calls that no tool has answered, and assistant messages that say nothing without them."""
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    closed = []
    for message in messages:
        unanswered = {call.id for call in tool_calls_of(message)} - answered
        remaining = _drop_open_server_calls(without_calls(message, unanswered) if unanswered else message)
        closed.append(_drop_trailing_thoughts(remaining))
    return [message for message in closed if message.role != "assistant" or _has_content(message)]


def _drop_open_server_calls(message: Message) -> Message:
    """Drop calls of the provider's tools that were cut off from their results: the provider refuses them, too."""
    blocks = [block for block in message.content if isinstance(block, dict)]
    answered = {block.get(name) for block in blocks for name in ("tool_use_id", "tool_call_id")}
    open_calls = [
        block for block in blocks if block.get("type") in _SERVER_CALL_TYPES and block.get("id") not in answered
    ]
    remaining = [block for block in message.content if block not in open_calls]
    return message.model_copy(update={"content": remaining}) if open_calls else message


def _drop_trailing_thoughts(message: Message) -> Message:
    """Drop thoughts that lead to nothing any more: Anthropic and OpenAI refuse them at the end of a message."""
    if message.role != "assistant" or tool_calls_of(message):
        return message
    content = message.content
    while content and _is_silent(content[-1]):
        content = content[:-1]
    return message.model_copy(update={"content": content})


def _is_silent(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    return kind in THOUGHT_TYPES or (kind == "text" and not block.get("text"))


def _has_content(message: Message) -> bool:
    has_other_block = any(
        isinstance(block, dict) and block.get("type") not in _SILENT_TYPES for block in message.content
    )
    return bool(tool_calls_of(message) or message.text.strip() or has_other_block)


async def _finish_write(write: Callable[[], Awaitable[None]]) -> None:
    """Wait for a write to finish, even if this task is cancelled meanwhile; then the cancellation continues.

    When a loop ends, all tasks are cancelled at once, the write too: then the write is repeated, once for each
    cancellation. Nothing is stored twice, since the messages have their ids.
    """
    task = asyncio.ensure_future(write())
    cancelled: asyncio.CancelledError | None = None
    must_retry = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled, must_retry = error, True
        if must_retry and task.cancelled():
            task, must_retry = asyncio.ensure_future(write()), False
    if cancelled is None:
        return task.result()
    failure = None if task.cancelled() else task.exception()
    if failure or task.cancelled():
        _log.error("a turn that was cancelled could not be stored", exc_info=failure)
    raise cancelled
