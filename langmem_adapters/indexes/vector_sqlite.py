"""Vectors as rows of an SQLite file, and in memory as one matrix per namespace: exact, by NumPy."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.embedding import Embedding, Vector
from langmem_adapters.files.damage import search_errors
from langmem_adapters.files.database import Database
from langmem_adapters.files.locations import path_to_show
from langmem_adapters.files.unlinking import Unlinking, removal_sql
from langmem_adapters.indexes.vector import EmbedderSpec, Watermark, check_position
from langmem_adapters.indexes.vector_matrix import Matrix, pack_vector
from langmem_adapters.indexes.vector_pieces import max_sim
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Position

T = TypeVar("T")

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
_NAMESPACE_TABLES = Unlinking(
    "langmem_vector_namespaces",
    (removal_sql("langmem_vector_rows", "number"), removal_sql("langmem_vector_gone", "number")),
)
_PAGE_SIZE = 4_096  # rows read at a time: there is never a second copy of a large namespace in memory
_MAX_MATRICES = 1_000  # in memory, however small
_MAX_REMOVALS = 1_000  # that are remembered; a process that missed more compares all numbers
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
            timeout=5.0 if timeout is None else timeout,
            fails_fast=timeout is not None,
            disposable=disposable,
        )
        self._errors = partial(search_errors, "vector", self._database.location)
        self._max_bytes = megabytes * _MEGABYTE
        reset_in_child(self)

    def reset_state(self) -> None:
        """Hold no matrices."""
        self._lock = threading.Lock()
        self._matrices: OrderedDict[str, Matrix] = OrderedDict()

    def watermark(self, name: str) -> Watermark | None:
        with self._errors():
            rows = self._database.fetch_all(_SELECT_NAMESPACE, (name,))
            return _to_namespace(rows[0]).mark if rows else None

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
        with self._errors(), self._database.writing() as connection, connection:
            namespace = _find_namespace(connection, name)
            check_position(namespace and namespace.mark, maker, since)
            number = _ensure_namespace(connection, name, maker)
            _NAMESPACE_TABLES.remove_some(connection, name)
            deleted_count = _delete_rows(connection, number, [*delete, *upsert])
            # By a random step: else they would repeat after a restored backup, beside matrices of what it replaced.
            connection.execute(_SKIP_NUMBERS, (int.from_bytes(os.urandom(2), "big"),))
            connection.executemany(
                "INSERT INTO langmem_vector_rows (namespace, id, vector) VALUES (?, ?, ?)",
                [(number, to_bytes(id_), pack_vector(embedding.vector)) for id_, embedding in upsert.items()],
            )
            connection.executemany(
                "INSERT INTO langmem_vector_pieces SELECT number, ? FROM langmem_vector_rows "
                "WHERE namespace = ? AND id = ?",
                [(b"".join(e.pieces), number, to_bytes(id_)) for id_, e in upsert.items() if e.pieces],
            )
            connection.execute(
                "UPDATE langmem_vector_namespaces SET documents = documents + ? WHERE number = ?",
                (len(upsert) - deleted_count, number),
            )
            if position is not None:
                connection.execute(
                    "UPDATE langmem_vector_namespaces SET seq = ?, entry = ? WHERE number = ?",
                    (position[0], to_bytes(position[1]), number),
                )

    def nearest(self, name: str, maker: EmbedderSpec, vector: Vector, k: int) -> list[tuple[str, float]]:
        with self._errors():
            snapshot = self._read_matrix(name, maker, Matrix.snapshot)
            return [] if snapshot is None else [(to_text(id_), cosine) for id_, cosine in snapshot.nearest(vector, k)]

    def cosines(self, name: str, maker: EmbedderSpec, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        stored_ids = [to_bytes(id_) for id_ in ids]
        with self._errors():
            cosines = self._read_matrix(name, maker, lambda matrix: matrix.cosines(vector, stored_ids))
        if cosines is None:
            return {}
        return {id_: cosine for id_, cosine in zip(ids, cosines, strict=True) if cosine is not None}

    def max_sim(
        self, name: str, maker: EmbedderSpec, query_pieces: Sequence[bytes], previous_ids: Mapping[str, str]
    ) -> dict[str, float]:
        """Late interaction with the pieces of a query: :func:`~langmem_adapters.indexes.vector_pieces.max_sim`."""
        stored_ids = [to_bytes(id_) for id_ in (*previous_ids, *previous_ids.values())]
        with self._errors():
            all_numbers = self._read_matrix(name, maker, lambda matrix: matrix.row_numbers(stored_ids))
            if all_numbers is None:
                return {}
            numbers, previous_numbers = all_numbers[: len(previous_ids)], all_numbers[len(previous_ids) :]
            requested = {number for number in (*numbers, *previous_numbers) if number}
            pieces = dict(self._database.fetch_all(_SELECT_PIECES, (json.dumps(list(requested)),)))
            scores = max_sim(query_pieces, pieces, list(zip(numbers, previous_numbers, strict=True)))
        return {id_: scores[number] for id_, number in zip(previous_ids, numbers, strict=True) if number in scores}

    def namespaces(self, prefix: str) -> list[str]:
        """The names with this beginning."""
        with self._errors():
            return [name for (name,) in self._database.fetch_all(_SELECT_NAMES, (prefix, f"{prefix}\x7f"))]

    def clear(self, name: str) -> None:
        with self._errors(), self._database.clearing():
            select = "SELECT number FROM langmem_vector_namespaces WHERE name = ?"
            _NAMESPACE_TABLES.clear(self._database, name, select, name)

    def close(self) -> None:
        """Close the file and drop the matrices."""
        self.reset_state()
        self._database.close()

    def __repr__(self) -> str:
        return f"SQLiteVectors({path_to_show(self._database.path)!r})"

    def _read_matrix(self, name: str, maker: EmbedderSpec, read: Callable[[Matrix], T]) -> T | None:
        """Read from a namespace's current vectors; None if there are none that this maker made.

        A context manager would not do: an interrupt between it and its block would leave the lock with the traceback.
        """
        matrix, result = self._get_matrix(name), None
        with matrix.lock:
            old_size = matrix.size
            # The lock before the transaction, so that a later caller never sees an earlier state.
            with self._database.reading() as connection, connection:
                namespace = _find_namespace(connection, name)
                if namespace is None or not (namespace.documents and namespace.mark.maker.fits(maker)):
                    namespace = None
                    matrix.reset(0)
                else:
                    try:
                        _refresh_matrix(connection, matrix, namespace)
                    except BaseException:  # half a change, by an interrupt, would give vectors other ids
                        matrix.reset(0)
                        raise
            has_grown = not old_size or matrix.size > old_size
            if namespace is not None:
                result = read(matrix)
        if has_grown:
            self._evict_matrices(name)
        return result

    def _get_matrix(self, name: str) -> Matrix:
        with self._lock:
            matrix = self._matrices.setdefault(name, Matrix())
            self._matrices.move_to_end(name)
            return matrix

    def _evict_matrices(self, name: str) -> None:
        with self._lock:
            total_size = sum(matrix.size for matrix in self._matrices.values())
            for other in [other for other in self._matrices if other != name]:
                if total_size <= self._max_bytes and len(self._matrices) <= _MAX_MATRICES:
                    return
                total_size -= self._matrices.pop(other).size


class _NamespaceRow(NamedTuple):
    number: int
    documents: int
    mark: Watermark


def _find_namespace(connection: sqlite3.Connection, name: str) -> _NamespaceRow | None:
    row = connection.execute(_SELECT_NAMESPACE, (name,)).fetchone()
    return None if row is None else _to_namespace(row)


_SKIP_NUMBERS = "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'langmem_vector_rows'"
_SELECT_NAMES = "SELECT name FROM langmem_vector_namespaces WHERE name >= ? AND name < ? ORDER BY name"
_SELECT_NAMESPACE = (
    "SELECT number, documents, embedder, dimension, seq, entry FROM langmem_vector_namespaces WHERE name = ?"
)
_SELECT_PIECES = "SELECT row, signs FROM langmem_vector_pieces WHERE row IN (SELECT value FROM json_each(?))"


def _to_namespace(row: tuple[Any, ...]) -> _NamespaceRow:
    number, documents, *mark = row
    return _NamespaceRow(number, documents, Watermark.from_row(*mark))


def _ensure_namespace(connection: sqlite3.Connection, name: str, maker: EmbedderSpec) -> int:
    """Find the namespace's number, or assign one; what another maker made is dropped."""
    namespace = _find_namespace(connection, name)
    if namespace is not None and namespace.mark.maker.fits(maker):
        connection.execute(
            "UPDATE langmem_vector_namespaces SET dimension = coalesce(dimension, ?) WHERE number = ?",
            (maker.dimension, namespace.number),
        )
        return namespace.number
    if namespace is not None:
        _NAMESPACE_TABLES.unlink(connection, namespace.number, name)
    # At random: counting from 1 would repeat numbers in a new file, while others still hold matrices of the old one.
    number = int.from_bytes(os.urandom(6), "big")
    connection.execute(
        "INSERT INTO langmem_vector_namespaces (number, name, embedder, dimension) VALUES (?, ?, ?, ?)",
        (number, name, to_bytes(maker.embedder), maker.dimension),
    )
    return number


