"""record_turn: a question and its answer are stored together, also when the turn does not come to its end (A9, B1)."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, ConfigurationError, Message, StoreUnavailable
from langmem_adapters.conversation.turn import Turn
from langmem_adapters.model import ToolCall
from langmem_adapters.protocols import Appended, Store
from langmem_adapters.stores.memory import MemoryStore
from tests.loops import cancel_as_the_loop_ends
from tests.waiting import until

Told = list[tuple[str, str, bool]]


def told(brain: BrainMemory) -> Told:
    """Role, text and mark of each stored message."""
    return [(m.role, m.text, m.metadata.get("interrupted", False)) for m in brain.messages()]


def calls(*ids: str, text: str = "") -> Message:
    return Message(role="assistant", content=text, tool_calls=[ToolCall(id=id_, name="look") for id_ in ids])


def result(id_: str) -> Message:
    return Message(role="tool", content=f"result of {id_}", tool_call_id=id_)


def assert_valid(messages: Sequence[Message]) -> None:
    """What every provider asks of a conversation."""
    assert messages[0].role == "user"
    open_calls: set[str | None] = set()
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id in open_calls
            open_calls.discard(message.tool_call_id)
            continue
        assert not open_calls
        assert message.text or message.tool_calls
        open_calls = {call.id for call in message.tool_calls}
    assert not open_calls


def interrupt(brain: BrainMemory, pieces: Sequence[str | Message]) -> None:
    with brain.record_turn("Look.") as turn:
        for piece in pieces:
            turn.add(piece)
        turn.watch(["more"])


class _Counted(MemoryStore):
    """Counts appends; fails or waits when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.appends = 0
        self.fails = False
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        self.started.set()
        assert self.go_on.wait(120)
        if self.fails:
            raise StoreUnavailable("it is down")
        self.appends += 1
        return super().append(*args, **kwargs)


@pytest.fixture
def counted() -> _Counted:
    return _Counted()


@pytest.fixture
def brain(counted: _Counted) -> BrainMemory:
    return BrainMemory(counted, "session")


# --- a turn that comes to its end


def test_a_turn_is_one_append_of_question_and_answer(any_store: Store) -> None:
    brain = BrainMemory(any_store, "session")
    with brain.record_turn("Where is my bike?") as turn:
        assert "".join(turn.watch(["In ", "the ", "shed."])) == "In the shed."
        assert brain.count() == 0
    assert told(brain) == [("user", "Where is my bike?", False), ("assistant", "In the shed.", False)]


def test_one_append(brain: BrainMemory, counted: _Counted) -> None:
    with brain.record_turn(Message(role="user", content="Look.", name="Ada")) as turn:
        for piece in (calls("c1"), result("c1"), "It is ", "there."):
            turn.add(piece)
    assert counted.appends == 1
    assert [m.role for m in brain.messages()] == ["user", "assistant", "tool", "assistant"]
    assert brain.messages()[0].name == "Ada"
    assert brain.messages()[-1].text == "It is there."


def test_texts_between_messages_stay_between_them(brain: BrainMemory) -> None:
    with brain.record_turn("Look.") as turn:
        for piece in ("I ", "look.", calls("c1"), result("c1"), "There."):
            turn.add(piece)
    assert [m.text for m in brain.messages()] == ["Look.", "I look.", "", "result of c1", "There."]


async def test_async_streams_and_blocks(brain: BrainMemory) -> None:
    async def stream() -> AsyncIterator[str]:
        for piece in ("In ", "the ", "shed."):
            yield piece

    async with brain.record_turn("Where is my bike?") as turn:
        assert [piece async for piece in turn.watch(stream())] == ["In ", "the ", "shed."]
    assert told(brain) == [("user", "Where is my bike?", False), ("assistant", "In the shed.", False)]


def test_an_empty_stream_leaves_the_question_alone(brain: BrainMemory) -> None:
    with brain.record_turn("Hello?") as turn:
        assert list(turn.watch([])) == []
    assert told(brain) == [("user", "Hello?", False)]


def test_a_call_that_is_still_to_be_answered_stays_at_a_normal_end(brain: BrainMemory) -> None:
    with brain.record_turn("Look.") as turn:
        turn.add(calls("c1"))
    brain.add_messages([result("c1")])
    assert [m.role for m in brain.window()] == ["user", "assistant", "tool"]


