"""What makes a memory fit a query: signals that only a conversation has, and a linear mix of them.

Each signal lies in [0, 1]: it is divided by the greatest value among the candidates, so one that a corpus lacks is 0
for all of them and decides nothing. The weights were fitted to questions about long conversations, by maximum
likelihood of the right turns under a softmax over the candidates, and judged on conversations left out of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.protocols import Evidence
from langmem_adapters.signal_values import MaxSim, SignalValues

__all__ = ["SIGNALS", "MaxSim", "Ranked", "Signal", "candidates", "meaning_of", "ranked", "weights_of"]


class Signal(NamedTuple):
    """A signal's weight without vectors, its weight with vectors, and what it says of a memory."""

    words: float
    both: float
    description: str


SIGNALS: dict[str, Signal] = {
    "words": Signal(0.9, 0.2, "it has the words of the query (BM25)"),
    "context": Signal(2.2, 2.0, "words of the query are in it or, counting less, in the two turns before"),
    "around": Signal(1.4, 0.4, "words of the query are in it or in the two turns on each side"),
    "covered": Signal(1.3, 1.3, "how many words of the query are in it or in the two turns on each side"),
    "before": Signal(-0.4, -0.7, "the turn before has words of the query, so that one is meant"),
    "answer": Signal(1.1, 0.9, "the turn before has words of the query and is a question"),
    "replies": Signal(0.3, 0.0, "the turn before asks something"),
    "question": Signal(-0.6, -0.5, "it ends with a question"),
    "session": Signal(0.9, 0.8, "its session has words of the query (BM25, squared: most sessions have some of them)"),
    "session_best": Signal(1.0, 0.7, "a turn of its session has words of the query"),
    "opening": Signal(0.8, 0.8, "it is the first of its session: that is where people tell their news"),
    "speaker": Signal(1.7, 1.7, "the query names who said it"),
    "own": Signal(0.9, 0.9, "the query names who said it, and it is in the first person"),
    "teller": Signal(1.4, 1.4, "the query asks what the model said, and the model said it; or the same of the user"),
    "date": Signal(1.0, 1.4, "it was said at the date that the query names"),
    "when": Signal(1.1, 1.0, "the query asks when, and it names a time"),
    "when_number": Signal(0.4, 0.2, "the query asks when, and it names a number"),
    "count": Signal(0.6, 0.5, "the query asks how many, and it names a number"),
    "who": Signal(0.6, 0.6, "the query asks who or where, and it has a name"),
    "time": Signal(0.2, 0.3, "it names a time"),
    "number": Signal(0.4, 0.3, "it names a number"),
    "length": Signal(0.4, 0.5, "it is long"),
    "newer": Signal(0.15, 0.15, "it was said later than others: where something has changed, the latest is true"),
    "meaning": Signal(0.0, 2.2, "it is near to the query in meaning (cosine)"),
    "meaning_before": Signal(0.0, 0.4, "the turn before is near to the query in meaning"),
    "meaning_after": Signal(0.0, 0.6, "the turn after is near to the query in meaning"),
    "meaning_answer": Signal(0.0, 0.5, "the turn before is near to the query in meaning, and ends with a question"),
    "meaning_session": Signal(0.0, 1.2, "a turn of its session is near to the query in meaning"),
    "pieces": Signal(0.0, 3.0, "it, or the turn before, is near to each word of the query in meaning"),
}
"""All signals with their weights. A search takes others by name: ``LongTermMemory(..., weights={"speaker": 0.0})``."""

_MAX_SIM_CANDIDATES = 32  # how many of the best by all other signals are compared word by word
_MIN_SHARE_OF_BEST = 0.5  # share of the best score that a turn must reach if only turns beside it match


def meaning_of(name: str) -> str:
    """What a signal says, in words; empty for an unknown one."""
    return SIGNALS[name].description if name in SIGNALS else ""


class Ranked(NamedTuple):
    """A document that fits. ``score`` is the sum of its signals, in [0, 1]."""

    id: str
    score: float
    signals: dict[str, float]


def weights_of(changed: Mapping[str, float] | None) -> dict[str, Signal]:
    """The signals with changed weights, for both cases. Raises ConfigurationError for a wrong name or number."""
    signals = dict(SIGNALS)
    if not (changed is None or isinstance(changed, Mapping)):
        raise ConfigurationError(f"weights are a dictionary of numbers by signal, not {type(changed).__name__}")
    for name, weight in (changed or {}).items():
        if name not in signals:
            raise ConfigurationError(f"there is no signal {name!r}; there are {', '.join(SIGNALS)}")
        if not isinstance(weight, int | float) or not math.isfinite(weight):
            raise ConfigurationError(f"the weight of a signal is a finite number, not {weight!r:.50}")
        signals[name] = Signal(weight, weight, signals[name].description)
    if not any(signal.words > 0 for signal in signals.values()):
        raise ConfigurationError("at least one signal needs a weight above 0")
    return signals


