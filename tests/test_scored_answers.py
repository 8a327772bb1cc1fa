"""Scores of models' answers, made after they were returned; and what the hits have saved, in stats()."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    CompletionResponseGen,
    ThinkingBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback

from langmem_adapters import ConfigurationError, Experience, ExperiencePool, cached, open_index
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience import AtLeast, LLMJudge, LLMScorer, RuleScorer, Saved
from langmem_adapters.experience.model_answers import answer_text
from langmem_adapters.langchain import CachedChatModel, ExperienceCache, ExperienceMiddleware
from langmem_adapters.langchain import experience as module
from langmem_adapters.langchain.caching.prompt import last_question
from langmem_adapters.llamaindex import CachedLLM
from langmem_adapters.model import Metric, Score
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Down
from tests.test_cached_chat_model import AsyncScripted, Scripted


class Echo(CustomLLM):
    """Says what it is asked, at three tokens in and four out."""

    _pending: int = PrivateAttr(default=0)  # no field, as these are part of what is asked

    @property
    def asked(self) -> int:
        return self._pending

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="echo")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:  # noqa: ARG002 - theirs
        self._pending += 1
        return CompletionResponse(text=prompt, raw={"usage": {"prompt_tokens": 3, "completion_tokens": 4}})

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        yield self.complete(prompt, formatted, **kwargs)


class Host:
    """One of the caches around a model, and the ways to ask through it."""

    def __init__(self, kind: str, **settings: Any) -> None:
        self.kind = kind
        self.inner: Any = AsyncScripted(script=["In the shed.", "Behind it."])
        if kind.startswith("llm"):
            self.inner = Echo()
            self.cache: Any = CachedLLM(self.inner, **settings)
        elif kind == "agent":
            self.cache = ExperienceMiddleware(**settings)
            self.agent: Any = create_agent(self.inner, middleware=[self.cache])
        else:
            self.cache = self._wrapped(ExperienceCache(**settings))

    def _wrapped(self, cache: ExperienceCache) -> Any:
        if self.kind == "chat":
            return CachedChatModel(self.inner, cache)
        self.inner.cache = cache
        return cache

    @property
    def asked(self) -> int:
        return int(self.inner.asked)

    def say(self, messages: list[BaseMessage]) -> None:
        """Ask a model of LangChain."""
        if self.kind == "agent":
            self.agent.invoke({"messages": messages}, context={"user_id": "ada"})
        else:
            (self.cache if self.kind == "chat" else self.inner).invoke(messages)

    def ask(self, text: str) -> None:
        if self.kind.startswith("llm"):
            self.cache.complete(text) if self.kind == "llm" else list(self.cache.stream_complete(text))
        elif self.kind == "agent":
            self.agent.invoke({"messages": [HumanMessage(text)]}, context={"user_id": "ada"})
        elif self.kind == "chat":
            list(self.cache.stream(text))
        else:
            self.inner.invoke(text)

    async def aask(self, text: str) -> None:
        if self.kind.startswith("llm"):
            await self.cache.acomplete(text)
        elif self.kind == "agent":
            await self.agent.ainvoke({"messages": [HumanMessage(text)]}, context={"user_id": "ada"})
        elif self.kind == "chat":
            await self.cache.ainvoke(text)
        else:
            await self.inner.ainvoke(text)


KINDS = ("cache", "chat", "agent", "llm", "llm stream")
each_kind = pytest.mark.parametrize("kind", KINDS)
ANSWERS = {"llm": "Where is it?", "llm stream": "Where is it?"}  # others say what is scripted


@pytest.fixture(autouse=True)
def no_global_cache() -> Iterator[None]:
    yield
    set_llm_cache(None)


# --- scores


@each_kind
def test_an_answer_is_scored_after_it_was_returned_and_then_good_enough(kind: str, any_store: Store) -> None:
    gate, shown = threading.Event(), []

    def scorer(req: Any, resp: Any) -> Score:
        assert gate.wait(60)
        shown.append((req, resp, threading.current_thread() is threading.main_thread()))
        return Score(val=8, reason="right")

    host = Host(kind, store=any_store, scorer=scorer, judge=AtLeast(7))
    host.ask("Where is it?")  # returns while the scorer stands
    gate.set()
    host.cache.flush()
    assert shown == [("Where is it?", ANSWERS.get(kind, "In the shed."), False)]
    host.ask("Where is it?")
    assert (host.asked, host.cache.stats()["scored"], host.cache.stats()["unscored"]) == (1, 1, 0)
    assert host.cache.stats()["hits"] == 1
    assert len(shown) == 1  # what was served was scored already


@each_kind
def test_what_has_a_bad_score_or_none_is_not_served(kind: str) -> None:
    for scorer in (None, lambda *_: 2):
        host = Host(kind, store=MemoryStore(), scorer=scorer, judge=AtLeast(7))
        for _ in range(2):
            host.ask("Where is it?")
            host.cache.flush()
        assert (host.asked, host.cache.stats()["hits"]) == (2, 0)
        assert host.cache.stats()["scored"] == (2 if scorer else 0)


@each_kind
async def test_async_scorers_and_plain_ones_score_async_calls(kind: str) -> None:
    async def slow(*_: Any) -> int:
        return 9

    def hands_on(*_: Any) -> Any:
        return slow()

    scorers: list[Callable[..., Any]] = [slow, hands_on, lambda *_: 9]
    for scorer in scorers:
        host = Host(kind, store=MemoryStore(), scorer=scorer, judge=AtLeast(9))
        await host.aask("Where is it?")
        await host.cache.aflush()
        await host.aask("Where is it?")
        await host.cache.aflush()
        # One that says only when it is called that it needs a loop is called where there is none.
        stats, fits = host.cache.stats(), scorer is not scorers[1]
        assert (stats["scored"], stats["unscored"], stats["hits"]) == ((1, 0, 1) if fits else (0, 2, 0))


@each_kind
def test_a_scorer_that_fails_is_counted_and_told_of_once_and_touches_no_call(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def scorer(*_: Any) -> int:
        raise ConnectionError("my-secret")

    host = Host(kind, store=MemoryStore(), scorer=scorer)
    for text in ("a", "b", "c", "a"):
        host.ask(text)
    host.cache.flush()
    assert (host.asked, host.cache.stats()["unscored"], host.cache.stats()["hits"]) == (3, 3, 1)
    told = [record.getMessage() for record in caplog.records if "not scored" in record.getMessage()]
    assert len(told) == 1
    assert "my-secret" not in caplog.text


@each_kind
def test_what_could_not_be_kept_is_not_scored_either(kind: str) -> None:
    shown: list[Any] = []

    def scorer(*told: Any) -> int:
        shown.append(told)
        return 9

    host = Host(kind, store=Down(), scorer=scorer)
    host.ask("Where is it?")
    host.cache.flush()
    assert (host.asked, shown) == (1, [])
    assert host.cache.stats()["errors"] > 0


@pytest.mark.parametrize("kind", ["chat", "llm"])
async def test_streams_on_an_event_loop_are_scored_when_they_were_read(kind: str) -> None:
    async def scorer(req: Any, resp: Any) -> int:
        shown.append((req, resp))
        return 9

    shown: list[Any] = []
    host = Host(kind, store=MemoryStore(), scorer=scorer)
    for _ in range(2):
        stream = host.cache.astream("Where is it?") if kind == "chat" else await host.cache.astream_complete("Where?")
        async for _ in stream:
            pass
        await host.cache.aflush()
    assert shown == [("Where is it?", "In the shed.") if kind == "chat" else ("Where?", "Where?")]
    assert host.cache.stats()["scored"] == 1


def test_an_async_scorer_does_not_score_sync_calls() -> None:
    async def scorer(*_: Any) -> int:
        return 9

    host = Host("cache", store=MemoryStore(), scorer=scorer)
    host.ask("a")
    host.cache.flush()
    assert (host.cache.stats()["scored"], host.cache.stats()["unscored"]) == (0, 1)


@pytest.mark.parametrize("mode", ["plain", "async"])
@each_kind
async def test_a_scorers_own_model_call_never_goes_through_the_cache(kind: str, mode: str) -> None:
    """With ``set_llm_cache`` each score would else be an answer that is kept and scored, and so on for ever."""
    judging = Scripted(script=[AIMessage('{"val": 9, "reason": "right"}')])

    async def asks(prompt: str) -> str:
        return str((await judging.ainvoke(prompt)).content)

    scorer = LLMScorer(judging) if mode == "plain" else LLMScorer(asks)
    store = MemoryStore()
    everywhere = ExperienceCache(store=store, scorer=scorer)
    set_llm_cache(everywhere)
    host = Host(kind, store=store, scorer=scorer)
    await host.aask("Where is it?")
    for cache in (host.cache, everywhere) * 3:
        await cache.aflush()
    assert (host.asked, judging.asked) == (1, 1)
    assert everywhere.stats()["stored"] == everywhere.stats()["misses"] == 0
    assert host.cache.stats()["scored"] == host.cache.stats()["stored"] == 1


def test_a_function_that_scores_itself_does_not_do_it_for_ever() -> None:
    calls: list[str] = []

    @cached(store=MemoryStore(), scorer=LLMScorer(lambda prompt: f(prompt)))  # noqa: PLW0108 - f is to be
    def f(prompt: str) -> str:
        calls.append(prompt)
        return '{"val": 9, "reason": "mine"}'

    f("q")
    f.cache.flush()
    assert (len(calls), f.cache.stats()["scored"], f.cache.stats()["stored"]) == (2, 1, 1)


@pytest.mark.parametrize("mode", ["blocking", "async", "coroutine"])
@each_kind
async def test_what_a_judge_asks_a_model_is_not_judged_itself(kind: str, mode: str) -> None:
    """With ``set_llm_cache`` each hit would else add a level of judgements, each with all earlier ones in its text."""
    model = Scripted(script=[AIMessage('{"perfect": true}')])

    async def aasks(prompt: str) -> str:
        return str((await model.ainvoke(prompt)).content)

    judge = LLMJudge(aasks) if mode == "coroutine" else LLMJudge(model)
    store = MemoryStore()
    everywhere = ExperienceCache(store=store, judge=judge, scorer=lambda *_: 9)
    set_llm_cache(everywhere)
    host = Host(kind, store=store, judge=judge)
    for _ in range(4):
        host.ask("Where is it?") if mode == "blocking" else await host.aask("Where is it?")
    assert (host.asked, host.cache.stats()["hits"], model.asked) == (1, 3, 3)
    everywhere.flush()
    assert everywhere.stats()["stored"] == everywhere.stats()["scored"] == 0


def test_a_judges_answers_come_from_caches_that_do_not_ask_it() -> None:
    model = Scripted(script=[AIMessage('{"perfect": true}')])
    host = Host(
        "chat", store=MemoryStore(), judge=LLMJudge(CachedChatModel(model, ExperienceCache(store=MemoryStore())))
    )
    for _ in range(4):
        host.ask("Where is it?")
    assert (host.cache.stats()["hits"], model.asked) == (3, 1)


@pytest.mark.parametrize("kind", ["cache", "chat", "agent"])
def test_the_tools_that_an_answer_calls_are_shown_to_the_scorer(kind: str) -> None:
    shown: list[Any] = []

    def note(*told: Any) -> int:
        shown.append(told)
        return 5

    host = Host(kind, store=MemoryStore(), scorer=note)
    calls = [{"name": "look", "args": {"where": "shed"}, "id": "1"}]
    host.inner.script = [AIMessage("Let me see.", tool_calls=calls), "There."]
    host.ask("Where is it?")
    host.cache.flush()
    assert ("Where is it?", 'Let me see.\nlook {"where":"shed"}') in shown


def test_what_is_not_kept_is_not_scored() -> None:
    shown: list[Any] = []

    def scorer(req: Any, _: Any) -> int:
        shown.append(req)
        return 5

    for kind in KINDS:
        host = Host(kind, store=MemoryStore(), scorer=scorer, should_store=lambda _: False)
        host.ask("refused")
        kept = Host(kind, store=MemoryStore(), scorer=scorer)
        with ExperienceCache.bypass():
            kept.ask("bypassed")
        host.cache.flush()
        kept.cache.flush()
    assert shown == []


def test_policies_of_pools_are_policies_of_answers() -> None:
    rules = RuleScorer({"it is too long": (lambda _, resp: len(resp) < 5, 4), "shed": (lambda *_: True, 1)})
    cache = ExperienceCache(store=MemoryStore(), scorer=rules)
    model = Scripted(script=["In the shed."], cache=cache)
    model.invoke("Where is it?")
    cache.flush()
    (kept,) = cache.pool.all()
    assert kept.metric is not None
    assert kept.metric.score == Score(val=6, reason="it is too long")


def test_a_cache_knows_of_the_scores_of_the_models_around_which_it_is() -> None:
    cache = ExperienceCache(store=MemoryStore(), scorer=lambda *_: 9)
    models = [CachedChatModel(Scripted(), cache), CachedChatModel(Scripted(usage=False), cache)]
    for model in models:
        model.invoke("Hi")
    cache.flush()
    assert [model.stats()["scored"] for model in models] == [2, 2]  # as of what they keep in the same pool
    assert cache.stats()["scored"] == 2


@pytest.mark.parametrize("kind", ["agent", "llm"])
def test_questions_are_not_kept_for_scorers_and_judges(kind: str) -> None:
    store = MemoryStore()
    host = Host(kind, store=store, scorer=lambda *_: 9, judge=AtLeast(5))
    host.ask("my-secret-question")
    host.cache.flush()
    pool = host.cache.pool(user="ada") if kind == "agent" else host.cache.pool
    assert [experience.req for experience in pool.all()] == [None]


def test_a_judge_is_told_what_was_asked() -> None:
    told: list[Any] = []

    def judge(experience: Experience, req: Any) -> bool:
        told.append((experience.req, req))
        return True

    for kind in ("agent", "llm", "llm stream"):
        host = Host(kind, store=MemoryStore(), judge=judge)
        host.ask("Where is it?")
        host.ask("Where is it?")
        assert host.asked == 1
        assert host.cache.stats()["hits"] == 1
    assert told == [("Where is it?", "Where is it?")] * 3


async def test_the_last_words_of_a_chat_are_what_was_asked() -> None:
    shown: list[Any] = []

    def note(req: Any) -> int:
        shown.append(req)
        return 5

    llm = CachedLLM(Echo(), store=MemoryStore(), scorer=lambda req, _: note(req))
    said_so_far = [ChatMessage(role="user", content=one) for one in ("first", "last")]
    response = llm.chat([ChatMessage(role="system", content="Be short."), *said_so_far])
    assert isinstance(response, ChatResponse)
    await llm.achat([*said_so_far, ChatMessage(role="assistant", content="Hm.")])
    llm.chat([ChatMessage(role="system", content="Be short.")])
    llm.chat([ChatMessage(role="user", blocks=[ThinkingBlock(content="Hm.")])])  # which is no text
    await llm.aflush()
    assert sorted(shown) == ["", "", "last", "last"]  # in the order of the threads that scored them


def test_what_is_asked_is_told_of_every_prompt() -> None:
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    blocks = HumanMessage(["What is", {"type": "text", "text": "this?"}, picture])
    for asked, messages in (
        ("Hi", [HumanMessage("Ho"), AIMessage("Hm"), HumanMessage("Hi"), AIMessage("Well")]),
        ("What is\nthis?", [HumanMessage("Ho"), blocks]),
    ):
        assert last_question(dumps(messages)) == asked
    for prompt in ("Once upon a time", "[{ a poem", '[{"lc": 1, "id": ["x"], "kwargs": {}}, 5]'):
        assert last_question(prompt) == prompt
    assert last_question(dumps([AIMessage("Hm")])) == ""


@pytest.mark.parametrize("kind", ["cache", "chat", "agent"])
def test_a_scorer_and_a_judge_see_the_same_question_whichever_cache_asks_them(kind: str) -> None:
    told: list[tuple[Any, ...]] = []

    def judge(experience: Experience, req: Any) -> bool:
        told.append((experience.req, req))
        return True

    def scorer(req: Any, _: Any) -> int:
        told.append((req,))
        return 9

    host = Host(kind, store=MemoryStore(), scorer=scorer, judge=judge)
    blocks = HumanMessage(["What is", {"type": "text", "text": "this?"}, {"type": "image_url", "image_url": "x"}])
    chats: list[list[BaseMessage]] = [[HumanMessage("Ho"), AIMessage("Hm"), blocks], [SystemMessage("Tell a joke.")]]
    for chat in chats:
        for _ in range(2):
            host.say(chat)
            host.cache.flush()
    asked = "What is\nthis?"
    assert told == [(asked,), (asked, asked), ("",), ("", "")]


def test_what_is_no_answer_says_nothing() -> None:
    assert answer_text(
        [{"text": "a"}, {"message": {"role": "assistant", "content": ["b", {"type": "text", "text": "c"}]}}]
    ) == ("a\n\nb\nc")
    damaged: Any
    for damaged in (None, [1], [{}], [{"message": 5}], 7):
        with pytest.raises(SerializationError):
            answer_text(damaged)


# --- what was saved


@each_kind
def test_stats_tell_tokens_seconds_and_money(kind: str) -> None:
    prices = {"echo": (1e6, 2e6), "scripted-1": (1e6, 2e6)}
    host = Host(kind, store=MemoryStore(), prices=prices)
    if kind == "chat":  # in a stream, a model tells its name beside its words, or not at all
        host.inner.script = [AIMessage("In the shed.", response_metadata={"model_name": "scripted-1"})]
    for _ in range(3):
        host.ask("Where is it?")
    stats = host.cache.stats()
    assert (stats["saved_tokens"], stats["saved_money"]) == (2 * 7, 2 * (3 * 1 + 4 * 2))
    assert stats["saved_seconds"] > 0
    assert json.loads(json.dumps(stats)) == stats


@each_kind
def test_without_prices_no_money_was_saved(kind: str) -> None:
    host = Host(kind, store=MemoryStore())
    for _ in range(2):
        host.ask("Where is it?")
    assert (host.cache.stats()["saved_tokens"], host.cache.stats()["saved_money"]) == (7, 0)


def test_a_cache_knows_how_long_the_model_took() -> None:
    now = [100.0]
    cache = ExperienceCache(store=MemoryStore(), prices={"m": (1.0, 1.0)}, timer=lambda: now[0])
    generations: Any = [_generation("Paris")]
    for prompt, took in (("a", 2.5), ("b", 1.0)):
        assert cache.lookup(prompt, "m") is None
        now[0] += took
        cache.update(prompt, "m", generations)
        assert cache.lookup(prompt, "m")
    cache.update("nobody looked for it", "m", generations)
    cache.lookup("nobody looked for it", "m")
    assert cache.stats()["saved_seconds"] == 3.5
    for n in range(3_000):
        cache.lookup(str(n), "m")
    assert len(cache._answers._pending) <= 2_000


def _generation(text: str) -> Any:
    return ChatGeneration(message=AIMessage(text))


def test_each_tag_has_its_own_figures() -> None:
    pool = ExperiencePool(MemoryStore(), tag="a", prices={"m": (1e6, 0.0)})
    metric = Metric(time_cost=2.0, model="m", input_tokens=3)
    pool.create(Experience(req="q", resp=1, metric=metric))
    pool.at("b").create(Experience(req="q", resp=1, metric=metric))
    pool.lookup("q")
    for _ in range(2):
        pool.at("b").lookup("q")
        pool.query("q", query_type="exact", tag="b")
    assert pool.stats() == pool.stats("a") == pool.at("b").stats("a")
    assert (pool.stats()["hits"], pool.saved()) == (1, Saved(2.0, 3, 3.0))
    assert pool.stats("b") == pool.at("b").stats()
    assert (pool.stats("b")["hits"], pool.saved("b"), pool.stats("b")["saved_money"]) == (4, Saved(8.0, 12, 12.0), 12.0)
    assert set(pool.stats("never seen").values()) == {0}
    assert ExperiencePool(pool.store, tag="b").stats()["hits"] == 0  # another object


def test_the_figures_of_many_tags_do_not_grow_for_ever() -> None:
    pool = ExperiencePool(MemoryStore(), tag="own")
    pool.create(Experience(req="q", resp=1))
    pool.lookup("q")
    for n in range(1_000):
        pool.at(str(n)).lookup("q")
    assert len(pool._counts_by_tag) <= 256
    assert pool.stats()["hits"] == 1
    assert pool.stats("999")["misses"] == 1


def test_the_figures_of_its_own_tag_stay_whatever_others_are_asked_for() -> None:
    pool = ExperiencePool(MemoryStore(), tag="own")
    pool.create(Experience(req="q", resp="a"))
    for n in range(300):
        pool.at(f"tag {n}").lookup("q")
    assert pool.stats("own") == pool.stats()
    assert pool.stats("own")["stored"] == 1


@pytest.mark.parametrize(
    ("name", "money"),
    [
        ("gpt-4o-mini", 2),
        ("gpt-4o-mini-2024-07-18", 2),
        ("claude-sonnet-4-20250514", 6),
        ("claude-sonnet-4@20250514", 6),
        ("gemini-1.5-flash-002", 8),
        ("gpt-4o-2024-05-13", 10),  # it has a price of its own
        ("gpt-4o-mini-search-preview", 0),
        ("gpt-4", 0),
    ],
)
def test_a_model_that_answers_with_its_version_has_the_price_of_the_one_that_was_asked(name: str, money: float) -> None:
    prices = {"gpt-4o-mini": 1e6, "gpt-4o": 2e6, "claude-sonnet-4": 3e6, "gemini-1.5-flash": 4e6}
    prices |= {"gpt-4o-2024-05-13": 5e6, "gpt": 9e6}
    pool = ExperiencePool(MemoryStore(), prices={model: (price, 0.0) for model, price in prices.items()})
    pool.create(Experience(req="q", resp=1, metric=Metric(model=name, input_tokens=2)))
    pool.lookup("q")
    assert pool.stats()["saved_money"] == money


def test_what_is_found_and_not_served_has_saved_nothing() -> None:
    pool = ExperiencePool(MemoryStore(), prices={"m": (1e6, 1e6)})
    verdicts = [False, True]

    @cached(pool=pool, judge=lambda *_: verdicts.pop(0), metric=lambda _: Metric(model="m", input_tokens=2))
    def ask(req: str) -> str:
        return req

    for saved, hits in ((0.0, 0), (0.0, 0), (2e0, 1)):
        ask("q")
        assert (pool.stats()["saved_money"], pool.stats()["hits"]) == (saved, hits)


def test_a_function_tells_what_it_saved() -> None:
    passed = [0.0]

    def metric(_: object) -> Metric:
        return Metric(model="m", input_tokens=2)

    @cached(store=MemoryStore(), prices={"m": (1e6, 0.0)}, metric=metric, timer=lambda: passed[0])
    def f(x: int) -> int:
        passed[0] += 3
        return x

    assert f.cache.stats()["saved_money"] == 0
    f(1)
    f(1)
    assert (f.cache.stats()["saved_tokens"], f.cache.stats()["saved_money"]) == (2, 2.0)
    assert f.cache.stats()["saved_seconds"] == 3


class Watching(BaseCallbackHandler):
    """Notes what the models of a run are asked."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:  # noqa: ARG002 - theirs
        self.started.append(messages[0][-1].text)


