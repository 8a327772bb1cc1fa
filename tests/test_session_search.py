"""The search of one session, whose index follows what is said and what is known, and nothing that is there no more."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.conversation.session import KNOWLEDGE
from langmem_adapters.conversation.session_search import SessionSearch
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_namespaces import ensure_namespace
from langmem_adapters.language.analysis import analyze
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Overtaken
from tests.test_cached_together import in_a_fork


def found(search: SessionSearch, query: str) -> list[str]:
    return sorted(message.text for message, _ in search.search(query, 10))


def indexed(search: SessionSearch, query: str) -> int:
    """How many documents the index itself has, whether they are there or not."""
    return len(search.index.search(brain_namespace(search.brain.scope), query, 100))


@pytest.mark.parametrize("said", [True, False])
def test_what_is_known_after_a_clear_is_found_and_what_was_known_before_is_not(any_store: Store, said: bool) -> None:
    brain = BrainMemory(any_store, "monday")
    search = SessionSearch(brain, LexicalIndex(":memory:"))
    for thing, other in (("bike", "car"), ("car", "bike")):
        brain.clear()
        brain.add_knowledge([f"The {thing} is in the shed."])
        if said:
            brain.add_talk(f"I like my {thing}.")
        assert (len(found(search, thing)), found(search, other)) == (1 + said, [])
        assert (indexed(search, thing), indexed(search, other)) == (1 + said, 0)


def test_knowledge_that_is_gone_leaves_the_index(any_store: Store) -> None:
    brain = BrainMemory(any_store, "monday")
    search = SessionSearch(brain, LexicalIndex(":memory:"))
    brain.add_knowledge(["The bike is in the shed.", "The bike is red."])
    assert len(found(search, "bike")) == 2
    brain.clear()
    brain.add_knowledge(["The car is red."])
    assert (found(search, "bike"), indexed(search, "bike"), len(found(search, "red"))) == ([], 0, 1)
    brain.clear()
    assert (found(search, "red"), indexed(search, "red")) == ([], 0)


@pytest.mark.parametrize("said", [True, False])
def test_an_index_that_was_lost_is_filled_again(any_store: Store, said: bool) -> None:
    brain = BrainMemory(any_store, "monday")
    search = SessionSearch(brain, LexicalIndex(":memory:"))
    brain.add_knowledge(["The bike is in the shed."])
    if said:
        brain.add_talk("I like my bike.")
    before = found(search, "bike")
    assert len(before) == 1 + said
    search.index.clear(brain_namespace(brain.scope))
    assert found(search, "bike") == before


@pytest.mark.parametrize("said", [True, False])
def test_who_searches_while_another_begins_the_index_anew_searches_again(any_store: Store, said: bool) -> None:
    brain = BrainMemory(any_store, "monday")
    index: Any = Overtaken(LexicalIndex(":memory:"), at="search")
    search = SessionSearch(brain, index)
    brain.add_talk("I like my bike." if said else "Hello.")
    brain.add_knowledge(["The car is red." if said else "The bike is red."])
    before = found(search, "bike")
    index.first = [lambda: index.clear(brain_namespace(brain.scope))]
    assert found(search, "bike") == before != []
    assert not index.first


def test_an_interrupt_just_after_the_index_began_anew_hides_nothing_that_is_known(any_store: Store) -> None:
    brain = BrainMemory(any_store, "monday")
    index: Any = Overtaken(LexicalIndex(":memory:"), at="apply", after=True)
    search = SessionSearch(brain, index)
    brain.add_talk("Hello.")
    brain.add_knowledge(["The bike is red."])
    assert found(search, "bike") == ["The bike is red."]

    def interrupt() -> None:
        raise KeyboardInterrupt

    index.clear(brain_namespace(brain.scope))
    index.first = [interrupt]
    with pytest.raises(KeyboardInterrupt):
        found(search, "bike")
    assert found(search, "bike") == ["The bike is red."]


def test_what_is_known_is_given_to_the_index_once(monkeypatch: pytest.MonkeyPatch) -> None:
    brain = BrainMemory(MemoryStore(), "monday")
    search = SessionSearch(brain, LexicalIndex(":memory:"))
    brain.add_knowledge(["The bike is in the shed."])
    assert found(search, "bike")
    monkeypatch.setattr(LexicalIndex, "apply", None)
    assert found(search, "bike")


def test_who_looked_earlier_takes_nothing_from_who_looked_later() -> None:
    store: Any = Overtaken(MemoryStore(), at="get", after=True)
    brain = BrainMemory(store, "monday")
    search = SessionSearch(brain, LexicalIndex(":memory:"))

    def meanwhile() -> None:
        brain.add_knowledge(["The bike is red."])
        assert len(found(search, "bike")) == 2

    brain.add_knowledge(["The bike is in the shed."])
    store.first = [meanwhile]
    found(search, "bike")
    assert indexed(search, "bike") == 2


def test_what_is_damaged_does_not_take_the_search_along(any_store: Store) -> None:
    brain = BrainMemory(any_store, "monday")
    brain.add_talk("I like my bike.")
    brain.add_knowledge(["The bike is red."])
    namespace = brain_namespace(brain.scope)
    any_store.write(namespace, put={f"{KNOWLEDGE}00000009": b"{bike"}, append=[("damaged", b"{bike")])
    search = SessionSearch(brain, LexicalIndex(":memory:"))
    assert found(search, "bike") == ["I like my bike.", "The bike is red."]


def test_what_leaves_while_it_is_looked_for_is_not_taken_for_what_follows(any_store: Store) -> None:
    brain = BrainMemory(any_store, "monday")
    brain.add_talk("I like my bike.", id="1")
    brain.add_talk("I like my car.", id="2")
    store: Any = Overtaken(
        any_store, lambda: brain.delete(["1"]), at="scan", where=lambda _, **bounds: bounds.get("limit") == 1
    )
    assert found(SessionSearch(BrainMemory(store, "monday"), LexicalIndex(":memory:")), "bike") == []
    assert not store.first


class HeldIndex(LexicalIndex):
    """Stops whoever changes it first, once, outside or inside of the transaction."""

    def __init__(self, path: str | Path, where: str) -> None:
        super().__init__(path, analyzer=self.analysed, analyzer_id="held")
        self.reached, self.open = threading.Event(), threading.Event()
        self.where = where

    def analysed(self, text: str) -> list[str]:
        self.stop("analyser")
        return analyze(text)

    def stop(self, where: str) -> None:
        if where == self.where and not self.reached.is_set():
            self.reached.set()
            assert self.open.wait(60)

    def begin(self, *place: Any) -> int:
        self.stop("transaction")
        return ensure_namespace(*place)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(("file", "where"), [("index.db", "analyser"), ("", "analyser"), ("", "transaction")])
def test_g1_a_forked_child_searches_though_its_parent_was_indexing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, where: str
) -> None:
    index = HeldIndex(tmp_path / file if file else ":memory:", where)
    monkeypatch.setattr("langmem_adapters.indexes.lexical.ensure_namespace", index.begin)
    brain = BrainMemory(MemoryStore(), "monday")
    brain.add_talk("I like my bike.")
    search = SessionSearch(brain, index)
    thread = threading.Thread(target=search.search, args=("bike", 1))
    thread.start()
    assert index.reached.wait(60)
    assert in_a_fork(lambda: " ".join(found(search, "bike"))) == "I like my bike."
    index.open.set()
    thread.join()
