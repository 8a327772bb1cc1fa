"""Remove what deletions leave in files: free pages, write-ahead logs, and folders of dropped collections.

A place is a store or an index. The files behind it are found through what it holds: databases of
:class:`~langmem_adapters.files.database.Database`, and Chroma's folder.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.files.database import Database
from langmem_adapters.files.places import Place, write_anew
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace

__all__ = ["Files", "files_of", "has_vectors", "is_listed", "named_in", "scrub"]

_DEPTH = 4  # from a vector index to its vectors to their database, and one to spare
_TIMEOUT = 5.0  # seconds to wait for others
_CHROMA = "chroma.sqlite3"
_OURS = "langmem_adapters."


class Files(NamedTuple):
    """The library's SQLite files, and Chroma's folders."""

    databases: frozenset[Path]
    folders: frozenset[Path]


def files_of(*places: object) -> Files:
    """The files behind stores and indexes, as far as they exist."""
    databases, folders = set[Path](), set[Path]()
    for place in places:
        for held in _held(place, _DEPTH):
            if isinstance(held, Database):
                databases.update([held.place.file] if held.place.file else [])
            elif isinstance(folder := vars(held).get("_folder"), str) and folder:
                folders.add(Path(folder))
    return Files(
        frozenset(path for path in databases if path.is_file()),
        frozenset(path for path in folders if (path / _CHROMA).is_file()),
    )


def is_listed(place: object) -> bool:
    """Whether :func:`named_in` knows all that is in a place, because files of the library hold it."""
    return any(isinstance(held, Database) and held.place.file is not None for held in _held(place, _DEPTH))


def named_in(place: object, prefix: Namespace, *, kind: Literal["store", "index"]) -> set[Namespace]:
    """The namespaces, also expired ones, that begin with ``prefix`` and of which a place's files hold anything."""
    start = encode_namespace(prefix)
    found = set[Namespace]()
    for path in files_of(place).databases:
        with _opened(path) as connection:
            for (table,) in connection.execute(_TABLES, (_NAMES[kind],)).fetchall():
                rows = connection.execute(
                    f"SELECT name FROM {table} WHERE name >= ? AND name < ?",  # noqa: S608 - a table of ours
                    (start, start + "\x7f"),
                )
                found.update(decode_namespace(name) for (name,) in rows)
    return found


def has_vectors(place: object) -> bool:
    """Whether a place's files also hold vectors."""
    for path in files_of(place).databases:
        with _opened(path) as connection:
            there = connection.execute(_TABLES, (_VECTORS,)).fetchone()
            if there and connection.execute(f"SELECT 1 FROM {_VECTORS} LIMIT 1").fetchone():  # noqa: S608
                return True
    return False


_VECTORS = "langmem_vector_namespaces"
_NAMES = {"store": "langmem_namespaces", "index": "langmem_*_namespaces"}
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ?"


def scrub(*places: object) -> None:
    """Rewrite the files without deleted data. Others wait meanwhile; the space of another copy is needed.

    Raises StoreUnavailable if others read or write for too long, or if files that Chroma has open cannot be removed, as
    on Windows: then some deleted data may still be there.
    """
    files = files_of(*places)
    for path in sorted(files.databases):
        _vacuum(path)
    for folder in sorted(files.folders):
        _vacuum(folder / _CHROMA)
        _remove_dropped(folder)


def _held(place: object, depth: int) -> Iterator[object]:
    """Yield one of the library's objects, and what it holds, down to a depth."""
    ours = any(kind.__module__.startswith(_OURS) for kind in type(place).__mro__)
    if depth == 0 or not ours or not hasattr(place, "__dict__"):
        return
    yield place
    if not isinstance(place, Database):
        for value in list(vars(place).values()):
            yield from _held(value, depth - 1)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_TIMEOUT, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise Place(str(path)).explained(error, _TIMEOUT) from error


def _vacuum(path: Path) -> None:
    with _opened(path) as connection:
        write_anew(connection, str(path), _TIMEOUT)


def _remove_dropped(folder: Path) -> None:
    """Remove the files of dropped collections: Chroma leaves them, with ids and vectors."""
    found = [path for path in folder.iterdir() if path.is_dir() and _is_segment(path.name)]
    with _opened(folder / _CHROMA) as connection:  # after the folders: a segment is recorded before its folder is made
        segments = {name for (name,) in connection.execute("SELECT id FROM segments")}
    for path in found:
        if path.name not in segments:
            _remove(path)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:  # as on Windows, where Chroma keeps it open until the process ends
        raise StoreUnavailable(
            f"{folder} cannot be removed ({error.strerror}): end all processes that have it open, including this one"
        ) from error


def _is_segment(name: str) -> bool:
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False
