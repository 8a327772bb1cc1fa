"""history_to_thread and thread_to_history: LG d."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters import BrainMemory, ConfigurationError, LongTermMemory, Message, open_index
from langmem_adapters.langchain import (
    BrainChatMessageHistory,
    BrainMemoryMiddleware,
    ahistory_to_thread,
    athread_to_history,
    history_to_thread,
    thread_to_history,
)
from langmem_adapters.langchain.threads.overlap import merge
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore

CALL = {"name": "look", "args": {"place": "shed"}, "id": "c1", "type": "tool_call"}
SAID: list[BaseMessage] = [
    HumanMessage("Where is my bike?", id="h1", name="Ada"),
    AIMessage("", id="a1", tool_calls=[CALL]),
    ToolMessage("a red bike", id="t1", tool_call_id="c1", artifact={"colour": "red"}),
    AIMessage([{"type": "text", "text": "In the shed."}], id="a2", response_metadata={"finish_reason": "stop"}),
]
THREAD: Any = {"configurable": {"thread_id": "t"}}


def brain(store: Store | None = None, **options: Any) -> BrainMemory:
    return BrainMemory(store or MemoryStore(), "s", user="ada", **options)


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


# --- a history becomes a thread -----------------------------------------------------------------------------


def test_every_message_comes_into_the_thread_as_it_was(any_store: Store) -> None:
    ours = brain(any_store)
    thread_to_history(SAID, ours)
    assert history_to_thread(ours) == {"messages": SAID}
    assert [type(message) for message in history_to_thread(ours)["messages"]] == [type(message) for message in SAID]


async def test_ids_are_there_unique_and_the_same_each_time() -> None:
    ours = brain()
    BrainChatMessageHistory(brain=ours).add_messages([HumanMessage("yes"), AIMessage("ok"), HumanMessage("yes")])
    ours.store.append(("brain", "", "ada", "s"), [("x", b'{"v":1,"role":"user","content":"no id"}')])
    ours.store.append(("brain", "", "ada", "s"), [("y", b'{"v":1,"role":"user","content":"no id"}')])
    ids = [message.id for message in history_to_thread(ours)["messages"]]
    assert len(set(ids)) == 5
    assert all(ids)
    assert [message.id for message in (await ahistory_to_thread(ours))["messages"]] == ids


def test_updating_a_thread_twice_changes_nothing() -> None:
    ours = brain()
    thread_to_history(SAID, ours)
    ours.set_summary("Ada looks for her bike.")
    middleware = BrainMemoryMiddleware(store=ours.store)
    agent = create_agent(FakeListChatModel(responses=["ok"]), middleware=[middleware], checkpointer=InMemorySaver())
    for _ in range(2):
        agent.update_state(THREAD, history_to_thread(ours))
        state = agent.get_state(THREAD).values
        assert state["messages"] == SAID
        assert state["brain_summary"] == "Ada looks for her bike."


def test_the_summary_goes_where_it_is_wanted_and_is_no_message_of_the_session() -> None:
    ours = brain()
    thread_to_history(SAID, ours)
    ours.set_summary("Ada looks for her bike.")
    found = history_to_thread(ours, summary="message")
    assert set(found) == {"messages"}
    assert isinstance(found["messages"][0], SystemMessage)
    assert "Ada looks for her bike." in found["messages"][0].text
    assert found["messages"][0].id == history_to_thread(ours, summary="message")["messages"][0].id
    other = brain()
    assert thread_to_history(found, other) == 4
    assert thread_to_history(found, ours) == 0
    assert texts(other.messages()) == texts(SAID)


# --- a thread becomes a history -----------------------------------------------------------------------------


async def test_a_state_becomes_a_history_once(any_store: Store) -> None:
    ours = brain(any_store)
    state = {"messages": SAID, "brain_summary": "Ada looks for her bike.", "other": 1}
    assert thread_to_history(state, ours) == 4
    assert await athread_to_history(state, ours) == 0
    grown = {**state, "messages": [*SAID, HumanMessage("Thanks.", id="h2")], "brain_summary": "Later."}
    assert await athread_to_history(grown, ours) == 1
    assert [message.id for message in ours.messages()] == ["h1", "a1", "t1", "a2", "h2"]
    summary = ours.get_summary()
    assert summary is not None
    assert summary.text == "Ada looks for her bike."


def test_messages_without_ids_and_in_other_forms() -> None:
    ours = brain()
    thread: Any = [("user", "one"), {"role": "assistant", "content": "ok"}, ("user", "one")]
    assert thread_to_history(thread, ours) == 3
    assert thread_to_history(thread, ours) == 0
    assert thread_to_history([*thread, AIMessage("ok")], ours) == 1
    assert texts(ours.messages()) == ["one", "ok", "one", "ok"]


def test_what_is_no_message_of_the_conversation_stays_out() -> None:
    summary = HumanMessage("Here is a summary.", additional_kwargs={"lc_source": "summarization"})
    ours = brain()
    assert thread_to_history([SystemMessage("Be kind."), summary, *SAID], ours) == 4
    assert [message.id for message in ours.messages()] == ["h1", "a1", "t1", "a2"]


def test_what_has_left_the_history_does_not_come_back() -> None:
    store = MemoryStore()
    thread = [HumanMessage(f"{n}", id=f"m{n}") for n in range(10)]
    long_term = LongTermMemory(store, open_index("memory:"), user="ada")
    moved = brain(store, memory_k=3, long_term=long_term)
    assert thread_to_history(thread, moved) == 10
    assert moved.count() == 3
    store.clear(("brain", "", "ada", "s"))  # the newest three are lost, the others in the long-term memory
    assert thread_to_history(thread, moved) == 3
    dropped = brain(archive=False, model=lambda _: "They counted.", summarize_at=10_000)
    thread_to_history(thread, dropped)
    dropped.summarize()
    assert thread_to_history(thread, dropped) == 0
    assert dropped.count() == 0


@pytest.mark.parametrize("archive", [True, False])
def test_what_comes_under_the_id_of_something_summarised_is_kept(archive: bool) -> None:
    """Some clients number the messages of each request anew. What is the same stays away, whatever its white space."""
    ours = brain(archive=archive, model=lambda _: "They talked.", summarize_at=10_000)
    thread_to_history([HumanMessage("Where is my bike?", id="1"), AIMessage("In the shed.", id="2")], ours)
    ours.summarize()
    count = ours.count()
    assert thread_to_history([HumanMessage("Where?", id="0"), AIMessage("In the  shed.", id="2")], ours) == 0
    new = [HumanMessage("And my car?", id="1"), AIMessage("In the garage.", id="2")]
    assert thread_to_history(new, ours) == 2
    assert [message.text for message in ours.messages()[count:]] == ["And my car?", "In the garage."]
    ours.set_summary("They talked of a bike.")
    assert thread_to_history([AIMessage("In the shed.", id="2")], ours) == 0


def test_what_comes_under_the_id_of_a_memory_is_kept() -> None:
    store = MemoryStore()
    long_term = LongTermMemory(store, open_index("memory:"), user="ada")
    ours = brain(store, memory_k=1, long_term=long_term)
    thread_to_history([HumanMessage("My bike is red.", id="1"), HumanMessage("Hm.", id="2")], ours)
    assert thread_to_history([HumanMessage("My car is blue.", id="1")], ours) == 1
    assert thread_to_history([HumanMessage("My bike  is red.", id="1")], ours) == 0
    assert {memory.message.text for memory in long_term.all()} == {"My bike is red.", "Hm."}


def test_what_has_left_another_session_comes_into_this_one() -> None:
    store = MemoryStore()
    long_term = LongTermMemory(store, open_index("memory:"), user="ada")
    thread = [HumanMessage("My bike is red.", id="1"), HumanMessage("Hm.", id="2")]
    thread_to_history(thread, BrainMemory(store, "other", user="ada", memory_k=1, long_term=long_term))
    assert thread_to_history(thread, brain(store, long_term=long_term)) == 2


def test_a_redacted_message_that_a_summary_ends_at_is_known() -> None:
    ours = brain(SealedStore(MemoryStore(), redactor=lambda text: text.replace("4711", "#")), model=lambda _: "A pin.")
    thread = [HumanMessage("My pin is 4711.", id="1"), HumanMessage("4711!", id="2")]
    thread_to_history(thread, ours)
    ours.summarize(keep=0)
    assert thread_to_history(thread, ours) == 0
    assert ours.count() == 2


def test_what_was_deleted_from_the_end_of_the_history_does_not_come_back(any_store: Store) -> None:
    ours = brain(any_store)
    assert thread_to_history(SAID, ours) == 4
    ours.delete(["t1", "a2"])
    thanks = HumanMessage("Thanks!", id="h2")
    assert thread_to_history([*SAID, thanks], ours) == 1
    assert [message.id for message in ours.messages()] == ["h1", "a1", "h2"]


def test_bad_input_is_told() -> None:
    with pytest.raises(ConfigurationError, match="not str"):
        thread_to_history("hello", brain())
    with pytest.raises(ConfigurationError, match="not int"):
        thread_to_history(5, brain())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="RemoveMessage"):
        thread_to_history([RemoveMessage(id="h1")], brain())
    with pytest.raises(ConfigurationError, match="summary is"):
        history_to_thread(brain(), summary="both")  # type: ignore[arg-type]


# --- what both have -----------------------------------------------------------------------------------------


def words(text: str, *, ids: bool = True) -> list[Message]:
    """A message for each letter; capitals are the user's."""
    return [
        Message(id=f"{n}{letter}" if ids else "", role="user" if letter.isupper() else "assistant", content=letter)
        for n, letter in enumerate(text)
    ]


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 5), st.booleans())
def test_history_and_thread_joined_are_the_conversation(first: int, kept: int, new: int, ids: bool) -> None:
    """The history has lost its beginning, the thread its own; what is new comes last; nothing is there twice."""
    whole = "".join(f"{chr(65 + n)}{chr(97 + n)}" for n in range(10))
    all_of_it = words(whole, ids=ids)
    said, fresh = all_of_it[: 20 - 2 * new], all_of_it[20 - 2 * new :]
    history = said[first:]
    known_part = said[len(said) - kept :] if kept else []
    thread = [*known_part, *fresh]
    found = merge(history, thread, len(known_part))
    assert texts(found) == texts([*history, *fresh])


def test_joined_keeps_the_threads_own_form_and_others_turns_in_their_place() -> None:
    history = words("AaXxBb")
    thread = [message.model_copy(update={"metadata": {"mine": True}}) for message in (*history[:2], *history[4:])]
    found = merge(history, [*thread, Message(role="user", content="C")], 4)
    assert texts(found) == ["A", "a", "X", "x", "B", "b", "C"]
    assert [bool(message.metadata) for message in found] == [True, True, False, False, True, True, False]
