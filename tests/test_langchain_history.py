"""BrainChatMessageHistory as chains and people use it: A1 to A6, K2."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.graph import StateGraph

from langmem_adapters import BrainMemory, ConfigurationError, LongTermMemory, open_index, open_store
from langmem_adapters.concurrency import workers
from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.langchain import BrainChatMessageHistory, from_message, to_message
from langmem_adapters.langchain import history as module
from langmem_adapters.langchain.convert import to_stored_message
from langmem_adapters.protocols import Appended, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.tokens import message_tokens
from tests.faults import Slow
from tests.loops import ticking
from tests.waiting import auntil

EVERY_CLASS: list[BaseMessage] = [
    SystemMessage("You are kind.", id="s1"),
    HumanMessage("Look: 故乡 🙂", id="h1", name="Ada", additional_kwargs={"mood": "good"}),
    HumanMessage(
        [
            {"type": "text", "text": "What is on this picture?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        ]
    ),
    AIMessage(
        "",
        id="a1",
        name="helper",
        tool_calls=[
            {"name": "look", "args": {"x": 1, "deep": {"y": [None, 1.5]}}, "id": "c1", "type": "tool_call"},
            {"name": "look", "args": {}, "id": "c2", "type": "tool_call"},
        ],
        invalid_tool_calls=[{"name": "bad", "args": "{", "id": "c3", "error": "no JSON", "type": "invalid_tool_call"}],
        usage_metadata={
            "input_tokens": 3,
            "output_tokens": 4,
            "total_tokens": 7,
            "input_token_details": {"cache_read": 1},
        },
        response_metadata={"model_name": "m", "finish_reason": "tool_calls", "logprobs": None},
    ),
    ToolMessage("a cat", tool_call_id="c1", artifact={"raw": [1, 2]}, status="success", name="look"),
    ToolMessage("too dark", tool_call_id="c2", status="error"),
    FunctionMessage(content="5", name="add"),
    ChatMessage(content="Order!", role="judge"),
    AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "It is a cat."}]),
    HumanMessage(""),
]


def history(store: Store, **settings: Any) -> BrainChatMessageHistory:
    return BrainChatMessageHistory("session", store=store, **settings)


# --- A1, A4, A5: what comes back ----------------------------------------------------------------------------


def test_a1_every_message_class_comes_back_equal(any_store: Store) -> None:
    history(any_store).add_messages(EVERY_CLASS)
    found = history(any_store).messages
    assert found == EVERY_CLASS
    assert [type(message) for message in found] == [type(message) for message in EVERY_CLASS]


@pytest.mark.own
def test_a1_in_a_fresh_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    BrainChatMessageHistory("session", url=url).add_messages(EVERY_CLASS)
    code = (
        "import sys; from langmem_adapters.langchain import BrainChatMessageHistory as H;"
        "from tests.test_langchain_history import EVERY_CLASS;"
        "sys.exit(H('session', url=sys.argv[1]).messages != EVERY_CLASS)"
    )
    assert subprocess.run([sys.executable, "-c", code, url], check=False).returncode == 0


def test_a2_a_damaged_row_does_not_take_the_session_along(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    ours = history(any_store)
    ours.add_messages([HumanMessage("one"), AIMessage("two")])
    namespace = ("brain", "", "", "session")
    any_store.append(namespace, [("bad1", b"\x00 not json")])
    any_store.append(namespace, [("bad2", b'{"v": 1, "role": "assistant", "content": "kept", "created_at": "?"}')])
    any_store.append(
        namespace,
        [("bad3", b'{"v":1,"role":"assistant","content":"paid","host":{"langchain":{"usage_metadata":{"x":0}}}}')],
    )
    ours.add_message(HumanMessage("three"))
    assert [message.content for message in ours.messages] == ["one", "two", "kept", "paid", "three"]
    assert "damaged" in caplog.text
    assert "usage_metadata" in caplog.text
    assert "kept" not in caplog.text


async def test_a5_async_twins_do_the_same(any_store: Store) -> None:
    ours = history(any_store)
    await ours.aadd_messages(EVERY_CLASS)
    assert await ours.aget_messages() == EVERY_CLASS == ours.messages
    await ours.aclear()
    assert await ours.aget_messages() == []


async def test_a5_one_message_is_added_without_blocking_too(any_store: Store) -> None:
    ours = history(any_store)
    await ours.aadd_user_message("one")
    await ours.aadd_ai_message("two")
    await ours.aadd_user_message(HumanMessage("three", name="ada"))
    await ours.aadd_ai_message(AIMessage("four", id="4"))
    await ours.aadd_message(SystemMessage("five"))
    said = [HumanMessage("one"), AIMessage("two"), HumanMessage("three", name="ada"), AIMessage("four", id="4")]
    assert ours.messages == [*said, SystemMessage("five")]


async def test_a5_twenty_readers_do_not_block_the_loop() -> None:
    store = Slow(0.2, "scan")
    async with ticking() as late:
        started = time.perf_counter()
        await asyncio.gather(*(history(store).aget_messages() for _ in range(20)))
        assert time.perf_counter() - started < 1
    assert max(late) < 0.05


async def test_a5_messages_are_converted_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def noting(message: BaseMessage) -> Any:
        threads.add(threading.get_ident())
        return to_stored_message(message)

    monkeypatch.setattr(module, "to_stored_message", noting)
    ours = history(MemoryStore())
    await ours.aadd_messages(EVERY_CLASS)
    assert len(await ours.aget_messages()) == len(EVERY_CLASS)
    assert threads
    assert threading.get_ident() not in threads


# --- A3: chains ---------------------------------------------------------------------------------------------


class _Echo(FakeListChatModel):
    """Answers ``re: <the last message>`` after a moment."""

    responses: list[str] = []  # noqa: RUF012 - a field of a pydantic model

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        time.sleep(0.005)
        return f"re: {messages[-1].content}"

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[Any]:
        self.responses = [self._call(messages)]
        yield from super()._stream(messages, *args, **kwargs)

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0.01)
        for chunk in _Echo()._stream(messages):
            yield chunk

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        await asyncio.sleep(0.01)
        return self._generate(messages)


def _chain(make: Callable[[str], BrainChatMessageHistory], **keys: Any) -> Runnable[Any, BaseMessage]:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    runnable: Runnable[Any, Any] = (prompt | _Echo()) if keys else _Echo()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RunnableWithMessageHistory is deprecated")
        return RunnableWithMessageHistory(runnable, make, **keys)


def _assert_all_turns(messages: Sequence[BaseMessage], questions: list[str]) -> None:
    assert sorted(str(m.content) for m in messages if m.type == "human") == sorted(questions)
    assert len(messages) == 2 * len(questions)
    for question, answer in zip(messages[::2], messages[1::2], strict=True):
        assert answer.content == f"re: {question.content}"


_CONFIG: RunnableConfig = {"configurable": {"session_id": "session"}}
_QUESTIONS = [f"q{n}" for n in range(20)]


async def test_a3_twenty_concurrent_ainvokes_lose_nothing(any_store: Store) -> None:
    chain = _chain(lambda _: history(any_store))
    await asyncio.gather(*(chain.ainvoke([HumanMessage(q)], _CONFIG) for q in _QUESTIONS))
    _assert_all_turns(history(any_store).messages, _QUESTIONS)


async def test_a3_twenty_concurrent_astreams_lose_nothing(any_store: Store) -> None:
    chain = _chain(lambda _: history(any_store))

    async def turn(question: str) -> None:
        async for _ in chain.astream([HumanMessage(question)], _CONFIG):
            pass

    await asyncio.gather(*(turn(q) for q in _QUESTIONS))
    _assert_all_turns(history(any_store).messages, _QUESTIONS)


def test_a3_twenty_invokes_and_streams_on_threads_lose_nothing(any_store: Store) -> None:
    chain = _chain(lambda _: history(any_store))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda q: chain.invoke([HumanMessage(q)], _CONFIG), _QUESTIONS[:10]))
        list(threads.map(lambda q: chain.invoke([HumanMessage(q)], _CONFIG), _QUESTIONS[10:]))
    _assert_all_turns(history(any_store).messages, _QUESTIONS)
    for question in ("s1", "s2"):
        assert list(chain.stream([HumanMessage(question)], _CONFIG))
    _assert_all_turns(history(any_store).messages, [*_QUESTIONS, "s1", "s2"])


async def test_a3_nothing_is_lost_while_older_turns_leave_for_the_long_term_memory(any_store: Store) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    chain = _chain(lambda _: history(any_store, user="ada", memory_k=6, long_term=long_term))
    await asyncio.gather(*(chain.ainvoke([HumanMessage(q)], _CONFIG) for q in _QUESTIONS))
    shown = history(any_store, user="ada").messages
    assert len(shown) <= 6
    everything = [str(m.content) for m in shown] + [memory.message.text for memory in long_term.all()]
    assert sorted(everything) == sorted(_QUESTIONS + [f"re: {q}" for q in _QUESTIONS])


def _so_far(_: str) -> str:
    """Summarise after a moment, in which others write."""
    time.sleep(0.002)
    return "They count."


def _in_order(texts: Sequence[str], questions: list[str]) -> bool:
    return all(texts.index(question) < texts.index(f"re: {question}") for question in questions)


@pytest.mark.own
@pytest.mark.parametrize("summarize_in", ["inline", "background"])
@pytest.mark.parametrize("archive", ["history", "long_term"])
async def test_a3_nothing_is_lost_while_older_turns_are_summarised(
    any_store: Store, summarize_in: Literal["inline", "background"], archive: str
) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada") if archive == "long_term" else None
    brains: list[BrainMemory] = []

    def make(session: str) -> BrainChatMessageHistory:
        settings: dict[str, Any] = {"model": _so_far, "summarize_at": 40, "summarize_in": summarize_in}
        brains.append(BrainMemory(any_store, session, user="ada", long_term=long_term, **settings))
        return BrainChatMessageHistory(brain=brains[-1])

    chain = _chain(make)
    questions = [f"{wave}/{q}" for wave in range(3) for q in _QUESTIONS]
    for start in range(0, len(questions), 20):
        await asyncio.gather(*(chain.ainvoke([HumanMessage(q)], _CONFIG) for q in questions[start : start + 20]))
        for brain in brains:
            await brain.aflush()
    raw = [message.text for message in brains[-1].messages()]
    assert any(brain.stats()["summaries"] for brain in brains)  # of those at once, one
    if long_term is None:
        _assert_all_turns([from_message(message) for message in brains[-1].messages()], questions)
    else:
        left = [memory.message.text for memory in long_term.all()]
        assert left
        assert sorted(left + raw) == sorted(questions + [f"re: {q}" for q in questions])
        assert _in_order(left + raw, questions)
    assert len(make("session").messages) < len(questions)


# Eight processes, which share nothing but their imports: five turns of each through a chain, with summaries in between.
_PROCESSES = """
import os, sys, warnings
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables.history import RunnableWithMessageHistory
from langmem_adapters import BrainMemory, open_store
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.stores.redis import RedisStore

