"""How often a cache was hit, and what that has saved, over time.

The cache itself records nothing for this, so a hit costs what it did before: a notebook takes looks at its counts.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience import Saved
from langmem_adapters.plots.drawing import BLUE, GREEN, GREY, add_legend, axes_or_new, label_axes
from langmem_adapters.validation import checked_list
from langmem_adapters.views.plain import amount, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SAVINGS = ("money", "tokens", "seconds")


class Snapshot(NamedTuple):
    """What a cache had done since it was made. ``at`` is Unix time; ``saved`` is seconds, tokens and money."""

    at: float
    hits: int
    misses: int
    saved: Saved = Saved()


class Recorder:
    """Keeps looks at the counts of a cache, for :func:`~langmem_adapters.plots.hit_rate`; the first is taken at once.

    In a notebook, take one after each cell: ``get_ipython().events.register("post_run_cell", recorder.take)``.

    Args:
        cache: Anything whose ``stats()`` has hits and misses: a pool, an ExperienceCache, a decorated function, a
            model that caches.
        clock: Gives Unix seconds.

    >>> from langmem_adapters import Experience, ExperiencePool, open_store
    >>> pool = ExperiencePool(open_store("memory:"))
    >>> recorder = Recorder(pool, clock=lambda: 0.0)
    >>> _ = pool.create(Experience(req="France", resp="Paris"))
    >>> _ = pool.lookup("France"), pool.lookup("Spain")
    >>> recorder.take()
    Snapshot(at=0.0, hits=1, misses=1, saved=Saved(seconds=0.0, tokens=0, money=0.0))
    """

    def __init__(self, cache: Any, *, clock: Callable[[], float] = time.time) -> None:
        self._cache: Any = cache if callable(getattr(cache, "stats", None)) else getattr(cache, "cache", None)
        if not callable(getattr(self._cache, "stats", None)):
            raise ConfigurationError(f"a Recorder needs an object with stats(), not {type(cache).__name__}")
        self._clock = clock
        self.snapshots: list[Snapshot] = []
        self.take()

    def take(self, *_: object) -> Snapshot:
        """Look once more. The arguments of IPython's events are ignored."""
        stats = self._cache.stats()
        if not {"hits", "misses"} <= stats.keys():
            raise ConfigurationError(f"{type(self._cache).__name__} does not count hits and misses")
        saved = Saved(**{name: stats[f"saved_{name}"] for name in Saved._fields if f"saved_{name}" in stats})
        snapshot = Snapshot(self._clock(), stats["hits"], stats["misses"], saved)
        self.snapshots.append(snapshot)
        return snapshot

    def __repr__(self) -> str:
        return f"Recorder({self._cache!r}, snapshots={len(self.snapshots)})"


def hit_rate(looks: Recorder | Sequence[Snapshot], *, ax: Axes | None = None) -> Axes:
    """The share of requests that were answered from the cache: between looks, and in all since the first.

    A cache that was made anew meanwhile counts from its beginning. Raises ConfigurationError if nothing was asked
    between two looks, and MissingDependency.

    >>> import matplotlib
    >>> matplotlib.use("agg")
    >>> ax = hit_rate([Snapshot(0.0, 0, 0), Snapshot(60.0, 1, 3), Snapshot(120.0, 4, 4)])
    >>> ax.get_title(loc="left")
    '50 % of 8 requests were answered from the cache'
    """
    snapshots = _snapshots(looks)
    increases = [_increase(before, after) for before, after in pairwise(snapshots)]
    hits = [increase.hits for increase in increases]
    requests = [increase.hits + increase.misses for increase in increases]
    if not any(requests):
        raise ConfigurationError(
            "the cache had no requests between these snapshots: take one before and one after a request"
        )
    ax = axes_or_new(ax)
    times = _times(snapshots)
    shares = [100 * h / n if n else float("nan") for h, n in zip(hits, requests, strict=True)]
    ax.stairs(shares, times, color=GREY, alpha=0.35, fill=True, label="between two looks")
    totals = zip(times[1:], accumulate(hits), accumulate(requests), strict=True)
    overall = [(at, 100 * h / n) for at, h, n in totals if n]
    ax.plot(*zip(*overall, strict=True), color=BLUE, marker="o", ms=4, label="since the first look")
    ax.set_ylim(0, 103)
    ax.yaxis.set_major_formatter("{x:.0f} %")
    share = percent(sum(hits) / sum(requests))
    label_axes(ax, f"{share} of {sum(requests):,} requests were answered from the cache", "time", "hit rate")
    _format_dates(ax)
    add_legend(ax)
    return ax


def savings(
    looks: Recorder | Sequence[Snapshot],
    of: Literal["money", "tokens", "seconds"] = "tokens",
    *,
    currency: str = "",
    ax: Axes | None = None,
) -> Axes:
    """What hits have saved since the first look: tokens, seconds, or money in the currency of the price table.

    Raises ConfigurationError for fewer than two looks, and MissingDependency.
    """
    if of not in _SAVINGS:
        raise ConfigurationError(f"savings are of {', '.join(_SAVINGS)}, not of {of!r}")
    snapshots = _snapshots(looks)
    increases = [getattr(_increase(before, after).saved, of) for before, after in pairwise(snapshots)]
    ax = axes_or_new(ax)
    times, totals = _times(snapshots), [0, *accumulate(increases)]
    ax.fill_between(times, totals, color=GREEN, alpha=0.25, linewidth=0)
    ax.plot(times, totals, color=GREEN, marker="o", ms=4)
    ax.set_ylim(0, max(totals) * 1.08 or 1)
    ax.yaxis.set_major_formatter("{x:,.10g}")
    unit = currency or of if of == "money" else of
    total = f"{totals[-1]:,}" if of == "tokens" else amount(totals[-1])
    label_axes(ax, f"hits have saved {total} {unit}", "time", f"saved {unit}")
    _format_dates(ax)
    return ax


def _snapshots(looks: Recorder | Sequence[Snapshot]) -> list[Snapshot]:
    snapshots = looks.snapshots if isinstance(looks, Recorder) else looks
    requirement = "a plot over time needs a Recorder(cache) or its snapshots"
    ordered = sorted(checked_list(snapshots, requirement, Snapshot), key=lambda snapshot: snapshot.at)
    if len(ordered) < 2:  # noqa: PLR2004 - a line has two ends
        raise ConfigurationError("a plot over time needs two snapshots of the cache: take() another one")
    return ordered


def _increase(before: Snapshot, after: Snapshot) -> Snapshot:
    """What was counted between two looks; all of the second, if the counts began anew."""
    if after.hits + after.misses < before.hits + before.misses:
        return after
    hits, misses = after.hits - before.hits, after.misses - before.misses
    saved = after.saved - before.saved
    saved = Saved(max(saved.seconds, 0.0), max(saved.tokens, 0), max(saved.money, 0.0))
    return Snapshot(after.at, max(hits, 0), max(misses, 0), saved)


def _times(snapshots: Sequence[Snapshot]) -> list[float]:
    """The times of the looks as matplotlib's numbers."""
    dates = importlib.import_module("matplotlib.dates")
    return [float(dates.date2num(datetime.fromtimestamp(snapshot.at).astimezone())) for snapshot in snapshots]


def _format_dates(ax: Axes) -> None:
    dates = importlib.import_module("matplotlib.dates")
    zone = importlib.import_module("dateutil.tz").tzlocal()  # also knows summer from winter time
    locator = dates.AutoDateLocator(minticks=3, maxticks=7, tz=zone)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
