"""Choosing a verifier's threshold by pairs of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from langmem_adapters.errors import ConfigurationError

__all__ = ["Tuned", "TunedPoint", "tuned"]


class TunedPoint(NamedTuple):
    """What a threshold does to the pairs."""

    threshold: float
    precision: float
    """Of the pairs that are served, the share that is the same."""
    hit_rate: float
    """Of the pairs that are the same, the share that is served."""
    false_hit_rate: float
    """Of the pairs that are not the same, the share that is served."""


class Tuned(NamedTuple):
    """The threshold that serves most at the precision that was wanted, and all others beside it."""

    threshold: float
    curve: list[TunedPoint]


def tuned(scored: Sequence[tuple[float, bool]], precision: float) -> Tuned:
    """Choose among the scores that pairs got; the boolean says whether a pair is the same.

    A score of 0 is one that no threshold serves. Raises ConfigurationError, where no threshold has that precision.

    >>> tuned([(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.0, False)], precision=0.9).threshold
    0.8
    """
    if not 0 < precision <= 1:
        raise ConfigurationError(f"precision is a number above 0, and at most 1, not {precision}")
    same = sum(is_same for _, is_same in scored)
    if not same:
        raise ConfigurationError("a threshold is tuned by pairs of which at least one is the same")
    curve = [_point(scored, threshold, same) for threshold in sorted({score for score, _ in scored if score > 0})]
    good = [point for point in curve if point.precision >= precision]
    if not good:
        best = max((point.precision for point in curve), default=0.0)
        raise ConfigurationError(f"no threshold has a precision of {precision} on these pairs; the best has {best:.3f}")
    return Tuned(min(good).threshold, curve)


def _point(scored: Sequence[tuple[float, bool]], threshold: float, same: int) -> TunedPoint:
    served = [is_same for score, is_same in scored if score >= threshold]
    right, others = sum(served), len(scored) - same
    return TunedPoint(threshold, right / len(served), right / same, (len(served) - right) / others if others else 0.0)
