"""Requests that LangChain's cache keeps beside its answers, and finds by meaning when the words are others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from langchain_core.outputs import Generation

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.experience.shelf.shelf import Evicted
from langmem_adapters.experience.verified import Match, VerifiedAnswers
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.caching.semantic import SEMANTIC_PART, Question, SemanticMode, partition_of
from langmem_adapters.model import Experience
from langmem_adapters.protocols import SemanticIndex

_log = logging.getLogger("langmem_adapters")


class Paraphrases:
    """The semantic mode of :class:`~langmem_adapters.langchain.ExperienceCache` at work, beside a pool of answers."""

    def __init__(self, mode: SemanticMode, pool: ExperiencePool, index: SemanticIndex, counts: Counts) -> None:
        namespace = experience_namespace(pool.scope, pool.tag)
        self.mode: SemanticMode = mode
        self._pool = pool
        self._counts = counts
        self.verified_answers: VerifiedAnswers = VerifiedAnswers(
            pool.store,
            (*namespace, SEMANTIC_PART),
            index,
            verifier=mode.verifier,
            candidates=mode.candidates,
            counts=counts,
            answers=namespace,
        )

    def stats(self) -> dict[str, int]:
        """Hits, hits of a dry run, errors, texts whose vectors are behind, and rejected candidates, also by guard."""
        names = ("semantic_hits", "semantic_dry", "semantic_errors", "behind", "rejected")
        guards = sorted(name for name in self._counts if name.startswith("rejected_"))
        return {name: self._counts[name] for name in (*names, *guards)}

    def find(self, prompt: str, llm_string: str) -> Flow[tuple[str, list[Match]]]:
        """The partition of a request, and the earlier requests in it that mean the same, the surest first."""
        question = self.mode.question(prompt, llm_string)
        if question is None:
            return "", []
        return question.partition, (yield from self.verified_answers.find_flow(question.partition, question.text))

    def answer(self, partition: str, match: Match) -> Flow[Experience | None]:
        """The answer to a match, with the matched text as its request; None if the answer is gone."""
        experience = yield from self._pool.read_flow(match.key)
        if experience is None:
            yield from self.verified_answers.drop_flow(partition, match.key)
            return None
        return experience.model_copy(update={"req": match.text})

    def note_hit(self, answer: Sequence[Generation], match: Match) -> bool:
        """Count an answer that may be served, and record in it why it is served; False, if it is not, in a dry run."""
        if self.mode.dry_run:
            self._counts.add("semantic_dry")
            _log.info("dry run: %s would have been served, score %.3f", match.key, match.score)
            return False
        self._counts.add("semantic_hits")
        self.mode.mark(answer, match)
        return True

    def question(self, prompt: str, llm_string: str, answer: Sequence[Generation]) -> Question | None:
        """What to keep of a request beside its answer; None if other words must not get this answer."""
        return self.mode.question(prompt, llm_string) if self.mode.may_serve(answer) else None

    def keep(self, question: Question | None, key: str, evicted: Evicted) -> Flow[None]:
        """Keep a question, and drop the questions of evicted answers."""
        if not self._pool.writes:
            return
        evicted_by_partition: dict[str, list[str]] = {}
        for evicted_key, data in evicted:
            if (partition := partition_of(data)) is not None:
                evicted_by_partition.setdefault(partition, []).append(evicted_key)
        if question is not None:
            yield from self.verified_answers.keep_flow(question.partition, question.text, key)
        for partition, keys in evicted_by_partition.items():
            yield from self.verified_answers.drop_flow(partition, *keys)
