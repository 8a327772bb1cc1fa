"""Where an SQLite file is, and whether a connection still belongs to the file at that place.

Whoever has a removed or replaced file open keeps the old file, and would write into it for nobody. The same goes for
its -wal, and for its -shm, without which two processes know nothing of each other and write over each other's changes.
SQLite itself removes the -wal from under a process which has read or copied the file by other means: closing it drops
the process's locks, so the next other process to close the file believes it is the last one.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from langmem_adapters.concurrency import forks, pauses
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError, StoreError, StoreUnavailable
from langmem_adapters.files.sqlite_errors import SQLITE_ERRORS, SQLiteError, to_store_error

FILE_ENCODING = sys.getfilesystemencoding()
"""In which this process writes names of files: UTF-8, except in some locales."""

IN_MEMORY = ":memory:"
"""SQLite's path for no file."""

FILE_SUFFIXES = ("-wal", "-shm", "")
"""What follows a database's path in the names of its files; the file itself is the last to be removed."""

_RETRY_SECONDS = 0.01
_MIN_VERSION = (3, 24)  # the first with ON CONFLICT DO UPDATE
_TRUST_SECONDS = 1.0  # how long a folder may answer for its files: over one of them another may be mounted
_SETTLED_SECONDS = 3.0  # the coarsest clocks of file systems go in steps of two seconds
_listing_lock = ForkSafeLock()
_Identity: TypeAlias = "tuple[int, int] | None"
_State: TypeAlias = "tuple[int, int, int, int] | None"


class Connection(sqlite3.Connection):
    """A connection to a file that may be removed or replaced."""

    file: _Identity = None
    wal: _Identity = None
    shm: _Identity = None
    wal_path: str = ""
    shm_path: str = ""
    folder: _State = None  # while all three were there
    folder_until: float = 0.0  # when it is noted anew, as time.monotonic counts
    is_open: bool = True
    closed_by: int = 0  # the process that has begun to close it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cache: dict[str, Any] = {}  # what its users know of this file, which may be outdated

    def close(self) -> None:
        """Close it, and note that: a traceback may keep the object for long."""
        try:
            self.closed_by = os.getpid()
            super().close()
        finally:
            self.is_open = False


def absolute_path(path: Path) -> str:
    """The absolute path; without os.getcwd, which detectors of blocking calls in event loops report."""
    try:
        absolute = str(path if path.is_absolute() else Path(os.fsdecode(os.getcwdb()), path))  # noqa: PTH109 - same
        os.fsencode(absolute)
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"{str(path)!a} cannot be the name of a file: names are written in {FILE_ENCODING} here; start Python with"
            " -X utf8 to have them in UTF-8"
        ) from error
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"{path} cannot be found, as the working directory was removed: give an absolute path"
        ) from error
    return absolute


def path_to_show(path: str) -> str:
    """A path as people would write it: from the working directory, where it lies within that."""
    try:
        return str(Path(path).relative_to(os.fsdecode(os.getcwdb())))  # noqa: PTH109 - as above
    except (ValueError, OSError):  # it lies elsewhere, or there is no working directory
        return path


