"""Where a file keeps a value: beside the log entry of the same name, or by itself, and never in both places."""

from __future__ import annotations

import itertools
import re
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, Experience, ExperiencePool
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.files.database import Database
from langmem_adapters.protocols import Item
from langmem_adapters.stores import sqlite_namespaces, sqlite_values
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.stores.sqlite_namespaces import SCHEMA
from langmem_adapters.testing import FakeClock

NS = ("pool", "t", "", "s")
OTHER = ("pool", "t", "", "other")
_BEFORE = 11  # the version of the schema in which every value had a row of its own


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "store.db")
    yield made
    made.close()


def places(store: SQLiteStore) -> tuple[list[str], list[str]]:
    """Keys whose values are beside log entries, and those whose values have rows of their own."""
    with closing(sqlite3.connect(store.path)) as raw:
        beside = raw.execute("SELECT id FROM langmem_log WHERE value IS NOT NULL ORDER BY 1").fetchall()
        alone = raw.execute("SELECT key FROM langmem_values ORDER BY 1").fetchall()
    return [key for (key,) in beside], [key for (key,) in alone]


def older(path: Path, values: dict[str, bytes], log: Sequence[str]) -> None:
    """A file as it was written before, with these values and log entries."""
    before = Database(path, schema=SCHEMA[:_BEFORE], name="store")
    with before.writing() as raw:
        raw.execute(
            "INSERT INTO langmem_namespaces (number, name, parent, next, total, updated_at, listed_at)"
            " VALUES (1, 'pool/t//s/', 'pool/t//', ?, ?, 1, 1)",
            (len(log) + 1, len(log)),
        )
        raw.executemany("INSERT INTO langmem_values VALUES (1, ?, ?)", values.items())
        rows = [((1 << 32) + n, id_, b"", None) for n, id_ in enumerate(log, 1)]
        raw.executemany("INSERT INTO langmem_log VALUES (?, ?, ?, ?)", rows)
    before.close()


# --- one row


