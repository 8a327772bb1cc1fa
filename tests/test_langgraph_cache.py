"""ExperienceNodeCache in real graphs with CachePolicy: LG e, C6, C8."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import json
import logging
import typing
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import ormsgpack
import pytest
from langchain_core.caches import InMemoryCache as LangChainCache
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import CachePolicy, Send
from pydantic import BaseModel, Field, PrivateAttr, create_model
from typing_extensions import TypedDict

from langmem_adapters import ConfigurationError, StoreUnavailable
from langmem_adapters.codec import encode
from langmem_adapters.encryption import AESGCMCodec
from langmem_adapters.experience import bypass, refresh
from langmem_adapters.experience.functions.equality import first_changed_type
from langmem_adapters.langgraph import ExperienceNodeCache
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Slow
from tests.loops import ticking

NS = ("node", "a")
KEY = (NS, "key")


class Point(BaseModel):
    x: int


@dataclasses.dataclass
class Pair:
    left: Point


class Color(enum.Enum):
    RED = "red"


class State(TypedDict, total=False):
    question: str
    answer: str
    point: Point
    messages: Annotated[list[Any], add_messages]


# --- graphs -------------------------------------------------------------------------------------------------


class Nodes:
    """Count how often they run."""

    def __init__(self) -> None:
        self.runs = 0

    def answer(self, state: State) -> State:
        self.runs += 1
        return {
            "answer": f"{state['question']}!",
            "messages": [AIMessage(f"run {self.runs}", id=f"m{self.runs}")],
        }

    async def aanswer(self, state: State) -> State:
        return self.answer(state)

    def fail(self, _: State) -> State:
        self.runs += 1
        raise RuntimeError("the node failed")

    def point(self, _: State) -> State:
        self.runs += 1
        return {"point": Point(x=self.runs)}


def graph(node: Any, cache: Any, *, ttl: int | None = None) -> Any:
    builder = StateGraph(State)
    builder.add_node("node", node, cache_policy=CachePolicy(ttl=ttl))
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(cache=cache)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_c7_a_graph_may_go_without_the_cache_or_run_anew(mode: str) -> None:
    nodes = Nodes()
    cache: Any = ExperienceNodeCache(store=MemoryStore())
    asked = {"question": "why"}

    async def said() -> str:
        if mode == "sync":
            return str(graph(nodes.answer, cache).invoke(asked)["messages"][-1].content)
        return str((await graph(nodes.aanswer, cache).ainvoke(asked))["messages"][-1].content)

    assert await said() == await said() == "run 1"
    with bypass():
        assert await said() == "run 2"
    assert await said() == "run 1"
    with refresh():
        assert await said() == "run 3"
    assert await said() == "run 3"


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_lg_e_a_node_runs_once_for_the_same_input(any_store: Store, mode: str) -> None:
    nodes, clock = Nodes(), FakeClock()

    async def ask(question: str) -> Any:
        cache: Any = ExperienceNodeCache(store=any_store, clock=clock)  # a new one, as in another process
        if mode == "sync":
            return graph(nodes.answer, cache, ttl=60).invoke({"question": question})
        return await graph(nodes.aanswer, cache, ttl=60).ainvoke({"question": question})

    first = await ask("why")
    assert await ask("why") == first
    assert first["messages"] == [AIMessage("run 1", id="m1")]
    assert nodes.runs == 1
    assert (await ask("how"))["answer"] == "how!"
    assert nodes.runs == 2
    clock.advance(61)
    assert (await ask("why"))["messages"] == [AIMessage("run 3", id="m3")]


async def test_c8_async_and_sync_share_what_is_kept(any_store: Store) -> None:
    nodes = Nodes()
    cache: Any = ExperienceNodeCache(store=any_store)
    sync, async_ = graph(nodes.answer, cache), graph(nodes.aanswer, cache)
    assert sync.invoke({"question": "why"}) == await sync.ainvoke({"question": "why"})
    await async_.ainvoke({"question": "why"})
    runs = nodes.runs
    assert async_.get_name() == sync.get_name()
    await asyncio.gather(*(sync.ainvoke({"question": "why"}) for _ in range(10)))
    assert nodes.runs == runs <= 2
    sync.clear_cache()
    sync.invoke({"question": "why"})
    assert nodes.runs == runs + 1
    await sync.aclear_cache()
    await sync.ainvoke({"question": "why"})
    assert nodes.runs == runs + 2


def test_a_node_that_fails_is_not_cached(any_store: Store) -> None:
    nodes = Nodes()
    failing = graph(nodes.fail, ExperienceNodeCache(store=any_store))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            failing.invoke({"question": "why"})
    assert nodes.runs == 2


def test_a_class_of_ones_own_comes_back_if_it_is_named_and_never_as_something_else(any_store: Store) -> None:
    nodes = Nodes()
    named = graph(nodes.point, ExperienceNodeCache(store=any_store, types=[Point]))
    assert named.invoke({"question": "a"})["point"] == named.invoke({"question": "a"})["point"] == Point(x=1)
    cache: Any = ExperienceNodeCache(store=any_store, tenant="unnamed")
    unnamed = graph(nodes.point, cache)
    assert [unnamed.invoke({"question": "a"})["point"] for _ in range(2)] == [Point(x=2), Point(x=3)]
    assert cache.stats()["refused"] == 2


class Gathered(TypedDict, total=False):
    question: str
    messages: Annotated[list[Any], add_messages]


def test_each_task_of_a_fan_out_is_cached(any_store: Store) -> None:
    ran: list[str] = []

    def node(state: Gathered) -> Gathered:
        ran.append(state["question"])
        return {"messages": [AIMessage(state["question"], id=state["question"])]}

    def fan(state: Gathered) -> list[Send]:
        return [Send("node", {"question": n}) for n in state["question"]]

    builder = StateGraph(Gathered)
    builder.add_node("node", node, cache_policy=CachePolicy())
    builder.add_conditional_edges(START, fan, ["node"])
    compiled: Any = builder.compile(cache=ExperienceNodeCache(store=any_store))
    assert len(compiled.invoke({"question": "ab"})["messages"]) == 2
    found = compiled.invoke({"question": "abc"})["messages"]
    assert [message.text for message in found] == ["a", "b", "c"]
    assert sorted(ran) == ["a", "b", "c"]


@pytest.mark.parametrize("codec", [None, AESGCMCodec({"key": bytes(32)})], ids=["plain", "sealed"])
@pytest.mark.parametrize("ttl", [None, 60])
def test_the_tasks_of_a_fan_out_share_round_trips(
    distant: tuple[RedisStore, RoundTrips], ttl: int | None, codec: AESGCMCodec | None
) -> None:
    store, door = distant
    cache: Any = ExperienceNodeCache(store=store if codec is None else SealedStore(store, codec=codec))
    keys = [(NS, f"key {n}") for n in range(100)]
    other = (("node", "b"), "key")
    values = {key: f"value {n}" for n, key in enumerate(keys)}

    def trips(call: Callable[[], Any]) -> int:
        before = door.count
        call()
        return door.count - before

    cache.set({other: ("other", ttl)})
    assert trips(lambda: cache.set({key: (value, ttl) for key, value in values.items()})) <= 10
    assert trips(lambda: asyncio.run(cache.aset({key: (value, ttl) for key, value in values.items()}))) <= 4
    assert cache.get([*keys, (NS, "unknown")]) == values
    assert trips(lambda: cache.get(keys)) == 2
    assert trips(lambda: asyncio.run(cache.aget(keys))) == 2
    assert cache.stats()["hits"] == 300
    assert trips(lambda: cache.clear([NS])) == 4
    assert cache.get([*keys, other]) == {other: "other"}


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        "",
        False,
        [],
        b"\x00",
        bytearray(b"x"),
        {"a": [1, 2.5, None, {"b": {1, 2}}], 3: "x"},
        [("channel", AIMessage("hi", id="1", tool_calls=[{"name": "x", "args": {"y": 1}, "id": "c"}]))],
        deque([HumanMessage("x"), Document("text", metadata={"a": 1})]),
        datetime(2026, 1, 2, tzinfo=timezone.utc),
        uuid.UUID(int=5),
        Decimal("1.10"),
        Path("a/b"),
        Send("node", {"a": 1}),
        Point(x=1),
        Pair(Point(x=2)),
        Color.RED,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back_equal(any_store: Store, value: Any) -> None:
    cache: Any = ExperienceNodeCache(store=any_store, types=[Point, Pair, Color])
    cache.set({KEY: (value, None)})
    found = cache.get([KEY, (NS, "other")])
    assert list(found) == [KEY]
    expected = [["channel", value[0][1]]] if isinstance(value, list) and value else value  # msgpack has no tuples
    assert found[KEY] == expected
    assert type(found[KEY]) is type(expected)


@pytest.mark.parametrize("value", [Point(x=1), [{"a": Pair(Point(x=1))}], Color.RED, "\ud800", 2**70, object(), {1j}])
def test_what_would_come_back_as_something_else_is_not_kept(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    cache: Any = ExperienceNodeCache(store=MemoryStore())
    cache.set({KEY: (value, None), (NS, "good"): (1, None)})
    cache.set({KEY: (value, None)})
    assert cache.get([KEY, (NS, "good")]) == {(NS, "good"): 1}
    assert (cache.stats()["refused"], cache.stats()["stored"]) == (2, 1)
    assert caplog.text.count("is not cached") == 1


class Animal(BaseModel):
    name: str


class Dog(Animal):
    breed: str


class Owner(BaseModel):
    pet: Animal | None = None
    code: str = Field("", exclude=True)
    _walks: int = PrivateAttr(0)

    def walked(self, times: int) -> Owner:
        self._walks = times
        return self


@dataclasses.dataclass
class Held:
    what: Any = None
    note: dataclasses.InitVar[str] = ""

    def __post_init__(self, note: str) -> None:
        self.noted = note


class Rows(list[int]):
    pass


class Steps(NamedTuple):
    first: Any


CLASSES = [Animal, Dog, Owner, Held, Point, Pair, Rows, Steps]
CHANGED = {
    "a subclass in a field": Owner(pet=Dog(name="Rex", breed="collie")),
    "a field that is not dumped": Owner(code="1234"),
    "a private attribute": Owner().walked(7),
    "a model in a field without a type": Held(Held(Point(x=1), "said")),
    "what a dataclass made of its arguments": Held(note="said"),
    "a dataclass in a model": Owner.model_construct(pet=typing.cast(Any, Pair(Point(x=1)))),
    "a class of lists": Rows([1]),
    "a bounded queue": deque([1], maxlen=2),
    "a place's time": datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
}


@pytest.mark.parametrize("value", CHANGED.values(), ids=CHANGED)
def test_nothing_comes_back_changed_inside(value: Any) -> None:
    cache: Any = ExperienceNodeCache(store=MemoryStore(), types=CLASSES)
    for one in (value, [("channel", {"key": value})]):
        cache.set({KEY: (one, None)})
        assert cache.get([KEY]) == {}
    assert (cache.stats()["refused"], cache.stats()["stored"]) == (2, 0)


KEPT = {
    "a subclass by itself": Dog(name="Rex", breed="collie"),
    "a model of its field's own class": Owner(pet=Animal(name="Tom")),
    "an array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "not a number": float("nan"),
    "tuples in what LangGraph carries": Send("node", {"steps": (1, (2,))}),
    "tuples in a named one": Steps((1,)),
    "tuples in a message": AIMessage("x", id="1", additional_kwargs={"steps": (1, 2)}),
    "tuples in a dataclass": Held((1, {"a": (2,)})),
}


@pytest.mark.parametrize("value", KEPT.values(), ids=KEPT)
def test_what_is_the_same_but_for_tuples_is_kept(value: Any) -> None:
    cache: Any = ExperienceNodeCache(store=MemoryStore(), types=CLASSES)
    cache.set({KEY: (value, None)})
    assert first_changed_type(value, cache.get([KEY])[KEY], tuples_as_lists=True) == ""


def test_the_text_of_a_message_is_kept_as_a_text() -> None:
    model, runs = FakeListChatModel(responses=["In the shed."]), []

    def answer(state: dict[str, Any]) -> dict[str, Any]:
        runs.append(state)
        return {"answer": model.invoke(state["question"]).text}

    graph: Any = StateGraph(dict)
    graph.add_node("answer", answer, cache_policy=CachePolicy())
    graph.add_edge(START, "answer")
    compiled = graph.compile(cache=ExperienceNodeCache(store=MemoryStore()))
    assert [compiled.invoke({"question": "Where?"}) for _ in range(2)] == [{"answer": "In the shed."}] * 2
    assert len(runs) == 1


def test_a_hit_is_a_new_object() -> None:
    cache: Any = ExperienceNodeCache(store=MemoryStore())
    value = {"list": [1]}
    cache.set({KEY: (value, None)})
    value["list"].append(2)
    cache.get([KEY])[KEY]["list"].append(3)
    assert cache.get([KEY]) == {KEY: {"list": [1]}}


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_it_does_what_langgraphs_own_cache_does(any_store: Store, mode: str) -> None:
    ours: Any = ExperienceNodeCache(store=any_store)
    theirs: Any = InMemoryCache()
    for cache in (ours, theirs):

        async def call(name: str, *args: Any, cache: Any = cache) -> Any:
            method = getattr(cache, name if mode == "sync" else f"a{name}")
            return method(*args) if mode == "sync" else await method(*args)

        a, deep, b = ("a",), ("a", "b"), ("b/ %",)
        await call("set", {(a, "k"): (1, None), (a, "b"): (2, 60), (deep, "k"): (3, None), (b, ""): (4, None)})
        everything = [(a, "k"), (a, "b"), (deep, "k"), (b, ""), (b, "k")]
        assert await call("get", everything) == dict(zip(everything, (1, 2, 3, 4), strict=False))
        assert await call("get", []) == {}
        await call("set", {(a, "k"): (5, None)})
        assert await call("get", [(a, "k")]) == {(a, "k"): 5}
        await call("clear", [a, ("none",)])
        assert await call("get", everything) == {(deep, "k"): 3, (b, ""): 4}
        await call("clear")
        assert await call("get", everything) == {}


def test_clear_touches_only_what_is_ours(any_store: Store) -> None:
    any_store.write(("brain", "s"), put={"k": b"x"})
    one: Any = ExperienceNodeCache(store=any_store, tenant="one")
    two: Any = ExperienceNodeCache(store=any_store, tenant="two")
    for cache in (one, two):
        cache.set({KEY: (cache is one, None)})
    one.clear()
    assert one.get([KEY]) == {}
    assert two.get([KEY]) == {KEY: False}
    assert any_store.get(("brain", "s")) == {"k": b"x"}


def test_tenants_and_tags_keep_entries_apart_whatever_their_names(any_store: Store) -> None:
    names = ("", "a", "nodes", NS[0], "entry")
    caches: list[Any] = [ExperienceNodeCache(store=any_store, tenant=t, tag=g) for t in names for g in names]
    for number, cache in enumerate(caches):
        cache.set({KEY: (number, None)})
    assert [cache.get([KEY])[KEY] for cache in caches] == list(range(len(caches)))
    assert caches[5].get([(("a", *NS), "key")]) == {}  # the tag is no label of the graph's
    tagged, untagged = caches[6], caches[10]
    tagged.clear()
    assert [number for number, cache in enumerate(caches) if not cache.get([KEY])] == [6]
    untagged.clear()  # all tags of its tenant
    assert [number for number, cache in enumerate(caches) if not cache.get([KEY])] == [6, *range(10, 15)]


def test_an_entry_expires_and_is_gone() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    cache: Any = ExperienceNodeCache(store=store, clock=clock)
    cache.set({KEY: ("planted", 10), (NS, "stays"): (1, None), (NS, "never"): (2, 0), (NS, "soon"): (3, 1)})
    assert cache.get([(NS, "soon")]) == {(NS, "soon"): 3}
    clock.advance(9)
    assert cache.get([KEY, (NS, "never")]) == {KEY: "planted"}
    clock.advance(1)
    assert cache.get([KEY, (NS, "stays")]) == {(NS, "stays"): 1}
    assert ("nodes", "", *NS, "key") not in list(store.namespaces())


# --- C6 and damage ------------------------------------------------------------------------------------------

_ran: list[str] = []


class Planted:
    def __init__(self, *args: Any, **_: Any) -> None:
        _ran.append(str(args))


def ext(code: int, *parts: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


PLANTED = [
    *(ext(code, "tests.test_langgraph_cache", "Planted", args) for code, args in ((0, "x"), (1, ["x"]), (2, {}))),
    *(ext(code, "tests.test_langgraph_cache", "Planted", {}) for code in (4, 5)),
    ext(3, "tests.test_langgraph_cache", "Planted", "x", "__init__"),
    ext(0, "os", "system", "echo planted"),
    ext(1, "builtins", "eval", ["1"]),
    ext(0, "this_module_is_nowhere", "x", "x"),
]


class Pickled:
    """What only pickle can write."""

    def __reduce__(self) -> Any:
        return Planted, ("pickled",)


def test_c6_a_value_is_not_pickled_to_find_out_whether_it_can_be_kept() -> None:
    cache: Any = ExperienceNodeCache(store=MemoryStore(), types=[Pickled])
    cache.set({KEY: (Pickled(), None)})
    assert (cache.stats()["refused"], cache.get([KEY]), _ran) == (1, {}, [])


@pytest.mark.parametrize("data", PLANTED)
def test_c6_a_planted_constructor_is_never_called(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    store = MemoryStore()
    cache: Any = ExperienceNodeCache(store=store, types=[Point])
    entry = {"v": 1, "kind": "msgpack", "data": data, "expires_at": None, "types": {}}
    store.write(("nodes", "", *NS, "key"), put={"entry": encode(entry)})
    found = cache.get([KEY])
    assert _ran == []
    assert not isinstance(found.get(KEY), Planted)
    assert isinstance(found.get(KEY), str | list | dict | None)


SECRET = b'{"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]}'
GOOD: dict[str, Any] = {
    "v": 1,
    "kind": "msgpack",
    "data": ormsgpack.packb([["answer", "x"]]),
    "expires_at": None,
    "types": {},
}


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        encode({**GOOD, "v": 2}),
        encode({**GOOD, "data": "text"}),
        encode({**GOOD, "data": b"\xc1"}),
        encode({**GOOD, "expires_at": "never"}),
        encode({**GOOD, "kind": "pickle", "data": b"cos\nsystem\n(S'echo planted'\ntR."}),
        encode({**GOOD, "kind": "json", "data": SECRET}),
        encode({**GOOD, "kind": "json", "data": b'{"lc": 2, "type": "constructor", "id": ["os", "system"]}'}),
        encode({**GOOD, "kind": "json", "data": b'[["answer", "planted"]]'}),
        encode({**GOOD, "kind": ["msgpack"]}),
        encode({**GOOD, "data": ormsgpack.packb(3)}),
        encode({**GOOD, "data": ormsgpack.packb(["answer"])}),
        encode({**GOOD, "data": ormsgpack.packb([[1, 2]])}),
        encode({**GOOD, "data": ormsgpack.packb([["messages", [], 3]])}),
        encode({**GOOD, "data": ormsgpack.packb({"a": 1})}),
    ],
)
def test_an_entry_that_cannot_be_read_is_a_miss_and_is_healed(entry: bytes, any_store: Store) -> None:
    nodes = Nodes()
    cache: Any = ExperienceNodeCache(store=any_store)
    compiled = graph(nodes.answer, cache)
    compiled.invoke({"question": "why"})
    (place,) = list(any_store.namespaces(("nodes",)))
    any_store.write(place, put={"entry": entry})
    assert compiled.invoke({"question": "why"})["messages"][0].text == "run 2"
    assert cache.stats()["unreadable"] == 1
    assert compiled.invoke({"question": "why"})["messages"][0].text == "run 2"
    assert nodes.runs == 2


def test_each_key_that_is_asked_for_is_a_hit_or_a_miss_and_an_entry_whose_time_is_over_a_miss() -> None:
    clock = FakeClock()
    cache: Any = ExperienceNodeCache(store=MemoryStore(), clock=clock)  # whose store has a clock of its own
    cache.set({KEY: (1, 60), (NS, "good"): (2, None)})
    clock.advance(59)
    assert cache.get([KEY, (NS, "good"), (NS, "never"), KEY]) == {KEY: 1, (NS, "good"): 2}
    assert [cache.stats()[name] for name in ("hits", "misses")] == [2, 1]
    clock.advance(1)
    assert cache.get([KEY, (NS, "good")]) == {(NS, "good"): 2}
    assert [cache.stats()[name] for name in ("hits", "misses", "unreadable")] == [3, 2, 0]


class Speaks:
    """A node that is an object, as LangGraph takes it."""

    def __init__(self, language: str) -> None:
        self.language = language

    def __call__(self, state: State) -> State:
        return {"answer": f"{self.language}: {state['question']}"}


def chain(language: str) -> Any:
    return RunnableLambda(lambda state: state) | RunnableLambda(Speaks(language).__call__)


def later(language: str) -> Callable[[State], Awaitable[State]]:
    async def node(state: State) -> State:
        return Speaks(language)(state)

    return node


@pytest.mark.parametrize(
    "make",
    [Speaks, chain, later, lambda language: functools.partial(Speaks.__call__, Speaks(language))],
    ids=["object", "chain", "async function", "partial"],
)
async def test_a_tag_tells_graphs_apart_whose_nodes_have_the_same_names(
    make: Callable[[str], Any], any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask(language: str, **settings: Any) -> int:
        cache: ExperienceNodeCache[Any] = ExperienceNodeCache(store=any_store, **settings)
        found = await graph(make(language), cache).ainvoke({"question": "why"})
        assert found["answer"] == f"{language}: why"
        hits: int = cache.stats()["hits"]
        return hits

    languages = ["French", "German"]
    assert [await ask(language, tag=language) for language in [*languages, *languages]] == [0, 0, 1, 1]
    assert caplog.messages == []
    assert await ask("Dutch") == 0
    (warning,) = caplog.messages
    assert "identifies the node 'node' by its name alone" in warning
    ExperienceNodeCache[Any](store=any_store, tag="French").clear()
    assert [await ask(language, tag=language) for language in languages] == [0, 1]
    ExperienceNodeCache[Any](store=any_store).clear()  # everything of the tenant
    assert list(any_store.namespaces()) == []


def test_a_task_without_a_name_is_not_cached_whatever_the_tag(caplog: pytest.LogCaptureFixture) -> None:
    cache: ExperienceNodeCache[Any] = ExperienceNodeCache(store=MemoryStore(), tag="graph")
    cached: Any = task(cache_policy=CachePolicy())
    asked: list[Any] = [cached(Speaks(language)) for language in ("French", "German")]

    @entrypoint(cache=cache)
    def flow(question: State) -> list[str]:
        return [one(question).result()["answer"] for one in asked]

    for _ in range(2):
        assert flow.invoke({"question": "why"}) == ["French: why", "German: why"]
    assert (cache.stats()["refused"], cache.stats()["hits"]) == (4, 0)
    assert len(caplog.messages) == 1
    assert "define it with def" in caplog.text


def test_nothing_of_the_input_is_named_in_the_keys(any_store: Store) -> None:
    graph(Nodes().answer, ExperienceNodeCache(store=any_store)).invoke({"question": "a planted secret"})
    assert "planted" not in str(list(any_store.namespaces()))


# --- outage -------------------------------------------------------------------------------------------------


class _Gone(MemoryStore):
    def get(self, *_: Any) -> dict[str, bytes]:
        raise StoreUnavailable("it is gone")

    def write(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("it is gone")

    append = write


async def test_an_outage_is_a_policy(caplog: pytest.LogCaptureFixture) -> None:
    nodes = Nodes()
    cache: Any = ExperienceNodeCache(store=_Gone())
    compiled = graph(nodes.answer, cache)
    for _ in range(2):
        assert compiled.invoke({"question": "why"})["answer"] == "why!"
        assert (await compiled.ainvoke({"question": "why"}))["answer"] == "why!"
    assert nodes.runs == 4
    counts = {"hits": 0, "misses": 4, "stored": 0, "unreadable": 0, "refused": 0, "errors": 8}
    assert cache.stats() == {**counts, "saved_tokens": 0, "saved_money": 0.0}
    assert [record.levelno for record in caplog.records if "without its cache" in record.message] == [logging.WARNING]
    strict: Any = ExperienceNodeCache(store=_Gone(), on_error="raise")
    with pytest.raises(StoreUnavailable):
        strict.get([KEY])
    with pytest.raises(StoreUnavailable):
        await strict.aset({KEY: (1, None)})


class _Json:
    """A serializer of one's own, which writes what would never be read again."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return "json", json.dumps(obj).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return json.loads(data[1])


