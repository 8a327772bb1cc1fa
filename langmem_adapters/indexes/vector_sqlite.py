"""Vectors as rows of an SQLite file, and in memory as one matrix per namespace: exact, by NumPy."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.embedding import Embedding, Vector
from langmem_adapters.errors import search_errors
from langmem_adapters.files.database import Database
from langmem_adapters.files.unlinking import Unlinking, removal
from langmem_adapters.indexes.vector import EmbedderSpec, Watermark, check
from langmem_adapters.indexes.vector_matrix import Matrix, packed
from langmem_adapters.indexes.vector_pieces import max_sim
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Position

__all__ = ["SQLiteVectors"]

_SCHEMA = (
    # AUTOINCREMENT: a number is never given twice, so a higher one is always new.
    """CREATE TABLE langmem_vector_namespaces (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, embedder BLOB NOT NULL,
        dimension INTEGER, documents INTEGER NOT NULL DEFAULT 0, seq INTEGER, entry BLOB)""",
    """CREATE TABLE langmem_vector_rows (
        number INTEGER PRIMARY KEY AUTOINCREMENT, namespace INTEGER NOT NULL, id BLOB NOT NULL,
        vector BLOB NOT NULL, UNIQUE (namespace, id))""",
    "CREATE INDEX langmem_vector_order ON langmem_vector_rows (namespace)",
    """CREATE TABLE langmem_vector_gone (
        number INTEGER PRIMARY KEY AUTOINCREMENT, namespace INTEGER NOT NULL, row INTEGER NOT NULL)""",
    "CREATE INDEX langmem_vector_gone_order ON langmem_vector_gone (namespace)",
    "CREATE TABLE langmem_vector_pieces (row INTEGER PRIMARY KEY, signs BLOB NOT NULL)",
    # Covers deletions by a process that was started before there were pieces.
    """CREATE TRIGGER langmem_vector_pieces_gone AFTER DELETE ON langmem_vector_rows
        BEGIN DELETE FROM langmem_vector_pieces WHERE row = old.number; END""",
)
_SPACES = Unlinking(
    "langmem_vector_namespaces", (removal("langmem_vector_rows", "number"), removal("langmem_vector_gone", "number"))
)
_PAGE = 4_096  # rows read at a time: there is never a second copy of a large namespace in memory
_NAMESPACES = 1_000  # matrices that are held, however small
_GONE = 1_000  # removals that are remembered; a process that missed more compares all numbers
_MEGABYTE = 1 << 20


class SQLiteVectors:
    """Vectors in an SQLite file, which may be the store's own file.

    Every process keeps the matrices of the namespaces that it searches, and reads new rows before each search. Results
    are exact. With equal cosines, the one added last comes first. The meaning of word pieces stays in the file, and is
    read for the few texts that a search asks for.

    Args:
        path: The file, or ":memory:".
        megabytes: The most memory that the matrices may take together; those searched longest ago are dropped, and
            read again when they are needed. 100,000 vectors of 384 numbers take 170; with simsimd, which is used if it
            is installed and searches them in a third of the time, 210.
        timeout, disposable: As for a :class:`~langmem_adapters.indexes.lexical.LexicalIndex`.
    """

    def __init__(
        self, path: str | Path, *, megabytes: float = 1024, timeout: float | None = None, disposable: bool = False
    ) -> None:
        self._database = Database(
            path,
            schema=_SCHEMA,
            name="vectors",
            timeout=timeout or 5.0,
            fails_fast=timeout is not None,
            disposable=disposable,
        )
        self._limit = megabytes * _MEGABYTE
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Hold no matrices."""
        self._lock = threading.Lock()
        self._matrices: OrderedDict[str, Matrix] = OrderedDict()

    def mark(self, name: str) -> Watermark | None:
        with search_errors("vector"):
            rows = self._database.look(_SPACE, (name,))
        return _space(rows[0]).mark if rows else None

    def change(
        self,
        name: str,
        maker: EmbedderSpec,
        *,
        upsert: Mapping[str, Embedding],
        delete: Sequence[str],
        position: Position | None,
        since: Position | None = None,
    ) -> None:
        with search_errors("vector"), self._database.writing() as connection, connection:
            space = _find(connection, name)
            check(space and space.mark, maker, since)
            number = _begin(connection, name, maker)
            _SPACES.remove_some(connection, name)
            gone = _remove(connection, number, [*delete, *upsert])
            connection.executemany(
                "INSERT INTO langmem_vector_rows (namespace, id, vector) VALUES (?, ?, ?)",
                [(number, to_bytes(id_), packed(one.vector)) for id_, one in upsert.items()],
            )
            connection.executemany(
                "INSERT INTO langmem_vector_pieces SELECT number, ? FROM langmem_vector_rows "
                "WHERE namespace = ? AND id = ?",
                [(b"".join(one.pieces), number, to_bytes(id_)) for id_, one in upsert.items() if one.pieces],
            )
            connection.execute(
                "UPDATE langmem_vector_namespaces SET documents = documents + ? WHERE number = ?",
                (len(upsert) - gone, number),
            )
            if position is not None:
                connection.execute(
                    "UPDATE langmem_vector_namespaces SET seq = ?, entry = ? WHERE number = ?",
                    (position[0], to_bytes(position[1]), number),
                )

    def nearest(self, name: str, maker: EmbedderSpec, vector: Vector, k: int) -> list[tuple[str, float]]:
        with self._fresh(name, maker) as matrix:
            seen = None if matrix is None else matrix.seen()
        return [] if seen is None else [(to_text(id_), cosine) for id_, cosine in seen.nearest(vector, k)]

    def cosines(self, name: str, maker: EmbedderSpec, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        with self._fresh(name, maker) as matrix:
            if matrix is None:
                return {}
            cosines = matrix.cosines(vector, [to_bytes(id_) for id_ in ids])
        return {id_: cosine for id_, cosine in zip(ids, cosines, strict=True) if cosine is not None}

    def max_sim(
        self, name: str, maker: EmbedderSpec, asked: Sequence[bytes], before: Mapping[str, str]
    ) -> dict[str, float]:
        """Late interaction with the pieces of a query: :func:`~langmem_adapters.indexes.vector_pieces.max_sim`."""
        with self._fresh(name, maker) as matrix:
            if matrix is None:
                return {}
            documents = matrix.numbers(map(to_bytes, before))
            past = matrix.numbers(map(to_bytes, before.values()))
        wanted = {number for number in (*documents, *past) if number}
        with search_errors("vector"):
            kept = dict(self._database.look(_PIECES, (json.dumps(list(wanted)),)))
        near = max_sim(asked, kept, list(zip(documents, past, strict=True)))
        return {id_: near[number] for id_, number in zip(before, documents, strict=True) if number in near}

    def namespaces(self, start: str) -> list[str]:
        """The names with this beginning."""
        with search_errors("vector"):
            return [name for (name,) in self._database.look(_NAMES, (start, f"{start}\x7f"))]

    def clear(self, name: str) -> None:
        with search_errors("vector"), self._database.clearing():
            _SPACES.clear(self._database, name, "SELECT number FROM langmem_vector_namespaces WHERE name = ?", name)

    def close(self) -> None:
        """Close the file and drop the matrices."""
        self.begin_anew()
        self._database.close()

    def __repr__(self) -> str:
        return f"SQLiteVectors({self._database.path!r})"

    @contextmanager
    def _fresh(self, name: str, maker: EmbedderSpec) -> Iterator[Matrix | None]:
        """A namespace's current vectors, for use in the block; None if there are none that this maker made."""
        matrix = self._matrix(name)
        with matrix.lock:
            before = matrix.size
            # The lock before the transaction, so that a later caller never sees an earlier state.
            with search_errors("vector"), self._database.reading() as connection, connection:
                space = _find(connection, name)
                there = space is not None and space.documents and space.mark.maker.fits(maker)
                if space is not None and there:
                    _refresh(connection, matrix, space)
                else:
                    matrix.reset(0)
            grown = not before or matrix.size > before
            yield matrix if there else None
        if grown:
            self._trim(name)

    def _matrix(self, name: str) -> Matrix:
        with self._lock:
            matrix = self._matrices.setdefault(name, Matrix())
            self._matrices.move_to_end(name)
            return matrix

    def _trim(self, name: str) -> None:
        with self._lock:
            held = sum(matrix.size for matrix in self._matrices.values())
            for other in [other for other in self._matrices if other != name]:
                if held <= self._limit and len(self._matrices) <= _NAMESPACES:
                    return
                held -= self._matrices.pop(other).size


class _Space(NamedTuple):
    number: int
    documents: int
    mark: Watermark


def _find(connection: sqlite3.Connection, name: str) -> _Space | None:
    row = connection.execute(_SPACE, (name,)).fetchone()
    return None if row is None else _space(row)


_NAMES = "SELECT name FROM langmem_vector_namespaces WHERE name >= ? AND name < ? ORDER BY name"
_SPACE = "SELECT number, documents, embedder, dimension, seq, entry FROM langmem_vector_namespaces WHERE name = ?"
_PIECES = "SELECT row, signs FROM langmem_vector_pieces WHERE row IN (SELECT value FROM json_each(?))"


def _space(row: tuple[Any, ...]) -> _Space:
    number, documents, *mark = row
    return _Space(number, documents, Watermark.of(*mark))


def _begin(connection: sqlite3.Connection, name: str, maker: EmbedderSpec) -> int:
    """Find the namespace's number, or assign one; what another maker made is dropped."""
    space = _find(connection, name)
    if space is not None and space.mark.maker.fits(maker):
        connection.execute(
            "UPDATE langmem_vector_namespaces SET dimension = coalesce(dimension, ?) WHERE number = ?",
            (maker.dimension, space.number),
        )
        return space.number
    if space is not None:
        _SPACES.unlink(connection, space.number, name)
    # At random: counting from 1 would repeat numbers in a new file, while others still hold matrices of the old one.
    number = int.from_bytes(os.urandom(6), "big")
    connection.execute(
        "INSERT INTO langmem_vector_namespaces (number, name, embedder, dimension) VALUES (?, ?, ?, ?)",
        (number, name, to_bytes(maker.embedder), maker.dimension),
    )
    return number


def _remove(connection: sqlite3.Connection, namespace: int, ids: Iterable[str]) -> int:
    """Delete rows and record which they were, so that every process can do the same in memory."""
    find = "SELECT number FROM langmem_vector_rows WHERE namespace = ? AND id = ?"
    keys = ((namespace, to_bytes(id_)) for id_ in ids)
    gone = {row[0] for key in keys if (row := connection.execute(find, key).fetchone()) is not None}
    connection.executemany("DELETE FROM langmem_vector_rows WHERE number = ?", [(row,) for row in gone])
    noted = [(namespace, row) for row in gone]
    connection.executemany("INSERT INTO langmem_vector_gone (namespace, row) VALUES (?, ?)", noted)
    if gone:
        forget = "DELETE FROM langmem_vector_gone WHERE namespace = ? AND number <= ?"
        connection.execute(forget, (namespace, _last_gone(connection, namespace)[0] - _GONE))
    return len(gone)


def _last_gone(connection: sqlite3.Connection, namespace: int) -> tuple[int, int]:
    """The number of the last removal, and the row that it removed."""
    find = "SELECT number, row FROM langmem_vector_gone WHERE namespace = ? ORDER BY number DESC LIMIT 1"
    number, row = connection.execute(find, (namespace,)).fetchone() or (0, 0)
    return number, row


def _refresh(connection: sqlite3.Connection, matrix: Matrix, space: _Space) -> None:
    """Bring a matrix up to the rows."""
    if matrix.namespace != space.number or not _is_known(connection, matrix):
        matrix.reset(space.number)
        matrix.last_gone = _last_gone(connection, space.number)
    rows = connection.execute(_NEW_ROWS, (space.number, matrix.newest[0]))
    while page := rows.fetchmany(_PAGE):
        matrix.extend(page, space.documents)
    if matrix.living != space.documents:
        gone = connection.execute(_NEWLY_GONE, (space.number, matrix.last_gone[0])).fetchall()
        matrix.remove(row for _, row in gone)
        matrix.last_gone = gone[-1] if gone else matrix.last_gone
    if matrix.living != space.documents:
        there = connection.execute("SELECT number FROM langmem_vector_rows WHERE namespace = ?", (space.number,))
        matrix.keep(number for (number,) in there)


def _is_known(connection: sqlite3.Connection, matrix: Matrix) -> bool:
    """Whether the last row in memory exists, or was removed: neither is so after an older backup was restored.

    The last removal applied in memory must be recorded too, unless many came after it.
    """
    (number, id_), (gone, row) = matrix.newest, matrix.last_gone
    is_there = connection.execute(_IS_KNOWN, (number, id_, matrix.namespace, number)).fetchone()[0]
    if not is_there or not gone:
        return bool(is_there)
    was_made = connection.execute(_WAS_MADE, (gone, row, matrix.namespace)).fetchone()
    return was_made is not None or gone <= _last_gone(connection, matrix.namespace)[0] - _GONE


_IS_KNOWN = (
    "SELECT EXISTS (SELECT 1 FROM langmem_vector_rows WHERE number = ? AND id = ?)"
    " OR EXISTS (SELECT 1 FROM langmem_vector_gone WHERE namespace = ? AND row = ?)"
)
_WAS_MADE = "SELECT 1 FROM langmem_vector_gone WHERE number = ? AND row = ? AND namespace = ?"
_NEW_ROWS = "SELECT number, id, vector FROM langmem_vector_rows WHERE namespace = ? AND number > ? ORDER BY number"
_NEWLY_GONE = "SELECT number, row FROM langmem_vector_gone WHERE namespace = ? AND number > ? ORDER BY number"
