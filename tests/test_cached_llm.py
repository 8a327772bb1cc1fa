"""CachedLLM for LlamaIndex: chats, completions, streams, tools, agents and query engines (E6, C1 to C10)."""

# ruff: noqa: ARG002, PLR0917 - a model takes more than a script reads

from __future__ import annotations

import asyncio
import contextvars
import copy
import dis
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import make_dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_openai import ChatOpenAI
from llama_index.core import Document, MockEmbedding, Settings, VectorStoreIndex
from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CitableBlock,
    CitationBlock,
    CompletionResponse,
    DocumentBlock,
    ImageBlock,
    LLMMetadata,
    LogProb,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.callbacks import CallbackManager, CBEventType
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.extractors import SummaryExtractor
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined] # as the docs have it
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms import LLM, CustomLLM, MockLLM
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.prompts import PromptTemplate
from llama_index.core.rate_limiter import BaseRateLimiter
from llama_index.core.schema import ImageNode, TextNode
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel, Field, PrivateAttr, SecretStr, create_model

from langmem_adapters import ConfigurationError, SerializationError, StoreUnavailable
from langmem_adapters.codec import decode, encode
from langmem_adapters.experience import AtLeast
from langmem_adapters.experience.single_flight import flights
from langmem_adapters.langchain import CachedChatModel
from langmem_adapters.llamaindex import CachedLLM
from langmem_adapters.llamaindex import request as request_module
from langmem_adapters.llamaindex.request import chat_key
from langmem_adapters.llamaindex.responses import (
    Recording,
    pieces,
    read_response,
    worth_storing,
    write_response,
)
from langmem_adapters.protocols import Store
from langmem_adapters.providers.usage import usage_of
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from tests.faults import CROWD, Down, Refusing, on_threads
from tests.loops import cancel_before_the_next_step
from tests.waiting import auntil, until

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


class Scripted(FunctionCallingLLM):
    """Says what its script says, the last line again and again.

    A line may be a text, a message, a function of the messages, or an exception: in a stream after the first word.
    """

    temperature: float = 0.0
    api_key: str = "topsecret"
    timeout: float = 60
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    region_name: str | None = Field(default=None, exclude=True)  # as BedrockConverse has it
    endpoint_url: str | None = Field(default=None, exclude=True)
    azure_ad_token_provider: Any = None
    script: list[Any] = Field(default_factory=lambda: ["Hello there!"], exclude=True)
    gate: Any = Field(default=None, exclude=True)
    _asked: list[Any] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @classmethod
    def class_name(cls) -> str:
        return "Scripted"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, is_function_calling_model=True, model_name="scripted-1")

    @property
    def asked(self) -> int:
        return len(self._asked)

    def _next(self, messages: Any) -> ChatMessage:
        with self._lock:
            self._asked.append(messages)
            said = self.script[min(len(self._asked), len(self.script)) - 1]
        if self.gate is not None:
            assert self.gate.wait(120)
        if callable(said) and not isinstance(said, type):
            said = said(messages)
        if isinstance(said, BaseException):
            raise said
        return ChatMessage(role="assistant", content=said) if isinstance(said, str) else said

    def _response(self, said: ChatMessage) -> ChatResponse:
        raw = {"usage": dict(USAGE), "choices": [{"finish_reason": "stop"}]}
        return ChatResponse(message=said, raw=raw, additional_kwargs=dict(USAGE))

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self._response(self._next(messages))

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return self._response(await asyncio.to_thread(self._next, messages))

    def _pieces(self, messages: Any) -> Any:
        try:
            response = self._response(self._next(messages))
        except OSError:
            yield ChatResponse(message=ChatMessage(role="assistant", content="Hel"), delta="Hel")
            raise
        yield from pieces(response)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        return self._pieces(messages)

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        async def gen() -> Any:
            stream = self._pieces(messages)
            while (piece := await asyncio.to_thread(next, stream, None)) is not None:
                yield piece

        return gen()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self._next(prompt).content or "", raw={"usage": dict(USAGE)})

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        said = await asyncio.to_thread(self._next, prompt)
        return CompletionResponse(text=said.content or "", raw={"usage": dict(USAGE)})

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        def gen() -> Any:
            yield from pieces(CompletionResponse(text=self._next(prompt).content or "", raw={"usage": dict(USAGE)}))

        return gen()

    @llm_completion_callback()
    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        async def gen() -> Any:
            for piece in pieces(CompletionResponse(text=self._next(prompt).content or "", raw={"usage": dict(USAGE)})):
                yield piece

        return gen()

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: Any = None,
        chat_history: Any = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        asked = [ChatMessage(role="user", content=user_msg)] if isinstance(user_msg, str) else [user_msg]
        messages = [*(chat_history or []), *(asked if user_msg else [])]
        return {"messages": messages, "tools": list(tools), "tool_required": tool_required}

    def get_tool_calls_from_response(self, response: ChatResponse, *args: Any, **kwargs: Any) -> list[ToolSelection]:
        return [
            ToolSelection(
                tool_id=block.tool_call_id or "",
                tool_name=block.tool_name,
                tool_kwargs=dict(block.tool_kwargs),  # type: ignore[arg-type]
            )
            for block in response.message.blocks
            if isinstance(block, ToolCallBlock)
        ]


def cached(llm: LLM, **settings: Any) -> CachedLLM:
    return CachedLLM(llm, **{"store": MemoryStore(), **settings})


HI = [ChatMessage(role="user", content="Hi")]


def _streamed(stream: Any) -> Any:
    return joined(list(stream))


def joined(seen: list[Any]) -> Any:
    text = "".join(response.delta or "" for response in seen)
    last = seen[-1]
    said = last.text if isinstance(last, CompletionResponse) else last.message.content or ""
    assert text == said
    return last


async def _astreamed(stream: Any) -> Any:
    return joined([response async for response in await stream])


CHATS: dict[str, Callable[..., Any]] = {
    "chat": lambda llm, **more: llm.chat(HI, **more),
    "achat": lambda llm, **more: asyncio.run(llm.achat(HI, **more)),
    "stream_chat": lambda llm, **more: _streamed(llm.stream_chat(HI, **more)),
    "astream_chat": lambda llm, **more: asyncio.run(_astreamed(llm.astream_chat(HI, **more))),
}
COMPLETIONS: dict[str, Callable[..., Any]] = {
    "complete": lambda llm, **more: llm.complete("Hi", **more),
    "acomplete": lambda llm, **more: asyncio.run(llm.acomplete("Hi", **more)),
    "stream_complete": lambda llm, **more: _streamed(llm.stream_complete("Hi", **more)),
    "astream_complete": lambda llm, **more: asyncio.run(_astreamed(llm.astream_complete("Hi", **more))),
}
PAIRS = [(a, b) for ways in (CHATS, COMPLETIONS) for a in ways for b in ways]
WAYS = {**CHATS, **COMPLETIONS}


def text(response: Any) -> str:
    return response.text if isinstance(response, CompletionResponse) else response.message.content


# --- what a hit is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_e6_each_way_of_asking_is_served_from_each_other(first: str, second: str) -> None:
    inner = Scripted()
    llm = cached(inner)
    asked, served = WAYS[first](llm), WAYS[second](llm)
    assert inner.asked == 1
    assert text(asked) == text(served) == "Hello there!"
    assert type(asked) is type(served)
    assert "cache" not in asked.additional_kwargs
    assert asked.raw["usage"] == USAGE
    assert served.additional_kwargs["cache"] == "hit"
    assert served.additional_kwargs["cache_usage"] == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    assert served.raw == {"usage": dict.fromkeys(USAGE, 0)}
    assert not any(served.additional_kwargs.get(name) for name in USAGE)
    assert llm.stats()["hits"] == llm.stats()["misses"] == llm.stats()["stored"] == 1
    assert llm.stats()["saved_tokens"] == llm.pool.saved().tokens == 7


def test_messages_of_an_iterator_are_all_asked_and_are_the_key() -> None:
    model = cached(Scripted(script=[lambda messages: f"You said {messages[-1].content}."]))
    for said in ("red", "blue"):
        messages: Any = iter([ChatMessage("Hello."), ChatMessage(said)])
        assert text(model.chat(messages)) == f"You said {said}."


def test_a_chat_and_a_completion_are_not_the_same() -> None:
    inner = Scripted()
    llm = cached(inner)
    llm.chat(HI)
    llm.complete("Hi")
    llm.complete("Hi", formatted=True)
    assert inner.asked == 3


def test_a_streamed_hit_comes_by_words() -> None:
    llm = cached(Scripted(script=["One  two\nthree "]))
    llm.chat(HI)
    seen = list(llm.stream_chat(HI))
    assert [response.delta for response in seen] == ["One  ", "two\n", "three "]
    assert [response.message.content for response in seen] == ["One  ", "One  two\n", "One  two\nthree "]
    assert {response.message.role for response in seen} == {MessageRole.ASSISTANT}


@pytest.mark.parametrize("way", ["stream_chat", "astream_chat"])
def test_a_streamed_hit_tells_thoughts_first_as_they_come(way: str) -> None:
    """Beside a response, where OpenAI, Ollama and Bedrock have them, and agents look for them."""
    thoughts = [ThinkingBlock(content="Where  is\nit? "), ThinkingBlock(content=""), ThinkingBlock(content="There!")]
    said = ChatMessage(role="assistant", blocks=[*thoughts, TextBlock(text="In the shed.")])
    llm = cached(Scripted(script=[said]))
    llm.chat(HI)
    seen = list(llm.stream_chat(HI)) if way == "stream_chat" else asyncio.run(_all(llm.astream_chat(HI)))
    thought = [response.additional_kwargs.get("thinking_delta") for response in seen]
    assert thought == ["Where  ", "is\n", "it? ", "There!", None, None, None]
    assert [response.delta for response in seen] == ["", "", "", "", "In ", "the ", "shed."]
    assert seen[1].message.blocks == [ThinkingBlock(content="Where  is\n"), TextBlock(text="")]
    assert seen[3].message.blocks == [thoughts[0], thoughts[2], TextBlock(text="")]
    assert [response.message.content for response in seen] == ["", "", "", "", "In ", "In the ", "In the shed."]
    assert seen[4].message.blocks == [thoughts[0], thoughts[2], TextBlock(text="In ")]
    assert seen[-1].message == said


async def _all(stream: Any) -> list[Any]:
    return [response async for response in await stream]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # agents look at all they have
async def test_an_agent_shows_the_thoughts_of_a_streamed_hit() -> None:
    said = ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Let me see."), TextBlock(text="In the shed.")])
    agent = FunctionAgent(llm=cached(Scripted(script=[said])), tools=[weather])
    for _ in range(2):
        run = agent.run("Where is my bike?")
        events = [event async for event in run.stream_events() if isinstance(event, AgentStream)]
        assert "".join(event.thinking_delta or "" for event in events) == "Let me see."
        assert "".join(event.delta for event in events) == str(await run) == "In the shed."


def _called(*ids: str) -> ChatMessage:
    calls = [ToolCallBlock(tool_call_id=id_, tool_name="weather", tool_kwargs={"place": "Rome"}) for id_ in ids]
    return ChatMessage(role="assistant", blocks=[TextBlock(text="Let me see."), *calls])


@pytest.mark.parametrize("way", CHATS)
def test_tool_calls_come_back_with_ids_of_their_own(way: str) -> None:
    llm = cached(Scripted(script=[_called("a", "b")]))
    llm.chat(HI)
    found = [CHATS[way](llm).message.blocks for _ in range(2)]
    for blocks in found:
        assert [type(block) for block in blocks] == [TextBlock, ToolCallBlock, ToolCallBlock]
        assert [block.tool_kwargs for block in blocks[1:]] == [{"place": "Rome"}] * 2
    ids = {block.tool_call_id for blocks in found for block in blocks[1:]}
    assert len(ids | {"a", "b"}) == 6


BLOCKS = st.lists(
    st.one_of(
        st.text(max_size=12).map(lambda said: TextBlock(text=said)),
        st.text(max_size=12).map(lambda said: ThinkingBlock(content=said)),
        st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=2).map(
            lambda args: ToolCallBlock(tool_call_id=uuid.uuid4().hex, tool_name="f", tool_kwargs=args)
        ),
    ),
    max_size=4,
)


@given(blocks=BLOCKS, kwargs=st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=2))
def test_what_is_kept_comes_back_equal_but_for_ids(blocks: list[Any], kwargs: dict[str, Any]) -> None:
    message = ChatMessage(role="assistant", blocks=blocks, additional_kwargs=kwargs)
    ids = iter(range(100))
    read = read_response(write_response(ChatResponse(message=message)), age=1.0, new_id=lambda: str(next(ids)))
    assert isinstance(read, ChatResponse)
    got = read.message
    assert (got.role, got.additional_kwargs, got.content) == (message.role, kwargs, message.content)
    for before, after in zip(blocks, got.blocks, strict=True):
        if isinstance(before, ToolCallBlock):
            assert isinstance(after, ToolCallBlock)
            assert after.tool_call_id != before.tool_call_id
            before.tool_call_id = after.tool_call_id
        assert before == after


def came_to(stream: list[Any]) -> Any:
    recording = Recording()
    for response in stream:
        recording.take(response)
    return recording.answer()


