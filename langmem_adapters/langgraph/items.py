"""The items of one LangGraph namespace, in one namespace of a store."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import Conflict, LangmemError
from langmem_adapters.flow import Flow, blocking, step
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.langgraph.stored_items import StoredItem, Totals
from langmem_adapters.protocols import Index, Item, Store
from langmem_adapters.records.journal import (
    COMPACTION_KEY,
    change_entries,
    compaction_mark,
    is_logged_again,
    keys_of,
    stale_entries,
)
from langmem_adapters.records.keyed import Records
from langmem_adapters.records.paging import PAGE_SIZE

_TOTALS_KEY = "census"  # the key of the totals; no encoded key is equal to it
_RESERVED_KEYS = (_TOTALS_KEY, COMPACTION_KEY)  # keys of values that are no items
_MAX_EXTRA_ENTRIES = 64  # outdated log entries that may remain, beyond one for each item
_EXTRA_READS = 32  # entries beyond those wanted: writers at the same moment are not logged in their clocks' order
_MIN_SHARE = 4  # a search that would read more than one item in so many reads all of them at once
_REGISTER_INTERVAL = 32  # a write calls ``register`` again once in so many log entries
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.001, 0.05  # that a writer waits at most after a conflict, first and later
_LOCK_TIMEOUT_SECONDS = 2.0  # for others of this process; then, as in an outage, a writer goes on beside them
_log = logging.getLogger("langmem_adapters")
_Found = tuple[str, float, StoredItem]  # key, score and item


class NamespaceItems:
    """Items by key and by search. Blocking; meant for a flow's steps.

    The store is the truth: only :meth:`find` needs the index. Writers of one process take turns; writers of several
    processes notice that another came first, and try again.

    Args:
        text_of: Gives the text by which an item is found; empty: it is not found.
        register: Is called before the first item is written, and before some later ones.
        confirm_registered: Is called after the first item was written.
        form: Identifies the texts that ``text_of`` makes; for another one, the index is rebuilt.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        *,
        index: Index,
        text_of: Callable[[StoredItem], str],
        register: Callable[[], None],
        confirm_registered: Callable[[], None],
        clock: Callable[[], float],
        new_id: Callable[[], str],
        form: str = "",
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._register = register
        self._confirm_registered = confirm_registered
        self._clock = clock
        self._new_id = new_id
        self._write_lock = ForkSafeLock()
        self._known_size = 0  # how many items there were when all were last read
        self._records = Records(
            store,
            namespace,
            index=index,
            text_of=partial(_item_text, text_of),
            new_id=new_id,
            text_format=form,
            other_keys=_RESERVED_KEYS,
        )

    @blocking
    def get(self, keys: Sequence[str]) -> Flow[dict[str, StoredItem]]:
        """Read items; those that do not exist, or have expired, are left out."""
        values = yield from step(self._store.get, self._namespace, [_encode_key(key) for key in keys])
        return self._unexpired_items(values)

    @blocking
    def all(self) -> Flow[dict[str, StoredItem]]:
        """Read all items; expired ones are removed."""
        values = yield from step(self._store.get, self._namespace)
        if self._is_due(Totals.of(values.get(_TOTALS_KEY))):
            with self._write_lock.try_hold(_LOCK_TIMEOUT_SECONDS):
                self._tidy_or_warn()
        self._known_size = len(values)
        return self._unexpired_items(values)

    @blocking
    def newest(self, count: int, matches: Callable[[StoredItem], bool]) -> Flow[dict[str, StoredItem] | None]:
        """At least the ``count`` last updated of the items that match, if there are as many; None if there is no item.

        Where there are many, they are found from the end of the log, which names each item where it was last put. Those
        of one entry were put at the same time, so that the first of their keys are enough.
        """
        found, named = dict[str, StoredItem](), set[str]()
        before: int | None = None
        limit, reads = count + _EXTRA_READS, 0
        max_reads = self._known_size / _MIN_SHARE
        while reads + limit < max_reads:
            page = yield from step(
                self._store.scan, self._namespace, before=before, limit=limit, reverse=True, keys=[_TOTALS_KEY]
            )
            groups, before = _last_keys(page.items, named, count, limit)
            if not groups or self._is_due(Totals.of(page.values.get(_TOTALS_KEY))):
                break
            is_last = len(page.items) < limit and page.items[-1].seq == before
            oldest = float("-inf" if is_last else "inf")  # of those that were read; any that follow may be as old
            for part in (slice(count), slice(count, None)):
                keys = [key for group in groups if len(found.keys() & group) < count for key in group[part]]
                reads += len(keys)
                if keys and reads < max_reads:
                    read = yield from step(self.get, keys)
                    found |= {key: item for key, item in read.items() if matches(item)}
                    oldest = min([oldest, *(item.updated_at for item in read.values())])
            if reads < max_reads and sum(item.updated_at > oldest for item in found.values()) >= count:
                return found
            limit = min(4 * limit, PAGE_SIZE)
        items = yield from step(self.all)
        return {key: item for key, item in items.items() if matches(item)} if items else None

    @blocking
    def is_empty(self) -> Flow[bool]:
        """Whether there is no item; expired ones are removed."""
        totals = Totals.of((yield from step(self._store.get, self._namespace, [_TOTALS_KEY])).get(_TOTALS_KEY))
        return not (yield from step(self.all)) if self._is_due(totals) else totals.count == 0

    @blocking
    def sweep(self) -> Flow[int]:
        """Remove expired items; returns how many. Where none can have expired, it reads no item."""
        totals = Totals.of((yield from step(self._store.get, self._namespace, [_TOTALS_KEY])).get(_TOTALS_KEY))
        return self.tidy() if self._is_due(totals) else 0

    @blocking
    def find(self, query: str, k: int, matches: Callable[[StoredItem], bool]) -> Flow[list[_Found]]:
        """The ``k`` best of the items that match, best first."""
        now = self._clock()

        def read_match(_: str, data: bytes) -> StoredItem | None:
            item = StoredItem.from_bytes(data)
            return item if item is not None and item.is_unexpired(now) and matches(item) else None

        found = yield from step(self._records.search, query, k, read_match)
        return [(_decode_key(hit.id), hit.score, item) for hit, item in found]

    def put(self, changes: Mapping[str, StoredItem | None]) -> None:
        """Add, replace and (None) remove items, all or none. A replaced item keeps its ``created_at``."""
        self._retry(partial(self._try_put, {_encode_key(key): item for key, item in changes.items()}))

    def _retry(self, change: Callable[[], bool]) -> None:
        """Try a change until no other writer comes first, after random pauses so that writers do not keep step."""
        max_pause = _PAUSE_SECONDS
        with self._write_lock.try_hold(_LOCK_TIMEOUT_SECONDS):
            while not change():
                time.sleep(random.uniform(0, max_pause))  # noqa: S311 - not a secret
                max_pause = min(2 * max_pause, _MAX_PAUSE_SECONDS)

    def _try_put(self, changes: Mapping[str, StoredItem | None]) -> bool:
        page = self._store.scan(self._namespace, limit=0, keys=[_TOTALS_KEY, *changes])
        before = Totals.of(page.values.get(_TOTALS_KEY))
        old = {_encode_key(key): item for key, item in self._unexpired_items(page.values).items()}
        put = {name: item.in_place_of(old.get(name)) for name, item in changes.items() if item is not None}
        deleted = [name for name, item in changes.items() if item is None and name in page.values]
        if not put and not deleted:
            return True
        if before.count == 0 or page.total % _REGISTER_INTERVAL == 0:  # a server may have evicted it from the tree
            self._register()
        count = before.count + sum(name not in page.values for name in put) - len(deleted)
        keeps_expiry = not deleted and all(_lasts(item) and _lasts(old.get(name)) for name, item in put.items())
        stamp = before.stamp if keeps_expiry else self._new_id()
        after = before.after_put([item.expires_at for item in put.values()], count=count, stamp=stamp)
        if not self._write(page.values, after, put, deleted, changed=[*put, *deleted]):
            return False
        if before.count == 0:
            self._confirm_registered()
        is_tidying_due = count > 2 * after.tidied + _MAX_EXTRA_ENTRIES and self._is_due(after)
        if is_tidying_due or page.total > 2 * count + _MAX_EXTRA_ENTRIES:
            self._tidy_or_warn()
        return True

    def refresh(self, items: Mapping[str, StoredItem]) -> None:
        """Let items that were just read expire later, unless they have changed since or hardly any time has passed."""
        now = self._clock()
        due_items = {_encode_key(key): item for key, item in items.items() if item.is_refresh_due(now)}
        if due_items:
            self._retry(lambda: self._try_refresh(due_items))

    def _try_refresh(self, due_items: Mapping[str, StoredItem]) -> bool:
        values, now = self._store.get(self._namespace, [_TOTALS_KEY, *due_items]), self._clock()
        unchanged = {name: item for name, item in due_items.items() if item.is_stored_as(values.get(name))}
        refreshed_items = {name: item.refreshed(now) for name, item in unchanged.items()}
        if not refreshed_items:
            return True
        before = Totals.of(values.get(_TOTALS_KEY))
        expiries = [item.expires_at for item in refreshed_items.values()]
        after = before.after_put(expiries, count=before.count, stamp=self._new_id())
        return self._write(values, after, refreshed_items)

    def tidy(self) -> int:
        """Remove expired items and outdated log entries; returns how many items were removed.

        The newest quarter of the log stays, so that an index that is a little behind can go on from its position; one
        further behind is rebuilt. The index is not updated here: an embedder takes its time, or fails.
        """
        with self._write_lock.try_hold(_LOCK_TIMEOUT_SECONDS):
            return self._tidy()

    def _tidy_or_warn(self) -> None:
        """Tidy after a finished write, or before a read: neither fails if this does."""
        try:
            self._tidy()
        except LangmemError as error:
            _log.warning("a namespace of the long-term store could not be tidied; this will be tried again: %s", error)

    def _tidy(self) -> int:
        entries = self._store.scan(self._namespace).items  # before the values: later entries are left alone
        values = self._store.get(self._namespace)
        before = Totals.of(values.get(_TOTALS_KEY))
        now = self._clock()
        items = {name: StoredItem.from_bytes(data) for name, data in values.items() if _is_item_name(name)}
        expired = [name for name, item in items.items() if item is not None and not item.is_unexpired(now)]
        remaining = [item for item in items.values() if item is not None and item.is_unexpired(now)]
        count = len(items) - len(expired)
        after = Totals(count)
        if remaining:
            expiries = [item.expires_at for item in remaining]
            after = Totals(tidied=count).after_put(expiries, count=count, stamp=self._new_id())
        old_seqs = {entry.seq for entry in entries[: len(entries) - len(entries) // 4]}
        superseded = [
            entry for entry in stale_entries(reversed(entries), items.keys() - {*expired}) if entry.seq in old_seqs
        ]
        if not expired and not superseded and before.tidied == count:
            return 0
        # The log tells at its end of each key whose entry is removed, so that an index that is behind forgets it.
        done = self._write(values, after, {}, expired, changed=expired, remove=superseded)
        return len(expired) if done else 0

    def close(self) -> bool:
        """Let the rest of an empty namespace expire; False if it is not empty, or no longer."""
        values = self._store.get(self._namespace, [_TOTALS_KEY])
        is_empty = not Totals.of(values.get(_TOTALS_KEY)).count
        if not (is_empty and self._write(values, Totals(stamp=self._new_id()), {})):
            return False
        try:
            self._records.clear_indexes()
        except LangmemError as error:
            _log.warning("the index of an empty namespace could not be cleared; this will be tried again: %s", error)
            return False
        return True

    def _write(
        self,
        values: Mapping[str, bytes],
        after: Totals,
        put: Mapping[str, StoredItem],
        deleted: Sequence[str] = (),
        *,
        changed: Sequence[str] = (),
        remove: Sequence[Item] = (),
    ) -> bool:
        """Make a change, unless another came first; ``changed`` are the keys that the index must look at."""
        data = {name: item.to_bytes() for name, item in put.items()}
        if remove:
            data[COMPACTION_KEY] = compaction_mark(values, remove, after.count, self._new_id())
        data[_TOTALS_KEY] = after.to_bytes()
        self._records.searches.wrote_since_followed |= bool(changed)
        try:
            self._store.write(
                self._namespace,
                put=data,
                delete=deleted,
                append=change_entries(changed, self._new_id),
                remove=remove,
                guard={_TOTALS_KEY: values.get(_TOTALS_KEY)},
                ttl=after.ttl(self._clock()),
            )
        except Conflict:
            return False
        return True

    def _is_due(self, totals: Totals) -> bool:
        return totals.due is not None and totals.due <= self._clock()

    def _unexpired_items(self, values: Mapping[str, bytes]) -> dict[str, StoredItem]:
        now = self._clock()
        items = {_decode_key(name): StoredItem.from_bytes(data) for name, data in values.items() if _is_item_name(name)}
        return {key: item for key, item in items.items() if item is not None and item.is_unexpired(now)}


def _last_keys(entries: Sequence[Item], named: set[str], count: int, limit: int) -> tuple[list[list[str]], int]:
    """Keys not ``named`` before, sorted by entry, up to ``limit`` (``count`` an entry); none if they tell no order."""
    groups, seq, size = list[list[str]](), 0, 0
    for entry in entries:
        names = keys_of([entry])
        if not names or is_logged_again(entry):
            return [], 0
        groups.append(sorted(_decode_key(name) for name in names if name not in named and _is_item_name(name)))
        named.update(names)
        seq, size = entry.seq, size + min(len(groups[-1]), count)
        if size >= limit:
            break
    return groups, seq


def _lasts(item: StoredItem | None) -> bool:
    """Whether there is an item, and it never expires."""
    return item is not None and item.expires_at is None


def _encode_key(key: str) -> str:
    return encode_namespace((key,))


def _decode_key(name: str) -> str:
    return decode_namespace(name)[0]


def _is_item_name(name: str) -> bool:
    """Whether it is one encoded key; several, in an encrypted store, show that an item was moved up here."""
    return name.endswith("/") and name.count("/") == 1


def _item_text(text_of: Callable[[StoredItem], str], _: str, data: bytes) -> str | None:
    item = StoredItem.from_bytes(data)
    return None if item is None or item.fields is False else text_of(item)
