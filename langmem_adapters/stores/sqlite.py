"""A store in one SQLite file: the default, for any number of processes on one machine."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from langmem_adapters.clocks import unix_time
from langmem_adapters.errors import Conflict, StoreError
from langmem_adapters.files.database import Database
from langmem_adapters.files.locations import path_to_show, vacuum_file
from langmem_adapters.inspection import Dates, Finding, Health, StoreStats
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import sqlite_append, sqlite_report, sqlite_values
from langmem_adapters.stores.sqlite_namespaces import (
    NAMESPACE_TABLES,
    SCHEMA,
    UNCOUNTED_ENTRIES,
    UPDATED_AT,
    NamespaceState,
    append_entries,
    find_namespace,
    key_bounds,
    open_namespace,
    recent_children,
    update_row,
)
from langmem_adapters.stores.sqlite_values import DATA
from langmem_adapters.validation import check_seconds


class SQLiteStore(Shared):
    """Implements :class:`~langmem_adapters.protocols.Store` on a file.

    Args:
        path: The file. It is created, with its tables, at the first use; its folder must exist.
        synchronous: "normal", or "full" to survive a power cut without losing the last writes.
        timeout: Seconds to wait for another process's write.
        fails_fast: Wait for ``timeout`` at most, or longer while other writers make progress. After one wait in
            vain, calls fail at once until the file is free again.
        clock: Gives Unix seconds.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        synchronous: str = "normal",
        timeout: float = 5.0,
        fails_fast: bool = False,
        clock: Callable[[], float] = unix_time,
    ) -> None:
        self.path: str = str(path)
        self._clock = clock
        self._is_patient = not fails_fast  # then one statement waits as long as SQLite's own timeout
        self._database = Database(
            path, schema=SCHEMA, name="store", synchronous=synchronous, timeout=timeout, fails_fast=fails_fast
        )

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        name = encode_namespace(namespace)
        if keys is not None and len(keys) <= sqlite_values.MAX_KEYS:
            if not keys:
                return {}
            return dict(self._database.fetch_all(*sqlite_values.lookup_statement(name, self._clock(), keys)))
        with self._database.reading() as connection, connection:
            row = find_namespace(connection, name, self._clock())
            if row is None:
                return {}
            number, _, has_inline = row
            if keys is None:
                return sqlite_values.read_all(connection, number, has_inline=has_inline)
            return sqlite_values.read(connection, number, keys)

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
        with self._database.reading() as connection, connection:
            row = find_namespace(connection, name, self._clock())
            if row is None:
                return Page([], 0, {})
            number, total, _ = row
            first, last = key_bounds(number)
            if before is not None:
                last = min(last, before - 1)
            order = "DESC" if reverse else "ASC"
            rows = connection.execute(
                f"SELECT seq, id, {DATA} FROM langmem_log WHERE seq BETWEEN ? AND ? ORDER BY seq {order} LIMIT ?",  # noqa: S608
                (max(first, after + 1), last, -1 if limit is None else limit),
            ).fetchall()
            return Page(list(map(_to_item, rows)), total, sqlite_values.read(connection, number, keys))

    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        put: Mapping[str, bytes] | None = None,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Appended:
        name = encode_namespace(namespace)
        if ttl is None:
            with self._database.autocommit() as connection:
                appended = sqlite_append.append(
                    connection, name, entries, self._clock(), put=put or {}, keys=keys, waits=self._is_patient
                )
            if appended is not None:
                return appended
        check_seconds("ttl", ttl)
        with self._database.writing() as connection, connection:
            now = self._clock()
            state = open_namespace(connection, name, namespace, now)
            values = sqlite_values.read(connection, state.number, keys) if keys else {}
            new = _append_and_put(connection, state, entries, put or {}, now)
            added = sum(new)
            next_, total = update_row(connection, state, added=added, removed=0, ttl=ttl, now=now)
        end = sqlite_append.LogEnd(state.number, next_, total, state.next_key + added)
        sqlite_append.remember(connection, name, end)
        return Appended(new, end.length(), values)

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
        check_seconds("ttl", ttl)
        name = encode_namespace(namespace)
        with self._database.writing() as connection, connection:
            now = self._clock()
            state = open_namespace(connection, name, namespace, now)
            number, values = state.number, dict(put or {})
            if guard:
                _check_guard(guard, sqlite_values.read(connection, number, list(guard)))
            if delete and state.has_inline:
                sqlite_values.delete_inline(connection, number, delete)
            removed = 0
            if remove:
                if state.has_inline:
                    values = {**sqlite_values.inline_values(connection, number, remove), **values}
                removed = connection.executemany(
                    "DELETE FROM langmem_log WHERE seq = ? AND seq >> 32 = ?", [(item.seq, number) for item in remove]
                ).rowcount
            if delete:
                sqlite_values.delete_separate(connection, number, delete)
            new = _append_and_put(connection, state, append, values, now)
            update_row(connection, state, added=sum(new), removed=removed, ttl=ttl, now=now)

    def clear(self, namespace: Namespace) -> None:
        self.discard(namespace, math.inf)

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        name = encode_namespace(parent)
        last_row = None if before is None else (before.updated_at, encode_namespace(before.namespace))
        with self._database.reading() as connection, connection:
            rows = recent_children(connection, name, limit=limit, before=last_row, now=self._clock())
        return [Listed(decode_namespace(name), updated_at) for name, updated_at in rows]

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        start = encode_namespace(prefix)
        end = start + "\x7f"  # encoded names are ASCII below that
        while True:
            with self._database.reading() as connection, connection:
                rows = connection.execute(
                    "SELECT name FROM langmem_namespaces WHERE name >= ? AND name < ?"
                    " AND (expires_at IS NULL OR expires_at > ?) ORDER BY name LIMIT 1000",
                    (start, end, self._clock()),
                ).fetchall()
            if not rows:
                return
            if rows[-1][0] < start:  # they were listed before, and would be listed without an end
                raise StoreError(f"{self._database.path} is damaged: its names are out of order")
            yield from (decode_namespace(name) for (name,) in rows)
            start = rows[-1][0] + "\0"

    def health(self) -> Health:
        """Check that the file opens and can be read; does not create a missing file."""
        return sqlite_report.health(self._database)

    def stats(self) -> StoreStats:
        return sqlite_report.stats(self._database, self._clock())

    def examine(self) -> Iterator[Finding]:
        """Check the whole file, which means reading all of it, and the disk that it is on."""
        return sqlite_report.findings(self._database)

    def dates(self, namespace: Namespace) -> Dates | None:
        with self._database.reading() as connection, connection:
            now = self._clock()
            row = connection.execute(
                f"SELECT {UPDATED_AT}, expires_at - ? FROM langmem_namespaces"  # noqa: S608 - a constant
                " WHERE name = ? AND (expires_at IS NULL OR expires_at > ?)",
                (now, encode_namespace(namespace), now),
            ).fetchone()
        return None if row is None else Dates(*row)

    def set_dates(self, namespace: Namespace, dates: Dates) -> None:
        now = self._clock()
        expires_at = None if dates.expires_in is None else now + dates.expires_in
        with self._database.writing() as connection, connection:
            connection.execute(
                f"UPDATE langmem_namespaces SET next = next + {UNCOUNTED_ENTRIES}, total = total + {UNCOUNTED_ENTRIES},"  # noqa: S608
                f" updated_at = coalesce(?, {UPDATED_AT}), listed_at = coalesce(?, {UPDATED_AT}), expires_at = ?"
                " WHERE name = ? AND (expires_at IS NULL OR expires_at > ?)",
                (dates.updated_at, dates.updated_at, expires_at, encode_namespace(namespace), now),
            )

    def discard(self, namespace: Namespace, before: float) -> bool:
        name = encode_namespace(namespace)
        older = f"SELECT number FROM langmem_namespaces WHERE name = ? AND {UPDATED_AT} < ?"  # noqa: S608 - a constant
        return NAMESPACE_TABLES.clear(self._database, name, older, name, before)

    def close(self) -> None:
        """Close the connections; the next use opens the file again."""
        self._database.close()

    def vacuum(self) -> None:
        """Return the space of deleted data to the disk; meanwhile, this takes the space of another copy."""
        with self._database.autocommit() as connection:
            vacuum_file(lambda statement: connection.execute(statement).fetchall(), self.path)

    def __repr__(self) -> str:
        return f"SQLiteStore({path_to_show(self.path)!r})"


def _append_and_put(
    connection: sqlite3.Connection,
    state: NamespaceState,
    entries: Sequence[tuple[str, bytes]],
    values: Mapping[str, bytes],
    now: float,
) -> list[bool]:
    """Append to the log and put values; a value whose key is an appended id is stored in that entry's row."""
    separate = dict(values)
    inline = {id_: separate.pop(id_) for id_, _ in entries if id_ in separate}
    if inline:
        sqlite_values.delete_separate(connection, state.number, list(inline))
    if separate:
        sqlite_values.put(connection, state.number, separate, has_inline=state.has_inline)
    return append_entries(connection, state, entries, now, inline)


_to_item = partial(tuple.__new__, Item)  # as Item(*row), in a third of the time


def _check_guard(guard: Mapping[str, bytes | None], values: Mapping[str, bytes]) -> None:
    for key, expected in guard.items():
        if values.get(key) != expected:
            raise Conflict(f"the value {key!r} was changed by another writer")