@given(blocks=BLOCKS)
def test_pieces_add_up(blocks: list[Any]) -> None:
    response = ChatResponse(message=ChatMessage(role="assistant", blocks=blocks), additional_kwargs={"a": 1})
    seen = list(pieces(response))
    together = "".join(piece.delta for piece in seen)
    assert together == "".join(block.text for block in blocks if isinstance(block, TextBlock))
    assert came_to(seen).message == response.message
    assert seen[-1].additional_kwargs == {"a": 1}


def test_a_served_stream_has_no_line_breaks_that_the_models_had_not() -> None:
    """Anthropic's answer from search results has a block for each passage, which ends within a sentence."""
    parts = [TextBlock(text="It is "), TextBlock(text="in the shed"), TextBlock(text=".")]
    live = [
        ChatResponse(message=ChatMessage(role="assistant", blocks=parts[: n + 1]), delta=part.text)
        for n, part in enumerate(parts)
    ]
    kept = came_to(live)
    assert kept.message.blocks == parts
    assert "".join(piece.delta for piece in pieces(kept)) == "It is in the shed."


def test_a_stream_is_kept_with_the_text_of_its_deltas() -> None:
    """Some models give in a stream's last response the last piece alone, or less than they said."""
    late = [CompletionResponse(text="text", delta="text "), CompletionResponse(text="text text", delta="text text")]
    assert came_to(late).text == "text text text"
    call = ToolCallBlock(tool_call_id="a", tool_name="f", tool_kwargs={})
    for before in ([call], [TextBlock(text="c"), call]):
        first = ChatResponse(message=ChatMessage(role="assistant", content="ab"), delta="ab")
        last = ChatResponse(message=ChatMessage(role="assistant", blocks=before), delta="c")
        assert came_to([first, last]).message.blocks == [TextBlock(text="abc"), call]
    thought = ThinkingBlock(content="Hm.")
    parts = [ChatMessage(role="assistant", blocks=[thought, TextBlock(text=part)]) for part in "ab"]
    behind = came_to([ChatResponse(message=part, delta=part.content) for part in parts])
    assert behind.message.blocks == [thought, TextBlock(text="ab")]
    texts = [TextBlock(text="a"), TextBlock(text="b")]
    several = ChatResponse(message=ChatMessage(role="assistant", blocks=texts), delta="ab")
    assert came_to([several]).message == several.message
    assert came_to([several, several.model_copy(update={"delta": None})]).message == several.message
    so_far = [TextBlock(text="a"), call, TextBlock(text="ab"), TextBlock(text="abc")]  # as Mistral's has it
    gathered = [
        ChatResponse(message=ChatMessage(blocks=so_far[:n]), delta=new) for n, new in ((1, "a"), (3, "b"), (4, "c"))
    ]
    assert came_to(gathered).message.blocks == [TextBlock(text="abc"), call]
    llm = cached(MockLLM(max_tokens=3))
    live = "".join(response.delta or "" for response in llm.stream_complete("Hi"))
    assert llm.complete("Hi").text == live == "text text text"


def test_what_a_reader_does_to_a_response_changes_nothing() -> None:
    inner = Scripted(script=[_called("a")])
    llm = cached(inner)
    for response in llm.stream_chat(HI):
        for block in response.message.blocks:
            if isinstance(block, TextBlock):
                block.text = "spoiled"
            if isinstance(block, ToolCallBlock):
                assert isinstance(block.tool_kwargs, dict)
                block.tool_kwargs["place"] = "nowhere"
        response.message.blocks.clear()
        response.message.additional_kwargs["spoiled"] = response.additional_kwargs["spoiled"] = True
    for _ in range(2):
        hit = llm.chat(HI)
        assert "spoiled" not in {**hit.additional_kwargs, **hit.message.additional_kwargs}
        assert isinstance(call := hit.message.blocks[1], ToolCallBlock)
        assert call.tool_kwargs == {"place": "Rome"}
        assert hit.message.blocks[0] == TextBlock(text="Let me see.")
        assert len(hit.message.blocks) == 2
        hit.message.blocks.clear()
        hit.additional_kwargs.clear()
    assert inner.asked == 1


# --- what is not kept ---------------------------------------------------------------------------------------


def test_a_stream_that_was_broken_off_is_not_kept() -> None:
    inner = Scripted()
    llm = cached(inner)
    stream = llm.stream_chat(HI)
    next(stream)
    stream.close()
    llm.stream_chat(HI)  # nor one that nobody reads
    assert _streamed(llm.stream_chat(HI)).message.content == "Hello there!"
    assert llm.stats()["stored"] == 1


@pytest.mark.parametrize("way", CHATS)
def test_a_call_that_fails_is_not_kept_and_the_next_one_asks(way: str) -> None:
    llm = cached(Scripted(script=[OSError("down"), "Fine."]))
    with pytest.raises(OSError, match="down"):
        CHATS[way](llm)
    assert text(CHATS[way](llm)) == "Fine."
    assert llm.stats()["stored"] == 1


async def test_a_stream_of_nothing_is_not_kept_and_holds_nobody_up() -> None:
    class Silent(Scripted):
        def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
            self._asked.append(messages)
            return iter(())

        async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
            async def nothing() -> Any:
                for piece in self.stream_chat(messages):
                    yield piece

            return nothing()

    inner = Silent()
    llm = cached(inner)
    assert list(llm.stream_chat(HI)) == list(llm.stream_chat(HI)) == []
    for _ in range(2):
        assert [piece async for piece in await llm.astream_chat(HI)] == []
    assert (inner.asked, llm.stats()["errors"]) == (4, 0)


class _Reason:
    name = "MAX_TOKENS"


@pytest.mark.parametrize(
    "spoiled",
    [
        ChatResponse(message=ChatMessage(role="assistant", content="")),
        ChatResponse(message=ChatMessage(role="assistant", blocks=[])),
        ChatResponse(message=ChatMessage(role="assistant", content=" \n")),
        ChatResponse(message=ChatMessage(role="assistant", blocks=[ThinkingBlock(content="Hm.")])),
        ChatResponse(message=ChatMessage(role="assistant", content="<think>Hm.</think>\n")),
        CompletionResponse(text=""),
        CompletionResponse(text="<think>Hm."),
        ChatResponse(message=HI[0], raw={"choices": [{"finish_reason": "length"}]}),
        ChatResponse(message=HI[0], raw={"stop_reason": "max_tokens"}),
        ChatResponse(message=HI[0], raw={"finish_reason": _Reason()}),
        ChatResponse(message=HI[0], additional_kwargs={"stop_reason": "refusal"}),
        ChatResponse(message=ChatMessage(role="assistant", content="a", additional_kwargs={"finish_reason": "SAFETY"})),
        CompletionResponse(text="a", raw={"done_reason": "length"}),
        ChatResponse(message=HI[0], raw={"choices": [{"finish_reason": "tool_calls"}]}),
        CompletionResponse(text="a", raw={"status": "completed", "output": [{"type": "function_call"}]}),
        CompletionResponse(text="a", raw={"response": {"status": "completed", "output": [{"type": "function_call"}]}}),
        ChatResponse(message=ChatMessage(role="assistant", content="a", additional_kwargs={"reference_audio_id": "b"})),
    ],
)
def test_c7_what_was_cut_off_filtered_or_empty_is_not_worth_storing(spoiled: Any) -> None:
    assert not worth_storing(spoiled)


@pytest.mark.parametrize(("limit", "given"), [(4, {}), (None, {"max_tokens": 4}), (100, {"max_tokens": 4})])
def test_c7_what_took_all_the_tokens_that_it_might_is_not_kept(limit: int | None, given: dict[str, Any]) -> None:
    """Streams of BedrockConverse tell the tokens, and not that this was the end of them."""
    inner = Limited(max_tokens=limit, script=["The cap", "The capital is Paris."])
    for llm in (cached(inner), cached(inner)):
        for _ in range(2):
            list(llm.stream_chat(HI, **given))
    assert inner.asked == 4
    others: list[tuple[dict[str, Any], int]] = [({"should_store": lambda _: True}, 4), ({}, 5), ({}, 0), ({}, -1)]
    for settings, limit_given in others:  # who decides otherwise; who has more, or no limit
        llm = cached(inner, **settings)
        for _ in range(2):
            list(llm.stream_chat(HI, max_tokens=limit_given))
    assert inner.asked == 8


class Limited(Scripted):
    max_tokens: int | None = None


@pytest.mark.parametrize(
    ("args", "is_kept"),
    [('{"x": ', False), ("[" * 100_000, False), ('{"x": 1}', True), ("", True), ({"x": 1}, True)],
    ids=range(5),
)
def test_c7_a_call_with_half_of_its_arguments_is_not_worth_storing(args: Any, is_kept: bool) -> None:
    call = ToolCallBlock(tool_call_id="a", tool_name="f", tool_kwargs=args)
    message = ChatMessage(role="assistant", blocks=[TextBlock(text="Let me see."), call])
    assert worth_storing(ChatResponse(message=message)) is is_kept


def test_c7_what_is_whole_is_worth_storing() -> None:
    assert worth_storing(CompletionResponse(text="a", raw={"choices": 2}))  # of a provider that counts them
    for message in (HI[0], _called("a"), ChatMessage(role="assistant", blocks=[_called("a").blocks[1]])):
        assert worth_storing(ChatResponse(message=message, raw={"choices": [{"finish_reason": "stop"}]}))
    called = {"status": "completed", "output": [{"type": "function_call"}]}
    assert worth_storing(ChatResponse(message=_called("a"), raw=called))
    searched = {"status": "completed", "output": [{"type": "web_search_call"}]}  # by the provider, who had the result
    assert worth_storing(CompletionResponse(text="a", raw=searched))
    old = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [{"id": "a"}]})
    assert worth_storing(ChatResponse(message=old))


def test_what_would_not_come_back_equal_is_given_and_not_kept() -> None:
    class Call(BaseModel):
        id: str = "a"

    odd = [ChatMessage(role="assistant", content="a", additional_kwargs={"tool_calls": [Call()]})]
    odd.append(ChatMessage(role="assistant", content="a", additional_kwargs={"thing": {1: (2,)}}))
    for message in odd:
        llm = cached(Scripted(script=[message]))
        assert llm.chat(HI).message == llm.chat(HI).message == message
    assert llm.stats()["hits"] == 1
    llm = cached(Scripted(script=[odd[0]]))
    llm.chat(HI)
    assert (llm.stats()["refused"], llm.stats()["stored"]) == (1, 0)


class Citing(ChatResponse):
    """A response that tells more than others."""

    citations: list[str] = Field(default_factory=list)


def test_what_a_provider_tells_beside_a_response_is_not_lost_by_keeping_it() -> None:
    class Search(BaseModel):
        id: str = "a"

    message = ChatMessage(role="assistant", content="a")
    for response in (
        Citing(message=message, citations=["page 4"]),
        ChatResponse(message=message, additional_kwargs={"built_in_tool_calls": [Search()]}),
    ):
        with pytest.raises(SerializationError, match="not come back equal"):
            write_response(response)
    assert write_response(Citing(message=message))["message"]


class CitingCompletion(CompletionResponse):
    """One that tells more than others, too."""

    citations: list[str] = Field(default_factory=list)


class CitingLLM(Scripted):
    """Answers in classes of its own, as Anthropic's models do."""

    def _response(self, said: ChatMessage) -> ChatResponse:
        return Citing(**super()._response(said).__dict__)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CitingCompletion(**super().complete(prompt, formatted, **kwargs).__dict__)


@pytest.mark.parametrize(("way", "asked"), [("chat", HI), ("complete", "Hi")])
def test_who_reads_citations_reads_them_of_a_hit_too(way: str, asked: Any) -> None:
    llm = cached(CitingLLM(script=["Hello you there!"]))
    answer = getattr(llm, way)(asked)
    served = [getattr(llm, way)(asked), *getattr(llm, f"stream_{way}")(asked)]
    assert [one.citations for one in served] == [[]] * 4
    assert {type(one) for one in served} == {type(answer)}
    assert served[0].additional_kwargs["cache"] == served[-1].additional_kwargs["cache"] == "hit"


@pytest.mark.parametrize(
    "named", [["no.module", "Citing"], [__name__, "Nobody"], [__name__, "Scripted"], ["os", "sep"]]
)
def test_a_class_that_is_none_of_a_response_is_not_made(named: list[str]) -> None:
    data = write_response(Citing(message=ChatMessage(role="assistant", content="Hi")))
    assert data["class"] == [__name__, "Citing"]
    hit = read_response({**data, "class": named}, age=1.0, new_id=lambda: "x")
    assert type(hit) is ChatResponse


class Sourced(CompletionResponse):
    """One that says where it comes from."""

    source: str


def test_a_class_that_cannot_be_made_without_its_fields_is_served_as_any_response() -> None:
    data = write_response(Sourced(text="Hi", source=""))
    assert type(read_response(data, age=1.0, new_id=lambda: "x")) is CompletionResponse


def test_how_likely_each_token_was_is_kept_unless_a_stream_tells_it_piece_by_piece() -> None:
    likely = [[LogProb(token="Hi", logprob=-0.1, bytes=[72, 105]), LogProb(token="Ho", logprob=-2.5)]]
    responses: list[Any] = [
        ChatResponse(message=ChatMessage(role="assistant", content="Hi"), logprobs=likely),
        CompletionResponse(text="Hi", logprobs=likely),
    ]
    for response in responses:
        kept = decode(encode(write_response(response)))
        assert read_response(kept, age=1.0, new_id=lambda: "x").logprobs == likely
        recording = Recording()
        recording.take(response.model_copy(update={"delta": "Hi"}))
        assert recording.answer().logprobs is None


