"""Vectors beside words: a second index of a memory that may be behind, fail or be wrong, and never does harm (H2)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, Conflict, LangmemError, ModelError, SearchError
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.keys import Namespace
from langmem_adapters.longterm import LongTermMemory, longterm_namespace
from langmem_adapters.model import Hit, Message, Recalled, Scope
from langmem_adapters.protocols import START, ConversationIndex, Document, Index, SemanticIndex, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock

SAME = [{"sofa", "couch"}, {"dog", "puppy"}, {"soup", "broth"}]


class Meanings:
    """An exact index of made-up meanings: a text is as near to another as the share of meanings they have in common."""

    def __init__(self) -> None:
        self.kept: dict[Namespace, dict[str, set[int]]] = {}
        self.positions: dict[Namespace, tuple[int, str]] = {}
        self.failure: LangmemError | None = None
        self.applied = threading.Event()
        self.wait = threading.Event()
        self.wait.set()
        self.queries: list[str] = []
        self.asked = 0  # in how many searches, or for scores

    def _meant(self, text: str) -> set[int]:
        if self.failure:
            raise self.failure
        words = set(text.lower().strip(".?").split())
        return {number for number, same in enumerate(SAME) if words & same}

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: tuple[int, str] | None = None,
        since: tuple[int, str] | None = None,
    ) -> None:
        assert self.wait.wait(120)
        new = {document.id: self._meant(document.text) for document in upsert}
        if since is not None and (self.positions.get(namespace) or START) != since:
            raise Conflict("changed by another follower")
        kept = self.kept.setdefault(namespace, {})
        for id_ in delete:
            kept.pop(id_, None)
        kept.update(new)
        if position:
            self.positions[namespace] = position
        if position is None or position[0]:  # not where it only begins
            self.applied.set()

    def position(self, namespace: Namespace) -> tuple[int, str] | None:
        return self.positions.get(namespace)

    def score(self, namespace: Namespace, query: str, ids: Sequence[str]) -> dict[str, float]:
        self.asked += 1
        meant, kept = self._meant(query), self.kept.get(namespace, {})
        return {id_: (1 + len(meant & kept[id_]) / max(1, len(meant | kept[id_]))) / 2 for id_ in ids if id_ in kept}

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        self.queries.append(query)
        scores = self.score(namespace, query, list(self.kept.get(namespace, {})))
        return [Hit(id_, score) for id_, score in sorted(scores.items(), key=lambda s: (-s[1], s[0]))][:k]

    def clear(self, namespace: Namespace) -> None:
        self.kept.pop(namespace, None)
        self.positions.pop(namespace, None)

    def close(self) -> None:
        pass


class PlainIndex:
    """An index that knows of words only, as one of your own may be."""

    def __init__(self) -> None:
        index = open_index("memory:")
        for name in (name for name in dir(Index) if not name.startswith("_")):
            setattr(self, name, getattr(index, name))


def say(text: str, name: str | None = None) -> Message:
    return Message(role="user", content=text, name=name)


def texts(found: list[Recalled]) -> list[str]:
    return [recalled.text for recalled in found]


def memory_of(vectors: Meanings, index: Any = None, **more: Any) -> LongTermMemory:
    return LongTermMemory(MemoryStore(), index or open_index("memory:"), vectors=vectors, user="ada", **more)


def test_the_protocols_tell_the_indexes_apart() -> None:
    assert isinstance(Meanings(), SemanticIndex)
    assert isinstance(open_index("memory:"), ConversationIndex)
    assert not isinstance(Meanings(), ConversationIndex)
    assert isinstance(PlainIndex(), Index)
    assert not isinstance(PlainIndex(), ConversationIndex)


def test_an_index_may_hand_its_calls_on_to_another() -> None:
    class Counting:
        def __init__(self) -> None:
            self._index = open_index("memory:")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._index, name)

    memory = memory_of(Meanings(), Counting())
    memory.add([say("My bike is in the shed.")])
    assert texts(memory.search("bike")) == ["My bike is in the shed."]


@pytest.mark.parametrize("index", [None, PlainIndex])
def test_what_means_the_same_is_found_beside_what_has_the_words(index: Any) -> None:
    memory = memory_of(Meanings(), index() if index else None)
    memory.add([say("My couch is red."), say("A sofa is a seat."), say("Soup for lunch."), say("Nothing.")])
    memory.flush()
    found = memory.search("sofa", explain=True)
    assert texts(found) == ["A sofa is a seat.", "My couch is red."]
    assert 1 >= found[0].score > found[1].score > 0
    assert found[1].signals["meaning"] > 0
    for recalled in found:
        assert sum(recalled.signals.values()) == pytest.approx(recalled.score)
    assert texts(memory.search("sofa", where=lambda m: "couch" in m.message.text)) == ["My couch is red."]
    assert memory.search("aeroplane") == []
    assert memory.stats() == {"searches": 3, "degraded": 0, "behind": 0, "refused": 0, "damaged": 0}


def test_what_has_the_words_is_weighed_by_its_meaning_too_where_others_are_nearer() -> None:
    index: Any = PlainIndex()
    memory = memory_of(Meanings(), index)
    memory.add([*(say(f"The couch of puppy {n}.") for n in range(20)), say("The sofa broth of a puppy.")])
    memory.flush()
    (best,) = memory.search("sofa", 1, explain=True)
    assert best.text == "The sofa broth of a puppy."
    (hit,) = index.search(longterm_namespace(memory.scope), "sofa", 9)
    assert best.signals == pytest.approx({"words": hit.score / 2, "meaning": 1 / 6})
    assert run(memory.candidates_flow("sofa", 9)) == {}  # it has no signals whose weights could be fitted


def test_what_means_the_opposite_is_not_found_by_that() -> None:
    vectors = open_vectors(
        "memory:", Embedder(lambda texts: [[-1.0 if "not" in text else 1.0] for text in texts], name="n")
    )
    index: Any = PlainIndex()
    memory = LongTermMemory(MemoryStore(), index, vectors=vectors, user="ada")
    memory.add([say("My couch is not red.")])
    memory.flush()
    assert memory.search("sofa") == []


def test_names_of_speakers_are_not_embedded() -> None:
    vectors = Meanings()
    memory = memory_of(vectors)
    memory.add([say("My couch is red.", "Anna")])
    memory.flush()
    assert texts(memory.search("What about Anna's sofa?")) == ["My couch is red."]
    assert "Anna" not in vectors.queries[-1]


def test_h2_adding_does_not_wait_for_the_vectors_and_they_follow_by_themselves() -> None:
    vectors = Meanings()
    vectors.wait.clear()
    memory = memory_of(vectors)
    memory.add([say("My couch is red.")])
    assert vectors.kept == {}
    assert texts(memory.search("red")) == ["My couch is red."]
    memory.add([say("My dog is brown.")])  # while the first are under way
    vectors.wait.set()
    assert vectors.applied.wait(120)
    memory.flush()
    assert texts(memory.search("puppy")) == ["My dog is brown."]
    assert texts(memory.search("sofa")) == ["My couch is red."]


def test_h2_what_is_added_while_the_vectors_follow_waits_for_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Overtaken(Meanings):
        def apply(self, *args: Any, **kwargs: Any) -> None:
            if later:
                memory.add([say(later.pop())])
            super().apply(*args, **kwargs)

    turns: list[Callable[[], None]] = []
    monkeypatch.setattr("langmem_adapters.recall.vectors.submit", turns.append)
    later: list[str] = []
    memory = memory_of(vectors := Overtaken())
    kept = vectors.kept.setdefault(longterm_namespace(memory.scope), {})
    memory.add([say("My bike is red.")])
    memory.add([say("My car is blue.")])
    later.append("My boat is green.")
    turns.pop()()
    assert (turns, len(kept)) == ([], 3)
    memory.add([say("My kite is grey.")])
    turns.pop()()
    assert (turns, len(kept)) == ([], 4)


def test_what_is_not_embedded_yet_counts_as_near_as_others_are() -> None:
    vectors = Meanings()
    memory = memory_of(vectors)
    memory.add([say("My couch is red.")])
    memory.flush()
    vectors.wait.clear()
    memory.add([say("A sofa.")])
    found = {r.text: r.signals.get("meaning", 0.0) for r in memory.search("sofa", explain=True)}
    vectors.wait.set()
    assert found["A sofa."] == pytest.approx(found["My couch is red."])
    assert found["A sofa."] > 0


def test_a_filter_leaves_its_places_to_what_is_found_by_meaning_alone() -> None:
    memory = memory_of(Meanings())
    memory.add([say(f"couch number {n}") for n in range(200)])
    memory.flush()
    found = memory.search("sofa", 1, where=lambda m: m.message.text.endswith(" 77"))
    assert texts(found) == ["couch number 77"]


def test_updates_deletions_and_clear_reach_the_vectors() -> None:
    vectors = Meanings()
    memory = memory_of(vectors)
    memory.add([say("My couch is red."), say("My soup is hot.")])
    memory.update(memory.all()[0].id, "My dog is red.")
    memory.flush()
    assert (texts(memory.search("sofa")), texts(memory.search("puppy"))) == ([], ["My dog is red."])
    memory.delete([memory.all()[0].id])
    memory.flush()
    assert memory.search("puppy") == []
    memory.rebuild()
    assert texts(memory.search("broth")) == ["My soup is hot."]
    memory.clear()
    assert vectors.kept == {}


@pytest.mark.parametrize("failure", [ModelError("the embedder failed"), SearchError("the vectors failed")])
def test_failing_vectors_cost_a_search_nothing_but_what_they_find(
    failure: LangmemError, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = Meanings()
    memory, store = memory_of(vectors), MemoryStore()
    memory.add([say("My couch is red.")])
    memory.flush()
    vectors.failure = failure
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        memory.add([say("My dog is brown.")])
        for _ in range(3):
            assert texts(memory.search("red sofa")) == ["My couch is red."]
        with pytest.raises(type(failure)):
            memory.flush()
    assert memory.stats()["searches"] == 3
    assert memory.stats()["degraded"] == 3
    searches = [r for r in caplog.records if "searches by words alone" in r.message]
    assert 1 <= len(searches) <= 2  # of the search and of the following, once each
    assert "couch" not in caplog.text
    strict = LongTermMemory(store, open_index("memory:"), vectors=vectors, user="ada", strict=True)
    strict.add([say("My dog is brown.")])
    with pytest.raises(type(failure)):
        strict.search("dog")
    vectors.failure = None
    memory.flush()
    assert texts(memory.search("puppy")) == ["My dog is brown."]


@pytest.mark.parametrize("index", [None, PlainIndex])
def test_vectors_that_are_away_are_asked_once_in_half_a_minute(index: Any) -> None:
    vectors, clock = Meanings(), FakeClock()
    memory = memory_of(vectors, index() if index else None, clock=clock)
    memory.add([say(f"couch number {n}") for n in range(200)])
    memory.flush()
    vectors.failure = ModelError("the embedder failed")
    for n in range(3):
        found = memory.search("couch", 1, where=lambda m: m.message.text.endswith(" 77"), scope=Scope(user="ada"))
        assert texts(found) == ["couch number 77"]
        clock.advance(9.9)
        assert (vectors.asked, memory.stats()["degraded"]) == (1, n + 1)
    vectors.failure = None
    assert memory.search("sofa") == []
    assert memory.stats()["degraded"] == 4
    clock.advance(0.5)
    assert texts(memory.search("sofa", 1)) != []
    assert memory.stats() == {"searches": 5, "degraded": 4, "behind": 0, "refused": 0, "damaged": 0}


def test_vectors_that_follow_again_are_asked_again() -> None:
    vectors, clock = Meanings(), FakeClock()
    memory = memory_of(vectors, clock=clock)
    memory.add([say("My couch is red.")])
    memory.flush()
    vectors.failure = ModelError("the embedder failed")
    assert memory.search("sofa") == []
    vectors.failure = None
    memory.flush()
    assert texts(memory.search("sofa")) == ["My couch is red."]


def test_what_fails_again_and_again_is_counted_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock, vectors = FakeClock(), Meanings()
    memory = memory_of(vectors, clock=clock)
    memory.add([say("My couch is red.")])
    memory.flush()
    for failure in (SearchError("one"), SearchError("two"), ModelError("three"), SearchError("four")):
        vectors.failure = failure
        memory.search("sofa")
        clock.advance(60)
    assert memory.stats()["degraded"] == 4
    logged = [record.getMessage() for record in caplog.records if "searches by words alone" in record.message]
    assert [message.rpartition(" ")[2] for message in logged] == ["one", "three"]


def test_what_fails_for_many_memories_of_one_index_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    vectors, other = Meanings(), Meanings()
    vectors.failure = other.failure = SearchError("the vectors are away")
    memories = [memory_of(vectors) for _ in range(5)]  # as BrainMemoryMiddleware has one for each session
    for memory in [*memories, memory_of(other)]:
        memory.search("sofa")
    assert [memory.stats()["degraded"] for memory in memories] == [1] * 5
    logged = [record.getMessage() for record in caplog.records if "searches by words alone" in record.message]
    assert [message.rpartition(": ")[2] for message in logged] == ["the vectors are away"] * 2


class Unhashable(Meanings):
    __hash__ = None  # type: ignore[assignment]


def test_what_fails_in_an_index_that_has_no_hash_is_logged_as_well(caplog: pytest.LogCaptureFixture) -> None:
    vectors = Unhashable()
    vectors.failure = SearchError("the vectors are away")
    memory = memory_of(vectors, clock=(clock := FakeClock()))
    for _ in range(3):
        memory.search("sofa")
        clock.advance(60)
    assert memory.stats()["degraded"] == 3
    assert len([record for record in caplog.records if "searches by words alone" in record.message]) == 1


def test_strict_asks_each_time() -> None:
    vectors = Meanings()
    memory = memory_of(vectors, strict=True)
    memory.add([say("My couch is red.")])
    memory.flush()
    vectors.failure = ModelError("the embedder failed")
    for n in range(3):
        with pytest.raises(ModelError):
            memory.search("sofa")
        assert vectors.asked == n + 1
    assert memory.stats()["degraded"] == 0


def test_vectors_that_another_process_has_cost_a_search_nothing_else_unless_it_is_strict() -> None:
    for strict in (False, True):
        vectors = Meanings()
        memory = memory_of(vectors, strict=strict)
        memory.add([say("My couch is red.")])
        memory.flush()
        vectors.failure = ConfigurationError("another process uses the folder")
        if strict:
            with pytest.raises(ConfigurationError):
                memory.search("couch")
        else:
            assert texts(memory.search("couch")) == ["My couch is red."]
        assert memory.stats()["degraded"] == (not strict)


# --- an embedder that can be awaited


class Awaited:
    """A model of LangChain's kind: it counts which way it is asked, and may fail in the one that is awaited."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.ways: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._embed(text) for text in texts]

    def _embed(self, text: str) -> list[float]:
        return [1.0, float("sofa" in text or "couch" in text), 0.1 * len(text)]

    def embed_query(self, text: str) -> list[float]:
        self.ways.append("blocking")
        return self._embed(text)

    async def aembed_query(self, text: str) -> list[float]:
        self.ways.append("awaited")
        if self.failure:
            raise self.failure
        return self._embed(text)