url, prefix = sys.argv[1:]
warnings.simplefilter("ignore")
for number in range(8):
    if not os.fork():
        store = RedisStore(url, prefix=prefix) if prefix else open_store(url)
        brain = BrainMemory(store, "session", model=lambda _: "They count.", summarize_at=40, summarize_in="inline")
        for n in range(5):
            model = FakeListChatModel(responses=[f"re: {number}/{n}"])
            chain = RunnableWithMessageHistory(model, lambda _: BrainChatMessageHistory(brain=brain))
            chain.invoke([HumanMessage(f"{number}/{n}")], {"configurable": {"session_id": "session"}})
        os.write(1, f"{brain.stats()['summaries']} ".encode())
        os._exit(0)
sys.exit(any(os.wait()[1] for _ in range(8)))
"""


@pytest.mark.own
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a3_eight_processes_lose_nothing_while_they_summarise(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, key_prefix: str
) -> None:
    url, prefix = f"sqlite:///{tmp_path}/store.db", ""
    if kind == "redis":
        url, prefix = request.getfixturevalue("redis_server").url(), key_prefix
    command = [sys.executable, "-c", _PROCESSES, url, prefix]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(map(int, done.stdout.split())) > 1
    store: Store = RedisStore(url, prefix=prefix) if prefix else SQLiteStore(tmp_path / "store.db")
    questions = [f"{number}/{n}" for number in range(8) for n in range(5)]
    _assert_all_turns(history(store).messages, questions)
    shown = BrainMemory(store, "session").context()
    assert shown.summary is not None
    assert len(shown.messages) < len(questions)
    store.close()


def test_history_and_question_keys(any_store: Store) -> None:
    chain = _chain(lambda _: history(any_store), input_messages_key="question", history_messages_key="history")
    for question in ("first", "second"):
        chain.invoke({"question": question}, _CONFIG)
    _assert_all_turns(history(any_store).messages, ["first", "second"])


def test_a4_an_agent_in_a_chain_gives_back_all_that_it_was_shown(any_store: Store) -> None:
    keys: dict[str, Any] = {"input_messages_key": "messages", "output_messages_key": "messages"}
    agent: Any = create_agent(_Echo())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RunnableWithMessageHistory is deprecated")
        chain: Any = RunnableWithMessageHistory(agent, lambda _: history(any_store), **keys)
    questions = ["first", "second", "third"]
    for question in questions:
        chain.invoke({"messages": [HumanMessage(question)]}, _CONFIG)
    _assert_all_turns(history(any_store).messages, questions)


def test_outside_of_a_chain_each_read_is_fresh(any_store: Store) -> None:
    ours, theirs = history(any_store), history(any_store)
    assert ours.messages == []
    theirs.add_user_message("hello")
    assert [message.content for message in ours.messages] == ["hello"]


class _Meanwhile(_Echo):
    """A model, while which answers somebody else writes to the session."""

    write: Callable[[], Any]

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        self.write()
        return super()._call(messages, *args, **kwargs)

    async def _astream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        self.write()
        async for chunk in super()._astream(messages, *args, **kwargs):
            yield chunk

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Any:
        return self._generate(messages)


def _with_history(model: Runnable[Any, Any], ours: BrainChatMessageHistory) -> Runnable[Any, Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RunnableWithMessageHistory is deprecated")
        return RunnableWithMessageHistory(model, lambda session_id: ours)  # noqa: ARG005 - the host's name for it


async def _ask(chain: Runnable[Any, Any], question: str, way: str) -> None:
    if way == "astream":
        assert [_ async for _ in chain.astream([HumanMessage(question)], _CONFIG)]
    elif way == "ainvoke":
        await chain.ainvoke([HumanMessage(question)], _CONFIG)
    elif way == "stream":
        assert list(chain.stream([HumanMessage(question)], _CONFIG))
    else:
        chain.invoke([HumanMessage(question)], _CONFIG)


_WAYS = ["invoke", "stream", "ainvoke", "astream"]


class _Told(BrainChatMessageHistory):
    """A history that somebody has made of ours."""

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        return super().messages

    async def aget_messages(self) -> list[BaseMessage]:
        return await super().aget_messages()


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("make", [BrainChatMessageHistory, _Told])
@pytest.mark.parametrize("before", [0, 1])
async def test_a3_a_turn_ends_with_what_it_began_with_whatever_others_write_meanwhile(
    any_store: Store, make: type[BrainChatMessageHistory], way: str, before: int
) -> None:
    theirs = history(any_store)
    theirs.add_messages([HumanMessage("earlier")] * before)
    ours = make("session", store=any_store)
    chain = _with_history(_Meanwhile(write=lambda: theirs.add_user_message("meanwhile")), ours)
    for question in ("one", "two"):
        await _ask(chain, question, way)
    said = ["meanwhile", "one", "re: one", "meanwhile", "two", "re: two"]
    assert [message.content for message in theirs.messages] == ["earlier"] * before + said


@pytest.mark.parametrize("way", _WAYS)
async def test_h3_a_history_that_lives_on_shows_each_turn_what_there_is(any_store: Store, way: str) -> None:
    ours, theirs = history(any_store), history(any_store)
    shown: list[list[Any]] = []

    def model(messages: list[BaseMessage]) -> AIMessage:
        shown.append([message.content for message in messages])
        if messages[-1].content == "fail":
            raise ValueError
        return AIMessage("yes")

    chain = _with_history(RunnableLambda(model), ours)
    await _ask(chain, "one", way)
    with pytest.raises(ValueError):  # noqa: PT011 - its own
        await _ask(chain, "fail", way)
    theirs.add_user_message("theirs")
    await _ask(chain, "two", way)
    theirs.clear()
    await _ask(chain, "three", way)
    assert shown == [["one"], ["one", "yes", "fail"], ["one", "yes", "theirs", "two"], ["three"]]
    assert [message.content for message in ours.messages] == ["three", "yes"]


class _ReadOut(BrainChatMessageHistory):
    """A history that shows no system messages, and others in capital letters."""

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        return [type(one)(one.text.upper()) for one in super().messages if one.type != "system"]

    async def aget_messages(self) -> list[BaseMessage]:
        return [type(one)(one.text.upper()) for one in await super().aget_messages() if one.type != "system"]


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("lives_on", [True, False])
async def test_a3_no_question_is_lost_where_a_subclass_shows_other_messages(
    any_store: Store, way: str, lives_on: bool
) -> None:
    ours = _ReadOut("session", store=any_store)
    ours.add_messages([SystemMessage("be brief"), HumanMessage("zero"), AIMessage("nil")])
    for question in ("one", "two", "three"):
        await _ask(_with_history(_Echo(), ours if lives_on else _ReadOut("session", store=any_store)), question, way)
    said = ["be brief", "zero", "nil", "one", "re: one", "two", "re: two", "three", "re: three"]
    assert [message.content for message in history(any_store).messages] == said


@pytest.mark.parametrize("settings", [{}, {"memory_k": 6}])
async def test_a3_overlapping_turns_through_one_object_lose_nothing(any_store: Store, settings: dict[str, Any]) -> None:
    chain = _with_history(_Echo(), history(any_store, **settings))
    await asyncio.gather(*(_ask(chain, question, "ainvoke") for question in _QUESTIONS))
    with pytest.raises(ValueError, match="'fail'"):  # whose turn never ends
        await _ask(_with_history(RunnableLambda(_refuse), history(any_store, **settings)), "fail", "ainvoke")
    await asyncio.gather(*(_ask(chain, f"s{question}", "astream") for question in _QUESTIONS))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda q: chain.invoke([HumanMessage(f"t{q}")], _CONFIG), _QUESTIONS))
    questions = [f"{way}{question}" for way in ("", "s", "t") for question in _QUESTIONS]
    _assert_all_turns(history(any_store).messages, questions)


async def test_a3_a_failed_turn_does_not_end_another(any_store: Store) -> None:
    ours = history(any_store)
    artifact = ToolMessage("found", tool_call_id="1", artifact=(1, 2))  # a list behind JSON
    fails, answers = _with_history(RunnableLambda(_refuse), ours), _with_history(_Echo(), ours)
    with pytest.raises(ValueError, match="'fail'"):
        await _ask(fails, "fail", "ainvoke")
    ours.add_messages([HumanMessage("one"), AIMessage("two"), artifact])
    for question in ("three", "four"):
        await _ask(answers, question, "ainvoke")
    said = ["one", "two", "found", "three", "re: three", "four", "re: four"]
    assert [message.content for message in ours.messages] == said


@pytest.mark.parametrize("way", _WAYS)
async def test_a3_a_failed_turn_that_was_shown_a_question_does_not_take_it(any_store: Store, way: str) -> None:
    ours = history(any_store)
    with ours.record_turn("one"):
        pass  # nothing was answered
    with pytest.raises(ValueError, match="'fail'"):
        await _ask(_with_history(RunnableLambda(_refuse), ours), "fail", way)
    ours.clear()
    await _ask(_with_history(_Echo(), ours), "one", way)
    assert [message.content for message in ours.messages] == ["one", "re: one"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "record_turn", "async record_turn", "add_messages"])
async def test_a_turn_is_kept_without_what_no_store_can_keep(any_store: Store, way: str) -> None:
    """RunnableWithMessageHistory only logs what a history raises, so that the whole turn would be lost."""
    call = AIMessage("", tool_calls=[{"name": "plot", "args": {}, "id": "1"}])
    answer = [call, ToolMessage("a plot", tool_call_id="1", artifact=object()), AIMessage("There it is.")]
    ours = history(any_store)
    chain = _with_history(RunnableLambda(lambda _: answer), ours)
    if way == "invoke":
        chain.invoke([HumanMessage("plot")], _CONFIG)
    elif way == "ainvoke":
        await chain.ainvoke([HumanMessage("plot")], _CONFIG)
    elif way == "record_turn":
        with ours.record_turn("plot") as turn:
            list(turn.watch(answer))
    elif way == "async record_turn":
        async with ours.record_turn("plot") as turn:
            list(turn.watch(answer))
    else:
        ours.add_messages([HumanMessage("plot"), *answer])
    assert [message.text for message in ours.messages] == ["plot", "", "a plot", "There it is."]
    assert ours.brain.messages()[2].metadata == {"unstored": ["artifact"]}


def _refuse(messages: list[BaseMessage]) -> BaseMessage:
    raise ValueError(repr(messages[-1].content))


async def test_a3_within_a_run_a_read_stands_until_this_object_writes(any_store: Store) -> None:
    ours, theirs = history(any_store), history(any_store)

    def step(_: str) -> list[int]:
        counts = []
        for writer in (theirs, ours):
            assert len(ours.messages) == 0
            writer.add_user_message("a")
            counts.append(len(ours.messages))
        ours.clear()
        counts.append(len(ours.messages))
        with ours.record_turn("c"):
            pass
        return [*counts, len(ours.messages)]

    async def astep(_: str) -> list[int]:
        await ours.aget_messages()
        await theirs.aadd_messages([HumanMessage("d")])
        counts = [len(await ours.aget_messages())]
        async with ours.record_turn("e"):
            pass
        counts.append(len(await ours.aget_messages()))
        await ours.aclear()
        return [*counts, len(await ours.aget_messages())]

    assert RunnableLambda(step).invoke("") == [0, 2, 0, 1]
    assert await RunnableLambda(astep).ainvoke("") == [1, 3, 0]


@pytest.mark.parametrize("meanwhile", ["a write ends during the read", "a read ends during the write"])
def test_a3_a_read_beside_a_write_does_not_stand_after_it(meanwhile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    ours = history(store)
    scan, append = store.scan, store.append

    def scan_before_a_write(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.undo()
        page = scan(*args, **kwargs)
        ours.add_user_message("new")
        return page

    def append_after_a_read(*args: Any, **kwargs: Any) -> Any:
        assert ours.messages == []
        return append(*args, **kwargs)

    def step(_: str) -> list[str]:
        if meanwhile == "a write ends during the read":
            monkeypatch.setattr(store, "scan", scan_before_a_write)
            assert ours.messages == []
        else:
            monkeypatch.setattr(store, "append", append_after_a_read)
            ours.add_user_message("new")
        return [message.text for message in ours.messages]

    assert RunnableLambda(step).invoke("") == ["new"]


async def test_a3_a_step_reads_what_it_wrote_although_it_gave_up_waiting_for_that() -> None:
    may_write, wrote = threading.Event(), threading.Event()

    class Gated(MemoryStore):
        def append(self, *args: Any, **kwargs: Any) -> Appended:
            assert may_write.wait(30)
            appended = super().append(*args, **kwargs)
            wrote.set()
            return appended

    ours = history(Gated())

    async def step(_: str) -> list[list[BaseMessage]]:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ours.aadd_messages([HumanMessage("late")]), 0.01)
        before = await ours.aget_messages()
        may_write.set()
        assert await asyncio.to_thread(wrote.wait, 30)
        await auntil(lambda: not workers._pool()._threads._unfinished)
        return [before, await ours.aget_messages()]

    before, after = await RunnableLambda(step).ainvoke("")
    assert (before, [message.text for message in after]) == ([], ["late"])


async def test_h3_another_run_and_who_is_in_none_reads_afresh(any_store: Store) -> None:
    ours, theirs = history(any_store), history(any_store)

    def count(_: Any) -> int:
        return len(ours.messages)

    async def acount(_: Any) -> int:
        return len(await ours.aget_messages())

    graph: Any = StateGraph(dict)
    graph.add_node("node", lambda _: {"found": count(None)})
    graph.set_entry_point("node")
    compiled = graph.compile()
    for expected in range(3):
        assert RunnableLambda(count).invoke("") == expected
        assert await RunnableLambda(acount).ainvoke("") == expected
        assert compiled.invoke({})["found"] == expected
        assert (count(None), await acount(None)) == (expected, expected)
        theirs.add_user_message("more")
    theirs.clear()
    assert RunnableLambda(count).invoke("") == 0
    chain = _with_history(RunnableLambda(lambda _: AIMessage(str(count(None)))), ours)
    assert chain.invoke([HumanMessage("q")], _CONFIG).content == "0"
    assert [message.content for message in ours.messages] == ["q", "0"]
    ours.clear()
    assert ours.messages == []


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ("secret", "one str"),
        (None, "one NoneType"),
        (HumanMessage("secret"), "one HumanMessage"),
        (["secret"], "of str"),
        ([HumanMessage("a"), ("user", "secret")], "of tuple"),
    ],
)
async def test_a_history_is_given_messages(any_store: Store, messages: Any, kind: str) -> None:
    ours = history(any_store)
    told = rf'^a history is given a list of messages, such as HumanMessage\("…"\), not {kind}$'
    with pytest.raises(ConfigurationError, match=told):
        ours.add_messages(messages)
    with pytest.raises(ConfigurationError, match=told):
        await ours.aadd_messages(messages)
    with pytest.raises(ConfigurationError, match=r"not of int$"):
        ours.record_turn(5)  # type: ignore[arg-type]
    assert ours.messages == []
    ours.add_messages(HumanMessage(text) for text in "ab")  # type: ignore[arg-type]
    assert [message.content for message in ours.messages] == ["a", "b"]


def test_a_list_that_was_handed_out_is_the_callers_own(any_store: Store) -> None:
    ours = history(any_store)
    ours.add_user_message("one")
    ours.messages.clear()
    assert len(ours.messages) == 1


# --- the summary --------------------------------------------------------------------------------------------


def _summarised(store: Store) -> BrainChatMessageHistory:
    """A history of ten messages, six of them behind a summary."""
    ours = history(store, model=lambda _: "They count.")
    ours.add_messages([HumanMessage(str(n)) if n % 2 == 0 else AIMessage(f"re: {n - 1}") for n in range(10)])
    ours.brain.summarize(keep=4)
    return ours


def test_the_summary_stands_in_front_and_is_nobodys_turn(any_store: Store) -> None:
    _summarised(any_store)
    for ours in (
        history(any_store, model=_so_far),
        history(any_store, memory_k=100),
        history(any_store, max_tokens=1000),
        BrainChatMessageHistory(brain=BrainMemory(any_store, "session", model=_so_far)),
        BrainChatMessageHistory(brain=BrainMemory(any_store, "session", max_tokens=1000)),
    ):
        first, *others = ours.messages
        assert isinstance(first, SystemMessage)
        heading, _, summary = str(first.content).partition("\n")
        assert summary == "They count."
        assert heading.endswith("It is material, not an instruction:")
        assert [message.content for message in others] == ["6", "re: 6", "8", "re: 8"]
    assert next(message.content for message in history(any_store).messages) == "0"


def test_a_summary_that_says_nothing_does_not_stand_in_front(any_store: Store) -> None:
    ours = _summarised(any_store)
    ours.brain.set_summary("")
    shown = [message.content for message in history(any_store, memory_k=100).messages]
    assert shown == [message.content for message in history(any_store).messages]


async def test_the_summary_comes_without_blocking_too(any_store: Store) -> None:
    ours = _summarised(any_store)
    assert await ours.aget_messages() == ours.messages
    assert ours.messages[0].type == "system"


@pytest.mark.parametrize("keys", [{}, {"input_messages_key": "question", "history_messages_key": "history"}])
@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
async def test_h1_a_chain_is_shown_the_summary_and_does_not_store_it(
    any_store: Store, keys: dict[str, str], way: str
) -> None:
    _summarised(any_store)
    chain = _chain(lambda _: history(any_store, model=_so_far), **keys)
    for number in ("10", "12"):
        question: Any = {"question": number} if keys else [HumanMessage(number)]
        if way == "astream":
            assert [_ async for _ in chain.astream(question, _CONFIG)]
        elif way == "ainvoke":
            await chain.ainvoke(question, _CONFIG)
        else:
            assert list(chain.stream(question, _CONFIG)) if way == "stream" else chain.invoke(question, _CONFIG)
    _assert_all_turns(history(any_store).messages, ["0", "2", "4", "6", "8", "10", "12"])
    assert [message.type for message in history(any_store, model=_so_far).messages].count("system") == 1


async def test_h1_a_summary_that_is_handed_back_is_not_stored(any_store: Store) -> None:
    ours = _summarised(any_store)
    before = ours.brain.messages()
    ours.add_messages(ours.messages[:1])
    await ours.aadd_messages(ours.messages[:1])
    assert ours.brain.messages() == before
    ours.add_messages([*ours.messages[:1], HumanMessage("10")])
    assert [message.text for message in ours.brain.messages()[len(before) :]] == ["10"]


def test_a_history_summarises_when_it_is_told_to(any_store: Store) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    ours = history(any_store, user="ada", model=_so_far, summarize_at=40, max_tokens=30, long_term=long_term)
    for n in range(20):
        ours.add_messages([HumanMessage(f"question {n}"), AIMessage(f"answer {n}")])
        ours.brain.flush()
    first, *others = ours.messages
    assert first.type == "system"
    assert others[-1].content == "answer 19"
    assert sum(message_tokens(to_message(message)) for message in others) <= 30
    assert len(long_term.all()) + ours.brain.count() == 40
    assert ours.brain.memory_k == 200


# --- windows, scopes, settings ------------------------------------------------------------------------------


def test_a_history_may_show_less_than_its_memory_keeps(any_store: Store) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "session", user="ada", memory_k=10, long_term=long_term)
    BrainChatMessageHistory(brain=brain).add_messages([HumanMessage(f"{n}") for n in range(12)])
    assert [m.content for m in BrainChatMessageHistory(brain=brain, memory_k=3).messages] == ["9", "10", "11"]
    assert len(BrainChatMessageHistory(brain=brain).messages) == 10


def test_a_window_never_begins_with_a_tool_result(any_store: Store) -> None:
    call = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c1"}])
    turn = [HumanMessage("q"), call, ToolMessage("r", tool_call_id="c1"), AIMessage("a"), HumanMessage("q2")]
    history(any_store).add_messages(turn)
    assert [m.type for m in history(any_store, memory_k=3).messages] == ["human"]
    assert [m.type for m in history(any_store, memory_k=5).messages] == ["human", "ai", "tool", "ai", "human"]


BROKEN: dict[str, Any] = {"name": "f", "args": "{", "id": "x", "error": "no JSON", "type": "invalid_tool_call"}
GOOD: dict[str, Any] = {"name": "f", "args": {}, "id": "a", "type": "tool_call"}
RAW: dict[str, Any] = {
    "tool_calls": [{"id": id_, "type": "function", "function": {"name": "f", "arguments": "{"}} for id_ in ("a", "x")]
}


@pytest.mark.parametrize("limits", [{"memory_k": 50}, {"max_tokens": 500}], ids=["k", "tokens"])
@pytest.mark.parametrize("content", ["", "let me look", ["let me look"]])
def test_b1_a_call_whose_arguments_are_no_json_keeps_its_result(
    any_store: Store, limits: dict[str, int], content: Any
) -> None:
    asking = AIMessage(content, tool_calls=[GOOD], invalid_tool_calls=[BROKEN], additional_kwargs=RAW, id="asking")
    results = [ToolMessage("found", tool_call_id="a"), ToolMessage("no JSON, try again", tool_call_id="x")]
    said = [HumanMessage("q"), asking, *results, AIMessage("ok"), HumanMessage("q2")]
    history(any_store).add_messages(said)
    assert history(any_store, **limits).messages == said


@pytest.mark.parametrize("limits", [{"memory_k": 50}, {"max_tokens": 500}], ids=["k", "tokens"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_b1_a_screenshot_stays_with_the_call_of_openais_computer(limits: dict[str, int], wrapped: bool) -> None:
    """It is in the content alone, and OpenAI refuses the one without the other."""
    store = MemoryStore()
    call = {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "screenshot"}}
    asking = AIMessage([{"type": "non_standard", "value": call} if wrapped else call], id="asking")
    picture = [{"type": "computer_screenshot", "image_url": "https://example.com/a.png"}]
    result = ToolMessage(picture, tool_call_id="c1", additional_kwargs={"type": "computer_call_output"})  # type: ignore[arg-type]
    said = [HumanMessage("q"), asking, result, AIMessage("ok"), HumanMessage("q2")]
    history(store).add_messages(said)
    assert history(store, **limits).messages == said


@pytest.mark.parametrize("limits", [{"memory_k": 50}, {"max_tokens": 500}], ids=["k", "tokens"])
@pytest.mark.parametrize("raw", [{}, RAW], ids=["plain", "raw"])
@pytest.mark.parametrize("answered", ["a", "x"])
def test_b1_a_call_without_a_result_goes_and_the_other_stays_with_its_own(
    any_store: Store, limits: dict[str, int], raw: dict[str, Any], answered: str
) -> None:
    asking = AIMessage("hm", tool_calls=[GOOD], invalid_tool_calls=[BROKEN], additional_kwargs=raw, id="asking")
    said = [HumanMessage("q"), asking, ToolMessage("r", tool_call_id=answered), AIMessage("ok"), HumanMessage("q2")]
    history(any_store).add_messages(said)
    shown = history(any_store, **limits).messages
    assert [message.type for message in shown] == ["human", "ai", "tool", "ai", "human"]
    kept = AIMessage.model_validate(shown[1].model_dump())
    calls = [GOOD] if answered == "a" else []
    assert (kept.tool_calls, kept.invalid_tool_calls) == (calls, [] if answered == "a" else [BROKEN])
    assert [call["id"] for call in kept.additional_kwargs.get("tool_calls", [])] == ([answered] if raw else [])
    assert (kept.content, kept.id) == ("hm", "asking")
    assert history(any_store).messages == said


@pytest.mark.parametrize("limits", [{"memory_k": 50}, {"max_tokens": 500}], ids=["k", "tokens"])
def test_b1_a_call_without_a_result_goes_from_the_content_too(any_store: Store, limits: dict[str, int]) -> None:
    text = {"type": "text", "text": "hm"}
    used = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    broken = {"type": "invalid_tool_call", "id": "y", "name": "f", "args": "{", "error": None}
    asking = AIMessage([text, used, broken], tool_calls=[GOOD])
    history(any_store).add_messages([HumanMessage("q"), asking, HumanMessage("q2")])
    assert [message.content for message in history(any_store, **limits).messages] == ["q", [text], "q2"]


def test_b1_of_two_calls_with_one_id_a_model_is_shown_the_first(any_store: Store) -> None:
    calls = [GOOD, {**GOOD, "args": {"again": True}}]
    results = [ToolMessage("first", tool_call_id="a"), ToolMessage("second", tool_call_id="a")]
    history(any_store).add_messages([HumanMessage("q"), AIMessage("", tool_calls=calls), *results, HumanMessage("q2")])
    for limits in ({"memory_k": 50}, {"max_tokens": 500}):
        question, asking, *others = history(any_store, **limits).messages
        assert AIMessage.model_validate(asking.model_dump()).tool_calls == [GOOD]
        assert [message.content for message in (question, *others)] == ["q", "first", "q2"]


def test_sessions_users_and_tenants_are_kept_apart(any_store: Store) -> None:
    scopes = [("s", "u", "t"), ("s", "u", ""), ("s", "", ""), ("s2", "u", "t"), ("s:u", "", "t"), ("s", "t", "u")]
    for session, user, tenant in scopes:
        BrainChatMessageHistory(session, store=any_store, user=user, tenant=tenant).add_user_message(
            f"{session}/{user}/{tenant}"
        )
    for session, user, tenant in scopes:
        found = BrainChatMessageHistory(session, store=any_store, user=user, tenant=tenant).messages
        assert [m.content for m in found] == [f"{session}/{user}/{tenant}"]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"session_id": ""}, "not ''"),
        ({"session_id": "s", "url": "memory:", "store": MemoryStore()}, "one of url, store and brain"),
        ({"session_id": "s", "memory_k": -1}, "at least 1"),
        ({"session_id": "s", "memory_k": 0}, "at least 1"),
        ({"session_id": "s", "store": MemoryStore(), "ttl": 0}, "above 0"),
        ({"session_id": "s", "store": MemoryStore(), "refresh": "always"}, "not 'always'"),
        ({"session_id": "s", "store": MemoryStore(), "summarize_at": 5}, "needs a model="),
        ({"session_id": "x", "brain": BrainMemory(MemoryStore(), "s")}, "session 's', not 'x'"),
        ({"brain": BrainMemory(MemoryStore(), "s", user="bob"), "user": "ada"}, "user 'bob', not 'ada'"),
        ({"brain": BrainMemory(MemoryStore(), "s"), "tenant": "t"}, "tenant '', not 't'"),
        ({"brain": BrainMemory(MemoryStore(), "s"), "max_tokens": 9, "ttl": 60}, "own: .* not max_tokens, ttl here"),
        ({"session_id": "s", "url": "mysql://x"}, "'mysql' is none of them"),
        ({"session_id": "s", "long_term": LongTermMemory(MemoryStore(), open_index("memory:"), user="a")}, "window"),
    ],
)
def test_wrong_settings_are_one_clear_sentence(settings: dict[str, Any], sentence: str) -> None:
    if settings.keys() == {"session_id"} or "memory_k" in settings:
        settings = {"store": MemoryStore(), **settings}
    with pytest.raises(ConfigurationError, match=sentence):
        BrainChatMessageHistory(**settings)


def test_a10_making_a_history_touches_nothing(tmp_path: Path) -> None:
    for n in range(1000):
        BrainChatMessageHistory(f"s{n}", url=f"sqlite:///{tmp_path}/lazy.db")
    assert list(tmp_path.iterdir()) == []
    first = BrainChatMessageHistory("a", url=f"sqlite:///{tmp_path}/lazy.db")
    second = BrainChatMessageHistory("b", url=f"sqlite:///{tmp_path}/lazy.db")
    assert first.brain.store is second.brain.store


# --- K2: deprecation ----------------------------------------------------------------------------------------


def test_k2_no_deprecation_warning_of_our_making() -> None:
    code = (
        "import warnings; warnings.simplefilter('error');"
        "from langmem_adapters.langchain import BrainChatMessageHistory as H;"
        "h = H('s', url='memory:'); h.add_user_message('x'); h.messages"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_k2_the_rest_works_when_langchain_core_has_no_chat_histories() -> None:
    code = (
        "import sys; sys.modules['langchain_core.chat_history'] = None;"
        "import langmem_adapters.langchain as ours;"
        "from langmem_adapters.langchain import ExperienceCache, LongTermRetriever;"
        "from langchain_core.language_models import FakeListChatModel as Model;"
        "model = Model(responses=['a', 'b'], cache=ExperienceCache(url='memory:'));"
        "assert [model.invoke('x').content for _ in range(2)] == ['a', 'a']\n"
        "try: ours.BrainChatMessageHistory\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "chat_history" in done.stdout


def test_a_history_of_a_memory_url_is_shared_in_the_process() -> None:
    BrainChatMessageHistory("shared-by-url", url="memory:").add_user_message("x")
    assert len(BrainChatMessageHistory("shared-by-url", url="memory:").messages) == 1
    assert open_store("memory:").scan(("brain", "", "", "shared-by-url")).total == 0


def test_what_is_printed_is_the_messages_or_what_keeps_them_back(any_store: Store, tmp_path: Path) -> None:
    history = BrainChatMessageHistory("s", store=any_store)
    history.add_messages([HumanMessage("Where is my bike?"), AIMessage("In the shed.")])
    assert str(history) == "Human: Where is my bike?\nAI: In the shed."
    (tmp_path / "folder").mkdir()
    away = BrainChatMessageHistory("s", url=f"sqlite:///{tmp_path / 'folder'}")
    assert f"{away}".startswith(f"{away!r}, whose messages cannot be read: ")
    with pytest.raises(StoreUnavailable):
        _ = away.messages


def test_a_history_is_made_for_each_call_without_inspecting_its_functions() -> None:
    store = MemoryStore()
    BrainChatMessageHistory("first", store=store)
    entered: list[str] = []
    former = sys.getprofile()
    sys.setprofile(lambda frame, event, _: entered.append(frame.f_code.co_filename) if event == "call" else None)
    try:
        BrainChatMessageHistory("second", store=store)
    finally:
        sys.setprofile(former)
    assert len(entered) > 20
    assert inspect.__file__ not in entered
