"""Append to a log by one statement, a transaction by itself, when nothing but entries is written.

A connection remembers the ends of the logs that it has appended to. Others may have written since, so the statement
checks that the namespace's row is unchanged, that the entry before is there, and that the key is free; if not, the
log is opened as usual. The check is in place of the first entry's id: it is NULL, and so refused, if a condition fails.
(An INSERT from a SELECT on the same table would use a temporary table, and take twice the time.)
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langmem_adapters.files.locations import Connection
from langmem_adapters.protocols import Appended
from langmem_adapters.stores.sqlite_namespaces import ENTRY_BITS, LISTING_LAG_SECONDS

MAX_PER_STATEMENT = 8
"""The most entries to append, and keys to ask for, by one statement."""

_MAX_REMEMBERED_LOGS = 1000  # logs whose ends a connection remembers


@dataclass(slots=True)
class LogEnd:
    """Where a log ends, and the content of its namespace's row."""

    number: int
    next: int
    total: int
    next_key: int  # the key of the next entry

    def length(self) -> int:
        """How many entries the log has."""
        return self.total + self.next_key - (self.number << ENTRY_BITS) - self.next


def append(
    connection: Connection,
    name: str,
    entries: Sequence[tuple[str, bytes]],
    now: float,
    *,
    put: Mapping[str, bytes],
    keys: Sequence[str],
    waits: bool,
) -> Appended | None:
    """Append all entries, if none of the ids exists and no key has a value; None: nothing was written.

    Values are put into the rows of the entries of the same ids. Unless it ``waits``, nothing is written either if
    another process is writing.
    """
    end: LogEnd | None = connection.cache.get(name)
    if end is None or not entries or max(len(entries), len(keys)) > MAX_PER_STATEMENT:
        return None
    (first, first_data), *other_entries = entries
    inline_keys: list[str] = []
    if put:
        ids = {id_ for id_, _ in entries}
        if not put.keys() <= ids:
            return None
        inline_keys = [key for key in keys if key not in ids]
        keys = [*keys, *put]
    statement = _insert_statement(len(entries), len(keys), len(inline_keys), bool(put))
    row = (end.number, name, end.next, end.total, now - LISTING_LAG_SECONDS, now, end.next_key - 1, now)
    parameters: list[Any] = [end.next_key, *row]
    if keys:
        parameters += (end.number, *keys)
    if inline_keys:
        parameters += (end.number, *inline_keys)
    parameters += (first, first_data, now, put.get(first))
    for key, (id_, data) in enumerate(other_entries, end.next_key + 1):
        parameters += (key, id_, data, now, put.get(id_))
    try:
        connection.execute(statement, parameters)
    except sqlite3.IntegrityError:  # something has changed, the key is taken, or an id exists
        return None
    except sqlite3.OperationalError as error:
        if waits or "locked" not in str(error):
            raise
        return None
    end.next_key += len(entries)
    return Appended([True] * len(entries), end.length(), {})


def remember(connection: Connection, name: str, end: LogEnd) -> None:
    """Remember where a log ends, once that is committed."""
    if len(connection.cache) >= _MAX_REMEMBERED_LOGS:
        connection.cache.clear()
    connection.cache[name] = end


@functools.cache
def _insert_statement(entry_count: int, key_count: int, inline_key_count: int, has_put: bool) -> str:
    """SQL for so many entries, and keys that must have no value: in a row of its own, or in an entry's."""
    separate_rows = f"langmem_values WHERE namespace = ? AND key IN ({_placeholders(key_count)})"
    inline_rows = f"langmem_log WHERE seq >> 32 = ? AND id IN ({_placeholders(inline_key_count)}) AND value IS NOT NULL"
    absent = "".join(
        f" AND NOT EXISTS (SELECT 1 FROM {rows})"  # noqa: S608 - constants and question marks
        for rows, count in ((separate_rows, key_count), (inline_rows, inline_key_count))
        if count
    )
    inline_flag = f" AND beside = {has_put:d}" if key_count else ""
    is_unchanged = (
        # By name too: after a restored backup, another namespace may have the number.
        "EXISTS (SELECT 1 FROM langmem_namespaces WHERE number = ? AND name = ? AND next = ? AND total = ?"  # noqa: S608 - same
        f" AND listed_at > ? AND listed_at <= ? AND expires_at IS NULL{inline_flag})"
        " AND EXISTS (SELECT 1 FROM langmem_log WHERE seq = ?)"
        " AND NOT EXISTS (SELECT 1 FROM langmem_namespaces WHERE expires_at <= ?)" + absent
    )
    return (
        f"INSERT INTO langmem_log VALUES (?, CASE WHEN {is_unchanged} THEN ? END, ?, ?, ?)"  # noqa: S608 - same
        + ", (?, ?, ?, ?, ?)" * (entry_count - 1)
    )


def _placeholders(count: int) -> str:
    return ", ".join("?" * count)
