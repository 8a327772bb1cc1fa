"""Transactions on a file: whatever ends them, nothing is half done, and the connection is there for the next."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from langmem_adapters.concurrency import forks, pauses
from langmem_adapters.errors import ConfigurationError, SerializationError, StoreError, StoreUnavailable
from langmem_adapters.files import database as files
from langmem_adapters.files import locations
from langmem_adapters.files.damage import removing_if_damaged
from langmem_adapters.files.database import Database
from langmem_adapters.files.locations import Connection, FileLocation
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.stores import open_store, shared_store
from langmem_adapters.stores.sqlite import SQLiteStore

_SCHEMA = ["CREATE TABLE t (x TEXT UNIQUE)"]
_NOTICES_LOST_LOCKS = sqlite3.sqlite_version_info >= (3, 51)  # so that nobody is taken for the last one


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
    with pytest.raises(SerializationError, match="half of a surrogate pair"), database.writing() as connection:
        connection.execute("INSERT INTO t VALUES (?)", ("\ud800",))
    with pytest.raises(StoreError, match="no such table"):
        database.fetch_all("SELECT * FROM another", ())
    assert database.fetch_all("SELECT count(*) FROM t", ()) == [(0,)]
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
    assert database.fetch_all("SELECT count(*) FROM child", ()) == [(0,)]
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


@pytest.mark.parametrize(
    ("writes", "waited"),
    [(8, 3.2), (99, 5.2), (0, 1.2)],  # they end, they go on for too long, they do not get on
)
def test_who_is_in_a_hurry_waits_while_others_get_on_but_not_for_ever(
    writes: int, waited: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t", timeout=1, fails_fast=True)
    assert rows(database) == []
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:

        class Time:
            now, left = 0.0, writes

            def monotonic(self) -> float:
                return self.now

            def sleep(self, _: float) -> None:
                self.now += 0.4
                if self.left:
                    self.left -= 1
                    other.execute("INSERT INTO t VALUES (?)", (self.left,))
                    other.execute("COMMIT")
                    if self.left:
                        other.execute("BEGIN IMMEDIATE")

        others = Time()
        monkeypatch.setattr(files, "time", others)
        other.execute("BEGIN IMMEDIATE")
        with nullcontext() if writes == 8 else pytest.raises(StoreUnavailable), database.writing() as connection:
            connection.execute("INSERT INTO t VALUES ('b')")
        assert others.now == pytest.approx(waited)
    database.close()


def test_a_file_that_cannot_be_opened_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(":memory:", schema=["nonsense"], name="t")
    for _ in range(2):  # the second, on another thread, does not wait for the first
        with ThreadPoolExecutor(1) as pool, pytest.raises(StoreError, match="syntax error"):
            pool.submit(rows, database).result(10)
    monkeypatch.setattr(database, "_schema", _SCHEMA)
    assert rows(database) == []
    absent = Database(tmp_path / "none" / "t.db", schema=_SCHEMA, name="t")
    with pytest.raises(StoreUnavailable, match="no folder"):
        absent.fetch_all("SELECT 1", ())
    assert threading.get_ident() not in forks._work_depths


def test_in_memory_one_waits_for_the_other() -> None:
    database = Database(":memory:", schema=_SCHEMA, name="t")
    with ThreadPoolExecutor(1) as pool:
        with database.writing() as connection:
            connection.execute("INSERT INTO t VALUES ('a')")
            seen = pool.submit(rows, database)
            assert not wait([seen], 0.1).done
        assert seen.result(10) == ["a"]


def test_j1_a_long_read_in_memory_is_a_use_that_others_wait_for() -> None:
    database = Database(":memory:", schema=_SCHEMA, name="t")
    with database.reading() as connection:
        connection.create_function("is_in_use", 0, database._memory_lock._is_in_use)
    assert database.fetch_all("SELECT is_in_use()", ()) == [(True,)]
    assert not database._memory_lock._is_in_use()


def test_who_opens_a_file_that_is_up_to_date_waits_for_no_writer(tmp_path: Path) -> None:
    first, second = (Database(tmp_path / "t.db", schema=_SCHEMA, name="t", timeout=0) for _ in range(2))
    assert rows(first) == []
    with first.writing():
        assert rows(second) == []
    first.close()
    second.close()


def test_the_tables_of_a_file_are_made_by_one_thread_at_a_time(tmp_path: Path) -> None:
    """SQLite retries so seldom that of a hundred first calls at once some would give up."""
    begun = list[int]()
    all_begin = threading.Barrier(8)

    class Watched(Database):
        def _prepare(self, connection: Connection) -> None:
            begun.append(len(begun))
            time.sleep(0.02)  # in which others would begin, too
            super()._prepare(connection)
            assert begun.pop() == 0

    def first_call(_: int) -> list[str]:
        all_begin.wait()
        return rows(Watched(tmp_path / "t.db", schema=_SCHEMA, name="t", fails_fast=True))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(first_call, range(8))) == [[]] * 8


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
    class Borrowed(list[Connection]):
        def pop(self, *_: object) -> Connection:
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

    def work(number: int) -> None:
        start.wait()
        for n in range(40):
            with database.writing() as connection:
                connection.execute("INSERT INTO t VALUES (?)", (f"{number} {n}",))
            if n % 10 == number:
                database.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(rows(database)) == 320
    assert 1 <= len(database._idle) <= 9
    database.close()


needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no file that is open")


def add(database: Database, text: str) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO t VALUES (?)", (text,))


def remove(path: Path, *endings: str) -> None:
    for ending in endings:
        Path(f"{path}{ending}").unlink()


def let_settle(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on a look at the folder does for its files, until something in there changes."""
    monkeypatch.setattr(locations, "_SETTLED_SECONDS", -1.0)
    folder = Path(database.location.path).parent
    while time.time_ns() - folder.stat().st_ctime_ns <= 20_000_000:  # more than a tick of Linux' clock
        pass
    for connection in database._idle:
        connection.folder_until = 0.0
        assert database.location.is_current(connection)
        assert connection.folder is not None


