"""Both frameworks' retrievers, and one memory behind both: E1 to E3, F2c, H1."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import create_retriever_tool
from langchain_tests.integration_tests import RetrieversIntegrationTests
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined] # as the docs have it
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import LongContextReorder, SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import MetadataMode, QueryBundle
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    SearchError,
    StoreUnavailable,
    cached,
    open_index,
)
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.langchain import LongTermRetriever as LangChainRetriever
from langmem_adapters.langgraph import ExperienceNodeCache, LongTermStore
from langmem_adapters.llamaindex import BrainChatStore, BrainRetriever
from langmem_adapters.llamaindex import LongTermRetriever as LlamaIndexRetriever
from langmem_adapters.longterm import RECALLED
from langmem_adapters.protocols import Index, Page, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Slow
from tests.loops import ticking
from tests.servers import RedisServer
from tests.waiting import until

SAID = [
    "My bike is in the shed.",
    "The shed is behind the house.",
    "I bought the house in 1999.",
    "In 1999 we had a dog.",
    "低头思故乡",
]


def long_term(store: Store, user: str = "ada", said: list[str] = SAID) -> LongTermMemory:
    memory = LongTermMemory(store, open_index("memory:"), user=user)
    memory.add([Message(role="user", content=text) for text in said])
    return memory


# --- LangChain ----------------------------------------------------------------------------------------------


def test_what_was_found_is_kept_as_any_list_is(any_store: Store) -> None:
    """By a node of a graph, by a function, as what a tool gives beside its text, and as an item."""
    retriever = LangChainRetriever(memory=long_term(any_store), k=2)
    found = list(retriever.invoke("shed"))
    asked: list[str] = []

    def retrieve(state: dict[str, Any]) -> dict[str, Any]:
        asked.append("node")
        return {"found": retriever.invoke(state["question"])}

    graph: Any = StateGraph(dict)
    graph.add_node("retrieve", retrieve, cache_policy=CachePolicy())
    graph.add_edge(START, "retrieve")
    compiled = graph.compile(cache=ExperienceNodeCache(store=any_store))
    assert [compiled.invoke({"question": "shed"}) for _ in range(2)] == [{"found": found}] * 2

    @cached(store=any_store, tag="retrieved")
    def retrieved(question: str) -> list[Document]:
        asked.append("function")
        return retriever.invoke(question)

    @cached(store=any_store, tag="counted")
    def counted(documents: list[Document]) -> int:
        asked.append("argument")
        return len(documents)

    assert [retrieved("shed") for _ in range(2)] == [found] * 2
    assert counted(retriever.invoke("shed")) == counted(found) == 2
    assert asked == ["node", "function", "argument"]

    tool = create_retriever_tool(retriever, "recall", "Recalls.", response_format="content_and_artifact")
    answer = tool.invoke({"type": "tool_call", "name": "recall", "args": {"query": "shed"}, "id": "1"})
    history = BrainChatMessageHistory("s", store=any_store)
    history.add_message(answer)
    assert cast(ToolMessage, history.messages[0]).artifact == [document.model_dump() for document in found]
    items = LongTermStore(store=any_store)
    items.put(("found",), "shed", {"documents": retriever.invoke("shed")})
    item = items.get(("found",), "shed")
    assert item is not None
    assert item.value == {"documents": [document.model_dump() for document in found]}


class TestLangChainStandard(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return LangChainRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": long_term(MemoryStore(), said=[f"{text} shed" for text in SAID])}

    @property
    def retriever_query_example(self) -> str:
        return "the shed"


async def test_langchain_documents_say_where_they_come_from(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    message = Message(role="user", name="Ada", content=SAID[0], id="m1", created_at=5.0, metadata={"place": "x"})
    memory.add([message], session="monday")
    (document,) = await LangChainRetriever(memory=memory, k=2).ainvoke("bike")
    score = document.metadata.pop("score")
    assert 0 < score <= 1
    assert document == Document(
        id=memory.all()[0].id,
        page_content=SAID[0],
        metadata={
            "place": "x",
            "role": "user",
            "name": "Ada",
            "session": "monday",
            "message_id": "m1",
            "created_at": 5.0,
            "recalled": True,
        },
    )
    assert LangChainRetriever(memory=memory).invoke("nothing alike") == []


# --- LlamaIndex ---------------------------------------------------------------------------------------------


def test_llamaindex_nodes_are_scored_and_best_first(any_store: Store) -> None:
    nodes = LlamaIndexRetriever(long_term(any_store), similarity_top_k=3).retrieve("Where is the bike shed?")
    assert [node.text for node in nodes] == SAID[:2]
    scores = [node.get_score(raise_error=True) for node in nodes]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert LlamaIndexRetriever(long_term(any_store)).retrieve("故乡")[0].text == SAID[4]
    assert "message_id" not in nodes[0].node.get_content("llm")  # type: ignore[arg-type]


class _Distant(MemoryStore):
    """A store whose every read takes its time, once it is told to."""

    seconds = 0.0

    def get(self, *args: Any, **kwargs: Any) -> dict[str, bytes]:
        time.sleep(self.seconds)
        return super().get(*args, **kwargs)

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        time.sleep(self.seconds)
        return super().scan(*args, **kwargs)


def _searched(kind: str, store: Store) -> tuple[Callable[[str], object], Callable[[], Awaitable[Sequence[Any]]]]:
    """How something new is put where it is searched for, and how it is searched for."""
    index = open_index("memory:")
    if kind == "brain":
        brain = BrainMemory(store, "session")
        return brain.add_talk, partial(BrainRetriever(brain=brain, similarity_top_k=1).aretrieve, "bike")
    if kind == "long-term":
        memory = LongTermMemory(store, index, user="ada")
        return (
            lambda text: memory.add([Message(role="user", content=text)]),
            partial(LlamaIndexRetriever(memory, similarity_top_k=1).aretrieve, "bike"),
        )
    if kind == "items":
        items = LongTermStore(store=store, index=index)
        return (
            lambda text: items.put(("memories", "ada"), text, {"text": text}),
            partial(items.asearch, ("memories",), query="bike", limit=1),
        )
    pool = ExperiencePool(store, tag="bikes", index=index)
    return lambda text: pool.create(Experience(req=text, resp=text)), partial(pool.aquery, "bike", k=1)


@pytest.mark.parametrize("news", [False, True])
@pytest.mark.parametrize("kind", ["brain", "long-term", "items", "experiences"])
async def test_e1_ten_retrievals_run_beside_each_other(kind: str, *, news: bool) -> None:
    """In line, they would take twelve reads or more, each with its own look for what is new."""
    store = _Distant()
    put, retrieve = _searched(kind, store)
    put("bike")
    assert len(await retrieve()) == 1
    reads = []
    for n in range(3):  # a busy machine may spoil one round, not all
        if news:
            put(f"A bike, {n}.")
        store.seconds = 0.05
        started = time.perf_counter()
        found: list[Sequence[Any]] = await asyncio.gather(*(retrieve() for _ in range(10)))
        reads.append((time.perf_counter() - started) / store.seconds)
        store.seconds = 0.0
        assert [len(results) for results in found] == [1] * 10
    assert min(reads) < 9


class _Held(MemoryStore):
    """A store that keeps back the answer to one scan, once it is told to, and tells when the next one comes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_holding = False
        self.reached, self.asked, self.release = threading.Event(), threading.Event(), threading.Event()

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        page = super().scan(*args, **kwargs)
        if self.is_holding and self.reached.is_set():
            self.asked.set()
        elif self.is_holding:
            self.reached.set()
            assert self.release.wait(60)
        return page