def awaited(model: Awaited, **more: Any) -> LongTermMemory:
    vectors = open_vectors("memory:", Embedder(model, name="awaited", **more))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada", clock=FakeClock())
    memory.add([say("My couch is red.", "Anna"), say("Soup for lunch.")])
    memory.flush()
    memory.search("Soup")  # so that the index of words knows who speaks
    model.ways.clear()
    return memory


async def test_a_search_on_an_event_loop_holds_no_thread_while_the_model_thinks() -> None:
    model = Awaited()
    memory = awaited(model)
    found = await memory.asearch("What about Anna's sofa?", 1)
    assert (texts(found), model.ways) == (["My couch is red."], ["awaited"])
    assert texts(await asyncio.to_thread(memory.search, "a sofa", 1)) == ["My couch is red."]
    assert model.ways == ["awaited", "blocking"]
    await memory.asearch("a sofa")
    assert model.ways == ["awaited", "blocking"]  # it is remembered, whichever way it was asked
    assert memory.stats()["degraded"] == 0


@pytest.mark.parametrize("failure", [NotImplementedError(), RuntimeError("Event loop is closed")])
async def test_a_model_that_cannot_be_awaited_here_is_asked_in_the_other_way(failure: Exception) -> None:
    model = Awaited(failure)
    memory = awaited(model)
    assert texts(await memory.asearch("a sofa", 1)) == ["My couch is red."]
    assert model.ways == ["awaited", "blocking"]
    assert memory.stats()["degraded"] == 0


