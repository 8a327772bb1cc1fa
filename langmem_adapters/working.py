"""WorkingMemory: the current state of a conversation, kept for hours and changed in place."""

from __future__ import annotations

import asyncio
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from langmem_adapters import views
from langmem_adapters.concurrency import pauses
from langmem_adapters.errors import ConfigurationError, Conflict
from langmem_adapters.flow import Flow, Step, arun, run, step
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.protocols import Item, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_count, check_seconds, check_sources, check_store, check_text
from langmem_adapters.working_items import WorkingItem, read_item, write_item

__all__ = ["TWELVE_HOURS", "MemoryType", "WorkingItem", "WorkingMemory"]

MemoryType: TypeAlias = Literal["SHORT_TERM", "LONG_TERM", "WORKING"]
"""The memories that each conversation has; none sees the items of another."""

TWELVE_HOURS: Final = 12 * 60 * 60.0
"""Seconds that a working memory lives after its last write, by default."""

_REVISION = "revision"  # a value that every write changes, so that an update notices any other writer
_OWN = "revision/"  # a value for each item, changed by each write of it, so that writes of other items do not matter
_ATTEMPTS = 40  # tries of a change that keeps losing to other writers
_SHORTEST, _LONGEST = 0.001, 0.2  # seconds: bounds of the longest pause between two tries
_PAGE = 100  # entries read at once in the search for an item


class _Found(NamedTuple):
    entry: Item
    item: WorkingItem