@pytest.fixture(params=["patient", "hurried", pytest.param("settled", marks=needs_unix)])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t", fails_fast=request.param == "hurried")
    with database.reading(), database.reading():  # two connections
        pass
    add(database, "old")
    if request.param == "settled":
        let_settle(database, monkeypatch)
    yield database
    database.close()


def as_others_see_it(path: Path) -> list[str]:
    fresh = Database(path, schema=_SCHEMA, name="t")
    found = rows(fresh)
    fresh.close()
    return found


@needs_unix
def test_one_look_at_a_folder_does_while_nothing_changes_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    add(database, "a")
    looks: list[str] = []
    stat, now = os.stat, time.monotonic()

    def noted_stat(path: str) -> os.stat_result:
        looks.append(Path(path).name)
        return stat(path)

    def looks_of_a_read() -> list[str]:
        looks.clear()
        monkeypatch.setattr(os, "stat", noted_stat)
        assert rows(database) == ["a"]
        monkeypatch.setattr(os, "stat", stat)
        return looks[:]

    folder, files = tmp_path.name, ["t.db", "t.db-wal", "t.db-shm"]
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert looks_of_a_read() == files  # the file was made just now
    let_settle(database, monkeypatch)
    assert looks_of_a_read() == [folder]
    (tmp_path / "another").touch()
    assert looks_of_a_read() == [folder, *files]
    assert looks_of_a_read() == files  # not twice in vain
    now += 1.5
    let_settle(database, monkeypatch)
    assert looks_of_a_read() == [folder]
    now += 1.5  # another file may have been mounted over this one
    assert looks_of_a_read() == [folder, *files]
    assert looks_of_a_read() == [folder]
    database.close()


