"""What version 1 has stored is read for ever. The file is never changed; a new format gets a new one."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock

from langmem_adapters import BrainMemory, ExperiencePool, LongTermMemory, WorkingMemory, cached
from langmem_adapters.encryption import AESGCMCodec, EnvelopeCodec
from langmem_adapters.experience import read_metagpt_pool
from langmem_adapters.importing import read_transcripts
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langchain import ExperienceCache
from langmem_adapters.langchain import from_message as to_langchain
from langmem_adapters.langchain.caching.generations import read_generations
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.langgraph import ExperienceNodeCache, LongTermStore
from langmem_adapters.llamaindex import from_message as to_llamaindex
from langmem_adapters.metagpt import METAGPT, to_metagpt
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
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore

_FOLDER = Path(__file__).parent / "golden"
_LINES = (_FOLDER / "v1.jsonl").read_text().splitlines()
STORED: dict[str, bytes] = {line["what"]: line["stored"].encode() for line in map(json.loads, _LINES)}
SERVICES = [json.loads(line) for line in (_FOLDER / "services.jsonl").read_text().splitlines()]
"""What services have stored, a namespace a line; bytes as Latin-1."""
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
    chat, plain = read_generations(stored.resp, age=1.0, new_id=lambda: "new")
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


# --- stores that were filled by an earlier version


def _kept(what: str) -> MemoryStore:
    store = MemoryStore()
    for line in SERVICES:
        if line["what"] == what:
            log = [(id_, data.encode("latin-1")) for id_, data in line["log"]]
            put = {key: data.encode("latin-1") for key, data in line["values"].items()}
            store.write(tuple(line["namespace"]), put=put, append=log)
    return store


def _all(store: Store) -> dict[tuple[str, ...], Any]:
    """Without the ids that are made at random."""

    def bare(data: bytes) -> str:
        return re.sub(r"\bid\d+\b", "id", data.decode())

    return {
        namespace: (
            [bare(item.data) for item in store.scan(namespace).items],
            {bare(key.encode()): bare(data) for key, data in store.get(namespace).items()},
        )
        for namespace in store.namespaces()
    }


TALK = [
    Message(id=f"m{n}", role="assistant" if n % 2 else "user", content=text, created_at=900.0 + n)
    for n, text in enumerate(["My bike is in the shed.", "Noted.", "Where is my bike?", "In the shed."])
]
_MADE: dict[str, Any] = {"clock": lambda: 1000.0, "new_id": lambda: "id0"}
_KEYS = AESGCMCodec({"k": bytes(32)})


def _long_term(store: Store) -> LongTermMemory:
    return LongTermMemory(store, LexicalIndex(":memory:"), user="ada", **_MADE)


def _session(store: Store, **more: Any) -> BrainMemory:
    return BrainMemory(store, "monday", user="ada", **_MADE, **more)


def test_a_session_and_what_has_left_it() -> None:
    store = _kept("session")
    memory = _long_term(store)
    brain = _session(store, memory_k=2, long_term=memory)
    before = _all(store)
    assert brain.messages() == TALK[2:]
    assert [fact.text for fact in brain.get_knowledge()] == ["Ada has a bike."]
    assert brain.get_summary() == Summary(text="They talked.", updated_at=1000.0)
    assert {hit.text for hit in memory.search("the shed")} >= {"My bike is in the shed."}
    brain.add_messages(TALK)
    memory.add(TALK[:2], session="monday")
    assert _all(store) == before


def test_a_session_is_still_written_like_that() -> None:
    store, ids = MemoryStore(), iter(range(100))
    made = {**_MADE, "new_id": lambda: f"id{next(ids)}"}
    memory = LongTermMemory(store, LexicalIndex(":memory:"), user="ada", **made)
    brain = BrainMemory(store, "monday", user="ada", memory_k=2, long_term=memory, **made)
    brain.add_messages(TALK)
    brain.add_knowledge(["Ada has a bike."])
    brain.set_title("A bike")
    brain.set_summary("They talked.")
    assert _all(store) == _all(_kept("session"))


def test_a_working_memory() -> None:
    memory = WorkingMemory(_kept("working"), user="ada", ttl=None)
    assert [item.data for item in memory.retrieve("c")] == [{"goal": "bike", "pair": (1, 2)}, "text"]
    memory.update("c", lambda text: f"{text}!")
    assert [(item.data, item.metadata) for item in memory.retrieve("c")][1] == ("text!", {"k": 1})


def test_items_of_langgraph() -> None:
    items = LongTermStore(store=_kept("items"))
    found = items.get(("users", "ada"), "k/1")
    assert found is not None
    assert (found.value, found.created_at.timestamp()) == ({"text": "My bike is red.", "n": 1}, 1000.0)
    assert [item.key for item in items.search(("users",), query="bike")] == ["k/1"]
    assert items.list_namespaces() == [("users", "ada")]
    items.delete(("users", "ada"), "k/1")
    assert items.list_namespaces() == []


def test_what_a_node_returned() -> None:
    key = (("__pregel_ns_writes", "graph.node"), "key")
    (out, said) = ExperienceNodeCache(store=_kept("nodes")).get([key])[key]
    assert ([*out], [*said]) == (["out", {"a": 1}], ["said", AIMessage("hi", id="1")])


def test_what_a_function_returned() -> None:
    def capital(country: str, *, language: str = "en") -> str:
        raise AssertionError(country, language)

    capital.__module__, capital.__qualname__ = "capitals", "capital"
    assert cached(pool=ExperiencePool(_kept("function"), tag="capitals"))(capital)("France") == "Paris"


@pytest.mark.parametrize("what", ["sealed", "sealed at first", "envelope"])
def test_what_is_encrypted(what: str) -> None:
    store = _kept(what)
    sealed = SealedStore(store, codec=EnvelopeCodec(store, _KEYS) if what == "envelope" else _KEYS)
    brain = _session(sealed)
    assert [message.text for message in brain.messages()] == ["My bike is in the shed."]
    brain.add_messages(brain.messages())
    assert brain.count() == 1


# What MetaGPT itself wrote, with scripted embeddings and scores: BrainMemory's dump by its release 0.8.2; by its
# sources of July 2025, as no release has them, RoleZeroLongTermMemory's collection (chromadb 0.4.24) and exp_pool's
# BM25 pool.


def test_metagpts_own_brain_memory(any_store: Store) -> None:
    blob = (_FOLDER / "metagpt" / "brain_memory.json").read_bytes()
    brain = BrainMemory.from_metagpt(blob, any_store, "s")
    theirs = json.loads(blob)
    assert [message.text for message in brain.messages()] == [each["content"] for each in theirs["history"]]
    messages = {name: [{**each, "metadata": {}} for each in theirs[name]] for name in ("history", "knowledge")}
    assert json.loads(to_metagpt(brain)) == {**theirs, **messages, "is_dirty": False, "config": None}


def test_metagpts_own_long_term_memory(tmp_path: Path) -> None:
    packed = (_FOLDER / "metagpt" / "chroma.sqlite3.gz").read_bytes()
    (tmp_path / "chroma.sqlite3").write_bytes(gzip.decompress(packed))
    (transcript,) = read_transcripts(tmp_path)
    bike, where = transcript.messages()
    assert transcript.session == "Alice"
    assert (bike.role, bike.text, bike.created_at) == ("user", "My bike is in the shed.", 1795827012.6020744)
    assert (where.role, where.text, where.metadata["agent"]) == ("assistant", "自行车在哪里？ 🚲", "Alice")  # noqa: RUF001
    assert where.metadata[METAGPT]["sent_from"] == "Mike"


def test_metagpts_own_experiences() -> None:
    perfect = Metric(score=Score(val=10, reason="fine"))
    written, game, made_up = read_metagpt_pool(_FOLDER / "metagpt")
    assert (game.req, game.resp, game.tag, game.metric) == ("写一个游戏", "print(1)", "write_code", perfect)
    assert (made_up.req, made_up.resp, made_up.tag, made_up.metric) == ("req", "resp", "echo", perfect)
    assert written == Experience(
        req="Write a game",
        resp="",
        metric=Metric(time_cost=1.5, money_cost=0.002, score=Score(val=9, reason="runs")),
        exp_type="failure",
        entry_type="Manual",
        tag="Engineer.write_code",
        traj=Trajectory(plan="p", action="a", observation="o", reward=-3),
        timestamp=1_700_000_000.5,
        uuid="e942ad2f-b2e9-45b0-a639-a488cb46dde3",
    )
