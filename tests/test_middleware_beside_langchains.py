"""BrainMemoryMiddleware beside the middlewares that LangChain brings: a model is shown what it is shown without it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    ModelCallLimitMiddleware,
    ModelRetryMiddleware,
    PIIDetectionError,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langmem_adapters.langchain import BrainMemoryMiddleware, from_message
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, ask, invalid, look, of, texts


def answer(messages: list[BaseMessage]) -> AIMessage:
    """Looks wherever a question says so; else it says again what it was told last."""
    last = messages[-1]
    if isinstance(last, HumanMessage):
        places = [word for word in last.text.split() if word in {"shed", "barn", "ada@example.com"}]
        calls = [{"name": "look", "args": {"place": place}, "id": f"{place} {last.id}"} for place in places]
        return AIMessage("", tool_calls=calls) if calls else AIMessage(f"ok: {last.text}")
    return AIMessage(f"found: {last.text}")


QUESTIONS = ["hi 0", "look in the shed 1", "I am bob@example.com 2", "in barn and shed 3", "ada@example.com 4", "bye 5"]


def summarization(keep: int = 4, trigger: int = 8) -> Any:
    small = Scripted(answer=lambda _: AIMessage("SUMMARY"))
    return SummarizationMiddleware(small, trigger=("messages", trigger), keep=("messages", keep))


Others = Callable[[], list[Any]]
EMULATED = Scripted(answer=lambda _: AIMessage("EMULATED"))
OTHERS: dict[str, Others] = {
    "summarization": lambda: [summarization()],
    "summarization in the midst of a run": lambda: [summarization(1, 2)],
    "pii": lambda: [PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True)],
    "pii, masked": lambda: [PIIMiddleware("email", strategy="mask")],
    "both": lambda: [PIIMiddleware("email", apply_to_tool_results=True), summarization()],
    "context editing": lambda: [ContextEditingMiddleware(edits=[ClearToolUsesEdit(5, keep=0, clear_tool_inputs=True)])],
    "approval": lambda: [HumanInTheLoopMiddleware({"look": True})],
    "todo list": lambda: [TodoListMiddleware()],
    "model calls": lambda: [ModelCallLimitMiddleware(run_limit=1)],
    "tool calls": lambda: [ToolCallLimitMiddleware(run_limit=1)],
    "tool calls, end": lambda: [
        ToolCallLimitMiddleware(thread_limit=3, exit_behavior="end")
    ],  # LangChain 1.3 can end at one call only
    "retries": lambda: [ModelRetryMiddleware(), ToolRetryMiddleware()],
    "emulator": lambda: [LLMToolEmulator(model=EMULATED)],
}


class Client(NamedTuple):
    """What a client sends: the whole thread, or what is new to a saver; in what form."""

    saver: bool
    whole: bool
    ids: bool = True


SAVER, WHOLE, WITHOUT_IDS = Client(True, False), Client(False, True), Client(False, True, ids=False)


class Chat:
    """An agent with these middlewares, and a client of it."""

    def __init__(self, middlewares: list[Any], client: Client) -> None:
        self.model = Scripted(answer=answer)
        saver = InMemorySaver() if client.saver else None
        self.agent: Any = create_agent(self.model, [look], middleware=middlewares, checkpointer=saver)
        self.client = client
        self.thread: list[BaseMessage] = []

    async def ask(self, question: str, *, waits: bool) -> list[list[str]]:
        """What the model was shown in each call."""
        before = len(self.model.seen)
        turn: Any = {"messages": [*(self.thread if self.client.whole else []), HumanMessage(question)]}
        while turn:
            found = (
                self.agent.invoke(turn, **of("ada", "s")) if waits else await self.agent.ainvoke(turn, **of("ada", "s"))
            )
            asked = found.get("__interrupt__") or ()
            decisions = [{"type": "approve"} for one in asked for _ in one.value["action_requests"]]
            turn = Command(resume={"decisions": decisions}) if decisions else None
        self.thread = found["messages"]
        if not self.client.ids:
            self.thread = [message.model_copy(update={"id": None}) for message in self.thread]
        return [said(shown) for shown in self.model.seen[before:]]


def said(messages: list[BaseMessage]) -> list[str]:
    rest = [message for message in messages if not isinstance(message, SystemMessage)]
    calls = [[call["args"] for call in getattr(message, "tool_calls", [])] for message in rest]
    return [f"{message.type} {message.text} {more or ''}" for message, more in zip(rest, calls, strict=True)]


@pytest.mark.parametrize("first", [True, False], ids=["ours first", "ours last"])
@pytest.mark.parametrize(
    ("others", "client"),
    [
        (others, client)
        for others in OTHERS
        for client in (SAVER, WHOLE, WITHOUT_IDS)
        if client.saver or others != "approval"  # LangGraph resumes only what was saved
    ],
)
async def test_a_model_is_shown_what_it_is_shown_without_the_memory(
    others: str, client: Client, *, first: bool
) -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore(), on_error="raise")
    beside = OTHERS[others]()
    chat, without = Chat([ours, *beside] if first else [*beside, ours], client), Chat(OTHERS[others](), client)
    waits = first or (others == "approval" and sys.version_info < (3, 11))  # no coroutine can be interrupted there
    for question in QUESTIONS:
        assert await chat.ask(question, waits=waits) == await without.ask(question, waits=True)
        assert said(chat.thread) == said(without.thread)
    stored = [from_message(message) for message in ours.brain("s", user="ada").messages()]
    assert not invalid(stored)
    assert [message.text[-1] for message in stored if isinstance(message, HumanMessage)] == list("012345")
    if "SUMMARY" not in chat.thread[0].text:
        assert said(stored) == said(chat.thread)


async def test_what_others_said_in_the_session_is_shown_beside_the_summary_of_a_thread(any_store: Store) -> None:
    ours = BrainMemoryMiddleware(store=any_store, on_error="raise")
    ours.brain("s", user="ada").add_talk("said elsewhere")
    chat, without = Chat([ours, summarization()], WHOLE), Chat([summarization()], WHOLE)
    for question in QUESTIONS:
        for shown, expected in zip(
            await chat.ask(question, waits=True), await without.ask(question, waits=True), strict=True
        ):
            assert [text for text in shown if text != "human said elsewhere "] == expected
            assert len(shown) == len(expected) + 1


def test_calls_that_a_client_does_not_show_go_with_what_is_summarized() -> None:
    ours, model = BrainMemoryMiddleware(store=MemoryStore()), Scripted(answer=answer)
    agent: Any = create_agent(model, [look], middleware=[ours, summarization(2, 5)])
    thread: list[Any] = []
    for question in QUESTIONS[:4]:
        thread.append(("user", question))
        thread.append(("assistant", agent.invoke({"messages": thread}, **of("ada", "s"))["messages"][-1].text))
    assert texts(model.seen[-2])[1:] == [f"ok: {QUESTIONS[2]}", QUESTIONS[3]]


def test_a_question_of_a_run_that_failed_is_kept_when_the_next_run_summarizes_it() -> None:
    def answer_or_fail(messages: list[BaseMessage]) -> AIMessage:
        if messages[-1].text == "three":
            raise ConnectionError
        return answer(messages)

    ours, model = BrainMemoryMiddleware(store=MemoryStore(), on_error="raise"), Scripted(answer=answer_or_fail)
    agent = create_agent(model, middleware=[ours, summarization(1, 6)], checkpointer=InMemorySaver())
    ask(agent, "one")
    ask(agent, "two")
    with pytest.raises(ConnectionError):
        ask(agent, "three")
    for question in ("four", "five"):
        ask(agent, question)
    stored = texts(ours.brain("s", user="ada").messages())
    assert stored == ["one", "ok: one", "two", "ok: two", "three", "four", "ok: four", "five", "ok: five"]
    assert [text.rpartition("\n")[2] for text in texts(model.seen[-1])] == ["SUMMARY", "four", "ok: four", "five"]


@pytest.mark.parametrize("is_taken_out", [True, False])
@pytest.mark.parametrize("refused", ["I am bob@example.com", "say bob@example.com"])
def test_what_is_refused_is_kept_with_the_next_run_unless_it_is_taken_out(refused: str, *, is_taken_out: bool) -> None:
    ours, model, where = BrainMemoryMiddleware(store=MemoryStore()), Scripted(answer=answer), of("ada", "s")["config"]
    is_answer = refused.startswith("say")
    blocks = PIIMiddleware("email", strategy="block", apply_to_input=not is_answer, apply_to_output=is_answer)
    agent: Any = create_agent(model, middleware=[ours, blocks], checkpointer=InMemorySaver())
    with pytest.raises(PIIDetectionError):
        ask(agent, refused)
    if is_taken_out:
        last = agent.get_state(where).values["messages"][-1]
        agent.update_state(where, {"messages": [RemoveMessage(id=last.id)]})
    ask(agent, "two")
    question, refused_answer = [refused] * (is_answer or not is_taken_out), [f"ok: {refused}"] * is_answer
    thread = [*question, *([] if is_taken_out else refused_answer), "two"]
    assert texts(model.seen[-1]) == thread
    assert texts(ours.brain("s", user="ada").messages()) == [*thread, "ok: two"]


def test_a_question_that_is_asked_and_summarized_twice_is_kept_twice_though_calls_have_the_same_ids(
    any_store: Store,
) -> None:
    """Some providers number the calls of each answer anew."""

    def look_once(messages: list[BaseMessage]) -> AIMessage:
        numbered = AIMessage("", tool_calls=[{"name": "look", "args": {"place": "shed"}, "id": "call_0"}])
        return numbered if isinstance(messages[-1], HumanMessage) else answer(messages)

    ours = BrainMemoryMiddleware(store=any_store, on_error="raise")
    middlewares = [ours, summarization(2, 3)]
    agent = create_agent(Scripted(answer=look_once), [look], middleware=middlewares, checkpointer=InMemorySaver())
    for question in ("one", "where?", "where?"):
        ask(agent, question)
    turn = ["", "nothing in the shed", "found: nothing in the shed"]
    assert texts(ours.brain("s", user="ada").messages()) == ["one", *turn, "where?", *turn, "where?", *turn]
