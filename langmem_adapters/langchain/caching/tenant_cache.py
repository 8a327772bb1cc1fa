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
from langmem_adapters.langchain.caching.semantic import Paraphrases, partition_of, question_namespace
from langmem_adapters.model import Experience
from langmem_adapters.validation import check_sync_function, plain_answer


class TenantCache(NamedTuple):
    """The pool, what finds paraphrases in it, and the answers around the calls of a model."""

    pool: ExperiencePool
    paraphrases: Paraphrases | None
    answers: Answers

    def clear(self) -> Flow[None]:
        """Delete everything, for the exact and the semantic mode."""
        yield from step(self.pool.clear)
        if self.paraphrases is not None:
            yield from self.paraphrases.verified_answers.clear_flow()
            yield from step(self.pool.clear)  # what was stored meanwhile, as its question may be gone

    def delete(self, key: str) -> Flow[bool]:
        """Delete one answer; False if there is none."""
        store, namespace = self.pool.store, experience_namespace(self.pool.scope, self.pool.tag)
        stored = yield from step(store.get, namespace, [key])
        deleted = yield from step(self.pool.delete, key=key)
        if self.paraphrases is None:
            return deleted
        partition = partition_of(stored[key]) if key in stored else None
        questions = self.paraphrases.verified_answers
        if partition is not None:
            yield from questions.drop_flow(partition, key)
        else:  # the place of its question is unknown
            yield from questions.sweep_flow(lambda other: other == key and not store.get(namespace, [key]))
        return deleted

    def invalidate(self, where: Callable[[list[Generation]], bool] | None, tag: str | None) -> Flow[int]:
        """Delete the entries that ``where`` selects, or everything that is kept under a tag."""
        if where is None and tag is None:
            raise ConfigurationError("invalidate needs where=, tag= or both; clear() removes all of this tag")
        check_sync_function("where", where)
        pool = self.pool.at(tag)
        if where is None:
            return (yield from self._clear_tag(pool))
        removed = yield from step(pool.invalidate, lambda experience: self._is_selected(experience, where))
        if self.paraphrases is not None:
            namespace = experience_namespace(pool.scope, pool.tag)
            questions = self.paraphrases.verified_answers.at(question_namespace(pool))
            yield from questions.sweep_flow(lambda key: not pool.store.get(namespace, [key]))
        return removed

    def _clear_tag(self, pool: ExperiencePool) -> Flow[int]:
        """Delete everything that is kept under the tag of a pool, by any cache; returns how many answers."""
        removed = yield from step(pool.invalidate, lambda _: True)
        namespace = question_namespace(pool)
        if self.paraphrases is not None:
            yield from self.paraphrases.verified_answers.at(namespace).clear_flow()
        yield from step(self._clear_questions, namespace)
        yield from step(pool.clear)  # unreadable entries, too, and what was stored meanwhile
        return removed

    def _is_selected(self, experience: Experience, where: Callable[[list[Generation]], bool]) -> bool:
        """Whether to delete an entry; an unreadable one always is."""
        try:
            generations = self.answers.read(experience)
        except SerializationError:
            return True
        return plain_answer("where", where(generations))

    def _clear_questions(self, prefix: Namespace) -> None:
        """Clear stored questions, even without a semantic mode; another cache's index follows at its next search."""
        for namespace in list(self.pool.store.namespaces(prefix)):
            self.pool.store.clear(namespace)
