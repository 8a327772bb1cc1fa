"""A store in one SQLite file: the default, for one machine and any number of its processes."""

from __future__ import annotations

import functools
import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from langmem_adapters.database import Database
from langmem_adapters.errors import Conflict
from langmem_adapters.inspection import Dates, Finding, Health, StoreStats
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.stores import sqlite_recent, sqlite_report

__all__ = ["SQLiteStore"]

# A log entry's key is its namespace's number and its own: reading a log is one walk along the table, and numbers
# of namespaces are never used twice, so sequence numbers rise even when a namespace was cleared and made again.
_SCHEMA = (
    """CREATE TABLE langmem_namespaces (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        parent TEXT NOT NULL,
        next INTEGER NOT NULL,
        total INTEGER NOT NULL,
        updated_at REAL NOT NULL,
        expires_at REAL)""",
    "CREATE INDEX langmem_namespaces_recent ON langmem_namespaces (parent, updated_at, name)",
    "CREATE INDEX langmem_namespaces_expiry ON langmem_namespaces (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE TABLE langmem_log (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, data BLOB NOT NULL)",
    "CREATE UNIQUE INDEX langmem_log_id ON langmem_log (seq >> 32, id)",
    """CREATE TABLE langmem_values (
        namespace INTEGER NOT NULL, key TEXT NOT NULL, data BLOB NOT NULL, UNIQUE (namespace, key))""",
    "ALTER TABLE langmem_namespaces ADD COLUMN listed_at REAL NOT NULL DEFAULT 0",
    "UPDATE langmem_namespaces SET listed_at = updated_at",
    "DROP INDEX langmem_namespaces_recent",
    "CREATE INDEX langmem_namespaces_listed ON langmem_namespaces (parent, listed_at)",
)
_BITS = 32
_FEW = 4  # values that are read by one statement
_GET = [
    "SELECT key, data FROM langmem_values WHERE namespace ="  # noqa: S608 - question marks
    " (SELECT number FROM langmem_namespaces WHERE name = ? AND (expires_at IS NULL OR expires_at > ?))"
    f" AND key IN ({', '.join('?' * count)})"
    for count in range(_FEW + 1)
]
_CULL = 1000  # log entries of expired namespaces removed beside each write, so that no sweep is ever needed


