"""record_turn around LangChain's streams (A9, B1), and refine_with in a chain (B5)."""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tracers.schemas import Run

from langmem_adapters import BrainMemory, ConfigurationError
from langmem_adapters.langchain import BrainChatMessageHistory, refine_with
from langmem_adapters.langchain.threads.turn import gather
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.warn_once import WarnOnce
from tests.loops import cancel_as_the_loop_ends, ticking

PROMPT = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])


class _Scripted(BaseChatModel):
    """Streams these chunks and remembers what it was shown; an error among them is raised."""

    chunks: list[Any]
    shown: list[list[BaseMessage]] = []  # noqa: RUF012 - a field of a pydantic model

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        self.shown.append(messages)
        for chunk in self.chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            yield ChatGenerationChunk(
                message=AIMessageChunk(content=chunk) if isinstance(chunk, str) else chunk.model_copy()
            )

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk
            await asyncio.sleep(0)
        await asyncio.Event().wait()

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.shown.append(messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("Fine."))])


@pytest.fixture
def history(any_store: Store) -> BrainChatMessageHistory:
    return BrainChatMessageHistory("session", store=any_store)


def ask(history: BrainChatMessageHistory, chain: Runnable[Any, Any], question: str, *, leave_at: int = -1) -> None:
    """Ask, and break out of the stream at a chunk."""
    with history.record_turn(question) as turn:
        for n, _ in enumerate(turn.watch(chain.stream({"question": question, "history": history.messages})), start=1):
            if n == leave_at:
                break


def told(history: BrainChatMessageHistory) -> list[tuple[str, Any, bool]]:
    return [(m.type, m.content, m.response_metadata.get("interrupted", False)) for m in history.messages]


def assert_valid(messages: Sequence[BaseMessage]) -> None:
    open_calls: set[str | None] = set()
    assert messages[0].type == "human"
    for message in messages:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id in open_calls
            open_calls.discard(message.tool_call_id)
            continue
        assert not open_calls
        if isinstance(message, AIMessage):
            assert not message.invalid_tool_calls
            assert message.content or message.tool_calls
            open_calls = {call["id"] for call in message.tool_calls}
    assert not open_calls


def call_chunk(args: str, *, name: str | None = None, id_: str | None = None, index: int = 0) -> AIMessageChunk:
    return AIMessageChunk(
        content="", tool_call_chunks=[tool_call_chunk(name=name, args=args, id=id_, index=index)], id="lc_run--1"
    )


# --- streams of a chain


def test_a_whole_stream_is_stored_as_one_message(history: BrainChatMessageHistory) -> None:
    ask(history, PROMPT | FakeListChatModel(responses=["In the shed."]), "Where is my bike?")
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "In the shed.", False)]
    assert type(history.messages[-1]) is AIMessage


@pytest.mark.parametrize("parser", [None, StrOutputParser()])
def test_a9_break_after_three_chunks(history: BrainChatMessageHistory, parser: StrOutputParser | None) -> None:
    chain: Runnable[Any, Any] = PROMPT | FakeListChatModel(responses=["In the shed."])
    ask(history, chain | parser if parser else chain, "Where is my bike?", leave_at=3)
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "In ", True)]
    model = _Scripted(chunks=["Yes."])
    ask(history, PROMPT | model, "Really?")
    assert_valid(model.shown[-1])
    assert [m.content for m in model.shown[-1]] == ["Where is my bike?", "In ", "Really?"]
    assert len(history.messages) == 4


class _Redirected(BrainChatMessageHistory):
    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        super().add_messages(messages)


