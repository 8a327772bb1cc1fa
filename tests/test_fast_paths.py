"""Short cuts on the hot paths lead to the same place: values, errors and bounds are those of the long way."""

from __future__ import annotations

import functools
import inspect
import json
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langmem_adapters.codec import _is_plain, decode, encode
from langmem_adapters.errors import SerializationError, StoreError, StoreUnavailable
from langmem_adapters.flow import arun, run, step
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.langchain.caching import request
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.model import Experience, Message, Metric, Score
from langmem_adapters.protocols import Document, Store
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.servers import RedisServer

NS = ("a", "b")


# --- codec and messages


@pytest.mark.parametrize(
    ("value", "is_plain"),
    [
        ({"a": [1, 2.5, True, None, "x", {"b": []}]}, True),
        ({"a": (1,)}, False),
        ([[(1,)]], False),
        ({1: "a"}, False),
        ({"a": {1: 2}}, False),
        ({"$type": 1}, False),
        ([{"$type": 1}], False),
        ([10**4000], False),
        ([-(10**4000)], False),
        ([b""], False),
        ({"a": type("Text", (str,), {})("x")}, False),
        ({type("Text", (str,), {})("x"): 1}, False),
    ],
)
def test_what_is_plain(value: Any, is_plain: bool) -> None:
    assert _is_plain(value, 200) is is_plain


_EDGE = 10**4000
_leaves = st.one_of(
    st.sampled_from([None, True, 1.5, float("nan"), "x", "$type", 0, _EDGE - 1, -_EDGE + 1, _EDGE, -_EDGE]),
    st.sampled_from([b"", (1,), {1}, type("Text", (str,), {})("x"), type("Number", (int,), {})(1), 1j]),
)
_anything = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "$type", 1, None, type("Text", (str,), {})("t")]), inner, max_size=2),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(type("Fields", (dict,), {})),
        st.lists(inner, max_size=2).map(type("Items", (list,), {})),
    ),
    max_leaves=6,
)


def _has_only_what_json_has(value: Any, depth: int) -> bool:
    if type(value) is dict:
        names = all(type(key) is str and key != "$type" for key in value)
        return depth > 0 and names and all(_has_only_what_json_has(item, depth - 1) for item in value.values())
    if type(value) is list:
        return depth > 0 and all(_has_only_what_json_has(item, depth - 1) for item in value)
    if type(value) is int:
        return abs(value) < _EDGE
    return value is None or type(value) in {str, float, bool}


@given(_anything, st.integers(0, 5))
def test_plain_is_what_json_has(value: Any, depth: int) -> None:
    assert _is_plain(value, depth) is _has_only_what_json_has(value, depth)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_plain_values_have_a_depth(wrap: Any) -> None:
    value: Any = "x"
    for _ in range(3):
        value = wrap(value)
    assert _is_plain(value, 3)
    assert not _is_plain(value, 2)


def test_values_can_be_given_in_place_of_a_messages_own() -> None:
    message = Message(id="a", role="user", content="c")
    data = message.to_bytes(id="b", created_at=2.0)
    assert Message.from_bytes(data) == Message(id="b", role="user", content="c", created_at=2.0)
    assert message.id == "a"


@pytest.mark.parametrize("value", [0.0, 1.0, False, 1])
def test_a_value_of_another_type_than_the_default_is_written(value: Any) -> None:
    metric = Metric.model_construct(time_cost=value, money_cost=0.5)
    assert ("time_cost" in metric.to_data()) is (type(value) is not float or value != 0.0)


def test_what_equals_its_default_is_not_written_whatever_object_it_is() -> None:
    same: Any = "a success"[2:]
    assert Experience.model_construct(exp_type=same, tag="t").to_data() == {"tag": "t"}
    assert Score(val=1, reason="").to_data() == {}


@pytest.mark.parametrize("fields", [{"v": 1, "role": "u"}, {"role": "u", "v": 1, "x": 2}])
def test_the_version_is_no_field(fields: dict[str, Any]) -> None:
    message = Message.from_bytes(json.dumps(fields).encode())
    assert message.model_fields_set == fields.keys() - {"v"}
    assert message.model_extra == ({"x": 2} if "x" in fields else {})


@pytest.mark.parametrize(
    "data", [b"{}", b'{"v":2,"role":"u"}', b'{"role":"u"}', b'{"v":1}', b"[]", b'{"v":1,"role":4}', b"{", b'{"v":"1"}']
)
def test_what_is_no_message_is_refused_as_ever(data: bytes) -> None:
    with pytest.raises(SerializationError):
        Message.from_bytes(data)


