"""What an import adds to a session, which may have something of its own: nothing is dropped, hidden or doubled."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Mapping
from typing import Any

from langmem_adapters.conversation.export_lines import Line, dump
from langmem_adapters.conversation.log import entry_id
from langmem_adapters.conversation.session import KNOWLEDGE
from langmem_adapters.conversation.stored_summary import SUMMARY, covers, read_summary
from langmem_adapters.conversation.tombstones import DEPARTED, content_id, have_departed
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.expiry import EXPIRES, Expiring
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Message
from langmem_adapters.protocols import Store

__all__ = ["Merge"]

_PAGE = 500
_log = logging.getLogger("langmem_adapters")


class Merge:
    """The lines of one session, and the session that takes them in.

    Interrupted, it has added a part, and the same lines add the rest; whole, they add nothing a second time.

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

    def take(self, line: Line) -> None:
        """Add a line that was checked."""
        if line["type"] == "message":
            self._messages.append(line["message"])
        else:
            self._lines += 1
            self._values |= {key: dump(value) for key, value in line["values"].items() if key != EXPIRES}

    def flow(self, advance: Callable[[int], None]) -> Flow[int]:
        """Write them; gives how many messages were new. ``advance`` is told how many lines are done."""
        before = yield from step(self._store.get, self._namespace)
        summary = self._values.pop(SUMMARY, None)
        held, _ = yield from self._look(summary)
        if self._lines:
            yield from self._put(self._values)
            advance(self._lines)
        entries = self._entries(held, before)
        added = 0
        for start in range(0, len(self._messages), _PAGE):
            page = [entry for entry in entries[start : start + _PAGE] if entry is not None]
            added += sum((yield from self._session.append(page)).new) if page else 0
            advance(len(entries[start : start + _PAGE]))
        if summary is not None and SUMMARY not in before:  # last, as it stands for messages that have to be there
            if (yield from self._look(summary))[1]:  # others may have said something by now
                _log.warning("an imported summary is left out: the session has messages of which it does not tell")
            else:
                yield from self._put({SUMMARY: summary})
        return added

    def _look(self, summary: bytes | None) -> Flow[tuple[dict[str, bytes], bool]]:
        """The session's messages of these ids, and whether the summary would hide another one."""
        if not (self._messages or summary):
            return {}, False
        ids = [entry_id(message["id"]) for message in self._messages]
        offered = dict(zip(ids, self._messages, strict=True))
        end = covers(read_summary(summary))
        told = set(ids[: ids.index(end) + 1] if end in offered else ids)
        held: dict[str, bytes] = {}
        hides, behind, after = False, not end, 0
        while items := (yield from step(self._store.scan, self._namespace, after=after, limit=_PAGE)).items:
            for item in items:
                if item.id in offered:
                    held[item.id] = item.data
                hides = hides or not (behind or (item.id in told and self._is_same(item.data, offered[item.id])))
                behind = behind or item.id == end
            after = items[-1].seq
        return held, hides

    def _entries(self, held: dict[str, bytes], before: Mapping[str, bytes]) -> list[tuple[str, bytes] | None]:
        """What is to be appended for each message; None for those that have left since they were imported before."""
        entries: list[tuple[str, bytes] | None] = []
        for message, left in zip(self._messages, self._have_left(before), strict=True):
            id_, data = entry_id(message["id"]), dump(message)
            if not self._is_same(held.setdefault(id_, data), message):  # another one, of the same id
                id_ = content_id(self._read(message))
                data = dump({**message, "id": id_})
            entries.append(None if left else (id_, data))
        return entries

    def _have_left(self, before: Mapping[str, bytes]) -> list[bool]:
        if DEPARTED not in before:
            return [False] * len(self._messages)
        messages = [self._read(message) for message in self._messages]
        others = [message.model_copy(update={"id": content_id(message)}) for message in messages]
        return list(map(operator.or_, have_departed(before, messages), have_departed(before, others)))

    def _read(self, message: dict[str, Any]) -> Message:
        return Message.from_bytes(self._redacted(dump(message)))

    def _is_same(self, stored: bytes, message: dict[str, Any]) -> bool:
        data = self._redacted(dump(message))
        return stored == data or _said(self._redacted(stored)) == _said(data)

    def _put(self, values: Mapping[str, bytes]) -> Flow[None]:
        """Add values that the session has not."""
        while True:
            known = yield from step(self._store.get, self._namespace)
            put = {key: data for key, data in values.items() if key not in known and not key.startswith(KNOWLEDGE)}
            put |= _with_facts(values, known)
            if not put:
                return
            try:
                yield from self._session.write(put=put, guard=dict.fromkeys(put))
            except Conflict:
                continue  # another writer was quicker
            return


def _with_facts(values: Mapping[str, bytes], known: Mapping[str, bytes]) -> dict[str, bytes]:
    """The facts that the session does not know yet: under their own numbers, or those behind all others."""
    facts = {key: data for key, data in sorted(values.items()) if key.startswith(KNOWLEDGE)}
    there = {key: _said(data) for key, data in known.items() if key.startswith(KNOWLEDGE)}
    new = {key: data for key, data in facts.items() if _said(data) not in there.values()}
    if not new.keys() & there.keys():
        return new
    first = 1 + max(int(key[len(KNOWLEDGE) :]) for key in there)
    return {f"{KNOWLEDGE}{first + n:08}": data for n, data in enumerate(new.values())}


def _said(data: bytes) -> str:
    """What tells a stored message from others of its id; one that is damaged is like no other."""
    try:
        return content_id(Message.from_bytes(data).model_copy(update={"id": ""}))
    except SerializationError:
        return ""
