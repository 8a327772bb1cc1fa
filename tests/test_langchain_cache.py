"""ExperienceCache: the standard suites, C1, C2, C4 to C7 and A2."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import functools
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.caches import BaseCache
from langchain_core.language_models import (
    LLM,
    BaseChatModel,
    FakeListChatModel,
    FakeListLLM,
    FakeMessagesListChatModel,
    GenericFakeChatModel,
    SimpleChatModel,
)
from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.content import create_image_block, create_text_block
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation, LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_core.utils import from_env
from langchain_openai import ChatOpenAI, OpenAI
from langchain_tests.integration_tests.cache import AsyncCacheTestSuite, SyncCacheTestSuite
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel, Field, PrivateAttr, SecretStr

from langmem_adapters import ConfigurationError, Embedder, SerializationError, StoreUnavailable
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain import BrainChatMessageHistory, CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching import request
from langmem_adapters.langchain.caching.generations import read_generations, worth_storing
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.protocols import Store
from langmem_adapters.providers.tool_calls import replace_call_ids
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.faults import CROWD, on_threads


class TestSync(SyncCacheTestSuite):
    @pytest.fixture
    def cache(self, any_store: Store) -> BaseCache:
        return ExperienceCache(store=any_store)


class TestAsync(AsyncCacheTestSuite):
    @pytest.fixture
    async def cache(self, any_store: Store) -> BaseCache:
        return ExperienceCache(store=any_store)


def test_a_cache_may_be_the_first_that_a_thread_calls() -> None:
    stored = threading.Event()

    def should_store(_: Sequence[Generation]) -> bool:
        stored.set()
        return True

    cache = ExperienceCache(store=MemoryStore(), should_store=should_store)
    _thread.start_new_thread(cache.update, ("p", "m", [Generation(text="Hi")]))  # as gevent calls it, too
    assert stored.wait(10)


def answer(text: Any = "Paris", **fields: Any) -> ChatGeneration:
    return ChatGeneration(message=AIMessage(text, **fields))


def looked_up(cache: ExperienceCache, prompt: str = "p") -> ChatGeneration:
    found = cache.lookup(prompt, "m")
    assert found is not None
    (generation,) = found
    assert isinstance(generation, ChatGeneration)
    return generation


# --- C1, C2, C9: what a hit is ------------------------------------------------------------------------------


def test_c1_two_hits_in_one_thread_leave_four_messages_in_order(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    model = GenericFakeChatModel(
        messages=iter([AIMessage("Hello!", id="a1"), AIMessage("Hello again!", id="a2")]), cache=cache
    )
    agent = create_agent(model, checkpointer=InMemorySaver())
    for thread in ("asked", "served"):
        for _ in range(2):
            config: RunnableConfig = {"configurable": {"thread_id": thread}}
            state = agent.invoke({"messages": [HumanMessage("Hi")]}, config)
        assert [m.content for m in state["messages"]] == ["Hi", "Hello!", "Hi", "Hello again!"]
        assert len({m.id for m in state["messages"]}) == 4
    assert cache.stats()["hits"] == 2


class _ShowsTheLastMessage(AgentMiddleware):
    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(messages=request.messages[-1:]))


def test_c1_one_entry_served_twice_in_a_thread_does_not_replace_its_first_answer(any_store: Store) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello!", id="a1")]), cache=ExperienceCache(store=any_store))
    agent = create_agent(model, middleware=[_ShowsTheLastMessage()], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    for _ in range(3):
        state = agent.invoke({"messages": [HumanMessage("Hi")]}, config)
    assert [m.content for m in state["messages"]] == ["Hi", "Hello!"] * 3


@tool
def weather(place: str) -> str:
    """Tell the weather."""
    return f"sunny in {place}"


def test_c1_a_tool_calling_agent_runs_from_the_cache_and_keeps_its_results_matched(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    script = [
        AIMessage("", id="a1", tool_calls=[{"name": "weather", "args": {"place": "Rome"}, "id": "call_1"}]),
        AIMessage("It is sunny.", id="a2"),
    ]
    model = _WithTools(messages=iter(script), cache=cache)
    agent = create_agent(model, [weather], checkpointer=InMemorySaver())
    threads = []
    for thread in ("one", "two"):
        config: RunnableConfig = {"configurable": {"thread_id": thread}}
        threads.append(agent.invoke({"messages": [HumanMessage("Weather in Rome?")]}, config)["messages"])
    for messages in threads:
        assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]
        assert messages[1].tool_calls[0]["id"] == messages[2].tool_call_id
        assert messages[3].content == "It is sunny."
    assert threads[0][1].tool_calls[0]["id"] != threads[1][1].tool_calls[0]["id"]
    assert cache.stats()["hits"] == 2


class _WithTools(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - the script knows what it calls
        return self


def test_c1_ids_are_new_each_time_and_are_32_digits(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, keep=60)
    cache.update("p", "m", [answer("", tool_calls=[{"name": "f", "args": {}, "id": "c"}])])
    hits = [looked_up(cache).message for _ in range(50)]
    (kept,) = cache.pool.all()
    calls = [hit.tool_calls[0]["id"] or "" for hit in hits if isinstance(hit, AIMessage)]
    ids = [*((hit.id or "").removeprefix("lc_run--") for hit in hits), *(id_.removeprefix("call_") for id_ in calls)]
    assert len({*ids, kept.uuid}) == 101
    assert all(len(id_) == 32 and int(id_, 16) >= 0 for id_ in [*ids, kept.uuid])


@pytest.mark.parametrize("keep", [None, 60.0])
def test_c2_what_a_reader_does_to_a_hit_changes_nothing(any_store: Store, keep: float | None) -> None:
    cache = ExperienceCache(store=any_store, keep=keep)
    cache.update("p", "m", [answer(response_metadata={"deep": {"list": [1]}})])
    stored = dict(any_store.get(("experience", "", "", "langchain")))
    for _ in range(10):
        hit = looked_up(cache).message
        assert hit.content == "Paris"
        assert hit.response_metadata["deep"] == {"list": [1]}
        hit.content = "spoiled"
        hit.response_metadata["deep"]["list"].append(2)
    assert any_store.get(("experience", "", "", "langchain")) == stored


def test_c9_a_hit_is_marked_and_costs_nothing(any_store: Store) -> None:
    clock = FakeClock()
    cache = ExperienceCache(store=any_store, clock=clock)
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
    cache.update("p", "m", [answer(usage_metadata=usage, id="a1", response_metadata={"model_name": "gpt"})])
    clock.advance(60)
    hit = looked_up(cache).message
    assert isinstance(hit, AIMessage)
    assert hit.id not in {None, "a1"}
    assert hit.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert hit.response_metadata == {
        "model_name": "gpt",
        "cache": "hit",
        "cache_key": request_key("p", "m"),
        "cache_age": 60.0,
        "cache_score": 1.0,
        "cache_usage": usage,
    }
    assert cache.stats()["saved_tokens"] == 12


@pytest.mark.parametrize(
    ("told", "free"),
    [
        (  # ChatAnthropic, where Langfuse looks first
            {"usage": {"input_tokens": 5, "cache_creation": {"ephemeral_5m_input_tokens": 2}, "tier": "batch"}},
            {"usage": {"input_tokens": 0, "cache_creation": {"ephemeral_5m_input_tokens": 0}, "tier": "batch"}},
        ),
        ({"token_usage": {"total_tokens": 12, "cost": 0.01}}, {"token_usage": {"total_tokens": 0, "cost": 0}}),
        (
            {"usage_metadata": {"total_token_count": 12, "details": [{"modality": "TEXT", "token_count": 5}]}},
            {"usage_metadata": {"total_token_count": 0, "details": [{"modality": "TEXT", "token_count": 0}]}},
        ),
        (
            {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 5, "outputTokenCount": 7}},
            {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 0, "outputTokenCount": 0}},
        ),
        ({"prompt_eval_count": 5, "eval_count": 7}, {"prompt_eval_count": 0, "eval_count": 0}),  # ChatOllama
        ({"token_count": {"input_tokens": 5.0}}, {"token_count": {"input_tokens": 0}}),  # ChatCohere
        ({"usage": None, "retries": 7, "safe": True}, {"usage": None, "retries": 7, "safe": True}),
    ],
)
def test_c9_a_hit_costs_nothing_wherever_a_provider_tells_what_its_answer_took(
    told: dict[str, Any], free: dict[str, Any]
) -> None:
    cache = ExperienceCache(store=MemoryStore())
    message = AIMessage("Paris", response_metadata=told)
    texts = [Generation(text="Paris", generation_info=told), ChatGeneration(message=message, generation_info=told)]
    cache.update("p", "m", texts)
    found = cache.lookup("p", "m")
    assert found is not None
    plain, chat = found
    assert isinstance(chat, ChatGeneration)
    assert plain.generation_info == chat.generation_info == free
    assert {name: chat.message.response_metadata[name] for name in told} == free


@pytest.mark.parametrize("keep", [None, 60.0])
def test_c9_the_tokens_of_every_hit_are_saved_once_for_all_choices_of_a_response(keep: float | None) -> None:
    cache = ExperienceCache(store=MemoryStore(), keep=keep, prices={"gpt": (1_000_000.0, 2_000_000.0)})
    usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}  # of the whole response, with each choice
    of = {"usage_metadata": usage, "response_metadata": {"model_name": "gpt"}}
    own = answer("c", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})
    cache.update("p", "m", [answer("a", **of), answer("b", **of), answer("d")])
    cache.update("q", "m", [answer("a", **of), own])
    for saved in (12, 24, 36):
        assert cache.lookup("p", "m") is not None
        assert (cache.stats()["saved_tokens"], cache.stats()["saved_money"]) == (saved, 19.0 * saved / 12)
    assert cache.lookup("q", "m") is not None
    assert (cache.stats()["saved_tokens"], cache.stats()["saved_money"]) == (36 + 15, 57.0 + 19.0 + 5.0)


@pytest.mark.own
def test_c9_no_hit_of_a_crowd_of_threads_goes_uncounted() -> None:
    cache, often = ExperienceCache(store=MemoryStore(), keep=60.0), sys.getswitchinterval()
    used = answer(usage_metadata={"input_tokens": 5, "output_tokens": 7, "total_tokens": 12})
    cache.update("p", "m", [used])
    sys.setswitchinterval(1e-6)
    try:
        found = on_threads(lambda: [cache.lookup("p", "m") is not None for _ in range(1500)])
    finally:
        sys.setswitchinterval(often)
    assert found == [[True] * 1500] * CROWD
    assert (cache.stats()["hits"], cache.stats()["saved_tokens"]) == (1500 * CROWD, 12 * 1500 * CROWD)


def test_c5_all_generations_of_an_answer_come_back(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    cache.update("p", "m", [answer("a"), answer("b"), Generation(text="c", generation_info={"n": 1})])
    found = cache.lookup("p", "m")
    assert found is not None
    assert [generation.text for generation in found] == ["a", "b", "c"]
    assert found[2] == Generation(text="c", generation_info={"n": 1})


# --- A2: cache and history together -------------------------------------------------------------------------


def test_a2_a_hit_in_the_history_is_read_by_a_new_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    model = FakeListChatModel(responses=["first", "second"], cache=ExperienceCache(url))
    history = BrainChatMessageHistory("session", url=url)
    for _ in range(2):
        question = HumanMessage("What?")
        history.add_messages([question, model.invoke([question])])
    code = (
        "import sys; from langmem_adapters.langchain import BrainChatMessageHistory as H;"
        "print([m.content for m in H('session', url=sys.argv[1]).messages])"
    )
    done = subprocess.run([sys.executable, "-c", code, url], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['What?', 'first', 'What?', 'first']"


def test_a2_a_foreign_caches_hit_with_incomplete_usage_does_not_brick_the_session(any_store: Store) -> None:
    replayed = AIMessage("old", id="same").model_copy(update={"usage_metadata": {"total_cost": 0}})
    history = BrainChatMessageHistory("session", store=any_store)
    for _ in range(2):  # InMemoryCache replays the id too; neither turn may be lost
        history.add_messages([HumanMessage("q"), replayed])
    assert [message.content for message in history.messages] == ["q", "old", "q", "old"]


# --- C4: keys -----------------------------------------------------------------------------------------------


def _openai(**settings: Any) -> Callable[..., str]:
    model = ChatOpenAI(**{"model": "gpt-4o", "api_key": "sk-secret", **settings})
    return lambda messages=None, **kwargs: request_key(
        dumps(messages or [HumanMessage("Hi")]), model._get_llm_string(**kwargs)
    )


def test_c4_how_a_call_is_made_does_not_change_its_key() -> None:
    plain = _openai()()
    same = {"timeout": 3, "max_retries": 7, "streaming": True, "metadata": {"run": 1}, "tags": ["x"], "verbose": True}
    same |= {"name": "translator"}
    for name, value in same.items():
        assert _openai(**{name: value})() == plain, name
    assert _openai()(callbacks=[1], timeout=5) == plain


class _SignedIn(ChatOpenAI):
    """Asks with what its user has, as ChatBedrock and AzureChatOpenAI do."""

    session_token: SecretStr | None = None

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"openai_api_key": "OPENAI_API_KEY", "session_token": "SESSION_TOKEN"}


def test_c4_nor_does_what_it_is_paid_with() -> None:
    def key(**settings: Any) -> str:
        model = _SignedIn(model="gpt-4o", api_key=SecretStr("k"), **settings)
        return request_key(dumps([HumanMessage("Hi")]), model._get_llm_string())

    assert key() == key(session_token=SecretStr("mine")) == key(session_token=SecretStr("yours"))
    assert key() != key(extra_body={"type": "secret"})


class _Patient(ChatOpenAI):
    """Calls by the names of ChatAnthropic, ChatCohere and ChatMistralAI what is of the call."""

    default_request_timeout: float | None = None
    timeout_seconds: float | None = None
    max_concurrent_requests: int = 64


def test_c4_nor_does_it_by_the_names_of_other_providers() -> None:
    def key(**settings: Any) -> str:
        model = _Patient(model="claude", api_key=SecretStr("k"), **settings)
        return request_key(dumps([HumanMessage("Hi")]), model._get_llm_string())

    assert key() == key(default_request_timeout=3) == key(timeout_seconds=3) == key(max_concurrent_requests=2)
    assert key() != key(temperature=0)


def test_c4_what_is_asked_does() -> None:
    keys = [
        _openai()(),
        _openai(model="gpt-4o-mini")(),
        _openai(temperature=0)(),
        _openai(base_url="http://127.0.0.1:1/v1")(),
        _openai(max_tokens=5)(),
        _openai(default_headers={"X-Org": "a"})(),
        _openai(default_headers={"X-Org": "b"})(),
        _openai()(stop=["."]),
        _openai()(tools=[{"type": "function", "function": {"name": "f"}}]),
        _openai()(tools=[{"type": "function", "function": {"name": "g"}}]),
        _openai()(response_format={"type": "json_object"}),
        _openai()([SystemMessage("Hi")]),
        _openai()([HumanMessage("Hi ")]),
        _openai()([HumanMessage("Hi", name="Ada")]),
        _openai()([HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64,aaaa"}}])]),
        _openai()([HumanMessage([{"type": "image_url", "image_url": {"url": "data:image/png;base64,bbbb"}}])]),
    ]
    assert len(set(keys)) == len(keys)


CALL = {"name": "f", "args": {"n": 1}, "id": "c1"}
CALL_BLOCK = {"type": "tool_call", **CALL}
V0 = AIMessage("Let me see.", tool_calls=[CALL])


def _blocks(*content: Any, calls: Sequence[Any] = (CALL,), version: str = "v1") -> AIMessage:
    return AIMessage(list(content), tool_calls=list(calls), response_metadata={"output_version": version})


def _thread_key(message: AIMessage) -> str:
    return request_key(dumps([HumanMessage("Hi"), message]), "[]")


@pytest.mark.parametrize(
    ("message", "same"),
    [
        (_blocks({"type": "text", "text": "Let me see."}, CALL_BLOCK), V0),
        (_blocks({"type": "text", "text": "Let me see.", "index": 0}, {**CALL_BLOCK, "index": 1}), V0),
        (_blocks({"type": "text", "text": "Let me see.", "annotations": []}, {**CALL_BLOCK, "extras": {}}), V0),
        (_blocks(CALL_BLOCK), AIMessage("", tool_calls=[CALL])),
        (_blocks({"type": "text", "text": "Hello!"}, calls=()), AIMessage("Hello!")),
    ],
)
def test_c4_a_thread_is_the_same_whether_its_answers_came_as_blocks_or_not(message: AIMessage, same: AIMessage) -> None:
    assert _thread_key(message) == _thread_key(same)


@pytest.mark.parametrize(
    "message",
    [
        _blocks({"type": "text", "text": "Let me see.", "annotations": [{"url": "a"}]}, CALL_BLOCK),
        _blocks({"type": "text", "text": "Let me see.", "extras": {"signature": "s"}}, CALL_BLOCK),
        _blocks({"type": "text", "text": "Let me see."}, {**CALL_BLOCK, "extras": {"signature": "s"}}),
        _blocks({"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Let me see."}, CALL_BLOCK),
        _blocks({"type": "quotation", "text": "Let me see."}, CALL_BLOCK),
        _blocks({"type": "text", "text": "Let me "}, {"type": "text", "text": "see."}, CALL_BLOCK),
        _blocks(CALL_BLOCK, {"type": "text", "text": "Let me see."}),
        _blocks({"type": "text", "text": "Let me see."}),
        _blocks({"type": "text", "text": "Let me see."}, {**CALL_BLOCK, "args": {"n": 2}}),
        _blocks({"type": "text", "text": "Let me see."}, CALL_BLOCK, version="v0"),
        _blocks("Let me see.", CALL_BLOCK),
    ],
)
def test_c4_blocks_that_say_more_or_something_else_are_another_thread(message: AIMessage) -> None:
    assert _thread_key(message) != _thread_key(V0)


def test_c4_blocks_of_langchain_count_with_the_provider_that_made_them() -> None:
    thought = {"type": "reasoning", "reasoning": "Hm.", "extras": {"signature": "s"}}

    def key(text: str, *thoughts: Any, **metadata: str) -> str:
        return _thread_key(AIMessage([*thoughts, {"type": "text", "text": text}], response_metadata=metadata))

    # ChatAnthropic sends the thoughts of Anthropic's models, drops those of others, and fails on unmarked ones.
    marks = [{"output_version": "v1", "model_provider": name} for name in ("anthropic", "openai")]
    marks += [{"output_version": "v1"}, {}]
    assert len({key("Yes.", thought, **mark) for mark in marks}) == len(marks)
    assert key("Yes.", thought, **marks[0]) == key("Yes.", thought, **marks[0], id="msg_1", stop_reason="end_turn")
    # What has nothing but text is read alike, whoever wrote it.
    assert len({key("Yes.", **mark) for mark in marks[:3]}) == 1


@pytest.mark.parametrize(
    "more",
    [
        {"content": [{"type": "thinking", "thinking": "Hm.", "signature": "s"}, "Yes."]},  # Gemini, Bedrock
        {"content": [{"type": "reasoning", "id": "rs_1", "encrypted_content": "e", "summary": []}, "Yes."]},  # Claude
        {"additional_kwargs": {"reasoning_content": "Hm."}},  # Fireworks
    ],
)
def test_c4_thoughts_count_with_the_provider_that_made_them(more: dict[str, Any]) -> None:
    def key(**metadata: str) -> str:
        return _thread_key(AIMessage(**{"content": "Yes.", **more}, response_metadata=metadata))

    makers = ("anthropic", "fireworks", "google_genai", "openai")
    assert len({key(), *(key(model_provider=maker) for maker in makers)}) == 1 + len(makers)
    # Bedrock has models of several makers, and one is sent no thoughts of another.
    claude, nova = ({"model_provider": "bedrock_converse", "model_name": name} for name in ("anthropic.a", "amazon.b"))
    assert key(**claude) != key(**nova)
    assert key(**claude) == key(**claude, stopReason="end_turn")
    assert key(model_provider="openai", model_name="a") == key(model_provider="openai", model_name="b")


@pytest.mark.parametrize("said", ["Yes.", ["Yes."], [{"type": "text", "text": "Yes."}]])
def test_c4_a_text_is_the_same_whoever_wrote_it(said: Any) -> None:
    marks = [{}, {"model_provider": "anthropic"}, {"model_provider": "bedrock", "model_name": "a"}]
    messages = [AIMessage(said, response_metadata=mark, additional_kwargs={"refusal": None}) for mark in marks]
    assert len(set(map(_thread_key, messages))) == 1


def test_c4_blocks_replaced_with_a_text_are_not_the_same_as_a_text() -> None:
    v1 = AIMessage([{"type": "text", "text": "Long."}], response_metadata={"output_version": "v1"})
    shortened = v1.model_copy(update={"content": "Short."})  # of which ChatOllama sends nothing
    assert _thread_key(shortened) != _thread_key(AIMessage("Short."))


class Silent(SimpleChatModel):
    """Tells LangChain nothing of itself but its class, as models of Ollama do."""

    model: str = "small"
    asked: list[str] = []  # noqa: RUF012 - as many a stand-in has it
    calls: int = 0
    seed: int = 0

    @property
    def _llm_type(self) -> str:
        return "silent"

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        self.asked.append(messages[-1].text)
        self.calls += 1
        return f"{self.model} {self.calls}"


class SilentLLM(LLM):
    """The same for text."""

    model: str = "small"

    @property
    def _llm_type(self) -> str:
        return "silent text"

    def _call(self, prompt: str, *_: Any, **__: Any) -> str:
        return f"{self.model} {prompt}"


def test_c4_a_number_set_in_the_model_that_asks_is_a_setting_and_one_that_it_counts_calls_in_is_none() -> None:
    cache = ExperienceCache(store=MemoryStore())
    model = Silent(cache=cache, asked=[])
    assert [model.invoke(text).content for text in ("Hi", "Ho", "Hi")] == ["small 1", "small 2", "small 1"]
    model.seed = 5
    assert [model.invoke(text).content for text in ("Hi", "Ho", "Hi")] == ["small 3", "small 4", "small 3"]
    model.seed = 0
    assert model.invoke("Ho").content == "small 2"
    other = model.model_copy()
    assert other.invoke("Ho").content == "small 2"


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_c4_a_wrapped_models_count_of_its_calls_is_no_setting_either(way: str) -> None:
    class Streaming(Silent):
        def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
            yield ChatGenerationChunk(message=AIMessageChunk(content=self._call(messages)))

    model = CachedChatModel(Streaming(asked=[]), ExperienceCache(store=MemoryStore()))
    ask: Any = getattr(model, way)

    async def answer(text: str) -> str:
        if way == "astream":
            return "".join([chunk.text async for chunk in ask(text)])
        if way == "stream":
            return "".join(chunk.text for chunk in ask(text))
        return str((await ask(text) if way == "ainvoke" else ask(text)).text)

    assert [await answer(text) for text in ("Hi", "Ho", "Hi", "Ho")] == ["small 1", "small 2"] * 2


async def test_c4_what_a_model_does_not_tell_of_itself_is_found_in_the_model_that_asks() -> None:
    cache = ExperienceCache(store=MemoryStore())
    small, large = Silent(cache=cache), Silent(model="large", cache=cache)
    assert [small.invoke("Hi").content, large.invoke("Hi").content] == ["small 1", "large 1"]
    assert [small.invoke("Hi").content, (await large.ainvoke("Hi")).content] == ["small 1", "large 1"]
    assert Silent(cache=cache).invoke("Hi").content == "small 1"  # another one that is the same
    assert CachedChatModel(Silent(), cache).invoke("Hi").content == "small 1"
    bound = Silent(cache=cache)
    assert bound.bind(style="loud").invoke("Hi").content == "small 1"
    bound.model = "large"
    assert [bound.bind(style="loud").invoke("Hi").content, bound.invoke("Hi").content] == ["large 2", "large 1"]
    texts = [SilentLLM(cache=cache), SilentLLM(model="large", cache=cache)]
    assert [await model.ainvoke("Hi") for model in texts] == ["small Hi", "large Hi"]
    assert cache.stats()["hits"] == 5


def test_c4_who_asks_a_cache_is_no_model(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    told = "[('_type', 'silent'), ('stop', None)]"
    cache.update("Hi", told, [Generation(text="Hello!")])
    (hit,) = cache.lookup("Hi", told) or []
    assert hit.text == "Hello!"


def test_c4_what_a_tool_gives_beside_its_answer_does_not_change_the_key() -> None:
    """No model is shown an artifact; one may hold a time, a path, or an object that no store could keep."""
    key = _openai()

    def talk(**fields: Any) -> list[BaseMessage]:
        call = {"name": "look", "args": {"artifact": fields.pop("arg", 1)}, "id": "c"}
        content = fields.pop("content", "sunny")
        return [HumanMessage("?"), AIMessage("", tool_calls=[call]), ToolMessage(content, tool_call_id="c", **fields)]

    for artifact in ({"took": 0.1}, {"took": 0.2}, [1], "text", 0, object()):
        assert key(talk(artifact=artifact)) == key(talk())
    for other in (
        {"content": "rainy"},
        {"status": "error"},
        {"arg": 2},
        {"content": [{"type": "text", "artifact": 1}]},
    ):
        assert key(talk(**other)) != key(talk())
    blocks = [[{"type": "text", "text": "x", "artifact": n}] for n in (1, 2)]
    assert key(talk(content=blocks[0])) != key(talk(content=blocks[1]))


def test_c4_ids_and_metadata_of_earlier_answers_do_not_change_the_key() -> None:
    def talk(call: str, **fields: Any) -> list[BaseMessage]:
        return [
            HumanMessage("Weather?", id=fields.get("id")),
            AIMessage("", tool_calls=[{"name": "weather", "args": {"place": "Rome"}, "id": call}], **fields),
            ToolMessage("sunny", tool_call_id=call),
        ]

    key = _openai()
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    assert key(talk("c1")) == key(talk("c2", id="x", response_metadata={"cache_age": 3}, usage_metadata=usage))
    two = [{"name": "f", "args": {}, "id": "a"}, {"name": "f", "args": {}, "id": "b"}]
    crossed = [AIMessage("", tool_calls=two), ToolMessage("1", tool_call_id="b"), ToolMessage("2", tool_call_id="a")]
    straight = [AIMessage("", tool_calls=two), ToolMessage("1", tool_call_id="a"), ToolMessage("2", tool_call_id="b")]
    assert key(crossed) != key(straight)


def test_c4_responses_that_a_request_goes_on_from_change_the_key() -> None:
    """Of what was said before them, the model sees what the provider has kept under their ids."""

    def talk(*ids: str | None) -> list[BaseMessage]:
        answers = [AIMessage("Noted.", response_metadata={"id": id_} if id_ else {}) for id_ in ids]
        return [*answers, HumanMessage("What did I tell you?")]

    chained, plain = _openai(use_previous_response_id=True), _openai()
    talks = [talk("resp_ada"), talk("resp_bob"), talk(None), talk("resp_ada", None), talk("resp_bob", "other")]
    assert len({chained(messages) for messages in talks}) == len(talks)
    assert chained(talk("resp_ada")) == chained(talk("resp_ada"))
    assert plain(talk("resp_ada")) == plain(talk("resp_bob")) == plain(talk(None))
    for prompt in ("[{", '[{"lc": 1, "id": ["x"], "kwargs": {"response_metadata": "x"}}]'):  # no chat of anybody's
        assert request_key(prompt, '{"use_previous_response_id": true}')


def test_c4_containers_that_a_request_goes_on_in_change_the_key() -> None:
    def key(of: str | None, model: str) -> str:
        told = {"container": {"id": of, "expires_at": "2026-01-01"}} if of else {}
        return request_key(
            dumps([AIMessage("Written.", response_metadata=told), HumanMessage("What is in it?")]), model
        )

    reusing = '{"kwargs": {"reuse_last_container": true}}'
    assert len({key(of, reusing) for of in ("container_ada", "container_bob", None)}) == 3
    assert key("container_ada", reusing) == key("container_ada", reusing)
    assert key("container_ada", "m") == key("container_bob", "m") == key(None, "m")


def test_c1_a_hit_does_not_lead_into_the_container_of_who_asked_first(any_store: Store) -> None:
    """With ``reuse_last_container``, Anthropic would run another's code there, among the files of the first."""
    cache = ExperienceCache(store=any_store)
    told = {"container": {"id": "container_ada"}, "stop_reason": "end_turn"}
    cache.update("p", "m", [answer("Written.", response_metadata=told)])
    metadata = looked_up(cache).message.response_metadata
    assert "container" not in metadata
    assert metadata["stop_reason"] == "end_turn"


