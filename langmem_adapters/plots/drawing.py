"""What all pictures share: axes, colours that are readable on light and dark, and texts that a font can show."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from langmem_adapters.errors import MissingDependency
from langmem_adapters.views.plain import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# Of middle lightness: at least 3 to 1 against white and against black.
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#3b82f6", "#d97706", "#16a36a", "#e0524d", "#9b6bdf", "#7d8590"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, RED, "#0e97b5")

_MISSING_CHARACTER = "\N{WHITE SQUARE}"  # matplotlib's own font has it


def axes_or_new(ax: Axes | None, height: float = 3.4) -> Axes:
    """These axes, or new ones of a figure that pyplot shows like all others. Raises MissingDependency."""
    return new_figure(6.4, height).add_subplot() if ax is None else ax


def new_figure(width: float, height: float) -> Figure:
    """A new figure, in inches, which pyplot shows like all others. Raises MissingDependency."""
    try:
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise MissingDependency("matplotlib", "notebook") from error
    figure: Figure = pyplot.figure(figsize=(width, height), layout="constrained")
    return figure


def label_axes(ax: Axes, title: str, x_label: str, y_label: str) -> None:
    """Label what is drawn, with its units, and remove what says nothing."""
    ax.set_title(title, loc="left", fontsize="medium", parse_math=False)
    ax.set_xlabel(x_label, parse_math=False)
    ax.set_ylabel(y_label, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    ax.set_axisbelow(True)


def add_legend(ax: Axes) -> None:
    """Add a legend of the colours, where there is room for it."""
    for text in ax.legend(frameon=False, fontsize="small", loc="best").get_texts():
        text.set_parse_math(False)


def use_integer_ticks(axis: Axis) -> None:
    """Count in whole numbers: there is no half of a message."""
    axis.set_major_locator(importlib.import_module("matplotlib.ticker").MaxNLocator(integer=True))


def printable_text(text: str, max_chars: int) -> str:
    """A text on one line, masked and shortened, with a square for each character that the current font lacks."""
    font_manager = importlib.import_module("matplotlib.font_manager")
    families = font_manager.FontProperties().get_family()
    properties = [font_manager.FontProperties(family=[family]) for family in families]
    fonts = [font_manager.get_font(font_manager.findfont(each)) for each in properties]
    line = one_line(text, max_chars)
    return "".join(c if any(font.get_char_index(ord(c)) for font in fonts) else _MISSING_CHARACTER for c in line)
