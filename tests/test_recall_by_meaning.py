"""Recall by meaning from every entry point that takes an embedder: E3, H2, D5."""

from __future__ import annotations

import math
import pickle
import queue
import random
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import FakeListChatModel
from llama_index.core.base.llms.types import ChatMessage

from langmem_adapters import ConfigurationError, LongTermMemory, Message, Settings, open_index
from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.llamaindex import LongTermMemoryBlock
from langmem_adapters.protocols import Page, Store
from langmem_adapters.signals import SIGNALS
from langmem_adapters.stores.memory import MemoryStore

MEANINGS = ({"bike", "bicycle", "cycle"}, {"shed", "hut"}, {"cat", "pet", "tom"})
WORDS = [f"w{n}" for n in range(40)]


class Meanings(Embeddings):
    """An embedding model that knows three things, by any of their names."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        words = [set(text.lower().replace(".", "").replace("?", "").split()) for text in texts]
        return [[float(bool(own & meaning)) for meaning in MEANINGS] for own in words]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def said(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


def texts(found: Sequence[Any]) -> list[str]:
    return [one.text for one in found]


def test_other_words_of_the_same_meaning_are_found(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), vectors=open_vectors("memory:", Meanings()), user="ada")
    memory.add(said("My bicycle is broken."), session="a")
    memory.add(said("The weather is nice."), session="b")
    memory.flush()
    assert texts(memory.search("Where did I cycle?")) == ["My bicycle is broken."]
    assert texts(memory.search("Is there a pet?")) == []


@pytest.mark.parametrize("weighed", [SIGNALS, ["replies"]], ids=["default weights", "none that counts beside vectors"])
def test_a_query_without_any_word_is_answered_by_meaning(weighed: Collection[str]) -> None:
    bikes = Embedder(lambda texts: [[0.0, 1.0] if "shed" in text else [1.0, 0.0] for text in texts], name="bikes")
    vectors, weights = open_vectors("memory:", bikes), {name: 0.0 for name in SIGNALS if name not in weighed}
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada", weights=weights)
    memory.add(said("The shed.", "My bike."), session="a")
    memory.flush()
    found = memory.search("\U0001f6b2")
    assert texts(found) == ["My bike."]
    assert (found[0].score > 0) == (weighed is SIGNALS)


def test_h2_adding_embeds_nothing_before_it_returns() -> None:
    model, store = Meanings(), MemoryStore()
    vectors = open_vectors("memory:", model)
    memory = LongTermMemory(store, open_index("memory:"), vectors=vectors, user="ada")
    memory.add([])
    assert model.asked == []
    memory.add(said("My bicycle is broken."))
    memory.flush()
    assert model.asked == ["My bicycle is broken."]  # once, whoever was quicker


def test_a_search_embeds_its_query_once_also_where_nothing_is_remembered() -> None:
    model = Meanings()
    vectors = open_vectors("memory:", Embedder(model, name="meanings", remembered=0))
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada")
    memory.add(said(*(f"Number {n}." for n in range(40)), "My bicycle is broken."), session="a")
    memory.flush()
    model.asked.clear()
    assert texts(memory.search("Where did I cycle?"))[0] == "My bicycle is broken."
    assert model.asked == ["Where did I cycle?"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_first_search_embeds_the_query_as_the_next_ones_do(is_async: bool) -> None:
    model = Meanings()
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=open_vectors("memory:", model), user="ada")
    memory.add([Message(role="user", name="Melanie", content="My bicycle is broken.")])
    for _ in range(2):  # a model that can be awaited is asked before the index is searched
        query = "Where is the bicycle of Melanie?"
        assert texts(await memory.asearch(query) if is_async else memory.search(query)) == ["My bicycle is broken."]
    assert [" ".join(text.split()) for text in model.asked if "Where" in text] == ["Where is the bicycle of ?"]


@pytest.mark.parametrize("remembered", [0, 9], ids=["in the search", "ahead of it"])
def test_a_query_is_embedded_without_a_name_that_another_has_just_brought(remembered: int) -> None:
    model, store = Meanings(), MemoryStore()
    vectors = open_vectors("memory:", Embedder(model, name="meanings", remembered=remembered))
    memory = LongTermMemory(store, open_index("memory:"), vectors=vectors, user="ada")
    memory.add(said("My house is red."))
    memory.flush()
    other = LongTermMemory(store, open_index("memory:"), user="ada")
    other.add([Message(role="user", name="Melanie", content="My bicycle is broken.")])
    assert "My bicycle is broken." in texts(memory.search("Where is the bicycle of Melanie?"))
    assert " ".join([text for text in model.asked if "Where" in text][-1].split()) == "Where is the bicycle of ?"


def test_no_search_waits_for_the_index_of_another_memory() -> None:
    inside, finish = threading.Event(), threading.Event()

    class Slow(LexicalIndex):
        def nameless(self, namespace: Namespace, query: str) -> str:
            inside.set()
            assert finish.wait(20)
            return super().nameless(namespace, query)

    def new_memory(index: LexicalIndex) -> LongTermMemory:
        memory = LongTermMemory(MemoryStore(), index, vectors=open_vectors("memory:", Meanings()), user="ada")
        memory.add(said("My bicycle is broken."))
        memory.flush()
        return memory

    slow, other = new_memory(Slow(":memory:")), new_memory(LexicalIndex(":memory:"))
    results: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    threads = [
        threading.Thread(target=lambda memory=memory: results.put(texts(memory.search("Where did I cycle?"))))
        for memory in (slow, other)
    ]
    threads[0].start()
    assert inside.wait(20)
    threads[1].start()
    try:
        assert results.get(timeout=5) == ["My bicycle is broken."]
    finally:
        finish.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_an_index_is_brought_up_to_date_once_unless_it_is_dropped_as_the_embedder_is_asked(
    is_dropped: bool,
) -> None:
    index = open_index("memory:")

    class Dropping(Meanings):
        async def aembed_query(self, text: str) -> list[float]:
            if is_dropped:
                index.clear(("longterm", "", "ada"))
            return self.embed_query(text)

    class Counting(MemoryStore):
        scans = 0

        def scan(self, namespace: Namespace, **arguments: Any) -> Page:
            # The vectors are followed in the background, now or later.
            self.scans += not threading.current_thread().name.startswith("langmem-background")
            return super().scan(namespace, **arguments)

    store = Counting()
    memory = LongTermMemory(store, index, vectors=open_vectors("memory:", Dropping()), user="ada")
    memory.add(said("My bicycle is broken."))
    memory.flush()
    store.scans = 0
    assert texts(await memory.asearch("Where did I cycle?")) == ["My bicycle is broken."]
    assert store.scans == 1 or is_dropped


def test_settings_hand_the_embedder_and_the_ranker_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ranker(prompt: str) -> str:
        asked.append(prompt)
        return "1"

    url = f"sqlite:///{tmp_path}/memory.db"
    settings = Settings(url=url, embedder=Meanings(), ranker=ranker)
    memory = settings.long_term(user="ada")
    told = ["My bicycle is broken.", "We went to the hut by bike."]
    memory.add(said(*told))
    memory.flush()
    assert sorted(texts(memory.search("Where did I cycle?"))) == told
    assert len(asked) == 1
    assert "bicycle" not in repr(settings)
    assert settings.long_term(user="ada")._vector_recall is not None
    assert Settings(url=url).long_term(user="ada").search("Where did I cycle?") == []
    monkeypatch.setenv("LANGMEM_VECTORS_URL", f"sqlite:///{tmp_path}/vectors.db")
    elsewhere = Settings(url=url, embedder=Meanings()).long_term(user="ada")
    elsewhere.flush()
    assert (tmp_path / "vectors.db").exists()
    assert texts(elsewhere.search("Where did I cycle?", 1)) == ["My bicycle is broken."]


def test_an_agent_recalls_by_meaning() -> None:
    memory = BrainMemoryMiddleware(store=MemoryStore(), embedder=Meanings())
    long_term = memory.brain("earlier", user="ada").long_term
    assert long_term is not None
    long_term.add(said("My bicycle is broken."), session="earlier")
    long_term.flush()
    agent: Any = create_agent(FakeListChatModel(responses=["I see."]), middleware=[memory])
    agent.invoke({"messages": [("user", "May I cycle?")]}, context={"user_id": "ada", "session_id": "s"})
    assert memory.stats()["recalled"] == 1


async def test_a_memory_block_recalls_by_meaning(tmp_path: Path) -> None:
    block = LongTermMemoryBlock(url=f"sqlite:///{tmp_path}/memory.db", user="ada", embedder=Meanings())
    await block.aput([ChatMessage("My bicycle is broken.")], session_id="earlier")
    await block._memory("earlier").aflush()
    for one in (block, pickle.loads(pickle.dumps(block))):
        assert "bicycle" in await one.aget([ChatMessage("May I cycle?")], session_id="s")
    with pytest.raises(ConfigurationError, match="a LongTermMemory has its own user, tenant, index, embedder and ttl"):
        LongTermMemoryBlock(LongTermMemory(MemoryStore(), open_index("memory:"), user="a"), embedder=Meanings())
    with pytest.raises(ConfigurationError, match=r"\(a URL goes in as url=\), not str$"):
        LongTermMemoryBlock("memory:", user="a")  # type: ignore[arg-type]


async def test_langgraphs_store_finds_by_meaning(any_store: Store) -> None:
    vectors = open_vectors("memory:", Embedder(Meanings()))
    store = LongTermStore(store=any_store, index=vectors)
    store.put(("memories", "ada"), "bike", {"text": "My bicycle is broken."})
    store.put(("memories", "ada"), "cat", {"text": "Tom sleeps."})
    store.put(("memories", "bob"), "bike", {"text": "A bike of Bob's."})
    found = await store.asearch(("memories", "ada"), query="May I cycle?", limit=1)
    (item,) = found
    assert (item.key, item.namespace) == ("bike", ("memories", "ada"))
    assert item.score == pytest.approx(1.0)


def directions(shared: float) -> Embedder:
    """The number in a text's first word gives it a direction, beside one that all texts have."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        rows = []
        for text in texts:
            chance = random.Random(text.partition(" ")[0][1:])
            own = [chance.gauss(0, 1) for _ in range(8)]
            length = math.hypot(*own) / math.sqrt(1 - shared)
            rows.append([math.sqrt(shared), *(number / length for number in own)])
        return rows

    return Embedder(embed, name=f"directions-{shared}")