class Conversing(ChatOpenAI):
    """Answers with how often it was asked, in place of a provider that keeps the conversation."""

    _asked: int = PrivateAttr(0)

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        self._asked += 1
        return ChatResult(generations=[answer(str(self._asked))])


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("fields", "kwargs", "unkeyed"),
    [
        ({}, {"conversation": "conv_1"}, 2),
        ({}, {"conversation": {"id": "conv_1"}, "folder": PurePosixPath("a")}, 2),
        ({"model_kwargs": {"conversation": "conv_1"}}, {}, 2),
        ({"extra_body": {"conversation": "conv_1"}}, {}, 2),
        ({}, {"extra_body": {"conversation": "conv_1"}, "folder": PurePosixPath("a")}, 2),
        ({}, {"folder": PurePosixPath("conversation")}, 0),
        ({}, {"conversation": None}, 0),
        ({}, {"tools": [{"name": "look", "parameters": {"conversation": {"type": "string"}}}]}, 0),
    ],
)
def test_c4_a_call_that_goes_on_with_what_the_provider_keeps_is_always_made(
    fields: dict[str, Any], kwargs: dict[str, Any], unkeyed: int, wrapped: bool
) -> None:
    cache = ExperienceCache(store=MemoryStore())
    made: Any = Conversing(model="m", api_key="k", cache=None if wrapped else cache, **fields)
    model = CachedChatModel(made, cache) if wrapped else made
    said = [model.invoke("And then?", **kwargs).content for _ in range(2)]
    assert said == (["1", "2"] if unkeyed else ["1", "1"])
    assert cache.stats()["unkeyed"] == unkeyed


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("place", ["content", "args", "additional_kwargs"])
@pytest.mark.parametrize(
    ("objects", "unkeyed"),
    [
        ([np.zeros(2_000), np.eye(1, 2_000, 1_000)[0]], 2),  # both dumped as zeros with three dots between them
        ([iter([1]), iter([2])], 2),  # at addresses that others may have tomorrow
        ([b"at 0x1... a", b"at 0x1... b"], 0),
        ([PurePosixPath("a\\' at 0x1..."), PurePosixPath("b")], 0),
    ],
)
def test_c4_an_object_of_which_langchain_does_not_tell_all_has_no_key(
    objects: list[Any], unkeyed: int, place: str, wrapped: bool
) -> None:
    cache = ExperienceCache(store=MemoryStore())
    made: Any = FakeListChatModel(responses=["1", "2"], cache=None if wrapped else cache)
    model = CachedChatModel(made, cache) if wrapped else made

    def ask(value: Any) -> str:
        more: dict[str, Any] = {"content": [{"type": "image", "image": value}], "additional_kwargs": {}}
        if place == "args":
            more = {"content": "", "tool_calls": [{"name": "look", "args": {"image": value}, "id": "c"}]}
        elif place == "additional_kwargs":
            more = {"content": "", "additional_kwargs": {"image": value}}
        return str(model.invoke([HumanMessage("What is it?"), AIMessage(**more)]).content)

    assert [ask(value) for value in objects] == ["1", "2"]
    assert cache.stats()["unkeyed"] == unkeyed


