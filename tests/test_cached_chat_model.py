"""CachedChatModel: streams from the cache, single-flight, and everything else as the model has it (C1 to C9, D3)."""

# ruff: noqa: ARG002 - a model takes more than a script reads

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import copy
import functools
import gc
import itertools
import json
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel, FakeListChatModel, GenericFakeChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ChatMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import ConfigurableField, Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, Field, PrivateAttr

from langmem_adapters import ConfigurationError, Experience, StoreUnavailable
from langmem_adapters.experience.single_flight import flights
from langmem_adapters.flow import Flow
from langmem_adapters.langchain import BrainChatMessageHistory, CachedChatModel, ExperienceCache, chat_model
from langmem_adapters.langchain.caching.chunks import answer_chunks, join_chunks
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.faults import CROWD, Down, on_threads
from tests.loops import cancel_before_the_next_step
from tests.openai_server import OpenAIServer
from tests.waiting import auntil, until

ROOT = Path(__file__).parent.parent


class Scripted(BaseChatModel):
    """Says what its script says, in words, the last line again and again.

    A line may be a text, a message, a function of the messages, or an exception: in a stream after the first word.
    """

    script: list[Any] = Field(default_factory=lambda: ["Hello there!"])
    usage: bool = True
    n: int | None = None
    gate: Any = None  # a threading.Event that lets it go on
    _asked: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"usage": self.usage, "n": self.n}

    @property
    def asked(self) -> int:
        """How often it was asked."""
        return len(self._asked)

    def _next(self, messages: list[BaseMessage]) -> Any:
        with self._lock:
            self._asked.append(messages)
            said = self.script[min(len(self._asked), len(self.script)) - 1]
        if self.gate is not None:
            assert self.gate.wait(120)
        if callable(said):
            return said(messages)
        return AIMessage(said) if isinstance(said, str) else said

    def _message(self, said: AIMessage) -> AIMessage:
        used = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7} if self.usage else None
        return said.model_copy(update={"usage_metadata": used})

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        said = self._next(messages)
        if isinstance(said, BaseException):
            raise said
        info = {"finish_reason": "stop"}
        several = [ChatGeneration(message=self._message(said), generation_info=info) for _ in range(self.n or 1)]
        return ChatResult(generations=several, llm_output={"model_name": "scripted-1"})

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        said = self._next(messages)
        if isinstance(said, BaseException):
            yield ChatGenerationChunk(message=AIMessageChunk(content="Hel"))
            raise said
        for chunk in answer_chunks(
            ChatGeneration(message=self._message(said), generation_info={"finish_reason": "stop"})
        ):
            if isinstance(chunk.message, AIMessageChunk):
                chunk.message.chunk_position = None
            yield chunk

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(tools=[getattr(one, "name", str(one)) for one in tools], **kwargs)


class AsyncScripted(Scripted):
    """One with methods of its own for event loops."""

    _loops: list[bool] = PrivateAttr(default_factory=list)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._loops.append(asyncio.current_task() is not None)
        return self._generate(messages, stop, run_manager, **kwargs)

    async def _astream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self._loops.append(asyncio.current_task() is not None)
        for chunk in self._stream(messages, stop, run_manager, **kwargs):
            yield chunk


def added(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    first, *rest = chunks
    for chunk in rest:
        first = first + chunk
    return first


def streamed(model: Runnable[Any, Any], question: Any = "Hi", **kwargs: Any) -> AIMessageChunk:
    return added(list(model.stream(question, **kwargs)))


async def astreamed(model: Runnable[Any, Any], question: Any = "Hi") -> AIMessageChunk:
    return added([chunk async for chunk in model.astream(question)])


WAYS: dict[str, Callable[[Runnable[Any, Any]], Any]] = {
    "invoke": lambda model: model.invoke("Hi"),
    "ainvoke": lambda model: asyncio.run(model.ainvoke("Hi")),
    "batch": lambda model: model.batch(["Hi"])[0],
    "abatch": lambda model: asyncio.run(model.abatch(["Hi"]))[0],
    "stream": streamed,
    "astream": lambda model: asyncio.run(astreamed(model)),
}


# --- what a hit is (C1, C3, C9) -----------------------------------------------------------------------------


@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("kind", [Scripted, AsyncScripted])
def test_c3_each_way_of_asking_is_served_from_each_other(kind: type[Scripted], first: str, second: str) -> None:
    inner = kind()
    model = CachedChatModel(inner, _cache())
    asked, served = WAYS[first](model), WAYS[second](model)
    assert inner.asked == 1
    assert asked.content == served.content == "Hello there!"
    assert "cache" not in asked.response_metadata
    assert asked.usage_metadata["total_tokens"] == 7
    assert served.response_metadata["cache"] == "hit"
    assert served.response_metadata["finish_reason"] == "stop"
    assert served.response_metadata["cache_usage"]["total_tokens"] == 7
    assert served.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert asked.id != served.id
    assert served.id.startswith("lc_run--")
    assert model.stats()["hits"] == model.stats()["misses"] == model.stats()["stored"] == 1
    assert model.stats()["saved_tokens"] == 7


def _cache(**settings: Any) -> ExperienceCache:
    return ExperienceCache(store=MemoryStore(), **settings)


def test_c3_a_streamed_hit_comes_by_words_under_one_id_and_ends_once() -> None:
    model = CachedChatModel(Scripted(script=["One  two\nthree "]), _cache())
    model.invoke("Hi")
    chunks = list(model.stream("Hi"))
    assert [chunk.content for chunk in chunks] == ["One  ", "two\n", "three "]
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.chunk_position for chunk in chunks] == [None, None, "last"]


CALLS = [
    {"name": "weather", "args": {"place": "Rome", "days": [1, 2]}, "id": "call_a", "type": "tool_call"},
    {"name": "weather", "args": {}, "id": "call_b", "type": "tool_call"},
]


@pytest.mark.parametrize("first", ["invoke", "stream"])
def test_c3_a_streamed_hit_has_tool_calls_and_their_chunks(first: str) -> None:
    inner = Scripted(script=[AIMessage("Let me see.", tool_calls=CALLS)])
    model = CachedChatModel(inner, _cache())
    WAYS[first](model)
    chunks = list(model.stream("Hi"))
    assert [chunk["index"] for part in chunks for chunk in part.tool_call_chunks] == [0, 1]
    served = added(chunks)
    assert [(call["name"], call["args"]) for call in served.tool_calls] == [(c["name"], c["args"]) for c in CALLS]
    ids = {call["id"] for call in served.tool_calls}
    assert len(ids) == 2
    assert not ids & {"call_a", "call_b"}
    assert inner.asked == 1


BLOCKS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"type": st.just("text"), "text": st.text(max_size=20)}),
        st.fixed_dictionaries({"type": st.just("reasoning"), "reasoning": st.text(max_size=20)}),
        st.fixed_dictionaries({"type": st.just("image"), "url": st.just("https://example.org/a.png")}),
    ),
    max_size=3,
)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), st.lists, max_leaves=4)


@given(
    content=st.text(max_size=60) | BLOCKS,
    arguments=st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), max_size=3),
    kwargs=st.dictionaries(st.text(max_size=5) | st.just("reasoning_content"), VALUES, max_size=2),
)
def test_c3_pieces_add_up_to_the_same_message(content: Any, arguments: list[Any], kwargs: dict[str, Any]) -> None:
    calls = [{"name": "f", "args": args, "id": f"c{n}", "type": "tool_call"} for n, args in enumerate(arguments)]
    message = AIMessage(content, tool_calls=calls, additional_kwargs=kwargs, response_metadata={"a": {"b": 1}})
    chunks = list(answer_chunks(ChatGeneration(message=message, generation_info={"c": 2})))
    (generation,) = join_chunks(chunks).generations
    got = generation.message
    assert isinstance(got, AIMessage)
    assert (got.content, got.tool_calls, got.additional_kwargs) == (content, message.tool_calls, kwargs)
    assert (got.response_metadata, generation.generation_info, got.invalid_tool_calls) == (
        {"a": {"b": 1}},
        {"c": 2},
        [],
    )


def test_an_answer_under_another_role_is_streamed_as_well() -> None:
    model = CachedChatModel(Scripted(script=[ChatMessage(role="critic", content="Too long.")], usage=False), _cache())
    assert model.invoke("Hi").content == "".join(str(chunk.content) for chunk in model.stream("Hi")) == "Too long."
    assert model.stats()["hits"] == 1


def test_arguments_that_are_no_json_are_streamed_as_text() -> None:
    """As a model of one's own may give them: LangChain's chunks hold JSON alone."""
    call = {"name": "f", "args": {"when": datetime(2026, 1, 2, tzinfo=timezone.utc)}, "id": "c"}
    model = CachedChatModel(Scripted(script=[AIMessage("", tool_calls=[call])]), _cache())
    assert model.invoke("Hi").tool_calls[0]["args"] == call["args"]
    *_, last = model.stream("Hi")
    assert isinstance(last, AIMessage)
    assert last.tool_calls[0]["args"] == {"when": "2026-01-02 00:00:00+00:00"}


@pytest.mark.parametrize("way", WAYS)
def test_c1_what_a_provider_keeps_of_each_call_is_under_its_new_id(way: str) -> None:
    """As Gemini's signatures of its thoughts, without which it refuses the results of its calls."""
    signatures = {call["id"]: f"signature of {call['id']}" for call in CALLS}
    said = AIMessage(
        "", tool_calls=CALLS, additional_kwargs={"__gemini_function_call_thought_signatures__": signatures}
    )
    model = CachedChatModel(Scripted(script=[said]), _cache())
    model.invoke("Hi")
    hit = WAYS[way](model)
    (kept,) = hit.additional_kwargs.values()
    assert kept == dict(zip([call["id"] for call in hit.tool_calls], signatures.values(), strict=True))
    assert kept.keys().isdisjoint(signatures)


def test_c3_a_hit_streams_thoughts_before_the_text_as_the_provider_does() -> None:
    thought = AIMessage("Hello there!", additional_kwargs={"reasoning_content": "A greeting."})
    for content in (thought.content, thought.content_blocks):
        model = CachedChatModel(Scripted(script=[thought.model_copy(update={"content": content})]), _cache())
        blocks = [model.invoke("Hi").content_blocks, streamed(model).content_blocks]
        assert blocks == [thought.content_blocks] * 2
        shown = [block["type"] for chunk in model.stream("Hi") for block in chunk.content_blocks]
        assert shown == sorted(shown)  # reasoning, text


def test_c3_calls_that_could_not_be_parsed_stay_so_in_pieces() -> None:
    invalid = [{"name": "f", "args": "[not json", "id": "c1", "error": None, "type": "invalid_tool_call"}]
    message = AIMessage("", invalid_tool_calls=invalid)
    (generation,) = join_chunks(list(answer_chunks(ChatGeneration(message=message)))).generations
    assert isinstance(generation.message, AIMessage)
    assert [(call["name"], call["id"], call["args"]) for call in generation.message.invalid_tool_calls] == [
        ("f", "c1", "[not json")
    ]


