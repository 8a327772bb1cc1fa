"""The search of a memory: candidates by words and by meaning, ranked by what their conversations tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from langmem_adapters.flow import Flow
from langmem_adapters.language.query_dates import with_dates
from langmem_adapters.model import Hit
from langmem_adapters.protocols import ConversationIndex, Evidence
from langmem_adapters.recall.vectors import VectorRecall
from langmem_adapters.records.filtering import SPARE, FilteredReader
from langmem_adapters.records.following import steadily
from langmem_adapters.records.keyed import Records
from langmem_adapters.signal_values import MaxSim
from langmem_adapters.signals import Ranked, Signal, candidates, ranked

__all__ = ["Search"]

_POOL = 32  # the best by words, and half as many by meaning; with what stands beside, some five times as many
_NOWHERE = 0.5  # the score of a cosine of 0

V = TypeVar("V")


class Search:
    """One search, from an index that is up to date. Blocking, but for :meth:`ahead`; meant for a flow's steps.

    Args:
        records: What is searched, with the index that finds by words.
        semantic: Finds by meaning, if anything does.
        signals: The weights of what tells that a memory fits.
        query: What is looked for.
        now: When it is asked, in Unix seconds: "yesterday" is the day before.
    """

    def __init__(
        self, records: Records, semantic: VectorRecall | None, signals: Mapping[str, Signal], *, query: str, now: float
    ) -> None:
        self._records = records
        self._conversations = records.index if isinstance(records.index, ConversationIndex) else None
        self._vectors = None if semantic is None else semantic.query()
        self._signals = signals
        self._query = query
        self._dated = with_dates(query, now)
        self._said: str | None = None
        self._near: dict[str, float] = {}  # how near what was looked at is in meaning, by id

    def ahead(self) -> Flow[None]:
        """Ask for the vector of the query, of an embedder that can be awaited."""
        if self._vectors is not None:
            yield from self._vectors.ahead(self.said)

    def said(self) -> str:
        """What of the query is embedded: the same for all that is asked of the vectors."""
        if self._said is None:
            index = self._conversations
            self._said = self._query if index is None else index.nameless(self._records.namespace, self._query)
        return self._said

    def best(
        self, k: int, wanted: Callable[[str, bytes], V | None], thread: str, *, explain: bool
    ) -> list[tuple[Ranked, V]]:
        """The ``k`` best of the ``wanted`` records, as of a FilteredReader, best first.

        ``thread`` names the one in which all of the wanted were said, if it is known. ``explain`` as in
        :func:`~langmem_adapters.signals.ranked`. Where too few of the first hits are wanted, the best of the wanted are
        looked for. That is by words and by meaning, and they are weighed together with what would be weighed without a
        filter: the same conversations around them, the same scales.
        """
        records = self._records
        search = partial(self._best, k, wanted, thread, explain=explain)
        return steadily(records.catch_up, records.index, records.namespace, search)

    def _best(
        self, k: int, wanted: Callable[[str, bytes], V | None], thread: str, *, explain: bool
    ) -> list[tuple[Ranked, V]]:
        index, choice = self._conversations, FilteredReader(self._records.get, wanted)
        if index is None:
            return choice.best(self._by_scores, k)
        ask = k + SPARE
        nearest = self._nearest(ask)
        evidence = self._gathered(index, ask, nearest)
        hits = self._ranked(evidence, ask, explain=explain)
        found = choice.first(hits, k)
        if evidence is None or len(found) == k or len(hits) < ask:
            return found
        words = evidence.query
        also = self._inside(index, words, thread, ask, choice) if thread else self._among(index, words, ask, choice)
        evidence = self._gathered(index, ask, [*nearest, *also])
        most = len(evidence.candidates) if evidence else 0
        return choice.first(self._ranked(evidence, most, explain=explain), k)

    def _ranked(self, evidence: Evidence | None, k: int, *, explain: bool) -> list[Ranked]:
        if evidence is None:
            return []
        return ranked(evidence, self._near, self._signals, k, max_sim=self._max_sim(), explain=explain)

    def _max_sim(self) -> MaxSim | None:
        semantic = self._vectors
        if semantic is None or not semantic.piecewise:
            return None
        return lambda before: semantic.max_sim(self.said(), before)

    def _among(self, index: ConversationIndex, words: str, k: int, choice: FilteredReader[Any]) -> list[str]:
        """The best of the wanted by words, and those nearest in meaning."""
        namespace, semantic = self._records.namespace, self._vectors
        found = choice.best(lambda ask: index.search(namespace, words, ask), k)
        if semantic is not None:
            found += choice.best(lambda ask: _near(semantic.search(self.said(), ask)), k)
        return [hit.id for hit, _ in found]

    def _inside(
        self, index: ConversationIndex, words: str, thread: str, k: int, choice: FilteredReader[Any]
    ) -> list[str]:
        """The same, where all of them were said in one thread: nothing else is looked at."""
        there = index.within(self._records.namespace, words, thread)
        found = choice.first([hit for hit in there if hit.score], k)
        if self._vectors is not None:
            scores = self._vectors.score(self.said(), [hit.id for hit in there])
            hits = [Hit(id_, score) for id_, score in sorted(scores.items(), key=lambda one: (-one[1], one[0]))]
            found += choice.first(_near(hits), k)
        return [hit.id for hit, _ in found]

    def candidates(self, k: int) -> dict[str, dict[str, float]]:
        """What a search for ``k`` looks at, by id, with its signals before they are weighed, each from 0 to 1.

        An index that knows of words only has none.
        """
        self._records.follow()
        index = self._conversations
        if index is None:
            return {}
        evidence = self._gathered(index, k, self._nearest(k))
        return candidates(evidence, self._near, max_sim=self._max_sim()) if evidence else {}

    def _nearest(self, k: int) -> list[str]:
        if self._vectors is not None:
            self._near = {hit.id: hit.score for hit in self._vectors.search(self.said(), max(k, _POOL // 2))}
        return list(self._near)

    def _gathered(self, index: ConversationIndex, k: int, also: Sequence[str]) -> Evidence | None:
        """What is known of what may be meant, and of these others ``also``; how near it is in meaning is noted."""
        evidence = index.gather(self._records.namespace, self._dated, max(k, _POOL), also)
        if evidence is not None and self._vectors is not None:
            ids = [turn.id for turn in evidence.turns.values() if turn.id not in self._near]
            self._near |= self._vectors.score(self.said(), ids)
        return evidence

    def _by_scores(self, k: int) -> list[Ranked]:
        """An index that knows of words only: half of a score comes from it, and half from the meaning."""
        query = self._query
        found = {hit.id: hit.score for hit in self._records.index.search(self._records.namespace, query, k)}
        if self._vectors is None:
            return [Ranked(id_, score, {"words": score}) for id_, score in found.items()]
        near = {hit.id: hit.score for hit in self._vectors.search(query, k)}
        near |= self._vectors.score(query, [id_ for id_ in found if id_ not in near])
        both = []
        for id_ in found | near:
            parts = {"words": found.get(id_, 0.0) / 2, "meaning": max(0.0, 2 * near.get(id_, 0.0) - 1) / 2}
            if any(parts.values()):
                both.append(Ranked(id_, sum(parts.values()), parts))
        return sorted(both, key=lambda one: (-one.score, one.id))[:k]


def _near(hits: Sequence[Hit]) -> list[Hit]:
    """Those with a cosine above 0; others are no nearer to the query than any text is."""
    return [hit for hit in hits if hit.score > _NOWHERE]
