"""What makes a memory fit a query: signals that only a conversation has, and a linear mix of them.

Each signal lies in [0, 1]: it is divided by the greatest value among the candidates, so one that a corpus lacks is 0
for all of them and decides nothing. The weights were fitted to questions about long conversations, by maximum
likelihood of the right turns under a softmax over the candidates, and judged on conversations left out of the fit.
"""

from __future__ import annotations

import functools
import heapq
import math
import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from langmem_adapters.cues import ASKS, FIRST_PERSON, NAMES, NUMBER, QUESTION, TIME, asked
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.protocols import Evidence, Turn

__all__ = ["SIGNALS", "Ranked", "Signal", "candidates", "meaning_of", "ranked", "weights_of"]


class Signal(NamedTuple):
    """What a signal weighs where there are words only, what it weighs beside vectors, and what it is."""

    words: float
    both: float
    what: str


SIGNALS: dict[str, Signal] = {
    "words": Signal(0.9, 0.2, "it has the words of the query (BM25)"),
    "context": Signal(2.2, 2.0, "they are in it and, worth less, in the two turns before"),
    "around": Signal(1.4, 0.4, "they are in it or in the two turns on each side"),
    "covered": Signal(1.3, 1.3, "how many of them are there"),
    "before": Signal(-0.4, -0.7, "the turn before has them: then that one is meant"),
    "answer": Signal(1.1, 0.9, "the turn before has them and is a question"),
    "replies": Signal(0.3, 0.0, "the turn before asks something"),
    "question": Signal(-0.6, -0.5, "it ends with a question"),
    "session": Signal(0.9, 0.8, "its session has them (BM25, squared: most sessions have some of them)"),
    "session_best": Signal(1.0, 0.7, "a turn of its session has them"),
    "opening": Signal(0.8, 0.8, "it is the first of its session: that is where people tell their news"),
    "speaker": Signal(1.7, 1.7, "the query names who said it"),
    "own": Signal(0.9, 0.9, "... who speaks of himself or herself"),
    "date": Signal(1.0, 1.4, "it was said at the date that the query names"),
    "when": Signal(1.1, 1.0, "the query asks when, and it names a time"),
    "when_number": Signal(0.4, 0.2, "... or a number"),
    "count": Signal(0.6, 0.5, "the query asks how many, and it names a number"),
    "who": Signal(0.6, 0.6, "the query asks who or where, and it has a name"),
    "time": Signal(0.2, 0.3, "it names a time"),
    "number": Signal(0.4, 0.3, "it names a number"),
    "length": Signal(0.4, 0.5, "it is long"),
    "meaning": Signal(0.0, 2.2, "it is near to the query in meaning (cosine)"),
    "meaning_before": Signal(0.0, 0.4, "the turn before is"),
    "meaning_after": Signal(0.0, 0.6, "the turn after is"),
    "meaning_answer": Signal(0.0, 0.5, "the turn before is, and ends with a question"),
    "meaning_session": Signal(0.0, 1.2, "a turn of its session is"),
}
"""All signals with their weights. A search takes others by name: ``LongTermMemory(..., weights={"speaker": 0.0})``."""

_K1, _B = 1.2, 0.4
_PAST = (0.25, 0.5, 1.0, 0.0, 0.0)  # what a word counts two turns before, one before, in the turn itself, after
_PAST_OF = _PAST[::-1]  # the same, seen from the word: from two turns before it to two after
_WINDOW = len(_PAST)
_APART = 16
_Words: TypeAlias = dict[int, dict[int, float]]
_BESIDE = 0.5  # of the best score: what only stands beside the words of the query must reach as much


def meaning_of(name: str) -> str:
    """What a signal is, in words; empty for one that is not known here."""
    return SIGNALS[name].what if name in SIGNALS else ""


class Ranked(NamedTuple):
    """A document that fits. ``score`` is what its signals add up to, in [0, 1]."""

    id: str
    score: float
    signals: dict[str, float]


def weights_of(changed: Mapping[str, float] | None) -> dict[str, Signal]:
    """The signals with other weights by name, for both cases. Raises ConfigurationError for a wrong name or number."""
    found = dict(SIGNALS)
    for name, weight in (changed or {}).items():
        if name not in found:
            raise ConfigurationError(f"there is no signal {name!r}; there are {', '.join(SIGNALS)}")
        if not math.isfinite(weight):
            raise ConfigurationError(f"the weight of a signal is a finite number, not {weight}")
        found[name] = Signal(weight, weight, found[name].what)
    if not any(signal.words > 0 for signal in found.values()):
        raise ConfigurationError("at least one signal needs a weight above 0")
    return found