def test_c2_what_a_reader_does_to_chunks_and_answers_changes_nothing() -> None:
    inner = Scripted(script=[AIMessage([{"type": "text", "text": "Hello"}], tool_calls=CALLS)])
    model = CachedChatModel(inner, _cache())
    for chunk in model.stream("Hi"):
        chunk.content = "spoiled"
        chunk.tool_calls.clear()
        chunk.response_metadata["spoiled"] = True
    for _ in range(2):
        hit = model.invoke("Hi")
        assert hit.content == [{"type": "text", "text": "Hello"}]
        assert len(hit.tool_calls) == 2
        assert "spoiled" not in hit.response_metadata
        hit.tool_calls.clear()
        hit.content = "spoiled"
    assert inner.asked == 1


def test_c5_several_answers_come_back_complete_and_no_stream_stands_for_them() -> None:
    inner = Scripted(n=3)
    model = CachedChatModel(inner, _cache())
    assert streamed(model).content == "Hello there!"
    for _ in range(2):
        assert len(model.generate([[HumanMessage("Hi")]]).generations[0]) == 3
    assert inner.asked == 2
    assert model.stats()["hits"] == 1
    plain = CachedChatModel(Scripted(), _cache())
    streamed(plain, n=2)
    assert (plain.wrapped.asked, plain.stats()["stored"]) == (1, 0)  # type: ignore[attr-defined]


async def test_c5_no_stream_on_an_event_loop_stands_for_several_answers() -> None:
    model = CachedChatModel(AsyncScripted(), _cache())
    for _ in range(2):
        assert [chunk async for chunk in model.astream("Hi", n=2)]
    assert (model.wrapped.asked, model.stats()["stored"]) == (2, 0)  # type: ignore[attr-defined]


async def test_c2_what_a_reader_does_to_chunks_on_an_event_loop_changes_nothing() -> None:
    model = CachedChatModel(AsyncScripted(script=[AIMessage("Hello there", tool_calls=CALLS)]), _cache())
    async for chunk in model.astream("Hi"):
        chunk.content = "spoiled"
        chunk.tool_call_chunks.clear()
        chunk.response_metadata["spoiled"] = True
    hit = model.invoke("Hi")
    assert (hit.content, len(hit.tool_calls), "spoiled" in hit.response_metadata) == ("Hello there", 2, False)


def test_a2_hits_of_a_model_without_usage_can_be_stored_and_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    model = CachedChatModel(Scripted(usage=False), url=url)
    history = BrainChatMessageHistory("s", url=url)
    for way in ("stream", "stream", "invoke"):
        said = WAYS[way](model)
        history.add_messages([HumanMessage("Hi"), said])
    read = "from langmem_adapters.langchain import BrainChatMessageHistory as H\nprint(len(H('s', url={!r}).messages))"
    done = subprocess.run(
        [sys.executable, "-c", read.format(url)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "6"


# --- what is not kept (C3, C7) ------------------------------------------------------------------------------


def test_c3_a_stream_that_was_broken_off_is_not_kept() -> None:
    inner = Scripted()
    model = CachedChatModel(inner, _cache())
    for chunk in model.stream("Hi"):
        assert chunk.content
        break
    assert streamed(model).content == "Hello there!"
    assert inner.asked == 2
    assert model.stats()["stored"] == 1
    assert model.stats()["hits"] == 0


async def test_c3_an_async_stream_that_was_broken_off_is_not_kept() -> None:
    inner = AsyncScripted()
    model = CachedChatModel(inner, _cache())
    stream = model.astream("Hi")
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert (await astreamed(model)).content == "Hello there!"
    assert inner.asked == 2


@pytest.mark.parametrize("way", WAYS)
def test_c3_a_call_that_fails_is_not_kept_and_the_next_one_asks(way: str) -> None:
    inner = Scripted(script=[OSError("down"), "Fine."])
    model = CachedChatModel(inner, _cache())
    with pytest.raises(OSError, match="down"):
        WAYS[way](model)
    assert WAYS[way](model).content == "Fine."
    assert model.stats()["stored"] == 1


def test_c7_a_truncated_or_empty_answer_is_not_kept() -> None:
    cut = AIMessage("Once upon", response_metadata={"finish_reason": "length"})
    inner = Scripted(script=[cut, AIMessage(""), "Whole."])
    model = CachedChatModel(inner, _cache())
    answers = [model.invoke("Hi").content, streamed(model).content, streamed(model).content, model.invoke("Hi").content]
    assert answers == ["Once upon", "", "Whole.", "Whole."]
    assert model.stats()["refused"] == 2


def test_what_json_lacks_comes_back_too() -> None:
    rich = AIMessage("Hi.", additional_kwargs={"pair": (1, b"2"), "deep": {3: {"$type": "x"}}})
    model = CachedChatModel(Scripted(script=[rich]), _cache())
    model.invoke("Hi")
    hit = model.invoke("Hi")
    assert hit.additional_kwargs == rich.additional_kwargs
    assert hit.response_metadata["cache"] == "hit"


def test_the_caches_own_rules_hold() -> None:
    clock = FakeClock()
    cache = _cache(should_store=lambda found: found[0].text != "No.", ttl=10, clock=clock)
    model = CachedChatModel(Scripted(script=["No.", "Yes.", "Later."]), cache)
    assert [model.invoke("Hi").content for _ in range(3)] == ["No.", "Yes.", "Yes."]
    clock.advance(5)
    assert model.invoke("Hi").response_metadata["cache_age"] == 5
    clock.advance(6)
    assert model.invoke("Hi").content == "Later."


@pytest.mark.parametrize(
    ("told", "is_kept"), [({}, False), ({"finish_reason": "stop"}, True), ({"status": "completed"}, True)]
)
@pytest.mark.parametrize("provider", ["openai", "openrouter"])
def test_c7_a_stream_that_ends_without_a_reason_is_not_kept(provider: str, told: dict[str, Any], is_kept: bool) -> None:
    def broken_off(_: list[BaseMessage]) -> AIMessage:
        return AIMessage("The cap", response_metadata={"model_provider": provider, **told})

    class Proxied(Scripted):
        def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            yield from answer_chunks(ChatGeneration(message=self._next(messages)))

    model = Proxied(script=[broken_off])
    cached = CachedChatModel(model, _cache())
    assert streamed(cached).content == streamed(cached).content == "The cap"
    assert model.asked == (1 if is_kept else 2)


@pytest.mark.parametrize("name", ["chat-ollama", "ollama-llm"])
def test_c7_an_answer_of_ollama_that_does_not_tell_that_it_is_done_is_not_kept(name: str) -> None:
    """It tells nothing else then, either: not even the provider."""

    class OfOllama(Scripted):
        @property
        def _llm_type(self) -> str:
            return name

    done = AIMessage("The capital is Paris.", response_metadata={"model_provider": "ollama", "done": True})
    model = OfOllama(script=["The cap", "The cap", done])
    cached = CachedChatModel(model, _cache())
    assert [cached.invoke("Hi").text for _ in range(2)] + [streamed(cached).text] == ["The cap", "The cap", done.text]
    assert streamed(cached).response_metadata["cache"] == "hit"


@pytest.mark.parametrize("told", [{"model_name": "sonar"}, None])  # by its completions, by its responses
def test_c7_a_stream_of_perplexity_that_ends_without_a_reason_is_not_kept(told: dict[str, Any] | None) -> None:
    """It does not tell its provider; and LangChain tells the reason of no answer that was not streamed."""

    class OfPerplexity(Scripted):
        @property
        def _llm_type(self) -> str:
            return "perplexitychat"

        def _generate(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=self._message(self._next(messages)))])

        def _stream(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            said = self._next(messages)
            chunk = AIMessageChunk(content=said.text, response_metadata=said.response_metadata)
            yield ChatGenerationChunk(message=chunk, generation_info=told)

    whole = AIMessage("The capital is Paris.", response_metadata={"status": "completed"})
    script = ["The cap", whole, AIMessage("Hello.", response_metadata={"model_name": "sonar"}), "Bye."]
    cached = CachedChatModel(OfPerplexity(script=script), _cache())
    assert [streamed(cached).text for _ in range(3)] == ["The cap", whole.text, whole.text]
    assert [cached.invoke("Hello?").text for _ in range(2)] == ["Hello.", "Hello."]


@pytest.mark.parametrize("name", ["chat-nvidia-ai-playground", "anthropic.claude", "mistral.large"])
def test_c7_a_stream_of_nvidia_or_bedrock_that_ends_without_a_reason_is_not_kept(name: str) -> None:
    """They tell no provider that is known to say why; only models of Anthropic say it through ChatBedrock."""

    class OfProvider(Scripted):
        @property
        def _llm_type(self) -> str:
            return name

        def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
            if name.startswith("chat"):
                return super()._get_llm_string(stop, **kwargs)
            return f'{{"id": ["langchain", "ChatBedrock"], "kwargs": {{"model_id": "{name}"}}}}---[]'

        def _stream(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            said = self._next(messages)
            for content, told in ((said.text, {"model_provider": "bedrock"}), ("", said.response_metadata)):
                yield ChatGenerationChunk(message=AIMessageChunk(content=content, response_metadata=told))

    whole = AIMessage("The capital is Paris.", response_metadata={"stop_reason": "end_turn"})
    model = OfProvider(script=["The cap", whole])
    cached = CachedChatModel(model, _cache())
    texts = [streamed(cached).text for _ in range(3)]
    assert texts == (["The cap"] * 3 if name == "mistral.large" else ["The cap", whole.text, whole.text])


@pytest.mark.parametrize("args", ['{"place": "Pa', '{"place": "Paris"', '{"place": '])
def test_c7_a_streamed_call_with_half_of_its_arguments_is_not_kept(args: str) -> None:
    """LangChain completes them by guessing, so that it looks like a call."""

    class Streaming(Scripted):
        def _stream(self, messages: list[BaseMessage], *_: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            whole_one = {"name": "look", "args": '{"place": "Rome\n"}', "id": "call_1", "index": 0}
            for call in (whole_one, {"name": "look", "args": self._next(messages), "id": "call_2", "index": 1}):
                yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call]))
            yield ChatGenerationChunk(message=AIMessageChunk(content=""), generation_info={"finish_reason": "stop"})

    model = Streaming(script=[lambda _: args, lambda _: '{"place": "Paris"}'])
    cached = CachedChatModel(model, _cache())
    for _ in range(3):
        said = streamed(cached)
    assert [call["args"] for call in said.tool_calls] == [{"place": "Rome\n"}, {"place": "Paris"}]
    assert said.response_metadata["cache"] == "hit"
    assert model.asked == 2


def test_a_streamed_call_with_half_of_its_arguments_is_an_invalid_one() -> None:
    """As it is where the answer comes as a whole, for those who keep such answers all the same."""
    calls: list[Any] = [
        {"name": "look", "args": args, "id": id_, "index": n}
        for n, (id_, args) in enumerate([("a", "{}"), ("b", '{"place": "Pa'), ("c", None)])
    ]
    chunks = [ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[call])) for call in calls]
    (generation,) = join_chunks(chunks).generations
    message = generation.message
    assert isinstance(message, AIMessage)
    assert [call["id"] for call in message.tool_calls] == ["a", "c"]
    assert [(call["id"], call["args"]) for call in message.invalid_tool_calls] == [("b", '{"place": "Pa')]


