"""Experiences as JSON Lines: each line has an experience and its key."""

from __future__ import annotations

import json
from collections.abc import Iterable

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.requests import key_of
from langmem_adapters.model import Experience
from langmem_adapters.validation import lines_of

_VERSION = 1


def write_line(key: str, data: bytes) -> bytes:
    """The line of a stored experience, without a line end."""
    head = json.dumps({"type": "experience", "v": _VERSION, "key": key})
    return head[:-1].encode() + b', "experience": ' + data + b"}"


def read_lines(lines: Iterable[bytes | str]) -> list[tuple[str, bytes]]:
    """Read and check lines: keys, and experiences as bytes, as all are held and would take four times as much parsed.

    Raises SerializationError, which names the first wrong line and quotes no content.
    """
    entries = []
    for number, raw in enumerate(lines_of(lines), start=1):
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
            is_ours = line["type"] == "experience" and line["v"] == _VERSION
            data = json.dumps(line["experience"]).encode()
            Experience.from_bytes(data)
            entries.append((key_of(None, str(line["key"])), data))
        except (ValueError, KeyError, TypeError, RecursionError, SerializationError):
            is_ours = False
        if not is_ours:  # outside the except, as the parser's error holds the line
            raise SerializationError(f"line {number} is not an experience of this version's export")
    return entries
