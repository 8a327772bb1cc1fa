"""The search of a memory: candidates by words and by meaning, ranked by what their conversations tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from langmem_adapters.protocols import ConversationIndex, Evidence, Index
from langmem_adapters.records import Records
from langmem_adapters.semantic import Semantic
from langmem_adapters.signals import Ranked, Signal, candidates, ranked

__all__ = ["Recall"]

_POOL = 32  # the best by words, and half as many by meaning; with what stands beside, some five times as many


class Recall:
    """Blocking; meant for a flow's steps.

    Args:
        records: What is searched.
        index: Follows the records, and finds by words.
        semantic: Finds by meaning, if anything does.
        signals: The weights of what tells that a memory fits.
    """

    def __init__(
        self, records: Records, index: Index, semantic: Semantic | None, signals: Mapping[str, Signal]
    ) -> None:
        self._records = records
        self._index = index
        self._semantic = semantic
        self._signals = signals

    def best(self, query: str, k: int, wanted: Callable[[bytes], bool]) -> list[tuple[Ranked, bytes]]:
        """The ``k`` best of the wanted records with their data, best first, from an index that is up to date."""
        self._records.follow()
        return self._records.best(lambda ask: self._ranked(query, ask), k, wanted)

    def _ranked(self, query: str, k: int) -> list[Ranked]:
        if isinstance(self._index, ConversationIndex):
            return self._by_signals(self._index, query, k)
        return self._by_scores(query, k)

    def candidates(self, query: str, k: int) -> dict[str, dict[str, float]]:
        """What a search for ``k`` looks at, by id, with its signals before they are weighed, each from 0 to 1.

        An index that knows of words only has none.
        """
        self._records.follow()
        if not isinstance(self._index, ConversationIndex):
            return {}
        evidence, near = self._gathered(self._index, query, k)
        return candidates(evidence, near) if evidence else {}

    def _by_signals(self, index: ConversationIndex, query: str, k: int) -> list[Ranked]:
        evidence, near = self._gathered(index, query, k)
        return ranked(evidence, near, self._signals, k) if evidence else []

    def _gathered(self, index: ConversationIndex, query: str, k: int) -> tuple[Evidence | None, dict[str, float]]:
        """What is known of what may be meant, and how near it is in meaning."""
        pool = max(k, _POOL)
        namespace = self._records.namespace
        if self._semantic is None:
            return index.gather(namespace, query, pool), {}
        said = index.nameless(namespace, query)
        near = {hit.id: hit.score for hit in self._semantic.search(said, max(k, _POOL // 2))}
        evidence = index.gather(namespace, query, pool, list(near))
        if evidence is None:
            return None, {}
        ids = [turn.id for turn in evidence.turns.values() if turn.id not in near]
        return evidence, near | self._semantic.score(said, ids)

    def _by_scores(self, query: str, k: int) -> list[Ranked]:
        """An index that knows of words only: half of a score comes from it, and half from the meaning."""
        found = {hit.id: hit.score for hit in self._index.search(self._records.namespace, query, k)}
        if self._semantic is None:
            return [Ranked(id_, score, {"words": score}) for id_, score in found.items()]
        near = {hit.id: hit.score for hit in self._semantic.search(query, k)}
        near |= self._semantic.score(query, [id_ for id_ in found if id_ not in near])
        both = []
        for id_ in found | near:
            parts = {"words": found.get(id_, 0.0) / 2, "meaning": max(0.0, 2 * near.get(id_, 0.0) - 1) / 2}
            if any(parts.values()):
                both.append(Ranked(id_, sum(parts.values()), parts))
        return sorted(both, key=lambda one: (-one.score, one.id))[:k]
