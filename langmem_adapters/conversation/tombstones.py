"""Tombstones: which messages have left a session's log, so that one that is delivered again does not come back.

While a message is in the log, the store knows its id. Afterwards the value ``departed`` knows it: 16 hexadecimal digits
for each of the latest messages, written as they leave. When somebody deletes a message, wherever it is by then, the
value ``deleted`` gets such a mark of its id, and counts it: so a process that is just moving the message learns of it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message

__all__ = [
    "DELETED",
    "DEPARTED",
    "content_id",
    "count_departed",
    "have_been_deleted",
    "have_departed",
    "is_departed",
    "with_deleted",
    "with_departed",
]

DEPARTED = "departed"
"""The key of a session's value that holds the marks of departed messages."""
DELETED = "deleted"
"""The key of the value with the marks of deleted ids, and their number since the session began."""

_MARK = 16
_REMEMBERED = 256  # messages that are delivered again were said a moment ago
_log = logging.getLogger("langmem_adapters")


def content_id(message: Message) -> str:
    """An id made of a message's own id and content; the same when it is delivered again."""
    return fingerprint(message.model_copy(update={"created_at": None}).to_data())


def _said_id(message: Message) -> str:
    """:func:`content_id` without metadata: each thread that delivers a message adds its own mark there."""
    return content_id(message.model_copy(update={"metadata": {}}))


def with_departed(values: Mapping[str, bytes], leaving: Iterable[Message]) -> dict[str, bytes]:
    """The value to write as these messages leave; ``values`` are the session's."""
    marks = _marks(values) + "".join(_said_id(message)[:_MARK] for message in leaving)
    return {DEPARTED: encode(marks[-_MARK * _REMEMBERED :])}


def have_departed(values: Mapping[str, bytes], messages: Sequence[Message]) -> list[bool]:
    """For each of these messages, whether it was in the log and has left it."""
    known = _each(_marks(values))
    return [bool(known) and _said_id(message)[:_MARK] in known for message in messages]


def with_deleted(values: Mapping[str, bytes], ids: Collection[str]) -> dict[str, bytes]:
    """The value to write as these ids are deleted; ``values`` are the session's."""
    count, marks = _tally(values)
    marks += "".join(_id_mark(id_) for id_ in ids)
    return {DELETED: encode([count + len(ids), marks[-_MARK * max(_REMEMBERED, len(ids)) :]])}


def have_been_deleted(before: Mapping[str, bytes], now: Mapping[str, bytes], ids: Sequence[str]) -> list[bool]:
    """For each of these ids, whether it was deleted between two reads of a session's values."""
    count, marks = _tally(now)
    new = max(count - _tally(before)[0], 0)
    known = _each(marks[-_MARK * new :]) if new else set()
    return [_id_mark(id_) in known for id_ in ids]


def count_departed(values: Mapping[str, bytes]) -> str:
    """How many messages left, in words, since not all are remembered; empty if none did."""
    count = len(_marks(values)) // _MARK
    more = " or more" if count >= _REMEMBERED else ""
    return f"{count}{more} message{'' if count == 1 else 's'}" if count else ""


def is_departed(value: object) -> bool:
    """Whether a decoded value has the form of such marks."""
    return isinstance(value, str) and len(value) % _MARK == 0


def _each(marks: str) -> set[str]:
    return {marks[start : start + _MARK] for start in range(0, len(marks), _MARK)}


def _marks(values: Mapping[str, bytes]) -> str:
    """The marks; empty, with a warning, if they are damaged: at worst a message is kept twice."""
    try:
        marks = decode(values[DEPARTED]) if DEPARTED in values else ""
    except SerializationError:
        marks = None
    if is_departed(marks):
        return str(marks)
    _log.warning("the marks of the messages that left a session are damaged, and are reset")
    return ""


def _id_mark(id_: str) -> str:
    return fingerprint(id_)[:_MARK]


def _tally(values: Mapping[str, bytes]) -> tuple[int, str]:
    """How many ids were deleted, and the marks of the latest; none, with a warning, if that is damaged."""
    try:
        found = decode(values[DELETED]) if DELETED in values else [0, ""]
    except SerializationError:
        found = None
    if isinstance(found, list) and [type(each) for each in found] == [int, str] and is_departed(found[1]):
        return found[0], found[1]
    _log.warning("the marks of the messages deleted from a session are damaged, and are reset")
    return 0, ""
