"""WorkingMemory: the current state of a conversation, kept for hours and changed in place."""

from __future__ import annotations

import asyncio
import time
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

from langmem_adapters import views
from langmem_adapters.concurrency import pauses
from langmem_adapters.concurrency.turns import Turn, turn_for
from langmem_adapters.errors import ConfigurationError, Conflict
from langmem_adapters.flow import Flow, Step, arun, run, step
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.protocols import Item, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_count, check_seconds, check_store, check_sync_functions, check_text
from langmem_adapters.working_items import StoredItem, WorkingItem, metadata_dict, read_item, require_data, write_item

__all__ = ["TWELVE_HOURS", "MemoryType", "WorkingItem", "WorkingMemory"]

MemoryType: TypeAlias = Literal["SHORT_TERM", "LONG_TERM", "WORKING"]
"""The memories that each conversation has; none sees the items of another."""

TWELVE_HOURS: Final = 12 * 60 * 60.0
"""Seconds that a working memory lives after its last write, by default."""

_REVISION = "revision"  # a value that every write changes, so that an update notices any other writer
_ITEM_REVISION = "revision/"  # before an id: only writes of the item change it; tells a store that an append was made
_MAX_ATTEMPTS = 40  # tries of a change that keeps losing to other writers
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.001, 0.2  # seconds: bounds of the longest pause between two tries
_PAGE_SIZE = 100  # entries read at once in the search for an item


