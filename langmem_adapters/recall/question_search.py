"""The search for one text: candidates by words and by meaning, ranked by signals of their conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from langmem_adapters.flow import Flow, step
from langmem_adapters.language.query_dates import with_dates
from langmem_adapters.language.questions import with_question_in_front
from langmem_adapters.model import Hit
from langmem_adapters.protocols import ConversationIndex, Evidence
from langmem_adapters.recall.vectors import VectorQuery
from langmem_adapters.records.filtering import EXTRA_HITS, FilteredReader
from langmem_adapters.records.keyed import Records
from langmem_adapters.signal_values import MaxSim
from langmem_adapters.signals import Ranked, Signal, candidates, ranked

_POOL_SIZE = 32  # the best by words, and half as many by meaning; with their neighbours, about five times as many
_ZERO_COSINE_SCORE = 0.5  # the score of a cosine of 0

V = TypeVar("V")


class QuestionSearch:
    """The search of one text, on an index that is up to date. Blocking.

    Args:
        records: What is searched, with the lexical index.
        vectors: Find by meaning, if there are any.
        signals: The weights of the signals that a memory fits.
        query: What is looked for.
        now: When the query is made, in Unix seconds: "yesterday" is the day before.
    """

    def __init__(
        self, records: Records, vectors: VectorQuery | None, signals: Mapping[str, Signal], *, query: str, now: float
    ) -> None:
        self._records = records
        self._conversations = records.index if isinstance(records.index, ConversationIndex) else None
        self._vectors = vectors
        self._signals = signals
        self._query = query
        self._dated_query = with_dates(query, now)
        self._text_to_embed: str | None = None  # no cached_property: before Python 3.12 all would wait for one lock
        self._vector_scores: dict[str, float] = {}  # by id: how near in meaning the candidates are

    def text_to_embed(self) -> str:
        """The text of the query that is embedded, for all that the vectors are asked."""
        if self._text_to_embed is None:
            index = self._conversations
            query = self._query
            nameless = query if index is None else index.nameless(self._records.namespace, query)
            self._text_to_embed = with_question_in_front(nameless)
        return self._text_to_embed

    def forget_text_to_embed(self) -> None:
        """Make the text anew when it is next asked for: the index may know more speakers."""
        self._text_to_embed = None

    def best(self, k: int, reader: FilteredReader[V], thread: str, *, explain: bool) -> Flow[list[tuple[Ranked, V]]]:
        """The ``k`` best records that ``reader`` accepts, best first; see :meth:`Search.best`."""
        index = self._conversations
        if index is None:
            return (yield from step(reader.best, self._rank_by_scores, k))
        limit = k + EXTRA_HITS
        nearest_ids = self._nearest_ids(limit)
        evidence = self._gather_evidence(index, limit, nearest_ids)
        hits = self._rank(evidence, limit, explain=explain)
        matches = yield from step(reader.first, hits, k)
        has_all = len(hits) < limit and not nearest_ids  # by meaning, nearer ones may have kept others from being hits
        if evidence is None or has_all or len(matches) in {k, len(hits)}:
            return matches
        words = evidence.query
        if thread:
            extra_ids = yield from self._thread_ids(index, words, thread, limit, reader)
        else:
            extra_ids = yield from self._accepted_ids(index, words, limit, reader)
        evidence = self._gather_evidence(index, limit, [*nearest_ids, *extra_ids])
        max_count = len(evidence.candidates) if evidence else 0
        return (yield from step(reader.first, self._rank(evidence, max_count, extra_ids, explain=explain), k))

    def _rank(self, evidence: Evidence | None, k: int, wanted: Sequence[str] = (), *, explain: bool) -> list[Ranked]:
        if evidence is None:
            return []
        scores, max_sim = self._vector_scores, self._max_sim()
        return ranked(evidence, scores, self._signals, k, max_sim=max_sim, explain=explain, wanted=wanted)

    def _max_sim(self) -> MaxSim | None:
        vectors = self._vectors
        if vectors is None or not vectors.piecewise:
            return None
        return lambda before: vectors.max_sim(self.text_to_embed(), before)

    def _accepted_ids(
        self, index: ConversationIndex, words: str, k: int, reader: FilteredReader[Any]
    ) -> Flow[list[str]]:
        """The ids of the accepted records that are best by words, and of those nearest in meaning."""
        namespace, vectors = self._records.namespace, self._vectors
        matches = yield from step(reader.best, lambda limit: index.search(namespace, words, limit), k)
        if vectors is not None:
            matches += yield from step(
                reader.best, lambda limit: _above_zero_cosine(vectors.search(self.text_to_embed(), limit)), k
            )
        return [hit.id for hit, _ in matches]

    def _thread_ids(
        self, index: ConversationIndex, words: str, thread: str, k: int, reader: FilteredReader[Any]
    ) -> Flow[list[str]]:
        """The same, if all of them were said in one thread: no other is read."""
        thread_hits = index.within(self._records.namespace, words, thread)
        matches = yield from step(reader.first, [hit for hit in thread_hits if hit.score], k)
        if self._vectors is not None:
            scores = self._vectors.score(self.text_to_embed(), [hit.id for hit in thread_hits])
            hits = [Hit(id_, score) for id_, score in sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))]
            matches += yield from step(reader.first, _above_zero_cosine(hits), k)
        return [hit.id for hit, _ in matches]

    def candidates(self, k: int) -> dict[str, dict[str, float]]:
        """See :meth:`Search.candidates`."""
        index = self._conversations
        if index is None:
            return {}
        evidence = self._gather_evidence(index, k, self._nearest_ids(k))
        return candidates(evidence, self._vector_scores, max_sim=self._max_sim()) if evidence else {}

    def _nearest_ids(self, k: int) -> list[str]:
        """The ids of the memories nearest in meaning; notes how near each is."""
        if self._vectors is not None:
            hits = self._vectors.search(self.text_to_embed(), max(k, _POOL_SIZE // 2))
            self._vector_scores = {hit.id: hit.score for hit in hits}
        return list(self._vector_scores)

    def _gather_evidence(self, index: ConversationIndex, k: int, extra_ids: Sequence[str]) -> Evidence | None:
        """The evidence of the candidates, and of ``extra_ids``; notes how near each is in meaning."""
        evidence = index.gather(self._records.namespace, self._dated_query, max(k, _POOL_SIZE), extra_ids)
        if evidence is not None and self._vectors is not None:
            ids = [turn.id for turn in evidence.turns.values() if turn.id not in self._vector_scores]
            self._vector_scores |= self._vectors.score(self.text_to_embed(), ids)
        return evidence

    def _rank_by_scores(self, k: int) -> list[Ranked]:
        """Rank with an index that knows only words: half of a score comes from it, and half from the meaning."""
        query = self._query
        word_scores = {hit.id: hit.score for hit in self._records.index.search(self._records.namespace, query, k)}
        if self._vectors is None:
            return [Ranked(id_, score, {"words": score}) for id_, score in word_scores.items()]
        text = self.text_to_embed()
        vector_scores = {hit.id: hit.score for hit in self._vectors.search(text, k)}
        vector_scores |= self._vectors.score(text, [id_ for id_ in word_scores if id_ not in vector_scores])
        ranked_memories = []
        for id_ in word_scores | vector_scores:
            meaning = max(0.0, 2 * vector_scores.get(id_, 0.0) - 1)
            parts = {"words": word_scores.get(id_, 0.0) / 2, "meaning": meaning / 2}
            if any(parts.values()):
                ranked_memories.append(Ranked(id_, sum(parts.values()), parts))
        return sorted(ranked_memories, key=lambda match: (-match.score, match.id))[:k]


def _above_zero_cosine(hits: Sequence[Hit]) -> list[Hit]:
    """The hits with a cosine above 0; others are no nearer to the query than any text is."""
    return [hit for hit in hits if hit.score > _ZERO_COSINE_SCORE]