def test_e6_what_google_and_openai_put_beside_an_answer_does_not_keep_it_from_being_kept() -> None:
    class Usage(BaseModel):
        input_tokens: int = 3
        output_tokens: int = 4

    signed = {"thought_signatures": [b"\xff", None]}
    google = _called("a").model_copy(update={"additional_kwargs": signed})
    for response in (
        ChatResponse(message=google, additional_kwargs=signed, raw={"usage_metadata": Usage()}),
        ChatResponse(message=_called("a"), additional_kwargs={"built_in_tool_calls": [], "usage": Usage()}),
    ):
        data = decode(encode(write_response(response)))
        hit = read_response(data, age=1.0, new_id=lambda: "b")
        assert isinstance(hit, ChatResponse)
        assert hit.message.additional_kwargs == response.message.additional_kwargs
        assert hit.additional_kwargs["cache_usage"] == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        assert "usage" not in hit.additional_kwargs


@pytest.mark.parametrize("way", CHATS)
def test_e6_tool_calls_that_a_provider_gives_as_objects_of_its_own_too_are_kept(way: str) -> None:
    class Call(BaseModel):
        id: str
        type: str = "function"

    said = _called("a")
    called = said.model_copy(update={"additional_kwargs": {"tool_calls": [Call(id="a")]}})
    inner = Scripted(script=[called])
    llm = cached(inner)
    for _ in range(2):
        response = CHATS[way](llm)
        calls = llm.get_tool_calls_from_response(response)
        assert [(call.tool_name, call.tool_kwargs) for call in calls] == [("weather", {"place": "Rome"})]
    assert inner.asked == 1
    (told,) = response.message.additional_kwargs["tool_calls"]
    assert told == {"id": calls[0].tool_id, "type": "function"}
    assert told["id"] != "a"


@pytest.mark.parametrize("way", CHATS)
def test_e6_tool_calls_that_litellm_gives_as_objects_that_read_like_dictionaries_are_kept(way: str) -> None:
    class Call(BaseModel):
        id: str
        type: str = "function"
        function: dict[str, str]

        def __getitem__(self, name: str) -> Any:
            return getattr(self, name)

    called = Call(id="call_a", function={"name": "weather", "arguments": '{"place": "Rome"}'})
    said = ChatMessage(role="assistant", blocks=[], additional_kwargs={"tool_calls": [called]})
    inner = Scripted(script=[said])
    llm = cached(inner)
    for _ in range(2):
        (call,) = CHATS[way](llm).message.additional_kwargs["tool_calls"]
        assert (call["type"], call["function"]) == (called.type, called.function)
    assert inner.asked == 1
    assert call["id"] != called.id


class _Told(BaseModel, extra="allow"):
    """As LiteLLM answers, which declares no usage."""


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        (_Told(usage=_Told(prompt_tokens=1, completion_tokens=2)), (1, 2)),
        ({"usage": {"input_tokens": 1, "output_tokens": 2}}, (1, 2)),
        ({"usage_metadata": {"prompt_token_count": 1, "candidates_token_count": 2}}, (1, 2)),
        ({"usage_metadata": {"prompt_token_count": 1, "candidates_token_count": 2, "thoughts_token_count": 3}}, (1, 5)),
        ({"usage_metadata": {"prompt_token_count": 1, "thoughts_token_count": None}}, (1, 0)),
        ({"prompt_eval_count": 1, "eval_count": 2}, (1, 2)),
        (_Told(data=_Told(choices=[], usage=_Told(prompt_tokens=1, completion_tokens=2))), (1, 2)),
        (type("Raw", (), {})(), None),
        (None, None),
    ],
)
def test_c9_usage_is_read_as_providers_tell_it(raw: Any, usage: tuple[int, int] | None) -> None:
    told = usage_of(CompletionResponse(text="a", raw=raw))
    assert told == (usage and {"input_tokens": usage[0], "output_tokens": usage[1], "total_tokens": sum(usage)})


def test_c9_a_hit_has_used_nothing_wherever_a_provider_tells_it() -> None:
    """Anthropic's streams tell it in the message, Bedrock what it read from its own cache, Ollama a piece's thought."""
    used: dict[str, Any] = {"usage": {"input_tokens": 3, "cache_creation": {"a": 2}}, "stop_reason": "end_turn"}
    beside = {"prompt_tokens": 3, "cache_read_input_tokens": 2, "thinking_delta": "the last", "retry_count": 2}
    said = ChatMessage(role="assistant", content="Yes.", additional_kwargs=used)
    data = decode(encode(write_response(ChatResponse(message=said, additional_kwargs=beside))))
    hit = read_response(data, age=1.0, new_id=lambda: "b")
    assert isinstance(hit, ChatResponse)
    assert hit.message.additional_kwargs == {**used, "usage": {"input_tokens": 0, "cache_creation": {"a": 0}}}
    told = {name: value for name, value in hit.additional_kwargs.items() if not name.startswith("cache")}
    assert told == {"prompt_tokens": 0, "retry_count": 2}
    assert hit.additional_kwargs["cache_read_input_tokens"] == 0


def test_c4_what_earlier_answers_had_used_does_not_change_the_key() -> None:
    inner = Scripted(script=[ChatMessage(role="assistant", content="Yes.", additional_kwargs={"usage": dict(USAGE)})])
    llm = cached(inner)
    for _ in range(2):
        answer = llm.chat(HI).message
        llm.chat([*HI, answer, *HI])
    assert answer.additional_kwargs == {"usage": dict.fromkeys(USAGE, 0)}
    assert inner.asked == 2
    for found in ("a", "b"):  # and all else that is told there does
        beside = {"usage": dict(USAGE), "found": found}
        llm.chat([ChatMessage(role="assistant", content="Yes.", additional_kwargs=beside), *HI])
    assert inner.asked == 4


def test_c4_a_conversation_hits_again_although_its_model_marked_the_messages() -> None:
    def say(messages: Sequence[ChatMessage]) -> str:  # as Anthropic(cache_idx=-1) does
        for message in messages:
            message.additional_kwargs["cache_control"] = {"type": "ephemeral"}
        return f"Answer {len(messages)}."

    inner = Scripted(script=[say])
    llm = cached(inner)
    for _ in range(2):  # the second time, the first turn is a hit and marks nothing
        history = [ChatMessage(role="user", content="Hi!")]
        history.append(llm.chat(history).message)
        history.append(ChatMessage(role="user", content="And now?"))
        assert llm.chat(history).message.content == "Answer 3."
    assert inner.asked == 2


def test_settings_hold() -> None:
    clock = FakeClock()
    refuse = lambda response: response.message.content != "No."  # noqa: E731
    llm = cached(Scripted(script=["No.", "Yes.", "Later."]), should_store=refuse, ttl=10, clock=clock)
    assert [text(llm.chat(HI)) for _ in range(3)] == ["No.", "Yes.", "Yes."]
    clock.advance(5)
    assert llm.chat(HI).additional_kwargs["cache_age"] == 5
    clock.advance(6)
    assert text(llm.chat(HI)) == "Later."
    prices = {"scripted-1": (1_000_000.0, 0.0)}
    paid = cached(Scripted(), prices=prices)
    paid.chat(HI)
    paid.chat(HI)
    assert paid.pool.saved().money == 3


@pytest.mark.parametrize("bounds", [{"max_entries": 1}, {"max_bytes": 1}])
def test_c11_no_more_is_kept_than_it_may_be(bounds: dict[str, int]) -> None:
    llm = cached(Scripted(), **bounds)
    for asked in ("Hi", "Ho", "Hi"):
        llm.complete(asked)
    assert (llm.stats()["hits"], llm.stats()["misses"]) == (0, 3)


def test_c7_bypass_refresh_and_delete() -> None:
    llm = cached(Scripted(script=["1", "2", "3", "Hi!", "Ho!", "4"]))
    assert text(llm.chat(HI)) == "1"
    with llm.bypass():
        stream = llm.stream_chat(HI)
    assert _streamed(stream).message.content == "2"
    with llm.refresh():
        assert text(llm.chat(HI)) == "3"
    hit = _streamed(llm.stream_chat(HI))
    assert hit.message.content == "3"
    assert llm.delete(hit)
    assert not asyncio.run(llm.adelete(hit))
    llm.complete("Hi")
    llm.complete("Ho")
    assert asyncio.run(llm.adelete(llm.complete("Hi")))
    assert llm.complete("Ho").additional_kwargs["cache"] == "hit"
    asked = llm.chat(HI)
    assert text(asked) == "4"
    with pytest.raises(ConfigurationError, match="did not come from a cache"):
        llm.delete(asked)


def test_c5_an_entry_that_cannot_be_read_is_a_miss_and_healed() -> None:
    store = MemoryStore()
    damages = (
        b"{",
        b'{"v":1,"resp":{"message":{"role":3}}}',
        b'{"v":1,"resp":[1]}',
        b'{"v":1,"resp":{"kwargs":3,"usage":null,"text":"Hi"}}',
        b'{"v":1,"resp":{"kwargs":{},"usage":null,"text":3}}',
    )
    llm = cached(Scripted(script=["1", "2", "3", "4", "5", "6"]), store=store, on_error="raise")
    llm.chat(HI)
    (key,) = store.get(("experience", "", "", "llama-index"))
    for n, damage in enumerate(damages, start=2):
        store.write(("experience", "", "", "llama-index"), put={key: damage})
        assert text(llm.chat(HI)) == str(n)
        assert llm.chat(HI).additional_kwargs["cache"] == "hit"


# --- the key ------------------------------------------------------------------------------------------------


def weather(place: str) -> str:
    """Tell the weather."""
    return f"sunny in {place}"


def storm(place: str) -> str:
    """Tell the storms."""
    return place


class Place(BaseModel):
    """A place."""

    place: str


class Wanted(BaseModel):
    place: str
    day: str = "today"


class Deployed(Scripted):
    """Is named in no field."""

    _name: str = PrivateAttr("a")

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_chat_model=True, model_name=self._name)


def test_c4_models_of_two_names_have_answers_of_their_own() -> None:
    store = MemoryStore()
    for name, asked in (("a", 1), ("b", 1), ("a", 0)):
        inner = Deployed()
        inner._name = name
        cached(inner, store=store).chat(HI)
        assert inner.asked == asked


def test_c4_what_changes_the_answer_changes_the_key_and_nothing_else_does() -> None:
    store = MemoryStore()

    def asked(messages: Any = HI, settings: Any = None, tenant: str = "", tag: str = "t", **kwargs: Any) -> int:
        inner = Scripted(**(settings or {}))
        CachedLLM(inner, store=store, tenant=tenant, tag=tag).chat(messages, **kwargs)
        return inner.asked

    tools = [FunctionTool.from_defaults(weather)]
    assert asked() == 1
    same: list[dict[str, Any]] = [
        {},
        {"settings": {"api_key": "another"}},
        {"settings": {"timeout": 1}},
        {"settings": {"additional_kwargs": {"api_key": "another", "timeout": 1}}},  # as LiteLLM has it
        *({name: 1} for name in ("timeout", "verbose", "num_workers", "reuse_client")),
        {"settings": {"callback_manager": CallbackManager([])}},
        {"settings": {"azure_ad_token_provider": lambda: "another"}},
    ]
    assert [asked(**change) for change in same] == [0] * len(same)
    image = ChatMessage(role="user", blocks=[TextBlock(text="Hi"), TextBlock(text="again")])
    other: list[dict[str, Any]] = [
        {"settings": {"temperature": 0.5}},
        {"settings": {"additional_kwargs": {"seed": 1}}},
        {"settings": {"region_name": "eu-west-1"}},
        {"settings": {"endpoint_url": "http://127.0.0.1:9"}},
        {"settings": {"system_prompt": "Be short."}},
        {"messages": [ChatMessage(role="system", content="Be short."), *HI]},
        {"messages": [ChatMessage(role="assistant", content="Hi")]},
        {"messages": [image]},
        {"stop": ["."]},
        {"tools": tools},
        {"tools": [FunctionTool.from_defaults(storm)]},
        {"tools": [FunctionTool.from_defaults(weather, name="climate", description=tools[0].metadata.description)]},
        {"tools": [FunctionTool.from_defaults(weather, description="Tells it in verse.")]},
        {"tools": [FunctionTool(weather, ToolMetadata(tools[0].metadata.description, "weather", fn_schema=Wanted))]},
        {"tools": tools, "tool_choice": "required"},
        {"response_format": Place},
        {"prediction": Place(place="Rome")},
        {"prediction": Place(place="Oslo")},
        {"settings": {"messages_to_prompt": str}},
        *({"settings": {"messages_to_prompt": prompt}} for prompt in (lambda _: "Hi", lambda _: "Ho")),
        {"settings": {"completion_to_prompt": str}},
        {"response_format": type("Place", (BaseModel,), {"__annotations__": {"place": int}})},
        {"tenant": "b"},
        {"tag": "u"},
    ]
    assert [asked(**change) for change in other] == [1] * len(other)
    assert [asked(**change) for change in other] == [0] * len(other)
    assert asked(tools=[FunctionTool.from_defaults(weather)]) == 0


class Continuing(Scripted):
    """Has the provider go on from an earlier response, as OpenAI's can."""

    track_previous_responses: bool = False
    _previous_response_id: str | None = PrivateAttr(None)
    _generation_config: dict[str, Any] = PrivateAttr(default_factory=dict)
    _custom_llm_provider: str | None = PrivateAttr(None)