def test_what_is_written_with_an_entry_of_its_name_is_one_row(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1", "alone": b"2"}, append=[("a", b"of the log"), ("b", b"")])
    assert places(store) == (["a"], ["alone"])
    assert store.get(NS) == {"a": b"1", "alone": b"2"}
    assert [(item.id, item.data) for item in store.scan(NS).items] == [("a", b"of the log"), ("b", b"")]


def test_a_value_stays_in_its_row_however_it_is_replaced(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1"}, append=[("a", b"first")])
    (first,) = store.scan(NS).items
    store.write(NS, put={"a": b"2"})
    assert (places(store), store.get(NS)) == ((["a"], []), {"a": b"2"})
    store.write(NS, put={"a": b"3"}, append=[("a", b"again")])
    assert (places(store), store.get(NS)) == ((["a"], []), {"a": b"3"})
    assert store.scan(NS).items == [first]  # its place and its data are those of the first writing


def test_an_empty_value_is_a_value(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b""}, append=[("a", b"")])
    assert store.get(NS, ["a"]) == store.get(NS) == {"a": b""}
    with pytest.raises(Conflict):
        store.write(NS, put={"a": b"1"}, guard={"a": None})


def test_what_an_editor_of_databases_leaves_as_text_is_read(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    store.write(NS, append=[("beside", b"in the shed")], put={"beside": b"in the shed", "alone": b"in the sh\xc3\xa9d"})
    brain = BrainMemory(store, "monday")
    brain.add_talk("My bike is in the shed.")
    store.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(
            "UPDATE langmem_log SET data = replace(data, 'in', 'on'), value = replace(value, 'in', 'on')"
        )
        connection.execute("UPDATE langmem_values SET data = replace(data, 'in the', 'on a')")
    assert store.get(NS, ["beside", "alone"]) == {"beside": b"on the shed", "alone": b"on a sh\xc3\xa9d"}
    assert store.get(NS) == {"beside": b"on the shed", "alone": b"on a sh\xc3\xa9d"}
    (item,) = store.scan(NS).items
    assert item.data == b"on the shed"
    store.write(NS, remove=[item], guard={"beside": b"on the shed"})
    assert store.get(NS, ["beside"]) == {"beside": b"on the shed"}  # taken along from its entry
    assert [message.text for message in brain.messages()] == ["My bike is on the shed."]
    store.close()


def test_a_value_that_was_deleted_leaves_its_entry(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1"}, append=[("a", b"x")])
    store.write(NS, delete=["a"])
    assert (places(store), store.get(NS), store.scan(NS).total) == (([], []), {}, 1)
    store.write(NS, put={"a": b"2"})
    assert (places(store), store.get(NS)) == (([], ["a"]), {"a": b"2"})
    store.write(NS, put={"a": b"3"}, append=[("a", b"y")])
    assert (places(store), store.get(NS)) == ((["a"], []), {"a": b"3"})


def test_a_value_outlives_its_entry(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1", "b": b"2", "c": b"3"}, append=[("a", b""), ("b", b""), ("c", b"")])
    a, b, c = store.scan(NS).items
    store.write(NS, remove=[a], put={"b": b"new"})
    assert (places(store), store.get(NS)) == ((["b", "c"], ["a"]), {"a": b"1", "b": b"new", "c": b"3"})
    store.write(NS, remove=[b], append=[("b", b"at the new end")])
    assert (places(store), store.get(NS)["b"]) == ((["b", "c"], ["a"]), b"new")
    assert [item.id for item in store.scan(NS).items] == ["c", "b"]
    store.write(NS, remove=[c], delete=["c"])
    assert store.get(NS) == {"a": b"1", "b": b"new"}


def test_an_entry_of_another_namespace_is_not_taken_for_one_of_this(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1"}, append=[("a", b"")])
    store.write(OTHER, put={"a": b"2"}, append=[("a", b"")])
    (theirs,) = store.scan(OTHER).items
    store.write(NS, remove=[theirs])
    store.write(NS, delete=["b"], put={"c": b"3"})
    assert store.get(NS) == {"a": b"1", "c": b"3"}
    assert store.get(OTHER) == {"a": b"2"}
    store.write(OTHER, delete=["a"])
    assert store.get(NS, ["a"]) == {"a": b"1"}


def test_a_value_moves_to_its_entry_though_no_other_namespace_has_one_to_move(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1"}, append=[("a", b"")])
    store.write(OTHER, put={"a": b"2"})
    store.write(OTHER, put={"a": b"3"}, append=[("a", b"")])
    assert places(store) == (["a", "a"], [])
    assert store.get(OTHER) == {"a": b"3"}


def test_a_refused_write_changes_neither_place(store: SQLiteStore) -> None:
    store.write(NS, put={"a": b"1", "b": b"2"}, append=[("a", b"")])
    before = places(store), store.get(NS), store.scan(NS)
    changed: dict[str, Any] = {
        "put": {"a": b"x", "b": b"y"},
        "append": [("b", b""), ("c", b"")],
        "remove": before[2].items,
    }
    with pytest.raises(Conflict):
        store.write(NS, guard={"a": b"not this"}, **changed)
    with pytest.raises(SerializationError):
        store.write(NS, **{**changed, "append": [("b", b""), ("\ud800", b"")]})
    assert (places(store), store.get(NS), store.scan(NS)) == before


def test_values_of_both_places_expire_and_are_cleared(tmp_path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "expiring.db", clock=clock)
    store.write(NS, put={"a": b"1", "b": b"2"}, append=[("a", b"")], ttl=10)
    store.write(OTHER, put={"a": b"1", "b": b"2"}, append=[("a", b"")])
    clock.advance(10)
    assert store.get(NS, ["a", "b"]) == store.get(NS) == {}
    store.write(OTHER, delete=["b"])
    assert places(store) == (["a"], [])  # what had expired went beside
    store.clear(OTHER)
    assert places(store) == ([], [])
    store.close()


# --- reading


@pytest.mark.parametrize("count", [1, 2, 3, 8, 31, 64, 65, 128, 300])
def test_any_number_of_keys_is_read_from_both_places(store: SQLiteStore, count: int) -> None:
    keys = [f"k{n}" for n in range(count)]
    store.write(OTHER, put=dict.fromkeys(keys, b"another's"), append=[(key, b"") for key in keys[::2]])
    for n, key in enumerate(keys):
        if n % 3:
            store.write(NS, put={key: key.encode()}, append=[(key, b"")] * (n % 3 == 1))
    expected = {key: key.encode() for n, key in enumerate(keys) if n % 3}
    assert store.get(NS, keys) == store.get(NS) == store.scan(NS, keys=keys).values == expected
    assert store.get(NS, [keys[-1]] * count + keys) == expected
    assert store.append(NS, [], keys=keys).values == expected
    if expected:
        store.write(NS, guard={key: expected.get(key) for key in keys})


@pytest.mark.parametrize("count", [1, sqlite_values.MAX_KEYS])
def test_a_look_up_walks_through_no_table(store: SQLiteStore, count: int) -> None:
    store.write(NS, put={"a": b"1"}, append=[("a", b"")])
    keys = [str(n) for n in range(count)]
    with closing(sqlite3.connect(store.path)) as raw:
        statement, asked = sqlite_values.lookup_statement("x", 0.0, keys)
        plan = raw.execute(f"EXPLAIN QUERY PLAN {statement}", asked)
        steps = [row[-1] for row in plan]
    assert len([step for step in steps if step.startswith("SEARCH langmem_")]) == 4
    assert not [step for step in steps if step.startswith("SCAN")]


def test_all_values_of_a_long_session_are_read_without_its_log(store: SQLiteStore) -> None:
    store.append(NS, [(str(n), b"said") for n in range(5000)])
    store.write(NS, put={"summary": b"1", "title": b"2"})
    store.write(OTHER, put={"a": b"3"}, append=[("a", b"")])
    (connection,) = store._database._idle
    steps = itertools.count()
    connection.set_progress_handler(lambda: next(steps) < 0, 1)
    assert store.get(NS) == {"summary": b"1", "title": b"2"}
    store.write(NS, put={"title": b"3"}, delete=["summary"], remove=store.scan(NS, limit=1).items)
    assert store.get(NS) == {"title": b"3"}
    assert next(steps) < 1000


@pytest.mark.parametrize(
    "statement",
    [
        sqlite_values._SELECT_BY_NUMBER[sqlite_values.MAX_KEYS],
        sqlite_values._SELECT_INLINE,
        sqlite_values._SELECT_INLINE_OF_ENTRY,
        sqlite_values._UPDATE_INLINE,
        sqlite_values._DELETE_SEPARATE,
        sqlite_namespaces._SET_INLINE_VALUE,
        sqlite_namespaces._OPEN,
    ],
)
def test_no_change_walks_through_a_table(store: SQLiteStore, statement: str) -> None:
    store.write(NS, put={"a": b"1"}, append=[("a", b"")])
    with closing(sqlite3.connect(store.path)) as raw:
        steps = [row[-1] for row in raw.execute("EXPLAIN QUERY PLAN " + statement, [1] * statement.count("?"))]
    assert [step for step in steps if step.startswith("SEARCH langmem_")]
    assert not [step for step in steps if step.startswith("SCAN")]


def test_no_parameter_has_a_number() -> None:
    """Python 3.12.0 to 3.12.3 take such numbers for names, and warn."""
    for module in Path(sqlite_values.__file__).parent.glob("sqlite*.py"):
        assert not re.search(r"\?\d", module.read_text()), module.name


# --- older files


def test_a_file_in_which_each_value_had_its_own_row_is_taken_over(tmp_path: Path) -> None:
    values = {"a": b"1", "b": b"2", "c": b"3", "d": b"4", "only": b"5"}
    older(tmp_path / "old.db", values, ["a", "b", "c", "d"])
    store = SQLiteStore(tmp_path / "old.db")
    assert store.get(NS) == store.get(NS, list(values)) == values
    assert places(store) == ([], sorted(values))
    store.write(NS, put={"a": b"new"}, append=[("a", b"")])  # moves in
    store.write(NS, put={"b": b"new"})
    store.write(NS, delete=["c"])
    store.write(NS, remove=[item for item in store.scan(NS).items if item.id == "d"], delete=["d"])
    assert places(store) == (["a"], ["b", "only"])
    assert store.get(NS) == {"a": b"new", "b": b"new", "only": b"5"}
    assert [item.id for item in store.scan(NS).items] == ["a", "b", "c"]
    store.close()


def test_a_pool_in_an_older_file_goes_on(tmp_path: Path) -> None:
    experiences = {f"k{n}": Experience(req=n, resp=f"old {n}", uuid=str(n)).to_bytes() for n in range(9)}
    before = {**experiences, "gone\0k3": b""}
    del before["k3"]
    older(tmp_path / "old.db", before, list(experiences))
    with closing(sqlite3.connect(tmp_path / "old.db")) as raw, raw:
        raw.execute("UPDATE langmem_namespaces SET name = 'experience////', parent = 'experience///'")
    store = SQLiteStore(tmp_path / "old.db")
    pool = ExperiencePool(store)
    assert [e.resp for e in pool.all()] == [f"old {n}" for n in range(9) if n != 3]
    for n in (3, 4, 20):
        pool.create(Experience(req=n, resp=f"new {n}"), key=f"k{n}")
    assert pool.delete(key="k0")
    found = {key: e.resp for key in (f"k{n}" for n in range(21)) if (e := pool.lookup(key=key))}
    assert found == {f"k{n}": f"old {n}" for n in range(1, 9)} | {f"k{n}": f"new {n}" for n in (3, 4, 20)}
    assert sorted(e.resp for e in pool.all()) == sorted(found.values())
    store.close()


# --- whatever happens

_folder = tempfile.TemporaryDirectory()
_numbers = itertools.count()
_names = st.sampled_from(["a", "b", "c", "d", "e"])
_data = st.binary(max_size=3)
_writes = st.lists(
    st.fixed_dictionaries(
        {
            "namespace": st.sampled_from([NS, NS, OTHER]),
            "put": st.dictionaries(_names, _data, max_size=3),
            "delete": st.lists(_names, max_size=2),
            "append": st.lists(st.tuples(_names, _data), max_size=3),
            "remove": st.sets(st.integers(0, 4), max_size=2),
            "guard": st.none() | st.tuples(_names, st.booleans()),
        }
    ),
    max_size=15,
)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(writes=_writes, is_old=st.booleans())
def test_whatever_is_written_a_file_holds_what_the_memory_holds(writes: list[dict[str, Any]], is_old: bool) -> None:
    clock = FakeClock()
    memory = MemoryStore(clock=clock)
    path = Path(_folder.name) / f"walk{next(_numbers)}.db"
    if is_old:
        older(path, {"a": b"1", "b": b"2"}, ["a", "c"])
        memory.write(NS, put={"a": b"1", "b": b"2"}, append=[("a", b""), ("c", b"")])
    file = SQLiteStore(path, clock=clock)
    for change in writes:
        clock.advance(1)
        assert _outcome(file, **change) == _outcome(memory, **change)
        beside, alone = places(file)
        assert len(beside) + len(alone) == sum(len(memory.get(namespace)) for namespace in (NS, OTHER))
        for namespace in (NS, OTHER):
            assert file.get(namespace) == file.get(namespace, list("abcde")) == memory.get(namespace)
            ours, theirs = file.scan(namespace, keys=["a", "b"]), memory.scan(namespace, keys=["a", "b"])
            assert [item[1:] for item in ours.items] == [item[1:] for item in theirs.items]
            assert ours[1:] == theirs[1:]
    file.close()


def _outcome(store: SQLiteStore | MemoryStore, **change: Any) -> str:
    namespace, guard = change.pop("namespace"), change.pop("guard")
    items = store.scan(namespace).items
    remove: list[Item] = [items[n] for n in change.pop("remove") if n < len(items)]
    expected = None
    if guard is not None:
        key, right = guard
        expected = {key: store.get(namespace, [key]).get(key) if right else b"a wrong guess"}
    try:
        store.write(namespace, remove=remove, guard=expected, **change)
    except Conflict:
        return "conflict"
    return "written"
