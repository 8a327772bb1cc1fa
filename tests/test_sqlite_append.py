"""Appending by one statement: what a connection remembers of a log's end is never taken for more than a guess."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError  # noqa: A004 - Python 3.10 has another of its own
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.keys import to_bytes
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.stores.sqlite_append import MAX_PER_STATEMENT
from langmem_adapters.stores.sqlite_namespaces import LISTING_LAG_SECONDS
from langmem_adapters.testing.fakes import FakeClock
from langmem_adapters.warn_once import BREAKER_SUFFIX

NS = ("brain", "", "", "s")
OTHER = ("brain", "", "", "t")


@pytest.fixture
def stores(tmp_path: Path, clock: FakeClock) -> Iterator[tuple[SQLiteStore, SQLiteStore]]:
    """Two of one file, with a connection each."""
    one, other = (SQLiteStore(tmp_path / "store.db", clock=clock) for _ in range(2))
    yield one, other
    one.close()
    other.close()


def statements(store: SQLiteStore, *ids: str, keys: tuple[str, ...] = (), put: tuple[str, ...] = ()) -> list[str]:
    """The kinds of statements that an append of these takes."""
    (connection,) = store._database._idle
    said: list[str] = []
    connection.set_trace_callback(lambda text: said.append(text.split()[0]))
    store.append(NS, [(id_, b"data") for id_ in ids], put=dict.fromkeys(put, b"value"), keys=keys)
    connection.set_trace_callback(None)
    return said


def ids(store: SQLiteStore) -> list[str]:
    page = store.scan(NS)
    assert page.total == len(page.items)
    return [item.id for item in page.items]


def test_a_log_that_was_appended_to_takes_one_statement(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    store, _ = stores
    store.append(NS, [("a", b"")])
    assert statements(store, "b") == ["INSERT"]
    assert statements(store, "c", "d", keys=("departed", "summary")) == ["INSERT"]
    many = [f"{n}" for n in range(MAX_PER_STATEMENT + 1)]
    assert statements(store, *many)[0] == "BEGIN"
    assert ids(store) == ["a", "b", "c", "d", *many]


@pytest.mark.parametrize("fails_fast", [False, True])
def test_a_value_that_is_put_with_its_entry_takes_one_statement(tmp_path: Path, fails_fast: bool) -> None:
    store = SQLiteStore(tmp_path / "store.db", fails_fast=fails_fast)
    store.append(NS, [("a", b"")], put={"a": b"1"}, keys=["a", "grave of a"])
    assert statements(store, "b", put=("b",), keys=("b", "grave of b")) == ["INSERT"]
    assert statements(store, "c", "d", put=("d",)) == ["INSERT"]
    assert statements(store, "e", put=("elsewhere",))[0] == "BEGIN"
    assert statements(store, "f", put=("f",), keys=("elsewhere",))[1] == "BEGIN"
    assert statements(store, "g", put=("g",), keys=("a",))[1] == "BEGIN"
    values = dict.fromkeys(["b", "d", "elsewhere", "f", "g"], b"value")
    assert store.get(NS) == {"a": b"1", **values}
    assert ids(store) == ["a", "b", "c", "d", "e", "f", "g"]
    store.close()


def test_a_value_beside_an_entry_outlives_it_where_none_had_one_before(
    stores: tuple[SQLiteStore, SQLiteStore],
) -> None:
    store, other = stores
    store.append(NS, [("a", b"")])
    store.append(NS, [("b", b"")], put={"b": b"value"})
    other.write(NS, remove=other.scan(NS).items)
    assert store.get(NS) == {"b": b"value"}


def test_one_who_was_overtaken_looks_again(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    store, other = stores
    store.append(NS, [("a", b"")])
    other.append(NS, [("b", b"")])
    assert statements(store, "c")[1] == "BEGIN"
    assert statements(store, "d") == ["INSERT"]
    assert ids(store) == ["a", "b", "c", "d"]


def test_what_is_known_is_not_appended_again(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    store, _ = stores
    store.append(NS, [("a", b"first")])
    assert store.append(NS, [("b", b""), ("a", b"again"), ("b", b"twice")]) == ([True, False, False], 2, {})
    assert [item[1:] for item in store.scan(NS).items] == [("a", b"first"), ("b", b"")]


def begin_anew(store: SQLiteStore) -> None:
    store.clear(NS)
    store.append(NS, [("z", b"")])


def remove(store: SQLiteStore, *places: int) -> None:
    items = store.scan(NS).items
    store.write(NS, remove=[items[n] for n in places])


BETWEEN: dict[str, Callable[[SQLiteStore], Any]] = {
    "nothing": lambda _: None,
    "the first is removed": lambda store: remove(store, 0),
    "the last is removed": lambda store: remove(store, -1),
    "all are removed": lambda store: remove(store, *range(store.scan(NS).total)),
    "one takes the place of another": lambda store: store.write(
        NS, remove=store.scan(NS).items[-1:], append=[("z", b"")]
    ),
    "cleared": lambda store: store.clear(NS),
    "cleared and begun anew": begin_anew,
    "a value is written": lambda store: store.write(NS, put={"x": b"value"}),
    "a value is written beside an entry": lambda store: store.write(NS, put={"x": b"value"}, append=[("x", b"")]),
    "it gets an end": lambda store: store.write(NS, ttl=5),
    "it gets an end with an entry": lambda store: store.append(NS, [("z", b"")], ttl=5),
}


@pytest.mark.parametrize("put", [False, True])
@pytest.mark.parametrize("keys", [(), ("x",)])
@pytest.mark.parametrize("before", [["0"], ["0", "1"], ["01"]], ids=["one", "two", "two at once"])
@pytest.mark.parametrize("between", BETWEEN)
def test_whatever_came_in_between_an_append_is_what_it_would_be(
    stores: tuple[SQLiteStore, SQLiteStore],
    clock: FakeClock,
    between: str,
    before: list[str],
    *,
    keys: tuple[str, ...],
    put: bool,
) -> None:
    def values(id_: str) -> dict[str, bytes]:
        return {id_: to_bytes(id_)} if put else {}

    store, other = stores
    for together in before:  # the first writes the row, what comes later does not
        store.append(NS, [(id_, b"") for id_ in together], put=values(together[-1]))
    BETWEEN[between](other)
    fresh = SQLiteStore(store.path, clock=clock)
    old, held = fresh.scan(NS, keys=keys), fresh.get(NS)
    fresh.close()
    assert store.append(NS, [("new", b"")], put=values("new"), keys=keys) == ([True], old.total + 1, old.values)
    assert store.append(NS, [("newer", b"")], put=values("newer"), keys=keys) == ([True], old.total + 2, old.values)
    assert store.get(NS) == held | values("new") | values("newer")
    assert ids(store) == [*(item.id for item in old.items), "new", "newer"]
    assert (dates := store.dates(NS)) is not None
    assert dates.expires_in is None
    store.clear(NS)
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM langmem_log").fetchone() == (0,)


def test_what_has_expired_is_removed_beside_appending(
    stores: tuple[SQLiteStore, SQLiteStore], clock: FakeClock
) -> None:
    store, _ = stores
    store.append(NS, [("a", b"")])
    store.append(OTHER, [("a", b"")], ttl=10)
    clock.advance(11)
    store.append(NS, [("b", b"")])
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM langmem_log").fetchone() == (2,)


@pytest.mark.parametrize("seconds", [1, 61, -5])
def test_the_list_of_sessions_is_never_far_behind(
    stores: tuple[SQLiteStore, SQLiteStore], clock: FakeClock, seconds: float
) -> None:
    store, _ = stores
    store.append(NS, [("a", b"")])
    clock.advance(seconds)
    store.append(NS, [("b", b"")])
    with closing(sqlite3.connect(store.path)) as connection:
        (listed_at,) = connection.execute("SELECT listed_at FROM langmem_namespaces").fetchone()
    assert 0 <= clock() - listed_at < LISTING_LAG_SECONDS


def test_one_in_a_hurry_waits_for_a_writer_as_ever(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db", fails_fast=True, timeout=60)
    store.append(NS, [("a", b"")])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as writer, ThreadPoolExecutor() as others:
        writer.execute("BEGIN IMMEDIATE")
        appended = others.submit(store.append, NS, [("b", b"")])
        with pytest.raises(TimeoutError):
            appended.result(0.1)
        writer.execute("COMMIT")
        assert appended.result(60) == ([True], 2, {})
    store.close()


def test_one_in_a_hurry_waits_once_for_a_file_that_does_not_open(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(SQLiteStore(path)) as store:
        store.append(NS, [("a", b"")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        store = SQLiteStore(path, fails_fast=True, timeout=0.1)
        for sentence in ("was locked", BREAKER_SUFFIX, BREAKER_SUFFIX):
            with pytest.raises(StoreUnavailable, match=sentence):
                store.append(NS, [("b", b"")])
    store.close()


def test_any_number_of_values_is_asked_for(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    store, _ = stores
    store.append(NS, [("a", b"")])
    assert store.append(NS, [("b", b"")], keys=[f"{n}" for n in range(300_000)]) == ([True], 2, {})


def test_a_file_that_is_replaced_is_not_guessed_about(tmp_path: Path, clock: FakeClock) -> None:
    """An older copy, whose log ends before the place that is remembered."""
    path, copy = tmp_path / "store.db", tmp_path / "copy.db"
    store = SQLiteStore(path, clock=clock)
    store.append(NS, [("a", b"")])
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    store.append(NS, [("b", b""), ("c", b"")])
    store.close()
    copy.replace(path)
    store.append(NS, [("d", b"")])
    assert ids(store) == ["a", "d"]
    store.close()


def test_neither_is_one_into_which_a_backup_is_restored(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    """As by sqlite3's .restore: the file stays the same, and its connections stay open."""
    store, other = stores
    store.append(NS, [("a", b"")])
    other.append(NS, [("b", b"")])
    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(store.path)) as file:
        file.backup(copy)
        store.append(NS, [("c", b""), ("d", b"")])
        assert statements(store, "e") == ["INSERT"]
        copy.backup(file)
    store.append(NS, [("f", b"")])
    assert ids(store) == ["a", "b", "f"]


