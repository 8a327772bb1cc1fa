"""Tables and figures: sessions, working memory, and what a cache has saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langmem_adapters.views.markup import Html, bar, clipped, element, frame, header, note, spaced
from langmem_adapters.views.plain import amount, as_text, one_line, percent, when

__all__ = ["items", "rows", "sessions", "statistics"]

_MOST = 30  # rows
_LONG = 300  # characters of a cell
_SHORT = 20  # of a cell that is not broken into lines
_SAVED = ("saved_tokens", "saved_seconds", "saved_money")

if TYPE_CHECKING:  # shapes of what is shown; to make these classes costs time at every start

    class _Session(Protocol):
        session: str
        title: str
        messages: int
        updated_at: float | None

    class _Item(Protocol):
        @property
        def id(self) -> str: ...
        @property
        def data(self) -> Any: ...
        @property
        def metadata(self) -> Mapping[str, Any]: ...
        @property
        def updated_at(self) -> float: ...


def sessions(found: Sequence[_Session]) -> str:
    """Show sessions, those with the latest activity first."""
    cells = [(one.session, one.title, one.messages, when(one.updated_at)) for one in found[:_MOST]]
    title = f"{len(found):,} session{'' if len(found) == 1 else 's'}"
    return rows(title, ("session", "title", "messages", "last activity"), cells, total=len(found))


def items(found: Sequence[_Item]) -> str:
    """Show what a working memory holds."""
    has_metadata = any(one.metadata for one in found[:_MOST])
    columns = ("item", "data", "metadata", "changed") if has_metadata else ("item", "data", "changed")
    cells: list[Sequence[Any]] = []
    for one in found[:_MOST]:
        extra = [one.metadata] if has_metadata else []
        cells.append((one_line(one.id, 9), one.data, *extra, when(one.updated_at)))
    return rows(
        f"Working memory, {len(found):,} item{'' if len(found) == 1 else 's'}", columns, cells, total=len(found)
    )


def rows(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[Any]], *, details: Sequence[str] = (), total: int = 0
) -> str:
    """Show a table; numbers are aligned to the right, and texts are cut."""
    parts: list[Html] = [header(title, *details)]
    if cells:
        kinds = ["lm-number" if isinstance(cell, int) else "" for cell in cells[0]]
        head = [element("th", name, class_=kind) for name, kind in zip(columns, kinds, strict=True)]
        body = [element("tr", *map(_cell, line)) for line in cells]
        parts.append(element("table", element("thead", element("tr", *head)), element("tbody", *body)))
    if total > len(cells):
        parts.append(note(f"… {total - len(cells):,} more are not shown."))
    return frame(*parts)


def _cell(value: Any) -> Html:
    if isinstance(value, int) and not isinstance(value, bool):
        return element("td", f"{value:,}", class_="lm-number")
    text = as_text(value)
    return element("td", clipped(text, _LONG), class_="lm-short" if len(text) <= _SHORT else "", dir="auto")


def statistics(counts: Mapping[str, float], *, title: str = "", details: Sequence[str] = ()) -> str:
    """Show counts: the hit rate if there are hits and misses, then what was saved, then the rest."""
    parts: list[Html] = [header(title or "Statistics", *details)]
    if "hits" in counts and "misses" in counts:
        asked = counts["hits"] + counts["misses"]
        share = counts["hits"] / asked if asked else 0.0
        said = f"hit rate {percent(share)}: {counts['hits']:,} of {asked:,} requests" if asked else "no requests yet"
        parts += [element("div", said), bar(share, width="lm-wide")]
    saved = {name: counts[name] for name in _SAVED if counts.get(name)}
    shown = [_figure(f"{name.removeprefix('saved_')} saved", amount(count)) for name, count in saved.items()]
    others = {name: count for name, count in counts.items() if name not in _SAVED}
    shown += [_figure(name, f"{count:,}", is_zero=not count) for name, count in others.items()]
    return frame(*parts, element("div", *shown, class_="lm-figures"))


def _figure(name: str, said: str, *, is_zero: bool = False) -> Html:
    shown = spaced(element("b", said), element("span", one_line(name, 40).replace("_", " ")))
    return element("div", shown, class_="lm-zero" if is_zero else "")