class WorkingMemory(Shared):
    """The working memory of conversations (arshai's ``RedisWorkingMemoryManager``): a few items, changed often.

    Each conversation has one memory of each :data:`MemoryType`, which expires as a whole, ``ttl`` seconds after its
    last write. Every method has an async twin whose name begins with ``a``. The constructor reads nothing.

    Args:
        store: Where the items are kept.
        user, tenant: The owner of the conversations; those of other owners are never seen.
        ttl: Seconds; None: it never expires.
        clock: Returns Unix seconds.
        new_id: Returns an id for each item, and for each of its versions.
        sleep: Blocks for some seconds. With the default, async callers wait on their event loop instead.

    Raises:
        ConfigurationError: From every method, if an argument is wrong.
        Conflict: If other writers were faster at each of 40 tries of a change.
        SerializationError: If the data to keep is not plain data.

    >>> from langmem_adapters import WorkingMemory, open_store
    >>> memory = WorkingMemory(open_store("memory:"))
    >>> _ = memory.store("conversation-1", {"goal": "find the bike", "steps": 0})
    >>> _ = memory.update("conversation-1", lambda m: {**m, "steps": m["steps"] + 1})
    >>> [item.data for item in memory.retrieve("conversation-1")]
    [{'goal': 'find the bike', 'steps': 1}]
    """

    def __init__(
        self,
        store: Store,
        *,
        user: str = "",
        tenant: str = "",
        ttl: float | None = TWELVE_HOURS,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        sleep: Callable[[float], object] = pauses.sleep,
    ) -> None:
        check_seconds("ttl", ttl)
        check_sources(clock=clock, new_id=new_id, sleep=sleep)
        check_text("user", user)
        check_text("tenant", tenant)
        check_store(store)
        self._store = store
        self._owner = (tenant, user)
        self.ttl = ttl
        self._clock = clock
        self._new_id = new_id
        self._sleep = sleep

    def store(
        self,
        conversation_id: str,
        *data: Any,
        memory_type: MemoryType = "SHORT_TERM",
        metadata: Mapping[str, Any] | None = None,
    ) -> list[WorkingItem]:
        """Append one item for each ``data``, in one round trip; returns the new items."""
        return run(self.store_flow(conversation_id, data, memory_type, metadata))

    async def astore(
        self,
        conversation_id: str,
        *data: Any,
        memory_type: MemoryType = "SHORT_TERM",
        metadata: Mapping[str, Any] | None = None,
    ) -> list[WorkingItem]:
        """:meth:`store`, without blocking the event loop."""
        return await arun(self.store_flow(conversation_id, data, memory_type, metadata))

    def retrieve(
        self, conversation_id: str, *, memory_type: MemoryType = "SHORT_TERM", limit: int | None = None
    ) -> list[WorkingItem]:
        """The items, or the newest ``limit`` of them, in the order of their last write.

        A damaged item is left out, with a logged warning that names the memory type.
        """
        return run(self.retrieve_flow(conversation_id, memory_type, limit))

    async def aretrieve(
        self, conversation_id: str, *, memory_type: MemoryType = "SHORT_TERM", limit: int | None = None
    ) -> list[WorkingItem]:
        """:meth:`retrieve`, without blocking the event loop."""
        return await arun(self.retrieve_flow(conversation_id, memory_type, limit))

    def update(
        self,
        conversation_id: str,
        change: Callable[[Any], Any] | Any,
        *,
        memory_type: MemoryType = "SHORT_TERM",
        item_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> WorkingItem | None:
        """Change the newest item, or the one of ``item_id``, atomically: no concurrent change is lost.

        Args:
            conversation_id: The conversation.
            change: The new data, or a function from the data (None, if there is no item) to the new data.
                It is called again if another writer of the item was faster (without ``item_id``: of any item), so
                it should have no side effects. :meth:`aupdate` also accepts a coroutine function.
            memory_type: Which memory of the conversation.
            item_id: Which item; default: the newest, which is created if there is none.
            metadata: Replaces the item's metadata; None: it stays.

        Returns: the changed item; None, if there is none of ``item_id``.
        """
        return run(self.update_flow(conversation_id, change, memory_type, item_id, metadata))

    async def aupdate(
        self,
        conversation_id: str,
        change: Callable[[Any], Any] | Any,
        *,
        memory_type: MemoryType = "SHORT_TERM",
        item_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> WorkingItem | None:
        """:meth:`update`, without blocking the event loop."""
        return await arun(self.update_flow(conversation_id, change, memory_type, item_id, metadata))

    def delete(
        self, conversation_id: str, *, memory_type: MemoryType = "SHORT_TERM", item_id: str | None = None
    ) -> bool:
        """Delete the item of ``item_id``, or all items, damaged ones too; False, if there was nothing to delete."""
        return run(self._delete(conversation_id, memory_type, item_id))

    async def adelete(
        self, conversation_id: str, *, memory_type: MemoryType = "SHORT_TERM", item_id: str | None = None
    ) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._delete(conversation_id, memory_type, item_id))

    def __repr__(self) -> str:
        return f"WorkingMemory({self._store!r}, ttl={self.ttl})"

    # --- flows

    def store_flow(
        self,
        conversation_id: str,
        data: Sequence[Any],
        memory_type: MemoryType,
        metadata: Mapping[str, Any] | None,
        *,
        keep: int | None = None,
    ) -> Flow[list[WorkingItem]]:
        """:meth:`store`, as a part of a larger flow; the same write removes the oldest items beyond ``keep``."""
        place = self._place(conversation_id, memory_type)
        if not data:
            raise ConfigurationError("there is no data to store")
        now = self._clock()
        items = [WorkingItem(self._new_id(), _checked(one), _checked_metadata(metadata), now, now) for one in data]
        entries = [(item.id, write_item(item)) for item in items]
        put = {_REVISION: entries[-1][0].encode(), **{_OWN + item.id: item.id.encode() for item in items}}
        old = (yield from self._surplus(place, keep - len(items), len(items))) if keep else []
        own = self._revisions(place, old)
        yield from step(self._store.write, place, append=entries, put=put, remove=old, delete=own, ttl=self.ttl)
        return items

    def _revisions(self, place: Namespace, entries: Sequence[Item]) -> list[str]:
        return [_OWN + item.id for entry in entries if (item := read_item(entry, place[-1]))]

    def _surplus(self, place: Namespace, room: int, count: int) -> Flow[list[Item]]:
        """The oldest entries beyond ``room``: up to twice ``count``, so that an overfull memory shrinks over time."""
        page = yield from step(self._store.scan, place, limit=2 * count)
        return page.items[: max(page.total - max(room, 0), 0)]

    def retrieve_flow(
        self, conversation_id: str, memory_type: MemoryType, limit: int | None
    ) -> Flow[list[WorkingItem]]:
        """:meth:`retrieve`, as a part of a larger flow."""
        place = self._place(conversation_id, memory_type)
        if limit is not None:
            check_count("limit", limit)
        found, _ = yield from self._newest(place, limit)
        return views.Listing((one.item for one in reversed(found)), views.items)

    def update_flow(
        self,
        conversation_id: str,
        change: Callable[[Any], Any] | Any,
        memory_type: MemoryType,
        item_id: str | None,
        metadata: Mapping[str, Any] | None,
        *,
        behind: Sequence[Any] = (),
        keep: int | None = None,
    ) -> Flow[WorkingItem | None]:
        """:meth:`update`, as a part of a larger flow; the same write appends the data of ``behind`` after the item.

        ``keep`` as in :meth:`store_flow`.
        """
        place = self._place(conversation_id, memory_type)
        for attempt in range(_ATTEMPTS):
            found, revisions = yield from self._look_again(attempt, place, item_id)
            old = found[0].item if found else None
            if old is None and item_id is not None:
                return None
            data = (yield from step(change, old.data if old else None)) if callable(change) else change
            new = self._changed(old, _checked(data), metadata)
            items = [new, *(self._changed(None, _checked(one), new.metadata) for one in behind)]
            count = len(behind)
            surplus = (yield from self._surplus(place, keep - count, count)) if keep and count else []
            if (yield from self._replace(place, found, items[-keep if keep else 0 :], revisions, surplus)):
                return new
        raise _overtaken()

    def _changed(self, old: WorkingItem | None, data: Any, metadata: Mapping[str, Any] | None) -> WorkingItem:
        now = self._clock()
        if old is None:
            return WorkingItem(self._new_id(), data, _checked_metadata(metadata), now, now)
        kept = old.metadata if metadata is None else _checked_metadata(metadata)
        return WorkingItem(old.id, data, kept, old.created_at, now)

    def _delete(self, conversation_id: str, memory_type: MemoryType, item_id: str | None) -> Flow[bool]:
        place = self._place(conversation_id, memory_type)
        if item_id is None:
            total = (yield from step(self._store.scan, place, limit=0)).total
            yield from step(self._store.clear, place)
            return bool(total)
        for attempt in range(_ATTEMPTS):
            found, revisions = yield from self._look_again(attempt, place, item_id)
            if not found:
                return False
            if (yield from self._replace(place, found, [], revisions)):
                return True
        raise _overtaken()

    def _place(self, conversation_id: str, memory_type: str) -> Namespace:
        if not isinstance(conversation_id, str) or not conversation_id:
            raise ConfigurationError(f"a conversation id is a text that is not empty, not {conversation_id!r:.50}")
        if memory_type not in get_args(MemoryType):
            raise ConfigurationError(f"a memory type is {', '.join(get_args(MemoryType))}, not {memory_type!r:.50}")
        return ("working", *self._owner, conversation_id, memory_type)

    def _look_again(
        self, attempt: int, place: Namespace, item_id: str | None
    ) -> Flow[tuple[list[_Found], dict[str, bytes]]]:
        """The newest item, or the one of this id, with the revisions. Before a further attempt, pause at random."""
        if attempt:
            share = zlib.crc32(to_bytes(self._new_id())) / 2**32
            seconds = share * min(_SHORTEST * 2**attempt, _LONGEST)
            wait = (lambda: asyncio.sleep(seconds)) if self._sleep is pauses.sleep else None
            yield Step(lambda: self._sleep(seconds), wait)
        return (yield from self._newest(place, 1, item_id))

    def _replace(
        self,
        place: Namespace,
        found: list[_Found],
        items: Sequence[WorkingItem],
        revisions: dict[str, bytes],
        surplus: Sequence[Item] = (),
    ) -> Flow[bool]:
        """Replace the found item and ``surplus`` by new items; False, if another writer was faster."""
        entries = [(self._new_id(), write_item(item)) for item in items]
        put = {_OWN + item.id: version.encode() for item, (version, _) in zip(items, entries, strict=True)}
        own = _OWN + (found[0].item if found else items[0]).id
        guarded = own if own in revisions else _REVISION
        gone = [own, *self._revisions(place, surplus)]
        try:
            yield from step(
                self._store.write,
                place,
                append=entries,
                remove=list(dict.fromkeys([*(one.entry for one in found), *surplus])),
                put={_REVISION: self._new_id().encode(), **put},
                delete=[key for key in gone if key not in put],
                guard={guarded: revisions.get(guarded)},
                ttl=self.ttl,
            )
        except Conflict:
            return False
        return True

    def _newest(
        self, place: Namespace, wanted: int | None, item_id: str | None = None
    ) -> Flow[tuple[list[_Found], dict[str, bytes]]]:
        """The newest readable items, newest first, and the revisions that they were read at."""
        check_text("item_id", "" if item_id is None else item_id)
        found: list[_Found] = []
        limit = wanted if item_id is None else _PAGE
        keys = [_REVISION] if item_id is None else [_REVISION, _OWN + item_id]
        page = yield from step(self._store.scan, place, limit=limit, reverse=True, keys=keys)
        revisions = page.values
        while True:
            read = ((entry, read_item(entry, place[-1])) for entry in page.items)
            found += [_Found(entry, item) for entry, item in read if item and item_id in {None, item.id}]
            if limit is None or len(page.items) < limit or len(found) >= (wanted or 0):
                return found[:wanted], revisions
            limit, before = _PAGE, page.items[-1].seq
            page = yield from step(self._store.scan, place, before=before, limit=limit, reverse=True)


def _overtaken() -> Conflict:
    return Conflict(f"other writers came first {_ATTEMPTS} times in a row, and nothing was changed: try again")


def _checked(data: Any) -> Any:
    if data is None:
        raise ConfigurationError("None is no data: a change must return the new data, even if it changes it in place")
    return data


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata is a dictionary, not {type(metadata).__name__}")
    return dict(metadata or {})
