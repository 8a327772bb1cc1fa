"""What a replay has measured: as a table in text and HTML, and as rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from langmem_adapters.views import one_line
from langmem_adapters.views.markup import element, frame, header


class Call(NamedTuple):
    """A model call of a conversation: the tokens that it was shown, and the seconds that the memory took for them."""

    tokens: int
    seconds: float


class Outcome(NamedTuple):
    """What a configuration did.

    ``calls`` are those for answers; ``served`` counts answers that needed none; ``summaries`` counts model calls for
    summaries, and ``failed`` those summaries that were not made. ``tokens`` are all that went into models and came
    out of them. ``recall`` is the mean share of a question's evidence that a model would be shown, in the window or
    recalled; None: nothing was asked. ``seconds`` is the whole conversation without the questions.
    """

    calls: list[Call]
    served: int
    summaries: int
    failed: int
    tokens: int
    recall: float | None
    seconds: float

    @property
    def tokens_per_call(self) -> float:
        """The mean of what a call was shown; 0 if there was none."""
        return statistics.fmean(call.tokens for call in self.calls) if self.calls else 0.0

    @property
    def most_tokens(self) -> int:
        """The most that a call was shown."""
        return max((call.tokens for call in self.calls), default=0)


_COLUMNS = {
    "configuration": "",
    "calls": "model calls",
    "served": "served",
    "summary_calls": "for summaries",
    "failed": "failed summaries",
    "tokens_per_call": "tokens a call",
    "most_tokens": "at most",
    "tokens": "tokens in all",
    "recall": "recall",
    "seconds": "seconds",
}
_MAX_NAME_CHARS = 60
_OMITTED = {"served": 0, "summary_calls": 0, "failed": 0, "recall": None}  # columns to leave out if all have this value


class Comparison(dict[str, Outcome]):
    """Outcomes by the name of their configuration; shown as a table, one a line."""

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each configuration, as ``pandas.DataFrame`` takes them."""
        return [
            {
                "configuration": name,
                "calls": len(outcome.calls),
                "served": outcome.served,
                "summary_calls": outcome.summaries,
                "failed": outcome.failed,
                "tokens_per_call": outcome.tokens_per_call,
                "most_tokens": outcome.most_tokens,
                "tokens": outcome.tokens,
                "recall": outcome.recall,
                "seconds": outcome.seconds,
            }
            for name, outcome in self.items()
        ]

    def __repr__(self) -> str:
        cells = self._cells()
        name_width, *widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for name, *numbers in cells:
            columns = [number.rjust(width) for number, width in zip(numbers, widths, strict=True)]
            lines.append("  ".join([name.ljust(name_width), *columns]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        titles, *rows = self._cells()
        body = element("tbody", *(_table_row("td", row) for row in rows))
        table = element("table", element("thead", _table_row("th", titles)), body)
        return frame(header(f"{len(rows):,} configuration{'' if len(rows) == 1 else 's'}"), table)

    def _cells(self) -> list[list[str]]:
        rows = self.rows()
        names = [name for name in _COLUMNS if name not in _OMITTED or any(row[name] != _OMITTED[name] for row in rows)]
        return [[_COLUMNS[name] for name in names], *([_cell(name, row[name]) for name in names] for row in rows)]


def _table_row(tag: str, cells: Sequence[str]) -> str:
    return element("tr", *(element(tag, cell, class_="lm-number" if n else "") for n, cell in enumerate(cells)))


def _cell(name: str, value: Any) -> str:
    if name == "configuration":
        return one_line(str(value), _MAX_NAME_CHARS)
    if value is None:
        return ""
    if name == "recall":
        return f"{100 * value:.1f} %"
    return f"{value:.3f}" if name == "seconds" else f"{value:,.0f}"
