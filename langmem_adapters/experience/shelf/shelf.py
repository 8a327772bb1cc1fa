"""Where a pool keeps its entries: values by key, and a log of the keys in the order in which they go.

The log has one item for each key, however often its value is replaced, so it is as long as the pool. Where the text
changes by which an entry is found, the key moves to the new end, so that every index that follows the log sees it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from langmem_adapters.codec import is_for_others, refuse_undamaged
from langmem_adapters.errors import ConfigurationError, Conflict, LangmemError, StoreError
from langmem_adapters.experience.shelf.eviction import Evicted, Eviction
from langmem_adapters.experience.shelf.index import ShelfIndex
from langmem_adapters.experience.shelf.read_cache import ReadCache, invalidate
from langmem_adapters.experience.shelf.rows import GRAVE, USED, Rows, is_used
from langmem_adapters.experience.shelf.under_way import outdate
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.protocols import Index, Item, Store
from langmem_adapters.records.paging import PAGE, values_of

__all__ = ["Evicted", "Shelf"]

_MORE = 8  # hits that are asked for beyond four times as many, where too few of them could be served
_FAR = 300  # entries of others: what is found behind so many is like nothing
_SELDOM = 4  # writes that drop nothing, of which one looks for what nobody can be served
_log = logging.getLogger("langmem_adapters")

T = TypeVar("T")


class Shelf:
    """Blocking; meant for a flow's steps.

    Args:
        store, namespace: Where it is.
        max_entries, max_bytes: What it may hold; None: any number. Writers of one shelf must agree about them.
        worth: Gives what an entry is worth keeping; None for one that is worth nothing at all.
        index: What finds entries by text, if anything does.
        text_of: Gives the text of an entry by which it is to be found; empty: not to be found.
        read_cache: In front of the store.
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
        self._bounded = not (max_entries is None and max_bytes is None)
        self._text_of = text_of
        self._rows = Rows(store, namespace, bounded=self._bounded, counted=max_bytes is not None)
        self._eviction = Eviction(self._rows, max_entries=max_entries, max_bytes=max_bytes, worth=worth)
        self._index = None if index is None else ShelfIndex(self._rows, index, text_of)

    def get(self, key: str) -> bytes | None:
        """Read an entry; what is read is used."""
        read_cache = self.read_cache
        if read_cache is None:
            return self._stored(key)
        data = read_cache.get(key)
        if data is None:
            token = read_cache.token()
            data = self._stored(key)
            if data is not None:
                read_cache.keep(key, data, token)
        return data

    def _stored(self, key: str) -> bytes | None:
        if not self._bounded:
            return self.store.get(self.namespace, [key]).get(key)
        found = self.store.get(self.namespace, [key, USED + key])
        data = found.get(key)
        if data is not None and not is_used(key, found):
            self._mark(key, data)
        return data

    def _mark(self, key: str, data: bytes) -> None:
        try:
            self.store.write(self.namespace, put={USED + key: b""}, guard={key: data})
        except Conflict:
            pass  # it was replaced or dropped at this moment
        except StoreError as error:
            _log.info("an entry that was used could not be marked as such: %s", error)

    def put(self, key: str, data: bytes, evicted: Evicted | None = None, *, has_text: bool = True) -> int:
        """Keep an entry in place of the one before; returns how many had to go for it.

        They are added to ``evicted``, as are some that nobody could be served any more. Without ``has_text`` it has
        none by which a search could find it.
        """
        evicted = [] if evicted is None else evicted
        before = len(evicted)
        if self._max_bytes is not None and len(data) > self._max_bytes:
            self.delete([key])
            evicted.append((key, data))
            return 1
        left = None if has_text or self._bounded else self._put_unfound(key, data)
        while left is None:
            left = self._put(key, data)
        if self._bounded:
            left += self._eviction.evict(evicted)
        gone = len(evicted) - before
        if not gone and zlib.crc32(to_bytes(key)) % _SELDOM == 0:
            left += self._eviction.sweep(evicted)
        if left:
            self._forget(left)
        return gone

    def _put_unfound(self, key: str, data: bytes) -> list[Item]:
        """Keep an entry that no text finds, in one round trip where there was none.

        It needs no new place in the log, as a search leaves it out whatever an index knows its key by. Not where there
        is a bound: what is made anew would be among the first to go.
        """
        before = self._rows.exchange(key, data)
        old, grave = before.get(key), before.get(GRAVE + key)
        if old is not None and is_for_others(old):
            self._rows.change([key], put={key: old}, guard={key: data})
            refuse_undamaged(old, "an experience")
        if grave is not None:
            self._rows.change([key], delete=[GRAVE + key], guard={key: data, GRAVE + key: grave})
        if before:
            self._forget(keys=[key])
        return []

    def _put(self, key: str, data: bytes) -> list[Item] | None:
        """Keep an entry; gives what left the log for it, or None, if another writer was quicker."""
        new = [(key, b"")]
        if self._rows.change([key], put={key: data}, append=new, guard={key: None, GRAVE + key: None}):
            return []
        names = self._rows.with_marks([key])
        found = self._rows.get(names)
        if key in found and GRAVE + key not in found and self._text_of(found[key]) == self._text_of(data):
            there = {key: found[key], GRAVE + key: None}
            return [] if self._rows.change([key], put={key: data}, append=new, guard=there) else None
        items = [item for page in self._rows.pages() for item in page if item.id == key]
        done = self._rows.change(
            [key],
            put={key: data},
            delete=[GRAVE + key],
            remove=items,
            append=new,
            guard={name: found.get(name) for name in names},
        )
        return items if done else None

    def _forget(self, left: Sequence[Item] = (), keys: Sequence[str] = ()) -> None:
        """What is kept beside a write does not fail it: what the index could not forget, a search will."""
        if self._index is not None:
            try:
                self._index.forget([*keys, *(item.id for item in left)], left)
            except LangmemError as error:
                _log.info("what is gone stays in an index for now: %s", type(error).__name__)

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        """Put another entry, with the same text, in the place of exactly this one; False, if it is not there."""
        while not self._rows.change([key], put={key: new}, guard={key: old}):
            if self._rows.get([key]).get(key) != old:  # else it was the count of bytes that another was quicker with
                return False
        return True

    def delete(self, keys: Sequence[str]) -> list[bytes]:
        """Remove entries; returns those that there were."""
        outdate(self.namespace, keys)
        while (found := self.store.get(self.namespace, keys)) and not self._rows.bury(found):
            pass
        self._gone(list(found))
        return list(found.values())

    def discard(self, key: str, data: bytes) -> None:
        """Remove exactly this entry, and not what another has put in its place by now."""
        if self._rows.bury({key: data}):
            self._gone([key])

    def _gone(self, keys: Sequence[str]) -> None:
        if keys:
            if self._index is not None:
                self._index.forget(keys)
            self._forget(self._eviction.sweep())

    def drop(self, where: Callable[[bytes], bool]) -> int:
        """Remove all entries of which ``where`` is true; returns how many there were."""
        gone = 0
        outdate(self.namespace)
        for page in self._rows.pages():
            there, values = self._rows.together(page)
            items = [item for item in there if item.id in values and where(values[item.id])]
            keys = [item.id for item in items]
            if not items:
                continue
            exactly = {name: values.get(name) for name in self._rows.with_marks(keys)}
            if self._rows.change(keys, delete=self._rows.with_marks(keys), remove=items, guard=exactly):
                gone += len(items)
                if self._index is not None:
                    self._index.forget(keys, items)
            else:  # another writer was quicker with one of them
                now = self._rows.get(keys)
                gone += sum(len(self.delete([key])) for key in keys if key in now and where(now[key]))
        return gone

    def clear(self) -> None:
        """Remove everything, and what the index has of it."""
        outdate(self.namespace)
        try:
            self.store.clear(self.namespace)
        finally:
            invalidate(self.namespace)
        if self.index is not None:
            self.index.clear(self.namespace)

    def leave(self) -> None:
        """Leave no place behind where nothing is left; whoever puts something there again finds it as ever."""
        if self._rows.leave() and self.index is not None:
            self.index.clear(self.namespace)  # what was put there since, the next search tells it

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Go through keys and entries, a page at a time, from the old end to the new."""
        return values_of(self.store, self.namespace, lambda items: [item.id for item in items])

    def search(
        self, query: str, k: int, read: Callable[[bytes], T | None], wanted: Callable[[T], bool] = lambda _: True
    ) -> list[tuple[str, float, T]]:
        """The ``k`` best entries as (key, score, what is read of it), best first; of which None is read, those go.

        Of these, only those that are ``wanted``, as far as they do not stand behind hundreds that are not.
        """
        if self._index is None:
            raise ConfigurationError("a pool that is searched by meaning needs an index: give it index=")
        hits, ask = self._index.search(query, k), k
        while True:
            data = self.store.get(self.namespace, [hit.id for hit in hits])
            entries = {key: read(value) for key, value in data.items()}
            there = [(hit.id, hit.score, entry) for hit in hits if (entry := entries.get(hit.id)) is not None]
            found = [each for each in there if wanted(each[2])]
            self._remove({key: data[key] for key, entry in entries.items() if entry is None})
            wanted_keys = {each[0] for each in found}
            rest = [hit.id for hit in hits if hit.id not in wanted_keys]
            self._index.forget([key for key in rest if entries.get(key) is None or not self._text_of(data[key])])
            if len(found) >= k or len(hits) < ask or len(there) - len(found) >= _FAR:
                return found[:k]
            ask = 4 * ask + _MORE
            hits = self._index.more(query, ask)

    def _remove(self, spent: dict[str, bytes]) -> None:
        keys = list(spent)
        try:
            for start in range(0, len(keys), PAGE):
                self._rows.bury({key: spent[key] for key in keys[start : start + PAGE]})
        except StoreError as error:
            _log.info("what nobody can be served could not be removed: %s", type(error).__name__)
