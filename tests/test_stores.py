"""The conformance kit over the stores that need no server, and what is special to a file."""

from __future__ import annotations

import contextlib
import io
import itertools
import ntpath
import os
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.errors import ConfigurationError, SerializationError, StoreError, StoreUnavailable
from langmem_adapters.files import urls
from langmem_adapters.files.database import Database
from langmem_adapters.indexes import shared_index
from langmem_adapters.indexes.vector_chroma_url import folder_of
from langmem_adapters.inspection import Dates
from langmem_adapters.protocols import Appended, Page
from langmem_adapters.settings import Settings
from langmem_adapters.stores import open_store, shared_store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.stores.sqlite_namespaces import SCHEMA
from langmem_adapters.testing import FakeClock, StoreConformance, store_walk
from tests.compared import Compared, Number
from tests.interpreters import processes

NS = ("brain", "t", "u", "s")


class OnAClock(StoreConformance):
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:  # noqa: ARG002 - it runs on the clock
        clock.advance(seconds)


class TestMemoryStore(OnAClock):
    @pytest.fixture
    def store(self, clock: FakeClock) -> MemoryStore:
        return MemoryStore(clock=clock)


class TestSQLiteStore(OnAClock):
    @pytest.fixture
    def store(self, clock: FakeClock, tmp_path: Path) -> Iterator[SQLiteStore]:
        store = SQLiteStore(tmp_path / "memory.db", clock=clock)
        yield store
        store.close()


_folder = cache(tempfile.TemporaryDirectory)  # when first asked for: processes that tests kill import this, too
_numbers = itertools.count()
TestMemoryWalk = store_walk(lambda clock: MemoryStore(clock=clock))
TestSQLiteWalk = store_walk(lambda clock: SQLiteStore(Path(_folder().name) / f"walk{next(_numbers)}.db", clock=clock))


def _write_many(path: Path, writer: int, count: int) -> None:
    store = SQLiteStore(path, timeout=30)
    for n in range(count):
        store.append(NS, [(f"{writer}-{n}", b"x")])
    store.close()


