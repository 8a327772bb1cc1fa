"""BrainMemoryMiddleware where several agents of one graph speak in one session: LG, B1."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, before_model
from langchain.tools import InjectedState
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send

from langmem_adapters import Message
from langmem_adapters.langchain import BrainMemoryMiddleware
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from tests.agents import Scripted, ask, invalid, of, texts


def says(name: str) -> Scripted:
    return Scripted(answer=lambda messages: AIMessage(f"{name} on {messages[-1].text}"))


def said(ours: BrainMemoryMiddleware) -> list[str]:
    return texts(ours.brain("s", user="ada").messages())


def test_what_agents_say_at_once_is_shown_once_and_in_the_order_of_the_thread(any_store: Store) -> None:
    ours = BrainMemoryMiddleware(store=any_store)
    has_recorded = threading.Event()

    def waits(messages: list[BaseMessage]) -> AIMessage:
        assert has_recorded.wait(30)
        return AIMessage(f"a on {messages[-1].text}")

    first: Any = create_agent(Scripted(answer=waits), middleware=[ours])
    second: Any = create_agent(says("b"), middleware=[ours])
    writer = says("w")
    last: Any = create_agent(writer, middleware=[ours])

    def quick(state: MessagesState) -> MessagesState:
        found = second.invoke(state)
        has_recorded.set()
        return {"messages": found["messages"]}

    graph: Any = StateGraph(MessagesState)
    for name, node in (("a", first), ("b", quick), ("w", last)):
        graph.add_node(name, node)
    for ends in ((START, "a"), (START, "b"), (["a", "b"], "w")):
        graph.add_edge(*ends)
    compiled = graph.compile(checkpointer=InMemorySaver())
    for question in ("q1", "q2"):
        has_recorded.clear()
        thread = texts(ask(compiled, question)["messages"])
        assert texts(writer.seen[-1]) == thread[:-1]
    assert said(ours)[:4] == ["q1", "b on q1", "a on q1", "w on b on q1"]
    assert sorted(said(ours)) == sorted(thread)


@pytest.mark.parametrize("has_own_thread", [True, False])
def test_a_question_is_kept_though_the_agent_that_it_was_handed_over_to_summarizes_it_at_once(
    any_store: Store, *, has_own_thread: bool
) -> None:
    ours = BrainMemoryMiddleware(store=any_store, on_error="raise")

    @tool
    def hand_over(
        state: Annotated[Any, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[Any]:
        """Let the expert go on."""
        done = ToolMessage("handed over", tool_call_id=tool_call_id)
        return Command(goto="expert", graph=Command.PARENT, update={"messages": [*state["messages"], done]})

    def calls(messages: list[BaseMessage]) -> AIMessage:
        if messages[-1].text.startswith("fail"):
            raise ConnectionError
        call = {"name": "hand_over", "args": {}, "id": f"call-{messages[-1].text}"}
        return AIMessage(f"on with {messages[-1].text}", tool_calls=[call])

    small = Scripted(answer=lambda _: AIMessage("in short"))
    summarization: Any = SummarizationMiddleware(small, trigger=("messages", 2), keep=("messages", 2))
    expert: Any = create_agent(says("expert"), middleware=[ours, summarization], checkpointer=has_own_thread or None)
    graph: Any = StateGraph(MessagesState)
    graph.add_node("front", create_agent(Scripted(answer=calls), [hand_over], middleware=[ours]))
    graph.add_node("expert", expert)
    compiled = graph.add_edge(START, "front").compile(checkpointer=InMemorySaver())
    for n in range(2):
        with pytest.raises(ConnectionError):
            ask(compiled, f"fail {n}")
        ask(compiled, f"q{n}")
    turns = [[f"fail {n}", f"q{n}", f"on with q{n}", "handed over", "expert on handed over"] for n in range(2)]
    assert said(ours) == turns[0] + turns[1]


def test_what_a_supervisor_says_again_is_kept_though_the_thread_lacks_its_words_to_another_agent() -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore())
    worker: Any = create_agent(says("worker"), middleware=[ours])
    calls = [
        [
            AIMessage("Over to you.", tool_calls=[{"name": "transfer", "args": {}, "id": f"c{n}"}], id=f"call {n}"),
            ToolMessage("Transferred.", tool_call_id=f"c{n}", id=f"result {n}"),
        ]
        for n in range(3)
    ]

    def rounds(state: MessagesState) -> MessagesState:
        thread: list[Any] = list(state["messages"])
        for n in range(3):
            found = worker.invoke({"messages": thread + calls[n]})["messages"]
            thread += [*(calls[n] if n != 1 else []), found[-1]]  # the second one was sent to several agents at once
        return {"messages": thread}

    graph: Any = StateGraph(MessagesState)
    ask(graph.add_node(rounds).add_edge(START, "rounds").compile(), "q")
    assert said(ours) == ["q", *["Over to you.", "Transferred.", "worker on Transferred."] * 3]


def test_what_a_supervisor_says_again_within_a_turn_is_kept_again() -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore())
    worker: Any = create_agent(Scripted(answer=lambda messages: AIMessage(f"done {len(messages)}")), middleware=[ours])
    supervisor = iter(range(3))

    def hand_over(_: MessagesState) -> Command[Any]:
        n = next(supervisor)
        call = AIMessage("Over to you.", tool_calls=[{"name": "transfer", "args": {}, "id": f"call-{n}"}])
        result = ToolMessage("Transferred.", tool_call_id=f"call-{n}")
        return Command(goto="worker", update={"messages": [call, result]})

    graph: Any = StateGraph(MessagesState)
    graph.add_node(hand_over, destinations=("worker",)).add_node("worker", worker)
    graph.add_edge(START, "hand_over").add_conditional_edges(
        "worker", lambda state: "hand_over" if len(state["messages"]) < 10 else "__end__", ["hand_over", "__end__"]
    )
    thread = ask(graph.compile(), "q")["messages"]
    assert said(ours) == texts(thread)
    assert len(thread) == 10


def with_tasks(
    ours: BrainMemoryMiddleware, saver: Any, of_the_writer: Any = None, subject: str = ""
) -> tuple[Any, Scripted]:
    """A graph that gives each worker a task of its own, and all that they said to a writer."""
    writer = says("w")
    worker: Any = create_agent(says("worker"), middleware=[ours])
    last: Any = create_agent(writer, middleware=of_the_writer or [ours])

    def tasks(state: MessagesState) -> list[Send]:
        asked = subject or state["messages"][-1].text
        return [Send("worker", {"messages": [HumanMessage(f"{part} of {asked}")]}) for part in ("half", "rest")]

    graph: Any = StateGraph(MessagesState)
    graph.add_node("worker", worker)
    graph.add_node("writer", last)
    graph.add_conditional_edges(START, tasks, ["worker"])
    graph.add_edge("worker", "writer")
    return graph.compile(checkpointer=saver), writer


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("saver", [True, False])
def test_a_question_of_which_agents_are_given_parts_is_shown_and_kept(
    any_store: Store, mode: str, *, saver: bool
) -> None:
    ours = BrainMemoryMiddleware(store=any_store)
    graph, writer = with_tasks(ours, InMemorySaver() if saver else None)
    for question in ("q1", "q2"):
        turn: Any = {"messages": [HumanMessage(question)]}
        if mode == "sync":
            found = graph.invoke(turn, **of("ada", "s"))
        else:
            found = asyncio.run(graph.ainvoke(turn, **of("ada", "s")))
        thread = texts(found["messages"])
        assert texts(writer.seen[-1])[-5:] == [question, *thread[-5:-1]]
        assert said(ours)[-2:] == [question, thread[-1]]
    shown = texts(writer.seen[-1])
    assert len(shown) == len(set(shown)) == 11
    assert sorted(said(ours)) == sorted([*shown, thread[-1]])


def test_answers_that_are_given_back_without_their_tasks_are_kept_once() -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore())
    worker: Any = create_agent(says("worker"), middleware=[ours])
    writer = says("w")

    def work(state: MessagesState) -> MessagesState:
        return {"messages": worker.invoke(state)["messages"][-1:]}

    def tasks(state: MessagesState) -> list[Send]:
        return [Send("work", {"messages": [f"{part} of {state['messages'][-1].text}"]}) for part in ("half", "rest")]

    graph: Any = StateGraph(MessagesState)
    graph.add_node(work).add_node("writer", create_agent(writer, middleware=[ours]))
    graph.add_conditional_edges(START, tasks, ["work"]).add_edge("work", "writer")
    thread = texts(ask(graph.compile(), "q")["messages"])
    assert len(said(ours)) == len(set(said(ours))) == 6
    assert {*said(ours)} == {"half of q", "rest of q", *thread}
    assert sorted([*texts(writer.seen[-1]), thread[-1]]) == sorted(said(ours))


def test_what_agents_with_threads_of_their_own_pass_on_as_plain_data_is_kept_once(any_store: Store) -> None:
    ours = BrainMemoryMiddleware(store=any_store)
    agents: list[Any] = [create_agent(says(each), middleware=[ours], checkpointer=InMemorySaver()) for each in "ab"]
    thread: list[Any] = []
    for question in ("q1", "q2", "q3"):
        thread.append(HumanMessage(question, id=question).model_dump())
        for agent in agents:
            found = agent.invoke({"messages": thread}, **of("ada", "s"))
            thread = [message.model_dump() for message in found["messages"]]  # as a RemoteGraph gives them back
    assert said(ours) == [message["content"] for message in thread]


@pytest.mark.parametrize("is_plain", [False, True])
def test_tool_calls_and_results_that_were_changed_for_the_next_agent_are_kept_as_they_are(is_plain: bool) -> None:
    def raw_call(amount: int) -> dict[str, Any]:
        return {"id": "c", "type": "function", "function": {"name": "pay", "arguments": f'{{"amount": {amount}}}'}}

    ours = BrainMemoryMiddleware(store=MemoryStore())
    one, other = [create_agent(says(each), middleware=[ours], checkpointer=InMemorySaver()) for each in "ab"]
    thread = one.invoke({"messages": [HumanMessage("q1", id="q1")]}, **of("ada", "s"))["messages"]
    thread = other.invoke({"messages": thread}, **of("ada", "s"))["messages"]
    call = AIMessage("", id="call", tool_calls=[{"name": "pay", "args": {"amount": 1}, "id": "c"}])
    call.additional_kwargs["tool_calls"] = [raw_call(1)]
    result = ToolMessage("done", id="result", tool_call_id="c", artifact={"paid": 1}, status="error")
    thread += [HumanMessage("q2", id="q2"), call, result]
    thread = one.invoke({"messages": thread}, **of("ada", "s"))["messages"]
    call.tool_calls[0]["args"] = {"amount": 2}
    call.additional_kwargs["tool_calls"] = [raw_call(2)]
    result = result.model_copy(update={"artifact": {"paid": 2}, "status": "success"})
    thread = [{"call": call, "result": result}.get(str(message.id), message) for message in thread]
    other.invoke({"messages": [message.model_dump() if is_plain else message for message in thread]}, **of("ada", "s"))
    kept = ours.brain("s", user="ada").messages()
    calls = [message for message in kept if message.tool_calls]
    assert [message.tool_calls[0].args for message in calls] == [{"amount": 1}, {"amount": 2}]
    raw = [message.host["langchain"]["additional_kwargs"]["tool_calls"] for message in calls]
    assert raw == [[raw_call(1)], [raw_call(2)]]
    fields = [message.host["langchain"] for message in kept if message.role == "tool"]
    assert fields == [{"artifact": {"paid": 1}, "status": "error"}, {"artifact": {"paid": 2}}]
    assert texts(kept).count("a on done") == 1


def test_a_question_that_an_agent_hands_on_in_other_words_is_shown_and_kept() -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore())

    @tool
    def hand_on(
        task: str, state: Annotated[Any, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[Any]:
        """Have the worker do it."""
        done = ToolMessage("handed on", tool_call_id=tool_call_id, name="hand_on")
        own = [*state["messages"], done]
        return Command(
            graph=Command.PARENT, goto=Send("worker", {"messages": [HumanMessage(task)]}), update={"messages": own}
        )

    def leads(messages: list[BaseMessage]) -> AIMessage:
        asked = messages[-1]
        if not isinstance(asked, HumanMessage):
            return AIMessage(f"done: {asked.text}")
        return AIMessage("", tool_calls=[{"name": "hand_on", "args": {"task": f"do {asked.text}"}, "id": asked.text}])

    leader = Scripted(answer=leads)
    lead: Any = create_agent(leader, [hand_on], middleware=[ours])
    worker: Any = create_agent(says("worker"), middleware=[ours])
    graph: Any = StateGraph(MessagesState)
    graph.add_node("lead", lead, destinations=("worker",))
    graph.add_node("worker", worker)
    graph.add_edge(START, "lead")
    graph.add_edge("worker", "lead")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for question in ("q1", "q2"):
        thread = texts(ask(compiled, question)["messages"])
        assert texts(leader.seen[-1])[-5:] == [question, *thread[-5:-1]]
    assert all(not invalid(shown) for shown in leader.seen)
    assert sorted(said(ours)) == sorted(thread)


def each_is_shown_its_question_and_all_is_kept_once(ours: BrainMemoryMiddleware, turns: int) -> None:
    graph, writer = with_tasks(ours, InMemorySaver())
    for n in range(turns):
        thread = texts(ask(graph, f"q{n}")["messages"])
        assert f"q{n}" in texts(writer.seen[-1])
        memory: Any = ours.brain("s", user="ada").long_term
        assert sorted([*said(ours), *(one.message.text for one in memory.all())]) == sorted(thread)


def test_in_a_long_session_too_all_is_kept_once(any_store: Store) -> None:
    ours = BrainMemoryMiddleware(store=any_store, memory_k=7)
    each_is_shown_its_question_and_all_is_kept_once(ours, 6)


def redacted(message: BaseMessage) -> BaseMessage:
    return message.model_copy(update={"content": message.text.replace("ada@example.com", "[email]")})


@pytest.mark.parametrize("first", [True, False])
def test_what_a_filter_takes_out_of_a_question_that_was_passed_over_is_not_kept(*, first: bool) -> None:
    ours = BrainMemoryMiddleware(store=MemoryStore())
    filters: Any = before_model(lambda state, _: {"messages": [redacted(one) for one in state["messages"]]})
    graph, writer = with_tasks(ours, InMemorySaver(), [filters, ours] if first else [ours, filters], "q")
    ask(graph, "q of ada@example.com")
    assert "q of [email]" in texts(writer.seen[-1])
    assert said(ours)[-2:] == ["q of [email]", "w on worker on rest of q"]
    assert len(said(ours)) == 6


@pytest.mark.parametrize("long_term", [True, False])
def test_a_question_is_shown_and_kept_though_all_else_of_its_thread_is_summarized(
    any_store: Store, *, long_term: bool
) -> None:
    ours = BrainMemoryMiddleware(
        store=any_store, model=lambda _: "in short", summarize_at=30, summarize_in="inline", long_term=long_term
    )
    graph, writer = with_tasks(ours, InMemorySaver())
    for n in range(6):
        thread = texts(ask(graph, f"q{n}")["messages"])
        assert f"q{n}" in texts(writer.seen[-1])
        memory: Any = ours.brain("s", user="ada").long_term
        left = [one.message.text for one in memory.all()] if memory else []
        assert sorted([*said(ours), *left]) == sorted(thread)
    assert ours.stats()["summaries"] > 1


class Parts:
    """An agent that is given other parts of one conversation, in which each message has an id of what it says."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.ours = BrainMemoryMiddleware(store=store, **options)
        self.model = Scripted(
            answer=lambda messages: AIMessage(f"on {messages[-1].text}", id=f"on {messages[-1].text}")
        )
        self.agent: Any = create_agent(self.model, middleware=[self.ours])

    def hear(self, *given: str) -> list[str]:
        messages = [AIMessage(one, id=one) if one.startswith("on ") else HumanMessage(one, id=one) for one in given]
        self.agent.invoke({"messages": messages}, **of("ada", "s"))
        return said(self.ours)