@pytest.mark.parametrize("kind", ["brain", "long-term", "items", "experiences"])
async def test_what_was_put_before_a_search_is_found_though_another_has_looked_for_news_just_before(kind: str) -> None:
    """It waits for the other one, and is not served by what that one has read."""
    store = _Held()
    put, retrieve = _searched(kind, store)
    put("The car is blue.")
    assert await retrieve() == []
    put("The car is red.")
    store.is_holding = True
    earlier = asyncio.create_task(_awaited(retrieve))
    assert await asyncio.to_thread(store.reached.wait, 60)
    put("My bike is in the shed.")
    later = asyncio.create_task(_awaited(retrieve))
    assert await asyncio.to_thread(store.asked.wait, 60)
    store.release.set()
    assert len(await later) == 1
    await earlier


async def _awaited(call: Callable[[], Awaitable[Sequence[Any]]]) -> Sequence[Any]:
    return await call()


def test_a_trace_has_the_spans_of_any_retriever() -> None:
    BrainMemory(store := MemoryStore(), "session").add_talk(SAID[0])
    spans = SimpleSpanHandler()
    get_dispatcher().add_span_handler(spans)
    try:
        assert BrainRetriever("session", store=store).retrieve("bike")
    finally:
        get_dispatcher().span_handlers.remove(spans)
    assert [span.id_.split("-")[0] for span in spans.completed_spans] == [
        "BrainRetriever._retrieve",
        "BrainRetriever.retrieve",
    ]


def test_a_fusion_retriever_takes_it(any_store: Store) -> None:
    retriever = LlamaIndexRetriever(long_term(any_store))
    fused = QueryFusionRetriever([retriever], llm=MockLLM(), num_queries=1, similarity_top_k=2, use_async=False)
    assert fused.retrieve("bike")[0].text == SAID[0]


_users = st.sampled_from(["ada", "bob", "a", "", "ada/bob"])
_words = st.lists(st.sampled_from(["shed", "bike", "house", "dog", "故乡", "the"]), min_size=1, max_size=4).map(
    " ".join
)


def test_e2_two_retrievers_on_one_store_and_index_do_not_mix() -> None:
    store, index = MemoryStore(), open_index("memory:")
    retrievers = {}
    for user in ("ada", "bob"):
        memory = LongTermMemory(store, index, user=user)
        memory.add([Message(role="user", content=f"{user}'s bike")])
        retrievers[user] = LlamaIndexRetriever(memory)
    for _ in range(500):
        for user, retriever in retrievers.items():
            assert [node.text for node in retriever.retrieve("bike")] == [f"{user}'s bike"]


