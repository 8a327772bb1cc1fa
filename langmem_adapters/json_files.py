"""Read the JSON files that people have: gzipped or not; a list, a value per line, or one value."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from langmem_adapters.errors import SerializationError

__all__ = ["Numbered", "text_of", "values_of"]

_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"  # the format of ChatGPT's exports
_SQLITE = b"SQLite format 3\0"
_TIMES, _ANYWAY = 100, 2**26  # limits, as a factor and in bytes: text shrinks to a tenth, a bomb to a thousandth
_WITH_HEADER = 31  # zlib's window bits that expect a gzip header
_PIECE = 4096  # bytes


class Numbered(NamedTuple):
    """A value in a file, and the name of its place for errors."""

    place: str
    value: Any


def text_of(data: bytes) -> str:
    """The text of a file. Gzip is recognised by its content."""
    if data.startswith(_ZIP):
        raise SerializationError("it is a zip archive: unpack it, and give the file inside")
    if data.startswith(_SQLITE):
        raise SerializationError(
            "it is an SQLite database: copy one of this library with migrate; export another with what wrote it"
        )
    data = _unpacked(data) if data.startswith(_GZIP) else data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise SerializationError(f"line {number} is not UTF-8 text") from error


def _unpacked(data: bytes) -> bytes:
    most, unpacked = max(_TIMES * len(data), _ANYWAY), bytearray()
    member = zlib.decompressobj(_WITH_HEADER)
    try:
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            while piece := piece.lstrip(b"\0") if member.eof else piece:  # a member may be padded with zeros
                if member.eof:
                    member = zlib.decompressobj(_WITH_HEADER)
                unpacked += member.decompress(piece, most + 1 - len(unpacked))
                if len(unpacked) > most:
                    raise SerializationError(
                        f"it is gzipped, and holds more than {_TIMES} times its size: unpack it first, if you trust it"
                    )
                piece = member.unused_data
    except zlib.error as error:
        raise SerializationError(f"it is gzipped, but damaged: {error}") from error
    if not member.eof:
        raise SerializationError("it is gzipped, but damaged: its end is missing")
    return bytes(unpacked)


def values_of(text: str, *, lines: bool = False) -> list[Numbered]:
    """The items of a JSON list, the lines of JSON Lines, or the file's one value.

    The format is recognised by the content; with ``lines`` it is JSON Lines.
    """
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
        return [Numbered(f"item {number}", value) for number, value in enumerate(whole, start=1)]
    return [Numbered("line 1", whole)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _json_lines(text: str) -> Iterator[Numbered]:
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() would split at U+2028 inside of a text
        if line.strip():
            try:
                yield Numbered(f"line {number}", json.loads(line))
            except (ValueError, RecursionError) as error:
                raise _not_json(number, error) from error


def _not_json(number: int, error: Exception) -> SerializationError:
    return SerializationError(f"line {number} is not JSON: {getattr(error, 'msg', error)}")