class _Pairs(JsonPlusSerializer):
    """One's own, which gives the pairs of a channel and what is written to it back as they were."""

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return deque(map(tuple, super().loads_typed(data)))


def test_a_graph_goes_on_with_what_a_serializer_of_ones_own_gives_back(any_store: Store) -> None:
    nodes = Nodes()
    compiled = graph(nodes.answer, ExperienceNodeCache(store=any_store, serde=_Pairs(), on_error="raise"))
    assert compiled.invoke({"question": "Hi"}) == compiled.invoke({"question": "Hi"})
    assert nodes.runs == 1


@pytest.mark.parametrize("newer", [("new", 0), ("new", -1), ({"f": print}, None)], ids=["now", "before", "unwritable"])
def test_an_answer_that_is_not_kept_takes_the_older_one_away(any_store: Store, newer: tuple[Any, int | None]) -> None:
    cache: ExperienceNodeCache[Any] = ExperienceNodeCache(store=any_store, on_error="raise")
    key = (("node",), "key")
    cache.set({key: ("old", 60), (("node",), "other"): ("kept", 60)})
    cache.set({key: newer})
    assert cache.get([key, (("node",), "other")]) == {(("node",), "other"): "kept"}


def test_what_would_never_be_read_again_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    cache: Any = ExperienceNodeCache("memory:", serde=_Json())
    cache.set({KEY: ({"answer": 42}, None)})
    assert cache.get([KEY]) == {}
    assert [cache.stats()[name] for name in ("refused", "stored", "unreadable")] == [1, 0, 0]
    assert "its serializer writes the format json, which the cache does not read" in caplog.text


