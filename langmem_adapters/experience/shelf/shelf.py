"""The entries of a pool: values by key, and a log of the keys in the order of eviction.

The log has one item for each key, however often its value is replaced, so it is as long as the pool. If the searchable
text of an entry changes, its key moves to the new end, so that every index that follows the log sees it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from langmem_adapters.codec import is_sealed_or_newer, refuse_sealed_or_newer
from langmem_adapters.errors import ConfigurationError, LangmemError, StoreError
from langmem_adapters.experience.shelf.eviction import Evicted, Eviction
from langmem_adapters.experience.shelf.index import ShelfIndex
from langmem_adapters.experience.shelf.invalidation import outdate
from langmem_adapters.experience.shelf.read_cache import ReadCache, invalidate
from langmem_adapters.experience.shelf.rows import TOMBSTONE, USED, Rows, is_used
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.protocols import Index, Item, Store
from langmem_adapters.records.paging import PAGE_SIZE, values_of

_EXTRA_HITS = 8  # hits added to four times the last number, if too few of those could be served
_MAX_UNWANTED = 300  # unwanted hits after which a search ends: what follows them is no longer similar
_SWEEP_INTERVAL = 4  # one in so many keys whose write evicts nothing sweeps for entries that cannot be served
_log = logging.getLogger("langmem_adapters")

T = TypeVar("T")


class Shelf:
    """The entries of one namespace. Blocking; meant for a flow's steps.

    Args:
        store, namespace: Where the entries are.
        max_entries, max_bytes: The bounds; None: unbounded. All writers of one shelf must use the same.
        worth: Returns the worth of an entry; None for one that is worthless, such as an expired one.
        index: Finds entries by text; None: no search.
        text_of: Returns the text by which an entry is found; empty: it is not searchable.
        read_cache: A cache in front of the store.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        *,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        worth: Callable[[bytes], float | None],
        index: Index | None,
        text_of: Callable[[bytes], str],
        read_cache: ReadCache | None = None,
    ) -> None:
        self.store = store
        self.namespace = namespace
        self.index = index
        self.read_cache = read_cache
        self._max_bytes = max_bytes
        self._is_bounded = not (max_entries is None and max_bytes is None)
        self._text_of = text_of
        self._rows = Rows(store, namespace, bounded=self._is_bounded, counts_bytes=max_bytes is not None)
        self._eviction = Eviction(self._rows, max_entries=max_entries, max_bytes=max_bytes, worth=worth)
        self._index = None if index is None else ShelfIndex(self._rows, index, text_of)

    def get(self, key: str) -> bytes | None:
        """Read an entry. If the shelf is bounded, a read from the store marks it as used."""
        read_cache = self.read_cache
        if read_cache is None:
            return self._read_stored(key)
        data = read_cache.get(key)
        if data is None:
            token = read_cache.token()
            data = self._read_stored(key)
            if data is not None:
                read_cache.keep(key, data, token)
        return data

    def _read_stored(self, key: str) -> bytes | None:
        if not self._is_bounded:
            return self.store.get(self.namespace, [key]).get(key)
        values = self.store.get(self.namespace, [key, USED + key])
        data = values.get(key)
        if data is not None and not is_used(key, values):
            self._mark_used(key, data)
        return data

    def _mark_used(self, key: str, data: bytes) -> None:
        try:
            self.store.write(self.namespace, put={USED + key: b""}, guard={key: data})
        except StoreError as error:  # or a Conflict: it was replaced or dropped at this moment
            _log.info("an entry could not be marked as used: %s", error)

    def put(self, key: str, data: bytes, evicted: Evicted | None = None, *, has_text: bool = True) -> int:
        """Put an entry, in place of the one of its key; returns how many entries were evicted for it.

        They are added to ``evicted``, as are some entries that could no longer be served. ``has_text=False`` says that
        no search can find it.
        """
        evicted = [] if evicted is None else evicted
        evicted_before = len(evicted)
        if self._index is not None:
            self._index.searches.wrote_since_followed = True
        if self._max_bytes is not None and len(data) > self._max_bytes:
            self.delete([key])
            evicted.append((key, data))
            return 1
        if has_text or self._is_bounded:
            while (removed := self._put(key, data)) is None:
                pass  # another writer was faster
        else:
            self._put_unsearchable(key, data)
            removed = []
        if self._is_bounded:
            removed += self._eviction.evict(key, evicted)
        evicted_count = len(evicted) - evicted_before
        if not evicted_count and zlib.crc32(to_bytes(key)) % _SWEEP_INTERVAL == 0:
            removed += self._eviction.sweep(evicted)
        if removed:
            self._forget_in_index(removed)
        return evicted_count

    def put_together(self, entries: Mapping[str, bytes]) -> list[str]:
        """Put entries in one write: the new ones, and those whose text stays. Returns the keys of all others.

        A bounded shelf puts none, as it evicts with each.
        """
        if self._is_bounded:
            return list(entries)
        if self._add(entries):
            return []
        values = self._rows.get(self._rows.with_marks(list(entries)))
        put = {key: data for key, data in entries.items() if self._keeps_place(key, data, values)}
        guard = {name: values.get(name) for name in self._rows.with_marks(list(put))}
        is_done = self._rows.change(list(put), put=put, append=[(key, b"") for key in put], guard=guard)
        return [key for key in entries if key not in put or not is_done]

    def _keeps_place(self, key: str, data: bytes, values: Mapping[str, bytes]) -> bool:
        """Whether an entry can be put without moving its key in the log."""
        if TOMBSTONE + key in values:
            return False
        return key not in values or self._text_of(values[key]) == self._text_of(data)

    def _add(self, entries: Mapping[str, bytes]) -> bool:
        guard = {name: None for key in entries for name in (key, TOMBSTONE + key)}
        return self._rows.change(list(entries), put=entries, append=[(key, b"") for key in entries], guard=guard)

    def _put_unsearchable(self, key: str, data: bytes) -> None:
        """Put an entry without searchable text; takes one round trip if the key is new.

        Its key keeps its place in the log, as a search leaves it out even if an index knows an older text of it. A
        bounded shelf does not use this: a replaced entry would be among the first to be evicted.
        """
        before = self._rows.exchange(key, data)
        old, tombstone = before.get(key), before.get(TOMBSTONE + key)
        if old is not None and is_sealed_or_newer(old):
            self._rows.change([key], put={key: old}, guard={key: data})
            refuse_sealed_or_newer(old, "an experience")
        if tombstone is not None:
            self._rows.change([key], delete=[TOMBSTONE + key], guard={key: data, TOMBSTONE + key: tombstone})
        if before:
            self._forget_in_index(keys=[key])

    def _put(self, key: str, data: bytes) -> list[Item] | None:
        """Put an entry; returns the items that left the log for it, or None, if another writer was faster."""
        if self._add({key: data}):
            return []
        new = [(key, b"")]
        names = self._rows.with_marks([key])
        values = self._rows.get(names)
        if key in values and self._keeps_place(key, data, values):
            guard = {key: values[key], TOMBSTONE + key: None}
            return [] if self._rows.change([key], put={key: data}, append=new, guard=guard) else None
        items = [item for page in self._rows.pages() for item in page if item.id == key]
        is_done = self._rows.change(
            [key],
            put={key: data},
            delete=[TOMBSTONE + key],
            remove=items,
            append=new,
            guard={name: values.get(name) for name in names},
        )
        return items if is_done else None

    def _forget_in_index(self, removed: Sequence[Item] = (), keys: Sequence[str] = ()) -> None:
        """Tell the index; its errors do not fail the write, as a search forgets the rest."""
        if self._index is not None:
            try:
                self._index.forget([*keys, *(item.id for item in removed)], removed)
            except LangmemError as error:
                _log.info("removed entries stay in the index until a search drops them: %s", type(error).__name__)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        """Replace exactly this entry by one with the same text; False, if it is not there."""
        while not self._rows.change([key], put={key: new}, guard={key: old}):
            if self._rows.get([key]).get(key) != old:  # otherwise only the byte count had changed
                return False
        return True

    def delete(self, keys: Sequence[str]) -> list[bytes]:
        """Remove entries; returns those that there were."""
        outdate(self.namespace, keys)
        while (existing := self._rows.get(keys)) and not self._rows.remove_with_tombstones(existing):
            pass  # another writer was faster
        self._follow_up_removal(keys, sweeps=bool(existing))  # all: an earlier call may have failed half-way
        return list(existing.values())

    def discard(self, key: str, data: bytes) -> None:
        """Remove exactly this entry, not one that has replaced it since."""
        if self._rows.remove_with_tombstones({key: data}):
            self._follow_up_removal([key])

    def _follow_up_removal(self, keys: Sequence[str], *, sweeps: bool = True) -> None:
        if self._index is not None:
            self._index.forget(keys)
        if sweeps:
            self._forget_in_index(self._eviction.sweep())

    def drop(self, where: Callable[[bytes], bool]) -> int:
        """Remove all entries of which ``where`` is true; returns how many there were."""
        removed_count = 0
        outdate(self.namespace)
        for page in self._rows.pages():
            present, values = self._rows.read_items(page)
            items = [item for item in present if item.id in values and where(values[item.id])]
            keys = [item.id for item in items]
            if not items:
                continue
            names = self._rows.with_marks(keys)
            if self._rows.change(keys, delete=names, remove=items, guard={name: values.get(name) for name in names}):
                removed_count += len(items)
                if self._index is not None:
                    self._index.forget(keys, items)
            else:  # another writer changed one of them first
                current = self._rows.get(keys)
                removed_count += sum(len(self.delete([key])) for key, data in current.items() if where(data))
        return removed_count

    def clear(self) -> None:
        """Remove all entries, also from the index."""
        outdate(self.namespace)
        try:
            self.store.clear(self.namespace)
        finally:
            invalidate(self.namespace)
        if self._index is not None:
            self._index.clear()

    def expire_if_empty(self) -> None:
        """Remove the namespace, if it is empty; a later put creates it again."""
        if self._rows.expire_if_empty() and self._index is not None:
            self._index.clear()  # if an entry was put since, the next search indexes it

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Iterate over keys and entries, a page at a time, from the old end to the new."""
        return values_of(self.store, self.namespace, lambda items: [item.id for item in items])

    def search(
        self, query: str, k: int, read: Callable[[bytes], T | None], accepts: Callable[[T], bool] = lambda _: True
    ) -> list[tuple[str, float, T]]:
        """The ``k`` best entries that ``accepts`` lets through, as (key, score, result of ``read``), best first.

        Entries for which ``read`` returns None are removed. The search ends after some hundred unwanted entries.
        """
        if self._index is None:
            raise ConfigurationError("the pool needs an index to be searched by meaning: give it index=")
        requested = k
        while True:
            hits, data = self._index.search(query, requested)
            entries = {key: read(value) for key, value in data.items()}
            readable = [(hit.id, hit.score, entry) for hit in hits if (entry := entries.get(hit.id)) is not None]
            matches = [(key, score, entry) for key, score, entry in readable if accepts(entry)]
            self._remove_unusable({key: data[key] for key, entry in entries.items() if entry is None})
            matched_keys = {key for key, _, _ in matches}
            rest = [hit.id for hit in hits if hit.id not in matched_keys]
            self._index.forget([key for key in rest if entries.get(key) is None or not self._text_of(data[key])])
            unwanted_count = len(readable) - len(matches)
            if len(matches) >= k or len(hits) < requested or unwanted_count >= _MAX_UNWANTED:
                return matches[:k]
            requested = 4 * requested + _EXTRA_HITS

    def _remove_unusable(self, unusable: dict[str, bytes]) -> None:
        keys = list(unusable)
        try:
            for start in range(0, len(keys), PAGE_SIZE):
                self._rows.remove_with_tombstones({key: unusable[key] for key in keys[start : start + PAGE_SIZE]})
        except StoreError as error:
            _log.info("unusable entries could not be removed: %s", type(error).__name__)