def test_c7_bypass_refresh_and_delete() -> None:
    cache = _cache()
    model = CachedChatModel(Scripted(script=["1", "2", "3", "4"]), cache)
    assert streamed(model).content == "1"
    with model.bypass():
        assert streamed(model).content == "2"
    assert streamed(model).content == "1"
    with model.refresh():
        assert streamed(model).content == "3"
    hit = streamed(model)
    assert hit.content == "3"
    assert cache.delete(hit)
    assert model.invoke("Hi").content == "4"


def test_c5_an_entry_that_cannot_be_read_is_a_miss_and_healed() -> None:
    store = MemoryStore()
    model = CachedChatModel(Scripted(script=["1", "2"]), ExperienceCache(store=store))
    model.invoke("Hi")
    (key,) = (key for key in store.get(("experience", "", "", "langchain")))
    for damage in (b"{", b'{"v":1,"resp":[{"message":{"role":3}}]}', b'{"v":1,"resp":[{"text":"no chat"}]}'):
        store.write(("experience", "", "", "langchain"), put={key: damage})
        assert model.invoke("Hi").content == "2"
        assert model.invoke("Hi").response_metadata["cache"] == "hit"
        model.script[:] = ["2"]


# --- the key (C4) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_c4_hits_are_those_of_set_llm_cache_and_the_other_way_round(way: str) -> None:
    inner, cache = Scripted(), _cache()
    model = CachedChatModel(inner, cache)
    set_llm_cache(cache)
    try:
        inner.invoke("Hi")
        assert WAYS[way](model).response_metadata["cache"] == "hit"
        asked = WAYS[way](model.bind(stop=["x"]))
        assert "cache" not in asked.response_metadata
        served = inner.invoke("Hi", stop=["x"])
        assert (served.content, served.response_metadata["finish_reason"]) == ("Hello there!", "stop")
        assert served.response_metadata["cache"] == "hit"
    finally:
        set_llm_cache(None)
    assert inner.asked == 2


def test_c4_answers_in_standard_blocks_are_shared_with_set_llm_cache_as_such() -> None:
    inner, cache = Scripted(output_version="v1"), _cache()
    streamed(CachedChatModel(inner, cache))
    set_llm_cache(cache)
    try:
        assert inner.invoke("Hi").content == [{"type": "text", "text": "Hello there!"}]
    finally:
        set_llm_cache(None)
    assert inner.asked == 1


def test_c1_another_cache_that_langchain_has_is_not_asked() -> None:
    class Refusing(ExperienceCache):
        def lookup(self, *args: Any) -> Any:
            raise AssertionError

        update = lookup  # type: ignore[assignment]

    set_llm_cache(Refusing(url="memory:"))
    try:
        model = CachedChatModel(Scripted(cache=Refusing(url="memory:")), _cache())
        assert model.invoke("Hi").content == streamed(model).content
    finally:
        set_llm_cache(None)


def test_c4_what_changes_the_answer_changes_the_key_and_nothing_else_does() -> None:
    with OpenAIServer() as server:
        cache = _cache()

        def asked(bind: dict[str, Any] | None = None, question: Any = "Hi", **settings: Any) -> int:
            fields = {"model": "gpt-4o", "base_url": server.url, "api_key": "k", **settings}
            before = len(server.requests)
            model = CachedChatModel(ChatOpenAI(**fields), cache)
            streamed(model.bind(**bind) if bind else model, question)
            return len(server.requests) - before

        assert asked() == 1
        same: list[dict[str, Any]] = [
            {},
            {"timeout": 7},
            {"max_retries": 9},
            {"streaming": True},
            {"stream_usage": True},
            {"callbacks": [BaseCallbackHandler()]},
            {"metadata": {"a": 1}},
            {"question": [HumanMessage("Hi", id="another")]},
        ]
        assert [asked(**change) for change in same] == [0] * len(same)
        schema = {"type": "object", "properties": {}, "title": "t"}
        form = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}
        image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
        function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        other: list[dict[str, Any]] = [
            {"model": "gpt-4o-mini"},
            {"temperature": 0.5},
            {"max_tokens": 5},
            {"bind": {"stop": ["."]}},
            {"bind": {"tools": [function]}},
            {"bind": {"tools": [function], "tool_choice": "required"}},
            {"bind": {"response_format": form}},
            {"question": [HumanMessage([{"type": "text", "text": "Hi"}, image])]},
            {"question": [SystemMessage("Be short."), HumanMessage("Hi")]},
        ]
        assert [asked(**change) for change in other] == [1] * len(other)
        assert [asked(**change) for change in other] == [0] * len(other)


@pytest.mark.parametrize("made", ["model_copy", "copy", "in place", "in a mapping of its own", "deep in a mapping"])
def test_c4_a_model_that_was_changed_after_its_first_call_is_another_one(server: OpenAIServer, made: str) -> None:
    body = {"of": {"whom": "a"}}
    cache, first = _cache(), _openai(server, model_kwargs={"user": "a"}, extra_body=body)
    assert CachedChatModel(first, cache).invoke("Hi").response_metadata["model_name"].startswith("gpt-4o")
    other = first.model_copy(update={"model_name": "gpt-5"}) if made == "model_copy" else copy.copy(first)
    if made == "in a mapping of its own":
        other.model_kwargs["user"] = "b"
    elif made == "deep in a mapping":
        body["of"]["whom"] = "b"
    elif made != "model_copy":
        other = first if made == "in place" else other
        other.model_name = "gpt-5"
    for asked in (2, 2):
        CachedChatModel(other, cache).invoke("Hi")
        assert len(server.requests) == asked
    changed = server.requests[1]
    told = changed["user"], changed["of"]["whom"], changed["model"] == "gpt-5"
    assert told == {"in a mapping of its own": ("b", "a", False), "deep in a mapping": ("a", "b", False)}.get(
        made, ("a", "a", True)
    )


class Noting(AsyncScripted):
    """Notes at which words it was to stop, and in which run that was."""

    _noted: list[tuple[list[str] | None, str]] = PrivateAttr(default_factory=list)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self._noted.append((stop, str(run_manager and run_manager.run_id)))
        return super()._generate(messages, stop, run_manager, **kwargs)

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        self._noted.append((stop, str(run_manager and run_manager.run_id)))
        yield from super()._stream(messages, stop, run_manager, **kwargs)


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_told_where_to_stop_and_in_which_run_it_is_asked(way: str) -> None:
    inner = Noting()
    asked = WAYS[way](CachedChatModel(inner, _cache()).bind(stop=["x"]))
    ((stop, run),) = inner._noted
    assert stop == ["x"]
    assert run == "None" if "stream" in way else run in asked.id  # LangChain tells no stream its run


class Silent(Scripted):
    """Tells LangChain no more of itself than its class, as models of Ollama do."""

    model: str = "small"
    temperature: float | None = None
    num_predict: int | None = None
    stop_when: Any = None
    base_url: str | None = None
    default_headers: dict[str, str] | None = None
    default_query: dict[str, str] | None = None
    api_key: str = "k"
    calls: int = 0
    seed: int = 0

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {}

    def _next(self, messages: list[BaseMessage]) -> Any:
        self.calls += 1
        return super()._next(messages)


class Loud(Silent):
    """Tells its name, and not where it is."""

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": self.model}


def _emptied(tools: list[dict[str, Any]]) -> None:
    """What ChatGoogleGenerativeAI does to a bound tool without arguments."""
    tools[0]["function"]["parameters"] = {}


class Careless(Scripted):
    """Changes what is bound to it."""

    def _generate(self, messages: list[BaseMessage], *args: Any, tools: Any = (), **kwargs: Any) -> ChatResult:
        _emptied(tools)
        return super()._generate(messages, *args, **kwargs)

    def _stream(self, messages: list[BaseMessage], *args: Any, tools: Any = (), **kwargs: Any) -> Iterator[Any]:
        _emptied(tools)
        return super()._stream(messages, *args, **kwargs)


@pytest.mark.parametrize("streams", [False, True])
def test_c4_a_model_that_changes_its_tools_is_asked_the_same_again(streams: bool) -> None:
    function: dict[str, Any] = {"name": "now", "parameters": {"type": "object", "properties": {}}}
    model = Careless()
    bound = CachedChatModel(model, _cache()).bind(tools=[{"type": "function", "function": function}])
    for _ in range(3):
        assert (streamed(bound) if streams else bound.invoke("Hi")).content == "Hello there!"
    assert model.asked == 1
    assert function["parameters"]["properties"] == {}


def test_c4_what_a_model_does_not_tell_of_itself_is_part_of_the_key() -> None:
    cache, said = _cache(), iter("abcdefghijklmnopq")

    def asked(kind: type[Silent] = Silent, **fields: Any) -> str:
        model = CachedChatModel(kind(script=[lambda _: AIMessage(next(said))], **fields), cache)
        first = model.invoke("Hi")
        assert model.invoke("Hi").content == first.content  # though it has counted its call
        return str(first.text)

    assert [asked(), asked(api_key="another"), asked(model="large"), asked(temperature=1)] == ["a", "a", "b", "c"]
    assert [asked(model="large", base_url="http://b"), asked(model="large")] == ["d", "b"]
    assert [asked(Loud), asked(Loud, base_url="http://b"), asked(Loud)] == ["e", "f", "e"]
    others: list[dict[str, Any]] = [{"default_headers": {"beta": "a"}}, {"default_headers": {"beta": "b"}}]
    others += [{"output_version": "v1"}, {"output_version": None, "default_headers": None, "default_query": None}]
    assert [asked(Loud, **fields) for fields in others] == ["g", "h", "i", "e"]
    small = Silent(script=[lambda _: AIMessage(next(said))])
    for name in ("small", "large"):  # found by what was asked above
        small.model = name
        assert CachedChatModel(small, cache).invoke("Hi").content == {"small": "a", "large": "b"}[name]
    limited = Silent(script=[lambda _: AIMessage(next(said))], num_predict=100)
    assert CachedChatModel(limited, cache).invoke("Hi").content == "j"
    limited.num_predict = 500  # a number as calls is, but not what a model counts in
    assert CachedChatModel(limited, cache).invoke("Hi").content == "k"
    assert [asked(kind, stop_when=Path(at)) for kind in (Silent, Loud) for at in "pqp"] == list("lmlnon")
    assert [asked(stop_when=np.array([1, end])) for end in (2, 3, 2)] == ["p", "q", "p"]
    assert b"langmem_adapters" not in pickle.dumps(_looked_at())
    for limited.stop_when in (_Array(), _Array()):  # another each time, which may not break the call
        assert CachedChatModel(limited, cache).invoke("Hi").content


class _Array:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def _looked_at() -> Any:
    model = FakeListChatModel(responses=["Hello."])
    CachedChatModel(model, _cache()).invoke("Hi")
    return model