@needs_unix
def test_a_folder_that_looks_old_is_watched_before_it_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's clock may be behind, and go in steps of a second: two changes within one would look like one."""
    now, wall_clock = time.monotonic(), time.time_ns
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "time_ns", lambda: wall_clock() + 3_600_000_000_000)
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    answers = []
    for second in range(7):
        now += second > 0
        assert rows(database) == []
        answers.append(database._idle[0].folder is not None)
    assert answers == [False] * 5 + [True] * 2  # it is first looked at by the second call
    (tmp_path / "another").touch()
    now += 1
    assert rows(database) == []
    assert database._idle[0].folder is None
    database.close()


@needs_unix
def test_a_folder_that_notes_a_removal_in_its_mtime_alone_answers_rightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As exFAT does, and FAT did before Linux 5.19."""
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    add(database, "old")
    let_settle(database, monkeypatch)
    stat, changed = os.stat, tmp_path.stat().st_ctime_ns

    class Status:
        def __init__(self, path: str) -> None:
            self._status = stat(path)
            self.st_ctime_ns = changed

        def __getattr__(self, name: str) -> Any:
            return getattr(self._status, name)

    remove(tmp_path / "t.db", "", "-wal", "-shm")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", Status)
        is_current = database.location.is_current(database._idle[0])
    assert not is_current
    assert rows(database) == []
    database.close()


@needs_unix
def test_a_folder_does_not_answer_for_the_target_of_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "target" / "t.db")
    linked = Database(tmp_path / "link.db", schema=_SCHEMA, name="t")
    add(linked, "old")
    monkeypatch.setattr(locations, "_SETTLED_SECONDS", -1.0)
    for _ in range(2):
        linked._idle[0].folder_until = 0.0
        assert rows(linked) == ["old"]
    remove(tmp_path / "target" / "t.db", "", "-wal", "-shm")
    assert rows(linked) == []


@needs_unix
@pytest.mark.parametrize("endings", [("", "-wal", "-shm"), ("",)], ids=["all", "the file alone"])
def test_where_the_file_was_removed_a_new_one_is_written(
    on_disk: Database, tmp_path: Path, endings: tuple[str, ...]
) -> None:
    remove(tmp_path / "t.db", *endings)
    with on_disk.reading(), on_disk.reading():
        pass
    add(on_disk, "new")
    assert rows(on_disk) == ["new"]
    assert as_others_see_it(tmp_path / "t.db") == ["new"]


@needs_unix
def test_a_file_that_is_given_another_name_has_all_that_was_written_to_it(on_disk: Database, tmp_path: Path) -> None:
    (tmp_path / "t.db").rename(tmp_path / "last year.db")
    add(on_disk, "new")
    assert as_others_see_it(tmp_path / "last year.db") == ["old"]
    assert as_others_see_it(tmp_path / "t.db") == ["new"]


@needs_unix
def test_where_the_file_was_replaced_the_new_one_is_used(on_disk: Database, tmp_path: Path) -> None:
    on_disk.fetch_all("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    add(on_disk, "since the backup")
    remove(tmp_path / "t.db", "-wal", "-shm")
    (tmp_path / "backup.db").replace(tmp_path / "t.db")
    assert on_disk.fetch_all("SELECT x FROM t", ()) == [("old",)]
    add(on_disk, "new")
    assert as_others_see_it(tmp_path / "t.db") == ["new", "old"]


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("scripts", [0, 1])
def test_a_restored_backup_that_lacks_tables_or_columns_is_given_them(
    tmp_path: Path, scripts: int, *, reads: bool
) -> None:
    backup, path = tmp_path / "backup.db", tmp_path / "t.db"
    schema = ("CREATE TABLE t (x TEXT UNIQUE)", "ALTER TABLE t ADD COLUMN y TEXT")
    older, newer = Database(backup, schema=schema[:scripts], name="t"), Database(path, schema=schema, name="t")
    for database in (older, newer):
        with database.writing():
            pass
    with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)  # as .restore does it, beside the open connection
    statement = "SELECT y FROM t" if reads else "INSERT INTO t VALUES ('a', 'b')"
    with pytest.raises(StoreError, match=r"no such|newer version"):
        newer.fetch_all(statement, ())
    assert newer.fetch_all(statement, ()) == []
    for database in (older, newer):
        database.close()


@needs_unix
def test_a_file_that_is_replaced_in_the_moment_in_which_it_is_opened_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        with closing(sqlite3.connect(tmp_path / name)) as raw:
            raw.execute(f"CREATE TABLE {name} (x)")
    opened: list[Connection] = []
    connect = sqlite3.connect

    def replace_meanwhile(*args: Any, **kwargs: Any) -> Connection:
        opened.append(connect(*args, **kwargs))
        if len(opened) == 1:
            (tmp_path / "new").replace(tmp_path / "old")
        return opened[-1]

    place = FileLocation(str(tmp_path / "old"))
    monkeypatch.setattr(sqlite3, "connect", replace_meanwhile)
    with closing(place.connect(1.0, close_idle=lambda: None)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("new",)]
        assert place.is_current(connection)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_the_changes_of_a_file_that_was_replaced_are_not_mixed_into_the_new_one(
    on_disk: Database, tmp_path: Path
) -> None:
    on_disk.fetch_all("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    add(on_disk, "since the backup")
    with on_disk.reading():  # as another process has it open
        (tmp_path / "backup.db").replace(tmp_path / "t.db")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="was replaced while it was open") as told:
                rows(on_disk)
            assert "remove its -wal and -shm" in str(told.value)
            mend(on_disk)
    remove(tmp_path / "t.db", "-wal", "-shm")
    assert rows(on_disk) == ["old"]


@needs_unix
def test_neither_are_they_where_all_connections_are_in_use(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    add(database, "old")
    database.fetch_all("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    add(database, "since the backup")
    with database.reading():  # on the only one
        (tmp_path / "backup.db").replace(tmp_path / "t.db")
        with pytest.raises(StoreUnavailable, match="was replaced while it was open"):
            rows(database)
    remove(tmp_path / "t.db", "-wal", "-shm")
    assert rows(database) == ["old"]


@needs_unix
def test_neither_are_they_where_the_path_is_that_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "t.db")
    linked = Database(tmp_path / "link.db", schema=_SCHEMA, name="t")
    with linked.reading(), linked.reading():  # two connections
        pass
    add(linked, "old")
    linked.fetch_all("VACUUM INTO ?", (str(tmp_path / "backup.db"),))
    with linked.reading():
        (tmp_path / "backup.db").replace(tmp_path / "t.db")
        with pytest.raises(StoreUnavailable, match=r"t\.db-wal holds changes of the old file"):
            rows(linked)


@needs_unix
def test_a_write_to_a_file_that_is_removed_meanwhile_is_not_acknowledged(on_disk: Database, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="removed or replaced in the middle of a write"):
        write_and_remove(on_disk, tmp_path)
    mend(on_disk)
    assert rows(on_disk) == []


@needs_unix
def test_after_a_long_write_the_folder_does_not_answer_for_a_file_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    add(database, "old")
    monkeypatch.setattr(locations, "_SETTLED_SECONDS", -1.0)  # as if it was removed long ago
    with pytest.raises(StoreUnavailable, match="removed or replaced in the middle of a write"):
        write_and_remove(database, tmp_path)
    assert rows(database) == []


@needs_unix
def test_neither_is_one_whose_log_is_removed_meanwhile(on_disk: Database, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="or its -wal or -shm was removed or replaced in the middle of a write"):
        write_and_remove(on_disk, tmp_path, "-wal", "-shm")


@needs_unix
def test_nor_one_whose_locks_are_removed_meanwhile(on_disk: Database, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="-shm was removed or replaced in the middle of a write"):
        write_and_remove(on_disk, tmp_path, "-shm")
    mend(on_disk)
    assert "old" in rows(on_disk)


@needs_unix
def test_two_processes_whose_locks_were_removed_between_them_do_not_write_over_each_other(
    on_disk: Database, tmp_path: Path
) -> None:
    write = """if True:
        import sqlite3, sys
        theirs = sqlite3.connect(sys.argv[1], isolation_level=None)
        for text in sys.stdin:
            theirs.execute("INSERT INTO t VALUES (?)", (text.strip(),))
            print(flush=True)
    """
    remove(tmp_path / "t.db", "-shm")
    command = [sys.executable, "-c", write, str(tmp_path / "t.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for n in range(3):
            other.stdin.write(f"theirs {n}\n")
            other.stdout.readline()
            add(on_disk, f"ours {n}")
        other.stdin.close()
    assert (
        rows(on_disk)
        == as_others_see_it(tmp_path / "t.db")
        == [
            "old",
            *(f"{whose} {n}" for whose in ("ours", "theirs") for n in range(3)),
        ]
    )


@pytest.mark.skipif(sys.gettrace() is not None, reason="the trace function is needed here")
def test_one_thread_may_open_a_file_whatever_another_one_has_noted_of_it_as_yet(tmp_path: Path) -> None:
    path, seen = tmp_path / "t.db", list[list[str]]()
    first = Database(path, schema=_SCHEMA, name="t")
    add(first, "old")

    def open_between(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not FileLocation.note_wal.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":  # as if the system had this thread wait here
            seen.append(as_others_see_it(path))
        return open_between

    second = Database(path, schema=_SCHEMA, name="t")
    sys.settrace(open_between)
    try:
        assert rows(second) == ["old"]
    finally:
        sys.settrace(None)
        first.close()
        second.close()
    assert len(seen) > 10
    assert all(each == ["old"] for each in seen)


def another_process_has_it(path: Path) -> list[str]:
    """All rows, as a process sees them that then closes the file, and is the last one if SQLite knows of no other."""
    look = "import sqlite3, sys; print(*(x for x, in sqlite3.connect(sys.argv[1]).execute('SELECT x FROM t')))"
    done = subprocess.run([sys.executable, "-c", look, str(path)], capture_output=True, text=True, check=True)
    return sorted(done.stdout.split())


@needs_unix
def test_what_is_written_is_there_though_another_took_itself_for_the_last_one(
    on_disk: Database, tmp_path: Path
) -> None:
    """As it does where this process has read the file by itself, for a backup."""
    path = tmp_path / "t.db"
    index = Database(path, schema=_SCHEMA, name="t")
    with closing(index), index.reading():
        path.read_bytes()
        assert another_process_has_it(path) == ["old"]
        assert Path(f"{path}-wal").exists() == _NOTICES_LOST_LOCKS
        for _ in range(0 if _NOTICES_LOST_LOCKS else 2):
            with pytest.raises(StoreUnavailable, match=r"the -wal or -shm of .*t\.db was removed while it was open"):
                add(on_disk, "refused")
            mend(on_disk)
    add(index, "new")
    add(on_disk, "newer")
    assert as_others_see_it(path) == rows(index) == ["new", "newer", "old"]
    assert another_process_has_it(path) == ["new", "newer", "old"]
    assert Path(f"{path}-wal").exists()  # now that other processes are told of these connections


@needs_unix
def test_nor_is_a_connection_in_the_way_that_nobody_uses(on_disk: Database, tmp_path: Path) -> None:
    path, link = tmp_path / "t.db", tmp_path / "link.db"
    link.symlink_to(path)
    index = Database(link, schema=_SCHEMA, name="t")
    assert rows(index) == ["old"]
    path.read_bytes()
    assert another_process_has_it(path) == ["old"]
    add(Database(path, schema=_SCHEMA, name="t"), "new")
    assert as_others_see_it(path) == rows(on_disk) == rows(index) == ["new", "old"]
    index.close()


def test_who_opens_a_file_waits_for_who_closes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose last connection removes the -wal a moment before anybody knows that it is closed."""
    own, other = (Database(tmp_path / "t.db", schema=_SCHEMA, name="t") for _ in range(2))
    add(own, "old")
    closed, looked = threading.Event(), threading.Event()
    monkeypatch.setattr(pauses, "sleep", lambda _: looked.set())

    def hold(_frame: FrameType, event: str, what: Any) -> None:
        if event == "c_return" and what.__name__ == "close":
            closed.set()
            assert looked.wait(20)

    def close() -> None:
        sys.setprofile(hold)
        own.close()

    thread = threading.Thread(target=close)
    thread.start()
    assert closed.wait(20)
    try:
        add(other, "new")
    finally:
        looked.set()
        thread.join()
    assert rows(other) == ["new", "old"]
    other.close()


