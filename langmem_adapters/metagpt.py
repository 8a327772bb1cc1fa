"""Reads and writes MetaGPT's BrainMemory as the JSON in which MetaGPT stores it. MetaGPT itself is not needed."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, Field, ValidationError

from langmem_adapters.codec import decode, encode, plain
from langmem_adapters.conversation.log import brain_namespace, entry_id
from langmem_adapters.conversation.session import KNOWLEDGE, behind_known
from langmem_adapters.conversation.stored_summary import SUMMARY, ends_at, read_summary
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import Expiring
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message, Scope, Summary, salvage
from langmem_adapters.protocols import Item, Store
from langmem_adapters.recall.keeping import as_kept

__all__ = ["METAGPT", "ato_metagpt", "import_flow", "read_message", "to_metagpt"]

METAGPT = "metagpt"
"""Key in a message's metadata: the fields that only MetaGPT has. In a session's values: what was imported."""

_OWN = ("cause_by", "sent_from", "send_to", "instruct_content", "ttl", "tags")
_FIELDS = {"history", "knowledge", "historical_summary", "solution"}
_log = logging.getLogger("langmem_adapters")


class _Session(Protocol):
    @property
    def store(self) -> Store: ...
    @property
    def scope(self) -> Scope: ...


# --- in


class _Identified(NamedTuple):
    """A message, and what identifies it when it is imported again."""

    identity: str
    message: Message


class _Memory(NamedTuple):
    history: list[_Identified]
    knowledge: list[_Identified]
    summary: str
    last_talk: str
    last_history_id: str


class _Imported(BaseModel):
    """What a session remembers of its imports, so that repeating one adds nothing, whatever became of the messages."""

    history: dict[str, str] = Field(default_factory=dict, description="Identities, and the ids in the store's log.")
    knowledge: list[str] = Field(default_factory=list, description="Identities.")
    summary: str = ""
    last_talk: str = ""
    last_history_id: str = ""

    def without(self, lost: AbstractSet[str]) -> _Imported:
        """The same, without messages that have not got into the log."""
        return self.model_copy(update={"history": {key: id_ for key, id_ in self.history.items() if key not in lost}})

    def with_(self, memory: _Memory, new: Mapping[str, str], *, summarized: bool) -> _Imported:
        """What to remember after another import."""
        return _Imported(
            history={**self.history, **new},
            knowledge=list(dict.fromkeys([*self.knowledge, *(fact.identity for fact in memory.knowledge)])),
            summary=memory.summary if summarized else self.summary,
            last_talk=memory.last_talk,
            last_history_id=memory.last_history_id,
        )


def import_flow(store: Store, session: Expiring, blob: str | bytes) -> Flow[int]:
    """Add what MetaGPT's ``BrainMemory.dumps`` (or ``Assistant.get_memory``) wrote; returns how many messages are new.

    All is written at once, or nothing. Importing the same again adds nothing; importing a later state of the same
    memory adds what is new in it. Messages keep their ids, unless the session has another message of that id. A
    summary that the session made itself stays. MetaGPT's configuration is not read.

    Raises SerializationError, which quotes nothing, if this is not a memory of MetaGPT.
    """
    memory = _parse(blob)
    kept = as_kept(store, [message for _, message in memory.history])
    same = zip(memory.history, kept, strict=True)
    memory = memory._replace(history=[_Identified(identity, message) for (identity, _), message in same])
    added, lost = 0, set[str]()
    while True:
        values = yield from session.get(None)
        log = (yield from session.scan()).items
        before = _imported(values).without(lost)
        new, entries = _new_messages(memory, before, log)
        put = {**_new_knowledge(memory, before, values), **_new_summary(memory, before, values, log)}
        after = before.with_(memory, new, summarized=SUMMARY in put)
        if after == before:
            return added
        put[METAGPT] = encode(after.model_dump())
        if not (yield from session.try_write(put=put, append=entries, guard={key: values.get(key) for key in put})):
            continue  # another writer imports, or summarises, at this moment
        added += len(entries) - len(lost)
        came = (yield from session.scan(after=log[-1].seq if log else 0)).items
        displaced = _displaced(dict(entries), came)
        if not (lost := {identity for identity, id_ in new.items() if id_ in displaced}):
            return added


def _parse(blob: str | bytes) -> _Memory:
    if not isinstance(blob, str | bytes | bytearray):
        raise SerializationError(f"a memory of MetaGPT is JSON, as text or bytes, not {type(blob).__name__}")
    fields = None
    with suppress(ValueError, RecursionError):  # these carry the whole text, with its secrets
        fields = json.loads(blob)
    if not isinstance(fields, dict) or not _FIELDS & fields.keys():
        raise SerializationError("this is not a memory of MetaGPT: a JSON object with a history was expected")
    return _Memory(
        # versions of 2023 moved older messages to "solution"
        history=_messages(fields, "solution") + _messages(fields, "history"),
        knowledge=_messages(fields, "knowledge"),
        summary=_text(fields, "historical_summary", "this memory of MetaGPT"),
        last_talk=_text(fields, "last_talk", "this memory of MetaGPT"),
        last_history_id=_id(fields.get("last_history_id")),
    )


def _messages(fields: dict[str, Any], name: str) -> list[_Identified]:
    records = fields.get(name)
    if not isinstance(records, list | None):
        raise SerializationError(f"the field {name} of this memory of MetaGPT is not a list")
    seen: Counter[str] = Counter()
    found = []
    for number, record in enumerate(records or [], start=1):
        message = read_message(record, f"message {number} in the {name} of this memory of MetaGPT")
        same = fingerprint(name, message.id, message.role, message.content, message.created_at)
        identity = fingerprint(same, seen[same])
        seen[same] += 1
        found.append(_Identified(identity, message))
    return found


def read_message(record: Any, place: str) -> Message:
    """Read a message as MetaGPT dumps it. Raises SerializationError, which names the place and quotes nothing."""
    if not isinstance(record, dict):
        raise SerializationError(f"{place} is not an object")
    role = _text(record, "role", place) or "user"
    tags = record.get("tags")
    if role == "user" and isinstance(tags, list) and "ANSWER" in tags:  # versions of 2023 left the role as it was
        role = "assistant"
    created_at, metadata = record.get("created_at"), record.get("metadata")
    own = {name: record[name] for name in _OWN if record.get(name)}
    content = _text(record, "content", place)
    with suppress(ValidationError, SerializationError):  # which quote values and keys
        message = Message(
            id=_id(record.get("id")),
            role=role,
            content=content,
            created_at=created_at if type(created_at) in {int, float} else None,
            metadata={**(metadata if isinstance(metadata, dict) else {}), **({METAGPT: own} if own else {})},
        )
        message.to_bytes()
        return message
    raise SerializationError(f"{place} cannot be stored: it is nested too deep, or has a number of too many digits")


def _text(fields: dict[str, Any], name: str, place: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise SerializationError(f"the field {name} of {place} is not a text")
    return value or ""


def _id(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _imported(values: Mapping[str, bytes]) -> _Imported:
    if METAGPT not in values:
        return _Imported()
    with suppress(ValidationError):  # which quotes values
        return _Imported.model_validate(decode(values[METAGPT]))
    raise SerializationError("the record of this session's imports from MetaGPT is damaged")


def _new_messages(
    memory: _Memory, before: _Imported, log: Sequence[Item]
) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """The log ids of what was not imported yet, by identity; and the entries that the log does not have."""
    stored = {item.id: item.data for item in log}
    given: set[str] = set()
    ids, entries = {}, []
    for identity, message in memory.history:
        if identity in before.history:
            continue
        id_ = entry_id(message.id or identity)
        update: dict[str, Any] = {"id": message.id or identity}
        if id_ in given or (id_ in stored and not _says_the_same(stored[id_], message)):
            own = {**message.metadata.get(METAGPT, {}), "id": message.id}
            id_, update = identity, {"id": identity, "metadata": {**message.metadata, METAGPT: own}}
        ids[identity] = id_
        given.add(id_)
        if id_ not in stored:
            entries.append((id_, message.model_copy(update=update).to_bytes()))
    return ids, entries


def _displaced(written: Mapping[str, bytes], came: Sequence[Item]) -> set[str]:
    """The ids of written messages in whose place another writer's message came a moment before."""
    others = [item for item in came if written.get(item.id, item.data) != item.data]
    return {item.id for item in others if not _says_the_same(item.data, Message.from_bytes(written[item.id]))}


