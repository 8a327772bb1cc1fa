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
from typing import NamedTuple

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
    "session": Signal(0.9, 0.8, "its session has them (BM25)"),
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
_PAST_LENGTH = sum(_PAST)
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
    places, rows, greatest = values.measured()
    if not rows:
        return []
    weights = {name: signal.both if meaning else signal.words for name, signal in signals.items()}
    share = min(1.0, max(greatest["covered"], greatest["meaning"])) / sum(w for w in weights.values() if w > 0)
    scales = [share * weights[name] / most if most > 0 else 0.0 for name, most in greatest.items()]
    totals = [sum(map(operator.mul, row, scales)) for row in rows]
    least = _BESIDE * max(totals)
    fit = [
        (total, place, row)
        for total, place, row in zip(totals, places, rows, strict=True)
        if total >= least or values.says_it(place)
    ]
    best = heapq.nlargest(k, fit, key=_total_and_place)
    found = []
    for total, place, row in best:
        parts = {name: value * scale for name, value, scale in zip(_ORDER, row, scales, strict=True) if value * scale}
        found.append(Ranked(evidence.turns[place].id, min(1.0, max(0.0, total)), parts))
    return found


def candidates(evidence: Evidence, meaning: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """All that :func:`ranked` weighs, by id: the signals that are not 0, divided by the greatest of their kind."""
    places, rows, greatest = _Values(evidence, meaning).measured()
    return {
        evidence.turns[place].id: {
            name: value / most for (name, most), value in zip(greatest.items(), row, strict=True) if value and most
        }
        for place, row in zip(places, rows, strict=True)
    }


_total_and_place = operator.itemgetter(0, 1)


class _Said(NamedTuple):
    """A turn, its words of the query, their BM25, and how near it is in meaning."""

    turn: Turn
    words: Mapping[int, int]
    score: float
    meaning: float


class _Values:
    """The signals of each place, before they are scaled, in this order."""

    def __init__(self, evidence: Evidence, meaning: Mapping[str, float]) -> None:
        self._evidence = evidence
        self._asked = asked(evidence.query)
        cosines = {id_: max(0.0, 2 * score - 1) for id_, score in meaning.items()}
        unknown = sum(cosines.values()) / len(cosines) if cosines else 0.0
        self._near_in_meaning = {id_ for id_, cosine in cosines.items() if cosine > 0}
        self._all_idf = sum(evidence.idf) or 1.0
        scores = {place: self._bm25(words, length) for place, (length, words) in evidence.words.items()}
        self._said = {
            place: _Said(
                turn,
                evidence.words[place][1] if place in evidence.words else _NO_WORDS,
                scores.get(place, 0.0),
                cosines.get(turn.id, unknown),
            )
            for place, turn in evidence.turns.items()
        }
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
        """Of each stretch that has an order its BM25, that of its best turn, and the greatest cosine there."""
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
            nearest[number] = max(nearest[number], self._said[place].meaning)
        score = functools.partial(self._bm25, average=evidence.average_stretch, idf=evidence.stretch_idf)
        return {
            number: (score(counts[number], stretch.length), best[number], nearest[number])
            for number, stretch in evidence.stretches.items()
            if stretch.ordered
        }

    def measured(self) -> tuple[list[int], list[tuple[float, ...]], dict[str, float]]:
        """The candidates that have any signal of the query, their signals, and the greatest of each."""
        measured = [(place, row) for place in self._evidence.candidates if (row := self.of(place)) is not None]
        rows = [row for _, row in measured]
        greatest = dict(zip(_ORDER, map(max, zip(*rows, strict=True)), strict=True)) if rows else {}
        return [place for place, _ in measured], rows, greatest

    def of(self, place: int) -> tuple[float, ...] | None:
        """All signals of a place; None, if nothing of the query is in it, beside it or in its meaning."""
        near = self._near(place)
        around, windows = self._windows(near)
        if not around and not self.says_it(place):
            return None
        session = self._sessions.get(Evidence.stretch_of(place), _NO_SESSION)
        opening = session is not _NO_SESSION and Evidence.stretch_of(place - 1) != Evidence.stretch_of(place)
        return (*windows, *self._beside(near), *self._alone(self._said[place].turn), *session, float(opening))

    def says_it(self, place: int) -> bool:
        """Whether a turn itself has a word of the query, or is near in meaning."""
        said = self._said[place]
        return bool(said.words) or said.turn.id in self._near_in_meaning

    def _near(self, place: int) -> list[_Said | None]:
        """The two turns before, the turn itself and the two after; None, where none stands."""
        stretch = Evidence.stretch_of(place)
        if stretch not in self._sessions:
            return [None, None, self._said[place], None, None]
        near = range(place - 2, place + 3)
        if Evidence.stretch_of(near[0]) == stretch == Evidence.stretch_of(near[-1]):
            return list(map(self._said.get, near))
        return [self._said.get(other) if Evidence.stretch_of(other) == stretch else None for other in near]

    def _windows(self, near: Sequence[_Said | None]) -> tuple[bool, tuple[float, ...]]:
        """Whether there are words in a turn or beside it, and context, around, covered."""
        around: dict[int, float] = {}
        past: dict[int, float] = {}
        long = long_past = 0.0
        for said, weight in zip(near, _PAST, strict=True):
            if said is None:
                continue
            turn, words, _, _ = said
            long += turn.length
            long_past += weight * turn.length
            for term, count in words.items():
                around[term] = around.get(term, 0.0) + count
                if weight:
                    past[term] = past.get(term, 0.0) + weight * count
        if not around:
            return False, (0.0, 0.0, 0.0)
        average, idf = self._evidence.average, self._evidence.idf
        covered = sum([idf[term] for term in around]) / self._all_idf * self._evidence.found
        context = self._bm25(past, long_past, average * _PAST_LENGTH)
        return True, (context, self._bm25(around, long, average * len(_PAST)), covered)

    def _beside(self, near: Sequence[_Said | None]) -> tuple[float, ...]:
        """From words to meaning_answer: what the turn says, and the turns beside it, each for itself."""
        _, before, here, after, _ = (said or _NOBODY for said in near)
        replies = float(bool(before.turn.marks & ASKS))
        answers = float(bool(before.turn.marks & QUESTION))
        words = (here.score, before.score, before.score * replies, replies)
        return (*words, here.meaning, before.meaning, after.meaning, before.meaning * answers)

    def _alone(self, turn: Turn) -> tuple[float, ...]:
        """From speaker to length: who speaks, of what kind of thing, and when."""
        asked_, marks = self._asked, turn.marks
        time, number = float(bool(marks & TIME)), float(bool(marks & NUMBER))
        speaker = float(turn.speaker in self._evidence.named)
        return (
            speaker,
            speaker if marks & FIRST_PERSON else 0.0,
            asked_.meets(turn.at) if asked_.year or asked_.month else 0.0,
            time * asked_.when,
            number * asked_.when,
            number * asked_.how_many,
            float(asked_.who and bool(marks & NAMES)),
            time,
            number,
            float(bool(marks & QUESTION)),
            math.log1p(turn.length),
        )


_NO_WORDS: Mapping[int, int] = {}
_NO_SESSION = (0.0, 0.0, 0.0)
_NOBODY = _Said(Turn("", 0, "", None, 0), _NO_WORDS, 0.0, 0.0)
_ORDER = (
    *("context", "around", "covered"),
    *("words", "before", "answer", "replies"),
    *("meaning", "meaning_before", "meaning_after", "meaning_answer"),
    *("speaker", "own", "date", "when", "when_number", "count", "who", "time", "number", "question", "length"),
    *("session", "session_best", "meaning_session", "opening"),
)
