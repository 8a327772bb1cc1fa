"""H6: what must not be kept is in no byte at rest, and what is encrypted says nothing without its key."""

from __future__ import annotations

import asyncio
import base64
import itertools
import re
import sqlite3
import sys
import tempfile
import traceback
import uuid
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import Generation

from langmem_adapters.brain import BrainMemory
from langmem_adapters.codec import decode, encode
from langmem_adapters.embedding import Embedder
from langmem_adapters.encryption import DATA_KEYS, AESGCMCodec, EnvelopeCodec, key_name, new_key
from langmem_adapters.errors import (
    ConfigurationError,
    Conflict,
    Damaged,
    MissingDependency,
    NotSealed,
    SerializationError,
    StoreUnavailable,
)
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.inspection import unwrap
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import BrainChatMessageHistory, CachedChatModel, ExperienceCache
from langmem_adapters.langgraph import ExperienceNodeCache, LongTermStore
from langmem_adapters.language.features import ASKS, QUESTION
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Experience, Message, Summary
from langmem_adapters.protocols import ConversationIndex, Document, Item, Store
from langmem_adapters.sealing import BindingCodec, Codec, SealedStore
from langmem_adapters.sessions import Sessions
from langmem_adapters.settings import Settings
from langmem_adapters.stores import open_store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock, store_walk
from langmem_adapters.working import WorkingMemory
from tests.at_rest import KINDS, Backend, backend, fill, numbers
from tests.faults import Down, Overtaken
from tests.servers import RedisServer
from tests.test_store_redis import age
from tests.test_stores import OnAClock
from tests.waiting import until

NS: Namespace = ("brain", "t", "u", "s")
OLD, NEW = bytes(range(32)), bytes(range(1, 33))
SECRET = "4711-0815-zq71"


def redact(text: str) -> str:
    return re.sub(r"4711-0815-\w+", "[card]", text)


class Compressed:
    """A codec without a key, and without places."""

    def encode(self, data: bytes) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes) -> bytes:
        return zlib.decompress(data)


@pytest.fixture(params=KINDS)
def at(request: pytest.FixtureRequest, tmp_path: Path, key_prefix: str) -> Iterator[Backend]:
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None
    with backend(request.param, tmp_path, server, key_prefix) as made:
        yield made


# --- a sealed store is a store ------------------------------------------------------------------------------


class TestEncryptedMemory(OnAClock):
    @pytest.fixture
    def store(self, clock: FakeClock) -> SealedStore:
        return SealedStore(MemoryStore(clock=clock), codec=AESGCMCodec({"k": OLD}), redactor=redact)


class TestEncryptedFile(OnAClock):
    @pytest.fixture
    def store(self, clock: FakeClock, tmp_path: Path) -> Iterator[SealedStore]:
        kept = SQLiteStore(tmp_path / "memory.db", clock=clock)
        store = SealedStore(kept, codec=EnvelopeCodec(MemoryStore(), AESGCMCodec({"k": OLD})))
        yield store
        store.close()


class TestCompressedMemory(OnAClock):
    @pytest.fixture
    def store(self, clock: FakeClock) -> SealedStore:
        return SealedStore(SealedStore(MemoryStore(clock=clock), codec=Compressed()), redactor=redact)


class TestEncryptedRedis(OnAClock):
    @pytest.fixture
    def store(self, clock: FakeClock, redis_server: RedisServer, key_prefix: str) -> Iterator[SealedStore]:
        kept = RedisStore(redis_server.url(), prefix=key_prefix, clock=clock)
        store = SealedStore(kept, codec=AESGCMCodec({"k": OLD}), redactor=redact)
        self.server, self.prefix = redis_server, key_prefix
        yield store
        store.close()

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:
        super().let_ttl_pass(store, clock, seconds)
        with redis.Redis.from_url(self.server.url()) as client:
            age(client, self.prefix, seconds)


_folder = tempfile.TemporaryDirectory()
_numbers = itertools.count()
_codec = AESGCMCodec({"k": OLD})
TestEncryptedMemoryWalk = store_walk(lambda clock: SealedStore(MemoryStore(clock=clock), codec=_codec, redactor=redact))
TestEncryptedFileWalk = store_walk(
    lambda clock: SealedStore(SQLiteStore(Path(_folder.name) / f"{next(_numbers)}.db", clock=clock), codec=_codec)
)


def test_the_stored_form_differs_each_time_and_guards_hold_all_the_same(any_store: Store) -> None:
    store = SealedStore(any_store, codec=AESGCMCodec({"k": OLD}))
    store.write(NS, put={"a": b"1"})
    first = any_store.get(NS)
    store.write(NS, put={"a": b"1"}, guard={"a": b"1", "none": None})
    assert first != any_store.get(NS)
    for guard in ({"a": b"2"}, {"a": None}, {"none": b"1"}, {"a": b"1", "none": b""}, {"a": first["a"]}):
        with pytest.raises(Conflict):
            store.write(NS, put={"a": b"3"}, guard=guard)
    assert store.get(NS) == {"a": b"1"}


def test_a_guard_sees_who_came_between_the_look_and_the_write() -> None:
    kept: Any = Overtaken(MemoryStore(), where=lambda _, **change: change.get("guard"))
    store = SealedStore(kept, codec=AESGCMCodec({"k": OLD}))
    store.write(NS, put={"a": b"1"})
    kept.first = [lambda: store.write(NS, put={"a": b"2"})]
    with pytest.raises(Conflict, match="the value 'a' was changed"):
        store.write(NS, put={"a": b"3"}, guard={"a": b"1"})
    assert store.get(NS) == {"a": b"2"}
    kept.first = [lambda: store.write(NS, put={"a": b"2"})] * 3  # it was written again, and says the same
    store.write(NS, put={"a": b"3"}, guard={"a": b"2"})
    assert store.get(NS) == {"a": b"3"}
    kept.first = [lambda: store.write(NS, put={"b": b"x"})]
    with pytest.raises(Conflict):
        store.write(NS, put={"a": b"4"}, guard={"a": b"3", "b": None})
    kept.first = [lambda: store.write(NS, put={"a": b"3"})] * 1000
    with pytest.raises(Conflict):
        store.write(NS, put={"a": b"4"}, guard={"a": b"3"})
    assert store.get(NS)["a"] == b"3"


def test_closing_it_closes_its_store(redis_server: RedisServer, key_prefix: str) -> None:
    name = f"sealed-{key_prefix.strip(':')}"
    store = SealedStore(RedisStore(f"{redis_server.url()}?client_name={name}", prefix=key_prefix), redactor=redact)
    with redis.Redis(port=redis_server.port) as raw:
        store.write(NS, put={"a": encode("x")})
        assert name in {each["name"] for each in raw.client_list()}
        store.close()
        until(lambda: name not in {each["name"] for each in raw.client_list()})


def test_guards_under_a_redactor_know_what_was_meant(any_store: Store) -> None:
    any_store.write(NS, put={"before": encode(SECRET)})  # before there was a redactor
    store = SealedStore(any_store, redactor=redact)
    store.write(NS, put={"a": encode(SECRET)})
    assert store.get(NS) == {"before": encode(SECRET), "a": encode("[card]")}
    store.write(NS, put={"a": encode(f"{SECRET} again")}, guard={"a": encode(SECRET), "before": encode(SECRET)})
    store.write(NS, put={"a": encode("x")}, guard={"a": encode("[card] again")})
    for wrong in ({"a": encode(SECRET)}, {"a": encode("x"), "before": None}):
        with pytest.raises(Conflict):
            store.write(NS, put={"a": encode("y")}, guard=wrong)
    assert store.get(NS, ["a"]) == {"a": encode("x")}


def test_the_services_work_on_an_encrypted_store(at: Backend) -> None:
    store = SealedStore(at.store, codec=AESGCMCodec({"k": OLD}))
    fill(at, user="ada", mark="m1", store=store)
    fill(at, user="ada", mark="m1", store=store)  # delivered again
    brain = BrainMemory(store, "session m1", user="ada")
    assert [message.text for message in brain.messages()] == ["word m1 n3", "word m1 n4"]
    assert brain.history_text().startswith("summary m1")
    memory = LongTermMemory(store, at.index, vectors=at.vectors, user="ada")
    assert memory.count() == 3
    assert memory.search("n1", k=1)[0].text == "word m1 n1"
    working = WorkingMemory(store, user="ada")
    assert [item.data for item in working.retrieve("session m1")] == ["item m1 again", "item m1 again"]
    lease = Leases(store, ("leases",), seconds=60, clock=at.clock, new_id=lambda: "me")
    taken = run(lease.take("key"))
    assert taken is not None
    assert run(lease.take("key")) is None
    run(lease.give_back(taken))
    assert run(lease.take("key")) is not None
    items = LongTermStore(store=store, index=at.index, clock=at.clock)
    assert [item.key for item in items.search(("memories", "ada"), query="m1")] == ["key m1", "key m1"]


