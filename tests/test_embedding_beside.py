"""A look-up never waits for what another thread embeds: it searches what is there, and nothing is forgotten."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration

from langmem_adapters import Experience, ExperiencePool
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import LangmemError
from langmem_adapters.experience.shelf import index as module
from langmem_adapters.experience.shelf.index import ShelfIndex
from langmem_adapters.experience.shelf.rows import Rows
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.waiting import until

T = TypeVar("T")

ASKED, ALIKE = "How do I learn to speak Hindi?", "How can I learn to speak Hindi?"
SLOW = "What is slow to embed?"


class Gated:
    """An embedder that stands still in the background, at a certain text, until it is let go on."""

    def __init__(self) -> None:
        self.gate, self.at_it = threading.Event(), threading.Event()
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if SLOW in texts and threading.current_thread() is not threading.main_thread():
            self.at_it.set()
            assert self.gate.wait(60)
        self.texts += texts
        return [[1.0, float("Hindi" in text), float("slow" in text)] for text in texts]


@pytest.fixture
def gated() -> Iterator[Gated]:
    gated = Gated()
    yield gated
    gated.gate.set()


def caching(gated: Gated, store: Store) -> ExperienceCache:
    index = open_vectors("memory:", Embedder(gated, name="gated"))
    return ExperienceCache(store=store, semantic=SemanticMode(index=index))


def prompt(text: str) -> str:
    return dumps([HumanMessage(text)])


def answer(text: str) -> list[Any]:
    return [ChatGeneration(message=AIMessage(text))]


def test_a_look_up_searches_what_is_there_while_another_thread_embeds(any_store: Store, gated: Gated) -> None:
    cache = caching(gated, any_store)
    cache.update(prompt(ASKED), "m", answer("Take a course."))
    until(lambda: cache.lookup(prompt(ALIKE), "m"))
    cache.update(prompt(SLOW), "m", answer("This."))
    assert gated.at_it.wait(60)  # it is in the background, and stays there until all of this is done
    began = time.monotonic()
    for _ in range(20):
        assert cache.lookup(prompt(ALIKE), "m") is not None
    assert time.monotonic() - began < 10
    assert cache.lookup(prompt("What is fast to embed?"), "m") is None
    assert not gated.gate.is_set()


def test_a_file_of_vectors_is_searched_while_another_thread_embeds(gated: Gated, tmp_path: Path) -> None:
    cache = ExperienceCache(url=f"sqlite:///{tmp_path / 'c.db'}", semantic=Embedder(gated, name="gated"))
    cache.update(prompt(ASKED), "m", answer("Take a course."))
    until(lambda: cache.lookup(prompt(ALIKE), "m"))
    cache.update(prompt(SLOW), "m", answer("This."))
    assert gated.at_it.wait(60)
    assert cache.lookup(prompt(ALIKE), "m")
    cache.update(prompt("Hello"), "m", answer("Hi."))  # nor is the file locked
    assert cache.lookup(prompt("Hello"), "m")
    assert cache.stats()["errors"] == cache.stats()["semantic_errors"] == 0


def test_it_waits_a_moment_and_no_second_time(gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    taken = ForkSafeLock.try_hold

    def noted(lock: ForkSafeLock, seconds: float) -> Any:
        waits.extend([seconds] if threading.current_thread() is threading.main_thread() else [])
        return taken(lock, seconds)

    monkeypatch.setattr(ForkSafeLock, "try_hold", noted)
    cache = caching(gated, MemoryStore())
    cache.update(prompt(SLOW), "m", answer("This."))
    assert gated.at_it.wait(60)
    waits.clear()
    for _ in range(3):
        cache.lookup(prompt(ALIKE), "m")
    assert waits == [module._WAIT_SECONDS, 0.0, 0.0, 0.0, 0.0, 0.0]
    gated.gate.set()
    until(lambda: ALIKE in gated.texts and SLOW in gated.texts)
    until(lambda: cache.lookup(prompt("What is slow to embed"), "m") is not None)
    (shelf,) = _shelves(cache)
    until(lambda: not shelf._index._needs_catch_up)
    waits.clear()
    shelf._index.follow()
    assert waits == [module._WAIT_SECONDS]  # nobody is late any more


def test_what_was_kept_just_now_is_found(any_store: Store, gated: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 60)  # however busy the machine is
    cache = caching(gated, any_store)
    for n in range(20):
        cache.update(prompt(f"{ASKED} {n} times"), "m", answer(str(n)))
        served = cache.lookup(prompt(f"{ALIKE} {n} times"), "m")
        assert served is not None
        assert served[0].text == str(n)


def test_what_is_kept_while_a_thread_embeds_is_embedded_without_another_search(gated: Gated) -> None:
    cache = caching(gated, MemoryStore())
    cache.update(prompt(SLOW), "m", answer("This."))
    assert gated.at_it.wait(60)
    for n in range(3):
        cache.update(prompt(f"{ASKED} {n}"), "m", answer(str(n)))
    until(lambda: all(shelf._index._needs_catch_up for shelf in _shelves(cache)))
    gated.gate.set()
    until(lambda: {f"{ASKED} {n}" for n in range(3)} <= set(gated.texts))


def _shelves(cache: ExperienceCache) -> list[Any]:
    paraphrases = cache._tenants.default.paraphrases
    assert paraphrases is not None
    return list(paraphrases.verified_answers._shelves.values())


def test_a_model_call_goes_on_while_another_thread_embeds(gated: Gated) -> None:
    model = CachedChatModel(FakeListChatModel(responses=["This.", "That."]), caching(gated, MemoryStore()))
    model.invoke(SLOW)
    assert gated.at_it.wait(60)
    assert [model.invoke("Something else"), model.invoke("Something else")][1].content == "That."
    assert model.stats()["hits"] == 1


def test_without_a_model_a_search_waits_for_the_other_and_finds_all() -> None:
    pool = ExperiencePool(MemoryStore(), index=open_index("memory:"))
    pool.create(Experience(req="my red bicycle", resp=1))
    found: list[int] = []
    with pool._shelf._index._follower.lock.held():  # type: ignore[union-attr]
        thread = threading.Thread(target=lambda: found.append(len(pool.query("bicycle"))))
        thread.start()
        thread.join(3 * module._WAIT_SECONDS)
        assert thread.is_alive()
    thread.join(60)
    assert found == [1]


def test_who_comes_as_the_other_goes_does_it_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one at work may have looked for others already, and gone, before it could see this one."""
    store = MemoryStore()
    store.append(("a",), [("k", b"text")])
    store.write(("a",), put={"k": b"text"})
    rows = Rows(store, ("a",), bounded=False, counts_bytes=False)
    index = open_vectors("memory:", Embedder(lambda texts: [[1.0] for _ in texts], name="one"))
    found = ShelfIndex(rows, index, bytes.decode)
    tries: list[float] = []
    taken = ForkSafeLock.try_hold

    def first_in_vain(lock: ForkSafeLock, seconds: float) -> Any:
        if lock is not found._follower.lock:  # that of the index's file
            return taken(lock, seconds)
        tries.append(seconds)
        return taken(_held() if len(tries) == 1 else lock, 0.0)

    monkeypatch.setattr(ForkSafeLock, "try_hold", first_in_vain)
    found.follow()
    assert len(tries) == 2
    hits, entries = found.search("anything", 1)
    assert [hit.id for hit in hits] == [*entries] == ["k"]
    assert not found._needs_catch_up


