"""What users give, looked at where it comes in: one clear sentence, where it is something else than is meant."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.model import Message, MessageData

__all__ = ["check_store", "checked_messages", "lines_of", "said_by"]

M = TypeVar("M", Message, "Message | MessageData")


def check_store(store: object) -> None:
    """Raise ConfigurationError for what is no store, but the URL or the path of one, or nothing."""
    if store is None or isinstance(store, str | bytes | os.PathLike):
        kind = type(store).__name__
        raise ConfigurationError(f'a store is what open_store("sqlite:///memory.db") gives, for one, not {kind}')


def checked_messages(messages: Sequence[M]) -> Sequence[M]:
    """The messages. Raises ConfigurationError for one alone, and for what is none."""
    alone = isinstance(messages, str | bytes | Mapping | Message) or not isinstance(messages, Iterable)
    wrong = [messages] if alone else [message for message in messages if not isinstance(message, Message | MessageData)]
    if wrong:
        kind = f"{'one ' if alone else 'of '}{type(wrong[0]).__name__}"
        raise ConfigurationError(f'messages are a list of Message(role="user", content="…"), not {kind}')
    return messages


def said_by(role: str, content: Any, fields: Mapping[str, Any]) -> Message:
    """A message of this role. Raises ConfigurationError, naming them, for fields that no message has so."""
    try:
        return Message(role=role, content=content, **fields)
    except ValidationError as error:
        wrong = sorted({str(flaw["loc"][0]) for flaw in error.errors(include_input=False)})
    raise ConfigurationError(f"a message cannot have a value of this type as {', '.join(wrong)}")


def lines_of(text: Iterable[bytes | str]) -> Iterable[bytes | str]:
    """The lines of an export, which may also come as one text."""
    return text.splitlines() if isinstance(text, str | bytes) else text
