"""A file that holds nothing but indexes, and is damaged: what was in it is made anew from the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from langmem_adapters.database import Database
from langmem_adapters.errors import StoreError

__all__ = ["clearing"]

_DAMAGED = ("malformed", "not a database")


@contextmanager
def clearing(database: Database, *, disposable: bool) -> Iterator[None]:
    """Around what clears an index: where its file is damaged and ``disposable``, the file goes, and it is cleared."""
    try:
        yield
    except StoreError as error:
        if not disposable or not any(sign in str(error.__cause__) for sign in _DAMAGED):
            raise
        database.close()
        for end in ("-wal", "-shm", ""):
            Path(f"{database.place.file}{end}").unlink(missing_ok=True)