def test_c8_threads_that_begin_with_a_new_model_do_not_disturb_each_other(server: OpenAIServer) -> None:
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for n in range(8):
            model, cache, gate = _openai(server), _cache(), threading.Event()

            def ask(model: Any = model, cache: Any = cache, gate: Any = gate, n: int = n) -> str:
                assert gate.wait(60)
                return str(CachedChatModel(model, cache).invoke(f"Hi {n}").content)

            assert set(on_threads(ask, gate.set)) == {f"You said: Hi {n}"}
    finally:
        sys.setswitchinterval(often)


def test_c4_a_copy_with_another_number_is_another_model_though_a_model_may_count_its_calls() -> None:
    cache, said = _cache(), iter("abc")
    model = Silent(script=[lambda _: AIMessage(next(said))])
    assert [CachedChatModel(model, cache).invoke("Hi").content for _ in range(2)] == ["a", "a"]
    other = model.model_copy(update={"seed": 5})
    assert [CachedChatModel(other, cache).invoke("Hi").content for _ in range(2)] == ["b", "b"]


@pytest.mark.parametrize("way", WAYS)
def test_c4_a_number_set_in_a_model_is_a_setting_and_one_in_which_it_counts_calls_is_none(way: str) -> None:
    said = iter("abcdef")
    small = Silent(script=[lambda _: AIMessage(next(said))])
    model, ask = CachedChatModel(small, _cache()), WAYS[way]
    assert [ask(model).content, ask(model).content] == ["a", "a"]
    small.seed = 5
    assert [ask(model).content, ask(model).content] == ["b", "b"]
    small.seed = 6
    assert [ask(model).content, model.invoke("Ho").content, ask(model).content] == ["c", "d", "c"]
    small.seed = 0
    assert [ask(model).content, small.calls] == ["a", 4]


class _CountingOpenAI(ChatOpenAI):
    calls: int = 0

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("not yet")
        return super()._generate(*args, **kwargs)


def test_c4_a_call_that_failed_is_counted_by_the_model_too(server: OpenAIServer) -> None:
    model = _CountingOpenAI(model="gpt-4o", base_url=server.url, api_key="k", max_retries=0)
    cached = CachedChatModel(model, _cache())
    with pytest.raises(ConnectionError, match="not yet"):
        cached.invoke("Hi")
    assert [cached.invoke("Hi").content for _ in range(3)] == ["You said: Hi"] * 3
    assert (len(server.requests), model.calls) == (1, 2)


class Told(Scripted):
    """Counts how often LangChain goes through its fields, where another thread may be about to do so too."""

    _both: threading.Barrier = PrivateAttr(default_factory=lambda: threading.Barrier(2))
    _told: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    def to_json(self) -> Any:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.5)
        self._told.append("told")
        return super().to_json()


def test_c8_langchain_goes_through_a_new_model_for_one_thread_at_a_time() -> None:
    inner, cache = Told(), _cache()
    threads = [threading.Thread(target=CachedChatModel(inner, cache).invoke, args=["Hi"]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert inner._told == ["told"]


def test_c4_a_copy_with_another_field_of_the_models_is_a_copy_of_the_model(server: OpenAIServer) -> None:
    model = CachedChatModel(_openai(server), _cache())
    other = model.model_copy(update={"temperature": 0.5, "tags": ["a"]})
    assert (other.temperature, model.temperature, other.tags) == (0.5, None, ["a"])
    for _ in range(2):
        model.invoke("Hi")
        other.invoke("Hi")
    assert [request.get("temperature") for request in server.requests] == [None, 0.5]
    assert model.stats()["hits"] == 2  # of one cache


def test_c4_a_field_of_the_models_is_set_in_the_model(server: OpenAIServer) -> None:
    """As ragas does for each call, and sets it back."""
    model = CachedChatModel(_openai(server), _cache())
    for temperature in (0.5, None, 0.5):
        model.temperature = temperature
        assert model.wrapped.temperature == temperature  # type: ignore[attr-defined]
        model.invoke("Hi")
    model.tags = ["a"]
    assert [request.get("temperature") for request in server.requests] == [0.5, None]
    assert (model.stats()["hits"], model.wrapped.tags) == (1, None)
    with pytest.raises(ValueError, match='no field "no_field"'):
        model.no_field = 1


def test_c4_fields_that_a_runs_configuration_sets_are_the_models(server: OpenAIServer) -> None:
    model = CachedChatModel(_openai(server, tags=["mine"]), _cache())
    one = model.configurable_fields(temperature=ConfigurableField("t"))
    both = one.configurable_fields(model_name=ConfigurableField("model"))
    chain = ChatPromptTemplate.from_messages([("human", "{q}")]) | both.with_config(tags=["t"]) | StrOutputParser()
    assert {spec.id for spec in chain.config_specs} == {"t", "model"}
    for configurable in ({}, {"t": 0.5}, {"t": 0.5, "model": "gpt-4o-mini"}):
        config: RunnableConfig = {"configurable": configurable}
        assert chain.invoke({"q": "Hi"}, config) == "".join(chain.stream({"q": "Hi"}, config))
    sent = [(request["model"], request.get("temperature")) for request in server.requests]
    assert sent == [(model.model_name, None), (model.model_name, 0.5), ("gpt-4o-mini", 0.5)]
    assert (model.stats()["hits"], model.temperature) == (3, None)  # of one cache
    assert both.with_fallbacks([model]).invoke("Hi", {"configurable": {"t": 0.5}}).response_metadata["cache"] == "hit"
    with pytest.raises(ValueError, match="no_field not found"):
        both.configurable_fields(no_field=ConfigurableField("n"))


def test_c10_another_tenant_is_asked_for_itself() -> None:
    store, inner = MemoryStore(), Scripted(script=["For a.", "For b."])
    models = [CachedChatModel(inner, ExperienceCache(store=store, tenant=tenant)) for tenant in "ab"]
    assert [model.invoke("Hi").content for model in models * 2] == ["For a.", "For b."] * 2
    assert inner.asked == 2


# --- many at once (C8) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_c8_fifty_threads_make_one_call(any_store: Store, way: str) -> None:
    gate = threading.Event()
    inner = Scripted(gate=gate)
    model = CachedChatModel(inner, ExperienceCache(store=any_store))

    def release() -> None:
        until(lambda: model.stats()["misses"] == CROWD)
        gate.set()

    got = on_threads(lambda: WAYS[way](model), release)
    assert [message.content for message in got] == ["Hello there!"] * CROWD
    assert len({message.id for message in got}) == CROWD
    assert sum(message.usage_metadata["total_tokens"] for message in got) == 7
    assert inner.asked == 1
    assert model.stats()["hits"] == CROWD - 1


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_c8_fifty_tasks_make_one_call(any_store: Store, way: str) -> None:
    gate = threading.Event()
    inner = Scripted(gate=gate)
    model = CachedChatModel(inner, ExperienceCache(store=any_store))
    work = model.ainvoke if way == "ainvoke" else lambda question: astreamed(model, question)
    tasks = [asyncio.ensure_future(work("Hi")) for _ in range(CROWD)]
    await auntil(lambda: model.stats()["misses"] == CROWD)
    gate.set()
    got = await asyncio.gather(*tasks)
    assert [message.content for message in got] == ["Hello there!"] * CROWD
    assert len({message.id for message in got}) == CROWD
    assert inner.asked == 1


@pytest.mark.parametrize("told", [{}, {"model_name": "m"}])
@pytest.mark.parametrize("default", [[], Field(default_factory=set), 0], ids=["list", "set", "count"])
def test_c8_a_model_that_keeps_its_calls_is_the_same_while_it_is_asked(told: dict[str, Any], default: Any) -> None:
    began, gate, asked = threading.Event(), threading.Event(), list[str]()

    class Keeping(BaseChatModel):
        calls: Any = default

        @property
        def _llm_type(self) -> str:
            return "keeping"

        @property
        def _identifying_params(self) -> dict[str, Any]:
            return told

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            if isinstance(self.calls, list):
                self.calls.append(messages[-1].text)
            elif isinstance(self.calls, set):
                self.calls.add(messages[-1].text)
            else:
                self.calls += 1
            asked.append(messages[-1].text)
            began.set()
            assert gate.wait(30)
            return ChatResult(generations=[ChatGeneration(message=AIMessage("Hello!"))])

    model = CachedChatModel(Keeping(), _cache())
    with ThreadPoolExecutor() as pool:
        first = pool.submit(model.invoke, "Hi")
        assert began.wait(30)
        second = pool.submit(model.invoke, "Hi")
        until(lambda: model.stats()["misses"] == 2)
        gate.set()
        assert [first.result(30).text, second.result(30).text] == ["Hello!"] * 2
    assert asked == ["Hi"]


def test_c2_what_a_model_was_given_is_its_own_though_it_adds_to_it() -> None:
    class Rotating(BaseChatModel):
        script: list[str] = Field(default_factory=list)

        @property
        def _llm_type(self) -> str:
            return "rotating"

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            self.script.append(self.script.pop(0))
            return ChatResult(generations=[ChatGeneration(message=AIMessage(self.script[-1]))])

    store = MemoryStore()
    said = [CachedChatModel(Rotating(script=[word]), ExperienceCache(store=store)).invoke("Hi").text for word in "ab"]
    assert said == ["a", "b"]


class Remembering(BaseChatModel):
    history: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "remembering"


class RememberingInOneMethod(Remembering):
    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.history.append(messages[-1].text)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(" ".join(self.history)))])


class RememberingInAnother(Remembering):
    def _prompt(self) -> str:
        return " ".join(self.history)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.history.append(messages[-1].text)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self._prompt()))])


class RememberingInAProperty(Remembering):
    @property
    def prompt(self) -> str:
        return " ".join(self.history)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.history.append(messages[-1].text)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.prompt))])


def prompt_of(model: Remembering) -> str:
    return " ".join(model.history)


class RememberingInAFunction(Remembering):
    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.history.append(messages[-1].text)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(prompt_of(self)))])


@pytest.mark.parametrize(
    "kind", [RememberingInOneMethod, RememberingInAnother, RememberingInAProperty, RememberingInAFunction]
)
def test_c2_a_model_that_sends_what_it_was_asked_before_is_never_served_from_another_conversation(
    kind: type[Remembering],
) -> None:
    model = CachedChatModel(kind(), _cache())
    assert [model.invoke(word).text for word in ("One", "Yes", "Two", "Yes")][-1] == "One Yes Two Yes"


