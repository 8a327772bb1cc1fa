"""Remove what a session has said from the long-term memory, and nothing that was said elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from langmem_adapters.codec import encode
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.flow import Flow, step
from langmem_adapters.model import Memory, Message
from langmem_adapters.recall.keeping import memory_ids_of
from langmem_adapters.recall.memories import MemoryReader, with_occurrences
from langmem_adapters.records.keyed import Records

_PAGE_SIZE = 100  # memories changed in one write
_MAX_SEARCHED_IDS = 32  # ids that are searched for in a memory's bytes, before it is decoded


def forget(
    records: Records,
    session: str,
    message_ids: Collection[str] | None,
    reader: MemoryReader,
    *,
    messages: Sequence[Message] | None = None,
    ttl: float | None,
) -> Flow[int]:
    """Remove a session's occurrences, or those of these messages; returns how many memories were changed.

    A memory that only they have said is removed. After an interrupted call has removed some, the same call again
    removes the rest. Damaged memories are skipped; if ``reader`` is strict, their error is raised at the end, when all
    others are done. ``messages`` are the messages, if only they may be concerned; without them, all memories are read.
    """
    may_mention = _mention_test(session, message_ids)
    memory_ids = None if messages is None else (yield from memory_ids_of(records, messages))
    stored = yield from step(records.store.get, records.namespace, memory_ids)
    pending = {key: data for key, data in stored.items() if "\0" not in key and may_mention(data)}
    changed_count = 0
    damage: SerializationError | None = None
    while pending:
        page = {key: pending.pop(key) for key in list(islice(pending, _PAGE_SIZE))}
        remaining_memories: dict[str, Memory] = {}
        for key, data in page.items():
            try:
                memory = reader.memory(key, data)
            except SerializationError as error:
                damage = error
                continue
            if memory is not None and (remaining := _drop_occurrences(memory, session, message_ids)) is not None:
                remaining_memories[key] = remaining
        removed = {key: page[key] for key, memory in remaining_memories.items() if not memory.occurrences}
        changed = {key: memory.to_bytes() for key, memory in remaining_memories.items() if memory.occurrences}
        try:
            if removed:
                yield from step(records.remove, removed, ttl=ttl)
                changed_count += len(removed)
            yield from step(records.put, changed, guard={key: page[key] for key in changed}, ttl=ttl)
            changed_count += len(changed)
        except Conflict:
            pending |= yield from step(records.get, list(page))  # something was said again just now
    if damage is not None:
        raise damage
    return changed_count


def _mention_test(session: str, message_ids: Collection[str] | None) -> Callable[[bytes], bool]:
    """A test whether stored bytes may concern these: searching bytes is far quicker than decoding them."""
    required = [_encoded_forms([session])] if session else []  # of each of these, the bytes must have one
    if message_ids is not None and len(message_ids) <= _MAX_SEARCHED_IDS and all(message_ids):
        required.append(_encoded_forms(message_ids))

    def may_mention(data: bytes) -> bool:
        return all(any(form in data for form in forms) for forms in required)

    return may_mention


def _encoded_forms(texts: Collection[str]) -> list[bytes]:
    """The forms in which stored bytes may have these texts."""
    return [form for text in texts for form in {encode(text), json.dumps(text).encode()}]


def _drop_occurrences(memory: Memory, session: str, message_ids: Collection[str] | None) -> Memory | None:
    """The memory with only its other occurrences; None if nothing changes."""
    remaining = [
        occurrence
        for occurrence in memory.occurrences
        if occurrence.session != session or (message_ids is not None and occurrence.message_id not in message_ids)
    ]
    if len(remaining) == len(memory.occurrences):
        return None
    return with_occurrences(memory, remaining)
