"""A lock on a folder, which keeps other processes out of it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from langmem_adapters.concurrency.locks import ForkSafeLock

__all__ = ["hold", "let_go"]

_FILE = "langmem.lock"


def hold(folder: str) -> bool:
    """Claim a folder for this process; returns False if another process has it. The folder must exist.

    SQLite's locks are the operating system's: they end with the process, however it ends, and a forked child does
    not inherit them. Each ``hold`` that was granted is ended by one :func:`let_go`.
    """
    with _lock.held():
        key = (os.getpid(), folder)
        if key not in _held:
            # No reference is dropped in a forked child, as closing a file there would end the parent's locks.
            connection = sqlite3.connect(Path(folder) / _FILE, timeout=0, isolation_level=None, check_same_thread=False)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                connection.close()
                if "locked" in str(error):
                    return False
                raise
            _held[key] = (connection, 0)
        connection, count = _held[key]
        _held[key] = (connection, count + 1)
        return True


def let_go(folder: str) -> None:
    """End one :func:`hold` of this process."""
    with _lock.held():
        key = (os.getpid(), folder)
        connection, count = _held[key]
        if count > 1:
            _held[key] = (connection, count - 1)
        else:
            _held.pop(key)[0].close()


_held: dict[tuple[int, str], tuple[sqlite3.Connection, int]] = {}
_lock = ForkSafeLock()
