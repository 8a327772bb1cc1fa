"""LongTermStore against LangGraph's own store, in agents, and under writers who disturb each other: LG b, H5, A5."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date, datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.store.base import (
    GetOp,
    IndexConfig,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
    TTLConfig,
)
from langgraph.store.memory import InMemoryStore

from langmem_adapters import ConfigurationError, Embedder, SerializationError, open_index, open_store, open_vectors
from langmem_adapters.erasure import delete_user
from langmem_adapters.errors import Conflict, ModelError, SearchError, StoreError
from langmem_adapters.flow import run
from langmem_adapters.keys import Namespace
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.langgraph import items as stored_items
from langmem_adapters.langgraph.items import NamespaceItems
from langmem_adapters.protocols import Store
from langmem_adapters.records.namespace_tree import NamespaceTree
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.agents import Scripted
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Overtaken, Slow
from tests.loops import ticking
from tests.servers import RedisServer

ADA, BOB = ("memories", "ada"), ("memories", "bob")


def ids() -> Callable[[], str]:
    numbers = count()
    return lambda: str(next(numbers))


def make(store: Store, **settings: Any) -> LongTermStore:
    return LongTermStore(store=store, **settings)


def toy() -> Embedder:
    return Embedder(lambda texts: [[1.0, float("bi" in text), 0.0] for text in texts], name="toy")


def everything(store: LongTermStore, prefix: tuple[str, ...] = ()) -> dict[tuple[tuple[str, ...], str], Any]:
    return {(item.namespace, item.key): item.value for item in store.search(prefix, limit=10_000)}


# --- the same answers as LangGraph's own store --------------------------------------------------------------

_labels = st.sampled_from(["memories", "ada", "bob", "a/b", "%", " ", "*", "故乡"])
_namespaces = st.lists(_labels, min_size=1, max_size=3).map(tuple)
_keys = st.sampled_from(["", "k", "K", "a.b", "\x00", "k/", "census", "故乡", "\ud800"])
_scalars = st.none() | st.integers(0, 3) | st.sampled_from(["red", "shed", "2", 1.5, True])
_values = st.fixed_dictionaries(
    {}, optional={"n": st.integers(0, 3), "color": _scalars, "in": st.fixed_dictionaries({"x": _scalars})}
)
_filters = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "color": _scalars | st.fixed_dictionaries({"$ne": _scalars}) | st.fixed_dictionaries({"$eq": _scalars}),
        "in": st.fixed_dictionaries({"x": _scalars}),
    },
)
_puts = st.builds(PutOp, _namespaces, _keys, _values | st.none(), st.sampled_from([None, False, ["n"]]), st.none())
_gets = st.builds(GetOp, _namespaces, _keys)
_pages: dict[str, Any] = {"limit": st.integers(0, 8), "offset": st.integers(0, 3)}
_searches = st.builds(
    SearchOp, st.lists(_labels, max_size=2).map(tuple), _filters, query=st.sampled_from([None, ""]), **_pages
)
_paths = st.lists(_labels | st.just("*"), max_size=3).map(tuple)
_conditions = st.lists(st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), _paths), max_size=2).map(tuple)
_lists = st.builds(ListNamespacesOp, _conditions | st.none(), st.none() | st.integers(1, 3), **_pages)
_batches = st.lists(st.lists(_puts | _gets | _searches | _lists, max_size=6), max_size=12)


class Oracle:
    """LangGraph's store, without the namespaces that it lists because they were read, or had items once."""

    def __init__(self) -> None:
        self.store = InMemoryStore()

    def batch(self, ops: list[Op]) -> list[Any]:
        results = [None if isinstance(op, PutOp) else self._read(op) for op in ops]
        self.store.batch([op for op in ops if isinstance(op, PutOp)])
        return results

    def _read(self, op: Op) -> Any:
        for namespace in [name for name, items in self.store._data.items() if not items]:
            del self.store._data[namespace]
        return self.store.batch([op._replace(limit=10_000, offset=0) if isinstance(op, SearchOp) else op])[0]


def is_same(op: Op, ours: Any, theirs: Any) -> bool:
    if isinstance(op, GetOp):
        return (ours is None) is (theirs is None) and (ours is None or (ours.value, ours.key) == (theirs.value, op.key))
    if isinstance(op, SearchOp):
        found = [(item.namespace, item.key, item.value) for item in ours]
        times = [item.updated_at for item in ours]
        return (
            len(found) == len(theirs[op.offset : op.offset + op.limit])
            and all(one in [(item.namespace, item.key, item.value) for item in theirs] for one in found)
            and len({item[:2] for item in found}) == len(found)
            and times == sorted(times, reverse=True)
            and all(item.score is None for item in ours)
        )
    return bool(ours == theirs)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(batches=_batches)
def test_it_answers_as_langgraphs_own_store(any_store: Store, batches: list[list[Op]]) -> None:
    clock = FakeClock()
    ours, oracle = make(any_store, tenant=uuid.uuid4().hex, clock=clock), Oracle()
    created: dict[Any, datetime] = {}
    for ops in batches:
        clock.advance(1)
        for op, mine, theirs in zip(ops, ours.batch(ops), oracle.batch(ops), strict=True):
            assert is_same(op, mine, theirs), (op, mine, theirs)
        last = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for where, op in last.items():
            if op.value is None:
                created.pop(where, None)
            else:
                created.setdefault(where, datetime.fromtimestamp(clock(), tz=timezone.utc))
    whole = ours.search((), limit=1000)
    assert {(item.namespace, item.key): item.created_at for item in whole} == created
    pages = [ours.search((), limit=3, offset=offset) for offset in range(0, len(whole) + 3, 3)]
    assert [item for page in pages for item in page] == whole


def test_pages_of_a_query_are_those_of_the_whole_where_items_are_equal(any_store: Store) -> None:
    store = make(any_store)
    places = [ADA, (*ADA, "notes")]
    store.batch([PutOp(place, str(n), {"text": "the bike"}) for n in range(12) for place in places])  # all at once
    whole = [(item.namespace, item.key) for item in store.search(ADA, query="bike", limit=24)]
    pages = [store.search(ADA, query="bike", limit=5, offset=offset) for offset in range(0, 24, 5)]
    assert [(item.namespace, item.key) for page in pages for item in page] == whole
    assert len({*whole}) == 24


@pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
def test_orders_compare_as_langgraphs_own_store_does(operator: str) -> None:
    ours, theirs = make(MemoryStore()), InMemoryStore()
    for store in (ours, theirs):
        for n, value in enumerate([0, 1.5, "2", 3, True]):
            store.put(ADA, str(n), {"n": value})
    for limit in (0, 1, "1.5", 2, 2.5):
        found = [{item.key for item in store.search(ADA, filter={"n": {operator: limit}})} for store in (ours, theirs)]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"$gte": 1, "$lt": 3}, {"1", "2"}),
        ({"$gt": 0, "$ne": 2}, {"1", "3"}),
        ({"x": {"$gt": 1, "$lt": 3}}, {"in 2"}),
        ({}, {"in 1", "in 2", "in 3"}),  # any object, as in LangGraph's own store
    ],
)
def test_all_conditions_of_a_field_must_hold(condition: dict[str, Any], found: set[str]) -> None:
    store = make(MemoryStore())
    for n in range(4):
        store.put(ADA, str(n), {"n": n})
        store.put(ADA, f"in {n}", {"n": {"x": n} if n else None})
    assert {item.key for item in store.search(ADA, filter={"n": condition})} == found


def test_what_has_no_order_is_not_found_and_does_no_harm() -> None:
    store = make(MemoryStore())
    for n, value in enumerate([None, "tall", [1], {"$gt": 1}]):
        store.put(ADA, str(n), {"n": value})
    assert store.search(ADA, filter={"n": {"$gt": 0}}) == []
    assert [item.key for item in store.search(ADA, filter={"n": [1]})] == ["2"]
    assert store.search(ADA, filter={"n": [2]}) == []
    assert {item.key for item in store.search(ADA, filter={"n": {"$ne": None}})} == {"1", "2", "3"}


@pytest.mark.parametrize(
    ("filter_", "named"),
    [
        ({"n": {"$regex": "x"}}, r"\$regex"),
        ({"n": {"$gt": "tall"}}, r"\$gt"),
        ({"a": {"b": {"$in": [1]}}}, r"\$in"),
        ({"n": {"$gt": 1, "depth": 2}}, "depth"),
        ({"n": 1, "$or": [{"n": 1}, {"n": 2}]}, r"\$or"),
        ({"$and": [{"n": 1}]}, r"\$and"),
        ({"$not": {"n": 1}}, r"\$not"),
        ({"$nor": [{"n": 1}]}, r"\$nor"),
    ],
)
def test_an_unknown_operator_is_refused_though_nothing_is_there(filter_: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        make(MemoryStore()).search(ADA, filter=filter_)


def test_a_field_whose_name_begins_like_an_operator_is_a_field() -> None:
    store = make(MemoryStore())
    store.put(ADA, "schema", {"$schema": "draft-07"})
    assert [item.key for item in store.search(ADA, filter={"$schema": "draft-07"})] == ["schema"]


@pytest.mark.parametrize("namespace", [("a.b",), ("",), ("a", "x\x00"), (1,), "ada"])
@pytest.mark.parametrize("kind", ["get", "put", "search", "list"])
def test_labels_that_langgraph_forbids_are_refused_in_a_batch_too(namespace: Any, kind: str) -> None:
    ops: dict[str, Op] = {
        "get": GetOp(namespace, "k"),
        "put": PutOp(namespace, "k", {}),
        "search": SearchOp(namespace),
        "list": ListNamespacesOp((MatchCondition("prefix", namespace),)),
    }
    store = make(MemoryStore())
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(ADA, "k", {}), ops[kind]])
    assert everything(store) == {}  # a batch that is refused has changed nothing


