"""An LRU cache, bounded in number and in size."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LRU"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LRU(Generic[K, V]):
    """Evicts what was not used for longest. Threads that share one hold a lock.

    Args:
        most: How many there may be.
        room: How large they may be together.

    >>> cache: LRU[str, int] = LRU(2)
    >>> made = [cache.get_or_make(word, lambda: len(word)) for word in ("one", "three", "one", "eleven")]
    >>> cache.values()
    [3, 6]
    """

    def __init__(self, most: float = math.inf, *, room: float = math.inf) -> None:
        self.most = most
        self.room = room
        self.size: int = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """What is kept under a key, which is used so."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """What is kept under a key; what ``make`` gives, where there is nothing."""
        found = self.get(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found

    def keep(self, key: K, value: V, size: int = 0) -> None:
        """Keep something in place of what was there before, unless it is too large."""
        self.drop(key)
        if size <= self.room:
            self._entries[key] = value, size
            self.size += size
            while len(self._entries) > self.most or self.size > self.room:
                self.size -= self._entries.popitem(last=False)[1][1]

    def drop(self, key: K) -> None:
        """Let go of what is kept under a key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size -= entry[1]

    def clear(self) -> None:
        """Let go of everything."""
        self._entries.clear()
        self.size = 0

    def values(self) -> list[V]:
        """Everything, what was used last at the end."""
        return [value for value, _ in self._entries.values()]
