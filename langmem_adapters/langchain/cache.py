"""ExperienceCache: answers that were given before, for ``set_llm_cache``."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.caches import BaseCache
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.errors import ConfigurationError, LangmemError
from langmem_adapters.experience import ExperiencePool, bypass, refresh
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.langchain.generations import read_generations, worth_storing, write_generations
from langmem_adapters.langchain.request import request_key
from langmem_adapters.model import Experience
from langmem_adapters.protocols import Store
from langmem_adapters.stores import shared_store

__all__ = ["ExperienceCache"]

_log = logging.getLogger("langmem_adapters")


class ExperienceCache(BaseCache):
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
        should_store: Decides which answers are worth keeping; default :func:`worth_storing`.
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
        should_store: Callable[[Sequence[Generation]], bool] = worth_storing,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if url is not None and store is not None:
            raise ConfigurationError("give ExperienceCache a url or a store, not both")
        if on_error not in {"degrade", "raise"}:
            raise ConfigurationError(f'on_error is "degrade" or "raise", not {on_error!r}')
        self.pool = ExperiencePool(
            store or shared_store(url), tag=tag, tenant=tenant, ttl=ttl, clock=clock, new_id=new_id
        )
        self._should_store = should_store
        self._on_error = on_error
        self._clock = clock
        self._new_id = new_id
        self._counts: Counter[str] = Counter()
        self._causes: set[str] = set()

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """The answer to this request, or None."""
        return run(self._lookup(prompt, llm_string))

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """:meth:`lookup`, without blocking the event loop."""
        return await arun(self._lookup(prompt, llm_string))

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Keep an answer, if it is worth keeping."""
        run(self._update(prompt, llm_string, return_val))

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """:meth:`update`, without blocking the event loop."""
        await arun(self._update(prompt, llm_string, return_val))

    def clear(self, **kwargs: Any) -> None:
        """Forget the entries of this tenant and tag, and nothing else."""
        _refuse(kwargs)
        self.pool.clear()

    async def aclear(self, **kwargs: Any) -> None:
        """:meth:`clear`, without blocking the event loop."""
        _refuse(kwargs)
        await self.pool.aclear()

    def delete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """Forget the entry that served this answer (or has this key); False, if there is none any more."""
        return self.pool.delete(key=_key_of(hit))

    async def adelete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await self.pool.adelete(key=_key_of(hit))

    def invalidate(self, where: Callable[[list[Generation]], bool]) -> int:
        """Forget the entries whose answers make ``where`` true; returns how many."""
        return self.pool.invalidate(lambda experience: where(self._read(experience, "")))

    async def ainvalidate(self, where: Callable[[list[Generation]], bool]) -> int:
        """:meth:`invalidate`, without blocking the event loop."""
        return await self.pool.ainvalidate(lambda experience: where(self._read(experience, "")))

    bypass = staticmethod(bypass)
    refresh = staticmethod(refresh)

    def stats(self) -> dict[str, int]:
        """Hits, misses, stored, unreadable and expired entries; refused answers, errors, and tokens saved."""
        own = {name: self._counts[name] for name in ("refused", "errors", "saved_tokens")}
        return {**self.pool.stats(), **own}

    def __repr__(self) -> str:
        return f"ExperienceCache({self.pool!r})"

    # --- flows

    def _lookup(self, prompt: str, llm_string: str) -> Flow[list[Generation] | None]:
        key = request_key(prompt, llm_string)
        try:
            experience = yield from self.pool.lookup_flow(key)
            if experience is None:
                return None
            generations = self._read(experience, key)
        except LangmemError as error:
            self._degrade(error)
            return None
        self._counts["saved_tokens"] += sum(_tokens(generation) for generation in generations)
        return generations

    def _update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> Flow[None]:
        if not self._should_store(return_val):
            self._counts["refused"] += 1
            return
        try:
            experience = Experience(resp=write_generations(return_val))
            yield from self.pool.create_flow(experience, key=request_key(prompt, llm_string))
        except LangmemError as error:
            self._degrade(error)

    def _read(self, experience: Experience, key: str) -> list[Generation]:
        age = max(0.0, self._clock() - (experience.timestamp or 0.0))
        return read_generations(experience.resp, key=key, age=age, new_id=self._new_id)

    def _degrade(self, error: LangmemError) -> None:
        if self._on_error == "raise":
            raise error
        self._counts["errors"] += 1
        cause = f"{type(error).__name__}: {error}"
        if cause not in self._causes:
            self._causes.add(cause)
            _log.warning("the model call goes on without its cache: %s", cause)


def _tokens(generation: Generation) -> int:
    message = getattr(generation, "message", None)
    usage = getattr(message, "response_metadata", {}).get("cache_usage") or {}
    return int(usage.get("total_tokens") or 0)


def _key_of(hit: str | AIMessage | ChatGeneration) -> str:
    if isinstance(hit, str):
        return hit
    message = hit.message if isinstance(hit, ChatGeneration) else hit
    key = message.response_metadata.get("cache_key")
    if not isinstance(key, str):
        raise ConfigurationError("this message did not come from a cache: it has no cache_key in response_metadata")
    return key


def _refuse(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ConfigurationError(f"clear takes no arguments, not {', '.join(sorted(kwargs))}")
