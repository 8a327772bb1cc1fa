"""Messages without what no store can keep, such as an array as a tool's artifact or a file handle in an extra."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from langmem_adapters.codec import to_plain
from langmem_adapters.errors import SerializationError
from langmem_adapters.model import Message, ToolCall

UNSTORED_KEY: Final = "unstored"
"""Key in a message's metadata: the names of the parts that it is stored without."""

LEFT_OUT: Final = "messages are stored without the parts that cannot be stored"
"""What a log says then."""

_OPEN_FIELDS: Final = frozenset({"additional_kwargs", "artifact", "extra", "response_metadata"})  # of any keys
_OPEN_CALL_FIELDS: Final = frozenset({"args", "extras"})
_OPEN_BLOCK_FIELDS: Final = frozenset({"extras"})


def without_unstorable(message: Message) -> Message:
    """The message without those of its parts that cannot be stored; their names are in its metadata.

    >>> from langmem_adapters import Message
    >>> plot = Message(role="tool", content="a plot", host={"langchain": {"artifact": object(), "status": "error"}})
    >>> without_unstorable(plot).host, without_unstorable(plot).metadata
    ({'langchain': {'status': 'error'}}, {'unstored': ['artifact']})
    """
    with suppress(SerializationError):
        message.to_bytes()
        return message
    unstored: set[str] = set()
    content = message.content
    if not isinstance(content, str):
        content = list(_storable_blocks(content, unstored))
    host = {name: _storable_fields(fields, unstored, _OPEN_FIELDS) for name, fields in message.host.items()}
    calls = [ToolCall(**_storable_fields(dict(call), unstored, _OPEN_CALL_FIELDS)) for call in message.tool_calls]
    metadata = _storable_fields(message.metadata, unstored)
    if not unstored:  # it is refused as a whole
        return message
    metadata[UNSTORED_KEY] = sorted(unstored)
    return message.model_copy(update={"host": host, "tool_calls": calls, "content": content, "metadata": metadata})


def _storable_blocks(blocks: Sequence[Any], unstored: set[str]) -> Iterator[Any]:
    """The blocks that can be stored; of others those with text, or with all but some extras, without the rest."""
    for block in blocks:
        if _is_storable(block):
            yield block
        else:
            unstored.add("content")
            kept = _storable_fields(block, set(), _OPEN_BLOCK_FIELDS) if isinstance(block, dict) else {}
            if "text" in kept or (kept and kept.keys() == block.keys()):
                yield kept


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
