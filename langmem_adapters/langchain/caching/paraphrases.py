"""The part of LangChain's cache that serves answers to what was asked in other words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast

from langchain_core.outputs import Generation

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.policies import Judge, verdict
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.experience.shelf.shelf import Evicted
from langmem_adapters.experience.verified import Match, VerifiedAnswers
from langmem_adapters.experience.verifier.tuning import Tuned, tuning
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.indexes import cache_vectors
from langmem_adapters.langchain.caching.request import request_key
from langmem_adapters.langchain.caching.semantic import MEANINGS, Question, SemanticMode, partition_of
from langmem_adapters.model import Experience
from langmem_adapters.progress import Progress
from langmem_adapters.protocols import Store

__all__ = ["Paraphrases"]

_log = logging.getLogger("langmem_adapters")


class Paraphrases:
    """The semantic mode of :class:`~langmem_adapters.langchain.ExperienceCache` at work, and the judge's verdicts."""

    pool: ExperiencePool
    _semantic: SemanticMode | None
    _verified: VerifiedAnswers | None
    _judge: Judge | None
    _counts: Counts
    _read: Callable[[Experience, str], list[Generation]]
    _degrade: Callable[..., None]

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

    def _like(self, url: str | None, store: Store | None, mode: SemanticMode) -> VerifiedAnswers:
        if mode.index is None and store is not None:
            raise ConfigurationError("with a store of your own, give the semantic mode an index: open_vectors")
        place = experience_namespace(self.pool.scope, self.pool.tag)
        return VerifiedAnswers(
            self.pool.store,
            (*place, MEANINGS),
            cache_vectors(url, mode.embedder) if mode.index is None else mode.index,
            verifier=mode.verifier,
            candidates=mode.candidates,
            counts=self._counts,
            answers=place,
        )

    def _semantic_stats(self) -> dict[str, int]:
        named = ("semantic_hits", "semantic_dry", "semantic_errors", "behind", "rejected")
        guards = sorted(name for name in self._counts if name.startswith("rejected_"))
        return {name: self._counts[name] for name in (*named, *guards)}

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
        good = yield from verdict(self._judge, experience.model_copy(update={"req": kept}), asked)
        if not good:
            self._counts.add("rejected")
            self._counts.add("rejected_judge")
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
            generations = yield from self._legible(experience, match.key)
            if generations is None:
                return None
            if mode.dry_run:
                self._counts.add("semantic_dry")
                _log.info("dry run: %s would have been served, score %.3f", match.key, match.score)
                return None
            served = mode.may_serve(generations)
        finally:
            if not served:
                self.pool.withdraw(experience)
        self._counts.add("semantic_hits", served)
        mode.mark(generations, match)
        return generations if served else None

    def _legible(self, experience: Experience, key: str) -> Flow[list[Generation] | None]:
        """What was answered; None, where it cannot be read, and then it is removed."""
        try:
            return self._read(experience, key)
        except SerializationError as damage:
            _log.warning("an answer is treated as a miss: %s", damage)
            yield from self.pool.heal_flow(key)
            return None

    def _create(
        self, prompt: str, llm_string: str, key: str, answer: Sequence[Generation], made: Experience
    ) -> Flow[Experience]:
        """Put an answer into the pool, and what was asked beside it, where that may be said in other words."""
        mode, verified = self._semantic, self._verified
        question = mode.question(prompt, llm_string) if mode and mode.may_serve(answer) else None
        named = made if question is None else made.model_copy(update={"partition": question.partition})
        evicted: Evicted = []
        kept = yield from self.pool.create_flow(named, key=key, evicted=evicted, has_text=False)
        if verified is not None and self.pool.writes:
            yield from self._keep_question(verified, question, key, evicted)
        return kept

    def _keep_question(
        self, verified: VerifiedAnswers, question: Question | None, key: str, evicted: Evicted
    ) -> Flow[None]:
        """Keep what was asked, and forget what was asked of answers that had to go."""
        gone: dict[str, list[str]] = {}
        for other, data in evicted:
            if (place := partition_of(data)) is not None:
                gone.setdefault(place, []).append(other)
        try:
            if question is not None:
                yield from verified.keep_flow(question.partition, question.text, key)
            for place, keys in gone.items():
                yield from verified.drop_flow(place, *keys)
        except LangmemError as error:
            self._degrade(error, "semantic_errors")

    def _tune(self, pairs: Sequence[tuple[str, str, bool]], precision: float, progress: Progress) -> Flow[Tuned]:
        if self._verified is None:
            raise ConfigurationError("this cache has no semantic mode to tune: give it semantic=")
        index, verifier = self._verified.index, self._verified.verifier
        return (yield from tuning(index, pairs, precision, verifier=verifier, progress=progress))