async def test_a5_the_loop_goes_on_while_a_store_is_slow() -> None:
    cache: Any = ExperienceNodeCache(store=Slow())
    await cache.aset({KEY: (1, None)})
    async with ticking() as late:
        assert await asyncio.gather(*(cache.aget([KEY]) for _ in range(10))) == [{KEY: 1}] * 10
    assert max(late) < 0.25  # a blocked loop would be 0.5 s late; a busy machine is no failure


def test_wrong_settings_are_one_clear_sentence() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        ExperienceNodeCache("memory:", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="on_error"):
        ExperienceNodeCache(store=MemoryStore(), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="tenant is a text, not int"):
        ExperienceNodeCache(store=MemoryStore(), tenant=42)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="tag is a text, not int"):
        ExperienceNodeCache(store=MemoryStore(), tag=42)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="pickle"):
        ExperienceNodeCache(store=MemoryStore(), serde=JsonPlusSerializer(pickle_fallback=True))
    assert repr(ExperienceNodeCache(store=MemoryStore())) == "ExperienceNodeCache(MemoryStore())"


# --- what hits have saved -------------------------------------------------------------------------------------


def test_hits_have_saved_what_the_messages_in_them_took() -> None:
    def said(name: str, **told: Any) -> AIMessage:
        used = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        return AIMessage(name, usage_metadata=used, response_metadata=told)

    values: dict[str, Any] = {
        "one": {"messages": [HumanMessage("q"), said("a", model_name="small")]},
        "nested": [("messages", [said("a", model="small"), said("b", model_name="large")]), ("n", 1)],
        "unpriced": (said("a"), AIMessage("tells no usage")),
        "none": {"text": "small"},
    }
    expected = {"one": (7, 3 + 8), "nested": (14, 2 * (3 + 8)), "unpriced": (7, 0), "none": (0, 0)}
    for name, value in values.items():
        cache: ExperienceNodeCache[Any] = ExperienceNodeCache(
            "memory:", prices={"small": (1e6, 2e6), "large": (1e6, 2e6)}
        )
        key = ((name,), "k")
        cache.set({key: (value, None)})
        cache.get([((name,), "other")])
        assert cache.stats()["saved_tokens"] == 0
        cache.get([key])
        assert (cache.stats()["saved_tokens"], cache.stats()["saved_money"]) == expected[name]
        cache.get([key])
        assert cache.stats()["saved_tokens"] == 2 * expected[name][0]
    with pytest.raises(ConfigurationError, match="prices"):
        ExperienceNodeCache("memory:", prices=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("told", [None, {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}])
def test_what_a_cache_of_langchain_has_served_was_not_paid_for_and_breaks_no_run(told: Any) -> None:
    model_cache = LangChainCache()
    model = GenericFakeChatModel(messages=iter([AIMessage("In the shed.", usage_metadata=told)]), cache=model_cache)
    model.invoke("Where is my bike?")
    cache: ExperienceNodeCache[Any] = ExperienceNodeCache("memory:", tag=f"told {told}", prices={"": (1e6, 1e6)})

    def ask(state: Gathered) -> Gathered:
        return {"messages": [model.invoke(state["question"])]}

    builder = StateGraph(Gathered)
    builder.add_node("ask", ask, cache_policy=CachePolicy())
    builder.add_edge(START, "ask")
    graph = builder.compile(cache=cache)
    answers = [graph.invoke({"question": "Where is my bike?"})["messages"][-1] for _ in range(2)]
    assert [answer.text for answer in answers] == ["In the shed."] * 2
    assert answers[1].usage_metadata == answers[0].usage_metadata == {**(told or {}), "total_cost": 0}
    assert (cache.stats()["hits"], cache.stats()["saved_tokens"], cache.stats()["saved_money"]) == (1, 0, 0)


@pytest.mark.parametrize("used", [{"input_tokens": 3}, {"input_tokens": None, "output_tokens": 4}])
def test_usage_that_is_not_whole_counts_as_none(used: Any) -> None:
    cache: ExperienceNodeCache[Any] = ExperienceNodeCache("memory:", tag=f"used {used}")
    cache.set({((), "k"): (AIMessage("a").model_copy(update={"usage_metadata": used}), None)})
    assert [message.text for message in cache.get([((), "k")]).values()] == ["a"]
    assert (cache.stats()["hits"], cache.stats()["saved_tokens"]) == (1, 0)


def test_what_one_hit_has_saved_is_not_lost_where_another_is_counted_in_between() -> None:
    class Priced(dict[str, tuple[float, float]]):
        def get(self, *args: Any) -> Any:
            if others:
                cache.get(others.pop())
            return super().get(*args)

    used: Any = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    cache: ExperienceNodeCache[Any] = ExperienceNodeCache("memory:", tag="between", prices=Priced(small=(1e6, 2e6)))
    cache.set({((), "k"): (AIMessage("a", usage_metadata=used, response_metadata={"model": "small"}), None)})
    others = [[((), "k")]]
    cache.get([((), "k")])
    assert (cache.stats()["hits"], cache.stats()["saved_tokens"], cache.stats()["saved_money"]) == (2, 14, 22.0)


FIELDS: dict[str, Any] = {"x": (int, ...), "of": (Any, object())}
ARRAY: dict[str, Any] = {"x": (np.ndarray, ...), "__config__": {"arbitrary_types_allowed": True}}


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (FIELDS, {**FIELDS, "y": (int, ...)}),
        (FIELDS, {**FIELDS, "y": (int, 0)}),
        (FIELDS, {**FIELDS, "x": (str, ...)}),
        (FIELDS, {**FIELDS, "x": (Annotated[int, Field(gt=5)], ...)}),
        (ARRAY, {**ARRAY, "y": (int, 0)}),  # has no schema
    ],
)
def test_a_class_that_was_changed_since_is_not_filled_with_what_it_was(
    then: dict[str, Any], now: dict[str, Any], any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[Any] = []
    for fields in (then, now):
        made = create_model("Changing", __module__=__name__, **fields)
        monkeypatch.setitem(globals(), "Changing", made)
        caches.append(ExperienceNodeCache(store=any_store, types=[Point, made]))
        if fields is then:
            value: Any = made(x=np.arange(2) if then is ARRAY else 1, of=None)
            caches[0].set({KEY: ([("point", value)], None), (NS, "other"): (Point(x=1), None)})
            assert caches[0].get([KEY])[KEY][0][0] == "point"
    assert caches[1].get([KEY, (NS, "other")]) == {(NS, "other"): Point(x=1)}
    assert caches[1].stats()["unreadable"] == 1


def test_a_class_whose_default_is_a_set_in_another_order_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    classes = [
        create_model("Changing", __module__=__name__, x=(Any, [frozenset(numbers)]))
        for numbers in ([0, 8], [8, 0])  # as the order of words differs between processes
    ]
    writer, reader = (ExperienceNodeCache[Any](store=store, types=[each]) for each in classes)
    monkeypatch.setitem(globals(), "Changing", classes[0])
    writer.set({KEY: (classes[0](x=1), None)})
    monkeypatch.setitem(globals(), "Changing", classes[1])
    assert reader.get([KEY]) == {KEY: classes[1](x=1)}


@pytest.mark.parametrize("value", [Point(x=1), Pair(Point(x=1)), Color.RED, [{"deep": [Point(x=2)]}]])
def test_a_class_that_is_not_named_any_more_does_not_come_back_as_something_else(value: Any, any_store: Store) -> None:
    named: Any = ExperienceNodeCache(store=any_store, types=[Point, Pair, Color])
    named.set({KEY: (value, None)})
    for types in ([], [AIMessage]):
        cache: Any = ExperienceNodeCache(store=any_store, types=types)
        assert cache.get([KEY]) == {}
        assert cache.stats()["unreadable"] == 1
    more: Any = ExperienceNodeCache(store=any_store, types=[Point, AIMessage, Pair, Color])
    assert named.get([KEY]) == more.get([KEY]) == {KEY: value}
