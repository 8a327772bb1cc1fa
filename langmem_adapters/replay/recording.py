"""Conversations to be replayed: messages, transcripts, or a file of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.importing import Transcript, read_transcripts
from langmem_adapters.model import Message
from langmem_adapters.validation import checked_list

Conversation: TypeAlias = Sequence[Message] | Sequence[Transcript] | str | os.PathLike[str]
"""Messages of one session; what :func:`~langmem_adapters.importing.read_transcripts` gives; or a file that it reads."""

_DEFAULT_USER, _DEFAULT_SESSION = "replayed", "replayed"  # if the record does not say


class RecordedSession(NamedTuple):
    """A session, its user and its messages."""

    user: str
    session: str
    messages: list[Message]


def recorded_sessions(conversation: Conversation) -> list[RecordedSession]:
    """The sessions of a conversation that have messages, in their order. Raises ConfigurationError if none has."""
    if isinstance(conversation, str | os.PathLike):
        conversation = read_transcripts(conversation)
    items: list[Any] = checked_list(conversation, "a conversation is messages or transcripts", Message, Transcript)
    messages = [item for item in items if isinstance(item, Message)]
    transcripts = [item for item in items if isinstance(item, Transcript)]
    if transcripts and messages:
        raise ConfigurationError("a conversation is messages or transcripts, and not both")
    sessions = [RecordedSession(item.user or _DEFAULT_USER, item.session, item.messages()) for item in transcripts]
    sessions = [session for session in sessions if session.messages]
    if messages:
        sessions.append(RecordedSession(_DEFAULT_USER, _DEFAULT_SESSION, messages))
    if not sessions:
        raise ConfigurationError("this conversation has no messages to replay")
    return sessions