def test_eight_processes_append_to_one_file(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    context = processes()
    writers = [context.Process(target=_write_many, args=(path, n, 50)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    ids = [item.id for item in SQLiteStore(path).scan(NS).items]
    assert sorted(ids) == sorted(f"{w}-{n}" for w in range(8) for n in range(50))
    for number in range(8):
        assert [i for i in ids if i.startswith(f"{number}-")] == [f"{number}-{n}" for n in range(50)]


def _write_until_killed(path: Path, pipe: Any) -> None:
    store = SQLiteStore(path)
    for n in itertools.count():
        store.write(NS, append=[(str(n), b"x" * 500)], put={"last": str(n).encode()})
        pipe.send(n)


def test_what_was_acknowledged_outlives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "killed.db"
    context = processes()
    here, there = context.Pipe(duplex=False)
    writer = context.Process(target=_write_until_killed, args=(path, there))
    writer.start()
    acknowledged = -1
    while acknowledged < 200:
        acknowledged = here.recv()
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    there.close()
    with contextlib.suppress(EOFError):
        while here.poll():
            acknowledged = here.recv()
    page = SQLiteStore(path).scan(NS, keys=["last"])
    assert page.total == len(page.items) >= acknowledged + 1
    assert [item.id for item in page.items] == [str(n) for n in range(page.total)]
    assert page.values["last"] == page.items[-1].id.encode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_store_works_on_both_sides_of_a_fork(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "forked.db")
    store.append(NS, [("before", b"")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            store.append(NS, [("child", b"")])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    store.append(NS, [("parent", b"")])
    assert {item.id for item in store.scan(NS).items} == {"before", "child", "parent"}


def test_expired_sessions_leave_the_file_a_few_rows_at_a_time(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "ttl.db", clock=clock)
    store.append(("s", "old"), [(str(n), b"") for n in range(2500)], ttl=10)
    clock.advance(11)
    counts = []
    for n in range(4):
        store.append(("s", "new"), [(f"n{n}", b"")])
        with sqlite3.connect(tmp_path / "ttl.db") as raw:
            counts.append(raw.execute("SELECT count(*) FROM langmem_log").fetchone()[0])
        raw.close()
    assert counts == [1501, 502, 3, 4]
    assert [row.namespace for row in store.recent(("s",))] == [("s", "new")]


def test_a_session_of_which_a_part_was_removed_stays_gone_if_the_clock_goes_back(tmp_path: Path) -> None:
    """A session expires as a whole: what is left of it must not be taken for the session."""
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "back.db", clock=clock)
    store.append(("s", "old"), [(str(n), b"") for n in range(2500)], put={"title": b"t"}, ttl=10)
    clock.advance(11)
    store.append(("s", "new"), [("n", b"")])
    clock.advance(-5)
    assert store.scan(("s", "old"), keys=["title"]) == Page([], 0, {})
    assert [row.namespace for row in store.recent(("s",))] == [("s", "new")]
    assert store.append(("s", "old"), [("1", b"said again")]) == Appended([True], 1, {})
    assert [item.data for item in store.scan(("s", "old")).items] == [b"said again"]


def test_expired_sessions_leave_the_memory_beside_writes() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    for n in range(100):
        store.append(("s", str(n)), [("id", b"")], ttl=10)
    clock.advance(11)
    for n in range(300):
        store.append(("s", "new"), [(str(n), b"")])
    assert store._children.keys() == {("s",)}
    assert list(store._children["s",]) == [("s", "new")]


def test_a_page_and_a_removal_look_at_no_other_entries_of_the_memory() -> None:
    store = MemoryStore()
    store._seq = Number()
    store.append(NS, [(str(n), b"") for n in range(5000)])
    middle = store.scan(NS, limit=2500).items[-1]
    Number.times = 0
    after, before = store.scan(NS, after=middle.seq, limit=2), store.scan(NS, before=middle.seq, limit=2, reverse=True)
    assert [item.id for item in (*after.items, *before.items)] == ["2500", "2501", "2498", "2497"]
    store.write(NS, remove=[*before.items, middle])
    assert Number.times < 200
    assert [item.id for item in store.scan(NS, after=before.items[-1].seq - 1, limit=1).items] == ["2500"]


def test_a_listing_looks_at_nothing_beside_it_in_the_memory() -> None:
    store = MemoryStore()
    for n in range(100):
        store.append(("brain", "", Compared(f"u{n}"), "s"), [("id", b"")])
    store.append(("brain", "", "ada", "s"), [("id", b"")])
    Compared.times = 0
    assert [row.namespace for row in store.recent(("brain", "", "ada"))] == [("brain", "", "ada", "s")]
    assert Compared.times == 0


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def test_c11_vacuum_gives_space_back_and_keeps_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    store = SQLiteStore(path)
    store.append(NS, [(str(n), b"x" * 2000) for n in range(1000)])
    items = store.scan(NS).items
    store.write(NS, remove=items[:-10])
    before = on_disk(tmp_path)
    store.vacuum()
    assert on_disk(tmp_path) < before / 10
    assert store.scan(NS).items == items[-10:]
    store.close()
    SQLiteStore(tmp_path / "new.db").vacuum()


def test_half_a_character_in_an_id_is_one_clear_sentence(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "halves.db")
    for write in (lambda: store.append(NS, [("\ud800", b"")]), lambda: store.write(NS, put={"\ud800": b""})):
        with pytest.raises(SerializationError, match="half of a surrogate pair"):
            write()
    assert store.scan(NS).items == []


def test_after_close_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    store = SQLiteStore(path)
    store.append(NS, [("1", b"")])
    store.close()
    path.unlink()
    assert store.scan(NS).items == []
    assert store.append(NS, [("1", b"")]).new == [True]


def test_a_foreign_file_or_a_missing_folder_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("This is a letter, not a database. " * 100)
    with pytest.raises(StoreError, match=r"text\.db is not an SQLite database"):
        SQLiteStore(tmp_path / "text.db").scan(NS)
    with pytest.raises(StoreUnavailable, match=r"none is no folder"):
        SQLiteStore(tmp_path / "none" / "x.db").append(NS, [("a", b"")])
    with pytest.raises(StoreUnavailable, match="is not a file that can be opened"):
        SQLiteStore(tmp_path).append(NS, [("a", b"")])


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    SQLiteStore(tmp_path / "new.db").append(NS, [("a", b"")])
    with sqlite3.connect(tmp_path / "new.db") as raw:
        raw.execute("UPDATE langmem_schema SET version = 99")
    raw.close()
    with pytest.raises(StoreError, match="newer version"):
        SQLiteStore(tmp_path / "new.db").scan(NS)


def test_a_file_that_a_newer_version_extends_while_it_is_open_is_written_to_no_more(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "open.db")
    store.append(NS, [("a", b"1")])
    with contextlib.closing(sqlite3.connect(tmp_path / "open.db")) as raw:
        for table in ("log", "values"):
            raw.execute(f"ALTER TABLE langmem_{table} ADD COLUMN later")
    for write in (lambda: store.append(NS, [("b", b"2")]), lambda: store.write(NS, put={"k": b"v"})):
        with pytest.raises(StoreError, match=r"open\.db was written by a newer version .*; upgrade to write to it"):
            write()
    assert [item.id for item in store.scan(NS, keys=["k"]).items] == ["a"]
    store.close()


@pytest.mark.parametrize("version", [6, 10])
def test_a_file_of_an_older_version_is_brought_up_with_all_that_it_holds(tmp_path: Path, version: int) -> None:
    clock = FakeClock()
    before = Database(tmp_path / "old.db", schema=SCHEMA[:version], name="store")
    with before.writing() as raw:
        for number, name in enumerate(("first", "second", "third"), 1):
            raw.execute(
                "INSERT INTO langmem_namespaces (number, name, parent, next, total, updated_at)"
                " VALUES (?, ?, ?, 2, 1, ?)",
                (number, f"s/{name}/", "s/", clock() + number),
            )
            raw.execute("INSERT INTO langmem_log VALUES (?, ?, ?)", ((number << 32) + 1, "a", name.encode()))
    before.close()
    store = SQLiteStore(tmp_path / "old.db", clock=clock)
    assert [row.namespace[1] for row in store.recent(("s",), limit=2)] == ["third", "second"]
    assert store.scan(("s", "first")).items[0].data == b"first"
    clock.advance(10)
    assert store.append(("s", "first"), [("a", b""), ("b", b"")]) == Appended([False, True], 2, {})
    assert [row.namespace[1] for row in store.recent(("s",))] == ["first", "third", "second"]
    store.close()


WRITES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 30.0, 59.0, 60.0, 61.0, 500.0, -1.0, -45.0, -90.0])),
    max_size=40,
)


