"""One cache of models for all tenants of a process, each found as it is served (C10)."""

from __future__ import annotations

import asyncio
import enum
import itertools
import operator
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Annotated, Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ensure_config
from langgraph.graph import START, StateGraph
from langgraph.types import CachePolicy
from llama_index.core.base.llms.types import ChatMessage
from typing_extensions import TypedDict

from langmem_adapters import ConfigurationError
from langmem_adapters.embedding import Embedder
from langmem_adapters.experience.single_flight import tenants
from langmem_adapters.indexes import open_vectors
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.langgraph import ExperienceNodeCache
from langmem_adapters.llamaindex import CachedLLM
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.test_cached_llm import Scripted
from tests.test_semantic_cache import ALIKE, ASKED, topics

pytestmark = pytest.mark.usefixtures("patient_search")

served: ContextVar[Any] = ContextVar("served")
unset: ContextVar[Any] = ContextVar("unset")


def numbered(cache: ExperienceCache | None = None) -> FakeListChatModel:
    return FakeListChatModel(responses=[str(n) for n in range(20)], cache=cache)


def asked(model: Any, tenant: object, question: str = "Hi") -> str:
    token = served.set(tenant)
    try:
        return str(model.invoke(question).content)
    finally:
        served.reset(token)


@pytest.mark.parametrize("keep", [None, 60.0])
def test_c10_a_context_variable_says_whose_answers_are_served(any_store: Store, keep: float | None) -> None:
    cache = ExperienceCache(store=any_store, tenant=served, strict=False, keep=keep)
    model = numbered(cache)
    people: list[object] = ["x", "y", 7, None, ""]
    assert [asked(model, person) for person in people * 2] == ["0", "1", "2", "3", "3"] * 2
    assert model.invoke("Hi").content == "3"  # where it was never set
    assert ExperienceCache(store=any_store, tenant="7").pool.count() == 1
    assert (cache.stats()["hits"], cache.stats()["misses"], cache.stats()["bypassed"]) == (7, 4, 0)


class Customer(str, enum.Enum):
    ACME = "acme"


