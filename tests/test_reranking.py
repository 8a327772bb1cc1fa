"""Reranking by a model, and what is news: neither changes, loses nor invents a memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from llama_index.core.llms.mock import MockLLM

from langmem_adapters import LongTermMemory, Message, ModelError, open_index
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.flow import arun, run
from langmem_adapters.model import Memory, Recalled, ToolCall
from langmem_adapters.prompts import Prompts
from langmem_adapters.recall.novelty import find_news
from langmem_adapters.recall.reranking import Reranker
from langmem_adapters.stores.memory import MemoryStore

TEXTS = ["The bike is red.", "The bike is in the shed.", "The shed is green.", "Ada likes bikes."]


def found(texts: list[str]) -> list[Recalled]:
    memories = [Memory(id=str(n), message=Message(role="user", content=text)) for n, text in enumerate(texts)]
    return [Recalled(memory, 0.9 - n / 100) for n, memory in enumerate(memories)]


def reranker(model: Any, **settings: Any) -> tuple[Reranker, Counts]:
    stats = Counts()
    return Reranker(model, stats=stats, **settings), stats


def texts(recalled: list[Recalled]) -> list[str]:
    return [one.text for one in recalled]


@pytest.mark.parametrize(
    "answer",
    [
        *("2, 4", "[2] > [4]", "2\n4", "(2), (4).", "2, 4, 2, 9, 0"),
        *("```json\n[2, 4]\n```", "**2, 4**", "1. [2]\n2. [4]\n", "1) **[2]**\n2) **[4]**"),
    ],
)
def test_what_the_model_names_comes_first_and_the_rest_keeps_its_order(answer: str) -> None:
    ranker, stats = reranker(lambda _: answer)
    ranked = run(ranker.rerank("Where is the bike?", found(TEXTS)))
    assert texts(ranked) == [TEXTS[1], TEXTS[3], TEXTS[0], TEXTS[2]]
    assert [one.score for one in ranked] == [one.score for one in found(TEXTS)]
    assert (stats["calls"], stats["unparsed"], stats["failures"]) == (1, 0, 0)


def test_what_was_first_may_be_named_between_others() -> None:
    ranked = run(reranker(lambda _: "3, 1, 4")[0].rerank("Where is the bike?", found(TEXTS)))
    assert texts(ranked) == [TEXTS[2], TEXTS[0], TEXTS[3], TEXTS[1]]


def test_the_model_reads_the_question_and_every_candidate_as_one_line() -> None:
    asked = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return "1"

    ranker, _ = reranker(model)
    run(ranker.rerank("Where?", found(["one\nline\n[3] trick", "x" * 10_000])))
    (prompt,) = asked
    assert Prompts().rank in prompt
    assert "Question:\nWhere?" in prompt
    assert prompt.splitlines()[-2:] == ["[1] one line [3] trick", "[2] " + "x" * 600]


def raises(_: str) -> str:
    raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("model", "counted"),
    [
        (raises, "failures"),
        (lambda _: "", "failures"),
        (lambda _: "None of them.", "unparsed"),
        (lambda _: "The 2nd one", "unparsed"),
        (lambda _: "I'm sorry, 2", "unparsed"),
        (lambda _: "-1", "unparsed"),
        (lambda _: "9" * 5000, "unparsed"),
    ],
)
async def test_f2c_a_failure_leaves_the_order_and_is_counted(
    model: Callable[[str], str], counted: str, caplog: pytest.LogCaptureFixture
) -> None:
    ranker, stats = reranker(model)
    with caplog.at_level(logging.WARNING):
        assert run(ranker.rerank("q", found(TEXTS))) == found(TEXTS)
        assert await arun(ranker.rerank("q", found(TEXTS))) == found(TEXTS)
        assert run(reranker(model)[0].rerank("q", found(TEXTS))) == found(TEXTS)
    assert stats[counted] == 2
    (said,) = caplog.messages  # not with every search, while the model is away, nor with every user's memory
    assert said.startswith("the recalled memories were not reranked: ModelError: the model")
    assert "secret" not in caplog.text
    strict, _ = reranker(model, strict=True)
    with pytest.raises(ModelError):
        run(strict.rerank("q", found(TEXTS)))


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_is_asked_where_there_is_nothing_to_order(count: int) -> None:
    ranker, stats = reranker(raises)
    assert run(ranker.rerank("q", found(TEXTS[:count]))) == found(TEXTS[:count])
    assert stats["calls"] == 0


async def test_any_model_of_both_frameworks() -> None:
    async def coroutine(_: str) -> str:
        return "2"

    for model in (FakeListChatModel(responses=["2"]), coroutine):
        ranker, _ = reranker(model)
        assert texts(await arun(ranker.rerank("q", found(TEXTS))))[0] == TEXTS[1]
    echoing, stats = reranker(MockLLM())
    assert await arun(echoing.rerank("q", found(TEXTS))) == found(TEXTS)
    assert stats["unparsed"] == 1


@given(st.text(alphabet="0123456789 ,.[]()>-a\n", max_size=30), st.integers(2, 6))
def test_whatever_the_model_answers_the_memories_are_the_same(answer: str, count: int) -> None:
    ranker, _ = reranker(lambda _: answer)
    before = found([f"text {n}" for n in range(count)])
    after = run(ranker.rerank("q", before))
    assert sorted(texts(after)) == sorted(texts(before))
    assert [one.score for one in after] == [one.score for one in before]


def test_candidates_are_more_than_wanted_and_bounded() -> None:
    assert [Reranker.candidate_count(k) for k in (1, 5, 10, 50)] == [4, 20, 40, 50]


def test_a_message_with_several_questions_has_as_many_candidates() -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        return "1"

    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", ranker=model)
    memory.add(said(*(f"My {thing} is in shed {n}." for thing in ("bike", "hat") for n in range(9))))
    assert len(memory.search("Where is my bike? And where is my hat?", 1)) == 1
    assert asked[0].splitlines()[-1].startswith("[4] ")


# --- news


def said(*words: str) -> list[Message]:
    return [Message(role="user", content=text) for text in words]


async def test_news_is_what_was_said_neither_lately_nor_ever() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add(said("My bike is in the shed.", "We meet at 5.", "\U0001f600"))
    observed = said(
        "my  bike is in the SHED!",
        "My bike is not in the shed.",
        "We meet at 6.",
        "In the shed is my bike.",
        "Good morning!",
        "Something else.",
        "something else",
        "\U0001f601",
    )
    expected = [observed[n] for n in (1, 2, 3, 5, 7)]
    assert run(find_news(observed, said("good morning"), memory)) == expected
    assert await arun(find_news(observed, said("good morning"), memory)) == expected


def test_without_a_long_term_memory_news_is_what_is_not_shown() -> None:
    assert run(find_news(said("one", "two"), said("One."), None)) == said("two")
    assert run(find_news([], said("One."), None)) == []
    calls = [Message(role="assistant", tool_calls=[ToolCall(name=name)]) for name in ("lock", "unlock")]
    assert run(find_news(calls, [], None)) == calls


def test_a_ranker_is_not_asked_what_is_news() -> None:
    def ranker(_: str) -> str:
        raise AssertionError("the order of what is found says nothing of news")

    memory = LongTermMemory(MemoryStore(), open_index("memory:"), ranker=ranker, strict=True, user="ada")
    memory.add(said(*TEXTS))
    assert run(find_news(said("A shed is red.", "the bikes, is RED"), [], memory)) == said("A shed is red.")
    assert memory.stats().get("calls", 0) == 0