class Looked(Scripted):
    """Asks what it is when its metadata are looked at, as Ollama does."""

    context_window: int = -1

    @property
    def metadata(self) -> LLMMetadata:
        self.context_window = 4096 if self.context_window == -1 else self.context_window
        return super().metadata


def test_c4_a_model_that_looks_up_a_field_is_asked_once() -> None:
    store = MemoryStore()
    for hits in (1, 2):  # as another process would
        llm = CachedLLM(model := Looked(), store=store)
        assert [llm.complete("Hello!").text for _ in range(2)] == ["Hello there!"] * 2
        assert (model.asked, llm.stats()["hits"]) == (2 - hits, hits)
    CachedLLM(longer := Looked(context_window=8192), store=store).complete("Hello!")
    assert longer.asked == 1


def test_c4_what_the_provider_keeps_of_a_conversation_is_part_of_what_is_asked() -> None:
    store = MemoryStore()

    def asks(before: str | None = None, *, by: str | None = None, track: bool = False, **config: Any) -> int:
        inner = Continuing(track_previous_responses=track)
        inner._previous_response_id, inner._custom_llm_provider, inner._generation_config = before, by, config
        cached(inner, store=store).chat(HI)
        return inner.asked

    assert [asks(), asks(), asks("r1"), asks("r2"), asks("r1")] == [1, 0, 1, 1, 0]
    assert [asks(top_k=1), asks(top_k=2), asks(top_k=1)] == [1, 1, 0]
    assert [asks(by="vllm"), asks(by="ollama"), asks(by="vllm")] == [1, 1, 0]
    assert [asks(track=True), asks(track=True)] == [1, 1]


class OfLangChain(Scripted):
    """Has a model of LangChain behind it, as LangChainLLM has."""

    _llm: Any = PrivateAttr()


def test_c4_two_models_of_langchain_behind_one_class_have_answers_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()

    def asks(key: str = "secret", **settings: Any) -> int:
        inner = OfLangChain()
        inner._llm = ChatOpenAI(api_key=SecretStr(key), **{"model": "gpt-4o", **settings})
        cached(inner, store=store).chat(HI)
        return inner.asked

    assert [asks(), asks(), asks("another"), asks(timeout=1), asks(max_retries=9)] == [1, 0, 0, 0, 0]
    other: list[dict[str, Any]] = [{"model": "gpt-4o-mini"}, {"temperature": 0.5}, {"base_url": "http://127.0.0.1:9"}]
    assert [asks(**change) for change in other * 2] == [1, 1, 1, 0, 0, 0]
    for path in ("v2", "v3"):
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:9/{path}")
        assert [asks(), asks()] == [1, 0]


class Headed(Scripted):
    """Puts its key into its headers, as Perplexity does."""

    headers: dict[str, str] = Field(default_factory=dict)


def test_c4_an_api_key_in_the_headers_of_a_model_does_not_change_the_key() -> None:
    store = MemoryStore()
    for api_key, language in (("one", "en"), ("two", "en"), ("two", "fr")):
        headers = {"authorization": f"Bearer {api_key}", "accept-language": language}
        CachedLLM(inner := Headed(api_key=api_key, headers=headers), store=store).chat(HI)
        assert bool(inner.asked) == ((api_key, language) != ("two", "en"))
    others = [Headed(headers={"authorization": f"Bearer {user}"}) for user in ("ada", "bob")]
    assert chat_key(others[0], HI, {}) != chat_key(others[1], HI, {})


class OfAClient(Scripted):
    """Has its headers in its client alone, as Anthropic has."""

    _client: Any = PrivateAttr()


def test_c4_headers_that_only_the_client_has_are_part_of_the_key() -> None:
    store = MemoryStore()

    def asks(**headers: str) -> int:
        inner = OfAClient()
        inner._client = openai.OpenAI(api_key="k", default_headers=headers)
        cached(inner, store=store).chat(HI)
        return inner.asked

    assert [asks(), asks(beta="a"), asks(beta="b")] == [1, 1, 1]
    assert [asks(**{"User-Agent": "mine"}), asks(beta="a"), asks(beta="b")] == [0, 0, 0]


class OfALazyClient(Scripted):
    """Makes its client at its first call, as OpenAI does; its key is in the field of HuggingFaceInferenceAPI."""

    default_headers: dict[str, str] | None = None
    token: str = ""
    _client: Any = PrivateAttr(None)

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        self._client = openai.OpenAI(api_key="k", default_headers=self.default_headers)
        return cast("ChatResponse", super().chat(messages, **kwargs))


def test_c4_headers_that_a_client_reads_from_the_environment_are_part_of_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the first call on, at which there is no client yet."""
    store = MemoryStore()
    for headers in (None, "X-Route: a\nX-Other: c", "X-Route: b", "X-Route: b:1", "X-Route: b:2"):
        if headers:
            monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", headers)
        for own in (None, {"X-Own": "d"}, {"X-Route": "e"}):
            inner = OfALazyClient(default_headers=own)
            for asked in (1, 1):
                cached(inner, store=store).chat(HI)
                assert inner.asked == asked


def test_c4_a_token_of_a_model_does_not_change_the_key() -> None:
    store = MemoryStore()
    for token in ("one", "two"):
        CachedLLM(inner := OfALazyClient(token=token), store=store).chat(HI)
        assert inner.asked == (token == "one")


def _of_google(place: str = "a", version: str = "v1beta", project: str = "p", seed: int = 0, **headers: str) -> Any:
    body = {"generationConfig": {"seed": seed}} if seed else None
    options = SimpleNamespace(base_url=f"https://{place}/", api_version=version, headers=headers, extra_body=body)
    return SimpleNamespace(
        _api_client=SimpleNamespace(_http_options=options, vertexai=True, project=project, location="eu")
    )


def test_c4_what_only_the_client_of_google_knows_is_part_of_the_key() -> None:
    """As GoogleGenAI has no field for it; and by none of its own headers, of which one is the key of the API."""
    store = MemoryStore()

    def asks(**told: Any) -> int:
        inner = OfAClient()
        inner._client = _of_google(**told)
        cached(inner, store=store).chat(HI)
        return inner.asked

    others: list[dict[str, Any]] = [
        {"place": "b"}, {"version": "v1"}, {"project": "q"}, {"X-Model": "large"}, {"seed": 1}, {"seed": 2}
    ]  # fmt: skip
    assert [asks(**told) for told in [{}, *others] * 2] == [1] * 7 + [0] * 7
    own = ("Content-Type", "user-agent", "x-goog-api-client", "x-goog-api-key")
    assert [asks(**{name: value}) for name in own for value in "ab"] == [0] * 8


class OfAGivenClient(Scripted):
    """Says where it asks as it is told nothing, and takes a client, as OpenAI does."""

    api_base: str = "https://api.openai.com/v1"
    default_headers: dict[str, str] | None = None
    _client: Any = PrivateAttr(None)
    _aclient: Any = PrivateAttr(None)


def test_c4_where_a_client_that_the_user_gave_asks_is_part_of_the_key() -> None:
    store = MemoryStore()

    def asks(client: Any = None, aclient: Any = None, **settings: Any) -> int:
        inner = OfAGivenClient(**settings)
        inner._client, inner._aclient = client, aclient
        cached(inner, store=store).chat(HI)
        return inner.asked

    def own(**settings: Any) -> openai.OpenAI:
        return openai.OpenAI(api_key="k", **settings)

    assert [asks(), asks(own()), asks(own(base_url="http://a")), asks(own(base_url="http://b"))] == [1, 0, 1, 1]
    assert [asks(own(), openai.AsyncOpenAI(api_key="k", base_url="http://d")), asks(own(base_url="http://a"))] == [1, 0]
    of_mistral = SimpleNamespace(sdk_configuration=SimpleNamespace(server_url="http://c"))  # as its client says it
    assert [asks(of_mistral), asks(of_mistral), asks(api_base="http://c")] == [1, 0, 1]
    aws = [SimpleNamespace(meta=SimpleNamespace(endpoint_url=f"https://{region}.amazonaws.com")) for region in "ab"]
    assert [asks(client, api_base="") for client in aws * 2] == [1, 1, 0, 0]  # which a model need not be told
    assert asks(own(base_url="http://c"), api_base="http://C/") == 1
    assert asks(api_base="http://C/") == 0  # which made none yet
    headed = [own(default_headers={"org": name}) for name in "abab"]
    assert [asks(client) for client in headed] == [1, 1, 0, 0]
    assert [
        asks(default_headers={"org": "c"}),
        asks(own(default_headers={"org": "c"}), default_headers={"org": "c"}),
    ] == [1, 0]


class Style(Enum):
    SHORT = 1
    LONG = 2


class Local(Scripted):
    """Has fields that are no plain data, as a user's own model may."""

    weights: Path = Path("small.gguf")
    style: Style = Style.SHORT
    options: Any = None


def test_c4_fields_of_a_model_that_are_no_plain_data_are_told_apart() -> None:
    store = MemoryStore()
    options = make_dataclass("Options", [("top_k", int)])

    def asks(**settings: Any) -> int:
        inner = Local(**settings)
        cached(inner, store=store).chat(HI)
        return inner.asked

    def clients(seed: int) -> dict[str, Any]:
        return {"additional_kwargs": {"seed": seed, "client": object()}}

    other: list[dict[str, Any]] = [
        {},
        {"weights": Path("large.gguf")},
        {"style": Style.LONG},
        {"options": options(1)},
        {"options": options(2)},
        {"options": [Style.SHORT, object()]},
        {"options": [Style.LONG, object()]},
        *({"options": cached(Scripted(temperature=heat))} for heat in (0.5, 0.7)),
        *({"options": CachedChatModel(FakeListChatModel(responses=[said]), url="memory:")} for said in ("a", "b")),
        clients(1),
        clients(2),
    ]
    circle: list[Any] = []
    circle.append(circle)
    nested = options(3)
    nested.top_k = nested
    other += [{"options": [Style.LONG, circle]}, {"options": nested}]
    assert [asks(**settings) for settings in other] == [1] * len(other)
    assert [asks(**settings) for settings in [*other, clients(1)]] == [0] * (len(other) + 1)


def test_c4_two_models_of_one_name_in_two_modules_have_answers_of_their_own() -> None:
    store = MemoryStore()

    def said(module: str, word: str) -> str:
        cls = type("Scripted", (Scripted,), {"__module__": module})
        return text(cached(cls(script=[word]), store=store).chat(HI))

    assert [said("one", "One"), said("other", "Other"), said("one", "No")] == ["One", "Other", "One"]


def test_c4_two_classes_of_one_name_that_hold_other_things_are_two_requests() -> None:
    inner = Scripted()
    llm = cached(inner)
    classes: list[Any] = [
        *(make_dataclass("Place", [(name, str)]) for name in ("city", "street")),
        *(Enum("Place", [name]) for name in ("OSLO", "ROME")),
    ]
    for _ in range(2):
        for cls in classes:
            llm.chat(HI, response_format=cls)
    assert inner.asked == len(classes)


def test_a_class_whose_default_is_a_set_in_another_order_asks_for_the_same() -> None:
    inner = Scripted()
    llm = cached(inner)
    for numbers in ([0, 8], [8, 0]):  # as the order of words differs between processes
        llm.chat(HI, response_format=create_model("Answer", x=(Any, [frozenset(numbers)])))
    assert inner.asked == 1


def test_a_class_without_a_schema_goes_by_the_cache() -> None:
    odd: type[BaseModel] = type("Odd", (BaseModel,), {"__annotations__": {"call": Callable[[int], int]}})
    inner = Scripted()
    llm = cached(inner)
    assert [text(llm.chat(HI, response_format=odd)) for _ in range(2)] == ["Hello there!"] * 2
    assert inner.asked == llm.stats()["unkeyed"] == 2


def test_c4_ids_of_tool_calls_do_not_change_the_key() -> None:
    inner = Scripted()
    llm = cached(inner)
    for id_ in ("a", "b"):
        result = ChatMessage(role="tool", content="sunny", additional_kwargs={"tool_call_id": id_})
        llm.chat([*HI, _called(id_), result])
    assert inner.asked == 1
    llm.chat([*HI, _called("a"), ChatMessage(role="tool", content="rain", additional_kwargs={"tool_call_id": "a"})])
    assert inner.asked == 2


@pytest.mark.parametrize(("ids", "same"), [(("a", "b"), True), (("weather", "weather"), False)])
def test_c4_what_each_call_gave_is_told_by_its_id_or_else_by_its_place(ids: tuple[str, str], same: bool) -> None:
    """Some models give a tool's name for an id, as Ollama's: then nothing but the order says whose result is which."""
    inner = Scripted()
    llm = cached(inner)
    rain, sun = (
        ChatMessage(role="tool", content=said, additional_kwargs={"tool_call_id": id_})
        for said, id_ in zip(("rain", "sun"), ids, strict=True)
    )
    for told in ([rain, sun], [sun, rain]):
        llm.chat([*HI, _called(*ids), *told])
    assert inner.asked == (1 if same else 2)
    swapped = [
        ChatMessage(role="tool", content=of.content, additional_kwargs={"tool_call_id": id_})
        for of, id_ in zip((sun, rain), ids, strict=True)
    ]
    llm.chat([*HI, _called(*ids), *swapped])
    assert inner.asked == 2


