"""A lock on a folder, which keeps other processes out of it."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from langmem_adapters.concurrency.locks import ForkSafeLock

_LOCK_FILE = "langmem.lock"
_GONE_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)


class _Lock(NamedTuple):
    connection: sqlite3.Connection
    opened: os.stat_result  # the file that it has open


def acquire_folder(folder: str) -> bool:
    """Claim a folder for this process; returns False if another process has it. The folder must exist.

    SQLite's locks are the operating system's: they end with the process, however it ends, and a forked child does
    not inherit them. Each claim that was granted is ended by one :func:`release_folder`. A claim of a folder that was
    removed or replaced is none of the folder that is there now.
    """
    with _lock.held():
        key, file = (os.getpid(), folder), Path(folder) / _LOCK_FILE
        if key in _locks and not is_same_file(file, _locks[key].opened):
            _locks.pop(key).connection.close()
        if key not in _locks:
            # No reference is dropped in a forked child, as closing a file there would end the parent's locks.
            connection = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                connection.close()
                if "locked" in str(error):
                    return False
                raise
            _locks[key] = _Lock(connection, file.stat())
        _claims[key] += 1
        return True


def release_folder(folder: str) -> None:
    """End one :func:`acquire_folder` of this process."""
    with _lock.held():
        key = (os.getpid(), folder)
        _claims[key] -= 1
        if not _claims[key] and key in _locks:
            _locks.pop(key).connection.close()


def is_same_file(file: Path, opened: os.stat_result) -> bool:
    """Whether a file is the one that was opened, as far as the operating system tells."""
    try:
        return os.path.samestat(file.stat(), opened)
    except OSError as error:
        return error.errno not in _GONE_ERRORS


_locks: dict[tuple[int, str], _Lock] = {}  # of the folders that a process has
_claims: Counter[tuple[int, str]] = Counter()
_lock = ForkSafeLock()
