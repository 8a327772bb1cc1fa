"""What the lexical index keeps in memory: never older than the file, within its bound, and worth it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters import Experience, ExperiencePool
from langmem_adapters.indexes import lexical_turns
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_cache import RowCache
from langmem_adapters.lru import LRU
from langmem_adapters.protocols import Document, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.faults import again_and_again

NOTES = ("notes",)
WORDS = [f"word{n}" for n in range(12)]
QUERIES = ("word0 word1", "word2 word3 word4 word5", "word1 word1 word7 word11", " ".join(WORDS))


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LexicalIndex]:
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as opened:
        yield opened


def found(index: LexicalIndex, query: str, k: int = 100) -> set[str]:
    return {hit.id for hit in index.search(NOTES, query, k)}


@contextlib.contextmanager
def statements(index: LexicalIndex | SQLiteStore) -> Iterator[list[str]]:
    """The statements that the only connection of an index or a store is given."""
    seen: list[str] = []
    with index._database.reading() as connection:
        pass
    connection.set_trace_callback(seen.append)
    yield seen
    connection.set_trace_callback(None)


# ---- never older than the file

CHANGES = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["add", "add", "add", "delete", "clear", "close"]),
        st.sampled_from(["a", "b", "c", "d", "e", "f"]),
        st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
        st.sampled_from(["", "x", "y"]),
    ),
    max_size=25,
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_whoever_changes_the_file_what_is_found_is_what_it_holds(
    changes: list[tuple[bool, str, str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("kept") / "index.db"
    with contextlib.closing(LexicalIndex(path)) as one, contextlib.closing(LexicalIndex(path)) as other:
        for mine, what, id_, text, thread in changes:
            changed = one if mine else other
            if what == "clear":
                changed.clear(NOTES)
            elif what == "close":
                changed.close()
            elif what == "delete":
                changed.apply(NOTES, delete=[id_])
            else:
                changed.apply(NOTES, upsert=[Document(id_, text, "Ada", thread)])
            with contextlib.closing(LexicalIndex(path)) as fresh:  # which has kept nothing
                for query in QUERIES:
                    assert one.search(NOTES, query, 3) == other.search(NOTES, query, 3) == fresh.search(NOTES, query, 3)
                    assert one.gather(NOTES, query, 3) == other.gather(NOTES, query, 3) == fresh.gather(NOTES, query, 3)


def test_a_change_that_leaves_every_count_as_it_was_is_seen(index: LexicalIndex, tmp_path: Path) -> None:
    index.apply(NOTES, upsert=[Document("a", "red bike"), Document("b", "blue car")])
    assert found(index, "bike") == {"a"}
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as other:
        other.apply(NOTES, upsert=[Document("a", "blue car"), Document("b", "red bike")])
    assert found(index, "bike") == {"b"}
    index.clear(NOTES)
    index.apply(NOTES, upsert=[Document("c", "red bike"), Document("d", "blue car")])  # the same numbers again
    assert found(index, "bike") == {"c"}


def test_another_speaker_or_time_of_the_same_words_is_seen(index: LexicalIndex, tmp_path: Path) -> None:
    def told() -> list[tuple[str, float | None]]:
        evidence = index.gather(NOTES, "bike", 5)
        assert evidence is not None
        return [(turn.speaker, turn.at) for turn in evidence.turns.values()]

    index.apply(NOTES, upsert=[Document("a", "bike", "Ada", "t", 1.0)])
    assert told() == [("Ada", 1.0)]
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as other:
        other.apply(NOTES, upsert=[Document("a", "bike", "Bob", "t", 2.0)])
    assert told() == [("Bob", 2.0)]


def test_a_file_that_was_put_in_the_place_of_another_is_read_anew(index: LexicalIndex, tmp_path: Path) -> None:
    index.apply(NOTES, upsert=[Document("old", "red bike")])
    assert found(index, "bike") == {"old"}
    index.close()
    for file in tmp_path.iterdir():
        file.unlink()
    index.apply(NOTES, upsert=[Document("new", "red bike")])
    assert found(index, "bike") == {"new"}


def test_a_state_seen_before_a_change_is_neither_mixed_nor_served_after_it(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with contextlib.closing(LexicalIndex(path)) as index, contextlib.closing(LexicalIndex(path)) as writer:
        writer.apply(NOTES, upsert=[Document(f"{n}", "bike shed") for n in range(10)])

        def search() -> None:
            for query in ("bike", "shed bike"):
                assert len(found(index, query)) == 10
                evidence = index.gather(NOTES, query, 100)
                assert evidence is not None
                assert len(evidence.turns) == 10
                counts = [sum(len(places) for places, _, _ in each.values()) for each in evidence.postings]
                assert set(counts) == {10}

        with again_and_again(*[search] * 3):
            for n in range(60):  # each takes ten away and adds ten
                writer.apply(
                    NOTES,
                    upsert=[Document(f"{n + 1}-{m}", "bike shed") for m in range(10)],
                    delete=[f"{n}-{m}" for m in range(10)] if n else [f"{m}" for m in range(10)],
                )
        assert found(index, "bike") == {f"60-{m}" for m in range(10)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_forked_child_searches(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document("a", "bike")])
    assert found(index, "bike") == {"a"}

    def child() -> None:
        index.apply(NOTES, upsert=[Document("b", "bike")])
        os._exit(0 if found(index, "bike") == {"a", "b"} else 1)

    with index._cache._lock:  # as a thread of the parent may hold it
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
    process.join(120)
    assert process.exitcode == 0
    assert found(index, "bike") == {"a", "b"}


# ---- worth it


def test_what_is_kept_is_not_read_again_until_it_changes(index: LexicalIndex, tmp_path: Path) -> None:
    index.apply(NOTES, upsert=[Document(str(n), f"bike word{n}", "Ada", "t") for n in range(5)])
    index.gather(NOTES, "bike", 9)
    index.search(NOTES, "bike", 9)
    with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as other:
        other.apply(NOTES, upsert=[Document("else", "shed", "Bob", "another")])

    def read(what: str) -> int:
        with statements(index) as seen:
            index.gather(NOTES, "bike", 9)
            index.search(NOTES, "bike", 9)
        return sum({"postings": "group_concat", "turns": "marks"}[what] in statement for statement in seen)

    assert (read("postings"), read("turns")) == (0, 0)
    index.apply(NOTES, upsert=[Document("6", "bike", "Ada", "t")])
    assert read("postings") == 1
    assert read("postings") == 0
    index.apply(NOTES, delete=["3"])
    assert read("turns") == 1
    assert read("turns") == 0


def test_of_a_long_stretch_only_what_is_asked_for_is_read_and_what_was_read_stays(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document(str(n), f"word{n}", thread="t") for n in range(200)])
    sizes = []
    for query in ("word3", "word100", "word3 word100"):
        evidence = index.gather(NOTES, query, 1)
        assert evidence is not None
        (kept,) = (kept for key, ((_, kept), _) in index._cache._lru._entries.items() if not isinstance(key, tuple))
        sizes.append(len(kept))
    assert sizes == [8, 17, 17]  # the first has three before it, and none of the two has more than four beside it


def test_a_query_of_a_pool_makes_few_statements(tmp_path: Path) -> None:
    with (
        contextlib.closing(SQLiteStore(tmp_path / "store.db")) as store,
        contextlib.closing(LexicalIndex(tmp_path / "index.db")) as index,
    ):
        pool = ExperiencePool(store, index=index)
        chance = random.Random(1)
        for n in range(300):
            pool.create(Experience(req=" ".join(chance.choices(WORDS, k=4)) + f" item{n}", resp=n))
        query = " ".join(WORDS[:8])
        first = pool.query(query, k=4)
        with statements(store) as asked, statements(index) as searched:
            assert pool.query(query, k=4) == first
        assert len(first) == 4
        assert len(asked) <= 6  # the log, its new entries and how far it is tidied in one look, the entries in another
        assert len(searched) <= 12


# ---- within its bound


@pytest.mark.parametrize("megabytes", [0, 0.005, 0.02])
def test_what_is_kept_stays_within_its_bound(tmp_path: Path, megabytes: float) -> None:
    chance = random.Random(3)
    words = [f"word{n}" for n in range(200)]
    with contextlib.closing(LexicalIndex(tmp_path / "index.db", megabytes=megabytes)) as index:
        texts = [" ".join(chance.choices(words, k=10)) for _ in range(300)]
        index.apply(NOTES, upsert=[Document(str(n), text, thread=str(n % 9)) for n, text in enumerate(texts)])
        with contextlib.closing(LexicalIndex(tmp_path / "index.db")) as roomy:
            for _ in range(100):
                query = " ".join(chance.choices(words, k=5))
                assert index.search(NOTES, query, 5) == roomy.search(NOTES, query, 5)
                assert index.gather(NOTES, query, 5) == roomy.gather(NOTES, query, 5)
                kept = index._cache._lru
                assert kept.size == sum(size for _, size in kept._entries.values()) <= megabytes * 2**20
            assert bool(kept.values()) is bool(megabytes)
            assert len(roomy._cache._lru.values()) > len(kept.values())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=40))
def test_it_holds_no_more_than_its_bounds_and_the_latest(operations: list[tuple[int, int]]) -> None:
    kept: LRU[int, bytes] = LRU(3, max_size=60)
    order: list[int] = []
    for key, size in operations:
        kept.put(key, b"x" * size, size)
        order = [*(other for other in order if other != key), key]
        assert kept.get(key) == b"x" * size
        assert len(kept.values()) <= 3
        assert kept.size == sum(map(len, kept.values())) <= 60
        assert list(kept._entries) == order[-len(kept.values()) :]


def test_what_was_used_longest_ago_goes_first() -> None:
    kept = RowCache(100 / 2**20)
    for key in "abc":
        kept.put(key, 1, key.upper(), 30)
    assert kept.get("a", 1) == "A"
    assert kept.get("a", 2) is None
    kept.put("d", 1, "D", 30)
    assert [kept.get(key, 1) for key in "abcd"] == ["A", None, "C", "D"]
    kept.put("a", 2, "again", 40)
    assert [kept.get("a", 1), kept.get("a", 2)] == [None, "again"]
    assert kept._lru.size == 100
    kept.put("e", 1, "too large", 101)
    assert [kept.get(key, 1) for key in "acde"] == [None, "C", "D", None]
    kept.put("c", 2, "too large", 101)
    assert [kept.get("c", 1), kept.get("c", 2), kept._lru.size] == [None, None, 70]


# ---- the same results


def test_a_query_of_many_words_is_weighed_as_one_of_few(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document(str(n), f"word{n} common") for n in range(30)])
    unheard = [f"unheard{n}" for n in range(99)]
    (alone,) = index.search(NOTES, "word7", 1)
    for size in (7, 8, 63, 64, 65, 99):
        (hit,) = index.search(NOTES, " ".join([*unheard[: size - 1], "word7"]), 1)
        assert hit.id == "7"
        assert 0 < hit.score < alone.score / size * 1.5
    first, *others = index.search(NOTES, " ".join([*unheard, *(f"word{n}" for n in range(30))]), 99)
    assert len(others) == 29
    assert first.score == pytest.approx(others[-1].score)


@pytest.mark.parametrize("unwanted", [1, 3, 9, 40])
def test_however_many_nearer_ones_have_expired_those_that_are_left_are_found(tmp_path: Path, unwanted: int) -> None:
    clock = FakeClock()
    with (
        contextlib.closing(SQLiteStore(tmp_path / "store.db")) as store,
        contextlib.closing(LexicalIndex(tmp_path / "index.db")) as index,
    ):
        pool = ExperiencePool(store, index=index, clock=clock)
        for n in range(unwanted):
            pool.create(Experience(req=f"red bike {n}", resp=n, expires_at=clock() + 1))
        pool.create(Experience(req="a bike of quite another colour", resp="left"))
        pool.create(Experience(req="no bike of any colour whatever, but a car", resp="left too"))
        clock.advance(2)
        assert [similar.experience.resp for similar in pool.query("red bike", k=1)] == ["left"]
        assert len(pool.query("red bike", k=2)) == 2
        assert len(pool.query("red bike", k=3)) == 2


def test_a_pool_follows_more_new_entries_than_one_look_holds(index: LexicalIndex, any_store: Store) -> None:
    pool = ExperiencePool(any_store, index=index)
    pool.create(Experience(req="the first bike", resp="first"))
    assert [similar.experience.resp for similar in pool.query("bike")] == ["first"]
    for n in range(520):
        pool.create(Experience(req=f"word{n}", resp=n))
    pool.create(Experience(req="the last bike", resp="last"))
    assert {similar.experience.resp for similar in pool.query("bike")} == {"first", "last"}


def test_a_pool_whose_store_was_replaced_by_another_of_the_same_length_begins_anew(index: LexicalIndex) -> None:
    for place in ("shed", "cellar"):
        pool = ExperiencePool(MemoryStore(), index=index)
        for n in range(3):
            pool.create(Experience(req=f"bike {n} in the {place}", resp=place))
        assert [similar.experience.resp for similar in pool.query("bike", k=9)] == [place] * 3
        assert len(pool.query(place, k=9)) == 3
    assert pool.query("shed", k=9) == []


def test_one_that_has_only_the_more_frequent_words_may_still_be_among_the_best(index: LexicalIndex) -> None:
    texts = ["rare rarer rarest", "rare other words", "often twice words"]
    texts += [f"{word} other words" for word in ("often", "twice") for _ in range(3)]
    texts += ["quite other words"] * 40
    index.apply(NOTES, upsert=[Document(str(n), text) for n, text in enumerate(texts)])
    hits = index.search(NOTES, "rare rarer rarest often twice", 3)
    assert [hit.id for hit in hits] == ["0", "2", "1"]
    assert index.search(NOTES, "rare rarer rarest often twice", 2) == hits[:2]


# ---- what it costs


def steps(call: Callable[[], object]) -> int:
    """How many steps the interpreter takes in the module that gathers what is known of a query's candidates."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != lexical_turns.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("length", [10, 100_000])
def test_what_a_search_gathers_costs_so_much_a_candidate_however_many_there_are(length: int) -> None:
    cost = {}
    for many in (5, 250, 1_000):  # the first are not looked at: Python may begin to count after a first call
        with contextlib.closing(LexicalIndex(":memory:")) as index:
            said = [Document(str(n), f"word{n % 7} bike", thread=f"t{n // length}") for n in range(many)]
            index.apply(NOTES, upsert=said)
            ids = [document.id for document in said]
            cost[many] = [
                steps(lambda: index.gather(NOTES, "bike word3", many)),  # noqa: B023 - called at once
                steps(lambda: index.gather(NOTES, "bike word3", many)),  # noqa: B023 - same, with all of it kept
                steps(lambda: index.gather(NOTES, "bike word3", 0, ids)),  # noqa: B023 - same
                steps(lambda: index.within(NOTES, "bike word3", "t0")),
            ]
    assert all(few > 0 for few in cost[250])
    assert all(many < 5 * few for few, many in zip(cost[250], cost[1_000], strict=True))