def test_c4_ids_of_a_user_interface_do_not_change_the_key() -> None:
    """AG-UI's workflow writes them into the messages; results of the browser's tools are a user's, beside no call."""
    inner = Scripted()
    llm = cached(inner)

    def conversation(id_: str, *results: str) -> list[ChatMessage]:
        calls = [{"id": f"{id_}{n}", "name": "ask", "arguments": f'{{"n": {n}}}'} for n in (1, 2)]
        asked = ChatMessage("<tool_call>…", role="assistant", additional_kwargs={"id": id_, "ag_ui_tool_calls": calls})
        told = [
            ChatMessage(said, additional_kwargs={"id": f"{id_}-{said}", "tool_call_id": f"{id_}{n}"})
            for n, said in zip((1, 2), results, strict=True)
        ]
        return [ChatMessage("Hi", additional_kwargs={"id": id_}), asked, *told]

    for id_ in ("a", "b"):
        llm.chat(conversation(id_, "yes", "no"))
    assert inner.asked == 1
    first, second = conversation("a", "no", "yes")[2:]
    llm.chat([*conversation("a", "yes", "no")[:2], second, first])  # said to the other call
    assert inner.asked == 2


def test_a_request_that_is_no_data_goes_by_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    inner = Scripted()
    llm = cached(inner)
    for way in ("chat", "achat"):
        for _ in range(2):
            called = getattr(llm, way)(HI, thing=object())
            assert text(asyncio.run(called) if way == "achat" else called) == "Hello there!"
    assert _streamed(llm.stream_chat(HI, thing=object())).message.content == "Hello there!"
    assert asyncio.run(_astreamed(llm.astream_chat(HI, thing=object()))).message.content == "Hello there!"
    assert inner.asked == llm.stats()["unkeyed"] == 6
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("fields", "kwargs"),
    [
        ({"track_previous_responses": True}, {}),
        ({}, {"conversation": "conv_1"}),
        ({"additional_kwargs": {"conversation": "conv_1"}}, {}),
        ({}, {"extra_body": {"conversation": "conv_1"}}),
    ],
)
def test_a_model_whose_provider_keeps_the_conversation_is_always_asked(
    fields: dict[str, Any], kwargs: dict[str, Any]
) -> None:
    llm = cached(Continuing(script=["One.", "Two.", "Three.", "Four."], **fields))
    said = [text(llm.chat(HI, **kwargs)) for _ in range(2)] + [llm.complete("Hi", **kwargs).text for _ in range(2)]
    assert said == ["One.", "Two.", "Three.", "Four."]
    assert llm.stats()["unkeyed"] == 4


# --- many at once (C8) --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["chat", "stream_chat"])
@pytest.mark.parametrize("fails", [False, True])
def test_c8_fifty_threads_make_one_call_and_a_failed_leader_fails_nobody_else(
    any_store: Store, way: str, fails: bool
) -> None:
    gate = threading.Event()
    inner = Scripted(gate=gate, script=[OSError("the leader's"), "Fine."] if fails else ["Fine."])
    llm = cached(inner, store=any_store)

    def release() -> None:
        until(lambda: llm.stats()["misses"] == CROWD)
        gate.set()

    got = on_threads(lambda: text(CHATS[way](llm)), release)
    assert got.count("Fine.") == CROWD - fails
    assert 2 <= inner.asked <= CROWD if fails else inner.asked == 1


@pytest.mark.parametrize("streams", [False, True])
async def test_c8_fifty_tasks_make_one_call(any_store: Store, *, streams: bool) -> None:
    class Gated(Scripted):
        async def achat(self, messages: Any, **_: Any) -> ChatResponse:
            said = self._next(messages)
            await gate.wait()
            return self._response(said)

        async def astream_chat(self, messages: Any, **_: Any) -> Any:
            async def pieces() -> Any:
                response = await self.achat(messages)
                yield response.model_copy(update={"delta": "Fine."})

            return pieces()

    gate, inner = asyncio.Event(), Gated(script=["Fine."])
    llm = cached(inner, store=any_store)
    work = (lambda: _astreamed(llm.astream_chat(HI))) if streams else (lambda: llm.achat(HI))
    tasks = [asyncio.ensure_future(work()) for _ in range(CROWD)]
    await auntil(lambda: llm.stats()["misses"] == CROWD)
    gate.set()
    assert [text(response) for response in await asyncio.gather(*tasks)] == ["Fine."] * CROWD
    assert inner.asked == 1


def test_c8_who_reads_a_stream_in_a_context_of_its_own_does_not_wait_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flights, "_MAX_READ_GAP_SECONDS", 60)
    llm = cached(Scripted())
    stream = llm.stream_chat(HI)
    contextvars.copy_context().run(next, stream)
    before = time.monotonic()
    llm.chat(HI)
    assert time.monotonic() - before < 20
    stream.close()


@pytest.mark.parametrize("streams", [False, True])
async def test_c8_a_call_that_is_cancelled_before_its_answer_is_kept_leaves_nobody_waiting(*, streams: bool) -> None:
    held: list[Any] = []

    class Cancelled(Scripted):
        async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
            response: ChatResponse = await super().achat(messages, **kwargs)
            held.extend([] if held else await cancel_before_the_next_step(task))
            return response

        async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
            stream = await super().astream_chat(messages, **kwargs)

            async def gen() -> Any:
                async for piece in stream:
                    yield piece
                held.extend([] if held else await cancel_before_the_next_step(task))

            return gen()

    llm = cached(Cancelled())

    async def ask() -> Any:
        return await (_astreamed(llm.astream_chat(HI)) if streams else llm.achat(HI))

    task = asyncio.create_task(ask())
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    before = time.monotonic()
    assert text(await ask()) == "Hello there!"
    _shortly(before)
    assert cancelled.tb is not None
    await asyncio.gather(*held)


def test_an_interrupt_as_a_piece_is_recorded_ends_the_models_stream() -> None:
    open_streams: list[str] = []

    class Interrupting(ChatResponse):
        def model_copy(self, **_: Any) -> Any:
            raise KeyboardInterrupt

    class Streaming(Scripted):
        def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
            open_streams.append("the connection")
            try:
                yield Interrupting(message=ChatMessage("Hel"), delta="Hel")
            finally:
                open_streams.clear()

    with pytest.raises(KeyboardInterrupt) as interrupt:
        list(cached(Streaming()).stream_chat(HI))
    assert interrupt.tb is not None  # which a notebook keeps
    assert open_streams == []


async def test_a_piece_that_cannot_be_recorded_ends_the_models_stream() -> None:
    open_streams: list[str] = []

    class Streaming(Scripted):
        async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
            async def pieces() -> Any:
                open_streams.append("the connection")
                try:
                    yield "no piece"
                finally:
                    open_streams.clear()

            return pieces()

    with pytest.raises(AttributeError) as error:
        _ = [piece async for piece in await cached(Streaming()).astream_chat(HI)]
    for _ in range(3):  # the event loop closes what nobody refers to
        await asyncio.sleep(0)
    assert error.tb is not None
    assert open_streams == []


def _shortly(before: float) -> None:
    """Not after what others may wait at the most, which is 60 seconds."""
    assert time.monotonic() - before < 20


def test_c8_who_has_a_stream_and_has_not_read_it_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_POLL_SECONDS", 60)
    inner = Scripted()
    llm = cached(inner)
    before = time.monotonic()
    unread = llm.stream_chat(HI)
    assert text(llm.chat(HI)) == "Hello there!"
    _shortly(before)
    assert text(joined(list(unread))) == "Hello there!"
    assert inner.asked == 2


async def test_c8_nor_does_a_task_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_POLL_SECONDS", 60)
    inner = Scripted()
    llm = cached(inner)
    before = time.monotonic()
    unread = await llm.astream_chat(HI)
    assert text(await llm.achat(HI)) == "Hello there!"
    _shortly(before)
    assert text(joined([response async for response in unread])) == "Hello there!"
    assert inner.asked == 2


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_c8_a_stream_that_cannot_begin_leaves_nobody_waiting(mode: str) -> None:
    """Also while somebody holds the error."""

    class Down(Scripted):
        def stream_chat(self, *_: Any, **__: Any) -> Any:
            raise OSError("down")

        async def astream_chat(self, *_: Any, **__: Any) -> Any:
            raise OSError("down")

    llm = cached(Down())
    with pytest.raises(OSError, match="down") as error:
        llm.stream_chat(HI) if mode == "sync" else await llm.astream_chat(HI)
    before = time.monotonic()
    assert text(await llm.achat(HI)) == "Hello there!"
    _shortly(before)
    assert error.tb is not None


async def test_c8_two_streams_that_are_asked_for_together_are_read_one_after_the_other() -> None:
    """Each by a task of its own, so that nobody knows that their reader is the same."""
    llm = cached(Scripted())
    before = time.monotonic()
    streams = await asyncio.gather(llm.astream_chat(HI), asyncio.wait_for(llm.astream_chat(HI), 30))
    for stream in streams:
        assert text(joined([response async for response in stream])) == "Hello there!"
    _shortly(before)


@pytest.mark.parametrize("dropped", [False, True])
def test_c8_nobody_waits_long_for_a_stream_that_nobody_reads(*, dropped: bool) -> None:
    llm = cached(Scripted())
    unread = llm.stream_chat(HI)
    if dropped:
        del unread
    before = time.monotonic()
    other = threading.Thread(target=llm.chat, args=(HI,))
    other.start()
    other.join(120)
    _shortly(before)
    assert llm.stats()["stored"] == 1


def test_c8_a_stream_that_is_read_slowly_is_waited_for() -> None:
    """What is not waited for is one that nobody has begun to read, or goes on with."""
    inner = Scripted()
    llm = cached(inner)
    stream = llm.stream_chat(HI)
    next(stream)
    got: list[Any] = []
    other = threading.Thread(target=lambda: got.append(text(llm.chat(HI))))
    other.start()
    other.join(0.7)
    assert other.is_alive()
    list(stream)
    other.join(120)
    assert (got, inner.asked) == (["Hello there!"], 1)


# --- outages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_an_outage_of_the_store_does_not_touch_the_call(way: str, caplog: pytest.LogCaptureFixture) -> None:
    llm = cached(Scripted(), store=Down())
    for _ in range(3):
        assert text(WAYS[way](llm)) == "Hello there!"
    assert llm.stats()["errors"] > 0
    assert [record.message for record in caplog.records if record.name == "langmem_adapters"] == [
        "the model call goes on without its cache: StoreUnavailable: nobody answers"
    ]
    with pytest.raises(StoreUnavailable):
        WAYS[way](cached(Scripted(), store=Down(), on_error="raise"))


# --- whatever is built on a model ---------------------------------------------------------------------------


class Watching(BaseCallbackHandler):
    def __init__(self) -> None:
        super().__init__([], [])
        self.seen: list[Any] = []

    def on_event_start(self, event_type: CBEventType, *args: Any, **kwargs: Any) -> str:
        if event_type == CBEventType.LLM:
            self.seen.append("start")
        return ""

    def on_event_end(self, event_type: CBEventType, payload: Any = None, *args: Any, **kwargs: Any) -> None:
        if event_type == CBEventType.LLM:
            self.seen.append("end")

    def start_trace(self, trace_id: str | None = None) -> None: ...

    def end_trace(self, trace_id: str | None = None, trace_map: Any = None) -> None: ...


