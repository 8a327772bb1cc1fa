"""What a cache has done over time: looks at its counts, which a notebook takes whenever it likes.

The cache itself records nothing for this, so a hit costs what it did before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience import Saved

__all__ = ["Recorder", "Snapshot"]


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
