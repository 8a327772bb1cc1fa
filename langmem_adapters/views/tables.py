"""Tables and figures: sessions, working memory, and what a cache has saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from langmem_adapters.views.markup import Html, bar, clip, element, frame, header, join_spaced, note
from langmem_adapters.views.plain import amount, as_text, format_time, one_line, percent

_MAX_ROWS = 30
_MAX_CHARS = 300  # of a cell
_MAX_UNBROKEN_CHARS = 20  # of a cell that is not broken into lines
_SAVED_COUNTS = ("saved_tokens", "saved_seconds", "saved_money")

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


def sessions(infos: Sequence[_Session]) -> str:
    """Show sessions, those with the latest activity first."""
    cells = [(each.session, each.title, each.messages, format_time(each.updated_at)) for each in infos[:_MAX_ROWS]]
    title = f"{len(infos):,} session{'' if len(infos) == 1 else 's'}"
    return rows(title, ("session", "title", "messages", "last activity"), cells, total=len(infos))


def items(entries: Sequence[_Item]) -> str:
    """Show what a working memory holds."""
    has_metadata = any(item.metadata for item in entries[:_MAX_ROWS])
    columns = ("item", "data", "metadata", "changed") if has_metadata else ("item", "data", "changed")
    cells: list[Sequence[Any]] = []
    for item in entries[:_MAX_ROWS]:
        extra = [item.metadata] if has_metadata else []
        cells.append((one_line(item.id, 9), item.data, *extra, format_time(item.updated_at)))
    return rows(
        f"Working memory, {len(entries):,} item{'' if len(entries) == 1 else 's'}", columns, cells, total=len(entries)
    )


def rows(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[Any]], *, details: Sequence[str] = (), total: int = 0
) -> str:
    """Show a table; numbers are aligned to the right, and texts are cut."""
    parts: list[Html] = [header(title, *details)]
    if cells:
        classes = ["lm-number" if isinstance(cell, int) else "" for cell in cells[0]]
        head = [element("th", name, class_=class_name) for name, class_name in zip(columns, classes, strict=True)]
        body = [element("tr", *map(_cell, row)) for row in cells]
        parts.append(element("table", element("thead", element("tr", *head)), element("tbody", *body)))
    if total > len(cells):
        parts.append(note(f"… {total - len(cells):,} more are not shown."))
    return frame(*parts)


def _cell(value: Any) -> Html:
    if isinstance(value, int) and not isinstance(value, bool):
        return element("td", f"{value:,}", class_="lm-number")
    text = as_text(value)
    class_name = "lm-short" if len(text) <= _MAX_UNBROKEN_CHARS else ""
    return element("td", clip(text, _MAX_CHARS), class_=class_name, dir="auto")


def statistics(counts: Mapping[str, float], *, title: str = "", details: Sequence[str] = ()) -> str:
    """Show counts: the hit rate if there are hits and misses, then what was saved, then the rest."""
    parts: list[Html] = [header(title or "Statistics", *details)]
    if "hits" in counts and "misses" in counts:
        requests = counts["hits"] + counts["misses"]
        share, text = 0.0, "no requests yet"
        if requests:
            share = counts["hits"] / requests
            text = f"hit rate {percent(share)}: {counts['hits']:,} of {requests:,} requests"
        parts += [element("div", text), bar(share, width="lm-wide")]
    saved = {name: counts[name] for name in _SAVED_COUNTS if counts.get(name)}
    figures = [_figure(f"{name.removeprefix('saved_')} saved", amount(count)) for name, count in saved.items()]
    others = {name: count for name, count in counts.items() if name not in _SAVED_COUNTS}
    figures += [_figure(name, f"{count:,}", is_zero=not count) for name, count in others.items()]
    return frame(*parts, element("div", *figures, class_="lm-figures"))


def _figure(name: str, number: str, *, is_zero: bool = False) -> Html:
    content = join_spaced(element("b", number), element("span", one_line(name, 40).replace("_", " ")))
    return element("div", content, class_="lm-zero" if is_zero else "")
