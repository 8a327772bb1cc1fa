"""ExperienceCache forgets a tag as a whole, and stays within its bounds, in both of its modes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation
from pydantic import Field

from langmem_adapters import ConfigurationError, Embedder, Experience, SerializationError, open_vectors
from langmem_adapters.experience import Verifier
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock

pytestmark = pytest.mark.usefixtures("patient_search")

WORDS = ("bike", "boat", "car", "kite", "plane", "ship", "tram", "van")


def by_words(texts: Sequence[str]) -> list[list[float]]:
    return [[0.01, *(float(word in text.lower()) for word in WORDS)] for text in texts]


@pytest.fixture
def index() -> Iterator[VectorIndex]:
    index = open_vectors("memory:", Embedder(by_words, name="words"))
    yield index
    index.close()


def prompt(text: str) -> str:
    return dumps([HumanMessage(text)])


def answer(text: str) -> list[Generation]:
    return [ChatGeneration(message=AIMessage(text))]


def said(found: list[Generation] | None) -> str | None:
    return None if found is None else found[0].text


def semantic(store: Store, index: VectorIndex, **settings: Any) -> ExperienceCache:
    mode = SemanticMode(
        index=index, verifier=Verifier(guards={}, judge=lambda asked, kept: by_words([asked]) == by_words([kept]))
    )
    return ExperienceCache(store=store, semantic=mode, **settings)


def keep_answer(cache: ExperienceCache, way: str, text: str, said: str) -> None:
    """As LangChain does, or as a model does that has the cache itself."""
    if way == "CachedChatModel":
        CachedChatModel(FakeListChatModel(responses=[said]), cache).invoke(text)
    else:
        FakeListChatModel(responses=[said], cache=cache).invoke(text)


def texts_of(store: Store) -> set[str]:
    """What the semantic mode keeps of requests."""
    return {
        data.decode()
        for namespace in store.namespaces(("experience", "", "", "langchain", "semantic"))
        for key, data in store.get(namespace).items()
        if "\0" not in key
    }


WAYS = ("set_llm_cache", "CachedChatModel")


def places(store: Store) -> set[tuple[str, ...]]:
    return {namespace for namespace in store.namespaces() if store.get(namespace)}


# --- a whole tag


async def _removed(cache: ExperienceCache, asynchronous: bool, **arguments: Any) -> int:
    return await cache.ainvalidate(**arguments) if asynchronous else cache.invalidate(**arguments)


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_all_under_a_tag_goes_and_nothing_else(any_store: Store, asynchronous: bool) -> None:
    whose = [("", "a"), ("", "b"), ("acme", "a")]
    caches = [ExperienceCache(store=any_store, tenant=tenant, tag=tag) for tenant, tag in whose]
    for cache in caches:
        for n in range(3):
            cache.update(f"p{n}", "m", answer(str(n)))
    assert await _removed(caches[1], asynchronous, tag="a") == 3
    assert [said(cache.lookup("p1", "m")) for cache in caches] == [None, "1", "1"]
    assert await _removed(caches[1], asynchronous, tag="b") == 3
    assert await _removed(caches[1], asynchronous, tag="b") == 0
    assert places(any_store) == {("experience", "acme", "", "a")}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_of_another_tag_only_those_that_are_pointed_out(any_store: Store, asynchronous: bool) -> None:
    cache, other = (ExperienceCache(store=any_store, tag=tag) for tag in ("a", "b"))
    for each in (cache, other):
        for text in ("good", "bad"):
            each.update(text, "m", answer(text))
    wrong = {"where": lambda found: found[0].text == "bad", "tag": "b"}
    assert await _removed(cache, asynchronous, **wrong) == 1
    assert [said(each.lookup(text, "m")) for each in (cache, other) for text in ("good", "bad")] == [
        "good",
        "bad",
        "good",
        None,
    ]


@pytest.mark.parametrize("meaning", [False, True])
def test_what_the_semantic_mode_kept_goes_with_it(any_store: Store, index: VectorIndex, meaning: bool) -> None:
    """Also if the cache that is asked has no such mode, and knows no index."""
    kept, stays = semantic(any_store, index, tag="a"), semantic(any_store, index, tag="b")
    for cache in (kept, stays):
        cache.update(prompt("Where is the bike?"), "m", answer("In the shed."))
        assert said(cache.lookup(prompt("The bike, where is it?"), "m")) == "In the shed."
    asked = stays if meaning else ExperienceCache(store=any_store, tag="c")
    assert asked.invalidate(tag="a") == 1
    assert not any(namespace[3] == "a" for namespace in places(any_store))
    assert kept.lookup(prompt("The bike, where is it?"), "m") is None
    assert said(stays.lookup(prompt("The bike, where is it?"), "m")) == "In the shed."
    kept.update(prompt("Where is the bike?"), "m", answer("Behind the house."))
    assert said(kept.lookup(prompt("The bike, where is it?"), "m")) == "Behind the house."


def test_what_nobody_can_read_goes_too(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    place = ("experience", "", "", "langchain")
    any_store.write(place, put={"k": b"damaged", "lost": b"without an entry in the log"}, append=[("k", b"")])
    cache.invalidate(tag="langchain")
    assert any_store.get(place) == {}


@pytest.mark.parametrize("arguments", [{}, {"tag": 4}, {"tag": ("a",)}, {"where": asyncio.sleep}])
def test_a_request_that_says_nothing_is_refused_and_removes_nothing(any_store: Store, arguments: Any) -> None:
    cache = ExperienceCache(store=any_store)
    cache.update("p", "m", answer("a"))
    with pytest.raises(ConfigurationError):
        cache.invalidate(**arguments)
    assert said(cache.lookup("p", "m")) == "a"


# --- bounds


@pytest.mark.parametrize("bounds", [{"max_entries": 0}, {"max_bytes": 0}])
def test_bounds_are_above_nothing(any_store: Store, bounds: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="max_"):
        ExperienceCache(store=any_store, **bounds)


def test_what_has_to_go_goes_from_the_semantic_mode_too(any_store: Store, index: VectorIndex) -> None:
    cache = semantic(any_store, index, max_entries=3)
    for word in WORDS:
        cache.update(prompt(f"Where is the {word}?"), "m", answer(word))
    kept = any_store.get(("experience", "", "", "langchain"))  # a look-up would tidy up by itself
    left = [word for word in WORDS if request_key(prompt(f"Where is the {word}?"), "m") in kept]
    assert 0 < len(left) <= 3
    assert {word for word in WORDS for text in texts_of(any_store) if word in text} == set(left)
    for word in WORDS:
        assert said(cache.lookup(prompt(f"The {word}, where is it?"), "m")) == (word if word in left else None)
    (namespace,) = any_store.namespaces(("experience", "", "", "langchain", "semantic"))
    found = {hit.id for word in WORDS for hit in index.search(namespace, f"the {word}", 9)}
    assert found == {request_key(prompt(f"Where is the {word}?"), "m") for word in left}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bound", [{"max_entries": 3}, {"max_bytes": 6000}])
def test_c11_what_has_to_go_leaves_no_text_behind_whoever_asks(
    any_store: Store, index: VectorIndex, way: str, bound: dict[str, int]
) -> None:
    cache = semantic(any_store, index, **bound)
    for n in range(30):
        keep_answer(cache, way, f"Where is the {WORDS[n % 8]} of {n}?", "x" * (9000 if n == 20 else 9))
    assert len(texts_of(any_store)) == cache.pool.count() > 0
    assert not any("of 20?" in text for text in texts_of(any_store))


@pytest.mark.parametrize("way", WAYS)
def test_what_expired_leaves_no_text_behind(any_store: Store, index: VectorIndex, way: str) -> None:
    clock = FakeClock()
    mode = SemanticMode(index=index, verifier=Verifier(guards={}, judge=lambda *_: False))
    cache = ExperienceCache(store=any_store, semantic=mode, ttl=60, clock=clock)
    for n in range(20):
        keep_answer(cache, way, f"Where is the old {WORDS[n % 8]} of {n}?", "x")
    clock.advance(61)
    for n in range(50):
        keep_answer(cache, way, f"Where is the {WORDS[n % 8]} of {n}?", "x")
    assert len(any_store.get(("experience", "", "", "langchain"))) == len(texts_of(any_store)) == 50
    assert not any("old" in text for text in texts_of(any_store))


def test_c11_texts_that_a_killed_process_left_without_an_answer_go(any_store: Store, index: VectorIndex) -> None:
    cache = semantic(any_store, index)
    cache.update(prompt("Where is the bike?"), "m", answer("In the shed."))
    for n in range(20):
        key = request_key(prompt(f"Where is the boat of {n}?"), "m")
        cache.update(prompt(f"Where is the boat of {n}?"), "m", answer("At sea."))
        any_store.write(("experience", "", "", "langchain"), delete=[key])  # and no more: it was killed
    for n in range(40):
        cache.update(prompt(f"Where is the van of {n}?"), "m", answer("In town."))
    assert not any("boat" in text for text in texts_of(any_store))
    assert len(texts_of(any_store)) == 41
    assert said(cache.lookup(prompt("The bike, where is it?"), "m")) == "In the shed."


@pytest.mark.parametrize("way", WAYS)
def test_deleting_an_answer_looks_where_its_question_is_and_nowhere_else(
    index: VectorIndex, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    cache = semantic(store, index)
    for word in WORDS:
        keep_answer(cache, way, f"Where is the {word}?", word)
    (key, *_) = store.get(("experience", "", "", "langchain"))
    monkeypatch.setattr(store, "namespaces", lambda *_: pytest.fail("all partitions were looked at"))
    assert cache.delete(key)
    monkeypatch.undo()
    assert len(texts_of(store)) == len(WORDS) - 1


def test_the_text_of_an_answer_that_names_no_partition_goes_too(any_store: Store, index: VectorIndex) -> None:
    cache = semantic(any_store, index)
    cache.update(prompt("Where is the bike?"), "m", answer("In the shed."))
    cache.update(prompt("Where is the boat?"), "m", answer("At sea."))
    key = request_key(prompt("Where is the bike?"), "m")
    found = cache.pool.lookup(key=key)
    assert found is not None
    cache.pool.create(Experience(resp=found.resp), key=key)  # as an older version kept it
    assert cache.delete(key)
    assert [("bike" in text, "boat" in text) for text in texts_of(any_store)] == [(False, True)]


def test_evicted_entries_of_before_this_was_kept_do_no_harm(any_store: Store, index: VectorIndex) -> None:
    """Those that do not say where their questions are go when their questions are found."""
    old = ExperienceCache(store=any_store)
    for n in range(4):
        old.update(f"p{n}", "m", answer(str(n)))
    cache = semantic(any_store, index, max_entries=2)
    cache.update(prompt("Where is the bike?"), "m", answer("In the shed."))
    cache.update(prompt("Where is the boat?"), "m", answer("At sea."))
    assert cache.pool.count() <= 2
    assert cache.stats()["semantic_errors"] == 0


def test_an_answer_that_nobody_can_read_is_forgotten_with_those_that_are_pointed_out() -> None:
    cache = ExperienceCache(store=MemoryStore())
    keep_answer(cache, "set_llm_cache", "Where is my bike?", "In the shed.")
    keep_answer(cache, "set_llm_cache", "Where is my boat?", "In the harbour.")
    cache.pool.create(Experience(resp="no generations"), key="damaged")
    with pytest.raises(ConfigurationError, match="where gave what must be awaited"):
        cache.invalidate(lambda _: asyncio.sleep(0, False))  # type: ignore[arg-type, return-value]
    assert cache.invalidate(lambda found: "shed" in found[0].text) == 2
    assert [entry.resp[0]["message"]["content"] for entry in cache.pool.all()] == ["In the harbour."]


def test_what_a_function_of_ones_own_raises_is_raised() -> None:
    cache = ExperienceCache(store=MemoryStore())
    keep_answer(cache, "set_llm_cache", "Where is my bike?", "In the shed.")

    def fails(found: list[Generation]) -> bool:
        raise SerializationError(f"mine, of {found[0].text}")

    with pytest.raises(SerializationError, match="mine"):
        cache.invalidate(fails)
    assert len(cache.pool.all()) == 1


@pytest.mark.parametrize("hit", [{"a": 1}, None, 5, Generation(text="of a completion model")])
def test_what_is_no_hit_cannot_be_deleted(hit: Any) -> None:
    with pytest.raises(ConfigurationError, match="did not come from a cache"):
        ExperienceCache(store=MemoryStore()).delete(hit)


@pytest.mark.parametrize(
    "forget",
    [
        lambda cache: cache.clear(),
        lambda cache: cache.delete(request_key(prompt("Which bike?"), "m")),
        lambda cache: cache.invalidate(lambda _: True),
        lambda cache: cache.invalidate(tag="langchain"),
    ],
)
def test_what_was_asked_before_its_place_was_cleared_is_not_kept_after_it(
    forget: Callable[[ExperienceCache], object], any_store: Store
) -> None:
    cache = ExperienceCache(store=any_store)
    request = prompt("Which bike?"), "m"
    assert cache.lookup(*request) is None
    forget(cache)
    cache.update(*request, answer("The red one."))  # the model had begun before
    assert cache.lookup(*request) is None
    cache.update(*request, answer("The blue one."))
    assert said(cache.lookup(*request)) == "The blue one."


class Twice(BaseChatModel):
    """Answers with the number of the call; and while it is at one of them, something else happens."""

    meanwhile: dict[int, Callable[[], Any]] = Field(default_factory=dict, exclude=True)
    asked: int = 0

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        self.asked += 1
        number = self.asked
        self.meanwhile.get(number, lambda: None)()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(str(number)))])

    async def _agenerate(self, *_: Any, **__: Any) -> ChatResult:
        self.asked += 1
        number = self.asked
        if (done := self.meanwhile.get(number, lambda: None)()) is not None:
            await done
        return ChatResult(generations=[ChatGeneration(message=AIMessage(str(number)))])

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"name": "twice"}

    @property
    def _llm_type(self) -> str:
        return "twice"


@pytest.mark.parametrize(
    ("way", "left"), [("asked anew", "2"), ("cleared before the second asked", "2"), ("cleared as both asked", "3")]
)
@pytest.mark.parametrize("face", ["sync", "async"])
def test_of_two_that_ask_the_same_at_once_none_keeps_what_was_asked_before_its_place_was_cleared(
    face: str, way: str, left: str
) -> None:
    cache = ExperienceCache(store=MemoryStore())
    model = Twice(cache=cache)

    def ask() -> Any:
        return model.invoke("Which bike?") if face == "sync" else model.ainvoke("Which bike?")

    def first() -> Any:
        if way == "cleared before the second asked":
            cache.clear()
        if way != "asked anew":
            return ask()
        if face == "async":
            return anew()
        with cache.refresh():
            return ask()

    async def anew() -> None:
        with cache.refresh():
            await ask()

    model.meanwhile = {1: first, 2: cache.clear} if way == "cleared as both asked" else {1: first}
    for number in ("1", left):
        given = ask()
        assert (given if face == "sync" else asyncio.run(settled(given))).text == number


def test_of_a_batch_with_equal_prompts_nothing_is_kept_that_was_asked_before_its_place_was_cleared() -> None:
    cache, model = ExperienceCache(store=MemoryStore()), "m"
    for answered in range(2):
        assert [cache.lookup("Which bike?", model) for _ in range(3)] == [None] * 3
        if not answered:
            cache.clear()
        for _ in range(3):
            cache.update("Which bike?", model, [Generation(text="The red one.")])
        assert cache.pool.count() == answered


def test_models_that_failed_do_not_hide_that_what_is_asked_now_was_removed() -> None:
    cache = ExperienceCache(store=MemoryStore())
    for n in range(999):
        cache.lookup(f"fails {n}", "model")
    cache.lookup("asked", "model")
    cache.lookup("fails as well", "model")
    cache.clear()
    cache.update("asked", "model", answer("of before"))
    assert cache.lookup("asked", "model") is None


async def settled(given: Any) -> Any:
    return await given
