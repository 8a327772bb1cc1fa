"""Totals of the items in one LangGraph namespace, so that nobody needs to read them all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from langmem_adapters.codec import decode, encode, is_number, refuse_undamaged
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import LINGER

__all__ = ["Totals"]

_MANY = 2**53  # items, if their number is unknown: the namespace is not empty, and must be tidied
_log = logging.getLogger("langmem_adapters")


@dataclass(frozen=True)
class Totals:
    """How many items there are, and when they expire. Times are Unix seconds.

    ``last`` is when the last of them expires, None if one never does; ``due`` is when the first may expire. ``stamp``
    changes whenever an item is added or removed, or its expiry changes. Every write is guarded by it, so that none
    undoes another; writes that only replace items that never expire do not conflict. ``tidied`` is how many items were
    left when expired ones were last removed.
    """

    count: int = 0
    due: float | None = None
    last: float | None = None
    stamp: str = ""
    tidied: int = 0

    @classmethod
    def of(cls, data: bytes | None) -> Totals:
        """Read totals. Damaged ones give, with a warning, totals that make the next look count anew."""
        if data is None:
            return cls()
        try:
            read = cls(**decode(data))
            counts, times = (read.count, read.tidied), (read.due, read.last)
            sound = all(type(count) is int and count >= 0 for count in counts)
            if sound and all(time is None or is_number(time) for time in times):
                return read
        except (SerializationError, TypeError):
            refuse_undamaged(data, "the totals of a namespace of the long-term store")
        _log.warning("the totals of a namespace of the long-term store are damaged and are counted again")
        return cls(count=_MANY, due=0.0)

    def with_(self, ends: Sequence[float | None], *, count: int, stamp: str) -> Totals:
        """The totals after items with these times of expiry were put."""
        starts = [time for time in (self.due if self.count else None, *ends) if time is not None]
        ends = ends if self.count == 0 else [*ends, self.last]
        last = None if None in ends else max((end for end in ends if end is not None), default=None)
        return Totals(count, min(starts, default=None), last, stamp, self.tidied)

    def ttl(self, now: float) -> float | None:
        """Seconds after which the whole namespace may expire; None: never."""
        if self.count == 0:
            return LINGER
        return None if self.last is None else max(self.last - now, 1.0)

    def to_bytes(self) -> bytes:
        """The stored form."""
        return encode(asdict(self))
