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

__all__ = ["Unlinking", "removal"]

_MARK, _END = "|", "}"  # no encoded name has it, and reading a name stops before it; and the character after it
_PIECE = 4000  # rows removed in one transaction
_SHARE = 0.5  # of a part's duration: the pause in which others can write


def removal(table: str, key: str) -> str:
    """SQL that removes the ``most`` first rows of a namespace, and those with the same key, which an index covers."""
    first = f"SELECT {key} FROM {table} WHERE namespace = :number ORDER BY {key} LIMIT :most"  # noqa: S608 - ours
    return f"DELETE FROM {table} WHERE namespace = :number AND {key} <= (SELECT max({key}) FROM ({first}))"  # noqa: S608


class Unlinking(NamedTuple):
    """How namespaces are removed: the table of names and numbers, and the statements that remove rows elsewhere.

    ``also`` is SQL for what else is set when a namespace is unlinked.
    """

    table: str
    removals: Sequence[str]
    also: str = ""

    def unlink(self, connection: sqlite3.Connection, number: int, name: str) -> None:
        """Take a namespace's name away, so that only a clearing of that name finds it."""
        rename = f"UPDATE {self.table} SET name = ?{self.also} WHERE number = ?"  # noqa: S608 - ours
        connection.execute(rename, (f"{name}{_MARK}{number}", number))

    def clear(self, database: Database, name: str, numbers: str, *arguments: Any) -> bool:
        """Remove the namespaces whose numbers a query returns, and all that are unlinked from the name.

        Returns whether the query found any.
        """
        began = time.perf_counter()
        with database.writing() as connection, connection:
            found = connection.execute(numbers, arguments).fetchall()
            for (number,) in found:
                self.unlink(connection, number, name)
            is_more = self.remove_some(connection, name)
        while is_more:
            pauses.sleep(_SHARE * (time.perf_counter() - began))
            began = time.perf_counter()
            with database.writing() as connection, connection:
                is_more = self.remove_some(connection, name)
        return bool(found)

    def remove_some(self, connection: sqlite3.Connection, name: str) -> bool:
        """Remove some rows of what is unlinked from a name; returns whether there are more."""
        find = f"SELECT number FROM {self.table} WHERE name >= ? AND name < ? LIMIT 1"  # noqa: S608 - ours
        while row := connection.execute(find, (name + _MARK, name + _END)).fetchone():
            if not self.remove(connection, row[0], _PIECE):
                return True
        return False

    def remove(self, connection: sqlite3.Connection, number: int, most: int) -> bool:
        """Remove about ``most`` rows of a namespace; returns whether all of them are gone."""
        for statement in self.removals:
            most -= connection.execute(statement, {"number": number, "most": most}).rowcount
            if most <= 0:
                return False
        connection.execute(f"DELETE FROM {self.table} WHERE number = ?", (number,))  # noqa: S608 - ours
        return True