@given(writes=WRITES, limit=st.none() | st.integers(0, 7))
def test_namespaces_are_listed_by_their_last_write_however_close_the_writes_are(
    writes: list[tuple[int, float]], limit: int | None
) -> None:
    """Also where the clock goes back: the memory is what it is compared with."""
    clock = FakeClock()
    memory, file = MemoryStore(clock=clock), SQLiteStore(Path(_folder().name) / f"list{next(_numbers)}.db", clock=clock)
    goes_back = any(seconds < 0 for _, seconds in writes)  # and then what has expired may not have
    for n, (name, seconds) in enumerate(writes):
        for store in (memory, file):
            store.append(("s", str(name)), [(str(n), b"")], ttl=400 if name == 5 and not goes_back else None)
        clock.advance(seconds)
    assert file.recent(("s",), limit=limit) == memory.recent(("s",), limit=limit)
    size = limit or 2
    page = memory.recent(("s",), limit=size)
    while page:
        expected = memory.recent(("s",), limit=size, before=page[-1])
        assert file.recent(("s",), limit=size, before=page[-1]) == expected
        page = expected
    file.close()


def test_a_message_that_comes_soon_after_another_leaves_the_row_of_its_namespace_as_it_is(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "soon.db", clock=clock)
    rows: list[tuple[Any, ...]] = []
    for n, seconds in enumerate((59, 0.9, 0.2, 30, 0)):
        assert store.append(NS, [(str(n), b"")]).total == n + 1
        with sqlite3.connect(tmp_path / "soon.db") as raw:
            select = "SELECT next, total, updated_at - :began, listed_at - :began FROM langmem_namespaces"
            rows += raw.execute(select, {"began": FakeClock()()})
        raw.close()
        clock.advance(seconds)
    at_first, after_a_minute = (2, 1, 0, 0), (5, 4, pytest.approx(60.1), pytest.approx(60.1))
    assert rows == [at_first, at_first, at_first, after_a_minute, after_a_minute]


