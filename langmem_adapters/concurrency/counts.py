"""Counters that lose nothing when several threads add at once, with or without a GIL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import get_ident
from typing import Any


class Counts(Mapping[str, Any]):
    """Numbers by name; 0 where nothing was added.

    Each thread adds to figures of its own, and a reader gets their sum. So no thread waits for another, and none loses
    an addition, as can happen when two threads read one number and write it back. When a thread ends, the next thread
    with the same identity, also in a forked child, continues its figures.

    Args:
        names: Counters that exist from the start, as 0.

    >>> counts = Counts("misses")
    >>> counts.add("hits")
    >>> counts.add("saved_tokens", 120)
    >>> dict(counts)
    {'misses': 0, 'hits': 1, 'saved_tokens': 120}
    """

    def __init__(self, *names: str) -> None:
        self._figures: dict[str, dict[int, Any]] = {name: {} for name in names}  # by name and thread
        self._sums: Counts | None = None

    def add_to(self, sums: Counts) -> None:
        """Add whatever is added here from now on to ``sums`` too, where it stays when these counts are gone."""
        self._sums = sums

    def add(self, name: str, number: float = 1) -> None:
        """Add to a counter."""
        if self._sums is not None:
            self._sums.add(name, number)
        try:
            self._figures[name][get_ident()] += number
        except KeyError:
            self._figures.setdefault(name, {})[get_ident()] = number  # several threads may make the name at once

    def __getitem__(self, name: str) -> Any:
        figures = self._figures.get(name)
        return sum(figures.copy().values()) if figures else 0  # a copy, since other threads go on adding

    def __iter__(self) -> Iterator[str]:
        return iter(self._figures.copy())

    def __len__(self) -> int:
        return len(self._figures)

    def __repr__(self) -> str:
        return f"Counts({dict(self)})"
