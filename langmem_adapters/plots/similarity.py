"""A map of what a memory holds, on which things that mean nearly the same lie close together."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, MissingDependency
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.plots.drawing import COLOURS, GREY, RED, axes, legend, printable, tidy
from langmem_adapters.recall.memories import SPEAKERS
from langmem_adapters.validation import checked_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["similarity_map"]

_LONGEST_LABEL = 24
_WANTED = "a similarity map needs a LongTermMemory, or a list of messages or texts"


def similarity_map(
    memory: LongTermMemory | Sequence[Message | str],
    embedder: Any = None,
    *,
    query: str = "",
    labels: int = 6,
    limit: int = 1000,
    ax: Axes | None = None,
) -> Axes:
    """The vectors of memories along the two directions in which they differ most (principal components).

    Two directions show only a part of the differences, as the axes say: points that lie apart differ; points that lie
    together may still differ in other directions.

    Args:
        memory: A memory, or messages or texts.
        embedder: Makes the vectors: a LangChain or LlamaIndex embedding model or an Embedder. Default: the memory's
            own, which remembers its latest vectors.
        query: Marked on the map, too.
        labels: How many points are named: those farthest from each other.
        limit: How many memories are shown at most: the newest.
        ax: Where to draw.

    Raises ConfigurationError for fewer than three different vectors, and MissingDependency.
    """
    messages, embedder = _given(memory, embedder)
    messages = messages[-limit:] if limit > 0 else []
    vectors = embedder.texts([message.text for message in messages])
    found = [(message, vector) for message, vector in zip(messages, vectors, strict=True) if vector]
    asked = embedder.query(query) if query.strip() else None
    if len({vector.tobytes() for _, vector in found}) < 3:  # noqa: PLR2004 - what a plane goes through
        raise ConfigurationError("a similarity map needs at least three memories that mean different things")
    places, shares, project = _plane([vector for _, vector in found])
    ax = axes(ax, height=4.0)
    _draw(ax, [message for message, _ in found], places)
    middle = places[:, 0].min() / 2 + places[:, 0].max() / 2
    for place in _apart(places, labels):
        _name(ax, places[place], printable(found[place][0].text, _LONGEST_LABEL), left=places[place][0] > middle)
    if asked:
        across, up = project(asked)
        ax.scatter(across, up, marker="*", s=160, color=RED, label="the query", zorder=3)
    most, next_ = (f"difference ({100 * share:.0f} %)" for share in shares)
    title = f"{len(found):,} memories by what they mean"
    tidy(ax, title, f"direction of the greatest {most}", f"of the next greatest {next_}")
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.margins(0.12)
    legend(ax)
    return ax


def _given(memory: LongTermMemory | Sequence[Message | str], embedder: Any) -> tuple[list[Message], Embedder]:
    if isinstance(memory, LongTermMemory):
        messages = [one.message for one in memory.all() if one.message.role in SPEAKERS]
        vectors = memory._records.vectors  # noqa: SLF001 - it is told of no others
        embedder = getattr(vectors, "embedder", None) if embedder is None else embedder
    else:
        given: list[Message | str] = checked_list(memory, _WANTED, Message, str)
        messages = [Message(role="text", content=one) if isinstance(one, str) else one for one in given]
    if embedder is None:
        raise ConfigurationError("a similarity map needs an embedder, as this memory finds by words: give it embedder=")
    return messages, Embedder.of(embedder)


def _plane(vectors: Sequence[Any]) -> tuple[Any, list[float], Any]:
    """The places of vectors in the plane that fits them best; its shares of the differences; and what places others."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError as error:
        raise MissingDependency("numpy", "vectors") from error
    table = numpy.array([list(vector) for vector in vectors])
    middle = table.mean(axis=0)
    _, sizes, directions = numpy.linalg.svd(table - middle, full_matrices=False)
    plane = numpy.zeros((2, table.shape[1]))  # vectors of one number have one direction only
    plane[: len(directions[:2])] = directions[:2]
    strongest = plane[[0, 1], numpy.abs(plane).argmax(axis=1)]
    plane *= numpy.where(strongest < 0, -1, 1)[:, None]  # both signs are right: this takes the same one each time
    squares = numpy.append(sizes**2, 0.0)
    shares = [float(share) for share in squares[:2] / squares.sum()]
    return (table - middle) @ plane.T, shares, lambda vector: plane @ (numpy.array(list(vector)) - middle)


def _draw(ax: Axes, messages: Sequence[Message], places: Any) -> None:
    """A colour for each speaker; speakers for whom no colour is left share one."""
    speakers = [message.name or message.role for message in messages]
    known = list(dict.fromkeys(speakers))[: len(COLOURS)]
    for speaker in [*known, None]:
        chosen = [n for n, each in enumerate(speakers) if (each if each in known else None) == speaker]
        if chosen:
            colour = COLOURS[known.index(speaker)] if speaker is not None else GREY
            label = printable(speaker, _LONGEST_LABEL) if speaker is not None else "others"
            label = f"\u200b{label}" if label.startswith("_") else label  # otherwise matplotlib leaves it out
            across, up = places[chosen].T
            ax.scatter(across, up, s=22, color=colour, alpha=0.7, linewidths=0, label=label)


def _name(ax: Axes, place: Any, text: str, *, left: bool) -> None:
    """Write beside a point, towards the middle of the map, where there is room."""
    ax.annotate(
        text,
        place,
        xytext=(-4 if left else 4, 4),
        ha="right" if left else "left",
        textcoords="offset points",
        fontsize="x-small",
        parse_math=False,
        color=ax.xaxis.label.get_color(),
    )


def _apart(places: Any, most: int) -> list[int]:
    """Points that are far from each other: each one is the farthest from all before it."""
    if most < 1:
        return []
    nearest = ((places - places.mean(axis=0)) ** 2).sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < most and nearest.max() > 0:
        chosen.append(int(nearest.argmax()))
        distances = ((places - places[chosen[-1]]) ** 2).sum(axis=1)
        nearest = distances if len(chosen) == 1 else nearest.clip(max=distances)
    return chosen
