"""A thread is looked at from its end: what a session has of it, and what comes before, is found by ids alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.langchain.threads import view
from langmem_adapters.langchain.threads.overlap import merge
from langmem_adapters.langchain.threads.storable import to_message_leniently
from langmem_adapters.langchain.threads.summaries import FIRST_SHARED_KEY, SHARED_IDS_KEY, shared_state
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.model import Message
from tests.agents import Scripted

_TEXTS = st.sampled_from(["yes", "no", "where?", ""])
_KINDS = st.sampled_from(["user", "user", "assistant", "assistant", "tool", "system", "summary", "added"])


def _message(n: int, kind: str, text: str) -> BaseMessage:
    if kind == "system":
        return SystemMessage(text, id=f"m{n}")
    if kind in {"summary", "added"}:
        source = "summarization" if kind == "summary" else "harness"
        return HumanMessage(text, id=f"m{n}", additional_kwargs={"lc_source": source})
    if kind == "tool":
        return ToolMessage(text, id=f"m{n}", tool_call_id=f"c{n}")
    return HumanMessage(text, id=f"m{n}") if kind == "user" else AIMessage(text, id=f"m{n}")


@st.composite
def _sessions(draw: st.DrawFn) -> tuple[list[BaseMessage], list[Message], int]:
    thread = [_message(n, draw(_KINDS), draw(_TEXTS)) for n in range(draw(st.integers(0, 12)))]
    start = draw(st.integers(0, len(thread)))
    begin = draw(st.integers(0, start))
    history = [to_message_leniently(message) for message in thread[begin:start] if draw(st.integers(0, 9))]
    for n in range(draw(st.integers(0, 2))):  # what somebody else has said in the session
        place = draw(st.integers(0, len(history)))
        history.insert(place, Message(id=f"x{n}", role=draw(st.sampled_from(["user", "assistant"])), content="yes"))
    return thread, history, start


@settings(max_examples=500)
@given(_sessions())
def test_what_comes_before_the_session_changes_nothing(session: tuple[list[BaseMessage], list[Message], int]) -> None:
    messages, history, start = session
    whole = [to_message_leniently(message) for message in messages]
    assert merge(history, *Thread(messages).relevant_to(history, start)) == merge(history, whole, start)


def _behind_a_summary() -> tuple[list[BaseMessage], list[Message], int]:
    thread = [_message(n, kind, "yes") for n, kind in enumerate(["user", "tool", "summary", "user", "user", "user"])]
    return (
        thread,
        [
            to_message_leniently(thread[2]),
            Message(id="x0", role="assistant", content="yes"),
            to_message_leniently(thread[3]),
        ],
        4,
    )


@settings(max_examples=500)
@given(_sessions())
@example(_behind_a_summary())
def test_nor_where_the_thread_has_ids_of_its_own(session: tuple[list[BaseMessage], list[Message], int]) -> None:
    messages, history, start = session
    thread = Thread([message.model_copy(update={"id": f"own {message.id}"}) for message in messages])
    first = shared_state(history, thread, start, ())[FIRST_SHARED_KEY]
    assert merge(history, *thread.relevant_to(history, start, first)) == merge(history, thread[:], start)


def test_what_comes_before_the_session_is_not_looked_at_again_though_the_ids_are_others() -> None:
    thread = Thread([_message(n, ("user", "assistant")[n % 2], f"{n}") for n in range(100)])
    history = [message.model_copy(update={"id": f"x{n}"}) for n, message in enumerate(thread[90:])]
    known = shared_state(history, thread, 100, ())
    assert known == {SHARED_IDS_KEY: [message.id for message in history], FIRST_SHARED_KEY: {"x0": "m90"}}
    assert thread.relevant_to(history, 100, known[FIRST_SHARED_KEY]) == (thread[90:], 10)
    # Another first message: the thread may begin elsewhere.
    assert thread.relevant_to(history[2:], 100, known[FIRST_SHARED_KEY]) == (thread[:], 100)


def test_a_thread_is_its_messages() -> None:
    messages = [_message(n, "user", str(n)) for n in range(5)]
    thread = Thread(messages)
    assert list(thread) == thread[:] == [to_message_leniently(message) for message in messages]
    assert (thread[-1].text, [m.text for m in thread[1:3]], len(thread.prefix(2))) == ("4", ["1", "2"], 2)
    assert (thread.count_through("m0"), thread.count_through("m4"), thread.count_through("m5")) == (1, 5, None)
    assert thread.original(thread[3]) is messages[3]
    assert thread.original(Message(role="user", content="3")) is None


@pytest.mark.parametrize("length", [200, 400])
def test_a_turn_reads_no_more_of_a_longer_thread(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[BaseMessage] = []

    def counting(message: BaseMessage) -> Message:
        read.append(message)
        return to_message_leniently(message)

    monkeypatch.setattr(view, "to_message_leniently", counting)
    memory = BrainMemoryMiddleware("memory:", memory_k=10, long_term=False)
    agent: Any = create_agent(Scripted(), middleware=[memory], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": f"thread-{length}"}}
    earlier: Sequence[BaseMessage] = [_message(n, "assistant" if n % 2 else "user", str(n)) for n in range(length)]
    agent.invoke({"messages": [*earlier, HumanMessage("first")]}, config)
    read.clear()
    agent.invoke({"messages": [HumanMessage("second")]}, config)
    assert 0 < len(read) <= 30
