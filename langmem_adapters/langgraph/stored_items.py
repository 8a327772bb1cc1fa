"""The items of LangGraph's store, and totals of them, as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from langmem_adapters.codec import FORMAT, decode, encode, is_number, refuse_sealed_or_newer
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import EMPTY_TTL_SECONDS, MIN_RESTART_FRACTION
from langmem_adapters.language.dates import day_of
from langmem_adapters.warn_once import warn_of_damage

_UNKNOWN_COUNT = 2**53  # items, if their number is unknown: the namespace is not empty, and must be tidied


@dataclass(frozen=True)
class StoredItem:
    """An item as it is stored. Times are Unix seconds, ``ttl`` is seconds; ``fields`` says by what it is found."""

    value: dict[str, Any]
    created_at: float
    updated_at: float
    ttl: float | None = None
    expires_at: float | None = None
    fields: list[str] | Literal[False] | None = None

    def to_bytes(self) -> bytes:
        """The stored form. Raises SerializationError for a value that cannot be kept without loss."""
        return encode({"v": FORMAT, **self.__dict__})

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredItem | None:
        """Read a stored item; None, with a warning, if it is damaged, so that others can still be read."""
        try:
            fields = decode(data)
            if fields.pop("v") == FORMAT and _is_valid(item := cls(**fields)):
                return item
            damage = "it has another format"
        except (SerializationError, AttributeError, TypeError, KeyError):
            damage = "it cannot be read"
        refuse_sealed_or_newer(data, "an item of the long-term store")
        warn_of_damage(data, f"the long-term store holds a damaged item: {damage}")
        return None

    def in_place_of(self, old: StoredItem | None) -> StoredItem:
        """The item, created when that which it replaces was."""
        return self if old is None else replace(self, created_at=old.created_at)

    def is_stored_as(self, data: bytes | None) -> bool:
        """Whether these bytes are this very item; not by ``==``, as a NaN in a value equals nothing."""
        stored = None if data is None else StoredItem.from_bytes(data)
        return stored is not None and stored.to_bytes() == self.to_bytes()

    def is_unexpired(self, now: float) -> bool:
        """Whether the item has not expired."""
        return self.expires_at is None or now < self.expires_at

    def is_refresh_due(self, now: float) -> bool:
        """Whether so much of its ttl has passed that a read restarts it."""
        return self.ttl is not None and (self.expires_at or 0.0) - now <= self.ttl * (1 - MIN_RESTART_FRACTION)

    def refreshed(self, now: float) -> StoredItem:
        """The item after it was read."""
        return self if self.ttl is None else replace(self, expires_at=now + self.ttl)


def _is_valid(item: StoredItem) -> bool:
    """Whether each field has its type, and the times are valid dates."""
    return (  # without a generator for the pairs, which takes as long as what it asks
        isinstance(item.value, dict)
        and _is_date(item.created_at)
        and _is_date(item.updated_at)
        and (item.ttl is None or is_number(item.ttl))
        and (item.expires_at is None or is_number(item.expires_at))
        and (item.fields is None or _are_paths(item.fields))
    )


def _is_date(time: object) -> bool:
    return is_number(time) and day_of(time) is not None


def _are_paths(fields: object) -> bool:
    return all(isinstance(path, str) for path in fields) if isinstance(fields, list) else fields in (None, False)


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
        last = None if None in last_times else max([time for time in last_times if time is not None], default=None)
        return Totals(count, due, last, stamp, self.tidied)

    def ttl(self, now: float) -> float | None:
        """Seconds after which the whole namespace may expire; None: never."""
        if self.count == 0:
            return EMPTY_TTL_SECONDS
        return None if self.last is None else max(self.last - now, 1.0)

    def to_bytes(self) -> bytes:
        """The stored form."""
        return encode(asdict(self))
