"""The values of a namespace in a file, each either inline or separate.

A value that is written together with a log entry whose id is its key is inline: in that entry's row. That makes one row
in one index instead of two in two, and half of the pages to write. Every other value is separate: it has a row of its
own. No key has both.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from langmem_adapters.protocols import Item
from langmem_adapters.stores.sqlite_namespaces import key_bounds

DATA, VALUE = "CAST(data AS BLOB)", "CAST(value AS BLOB)"
"""The columns, as bytes: a database editor, and SQLite's own ``replace``, leave text in them."""

MAX_KEYS = 64
"""The most keys that one statement reads."""


def _select_statement(number: str, count: int) -> str:
    """Look in the log, and among the values with rows of their own. All parameters are given twice."""
    keys = ", ".join("?" * count)
    return (
        f"SELECT id, {VALUE} FROM langmem_log WHERE seq >> 32 = {number} AND id IN ({keys}) AND value IS NOT NULL"  # noqa: S608 - question marks
        f" UNION ALL SELECT key, {DATA} FROM langmem_values WHERE namespace = {number} AND key IN ({keys})"
        f" LIMIT {count}"
    )


# The plus removes the column's type affinity, with which an index on an expression is not used.
_NUMBER_BY_NAME = "(SELECT +number FROM langmem_namespaces WHERE name = ? AND (expires_at IS NULL OR expires_at > ?))"
_KEY_COUNTS = [1 << n for n in range(MAX_KEYS.bit_length())]
_SELECT_BY_NAME = {count: _select_statement(_NUMBER_BY_NAME, count) for count in _KEY_COUNTS}
_SELECT_BY_NUMBER = {count: _select_statement("?", count) for count in _KEY_COUNTS}
_SELECT_SEPARATE = f"SELECT key, {DATA} FROM langmem_values WHERE namespace = ?"  # noqa: S608 - constants
_SELECT_INLINE = f"SELECT id, {VALUE} FROM langmem_log WHERE seq BETWEEN ? AND ? AND value IS NOT NULL"  # noqa: S608 - same
_SELECT_INLINE_OF_ENTRY = f"SELECT id, {VALUE} FROM langmem_log WHERE seq = ? AND seq >> 32 = ? AND value IS NOT NULL"  # noqa: S608 - same
_UPDATE_INLINE = "UPDATE langmem_log SET value = ? WHERE seq >> 32 = ? AND id = ? AND value IS NOT NULL"
_UPSERT_SEPARATE = (
    "INSERT INTO langmem_values VALUES (?, ?, ?) ON CONFLICT (namespace, key) DO UPDATE SET data = excluded.data"
)
_DELETE_SEPARATE = "DELETE FROM langmem_values WHERE namespace = ? AND key = ?"


def lookup_statement(name: str, now: float, keys: Sequence[str]) -> tuple[str, Sequence[object]]:
    """The statement, with its parameters, that reads up to ``MAX_KEYS`` keys of a namespace by its encoded name."""
    if len(keys) not in _SELECT_BY_NAME:
        keys = _pad_keys(keys)
    parameters = (name, now, *keys)
    return _SELECT_BY_NAME[len(keys)], parameters + parameters


def read(connection: sqlite3.Connection, number: int, keys: Sequence[str]) -> dict[str, bytes]:
    """Read values; missing ones are left out."""
    values: dict[str, bytes] = {}
    for start in range(0, len(keys), MAX_KEYS):
        padded_keys = _pad_keys(keys[start : start + MAX_KEYS])
        parameters = (number, *padded_keys)
        values.update(connection.execute(_SELECT_BY_NUMBER[len(padded_keys)], parameters + parameters))
    return values


def read_all(connection: sqlite3.Connection, number: int, *, has_inline: int) -> dict[str, bytes]:
    """Read every value. The log is scanned only if there may be inline values."""
    values = dict(connection.execute(_SELECT_SEPARATE, (number,)))
    if has_inline:
        values.update(connection.execute(_SELECT_INLINE, key_bounds(number)))
    return values


def _pad_keys(keys: Sequence[str]) -> Sequence[str]:
    """Repeat the last key up to a power of two, so that few statements have to be prepared."""
    padded_count = 1 << (len(keys) - 1).bit_length()
    return [*keys, *list(keys[-1:]) * (padded_count - len(keys))]


def put(connection: sqlite3.Connection, number: int, values: Mapping[str, bytes], *, has_inline: int) -> None:
    """Write values where they are, and new ones to rows of their own."""
    for key, data in values.items():
        if not (has_inline and connection.execute(_UPDATE_INLINE, (data, number, key)).rowcount):
            connection.execute(_UPSERT_SEPARATE, (number, key, data))


def delete_inline(connection: sqlite3.Connection, number: int, keys: Iterable[str]) -> None:
    """Remove inline values, which are in the rows of log entries."""
    connection.executemany(_UPDATE_INLINE, [(None, number, key) for key in keys])


def delete_separate(connection: sqlite3.Connection, number: int, keys: Iterable[str]) -> None:
    """Remove separate values, which have rows of their own."""
    connection.executemany(_DELETE_SEPARATE, [(number, key) for key in keys])


def inline_values(connection: sqlite3.Connection, number: int, items: Sequence[Item]) -> dict[str, bytes]:
    """The values in the rows of these log entries, which must outlive the entries."""
    values: dict[str, bytes] = {}
    for item in items:
        values.update(connection.execute(_SELECT_INLINE_OF_ENTRY, (item.seq, number)))
    return values