class Told(BaseEventHandler):
    seen: list[str] = Field(default_factory=list)
    given: list[Any] = Field(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Told"

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.seen.append(event.class_name())
        if event.class_name().endswith("StartEvent"):
            self.given.append(event.additional_kwargs)


@pytest.mark.parametrize("way", WAYS)
def test_callbacks_and_events_are_told_once_of_each_response_and_the_model_what_is_given(way: str) -> None:
    watching, told = Watching(), Told()
    get_dispatcher().add_event_handler(told)
    try:
        llm = cached(Scripted())
        llm.callback_manager = CallbackManager([watching])
        WAYS[way](llm, stop=["shed"])
        WAYS[way](llm, stop=["shed"])
    finally:
        get_dispatcher().event_handlers.remove(told)
    assert watching.seen == ["start", "end"] * 2
    ends = [name for name in told.seen if name.endswith("EndEvent")]
    assert len(ends) == 2
    assert len(set(ends)) == 1
    assert told.given == [{"stop": ["shed"]}] * 2  # the first by the model


def test_structured_prediction_and_direct_calls_of_tools_are_served() -> None:
    call = ChatMessage(
        role="assistant",
        blocks=[ToolCallBlock(tool_call_id="a", tool_name="Place", tool_kwargs={"place": "Rome"})],
    )
    inner = Scripted(script=[call])
    llm = cached(inner)
    assert isinstance(llm, FunctionCallingLLM)
    prompt = PromptTemplate("Where is {who}?")
    for _ in range(2):
        assert llm.structured_predict(Place, prompt, who="Ada") == Place(place="Rome")
        assert llm.as_structured_llm(Place).chat(HI).raw == Place(place="Rome")
        assert asyncio.run(llm.astructured_predict(Place, prompt, who="Ada")) == Place(place="Rome")
    assert inner.asked == 2
    alone = list(Scripted(script=[call]).stream_structured_predict(Place, prompt, who="Ada"))
    for _ in range(2):  # it does not require the tool, so it is another request
        seen = list(llm.stream_structured_predict(Place, prompt, who="Ada"))
        assert [one.model_dump() for one in seen] == [one.model_dump() for one in alone]
    assert inner.asked == 3
    calling = cached(
        Scripted(
            script=[
                ChatMessage(
                    role="assistant",
                    blocks=[ToolCallBlock(tool_call_id="a", tool_name="weather", tool_kwargs={"place": "Rome"})],
                )
            ]
        )
    )
    tools = [FunctionTool.from_defaults(weather)]
    for _ in range(2):
        assert str(calling.predict_and_call(tools, "Weather?")) == "sunny in Rome"
    assert calling.stats()["hits"] == 1
    required = calling.chat_with_tools(tools, "Weather?", tool_required=True)
    assert "cache" not in required.additional_kwargs  # that tools are required, is part of the request


class Single(Scripted):
    """As OpenAI's: of several calls it leaves the first, unless more are allowed, and none is an error unless it is."""

    def _validate_chat_with_tools_response(
        self, response: ChatResponse, tools: Any, allow_parallel_tool_calls: bool = False, **kwargs: Any
    ) -> ChatResponse:
        if not allow_parallel_tool_calls:
            response.message.blocks = response.message.blocks[:2]
        return response

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        calls = super().get_tool_calls_from_response(response)
        if error_on_no_tool_call and not calls:
            raise ValueError("no call")
        return calls


@pytest.mark.parametrize("of", [lambda llm: llm, cached])
def test_a_model_is_told_how_many_calls_may_be_in_a_response(of: Callable[[LLM], Any]) -> None:
    tools = [FunctionTool.from_defaults(weather)]
    for several, calls in ((True, 2), (False, 1)):
        llm = of(Single(script=[_called("a", "b")]))
        answer = llm.chat_with_tools(tools, "Weather?", allow_parallel_tool_calls=several)
        assert len(llm.get_tool_calls_from_response(answer)) == calls
    said = of(Single(script=["It is sunny."])).predict_and_call(tools, "Weather?", error_on_no_tool_call=False)
    assert str(said) == "It is sunny."


class Formed(Scripted):
    """Has a way to structured output of its own, as models of OpenAI and Ollama have."""

    _way: str = PrivateAttr("format")

    def structured_predict(self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any) -> Any:
        messages = self._extend_messages(prompt.format_messages(**prompt_args))
        return output_cls.model_validate_json(self.chat(messages, way=self._way).message.content)

    async def astructured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Any:
        response = await self.achat(prompt.format_messages(**prompt_args), way=self._way)
        return output_cls.model_validate_json(response.message.content)

    def stream_structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Any:
        *_, last = self.stream_chat(prompt.format_messages(**prompt_args), way=self._way)
        yield output_cls.model_validate_json(last.message.content)

    async def astream_structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **prompt_args: Any
    ) -> Any:
        async def gen() -> Any:
            stream = await self.astream_chat(prompt.format_messages(**prompt_args), way=self._way)
            *_, last = [response async for response in stream]
            yield output_cls.model_validate_json(last.message.content)

        return gen()


async def test_e6_a_models_own_way_to_structured_output_is_taken_and_served() -> None:
    inner = Formed(script=['{"place": "Rome"}'])
    llm, prompt, rome = cached(inner), PromptTemplate("Where is {who}?"), Place(place="Rome")
    for _ in range(2):
        assert await asyncio.to_thread(llm.structured_predict, Place, prompt, who="Ada") == rome
        assert await llm.astructured_predict(Place, prompt, who="Ada") == rome
        assert list(llm.stream_structured_predict(Place, prompt, who="Ada")) == [rome]
        stream = await llm.astream_structured_predict(Place, prompt, who="Ada")
        assert [one async for one in stream] == [rome]
    assert inner.asked == 1
    short = llm.model_copy(update={"system_prompt": "Be short."})
    assert short.structured_predict(Place, prompt, who="Ada") == rome
    assert [message.content for message in inner._asked[1]] == ["Be short.", "Where is Ada?"]


@pytest.mark.parametrize("way", ["achat", "astream_chat"])
@pytest.mark.parametrize("kind", ["many", "picture"])
async def test_a5_what_takes_a_while_to_read_is_read_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, kind: str, way: str
) -> None:
    """And belongs to the tenant of its task, whoever that is."""
    threads: list[int] = []

    def noting(*request: Any) -> str:
        threads.append(threading.get_ident())
        return chat_key(*request)

    def tenant() -> object:
        return asyncio.current_task() and current.get()  # which raises beside a loop

    monkeypatch.setattr(request_module, "chat_key", noting)
    current: contextvars.ContextVar[str | None] = contextvars.ContextVar("tenant", default=None)
    inner = Scripted()
    llm = cached(inner, tenant=tenant)

    async def ask(messages: list[ChatMessage], **parameters: Any) -> str:
        if way == "achat":
            return text(await llm.achat(messages, **parameters))
        return text(joined([piece async for piece in await llm.astream_chat(messages, **parameters)]))

    long = [ChatMessage(f"My bike is in shed {n}.") for n in range(100)]
    messages = long if kind == "many" else [ChatMessage(blocks=[ImageBlock(image=b"picture")])]
    await ask(messages)
    assert (llm.stats()["bypassed"], threads) == (1, [])  # there is no tenant
    for name in ("acme", "globex", "acme"):
        current.set(name)
        assert await ask(messages) == "Hello there!"
    assert (inner.asked, llm.stats()["hits"], len(threads)) == (3, 1, 3)
    assert threading.get_ident() not in threads
    await ask(messages, what=object())
    assert llm.stats()["unkeyed"] == 1
    await ask(HI)
    assert threads[-1] == threading.get_ident()  # a hop would take longer


def _place_call(**arguments: Any) -> ChatMessage:
    return ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_name="Place", tool_kwargs=arguments)])


RIGHT_CALL, QUESTION = _place_call(place="Rome"), PromptTemplate("Where is {who}?")
MISFITS = {
    "call": (Scripted, _place_call(place=["Rome"]), RIGHT_CALL),
    "no call": (Scripted, "In Rome.", RIGHT_CALL),
    "own way": (Formed, '{"town": "Rome"}', '{"place": "Rome"}'),
}
PREDICTIONS: dict[str, Callable[[Any], Any]] = {
    "structured_predict": lambda llm: llm.structured_predict(Place, QUESTION, who="Ada"),
    "astructured_predict": lambda llm: asyncio.run(llm.astructured_predict(Place, QUESTION, who="Ada")),
    "chat": lambda llm: llm.as_structured_llm(Place).chat(HI).raw,
    "achat": lambda llm: asyncio.run(llm.as_structured_llm(Place).achat(HI)).raw,
}


@pytest.mark.parametrize("way", PREDICTIONS)
@pytest.mark.parametrize("kind", MISFITS)
def test_c5_what_is_no_object_of_its_class_is_not_served(kind: str, way: str) -> None:
    model, wrong, right = MISFITS[kind]
    inner, predict = model(script=[wrong, right, wrong]), PREDICTIONS[way]
    llm = cached(inner)
    with pytest.raises(ValueError, match="Place"):
        predict(llm)
    for _ in range(2):
        assert predict(llm) == Place(place="Rome")
    assert inner.asked == 2
    with llm.bypass(), pytest.raises(ValueError, match="Place"):
        predict(llm)
    assert predict(llm) == Place(place="Rome")  # what was said in a bypass takes no kept answer away
    assert inner.asked == 3


@pytest.mark.parametrize("on_error", ["degrade", "raise"])
def test_a_misfit_that_cannot_be_deleted_is_told_as_any_outage(on_error: Any) -> None:
    store = Refusing()
    llm = cached(Scripted(script=[_place_call(place=5)]), store=store, on_error=on_error)
    with pytest.raises(ValueError, match="Place"):
        PREDICTIONS["chat"](llm)
    store.reason = "the store is away"
    with pytest.raises(ValueError if on_error == "degrade" else StoreUnavailable, match=r"Place|away"):
        PREDICTIONS["chat"](llm)
    assert (llm.stats()["errors"] > 0) == (on_error == "degrade")


@pytest.mark.parametrize("kind", ["Anthropic", "OpenAIResponses"])
async def test_e6_a_model_that_asks_its_client_for_structured_output_is_served_where_a_program_is_wanted(
    kind: str,
) -> None:
    """As these integrations do, whatever their mode says."""

    def past(*_: Any, **__: Any) -> Any:
        raise AssertionError("it was asked past the cache")

    streams = () if kind == "OpenAIResponses" else ("stream_structured_predict", "astream_structured_predict")
    own = dict.fromkeys(("structured_predict", "astructured_predict", *streams), past)
    model: Any = type(kind, (Scripted,), own)
    blocks = [ToolCallBlock(tool_call_id="a", tool_name="Place", tool_kwargs={"place": "Rome"})]
    inner = model(script=[ChatMessage(role="assistant", blocks=blocks)])
    inner.pydantic_program_mode = PydanticProgramMode.FUNCTION
    llm, prompt, rome = cached(inner), PromptTemplate("Where is {who}?"), Place(place="Rome")
    for _ in range(2):
        assert await asyncio.to_thread(llm.structured_predict, Place, prompt, who="Ada") == rome
        assert await llm.astructured_predict(Place, prompt, who="Ada") == rome
    assert inner.asked == 1
    for _ in range(2):
        assert list(llm.stream_structured_predict(Place, prompt, who="Ada"))
        assert [one async for one in await llm.astream_structured_predict(Place, prompt, who="Ada")]
    assert inner.asked == 2


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # agents look at all they have
@pytest.mark.parametrize("streaming", [False, True])
async def test_e6_a_function_agent_runs_from_the_cache_and_its_tools_run(any_store: Store, streaming: bool) -> None:
    runs: list[str] = []

    def weather(place: str) -> str:
        """Tell the weather."""
        runs.append(place)
        return f"sunny in {place}"

    def script(messages: Sequence[ChatMessage]) -> ChatMessage:
        last = messages[-1]
        if last.role == MessageRole.TOOL:
            return ChatMessage(role="assistant", content=f"The tool says: {last.content}")
        return _called(uuid.uuid4().hex)

    inner = Scripted(script=[script])
    llm = cached(inner, store=any_store)
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(weather)], llm=llm, streaming=streaming)
    for _ in range(3):
        assert str(await agent.run("What is the weather in Rome?")) == "The tool says: sunny in Rome"
    assert inner.asked == 2
    assert runs == ["Rome"] * 3
    assert llm.stats()["hits"] == 4


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # agents look at all they have
async def test_e6_a_function_agent_runs_from_the_cache_whichever_of_its_tools_ends_first(any_store: Store) -> None:
    first: list[str] = []
    told = asyncio.Event()

    async def weather(place: str) -> str:
        """Tell the weather."""
        if place != first[-1]:
            await told.wait()
        return f"sunny in {place}"

    def script(messages: Sequence[ChatMessage]) -> ChatMessage:
        results = [message.content or "" for message in messages if message.role == MessageRole.TOOL]
        calls = [
            ToolCallBlock(tool_call_id=uuid.uuid4().hex, tool_name="weather", tool_kwargs={"place": place})
            for place in ("Rome", "Oslo")
        ]
        said = [TextBlock(text=f"It is {' and '.join(sorted(results))}.")] if results else calls
        return ChatMessage(role="assistant", blocks=said)

    inner = Scripted(script=[script])
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(async_fn=weather)], llm=cached(inner, store=any_store))
    for place in ("Rome", "Oslo"):
        first.append(place)
        told.clear()
        run = agent.run("What is the weather?")
        places = []
        async for event in run.stream_events():
            if isinstance(event, ToolCallResult):
                places.append(event.tool_kwargs["place"])
                told.set()
        assert places[0] == place
        assert str(await run) == "It is sunny in Oslo and sunny in Rome."
    assert inner.asked == 2


def test_e6_a_query_engine_runs_from_the_cache() -> None:
    inner = Scripted(script=["It is in the shed."])
    llm = cached(inner)
    documents = [Document(text="The bike is in the shed.", id_="1")]
    index = VectorStoreIndex.from_documents(documents, embed_model=MockEmbedding(8))
    for streaming in (False, True, False):
        engine = index.as_query_engine(llm=llm, streaming=streaming)
        assert str(engine.query("Where is the bike?")) == "It is in the shed."
    assert inner.asked == 1
    assert llm.stats()["hits"] == 2


def test_an_ingestion_pipeline_keeps_apart_what_two_models_behind_it_have_made() -> None:
    cache = IngestionCache()

    def summary(tokens: int) -> str:
        extractor = SummaryExtractor(llm=cached(MockLLM(max_tokens=tokens)), show_progress=False)
        pipeline = IngestionPipeline(transformations=[extractor], cache=cache)
        (node,) = pipeline.run(nodes=[TextNode(id_="1", text="The bike is in the shed.")])
        return str(node.metadata["section_summary"])

    assert [summary(tokens) for tokens in (2, 3, 2)] == ["text text", "text text text", "text text"]
    assert len(cache.cache._collections_mappings[cache.collection]) == 2  # type: ignore[attr-defined] # it is a simple one


def test_settings_of_llama_index_take_it_and_their_callbacks_reach_the_model() -> None:
    watching = Watching()
    manager = CallbackManager([watching])
    inner = Scripted()
    old = Settings._llm, Settings._callback_manager
    try:
        Settings.llm = cached(inner)
        Settings.callback_manager = manager
        assert Settings.llm.predict(PromptTemplate("Hi")) == "Hello there!"
    finally:
        Settings._llm, Settings._callback_manager = old
    assert inner.callback_manager is manager
    assert watching.seen == ["start", "end"]


