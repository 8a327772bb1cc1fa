"""Messages that hold what no store can keep, such as an array as a tool's artifact or a file handle in an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.storable import LEFT_OUT, UNSTORED_KEY, without_unstorable
from langmem_adapters.errors import SerializationError
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.convert import to_message
from langmem_adapters.model import Message, MessageData
from langmem_adapters.warn_once import WarnOnce

_EMPTY_FIELDS: Final[dict[str, Any]] = {"content": "", "id": None, "name": None, "tool_call_id": "", "tool_calls": []}


def to_message_leniently(message: BaseMessage) -> Message:
    """:func:`to_message`; if fields have values that the message's class does not allow, without these fields."""
    try:
        return to_message(message)
    except SerializationError:
        empty = {name: value for name, value in _EMPTY_FIELDS.items() if name in message.__dict__}
        wrong = {name: value for name, value in empty.items() if not _is_convertible_with(message, empty, name)}
        update = wrong | ({"id": str(message.id or "")} if "id" in wrong else {})
        reduced = to_message(message.model_copy(update=update))
        return reduced.model_copy(update={"metadata": {UNSTORED_KEY: sorted(wrong)}})


def _is_convertible_with(message: BaseMessage, empty_fields: Mapping[str, Any], name: str) -> bool:
    """Whether a message could be converted if only this one of these fields had its value."""
    try:
        to_message(message.model_copy(update={field: value for field, value in empty_fields.items() if field != name}))
    except SerializationError:
        return False
    return True


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
