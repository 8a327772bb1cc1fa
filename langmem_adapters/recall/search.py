"""The search of a long-term memory: candidates by words and by meaning, ranked by signals of their conversations."""

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

_POOL = 32  # the best by words, and half as many by meaning; with their neighbours, about five times as many
_NOWHERE = 0.5  # the score of a cosine of 0

V = TypeVar("V")


class Search:
    """One search, on an index that is up to date. Blocking, except :meth:`ahead`; meant for a flow's steps.

    Args:
        records: What is searched, with the lexical index.
        semantic: Finds by meaning, if there are vectors.
        signals: The weights of the signals that a memory fits.
        query: What is looked for.
        now: When the query is made, in Unix seconds: "yesterday" is the day before.
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
        self._near: dict[str, float] = {}  # by id: how near in meaning the candidates are

    def ahead(self) -> Flow[None]:
        """Ask the embedder for the query's vector, if that can be awaited."""
        if self._vectors is not None:
            yield from self._vectors.ahead(self.said)

    def said(self) -> str:
        """The text of the query that is embedded, for all that the vectors are asked."""
        if self._said is None:
            index = self._conversations
            self._said = self._query if index is None else index.nameless(self._records.namespace, self._query)
        return self._said

    def best(
        self, k: int, wanted: Callable[[str, bytes], V | None], thread: str, *, explain: bool
    ) -> list[tuple[Ranked, V]]:
        """The ``k`` best ``wanted`` records, filtered by a FilteredReader, best first.

        ``thread`` names the one in which all of the wanted were said, if it is known. ``explain`` as in
        :func:`~langmem_adapters.signals.ranked`. If too few of the first hits are wanted, the best of the wanted are
        looked for, by words and by meaning. They are weighed together with the candidates that an unfiltered search
        weighs, so their neighbours and scales are the same.
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
        """The ids of the wanted records that are best by words, and of those nearest in meaning."""
        namespace, semantic = self._records.namespace, self._vectors
        found = choice.best(lambda ask: index.search(namespace, words, ask), k)
        if semantic is not None:
            found += choice.best(lambda ask: _near(semantic.search(self.said(), ask)), k)
        return [hit.id for hit, _ in found]

    def _inside(
        self, index: ConversationIndex, words: str, thread: str, k: int, choice: FilteredReader[Any]
    ) -> list[str]:
        """The same, if all of them were said in one thread: no other is read."""
        there = index.within(self._records.namespace, words, thread)
        found = choice.first([hit for hit in there if hit.score], k)
        if self._vectors is not None:
            scores = self._vectors.score(self.said(), [hit.id for hit in there])
            hits = [Hit(id_, score) for id_, score in sorted(scores.items(), key=lambda one: (-one[1], one[0]))]
            found += choice.first(_near(hits), k)
        return [hit.id for hit, _ in found]

    def candidates(self, k: int) -> dict[str, dict[str, float]]:
        """The candidates of a search for ``k``, by id, with their signals before weighting, each from 0 to 1.

        Empty with an index that knows only words.
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
        """The evidence of the candidates, and of those ``also`` named; notes how near each is in meaning."""
        evidence = index.gather(self._records.namespace, self._dated, max(k, _POOL), also)
        if evidence is not None and self._vectors is not None:
            ids = [turn.id for turn in evidence.turns.values() if turn.id not in self._near]
            self._near |= self._vectors.score(self.said(), ids)
        return evidence

    def _by_scores(self, k: int) -> list[Ranked]:
        """Rank with an index that knows only words: half of a score comes from it, and half from the meaning."""
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
    """The hits with a cosine above 0; others are no nearer to the query than any text is."""
    return [hit for hit in hits if hit.score > _NOWHERE]