# --- filters: E2, E3 ----------------------------------------------------------------------------------------

_plain = st.sampled_from(["red", "Reddish", "", "shed", "mo", "tu"]) | st.integers(0, 3) | st.sampled_from([0.5, 2.0])
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "color": _plain,
        "tags": st.lists(st.sampled_from(["red", "old", "big"]), max_size=3),
        "n": st.integers(0, 3),
        "gone": st.none(),
    },
)
_corpora = st.lists(st.tuples(_users.filter(bool), _words, _metadata, st.sampled_from(["mo", "tu"])), max_size=12)
_fields = ["color", "tags", "n", "gone", "absent", "session", "role"]
_leaves = st.builds(
    MetadataFilter,
    key=st.sampled_from(_fields),
    value=_plain
    | st.lists(st.sampled_from(["red", "old", "mo"]), max_size=2)
    | st.lists(st.integers(0, 3), max_size=2),
    operator=st.sampled_from(list(FilterOperator)),
)
_conditions = st.sampled_from([*FilterCondition, None])
_flat = st.builds(MetadataFilters, filters=st.lists(_leaves, max_size=3), condition=_conditions)
_nested = st.recursive(
    _flat,
    lambda inner: st.builds(MetadataFilters, filters=st.lists(_leaves | inner, max_size=3), condition=_conditions),
)


def _fill(corpus: list[tuple[str, str, dict[str, Any], str]]) -> tuple[MemoryStore, Any]:
    store, index = MemoryStore(), open_index("memory:")
    for number, (user, text, metadata, session) in enumerate(corpus):
        said = Message(role="user", content=text, metadata={**metadata, "user": user}, name=f"{user}{number}")
        LongTermMemory(store, index, user=user).add([said], session=session)
    return store, index


def _allows(filters: MetadataFilters, metadata: dict[str, Any]) -> bool:
    """LlamaIndex's own judgement, with nested filters taken apart; what it cannot compare is not allowed."""
    answers = []
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            answers.append(_allows(part, metadata))
            continue
        try:
            answers.append(build_metadata_filter_fn(lambda _: metadata, MetadataFilters(filters=[part]))(""))
        except TypeError:
            answers.append(False)
    if not answers:
        return True
    if filters.condition == FilterCondition.NOT:
        return not any(answers)
    return any(answers) if filters.condition == FilterCondition.OR else all(answers)


@given(_corpora, _users.filter(bool), _nested, _words, st.integers(1, 15))
def test_e2_filters_mean_what_llamaindex_means(
    corpus: list[Any], user: str, filters: MetadataFilters, query: str, k: int
) -> None:
    store, index = _fill(corpus)
    memory = LongTermMemory(store, index, user=user)
    nodes = LlamaIndexRetriever(memory, similarity_top_k=k, filters=filters).retrieve(query)
    free = LlamaIndexRetriever(memory, similarity_top_k=100).retrieve(query)
    assert [(n.node.id_, n.score) for n in nodes] == [
        (n.node.id_, n.score) for n in free if _allows(filters, n.metadata)
    ][:k]
    assert {node.metadata["user"] for node in nodes} <= {user}


_mongo_leaves = st.dictionaries(
    st.sampled_from(_fields),
    _plain
    | st.dictionaries(st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), _plain, min_size=1, max_size=2)
    | st.dictionaries(st.sampled_from(["$in", "$nin"]), st.lists(_plain, max_size=3), min_size=1),
    max_size=2,
)
_mongo = st.recursive(
    _mongo_leaves,
    lambda inner: (
        st.fixed_dictionaries({"$and": st.lists(inner, max_size=2)})
        | st.fixed_dictionaries({"$or": st.lists(inner, max_size=2)})
        | st.fixed_dictionaries({"$not": inner})
    ),
)


def _mongo_allows(filter_: dict[str, Any], metadata: dict[str, Any]) -> bool:
    for key, wanted in filter_.items():
        if key == "$and":
            ok = all(_mongo_allows(each, metadata) for each in wanted)
        elif key == "$or":
            ok = any(_mongo_allows(each, metadata) for each in wanted)
        elif key == "$not":
            ok = not _mongo_allows(wanted, metadata)
        elif isinstance(wanted, dict):
            ok = all(_compares(operator, metadata.get(key), value) for operator, value in wanted.items())
        else:
            ok = metadata.get(key) == wanted
        if not ok:
            return False
    return True


def _compares(operator: str, found: Any, wanted: Any) -> bool:
    if operator in {"$in", "$nin"}:
        return (found in wanted) is (operator == "$in")
    if operator in {"$eq", "$ne"}:
        return (found == wanted) is (operator == "$eq")
    numbers = all(isinstance(value, int | float) for value in (found, wanted))
    if not numbers and not all(isinstance(value, str) for value in (found, wanted)):
        return False
    order = {"$gt": found > wanted, "$gte": found >= wanted, "$lt": found < wanted, "$lte": found <= wanted}
    return bool(order[operator])