def test_a_hundred_updates_on_threads_lose_none(at: Backend) -> None:
    memory = WorkingMemory(SealedStore(at.store, codec=AESGCMCodec({"k": OLD})), user="ada")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: memory.update("c", lambda n: (n or 0) + 1), range(100)))
    assert memory.retrieve("c")[0].data == 100


# --- redaction ----------------------------------------------------------------------------------------------


def test_a_planted_secret_is_in_no_byte(at: Backend) -> None:
    store = SealedStore(at.store, redactor=redact)
    at.index.apply(("warm",), upsert=[Document("w", "warm")])
    memory = LongTermMemory(store, at.index, vectors=at.vectors, user="ada")
    brain = BrainMemory(store, "s", user="ada", memory_k=2, long_term=memory)
    said = f'My card is {SECRET}, \n"{SECRET}".'
    brain.add_messages(
        [
            Message(role="user", name=SECRET, content=f"{said} {n}", metadata={SECRET: [SECRET, {"deep": (SECRET,)}]})
            for n in range(5)
        ]
    )
    brain.add_knowledge([said])
    brain.set_summary(said)
    brain.set_title(said)
    assert {found.text for found in memory.search("card", k=9)} == {
        f'My card is [card], \n"[card]". {n}' for n in range(3)
    }
    memory.flush()
    working = WorkingMemory(store)
    working.store("c", said, {"text": said, "bytes": said.encode(), "binary": b"\xff\xfe" + said.encode()})
    working.update("c", lambda _: [said])
    pool = ExperiencePool(store, tag="t", index=at.index)
    pool.create(Experience(req=said, resp={"answer": said}))
    pool.query(said)
    cache = ExperienceCache(store=store)
    cache.update("prompt", "model", [Generation(text=said)])
    hit = cache.lookup("prompt", "model")
    assert hit is not None
    assert hit[0].text == redact(said)
    nodes: ExperienceNodeCache[Any] = ExperienceNodeCache(store=store)
    nodes.set({(("node",), "key"): ({"answer": said}, None)})
    assert nodes.get([(("node",), "key")]) == {}  # what was packed cannot be cut: a miss
    items = LongTermStore(store=store, index=at.index)
    items.put(("a",), "k", {"text": said, SECRET: said})
    assert items.search(("a",), query="card")[0].value == {"text": redact(said), "[card]": redact(said)}
    assert SECRET.encode() not in at.bytes()
    assert b"zq71" not in at.bytes()
    for encoded in re.findall(rb"[A-Za-z0-9+/]{24,}", at.bytes()):  # as bytes are in JSON
        assert SECRET.encode() not in base64.b64decode(encoded[: len(encoded) // 4 * 4])


def test_what_holds_no_secret_stays_byte_for_byte(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=redact)
    odd = {
        "json": b'{ "a" : 1.50, "b":["x", {"$type": "tuple", "$value": []}] }',
        "number": b"123",
        "raw": bytes(range(256)),
        "text": b"no json",
        "empty": b"",
        "surrogate": b'"\\ud800"',
    }
    store.write(NS, put=odd, append=[("id", odd["json"])])
    assert any_store.get(NS) == store.get(NS) == odd
    assert store.scan(NS).items[0].data == odd["json"]


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (SECRET, "[card]"),
        ([SECRET, 1, None, True, 2.5], ["[card]", 1, None, True, 2.5]),
        ({"a": {"b": (SECRET, {SECRET})}}, {"a": {"b": ("[card]", {"[card]"})}}),
        (frozenset({SECRET, "x"}), frozenset({"[card]", "x"})),
        ({SECRET: 1, f"{SECRET}0": 2, "[card]": 3}, {"[card]'": 1, "[card]''": 2, "[card]": 3}),
        ({(1, SECRET): SECRET.encode()}, {(1, "[card]"): b"[card]"}),
        (b"\xff" + SECRET.encode(), b""),
        (b"\xff harmless", b"\xff harmless"),
        # what looks like a record of a memory, but is none
        (
            {"v": 1, "message": SECRET, "occurrences": [SECRET]},
            {"v": 1, "message": "[card]", "occurrences": ["[card]"]},
        ),
    ],
)
def test_every_text_of_a_value_is_redacted(value: Any, kept: Any) -> None:
    store = SealedStore(MemoryStore(), redactor=redact)
    store.append(NS, [("id", encode(value))])
    assert decode(store.scan(NS).items[0].data) == kept
    assert decode(store.redacted(encode(value))) == kept


def test_bytes_that_are_no_json_are_redacted_too() -> None:
    store = SealedStore(MemoryStore(), redactor=lambda text: text.replace("é", "e").replace("ÿé", ""))
    assert store.redacted(b"caf\xc3\xa9 {") == b"cafe {"
    assert store.redacted(b"\xff caf\xc3\xa9") == b""
    assert store.redacted(b"caf\xe9") == b""  # as Latin-1 has it
    assert store.redacted(b"\xff cafe") == b"\xff cafe"


def without_digits(text: str) -> str:
    return re.sub(r"\d", "#", text)


def said(*words: str) -> list[Message]:
    return [Message(id=f"id-{n}", role="user", content=f"{word} 42") for n, word in enumerate(words)]


def test_what_a_redactor_of_digits_sees_is_found_by_its_ids(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=without_digits)
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add(said("bike", "shed"), session="s1")
    memory.flush()
    assert memory.count() == 2
    hit = memory.search("bike")[0]
    assert hit.text == "bike ##"
    assert hit.memory.occurrences[0].session == "s1"
    assert memory.get(hit.memory.id) == hit.memory
    working = WorkingMemory(store)
    (item,) = working.store("c", "42")
    for change in ("43", "44"):
        assert working.update("c", change, item_id=item.id) is not None
    assert [(kept.id, kept.data) for kept in working.retrieve("c")] == [(item.id, "##")]
    pool = ExperiencePool(store, tag="t")
    assert pool.delete(uuid=pool.create(Experience(req="42", resp="43")).uuid)
    items = LongTermStore(store=store, index=open_index("memory:"))
    items.put(("docs",), "k42", {"text": "bike 42"})
    (found,) = items.search(("docs",), query="bike")
    assert (found.key, found.value) == ("k42", {"text": "bike ##"})


def test_a_message_that_a_redactor_of_digits_sees_is_kept_once_and_deleted_wherever_it_is(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=without_digits)
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    brain = BrainMemory(store, "s", user="ada", memory_k=2, long_term=memory)
    for _ in range(2):
        brain.add_messages(said("bike", "shed", "cat", "dog"))
    assert [(message.id, message.text) for message in brain.messages()] == [("id-2", "cat ##"), ("id-3", "dog ##")]
    assert memory.count() == 2
    assert brain.delete(["id-0", "id-2"]) == 2
    assert memory.search("bike") == []
    assert [message.id for message in brain.messages()] == ["id-3"]


def test_what_a_redactor_changes_is_remembered_once_whichever_way_it_came(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=redact)
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    brain = BrainMemory(store, "s", user="ada", memory_k=1, long_term=memory)
    pin = Message(id="1", role="user", content=f"My pin is {SECRET}.")
    brain.add_messages([pin])
    assert brain.find_news([pin.model_copy(update={"id": "2"}), Message(role="user", content="Yes.")]) == [
        Message(role="user", content="Yes.")
    ]
    memory.add([pin], session="s")
    assert brain.delete(["1"]) == 2  # in the history, and where it was put by hand
    assert memory.all() == []
    brain.add_messages([pin, Message(id="3", role="user", content="Yes.")])
    memory.add([pin], session="s")
    memory.add([Message(id="4", role="user", content="My pin is [card].")], session="t")
    (kept,) = memory.all()
    assert [(each.session, each.message_id) for each in kept.occurrences] == [("s", "1"), ("t", "4")]
    assert brain.find_news([pin]) == []
    memory.update(kept.id, pin.text)  # which changes nothing of what is kept
    memory.add([pin], session="u")
    assert [len(each.occurrences) for each in memory.all()] == [3]


def test_a_field_of_ones_own_is_redacted_though_it_has_the_name_of_an_id() -> None:
    kept = MemoryStore()
    named = dict.fromkeys(("session", "uuid", "covers", "message_id"), SECRET)
    nested: Any = {"message": {"id": SECRET}, "occurrences": [{"session": SECRET}]}
    BrainMemory(SealedStore(kept, redactor=redact), "s").add_messages([Message(role="user", **named, **nested)])
    (item,) = kept.scan(("brain", "", "", "s")).items
    assert SECRET.encode() not in item.data
    assert b'"covers"' in item.data


