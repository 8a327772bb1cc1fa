"""The common form of all formats: sessions as lines of our own export."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from langmem_adapters.errors import SerializationError
from langmem_adapters.json_files import LocatedValue
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message
from langmem_adapters.sessions import Line


class Transcript(NamedTuple):
    """A session as lines of an export. ``user`` is None if the file does not say whose session it is."""

    user: str | None
    session: str
    lines: list[Line]

    def messages(self) -> list[Message]:
        """The messages of the lines."""
        messages = [line["message"] for line in self.lines if line["type"] == "message"]
        return [Message.from_bytes(json.dumps(message).encode()) for message in messages]


def message_line(session: str, message: Message) -> Line:
    """A message as a line of an export."""
    return {"v": 1, "type": "message", "session": session, "message": json.loads(message.to_bytes())}


def to_transcript(values: Sequence[LocatedValue], session: str, read: Callable[[str, Any], Message]) -> Transcript:
    """One session, its messages read one by one; those without an id of their own get one of place and content."""
    lines: dict[str, Line] = {}
    for number, (location, value) in enumerate(values):
        message = read(location, value)
        try:
            if not message.id or message.id in lines:
                message.id = fingerprint(session, number, value)
            lines[message.id] = message_line(session, message)
        except SerializationError:  # which names a place within the value, by its keys
            raise SerializationError(
                f"{location} cannot be stored: it is nested too deep, or has a number of too many digits"
            ) from None
    return Transcript(None, session, list(lines.values()))


def to_transcripts(
    values: Sequence[LocatedValue], session: str, read: Callable[[str, Any], Message]
) -> list[Transcript]:
    """One session of messages, or one for each object with a list under "messages", as in files for fine-tuning."""
    if not any(isinstance(value, dict) and "messages" in value for _, value in values):
        return [to_transcript(values, session, read)]
    transcripts = []
    for number, (location, value) in enumerate(values, start=1):
        messages = value.get("messages") if isinstance(value, dict) else None
        if not isinstance(messages, list):
            raise SerializationError(f'{location} has no list of "messages"')
        prefix = f"{location}, message" if len(values) > 1 else "message"
        name = f"{session}-{number}" if len(values) > 1 else session
        numbered = [LocatedValue(f"{prefix} {n}", message) for n, message in enumerate(messages, start=1)]
        transcripts.append(to_transcript(numbered, name, read))
    return transcripts


def first_error(error: ValidationError | SerializationError) -> str:
    """The first place that is wrong, and why; without the value, which may be long or secret.

    pydantic's own error quotes the value: raise yours ``from None``.
    """
    if isinstance(error, SerializationError):
        return str(error)
    first = error.errors(include_input=False)[0]
    place = ".".join(f"{part!s:.60}" for part in first["loc"])  # whose parts may be ids from the file
    return f"{' '.join(place.split()) or 'value'}: {first['msg']}"