def test_what_came_since_the_row_was_written_counts_wherever_it_is_asked_for(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "since.db", clock=clock)
    for n in range(4):
        store.append(NS, [(str(n), b"")])
        store.append(("brain", "a neighbour"), [(str(n), b"")])
        clock.advance(1)
    store.append(NS, [("3", b"said before")])
    last = clock()
    assert store.scan(NS, limit=1).total == 4
    assert store.stats().kinds["brain"].entries == 8
    assert store.dates(NS) == Dates(last, None)
    clock.advance(1)
    store.append(NS, [("4", b"")])
    assert store.dates(NS) == Dates(last + 1, None)
    assert not store.discard(NS, before=last + 1)
    store.set_dates(NS, Dates(last + 7, None))
    assert store.dates(NS) == Dates(last + 7, None)
    removed = store.scan(NS).items[-1]
    store.write(NS, remove=[removed])
    assert store.append(NS, [("5", b"")]).total == 5
    assert store.scan(NS).items[-1].seq > removed.seq
    assert store.discard(NS, before=clock() + 1)
    store.close()


def test_a_namespace_is_listed_by_the_date_that_it_was_given(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "dates.db", clock=clock)
    for name in ("first", "second"):
        store.append(("s", name), [("a", b"")])
        clock.advance(100)
    store.set_dates(("s", "first"), Dates(clock() + 1000, None))
    assert [row.namespace[1] for row in store.recent(("s",), limit=1)] == ["first"]
    store.close()


def test_a_locked_file_is_unavailable_and_nothing_is_half_written(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "locked.db", timeout=0.05)
    store.append(NS, [("a", b"")])
    with sqlite3.connect(tmp_path / "locked.db", isolation_level=None) as raw:
        raw.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked by another writer"):
            store.append(NS, [("b", b"")])
        assert store.scan(NS).total == 1  # readers are never locked out
        raw.execute("ROLLBACK")
    raw.close()
    assert store.append(NS, [("b", b"")]).new == [True]


def test_a_file_can_be_shared_with_the_users_own_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "app.db") as raw:
        raw.execute("CREATE TABLE langmem (x)")
        raw.execute("PRAGMA user_version = 7")
    raw.close()
    SQLiteStore(tmp_path / "app.db").append(NS, [("a", b"")])
    with sqlite3.connect(tmp_path / "app.db") as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (7,)
    raw.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE langmem_schema SET version = 'abc'",
        "UPDATE langmem_schema SET version = x'ff00'",
        "UPDATE langmem_namespaces SET next = 'abc'",
        "UPDATE langmem_namespaces SET total = x''",
    ],
)
def test_a_file_in_which_a_number_is_none_is_told_in_a_sentence(tmp_path: Path, change: str) -> None:
    SQLiteStore(tmp_path / "t.db").append(NS, [("a", b"")])
    with sqlite3.connect(tmp_path / "t.db") as raw:
        raw.execute(change)
    raw.close()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"t\.db: database disk image is malformed$"):
            SQLiteStore(tmp_path / "t.db").append(NS, [("b", b"")], ttl=5)


@pytest.mark.parametrize("tail", ["?" * 100_000, "?a" * 50_000, "?" + "&" * 100_000])
def test_a_url_is_masked_in_one_pass_and_its_odd_options_wherever_they_are(tail: str) -> None:
    start = time.process_time()
    assert urls.mask_url(f"redis://h/{tail}") == f"redis://h/{tail}"
    assert time.process_time() - start < 1
    for url in ("redis://h?a?b=PIN", "redis://h?a&b?c=PIN?d=PIN&db=1", "redis://h&x=PIN?b=PIN", "redis://h?db?=PIN"):
        assert "PIN" not in urls.mask_url(url)


def test_a_link_that_leads_to_itself_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "loop.db").symlink_to("loop.db")
    with pytest.raises(StoreError, match=r"loop\.db is not a file that can be opened$"):
        SQLiteStore(tmp_path / "loop.db").append(NS, [("a", b"")])


