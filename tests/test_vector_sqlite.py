"""Vectors in SQLite: exact, seen by every process, whole after a crash, and within their memory."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import random
import sqlite3
from array import array
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from langmem_adapters.embedding import Embedder, Embedding, Vector
from langmem_adapters.errors import SearchError
from langmem_adapters.indexes.vector import EmbedderSpec, VectorIndex
from langmem_adapters.indexes.vector_matrix import Matrix
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.protocols import Document
from langmem_adapters.records.keyed import Records
from langmem_adapters.stores.sqlite import SQLiteStore
from tests.faults import again_and_again
from tests.interpreters import child
from tests.vector_places import word_vectors

NOTES = ("notes",)
MAKER = EmbedderSpec("test", 8)


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[SQLiteVectors]:
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as opened:
        yield opened


def index_in(path: Path) -> VectorIndex:
    return VectorIndex(SQLiteVectors(path), Embedder(word_vectors, name="words-64"))


def put(vectors: SQLiteVectors, upsert: dict[str, Vector], delete: list[str] | None = None, name: str = "n/") -> None:
    new = {id_: Embedding(vector) for id_, vector in upsert.items()}
    vectors.change(name, MAKER, upsert=new, delete=delete or [], position=None)


def unit(chance: random.Random, numbers: int = 8) -> Vector:
    raw = [chance.gauss(0, 1) for _ in range(numbers)]
    return array("f", [x / math.hypot(*raw) for x in raw])


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def ids(found: list[tuple[str, float]]) -> list[str]:
    return [id_ for id_, _ in found]


# ---- exact


@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-6, 0.0])
def test_the_order_is_exact_however_near_the_vectors_are(vectors: SQLiteVectors, spread: float) -> None:
    chance = random.Random(7)
    centre = unit(chance)
    known: dict[str, Vector] = {}
    for n in range(3_000):
        raw = [x + spread * chance.gauss(0, 1) for x in centre]
        known[f"d{n}"] = array("f", [x / math.hypot(*raw) for x in raw])
    put(vectors, known)
    for k in (1, 5, 100):
        query = unit(chance)
        found = vectors.nearest("n/", MAKER, query, k)
        expected = sorted(known, key=lambda id_: (-dot(known[id_], query), -int(id_[1:])))[:k]
        assert [cos for _, cos in found] == pytest.approx([dot(known[id_], query) for id_ in expected], abs=1e-12)
        if spread != 1e-6:  # there, 64 bits end as well
            assert ids(found) == expected


def test_of_equal_texts_the_one_added_last_comes_first(vectors: SQLiteVectors) -> None:
    same = array("f", [1.0, *[0.0] * 7])
    put(vectors, {f"d{n}": same for n in range(5)})
    put(vectors, {"d1": same})
    assert ids(vectors.nearest("n/", MAKER, same, 3)) == ["d1", "d4", "d3"]


# ---- memory


def test_what_is_in_memory_follows_by_the_new_rows_only(
    vectors: SQLiteVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(1)
    known = {f"d{n}": unit(chance) for n in range(500)}
    put(vectors, known)
    query = unit(chance)
    vectors.nearest("n/", MAKER, query, 1)
    seen: list[int] = []
    compared: list[int] = []
    extend, keep = Matrix.extend, Matrix.retain

    def watched_extend(matrix: Matrix, rows: list[tuple[int, bytes, bytes]], expected: int) -> None:
        seen.append(len(rows))
        extend(matrix, rows, expected)

    def watched_keep(matrix: Matrix, numbers: Iterable[int]) -> None:
        compared.append(1)
        keep(matrix, numbers)

    monkeypatch.setattr(Matrix, "extend", watched_extend)
    monkeypatch.setattr(Matrix, "retain", watched_keep)
    put(vectors, {"d500": unit(chance)})
    put(vectors, {"d7": unit(chance)}, ["d8", "d9"])
    assert len(vectors.nearest("n/", MAKER, query, 1000)) == 499
    assert vectors.nearest("n/", MAKER, query, 1)
    put(vectors, {}, ["d10"])
    assert len(vectors.nearest("n/", MAKER, query, 1000)) == 498
    assert (seen, compared) == ([2], [])


def test_one_who_missed_more_removals_than_are_remembered_compares_all(vectors: SQLiteVectors, tmp_path: Path) -> None:
    chance = random.Random(2)
    known = {f"d{n}": unit(chance) for n in range(3_000)}
    put(vectors, known)
    query = unit(chance)
    assert len(vectors.nearest("n/", MAKER, query, 5_000)) == 3_000
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as other:
        for n in range(0, 1_400, 200):
            put(other, {}, [f"d{m}" for m in range(n, n + 200)])
        with other._database.reading() as connection:
            assert connection.execute("SELECT count(*) FROM langmem_vector_gone").fetchone()[0] <= 1_000
    left = sorted(known, key=lambda id_: -dot(known[id_], query))
    left = [id_ for id_ in left if int(id_[1:]) >= 1_400]
    assert ids(vectors.nearest("n/", MAKER, query, 5_000)) == left
    put(vectors, {"new": query}, left[:1_000])  # now the ranks are closed
    assert ids(vectors.nearest("n/", MAKER, query, 5_000)) == ["new", *left[1_000:]]
    put(vectors, {}, ["new", *left])
    assert vectors.nearest("n/", MAKER, query, 5_000) == []
    put(vectors, {"again": query})
    assert ids(vectors.nearest("n/", MAKER, query, 5)) == ["again"]


def test_a_state_that_was_handed_out_stays_as_it_is(vectors: SQLiteVectors) -> None:
    chance = random.Random(3)
    put(vectors, {f"d{n}": unit(chance) for n in range(50)})
    query = unit(chance)
    seen = vectors._read_matrix("n/", MAKER, Matrix.snapshot)
    assert seen is not None
    before = seen.nearest(query, 100)
    put(vectors, {}, ["d31", "d32"])
    assert len(vectors.nearest("n/", MAKER, query, 500)) == 48
    assert seen.nearest(query, 100) == before
    put(vectors, {f"d{n}": unit(chance) for n in range(40, 200)}, [f"d{n}" for n in range(30)])
    assert len(vectors.nearest("n/", MAKER, query, 500)) == 168
    assert seen.nearest(query, 100) == before


def test_the_cosines_of_some_are_those_of_a_search_whatever_was_changed(vectors: SQLiteVectors) -> None:
    chance = random.Random(5)
    query = unit(chance)
    put(vectors, {f"d{n}": unit(chance) for n in range(50)})
    for change, gone in (
        ({}, []),
        ({"d3": unit(chance), "new": unit(chance)}, []),  # an id may have two rows, of which one is dead
        ({}, ["d4", "d3"]),
        ({"d4": unit(chance)}, [f"d{n}" for n in range(10, 45)]),  # the ranks are closed
        ({"d11": unit(chance)}, ["d4"]),
    ):
        put(vectors, change, gone)
        asked = ["none", *(f"d{n}" for n in range(50)), "new"]
        found = vectors.cosines("n/", MAKER, query, asked)
        assert found == pytest.approx(dict(vectors.nearest("n/", MAKER, query, 100)), abs=1e-12)
        assert list(found) == [id_ for id_ in asked if id_ in found]
    assert vectors.cosines("n/", EmbedderSpec("another", 8), query, ["d1"]) == {}
    assert vectors.cosines("none/", MAKER, query, ["d1"]) == {}


def test_matrices_are_held_within_the_memory_given(tmp_path: Path) -> None:
    chance = random.Random(4)
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db", megabytes=0.1)) as vectors:
        for n in range(60):
            put(vectors, {f"d{m}": unit(chance) for m in range(50)}, name=f"{n}/")
        query = unit(chance)
        for n in [*range(60), 0, 1, 59]:
            assert len(vectors.nearest(f"{n}/", MAKER, query, 100)) == 50
            assert sum(matrix.size for matrix in vectors._matrices.values()) <= 0.1 * 2**20
        assert len(vectors._matrices) > 3
        assert list(vectors._matrices)[-1] == "59/"
        for n in range(1_500):
            vectors.nearest(f"never {n}/", MAKER, query, 1)
        assert len(vectors._matrices) <= 1_000


def test_what_was_removed_leaves_the_memory(vectors: SQLiteVectors) -> None:
    chance = random.Random(6)
    put(vectors, {f"d{n}": unit(chance) for n in range(100)})
    query = unit(chance)
    assert len(vectors.nearest("n/", MAKER, query, 200)) == 100
    (matrix,) = vectors._matrices.values()
    full = matrix.size
    put(vectors, {}, [f"d{n}" for n in range(90)])
    assert {id_ for id_, _ in vectors.nearest("n/", MAKER, query, 200)} == {f"d{n}" for n in range(90, 100)}
    assert matrix.size < full / 5


def test_one_that_grows_makes_others_go_and_one_that_stays_looks_at_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, trimmed = random.Random(5), list[str]()
    trim = SQLiteVectors._evict_matrices

    def counted(place: SQLiteVectors, name: str) -> None:
        trimmed.append(name)
        trim(place, name)

    monkeypatch.setattr(SQLiteVectors, "_evict_matrices", counted)
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db", megabytes=0.1)) as vectors:
        for name in ("a/", "b/"):
            put(vectors, {str(n): unit(chance) for n in range(20)}, name=name)
            vectors.nearest(name, MAKER, unit(chance), 1)
        assert set(vectors._matrices) == set(trimmed) == {"a/", "b/"}
        trimmed.clear()
        for _ in range(3):
            vectors.nearest("b/", MAKER, unit(chance), 1)
            vectors.cosines("b/", MAKER, unit(chance), ["1"])
        assert trimmed == []
        put(vectors, {str(n): unit(chance) for n in range(20, 2_000)}, name="b/")
        vectors.nearest("b/", MAKER, unit(chance), 1)
        assert (set(vectors._matrices), trimmed) == ({"b/"}, ["b/"])


def test_a_namespace_larger_than_the_memory_given_is_searched_all_the_same(tmp_path: Path) -> None:
    chance = random.Random(5)
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db", megabytes=0)) as vectors:
        put(vectors, {f"d{m}": unit(chance) for m in range(50)})
        assert len(vectors.nearest("n/", MAKER, unit(chance), 100)) == 50
        assert len(vectors.nearest("n/", MAKER, unit(chance), 100)) == 50


def test_a_namespace_begun_anew_between_two_searches_is_read_anew(vectors: SQLiteVectors) -> None:
    chance = random.Random(9)
    query = unit(chance)
    put(vectors, {"old": unit(chance), "a": unit(chance)})
    assert len(vectors.nearest("n/", MAKER, query, 5)) == 2
    vectors.clear("n/")
    put(vectors, {"a": unit(chance), "new": query})
    assert ids(vectors.nearest("n/", MAKER, query, 5)) == ["new", "a"]
    short, wide = EmbedderSpec("test", 4), unit(chance, 4)
    vectors.change("n/", short, upsert={"short": Embedding(wide)}, delete=[], position=None)
    assert ids(vectors.nearest("n/", short, wide, 5)) == ["short"]


def test_an_embedder_that_was_never_used_may_delete_and_the_dimension_stays_known(vectors: SQLiteVectors) -> None:
    put(vectors, {"a": unit(random.Random(10)), "b": unit(random.Random(11))})
    vectors.change("n/", EmbedderSpec("test", None), upsert={}, delete=["a"], position=(1, "e"))
    mark = vectors.watermark("n/")
    assert mark is not None
    assert (mark.maker, mark.position) == (MAKER, (1, "e"))


def test_a_namespace_that_was_begun_before_anything_was_embedded_learns_its_dimension(vectors: SQLiteVectors) -> None:
    vectors.change("n/", EmbedderSpec("test", None), upsert={}, delete=[], position=(0, "begun"))
    put(vectors, {"a": unit(random.Random(10))})
    mark = vectors.watermark("n/")
    assert mark is not None
    assert (mark.maker, mark.position) == (MAKER, (0, "begun"))
    short, wide = EmbedderSpec("test", 4), unit(random.Random(11), 4)
    assert vectors.nearest("n/", short, wide, 5) == []
    vectors.change("n/", short, upsert={"short": Embedding(wide)}, delete=[], position=None)
    assert ids(vectors.nearest("n/", short, wide, 5)) == ["short"]


# ---- threads, forks, processes


def test_threads_write_and_search_at_the_same_time(vectors: SQLiteVectors) -> None:
    chance = random.Random(6)
    rounds = [{f"d{n % 40}-{m}": unit(chance) for m in range(5)} for n in range(120)]
    query = unit(chance)

    def search() -> None:
        found = vectors.nearest("n/", MAKER, query, 1_000)
        assert len(found) % 5 == 0  # whole changes only
        assert len({id_ for id_, _ in found}) == len(found)

    with again_and_again(*[search] * 4):
        for n, upsert in enumerate(rounds):
            put(vectors, upsert, [f"d{(n + 13) % 40}-{m}" for m in range(5)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_searches_and_writes(vectors: SQLiteVectors) -> None:
    chance = random.Random(8)
    put(vectors, {"a": unit(chance)})
    query = unit(chance)
    assert ids(vectors.nearest("n/", MAKER, query, 5)) == ["a"]

    def child() -> None:
        put(vectors, {"b": query})
        os._exit(0 if ids(vectors.nearest("n/", MAKER, query, 5)) == ["b", "a"] else 1)

    with vectors._lock, vectors._matrices["n/"].lock:  # as a thread of the parent may hold them
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
    process.join(120)
    assert process.exitcode == 0
    assert ids(vectors.nearest("n/", MAKER, query, 5)) == ["b", "a"]


def _add(path: Path, writer: int, count: int, progress: Connection) -> None:
    index = index_in(path)
    for n in range(count):
        index.apply(NOTES, upsert=[Document(f"{writer}-{n}", f"bike {n}")], position=(n, f"{writer}-{n}"))
    progress.send("done")


def _follow(path: Path, progress: Connection) -> None:
    following = _records(path)
    progress.send("begun")
    following.follow(progress.send)


def test_i2_what_other_processes_add_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    with contextlib.closing(index_in(path)) as index:
        index.apply(NOTES, upsert=[Document("mine", "bike")])
        children = [child(_add, path, writer, 25) for writer in range(2)]
        seen = 1
        while seen < 51:
            found = index.search(NOTES, "bike", 1_000)
            assert len(found) >= seen
            seen = len(found)
        for process, progress in children:
            assert progress.recv() == "done"
            process.join()
            progress.close()
        assert {hit.id for hit in found} == {"mine", *(f"{w}-{n}" for w in range(2) for n in range(25))}
        with contextlib.closing(index_in(path)) as fresh:
            assert fresh.search(NOTES, "bike 7", 60) == index.search(NOTES, "bike 7", 60)


def _records(path: Path) -> Records:
    number = iter(range(1_000_000))
    return Records(
        SQLiteStore(path.with_name("store.db")),
        NOTES,
        index=index_in(path),
        text_of=lambda _, data: data.decode(),
        new_id=lambda: f"e{next(number)}",
    )


def test_a_killed_follower_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    ours = _records(path)
    assert ours.index is not None
    for round_ in range(3):
        for n in range(700):
            ours.put({f"d{(n * 7) % 900}": f"bike {round_} {n}".encode()})
        ours.delete([f"d{n}" for n in range(round_ * 10, round_ * 10 + 10)])
        process, progress = child(_follow, path)
        assert progress.recv() == "begun"
        if round_:
            progress.recv()  # a page is done, the next one is being done
        process.kill()
        process.join()
        progress.close()
        hits = ours.search("bike", 2_000, lambda _, data: data)
        truth = dict(ours.all())
        assert {hit.id: data for hit, data in hits} == truth
        with contextlib.closing(index_in(tmp_path / f"fresh{round_}.db")) as fresh:
            fresh.apply(NOTES, upsert=[Document(key, data.decode()) for key, data in truth.items()])
            expected = {hit.id: hit.score for hit in fresh.search(NOTES, "bike", 2_000)}
        assert {hit.id: hit.score for hit, _ in hits} == pytest.approx(expected, abs=1e-9)
    ours.index.close()
    ours.store.close()


def test_a_broken_file_is_a_search_error(tmp_path: Path) -> None:
    path = tmp_path / "vectors.db"
    path.write_bytes(b"not a database" * 1000)
    index = index_in(path)
    for call in (
        lambda: index.search(NOTES, "words", 1),
        lambda: index.score(NOTES, "words", ["a"]),
        lambda: index.apply(NOTES),
        lambda: index.position(NOTES),
        lambda: index.clear(NOTES),
    ):
        with pytest.raises(SearchError, match=r"the vector index failed: .* is not an SQLite database") as caught:
            call()
        assert caught.value.__cause__ is not None


def test_what_was_read_of_a_file_that_was_made_anew_is_forgotten(vectors: SQLiteVectors, tmp_path: Path) -> None:
    one, other = array("f", [1.0] + [0.0] * 7), array("f", [0.0] * 7 + [1.0])
    put(vectors, {"a": one, "b": other})
    assert ids(vectors.nearest("n/", MAKER, one, 1)) == ["a"]
    for file in tmp_path.glob("vectors.db*"):
        file.unlink()
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as theirs:  # as a rebuild() does elsewhere
        put(theirs, {"b": one, "c": other})
        assert vectors.nearest("n/", MAKER, one, 2) == theirs.nearest("n/", MAKER, one, 2) == [("b", 1.0), ("c", 0.0)]


@pytest.mark.parametrize("added", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("removed", [0, 1])
def test_what_was_read_of_a_file_before_an_older_backup_was_restored_into_it_is_forgotten(
    vectors: SQLiteVectors, tmp_path: Path, added: int, removed: int
) -> None:
    """As by sqlite3's .restore: the file stays the same, and numbers that were given are given again."""
    chance = random.Random(3)
    query = unit(chance)
    with contextlib.closing(sqlite3.connect(":memory:")) as copy:
        put(vectors, {"a": unit(chance), "b": unit(chance)})
        with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as file:
            file.backup(copy)
            put(vectors, {f"old {n}": unit(chance) for n in range(3)})
            put(vectors, {}, ["a"][:removed])
            assert len(vectors.nearest("n/", MAKER, query, 9)) == 5 - removed
            copy.backup(file)
    put(vectors, {f"new {n}": unit(chance) for n in range(added)})
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as anew:
        assert vectors.nearest("n/", MAKER, query, 9) == anew.nearest("n/", MAKER, query, 9)
        put(anew, {"c": query})
        assert vectors.nearest("n/", MAKER, query, 9) == anew.nearest("n/", MAKER, query, 9)


