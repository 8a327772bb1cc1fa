"""The row of a namespace in a file, which appending messages need not change.

The row tells the namespace's state when it was written: its next number, the length of its log, and the time.
Entries from ``next`` on came later, without a gap, each with its own time, so readers of the row count them in. The row
is written again when anything but such entries changes, and once in a while.
"""

from __future__ import annotations

import functools
import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langmem_adapters.files.sqlite_errors import checked_integer
from langmem_adapters.files.unlinking import Unlinking, removal_sql
from langmem_adapters.keys import Namespace, encode_namespace

LISTING_LAG_SECONDS = 60
"""Seconds by which ``listed_at``, which is indexed, may lag behind the last write, so that few writes touch it."""

ENTRY_BITS = 32
"""The low bits of an entry's key, for its own number; those above are its namespace's number."""

# A log entry's key is its namespace's number and its own, so reading a log is one range scan of the table. Numbers
# of namespaces are never reused, so sequence numbers rise even if a namespace was cleared and made again.
SCHEMA = (
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
    "ALTER TABLE langmem_log ADD COLUMN at REAL",  # NULL in older entries, which their namespace's row counts already
    "ALTER TABLE langmem_log ADD COLUMN value BLOB",  # of the key that equals the id, unless it has a row
    "ALTER TABLE langmem_namespaces ADD COLUMN beside INTEGER NOT NULL DEFAULT 0",  # whether there may be such values
)

_UNCOUNTED_ROWS = "FROM langmem_log WHERE seq >= (number << 32) + next AND seq < (number + 1) << 32"

UNCOUNTED_ENTRIES = f"ifnull((SELECT max(seq) {_UNCOUNTED_ROWS}) - (number << 32) - next + 1, 0)"
"""How many entries came since the row was written, and are not in its total."""

UPDATED_AT = f"ifnull((SELECT at {_UNCOUNTED_ROWS} ORDER BY seq DESC LIMIT 1), updated_at)"
"""When the namespace was last written."""

_FIND = (
    f"SELECT number, total + {UNCOUNTED_ENTRIES}, beside FROM langmem_namespaces"  # noqa: S608 - a constant
    " WHERE name = ? AND (expires_at IS NULL OR expires_at > ?)"
)
_EXPIRED = "SELECT number FROM langmem_namespaces WHERE expires_at <= ? LIMIT 1"
_OPEN = (
    f"SELECT number, next, total, {UNCOUNTED_ENTRIES}, listed_at, expires_at, ({_EXPIRED}), beside"  # noqa: S608
    " FROM langmem_namespaces WHERE name = ?"
)
_INSERT_ENTRY = "INSERT OR IGNORE INTO langmem_log VALUES (?, ?, ?, ?, ?)"
_SET_INLINE_VALUE = "UPDATE langmem_log SET value = ? WHERE seq >> 32 = ? AND id = ?"
_CULL_ROWS = 1000  # entries and values of expired namespaces removed with each write, so that no sweep is needed
_CHILDREN = (
    f"FROM (SELECT name, listed_at, {UPDATED_AT} AS written_at FROM langmem_namespaces"  # noqa: S608 - a constant
    " WHERE parent = :parent AND name <> :parent AND listed_at <= :at AND (expires_at IS NULL OR expires_at > :now))"
    " WHERE (written_at, name) < (:at, :name)"
)
_NTH_LISTED = f"SELECT listed_at {_CHILDREN} ORDER BY listed_at DESC LIMIT 1 OFFSET :n"
_RECENT = f"SELECT name, written_at {_CHILDREN} AND listed_at >= :since ORDER BY written_at DESC, name DESC LIMIT :n"
_LOG_ROWS = "FROM langmem_log WHERE seq >= :number << 32 AND seq < (:number + 1) << 32"
NAMESPACE_TABLES = Unlinking(
    "langmem_namespaces",
    (
        f"DELETE FROM langmem_log WHERE seq IN (SELECT seq {_LOG_ROWS} LIMIT :most)",  # noqa: S608 - a constant
        removal_sql("langmem_values", "key"),
    ),
    extra_assignments=", expires_at = 0",  # so that other writers remove it too
)
"""The tables of a namespace, for its removal."""


class NamespaceState(NamedTuple):
    """The row of a namespace that is about to be written to."""

    number: int
    next: int
    total: int
    uncounted: int
    listed_at: float
    expires_at: float | None
    expired_number: int | None  # the number of an expired namespace, if there is any
    has_inline: int  # 1 if there may be inline values, or else 0

    @property
    def next_key(self) -> int:
        """The key of the next entry."""
        return (self.number << ENTRY_BITS) + self.next + self.uncounted


