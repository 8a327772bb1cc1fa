"""ExperienceCache: an LLM response cache, for ``set_llm_cache``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.caches import BaseCache
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters import views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience import ExperiencePool, Judge, Prices, Scorer
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.functions.rules import Invocation
from langmem_adapters.experience.single_flight.asking import CachedModel
from langmem_adapters.experience.single_flight.tenants import Tenant, Tenants
from langmem_adapters.experience.verifier.tuning import Tuned, tune_flow
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.indexes import cache_vectors
from langmem_adapters.langchain.caching.answers import Answers, Request
from langmem_adapters.langchain.caching.classes import with_class_fields
from langmem_adapters.langchain.caching.costs import metric_of
from langmem_adapters.langchain.caching.generations import worth_storing
from langmem_adapters.langchain.caching.model_description import complete_llm_string
from langmem_adapters.langchain.caching.request import check_self_contained, request_key
from langmem_adapters.langchain.caching.semantic import Paraphrases, SemanticMode
from langmem_adapters.langchain.caching.tenant_cache import TenantCache
from langmem_adapters.progress import Progress
from langmem_adapters.protocols import SemanticIndex, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import cache_store
from langmem_adapters.validation import check_sync_functions
from langmem_adapters.warn_once import WarnOnce


class ExperienceCache(Shared, CachedModel, BaseCache):
    """LangChain's LLM cache on a store (implements ``langchain_core.caches.BaseCache``).

    Prompts and model parameters are stored only as a hash; ``semantic`` also stores the text of the last question. Each
    hit is a new object with a message id of its own (so that LangGraph keeps it beside the first answer), with usage
    set to zero, and with ``cache``, ``cache_key``, ``cache_age`` (seconds), ``cache_score`` and ``cache_usage`` in
    ``response_metadata``. An unreadable entry is a miss. Truncated, filtered and empty answers are not stored.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        tenant: The tenant whose answers these are; other tenants are never served them. A context variable, or a
            function without arguments, gives the current tenant's id, so that one cache serves all tenants.
        strict: Whether calls for which these give no tenant bypass the cache. If False, such calls share their answers.
        tag: Keeps these entries apart from those of other tags.
        ttl: Seconds for which an answer may be served; None: for ever.
        max_entries, max_bytes: How much is kept; see :class:`~langmem_adapters.ExperiencePool`. Evicted entries leave
            the semantic mode, too.
        keep: Seconds for which an answer that was read is served again from this process's memory, without reading
            the store; None: not at all. Changes by this process take effect at once, changes by others after this
            time. At most about 1,000 answers, and 16 MB, are held for each tenant.
        prices: The price of a million input and output tokens, by model name, for :meth:`stats`. Without prices, the
            cost of an answer is not stored with it.
        should_store: Decides which answers are worth keeping; default :func:`worth_storing`.
        scorer: Scores each new answer, in the background, after it was returned, such as
            :class:`~langmem_adapters.experience.LLMScorer`. It is shown the user's last question, and the answer's
            text with the tools that it calls. A coroutine function scores answers of async calls.
            While it runs, all caches are bypassed: a model that it asks is not served from here.
        judge: Says whether a stored answer may be served, such as :class:`~langmem_adapters.experience.AtLeast`. A
            coroutine function works only with async calls. A semantic mode may have the judge instead.
        semantic: Also serve answers to requests that mean the same, if there is none to the identical request: a
            :class:`~langmem_adapters.langchain.SemanticMode`, or an embedding model for one with defaults. Default: no.
            Such a hit has ``cache`` "semantic", and in ``cache_score`` how surely it means the same.
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

    _tenants: Tenants[TenantCache]

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        tenant: Tenant = "",
        strict: bool = True,
        tag: str = "langchain",
        ttl: float | None = None,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        keep: float | None = None,
        prices: Prices | None = None,
        should_store: Callable[[Sequence[Generation]], bool] = worth_storing,
        scorer: Scorer | None = None,
        judge: Judge | None = None,
        semantic: Any = None,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        opened_store = cache_store(url, store)
        mode = None if semantic is None else SemanticMode.of(semantic)
        index = None if mode is None else _semantic_index(url, store, mode)
        if mode is not None and mode.judge is not None:
            if judge is not None:
                raise ConfigurationError("give the judge to the cache or to its semantic mode, not to both")
            judge = mode.judge
        check_sync_functions(timer=timer)
        self._counts = Counts()
        self._warn = WarnOnce()
        scoring = BackgroundScoring(scorer, "an answer", self._warn)
        self._answer_settings: dict[str, Any] = {"scoring": scoring, "counts": self._counts}
        self._answer_settings |= {"clock": clock, "timer": timer, "new_id": new_id}
        self._answer_settings |= {"should_store": should_store, "scorer": scorer, "judge": judge, "on_error": on_error}
        metric = metric_of if prices else None
        shared_pool = ExperiencePool(
            opened_store,
            tag=tag,
            ttl=ttl,
            max_entries=max_entries,
            max_bytes=max_bytes,
            keep=keep,
            prices=prices,
            clock=clock,
            new_id=new_id,
        )

        def make_tenant_cache(tenant: str) -> TenantCache:
            pool = shared_pool._of(tenant=tenant)  # noqa: SLF001 - a pool of its own
            paraphrases = None if mode is None or index is None else Paraphrases(mode, pool, index, self._counts)
            own_settings: dict[str, Any] = {"wait": 0.0, "output_version": None, "only_chats": False, "metric": metric}
            answers = Answers(pool, paraphrases=paraphrases, **own_settings, **self._answer_settings)
            return TenantCache(pool, paraphrases, answers)

        self._tenants = Tenants(tenant, make_tenant_cache, counts=self._counts, strict=strict)

    @property
    def _answers(self) -> Answers:
        return self._tenants.default.answers

    @property
    def pool(self) -> ExperiencePool:
        """The pool of the tenant that is being served."""
        return self._tenants.require_current().pool

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """The cached answer to this request, or None."""
        if (tenant_cache := self._tenants.current_for_call()) is None:
            return None
        request = self._request(prompt, llm_string)
        if (recent := tenant_cache.answers.recent(request.key)) is not None:
            return recent
        return run(self._look_up(tenant_cache, request))

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """:meth:`lookup`, without blocking the event loop."""
        if (tenant_cache := self._tenants.current_for_call()) is None:
            return None
        request = self._request(prompt, llm_string)
        if (recent := tenant_cache.answers.recent(request.key)) is not None:
            return recent
        return await arun(self._look_up(tenant_cache, request))

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Store an answer, if it is worth keeping."""
        if (tenant_cache := self._tenants.current()) is None:
            return
        call = run(self._keep(tenant_cache, self._request(prompt, llm_string, was_asked=True), return_val))
        tenant_cache.answers.score(call)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """:meth:`update`, without blocking the event loop."""
        if (tenant_cache := self._tenants.current()) is None:
            return
        call = await arun(self._keep(tenant_cache, self._request(prompt, llm_string, was_asked=True), return_val))
        tenant_cache.answers.score(call, on_loop=True)

    def clear(self, **kwargs: Any) -> None:
        """Delete the entries of this tenant and tag, and nothing else."""
        _refuse_arguments(kwargs)
        run(self._tenants.require_current().clear())

    async def aclear(self, **kwargs: Any) -> None:
        """:meth:`clear`, without blocking the event loop."""
        _refuse_arguments(kwargs)
        await arun(self._tenants.require_current().clear())

    def delete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """Delete the entry that served this answer (or has this key); False if it no longer exists."""
        return run(self._tenants.require_current().delete(_hit_key(hit)))

    async def adelete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._tenants.require_current().delete(_hit_key(hit)))

    def invalidate(self, where: Callable[[list[Generation]], bool] | None = None, *, tag: str | None = None) -> int:
        """Delete the entries whose answers make ``where`` true; returns how many.

        With ``tag``, entries of this tenant under that tag, instead of the cache's own; without ``where``, all of them,
        including what the semantic mode of any cache has stored there.
        """
        return run(self._tenants.require_current().invalidate(where, tag))

    async def ainvalidate(
        self, where: Callable[[list[Generation]], bool] | None = None, *, tag: str | None = None
    ) -> int:
        """:meth:`invalidate`, without blocking the event loop."""
        return await arun(self._tenants.require_current().invalidate(where, tag))

    def tune(
        self, pairs: Sequence[tuple[str, str, bool]], *, precision: float = 0.95, progress: Progress = False
    ) -> Tuned:
        """Choose the semantic mode's threshold from labelled pairs: two requests, and whether they mean the same.

        Returns the threshold with the whole curve, for a ``Verifier(threshold)``; it changes nothing by itself. Raises
        ConfigurationError if no threshold reaches that precision, or if there is no semantic mode. ``progress``
        shows the pairs.
        """
        return run(self._tune_threshold(pairs, precision, progress))

    async def atune(
        self, pairs: Sequence[tuple[str, str, bool]], *, precision: float = 0.95, progress: Progress = False
    ) -> Tuned:
        """:meth:`tune`, without blocking the event loop."""
        return await arun(self._tune_threshold(pairs, precision, progress))

    def stats(self) -> dict[str, Any]:
        """Counts of this object, for its tag, including those of the models that use it as their cache.

        Hits, misses, stored, unreadable and expired entries; refused answers, errors, requests without a key, calls
        bypassed for lack of a tenant; answers scored, those on which the scorer failed, and those that the judge
        rejected; hits shared from a call in flight; tokens saved (by the usage of what was served), seconds saved,
        and, with ``prices``, money saved.

        In semantic mode also: semantic hits (a part of the hits), hits of a dry run, errors of that mode, texts whose
        vectors are behind, and rejected candidates, in total and by guard (``rejected_numbers``).
        """
        return views.Figures(self._answers.stats(), title="LLM cache")

    def __repr__(self) -> str:
        return f"ExperienceCache({self._answers.pool!r})"

    def _repr_html_(self) -> str:
        return views.render_safely(
            self, lambda: views.statistics(self.stats(), title=f"LLM cache {self._answers.pool.tag}")
        )

    def _answers_for(self, wait: float, output_version: str | None) -> Tenants[Answers]:
        """The same answers, under the same rules, around the calls of a CachedChatModel."""

        def make_answers(tenant: str) -> Answers:
            tenant_cache = self._tenants.get(tenant)
            return Answers(
                tenant_cache.pool,
                wait=wait,
                output_version=output_version,
                paraphrases=tenant_cache.paraphrases,
                **self._answer_settings,
            )

        return self._tenants.with_same(make_answers)

    def _request(self, prompt: str, llm_string: str, *, was_asked: bool = False) -> Request:
        """The request, completed with what only its caller knows; its key is "" if others might be mistaken for it."""
        try:
            complete, snapshot = complete_llm_string(llm_string, was_asked=was_asked)
            full_llm_string = with_class_fields(complete)
            check_self_contained(prompt, full_llm_string)
        except SerializationError as error:
            self._warn("requests without a key bypass the cache", error)
            return Request(prompt, llm_string, "")
        key = request_key(prompt, full_llm_string)
        if snapshot is None:
            return Request(prompt, full_llm_string, key, id(llm_string))
        state = (snapshot.replacements, snapshot.has_changed_within)
        return Request(prompt, full_llm_string, key, id(llm_string), *state)

    def _look_up(self, tenant_cache: TenantCache, request: Request) -> Flow[list[Generation] | None]:
        return tenant_cache.answers.look_up(request)

    def _keep(
        self, tenant_cache: TenantCache, request: Request, answer: Sequence[Generation]
    ) -> Flow[Invocation | None]:
        return tenant_cache.answers.keep(request, answer)

    def _tune_threshold(
        self, pairs: Sequence[tuple[str, str, bool]], precision: float, progress: Progress
    ) -> Flow[Tuned]:
        paraphrases = self._tenants.default.paraphrases
        if paraphrases is None:
            raise ConfigurationError("this cache has no semantic mode to tune: give it semantic=")
        verified = paraphrases.verified_answers
        return tune_flow(verified.index, pairs, precision, verifier=verified.verifier, progress=progress)


def _semantic_index(url: str | None, store: Store | None, mode: SemanticMode) -> SemanticIndex:
    if mode.index is not None:
        return mode.index
    if store is not None:
        raise ConfigurationError("with a store of your own, give the semantic mode an index: open_vectors")
    return cache_vectors(url, mode.embedder)


def _hit_key(hit: str | AIMessage | ChatGeneration) -> str:
    if isinstance(hit, str):
        return hit
    message = hit.message if isinstance(hit, ChatGeneration) else hit
    key = message.response_metadata.get("cache_key") if isinstance(message, BaseMessage) else None
    if not isinstance(key, str):
        raise ConfigurationError("this did not come from a cache: it has no cache_key in response_metadata")
    return key


def _refuse_arguments(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ConfigurationError(f"clear takes no arguments, not {', '.join(sorted(kwargs))}")