def test_a_copy_with_other_callbacks_tells_them_of_what_the_model_answers_too() -> None:
    mine, other = Watching(), Watching()
    llm = cached(Scripted())
    llm.callback_manager = CallbackManager([mine])
    copied = llm.model_copy(update={"callback_manager": CallbackManager([other])})
    copied.chat(HI)
    copied.chat(HI)
    assert other.seen == ["start", "end"] * 2
    llm.complete("Hi")
    assert mine.seen == ["start", "end"]


class Counting(BaseRateLimiter):
    taken: int = 0

    def acquire(self, num_tokens: int = 0) -> None:
        self.taken += 1

    async def async_acquire(self, num_tokens: int = 0) -> None:
        self.taken += 1


@pytest.mark.parametrize("way", WAYS)
def test_a_rate_limiter_is_asked_by_the_model_and_by_no_hit(way: str) -> None:
    llm, limits = cached(Scripted()), Counting()
    llm.rate_limiter = limits
    WAYS[way](llm)
    assert limits.taken == 1
    WAYS[way](llm)
    assert limits.taken == 1
    other = Counting()
    copied = llm.model_copy(update={"rate_limiter": other})
    WAYS[way](copied)
    assert other.taken == 0
    with copied.refresh():
        WAYS[way](copied)
    assert (limits.taken, other.taken) == (1, 1)


class WarmingStore(MemoryStore):
    """Lets something happen while the first call waits."""

    meanwhile: Any = None

    def get(self, *request: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile:
            meanwhile()
        return super().get(*request)


@pytest.mark.parametrize("way", WAYS)
def test_a_response_is_not_kept_for_a_setting_that_was_replaced_before_the_model_was_asked(way: str) -> None:
    inner, store = Scripted(), WarmingStore()
    inner.script = [lambda _: f"{inner.temperature}"]
    llm = cached(inner, store=store)
    store.meanwhile = lambda: setattr(inner, "temperature", 1.0)
    assert text(WAYS[way](llm)) == "1.0"
    assert (llm.stats()["refused"], llm.stats()["stored"]) == (1, 0)
    inner.temperature = 0.0
    assert [text(WAYS[way](llm)) for _ in range(2)] == ["0.0"] * 2
    assert (inner.asked, llm.stats()["stored"]) == (2, 1)


def test_how_prompts_are_made_is_set_on_the_cache_for_its_model_and_for_nobody_elses() -> None:
    class Echo(CustomLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name="echo")

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
            assert self.completion_to_prompt is not None
            return CompletionResponse(text=prompt if formatted else self.completion_to_prompt(prompt))

        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            yield self.complete(prompt, formatted)

    def shout(messages: Sequence[ChatMessage]) -> str:
        return "".join(message.content or "" for message in messages).upper()

    inner = Echo()
    before = inner.chat(HI).message.content
    llm = cached(inner)
    copied = llm.model_copy(update={"messages_to_prompt": shout})
    assert [llm.chat(HI).message.content, copied.chat(HI).message.content] == [before, "HI"]
    llm.messages_to_prompt = shout
    llm.completion_to_prompt = lambda prompt: f"Say: {prompt}"
    assert [llm.chat(HI).message.content, llm.complete("Hi").text] == ["HI", "Say: Hi"]
    assert [inner.chat(HI).message.content, inner.complete("Hi").text] == [before, "Hi"]


class Keeping(CustomLLM):
    """Keeps what it is asked, and how often, as a model that its user writes for a test does."""

    calls: list[str] = Field(default=[])
    seen: set[str] = Field(default_factory=set)
    count: int = 0
    mood: int = 0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="keeping")

    def become(self, mood: int) -> None:
        self.mood = mood

    def _keep(self, prompt: str) -> None:
        self.calls.append(prompt)
        self.seen.add(prompt)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self._keep(prompt)
        said = f"{_first_call(self)}, mood {self.mood}"
        return CompletionResponse(text=said, delta=said)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        def each() -> Iterator[CompletionResponse]:
            self.count += 1
            yield self.complete(prompt, formatted)

        return each()


def _first_call(model: Keeping) -> str:
    """Read where no method of the model does, as by a test."""
    return model.calls[0]


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_keeps_its_calls_is_the_same_after_them(way: str) -> None:
    inner = Keeping()
    llm = cached(inner)
    for _ in range(3):
        WAYS[way](llm)
    assert (len(inner.calls), llm.stats()["hits"]) == (1, 2)


def test_what_a_model_was_given_or_set_to_counts_although_it_keeps_its_calls() -> None:
    store = MemoryStore()
    moody = Keeping()
    moody.become(2)
    for inner, said in [
        (Keeping(calls=["One"]), "One, mood 0"),
        (Keeping(calls=["Two"]), "Two, mood 0"),
        (moody, "Hi, mood 2"),
        (Keeping(), "Hi, mood 0"),
    ]:
        assert CachedLLM(inner, store=store).complete("Hi").text == said


class Request:
    """What a model sends, in attributes with the names of its own fields."""

    def __init__(self) -> None:
        self.seed, self.stop = 0, list[str]()


class Sending(CustomLLM):
    """Sends its fields in a request, and what it was asked before."""

    seed: int = 0
    examples: list[str] = Field(default=[])
    stop: list[str] = Field(default=[])
    history: list[str] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="sending")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        request = Request()
        request.seed = self.seed
        request.stop.extend(self.stop)
        examples = list(self.examples)
        examples.append(prompt)
        self.history.append(prompt)
        return CompletionResponse(text=f"{request.seed} {request.stop} {examples} {self.history}")

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_what_a_model_puts_into_its_request_is_no_record_of_its_calls() -> None:
    store, models = MemoryStore(), [Sending(), Sending(seed=1), Sending(seed=2), Sending(), Sending(), Sending()]
    models[3].stop.append("END")
    models[4].examples.append("Ho")
    models[5].complete("Hi")
    expected = [inner.model_copy(deep=True).complete("Ho").text for inner in models]
    assert [CachedLLM(inner, store=store).complete("Ho").text for inner in models] == expected


def test_the_code_of_a_model_is_read_once_and_not_for_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    instructions_of = dis.get_instructions

    def reading(code: Any) -> Any:
        read.append(code)
        return instructions_of(code)

    monkeypatch.setattr(dis, "get_instructions", reading)

    class Fresh(Keeping):
        pass

    chat_key(Fresh(), HI, {})
    assert read
    read.clear()
    chat_key(Fresh(), HI, {})
    assert read == []


@pytest.mark.parametrize("name", ["callback", "serving", "llm", "request"])
def test_an_argument_of_the_model_may_have_any_name(name: str) -> None:
    llm = cached(Scripted())
    arguments: dict[str, Any] = {name: 1}
    for _ in range(2):
        assert llm.chat(HI, **arguments).message.content == "Hello there!"
        assert llm.complete("Hi", **arguments).text == "Hello there!"
    assert llm.stats()["hits"] == 2


class Seeing(Scripted):
    """Takes pictures with its prompt, as OpenAIMultiModal does."""

    @llm_completion_callback()
    def complete(self, prompt: str, image_documents: Any, **kwargs: Any) -> CompletionResponse:
        assert all(isinstance(picture, ImageNode) for picture in image_documents)
        return CompletionResponse(text=self._next(prompt).content or "")


def test_a_model_that_takes_pictures_with_a_prompt_is_never_served_for_another_picture(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.touch()
    llm = cached(Seeing(script=["a cat", "a dog", "a cow", "a hen"]))
    named = ImageNode(image_path=str(file))
    for said in ("a cat", "a dog"):  # what is in the file may have changed
        assert llm.complete("What is it?", image_documents=[named]).text == said
    assert llm.complete("What is it?", cast(Any, [named])).text == "a cow"
    for _ in range(2):
        assert llm.complete("What is it?", image_documents=[ImageNode(id_="1", image="aGVu")]).text == "a hen"
    assert llm.stats()["hits"] == 1


def test_a_model_that_calls_no_functions_is_wrapped_as_one_and_says_so() -> None:
    class Plain(CustomLLM):
        said: int = 0

        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(model_name="plain", context_window=77)

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
            self.said += 1
            return CompletionResponse(text=f"You said: {prompt}")

        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            yield CompletionResponse(text=prompt, delta=prompt)

    llm = cached(Plain(system_prompt="Be short."))
    assert not isinstance(llm, FunctionCallingLLM)
    assert (llm.metadata.context_window, llm.metadata.is_function_calling_model) == (77, False)
    assert llm.predict(PromptTemplate("Hi")) == "You said: Be short.\n\nHi"
    assert llm.to_payload()["model_name"] == "plain"
    assert llm.said == 1


# --- secrets, and wrong settings ----------------------------------------------------------------------------


def test_no_secret_shows() -> None:
    store = MemoryStore()
    llm = cached(Scripted(script=["Sure."]), store=store)
    llm.chat([ChatMessage(role="user", content="my private question?")])
    assert "topsecret" not in repr(llm) + str(llm) + str(llm.to_dict()) + str(llm.model_dump())
    assert "Scripted" in repr(llm)
    held = b"".join(value for space in store.namespaces() for value in store.get(space).values())
    assert held
    assert not any(secret in held for secret in (b"topsecret", b"private"))


def test_wrong_settings_are_told() -> None:
    llm = cached(MockLLM())
    for wrong in ("gpt-4o", llm):
        with pytest.raises(ConfigurationError, match="wraps a model of LlamaIndex"):
            CachedLLM(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a structured LLM cannot be wrapped"):
        CachedLLM(MockLLM().as_structured_llm(Place))  # its hits would have no object in raw
    with pytest.raises(ConfigurationError, match="a url or a store"):
        CachedLLM(MockLLM(), url="memory:", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="on_error"):
        cached(MockLLM(), on_error="hide")
    with pytest.raises(ConfigurationError, match="wait"):
        cached(MockLLM(), wait=-1)
    with pytest.raises(AttributeError, match="no_such"):
        llm.no_such  # noqa: B018
    assert not hasattr(cached(Scripted()), "_lock")  # what is private is the model's own
    assert llm.max_tokens is None


# --- what must not be taken for something else ---------------------------------------------------------------


def calling(name: str, id_: str, **args: Any) -> ChatMessage:
    return ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_call_id=id_, tool_name=name, tool_kwargs=args)])


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # agents look at all they have
@pytest.mark.parametrize("streaming", [False, True])
async def test_an_agent_whose_model_has_names_for_ids_runs_again_from_the_cache(streaming: bool) -> None:
    """As the integration of google-genai has it."""
    runs: list[str] = []

    def turn_on() -> str:
        """Turn the light on."""
        runs.append("on")
        return "done"

    def script(messages: Sequence[ChatMessage]) -> ChatMessage:
        if messages[-1].role == "tool":
            return ChatMessage(role="assistant", content=f"It is {messages[-1].content}.")
        return calling("turn_on", "turn_on")

    agent = FunctionAgent(
        tools=[FunctionTool.from_defaults(turn_on)], llm=cached(Scripted(script=[script])), streaming=streaming
    )
    assert [str(await agent.run("Light!")) for _ in range(2)] == ["It is done."] * 2
    assert runs == ["on", "on"]


def test_calls_of_other_tools_are_other_requests_whatever_their_ids() -> None:
    def after(name: str, id_: str, said: str) -> list[ChatMessage]:
        answer = ChatMessage(role="tool", content=said, additional_kwargs={"tool_call_id": id_})
        return [ChatMessage(role="user", content="go"), calling(name, id_), answer]

    inner = Scripted(script=[lambda messages: f"{messages[1].blocks[0].tool_name} {messages[2].content}"])
    llm = cached(inner)
    assert [
        llm.chat(after(*asked)).message.content
        for asked in (("on", "on", "1"), ("off", "off", "1"), ("off", "1", "1"), ("off", "2", "2"), ("off", "3", "1"))
    ] == ["on 1", "off 1", "off 1", "off 2", "off 1"]


def test_arguments_that_read_like_an_id_come_back_as_they_were() -> None:
    llm = cached(Scripted(script=[calling("find", "7", user="7")]))
    for _ in range(2):
        (call,) = llm.chat([ChatMessage(role="user", content="Who is 7?")]).message.blocks
        assert isinstance(call, ToolCallBlock)
        assert (call.tool_name, call.tool_kwargs) == ("find", {"user": "7"})


@pytest.mark.parametrize(
    "block_of",
    [
        lambda picture: picture,
        lambda picture: CitableBlock(title="Animals", source="a book", content=[picture]),
        lambda picture: CitationBlock(
            title="Animals", source="a book", cited_content=picture, additional_location_info={}
        ),
        lambda picture: DocumentBlock(path=str(picture.path)),
        None,
    ],
)
def test_a_file_is_known_by_what_is_in_it(tmp_path: Path, block_of: Callable[[ImageBlock], Any] | None) -> None:
    class Source(BaseModel, extra="allow"):
        """Something of the user's own, beside a message."""

    file = tmp_path / "picture.png"
    file.touch()
    llm = cached(Scripted(script=["a cat", "a dog"]))
    picture, question = ImageBlock(path=str(file)), TextBlock(text="What is it?")
    if block_of is None:
        beside = {"sources": [{"found": Source.model_validate({"picture": picture})}]}
        asked = [ChatMessage(role="user", blocks=[question], additional_kwargs=beside)]
    else:
        asked = [ChatMessage(role="user", blocks=[question, block_of(picture)])]
    for content, said in ((b"cat", "a cat"), (b"dog", "a dog"), (b"cat", "a cat")):
        file.write_bytes(content)
        assert llm.chat(asked).message.content == said
    file.unlink()
    llm.chat(asked)
    assert llm.stats()["unkeyed"] == 1


