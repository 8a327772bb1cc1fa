"""ExperienceCache: answers that were given before, for ``set_llm_cache``."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

from langchain_core.caches import BaseCache
from langchain_core.outputs import Generation

from langmem_adapters import views
from langmem_adapters.causes import WarnOnce
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience import ExperiencePool, Prices, bypass, refresh
from langmem_adapters.experience.policies import ask
from langmem_adapters.experience.shelf import Evicted
from langmem_adapters.experience.verified import Match, VerifiedAnswers
from langmem_adapters.experience.verifier_tuning import Tuned
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.indexes import cache_vectors
from langmem_adapters.langchain.costs import metric_of
from langmem_adapters.langchain.generations import read_generations, worth_storing, write_generations
from langmem_adapters.langchain.partitions import by_partition
from langmem_adapters.langchain.removal import Removal
from langmem_adapters.langchain.request import known_key, request_key
from langmem_adapters.langchain.semantic import Question, SemanticMode
from langmem_adapters.model import Experience
from langmem_adapters.progress import Progress
from langmem_adapters.protocols import Store
from langmem_adapters.stores import cache_store

__all__ = ["ExperienceCache"]

_log = logging.getLogger("langmem_adapters")


class ExperienceCache(Removal, BaseCache):
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
        prices: What a million tokens in and out cost, by a model's name, for ``cache.pool.saved()``; without them,
            what an answer took is not kept beside it.
        should_store: Decides which answers are worth keeping; default :func:`worth_storing`.
        semantic: Serve answers to requests that mean the same, too, if there is none to the very same: a
            :class:`~langmem_adapters.langchain.semantic.SemanticMode`, or an embedding model for one with defaults.
            Default: no. Such a hit has ``cache`` "semantic" and ``cache_score``, how surely it means the same.
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
        semantic: Any = None,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        if url is not None and store is not None:
            raise ConfigurationError("give ExperienceCache a url or a store, not both")
        if on_error not in {"degrade", "raise"}:
            raise ConfigurationError(f'on_error is "degrade" or "raise", not {on_error!r}')
        self.pool = ExperiencePool(
            store or cache_store(url),
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
        self._should_store = should_store
        self._is_priced = bool(prices)
        self._on_error = on_error
        self._clock = clock
        self._new_id = new_id
        self._counts: Counter[str] = Counter()
        self._warn = WarnOnce()
        self._semantic = None if semantic is None else SemanticMode.of(semantic)
        self._judge = None if self._semantic is None else self._semantic.judge
        self._keeps = keep is not None and self._judge is None  # who is asked may take their time
        self._verified = None if self._semantic is None else self._like(url, store, self._semantic)

    def _like(self, url: str | None, store: Store | None, mode: SemanticMode) -> VerifiedAnswers:
        if mode.index is None and store is not None:
            raise ConfigurationError("with a store of your own, give the semantic mode an index: open_vectors")
        return VerifiedAnswers(
            self.pool.store,
            (*self._place(), "semantic"),
            cache_vectors(url, mode.embedder) if mode.index is None else mode.index,
            verifier=mode.verifier,
            candidates=mode.candidates,
            counts=self._counts,
            answers=self._place(),
        )

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """The answer to this request, or None."""
        return self._recently(prompt, llm_string) or run(self._lookup(prompt, llm_string))

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """:meth:`lookup`, without blocking the event loop."""
        return self._recently(prompt, llm_string) or await arun(self._lookup(prompt, llm_string))

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Keep an answer, if it is worth keeping."""
        run(self._update(prompt, llm_string, return_val))

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """:meth:`update`, without blocking the event loop."""
        await arun(self._update(prompt, llm_string, return_val))

    def tune(
        self, pairs: Sequence[tuple[str, str, bool]], *, precision: float = 0.95, progress: Progress = False
    ) -> Tuned:
        """Choose the semantic mode's threshold by pairs of two requests and whether they mean the same.

        It is given back with the whole curve, for a ``Verifier(threshold)``; nothing changes by itself. Raises
        ConfigurationError, where no threshold has that precision, or where there is no semantic mode. ``progress``
        shows the pairs.
        """
        return run(self._tune(pairs, precision, progress))

    async def atune(
        self, pairs: Sequence[tuple[str, str, bool]], *, precision: float = 0.95, progress: Progress = False
    ) -> Tuned:
        """:meth:`tune`, without blocking the event loop."""
        return await arun(self._tune(pairs, precision, progress))

    bypass = staticmethod(bypass)
    refresh = staticmethod(refresh)

    def stats(self) -> dict[str, int]:
        """Hits, misses, stored, unreadable and expired entries; refused answers, errors, and tokens saved.

        In the semantic mode also: semantic hits (of the hits), hits of a dry run, errors of its own, texts whose
        vectors are behind, and rejected candidates, all of them and by guard (``rejected_numbers``).
        """
        own = {name: self._counts[name] for name in ("refused", "errors", "saved_tokens")}
        counts = {**self.pool.stats(), **own, **(self._semantic_stats() if self._semantic else {})}
        return views.Figures(counts, title="LLM cache")

    def _semantic_stats(self) -> dict[str, int]:
        named = ("semantic_hits", "semantic_dry", "semantic_errors", "behind", "rejected")
        guards = sorted(name for name in self._counts if name.startswith("rejected_"))
        return {name: self._counts[name] for name in (*named, *guards)}

    def __repr__(self) -> str:
        return f"ExperienceCache({self.pool!r})"

    def _repr_html_(self) -> str:
        return views.attempt(self, lambda: views.statistics(self.stats(), title=f"LLM cache {self.pool.tag}"))

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
            self._count_tokens(generations)
        return generations

    def _lookup(self, prompt: str, llm_string: str) -> Flow[list[Generation] | None]:
        key = request_key(prompt, llm_string)
        try:
            experience = yield from self.pool.lookup_flow(key)
            if experience is not None and self._judge is not None:
                experience = yield from self._judged(experience, self._asked(prompt, llm_string))
            generations = None if experience is None else self._read(experience, key)
        except LangmemError as error:
            self._degrade(error)
            return None
        if generations is None:
            generations = yield from self._look_alike(prompt, llm_string)
        if generations is not None:
            self._count_tokens(generations)
        return generations

    def _asked(self, prompt: str, llm_string: str) -> str:
        """What a judge is told was asked: the user's last words, or all of a prompt that has none."""
        question = self._semantic.question(prompt, llm_string) if self._semantic else None
        return prompt if question is None else question.text

    def _judged(self, experience: Experience, text: str) -> Flow[Experience | None]:
        """An answer to the very same request, if it is good enough."""
        good = False
        try:
            good = yield from self._is_good(experience, text, text)
        finally:
            if not good:
                self.pool.withdraw(experience)
        return experience if good else None

    def _is_good(self, experience: Experience, kept: str, asked: str) -> Flow[bool]:
        """Whether the judge lets the answer to what was asked then stand for one to what is asked now."""
        if self._judge is None:
            return True
        good = bool((yield from ask(self._judge, experience.model_copy(update={"req": kept}), asked)))
        self._counts.update([] if good else ["rejected", "rejected_judge"])
        return good

    def _look_alike(self, prompt: str, llm_string: str) -> Flow[list[Generation] | None]:
        mode, verified = self._semantic, self._verified
        question = mode.question(prompt, llm_string) if mode and self.pool.reads else None
        if mode is None or verified is None or question is None:
            return None
        try:
            own = request_key(prompt, llm_string) if self._judge else None  # has been judged
            for match in (yield from verified.find_flow(*reversed(question))):
                if match.key == own:
                    continue
                generations = yield from self._served(mode, match, question)
                if generations is not None:
                    return generations
        except LangmemError as error:
            self._degrade(error, "semantic_errors")
        return None

    def _served(self, mode: SemanticMode, match: Match, question: Question) -> Flow[list[Generation] | None]:
        """The answer to a request that means the same, if it is still there and good enough."""
        experience = yield from self.pool.lookup_flow(match.key, again=True)
        if experience is None:
            yield from cast("VerifiedAnswers", self._verified).drop_flow(question.partition, match.key)
            return None
        served = False
        try:
            if not (yield from self._is_good(experience, match.text, question.text)):
                return None
            generations = self._read(experience, match.key)
            if mode.dry_run:
                self._counts["semantic_dry"] += 1
                _log.info("dry run: %s would have been served, score %.3f", match.key, match.score)
                return None
            served = mode.may_serve(generations)
        finally:
            if not served:
                self.pool.withdraw(experience)
        self._counts["semantic_hits"] += served
        mode.mark(generations, match)
        return generations if served else None

    def _update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> Flow[None]:
        if not self._should_store(return_val):
            self._counts["refused"] += 1
            return
        key = request_key(prompt, llm_string)
        question = self._question(prompt, llm_string, return_val)
        partition = {} if question is None else {"partition": question.partition}
        evicted: Evicted = []
        try:
            metric = metric_of(return_val) if self._is_priced else None
            experience = Experience(resp=write_generations(return_val), metric=metric, **partition)
            yield from self.pool.create_flow(experience, key=key, evicted=evicted, has_text=False)
        except LangmemError as error:
            self._degrade(error)
            return
        yield from self._keep_question(question, key, evicted)

    def _keep_question(self, question: Question | None, key: str, evicted: Evicted) -> Flow[None]:
        """Keep what was asked beside an answer, and forget what was asked of those that had to go."""
        verified = self._verified
        if verified is None or not self.pool.writes:
            return
        try:
            if question is not None:
                yield from verified.keep_flow(question.partition, question.text, key)
            for gone, keys in by_partition(evicted).items():
                yield from verified.drop_flow(gone, *keys)
        except LangmemError as error:
            self._degrade(error, "semantic_errors")

    def _question(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> Question | None:
        """What of a request may be said in other words to get this answer."""
        mode = self._semantic
        return mode.question(prompt, llm_string) if mode is not None and mode.may_serve(return_val) else None

    def _tune(self, pairs: Sequence[tuple[str, str, bool]], precision: float, progress: Progress) -> Flow[Tuned]:
        if self._verified is None:
            raise ConfigurationError("this cache has no semantic mode to tune: give it semantic=")
        return (yield from self._verified.tune_flow(pairs, precision, progress))

    def _read(self, experience: Experience, key: str) -> list[Generation]:
        age = max(0.0, self._clock() - (experience.timestamp or 0.0))
        return read_generations(experience.resp, key=key, age=age, new_id=self._new_id)

    def _count_tokens(self, generations: Sequence[Generation]) -> None:
        for generation in generations:
            self._counts["saved_tokens"] += _tokens(generation)

    def _degrade(self, error: LangmemError, count: str = "errors") -> None:
        if self._on_error == "raise" or isinstance(error, ConfigurationError):
            raise error
        self._counts[count] += 1
        self._warn("the model call goes on without its cache", error)


def _tokens(generation: Generation) -> int:
    message = getattr(generation, "message", None)
    usage = getattr(message, "response_metadata", {}).get("cache_usage") or {}
    return int(usage.get("total_tokens") or 0)
