"""How many calls of a store an operation waits for, one after the other: each may be a round trip to a far server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation
from llama_index.core.llms import ChatMessage

from langmem_adapters import (
    BrainMemory,
    Embedder,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    Sessions,
    WorkingMemory,
)
from langmem_adapters.errors import Conflict, SearchError
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langchain import BrainChatMessageHistory, BrainMemoryMiddleware, ExperienceCache, SemanticMode
from langmem_adapters.langchain import LongTermRetriever as LangChainRetriever
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.llamaindex import BrainChatStore, LongTermMemoryBlock
from langmem_adapters.llamaindex import LongTermRetriever as LlamaIndexRetriever
from langmem_adapters.longterm import longterm_namespace
from langmem_adapters.model import Scope
from langmem_adapters.protocols import START, Document, Store
from langmem_adapters.records.journal import keys_of, position_after
from langmem_adapters.stores.memory import MemoryStore
from tests.waiting import until

ADA = longterm_namespace(Scope(user="ada"))


class Asked:
    """A store of another's making: nothing is known of it but its methods, so each call waits for the one before."""

    def __init__(self) -> None:
        self.store, self.calls = MemoryStore(), list[str]()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def call(*args: Any, **options: Any) -> Any:
            self.calls.append(name)
            return method(*args, **options)

        return call


class OvertakenIndex(LexicalIndex):
    """An index where somebody else does something, once, as it is searched, or after that."""

    first: Callable[[], object] | None = None

    def __init__(self, path: str, *, after: bool = False) -> None:
        super().__init__(path)
        self._after = after

    def gather(self, *args: Any) -> Any:
        return self._overtaken(super().gather, *args)

    def search(self, *args: Any) -> Any:
        return self._overtaken(super().search, *args)

    def _overtaken(self, search: Callable[..., Any], *args: Any) -> Any:
        change, self.first = self.first, None
        if change and not self._after:
            change()
        found = search(*args)
        if change and self._after:
            change()
        return found


@pytest.fixture
def store() -> Any:
    return Asked()


def calls_of(store: Any, operation: Callable[[], Any]) -> list[str]:
    store.calls.clear()
    operation()
    return [*store.calls]


def notes(*numbers: int) -> list[Message]:
    return [Message(role="user", content=f"Key {n} hangs at the door.", id=f"m{n}") for n in numbers]


def a_memory(store: Store) -> LongTermMemory:
    return LongTermMemory(store, LexicalIndex(":memory:"), user="ada")


