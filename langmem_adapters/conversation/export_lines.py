"""The lines of an export of sessions: written, read and checked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from langmem_adapters.codec import decode, encode_plain, is_number, parse_json, refuse_sealed_or_newer
from langmem_adapters.conversation.log import ARCHIVE, ARCHIVED, CREATED
from langmem_adapters.conversation.session import KNOWLEDGE, TITLE
from langmem_adapters.conversation.stored_summary import SUMMARY
from langmem_adapters.conversation.tombstones import DEPARTED, are_marks
from langmem_adapters.errors import SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message, Summary
from langmem_adapters.validation import lines_of
from langmem_adapters.warn_once import warn_of_damage

VERSION = 1
Line = dict[str, Any]
"""One line of an export, as data: ``{"v": 1, "type": "session" | "message", "session": …}``."""


def parse_lines(lines: Iterable[bytes | str]) -> Iterator[Line]:
    """Read and check the lines of an export. Raises SerializationError, naming the line, at the first wrong one."""
    for number, raw in enumerate(lines_of(lines), start=1):
        if not raw.strip():
            continue
        try:
            line = _checked_line(json.loads(raw), number)
        except (ValueError, SerializationError) as error:
            raise SerializationError(f"line {number} is not a session or a message: {error!s:.300}") from error
        except (KeyError, TypeError, AttributeError, RecursionError) as error:  # these tell of this code, not the line
            raise SerializationError(f"line {number} is not a session or a message") from error
        yield line


def _checked_line(line: Any, number: int) -> Line:
    """The line, with an id for a message that has none. Raises for a wrong line, in many ways."""
    if line["v"] != VERSION or not isinstance(line["session"], str) or not line["session"]:
        raise ValueError("not a line of this version's export")
    if line["type"] == "message":
        # an id that is the same when the same lines are imported again
        line["message"]["id"] = str(line["message"].get("id") or fingerprint(number, line))
        Message.from_bytes(encode_plain(line["message"]))
    elif line["type"] == "session":
        for key, value in line["values"].items():
            check_value(key, encode_plain(value))
    else:
        raise ValueError('its type is neither "session" nor "message"')
    return dict(line)


def check_value(key: str, data: bytes) -> None:
    """Raise ValueError or SerializationError if a session's value is not what its readers expect.

    Unknown keys come from a newer version.
    """
    if key.startswith(KNOWLEDGE):
        int(key[len(KNOWLEDGE) :])
        Message.from_bytes(data)
    elif key.startswith(ARCHIVE):
        Message.from_bytes(data)
    elif key == ARCHIVED and type(decode(data)) is not int:
        raise ValueError("its number of archived messages is not a number")
    elif key == DEPARTED and not are_marks(decode(data)):
        raise ValueError("its marks of messages that left are not valid")
    elif key == SUMMARY:
        Summary.from_bytes(data)
    elif key == TITLE and not isinstance(decode(data), str):
        raise ValueError("its title is not a text")
    elif key == CREATED and not ((created := decode(data)) is None or is_number(created)):
        raise ValueError("its time of creation is not a number")


def is_valid_value(key: str, data: bytes) -> bool:
    """Whether a session's stored value is what its readers expect; a warning tells if it is not."""
    try:
        check_value(key, data)
        load(data)
    except (ValueError, SerializationError) as damage:
        refuse_sealed_or_newer(data, "a stored value")
        warn_of_damage(data, f"the stored value {key.partition('/')[0]!r} of a session is left out: {damage}")
        return False
    return True


def load(data: bytes) -> Any:
    """Parse stored JSON without decoding it: what the codec has marked stays so, and must not be marked twice."""
    try:
        return parse_json(data, bounded=True)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"a stored value cannot be read: {error}") from error
