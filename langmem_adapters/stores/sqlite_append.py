"""Append to a log by one statement, a transaction by itself, when nothing but entries is written.

A connection remembers the ends of the logs that it has appended to. Others may have written since, so the statement
checks that the namespace's row is unchanged, that the entry before is there, and that the place is free; if not, the
log is opened as usual. The check is in place of the first entry's id: it is NULL, and so refused, if a condition fails.
(An INSERT from a SELECT on the same table would use a temporary table, and take twice the time.)
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from langmem_adapters.files.places import Connection
from langmem_adapters.protocols import Appended
from langmem_adapters.stores.sqlite_namespaces import BEHIND, BITS

__all__ = ["FEW", "LogEnd", "append", "remember"]

FEW = 8
"""The most entries to append, and keys to ask for, by one statement."""

_LOGS = 1000  # logs whose ends a connection remembers


class LogEnd(NamedTuple):
    """Where a log ends, and the content of its namespace's row."""

    number: int
    next: int
    total: int
    free: int  # the key of the next entry

    def length(self) -> int:
        """How many entries the log has."""
        return self.total + self.free - (self.number << BITS) - self.next


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
    """Append all entries, if none of the ids is known and no key has a value; None: nothing was written.

    Values are put beside the entries of the same ids. Unless it ``waits``, nothing is written either if another process
    is writing.
    """
    end: LogEnd | None = connection.remembered.get(name)
    if end is None or not entries or max(len(entries), len(keys)) > FEW:
        return None
    (first, first_data), *others = entries
    beside: list[str] = []
    if put:
        ids = {id_ for id_, _ in entries}
        if not put.keys() <= ids:
            return None
        beside = [key for key in keys if key not in ids]
        keys = [*keys, *put]
    row = (end.number, end.next, end.total, now - BEHIND, now, end.free - 1, now)
    absent = (*((end.number, *keys) if keys else ()), *((end.number, *beside) if beside else ()))
    more = [value for n, (id_, data) in enumerate(others, end.free + 1) for value in (n, id_, data, now, put.get(id_))]
    values = (end.free, *row, *absent, first, first_data, now, put.get(first), *more)
    try:
        added = connection.execute(_statement(len(entries), len(keys), len(beside), bool(put)), values).rowcount
    except sqlite3.IntegrityError:  # something has changed, the place is taken, or an id is known
        return None
    except sqlite3.OperationalError as error:
        if waits or "locked" not in str(error):
            raise
        return None
    end = LogEnd(*end[:3], end.free + added)
    remember(connection, name, end)
    return Appended([True] * added, end.length(), {})


def remember(connection: Connection, name: str, end: LogEnd) -> None:
    """Remember where a log ends, once that is committed."""
    if len(connection.remembered) >= _LOGS:
        connection.remembered.clear()
    connection.remembered[name] = end


@functools.cache
def _statement(entries: int, keys: int, beside: int, puts: bool) -> str:
    """SQL for so many entries, and keys that must have no value: in a row of its own, or ``beside`` an entry."""
    alone = f"langmem_values WHERE namespace = ? AND key IN ({_marks(keys)})"
    entry = f"langmem_log WHERE seq >> 32 = ? AND id IN ({_marks(beside)}) AND value IS NOT NULL"
    absent = "".join(
        f" AND NOT EXISTS (SELECT 1 FROM {rows})"  # noqa: S608 - constants and question marks
        for rows, count in ((alone, keys), (entry, beside))
        if count
    )
    as_remembered = (
        "EXISTS (SELECT 1 FROM langmem_namespaces WHERE number = ? AND next = ? AND total = ?"  # noqa: S608 - same
        f" AND listed_at > ? AND listed_at <= ? AND expires_at IS NULL{f' AND beside = {puts:d}' if keys else ''})"
        " AND EXISTS (SELECT 1 FROM langmem_log WHERE seq = ?)"
        " AND NOT EXISTS (SELECT 1 FROM langmem_namespaces WHERE expires_at <= ?)" + absent
    )
    return (
        f"INSERT INTO langmem_log VALUES (?, CASE WHEN {as_remembered} THEN ? END, ?, ?, ?)"  # noqa: S608 - same
        + ", (?, ?, ?, ?, ?)" * (entries - 1)
    )


def _marks(count: int) -> str:
    return ", ".join("?" * count)
