"""What was asked of LangChain's cache, beside its answers: found by its meaning, where it is asked in other words."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from langchain_core.outputs import Generation

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.experience.shelf.shelf import Evicted
from langmem_adapters.experience.verified import Match, VerifiedAnswers
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.caching.semantic import MEANINGS, Question, SemanticMode, partition_of
from langmem_adapters.model import Experience
from langmem_adapters.protocols import SemanticIndex

__all__ = ["Paraphrases"]

_log = logging.getLogger("langmem_adapters")


class Paraphrases:
    """The semantic mode of :class:`~langmem_adapters.langchain.ExperienceCache` at work.

    Args:
        mode: What may be said in other words, and what is served.
        pool: Where the answers are.
        index: Finds what was asked.
        counts: Where it is counted what was found.
    """

    def __init__(self, mode: SemanticMode, pool: ExperiencePool, index: SemanticIndex, counts: Counts) -> None:
        place = experience_namespace(pool.scope, pool.tag)
        self._mode = mode
        self._pool = pool
        self._counts = counts
        self.asked: VerifiedAnswers = VerifiedAnswers(
            pool.store,
            (*place, MEANINGS),
            index,
            verifier=mode.verifier,
            candidates=mode.candidates,
            counts=counts,
            answers=place,
        )

    def stats(self) -> dict[str, int]:
        """Hits of either kind, errors, texts whose vectors are behind, and rejected candidates, also by guard."""
        named = ("semantic_hits", "semantic_dry", "semantic_errors", "behind", "rejected")
        guards = sorted(name for name in self._counts if name.startswith("rejected_"))
        return {name: self._counts[name] for name in (*named, *guards)}

    def find(self, prompt: str, llm_string: str) -> Flow[tuple[str, list[Match]]]:
        """Where what was asked before and means the same is, and all of it, the surest first."""
        question = self._mode.question(prompt, llm_string)
        if question is None:
            return "", []
        return question.partition, (yield from self.asked.find_flow(question.partition, question.text))

    def answer(self, partition: str, match: Match) -> Flow[Experience | None]:
        """The answer to it, with what was asked as its request; None, where that has gone."""
        experience = yield from self._pool.read_flow(match.key)
        if experience is None:
            yield from self.asked.drop_flow(partition, match.key)
            return None
        return experience.model_copy(update={"req": match.text})

    def may_serve(self, answer: Sequence[Generation], match: Match) -> bool:
        """Whether an answer may be served for other words, and is; it says then why."""
        if self._mode.dry_run:
            self._counts.add("semantic_dry")
            _log.info("dry run: %s would have been served, score %.3f", match.key, match.score)
            return False
        if not self._mode.may_serve(answer):
            return False
        self._counts.add("semantic_hits")
        self._mode.mark(answer, match)
        return True

    def question(self, prompt: str, llm_string: str, answer: Sequence[Generation]) -> Question | None:
        """What is kept of a request beside its answer; None, where it may not be said in other words."""
        return self._mode.question(prompt, llm_string) if self._mode.may_serve(answer) else None

    def keep(self, question: Question | None, key: str, evicted: Evicted) -> Flow[None]:
        """Keep what was asked, and forget what was asked of answers that had to go."""
        if not self._pool.writes:
            return
        gone: dict[str, list[str]] = {}
        for other, data in evicted:
            if (place := partition_of(data)) is not None:
                gone.setdefault(place, []).append(other)
        if question is not None:
            yield from self.asked.keep_flow(question.partition, question.text, key)
        for place, keys in gone.items():
            yield from self.asked.drop_flow(place, *keys)