@given(_corpora, _users.filter(bool), st.tuples(_mongo, _mongo), _words, st.integers(1, 15))
def test_e2_langchain_filters_narrow_and_never_leak(
    corpus: list[Any], user: str, filters: tuple[dict[str, Any], dict[str, Any]], query: str, k: int
) -> None:
    own, other = filters
    store, index = _fill(corpus)
    memory = LongTermMemory(store, index, user=user)
    free = LangChainRetriever(memory=memory, k=100).invoke(query)
    found = LangChainRetriever(memory=memory, k=k, filter=own).invoke(query, filter=other)
    assert found == [d for d in free if _mongo_allows(own, d.metadata) and _mongo_allows(other, d.metadata)][:k]
    assert {document.metadata["user"] for document in found} <= {user}


@pytest.mark.own
@given(st.lists(_words, min_size=1, max_size=6, unique=True), _words)
def test_e2_many_better_matches_do_not_hide_the_one_that_is_wanted(others: list[str], query: str) -> None:
    assume(query not in others)
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add(
        [
            Message(role="user", content=f"{query} {text}", name=f"other {n}", metadata={"n": 0})
            for n, text in enumerate((others * 40)[:40])  # more than a search looks at
        ]
    )
    memory.add([Message(role="user", content=f"{query} {'far ' * 40}", metadata={"n": 1})])
    filters = MetadataFilters(filters=[MetadataFilter(key="n", value=1)])
    assert len(LlamaIndexRetriever(memory, similarity_top_k=1, filters=filters).retrieve(query)) == 1
    assert len(LangChainRetriever(memory=memory, k=1).invoke(query, filter={"n": 1})) == 1


@pytest.mark.parametrize(
    ("key", "operator", "value", "found"),
    [
        ("color", "==", "red", "a"),
        ("color", "!=", "red", "bcd"),
        ("n", ">", 1, "c"),
        ("n", ">=", 1, "bc"),
        ("n", "<", 1, "a"),
        ("n", "<=", 1, "ab"),
        ("color", "in", ["red", "Dark red"], "ab"),
        ("color", "nin", ["red", "blue"], "bcd"),
        ("tags", "any", ["old", "big"], "ab"),
        ("tags", "all", ["old", "big"], "b"),
        ("color", "text_match", "red", "ab"),
        ("color", "text_match", "dark", ""),
        ("color", "text_match_insensitive", "dARK", "b"),
        ("color", "text_match_insensitive", 1, ""),
        ("tags", "text_match", "old", ""),
        ("tags", "text_match_insensitive", "old", ""),
        ("tags", "contains", "old", "ab"),
        ("color", "is_empty", None, "cd"),
        ("tags", "is_empty", None, "cd"),
        ("absent", "==", None, ""),
        ("absent", "all", [], ""),
    ],
)
def test_e2_each_operator_lets_through_what_it_names(key: str, operator: str, value: Any, found: str) -> None:
    said: dict[str, dict[str, Any]] = {
        "a": {"color": "red", "n": 0, "tags": ["old"]},
        "b": {"color": "Dark red", "n": 1, "tags": ["old", "big"]},
        "c": {"n": 2, "tags": []},
        "d": {"color": ""},
    }
    memory = long_term(MemoryStore(), said=[])
    memory.add([Message(role="user", content=f"My bike {name}", metadata=told) for name, told in said.items()])
    filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=FilterOperator(operator))])
    nodes = LlamaIndexRetriever(memory, filters=filters).retrieve("bike")
    assert "".join(sorted(node.text[-1] for node in nodes)) == found


@pytest.mark.parametrize("value", [np.array([1, 2]), Decimal("sNaN"), Decimal("NaN")])
@pytest.mark.parametrize("operator", ["$eq", "$gt", "$in"])
def test_e2_what_a_value_cannot_be_compared_with_does_not_match(any_store: Store, operator: str, value: Any) -> None:
    """Though NumPy and Decimal say so by errors of their own."""
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    memory.add([Message(role="user", content="My bike is red.", metadata={"n": 1})])
    wanted = [value] if operator == "$in" else value
    for condition in ({operator: wanted}, wanted):
        assert LangChainRetriever(memory=memory).invoke("bike", filter={"n": condition}) == []
    sign = cast("Any", {"$eq": "==", "$gt": ">", "$in": "in"}[operator])
    part = MetadataFilter.model_construct(key="n", value=wanted, operator=FilterOperator(sign))
    filters = MetadataFilters.model_construct(filters=[part], condition=FilterCondition.AND)
    assert LlamaIndexRetriever(memory, filters=filters).retrieve("bike") == []


def test_e2_filters_that_name_a_session_as_one_of_several_look_at_all(any_store: Store) -> None:
    memory = long_term(any_store, said=[])
    for session in ("monday", "tuesday", "wednesday"):
        memory.add([Message(role="user", content=f"My bike was in the shed on {session}.")], session=session)
    either = [MetadataFilter(key="session", value=session) for session in ("monday", "tuesday")]

    def sessions(*filters: MetadataFilter | MetadataFilters, by: FilterCondition | None) -> set[str]:
        wanted = MetadataFilters(filters=list(filters), condition=by)
        return {node.metadata["session"] for node in LlamaIndexRetriever(memory, filters=wanted).retrieve("bike")}

    both = MetadataFilters(filters=[*either], condition=FilterCondition.OR)
    assert sessions(*either, by=FilterCondition.OR) == sessions(both, by=FilterCondition.AND) == {"monday", "tuesday"}
    assert sessions(*either, by=FilterCondition.NOT) == {"wednesday"}
    assert sessions(either[0], by=None) == {"monday"}


