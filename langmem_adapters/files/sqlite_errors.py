"""SQLite's errors in plain words."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import TypeAlias

from langmem_adapters.errors import StoreError, StoreUnavailable

SQLiteError: TypeAlias = "sqlite3.Error | UnicodeDecodeError"
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""The latter comes from Python, in place of an error whose message quotes a damaged name."""

_UNREAD_MESSAGE = "malformed database schema"
"""Python 3.10 leaves such a message out."""

_NEEDED_DESCRIPTORS = 4  # that SQLite opens at once: the file, its -wal, its -shm, and one to spare
_DAMAGE_SIGNS = (
    *("malformed", "not a database", "unsupported file format"),
    "too big",  # in SQLite up to 3.31
    *("Could not decode", "constraint failed"),  # a text that is none any more, a value that there cannot be
)
_DAMAGED_NAME_SIGNS = ("no such ", "already exists")  # of a table whose name or version was damaged into another one
_EXPLANATIONS = (
    ("is full", " is on a disk that is full: make room there"),
    ("readonly", " is read-only: give this process the right to write to it and its folder"),
    ("not a database", " is not an SQLite database"),
    ("values were supplied", " was written by a newer version of langmem_adapters; upgrade to write to it"),
    ("Could not decode", " holds a damaged text"),
    ("json_each", ": the SQLite of this Python has no JSON functions: use a Python with SQLite 3.38 or newer"),
    ("disk I/O", ": disk I/O error: see whether its disk is full or fails, or its -wal was removed while it was open"),
    ("locking protocol", " cannot be locked, as on some network file systems: put it on a disk of this machine"),
)


def sqlite_message(error: BaseException | None) -> str:
    """What SQLite says, in one line, whatever it quotes; of a damaged value, it quotes all of it."""
    text = error.object.decode("utf-8", "replace") if isinstance(error, UnicodeDecodeError) else str(error)
    text = text.partition(" with text ")[0] or _UNREAD_MESSAGE
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def to_store_error(error: SQLiteError, path: str, shown_path: str, seconds: float) -> StoreError:
    """An error of SQLite in plain words; ``seconds`` is how long other writers were waited for."""
    text = sqlite_message(error)
    if "locked" in text or "busy" in text:
        return StoreUnavailable(f"{shown_path} was locked by another writer for {seconds:g} s")
    if "unable to open" in text:
        return StoreUnavailable(f"{shown_path} {_why_not_opened(path)}")
    explanation = next((sentence for words, sentence in _EXPLANATIONS if words in text), f": {text}")
    return StoreError(f"{shown_path}{explanation}")


def checked_integer(value: object) -> int:
    """A value of a column of integers, in which SQLite keeps whatever is no number as it is."""
    if not isinstance(value, int):
        raise sqlite3.DatabaseError("database disk image is malformed")  # as where it sees damage itself
    return value


def lacks_tables(error: SQLiteError) -> bool:
    """Whether SQLite says that tables or columns are missing, as where an older backup was restored."""
    return any(sign in sqlite_message(error) for sign in ("no such ", "values were supplied"))


def is_damage(error: StoreError) -> bool:
    """Whether SQLite says of a file that it is damaged."""
    return any(sign in sqlite_message(error.__cause__) for sign in (*_DAMAGE_SIGNS, *_DAMAGED_NAME_SIGNS))


def _why_not_opened(path: str) -> str:
    """Say why SQLite could not open a file, since it does not say so itself."""
    folder = Path(path).parent
    descriptors: list[int] = []
    try:
        while len(descriptors) < _NEEDED_DESCRIPTORS:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            return "cannot be opened, as too many files are open: raise the limit (ulimit -n), or close stores"
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    if is_missing(f"{folder}/"):
        return f"cannot be made: {folder} is no folder"
    if not _has_access(folder, os.W_OK):
        if is_missing(path):
            return f"cannot be made: {folder} is read-only"
        if _has_access(path, os.R_OK):  # SQLite makes the -wal and -shm beside it even for reading
            return f"cannot be opened: {folder} is read-only"
    return "is not a file that can be opened"


def _has_access(path: str | Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def is_missing(path: str) -> bool:
    """Whether nothing is there; False if that cannot be seen, as in a folder that may not be entered."""
    try:
        os.stat(path)  # noqa: PTH116 - Path's answer for a folder that may not be entered depends on Python's version
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # it may be there, such as on a disk or a server that does not answer
        pass
    return False
