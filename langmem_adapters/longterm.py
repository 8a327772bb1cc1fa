"""LongTermMemory: what has left the window, kept for good and found again by search."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence

from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.model import Memory, Message, Occurrence, Recalled, Scope
from langmem_adapters.protocols import Index, Store
from langmem_adapters.records import Records

__all__ = ["RECALLED", "LongTermMemory", "longterm_namespace"]

RECALLED = "recalled"
"""Key in a message's metadata: set on what was recalled into a prompt, so that it is never stored again."""

_LONGEST_QUERY = 10_000  # characters
_OCCURRENCES = 101
_SPEAKERS = ("user", "assistant")
_log = logging.getLogger("langmem_adapters")


def longterm_namespace(scope: Scope) -> Namespace:
    """Where a scope's memories are kept: a user's together; without a user, a session's own."""
    if scope.user:
        return ("longterm", scope.tenant, scope.user)
    if scope.session:
        return ("longterm", scope.tenant, "", scope.session)
    raise ConfigurationError("a long-term memory needs a scope: give it user=, or session= where there is no user")


class LongTermMemory:
    """The long-term memory of a user, or of one session (MetaGPT's ``RoleZeroLongTermMemory``).

    Messages are kept as they are; the very same message said again is kept once, with each time it was said (the
    first and the latest hundred). What users and assistants said can be found; tool results and system prompts
    are kept, not searched; what was itself recalled into a prompt is not kept again. Every method has an async
    twin with an ``a`` in front. Constructing one reads nothing.

    Args:
        store: Where the memories are kept. It is the truth.
        index: What finds them, :func:`~langmem_adapters.open_index` for one. It can be dropped at any time.
        user, tenant: Whose memories these are; those of others are never searched.
        session: Keeps the memories to one session, where there is no user.
        similarity_top_k: How many :meth:`search` returns if it is not told.
        ttl: Seconds after the last write at which all memories of the scope expire; None: never. The memories of
            one session expire with it, when they are the ``long_term`` of a BrainMemory that has a ttl.
        clock: Gives Unix seconds.
        new_id: Gives ids to entries of the log.

    >>> from langmem_adapters import LongTermMemory, Message, open_index, open_store
    >>> memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    >>> memory.add([Message(role="user", content="My bike is in the shed.")])
    >>> [found.text for found in memory.search("Where is the bike?")]
    ['My bike is in the shed.']
    """

    def __init__(
        self,
        store: Store,
        index: Index,
        *,
        user: str = "",
        tenant: str = "",
        session: str = "",
        similarity_top_k: int = 5,
        ttl: float | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if ttl is not None and not ttl > 0:
            raise ConfigurationError(f"ttl is a number of seconds above 0, not {ttl}")
        self.scope = Scope(tenant=tenant, user=user, session=session)
        self.ttl = ttl
        self.similarity_top_k = similarity_top_k
        self._clock = clock
        self._records = Records(store, longterm_namespace(self.scope), index=index, text_of=_searchable, new_id=new_id)

    def add(self, messages: Sequence[Message], *, session: str = "") -> None:
        """Keep messages. ``session`` says where they were said; adding the same ones again changes nothing."""
        run(self.add_flow(messages, session=session))

    async def aadd(self, messages: Sequence[Message], *, session: str = "") -> None:
        """:meth:`add`, without blocking the event loop."""
        await arun(self.add_flow(messages, session=session))

    def search(self, query: str, k: int | None = None, *, shown: Sequence[Message] = ()) -> list[Recalled]:
        """The ``k`` memories that fit the query best, best first; none that shares nothing with it.

        Args:
            query: What to look for. An empty one finds nothing.
            k: How many at the most; 0 or less finds nothing.
            shown: Messages that the reader sees anyway: what says the same is left out.
        """
        return run(self.search_flow(query, k, shown=shown))

    async def asearch(self, query: str, k: int | None = None, *, shown: Sequence[Message] = ()) -> list[Recalled]:
        """:meth:`search`, without blocking the event loop."""
        return await arun(self.search_flow(query, k, shown=shown))

    def get(self, memory_id: str) -> Memory | None:
        """A memory by its id."""
        return run(self._get(memory_id))

    async def aget(self, memory_id: str) -> Memory | None:
        """:meth:`get`, without blocking the event loop."""
        return await arun(self._get(memory_id))

    def update(self, memory_id: str, text: str) -> bool:
        """Correct what a memory says; False, if there is none of this id."""
        return run(self._update(memory_id, text))

    async def aupdate(self, memory_id: str, text: str) -> bool:
        """:meth:`update`, without blocking the event loop."""
        return await arun(self._update(memory_id, text))

    def delete(self, memory_ids: Sequence[str]) -> int:
        """Forget memories; returns how many there were."""
        return run(step(self._records.delete, _ids(memory_ids), ttl=self.ttl))

    async def adelete(self, memory_ids: Sequence[str]) -> int:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(step(self._records.delete, _ids(memory_ids), ttl=self.ttl))

    def all(self) -> list[Memory]:
        """Every memory of the scope, oldest first."""
        return run(self._all())

    async def aall(self) -> list[Memory]:
        """:meth:`all`, without blocking the event loop."""
        return await arun(self._all())

    def count(self) -> int:
        """How many memories there are. Reads them all."""
        return len(run(self._all()))

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return len(await arun(self._all()))

    def clear(self) -> None:
        """Forget everything of the scope."""
        run(step(self._records.clear))

    async def aclear(self) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(step(self._records.clear))

    def flush(self, report: Callable[[int], None] | None = None) -> None:
        """Index what was added since the last search, which would do it otherwise.

        ``report`` is told after each page how many changes it held.
        """
        run(step(self._records.follow, report))

    async def aflush(self, report: Callable[[int], None] | None = None) -> None:
        """:meth:`flush`, without blocking the event loop."""
        await arun(step(self._records.follow, report))

    def rebuild(self, report: Callable[[int], None] | None = None) -> None:
        """Drop the index of this scope and make it anew from the store."""
        run(self._rebuild(report))

    async def arebuild(self, report: Callable[[int], None] | None = None) -> None:
        """:meth:`rebuild`, without blocking the event loop."""
        await arun(self._rebuild(report))

    def __repr__(self) -> str:
        return f"LongTermMemory({self._records.store!r}, {self.scope!r})"

    # --- flows

    def add_flow(self, messages: Sequence[Message], *, session: str) -> Flow[None]:
        """:meth:`add`, as a part of a larger flow."""
        fresh: dict[str, Memory] = {}
        for message in messages:
            if not message.metadata.get(RECALLED):
                _note(fresh, message, session or self.scope.session, self._clock)
        while fresh:
            known = yield from step(self._records.get, list(fresh))
            merged = {id_: _merged(memory, known.get(id_)) for id_, memory in fresh.items()}
            changed = {id_: data for id_, data in merged.items() if data != known.get(id_)}
            try:
                guard = {id_: known.get(id_) for id_ in changed}
                yield from step(self._records.put, changed, guard=guard, ttl=self.ttl)
            except Conflict:
                continue  # the same was said elsewhere in this moment
            return

    def search_flow(self, query: str, k: int | None = None, *, shown: Sequence[Message] = ()) -> Flow[list[Recalled]]:
        """:meth:`search`, as a part of a larger flow."""
        k = self.similarity_top_k if k is None else k
        if k <= 0 or not query.strip():
            return []
        seen = {_normal(message.text) for message in shown}

        def wanted(data: bytes) -> bool:
            memory = _read(data)
            return memory is not None and _normal(memory.message.text) not in seen

        found = yield from step(self._records.search, query[:_LONGEST_QUERY], k, wanted)
        return [Recalled(Memory.from_bytes(data), score) for _, score, data in found]

    def _get(self, memory_id: str) -> Flow[Memory | None]:
        found = yield from step(self._records.get, [memory_id])
        return _read(found[memory_id]) if found else None

    def _update(self, memory_id: str, text: str) -> Flow[bool]:
        while True:
            found = yield from step(self._records.get, [memory_id])
            memory = _read(found[memory_id]) if found else None
            if memory is None:
                return False
            message = memory.message.model_copy(update={"content": text})
            changed = memory.model_copy(update={"message": message})
            try:
                yield from step(self._records.put, {memory_id: changed.to_bytes()}, guard=found, ttl=self.ttl)
            except Conflict:
                continue
            return True

    def _all(self) -> Flow[list[Memory]]:
        found = yield from step(lambda: [_read(data) for _, data in self._records.all()])
        return [memory for memory in found if memory is not None]

    def _rebuild(self, report: Callable[[int], None] | None) -> Flow[None]:
        index = self._records.index
        if index is not None:
            yield from step(index.clear, self._records.namespace)
        yield from step(self._records.follow, report)


def _read(data: bytes) -> Memory | None:
    """A stored memory; None, with a warning, where it is damaged: one must not take the others along."""
    try:
        return Memory.from_bytes(data)
    except SerializationError as damage:
        _log.warning("the long-term memory holds a damaged memory: %s", damage)
        return None


def _note(memories: dict[str, Memory], message: Message, session: str, clock: Callable[[], float]) -> None:
    said_at = clock() if message.created_at is None else message.created_at
    occurrence = Occurrence(session=session, message_id=message.id, created_at=said_at)
    said = _normal(message.content) if isinstance(message.content, str) else message.content
    calls = [call.model_dump() for call in message.tool_calls]
    id_ = fingerprint(message.role, message.name, said, calls, message.tool_call_id)
    memory = memories.setdefault(id_, Memory(id=id_, message=message))
    memory.occurrences.append(occurrence)


def _merged(memory: Memory, known: bytes | None) -> bytes:
    """The stored form of a memory, with the occurrences that are known already in front."""
    old = _read(known) if known is not None else None
    if known is None or old is None:
        return memory.to_bytes()
    places = {(o.session, o.message_id) for o in old.occurrences}
    new = [o for o in memory.occurrences if not o.message_id or (o.session, o.message_id) not in places]
    if not new:
        return known
    occurrences = (old.occurrences + new)[-_OCCURRENCES:]
    return old.model_copy(update={"occurrences": old.occurrences[:1] + occurrences[1:]}).to_bytes()


def _searchable(data: bytes) -> str | None:
    memory = _read(data)
    if memory is None or memory.message.role not in _SPEAKERS:
        return None
    message = memory.message
    return f"{message.name} {message.text}" if message.name else message.text


def _normal(text: str) -> str:
    return " ".join(text.split())


def _ids(memory_ids: Sequence[str]) -> list[str]:
    if isinstance(memory_ids, str):
        raise ConfigurationError("delete takes a list of ids, not one text")
    return list(memory_ids)