def test_what_was_deleted_of_what_was_passed_over_does_not_come_back(any_store: Store) -> None:
    chat = Parts(any_store)
    chat.hear("q1")
    chat.hear("task")
    assert chat.hear("q1", "on q1", "q2", "task", "on task")[-2:] == ["q2", "on on task"]
    assert chat.ours.brain("s", user="ada").delete(["q2"]) == 1
    assert "q2" not in chat.hear("q1", "on q1", "q2", "task", "on task", "q3")
    assert "q2" not in texts(chat.model.seen[-1])


def turns(*numbers: int) -> list[str]:
    return [f"{on}q{n}" for n in numbers for on in ("", "on ")]


def test_what_has_left_the_session_is_not_taken_for_passed_over(any_store: Store) -> None:
    chat = Parts(any_store, memory_k=4)
    for n in (1, 2, 3, 4):
        chat.hear(*turns(*range(1, n)), f"q{n}")
    assert chat.hear(*turns(2, 3, 4), "q5") == turns(4, 5)


def test_an_answer_that_was_edited_is_not_taken_for_passed_over() -> None:
    chat = Parts(MemoryStore())
    for n in (1, 2, 3):
        chat.hear(*turns(*range(1, n)), f"q{n}")
    assert chat.hear("q2", "on q2, edited", "q3", "on q3", "q4") == turns(1, 2, 3, 4)