@pytest.mark.parametrize("key", ["begun", "departed", "deleted", "imported"])
def test_what_has_the_key_of_a_sessions_mark_elsewhere_is_redacted(key: str) -> None:
    kept = MemoryStore()
    pool = ExperiencePool(SealedStore(kept, redactor=redact), tag="t", user="ada")
    pool.create(Experience(req="a question", resp=SECRET), key=key)
    (data,) = kept.get(("experience", "", "ada", "t"), [key]).values()
    assert b"a question" in data
    assert SECRET.encode() not in data


def test_the_ids_of_tool_calls_stay_apart_whatever_a_redactor_hides(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=lambda text: re.sub(r"\b\w{20,}\b", "[key]", text))
    ids = [f"call_{n}123456789abcdef0123" for n in range(3)]
    secret = "sk_live_0123456789abcdef"
    calls = [{"id": id_, "name": "look", "args": {"with": secret}, "type": "tool_call"} for id_ in ids[:2]]
    invalid: Any = [{"id": ids[2], "name": "look", "args": "{", "error": None, "type": "invalid_tool_call"}]
    blocks: Any = [{"type": "tool_use", "id": id_, "name": "look", "input": {"with": secret}} for id_ in ids[:2]]
    answer = AIMessage(blocks, tool_calls=calls, invalid_tool_calls=invalid)
    results = [ToolMessage(f"Result {n}", tool_call_id=id_) for n, id_ in enumerate(ids)]
    history = BrainChatMessageHistory("s", store=store)
    history.add_messages([HumanMessage("Where is my bike?"), answer, *results, AIMessage("In the shed.")])
    assert secret not in repr(history.messages)
    found = cast("AIMessage", history.messages[1])
    assert [call["id"] for call in [*found.tool_calls, *found.invalid_tool_calls]] == ids
    assert [cast("Any", block)["id"] for block in found.content] == ids[:2]
    shown = [message.text for message in BrainMemory(store, "s").window() if message.role == "tool"]
    assert shown == ["Result 0", "Result 1", "Result 2"]


def test_a_redactor_of_random_ids_hides_no_other_writer(any_store: Store) -> None:
    store = SealedStore(any_store, redactor=lambda text: re.sub(r"\b[0-9a-f]{32}\b", "[key]", text))
    memory = WorkingMemory(store)
    others: list[Callable[[], object]] = [lambda: memory.update("c", lambda data: [*data, "second"])]

    def change(data: list[str]) -> list[str]:
        while others:
            others.pop()()
        return [*data, "third"]

    memory.store("c", ["first"])
    memory.update("c", change)
    assert [item.data for item in memory.retrieve("c")] == [["first", "second", "third"]]
    items = LongTermStore(store=store, index=open_index("memory:"))
    stamps = []
    for _ in range(2):
        items.put(("docs",), "k", {"text": "bike"}, ttl=1)
        in_tree, in_census = any_store.get(("langgraph", "", "tree")), any_store.get(("langgraph", "", "items", "docs"))
        stamps += [in_tree[""], decode(in_census["census"])["stamp"]]
        items.delete(("docs",), "k")
    assert len(set(stamps)) == 4


def test_a_summary_that_a_redactor_of_digits_sees_ends_at_the_same_message() -> None:
    store = SealedStore(MemoryStore(), redactor=without_digits)
    store.write(NS, put={"summary": Summary(text="at 10 o'clock", covers="m42").to_bytes()})
    kept = Summary.from_bytes(store.get(NS)["summary"])
    assert (kept.text, kept.covers) == ("at ## o'clock", "m42")


class FailingCodec:
    """Its key service does not answer."""

    fails = True

    def encode(self, data: bytes) -> bytes:
        if self.fails:
            raise TimeoutError(SECRET)
        return data

    decode = encode


def _failing_redactor(text: str) -> str:
    raise TimeoutError(text)