def test_cosines_that_lie_close_together_weigh_as_others_do() -> None:
    """As those of E5 do, where unrelated texts have 0.7: what all have in common says nothing."""
    chance = random.Random(1)
    spoken = [f"a{chance.randrange(60)} {' '.join(chance.choices(WORDS, k=4))}" for _ in range(200)]
    asked = [f"b{n} {' '.join(chance.choices(WORDS, k=2))}" for n in range(60)]
    found = []
    for shared in (0.0, 0.7):
        vectors = open_vectors("memory:", directions(shared))
        memory = LongTermMemory(MemoryStore(), open_index("memory:"), vectors=vectors, user="ada")
        for n, text in enumerate(spoken):
            memory.add(said(text), session=str(n))
        memory.flush()
        found.append([{*texts(memory.search(question, 5))} for question in asked])
    same = sum(len(one & other) for one, other in zip(*found, strict=True))
    assert same >= 0.87 * 5 * len(asked)


def test_among_many_that_are_not_wanted_a_wanted_one_is_found_by_its_meaning(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), vectors=open_vectors("memory:", Meanings()), user="ada")
    memory.add(said(*(f"My pet is number {n}." for n in range(60))), session="a")
    memory.add([Message(role="assistant", content="Your tom is in the hut.")], session="b")
    memory.flush()
    found = memory.search("cat", 2, where=lambda one: one.message.role == "assistant", explain=True)
    assert texts(found) == ["Your tom is in the hut."]
    assert "words" not in found[0].signals
