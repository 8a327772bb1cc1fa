"""A cache of the index's rows, validated by their version numbers, and the form of the postings that it holds.

Each change of a term's postings, or of a stretch's documents, puts a random number into the row of the term or stretch.
A query reads these rows anyway, so it knows without another read whether a cached value is what its own transaction
sees, whichever process wrote, and when.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Hashable
from typing import Any, NamedTuple

from langmem_adapters.codec import parse_json
from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.lru import LRU

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


class Postings(NamedTuple):
    """A term's documents in the order of their numbers, its frequency in each, and the length of each."""

    documents: array[int]
    tf: array[int]
    length: array[int]


def parse_postings(documents: str, tf: str, length: str) -> Postings:
    """Parse postings from columns as texts: passing a row to Python takes ten times as long as finding it."""
    columns = (parse_json(f"[{column}]") for column in (documents, tf, length))
    return Postings(*map(array, "qII", columns))
