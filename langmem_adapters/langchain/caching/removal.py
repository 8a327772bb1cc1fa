"""What makes LangChain's cache forget: all of it, one answer, those that a function points out, a whole tag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain.caching.answers import Answers
from langmem_adapters.langchain.caching.paraphrases import Paraphrases
from langmem_adapters.langchain.caching.semantic import MEANINGS, partition_of
from langmem_adapters.model import Experience
from langmem_adapters.validation import check_plain

__all__ = ["Removal"]


class Removal:
    """The part of :class:`~langmem_adapters.langchain.ExperienceCache` that removes answers, by either mode."""

    pool: ExperiencePool
    _alike: Paraphrases | None
    _answers: Answers

    def clear(self, **kwargs: Any) -> None:
        """Forget the entries of this tenant and tag, and nothing else."""
        _refuse(kwargs)
        run(self._clear())

    async def aclear(self, **kwargs: Any) -> None:
        """:meth:`clear`, without blocking the event loop."""
        _refuse(kwargs)
        await arun(self._clear())

    def delete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """Forget the entry that served this answer (or has this key); False, if there is none any more."""
        return run(self._delete(_key_of(hit)))

    async def adelete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._delete(_key_of(hit)))

    def invalidate(self, where: Callable[[list[Generation]], bool] | None = None, *, tag: str | None = None) -> int:
        """Forget the entries whose answers make ``where`` true; returns how many.

        With ``tag``, those of this tenant under that tag, in place of the cache's own; without ``where``, all of them,
        also what the semantic mode of whichever cache has kept there.
        """
        return run(self._invalidate(where, tag))

    async def ainvalidate(
        self, where: Callable[[list[Generation]], bool] | None = None, *, tag: str | None = None
    ) -> int:
        """:meth:`invalidate`, without blocking the event loop."""
        return await arun(self._invalidate(where, tag))

    def _clear(self) -> Flow[None]:
        yield from step(self.pool.clear)
        if self._alike is not None:
            yield from self._alike.asked.clear_flow()
            yield from step(self.pool.clear)  # what was answered meanwhile, as its question may be gone

    def _delete(self, key: str) -> Flow[bool]:
        store, place = self.pool.store, experience_namespace(self.pool.scope, self.pool.tag)
        kept = yield from step(store.get, place, [key])
        there = yield from step(self.pool.delete, key=key)
        partition = partition_of(kept[key]) if key in kept else None
        if self._alike is not None and partition is not None:
            yield from self._alike.asked.drop_flow(partition, key)
        elif self._alike is not None:  # nobody knows where its question is
            yield from self._alike.asked.sweep_flow(lambda named: named == key and not store.get(place, [key]))
        return there

    def _invalidate(self, where: Callable[[list[Generation]], bool] | None, tag: str | None) -> Flow[int]:
        if where is None and tag is None:
            raise ConfigurationError("invalidate needs where=, tag= or both; clear() forgets all of this tag")
        check_plain("where", where)
        if not (tag is None or isinstance(tag, str)):
            raise ConfigurationError(f"a tag is a text, not {tag!r:.50}")
        pool = self.pool.at(tag)
        place = experience_namespace(pool.scope, pool.tag)
        verified = None if self._alike is None else self._alike.asked.at((*place, MEANINGS))
        if where is None:
            gone = yield from step(pool.invalidate, lambda _: True)
            if verified is not None:
                yield from verified.clear_flow()
            yield from step(self._forget_meanings, (*place, MEANINGS))
            yield from step(pool.clear)  # what nobody can read, too, and what was answered meanwhile
            return gone
        gone = yield from step(pool.invalidate, lambda experience: self._is_wanted(experience, where))
        if verified is not None:
            yield from verified.sweep_flow(lambda key: not pool.store.get(place, [key]))
        return gone

    def _is_wanted(self, experience: Experience, where: Callable[[list[Generation]], bool]) -> bool:
        """Whether an entry is to be forgotten, as is one that nobody can read."""
        try:
            generations = self._answers.read(experience)
        except SerializationError:
            return True
        return where(generations)

    def _forget_meanings(self, place: Namespace) -> None:
        """Whether this cache has a semantic mode or not; an index of another one's follows when it is next searched."""
        for namespace in list(self.pool.store.namespaces(place)):
            self.pool.store.clear(namespace)


def _key_of(hit: str | AIMessage | ChatGeneration) -> str:
    if isinstance(hit, str):
        return hit
    message = hit.message if isinstance(hit, ChatGeneration) else hit
    key = message.response_metadata.get("cache_key") if isinstance(message, BaseMessage) else None
    if not isinstance(key, str):
        raise ConfigurationError("this did not come from a cache: it has no cache_key in response_metadata")
    return key


def _refuse(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ConfigurationError(f"clear takes no arguments, not {', '.join(sorted(kwargs))}")