def test_an_unknown_llamaindex_operator_is_named_before_anything_is_searched() -> None:
    memory = long_term(MemoryStore())
    wrongs: list[tuple[Any, str]] = [
        (MetadataFilter.model_construct(key="n", value=1, operator=cast("Any", "regex")), "regex"),
        (
            MetadataFilters.model_construct(filters=[MetadataFilter(key="n", value=1)], condition=cast("Any", "xor")),
            "xor",
        ),
    ]
    for wrong, named in wrongs:
        filters = MetadataFilters.model_construct(
            filters=[MetadataFilters.model_construct(filters=[wrong], condition=None)], condition=FilterCondition.OR
        )
        with pytest.raises(ConfigurationError, match=named):
            LlamaIndexRetriever(memory, filters=filters)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"n": {"$regex": "x"}}, r"\$regex"),
        ({"$nor": []}, r"\$nor"),
        ({"$and": {"n": 1}}, r"\$and"),
        ({"$or": [{"n": {"$in": "text"}}]}, r"\$in"),
        ({"n": {"$nin": "text"}}, r"\$nin"),
        ({"n": {"$gt": 1, "lt": 3}}, "not 'lt'"),
        ({"$not": 3}, "int"),
        ({1: 2}, "a filter.s key is a text, not int"),
        ("n == 1", "str"),
    ],
)
async def test_an_unknown_langchain_filter_is_named_before_anything_is_searched(wrong: Any, named: str) -> None:
    retriever = LangChainRetriever(memory=LongTermMemory(MemoryStore(), open_index("memory:"), user="ada"))
    with pytest.raises(ConfigurationError, match=named):
        retriever.invoke("", filter=wrong)
    with pytest.raises(ConfigurationError, match=named):
        await retriever.ainvoke("bike", filter=wrong)


@pytest.mark.parametrize("unknown", ["filters", "search_kwargs", "similarity_top_k"])
async def test_an_unknown_langchain_argument_is_named_and_not_ignored(unknown: str) -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    retriever = LangChainRetriever(memory=memory)
    arguments: dict[str, Any] = {unknown: {"session": "monday"}}
    with pytest.raises(TypeError, match=unknown):
        retriever.invoke("bike", **arguments)
    with pytest.raises(TypeError, match=unknown):
        await retriever.ainvoke("bike", **arguments)
    with pytest.raises(ValueError, match=unknown):
        LangChainRetriever(memory=memory, **arguments)
    assert memory.stats()["searches"] == 0


def test_langchain_filters_with_lists_of_several() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    for session in ("monday", "tuesday", "wednesday"):
        memory.add([Message(role="user", content=f"The bike on {session}.")], session=session)

    def found(operator: str, *sessions: str) -> list[str]:
        chosen = LangChainRetriever(memory=memory, filter={"session": {operator: list(sessions)}})
        return sorted(document.metadata["session"] for document in chosen.invoke("bike"))

    assert found("$nin", "monday", "tuesday") == ["wednesday"]
    assert found("$nin") == found("$in", "monday", "tuesday", "wednesday") == ["monday", "tuesday", "wednesday"]
    assert found("$in", "monday", "wednesday") == ["monday", "wednesday"]
    assert found("$in") == []


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ({"place": {"city": "Oslo"}}, "a"),  # a value like any other, where no operator is in it
        ({"place": {"$ne": {"city": "Oslo"}}}, "b"),
        ({"n": {"$gt": "1"}}, ""),
        ({"$not": {"n": {"$gt": "1"}}}, "ab"),
        ({"gone": {"$lte": 1}}, ""),
    ],
)
def test_langchain_filters_by_dictionaries_and_by_what_has_no_order(filter_: dict[str, Any], found: str) -> None:
    memory = long_term(MemoryStore(), said=[])
    said: dict[str, dict[str, Any]] = {"a": {"place": {"city": "Oslo"}, "n": 2}, "b": {"place": {"city": "Rome"}}}
    memory.add([Message(role="user", content=f"My bike {name}", metadata=told) for name, told in said.items()])
    documents = LangChainRetriever(memory=memory, filter=filter_).invoke("bike")
    assert "".join(sorted(document.page_content[-1] for document in documents)) == found


