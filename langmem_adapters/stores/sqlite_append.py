"""Appending to a log by one statement, which is a transaction by itself, where nothing but entries is to be written.

A connection remembers where the logs end that it has appended to. Others may have written since, so the statement sees
to it that the namespace's row is as it was, and that the place is free; else the log is opened as ever.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from langmem_adapters.files.places import Connection
from langmem_adapters.protocols import Appended
from langmem_adapters.stores.sqlite_namespaces import BEHIND, BITS, SINCE

__all__ = ["FEW", "LogEnd", "append", "remember"]

FEW = 8
"""Entries that are appended, and keys that are asked for, by one statement at the most."""

_LOGS = 1000  # whose ends a connection remembers


class LogEnd(NamedTuple):
    """Where a log ends, and what its namespace's row says."""

    number: int
    next: int
    total: int
    free: int  # the key of the entry that comes next

    def length(self) -> int:
        """How many entries the log has."""
        return self.total + self.free - (self.number << BITS) - self.next


def append(
    connection: Connection, name: str, entries: Sequence[tuple[str, bytes]], now: float, keys: Sequence[str]
) -> Appended | None:
    """Append all, where none of the ids is known and none of the keys has a value; None: nothing is written."""
    end: LogEnd | None = connection.remembered.get(name)
    if end is None or not entries or max(len(entries), len(keys)) > FEW:
        return None
    rows = [value for n, entry in enumerate(entries, end.free) for value in (n, *entry)]
    row = (end.number, end.next, end.total, end.free, now - BEHIND, now, now)
    try:
        added = connection.execute(
            _statement(len(entries), len(keys)), (now, *rows, *row, *((end.number, *keys) if keys else ()))
        ).rowcount
    except sqlite3.IntegrityError:  # the place is taken, or an id is known
        return None
    if not added:
        return None
    end = end._replace(free=end.free + added)
    remember(connection, name, end)
    return Appended([True] * added, end.length(), {})


def remember(connection: Connection, name: str, end: LogEnd) -> None:
    """Know where a log ends, once that is committed."""
    if len(connection.remembered) >= _LOGS:
        connection.remembered.clear()
    connection.remembered[name] = end


@functools.cache
def _statement(entries: int, keys: int) -> str:
    without = (
        f" AND NOT EXISTS (SELECT 1 FROM langmem_values WHERE namespace = ? AND key IN ({', '.join('?' * keys)}))"  # noqa: S608 - question marks
        if keys
        else ""
    )
    return (
        "INSERT INTO langmem_log SELECT column1, column2, column3, ?, NULL"  # noqa: S608 - same
        f" FROM (VALUES {', '.join(['(?, ?, ?)'] * entries)})"
        " WHERE EXISTS (SELECT 1 FROM langmem_namespaces WHERE number = ? AND next = ? AND total = ?"
        f" AND (number << {BITS}) + next + {SINCE} = ?"
        f" AND listed_at > ? AND listed_at <= ? AND expires_at IS NULL{' AND beside = 0' if keys else ''})"
        " AND NOT EXISTS (SELECT 1 FROM langmem_namespaces WHERE expires_at <= ?)" + without
    )