def test_what_json_lacks_is_restored() -> None:
    message = Message(role="user", metadata={"at": (1, 2), "half": "\ud800", "many": float("inf")})
    assert Message.from_bytes(message.to_bytes()) == message
    assert decode(encode({"$type": 1})) == {"$type": 1}


# --- flows


async def _awaited() -> str:
    return "awaited"


class _Callable:
    async def __call__(self) -> str:
        return "awaited"

    async def method(self) -> str:
        return "awaited"

    def plain(self) -> str:
        return "plain"


def _marked() -> Any:
    return _awaited()


if sys.version_info >= (3, 12):
    inspect.markcoroutinefunction(_marked)


@pytest.mark.parametrize(
    "call",
    [_awaited, _Callable(), _Callable().method, functools.partial(_awaited)],
    ids=lambda call: type(call).__name__,
)
async def test_coroutine_functions_are_awaited_however_they_come(call: Any) -> None:
    assert await arun(step(call)) == "awaited"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="functions are marked since Python 3.12")
async def test_a_marked_function_is_awaited() -> None:
    assert await arun(step(_marked)) == "awaited"


def test_plain_functions_are_called() -> None:
    assert run(step(_Callable().plain)) == "plain"
    assert run(step(lambda: "plain")) == "plain"
    assert run(step(dict)) == {}


# --- keys of requests


@given(st.text(), st.text())
def test_a_key_that_is_remembered_is_the_key(prompt: str, model: str) -> None:
    first = request_key(prompt, model)
    assert request_key(prompt, model) == first
    request._key_of_digest.clear()
    assert request_key(prompt, model) == first


def test_the_border_between_prompt_and_model_is_part_of_the_key() -> None:
    assert request_key("ab", "c") != request_key("a", "bc")
    assert request_key("1 ", "") != request_key("", "1 ")
    assert request_key("\ud800", "m") != request_key("?", "m")


def test_no_more_keys_are_remembered_than_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "_MAX_KEYS", 10)
    request._key_of_digest.clear()
    for n in range(35):
        request_key(str(n), "m")
        assert len(request._key_of_digest) <= 10
    assert not any(b"secret" in known for known in request._key_of_digest)


# --- SQLite


@pytest.fixture
def file(tmp_path: Path) -> SQLiteStore:
    return SQLiteStore(tmp_path / "store.db")


@pytest.mark.parametrize("count", range(8))
def test_any_number_of_values_is_read(any_store: Store, count: int) -> None:
    put = {f"k{n}": str(n).encode() for n in range(6)}
    any_store.write(NS, put=put)
    any_store.write(("a", "c"), put={"k0": b"another's"})
    keys = [f"k{n}" for n in range(count)]
    assert any_store.get(NS, keys) == {key: put[key] for key in keys if key in put}
    assert any_store.get(NS, [*keys, *keys][:4]) == {key: put[key] for key in keys[:4] if key in put}
    assert any_store.get(("a",), keys) == {}


@pytest.mark.parametrize("count", [1, 4, 5])
def test_values_expire_however_many_are_asked_for(tmp_path: Path, count: int) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "store.db", clock=clock)
    store.write(NS, put={"k0": b"v"}, ttl=10)
    keys = [f"k{n}" for n in range(count)]
    clock.advance(9.9)
    assert store.get(NS, keys) == {"k0": b"v"}
    clock.advance(0.1)
    assert store.get(NS, keys) == {}


@pytest.mark.parametrize("hurry", [False, True])
def test_errors_of_one_look_are_those_of_a_transaction(tmp_path: Path, hurry: bool) -> None:
    store = SQLiteStore(tmp_path / "store.db", fails_fast=hurry, timeout=0.2)
    with pytest.raises(SerializationError, match="half of a surrogate pair"):
        store.get(NS, ["\ud800"])
    store.write(NS, put={"k": b"v"})
    assert store.get(NS, ["k"]) == {"k": b"v"}  # the connection is whole
    store.close()
    other = sqlite3.connect(tmp_path / "store.db")
    other.execute("DROP TABLE langmem_values")
    other.close()
    with pytest.raises(StoreError, match="no such table"):
        store.get(NS, ["k"])
    with pytest.raises(StoreUnavailable, match="no folder"):
        SQLiteStore(tmp_path / "none" / "store.db", fails_fast=hurry).get(NS, ["k"])


