"""Keeping what is said in the long-term memory, once for each thing that is said, and correcting it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langmem_adapters.errors import Conflict
from langmem_adapters.flow import Flow, step
from langmem_adapters.given import check_text
from langmem_adapters.memories import Reading, merged, note
from langmem_adapters.model import Memory, Message
from langmem_adapters.records import Records

__all__ = ["correct", "keep"]


def keep(
    records: Records,
    messages: Sequence[Message],
    session: str,
    reading: Reading,
    *,
    clock: Callable[[], float],
    ttl: float | None,
) -> Flow[None]:
    """Add messages as they were said in a session, or to what of them is known already."""
    fresh: dict[str, Memory] = {}
    for message in messages:
        note(fresh, message, session, clock)
    while fresh:
        known = yield from step(records.get, list(fresh))
        stored = {id_: merged(memory, known.get(id_), reading) for id_, memory in fresh.items()}
        changed = {id_: data for id_, data in stored.items() if data != known.get(id_)}
        try:
            guard = {id_: known.get(id_) for id_ in changed}
            yield from step(records.put, changed, guard=guard, ttl=ttl)
        except Conflict:
            continue  # the same was said elsewhere in this moment
        return


def correct(records: Records, memory_id: str, text: str, reading: Reading, *, ttl: float | None) -> Flow[bool]:
    """Replace what a memory says; False, if there is none of this id."""
    check_text("the text of a memory", text)
    while True:
        found = yield from step(records.get, [memory_id])
        memory = reading.memory(memory_id, found[memory_id]) if found else None
        if memory is None:
            return False
        message = memory.message.model_copy(update={"content": text})
        changed = memory.model_copy(update={"message": message})
        try:
            yield from step(records.put, {memory_id: changed.to_bytes()}, guard=found, ttl=ttl)
        except Conflict:
            continue
        return True
