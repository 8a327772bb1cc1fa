"""Where each message of a session is: in the window, covered by the summary, in the long-term memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import entry_id
from langmem_adapters.conversation.stored_summary import last_covered_id
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, Step, arun, run
from langmem_adapters.plots.drawing import BLUE, GREEN, GREY, ORANGE, axes_or_new, label_axes, use_integer_ticks
from langmem_adapters.validation import checked_list

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REQUIREMENT = "a timeline needs a BrainMemory, which a chat history has as .brain, or what trace(brain) gives"


class Placed(NamedTuple):
    """A message, and where it is. If it is in none of these places, it is kept in the history, but not shown."""

    message_id: str
    role: str
    created_at: float | None
    window: bool
    summary: bool
    long_term: bool


def trace(brain: BrainMemory) -> list[Placed]:
    """Where the messages of a session are, oldest first. Reads the whole session, and all of its long-term memory.

    What a summary covers and was not archived is gone, and not listed.

    >>> from langmem_adapters import open_store
    >>> brain = BrainMemory(open_store("memory:"), "monday", memory_k=1)
    >>> brain.add_talk("Where is my bike?")
    >>> brain.add_talk("And my key?")
    >>> [placed.window for placed in trace(brain)]
    [False, True]
    """
    return run(_trace_flow(brain))


async def atrace(brain: BrainMemory) -> list[Placed]:
    """:func:`trace`, without blocking the event loop."""
    return await arun(_trace_flow(brain))


def memory_timeline(session: BrainMemory | Sequence[Placed], *, ax: Axes | None = None) -> Axes:
    """Draw the messages of a session, oldest first, with a row for each place in which they are.

    Args:
        session: A session, which is read; or the result of :func:`trace`.
        ax: Where to draw.

    Raises ConfigurationError if there are no messages, and MissingDependency.
    """
    messages = trace(session) if isinstance(session, BrainMemory) else checked_list(session, _REQUIREMENT, Placed)
    if not messages:
        raise ConfigurationError("there are no messages in this session to draw")
    lanes = [
        ("window", BLUE, [placed.window for placed in messages]),
        ("summary", ORANGE, [placed.summary for placed in messages]),
        ("long-term\nmemory", GREEN, [placed.long_term for placed in messages]),
    ]
    not_shown = [not (placed.window or placed.summary or placed.long_term) for placed in messages]
    if any(not_shown):
        lanes.append(("history,\nnot shown", GREY, not_shown))
    ax = axes_or_new(ax, height=2.4)
    for position, (_, colour, members) in enumerate(lanes):
        ax.broken_barh(_runs(members), (position - 0.36, 0.72), color=colour, linewidth=0)
    ax.set_yticks(range(len(lanes)), [f"{name} ({sum(members):,})" for name, _, members in lanes], fontsize="small")
    ax.set_ylim(len(lanes) - 0.5, -0.5)
    ax.set_xlim(0.5, len(messages) + 0.5)
    use_integer_ticks(ax.xaxis)
    visible = sum(placed.window for placed in messages)
    label_axes(ax, f"a model is shown {visible:,} of {len(messages):,} messages", "message, from the oldest", "")
    ax.grid(visible=False)
    return ax


def _runs(members: Sequence[bool]) -> list[tuple[float, float]]:
    """Where each run of members begins, and how long it is."""
    runs = []
    for is_member, group in groupby(enumerate(members, start=1), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        if is_member:
            runs.append((numbers[0] - 0.5, float(len(numbers))))
    return runs


def _trace_flow(brain: BrainMemory) -> Flow[list[Placed]]:
    if not isinstance(brain, BrainMemory):
        raise ConfigurationError(f"trace takes a BrainMemory, not {type(brain).__name__}")
    stored: Any = yield Step(brain.messages, brain.amessages)
    context: Any = yield Step(brain.context, brain.acontext)
    memories: Any = []
    if brain.long_term is not None:
        memories = yield Step(brain.long_term.all, brain.long_term.aall)
    occurrences = [
        (occurrence, memory.message.role)
        for memory in memories
        for occurrence in memory.occurrences
        if occurrence.session == brain.scope.session
    ]
    occurrences.sort(key=lambda pair: pair[0].created_at or 0.0)
    archived_ids = {occurrence.message_id for occurrence, _ in occurrences}
    stored_ids, visible_ids = {message.id for message in stored}, {message.id for message in context.messages}
    removed = [(o.message_id, role, o.created_at) for o, role in occurrences if o.message_id not in stored_ids]
    remaining = [(message.id, message.role, message.created_at) for message in stored]
    removed_ids, remaining_ids = [id_ for id_, *_ in removed], [id_ for id_, *_ in remaining]
    summarized_ids = _summarized_ids(removed_ids, remaining_ids, last_covered_id(context.summary))
    # A question may stay while its answer leaves; those that stay keep their order, whatever their times say.
    times = accumulate((created_at or 0.0 for *_, created_at in remaining), max)
    rows = [*((row[2] or 0.0, row) for row in removed), *zip(times, remaining, strict=True)]
    return [
        Placed(id_, role, created_at, id_ in visible_ids, id_ in summarized_ids, id_ in archived_ids)
        for _, (id_, role, created_at) in sorted(rows, key=lambda row: row[0])
    ]


def _summarized_ids(removed: Sequence[str], remaining: Sequence[str], last_covered: str) -> set[str]:
    """The ids that the summary covers: all up to the one it names; if that one is gone, all that have left."""
    if not last_covered:
        return set()
    ids = [*removed, *remaining]
    positions = {entry_id(id_): n for n, id_ in enumerate(ids)}
    return set(ids[: positions.get(last_covered, len(removed) - 1) + 1])
