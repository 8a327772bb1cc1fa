"""A memory as bytes: what a message becomes, how it meets what was said before, and by which text it is found."""

from __future__ import annotations

import logging
from collections.abc import Callable

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Memory, Message, Occurrence, Scope
from langmem_adapters.protocols import Document

__all__ = ["merged", "normal", "note", "read_memory", "searchable", "session_within"]

_OCCURRENCES = 101
_SPEAKERS = ("user", "assistant")
_log = logging.getLogger("langmem_adapters")


def read_memory(data: bytes) -> Memory | None:
    """A stored memory; None, with a warning, where it is damaged: one must not take the others along."""
    try:
        return Memory.from_bytes(data)
    except SerializationError as damage:
        _log.warning("the long-term memory holds a damaged memory: %s", damage)
        return None


def note(memories: dict[str, Memory], message: Message, session: str, clock: Callable[[], float]) -> None:
    """Add a message to the memories, by the fingerprint of what it says, with where and when it was said."""
    said_at = clock() if message.created_at is None else message.created_at
    occurrence = Occurrence(session=session, message_id=message.id, created_at=said_at)
    said = normal(message.content) if isinstance(message.content, str) else message.content
    calls = [call.model_dump() for call in message.tool_calls]
    id_ = fingerprint(message.role, message.name, said, calls, message.tool_call_id)
    memory = memories.setdefault(id_, Memory(id=id_, message=message))
    memory.occurrences.append(occurrence)


def merged(memory: Memory, known: bytes | None) -> bytes:
    """The stored form of a memory, with the occurrences that are known already in front."""
    old = read_memory(known) if known is not None else None
    if known is None or old is None:
        return memory.to_bytes()
    places = {(o.session, o.message_id) for o in old.occurrences}
    new = [o for o in memory.occurrences if not o.message_id or (o.session, o.message_id) not in places]
    if not new:
        return known
    occurrences = (old.occurrences + new)[-_OCCURRENCES:]
    return old.model_copy(update={"occurrences": old.occurrences[:1] + occurrences[1:]}).to_bytes()


def searchable(data: bytes) -> Document | None:
    """By what a stored memory is to be found; None: not to be found.

    It stands where and when it was said first.
    """
    memory = read_memory(data)
    if memory is None or memory.message.role not in _SPEAKERS:
        return None
    first = memory.occurrences[0] if memory.occurrences else Occurrence()
    return Document(memory.id, memory.message.text, memory.message.name or "", first.session, first.created_at)


def normal(text: str) -> str:
    """A text without differences of white space."""
    return " ".join(text.split())


def session_within(own: Scope, scope: Scope | None) -> str:
    """The session that a search in memories of ``own`` is narrowed to, if to any; never wider than they are."""
    if scope is None:
        return ""
    if (scope.tenant, scope.user) != (own.tenant, own.user):
        raise ConfigurationError("the scope of a search names the tenant and the user of the memory, and no others")
    if scope.session and not own.user and scope.session != own.session:
        raise ConfigurationError("a memory of one session cannot be searched for another session")
    return scope.session