def ranked(
    evidence: Evidence,
    meaning: Mapping[str, float],
    signals: Mapping[str, Signal],
    k: int,
    *,
    max_sim: MaxSim | None = None,
    explain: bool = True,
    wanted: Collection[str] = (),
) -> list[Ranked]:
    """Rank what an index gathered, the ``k`` best first.

    A document that shares nothing with the query is left out, and so is one that only stands beside a document that
    does, unless it reaches half of the best score.

    Args:
        evidence: What the index knows.
        meaning: By id: how near a document is to the query, as ``(1 + cosine) / 2``; empty if nothing is known.
        signals: Their weights.
        k: How many at most.
        max_sim: Gives, for the best by all other signals, how near they come to each word of the query.
        explain: Fill ``signals`` of the results.
        wanted: The ids of those that a filter wants, which nearer ones do not make unlike the query.
    """
    values = SignalValues(evidence, meaning, wanted)
    places, columns, greatest = values.measure()
    if not places:
        return []
    weights = {name: signal.both if meaning else signal.words for name, signal in signals.items()}
    piece_weight = weights.pop("pieces")
    scales = _scales(greatest, weights)
    totals = _totals(columns, scales)
    similarities = _max_sims(values, places, totals, max_sim) if piece_weight and max_sim is not None else []
    if any(similarities):
        columns["pieces"], weights["pieces"] = similarities, piece_weight
        scales["pieces"] = piece_weight / max(similarities)
        totals = [total + value * scales["pieces"] for total, value in zip(totals, similarities, strict=True)]
    max_total = sum(weight for weight in weights.values() if weight > 0) or 1.0
    factor = min(1.0, max(greatest["covered"], greatest["meaning"])) / max_total
    min_total = _MIN_SHARE_OF_BEST * max(totals)
    matches = [
        (total, place, index)
        for index, (total, place) in enumerate(zip(totals, places, strict=True))
        if total >= min_total or values.matches(place)
    ]
    results = []
    for total, place, index in sorted(matches, reverse=True)[:k]:
        score = min(1.0, max(0.0, factor * total))
        present = [name for name in scales if columns[name][index]] if explain else []
        contributions = {name: factor * (columns[name][index] * scales[name]) for name in present}
        results.append(Ranked(evidence.turns[place].id, score, contributions))
    return results


def _scales(greatest: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """The factor for each signal's values; signals that no document has, or of no weight, are left out."""
    return {name: weights[name] / maximum for name, maximum in greatest.items() if maximum > 0 and weights[name]}


def _totals(columns: Mapping[str, Sequence[float]], scales: Mapping[str, float]) -> list[float]:
    """The sum of each candidate's signals."""
    totals = [0.0] * len(columns["words"])
    for name, scale in scales.items():
        totals = [total + value * scale for total, value in zip(totals, columns[name], strict=True)]
    return totals


def _max_sims(values: SignalValues, places: Sequence[int], totals: Sequence[float], max_sim: MaxSim) -> list[float]:
    """How near the best candidates come to each word of the query; 0 for the others, which so stay behind them."""
    similarities = [0.0] * len(places)
    best = sorted(range(len(places)), key=totals.__getitem__, reverse=True)[:_MAX_SIM_CANDIDATES]
    for index, value in zip(best, values.max_sim([places[index] for index in best], max_sim), strict=True):
        similarities[index] = value
    return similarities


def candidates(
    evidence: Evidence, meaning: Mapping[str, float], max_sim: MaxSim | None = None
) -> dict[str, dict[str, float]]:
    """What :func:`ranked` weighs, by id: the signals that are not 0, divided by the greatest of their kind.

    The weights of :data:`SIGNALS` decide which are compared word by word.
    """
    values = SignalValues(evidence, meaning)
    places, columns, greatest = values.measure()
    if places and max_sim is not None:
        scales = _scales(greatest, {name: signal.both for name, signal in SIGNALS.items()})
        columns["pieces"] = _max_sims(values, places, _totals(columns, scales), max_sim)
        greatest["pieces"] = max(columns["pieces"])
    return {
        evidence.turns[place].id: {
            name: columns[name][index] / maximum
            for name, maximum in greatest.items()
            if maximum and columns[name][index]
        }
        for index, place in enumerate(places)
    }
