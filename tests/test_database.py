"""Transactions on a file: whatever ends them, nothing is half done, and the connection is there for the next."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from langmem_adapters.database import Database
from langmem_adapters.errors import SerializationError, StoreError, StoreUnavailable

_SCHEMA = ["CREATE TABLE t (x TEXT UNIQUE)"]


@pytest.fixture(params=["file", "hurried", "memory"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    path = ":memory:" if request.param == "memory" else tmp_path / "t.db"
    made = Database(path, schema=_SCHEMA, name="t", timeout=0.05, fails_fast=request.param == "hurried")
    yield made
    made.close()


def rows(database: Database) -> list[str]:
    with database.reading() as connection:
        return [x for (x,) in connection.execute("SELECT x FROM t ORDER BY x")]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_what_is_raised_inside_undoes_all_and_is_raised(database: Database, error: type[BaseException]) -> None:
    raised = error("this one")

    def work() -> None:
        with database.writing() as connection:
            connection.execute("INSERT INTO t VALUES ('a')")
            raise raised

    with pytest.raises(error) as kept:  # as a notebook keeps the traceback
        work()
    assert kept.value is raised
    assert rows(database) == []
    with database.writing() as connection:
        connection.execute("INSERT INTO t VALUES ('b')")
    assert rows(database) == ["b"]
    assert len(database._idle) == 1


def test_errors_of_sqlite_are_said_in_plain_words(database: Database) -> None:
    with pytest.raises(StoreError, match="UNIQUE") as refused, database.writing() as connection:
        connection.executemany("INSERT INTO t VALUES (?)", [("a",), ("a",)])
    assert isinstance(refused.value.__cause__, sqlite3.IntegrityError)
    with pytest.raises(SerializationError, match="half of a character"), database.writing() as connection:
        connection.execute("INSERT INTO t VALUES (?)", ("\ud800",))
    with pytest.raises(StoreError, match="no such table"):
        database.look("SELECT * FROM another", ())
    assert database.look("SELECT count(*) FROM t", ()) == [(0,)]
    assert len(database._idle) == 1


def test_a_commit_that_fails_leaves_nothing(database: Database) -> None:
    with database.writing() as connection:
        connection.execute("CREATE TABLE child (x REFERENCES t(x) DEFERRABLE INITIALLY DEFERRED)")
    with database.reading() as connection:
        pass
    connection.execute("PRAGMA foreign_keys=ON")
    with pytest.raises(StoreError, match="FOREIGN KEY"), database.writing() as again:
        again.execute("INSERT INTO child VALUES ('nobody')")
    assert again is connection
    assert not connection.in_transaction
    assert database.look("SELECT count(*) FROM child", ()) == [(0,)]
    assert len(database._idle) == 1


def test_a_transaction_that_cannot_begin_gives_its_connection_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t", timeout=0.05)
    assert rows(database) == []
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="locked"), database.writing():
                pytest.fail("nobody may write")
            assert len(database._idle) == 1
    with database.writing() as connection:
        connection.execute("INSERT INTO t VALUES ('a')")
    assert rows(database) == ["a"]
    database.close()


def test_who_is_in_a_hurry_waits_for_a_writer_who_gets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t", timeout=60, fails_fast=True)
    assert rows(database) == []
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO t VALUES ('a')")
        monkeypatch.setattr(time, "sleep", lambda _: other.execute("COMMIT"))  # in the first pause
        with database.writing() as connection:
            connection.execute("INSERT INTO t VALUES ('b')")
    assert rows(database) == ["a", "b"]
    database.close()


def test_a_file_that_cannot_be_opened_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(":memory:", schema=["nonsense"], name="t")
    for _ in range(2):  # the second does not wait for the first
        with pytest.raises(StoreError, match="syntax error"), database.writing():
            pytest.fail("there is no table")
    monkeypatch.setattr(database, "_schema", tuple(_SCHEMA))
    assert rows(database) == []
    absent = Database(tmp_path / "none" / "t.db", schema=_SCHEMA, name="t")
    with pytest.raises(StoreUnavailable, match="no folder"):
        absent.look("SELECT 1", ())


def test_as_many_connections_as_are_busy_at_once(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    with database.reading() as one:
        with database.reading() as two:
            assert one is not two
        with database.reading() as three:
            assert three is two
    assert len(database._idle) == 2
    with database.reading() as busy:
        database.close()
        assert busy.execute("SELECT 1").fetchone() == (1,)
    assert rows(database) == []
    database.close()
    assert database._idle == []


def test_the_last_idle_connection_may_be_borrowed_while_all_are_closed() -> None:
    class Borrowed(list[sqlite3.Connection]):
        def pop(self, *_: object) -> sqlite3.Connection:
            raise IndexError  # somebody was quicker

    database = Database(":memory:", schema=_SCHEMA, name="t")
    assert rows(database) == []
    (connection,) = database._idle
    database._idle = Borrowed([connection])
    database.close()
    assert connection.execute("SELECT 1").fetchone() == (1,)
    connection.close()


def test_threads_share_connections_and_lose_none_of_them(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t", timeout=30)
    start = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        start.wait()
        try:
            for n in range(40):
                with database.writing() as connection:
                    connection.execute("INSERT INTO t VALUES (?)", (f"{number} {n}",))
                if n % 10 == number:
                    database.close()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(rows(database)) == 320
    assert 1 <= len(database._idle) <= 9
    database.close()
