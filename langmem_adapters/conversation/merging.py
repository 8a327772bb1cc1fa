"""Merge an import into a session that may have data of its own: nothing is dropped, hidden or duplicated."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from typing import Any

from langmem_adapters.conversation.export_lines import Line, dump
from langmem_adapters.conversation.log import ARCHIVED, archived_ids, entry_id
from langmem_adapters.conversation.session import KNOWLEDGE, behind_known
from langmem_adapters.conversation.stored_summary import SUMMARY, covers, read_summary
from langmem_adapters.conversation.tombstones import DELETED, DEPARTED, content_id, have_been_deleted, have_departed
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import EXPIRES, Expiring
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Message
from langmem_adapters.protocols import Store

__all__ = ["Merge"]

_PAGE = 500
_LEFT = (DEPARTED, DELETED, ARCHIVED)  # one of these values changes when a message leaves the log
_log = logging.getLogger("langmem_adapters")


class Merge:
    """Takes the lines of one session into the session.

    An interrupted merge has added a part, and the same lines add the rest; a complete one adds nothing again.

    Args:
        store, namespace: Where the session is.
        session: Writes to it.
    """

    def __init__(self, store: Store, namespace: Namespace, session: Expiring) -> None:
        self._store = store
        self._namespace = namespace
        self._session = session
        self._redacted: Callable[[bytes], bytes] = getattr(store, "redacted", lambda data: data)
        self._lines = 0
        self._values: dict[str, bytes] = {}
        self._messages: list[dict[str, Any]] = []
        self._known: set[str] = set()  # the ids of the session's own messages
        self._seen = 0  # the last log entry that was read
        self._archive: tuple[bytes | None, set[str]] = None, set()  # the archive's mark when it was read, and its ids
        self.deleted: set[str] = set()
        """The ids of the lines' messages that were left out because they had been deleted from the session."""

    def take(self, line: Line) -> None:
        """Add a line that has been checked."""
        if line["type"] == "message":
            self._messages.append(line["message"])
        else:
            self._lines += 1
            self._values |= {key: dump(value) for key, value in line["values"].items() if key != EXPIRES}

    def flow(self, advance: Callable[[int], None]) -> Flow[int]:
        """Write the lines; returns how many messages were new. ``advance`` is called with the number of lines done."""
        before = yield from step(self._store.get, self._namespace)
        summary = self._values.pop(SUMMARY, None)
        held, _ = yield from self._look(summary)
        marks = {key: self._values[key] for key in (DEPARTED, DELETED) if key in self._values}
        brought = {key: data for key, data in marks.items() if before.get(key, data) == data}
        if self._lines:
            yield from self._put(self._values, brought)
            advance(self._lines)
        added = 0
        for start in range(0, len(self._messages), _PAGE):
            page = self._messages[start : start + _PAGE]
            added += yield from self._append(page, held, brought)
            advance(len(page))
        if summary is not None:
            yield from self._summarize(summary)  # last, as it covers messages that have to be there first
        return added

    def _summarize(self, summary: bytes) -> Flow[None]:
        """Store the summary, if the session has none, and no message that the summary does not cover."""
        while SUMMARY not in (values := (yield from step(self._store.get, self._namespace, [SUMMARY, DEPARTED]))):
            if (yield from self._look(summary))[1]:  # others may have added messages by now
                _log.warning("an imported summary is left out: the session has messages that it does not cover")
                return
            guard = {SUMMARY: None, DEPARTED: values.get(DEPARTED)}  # where it ends must not have left meanwhile
            yield from self._session.try_write(put={SUMMARY: summary}, guard=guard)

    def _look(self, summary: bytes | None) -> Flow[tuple[dict[str, bytes], bool]]:
        """The session's messages with the lines' ids, and whether the summary would hide any other message."""
        if not (self._messages or summary or archived_ids(self._values)):
            return {}, False
        ids = [entry_id(message["id"]) for message in self._messages]
        offered = dict(zip(ids, self._messages, strict=True))
        end = covers(read_summary(summary))
        told = set(ids[: ids.index(end) + 1] if end in offered else ids)
        held: dict[str, bytes] = {}
        hides, behind, after = False, not end, 0
        while items := (yield from step(self._store.scan, self._namespace, after=after, limit=_PAGE)).items:
            self._known.update(item.id for item in items)
            for item in items:
                if item.id in offered:
                    held[item.id] = item.data
                hides = hides or not (behind or (item.id in told and self._is_same(item.data, offered[item.id])))
                behind = behind or item.id == end
            self._seen = after = items[-1].seq
        return held, hides

    def _append(
        self, messages: list[dict[str, Any]], held: dict[str, bytes], brought: Mapping[str, bytes]
    ) -> Flow[int]:
        """Add messages, except those that have left the log since an earlier import; returns how many are new.

        ``held`` are the session's messages with these ids; the new ones are added to it. ``brought`` are the marks of
        departed messages that came with these lines.
        """
        entries = [self._entry(message, held) for message in messages]
        while True:
            values = yield from step(self._store.get, self._namespace, _LEFT)
            archived = yield from self._archived(values)
            deleted = _deleted([id_ for id_, _ in entries], values, brought)
            if any(deleted):
                _log.warning("%d imported messages are left out: they were deleted from the session", sum(deleted))
            self.deleted |= {message["id"] for message, gone in zip(messages, deleted, strict=True) if gone}
            left = map(operator.or_, deleted, self._have_left(messages, values, brought))
            append = [entry for entry, gone in zip(entries, left, strict=True) if not (gone or entry[0] in archived)]
            if not append:
                return 0
            # Messages that are deleted, archived or summarised just now must not come back.
            guard = {key: values.get(key) for key in _LEFT}
            if (yield from self._session.try_write(append=append, guard=guard)):
                added = {id_ for id_, _ in append}
                new = added - self._known
                written = {id_: message for message, (id_, _) in zip(messages, entries, strict=True) if id_ in added}
                if not (missing := (yield from self._missing(written, held))):
                    return len(new)
                new.difference_update(entry_id(message["id"]) for message in missing)
                return len(new) + (yield from self._append(missing, held, brought))

    def _missing(self, written: Mapping[str, dict[str, Any]], held: dict[str, bytes]) -> Flow[list[dict[str, Any]]]:
        """The written messages whose ids another writer has taken for other messages meanwhile."""
        missing: list[dict[str, Any]] = []
        while items := (yield from step(self._store.scan, self._namespace, after=self._seen, limit=_PAGE)).items:
            self._known.update(item.id for item in items)
            others = {item.id: item.data for item in items if item.data != held.get(item.id)}
            held |= others  # a message that takes the id of one still to be written is not read again
            own = {id_: message for id_ in others if (message := written.get(id_)) and entry_id(message["id"]) == id_}
            missing += [message for id_, message in own.items() if not self._is_same(others[id_], message)]
            self._seen = items[-1].seq
        return missing

    def _entry(self, message: dict[str, Any], held: dict[str, bytes]) -> tuple[str, bytes]:
        id_, data = entry_id(message["id"]), dump(message)
        if self._is_same(held.setdefault(id_, data), message):
            return id_, data
        id_ = content_id(self._read(message))  # another message with the same id
        return id_, dump({**message, "id": id_})

    def _archived(self, values: Mapping[str, bytes]) -> Flow[set[str]]:
        """The ids in the session's archive."""
        if values.get(ARCHIVED) != self._archive[0]:
            everything = yield from step(self._store.get, self._namespace)
            self._archive = everything.get(ARCHIVED), archived_ids(everything)
        return self._archive[1]

    def _have_left(
        self, given: list[dict[str, Any]], values: Mapping[str, bytes], brought: Mapping[str, bytes]
    ) -> list[bool]:
        if values.get(DEPARTED) in {None, brought.get(DEPARTED)}:
            return [False] * len(given)
        messages = [self._read(message) for message in given]
        others = [message.model_copy(update={"id": content_id(message)}) for message in messages]
        here, there = (
            list(map(operator.or_, have_departed(marks, messages), have_departed(marks, others)))
            for marks in (values, brought)
        )
        return [left and not elsewhere for left, elsewhere in zip(here, there, strict=True)]

    def _read(self, message: dict[str, Any]) -> Message:
        return Message.from_bytes(self._redacted(dump(message)))

    def _is_same(self, stored: bytes, message: dict[str, Any]) -> bool:
        data = self._redacted(dump(message))
        return stored == data or _said(self._redacted(stored)) == _said(data)

    def _put(self, values: Mapping[str, bytes], brought: Mapping[str, bytes]) -> Flow[None]:
        """Add values that the session lacks."""
        archive = sorted(archived_ids(values))
        while True:
            known = yield from step(self._store.get, self._namespace)
            there = self._known | archived_ids(known)
            there |= {id_ for id_, gone in zip(archive, _deleted(archive, known, brought), strict=True) if gone}
            new = {key: data for key, data in values.items() if key not in known and not key.startswith(KNOWLEDGE)}
            put = {key: data for key, data in new.items() if there.isdisjoint(archived_ids([key]))}
            put |= _with_facts(values, known)
            if not put:
                return
            guard = {key: known.get(key) for key in (ARCHIVED, DELETED, *put)}
            if (yield from self._session.try_write(put=put, guard=guard)):
                return


def _deleted(ids: list[str], values: Mapping[str, bytes], brought: Mapping[str, bytes]) -> list[bool]:
    """For each of these ids, whether it was deleted here and not only elsewhere."""
    deleted = zip(have_been_deleted({}, values, ids), have_been_deleted({}, brought, ids), strict=True)
    return [here and not there for here, there in deleted]


def _with_facts(values: Mapping[str, bytes], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The facts that the session does not have yet, after those that it has."""
    there = {_said(data) for key, data in known.items() if key.startswith(KNOWLEDGE)}
    facts = [data for key, data in sorted(values.items()) if key.startswith(KNOWLEDGE)]
    return behind_known(known, [data for data in facts if _said(data) not in there])


def _said(data: bytes) -> str:
    """What identifies a stored message beside its id; empty for a damaged one, which equals no other."""
    try:
        return content_id(Message.from_bytes(data).model_copy(update={"id": ""}))
    except SerializationError:
        return ""
