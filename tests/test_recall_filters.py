"""A search with a filter: what is wanted is found whatever fits better, and no more is read than that takes (E2)."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.indexes import open_index
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import LongTermRetriever as LangChainRetriever
from langmem_adapters.llamaindex import LongTermRetriever as LlamaIndexRetriever
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Hit, Memory, Message, Recalled, Scope
from langmem_adapters.protocols import Document, Page, Store
from langmem_adapters.recall import question_search
from langmem_adapters.records.filtering import EXTRA_HITS, FilteredReader
from langmem_adapters.records.journal import COMPACTION_KEY
from langmem_adapters.signals import ranked, weights_of
from langmem_adapters.stores.memory import MemoryStore
from tests.vector_places import word_vectors

NOTES: Namespace = ("notes",)
ADA: Namespace = ("longterm", "", "ada")
BUSY = [f"bike number {n}" for n in range(400)]


class CountingStore(MemoryStore):
    """Counts how often each value is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        self.reads.update(keys or ())
        return super().get(namespace, keys)

    def scan(self, namespace: Namespace, *, keys: Sequence[str] = (), **bounds: Any) -> Page:
        self.reads.update(key for key in keys if key != COMPACTION_KEY)
        return super().scan(namespace, keys=keys, **bounds)


class CountingIndex(LexicalIndex):
    """Notes how many hits each search was asked for."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.asked: list[int] = []

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        self.asked.append(k)
        return super().search(namespace, query, k)


def say(text: str, **fields: Any) -> Message:
    return Message(role="user", content=text, **fields)


def texts(found: Sequence[Recalled]) -> list[str]:
    return [recalled.text for recalled in found]


def vectors() -> VectorIndex:
    return VectorIndex(SQLiteVectors(":memory:"), Embedder(word_vectors, name="words-64"))


def ada(session: str) -> Scope:
    return Scope(user="ada", session=session)


@pytest.fixture(params=[LexicalIndex, lambda path: KeyedLexicalIndex(path, key=bytes(32))], ids=["plain", "keyed"])
def index(request: pytest.FixtureRequest) -> Iterator[LexicalIndex]:
    with contextlib.closing(request.param(":memory:")) as made:
        yield made


# --- no more is read than it takes


def chosen(
    values: dict[str, bytes], is_wanted: Callable[[bytes], bool]
) -> tuple[FilteredReader[str], Counter[str], Counter[bytes]]:
    read, judged = Counter[str](), Counter[bytes]()

    def get(keys: Sequence[str]) -> dict[str, bytes]:
        read.update(keys)
        return {key: values[key] for key in keys if key in values}

    def judge(id_: str, data: bytes) -> str | None:
        assert values[id_] == data
        judged[data] += 1
        return data.decode() if is_wanted(data) else None

    return FilteredReader(get, judge), read, judged


RANKING = [Hit(str(n), 1.0 - n / 1_000) for n in range(1_000)]
VALUES = {hit.id: hit.id.encode() for hit in RANKING}


def test_a_record_is_read_once_and_asked_about_once() -> None:
    wanted, read, judged = chosen(VALUES, lambda data: data == b"777")
    asked: list[int] = []

    def top(k: int) -> list[Hit]:
        asked.append(k)
        return RANKING[:k]

    for _ in range(2):
        assert wanted.best(top, 5) == [(RANKING[777], "777")]
    assert set(read.values()) == set(judged.values()) == {1}
    assert (len(read), len(judged)) == (1_000, 1_000)
    assert len(asked) <= 6


def test_where_all_are_wanted_only_the_first_are_read() -> None:
    wanted, read, judged = chosen(VALUES, lambda _: True)
    assert wanted.best(lambda k: RANKING[:k], 7) == [(hit, hit.id) for hit in RANKING[:7]]
    assert (len(read), len(judged)) == (7, 7)


@pytest.mark.parametrize("share", [2, 5, 20])
def test_how_much_is_asked_for_follows_from_how_many_were_wanted(share: int) -> None:
    wanted, read, judged = chosen(VALUES, lambda data: int(data) % share == 0)
    wanted.first(RANKING[: 3 * share], 10**6)
    asked: list[int] = []
    found = wanted.best(lambda k: asked.append(k) or RANKING[:k], 20)  # type: ignore[func-returns-value]
    assert [hit.id for hit, _ in found] == [str(n * share) for n in range(20)]
    assert len(asked) == 1
    assert asked[0] <= 2 * 20 * share + EXTRA_HITS
    assert len(judged) <= 20 * share
    assert len(read) <= 5 * 20 * share


def test_records_are_read_in_parts_that_grow() -> None:
    wanted, read, judged = chosen(VALUES, lambda data: int(data) % 2 == 0)
    assert len(wanted.first(RANKING, 5)) == 5
    assert (len(read), len(judged)) == (25, 9)


def test_a_hit_that_is_gone_takes_no_place() -> None:
    wanted, read, _ = chosen({"1": b"1", "3": b"3"}, lambda _: True)
    assert [value for _, value in wanted.best(lambda k: RANKING[: min(k, 5)], 2)] == ["1", "3"]
    assert wanted.first(RANKING[:5], 0) == []
    assert [value for _, value in wanted.best(lambda k: RANKING[:k], 3)] == ["1", "3"]  # and nearly all are gone
    assert set(read.values()) == {1}


@st.composite
def _filters(draw: st.DrawFn) -> tuple[int, set[int], int]:
    size = draw(st.integers(0, 60))
    return size, draw(st.sets(st.integers(0, 59))), draw(st.integers(0, 9))


@given(_filters())
def test_the_first_wanted_are_those_of_a_filter_before_the_cut(case: tuple[int, set[int], int]) -> None:
    size, numbers, k = case
    wanted, _, judged = chosen(VALUES, lambda data: int(data) in numbers)
    expected = [hit.id for hit in RANKING[:size] if int(hit.id) in numbers][:k]
    assert [hit.id for hit, _ in wanted.best(lambda ask: RANKING[: min(ask, size)], k)] == expected
    assert set(judged.values()) <= {1}


def test_one_wanted_of_many_takes_one_pass(any_store: Store) -> None:
    index, store, seen = CountingIndex(), CountingStore(), Counter[str]()
    for kept in (store, any_store):
        LongTermMemory(kept, index, user="ada").add([say(text) for text in BUSY], session="s")
    memory = LongTermMemory(store, index, user="ada")
    memory.flush()
    store.reads.clear()

    def is_it(one: Memory) -> bool:
        seen[one.id] += 1
        return one.message.text.endswith(" 77")

    assert texts(memory.search("bike", 3, where=is_it)) == [BUSY[77]]
    assert len(store.reads) == len(seen) == len(BUSY)
    assert set(store.reads.values()) == set(seen.values()) == {1}
    assert len(index.asked) <= 5
    assert texts(LongTermMemory(any_store, index, user="ada").search("bike", 3, where=is_it)) == [BUSY[77]]
    index.close()


def test_a_session_takes_no_look_at_what_others_said() -> None:
    index, store = CountingIndex(), CountingStore()
    memory = LongTermMemory(store, index, user="ada")
    memory.add([say(f"{text} of them") for text in BUSY], session="busy")
    memory.add([say("A bike in the shed behind the old house."), say("Soup for lunch.")], session="quiet")
    memory.flush()
    store.reads.clear()
    assert texts(memory.search("bike number", scope=ada("quiet"))) == ["A bike in the shed behind the old house."]
    assert len(store.reads) < 120  # what is weighed, of more than 400
    assert index.asked == []
    index.close()


def both(*parts: MetadataFilter | MetadataFilters, condition: FilterCondition = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(parts), condition=condition)


IN_QUIET = MetadataFilter(key="session", value="quiet")
BY_USER = MetadataFilter(key="role", value="user")
OF_ONE_SESSION: list[Any] = [
    {"session": "quiet"},
    {"role": "user", "session": {"$eq": "quiet", "$ne": "x"}},
    {"$and": [{"role": "user"}, {"$and": [{"session": "quiet"}]}]},
    both(IN_QUIET),
    both(BY_USER, both(BY_USER, IN_QUIET)),
]
OF_MORE: list[Any] = [
    {"$or": [{"session": "quiet"}, {"role": "user"}]},
    {"$not": {"session": "quiet"}},
    {"session": {"$ne": "quiet"}},
    {"session": {"$in": ["quiet", "busy"]}},
    lambda metadata: metadata["session"] in {"quiet", "busy"},
    both(IN_QUIET, BY_USER, condition=FilterCondition.OR),
    both(IN_QUIET, condition=FilterCondition.NOT),
    both(MetadataFilter(key="session", value="quiet", operator=FilterOperator.NE)),
    both(both(IN_QUIET, BY_USER, condition=FilterCondition.OR)),
]


def retrieved(memory: LongTermMemory, filter_: Any, k: int = 3) -> list[tuple[str, str]]:
    """Sessions and texts that a retriever with this filter finds."""
    if isinstance(filter_, MetadataFilters):
        nodes = LlamaIndexRetriever(memory, similarity_top_k=k, filters=filter_).retrieve("bike number")
        return [(node.metadata["session"], node.text) for node in nodes]
    found = LangChainRetriever(memory=memory, k=k, filter=filter_).invoke("bike number")
    assert found == LangChainRetriever(memory=memory, k=k).invoke("bike number", filter=filter_)
    return [(document.metadata["session"], document.page_content) for document in found]


@pytest.mark.parametrize("filter_", OF_ONE_SESSION)
def test_a_filter_for_a_session_takes_no_look_at_what_others_said(filter_: Any) -> None:
    index, shed = CountingIndex(), "A bike in the shed behind the old house."
    memory = LongTermMemory(MemoryStore(), index, user="ada")
    memory.add([say(f"{text} of them") for text in BUSY], session="busy")
    memory.add([say(shed)], session="early")
    memory.add([say(shed), say("Soup.")], session="quiet")
    memory.flush()
    assert retrieved(memory, filter_) == [("quiet", shed)]
    assert index.asked == []
    index.close()


@pytest.mark.parametrize("filter_", OF_MORE)
def test_a_filter_for_more_than_a_session_is_not_narrowed_to_one(filter_: Any) -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([say(f"{text} of them") for text in BUSY[:40]], session="busy")
    memory.add([say("A bike."), say("Soup.")], session="quiet")
    assert {session for session, _ in retrieved(memory, filter_)} == {"busy"}


def test_a_filter_that_is_a_coroutine_function_is_refused() -> None:
    """What it gives is no answer, and counts as True: it would let everything through."""
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    with pytest.raises(ConfigurationError, match="a filter is a coroutine function"):
        LangChainRetriever(memory=memory, filter=asyncio.sleep).invoke("bike")


@pytest.mark.parametrize("named", ["s", "t", "", 5, None])
def test_a_filter_for_a_session_of_a_memory_of_one_session_is_no_error(named: Any) -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), session="s")
    memory.add([say("A bike.")])
    expected = [("s", "A bike.")] if named == "s" else []
    assert retrieved(memory, {"session": named}) == expected
    assert retrieved(memory, {"$and": [{"session": named}]}) == expected
    if named is not None:
        assert retrieved(memory, both(MetadataFilter(key="session", value=named))) == expected


@pytest.mark.parametrize("named", [5, None, "", ["quiet"]])
def test_a_filter_for_what_is_no_session_finds_none(named: Any) -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([say(text) for text in BUSY], session="busy")
    assert retrieved(memory, {"session": named}) == []
    if named is not None:
        assert retrieved(memory, both(MetadataFilter(key="session", value=named))) == []


def test_a_fair_share_takes_its_part() -> None:
    store = CountingStore()
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add([say(text) for text in (*BUSY, *(f"bike of {n}" for n in range(1600)))])
    memory.flush()
    store.reads.clear()
    found = memory.search("bike", 5, where=lambda one: int(one.message.text.split()[-1]) % 10 == 3)
    assert len(found) == 5
    assert len(store.reads) < 700


def test_what_has_nothing_to_do_with_the_query_is_not_read() -> None:
    def meant(given_: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "bike" in text else [0.0, 1.0] for text in given_]

    store, index = CountingStore(), CountingIndex()
    by_meaning = VectorIndex(SQLiteVectors(":memory:"), Embedder(meant, name="meant"))
    memory = LongTermMemory(store, index, vectors=by_meaning, user="ada")
    memory.add([say(f"soup number {n}") for n in range(400)])
    memory.add([say(f"bike of {n}") for n in range(20)])
    memory.flush()
    store.reads.clear()
    assert memory.search("bike", where=lambda _: False) == []
    assert len(store.reads) < 80
    index.asked.clear()
    assert len(memory.search("bike of", 25)) == 20  # all that there is: nothing more is looked for
    assert index.asked == []
    index.close()


# --- the same as filtering first


WORDS = ["bike", "bicycle", "dog", "red", "shed", "Anna", "when?"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
QUESTIONS = TEXTS.filter(lambda text: text.count("?") < 2)  # each of several would be searched by itself
SAID = st.lists(st.tuples(TEXTS, st.sampled_from(["a", "b", "c"]), st.booleans()), min_size=1, max_size=60)


class Kept:
    """A memory of what was said, in which every third thing of session "a" is said again in "b"."""

    def __init__(self, said: Sequence[tuple[str, str, bool]], *, with_vectors: bool) -> None:
        self.index, self.vectors = LexicalIndex(":memory:"), vectors() if with_vectors else None
        self.memory = LongTermMemory(MemoryStore(), self.index, vectors=self.vectors, user="ada")
        for n, (text, session, _) in enumerate(said):
            message = say(f"{text} n{n}", metadata={"n": n})
            self.memory.add([message], session=session)
            if n % 3 == 0 and session == "a":
                self.memory.add([message], session="b")
        self.memory.flush()
        self.all = {one.id: one for one in self.memory.all()}

    def weighed(self, query: str, pool: int, nearest: int, also: Sequence[str] = ()) -> list[str]:
        """All that a search looks at, best first."""
        said = self.index.nameless(ADA, query)
        near = [hit.id for hit in self.vectors.search(ADA, said, nearest)] if self.vectors else []
        evidence = self.index.gather(ADA, query, pool, [*near, *also])
        if evidence is None:
            return []
        ids = [turn.id for turn in evidence.turns.values()]
        meaning = self.vectors.score(ADA, said, ids) if self.vectors else {}
        return [one.id for one in ranked(evidence, meaning, weights_of(None), len(ids), wanted=also)]

    def close(self) -> None:
        self.index.close()
        if self.vectors:
            self.vectors.close()


@given(SAID, QUESTIONS, st.integers(1, 6), st.sampled_from(["a", "b", ""]), st.booleans())
def test_the_answers_are_those_of_a_filter_before_the_pool(
    said: list[tuple[str, str, bool]], query: str, k: int, session: str, with_vectors: bool
) -> None:
    kept, pool = Kept(said, with_vectors=with_vectors), 4
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(kept):
        patch.setattr(question_search, "_POOL_SIZE", pool)
        index, everything = kept.index, len(said) + 1

        def where(one: Memory) -> bool:
            return said[int(one.message.metadata["n"])][2]

        right = {
            id_
            for id_, one in kept.all.items()
            if where(one) and (not session or session in {o.session for o in one.occurrences})
        }
        ask, nameless = k + EXTRA_HITS, index.nameless(ADA, query)
        first = kept.weighed(query, ask, ask)[:ask]
        expected = [id_ for id_ in first if id_ in right][:k]
        is_more = len(first) == ask or (kept.vectors and len(expected) < len(first))
        if len(expected) < k and is_more:
            also = [hit.id for hit in index.search(ADA, nameless, everything) if hit.id in right][:ask]
            if kept.vectors:
                near = [hit for hit in kept.vectors.search(ADA, nameless, everything) if hit.id in right]
                near = sorted(near, key=lambda hit: (-hit.score, hit.id)) if session else near  # of equal ones
                also += [hit.id for hit in near if hit.score > 0.5][:ask]
            expected = [id_ for id_ in kept.weighed(query, ask, ask, also) if id_ in right][:k]
        found = kept.memory.search(query, k, where=where, scope=ada(session))
        assert [one.memory.id for one in found] == expected


@given(SAID, QUESTIONS, st.integers(1, 6), st.sampled_from(["a", "b", ""]))
def test_where_all_that_matches_is_weighed_anyway_a_filter_only_leaves_out(
    said: list[tuple[str, str, bool]], query: str, k: int, session: str
) -> None:
    kept = Kept(said[:30], with_vectors=False)
    with contextlib.closing(kept):
        right = {
            id_
            for id_, one in kept.all.items()
            if not session or session in {occurrence.session for occurrence in one.occurrences}
        }
        expected = [id_ for id_ in kept.weighed(query, 60, 60) if id_ in right][:k]
        assert [one.memory.id for one in kept.memory.search(query, k, scope=ada(session))] == expected


@pytest.mark.parametrize("with_vectors", [False, True])
def test_what_was_said_again_is_found_in_each_of_its_sessions(with_vectors: bool) -> None:
    beside = vectors() if with_vectors else None
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=beside, user="ada")
    for session in ("busy", "other"):
        memory.add([say("Once more the bike, as number one of very many things.")], session=session)
    memory.add([say(text) for text in BUSY], session="busy")  # of equal ones, the one added last comes first
    memory.flush()
    assert texts(memory.search("bike number", scope=ada("other"))) == [
        "Once more the bike, as number one of very many things."
    ]
    assert len(memory.search("bike number", 500, scope=ada("busy"))) == 401


def test_a_filter_and_a_session_narrow_together() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([say(text) for text in BUSY], session="busy")
    memory.add([say(f"{text} at last") for text in BUSY], session="late")
    found = memory.search("bike number", scope=ada("late"), where=lambda one: " 77" in one.message.text)
    assert texts(found) == ["bike number 77 at last"]


@pytest.mark.parametrize("scope", [None, ada("late")])
def test_what_only_means_the_same_is_found_behind_a_filter(scope: Scope | None) -> None:
    def meant(given_: Sequence[str]) -> list[list[float]]:
        return [[1.0, 0.0] if {"bike", "bicycle"} & {*text.split()} else [0.0, 1.0] for text in given_]

    index = VectorIndex(SQLiteVectors(":memory:"), Embedder(meant, name="meant"))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=index, user="ada")
    memory.add([say("the bicycle is mine"), say("the soup is hot")], session="late")
    memory.add([say(text) for text in BUSY], session="busy")  # as near, and the one added last comes first
    memory.flush()
    found = memory.search("bike", where=lambda one: "number" not in one.message.text, scope=scope)
    assert texts(found) == ["the bicycle is mine"]


@pytest.mark.parametrize("narrowed", [{"scope": ada("late")}, {"where": lambda one: "tram" in one.message.text}])
@pytest.mark.parametrize("nearer", [["bus"] * 11, ["bus"] * 17 + ["ship"], ["bus"] * 60])
def test_what_others_said_that_is_nearer_makes_nothing_behind_a_filter_unlike(
    nearer: list[str], narrowed: dict[str, Any]
) -> None:
    cosines = {"bus": 0.9, "ship": 0.3, "tram": 0.25}

    def meant(given_: Sequence[str]) -> list[list[float]]:
        nearness = [cosines.get(text.split()[0], 1.0) for text in given_]
        return [[cosine, math.sqrt(1 - cosine**2)] for cosine in nearness]

    index = VectorIndex(SQLiteVectors(":memory:"), Embedder(meant, name="meant"))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=index, user="ada")
    memory.add([say(f"{text} {n}") for n, text in enumerate(nearer)], session="busy")
    memory.add([say("tram")], session="late")
    memory.flush()
    for k in (1, 5, 10):
        assert texts(memory.search("travelling", k, **narrowed)) == ["tram"]


def test_of_a_long_session_the_nearest_are_weighed() -> None:
    def meant(given_: Sequence[str]) -> list[list[float]]:
        """The higher the last number of a soup, the nearer it is to a bike."""
        return [[1.0, 0.0] if "bike" in text else [float(text.split()[-1]), 50.0] for text in given_]

    by_meaning = VectorIndex(SQLiteVectors(":memory:"), Embedder(meant, name="meant"))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=by_meaning, user="ada")
    memory.add([say(text) for text in BUSY], session="busy")
    memory.add([say(f"soup {n}") for n in (*range(300, 600), *range(100, 300), *range(1, 100))], session="late")
    memory.flush()
    assert texts(memory.search("bike", 1, scope=ada("late")))[0] in {"soup 599", "soup 598"}


def test_failing_vectors_cost_a_filtered_search_no_more_than_what_they_find() -> None:
    def brittle(given_: Sequence[str]) -> list[list[float]]:
        if "bike" in given_:
            raise RuntimeError
        return word_vectors(given_)

    index = VectorIndex(SQLiteVectors(":memory:"), Embedder(brittle, name="brittle"))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=index, user="ada")
    memory.add([say(text) for text in BUSY], session="busy")
    memory.add([say("My bike, and nobody else's of any number.")], session="late")
    for more in ({"scope": ada("late")}, {"where": lambda one: "nobody" in one.message.text}):
        assert texts(memory.search("bike", **more)) == ["My bike, and nobody else's of any number."]
    assert memory.stats()["degraded"] > 0


@pytest.mark.parametrize("with_vectors", [False, True])
def test_what_is_added_in_the_middle_of_a_search_does_no_harm(with_vectors: bool) -> None:
    beside = vectors() if with_vectors else None
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=beside, user="ada")
    memory.add([say(text) for text in BUSY], session="s")
    memory.flush()
    added: list[str] = []

    def where(one: Memory) -> bool:
        if not added:
            added.append("A zebra crossing, and a bike.")
            memory.add([say(text) for text in added], session="s")
            memory.flush()
        return one.message.text.endswith(" 77")

    assert texts(memory.search("zebra bike number", where=where)) == [BUSY[77]]


# --- what an index knows of threads


def said_in(index: LexicalIndex, thread: str, query: str = "bike") -> list[str]:
    return [hit.id for hit in index.within(NOTES, query, thread)]


def test_a_thread_is_what_was_said_in_it_there_first_or_again(index: LexicalIndex) -> None:
    assert index.within(NOTES, "bike", "x") == []
    index.apply(
        NOTES,
        upsert=[
            Document("1", "a red bike", thread="x"),
            Document("2", "soup", thread="x", again=("y", "y")),
            Document("3", "a bike bike", thread="y", again=("x", "z")),
            Document("4", "a bike", thread="y"),
            Document("5", "a bike"),
        ],
    )
    index.apply(("other",), upsert=[Document("6", "a bike", thread="x", again=("y",))])
    scores = {hit.id: hit.score for hit in index.search(NOTES, "red bike", 9)}
    there = {hit.id: hit.score for hit in index.within(NOTES, "red bike", "x")}
    assert list(there) == ["1", "3", "2"]
    assert there == pytest.approx({"1": scores["1"], "3": scores["3"], "2": 0.0})
    assert said_in(index, "y") == ["3", "4", "2"]
    assert (said_in(index, "z"), said_in(index, "never")) == (["3"], [])
    assert sorted(said_in(index, "x", "?!")) == ["1", "2", "3"]
    index.apply(NOTES, upsert=[Document("3", "a bike", thread="y", again=("x",))], delete=["2"])
    assert (said_in(index, "x"), said_in(index, "y"), said_in(index, "z")) == (["3", "1"], ["4", "3"], [])
    index.clear(NOTES)
    assert said_in(index, "x") == []
    assert [hit.id for hit in index.within(("other",), "bike", "y")] == ["6"]
    with index._database.reading() as connection:
        assert connection.execute("SELECT COUNT(*) FROM langmem_lexical_again").fetchone() == (1,)


def test_what_is_of_another_thread_now_is_found_there_alone(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document(id_, f"bike {id_}", thread="x") for id_ in "123"])
    for thread in ("y", "", "x"):
        index.apply(NOTES, upsert=[Document("2", "bike 2", thread=thread)])
        threads = {name: sorted(said_in(index, name)) for name in "xy"}
        assert threads == {"x": ["1", *(["2"] if thread == "x" else []), "3"], "y": ["2"] if thread == "y" else []}
        evidence = index.gather(NOTES, "bike", 9)
        assert evidence is not None
        stretches = {evidence.turns[place].id: evidence.stretch_of(place) for place in evidence.candidates}
        assert (stretches["2"] == stretches["1"]) == (thread == "x")


def test_a_thread_longer_than_a_stretch_is_found_whole(index: LexicalIndex) -> None:
    index.apply(NOTES, upsert=[Document(str(n), f"bike {n}", thread="xy"[n % 2]) for n in range(1_200)])
    assert sorted(map(int, said_in(index, "x"))) == list(range(0, 1_200, 2))


def test_a_keyed_index_shows_no_name_of_a_thread(tmp_path: Path) -> None:
    with contextlib.closing(KeyedLexicalIndex(tmp_path / "index.db", key=bytes(32))) as index:
        index.apply(NOTES, upsert=[Document("1", "a bike", thread="monday", again=("tuesday",))])
        assert said_in(index, "tuesday") == ["1"]
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"monday" not in data
    assert b"tuesday" not in data