# --- a turn that does not


def _break(brain: BrainMemory, stream: Iterator[str]) -> None:
    with brain.record_turn("Go on?") as turn:
        for n, _ in enumerate(turn.watch(stream)):
            if n == 2:
                break


def _leave_the_stream_alone(brain: BrainMemory, stream: Iterator[str]) -> None:
    with brain.record_turn("Go on?") as turn:
        turn.watch(stream)
        for piece in "abc":
            turn.add(piece)


def _swallow(brain: BrainMemory, stream: Iterator[str]) -> None:
    with brain.record_turn("Go on?") as turn, suppress(ZeroDivisionError):
        for n, _ in enumerate(turn.watch(stream)):
            assert 1 / (2 - n)


def _close_a_generator(brain: BrainMemory, stream: Iterator[str]) -> None:
    def web_response() -> Iterator[str]:
        with brain.record_turn("Go on?") as turn:
            yield from turn.watch(stream)

    response = web_response()
    assert [next(response) for _ in range(3)] == ["a", "b", "c"]
    response.close()  # type: ignore[attr-defined]  # it is a generator


@pytest.mark.parametrize("leave", [_break, _leave_the_stream_alone, _swallow, _close_a_generator])
def test_a9_what_was_said_is_kept_and_marked(
    leave: Callable[[BrainMemory, Iterator[str]], None], brain: BrainMemory, counted: _Counted
) -> None:
    leave(brain, iter("abcdef"))
    assert told(brain) == [("user", "Go on?", False), ("assistant", "abc", True)]
    assert counted.appends == 1


@pytest.mark.parametrize("error", [ValueError("the model broke"), KeyboardInterrupt(), SystemExit(1)])
def test_a9_the_exception_goes_on(error: BaseException, any_store: Store) -> None:
    def stream() -> Iterator[str]:
        yield from "abc"
        raise error

    brain = BrainMemory(any_store, "session")
    with pytest.raises(type(error)) as caught, brain.record_turn("Go on?") as turn:
        list(turn.watch(stream()))
    assert caught.value is error
    assert told(brain) == [("user", "Go on?", False), ("assistant", "abc", True)]


def test_a9_without_an_answer_the_question_is_marked(brain: BrainMemory) -> None:
    with pytest.raises(ValueError, match="at once"), brain.record_turn("Go on?"):
        raise ValueError("at once")
    assert told(brain) == [("user", "Go on?", True)]


async def test_a9_cancellation_is_stored(any_store: Store) -> None:
    said = asyncio.Event()

    async def stream() -> AsyncIterator[str]:
        yield "a"
        yield "b"
        said.set()
        await asyncio.Event().wait()

    brain = BrainMemory(any_store, "session")

    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            async for _ in turn.watch(stream()):
                pass

    task = asyncio.create_task(turn())
    await said.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told(brain) == [("user", "Go on?", False), ("assistant", "ab", True)]


