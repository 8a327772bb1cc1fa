"""Conversations in files: our own export, OpenAI's chat messages and LoCoMo, plain or gzipped.

A file is read and checked as a whole before anything is given out, and every message has an id that is the same
when the file is read again, so that importing it twice adds nothing.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message
from langmem_adapters.sessions import Line, parse_lines

__all__ = ["FileFormat", "Transcript", "read_transcripts"]

FileFormat = Literal["auto", "jsonl", "openai", "locomo"]

_GZIP = b"\x1f\x8b"
_UNKNOWN = "is neither an export, nor a list of chat messages, nor a LoCoMo file"


class Transcript(NamedTuple):
    """A session as lines of an export. ``user`` is None where the file does not say whose session it is."""

    user: str | None
    session: str
    lines: list[Line]

    def messages(self) -> list[Message]:
        """The messages of the lines."""
        return [Message.from_bytes(json.dumps(x["message"]).encode()) for x in self.lines if x["type"] == "message"]


class _Numbered(NamedTuple):
    """A value of a file, and how an error names its place."""

    place: str
    value: Any


def read_transcripts(path: Path, *, format_: FileFormat = "auto", session: str = "") -> list[Transcript]:
    """Read the sessions of a file.

    Args:
        path: The file. Gzip is recognised by its content.
        format_: How it is written; "auto" tells by the first value.
        session: Names the session of chat messages; default: the file's name without its suffixes.

    Raises SerializationError, naming the first wrong place, and OSError where the file cannot be read.
    """
    try:
        text = _text(path.read_bytes())
        values = _values(text, lines=format_ == "jsonl" or ".jsonl" in path.suffixes)
        format_ = _detected(values) if format_ == "auto" else format_
        if format_ != "openai" and session:
            raise ConfigurationError(f"a file of the format {format_} names its sessions itself: leave --session out")
        if format_ == "jsonl":
            return _export(text)
        if format_ == "openai":
            return _openai(values, session or path.name.split(".")[0] or path.name)
        return _locomo(values)
    except SerializationError as error:
        raise SerializationError(f"{path}: {error}") from error


def _text(data: bytes) -> str:
    try:
        data = gzip.decompress(data) if data.startswith(_GZIP) else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SerializationError(f"it is gzipped, but damaged: {error}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise SerializationError(f"line {number} is not UTF-8 text") from error


def _values(text: str, *, lines: bool) -> list[_Numbered]:
    """The items of a JSON list, the lines of JSON Lines, or the one value that the file is."""
    if lines:
        return list(_json_lines(text))
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError) as error:
        first = next((line for line in text.split("\n") if line.strip()), "")
        if _is_json(first) or not first:
            return list(_json_lines(text))
        raise _not_json(getattr(error, "lineno", 1), error) from error
    if isinstance(whole, list):
        return [_Numbered(f"item {number}", value) for number, value in enumerate(whole, start=1)]
    return [_Numbered("line 1", whole)]


def _json_lines(text: str) -> Iterator[_Numbered]:
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() would split at U+2028 inside of a text
        if line.strip():
            try:
                yield _Numbered(f"line {number}", json.loads(line))
            except (ValueError, RecursionError) as error:
                raise _not_json(number, error) from error


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _not_json(number: int, error: Exception) -> SerializationError:
    return SerializationError(f"line {number} is not JSON: {getattr(error, 'msg', error)}")


def _detected(values: Sequence[_Numbered]) -> FileFormat:
    if not values:
        raise SerializationError("it is empty")
    first = values[0].value if isinstance(values[0].value, dict) else {}
    if "conversations" in first or "turns" in first:
        return "locomo"
    if "session" in first and first.get("type") in {"session", "message"}:
        return "jsonl"
    if "role" in first or "messages" in first:
        return "openai"
    raise SerializationError(f"{values[0].place} {_UNKNOWN}; --format says which it is meant to be")


# --- our own export


def _export(text: str) -> list[Transcript]:
    found: dict[str, list[Line]] = {}
    for line in parse_lines(text.split("\n")):
        found.setdefault(line["session"], []).append(line)
    return [Transcript(None, session, lines) for session, lines in found.items()]


def _line(session: str, message: Message) -> Line:
    return {"v": 1, "type": "message", "session": session, "message": json.loads(message.to_bytes())}


# --- OpenAI's chat messages


def _openai(values: Sequence[_Numbered], session: str) -> list[Transcript]:
    """A list of messages, or objects that hold one each under "messages" (a file for fine-tuning, for one)."""
    if not any(isinstance(value, dict) and "messages" in value for _, value in values):
        return [_conversation(values, session)]
    found = []
    for number, (place, value) in enumerate(values, start=1):
        messages = value.get("messages") if isinstance(value, dict) else None
        if not isinstance(messages, list):
            raise SerializationError(f'{place} has no list of "messages"')
        inner = f"{place}, message" if len(values) > 1 else "message"
        name = f"{session}-{number}" if len(values) > 1 else session
        numbered = [_Numbered(f"{inner} {n}", message) for n, message in enumerate(messages, start=1)]
        found.append(_conversation(numbered, name))
    return found


def _conversation(values: Sequence[_Numbered], session: str) -> Transcript:
    lines: dict[str, Line] = {}
    for number, (place, value) in enumerate(values):
        message = _chat_message(place, value)
        if not message.id or message.id in lines:
            message.id = fingerprint(session, number, value)
        lines[message.id] = _line(session, message)
    return Transcript(None, session, list(lines.values()))


def _chat_message(place: str, value: Any) -> Message:
    try:
        return Message.model_validate(_fields(value))
    except ValidationError as error:
        raise SerializationError(f"{place} is not a chat message: {_flaw(error)}") from error
    except SerializationError as error:
        raise SerializationError(f"{place} is not a chat message: {error}") from error


def _flaw(error: ValidationError) -> str:
    """The first place that is wrong, and why; without the value, which may be long or secret."""
    flaw = error.errors(include_input=False)[0]
    return f"{'.'.join(str(part) for part in flaw['loc']) or 'value'}: {flaw['msg']}"


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value.get("role"):
        raise SerializationError("it has no role")
    rest = {name: field for name, field in value.items() if field is not None}
    own = {name: rest.pop(name) for name in ("role", "content", "name", "tool_call_id") if name in rest}
    for name, type_ in (("id", str), ("created_at", (int, float))):
        if isinstance(rest.get(name), type_):
            own[name] = rest.pop(name)
    calls = rest.pop("tool_calls", [])
    if not isinstance(calls, list):
        raise SerializationError("its tool_calls are not a list")
    return {**own, "tool_calls": [_tool_call(call) for call in calls], "metadata": rest}


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise SerializationError("a tool call has no function")
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str) and not _is_json(arguments):
        raise SerializationError("the arguments of a tool call are not JSON")
    args = json.loads(arguments) if isinstance(arguments, str) else arguments
    return {"id": call.get("id"), "name": function.get("name", ""), "args": args}


# --- LoCoMo


class _Turn(BaseModel):
    id: str
    s: int
    sp: str
    t: str
    d: datetime
    cap: str | None = None

    def message(self, speakers: Sequence[str]) -> Message:
        at = self.d if self.d.tzinfo else self.d.replace(tzinfo=timezone.utc)
        return Message(
            id=self.id,
            role="user" if self.sp == speakers[0] else "assistant",
            name=self.sp,
            created_at=at.timestamp(),
            content=f"{self.t} [{self.cap}]" if self.cap else self.t,
        )


class _Dialogue(BaseModel):
    id: str
    speakers: tuple[str, str]
    turns: list[_Turn]


def _locomo(values: Sequence[_Numbered]) -> list[Transcript]:
    """Each conversation is a user, with its sessions by their numbers."""
    if len(values) == 1 and isinstance(values[0].value, dict) and "conversations" in values[0].value:
        inner = values[0].value["conversations"]
        if not isinstance(inner, list):
            raise SerializationError('its "conversations" are not a list')
        values = [_Numbered(f"conversation {number}", value) for number, value in enumerate(inner, start=1)]
    found: dict[tuple[str, str], list[Line]] = {}
    for place, value in values:
        try:
            dialogue = _Dialogue.model_validate(value)
        except ValidationError as error:
            raise SerializationError(f"{place} is not a LoCoMo conversation: {_flaw(error)}") from error
        _collect(found, dialogue, place)
    return [Transcript(user, session, lines) for (user, session), lines in found.items()]


def _collect(found: dict[tuple[str, str], list[Line]], dialogue: _Dialogue, place: str) -> None:
    seen: set[str] = set()
    for turn in dialogue.turns:
        if turn.sp not in dialogue.speakers:
            raise SerializationError(f"{place}: turn {turn.id} is said by {turn.sp!r}, who is none of its speakers")
        if turn.id in seen:
            raise SerializationError(f"{place}: there are two turns {turn.id}")
        seen.add(turn.id)
        message = turn.message(dialogue.speakers)
        found.setdefault((dialogue.id, str(turn.s)), []).append(_line(str(turn.s), message))
