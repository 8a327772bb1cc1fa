"""What is kept and asked for in every row: the same for ours, for the limit and for all peers."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration

from langmem_adapters.langchain.convert import to_message

__all__ = ["DIMENSION", "LLM", "answer", "as_bytes", "conversation", "prompt", "sentences", "vector"]

_WORDS = (
    "bike",
    "shed",
    "garden",
    "letter",
    "river",
    "window",
    "summer",
    "train",
    "coffee",
    "answer",
    "market",
    "lamp",
)
_VOCABULARY = 20_000  # words of the searched texts, the n-th one used as 1/n
DIMENSION = 384
LLM = (
    '{"lc": 1, "type": "constructor", "id": ["langchain", "chat_models", "Model"], "kwargs": {"temperature": 0.0}}---[]'
)
"""A model as LangChain tells it to a cache."""


def conversation(count: int, start: int = 0) -> list[BaseMessage]:
    """Messages of 700 bytes each with every field set: a question, two calls, their results, the answer."""
    makers = (_question, _calls, _result, _refusal, _answer)
    return [makers[number % len(makers)](number) for number in range(start, start + count)]


def _question(n: int) -> BaseMessage:
    return HumanMessage(_text(n, 470), id=f"human-{n:08}", name="ada", **_about(n))


def _calls(n: int) -> BaseMessage:
    return AIMessage(
        _text(n, 100),
        id=f"call-{n:08}",
        name="agent",
        tool_calls=[{"name": "look", "args": {"place": "shed", "depth": n}, "id": f"call_{n:08}"}],
        invalid_tool_calls=[
            {"type": "invalid_tool_call", "name": "look", "args": "{", "id": f"bad_{n:08}", "error": "no JSON"}
        ],
        usage_metadata=_usage(n),
        **_about(n),
    )


def _result(n: int) -> BaseMessage:
    return _gave(n, f"call_{n - 1:08}")


def _refusal(n: int) -> BaseMessage:
    return _gave(n, f"bad_{n - 2:08}")


def _gave(n: int, call: str) -> BaseMessage:
    artifact = {"rows": [n, n + 1], "complete": True}
    return ToolMessage(
        _text(n, 390), id=f"tool-{n:08}", name="look", tool_call_id=call, status="error", artifact=artifact, **_about(n)
    )


def _answer(n: int) -> BaseMessage:
    return AIMessage(_text(n, 310), id=f"ai-{n:08}", name="agent", usage_metadata=_usage(n), **_about(n))


def _about(n: int) -> dict[str, Any]:
    return {
        "additional_kwargs": {"trace": f"trace-{n:08}"},
        "response_metadata": {"model_name": "some-model-1", "finish_reason": "stop", "logprob": -0.25},
    }


def _usage(n: int) -> dict[str, Any]:
    return {
        "input_tokens": n,
        "output_tokens": 120,
        "total_tokens": n + 120,
        "input_token_details": {"cache_read": n // 2},
    }


def _text(n: int, length: int) -> str:
    words = itertools.cycle(_WORDS[n % len(_WORDS) :] + _WORDS[: n % len(_WORDS)])
    return f"{n} " + " ".join(itertools.islice(words, length))[: length - len(str(n)) - 1]


def as_bytes(messages: Sequence[BaseMessage]) -> list[bytes]:
    """The messages as this library stores them, for the limits: they move the same bytes."""
    return [to_message(message).to_bytes() for message in messages]


def prompt(number: int) -> str:
    """A prompt of 2 kB as LangChain gives it to a cache."""
    return dumps([HumanMessage(_text(number, 2000), id=f"run-{number}")])


def answer(number: int) -> ChatGeneration:
    """An answer of 500 characters with its usage."""
    message = AIMessage(_text(number, 500), id=f"run-{number}", usage_metadata=_usage(number), **_about(number))
    return ChatGeneration(message=message)


def sentences(length: int, seed: int = 1) -> Iterator[str]:
    """Texts without end, of so many words that are as often as words of a language are."""
    rng = random.Random(seed)
    vocabulary = [f"{_WORDS[n % len(_WORDS)]}{n}" for n in range(_VOCABULARY)]
    weights = list(itertools.accumulate(1 / (n + 1) for n in range(_VOCABULARY)))
    while True:
        yield " ".join(rng.choices(vocabulary, cum_weights=weights, k=length))


@functools.lru_cache(maxsize=1024)
def vector(text: str) -> list[float]:
    """A direction for a text; at once where it was asked for: what is measured is the search, not the embedding."""
    rng = random.Random(text)
    return [rng.gauss(0.0, 1.0) for _ in range(DIMENSION)]
