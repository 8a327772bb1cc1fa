"""ExperienceMiddleware: a response cache for an agent's model, with similar requests as examples."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import Generation
from langchain_core.runnables.configurable import DynamicRunnable

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import MissingDependency
from langmem_adapters.experience import ExperiencePool, Judge, Prices, Scorer
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.savings import Saved
from langmem_adapters.experience.single_flight.asking import CachedModel
from langmem_adapters.experience.single_flight.request_keys import collect_request_keys
from langmem_adapters.experience.single_flight.tenants import Tenants
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.indexes import cache_index
from langmem_adapters.langchain.caching.answers import Answers
from langmem_adapters.langchain.caching.generations import worth_storing
from langmem_adapters.langchain.caching.rebinding import replace_models
from langmem_adapters.langchain.caching.tools import DeterministicTools
from langmem_adapters.langchain.chat_model import CachedChatModel
from langmem_adapters.lru import LRU
from langmem_adapters.model import Scope
from langmem_adapters.protocols import Index, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import cache_store
from langmem_adapters.validation import check_count
from langmem_adapters.warn_once import WarnOnce

try:
    from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
    from langchain.agents.structured_output import StructuredOutputError
    from langgraph.runtime import Runtime

    from langmem_adapters.langchain.threads.scope import Lookup, ScopeResolver
except ImportError as error:
    raise MissingDependency("langchain", "langgraph") from error

_MAX_SCOPES = 256  # the most recent ones, whose calls in flight are tracked


class ExperienceMiddleware(CachedModel, AgentMiddleware[Any, Any, Any], Shared):
    """A cache for ``create_agent`` (implements ``langchain.agents.middleware.AgentMiddleware``).

    It does for an agent what :class:`CachedChatModel` does for a model. The model may be any, also one that other
    middleware chooses; streams, tools and structured output are included. The run's context says whose answers may be
    served, so one instance serves all users and none sees another's. Each hit has a message id and tool call ids of
    its own, so a thread stays whole; a tool call that is served again runs its tool again. An answer that does not fit
    the ``response_format`` of an agent that then fails is forgotten, so that a retry helps. Put it last, so that it
    sees the final request. Given a :class:`CachedChatModel`, it asks the model inside: that model's own cache, which
    knows nothing of users, is neither read nor written.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        user, tenant: Whose answers: an id, or a function that takes the runtime and returns one. Default: the context's
            ``user_id``; no tenant. ``user=""`` shares answers among the users of a tenant.
        strict: Whether a run whose user or tenant was looked for and not found bypasses the cache. If False, all such
            runs share their answers. Default: only if a function of yours looked for it, and not for the ``user_id``.
        examples: How many similar requests, with their answers, the model is shown on a miss, in the system message
            and marked as data; 0: none. Above 0, the users' questions are stored; otherwise only hashes are.
            Tool calls, and answers that were made with tools, are no examples.
        deterministic_tools: Names of tools with constant results: answers made only with these may be examples.
        index: What finds similar requests; default: the one of the URL, or for a store of your own one in memory.
        tag, ttl, max_entries, max_bytes, prices: See :class:`~langmem_adapters.ExperiencePool`.
        should_store: Decides which answers are worth keeping.
        scorer: Scores each new answer, in the background, after it was returned. It is shown the user's last question,
            and the answer's text with the tools that it calls. A coroutine function scores answers of async runs.
            While it runs, all caches are bypassed.
        judge: Says whether a stored answer may be served, such as :class:`~langmem_adapters.experience.AtLeast`.
        wait: Seconds to wait at most for another run with the same request; 0: each run calls the model.
        on_error: What an outage of the store does to a run: "degrade" goes on without the cache, is logged once for
            each cause and counted in :meth:`stats`; "raise" raises.

    >>> from langchain.agents import create_agent
    >>> from langchain_core.language_models import FakeListChatModel
    >>> from langmem_adapters.langchain import ExperienceMiddleware
    >>> model = FakeListChatModel(responses=["In the shed.", "No idea."])
    >>> agent = create_agent(model, middleware=[ExperienceMiddleware("memory:")])
    >>> question = {"messages": [("user", "Where is my bike?")]}
    >>> for user in ("ada", "ada", "bob"):
    ...     print(agent.invoke(question, context={"user_id": user})["messages"][-1].content)
    In the shed.
    In the shed.
    No idea.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        user: Lookup | None = None,
        tenant: Lookup = "",
        strict: bool | None = None,
        examples: int = 0,
        deterministic_tools: Collection[str] = (),
        index: Index | None = None,
        tag: str = "langchain",
        ttl: float | None = None,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        prices: Prices | None = None,
        should_store: Callable[[Sequence[Generation]], bool] = worth_storing,
        scorer: Scorer | None = None,
        judge: Judge | None = None,
        wait: float = 60.0,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        super().__init__()
        check_count("examples", examples, minimum=0)
        self._store = cache_store(url, store)
        if examples and index is None:
            index = cache_index(url, store)
        self._scope = ScopeResolver(user, "-", tenant, needs_user=False, needs_tenant=tenant is None)
        clock_and_ids: dict[str, Any] = {"clock": clock, "new_id": new_id}
        self._strict = strict
        self._pool_settings: dict[str, Any] = {
            "tag": tag,
            "index": index if examples else None,
            "ttl": ttl,
            "max_entries": max_entries,
            "max_bytes": max_bytes,
            "prices": prices,
            **clock_and_ids,
        }
        self._answer_rules: dict[str, Any] = {
            "should_store": should_store,
            "scorer": scorer,
            "judge": judge,
            "examples": examples,
            "tools": DeterministicTools(deterministic_tools),
            "wait": wait,
            "on_error": on_error,
            **clock_and_ids,
        }
        self._counts = Counts()
        self._scoring = BackgroundScoring(scorer, "an answer", WarnOnce())
        self._pool = self.pool()  # adds up the counts of all scopes
        self._lock = ForkSafeLock()
        self._answers_by_scope: LRU[tuple[Scope, str | None], Answers] = LRU(_MAX_SCOPES)
        self._make_answers(Scope(), None)  # so that a wrong setting raises here

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    # --- hooks

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Give the run's model its cache."""
        with collect_request_keys() as keys:
            try:
                return handler(self._with_cache(request))
            except StructuredOutputError:
                run(self._forget(request.runtime, keys))
                raise

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """:meth:`wrap_model_call`, without blocking the event loop."""
        with collect_request_keys() as keys:
            try:
                return await handler(self._with_cache(request))
            except StructuredOutputError:
                await arun(self._forget(request.runtime, keys))
                raise

    # --- outside of runs

    def pool(self, *, user: str = "", tenant: str = "") -> ExperiencePool:
        """The answers of one user of a tenant: to clear, export, or delete by the ``cache_key`` of a hit."""
        return ExperiencePool(self._store, user=user, tenant=tenant, **self._pool_settings)

    def saved(self) -> Saved:
        """What the hits of all users have saved: seconds, tokens, and money by the ``prices``."""
        return self._pool.saved()

    # --- whose answers

    @property
    def _answers(self) -> Answers:
        """Answers whose counts and scores are those of all scopes."""
        return self._make_answers(Scope(), None)

    def _with_cache(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        scope = self._run_scope(request.runtime)
        cached_models = 0

        def replace(model: BaseChatModel) -> BaseChatModel:
            nonlocal cached_models
            if isinstance(model, CachedChatModel):  # its cache knows nothing of users, so it is not asked
                model = model.wrapped
            if scope is None:
                return model
            cached_models += 1
            answers = self._answers_of(scope, model.output_version)
            return CachedChatModel(model, Tenants("", lambda _: answers, counts=self._counts))

        model = replace_models(_configured_model(request.model), replace)
        self._counts.add("bypassed", not cached_models)
        return request.override(model=model)

    def _forget(self, runtime: Runtime[Any], keys: Collection[str]) -> Flow[None]:
        """Delete answers that do not fit their schema: they would be served for ever, also to a retry."""
        scope = self._run_scope(runtime)
        if scope is not None:
            yield from self._answers_of(scope, None).forget(keys)

    def _run_scope(self, runtime: Runtime[Any]) -> Scope | None:
        """The scope whose answers the run may be served; None if it must bypass the cache."""
        scope = self._scope(runtime)
        if self._strict is False:
            return scope
        lookups = (self._scope.user, scope.user), (self._scope.tenant, scope.tenant)
        in_vain = [lookup for lookup, found in lookups if not (found or isinstance(lookup, str))]
        return None if any(callable(lookup) or self._strict for lookup in in_vain) else scope

    def _answers_of(self, scope: Scope, output_version: str | None) -> Answers:
        with no_fork, self._lock.held():
            make = partial(self._make_answers, scope, output_version)
            return self._answers_by_scope.get_or_make((scope, output_version), make)

    def _make_answers(self, scope: Scope, output_version: str | None) -> Answers:
        pool = self._pool._of(user=scope.user, tenant=scope.tenant)  # noqa: SLF001 - one of its own
        return Answers(
            pool, output_version=output_version, counts=self._counts, scoring=self._scoring, **self._answer_rules
        )


def _configured_model(model: Any) -> Any:
    """The model that the run's configuration selects, if it has configurable fields or alternatives."""
    if isinstance(model, DynamicRunnable):
        configured, _ = model.prepare()
        return configured.with_config(model.config) if model.config else configured
    select_model = None if isinstance(model, BaseChatModel) else getattr(type(model), "_model", None)
    return select_model(model) if callable(select_model) else model