class _Told:
    def __init__(self, told: str) -> None:
        self.told = told

    def __repr__(self) -> str:
        return self.told


@pytest.mark.parametrize("told", ["'" + "\\'" * 100_000, '"' * 100_001, "'\n...' \"...", "it's at 0x1", "'\\"])
def test_quotation_marks_in_what_an_object_tells_of_itself_are_read_once(told: str) -> None:
    cache = ExperienceCache(store=MemoryStore())
    model = FakeListChatModel(responses=["1", "2"], cache=cache)
    start = time.process_time()
    for _ in range(2):
        model.invoke([HumanMessage([{"type": "image", "image": _Told(told)}])])
    assert time.process_time() - start < 2
    assert cache.stats()["unkeyed"] == (2 if told.endswith(("...", "0x1")) else 0)  # it is not in a quotation


def test_c4_an_object_that_no_model_is_shown_costs_no_hit() -> None:
    model = FakeListChatModel(responses=["1", "2"], cache=ExperienceCache(store=MemoryStore()))
    call = {"name": "look", "args": {}, "id": "c"}
    said = [
        model.invoke([AIMessage("", tool_calls=[call]), ToolMessage("sunny", tool_call_id="c", artifact=object())])
        for _ in range(2)
    ]
    assert said[0].content == said[1].content == "1"


def test_tools_that_speak_of_conversations_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Mock(wraps=request._request_parts)
    monkeypatch.setattr(request, "_request_parts", parts)
    model = FakeListChatModel(responses=["a"], cache=ExperienceCache(store=MemoryStore()))
    tools = [{"name": uuid.uuid4().hex, "description": "Looks into the conversation."}]
    for _ in range(5):
        model.invoke("Hi", tools=tools)
    assert parts.call_count <= 2


@pytest.mark.parametrize("wrapped", [False, True])
def test_c4_two_models_of_one_name_in_two_modules_have_answers_of_their_own(wrapped: bool) -> None:
    cache = ExperienceCache(store=MemoryStore())

    def said(module: str, word: str) -> str:
        call = {"_call": lambda *_, **__: word, "__module__": module, "__qualname__": "Silent"}
        model: Any = type("Silent", (Silent,), call)()
        model.cache = None if wrapped else cache
        return str((CachedChatModel(model, cache) if wrapped else model).invoke("Hi").content)

    assert [said("one", "One"), said("other", "Other"), said("one", "No")] == ["One", "Other", "One"]


def test_c4_the_order_of_keys_does_not_change_the_key() -> None:
    def swapped(prompt: str) -> str:
        return json.dumps([dict(reversed(list(message.items()))) for message in json.loads(prompt)])

    prompt = dumps([AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1, "b": 2}, "id": "c"}])])
    assert swapped(prompt) != prompt
    assert request_key(swapped(prompt), "m") == request_key(prompt, "m")
    assert request_key('{"a": 1, "b": 2}', "m") != request_key('{"b": 2, "a": 1}', "m")  # a text of the user's own


_SCHEMA = """
import sys
from pydantic import BaseModel
from langchain_openai import ChatOpenAI
from langmem_adapters.langchain.caching.request import request_key

class Answer(BaseModel):
    city: str

bound = ChatOpenAI(model="gpt-4o", api_key="k").with_structured_output(Answer, method="json_schema").first
KEY = request_key("p", bound.bound._get_llm_string(**bound.kwargs))
if __name__ == "__main__":
    print(KEY)
"""


_PLACES = ("content", "id", "type", "name", "tool_calls", "response_metadata", "additional_kwargs", "status")
_datum = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_dumped = st.fixed_dictionaries(
    {
        "lc": st.just(1),
        "id": st.lists(st.sampled_from(["langchain", "AIMessage", "AIMessageChunk"]), min_size=1, max_size=3),
        "kwargs": st.dictionaries(st.sampled_from(_PLACES), _datum, max_size=5).map(
            lambda kwargs: {**kwargs, "tool_calls": [{"id": "c1", "name": "f"}]} if "tool_calls" in kwargs else kwargs
        ),
    }
)


@given(st.lists(_dumped, min_size=1, max_size=3), st.booleans())
def test_c4_a_chats_key_is_a_hash_of_what_the_model_sees(dumped: list[dict[str, Any]], ascii_only: bool) -> None:
    """As the first version had it, in its own words: what it has kept must be found for ever."""
    seen: list[dict[str, Any]] = []
    for message in dumped:
        seen.append({"class": message["id"][-1].removesuffix("Chunk")})
        for name, value in message["kwargs"].items():
            hidden = {"id", "response_metadata", "type", "usage_metadata"}
            if name not in hidden and (name == "content" or value not in (None, "", [], {})):
                seen[-1][name] = value
    names = {"c1": f"call {sum(len(message.get('tool_calls', ())) for message in seen) - 1}"}
    asked = replace_call_ids(seen, names) if any("tool_calls" in message for message in seen) else seen
    assert request_key(json.dumps(dumped, ensure_ascii=ascii_only), "m") == fingerprint(
        "langchain", asked, fingerprint("m")
    )


@pytest.mark.parametrize(
    "text",
    [
        "[{",
        "[{}]",
        '[{"lc":1}]',
        '[{"lc":1,"kwargs":{}}]',
        '[{"lc":1,"kwargs":{},"id":[]}]',
        '[{"lc":1,"kwargs":{},"id":{"a":1}}]',
        '[{"lc":1,"kwargs":[],"id":["HumanMessage"]}]',
        '[{"lc":2,"kwargs":{"content":"x"},"id":["HumanMessage"]}]',
        '[{"lc":1,"kwargs":{"tool_calls":5},"id":["AIMessage"]}]',
        '[{"lc":1,"kwargs":{"tool_calls":["a"]},"id":["AIMessage"]}]',
        '[{"lc":1,"kwargs":{"content":"x"},"id":["HumanMessage"]},1]',
        '[{"lc":1,"kwargs":{"content":"x"},"id":["HumanMessage"]},"lc"]',
        '[{"a":' * 100_000,
        '[{"lc":1,"id":["HumanMessage"],"kwargs":{"content":' + "[" * 250 + "]" * 250 + "}}]",
        '[{"lc":1,"id":["HumanMessage"],"kwargs":{"content":"\ud800"}}',
    ],
    ids=range(15),
)
def test_c4_a_text_that_looks_like_a_chat_is_a_request_like_any_other(text: str) -> None:
    cache = ExperienceCache(store=MemoryStore())
    assert cache.lookup(text, "m") is None
    cache.update(text, "m", [Generation(text="Paris")])
    assert cache.lookup(text, "m") == [Generation(text="Paris")]
    assert cache.lookup(text + " ", "m") is None
    assert request_key(text, "m") == fingerprint("langchain", text, *_model_of(text))


def _model_of(text: str) -> tuple[str]:
    """The model's part of a key: its text, where the request is too deep for data."""
    return ("m",) if "[[[" in text else (fingerprint("m"),)


