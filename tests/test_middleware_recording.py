"""What BrainMemoryMiddleware records of a run: whatever others remove meanwhile, and whatever cannot be stored."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    SummarizationMiddleware,
    after_model,
    before_model,
    wrap_model_call,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command, interrupt

from langmem_adapters import BrainMemory, Message, SerializationError
from langmem_adapters.conversation.session import Context
from langmem_adapters.conversation.storable import without_unstorable
from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.flow import run
from langmem_adapters.langchain import (
    BrainChatMessageHistory,
    BrainMemoryMiddleware,
    from_message,
    thread_to_history,
    to_message,
)
from langmem_adapters.langchain.threads.recording import count_recorded_at_start, recorded_positions
from langmem_adapters.langchain.threads.storable import to_message_leniently
from langmem_adapters.langchain.threads.view import Thread
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, aask, ask, invalid, look, of, ok, system, texts
from tests.faults import Broken, Refusing


class Colour(Enum):
    RED = 1


def memory(store: Store | None = None, **options: Any) -> BrainMemoryMiddleware:
    return BrainMemoryMiddleware(store=store or MemoryStore(), **options)


def stored(ours: BrainMemoryMiddleware) -> list[Message]:
    return ours.brain("s", user="ada").messages()


def thread_after(agent: Any, questions: Sequence[str], *, is_saved: bool) -> list[BaseMessage]:
    """The thread when an agent has been asked these, one after the other; if it is not saved, the client sends all."""
    thread: list[BaseMessage] = []
    for question in questions:
        turn = {"messages": [*([] if is_saved else thread), HumanMessage(question)]}
        thread = agent.invoke(turn, **of("ada", "s"))["messages"]
    return thread


# --- what cannot be stored ----------------------------------------------------------------------------------


@tool(response_format="content_and_artifact")
def plot(year: str) -> tuple[str, Any]:
    """Plot something."""
    return f"a plot of {year}", np.array([1.0, 2.0])


def plots(messages: list[BaseMessage]) -> AIMessage:
    if messages[-1].text == "plot":
        return AIMessage("", tool_calls=[{"name": "plot", "args": {"year": "2023"}, "id": f"c{len(messages)}"}])
    return ok(messages)


@pytest.mark.parametrize("saver", [None, InMemorySaver()])
def test_an_artifact_that_no_store_can_keep_stops_nothing(
    saver: InMemorySaver | None, caplog: pytest.LogCaptureFixture
) -> None:
    ours = memory(on_error="raise")
    agent = create_agent(Scripted(answer=plots), [plot], middleware=[ours], checkpointer=saver)
    counts = []
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        for question in ("hello", "plot", "my bike is in the shed", "plot", "more"):
            ask(agent, question)
            counts.append(len(stored(ours)))
    assert counts == [2, 6, 8, 12, 14]
    assert ours.stats()["errors"] == 0
    assert len(caplog.records) == 1
    result = stored(ours)[4]
    assert (result.text, result.metadata["unstored"]) == ("a plot of 2023", ["artifact"])
    back = from_message(result)
    assert isinstance(back, ToolMessage)
    assert back.artifact is None


async def test_an_artifact_without_blocking(any_store: Store) -> None:
    ours = memory(any_store, on_error="raise")
    agent = create_agent(Scripted(answer=plots), [plot], middleware=[ours])
    await aask(agent, "plot")
    assert len(stored(ours)) == 4


@pytest.mark.parametrize("bad", [np.float64(1), Path("/x"), Colour.RED, object(), {"deep": [np.array([1])]}])
def test_only_what_cannot_be_stored_is_left_out(bad: Any) -> None:
    message = AIMessage(
        [{"type": "text", "text": "In the shed."}, {"type": "image", "data": bad}],
        id="a1",
        tool_calls=[{"name": "look", "args": {"place": "shed", "map": bad}, "id": "c1", "type": "tool_call"}],
        additional_kwargs={"trace": bad},
        response_metadata={"model": "m"},
    )
    if isinstance(bad, np.float64 | Colour):  # numbers and members with a value are stored as that
        bad = None
    kept = without_unstorable(to_message(message))
    kept.to_bytes()
    assert kept.text == "In the shed."
    assert kept.tool_calls[0].args["place"] == "shed"
    assert kept.host["langchain"]["response_metadata"] == {"model": "m"}
    assert kept.id == "a1"


def test_what_stands_beside_it_is_kept() -> None:
    """A model in this process may tell the log probabilities of its words as numbers of NumPy."""
    told = {"finish_reason": "stop", "logprobs": [np.float32(-0.1)], "token_usage": {"total_tokens": 3}, object(): 1}
    message = AIMessage("In the shed.", response_metadata=told, additional_kwargs={"reasoning_content": "A bike …"})
    message.usage_metadata = {"input_tokens": 1, "output_tokens": 2, "total_tokens": np.int64(3)}  # type: ignore[assignment]
    kept = without_unstorable(to_message(message))
    back = from_message(Message.from_bytes(kept.to_bytes()))
    assert back.response_metadata == {"finish_reason": "stop", "token_usage": {"total_tokens": 3}}
    assert back.additional_kwargs == message.additional_kwargs
    assert kept.metadata["unstored"] == ["response_metadata", "response_metadata.logprobs", "usage_metadata"]


def test_a_text_and_a_call_are_kept_without_the_extras_that_no_store_can_keep() -> None:
    """Providers put what only they know beside a text and a call, and integrations may put an object there."""
    extras = {"signature": "s", "source": object()}
    message = AIMessage([{"type": "text", "text": "In the shed.", "extras": extras}], id="a1")
    call: Any = {"name": "look", "args": {"place": "shed"}, "id": "c1", "type": "tool_call"}
    message.tool_calls = [call | {"extras": extras}]
    ours = BrainMemory(MemoryStore(), "s")
    BrainChatMessageHistory(brain=ours).add_messages([message])
    (kept,) = ours.messages()
    assert kept.metadata["unstored"] == ["content", "extras.source"]
    back = from_message(kept)
    assert isinstance(back, AIMessage)
    assert back.content == [{"type": "text", "text": "In the shed.", "extras": {"signature": "s"}}]
    assert back.tool_calls == [call | {"extras": {"signature": "s"}}]


def test_what_can_be_stored_is_the_very_same_message() -> None:
    message = to_message(ToolMessage("x", tool_call_id="c1", artifact={"a": [1, b"2", (3,)]}))
    assert without_unstorable(message) is message


def test_one_bad_message_does_not_hold_up_the_others() -> None:
    ours = memory(on_error="raise")
    agent = create_agent(Scripted(), middleware=[ours])
    bad = HumanMessage("one", id="h1")
    bad.content = [5]  # type: ignore[list-item]
    agent.invoke({"messages": [bad, HumanMessage("two")]}, **of("ada", "s"))
    assert texts(stored(ours))[1:] == ["two", "ok: two"]
    assert stored(ours)[0].metadata["unstored"] == ["content"]
    assert to_message_leniently(bad).id == "h1"


@pytest.mark.parametrize("wrong", [{"name": 5}, {"id": 5}, {"tool_calls": 5}, {"tool_calls": [5]}, {"content": {5}}])
def test_a_message_with_a_wrong_value_loses_only_that(wrong: dict[str, Any]) -> None:
    call = {"name": "look", "args": {}, "id": "c1", "type": "tool_call"}
    right: dict[str, Any] = {"content": "one", "id": "a1", "name": "ada", "tool_calls": [call]}
    message = AIMessage(**right)
    vars(message).update(wrong)
    with pytest.raises(SerializationError, match=next(iter(wrong))):
        to_message(message)
    lenient = to_message_leniently(message)
    assert lenient.metadata == {"unstored": [*wrong]}
    empty: dict[str, Any] = {"name": None, "id": "5", "tool_calls": [], "content": ""}
    expected = {name: empty[name] if name in wrong else value for name, value in right.items()}
    back = from_message(lenient)
    assert isinstance(back, AIMessage)
    assert {name: getattr(back, name) for name in right} == expected


@pytest.mark.parametrize("arguments", [5, ["developer"]])
def test_a_system_message_with_wrong_arguments_is_no_developers(arguments: object) -> None:
    message = SystemMessage("Be brief.")
    vars(message)["additional_kwargs"] = arguments
    assert to_message(message).role == "system"


def test_a_thread_with_an_artifact_becomes_a_history(caplog: pytest.LogCaptureFixture) -> None:
    brain = BrainMemory(MemoryStore(), "s")
    thread = [HumanMessage("q"), ToolMessage("c", tool_call_id="1", artifact=np.array([1.0])), AIMessage("a")]
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert thread_to_history(thread, brain) == 3
    assert texts(brain.messages()) == ["q", "c", "a"]
    assert len(caplog.records) == 1


def test_an_error_that_is_no_messages_own_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    class Damaged(MemoryStore):
        def append(self, *_: Any, **__: Any) -> Any:
            raise SerializationError("damaged")

    agent = create_agent(Scripted(), middleware=[memory(Damaged(), on_error="raise")])
    with caplog.at_level(logging.WARNING, "langmem_adapters"), pytest.raises(SerializationError, match="damaged"):
        ask(agent, "one")
    assert not caplog.records


def test_a_saved_thread_is_known_by_ids_and_a_clients_by_its_words() -> None:
    history = [Message(id="1", role="user", content="yes"), Message(id="2", role="assistant", content="ok")]
    same = [HumanMessage("yes", id="1"), AIMessage("ok", id="2")]
    again = [HumanMessage("yes", id="new 1"), AIMessage("ok", id="new 2")]
    saved, context = {"brain_began": ""}, Context(None, history)
    for brain in (None, memory().brain("s", user="ada")):
        assert run(count_recorded_at_start(brain, Thread(again), context)) == 2
        assert run(count_recorded_at_start(brain, Thread(again, state=saved), context)) == 0
        assert run(count_recorded_at_start(brain, Thread(same, state=saved), context)) == 2


# --- beside others that take messages out of the thread -----------------------------------------------------


@before_model
def trim(state: Any, runtime: Any) -> Any:  # noqa: ARG001 - LangChain passes it
    messages = state["messages"]
    return (
        {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), messages[0], *messages[-3:]]} if len(messages) > 4 else None
    )


def summarization() -> Any:
    small = Scripted(answer=lambda _: AIMessage("SUMMARY"))
    return SummarizationMiddleware(small, trigger=("messages", 5), keep=("messages", 2))


def six_calls() -> Any:
    count = itertools.count(1)

    def answer(messages: list[BaseMessage]) -> AIMessage:  # noqa: ARG001 - as models are asked
        n = next(count)
        call = {"name": "look", "args": {"place": f"{n}"}, "id": f"c{n}", "type": "tool_call"}
        return AIMessage("", tool_calls=[call]) if n % 7 else AIMessage("final")

    return answer


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("other", [summarization, lambda: trim])
@pytest.mark.parametrize("saver", [True, False])
def test_what_others_take_out_of_the_thread_is_recorded(other: Any, *, first: bool, saver: bool) -> None:
    ours, model = memory(), Scripted(answer=six_calls())
    both = [ours, other()] if first else [other(), ours]
    agent = create_agent(model, [look], middleware=both, checkpointer=InMemorySaver() if saver else None)
    for n in range(3):
        ask(agent, f"question {n}")
    found = stored(ours)
    assert [m.text for m in found if m.role == "user"] == [f"question {n}" for n in range(3)]
    assert [m.role for m in found] == (["user", *["assistant", "tool"] * 6, "assistant"]) * 3
    assert [invalid(shown) for shown in model.seen if invalid(shown)] == []


def test_recall_is_for_the_question_though_it_was_taken_out() -> None:
    ours, model = memory(), Scripted(answer=six_calls())
    long_term = ours.brain("earlier", user="ada").long_term
    assert long_term is not None
    long_term.add([Message(role="user", content="My bike is in the shed.")], session="earlier")
    ask(create_agent(model, [look], middleware=[ours, summarization()]), "Where is my bike?")
    assert all("in the shed" in system(shown) for shown in model.seen)


def test_recall_is_for_the_question_of_the_run_though_an_older_one_is_left() -> None:
    ours, model = memory(recall_k=1), Scripted(answer=six_calls())
    long_term = ours.brain("earlier", user="ada").long_term
    assert long_term is not None
    facts = ["My bike is in the shed.", "My car is in the street."]
    long_term.add([Message(role="user", content=fact) for fact in facts], session="earlier")
    agent = create_agent(model, [look], middleware=[ours, trim], checkpointer=InMemorySaver())
    ask(agent, "Where is my bike?")
    ask(agent, "Where is my car?")
    assert texts(model.seen[-1])[0] == "Where is my bike?"
    assert all(facts[1] in system(shown) and facts[0] not in system(shown) for shown in model.seen[7:])


@pytest.mark.parametrize("first", [True, False])
def test_a_model_is_shown_the_question_though_all_are_taken_out(*, first: bool) -> None:
    @before_model
    def newest(state: Any, runtime: Any) -> Any:  # noqa: ARG001 - LangChain passes it
        instructions = [message for message in state["messages"][:-3] if isinstance(message, SystemMessage)]
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *instructions, *state["messages"][-3:]]}

    ours, model = memory(), Scripted(answer=six_calls())
    both = [ours, newest] if first else [newest, ours]
    agent: Any = create_agent(model, [look], system_prompt="Be kind.", middleware=both, checkpointer=InMemorySaver())
    agent.update_state(of("ada", "s")["config"], {"messages": [SystemMessage("Be brief.")]})
    for n in range(2):
        ask(agent, f"question {n}")
        assert texts(model.seen[-1])[0] == f"question {n}"
    assert [invalid(shown) for shown in model.seen if invalid(shown)] == []
    assert [m.text for m in stored(ours) if m.role == "user"] == ["question 0", "question 1"]


def test_what_a_filter_replaces_is_recorded_as_it_is_shown() -> None:
    @before_model
    def redact(state: Any, runtime: Any) -> Any:  # noqa: ARG001 - LangChain passes it
        last = state["messages"][-1]
        return {"messages": [HumanMessage("my card is [card]", id=last.id)]} if "4111" in last.text else None

    for order in (1, -1):
        ours, model = memory(), Scripted()
        agent = create_agent(model, middleware=[ours, redact][::order], checkpointer=InMemorySaver())
        ask(agent, "my card is 4111")
        assert texts(stored(ours)) == ["my card is [card]", "ok: my card is [card]"]


def test_what_is_replaced_once_it_was_shown_is_recorded_in_its_new_form() -> None:
    @before_model
    def redact(state: Any, runtime: Any) -> Any:  # noqa: ARG001 - LangChain passes it
        first = state["messages"][0]
        if not isinstance(state["messages"][-1], ToolMessage) or "4111" not in first.text:
            return None
        return {"messages": [HumanMessage("my card is [card]", id=first.id)]}

    ours = memory()
    agent = create_agent(Scripted(answer=six_calls()), [look], middleware=[ours, redact, summarization()])
    ask(agent, "my card is 4111")
    assert texts(stored(ours))[0] == "my card is [card]"
    assert not [message for message in stored(ours) if "4111" in message.text]


@pytest.mark.parametrize("first", [True, False])
def test_what_was_deleted_does_not_come_back_where_the_mark_is_taken_out(any_store: Store, *, first: bool) -> None:
    ours, model = memory(any_store), Scripted(answer=six_calls())
    both = [ours, trim] if first else [trim, ours]
    agent = create_agent(model, [look], middleware=both, checkpointer=InMemorySaver())
    ask(agent, "my card is 4111")
    brain = ours.brain("s", user="ada")
    assert brain.delete([brain.messages()[0].id]) == 1
    for n in range(2):
        ask(agent, f"question {n}")
    assert [m.text for m in stored(ours) if m.role == "user"] == ["question 0", "question 1"]
    assert not [shown for shown in model.seen[7:] if "my card is 4111" in texts(shown)]
    assert [invalid(shown) for shown in model.seen if invalid(shown)] == []


def test_what_was_asked_is_recorded_though_the_thread_is_emptied() -> None:
    @after_model
    def forget(state: Any, runtime: Any) -> Any:  # noqa: ARG001 - LangChain passes it
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]}

    ours = memory()
    agents = [
        create_agent(Scripted(), middleware=[ours, *more], checkpointer=saver)
        for saver in [InMemorySaver()]
        for more in ([], [forget])
    ]
    for n, agent in enumerate(agents):
        ask(agent, f"question {n}")
    assert texts(stored(ours)) == ["question 0", "ok: question 0", "question 1"]


def anew(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The same messages, as who makes them anew writes them: without ids."""
    return [message.model_copy(update={"id": None}) for message in messages]


