"""A read-through cache in front of a store: an LRU with a TTL, bounded in number and in bytes.

Changes made in this process through any shelf of the same namespace take effect at once. Changes by other processes, or
made directly on the store, take effect when the cached entries have expired.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.keys import Namespace
from langmem_adapters.lru import LRU
from langmem_adapters.validation import check_seconds

_MAX_ENTRIES = 1024  # the least recently used are dropped first
_MAX_BYTES = 16 * 1024 * 1024


class ReadToken(NamedTuple):
    """Taken before a read. What was read is cached only if nothing has changed since; its age counts from here."""

    changes: int
    read_at: float


class ReadCache:
    """The cached entries of one namespace, no older than ``seconds`` by a monotonic clock.

    Thread-safe; a forked child begins with an empty cache.
    """

    def __init__(self, namespace: Namespace, seconds: float, *, clock: Callable[[], float]) -> None:
        check_seconds("keep", seconds)
        self.namespace = namespace
        self._seconds = seconds
        self._clock = clock
        reset_in_child(self)
        with _lock.held():
            _caches.add(self)

    def reset_state(self) -> None:
        """Begin empty, with a lock that nobody holds."""
        self._lock = threading.Lock()
        self._changes = 0
        self._lru: LRU[str, tuple[float, bytes]] = LRU(_MAX_ENTRIES, max_size=_MAX_BYTES)

    def token(self) -> ReadToken:
        """A token for :meth:`keep`."""
        return ReadToken(self._changes, self._clock())

    def get(self, key: str) -> bytes | None:
        """The entry of a key; None, if it is not cached or too old."""
        with self._lock:
            cached = self._lru.get(key)
            if cached is None:
                return None
            read_at, data = cached
            if not 0 <= self._clock() - read_at < self._seconds:
                self._lru.drop(key)
                return None
            return data

    def keep(self, key: str, data: bytes, token: ReadToken) -> None:
        """Cache what was read since the token was taken, unless something has changed since."""
        with self._lock:
            if token.changes == self._changes:
                self._lru.put(key, (token.read_at, data), len(data))

    def invalidate(self, keys: Sequence[str] | None) -> None:
        """Drop these entries, or all; reads that are under way are not cached."""
        with self._lock:
            self._changes += 1
            if keys is None:
                self._lru.clear()
            for key in keys or ():
                self._lru.drop(key)


_caches: weakref.WeakSet[ReadCache] = weakref.WeakSet()
_lock = ForkSafeLock()


def invalidate(namespace: Namespace, keys: Sequence[str] | None = None) -> None:
    """Drop these entries, or all in or below a namespace, from all read caches of this process."""
    if _caches:
        with _lock.held():
            affected = [cache for cache in _caches if cache.namespace[: len(namespace)] == namespace]
        for cache in affected:
            cache.invalidate(keys)
