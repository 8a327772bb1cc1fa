"""Keep messages in the long-term memory, each distinct one once, and correct them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from langmem_adapters.errors import Conflict
from langmem_adapters.flow import Flow, step
from langmem_adapters.model import Memory, Message, MessageData
from langmem_adapters.protocols import Store
from langmem_adapters.recall.memories import (
    MemoryReader,
    add_occurrence,
    is_corrected,
    is_text,
    memory_id,
    merge_memory,
    new_occurrences,
    successor_id,
)
from langmem_adapters.records.keyed import Records
from langmem_adapters.validation import check_text

M = TypeVar("M", bound=Message | MessageData)


def remember(
    records: Records,
    messages: Sequence[Message],
    session: str,
    reader: MemoryReader,
    *,
    clock: Callable[[], float],
    ttl: float | None,
) -> Flow[None]:
    """Add messages that were said in a session, or their occurrences if the messages are known already."""
    new_memories: dict[str, Memory] = {}
    for message in as_stored(records.store, messages):
        add_occurrence(new_memories, message, session, clock)
    while new_memories:
        memories = yield from _memories_by_content(records, new_memories)
        changed: dict[str, bytes] = {}
        guard: dict[str, bytes | None] = {}
        for id_, memory in new_memories.items():
            *earlier, (current_id, stored) = memories[id_].items()
            earlier_memories = [reader.memory(earlier_id, data) for earlier_id, data in earlier if data is not None]
            existing = [occurrence for other in earlier_memories if other for occurrence in other.occurrences]
            occurrences = new_occurrences(memory.occurrences, existing)
            if not occurrences:
                continue
            updated = memory.model_copy(update={"id": current_id, "occurrences": occurrences})
            merged = merge_memory(updated, stored, reader)
            if merged != stored:
                changed[current_id] = merged
                guard[current_id] = stored
        try:
            yield from step(records.put, changed, guard=guard, ttl=ttl)
        except Conflict:
            continue  # the same was said elsewhere just now
        return


def as_stored(store: Store, messages: Iterable[M]) -> list[M | Message]:
    """The messages as a store keeps them: after redaction, a message no longer equals the one that was given."""
    redacted = getattr(store, "redacted", None)
    if redacted is None:
        return list(messages)
    return [Message.from_bytes(redacted(message.to_bytes())) for message in messages]


def _memories_by_content(records: Records, ids: Iterable[str]) -> Flow[dict[str, dict[str, bytes | None]]]:
    """By the id of what is said: the memories that have come of it, by their ids, with their bytes, oldest first.

    The last one is where a repetition is kept; None if there is none yet. The earlier ones were corrected at some time,
    though the correction may have been undone since, or the memory deleted (None).
    """
    memories: dict[str, dict[str, bytes | None]] = {id_: {} for id_ in ids}
    current = {id_: id_ for id_ in memories}
    while current:
        successors = {content_id: successor_id(id_) for content_id, id_ in current.items()}
        stored = yield from step(records.get, [*current.values(), *successors.values()])
        for content_id, id_ in current.items():
            memories[content_id][id_] = stored.get(id_)
        current = {
            content_id: successor
            for content_id, successor in successors.items()
            if successor in stored or is_corrected(stored.get(current[content_id]))
        }
    return memories


def memory_ids_of(records: Records, messages: Sequence[Message]) -> Flow[list[str]]:
    """The ids of all memories that have come of these messages."""
    memories = yield from _memories_by_content(records, map(memory_id, as_stored(records.store, messages)))
    return [id_ for ids in memories.values() for id_ in ids]


def are_stored(records: Records, messages: Sequence[Message]) -> Flow[list[bool]]:
    """For each message, whether the same is remembered and has not been corrected since."""
    ids = [memory_id(message) for message in as_stored(records.store, messages)]
    memories = yield from _memories_by_content(records, ids)
    current = [list(memories[id_].values())[-1] for id_ in ids]
    return [data is not None for data in current]


def correct_memory(records: Records, id_: str, text: str, reader: MemoryReader, *, ttl: float | None) -> Flow[bool]:
    """Replace what a memory says; returns False if there is none of this id."""
    check_text("the id of a memory", id_)
    check_text("the text of a memory", text)
    while True:
        stored = yield from step(records.get, [id_])
        memory = reader.memory(id_, stored[id_]) if stored else None
        if memory is None:
            return False
        (message,) = as_stored(records.store, [_replace_text(text, memory.message)])
        update = {"message": message, "corrected": _is_correction(memory, message)}
        changed = memory.model_copy(update=update)
        try:
            yield from step(records.put, {id_: changed.to_bytes()}, guard=stored, ttl=ttl)
        except Conflict:
            continue
        return True


def _replace_text(text: str, message: Message) -> Message:
    """The message with this text in place of its own; images, and other content beside text, stay."""
    if text == message.text:
        return message
    blocks = [] if isinstance(message.content, str) else message.content
    content = [block for block in blocks if not is_text(block)]
    if not content:
        return message.model_copy(update={"content": text})
    text_position = next((position for position, block in enumerate(blocks) if is_text(block)), 0)
    content.insert(text_position, {"type": "text", "text": text})
    return message.model_copy(update={"content": content})


def _is_correction(memory: Memory, message: Message) -> bool:
    """Whether a memory with this message will say something else than was said."""
    content_id = memory_id(message)
    if content_id == memory_id(memory.message):
        return memory.corrected
    return memory.id not in (content_id, successor_id(content_id))