def test_constructing_a_store_makes_no_file(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/lazy.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///relative.db",
        "redis://127.0.0.1",
        "rediss://127.0.0.1",
        "redis+sentinel://127.0.0.1/main",
        "chroma:///f",
    ],
)
def test_a5_a_url_is_read_without_a_look_at_the_disk(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a coroutine, too, such as the first that has a chat history made: servers look for what blocks there."""

    def disk(*_: object, **__: object) -> None:
        raise AssertionError("this asks the disk")

    make = folder_of if url.startswith("chroma") else open_store
    make(url)  # imports its driver
    with monkeypatch.context() as patch:
        for module, name in [(os, "getcwd"), (os, "listdir"), (os, "stat"), (io, "open")]:
            patch.setattr(module, name, disk)
        made = make(url)
    assert made


def test_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert repr(open_store("sqlite:///a%20b.db")) == "SQLiteStore('a b.db')"
    assert repr(open_store("sqlite:////tmp/x.db?synchronous=full&timeout=1.5")) == "SQLiteStore('/tmp/x.db')"
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is not open_store("memory:")
    assert isinstance(open_store("memory:team:one"), MemoryStore)
    assert isinstance(open_store("memory://"), MemoryStore)
    monkeypatch.delenv("LANGMEM_STORE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    assert repr(open_store()) == "SQLiteStore('langmem.db')"
    assert repr(Settings().store) == "SQLiteStore('langmem.db')"  # although it stays there wherever the process goes
    monkeypatch.setenv("LANGMEM_STORE_URL", "memory:")
    assert isinstance(open_store(), MemoryStore)
    assert shared_store() is shared_store("memory:")


@pytest.mark.parametrize("slashes", ["///", "////"])
def test_a_path_on_a_drive_may_follow_three_slashes_or_four(slashes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "os", SimpleNamespace(path=ntpath))  # as on Windows
    assert repr(open_store(f"sqlite:{slashes}C:/data/x.db")) == "SQLiteStore('C:/data/x.db')"
    assert folder_of(f"chroma:{slashes}C:/data") == str(Path.cwd() / "C:/data")  # which is absolute there
    assert repr(open_store("sqlite:////data/x.db")) == "SQLiteStore('/data/x.db')"


def test_a_relative_path_is_that_of_the_folder_in_which_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LANGMEM_STORE_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    urls: tuple[str | None, ...] = (None, "sqlite:///x.db", "sqlite:///x%20y.db?timeout=1")
    opened = {}
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        for url in urls:
            shared_store(url).append(NS, [(folder, b"")])
            settings = Settings() if url is None else Settings(url=url)
            opened[folder, url] = shared_store(url), shared_index(url), settings
            assert [item.id for item in shared_store(url).scan(NS).items] == [folder]
    for (_, url), (store, index, settings) in opened.items():
        assert (settings.store, settings.index) == (store, index)  # though the process works in another folder now
        assert (shared_store(url) is store) == (shared_index(url) is index) == ("/b/" in settings.url)
    assert {path.name for path in (tmp_path / "a").glob("*.db")} == {"langmem.db", "x.db", "x y.db"}


@pytest.mark.parametrize("name", ["a#1.db", "100%.db", "a b.db", "a;b.db", "[é].db"])
def test_a_files_url_is_its_name_whatever_that_holds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store(f"sqlite:///{name}\n").append(NS, [("1", b"")])
    assert (tmp_path / name).is_file()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgres://x", "'postgres' is none of them"),
        (
            "memory:redis://:secret@host:6379/0",
            "^.memory:. is a store that ends with the process[^@]*without .memory:.$",
        ),
        ("memory:SQLite:///x.db", "followed by a name, not by the URL of another store"),
        ("sqlite://x.db", "sqlite:///relative.db"),
        ("sqlite:///", "sqlite:///relative.db"),
        ("sqlite:///:memory:", 'use "memory:"'),
        ("sqlite:///x.db?sync=full", "not sync"),
        ("sqlite:x.db", "sqlite:///relative.db"),
        ("sqlite:/x.db", "sqlite:///relative.db"),
        ("sqlite:///x%00.db", "sqlite:///relative.db"),
        ("sqlite:///x.db?timeout=soon", "not 'soon'"),
        ("sqlite:///x.db?timeout=", "not ''"),
        ("sqlite:///x.db?timeout=nan", "not 'nan'"),
        ("sqlite:///x.db?timeout=inf", "not 'inf'"),
        ("sqlite:///x.db?timeout=-1", "not '-1'"),
        ("sqlite:///x.db?synchronous=off", "not 'off'"),
        ("sqlite:///~nobody-here/x.db", "^~nobody-here/x.db begins with ~, and that home directory is not known"),
        pytest.param(
            *("sqlite:///\ud800.db", r"^'\\ud800\.db' cannot be the name of a file: names are written in utf-8 here;"),
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has such names"),
        ),
    ],
)
def test_a_wrong_url_is_one_clear_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        open_store(url)
