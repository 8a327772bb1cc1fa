"""The semantic mode of ExperienceCache: D1 to D5, with real stores and a real index of vectors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel, FakeListChatModel, GenericFakeChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langmem_adapters import ConfigurationError, Experience, ModelError, StoreUnavailable
from langmem_adapters.embedding import Embedder
from langmem_adapters.experience import AtLeast, LLMJudge, exact_and_perfect, verified
from langmem_adapters.experience.verifier.verifier import Verifier
from langmem_adapters.indexes import open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.langchain import CachedChatModel, ExperienceCache
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.langchain.caching.tools import DeterministicTools
from langmem_adapters.model import Metric, Score
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.compared import Compared

pytestmark = pytest.mark.usefixtures("patient_search")

ASKED, ALIKE = "How do I learn to speak Hindi?", "How can I learn to speak Hindi?"
TOPICS = ("hindi", "chess", "weather", "paris", "london", "rome")


def topics(texts: Sequence[str]) -> list[list[float]]:
    """Texts of the same topics have the same direction."""
    return [[0.1, *(float(topic in text.lower()) for topic in TOPICS)] for text in texts]


class Failing:
    """An embedder that can be broken."""

    def __init__(self) -> None:
        self.broken = False
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if self.broken:
            raise ConnectionError("no route")
        self.texts += texts
        return topics(texts)


@pytest.fixture
def index() -> Iterator[VectorIndex]:
    index = open_vectors("memory:", Embedder(topics, name="topics"))
    yield index
    index.close()


@pytest.fixture
def build(any_store: Store, index: VectorIndex) -> Callable[..., ExperienceCache]:
    def build(**mode: Any) -> ExperienceCache:
        cache = {
            name: mode.pop(name)
            for name in ("tenant", "tag", "ttl", "max_entries", "clock", "on_error")
            if name in mode
        }
        return ExperienceCache(store=any_store, semantic=SemanticMode(index=mode.pop("index", index), **mode), **cache)

    return build


def prompt(*messages: BaseMessage | str) -> str:
    return dumps([HumanMessage(m) if isinstance(m, str) else m for m in messages])


def answer(text: str = "Take a course.", **fields: Any) -> list[Generation]:
    return [ChatGeneration(message=AIMessage(text, **fields))]


def content(found: list[Generation] | None) -> Any:
    return None if found is None else found[0].message.content  # type: ignore[attr-defined]


# --- what a hit is ------------------------------------------------------------------------------------------


def test_a_request_in_other_words_is_served_and_says_why(build: Callable[..., ExperienceCache]) -> None:
    now = [1000.0]
    cache = build(clock=lambda: now[0])
    cache.update(prompt(ASKED), "m", answer(id="a1"))
    now[0] += 30
    assert content(cache.lookup(prompt(ASKED), "m")) == "Take a course."
    (hit,) = cache.lookup(prompt(ALIKE), "m") or []
    assert isinstance(hit, ChatGeneration)
    described = hit.message.response_metadata
    assert described["cache"] == "semantic"
    assert described["cache_key"] == request_key(prompt(ASKED), "m")
    assert 0.88 <= described["cache_score"] <= 1
    assert described["cache_cosine"] == pytest.approx(1)
    assert described["cache_age"] == 30
    assert "cache_request" not in described
    assert hit.message.id != "a1"
    stats = cache.stats()
    assert (stats["hits"], stats["misses"], stats["semantic_hits"]) == (2, 0, 1)
    assert [name for name in stats if name.startswith("rejected_")] == []  # nobody judges


def test_the_request_that_was_found_is_told_only_if_asked(build: Callable[..., ExperienceCache]) -> None:
    cache = build(reveal=True)
    cache.update(prompt(ASKED), "m", answer())
    (hit,) = cache.lookup(prompt(ALIKE), "m") or []
    assert hit.message.response_metadata["cache_request"] == ASKED  # type: ignore[attr-defined]


async def test_the_async_twins_do_the_same(build: Callable[..., ExperienceCache]) -> None:
    cache = build()
    await cache.aupdate(prompt(ASKED), "m", answer())
    assert content(await cache.alookup(prompt(ALIKE), "m")) == "Take a course."
    assert await cache.adelete((await cache.alookup(prompt(ALIKE), "m"))[0])  # type: ignore[index, arg-type]
    assert await cache.alookup(prompt(ALIKE), "m") is None


def test_it_is_opt_in(any_store: Store) -> None:
    cache = ExperienceCache(store=any_store)
    cache.update(prompt(ASKED), "m", answer())
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert "semantic_hits" not in cache.stats()


def test_the_exact_answer_goes_first_and_nothing_is_embedded_for_it(any_store: Store) -> None:
    embedder = Failing()
    index = open_vectors("memory:", Embedder(embedder, name="f"))
    cache = ExperienceCache(store=any_store, semantic=SemanticMode(index=index))
    cache.update(prompt(ASKED), "m", answer("first"))
    cache.update(prompt(ALIKE), "m", answer("second"))
    embedder.broken = True
    assert content(cache.lookup(prompt(ALIKE), "m")) == "second"
    assert cache.stats()["semantic_errors"] == 0


def test_a_model_is_not_asked_again(build: Callable[..., ExperienceCache]) -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage("Take a course.")]), cache=build())
    assert model.invoke(ASKED).content == model.invoke(ALIKE).content == "Take a course."


# --- D1, D4: what is refused --------------------------------------------------------------------------------


def test_d1_what_a_guard_refuses_is_a_miss_and_counted(build: Callable[..., ExperienceCache]) -> None:
    cache = build()
    cache.update(prompt("What is the weather in Paris?"), "m", answer("Rain"))
    assert cache.lookup(prompt("What is the weather in Paris in 3 days?"), "m") is None
    stats = cache.stats()
    assert (stats["rejected"], stats["rejected_numbers"], stats["misses"]) == (1, 1, 1)


@pytest.mark.parametrize("place", ["memory", "sqlite"])
def test_d4_a_hundred_nearer_entries_of_others_do_not_hide_the_one_that_fits(
    build: Callable[..., ExperienceCache], tmp_path: Path, place: str
) -> None:
    def further_where_asked(texts: Sequence[str]) -> list[list[float]]:
        return [[*vector, 0.05 * (text == ASKED)] for text, vector in zip(texts, topics(texts), strict=True)]

    url = "memory:" if place == "memory" else f"sqlite:///{tmp_path}/v.db"
    index = open_vectors(url, Embedder(further_where_asked, name="further"))
    cache = build(candidates=1, index=index)
    for n in range(100):
        cache.update(prompt(ALIKE), f"other-{n}", answer("of another model"))
    others = [build(candidates=1, index=index, **whose) for whose in ({"tag": "other"}, {"tenant": "other"})]
    for n in range(100):  # in one partition
        cache.update(prompt(SystemMessage("Be brief."), f"{ALIKE} {n}"), "m", answer("after another history"))
        for other in others:
            other.update(prompt(f"{ALIKE} {n}"), "m", answer("of another tag or tenant"))
    cache.update(prompt(ASKED), "m", answer("right"))
    assert content(cache.lookup(prompt(ALIKE), "m")) == "right"
    index.close()


def test_the_surest_of_the_candidates_is_served(build: Callable[..., ExperienceCache]) -> None:
    sure = {"Hindi": 0.6, "Hindi again": 0.9, "Hindi once more": 0.7}
    cache = build(verifier=Verifier(judge=lambda _, stored: sure[stored], guards={}))
    for text in sure:
        cache.update(prompt(text), "m", answer(text))
    assert content(cache.lookup(prompt(ASKED), "m")) == "Hindi again"


@pytest.mark.parametrize(
    ("asked", "why"), [(ASKED, "rejected"), (ASKED, "gone"), (ASKED, "unreadable"), ("Hindi again", "rejected")]
)
def test_if_the_surest_may_not_be_served_the_next_is(
    build: Callable[..., ExperienceCache], asked: str, why: str
) -> None:
    sure = {"Hindi again": 0.9, "Hindi": 0.6}
    verifier = Verifier(judge=lambda _, stored: sure[stored], guards={})
    cache = build(verifier=verifier, judge=lambda kept, _: why != "rejected" or kept.req != "Hindi again")
    for text in sure:
        cache.update(prompt(text), "m", answer(text))
    surest = request_key(prompt("Hindi again"), "m")
    if why == "gone":
        cache.pool.delete(key=surest)
    if why == "unreadable":
        cache.pool.create(Experience(resp="no answer"), key=surest)
    assert content(cache.lookup(prompt(asked), "m")) == "Hindi"
    assert cache.stats()["semantic_hits"] == cache.stats()["hits"] == 1


def test_what_the_judge_of_two_requests_asks_a_model_is_not_compared_itself(
    build: Callable[..., ExperienceCache],
) -> None:
    judged: list[tuple[str, str]] = []
    model = FakeListChatModel(responses=["0"])

    def judge(asked: str, kept: str) -> float:
        judged.append((asked, kept))
        return float(str(model.invoke(f"Is {asked!r} the same as {kept!r}?").content))

    model.cache = cache = build(verifier=Verifier(judge=judge, guards={}))
    kept = ["Hindi", "Hindi again", "Hindi once more"]
    for text in kept:
        cache.update(prompt(text), "m", answer(text))
    for _ in range(3):
        assert cache.lookup(prompt(ASKED), "m") is None
    assert sorted(judged) == sorted((ASKED, text) for text in kept * 3)
    assert cache.stats()["hits"] == 6  # the model's own answers to the very same questions


def test_only_what_is_served_is_used_and_stays_for_longer(build: Callable[..., ExperienceCache]) -> None:
    sure = {"Hindi again": 0.9, "Hindi": 0.6}
    cache = build(verifier=Verifier(judge=lambda _, stored: sure[stored], guards={}), max_entries=2)
    for text in sure:
        cache.update(prompt(text), "m", answer(text))
    assert content(cache.lookup(prompt(ASKED), "m")) == "Hindi again"
    cache.update(prompt("A cake"), "m", answer("With eggs."))
    left = [cache.pool.lookup(key=request_key(prompt(text), "m")) is not None for text in sure]
    assert left == [True, False]


# --- D2: all but the last turn must be equal ----------------------------------------------------------------

BEFORE = [SystemMessage("Be brief."), HumanMessage("Hello"), AIMessage("Hi!")]


@pytest.mark.parametrize(
    ("before", "llm_string"),
    [
        ([], "m"),
        ([SystemMessage("Be verbose."), *BEFORE[1:]], "m"),
        ([*BEFORE[:2], AIMessage("Hey!")], "m"),
        ([*BEFORE, HumanMessage("Well?"), AIMessage("Yes.")], "m"),
        (BEFORE, "another model"),
        (BEFORE, "m---[('tools', ['search'])]"),
    ],
)
def test_d2_after_another_history_or_for_another_model_it_is_a_miss(
    build: Callable[..., ExperienceCache], before: list[BaseMessage], llm_string: str
) -> None:
    cache = build()
    cache.update(prompt(*BEFORE, ASKED), "m", answer())
    assert content(cache.lookup(prompt(*BEFORE, ALIKE), "m")) == "Take a course."
    assert cache.lookup(prompt(*before, ALIKE), llm_string) is None


def test_c10_another_tenant_or_tag_sees_nothing(build: Callable[..., ExperienceCache]) -> None:
    build(tenant="a").update(prompt(ASKED), "m", answer())
    assert content(build(tenant="a").lookup(prompt(ALIKE), "m")) == "Take a course."
    assert build(tenant="b").lookup(prompt(ALIKE), "m") is None
    assert build(tenant="a", tag="other").lookup(prompt(ALIKE), "m") is None


def test_blocks_of_text_are_text_and_pictures_are_not(build: Callable[..., ExperienceCache]) -> None:
    cache = build()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    for asked in ([{"type": "text", "text": ASKED}], [{"type": "text", "text": "Chess?"}, picture]):
        cache.update(prompt(HumanMessage(asked)), "m", answer())  # type: ignore[arg-type]
    for alike in (HumanMessage([{"type": "text", "text": ALIKE}]), HumanMessage([ALIKE])):
        assert content(cache.lookup(prompt(alike), "m")) == "Take a course."
    for unlike in (HumanMessage([{"type": "text", "text": "Chess??"}, picture]), HumanMessage(["Chess??", picture])):
        assert cache.lookup(prompt(unlike), "m") is None
    for other in ({"type": "quotation", "text": ALIKE}, {"type": "text", "text": None}):
        assert cache.lookup(prompt(HumanMessage([other])), "m") is None


@pytest.mark.parametrize("text", ["How do I learn Hindi?", "[{broken", '[{"lc": 2}]', "[1]", "[{}]"])
def test_what_is_no_chat_is_served_exactly_or_not_at_all(build: Callable[..., ExperienceCache], text: str) -> None:
    cache = build()
    cache.update(text, "m", answer())
    assert content(cache.lookup(text, "m")) == "Take a course."
    assert cache.lookup(text + "?", "m") is None


# --- D3: tools ----------------------------------------------------------------------------------------------

CALL = {"name": "clock", "args": {}, "id": "c1"}
RUN = [AIMessage("", tool_calls=[CALL]), ToolMessage("noon", tool_call_id="c1")]


@pytest.mark.parametrize("deterministic", [(), ("other",), ("clock",)])
def test_d3_calls_and_answers_made_from_results_are_kept_only_of_deterministic_tools(
    build: Callable[..., ExperienceCache], deterministic: tuple[str, ...]
) -> None:
    cache = build(deterministic_tools=deterministic)
    cache.update(prompt(ASKED), "m", answer("", tool_calls=[CALL]))
    cache.update(prompt(ASKED, *RUN), "m", answer("It is noon."))
    assert (cache.lookup(prompt(ALIKE), "m") is not None) == (deterministic == ("clock",))
    assert (cache.lookup(prompt(ALIKE, *RUN), "m") is not None) == (deterministic == ("clock",))
    assert cache.lookup(prompt(ALIKE, RUN[0], ToolMessage("midnight", tool_call_id="c1")), "m") is None
    assert cache.lookup(prompt(ASKED, *RUN), "m") is not None, "the exact cache still serves it"


def test_d3_what_was_kept_when_a_tool_was_deterministic_is_not_served_when_it_is_not(
    build: Callable[..., ExperienceCache],
) -> None:
    build(deterministic_tools=["clock"]).update(prompt(ASKED), "m", answer("", tool_calls=[CALL]))
    cache = build()
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert cache.stats()["hits"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"additional_kwargs": {"tool_calls": [{"id": "c"}]}},
        {"additional_kwargs": {"function_call": {"name": "f"}}},
    ],
)
def test_d3_calls_in_a_providers_own_form_are_not_kept_either(
    build: Callable[..., ExperienceCache], fields: dict[str, Any]
) -> None:
    cache = build()
    cache.update(prompt(ASKED), "m", answer("I call.", **fields))
    assert cache.lookup(prompt(ALIKE), "m") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"content": [{"type": "web_search_call", "id": "ws"}, {"type": "text", "text": "3 degrees."}]},
        {"content": [{"type": "server_tool_use", "name": "web_search"}, {"type": "text", "text": "3 degrees."}]},
        {"content": [{"type": "server_tool_call", "name": "web_search"}, "3 degrees."]},
        {"content": "3 degrees.", "additional_kwargs": {"tool_outputs": [{"type": "web_search_call"}]}},
        {"content": "3 degrees.", "additional_kwargs": {"executed_tools": [{"type": "search", "output": "3"}]}},
        {"content": "3 degrees.", "response_metadata": {"grounding_metadata": {"web_search_queries": ["Oslo"]}}},
    ],
)
def test_d3_answers_made_with_the_providers_own_tools_are_not_served_for_other_words(
    build: Callable[..., ExperienceCache], fields: dict[str, Any]
) -> None:
    cache = build()
    cache.update(prompt(ASKED), "m", [ChatGeneration(message=AIMessage(**fields))])
    assert cache.lookup(prompt(ASKED), "m") is not None
    assert cache.lookup(prompt(ALIKE), "m") is None


OF_OPENAI = (
    '{"kwargs": {"model_name": "%s", "model_kwargs": {%s}}, "lc": 1, "type": "constructor"}---[(\'stop\', None)]'
)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("[('stop', None), ('web_search_options', {'search_context_size': 'low'})]", "web_search_options"),
        (OF_OPENAI % ("gpt-5", '"web_search_options": {}'), "web_search_options"),
        (OF_OPENAI % ("gpt-4o-search-preview-2025-03-11", ""), "gpt-4o-search-preview-2025-03-11"),
        ("[('model', 'gpt-5-search-api'), ('stop', None)]", "gpt-5-search-api"),
        (OF_OPENAI % ("openai/gpt-5:online", ""), "openai/gpt-5:online"),
        ("[('plugins', [{'id': 'web'}]), ('stop', None)]", "plugins"),
        ("[('stop', None), ('tools', [{'google_search': None, 'url_context': {}}])]", "url_context"),
        ("[('stop', None), ('tools', [Tool(url_context=UrlContext())])]", "url_context"),
    ],
)
def test_d3_answers_that_do_not_tell_of_the_providers_own_tools_are_not_served_for_other_words_either(
    build: Callable[..., ExperienceCache], model: str, name: str
) -> None:
    """LangChain reads nothing of the searches of Chat Completions, nor of the pages that Gemini has read."""
    cache = build()
    cache.update(prompt(ASKED), model, answer("3 degrees."))
    assert cache.lookup(prompt(ASKED), model) is not None
    assert cache.lookup(prompt(ALIKE), model) is None
    known = build(deterministic_tools=[name])
    known.update(prompt(ASKED), model, answer("3 degrees."))
    assert known.lookup(prompt(ALIKE), model) is not None


@pytest.mark.parametrize(
    "model",
    [
        "[('stop', None), ('tools', [{'google_search': None, 'url_context': None}])]",
        "[('stop', None), ('tools', [{'name': 'plugins', 'args': {'plugins': {}, 'url_context': {'type': 'a'}}}])]",
        OF_OPENAI % ("research-previews", '"seed": 1'),
    ],
)
def test_tools_that_are_not_used_and_names_like_theirs_keep_nothing_from_being_served(
    build: Callable[..., ExperienceCache], model: str
) -> None:
    cache = build()
    cache.update(prompt(ASKED), model, answer("Take a course."))
    assert cache.lookup(prompt(ALIKE), model) is not None


def test_thoughts_beside_an_answer_do_not_keep_it_from_being_served(build: Callable[..., ExperienceCache]) -> None:
    cache = build()
    said = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Take a course."}]
    cache.update(prompt(ASKED), "m", [ChatGeneration(message=AIMessage(said))])  # type: ignore[arg-type]
    assert content(cache.lookup(prompt(ALIKE), "m")) == said


def test_d3_an_agent_runs_its_tool_again_for_the_next_thread(build: Callable[..., ExperienceCache]) -> None:
    ran: list[int] = []

    @tool
    def clock() -> str:
        """Tell the time."""
        ran.append(len(ran))
        return f"t{len(ran)}"

    class Model(GenericFakeChatModel):
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    said: list[AIMessage | str] = []
    for n in (1, 2):
        call = {"name": "clock", "args": {}, "id": f"c{n}"}
        said += [AIMessage("", tool_calls=[call]), AIMessage(f"It is t{n}.")]
    agent = create_agent(Model(messages=iter(said), cache=build()), [clock], checkpointer=InMemorySaver())
    for n, question in enumerate((ASKED, ALIKE), start=1):
        state = agent.invoke({"messages": [HumanMessage(question)]}, {"configurable": {"thread_id": str(n)}})
        assert state["messages"][-1].content == f"It is t{n}."
    assert len(ran) == 2


# --- switches, judges, forgetting ---------------------------------------------------------------------------


def test_a_dry_run_serves_nothing_but_counts_and_logs_without_the_text(
    build: Callable[..., ExperienceCache], caplog: pytest.LogCaptureFixture
) -> None:
    cache = build(dry_run=True)
    for asked in (ASKED, ALIKE):  # either would do, and one would be served
        cache.update(prompt(asked), "m", answer())
    with caplog.at_level(logging.INFO, "langmem_adapters"):
        assert cache.lookup(prompt("How could I learn to speak Hindi?"), "m") is None
    stats = cache.stats()
    assert (stats["semantic_dry"], stats["semantic_hits"], stats["hits"], stats["misses"]) == (1, 0, 0, 1)
    assert any(request_key(prompt(asked), "m") in caplog.text for asked in (ASKED, ALIKE))
    assert "Hindi" not in caplog.text


def test_bypass_and_refresh_hold_for_meaning_too(build: Callable[..., ExperienceCache], any_store: Store) -> None:
    cache = build()
    with cache.bypass():
        cache.update(prompt(ASKED), "m", answer())
    assert not texts_in(any_store)
    with cache.refresh():
        cache.update(prompt(ASKED), "m", answer())
        assert cache.lookup(prompt(ALIKE), "m") is None
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."


def test_a_score_below_the_judges_line_is_never_served(build: Callable[..., ExperienceCache]) -> None:
    cache = build(judge=AtLeast(7))
    cache.update(prompt(ASKED), "m", answer())
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert cache.stats()["rejected_judge"] == 1
    assert cache.stats()["hits"] == 0
    kept = cache.pool.lookup(key=request_key(prompt(ASKED), "m"))
    assert kept is not None
    good = Experience(resp=kept.resp, metric=Metric(score=Score(val=8)))
    cache.pool.create(good, key=request_key(prompt(ASKED), "m"))
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."


class Shown:
    """A judge that notes what it is shown."""

    def __init__(self, *verdicts: bool) -> None:
        self.verdicts = list(verdicts)
        self.seen: list[tuple[Any, Any]] = []

    def __call__(self, experience: Experience, req: Any) -> bool:
        self.seen.append((experience.req, req))
        return self.verdicts.pop(0)


def scored(cache: ExperienceCache, text: str, score: int) -> None:
    """Give the only answer of a cache its score."""
    ((key, data),) = cache.pool._shelf.all()
    assert text in data.decode()
    kept = Experience.from_bytes(data).model_copy(update={"metric": Metric(score=Score(val=score))})
    cache.pool.create(kept, key=key)


def asking(way: str, cache: ExperienceCache, *responses: str) -> BaseChatModel:
    if way == "CachedChatModel":
        return CachedChatModel(FakeListChatModel(responses=list(responses)), cache)
    return FakeListChatModel(responses=list(responses), cache=cache)


HOW = pytest.mark.parametrize("way", ["set_llm_cache", "CachedChatModel"])


@HOW
def test_nor_is_it_to_the_very_same_request(build: Callable[..., ExperienceCache], way: str) -> None:
    cache = build(judge=AtLeast(7))
    model = asking(way, cache, "bad", "good", "third")
    model.invoke(ASKED)
    scored(cache, "bad", 2)
    assert model.invoke(ASKED).content == "good"
    for told in (cache, model if isinstance(model, CachedChatModel) else cache):
        assert (told.stats()["rejected"], told.stats()["rejected_judge"]) == (1, 1)
    scored(cache, "good", 9)
    assert [model.invoke(text).content for text in (ASKED, ALIKE)] == ["good", "good"]
    assert (cache.stats()["hits"], cache.stats()["misses"]) == (2, 2)


@HOW
def test_a_judge_is_shown_what_was_asked_then_and_now_and_once_each(
    build: Callable[..., ExperienceCache], way: str
) -> None:
    judge = Shown(True, True, False)
    cache = build(judge=judge)
    model = asking(way, cache, "one", "two")
    assert [model.invoke(text).content for text in (ASKED, ALIKE, ASKED)] == ["one", "one", "one"]
    assert model.invoke(ASKED).content == "two"
    assert judge.seen == [(ASKED, ALIKE), (ASKED, ASKED), (ASKED, ASKED)]
    assert all(entry.req is None for entry in cache.pool.all())  # which is not kept beside the answer for that


@HOW
def test_what_is_perfect_is_served_to_the_very_same_request_alone(
    build: Callable[..., ExperienceCache], way: str
) -> None:
    cache = build(judge=exact_and_perfect)
    model = asking(way, cache, "one", "two")
    model.invoke(ASKED)
    scored(cache, "one", 10)
    assert [model.invoke(text).content for text in (ASKED, ALIKE)] == ["one", "two"]


@HOW
async def test_a_judge_that_has_to_be_awaited_is(build: Callable[..., ExperienceCache], way: str) -> None:
    async def perfect(_: str) -> str:
        return '{"perfect": true}'

    model = asking(way, build(judge=LLMJudge(perfect)), "one", "two")
    assert [(await model.ainvoke(text)).content for text in (ASKED, ALIKE, ASKED)] == ["one"] * 3
    for text in (ASKED, ALIKE):
        with pytest.raises(ConfigurationError, match="coroutine function"):
            model.invoke(text)


@pytest.mark.parametrize("judged_by", ["cache", "mode"])
def test_what_a_judge_decided_is_not_passed_by_what_was_read_a_moment_ago(index: VectorIndex, judged_by: str) -> None:
    judge = Shown(True, False)
    settings: dict[str, Any] = {"judge": judge}
    if judged_by == "mode":
        settings = {"semantic": SemanticMode(index=index, judge=judge)}
    cache = ExperienceCache(store=MemoryStore(), keep=60, **settings)
    cache.update(prompt(ASKED), "m", answer())
    assert content(cache.lookup(prompt(ASKED), "m")) == "Take a course."
    assert cache.lookup(prompt(ASKED), "m") is None


def test_a_judge_of_the_cache_is_asked_about_other_words_too(index: VectorIndex) -> None:
    judge = Shown(False, True)
    cache = ExperienceCache(store=MemoryStore(), semantic=SemanticMode(index=index), judge=judge)
    cache.update(prompt(ASKED), "m", answer())
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."
    assert judge.seen == [(ASKED, ALIKE)] * 2
    with pytest.raises(ConfigurationError, match="the cache or to its semantic mode, not to both"):
        ExperienceCache(store=MemoryStore(), semantic=SemanticMode(index=index, judge=judge), judge=judge)


def test_a_judge_is_shown_all_of_a_prompt_that_no_user_asked(build: Callable[..., ExperienceCache]) -> None:
    judge = Shown(True)
    cache = build(judge=judge)
    cache.update("It was a dark and", "m", [Generation(text="stormy night")])
    assert cache.lookup("It was a dark and", "m") is not None
    assert judge.seen == [("It was a dark and", "It was a dark and")]


def test_a_judge_that_fails_is_a_miss(build: Callable[..., ExperienceCache]) -> None:
    def fails(experience: Experience, req: Any) -> bool:
        raise ModelError(f"no answer to {req} and {experience.req}")

    cache = build(judge=fails)
    cache.update(prompt(ASKED), "m", answer())
    assert cache.lookup(prompt(ASKED), "m") is None
    assert (cache.stats()["hits"], cache.stats()["misses"], cache.stats()["errors"]) == (0, 1, 1)


def texts_in(store: Store) -> bool:
    found = (store.get(namespace) for namespace in store.namespaces(()))
    return any(b"Hindi" in data for values in found for data in values.values())


def vectors_in(index: VectorIndex) -> int:
    return sum(len(index.search(namespace, ASKED, 9)) for namespace in index.namespaces(("experience",)))


@pytest.mark.parametrize("forget", ["delete", "invalidate", "clear"])
def test_what_was_asked_goes_with_its_answer(
    build: Callable[..., ExperienceCache], any_store: Store, index: VectorIndex, forget: str
) -> None:
    cache = build()
    cache.update(prompt(ASKED), "m", answer())
    cache.update(prompt("Which chess book is good?"), "m", answer("This one."))
    hit = cache.lookup(prompt(ALIKE), "m")
    assert hit is not None
    assert texts_in(any_store)
    assert vectors_in(index) == 2
    if forget == "delete":
        assert cache.delete(hit[0])  # type: ignore[arg-type]
    elif forget == "invalidate":
        assert cache.invalidate(lambda found: content(found) == "Take a course.") == 1
    else:
        cache.clear()
    assert not texts_in(any_store)
    assert vectors_in(index) == (0 if forget == "clear" else 1)  # of the other one, which is not embedded again
    assert cache.lookup(prompt(ALIKE), "m") is None
    chess = content(cache.lookup(prompt("Which chess books are good?"), "m"))
    assert chess == (None if forget == "clear" else "This one.")
    assert vectors_in(index) == (0 if forget == "clear" else 1)


@pytest.mark.parametrize(("forget", "left"), [("max_entries", 2), ("ttl", 8), ("delete", 0), ("invalidate", 0)])
def test_a_conversation_whose_answers_have_gone_leaves_no_place_behind(
    build: Callable[..., ExperienceCache], any_store: Store, index: VectorIndex, forget: str, left: int
) -> None:
    clock = FakeClock()
    bounds: dict[str, dict[str, float]] = {"max_entries": {"max_entries": 2}, "ttl": {"ttl": 60}}
    cache = build(clock=clock, **bounds.get(forget, {}))
    for n in range(12):
        before = (f"Chess book {n}?", AIMessage("This one."))
        cache.update(prompt(*before, ASKED), "m", answer())
        hit = cache.lookup(prompt(*before, ALIKE), "m") if forget != "max_entries" else None  # what was used, stays
        assert content(hit) == (None if forget == "max_entries" else "Take a course.")
        if forget == "ttl":
            clock.advance(61)
        elif forget == "delete" and hit:
            assert cache.delete(hit[0])  # type: ignore[arg-type]
    if forget == "invalidate":
        assert cache.invalidate(lambda _: True) == 12
    store: Any = any_store
    places = {
        name
        for name in store.namespaces(("experience",))
        if "semantic" in name and store.dates(name).expires_in is None
    }
    assert len(places) <= left
    if forget != "max_entries":  # else what was asked is embedded in the background, at some time
        assert set(index.namespaces(("experience",))) == places


def test_without_the_mode_nothing_of_a_prompt_is_kept(any_store: Store) -> None:
    ExperienceCache(store=any_store).update(prompt(ASKED), "m", answer())
    assert not texts_in(any_store)


def test_an_answer_that_expired_is_not_served_and_its_question_goes(
    build: Callable[..., ExperienceCache], any_store: Store
) -> None:
    clock = FakeClock()
    cache = build(ttl=60, clock=clock)
    cache.update(prompt(ASKED), "m", answer())
    clock.advance(61)
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert not texts_in(any_store)


def test_what_is_asked_again_after_its_answer_expired_is_found_again(build: Callable[..., ExperienceCache]) -> None:
    clock = FakeClock()
    cache = build(ttl=60, clock=clock)
    for n in range(12):
        cache.update(prompt(f"Chess book {n}"), "m", answer())
    cache.update(prompt(ASKED), "m", answer())
    clock.advance(61)
    assert cache.lookup(prompt(ALIKE), "m") is None
    cache.update(prompt(ASKED), "m", answer("Read a book."))
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Read a book."


# --- outages, and catching up -------------------------------------------------------------------------------


def test_an_answer_is_kept_though_the_script_is_over(
    build: Callable[..., ExperienceCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    def over(_: object) -> None:
        raise RuntimeError("the interpreter is shutting down")

    cache = build()
    with monkeypatch.context() as patch:
        patch.setattr(verified, "submit", over)
        cache.update(prompt(ASKED), "m", answer())
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."


def test_an_embedder_that_fails_leaves_the_exact_cache(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    embedder = Failing()
    embedder.broken = True
    index = open_vectors("memory:", Embedder(embedder, name="f"))
    cache = ExperienceCache(store=any_store, semantic=SemanticMode(index=index))
    cache.update(prompt(ASKED), "m", answer())
    for _ in range(3):
        assert cache.lookup(prompt(ALIKE), "m") is None
    assert content(cache.lookup(prompt(ASKED), "m")) == "Take a course."
    assert cache.stats()["semantic_errors"] == 3
    assert caplog.text.count("goes on without its cache") == 1
    embedder.broken = False
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course.", "what was kept meanwhile is found"


def test_a_question_that_cannot_be_kept_leaves_its_answer(index: VectorIndex) -> None:
    class Half(MemoryStore):
        def write(self, namespace: tuple[str, ...], **changes: Any) -> None:
            if "semantic" in namespace:
                raise StoreUnavailable("full")
            super().write(namespace, **changes)

    cache = ExperienceCache(store=Half(), semantic=SemanticMode(index=index), scorer=lambda *_: 9)
    cache.update(prompt(ASKED), "m", answer())
    cache.flush()
    assert content(cache.lookup(prompt(ASKED), "m")) == "Take a course."
    assert [cache.stats()[name] for name in ("scored", "errors", "semantic_errors")] == [1, 0, 1]


def test_on_error_raise_raises(any_store: Store) -> None:
    embedder = Failing()
    embedder.broken = True
    index = open_vectors("memory:", Embedder(embedder, name="f"))
    cache = ExperienceCache(store=any_store, semantic=SemanticMode(index=index), on_error="raise")
    cache.update(prompt(ASKED), "m", answer())
    with pytest.raises(ModelError):
        cache.lookup(prompt(ALIKE), "m")


def test_an_index_that_was_lost_is_built_again_from_the_store(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    embedder = Embedder(topics, name="topics")
    first = ExperienceCache(store=store, semantic=SemanticMode(index=open_vectors("memory:", embedder)))
    first.update(prompt(ASKED), "m", answer())
    second = ExperienceCache(store=store, semantic=SemanticMode(index=open_vectors("memory:", embedder)))
    assert content(second.lookup(prompt(ALIKE), "m")) == "Take a course."


def test_d5_another_embedder_begins_anew_and_never_mixes(
    any_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "submit", lambda call: call())  # or it may come after the other's, and begin anew too
    url = f"sqlite:///{tmp_path / 'v.db'}"
    one = open_vectors(url, Embedder(topics, name="one"))
    ExperienceCache(store=any_store, semantic=SemanticMode(index=one)).update(prompt(ASKED), "m", answer())
    two = open_vectors(url, Embedder(lambda texts: [[1.0, 2.0] for _ in texts], name="two"))
    cache = ExperienceCache(store=any_store, semantic=SemanticMode(index=two))
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."
    assert cache.stats()["semantic_errors"] == 0


def test_a_damaged_entry_is_a_miss(build: Callable[..., ExperienceCache], any_store: Store) -> None:
    cache = build()
    cache.update(prompt(ASKED), "m", answer())
    (place,) = (namespace for namespace in any_store.namespaces(("experience",)) if "semantic" in namespace)
    (key,) = any_store.get(place)
    for damage in (b"{", b"[1,2]", b'["a"]', b"null"):
        any_store.write(place, put={key: damage})
        assert cache.lookup(prompt(ALIKE), "m") is None
    cache.update(prompt(ASKED), "m", answer())
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."


def test_a_damaged_answer_can_be_deleted_and_what_was_asked_goes_with_it(
    build: Callable[..., ExperienceCache], any_store: Store
) -> None:
    cache = build(on_error="raise")
    cache.update(prompt(ASKED), "m", answer())
    key = request_key(prompt(ASKED), "m")
    any_store.write(("experience", "", "", "langchain"), put={key: b"{"})
    assert cache.delete(key)
    assert [cache.lookup(prompt(text), "m") for text in (ASKED, ALIKE)] == [None, None]
    assert not any(any_store.get(namespace) for namespace in any_store.namespaces())


def test_d3_what_was_asked_of_an_answer_that_calls_a_tool_is_not_kept(
    build: Callable[..., ExperienceCache], any_store: Store
) -> None:
    cache = build(deterministic_tools=["add"])
    for n, name in enumerate(("weather", "add")):
        call = {"name": name, "args": {}, "id": "c1"}
        cache.update(prompt(ASKED), f"model {n}", answer("", tool_calls=[call]))
        assert any("semantic" in namespace for namespace in any_store.namespaces()) is (name == "add")


def test_what_a_stream_says_whose_end_is_read_in_a_bypass_is_not_kept_nor_what_was_asked(
    build: Callable[..., ExperienceCache], any_store: Store
) -> None:
    cache = build()
    model = CachedChatModel(FakeListChatModel(responses=["Take a course."]), cache)
    stream = model.stream(ASKED)
    next(stream)
    with model.bypass():
        assert list(stream)
    assert cache.stats()["stored"] == 0
    assert not any("semantic" in namespace for namespace in any_store.namespaces())


def test_an_exact_entry_that_cannot_be_read_is_no_semantic_hit(build: Callable[..., ExperienceCache]) -> None:
    cache = build(on_error="raise")
    cache.update(prompt(ASKED), "m", answer())
    cache.pool.create(Experience(resp="no generations"), key=request_key(prompt(ASKED), "m"))
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert [cache.stats()[name] for name in ("hits", "unreadable", "semantic_errors")] == [0, 1, 0]
    assert cache.pool.count() == 0


# --- settings -----------------------------------------------------------------------------------------------


def test_an_embedding_model_alone_is_a_semantic_mode(tmp_path: Path) -> None:
    embedder = Embedder(topics, name="topics")
    cache = ExperienceCache(url=f"sqlite:///{tmp_path / 's.db'}", semantic=embedder)
    cache.update(prompt(ASKED), "m", answer())
    assert content(cache.lookup(prompt(ALIKE), "m")) == "Take a course."


def test_a_verifier_of_ones_own_has_the_last_word(build: Callable[..., ExperienceCache]) -> None:
    cache = build(verifier=Verifier(judge=lambda *_: False))
    cache.update(prompt(ASKED), "m", answer())
    assert cache.lookup(prompt(ALIKE), "m") is None
    assert cache.stats()["rejected_score"] == 1


def test_tune_gives_a_threshold_for_pairs_of_ones_own(build: Callable[..., ExperienceCache]) -> None:
    pairs = [(ASKED, ALIKE, True), ("Rooms in Paris for 2", "Rooms in Paris for 3", False), ("Chess?", "Hindi?", False)]
    tuned = build().tune(pairs, precision=1.0)
    assert tuned.threshold == Verifier()(ALIKE, ASKED, cosine=1.0).score
    assert tuned.curve[-1].hit_rate == 1
    with pytest.raises(ConfigurationError, match="no semantic mode"):
        ExperienceCache(store=MemoryStore()).tune(pairs)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (SemanticMode, "an embedder or an index"),
        (lambda: SemanticMode(topics, index=object()), "an embedder or an index"),  # type: ignore[arg-type]
        (lambda: SemanticMode(topics, deterministic_tools="clock"), "deterministic_tools"),
        (
            lambda: ExperienceCache(store=MemoryStore(), semantic=Embedder(topics, name="t")),
            "give the semantic mode an",
        ),
        (lambda: ExperienceCache("memory:", semantic=SemanticMode(index=LexicalIndex(":memory:"))), "open_vectors"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_configured(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        make()


def test_candidates_are_at_least_one(build: Callable[..., ExperienceCache]) -> None:
    with pytest.raises(ConfigurationError, match="candidates"):
        build(candidates=0)


def test_a_message_chunk_is_its_message(build: Callable[..., ExperienceCache]) -> None:
    cache = build()
    cache.update(prompt("Hello", AIMessage("Hi!"), ASKED), "m", answer())
    assert content(cache.lookup(prompt("Hello", AIMessageChunk(content="Hi!"), ALIKE), "m")) == "Take a course."


@pytest.mark.parametrize("after", [SystemMessage("Now in French."), HumanMessage([{"type": "image_url"}])])
def test_nothing_but_calls_and_results_may_stand_after_the_question(
    build: Callable[..., ExperienceCache], after: BaseMessage
) -> None:
    cache = build()
    for said in ([AIMessage("Hm."), after], [after]):
        cache.update(prompt(ASKED, *said), "m", answer())
        assert cache.lookup(prompt(ALIKE, *said), "m") is None


def test_d3_calls_that_could_not_be_read_are_calls(index: VectorIndex) -> None:
    cache = ExperienceCache(store=MemoryStore(), semantic=SemanticMode(index=index), should_store=lambda _: True)
    invalid = [{"name": "f", "args": "[not json", "id": "c1", "error": None, "type": "invalid_tool_call"}]
    cache.update(prompt(ASKED), "m", answer(invalid_tool_calls=invalid))
    assert cache.lookup(prompt(ASKED), "m")
    assert cache.lookup(prompt(ALIKE), "m") is None


def test_d3_an_answer_made_from_what_the_provider_found_is_kept_for_no_other_wording(index: VectorIndex) -> None:
    cache = ExperienceCache(store=MemoryStore(), semantic=SemanticMode(index=index))
    paused = AIMessage([{"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}])
    cache.update(prompt(ASKED, paused), "m", answer())
    assert cache.lookup(prompt(ASKED, paused), "m")
    assert cache.lookup(prompt(ALIKE, paused), "m") is None


def test_which_tools_gave_many_results_that_do_not_name_them_is_told_in_no_time() -> None:
    calls = [{"id": Compared(f"t{n}"), "name": "add"} for n in range(500)]
    asked = {"id": ["AIMessage"], "kwargs": {"tool_calls": calls}}
    results = [{"id": ["ToolMessage"], "kwargs": {"tool_call_id": f"t{n}"}} for n in range(500)]
    before = Compared.times
    assert DeterministicTools(["add"]).is_tool_exchange([asked, *results])
    assert Compared.times - before < 10 * len(calls)
    assert not DeterministicTools(["add"]).is_tool_exchange(
        [asked, {"id": ["ToolMessage"], "kwargs": {"tool_call_id": "another"}}]
    )
