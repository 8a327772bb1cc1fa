"""Reads and writes MetaGPT's BrainMemory as the JSON in which MetaGPT stores it. MetaGPT itself is not needed."""

from __future__ import annotations

import json
import logging
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel, Field, ValidationError

from langmem_adapters.codec import decode, encode, is_number, refuse_sealed_or_newer, to_plain
from langmem_adapters.conversation.log import brain_namespace, entry_id
from langmem_adapters.conversation.session import KNOWLEDGE, knowledge_after
from langmem_adapters.conversation.stored_summary import SUMMARY, read_summary, summary_end_id
from langmem_adapters.errors import SerializationError
from langmem_adapters.expiry import ExpiringSession
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message, Scope, Summary, salvage
from langmem_adapters.protocols import Item, Store
from langmem_adapters.recall.keeping import as_stored

__all__ = ["METAGPT", "ato_metagpt", "import_flow", "read_message", "to_metagpt"]

METAGPT = "metagpt"
"""Key in a message's metadata: the fields that only MetaGPT has. In a session's values: imported texts."""

_IMPORTED = "imported"
"""The key of the value with the identities of what was imported: no redactor changes this one."""

_METAGPT_FIELDS = ("cause_by", "sent_from", "send_to", "instruct_content", "ttl", "tags")
_IDENTITY_FIELDS = {"history", "knowledge"}  # of an _ImportRecord
_MEMORY_FIELDS = {"history", "knowledge", "historical_summary", "solution"}
_log = logging.getLogger("langmem_adapters")


@runtime_checkable
class _Session(Protocol):
    @property
    def store(self) -> Store: ...
    @property
    def scope(self) -> Scope: ...


# --- in


class _IdentifiedMessage(NamedTuple):
    """A message, and what identifies it when it is imported again."""

    identity: str
    message: Message


class _MetaGPTMemory(NamedTuple):
    history: list[_IdentifiedMessage]
    knowledge: list[_IdentifiedMessage]
    summary: str
    last_talk: str
    last_history_id: str


class _ImportRecord(BaseModel):
    """What a session remembers of its imports, so that repeating one adds nothing, whatever became of the messages."""

    history: dict[str, str] = Field(default_factory=dict, description="Identities, and the ids in the store's log.")
    knowledge: list[str] = Field(default_factory=list, description="Identities.")
    summary: str = ""
    last_talk: str = ""
    last_history_id: str = ""

    def excluding(self, identities: AbstractSet[str]) -> _ImportRecord:
        """The same, without messages that have not got into the log."""
        history = {identity: id_ for identity, id_ in self.history.items() if identity not in identities}
        return self.model_copy(update={"history": history})

    def updated(self, memory: _MetaGPTMemory, new_ids: Mapping[str, str], *, summarized: bool) -> _ImportRecord:
        """What to remember after another import."""
        return _ImportRecord(
            history={**self.history, **new_ids},
            knowledge=list(dict.fromkeys([*self.knowledge, *(fact.identity for fact in memory.knowledge)])),
            summary=memory.summary if summarized else self.summary,
            last_talk=memory.last_talk,
            last_history_id=memory.last_history_id,
        )


def import_flow(store: Store, session: ExpiringSession, blob: str | bytes) -> Flow[int]:
    """Add what MetaGPT's ``BrainMemory.dumps`` (or ``Assistant.get_memory``) wrote; returns how many messages are new.

    All is written at once, or nothing. Importing the same again adds nothing; importing a later state of the same
    memory adds what is new in it. Messages keep their ids, unless the session has another message of that id. A
    summary that the session made itself stays. MetaGPT's configuration is not read.

    Raises SerializationError, which quotes nothing, if this is not a memory of MetaGPT.
    """
    memory = _parse(blob)
    texts = [Message(role="", content=text) for text in (memory.summary, memory.last_talk)]
    *messages, summary, last_talk = as_stored(store, [*(message for _, message in memory.history), *texts])
    pairs = zip(memory.history, messages, strict=True)
    history = [_IdentifiedMessage(identity, message) for (identity, _), message in pairs]
    memory = memory._replace(history=history, summary=summary.text, last_talk=last_talk.text)
    added = 0
    lost_identities: set[str] = set()  # of messages that were counted, but displaced by another writer
    while True:
        values = yield from session.get(None)
        log = (yield from session.scan()).items
        before = _read_import_record(values).excluding(lost_identities)
        new_ids, entries = _new_messages(memory, before, log)
        put = {**_new_knowledge(memory, before, values), **_new_summary(memory, before, values, log)}
        after = before.updated(memory, new_ids, summarized=SUMMARY in put)
        if after == before:
            return added
        put[METAGPT] = encode(after.model_dump(exclude=_IDENTITY_FIELDS))
        put[_IMPORTED] = encode(after.model_dump(include=_IDENTITY_FIELDS))
        if not (yield from session.try_write(put=put, append=entries, guard={key: values.get(key) for key in put})):
            continue  # another writer imports, or summarises, at this moment
        added += len(entries) - len(lost_identities)
        new_items = (yield from session.scan(after=log[-1].seq if log else 0)).items
        displaced = _displaced_ids(dict(entries), new_items)
        lost_identities = {identity for identity, id_ in new_ids.items() if id_ in displaced}
        if not lost_identities:
            return added