_REPLACED: dict[str, tuple[Callable[[list[BaseMessage]], list[BaseMessage]], bool]] = {  # and whether that is new
    "by itself": (anew, False),
    "by itself under an instruction": (lambda messages: [SystemMessage("Be brief."), *anew(messages)], False),
    "by its last turn": (lambda messages: anew(messages[-14:]), False),
    "by its first turn": (lambda messages: anew(messages[:14]), True),
    "by another conversation": (lambda _: [HumanMessage("hi"), AIMessage("hello")], True),
    "by what ends as it did": (lambda messages: [HumanMessage("hi"), AIMessage("hello"), *anew(messages[-14:])], True),
    "by itself in other words": (lambda messages: [HumanMessage("hi"), *anew(messages[1:])], True),
}


@pytest.mark.parametrize("how", _REPLACED)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_thread_that_is_put_in_the_place_of_itself_is_not_recorded_again(
    any_store: Store, how: str, *, at_once: bool
) -> None:
    """What it did not say before is."""
    ours, model = memory(any_store), Scripted(answer=six_calls())
    agent: Any = create_agent(model, [look], middleware=[ours], checkpointer=InMemorySaver())
    ask(agent, "question 0")
    ask(agent, "question 1")
    before, (replace, is_new) = texts(stored(ours)), _REPLACED[how]
    where = of("ada", "s")
    thread = replace(agent.get_state(where["config"]).values["messages"])
    replaced = [RemoveMessage(REMOVE_ALL_MESSAGES), *thread]
    if at_once:
        agent.invoke({"messages": [*replaced, HumanMessage("question 2")]}, **where)
    else:
        agent.update_state(where["config"], {"messages": replaced})
        ask(agent, "question 2")
    known = [*before, *(texts(thread) if is_new else []), "question 2"]
    assert texts(stored(ours))[: len(known)] == known
    said = texts([message for message in thread if not isinstance(message, SystemMessage)])
    seen = texts([message for message in model.seen[-1] if not isinstance(message, SystemMessage)])
    assert seen[: len(said) + 1] == [*said, "question 2"]


