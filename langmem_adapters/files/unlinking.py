"""Removal of what may be large: it is gone at once, and leaves its file in parts, between which others write.

As a whole, hundreds of thousands of rows would hold the file for longer than others wait for it. So a namespace is
unlinked first, as Redis and file systems do: nobody finds it under its name any more. Where whoever clears it dies
half-way, the next one who clears that name goes on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from langmem_adapters.concurrency import pauses
from langmem_adapters.files.database import Database

__all__ = ["Unlinking", "removal"]

_MARK, _END = "|", "}"  # no encoded name has it, and what is read of a name ends before it; and the character after it
_PIECE = 4000  # rows removed in one transaction
_SHARE = 0.5  # of the time that a part took, in which others are let in


def removal(table: str, key: str) -> str:
    """Remove the ``most`` first rows of a namespace, and those with the same key; an index has both columns."""
    first = f"SELECT {key} FROM {table} WHERE namespace = :number ORDER BY {key} LIMIT :most"  # noqa: S608 - ours
    return f"DELETE FROM {table} WHERE namespace = :number AND {key} <= (SELECT max({key}) FROM ({first}))"  # noqa: S608


class Unlinking(NamedTuple):
    """How namespaces go: the table of their names and numbers, and what removes rows of one in the others.

    ``also`` is what else is set, as in SQL, when the name is taken.
    """

    table: str
    removals: Sequence[str]
    also: str = ""

    def unlink(self, connection: sqlite3.Connection, number: int, name: str) -> None:
        """Take its name from a namespace, so that nobody finds it any more but who clears that name."""
        rename = f"UPDATE {self.table} SET name = ?{self.also} WHERE number = ?"  # noqa: S608 - ours
        connection.execute(rename, (f"{name}{_MARK}{number}", number))

    def clear(self, database: Database, name: str, numbers: str, *arguments: Any) -> bool:
        """Remove the namespaces that a query gives the numbers of, and all that is unlinked from the name.

        Says whether the query gave any.
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
        """Remove some of what is unlinked from a name; says whether there is more."""
        find = f"SELECT number FROM {self.table} WHERE name >= ? AND name < ? LIMIT 1"  # noqa: S608 - ours
        while row := connection.execute(find, (name + _MARK, name + _END)).fetchone():
            if not self.remove(connection, row[0], _PIECE):
                return True
        return False

    def remove(self, connection: sqlite3.Connection, number: int, most: int) -> bool:
        """Remove so many rows of a namespace at the most, roughly; says whether all of them have gone."""
        for statement in self.removals:
            most -= connection.execute(statement, {"number": number, "most": most}).rowcount
            if most <= 0:
                return False
        connection.execute(f"DELETE FROM {self.table} WHERE number = ?", (number,))  # noqa: S608 - ours
        return True
