"""Kept answers of models: as text for policies, and as the pieces of a served stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langmem_adapters.codec import encode
from langmem_adapters.errors import SerializationError
from langmem_adapters.model import Message

_WORD_PATTERN = re.compile(r"\S+\s*|\s+")


def answer_text(entries: Sequence[Mapping[str, Any]]) -> str:
    r"""The text of a kept answer, which may have several entries; each tool call is on its own line.

    Raises SerializationError if this is not a kept answer.

    >>> answer_text([{"message": {"role": "assistant", "content": "Let me see.", "tool_calls": [{"name": "look"}]}}])
    'Let me see.\nlook {}'
    """
    try:
        return "\n\n".join("\n".join(_entry_lines(entry)) for entry in entries)
    except (TypeError, LookupError) as error:
        raise SerializationError("a kept answer has neither a text nor a message") from error


def _entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    if "message" not in entry:
        yield str(entry["text"])
        return
    message = Message.from_data(entry["message"])
    if message.text:
        yield message.text
    for call in message.tool_calls:
        yield f"{call.name} {encode(call.args).decode()}"


def split_words(text: str) -> list[str]:
    """Split a text into the pieces of a served stream, word by word; an empty text is one empty piece.

    >>> split_words("Let me see.")
    ['Let ', 'me ', 'see.']
    """
    return _WORD_PATTERN.findall(text) or [""]
