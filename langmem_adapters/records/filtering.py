"""Filtered top-k: the first of a ranking that pass a filter, whether it lets all through or next to nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

__all__ = ["SPARE", "FilteredReader"]

SPARE = 8  # asked for beyond what is wanted: a hit may be gone
_MARGIN = 1.25  # times what would do, if the filter goes on to let through the same share
_PART = 2_000  # records read at a time, at the most


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_HasId)
V = TypeVar("V")


class FilteredReader(Generic[V]):
    """Reads each record once, asks the filter once about it, and of neither more than it needs. For one search.

    Args:
        get: Reads records by their keys; those that do not exist are left out.
        wanted: Gives what a record's key and bytes stand for; None, where that is not wanted.
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
        """The first ``k`` of a ranking, of which more and more is asked for until they are found."""
        ask = 0
        while True:
            ask = max(k + SPARE, 2 * ask, math.ceil(_MARGIN * k * (self._judgements + 1) / (self._accepted + 1)))
            hits = ranked(ask)
            found = self.first(hits, k)
            if len(found) == k or len(hits) < ask:
                return found

    def first(self, hits: Sequence[R], k: int) -> list[tuple[R, V]]:
        """The first ``k`` of these that are wanted, with what they stand for. The first ones are mostly enough."""
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
        """What a record stands for, if it is there and wanted."""
        if id_ in self._read:
            value = self._known[id_] = self._wanted(id_, self._read.pop(id_))
            self._judgements += 1
            self._accepted += value is not None
        return self._known[id_]
