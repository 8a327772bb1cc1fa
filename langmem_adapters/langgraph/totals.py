"""Totals of the items in one LangGraph namespace, so that nobody needs to read them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from langmem_adapters.codec import decode, encode, is_number, refuse_sealed_or_newer
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import EMPTY_TTL_SECONDS
from langmem_adapters.warn_once import warn_of_damage

__all__ = ["Totals"]

_UNKNOWN_COUNT = 2**53  # items, if their number is unknown: the namespace is not empty, and must be tidied


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
            totals = cls(**{"count": None, **decode(data)})
            counts, times = (totals.count, totals.tidied), (totals.due, totals.last)
            is_valid = all(type(count) is int and count >= 0 for count in counts)
            if is_valid and all(time is None or is_number(time) for time in times):
                return totals
        except (SerializationError, TypeError):
            refuse_sealed_or_newer(data, "the totals of a namespace of the long-term store")
        warn_of_damage(data, "the totals of a namespace of the long-term store are damaged and are counted again")
        return cls(count=_UNKNOWN_COUNT, due=0.0)

    def after_put(self, expiry_times: Sequence[float | None], *, count: int, stamp: str) -> Totals:
        """The totals after items with these times of expiry were put."""
        due_times, last_times = expiry_times, expiry_times
        if self.count:
            due_times, last_times = [*expiry_times, self.due], [*expiry_times, self.last]
        due = min([time for time in due_times if time is not None], default=None)
        last = None
        if None not in last_times:
            last = max([time for time in last_times if time is not None], default=None)
        return Totals(count, due, last, stamp, self.tidied)

    def ttl(self, now: float) -> float | None:
        """Seconds after which the whole namespace may expire; None: never."""
        if self.count == 0:
            return EMPTY_TTL_SECONDS
        return None if self.last is None else max(self.last - now, 1.0)

    def to_bytes(self) -> bytes:
        """The stored form."""
        return encode(asdict(self))