def test_what_a_run_said_is_not_kept_in_the_state_once_it_is_recorded() -> None:
    saver, ours = InMemorySaver(), memory()
    agent = create_agent(Scripted(answer=six_calls()), [look], middleware=[ours, summarization()], checkpointer=saver)
    found = ask(agent, "one")
    assert agent.get_state({"configurable": {"thread_id": "s"}}).values["brain_said"] == []
    assert not {"brain_said", "brain_began", "brain_thread", "brain_recorded"} & set(found)


def test_a_run_that_was_interrupted_is_recorded_as_a_whole() -> None:
    @tool
    def approve(place: str) -> str:
        """Ask somebody."""
        return f"{place}: {interrupt('may I?')}"

    calls = iter(["look", "look", "look", "approve", ""])

    def answer(messages: list[BaseMessage]) -> AIMessage:
        name = next(calls)
        call = {"name": name, "args": {"place": "x"}, "id": f"c{name}{len(messages)}{id(name)}", "type": "tool_call"}
        return AIMessage("", tool_calls=[call]) if name else AIMessage("done")

    ours = memory()
    agent: Any = create_agent(
        Scripted(answer=answer), [look, approve], middleware=[ours, summarization()], checkpointer=InMemorySaver()
    )
    ask(agent, "one")
    assert stored(ours) == []
    agent.invoke(Command(resume="yes"), **of("ada", "s"))
    assert [m.role for m in stored(ours)] == ["user", *["assistant", "tool"] * 4, "assistant"]


