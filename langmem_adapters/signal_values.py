"""The signals of a search, measured on an index's evidence, before they are scaled and weighed."""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from langmem_adapters.language.features import ANSWER, ASKS, FIRST_PERSON, NAMES, NUMBER, QUESTION, TIME, asked
from langmem_adapters.protocols import Evidence, Turn

__all__ = ["MaxSim", "SignalValues"]

MaxSim: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, float]]
"""Gives how near documents come to each word of the query, by id; takes the id of what was said just before each."""

_K1, _B = 1.2, 0.4
_FAR = 2  # turns on each side that count as beside one
_ONE, _TWO = 0.5, 0.25  # the weight of a word that was said one turn before, and two
_FEW = 10  # cosines
_SHORT = 60  # words; a longer text counts as this many beside others, and a number or a time in it says little


class SignalValues:
    """The signals of the candidates, before they are scaled, in the order of ``_ORDER``.

    The turns stand in a row of cells, as they were said; empty cells separate turns that were not said together.
    """

    def __init__(self, evidence: Evidence, meaning: Mapping[str, float]) -> None:
        self._evidence = evidence
        self._asked = asked(evidence.query)
        self._all_idf = sum(evidence.idf) or 1.0
        cells = _cells(evidence)
        self._cell_of = {place: cell for cell, place in enumerate(cells) if place is not None}
        turns = [_NOBODY if place is None else evidence.turns[place] for place in cells]
        self._ids = [turn.id for turn in turns]
        self._lengths = [turn.length for turn in turns]
        self._marks = [turn.marks for turn in turns]
        cosines = {id_: 2 * score - 1 for id_, score in meaning.items()}
        floor = _floor(cosines.values())
        cosines = {id_: max(0.0, (cosine - floor) / (1 - floor)) for id_, cosine in cosines.items()}
        unknown = sum(cosines.values()) / len(cosines) if cosines else 0.0
        self._near_in_meaning = {id_ for id_, cosine in cosines.items() if cosine > 0}
        self._meaning = [0.0 if turn is _NOBODY else cosines.get(turn.id, unknown) for turn in turns]
        self._scores = [0.0] * len(cells)
        self._counts: list[dict[int, int]] = [{} for _ in evidence.idf]  # of each term by cell
        self._said: set[int] = set()  # places of turns that have a word
        self._near_words: set[int] = set()  # cells of these turns, and of those beside them
        self._sessions = self._read_words()

    def _read_words(self) -> dict[int, tuple[float, float, float]]:
        """For each stretch that has an order: its BM25 squared, the BM25 of its best turn, and its greatest cosine.

        On the way it fills the cells: with each turn's BM25, and with how often the turn has each term.
        """
        evidence = self._evidence
        counts: dict[int, dict[int, float]] = {number: {} for number in evidence.stretches}
        said: dict[int, dict[int, float]] = {number: {} for number in evidence.stretches}  # the BM25 of each place
        norms: dict[int, float] = {}  # by length
        for term, by_stretch in enumerate(evidence.postings):
            for number, postings in by_stretch.items():
                counts[number][term] = sum(postings[1])
                self._add(term, postings, said[number], norms)
        best = {number: max(scores.values(), default=0.0) for number, scores in said.items()}
        nearest = dict.fromkeys(counts, 0.0)
        for place, cell in self._cell_of.items():
            score = said[Evidence.stretch_of(place)].get(place)
            if score is not None:
                self._said.add(place)
                self._scores[cell] = score
                self._near_words.update(range(cell - _FAR, cell + _FAR + 1))
        for place in evidence.candidates:
            number = Evidence.stretch_of(place)
            nearest[number] = max(nearest[number], self._meaning[self._cell_of[place]])
        idf, average = evidence.stretch_idf, evidence.average_stretch
        return {
            number: (_bm25(counts[number], idf, _norm(stretch.length, average)) ** 2, best[number], nearest[number])
            for number, stretch in evidence.stretches.items()
            if stretch.ordered
        }

    def _add(
        self,
        term: int,
        postings: tuple[Sequence[int], Sequence[int], Sequence[int]],
        scores: dict[int, float],
        norms: dict[int, float],
    ) -> None:
        """Add a term to the scores of the places that have it, and count it in their cells."""
        idf, average = self._evidence.idf[term], self._evidence.average
        cell_of, counts = self._cell_of, self._counts[term]
        for place, count, length in zip(*postings, strict=True):
            norm = norms.get(length)
            if norm is None:
                norm = norms[length] = _norm(length, average)
            scores[place] = scores.get(place, 0.0) + idf * count / (count + norm)
            if place in cell_of:
                counts[cell_of[place]] = count

    def measured(self) -> tuple[list[int], dict[str, Sequence[float]], dict[str, float]]:
        """The candidates that have any signal of the query, their values of each signal, and its greatest value."""
        near, cell_of = self._near_words, self._cell_of
        there = [place for place in self._evidence.candidates if cell_of[place] in near or self.says_it(place)]
        if not there:
            return [], {}, {}
        cells = [cell_of[place] for place in there]
        signals = (
            *self._in_windows(cells),
            *self._beside(cells),
            *self._alone([self._evidence.turns[place] for place in there]),
            *self._of_sessions(there),
        )
        columns = dict(zip(_ORDER, signals, strict=True))
        return there, columns, {name: max(column) for name, column in columns.items()}

    def max_sim(self, places: Sequence[int], max_sim: MaxSim) -> list[float]:
        """How near these come to each word of the query; if that is not known of one, the mean of the others."""
        ids, cells = self._ids, [self._cell_of[place] for place in places]
        near = max_sim({ids[cell]: ids[cell - 1] for cell in cells})
        unknown = sum(near.values()) / len(near) if near else 0.0
        return [near.get(ids[cell], unknown) for cell in cells]

    def says_it(self, place: int) -> bool:
        """Whether a turn itself has a word of the query, or is near in meaning."""
        return place in self._said or self._evidence.turns[place].id in self._near_in_meaning

    def _in_windows(self, cells: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From context to covered: a turn with the two before it, which count less, and with the two on each side."""
        evidence, lengths = self._evidence, self._lengths
        before = evidence.average * (1 + _ONE + _TWO)
        beside = evidence.average * (1 + 2 * _FAR)
        shares = [_share(length) for length in lengths]
        near = [share * length for share, length in zip(shares, lengths, strict=True)]
        before_norms = [_norm(_TWO * near[c - 2] + _ONE * near[c - 1] + lengths[c], before) for c in cells]
        beside_norms = [_norm(sum(near[c - _FAR : c + _FAR + 1]) - near[c] + lengths[c], beside) for c in cells]
        contexts, arounds, covered = [0.0] * len(cells), [0.0] * len(cells), [0.0] * len(cells)
        for idf, counts in zip(evidence.idf, self._counts, strict=True):
            past, around = [0.0] * len(lengths), [0.0] * len(lengths)
            for cell, count in counts.items():
                told = shares[cell] * count
                past[cell] += count
                past[cell + 1] += _ONE * told
                past[cell + 2] += _TWO * told
                for beside_it in range(cell - _FAR, cell + _FAR + 1):
                    around[beside_it] += told
                around[cell] += count - told
            for n, cell in enumerate(cells):
                if here := around[cell]:
                    arounds[n] += idf * here / (here + beside_norms[n])
                    covered[n] += idf * min(1.0, here)
                    if said := past[cell]:
                        contexts[n] += idf * said / (said + before_norms[n])
        return contexts, arounds, [idf / self._all_idf * evidence.found for idf in covered]

    def _beside(self, cells: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From words to meaning_answer: what the turn says, and the turns beside it, each for itself."""
        score, meaning = self._scores, self._meaning
        marks = [self._marks[cell - 1] for cell in cells]
        replies = [1.0 if mark & ASKS else 0.0 for mark in marks]
        answers = [1.0 if mark & QUESTION else 0.0 for mark in marks]
        words_before = [score[cell - 1] for cell in cells]
        meaning_before = [meaning[cell - 1] for cell in cells]
        return (
            [score[cell] for cell in cells],
            words_before,
            list(map(operator.mul, words_before, replies)),
            replies,
            [meaning[cell] for cell in cells],
            meaning_before,
            [meaning[cell + 1] for cell in cells],
            list(map(operator.mul, meaning_before, answers)),
        )

    def _alone(self, turns: Sequence[Turn]) -> tuple[Sequence[float], ...]:
        """From speaker to newer: who speaks, of what kind of thing, and when."""
        asked_, named, marks = self._asked, self._evidence.named, [turn.marks for turn in turns]
        nothing = [0.0] * len(turns)
        who = [1.0 if turn.speaker in named else 0.0 for turn in turns] if named else nothing
        own = [one if mark & FIRST_PERSON else 0.0 for one, mark in zip(who, marks, strict=True)] if named else nothing
        tells = [_share(turn.length) for turn in turns]
        time = [tell if mark & TIME else 0.0 for tell, mark in zip(tells, marks, strict=True)]
        number = [tell if mark & NUMBER else 0.0 for tell, mark in zip(tells, marks, strict=True)]
        answers = asked_.teller == "assistant"
        return (
            who,
            own,
            [1.0 if bool(mark & ANSWER) == answers else 0.0 for mark in marks] if asked_.teller else nothing,
            [asked_.date.meets(turn.at) for turn in turns] if asked_.date else nothing,
            time if asked_.when else nothing,
            number if asked_.when else nothing,
            number if asked_.how_many else nothing,
            [1.0 if mark & NAMES else 0.0 for mark in marks] if asked_.who else nothing,
            time,
            number,
            [1.0 if mark & QUESTION else 0.0 for mark in marks],
            [math.log1p(min(turn.length, _SHORT)) for turn in turns],
            nothing if asked_.date else _said_before(turns),
        )

    def _of_sessions(self, places: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From session to opening."""
        stretches = [Evidence.stretch_of(place) for place in places]
        values = [self._sessions.get(stretch, _NO_SESSION) for stretch in stretches]
        opening = [
            float(stretch in self._sessions and Evidence.stretch_of(place - 1) != stretch)
            for place, stretch in zip(places, stretches, strict=True)
        ]
        return (*zip(*values, strict=True), opening)


def _cells(evidence: Evidence) -> list[int | None]:
    """The places of the turns in a row, with empty cells between turns that do not stand beside each other."""
    apart: list[int | None] = [None] * _FAR
    cells = [*apart]
    last, before = 0, -1
    for place in sorted(evidence.turns):
        stretch = Evidence.stretch_of(place)
        together = stretch == before and evidence.stretches[stretch].ordered
        cells += apart[: place - last - 1] if together else apart
        cells.append(place)
        last, before = place, stretch
    return cells + apart


def _said_before(turns: Sequence[Turn]) -> list[float]:
    """For each turn, the share of all turns that were said before it."""
    known = sorted(turn.at for turn in turns if turn.at is not None)
    return [0.0 if turn.at is None else bisect_left(known, turn.at) / len(turns) for turn in turns]


def _floor(cosines: Collection[float]) -> float:
    """The cosine that nine in ten texts exceed, whatever they say; with few cosines, it is drawn towards 0."""
    count = len(cosines)
    return max(0.0, sorted(cosines)[count // 10]) * count / (count + _FEW) if cosines else 0.0


def _share(length: float) -> float:
    return min(1.0, _SHORT / length) if length else 1.0


def _norm(length: float, average: float) -> float:
    return _K1 * (1 - _B + _B * length / average)


def _bm25(words: Mapping[int, float], idf: Sequence[float], norm: float) -> float:
    score = 0.0
    for term, count in words.items():
        score += idf[term] * count / (count + norm)
    return score


_NOBODY = Turn("", 0, "", None, 0)
_NO_SESSION = (0.0, 0.0, 0.0)
_ORDER = (
    *("context", "around", "covered"),
    *("words", "before", "answer", "replies"),
    *("meaning", "meaning_before", "meaning_after", "meaning_answer"),
    *("speaker", "own", "teller", "date", "when", "when_number", "count", "who", "time", "number", "question"),
    *("length", "newer"),
    *("session", "session_best", "meaning_session", "opening"),
)
