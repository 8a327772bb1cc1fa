"""What LangChain's cache keeps for one tenant, and how it is deleted: all of it, one answer, some, a whole tag."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from langchain_core.outputs import Generation

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain.caching.answers import Answers
from langmem_adapters.langchain.caching.paraphrases import Paraphrases
from langmem_adapters.langchain.caching.semantic import MEANINGS, partition_of
from langmem_adapters.model import Experience
from langmem_adapters.validation import check_plain

__all__ = ["Kept"]


class Kept(NamedTuple):
    """The pool, what finds paraphrases in it, and the answers around the calls of a model."""

    pool: ExperiencePool
    alike: Paraphrases | None
    answers: Answers

    def clear(self) -> Flow[None]:
        """Delete everything, for the exact and the semantic mode."""
        yield from step(self.pool.clear)
        if self.alike is not None:
            yield from self.alike.asked.clear_flow()
            yield from step(self.pool.clear)  # what was stored meanwhile, as its question may be gone

    def delete(self, key: str) -> Flow[bool]:
        """Delete one answer; False if there is none."""
        store, place = self.pool.store, experience_namespace(self.pool.scope, self.pool.tag)
        kept = yield from step(store.get, place, [key])
        there = yield from step(self.pool.delete, key=key)
        partition = partition_of(kept[key]) if key in kept else None
        if self.alike is not None and partition is not None:
            yield from self.alike.asked.drop_flow(partition, key)
        elif self.alike is not None:  # the place of its question is unknown
            yield from self.alike.asked.sweep_flow(lambda named: named == key and not store.get(place, [key]))
        return there

    def invalidate(self, where: Callable[[list[Generation]], bool] | None, tag: str | None) -> Flow[int]:
        """Delete the entries that ``where`` selects, or everything that is kept under a tag."""
        if where is None and tag is None:
            raise ConfigurationError("invalidate needs where=, tag= or both; clear() removes all of this tag")
        check_plain("where", where)
        if not (tag is None or isinstance(tag, str)):
            raise ConfigurationError(f"a tag is a text, not {tag!r:.50}")
        pool = self.pool.at(tag)
        place = experience_namespace(pool.scope, pool.tag)
        verified = None if self.alike is None else self.alike.asked.at((*place, MEANINGS))
        if where is None:
            gone = yield from step(pool.invalidate, lambda _: True)
            if verified is not None:
                yield from verified.clear_flow()
            yield from step(self._forget_meanings, (*place, MEANINGS))
            yield from step(pool.clear)  # unreadable entries, too, and what was stored meanwhile
            return gone
        gone = yield from step(pool.invalidate, lambda experience: self._is_wanted(experience, where))
        if verified is not None:
            yield from verified.sweep_flow(lambda key: not pool.store.get(place, [key]))
        return gone

    def _is_wanted(self, experience: Experience, where: Callable[[list[Generation]], bool]) -> bool:
        """Whether to delete an entry; an unreadable one always is."""
        try:
            generations = self.answers.read(experience)
        except SerializationError:
            return True
        return where(generations)

    def _forget_meanings(self, place: Namespace) -> None:
        """Clear stored questions, even without a semantic mode; another cache's index follows at its next search."""
        for namespace in list(self.pool.store.namespaces(place)):
            self.pool.store.clear(namespace)
