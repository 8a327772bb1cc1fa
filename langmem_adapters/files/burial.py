"""Removal of what may be large: it is gone at once, and leaves its file in parts, between which others write.

As a whole, hundreds of thousands of rows would hold the file for longer than others wait for it. So a namespace's name
is taken from it first. Where whoever clears it dies half-way, the next one who clears that name goes on.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from langmem_adapters.concurrency import pauses
from langmem_adapters.files.database import Database

__all__ = ["Burial", "removal"]

_MARK, _END = "|", "}"  # no encoded name has it, and what is read of a name ends before it; and the character after it
_PIECE = 4000  # rows removed in one transaction
_SHARE = 0.5  # of the time that a part took, in which others are let in


def removal(table: str, key: str) -> str:
    """Remove the ``most`` first rows of a namespace, and those with the same key; an index has both columns."""
    first = f"SELECT {key} FROM {table} WHERE namespace = :number ORDER BY {key} LIMIT :most"  # noqa: S608 - ours
    return f"DELETE FROM {table} WHERE namespace = :number AND {key} <= (SELECT max({key}) FROM ({first}))"  # noqa: S608


class Burial(NamedTuple):
    """How namespaces go: the table of their names and numbers, and what removes rows of one in the others.

    ``also`` is what else is set, as in SQL, when the name is taken.
    """

    table: str
    removals: Sequence[str]
    also: str = ""

    def bury(self, connection: sqlite3.Connection, number: int) -> None:
        """Take its name from a namespace, so that nobody finds it any more."""
        rename = f"UPDATE {self.table} SET name = name || ? || number{self.also} WHERE number = ?"  # noqa: S608 - ours
        connection.execute(rename, (_MARK, number))

    def clear(self, database: Database, name: str, find: Callable[[sqlite3.Connection], int | None]) -> bool:
        """Remove the namespace that ``find`` gives the number of, if any, and all that is buried under the name."""
        began = time.perf_counter()
        with database.writing() as connection, connection:
            number = find(connection)
            if number is not None:
                self.bury(connection, number)
            is_more = self.remove_some(connection, name)
        while is_more:
            pauses.sleep(_SHARE * (time.perf_counter() - began))
            began = time.perf_counter()
            with database.writing() as connection, connection:
                is_more = self.remove_some(connection, name)
        return number is not None

    def remove_some(self, connection: sqlite3.Connection, name: str) -> bool:
        """Remove some of what is buried under a name; says whether there is more."""
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