@pytest.mark.own
def test_c4_a_script_and_the_same_code_as_a_module_have_the_same_key(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(_SCHEMA)
    (tmp_path / "of_towns.py").write_text(_SCHEMA.replace("city: str", "town: str"))
    runs = [["asking.py"], ["-c", "import asking, of_towns; print(asking.KEY, of_towns.KEY)"]]
    (script,), (module, other) = (
        subprocess.run([sys.executable, *run], check=True, capture_output=True, text=True, cwd=tmp_path).stdout.split()
        for run in runs
    )
    assert script == module != other


def test_c4_neither_prompt_nor_secret_is_in_the_file(
    tmp_path: Path,
    openai_cassette: Callable[[str], AbstractContextManager[Any]],
    chat_openai: Callable[..., ChatOpenAI],
) -> None:
    cache = ExperienceCache(f"sqlite:///{tmp_path}/cache.db")
    model = chat_openai(cache=cache, default_headers={"X-Auth": "header-secret"}, api_key="key-secret")
    with openai_cassette("cache_secrets"):
        model.invoke("A very private question")
    cache.pool.stats()
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"You said" in raw  # the answer is what is kept
    for secret in (b"header-secret", b"key-secret", b"api_key"):
        assert secret not in raw


# --- C5: the real client ------------------------------------------------------------------------------------


class City(BaseModel):
    city: str


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_c5_structured_output_hits_and_returns_the_object(
    method: Any,
    any_store: Store,
    openai_cassette: Callable[[str], AbstractContextManager[Any]],
    chat_openai: Callable[..., ChatOpenAI],
) -> None:
    cache = ExperienceCache(store=any_store)
    chain = chat_openai(cache=cache).with_structured_output(City, method=method)
    with openai_cassette(f"cache_{method}") as tape:
        answers = [chain.invoke("Which city? in Rome") for _ in range(3)]
        assert len(tape.requests) == 1
    assert answers[0] == answers[1] == answers[2]
    assert isinstance(answers[2], City)
    assert cache.stats()["hits"] == 2


async def test_c5_async_calls_of_the_real_client_hit(
    any_store: Store,
    openai_cassette: Callable[[str], AbstractContextManager[Any]],
    chat_openai: Callable[..., ChatOpenAI],
) -> None:
    cache = ExperienceCache(store=any_store)
    model = chat_openai(cache=cache)
    with openai_cassette("cache_async"):
        first = await model.ainvoke("Say it")
    second = await model.ainvoke("Say it")
    assert second.content == first.content
    assert second.id != first.id
    assert first.usage_metadata is not None
    assert cache.stats()["saved_tokens"] == first.usage_metadata["total_tokens"]


# --- C5, C6: what cannot be read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "planted",
    [
        b"",
        b"not json",
        b'{"v":0,"resp":[]}',
        b'{"v":1,"resp":"text"}',
        b'{"v":1,"resp":[{"message":{"role":5}}]}',
        b'{"v":1,"resp":[{"lc":1,"type":"secret","id":["HOME"]}]}',
        b'{"v":1,"resp":[{"message":{"role":"assistant","content":{"lc":1,"type":"constructor","id":["os"]}}}]}',
        b'{"v":1,"resp":{"$type":"os.system","$value":"true"}}',
        b'{"v":1,"resp":[{"text":{"lc":1,"type":"secret","id":["HOME"]}}]}',
        b'{"v":1,"resp":[{"message":{"role":%b,"tool_calls":[{"id":"c"}]}}]}' % (b"[" * 600 + b"]" * 600),
    ],
)
def test_c5_c6_a_planted_entry_is_a_miss_and_is_healed(
    any_store: Store, planted: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", "the-home-folder")
    cache = ExperienceCache(store=any_store, on_error="raise")
    namespace = ("experience", "", "", "langchain")
    any_store.write(namespace, put={request_key("p", "m"): planted})
    assert cache.lookup("p", "m") is None
    assert [cache.stats()[name] for name in ("hits", "misses", "unreadable", "errors")] == [0, 1, 1, 0]
    assert any_store.get(namespace, [request_key("p", "m")]) == {}
    assert "the-home-folder" not in caplog.text
    cache.update("p", "m", [answer()])
    assert looked_up(cache).text == "Paris"


@pytest.mark.parametrize(
    "data",
    [
        ({"text": "fine"},),
        *(None, {}, {"message": 1}, [], "text", 5, [1], [None], ["message"], [["message"]], [{}], [{"message": None}]),
        [{"text": "fine"}, "text"],
        [{"message": {"role": "assistant", "tool_calls": 5}}],
        [{"message": {"role": "assistant", "tool_calls": [5]}}],
        [{"message": {"role": "assistant", "tool_calls": [{"id": ["x"]}]}}],
    ],
    ids=range(17),
)
def test_c5_what_is_no_answer_is_an_error_of_ours(data: Any) -> None:
    with pytest.raises(SerializationError, match=r"a stored (answer|Message)"):
        read_generations(data, age=1.0, new_id=lambda: "new")


@pytest.mark.parametrize("without", [{}, {"id": None}])
def test_c5_a_call_without_an_id_stays_without(without: dict[str, Any]) -> None:
    calls = [{"name": "f", "args": {"of": "c"}, **without}, {"name": "g", "args": {}, "id": "c"}]
    data = [{"message": {"role": "assistant", "tool_calls": calls}}]
    (found,) = read_generations(data, age=1.0, new_id=lambda: "new")
    assert isinstance(found, ChatGeneration)
    assert isinstance(found.message, AIMessage)
    assert [call["id"] for call in found.message.tool_calls] == [None, "call_new"]


def test_c1_only_ids_are_made_anew_on_a_hit(any_store: Store) -> None:
    """Not what reads like one; nor an id that is its tool's name, by which some providers know the call."""
    calls = [
        {"name": "find", "args": {"user": "7", "tool_calls": [{"id": "7"}]}, "id": "7"},
        {"name": "look", "args": {}, "id": "look"},
    ]
    use: dict[str, Any] = {"type": "tool_use", "id": "7", "name": "find", "input": {"id": "7"}}
    content = [{"type": "text", "text": "7"}, use]
    cache = ExperienceCache(store=any_store)
    cache.update("p", "m", [answer(content, tool_calls=calls, additional_kwargs={"ticket": "7"})])
    hit = looked_up(cache).message
    assert isinstance(hit, AIMessage)
    new, kept = (call["id"] for call in hit.tool_calls)
    assert new != "7" == hit.additional_kwargs["ticket"]
    assert kept == "look"
    assert [(call["name"], call["args"]) for call in hit.tool_calls] == [(call["name"], call["args"]) for call in calls]
    assert hit.content == [content[0], {**use, "id": new}]


def _of_openai(n: int) -> list[Any]:
    """What an answer of OpenAI's Responses holds, with the ids under which OpenAI keeps its parts."""
    return [
        {"type": "reasoning", "id": f"rs_{n}a", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "reasoning", "id": "rs_b", "summary": [], "encrypted_content": "sealed"},
        {"type": "reasoning", "id": "rs_c", "reasoning": "Hm.", "extras": {"encrypted_content": "sealed"}},
        {"type": "text", "text": "Let me look.", "id": f"msg_{n}", "phase": "commentary"},
        {"type": "refusal", "refusal": "Not that.", "id": f"msg_{n}"},
        {"type": "text", "text": "of another", "id": "other"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"c{n}", "name": "look", "arguments": "{}"},
        {"type": "tool_call", "id": f"c{n}", "name": "look", "args": {}, "extras": {"item_id": f"fc_{n}", "x": 1}},
        {"type": "custom_tool_call", "id": f"ctc_{n}", "call_id": "d", "name": "write", "input": "x"},
        "as it is",
    ]


def test_c1_a_hit_has_no_id_under_which_openai_keeps_a_part_of_it(any_store: Store) -> None:
    """OpenAI has forgotten it after a month, keeps it from others' keys, and takes each once in a conversation."""
    cache = ExperienceCache(store=any_store)
    call = {"name": "look", "args": {}, "id": "c1"}
    cache.update("p", "m", [answer(_of_openai(1), tool_calls=[call])])
    hit = looked_up(cache).message
    assert isinstance(hit, AIMessage)
    new = hit.tool_calls[0]["id"]
    assert hit.content == [
        *_of_openai(1)[1:3],
        {"type": "text", "text": "Let me look.", "phase": "commentary"},
        {"type": "refusal", "refusal": "Not that."},
        _of_openai(1)[5],
        {"type": "function_call", "call_id": new, "name": "look", "arguments": "{}"},
        {"type": "tool_call", "id": new, "name": "look", "args": {}, "extras": {"x": 1}},
        {"type": "custom_tool_call", "call_id": "d", "name": "write", "input": "x"},
        "as it is",
    ]


WORK = ["code_interpreter", "file_search", "mcp", "tool_search", "web_search"]
SEARCHED = [
    *([{"type": f"{work}_call", "id": "w_1", "status": "completed"}] for work in WORK),
    [{"type": "tool_search_output", "id": "tso_1", "tools": []}],
    [{"type": "server_tool_call", "id": "ws_1", "name": "web_search", "args": {}},
     {"type": "server_tool_result", "tool_call_id": "ws_1", "status": "success"}],
    [{"type": "non_standard", "value": {"type": "mcp_list_tools", "id": "mcpl_1", "tools": []}}],
]  # fmt: skip


@pytest.mark.parametrize("searched", SEARCHED)
def test_c1_a_hit_has_nothing_that_openai_refuses_without_its_thoughts(any_store: Store, searched: list[Any]) -> None:
    """It takes no record of a search without the thought before it, of which nothing but an id was told."""
    text = {"type": "text", "text": "Sunny."}
    bare: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    sealed = {**bare, "encrypted_content": "sealed"}

    def served(*content: Any) -> Any:
        cache = ExperienceCache(store=any_store, tag=str(content))
        cache.update("p", "m", [answer(list(content))])
        return looked_up(cache).message.content

    assert served(bare, *searched, text) == [text]
    assert served(sealed, *searched, text) == [sealed, *searched, text]
    assert served(*searched, text) == [*searched, text]


@pytest.mark.parametrize("version", ["responses/v1", "v1"])
def test_c1_an_image_in_a_hit_is_not_looked_up_by_openai(version: str) -> None:
    """LangChain sends nothing but its id, except to a server that keeps nothing."""
    image: dict[str, Any] = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBO"}
    if version == "v1":
        image = {"type": "image", "id": "ig_1", "base64": "iVBO", "mime_type": "image/png"}
    text = {"type": "text", "text": "Here."}
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}

    def served(*content: Any) -> BaseMessage:
        cache = ExperienceCache(store=MemoryStore())
        cache.update("p", "m", [answer(list(content), response_metadata={"output_version": version})])
        return looked_up(cache).message

    hit = served(image, text)
    assert hit.content == [{"type": "image", "base64": "iVBO", "mime_type": "image/png"}, text]
    model = ChatOpenAI(model="m", api_key=SecretStr("k"), use_responses_api=True)
    (sent,) = model._get_request_payload([hit])["input"]
    assert sent["content"][0]["text"] == "Here."
    assert served(sealed, image, text).content == [sealed, image, text]


def test_c1_a_hit_has_all_parts_of_a_thought_that_is_given_encrypted(any_store: Store) -> None:
    """LangChain's own blocks have the seal in one of them."""
    first = {"type": "reasoning", "id": "rs_1", "reasoning": "Hm.", "encrypted_content": "sealed"}
    thoughts = [first, {"type": "reasoning", "id": "rs_1", "reasoning": "So."}]
    other = {"type": "reasoning", "id": "rs_2", "reasoning": "Of which nothing but an id was told."}
    cache = ExperienceCache(store=any_store)
    rest: list[Any] = [{"type": "reasoning", "id": "mine"}, {"type": "text", "text": "Yes."}]
    cache.update("p", "m", [answer([*thoughts, other, *rest])])
    assert looked_up(cache).message.content == [*thoughts, *rest]


def _beside(n: int, **thought: str) -> dict[str, Any]:
    """What there is beside the content of an answer of OpenAI's Responses with ``output_version="v0"``."""
    return {
        "reasoning": {"type": "reasoning", "id": f"rs_{n}", "summary": [], **thought},
        "tool_outputs": [{"type": "web_search_call", "id": f"ws_{n}"}, {"type": "image_generation_call", "id": "ig"}],
        "__openai_function_call_ids__": {f"c{n}": f"fc_{n}"},
    }


def test_c1_a_hit_has_no_such_id_beside_its_content_either(any_store: Store) -> None:
    def served(**beside: Any) -> dict[str, Any]:
        cache = ExperienceCache(store=any_store, tag=str(beside))
        cache.update("p", "m", [answer(additional_kwargs=beside)])
        return looked_up(cache).message.additional_kwargs

    told, sealed = _beside(1), _beside(1, encrypted_content="sealed")
    assert served(**told) == {"tool_outputs": told["tool_outputs"][1:]}
    assert served(**{**told, "tool_outputs": told["tool_outputs"][:1]}) == {}
    assert served(**sealed) == {name: sealed[name] for name in ("reasoning", "tool_outputs")}
    assert served(reasoning="Hm.", tool_outputs=told["tool_outputs"]) == {
        "reasoning": "Hm.", "tool_outputs": told["tool_outputs"],
    }  # fmt: skip