def remembering(history: BrainChatMessageHistory, chain: Runnable[Any, Any], **keys: str) -> Runnable[Any, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RunnableWithMessageHistory is deprecated")
        return RunnableWithMessageHistory(chain, lambda: history, **keys, history_factory_config=[])


@pytest.mark.parametrize("kind", [BrainChatMessageHistory, _Redirected])
@pytest.mark.parametrize("parser", [None, StrOutputParser()])
def test_a9_what_langchain_keeps_of_a_stream_that_is_left_is_marked(
    any_store: Store, parser: StrOutputParser | None, kind: type[BrainChatMessageHistory]
) -> None:
    history = kind("session", store=any_store)
    chain: Runnable[Any, Any] = PROMPT | _Scripted(chunks=["In ", "the ", "shed."])
    talk = remembering(
        history, chain | parser if parser else chain, input_messages_key="question", history_messages_key="history"
    )
    for n, _ in enumerate(talk.stream({"question": "Where is my bike?"}), start=1):
        if n == 3:
            break
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "In the ", True)]
    list(talk.stream({"question": "Where?"}))
    talk.invoke({"question": "Really?"})
    assert told(history)[2:] == [
        ("human", "Where?", False),
        ("ai", "In the shed.", False),
        ("human", "Really?", False),
        ("ai", "Fine.", False),
    ]


def test_b1_no_half_of_a_call_is_kept_of_a_stream_that_is_left(history: BrainChatMessageHistory) -> None:
    model = _Scripted(chunks=[call_chunk("", name="look", id_="c1"), call_chunk('{"pla'), call_chunk('ce": "shed"}')])
    recalled = SystemMessage("a key", additional_kwargs={"recalled": True})
    talk = remembering(history, RunnableLambda(list[BaseMessage]) | model)
    stream = talk.stream([recalled, HumanMessage("Where is my bike?")])
    assert [next(stream).content for _ in range(3)] == [""] * 3
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert told(history) == [("human", "Where is my bike?", True)]
    talk.invoke([HumanMessage("Really?")])
    assert_valid(model.shown[-1])


def test_an_answer_for_which_a_step_reads_as_much_of_a_stream_as_it_needs_is_whole(
    history: BrainChatMessageHistory,
) -> None:
    model = _Scripted(chunks=["In ", "the ", "shed."])
    talk = remembering(
        history, RunnableLambda(list[BaseMessage]) | (lambda shown: next(iter(model.stream(shown))).text)
    )
    assert list(talk.stream([HumanMessage("Where is my bike?")])) == ["In "]
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "In ", False)]


def test_what_a_listener_of_ones_own_keeps_of_a_stream_is_what_it_says(history: BrainChatMessageHistory) -> None:
    def keep(run: Run) -> None:  # noqa: ARG001 - LangChain passes it
        history.add_messages([HumanMessage("Where is my bike?"), AIMessage("Never mind.")])

    chain: Runnable[Any, Any] = PROMPT | _Scripted(chunks=["In ", "the ", "shed."])
    stream = chain.with_listeners(on_end=keep).stream({"question": "Where is my bike?", "history": []})
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "Never mind.", False)]


async def test_a9_a_cancelled_task(history: BrainChatMessageHistory) -> None:
    model = _Scripted(chunks=["In ", "the "])
    seen: list[str] = []
    both = asyncio.Event()

    async def turn() -> None:
        async with history.record_turn("Where is my bike?") as turn:
            messages = await history.aget_messages()
            async for chunk in turn.watch((PROMPT | model).astream({"question": "?", "history": messages})):
                seen.append(chunk.text)
                if len(seen) == 2:
                    both.set()

    task = asyncio.create_task(turn())
    await both.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "In the ", True)]


@pytest.mark.parametrize("rounds", range(6))
def test_a9_a_loop_that_ends_and_cancels_all_tasks_leaves_each_turn_there_once(
    history: BrainChatMessageHistory, rounds: int
) -> None:
    async def turn() -> None:
        async with history.record_turn("Where is my bike?") as turn:
            turn.add("In the")
            await asyncio.Event().wait()

    asyncio.run(cancel_as_the_loop_ends(turn(), rounds))
    assert told(history) == [("human", "Where is my bike?", False), ("ai", "In the", True)]
    assert [message.id for message in history.messages] == [None, None]


