"""Conversations to be replayed: messages, transcripts, or a file of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.model import Message

__all__ = ["Conversation", "Recorded", "recorded"]

Conversation: TypeAlias = Sequence[Message] | Sequence[Transcript] | str | os.PathLike[str]
"""Messages of one session; what :func:`~langmem_adapters.importing.read_transcripts` gives; or a file that it reads."""

_USER, _SESSION = "replayed", "replayed"  # where the record does not say


class Recorded(NamedTuple):
    """A session, and whose."""

    user: str
    session: str
    messages: list[Message]


def recorded(conversation: Conversation) -> list[Recorded]:
    """The sessions of a conversation that say something, in their order. Raises ConfigurationError for none."""
    if isinstance(conversation, str | os.PathLike):
        conversation = read_transcripts(conversation)
    whole, loose = [], []
    for one in conversation:
        if isinstance(one, Transcript):
            whole.append(Recorded(one.user or _USER, one.session, one.messages()))
        elif isinstance(one, Message):
            loose.append(one)
        else:
            raise ConfigurationError(f"a conversation is made of messages or of transcripts, not {type(one).__name__}")
    if whole and loose:
        raise ConfigurationError("a conversation is made of messages or of transcripts, and not of both")
    sessions = [one for one in [*whole, Recorded(_USER, _SESSION, loose)] if one.messages]
    if not sessions:
        raise ConfigurationError("there is no message in this conversation to replay")
    return sessions
