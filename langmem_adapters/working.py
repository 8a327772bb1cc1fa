"""WorkingMemory: what a conversation is about right now, kept for hours and changed in place."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from langmem_adapters import views
from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.given import check_count, check_seconds, check_store, check_text
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Store

__all__ = ["TWELVE_HOURS", "MemoryType", "WorkingItem", "WorkingMemory"]

MemoryType: TypeAlias = Literal["SHORT_TERM", "LONG_TERM", "WORKING"]
"""Which memory of a conversation; they never see each other's items."""

TWELVE_HOURS: Final = 12 * 60 * 60.0
"""Seconds that a working memory lives after its last write, unless it is told otherwise."""

_VERSION = 1
_REVISION = "revision"  # the value that every write changes, so that an update notices any other writer
_PAGE = 100  # entries read at once while one is looked for
_log = logging.getLogger("langmem_adapters")


@dataclass(frozen=True)
class WorkingItem:
    """One thing that is remembered. ``data`` is text or any plain data; times are Unix times in seconds."""

    id: str
    data: Any = field(repr=False)
    metadata: dict[str, Any] = field(repr=False)
    created_at: float
    updated_at: float

    def _repr_html_(self) -> str:
        return views.attempt(self, lambda: views.items([self]))


class _Found(NamedTuple):
    entry: Item
    item: WorkingItem