@pytest.mark.parametrize(
    "op",
    [
        SearchOp((), limit=-1),
        ListNamespacesOp(offset=-1),
        ListNamespacesOp((MatchCondition("infix", ("a",)),)),  # type: ignore[arg-type]
        PutOp(ADA, "k", {}, ttl=0),
        "get",
    ],
)
def test_nonsense_is_refused_before_anything_is_written(op: Any) -> None:
    store = make(MemoryStore())
    store.put(BOB, "k", {})
    with pytest.raises(ConfigurationError):
        store.batch([PutOp(ADA, "k", {}), op])
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp((), "k", {})])
    assert everything(store) == {(BOB, "k"): {}}


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        LongTermStore("memory:", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="list of paths"):
        make(MemoryStore(), fields="text")
    with pytest.raises(ConfigurationError, match="tenant is a text, not int"):
        make(MemoryStore(), tenant=42)
    with pytest.raises(ConfigurationError, match="minutes above 0"):
        make(MemoryStore(), ttl={"default_ttl": -1})


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"index": "memory:"}, r"open_vectors\(url, embedder\) gives, or a dictionary with \"embed\", not str$"),
        ({"index": {"dims": 3, "fields": ["text"]}}, "needs an embedding model"),
        ({"index": {"embed": toy(), "distance_type": "l2"}}, "has no distance_type, but dims, embed, fields$"),
        ({"index": {"embed": toy(), "fields": ["text"]}, "fields": ["text"]}, "the fields of a store once"),
        ({"index": {"embed": toy(), "fields": "text"}}, "fields are a list of paths"),
        ({"index": {"embed": len}}, "name"),
        ({"ttl": {"default": 1, "defualt_ttl": 3}}, "has no default, defualt_ttl, but default_ttl, .*refresh_on_read"),
        ({"ttl": {1: 2}}, "has no 1, but"),
        ({"ttl": 3}, "is a dictionary: .*not 3$"),
        ({"ttl": "x"}, "is a dictionary: .*not 'x'$"),
        ({"ttl": 0}, "is a dictionary: .*not 0$"),
        ({"ttl": {"default_ttl": "x"}}, "minutes above 0, not 'x'$"),
        ({"ttl": {"default_ttl": True}}, "minutes above 0, not True$"),
        ({"ttl": {"default_ttl": float("nan")}}, "minutes above 0, not nan$"),
        ({"ttl": {"default_ttl": float("inf")}}, "minutes above 0, not inf$"),
    ],
)
def test_what_langgraphs_own_stores_take_or_would_misread_is_one_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence) as raised:
        make(MemoryStore(), **wrong)
    assert "\n" not in str(raised.value)


def test_every_setting_that_langgraph_has_for_a_ttl_is_one() -> None:
    ttl = cast(TTLConfig, dict.fromkeys(TTLConfig.__annotations__, 1))
    assert make(MemoryStore(), ttl=ttl).ttl_config == ttl
    make(MemoryStore(), ttl={})


@pytest.mark.parametrize(
    ("op", "sentence"),
    [
        (PutOp(ADA, "k", "text"), "value is a dictionary, not str$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", ""), "value is a dictionary, not str$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", [("a", 1)]), "value is a dictionary, not list$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", {}, index="text"), "list of paths, or False, not one str$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", {}, index=True), "list of paths, or False, not one bool$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", {}, index=["text", 1]), "list of paths, or False, not of int$"),  # type: ignore[list-item]
        (SearchOp(ADA, limit="3"), "limit is a whole number"),  # type: ignore[arg-type]
        (SearchOp(ADA, query=5), "a query is a text, not int$"),  # type: ignore[arg-type]
        (SearchOp(ADA, filter="year"), "a filter is a dictionary, not str$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", {}, ttl="5"), "minutes above 0, not '5'$"),  # type: ignore[arg-type]
        (PutOp(ADA, "k", {}, ttl=math.inf), "minutes above 0, not inf$"),
        (PutOp(ADA, "k", {}, ttl=1e308), "minutes above 0, not 1e[+]308$"),
        (PutOp(ADA, "k", {}, ttl=10**400), "minutes above 0, not 1000"),
        (PutOp(ADA, 5, {}), "^the key of an item is a text, not int$"),  # type: ignore[arg-type]
        (PutOp(ADA, None, None), "^the key of an item is a text, not NoneType$"),  # type: ignore[arg-type]
        (GetOp(ADA, ["k"]), "^the key of an item is a text, not list$"),  # type: ignore[arg-type]
        (ListNamespacesOp(max_depth="1"), "max_depth is a whole number"),  # type: ignore[arg-type]
    ],
)
def test_an_item_that_is_none_is_one_sentence_and_nothing_is_written(op: Op, sentence: str) -> None:
    store = make(MemoryStore())
    with pytest.raises(ConfigurationError, match=sentence):
        store.batch([PutOp(BOB, "k", {}), op])
    assert everything(store) == {}


@pytest.mark.parametrize(
    "found_by",
    [
        lambda: {"index": open_vectors("memory:", toy()), "fields": ["text"]},
        lambda: {"index": {"embed": toy(), "dims": 3, "fields": ["text"]}},
        lambda: {"index": {"embed": toy()}, "fields": ["text"]},
    ],
    ids=["vectors", "dictionary", "both"],
)
def test_an_index_of_vectors_finds_items_by_their_meaning(found_by: Callable[[], dict[str, Any]]) -> None:
    store = make(MemoryStore(), **found_by())
    store.put(ADA, "1", {"text": "my bicycle", "more": "x"})
    store.put(ADA, "2", {"text": "my car", "more": "bi"})
    assert store.search(ADA, query="bike")[0].key == "1"
    assert store.search(ADA, query="bike")[1].key == "2"


def test_an_empty_list_in_langgraphs_own_dictionary_finds_by_all_fields() -> None:
    config: IndexConfig = {"embed": DeterministicFakeEmbedding(size=16), "dims": 16, "fields": []}
    for store in (make(MemoryStore(), index=config), InMemoryStore(index=config)):
        store.put(ADA, "k", {"text": "my bicycle"})
        assert [item.score is None for item in store.search(ADA, query="bike")] == [False]


def test_langgraphs_own_dictionary_finds_in_its_order(tmp_path: Path) -> None:
    model = DeterministicFakeEmbedding(size=16)
    config: IndexConfig = {"embed": model, "dims": 16, "fields": ["text"]}
    url = f"sqlite:///{tmp_path / 'store.db'}"
    ours, theirs = LongTermStore(url, index=config), InMemoryStore(index=config)
    for store in (ours, theirs):
        for n in range(20):
            store.put(ADA, str(n), {"text": f"note {n}", "n": n})
    keys = [item.key for item in ours.search(ADA, query="note 7", limit=20)]
    assert keys == [item.key for item in theirs.search(ADA, query="note 7", limit=20)]
    assert keys[0] == "7"
    with closing(sqlite3.connect(tmp_path / "store.db")) as raw:
        assert raw.execute("SELECT count(*) FROM langmem_vector_rows").fetchone() == (20,)


def test_an_embedding_model_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    store = make(MemoryStore(), index={"embed": "openai:text-embedding-3-small", "dims": 1536})
    store.put(ADA, "1", {"text": "my bicycle"})  # which asks nobody
    assert store.get(ADA, "1") is not None
    with pytest.raises(ValueError, match="nobody"):
        make(MemoryStore(), index={"embed": "nobody:model"})


def test_a_value_that_cannot_be_kept_leaves_the_whole_batch_undone(any_store: Store) -> None:
    store = make(any_store)
    with pytest.raises(SerializationError):
        store.batch([PutOp(ADA, "k", {"fine": 1}), PutOp(BOB, "k", {"bad": object()})])
    assert everything(store) == {}


def test_values_are_copies_and_keep_their_types(any_store: Store) -> None:
    store = make(any_store)
    value: dict[str, Any] = {"list": [1, 2.0, None, True], "deep": {"bytes": b"\x00", "day": date(2026, 1, 2)}}
    store.put(ADA, "k", value)
    value["list"].append(3)
    item = store.get(ADA, "k")
    assert item is not None
    assert item.value == {"list": [1, 2.0, None, True], "deep": {"bytes": b"\x00", "day": date(2026, 1, 2)}}
    item.value.clear()
    assert store.get(ADA, "k") == store.search(ADA)[0]
    assert item.created_at.tzinfo is item.updated_at.tzinfo is timezone.utc