def _parse(blob: str | bytes) -> _MetaGPTMemory:
    if not isinstance(blob, str | bytes | bytearray):
        raise SerializationError(f"a memory of MetaGPT is JSON, as text or bytes, not {type(blob).__name__}")
    fields = None
    with suppress(ValueError, RecursionError):  # these carry the whole text, with its secrets
        fields = json.loads(blob)
    if not isinstance(fields, dict) or not _MEMORY_FIELDS & fields.keys():
        raise SerializationError("this is not a memory of MetaGPT: a JSON object with a history was expected")
    return _MetaGPTMemory(
        # versions of 2023 moved messages from the history to the end of "solution": they are the same there
        history=_parse_messages(fields, "solution", "history"),
        knowledge=_parse_messages(fields, "knowledge"),
        summary=_text_field(fields, "historical_summary", "this memory of MetaGPT"),
        last_talk=_text_field(fields, "last_talk", "this memory of MetaGPT"),
        last_history_id=_as_id(fields.get("last_history_id")),
    )


def _parse_messages(fields: dict[str, Any], *names: str) -> list[_IdentifiedMessage]:
    """The messages of these lists; each is identified as one of the last list."""
    occurrences: Counter[str] = Counter()
    messages = []
    for name in names:
        records = fields.get(name)
        if not isinstance(records, list | None):
            raise SerializationError(f"the field {name} of this memory of MetaGPT is not a list")
        for number, record in enumerate(records or [], start=1):
            message = read_message(record, f"message {number} in the {name} of this memory of MetaGPT")
            content_id = fingerprint(names[-1], message.id, message.role, message.content, message.created_at)
            identity = fingerprint(content_id, occurrences[content_id])
            occurrences[content_id] += 1
            messages.append(_IdentifiedMessage(identity, message))
    return messages


def read_message(record: Any, location: str) -> Message:
    """Read a message as MetaGPT dumps it. Raises SerializationError, which names the place and quotes nothing."""
    if not isinstance(record, dict):
        raise SerializationError(f"{location} is not an object")
    role = _text_field(record, "role", location) or "user"
    tags = record.get("tags")
    if role == "user" and isinstance(tags, list) and "ANSWER" in tags:  # versions of 2023 left the role as it was
        role = "assistant"
    created_at, metadata = record.get("created_at"), record.get("metadata")
    metagpt_fields = {name: record[name] for name in _METAGPT_FIELDS if record.get(name)}
    content = _text_field(record, "content", location)
    with suppress(ValidationError, SerializationError):  # which quote values and keys
        message = Message(
            id=_as_id(record.get("id")),
            role=role,
            content=content,
            created_at=created_at if is_number(created_at) else None,  # NaN would mix up their order
            metadata={
                **(metadata if isinstance(metadata, dict) else {}),
                **({METAGPT: metagpt_fields} if metagpt_fields else {}),
            },
        )
        message.to_bytes()
        return message
    raise SerializationError(f"{location} cannot be stored: it is nested too deep, or has a number of too many digits")


def _text_field(fields: dict[str, Any], name: str, location: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str | None):
        raise SerializationError(f"the field {name} of {location} is not a text")
    return value or ""


