"""A row's figures as a drawing: bars on a logarithmic scale, the limit first, then ours, then the peers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from tests.benchmarks.goals import SECONDS

__all__ = ["plot"]

_WIDTH, _LEFT, _RIGHT = 720, 210, 110
_BAR, _GAP, _TOP = 14, 4, 34
_COLOURS = {"limit": "#8a8f98", "ours": "#2f6fde"}
_PEER = "#d98c3f"
_TEXT = "#6b7280"  # can be read on white and on black


def plot(row: Mapping[str, Any]) -> str:
    """Draw a row as SVG, a group of bars for each size."""
    groups = [(line["size"], _bars(line), line["unit"]) for line in row["lines"]]
    scaled = [value * SECONDS.get(unit, 1.0) for _, bars, unit in groups for _, value in bars if value > 0]
    low, high = math.floor(math.log10(min(scaled))), math.ceil(math.log10(max(scaled)))
    parts, y = [], _TOP
    for size, bars, unit in groups:
        parts.append(_label(0, y + _BAR - 3, size, weight="bold"))
        y += _BAR + _GAP
        for name, value in bars:
            share = (math.log10(max(value * SECONDS.get(unit, 1.0), 10.0**low)) - low) / max(high - low, 1)
            width = max(share * (_WIDTH - _LEFT - _RIGHT), 2)
            parts.append(_label(_LEFT - 8, y + _BAR - 3, name, anchor="end"))
            colour = _COLOURS.get(name, _PEER)
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR}" rx="2" fill="{colour}"/>')
            parts.append(_label(_LEFT + width + 6, y + _BAR - 3, f"{value:.3g} {unit}"))
            y += _BAR + _GAP
        y += _GAP
    title = _label(0, 16, f"{row['title']} (logarithmic; shorter is faster)", weight="bold")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}"'
        f' font-family="sans-serif" font-size="12">{title}{"".join(parts)}</svg>\n'
    )


def _bars(line: Mapping[str, Any]) -> list[tuple[str, float]]:
    limit = [("limit", line["limit"])] if line["limit"] else []
    return [*limit, ("ours", line["ours"]), *line["peers"].items()]


def _label(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" fill="{_TEXT}"'
    return f'<text x="{x:.0f}" y="{y:.0f}" {style}>{escape(text)}</text>'
