"""What version 1 has stored is read for ever. The file is never changed; a new format gets a new one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock

from langmem_adapters.langchain import ExperienceCache
from langmem_adapters.langchain import from_message as to_langchain
from langmem_adapters.langchain.caching.generations import read_generations
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.llamaindex import from_message as to_llamaindex
from langmem_adapters.model import (
    Experience,
    Memory,
    Message,
    Metric,
    Occurrence,
    Score,
    Summary,
    Trajectory,
)
from langmem_adapters.stores.memory import MemoryStore

_FOLDER = Path(__file__).parent / "golden"
_LINES = (_FOLDER / "v1.jsonl").read_text().splitlines()
STORED: dict[str, bytes] = {line["what"]: line["stored"].encode() for line in map(json.loads, _LINES)}
CACHED = [json.loads(line) for line in (_FOLDER / "cache.jsonl").read_text().splitlines()]
"""What a cache of LangChain was asked, the key of that, and what it stored under it."""

_each_cached = pytest.mark.parametrize("line", CACHED, ids=[line["what"] for line in CACHED])

AI = AIMessage(
    "It is a cat.",
    id="a1",
    name="helper",
    tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c1"}],
    usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    response_metadata={"model_name": "m"},
    additional_kwargs={"raw": b"\x00\xff", "pair": (1, 2)},
)


def test_messages_of_langchain() -> None:
    assert to_langchain(Message.from_bytes(STORED["message langchain"])) == AI
    assert Message.from_bytes(STORED["message langchain"]).created_at == 1.5
    tool = to_langchain(Message.from_bytes(STORED["message langchain tool"]))
    assert tool == ToolMessage("a cat", tool_call_id="c1", artifact={1: 2}, status="error")


def test_messages_of_llamaindex() -> None:
    assert to_llamaindex(Message.from_bytes(STORED["message llamaindex"])) == ChatMessage(
        role="user",
        blocks=[
            TextBlock(text="What is this?"),
            ImageBlock(image=b"iVBORw0KGgo=", image_mimetype="image/png", detail="low"),
        ],
        additional_kwargs={"k": 1},
    )


def test_a_memory_and_a_summary() -> None:
    assert Memory.from_bytes(STORED["memory"]) == Memory(
        id="f00",
        message=Message(id="m1", role="user", content="My bike"),
        occurrences=[Occurrence(session="s", message_id="m1", created_at=2.0)],
    )
    assert Summary.from_bytes(STORED["summary"]) == Summary(text="They talked.", covers="m1", updated_at=3.0)


def test_a_cached_answer() -> None:
    stored = Experience.from_bytes(STORED["experience langchain"])
    chat, plain = read_generations(stored.resp, key="k", age=1.0, new_id=lambda: "new")
    assert chat.text == AI.text
    assert chat.generation_info == {"finish_reason": "stop"}
    assert plain == Generation(text="plain")


def test_an_experience() -> None:
    assert Experience.from_bytes(STORED["experience"]) == Experience(
        req={"q": [1, None]},
        resp=(False, ""),
        metric=Metric(time_cost=1.0, money_cost=0.5, score=Score(val=9, reason="good")),
        traj=Trajectory(plan="p", reward=1),
        tag="t",
        uuid="u2",
        timestamp=5.0,
    )


@pytest.mark.parametrize("what", sorted(STORED))
def test_it_is_still_written_like_that(what: str) -> None:
    kinds: dict[str, type[Message | Memory | Summary | Experience]] = {
        "message": Message,
        "memory": Memory,
        "summary": Summary,
        "experience": Experience,
    }
    kind = kinds[what.partition(" ")[0]]
    assert kind.from_bytes(STORED[what]).to_bytes() == STORED[what]


# --- a cache that was filled by an earlier version


@_each_cached
def test_a_request_has_the_key_that_it_had(line: dict[str, str]) -> None:
    assert request_key(line["prompt"], line["llm"]) == line["key"]


@_each_cached
def test_what_a_cache_has_kept_is_a_hit(line: dict[str, str]) -> None:
    store = MemoryStore()
    store.write(_PLACE, put={line["key"]: line["stored"].encode()})
    cache = ExperienceCache(store=store, keep=60, clock=lambda: 1001.0)
    for _ in range(2):
        found = cache.lookup(line["prompt"], line["llm"])
        assert found is not None
        assert [one.text for one in found] == [one.text for one in _generations(line)]
    assert cache.stats()["hits"] == 2


@_each_cached
def test_a_cache_still_writes_the_very_same(line: dict[str, str]) -> None:
    store = MemoryStore()
    experience = Experience.from_bytes(line["stored"].encode())
    ttl = None if experience.expires_at is None else experience.expires_at - 1000.5
    cache = ExperienceCache(store=store, ttl=ttl, clock=lambda: 1000.5, new_id=lambda: "id0")
    cache.update(line["prompt"], line["llm"], _generations(line))
    # As data: in which order a call has its fields is up to the release of langchain-core.
    assert json.loads(store.get(_PLACE, [line["key"]])[line["key"]]) == json.loads(line["stored"])


_PLACE = ("experience", "", "", "langchain")


def _generations(line: dict[str, str]) -> list[Generation]:
    """What the cache was given."""
    return [_generation(entry) for entry in Experience.from_bytes(line["stored"].encode()).resp]


def _generation(entry: dict[str, Any]) -> Generation:
    info = entry.get("info")
    if "message" not in entry:
        return Generation(text=entry["text"], generation_info=info)
    fields = {name: value for name, value in entry["message"].items() if name not in {"role", "host"}}
    own = entry["message"].get("host", {}).get("langchain", {})
    return ChatGeneration(message=AIMessage(**{"content": "", **fields, **own}), generation_info=info)
