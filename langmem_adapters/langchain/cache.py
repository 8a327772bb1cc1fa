"""ExperienceCache: answers that were given before, for ``set_llm_cache``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.caches import BaseCache
from langchain_core.outputs import Generation

from langmem_adapters import views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience import ExperiencePool, Prices, Scorer
from langmem_adapters.experience.background_scoring import BackgroundScoring, Unscored
from langmem_adapters.experience.model_answers import said
from langmem_adapters.experience.policies import age_of, decision
from langmem_adapters.experience.switches import Switches
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.langchain.caching.answers import Answers
from langmem_adapters.langchain.caching.classes import with_fields
from langmem_adapters.langchain.caching.costs import count_saved, metric_of
from langmem_adapters.langchain.caching.current import completed
from langmem_adapters.langchain.caching.generations import read_generations, worth_storing, write_generations
from langmem_adapters.langchain.caching.paraphrases import Paraphrases
from langmem_adapters.langchain.caching.prompt import asked_in
from langmem_adapters.langchain.caching.removal import Removal
from langmem_adapters.langchain.caching.request import check_whole, known_key, request_key
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.langchain.unseen import unseen
from langmem_adapters.model import Experience, Metric
from langmem_adapters.protocols import Store
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import cache_store
from langmem_adapters.validation import check_on_error, check_plain
from langmem_adapters.warn_once import WarnOnce

__all__ = ["ExperienceCache"]

_COUNTED = ("refused", "errors", "unkeyed", "saved_tokens")
_ASKED = 1_000  # requests in the air, of which it is known when they were made


class ExperienceCache(Shared, Switches, Paraphrases, Removal, BaseCache):
    """LangChain's LLM cache on a store (implements ``langchain_core.caches.BaseCache``).

    Prompts and model parameters are kept as a hash only. A hit is a new object each time, with a message id of
    its own (so that LangGraph keeps it beside the first), with usage set to zero, and with ``cache``,
    ``cache_key``, ``cache_age`` (seconds), ``cache_score`` and ``cache_usage`` in ``response_metadata``.
    An entry that cannot be read is a miss. Truncated, filtered and empty answers are not stored.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        tenant: Whose answers; those of others are never served.
        tag: Keeps these entries apart from those of other tags.
        ttl: Seconds for which an answer may be served; None: for ever.
        max_entries, max_bytes: How much is kept; see :class:`~langmem_adapters.ExperiencePool`. What has to go, goes
            from the semantic mode, too.
        keep: Seconds for which an answer that was read is served again from this process's memory, without a look at
            the store; None: not at all. What this process changes takes effect at once, what others change after so
            long. Some 1,000 answers of 16 MB are kept at the most.
        prices: What a million tokens in and out cost, by a model's name, for :meth:`stats`; without them, what an
            answer took is not kept beside it.
        should_store: Decides which answers are worth keeping; default :func:`worth_storing`.
        scorer: Scores each new answer, in the background, after it was returned:
            :class:`~langmem_adapters.experience.LLMScorer`, for one. It is shown what the user had asked last, and the
            answer's text with the tools that it calls. One that is a coroutine function scores answers of async calls.
            While it is at work, all caches are bypassed: a model that it asks is not served from here.
        semantic: Serve answers to requests that mean the same, too, if there is none to the very same: a
            :class:`~langmem_adapters.langchain.SemanticMode`, or an embedding model for one with defaults. Default: no.
            Such a hit has ``cache`` "semantic" and ``cache_score``, how surely it means the same.
        on_error: What an outage of the store does to a model call: "degrade" goes on without the cache, is
            logged once for each cause and counted in :meth:`stats`; "raise" raises.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> from langmem_adapters.langchain import ExperienceCache
    >>> model = FakeListChatModel(responses=["Paris", "Lyon"], cache=ExperienceCache(url="memory:"))
    >>> model.invoke("What is the capital of France?").content
    'Paris'
    >>> model.invoke("What is the capital of France?").content
    'Paris'
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        tenant: str = "",
        tag: str = "langchain",
        ttl: float | None = None,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        keep: float | None = None,
        prices: Prices | None = None,
        should_store: Callable[[Sequence[Generation]], bool] = worth_storing,
        scorer: Scorer | None = None,
        semantic: Any = None,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        check_on_error(on_error)
        self.pool = ExperiencePool(
            cache_store(url, store),
            tag=tag,
            tenant=tenant,
            ttl=ttl,
            max_entries=max_entries,
            max_bytes=max_bytes,
            keep=keep,
            prices=prices,
            clock=clock,
            new_id=new_id,
        )
        check_plain("should_store", should_store)
        self._should_store = should_store
        self._is_priced = bool(prices)
        self._on_error = on_error
        self._clock, self._timer = clock, timer
        self._new_id = new_id
        self._asked_at: dict[str, float] = {}  # what is being asked, for how long it takes
        self._counts = Counts()
        self._warn = WarnOnce()
        self._scorer = scorer
        self._scoring = BackgroundScoring(scorer, "an answer", self._warn)
        self._semantic = None if semantic is None else SemanticMode.of(semantic)
        self._judge = None if self._semantic is None else self._semantic.judge
        self._keeps = keep is not None and self._judge is None  # who is asked may take their time
        self._verified = None if self._semantic is None else self._like(url, store, self._semantic)

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """The answer to this request, or None."""
        found = self._recently(prompt, llm_string)
        if found is None:
            with unseen():
                found = run(self._lookup(prompt, self._told(llm_string)))
        return found

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """:meth:`lookup`, without blocking the event loop."""
        found = self._recently(prompt, llm_string)
        if found is None:
            with unseen():
                found = await arun(self._lookup(prompt, self._told(llm_string)))
        return found

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Keep an answer, if it is worth keeping."""
        kept = run(self._update(prompt, self._told(llm_string, was_asked=True), return_val))
        if kept is not None:
            with unseen():
                self._scoring.begin(kept)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """:meth:`update`, without blocking the event loop."""
        kept = await arun(self._update(prompt, self._told(llm_string, was_asked=True), return_val))
        if kept is not None:
            with unseen():
                self._scoring.abegin(kept)

    def flush(self) -> None:
        """Wait for the scores that are being made in the background, also of a CachedChatModel with this cache."""
        self._scoring.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also for those that are made on it."""
        await self._scoring.aflush()

    def stats(self) -> dict[str, Any]:
        """What this object has seen of its tag.

        Hits, misses, stored, unreadable and expired entries; refused answers, errors, requests without a key; answers
        scored, and those that the scorer failed at; tokens saved, by the usage of what was served, and, with
        ``prices``, seconds and money.

        In the semantic mode also: semantic hits (of the hits), hits of a dry run, errors of its own, texts whose
        vectors are behind, and rejected candidates, all of them and by guard (``rejected_numbers``).
        """
        own = {name: self._counts[name] for name in _COUNTED}
        own |= self._scoring.stats() | (self._semantic_stats() if self._semantic else {})
        return views.Figures({**self.pool.stats(), **own}, title="LLM cache")

    def __repr__(self) -> str:
        return f"ExperienceCache({self.pool!r})"

    def _repr_html_(self) -> str:
        return views.attempt(self, lambda: views.statistics(self.stats(), title=f"LLM cache {self.pool.tag}"))

    def _around_calls(self, wait: float, output_version: str | None) -> Answers:
        """The same answers, by the same rules, around the calls of a CachedChatModel."""
        return Answers(
            self.pool,
            should_store=self._should_store,
            on_error=self._on_error,
            scorer=self._scorer,
            judge=self._judge,
            wait=wait,
            alike=self if self._semantic else None,
            scoring=self._scoring,
            counts=self._counts,
            output_version=output_version,
            clock=self._clock,
            new_id=self._new_id,
        )

    # --- flows

    def _recently(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """The answer, if it was read a moment ago: neither waits nor works for long, as a loop may be running."""
        key = known_key(prompt, llm_string) if self._keeps else None
        if key is None:
            return None
        try:
            experience = self.pool.recent(key)
            generations = None if experience is None else self._read(experience, key)
        except SerializationError:
            return None  # it is healed where it is read from the store
        if experience is not None and generations is not None:
            self.pool.hit(experience)
            count_saved(self._counts, generations)
        return generations

    def _lookup(self, prompt: str, told: str | None) -> Flow[list[Generation] | None]:
        if told is None:
            self._counts.add("unkeyed")
            return None
        key = request_key(prompt, told)
        try:
            experience = yield from self.pool.lookup_flow(key)
            if experience is not None and self._judge is not None:
                experience = yield from self._judged(experience, asked_in(prompt))
            generations = None if experience is None else (yield from self._legible(experience, key))
            if experience is not None and generations is None:
                self.pool.withdraw(experience)
        except LangmemError as error:
            self._degrade(error)
            return None
        if generations is None:
            generations = yield from self._look_alike(prompt, told)
        if generations is not None:
            count_saved(self._counts, generations)
        elif self._is_priced:
            self._begin(key)
        return generations

    def _told(self, llm_string: str, *, was_asked: bool = False) -> str | None:
        """What is told of a call, and what its caller knows; None, where it cannot be told from another."""
        try:
            told = with_fields(completed(llm_string, was_asked=was_asked))
            check_whole(told)
        except SerializationError as error:
            self._warn("requests without a key bypass the cache", error)
            return None
        return told

    def _begin(self, key: str) -> None:
        if len(self._asked_at) >= _ASKED:
            self._asked_at.clear()
        self._asked_at[key] = self._timer()

    def _update(self, prompt: str, told: str | None, return_val: Sequence[Generation]) -> Flow[Unscored | None]:
        """Keep an answer; what is to be scored, if it was kept and anybody scores."""
        if told is None:
            return None
        key = request_key(prompt, told)
        try:
            kept = yield from self._put(prompt, told, key, return_val)
            if kept is None:
                yield from self.pool.supersede_flow(key)
        except LangmemError as error:
            self._degrade(error)
            return None
        if kept is None or self._scorer is None or not self.pool.writes:
            return None
        return Unscored(self.pool, key, kept, asked_in(prompt), lambda experience: said(experience.resp))

    def _put(self, prompt: str, told: str, key: str, generations: Sequence[Generation]) -> Flow[Experience | None]:
        if not decision("should_store", lambda: self._should_store(generations)):
            self._counts.add("refused")
            return None
        try:
            answer = Experience(resp=write_generations(generations), metric=self._metric(key, generations))
            return (yield from self._create(prompt, told, key, generations, answer))
        except SerializationError as error:
            self._degrade(error)
            return None

    def _metric(self, key: str, generations: Sequence[Generation]) -> Metric | None:
        if not self._is_priced:
            return None
        began = self._asked_at.pop(key, None)
        passed = 0.0 if began is None else max(self._timer() - began, 0.0)
        return metric_of(generations).model_copy(update={"time_cost": passed})

    def _read(self, experience: Experience, key: str) -> list[Generation]:
        return read_generations(experience.resp, key=key, age=age_of(experience, self._clock()), new_id=self._new_id)

    def _degrade(self, error: LangmemError, count: str = "errors") -> None:
        if self._on_error == "raise" or isinstance(error, ConfigurationError):
            raise error
        self._counts.add(count)
        self._warn("the model call goes on without its cache", error)
