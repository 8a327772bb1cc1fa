"""Merge an import into a session that may have data of its own: nothing is dropped, hidden or duplicated."""

from __future__ import annotations

import json
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langmem_adapters.codec import encode_plain
from langmem_adapters.conversation.export_lines import Line
from langmem_adapters.conversation.log import ARCHIVED, CREATED, archived_ids, entry_id
from langmem_adapters.conversation.session import KNOWLEDGE, knowledge_after
from langmem_adapters.conversation.stored_summary import SUMMARY, last_covered_id, read_summary
from langmem_adapters.conversation.tombstones import DELETED, DEPARTED, content_id, have_been_deleted, have_departed
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import EXPIRES, ExpiringSession
from langmem_adapters.flow import Flow, gather, step
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Message
from langmem_adapters.protocols import Item, Store

_PAGE_SIZE = 500
_REMOVAL_KEYS = (DEPARTED, DELETED, ARCHIVED)  # one of these values changes when a message leaves the log
_log = logging.getLogger("langmem_adapters")


class _Imported(NamedTuple):
    """A message of the lines. Those of a whole file are held at once, and would take four times as much as data."""

    id: str
    data: bytes


class Merge:
    """Takes the lines of one session into the session.

    An interrupted merge has added a part, and the same lines add the rest; a complete one adds nothing again.
    """

    def __init__(self, store: Store, namespace: Namespace, session: ExpiringSession) -> None:
        self._store = store
        self._namespace = namespace
        self._session = session
        self._redacted: Callable[[bytes], bytes] = getattr(store, "redacted", lambda data: data)
        self._session_lines = 0
        self._values: dict[str, bytes] = {}
        self._messages: list[_Imported] = []
        self._marks: dict[str, bytes] = {}  # the marks of departed messages that came with the lines
        self._existing: dict[str, bytes] = {}  # by id: the session's messages with ids of the lines
        self._own_ids: set[str] = set()  # the ids of the session's own messages
        self._renamed_ids: set[str] = set()  # the own ids, if a message with an id of the lines may have left
        self._last_seq = 0  # the last log entry that was read
        self._archive_ids: set[str] = set()
        self._archive_mark: bytes | None = None  # the mark of the archive when its ids were read
        self.deleted: set[str] = set()
        """The lines' messages, by content id, that were left out because they had been deleted from the session."""
        self.renamed: dict[str, str] = {}
        """By content id, the ids that the session has for messages of the lines whose own ids are those of others."""

    @property
    def line_count(self) -> int:
        """How many lines were added."""
        return self._session_lines + len(self._messages)

    def add_line(self, line: Line) -> None:
        """Add a line that has been checked."""
        if line["type"] == "message":
            self._messages.append(_Imported(line["message"]["id"], encode_plain(line["message"])))
        else:
            self._session_lines += 1
            self._values |= {key: encode_plain(value) for key, value in line["values"].items() if key != EXPIRES}

    def write(self, advance: Callable[[int], object]) -> Flow[int]:
        """Write the lines; returns how many messages were new. ``advance`` is called with the number of lines done."""
        summary = self._values.pop(SUMMARY, None)
        reads: list[Flow[Any]] = [step(self._store.get, self._namespace), self._read_existing(summary)]
        values_before, _ = yield from gather(reads)
        self._renamed_ids = set(self._own_ids) if DEPARTED in values_before else set()
        marks = {key: self._values[key] for key in (DEPARTED, DELETED) if key in self._values}
        self._marks = {key: data for key, data in marks.items() if values_before.get(key, data) == data}
        if self._session_lines:
            yield from self._put_missing(values_before)
            advance(self._session_lines)
        has_removals = any(key in values for key in _REMOVAL_KEYS for values in (values_before, self._values))
        added = 0
        for start in range(0, len(self._messages), _PAGE_SIZE):
            page = self._messages[start : start + _PAGE_SIZE]
            added += yield from self._append(page, None if has_removals else {})
            advance(len(page))
        if summary is not None:
            yield from self._put_summary(summary)  # last, as it covers messages that have to be there first
        return added

    def _put_summary(self, summary: bytes) -> Flow[None]:
        """Store the summary, if the session has none, and no message that the summary does not cover."""
        while True:
            values = yield from step(self._store.get, self._namespace, [SUMMARY, DEPARTED])
            if SUMMARY in values:
                return
            if (yield from self._read_existing(summary)):  # others may have added messages by now
                _log.warning("an imported summary is left out: the session has messages that it does not cover")
                return
            guard = {SUMMARY: None, DEPARTED: values.get(DEPARTED)}  # where it ends must not have left meanwhile
            if (yield from self._session.try_write(put={SUMMARY: summary}, guard=guard)):
                return

    def _read_existing(self, summary: bytes | None) -> Flow[bool]:
        """Read the session's messages with the lines' ids; returns whether the summary would hide any other message."""
        if not (self._messages or summary or archived_ids(self._values)):
            return False
        ids = [entry_id(message.id) for message in self._messages]
        imported = {id_: message.data for id_, message in zip(ids, self._messages, strict=True)}
        end_id = last_covered_id(read_summary(summary))
        covered_ids = set(ids[: ids.index(end_id) + 1] if end_id in imported else ids)
        hides_any, is_past_end = False, not end_id
        self._last_seq = 0
        while items := (yield from self._next_page()):
            for item in items:
                if item.id in imported:
                    self._existing[item.id] = item.data
                if not (hides_any or is_past_end):
                    hides_any = item.id not in covered_ids or not self._is_same(item.data, imported[item.id])
                is_past_end = is_past_end or item.id == end_id
            if len(items) < _PAGE_SIZE:
                break
        return hides_any

    def _next_page(self) -> Flow[list[Item]]:
        """The log entries after those read so far; their ids are noted."""
        page = yield from step(self._store.scan, self._namespace, after=self._last_seq, limit=_PAGE_SIZE)
        if page.items:
            self._own_ids.update(item.id for item in page.items)
            self._last_seq = page.items[-1].seq
        return page.items

    def _append(self, messages: Sequence[_Imported], values: Mapping[str, bytes] | None) -> Flow[int]:
        """Add messages, except those that have left the log since an earlier import; returns how many are new.

        ``values`` are those that tell what has left the log; None: they are read.
        """
        entries = [self._entry(message) for message in messages]
        while True:
            if values is None:
                values = yield from step(self._store.get, self._namespace, _REMOVAL_KEYS)
            archived = yield from self._archived_ids(values)
            deleted = self._deleted_here([id_ for id_, _ in entries], values)
            left_out = [message for message, (id_, _) in zip(messages, entries, strict=True) if id_ in deleted]
            if left_out:
                _log.warning("%d imported messages are left out: they were deleted from the session", len(left_out))
            self.deleted.update(content_id(Message.from_bytes(message.data)) for message in left_out)
            departed = self._departed_here(messages, values)
            remaining = [entry for entry, has_departed in zip(entries, departed, strict=True) if not has_departed]
            gone_ids = deleted | archived
            append = [(id_, data) for id_, data in remaining if id_ not in gone_ids]
            if not append:
                return 0
            # Messages that are deleted, archived or summarised just now must not come back.
            guard = {key: values.get(key) for key in _REMOVAL_KEYS}
            if (yield from self._session.try_write(append=append, guard=guard)):
                break
            values = None
        added = {id_ for id_, _ in append}
        new = added - self._own_ids
        written = {id_: message for message, (id_, _) in zip(messages, entries, strict=True) if id_ in added}
        displaced = yield from self._find_displaced(written)
        if not displaced:
            return len(new)
        new.difference_update(entry_id(message.id) for message in displaced)
        return len(new) + (yield from self._append(displaced, None))

    def _find_displaced(self, written: Mapping[str, _Imported]) -> Flow[list[_Imported]]:
        """The written messages whose ids another writer has taken for other messages meanwhile."""
        displaced: list[_Imported] = []
        while items := (yield from self._next_page()):
            other_data = {item.id: item.data for item in items if item.data != self._existing.get(item.id)}
            self._existing |= other_data  # a message that takes the id of one still to be written is not read again
            for id_, data in other_data.items():
                message = written.get(id_)
                if message is not None and not self._is_same(data, message.data):
                    displaced.append(message)
            if len(items) < _PAGE_SIZE:
                break
        return displaced

    def _entry(self, message: _Imported) -> tuple[str, bytes]:
        id_ = entry_id(message.id)
        is_same = self._is_same(self._existing.setdefault(id_, message.data), message.data)
        if is_same and not self._renamed_ids:
            return id_, message.data
        renamed_id = content_id(self._read(message.data))  # another message has, or had, the same id
        if is_same and renamed_id not in self._renamed_ids:
            return id_, message.data
        self.renamed[content_id(Message.from_bytes(message.data))] = renamed_id
        return renamed_id, encode_plain({**json.loads(message.data), "id": renamed_id})

    def _archived_ids(self, values: Mapping[str, bytes]) -> Flow[set[str]]:
        if values.get(ARCHIVED) != self._archive_mark:
            all_values = yield from step(self._store.get, self._namespace)
            self._archive_mark, self._archive_ids = all_values.get(ARCHIVED), archived_ids(all_values)
        return self._archive_ids

    def _deleted_here(self, ids: list[str], values: Mapping[str, bytes]) -> set[str]:
        """Those of these ids that were deleted here and not only elsewhere."""
        here, there = have_been_deleted({}, values, ids), have_been_deleted({}, self._marks, ids)
        return {id_ for id_, is_here, is_there in zip(ids, here, there, strict=True) if is_here and not is_there}

    def _departed_here(self, imported: Sequence[_Imported], values: Mapping[str, bytes]) -> list[bool]:
        """For each of these messages, whether it has left this log and not only another."""
        if values.get(DEPARTED) in {None, self._marks.get(DEPARTED)}:
            return [False] * len(imported)
        messages = [self._read(message.data) for message in imported]
        renamed = [message.model_copy(update={"id": content_id(message)}) for message in messages]

        def have_left(marks: Mapping[str, bytes]) -> list[bool]:
            return list(map(operator.or_, have_departed(marks, messages), have_departed(marks, renamed)))

        return [here and not there for here, there in zip(have_left(values), have_left(self._marks), strict=True)]

    def _read(self, data: bytes) -> Message:
        return Message.from_bytes(self._redacted(data))

    def _is_same(self, stored: bytes, data: bytes) -> bool:
        data = self._redacted(data)
        return stored == data or _content_of(self._redacted(stored)) == _content_of(data)

    def _put_missing(self, stored: Mapping[str, bytes]) -> Flow[None]:
        """Add values that the session lacks; ``stored`` are its own."""
        archive = sorted(archived_ids(self._values))
        while True:
            known_ids = self._own_ids | archived_ids(stored) | self._deleted_here(archive, stored)
            new = {
                key: data for key, data in self._values.items() if key not in stored and not key.startswith(KNOWLEDGE)
            }
            put = {key: data for key, data in new.items() if known_ids.isdisjoint(archived_ids([key]))}
            if self._own_ids:  # the session began with its own first message
                put.pop(CREATED, None)
            put |= _missing_facts(self._values, stored)
            if not put:
                return
            guard = {key: stored.get(key) for key in (ARCHIVED, DELETED, *put)}
            if (yield from self._session.try_write(put=put, guard=guard)):
                return
            stored = yield from step(self._store.get, self._namespace)


def _missing_facts(values: Mapping[str, bytes], stored: Mapping[str, bytes]) -> dict[str, bytes]:
    """The facts that the session does not have yet, after those that it has."""
    stored_contents = {_content_of(data) for key, data in stored.items() if key.startswith(KNOWLEDGE)}
    facts = [data for key, data in sorted(values.items()) if key.startswith(KNOWLEDGE)]
    return knowledge_after(stored, [data for data in facts if _content_of(data) not in stored_contents])


def _content_of(data: bytes) -> str:
    """What identifies a stored message beside its id; empty for a damaged one, which equals no other."""
    try:
        return content_id(Message.from_bytes(data).model_copy(update={"id": ""}))
    except SerializationError:
        return ""
