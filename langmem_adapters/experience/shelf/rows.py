"""What a shelf has of each entry, and changes together: a value, a place in the log, marks, and the count of bytes.

The log holds one item for each key, so an item that outlives its value would keep the next value of that key from
being told to those who follow the log. Where its item is not at hand, an entry that is removed leaves a grave: whoever
puts the key again, or comes across the item, sees by it that there is something to clear away.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from langmem_adapters.errors import Conflict
from langmem_adapters.experience.shelf.read_cache import invalidate
from langmem_adapters.expiry import LINGER
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Store
from langmem_adapters.records.paging import pages

__all__ = ["BYTES", "GRAVE", "USED", "Rows", "is_used", "number"]

USED, GRAVE, BYTES = "used\0", "gone\0", "bytes\0"


class Rows:
    """Blocking; meant for a flow's steps.

    Args:
        store, namespace: Where they are.
        bounded: Whether entries are marked as used.
        counted: Whether their bytes are counted.
    """

    def __init__(self, store: Store, namespace: Namespace, *, bounded: bool, counted: bool) -> None:
        self.store = store
        self.namespace = namespace
        self._bounded = bounded
        self._counted = counted

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Read values; those that do not exist are left out."""
        return self.store.get(self.namespace, keys)

    def with_marks(self, keys: Sequence[str]) -> list[str]:
        """These keys, and those of what is marked of them."""
        return [*keys, *(GRAVE + key for key in keys), *self.uses(keys)]

    def uses(self, keys: Sequence[str]) -> list[str]:
        """The keys of the marks of use."""
        return [USED + key for key in keys] if self._bounded else []

    def pages(self) -> Iterator[list[Item]]:
        """Go through the log, a page at a time."""
        return pages(self.store, self.namespace)

    def together(self, items: Sequence[Item]) -> tuple[list[Item], dict[str, bytes]]:
        """Those of neighbouring items that have not moved since, with what there is of each at the same moment."""
        if not items:
            return [], {}
        names = self.with_marks([item.id for item in items])
        page = self.store.scan(self.namespace, after=items[0].seq - 1, limit=len(items), keys=names)
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
        """Change these entries, all or nothing; False, if another writer was quicker.

        Those who keep what they have read are told, even if the answer was lost.
        """
        values, guarded = dict(put or {}), dict(guard or {})
        if self._counted:
            before = self.get([*keys, BYTES])
            held = sum(len(before[key]) for key in keys if key in before)
            total = number(before.get(BYTES)) - held + sum(len(values[key]) for key in keys if key in values)
            guarded = {**{key: before.get(key) for key in keys}, BYTES: before.get(BYTES), **guarded}
            values[BYTES] = str(max(total, 0)).encode()
        try:
            self.store.write(self.namespace, put=values, delete=delete, append=append, remove=remove, guard=guarded)
        except Conflict:
            return False
        finally:
            invalidate(self.namespace, keys)
        return True

    def exchange(self, key: str, data: bytes) -> dict[str, bytes]:
        """Put an entry in the place of whatever is there; give the entry and the grave from before."""
        there = [key, GRAVE + key]
        try:
            return self.store.append(self.namespace, [(key, b"")], put={key: data}, keys=there).values
        finally:
            invalidate(self.namespace, [key])

    def leave(self) -> bool:
        """Have the place of these rows go soon, if there are none: each write says anew how long it stays."""
        if self._is_empty():
            self.store.write(self.namespace, ttl=LINGER)
            if self._is_empty():
                return True
            self.store.write(self.namespace)  # somebody had put something there
        return False

    def _is_empty(self) -> bool:
        return not self.store.scan(self.namespace, limit=0).total

    def bury(self, values: Mapping[str, bytes]) -> bool:
        """Remove exactly these entries, wherever they stand in the log; False, if another writer was quicker."""
        keys, new = list(values), os.urandom(8)  # none that was there before
        graves = {GRAVE + key: new for key in keys}
        return self.change(keys, put=graves, delete=[*keys, *self.uses(keys)], guard=values)


def is_used(key: str, values: Mapping[str, bytes]) -> bool:
    """Whether an entry was used where it stands now; the mark of one that was spared says where it stood before."""
    return values.get(USED + key) == b""


def number(data: bytes | None) -> int:
    """A count that was kept; 0 for none."""
    return int(data) if data is not None and data.isdigit() else 0
