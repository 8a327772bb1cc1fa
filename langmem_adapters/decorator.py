"""``cached``, also ``exp_cache``: the decorator that caches the results of a function."""

from __future__ import annotations

import dataclasses
import inspect
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, ParamSpec, TypeVar, overload

from langmem_adapters.concurrency import pauses
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.cached import CachedFunction
from langmem_adapters.experience.functions.arguments import Arguments
from langmem_adapters.experience.functions.calls import Calls
from langmem_adapters.experience.functions.rules import Rules
from langmem_adapters.experience.functions.values import name_of
from langmem_adapters.experience.functions.wrappers import wrap_function
from langmem_adapters.experience.policies import ContextBuilder, Judge, Scorer, Serializer
from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.pool_flows import QueryType
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.savings import Prices
from langmem_adapters.experience.serializers import DataSerializer, as_serializer
from langmem_adapters.flow import is_coroutine
from langmem_adapters.indexes import cache_index
from langmem_adapters.model import Metric
from langmem_adapters.protocols import Index, Store
from langmem_adapters.stores import cache_store
from langmem_adapters.validation import check_at_most_one, check_seconds, check_sync_functions
from langmem_adapters.warn_once import WarnOnce

P = ParamSpec("P")
R = TypeVar("R")


@overload
def cached(function: Callable[P, R], /) -> CachedFunction[P, R]: ...
@overload
def cached(
    function: None = None,
    /,
    *,
    url: str | None = None,
    store: Store | None = None,
    pool: ExperiencePool | None = None,
    index: Index | None = None,
    tag: str | None = None,
    user: str = "",
    tenant: str = "",
    ttl: float | None = None,
    max_entries: int | None = None,
    max_bytes: int | None = None,
    prices: Prices | None = None,
    key: Callable[..., Any] | Mapping[str, Callable[[Any], Any]] | None = None,
    ignore: Collection[str] = (),
    returns: Any = None,
    should_store: Callable[[Any], bool] | None = None,
    metric: Callable[[Any], Metric] | None = None,
    scorer: Scorer | None = None,
    judge: Judge | None = None,
    context_builder: ContextBuilder | None = None,
    serializer: Serializer | Callable[..., Any] | None = None,
    query_type: QueryType = "exact",
    k: int = 4,
    request: str | None = None,
    keep_requests: bool | None = None,
    wait: float = 60.0,
    on_error: Literal["degrade", "raise"] = "degrade",
    clock: Callable[[], float] = time.time,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = pauses.sleep,
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
) -> Callable[[Callable[P, R]], CachedFunction[P, R]]: ...
def cached(function: Any = None, /, **options: Any) -> Any:  # noqa: D417 - the overload has their names
    """Cache what a function returns, and serve it when the function is called again with equal arguments.

    Decorates functions, coroutine functions, generators, async generators and methods. A cache hit has the value and
    the type that was returned, also if it is None or empty; a result that would not come back equal is not kept.
    Exceptions and interrupted streams are not kept either. When several callers make the same call at the same time,
    in this process or in others on the same store, only one calls the function. ``with bypass():`` switches the cache
    off; ``with refresh():`` calls again and replaces what was kept. The decorated function has an attribute ``cache``,
    a :class:`~langmem_adapters.experience.FunctionCache`, with ``lookup``, ``invalidate``, ``stats`` and ``pool``.

    Args:
        function: The function; left out if any of the following is given.
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``. It is opened
            at the first call.
        store, pool: A store, or a pool, of your own instead of a URL.
        index: Finds similar experiences; default: the lexical index of the URL, where one is needed.
        tag: The name under which results are kept; default: the function's module and name, so each has its own.
        user, tenant, ttl, max_entries, max_bytes, prices: See :class:`~langmem_adapters.ExperiencePool`.
        key: What to compare of an argument, as ``{"user": lambda user: user.id}``; or a function with the same
            parameters that returns all that is to be compared.
        ignore: Names of arguments that are not compared. The ``self`` of a method is not, unless ``key`` names it, but
            its class is; ``cache.lookup`` assumes the class that defines the method.
        returns: The type of a result (for generators: of an item); default: the return annotation. Needed
            for models, dataclasses and enums if there is no annotation.
        should_store: Returns whether a result is worth keeping.
        metric: Returns what a result cost besides time: money, or tokens and the model that made them.
        scorer: Scores each new result, in the background.
        judge: Returns whether an experience may be served; default: any experience of an equal call may.
        context_builder: On a miss, puts similar experiences into the request that the function gets.
        serializer: Decides what the request of a call is, and how a response is kept.
        query_type: "semantic": where no equal call was made before, offer similar experiences to the judge.
        k: How many similar experiences are considered.
        request: The argument that a context builder replaces; default: ``req``, or the only one.
        keep_requests: Whether arguments are kept beside their hash; default: only with a judge or context builder.
        wait: The most seconds to wait for another caller that makes the same call; 0: never wait.
        on_error: If the store fails: "degrade" calls the function and counts the error; "raise" raises it.
        clock: Returns Unix seconds. ``timer`` returns monotonic seconds, ``sleep`` waits, ``new_id`` returns ids.

    >>> @cached(url="memory:")
    ... def capital(country: str) -> str:
    ...     print("asked")
    ...     return {"France": "Paris"}.get(country, "")
    >>> capital("France")
    asked
    'Paris'
    >>> capital(country="France")
    'Paris'
    """
    if function is None:
        return lambda decorated: _decorated(decorated, **options)
    return _decorated(function, **options)


