"""Messages that hold what no store can keep, such as an array as a tool's artifact or a file handle in an extra."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.codec import to_plain
from langmem_adapters.errors import SerializationError
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.convert import role_of, to_message
from langmem_adapters.model import Message, MessageData, ToolCall
from langmem_adapters.warn_once import WarnOnce

__all__ = ["UNSTORED_KEY", "append_messages", "to_message_leniently", "without_unstorable"]

UNSTORED_KEY: Final = "unstored"
"""Key in a message's metadata: the names of the parts that it is stored without."""

_OPEN_FIELDS: Final = frozenset({"additional_kwargs", "artifact", "extra", "response_metadata"})  # of any keys
_OPEN_CALL_FIELDS: Final = frozenset({"args", "extras"})


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
        warn("messages are stored without the parts that cannot be stored", error)
        yield from brain._add(reduced)  # noqa: SLF001 - same


def without_unstorable(message: Message) -> Message:
    """The message without those of its parts that cannot be stored; their names are in its metadata.

    >>> from langmem_adapters import Message
    >>> plot = Message(role="tool", content="a plot", host={"langchain": {"artifact": object(), "status": "error"}})
    >>> without_unstorable(plot).host, without_unstorable(plot).metadata
    ({'langchain': {'status': 'error'}}, {'unstored': ['artifact']})
    """
    unstored: set[str] = set()
    content = message.content
    if not isinstance(content, str):
        content = list(_storable_blocks(content, unstored))
    host = {name: _storable_fields(fields, unstored, _OPEN_FIELDS) for name, fields in message.host.items()}
    calls = [ToolCall(**_storable_fields(dict(call), unstored, _OPEN_CALL_FIELDS)) for call in message.tool_calls]
    metadata = _storable_fields(message.metadata, unstored)
    if not unstored:
        return message
    metadata[UNSTORED_KEY] = sorted(unstored)
    return message.model_copy(update={"host": host, "tool_calls": calls, "content": content, "metadata": metadata})


def _storable_blocks(blocks: Sequence[Any], unstored: set[str]) -> Iterator[Any]:
    """The blocks that can be stored, and of others the text that was said, without what stands beside it."""
    for block in blocks:
        if _is_storable(block):
            yield block
        else:
            unstored.add("content")
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                yield _storable_fields(block, set())


def _storable_fields(
    fields: dict[Any, Any], unstored: set[str], open_fields: frozenset[str] = frozenset(), path: str = ""
) -> dict[Any, Any]:
    kept: dict[Any, Any] = {}
    for name, value in fields.items():
        if _is_storable({name: value}):
            kept[name] = value
        elif name in open_fields and isinstance(value, dict):
            kept[name] = _storable_fields(value, unstored, path=f"{name}.")
        else:
            unstored.add(path + name if isinstance(name, str) else path.removesuffix("."))
    return kept


def _is_storable(value: Any) -> bool:
    try:
        to_plain(value)
    except SerializationError:
        return False
    return True
