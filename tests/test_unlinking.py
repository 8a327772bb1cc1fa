"""What is large leaves its file in parts: others write meanwhile, and whoever dies half-way leaves nothing behind."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from langmem_adapters.concurrency import pauses
from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.protocols import Document, Index
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock

NS = ("longterm", "", "ada")
OTHER = ("longterm", "", "bob")
MANY = 4500


class Killed(BaseException):
    """What ends a process."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "large.db"


def rows(path: Path) -> int:
    """How many rows there are in all tables of ours, but for those that say what version the file has."""
    with closing(sqlite3.connect(path)) as raw:
        tables = raw.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'langmem_*' AND name != 'langmem_schema'"
        ).fetchall()
        return sum(raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for (table,) in tables)


class Kept(NamedTuple):
    """Something large in a file: what fills it, clears it, and tells what it has."""

    fill: Callable[[tuple[str, ...], int], None]
    clear: Callable[[tuple[str, ...]], None]
    there: Callable[[tuple[str, ...]], list[str]]


def embedder() -> Embedder:
    return Embedder(lambda texts: [[1.0, float(len(text))] for text in texts], name="lengths")


def of_index(index: Index) -> Kept:
    def fill(namespace: tuple[str, ...], count: int) -> None:
        index.apply(namespace, upsert=[Document(f"{n}", f"bike {n}") for n in range(count)], position=(1, "e"))

    return Kept(fill, index.clear, lambda namespace: [hit.id for hit in index.search(namespace, "bike", 5)])


@pytest.fixture(params=["log", "values", "words", "vectors"])
def kept(request: pytest.FixtureRequest, path: Path) -> Iterator[Kept]:
    store = SQLiteStore(path)
    if request.param in {"words", "vectors"}:
        index = open_index(f"sqlite:///{path}")
        yield of_index(index if request.param == "words" else open_vectors(f"sqlite:///{path}", embedder()))
        index.close()
    elif request.param == "log":
        yield Kept(
            lambda namespace, count: void(store.append(namespace, [(f"{n}", b"") for n in range(count)])),
            store.clear,
            lambda namespace: [item.id for item in store.scan(namespace, limit=5).items],
        )
    else:
        yield Kept(
            lambda namespace, count: store.write(namespace, put={f"{n}": b"" for n in range(count)}),
            store.clear,
            lambda namespace: list(store.get(namespace))[:5],
        )
    store.close()


def void(_: object) -> None:
    """Leave out what is returned."""