def test_c4_ids_beside_an_answer_do_not_change_the_key() -> None:
    def talk(n: int, **thought: str) -> str:
        call = {"name": "look", "args": {}, "id": f"c{n}"}
        said = AIMessage("Let me look.", tool_calls=[call], additional_kwargs=_beside(n, **thought))
        return request_key(dumps([HumanMessage("q"), said, ToolMessage("3", tool_call_id=f"c{n}")]), "m")

    assert talk(1) == talk(2)
    assert len({talk(1), talk(1, encrypted_content="a"), talk(1, encrypted_content="b")}) == 3


def test_c4_where_pythons_own_functions_lie_in_a_process_does_not_change_the_key() -> None:
    """ChatGoogleGenerativeAI tells of an enum in a tool all that is in its class."""

    def key(address: str, type_: str = "STRING", name: str = "Enum.__new__") -> str:
        told = f"{{'_value_': '{type_}', '__new__': <function {name} at 0x7f{address}>,"
        told += f" '_new_member_': <built-in method __new__ of type object at 0x{address}>}}"
        return request_key("p", f"[('stop', None), ('tools', [{told}])]")

    assert key("365b4c47c0") == key("9aF0")
    others = [("1",), ("1", "INTEGER"), ("1", "STRING", "mine"), ("2", "STRING", "mine")]
    assert len({key(*other) for other in others}) == 4


def test_c4_places_of_an_answers_parts_in_its_stream_do_not_change_the_key() -> None:
    """A streamed answer has them, the same from the cache others or none."""
    blocks: list[Any] = [{"type": "reasoning", "reasoning": "Hm."}, {"type": "text", "text": "Yes."}]

    def talk(*places: Any, said: type[BaseMessage] = AIMessage) -> str:
        content = [{**block, "index": n} for block, n in zip(blocks, places, strict=True)] if places else blocks
        return request_key(dumps([HumanMessage("q"), said(content)]), "m")

    assert talk() == talk(0, 1) == talk("lc_rs_0", "lc_txt_1")
    assert talk(0, 1, said=HumanMessage) != talk(0, 2, said=HumanMessage)  # somebody's own word


def test_c4_an_answer_that_its_reader_added_up_of_a_stream_does_not_change_the_key() -> None:
    """Its calls have the places of the provider's stream, or of ours; as a whole message it has neither."""

    def talk(said: BaseMessage) -> str:
        return request_key(dumps([HumanMessage("q"), said, ToolMessage("3", tool_call_id="c1")]), "m")

    def streamed(place: int | None, args: str = '{"x": 1}') -> BaseMessage:
        call = tool_call_chunk(name="look", args=args, id="c1", index=place)
        last = AIMessageChunk(content="", tool_call_chunks=[call], chunk_position="last")
        return AIMessageChunk(content="") + last

    whole = AIMessage("", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c1"}])
    assert talk(whole) == talk(streamed(0)) == talk(streamed(1)) == talk(streamed(None))
    assert talk(whole) != talk(streamed(0, '{"x": 2}'))


def test_c4_ids_of_an_answers_parts_do_not_change_the_key() -> None:
    def talk(n: int, **changed: str) -> str:
        content = [{**block, **changed} if "text" in block else block for block in _of_openai(n)]
        return dumps([HumanMessage("q"), AIMessage(content, tool_calls=[{"name": "look", "args": {}, "id": f"c{n}"}])])

    assert request_key(talk(1), "m") == request_key(talk(2), "m")
    assert len({request_key(talk(1, **changed), "m") for changed in ({}, {"text": "x"}, {"phase": "x"})}) == 3


def test_c4_ids_that_langchain_makes_up_for_blocks_do_not_change_the_key() -> None:
    def asked(text: str, url: str) -> str:
        blocks: list[Any] = [create_text_block(text), create_image_block(url=url)]
        return dumps([HumanMessage(blocks)])

    assert asked("q", "http://a") != asked("q", "http://a")
    assert request_key(asked("q", "http://a"), "m") == request_key(asked("q", "http://a"), "m")
    others = [("q", "http://a"), ("q", "http://b"), ("r", "http://a")]
    assert len({request_key(asked(*other), "m") for other in others}) == 3


def test_c4_a_tools_answer_that_reads_like_its_calls_id_is_another_answer() -> None:
    def after(name: str, id_: str, said: str) -> str:
        call = AIMessage("", tool_calls=[{"name": name, "args": {}, "id": id_}])
        return dumps([HumanMessage("go"), call, ToolMessage(said, tool_call_id=id_, name=name)])

    same = {request_key(after("take", id_, "3"), "m") for id_ in ("1", "2", "3", "call")}
    others = {
        request_key(after(*asked), "m") for asked in (("take", "1", "1"), ("take", "2", "2"), ("give", "give", "3"))
    }
    assert len(same) == 1
    assert len(same | others) == 4


def test_c6_a_secret_record_inside_a_message_stays_data(any_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "from-the-environment")
    cache = ExperienceCache(store=any_store)
    secret = {"lc": 1, "type": "secret", "id": ["PLANTED"]}
    cache.update("p", "m", [answer(additional_kwargs={"x": secret})])
    hit = looked_up(cache).message
    assert hit.additional_kwargs == {"x": secret}
    assert "from-the-environment" not in repr(hit)


# --- C7: what is not stored, and how entries go -------------------------------------------------------------


CUT = ["MALFORMED_RESPONSE", "MODEL_ARMOR", "CONTINUATION", "insufficient_system_resource", "compaction", "sensitive"]
CUT += ["time_limit", "token_limit", "cancelled", "not_finished"]  # watsonx's
CUT += ["lengthlength", "STOPMAX_TOKENS", "FinishReason.SAFETYFinishReason.SAFETY"]  # as chunks add up


@pytest.mark.parametrize(
    "spoiled",
    [
        answer("held", response_metadata={"finish_reason": "content_filter"}),
        answer("cut", response_metadata={"stop_reason": "max_tokens"}),
        answer(""),
        answer("", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": ""}]),
        answer("no", additional_kwargs={"refusal": "I will not."}),
        Generation(text=""),
        answer(
            "cut", response_metadata={"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        ),
        answer("cut", response_metadata={"stop_reason": "pause_turn"}),
        answer("cut", response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"}),
        answer("cut", response_metadata={"finish_reason": "MAX", "normalized_finish_reason": "length"}),
        answer(" \n"),
        answer([{"type": "text", "text": " "}]),
        answer([{"type": "reasoning", "reasoning": "Hm."}]),
        answer([{"type": "reasoning_content", "reasoning_content": {"text": "Hm.", "signature": "s"}}]),
        *(answer("cut", response_metadata={"finish_reason": reason}) for reason in CUT),
        answer(
            [{"type": "tool_use", "id": "c1", "name": "f", "input": {}, "caller": {"type": "code_execution_20260120"}}]
        ),
        answer([{"type": "refusal", "refusal": "I will not."}]),
        answer([{"type": "text", "text": "No."}, {"type": "non_standard", "value": {"type": "refusal"}}]),
        Generation(text=" "),
        answer("<think>Hm."),
        answer([{"type": "text", "text": "<think>Hm.</think>\n\n"}]),
        Generation(text="Hm.\n</think>\n\n"),
        answer("Let me look.", response_metadata={"finish_reason": "tool_calls"}),
        answer([{"type": "reasoning", "id": "rs_1", "summary": []}, {"type": "computer_call", "id": "cu_1"}]),
        answer([{"type": "non_standard", "value": {"type": "mcp_approval_request", "id": "mcpr_1"}}]),
        answer("I edit it.", additional_kwargs={"tool_outputs": [{"type": "apply_patch_call", "id": "apc_1"}]}),
    ],
    ids=range(25 + len(CUT)),
)
def test_c7_spoiled_answers_are_not_stored(spoiled: Generation) -> None:
    cache = ExperienceCache(store=MemoryStore())
    cache.update("p", "m", [answer(), spoiled])
    assert cache.lookup("p", "m") is None
    assert cache.stats()["refused"] == 1


@pytest.mark.parametrize(
    "content",
    [
        "Yes.",
        "<think>Hm.</think>Yes.",
        ["Yes."],
        [{"type": "reasoning", "reasoning": "Hm."}, {"type": "output_text", "text": "Yes."}],
        [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}],
        [{"type": "text", "text": "Yes."}, {"type": "non_standard", "value": {"type": "note"}}],
        [{"type": "tool_use", "id": "c1", "name": "f", "input": {}, "caller": {"type": "direct"}}],
    ],
)
def test_c7_what_says_something_is_stored(content: Any) -> None:
    assert worth_storing([answer(content, response_metadata={"status": "completed", "incomplete_details": None})])


def test_c1_an_answer_of_any_class_is_served() -> None:
    responses: list[BaseMessage] = [ChatMessage(content="Paris", role="assistant"), AIMessage("Lyon")]
    model = FakeMessagesListChatModel(responses=responses, cache=ExperienceCache(store=MemoryStore()))
    answers: list[BaseMessage] = [model.invoke("Where?") for _ in range(2)]
    assert [(message.type, message.content) for message in answers] == [("chat", "Paris")] * 2


@pytest.mark.parametrize("name", ["finish_reason", "stop_reason", "done_reason", "stopReason"])
@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "SAFETY", "load", "stop", None, 5])
def test_c7_every_providers_word_is_known_wherever_it_stands(name: str, reason: Any) -> None:
    said = {"other": "length", name: reason}
    whole = reason in {"stop", None, 5}
    assert worth_storing([answer(response_metadata=said)]) is whole
    assert worth_storing([answer(additional_kwargs=said)]) is whole
    assert worth_storing([ChatGeneration(message=AIMessage("a"), generation_info=said)]) is whole
    assert worth_storing([Generation(text="a"), Generation(text="a", generation_info=said)]) is whole
    assert worth_storing([]) is False


def test_c7_the_user_decides_what_is_worth_storing(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, should_store=lambda generations: "sorry" not in generations[0].text)
    cache.update("p", "m", [answer("sorry")])
    assert cache.lookup("p", "m") is None
    cache.update("p", "m", [answer("fine", response_metadata={"finish_reason": "length"})])
    assert looked_up(cache).text == "fine"


def test_c7_a_wrong_answer_can_be_deleted_by_its_hit(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    cache.update("p", "m", [answer("wrong")])
    cache.update("q", "m", [answer("right")])
    assert cache.delete(looked_up(cache)) is True
    assert cache.lookup("p", "m") is None
    assert looked_up(cache, "q").text == "right"
    with pytest.raises(ConfigurationError, match="did not come from a cache"):
        cache.delete(AIMessage("mine"))


def test_c7_invalidate_takes_a_condition(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    for text in ("old 1", "new", "old 2"):
        cache.update(text, "m", [answer(text)])
    assert cache.invalidate(lambda generations: generations[0].text.startswith("old")) == 2
    assert cache.lookup("old 1", "m") is None
    assert looked_up(cache, "new").text == "new"


async def test_c7_bypass_and_refresh_hold_for_one_task(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    cache.update("p", "m", [answer("first")])
    inside = asyncio.Event()

    async def bypassing() -> Any:
        with cache.bypass():
            inside.set()
            await asyncio.sleep(0)
            cache.update("p", "m", [answer("not stored")])
            return await cache.alookup("p", "m")

    task = asyncio.create_task(bypassing())
    await inside.wait()
    assert looked_up(cache).text == "first"
    assert await task is None
    assert looked_up(cache).text == "first"
    with cache.refresh():
        assert cache.lookup("p", "m") is None
        cache.update("p", "m", [answer("second")])
    assert looked_up(cache).text == "second"


@pytest.mark.parametrize("more", [{"finish_reason": "length"}, {"unwritable": object()}])
def test_c7_a_refresh_whose_answer_is_not_kept_takes_the_older_one_away(any_store: Store, more: dict[str, Any]) -> None:
    cache = ExperienceCache(store=any_store)
    cut = AIMessage("second, but", response_metadata=more)
    cache.update("p", "m", [answer("first")])
    cache.update("p", "m", [ChatGeneration(message=cut)])
    assert looked_up(cache).text == "first"
    with cache.bypass():
        cache.update("p", "m", [ChatGeneration(message=cut)])
    assert looked_up(cache).text == "first"
    with cache.refresh():
        cache.update("p", "m", [ChatGeneration(message=cut)])
    assert cache.lookup("p", "m") is None


def test_tenants_and_tags_are_kept_apart_and_clear_touches_its_own(any_store: Store) -> None:
    settings: list[dict[str, Any]] = [{}, {"tenant": "a"}, {"tenant": "b"}, {"tenant": "a", "tag": "t"}]
    caches = [ExperienceCache(store=any_store, **each) for each in settings]
    for n, cache in enumerate(caches):
        assert cache.lookup("p", "m") is None
        cache.update("p", "m", [answer(str(n))])
    caches[1].clear()
    found = [cache.lookup("p", "m") for cache in caches]
    assert [f and f[0].text for f in found] == ["0", None, "2", "3"]


def test_an_entry_is_served_until_its_ttl(any_store: Store) -> None:
    clock = FakeClock()
    cache = ExperienceCache(store=any_store, ttl=60, clock=clock)
    cache.update("p", "m", [answer()])
    clock.advance(59)
    assert cache.lookup("p", "m") is not None
    clock.advance(1)
    assert cache.lookup("p", "m") is None
    assert cache.stats()["expired"] == 1


# --- outages ------------------------------------------------------------------------------------------------


@pytest.fixture
def no_folder(tmp_path: Path) -> Store:
    return SQLiteStore(tmp_path / "none" / "cache.db")


def test_an_outage_does_not_fail_the_model_call(no_folder: Store, caplog: pytest.LogCaptureFixture) -> None:
    cache = ExperienceCache(store=no_folder)
    model = FakeListChatModel(responses=["a", "b"], cache=cache)
    with caplog.at_level(logging.WARNING):
        assert [model.invoke("x").content for _ in range(2)] == ["a", "b"]
    assert cache.stats()["errors"] == 4
    assert len([r for r in caplog.records if "goes on without its cache" in r.message]) == 1


def test_an_outage_is_raised_where_that_is_asked_for(no_folder: Store) -> None:
    with pytest.raises(StoreUnavailable):
        ExperienceCache(store=no_folder, on_error="raise").lookup("p", "m")


def test_an_answer_that_is_no_data_is_not_stored_and_fails_nothing() -> None:
    cache = ExperienceCache(store=MemoryStore())
    cache.update("p", "m", [answer(additional_kwargs={"object": object()})])
    assert cache.lookup("p", "m") is None
    assert [cache.stats()[name] for name in ("refused", "errors")] == [1, 0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"url": "memory:", "store": MemoryStore()}, "not both"),
        ({"url": "memory:", "on_error": "ignore"}, "not 'ignore'"),
        ({"url": "ftp://x"}, "'ftp' is none of them"),
    ],
)
def test_wrong_settings_are_one_clear_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        ExperienceCache(**settings)


async def test_an_argument_that_clear_does_not_know_clears_nothing() -> None:
    cache = ExperienceCache(url="memory:", tag="kept")
    cache.update("p", "m", [answer()])
    with pytest.raises(ConfigurationError, match="clear takes no arguments, not llm_string, prompt"):
        cache.clear(prompt="p", llm_string="m")
    with pytest.raises(ConfigurationError, match="clear takes no arguments, not llm_string"):
        await cache.aclear(llm_string="m")
    assert looked_up(cache).text == "Paris"


@pytest.mark.parametrize("level", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_c5_a_prompt_that_reads_like_data_without_an_end_is_a_text_like_any_other(level: str, depth: int) -> None:
    toy = Embedder(lambda texts: [[1.0] for _ in texts], name="toy")
    cache = ExperienceCache(url="memory:", tag=f"{level} {depth}", semantic=toy)
    model = FakeListLLM(responses=["fine", "again"], cache=cache)
    for prompt in ('[{"a":' + level * depth, '[{"a":' + level * depth + "]" * depth + "}]"):
        assert model.invoke(prompt) == model.invoke(prompt)
    said = '[{"lc":1,"id":["HumanMessage"],"kwargs":{"content":"Hi","additional_kwargs":{"a":' + level * depth
    prompt = said + ("]" * depth if level == "[" else "1" + "}" * depth) + "}}}]"
    cache.update(prompt, "model", [answer("fine")])
    assert cache.lookup(prompt, "model") is not None


class Completing(LLM):
    """Says with which parameters it is called; LangChain tells a cache nothing of these."""

    @property
    def _llm_type(self) -> str:
        return "completing"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"Model": "small"}

    def _call(self, prompt: str, *_: Any, temperature: float | None = None, **__: Any) -> str:
        return f"{prompt} {temperature}"


async def test_c4_parameters_of_a_call_of_a_completion_model_change_the_request(any_store: Store) -> None:
    model = Completing(cache=ExperienceCache(store=any_store))
    assert model.invoke("Hi") == "Hi None"
    for n in range(2):
        assert model.invoke("Hi", temperature=1) == await model.ainvoke("Hi", temperature=1, timeout=n) == "Hi 1"
        assert model.bind(temperature=2).batch(["Hi", "Ho"]) == ["Hi 2", "Ho 2"]
        assert (await model.agenerate(["Hi"], temperature=3)).generations[0][0].text == "Hi 3"
    assert model.cache.stats()["stored"] == 5  # type: ignore[union-attr]


def test_c4_parameters_of_a_completion_model_count_by_what_they_hold(any_store: Store) -> None:
    model = Completing(cache=(cache := ExperienceCache(store=any_store)))
    first, second = np.zeros(2000), np.eye(1, 2000, 1000)[0]
    assert repr(first) == repr(second)  # without the middle
    for more in (first, second, second.copy()):
        model.invoke("Hi", more=more)
    assert cache.stats() | {"stored": 2, "hits": 1} == cache.stats()
    model.invoke("Hi", more=object())  # of which only the address is told: another's, as soon as it is gone
    assert cache.stats() | {"stored": 2, "unkeyed": 1} == cache.stats()


class _Placed(OpenAI):
    """Says where it is; it tells its name and its parameters, and is serializable."""

    def _generate(self, prompts: list[str], *_: Any, **__: Any) -> LLMResult:
        return LLMResult(generations=[[Generation(text=f"from {self.openai_api_base}")] for _ in prompts])


def test_c4_a_completion_model_at_another_address_is_another(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    for url in ("http://a", "http://b") * 2:
        assert _Placed(api_key=SecretStr("k"), base_url=url, cache=cache).invoke("Hi") == f"from {url}"
    assert cache.stats()["hits"] == 2


class _PlacedByItsClient(ChatOpenAI):
    """Says where its client asks."""

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"from {self.root_client.base_url}"))])


