"""Remove what a session has said from the long-term memory, and nothing that was said elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from itertools import islice

from langmem_adapters.codec import encode
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.flow import Flow, step
from langmem_adapters.model import Memory
from langmem_adapters.recall.memories import Reading, with_others
from langmem_adapters.records.keyed import Records

__all__ = ["forget"]

_PAGE = 100  # memories changed in one write
_FEW = 32  # ids that are searched for in a memory's bytes, before it is decoded


def forget(
    records: Records,
    session: str,
    message_ids: Collection[str] | None,
    reading: Reading,
    *,
    among: Sequence[str] | None = None,
    ttl: float | None,
) -> Flow[int]:
    """Remove a session's occurrences, or those of these messages; returns how many memories were changed.

    A memory that only they have said is removed. After an interrupted call has removed some, the same call again
    removes the rest. Damaged memories are skipped; if ``reading`` is strict, their error is raised at the end, when all
    others are done. ``among`` gives the ids of the memories that may be concerned; without it, all are read.
    """
    mentions = _mentions(session, message_ids)
    found = yield from step(records.store.get, records.namespace, among)
    pending = {key: data for key, data in found.items() if "\0" not in key and mentions(data)}
    touched = 0
    damage: SerializationError | None = None
    while pending:
        page = {key: pending.pop(key) for key in list(islice(pending, _PAGE))}
        gone: dict[str, bytes] = {}
        left: dict[str, bytes] = {}
        for key, data in page.items():
            try:
                memory = reading.memory(key, data)
            except SerializationError as error:
                damage = error
                continue
            others = None if memory is None else _without(memory, session, message_ids)
            if others is not None and others.occurrences:
                left[key] = others.to_bytes()
            elif others is not None:
                gone[key] = data
        try:
            if gone:
                yield from step(records.remove, gone, ttl=ttl)
                touched += len(gone)
            yield from step(records.put, left, guard={key: page[key] for key in left}, ttl=ttl)
            touched += len(left)
        except Conflict:
            pending |= yield from step(records.get, list(page))  # something was said again just now
    if damage is not None:
        raise damage
    return touched


def _mentions(session: str, message_ids: Collection[str] | None) -> Callable[[bytes], bool]:
    """A test whether stored bytes may concern these: searching bytes is far quicker than decoding them."""
    wanted = [[session]] if session else []
    if message_ids is not None and len(message_ids) <= _FEW and all(message_ids):
        wanted.append(list(message_ids))
    written = [[form for text in texts for form in {encode(text), json.dumps(text).encode()}] for texts in wanted]
    return lambda data: all(any(form in data for form in forms) for forms in written)


def _without(memory: Memory, session: str, message_ids: Collection[str] | None) -> Memory | None:
    """The memory with only its other occurrences; None if nothing changes."""
    others = [
        occurrence
        for occurrence in memory.occurrences
        if occurrence.session != session or (message_ids is not None and occurrence.message_id not in message_ids)
    ]
    if len(others) == len(memory.occurrences):
        return None
    return with_others(memory, others)
