"""A session as LlamaIndex's memory sees it: active and archived messages, by their position."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus
from typing_extensions import Self

from langmem_adapters.brain import BrainMemory
from langmem_adapters.codec import decode, encode, refuse_sealed_or_newer
from langmem_adapters.concurrency.garbage import build_many
from langmem_adapters.conversation.log import ARCHIVE, ARCHIVED, MOVE_KEYS, WATCHED_KEYS, archived_ids, unchanged_guard
from langmem_adapters.conversation.stored_summary import summary_after_move, summary_after_removal
from langmem_adapters.conversation.tombstones import with_deleted
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.llamaindex.convert import checked_chats, from_stored, to_storable_message
from langmem_adapters.model import salvage
from langmem_adapters.protocols import Item, Page, Store
from langmem_adapters.validation import check_count, check_integer
from langmem_adapters.warn_once import warn_of_damage

_ACTIVE = MessageStatus.ACTIVE
_Change = dict[str, Any]  # the arguments of a write, and in "archive" the entries to archive


class ChatSession:
    """The flows of one session.

    Active messages are the session's log, as everywhere. Archived ones are values, ``archived/<number>/<id>``, so
    that they move in one write and are exported and deleted with the session. The value ``archived`` is the last
    number. Each removal of messages here raises it, and is guarded by it and by the values that change when others
    remove messages, summarise or clear; so none is archived twice or comes back.
    """

    def __init__(self, brain: BrainMemory) -> None:
        self._brain = brain
        self._log = brain._flows  # noqa: SLF001 - the one way to write with its ttl
        self._session = self._log.session
        self.location: tuple[Store, Namespace] = (self._log.store, self._log.namespace)
        self.seen_ids: list[str] = []
        """The ids of the active messages, as they were read, without those that were archived since."""
        self.damaged_ids: set[str] = set()
        """Those of them that could not be read, so that they do not count."""

    def continuing(self, other: ChatSession | None) -> Self:
        """Take over what another one has seen, if that was of the same session; returns itself."""
        if other is not None and other.location == self.location:
            self.seen_ids, self.damaged_ids = other.seen_ids, other.damaged_ids
        return self

    def add(self, chats: Sequence[ChatMessage], status: MessageStatus = _ACTIVE) -> Flow[None]:
        """Append messages; archived ones go to the end of the archive."""
        _check_status(status)
        messages = [to_storable_message(chat) for chat in checked_chats(chats)]
        if status == _ACTIVE:
            yield from step(self._brain.add_messages, messages)
        else:
            yield from self._change(lambda _: {"archive": [self._log.entry(message) for message in messages]}, 0)

    def read(self, status: MessageStatus | None, limit: int | None, offset: int | None) -> Flow[list[ChatMessage]]:
        """Messages with a status, archived before active ones."""
        _check_status(status)
        for name, number in (("offset", offset), ("limit", limit)):
            if number is not None:
                check_count(name, number, minimum=0)
        start = offset or 0
        stop = None if limit is None else min(start + limit, sys.maxsize)
        if status == _ACTIVE:
            page = yield from self._read_page(stop)
        else:
            page = yield from self._read_page(0 if status else None, archive=True)  # archived ones are not in the log
        items = (_archived_items(page) + page.items)[start:stop]
        chats = build_many(len(items), lambda: [_read_chat(item) for item in items])
        self.seen_ids = [item.id for item in page.items]
        self.damaged_ids = {item.id for item, chat in zip(items, chats, strict=True) if chat is None}
        return [chat for chat in chats if chat is not None]

    def count(self, status: MessageStatus | None) -> Flow[int]:
        """How many messages with a status there are."""
        _check_status(status)
        page = yield from self._read_page(0, archive=status != _ACTIVE)
        return len(_archived_items(page)) + (0 if status == MessageStatus.ARCHIVED else page.total)

    def replace(self, chats: Sequence[ChatMessage], status: MessageStatus = _ACTIVE) -> Flow[None]:
        """Put these in place of all messages, archived ones too."""
        _check_status(status)
        new = [self._log.entry(to_storable_message(chat)) for chat in checked_chats(chats)]
        target = "append" if status == _ACTIVE else "archive"
        yield from self._change(lambda page: {**_full_removal(page), target: new}, archive=True)

    def remove_oldest(self, n: int, *, archive: bool) -> Flow[list[ChatMessage]]:
        """Take the oldest active messages away, into the archive if asked, and return them.

        If others have removed some of the messages that this has read, it takes no others in their place:
        LlamaIndex gives its memory blocks what it has read, and not what this returns.
        """
        check_count("n", n, minimum=0)
        places = [place for place, id_ in enumerate(self.seen_ids, start=1) if id_ not in self.damaged_ids]
        if 0 < n <= len(places):
            n = places[n - 1]  # damaged ones go along with those after them
        seen_ids = set(self.seen_ids[:n])
        self.seen_ids = self.seen_ids[n:]

        def oldest(page: Page) -> Page:
            seen_items = [item for item in page.items if item.id in seen_ids]
            other_items = [item for item in page.items if item.id not in seen_ids]
            return page._replace(items=seen_items + other_items[: n - len(seen_ids)])

        def plan(page: Page) -> _Change:
            page = oldest(page)
            if archive:
                return {**_oldest_removal(page), "archive": [(item.id, item.data) for item in page.items]}
            return _deletion(page, page.items)

        page = yield from self._change(plan, n)
        return _readable_chats(oldest(page).items)

    def remove_at(self, idx: int) -> Flow[ChatMessage | None]:
        """Remove the active message at a position, and return it."""
        check_integer("idx", idx)

        def chosen(page: Page) -> list[Item]:
            items, place = (page.items, idx) if idx >= 0 else (page.items[::-1], -1 - idx)
            place = min(place, len(items))
            readable = (item for item in items if _readable_chats([item]))  # parsed as far as this place
            return list(islice(readable, place, place + 1))

        def plan(page: Page) -> _Change:
            return _deletion(page, chosen(page))

        page = yield from self._change(plan)
        return next(iter(_readable_chats(chosen(page))), None)

    def remove_all(self, status: MessageStatus | None) -> Flow[None]:
        """Remove the messages with a status, or the whole session."""
        _check_status(status)
        if status is None:
            yield from step(self._brain.clear)
        else:
            yield from self._change(_full_removal, None if status == _ACTIVE else 0, archive=status != _ACTIVE)

    def forget(self) -> Flow[list[ChatMessage] | None]:
        """Remove the whole session, and return its active messages."""
        messages = yield from self.read(_ACTIVE, None, None)
        yield from self.remove_all(None)
        return messages or None

    def _read_page(self, n: int | None = None, *, archive: bool = False) -> Flow[Page]:
        """The oldest ``n`` entries of the log, or all; if asked, with all values as they were at the same moment."""
        while True:
            page = yield from self._session.scan(limit=n, keys=WATCHED_KEYS)
            if not archive:
                return page
            values = yield from self._session.get(None)
            if all(values.get(key) == page.values.get(key) for key in MOVE_KEYS):
                return page._replace(values=values)

    def _change(self, plan: Callable[[Page], _Change], n: int | None = None, *, archive: bool = False) -> Flow[Page]:
        """Read, and write what is planned, all or nothing; read again if another writer came first."""
        while True:
            page = yield from self._read_page(n, archive=archive)
            change = plan(page)
            if not any(change.values()):
                return page
            entries = change.pop("archive", [])
            last_number = yield from self._last_number(page.values.get(ARCHIVED, b"0"))
            numbered = enumerate(entries, start=last_number + 1)
            put = {f"{ARCHIVE}{number:08}/{id_}": data for number, (id_, data) in numbered}
            put |= {ARCHIVED: encode(last_number + max(len(entries), 1)), **change.pop("put", {})}
            marked_values = yield from self._log.ensure_marks(page.items, page.values)
            if marked_values is None:
                continue
            if (yield from self._session.try_write(put=put, guard=unchanged_guard(marked_values), **change)):
                return page

    def _last_number(self, data: bytes) -> Flow[int]:
        """The last number of the archive: the stored one or, if that is damaged, the highest that a message has."""
        with suppress(SerializationError):
            number = decode(data)
            if type(number) is int:
                return number
        refuse_sealed_or_newer(data, "the number of archived messages")
        warn_of_damage(data, "the number of archived messages is damaged, and is taken from the archive")
        values = yield from self._session.get(None)
        numbers = (key.removeprefix(ARCHIVE).partition("/")[0] for key in values if key.startswith(ARCHIVE))
        return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _check_status(status: MessageStatus | None) -> None:
    if status is not None and status not in list(MessageStatus):  # it would be taken for the other one
        raise ConfigurationError(f"a status is MessageStatus.ACTIVE or MessageStatus.ARCHIVED, not {status!r:.50}")


def _archived_items(page: Page) -> list[Item]:
    return [Item(0, key, data) for key, data in sorted(page.values.items()) if key.startswith(ARCHIVE)]


def _full_removal(page: Page) -> _Change:
    """Remove these and the archive, so that neither an older export nor a thread brings them back."""
    removal, ids = _oldest_removal(page), [item.id for item in page.items] + sorted(archived_ids(page.values))
    put = removal["put"] | (with_deleted(page.values, ids) if ids else {})
    return {**removal, "put": put, "delete": [item.id for item in _archived_items(page)]}


def _oldest_removal(page: Page) -> _Change:
    """Remove these, the oldest; if the summary ends at one of them, mark what it covers as removed too."""
    return {"remove": page.items, "put": summary_after_move(page.values, [item.id for item in page.items])}


def _deletion(page: Page, items: Sequence[Item]) -> _Change:
    """Remove these, so that a thread that still has them does not show them."""
    ids = [item.id for item in items]
    moved_values = summary_after_removal(page.values, set(ids), [item.id for item in page.items])
    return {"remove": items, "put": moved_values | (with_deleted(page.values, ids) if items else {})}


def _readable_chats(items: Sequence[Item]) -> list[ChatMessage]:
    return [chat for chat in map(_read_chat, items) if chat is not None]


def _read_chat(item: Item) -> ChatMessage | None:
    """A message; None if it is damaged, and a warning names the place."""
    message = salvage(item.data, f"entry {item.id!r}")
    return None if message is None else from_stored(message)