def test_a_backup_from_before_a_session_gives_its_number_to_another(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    store, other = stores
    other.append(("brain", "", "", "older"), [("o", b"")])
    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(store.path)) as file:
        file.backup(copy)
        for id_ in ("a", "b"):
            store.append(NS, [(id_, b"")])
        copy.backup(file)
    for id_ in ("c", "d"):
        other.append(OTHER, [(id_, b"")])
    store.append(NS, [("e", b"")])
    assert ids(store) == ["e"]
    assert [item.id for item in other.scan(OTHER).items] == ["c", "d"]


def test_after_a_backup_two_sessions_may_have_each_others_numbers(stores: tuple[SQLiteStore, SQLiteStore]) -> None:
    store, other = stores
    other.append(("brain", "", "", "older"), [("o", b"")])
    with closing(sqlite3.connect(":memory:")) as copy, closing(sqlite3.connect(store.path)) as file:
        file.backup(copy)
        for namespace in (OTHER, NS):
            store.append(namespace, [("a", b"")])
        copy.backup(file)
    for namespace, id_ in ((NS, "b"), (OTHER, "c")):
        other.append(namespace, [(id_, b"")])
    store.append(NS, [("d", b"")])
    assert ids(store) == ["b", "d"]
    assert [item.id for item in other.scan(OTHER).items] == ["c"]


