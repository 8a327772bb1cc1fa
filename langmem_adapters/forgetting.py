"""Taking back what a session has said from the long-term memory, and nothing of what was said elsewhere."""

from __future__ import annotations

from collections.abc import Collection

from langmem_adapters.errors import Conflict
from langmem_adapters.flow import Flow, step
from langmem_adapters.memories import read_memory
from langmem_adapters.model import Memory
from langmem_adapters.records import Records

__all__ = ["forget"]


def forget(records: Records, session: str, message_ids: Collection[str] | None, *, ttl: float | None) -> Flow[int]:
    """Remove a session's occurrences, or those of these messages; gives how many memories were touched.

    A memory goes when nobody else has said it. Interrupted, it has removed some, and the same call goes on. Reads
    all memories.
    """
    touched = 0
    for key, data in (yield from step(lambda: list(records.all()))):
        current: bytes | None = data
        while current is not None:
            memory = read_memory(current)
            left = None if memory is None else _without(memory, session, message_ids)
            if left is None:
                break
            try:
                if left.occurrences:
                    yield from step(records.put, {key: left.to_bytes()}, guard={key: current}, ttl=ttl)
                else:
                    yield from step(records.delete, [key], guard={key: current}, ttl=ttl)
            except Conflict:
                current = (yield from step(records.get, [key])).get(key)  # it was said again in this moment
                continue
            touched += 1
            break
    return touched


def _without(memory: Memory, session: str, message_ids: Collection[str] | None) -> Memory | None:
    """The memory as others have said it; None, where that is the same."""
    others = [
        occurrence
        for occurrence in memory.occurrences
        if occurrence.session != session or (message_ids is not None and occurrence.message_id not in message_ids)
    ]
    if len(others) == len(memory.occurrences):
        return None
    return memory.model_copy(update={"occurrences": others})
