"""Which of the semantic mode's questions belongs to a kept answer: its entry names their partition."""

from __future__ import annotations

from collections.abc import Sequence

from langmem_adapters.errors import SerializationError
from langmem_adapters.model import Experience

__all__ = ["by_partition", "partition_of"]


def partition_of(data: bytes) -> str | None:
    """The partition of an answer's question; None, where the entry names none or cannot be read."""
    try:
        partition = (Experience.from_bytes(data).model_extra or {}).get("partition")
    except SerializationError:
        return None
    return partition if isinstance(partition, str) else None


def by_partition(evicted: Sequence[tuple[str, bytes]]) -> dict[str, list[str]]:
    """The keys of answers that are gone, by where their questions are."""
    found: dict[str, list[str]] = {}
    for key, data in evicted:
        partition = partition_of(data)
        if partition is not None:
            found.setdefault(partition, []).append(key)
    return found