exp_cache = cached
"""MetaGPT's name for :func:`cached`."""

_POOL_OPTIONS = ("user", "tenant", "ttl", "max_entries", "max_bytes", "prices")
_RULE_OPTIONS = {field.name for field in dataclasses.fields(Rules)}


def _decorated(
    function: Callable[..., Any],
    *,
    url: str | None = None,
    store: Store | None = None,
    pool: ExperiencePool | None = None,
    index: Index | None = None,
    tag: str | None = None,
    key: Callable[..., Any] | Mapping[str, Callable[[Any], Any]] | None = None,
    ignore: Collection[str] = (),
    returns: Any = None,
    serializer: Serializer | Callable[..., Any] | None = None,
    keep_requests: bool | None = None,
    clock: Callable[[], float] = time.time,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = pauses.sleep,
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    **options: Any,
) -> Callable[..., Any]:
    pool_options = {name: options.pop(name) for name in _POOL_OPTIONS if name in options}
    if unknown := options.keys() - _RULE_OPTIONS:
        raise ConfigurationError(f"cached has no option {', '.join(sorted(unknown))}")
    rule_options = {name: value for name, value in options.items() if value is not None}
    check_at_most_one("cached", url=url, store=store, pool=pool)
    if not isinstance(pool, ExperiencePool | None):
        raise ConfigurationError(f"a pool is what ExperiencePool(…) gives, not {type(pool).__name__}")
    if pool is not None and (any(pool_options.values()) or tag is not None or index is not None):
        raise ConfigurationError("a pool has its own tag, index, bounds and owner: give them to the pool")

    check_sync_functions(clock=clock, timer=timer, sleep=sleep, new_id=new_id)
    check_seconds("ttl", pool_options.get("ttl"))
    custom_serializer = None if serializer is None else as_serializer(serializer)
    rules = Rules(**rule_options)
    is_trusted = tag is not None or pool is not None
    arguments = Arguments(function, key=key, ignore=ignore, trusted=is_trusted, serializer=custom_serializer)
    rules.check(arguments.name, is_async=is_coroutine(function) or inspect.isasyncgenfunction(function))
    stream = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
    responses = Responses(function, returns=returns, serializer=custom_serializer or DataSerializer(), stream=stream)

    def make_pool() -> ExperiencePool:
        if pool is not None:
            return pool
        pool_index = index
        if index is None and (rules.context_builder is not None or rules.query_type == "semantic"):
            pool_index = cache_index(url, store)
        return ExperiencePool(
            cache_store(url, store),
            tag=name_of(function) if tag is None else tag,
            index=pool_index,
            clock=clock,
            new_id=new_id,
            **pool_options,
        )

    calls = Calls(
        make_pool,
        rules=rules,
        arguments=arguments,
        responses=responses,
        keep_requests=keep_requests,
        scoring=BackgroundScoring(rules.scorer, f"a result of {arguments.name}", WarnOnce()),
        clock=clock,
        timer=timer,
        sleep=sleep,
        new_id=new_id,
    )
    return wrap_function(function, calls)
