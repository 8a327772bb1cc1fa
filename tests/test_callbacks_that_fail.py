"""Functions of the user's that fail beside a call: what was paid for is returned, and nothing is swallowed."""

# ruff: noqa: ARG001, ARG002, ARG005, RUF043 - functions to be cached need their arguments

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration
from llama_index.core.llms import MockLLM

from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    Embedder,
    Experience,
    ExperiencePool,
    LangmemError,
    LongTermMemory,
    Message,
    ModelError,
    SearchError,
    cached,
    open_vectors,
)
from langmem_adapters.erasure import delete_user
from langmem_adapters.experience import DataSerializer, FunctionCache
from langmem_adapters.indexes import open_index
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.llamaindex import BrainRetriever, CachedLLM
from langmem_adapters.model import Score
from langmem_adapters.operations import Checkup, Pruning
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore


class Failing:
    """A function that fails, and says something that is nobody's business."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or KeyError("a secret")
        self.asked = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        raise self.error


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def decorated(kind: str, answers: Iterator[str], **options: Any) -> tuple[Callable[[str], str], FunctionCache]:
    """A function that gives these answers, plain or async: how it is called, and its cache."""
    if kind == "sync":

        @cached(**options)
        def f(country: str) -> str:
            return next(answers)

        return f, f.cache

    @cached(**options)
    async def g(country: str) -> str:
        return next(answers)

    return (lambda country: asyncio.run(g(country))), g.cache


@pytest.mark.parametrize("what", ["metric", "should_store"])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_was_paid_for_is_returned_and_not_kept(
    what: str, kind: str, any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    call, cache = decorated(kind, iter(["Paris", "Lyon"]), store=any_store, **{what: Failing()})
    assert [call("France"), call("France")] == ["Paris", "Lyon"]
    stats = cache.stats()
    assert (stats["errors"], stats["stored"], stats["hits"], cache.pool.count()) == (2, 0, 0, 0)
    assert [text.partition(" goes")[2] for text in warnings(caplog)] == [
        f" on without its cache: LangmemError: {what} failed: KeyError"
    ]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_experience_of_which_the_judge_cannot_say_is_not_served(
    kind: str, any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    judge = Failing(TimeoutError("a secret"))

    async def ajudge(experience: Experience, req: Any) -> bool:
        return bool(judge())

    answers = iter(["Paris", "Lyon", "Nice"])
    call, cache = decorated(kind, answers, store=any_store, judge=judge if kind == "sync" else ajudge)
    assert [call("France"), call("France"), call("France")] == ["Paris", "Lyon", "Nice"]
    assert judge.asked == 2
    stats = cache.stats()
    assert (stats["rejected"], stats["errors"], stats["stored"], stats["hits"]) == (2, 2, 3, 0)
    assert [text.partition(" goes")[2] for text in warnings(caplog)] == [
        " on without its cache: ModelError: the judge failed: TimeoutError"
    ]


@pytest.mark.parametrize("verdict", ["no", 0.2, Score(val=1), 1, None])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_judge_that_says_neither_true_nor_false_serves_nothing(
    kind: str, verdict: Any, caplog: pytest.LogCaptureFixture
) -> None:
    call, cache = decorated(kind, iter(["Paris", "Lyon"]), store=MemoryStore(), judge=lambda *_: verdict)
    assert [call("France"), call("France")] == ["Paris", "Lyon"]
    assert (cache.stats()["rejected"], cache.stats()["errors"], cache.stats()["hits"]) == (1, 1, 0)
    assert f"the judge gave neither True nor False, but {type(verdict).__name__}" in caplog.text


def test_a_judge_may_say_numpys_true() -> None:
    call, _ = decorated("sync", iter(["Paris", "Lyon"]), store=MemoryStore(), judge=lambda *_: np.bool_(True))
    assert [call("France"), call("France")] == ["Paris", "Paris"]


def test_a_judge_that_fails_at_one_similar_experience_is_not_asked_about_the_others() -> None:
    toy = open_vectors("memory:", Embedder(lambda texts: [[1.0] for _ in texts], name="toy"))
    judge = Failing()

    @cached(store=MemoryStore(), judge=judge, query_type="semantic", index=toy)
    def f(country: str) -> str:
        return country.upper()

    assert [f("a"), f("b"), f("c")] == ["A", "B", "C"]
    assert judge.asked == 2


@pytest.mark.parametrize(
    ("what", "error"), [("metric", LangmemError), ("should_store", LangmemError), ("judge", ModelError)]
)
def test_it_is_raised_where_that_is_asked_for(what: str, error: type[Exception]) -> None:
    policies: dict[str, Any] = {what: Failing()}

    @cached(store=MemoryStore(), on_error="raise", **policies)
    def f(country: str) -> str:
        return "Paris"

    if what == "judge":  # who is asked when there is something to judge
        f("France")
    with pytest.raises(error, match=f"{what} failed: KeyError$") as raised:
        f("France")
    assert type(raised.value.__cause__) is KeyError


@pytest.mark.parametrize("what", ["metric", "should_store", "judge"])
def test_a_wrong_setting_is_raised_always(what: str) -> None:
    policies: dict[str, Any] = {what: Failing(ConfigurationError("wrong"))}

    @cached(store=MemoryStore(), **policies)
    def f(country: str) -> str:
        return "Paris"

    if what == "judge":
        f("France")
    with pytest.raises(ConfigurationError, match="^wrong$"):
        f("France")


def test_a_metric_that_is_none_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    @cached(store=MemoryStore(), metric=lambda result: {"input_tokens": 5})  # type: ignore[arg-type, return-value]
    def f(country: str) -> str:
        return "Paris"

    assert f("France") == "Paris"
    assert f.cache.stats()["errors"] == 1
    assert "metric gave no Metric, but dict" in caplog.text


class Renaming(DataSerializer):
    """Its methods have other parameters."""

    def serialize_req(self, request: Any) -> Any:  # type: ignore[override]
        return request


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"serializer": Failing()}, "the serializer's serialize_req failed: KeyError"),
        ({"serializer": Renaming()}, "the serializer's serialize_req failed: TypeError"),
        ({"key": Failing()}, "key failed: KeyError"),
        ({"key": {"country": Failing()}}, "key failed: KeyError"),
    ],
)
def test_a_call_that_gets_no_key_is_made_without_the_cache(
    kind: str, options: dict[str, Any], cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    call, cache = decorated(kind, iter(["Paris", "Lyon"]), store=MemoryStore(), **options)
    assert [call("France"), call("France")] == ["Paris", "Lyon"]
    assert (cache.stats()["misses"], cache.stats()["errors"], cache.pool.count()) == (2, 2, 0)
    assert [text.partition(" without its cache: ")[2] for text in warnings(caplog)] == [f"LangmemError: {cause}"]
    with pytest.raises(LangmemError, match=cause):
        cache.lookup("France")
    call, _ = decorated(kind, iter(["Paris"]), store=MemoryStore(), on_error="raise", **options)
    with pytest.raises(LangmemError, match=cause):
        call("France")


@pytest.mark.parametrize(
    ("method", "cause"),
    [
        ("serialize_resp", "the serializer's serialize_resp failed: KeyError"),
        ("deserialize_resp", "let the serializer's deserialize_resp give back what serialize_resp was given"),
    ],
)
def test_a_result_that_a_serializer_cannot_take_is_not_kept_and_says_why(
    method: str, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    serializer = Renaming()
    setattr(serializer, method, Failing())
    serializer.serialize_req = lambda country: country  # type: ignore[method-assign, assignment]
    call, cache = decorated("sync", iter(["Paris", "Lyon"]), store=MemoryStore(), serializer=serializer)
    assert [call("France"), call("France")] == ["Paris", "Lyon"]
    assert (cache.stats()["refused"], cache.stats()["stored"]) == (2, 0)
    assert cause in caplog.text


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_context_builder_that_gives_nothing_is_not_followed(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    asked: list[object] = []
    options: dict[str, Any] = {
        "store": MemoryStore(),
        "index": open_index("memory:"),
        "context_builder": lambda *_: None,
    }

    def answer(question: str) -> str:
        asked.append(question)
        return "In the shed."

    async def aanswer(question: str) -> str:
        return answer(question)

    f: Any = cached(**options)(answer if kind == "sync" else aanswer)
    for question in ("Where is the bike?", "Where is the red bike?"):
        assert (f(question) if kind == "sync" else asyncio.run(f(question))) == "In the shed."
    assert asked == ["Where is the bike?", "Where is the red bike?"]
    assert "the context builder gave None in place of a request" in caplog.text


def test_those_who_wait_are_told_though_nothing_was_kept() -> None:
    @cached(store=MemoryStore(), should_store=Failing(), wait=30)
    def f(country: str) -> str:
        return "Paris"

    assert f("France") == "Paris"
    assert f.cache.calls.flights.get(f.cache.calls.arguments.call_key(("France",), {})) is None


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_array_that_is_neither_true_nor_false_keeps_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"should_store": lambda _: np.array([True, False])}
    call, cache = decorated(kind, iter(["Paris", "Lyon"]), store=MemoryStore(), **options)
    assert [call("France"), call("France")] == ["Paris", "Lyon"]
    assert (cache.stats()["errors"], cache.stats()["stored"]) == (2, 0)
    assert "should_store failed: ValueError" in caplog.text


# --- models


@pytest.mark.parametrize("form", ["cache= of the model", "CachedChatModel"])
def test_a_models_answer_is_returned(form: str, any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    cache = ExperienceCache(store=any_store, should_store=Failing())
    inner = FakeListChatModel(responses=["a", "b"], cache=cache if form == "cache= of the model" else None)
    model = CachedChatModel(inner, cache) if form == "CachedChatModel" else inner
    assert [model.invoke("Hi").content for _ in range(2)] == ["a", "b"]
    assert (cache.stats()["errors"], cache.stats()["stored"]) == (2, 0)
    assert warnings(caplog) == ["the model call goes on without its cache: LangmemError: should_store failed: KeyError"]


@pytest.mark.parametrize("form", ["cache= of the model", "CachedChatModel"])
def test_a_model_is_asked_where_the_judge_fails(form: str) -> None:
    vectors = open_vectors("memory:", Embedder(lambda texts: [[1.0] for _ in texts], name="toy"))
    judge = Failing()
    cache = ExperienceCache(store=MemoryStore(), semantic=SemanticMode(index=vectors, judge=judge))
    inner = FakeListChatModel(responses=["a", "b"], cache=cache if form == "cache= of the model" else None)
    model = CachedChatModel(inner, cache) if form == "CachedChatModel" else inner
    assert [model.invoke("Where is it?").content for _ in range(2)] == ["a", "b"]
    assert judge.asked
    assert cache.stats()["hits"] == 0
    assert cache.stats()["errors"] >= 1


def test_a_models_cache_raises_where_that_is_asked_for() -> None:
    cache = ExperienceCache(store=MemoryStore(), should_store=Failing(), on_error="raise")
    with pytest.raises(LangmemError, match="should_store failed: KeyError$"):
        cache.update("p", "m", [ChatGeneration(message=AIMessage("Hi"))])


def test_an_llms_answer_is_returned(any_store: Store) -> None:
    llm = CachedLLM(MockLLM(), store=any_store, should_store=Failing())
    assert llm.complete("Hi").text == "Hi"
    assert (llm.stats()["errors"], llm.stats()["stored"]) == (1, 0)


# --- an index of one's own


class OwnIndex:
    """Gives what it is told in the place of hits; else it does as an index does."""

    def __init__(self, give: Callable[..., Any]) -> None:
        inner = open_index("memory:")
        self.apply, self.position, self.clear, self.close = inner.apply, inner.position, inner.clear, inner.close
        self.search = give


def _search_memories(store: Store, index: Any) -> object:
    memory = LongTermMemory(store, index, user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    return memory.search("bike")


def _search_items(store: Store, index: Any) -> object:
    items = LongTermStore(store=store, index=index)
    items.put(("ada",), "k", {"text": "bike"})
    return items.search(("ada",), query="bike")


def _search_session(store: Store, index: Any) -> object:
    brain = BrainMemory(store, "s")
    brain.add_talk("My bike is in the shed.")
    return BrainRetriever(brain=brain, index=index).retrieve("bike")


def _search_experiences(store: Store, index: Any) -> object:
    pool = ExperiencePool(store, index=index)
    pool.create(Experience(req="Where is my bike?", resp="In the shed."))
    return pool.query("bike", query_type="semantic")


@pytest.mark.parametrize("search", [_search_memories, _search_items, _search_session, _search_experiences])
@pytest.mark.parametrize("give", [Failing(), lambda *_: None, lambda *_: [("1", 0.5)], list])
def test_an_index_that_fails_is_a_search_error(
    search: Callable[[Store, Any], object], give: Callable[..., Any]
) -> None:
    with pytest.raises(SearchError, match=r"^the index OwnIndex (failed: \w+Error|gave no list of hits)$"):
        search(MemoryStore(), OwnIndex(give))


class OwnVectors(OwnIndex):
    """The same, of vectors."""

    def __init__(self, **fails: Callable[..., Any]) -> None:
        inner = open_vectors("memory:", Embedder(lambda texts: [[1.0]] * len(texts), name="one"))
        super().__init__(inner.search)
        self.apply, self.position, self.clear, self.close = inner.apply, inner.position, inner.clear, inner.close
        self.score = inner.score
        vars(self).update(fails)


def own_index(**fails: Callable[..., Any]) -> Any:
    index = OwnIndex(open_index("memory:").search)
    vars(index).update(fails)
    return index


@pytest.mark.parametrize("name", ["search", "score", "position"])
def test_own_vectors_that_fail_are_gone_without(name: str) -> None:
    for strict in (False, True):
        memory = LongTermMemory(
            MemoryStore(), open_index("memory:"), vectors=OwnVectors(**{name: Failing()}), user="ada", strict=strict
        )
        memory.add([Message(role="user", content="My bike is in the shed.")])
        if strict:
            with pytest.raises(SearchError, match=r"^the index OwnVectors failed: KeyError$"):
                memory.search("bike")
        else:
            assert len(memory.search("bike")) == 1
            assert memory.stats()["degraded"] == 1


def test_an_index_that_cannot_follow_a_session_is_a_search_error() -> None:
    brain = BrainMemory(MemoryStore(), "s")
    brain.add_talk("My bike is in the shed.")
    with pytest.raises(SearchError, match=r"^the index OwnIndex failed: KeyError$"):
        BrainRetriever(brain=brain, index=own_index(apply=Failing())).retrieve("bike")


def test_an_index_that_cannot_forget_does_not_fail_what_was_stored(caplog: pytest.LogCaptureFixture) -> None:
    pool = ExperiencePool(MemoryStore(), index=own_index(position=Failing()), max_entries=1)
    for n in range(40):  # some are evicted by then
        pool.create(Experience(req=f"question {n}", resp="answer"))
    assert pool.count() < 40
    items = LongTermStore(store=MemoryStore(), index=own_index(clear=Failing()))
    items.put(("ada",), "k", {"text": "bike"})
    items.delete(("ada",), "k")
    assert items.search(("ada",)) == []
    assert "could not be cleared; this will be tried again: the index OwnIndex failed: KeyError" in caplog.text


@pytest.mark.parametrize("kind", ["memories", "experiences"])
def test_an_index_that_cannot_be_cleared_is_a_search_error(kind: str) -> None:
    index = own_index(clear=Failing())
    memory = LongTermMemory(MemoryStore(), index, user="ada")
    with pytest.raises(SearchError, match=r"^the index OwnIndex failed: KeyError$"):
        (memory if kind == "memories" else ExperiencePool(MemoryStore(), index=index)).clear()


@pytest.mark.parametrize("name", ["position", "apply"])
def test_an_index_that_cannot_follow_is_a_search_error(name: str) -> None:
    store = MemoryStore()
    memory = LongTermMemory(store, own_index(**{name: Failing()}), user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    with pytest.raises(SearchError, match=r"^the index OwnIndex failed: KeyError$"):
        memory.flush()
    with pytest.raises(SearchError, match=r"^the index OwnVectors failed: KeyError$"):
        LongTermMemory(store, open_index("memory:"), vectors=OwnVectors(**{name: Failing()}), user="ada").flush()


def test_what_shows_progress_may_raise_and_is_not_taken_for_the_indexs_failure() -> None:
    def show(done: int, _: int | None) -> None:
        raise KeyError(done)

    memory = LongTermMemory(MemoryStore(), own_index(), user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    with pytest.raises(KeyError):
        memory.flush(progress=show)


@pytest.mark.parametrize("name", ["clear", "namespaces"])
def test_an_index_that_cannot_be_pruned_is_a_search_error(name: str) -> None:
    store = MemoryStore(clock=lambda: 0.0)
    BrainMemory(store, "s").add_talk("My bike is in the shed.")
    index = own_index(namespaces=lambda _: [("longterm", "", "ada")])
    setattr(index, name, Failing())
    with pytest.raises(SearchError, match=r"^the index OwnIndex failed: KeyError$"):
        Pruning(store, 1, indexes=[index]).run()


def test_an_index_that_fails_in_an_examination_is_a_finding() -> None:
    store = MemoryStore()
    LongTermMemory(store, open_index("memory:"), user="ada").add([Message(role="user", content="My bike is red.")])
    (finding,) = (f for f in Checkup(store, index=own_index(position=Failing())).examine() if f.level == "problem")
    assert finding.message == "the index OwnIndex failed: KeyError"


def test_a_user_is_deleted_elsewhere_though_an_own_index_fails() -> None:
    store = MemoryStore()

    def clear(namespace: Namespace) -> None:
        if namespace[0] == "longterm":
            raise KeyError("a secret")

    LongTermMemory(store, open_index("memory:"), user="ada").add([Message(role="user", content="My bike is red.")])
    pool = ExperiencePool(store, user="ada")
    pool.create(Experience(req="Where is my bike?", resp="In the shed."))
    with pytest.raises(SearchError, match=r"longterm failed \(the index OwnIndex failed: KeyError\)$"):
        delete_user(store, [own_index(clear=clear)], user="ada")
    assert pool.count() == 0
    assert list(store.namespaces()) == [("longterm", "", "ada")]
