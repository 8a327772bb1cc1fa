"""A cache of the index's rows, validated by their version numbers.

Each change of a term's postings, or of a stretch's documents, puts a random number into the row of the term or stretch.
A query reads these rows anyway, so it knows without another read whether a cached value is what its own transaction
sees, whichever process wrote, and when.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Any

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.lru import LRU

__all__ = ["RowCache"]

_MEGABYTE = 1 << 20


class RowCache:
    """An LRU cache of ``megabytes``. May be shared by threads, and across ``fork``."""

    def __init__(self, megabytes: float) -> None:
        if not isinstance(megabytes, int | float) or not megabytes >= 0:
            raise ConfigurationError(f"megabytes is a number, not {megabytes!r:.50}")
        self._max_bytes = megabytes * _MEGABYTE
        reset_in_child(self)

    def reset_state(self) -> None:
        """Be empty."""
        self._lock = threading.Lock()
        self._lru: LRU[Hashable, tuple[int, Any]] = LRU(max_size=self._max_bytes)

    def get(self, key: Hashable, version: int) -> Any:
        """The value of a key, if it is of this version; otherwise None."""
        with self._lock:
            entry = self._lru.get(key)
        return entry[1] if entry is not None and entry[0] == version else None

    def put(self, key: Hashable, version: int, value: Any, size: int) -> None:
        """Store a value of so many bytes, which nobody modifies, in place of the key's old one."""
        with self._lock:
            self._lru.put(key, (version, value), size)