# --- finding ------------------------------------------------------------------------------------------------


def test_a_query_finds_words_in_the_fields_that_are_to_be_found(any_store: Store) -> None:
    store = make(any_store)
    store.put(ADA, "bike", {"text": "My bike is in the shed.", "tags": ["blue", "old"], "year": 1999, "kg": 12.75})
    store.put(ADA, "flags", {"sold": True, "buyer": None})
    store.put(ADA, "boat", {"text": "The boat lies in the shed.", "note": "blue"}, index=["text"])
    store.put(ADA, "secret", {"text": "The key of the shed."}, index=False)
    store.put(ADA, "none", {"text": "The door of the shed."}, index=[])
    store.put((*ADA, "deep"), "tree", {"list": [{"text": "shed"}, {"text": "oak"}]}, index=["list[1].text"])

    def found(query: str, **more: Any) -> list[str]:
        return [item.key for item in store.search(ADA, query=query, **more)]

    assert set(found("sheds")) == {"bike", "boat"}
    assert found("blue") == found("1999") == found("12.75") == ["bike"]
    assert found("oak") == ["tree"]
    assert found("text") == found("nothing alike") == found("true none") == []
    assert found("bike shed") == ["bike", "boat"]
    assert found("shed", filter={"year": 1999}) == ["bike"]
    assert found("bike shed", limit=1, offset=1) == ["boat"]
    scores = [item.score for item in store.search(ADA, query="bike shed")]
    assert [score for score in scores if score is not None and 0 < score <= 1] == scores
    assert scores == sorted(scores, key=lambda score: -(score or 0))


@pytest.mark.parametrize("path", ["seen", "seen.when", "{seen,text}", "", "*", "pair[1]"])
def test_a_path_may_lead_to_what_json_has_no_form_for(any_store: Store, path: str) -> None:
    store = make(any_store)
    odd = {"when": date(2026, 1, 2), "by": {b"\x00", "heron"}, 5: (), "\ud800": None, frozenset({1}): 1.5}
    store.put(ADA, "lake", {"text": "A lake.", "seen": odd, "pair": ("oak", date(2026, 1, 2))}, index=[path])
    store.put(ADA, "bike", {"text": "My bike is in the shed."})
    assert [item.key for item in store.search(ADA, query="bike")] == ["bike"], "one item does not hide the others"
    assert [item.key for item in store.search(ADA, query="2026")] == ["lake"]


def test_a_query_follows_changes_and_deletions(any_store: Store) -> None:
    store = make(any_store, fields=["text"])
    other = make(any_store, fields=["text"])  # with an index of its own, as on another machine
    store.put(ADA, "k", {"text": "bike", "hidden": "lake"})
    assert [item.key for item in other.search(ADA, query="bike")] == ["k"]
    assert other.search(ADA, query="lake") == []
    store.put(ADA, "k", {"text": "boat"})
    assert other.search(ADA, query="bike") == []
    assert [item.value for item in other.search(ADA, query="boat")] == [{"text": "boat"}]
    store.delete(ADA, "k")
    assert other.search(ADA, query="boat") == []
    assert other.search(ADA) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    said=st.lists(st.tuples(_namespaces, st.sampled_from(["bike shed", "shed", "dog"])), max_size=10),
    prefix=st.lists(_labels, max_size=2).map(tuple),
    query=st.sampled_from(["bike", "shed", None]),
)
def test_h5_nothing_outside_of_the_prefix_is_found(
    any_store: Store, said: list[tuple[Any, str]], prefix: Any, query: str | None
) -> None:
    store = make(any_store, tenant=uuid.uuid4().hex)
    for n, (namespace, text) in enumerate(said):
        store.put(namespace, str(n), {"text": text})
    found = store.search(prefix, query=query, limit=100)
    wanted = {
        (namespace, str(n))
        for n, (namespace, text) in enumerate(said)
        if namespace[: len(prefix)] == prefix and (query is None or query in text)
    }
    assert {(item.namespace, item.key) for item in found} == wanted


