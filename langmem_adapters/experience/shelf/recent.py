"""What was read a moment ago, in front of a store: bounded in number, in bytes, and in how old it may be.

Changes that are made in this process through any shelf of the same namespace take effect at once; those of other
processes, and those made on the store itself, once what was read before them is too old.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.keys import Namespace
from langmem_adapters.latest import Latest
from langmem_adapters.validation import check_seconds

__all__ = ["Recent", "Ticket", "changed"]

_ENTRIES = 1024
_BYTES = 16 * 1024 * 1024


class Ticket(NamedTuple):
    """Taken before a read: what was read is kept only if nothing has changed since, and is as old as its ticket."""

    changes: int
    at: float


class Recent:
    """The entries of one namespace that were read last. Safe in threads; a forked child begins with none.

    Args:
        namespace: Where they are kept.
        seconds: How old an entry may be.
        max_entries, max_bytes: How much is kept; what was not used for long goes first.
        clock: Gives monotonic seconds.
    """

    def __init__(
        self,
        namespace: Namespace,
        seconds: float,
        *,
        max_entries: int = _ENTRIES,
        max_bytes: int = _BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_seconds("keep", seconds)
        self.namespace = namespace
        self._seconds = seconds
        self._bounds = max_entries, max_bytes
        self._clock = clock
        anew_in_child(self)
        with _lock.held():
            _everywhere.add(self)

    def begin_anew(self) -> None:
        """Start with none, and with a lock that nobody holds."""
        self._lock = threading.Lock()
        self._changes = 0
        most, room = self._bounds
        self._latest: Latest[str, tuple[float, bytes]] = Latest(most, room=room)

    def ticket(self) -> Ticket:
        """What :meth:`keep` is to be given."""
        return Ticket(self._changes, self._clock())

    def get(self, key: str) -> bytes | None:
        """An entry that is young enough."""
        with self._lock:
            found = self._latest.get(key)
            if found is None:
                return None
            if not 0 <= self._clock() - found[0] < self._seconds:
                self._latest.drop(key)
                return None
            return found[1]

    def keep(self, key: str, data: bytes, ticket: Ticket) -> None:
        """Keep what was read with a ticket."""
        with self._lock:
            if ticket.changes == self._changes:
                self._latest.keep(key, (ticket.at, data), len(data))
            else:
                self._latest.drop(key)

    def forget(self, keys: Sequence[str] | None) -> None:
        """Forget these entries, or all; and what is being read at this moment is not kept."""
        with self._lock:
            self._changes += 1
            if keys is None:
                self._latest.clear()
            for key in keys or ():
                self._latest.drop(key)


_everywhere: weakref.WeakSet[Recent] = weakref.WeakSet()
_lock = ForkSafeLock()


def changed(namespace: Namespace, keys: Sequence[str] | None = None) -> None:
    """Tell all of this process that these entries, or all in or below a namespace, are not what they were."""
    if _everywhere:
        with _lock.held():
            concerned = [recent for recent in _everywhere if recent.namespace[: len(namespace)] == namespace]
        for recent in concerned:
            recent.forget(keys)