def ranked(evidence: Evidence, meaning: Mapping[str, float], signals: Mapping[str, Signal], k: int) -> list[Ranked]:
    """Rank what an index gathered, the ``k`` best first.

    What shares nothing with the query is left out, and so is what only stands beside such a turn, unless it comes to
    half of the best score.

    Args:
        evidence: What the index knows.
        meaning: By id: how near a document is to the query, as ``(1 + cosine) / 2``; empty, where nothing is known.
        signals: Their weights.
        k: How many at the most.
    """
    values = _Values(evidence, meaning)
    places, columns, greatest = values.measured()
    if not places:
        return []
    weights = {name: signal.both if meaning else signal.words for name, signal in signals.items()}
    share = min(1.0, max(greatest["covered"], greatest["meaning"])) / sum(w for w in weights.values() if w > 0)
    scales = {name: share * weights[name] / most for name, most in greatest.items() if most > 0 and weights[name]}
    rows = list(zip(*[columns[name] for name in scales], strict=True)) or [()] * len(places)
    totals = [sum(map(operator.mul, row, scales.values())) for row in rows]
    least = _BESIDE * max(totals)
    fit = [
        (total, place, row)
        for total, place, row in zip(totals, places, rows, strict=True)
        if total >= least or values.says_it(place)
    ]
    best = heapq.nlargest(k, fit, key=_total_and_place)
    found = []
    for total, place, row in best:
        parts = {name: value * scale for (name, scale), value in zip(scales.items(), row, strict=True) if value}
        found.append(Ranked(evidence.turns[place].id, min(1.0, max(0.0, total)), parts))
    return found


