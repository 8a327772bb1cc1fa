"""The signals of what a query may mean, measured on an index's evidence, before they are scaled and weighed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from langmem_adapters.language.features import ASKS, FIRST_PERSON, NAMES, NUMBER, QUESTION, TIME, asked
from langmem_adapters.protocols import Evidence, Turn

__all__ = ["Met", "Values"]

Met: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, float]]
"""Tells of documents how near they come to each word of the query, by id, given what was said just before each."""

_K1, _B = 1.2, 0.4
_PAST = (0.25, 0.5, 1.0, 0.0, 0.0)  # what a word counts two turns before, one before, in the turn itself, after
_PAST_OF = _PAST[::-1]  # the same, seen from the word: from two turns before it to two after
_WINDOW = len(_PAST)
_FAR = 2  # turns on each side that count as beside one
_FEW = 10  # cosines
_Words: TypeAlias = list[dict[int, float] | None]


class Values:
    """The signals of the candidates, before they are scaled, in the order of ``_ORDER``.

    The turns stand in a row of cells, as they were said; empty cells keep apart what was not said together.
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
        self._words: list[Mapping[int, float] | None] = [None] * len(cells)
        self._sessions = self._read_words()

    def _read_words(self) -> dict[int, tuple[float, float, float]]:
        """Of each stretch that has an order its BM25 squared, that of its best turn, and the greatest cosine there.

        On the way, each turn's words and what they are worth go into its cell.
        """
        evidence = self._evidence
        counts: dict[int, dict[int, float]] = {number: {} for number in evidence.stretches}
        best, nearest = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0.0)
        for place, (length, words) in evidence.words.items():
            number, score = Evidence.stretch_of(place), _bm25(words, evidence.idf, _norm(length, evidence.average))
            best[number] = max(best[number], score)
            here = counts[number]
            for term, count in words.items():
                here[term] = here.get(term, 0) + count
            cell = self._cell_of.get(place)
            if cell is not None:
                self._words[cell], self._scores[cell] = words, score
        for place in evidence.candidates:
            number = Evidence.stretch_of(place)
            nearest[number] = max(nearest[number], self._meaning[self._cell_of[place]])
        idf, average = evidence.stretch_idf, evidence.average_stretch
        return {
            number: (_bm25(counts[number], idf, _norm(stretch.length, average)) ** 2, best[number], nearest[number])
            for number, stretch in evidence.stretches.items()
            if stretch.ordered
        }

    def measured(self) -> tuple[list[int], dict[str, Sequence[float]], dict[str, float]]:
        """The candidates that have any signal of the query, each of the signals of all, and its greatest value."""
        around, past = self._windows()
        cell_of = self._cell_of
        there = [place for place in self._evidence.candidates if around[cell_of[place]] or self.says_it(place)]
        if not there:
            return [], {}, {}
        cells = [cell_of[place] for place in there]
        signals = (
            *self._in_windows(cells, around, past),
            *self._beside(cells),
            *self._alone([self._evidence.turns[place] for place in there]),
            *self._of_sessions(there),
        )
        columns = dict(zip(_ORDER, signals, strict=True))
        return there, columns, {name: max(column) for name, column in columns.items()}

    def met(self, places: Sequence[int], met: Met) -> list[float]:
        """How near these come to each word of the query; where that is not known, as near as the others in the mean."""
        ids, cells = self._ids, [self._cell_of[place] for place in places]
        near = met({ids[cell]: ids[cell - 1] for cell in cells})
        unknown = sum(near.values()) / len(near) if near else 0.0
        return [near.get(ids[cell], unknown) for cell in cells]

    def says_it(self, place: int) -> bool:
        """Whether a turn itself has a word of the query, or is near in meaning."""
        return place in self._evidence.words or self._evidence.turns[place].id in self._near_in_meaning

    def _windows(self) -> tuple[_Words, _Words]:
        """By cell: the words of a turn and of the two on each side; and of it and, worth less, of the two before."""
        around: _Words = [None] * len(self._words)
        past: _Words = [None] * len(self._words)
        for cell, words in enumerate(self._words):
            if words is None:
                continue
            for near, weight in enumerate(_PAST_OF, cell - _FAR):
                _add(around, near, words, 1)
                if weight:
                    _add(past, near, words, weight)
        return around, past

    def _in_windows(self, cells: Sequence[int], around: _Words, past: _Words) -> tuple[Sequence[float], ...]:
        """From context to covered."""
        evidence, idf, lengths = self._evidence, self._evidence.idf, self._lengths
        average, whole = evidence.average * sum(_PAST), evidence.average * _WINDOW
        contexts, arounds, covered = [0.0] * len(cells), [0.0] * len(cells), [0.0] * len(cells)
        for n, cell in enumerate(cells):
            words, before = around[cell], past[cell]
            if words:
                near = lengths[cell - _FAR : cell + _FAR + 1]
                arounds[n] = _bm25(words, idf, _norm(sum(near), whole))
                covered[n] = sum([idf[term] for term in words]) / self._all_idf * evidence.found
                if before:
                    length = _PAST[0] * near[0] + _PAST[1] * near[1] + _PAST[2] * near[2]
                    contexts[n] = _bm25(before, idf, _norm(length, average))
        return contexts, arounds, covered

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
        """From speaker to length: who speaks, of what kind of thing, and when."""
        asked_, named, marks = self._asked, self._evidence.named, [turn.marks for turn in turns]
        nothing = [0.0] * len(turns)
        who = [1.0 if turn.speaker in named else 0.0 for turn in turns] if named else nothing
        own = [one if mark & FIRST_PERSON else 0.0 for one, mark in zip(who, marks, strict=True)] if named else nothing
        time, number = (
            [1.0 if mark & TIME else 0.0 for mark in marks],
            [1.0 if mark & NUMBER else 0.0 for mark in marks],
        )
        return (
            who,
            own,
            [asked_.meets(turn.at) for turn in turns] if asked_.year or asked_.month else nothing,
            time if asked_.when else nothing,
            number if asked_.when else nothing,
            number if asked_.how_many else nothing,
            [1.0 if mark & NAMES else 0.0 for mark in marks] if asked_.who else nothing,
            time,
            number,
            [1.0 if mark & QUESTION else 0.0 for mark in marks],
            [math.log1p(turn.length) for turn in turns],
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
    """The places of the turns in a row: between two that do not stand beside each other, so many empty cells."""
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


def _add(cells: _Words, cell: int, words: Mapping[int, float], times: float) -> None:
    here = cells[cell]
    if here is None:
        cells[cell] = {term: times * count for term, count in words.items()}
    else:
        for term, count in words.items():
            here[term] = here.get(term, 0) + times * count


def _floor(cosines: Collection[float]) -> float:
    """The cosine that texts of this model have whatever they say: nine in ten have more. From few, little is learnt."""
    count = len(cosines)
    return max(0.0, sorted(cosines)[count // 10]) * count / (count + _FEW) if cosines else 0.0


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
    *("speaker", "own", "date", "when", "when_number", "count", "who", "time", "number", "question", "length"),
    *("session", "session_best", "meaning_session", "opening"),
)
