"""Rows about a whole turn: a chain or an agent with a model that answers at once, and what its memory adds to it."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langmem_adapters import LongTermMemory
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langchain import (
    BrainChatMessageHistory,
    BrainMemoryMiddleware,
    ExperienceCache,
    LongTermRetriever,
)
from tests.benchmarks.bench import Bench, installed
from tests.benchmarks.goals import faster, flat
from tests.benchmarks.harness import Case, Line, Row
from tests.benchmarks.history_peers import histories
from tests.benchmarks.payloads import conversation, sentences

__all__ = ["ROWS"]

_SIZES = (10, 1_000, 10_000)
_THREAD: Any = {"configurable": {"thread_id": "s"}}
_MEMORIES = 200  # that recall chooses from
_SENTENCE = "In the shed, behind the house, where it was in the summer."


def _plain(*, recalls: bool = False, cache: Any = None) -> Any:
    """The chain itself; without memory it is the limit."""
    system = "Be brief. {recalled}" if recalls else "Be brief."
    template = ChatPromptTemplate.from_messages(
        [("system", system), MessagesPlaceholder("history", optional=True), ("human", "{question}")]
    )
    return template | FakeListChatModel(responses=[_SENTENCE], cache=cache)


def _with_history(chain: Any, get: Callable[[str], Any]) -> Any:
    return RunnableWithMessageHistory(chain, get, input_messages_key="question", history_messages_key="history")


def _fill(history: Any, messages: Sequence[BaseMessage]) -> None:
    for start in range(0, len(messages), 1000):
        history.add_messages(messages[start : start + 1000])


def _chain(bench: Bench, *, kind: str) -> Iterator[Line]:
    for size in bench.sizes(*_SIZES):
        messages = conversation(size)
        with bench.store(kind) as store:
            ours = partial(BrainChatMessageHistory, store=store, memory_k=20)
            session = f"{kind}-{size}"
            _fill(ours(session), messages)
            recall = LongTermRetriever(memory=_memories(bench, store), k=3)
            chain = _with_history(_recalling(recall) | _plain(recalls=True, cache=ExperienceCache(store=store)), ours)
            peers: dict[str, Any] = {}
            for name, get in histories(bench, kind):
                _fill(get(session), messages)
                peers[name] = _with_history(_plain(), get)
            yield bench.line(f"{size:,}", _asked(session, _plain(), chain, peers))


def _memories(bench: Bench, store: Any) -> LongTermMemory:
    memory = LongTermMemory(store, LexicalIndex(bench.path("recall")), user="ada")
    memory.add(_as_ours([HumanMessage(text) for text in itertools.islice(sentences(30), _MEMORIES)]))
    return memory


def _as_ours(messages: Sequence[BaseMessage]) -> list[Any]:
    convert: Any = importlib.import_module("langmem_adapters.langchain.convert")
    return [convert.to_message(message) for message in messages]


def _recalling(retriever: LongTermRetriever) -> Any:
    def recalled(given: dict[str, Any]) -> dict[str, Any]:
        found = retriever.invoke(given["question"])
        return {**given, "recalled": "\n".join(document.page_content for document in found)}

    return RunnableLambda(recalled)


def _asked(session: str, limit: Any, ours: Any, peers: dict[str, Any]) -> Case:
    def ask(chain: Any, question: str) -> object:
        return chain.invoke({"question": question}, {"configurable": {"session_id": session}})

    questions = sentences(8, seed=2)
    return Case(
        partial(ask, limit),
        partial(ask, ours),
        {name: partial(ask, peer) for name, peer in peers.items()},
        given=lambda: next(questions),
    )


def _agent(bench: Bench) -> Iterator[Line]:
    """``create_agent``: alone, with our memory, and with LangGraph's checkpointer, each on a file."""
    create: Any = importlib.import_module("langchain.agents").create_agent
    model = FakeListChatModel(responses=[_SENTENCE])
    for size in bench.sizes(*_SIZES):
        with bench.store("sqlite") as store, ExitStack() as stack:
            index = LexicalIndex(bench.path("recall"))
            memory = BrainMemoryMiddleware(store=store, index=index, user="ada", session="s", memory_k=20)
            memory.brain("s", user="ada").add_messages(_as_ours(conversation(size)))
            agents = {"ours": create(model, middleware=[memory]), "limit": create(model)}
            if bench.peers and installed("langgraph.checkpoint.sqlite"):
                saver: Any = importlib.import_module("langgraph.checkpoint.sqlite").SqliteSaver
                kept = stack.enter_context(saver.from_conn_string(str(bench.path("saver"))))
                peer = create(model, checkpointer=kept)
                peer.update_state(_THREAD, {"messages": conversation(size)})
                agents["SqliteSaver"] = peer
            yield bench.line(f"{size:,}", _talked(agents))


def _talked(agents: dict[str, Any]) -> Case:
    def ask(agent: Any, question: HumanMessage) -> object:
        return agent.invoke({"messages": [question]}, _THREAD)

    numbers, questions = itertools.count(), sentences(8, seed=2)
    return Case(
        partial(ask, agents.pop("limit")),
        partial(ask, agents.pop("ours")),
        {name: partial(ask, agent) for name, agent in agents.items()},
        given=lambda: HumanMessage(next(questions), id=f"asked-{next(numbers)}"),
    )


_ALONE = "the same chain without memory"
ROWS = (
    Row(
        "chain-redis",
        "A turn of a chain: history of 20, recall of 3 and cache together, Redis",
        _ALONE,
        partial(_chain, kind="redis"),
        (flat(1.2), faster(1)),
    ),
    Row(
        "chain-sqlite",
        "A turn of a chain: history of 20, recall of 3 and cache together, SQLite file",
        _ALONE,
        partial(_chain, kind="sqlite"),
        (flat(1.2), faster(1)),
    ),
    Row(
        "agent",
        "A turn of `create_agent`: window of 20, recall and record, SQLite file",
        "the same agent without memory",
        _agent,
        (flat(1.2), faster(1)),
    ),
)
