"""Weights for the signals of a search, fitted to questions whose answers are known, and judged on others.

Coordinate ascent on the measure itself, as D. Metzler and W. B. Croft, "Linear feature-based models for information
retrieval" (2007): one weight after the other is tried with a few other values, and keeps the best one.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

from langmem_adapters.errors import ConfigurationError

_RECALL_CUTOFFS = (5, 10)
_WEIGHT_FACTORS = (0.0, 0.5, 0.75, 1.5, 2.0)
_WEIGHTS_FROM_ZERO = (-0.5, 0.5)  # tried instead of a weight of 0
_MIN_GAIN = 0.001
_MAX_SWEEPS = 2
_FOLDS = 5
_MIN_CASES = 10
_SIGNIFICANT_ERRORS = 1.645  # standard errors: 95 %, one-sided


class Case(NamedTuple):
    """A question as the fit sees it: its group, the signals of its candidates, and what each of these answers.

    ``answers`` are by the candidate's index in ``signals``; ``answer_count`` counts all answers, found or not.
    """

    group: Hashable
    signals: Sequence[Mapping[str, float]]
    answers: Mapping[int, Collection[str]]
    answer_count: int


class Fit(NamedTuple):
    """Changed weights, and their effect on questions that took no part in the fit.

    ``before`` and ``after`` are means of recall@5, recall@10 and the reciprocal rank of the first answer.
    ``weights`` holds those that changed; it fits ``LongTermMemory(weights=...)``.
    """

    weights: dict[str, float]
    before: float
    after: float
    verdict: Literal["better", "no clear difference", "worse"]


def cross_validate(cases: Sequence[Case], weights: Mapping[str, float]) -> Fit:
    """Fit weights to all cases, and judge the fit on groups left out of it.

    With fewer than three groups, every fifth case is left out. Raises ConfigurationError for fewer than ten cases.
    """
    if len(cases) < _MIN_CASES:
        raise ConfigurationError(f"weights need at least {_MIN_CASES} questions to be fitted to, not {len(cases)}")
    groups: list[Hashable] = [case.group for case in cases]
    if len(set(groups)) < 3:  # noqa: PLR2004 - with two, a fit would see half of the questions
        groups = [number % _FOLDS for number in range(len(cases))]
    gains, before = [], []
    for held_out in dict.fromkeys(groups):
        training = [case for case, group in zip(cases, groups, strict=True) if group != held_out]
        trained = fit_weights(training, weights)
        for case, group in zip(cases, groups, strict=True):
            if group == held_out:
                before.append(_Ranking(case, weights).value())
                gains.append(_Ranking(case, trained).value() - before[-1])
    gain, standard_error = statistics.fmean(gains), statistics.stdev(gains) / math.sqrt(len(gains))
    verdict: Literal["better", "no clear difference", "worse"] = "no clear difference"
    if abs(gain) > _SIGNIFICANT_ERRORS * standard_error:
        verdict = "better" if gain > 0 else "worse"
    final = fit_weights(cases, weights)
    changed = {name: weight for name, weight in final.items() if weight != weights[name]}
    mean = statistics.fmean(before)
    return Fit(changed, mean, mean + gain, verdict)


def fit_weights(cases: Sequence[Case], weights: Mapping[str, float]) -> dict[str, float]:
    """Of the weights that were tried, those that rank the answers of these cases best."""
    best_weights = dict(weights)
    rankings = [_Ranking(case, best_weights) for case in cases]
    best_value = statistics.fmean(ranking.value() for ranking in rankings)
    for _ in range(_MAX_SWEEPS):
        value_before = best_value
        for name in weights:
            current = best_weights[name]
            for candidate in [current * factor for factor in _WEIGHT_FACTORS] if current else _WEIGHTS_FROM_ZERO:
                value = statistics.fmean(ranking.value(name, candidate - current) for ranking in rankings)
                if value > best_value + _MIN_GAIN and _has_positive_weight(best_weights, name, candidate):
                    best_value, best_weights[name] = value, round(candidate, 3)
            for ranking in rankings:
                ranking.change(name, best_weights[name] - current)
        if best_value == value_before:
            break
    return best_weights


def _has_positive_weight(weights: Mapping[str, float], name: str, candidate: float) -> bool:
    return candidate > 0 or any(weight > 0 for other, weight in weights.items() if other != name)


class _Ranking:
    """The candidates of a case with their scores, which change with the weights."""

    def __init__(self, case: Case, weights: Mapping[str, float]) -> None:
        self._case = case
        self._columns = {
            name: [signals.get(name, 0.0) for signals in case.signals]
            for name in weights
            if any(signals.get(name) for signals in case.signals)
        }
        self._totals = [0.0] * len(case.signals)
        self._value: float | None = None
        for name, weight in weights.items():
            self.change(name, weight)

    def change(self, name: str, delta: float) -> None:
        """Change a weight."""
        if delta and name in self._columns:
            self._totals = self._totals_after(name, delta)
            self._value = None

    def _totals_after(self, name: str, delta: float) -> list[float]:
        return list(map(operator.add, self._totals, [delta * value for value in self._columns[name]]))

    def value(self, name: str = "", delta: float = 0.0) -> float:
        """How well the answers rank, from 0 to 1: now, or as they would after a change."""
        if delta and name in self._columns:
            return self._measure(self._totals_after(name, delta))
        if self._value is None:
            self._value = self._measure(self._totals)
        return self._value

    def _measure(self, totals: Sequence[float]) -> float:
        answers, answer_count = self._case.answers, self._case.answer_count
        ranks = {}
        for index in answers:
            total = totals[index]
            ranks[index] = 1 + sum(map(total.__lt__, totals)) + totals[:index].count(total)
        recalls = [
            share_found([answers[index] for index, rank in ranks.items() if rank <= cutoff], answer_count)
            for cutoff in _RECALL_CUTOFFS
        ]
        return (sum(recalls) + 1 / min(ranks.values())) / (len(_RECALL_CUTOFFS) + 1)


def share_found(answers: Sequence[Collection[str]], answer_count: int) -> float:
    """The share of all answers to a question that these have together."""
    return len(set().union(*answers)) / answer_count
