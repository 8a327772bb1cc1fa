"""SQLite files: connections that survive threads and forks, transactions, migrations, errors in plain words."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langmem_adapters.concurrency import forks
from langmem_adapters.concurrency.breaker import Breaker
from langmem_adapters.concurrency.locks import ForkSafeLock, RecoverableLock, lock_of
from langmem_adapters.errors import ConfigurationError, SerializationError, StoreError, StoreUnavailable
from langmem_adapters.files.damage import removing_if_damaged
from langmem_adapters.files.locations import Connection, FileLocation, check_version, close_all
from langmem_adapters.files.sqlite_errors import SQLITE_ERRORS, SQLiteError, checked_integer, lacks_tables

_CREATE_TABLE = "CREATE TABLE IF NOT EXISTS langmem_schema (name TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_BEGIN_READ, _BEGIN_WRITE, _NO_BEGIN = "BEGIN", "BEGIN IMMEDIATE", ""
_MAX_WAIT_SECONDS = 5.0  # while other writers make progress
_WAL_LIMIT_BYTES = 32_000_000  # kept for the next writers; a long reader lets it grow beyond that


class Database:
    """One SQLite file in WAL mode, shared by threads and processes.

    Connections are pooled rather than tied to threads, because worker threads come and go: there are as many as
    were ever busy at once. They are closed before a fork; a child opens its own. Nothing is opened before first use.

    ``with database.writing() as connection, connection:`` ends the transaction in any case: an interrupt, as of a
    notebook's cell, may skip an ``__exit__`` written in Python, but not the connection's own, which is in C.

    Args:
        path: The file, or ":memory:" for one private connection.
        schema: Migration scripts; version n of the schema is made by the first n.
        name: Which schema this is. Several may share a file.
        synchronous: "normal" (a power cut may lose the last transactions, never consistency) or "full".
        timeout: Seconds to wait for another process's write.
        fails_fast: Wait for ``timeout`` at most, or longer while other writers make progress. After one wait in vain,
            calls fail at once until the file is free again, also those of others in this process that fail fast.
        disposable: The file's content can be rebuilt, so a damaged file may be removed.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        schema: Sequence[str],
        name: str,
        synchronous: str = "normal",
        timeout: float = 5.0,
        fails_fast: bool = False,
        disposable: bool = False,
    ) -> None:
        check_version()
        if not isinstance(path, str | os.PathLike):
            raise ConfigurationError(f"a file is named by a text or a path, not {type(path).__name__}")
        if not isinstance(timeout, int | float) or not timeout >= 0:
            raise ConfigurationError(f"timeout is a number of seconds, not {timeout!r:.50}")
        if str(synchronous).lower() not in {"normal", "full"}:
            raise ConfigurationError(f'synchronous is "normal" or "full", not {synchronous!r}')
        self.path: str = str(path)
        self._schema, self._name, self.disposable = schema, name, disposable
        self._synchronous, self._timeout = synchronous.lower(), timeout
        self.location: FileLocation = FileLocation(self.path)
        self._breaker = self._breaker_of_the_file() if fails_fast else None
        self._reset_pool()
        with _registry_lock.held():
            _databases.add(self)

    def _breaker_of_the_file(self) -> Breaker:
        """One breaker per file: a call that needs a store and an index in the same file waits for it once."""
        breaker = Breaker(self._probe_lock, is_down=lambda error: isinstance(error, StoreUnavailable), grace=0)
        with forks.no_fork, _registry_lock.held():
            return _breakers.setdefault(self.location.path, breaker)

    def _reset_pool(self) -> None:
        self._pid = os.getpid()
        idle = self._idle = list[Connection]()
        self._memory_lock = RecoverableLock(lambda: any(one.in_transaction for one in idle))  # of the only connection
        self._ready = False
        weakref.finalize(self, close_all, self._idle, self._pid)

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """Read one consistent state. Fetch rows whole: a cursor that a kept traceback holds would keep that state."""
        return _Transaction(self, _BEGIN_READ, self._breaker)

    def writing(self) -> contextlib.AbstractContextManager[Connection]:
        """Change all or nothing, as the only writer."""
        return _Transaction(self, _BEGIN_WRITE, self._breaker)

    def autocommit(self) -> contextlib.AbstractContextManager[Connection]:
        """Run statements that are transactions by themselves. With ``fails_fast``, they do not wait for writers."""
        return _Transaction(self, _NO_BEGIN, self._breaker)

    def clearing(self) -> contextlib.AbstractContextManager[None]:
        """Wrap the clearing of something: see :func:`~langmem_adapters.files.damage.removing_if_damaged`."""
        return removing_if_damaged(self.location, _close_idle, disposable=self.disposable)

    def fetch_all(self, select: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, which is a consistent read and needs no transaction around it."""
        if self.location.in_memory:  # there a transaction tells other threads that the connection is in use
            with self.reading() as connection, connection:
                return connection.execute(select, values).fetchall()
        if self._breaker is None:
            return self._fetch_all(select, values)
        return self._breaker.guard(partial(self._fetch_all, select, values), may_close=False)

    def close(self) -> None:
        """Close the idle connections. The next transaction opens a new one."""
        if self._pid == os.getpid():
            with forks.no_fork, self._memory_lock:
                close_all(self._idle, self._pid)
            self._ready = False  # until then the file may be replaced; one in memory is new

    def _fetch_all(self, select: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        connection = self._borrow()
        try:
            return connection.execute(select, values).fetchall()
        except (*SQLITE_ERRORS, UnicodeEncodeError) as error:
            raise self._to_store_error(error) from error
        finally:
            self._give_back(connection)

    def _probe_lock(self) -> None:
        """Be the only writer for a moment, which a locked file refuses."""
        with _Transaction(self, _BEGIN_WRITE, None):
            pass

    def _begin(self, connection: Connection, statement: str) -> None:
        """Begin a transaction. With ``fails_fast``, retry every moment, and wait only while other writers progress.

        SQLite itself retries after up to 0.1 s, which is too seldom among many writers.
        """
        if self._breaker is None:
            connection.execute(statement)
            return
        start = time.monotonic()
        deadline = start + self._timeout
        last_version = None  # of the file's content, as others have written it
        while True:
            try:
                connection.execute(statement)
            except sqlite3.OperationalError as error:  # noqa: PERF203 - each try may fail
                if "locked" not in str(error):
                    raise
                now = time.monotonic()
                (version,) = connection.execute("PRAGMA data_version").fetchone()
                if version != last_version:
                    deadline = min(now + self._timeout, start + _MAX_WAIT_SECONDS)
                    last_version = version
                if now > deadline:
                    raise
                time.sleep(random.uniform(0.0005, 0.002))  # noqa: S311 - so that two do not retry in step
            else:
                return

    def _end(self, connection: Connection, error: BaseException | None, begin_statement: str) -> None:
        if error is not None:
            self._undo(connection, error)
            return
        try:
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException as failure:
            self._undo(connection, failure)
            raise
        is_durable = begin_statement == _BEGIN_READ or self.location.is_current(connection)
        self._give_back(connection)
        if not is_durable:
            problem = "was removed or replaced in the middle of a write, which is lost"
            raise StoreUnavailable(f"{self.path} or its -wal or -shm {problem}")

    def _undo(self, connection: Connection, error: BaseException) -> None:
        """Roll back; if the error is SQLite's, raise it in plain words."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except SQLITE_ERRORS as failure:
            raise self._to_store_error(failure) from failure
        finally:
            self._give_back(connection)
        if isinstance(error, (*SQLITE_ERRORS, UnicodeEncodeError)):
            raise self._to_store_error(error) from error

    def _borrow(self) -> Connection:
        forks.begin_work()
        try:
            return self._take_connection()
        except BaseException:
            forks.end_work()
            raise

    def _take_connection(self) -> Connection:
        if self._pid != os.getpid():
            self._reset_pool()
        if self.location.in_memory:
            self._memory_lock.acquire()
            return self._idle[-1] if self._idle else self._open_connection()
        while True:
            try:
                connection = self._idle.pop()  # no lock: pop and append of a list need none
            except IndexError:
                return self._open_connection()
            if self._ready and self.location.is_current(connection):
                return connection
            # The file lacks tables, or was replaced or removed: nobody would see what is written to the old one.
            self.location.close_stale(connection)
            self._ready = False

    def _open_connection(self) -> Connection:
        try:
            connection = self._connect()
        except BaseException as error:
            if self.location.in_memory:
                self._memory_lock.release()
            if isinstance(error, SQLITE_ERRORS):
                raise self._to_store_error(error) from error
            raise
        if self.location.in_memory:
            self._idle.append(connection)  # it stays there, so that no interrupt loses its content
        return connection

    def _give_back(self, connection: Connection) -> None:
        if self.location.in_memory:
            self._memory_lock.release()
        else:
            self._idle.append(connection)
        forks.end_work()

    def _connect(self) -> Connection:
        connection = self.location.connect(self._timeout, _close_idle)
        try:
            if self.location.in_memory or not self._ready:
                with lock_of(("tables", self.location.path)).try_hold(self._timeout):  # SQLite lets many starve
                    self._prepare(connection)
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            connection.execute(f"PRAGMA fullfsync={self._synchronous == 'full':d}")  # macOS has a cache in the disk
            connection.execute(f"PRAGMA journal_size_limit={_WAL_LIMIT_BYTES}")
            if self._breaker is not None:
                connection.execute("PRAGMA busy_timeout=1")  # from here on, _begin does the waiting
            self.location.note_wal(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: Connection) -> None:
        connection.execute("PRAGMA page_size=8192")  # takes effect on a new file only
        self._enter_wal(connection)
        connection.execute(_CREATE_TABLE)
        if self._version(connection) < len(self._schema):
            connection.execute(_BEGIN_WRITE)
            done = self._version(connection)  # another process may have been first, even one of a newer version
            for version, script in enumerate(self._schema[done:], done + 1):
                connection.execute(script)
                connection.execute("INSERT OR REPLACE INTO langmem_schema VALUES (?, ?)", (self._name, version))
            connection.execute("COMMIT")
        if self._version(connection) > len(self._schema):
            raise StoreError(f"{self.path} was written by a newer version of langmem_adapters; upgrade to read it")
        self._ready = True

    def _version(self, connection: Connection) -> int:
        row = connection.execute("SELECT version FROM langmem_schema WHERE name = ?", (self._name,)).fetchone()
        return checked_integer(row[0]) if row else 0

    def _enter_wal(self, connection: Connection) -> None:
        """SQLite does not wait for other processes while it changes the journal mode, so this retries."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:  # noqa: PERF203 - each try may fail
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                return

    def _to_store_error(self, error: SQLiteError | UnicodeEncodeError) -> StoreError | SerializationError:
        if isinstance(error, UnicodeEncodeError):
            return SerializationError("an id or a key holds half of a surrogate pair, which cannot be stored")
        self._ready = self._ready and not lacks_tables(error)
        return self.location.to_store_error(error, self._timeout)


class _Transaction(contextlib.AbstractContextManager[Connection]):
    """Commits at its end, or rolls back if anything was raised.

    A generator would take three times as long, and an interrupt could come between its start and its block.
    """

    def __init__(self, database: Database, begin_statement: str, breaker: Breaker | None) -> None:
        self._database = database
        self._begin_statement = begin_statement
        self._breaker = breaker

    def __enter__(self) -> Connection:
        self._successes = self._breaker.before_call() if self._breaker else 0
        try:
            self._connection = connection = self._database._borrow()  # noqa: SLF001 - a part of it
            try:
                if self._begin_statement != _NO_BEGIN:
                    self._database._begin(connection, self._begin_statement)  # noqa: SLF001 - same
            except BaseException as error:
                self._database._undo(connection, error)  # noqa: SLF001 - same
                raise
        except BaseException as error:
            self._report(error)
            raise
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self._database._end(self._connection, error, self._begin_statement)  # noqa: SLF001 - same
        except BaseException as failure:
            self._report(failure)
            raise
        self._report(error)

    def _report(self, error: BaseException | None) -> None:
        """Tell the breaker. A locked file can still be read, so a successful read says nothing about the lock."""
        if self._breaker is not None:
            self._breaker.after_call(self._successes, error, may_close=self._begin_statement == _BEGIN_WRITE)


_registry_lock = ForkSafeLock()
_breakers: weakref.WeakValueDictionary[str, Breaker] = weakref.WeakValueDictionary()
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _close_idle() -> None:
    """Close unused connections: SQLite has all connections of a process share its locks on a file.

    A forked child would have copies of them, while the system copies no locks. Then the last one beside it to close the
    file would believe it was the last of all, and remove the -wal into which the child writes.
    """
    with _registry_lock.held():
        databases = [database for database in _databases if not database.location.in_memory]
    for database in databases:
        database.close()


forks.call_before_fork(_close_idle)
