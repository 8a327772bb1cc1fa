"""A map of what a memory holds, on which things that mean nearly the same lie close together."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, MissingDependency
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.plots.drawing import COLOURS, GREY, RED, add_legend, axes_or_new, label_axes, printable_text
from langmem_adapters.recall.memories import SPEAKERS
from langmem_adapters.validation import checked_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_LABEL_CHARS = 24
_REQUIREMENT = "a similarity map needs a LongTermMemory, or a list of messages or texts"


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
    messages, embedder = _messages_and_embedder(memory, embedder)
    messages = messages[-limit:] if limit > 0 else []
    vectors = embedder.texts([message.text for message in messages])
    points = [(message, vector) for message, vector in zip(messages, vectors, strict=True) if vector]
    query_vector = embedder.query(query) if query.strip() else None
    if len({vector.tobytes() for _, vector in points}) < 3:  # noqa: PLR2004 - what a plane goes through
        raise ConfigurationError("a similarity map needs at least three memories that mean different things")
    positions, shares, project = _project([vector for _, vector in points])
    ax = axes_or_new(ax, height=4.0)
    _draw_points(ax, [message for message, _ in points], positions)
    center = positions[:, 0].min() / 2 + positions[:, 0].max() / 2
    for n in _farthest_points(positions, labels):
        label = printable_text(points[n][0].text, _MAX_LABEL_CHARS)
        _label_point(ax, positions[n], label, to_left=positions[n][0] > center)
    if query_vector:
        across, up = project(query_vector)
        ax.scatter(across, up, marker="*", s=160, color=RED, label="the query", zorder=3)
    most, next_most = (f"difference ({100 * share:.0f} %)" for share in shares)
    title = f"{len(points):,} memories by what they mean"
    label_axes(ax, title, f"direction of the greatest {most}", f"of the next greatest {next_most}")
    ax.grid(visible=False)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.margins(0.12)
    add_legend(ax)
    return ax


def _messages_and_embedder(
    memory: LongTermMemory | Sequence[Message | str], embedder: Any
) -> tuple[list[Message], Embedder]:
    if isinstance(memory, LongTermMemory):
        messages = [item.message for item in memory.all() if item.message.role in SPEAKERS]
        vectors = memory._records.vectors  # noqa: SLF001 - it is told of no others
        embedder = getattr(vectors, "embedder", None) if embedder is None else embedder
    else:
        items: list[Message | str] = checked_list(memory, _REQUIREMENT, Message, str)
        messages = [Message(role="text", content=item) if isinstance(item, str) else item for item in items]
    if embedder is None:
        raise ConfigurationError("a similarity map needs an embedder, as this memory finds by words: give it embedder=")
    return messages, Embedder.of(embedder)


def _project(vectors: Sequence[Any]) -> tuple[Any, list[float], Any]:
    """Positions of vectors in the plane that fits them best, its shares of the differences, and what adds others."""
    try:
        numpy = importlib.import_module("numpy")
    except ImportError as error:
        raise MissingDependency("numpy", "vectors") from error
    matrix = numpy.array([list(vector) for vector in vectors])
    mean = matrix.mean(axis=0)
    _, singular_values, directions = numpy.linalg.svd(matrix - mean, full_matrices=False)
    plane = numpy.zeros((2, matrix.shape[1]))  # vectors of one number have one direction only
    plane[: len(directions[:2])] = directions[:2]
    strongest = plane[[0, 1], numpy.abs(plane).argmax(axis=1)]
    plane *= numpy.where(strongest < 0, -1, 1)[:, None]  # both signs are right: this takes the same one each time
    squares = numpy.append(singular_values**2, 0.0)
    shares = [float(share) for share in squares[:2] / squares.sum()]
    return (matrix - mean) @ plane.T, shares, lambda vector: plane @ (numpy.array(list(vector)) - mean)


def _draw_points(ax: Axes, messages: Sequence[Message], positions: Any) -> None:
    """A colour for each speaker; speakers for whom no colour is left share one."""
    speakers = [message.name or message.role for message in messages]
    colours = dict(zip(dict.fromkeys(speakers), COLOURS, strict=False))
    indices: dict[str | None, list[int]] = {speaker: [] for speaker in (*colours, None)}
    for i, speaker in enumerate(speakers):
        indices[speaker if speaker in colours else None].append(i)
    for group, members in indices.items():
        if members:
            colour = GREY if group is None else colours[group]
            label = "others" if group is None else printable_text(group, _MAX_LABEL_CHARS)
            label = f"\u200b{label}" if label.startswith("_") else label  # otherwise matplotlib leaves it out
            across, up = positions[members].T
            ax.scatter(across, up, s=22, color=colour, alpha=0.7, linewidths=0, label=label)


def _label_point(ax: Axes, position: Any, text: str, *, to_left: bool) -> None:
    """Write beside a point, towards the middle of the map, where there is room."""
    ax.annotate(
        text,
        position,
        xytext=(-4 if to_left else 4, 4),
        ha="right" if to_left else "left",
        textcoords="offset points",
        fontsize="x-small",
        parse_math=False,
        color=ax.xaxis.label.get_color(),
    )


def _farthest_points(positions: Any, count: int) -> list[int]:
    """Points that are far from each other: each one is the farthest from all before it."""
    nearest = ((positions - positions.mean(axis=0)) ** 2).sum(axis=1)
    chosen: list[int] = []
    while len(chosen) < count and nearest.max() > 0:
        chosen.append(int(nearest.argmax()))
        distances = ((positions - positions[chosen[-1]]) ** 2).sum(axis=1)
        nearest = distances if len(chosen) == 1 else nearest.clip(max=distances)
    return chosen