@each_kind
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_judge_or_scorer_asks_a_model_is_no_part_of_what_a_run_streams(kind: str, *, is_async: bool) -> None:
    watching = Watching()
    own = Scripted(script=["8"])

    def scorer(*_: Any) -> int:
        return int(own.invoke("How good is it?").text)

    def judge(*_: Any) -> bool:
        return own.invoke("Is it good?").text == "8"

    host = Host(kind, store=MemoryStore(), scorer=scorer, judge=judge)
    step = RunnableLambda(host.ask, afunc=host.aask)
    config: Any = {"callbacks": [watching]}
    for _ in range(2):
        asyncio.run(step.ainvoke("Hi", config)) if is_async else step.invoke("Hi", config)
        host.cache.flush()
    assert (host.asked, own.asked) == (1, 2)
    assert set(watching.started) <= {"Hi"}  # before Python 3.11, coroutines do not know the run that they are in


async def test_what_the_judge_or_scorer_of_a_function_asks_is_no_part_of_what_a_run_streams() -> None:
    watching = Watching()
    own = AsyncScripted(script=["8"])

    async def scorer(*_: Any) -> int:
        return int((await own.ainvoke("How good is it?")).text)

    def judge(*_: Any) -> bool:
        return own.invoke("Is it good?").text == "8"

    @cached(store=MemoryStore(), scorer=scorer, judge=judge)
    async def answer(question: str) -> str:
        return f"{question}? In the shed."

    def unused(question: str) -> str:
        raise AssertionError(question)

    step: RunnableLambda[str, str] = RunnableLambda(unused, afunc=answer)
    for _ in range(2):
        assert await step.ainvoke("Hi", {"callbacks": [watching]}) == "Hi? In the shed."
        await answer.cache.aflush()
    assert (answer.cache.stats()["hits"], own.asked) == (1, 2)
    assert watching.started == []


