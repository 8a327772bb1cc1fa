"""An item of LangGraph's store, and how it is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from langmem_adapters.codec import FORMAT, decode, encode, is_number, refuse_sealed_or_newer
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import MIN_RESTART_FRACTION
from langmem_adapters.language.dates import day_of
from langmem_adapters.warn_once import warn_of_damage

__all__ = ["StoredItem"]


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
    paths = item.fields if isinstance(item.fields, list) else []
    return (
        isinstance(item.value, dict)
        and all(is_number(at) and day_of(at) for at in (item.created_at, item.updated_at))
        and all(time is None or is_number(time) for time in (item.ttl, item.expires_at))
        and (item.fields in (None, False, paths) and all(isinstance(path, str) for path in paths))
    )
