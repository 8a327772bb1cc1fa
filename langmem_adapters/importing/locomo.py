"""LoCoMo: long conversations between two people, each a user with its sessions by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ValidationError, field_validator

from langmem_adapters.errors import SerializationError
from langmem_adapters.importing.transcript import Transcript, first_error, message_line
from langmem_adapters.json_files import LocatedValue
from langmem_adapters.model import Message
from langmem_adapters.sessions import Line


class _Turn(BaseModel):
    id: str
    s: int
    sp: str
    t: str
    d: datetime
    cap: str | None = None

    @field_validator("d")
    @classmethod
    def _check_date(cls, date: datetime) -> datetime:
        try:
            date.timestamp()
        except (OverflowError, OSError, ValueError):  # each platform has its own
            raise ValueError("no clock of this system tells it") from None
        return date

    def message(self, speakers: Sequence[str]) -> Message:
        return Message(
            id=self.id,
            role="user" if self.sp == speakers[0] else "assistant",
            name=self.sp,
            created_at=self.d.timestamp(),
            content=f"{self.t} [{self.cap}]" if self.cap else self.t,
        )


class _Dialogue(BaseModel):
    id: str
    speakers: tuple[str, str]
    turns: list[_Turn]


def read_locomo(values: Sequence[LocatedValue]) -> list[Transcript]:
    """Each conversation is a user, with its sessions by their numbers."""
    if len(values) == 1 and isinstance(values[0].value, dict) and "conversations" in values[0].value:
        conversations = values[0].value["conversations"]
        if not isinstance(conversations, list):
            raise SerializationError('its "conversations" are not a list')
        values = [LocatedValue(f"conversation {number}", value) for number, value in enumerate(conversations, start=1)]
    lines_by_session: dict[tuple[str, str], list[Line]] = {}
    for location, value in values:
        try:
            dialogue = _Dialogue.model_validate(value)
        except ValidationError as error:
            raise SerializationError(f"{location} is not a LoCoMo conversation: {first_error(error)}") from None
        _add_lines(lines_by_session, dialogue, location)
    return [Transcript(user, session, lines) for (user, session), lines in lines_by_session.items()]


def _add_lines(lines_by_session: dict[tuple[str, str], list[Line]], dialogue: _Dialogue, location: str) -> None:
    turn_ids: set[str] = set()
    for turn in dialogue.turns:
        if turn.sp not in dialogue.speakers:
            raise SerializationError(
                f"{location}: turn {turn.id} is said by {turn.sp!r}, who is not one of its speakers"
            )
        if turn.id in turn_ids:
            raise SerializationError(f"{location}: there are two turns {turn.id}")
        turn_ids.add(turn.id)
        message = turn.message(dialogue.speakers)
        lines_by_session.setdefault((dialogue.id, str(turn.s)), []).append(message_line(str(turn.s), message))
