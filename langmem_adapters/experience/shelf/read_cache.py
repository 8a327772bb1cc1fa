"""A read-through cache in front of a store: an LRU with a TTL, bounded in number and in bytes.

Changes that are made in this process through any shelf of the same namespace take effect at once; those of other
processes, and those made on the store itself, once what was read before them is too old.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.keys import Namespace
from langmem_adapters.lru import LRU
from langmem_adapters.validation import check_seconds

__all__ = ["ReadCache", "ReadToken", "invalidate"]

_ENTRIES = 1024  # what was not used for long goes first
_BYTES = 16 * 1024 * 1024


class ReadToken(NamedTuple):
    """Taken before a read: what was read is kept only if nothing has changed since, and is as old as its token."""

    changes: int
    at: float


class ReadCache:
    """The cached entries of one namespace. Safe in threads; a forked child begins with none.

    Args:
        namespace: Where they are kept.
        seconds: How old an entry may be.
        clock: Gives monotonic seconds.
    """

    def __init__(self, namespace: Namespace, seconds: float, *, clock: Callable[[], float]) -> None:
        check_seconds("keep", seconds)
        self.namespace = namespace
        self._seconds = seconds
        self._clock = clock
        anew_in_child(self)
        with _lock.held():
            _caches.add(self)

    def begin_anew(self) -> None:
        """Start with none, and with a lock that nobody holds."""
        self._lock = threading.Lock()
        self._changes = 0
        self._lru: LRU[str, tuple[float, bytes]] = LRU(_ENTRIES, room=_BYTES)

    def token(self) -> ReadToken:
        """What :meth:`keep` is to be given."""
        return ReadToken(self._changes, self._clock())

    def get(self, key: str) -> bytes | None:
        """An entry that is young enough."""
        with self._lock:
            found = self._lru.get(key)
            if found is None:
                return None
            if not 0 <= self._clock() - found[0] < self._seconds:
                self._lru.drop(key)
                return None
            return found[1]

    def keep(self, key: str, data: bytes, token: ReadToken) -> None:
        """Keep what was read with a token."""
        with self._lock:
            if token.changes == self._changes:
                self._lru.keep(key, (token.at, data), len(data))

    def invalidate(self, keys: Sequence[str] | None) -> None:
        """Forget these entries, or all; and what is being read at this moment is not kept."""
        with self._lock:
            self._changes += 1
            if keys is None:
                self._lru.clear()
            for key in keys or ():
                self._lru.drop(key)


_caches: weakref.WeakSet[ReadCache] = weakref.WeakSet()
_lock = ForkSafeLock()


def invalidate(namespace: Namespace, keys: Sequence[str] | None = None) -> None:
    """Tell all of this process that these entries, or all in or below a namespace, are not what they were."""
    if _caches:
        with _lock.held():
            concerned = [cache for cache in _caches if cache.namespace[: len(namespace)] == namespace]
        for cache in concerned:
            cache.invalidate(keys)