@pytest.mark.parametrize("wraps", [False, True])
def test_c4_a_model_that_the_environment_sends_to_another_address_is_another(
    wraps: bool, any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = ExperienceCache(store=any_store)
    for url in ("http://a/", "https://api.openai.com/v1/", "http://b/") * 2:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        model = _PlacedByItsClient(api_key=SecretStr("k"), cache=None if wraps else cache)
        asked = CachedChatModel(model, cache) if wraps else model
        assert asked.invoke("Hi").content == f"from {url}"
    monkeypatch.delenv("OPENAI_BASE_URL")
    model = _PlacedByItsClient(api_key=SecretStr("k"), cache=cache)
    told = model._get_llm_string()
    cache.update(dumps([HumanMessage("Ho")]), told, [ChatGeneration(message=AIMessage("from before"))])
    assert model.invoke("Ho").content == "from before"  # as no address was told where it is the provider's own
    assert cache.stats()["hits"] == 4


class _SentToARoute(ChatOpenAI):
    """Says which header its client sends."""

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        route = self.root_client.default_headers["X-Route"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"from {route}"))])


@pytest.mark.parametrize("wraps", [True, False])
def test_c4_headers_that_the_environment_adds_are_part_of_the_key(
    any_store: Store, monkeypatch: pytest.MonkeyPatch, *, wraps: bool
) -> None:
    """A gateway may choose the model by them, and only the client reads them."""
    cache = ExperienceCache(store=any_store)
    for route in ("a", "b") * 2:
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Route: {route}")
        model = _SentToARoute(api_key=SecretStr("k"), cache=None if wraps else cache)
        asked = CachedChatModel(model, cache) if wraps else model
        assert asked.invoke("Hi").content == f"from {route}"
    assert cache.stats()["hits"] == 2


def test_c4_a_completion_model_that_the_environment_sends_to_another_address_is_another(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Placed(OpenAI):
        def _generate(self, prompts: list[str], *_: Any, **__: Any) -> LLMResult:
            return LLMResult(generations=[[Generation(text=f"from {self.client._client.base_url}")] for _ in prompts])

    cache = ExperienceCache(store=any_store)
    for url in ("http://a/", "http://b/") * 2:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        assert Placed(api_key=SecretStr("k"), cache=cache).invoke("Hi") == f"from {url}"
    assert cache.stats()["hits"] == 2


def test_c4_what_a_completion_model_leaves_out_of_what_it_tells_is_part_of_the_key(any_store: Store) -> None:
    class Thinking(LLM):
        """Tells its name alone, as GoogleGenerativeAI does of most."""

        model: str = "m"
        budget: int | None = None
        safety: dict[str, str] = Field(default_factory=dict)
        required: str

        @property
        def _llm_type(self) -> str:
            return "thinking"

        @property
        def _identifying_params(self) -> dict[str, Any]:
            return {"model": self.model}

        def _call(self, *_: Any, **__: Any) -> str:
            return f"{self.budget} {self.safety} {self.required}"

    cache, none = ExperienceCache(store=any_store), dict[str, str]()
    for budget, safety, required in ((None, none, "a"), (7, none, "a"), (7, {"all": "off"}, "a"), (7, none, "b")) * 2:
        model = Thinking(budget=budget, safety=safety, required=required, cache=cache)
        assert model.invoke("Hi") == f"{budget} {safety} {required}"
    assert cache.stats()["hits"] == 4


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_a_model_notes_in_itself_beside_what_it_tells_costs_no_hit(any_store: Store, *, wrapped: bool) -> None:
    class Noting(BaseChatModel):
        model: str = "m"
        seed: int | None = None
        used: dict[str, int] | None = None
        seconds: float = 0.0

        @property
        def _llm_type(self) -> str:
            return "noting"

        @property
        def _identifying_params(self) -> dict[str, Any]:
            return {"model": self.model}

        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            self.seconds += 0.5
            self.used = {"tokens": int(2 * self.seconds)}
            return ChatResult(generations=[ChatGeneration(message=AIMessage(f"{messages[0].content} {self.seed}"))])

    cache = ExperienceCache(store=any_store)
    noting = Noting() if wrapped else Noting(cache=cache)
    model = CachedChatModel(noting, cache) if wrapped else noting
    assert [model.invoke(said).content for said in "abaab"] == ["a None", "b None", "a None", "a None", "b None"]
    assert noting.seconds == 1.0
    noting.seed = 7  # its owner, and no note
    assert [model.invoke(said).content for said in "abab"] == ["a 7", "b 7", "a 7", "b 7"]
    assert noting.seconds == 2.0


class Meanwhile(BaseChatModel):
    """Something happens while it is asked, and its own notes are taken."""

    style: str = "plain"
    seed: int = 0
    told: dict[str, Any] = Field(default_factory=dict)
    asked: int = 0
    noted: str = ""
    _meanwhile: Callable[[], object] = PrivateAttr(default=bool)

    @property
    def _llm_type(self) -> str:
        return "meanwhile"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return self.told

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        said = f"{self.style} {self.seed}"
        self.asked += 1
        if self.told:  # of a model that tells nothing, such a note would be a setting
            self.__dict__["noted"] = said
        self._meanwhile()
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


@pytest.mark.parametrize("told", [{}, {"model": "m"}], ids=["tells nothing", "tells its name"])
@pytest.mark.parametrize(("name", "value", "said"), [("style", "rude", "rude 0"), ("seed", 7, "plain 7")])
@pytest.mark.parametrize("wrapped", [False, True])
def test_c4_a_setting_that_is_changed_while_a_model_is_asked_counts(
    told: dict[str, Any], name: str, value: Any, said: str, *, wrapped: bool
) -> None:
    cache = ExperienceCache(store=MemoryStore())
    inner = Meanwhile(told=told) if wrapped else Meanwhile(told=told, cache=cache)
    model = CachedChatModel(inner, cache) if wrapped else inner
    inner._meanwhile = lambda: setattr(inner, name, value)
    assert model.invoke("Hi").content == "plain 0"
    inner._meanwhile = bool
    assert [model.invoke("Hi").content for _ in range(3)] == [said] * 3
    setattr(inner, name, Meanwhile.model_fields[name].default)
    assert [model.invoke("Hi").content for _ in range(3)] == ["plain 0"] * 3
    assert inner.asked == (2 if wrapped else 3)


@pytest.mark.parametrize("is_warm", [False, True])
def test_c4_a_setting_that_is_replaced_counts_in_a_model_whose_own_messages_get_ids(*, is_warm: bool) -> None:
    class Styled(FakeMessagesListChatModel):
        style: str = "plain"
        _meanwhile: list[Callable[[], object]] = PrivateAttr(default_factory=list)

        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            self.responses[0].content = self.style
            answered = ChatResult(generations=[ChatGeneration(message=self.responses[0])])
            if self._meanwhile:
                self._meanwhile.pop()()
            return answered

    model = Styled(responses=[AIMessage("")], cache=ExperienceCache(store=MemoryStore()))
    if is_warm:
        model.invoke("Hello")

    def call_and_change() -> None:  # a call in flight while the setting is changed, and another one after it
        model._meanwhile.append(lambda: setattr(model, "style", "rude"))
        model.invoke("Hi")

    model._meanwhile.append(call_and_change)
    model.invoke("Hi")
    assert [model.invoke("Hi").content for _ in range(3)] == ["rude"] * 3


class WithClient(BaseChatModel):
    """Makes a client for its first call, or for each."""

    client: Any = None
    lasting: bool = True

    @property
    def _llm_type(self) -> str:
        return "with client"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        if self.client is None or not self.lasting:
            self.client = object()
        return ChatResult(generations=[ChatGeneration(message=AIMessage("Hello"))])


@pytest.mark.parametrize("lasting", [True, False])
def test_an_answer_for_which_the_model_made_a_client_is_kept(*, lasting: bool) -> None:
    cache = ExperienceCache(store=MemoryStore())
    WithClient(cache=cache, lasting=lasting).invoke("Hi")
    assert WithClient(cache=cache, lasting=lasting).invoke("Hi").response_metadata["cache"] == "hit"
    assert cache.stats()["refused"] == 0


def _count(model: Any) -> None:
    model.asked += 1


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        return method(self, *args, **kwargs)

    return counting


@contextlib.contextmanager
def _counting(model: Any) -> Iterator[None]:
    model.asked += 1
    yield


class _Counter:
    def __init__(self, model: Any) -> None:
        self.model = model

    def add(self) -> None:
        self.model.asked += 1


class _Asked(BaseChatModel):
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "asked"

    @property
    def calls(self) -> int:
        return self.asked

    @calls.setter
    def calls(self, value: int) -> None:
        self.asked = value

    @staticmethod
    def count(model: _Asked) -> None:
        model.asked += 1

    def count_one(self) -> None:
        self.asked += 1

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"{messages[0].content}!"))])


