"""An LRU cache, bounded in number and in size."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """Evicts the least recently used entry. Threads that share a cache must hold a lock.

    Args:
        max_entries: How many entries there may be.
        max_size: How large they may be together.

    >>> cache: LRU[str, int] = LRU(2)
    >>> made = [cache.get_or_make(word, lambda: len(word)) for word in ("one", "three", "one", "eleven")]
    >>> cache.values()
    [3, 6]
    """

    def __init__(self, max_entries: float = math.inf, *, max_size: float = math.inf) -> None:
        self.max_entries = max_entries
        self.max_size = max_size
        self.size: int = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None, and mark it as used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; if there is none, keep what ``make`` returns."""
        value = self.get(key)
        if value is None:
            value = make()
            self.put(key, value)
        return value

    def put(self, key: K, value: V, size: int = 0) -> None:
        """Keep a value in place of an older one, unless it is too large."""
        self.drop(key)
        if size <= self.max_size:
            self._entries[key] = value, size
            self.size += size
            while len(self._entries) > self.max_entries or self.size > self.max_size:
                _, (_, evicted_size) = self._entries.popitem(last=False)
                self.size -= evicted_size

    def drop(self, key: K) -> None:
        """Remove a key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[1]

    def clear(self) -> None:
        """Remove everything."""
        self._entries.clear()
        self.size = 0

    def values(self) -> list[V]:
        """All values, the most recently used last."""
        return [value for value, _ in self._entries.values()]