@pytest.mark.parametrize("fails", [False, True])
async def test_a9_a_write_outlives_any_number_of_cancellations(
    brain: BrainMemory, counted: _Counted, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            turn.add("Yes.")

    counted.go_on.clear()
    counted.fails = fails
    task = asyncio.create_task(turn())
    await asyncio.to_thread(counted.started.wait, 10)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    counted.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told(brain) == ([] if fails else [("user", "Go on?", False), ("assistant", "Yes.", False)])
    assert ("could not be stored" in caplog.text) == fails


@pytest.mark.parametrize("rounds", range(6))
def test_a9_a_loop_that_ends_and_cancels_all_tasks_leaves_no_turn_out(any_store: Store, rounds: int) -> None:
    """As where a server cancels its requests, and asyncio then all that is left, the write of a turn too."""
    brain = BrainMemory(any_store, "session")

    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            turn.add("Well")
            await asyncio.Event().wait()

    asyncio.run(cancel_as_the_loop_ends(turn(), rounds))
    assert told(brain) == [("user", "Go on?", False), ("assistant", "Well", True)]


async def test_a9_a_write_that_is_made_again_is_there_once(brain: BrainMemory, counted: _Counted) -> None:
    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            turn.add("Yes.")

    counted.go_on.clear()
    task = asyncio.create_task(turn())
    await asyncio.to_thread(counted.started.wait, 10)
    for each in asyncio.all_tasks() - {asyncio.current_task()}:
        each.cancel()
    counted.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    until(lambda: counted.appends == 2)  # the first was under way
    assert told(brain) == [("user", "Go on?", False), ("assistant", "Yes.", False)]


def about_to_summarize(model: Callable[[str], Awaitable[str]]) -> BrainMemory:
    """A session of which the next message leaves so much that this model is asked."""
    brain = BrainMemory(MemoryStore(), "session", model=model, summarize_at=20, summarize_in="inline")
    BrainMemory(brain.store, "session").add_messages([Message(role="user", content="Well. " * 50)] * 5)
    return brain


@pytest.mark.parametrize("leaves", [False, True])
async def test_a9_a_write_that_is_cancelled_from_within_is_not_made_for_ever(leaves: bool) -> None:
    """As by a model that summarises, and whose own client ends its call in this way."""
    asked = 0

    async def model(_: str) -> str:
        nonlocal asked
        asked += 1
        if asked < 10:
            raise asyncio.CancelledError
        return "They talk."

    brain = about_to_summarize(model)

    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            turn.add("Yes.")
            if leaves:
                await asyncio.Event().wait()

    task = asyncio.create_task(turn())
    await asyncio.sleep(0)
    if leaves:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asked == 1
    assert told(brain)[5:] == [("user", "Go on?", False), ("assistant", "Yes.", leaves)]


async def test_a9_a_write_that_is_cancelled_from_within_as_well_is_made_once_more_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked, begun, release = 0, asyncio.Event(), asyncio.Event()

    async def model(_: str) -> str:
        nonlocal asked
        asked += 1
        begun.set()
        await release.wait()
        if asked < 10:
            raise asyncio.CancelledError
        return "They talk."

    brain = about_to_summarize(model)

    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            turn.add("Yes.")

    task = asyncio.create_task(turn())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asked == 2
    assert "a turn that was cancelled could not be stored" in caplog.text


def test_a9_a_generator_whose_loop_is_closed_leaves_its_turn(any_store: Store) -> None:
    """As Streamlit does, which reads it on a loop of its own, when a click comes in the middle."""
    brain = BrainMemory(any_store, "session")

    async def answer() -> AsyncIterator[str]:
        async with brain.record_turn("Go on?") as turn:
            for piece in turn.watch(["a", "b"]):
                yield piece

    loop, pieces = asyncio.new_event_loop(), answer()
    assert loop.run_until_complete(anext(pieces)) == "a"
    loop.close()
    del pieces
    gc.collect()
    assert told(brain) == [("user", "Go on?", False), ("assistant", "a", True)]


async def test_a9_a_timeout_is_a_timeout(brain: BrainMemory) -> None:
    async def turn() -> None:
        async with brain.record_turn("Go on?") as turn:
            turn.add("Well")
            await asyncio.Event().wait()

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(turn(), 0.01)
    assert told(brain) == [("user", "Go on?", False), ("assistant", "Well", True)]


# --- tool calls


def test_b1_calls_without_a_result_are_dropped(brain: BrainMemory) -> None:
    interrupt(brain, [calls("c1", "c2", text="I look."), result("c1"), calls("c3")])
    assert told(brain) == [("user", "Look.", False), ("assistant", "I look.", False), ("tool", "result of c1", True)]
    assert [call.id for call in brain.messages()[1].tool_calls] == ["c1"]
    brain.add_talk("Well?")
    assert_valid(brain.window())


def test_b1_an_answer_that_is_nothing_but_an_open_call_or_a_thought_is_dropped(brain: BrainMemory) -> None:
    thought = Message(role="assistant", content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": ""}])
    with_text = Message(role="assistant", content=[{"type": "reasoning", "text": "hm"}])
    for piece in (calls("c1"), thought, with_text):
        interrupt(brain, [piece])
    assert told(brain) == [("user", "Look.", True)] * 3


def test_b1_of_an_interrupted_answer_an_empty_result_stays_and_an_open_call_without_an_id_goes(
    brain: BrainMemory,
) -> None:
    nameless = Message(role="assistant", content="And there.", tool_calls=[ToolCall(name="look")])
    interrupt(brain, [calls("c1"), Message(role="tool", tool_call_id="c1"), nameless])
    assert [(m.role, [call.id for call in m.tool_calls]) for m in brain.messages()] == [
        ("user", []),
        ("assistant", ["c1"]),
        ("tool", []),
        ("assistant", []),
    ]


def test_b1_thoughts_stay_before_a_call_that_was_answered_and_behind_no_word(brain: BrainMemory) -> None:
    """OpenAI refuses a call without the thought that led to it."""
    thought: list[str | dict[Any, Any]] = [{"type": "reasoning", "id": "rs_1"}]
    asked = calls("c1").model_copy(update={"content": thought})
    interrupt(brain, [asked, result("c1"), Message(role="assistant", content=["There.", *thought])])
    assert [m.content for m in brain.messages() if m.role == "assistant"] == [thought, ["There."]]


@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking", "reasoning", "reasoning_content"])
def test_b1_thoughts_behind_the_last_word_of_an_interrupted_answer_are_dropped(brain: BrainMemory, kind: str) -> None:
    """Anthropic refuses an answer that ends with one, or has one whose signature did not come; so does OpenAI."""
    said: list[str | dict[Any, Any]] = [
        {"type": kind, "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "I look."},
    ]
    thought: list[str | dict[Any, Any]] = [{"type": kind, "thinking": "In the"}, {"type": "text", "text": ""}]
    asked, again = (
        calls(id_).model_copy(update={"content": [*said, *thought[:1], {"type": "tool_use", "id": id_}]})
        for id_ in ("c1", "c2")
    )
    interrupt(brain, [asked, result("c1"), again])
    interrupt(brain, [Message(role="assistant", content=[*said, *thought])])
    interrupt(brain, [Message(role="assistant", content=thought)])
    contents = [message.content for message in brain.messages() if message.role == "assistant"]
    assert contents == [asked.content, said, said]


def test_b1_a_call_whose_arguments_cannot_be_read_counts_as_one(brain: BrainMemory) -> None:
    """Its result stays with it; without one it is dropped."""
    calls = [{"type": "invalid_tool_call", "id": id_, "name": "look", "args": "{", "error": "no JSON"} for id_ in "ab"]
    asked = [Message(role="assistant", host={"langchain": {"invalid_tool_calls": [call]}}) for call in calls]
    with suppress(OSError), brain.record_turn("Where is my bike?") as turn:
        turn.add(asked[0])
        turn.add(Message(role="tool", content="no JSON", tool_call_id="a"))
        turn.add(asked[1])
        raise OSError
    assert [message.role for message in brain.messages()] == ["user", "assistant", "tool"]
    assert brain.messages()[1].host == asked[0].host


def test_a_picture_is_kept(brain: BrainMemory) -> None:
    picture = Message(role="assistant", content=[{"type": "image", "url": "https://example.org/x.png"}])
    interrupt(brain, [picture])
    assert brain.messages()[-1].content == picture.content


@st.composite
def _answers(draw: st.DrawFn) -> list[str | Message]:
    pieces: list[str | Message] = []
    for step in range(draw(st.integers(0, 4))):
        ids = [f"c{step}{n}" for n in range(draw(st.integers(1, 3)))]
        pieces.append(calls(*ids, text=draw(st.sampled_from(["", "I look."]))))
        pieces += [result(id_) for id_ in draw(st.permutations(ids))]
    return pieces + draw(st.lists(st.sampled_from(["a", "b ", ""]), max_size=3))


@given(_answers(), st.data())
def test_b1_wherever_a_turn_is_cut_the_next_call_is_valid(answer: list[str | Message], data: st.DataObject) -> None:
    brain = BrainMemory(MemoryStore(), "session")
    cut = data.draw(st.integers(0, len(answer)))
    interrupt(brain, answer[:cut])
    stored = brain.messages()
    assert_valid(stored)
    assert [m.metadata.get("interrupted", False) for m in stored] == [False] * (len(stored) - 1) + [True]
    said = "".join(piece for piece in answer[:cut] if isinstance(piece, str)).strip()
    assert not said or stored[-1].text.strip() == said
    results = {piece.tool_call_id for piece in answer[:cut] if isinstance(piece, Message) and piece.role == "tool"}
    assert {call.id for message in stored for call in message.tool_calls} == results
    brain.add_talk("Well?")
    assert_valid(brain.window())


# --- what goes wrong


def test_a_store_that_fails_at_a_normal_end_raises(brain: BrainMemory, counted: _Counted) -> None:
    counted.fails = True
    with pytest.raises(StoreUnavailable), brain.record_turn("Hello?") as turn:
        turn.add("Hello.")


async def test_a_store_that_fails_does_not_replace_what_ended_the_turn(
    brain: BrainMemory, counted: _Counted, caplog: pytest.LogCaptureFixture
) -> None:
    counted.fails = True
    with pytest.raises(ValueError, match="mine"), brain.record_turn("Hello?"):
        raise ValueError("mine")
    with pytest.raises(asyncio.CancelledError):
        async with brain.record_turn("Hello?"):
            raise asyncio.CancelledError
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "it is down" in caplog.text


def test_a_turn_is_used_once_and_takes_only_pieces(brain: BrainMemory) -> None:
    with brain.record_turn("Hello?") as turn:
        with pytest.raises(ConfigurationError, match="not of dict"):
            turn.add({"answer": "Hello."})  # type: ignore[arg-type]
        turn.add("Hello.")
    for early_or_late in (brain.record_turn("Hello?"), turn):
        with pytest.raises(ConfigurationError, match="inside of its with block"):
            early_or_late.add("Hello again.")
    with pytest.raises(ConfigurationError, match="recorded once"), turn:
        pass
    assert told(brain) == [("user", "Hello?", False), ("assistant", "Hello.", False)]


@pytest.mark.parametrize(
    ("call", "result_", "reference"),
    [
        ("server_tool_use", "web_search_tool_result", "tool_use_id"),
        ("mcp_tool_use", "mcp_tool_result", "tool_use_id"),
        ("server_tool_call", "server_tool_result", "tool_call_id"),
    ],
)
def test_b1_a_call_of_the_providers_own_tool_goes_unless_its_result_is_there(
    brain: BrainMemory, call: str, result_: str, reference: str
) -> None:
    said: list[str | dict[Any, Any]] = [
        {"type": "text", "text": "I search."},
        {"type": call, "id": "s1", "name": "web_search", "input": {}},
        {"type": result_, reference: "s1", "content": []},
    ]
    cut: dict[Any, Any] = {"type": call, "id": "s2", "name": "web_search", "input": {}}
    interrupt(brain, [Message(role="assistant", content=[*said, cut])])
    assert brain.messages()[-1].content == said
    interrupt(brain, [Message(role="assistant", content=[cut])])
    assert told(brain)[-1] == ("user", "Look.", True)


def test_a_question_that_is_delivered_again_is_not_stored_again(brain: BrainMemory) -> None:
    question = Message(id="q1", role="user", content="Hello?")
    brain.add_messages([question])
    with brain.record_turn(question) as turn:
        turn.add("Hello.")
    assert told(brain) == [("user", "Hello?", False), ("assistant", "Hello.", False)]


def test_streams_that_threads_begin_at_once_are_counted_each() -> None:
    """At each step of one, another thread begins one too, as it may without a GIL."""
    brain = BrainMemory(MemoryStore(), "monday")
    others: list[Iterator[str]] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not Turn.watch.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            sys.settrace(trace)  # Python 3.12 looks only here whether a frame wants its opcodes traced
        if event == "opcode":
            other = threading.Thread(target=lambda: others.append(turn.watch([" yes"])))
            other.start()
            other.join()
        return trace

    before = sys.gettrace()
    with brain.record_turn("Both?") as turn:
        sys.settrace(trace)
        try:
            own = turn.watch(["Yes,"])
        finally:
            sys.settrace(before)
        assert list(own) == ["Yes,"]
        assert [list(other) for other in others] == [[" yes"]] * len(others)
    assert others
    assert told(brain)[1:] == [("assistant", "Yes," + " yes" * len(others), False)]