_Found: TypeAlias = tuple[list[StoredItem], dict[str, bytes]]
"""Items, and the revisions that they were read at."""


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
        check_sync_functions(clock=clock, new_id=new_id, sleep=sleep)
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
        namespace = self._namespace(conversation_id, memory_type)
        if not data:
            raise ConfigurationError("there is no data to store")
        now = self._clock()
        items = [WorkingItem(self._new_id(), require_data(value), metadata_dict(metadata), now, now) for value in data]
        entries = [(item.id, write_item(item)) for item in items]
        put = {_REVISION: entries[-1][0].encode(), **{_ITEM_REVISION + item.id: item.id.encode() for item in items}}
        oldest = yield from self._surplus_entries(namespace, keep, len(items))
        keys = self._revision_keys(namespace, oldest)
        yield from step(self._store.write, namespace, append=entries, put=put, remove=oldest, delete=keys, ttl=self.ttl)
        return items

    def _revision_keys(self, namespace: Namespace, entries: Sequence[Item]) -> list[str]:
        return [_ITEM_REVISION + item.id for entry in entries if (item := read_item(entry, namespace[-1]))]

    def _surplus_entries(self, namespace: Namespace, keep: int | None, added: int) -> Flow[list[Item]]:
        """The oldest entries beyond ``keep``: up to twice ``added``, so that an overfull memory shrinks."""
        if not keep or not added:
            return []
        page = yield from step(self._store.scan, namespace, limit=2 * added)
        capacity = max(keep - added, 0)
        return page.items[: max(page.total - capacity, 0)]

    def retrieve_flow(
        self, conversation_id: str, memory_type: MemoryType, limit: int | None
    ) -> Flow[list[WorkingItem]]:
        """:meth:`retrieve`, as a part of a larger flow."""
        namespace = self._namespace(conversation_id, memory_type)
        if limit is not None:
            check_count("limit", limit)
        stored, _ = yield from self._read_newest(namespace, limit)
        return views.Listing((match.item for match in reversed(stored)), views.items)

    def update_flow(
        self,
        conversation_id: str,
        change: Callable[[Any], Any] | Any,
        memory_type: MemoryType,
        item_id: str | None,
        metadata: Mapping[str, Any] | None,
        *,
        followed_by: Sequence[Any] = (),
        keep: int | None = None,
    ) -> Flow[WorkingItem | None]:
        """:meth:`update`, as a part of a larger flow; its write appends the data of ``followed_by`` after the item.

        ``keep`` as in :meth:`store_flow`.
        """
        namespace = self._namespace(conversation_id, memory_type)
        with turn_for((id(self._store), namespace, item_id)) as turn:
            while True:
                stored, revisions = yield from self._read_in_turn(turn, namespace, item_id)
                old = stored[0].item if stored else None
                if old is None and item_id is not None:
                    return None
                old_data = None if old is None else old.data
                data = (yield from step(change, old_data)) if callable(change) else change
                new = self._new_version(old, require_data(data), metadata)
                items = [new, *(self._new_version(None, require_data(value), new.metadata) for value in followed_by)]
                kept_items = items[-keep:] if keep else items
                surplus = yield from self._surplus_entries(namespace, keep, len(followed_by))
                if (yield from self._replace(namespace, stored, kept_items, revisions, surplus)):
                    return new

    def _new_version(self, old: WorkingItem | None, data: Any, metadata: Mapping[str, Any] | None) -> WorkingItem:
        now = self._clock()
        if old is None:
            return WorkingItem(self._new_id(), data, metadata_dict(metadata), now, now)
        new_metadata = old.metadata if metadata is None else metadata_dict(metadata)
        return WorkingItem(old.id, data, new_metadata, old.created_at, now)

    def _delete(self, conversation_id: str, memory_type: MemoryType, item_id: str | None) -> Flow[bool]:
        namespace = self._namespace(conversation_id, memory_type)
        if item_id is None:
            total = (yield from step(self._store.scan, namespace, limit=0)).total
            yield from step(self._store.clear, namespace)
            return bool(total)
        with turn_for((id(self._store), namespace, item_id)) as turn:
            while True:
                stored, revisions = yield from self._read_in_turn(turn, namespace, item_id)
                if not stored:
                    return False
                if (yield from self._replace(namespace, stored, [], revisions)):
                    return True

    def _namespace(self, conversation_id: str, memory_type: str) -> Namespace:
        if not isinstance(conversation_id, str) or not conversation_id:
            raise ConfigurationError(f"a conversation id is a text that is not empty, not {conversation_id!r:.50}")
        if memory_type not in get_args(MemoryType):
            raise ConfigurationError(f"a memory type is {', '.join(get_args(MemoryType))}, not {memory_type!r:.50}")
        return ("working", *self._owner, conversation_id, memory_type)

    def _read_in_turn(self, turn: Turn, namespace: Namespace, item_id: str | None) -> Flow[_Found]:
        """The newest item, or the one of this id, with the revisions.

        Before a further attempt, pause at random, for other processes, and wait for those of this one.
        """
        attempt = next(turn.attempts)
        if attempt == _MAX_ATTEMPTS:
            raise Conflict(f"other writers came first {attempt} times in a row, and nothing was changed: try again")
        if attempt:
            fraction = zlib.crc32(to_bytes(self._new_id())) / 2**32
            seconds = fraction * min(_MIN_PAUSE_SECONDS * 2**attempt, _MAX_PAUSE_SECONDS)
            wait = (lambda: asyncio.sleep(seconds)) if self._sleep is pauses.sleep else None
            yield Step(lambda: self._sleep(seconds), wait)
            yield from turn.take()
        return (yield from self._read_newest(namespace, 1, item_id))

    def _replace(
        self,
        namespace: Namespace,
        stored: list[StoredItem],
        items: Sequence[WorkingItem],
        revisions: dict[str, bytes],
        surplus: Sequence[Item] = (),
    ) -> Flow[bool]:
        """Replace the found item and ``surplus`` by new items; False, if another writer was faster."""
        entries = [(self._new_id(), write_item(item)) for item in items]
        put = {_ITEM_REVISION + item.id: version.encode() for item, (version, _) in zip(items, entries, strict=True)}
        item_key = _ITEM_REVISION + (stored[0].item if stored else items[0]).id
        guard_key = item_key if item_key in revisions else _REVISION
        old_keys = [item_key, *self._revision_keys(namespace, surplus)]
        try:
            yield from step(
                self._store.write,
                namespace,
                append=entries,
                remove=list(dict.fromkeys([*(match.entry for match in stored), *surplus])),
                put={_REVISION: self._new_id().encode(), **put},
                delete=[key for key in old_keys if key not in put],
                guard={guard_key: revisions.get(guard_key)},
                ttl=self.ttl,
            )
        except Conflict:
            return False
        return True

    def _read_newest(
        self, namespace: Namespace, count: int | None, item_id: str | None = None, after: int = 0
    ) -> Flow[_Found]:
        """The newest readable items, newest first, and the revisions that they were read at."""
        check_text("item_id", "" if item_id is None else item_id)
        matches: list[StoredItem] = []
        limit = count if item_id is None else _PAGE_SIZE
        keys = [_REVISION] if item_id is None else [_REVISION, _ITEM_REVISION + item_id]
        page = first_page = yield from step(
            self._store.scan, namespace, after=after, limit=limit, reverse=True, keys=keys
        )
        while True:
            for entry in page.items:
                item = read_item(entry, namespace[-1])
                if item is not None and (item_id is None or item_id == item.id):
                    matches.append(StoredItem(entry, item))
            if limit is None or len(page.items) < limit or len(matches) >= (count or 0):
                break
            limit, before = _PAGE_SIZE, page.items[-1].seq
            page = yield from step(self._store.scan, namespace, after=after, before=before, limit=limit, reverse=True)
        if item_id is not None and not matches and page is not first_page:
            # Another writer may have rewritten it meanwhile: then it stands behind what was read.
            return (yield from self._read_newest(namespace, count, item_id, first_page.items[0].seq))
        return matches[:count], first_page.values
