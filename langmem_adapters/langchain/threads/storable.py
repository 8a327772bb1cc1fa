"""Messages that hold what no store can keep, such as an array as a tool's artifact or a file handle in an extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.codec import plain
from langmem_adapters.errors import SerializationError
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.convert import role_of, to_message
from langmem_adapters.model import Message, MessageData
from langmem_adapters.warn_once import WarnOnce

__all__ = ["UNSTORED", "added", "legible", "storable"]

UNSTORED: Final = "unstored"
"""Key in a message's metadata: the names of the parts that it is stored without."""

T = TypeVar("T")


def legible(message: BaseMessage) -> Message:
    """:func:`to_message`; for a message with values that its class does not allow, only what is certain of it."""
    try:
        return to_message(message)
    except SerializationError:
        content = message.content
        text = content if isinstance(content, str) else ""
        return Message(id=str(message.id or ""), role=role_of(message), content=text, metadata={UNSTORED: ["content"]})


def added(brain: BrainMemory, messages: Sequence[Message | MessageData], warn: WarnOnce) -> Flow[None]:
    """Append messages to a session; if they cannot be stored as they are, without the parts that cannot."""
    try:
        yield from brain._add(messages)  # noqa: SLF001 - a part of this flow
    except SerializationError as error:
        whole = [message if isinstance(message, Message) else message.message() for message in messages]
        kept = [storable(message) for message in whole]
        if all(message is old for message, old in zip(kept, whole, strict=True)):
            raise
        warn("messages are stored without the parts that cannot be stored", error)
        yield from brain._add(kept)  # noqa: SLF001 - same


def storable(message: Message) -> Message:
    """The message without those of its parts that cannot be stored; their names are in its metadata.

    >>> from langmem_adapters import Message
    >>> plot = Message(role="tool", content="a plot", host={"langchain": {"artifact": object(), "status": "error"}})
    >>> storable(plot).host, storable(plot).metadata
    ({'langchain': {'status': 'error'}}, {'unstored': ['artifact']})
    """
    lost: list[str] = []
    content = message.content
    host = {name: _kept(fields, lost) for name, fields in message.host.items()}
    calls = [call.model_copy(update={"args": _kept(call.args, lost)}) for call in message.tool_calls]
    blocks = content if isinstance(content, str) else [block for block in content if _keeps("content", block, lost)]
    metadata = _kept(message.metadata, lost)
    if not lost:
        return message
    metadata = {**metadata, UNSTORED: sorted(set(lost))}
    return message.model_copy(update={"host": host, "tool_calls": calls, "content": blocks, "metadata": metadata})


def _kept(fields: dict[str, T], lost: list[str]) -> dict[str, T]:
    return {name: value for name, value in fields.items() if _keeps(name, value, lost)}


def _keeps(name: str, value: Any, lost: list[str]) -> bool:
    try:
        plain(value)
    except SerializationError:
        lost.append(name)
        return False
    return True