_folder = tempfile.TemporaryDirectory()
_numbers = itertools.count()
_names = st.sampled_from(["a", "b", "c", "d", "e", "f"])
_entries = st.lists(st.tuples(_names, st.binary(max_size=2)), max_size=4)
_steps = st.lists(
    st.tuples(
        st.integers(0, 1),  # whose connection
        st.sampled_from([NS, NS, OTHER]),
        st.one_of(
            st.tuples(st.just("append"), _entries, st.sampled_from([(), (), ("x",), ("x", "y")])),
            st.tuples(st.just("append"), _entries, st.just(("x",))),
            st.tuples(st.just("append and put"), _entries, st.sampled_from([(), ("x",), ("a", "x"), ("b", "c", "y")])),
            st.tuples(st.just("append for"), _entries, st.sampled_from([5.0, 500.0])),
            st.tuples(st.just("put"), st.sampled_from(["x", "y", "a"]), st.lists(_names, max_size=1)),
            st.tuples(st.just("remove"), st.sets(st.integers(0, 9), max_size=3), _entries),
            st.tuples(st.just("wait"), st.sampled_from([1.0, 7.0, 61.0, -5.0]), st.none()),
            st.tuples(st.just("clear"), st.none(), st.none()),
        ),
    ),
    max_size=25,
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(steps=_steps)
def test_whatever_two_do_the_file_holds_what_the_memory_holds(steps: list[Any]) -> None:
    clock = FakeClock()
    memory = MemoryStore(clock=clock)
    path = Path(_folder.name) / f"append{next(_numbers)}.db"
    files = [SQLiteStore(path, clock=clock) for _ in range(2)]
    for who, namespace, step in steps:
        assert _done(files[who], namespace, step, clock) == _done(memory, namespace, step, None)
        for looked in (NS, OTHER):
            ours, theirs = files[1 - who].scan(looked, keys=["x", "a"]), memory.scan(looked, keys=["x", "a"])
            assert [item[1:] for item in ours.items] == [item[1:] for item in theirs.items]
            assert ours[1:] == theirs[1:]
    for file in files:
        file.close()


def _done(store: SQLiteStore | MemoryStore, namespace: Any, step: tuple[str, Any, Any], clock: FakeClock | None) -> Any:
    kind, one, two = step
    if kind in {"append", "append and put"}:
        return store.append(namespace, one, put=dict(one) if kind == "append and put" else None, keys=two)
    if kind == "append for":
        return store.append(namespace, one, ttl=two)
    if kind == "put":
        return store.write(namespace, put={one: b"value"}, append=[(id_, b"") for id_ in two])
    if kind == "remove":
        items = store.scan(namespace).items
        return store.write(namespace, remove=[items[n] for n in one if n < len(items)], append=two)
    if kind == "clear":
        return store.clear(namespace)
    return clock.advance(one) if clock is not None else None