def mend(database: Database) -> None:
    if database._breaker is not None:  # it is in a hurry
        database._breaker._sentence = None


def write_and_remove(database: Database, folder: Path, *endings: str) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO t VALUES ('lost')")
        remove(folder / "t.db", *(endings or ("", "-wal", "-shm")))
        connection.folder_until = 0.0  # as after a second


@pytest.mark.skipif(os.name == "nt", reason="there, nobody can remove the folder")
def test_a_relative_path_from_a_folder_that_was_removed_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a release's folder may be, from which a server was started."""
    (tmp_path / "release").mkdir()
    monkeypatch.chdir(tmp_path / "release")
    (tmp_path / "release").rmdir()
    with pytest.raises(
        ConfigurationError, match=r"^a\.db cannot be found, as the working directory was removed: give an"
    ):
        SQLiteStore("a.db")
    SQLiteStore(tmp_path / "a.db").write(("a",), put={"k": b"1"})


def test_a_newer_version_that_makes_the_file_first_is_not_taken_back(tmp_path: Path) -> None:
    newer = Database(tmp_path / "t.db", schema=[*_SCHEMA, "ALTER TABLE t ADD COLUMN y"], name="t")

    class Overtaken(Database):
        """Is overtaken when it has seen that there are no tables."""

        def _version(self, connection: Connection) -> int:
            version = super()._version(connection)
            assert rows(newer) == []
            return version

    with pytest.raises(StoreError, match="written by a newer version"):
        rows(Overtaken(tmp_path / "t.db", schema=_SCHEMA, name="t"))
    newer.close()
    assert rows(newer) == []
    newer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, the name of a folder is Unicode")
