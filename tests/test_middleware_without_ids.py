"""BrainMemoryMiddleware and threads whose messages have no ids, as a host's own reducer may leave them."""

from __future__ import annotations

from contextlib import suppress
from operator import add
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, wrap_model_call
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, convert_to_messages
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters import Message
from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.langchain.threads.run_messages import merge_run_messages
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Answer, Scripted, look, of, ok, texts


def stored(ours: BrainMemoryMiddleware) -> list[Message]:
    return ours.brain("s", user="ada").messages()


def appended(before: list[BaseMessage] | None, new: Any) -> list[BaseMessage]:
    """As the reducer of deepagents, which gives no ids to what was given as tuples."""
    return [*(before or []), *convert_to_messages(new if isinstance(new, list) else [new])]


class Unnumbered(AgentState[Any]):
    messages: Annotated[list[AnyMessage], appended]


def unnumbered(ours: Any, *middleware: Any, answer: Answer = ok, saver: Any = None) -> tuple[Any, Scripted]:
    model = Scripted(answer=answer)
    return create_agent(model, middleware=[*middleware, ours], state_schema=Unnumbered, checkpointer=saver), model


def test_a_client_that_says_everything_again_without_ids_is_not_doubled() -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore())
    agent, model = unnumbered(ours)
    said: list[tuple[str, str]] = []
    for question in ("one", "yes", "yes"):
        said.append(("user", question))
        found = agent.invoke({"messages": said}, **of("ada", "s"))
        said.append(("assistant", found["messages"][-1].text))
        assert texts(model.seen[-1]) == [text for _, text in said[:-1]]
    assert [message.id for message in found["messages"][:-1]] == [None] * 5
    assert texts(stored(ours)) == [text for _, text in said]


def test_what_a_failed_run_was_asked_without_an_id_is_recorded_with_the_next() -> None:
    fails = iter([False, True, True, False])

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if next(fails):
            raise TimeoutError
        return ok(messages)

    ours = BrainMemoryMiddleware(store=MemoryStore())
    agent, model = unnumbered(ours, answer=answer, saver=InMemorySaver())
    for question in ("one", "yes", "yes", "four"):
        with suppress(TimeoutError):
            agent.invoke({"messages": [("user", question)]}, **of("ada", "s"))
    assert texts(model.seen[-1]) == ["one", "ok: one", "yes", "yes", "four"]
    assert texts(stored(ours)) == ["one", "ok: one", "yes", "yes", "four", "ok: four"]


def test_what_another_middleware_cut_out_of_a_request_stays_out_without_ids_too() -> None:
    @wrap_model_call
    def newest_only(request: Any, handler: Any) -> Any:
        return handler(request.override(messages=request.messages[-1:]))

    ours = BrainMemoryMiddleware(store=MemoryStore())
    agent, model = unnumbered(ours, newest_only, saver=InMemorySaver())
    for question in ("one", "two", "three"):
        agent.invoke({"messages": [("user", question)]}, **of("ada", "s"))
    assert texts(model.seen[-1]) == ["three"]
    assert texts(stored(ours)) == ["one", "ok: one", "two", "ok: two", "three", "ok: three"]


class Unconverted(AgentState[Any]):
    messages: Annotated[list[AnyMessage], add]  # as LangGraph's own guide to reducers has it


@pytest.mark.parametrize("saver", [False, True])
def test_messages_that_the_reducer_leaves_as_the_client_sent_them(*, saver: bool) -> None:
    ours, model = BrainMemoryMiddleware(store=MemoryStore()), Scripted()
    saved = InMemorySaver() if saver else None
    agent = create_agent(model, middleware=[ours], state_schema=Unconverted, checkpointer=saved)
    for question in (("user", "one"), {"role": "user", "content": "two"}, "three", HumanMessage("four")):
        agent.invoke({"messages": [question]}, **of("ada", "s"))
    said = [text for number in ("one", "two", "three", "four") for text in (number, f"ok: {number}")]
    assert texts(model.seen[-1]) == said[:-1]
    assert texts(stored(ours)) == said


def numbered_later(before: list[BaseMessage] | None, new: Any) -> list[BaseMessage]:
    """As what deepagents writes anew of a thread, to close calls without results: what is written has ids."""
    named = [message.model_copy(update={"id": message.id or f"later-{n}"}) for n, message in enumerate(before or [])]
    return appended(named, new)


class NumberedLater(AgentState[Any]):
    messages: Annotated[list[AnyMessage], numbered_later]


def test_what_has_been_said_without_an_id_is_known_under_the_one_that_it_is_given_later() -> None:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        if messages[-1].text != "look":
            return ok(messages)
        return AIMessage("", tool_calls=[{"name": "look", "args": {"place": "shed"}, "id": "c1"}])

    ours = BrainMemoryMiddleware(store=MemoryStore())
    asks = HumanInTheLoopMiddleware(interrupt_on={"look": True})
    model, saver = Scripted(answer=answer), InMemorySaver()
    agent: Any = create_agent(model, [look], middleware=[ours, asks], state_schema=NumberedLater, checkpointer=saver)
    for question in ("look", "never mind"):
        found = agent.invoke({"messages": [("user", question)]}, **of("ada", "s"))
    assert found["messages"][0].id == "later-0"
    assert texts(stored(ours)) == ["look", "", "never mind", "ok: never mind"]


def test_what_has_been_said_without_an_id_is_no_other_message_where_its_thread_has_it_no_more() -> None:
    (asked,) = Thread([HumanMessage("one")], "thread")
    answer = Message(role="assistant", content="two", id="later-1")
    assert merge_run_messages([asked], [answer]) == [asked, answer]
    later = asked.model_copy(update={"id": "later-0"})
    assert merge_run_messages([asked], [later, answer]) == [later, answer]
