"""Messages that hold what no store can keep, such as an array as a tool's artifact or a file handle in an extra."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.storable import LEFT_OUT, UNSTORED_KEY, without_unstorable
from langmem_adapters.errors import SerializationError
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.convert import role_of, to_message
from langmem_adapters.model import Message, MessageData
from langmem_adapters.warn_once import WarnOnce

__all__ = ["append_messages", "to_message_leniently"]


def to_message_leniently(message: BaseMessage) -> Message:
    """:func:`to_message`; for a message with values that its class does not allow, only what is certain of it."""
    try:
        return to_message(message)
    except SerializationError:
        content = message.content
        text = content if isinstance(content, str) else ""
        metadata = {UNSTORED_KEY: ["content"]}
        return Message(id=str(message.id or ""), role=role_of(message), content=text, metadata=metadata)


def append_messages(brain: BrainMemory, messages: Sequence[Message | MessageData], warn: WarnOnce) -> Flow[None]:
    """Append messages to a session; if they cannot be stored as they are, without the parts that cannot."""
    try:
        yield from brain._add(messages)  # noqa: SLF001 - a part of this flow
    except SerializationError as error:
        originals = [message if isinstance(message, Message) else message.message() for message in messages]
        reduced = [without_unstorable(message) for message in originals]
        if all(message is original for message, original in zip(reduced, originals, strict=True)):
            raise
        warn(LEFT_OUT, error)
        yield from brain._add(reduced)  # noqa: SLF001 - same