def test_c2_what_another_method_of_a_model_sets_is_a_setting() -> None:
    class Moody(BaseChatModel):
        mood: int = 0

        @property
        def _llm_type(self) -> str:
            return "moody"

        def become(self, mood: int) -> None:
            self.mood = mood

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(f"Mood {self.mood}"))])

    store = MemoryStore()
    for mood in (1, 2):
        inner = Moody()
        inner.become(mood)
        assert CachedChatModel(inner, ExperienceCache(store=store)).invoke("Hi").text == f"Mood {mood}"


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
@pytest.mark.parametrize("kind", ["many", "picture"])
async def test_a5_what_takes_a_while_to_read_is_read_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, kind: str, way: str
) -> None:
    """And belongs to the tenant of its task, whoever that is."""
    threads: list[int] = []

    def noting(prompt: str, llm_string: str) -> str:
        threads.append(threading.get_ident())
        return request_key(prompt, llm_string)

    monkeypatch.setattr(chat_model, "request_key", noting)
    tenant: ContextVar[str | None] = ContextVar("tenant", default=None)
    inner = AsyncScripted()
    cache = ExperienceCache(store=MemoryStore(), tenant=lambda: asyncio.current_task() and tenant.get())
    model = CachedChatModel(inner, cache)
    work = model.ainvoke if way == "ainvoke" else lambda question: astreamed(model, question)
    question: Any = {"type": "text", "text": "What is it?"}
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    many = [HumanMessage(f"My bike is in shed {n}.") for n in range(1000)]
    long = many if kind == "many" else [HumanMessage(["Look:", question, image])]
    await work(long)
    assert (model.stats()["bypassed"], threads) == (1, [])  # there is no tenant
    for name in ("acme", "globex", "acme"):
        tenant.set(name)
        assert (await work(long)).content == "Hello there!"
    assert (inner.asked, model.stats()["hits"], len(threads)) == (3, 1, 3)
    assert threading.get_ident() not in threads
    assert model.invoke(long).response_metadata["cache"] == "hit"  # the same request
    unkeyed: Any = model.bind(what=object())
    await (unkeyed.ainvoke(long) if way == "ainvoke" else astreamed(unkeyed, long))
    assert model.stats()["unkeyed"] == 1
    await work([HumanMessage([question])])
    assert threads[-1] == threading.get_ident()  # a hop would take longer


@pytest.mark.parametrize("content", [None, (1, 2)])
async def test_c1_what_no_message_says_is_a_request_too(content: Any) -> None:
    unchecked: list[Any] = [AIMessage.model_construct(content=content)]
    model = CachedChatModel(FakeListChatModel(responses=["one", "two"]), ExperienceCache(store=MemoryStore()))
    assert [(await model.ainvoke(unchecked)).text, model.invoke(unchecked).text] == ["one", "one"]


async def test_a5_a_hit_that_is_long_lets_others_run() -> None:
    model = CachedChatModel(Scripted(script=["word " * 2000]), ExperienceCache(store=MemoryStore()))
    await astreamed(model)
    reads = 0
    seen: set[int] = set()

    async def others() -> None:
        while True:
            seen.add(reads)
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    async for _ in model.astream("Hi"):
        reads += 1
    task.cancel()
    assert model.stats()["hits"] == 1
    assert reads >= 2000
    assert all(after - before <= 110 for before, after in itertools.pairwise(sorted({*seen, reads})))


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_c8_a_failed_leader_does_not_fail_its_followers(way: str) -> None:
    gate = threading.Event()
    inner = Scripted(script=[OSError("the leader's"), "Fine."], gate=gate)
    model = CachedChatModel(inner, _cache())

    def release() -> None:
        until(lambda: model.stats()["misses"] == CROWD)
        gate.set()

    got = on_threads(lambda: WAYS[way](model), release)
    assert sum(isinstance(outcome, OSError) for outcome in got) == 1
    assert 2 <= inner.asked <= CROWD


def test_c8_a_stream_that_is_broken_off_lets_its_followers_go() -> None:
    inner = Scripted(script=["One two.", "Three."])
    model = CachedChatModel(inner, _cache())
    stream = model.stream("Hi")
    next(stream)
    got: list[Any] = []
    follower = threading.Thread(target=lambda: got.append(model.invoke("Hi").content))
    follower.start()
    until(lambda: model.stats()["misses"] == 2)
    stream.close()  # type: ignore[attr-defined]
    follower.join(120)
    assert got == ["Three."]


def test_c8_who_reads_a_stream_and_asks_the_same_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 60)
    inner = Scripted()
    model = CachedChatModel(inner, _cache())
    before = time.monotonic()
    for _ in model.stream("Hi"):
        model.invoke("Hi")
        list(model.stream("Hi"))
    assert time.monotonic() - before < 20
    assert inner.asked == 2  # and from the second on, the answer is there
    assert model.invoke("Hi").response_metadata["cache"] == "hit"


async def test_c8_a_task_that_reads_a_stream_and_asks_the_same_does_not_wait_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 60)
    inner = AsyncScripted()
    model = CachedChatModel(inner, _cache())
    before = time.monotonic()
    async for _ in model.astream("Hi"):
        await model.ainvoke("Hi")
        await astreamed(model)
    assert time.monotonic() - before < 20
    assert inner.asked == 2
    assert all(inner._loops)


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_c8_a_call_that_is_cancelled_before_its_answer_is_kept_leaves_nobody_waiting(way: str) -> None:
    """Also while somebody holds the error, as who asks once more in an ``except`` does."""
    held: list[Any] = []

    class Cancelled(AsyncScripted):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
            held.extend([] if held else await cancel_before_the_next_step(task))
            return await super()._agenerate(*args, **kwargs)

        async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
            async for chunk in super()._astream(*args, **kwargs):
                yield chunk
            held.extend([] if held else await cancel_before_the_next_step(task))

    model = CachedChatModel(Cancelled(), _cache(), wait=25)

    async def ask() -> BaseMessage:
        return await (model.ainvoke("Hi") if way == "ainvoke" else astreamed(model))

    task = asyncio.create_task(ask())
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    before = time.monotonic()
    assert (await ask()).content == "Hello there!"
    assert time.monotonic() - before < 10
    assert cancelled.tb is not None
    await asyncio.gather(*held)


def test_c8_nor_does_who_reads_it_through_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which runs each step in a context of its own."""
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 60)
    inner = Scripted()
    chain = ChatPromptTemplate.from_messages([("human", "{q}")]) | CachedChatModel(inner, _cache())
    before = time.monotonic()
    for _ in chain.stream({"q": "Hi"}):
        chain.invoke({"q": "Hi"})
    assert time.monotonic() - before < 20
    assert inner.asked == 2


def test_c8_a_stream_may_be_read_on_several_threads() -> None:
    """As web servers do it: each piece on whatever thread is free."""
    model = CachedChatModel(Scripted(script=["One two three."]), _cache())
    for _ in range(2):
        stream = model.stream("Hi")
        words: list[Any] = []

        def read(stream: Iterator[Any] = stream, words: list[Any] = words) -> None:
            words.append(next(stream, None))

        for _ in range(6):
            thread = threading.Thread(target=read)
            thread.start()
            thread.join(120)
        assert "".join(word.content for word in words if word) == "One two three."
    assert model.stats()["hits"] == 1


def test_c8_nobody_waits_for_a_stream_whose_readers_thread_has_ended() -> None:
    model = CachedChatModel(Scripted(script=["One two three.", "Another."]), _cache(), wait=60)
    begun: list[Any] = []

    def begin() -> None:
        begun.append(model.stream("Hi"))
        next(begun[0])

    reader = threading.Thread(target=begin)
    reader.start()
    reader.join(120)
    started = time.monotonic()
    assert model.invoke("Hi").content == "Another."
    assert time.monotonic() - started < 30
    assert "".join(chunk.content for chunk in begun[0]) == "two three."


def test_c8_nobody_waits_long_for_a_stream_that_is_not_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server leaves a blocking stream as it is when its client goes, and the thread that read it serves others."""
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 0.01)
    model = CachedChatModel(Scripted(script=["One two three.", "Another."]), _cache(), wait=60)
    leave = threading.Event()
    begun: list[Any] = []

    def serve() -> None:
        begun.append(model.stream("Hi"))
        next(begun[0])
        leave.wait(120)

    server = threading.Thread(target=serve)
    server.start()
    until(lambda: bool(begun))
    started = time.monotonic()
    assert model.invoke("Hi").content == "Another."
    assert time.monotonic() - started < 30
    leave.set()
    server.join(120)


def test_c8_of_those_who_wait_for_a_stream_that_is_not_read_on_one_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 0.01)
    waits, wait = Counter[Any](), flights.Flight.wait

    def counted(flight: flights.Flight, seconds: float) -> Flow[bool]:
        waits[flight] += 1
        return wait(flight, seconds)

    def answer(_: object) -> AIMessage:
        until(lambda: inner.asked == 5 or list(waits.values())[1:] == [3])  # all others wait for this one
        return AIMessage("Another.")

    monkeypatch.setattr(flights.Flight, "wait", counted)
    inner = Scripted(script=["One two three.", answer])
    model = CachedChatModel(inner, _cache(), wait=60)
    stream = model.stream("Hi")
    next(stream)
    assert on_threads(lambda: model.invoke("Hi").content, crowd=4) == ["Another."] * 4
    assert inner.asked == 2
    assert "".join(chunk.text for chunk in stream) == "two three."  # who reads on after all has all of it


async def test_c8_nor_for_an_async_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 0.01)
    model = CachedChatModel(Scripted(script=["One two three.", "Another."]), _cache(), wait=60)
    stream = model.astream("Hi")
    await anext(stream)
    task = contextvars.Context().run(asyncio.create_task, model.ainvoke("Hi"))
    assert (await asyncio.wait_for(task, 30)).content == "Another."
    await stream.aclose()  # type: ignore[attr-defined]


def test_c8_who_reads_many_streams_remembers_none_that_has_ended() -> None:
    def remembered() -> int:
        gc.collect()
        return sum(isinstance(one, flights.Flight) for one in gc.get_objects())

    model = CachedChatModel(Scripted(), _cache())
    before = remembered()  # other tests' models may not be garbage yet
    for n in range(9):
        list(model.stream(f"Hi {n}"))
    assert remembered() <= before + 1


def test_c8_a_stream_whose_model_takes_its_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not waited for is a reader who takes so long between two pieces."""
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 0.01)
    thinks, go_on = threading.Event(), threading.Event()

    class Slow(Scripted):
        def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
            for chunk in super()._stream(messages, *args, **kwargs):
                yield chunk
                thinks.set()
                assert go_on.wait(120)

    inner = Slow(script=["One two three.", "Another."])
    model = CachedChatModel(inner, _cache(), wait=60)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append("".join(chunk.text for chunk in model.stream("Hi"))))
    other = threading.Thread(target=lambda: got.append(model.invoke("Hi").text))
    reader.start()
    assert thinks.wait(120)
    other.start()
    other.join(0.7)
    assert other.is_alive()
    go_on.set()
    for thread in (reader, other):
        thread.join(120)
    assert (got, inner.asked) == (["One two three."] * 2, 1)


def test_c8_who_reads_on_a_thread_that_python_has_not_made_is_waited_for() -> None:
    """As gevent's greenlets are, and threads of extensions."""
    gate = threading.Event()
    inner = Scripted(gate=gate)
    model = CachedChatModel(inner, _cache(), wait=60)
    _thread.start_new_thread(lambda: list(model.stream("Hi")), ())
    until(lambda: inner.asked == 1)

    def release() -> None:
        until(lambda: model.stats()["misses"] == CROWD + 1)
        gate.set()

    assert on_threads(lambda: model.invoke("Hi").content, release) == ["Hello there!"] * CROWD
    assert inner.asked == 1