class _AskedByFunction(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        _count(self)
        return super()._generate(*args, **kwargs)


class _AskedByDecorator(_Asked):
    @_counted
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return super()._generate(*args, **kwargs)


class _AskedByContext(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        with _counting(self):
            return super()._generate(*args, **kwargs)


class _AskedByObject(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        _Counter(self).add()
        return super()._generate(*args, **kwargs)


class _AskedByProperty(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self.calls += 1
        return super()._generate(*args, **kwargs)


class _AskedByStaticMethod(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self.count(self)
        return super()._generate(*args, **kwargs)


class _AskedByName(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        getattr(self, "count_one")()  # noqa: B009 - as of a name that is chosen
        return super()._generate(*args, **kwargs)


class _AskedByKeyword(_Asked):
    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self.__dict__.update(asked=self.asked + 1)
        return super()._generate(*args, **kwargs)


def _counted_by_objects_of_a_closure() -> type[_Asked]:
    class Loud(_Counter):
        def add(self) -> None:
            super().add()

        def quiet(self) -> Any:
            return Quiet(self.model)

    class Quiet(Loud):
        def add(self) -> None:
            super().add()

        def loud(self) -> Any:
            return Loud(self.model)

    class _AskedByClosure(_Asked):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            Loud(self).add()
            return super()._generate(*args, **kwargs)

    return _AskedByClosure


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [*_Asked.__subclasses__(), _counted_by_objects_of_a_closure()])
def test_a_model_that_counts_its_calls_outside_of_its_methods_is_served(kind: type[_Asked], *, wrapped: bool) -> None:
    cache = ExperienceCache(store=MemoryStore())
    inner = kind() if wrapped else kind(cache=cache)
    model = CachedChatModel(inner, cache) if wrapped else inner
    assert [model.invoke(said).content for said in "abaab"] == ["a!", "b!", "a!", "a!", "b!"]
    assert (inner.asked, cache.stats()["hits"]) == (2, 3)


@pytest.mark.parametrize("wrapped", [False, True])
def test_c4_a_setting_that_begins_with_0_counts_where_a_model_tells_others(any_store: Store, *, wrapped: bool) -> None:
    class Telling(BaseChatModel):
        model: str = "m"
        temperature: float = 0
        seed: int = 0
        calls: int = 0

        @property
        def _llm_type(self) -> str:
            return "telling"

        @property
        def _identifying_params(self) -> dict[str, Any]:
            return {"model": self.model}

        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            self.calls += 1
            said = AIMessage(f"{self.temperature} {self.seed} {self.calls}")
            return ChatResult(generations=[ChatGeneration(message=said)])

    cache = ExperienceCache(store=any_store)

    def asked(**fields: float) -> str:
        model = Telling(**fields) if wrapped else Telling(cache=cache, **fields)
        return str((CachedChatModel(model, cache) if wrapped else model).invoke("Hi").content)

    settings: list[dict[str, float]] = [{}, {"temperature": 1}, {"temperature": 2}, {"seed": 5}, {"seed": 6}]
    for _ in range(2):
        assert [asked(**each) for each in settings] == ["0 0 1", "1.0 0 1", "2.0 0 1", "0 5 1", "0 6 1"]
    assert asked(calls=7) == "0 0 1"  # which it sets itself: as where one is pickled that has counted
    assert cache.stats()["hits"] == 6


class _Options(BaseModel):
    tone: str = ""


@dataclass
class _PlainOptions:
    tone: str = ""


@dataclass
class _LockedOptions(_PlainOptions):
    lock: Any = field(default_factory=threading.Lock)


class _Telling(BaseChatModel):
    """Has LangChain tell its name alone, or all of itself."""

    told_whole: ClassVar[bool] = False

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return cls.told_whole

    @property
    def _llm_type(self) -> str:
        return "telling"


class _Optional(_Telling):
    """Has its settings in an object of their own."""

    options: Any

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.options.tone))])


class _OptionalWhole(_Optional):
    told_whole = True


@pytest.mark.parametrize("options", [_Options, _PlainOptions])
@pytest.mark.parametrize("kind", [_Optional, _OptionalWhole])
def test_c4_settings_that_are_changed_in_themselves_count(any_store: Store, kind: Any, options: Any) -> None:
    inner = kind(options=options())
    model = CachedChatModel(inner, ExperienceCache(store=any_store))
    for tone in ("curt", "kind") * 2:
        inner.options.tone = tone
        assert model.invoke("Hi").content == tone
    assert model.stats()["hits"] == 2


class _Parted(_Telling):
    """Has a field of several parts."""

    parts: Any

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(repr(self.parts)))])


class _PartedWhole(_Parted):
    told_whole = True


@pytest.mark.parametrize("make", [lambda *parts: [*parts], lambda *parts: parts, lambda *parts: {"all": [*parts]}])
@pytest.mark.parametrize("kind", [_Parted, _PartedWhole])
def test_c4_settings_and_sets_that_are_changed_within_a_field_count(kind: Any, make: Any) -> None:
    options, words = _Options(), {"a"}
    inner = kind(parts=make(options, words))
    model = CachedChatModel(inner, ExperienceCache(store=MemoryStore()))
    changes: list[Callable[[], None]] = [
        lambda: None,
        lambda: setattr(options, "tone", "curt"),
        lambda: words.add("b"),
    ]
    for change in changes:
        change()
        for _ in range(2):
            assert model.invoke("Hi").content == repr(inner.parts)
    assert model.stats()["hits"] == 3


class _Sent(_Telling):
    """Has fields that LangChain is not to dump, and makes its client as it is asked, as Anthropic's models do."""

    default_headers: dict[str, str] | None = Field(default=None, exclude=True)
    client: Any = Field(default=None, exclude=True)
    hub_api_token: str = ""
    _makes: Any = PrivateAttr(None)

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"hub_api_token": "HUB_API_TOKEN"} if self.told_whole else {}

    @cached_property
    def _client(self) -> Any:
        return self._makes and self._makes()

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        said = f"{self.client or self._client} {self.default_headers}"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


class _SentWhole(_Sent):
    told_whole = True


def _of_aws(place: str) -> Any:
    return SimpleNamespace(meta=SimpleNamespace(endpoint_url=f"https://bedrock-runtime.{place}.amazonaws.com"))


def _of_google(url: str = "https://generativelanguage.googleapis.com/", version: str = "v1beta", **told: Any) -> Any:
    asks = {"vertexai": None, "project": None, "location": None, **told}
    options = SimpleNamespace(base_url=url, api_version=version)
    return SimpleNamespace(_api_client=SimpleNamespace(_http_options=options, **asks))


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [_Sent, _SentWhole])
@pytest.mark.parametrize(
    "client",
    [
        _of_aws,
        lambda place: _of_google(f"http://{place}/"),
        lambda place: _of_google(version=place),
        lambda place: _of_google(vertexai=True, project=place, location="eu"),
        lambda place: _of_google(vertexai=True, project="p", location=place),
        lambda place: SimpleNamespace(client=_of_google(f"http://{place}/")),  # a chat model in one of completions
    ],
    ids=["region", "address", "version", "project", "location", "within"],
)
def test_c4_where_the_client_of_a_provider_asks_is_part_of_the_key(kind: Any, client: Any, *, wrapped: bool) -> None:
    """As ``AWS_REGION``, ``AWS_ENDPOINT_URL``, ``GOOGLE_CLOUD_LOCATION`` or the user have it."""
    cache = ExperienceCache(store=MemoryStore())
    for place in ("a", "b") * 2:
        inner = kind(client=client(place), cache=None if wrapped else cache)
        model = CachedChatModel(inner, cache) if wrapped else inner
        assert model.invoke("Hi").content == f"{client(place)} None"
    assert cache.stats()["hits"] == 2


class _Described(_Sent):
    """Tells caches of itself in words of its own."""

    def _get_llm_string(self, *_: Any, **__: Any) -> str:
        return f"described {self.hub_api_token}"


def test_c4_a_description_of_a_model_s_own_is_not_cut_where_its_address_is_told() -> None:
    cache = ExperienceCache(store=MemoryStore())
    models = [_Described(hub_api_token=name, client=_of_aws("a"), cache=cache) for name in ("x", "y")]
    for model in models:
        model.invoke("Hi")
    assert (cache.stats()["hits"], cache.stats()["misses"]) == (0, 2)


class _Routed(_Telling):
    """Knows its models by the name of their group, as ChatLiteLLMRouter does; a router is no data."""

    router: Any = Field(exclude=True)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model": "group"}

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        said = str([deployment["litellm_params"] for deployment in getattr(self.router, "model_list", ())])
        return ChatResult(generations=[ChatGeneration(message=AIMessage(said))])


class _RoutedWhole(_Routed):
    told_whole = True


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [_Routed, _RoutedWhole])
def test_c4_the_models_behind_a_router_are_part_of_the_key(kind: Any, *, wrapped: bool) -> None:
    """LiteLLM's: under one name, another model, address or temperature answers otherwise; another API key does not."""
    cache = ExperienceCache(store=MemoryStore())

    def asks(*deployments: dict[str, Any]) -> Any:
        listed = [{"model_name": "group", "litellm_params": parameters} for parameters in deployments]
        inner = kind(router=SimpleNamespace(model_list=listed), cache=None if wrapped else cache)
        return (CachedChatModel(inner, cache) if wrapped else inner).invoke("Hi").content

    base = {"model": "openai/a", "api_base": "http://a", "api_key": "k", "rpm": 5, "use_proxy": False, "top_p": None}
    changes: list[dict[str, Any]] = [{"model": "openai/b"}, {"api_base": "http://b"}, {"temperature": 0}]
    for deployments in ([base], *([base | change] for change in changes), [base, base | changes[0]]):
        assert asks(*deployments) == str([*deployments])
        assert asks(*deployments) == str([*deployments])
    assert cache.stats()["hits"] == 5
    assert asks(base | {"api_key": "another", "rpm": 9}, {"model": "openai/a", "api_base": "http://a"}) == str([base])
    assert kind(router=object(), cache=cache).invoke("Hi").content == "[]"  # another's router


class NotConnected:
    @property
    def model_list(self) -> Any:
        raise RuntimeError("this router is not connected")


@pytest.mark.parametrize(
    "router",
    [
        NotConnected(),
        SimpleNamespace(model_list=[{"model_name": "fast", "litellm_params": "gpt-4o"}]),
    ],
)
def test_c4_a_router_that_is_not_litellms_does_not_fail_the_call(router: Any) -> None:
    class Choosing(FakeListChatModel):
        router: Any = Field(exclude=True)

    model = CachedChatModel(Choosing(responses=["Yes."], router=router), ExperienceCache(store=MemoryStore()))
    assert model.invoke("Hi").content == "Yes."


@pytest.mark.parametrize("kind", [_Sent, _SentWhole])
def test_c4_a_project_that_google_is_not_asked_for_changes_no_key(kind: Any) -> None:
    cache = ExperienceCache(store=MemoryStore())
    for client in (None, _of_google(), _of_google(project="p")):
        assert kind(client=client, cache=cache).invoke("Hi").content == "None None"
    assert cache.stats()["hits"] == 2


@pytest.mark.parametrize("kind", [_Sent, _SentWhole])
def test_c4_a_client_that_is_made_as_it_is_asked_changes_no_key_by_then(kind: Any) -> None:
    cache = ExperienceCache(store=MemoryStore())

    def asks(make: Callable[[], Any]) -> Any:
        model = kind(cache=cache)
        model._makes = make
        return model.invoke("Hi").content

    for place in ("a", "b") * 2:
        assert asks(partial(_of_aws, place)) == f"{_of_aws(place)} None"
    assert cache.stats()["hits"] == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):  # which is for the model to say, and for nobody else
            asks(lambda: 1 / 0)
    assert cache.stats()["errors"] == 0


