"""Configurations of a memory side by side: what a replay has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.plots.drawing import COLOURS, figure, printable, tidy, whole
from langmem_adapters.replay import Comparison
from langmem_adapters.views.plain import amount, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["side_by_side"]

_LONGEST_NAME = 22
_MOST_POINTS = 150  # of a line


def side_by_side(comparison: Comparison, *, fig: Figure | None = None) -> Figure:
    """The tokens of each model call over the conversation, and below it model calls, tokens, recall and time.

    Args:
        comparison: What :func:`~langmem_adapters.replay.replay` gave.
        fig: An empty figure, or a part of one (``Figure.subfigures``), to draw on.

    Raises ConfigurationError if nothing was compared, and MissingDependency.

    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> from langmem_adapters import Message
    >>> from langmem_adapters.replay import Configuration, replay
    >>> said = [Message(role=role, content="Hello.") for role in ("user", "assistant")]
    >>> figure = side_by_side(replay(said, {"all": Configuration()}))
    >>> [ax.get_title(loc="left") for ax in figure.axes]
    ['tokens of each model call', 'model calls', 'tokens in all', 'seconds']
    """
    if not isinstance(comparison, Comparison):
        raise ConfigurationError(f"a comparison is what replay(…) gives, not {type(comparison).__name__}")
    rows = comparison.rows()
    if not rows:
        raise ConfigurationError("this comparison is empty: there is nothing to draw")
    panels = {"calls": "model calls", "tokens": "tokens in all", "recall": "recall", "seconds": "seconds"}
    if all(row["recall"] is None for row in rows):
        del panels["recall"]
    fig = figure(7.2, 2.6 + 0.3 * len(rows)) if fig is None else fig
    places = fig.subplot_mosaic([["course"] * len(panels), list(panels)], height_ratios=[2.0, 0.5 + 0.3 * len(rows)])
    names = [printable(str(row["configuration"]), _LONGEST_NAME) for row in rows]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(rows))]
    course = places["course"]
    together = math.ceil(max(row["calls"] for row in rows) / _MOST_POINTS) or 1
    for outcome, colour in zip(comparison.values(), colours, strict=True):
        course.plot(*_course([call.tokens for call in outcome.calls], together), color=colour, linewidth=1.4)
    title = "tokens of each model call" if together == 1 else f"tokens of a model call, means of {together}"
    tidy(course, title, "model call", "tokens")
    course.set_ylim(bottom=0)
    course.yaxis.set_major_formatter("{x:,.0f}")
    whole(course.xaxis)
    for place, (key, title) in enumerate(panels.items()):
        _bars(places[key], title, [_value(row, key) for row in rows], names if place == 0 else [], colours)
    _stack_summaries(places["calls"], rows, colours)
    return fig


def _course(tokens: Sequence[int], together: int) -> tuple[list[float], list[float]]:
    """The means of so many calls each, and the middles of these groups: a thousand jagged lines say nothing."""
    pages = [tokens[start : start + together] for start in range(0, len(tokens), together)]
    middles = [number * together + (len(page) + 1) / 2 for number, page in enumerate(pages)]
    return middles, [statistics.fmean(page) for page in pages]


def _value(row: dict[str, Any], key: str) -> float:
    if key == "calls":
        return float(row["calls"] + row["summary_calls"])
    return float("nan") if row[key] is None else float(row[key]) * (100 if key == "recall" else 1)


def _bars(ax: Axes, title: str, values: Sequence[float], names: Sequence[str], colours: Sequence[str]) -> None:
    """A bar for each configuration, with its number behind it."""
    bars = ax.barh(range(len(values)), values, color=colours, height=0.7)
    texts = [_text(title, value) for value in values]
    ax.bar_label(bars, texts, padding=3, fontsize="small")
    ax.set_xlim(0, (max((value for value in values if value == value), default=0) or 1) * 1.6)  # noqa: PLR0124 - not a NaN
    ax.set_ylim(len(values) - 0.5, -0.5)
    tidy(ax, title, "", "")
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    ax.set_xticks([])
    ax.set_yticks(range(len(values)) if names else [], names or [], parse_math=False)


def _text(title: str, value: float) -> str:
    if title == "recall":
        return percent(value / 100)
    return amount(value) if title == "seconds" else f"{value:,.0f}"


def _stack_summaries(ax: Axes, rows: Sequence[dict[str, Any]], colours: Sequence[str]) -> None:
    """Mark the part of the model calls that summaries took."""
    made = [row["summary_calls"] for row in rows]
    if any(made):
        starts = [row["calls"] for row in rows]
        ax.barh(
            range(len(rows)), made, left=starts, height=0.7, color=colours, hatch="////", edgecolor="white", linewidth=0
        )
        ax.set_xlabel("hatched: for summaries", fontsize="small", loc="left")