class _Watched(MemoryStore):
    """Remembers which namespaces are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    def _content(self, namespace: tuple[str, ...]) -> Any:
        self.seen.append(namespace[2:])
        return super()._content(namespace)

    def namespaces(self, *_: Any) -> Any:
        raise AssertionError("all namespaces of the store were gone through")


def test_reading_a_prefix_looks_at_nothing_else() -> None:
    watched = _Watched()
    store = make(watched)
    for n in range(50):
        store.put(("memories", f"user{n}"), "k", {"text": "shed"})
    store.put(("memories", "user7", "deep"), "k", {"text": "shed"})
    watched.seen.clear()
    assert len(store.search(("memories", "user7"))) == 2
    assert len(store.search(("memories", "user7"), query="shed")) == 2
    assert store.list_namespaces(prefix=("memories", "user7"), suffix=("deep",)) == [("memories", "user7", "deep")]
    assert store.search(("memories", "nobody")) == []
    places = {"/".join(name) for name in watched.seen}
    assert places == {
        f"{kind}/memories/{name}" for kind in ("items", "tree") for name in ("user7", "user7/deep", "nobody")
    } - {"tree/memories/user7/deep"} | {"tree/memories"}  # where the empty one is asked for by its name
    assert len(watched.seen) < 40


def test_what_a_batch_gets_of_many_namespaces_is_read_in_one_round_trip(distant: tuple[RedisStore, RoundTrips]) -> None:
    store = LongTermStore(store=distant[0], index=open_index("memory:"))
    for n in range(50):
        store.put(("memories", f"u{n}"), "k", {"n": n})
    before = distant[1].count
    found: list[Any] = store.batch([GetOp(("memories", f"u{n}"), "k") for n in range(51)])
    assert distant[1].count - before == 1
    assert [item and item.value["n"] for item in found] == [*range(50), None]


def test_the_namespaces_of_a_listing_share_round_trips(distant: tuple[RedisStore, RoundTrips]) -> None:
    store = LongTermStore(store=distant[0], index=open_index("memory:"))
    for n in range(50):
        store.put(("memories", f"u{n:02}"), "k", {"n": n})
    for n in range(0, 50, 25):
        store.delete(("memories", f"u{n:02}"), "k")
    places = [("memories", f"u{n:02}") for n in range(50) if n % 25]
    assert store.list_namespaces() == places
    before = distant[1].count
    assert store.list_namespaces() == places
    assert distant[1].count - before == 3  # the root, its child, and whether the namespaces have items
    before = distant[1].count
    assert store.sweep_ttl() == 0
    assert distant[1].count - before == 4  # the same, once for what has expired and once for what is empty


def test_the_namespaces_of_a_search_share_round_trips(distant: tuple[RedisStore, RoundTrips]) -> None:
    store = LongTermStore(store=distant[0], index=open_index("memory:"))
    for n in range(50):
        store.put(("memories", f"u{n:02}", "facts"), "k", {"n": n})
    before = distant[1].count
    assert [item.value["n"] for item in store.search((), limit=50)] == [*range(49, -1, -1)]
    assert distant[1].count - before == 4  # three nodes deep, and the items
    before = distant[1].count
    assert [item.value["n"] for item in store.search(("memories", "u07"))] == [7]
    assert distant[1].count - before == 3  # one node and no items there, that it is no listed place, the items
    before = distant[1].count
    assert [item.value["n"] for item in store.search(("memories", "u07", "facts"))] == [7]
    assert distant[1].count - before == 1  # the items, and that there is nothing below


def test_the_namespaces_of_a_search_by_words_share_round_trips(distant: tuple[RedisStore, RoundTrips]) -> None:
    store = LongTermStore(store=distant[0], index=open_index("memory:"))
    for n in range(50):
        store.put(("memories", f"u{n:02}"), "k", {"text": f"Key {n} hangs at the door."})
    assert len(store.search((), query="door", limit=60)) == 50
    before = distant[1].count
    assert len(store.search((), query="door", limit=60)) == 50
    assert distant[1].count - before == 3  # two nodes deep, and the items with the ends of their logs
    before = distant[1].count
    assert len(store.search(("memories", "u07"), query="door")) == 1
    assert distant[1].count - before == 1  # the items, and that there is nothing below


@pytest.mark.parametrize("filter_", [None, {"kind": 1}, {"kind": 7}])
def test_the_last_updated_of_many_items_are_the_same_however_they_are_found(
    any_store: Store, filter_: dict[str, Any] | None
) -> None:
    clock = FakeClock()
    store, fresh = make(any_store, clock=clock), make(any_store, clock=clock)
    for n in range(600):
        clock.advance(1)
        store.put(ADA, f"k{n}", {"n": n, "kind": n % 7})
    for n in range(0, 600, 5):
        clock.advance(1)
        if n % 3:
            store.put(ADA, f"k{n}", {"n": n, "kind": 1})
        else:
            store.delete(ADA, f"k{n}")
    store.search(ADA)  # now it knows that there are many
    for offset in (0, 10, 25):
        found = store.search(ADA, filter=filter_, limit=10, offset=offset)
        assert found == fresh.search(ADA, filter=filter_, limit=700)[offset : offset + 10]


def test_pages_of_many_items_of_one_time_hold_each_item_once() -> None:
    clock = FakeClock()
    store = make(MemoryStore(), clock=clock)
    for n in range(400):
        store.put(ADA, f"{n * 77 % 400:03}", {})
    store.search(ADA)  # now it knows that there are many
    pages = [store.search(ADA, offset=offset) for offset in range(0, 400, 10)]
    assert [item.key for page in pages for item in page] == [f"{n:03}" for n in range(400)]


def test_the_last_updated_of_many_items_are_found_without_reading_all(distant: tuple[RedisStore, RoundTrips]) -> None:
    store = LongTermStore(store=distant[0], index=open_index("memory:"))
    store.batch([PutOp(ADA, f"k{n}", {"text": "x" * 100}) for n in range(400)])
    for n in range(10):
        store.put(ADA, f"new{n}", {"text": "x" * 100})
    newest = [f"new{n}" for n in range(9, -1, -1)]
    assert [item.key for item in store.search(ADA)] == newest
    sent = len(distant[1].sent)
    assert [item.key for item in store.search(ADA)] == newest
    assert b"{langgraph//items/" not in distant[1].sent[sent:].partition(b"HGETALL")[2].partition(b"HGETALL")[2]


def test_the_first_of_many_items_of_one_batch_are_found_without_reading_all(
    distant: tuple[RedisStore, RoundTrips],
) -> None:
    clock = FakeClock()
    store = LongTermStore(store=distant[0], index=open_index("memory:"), clock=clock)
    store.batch([PutOp(ADA, f"{n * 77 % 2000:04}", {"odd": n % 2}) for n in range(2000)])
    clock.advance(1)
    store.batch([PutOp(ADA, key, None if key == "0000" else {"odd": 0}) for key in ("1999", "0000", "0002", "0001")])
    keys = ["0001", "0002", "1999", *(f"{n:04}" for n in range(3, 1999))]
    store.search(ADA)  # now it knows that there are many
    sent = len(distant[1].sent)
    assert [item.key for item in store.search(ADA)] == keys[:10]
    assert [item.key for item in store.search(ADA, offset=10)] == keys[10:20]
    assert distant[1].sent[sent:].count(b"HGETALL") == 2  # of the tree of namespaces
    assert [item.key for item in store.search(ADA, filter={"odd": 1})] == [f"{n:04}" for n in range(3, 22, 2)]


@pytest.mark.parametrize(("first", "later", "count", "entries"), [("z", "a", 500, 2), ("a", "z", 100, 1)])
def test_items_that_were_logged_again_are_not_the_last_updated(
    distant: tuple[RedisStore, RoundTrips], first: str, later: str, count: int, entries: int
) -> None:
    clock = FakeClock()
    place = ("langgraph", "", "items", *ADA)
    store = LongTermStore(store=distant[0], index=open_index("memory:"), clock=clock)
    store.batch([PutOp(ADA, f"{first}{n:03}", {"text": "bike"}) for n in range(count)])
    clock.advance(1)
    store.batch([PutOp(ADA, f"{later}{n:03}", {"text": "bike"}) for n in range(200)])
    store.search(ADA, query="bike")
    distant[0].write(place, remove=distant[0].scan(place).items)  # as where a server has evicted the log alone
    store.search(ADA, query="bike")
    assert distant[0].scan(place).total == entries  # the last names those that were updated first, or both
    for _ in range(2):
        assert [item.key for item in store.search(ADA)] == [f"{later}{n:03}" for n in range(10)]


def test_a_sweep_reads_no_item_where_none_can_have_expired(distant: tuple[RedisStore, RoundTrips]) -> None:
    clock = FakeClock()
    store = LongTermStore(store=distant[0], index=open_index("memory:"), clock=clock)
    store.put(("memories", "ada"), "lasts", {"text": "x" * 10_000})
    store.put(("memories", "bob"), "expires", {"text": "x"}, ttl=1)
    sent = len(distant[1].sent)
    assert store.sweep_ttl() == 0
    assert b"HGETALL" not in distant[1].sent[sent:].partition(b"items")[2]
    clock.advance(60)
    assert store.sweep_ttl() == 1
    assert store.list_namespaces() == [("memories", "ada")]


def test_the_first_item_of_a_namespace_takes_five_round_trips_and_the_next_three(
    distant: tuple[RedisStore, RoundTrips],
) -> None:
    store = LongTermStore(store=distant[0], index=open_index("memory:"))
    before = distant[1].count
    store.put(("memories", "ada", "facts"), "k", {"text": "bike"})
    assert distant[1].count - before == 5  # a look, the tree, the item under a watch, and the tree again
    before = distant[1].count
    store.put(("memories", "ada", "facts"), "k2", {"text": "shed"})
    assert distant[1].count - before == 3  # a look, and the item under a watch
    assert store.list_namespaces() == [("memories", "ada", "facts")]


def test_tenants_do_not_meet(any_store: Store) -> None:
    one, two = make(any_store, tenant="one"), make(any_store, tenant="two")
    one.put(ADA, "k", {"text": "shed"})
    assert two.get(ADA, "k") is None
    assert two.search((), query="shed") == two.search(()) == two.list_namespaces() == []
    two.delete(ADA, "k")
    assert one.get(ADA, "k") is not None


SOUND: dict[str, Any] = {"v": 1, "value": {"text": "shed"}, "created_at": 5.0, "updated_at": 5.0, "ttl": 9.0}
WRONG_FIELDS = [
    json.dumps({**SOUND, name: value}).encode()
    for names, values in (
        (("created_at", "updated_at"), (None, "5", 1e300, True)),
        (("ttl", "expires_at"), ("9", [9], True, math.nan, math.inf, 10**400)),
        (("fields",), (5, "text", [5], {"text": 1})),
        (("value",), ("shed", ["shed"], None, 5)),
    )
    for name in names
    for value in values
]


def test_the_best_of_several_namespaces_comes_first(any_store: Store) -> None:
    store = make(any_store)
    for label, text in (("a", "The bike is here."), ("b", "The red bike is here."), ("c", "The red car is here.")):
        store.put(("notes", label), "key", {"text": text})
    assert store.search(("notes",), query="red bike", limit=1)[0].namespace == ("notes", "b")


def test_a_damaged_item_does_not_take_the_others_along(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store = make(any_store)
    store.put(ADA, "good", {"text": "shed"})
    place = ("langgraph", "", "items", *ADA)
    for n, damage in enumerate(
        [b"\xff", b"[]", b'{"v": 2}', b'{"v": 1, "value": 3}', b'{"v": 1, "value": {}, "x": 1}', *WRONG_FIELDS]
    ):
        any_store.write(place, put={f"bad{n}/": damage}, append=[(f"bad{n}", b'["bad%d/"]' % n)])
    assert set(everything(store)) == {(ADA, "good")}
    assert [item.key for item in store.search(ADA, query="shed")] == ["good"]
    assert store.get(ADA, "bad0") is None
    assert "damaged" in caplog.text
    assert "shed" not in caplog.text
    store.put(ADA, "bad0", {"text": "healed"})
    assert set(everything(store)) == {(ADA, "good"), (ADA, "bad0")}
    assert {item.key for item in store.search(ADA, query="shed healed")} == {"good", "bad0"}
    any_store.write(place, put={"bad0/": b"\xff"})  # which has been indexed
    assert [item.key for item in store.search(ADA, query="shed healed")] == ["good"]


@pytest.mark.parametrize("damaged", ["items ada", "items a/b/", "below", "\N{REPLACEMENT CHARACTER}"])
def test_a_damaged_name_of_a_namespace_takes_neither_the_others_nor_a_deletion_along(
    any_store: Store, caplog: pytest.LogCaptureFixture, damaged: str
) -> None:
    store = make(any_store)
    store.put(ADA, "good", {"text": "shed"})
    for node in ((), ADA[:-1]):
        any_store.write(("langgraph", "", "tree", *node), put={damaged: b"1"})
    assert set(everything(store)) == {(ADA, "good")}
    assert store.list_namespaces() == [ADA]
    assert "is not listed until an item is put there" in caplog.text
    delete_user(any_store, user="ada", items=[ADA])
    assert store.list_namespaces() == []


# --- expiry -------------------------------------------------------------------------------------------------

KINDS = ["memory", "sqlite"]  # whose clock a test can set


def timed(kind: str, tmp_path: Path, clock: FakeClock) -> Store:
    from langmem_adapters.stores.sqlite import SQLiteStore  # noqa: PLC0415 - one of the two

    return MemoryStore(clock=clock) if kind == "memory" else SQLiteStore(tmp_path / "store.db", clock=clock)


@pytest.mark.own
@pytest.mark.parametrize(
    "damage",
    [
        *(b"\xff", b"[]", b"null", b'{"count": 1, "of a later version": 2}'),
        *(b'{"count": "3"}', b'{"count": -3}', b'{"count": 3, "last": []}', b'{"count": 3, "tidied": null}'),
        *(b'{"count": 3, "due": NaN}', b'{"count": 3, "last": Infinity}', b"{}", b'{"tidied": 3}'),
    ],
)
@pytest.mark.parametrize("first", ["search", "query", "list", "sweep", "put", "delete", "delete one", "get"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_count_of_a_namespace_is_made_anew_of_its_items(
    kind: str, damage: bytes, first: str, tmp_path: Path
) -> None:
    clock = FakeClock()
    kept = timed(kind, tmp_path, clock)
    store = make(kept, clock=clock)
    for n in range(3):
        store.put(ADA, f"{n}", {"text": "shed"}, ttl=(None, 1.0, 10.0)[n])
    store.put(BOB, "k", {"text": "shed"})
    clock.advance(120)
    place = ("langgraph", "", "items", *ADA)
    kept.write(place, put={"census": damage})
    uses: dict[str, Callable[[], object]] = {
        "search": lambda: store.search(()),
        "query": lambda: store.search((), query="shed"),
        "list": store.list_namespaces,
        "sweep": store.sweep_ttl,
        "put": lambda: store.put(ADA, "0", {"text": "shed"}),
        "delete": lambda: store.delete(ADA, "no such key"),
        "delete one": lambda: store.delete(ADA, "1"),
        "get": lambda: store.get(ADA, "2"),
    }
    uses[first]()
    clock.advance(70)
    assert set(everything(store)) == {(ADA, "0"), (ADA, "2"), (BOB, "k")}
    assert store.list_namespaces() == [ADA, BOB]
    assert {(item.namespace, item.key) for item in store.search((), query="shed")} == set(everything(store))
    for key in ("0", "2"):
        store.delete(ADA, key)
    assert store.list_namespaces() == [BOB]
    store.put(ADA, "new", {"text": "shed"})
    assert set(everything(store)) == {(ADA, "new"), (BOB, "k")}


def test_a_count_that_says_too_little_keeps_no_item_from_being_deleted(any_store: Store) -> None:
    store = make(any_store)
    for key in ("left", "gone"):
        store.put(ADA, key, {"text": "shed"})
    any_store.write(("langgraph", "", "items", *ADA), put={"census": b'{"count": 0}'})
    store.delete(ADA, "gone")
    assert store.get(ADA, "gone") is None
    assert store.get(ADA, "left") is not None


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_namespace_whose_count_is_damaged_goes(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    kept = timed(kind, tmp_path, clock)
    store = make(kept, clock=clock)
    store.put(ADA, "k", {"text": "shed"})
    store.delete(ADA, "k")
    place = ("langgraph", "", "items", *ADA)
    kept.write(place, put={"census": b"\xff"})
    assert store.list_namespaces() == []
    clock.advance(61)
    assert list(kept.namespaces()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_item_expires_and_is_refreshed_by_reading(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    store = make(timed(kind, tmp_path, clock), clock=clock, ttl={"default_ttl": 10})
    store.put(ADA, "read", {"text": "shed"})
    store.put(ADA, "found", {"text": "oak"})
    store.put(ADA, "left", {"text": "lake"})
    store.put(ADA, "stays", {"text": "stone"}, ttl=None)
    store.put(ADA, "short", {"text": "mud"}, ttl=1)
    for _ in range(4):
        clock.advance(5 * 60)
        assert store.get(ADA, "read") is not None
        assert [item.key for item in store.search(ADA, query="oak")] == ["found"]
        assert store.get(ADA, "short", refresh_ttl=False) is None
    assert store.get(ADA, "left") is None
    assert store.search(ADA, query="lake") == []
    assert {key for _, key in everything(store)} == {"read", "found", "stays"}
    clock.advance(9 * 60)
    assert len(store.search(ADA, refresh_ttl=False)) == 3
    assert store.get(ADA, "read", refresh_ttl=False) is not None
    clock.advance(2 * 60)
    assert {key for _, key in everything(store)} == {"stays"}
    clock.advance(1e9)
    assert {key for _, key in everything(store)} == {"stays"}


def test_other_fields_than_before_are_looked_into_after_a_restart(any_store: Store, tmp_path: Path) -> None:
    index = open_index(f"sqlite:///{tmp_path / 'index.db'}")

    def found(fields: list[str] | None, query: str) -> list[str]:
        return sorted(item.key for item in make(any_store, index=index, fields=fields).search(ADA, query=query))

    make(any_store, index=index).put(ADA, "1", {"title": "apple", "secret": "pear"})
    make(any_store, index=index).put(ADA, "own", {"secret": "pear"}, index=["secret"])
    assert found(None, "pear") == ["1", "own"]
    assert found(["title"], "pear") == ["own"]
    assert len(index.search(("langgraph", "", "items", *ADA), "pear", 5)) == 1  # nor is the word kept anywhere
    make(any_store, index=index, fields=["title"]).put(ADA, "2", {"title": "apple", "secret": "pear"})
    assert (found(["title"], "apple"), found(["title"], "pear")) == (["1", "2"], ["own"])
    assert found(["title", "secret"], "pear") == ["1", "2", "own"]
    assert found(None, "apple") == ["1", "2"]


def test_with_the_same_fields_nothing_is_indexed_anew(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    index = open_index("memory:")
    with caplog.at_level(logging.INFO):
        for n in range(3):
            store = make(any_store, index=index, fields=["title"])
            store.put(ADA, f"{n}", {"title": "apple"})
            assert len(store.search(ADA, query="apple")) == n + 1
    assert "is rebuilt" not in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_reading_refreshes_only_if_it_is_configured(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    store = make(timed(kind, tmp_path, clock), clock=clock, ttl={"default_ttl": 10, "refresh_on_read": False})
    store.put(ADA, "a", {})
    store.put(ADA, "b", {})
    clock.advance(9 * 60)
    assert store.get(ADA, "a", refresh_ttl=True) is not None
    assert store.get(ADA, "b") is not None
    clock.advance(9 * 60)
    assert store.get(ADA, "b") is None
    assert store.get(ADA, "a") is not None


def test_what_has_expired_by_the_clock_of_this_machine_alone_can_be_deleted(any_store: Store) -> None:
    clock = FakeClock(time.time())
    store = make(any_store, clock=clock)
    for key in ("a", "b"):
        store.put(ADA, key, {}, ttl=1)
    clock.advance(120)
    store.delete(ADA, "a")
    assert everything(store) == {}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["search", "list", "sweep", "write", "nothing"])
def test_what_has_expired_is_gone_for_good(kind: str, how: str, tmp_path: Path) -> None:
    clock = FakeClock()
    inner = timed(kind, tmp_path, clock)
    store = make(inner, clock=clock)
    store.put(ADA, "gone", {"text": "planted"}, ttl=5)
    if how != "nothing":
        store.put(ADA, "stays", {"text": "stone"})
    clock.advance(6 * 60)
    if how == "search":
        assert len(store.search(ADA)) == 1
    elif how == "list":
        assert store.list_namespaces() == [ADA]
    elif how == "sweep":
        assert store.sweep_ttl() == 1
        assert store.sweep_ttl() == 0
    elif how == "write":
        for n in range(100):
            store.put(ADA, "stays", {"text": f"stone {n}"})
    else:
        for n in range(300):
            store.put(BOB, str(n), {})  # the whole namespace has expired, and the store forgets it beside writes
    place = ("langgraph", "", "items", *ADA)
    assert b"planted" not in b"".join(inner.get(place).values())
    if how == "nothing":
        assert place not in list(inner.namespaces())
        assert store.list_namespaces() == [BOB]


@pytest.mark.parametrize("kind", KINDS)
def test_a_namespace_that_was_emptied_leaves_no_name_behind(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    inner = timed(kind, tmp_path, clock)
    index = open_index("memory:")
    store = make(inner, clock=clock, index=index)
    deep = ("memories", "eve", "a", "b")
    store.put(deep, "k", {"text": "shed"})
    store.put(ADA, "k", {"text": "shed"})
    assert len(store.search((), query="shed")) == 2
    store.delete(deep, "k")
    assert store.list_namespaces() == [ADA]
    assert index.position(("langgraph", "", "items", *deep)) is None
    clock.advance(61)
    assert store.list_namespaces() == [ADA], "the branch that both were on stays"
    for n in range(300):
        store.put(ADA, str(n), {})
    assert not [name for name in inner.namespaces() if "eve" in name]
    assert "eve" not in str(inner.get(("langgraph", "", "tree", "memories")))
    store.put(deep, "again", {})
    assert set(store.list_namespaces()) == {ADA, deep}


@pytest.mark.parametrize("kind", KINDS)
def test_a_namespace_that_was_emptied_goes_though_nobody_looks(kind: str, tmp_path: Path) -> None:
    clock = FakeClock()
    inner = timed(kind, tmp_path, clock)
    store = make(inner, clock=clock)
    store.put(BOB, "k", {})
    store.delete(BOB, "k")
    clock.advance(61)
    for n in range(300):
        store.put(ADA, str(n), {})
    assert ("langgraph", "", "items", *BOB) not in list(inner.namespaces())


def test_an_emptied_namespace_that_is_filled_again_stays(any_store: Store) -> None:
    clock = FakeClock()
    store = make(any_store, clock=clock)
    for round_ in range(3):
        store.put(ADA, "k", {"round": round_})
        store.put(ADA, "l", {}, ttl=1)
        store.delete(ADA, "k")
        store.delete(ADA, "l")
        assert store.search(()) == store.list_namespaces() == []
    store.put(ADA, "k", {"round": 3})
    assert store.list_namespaces() == [ADA]
    assert everything(store) == {(ADA, "k"): {"round": 3}}


def test_the_last_lasting_item_does_not_keep_the_others_for_ever(any_store: Store) -> None:
    clock = FakeClock()
    store = make(any_store, clock=clock)
    store.put(ADA, "stays", {})
    store.put(ADA, "goes", {}, ttl=5)
    store.delete(ADA, "stays")
    clock.advance(400)
    assert store.list_namespaces() == []
    assert store.search(()) == []


def test_an_item_that_is_to_stay_does_not_expire_with_the_others(tmp_path: Path) -> None:
    clock = FakeClock()
    store = make(timed("sqlite", tmp_path, clock), clock=clock)
    store.put(ADA, "k", {}, ttl=5)
    store.put(ADA, "k", {})
    store.put(ADA, "other", {}, ttl=5)
    clock.advance(600)
    assert set(everything(store)) == {(ADA, "k")}
    store.put(ADA, "third", {}, ttl=5)
    clock.advance(600)
    assert set(everything(store)) == {(ADA, "k")}


def test_a_log_stays_in_proportion_to_the_items(any_store: Store) -> None:
    store = make(any_store)
    other = make(any_store)
    for n in range(500):
        store.put(ADA, "counter", {"text": f"number {n}"})
        if n % 3 == 0:
            store.put(ADA, f"k{n}", {"text": "brief"})
            store.delete(ADA, f"k{n}")
        if n == 250:
            assert len(other.search(ADA, query="number")) == 1
    assert any_store.scan(("langgraph", "", "items", *ADA), limit=0).total < 200
    for each in (store, other):
        assert [item.value for item in each.search(ADA, query="number 499")] == [{"text": "number 499"}]
        assert each.search(ADA, query="brief") == []
        assert each.search(ADA, query="250") == []


def test_what_expires_does_not_pile_up_where_only_queries_search(any_store: Store) -> None:
    clock = FakeClock()
    store = make(any_store, ttl={"default_ttl": 10, "refresh_on_read": False}, clock=clock)
    place = ("langgraph", "", "items", *ADA)
    for n in range(400):
        clock.advance(60)
        store.put(ADA, f"k{n}", {"text": f"the bike number {n}"})
        if n % 20 == 0:
            assert len(store.search(ADA, query="bike", limit=20)) == min(n + 1, 10)
    assert len(any_store.get(place)) < 200
    assert any_store.scan(place, limit=0).total < 400


def test_items_of_which_none_has_expired_are_not_gone_through_at_each_put(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, kept = FakeClock(), MemoryStore()
    store = make(kept, ttl={"default_ttl": 1}, clock=clock)
    for n in range(200):
        store.put(ADA, f"k{n}", {"text": "bike"}, ttl=1 if n == 0 else 1000)
    clock.advance(61)
    tidied = []
    monkeypatch.setattr(NamespaceItems, "_tidy", lambda items, tidy=NamespaceItems._tidy: tidied.append(tidy(items)))
    for n in range(200, 230):
        store.put(ADA, f"k{n}", {"text": "bike"}, ttl=1 if n < 210 else 1000)
        clock.advance(10)
    assert tidied == [1]


def test_an_index_keeps_nothing_of_what_the_log_has_forgotten(any_store: Store) -> None:
    index = open_index("memory:")
    store = make(any_store, index=index)
    store.put(ADA, "k", {"text": "planted"})
    store.put(ADA, "stays", {"text": "stone"})
    assert len(store.search(ADA, query="planted")) == 1
    store.delete(ADA, "k")
    for n in range(150):
        store.put(ADA, "counter", {"text": f"number {n}"})
    assert len(store.search(ADA, query="stone")) == 1
    assert index.search(("langgraph", "", "items", *ADA), "planted", 5) == []


# --- an index that is away -----------------------------------------------------------------------------------


class _Embedder:
    """Counts the letters a and b, unless it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.asked = 0

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += 1
        if self.is_away:
            raise ConnectionError
        return [[1.0 + text.count("a"), 1.0 + text.count("b")] for text in texts]