@pytest.mark.parametrize("tools", [0, 1])
def test_what_was_heard_of_a_run_that_was_broken_off_is_shown_and_recorded(any_store: Store, *, tools: int) -> None:
    call = {"name": "look", "args": {"place": "shed"}, "id": "c", "type": "tool_call"}
    said = iter([*[AIMessage("I look.", tool_calls=[call])] * tools, None, AIMessage("Fine.")])

    def answer(_: list[BaseMessage]) -> AIMessage:
        found = next(said)
        if found is None:
            raise KeyboardInterrupt  # in the middle of its answer
        return found

    ours, model = memory(any_store), Scripted(answer=answer)
    agent: Any = create_agent(model, [look], middleware=[ours], checkpointer=InMemorySaver())
    with pytest.raises(KeyboardInterrupt):
        ask(agent, "Where is it?")
    agent.update_state(of("ada", "s")["config"], {"messages": [AIMessage("It is in")]})
    ask(agent, "Thanks, I know.")
    looked = ["I look.", "nothing in the shed"] * tools
    assert texts(model.seen[-1]) == ["Where is it?", *looked, "It is in", "Thanks, I know."]
    assert texts(stored(ours)) == [*texts(model.seen[-1]), "Fine."]
    assert not invalid(model.seen[-1])