def test_a_summary_is_nothing_that_was_passed_over() -> None:
    chat = Parts(MemoryStore())
    chat.hear("q1")
    summary = HumanMessage("in short", additional_kwargs={"lc_source": "summarization"})
    told: Any = [summary, HumanMessage("q1", id="q1"), AIMessage("on q1", id="on q1"), HumanMessage("q2", id="q2")]
    chat.agent.invoke({"messages": told}, **of("ada", "s"))
    assert said(chat.ours) == turns(1, 2)
    assert chat.ours.stats()["recorded"] == 4


def test_a_task_that_has_left_before_what_it_is_a_part_of_does_not_come_back(any_store: Store) -> None:
    chat = Parts(any_store, memory_k=6)
    chat.hear("t1")
    chat.hear("t2")
    turn = ["q1", "t1", "on t1", "t2", "on t2"]
    chat.hear(*turn)
    assert chat.hear(*turn, "on on t2", "q2") == ["t2", "on t2", "q1", "on on t2", "q2", "on q2"]
    assert chat.hear(*turn, "on on t2", "q2", "on q2", "q3") == ["q1", "on on t2", "q2", "on q2", "q3", "on q3"]


def test_what_is_older_than_a_session_that_was_filled_elsewhere_stays_away() -> None:
    chat = Parts(MemoryStore())
    brain = chat.ours.brain("s", user="ada")
    brain.add_messages([Message(role="user", content="q1", id="q1"), Message(role="assistant", content="on q1")])
    assert chat.hear("q0", "on q0", "q1", "on q1", "q2") == ["q1", "on q1", "q2", "on q2"]


