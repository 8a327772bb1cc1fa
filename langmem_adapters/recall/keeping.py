"""Keep messages in the long-term memory, each distinct one once, and correct them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from langmem_adapters.errors import Conflict
from langmem_adapters.flow import Flow, step
from langmem_adapters.model import Memory, Message, MessageData
from langmem_adapters.protocols import Store
from langmem_adapters.recall.memories import (
    Reading,
    is_corrected,
    is_text,
    memory_id,
    merged,
    note,
    said_again,
    unknown,
)
from langmem_adapters.records.keyed import Records
from langmem_adapters.validation import check_text

__all__ = ["are_known", "as_kept", "correct", "ids_of", "keep"]

M = TypeVar("M", bound=Message | MessageData)


def keep(
    records: Records,
    messages: Sequence[Message],
    session: str,
    reading: Reading,
    *,
    clock: Callable[[], float],
    ttl: float | None,
) -> Flow[None]:
    """Add messages that were said in a session, or their occurrences if the messages are known already."""
    fresh: dict[str, Memory] = {}
    for message in as_kept(records.store, messages):
        note(fresh, message, session, clock)
    while fresh:
        remembered = yield from _remembered_as(records, fresh)
        changed: dict[str, bytes] = {}
        guard: dict[str, bytes | None] = {}
        for id_, memory in fresh.items():
            *earlier, (place, known) = remembered[id_].items()
            others = [reading.memory(other, data) for other, data in earlier if data is not None]
            before = [occurrence for other in others if other for occurrence in other.occurrences]
            new = memory.model_copy(update={"id": place, "occurrences": unknown(memory.occurrences, before)})
            if new.occurrences and (data := merged(new, known, reading)) != known:
                changed[place], guard[place] = data, known
        try:
            yield from step(records.put, changed, guard=guard, ttl=ttl)
        except Conflict:
            continue  # the same was said elsewhere just now
        return


def as_kept(store: Store, messages: Iterable[M]) -> list[M | Message]:
    """The messages as a store keeps them: after redaction, a message no longer equals the one that was given."""
    redacted = getattr(store, "redacted", None)
    if redacted is None:
        return list(messages)
    return [Message.from_bytes(redacted(message.to_bytes())) for message in messages]


def _remembered_as(records: Records, ids: Iterable[str]) -> Flow[dict[str, dict[str, bytes | None]]]:
    """By the id of what is said: the memories that have come of it, by their ids, with their bytes, oldest first.

    The last one is where a repetition is kept; None if there is none yet. The earlier ones were corrected at some time,
    though the correction may have been undone since, or the memory deleted (None).
    """
    remembered: dict[str, dict[str, bytes | None]] = {id_: {} for id_ in ids}
    last = {id_: id_ for id_ in remembered}
    while last:
        after = {said: said_again(id_) for said, id_ in last.items()}
        found = yield from step(records.get, [*last.values(), *after.values()])
        for said, id_ in last.items():
            remembered[said][id_] = found.get(id_)
        last = {said: id_ for said, id_ in after.items() if id_ in found or is_corrected(found.get(last[said]))}
    return remembered


def ids_of(records: Records, messages: Sequence[Message]) -> Flow[list[str]]:
    """The ids of all memories that have come of these messages."""
    remembered = yield from _remembered_as(records, map(memory_id, as_kept(records.store, messages)))
    return [id_ for ids in remembered.values() for id_ in ids]


def are_known(records: Records, messages: Sequence[Message]) -> Flow[list[bool]]:
    """For each message, whether the same is remembered and has not been corrected since."""
    ids = [memory_id(message) for message in as_kept(records.store, messages)]
    remembered = yield from _remembered_as(records, ids)
    return [[*remembered[id_].values()][-1] is not None for id_ in ids]


def correct(records: Records, id_: str, text: str, reading: Reading, *, ttl: float | None) -> Flow[bool]:
    """Replace what a memory says; returns False if there is none of this id."""
    check_text("the id of a memory", id_)
    check_text("the text of a memory", text)
    while True:
        found = yield from step(records.get, [id_])
        memory = reading.memory(id_, found[id_]) if found else None
        if memory is None:
            return False
        (message,) = as_kept(records.store, [_saying(text, memory.message)])
        update = {"message": message, "corrected": _is_correction(memory, message)}
        changed = memory.model_copy(update=update)
        try:
            yield from step(records.put, {id_: changed.to_bytes()}, guard=found, ttl=ttl)
        except Conflict:
            continue
        return True


def _saying(text: str, message: Message) -> Message:
    """The message with this text in place of its own; images, and other content beside text, stay."""
    if text == message.text:
        return message
    blocks = [] if isinstance(message.content, str) else message.content
    beside = [block for block in blocks if not is_text(block)]
    if not beside:
        return message.model_copy(update={"content": text})
    place = next((n for n, block in enumerate(blocks) if is_text(block)), 0)
    beside.insert(place, {"type": "text", "text": text})
    return message.model_copy(update={"content": beside})


def _is_correction(memory: Memory, message: Message) -> bool:
    """Whether a memory with this message will say something else than was said."""
    said = memory_id(message)
    if said == memory_id(memory.message):
        return memory.corrected
    return memory.id not in (said, said_again(said))