def _says_the_same(data: bytes, message: Message) -> bool:
    stored = salvage(data, "a session")
    return stored is not None and (stored.role, stored.content) == (message.role, message.content)


def _new_knowledge(memory: _Memory, before: _Imported, values: Mapping[str, bytes]) -> dict[str, bytes]:
    new = [fact for fact in memory.knowledge if fact.identity not in before.knowledge]
    named = (message.model_copy(update={"id": message.id or identity}) for identity, message in new)
    return behind_known(values, (message.to_bytes() for message in named))


def _new_summary(
    memory: _Memory, before: _Imported, values: Mapping[str, bytes], log: Sequence[Item]
) -> dict[str, bytes]:
    """MetaGPT's summary, if it is newer than the session's. It covers what has left MetaGPT's history since."""
    old = read_summary(values.get(SUMMARY))
    if not memory.summary or memory.summary == before.summary:
        return {}
    if old is not None and old.text != before.summary:
        _log.info("the summary in the memory of MetaGPT is left out, as the session has one of its own")
        return {}
    kept = {before.history.get(identity) for identity, _ in memory.history}
    gone = set(before.history.values()) - kept
    covered = [item.id for item in takewhile(lambda item: item.id in gone, log)]
    covers = covered[-1] if covered else ""
    return {SUMMARY: Summary(text=memory.summary, covers=covers).to_bytes()}