def test_what_an_outage_kept_from_being_recorded_is_made_up_for_though_it_was_taken_out() -> None:
    store = Refusing()
    ours = memory(store)
    agent = create_agent(
        Scripted(answer=six_calls()), [look], middleware=[ours, summarization()], checkpointer=InMemorySaver()
    )
    store.reason = "the store is away"
    ask(agent, "one")
    store.reason = ""
    ask(agent, "two")
    assert [m.text for m in stored(ours) if m.role == "user"] == ["one", "two"]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("newest", [1, 2, 3])
@pytest.mark.parametrize("away", [{0, 1}, {0, 1, 2}, {1, 2}, {2, 3}])
def test_what_was_taken_out_in_an_outage_of_whole_runs_is_made_up_for_afterwards(
    away: set[int], newest: int, mode: str
) -> None:
    store, small = Broken(), Scripted(answer=lambda _: AIMessage("SUMMARY"))
    ours = memory(store, long_term=False)
    summaries: Any = SummarizationMiddleware(small, trigger=("messages", 4), keep=("messages", newest))
    agent = create_agent(Scripted(), middleware=[ours, summaries], checkpointer=InMemorySaver())
    for n in range(5):
        store.away = n in away
        if mode == "sync":
            ask(agent, f"question {n}")
        else:
            asyncio.run(aask(agent, f"question {n}"))
    assert texts(stored(ours)) == [text for n in range(5) for text in (f"question {n}", f"ok: question {n}")]