def test_what_a_thread_has_not_recorded_with_what_was_behind_it_stays_away() -> None:
    chat = Parts(MemoryStore())
    brain = chat.ours.brain("s", user="ada")
    brain.add_messages([Message(role="user", content="q1", id="q1"), Message(role="assistant", content="on q1")])
    assert chat.hear("task")[-2:] == ["task", "on task"]
    assert chat.hear("q0", "q1", "on q1", "task", "on task", "q2") == [*turns(1), "task", "on task", *turns(2)]
    brain.add_messages([Message(role="user", content="q4", id="q4")])
    assert "older" not in chat.hear("older", "task", "on task", "q4", "q5")


def test_what_left_longer_ago_than_a_session_remembers_stays_away() -> None:
    chat = Parts(MemoryStore(), memory_k=2)
    many = turns(*range(150))
    chat.hear(*many, "q150")
    assert chat.hear(*many[2:], *turns(150), "q151") == turns(151)
    assert chat.ours.stats()["recorded"] == 304


def test_a_redactor_does_not_make_something_passed_over_of_what_has_left() -> None:
    chat = Parts(SealedStore(MemoryStore(), redactor=lambda text: text.replace("4111", "[card]")), memory_k=4)
    asked = ["4111 1", "on 4111 1", "q2", "on q2", "q3", "on q3"]
    for n in (1, 3, 5):
        chat.hear("q0", "on q0", *asked[:n])
    assert chat.hear(*asked, "q4") == turns(3, 4)
    assert chat.ours.stats()["recorded"] == 10


@pytest.mark.parametrize("summarize_at", range(10, 60, 7))
def test_a_question_is_kept_wherever_a_summary_ends(summarize_at: int) -> None:
    ours = BrainMemoryMiddleware(
        store=MemoryStore(), model=lambda _: "in short", summarize_at=summarize_at, summarize_in="inline"
    )
    each_is_shown_its_question_and_all_is_kept_once(ours, 4)