def test_what_is_written_and_read_needs_no_embedder(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    clock, embedder = FakeClock(), _Embedder()
    store = make(any_store, clock=clock, index=open_vectors("memory:", Embedder(embedder, name="letters")))
    store.put(ADA, "often", {"text": "aaa"})
    store.put(ADA, "gone", {"text": "b"}, ttl=1)
    assert len(store.search(ADA, query="a")) == 2
    embedder.is_away, asked = True, embedder.asked
    for n in range(200):
        store.put(ADA, "often", {"text": f"aaa {n}"})
        store.batch(iter([PutOp(ADA, "also", {"text": f"aab {n}"}), PutOp(BOB, "k", {"text": f"{n}"})]))
    store.put(BOB, "k", {"text": "b"}, ttl=1)
    clock.advance(61)
    assert {item.key for item in store.search(ADA)} == {"often", "also"}
    assert store.search(BOB) == []
    assert store.list_namespaces() == [ADA]
    store.put(ADA, "gone", {"text": "b"}, ttl=1)
    clock.advance(61)
    assert store.sweep_ttl() == 1
    assert embedder.asked == asked
    assert any_store.scan(("langgraph", "", "items", *ADA), limit=0).total < 200
    assert not caplog.records
    with pytest.raises(ModelError):
        store.search(ADA, query="a")
    embedder.is_away = False
    assert [item.value["text"] for item in store.search(ADA, query="aaa")] == ["aaa 199", "aab 199"]


def test_a_damaged_index_is_needed_by_queries_alone(any_store: Store, tmp_path: Path) -> None:
    damaged = tmp_path / "index.db"
    damaged.write_bytes(b"garbage" * 1000)
    store = make(any_store, index=open_index(f"sqlite:///{damaged}"))
    for n in range(100):
        store.put(ADA, "k", {"n": n})
    store.put(BOB, "k", {"n": 1})
    store.delete(ADA, "k")
    assert store.list_namespaces() == [BOB]
    assert (store.search(ADA), len(store.search(BOB))) == ([], 1)
    with pytest.raises(SearchError):
        store.search(BOB, query="1")


def test_the_index_of_an_emptied_namespace_is_cleared_once_that_can_be_done(
    any_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    index, place = open_index("memory:"), ("langgraph", "", "items", *ADA)
    store = make(any_store, index=index)
    store.put(ADA, "k", {"text": "shed"})
    assert store.search(ADA, query="shed")
    store.delete(ADA, "k")

    def fail(_: Any) -> None:
        raise SearchError("the index is away")

    with monkeypatch.context() as patch:
        patch.setattr(index, "clear", fail)
        assert store.list_namespaces() == []
    assert "could not be cleared; this will be tried again: the index is away" in caplog.text
    assert index.search(place, "shed", 1)
    assert store.list_namespaces() == []
    assert index.search(place, "shed", 1) == []


def test_a_log_that_cannot_be_tidied_fails_no_write_that_is_done(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryStore):
        def write(self, namespace: tuple[str, ...], **change: Any) -> None:
            if change.get("remove"):
                raise StoreError("the disk is full")
            super().write(namespace, **change)

    store = make(Full())
    for n in range(100):
        store.batch([PutOp(ADA, "k", {"n": n}), PutOp(BOB, "k", {"n": n})])
    assert everything(store) == {(ADA, "k"): {"n": 99}, (BOB, "k"): {"n": 99}}
    assert "could not be tidied; this will be tried again: the disk is full" in caplog.text


@pytest.mark.parametrize("look", ["list", "sweep", "search", "get"])
def test_a_full_store_answers_reads_that_would_write(look: str) -> None:
    class Full(MemoryStore):
        is_full = False

        def write(self, namespace: tuple[str, ...], **change: Any) -> None:
            if self.is_full:
                raise StoreError("the disk is full")
            super().write(namespace, **change)

    clock = FakeClock()
    inner = Full(clock=clock)
    store = make(inner, clock=clock)
    store.put(ADA, "k", {}, ttl=1)
    for place in (BOB, (*ADA, "emptied")):
        store.put(place, "k", {})
        store.delete(place, "k")
    clock.advance(30)  # a read would refresh the item, and forget the namespaces that were emptied
    inner.is_full = True
    answers: dict[str, Callable[[], object]] = {
        "list": store.list_namespaces,
        "sweep": store.sweep_ttl,
        "search": lambda: [item.key for item in store.search(())],
        "get": lambda: store.get(ADA, "k") is not None,
    }
    assert answers[look]() == {"list": [ADA], "sweep": 0, "search": ["k"], "get": True}[look]


# --- writers who disturb each other -------------------------------------------------------------------------


class _Counted(MemoryStore):
    """Counts writes, and how many of them were in vain."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock=clock)
        self.writes = self.conflicts = 0
        self.at_scan: Callable[[], None] | None = None

    def scan(self, *args: Any, **bounds: Any) -> Any:
        page = super().scan(*args, **bounds)
        if self.at_scan:
            at_scan, self.at_scan = self.at_scan, None
            at_scan()
        return page

    def write(self, namespace: tuple[str, ...], **change: Any) -> None:
        self.writes += 1
        try:
            super().write(namespace, **change)
        except Conflict:
            self.conflicts += 1
            raise


def test_writers_of_one_process_wait_for_each_other() -> None:
    inner = _Counted()
    store = make(inner)
    second = threading.Thread(target=lambda: store.put(ADA, "second", {}))

    def come_in_between() -> None:
        second.start()
        second.join(0.2)

    inner.at_scan = come_in_between
    store.put(ADA, "first", {})
    second.join(60)
    assert set(everything(store)) == {(ADA, "first"), (ADA, "second")}
    assert inner.conflicts == 0


def test_a_writer_does_not_wait_for_ever_for_one_that_is_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_items, "_LOCK_TIMEOUT_SECONDS", 0.0)
    store = make(MemoryStore())
    held_up = threading.Thread(target=store._items(ADA)._write_lock._process_lock().acquire)
    held_up.start()
    held_up.join()
    store.put(ADA, "k", {})
    assert set(everything(store)) == {(ADA, "k")}


def test_writers_of_several_processes_make_way_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = _Counted()
    store, elsewhere = make(inner), make(inner)
    pauses: list[float] = []

    def busy() -> None:
        elsewhere.put(ADA, f"k{len(pauses)}", {})
        if len(pauses) < 8:
            inner.at_scan = busy

    monkeypatch.setattr("time.sleep", pauses.append)
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    inner.at_scan = busy
    store.put(ADA, "k", {})
    assert len(everything(store)) == 10
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05, 0.05]


def test_reads_write_only_once_a_tenth_of_a_ttl_is_gone() -> None:
    clock = FakeClock()
    inner = _Counted(clock)
    store = make(inner, clock=clock, ttl={"default_ttl": 10})
    store.put(ADA, "k", {"text": "shed"})
    written = inner.writes
    clock.advance(59)
    assert store.get(ADA, "k")
    assert store.search(ADA)
    assert inner.writes == written
    clock.advance(1)
    assert store.search(ADA)
    assert store.get(ADA, "k")
    assert inner.writes == written + 1
    clock.advance(599)
    assert store.get(ADA, "k")


def test_no_write_of_many_threads_is_lost(any_store: Store) -> None:
    def write(worker: int) -> None:
        store = make(any_store)
        for n in range(20):
            store.batch([PutOp(ADA, f"{worker}-{n}", {"n": n}), PutOp((*ADA, f"{worker}"), str(n), {})])
            store.put(ADA, "shared", {"by": worker})
            store.delete(ADA, f"{worker}-{n - 1}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    store = make(any_store)
    assert {item.key for item in store.search(ADA, limit=1000) if item.namespace == ADA} == {
        "shared",
        *(f"{worker}-19" for worker in range(8)),
    }
    assert len(everything(store)) == 9 + 160
    assert len(store.list_namespaces()) == 9
    for key in [key for (namespace, key) in everything(store) if namespace == ADA]:
        store.delete(ADA, key)
    assert ADA not in store.list_namespaces()


def test_no_namespace_is_lost_while_others_are_emptied_and_listed(any_store: Store) -> None:
    names = [("a", "b", "c"), ("a", "b"), ("a", "x", "y")]

    def disturb(worker: int) -> None:
        store = make(any_store)
        for n in range(25):
            name = names[(worker + n) % 3]
            store.put(name, f"{worker}", {})
            if n % 3 == 0:
                store.list_namespaces()
            store.delete(name, f"{worker}")
        store.put(names[worker % 3], f"last-{worker}", {})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(disturb, range(4)))
    assert {key for _, key in everything(make(any_store))} == {f"last-{n}" for n in range(4)}


def test_a_branch_that_grows_while_it_is_removed_stays(any_store: Store) -> None:
    tree = NamespaceTree(any_store, ("tree",), new_id=ids())
    name = ("a", "b", "c")

    def grow_same() -> bool:
        tree.add(name)
        return True

    tree.add(name)
    tree.remove(name, only_if=grow_same)
    assert run(tree.below(())) == [name]

    def grow_sibling() -> bool:
        tree.add(("a", "b", "d"))
        return True

    tree.remove(name, only_if=grow_sibling)
    assert ("a", "b", "d") in run(tree.below(()))
    tree.remove(name, only_if=lambda: False)
    assert name in run(tree.below(()))
    tree.remove(name, only_if=lambda: True)
    assert run(tree.below(())) == [("a", "b", "d")]
    tree.remove(("a", "b", "d"), only_if=lambda: True)
    assert run(tree.below(())) == []
    assert any_store.get(("tree",)) == any_store.get(("tree", "a")) == {}


@pytest.mark.parametrize("look", ["sweep_ttl", "list_namespaces"])
def test_removing_many_namespaces_reads_each_of_the_others_a_few_times(look: str) -> None:
    class Counting(MemoryStore):
        read = 0

        def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
            found = super().get(namespace, keys)
            self.read += len(found)
            return found

    clock = FakeClock()
    inner = Counting(clock=clock)
    store, users = make(inner, clock=clock), 600
    for n in range(users):
        store.put(("memories", f"{n}"), "k", {}, ttl=None if n % 3 else 1)
        store.put(("memories", f"{n}", "more"), "k", {}, ttl=1)
    clock.advance(120)
    inner.read = 0
    getattr(store, look)()
    assert inner.read < 30 * users
    assert sorted(everything(store)) == sorted((("memories", f"{n}"), "k") for n in range(users) if n % 3)
    for n in range(users):
        store.delete(("memories", f"{n}"), "k")
    inner.read = 0
    getattr(store, look)()
    assert inner.read < 30 * users
    assert [name for name in inner.namespaces(("langgraph", "", "tree")) if inner.get(name)] == []


@pytest.mark.own
def test_a_namespace_of_many_labels_does_not_take_the_others_along() -> None:
    store = make(MemoryStore())
    deep = tuple(map(str, range(300)))
    store.put(ADA, "k", {"text": "shed"})
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 250)  # fewer functions in each other than it has labels
    try:
        store.put(deep, "k", {"text": "shed"})
        assert store.list_namespaces() == [deep, ADA]
        assert {item.namespace for item in store.search((), query="shed")} == {deep, ADA}
        store.delete(deep, "k")
        assert store.list_namespaces() == [ADA]
    finally:
        sys.setrecursionlimit(limit)


def interrupted(clock: FakeClock) -> Any:
    """A store where something happens just before a write to the items of Ada."""
    return Overtaken(MemoryStore(clock=clock), where=lambda name, **_: name == ("langgraph", "", "items", *ADA))


def test_an_item_that_comes_while_its_namespace_is_closed_is_found() -> None:
    clock = FakeClock()
    inner = interrupted(clock)
    one, two = make(inner, clock=clock), make(inner, clock=clock)
    one.put(ADA, "k", {})
    one.delete(ADA, "k")
    inner.first = [lambda: two.put(ADA, "new", {"text": "shed"})]
    assert one.list_namespaces() == []  # which closes the empty one
    assert everything(one) == everything(two) == {(ADA, "new"): {"text": "shed"}}

    def empty() -> None:
        two.delete(ADA, "new")
        two.list_namespaces()

    inner.first = [empty]
    one.put(ADA, "newer", {})
    assert list(everything(one)) == [(ADA, "newer")]
    clock.advance(1000)
    assert one.list_namespaces() == [ADA]


def test_a_lasting_item_that_comes_beside_an_expiring_one_lasts() -> None:
    clock = FakeClock()
    inner = interrupted(clock)
    one, two = make(inner, clock=clock), make(inner, clock=clock)
    one.put(ADA, "k", {}, ttl=1)
    inner.first = [lambda: two.put(ADA, "k", {"stays": True})]
    one.put(ADA, "other", {}, ttl=1)
    inner.first = [lambda: two.put(ADA, "third", {})]
    clock.advance(6)
    one.get(ADA, "other")  # which refreshes it
    clock.advance(1000)
    assert set(everything(one)) == {(ADA, "k"), (ADA, "third")}


def test_a_lasting_item_that_expires_now_is_not_forgotten_by_a_sweep_beside_it() -> None:
    clock = FakeClock()
    inner = interrupted(clock)
    one, two = make(inner, clock=clock), make(inner, clock=clock)
    one.put(ADA, "k", {})
    one.put(ADA, "other", {}, ttl=1)
    clock.advance(61)
    inner.first = [lambda: two.put(ADA, "k", {}, ttl=10)]  # after which as many expire, and the first at the same time
    one.sweep_ttl()
    clock.advance(1000)
    assert one.list_namespaces() == []


def test_an_item_with_a_value_that_is_not_equal_to_itself_is_refreshed_by_reading() -> None:
    clock = FakeClock()
    store = make(MemoryStore(), clock=clock)
    store.put(ADA, "k", {"score": math.nan}, ttl=1)
    for _ in range(3):
        clock.advance(50)
        assert store.get(ADA, "k") is not None


def test_an_item_that_is_changed_while_it_is_read_keeps_the_change() -> None:
    clock = FakeClock()
    inner = interrupted(clock)
    one, two = make(inner, clock=clock), make(inner, clock=clock)
    one.put(ADA, "k", {"n": 1}, ttl=1)
    clock.advance(6)
    inner.first = [lambda: two.put(ADA, "k", {"n": 2})]
    assert one.get(ADA, "k") is not None
    assert everything(one) == {(ADA, "k"): {"n": 2}}
    one.put(ADA, "k", {"n": 1}, ttl=1)
    clock.advance(6)
    inner.first = [lambda: two.put(ADA, "k", {"n": 2}, ttl=1)]  # after which as many expire, and at the same time
    assert one.get(ADA, "k") is not None
    assert everything(one) == {(ADA, "k"): {"n": 2}}
    one.put(ADA, "l", {"n": 1}, ttl=1)
    clock.advance(6)
    inner.first = [lambda: two.delete(ADA, "l")]
    assert one.get(ADA, "l") is not None
    assert everything(one) == {(ADA, "k"): {"n": 2}}


def test_a_batch_is_all_or_nothing_in_a_namespace() -> None:
    inner = interrupted(FakeClock())
    store = make(inner)

    def fail() -> None:
        raise RuntimeError("power cut")

    inner.first = [fail]
    with pytest.raises(RuntimeError):
        store.batch([PutOp(ADA, "a", {}), PutOp(ADA, "b", {})])
    assert everything(store) == {}
    store.batch([PutOp(ADA, "a", {}), PutOp(ADA, "b", {})])
    assert len(everything(store)) == 2


# --- async, restart, size -----------------------------------------------------------------------------------


async def test_a5_the_loop_goes_on_while_a_store_is_slow() -> None:
    store = make(Slow())
    await store.aput(ADA, "k", {"text": "shed"})
    async with ticking() as late:
        found = await asyncio.gather(*(store.asearch(ADA, query="shed") for _ in range(10)))
    assert all(len(items) == 1 for items in found)
    assert max(late) < 0.25  # a blocked loop would be 0.5 s late; a busy machine is no failure


async def test_async_answers_as_sync_does(any_store: Store) -> None:
    store = make(any_store)
    await store.aput(ADA, "k", {"text": "shed"}, ttl=5)
    assert await store.aget(ADA, "k") == store.get(ADA, "k") == (await store.asearch(ADA, query="shed"))[0]
    assert await store.alist_namespaces(suffix=("*",)) == store.list_namespaces(prefix=("*",)) == [ADA]
    assert await store.asweep_ttl() == 0
    await store.adelete(ADA, "k")
    assert await store.asearch(()) == store.search(()) == []


@pytest.mark.parametrize("remembered", [0, 9])
async def test_a_query_on_an_event_loop_holds_no_thread_while_the_model_thinks(remembered: int) -> None:
    """... and asks once, also where an answer that was awaited is remembered by nobody."""
    ways: list[str] = []

    class Awaited(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [[1.0, float(len(text))] for text in texts]

        def embed_query(self, text: str) -> list[float]:
            ways.append("blocking")
            return [1.0, float(len(text))]

        async def aembed_query(self, text: str) -> list[float]:
            ways.append("awaited")
            return [1.0, float(len(text))]

    store = make(MemoryStore(), index=open_vectors("memory:", Embedder(Awaited(), remembered=remembered)))
    await store.aput(ADA, "k", {"text": "shed"})
    assert await store.asearch(ADA)
    with pytest.raises(ConfigurationError, match="limit"):
        await store.asearch(ADA, query="shed", limit=-1)
    assert ways == []
    assert [item.key for item in await store.asearch(ADA, query="shed")] == ["k"]
    assert ways == ["awaited" if remembered else "blocking"]


@pytest.mark.parametrize("beside", [[], [("memories", "eve")]])
def test_the_first_item_of_a_namespace_is_found_though_its_writer_ended_there(
    any_store: Store, beside: list[tuple[str, ...]]
) -> None:
    def end() -> None:
        raise KeyboardInterrupt

    ending = Overtaken(
        any_store, end, where=lambda name, **changes: name[-2:] == ADA and changes.get("append"), after=True
    )
    for other in beside:
        make(any_store).put(other, "k", {})
    with pytest.raises(KeyboardInterrupt):
        make(cast("Store", ending)).put(ADA, "k", {"text": "shed"})
    again = make(any_store)
    assert again.list_namespaces() == sorted([ADA, *beside])
    assert [item.key for item in again.search((), query="shed")] == ["k"]


def test_a_restart_finds_all(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    LongTermStore(store=open_store(url), index=open_index(url)).put(ADA, "k", {"text": "shed"})
    again = LongTermStore(url)
    assert [item.key for item in again.search((), query="shed")] == ["k"]
    assert again.list_namespaces() == [ADA]
    assert repr(again) == f"LongTermStore(SQLiteStore('{tmp_path}/memory.db'))"


def test_a6_a_plain_redis_is_asked_for_no_scan_of_its_keys(any_redis_server: RedisServer, key_prefix: str) -> None:
    import redis  # noqa: PLC0415 - the driver's own client, to look behind the store

    with redis.Redis.from_url(any_redis_server.url()) as client, client.monitor() as monitor:
        commands = monitor.listen()
        kept = RedisStore(any_redis_server.url(), prefix=key_prefix)
        store = make(kept)
        store.put(ADA, "k", {"text": "shed"}, ttl=10)
        assert len(store.search(("memories",), query="shed")) == 1
        assert store.list_namespaces() == [ADA]
        store.delete(ADA, "k")
        assert store.sweep_ttl() == 0
        kept.close()
        client.echo("the end")
        seen = []
        for command in commands:
            if "the end" in command["command"]:
                break
            seen.append(command["command"].split()[0].upper())
    forbidden = {"SCAN", "KEYS", "EVAL", "EVALSHA", "INFO", "MODULE", "FT.SEARCH", "JSON.GET"}
    assert not forbidden & set(seen)
    assert "HMGET" in seen


# --- agents -------------------------------------------------------------------------------------------------


@tool
def remember(text: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Keep something for later."""
    assert runtime.store is not None
    user = runtime.config["configurable"]["user"]
    runtime.store.put(("memories", user), text, {"text": text})
    return "kept"


@tool
async def recall(query: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Find something again."""
    assert runtime.store is not None
    user = runtime.config["configurable"]["user"]
    found = await runtime.store.asearch(("memories", user), query=query)
    return "; ".join(item.value["text"] for item in found) or "nothing"


@tool("recall")
def recall_now(query: str, runtime: ToolRuntime[Any, Any]) -> str:
    """Find something again."""
    assert runtime.store is not None
    user = runtime.config["configurable"]["user"]
    return "; ".join(item.value["text"] for item in runtime.store.search(("memories", user), query=query)) or "nothing"


def scripted(messages: list[BaseMessage]) -> AIMessage:
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(last.text)
    verb, _, rest = last.text.partition(": ")
    args = {"text": rest} if verb == "remember" else {"query": rest}
    return AIMessage("", tool_calls=[{"name": verb, "args": args, "id": f"call-{len(messages)}", "type": "tool_call"}])


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_agents_of_two_users_share_a_store_and_not_their_memories(any_store: Store, mode: str) -> None:
    tools = [remember, recall_now if mode == "sync" else recall]

    async def say(user: str, text: str) -> str:
        agent: Any = create_agent(Scripted(answer=scripted), tools, store=make(any_store))
        given = {"messages": [HumanMessage(text)]}
        config = {"configurable": {"user": user}}
        done = await agent.ainvoke(given, config) if mode == "async" else agent.invoke(given, config)
        return str(done["messages"][-1].text)

    assert await say("ada", "remember: My bike is in the shed.") == "kept"
    assert await say("bob", "recall: bike") == "nothing"
    assert await say("ada", "recall: Where is the bike?") == "My bike is in the shed."