def candidates(evidence: Evidence, meaning: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """All that :func:`ranked` weighs, by id: the signals that are not 0, divided by the greatest of their kind."""
    places, columns, greatest = _Values(evidence, meaning).measured()
    return {
        evidence.turns[place].id: {
            name: columns[name][n] / most for name, most in greatest.items() if most and columns[name][n]
        }
        for n, place in enumerate(places)
    }


_total_and_place = operator.itemgetter(0, 1)


class _Values:
    """The signals of the candidates, before they are scaled, in the order of ``_ORDER``.

    A spot is a place, moved so far from those of other threads that whatever has the next spot stands beside it.
    """

    def __init__(self, evidence: Evidence, meaning: Mapping[str, float]) -> None:
        self._evidence = evidence
        self._asked = asked(evidence.query)
        self._all_idf = sum(evidence.idf) or 1.0
        turns = evidence.turns
        stretch_of = Evidence.stretch_of
        apart = {number: _APART * number for number, stretch in evidence.stretches.items() if stretch.ordered}
        self._spots = {
            place: place + apart[stretch_of(place)] if stretch_of(place) in apart else -_APART * place
            for place in turns
        }
        self._lengths = {self._spots[place]: turn.length for place, turn in turns.items()}
        self._marks = {self._spots[place]: turn.marks for place, turn in turns.items()}
        scores = {place: self._bm25(words, length) for place, (length, words) in evidence.words.items()}
        self._scores = {self._spots[place]: score for place, score in scores.items() if place in turns}
        cosines = {id_: max(0.0, 2 * score - 1) for id_, score in meaning.items()}
        unknown = sum(cosines.values()) / len(cosines) if cosines else 0.0
        self._near_in_meaning = {id_ for id_, cosine in cosines.items() if cosine > 0}
        self._meaning = {self._spots[place]: cosines.get(turn.id, unknown) for place, turn in turns.items()}
        self._sessions = self._session_values(scores)

    def _bm25(
        self, words: Mapping[int, float], length: float, average: float = 0.0, idf: Sequence[float] = ()
    ) -> float:
        norm = _K1 * (1 - _B + _B * length / (average or self._evidence.average))
        idf = idf or self._evidence.idf
        score = 0.0
        for term, count in words.items():
            score += idf[term] * count / (count + norm)
        return score

    def _session_values(self, scores: Mapping[int, float]) -> dict[int, tuple[float, float, float]]:
        """Of each stretch that has an order its BM25 squared, that of its best turn, and the greatest cosine there."""
        evidence = self._evidence
        counts: dict[int, dict[int, float]] = {number: {} for number in evidence.stretches}
        best, nearest = dict.fromkeys(counts, 0.0), dict.fromkeys(counts, 0.0)
        for place, (_, words) in evidence.words.items():
            number = Evidence.stretch_of(place)
            best[number] = max(best[number], scores[place])
            for term, count in words.items():
                counts[number][term] = counts[number].get(term, 0.0) + count
        for place in evidence.candidates:
            number = Evidence.stretch_of(place)
            nearest[number] = max(nearest[number], self._meaning[self._spots[place]])
        score = functools.partial(self._bm25, average=evidence.average_stretch, idf=evidence.stretch_idf)
        return {
            number: (score(counts[number], stretch.length) ** 2, best[number], nearest[number])
            for number, stretch in evidence.stretches.items()
            if stretch.ordered
        }

    def measured(self) -> tuple[list[int], dict[str, Sequence[float]], dict[str, float]]:
        """The candidates that have any signal of the query, each of the signals of all, and its greatest value."""
        around, past = self._windows()
        there = [place for place in self._evidence.candidates if self._spots[place] in around or self.says_it(place)]
        if not there:
            return [], {}, {}
        spots = [self._spots[place] for place in there]
        signals = (
            *self._in_windows(spots, around, past),
            *self._beside(spots),
            *self._alone([self._evidence.turns[place] for place in there]),
            *self._of_sessions(there),
        )
        columns = dict(zip(_ORDER, signals, strict=True))
        return there, columns, {name: max(column) for name, column in columns.items()}

    def says_it(self, place: int) -> bool:
        """Whether a turn itself has a word of the query, or is near in meaning."""
        return place in self._evidence.words or self._evidence.turns[place].id in self._near_in_meaning

    def _windows(self) -> tuple[_Words, _Words]:
        """By spot: the words of a turn and of the two on each side; and of it and, worth less, of the two before."""
        around: _Words = {}
        past: _Words = {}
        for place in sorted(self._evidence.words.keys() & self._spots.keys()):
            spot, words = self._spots[place], self._evidence.words[place][1]
            for near, weight in enumerate(_PAST_OF, spot - 2):
                here = around.setdefault(near, {})
                for term, count in words.items():
                    here[term] = here.get(term, 0.0) + count
                if weight:
                    before = past.setdefault(near, {})
                    for term, count in words.items():
                        before[term] = before.get(term, 0.0) + weight * count
        return around, past

    def _in_windows(self, spots: Sequence[int], around: _Words, past: _Words) -> tuple[Sequence[float], ...]:
        """From context to covered."""
        length, idf, average = self._lengths.get, self._evidence.idf, self._evidence.average
        words = [around.get(spot, _NO_WORDS) for spot in spots]
        contexts = [
            self._bm25(
                past[spot],
                _PAST[0] * length(spot - 2, 0) + _PAST[1] * length(spot - 1, 0) + _PAST[2] * length(spot, 0),
                average * sum(_PAST),
            )
            if spot in past
            else 0.0
            for spot in spots
        ]
        arounds = [
            self._bm25(there, sum([length(near, 0) for near in range(spot - 2, spot + 3)]), average * _WINDOW)
            if there
            else 0.0
            for spot, there in zip(spots, words, strict=True)
        ]
        covered = [sum([idf[term] for term in there]) / self._all_idf * self._evidence.found for there in words]
        return contexts, arounds, covered

    def _beside(self, spots: Sequence[int]) -> tuple[Sequence[float], ...]:
        """From words to meaning_answer: what the turn says, and the turns beside it, each for itself."""
        score, meaning = self._scores.get, self._meaning.get
        marks = [self._marks.get(spot - 1, 0) for spot in spots]
        replies = [1.0 if mark & ASKS else 0.0 for mark in marks]
        answers = [1.0 if mark & QUESTION else 0.0 for mark in marks]
        words_before = [score(spot - 1, 0.0) for spot in spots]
        meaning_before = [meaning(spot - 1, 0.0) for spot in spots]
        return (
            [score(spot, 0.0) for spot in spots],
            words_before,
            list(map(operator.mul, words_before, replies)),
            replies,
            [meaning(spot, 0.0) for spot in spots],
            meaning_before,
            [meaning(spot + 1, 0.0) for spot in spots],
            list(map(operator.mul, meaning_before, answers)),
        )

    def _alone(self, turns: Sequence[Turn]) -> tuple[Sequence[float], ...]:
        """From speaker to length: who speaks, of what kind of thing, and when."""
        asked_, kinds = self._asked, [(turn.speaker, turn.marks) for turn in turns]
        known = {kind: self._kind(*kind) for kind in set(kinds)}  # few turns differ in them
        dated = asked_.year or asked_.month
        who, own, *what = zip(*[known[kind] for kind in kinds], strict=True)
        dates = [asked_.meets(turn.at) for turn in turns] if dated else [0.0] * len(turns)
        return (who, own, dates, *what, [math.log1p(turn.length) for turn in turns])

    def _kind(self, speaker: str, marks: int) -> tuple[float, ...]:
        """Speaker and own; and when to question."""
        asked_ = self._asked
        time, number = float(bool(marks & TIME)), float(bool(marks & NUMBER))
        named = float(speaker in self._evidence.named)
        return (
            named,
            named if marks & FIRST_PERSON else 0.0,
            time * asked_.when,
            number * asked_.when,
            number * asked_.how_many,
            float(asked_.who and bool(marks & NAMES)),
            time,
            number,
            float(bool(marks & QUESTION)),
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


_NO_WORDS: dict[int, float] = {}
_NO_SESSION = (0.0, 0.0, 0.0)
_ORDER = (
    *("context", "around", "covered"),
    *("words", "before", "answer", "replies"),
    *("meaning", "meaning_before", "meaning_after", "meaning_answer"),
    *("speaker", "own", "date", "when", "when_number", "count", "who", "time", "number", "question", "length"),
    *("session", "session_best", "meaning_session", "opening"),
)
