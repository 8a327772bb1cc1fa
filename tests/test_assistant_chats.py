"""How well a user's own questions find what was said to an assistant, in sets of somebody who had not seen the search.

"assistant" is of three people, 1,038 messages and 180 questions: facts told in passing, some of which change, two
languages, slips, "yesterday", "what did you recommend?". "tongues" is of seven people who speak German, Spanish,
French, Portuguese, Japanese, Chinese or Russian, 665 messages and 196 questions of the same kinds, with words in other
forms and parts of compounds. "messages" asks 127 of the first set's questions in whole messages, half of them with
context that the answer needs, half with small talk; "pairs" asks two questions in each message. What is held here is
what was measured, less a little.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from langmem_adapters.indexes import open_index
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.stores.memory import MemoryStore


def lines(name: str) -> Iterator[dict[str, Any]]:
    for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def at(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def paired(name: str) -> Iterator[dict[str, Any]]:
    """Each question in a message with the user's next or previous one."""
    by_user: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for question in lines(f"{name}/questions.jsonl"):
        by_user[question["user"]].append(question)
    for questions in by_user.values():
        for pair in zip(questions[::2], questions[1::2], strict=False):
            text = " ".join(question["text"] for question in pair)
            yield from ({**question, "text": text} for question in pair)


@cache
def recall(name: str, asked: str) -> dict[int, float]:
    """The share of the evidence that is among the first k, by k: 0 stands for the mean of 1 / rank."""
    now = [0.0]
    memories: dict[str, LongTermMemory] = {}
    said: dict[str, str] = {}
    for chat in lines(f"{name}/chats.jsonl"):
        user = chat["user"]
        if user not in memories:
            store, index = MemoryStore(), open_index("memory:")
            memories[user] = LongTermMemory(store, index, user=user, clock=lambda: now[0])
        told = [
            Message(id=id_, role=role, content=text, created_at=at(when)) for id_, role, when, text in chat["messages"]
        ]
        said |= {message.id: message.text for message in told}
        memories[user].add(told, session=chat["session"])
    found: dict[int, list[float]] = defaultdict(list)
    for question in paired(name) if asked == "pairs" else lines(f"{name}/{asked}.jsonl"):
        now[0] = at(question["at"])
        texts = [one.text for one in memories[question["user"]].search(question["text"], 20)]
        wanted = {said[id_] for id_ in question["evidence"]}
        for k in (1, 5, 10):
            found[k].append(len(wanted.intersection(texts[:k])) / len(wanted))
        found[0].append(max((1 / (texts.index(text) + 1) for text in wanted.intersection(texts)), default=0.0))
    return {k: 100 * sum(shares) / len(shares) for k, shares in found.items()}


@pytest.mark.parametrize(
    ("name", "asked", "least"),
    [
        ("assistant", "questions", {0: 51.0, 1: 38.0, 5: 66.0, 10: 71.5}),
        ("assistant", "messages", {0: 57.0, 5: 76.0, 10: 86.0}),
        ("assistant", "pairs", {5: 49.0, 10: 60.0}),
        ("tongues", "questions", {0: 62.5, 1: 48.0, 5: 77.5, 10: 83.0}),
        ("tongues", "pairs", {5: 69.0, 10: 79.0}),
    ],
)
def test_what_was_told_an_assistant_is_found(name: str, asked: str, least: dict[int, float]) -> None:
    found = recall(name, asked)
    assert {k: share for k, share in least.items() if found[k] < share} == {}, found
