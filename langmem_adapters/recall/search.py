"""The search of a long-term memory: of each of a message's questions, with their results as one list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TypeVar

from langmem_adapters.flow import Flow, run
from langmem_adapters.language.questions import may_go_on, separate_questions, subject_of
from langmem_adapters.model import Message
from langmem_adapters.protocols import Position
from langmem_adapters.recall.memories import NOTIFICATION, RECALLED
from langmem_adapters.recall.question_search import QuestionSearch
from langmem_adapters.recall.vectors import VectorRecall
from langmem_adapters.records.filtering import FilteredReader
from langmem_adapters.records.following import own_index_errors
from langmem_adapters.records.keyed import Records
from langmem_adapters.signals import Ranked, Signal

V = TypeVar("V")


def queries_of(text: str, conversation: Sequence[Message]) -> list[str]:
    """What a text asks, one by one. It goes on with what the user has said before, not with what was recalled."""
    if not may_go_on(text):
        return separate_questions(text)
    said_by_user = (said for said in reversed(conversation) if said.role == "user")
    asked = (said for said in said_by_user if not (said.metadata.get(RECALLED) or said.metadata.get(NOTIFICATION)))
    return separate_questions(text, subject_of(said.text for said in asked if said.text != text))


class Search:
    """One search, on an index that is up to date. Blocking, except :meth:`embed_ahead`; meant for a flow's steps.

    ``recall`` finds by meaning, if there are vectors. Each of the ``queries`` finds as much as the others. ``now`` is
    when they are made, in Unix seconds: "yesterday" is the day before.
    """

    def __init__(
        self,
        records: Records,
        recall: VectorRecall | None,
        signals: Mapping[str, Signal],
        *,
        queries: Sequence[str],
        now: float,
    ) -> None:
        self._records = records
        self._vectors = None if recall is None else recall.query()
        self._searches = [QuestionSearch(records, self._vectors, signals, query=query, now=now) for query in queries]
        self._followed_to: Position | None = None  # where the index was when this search brought it up to date

    def embed_ahead(self) -> Flow[None]:
        """Ask the embedder for the queries' vectors, if it gains by that; see :meth:`VectorQuery.embed_ahead`."""
        if self._vectors is not None:
            yield from self._vectors.embed_ahead(self._texts_of_current_index, len(self._searches))

    def _texts_of_current_index(self) -> list[str]:
        """The texts to embed, without the names of speakers of whom the index had not heard yet."""
        records = self._records
        with own_index_errors(records.index):
            if not records.searches.expects_news:
                return self._texts_to_embed()  # made anew, should there be news all the same
        return records.searches.after_following(self._texts_to_embed, self._catch_up)

    def _texts_to_embed(self) -> list[str]:
        return [search.text_to_embed() for search in self._searches]

    def _catch_up(self) -> Position | None:
        """Bring the index up to date, unless this search has done so before it asked the embedder."""
        records = self._records
        if self._followed_to is None:
            for search in self._searches:
                search.forget_text_to_embed()  # it was made of the index as it was before
        if self._followed_to is None or records.index.position(records.namespace) != self._followed_to:
            self._followed_to = records.catch_up()
        return self._followed_to

    def best(
        self, k: int, new_filter: Callable[[], Callable[[str, bytes], V | None]], thread: str, *, explain: bool
    ) -> list[tuple[Ranked, V]]:
        """The ``k`` best records that a filter returns something for, filtered by a FilteredReader, best first.

        Each attempt has a filter of its own: what one has let through may be gone in the next.
        ``thread`` names the one in which all accepted ones were said, if it is known. ``explain`` as in
        :func:`~langmem_adapters.signals.ranked`. If too few of the first hits are accepted, the best accepted are
        looked for, by words and by meaning. They are weighed together with the candidates that an unfiltered search
        weighs, so their neighbours and scales are the same; but nearer ones do not make them unlike the query.
        The best result of each query gets the same score, the mean of theirs.
        """
        records = self._records

        def search(get: Callable[[Sequence[str]], dict[str, bytes]]) -> Flow[list[tuple[Ranked, V]]]:
            reader = FilteredReader(get, new_filter())
            results: list[list[tuple[Ranked, V]]] = []
            for question in self._searches:
                results += [(yield from question.best(k, reader, thread, explain=explain))]
            return _merge(results)[:k]

        if self._followed_to is None:
            matches = run(records.searches.flow(search, self._catch_up))
        else:
            matches = records.searches.follower.search(self._catch_up, lambda: run(search(records.get)))
        if self._vectors is not None:
            self._vectors.follow_if_behind()
        return matches

    def candidates(self, k: int) -> dict[str, dict[str, float]]:
        """The candidates of a search for ``k``, by id, with their signals before weighting, each from 0 to 1.

        Of the first query only; empty with an index that knows only words.
        """
        self._records.follow()
        signals = self._searches[0].candidates(k)
        if self._vectors is not None:
            self._vectors.follow_if_behind()
        return signals


def _merge(results: Sequence[Sequence[tuple[Ranked, V]]]) -> list[tuple[Ranked, V]]:
    """The results of several queries as one list, so scaled that the best of each are equal."""
    if len(results) == 1:
        return list(results[0])
    best_scores = [matches[0][0].score for matches in results if matches and matches[0][0].score]
    merged: dict[str, tuple[Ranked, V]] = {}
    for matches in results:
        factor = fmean(best_scores) / matches[0][0].score if matches and matches[0][0].score else 0.0
        for match, value in matches:
            scaled = _scale(match, factor)
            if match.id not in merged or merged[match.id][0].score < scaled.score:
                merged[match.id] = scaled, value
    return sorted(merged.values(), key=lambda result: -result[0].score)


def _scale(match: Ranked, factor: float) -> Ranked:
    signals = {name: factor * value for name, value in match.signals.items()}
    return match._replace(score=min(1.0, factor * match.score), signals=signals)
