"""A cache of the index's rows, validated by their versions.

Each change of a term's postings, or of the documents of a stretch, leaves a random number in the row of the term or of
the stretch. A query reads these rows anyway, so it knows without asking again whether what is kept is what its own
transaction sees, whichever process wrote, and when.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.lru import LRU

__all__ = ["RowCache"]

_MEGABYTE = 1 << 20


class RowCache:
    """An LRU of ``megabytes``. May be shared by threads, and across ``fork``."""

    def __init__(self, megabytes: float) -> None:
        self._room = megabytes * _MEGABYTE
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Have nothing."""
        self._lock = threading.Lock()
        self._lru: LRU[Hashable, tuple[int, Any]] = LRU(room=self._room)

    def get(self, key: Hashable, changed: int) -> Any:
        """What was kept under a key, if this was its last change; else None."""
        with self._lock:
            kept = self._lru.get(key)
        return kept[1] if kept is not None and kept[0] == changed else None

    def keep(self, key: Hashable, changed: int, value: Any, size: int) -> None:
        """Keep what nobody changes any more, of so many bytes, in place of what was kept under the key."""
        with self._lock:
            self._lru.keep(key, (changed, value), size)