def test_what_was_recorded_though_nobody_heard_of_it_is_not_recorded_again_beyond_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store is away when a run begins, which gives its thread no mark, and before it can say what it stored."""
    store = MemoryStore()
    ours, append = memory(store, memory_k=2, long_term=False), store.append

    def away(*_: Any, **__: Any) -> Any:
        monkeypatch.undo()
        monkeypatch.setattr(store, "append", unanswered)
        raise StoreUnavailable("nobody answers")

    def unanswered(*args: Any, **kwargs: Any) -> Any:
        append(*args, **kwargs)
        monkeypatch.undo()
        raise StoreUnavailable("nobody answers")

    def answer(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("not there")
        return AIMessage("", tool_calls=[{"name": "look", "args": {"place": "shed"}, "id": messages[-1].text}])

    agent = create_agent(Scripted(answer=answer), [look], middleware=[ours], checkpointer=InMemorySaver())
    monkeypatch.setattr(store, "scan", away)
    ask(agent, "one")
    ask(agent, "two")
    turn = ["", "nothing in the shed", "not there"]
    assert texts(stored(ours)) == ["one", *turn, "two", *turn]


class Shortens(AgentMiddleware[Any, Any, Any]):
    """What shows the model a summary and the newest messages, and leaves the thread as it is."""

    def shorter(self, request: Any) -> Any:
        summary = HumanMessage("in short", additional_kwargs={"lc_source": "summarization"})
        return request.override(messages=[summary, *request.messages[-self.newest :]])

    def __init__(self, newest: int) -> None:
        super().__init__()
        self.newest = newest

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self.shorter(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self.shorter(request))


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("newest", [3, 2])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("saver", [True, False])
def test_what_others_hide_from_the_model_is_not_shown_from_the_session(
    any_store: Store, mode: str, newest: int, *, saver: bool, ids: bool
) -> None:
    ours, model = memory(any_store), Scripted()
    ours.brain("s", user="ada").add_talk("said elsewhere")
    both = [Shortens(newest), ours]
    agent: Any = create_agent(model, middleware=both, checkpointer=InMemorySaver() if saver else None)
    thread: list[Any] = []
    for n in range(4):
        turn = {"messages": [*([] if saver else thread), HumanMessage(f"question {n}")]}
        if mode == "sync":
            found = agent.invoke(turn, **of("ada", "s"))
        else:
            found = asyncio.run(agent.ainvoke(turn, **of("ada", "s")))
        thread = [message if ids else (message.type, message.text) for message in found["messages"]]
    said = ["said elsewhere", *(text for n in range(4) for text in (f"question {n}", f"ok: question {n}"))]
    assert texts(model.seen[-1]) == ["in short", "said elsewhere", *said[-newest - 1 : -1]]
    assert texts(stored(ours)) == said


@pytest.mark.parametrize(("newest", "shown"), [(3, ["question 1", "", "nothing in the shed"]), (2, [])])
def test_calls_that_a_client_does_not_show_are_hidden_with_their_question(newest: int, shown: list[str]) -> None:
    def answer(messages: list[BaseMessage]) -> AIMessage:
        call = {"name": "look", "args": {"place": "shed"}, "id": messages[-1].text, "type": "tool_call"}
        return AIMessage("", tool_calls=[call]) if isinstance(messages[-1], HumanMessage) else AIMessage("done")

    ours, model = memory(), Scripted(answer=answer)
    agent = create_agent(model, [look], middleware=[Shortens(newest), ours])
    thread: list[Any] = []
    for n in range(3):
        thread.append(("user", f"question {n}"))
        found: Any = agent.invoke({"messages": thread}, **of("ada", "s"))
        thread.append(("assistant", found["messages"][-1].text))
    assert texts(model.seen[-2]) == ["in short", *shown, "done", "question 2"]


def test_a_question_of_before_is_shown_though_others_hide_the_same_one_that_is_asked_now() -> None:
    ours, model = memory(), Scripted(answer=six_calls())
    ours.brain("s", user="ada").add_talk("Sure?")
    ours.brain("s", user="ada").add_answer("Yes.")
    ask(create_agent(model, [look], middleware=[Shortens(2), ours]), "Sure?")
    assert all("Sure? Yes." in " ".join(texts(shown)) for shown in model.seen)


@wrap_model_call
def abridges(request: Any, handler: Any) -> Any:
    short = [m.model_copy(update={"content": "long, in a file"}) if len(m.text) > 99 else m for m in request.messages]
    return handler(request.override(messages=short))


@pytest.mark.parametrize("long", [0, 1])
@pytest.mark.parametrize("saver", [True, False])
def test_what_others_abridge_for_the_model_is_shown_once(any_store: Store, long: int, *, saver: bool) -> None:
    ours, model = memory(any_store), Scripted(answer=lambda messages: AIMessage(f"ok {len(messages)}"))
    both: Any = [abridges, ours]
    agent: Any = create_agent(model, middleware=both, checkpointer=InMemorySaver() if saver else None)
    questions = ["word " * 99 if n == long else f"question {n}" for n in range(4)]
    thread = thread_after(agent, questions, is_saved=saver)
    said = texts(thread)
    assert texts(stored(ours)) == said
    assert texts(model.seen[-1]) == ["long, in a file" if len(text) > 99 else text for text in said[:-1]]


@pytest.mark.parametrize("saver", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("added", [{"role": "user", "content": "a page"}, HumanMessage("a page")])
def test_what_others_add_to_a_call_alone_is_shown_and_was_said_by_nobody(
    added: Any, *, first: bool, saver: bool
) -> None:
    @wrap_model_call
    def adds(request: Any, handler: Any) -> Any:
        return handler(request.override(messages=[*request.messages, added]))

    ours, model = memory(), Scripted(answer=six_calls())
    both: Any = [ours, adds] if first else [adds, ours]
    agent: Any = create_agent(model, [look], middleware=both, checkpointer=InMemorySaver() if saver else None)
    thread = thread_after(agent, ["question 0", "question 1"], is_saved=saver)
    assert texts(stored(ours)) == texts(thread)
    assert texts(model.seen[-1]) == [*texts(thread)[:-1], "a page"]


@pytest.mark.parametrize("saver", [True, False])
@pytest.mark.parametrize("newest", [99, 9])
def test_what_others_put_in_front_of_a_call_is_shown_each_time(any_store: Store, newest: int, *, saver: bool) -> None:
    """Examples, or a summary that is not marked as LangChain marks its own."""
    front = ["a question", "its answer"]

    @wrap_model_call
    def puts_in_front(request: Any, handler: Any) -> Any:
        added: list[BaseMessage] = [HumanMessage(front[0]), AIMessage(front[1])]
        return handler(request.override(messages=[*added, *request.messages[-newest:]]))

    ours, model = memory(any_store), Scripted(answer=six_calls())
    both: Any = [puts_in_front, ours]
    agent: Any = create_agent(model, [look], middleware=both, checkpointer=InMemorySaver() if saver else None)
    thread = thread_after(agent, ["question 0", "question 1"], is_saved=saver)
    assert texts(stored(ours)) == texts(thread)
    assert [texts(shown)[:2] for shown in model.seen] == [front] * len(model.seen)
    assert not any(set(front) & set(texts(shown)[2:]) for shown in model.seen)


@pytest.mark.parametrize("saver", [True, False])
def test_b1_what_langchain_answers_to_a_call_that_it_cannot_read_stands_behind_that_call(
    any_store: Store, *, saver: bool
) -> None:
    bad = {"type": "invalid_tool_call", "id": "c1", "name": "look", "args": "{", "error": None}
    answers = iter([AIMessage("hm", invalid_tool_calls=[bad]), AIMessage("well"), AIMessage("yes")])
    ours, model = memory(any_store), Scripted(answer=lambda _: next(answers))
    agent: Any = create_agent(model, [look], middleware=[ours], checkpointer=InMemorySaver() if saver else None)
    thread = thread_after(agent, [f"question {n}" for n in range(3)], is_saved=saver)
    assert texts(stored(ours)) == texts(thread)
    assert texts(model.seen[-1]) == texts(thread)[:-1]


def test_what_others_ask_a_model_about_its_answer_was_said_by_nobody() -> None:
    @wrap_model_call
    def checks(request: Any, handler: Any) -> Any:
        found = handler(request)
        return handler(request.override(messages=[*request.messages, *found.result, HumanMessage("Sure?")]))

    ours = memory()
    both: Any = [checks, ours]
    ask(create_agent(Scripted(), middleware=both), "one")
    assert texts(stored(ours)) == ["one", "ok: Sure?"]


def test_a_thread_without_a_mark_has_written_nothing() -> None:
    assert recorded_positions({}, [Message(role="user", content="Where is my bike?")]) == set()


class RecordsLast(BrainMemoryMiddleware):
    """LangGraph sorts what nodes write in one step by their names: this one's comes after the model's."""


RecordsLast.__name__ = "remembers"


@tool(return_direct=True)
def go_on(place: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Ask the model once more, although the result could be returned directly."""
    return Command(goto="model", update={"messages": [ToolMessage(f"on in the {place}", tool_call_id=tool_call_id)]})