class SQLiteStore:
    """Implements :class:`~langmem_adapters.protocols.Store` on a file.

    Args:
        path: The file; made, with its tables, at the first use. Its folder must exist.
        synchronous: "normal", or "full" to survive a power cut without losing the last writes.
        timeout: Seconds to wait for another process's write.
        fails_fast: Wait only while others get on with their writing, or so long; after one wait in vain, calls fail
            at once until the file is free again.
        clock: Gives Unix seconds.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "normal",
        timeout: float = 5.0,
        fails_fast: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = str(path)
        self._clock = clock
        self._database = Database(
            path, schema=_SCHEMA, name="store", synchronous=synchronous, timeout=timeout, fails_fast=fails_fast
        )

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        name = encode_namespace(namespace)
        if keys is not None and len(keys) <= _FEW:
            return dict(self._database.look(_GET[len(keys)], (name, self._clock(), *keys))) if keys else {}
        with self._database.reading() as connection:
            found = self._find(connection, name)
            return {} if found is None else _values(connection, found[0], keys)

    def scan(
        self,
        namespace: Namespace,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        keys: Sequence[str] = (),
    ) -> Page:
        name = encode_namespace(namespace)
        with self._database.reading() as connection:
            found = self._find(connection, name)
            if found is None:
                return Page([], 0, {})
            number, total = found
            first = max(after + 1, number << _BITS)
            last = min((number + 1) << _BITS, before if before is not None else (number + 1) << _BITS) - 1
            order = "DESC" if reverse else "ASC"
            rows = connection.execute(
                f"SELECT seq, id, data FROM langmem_log WHERE seq BETWEEN ? AND ? ORDER BY seq {order} LIMIT ?",  # noqa: S608
                (first, last, -1 if limit is None else limit),
            )
            items = [Item(*row) for row in rows]
            return Page(items, total, _values(connection, number, keys) if keys else {})

    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Appended:
        name = encode_namespace(namespace)
        with self._database.writing() as connection:
            found = self._open(connection, name, namespace)
            number = found.number
            new = _append(connection, number, found.next, entries)
            total = found.total + sum(new)
            self._close(connection, found, found.next + sum(new), total, ttl)
            values = _values(connection, number, keys) if keys else {}
        return Appended(new, total, values)

    def write(
        self,
        namespace: Namespace,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        remove: Sequence[Item] = (),
        guard: Mapping[str, bytes | None] | None = None,
        ttl: float | None = None,
    ) -> None:
        name = encode_namespace(namespace)
        with self._database.writing() as connection:
            found = self._open(connection, name, namespace)
            number = found.number
            if guard:
                values = _values(connection, number, list(guard))
                for key, expected in guard.items():
                    if values.get(key) != expected:
                        raise Conflict(f"the value {key!r} was changed by another writer")
            if delete:
                connection.executemany(
                    "DELETE FROM langmem_values WHERE namespace = ? AND key = ?",
                    [(number, key) for key in delete],
                )
            if put:
                connection.executemany(
                    "INSERT INTO langmem_values VALUES (?, ?, ?)"
                    " ON CONFLICT (namespace, key) DO UPDATE SET data = excluded.data",
                    [(number, key, data) for key, data in put.items()],
                )
            gone = 0
            if remove:
                gone = connection.executemany(
                    "DELETE FROM langmem_log WHERE seq = ? AND seq >> 32 = ?",
                    [(item.seq, number) for item in remove],
                ).rowcount
            new = _append(connection, number, found.next, append)
            self._close(connection, found, found.next + sum(new), found.total + sum(new) - gone, ttl)

    def clear(self, namespace: Namespace) -> None:
        name = encode_namespace(namespace)
        with self._database.writing() as connection:
            row = connection.execute("SELECT number FROM langmem_namespaces WHERE name = ?", (name,)).fetchone()
            if row:
                _drop(connection, row[0])

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        last = None if before is None else (before.updated_at, encode_namespace(before.namespace))
        with self._database.reading() as connection:
            rows = sqlite_recent.recent(
                connection, encode_namespace(parent), limit=limit, before=last, now=self._clock()
            )
        return [Listed(decode_namespace(name), updated_at) for name, updated_at in rows]

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        start = encode_namespace(prefix)
        end = start + "\x7f"  # encoded names are ASCII below that
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(
                    "SELECT name FROM langmem_namespaces WHERE name >= ? AND name < ?"
                    " AND (expires_at IS NULL OR expires_at > ?) ORDER BY name LIMIT 1000",
                    (start, end, self._clock()),
                ).fetchall()
            if not rows:
                return
            yield from (decode_namespace(name) for (name,) in rows)
            start = rows[-1][0] + "\0"

    def health(self) -> Health:
        """See whether the file opens and can be read; makes none where there is none."""
        return sqlite_report.health(self._database)

    def stats(self) -> StoreStats:
        return sqlite_report.stats(self._database, self._clock())

    def examine(self) -> Iterator[Finding]:
        """Check the whole file, which reads all of it, and the disk that it is on."""
        return sqlite_report.examined(self._database)

    def dates(self, namespace: Namespace) -> Dates | None:
        with self._database.reading() as connection:
            row = connection.execute(
                "SELECT updated_at, expires_at FROM langmem_namespaces WHERE name = ?", (encode_namespace(namespace),)
            ).fetchone()
        left = None if row is None or row[1] is None else row[1] - self._clock()
        return None if row is None or (left is not None and left <= 0) else Dates(row[0], left)

    def set_dates(self, namespace: Namespace, dates: Dates) -> None:
        expires_at = None if dates.left is None else self._clock() + dates.left
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE langmem_namespaces SET updated_at = ?1, listed_at = ?1, expires_at = ?2 WHERE name = ?3",
                (dates.updated_at, expires_at, encode_namespace(namespace)),
            )

    def discard(self, namespace: Namespace, before: float) -> bool:
        with self._database.writing() as connection:
            row = connection.execute(
                "SELECT number FROM langmem_namespaces WHERE name = ? AND updated_at < ?",
                (encode_namespace(namespace), before),
            ).fetchone()
            if row:
                _drop(connection, row[0])
        return row is not None

    def close(self) -> None:
        """Close the connections; the next use opens the file again."""
        self._database.close()

    def vacuum(self) -> None:
        """Give the space of what was removed back to the disk; as much again is needed meanwhile."""
        self._database.vacuum()

    def __repr__(self) -> str:
        return f"SQLiteStore({self.path!r})"

    def _find(self, connection: sqlite3.Connection, name: str) -> tuple[int, int] | None:
        row = connection.execute(
            "SELECT number, total, expires_at FROM langmem_namespaces WHERE name = ?", (name,)
        ).fetchone()
        if row is None or (row[2] is not None and row[2] <= self._clock()):
            return None
        return row[0], row[1]

    def _open(self, connection: sqlite3.Connection, name: str, namespace: Namespace) -> _Open:
        """What is known of a namespace that is about to be written."""
        now = self._clock()
        row = connection.execute(_OPEN, (name, now)).fetchone()
        if row is not None and row[4] is not None and row[4] <= now:
            _drop(connection, row[0])
            row = None
        if row is not None:
            return _Open(*row)
        number = connection.execute(
            "INSERT INTO langmem_namespaces (name, parent, next, total, updated_at) VALUES (?, ?, 1, 0, 0)",
            (name, encode_namespace(namespace[:-1])),
        ).lastrowid
        expired = connection.execute(f"SELECT ({_EXPIRED})", (None, now)).fetchone()
        return _Open(int(number or 0), 1, 0, -math.inf, None, *expired)

    def _close(self, connection: sqlite3.Connection, found: _Open, next_: int, total: int, ttl: float | None) -> None:
        now = self._clock()
        change: dict[str, float | None] = {"next": next_, "total": total, "updated_at": now}
        if not 0 <= now - found.listed_at < sqlite_recent.BEHIND:
            change["listed_at"] = now
        if ttl is not None or found.expires_at is not None:
            change["expires_at"] = None if ttl is None else now + ttl
        connection.execute(_update(*change), (*change.values(), found.number))
        if found.expired is not None:
            _cull(connection, found.expired)


class _Open(NamedTuple):
    number: int
    next: int
    total: int
    listed_at: float
    expires_at: float | None
    expired: int | None  # the number of any namespace that is


_EXPIRED = "SELECT number FROM langmem_namespaces WHERE expires_at <= ?2 LIMIT 1"
_OPEN = f"SELECT number, next, total, listed_at, expires_at, ({_EXPIRED}) FROM langmem_namespaces WHERE name = ?1"  # noqa: S608


@functools.cache
def _update(*columns: str) -> str:
    return f"UPDATE langmem_namespaces SET {', '.join(f'{name} = ?' for name in columns)} WHERE number = ?"  # noqa: S608


def _append(
    connection: sqlite3.Connection, number: int, next_: int, entries: Sequence[tuple[str, bytes]]
) -> list[bool]:
    new = []
    seq = (number << _BITS) + next_
    for id_, data in entries:
        added = connection.execute("INSERT OR IGNORE INTO langmem_log VALUES (?, ?, ?)", (seq, id_, data))
        new.append(added.rowcount == 1)
        seq += added.rowcount
    return new


def _values(connection: sqlite3.Connection, number: int, keys: Sequence[str] | None) -> dict[str, bytes]:
    select = "SELECT key, data FROM langmem_values WHERE namespace = ?"
    if keys is None:
        return dict(connection.execute(select, (number,)))
    found: dict[str, bytes] = {}
    for key in keys:
        found.update(connection.execute(select + " AND key = ?", (number, key)))
    return found


def _cull(connection: sqlite3.Connection, number: int) -> None:
    bounds = (number << _BITS, ((number + 1) << _BITS) - 1)
    removed = connection.execute(
        "DELETE FROM langmem_log WHERE seq IN (SELECT seq FROM langmem_log WHERE seq BETWEEN ? AND ? LIMIT ?)",
        (*bounds, _CULL),
    )
    if removed.rowcount < _CULL:
        _drop(connection, number)


def _drop(connection: sqlite3.Connection, number: int) -> None:
    bounds = (number << _BITS, ((number + 1) << _BITS) - 1)
    connection.execute("DELETE FROM langmem_log WHERE seq BETWEEN ? AND ?", bounds)
    connection.execute("DELETE FROM langmem_values WHERE namespace = ?", (number,))
    connection.execute("DELETE FROM langmem_namespaces WHERE number = ?", (number,))