class Masked(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "***"


def test_c10_a_tenant_is_what_a_text_is_not_what_it_shows() -> None:
    store = MemoryStore()
    model = numbered(ExperienceCache(store=store, tenant=served))
    assert [asked(model, name) for name in (Masked("x"), Masked("y"), Customer.ACME, "x", "acme")] == list("01202")
    assert ExperienceCache(store=store, tenant="acme").pool.count() == 1


async def test_c10_tasks_that_run_at_once_have_the_answers_of_their_own_tenant(any_store: Store) -> None:
    model = numbered(ExperienceCache(store=any_store, tenant=served))

    async def ask(tenant: str) -> str:
        served.set(tenant)
        return str((await model.ainvoke("Hi")).content)

    first = dict(zip("abcdef", await asyncio.gather(*map(ask, "abcdef")), strict=True))
    assert len(set(first.values())) == 6
    assert dict(zip("abcdef", await asyncio.gather(*map(ask, "abcdef")), strict=True)) == first


def test_c10_a_function_reads_the_tenant_from_the_configuration_of_a_run() -> None:
    cache = ExperienceCache(store=MemoryStore(), tenant=lambda: ensure_config()["configurable"]["tenant"])
    chain = RunnableLambda(str.upper) | numbered(cache)
    runs: list[Any] = [{"configurable": {"tenant": tenant}} for tenant in ("x", "y")] * 2
    assert [chain.invoke("hi", config).content for config in runs] == ["0", "1", "0", "1"]
    assert [chain.invoke("hi").content for _ in range(2)] == ["2", "3"]
    # LangChain asks a model for a whole batch outside of every run: nobody is given what others were answered.
    assert [answer.content for answer in chain.batch(["hi", "hi"], runs[:2])] == ["4", "5"]
    assert cache.stats()["bypassed"] == 4


@pytest.mark.parametrize(("tenant", "person"), [(served, None), (served, ""), (lambda: None, "x"), (unset.get, "x")])
@pytest.mark.parametrize("wrapped", [False, True])
def test_c10_without_a_tenant_a_strict_cache_goes_by(tenant: Any, person: object, wrapped: bool) -> None:
    store = MemoryStore()
    cache = ExperienceCache(store=store, tenant=tenant)
    model = CachedChatModel(numbered(), cache) if wrapped else numbered(cache)
    assert [asked(model, person), asked(model, person)] == ["0", "1"]
    assert list(store.namespaces()) == []
    assert cache.stats()["bypassed"] == 2
    token = served.set(person)
    for forbidden in (cache.clear, lambda: cache.delete("key"), lambda: cache.invalidate(tag="t"), lambda: cache.pool):
        with pytest.raises(ConfigurationError, match="no tenant is set"):
            forbidden()
    served.reset(token)
    assert "ExperienceCache" in repr(cache)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
async def test_c10_without_a_tenant_nobody_has_what_was_kept_for_no_tenant(
    any_store: Store, wrapped: bool, waits: bool
) -> None:
    shared = ExperienceCache(store=any_store)
    numbered(shared).invoke("Hi")
    cache = ExperienceCache(store=any_store, tenant=served)
    model = CachedChatModel(numbered(), cache) if wrapped else numbered(cache)
    answers = [(await model.ainvoke("Hi")) if waits else model.invoke("Hi") for _ in range(2)]
    assert [answer.content for answer in answers] == ["0", "1"]
    assert (len(list(any_store.namespaces())), shared.pool.count()) == (1, 1)
    assert cache.stats()["bypassed"] == 2


@pytest.mark.parametrize("stream", [False, True])
def test_c10_a_cached_model_has_the_answers_of_who_is_served(any_store: Store, stream: bool) -> None:
    cache = ExperienceCache(store=any_store, tenant=served)
    model = CachedChatModel(numbered(), cache)

    def ask(tenant: str) -> str:
        token = served.set(tenant)
        answer = "".join(str(chunk.content) for chunk in model.stream("Hi")) if stream else model.invoke("Hi").content
        served.reset(token)
        return str(answer)

    assert [ask(tenant) for tenant in "xyxy"] == ["0", "1", "0", "1"]
    assert (model.stats()["hits"], model.stats()["stored"], cache.stats()["hits"]) == (2, 2, 2)


def test_c10_a_cached_model_is_as_strict_as_its_cache(any_store: Store) -> None:
    model = CachedChatModel(numbered(), ExperienceCache(store=any_store, tenant=served, strict=False))
    assert [asked(model, person) for person in ("x", None, "", "x")] == ["0", "1", "1", "0"]


async def test_c10_a_model_of_llamaindex_has_the_answers_of_who_is_served(any_store: Store) -> None:
    llm = CachedLLM(Scripted(script=[str(n) for n in range(9)]), store=any_store, tenant=served)
    question = [ChatMessage("Hi")]

    async def ask(tenant: object) -> list[Any]:
        served.set(tenant)
        streamed = [piece.delta or "" async for piece in await llm.astream_chat(question)]
        plain = [llm.chat(question), await llm.achat(question)]
        return ["".join(streamed), *(response.message.content for response in plain)]

    assert [await asyncio.create_task(ask(tenant)) for tenant in "xyxy"] == [[n] * 3 for n in "0101"]
    assert await asyncio.create_task(ask(None)) == ["2", "3", "4"]
    assert (llm.stats()["hits"], llm.stats()["stored"], llm.stats()["bypassed"]) == (10, 2, 3)
    with pytest.raises(ConfigurationError, match="no tenant is set"):
        llm.pool.clear()
    llm = CachedLLM(Scripted(script=["5", "6"]), store=any_store, tenant=served, strict=False)
    assert [await asyncio.create_task(ask(tenant)) for tenant in (None, "", "x")] == [["5"] * 3, ["5"] * 3, ["0"] * 3]


def test_c10_who_forgets_forgets_their_own(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store, tenant=served)
    model = numbered(cache)
    ways: list[Callable[[], object]] = [
        cache.clear,
        lambda: cache.invalidate(lambda _: True),
        lambda: cache.invalidate(tag="langchain"),
    ]
    for n, forget in enumerate(ways):
        first = [asked(model, tenant, f"Q{n}") for tenant in "xy"]
        token = served.set("x")
        forget()
        served.reset(token)
        again = [asked(model, tenant, f"Q{n}") for tenant in "xy"]
        assert again[0] != first[0]
        assert again[1] == first[1]


def test_c10_meanings_are_looked_for_among_ones_own(any_store: Store) -> None:
    embedded: list[str] = []

    def noting(texts: Sequence[str]) -> list[list[float]]:
        embedded.extend(texts)
        return topics(texts)

    mode = SemanticMode(index=open_vectors("memory:", Embedder(noting, name="topics")))
    model = numbered(ExperienceCache(store=any_store, tenant=served, semantic=mode))
    answers = [asked(model, tenant, question) for question in (ASKED, ALIKE) for tenant in ("acme", "globex")]
    assert answers == ["0", "1", "0", "1"]
    assert {ASKED, ALIKE} <= set(embedded)
    assert not any(tenant in text for tenant in ("acme", "globex") for text in embedded)


def test_tenants_who_have_not_been_here_for_long_keep_their_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "_MAX_TENANTS", 2)
    cache = ExperienceCache(store=MemoryStore(), tenant=served)
    model = numbered(cache)
    assert [asked(model, tenant) for tenant in "abcdeabcde"] == list("0123401234")
    assert (cache.stats()["hits"], cache.stats()["stored"]) == (5, 5)


@pytest.mark.parametrize("wrong", [5, None, ["x"]])
def test_a_tenant_that_cannot_be_one_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="a tenant is a text, a context variable or a function"):
        ExperienceCache(store=MemoryStore(), tenant=wrong)
    with pytest.raises(ConfigurationError, match="tenant is a coroutine function: give it a plain one"):
        ExperienceCache(store=MemoryStore(), tenant=asyncio.sleep)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="a tenant id is a text, not object"):
        ExperienceCache(store=MemoryStore(), tenant=object).lookup("p", "llm")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_c10_nodes_of_one_graph_whose_keys_say_whose_they_are(any_store: Store, mode: str) -> None:
    runs = itertools.count()

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        return {"answers": [f"{served.get()} {next(runs)}"]}

    def other(state: dict[str, Any]) -> dict[str, Any]:
        return answer(state)

    class Told(TypedDict):
        answers: Annotated[list[str], operator.add]

    builder: Any = StateGraph(Told)
    for node in (answer, other):  # at once, each on a thread of its own
        builder.add_node(node, cache_policy=CachePolicy(key_func=lambda _: str(served.get())))
        builder.add_edge(START, node.__name__)
    graph = builder.compile(cache=ExperienceNodeCache(store=any_store))

    def ask(tenant: str) -> list[str]:
        served.set(tenant)
        start: Told = {"answers": []}
        found = graph.invoke(start) if mode == "sync" else asyncio.run(graph.ainvoke(start))
        return sorted(found["answers"])

    first = [copy_context().run(ask, tenant) for tenant in "xy"]
    assert [answers[0][0] for answers in first] == ["x", "y"]
    assert [copy_context().run(ask, tenant) for tenant in "xy"] == first
    assert next(runs) == 4
