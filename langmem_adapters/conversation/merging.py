"""Merge an import into a session that may have data of its own: nothing is dropped, hidden or duplicated."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from typing import Any

from langmem_adapters.conversation.export_lines import Line, dump
from langmem_adapters.conversation.log import ARCHIVED, archived_ids, entry_id
from langmem_adapters.conversation.session import KNOWLEDGE, knowledge_after
from langmem_adapters.conversation.stored_summary import SUMMARY, last_covered_id, read_summary
from langmem_adapters.conversation.tombstones import DELETED, DEPARTED, content_id, have_been_deleted, have_departed
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import EXPIRES, ExpiringSession
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Message
from langmem_adapters.protocols import Store

__all__ = ["Merge"]

_PAGE_SIZE = 500
_REMOVAL_KEYS = (DEPARTED, DELETED, ARCHIVED)  # one of these values changes when a message leaves the log
_log = logging.getLogger("langmem_adapters")


class Merge:
    """Takes the lines of one session into the session.

    An interrupted merge has added a part, and the same lines add the rest; a complete one adds nothing again.

    Args:
        store, namespace: Where the session is.
        session: Writes to it.
    """

    def __init__(self, store: Store, namespace: Namespace, session: ExpiringSession) -> None:
        self._store = store
        self._namespace = namespace
        self._session = session
        self._redacted: Callable[[bytes], bytes] = getattr(store, "redacted", lambda data: data)
        self._line_count = 0
        self._values: dict[str, bytes] = {}
        self._messages: list[dict[str, Any]] = []
        self._own_ids: set[str] = set()  # the ids of the session's own messages
        self._last_seq = 0  # the last log entry that was read
        self._archive: tuple[bytes | None, set[str]] = None, set()  # the archive's mark when it was read, and its ids
        self.deleted: set[str] = set()
        """The ids of the lines' messages that were left out because they had been deleted from the session."""

    def add_line(self, line: Line) -> None:
        """Add a line that has been checked."""
        if line["type"] == "message":
            self._messages.append(line["message"])
        else:
            self._line_count += 1
            self._values |= {key: dump(value) for key, value in line["values"].items() if key != EXPIRES}

    def write(self, advance: Callable[[int], None]) -> Flow[int]:
        """Write the lines; returns how many messages were new. ``advance`` is called with the number of lines done."""
        values_before = yield from step(self._store.get, self._namespace)
        summary = self._values.pop(SUMMARY, None)
        existing, _ = yield from self._read_existing(summary)
        marks = {key: self._values[key] for key in (DEPARTED, DELETED) if key in self._values}
        imported_marks = {key: data for key, data in marks.items() if values_before.get(key, data) == data}
        if self._line_count:
            yield from self._put_missing(self._values, imported_marks)
            advance(self._line_count)
        added = 0
        for start in range(0, len(self._messages), _PAGE_SIZE):
            page = self._messages[start : start + _PAGE_SIZE]
            added += yield from self._append(page, existing, imported_marks)
            advance(len(page))
        if summary is not None:
            yield from self._put_summary(summary)  # last, as it covers messages that have to be there first
        return added

    def _put_summary(self, summary: bytes) -> Flow[None]:
        """Store the summary, if the session has none, and no message that the summary does not cover."""
        while SUMMARY not in (values := (yield from step(self._store.get, self._namespace, [SUMMARY, DEPARTED]))):
            if (yield from self._read_existing(summary))[1]:  # others may have added messages by now
                _log.warning("an imported summary is left out: the session has messages that it does not cover")
                return
            guard = {SUMMARY: None, DEPARTED: values.get(DEPARTED)}  # where it ends must not have left meanwhile
            yield from self._session.try_write(put={SUMMARY: summary}, guard=guard)

    def _read_existing(self, summary: bytes | None) -> Flow[tuple[dict[str, bytes], bool]]:
        """The session's messages with the lines' ids, and whether the summary would hide any other message."""
        if not (self._messages or summary or archived_ids(self._values)):
            return {}, False
        ids = [entry_id(message["id"]) for message in self._messages]
        imported = dict(zip(ids, self._messages, strict=True))
        end_id = last_covered_id(read_summary(summary))
        covered_ids = set(ids[: ids.index(end_id) + 1] if end_id in imported else ids)
        existing: dict[str, bytes] = {}
        hides_any, is_past_end, last_seq = False, not end_id, 0
        while items := (yield from step(self._store.scan, self._namespace, after=last_seq, limit=_PAGE_SIZE)).items:
            self._own_ids.update(item.id for item in items)
            for item in items:
                if item.id in imported:
                    existing[item.id] = item.data
                if not (hides_any or is_past_end):
                    hides_any = item.id not in covered_ids or not self._is_same(item.data, imported[item.id])
                is_past_end = is_past_end or item.id == end_id
            self._last_seq = last_seq = items[-1].seq
        return existing, hides_any

    def _append(
        self, messages: list[dict[str, Any]], existing: dict[str, bytes], imported_marks: Mapping[str, bytes]
    ) -> Flow[int]:
        """Add messages, except those that have left the log since an earlier import; returns how many are new.

        ``existing`` are the session's messages with these ids; the new ones are added to it. ``imported_marks`` are the
        marks of departed messages that came with these lines.
        """
        entries = [self._entry(message, existing) for message in messages]
        while True:
            values = yield from step(self._store.get, self._namespace, _REMOVAL_KEYS)
            archived = yield from self._archived_ids(values)
            deleted = _deleted_here([id_ for id_, _ in entries], values, imported_marks)
            if any(deleted):
                _log.warning("%d imported messages are left out: they were deleted from the session", sum(deleted))
            self.deleted |= {message["id"] for message, removed in zip(messages, deleted, strict=True) if removed}
            is_removed = map(operator.or_, deleted, self._departed_here(messages, values, imported_marks))
            append = [
                entry
                for entry, removed in zip(entries, is_removed, strict=True)
                if not (removed or entry[0] in archived)
            ]
            if not append:
                return 0
            # Messages that are deleted, archived or summarised just now must not come back.
            guard = {key: values.get(key) for key in _REMOVAL_KEYS}
            if (yield from self._session.try_write(append=append, guard=guard)):
                added = {id_ for id_, _ in append}
                new = added - self._own_ids
                written = {id_: message for message, (id_, _) in zip(messages, entries, strict=True) if id_ in added}
                if not (displaced := (yield from self._find_displaced(written, existing))):
                    return len(new)
                new.difference_update(entry_id(message["id"]) for message in displaced)
                return len(new) + (yield from self._append(displaced, existing, imported_marks))

    def _find_displaced(
        self, written: Mapping[str, dict[str, Any]], existing: dict[str, bytes]
    ) -> Flow[list[dict[str, Any]]]:
        """The written messages whose ids another writer has taken for other messages meanwhile."""
        displaced: list[dict[str, Any]] = []
        while items := (
            yield from step(self._store.scan, self._namespace, after=self._last_seq, limit=_PAGE_SIZE)
        ).items:
            self._own_ids.update(item.id for item in items)
            other_data = {item.id: item.data for item in items if item.data != existing.get(item.id)}
            existing |= other_data  # a message that takes the id of one still to be written is not read again
            conflicts = {
                id_: written[id_] for id_ in other_data if id_ in written and entry_id(written[id_]["id"]) == id_
            }
            displaced += [message for id_, message in conflicts.items() if not self._is_same(other_data[id_], message)]
            self._last_seq = items[-1].seq
        return displaced

    def _entry(self, message: dict[str, Any], existing: dict[str, bytes]) -> tuple[str, bytes]:
        id_, data = entry_id(message["id"]), dump(message)
        if self._is_same(existing.setdefault(id_, data), message):
            return id_, data
        id_ = content_id(self._read(message))  # another message with the same id
        return id_, dump({**message, "id": id_})

    def _archived_ids(self, values: Mapping[str, bytes]) -> Flow[set[str]]:
        """The ids in the session's archive."""
        if values.get(ARCHIVED) != self._archive[0]:
            all_values = yield from step(self._store.get, self._namespace)
            self._archive = all_values.get(ARCHIVED), archived_ids(all_values)
        return self._archive[1]

    def _departed_here(
        self, message_data: list[dict[str, Any]], values: Mapping[str, bytes], imported_marks: Mapping[str, bytes]
    ) -> list[bool]:
        if values.get(DEPARTED) in {None, imported_marks.get(DEPARTED)}:
            return [False] * len(message_data)
        messages = [self._read(message) for message in message_data]
        renamed = [message.model_copy(update={"id": content_id(message)}) for message in messages]
        departed_here, departed_there = (
            list(map(operator.or_, have_departed(marks, messages), have_departed(marks, renamed)))
            for marks in (values, imported_marks)
        )
        return [here and not there for here, there in zip(departed_here, departed_there, strict=True)]

    def _read(self, message: dict[str, Any]) -> Message:
        return Message.from_bytes(self._redacted(dump(message)))

    def _is_same(self, stored: bytes, message: dict[str, Any]) -> bool:
        data = self._redacted(dump(message))
        return stored == data or _content_of(self._redacted(stored)) == _content_of(data)

    def _put_missing(self, values: Mapping[str, bytes], imported_marks: Mapping[str, bytes]) -> Flow[None]:
        """Add values that the session lacks."""
        archive = sorted(archived_ids(values))
        while True:
            stored = yield from step(self._store.get, self._namespace)
            present_ids = self._own_ids | archived_ids(stored)
            present_ids |= {
                id_
                for id_, deleted in zip(archive, _deleted_here(archive, stored, imported_marks), strict=True)
                if deleted
            }
            new = {key: data for key, data in values.items() if key not in stored and not key.startswith(KNOWLEDGE)}
            put = {key: data for key, data in new.items() if present_ids.isdisjoint(archived_ids([key]))}
            put |= _missing_facts(values, stored)
            if not put:
                return
            guard = {key: stored.get(key) for key in (ARCHIVED, DELETED, *put)}
            if (yield from self._session.try_write(put=put, guard=guard)):
                return


def _deleted_here(ids: list[str], values: Mapping[str, bytes], imported_marks: Mapping[str, bytes]) -> list[bool]:
    """For each of these ids, whether it was deleted here and not only elsewhere."""
    deleted = zip(have_been_deleted({}, values, ids), have_been_deleted({}, imported_marks, ids), strict=True)
    return [here and not there for here, there in deleted]


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