class WorkingMemory:
    """The working memory of conversations (arshai's ``RedisWorkingMemoryManager``): a few items, changed often.

    Each conversation has a memory of each :data:`MemoryType`, and each of these expires as a whole, ``ttl`` seconds
    after its last write. Every method has an async twin with an ``a`` in front. Constructing one reads nothing.

    Args:
        store: Where it is kept.
        user, tenant: Whose conversations; those of others are never seen.
        ttl: Seconds; None: it never expires.
        clock: Gives Unix seconds.
        new_id: Gives ids to items, and to each of their versions.

    Raises:
        ConfigurationError: From every method, for an argument that is wrong.
        SerializationError: When data is kept that is not plain.

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
    ) -> None:
        check_seconds("ttl", ttl)
        check_text("user", user)
        check_text("tenant", tenant)
        check_store(store)
        self._store = store
        self._owner = (tenant, user)
        self.ttl = ttl
        self._clock = clock
        self._new_id = new_id

    def store(
        self,
        conversation_id: str,
        *data: Any,
        memory_type: MemoryType = "SHORT_TERM",
        metadata: Mapping[str, Any] | None = None,
    ) -> list[WorkingItem]:
        """Keep one item for each ``data``, behind those that are there; returns them. One round trip."""
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
        """The items, or the newest ``limit`` of them, in the order of their last writing.

        One that is damaged is left out, and a warning names the conversation's memory type.
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
        change: Any,
        *,
        memory_type: MemoryType = "SHORT_TERM",
        item_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> WorkingItem | None:
        """Change the newest item, or the one of ``item_id``, atomically: no concurrent change is lost.

        Args:
            conversation_id: Whose memory.
            change: The new data, or a function from the data (None, where there is no item) to the new data.
                It is called again when another writer was faster, so it should do nothing but compute.
                :meth:`aupdate` also takes a coroutine function.
            memory_type: Which memory of the conversation.
            item_id: Which item; default: the newest, which is made if there is none.
            metadata: Replaces the item's metadata; None: it stays.

        Returns: the item as it is now; None, if there is none of ``item_id``.
        """
        return run(self.update_flow(conversation_id, change, memory_type, item_id, metadata))

    async def aupdate(
        self,
        conversation_id: str,
        change: Any,
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
        """Forget the item of ``item_id``, or all items, damaged ones too; False, if there was nothing to forget."""
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
        self, conversation_id: str, data: Sequence[Any], memory_type: MemoryType, metadata: Mapping[str, Any] | None
    ) -> Flow[list[WorkingItem]]:
        """:meth:`store`, as a part of a larger flow."""
        place = self._place(conversation_id, memory_type)
        if not data:
            raise ConfigurationError("there is no data to store")
        now = self._clock()
        items = [WorkingItem(self._new_id(), _checked(one), _checked_metadata(metadata), now, now) for one in data]
        entries = [(item.id, _write(item)) for item in items]
        revision = entries[-1][0].encode()
        yield from step(self._store.write, place, append=entries, put={_REVISION: revision}, ttl=self.ttl)
        return items

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
        change: Any,
        memory_type: MemoryType,
        item_id: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Flow[WorkingItem | None]:
        """:meth:`update`, as a part of a larger flow."""
        place = self._place(conversation_id, memory_type)
        while True:
            found, revision = yield from self._newest(place, 1, item_id)
            old = found[0].item if found else None
            if old is None and item_id is not None:
                return None
            data = (yield from step(change, old.data if old else None)) if callable(change) else change
            new = self._changed(old, _checked(data), metadata)
            try:
                yield from self._replace(place, found, new, revision)
            except Conflict:
                continue
            return new

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
        while True:
            found, revision = yield from self._newest(place, 1, item_id)
            if not found:
                return False
            try:
                yield from self._replace(place, found, None, revision)
            except Conflict:
                continue
            return True

    def _place(self, conversation_id: str, memory_type: str) -> Namespace:
        if not isinstance(conversation_id, str) or not conversation_id:
            raise ConfigurationError(f"a conversation id is a text that is not empty, not {conversation_id!r:.50}")
        if memory_type not in get_args(MemoryType):
            raise ConfigurationError(f"a memory type is {', '.join(get_args(MemoryType))}, not {memory_type!r:.50}")
        return ("working", *self._owner, conversation_id, memory_type)

    def _replace(
        self, place: Namespace, found: list[_Found], new: WorkingItem | None, revision: bytes | None
    ) -> Flow[None]:
        """Put an item's new version in the place of the old one, if nobody has written since ``revision``."""
        version = self._new_id()
        yield from step(
            self._store.write,
            place,
            append=[] if new is None else [(version, _write(new))],
            remove=[one.entry for one in found],
            put={_REVISION: version.encode()},
            guard={_REVISION: revision},
            ttl=self.ttl,
        )

    def _newest(
        self, place: Namespace, wanted: int | None, item_id: str | None = None
    ) -> Flow[tuple[list[_Found], bytes | None]]:
        """The newest items that can be read, newest first, and the revision that they are of."""
        found: list[_Found] = []
        limit = wanted if item_id is None else _PAGE
        page = yield from step(self._store.scan, place, limit=limit, reverse=True, keys=[_REVISION])
        revision = page.values.get(_REVISION)
        while True:
            read = ((entry, _read(entry, place[-1])) for entry in page.items)
            found += [_Found(entry, item) for entry, item in read if item and item_id in {None, item.id}]
            if limit is None or len(page.items) < limit or len(found) >= (wanted or 0):
                return found[:wanted], revision
            limit, before = _PAGE, page.items[-1].seq
            page = yield from step(self._store.scan, place, before=before, limit=limit, reverse=True)


def _write(item: WorkingItem) -> bytes:
    return encode({"v": _VERSION, **item.__dict__})


def _read(entry: Item, memory_type: str) -> WorkingItem | None:
    """A stored item; None, with a warning, where it is damaged: one must not take the others along."""
    with suppress(SerializationError, AttributeError, KeyError, TypeError):
        fields = decode(entry.data)
        version = fields.pop("v")
        item = WorkingItem(**fields)
        sound = isinstance(item.id, str) and isinstance(item.metadata, dict)
        if version == _VERSION and sound and _is_number(item.created_at) and _is_number(item.updated_at):
            return item
    _log.warning("a working memory of type %s holds a damaged item, which is left out", memory_type)
    return None


def _checked(data: Any) -> Any:
    if data is None:
        raise ConfigurationError("None is no data: a change returns the new data, also where it changes it in place")
    return data


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata is a dictionary, not a {type(metadata).__name__}")
    return dict(metadata or {})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
