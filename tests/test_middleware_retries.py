"""BrainMemoryMiddleware in a node that is tried again: the answer of a try that failed is not shown: LG, B1."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy, Send

from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, look, of, texts
from tests.test_middleware_many_agents import says
from tests.test_middleware_taken_back import counting
from tests.waiting import until

RETRIED = RetryPolicy(initial_interval=0, jitter=False)


class Chat:
    """An agent in a node of a graph, that fails as often as it is told to once the agent has answered."""

    def __init__(self, store: Store | None = None) -> None:
        self.ours = BrainMemoryMiddleware(store=store or MemoryStore())
        self.model = Scripted(answer=counting())
        self.agent: Any = create_agent(self.model, middleware=[self.ours])
        self.failures = 1

    @property
    def shown(self) -> list[str]:
        return texts(self.model.seen[-1])

    @property
    def stored(self) -> list[str]:
        return texts(self.ours.brain("s", user="ada").messages())

    def node(self, state: MessagesState) -> MessagesState:
        found: MessagesState = self.agent.invoke(state)
        self.fail()
        return found

    async def anode(self, state: MessagesState, config: RunnableConfig, runtime: Runtime[Any]) -> MessagesState:
        # LangGraph itself knows the run of a coroutine from Python 3.11 on
        found: MessagesState = await self.agent.ainvoke(state, config, context=runtime.context)
        self.fail()
        return found

    def fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("somebody is away")

    def graph(self, node: Any, saver: Any, retried: RetryPolicy | None = RETRIED) -> Any:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("answer", node, retry_policy=retried)
        graph.add_edge(START, "answer")
        return graph.compile(checkpointer=saver)


def turn(question: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(question)]}


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("saver", [True, False])
def test_an_answer_of_a_try_that_failed_is_kept_and_not_shown(any_store: Store, mode: str, *, saver: bool) -> None:
    chat = Chat(any_store)
    graph = chat.graph(chat.node if mode == "sync" else chat.anode, InMemorySaver() if saver else None)
    chat.failures = 2
    for question in ("q1", "q2"):
        if mode == "sync":
            graph.invoke(turn(question), **of("ada", "s"))
        else:
            asyncio.run(graph.ainvoke(turn(question), **of("ada", "s")))
    assert chat.shown == ["q1", "answer 3", "q2"]
    assert chat.stored == ["q1", "answer 1", "answer 2", "answer 3", "q2", "answer 4"]
    marks = [message.metadata.get("brain_replaces") for message in chat.ours.brain("s", user="ada").messages()]
    assert [mark and len(mark) for mark in marks] == [None, None, 1, 2, None, None]


@pytest.mark.parametrize("saver", [True, False])
def test_nor_is_it_shown_to_the_next_try(any_store: Store, *, saver: bool) -> None:
    chat = Chat(any_store)

    def look_first(messages: list[BaseMessage]) -> AIMessage:
        n = len(chat.model.seen)
        is_asked = isinstance(messages[-1], HumanMessage)
        calls = [{"name": "look", "args": {"place": "shed"}, "id": f"call {n}"}] if is_asked else []
        return AIMessage("" if calls else f"answer {n}", tool_calls=calls)

    chat.model.answer = look_first
    chat.agent = create_agent(chat.model, [look], middleware=[chat.ours])
    graph = chat.graph(chat.node, InMemorySaver() if saver else None)
    chat.failures = 0
    thread: list[BaseMessage] = graph.invoke(turn("q1"), **of("ada", "s"))["messages"]
    chat.failures = 2
    graph.invoke({"messages": [*([] if saver else thread), HumanMessage("q2")]}, **of("ada", "s"))
    asked = [*texts(thread), "q2"]
    assert [texts(shown) for shown in chat.model.seen[2:]] == [asked, [*asked, "", "nothing in the shed"]] * 3


def test_a_constant_message_is_no_try_of_a_task_that_began_with_another_question(any_store: Store) -> None:
    """LangGraph gives such a message its id in place, so it comes under the same one in each turn."""
    chat, again = Chat(any_store), HumanMessage("better")

    def asks_again(state: MessagesState) -> MessagesState:
        chat.agent.invoke(state)
        found = chat.agent.invoke({"messages": [again]})
        return {"messages": found["messages"][-1:]}

    graph = chat.graph(asks_again, InMemorySaver())
    for question in ("q1", "q2"):
        graph.invoke(turn(question), **of("ada", "s"))
    assert chat.shown == ["q1", "answer 1", "answer 2", "q2", "answer 3", "better"]
    assert not chat.ours.brain("s", user="ada").messages()[-1].metadata.get("brain_replaces")


@pytest.mark.parametrize("saver", [True, False])
def test_nor_is_it_where_a_graph_of_several_nodes_is_tried_again(*, saver: bool) -> None:
    chat = Chat()
    team: Any = StateGraph(MessagesState)
    team.add_node("agent", chat.agent)
    team.add_node("check", lambda _: chat.fail())
    team.add_edge(START, "agent")
    team.add_edge("agent", "check")
    graph = chat.graph(team.compile(), InMemorySaver() if saver else None)
    for question in ("q1", "q2"):
        graph.invoke(turn(question), **of("ada", "s"))
    assert chat.shown == ["q1", "answer 2", "q2"]
    assert chat.stored == ["q1", "answer 1", "answer 2", "q2", "answer 3"]


def test_what_another_agent_of_such_a_graph_says_stays_in_view() -> None:
    chat, other = Chat(), says("other")
    aside: Any = create_agent(other, middleware=[chat.ours])
    chat.failures = 0
    team: Any = StateGraph(MessagesState)
    team.add_node("aside", lambda state: {"messages": aside.invoke(state)["messages"][:0]})
    team.add_node("agent", chat.agent)
    team.add_edge(START, "aside")
    team.add_edge("aside", "agent")
    graph = chat.graph(team.compile(), InMemorySaver())
    for question in ("q1", "q2"):
        graph.invoke(turn(question), **of("ada", "s"))
    assert {"other on q1", "answer 1"} <= set(texts(other.seen[-1]))


def test_nor_is_it_in_a_task_of_a_function() -> None:
    chat = Chat()
    retried: Any = task(retry_policy=RETRIED)
    answer = retried(lambda messages: chat.node({"messages": messages})["messages"])

    @entrypoint(checkpointer=InMemorySaver())
    def talk(asked: list[Any], *, previous: list[Any] | None = None) -> Any:
        said: list[Any] = answer([*(previous or []), *asked]).result()
        return entrypoint.final(value=said, save=said)

    for question in ("q1", "q2"):
        talk.invoke(turn(question)["messages"], **of("ada", "s"))
    assert chat.shown == ["q1", "answer 2", "q2"]


@pytest.mark.parametrize("durability", ["exit", "sync"])
def test_nor_where_a_run_that_broke_down_is_taken_up_again(durability: Literal["exit", "sync"]) -> None:
    chat = Chat()
    graph = chat.graph(chat.node, InMemorySaver(), None)
    with pytest.raises(ConnectionError):
        graph.invoke(turn("q1"), durability=durability, **of("ada", "s"))
    graph.invoke(None, durability=durability, **of("ada", "s"))
    answered = chat.stored[-1]
    graph.invoke(turn("q2"), durability=durability, **of("ada", "s"))
    assert chat.shown == ["q1", answered, "q2"]


def test_who_goes_on_from_the_answers_of_several_is_shown_and_keeps_each_once(any_store: Store) -> None:
    """The first to answer fails, and answers again once the other has: they are in another order in the thread."""
    chat = Chat(any_store)
    writer = Scripted(answer=lambda messages: AIMessage(f"in short: {messages[-1].text}"))

    def in_turn(messages: list[BaseMessage]) -> AIMessage:
        asked, n = messages[-1].text, len(chat.model.seen)
        if asked == "half of q1":
            until(lambda: not chat.failures)
        elif asked == "rest of q1" and not chat.failures:
            until(lambda: any(text.startswith("half of q1: ") for text in chat.stored))
        return AIMessage(f"{asked}: {n}")

    chat.model.answer = in_turn

    def parts(state: MessagesState) -> list[Send]:
        return [Send(part, turn(f"{part} of {state['messages'][-1].text}")) for part in ("half", "rest")]

    graph: Any = StateGraph(MessagesState)
    graph.add_node("half", chat.agent)
    graph.add_node("rest", chat.node, retry_policy=RETRIED)
    graph.add_node("writer", create_agent(writer, middleware=[chat.ours]))
    graph.add_conditional_edges(START, parts, ["half", "rest"])
    graph.add_edge(["half", "rest"], "writer")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for question in ("q1", "q2"):
        thread = texts(compiled.invoke(turn(question), **of("ada", "s"))["messages"])
        stored = chat.stored
    assert sorted(texts(writer.seen[-1])) == sorted(thread[:-1])
    assert len(stored) == len(set(stored)) == len(thread) + 1


def test_what_another_agent_says_to_the_same_question_stays_in_view() -> None:
    chat, other = Chat(), says("other")
    aside: Any = create_agent(other, middleware=[chat.ours])
    graph: Any = StateGraph(MessagesState)
    graph.add_node("aside", lambda state: {"messages": aside.invoke(state)["messages"][:0]})
    graph.add_node("answer", chat.node, retry_policy=RETRIED)
    graph.add_edge(START, "aside")
    graph.add_edge("aside", "answer")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for question in ("q1", "q2"):
        compiled.invoke(turn(question), **of("ada", "s"))
    assert chat.stored[:4] == ["q1", "other on q1", "answer 1", "answer 2"]
    assert texts(other.seen[-1]) == ["q1", "other on q1", "answer 2", "q2"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_one_node_asks_for_in_several_calls_stays_in_view(*, goes_on: bool) -> None:
    chat = Chat()
    chat.failures = 0

    def several(state: MessagesState) -> MessagesState:
        found = chat.agent.invoke({"messages": [*state["messages"], HumanMessage("first")]})
        before = found["messages"] if goes_on else [*state["messages"], HumanMessage("second")]
        found = chat.agent.invoke({"messages": before})
        return {"messages": found["messages"][-1:]}

    graph = chat.graph(several, InMemorySaver())
    for question in ("q1", "q2"):
        graph.invoke(turn(question), **of("ada", "s"))
    assert [text for text in chat.shown if text.startswith("answer")][:2] == ["answer 1", "answer 2"]
