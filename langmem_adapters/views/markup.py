"""HTML that is safe by its type: any text that is not :class:`Html` is escaped as it is put into an element."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from langmem_adapters.errors import LangmemError
from langmem_adapters.views.plain import one_line, shorten
from langmem_adapters.views.style import STYLE

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_MAX_REASON_CHARS = 300


class Html(str):
    """Markup that was made here, in which all other text is escaped."""

    __slots__ = ()


def escape(text: str) -> Html:
    """A text as markup: it can neither open an element nor leave an attribute."""
    return text if isinstance(text, Html) else Html(text.translate(_ESCAPES))


def element(tag: str, *children: str, **attributes: str) -> Html:
    """An element; ``class_`` stands for ``class``, and an empty attribute is left out.

    >>> element("b", "<script>", title='"')
    '<b title="&quot;">&lt;script&gt;</b>'
    """
    attribute_text = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{value.translate(_ESCAPES)}"'
        for name, value in attributes.items()
        if value
    )
    return Html(f"<{tag}{attribute_text}>{''.join(map(escape, children))}</{tag}>")


def join(parts: Iterable[str]) -> Html:
    """Pieces of markup, one after the other."""
    return Html("".join(map(escape, parts)))


def join_spaced(*parts: str) -> Html:
    """Markup in one line, with spaces, which keep words apart if a site drops the style."""
    return Html(" ".join(map(escape, filter(None, parts))))


def clip(text: str, limit: int, to_markup: Callable[[str], Html] = escape, *, omitted: int = 0) -> Html:
    """The beginning of a text, and how much of it is left out; ``to_markup`` makes markup of the beginning.

    ``omitted`` characters are left out already.
    """
    visible, rest = shorten(text, limit)
    if not omitted + rest:
        return to_markup(visible)
    return join([to_markup(visible), element("span", f" … {omitted + rest:,} more characters", class_="lm-dim")])


def frame(*children: str) -> str:
    """A view: its own style, which affects nothing else, and its content."""
    return str(element("div", Html(f"<style>{STYLE}</style>"), *children, class_="langmem-view"))


def header(title: str, *details: str) -> Html:
    """The first line of a view: its title, and those details that are not empty."""
    spans = [element("span", one_line(detail, 80), class_="lm-dim") for detail in details if detail]
    return element("div", join_spaced(element("strong", one_line(title, 120)), *spans), class_="lm-head")


def note(text: str) -> Html:
    """A remark between the things that are shown."""
    return element("div", text, class_="lm-note")


def bar(share: float, *, width: str = "") -> Html:
    """A share from 0 to 1 as a bar; the number must stand beside it."""
    filled = element("span", style=f"width:{100 * min(max(0.0, share), 1.0):.0f}%")
    return element("span", filled, class_=f"lm-bar {width}".rstrip(), aria_hidden="true")


def render_safely(subject: object, view: Callable[[], str]) -> str:
    """A view, or one sentence that says why there is none: an outage is no reason to hide an object."""
    try:
        return view()
    except Exception as error:  # noqa: BLE001 - a notebook would show a traceback in place of the object
        reason = str(error) if isinstance(error, LangmemError) else type(error).__name__
        return frame(note(f"This {type(subject).__name__} cannot be shown now: {one_line(reason, _MAX_REASON_CHARS)}"))