async def test_a_model_that_fails_when_it_is_awaited_is_not_asked_in_the_other_way() -> None:
    model = Awaited(ConnectionError())
    memory = awaited(model)
    for n in range(3):
        assert texts(await memory.asearch("red couch")) == ["My couch is red."]
        assert (model.ways, memory.stats()["degraded"]) == (["awaited"], n + 1)


async def test_nothing_is_asked_ahead_that_nobody_remembers() -> None:
    model = Awaited()
    memory = awaited(model, remembered=0)
    assert texts(await memory.asearch("a sofa", 1)) == ["My couch is red."]
    assert set(model.ways) == {"blocking"}


# --- filters and scopes


def test_a_scope_narrows_to_a_session_and_never_widens() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", tenant="acme")
    for session in ("monday", "tuesday"):
        memory.add([say(f"The sofa of {session}.")], session=session)
    assert len(memory.search("sofa", scope=Scope(tenant="acme", user="ada"))) == 2
    assert texts(memory.search("sofa", scope=Scope(tenant="acme", user="ada", session="monday"))) == [
        "The sofa of monday."
    ]
    assert memory.search("sofa", scope=Scope(tenant="acme", user="ada", session="never")) == []
    for other in (Scope(user="ada"), Scope(tenant="acme", user="eve"), Scope(tenant="acme", session="monday"), Scope()):
        with pytest.raises(ConfigurationError, match="names the tenant and the user of the memory"):
            memory.search("", scope=other)
    alone = LongTermMemory(MemoryStore(), open_index("memory:"), session="monday")
    alone.add([say("A sofa.")])
    assert len(alone.search("sofa", scope=Scope(session="monday"))) == 1
    with pytest.raises(ConfigurationError, match="another session"):
        alone.search("sofa", scope=Scope(session="tuesday"))


