"""Any model can be asked, sync and async, and an answer that cannot be used is an error (B2, B5)."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, get_usage_metadata_callback
from langchain_core.language_models import FakeListLLM, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import ConfigurableField, RunnableLambda
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata, MockLLM
from pydantic import PrivateAttr

from langmem_adapters.completion import Completer, is_refusal
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, ModelError
from langmem_adapters.flow import arun, run
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.llamaindex import CachedLLM
from langmem_adapters.stores.memory import MemoryStore


def chat(*answers: AIMessage | str | Exception) -> GenericFakeChatModel:
    def script() -> Iterator[AIMessage | str]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer

    return GenericFakeChatModel(messages=script())


class OwnLLM(CustomLLM):
    """A LlamaIndex model as a user writes one."""

    reason: str = "stop"
    usage: Any = None

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002
        raw = {"choices": [{"finish_reason": self.reason}], "usage": self.usage}
        return CompletionResponse(text=f"yes, {prompt}", raw=raw)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        raise NotImplementedError


class OwnSent(OwnLLM):
    """One that hands on what its provider sent, as the integrations do."""

    sent: dict[str, Any]

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:  # noqa: ARG002
        return CompletionResponse(text="A beginning", raw=self.sent)


def function(prompt: str) -> str:
    return f"yes, {prompt}"


async def coroutine_function(prompt: str) -> str:
    await asyncio.sleep(0)
    return f"yes, {prompt}"


class AsyncCallable:
    async def __call__(self, prompt: str) -> str:
        return await coroutine_function(prompt)


BOTH: dict[str, Callable[[], Any]] = {
    "LangChain chat model": lambda: chat("yes, be kind\n\nHello"),
    "LangChain LLM": lambda: FakeListLLM(responses=["yes, be kind\n\nHello"]),
    "LangChain chat model with fallbacks": lambda: chat("yes, be kind\n\nHello").with_fallbacks([chat("no")]),
    "LangChain LLM with fallbacks": lambda: FakeListLLM(responses=["yes, be kind\n\nHello"]).with_fallbacks(
        [FakeListLLM(responses=["no"])]
    ),
    "chain": lambda: chat("yes, be kind\n\nHello") | StrOutputParser(),
    "Runnable": lambda: RunnableLambda(lambda asked: f"yes, {asked[0][1]}\n\n{asked[1][1]}"),
    "LlamaIndex LLM": OwnLLM,
    "function": lambda: function,
    "partial": lambda: functools.partial(function),
}
LANGCHAIN_AND_LLAMAINDEX = BOTH.keys() - {"function", "partial"}
ONLY_ASYNC: dict[str, Callable[[], Any]] = {
    "coroutine function": lambda: coroutine_function,
    "async callable": AsyncCallable,
    "partial of one": lambda: functools.partial(coroutine_function),
    "function that hands one on": lambda: lambda prompt: coroutine_function(f"{prompt}"),
}


@pytest.mark.parametrize("make", BOTH.values(), ids=BOTH)
async def test_b5_every_kind_of_model_answers_sync_and_async(make: Callable[[], Any]) -> None:
    assert run(Completer(make()).ask("be kind", "Hello")) == "yes, be kind\n\nHello"
    assert await arun(Completer(make()).ask("be kind", "Hello")) == "yes, be kind\n\nHello"


async def test_b5_llama_indexs_mock_echoes() -> None:
    assert run(Completer(MockLLM()).ask("be kind", "Hello")) == "be kind\n\nHello"
    assert await arun(Completer(MockLLM()).ask("be kind", "Hello")) == "be kind\n\nHello"


class Threads(OwnLLM):
    """Notes on which threads it is at work."""

    _threads: list[threading.Thread] = PrivateAttr(default_factory=list)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self._threads.append(threading.current_thread())
        return super().complete(prompt, formatted, **kwargs)


class Native(Threads):
    """Has an async way of its own."""

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        await asyncio.sleep(0)
        return self.complete(prompt, formatted, **kwargs)


@pytest.mark.parametrize("wrap", [lambda llm: llm, lambda llm: CachedLLM(llm, url="memory:")], ids=["bare", "cached"])
async def test_a5_a_llamaindex_model_that_blocks_where_it_is_awaited_does_not_block_the_loop(
    wrap: Callable[[Any], Any],
) -> None:
    for llm in (Threads(), Native()):
        assert await arun(Completer(wrap(llm)).ask("be kind", "Hello")) == "yes, be kind\n\nHello"
        assert [thread is threading.current_thread() for thread in llm._threads] == [isinstance(llm, Native)]


@pytest.mark.parametrize("make", ONLY_ASYNC.values(), ids=ONLY_ASYNC)
async def test_b5_an_async_model_answers_async_and_is_one_clear_error_in_sync(make: Callable[[], Any]) -> None:
    completer = Completer(make())
    assert await arun(completer.ask("be kind", "Hello")) == "yes, be kind\n\nHello"
    with pytest.raises(ConfigurationError, match=r"^this model is a coroutine function: call the async twin of this"):
        run(completer.ask("be kind", "Hello"))
    assert completer.stats["calls"] == 1


@pytest.mark.parametrize("kind", [FakeListLLM, MockLLM])
def test_the_class_of_a_model_is_no_model(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^a model is an object, {kind.__name__}\(…\), and not its class$"):
        Completer(kind)


def test_a_langchain_chat_model_is_told_the_system_prompt_as_such() -> None:
    asked: list[Any] = []

    def model(given: list[tuple[str, str]]) -> str:
        asked.append(given)
        return "yes"

    run(Completer(RunnableLambda(model)).ask("be kind", "Hello"))
    assert asked == [[("system", "be kind"), ("human", "Hello")]]


@pytest.mark.parametrize("model", [None, 5, "gpt-4o", {"model": "gpt-4o"}, object()])
def test_what_is_no_model_is_one_sentence(model: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^a model is a LangChain or LlamaIndex model or a function from prompt"
    ):
        Completer(model)


def test_a_function_is_told_from_a_model() -> None:
    for name, make in {**BOTH, **ONLY_ASYNC}.items():
        assert Completer(make()).is_function == (name not in LANGCHAIN_AND_LLAMAINDEX)


def told(**fields: Any) -> AIMessage:
    return AIMessage(content="A beginning", **fields)


REFUSED: Any = {"type": "non_standard", "value": {"type": "refusal", "refusal": "I will not."}}
UNUSABLE: dict[str, Callable[[], Any]] = {
    "raises": lambda: chat(RuntimeError("my-secret")),
    "times out": lambda: chat(TimeoutError()),
    "is empty": lambda: chat(" \n"),
    "is cut off while it thinks": lambda: chat("<think>What to say? <summary>This</summary>"),
    "is cut off while it thinks again": lambda: chat("<think>What?</think>\n<think>Or that?"),
    "only thinks": lambda: chat("<think>What to say?</think>\n"),
    "calls a tool": lambda: chat(AIMessage("", tool_calls=[{"id": "1", "name": "look", "args": {}}])),
    "is cut off (OpenAI)": lambda: chat(told(response_metadata={"finish_reason": "length"})),
    "is cut off (Anthropic)": lambda: chat(told(response_metadata={"stop_reason": "max_tokens"})),
    "is cut off (Google)": lambda: chat(told(response_metadata={"finish_reason": "FinishReason.MAX_TOKENS"})),
    "is cut off (Ollama)": lambda: chat(told(response_metadata={"done_reason": "length"})),
    "is cut off (Responses)": lambda: chat(told(response_metadata={"status": "incomplete"})),
    "is cut off (LlamaIndex)": lambda: OwnLLM(reason="length"),
    "is cut off (LlamaIndex, Google)": lambda: OwnSent(sent={"candidates": [{"finish_reason": "MAX_TOKENS"}]}),
    "is cut off (LlamaIndex, an event)": lambda: OwnSent(sent={"response": {"status": "incomplete"}}),
    "is no call that can be read": lambda: chat(told(response_metadata={"finish_reason": "MALFORMED_FUNCTION_CALL"})),
    "is cancelled": lambda: chat(told(response_metadata={"status": "cancelled"})),
    "is filtered": lambda: chat(told(response_metadata={"finish_reason": "content_filter"})),
    "is blocked": lambda: chat(told(response_metadata={"finish_reason": "SAFETY"})),
    "is refused": lambda: chat(told(additional_kwargs={"refusal": "I will not."})),
    "is refused (Responses)": lambda: chat(AIMessage(["A beginning", {"type": "refusal", "refusal": "I will not."}])),
    "is refused (v1)": lambda: chat(AIMessage(["A beginning", REFUSED])),
    "function gives nothing": lambda: lambda _: None,
    "function gives a list": lambda: lambda _: ["a", "b"],
}


@pytest.mark.parametrize("make", UNUSABLE.values(), ids=UNUSABLE)
async def test_b2_an_answer_that_cannot_be_used_is_a_model_error_and_counted(make: Callable[[], Any]) -> None:
    completer = Completer(make())
    with pytest.raises(ModelError) as failure:
        run(completer.ask("be kind", "Hello"))
    assert "my-secret" not in str(failure.value)
    assert (completer.stats["calls"], completer.stats["failures"]) == (1, 1)
    with pytest.raises(ModelError):
        await arun(Completer(make()).ask("be kind", "Hello"))


def test_an_answer_that_is_no_text_is_told_from_an_empty_one() -> None:
    with pytest.raises(ModelError, match=r"^the model's answer is no text, but of type dict$"):
        run(Completer(RunnableLambda(lambda _: {"messages": ["my-secret"]})).ask("be kind", "Hello"))
    with pytest.raises(ModelError, match=r"^the model's answer is empty, filtered or cut off$"):
        run(Completer(lambda _: "").ask("be kind", "Hello"))


def test_a_models_own_error_is_the_cause() -> None:
    def fail(_: str) -> str:
        raise TimeoutError("too slow")

    with pytest.raises(ModelError, match=r"^the model failed: TimeoutError$") as failure:
        run(Completer(fail).ask("be kind", "Hello"))
    assert isinstance(failure.value.__cause__, TimeoutError)


def test_thoughts_that_a_model_speaks_out_are_not_its_answer() -> None:
    assert run(Completer(lambda _: "<think>TRUE or\nFALSE?</think>\n\nTRUE").ask("", "")) == "TRUE"
    assert run(Completer(lambda _: "The tag <think> begins it").ask("", "")) == "The tag <think> begins it"


def test_a_thought_that_the_server_began_is_not_the_answer_either() -> None:
    assert run(Completer(lambda _: "TRUE or\nFALSE?</think>\n\nTRUE").ask("", "")) == "TRUE"
    assert run(Completer(lambda _: "Ada asked what </think> ends").ask("", "")) == "Ada asked what </think> ends"


def test_thoughts_without_an_end_are_soon_read() -> None:
    answer = "<think>Hm.</think>" + "The tag <think> begins it. " * 30_000
    begin = time.process_time()
    assert run(Completer(lambda _: answer).ask("", "")) == answer.removeprefix("<think>Hm.</think>").strip()
    assert time.process_time() - begin < 2


def test_b3_tokens_are_the_models_own_count_or_an_estimate() -> None:
    usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
    completer = Completer(chat(AIMessage("yes", usage_metadata=usage), "no"))
    run(completer.ask("be kind", "Hello"))
    assert completer.stats == {"calls": 1, "tokens_in": 100, "tokens_out": 7}
    run(completer.ask("be kind", "Hello"))
    assert completer.stats == {"calls": 2, "tokens_in": 103, "tokens_out": 8}


async def test_b3_tokens_are_also_what_a_llamaindex_model_counted() -> None:
    completer = Completer(OwnLLM(usage={"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}))
    run(completer.ask("be kind", "Hello"))
    await arun(completer.ask("be kind", "Hello"))
    assert completer.stats == {"calls": 2, "tokens_in": 200, "tokens_out": 14}


def test_an_answer_from_a_cache_took_no_tokens() -> None:
    usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
    for model in (
        CachedChatModel(chat(AIMessage("Yes.", usage_metadata=usage)), ExperienceCache(store=MemoryStore())),
        CachedLLM(OwnLLM(), store=MemoryStore()),
    ):
        completer = Completer(model)
        run(completer.ask("Answer.", "Is it?"))
        once = dict(completer.stats)
        assert once["tokens_in"] > 0 < once["tokens_out"]
        assert run(completer.ask("Answer.", "Is it?"))
        assert completer.stats == once | {"calls": 2}


def test_an_answer_to_the_same_in_other_words_took_no_tokens_either() -> None:
    embedder = Embedder(lambda texts: [[1.0, 0.0]] * len(texts), name="one")
    cache = ExperienceCache("memory:", semantic=SemanticMode(embedder))
    completer = Completer(CachedChatModel(chat("Paris."), cache))
    run(completer.ask("Answer.", "What is the capital of France?"))
    once = dict(completer.stats)
    assert run(completer.ask("Answer.", "what is the capital of france")) == "Paris."
    assert cache.stats()["semantic_hits"] == 1
    assert completer.stats == once | {"calls": 2}


def test_tokens_of_another_call_that_are_counted_meanwhile_are_not_lost() -> None:
    others = ["four words are asked"]

    def counter(text: str) -> int:
        if others:
            run(completer.ask("", others.pop()))
        return len(text.split())

    completer = Completer(lambda _: "an answer", counter=counter)
    run(completer.ask("", "three were asked"))
    assert completer.stats == {"calls": 2, "tokens_in": 7, "tokens_out": 4}


@pytest.mark.parametrize(
    "kind", ["chat", "chain", "text", "function", "coroutine function", "function that hands one on"]
)
async def test_a_chain_that_streams_to_its_user_does_not_stream_what_the_memory_asks(kind: str) -> None:
    seen: list[str] = []

    class Stream(BaseCallbackHandler):
        def on_chat_model_start(self, *_: Any, **__: Any) -> None:
            seen.append("chat")

        def on_llm_start(self, *_: Any, **__: Any) -> None:
            seen.append("text")

    async def ask_chat(prompt: str) -> Any:
        return await chat("apart").ainvoke(prompt)

    models: dict[str, Any] = {
        "chat": chat("apart", "apart"),
        "chain": RunnableLambda(lambda asked: asked) | chat("apart", "apart"),
        "text": FakeListLLM(responses=["apart"]),
        "function": lambda prompt: chat("apart").invoke(prompt),
        "coroutine function": ask_chat,
        "function that hands one on": lambda prompt: ask_chat(f"{prompt}"),
    }

    def chain(text: str) -> str:
        return run(Completer(models[kind]).ask("be kind", text))

    async def achain(text: str) -> str:
        return await arun(Completer(models[kind]).ask("be kind", text))

    runnable = RunnableLambda(chain, achain)
    if kind not in ONLY_ASYNC:
        assert runnable.invoke("Hello", {"callbacks": [Stream()]}) == "apart"
    assert await runnable.ainvoke("Hello", {"callbacks": [Stream()]}) == "apart"
    assert seen == []


def test_a_model_that_a_run_configures_is_configured_for_what_the_memory_asks() -> None:
    model = chat("the default").configurable_alternatives(ConfigurableField(id="which"), other=chat("the other"))
    step: RunnableLambda[str, str] = RunnableLambda(lambda text: run(Completer(model).ask("be kind", text)))
    assert step.invoke("Hello", {"configurable": {"which": "other"}}) == "the other"


def test_who_counts_a_runs_tokens_counts_those_of_what_the_memory_asks() -> None:
    usage: Any = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    answer = AIMessage("apart", usage_metadata=usage, response_metadata={"model_name": "small"})
    step: RunnableLambda[str, str] = RunnableLambda(lambda text: run(Completer(chat(answer)).ask("be kind", text)))
    with get_usage_metadata_callback() as used:
        step.invoke("Hello")
    assert used.usage_metadata == {"small": usage}


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I\N{RIGHT SINGLE QUOTATION MARK}m very sorry, this is not possible.",
        "Sorry, no.",
        "I cannot summarize this conversation.",
        "I can't assist with that request",
        "I am unable to do that.",
        "As an AI language model, I",
        "Unfortunately, I cannot",
        "Error: rate limit",
        "Error code: 429 - {'error': …}",
        "Error generating summary: timeout",
        "Traceback (most recent call last):",
        "An unexpected error occurred.",
        "Es tut mir leid, das kann ich nicht.",
        "抱歉,我无法",
        "Lo siento, pero no puedo",
        "I'm not able to summarize this conversation.",
        "I must decline.",
        "I don't have enough information to summarize.",
        "Could you please provide the conversation?",
        "There is no conversation to summarize.",
        "Rate limit exceeded. Please try again later.",
        "Rate limit reached for gpt-4 in organization",
        "Too many requests",
        "503 Service Unavailable",
        "HTTP 429: Too Many Requests",
        "Internal Server Error",
        "<html><body>502 Bad Gateway</body></html>",
        "<!DOCTYPE html>",
        '{"error": {"message": "overloaded"}}',
        "Request timed out.",
        "Your request was blocked by our content policy",
        "N/A",
        "None.",
        "null",
        "Je ne peux pas résumer.",
        "Ich kann dabei nicht helfen.",
        "No puedo ayudar con eso",
        "Я не могу",
    ],
)
def test_b2_a_refusal_is_known(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "The user is sorry that the bike is gone.",
        "Error handling in Python was discussed; the user prefers exceptions.",
        "Exceptions and errors are the topic.",
        "Rate limiting in FastAPI",
        "Rate limits of the API",
        "Ada cannot find her bike.",
        "Iris will not come.",
        "Unfortunately, Ada lost her bike.",
        "None of them has a bike.",
        "500 people came to the fair.",
        "There is no bike in the shed; Ada wants a list to summarize what is left.",
        "Please note: Ada moves on Friday.",
        "Your request, as Ada calls it, was met.",
        "The word <think> was explained.",
        "",
    ],
)
def test_a_summary_about_errors_or_apologies_is_none(text: str) -> None:
    assert not is_refusal(text)
