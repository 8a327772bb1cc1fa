"""A lock on a folder, which keeps other processes out of it."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path

from langmem_adapters.concurrency.locks import ForkSafeLock

_LOCK_FILE = "langmem.lock"


def acquire_folder(folder: str) -> bool:
    """Claim a folder for this process; returns False if another process has it. The folder must exist.

    SQLite's locks are the operating system's: they end with the process, however it ends, and a forked child does
    not inherit them. Each claim that was granted is ended by one :func:`release_folder`.
    """
    with _lock.held():
        key = (os.getpid(), folder)
        if key not in _connections:
            # No reference is dropped in a forked child, as closing a file there would end the parent's locks.
            file = Path(folder) / _LOCK_FILE
            connection = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                connection.close()
                if "locked" in str(error):
                    return False
                raise
            _connections[key] = connection
        _claims[key] += 1
        return True


def release_folder(folder: str) -> None:
    """End one :func:`acquire_folder` of this process."""
    with _lock.held():
        key = (os.getpid(), folder)
        _claims[key] -= 1
        if not _claims[key]:
            _connections.pop(key).close()


_connections: dict[tuple[int, str], sqlite3.Connection] = {}  # of the folders that a process has
_claims: Counter[tuple[int, str]] = Counter()
_lock = ForkSafeLock()
