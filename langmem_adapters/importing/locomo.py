"""LoCoMo: long conversations between two people, each a user with its sessions by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ValidationError

from langmem_adapters.errors import SerializationError
from langmem_adapters.importing.transcript import Transcript, flaw, line
from langmem_adapters.json_files import Numbered
from langmem_adapters.model import Message
from langmem_adapters.sessions import Line

__all__ = ["read_locomo"]


class _Turn(BaseModel):
    id: str
    s: int
    sp: str
    t: str
    d: datetime
    cap: str | None = None

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


def read_locomo(values: Sequence[Numbered]) -> list[Transcript]:
    """Each conversation is a user, with its sessions by their numbers."""
    if len(values) == 1 and isinstance(values[0].value, dict) and "conversations" in values[0].value:
        inner = values[0].value["conversations"]
        if not isinstance(inner, list):
            raise SerializationError('its "conversations" are not a list')
        values = [Numbered(f"conversation {number}", value) for number, value in enumerate(inner, start=1)]
    found: dict[tuple[str, str], list[Line]] = {}
    for place, value in values:
        try:
            dialogue = _Dialogue.model_validate(value)
        except ValidationError as error:
            raise SerializationError(f"{place} is not a LoCoMo conversation: {flaw(error)}") from None
        _collect(found, dialogue, place)
    return [Transcript(user, session, lines) for (user, session), lines in found.items()]


def _collect(found: dict[tuple[str, str], list[Line]], dialogue: _Dialogue, place: str) -> None:
    seen: set[str] = set()
    for turn in dialogue.turns:
        if turn.sp not in dialogue.speakers:
            raise SerializationError(f"{place}: turn {turn.id} is said by {turn.sp!r}, who is not one of its speakers")
        if turn.id in seen:
            raise SerializationError(f"{place}: there are two turns {turn.id}")
        seen.add(turn.id)
        message = turn.message(dialogue.speakers)
        found.setdefault((dialogue.id, str(turn.s)), []).append(line(str(turn.s), message))