def test_what_is_put_anew_after_a_restored_backup_is_not_taken_for_what_was_put_before_it(
    vectors: SQLiteVectors, tmp_path: Path
) -> None:
    """As where an item of LangGraph's store is replaced again: under the same id, as the same row."""
    first, before, after = ({"a": unit(random.Random(seed))} for seed in range(3))
    put(vectors, first)
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as file,
        contextlib.closing(sqlite3.connect(":memory:")) as copy,
    ):
        file.backup(copy)
        put(vectors, before)
        assert vectors.nearest("n/", MAKER, before["a"], 1)[0][1] == pytest.approx(1.0)
        copy.backup(file)
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as theirs:
        put(theirs, after)
    assert vectors.nearest("n/", MAKER, after["a"], 1)[0][1] == pytest.approx(1.0)


@pytest.mark.parametrize("removed", [[], ["c"]])
@pytest.mark.parametrize("elsewhere", [0, 2])
def test_what_was_removed_since_a_backup_is_found_again_once_that_was_restored(
    vectors: SQLiteVectors, tmp_path: Path, removed: list[str], elsewhere: int
) -> None:
    """Also where as much was removed since: the number of a removal is given again then, too."""
    chance = random.Random(5)
    query = unit(chance)
    with contextlib.closing(sqlite3.connect(":memory:")) as copy:
        put(vectors, {name: unit(chance) for name in "abcd"})
        with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as file:
            file.backup(copy)
            put(vectors, {}, ["a"])
            assert len(vectors.nearest("n/", MAKER, query, 9)) == 3
            copy.backup(file)
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as theirs:
        for n in range(elsewhere):
            theirs.change("m/", MAKER, upsert={str(n): Embedding(query)}, delete=[], position=None)
            theirs.change("m/", MAKER, upsert={}, delete=[str(n)], position=None)
        put(theirs, {}, removed)
        found = theirs.nearest("n/", MAKER, query, 9)
        assert sorted(ids(found)) == sorted({*"abcd"}.difference(removed))
        assert vectors.nearest("n/", MAKER, query, 9) == found


def test_who_missed_more_removals_than_are_remembered_reads_no_vector_again(
    vectors: SQLiteVectors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langmem_adapters.indexes.vector_sqlite._MAX_REMOVALS", 3)
    chance = random.Random(7)
    query = unit(chance)
    put(vectors, {f"{n:02}": unit(chance) for n in range(40)})
    put(vectors, {}, ["00"])
    assert len(vectors.nearest("n/", MAKER, query, 99)) == 39
    put(vectors, {}, ["01"])
    assert len(vectors.nearest("n/", MAKER, query, 99)) == 38
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as theirs:
        put(theirs, {}, [f"{n:02}" for n in range(2, 12)])
        with monkeypatch.context() as patch:
            patch.setattr(Matrix, "extend", None)
            found = vectors.nearest("n/", MAKER, query, 99)
        assert found == theirs.nearest("n/", MAKER, query, 99)
        assert len(found) == 28