async def test_langchain_filters_by_call_by_function_and_by_config(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    for session in ("monday", "tuesday"):
        said = [Message(role=role, content=f"{role} {session} bike") for role in ("user", "assistant")]
        memory.add(said, session=session)
    retriever = LangChainRetriever(memory=memory, filter={"session": "monday"})

    def texts(documents: list[Document]) -> set[str]:
        return {document.page_content for document in documents}

    assert texts(retriever.invoke("bike")) == {"user monday bike", "assistant monday bike"}
    assert texts(retriever.invoke("bike", filter={"role": "user"})) == {"user monday bike"}
    assert texts(await retriever.ainvoke("bike", filter=lambda found: found["role"] != "user")) == {
        "assistant monday bike"
    }
    assert retriever.invoke("bike", filter={"session": "tuesday"}) == []  # narrower, never wider
    assert len(await retriever.ainvoke("bike", k=1)) == 1
    configurable = LangChainRetriever(memory=memory).configurable_fields(filter=ConfigurableField(id="filter"))
    found = await configurable.ainvoke("bike", config={"configurable": {"filter": {"session": "tuesday"}}})
    assert texts(found) == {"user tuesday bike", "assistant tuesday bike"}
    assert len(configurable.invoke("bike")) == 4


def test_what_was_said_twice_is_found_by_either_time(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    for session in ("monday", "tuesday"):
        memory.add([Message(role="user", content="bike", id=session)], session=session)
    for session in ("monday", "tuesday"):
        filters = MetadataFilters(filters=[MetadataFilter(key="session", value=session)])
        (node,) = LlamaIndexRetriever(memory, filters=filters).retrieve("bike")
        (document,) = LangChainRetriever(memory=memory).invoke("bike", filter={"session": session})
        for metadata in (node.metadata, document.metadata):
            assert (metadata["session"], metadata["message_id"]) == (session, session)


def test_postprocessors_stand_on_top_in_a_query_engine(any_store: Store) -> None:
    memory = long_term(any_store, said=["bike bike bike", "a bike and much else besides of other things", "dog"])
    retriever = LlamaIndexRetriever(memory)
    best, other = retriever.retrieve("bike")
    assert other.score is not None
    line = (best.get_score() + other.score) / 2
    processors = [SimilarityPostprocessor(similarity_cutoff=line), LongContextReorder()]
    engine = RetrieverQueryEngine(retriever, get_response_synthesizer(llm=MockLLM()), node_postprocessors=processors)
    answer = engine.query("bike")
    assert [node.text for node in answer.source_nodes] == ["bike bike bike"]
    assert "bike bike bike" in str(answer)
    assert "much else" not in str(answer)


async def test_e2_two_sessions_on_one_retriever_object_do_not_mix() -> None:
    """Each call says its session; interleaved a thousand times."""
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    for session in ("one", "two"):
        memory.add([Message(role="user", content=f"bike of {session}")], session=session)
    retriever = LangChainRetriever(memory=memory)
    for _ in range(50):
        calls = [retriever.ainvoke("bike", filter={"session": ("one", "two")[n % 2]}) for n in range(20)]
        found = await asyncio.gather(*calls)
        assert [[d.page_content for d in ds] for ds in found] == [["bike of one"], ["bike of two"]] * 10


@pytest.mark.parametrize("host", ["langchain", "llamaindex"])
async def test_e1_the_loop_goes_on_while_a_search_is_slow(host: str) -> None:
    memory = long_term(Slow(0.2))
    memory.flush()
    retriever: Any = LangChainRetriever(memory=memory) if host == "langchain" else LlamaIndexRetriever(memory)
    search = retriever.ainvoke if host == "langchain" else retriever.aretrieve
    async with ticking() as late:
        await asyncio.gather(*(search("bike") for _ in range(10)))
    assert max(late) < 0.25  # a blocked loop would be 0.5 s late; a busy machine is no failure


# --- BrainRetriever -----------------------------------------------------------------------------------------


def test_brain_retriever_finds_history_and_knowledge(any_store: Store) -> None:
    brain = BrainMemory(any_store, "session", user="ada")
    brain.add_talk(SAID[0])
    brain.add_messages([Message(role="tool", tool_call_id="c", content="bike bike bike")])
    brain.add_knowledge(["Bikes have two wheels."])
    retriever = BrainRetriever("session", store=any_store, user="ada")
    assert {node.text for node in retriever.retrieve("bike")} == {SAID[0], "Bikes have two wheels."}
    brain.add_answer("A bike is fast.")
    brain.add_knowledge(["A tandem is a long bike."])
    assert len(retriever.retrieve("bike")) == 4
    assert BrainRetriever("session", store=any_store, user="bob").retrieve("bike") == []
    of_another = BrainRetriever("session", store=any_store, user="ada", tenant="b")
    assert of_another.retrieve("bike") == []
    BrainMemory(any_store, "session", user="ada", tenant="b").add_talk("The bike of another.")
    assert [node.text for node in of_another.retrieve("bike")] == ["The bike of another."]
    brain.clear()
    assert retriever.retrieve("bike") == []
    brain.add_talk("A new bike.")
    assert [node.text for node in retriever.retrieve("bike")] == ["A new bike."]


def test_what_brain_retriever_finds_is_read_in_one_round_trip(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    brain = BrainMemory(store, "session")
    brain.add_messages([Message(role="user", content=f"bike {n}") for n in range(20)])
    brain.add_knowledge(["A bike has two wheels."])
    retriever = BrainRetriever(brain=brain, similarity_top_k=10)
    found = [node.text for node in retriever.retrieve("bike")]
    before = door.count
    assert [node.text for node in retriever.retrieve("bike")] == found
    assert len(found) == 10
    assert door.count - before == 3  # the values, what is new in the log, and the messages


def test_brain_retriever_follows_messages_that_leave_the_session(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "session", user="ada", memory_k=2, long_term=memory)
    retriever = BrainRetriever(brain=brain, similarity_top_k=10)
    for n in range(6):
        brain.add_talk(f"bike {n}")
        assert {node.text for node in retriever.retrieve("bike")} == {f"bike {m}" for m in range(max(0, n - 1), n + 1)}


async def test_brain_retriever_finds_what_was_archived_and_nothing_that_was_deleted(any_store: Store) -> None:
    chats = BrainChatStore(store=any_store, user="ada")
    await chats.add_messages("session", [ChatMessage("My bike is red"), ChatMessage("My car is blue")])
    await chats.add_message(
        "session", ChatMessage(role="tool", content="bike", additional_kwargs={"tool_call_id": "c"})
    )
    retrievers = [BrainRetriever("session", store=any_store, user="ada")]
    for archived in range(3):
        retrievers.append(BrainRetriever("session", store=any_store, user="ada"))  # one that begins now
        for retriever in retrievers:
            assert [node.text for node in await retriever.aretrieve("bike")] == ["My bike is red"], archived
            assert {node.text for node in retriever.retrieve("my")} <= {"My bike is red", "My car is blue"}
        await chats.archive_oldest_messages("session", 1)
    await chats.delete_messages("session", MessageStatus.ARCHIVED)
    assert [retriever.retrieve("bike car") for retriever in retrievers] == [[]] * len(retrievers)


def test_a_model_is_not_shown_a_name_that_nobody_has(any_store: Store) -> None:
    brain = BrainMemory(any_store, "session")
    brain.add_messages([Message(role="user", content="A bike."), Message(role="user", name="Ada", content="A car.")])
    retriever = BrainRetriever(brain=brain)
    (bike,), (car,) = retriever.retrieve("bike"), retriever.retrieve("car")
    said = brain.messages()[0]
    told = ("session", said.id, said.created_at)
    assert tuple(bike.node.metadata[name] for name in ("session", "message_id", "created_at")) == told
    assert bike.node.get_content(MetadataMode.LLM) == "role: user\n\nA bike."
    assert bike.node.get_content(MetadataMode.EMBED) == "A bike."
    assert set(car.node.get_content(MetadataMode.LLM).splitlines()) == {"role: user", "name: Ada", "", "A car."}


def test_an_index_that_outlives_its_store_begins_anew() -> None:
    index = open_index("memory:")
    for thing, said in [("bike", ["bike one", "bike two", "bike three"]), ("tandem", ["my tandem"])]:
        brain = BrainMemory(MemoryStore(), "session")
        for text in said:
            brain.add_talk(text)
        assert {node.text for node in BrainRetriever(brain=brain, index=index).retrieve(thing)} == set(said)


@pytest.mark.parametrize("query", ["", "  ", "\n"])
def test_an_empty_query_finds_nothing(query: str) -> None:
    store = MemoryStore()
    BrainMemory(store, "session").add_talk(SAID[0])
    assert BrainRetriever("session", store=store).retrieve(query) == []
    assert LlamaIndexRetriever(long_term(store)).retrieve(query) == []


def test_how_many_nodes_is_changed_as_of_llamaindexs_own_retrievers(any_store: Store) -> None:
    brain = BrainMemory(any_store, "session")
    for text in SAID:
        brain.add_talk(text)
    for retriever in (LlamaIndexRetriever(long_term(any_store)), BrainRetriever(brain=brain)):
        assert len(retriever.retrieve("the house")) == 2
        retriever.similarity_top_k -= 4
        assert len(retriever.retrieve("the house")) == 1


@pytest.mark.parametrize("wrong", ["url", "memory"])
def test_a_url_that_a_retriever_does_not_take_is_not_quoted(wrong: str) -> None:
    given: dict[str, Any] = {wrong: "redis://ada:S3cret@host"}
    with pytest.raises(ValueError, match=f"(?s)LongTermRetriever.*{wrong}") as caught:
        LangChainRetriever(**given)
    assert "S3" not in str(caught.value)


def test_wrong_settings_are_one_clear_sentence() -> None:
    with pytest.raises(ConfigurationError, match="one of url, store and brain"):
        BrainRetriever("s", store=MemoryStore(), url="memory:")
    with pytest.raises(ConfigurationError, match="this brain is user 'bob', not 'ada'"):
        BrainRetriever(brain=BrainMemory(MemoryStore(), "s", user="bob"), user="ada")
    for wrong in (None, "sqlite:///x.db"):
        with pytest.raises(ConfigurationError, match="LongTermRetriever searches a LongTermMemory, not"):
            LlamaIndexRetriever(cast(Any, wrong))
    no_filters: list[Any] = [{}, {"session": "x"}, []]
    for filters in no_filters:
        with pytest.raises(ConfigurationError, match="filters are MetadataFilters of LlamaIndex, not"):
            LlamaIndexRetriever(long_term(MemoryStore()), filters=filters)
    with pytest.raises(ConfigurationError, match=r'index is what open_index\("memory:"\) gives, for one, not str'):
        LongTermMemory(MemoryStore(), cast(Any, "memory:"), user="ada")
    with pytest.raises(ConfigurationError, match=r"vectors is what open_vectors\(.*\) gives, for one, not str"):
        LongTermMemory(MemoryStore(), open_index("memory:"), vectors=cast(Any, "sqlite:///x.db"), user="ada")
    with pytest.raises(ConfigurationError, match="needs a scope"):
        LongTermMemory(MemoryStore(), open_index("memory:"))


# --- outages: G2 ---------------------------------------------------------------------------------------------

_KINDS = ["langchain", "llamaindex", "brain"]


def _searching(kind: str, store: Store, index: Index, **settings: Any) -> tuple[Any, Any, Any]:
    """A retriever, and both ways to ask it."""
    memory = LongTermMemory(store, index, user="ada")
    if kind == "langchain":
        chain = LangChainRetriever(memory=memory, **settings)
        return chain, chain.invoke, chain.ainvoke
    brain = BrainMemory(store, "monday", user="ada")
    nodes: Any = (
        BrainRetriever(brain=brain, index=index, **settings)
        if kind == "brain"
        else LlamaIndexRetriever(memory, **settings)
    )
    return nodes, nodes.retrieve, nodes.aretrieve


async def _check_outage(kind: str, store: Store, index: Index, error: type[Exception], log: Any) -> None:
    """No list, unless it was declared to go on; then an empty one, which is counted, and told once for all users."""
    _, search, asearch = _searching(kind, store, index)
    with pytest.raises(error):
        search("my secret bike")
    with pytest.raises(error):
        await asearch("my secret bike")
    assert "without its memories" not in log.text
    retriever, search, asearch = _searching(kind, store, index, on_error="degrade")
    assert [search("my secret bike"), await asearch("bike")] == [[], []]
    assert retriever.stats() == {"recalls": 2, "errors": 2}
    assert _searching(kind, store, index, on_error="degrade")[1]("bike") == []  # that of the next request
    assert log.text.count("goes on without its memories") == log.text.count(error.__name__) == 1
    assert "secret" not in log.text
    retriever.on_error = "raise"
    with pytest.raises(error):
        search("bike")


@pytest.mark.parametrize("kind", _KINDS)
async def test_g2_what_a_dead_redis_does_is_declared(
    kind: str, start_redis: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store, index = RedisStore(server.url(), retry_for=0), open_index("memory:")
    long_term(store)
    BrainMemory(store, "monday", user="ada").add_talk(SAID[0])
    retriever, search, _ = _searching(kind, store, index, on_error="degrade")
    assert len(search("bike")) == 1
    server.kill()
    await _check_outage(kind, store, index, StoreUnavailable, caplog)
    assert search("bike") == []
    server.start()
    until(lambda: len(search("bike")) == 1)
    assert 1 <= retriever.stats()["errors"] < retriever.stats()["recalls"]
    store.close()


@pytest.mark.parametrize("kind", _KINDS)
async def test_g2_what_a_broken_index_does_is_declared(
    kind: str, any_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "index.db"
    index = open_index(f"sqlite:///{file}")
    long_term(any_store)
    BrainMemory(any_store, "monday", user="ada").add_talk(SAID[0])
    assert len(_searching(kind, any_store, index)[1]("bike")) == 1
    cast(Any, index).close()
    file.write_bytes(b"\xff" * file.stat().st_size)
    broken = open_index(f"sqlite:///{file}")
    await _check_outage(kind, any_store, broken, SearchError, caplog)
    cast(Any, broken).close()


@pytest.mark.parametrize("kind", _KINDS)
def test_g2_a_policy_that_is_none_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=r"on_error"):
        _searching(kind, MemoryStore(), open_index("memory:"), on_error="ignore")


def test_g2_an_error_of_the_caller_is_no_outage() -> None:
    for kind in _KINDS[:2]:
        _, search, _ = _searching(kind, MemoryStore(), open_index("memory:"), on_error="degrade")
        with pytest.raises(ConfigurationError):
            search(cast(Any, 5)) if kind == "langchain" else search(cast(Any, QueryBundle(cast(Any, 5))))


# --- recall and the window: F2c, H1 -------------------------------------------------------------------------


def test_recall_never_repeats_the_window_and_is_never_stored_again(any_store: Store) -> None:
    memory = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "session", user="ada", memory_k=4, long_term=memory)
    for n in range(50):
        brain.add_talk(f"Question {n} about the shed")
        recalled = brain.recall("shed", 3)
        shown = {message.text for message in brain.messages()}
        assert not shown & {found.text for found in recalled}
        echo = [found.memory.message.model_copy(update={"id": "", "metadata": {RECALLED: True}}) for found in recalled]
        brain.add_messages(echo)
        brain.add_answer("Behind the house, as you said.")
    texts = [m.text for m in brain.messages()] + [m.message.text for m in memory.all()]
    distinct = {f"Question {n} about the shed" for n in range(50)} | {"Behind the house, as you said."}
    assert set(texts) == distinct
    assert memory.count() <= len(distinct)
