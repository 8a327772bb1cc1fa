"""The namespaces of the lexical index: each is one row, or two while two versions of the library use one file.

While a service is replaced process by process, versions with different analyzers search the same memories for a time.
If each replaced what the other has built, both would rebuild everything at every search. So a newer version replaces
what an older one has built, once; an older one that still runs builds its own beside it, and keeps the newer one's.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast
from urllib.parse import quote

from langmem_adapters.files.database import Database
from langmem_adapters.indexes.lexical_rows import NAMESPACES, remove_document
from langmem_adapters.keys import Namespace, encode_namespace, to_bytes, to_text
from langmem_adapters.protocols import Position

# A version of the library's analyzer, and its key, if any.
_OWN_ANALYZER_PATTERN = re.compile(r"langmem-(\d+)(.*)", re.DOTALL)


class _Build(NamedTuple):
    """What one analyzer has built of a namespace, and up to which entry."""

    number: int
    analyzer: str
    seq: int | None


def row_name(namespace: Namespace, analyzer: str) -> str:
    """The name of the row: no encoded part of a namespace has a "!", and all of their characters sort after it."""
    return f"{encode_namespace(namespace)}!{quote(analyzer, safe='')}"


def ensure_namespace(connection: sqlite3.Connection, namespace: Namespace, analyzer: str) -> int:
    """Find a namespace's number, or assign one: that removes what other analyzers built, unless it is newer."""
    name = row_name(namespace, analyzer)
    row = connection.execute("SELECT number FROM langmem_lexical_namespaces WHERE name = ?", (name,)).fetchone()
    if row is not None:
        return int(row[0])
    for build in _read_builds(connection, namespace):
        if not _is_newer(build.analyzer, analyzer):
            NAMESPACES.unlink(connection, build.number, encode_namespace(namespace))
    cursor = connection.execute(
        "INSERT INTO langmem_lexical_namespaces (name, analyzer) VALUES (?, ?)", (name, analyzer)
    )
    return cast(int, cursor.lastrowid)


def remove_from_stale_builds(
    connection: sqlite3.Connection, namespace: Namespace, ids: Iterable[str], *, analyzer: str, seq: int, version: int
) -> None:
    """Remove documents that change after the entry ``seq`` from other analyzers' builds that reach no further.

    A follower that still uses such an analyzer will meet the change; without one, nothing deleted remains.
    """
    other_builds = [build for build in _read_builds(connection, namespace) if build.analyzer != analyzer]
    stale_numbers = [build.number for build in other_builds if build.seq is not None and build.seq <= seq]
    for id_ in map(to_bytes, ids):
        for number in stale_numbers:
            remove_document(connection, number, id_, version)


def clear_namespace(database: Database, namespace: Namespace) -> None:
    """Forget a namespace, whichever analyzers built it."""
    start, end = _row_name_bounds(namespace)
    NAMESPACES.clear(
        database, start, "SELECT number FROM langmem_lexical_namespaces WHERE name >= ? AND name < ?", start, end
    )


def _read_builds(connection: sqlite3.Connection, namespace: Namespace) -> list[_Build]:
    select = "SELECT number, analyzer, seq FROM langmem_lexical_namespaces WHERE name >= ? AND name < ?"
    return [_Build(*row) for row in connection.execute(select, _row_name_bounds(namespace)).fetchall()]


def _row_name_bounds(namespace: Namespace) -> tuple[str, str]:
    """The bounds of the names of a namespace's rows, including an early version's, which had no analyzer in it."""
    name = encode_namespace(namespace)
    return name, f'{name}"'  # the character after "!"


def _is_newer(analyzer: str, other_analyzer: str) -> bool:
    """Whether both are the library's own, with the same key, and this one is of a later version."""
    match, other_match = _OWN_ANALYZER_PATTERN.fullmatch(analyzer), _OWN_ANALYZER_PATTERN.fullmatch(other_analyzer)
    return bool(match and other_match and match[2] == other_match[2] and int(match[1]) > int(other_match[1]))


def to_position(rows: Sequence[tuple[int, bytes]]) -> Position | None:
    """The position in a row of a namespace; None without a row."""
    if not rows:
        return None
    seq, entry = rows[0]
    return seq, to_text(entry)