def find_namespace(connection: sqlite3.Connection, name: str, now: float) -> tuple[int, int, int] | None:
    """The number of a namespace, the length of its log, and 1 if there may be inline values, or else 0.

    None if there is no such namespace, or it has expired.
    """
    row: tuple[int, int, int] | None = connection.execute(_FIND, (name, now)).fetchone()
    return row


def open_namespace(connection: sqlite3.Connection, name: str, namespace: Namespace, now: float) -> NamespaceState:
    """Find a namespace by its encoded name, or create it."""
    row = connection.execute(_OPEN, (now, name)).fetchone()
    if row is not None:
        state = _state_of(row)
        if state.expires_at is None or state.expires_at > now:
            return state
        NAMESPACE_TABLES.unlink(connection, state.number, name)
    connection.execute(
        "INSERT INTO langmem_namespaces (name, parent, next, total, updated_at, listed_at) VALUES (?, ?, 1, 0, 0, ?)",
        (name, encode_namespace(namespace[:-1]), -math.inf),
    )
    return _state_of(connection.execute(_OPEN, (now, name)).fetchone())


def _state_of(row: Sequence[Any] | None) -> NamespaceState:
    for number in (row or [None])[:4]:  # without a row, names are out of order
        checked_integer(number)
    return NamespaceState(*row or ())


def append_entries(
    connection: sqlite3.Connection,
    state: NamespaceState,
    entries: Sequence[tuple[str, bytes]],
    now: float,
    values: Mapping[str, bytes],
) -> list[bool]:
    """Append the entries that are new, with their inline values; returns for each entry whether it is new."""
    new = []
    seq = state.next_key
    for id_, data in entries:
        value = values.get(id_)
        added = connection.execute(_INSERT_ENTRY, (seq, id_, data, now, value)).rowcount
        if value is not None and not added:
            connection.execute(_SET_INLINE_VALUE, (value, state.number, id_))
        new.append(added == 1)
        seq += added
    if values and not state.has_inline:
        connection.execute("UPDATE langmem_namespaces SET beside = 1 WHERE number = ?", (state.number,))
    return new


def update_row(
    connection: sqlite3.Connection, state: NamespaceState, *, added: int, removed: int, ttl: float | None, now: float
) -> tuple[int, int]:
    """Write the row if the added entries do not tell enough, and remove something of an expired namespace.

    Returns the row's next number, and how many entries it counts.
    """
    next_, total = state.next, state.total
    is_listed_lately = 0 <= now - state.listed_at < LISTING_LAG_SECONDS
    if not added or removed or not is_listed_lately or ttl is not None or state.expires_at is not None:
        uncounted = state.uncounted + added
        next_, total = next_ + uncounted, total + uncounted - removed
        columns: dict[str, float | None] = {"next": next_, "total": total, "updated_at": now}
        if not is_listed_lately:
            columns["listed_at"] = now
        if ttl is not None or state.expires_at is not None:
            columns["expires_at"] = None if ttl is None else now + ttl
        connection.execute(_update_statement(*columns), (*columns.values(), state.number))
    expired = state.expired_number
    if expired is not None and not NAMESPACE_TABLES.remove(connection, expired, _CULL_ROWS):
        # The rest stays gone, even if the clock goes back to before it had expired.
        connection.execute("UPDATE langmem_namespaces SET expires_at = 0 WHERE number = ?", (expired,))
    return next_, total


@functools.cache
def _update_statement(*columns: str) -> str:
    return f"UPDATE langmem_namespaces SET {', '.join(f'{name} = ?' for name in columns)} WHERE number = ?"  # noqa: S608


def recent_children(
    connection: sqlite3.Connection, parent: str, *, limit: int | None, before: tuple[float, str] | None, now: float
) -> list[tuple[str, float]]:
    """Encoded names and times of the namespaces below a parent, the latest first; ``before`` is such a row."""
    at, name = before or (math.inf, "")
    parameters: dict[str, Any] = {"parent": parent, "at": at, "name": name, "now": now}
    since = -math.inf
    if limit:
        # None of the latest n is older than the n-th listed one; but its ``listed_at`` may lag behind.
        nth_listed = connection.execute(_NTH_LISTED, {**parameters, "n": limit - 1}).fetchone()
        since = -math.inf if nth_listed is None else nth_listed[0] - LISTING_LAG_SECONDS
    rows = connection.execute(_RECENT, {**parameters, "since": since, "n": -1 if limit is None else limit})
    return rows.fetchall()


def key_bounds(number: int) -> tuple[int, int]:
    """The lowest and the highest key that an entry of a namespace's log can have."""
    return number << ENTRY_BITS, ((number + 1) << ENTRY_BITS) - 1