def test_copies_have_the_same_cache_and_a_pickle_opens_it_again(tmp_path: Path) -> None:
    inner = FakeListChatModel(responses=["In Paris.", "In Lyon."])
    model = CachedChatModel(inner, url=f"sqlite:///{tmp_path}/cache.db")
    assert model.invoke("Where?").content == "In Paris."
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert again.invoke("Where?").content == "In Paris."
    assert copy.deepcopy(model).wrapped is not inner
    assert copy.deepcopy(model).stats() == model.stats()


class Regional(CachedChatModel):
    """A cached model of the user's own, which is made in a way of its own."""

    region: str = "eu"

    def __init__(self, region: str, **options: Any) -> None:
        super().__init__(FakeListChatModel(responses=["one", "two"]), **options)
        self.region = region


@pytest.mark.parametrize("kind", [CachedChatModel, Regional])
def test_a_pickle_has_what_was_set_on_the_cached_model_and_its_class(kind: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"url": f"sqlite:///{tmp_path}/cache.db"}
    given: Any = "us" if kind is Regional else FakeListChatModel(responses=["one", "two"])
    model = kind(given, **options)
    model.invoke("Hi")
    model.name, model.tags, model.output_version = "answers", ["mine"], "v1"
    loaded = pickle.loads(pickle.dumps(model.model_copy(update={"metadata": {"team": "red"}})))
    assert (type(loaded), loaded.name, loaded.tags, loaded.metadata) == (kind, "answers", ["mine"], {"team": "red"})
    assert loaded.model_fields_set == model.model_fields_set
    assert loaded.wrapped.tags is None
    assert loaded.invoke("Hi").content == model.invoke("Hi").content != "one"  # blocks, as of version 1
    assert getattr(loaded, "region", "us") == "us"


@pytest.mark.parametrize(
    "options", [{"cache": ExperienceCache(store=MemoryStore())}, {"url": "redis://:hunter2@127.0.0.1:1/0"}]
)
def test_a_model_that_cannot_be_opened_again_cannot_be_pickled(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"a CachedChatModel .* cannot be pickled") as refused:
        pickle.dumps(CachedChatModel(FakeListChatModel(responses=["x"]), **options))
    assert "hunter2" not in str(refused.value)


def test_c8_wait_zero_means_that_everybody_asks() -> None:
    gate = threading.Event()
    inner = Scripted(gate=gate)
    model = CachedChatModel(inner, _cache(), wait=0)

    def release() -> None:
        until(lambda: inner.asked == CROWD)
        gate.set()

    on_threads(lambda: model.invoke("Hi"), release)


_ONE_OF_MANY = """
import sys, time
from pathlib import Path
from langchain_core.language_models import FakeListChatModel
from langmem_adapters import open_store
from langmem_adapters.langchain import CachedChatModel, ExperienceCache

class Slow(FakeListChatModel):
    def _call(self, *args, **kwargs):
        with open(sys.argv[2], "a") as log:
            log.write("asked\\n")
        time.sleep(1)
        return super()._call(*args, **kwargs)

Path(sys.argv[3]).touch()
while not Path(sys.argv[4]).exists():
    time.sleep(0.005)
cache = ExperienceCache(store=open_store(sys.argv[1]))
print(CachedChatModel(Slow(responses=["Paris"]), cache).invoke("Where?").content)
"""


@pytest.mark.own
def test_c8_across_processes_one_asks(tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    ready = [tmp_path / f"ready{n}" for n in range(3)]
    url = f"sqlite:///{tmp_path}/a.db"
    CachedChatModel(Scripted(), ExperienceCache(store=SQLiteStore(tmp_path / "a.db"))).invoke("so that it is there")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _ONE_OF_MANY, url, str(log), str(there), str(go)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for there in ready
    ]
    until(lambda: all(there.exists() for there in ready))
    go.touch()
    assert [process.communicate(timeout=180)[0].strip() for process in running] == ["Paris"] * 3
    assert log.read_text() == "asked\n"


# --- the semantic mode (D2, D3) -----------------------------------------------------------------------------


class Vectors:
    """Makes all texts of the same words, in any order, the same vector."""

    name = "by words"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * 64
        for word in text.lower().strip("?!. ").split():
            vector[hash_of(word) % 64] += 1.0
        return vector


def hash_of(word: str) -> int:
    return int.from_bytes(word.encode(), "big") % 1009


@pytest.mark.usefixtures("patient_search")
def test_d2_the_same_in_other_words_is_served_as_the_cache_has_it(tmp_path: Path) -> None:
    cache = ExperienceCache(f"sqlite:///{tmp_path}/a.db", semantic=Vectors())
    inner = Scripted(script=["In the shed.", "Elsewhere.", AIMessage("", tool_calls=CALLS)])
    model = CachedChatModel(inner, cache)
    streamed(model, "Where is my bike?")
    for way in ("stream", "invoke"):
        hit = streamed(model, "where is my bike") if way == "stream" else model.invoke("Where is my bike??")
        assert (hit.content, hit.response_metadata["cache"]) == ("In the shed.", "semantic")
        assert hit.usage_metadata is not None
        assert hit.usage_metadata["total_tokens"] == 0
    assert inner.asked == 1
    assert model.stats()["semantic_hits"] == model.stats()["hits"] == 2
    rejected = model.stats()["rejected"]
    assert model.invoke("Where is our car?").content == "Elsewhere."
    assert model.stats()["rejected"] == rejected + 1  # looked for once, though the store is looked at twice
    assert cache.delete(hit)
    inner.script[:] = ["", "", "Behind the house.", AIMessage("", tool_calls=CALLS)]
    assert model.invoke("Where is my bike?").content == "Behind the house."
    calls = model.bind(stop=["x"])
    for question in ("Weather in Rome?", "weather in rome"):
        assert "cache" not in calls.invoke(question).response_metadata  # D3: calls are served to the very same alone
    assert calls.invoke("weather in rome").response_metadata["cache"] == "hit"