# --- out


def to_metagpt(session: _Session) -> str:
    """Write a session (a :class:`~langmem_adapters.brain.BrainMemory`) as JSON that MetaGPT's ``parse_raw`` reads.

    The history holds what the summary does not cover, as text: MetaGPT has no place for tool calls and images.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> brain = BrainMemory(open_store("memory:"), "session-1")
    >>> brain.add_talk("Where is my bike?", id="7")
    >>> '"last_history_id": "7"' in to_metagpt(brain)
    True
    """
    return run(_export(session))


async def ato_metagpt(session: _Session) -> str:
    """:func:`to_metagpt`, without blocking the event loop."""
    return await arun(_export(session))


def _export(session: _Session) -> Flow[str]:
    namespace = brain_namespace(session.scope)
    log = (yield from step(session.store.scan, namespace)).items
    values = yield from step(session.store.get, namespace)  # after the log, as they tell what has left it
    summary = read_summary(values.get(SUMMARY))
    ids = [item.id for item in log]
    if (end := ends_at(summary)) in ids:
        log = log[ids.index(end) + 1 :]
    history = [_record(item.data, f"log entry {item.seq}") for item in log]
    knowledge = [_record(values[key], key) for key in sorted(values) if key.startswith(KNOWLEDGE)]
    imported = _imported(values)
    fields = {
        "history": [record for record in history if record],
        "knowledge": [record for record in knowledge if record],
        "historical_summary": summary.text if summary else "",
        "last_history_id": next((record["id"] for record in history[::-1] if record), imported.last_history_id),
        "is_dirty": False,
        "last_talk": imported.last_talk or None,
        "cacheable": True,
        "config": None,  # stated, because MetaGPT puts its own configuration in the place of a null only
    }
    # pydantic, on the other side, refuses lone surrogates
    return json.dumps(plain(fields), ensure_ascii=False).encode(errors="replace").decode()


def _record(data: bytes, place: str) -> dict[str, Any] | None:
    """A stored message with MetaGPT's fields; None, with a warning, if it is damaged."""
    message = salvage(data, place)
    if message is None:
        return None
    theirs = message.metadata.get(METAGPT)
    own = theirs if isinstance(theirs, dict) else {}
    record = {
        "id": own.get("id", message.id),
        "content": message.text,
        "instruct_content": own.get("instruct_content"),
        "role": message.role,
        "cause_by": own.get("cause_by", ""),
        "sent_from": own.get("sent_from", ""),
        "send_to": own.get("send_to", []),
        "metadata": {key: value for key, value in message.metadata.items() if key != METAGPT},
    }
    extra = {"ttl": own.get("ttl"), "created_at": message.created_at}
    return record | {name: value for name, value in extra.items() if value is not None}