def test_a_store_is_shared_in_a_folder_whose_name_is_no_utf8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102 - no text names it
    monkeypatch.chdir(os.fsdecode(folder))
    with closing(shared_store("sqlite:///a.db")) as store:
        store.write(("a",), put={"k": b"1"})
        assert b"a.db" in os.listdir(folder)  # noqa: PTH208 - same


def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database("t.db", schema=_SCHEMA, name="t")
    (tmp_path / "elsewhere").mkdir()
    for text in ("a", "b"):
        add(database, text)
        monkeypatch.chdir(tmp_path / "elsewhere")
    assert rows(database) == ["a", "b"]
    assert as_others_see_it(tmp_path / "t.db") == ["a", "b"]
    database.close()


def test_a_full_disk_and_a_file_that_may_only_be_read_are_said_with_what_to_do(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    with database.reading() as connection:
        pass
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")  # as on a disk without room for another
    with pytest.raises(StoreError, match=r"t\.db is on a disk that is full: make room"):
        add(database, "x" * 100_000)
    connection.execute("PRAGMA query_only=1")
    with pytest.raises(StoreError, match=r"t\.db is read-only: give this process the right"):
        add(database, "a")
    assert rows(database) == []
    database.close()


def test_a_disk_without_room_for_what_lies_beside_a_file_is_said_with_what_to_do(tmp_path: Path) -> None:
    """SQLite does not say of its -shm, which even a reader needs, that there is no room for it."""
    resource = pytest.importorskip("resource", reason="Windows limits no file's size")
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    add(database, "a")
    database.close()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, before[1]))
    try:
        with pytest.raises(StoreError, match=r"t\.db: disk I/O error: see whether its disk is full"):
            rows(database)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert rows(database) == ["a"]
    database.close()