def test_the_mark_comes_back_equal(history: BrainChatMessageHistory) -> None:
    chunks = [
        AIMessageChunk(content="In ", id="lc_run--1", response_metadata={"model_name": "m"}),
        AIMessageChunk(
            content="the", id="msg_1", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        ),
    ]
    with history.record_turn("Where?") as turn:
        for chunk in chunks:
            turn.add(chunk)
        turn.watch(iter(()))
    marked = history.messages[-1]
    assert marked == AIMessage(
        "In the",
        id="msg_1",
        response_metadata={"model_name": "m", "interrupted": True},
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
    )
    other = BrainChatMessageHistory("other", store=history.brain.store)
    other.add_messages(history.messages)
    assert other.messages == history.messages


@pytest.mark.parametrize("told", [{}, {"status": "completed"}])
def test_an_interrupted_answer_has_no_ids_under_which_openai_would_have_kept_it(
    history: BrainChatMessageHistory, told: dict[str, Any]
) -> None:
    """It keeps an answer when it is complete; then it may be known by them, whatever happens after it."""
    content: list[str | dict[Any, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "text", "text": "In the", "id": "msg_1"},
    ]
    beside = {"reasoning": {"type": "reasoning", "id": "rs_1", "summary": []}}  # as with output_version="v0"
    with suppress(OSError), history.record_turn("Where?") as turn:
        reported = {"id": "resp_1", "model_name": "m", **told}
        turn.add(AIMessageChunk(content=content, response_metadata=reported, additional_kwargs=beside))
        raise OSError
    answer = history.messages[-1]
    assert answer.response_metadata.pop("interrupted")
    if told:
        assert (answer.content, answer.response_metadata["id"]) == (content, "resp_1")
        assert answer.additional_kwargs == beside
    else:
        assert (answer.content, answer.response_metadata) == ([{"type": "text", "text": "In the"}], {"model_name": "m"})
        assert answer.additional_kwargs == {}


def test_an_interrupted_answer_keeps_what_other_providers_call_its_id(history: BrainChatMessageHistory) -> None:
    told = {"id": "msg_1", "model_name": "resp_like"}
    with suppress(OSError), history.record_turn("Where?") as turn:
        turn.add(AIMessageChunk(content="In the", response_metadata=dict(told)))
        raise OSError
    assert history.messages[-1].response_metadata == {**told, "interrupted": True}


# --- tool calls


def test_chunks_of_several_messages_with_tools_in_between(history: BrainChatMessageHistory) -> None:
    pieces: list[BaseMessage | str] = [
        call_chunk('{"x"', name="look", id_="c1"),
        call_chunk(": 1}"),
        ToolMessage("a cat", tool_call_id="c1"),
        AIMessageChunk(content="It is ", id="lc_run--2"),
        AIMessageChunk(content="a cat.", id="lc_run--2", chunk_position="last"),
        AIMessageChunk(content="Really.", id="lc_run--3"),
        AIMessageChunk(content="Yes.", id="lc_run--4"),
        AIMessageChunk(content="", chunk_position="last"),
        AIMessageChunk(content="Its own id.", id="msg_1"),
        " Text.",
    ]
    with history.record_turn("What is it?") as turn:
        assert list(turn.watch(pieces)) == pieces
    _, call, result, *said = history.messages
    assert isinstance(call, AIMessage)
    assert call.tool_calls == [{"name": "look", "args": {"x": 1}, "id": "c1", "type": "tool_call"}]
    assert result.content == "a cat"
    assert [m.content for m in said] == ["It is a cat.", "Really.", "Yes.", "Its own id.", " Text."]
    assert_valid(history.messages)


def costs(**reported: Any) -> dict[str, Any]:
    return {"usage_metadata": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, **reported}}


