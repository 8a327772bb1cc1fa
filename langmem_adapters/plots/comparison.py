"""Configurations of a memory side by side: what a replay has measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.plots.drawing import COLOURS, label_axes, new_figure, printable_text, use_integer_ticks
from langmem_adapters.replay import Comparison
from langmem_adapters.views.plain import amount, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_NAME_CHARS = 22
_MAX_POINTS = 150  # of a line


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
    fig = new_figure(7.2, 2.6 + 0.3 * len(rows)) if fig is None else fig
    heights = [2.0, 0.5 + 0.3 * len(rows)]
    panel_axes = fig.subplot_mosaic([["course"] * len(panels), list(panels)], height_ratios=heights)
    names = [printable_text(str(row["configuration"]), _MAX_NAME_CHARS) for row in rows]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(rows))]
    call_axes = panel_axes["course"]
    group_size = math.ceil(max(row["calls"] for row in rows) / _MAX_POINTS) or 1
    for outcome, colour in zip(comparison.values(), colours, strict=True):
        call_axes.plot(*_group_means([call.tokens for call in outcome.calls], group_size), color=colour, linewidth=1.4)
    title = "tokens of each model call" if group_size == 1 else f"tokens of a model call, means of {group_size}"
    label_axes(call_axes, title, "model call", "tokens")
    call_axes.set_ylim(bottom=0)
    call_axes.yaxis.set_major_formatter("{x:,.0f}")
    use_integer_ticks(call_axes.xaxis)
    for position, (key, title) in enumerate(panels.items()):
        values = [_panel_value(row, key) for row in rows]
        _draw_bars(panel_axes[key], title, values, names if position == 0 else [], colours)
    _stack_summaries(panel_axes["calls"], rows, colours)
    return fig


def _group_means(tokens: Sequence[int], group_size: int) -> tuple[list[float], list[float]]:
    """The means of so many calls each, and the middles of these groups: a thousand jagged lines say nothing."""
    groups = [tokens[start : start + group_size] for start in range(0, len(tokens), group_size)]
    middles = [number * group_size + (len(group) + 1) / 2 for number, group in enumerate(groups)]
    return middles, [statistics.fmean(group) for group in groups]


def _panel_value(row: dict[str, Any], key: str) -> float:
    if key == "calls":
        return float(row["calls"] + row["summary_calls"])
    return float("nan") if row[key] is None else float(row[key]) * (100 if key == "recall" else 1)


def _draw_bars(ax: Axes, title: str, values: Sequence[float], names: Sequence[str], colours: Sequence[str]) -> None:
    """A bar for each configuration, with its number behind it."""
    bars = ax.barh(range(len(values)), values, color=colours, height=0.7)
    texts = [_value_text(title, value) for value in values]
    ax.bar_label(bars, texts, padding=3, fontsize="small")
    longest = max((value for value in values if not math.isnan(value)), default=0) or 1
    ax.set_xlim(0, longest * 1.6)
    ax.set_ylim(len(values) - 0.5, -0.5)
    label_axes(ax, title, "", "")
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    ax.set_xticks([])
    ax.set_yticks(range(len(values)) if names else [], names or [], parse_math=False)


def _value_text(title: str, value: float) -> str:
    if title == "recall":
        return percent(value / 100)
    return amount(value) if title == "seconds" else f"{value:,.0f}"


def _stack_summaries(ax: Axes, rows: Sequence[dict[str, Any]], colours: Sequence[str]) -> None:
    """Mark the part of the model calls that summaries took."""
    calls, summary_calls = ([row[key] for row in rows] for key in ("calls", "summary_calls"))
    if any(summary_calls):
        ax.barh(
            range(len(rows)), summary_calls, left=calls, height=0.7,
            color=colours, hatch="////", edgecolor="white", linewidth=0,
        )  # fmt: skip
        ax.set_xlabel("hatched: for summaries", fontsize="small", loc="left")