def _delete_rows(connection: sqlite3.Connection, namespace: int, ids: Iterable[str]) -> int:
    """Delete rows and record which they were, so that every process can do the same in memory."""
    select = "SELECT number FROM langmem_vector_rows WHERE namespace = ? AND id = ?"
    keys = ((namespace, to_bytes(id_)) for id_ in ids)
    deleted = {row[0] for key in keys if (row := connection.execute(select, key).fetchone()) is not None}
    connection.executemany("DELETE FROM langmem_vector_rows WHERE number = ?", [(row,) for row in deleted])
    removals = [(namespace, row) for row in deleted]
    connection.executemany("INSERT INTO langmem_vector_gone (namespace, row) VALUES (?, ?)", removals)
    if deleted:
        delete = "DELETE FROM langmem_vector_gone WHERE namespace = ? AND number <= ?"
        connection.execute(delete, (namespace, _last_removal(connection, namespace)[0] - _MAX_REMOVALS))
    return len(deleted)


def _last_removal(connection: sqlite3.Connection, namespace: int) -> tuple[int, int]:
    """The number of the last removal, and the row that it removed."""
    select = "SELECT number, row FROM langmem_vector_gone WHERE namespace = ? ORDER BY number DESC LIMIT 1"
    number, row = connection.execute(select, (namespace,)).fetchone() or (0, 0)
    return number, row


