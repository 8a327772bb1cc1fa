"""The items of one LangGraph namespace, in one namespace of a store."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from langmem_adapters.codec import FORMAT, decode, encode, is_number, refuse_undamaged
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import Conflict, LangmemError, SerializationError
from langmem_adapters.expiry import LINGER, NOTICEABLE
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace
from langmem_adapters.langgraph.totals import Totals
from langmem_adapters.language.dates import day_of
from langmem_adapters.protocols import Index, Item, Store
from langmem_adapters.records.journal import TIDIED, mark, stale, telling
from langmem_adapters.records.keyed import Records

__all__ = ["NamespaceItems", "StoredItem"]

_TOTALS = "census"  # the key of the totals; no encoded key is equal to it
_BESIDE = (_TOTALS, TIDIED)  # keys of values that are no items
_SLACK = 64  # outdated log entries that may remain, beyond one for each item
_SELDOM = 32  # a write calls ``appear`` again once in so many log entries
_PAUSE, _LONGEST_PAUSE = 0.001, 0.05  # seconds at most that a writer waits after a conflict, first and later
_TURN = 2.0  # seconds that a writer waits for others of this process; then, as in an outage, it goes on beside them
_log = logging.getLogger("langmem_adapters")


@dataclass(frozen=True)
class StoredItem:
    """An item as it is stored. Times are Unix seconds, ``ttl`` is seconds; ``fields`` says by what it is found."""

    value: dict[str, Any]
    created_at: float
    updated_at: float
    ttl: float | None = None
    expires_at: float | None = None
    fields: list[str] | Literal[False] | None = None

    def to_bytes(self) -> bytes:
        """The stored form. Raises SerializationError for a value that cannot be kept without loss."""
        return encode({"v": FORMAT, **self.__dict__})

    @classmethod
    def from_bytes(cls, data: bytes) -> StoredItem | None:
        """Read a stored item; None, with a warning, if it is damaged, so that others can still be read."""
        try:
            fields = decode(data)
            if fields.pop("v") == FORMAT and _is_sound(item := cls(**fields)):
                return item
            damage = "it has another format"
        except (SerializationError, AttributeError, TypeError, KeyError):
            damage = "it cannot be read"
        refuse_undamaged(data, "an item of the long-term store")
        _log.warning("the long-term store holds a damaged item: %s", damage)
        return None

    def is_there(self, now: float) -> bool:
        """Whether the item has not expired."""
        return self.expires_at is None or now < self.expires_at

    def is_worn(self, now: float) -> bool:
        """Whether so much of its ttl has passed that a read restarts it."""
        return self.ttl is not None and (self.expires_at or 0.0) - now <= self.ttl * (1 - NOTICEABLE)

    def refreshed(self, now: float) -> StoredItem:
        """The item after it was read."""
        return self if self.ttl is None else replace(self, expires_at=now + self.ttl)


def _is_sound(item: StoredItem) -> bool:
    """Whether each field has its type, and the times are valid dates."""
    paths = item.fields if isinstance(item.fields, list) else []
    return (
        isinstance(item.value, dict)
        and all(is_number(at) and day_of(at) for at in (item.created_at, item.updated_at))
        and all(time is None or is_number(time) for time in (item.ttl, item.expires_at))
        and (item.fields in (None, False, paths) and all(isinstance(path, str) for path in paths))
    )


class NamespaceItems:
    """Items by key and by search. Blocking; meant for a flow's steps.

    The store is the truth: only :meth:`find` needs the index. Writers of one process take turns; writers of several
    processes notice that another came first, and try again.

    Args:
        store: Where the items are.
        place: The namespace that they fill.
        index: Finds them by text.
        text_of: Gives the text by which an item is found; empty: it is not found.
        appear: Is called before the first item is written, and before some later ones.
        begun: Is called after the first item was written.
        clock: Gives Unix seconds.
        new_id: Gives ids to entries of the log.
        form: Identifies the texts that ``text_of`` makes; for another one, the index is rebuilt.
    """

    def __init__(
        self,
        store: Store,
        place: Namespace,
        *,
        index: Index,
        text_of: Callable[[StoredItem], str],
        appear: Callable[[], None],
        begun: Callable[[], None],
        clock: Callable[[], float],
        new_id: Callable[[], str],
        form: str = "",
    ) -> None:
        self._store = store
        self._place = place
        self._index = index
        self._appear = appear
        self._begun = begun
        self._clock = clock
        self._new_id = new_id
        self._writing = ForkSafeLock()
        self._records = Records(
            store, place, index=index, text_of=partial(_text, text_of), new_id=new_id, form=form, beside=_BESIDE
        )

    def get(self, keys: Sequence[str]) -> dict[str, StoredItem]:
        """Read items; those that do not exist, or have expired, are left out."""
        return self._read(self._store.get(self._place, [_name(key) for key in keys]))

    def all(self) -> dict[str, StoredItem]:
        """Read all items; expired ones are removed."""
        values = self._store.get(self._place)
        if self._is_due(Totals.of(values.get(_TOTALS))):
            with self._writing.taken(_TURN):
                self._tidy_beside()
        return self._read(values)

    def is_empty(self) -> bool:
        """Whether there is no item; expired ones are removed."""
        totals = Totals.of(self._store.get(self._place, [_TOTALS]).get(_TOTALS))
        return not self.all() if self._is_due(totals) else totals.count == 0

    def find(self, query: str, k: int, wanted: Callable[[StoredItem], bool]) -> list[tuple[str, float, StoredItem]]:
        """The ``k`` best of the wanted items as (key, score, item), best first."""
        now = self._clock()

        def read(_: str, data: bytes) -> StoredItem | None:
            item = StoredItem.from_bytes(data)
            return item if item is not None and item.is_there(now) and wanted(item) else None

        return [(_key(hit.id), hit.score, item) for hit, item in self._records.search(query, k, read)]

    def put(self, changes: Mapping[str, StoredItem | None]) -> None:
        """Add, replace and (None) remove items, all or none. A replaced item keeps its ``created_at``."""
        self._until_done(lambda: self._put(changes))

    def _until_done(self, change: Callable[[], bool]) -> None:
        """Try a change until no other writer comes first, after random pauses so that writers do not keep step."""
        longest = _PAUSE
        with self._writing.taken(_TURN):
            while not change():
                time.sleep(random.uniform(0, longest))  # noqa: S311 - not a secret
                longest = min(2 * longest, _LONGEST_PAUSE)

    def _put(self, changes: Mapping[str, StoredItem | None]) -> bool:
        page = self._store.scan(self._place, limit=0, keys=[_TOTALS, *map(_name, changes)])
        before = Totals.of(page.values.get(_TOTALS))
        old = {_name(key): item for key, item in self._read(page.values).items()}
        put = {_name(key): _since(item, old.get(_name(key))) for key, item in changes.items() if item is not None}
        gone = [name for key, item in changes.items() if item is None and (name := _name(key)) in page.values]
        if not put and not gone:
            return True
        if before.count == 0 or page.total % _SELDOM == 0:  # a server may have evicted it from the tree
            self._appear()
        count = before.count + sum(name not in page.values for name in put) - len(gone)
        steady = not gone and all(
            item.expires_at is None and (known := old.get(name)) is not None and known.expires_at is None
            for name, item in put.items()
        )
        after = before.with_(_ends(put.values()), count=count, stamp=before.stamp if steady else self._new_id())
        done = self._write(page.values, after, put, gone, told=[*put, *gone])
        if done and before.count == 0:
            self._begun()
        expired = count > 2 * after.tidied + _SLACK and self._is_due(after)
        if done and (expired or page.total > 2 * count + _SLACK):
            self._tidy_beside()
        return done

    def refresh(self, items: Mapping[str, StoredItem]) -> None:
        """Let items that were just read expire later, unless they have changed since or hardly any time has passed."""
        now = self._clock()
        read = {_name(key): item for key, item in items.items() if item.is_worn(now)}
        if read:
            self._until_done(lambda: self._refresh(read))

    def _refresh(self, read: Mapping[str, StoredItem]) -> bool:
        values = self._store.get(self._place, [_TOTALS, *read])
        now = self._clock()
        there = {name: StoredItem.from_bytes(values[name]) for name in read if name in values}
        fresh = {name: item.refreshed(now) for name, item in read.items() if there.get(name) == item}
        if not fresh:
            return True
        before = Totals.of(values.get(_TOTALS))
        after = before.with_(_ends(fresh.values()), count=before.count, stamp=self._new_id())
        return self._write(values, after, fresh)

    def tidy(self) -> int:
        """Remove expired items and outdated log entries; returns how many items were removed.

        The newest quarter of the log stays, so that an index that is a little behind can go on from its position; one
        that is further behind is rebuilt, as it may have missed what the removed entries told. The index is not updated
        here: an embedder takes its time, or fails.
        """
        with self._writing.taken(_TURN):
            return self._tidy()

    def _tidy_beside(self) -> None:
        """Tidy after a finished write, or before a read: neither fails if this does."""
        try:
            self._tidy()
        except LangmemError as error:
            _log.warning("a namespace of the long-term store could not be tidied; this will be tried again: %s", error)

    def _tidy(self) -> int:
        items = self._store.scan(self._place).items  # before the values: later entries are left alone
        values = self._store.get(self._place)
        before = Totals.of(values.get(_TOTALS))
        now = self._clock()
        known = {name: StoredItem.from_bytes(data) for name, data in values.items() if _is_item(name)}
        gone = [name for name, item in known.items() if item is not None and not item.is_there(now)]
        left = [item for item in known.values() if item is not None and item.is_there(now)]
        count = len(known) - len(gone)
        after = Totals(tidied=count).with_(_ends(left), count=count, stamp=self._new_id()) if left else Totals(count)
        old = {item.seq for item in items[: len(items) - len(items) // 4]}
        told_later = [item for item in stale(reversed(items), known.keys() - {*gone}) if item.seq in old]
        # The log tells at its end of each key whose entry is removed, so that an index that is behind forgets it.
        done = (not gone and not told_later and before.tidied == count) or self._write(
            values, after, {}, gone, told=gone, remove=told_later
        )
        return len(gone) if done else 0

    def close(self) -> bool:
        """Let the rest of an empty namespace expire; False if it is not empty, or no longer."""
        data = self._store.get(self._place, [_TOTALS]).get(_TOTALS)
        if Totals.of(data).count:
            return False
        after = Totals(stamp=self._new_id()).to_bytes()
        try:
            self._store.write(self._place, put={_TOTALS: after}, guard={_TOTALS: data}, ttl=LINGER)
        except Conflict:
            return False
        try:
            self._index.clear(self._place)
        except LangmemError as error:
            _log.warning("the index of an empty namespace could not be cleared; this will be tried again: %s", error)
            return False
        return True

    def _write(
        self,
        values: Mapping[str, bytes],
        after: Totals,
        put: Mapping[str, StoredItem],
        gone: Sequence[str] = (),
        *,
        told: Sequence[str] = (),
        remove: Sequence[Item] = (),
    ) -> bool:
        """Make a change, unless another came first; ``told`` are the keys that the index must look at."""
        tidied = {TIDIED: mark(max(item.seq for item in remove), after.count, self._new_id())} if remove else {}
        try:
            self._store.write(
                self._place,
                put={**{name: item.to_bytes() for name, item in put.items()}, **tidied, _TOTALS: after.to_bytes()},
                delete=gone,
                append=telling(told, self._new_id),
                remove=remove,
                guard={_TOTALS: values.get(_TOTALS)},
                ttl=after.ttl(self._clock()),
            )
        except Conflict:
            return False
        return True

    def _is_due(self, totals: Totals) -> bool:
        return totals.due is not None and totals.due <= self._clock()

    def _read(self, values: Mapping[str, bytes]) -> dict[str, StoredItem]:
        now = self._clock()
        items = {_key(name): StoredItem.from_bytes(data) for name, data in values.items() if _is_item(name)}
        return {key: item for key, item in items.items() if item is not None and item.is_there(now)}


def _ends(items: Iterable[StoredItem]) -> list[float | None]:
    return [item.expires_at for item in items]


def _name(key: str) -> str:
    return encode_namespace((key,))


def _key(name: str) -> str:
    return decode_namespace(name)[0]


def _is_item(name: str) -> bool:
    """Whether it is one encoded key; several, in an encrypted store, show that an item was moved up here."""
    return name.endswith("/") and name.count("/") == 1


def _text(text_of: Callable[[StoredItem], str], _: str, data: bytes) -> str | None:
    item = StoredItem.from_bytes(data)
    return None if item is None or item.fields is False else text_of(item)


def _since(item: StoredItem, old: StoredItem | None) -> StoredItem:
    return item if old is None else replace(item, created_at=old.created_at)