@pytest.mark.parametrize(("synchronous", "level", "to_the_disk"), [("normal", 1, 0), ("FULL", 2, 1)])
def test_what_survives_a_power_cut_is_brought_to_the_disk_itself(
    tmp_path: Path, synchronous: str, level: int, to_the_disk: int
) -> None:
    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t", synchronous=synchronous)
    assert database.fetch_all("PRAGMA synchronous", ()) == [(level,)]
    assert database.fetch_all("PRAGMA fullfsync", ()) == [(to_the_disk,)]  # which macOS asks for, and others ignore
    database.close()


def test_an_sqlite_that_is_too_old_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 23, 1))
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.23.1")
    for make in (lambda: open_store("sqlite:///t.db"), lambda: LexicalIndex(":memory:")):
        with pytest.raises(ConfigurationError, match=r"SQLite 3\.24 or newer is needed, and this Python has 3\.23\.1"):
            make()


def test_an_sqlite_without_json_is_told_in_a_sentence(database: Database) -> None:
    with pytest.raises(StoreError, match="the SQLite of this Python has no JSON functions: use a Python with"):
        database.fetch_all("SELECT value FROM json_each_that_is_missing(?)", ("[]",))


def test_a_file_system_without_locks_is_said_with_what_to_do() -> None:
    error = sqlite3.OperationalError("locking protocol")  # as SQLite says of NFS
    said = FileLocation("t.db").to_store_error(error, 5.0)
    assert str(said).endswith(": put it on a disk of this machine")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