@pytest.mark.parametrize("kind", [BrainMemoryMiddleware, RecordsLast])
@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("saver", [True, False])
async def test_b1_one_of_two_parallel_tools_ends_the_run_and_the_other_does_not(
    kind: type[BrainMemoryMiddleware], how: str, *, saver: bool
) -> None:
    def calls_both(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return ok(messages)
        calls = [(name, f"{name}{len(messages)}") for name in ("return_directly", "go_on")]
        return AIMessage("", tool_calls=[{"name": name, "args": {"place": "shed"}, "id": id_} for name, id_ in calls])

    return_directly = tool("return_directly", look.func, return_direct=True, description="Look.")  # type: ignore[attr-defined]
    ours, model = kind(store=MemoryStore(), on_error="raise"), Scripted(answer=calls_both)
    tools: list[Any] = [return_directly, go_on]
    agent: Any = create_agent(model, tools, middleware=[ours], checkpointer=InMemorySaver() if saver else None)
    expected: list[str] = []
    for question in ("one", "two"):
        run_of = {"input": {"messages": [HumanMessage(question)]}, "context": {"user_id": "ada", "session_id": "s"}}
        run_of["config"] = {"configurable": {"thread_id": "s"}}
        if how == "astream":
            assert [part async for part in agent.astream(**run_of)]
        elif how == "stream":
            assert list(agent.stream(**run_of))
        else:
            await (agent.ainvoke(**run_of) if how == "ainvoke" else asyncio.to_thread(agent.invoke, **run_of))
        expected += [question, "", "nothing in the shed", "on in the shed", "ok: on in the shed"]
        assert texts(stored(ours)) == expected
        assert texts(model.seen[-1]) == expected[:-1]