def _refresh_matrix(connection: sqlite3.Connection, matrix: Matrix, namespace: _NamespaceRow) -> None:
    if matrix.namespace != namespace.number or not _is_consistent(connection, matrix):
        matrix.reset(namespace.number)
        matrix.last_removal = _last_removal(connection, namespace.number)
    with closing(connection.execute(_SELECT_NEW_ROWS, (namespace.number, matrix.newest[0]))) as rows:
        while page := rows.fetchmany(_PAGE_SIZE):
            matrix.extend(page, namespace.documents)
    if matrix.living_count != namespace.documents:
        removals = connection.execute(_SELECT_NEW_REMOVALS, (namespace.number, matrix.last_removal[0])).fetchall()
        if removals:
            matrix.remove(row for _, row in removals)
            matrix.last_removal = removals[-1]
    if matrix.living_count != namespace.documents:
        select = "SELECT number FROM langmem_vector_rows WHERE namespace = ?"
        with closing(connection.execute(select, (namespace.number,))) as existing:
            matrix.retain(number for (number,) in existing)


def _is_consistent(connection: sqlite3.Connection, matrix: Matrix) -> bool:
    """Whether the last row in memory exists, or was removed: neither is so after an older backup was restored.

    The last removal applied in memory must be recorded too, unless many came after it.
    """
    (number, id_), (removal_number, removed_row) = matrix.newest, matrix.last_removal
    (row_existed,) = connection.execute(_ROW_EXISTED, (number, id_, matrix.namespace, number)).fetchone()
    if not row_existed:
        return False
    if not removal_number:
        return True
    removal = (removal_number, removed_row, matrix.namespace)
    if connection.execute(_SELECT_REMOVAL, removal).fetchone() is not None:
        return True
    newest_removal, _ = _last_removal(connection, matrix.namespace)
    return removal_number <= newest_removal - _MAX_REMOVALS


_ROW_EXISTED = (
    "SELECT EXISTS (SELECT 1 FROM langmem_vector_rows WHERE number = ? AND id = ?)"
    " OR EXISTS (SELECT 1 FROM langmem_vector_gone WHERE namespace = ? AND row = ?)"
)
_SELECT_REMOVAL = "SELECT 1 FROM langmem_vector_gone WHERE number = ? AND row = ? AND namespace = ?"
_SELECT_NEW_ROWS = (
    "SELECT number, id, vector FROM langmem_vector_rows WHERE namespace = ? AND number > ? ORDER BY number"
)
_SELECT_NEW_REMOVALS = "SELECT number, row FROM langmem_vector_gone WHERE namespace = ? AND number > ? ORDER BY number"