class _Served(_Telling):
    """Has its servers of tools dumped as secrets, as ChatAnthropic has its ``mcp_servers``."""

    mcp_servers: list[dict[str, str]] | None = None

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"mcp_servers": "ANTHROPIC_MCP_SERVERS"}

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(str(self.mcp_servers)))])


class _ServedWhole(_Served):
    told_whole = True


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [_Served, _ServedWhole])
def test_c4_servers_of_tools_that_are_dumped_as_secrets_are_part_of_the_key(kind: Any, *, wrapped: bool) -> None:
    cache = ExperienceCache(store=MemoryStore())
    given = [None, [{"url": "http://a"}], [{"url": "http://b"}], [{"url": "http://b", "authorization_token": "ada"}]]
    for servers in given * 2:
        inner = kind(mcp_servers=servers, cache=None if wrapped else cache)
        model = CachedChatModel(inner, cache) if wrapped else inner
        assert model.invoke("Hi").content == str(servers)
    assert cache.stats()["hits"] == 4


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [_Sent, _SentWhole])
def test_c4_headers_that_are_not_to_be_dumped_are_part_of_the_key(kind: Any, *, wrapped: bool) -> None:
    """As ChatOpenRouter has them, since there may be credentials in them."""
    cache = ExperienceCache(store=MemoryStore())
    for region in ("eu", "us") * 2:
        inner = kind(default_headers={"X-Region": region}, cache=None if wrapped else cache)
        model = CachedChatModel(inner, cache) if wrapped else inner
        assert model.invoke("Hi").content == f"None {inner.default_headers}"
    assert cache.stats()["hits"] == 2


@pytest.mark.parametrize("kind", [_Sent, _SentWhole])
def test_c4_a_token_of_an_api_is_no_part_of_the_key(kind: Any) -> None:
    cache = ExperienceCache(store=MemoryStore())
    for token in ("mine", "yours"):
        kind(hub_api_token=token, cache=cache).invoke("Hi")
    assert cache.stats()["hits"] == 1


class _Calling(_Telling):
    """Asks a function of its user, as models of one's own do."""

    way: Any
    azure_ad_token_provider: Any = None

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.way(messages[-1].content)))])


class _CallingWhole(_Calling):
    told_whole = True


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [_Calling, _CallingWhole])
def test_c4_functions_that_a_model_asks_tell_it_from_another(kind: Any, *, wrapped: bool) -> None:
    cache = ExperienceCache(store=MemoryStore())

    def asked(way: Any, **settings: Any) -> Any:
        model = kind(way=way, cache=None if wrapped else cache, **settings)
        return (CachedChatModel(model, cache) if wrapped else model).invoke("Hi").content

    def with_word(word: str) -> Any:
        return lambda text: f"{word} {text}"

    calls = [lambda text: text.upper(), lambda text: text.lower(), with_word("a"), with_word("b")]
    ways = [*calls, *(functools.partial("{} {}".format, word) for word in "cd")]
    for way in ways * 2:
        assert asked(way) == way("Hi")
    assert cache.stats()["hits"] == len(ways)
    asked(ways[0], azure_ad_token_provider=with_word("mine"))
    hits = cache.stats()["hits"]
    asked(ways[0], azure_ad_token_provider=with_word("yours"))
    assert cache.stats()["hits"] == hits + 1


class _Around(_Telling):
    """Asks another model, as ChatHuggingFace asks an endpoint."""

    inner: Any
    told: dict[str, Any] = Field(default_factory=dict, exclude=True)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return self.told

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answered = self.inner.invoke(messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(getattr(answered, "content", answered)))])


class _AroundWhole(_Around):
    told_whole = True


class _AroundUndumped(_Around):
    inner: Any = Field(exclude=True)


class _Endpoint(LLM):
    provider: str = ""
    timeout: float = 1
    calls: int = 0
    hub_api_token: str = ""

    @property
    def _llm_type(self) -> str:
        return "endpoint"

    def _call(self, *_: Any, **__: Any) -> str:
        self.calls += 1
        return f"{self.provider} {self.calls}"


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("told", [{}, {"name": "around"}])
@pytest.mark.parametrize("kind", [_Around, _AroundWhole, _AroundUndumped])
def test_c4_the_model_that_a_model_asks_is_part_of_the_key(kind: Any, told: Any, *, wrapped: bool) -> None:
    cache = ExperienceCache(store=MemoryStore())

    def around(inner: Any) -> Any:
        model = kind(inner=inner, told=told, cache=None if wrapped else cache)
        return CachedChatModel(model, cache) if wrapped else model

    for provider in ("groq", "novita") * 2:
        assert around(_Endpoint(provider=provider)).invoke("Hi").content == f"{provider} 1"
    assert around(_Endpoint(provider="groq", timeout=9, hub_api_token="mine")).invoke("Hi").content == "groq 1"
    for provider in ("groq", "novita"):
        assert around(around(_Endpoint(provider=provider))).invoke("Hi").content == f"{provider} 1"
    changed = _Endpoint(provider="groq")
    model = around(changed)
    assert [model.invoke(said).content for said in ("Hi", "Ho", "Ho")] == ["groq 1"] * 3
    changed.provider = "novita"
    assert [model.invoke("Ho").content for _ in range(2)] == ["novita 2"] * 2


class _Listing(_Telling):
    """Notes what it was asked, and may hold what holds it."""

    settings: list[str] = Field(default_factory=list)
    asked: list[Any] = Field(default_factory=list)
    around: Any = None

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages[-1].content)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"{self.settings} {len(self.asked)}"))])


class _ListingWhole(_Listing):
    told_whole = True


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", [_Around, _AroundWhole])
@pytest.mark.parametrize("inner_kind", [_Listing, _ListingWhole])
def test_c4_what_the_model_that_a_model_asks_notes_is_no_setting_of_it(
    inner_kind: Any, kind: Any, *, deep: bool, wrapped: bool
) -> None:
    cache, inner = ExperienceCache(store=MemoryStore()), inner_kind()
    model = kind(inner=kind(inner=inner) if deep else inner, cache=None if wrapped else cache)
    model = CachedChatModel(model, cache) if wrapped else model
    assert [model.invoke(said).content for said in ("Hi", "Ho", "Hi", "Ho")] == ["[] 1", "[] 2"] * 2
    if wrapped:  # else LangChain goes on telling what a model was that tells all
        inner.settings.append("curt")
        assert [model.invoke("Hi").content for _ in range(2)] == ["['curt'] 3"] * 2


@pytest.mark.parametrize("wrapped", [False, True])
def test_models_may_hold_each_other(*, wrapped: bool) -> None:
    cache, inner = ExperienceCache(store=MemoryStore()), _Listing()
    inner.around = _Around(inner=inner, cache=None if wrapped else cache)
    model = CachedChatModel(inner.around, cache) if wrapped else inner.around
    assert [model.invoke("Hi").content for _ in range(2)] == ["[] 1"] * 2


def test_a_model_may_ask_a_mock() -> None:
    cache, inner = ExperienceCache(store=MemoryStore()), Mock(spec=ChatOpenAI)
    inner.invoke.return_value = AIMessage("mine")
    assert [_Around(inner=inner, cache=cache).invoke("Hi").content for _ in range(2)] == ["mine"] * 2
    assert inner.invoke.call_count == 1


@pytest.mark.parametrize("kind", [_Sent, _SentWhole])
def test_a_client_that_cannot_be_looked_at_breaks_no_call(kind: Any) -> None:
    class Remote:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name) if name.startswith("__") else ConnectionError("nobody answers")

        def __repr__(self) -> str:
            return "remote"

    cache = ExperienceCache(store=MemoryStore())
    assert [kind(client=Remote(), cache=cache).invoke("Hi").content for _ in range(2)] == ["remote None"] * 2
    assert cache.stats()["hits"] == 1


class _Tone(Enum):
    CURT, KIND = "curt", "kind"

    @property
    def tone(self) -> str:
        return str(self.value)


def _toned(tone: str) -> _Tone:
    return _Tone(tone)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("options", [_Options, _PlainOptions, _LockedOptions, _toned])
@pytest.mark.parametrize("kind", [_Optional, _OptionalWhole])
def test_c4_settings_of_a_class_of_their_own_count(
    any_store: Store, kind: Any, options: Callable[..., Any], *, wrapped: bool
) -> None:
    """Of them, LangChain dumps no more than that it did not; and a lock among them does not break the call."""
    cache = ExperienceCache(store=any_store)
    for tone in ("curt", "kind") * 2:
        inner = kind(options=options(tone=tone), cache=None if wrapped else cache)
        assert (CachedChatModel(inner, cache) if wrapped else inner).invoke("Hi").content == tone
    assert cache.stats()["hits"] == 2


@pytest.mark.parametrize("told", [{}, {"name": "placed"}])
def test_c4_a_setting_that_a_model_takes_from_the_environment_counts(
    any_store: Store, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Placed(BaseChatModel):
        region: str = Field(default_factory=from_env("A_REGION"))

        @property
        def _llm_type(self) -> str:
            return "placed"

        @property
        def _identifying_params(self) -> dict[str, Any]:
            return told

        def _generate(self, *_: Any, **__: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(self.region))])

    cache = ExperienceCache(store=any_store)
    for region in ("eu", "us") * 2:
        monkeypatch.setenv("A_REGION", region)
        assert CachedChatModel(Placed(), cache).invoke("Hi").content == region
    assert cache.stats()["hits"] == 2


class _Noting(_Optional):
    """Notes what it was asked in an object of its own."""

    options: Any = None
    asked: _Options = Field(default_factory=_Options)

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        self.asked.tone += "!"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.asked.tone))])


class _NotingWhole(_Noting):
    told_whole = True


@pytest.mark.parametrize("kind", [_Noting, _NotingWhole])
def test_an_object_in_which_a_model_notes_its_calls_costs_no_hit(any_store: Store, kind: type[_Noting]) -> None:
    cache = ExperienceCache(store=any_store)
    for _ in range(2):  # as another process would
        model = CachedChatModel(kind(), cache)
        assert [model.invoke(said).content for said in ("Hi", "Ho", "Hi", "Ho")] == ["!", "!!", "!", "!!"]
    assert cache.stats()["hits"] == 6


class _Biased(_Telling):
    """Answers with what it is called with."""

    def _generate(self, *_: Any, **given: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(_heard(given["bias"])))])


class _BiasedWhole(_Biased):
    told_whole = True


class _Hidden(BaseModel):
    said: int = 0
    kept: int = Field(0, repr=False)


def _heard(bias: Any) -> str:
    return str(bias.tolist() if isinstance(bias, np.ndarray) else dict(bias) if isinstance(bias, BaseModel) else bias)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("kind", [_Biased, _BiasedWhole])
def test_c4_a_parameter_of_which_its_text_is_not_all_counts_by_what_it_holds(
    any_store: Store, kind: type[_Biased], *, wrapped: bool
) -> None:
    cache = ExperienceCache(store=any_store)
    model = CachedChatModel(kind(), cache) if wrapped else kind(cache=cache)
    one, other = np.zeros(5_000), np.zeros(5_000)
    other[2_500] = 1.0
    for _ in range(2):
        for bias in (one, other, _Hidden(kept=1), _Hidden(kept=2)):
            assert model.bind(bias=bias).invoke("Hi").content == _heard(bias)
    assert cache.stats()["hits"] == 4
    timely = model.bind(bias="b", timeout=object())  # which says nothing of the answer
    assert [timely.invoke("Hi").content for _ in range(2)] == ["b", "b"]
    for odd in (object(), {"by": [lambda: 1]}):
        assert model.bind(bias=odd).invoke("Hi").content == str(odd)
    assert (cache.stats()["hits"], cache.stats()["stored"]) == (5, 5)
    assert cache.stats()["unkeyed"] == 2


def test_c4_a_parameter_with_the_name_of_something_added_to_the_text_counts() -> None:
    cache = ExperienceCache(store=MemoryStore())
    for said in ("one", "other"):
        CachedChatModel(_BiasedWhole(), cache).bind(bias={1}, given=said).invoke("Hi")
    assert cache.stats()["hits"] == 0


def test_what_hits_have_saved_is_told_by_the_prices_of_models(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, prices={"small": (1.0, 2.0)})
    used = {"input_tokens": 1000, "output_tokens": 500, "total_tokens": 1500}
    message = AIMessage("Hi", usage_metadata=used, response_metadata={"model_name": "small"})
    cache.update("p", "m", [ChatGeneration(message=message)])
    cache.update("q", "m", [Generation(text="of a completion model, which tells nothing")])
    assert cache.lookup("p", "m") is not None
    assert cache.lookup("q", "m") is not None
    assert cache.pool.saved() == (0.0, 1500, 0.002)
    with pytest.raises(ConfigurationError, match="prices"):
        ExperienceCache(store=any_store, prices={"small": 1})  # type: ignore[dict-item]
