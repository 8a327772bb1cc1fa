"""Where a pool keeps its entries: values by key, and a log of the keys in the order in which they go.

The log has one entry for each key, however often its value is replaced, so it is as long as the pool. A bounded pool
drops from its old end, a few on each write and never more: what was used since it last stood there goes back to the
new end (a mark, written once a round, says so), and of the others the least worthy go first. Any process may do it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from langmem_adapters.errors import ConfigurationError, Conflict, StoreError
from langmem_adapters.experience.recent import Recent, changed
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Document, Index, Item, Page, Store
from langmem_adapters.records import followed

__all__ = ["Shelf"]

_PAGE = 500
_LOOK = 8  # entries of the old end that are looked at in one go
_PASSES = 8  # at most, on one write
_MERCY = 4  # passes in which what was used is spared
_SLACK = 128  # of so many entries one more is dropped than must be, so that not every write has to
_USED, _BYTES = "used\0", "bytes\0"
_log = logging.getLogger("langmem_adapters")


class _Round(NamedTuple):
    """What to drop from the old end, and what to put back to the new end."""

    drop: list[Item]
    spare: list[Item]
    values: dict[str, bytes]


class Shelf:
    """Blocking; meant for a flow's steps.

    Args:
        store, namespace: Where it is.
        max_entries, max_bytes: What it may hold; None: any number. Writers of one shelf must agree about them.
        worth: Gives what an entry is worth keeping; None for one that is worth nothing at all.
        index: What finds entries by text, if anything does.
        text_of: Gives the text of an entry by which it is to be found; None: not to be found.
        recent: Keeps what was read last.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        *,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        worth: Callable[[bytes], float | None],
        index: Index | None = None,
        text_of: Callable[[bytes], str | None] = lambda _: None,
        recent: Recent | None = None,
    ) -> None:
        for name, bound in (("max_entries", max_entries), ("max_bytes", max_bytes)):
            if bound is not None and bound < 1:
                raise ConfigurationError(f"{name} is a number above 0, or None, not {bound}")
        self.store = store
        self.namespace = namespace
        self.index = index
        self.recent = recent
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bounded = not (max_entries is None and max_bytes is None)
        self._worth = worth
        self._text_of = text_of
        self._following = threading.Lock()
        self._tidied = 0  # how far the log was looked through for keys without a value

    def get(self, key: str) -> bytes | None:
        """Read an entry; what is read is used."""
        recent = self.recent
        if recent is None:
            return self._stored(key)
        data = recent.get(key)
        if data is None:
            ticket = recent.ticket()
            data = self._stored(key)
            if data is not None:
                recent.keep(key, data, ticket)
        return data

    def _stored(self, key: str) -> bytes | None:
        if not self._bounded:
            return self.store.get(self.namespace, [key]).get(key)
        found = self.store.get(self.namespace, [key, _USED + key])
        data = found.get(key)
        if data is not None and _USED + key not in found:
            self._mark(key, data)
        return data

    def _mark(self, key: str, data: bytes) -> None:
        try:
            self.store.write(self.namespace, put={_USED + key: b""}, guard={key: data})
        except Conflict:
            pass  # it was replaced or dropped in this moment
        except StoreError as error:
            _log.info("an entry that was used could not be marked as such: %s", error)

    def put(self, key: str, data: bytes, evicted: list[tuple[str, bytes]] | None = None) -> int:
        """Keep an entry in place of the one before; returns how many had to go for it, and adds them to ``evicted``."""
        if self._max_bytes is None:
            self._write([key], put={key: data}, append=[(key, b"")])
        elif len(data) > self._max_bytes:
            self.delete([key])
            return 1
        else:
            while not self._counted([key], put={key: data}, append=[(key, b"")]):
                pass
        return self._make_room([] if evicted is None else evicted) if self._bounded else 0

    def replace(self, key: str, old: bytes, new: bytes) -> bool:
        """Put another entry in the place of exactly this one; False, if it is not there any more."""
        guard: dict[str, bytes | None] = {key: old}
        if self._max_bytes is not None:
            return self._counted([key], put={key: new}, guard=guard)
        with suppress(Conflict):
            self._write([key], put={key: new}, guard=guard)
            return True
        return False

    def delete(self, keys: Sequence[str]) -> int:
        """Remove entries; returns how many there were."""
        found = list(self.store.get(self.namespace, keys))
        if found:
            # The index follows the log: a key that stays in it would not be indexed when it is put again.
            stale = [] if self.index is None else [item for page in self._pages(0) for item in page if item.id in found]
            while not self._counted(found, delete=self._with_marks(found), remove=stale):
                pass
            if self.index is not None:
                self.index.apply(self.namespace, delete=found)
            self._tidy()
        return len(found)

    def drop(self, where: Callable[[bytes], bool]) -> int:
        """Remove all entries of which ``where`` is true; returns how many there were."""
        gone = 0
        for page in self._pages(after=0):
            values = self.store.get(self.namespace, [item.id for item in page])
            items = [item for item in page if item.id in values and where(values[item.id])]
            keys = [item.id for item in items]
            while items and not self._counted(keys, delete=self._with_marks(keys), remove=items):
                pass
            if items and self.index is not None:
                self.index.apply(self.namespace, delete=keys)
            gone += len(items)
        return gone

    def clear(self) -> None:
        """Remove everything, and what the index has of it."""
        try:
            self.store.clear(self.namespace)
        finally:
            changed(self.namespace)
        if self.index is not None:
            self.index.clear(self.namespace)

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Go through keys and entries, a page at a time, from the old end to the new."""
        seen: set[str] = set()
        for page in self._pages(after=0):
            keys = [item.id for item in page if item.id not in seen]  # one may be put back to the end meanwhile
            seen.update(keys)
            found = self.store.get(self.namespace, keys)
            yield from ((key, found[key]) for key in keys if key in found)

    def _pages(self, after: int) -> Iterator[list[Item]]:
        while items := self.store.scan(self.namespace, after=after, limit=_PAGE).items:
            yield items
            after = items[-1].seq

    # --- bounds

    def _make_room(self, evicted: list[tuple[str, bytes]]) -> int:
        gone = 0
        for number in range(_PASSES):
            page = self.store.scan(self.namespace, limit=_LOOK, keys=[_BYTES])
            entries, size = self._excess(page)
            if entries <= 0 and size <= 0:
                break
            if self._max_entries is not None and entries > 0:
                entries += min(_LOOK - 1, self._max_entries // _SLACK)
            chosen = self._choose(page.items, entries, size, merciful=number < _MERCY)
            found = self._carry_out(chosen)
            evicted += found
            gone += len(found)
        return gone

    def _excess(self, page: Page) -> tuple[int, int]:
        entries = 0 if self._max_entries is None else page.total - self._max_entries
        size = 0 if self._max_bytes is None or not page.total else _number(page.values.get(_BYTES)) - self._max_bytes
        return entries, size

    def _choose(self, items: Sequence[Item], entries: int, size: int, *, merciful: bool) -> _Round:
        keys = [item.id for item in items]
        values = self.store.get(self.namespace, self._with_marks(keys))
        worths = {key: self._worth(values[key]) for key in keys if key in values}
        used = [item for item in items if merciful and _USED + item.id in values and worths.get(item.id) is not None]
        drop = [item for item in items if worths.get(item.id) is None]  # expired, damaged, or deleted
        rest = [item for item in items if item not in drop and item not in used]
        for item in sorted(rest, key=lambda item: worths[item.id] or 0.0):
            if len(drop) >= entries and sum(len(values.get(item.id, b"")) for item in drop) >= size:
                break
            drop.append(item)
        return _Round(drop, used, values)

    def _carry_out(self, chosen: _Round) -> list[tuple[str, bytes]]:
        drop, spare, values = chosen
        keys = [item.id for item in drop]
        there = [(key, values[key]) for key in keys if key in values]
        done = self._counted(
            keys,
            delete=[*self._with_marks(keys), *(_USED + item.id for item in spare)],
            remove=[*drop, *spare],
            append=[(item.id, b"") for item in spare],
            guard={key: values.get(key) for key in self._with_marks([*keys, *(item.id for item in spare)])},
        )
        return there if done else []

    def _counted(
        self,
        keys: Sequence[str],
        *,
        put: dict[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        remove: Sequence[Item] = (),
        guard: dict[str, bytes | None] | None = None,
    ) -> bool:
        """Write, and keep count of the bytes where they are bounded; False, if another writer was quicker."""
        put, guard = dict(put or {}), dict(guard or {})
        if self._max_bytes is not None:
            before = self.store.get(self.namespace, [*keys, _BYTES])
            held = sum(len(before[key]) for key in keys if key in before)
            total = _number(before.get(_BYTES)) - held + sum(len(data) for data in put.values())
            guard = {**{key: before.get(key) for key in keys}, _BYTES: before.get(_BYTES), **guard}
            put[_BYTES] = str(max(total, 0)).encode()
        try:
            self._write(keys, put=put, delete=delete, append=append, remove=remove, guard=guard)
        except Conflict:
            return False
        return True

    def _write(self, keys: Sequence[str], **change: Any) -> None:
        """Change these entries, and tell those who keep what they have read, even if the answer was lost."""
        try:
            self.store.write(self.namespace, **change)
        finally:
            changed(self.namespace, keys)

    def _with_marks(self, keys: Sequence[str]) -> list[str]:
        return [*keys, *(_USED + key for key in keys)] if self._bounded else list(keys)

    def _tidy(self) -> None:
        """Look at the next few keys of the log for some without a value, so that deleting leaves nothing for good."""
        items = self.store.scan(self.namespace, after=self._tidied, limit=_LOOK).items
        self._tidied = items[-1].seq if len(items) == _LOOK else 0
        values = self.store.get(self.namespace, [item.id for item in items])
        stale = [item for item in items if item.id not in values]
        if stale:
            with suppress(Conflict):
                self.store.write(self.namespace, remove=stale, guard={item.id: None for item in stale})

    # --- search

    def search(
        self, query: str, k: int, wanted: Callable[[bytes], bool] = lambda _: True
    ) -> list[tuple[str, float, bytes]]:
        """The ``k`` best of the wanted entries as (key, score, data), best first."""
        index = self.index
        if index is None:
            raise ConfigurationError("a pool that is searched by meaning needs an index: give it index=")
        self._follow(index)
        ask = k
        while True:
            hits = index.search(self.namespace, query, ask)
            data = self.store.get(self.namespace, [hit.id for hit in hits])
            gone = [hit.id for hit in hits if hit.id not in data]
            if gone:  # dropped by a process that has no index
                index.apply(self.namespace, delete=gone)
            found = [(hit.id, hit.score, data[hit.id]) for hit in hits if hit.id in data and wanted(data[hit.id])]
            if len(found) >= k or len(hits) < ask:
                return found[:k]
            ask = 4 * ask + _LOOK

    def _follow(self, index: Index) -> None:
        with self._following:
            for items in self._news(index):
                found = self.store.get(self.namespace, [item.id for item in items])
                texts = {key: self._text_of(data) for key, data in found.items()}
                index.apply(
                    self.namespace,
                    upsert=[Document(key, text) for key, text in texts.items() if text],
                    delete=[item.id for item in items if not texts.get(item.id)],
                    position=(items[-1].seq, items[-1].id),
                )

    def _news(self, index: Index) -> Iterator[list[Item]]:
        """What an index has not seen of the log, a page at a time."""
        seen = index.position(self.namespace)
        if seen is not None:
            # One look tells whether the entry that it saw last is still there, and what came after it.
            items = self.store.scan(self.namespace, after=seen[0] - 1, limit=_PAGE).items
            if items and (items[0].seq, items[0].id) == seen:
                if items[1:]:
                    yield items[1:]
                    yield from self._pages(items[-1].seq)
                return
        yield from self._pages(followed(self.store, index, self.namespace) or 0)


def _number(data: bytes | None) -> int:
    return int(data) if data is not None and data.isdigit() else 0
