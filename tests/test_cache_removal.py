"""ExperienceCache forgets a tag as a whole, and stays within its bounds, in both of its modes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters import ConfigurationError, Embedder, open_vectors
from langmem_adapters.experience import Verifier
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.langchain import ExperienceCache
from langmem_adapters.langchain.request import request_key
from langmem_adapters.langchain.semantic import SemanticMode
from langmem_adapters.protocols import Store

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


@pytest.mark.parametrize("arguments", [{}, {"tag": 4}, {"tag": ("a",)}])
def test_a_request_that_says_nothing_is_refused_and_removes_nothing(any_store: Store, arguments: Any) -> None:
    cache = ExperienceCache(store=any_store)
    cache.update("p", "m", answer("a"))
    with pytest.raises(ConfigurationError):
        cache.invalidate(**arguments)
    assert said(cache.lookup("p", "m")) == "a"


# --- bounds


def test_no_more_entries_are_kept_than_was_said(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, max_entries=5)
    for n in range(40):
        cache.update(f"p{n}", "m", answer(str(n)))
        assert cache.pool.count() <= 5
    assert said(cache.lookup("p39", "m")) == "39"
    assert cache.stats()["evicted"] == 40 - cache.pool.count()


def test_no_more_bytes_are_kept_than_was_said(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, max_bytes=3000)
    for n in range(30):
        cache.update(f"p{n}", "m", answer("x" * 500))
    kept = any_store.get(("experience", "", "", "langchain"))
    assert 0 < sum(len(data) for key, data in kept.items() if "\0" not in key) <= 3000


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
    texts = {
        data.decode()
        for namespace in any_store.namespaces(("experience", "", "", "langchain", "semantic"))
        for data in any_store.get(namespace).values()
    }
    assert {word for word in WORDS for text in texts if word in text} == set(left)
    for word in WORDS:
        assert said(cache.lookup(prompt(f"The {word}, where is it?"), "m")) == (word if word in left else None)
    (namespace,) = any_store.namespaces(("experience", "", "", "langchain", "semantic"))
    found = {hit.id for word in WORDS for hit in index.search(namespace, f"the {word}", 9)}
    assert found == {request_key(prompt(f"Where is the {word}?"), "m") for word in left}


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
