"""Scores: how they are spread, and what a threshold among them does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.verifier.tuning import Tuned
from langmem_adapters.model import Experience
from langmem_adapters.plots.drawing import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    add_legend,
    axes_or_new,
    label_axes,
    use_integer_ticks,
)
from langmem_adapters.views.plain import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BIN_COUNT = 20


def score_distribution(
    scores: Tuned | Iterable[Any], *, threshold: float | None = None, ax: Axes | None = None
) -> Axes:
    """The distribution of scores.

    Args:
        scores: Numbers; or objects with a score: hits of a search, experiences (those without one are left out); or
            the result of ``tune(pairs)``: then pairs that are the same are drawn apart from those that are not.
        threshold: Marked in the picture; default: the tuned one.
        ax: Where to draw.

    Raises ConfigurationError if nothing has a score, and MissingDependency.

    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> score_distribution([0.2, 0.25, 0.9], threshold=0.8).get_title(loc="left")
    '1 of 3 scores is at or above 0.80'
    """
    if not isinstance(scores, Iterable):
        raise ConfigurationError(f"scores are a list, or what tune(pairs) gives, not {type(scores).__name__}")
    groups = _score_groups(scores)
    values = [score for group in groups.values() for score in group]
    if not values:
        raise ConfigurationError("there are no scores to draw")
    if isinstance(scores, Tuned) and threshold is None:
        threshold = scores.threshold
    ax = axes_or_new(ax)
    colours = [BLUE, ORANGE][: len(groups)]
    ax.hist(list(groups.values()), bins=_bins(values), stacked=True, color=colours, label=list(groups), rwidth=0.92)
    title = f"{len(values):,} scores"
    if threshold is not None:
        _mark_threshold(ax, threshold)
        above = sum(value >= threshold for value in values)
        title = f"{above:,} of {title} {'is' if above == 1 else 'are'} at or above {threshold:.2f}"
    label_axes(ax, title, "score", "pairs" if isinstance(scores, Tuned) else "how many")
    use_integer_ticks(ax.yaxis)
    if len(groups) > 1:
        add_legend(ax)
    return ax


def threshold_curve(tuned: Tuned, *, ax: Axes | None = None) -> Axes:
    """What each threshold does to the pairs of ``tune(pairs)``: precision, recall (the hit rate), and false hits.

    Raises ConfigurationError for anything else, and MissingDependency.
    """
    if not isinstance(tuned, Tuned):
        raise ConfigurationError(f"a threshold curve needs what tune(pairs) gives, not {type(tuned).__name__}")
    ax = axes_or_new(ax)
    thresholds = [point.threshold for point in tuned.curve]
    lines: list[tuple[str, Sequence[float], str, str]] = [
        ("precision", [point.precision for point in tuned.curve], BLUE, "-"),
        ("recall (hit rate)", [point.hit_rate for point in tuned.curve], ORANGE, "-"),
        ("false hit rate", [point.false_hit_rate for point in tuned.curve], RED, "--"),
    ]
    for label, shares, colour, style in lines:
        # A threshold between two scores serves what the higher one serves.
        ax.plot(thresholds, [100 * share for share in shares], style, color=colour, drawstyle="steps-pre", label=label)
    _mark_threshold(ax, tuned.threshold)
    ax.set_ylim(0, 103)
    ax.yaxis.set_major_formatter("{x:.0f} %")
    chosen = next(point for point in tuned.curve if point.threshold == tuned.threshold)
    title = f"at {chosen.threshold:.3g}: precision {percent(chosen.precision)}, recall {percent(chosen.hit_rate)}"
    label_axes(ax, title, "threshold", "share of pairs")
    add_legend(ax)
    return ax


def _mark_threshold(ax: Axes, threshold: float) -> None:
    ax.axvline(threshold, color=GREY, linewidth=1.2, linestyle=":")


def _score_groups(scores: Tuned | Iterable[Any]) -> dict[str, list[float]]:
    if isinstance(scores, Tuned):
        return {
            "the same": [score for score, same in scores.scored if same],
            "not the same": [score for score, same in scores.scored if not same],
        }
    return {"": [value for score in scores if (value := _finite_score(score)) is not None]}


def _finite_score(item: Any) -> float | None:
    if isinstance(item, Experience):
        score = item.metric.score if item.metric else None
        return None if score is None else float(score.val)
    number = getattr(item, "score", getattr(item, "metadata", {}).get("score", item))  # a document's is there
    if isinstance(number, bool) or not isinstance(number, Real) or not math.isfinite(number):
        raise ConfigurationError(f"a score is a finite number, or what has one, not {type(item).__name__}")
    return float(number)


def _bins(values: Sequence[float]) -> list[float]:
    """Twenty between 0 and 1; ten for the scores from 1 to 10 that experiences have; otherwise twenty over all."""
    low, high = min(values), max(values)
    if low >= 0 and high <= 1:
        return [n / _BIN_COUNT for n in range(_BIN_COUNT + 1)]
    if all(value == int(value) for value in values) and low >= 1 and high <= 10:  # noqa: PLR2004 - the scale
        return [n + 0.5 for n in range(11)]
    width = (high - low) / _BIN_COUNT or 1.0
    edges = [low + n * width for n in range(_BIN_COUNT + 1)]
    return [*edges[:-1], max(edges[-1], high)]  # rounding must not leave out the highest
