"""Conversations to be replayed: messages, transcripts, or a file of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.model import Message
from langmem_adapters.validation import checked_list

__all__ = ["Conversation", "Recorded", "recorded"]

Conversation: TypeAlias = Sequence[Message] | Sequence[Transcript] | str | os.PathLike[str]
"""Messages of one session; what :func:`~langmem_adapters.importing.read_transcripts` gives; or a file that it reads."""

_USER, _SESSION = "replayed", "replayed"  # if the record does not say


class Recorded(NamedTuple):
    """A session, its user and its messages."""

    user: str
    session: str
    messages: list[Message]


def recorded(conversation: Conversation) -> list[Recorded]:
    """The sessions of a conversation that have messages, in their order. Raises ConfigurationError if none has."""
    if isinstance(conversation, str | os.PathLike):
        conversation = read_transcripts(conversation)
    given: list[Any] = checked_list(conversation, "a conversation is messages or transcripts", Message, Transcript)
    whole = [Recorded(one.user or _USER, one.session, one.messages()) for one in given if isinstance(one, Transcript)]
    loose = [one for one in given if isinstance(one, Message)]
    if whole and loose:
        raise ConfigurationError("a conversation is messages or transcripts, and not both")
    sessions = [one for one in [*whole, Recorded(_USER, _SESSION, loose)] if one.messages]
    if not sessions:
        raise ConfigurationError("this conversation has no messages to replay")
    return sessions
