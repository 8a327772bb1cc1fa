"""The values of a namespace in a file, each in one of two places.

A value that is written together with a log entry whose id is its key is in that entry's row. That makes one row in one
index instead of two in two, and half of the pages to write. Every other value has a row of its own. No key has both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from langmem_adapters.protocols import Item
from langmem_adapters.stores.sqlite_namespaces import bounds

__all__ = ["DATA", "MANY", "delete_alone", "delete_beside", "look_up", "put", "read", "read_all", "taken_along"]

T = TypeVar("T")

DATA, VALUE = "CAST(data AS BLOB)", "CAST(value AS BLOB)"
"""The columns, as bytes: a database editor, and SQLite's own ``replace``, leave text in them."""

MANY = 64
"""The most keys that one statement reads."""


def _select(number: str, count: int) -> str:
    """Look in the log, and among the values with rows of their own. All parameters are given twice."""
    keys = ", ".join("?" * count)
    return (
        f"SELECT id, {VALUE} FROM langmem_log WHERE seq >> 32 = {number} AND id IN ({keys}) AND value IS NOT NULL"  # noqa: S608 - question marks
        f" UNION ALL SELECT key, {DATA} FROM langmem_values WHERE namespace = {number} AND key IN ({keys})"
        f" LIMIT {count}"
    )


# The plus removes the column's type affinity, with which an index on an expression is not used.
_BY_NAME = "(SELECT +number FROM langmem_namespaces WHERE name = ? AND (expires_at IS NULL OR expires_at > ?))"
_COUNTS = [1 << n for n in range(MANY.bit_length())]
_LOOK_UP = {count: _select(_BY_NAME, count) for count in _COUNTS}
_READ = {count: _select("?", count) for count in _COUNTS}
_ALONE = f"SELECT key, {DATA} FROM langmem_values WHERE namespace = ?"  # noqa: S608 - constants
_BESIDE = f"SELECT id, {VALUE} FROM langmem_log WHERE seq BETWEEN ? AND ? AND value IS NOT NULL"  # noqa: S608 - same
_OF_ENTRY = f"SELECT id, {VALUE} FROM langmem_log WHERE seq = ? AND seq >> 32 = ? AND value IS NOT NULL"  # noqa: S608 - same
_CHANGE = "UPDATE langmem_log SET value = ? WHERE seq >> 32 = ? AND id = ? AND value IS NOT NULL"
_PUT = "INSERT INTO langmem_values VALUES (?, ?, ?) ON CONFLICT (namespace, key) DO UPDATE SET data = excluded.data"
_DELETE = "DELETE FROM langmem_values WHERE namespace = ? AND key = ?"


def look_up(name: str, now: float, keys: Sequence[str]) -> tuple[str, Sequence[object]]:
    """The statement, with its parameters, that reads up to ``MANY`` keys of a namespace by its encoded name."""
    if len(keys) not in _LOOK_UP:
        keys = _filled(keys)
    asked = (name, now, *keys)
    return _LOOK_UP[len(keys)], asked + asked


def read(connection: sqlite3.Connection, number: int, keys: Sequence[str]) -> dict[str, bytes]:
    """Read values; missing ones are left out."""
    found: dict[str, bytes] = {}
    for start in range(0, len(keys), MANY):
        wanted = _filled(keys[start : start + MANY])
        asked = (number, *wanted)
        found.update(connection.execute(_READ[len(wanted)], asked + asked))
    return found


def read_all(connection: sqlite3.Connection, number: int, *, beside: bool) -> dict[str, bytes]:
    """Read every value. The log is scanned only if values may stand ``beside`` its entries."""
    found = dict(connection.execute(_ALONE, (number,)))
    if beside:
        found.update(connection.execute(_BESIDE, bounds(number)))
    return found


def _filled(keys: Sequence[T]) -> Sequence[T]:
    """Repeat the last key up to a power of two, so that few statements have to be prepared."""
    count = len(keys)
    return keys if not count & (count - 1) else [*keys, *[keys[-1]] * ((1 << count.bit_length()) - count)]


def put(connection: sqlite3.Connection, number: int, values: Mapping[str, bytes], *, beside: bool) -> None:
    """Write values where they are, and new ones to rows of their own."""
    for key, data in values.items():
        if not (beside and connection.execute(_CHANGE, (data, number, key)).rowcount):
            connection.execute(_PUT, (number, key, data))


def delete_beside(connection: sqlite3.Connection, number: int, keys: Iterable[str]) -> None:
    """Remove values that stand beside log entries."""
    connection.executemany(_CHANGE, [(None, number, key) for key in keys])


def delete_alone(connection: sqlite3.Connection, number: int, keys: Iterable[str]) -> None:
    """Remove values that have rows of their own."""
    connection.executemany(_DELETE, [(number, key) for key in keys])


def taken_along(connection: sqlite3.Connection, number: int, items: Sequence[Item]) -> dict[str, bytes]:
    """The values in the rows of these log entries, which must outlive the entries."""
    found: dict[str, bytes] = {}
    for item in items:
        found.update(connection.execute(_OF_ENTRY, (item.seq, number)))
    return found
