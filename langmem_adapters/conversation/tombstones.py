"""Tombstones: which messages have left a session's log, so that one that is delivered again does not come back.

While a message is in the log, the store knows its id. Afterwards the value ``departed`` knows it: 16 hexadecimal digits
for each of the latest messages, written as they leave. When somebody deletes a message, wherever it is by then, the
value ``deleted`` gets such a mark of its id, and counts it: so a process that is just moving the message learns of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from langmem_adapters.codec import decode, encode, refuse_sealed_or_newer
from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message
from langmem_adapters.warn_once import warn_of_damage

DEPARTED = "departed"
"""The key of a session's value that holds the marks of departed messages."""
DELETED = "deleted"
"""The key of the value with the marks of deleted ids, and their number since the session began."""

_MARK_CHARS = 16
_MAX_MARKS = 256  # messages that are delivered again were said a moment ago


def content_id(message: Message) -> str:
    """An id made of a message's own id and content; the same when it is delivered again."""
    return fingerprint(message.model_copy(update={"created_at": None}).to_data())


def delivery_id(message: Message) -> str:
    """:func:`content_id` without metadata: each thread that delivers a message adds its own mark there."""
    return content_id(message.model_copy(update={"metadata": {}}))


def with_departed(values: Mapping[str, bytes], departing: Iterable[Message]) -> dict[str, bytes]:
    """The value to write as these messages leave; ``values`` are the session's."""
    marks = _departed_marks(values) + "".join(delivery_id(message)[:_MARK_CHARS] for message in departing)
    return {DEPARTED: encode(marks[-_MARK_CHARS * _MAX_MARKS :])}


def have_departed(values: Mapping[str, bytes], messages: Sequence[Message]) -> list[bool]:
    """For each of these messages, whether it was in the log and has left it."""
    departed_marks = _split_marks(_departed_marks(values))
    if not departed_marks:
        return [False] * len(messages)
    return [delivery_id(message)[:_MARK_CHARS] in departed_marks for message in messages]


def with_deleted(values: Mapping[str, bytes], ids: Collection[str]) -> dict[str, bytes]:
    """The value to write as these ids are deleted; ``values`` are the session's."""
    count, marks = _tally(values)
    marks += "".join(_id_mark(id_) for id_ in ids)
    return {DELETED: encode([count + len(ids), marks[-_MARK_CHARS * max(_MAX_MARKS, len(ids)) :]])}


def have_been_deleted(before: Mapping[str, bytes], after: Mapping[str, bytes], ids: Sequence[str]) -> list[bool]:
    """For each of these ids, whether it was deleted between two reads of a session's values."""
    count, marks = _tally(after)
    new_count = max(count - _tally(before)[0], 0)
    deleted_marks = _split_marks(marks[-_MARK_CHARS * new_count :]) if new_count else set()
    return [_id_mark(id_) in deleted_marks for id_ in ids]


def count_departed(values: Mapping[str, bytes]) -> str:
    """How many messages left, in words, since not all are remembered; empty if none did."""
    count = len(_departed_marks(values)) // _MARK_CHARS
    if count <= 1:
        return "1 message" if count else ""
    more = " or more" if count >= _MAX_MARKS else ""
    return f"{count}{more} messages"


def are_marks(value: object) -> bool:
    """Whether a decoded value has the form of such marks."""
    return isinstance(value, str) and len(value) % _MARK_CHARS == 0


def _split_marks(marks: str) -> set[str]:
    return {marks[start : start + _MARK_CHARS] for start in range(0, len(marks), _MARK_CHARS)}


def _departed_marks(values: Mapping[str, bytes]) -> str:
    """The marks; empty, with a warning, if they are damaged: at worst a message is kept twice."""
    if DEPARTED not in values:
        return ""
    with suppress(SerializationError):
        marks = decode(values[DEPARTED])
        if are_marks(marks):
            return str(marks)
    refuse_sealed_or_newer(values[DEPARTED], "the marks of the messages that left a session")
    warn_of_damage(values[DEPARTED], "the marks of the messages that left a session are damaged, and are reset")
    return ""


def _id_mark(id_: str) -> str:
    return fingerprint(id_)[:_MARK_CHARS]


def _tally(values: Mapping[str, bytes]) -> tuple[int, str]:
    """How many ids were deleted, and the marks of the latest; none, with a warning, if that is damaged."""
    if DELETED not in values:
        return 0, ""
    with suppress(SerializationError):
        tally = decode(values[DELETED])
        if isinstance(tally, list) and [type(part) for part in tally] == [int, str] and are_marks(tally[1]):
            return tally[0], tally[1]
    refuse_sealed_or_newer(values[DELETED], "the marks of the messages deleted from a session")
    warn_of_damage(values[DELETED], "the marks of the messages deleted from a session are damaged, and are reset")
    return 0, ""
