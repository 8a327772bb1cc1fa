"""What is known of the items of one LangGraph namespace together, so that nobody needs to read them all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from langmem_adapters.codec import decode, encode, is_number, refuse_undamaged
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import LINGER

__all__ = ["Totals"]

_MANY = 2**53  # items, as nobody knows how many there are: it is not empty, and has to be tidied
_log = logging.getLogger("langmem_adapters")


@dataclass(frozen=True)
class Totals:
    """How many items there are, and when they expire. Times are Unix seconds.

    ``last`` is when the last of them expires, None if one stays; ``due`` is when the first may expire. ``stamp``
    changes with each item that comes or goes, or expires at another time. Every write is guarded by it, so that none
    undoes another; those that replace items that stay do not disturb each other. ``tidied`` is how many items were
    left when those that had expired were last removed.
    """

    count: int = 0
    due: float | None = None
    last: float | None = None
    stamp: str = ""
    tidied: int = 0

    @classmethod
    def of(cls, data: bytes | None) -> Totals:
        """Read totals; in the place of damaged ones, with a warning, what has them counted anew by the next look."""
        if data is None:
            return cls()
        try:
            read = cls(**decode(data))
            counts, times = (read.count, read.tidied), (read.due, read.last)
            sound = all(type(count) is int and count >= 0 for count in counts)
            if sound and all(time is None or is_number(time) for time in times):
                return read
        except (SerializationError, TypeError):
            refuse_undamaged(data, "what is known of a namespace of the long-term store")
        _log.warning("what is known of a namespace of the long-term store is damaged; it is counted anew")
        return cls(count=_MANY, due=0.0)

    def with_(self, ends: Sequence[float | None], *, count: int, stamp: str) -> Totals:
        """The totals after items were put that expire then."""
        starts = [time for time in (self.due if self.count else None, *ends) if time is not None]
        ends = ends if self.count == 0 else [*ends, self.last]
        last = None if None in ends else max((end for end in ends if end is not None), default=None)
        return Totals(count, min(starts, default=None), last, stamp, self.tidied)

    def ttl(self, now: float) -> float | None:
        """Seconds after which the whole namespace may go."""
        if self.count == 0:
            return LINGER
        return None if self.last is None else max(self.last - now, 1.0)

    def to_bytes(self) -> bytes:
        """The stored form."""
        return encode(asdict(self))