def _as_id(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""


def _read_import_record(values: Mapping[str, bytes]) -> _ImportRecord:
    subject = "the record of the imports from MetaGPT in this session"
    parts = [values[key] for key in (METAGPT, _IMPORTED) if key in values]
    for data in parts:
        refuse_sealed_or_newer(data, subject)
    with suppress(ValueError, TypeError, SerializationError):  # which quote values
        return _ImportRecord.model_validate(dict(ChainMap(*(dict(decode(data)) for data in parts))))
    raise SerializationError(f"{subject} is damaged")


def _new_messages(
    memory: _MetaGPTMemory, before: _ImportRecord, log: Sequence[Item]
) -> tuple[dict[str, str], list[tuple[str, bytes]]]:
    """The log ids of what was not imported yet, by identity; and the entries that the log does not have."""
    stored = {item.id: item.data for item in log}
    used_ids: set[str] = set()
    ids, entries = {}, []
    for identity, message in memory.history:
        if identity in before.history:
            continue
        id_ = entry_id(message.id or identity)
        update: dict[str, Any] = {"id": message.id or identity}
        if id_ in used_ids or (id_ in stored and not _has_same_content(stored[id_], message)):
            id_ = identity
            metagpt_fields = {**message.metadata.get(METAGPT, {}), "id": message.id}
            update = {"id": identity, "metadata": {**message.metadata, METAGPT: metagpt_fields}}
        ids[identity] = id_
        used_ids.add(id_)
        if id_ not in stored:
            entries.append((id_, message.model_copy(update=update).to_bytes()))
    return ids, entries


def _displaced_ids(written: Mapping[str, bytes], new_items: Sequence[Item]) -> set[str]:
    """The ids of written messages in whose place another writer's message came a moment before."""
    changed_items = [item for item in new_items if written.get(item.id, item.data) != item.data]
    return {item.id for item in changed_items if not _has_same_content(item.data, Message.from_bytes(written[item.id]))}


def _has_same_content(data: bytes, message: Message) -> bool:
    stored = salvage(data, "a session")
    return stored is not None and (stored.role, stored.content) == (message.role, message.content)


def _new_knowledge(memory: _MetaGPTMemory, before: _ImportRecord, values: Mapping[str, bytes]) -> dict[str, bytes]:
    new_facts = [fact for fact in memory.knowledge if fact.identity not in before.knowledge]
    identified = (message.model_copy(update={"id": message.id or identity}) for identity, message in new_facts)
    return knowledge_after(values, (message.to_bytes() for message in identified))


def _new_summary(
    memory: _MetaGPTMemory, before: _ImportRecord, values: Mapping[str, bytes], log: Sequence[Item]
) -> dict[str, bytes]:
    """MetaGPT's summary, if it is newer than the session's. It covers what has left MetaGPT's history since."""
    old = read_summary(values.get(SUMMARY))
    if not memory.summary or memory.summary == before.summary:
        return {}
    if old is not None and old.text != before.summary:
        _log.info("the summary in the memory of MetaGPT is left out, as the session has one of its own")
        return {}
    remaining_ids = {before.history.get(identity) for identity, _ in memory.history}
    removed_ids = set(before.history.values()) - remaining_ids
    covered = [item.id for item in takewhile(lambda item: item.id in removed_ids, log)]
    last_covered = covered[-1] if covered else ""
    return {SUMMARY: Summary(text=memory.summary, covers=last_covered).to_bytes()}


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
    if (end_id := summary_end_id(summary)) in ids:
        log = log[ids.index(end_id) + 1 :]
    history = [_to_record(item.data, f"log entry {item.seq}") for item in log]
    knowledge = [_to_record(values[key], key) for key in sorted(values) if key.startswith(KNOWLEDGE)]
    imported = _read_import_record(values)
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
    return json.dumps(_as_json(fields), ensure_ascii=False).encode(errors="replace").decode()


def _as_json(value: Any) -> Any:
    """Stored data as MetaGPT reads it. What JSON has no type for is as in the store; a key ``$type`` is not."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list) else to_plain(value)


def _to_record(data: bytes, location: str) -> dict[str, Any] | None:
    """A stored message with MetaGPT's fields; None, with a warning, if it is damaged."""
    message = salvage(data, location)
    if message is None:
        return None
    stored_fields = message.metadata.get(METAGPT)
    metagpt_fields = stored_fields if isinstance(stored_fields, dict) else {}
    record = {
        "id": metagpt_fields.get("id", message.id),
        "content": message.text,
        "instruct_content": metagpt_fields.get("instruct_content"),
        "role": message.role,
        "cause_by": metagpt_fields.get("cause_by", ""),
        "sent_from": metagpt_fields.get("sent_from", ""),
        "send_to": metagpt_fields.get("send_to", []),
        "metadata": {key: value for key, value in message.metadata.items() if key != METAGPT},
    }
    extra = {"ttl": metagpt_fields.get("ttl"), "created_at": message.created_at}
    return record | {name: value for name, value in extra.items() if value is not None}
