"""The signals of a search, measured on an index's evidence, before they are scaled and weighed."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from langmem_adapters.language.features import ANSWER, ASKS, FIRST_PERSON, NAMES, NUMBER, QUESTION, TIME, query_features
from langmem_adapters.protocols import Evidence, Turn

MaxSim: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, float]]
"""Gives how near documents come to each word of the query, by id; takes the id of what was said just before each."""

_BM25_K1, _BM25_B = 1.2, 0.4
_WINDOW_TURNS = 2  # turns on each side that count as beside one
_ONE_BEFORE, _TWO_BEFORE = 0.5, 0.25  # the weight of a word that was said one turn before, and two
_PRIOR_COSINES = 10  # that count as 0, so that few real ones move the floor little
_MAX_WORDS = 60  # a longer text counts as this many beside others, and a number or a time in it says little


class SignalValues:
    """The signals of the candidates, before they are scaled, in the order of ``_SIGNAL_NAMES``.

    The turns stand in a row of cells, as they were said; empty cells separate turns that were not said together.
    """

    def __init__(self, evidence: Evidence, meaning: Mapping[str, float], wanted: Collection[str] = ()) -> None:
        self._evidence = evidence
        self._question = query_features(evidence.query)
        self._total_idf = sum(evidence.idf) or 1.0
        places = _lay_out_cells(evidence)
        self._cell_of = dict(zip(places, range(len(places)), strict=True))
        turns = [evidence.turns.get(place, _NO_TURN) for place in places]
        self._ids, self._lengths, self._speakers, self._times, self._marks = zip(*turns, strict=True)
        self._shares = [1.0 if length <= _MAX_WORDS else _MAX_WORDS / length for length in self._lengths]
        cosines = _cosines_above_floor(meaning, wanted)
        mean_cosine = sum(cosines.values()) / max(1, len(cosines))
        self._similar_ids = {id_ for id_, cosine in cosines.items() if cosine > 0}
        self._meaning = [0.0] * len(turns)
        if cosines:
            self._meaning = [0.0 if turn is _NO_TURN else cosines.get(turn.id, mean_cosine) for turn in turns]
        self._scores = [0.0] * len(turns)
        self._term_counts: list[dict[int, int]] = [{} for _ in evidence.idf]  # of each term by cell
        self._matching_places: set[int] = set()  # places of turns that have a word
        self._session_values = self._score_terms()
        self._cells_near_matches = {  # cells of these turns, and of those beside them
            cell
            for place in self._matching_places
            for cell in range(self._cell_of[place] - _WINDOW_TURNS, self._cell_of[place] + _WINDOW_TURNS + 1)
        }

    def _score_terms(self) -> dict[int, tuple[float, float, float]]:
        """For each stretch that has an order: its BM25 squared, the BM25 of its best turn, and its greatest cosine.

        On the way it fills the cells: with each turn's BM25, and with how often the turn has each term.
        """
        evidence, cell_of = self._evidence, self._cell_of
        term_counts: dict[int, dict[int, float]] = {number: {} for number in evidence.stretches}
        bm25: dict[int, dict[int, float]] = {number: {} for number in evidence.stretches}  # of each place
        for term, by_stretch in enumerate(evidence.postings):
            idf, counts_by_cell = evidence.idf[term], self._term_counts[term]
            for number, (places, counts, lengths) in by_stretch.items():
                term_counts[number][term] = sum(counts)
                scores = bm25[number]
                for place, count, norm in zip(places, counts, _bm25_norms(lengths, evidence.average), strict=True):
                    scores[place] = scores.get(place, 0.0) + idf * count / (count + norm)
                    if place in cell_of:
                        counts_by_cell[cell_of[place]] = count
        for scores in bm25.values():
            for place in scores.keys() & cell_of.keys():
                self._matching_places.add(place)
                self._scores[cell_of[place]] = scores[place]
        best_cosines = dict.fromkeys(evidence.stretches, 0.0)
        for place in evidence.candidates if self._similar_ids else ():
            number = Evidence.stretch_of(place)
            best_cosines[number] = max(best_cosines[number], self._meaning[cell_of[place]])
        values = {}
        for number, stretch in evidence.stretches.items():
            if stretch.ordered:
                [norm] = _bm25_norms([stretch.length], evidence.average_stretch)
                score = _bm25(term_counts[number], evidence.stretch_idf, norm)
                values[number] = (score**2, max(bm25[number].values(), default=0.0), best_cosines[number])
        return values

    def measure(self) -> tuple[list[int], dict[str, Sequence[float]], dict[str, float]]:
        """The candidates that have any signal of the query, their values of each signal, and its greatest value."""
        near_cells, cell_of = self._cells_near_matches, self._cell_of
        places = [place for place in self._evidence.candidates if cell_of[place] in near_cells or self.matches(place)]
        if not places:
            return [], {}, {}
        cells = [cell_of[place] for place in places]
        signals = (
            *self._window_signals(cells),
            *self._neighbour_signals(cells),
            *self._turn_signals(cells),
            *self._session_signals(places),
        )
        columns = dict(zip(_SIGNAL_NAMES, signals, strict=True))
        return places, columns, {name: max(column) for name, column in columns.items()}

    def max_sim(self, places: Sequence[int], max_sim: MaxSim) -> list[float]:
        """How near these come to each word of the query; if that is not known of one, the mean of the others."""
        ids, cells = self._ids, [self._cell_of[place] for place in places]
        similarities = max_sim({ids[cell]: ids[cell - 1] for cell in cells})
        mean = sum(similarities.values()) / len(similarities) if similarities else 0.0
        return [similarities.get(ids[cell], mean) for cell in cells]

    def matches(self, place: int) -> bool:
        """Whether a turn itself has a word of the query, or is near in meaning."""
        return place in self._matching_places or self._evidence.turns[place].id in self._similar_ids

    def _window_signals(self, cells: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From context to covered: a turn with the two before it, which count less, and with the two on each side."""
        evidence, lengths, shares = self._evidence, self._lengths, self._shares
        capped = [share * length for share, length in zip(shares, lengths, strict=True)]
        context_lengths = [
            _TWO_BEFORE * capped[cell - 2] + _ONE_BEFORE * capped[cell - 1] + lengths[cell] for cell in cells
        ]
        around_lengths = [
            sum(capped[cell - _WINDOW_TURNS : cell + _WINDOW_TURNS + 1]) - capped[cell] + lengths[cell]
            for cell in cells
        ]
        context_norms = _bm25_norms(context_lengths, evidence.average * (1 + _ONE_BEFORE + _TWO_BEFORE))
        around_norms = _bm25_norms(around_lengths, evidence.average * (1 + 2 * _WINDOW_TURNS))
        contexts, arounds, covered = [0.0] * len(cells), [0.0] * len(cells), [0.0] * len(cells)
        for idf, counts in zip(evidence.idf, self._term_counts, strict=True):
            context, around = [0.0] * len(lengths), [0.0] * len(lengths)
            for cell, count in counts.items():
                capped_count = shares[cell] * count
                context[cell] += count
                context[cell + 1] += _ONE_BEFORE * capped_count
                context[cell + 2] += _TWO_BEFORE * capped_count
                for neighbour in range(cell - _WINDOW_TURNS, cell + _WINDOW_TURNS + 1):
                    around[neighbour] += capped_count
                around[cell] += count - capped_count
            for index, cell in enumerate(cells):
                if around_count := around[cell]:
                    arounds[index] += idf * around_count / (around_count + around_norms[index])
                    covered[index] += idf * around_count if around_count < 1 else idf
                    if context_count := context[cell]:
                        contexts[index] += idf * context_count / (context_count + context_norms[index])
        return contexts, arounds, [idf / self._total_idf * evidence.found for idf in covered]

    def _neighbour_signals(self, cells: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From words to meaning_answer: what the turn says, and the turns beside it, each for itself."""
        scores, meaning = self._scores, self._meaning
        marks_before = [self._marks[cell - 1] for cell in cells]
        words_before = [scores[cell - 1] for cell in cells]
        meaning_before = [meaning[cell - 1] for cell in cells]
        return (
            [scores[cell] for cell in cells],
            words_before,
            _where(ASKS, marks_before, words_before),
            _where(ASKS, marks_before, [1.0] * len(cells)),
            [meaning[cell] for cell in cells],
            meaning_before,
            [meaning[cell + 1] for cell in cells],
            _where(QUESTION, marks_before, meaning_before),
        )

    def _turn_signals(self, cells: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From speaker to newer: who speaks, of what kind of thing, and when."""
        question, named_speakers = self._question, self._evidence.named
        marks, times = [self._marks[cell] for cell in cells], [self._times[cell] for cell in cells]
        zeros, ones, shares = [0.0] * len(cells), [1.0] * len(cells), [self._shares[cell] for cell in cells]
        speaker = (
            [1.0 if self._speakers[cell] in named_speakers else 0.0 for cell in cells] if named_speakers else zeros
        )
        time, number = _where(TIME, marks, shares), _where(NUMBER, marks, shares)
        by_assistant = question.speaker_role == "assistant"
        return (
            speaker,
            _where(FIRST_PERSON, marks, speaker),
            [1.0 if bool(mark & ANSWER) == by_assistant else 0.0 for mark in marks] if question.speaker_role else zeros,
            [question.date.match_score(at) for at in times] if question.date else zeros,
            time if question.when else zeros,
            number if question.when else zeros,
            number if question.how_many else zeros,
            _where(NAMES, marks, ones) if question.who else zeros,
            time,
            number,
            _where(QUESTION, marks, ones),
            [math.log1p(min(self._lengths[cell], _MAX_WORDS)) for cell in cells],
            zeros if question.date else _shares_earlier(times),
        )

    def _session_signals(self, places: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From session to opening."""
        stretches = [Evidence.stretch_of(place) for place in places]
        values = [self._session_values.get(stretch, _NO_SESSION_VALUES) for stretch in stretches]
        opening = [
            float(stretch in self._session_values and Evidence.stretch_of(place - 1) != stretch)
            for place, stretch in zip(places, stretches, strict=True)
        ]
        return (*zip(*values, strict=True), opening)


def _lay_out_cells(evidence: Evidence) -> list[int]:
    """The places of the turns in a row, with empty cells between turns that do not stand beside each other."""
    gap = [_NO_PLACE] * _WINDOW_TURNS
    cells = []
    for stretch, places in groupby(sorted(evidence.turns), Evidence.stretch_of):
        ordered = evidence.stretches[stretch].ordered
        next_place = None  # that stands beside the one before
        for place in places:
            if place != next_place:
                cells += gap
            cells.append(place)
            next_place = place + 1 if ordered else None
    return cells + gap


def _where(mark: int, marks: Sequence[int], values: Sequence[float]) -> list[float]:
    """These values where a turn has the mark, and 0 elsewhere."""
    return [value if each & mark else 0.0 for each, value in zip(marks, values, strict=True)]


def _shares_earlier(times: Sequence[float | None]) -> list[float]:
    """For each turn, the share of all turns that were said before it."""
    known = sorted(at for at in times if at is not None)
    return [0.0 if at is None else bisect_left(known, at) / len(times) for at in times]


def _cosines_above_floor(meaning: Mapping[str, float], wanted: Collection[str]) -> dict[str, float]:
    """By id: how near a text is, from 0 at the floor of all texts' cosines, or of the wanted ones' if lower, to 1."""
    cosines = {id_: 2 * score - 1 for id_, score in meaning.items()}
    wanted_cosines = [cosines[id_] for id_ in wanted if id_ in cosines]
    floor = min(map(_cosine_floor, (cosines.values(), wanted_cosines or cosines.values())))
    return {id_: max(0.0, (cosine - floor) / (1 - floor)) for id_, cosine in cosines.items()}


def _cosine_floor(cosines: Collection[float]) -> float:
    """The cosine that nine in ten texts exceed, whatever they say; with few cosines, it is drawn towards 0."""
    count = len(cosines)
    return max(0.0, sorted(cosines)[count // 10]) * count / (count + _PRIOR_COSINES) if cosines else 0.0


def _bm25_norms(lengths: Iterable[float], average: float) -> list[float]:
    return [_BM25_K1 * (1 - _BM25_B + _BM25_B * length / average) for length in lengths]


def _bm25(term_counts: Mapping[int, float], idf: Sequence[float], norm: float) -> float:
    score = 0.0
    for term, count in term_counts.items():
        score += idf[term] * count / (count + norm)
    return score


_NO_PLACE = -1
_NO_TURN = Turn("", 0, "", None, 0)
_NO_SESSION_VALUES = (0.0, 0.0, 0.0)
_SIGNAL_NAMES = (
    *("context", "around", "covered"),
    *("words", "before", "answer", "replies"),
    *("meaning", "meaning_before", "meaning_after", "meaning_answer"),
    *("speaker", "own", "teller", "date", "when", "when_number", "count", "who", "time", "number", "question"),
    *("length", "newer"),
    *("session", "session_best", "meaning_session", "opening"),
)
