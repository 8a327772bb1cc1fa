"""What models answered, as policies are shown it: the text, and the calls of tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langmem_adapters.codec import encode
from langmem_adapters.errors import SerializationError
from langmem_adapters.model import Message

__all__ = ["said"]


def said(entries: Sequence[Mapping[str, Any]]) -> str:
    r"""The words of a kept answer, of which there may be several; each call of a tool in a line of its own.

    Raises SerializationError for what is no kept answer.

    >>> said([{"message": {"role": "assistant", "content": "Let me see.", "tool_calls": [{"name": "look"}]}}])
    'Let me see.\nlook {}'
    """
    try:
        return "\n\n".join("\n".join(_lines(entry)) for entry in entries)
    except (TypeError, LookupError) as error:
        raise SerializationError("a kept answer has neither a text nor a message") from error


def _lines(entry: Mapping[str, Any]) -> Iterator[str]:
    if "message" not in entry:
        yield str(entry["text"])
        return
    message = Message.from_data(entry["message"])
    if message.text:
        yield message.text
    for call in message.tool_calls:
        yield f"{call.name} {encode(call.args).decode()}"
