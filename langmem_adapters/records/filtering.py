"""Filtered top-k: the first hits of a ranking that pass a filter, whether it passes all of them or almost none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from langmem_adapters.flow import Flow, blocking, step

EXTRA_HITS = 8  # hits asked for beyond what is wanted, since a hit's record may be gone
_MARGIN = 1.25  # times what would suffice if the filter continues to pass the same share of records
_MAX_BATCH_SIZE = 2_000  # the most records read at a time


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_HasId)
V = TypeVar("V")


class FilteredReader(Generic[V]):
    """Reads each record once, asks the filter once about it, and does neither more often than needed. For one search.

    Args:
        get: Reads records by their keys; missing ones are left out.
        value_of: Gives the value of a record's key and bytes; None if it is not wanted.
    """

    def __init__(
        self, get: Callable[[Sequence[str]], dict[str, bytes]], value_of: Callable[[str, bytes], V | None]
    ) -> None:
        self._get = get
        self._value_of = value_of
        self._unfiltered: dict[str, bytes] = {}
        self._values: dict[str, V | None] = {}
        self._filtered_count = self._accepted_count = 0

    @blocking
    def best(self, ranked: Callable[[int], Sequence[R]], k: int) -> Flow[list[tuple[R, V]]]:
        """The first ``k`` wanted hits of a ranking, which is asked for more hits until they are found."""
        requested = 0
        while True:
            needed = math.ceil(_MARGIN * k * (self._filtered_count + 1) / (self._accepted_count + 1))
            requested = max(k + EXTRA_HITS, 2 * requested, needed)
            hits = ranked(requested)
            matches = yield from step(self.first, hits, k)
            if len(matches) == k or len(hits) < requested:
                return matches

    @blocking
    def first(self, hits: Sequence[R], k: int) -> Flow[list[tuple[R, V]]]:
        """The first ``k`` wanted hits of these, with their values. Reads few at first, which mostly suffice."""
        matches: list[tuple[R, V]] = []
        start, size = 0, k
        while start < len(hits) and len(matches) < k:
            batch = hits[start : start + size]
            yield from self._fetch([hit.id for hit in batch])
            for hit in batch:
                value = self._accepted_value(hit.id)
                if value is not None:
                    matches.append((hit, value))
                    if len(matches) == k:
                        break
            start, size = start + size, min(4 * size, _MAX_BATCH_SIZE)
        return matches

    def _fetch(self, ids: Sequence[str]) -> Flow[None]:
        missing = [id_ for id_ in ids if id_ not in self._values]
        if missing:
            self._values |= dict.fromkeys(missing)
            self._unfiltered |= yield from step(self._get, missing)

    def _accepted_value(self, id_: str) -> V | None:
        """The value of a record, if it exists and is wanted."""
        if id_ in self._unfiltered:
            value = self._value_of(id_, self._unfiltered.pop(id_))
            self._values[id_] = value
            self._filtered_count += 1
            if value is not None:
                self._accepted_count += 1
        return self._values[id_]