def _held() -> ForkSafeLock:
    """One that another thread has."""
    lock = ForkSafeLock()
    _elsewhere(lock._process_lock().acquire)
    return lock


def _elsewhere(call: Callable[[], T]) -> T:
    """What a call in another thread gives."""
    with ThreadPoolExecutor(1) as others:
        return others.submit(call).result()


def test_an_embedder_that_fails_in_the_background_is_told_of(
    gated: Gated, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    pool = ExperiencePool(MemoryStore(), index=open_vectors("memory:", Embedder(gated, name="gated")))
    pool.create(Experience(req=SLOW, resp=1))
    thread = threading.Thread(target=lambda: pool.query("anything"))
    thread.start()
    assert gated.at_it.wait(60)
    pool.create(Experience(req="broken", resp=2))
    assert pool.query("broken") == []

    def fail(*_: Any, **__: Any) -> None:
        raise LangmemError("my-secret")

    original = ShelfIndex._follow
    monkeypatch.setattr(ShelfIndex, "_follow", fail)
    gated.gate.set()
    thread.join(60)
    until(lambda: "the next search tries again: LangmemError" in caplog.text)
    assert "my-secret" not in caplog.text
    monkeypatch.setattr(ShelfIndex, "_follow", original)
    assert {found.experience.resp for found in pool.query("anything", k=2)} == {1, 2}


def test_a_lock_is_waited_for_so_long_and_no_longer() -> None:
    lock = ForkSafeLock()

    def is_free(seconds: float) -> bool:
        with lock.try_hold(seconds) as alone:
            return alone

    with lock.try_hold(0.0) as alone:
        assert (alone, _elsewhere(lambda: is_free(0.01))) == (True, False)
    with lock.held():
        assert _elsewhere(lambda: is_free(0.0)) is False
    assert _elsewhere(lambda: is_free(0.0)) is True
    with pytest.raises(KeyError), lock.try_hold(0.0):
        raise KeyError
    with lock.try_hold(-1) as last:
        assert last
