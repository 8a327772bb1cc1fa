"""How everything here is measured: what is compared takes turns, so that a busy machine is busy for all of them.

In each round every contender makes one call, in an order that rotates but lets none follow itself, and garbage is
collected between the rounds. So each call finds the processor's caches as another left them, as it would in a program
that does other things too.
What existed before the measurement is frozen: no contender pays for the imports of another.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Budget", "Case", "Goal", "Line", "Row", "Sample", "Verdict", "line", "take_turns"]

Work = Callable[[Any], object]
LIMIT, OURS = "limit", "ours"
_WARM = 3  # calls before the first that counts: they open, connect and compile
_FEWEST = 3  # calls of a contender that has used up its time
_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


class Budget(NamedTuple):
    """How long to measure: so many rounds, and for each contender so many seconds, but three calls at least."""

    rounds: int
    seconds: float


@dataclass
class Case:
    """The same work, done by several at one size.

    Args:
        limit: The bare work: what the store, the socket or the parser costs without any library.
        ours: The same with this library.
        peers: The same with others, by their name.
        given: Makes what each call is given, off the clock.
        items: So many things one call handles; figures are per thing where it is more than one.
    """

    limit: Work
    ours: Work
    peers: Mapping[str, Work] = field(default_factory=dict)
    given: Callable[[], Any] = lambda: None
    items: int = 1


class Sample(NamedTuple):
    """Seconds of a call: the median of all, and what a tenth of them stayed within, which nothing much disturbed.

    The least of all would be a lucky draw of the limit: a page that was still in the processor's cache.
    """

    median: float
    undisturbed: float


class Line(NamedTuple):
    """A row at one size. Figures are in ``unit``; None: there is none."""

    size: str
    unit: str
    limit: float | None
    ours: float
    peers: Mapping[str, float]
    undisturbed: float = 0.0  # ours ÷ limit, each by its undisturbed calls

    @property
    def ratio(self) -> float | None:
        """Ours ÷ limit."""
        return self.ours / self.limit if self.limit else None


class Verdict(NamedTuple):
    """What came of a goal: the figure that it is about, in words, and whether it is met; None: nothing to compare."""

    goal: str
    measured: str
    met: bool | None


class Goal(NamedTuple):
    """Something that a row's lines are to show."""

    text: str
    judge: Callable[[Sequence[Line]], tuple[str, bool | None]]

    def verdict(self, lines: Sequence[Line]) -> Verdict:
        return Verdict(self.text, *self.judge(lines))


@dataclass(frozen=True)
class Row:
    """A kind of work: what is measured, at which sizes, and what the figures are to be.

    Args:
        key: Its name on the command line.
        title: What is done.
        limit: What the limit is.
        measure: Measures it; gives a line for each size.
        goals: What the lines are to show.
        gate: The most that ours ÷ limit may be at any size, or the tests fail; None: no gate. It is the first goal's
            figure, or where that is missed, what holds by now.
    """

    key: str
    title: str
    limit: str
    measure: Callable[[Any], Iterator[Line]]
    goals: tuple[Goal, ...]
    gate: float | None = None


def take_turns(contenders: Mapping[str, Work], given: Callable[[], Any], budget: Budget) -> dict[str, Sample]:
    """Measure each contender's calls."""
    for work in contenders.values():
        start = time.perf_counter()
        for _ in range(_WARM):
            work(given())
            if time.perf_counter() - start > budget.seconds / _WARM:
                break
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    gc.collect()
    gc.freeze()
    try:
        for number in range(budget.rounds):
            gc.collect()
            turn = number % len(names) if len(names) > 2 else 0  # of two, one would follow itself
            for name in names[turn:] + names[:turn]:
                took = times[name]
                if sum(took) < budget.seconds or len(took) < _FEWEST:
                    took.append(_timed(contenders[name], given()))
    finally:
        gc.unfreeze()
    return {name: Sample(statistics.median(took), sorted(took)[len(took) // 10]) for name, took in times.items()}


def _timed(work: Work, item: Any) -> float:
    start = time.perf_counter()
    work(item)
    return time.perf_counter() - start


def line(size: str, case: Case, budget: Budget) -> Line:
    """Measure a case; figures are in the unit that suits ours."""
    samples = take_turns({LIMIT: case.limit, OURS: case.ours, **case.peers}, case.given, budget)
    each = {name: sample.median / case.items for name, sample in samples.items()}
    unit, factor = next((unit for unit in _UNITS if each[OURS] >= unit[1]), _UNITS[-1])
    figures = {name: figure / factor for name, figure in each.items()}
    undisturbed = samples[OURS].undisturbed / samples[LIMIT].undisturbed
    peers = {name: figures[name] for name in case.peers}
    return Line(size, unit, figures[LIMIT], figures[OURS], peers, undisturbed)
