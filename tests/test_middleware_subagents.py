"""BrainMemoryMiddleware in an agent that a tool of another agent calls: LG, H5."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langmem_adapters import Sessions
from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, of, texts


def asks_twice(messages: list[BaseMessage]) -> AIMessage:
    if not isinstance(messages[-1], HumanMessage):
        return AIMessage("done")
    calls = [{"name": "research", "args": {"q": f"{n}: {messages[-1].text}"}, "id": f"{n}"} for n in (1, 2)]
    return AIMessage("", tool_calls=calls)


def asks_once(messages: list[BaseMessage]) -> AIMessage:
    both = asks_twice(messages)
    return both.model_copy(update={"tool_calls": both.tool_calls[:1]})


def agents(saver: Any, **of_the_inner: Any) -> tuple[BrainMemoryMiddleware, Any, Scripted, Scripted]:
    """An agent with memory, whose tool asks another with the same."""
    ours = BrainMemoryMiddleware(store=MemoryStore())
    inner = Scripted(answer=lambda messages: AIMessage(f"found {messages[-1].text}"))
    outer = Scripted(answer=asks_twice)
    memory = ours if not of_the_inner else BrainMemoryMiddleware(store=ours.brain("s").store, **of_the_inner)
    researcher: Any = create_agent(inner, middleware=[memory])

    @tool
    def research(q: str) -> str:
        """Research."""
        return str(researcher.invoke({"messages": [HumanMessage(q)]})["messages"][-1].text)

    return ours, create_agent(outer, [research], middleware=[ours], checkpointer=saver), outer, inner


def said(ours: BrainMemoryMiddleware, session: str) -> list[str]:
    return texts(ours.brain(session, user="ada").messages())


@pytest.mark.parametrize("session", [None, "monday"])
@pytest.mark.parametrize("saver", [True, False])
def test_an_agent_that_a_tool_calls_has_a_session_of_its_own(session: str | None, *, saver: bool) -> None:
    ours, agent, outer, inner = agents(InMemorySaver() if saver else None)
    turn = of("ada", "s")
    turn["context"] |= {"session_id": session} if session else {}
    for question in ("q1", "q2"):
        agent.invoke({"messages": [HumanMessage(question)]}, **turn)
    first = ["q1", "", "found 1: q1", "found 2: q1", "done"]
    assert texts(outer.seen[-1])[:5] == first
    assert said(ours, session or "s") == [*first, "q2", "", "found 1: q2", "found 2: q2", "done"]
    aside = said(ours, f"{session or 's'}|tools")
    assert sorted(aside) == sorted(f"{begin}{n}: q{m}" for n in (1, 2) for m in (1, 2) for begin in ("", "found "))
    assert "1: q1" in texts(inner.seen[-1])


def test_so_has_one_that_keeps_a_thread_of_its_own() -> None:
    ours, outer, inner = BrainMemoryMiddleware(store=MemoryStore()), Scripted(answer=asks_once), Scripted()
    researcher: Any = create_agent(inner, middleware=[ours], checkpointer=True)

    @tool
    def research(q: str) -> str:
        """Research."""
        return str(researcher.invoke({"messages": [HumanMessage(q)]})["messages"][-1].text)

    agent: Any = create_agent(outer, [research], middleware=[ours], checkpointer=InMemorySaver())
    for question in ("q1", "q2"):
        agent.invoke({"messages": [HumanMessage(question)]}, **of("ada", "s"))
    assert said(ours, "s") == ["q1", "", "ok: 1: q1", "done", "q2", "", "ok: 1: q2", "done"]
    assert texts(inner.seen[-1]) == ["1: q1", "ok: 1: q1", "1: q2"]
    assert said(ours, "s|tools") == [*texts(inner.seen[-1]), "ok: 1: q2"]


def test_agents_in_a_graph_speak_in_one_conversation_and_their_subagents_aside() -> None:
    ours, agent, outer, _ = agents(None)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("assistant", agent)
    graph.add_edge(START, "assistant")
    compiled: Any = graph.compile(checkpointer=InMemorySaver())
    asyncio.run(compiled.ainvoke({"messages": [HumanMessage("q1")]}, **of("ada", "s")))
    assert said(ours, "s") == [*texts(outer.seen[-1]), "done"]
    assert len(said(ours, "s|tools")) == 4


@pytest.mark.parametrize("in_a_graph", [True, False])
def test_h3_who_deletes_a_conversation_deletes_what_its_tools_asked(*, in_a_graph: bool) -> None:
    ours, agent, _, _ = agents(None)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("assistant", agent)
    graph.add_edge(START, "assistant")
    asked = graph.compile() if in_a_graph else agent
    for session in ("s", "t"):
        asked.invoke({"messages": [HumanMessage("q1")]}, **of("ada", session))
    sessions = Sessions(ours.brain("s").store, user="ada")
    assert sessions.count() == 4
    assert sessions.delete_session("s")
    assert {info.session[0] for info in sessions.list_sessions()} == {"t"}
    assert sessions.count() == 2


def test_a_session_that_the_middleware_is_given_is_taken_as_it_is() -> None:
    ours, agent, _, _ = agents(InMemorySaver(), session=lambda runtime: f"research of {runtime.context['user_id']}")
    agent.invoke({"messages": [HumanMessage("q1")]}, **of("ada", "s"))
    assert len(said(ours, "research of ada")) == 4
    assert len(said(ours, "s")) == 5
