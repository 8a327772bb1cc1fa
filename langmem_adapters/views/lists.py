"""Results that show themselves in a notebook, and are plain lists and dictionaries otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from langmem_adapters.views.markup import render_safely
from langmem_adapters.views.plain import one_line
from langmem_adapters.views.tables import statistics

T = TypeVar("T")

_MAX_CHARS = 1_200  # of an object
_MAX_ITEMS = 1_000


def print_masked(subject: object, printer: Any, cycle: bool) -> None:  # noqa: ARG001 - as IPython calls it
    """Write an object as IPython's ``_repr_pretty_``: a notebook is stored with this text, too, beside the view."""
    printer.text(one_line(repr(subject), _MAX_CHARS))


class Listing(list[T]):
    """A list with a view.

    Args:
        items: The items of the list.
        view: Shows the list: a function of a module, so that the list can be pickled.
        about: Further arguments of the view.

    >>> from langmem_adapters.views import rows
    >>> found = Listing([1, 2], lambda numbers: rows("Numbers", ["n"], [[n] for n in numbers]))
    >>> found == [1, 2], "<table>" in found._repr_html_()
    (True, True)
    """

    def __init__(self, items: Iterable[T], view: Callable[..., str], **about: Any) -> None:
        super().__init__(items)
        self._view = view
        self._about = about

    def _repr_html_(self) -> str:
        return render_safely(self, lambda: self._view(self, **self._about))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 - as IPython calls it
        """See :func:`print_masked`; the items may be of another library."""
        lines = [one_line(repr(item), _MAX_CHARS) for item in self[:_MAX_ITEMS]]
        lines += ["…"] if len(self) > _MAX_ITEMS else []
        printer.text("[" + ",\n ".join(lines) + "]")


class Figures(dict[str, Any]):
    """Counts by name, with a view.

    >>> Figures({"hits": 3, "misses": 1})
    {'hits': 3, 'misses': 1}
    """

    def __init__(self, counts: Mapping[str, float], **about: Any) -> None:
        super().__init__(counts)
        self._about = about

    def _repr_html_(self) -> str:
        return render_safely(self, lambda: statistics(self, **self._about))