SEARCHES: dict[str, Callable[[LongTermMemory], Any]] = {
    "memory": lambda memory: memory.search("key door"),
    "async": lambda memory: asyncio.run(memory.asearch("key door")),
    "nothing": lambda memory: memory.search("xylophone"),
    "langchain": lambda memory: LangChainRetriever(memory=memory).invoke("key door"),
    "llamaindex": lambda memory: LlamaIndexRetriever(memory).retrieve("key door"),
    "block": lambda memory: asyncio.run(LongTermMemoryBlock(memory).aget([ChatMessage("key door")])),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_search_without_news_asks_once(store: Any, search: Callable[[LongTermMemory], Any]) -> None:
    memory = a_memory(store)
    memory.add(notes(*range(20)))
    memory.flush()
    assert calls_of(store, lambda: search(memory)) == ["scan"]


class AwaitedModel(Embeddings):
    """A model that can be awaited, as those of LangChain and LlamaIndex, and the queries that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, float("door" in text)] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.asked.append(" ".join(text.split()))
        return self.embed_documents([text])[0]

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)


def test_a_search_by_a_model_that_can_be_awaited_asks_once_and_then_knows_new_speakers(store: Any) -> None:
    """The names of speakers are not embedded: should another have told of a new one, the text is made again."""
    model = AwaitedModel()
    vectors = open_vectors("memory:", model)
    memory, other = LongTermMemory(store, LexicalIndex(":memory:"), vectors=vectors, user="ada"), a_memory(store)
    memory.add(notes(*range(20)))

    def ask() -> list[Any]:
        return asyncio.run(memory.asearch("Which door is Melanie's?"))

    def settle() -> None:
        memory.flush()
        until(lambda: not memory._vector_recall._running_pid)  # type: ignore[union-attr]  # in the background

    settle()
    assert calls_of(store, ask) == ["scan"]
    other.add([Message(role="user", name="Melanie", content="My door is green.")])
    assert ask()[0].text == "My door is green."
    asyncio.run(memory.asearch("Where is the door of Melanie?"))
    assert model.asked == ["Which door is Melanie's?", "Which door is ?", "Where is the door of ?"]
    settle()
    assert calls_of(store, ask) == ["scan"]  # as the search before has found that nobody writes any more


def test_a_search_follows_first_where_it_expects_news(store: Any) -> None:
    memory, other = a_memory(store), a_memory(store)
    other.add(notes(1, 2))
    assert calls_of(store, lambda: memory.search("door")) == ["scan", "get", "get"]  # the log, its records, the best
    memory.add(notes(3))
    assert calls_of(store, lambda: memory.search("door")) == ["scan", "get", "get"]
    other.add(notes(4))
    assert calls_of(store, lambda: memory.search("door")) == ["scan", "scan", "get", "get"]
    for n in range(5, 9):
        other.add(notes(n))
        assert calls_of(store, lambda: memory.search("door")) == ["scan", "get", "get"]
    assert calls_of(store, lambda: memory.search("door")) == ["scan", "get"]
    assert calls_of(store, lambda: memory.search("door")) == ["scan"]
    assert len(memory.search("door", 9)) == 8


@pytest.mark.parametrize("hides", [lambda _: True, lambda _: False], ids=["all", "none"])
def test_what_another_changes_while_an_index_is_searched_is_seen(store: Any, hides: Callable[[Any], bool]) -> None:
    """The index is searched before the log is read: what that brings to light is followed, and nothing old is given."""

    index = OvertakenIndex(":memory:", after=True)
    memory, other = LongTermMemory(store, index, user="ada"), a_memory(store)
    memory.add(notes(1, 2))
    first, second = (recalled.memory.id for recalled in sorted(memory.search("door"), key=lambda each: each.text))

    def change() -> None:
        other.delete([first])
        other.update(second, "The door is green.")
        other.add(notes(3))

    index.first = change
    found = memory.search("door", where=lambda each: hides(each) or each.id != first)
    assert sorted(recalled.text for recalled in found) == ["Key 3 hangs at the door.", "The door is green."]


def a_pool(store: Store, index: LexicalIndex | None = None) -> ExperiencePool:
    return ExperiencePool(store, index=index or LexicalIndex(":memory:"))


def fill(pool: ExperiencePool, *numbers: int) -> None:
    for n in numbers:
        pool.create(Experience(req=f"Where does key {n} hang?", resp=f"At door {n}."), key=f"k{n}")


def test_a_query_of_a_pool_follows_first_where_it_expects_news(store: Any) -> None:
    pool, other = a_pool(store), a_pool(store)
    fill(other, 1, 2)
    pool.query("key")
    assert calls_of(store, lambda: pool.query("key")) == ["scan"]
    assert calls_of(store, lambda: pool.query("xylophone")) == ["scan"]
    fill(pool, 3)
    followed = ["scan", "get", "get", "get"]  # the log, its entries, whether they have gone meanwhile, the best
    assert calls_of(store, lambda: pool.query("key")) == followed
    fill(other, 4)
    assert calls_of(store, lambda: pool.query("key")) == ["scan", *followed]
    fill(other, 5)
    assert calls_of(store, lambda: pool.query("key")) == followed
    assert calls_of(store, lambda: pool.query("key")) == ["scan", "get"]
    assert calls_of(store, lambda: asyncio.run(pool.aquery("key"))) == ["scan"]
    assert len(pool.query("key", k=9)) == 5


def test_what_another_changes_while_a_pool_is_searched_is_seen(store: Any) -> None:
    index = OvertakenIndex(":memory:", after=True)
    pool, other = a_pool(store, index), a_pool(store)
    fill(pool, 1, 2)
    pool.query("key")

    def change() -> None:
        other.delete(key="k1")
        other.create(Experience(req="Where does key 2 hang?", resp="Nowhere."), key="k2")
        fill(other, 3)

    index.first = change
    assert {found.experience.resp for found in pool.query("key")} == {"Nowhere.", "At door 3."}
    index.first = lambda: other.delete(key="k3")
    assert [found.experience.resp for found in pool.query("key")] == ["Nowhere."]
    index.first = other.clear
    assert pool.query("key") == []
    assert index.first is None


class SecondSearch(OvertakenIndex):
    """An index of the user's own where something happens as it is asked for more hits than before."""

    def search(self, *args: Any) -> Any:
        return super().search(*args) if args[-1] > 2 else LexicalIndex.search(self, *args)


def a_pool_that_needs_a_second_search(store: Store) -> tuple[ExperiencePool, SecondSearch]:
    """Its query for 2 finds 2 entries at first, of which a process without the index has removed one."""
    index = SecondSearch(":memory:")
    pool = a_pool(store, index)
    fill(pool, 1, 2, 3)
    pool.create(Experience(req="A xylophone", resp=""))  # the log's last entry stays, so the index goes on from it
    best = pool.query("key", k=2)[0].experience
    ExperiencePool(store).delete(key=f"k{best.req.split()[3]}")
    return pool, index


def test_the_second_search_of_a_query_of_a_pool_is_as_safe_from_a_dropped_index_as_the_first(store: Any) -> None:
    pool, index = a_pool_that_needs_a_second_search(store)
    index.first = lambda: index.clear(pool._shelf.namespace)
    assert len(pool.query("key", k=2)) == 2
    assert index.first is None


def test_an_index_of_the_users_own_that_fails_in_a_second_search_is_a_search_error(store: Any) -> None:
    pool, index = a_pool_that_needs_a_second_search(store)
    index.first = lambda: 1 / 0
    with pytest.raises(SearchError, match=r"SecondSearch failed: ZeroDivisionError"):
        pool.query("key", k=2)


def test_a_question_in_other_words_is_answered_with_three_calls() -> None:
    store = Asked()
    embedder = Embedder(lambda texts: [[1.0, 0.1] for _ in texts], name="toy")

    def a_cache() -> ExperienceCache:
        return ExperienceCache(store=store, semantic=SemanticMode(index=open_vectors("memory:", embedder)))

    question, alike = (dumps([HumanMessage(f"How {word} I learn to speak Hindi?")]) for word in ("do", "can"))
    a_cache().update(question, "m", [ChatGeneration(message=AIMessage("Take a course."))])
    cache = a_cache()

    def calls() -> list[str]:
        return calls_of(store, lambda: cache.lookup(alike, "m"))

    # The very same question, the others, the answer of the one that means it: when what is embedded beside it is done.
    until(lambda: calls() == ["get", "scan", "get"])
    assert cache.lookup(alike, "m")


@pytest.mark.parametrize("has_news", [False, True])
def test_an_index_that_another_rebuilds_just_now_is_searched_again(has_news: bool) -> None:
    """What it holds by then is found, but that is not all."""
    store, index = MemoryStore(), OvertakenIndex(":memory:")
    memory = LongTermMemory(store, index, user="ada")
    for n in range(3):
        memory.add(notes(n))
    if not has_news:
        memory.flush()

    def rebuild_half() -> None:
        first = store.scan(ADA, limit=1).items[0]
        documents = [Document(key, "Key 0 hangs at the door.") for key in keys_of([first])]
        index.clear(ADA)
        index.apply(ADA, upsert=documents, position=position_after(first, 0), since=START)

    index.first = rebuild_half
    assert len(memory.search("door")) == 3
    assert index.first is None


def test_a_conflict_that_somebody_else_raises_is_not_taken_for_news(store: Any) -> None:
    memory, failures = a_memory(store), [Conflict("of a filter's own")]
    memory.add(notes(1, 2))
    memory.flush()

    def fail_once(_: Any) -> bool:
        if failures:
            raise failures.pop()
        return True

    with pytest.raises(Conflict, match="of a filter's own"):
        memory.search("door", where=fail_once)


def test_items_are_searched_with_one_call_for_each_namespace(store: Any) -> None:
    items = LongTermStore(store=store, index=LexicalIndex(":memory:"))
    for n in range(5):
        items.put(("ada", str(n)), "key", {"text": "It hangs at the door."})
    assert len(items.search(("ada",), query="door")) == 5
    calls = calls_of(store, lambda: items.search(("ada",), query="door"))
    assert calls.count("scan") == 1 + 5  # the prefix may have items itself
    assert len(calls) == 6 + 1  # and the tree is asked what is below it


def test_calls_of_every_class(store: Any) -> None:
    """The most calls, one after the other."""
    brain = BrainMemory(store, "monday", user="ada")
    pool = ExperiencePool(store)
    cache = ExperienceCache(store=store)
    working = WorkingMemory(store, user="ada")
    history = BrainChatMessageHistory("tuesday", store=store, user="ada")
    chats = BrainChatStore(store=store, user="ada")
    sessions = Sessions(store, user="ada")
    expected: list[tuple[int, Callable[[], Any]]] = [
        (1, lambda: brain.add_messages(notes(1, 2))),
        (1, brain.messages),
        (1, brain.window),
        (1, brain.context),
        (1, brain.count),
        (1, brain.history_text),
        (1, brain.get_summary),
        (2, lambda: brain.set_summary("Keys.")),
        (2, lambda: brain.add_knowledge(["The door is green."])),
        (1, brain.get_knowledge),
        (1, lambda: history.add_messages([HumanMessage("Where?"), AIMessage("There.")])),
        (1, lambda: history.messages),
        (1, lambda: asyncio.run(chats.add_messages("tuesday", [ChatMessage("Why?")]))),
        (1, lambda: asyncio.run(chats.get_messages("tuesday"))),
        (1 + 2, lambda: sessions.list_sessions(10)),
        (2 + 1, lambda: sessions.rename_session("monday", "Keys")),
        (2, lambda: sessions.rename_session("monday", "Doors")),
        (1 + 2, lambda: pool.create(Experience(req="1", resp="one"))),  # one in four looks for expired ones, too
        (1, lambda: pool.lookup("1")),
        (1, lambda: pool.lookup("2")),
        (1, lambda: cache.lookup("1", "model")),
        (1, lambda: cache.update("1", "model", [Generation(text="one")])),
        (1, lambda: cache.lookup("1", "model")),
        (1, lambda: working.store("call", "a")),
        (1, lambda: working.retrieve("call")),
        (2, lambda: working.update("call", "b")),
    ]
    for number, (most, operation) in enumerate(expected):
        assert len(calls_of(store, operation)) <= most, (number, store.calls)


def test_a_turn_of_an_agent_reads_the_session_three_times_and_its_memories_once(store: Any) -> None:
    a_memory(store).add(notes(1, 2))
    memory = BrainMemoryMiddleware(
        store=store, index=LexicalIndex(":memory:"), user=lambda _: "ada", session=lambda _: "monday"
    )
    agent = create_agent(FakeListChatModel(responses=["At the door."]), middleware=[memory])

    def ask(text: str) -> Any:
        return agent.invoke({"messages": [HumanMessage(text)]})

    ask("Where is key 1?")
    assert calls_of(store, lambda: ask("Where is key 2?")) == ["scan"] * 4 + ["append"]