@pytest.mark.parametrize("semantic", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_c9_the_cache_knows_what_its_models_hits_have_saved(way: str, semantic: bool) -> None:
    cache = ExperienceCache("memory:", tag=f"{way} {semantic}", semantic=Vectors() if semantic else None)
    model, other = CachedChatModel(Scripted(), cache), CachedChatModel(Scripted(), cache)
    for each in (model, model, other, other):
        WAYS[way](each)
    direct = Scripted(cache=cache)
    WAYS[way](direct)
    saved = 28 if way in {"invoke", "ainvoke", "batch", "abatch"} else 21  # a cache serves no streams
    for told in (cache.stats(), model.stats(), other.stats()):
        assert (told["hits"], told["saved_tokens"]) == (saved // 7, saved)


@pytest.mark.parametrize("way", WAYS)
def test_the_cache_knows_what_was_refused_and_failed_at_its_models(way: str) -> None:
    cache = ExperienceCache(store=MemoryStore())
    model = CachedChatModel(Scripted(script=[AIMessage("")]), cache)
    WAYS[way](model)
    assert (cache.stats()["refused"], model.stats()["refused"]) == (1, 1)
    away = ExperienceCache(store=Down())
    without = CachedChatModel(Scripted(), away)
    WAYS[way](without)
    assert away.stats()["errors"] == without.stats()["errors"] > 0


# --- outages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_outage_of_the_store_does_not_touch_the_call(way: str, caplog: pytest.LogCaptureFixture) -> None:
    model = CachedChatModel(Scripted(), ExperienceCache(store=Down()))
    for _ in range(3):
        assert WAYS[way](model).content == "Hello there!"
    assert model.stats()["errors"] > 0
    assert [record.message for record in caplog.records] == [
        "the model call goes on without its cache: StoreUnavailable: nobody answers"
    ]
    with pytest.raises(StoreUnavailable):
        WAYS[way](CachedChatModel(Scripted(), ExperienceCache(store=Down(), on_error="raise")))


def test_c8_one_asks_for_all_while_the_store_is_away() -> None:
    gate = threading.Event()
    inner = Scripted(gate=gate)
    model = CachedChatModel(inner, ExperienceCache(store=Down()))

    def release() -> None:
        until(lambda: model.stats()["errors"] > CROWD)  # the leader has failed at its lease, too
        gate.set()

    got = on_threads(lambda: model.invoke("Hi"), release)
    assert inner.asked == 1
    ages = [message.response_metadata["cache_age"] for message in got if "cache" in message.response_metadata]
    assert len(ages) == CROWD - 1
    assert max(ages) < 60


def test_an_answer_that_cannot_be_stored_is_given_and_not_kept() -> None:
    odd = AIMessage("Odd.", additional_kwargs={"thing": threading.Lock()})  # nor can it be copied
    model = CachedChatModel(Scripted(script=[odd]), _cache())
    assert model.invoke("Hi").content == streamed(model).content == "Odd."
    assert model.stats()["refused"] == 2


# --- everything else as the model has it --------------------------------------------------------------------


class Watching(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.started: list[tuple[Any, Any]] = []
        self.tags: list[Any] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.seen.append("start")
        self.tags.append((kwargs.get("tags"), kwargs.get("metadata")))
        self.started.append((serialized, kwargs["invocation_params"]))

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.seen.append("token")

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.seen.append(f"end {response.generations[0][0].message.usage_metadata['total_tokens']}")

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.seen.append("error")


@pytest.mark.parametrize("way", WAYS)
def test_c9_callbacks_are_told_of_hits_once_and_that_they_cost_nothing(way: str) -> None:
    watching = Watching()
    inner = Scripted(script=["Hello"], callbacks=[watching], tags=["mine"], metadata={"m": 1})
    model = CachedChatModel(inner, _cache())
    WAYS[way](model)
    WAYS[way](model)
    told = [what for what in watching.seen if what != "token"]
    assert told == ["start", "end 7", "start", "end 0"]
    assert ("token" in watching.seen) is (way in {"stream", "astream"})
    assert all(tags == ["mine"] and metadata["m"] == 1 for tags, metadata in watching.tags)
    assert watching.started[0][1]["usage"] is True
    with get_usage_metadata_callback() as used:
        WAYS[way](model)
    assert all(usage["total_tokens"] == 0 for usage in used.usage_metadata.values())


def test_traces_show_the_model_itself() -> None:
    watching = Watching()
    settings: Any = {"model": "gpt-4o", "api_key": "k", "base_url": "http://127.0.0.1:9/v1", "max_retries": 0}
    model = CachedChatModel(ChatOpenAI(callbacks=[watching], **settings), _cache())
    with pytest.raises(Exception, match="Connection"):
        model.invoke("Hi")
    assert watching.seen == ["start", "error"]
    serialized, params = watching.started[0]
    assert (serialized["name"], params["model"]) == ("ChatOpenAI", "gpt-4o")
    assert watching.tags[0][1]["ls_model_name"] == "gpt-4o"
    assert model.model_name == "gpt-4o"


def test_tokens_are_those_of_the_model() -> None:
    model = CachedChatModel(Scripted(custom_get_token_ids=lambda text: [1] * len(text)), _cache())
    assert model.get_token_ids("four") == [1] * 4
    assert model.get_num_tokens("four") == 4
    assert model.get_num_tokens_from_messages([HumanMessage("four")]) == len("Human: four")
    by_words = model.model_copy(update={"custom_get_token_ids": lambda text: [1] * len(text.split())})
    assert (by_words.get_num_tokens("one two"), model.get_num_tokens("one two")) == (2, 7)
    told: list[bool] = []

    class Looking(Scripted):  # as ChatOpenAI has it
        def get_num_tokens_from_messages(
            self, messages: Any, tools: Any = None, *, allow_fetching_images: bool = True
        ) -> int:
            told.append(allow_fetching_images)
            return super().get_num_tokens_from_messages(messages, tools)

    CachedChatModel(Looking(), _cache()).get_num_tokens_from_messages([], allow_fetching_images=False)
    assert told == [False]


async def test_c3_astream_events_are_served_too() -> None:
    inner = AsyncScripted()
    model = CachedChatModel(inner, _cache())
    names = []
    for _ in range(2):
        events = [event async for event in model.astream_events("Hi", version="v2")]
        names.append([event["event"] for event in events])
        words = [str(event["data"]["chunk"].content) for event in events if event["event"] == "on_chat_model_stream"]
        assert "".join(words) == "Hello there!"
    assert names[1][0] == "on_chat_model_start"
    assert names[1][-1] == "on_chat_model_end"
    assert inner.asked == 1


@pytest.mark.skipif(not hasattr(BaseChatModel, "_chat_model_stream_v3"), reason="this langchain-core has none")
@pytest.mark.filterwarnings("ignore:.*in beta")
@pytest.mark.parametrize("way", ["sync", "async"])
async def test_c3_events_of_the_third_version_are_those_of_a_miss(way: str) -> None:
    call = {"name": "look", "args": {"place": "shed"}, "id": "c1", "type": "tool_call"}
    inner = AsyncScripted(script=[AIMessage("Let me look.", tool_calls=[call]), OSError("down"), "Fine."])
    model: Any = CachedChatModel(inner, _cache())

    async def ask(question: str) -> tuple[list[str], AIMessage]:
        if way == "sync":
            run = model.stream_events(question, version="v3")
            return [event["event"] for event in run], run.output
        run = await model.astream_events(question, version="v3")
        return [event["event"] async for event in run], await run.output

    (first, told), (second, again) = await ask("Hi"), await ask("Hi")
    assert [name for name, _ in itertools.groupby(second)] == [name for name, _ in itertools.groupby(first)]
    assert (again.text, again.tool_calls[0]["args"]) == (told.text, {"place": "shed"})
    assert again.response_metadata["cache"] == "hit"
    assert again.id != told.id
    assert inner.asked == 1
    with pytest.raises(OSError, match="down"):
        await ask("Hello")
    assert [(await ask("Hello"))[1].text for _ in range(2)] == ["Fine."] * 2  # what failed is not kept
    assert inner.asked == 3
    if way == "sync":  # there, nobody reads on behind one who leaves
        for _ in range(2):
            next(iter(model.stream_events("Bye", version="v3")))
            gc.collect()
        assert inner.asked == 5


def test_config_chains_fallbacks_and_retries_are_kept() -> None:
    watching = Watching()
    inner = Scripted(script=[OSError("down"), "Fine."])
    model = CachedChatModel(inner, _cache())
    chain = ChatPromptTemplate.from_messages([("human", "{q}")]) | model.with_retry(
        stop_after_attempt=2, wait_exponential_jitter=False
    )
    named: RunnableConfig = {"tags": ["t"], "callbacks": [watching]}
    assert (chain | StrOutputParser()).with_config(named).invoke({"q": "Hi"}) == "Fine."
    assert "".join((chain | StrOutputParser()).stream({"q": "Hi"})) == "Fine."
    assert watching.tags[-1][0] is not None
    assert "t" in watching.tags[-1][0]
    assert inner.asked == 2


def test_a_model_in_the_middle_of_what_is_made_of_it_is_cached() -> None:
    class Between(Scripted):
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return RunnableLambda(str.strip) | self | StrOutputParser()

    inner = Between()
    bound = CachedChatModel(inner, _cache()).bind_tools([])
    assert bound.invoke(" Hi") == bound.invoke("Hi ")
    assert inner.asked == 1


def test_a_model_that_cannot_stream_is_served_in_pieces() -> None:
    class Plain(Scripted):
        _stream = BaseChatModel._stream

    inner = Plain()
    model = CachedChatModel(inner, _cache())
    first = streamed(model)
    assert (first.content, first.response_metadata["model_name"]) == ("Hello there!", "scripted-1")
    assert [chunk.content for chunk in model.stream("Hi")] == ["Hello ", "there!"]
    assert asyncio.run(astreamed(model)).content == "Hello there!"
    assert inner.asked == 1


async def test_a_call_that_is_cut_off_is_not_made_where_a_model_that_cannot_stream_is_streamed() -> None:
    class Plain(Scripted):
        _stream = BaseChatModel._stream

    @tool
    def write(path: str, text: str) -> str:
        """Write a file."""
        raise AssertionError(path, text)

    half = {"name": "write", "args": '{"path": "a.txt", "text": "Half of', "id": "c1", "error": None}
    said = AIMessage("", invalid_tool_calls=[{"type": "invalid_tool_call", **half}])
    agent: Any = create_agent(CachedChatModel(Plain(script=[said]), _cache()), [write])
    question = {"messages": [HumanMessage("Hi")]}
    parts = list(agent.stream(question, stream_mode="messages"))
    parts += [part async for part in agent.astream(question, stream_mode="messages")]
    assert [message.invalid_tool_calls[0]["id"] for message, _ in parts] == ["c1"] * 2


def _counting_limiter() -> tuple[InMemoryRateLimiter, list[int]]:
    limiter = InMemoryRateLimiter(requests_per_second=1000, check_every_n_seconds=0.001, max_bucket_size=1)
    taken: list[int] = []
    limiter.acquire = lambda **_: taken.append(1) or True  # type: ignore[func-returns-value,method-assign]

    async def aacquire(**_: Any) -> bool:
        return limiter.acquire()

    limiter.aacquire = aacquire  # type: ignore[method-assign]
    return limiter, taken


@pytest.mark.parametrize("way", WAYS)
def test_who_asks_the_model_waits_for_its_rate_limiter_whichever_way_it_is_asked(way: str) -> None:
    limiter, taken = _counting_limiter()
    model = CachedChatModel(AsyncScripted(rate_limiter=limiter), _cache())
    assert {WAYS[way](model).content for _ in range(2)} == {"Hello there!"}
    assert taken == [1]


class Warm(AsyncScripted):
    """Says how warm it is."""

    temperature: float = 0.0
    script: list[Any] = Field(default_factory=list)

    def _next(self, messages: list[BaseMessage]) -> Any:
        self._asked.append(messages)
        return AIMessage(f"{self.temperature}")


@pytest.mark.parametrize("way", WAYS)
def test_c4_an_answer_is_not_kept_for_a_setting_that_was_replaced_before_the_model_was_asked(way: str) -> None:
    limiter, taken = _counting_limiter()
    inner = Warm(rate_limiter=limiter)

    def warm_once(**_: Any) -> bool:  # as another task, while this one waits
        if not taken:
            inner.temperature = 1.0
        taken.append(1)
        return True

    limiter.acquire = warm_once  # type: ignore[method-assign]
    model = CachedChatModel(inner, _cache())
    assert WAYS[way](model).content == "1.0"
    assert (model.stats()["refused"], model.stats()["stored"]) == (1, 0)
    inner.temperature = 0.0
    assert [WAYS[way](model).content for _ in range(2)] == ["0.0"] * 2
    inner.temperature = 1.0
    assert [WAYS[way](model).content for _ in range(2)] == ["1.0"] * 2
    assert (inner.asked, model.stats()["stored"]) == (3, 2)


def test_c4_who_waits_for_a_call_is_not_given_an_answer_for_a_setting_that_was_replaced() -> None:
    limiter, _ = _counting_limiter()
    gate, waiting = threading.Event(), threading.Event()
    inner = Warm(rate_limiter=limiter)

    def wait(**_: Any) -> bool:
        waiting.set()
        return gate.wait(60)

    limiter.acquire = wait  # type: ignore[method-assign]
    model = CachedChatModel(inner, _cache())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(model.invoke, "Hi")
        assert waiting.wait(60)
        second = pool.submit(model.invoke, "Hi")
        until(lambda: model.stats()["misses"] == 2)
        inner.temperature = 1.0
        gate.set()
        assert [first.result(60).content, second.result(60).content] == ["1.0"] * 2
    assert (inner.asked, model.stats()["stored"], model.stats()["shared"]) == (2, 0, 0)


@pytest.mark.parametrize("of", ["the model", "a copy", "the wrapper"])
def test_no_hit_waits_for_a_rate_limiter_whose_ever_it_is(of: str) -> None:
    limiter, taken = _counting_limiter()
    model = CachedChatModel(Scripted(rate_limiter=limiter if of == "the model" else None), _cache())
    if of == "a copy":
        model = model.model_copy(update={"rate_limiter": limiter})
    elif of == "the wrapper":
        model.rate_limiter = limiter
    assert {model.invoke("Hi").content for _ in range(3)} == {"Hello there!"}
    assert streamed(model).content == "Hello there!"
    assert taken == [1]


class Wordless(Scripted):
    """Ends its streams before it has said anything."""

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        self._next(messages)
        yield from ()


async def test_a_stream_in_which_nothing_comes_ends_as_that_of_the_model_and_is_not_kept() -> None:
    inner, cache = Wordless(), _cache(on_error="raise")
    model = CachedChatModel(inner, cache)
    for _ in range(2):
        with pytest.raises(ValueError, match="No generation"):
            list(model.stream("Hi"))
        with pytest.raises(ValueError, match="No generation"):
            await astreamed(model)
    assert (inner.asked, cache.stats()["stored"], cache.stats()["errors"]) == (4, 0, 0)


class Connecting(Scripted):
    """Makes its client as it is first asked, and keeps it beside its fields, all of which LangChain dumps."""

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    @functools.cached_property
    def client(self) -> object:
        return object()

    def _next(self, messages: list[BaseMessage]) -> Any:
        assert self.client is self.client
        return super()._next(messages)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_model_keeps_beside_its_fields_as_it_is_asked_is_no_setting(wrapped: bool) -> None:
    cache = _cache()
    inner = Connecting(cache=None if wrapped else cache)
    model = CachedChatModel(inner, cache) if wrapped else inner
    assert {model.invoke("Hi").content for _ in range(3)} == {"Hello there!"}
    assert inner.asked == 1


@pytest.mark.parametrize("way", WAYS)
def test_c5_what_is_kept_in_the_place_of_an_answer_and_is_none_of_a_chat_model_is_a_miss(
    any_store: Store, way: str
) -> None:
    inner, cache = Scripted(), ExperienceCache(store=any_store)
    model = CachedChatModel(inner, cache)
    key = [model.invoke("Hi") for _ in range(2)][1].response_metadata["cache_key"]
    cache.pool.create(Experience(resp=[{"text": "Paris"}]), key=key)
    assert WAYS[way](model).content == "Hello there!"
    assert (inner.asked, model.stats()["unreadable"]) == (2, 1)


def test_settings_of_the_model_hold() -> None:
    limiter, taken = _counting_limiter()
    inner = Scripted(rate_limiter=limiter, disable_streaming=True, output_version="v1")
    model = CachedChatModel(inner, _cache())
    first = list(model.stream("Hi"))
    assert [part.content for part in first] == [[{"type": "text", "text": "Hello there!"}]]
    assert model.invoke("Hi").content == first[0].content
    assert taken == [1]  # hits are not limited
    with OpenAIServer() as server:
        settings: Any = {"model": "gpt-4o", "base_url": server.url, "api_key": "k"}
        CachedChatModel(ChatOpenAI(streaming=True, **settings), _cache()).invoke("Hi")
        CachedChatModel(ChatOpenAI(**settings), _cache()).invoke("Hi")
        assert [bool(request.get("stream")) for request in server.requests] == [True, False]


def test_who_asks_for_the_class_is_told_that_of_the_model_and_fields_are_those_of_the_wrapper() -> None:
    model = CachedChatModel(FakeListChatModel(responses=["Hello there!"]), _cache())
    for one in (model, copy.copy(model), copy.deepcopy(model), model.model_copy(update={"tags": ["a"]})):
        assert isinstance(one, FakeListChatModel)
        assert isinstance(one, CachedChatModel)
        assert repr(one) == "CachedChatModel(model='FakeListChatModel')"
        assert {"stats", "refresh", "wrapped"} <= set(dir(one))  # as notebooks complete it, and mocks are made of it
        one.streaming, one.tags, one.responses = False, ["mine"], ["Hello there!"]
        assert (one.streaming, one.tags, one.wrapped.responses) == (False, ["mine"], ["Hello there!"])
        assert one.invoke("Hi").content == "Hello there!"
    assert model.stats()["hits"] == 3
    assert model != model.wrapped


def test_a_cached_model_in_a_graphs_state_comes_back_as_none_that_asks_somewhere_else() -> None:
    with OpenAIServer() as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_API_KEY", "another")
        environment.setenv("OPENAI_BASE_URL", server.url)  # where a model asks that nobody has set
        model = CachedChatModel(
            ChatOpenAI(model="gpt-4o", base_url="http://127.0.0.1:9/v1", api_key="k", streaming=True), _cache()
        )
        kept = JsonPlusSerializer()
        back = kept.loads_typed(kept.dumps_typed(model))
        for ask in (back.invoke, lambda question: asyncio.run(back.ainvoke(question))):
            with pytest.raises((AttributeError, TypeError, ValueError)):
                ask("Hi")
        assert server.requests == []


@tool
def weather(place: str) -> str:
    """Tell the weather."""
    return f"sunny in {place} ({uuid.uuid4().hex})"


class Place(BaseModel):
    """A place."""

    place: str


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def _openai(server: OpenAIServer, **settings: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-4o", base_url=server.url, api_key="k", **settings)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of openai's own older clients
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
@pytest.mark.parametrize("raw", [False, True])
def test_c5_structured_output_is_served_and_parsed(server: OpenAIServer, method: Any, raw: bool) -> None:
    model = CachedChatModel(_openai(server), _cache())
    asker = model.with_structured_output(Place, method=method, include_raw=raw)
    question = '{"place": "Rome"} in Rome'
    if method == "json_mode":  # the script does not speak it
        server.answer = _json(server.answer)  # type: ignore[method-assign]
    got: list[Any] = [asker.invoke(question), list(asker.stream(question))[-1], asyncio.run(asker.ainvoke(question))]
    parsed = [one["parsed"] for one in (got[0], got[2])] if raw else got
    assert parsed == [Place(place="Rome")] * len(parsed)
    assert len(server.requests) == 1


def _json(answer: Callable[..., Any]) -> Callable[..., Any]:
    def say(path: str, request: Any) -> Any:
        kind, code, body = answer(path, request)
        return (
            kind,
            code,
            body.replace(
                json.dumps("You said: " + request["messages"][-1]["content"]).encode(), b'"{\\"place\\": \\"Rome\\"}"'
            ),
        )

    return say


def test_bound_tools_keep_the_cache_and_streams_of_real_clients_add_up(server: OpenAIServer) -> None:
    model = CachedChatModel(_openai(server, stream_usage=True), _cache()).bind_tools([weather], tool_choice="any")
    asked, served = streamed(model, "In Rome and Paris?"), streamed(model, "In Rome and Paris?")
    assert len(server.requests) == 1
    assert [call["args"] for call in served.tool_calls] == [call["args"] for call in asked.tool_calls]
    assert served.response_metadata["finish_reason"] == asked.response_metadata["finish_reason"] == "tool_calls"
    assert asked.usage_metadata is not None
    assert served.response_metadata["cache_usage"]["total_tokens"] == asked.usage_metadata["total_tokens"]


def test_models_that_give_copies_or_themselves_for_bound_tools_keep_the_cache() -> None:
    class Itself(Scripted):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

    class Copy(Scripted):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.model_copy(update={"tags": ["copy"]})

    class Hidden(Scripted):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return RunnableLambda(lambda _: "hidden")

    for kind in (Itself, Copy):
        inner = kind()
        model = CachedChatModel(inner, _cache())
        bound = model.bind_tools([weather])
        bound.invoke("Hi")
        assert bound.invoke("Hi").response_metadata["cache"] == "hit"
        assert model.stats()["hits"] == 1
        assert isinstance(bound, CachedChatModel)
        assert bound.wrapped.tags == (["copy"] if kind is Copy else None)
    with pytest.raises(ConfigurationError, match="contains no chat model"):
        CachedChatModel(Hidden(), _cache()).bind_tools([weather])


def test_a_copy_for_bound_tools_has_the_class_and_what_was_set(tmp_path: Path) -> None:
    class Copying(Scripted):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.model_copy(update={"name": "bound"})

    class Regional(CachedChatModel):
        region: str = "eu"

    make: Any = Regional
    model = make(Copying(), url=f"sqlite:///{tmp_path}/cache.db")
    model.region, model.tags = "us", ["mine"]
    bound: Any = model.bind_tools([weather])
    assert (type(bound), bound.region, bound.tags, bound.name, model.name) == (Regional, "us", ["mine"], "bound", None)


# --- agents (C1, D3, A2) ------------------------------------------------------------------------------------


def weather_man(messages: list[BaseMessage]) -> AIMessage:
    """Asks the tool, and tells what it said."""
    last = messages[-1]
    if last.type == "tool":
        return AIMessage(f"The tool says: {last.content}")
    return AIMessage("", tool_calls=[{"name": "weather", "args": {"place": "Rome"}, "id": f"call_{uuid.uuid4().hex}"}])


@pytest.mark.parametrize("mode", ["invoke", "stream"])
def test_c1_d3_an_agent_runs_from_the_cache_its_tools_run_and_its_threads_stay_whole(
    any_store: Store, mode: str
) -> None:
    runs: list[str] = []

    @tool
    def weather(place: str) -> str:
        """Tell the weather."""
        runs.append(place)
        return f"sunny in {place}"

    inner = Scripted(script=[weather_man])
    model = CachedChatModel(inner, ExperienceCache(store=any_store))
    agent: Any = create_agent(model, [weather], checkpointer=InMemorySaver())
    for thread in ("one", "two"):
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        for _ in range(2):
            question = {"messages": [HumanMessage("What is the weather in Rome?")]}
            if mode == "invoke":
                agent.invoke(question, config)
            else:
                shown = list(agent.stream(question, config, stream_mode="messages"))
                state = agent.get_state(config).values["messages"]
                assert {part.id for part, _ in shown} <= {message.id for message in state}  # none under two ids
        messages = agent.get_state(config).values["messages"]
        assert [message.type for message in messages] == ["human", "ai", "tool", "ai"] * 2
        assert len({message.id for message in messages}) == 8
        for call, result in ((messages[1], messages[2]), (messages[5], messages[6])):
            assert call.tool_calls[0]["id"] == result.tool_call_id
        assert messages[3].content == "The tool says: sunny in Rome"
    assert len(runs) == 4  # D3: a served call runs its tool, so nothing is stale
    assert inner.asked == 4
    assert len({m.tool_call_id for m in messages if m.type == "tool"}) == 2


def test_d3_other_results_of_a_tool_are_another_request(server: OpenAIServer) -> None:
    agent = create_agent(CachedChatModel(_openai(server), _cache()), [weather])
    answers = {
        agent.invoke({"messages": [HumanMessage("What is the weather in Rome?")]})["messages"][-1].content
        for _ in range(3)
    }
    assert len(answers) == 3
    assert len(server.requests) == 1 + 3  # the call is served, and each result is answered for itself


def test_c1_an_old_message_id_never_comes_back() -> None:
    inner = Scripted(script=[AIMessage("Hello!", id="provider-1"), AIMessage("Hello!", id="provider-2")])
    agent = create_agent(CachedChatModel(inner, _cache()), checkpointer=InMemorySaver())
    texts = []
    for thread in ("one", "two"):
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        for _ in range(2):
            state = agent.invoke({"messages": [HumanMessage("Hi")]}, config)
        texts.append([message.content for message in state["messages"]])
        assert len({message.id for message in state["messages"]}) == 4
    assert texts == [["Hi", "Hello!", "Hi", "Hello!"]] * 2


# --- secrets, and wrong settings ----------------------------------------------------------------------------


def test_no_secret_shows(server: OpenAIServer) -> None:
    store = MemoryStore()
    inner = _openai(server, default_headers={"X-Key": "topsecret"})
    model = CachedChatModel(inner, ExperienceCache(store=store))
    model.invoke([SystemMessage("my private question?"), HumanMessage("Hi")])
    for text in (repr(model), str(model), dumps(model), str(model.model_dump()), repr(model.bind(stop=["x"]))):
        assert "topsecret" not in text
    assert "ChatOpenAI" in repr(model)
    with pytest.raises(
        ConfigurationError, match="a cache of its own, or with a password in its URL, cannot be pickled"
    ):
        pickle.dumps(model)
    held = [bytes(value) for space in store.namespaces() for value in store.get(space).values()]
    assert held
    assert not any(secret in value for value in held for secret in (b"topsecret", b"base_url", b"question?"))


def test_wrong_settings_are_told() -> None:
    plain = FakeListChatModel(responses=["a"])
    cached = CachedChatModel(plain, _cache())
    for model in ("openai:gpt-4o", plain.bind(stop=["x"]), cached):
        with pytest.raises(ConfigurationError, match="before tools are bound"):
            CachedChatModel(model)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a cache or a url"):
        CachedChatModel(plain, _cache(), url="memory:")
    with pytest.raises(ConfigurationError, match=r"an ExperienceCache \(a URL goes in as url=\), not str$"):
        CachedChatModel(plain, "memory:")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="wait"):
        CachedChatModel(plain, _cache(), wait=-1)
    with pytest.raises(AttributeError, match="no_such"):
        cached.no_such  # noqa: B018
    assert cached.responses == ["a"]


def test_a_model_of_generators_is_asked_once() -> None:
    inner = GenericFakeChatModel(messages=iter([AIMessage("Only once.")]))
    model = CachedChatModel(inner, _cache())
    assert [streamed(model).content for _ in range(3)] == ["Only once."] * 3