def test_what_a_context_builder_asks_is_a_part_of_the_run() -> None:
    watching = Watching()

    def build(question: str, experiences: Any) -> str:
        return Scripted(script=["Where is the red bike?"]).invoke(f"{len(experiences)} for {question}").text

    @cached(store=MemoryStore(), index=open_index("memory:"), context_builder=build)
    def answer(question: str) -> str:
        return question

    for question in ("Where is the bike?", "Where is my bike?"):
        RunnableLambda(answer).invoke(question, {"callbacks": [watching]})
    assert watching.started == ["1 for Where is my bike?"]


def test_a_middleware_adds_up_what_all_users_saved() -> None:
    cache = ExperienceMiddleware(store=MemoryStore(), prices={"scripted-1": (1e6, 2e6)})
    agent = create_agent(Scripted(), middleware=[cache])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_SCOPES", 2)
        for user in ("ada", "bob", "cyd", "dan") * 2:
            agent.invoke({"messages": [HumanMessage("Hi")]}, context={"user_id": user})
    stats, saved = cache.stats(), cache.saved()
    assert (stats["saved_tokens"], stats["saved_money"]) == (saved.tokens, saved.money) == (4 * 7, 4 * 11)
    assert stats["saved_seconds"] == pytest.approx(saved.seconds)


def test_wrong_prices_are_told() -> None:
    for make in (ExperienceCache, ExperienceMiddleware):
        with pytest.raises(ConfigurationError, match="prices"):
            make(store=MemoryStore(), prices={"m": 5})  # type: ignore[dict-item]
