"""Remove large namespaces: they vanish at once, and their rows go in parts, between which others can write.

Removed at once, hundreds of thousands of rows would lock the file for longer than other writers wait. So a namespace
is unlinked first, as Redis and file systems do: nobody finds it under its name any more. If the process dies half-way,
the next one to clear that name continues.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from langmem_adapters.concurrency import pauses
from langmem_adapters.files.database import Database

_UNLINKED_MARK = "|"  # no encoded name has it, and reading a name stops before it
_AFTER_MARK = "}"  # the next character
_BATCH_ROWS = 4000  # removed in one transaction
_PAUSE_SHARE = 0.5  # of a batch's duration: the pause in which others can write


def removal_sql(table: str, key: str) -> str:
    """SQL that removes the ``most`` first rows of a namespace, and those with the same key, which an index covers."""
    first = f"SELECT {key} FROM {table} WHERE namespace = :number ORDER BY {key} LIMIT :most"  # noqa: S608 - ours
    return f"DELETE FROM {table} WHERE namespace = :number AND {key} <= (SELECT max({key}) FROM ({first}))"  # noqa: S608


class Unlinking(NamedTuple):
    """How namespaces are removed: the table of names and numbers, and the statements that remove rows elsewhere.

    ``extra_assignments`` is SQL for what else is set when a namespace is unlinked.
    """

    table: str
    removals: Sequence[str]
    extra_assignments: str = ""

    def unlink(self, connection: sqlite3.Connection, number: int, name: str) -> None:
        """Take a namespace's name away, so that only a clearing of that name finds it."""
        rename = f"UPDATE {self.table} SET name = ?{self.extra_assignments} WHERE number = ?"  # noqa: S608 - ours
        connection.execute(rename, (f"{name}{_UNLINKED_MARK}{number}", number))

    def clear(self, database: Database, name: str, query: str, *arguments: Any) -> bool:
        """Remove the namespaces whose numbers ``query`` returns, and all that are unlinked from the name.

        Returns whether the query found any.
        """
        start = time.perf_counter()
        with database.writing() as connection, connection:
            rows = connection.execute(query, arguments).fetchall()
            for (number,) in rows:
                self.unlink(connection, number, name)
            is_more = self.remove_some(connection, name)
        while is_more:
            pauses.sleep(_PAUSE_SHARE * (time.perf_counter() - start))
            start = time.perf_counter()
            with database.writing() as connection, connection:
                is_more = self.remove_some(connection, name)
        return bool(rows)

    def remove_some(self, connection: sqlite3.Connection, name: str) -> bool:
        """Remove some rows of what is unlinked from a name; returns whether there are more."""
        query = f"SELECT number FROM {self.table} WHERE name >= ? AND name < ? LIMIT 1"  # noqa: S608 - ours
        while row := connection.execute(query, (name + _UNLINKED_MARK, name + _AFTER_MARK)).fetchone():
            if not self.remove(connection, row[0], _BATCH_ROWS):
                return True
        return False

    def remove(self, connection: sqlite3.Connection, number: int, max_rows: int) -> bool:
        """Remove about ``max_rows`` rows of a namespace; returns whether all of them are gone."""
        for statement in self.removals:
            max_rows -= connection.execute(statement, {"number": number, "most": max_rows}).rowcount
            if max_rows <= 0:
                return False
        connection.execute(f"DELETE FROM {self.table} WHERE number = ?", (number,))  # noqa: S608 - ours
        return True
