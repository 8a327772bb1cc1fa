"""Filtered top-k: the first hits of a ranking that pass a filter, whether it passes all of them or almost none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["SPARE", "FilteredReader"]

SPARE = 8  # hits asked for beyond what is wanted, since a hit's record may be gone
_MARGIN = 1.25  # times what would suffice if the filter continues to pass the same share
_PART = 2_000  # the most records read at a time


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_HasId)
V = TypeVar("V")


class FilteredReader(Generic[V]):
    """Reads each record once, asks the filter once about it, and does neither more often than needed. For one search.

    Args:
        get: Reads records by their keys; missing ones are left out.
        wanted: Gives the value of a record's key and bytes; None if it is not wanted.
    """

    def __init__(
        self, get: Callable[[Sequence[str]], dict[str, bytes]], wanted: Callable[[str, bytes], V | None]
    ) -> None:
        self._get = get
        self._wanted = wanted
        self._read: dict[str, bytes] = {}
        self._known: dict[str, V | None] = {}
        self._judgements = self._accepted = 0

    def best(self, ranked: Callable[[int], Sequence[R]], k: int) -> list[tuple[R, V]]:
        """The first ``k`` wanted hits of a ranking, which is asked for more hits until they are found."""
        ask = 0
        while True:
            ask = max(k + SPARE, 2 * ask, math.ceil(_MARGIN * k * (self._judgements + 1) / (self._accepted + 1)))
            hits = ranked(ask)
            found = self.first(hits, k)
            if len(found) == k or len(hits) < ask:
                return found

    def first(self, hits: Sequence[R], k: int) -> list[tuple[R, V]]:
        """The first ``k`` wanted hits of these, with their values. Reads few at first, which mostly suffice."""
        found: list[tuple[R, V]] = []
        start, size = 0, k
        while start < len(hits) and len(found) < k:
            part = hits[start : start + size]
            self._fetch([hit.id for hit in part])
            for hit in part:
                value = self._judged(hit.id)
                if value is not None:
                    found.append((hit, value))
                    if len(found) == k:
                        break
            start, size = start + size, min(4 * size, _PART)
        return found

    def _fetch(self, ids: Sequence[str]) -> None:
        missing = [id_ for id_ in ids if id_ not in self._known]
        if missing:
            self._known |= dict.fromkeys(missing)
            self._read |= self._get(missing)

    def _judged(self, id_: str) -> V | None:
        """The value of a record, if it exists and is wanted."""
        if id_ in self._read:
            value = self._known[id_] = self._wanted(id_, self._read.pop(id_))
            self._judgements += 1
            self._accepted += value is not None
        return self._known[id_]