def test_a_filter_leaves_its_places_to_others(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    memory.add([say(f"sofa number {n}") for n in range(300)], session="s")
    found = memory.search("sofa", 3, where=lambda m: m.message.text.endswith("77"))
    assert sorted(texts(found)) == ["sofa number 177", "sofa number 277", "sofa number 77"]


TEXTS = st.lists(st.sampled_from(["sofa", "couch", "dog", "puppy", "Anna", "when?", "red"]), min_size=1).map(" ".join)
SAID = st.lists(st.tuples(TEXTS, st.sampled_from(["a", "b", ""]), st.sampled_from(["ada", "eve"])), max_size=25)


@given(SAID, TEXTS, st.integers(1, 6), st.sampled_from(["a", "b", ""]), st.booleans())
def test_e2_no_result_ever_leaves_its_scope_or_its_filter(
    said: list[tuple[str, str, str]], query: str, k: int, session: str, with_vectors: bool
) -> None:
    store, index, vectors = MemoryStore(), open_index("memory:"), Meanings() if with_vectors else None
    memories = {u: LongTermMemory(store, index, vectors=vectors, user=u) for u in ("ada", "eve")}
    for n, (text, session_, user) in enumerate(said):
        memories[user].add([Message(role="user", content=f"{text} n{n}", metadata={"n": n})], session=session_)
    for memory in memories.values():
        memory.flush()

    def even(memory: Any) -> bool:
        return bool(memory.message.metadata["n"] % 2 == 0)

    found = memories["ada"].search(query, k, where=even, scope=Scope(user="ada", session=session))
    for recalled in found:
        number = recalled.memory.message.metadata["n"]
        assert number % 2 == 0
        assert said[number][2] == "ada"
        assert not session or said[number][1] == session
    words = set(query.lower().split()) - {"when?"}
    if "Anna" not in query and words:
        sure = [
            n
            for n, (text, s, u) in enumerate(said)
            if n % 2 == 0 and u == "ada" and (not session or s == session) and words & set(text.lower().split())
        ]
        assert len(found) >= min(k, len(sure))
    index.close()


def test_two_indexes_follow_with_positions_of_their_own(tmp_path: Path) -> None:
    vectors = Meanings()
    index = open_index(f"sqlite:///{tmp_path / 'index.db'}")
    memory = memory_of(vectors, index)
    vectors.failure = ModelError("the embedder is away")
    memory.add([say("My couch is red.")])
    memory.search("red")
    namespace = ("longterm", "", "ada")
    assert index.position(namespace) is not None
    assert (vectors.position(namespace) or START)[0] == 0  # it may have begun
    vectors.failure = None
    memory.flush()
    assert vectors.position(namespace) == index.position(namespace)
    index.close()