@pytest.mark.parametrize(
    ("name", "mode", "why"),
    [
        ("t.db", 0, "is not a file that can be opened"),
        ("below/t.db", 0, "is not a file that can be opened"),
        ("t.db", 0o555, "cannot be made: {} is read-only"),
    ],
)
def test_rights_that_a_folder_lacks_are_told(name: str, mode: int, why: str) -> None:
    me = os.geteuid()
    # Not tmp_path, nor TMPDIR, which may lie in a folder that lets nobody else in.
    with tempfile.TemporaryDirectory(dir=None if me else "/tmp") as folder:
        path = Path(folder, name)
        store = SQLiteStore(path)
        path.parent.mkdir(exist_ok=True)
        Path(folder).chmod(mode)
        os.seteuid(me or 65_534)  # the system's own user may do all
        try:
            health = store.health()
            with pytest.raises(StoreUnavailable) as raised:
                store.get(("a",), ["b"])
        finally:
            os.seteuid(me)
            Path(folder).chmod(0o700)
    assert str(raised.value) == f"{path} {why.format(folder)}"
    assert (health.ok, health.problem) == (False, f"there is no file {path} yet" if mode else str(raised.value))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_folder_that_may_only_be_read_is_said_where_nothing_can_be_made_beside_a_file() -> None:
    me = os.geteuid()
    with tempfile.TemporaryDirectory(dir=None if me else "/tmp") as folder:
        path = Path(folder, "t.db")
        path.touch(0o644)
        Path(folder).chmod(0o555)
        os.seteuid(me or 65_534)
        try:
            # as SQLite says nothing more of a disk that is mounted so
            said = FileLocation(str(path)).to_store_error(sqlite3.OperationalError("unable to open database file"), 5.0)
        finally:
            os.seteuid(me)
            Path(folder).chmod(0o700)
    assert str(said) == f"{path} cannot be opened: {folder} is read-only"


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="open files are listed nowhere")
def test_asking_why_a_file_cannot_be_opened_leaves_none_open(tmp_path: Path) -> None:
    place, before = FileLocation(str(tmp_path / "none" / "t.db")), len([*Path("/dev/fd").iterdir()])
    assert "is no folder" in str(place.to_store_error(sqlite3.OperationalError("unable to open database file"), 0))
    assert len([*Path("/dev/fd").iterdir()]) == before


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize("free", [0, 1, 2])
def test_too_many_open_files_are_told_apart(tmp_path: Path, free: int) -> None:
    import resource  # noqa: PLC0415 - not on Windows

    database = Database(tmp_path / "t.db", schema=_SCHEMA, name="t")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "probe").open("wb") as probe:
        lowest = probe.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, before[1]))
    try:
        with pytest.raises(StoreUnavailable, match=r"too many files are open: raise the limit"):
            database.fetch_all("SELECT 1", ())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert rows(database) == []
    database.close()


