"""The rows of an entry, which change together: its value, its log item, its marks, and the byte count of the shelf.

The log holds one item for each key. An item that outlives its value would hide the next value of that key from those
who follow the log. So if an entry is removed without its item, it leaves a tombstone: whoever puts the key again, or
meets the item, sees that the item is to be removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from langmem_adapters.errors import Conflict
from langmem_adapters.experience.shelf.read_cache import invalidate
from langmem_adapters.expiry import EMPTY_TTL_SECONDS
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Store
from langmem_adapters.records.paging import pages

USED, TOMBSTONE, BYTES = "used\0", "gone\0", "bytes\0"


class Rows:
    """The rows of a shelf in its store. Blocking; meant for a flow's steps. If ``bounded``, it marks used entries."""

    def __init__(self, store: Store, namespace: Namespace, *, bounded: bool, counts_bytes: bool) -> None:
        self.store = store
        self.namespace = namespace
        self._bounded = bounded
        self._counts_bytes = counts_bytes

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Read values; those that do not exist are left out."""
        return self.store.get(self.namespace, keys)

    def with_marks(self, keys: Sequence[str]) -> list[str]:
        """These keys, with the keys of their tombstones and use marks."""
        return [*keys, *(TOMBSTONE + key for key in keys), *self.use_marks(keys)]

    def use_marks(self, keys: Sequence[str]) -> list[str]:
        """The keys of their use marks."""
        return [USED + key for key in keys] if self._bounded else []

    def pages(self) -> Iterator[list[Item]]:
        """Iterate over the log, a page at a time."""
        return pages(self.store, self.namespace)

    def read_items(self, items: Sequence[Item]) -> tuple[list[Item], dict[str, bytes]]:
        """Those neighbouring items that are still in their places, with their values and marks, in one read."""
        if not items:
            return [], {}
        keys = self.with_marks([item.id for item in items])
        page = self.store.scan(self.namespace, after=items[0].seq - 1, limit=len(items), keys=keys)
        return sorted({*items} & {*page.items}), page.values

    def change(
        self,
        keys: Sequence[str],
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        remove: Sequence[Item] = (),
        guard: Mapping[str, bytes | None] | None = None,
    ) -> bool:
        """Change these entries, all or nothing; False, if another writer was faster.

        Read caches drop them in any case, as the write may have succeeded even if its answer was lost.
        """
        values, guards = dict(put or {}), dict(guard or {})
        if self._counts_bytes:
            before = self.get([*keys, BYTES])
            old_size = sum(len(before[key]) for key in keys if key in before)
            total = parse_count(before.get(BYTES)) - old_size + sum(len(values[key]) for key in keys if key in values)
            guards = {**{key: before.get(key) for key in keys}, BYTES: before.get(BYTES), **guards}
            values[BYTES] = str(max(total, 0)).encode()
        try:
            self.store.write(self.namespace, put=values, delete=delete, append=append, remove=remove, guard=guards)
        except Conflict:
            return False
        finally:
            invalidate(self.namespace, keys)
        return True

    def exchange(self, key: str, data: bytes) -> dict[str, bytes]:
        """Put an entry, unguarded; returns the entry and the tombstone that were there before."""
        keys = [key, TOMBSTONE + key]
        try:
            return self.store.append(self.namespace, [(key, b"")], put={key: data}, keys=keys).values
        finally:
            invalidate(self.namespace, [key])

    def expire_if_empty(self) -> bool:
        """Let the namespace expire soon, if it is empty; each later write sets its ttl anew. False, if it is not."""
        if self._is_empty():
            self.store.write(self.namespace, ttl=EMPTY_TTL_SECONDS)
            if self._is_empty():
                return True
            self.store.write(self.namespace)  # another writer has put an entry
        return False

    def _is_empty(self) -> bool:
        return not self.store.scan(self.namespace, limit=0).total

    def remove_with_tombstones(self, values: Mapping[str, bytes]) -> bool:
        """Remove exactly these entries, and leave tombstones for their items; False, if another writer was faster."""
        keys, tombstone = list(values), os.urandom(8)  # different from any earlier tombstone
        tombstones = {TOMBSTONE + key: tombstone for key in keys}
        return self.change(keys, put=tombstones, delete=[*keys, *self.use_marks(keys)], guard=values)


def is_used(key: str, values: Mapping[str, bytes]) -> bool:
    """Whether an entry was used since it got its place; the mark of a spared entry holds its former place."""
    return values.get(USED + key) == b""


def parse_count(data: bytes | None) -> int:
    """Parse a stored count; 0, if there is none."""
    return int(data) if data is not None and data.isdigit() else 0