def test_others_write_while_something_large_is_cleared(kept: Kept, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.fill(NS, MANY)
    between: list[tuple[list[str], list[str]]] = []

    def write(_: float) -> None:
        with closing(SQLiteStore(path, timeout=0)) as other:  # that does not wait for a writer
            other.append(("brain", "", "carl", "s"), [(f"{len(between)}", b"")])
        between.append((kept.there(NS), kept.there(OTHER)))

    kept.fill(OTHER, 1)
    monkeypatch.setattr(pauses, "sleep", write)
    kept.clear(NS)
    assert between
    assert set(map(repr, between)) == {repr(([], ["0"]))}  # gone at once, and nothing else was
    assert kept.there(OTHER) == ["0"]
    kept.clear(OTHER)
    with closing(SQLiteStore(path)) as store:
        assert store.scan(("brain", "", "carl", "s")).total == len(between)
        store.clear(("brain", "", "carl", "s"))
    assert rows(path) == 0


def test_what_comes_again_meanwhile_stays(kept: Kept, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.fill(NS, MANY)
    monkeypatch.setattr(pauses, "sleep", lambda _: kept.fill(NS, 1))
    kept.clear(NS)
    assert kept.there(NS) == ["0"]
    monkeypatch.undo()
    kept.clear(NS)
    assert rows(path) == 0


def test_what_others_write_meanwhile_is_found_by_all_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(LexicalIndex(":memory:")) as index:
        threads = tuple(f"{n}" for n in range(MANY))
        index.apply(NS, upsert=[Document("0", "bike", thread="x", again=threads)])
        said_again = Document("0", "bike", thread="x", again=(max(threads),))
        monkeypatch.setattr(pauses, "sleep", lambda _: index.apply(OTHER, upsert=[said_again]))
        index.clear(NS)
        assert [hit.id for hit in index.within(OTHER, "bike", max(threads))] == ["0"]


def die(_: float) -> None:
    raise Killed


@pytest.mark.parametrize("again", [True, False])
def test_the_next_one_goes_on_after_one_who_died(
    kept: Kept, path: Path, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    kept.fill(NS, MANY)
    monkeypatch.setattr(pauses, "sleep", die)
    with pytest.raises(Killed):
        kept.clear(NS)
    assert (kept.there(NS), rows(path) > 0) == ([], True)
    monkeypatch.undo()
    if again:
        kept.fill(NS, 1)
        assert kept.there(NS) == ["0"]
    kept.clear(NS)
    assert rows(path) == 0


@pytest.mark.parametrize("kind", ["words", "vectors"])
def test_an_index_lists_once_what_was_left_and_is_there_again(
    kind: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = kind == "words"
    with closing(LexicalIndex(path) if words else open_vectors(f"sqlite:///{path}", embedder())) as index:
        fill = of_index(index).fill
        fill(NS, MANY)
        monkeypatch.setattr(pauses, "sleep", die)
        with pytest.raises(Killed):
            index.clear(NS)
        assert index.namespaces() == [NS]  # so whoever deletes all of a user's finds what was left
        fill(NS, 1)
        assert index.namespaces() == [NS]


def test_what_was_left_in_a_store_goes_beside_later_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SQLiteStore(path)) as store:
        store.write(NS, put={f"{n}": b"" for n in range(MANY)}, append=[(f"{n}", b"") for n in range(MANY)])
        monkeypatch.setattr(pauses, "sleep", die)
        with pytest.raises(Killed):
            store.clear(NS)
        assert [*store.namespaces(), *store.recent(NS[:-1])] == []
        assert store.stats().kinds == {}
        before = rows(path)
        for n in range(8):
            store.append(OTHER, [(f"{n}", b"")])
            left = rows(path)
            assert before - left < 1100  # at a time
            before = left
        assert left == 9  # the namespace, and its entries


def test_values_that_expired_leave_the_file_a_few_at_a_time(path: Path) -> None:
    clock = FakeClock()
    with closing(SQLiteStore(path, clock=clock)) as store:
        store.write(NS, put={f"{n}": b"" for n in range(2500)}, ttl=10)
        clock.advance(11)
        counts = []
        for n in range(4):
            store.append(OTHER, [(f"{n}", b"")])
            counts.append(rows(path))
        assert counts == [1503, 504, 4, 5]


def test_one_that_expired_and_is_written_again_leaves_a_few_at_a_time(path: Path) -> None:
    clock = FakeClock()
    with closing(SQLiteStore(path, clock=clock)) as store:
        store.append(NS, [(f"{n}", b"") for n in range(2500)], ttl=10)
        clock.advance(11)
        counts = []
        for n in range(4):
            assert store.append(NS, [(f"new{n}", b"")]).total == n + 1
            counts.append(rows(path))
        assert counts == [1503, 504, 4, 5]
        assert [item.id for item in store.scan(NS).items] == [f"new{n}" for n in range(4)]


def test_what_lies_below_is_not_what_was_unlinked(kept: Kept) -> None:
    below = [(*NS, f"{sign}1") for sign in ("", "~", "|", "}", "/", "\x7f")]
    for namespace in below:
        kept.fill(namespace, 1)
    kept.fill(NS, MANY)
    kept.clear(NS)
    kept.clear(NS)
    assert [kept.there(namespace) for namespace in below] == [["0"]] * len(below)


def rows_left(index: Index, path: Path) -> list[int]:
    """How many rows a file has as the documents of another index are replaced by those of this one, one by one."""
    counts = [rows(path)]
    for n in range(10):
        index.apply(NS, upsert=[Document(f"{n}", "bike")], position=(n, "e"))
        counts.append(rows(path))
    assert [hit.id for hit in index.search(NS, "bike", 50)] == [f"{n}" for n in reversed(range(10))]
    return counts


def test_another_analyzer_s_words_go_beside_later_changes(path: Path) -> None:
    with closing(LexicalIndex(path)) as old:
        old.apply(NS, upsert=[Document(f"{n}", f"bike {n}") for n in range(MANY)])
    with closing(LexicalIndex(path, analyzer=str.split, analyzer_id="split")) as new:
        counts = rows_left(new, path)
    assert max(before - after for before, after in itertools.pairwise(counts)) < 5000
    assert counts[-1] < 30


def test_another_embedder_s_vectors_go_beside_later_changes(path: Path) -> None:
    url = f"sqlite:///{path}"
    with closing(open_vectors(url, embedder())) as old:
        old.apply(NS, upsert=[Document(f"{n}", f"bike {n}") for n in range(MANY)])
    with closing(open_vectors(url, Embedder(lambda texts: [[1.0] for _ in texts], name="ones"))) as new:
        counts = rows_left(new, path)
    assert max(before - after for before, after in itertools.pairwise(counts)) < 4100
    assert counts[-1] < 30


def test_notes_of_removed_vectors_go_with_the_others(path: Path) -> None:
    with closing(open_vectors(f"sqlite:///{path}", embedder())) as index:
        index.apply(NS, upsert=[Document(f"{n}", f"bike {n}") for n in range(3)])
        index.apply(NS, delete=["1"])
        index.clear(NS)
        assert rows(path) == 0
