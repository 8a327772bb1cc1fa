"""What the SQLite store can report of its file: whether it opens, what is in it, and what is wrong with it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.files.database import Database
from langmem_adapters.files.locations import FILE_SUFFIXES
from langmem_adapters.files.sqlite_errors import is_missing, sqlite_message
from langmem_adapters.inspection import Finding, Health, KindStats, StoreStats, health_of
from langmem_adapters.keys import decode_namespace
from langmem_adapters.stores.sqlite_namespaces import UNCOUNTED_ENTRIES

_MIN_FREE_BYTES = 1 << 30  # with less, the disk is nearly full
_MAX_WAL_BYTES = 256 << 20
_MAX_FREE_SHARE = 0.25  # share of the file
_MAX_FLAWS = 3


def health(database: Database) -> Health:
    """Open the file, if there is one, and read from it."""

    def read() -> None:
        file = database.location.file
        if file is not None and is_missing(str(file)):
            raise StoreUnavailable(f"there is no file {database.path} yet")
        with database.reading() as connection, connection:
            connection.execute("SELECT number FROM langmem_namespaces LIMIT 1").fetchone()

    return health_of(_address(database), read)


def stats(database: Database, now: float) -> StoreStats:
    """Count in one read; expired namespaces do not count."""
    with database.reading() as connection, connection:
        rows = connection.execute(
            f"SELECT substr(name, 1, instr(name, '/')), COUNT(*), COUNT(expires_at), SUM(total + {UNCOUNTED_ENTRIES})"  # noqa: S608
            " FROM langmem_namespaces"
            " WHERE expires_at IS NULL OR expires_at > ? GROUP BY 1 ORDER BY 1",
            (now,),
        ).fetchall()
    kinds = {"".join(decode_namespace(start)): KindStats(*counts) for start, *counts in rows}
    return StoreStats(_address(database), kinds, size=sum(_file_sizes(database).values()))


def findings(database: Database) -> Iterator[Finding]:
    """Check the file's integrity, its empty space, its write-ahead log and the disk."""
    flaws, pages, free_pages = _check_structure(database)
    if flaws == ["ok"]:
        yield Finding("ok", "file", "its structure is sound")
    else:
        remedy = "stop all writers, copy the file, and restore a backup, or save the rest with sqlite3's .recover"
        yield Finding("problem", "file", f"it is damaged: {'; '.join(flaws)}", remedy)
    if free_pages > _MAX_FREE_SHARE * pages:
        yield Finding("note", "file", f"{free_pages / pages:.0%} of it is empty", "give the space back with vacuum")
    sizes = _file_sizes(database)
    if sizes.get("-wal", 0) > _MAX_WAL_BYTES:
        message = f"its write-ahead log has {sizes['-wal']:,} bytes, as a process keeps a read open"
        yield Finding("note", "file", message, "close the reader that holds it open")
    if sizes and database.location.file:
        yield _disk_space(database.location.file.parent, sizes[""])


def _check_structure(database: Database) -> tuple[list[str], int, int]:
    """The result of SQLite's own check, the number of pages, and how many of them are empty."""
    try:
        with database.reading() as connection, connection:
            flaws = [row[0] for row in connection.execute(f"PRAGMA quick_check({_MAX_FLAWS})").fetchall()]
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (free_pages,) = connection.execute("PRAGMA freelist_count").fetchone()
    except StoreUnavailable:
        raise  # locked, or gone
    except StoreError as error:  # too damaged to be checked
        return [sqlite_message(error.__cause__)], 0, 0
    return flaws, pages, free_pages


def _disk_space(folder: Path, size: int) -> Finding:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < min(_MIN_FREE_BYTES, max(size, _MIN_FREE_BYTES // 8)):
        return Finding("problem", "disk", f"{free_bytes:,} bytes are free", "make room, before writes fail")
    if free_bytes < size:
        return Finding("note", "disk", f"{free_bytes:,} bytes are free, too few for vacuum", "make room before vacuum")
    return Finding("ok", "disk", f"{free_bytes:,} bytes are free")


def _file_sizes(database: Database) -> dict[str, int]:
    """The size of the file and of those that SQLite keeps beside it, by suffix; empty in memory."""
    file = database.location.file
    if file is None:
        return {}
    paths = {suffix: Path(f"{file}{suffix}") for suffix in FILE_SUFFIXES}
    return {suffix: path.stat().st_size for suffix, path in paths.items() if path.exists()}


def _address(database: Database) -> str:
    return f"sqlite:///{database.path}"
