"""Read the JSON files that people have: gzipped or not; a list, a value per line, or one value."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from langmem_adapters.errors import SerializationError

_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"  # the format of ChatGPT's exports
_SQLITE_MAGIC = b"SQLite format 3\0"
_MAX_GROWTH = 100  # a factor: text shrinks to a tenth, a bomb to a thousandth
_ALWAYS_ALLOWED_BYTES = 2**26
_MAX_BYTES = 2**30  # of a file, which is held in memory several times over while it is read
_TOO_LARGE = "it is larger than 1 GB, and is read as a whole: split it"
_GZIP_WINDOW_BITS = 31  # zlib's, which expect a gzip header
_CHUNK_BYTES = 4096
_READ_BYTES = 2**20


class LocatedValue(NamedTuple):
    """A value in a file, and the name of its place for errors."""

    location: str
    value: Any


def read_all(file: BinaryIO) -> bytearray:
    """The bytes of an open file, or of a pipe up to its end; SerializationError, if there are more than 1 GB."""
    data = bytearray()
    while chunk := file.read(_READ_BYTES):
        data += chunk
        if len(data) > _MAX_BYTES:
            raise SerializationError(_TOO_LARGE)
    return data


def text_of(data: bytes | bytearray) -> str:
    """The text of a file. Gzip is recognised by its content."""
    if data.startswith(_ZIP_MAGIC):
        raise SerializationError("it is a zip archive: unpack it, and give the file inside")
    if data.startswith(_SQLITE_MAGIC):
        raise SerializationError(
            "it is an SQLite database: copy one of this library with migrate; export another with what wrote it"
        )
    data = _decompressed(data) if data.startswith(_GZIP_MAGIC) else data
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise SerializationError(f"line {number} is not UTF-8 text") from error


def _decompressed(data: bytes | bytearray) -> bytes:
    max_size = min(max(_MAX_GROWTH * len(data), _ALWAYS_ALLOWED_BYTES), _MAX_BYTES)
    output = bytearray()
    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        for start in range(0, len(data), _CHUNK_BYTES):
            chunk = data[start : start + _CHUNK_BYTES]
            while chunk := chunk.lstrip(b"\0") if member.eof else chunk:  # a member may be padded with zeros
                if member.eof:
                    member = zlib.decompressobj(_GZIP_WINDOW_BITS)
                output += member.decompress(chunk, max_size + 1 - len(output))
                if len(output) > max_size:
                    raise SerializationError(
                        _TOO_LARGE
                        if max_size == _MAX_BYTES
                        else f"it is gzipped, and holds more than {_MAX_GROWTH} times its size:"
                        " unpack it first, if you trust it"
                    )
                chunk = member.unused_data
    except zlib.error as error:
        raise SerializationError(f"it is gzipped, but damaged: {error}") from error
    if not member.eof:
        raise SerializationError("it is gzipped, but damaged: its end is missing")
    return bytes(output)


def values_of(text: str, *, lines: bool = False) -> list[LocatedValue]:
    """The items of a JSON list, the lines of JSON Lines, or the file's one value.

    The format is recognised by the content; with ``lines`` it is JSON Lines.
    """
    if lines:
        return list(_json_lines(text))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        first = next((line for line in text.split("\n") if line.strip()), "")
        if _is_json(first) or not first:
            return list(_json_lines(text))
        raise _not_json_error(getattr(error, "lineno", 1), error) from error
    if isinstance(document, list):
        return [LocatedValue(f"item {number}", value) for number, value in enumerate(document, start=1)]
    return [LocatedValue("line 1", document)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _json_lines(text: str) -> Iterator[LocatedValue]:
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines() would split at U+2028 inside of a text
        if line.strip():
            try:
                yield LocatedValue(f"line {number}", json.loads(line))
            except (ValueError, RecursionError) as error:
                raise _not_json_error(number, error) from error


def _not_json_error(number: int, error: Exception) -> SerializationError:
    return SerializationError(f"line {number} is not JSON: {getattr(error, 'msg', error)}")