def test_a_look_gives_its_connection_back(file: SQLiteStore) -> None:
    file.write(NS, put={"k": b"v"})
    for _ in range(5):
        file.get(NS, ["k"])
        with pytest.raises(SerializationError):
            file.get(NS, ["\ud800"])
    assert len(file._database._idle) == 1


# --- Redis


def test_replies_stay_in_step_after_a_refusal_among_them(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    wire, key = store._wire, f"{key_prefix}text".encode()
    commands = [pack("SET", key, "x"), pack("LPUSH", key, "y"), pack("GET", key), pack("GET", key + b"none")]
    for _ in range(3):
        with pytest.raises(StoreError, match="WRONGTYPE"):
            wire.send(*((key, command) for command in commands))
        with pytest.raises(StoreError, match="WRONGTYPE"):
            wire.transact(key, commands)
        assert wire.send((key, pack("GET", key)), (key, pack("STRLEN", key))) == [b"x", 1]
    assert wire.transact(key, [commands[0], commands[2], commands[3]]) == [b"OK", b"x", None]


@pytest.mark.parametrize("size", [10, 100_000])
def test_replies_that_come_in_parts_are_read_whole(redis_server: RedisServer, key_prefix: str, size: int) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    key = f"{key_prefix}text".encode()
    store._wire.send((key, pack("SET", key, b"x" * size)))
    found = store._wire.send(*[(key, pack("GET", key)), (key, pack("STRLEN", key))] * 20)
    assert found == [b"x" * size, size] * 20


@pytest.mark.parametrize("protocol", [2, 3])
def test_both_versions_of_the_protocol_are_read(redis_server: RedisServer, key_prefix: str, protocol: int) -> None:
    import redis  # noqa: PLC0415 - of this test alone

    client = redis.Redis(port=redis_server.port, protocol=protocol)
    store = RedisStore(client, prefix=key_prefix)
    store.append(NS, [("1", b"a"), ("2", b"b")])
    store.write(NS, put={"k": b"v"})
    assert [item.data for item in store.scan(NS, keys=["k"]).items] == [b"a", b"b"]
    assert store.get(NS) == {"k": b"v"}
    client.close()


# --- words


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8), min_size=1, max_size=25),
    st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6),
    st.integers(1, 5),
)
def test_the_best_are_the_best_of_all(documents: list[list[str]], query: list[str], k: int) -> None:
    index = LexicalIndex(":memory:", analyzer=str.split, analyzer_id="split", stop_words=())
    index.apply(NS, upsert=[Document(str(n), " ".join(words)) for n, words in enumerate(documents)])
    everything = index.search(NS, " ".join(query), 100)
    best = index.search(NS, " ".join(query), k)
    assert [hit.score for hit in best] == pytest.approx([hit.score for hit in everything[:k]])
    index.close()


def test_a_fingerprint_did_not_change() -> None:
    assert request_key("p", "m") == fingerprint("langchain", "p", fingerprint("m"))


# --- the history


def calls_of(work: Callable[[], object]) -> int:
    """How many functions of the package some work calls, comprehensions aside, which are none in newer Pythons."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        code = frame.f_code
        count += event == "call" and "langmem_adapters" in code.co_filename and not code.co_name.startswith("<")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def exchange(number: int) -> list[BaseMessage]:
    id_ = f"call-{number}"
    counts = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    call = {"name": "look", "args": {"place": "shed", "depth": [1, 2]}, "id": id_}
    return [
        HumanMessage("Where is my bike?", id=f"question-{number}"),
        AIMessage(
            "", id=f"asking-{number}", tool_calls=[call], usage_metadata=counts, response_metadata={"a": {"b": 1}}
        ),
        ToolMessage("In the shed.", id=f"result-{number}", tool_call_id=id_, artifact={"row": 1}),
        AIMessage("It is in the shed.", id=f"answer-{number}", usage_metadata=counts),
    ]


def test_a_message_is_written_and_the_newest_are_read_in_few_calls(file: SQLiteStore) -> None:
    history = BrainChatMessageHistory("s", store=file, memory_k=20)
    for number in range(8):
        history.add_messages(exchange(number))
    assert history.messages == [message for number in range(3, 8) for message in exchange(number)]
    history.add_messages(exchange(8)[:1])  # makes the statement for one message
    assert calls_of(partial(history.add_messages, exchange(8)[1:2])) <= 80
    assert calls_of(lambda: history.messages) <= 210
