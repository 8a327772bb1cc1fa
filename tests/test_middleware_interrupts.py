"""BrainMemoryMiddleware and runs that wait for somebody: what is shown, recorded and refused when they go on."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from langmem_adapters import Message
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from tests.agents import Scripted, ask, invalid, of, ok, system, texts
from tests.faults import Refusing


@tool
def refund(place: str) -> str:
    """Refund what was bought there."""
    return f"{place}: {interrupt('may I?')}"


def answer(messages: list[BaseMessage]) -> AIMessage:
    call = {"name": "refund", "args": {"place": "shop"}, "id": f"c{len(messages)}", "type": "tool_call"}
    return AIMessage("", tool_calls=[call]) if messages[-1].text.startswith("Refund") else ok(messages)


def failing(messages: list[BaseMessage]) -> AIMessage:
    raise RuntimeError(f"no answer to {len(messages)} messages")


def agent_of(ours: BrainMemoryMiddleware) -> tuple[Any, Scripted]:
    model = Scripted(answer=answer)
    return create_agent(model, [refund], middleware=[ours], checkpointer=InMemorySaver()), model


def stored(ours: BrainMemoryMiddleware, user: str = "ada") -> list[str]:
    return texts(ours.brain("s", user=user).messages())


def test_b1_a_thread_is_shown_whole_after_its_session_expired_while_a_run_waited() -> None:
    clock = FakeClock()
    ours = BrainMemoryMiddleware(store=MemoryStore(clock=clock), ttl=3600, clock=clock, on_error="raise")
    agent, model = agent_of(ours)
    ask(agent, "one")
    ask(agent, "Refund it.")
    clock.advance(3601)
    agent.invoke(Command(resume="yes"), **of("ada", "s"))
    ask(agent, "two")
    of_resumed_run = ["Refund it.", "", "shop: yes", "ok: shop: yes"]
    assert texts(model.seen[-1]) == ["one", "ok: one", *of_resumed_run, "two"]
    assert stored(ours) == [*of_resumed_run, "two", "ok: two"]


@pytest.mark.parametrize("long_term", [True, False])
def test_h1_a_run_goes_on_only_for_the_user_for_whom_it_began(*, long_term: bool) -> None:
    ours = BrainMemoryMiddleware(
        store=MemoryStore(), long_term=long_term, user=lambda runtime: runtime.context["user_id"], on_error="raise"
    )
    agent, model = agent_of(ours)
    if memories := ours.brain("private", user="boss").long_term:
        memories.add([Message(role="user", content="My own refund at the shop was refused.")])
    ask(agent, "Refund it.")
    with pytest.raises(ConfigurationError, match="began for another user"):
        agent.invoke(Command(resume="yes"), **of("boss", "s"))
    agent.invoke(None, **of("ada", "s"))
    assert texts(model.seen[-1]) == ["Refund it.", "", "shop: yes"]
    assert "My own refund" not in "".join(map(system, model.seen))
    assert stored(ours) == ["Refund it.", "", "shop: yes", "ok: shop: yes"]
    assert stored(ours, "boss") == []
    ask(agent, "I ask as well.", user="boss")
    assert stored(ours, "boss") == ["I ask as well.", "ok: I ask as well."]


@pytest.mark.parametrize("why", ["waits", "was refused", "failed", "could not be recorded"])
def test_h1_what_a_run_left_unrecorded_is_recorded_for_its_user_and_not_for_the_next_one(why: str) -> None:
    store = Refusing()
    ours = BrainMemoryMiddleware(store=store)
    agent, model = agent_of(ours)
    ask(agent, "I am Ada.")
    ask(agent, "I am the boss.", user="boss")
    if why == "failed":
        model.answer = failing
        with pytest.raises(RuntimeError):
            ask(agent, "My cat?")
        left = ["My cat?"]
    elif why == "could not be recorded":
        store.reason = "the disk is full"
        ask(agent, "My cat?")
        left = ["My cat?", "ok: My cat?"]
    else:
        ask(agent, "Refund it.")
        left = ["Refund it.", ""]
        if why == "was refused":
            with pytest.raises(ConfigurationError):
                agent.invoke(Command(resume="yes"), **of("boss", "s"))
            left.append("shop: yes")
    model.answer, store.reason = answer, ""
    for question in ("one", "two"):
        ask(agent, question, user="boss")
    assert stored(ours, "boss") == ["I am the boss.", "ok: I am the boss.", "one", "ok: one", "two", "ok: two"]
    ask(agent, "three")
    ask(agent, "four", user="boss")
    assert stored(ours) == ["I am Ada.", "ok: I am Ada.", *left, "three", "ok: three"]
    assert stored(ours, "boss")[-2:] == ["four", "ok: four"]
    shown = [text for text in left if why != "waits" or text]  # a call without a result is not shown
    between = ["one", "ok: one", "two", "ok: two", "three", "ok: three", "four"]
    assert texts(model.seen[-1])[-len([*shown, *between]) :] == [*shown, *between]


def test_b1_a_call_that_nobody_decided_on_is_recorded_and_not_shown() -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore(), on_error="raise")
    agent, model = agent_of(ours)
    ask(agent, "Refund it.")
    ask(agent, "Never mind.")
    ask(agent, "two")
    assert texts(model.seen[-1]) == ["Refund it.", "Never mind.", "ok: Never mind.", "two"]
    assert not any(map(invalid, model.seen))
    assert stored(ours) == ["Refund it.", "", "Never mind.", "ok: Never mind.", "two", "ok: two"]