@pytest.mark.parametrize("path", ["no\0file.pdf", "half of \ud83d.pdf"])
def test_a_path_that_no_file_can_have_is_left_to_the_model(path: str) -> None:
    llm = cached(Scripted(script=["I see nothing."]))
    asked = [ChatMessage(role="user", blocks=[DocumentBlock(path=path)])]
    assert llm.chat(asked).message.content == "I see nothing."
    assert llm.stats()["unkeyed"] == 1


@pytest.mark.parametrize(
    "raw",
    [
        {"choices": [{"finish_reason": "length"}]},
        {"choices": [{"finish_reason": "stop", "message": {"refusal": "I cannot."}}]},
        _Told(choices=[_Told(finish_reason=None, delta=_Told(refusal="I"))]),
        {"response": _Told(status="completed", output=[_Told(type="message", content=[_Told(type="refusal")])])},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"stop_reason": "model_context_window_exceeded"},
        {"stop_reason": "pause_turn"},
        {"candidates": [{"finish_reason": "MALFORMED_FUNCTION_CALL"}]},
        {"type": "response.incomplete", "response": {"status": "incomplete"}},
        {"type": "response.failed", "response": {"status": "failed"}},
        _Told(data=_Told(choices=[_Told(finish_reason="length")])),  # as MistralAI's streams have it
        {"type": "message_delta", "delta": _Told(stop_reason="max_tokens")},  # as Anthropic's have it
    ],
)
def test_what_was_cut_in_a_stream_is_not_kept_whatever_its_last_piece_says(raw: Any) -> None:
    cut = CompletionResponse(text="The cap", delta="The cap", raw=raw)
    last = CompletionResponse(text="The cap", delta="", raw={"choices": [], "usage": {"prompt_tokens": 3}})
    assert not worth_storing(cut)
    assert not worth_storing(came_to([cut, last]))


@pytest.mark.parametrize(
    ("under_way", "end"),
    [
        ({"choices": [{"finish_reason": None}]}, {"choices": [{"finish_reason": "stop"}]}),
        tuple(_Told(data=_Told(choices=[_Told(finish_reason=reason)])) for reason in (None, "stop")),
        ({"candidates": [{"finish_reason": None}]}, {"candidates": [{"finish_reason": "STOP"}]}),
        ({"done": False, "done_reason": None}, {"done": True, "done_reason": "stop"}),
        ({"response": {"status": "queued"}}, {"response": {"status": "completed"}}),
        ({"response": {"status": "in_progress"}}, {"response": {"status": "completed"}}),
        ({"contentBlockDelta": {"delta": {"text": "a"}}}, {"metadata": {"usage": {"outputTokens": 1}}}),
        tuple({"event_type": kind} for kind in ("text-generation", "stream-end")),
        ({"event_type": "part"}, {"event_type": "part", "finish_reason": "stop"}),
    ],
    ids=["OpenAI", "MistralAI", "GoogleGenAI", "Ollama", "Responses", "begun", "BedrockConverse", "Cohere", "another"],
)
def test_a_stream_that_does_not_tell_why_it_ends_is_not_kept_where_it_could(under_way: Any, end: Any) -> None:
    """Something on the way may have closed it as if all had come."""
    first, last = (
        CompletionResponse(text="The cap", delta=said, raw=raw) for said, raw in (("The ", under_way), ("cap", end))
    )
    used = CompletionResponse(text="The cap", delta="", raw={"choices": [], "usage": {"prompt_tokens": 3}})
    assert not worth_storing(came_to([first]))
    assert not worth_storing(came_to([first, used]))
    assert worth_storing(came_to([first, last, used]))
    assert worth_storing(came_to([last.model_copy(update={"raw": None}), used]))


def test_what_only_looks_like_a_place_for_a_reason_is_none() -> None:
    """BedrockConverse lists beside its messages how tools ended; others tell of a response what they like."""
    beside: dict[str, Any] = {"tool_call_id": [], "status": []}
    said = ChatMessage(role="assistant", content="Yes.", additional_kwargs=beside)
    assert worth_storing(came_to([ChatResponse(message=said, delta="Yes.", raw={"metadata": 5})]))


def test_a_stream_of_anthropics_that_does_not_tell_why_it_ends_is_not_kept() -> None:
    """Which is told beside the message."""
    first, last = (
        ChatResponse(
            message=ChatMessage(role="assistant", content="Yes.", additional_kwargs={"stop_reason": reason}), delta=said
        )
        for said, reason in (("Yes.", None), ("", "end_turn"))
    )
    assert not worth_storing(came_to([first]))
    assert worth_storing(came_to([first, last]))


def test_a_completion_of_anthropics_that_does_not_tell_why_it_ends_is_not_kept() -> None:
    """Which only its raw events tell."""
    block = {"type": "content_block_delta", "index": 0, "delta": SimpleNamespace(type="text_delta", text="Yes.")}
    end = {"type": "message_delta", "delta": SimpleNamespace(stop_reason="end_turn", stop_sequence=None)}
    pieces = [CompletionResponse(text="Yes.", delta=said, raw=raw) for said, raw in (("Yes.", block), ("", end))]
    assert not worth_storing(came_to(pieces[:1]))
    assert worth_storing(came_to(pieces))


def test_c1_a_hit_has_no_id_under_which_openai_keeps_a_thought_of_it() -> None:
    """OpenAI has forgotten it after a month; without one, OpenAIResponses shows the model the rest."""

    def thought(id_: str, **more: str) -> ThinkingBlock:
        return ThinkingBlock(content="Hm.", additional_information={"type": "reasoning", "id": id_, **more})

    said = iter(
        [[thought("rs_1", status="completed"), TextBlock(text="Yes.")], [thought("rs_2"), TextBlock(text="No.")]]
    )
    inner = Scripted(script=[lambda _: ChatMessage(role="assistant", blocks=next(said))])
    llm = cached(inner)
    question = ChatMessage(role="user", content="Is it?")
    first, hit = llm.chat([question]).message, llm.chat([question]).message
    assert isinstance(first.blocks[0], ThinkingBlock)
    assert first.blocks[0].additional_information["id"] == "rs_1"
    assert hit.blocks == [
        ThinkingBlock(content="Hm.", additional_information={"type": "reasoning", "status": "completed"}),
        TextBlock(text="Yes."),
    ]
    more = ChatMessage(role="user", content="Really?")
    assert [llm.chat([question, answer, more]).message.content for answer in (first, hit)] == ["No.", "No."]
    assert inner.asked == 2
    kept = thought("r1")  # of another provider
    other = cached(Scripted(script=[ChatMessage(role="assistant", blocks=[kept, TextBlock(text="Yes.")])]))
    assert [other.chat([question]).message.blocks[0] for _ in range(2)] == [kept, kept]


# --- copies and pickles -------------------------------------------------------------------------------------


def test_a_field_of_the_model_is_not_changed_in_a_copy_of_its_cache() -> None:
    llm = cached(Scripted())
    with pytest.raises(ConfigurationError, match="no temperature: change the model and wrap it again"):
        llm.model_copy(update={"temperature": 0.5})
    assert llm.model_copy(update={"system_prompt": "Be short."}).system_prompt == "Be short."


def test_a_copy_has_the_same_cache_and_a_deep_one_a_model_of_its_own() -> None:
    inner = MockLLM(max_tokens=2)
    llm = cached(inner, store=MemoryStore())
    for copied in (copy.copy(llm), copy.deepcopy(llm), llm.model_copy(), llm.model_copy(deep=True)):
        assert isinstance(copied, CachedLLM)
        assert copied.complete("Hi").text == "text text"
        assert copied.pool is llm.pool
    assert (llm.stats()["hits"], llm.stats()["misses"]) == (3, 1)
    deep = copy.deepcopy({"one": llm, "other": llm})
    assert deep["one"] is deep["other"]
    assert deep["one"]._wrapped is not inner
    assert llm.model_copy(deep=True)._wrapped is not inner
    assert copy.copy(llm)._wrapped is inner


def test_a_pickle_opens_the_same_cache(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.db'}"
    llm = CachedLLM(MockLLM(max_tokens=2), url=url, tag="mine", tenant="t", judge=AtLeast(7), wait=5.0)
    kept = llm.pool
    loaded = pickle.loads(pickle.dumps(llm))
    assert type(loaded) is CachedLLM
    assert llm.complete("Hi").text == loaded.complete("Hi").text == "text text"
    assert (loaded.pool.tag, loaded.pool.scope, loaded.pool.store) == ("mine", kept.scope, kept.store)
    assert loaded.stats()["rejected"] == 1  # the judge came along
    calling = pickle.loads(pickle.dumps(CachedLLM(Calling(), url="memory:")))
    assert isinstance(calling, FunctionCallingLLM)
    assert isinstance(calling, CachedLLM)


def test_a_pickle_has_what_was_set_on_the_cache_and_serves_what_is_kept(tmp_path: Path) -> None:
    llm = CachedLLM(MockLLM(max_tokens=2), url=f"sqlite:///{tmp_path / 'c.db'}")
    llm.system_prompt = "Be short."
    llm.predict(PromptTemplate("Hi"))
    loaded = pickle.loads(pickle.dumps(llm))
    assert loaded.system_prompt == "Be short."
    loaded.predict(PromptTemplate("Hi"))
    assert (loaded.stats()["hits"], loaded.stats()["misses"]) == (1, 0)


class Regional(CachedLLM):
    """A cached model of the user's own, which is made in a way of its own."""

    region: str = "eu"

    def __init__(self, region: str, url: str) -> None:
        super().__init__(MockLLM(max_tokens=2), url=url)
        self.region = region


class Shouting(CachedLLM):
    """A cached model of the user's own, around any model."""

    team: str = "red"

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        return super().chat([ChatMessage(str(message.content).upper()) for message in messages], **kwargs)


def test_a_class_of_ones_own_caches_tools_around_a_model_that_calls_functions() -> None:
    asked: list[str] = []
    wrap: Any = Shouting

    def say(messages: Sequence[ChatMessage]) -> str:
        asked.extend(str(message.content) for message in messages)
        return "Hello!"

    llm = wrap(Scripted(script=[say]), store=MemoryStore())
    for _ in range(2):
        assert llm.chat_with_tools([], "Hi").message.content == "Hello!"
    assert (asked, llm.stats()["hits"]) == (["HI"], 1)
    assert isinstance(llm, Shouting)
    assert isinstance(llm, FunctionCallingLLM)
    assert not isinstance(wrap(MockLLM(), store=MemoryStore()), FunctionCallingLLM)
    assert type(wrap(Scripted(), store=MemoryStore())) is type(llm) is type(copy.copy(llm))


def test_a_pickle_of_a_class_of_ones_own_calls_functions() -> None:
    wrap: Any = Shouting
    llm = wrap(Calling(), url="memory:")
    llm.team = "blue"
    loaded = pickle.loads(pickle.dumps(llm))
    assert (type(loaded), loaded.team) == (type(llm), "blue")
    assert loaded.chat_with_tools([], "Hi").message.content == "Hello there!"
    assert loaded.stats()["stored"] == 1


def test_a_pickle_is_of_its_class_and_has_its_fields() -> None:
    loaded = pickle.loads(pickle.dumps(Regional("us", "memory:")))
    assert (type(loaded), loaded.region, loaded.complete("Hi").text) == (Regional, "us", "text text")


class Calling(Scripted):
    """A model of a module, which can be pickled."""


def test_a_dump_says_that_it_cannot_be_loaded() -> None:
    with pytest.raises(ConfigurationError, match="neither its model nor its cache"):
        CachedLLM.from_dict(CachedLLM(MockLLM(), url="memory:").to_dict())


@pytest.mark.parametrize("settings", [{"store": MemoryStore()}, {"url": "redis://:my-secret@127.0.0.1:1/0"}])
def test_what_cannot_be_opened_again_is_pickled_without_its_cache(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    data = pickle.dumps(pickle.loads(pickle.dumps(CachedLLM(MockLLM(max_tokens=2), **settings))))
    assert b"my-secret" not in data
    loaded = pickle.loads(data)
    assert [loaded.complete("Hi").text for _ in range(2)] == ["text text"] * 2
    assert (loaded.stats()["hits"], loaded.stats()["errors"] > 0) == (0, True)
    assert "a CachedLLM was pickled without its store" in caplog.text
    strict = pickle.loads(pickle.dumps(CachedLLM(MockLLM(), on_error="raise", **settings)))
    with pytest.raises(StoreUnavailable):
        strict.complete("Hi")


class Meeting(MockLLM):
    """Answers once two ask at the same time."""

    both: ClassVar[threading.Barrier] = threading.Barrier(2)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self.both.wait(timeout=10)
        return CompletionResponse(text=f"for {threading.current_thread().name}")


def test_without_its_tenants_a_model_shares_no_call() -> None:
    current = contextvars.ContextVar("tenant", default="")
    loaded = pickle.loads(pickle.dumps(CachedLLM(Meeting(max_tokens=2), url="memory:", tenant=current)))
    got: dict[str, str] = {}

    def ask(name: str) -> None:
        current.set(name)
        got[name] = loaded.complete("Hi").text

    threads = [threading.Thread(target=ask, args=(name,), name=name) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {"ada": "for ada", "bob": "for bob"}
