"""What was read of the rows, in memory for as long as nothing changes it.

Each change of a term's postings, or of the documents of a stretch, leaves a random number in the row of the term or of
the stretch. A query reads these rows anyway, so it knows without asking again whether what is kept is what its own
transaction sees, whichever process wrote, and when.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from langmem_adapters.concurrency.forks import anew_in_child

__all__ = ["Kept"]

_MEGABYTE = 1 << 20


class Kept:
    """What was read last, within ``megabytes``. May be shared by threads, and across ``fork``."""

    def __init__(self, megabytes: float) -> None:
        self._room = megabytes * _MEGABYTE
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Have nothing."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[int, int, Any]] = OrderedDict()
        self._size = 0

    def get(self, key: Hashable, changed: int) -> Any:
        """What was kept under a key, if this was its last change; else None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0] != changed:
                return None
            self._entries.move_to_end(key)
            return entry[2]

    def keep(self, key: Hashable, changed: int, value: Any, size: int) -> None:
        """Keep what nobody changes any more, of so many bytes, in place of what was kept under the key."""
        with self._lock:
            self._drop(key)
            if size > self._room:
                return
            self._entries[key] = (changed, size, value)
            self._size += size
            while self._size > self._room:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry[1]