@pytest.mark.parametrize(
    ("first", "second", "lost"),
    [
        (costs(cost=0.5), costs(cost=0.25), ["usage_metadata"]),
        ({"response_metadata": {"seen": True}}, {"response_metadata": {"seen": False}}, ["response_metadata"]),
        ({"additional_kwargs": {"x": "1"}}, {"additional_kwargs": {"x": 1}}, ["additional_kwargs"]),
        ({"content": [{"index": 0, "text": "It ", "score": 0.5, "type": "text"}]},
         {"content": [{"index": 0, "text": "is", "score": 0.1, "type": "text"}]}, ["content"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("leaves", [False, True])
def test_a9_chunks_that_cannot_be_added_up_are_kept_without_what_does_not(
    history: BrainChatMessageHistory, first: Any, second: Any, lost: list[str], *, leaves: bool
) -> None:
    pieces = [AIMessageChunk(**{"content": "It "} | first), AIMessageChunk(**{"content": "is"} | second)]
    pieces.append(call_chunk("{}", name="look", id_="c1"))
    with history.record_turn("What is it?") as turn, suppress(GeneratorExit):
        for n, _ in enumerate(turn.watch([*pieces, ToolMessage("a cat", tool_call_id="c1")]), start=1):
            if leaves and n == len(pieces):
                raise GeneratorExit
    question, answer, *result = history.brain.messages()
    assert (question.text, answer.text, answer.metadata["unstored"]) == ("What is it?", "It is", lost)
    assert [call.name for call in answer.tool_calls] == ([] if leaves else ["look"])
    assert [message.text for message in result] == ([] if leaves else ["a cat"])
    assert answer.metadata.get("interrupted", False) is leaves


def test_what_is_left_out_of_chunks_is_told(caplog: pytest.LogCaptureFixture) -> None:
    gather(
        [AIMessageChunk(content="It", **costs(cost=0.5)), AIMessageChunk(content="is", **costs(cost=0.25))], WarnOnce()
    )
    assert "cannot be merged" in caplog.text


def test_an_answer_of_a_form_that_langchain_has_not_takes_no_question_with_it(history: BrainChatMessageHistory) -> None:
    with history.record_turn("What is it?") as turn:
        turn.add(AIMessage.model_construct(content=cast("str", 5)))
    assert [message.text for message in history.brain.messages()] == ["What is it?", ""]


def test_chunks_of_messages_that_stream_at_once(history: BrainChatMessageHistory) -> None:
    """Agents in parallel branches of a graph take turns; a cache that replays an id begins another message."""
    pieces: list[BaseMessage] = [
        call_chunk('{"x"', name="look", id_="c1"),
        AIMessageChunk(content="It is ", id="lc_run--2"),
        call_chunk(": 1}"),
        AIMessageChunk(content="a cat.", id="lc_run--2", chunk_position="last"),
        ToolMessage("a cat", tool_call_id="c1"),
        AIMessageChunk(content="Again.", id="lc_run--2"),
    ]
    with history.record_turn("What is it?") as turn:
        assert list(turn.watch(pieces)) == pieces
    _, call, *said = history.messages
    assert isinstance(call, AIMessage)
    assert [call["args"] for call in call.tool_calls] == [{"x": 1}]
    assert [m.content for m in said] == ["It is a cat.", "a cat", "Again."]


def test_a_chunk_that_has_an_id_goes_on_with_those_that_had_none(history: BrainChatMessageHistory) -> None:
    with history.record_turn("What is it?") as turn:
        for piece in (AIMessageChunk(content="It is "), AIMessageChunk(content="a cat.", id="lc_run--1")):
            turn.add(piece)
    assert [m.content for m in history.messages[1:]] == ["It is a cat."]


def test_a_message_that_begins_while_another_goes_on_does_not_end_in_a_third(history: BrainChatMessageHistory) -> None:
    pieces = [
        AIMessageChunk(content="It is ", id="lc_run--1"),
        AIMessageChunk(content="Yes.", id="lc_run--2", chunk_position="last"),
        AIMessageChunk(content="One.", id="msg_1"),
        AIMessageChunk(content="a cat.", id="lc_run--1"),
        AIMessageChunk(content="Two.", id="msg_2"),
    ]
    with history.record_turn("What is it?") as turn:
        list(turn.watch(pieces))
    assert [m.content for m in history.messages[1:]] == ["It is a cat.", "Yes.", "One.", "Two."]


@pytest.mark.parametrize("args", [None, ""])
def test_b1_a_call_without_arguments_is_whole(history: BrainChatMessageHistory, args: str | None) -> None:
    """Anthropic streams nothing for them."""
    piece = AIMessageChunk(content="", tool_call_chunks=[tool_call_chunk(name="look", args=args, id="c1", index=0)])
    with history.record_turn("What is it?") as turn:
        list(turn.watch([piece, ToolMessage("a cat", tool_call_id="c1")]))
    call = history.messages[1]
    assert isinstance(call, AIMessage)
    assert [(c["id"], c["args"]) for c in call.tool_calls] == [("c1", {})]
    assert_valid(history.messages)


@pytest.mark.parametrize("args", ['{"x": 1, "y": "ab', "{", "", '{"x": 1}', "[1]"])
@pytest.mark.parametrize("text", ["", "I look."])
def test_b1_no_half_of_a_call_becomes_a_call(history: BrainChatMessageHistory, args: str, text: str) -> None:
    model = _Scripted(chunks=[text, call_chunk(args, name="look", id_="c1"), ValueError("cut")])
    with pytest.raises(ValueError, match="cut"):
        ask(history, PROMPT | model, "What is it?")
    assert told(history) == ([("human", "What is it?", not text)] + ([("ai", text, True)] if text else []))
    assert_valid(history.messages)


def test_b1_a_call_that_the_model_did_not_finish_is_no_call_either(history: BrainChatMessageHistory) -> None:
    chunks = [call_chunk("{}", name="look", id_="c1"), call_chunk('{"x": "a', name="look", id_="c2", index=1)]
    with history.record_turn("What is it?") as turn:
        list(turn.watch([*chunks, ToolMessage("a cat", tool_call_id="c1")]))
    call = history.messages[1]
    assert isinstance(call, AIMessage)
    assert ([c["id"] for c in call.tool_calls], call.invalid_tool_calls) == (["c1"], [])
    assert_valid(history.messages)


def test_b1_blocks_of_a_call_go_with_it(history: BrainChatMessageHistory) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {}, "partial_json": '{"x', "index": 1}
    piece = AIMessageChunk(
        content=[{"type": "text", "text": "I look.", "index": 0}, use],
        tool_call_chunks=[tool_call_chunk(name="look", args='{"x', id="c1", index=1)],
    )
    with history.record_turn("What is it?") as turn:
        turn.add(piece)
        turn.watch(iter(()))
    assert history.messages[1].content == [{"type": "text", "text": "I look.", "index": 0}]
    assert_valid(history.messages)


def test_what_is_no_piece_of_an_answer_is_refused(history: BrainChatMessageHistory) -> None:
    with history.record_turn("Hello?") as turn:
        with pytest.raises(ConfigurationError, match="not of tuple"):
            turn.add((AIMessageChunk(content="a"), {}))  # type: ignore[arg-type]
        turn.add("Hello.")
    with pytest.raises(ConfigurationError, match="RemoveMessage"):
        history.record_turn(RemoveMessage(id="m1"))
    assert len(history.messages) == 2


# --- refine_with


def scripted(prompt: str) -> str:
    return "TRUE" if "TRUE or FALSE" in prompt else "Where is Ada's bike?"


@pytest.fixture
def brain(any_store: Store) -> BrainMemory:
    brain = BrainMemory(any_store, "session", model=scripted)
    brain.add_talk("Ada has a bike.")
    brain.add_answer("I see.")
    return brain


_PICTURE = {"type": "image", "url": "https://example.org/x.png"}
_NOTE = {"type": "text-plain", "mime_type": "text/plain", "text": "Ada's notes."}
_WHERE, _REFINED = "Where is it?", "Where is Ada's bike?"


@pytest.mark.parametrize(
    ("question", "refined"),
    [
        (_WHERE, _REFINED),
        (HumanMessage(_WHERE, id="h1"), HumanMessage(_REFINED, id="h1")),
        (
            HumanMessage([{"type": "text", "text": _WHERE}, _PICTURE, _NOTE]),
            HumanMessage([{"type": "text", "text": _REFINED}, _PICTURE, _NOTE]),
        ),
        (
            [SystemMessage("Be kind."), HumanMessage("Hi"), AIMessage("Hi"), HumanMessage(_WHERE), AIMessage("Hm.")],
            [SystemMessage("Be kind."), HumanMessage("Hi"), AIMessage("Hi"), HumanMessage(_REFINED), AIMessage("Hm.")],
        ),
        (
            (("system", "Be kind."), {"role": "user", "content": _WHERE}),
            [SystemMessage("Be kind."), HumanMessage(_REFINED)],
        ),
        ([SystemMessage("Be kind.")], [SystemMessage("Be kind.")]),
        (HumanMessage([{"type": "text", "text": _REFINED, "cache_control": {}}]),) * 2,  # clear already
        ([], []),
        ({"question": _WHERE}, {"question": _REFINED}),
        ({"input": [HumanMessage(_WHERE)], "x": 1}, {"input": [HumanMessage(_REFINED)], "x": 1}),
    ],
)
async def test_b5_what_comes_out_is_of_the_kind_that_came_in(brain: BrainMemory, question: Any, refined: Any) -> None:
    assert refine_with(brain).invoke(question) == refined
    assert await refine_with(brain).ainvoke(question) == refined


def test_b5_in_a_chain_with_sessions_and_another_model(any_store: Store, brain: BrainMemory) -> None:
    model = _Scripted(chunks=[])
    prompt = ChatPromptTemplate.from_messages([("human", "{question}")])
    refine = refine_with(lambda session: BrainMemory(any_store, session), scripted, key="question")
    chain = refine | prompt | model
    for session in (brain.scope.session, "another"):
        config: RunnableConfig = {"configurable": {"session_id": session}}
        chain.invoke({"question": _WHERE, "language": "en"}, config)
    assert [messages[0].content for messages in model.shown] == [_REFINED, _WHERE]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [(7, "not int"), ({"a": "x", "b": "y"}, "the input has no 'input', where the question")],
)
def test_a_question_that_cannot_be_found_is_one_sentence(brain: BrainMemory, question: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        refine_with(brain).invoke(question)


def test_a_chain_without_a_session_says_so() -> None:
    with pytest.raises(ConfigurationError, match="needs a session"):
        refine_with(lambda session: BrainMemory(MemoryStore(), session), scripted).invoke("Where?")


def test_a_history_in_the_place_of_its_session_is_one_sentence() -> None:
    history: Any = BrainChatMessageHistory("s", store=MemoryStore())
    with pytest.raises(ConfigurationError, match=r"a chat history has as \.brain, not BrainChatMessageHistory$"):
        refine_with(history, scripted)
    with pytest.raises(ConfigurationError, match=r"a chat history has as \.brain, not BrainChatMessageHistory$"):
        refine_with(lambda _: history, scripted).invoke("Where?", {"configurable": {"session_id": "s"}})


async def test_a5_refining_does_not_block_the_loop(brain: BrainMemory) -> None:
    def slow(prompt: str) -> str:
        time.sleep(0.1)
        return scripted(prompt)

    async with ticking() as late:
        assert await refine_with(brain, slow).ainvoke(_WHERE) == _REFINED
    assert max(late) < 0.05


def test_a9_a_turn_recorded_without_langchain_shows_its_mark_in_langchain(any_store: Store) -> None:
    with (
        contextlib.suppress(ZeroDivisionError),
        BrainMemory(any_store, "session").record_turn("question") as turn,
    ):
        turn.add("half an ans")
        raise ZeroDivisionError
    _, answer = BrainChatMessageHistory("session", store=any_store).messages
    assert answer.content == "half an ans"
    assert answer.response_metadata == {"interrupted": True}