def expand_home(path: str | os.PathLike[str]) -> Path:
    """The path, with ``~`` replaced by the home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(
            f"{path} begins with ~, and that home directory is not known here: give an absolute path"
        ) from error


def check_version() -> None:
    """Raise ConfigurationError if SQLite is too old."""
    if sqlite3.sqlite_version_info < _MIN_VERSION:
        needed, has = ".".join(map(str, _MIN_VERSION)), sqlite3.sqlite_version
        raise ConfigurationError(f"SQLite {needed} or newer is needed, and this Python has {has}: use another Python")


_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_inherited_connections: list[list[Connection]] = []  # a parent's connections, kept from being closed by a child


class FileLocation:
    """A path, which stays the same when the process changes its folder; or :data:`IN_MEMORY`."""

    def __init__(self, path: str) -> None:
        self._given_path = path
        self.in_memory: bool = path == IN_MEMORY
        self.path: str = path if self.in_memory else absolute_path(Path(path))
        self._folder = os.path.dirname(self.path)  # noqa: PTH120 - a Path takes three times as long to stat
        self.is_damaged: bool = False  # as an index has found, until the file is replaced or removed
        self._seen_folder: tuple[_State, float] = (None, 0.0)  # and since when, as time.monotonic counts
        self._old_wal: _Identity = None  # of a file that was replaced
        self._latest_connection: Callable[[], Connection | None] = lambda: None  # may be in use

    @property
    def file(self) -> Path | None:
        """The file itself, behind any link, wherever the process works now; None in memory."""
        return None if self.in_memory else Path(os.path.realpath(self.path))

    def connect(self, timeout: float, close_idle: Callable[[], object]) -> Connection:
        """Open the file at this place; refuse if its -wal does not belong to it."""
        self._check_wal(close_idle)
        while True:
            before = _identity(self.path)
            connection = sqlite3.connect(
                self.path,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=Connection,
            )
            connection.file = _identity(self.path)
            if before in {None, connection.file}:
                with _listing_lock.held():
                    _open_connections.add(connection)
                return connection
            connection.close()  # replaced just now: which file was opened is unknown

    def _check_wal(self, close_idle: Callable[[], object]) -> None:
        """Raise StoreUnavailable if the -wal at this place is not that of the file."""
        latest = self._latest_connection()
        if latest is not None:
            self.is_current(latest)  # notes the -wal of the old file, if it was replaced
        if self._wal_was_removed():
            close_idle()
            if self._wal_was_removed():
                raise StoreUnavailable(
                    f"the -wal or -shm of {self.path} was removed while it was open, and others of this process still"
                    " use it: try again when they are done, or end the process"
                )
        if self._old_wal is not None and _identity(self.path) and _identity(f"{self.file}-wal") == self._old_wal:
            raise StoreUnavailable(
                f"{self.path} was replaced while it was open, and {self.file}-wal holds changes of the old file, which"
                " would damage the new one: end whatever uses it, remove its -wal and -shm, and put it there again"
            )
        self._old_wal = None

    def note_wal(self, connection: Connection) -> None:
        """Remember the identities of the -wal and the -shm, once the file was read."""
        file = self.file  # resolving a link takes longer than the rest of is_current
        connection.wal_path, connection.shm_path = f"{file}-wal", f"{file}-shm"
        connection.shm = _identity(connection.shm_path)
        connection.wal = _identity(connection.wal_path)  # last: with it, other threads compare both
        self._latest_connection = weakref.ref(connection)

    def is_current(self, connection: Connection) -> bool:
        """Whether a connection belongs to the file at this place, and to the -wal and the -shm beside it.

        Whoever creates, removes or renames an entry changes its folder: as long as that is the same, so are all three.
        """
        if self.in_memory:
            return True
        now = time.monotonic()
        is_due = now >= connection.folder_until
        if not is_due and connection.folder is not None and connection.folder == _state(self._folder):
            return True
        folder = None
        if is_due:
            connection.folder_until = now + _TRUST_SECONDS
            folder = self._settled_folder(now)  # before the files, which may be replaced meanwhile
        is_current = self._has_its_files(connection)
        connection.folder = folder if is_current else None
        return is_current

    def _settled_folder(self, now: float) -> _State:
        """The state of the folder; None where the next change of an entry might not change it.

        Its own times do not tell for how long it has been the same: a server's clock may be behind this machine's.
        """
        if os.name == "nt" or os.path.islink(self.path):  # noqa: PTH114 - a link leads to another folder
            return None
        state = _state(self._folder)
        if state != self._seen_folder[0]:
            self._seen_folder = state, time.monotonic()
        return state if now - self._seen_folder[1] > _SETTLED_SECONDS else None

    def _has_its_files(self, connection: Connection) -> bool:
        if connection.file is None or connection.file != _identity(self.path):
            self._old_wal, self.is_damaged = connection.wal, False
            return False
        if connection.wal is not None and connection.wal != _identity(connection.wal_path):
            return False
        return connection.shm is None or connection.shm == _identity(connection.shm_path)

    def _wal_was_removed(self) -> bool:
        """Whether this process has the file open with another -wal or -shm: a new connection would share its locks."""
        if self.in_memory:
            return False
        while True:
            with _listing_lock.held():  # before the identities: a new connection may have a new -wal
                connections = [each for each in _open_connections if each.wal is not None]
            file, *logs = map(_identity, (self.path, f"{self.file}-wal", f"{self.file}-shm"))
            stale = [
                each for each in connections if each.is_open and each.file == file and [each.wal, each.shm] != logs
            ]
            closing_pids = {each.closed_by for each in stale}
            if 0 in closing_pids:  # it is not being closed
                return True
            if os.getpid() not in closing_pids:
                return False
            pauses.sleep(_RETRY_SECONDS)  # closing the last one removes the -wal, and then releases its locks

    def to_store_error(self, error: SQLiteError, seconds: float) -> StoreError:
        """An error of SQLite in plain words; ``seconds`` is how long other writers were waited for."""
        return to_store_error(error, self.path, self._given_path, seconds)

    def close_stale(self, connection: Connection) -> None:
        """Close a connection to a file that is no longer at this place."""
        if _identity(self.path) is None:
            # It may have been renamed: SQLite itself would leave the newest changes in a log of the old name.
            with suppress(*SQLITE_ERRORS):
                connection.execute("PRAGMA wal_checkpoint")
        connection.close()


def close_all(connections: list[Connection], pid: int) -> None:
    """Close unused connections that the process of this id opened."""
    if pid != os.getpid():  # SQLite forbids using or closing a connection on the other side of a fork
        _inherited_connections.append(connections)
        return
    with forks.no_fork, suppress(IndexError):  # another thread may borrow the last one meanwhile
        while connections:
            connections.pop().close()


def file_state(location: FileLocation) -> _State:
    """Which file is there, and since when: the inode of a removed file may be reused at once."""
    return _state(location.path)


def vacuum_file(execute: Callable[[str], Sequence[Sequence[Any]]], path: str, seconds: float = 5.0) -> None:
    """Rewrite a file without deleted data, and empty its log. Raises StoreUnavailable if it is read all that time.

    SQLite itself waits for readers, but not for another process that is moving the log into the file.
    """
    execute("SELECT 1 FROM sqlite_master LIMIT 1")  # of damaged names, VACUUM would say that the file cannot be opened
    execute("VACUUM")
    deadline = time.monotonic() + seconds
    while execute("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
        if time.monotonic() >= deadline:
            raise StoreUnavailable(
                f"{path} was read for {seconds:g} s without a pause, so its -wal could not be emptied"
            )
        pauses.sleep(_RETRY_SECONDS)


def _identity(path: str) -> _Identity:
    try:
        status = os.stat(path)  # noqa: PTH116 - three times as fast as Path.stat
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _state(path: str) -> _State:
    try:
        status = os.stat(path)  # noqa: PTH116 - same
    except OSError:
        return None
    # Some file systems, as exFAT, note in a folder's mtime alone that an entry was removed.
    return status.st_dev, status.st_ino, status.st_ctime_ns, status.st_mtime_ns