@pytest.mark.parametrize(
    ("name", "seal"), [("codec", {"codec": FailingCodec()}), ("redactor", {"redactor": _failing_redactor})]
)
def test_what_a_codec_or_redactor_raises_is_a_serialization_error_and_costs_no_model_call(
    name: str, seal: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    kept = MemoryStore()
    store = SealedStore(kept, **seal)
    with pytest.raises(SerializationError, match=f"^the {name} failed: TimeoutError$"):
        BrainMemory(store, "s").add_talk("Hello.")
    assert list(kept.namespaces()) == []
    model = CachedChatModel(FakeListChatModel(responses=["one", "two"]), ExperienceCache(store=store))
    assert [model.invoke("Hello.").content for _ in range(2)] == ["one", "two"]
    assert (model.stats()["hits"], model.stats()["refused"]) == (0, 2)
    assert SECRET not in caplog.text


def test_what_a_codec_cannot_decode_is_a_serialization_error() -> None:
    kept, codec = MemoryStore(), FailingCodec()
    codec.fails = False
    BrainMemory(SealedStore(kept, codec=codec), "s").add_talk("Hello.")
    codec.fails = True
    with pytest.raises(SerializationError, match=r"^the codec failed: TimeoutError$"):
        BrainMemory(SealedStore(kept, codec=codec), "s").messages()
    with pytest.raises(SerializationError, match=r"^the codec failed: error$"):
        BrainMemory(SealedStore(kept, codec=Compressed()), "s").messages()


def test_what_a_codec_gives_is_bytes() -> None:
    class Text(Compressed):
        def encode(self, data: bytes) -> Any:
            return data.hex()

    with pytest.raises(ConfigurationError, match=r"^a codec returns bytes, not str$"):
        BrainMemory(SealedStore(MemoryStore(), codec=Text()), "s").add_talk("Hello.")


@pytest.mark.parametrize(
    ("seal", "sentence"),
    [
        ({"codec": Compressed}, r"a codec is an object, Compressed\(…\), and not its class"),
        ({"codec": 5}, "a codec has the methods encode and decode, which int lacks"),
        ({"redactor": asyncio.sleep}, "(redactor|it) is a coroutine function: give it a plain one"),
    ],
)
def test_what_is_no_codec_or_redactor_is_refused_at_once(seal: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{sentence}$"):
        SealedStore(MemoryStore(), **seal)
    with pytest.raises(ConfigurationError, match=f"^the setting {next(iter(seal))} is wrong: {sentence}$"):
        Settings(url="memory:", **seal)


@pytest.mark.parametrize("answer", [None, b"[card]", re.match("a", "a")])
def test_a_redactor_that_gives_no_text_is_told_so_and_nothing_is_kept(answer: Any) -> None:
    kept = MemoryStore()
    store = SealedStore(kept, redactor=lambda text: answer if SECRET in text else text)
    for write in (
        lambda: BrainMemory(store, "s").add_talk(SECRET),
        lambda: BrainMemory(store, "s").set_title(SECRET),
        lambda: WorkingMemory(store).store("c", {SECRET: 1}),
        lambda: store.write(NS, put={"raw": SECRET.encode()}),
        lambda: store.write(NS, put={"binary": b"\xff" + SECRET.encode()}),
    ):
        with pytest.raises(ConfigurationError, match="a redactor returns str, not"):
            write()
    assert list(kept.namespaces()) == []


def test_an_experience_is_found_again_by_a_request_with_a_secret(any_store: Store) -> None:
    pool = ExperiencePool(SealedStore(any_store, redactor=redact), tag="t")
    pool.create(Experience(req=f"pay with {SECRET}", resp="done"))
    hit = pool.lookup(f"pay with {SECRET}")
    assert hit is not None
    assert (hit.req, hit.resp) == ("pay with [card]", "done")


# --- encryption ---------------------------------------------------------------------------------------------


def test_an_encrypted_backend_says_nothing_without_the_key(at: Backend) -> None:
    at.index = KeyedLexicalIndex(at.folder / "langmem.db", key=AESGCMCodec({"k": OLD}).index_key())
    at.vectors.close()
    (at.folder / "langmem.db").unlink(missing_ok=True)
    store = SealedStore(at.store, codec=AESGCMCodec({"k": OLD}))
    memory = LongTermMemory(store, at.index, user="u1")
    brain = BrainMemory(store, "s1", user="u1", memory_k=2, long_term=memory)
    brain.add_messages([Message(role="user", name="Zebediah", content=f"the quagga sleeps {n}") for n in range(5)])
    brain.add_knowledge(["quagga facts"])
    brain.set_summary("quagga summary")
    brain.set_title("quagga title")
    assert memory.search("quagga", k=1)
    assert memory.search("What did Zebediah say?", k=1)
    WorkingMemory(store, user="u1").store("c1", "quagga work", metadata={"by": "Zebediah"})
    pool = ExperiencePool(store, tag="t1", user="u1", index=at.index)
    pool.create(Experience(req="quagga request", resp="quagga response"))
    assert pool.query("quagga")
    LongTermStore(store=store, index=at.index).put(("u1",), "k1", {"text": "quagga item"})
    everything = at.bytes().lower()
    for word in (b"quagga", b"zebediah", b"sleep", b"request", b"respons", b'"content"', b'"role"'):
        assert word not in everything
    for name in at.store.namespaces():
        assert all(data[0] == 2 and len(set(data)) > 8 for data in at.store.get(name).values())
    plain = BrainMemory(at.store, "s1", user="u1")
    with pytest.raises(SerializationError, match="is encrypted, and there is no codec"):
        plain.messages()
    other = SealedStore(at.store, codec=AESGCMCodec({"k": NEW}))
    with pytest.raises(SerializationError, match="cannot be decrypted: the key 'k' is not the one"):
        BrainMemory(other, "s1", user="u1").messages()
    with pytest.raises(SerializationError, match="was encrypted with the key 'k', which was not given"):
        SealedStore(at.store, codec=AESGCMCodec({"j": OLD})).get(("brain", "", "u1", "s1"))


def test_the_codecs_answer_their_protocols() -> None:
    aes = AESGCMCodec({"k": OLD})
    for codec in (aes, EnvelopeCodec(MemoryStore(), aes)):
        assert isinstance(codec, Codec)
        assert isinstance(codec, BindingCodec)
    assert isinstance(Compressed(), Codec)
    assert not isinstance(Compressed(), BindingCodec)


@given(data=st.binary(max_size=200), place=st.binary(max_size=50))
def test_what_goes_in_comes_out(data: bytes, place: bytes) -> None:
    codec = AESGCMCodec({"a": OLD, "b": NEW}, current="a")
    sealed = codec.encode_at(data, place)
    assert codec.decode_at(sealed, place) == data
    assert AESGCMCodec({"b": NEW, "a": OLD}).decode_at(sealed, place) == data
    assert codec.encode_at(data, place) != sealed
    assert codec.decode(codec.encode(data)) == data


@pytest.mark.parametrize("envelope", [False, True])
def test_a_changed_bit_of_the_header_costs_nothing_and_any_other_is_noticed(envelope: bool) -> None:
    keys = AESGCMCodec({"key": OLD, "kez": NEW}, current="key")
    codec = EnvelopeCodec(MemoryStore(), keys) if envelope else keys
    sealed = codec.encode_at(b"Noted.", b"here")
    header_size = len(sealed) - len(b"Noted.") - 28
    for place, bit in itertools.product(range(len(sealed)), range(8)):
        changed = bytearray(sealed)
        changed[place] ^= 1 << bit
        if place < header_size:
            assert codec.decode_at(bytes(changed), b"here") == b"Noted."
            with pytest.raises(SerializationError):
                codec.decode_at(bytes(changed), b"there")
        else:
            with pytest.raises(Damaged):
                codec.decode_at(bytes(changed), b"here")


@pytest.mark.parametrize("envelope", [False, True])
def test_a_value_that_was_cut_off_is_damaged_wherever_that_was(envelope: bool) -> None:
    keys = AESGCMCodec({"kez": NEW, "key": OLD})
    codec = EnvelopeCodec(MemoryStore(), keys) if envelope else keys
    sealed = codec.encode(b"Noted.")
    for size in range(len(sealed)):
        with pytest.raises(Damaged) as raised:
            codec.decode(sealed[:size])
        assert type(raised.value) is Damaged


@pytest.mark.parametrize("stored", [b"\x01\x05", b"\x01\x01k" + bytes(27), b'{"v":1}' + bytes(40), b"\x01\xffk", b"\0"])
@pytest.mark.parametrize("envelope", [False, True])
def test_what_is_not_encrypted_is_not_read(stored: bytes, envelope: bool) -> None:
    keys = AESGCMCodec({"k": OLD})
    codec = EnvelopeCodec(MemoryStore(), keys) if envelope else keys
    for _ in range(2):
        with pytest.raises(NotSealed, match="not encrypted"):
            codec.decode(stored)
        codec.encode(b"")  # by now an envelope has a data key


def test_what_names_no_possible_key_is_not_taken_for_encrypted_with_a_missing_one() -> None:
    sealed = AESGCMCodec({"k": OLD}).encode(b"Noted.")
    with pytest.raises(NotSealed):
        AESGCMCodec({"k": OLD}).decode(sealed[:1] + b"\x02\xff\xff" + bytes(10) + sealed[14:])


def test_a_value_is_bound_to_its_place(any_store: Store) -> None:
    store = SealedStore(any_store, codec=AESGCMCodec({"k": OLD}))
    store.write(NS, put={"a": b"1"}, append=[("a", b"entry")])
    value, entry = any_store.get(NS)["a"], any_store.scan(NS).items[0].data
    assert store.get(NS) == {"a": b"1"}
    for namespace, key in [
        (NS, "b"),
        ((*NS, "a"), "a"),
        (("brain", "t", "u", "other"), "a"),
        (("brain", "t/u", "s"), "a"),
    ]:
        any_store.write(namespace, put={key: value})
        assert is_damaged(store.get(namespace, [key])[key])
    any_store.write(NS, put={"a": entry}, append=[("b", entry), ("c", value)])
    assert is_damaged(store.get(NS, ["a"])["a"])
    assert is_damaged(store.append(NS, [], keys=["a"]).values["a"])
    page = store.scan(NS, keys=["a"])
    assert is_damaged(page.values["a"])
    assert [item.data == b"entry" or is_damaged(item.data) for item in page.items] == [True] * 3
    assert [item.data for item in page.items].count(b"entry") == 1


def test_a_value_is_not_read_where_its_place_is_written_alike(any_store: Store) -> None:
    store = SealedStore(any_store, codec=AESGCMCodec({"k": OLD}))
    place = ("langgraph", "", "items", "team")
    LongTermStore(store=store).put(("team", "victor"), "note", {"text": "of victor alone"})
    any_store.write(place, put={"ictor/vnote/": any_store.get((*place, "victor"), ["note/"])["note/"]})
    assert is_damaged(store.get(place)["ictor/vnote/"])
    store.write(("a", "vb"), put={"c": b"1", "d/e": b"2"}, append=[("f", b"3")])
    values, (entry,) = any_store.get(("a", "vb")), any_store.scan(("a", "vb")).items
    any_store.write(
        ("a",), put={"b/vc": values["c"], "b/vd/e": values["d/e"], "b/ vd/e": values["d/e"], "b/ef": entry.data}
    )
    assert [is_damaged(data) for data in store.get(("a",)).values()] == [True] * 4
    any_store.write(("a", "vb"), put={"vc": values["c"], " vd/e": values["d/e"]})
    assert [is_damaged(store.get(("a", "vb"))[key]) for key in ("vc", " vd/e")] == [True] * 2
    assert store.get(("a", "vb"), ["c", "d/e"]) == {"c": b"1", "d/e": b"2"}


def is_damaged(data: bytes) -> bool:
    """Whether it can be read as nothing that was ever stored."""
    with pytest.raises(SerializationError):
        decode(data)
    return True


# --- damage -------------------------------------------------------------------------------------------------


def flipped(data: bytes) -> bytes:
    return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]


def older(data: bytes, place: bytes = b"", *, key: bytes = OLD) -> bytes:
    """As this was encrypted before the header told one key from another."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    header = b"\x01\x01k"
    return header + bytes(12) + AESGCM(key).encrypt(bytes(12), data, header + place)


def test_a_codec_may_know_only_how_to_bind(any_store: Store) -> None:
    keys = AESGCMCodec({"k": OLD})
    codec: Any = SimpleNamespace(encode_at=keys.encode_at, decode_at=keys.decode_at)
    store = SealedStore(any_store, codec=codec)
    store.write(NS, put={"a": b"1"})
    assert (store.get(NS), SealedStore(any_store, codec=keys).get(NS)) == ({"a": b"1"}, {"a": b"1"})
    assert any_store.get(NS) != {"a": b"1"}


def test_another_key_is_told_from_damage_and_both_from_what_was_never_encrypted() -> None:
    codec = AESGCMCodec({"k": OLD})
    sealed = codec.encode(b"Noted.")
    with pytest.raises(Damaged, match="it was changed"):
        codec.decode(flipped(sealed))
    with pytest.raises(NotSealed, match="not encrypted"):
        codec.decode(b'{"v":1}' + bytes(40))
    for wrong in (AESGCMCodec({"k": NEW}), AESGCMCodec({"j": OLD})):
        for data in (sealed, flipped(sealed), older(b"Noted.")):
            with pytest.raises(SerializationError) as refused:
                wrong.decode(data)
            assert type(refused.value) is SerializationError


def test_what_was_encrypted_before_is_read_and_not_called_damaged_where_that_cannot_be_known() -> None:
    codec = AESGCMCodec({"k": OLD})
    assert codec.decode_at(older(b"Noted.", b"here"), b"here") == b"Noted."
    with pytest.raises(SerializationError, match="the wrong one, or the value was changed") as refused:
        codec.decode(flipped(older(b"Noted.")))
    assert type(refused.value) is SerializationError


@pytest.mark.parametrize("spoil", [flipped, lambda data: data[:-1]])
def test_a_data_key_that_is_damaged_makes_no_value_look_damaged(spoil: Callable[[bytes], bytes]) -> None:
    store, keys = MemoryStore(), AESGCMCodec({"k": OLD})
    sealed = EnvelopeCodec(store, keys).encode(b"Noted.")
    store.write(DATA_KEYS, put={"1": spoil(store.get(DATA_KEYS)["1"])})
    codec = EnvelopeCodec(store, keys)
    acts: list[Callable[[], bytes]] = [lambda: codec.decode(sealed), lambda: codec.encode(b""), codec.index_key]
    for act in acts:
        with pytest.raises(SerializationError, match="data key '1', which is damaged: restore it") as refused:
            act()
        assert type(refused.value) is SerializationError


def test_a_damaged_data_key_takes_no_other_along(any_store: Store) -> None:
    keys = AESGCMCodec({"k": OLD})
    writer, clock = EnvelopeCodec(any_store, keys), FakeClock()
    first = writer.encode(b"1")
    writer.renew()
    second = writer.encode(b"2")
    whole = any_store.get(DATA_KEYS)
    any_store.write(DATA_KEYS, put={"1": flipped(whole["1"])})
    codec = EnvelopeCodec(any_store, keys, clock=clock)
    assert codec.decode(second) == codec.decode(codec.encode(b"2")) == b"2"
    with pytest.raises(SerializationError, match="data key '1', which is damaged"):
        codec.decode(first)
    any_store.write(DATA_KEYS, put={"2": flipped(whole["2"])})
    clock.advance(61)
    codec.encode(b"")  # this process knows the second one, and puts it back
    assert any_store.get(DATA_KEYS) == {**whole, "1": flipped(whole["1"])}
    any_store.write(DATA_KEYS, put={"1": whole["1"], "2": flipped(whole["2"])})
    late = EnvelopeCodec(any_store, keys)
    assert late.decode(first) == b"1"
    with pytest.raises(SerializationError, match="nothing can be encrypted with the data key '2'"):
        late.encode(b"")
    late.renew()
    assert key_name(late.encode(b"")) == "3"
    any_store.write(DATA_KEYS, put={"2": whole["2"]})
    assert late.decode(second) == b"2"


PLAIN = Message(role="user", content="from before", id="0").to_bytes()
DAMAGE = [flipped, lambda _: b"{garbage", lambda _: PLAIN]


def spoil_first(store: Store, namespace: Namespace, spoil: Callable[[bytes], bytes]) -> None:
    """Change the first entry of a log in its place."""
    items = store.scan(namespace).items
    entries = [(item.id, spoil(item.data) if n == 0 else item.data) for n, item in enumerate(items)]
    store.write(namespace, remove=items)
    store.append(namespace, entries)


@pytest.mark.parametrize("codec", [AESGCMCodec({"k": OLD}), EnvelopeCodec(MemoryStore(), AESGCMCodec({"k": OLD}))])
@pytest.mark.parametrize("spoil", DAMAGE)
def test_what_is_damaged_takes_nothing_along(
    any_store: Store, spoil: Callable[[bytes], bytes], codec: BindingCodec, caplog: pytest.LogCaptureFixture
) -> None:
    store = SealedStore(any_store, codec=codec)
    brain, working = BrainMemory(store, "s", user="ada"), WorkingMemory(store, user="ada")
    brain.add_messages([Message(role="user", content=f"m{n}", id=str(n)) for n in range(3)])
    items = working.store("c", "one", "two", "three")
    BrainMemory(store, "other", user="ada").add_talk("hello")
    for namespace in (("brain", "", "ada", "s"), ("working", "", "ada", "c", "SHORT_TERM")):
        spoil_first(any_store, namespace, spoil)
    before = {namespace: any_store.scan(namespace).items[0] for namespace in any_store.namespaces() if namespace[1:2]}
    assert [message.text for message in brain.messages()] == ["m1", "m2"]
    assert [message.text for message in brain.window()] == ["m1", "m2"]
    assert [item.data for item in working.retrieve("c")] == ["two", "three"]
    changed = working.update("c", lambda text: text + "!", item_id=items[1].id)
    assert changed is not None
    assert changed.data == "two!"
    assert brain.delete(["2"]) == 1
    brain.add_talk("m3")
    sessions = Sessions(store, user="ada")
    assert [(info.session, info.messages) for info in sessions.list_sessions()] == [("s", 3), ("other", 1)]
    there = Sessions(MemoryStore(), user="ada")
    assert there.import_(sessions.export()) == 3
    assert [m.text for m in BrainMemory(there.store, "s", user="ada").messages()] == ["m1", "m3"]
    assert "an unreadable value is left out" in caplog.text
    assert all(any_store.scan(namespace).items[0] == item for namespace, item in before.items())


def test_a_session_from_before_the_codec_takes_no_other_along_and_stays_as_it_is(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    plain = BrainMemory(any_store, "old", user="ada", model=lambda _: "They spoke.")
    plain.add_messages([Message(role="user", content=f"m{n}") for n in range(4)])
    plain.summarize(keep=2)
    plain.set_title("Old")
    plain.add_knowledge(["A fact."])
    plain.delete([plain.messages()[1].id])
    namespace = ("brain", "", "ada", "old")
    before = (any_store.scan(namespace), any_store.get(namespace))
    store = SealedStore(any_store, codec=AESGCMCodec({"k": OLD}))
    BrainMemory(store, "new", user="ada").add_talk("hello")
    sessions = Sessions(store, user="ada")
    assert [(info.session, info.messages, info.title) for info in sessions.list_sessions()] == [
        ("new", 1, ""),
        ("old", 3, ""),
    ]
    there = Sessions(MemoryStore(), user="ada")
    assert there.import_(sessions.export()) == 1
    assert "title, summary and knowledge of a session are left out" in caplog.text
    brain = BrainMemory(store, "old", user="ada", model=lambda _: "Another.")
    assert brain.messages() == []
    with pytest.raises(NotSealed):
        brain.summarize()
    with pytest.raises(NotSealed):
        brain.set_summary("Another.")
    with pytest.raises(NotSealed):
        brain.set_title("Another.")
    with pytest.raises(NotSealed):
        sessions.rename_session("old", "Another.")
    assert (any_store.scan(namespace), any_store.get(namespace)) == before
    wrong = Sessions(SealedStore(any_store, codec=AESGCMCodec({"k": NEW})), user="ada")
    with pytest.raises(SerializationError, match="not the one that encrypted it"):
        wrong.list_sessions()
    with pytest.raises(SerializationError, match="not the one that encrypted it"):
        list(wrong.export())


def test_a_process_without_the_codec_that_renews_a_session_locks_nobody_out(any_store: Store) -> None:
    clock = FakeClock()
    sealed, without = (
        BrainMemory(store, "s", ttl=1000, refresh="read", clock=clock)
        for store in (SealedStore(any_store, codec=AESGCMCodec({"k": OLD})), any_store)
    )
    sealed.add_talk("hello")
    for deadline in (None, b"{garbage"):
        if deadline is not None:
            any_store.write(("brain", "", "", "s"), put={"expires": deadline}, ttl=1000)
        clock.advance(500)
        assert without.count() == 1  # a read, which renews the session
        assert [message.text for message in sealed.messages()] == ["hello"]
        assert decode(any_store.get(("brain", "", "", "s"))["expires"]) == clock() + 1000


def test_a_value_that_is_not_sealed_is_named(any_store: Store) -> None:
    any_store.write(("brain", "", "ada", "s"), put={"title": b'"Bikes"'})
    brain = BrainMemory(SealedStore(any_store, codec=AESGCMCodec({"k": OLD})), "s", user="ada")
    with pytest.raises(NotSealed, match=r"the value 'title' of brain//ada/s cannot be read: .* is not encrypted"):
        brain.get_knowledge()


def test_keys_are_exchanged_while_the_old_one_still_reads(any_store: Store) -> None:
    old = SealedStore(any_store, codec=AESGCMCodec({"old": OLD}))
    old.write(NS, put={"a": b"1", "b": b"2"})
    both = SealedStore(any_store, codec=AESGCMCodec({"old": OLD, "new": NEW}))
    assert both.get(NS) == {"a": b"1", "b": b"2"}
    both.write(NS, put={"a": b"3"}, guard={"a": b"1"})
    assert {key: key_name(data) for key, data in any_store.get(NS).items()} == {"a": "new", "b": "old"}
    new = SealedStore(any_store, codec=AESGCMCodec({"new": NEW}))
    assert new.get(NS, ["a"]) == {"a": b"3"}
    with pytest.raises(SerializationError, match="'old'"):
        new.get(NS)


@pytest.mark.parametrize(
    ("keys", "more", "said"),
    [
        ({}, {}, "by their names"),
        ([OLD], {}, "by their names"),
        ({"k": b"short"}, {}, "'k' is not 32 bytes"),
        ({"k": "x" * 32}, {}, "'k' is not 32 bytes"),
        ({"": OLD}, {}, "name of a key"),
        ({"a b": OLD}, {}, "name of a key"),
        ({"k" * 65: OLD}, {}, "name of a key"),
        *(({"k": OLD}, {"current": wrong}, r"one of the keys \(k\)") for wrong in ("j", OLD, NEW.hex())),
    ],
)
def test_wrong_keys_are_refused_and_not_shown(keys: Any, more: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        AESGCMCodec(keys, **more)
    assert not any(key in str(raised.value) for key in ("short", repr(OLD)[2:-1], NEW.hex()))


def test_nothing_shows_a_key() -> None:
    codec = AESGCMCodec({"k": OLD})
    store = SealedStore(MemoryStore(), codec=codec)
    shown = repr([codec, EnvelopeCodec(MemoryStore(), codec), store, KeyedLexicalIndex(":memory:", key=OLD)])
    assert shown == (
        "[AESGCMCodec(['k'], current='k'), EnvelopeCodec(MemoryStore(), AESGCMCodec(['k'], current='k')), "
        "SealedStore(MemoryStore()), KeyedLexicalIndex(':memory:')]"
    )
    assert len({new_key(), new_key()}) == 2


def test_cryptography_is_needed_for_aes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    assert SealedStore(MemoryStore(), codec=Compressed()).get(NS) == {}
    with pytest.raises(MissingDependency, match=r"langmem_adapters\[crypto\]"):
        AESGCMCodec({"k": OLD})


# --- envelopes ----------------------------------------------------------------------------------------------


def test_what_is_encrypted_is_not_left_out_of_an_export(any_store: Store) -> None:
    BrainMemory(SealedStore(any_store, codec=_codec), "s").set_title("Bikes")
    with pytest.raises(SerializationError, match="is encrypted, and there is no codec"):
        list(Sessions(any_store).export("s"))


def test_what_is_encrypted_is_no_damage_to_who_has_no_codec(any_store: Store) -> None:
    """An empty conversation, or nothing to update, would be believed, and written over what is there."""
    sealed = SealedStore(any_store, codec=AESGCMCodec({"k": OLD}))
    brain = BrainMemory(sealed, "s", user="ada")
    brain.add_talk("My bike is in the shed.")
    brain.add_knowledge(["A fact."])
    brain.set_title("Bikes")
    brain.set_summary("We met in Rome.")
    LongTermMemory(sealed, open_index("memory:"), user="ada").add(brain.messages())
    WorkingMemory(sealed).store("talk", {"n": 1})
    LongTermStore(store=sealed).put(("ada",), "k", {"a": 1})
    without = BrainMemory(any_store, "s", user="ada")
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    working, items, sessions = WorkingMemory(any_store), LongTermStore(store=any_store), Sessions(any_store, user="ada")
    for act in (
        without.messages,
        without.context,
        without.get_summary,
        without.get_knowledge,
        lambda: without.set_summary("Something else."),
        memory.all,
        lambda: memory.search("bike"),
        lambda: working.retrieve("talk"),
        lambda: working.update("talk", lambda _: {"n": 0}),
        lambda: items.get(("ada",), "k"),
        lambda: items.put(("ada",), "k", {"a": 2}),
        lambda: items.put(("ada",), "other", {"a": 2}),
        items.list_namespaces,
        items.sweep_ttl,
        lambda: without.set_title("Another."),
        lambda: sessions.rename_session("s", "Another."),
        lambda: list(sessions.export()),
    ):
        with pytest.raises(SerializationError, match="is encrypted, and there is no codec: use Settings"):
            act()
    listed = [(info.session, info.title, info.messages) for info in sessions.list_sessions()]
    assert listed == [("s", "", 1)]
    assert [info.title for info in Sessions(sealed, user="ada").list_sessions()] == ["Bikes"]
    assert [item.data for item in WorkingMemory(sealed).retrieve("talk")] == [{"n": 1}]
    kept = LongTermStore(store=sealed).get(("ada",), "k")
    assert kept is not None
    assert kept.value == {"a": 1}
    without.clear()
    assert brain.get_summary() is None


def test_rewrapping_leaves_the_old_key_without_use_and_the_data_untouched(any_store: Store) -> None:
    old, both, new = (AESGCMCodec(keys) for keys in ({"o": OLD}, {"o": OLD, "n": NEW}, {"n": NEW}))
    store = SealedStore(any_store, codec=EnvelopeCodec(any_store, old))
    BrainMemory(store, "s", ttl=1000).add_talk("My bike")
    before = any_store.scan(("brain", "", "", "s"))
    with pytest.raises(SerializationError, match="'o', which was not given"):
        EnvelopeCodec(any_store, new).rewrap()
    assert EnvelopeCodec(any_store, both).rewrap() == 1
    assert EnvelopeCodec(any_store, both).rewrap() == 0
    assert any_store.scan(("brain", "", "", "s")) == before
    renewed = SealedStore(any_store, codec=EnvelopeCodec(any_store, new))
    assert [message.text for message in BrainMemory(renewed, "s").messages()] == ["My bike"]
    with pytest.raises(SerializationError, match="'n', which was not given"):
        SealedStore(any_store, codec=EnvelopeCodec(any_store, old)).scan(("brain", "", "", "s"))
    BrainMemory(store, "s").add_talk("of a process that runs on")  # it has the data key
    assert BrainMemory(renewed, "s").count() == 2


def test_a_data_key_whose_header_is_damaged_is_read_and_rewrapped(any_store: Store) -> None:
    keys = AESGCMCodec({"k": OLD})
    sealed = EnvelopeCodec(any_store, keys).encode(b"Noted.")
    assert EnvelopeCodec(any_store, keys).decode(b"\xff" + sealed[1:]) == b"Noted."
    any_store.write(DATA_KEYS, put={"1": b"\xff" + any_store.get(DATA_KEYS)["1"][1:]})
    codec = EnvelopeCodec(any_store, keys)
    assert codec.decode(sealed) == b"Noted."
    assert (codec.rewrap(), codec.rewrap()) == (1, 0)
    assert key_name(any_store.get(DATA_KEYS)["1"]) == "k"


@pytest.mark.parametrize("damaged", ["q", "", "1.5", "9" * 5_000])
def test_a_data_key_whose_name_is_damaged_is_said_to_be_and_another_one_can_be_begun(damaged: str) -> None:
    store, keys = MemoryStore(), AESGCMCodec({"k": OLD})
    sealed = EnvelopeCodec(store, keys).encode(b"Noted.")
    store.write(DATA_KEYS, put={damaged: store.get(DATA_KEYS)["1"]}, delete=["1"])
    codec = EnvelopeCodec(store, keys)
    with pytest.raises(SerializationError, match="the data key '1', which is gone"):
        codec.decode(sealed)
    with pytest.raises(SerializationError, match=f"the data key {damaged!r}, which is damaged"):
        codec.encode(b"")
    codec.renew()
    assert codec.decode(codec.encode(b"Noted.")) == b"Noted."
    assert damaged in store.get(DATA_KEYS)


def test_a_new_data_key_is_learnt_by_those_who_meet_it(any_store: Store) -> None:
    keys = AESGCMCodec({"k": OLD})
    one, other = EnvelopeCodec(any_store, keys), EnvelopeCodec(any_store, keys)
    first = one.encode(b"1")
    index_key = one.index_key()
    assert other.decode(first) == b"1"
    one.renew()
    second = one.encode(b"2")
    assert (key_name(first), key_name(second)) == ("1", "2")
    assert other.decode(second) == b"2"
    assert key_name(other.encode(b"3")) == "2"
    assert other.decode(first) == b"1"
    assert other.index_key() == index_key == EnvelopeCodec(any_store, keys).index_key()
    assert len(any_store.get(DATA_KEYS)) == 2
    for _ in range(9):
        one.renew()
    assert key_name(EnvelopeCodec(any_store, keys).encode(b"")) == "11"


def test_threads_that_learn_of_data_keys_at_the_same_moment_all_encrypt() -> None:
    keys, often = AESGCMCodec({"k": OLD}), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(100):
                codec = EnvelopeCodec(MemoryStore(), keys)
                encrypted = [threads.submit(codec.encode, b"1") for _ in range(4)]
                codec.renew()
                encrypted += [threads.submit(codec.encode, b"1") for _ in range(4)]
                codec.renew()
                assert {codec.decode(each.result()) for each in encrypted} == {b"1"}
    finally:
        sys.setswitchinterval(often)


def test_who_begins_a_data_key_does_so_behind_those_of_others(any_store: Store) -> None:
    one, other = (EnvelopeCodec(any_store, AESGCMCodec({"k": OLD})) for _ in range(2))
    one.encode(b"1")
    other.renew()
    one.renew()
    assert [key_name(codec.encode(b"2")) for codec in (other, one)] == ["2", "3"]


def test_words_are_indexed_with_the_first_data_key_that_is_left(any_store: Store) -> None:
    keys = AESGCMCodec({"k": OLD})
    codec = EnvelopeCodec(any_store, keys)
    before = codec.index_key()
    codec.renew()
    any_store.write(DATA_KEYS, delete=["1"])  # so that what was written with it is forgotten
    later = EnvelopeCodec(any_store, keys).index_key()
    assert later == EnvelopeCodec(any_store, keys).index_key() != before


def test_data_keys_that_are_gone_are_said_to_be_and_never_made_by_reading() -> None:
    store = MemoryStore()
    stored = EnvelopeCodec(store, AESGCMCodec({"k": OLD})).encode(b"1")
    store.clear(DATA_KEYS)
    with pytest.raises(SerializationError, match="the data key '1', which is gone"):
        EnvelopeCodec(store, AESGCMCodec({"k": OLD})).decode(stored)
    assert store.get(DATA_KEYS) == {}


def test_data_keys_that_the_store_has_lost_come_back_while_somebody_has_them(any_store: Store) -> None:
    keys, clock = AESGCMCodec({"k": OLD}), FakeClock()
    codec = EnvelopeCodec(any_store, keys, clock=clock)
    before = codec.encode(b"1")
    any_store.clear(DATA_KEYS)
    clock.advance(60)
    codec.encode(b"2")
    assert EnvelopeCodec(any_store, keys).decode(before) == b"1"


def test_who_meets_an_unknown_data_key_or_begins_another_does_not_forget_those_that_the_store_has_lost(
    any_store: Store,
) -> None:
    keys, values = AESGCMCodec({"k": OLD}), list[bytes]()
    codec = EnvelopeCodec(any_store, keys)
    values.append(codec.encode(b"1"))
    any_store.clear(DATA_KEYS)
    with pytest.raises(SerializationError, match="the data key '9', which is gone"):
        codec.decode(AESGCMCodec({"9": NEW}).encode(b""))
    values.append(codec.encode(b"2"))
    any_store.clear(DATA_KEYS)
    codec.renew()
    values.append(codec.encode(b"3"))
    assert list(map(key_name, values)) == ["1", "1", "2"]
    for each in (codec, EnvelopeCodec(any_store, keys)):
        assert list(map(each.decode, values)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("when", ["before", "in the last moment"])
def test_where_another_process_has_begun_anew_its_data_key_is_taken(any_store: Store, when: str) -> None:
    keys, clock, stored = AESGCMCodec({"k": OLD}), FakeClock(), list[bytes]()
    store: Any = Overtaken(any_store)
    codec, other = EnvelopeCodec(store, keys, clock=clock), EnvelopeCodec(any_store, keys)
    codec.encode(b"1")
    any_store.clear(DATA_KEYS)
    store.first.append(lambda: stored.append(other.encode(b"2")))
    if when == "before":
        store.first.pop()()
    clock.advance(60)
    assert other.decode(codec.encode(b"3")) == b"3"
    assert [codec.decode(data) for data in stored] == [b"2"]
    assert [EnvelopeCodec(any_store, keys).decode(data) for data in stored] == [b"2"]


def test_whoever_has_the_old_key_alone_goes_on_after_a_rewrap_and_in_an_outage() -> None:
    kept, clock = MemoryStore(), FakeClock()
    codec = EnvelopeCodec(kept, AESGCMCodec({"o": OLD}), clock=clock)
    codec.encode(b"")
    new = AESGCMCodec({"o": OLD, "n": NEW})
    assert EnvelopeCodec(kept, new).rewrap() == 1
    clock.advance(60)
    assert EnvelopeCodec(kept, new).decode(codec.encode(b"1")) == b"1"
    codec._store = Down()
    for _ in range(2):
        clock.advance(60)
        assert EnvelopeCodec(kept, new).decode(codec.encode(b"2")) == b"2"


def test_processes_that_begin_together_agree_about_the_first_data_key() -> None:
    kept = MemoryStore()
    keys = AESGCMCodec({"k": OLD})

    class Later(MemoryStore):
        """Sees the store as it was before the other one began."""

        looks = 0

        def get(self, namespace: Namespace, keys: Any = None) -> dict[str, bytes]:
            self.looks += 1
            return {} if self.looks == 1 else kept.get(namespace, keys)

        def write(self, namespace: Namespace, **change: Any) -> None:
            kept.write(namespace, **change)

    other = EnvelopeCodec(kept, keys)
    stored = other.encode(b"1")
    late = EnvelopeCodec(Later(), keys)
    assert other.decode(late.encode(b"2")) == b"2"
    assert late.decode(stored) == b"1"


def test_two_who_rewrap_at_once(any_store: Store) -> None:
    EnvelopeCodec(any_store, AESGCMCodec({"o": OLD})).encode(b"")
    both = AESGCMCodec({"o": OLD, "n": NEW})

    class Slow(SealedStore):
        """Somebody else rewraps between the look and the write."""

        def write(self, namespace: Namespace, **change: Any) -> None:
            assert EnvelopeCodec(any_store, both).rewrap() == 1
            super().write(namespace, **change)

    assert EnvelopeCodec(Slow(any_store), both).rewrap() == 0


def test_a_rewrap_while_the_store_is_emptied(any_store: Store) -> None:
    EnvelopeCodec(any_store, AESGCMCodec({"o": OLD})).encode(b"")

    class Emptied(SealedStore):
        """Somebody else clears all between the look and the write."""

        def write(self, namespace: Namespace, **change: Any) -> None:
            any_store.clear(namespace)
            super().write(namespace, **change)

    assert EnvelopeCodec(Emptied(any_store), AESGCMCodec({"o": OLD, "n": NEW})).rewrap() == 0
    assert not any_store.get(DATA_KEYS)


def test_what_tells_of_an_outage_with_its_variables_has_no_data_key(any_store: Store) -> None:
    EnvelopeCodec(any_store, AESGCMCodec({"o": OLD})).encode(b"")

    class ReadOnly(SealedStore):
        def write(self, *_: Any, **__: Any) -> None:
            raise StoreUnavailable("nobody answers")

    with pytest.raises(StoreUnavailable) as caught:
        EnvelopeCodec(ReadOnly(any_store), AESGCMCodec({"o": OLD, "n": NEW})).rewrap()
    variables = [repr(frame.f_locals) for frame, _ in traceback.walk_tb(caught.tb)][1:]  # as Sentry and rich show them
    data_key = AESGCMCodec({"o": OLD}).decode_at(any_store.get(DATA_KEYS)["1"], b"langmem data key 1")
    assert len(data_key) == len(OLD)
    assert len(variables) > 1
    assert not any(repr(data_key) in each for each in variables)


def test_data_keys_are_read_once_a_minute_and_not_with_each_value() -> None:
    looks: list[Namespace] = []

    class Counting(MemoryStore):
        def get(self, namespace: Namespace, keys: Any = None) -> dict[str, bytes]:
            looks.append(namespace)
            return super().get(namespace, keys)

    clock = FakeClock()
    codec = EnvelopeCodec(Counting(), AESGCMCodec({"k": OLD}), clock=clock)
    sealed = codec.encode(b"Noted.")
    looks.clear()
    for _ in range(5):
        assert codec.decode(sealed) == codec.decode(codec.encode(b"Noted.")) == b"Noted."
    assert looks == []
    clock.advance(60)
    codec.encode(b"Noted.")
    seen = len(looks)
    codec.encode(b"Noted.")
    assert len(looks) == seen > 0


# --- the keyed index ----------------------------------------------------------------------------------------


def test_a_keyed_index_stays_with_the_file_of_the_one_it_is_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = LexicalIndex("i.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with closing(KeyedLexicalIndex.in_file_of(index, key=OLD)) as keyed:
        keyed.apply(NS, upsert=[Document("1", "a red bike")])
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["i.db"]


@pytest.mark.parametrize("thread", ["t", ""])
def test_a_keyed_index_ranks_as_the_open_one(thread: str) -> None:
    texts = ["the bike is in the shed", "a red bike", "shed shed shed", "nothing of that", "bikes and sheds, red"]
    texts += ["a house", "a horse"]
    keyed, plain = KeyedLexicalIndex(":memory:", key=OLD), LexicalIndex(":memory:")
    for index in (keyed, plain):
        index.apply(NS, upsert=[Document(str(n), text, thread=thread, at=1e9) for n, text in enumerate(texts)])
    for query in ("bike", "the red bike", "Where are the sheds?", "the", "nothing", "house bicylce", ""):
        assert keyed.search(NS, query, 5) == plain.search(NS, query, 5)
    assert isinstance(keyed, ConversationIndex)
    evidence, other = keyed.gather(NS, "red bike", 3), plain.gather(NS, "red bike", 3)
    assert evidence is not None
    assert other is not None
    assert evidence._replace(named=frozenset()) == other
    keyed.apply(NS, delete=["1"])
    assert [hit.id for hit in keyed.search(NS, "red", 5)] == ["4"]


def test_a_keyed_index_reads_the_marks_of_what_was_said_and_not_of_who_said_it() -> None:
    keyed, plain = KeyedLexicalIndex(":memory:", key=OLD), LexicalIndex(":memory:")
    said = ["where is the bike?", "the bike is in the shed"]
    seen = []
    for index in (keyed, plain):
        index.apply(NS, upsert=[Document(text, text, speaker="Ada", thread="t") for text in said])
        evidence = index.gather(NS, "bike", 2)
        assert evidence is not None
        seen.append({turn.id: turn.marks for turn in evidence.turns.values()})
    assert seen == [{said[0]: QUESTION | ASKS, said[1]: 0}] * 2


def test_a_keyed_index_keeps_no_order_of_words(tmp_path: Path) -> None:
    index = KeyedLexicalIndex(tmp_path / "i.db", key=OLD)
    index.apply(NS, upsert=[Document("1", "ada owes bob forty"), Document("2", "forty owes bob ada")])
    with closing(sqlite3.connect(tmp_path / "i.db")) as connection:
        kept = connection.execute("SELECT terms FROM langmem_lexical_documents").fetchall()
    assert len(kept) == 2
    assert kept[0] == kept[1]
    index.apply(NS, delete=["1"])
    assert [hit.id for hit in index.search(NS, "bob", 2)] == ["2"]


def test_another_key_begins_anew(tmp_path: Path) -> None:
    one, other = (KeyedLexicalIndex(tmp_path / "i.db", key=key) for key in (OLD, NEW))
    one.apply(NS, upsert=[Document("1", "bike", speaker="Ada", thread="secret")], position=(1, "1"))
    assert one.search(NS, "ada", 1)
    assert other.position(NS) is None
    assert other.search(NS, "bike", 1) == []
    assert LexicalIndex(tmp_path / "i.db").position(NS) is None
    other.apply(NS, upsert=[Document("1", "bike")], position=(1, "1"))
    assert one.position(NS) is None
    assert b"secret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for wrong in (b"short", "x" * 32, None):
        with pytest.raises(ConfigurationError):
            KeyedLexicalIndex(":memory:", key=wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="analyzer_id"):
        KeyedLexicalIndex(":memory:", key=OLD, analyzer=str.split)


# --- settings -----------------------------------------------------------------------------------------------


def test_settings_hand_codec_and_redactor_to_every_service(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    embedder = Embedder(numbers, name="numbers-1")
    settings = Settings(url=url, codec=AESGCMCodec({"k": OLD}), redactor=redact, embedder=embedder)
    brain = settings.brain("s", user="u1", long_term=True)
    brain.add_messages([Message(role="user", content=f"the quagga {SECRET} {n}") for n in range(300)])
    memory = settings.long_term(user="u1")
    assert memory.search("quagga", k=1)[0].text.startswith("the quagga [card]")
    memory.flush()
    settings.experiences("t1", user="u1").create(Experience(req="quagga", resp="quagga"))
    settings.working(user="u1").store("c1", "quagga")
    settings.sessions(user="u1").rename_session("s", "quagga")
    at_rest = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"quagga" not in at_rest
    assert SECRET.encode() not in at_rest
    plain = unwrap(settings.store)
    with pytest.raises(SerializationError):
        decode(plain.get(("longterm", "", "u1")).popitem()[1])
    assert "a.db" in repr(settings.store)
    assert settings.index is Settings(url=url, codec=AESGCMCodec({"k": OLD})).index
    assert settings.index is not Settings(url=url).index
    counts = settings.delete_user("u1")
    assert (counts["messages"], counts["memories"], counts["experiences"]) == (200, 100, 1)
    assert b"u1" not in b"".join(path.read_bytes() for path in tmp_path.iterdir() if not path.name.endswith("shm"))
    assert settings.long_term(user="u1").search("quagga") == []


def test_settings_delete_a_user_whose_key_is_lost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    keys = open_store(f"sqlite:///{tmp_path}/keys.db")
    settings = Settings(url=url, codec=EnvelopeCodec(keys, AESGCMCodec({"k": OLD})))
    memory = settings.long_term(user="u1")
    memory.add([Message(role="user", content="quagga")])
    assert memory.search("quagga")
    lost = Settings(url=url, codec=EnvelopeCodec(keys, AESGCMCodec({"k": NEW})))
    counts = lost.delete_user("u1")
    assert (counts["memories"], counts["indexed"]) == (1, 1)
    assert memory.search("quagga") == []


def test_settings_in_memory_delete_from_their_own_index() -> None:
    settings = Settings(url="memory:", tenant="sealed", codec=AESGCMCodec({"k": OLD}))
    memory = settings.long_term(user="u1")
    memory.add([Message(role="user", content="quagga")])
    assert memory.search("quagga")
    assert settings.index.position(("longterm", "sealed", "u1"))
    settings.delete_user("u1")
    assert settings.index.position(("longterm", "sealed", "u1")) is None


def test_settings_keep_words_and_vectors_of_an_unknown_codec_in_memory(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    settings = Settings(url=url, codec=Compressed(), embedder=Embedder(numbers, name="numbers-1"))
    memory = settings.long_term(user="ada")
    memory.add([Message(role="user", content="the quagga sleeps")])
    memory.flush()
    assert settings.long_term(user="ada").search("quagga")
    tables = (tmp_path / "a.db").read_bytes() + (tmp_path / "a.db-wal").read_bytes()
    assert b"quagga" not in tables
    assert b"langmem_vector_rows" not in tables
    assert b"langmem_lexical_postings" not in tables
    memory.clear()


@pytest.mark.parametrize(("name", "wrong"), [("codec", object()), ("codec", "aes"), ("redactor", "x")])
def test_a_wrong_codec_or_redactor_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        Settings(url="memory:", **{name: wrong})
    with pytest.raises(ConfigurationError, match=name):
        SealedStore(MemoryStore(), **{name: wrong})


def test_what_a_sealed_store_passes_on() -> None:
    kept = MemoryStore()
    store = SealedStore(SealedStore(kept), redactor=redact)
    assert unwrap(store) is kept
    store.append(NS, [(uuid.uuid4().hex, b"1")])
    assert list(store.namespaces(("brain",))) == [NS]
    assert [row.namespace for row in store.recent(NS[:-1], limit=1)] == [NS]
    item: Item = store.scan(NS).items[0]
    store.write(NS, remove=[item])
    assert store.scan(NS).total == 0
    store.clear(NS)
    assert list(kept.namespaces()) == []


def test_a_message_of_which_something_is_kept_back_is_known_again() -> None:
    brain = BrainMemory(SealedStore(MemoryStore(), redactor=redact), "s")
    message = Message(id="q1", role="user", content=f"My card is {SECRET}.")
    for _ in range(3):
        brain.add_messages([message])
    assert [kept.text for kept in brain.messages()] == ["My card is [card]."]