# As SQLite says of the same damage: 3.40, 3.31 and 3.24.
@pytest.mark.parametrize(
    "said", ["database disk image is malformed", "string or blob too big", "unsupported file format"]
)
def test_a_damaged_file_that_another_has_made_anew_is_not_removed_a_second_time(tmp_path: Path, said: str) -> None:
    damaged = sqlite3.DatabaseError(said)
    place = FileLocation(str(tmp_path / "index.db"))
    Path(place.path).write_bytes(b"damaged")
    closed: list[str] = []
    with removing_if_damaged(place, lambda: closed.append("late"), disposable=True):
        with removing_if_damaged(place, lambda: closed.append("first"), disposable=True):
            raise StoreError("damaged") from damaged
        assert not Path(place.path).exists()
        Path(place.path).write_bytes(b"new")
        raise StoreError("damaged") from damaged
    assert closed == ["first"]
    assert Path(place.path).read_bytes() == b"new"


def test_a_file_that_is_only_locked_as_it_is_cleared_is_not_removed(tmp_path: Path) -> None:
    index, other = (
        Database(tmp_path / "index.db", schema=_SCHEMA, name="t", timeout=0, disposable=True) for _ in range(2)
    )
    with index.writing() as connection, connection:
        connection.execute("INSERT INTO t VALUES ('kept')")
        with pytest.raises(StoreUnavailable, match="locked"), other.clearing(), other.writing():
            pass
    assert rows(index) == ["kept"]
    index.close()
    other.close()


def test_a_damaged_file_that_cannot_be_removed_is_told_in_a_sentence(tmp_path: Path) -> None:
    place = FileLocation(str(tmp_path / "index.db"))
    Path(place.path).write_bytes(b"damaged")
    Path(f"{place.path}-wal").mkdir()  # which is refused as Windows refuses to remove what is open
    with (
        pytest.raises(
            StoreUnavailable, match=r"index\.db is damaged, and cannot be removed \(.+\): end whatever has it"
        ),
        removing_if_damaged(place, lambda: None, disposable=True),
    ):
        raise StoreError("damaged") from sqlite3.DatabaseError("database disk image is malformed")


def test_a_damaged_file_that_others_of_this_process_had_open_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the index of a server's store has it open for words, for those of caches, and for vectors."""
    database, other = (Database(tmp_path / "t.db", schema=_SCHEMA, name="t", disposable=True) for _ in range(2))
    assert rows(database) == rows(other) == []
    connections, remove = [*database._idle, *other._idle], Path.unlink

    def refuse_open(path: Path, *, missing_ok: bool = False) -> None:
        if any(connection.is_open for connection in connections):
            raise PermissionError(errno.EACCES, "it is being used", str(path))  # as Windows does
        remove(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_open)
    with database.clearing():
        raise StoreError("damaged") from sqlite3.DatabaseError("database disk image is malformed")
    assert not Path(database.path).exists()
    assert rows(other) == []


def test_the_log_that_grew_beside_a_long_reader_is_given_back_to_the_disk(tmp_path: Path) -> None:
    database = Database(tmp_path / "t.db", schema=["CREATE TABLE t (x)"], name="t")

    def write(size: int) -> int:
        with database.writing() as connection, connection:
            connection.execute("INSERT INTO t VALUES (zeroblob(?))", (size,))
        return (tmp_path / "t.db-wal").stat().st_size

    write(1)
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT x FROM t").fetchall()
        assert write(50_000_000) > 50_000_000
        reader.execute("COMMIT")
    write(1)  # brings all of it into the file, so that the next begins the log anew
    assert write(1) < 40_000_000
    database.close()
