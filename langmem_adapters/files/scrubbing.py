"""Remove what deletions leave in files: free pages, write-ahead logs, and folders of dropped collections.

A backend is a store or an index. The files behind it are found through what it holds: databases of
:class:`~langmem_adapters.files.database.Database`, and Chroma's folder.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from langmem_adapters.concurrency.locks import lock_of
from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.files.database import Database
from langmem_adapters.files.locations import FileLocation, vacuum_file
from langmem_adapters.files.sqlite_errors import SQLITE_ERRORS, is_damage, is_missing
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace

_MAX_DEPTH = 4  # from a vector index to its vectors to their database, and one to spare
_TIMEOUT_SECONDS = 5.0  # to wait for others
_CHROMA_FILE = "chroma.sqlite3"
_EXECUTE_SCRIPT = """
import json, pathlib, sqlite3, sys
path, seconds, statement = sys.argv[1:]
try:
    connection = sqlite3.connect(pathlib.Path(path), timeout=float(seconds), isolation_level=None)
    print(json.dumps({"rows": connection.execute(statement).fetchall()}))
except sqlite3.Error as error:
    print(json.dumps({"error": str(error)}))
"""
_SEGMENT_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # a folder of Chroma's, named by a UUID
_PACKAGE_PREFIX = "langmem_adapters."
_VECTOR_TABLE = "langmem_vector_namespaces"
_NAMESPACE_TABLES = {"store": "langmem_namespaces", "index": "langmem_*_namespaces"}
_FIND_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB ?"


class Files(NamedTuple):
    """The library's SQLite files, and Chroma's folders."""

    databases: frozenset[Path]
    folders: frozenset[Path]


def files_of(*backends: object) -> Files:
    """The files behind stores and indexes, as far as they exist, or may exist in a folder that may not be entered."""
    databases, folders = set[Path](), set[Path]()
    for backend in backends:
        for part in _library_objects(backend, _MAX_DEPTH):
            folder = vars(part).get("_folder")
            if isinstance(part, Database) and part.location.file is not None:
                databases.add(part.location.file)
            elif isinstance(folder, str) and folder:
                folders.add(Path(folder))
    return Files(
        frozenset(path for path in databases if not is_missing(str(path))),
        frozenset(path for path in folders if not is_missing(str(path / _CHROMA_FILE))),
    )


def can_list_namespaces(backend: object) -> bool:
    """Whether :func:`namespaces_in` knows all that is in a backend, because files of the library hold it."""
    parts = _library_objects(backend, _MAX_DEPTH)
    return any(isinstance(part, Database) and part.location.file is not None for part in parts)


def namespaces_in(backend: object, prefix: Namespace, *, kind: Literal["store", "index"]) -> set[Namespace]:
    """The namespaces, also expired ones, that begin with ``prefix`` and of which a backend's files hold anything."""
    start = encode_namespace(prefix)
    namespaces = set[Namespace]()
    for path in files_of(backend).databases:
        with _connect(path) as connection:
            for (table,) in connection.execute(_FIND_TABLES, (_NAMESPACE_TABLES[kind],)).fetchall():
                rows = connection.execute(
                    f"SELECT name FROM {table} WHERE name >= ? AND name < ?",  # noqa: S608 - a table of ours
                    (start, start + "\x7f"),
                )
                namespaces.update(decode_namespace(name) for (name,) in rows)
    return namespaces


def has_vectors(backend: object) -> bool:
    """Whether a backend's files also hold vectors."""
    for path in files_of(backend).databases:
        with _connect(path) as connection:
            table = connection.execute(_FIND_TABLES, (_VECTOR_TABLE,)).fetchone()
            if table and connection.execute(f"SELECT 1 FROM {_VECTOR_TABLE} LIMIT 1").fetchone():  # noqa: S608
                return True
    return False


def is_damaged(backend: object) -> bool:
    """Whether nothing in a Chroma folder of a backend can be read any more."""
    try:
        for folder in files_of(backend).folders:
            _execute_apart(folder / _CHROMA_FILE, "SELECT count(*) FROM collections")
    except StoreError as error:
        return is_damage(error)
    return False


def scrub(*backends: object) -> None:
    """Rewrite the files without deleted data. Others wait meanwhile; the space of another copy is needed.

    Raises StoreUnavailable if others read or write for too long, or if files that Chroma has open cannot be removed, as
    on Windows: then some deleted data may still be there.
    """
    files = files_of(*backends)
    for path in sorted(files.databases):
        _vacuum(path)
    for folder in sorted(files.folders):
        with lock_of(str(folder)).held():  # a write would wait only as long as Chroma does
            file = folder / _CHROMA_FILE
            vacuum_file(partial(_execute_apart, file), str(file), _TIMEOUT_SECONDS)
            _remove_dropped(folder)


def _library_objects(backend: object, depth: int) -> Iterator[object]:
    """Yield one of the library's objects, and what it holds, down to a depth."""
    is_own = any(kind.__module__.startswith(_PACKAGE_PREFIX) for kind in type(backend).__mro__)
    if depth == 0 or not is_own or not hasattr(backend, "__dict__"):
        return
    yield backend
    if not isinstance(backend, Database):
        for value in list(vars(backend).values()):
            yield from _library_objects(value, depth - 1)


@contextlib.contextmanager
def _connect(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_TIMEOUT_SECONDS, isolation_level=None)) as connection:
            yield connection
    except SQLITE_ERRORS as error:
        raise FileLocation(str(path)).to_store_error(error, _TIMEOUT_SECONDS) from error


def _vacuum(path: Path) -> None:
    with _connect(path) as connection:
        vacuum_file(lambda statement: connection.execute(statement).fetchall(), str(path), _TIMEOUT_SECONDS)


def _execute_apart(path: Path, statement: str) -> list[list[Any]]:
    """Execute a statement on a file that Chroma may have open, in a process of its own; returns the rows.

    Chroma has an SQLite of its own. Two of them in one process do not see each other's locks: a read beside a VACUUM
    made Chroma fail until the process ended, and damaged the file.
    """
    command = [sys.executable, "-I", "-c", _EXECUTE_SCRIPT, str(path), str(_TIMEOUT_SECONDS), statement]
    child = subprocess.run(  # noqa: S603 - this Python
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if child.returncode:
        reason = child.stderr.strip().rpartition("\n")[2] or f"exit code {child.returncode}"
        raise StoreError(f"{path} cannot be rewritten, as another process of {sys.executable} failed: {reason}")
    outcome = json.loads(child.stdout)
    if "error" in outcome:
        error = sqlite3.DatabaseError(outcome["error"])
        raise FileLocation(str(path)).to_store_error(error, _TIMEOUT_SECONDS) from error
    rows: list[list[Any]] = outcome["rows"]
    return rows


def _remove_dropped(folder: Path) -> None:
    """Remove the files of dropped collections: Chroma leaves them, with ids and vectors."""
    paths = [path for path in folder.iterdir() if path.is_dir() and _SEGMENT_PATTERN.fullmatch(path.name)]
    # After these: a segment is recorded before its folder is made.
    segments = {name for (name,) in _execute_apart(folder / _CHROMA_FILE, "SELECT id FROM segments")}
    for path in paths:
        if path.name not in segments:
            _remove(path)


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:  # as on Windows, where Chroma keeps it open until the process ends
        raise StoreUnavailable(
            f"{folder} cannot be removed ({error.strerror}): end all processes that have it open, including this one"
        ) from error
