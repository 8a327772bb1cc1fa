"""How messages enter a session's log, each once, and how they leave it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress
from typing import TypeAlias

from langmem_adapters import text
from langmem_adapters.codec import encode
from langmem_adapters.conversation.deduplication import Delivery
from langmem_adapters.conversation.stored_summary import SUMMARY, end_id_in, summary_after_move, summary_after_removal
from langmem_adapters.conversation.tombstones import (
    DELETED,
    DEPARTED,
    have_been_deleted,
    have_departed,
    with_deleted,
    with_departed,
)
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.expiry import ExpiringSession, Refresh
from langmem_adapters.flow import Flow
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.longterm import RECALLED, LongTermMemory, longterm_namespace
from langmem_adapters.model import Message, MessageData, Scope, salvage
from langmem_adapters.protocols import Appended, Item, Store
from langmem_adapters.recall.keeping import as_stored
from langmem_adapters.validation import check_store, check_sync_functions, checked_messages

CREATED = "created"
"""The value with the time when a session began, once its first message has left."""
GENERATION = "begun"
"""A value set with CREATED, different each time: a session that was cleared and begun anew is not the same."""
ARCHIVED = "archived"
"""The value that changes as messages move to LlamaIndex's archive."""
ARCHIVE = f"{ARCHIVED}/"
"""The prefix of the keys of the archive's values."""
MOVE_KEYS = (ARCHIVED, DEPARTED)
"""One of these values changes whenever messages are moved away."""
WATCHED_KEYS = (SUMMARY, CREATED, GENERATION, DELETED, *MOVE_KEYS)
"""The values that a flow reads before messages leave, and guards its write with, to detect concurrent changes."""
PAGE_SIZE = 64
_MOVE_BATCH_SIZE = 8 * PAGE_SIZE  # the most messages moved in one write, approximately
_MAX_ID_CHARS = 200
_LogEntry: TypeAlias = "tuple[Item, Message]"
_NewEntry: TypeAlias = "tuple[str, bytes]"
_Values: TypeAlias = "dict[str, bytes]"


def archived_ids(values: Iterable[str]) -> set[str]:
    """The ids of the messages in LlamaIndex's archive, from the keys of a session's values."""
    return {key.removeprefix(ARCHIVE).partition("/")[2] for key in values if key.startswith(ARCHIVE)}


def brain_namespace(scope: Scope) -> Namespace:
    """The namespace of a session in a store."""
    return ("brain", scope.tenant, scope.user, scope.session)


class SessionLog:
    """The messages of one session, in its store.

    Messages beyond ``memory_k`` leave for the long-term memory at once if it ``moves_overflow``, and none ever leaves
    unless it ``removes_messages``. The other arguments are as in :class:`~langmem_adapters.brain.BrainMemory`.
    """

    def __init__(
        self,
        store: Store,
        scope: Scope,
        *,
        memory_k: int,
        long_term: LongTermMemory | None,
        ttl: float | None,
        refresh: Refresh,
        moves_overflow: bool,
        removes_messages: bool,
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        check_store(store)
        check_sync_functions(clock=clock, new_id=new_id)
        if not (long_term is None or isinstance(long_term, LongTermMemory)):
            kind = type(long_term).__name__
            raise ConfigurationError(
                f"long_term is a LongTermMemory, such as Settings().long_term(…) gives, not {kind}"
            )
        self.store = store
        self.scope = scope
        self.memory_k = memory_k
        self.long_term = long_term
        self._moves_overflow = moves_overflow
        self._departed_keys = [DEPARTED] if removes_messages else []
        self.namespace: Namespace = brain_namespace(scope)
        self._owns_memory = long_term is not None and long_term.scope == scope and not scope.user
        linked = longterm_namespace(scope) if self._owns_memory else None
        self.session = ExpiringSession(
            store, self.namespace, ttl=ttl, refresh=refresh, clock=clock, linked_namespace=linked
        )
        if long_term is not None and linked is not None and ttl is not None:
            long_term.ttl = ttl  # otherwise whoever changes a memory would remove their expiry
        self._clock = clock
        self.new_id = new_id

    def clear(self, long_term: bool | None) -> Flow[None]:
        """Clear the session; and its part of the long-term memory, by default if that is the session's own."""
        memory = None if long_term is False else self.long_term
        session_memory = memory if self._owns_memory else None
        if session_memory is not None:  # first, so that the session exists until all of it is gone
            yield from session_memory.clear_flow()
        yield from self.session.clear()
        if session_memory is not None:  # again, for what moved there meanwhile
            yield from session_memory.clear_flow()
        elif memory is not None and long_term:
            yield from memory.forget_flow(self.scope.session, None)

    def delete(self, message_ids: set[str]) -> Flow[int]:
        """Remove messages here, in LlamaIndex's archive and in the long-term memory; returns how many there were."""
        ids = {entry_id(id_) for id_ in message_ids}
        while True:
            entries, values = yield from self._read_entries(ids)
            archive = (yield from self.session.get(None)) if ARCHIVED in values else {}
            archived = [key for key in archive if ids & archived_ids([key])]
            may_be_moved = self.long_term is not None and CREATED in values  # or may be moving there now
            put = with_deleted(values, ids) if entries or archived or may_be_moved else {}
            put |= yield from self._moved_summary(values, entries)
            if not put or (yield from self.leave(entries, values, put=put, delete=archived)):
                break
        if self.long_term is None:
            return len(entries) + len(archived)
        # If nothing has left yet, no other messages can have been moved under these ids.
        is_complete = len(entries) == len(ids) and CREATED not in values
        messages = [message for _, message in entries] if is_complete else None
        ttl, session = self.session.linked_ttl(), self.scope.session
        forgotten = yield from self.long_term.forget_flow(session, message_ids, said=messages, ttl=ttl)
        return len(entries) + len(archived) + forgotten

    def _moved_summary(self, values: _Values, removed: Sequence[_LogEntry]) -> Flow[_Values]:
        """The summary to write if its last covered message is deleted: it then ends at an earlier one that stays."""
        end_id = end_id_in(values)
        last = next((item for item, _ in removed if item.id == end_id), None)
        if last is None:
            return {}
        earlier = yield from self.session.scan(limit=len(removed), reverse=True, before=last.seq)
        ids = [item.id for item in (last, *earlier.items)]
        return summary_after_removal(values, {item.id for item, _ in removed}, ids[::-1])

    def add(self, messages: Sequence[Message | MessageData]) -> Flow[None]:
        """Append messages, except those that were only recalled into a prompt."""
        messages = [message for message in checked_messages(messages) if not message.metadata.get(RECALLED)]
        if not messages:
            return
        messages = as_stored(self.store, messages)
        entries = [self.entry(message) for message in messages]
        appended = yield from self.session.append(entries, keys=self._departed_keys)
        total = appended.total
        if not all(appended.new) or appended.values:
            full_messages = [message if isinstance(message, Message) else message.message() for message in messages]
            total += yield from self._deduplicate(full_messages, entries, appended)
        if self._moves_overflow and self.long_term is not None and total > self.memory_k:
            yield from self._move_overflow(self.long_term, total - self.memory_k)

    def entry(self, message: Message | MessageData) -> _NewEntry:
        """A message as it is stored: with an id and a time."""
        id_ = message.id or self.new_id()
        created_at = self._clock() if message.created_at is None else message.created_at
        return entry_id(id_), message.to_bytes(id=id_, created_at=created_at)

    def _deduplicate(self, messages: Sequence[Message], entries: Sequence[_NewEntry], appended: Appended) -> Flow[int]:
        """Remove again what had left, and add what is new under a known id with another id; returns how many at most.

        Messages appended after such a one are moved after it in the same write, to keep their order.
        """
        departed = have_departed(appended.values, messages)
        if all(appended.new) and not any(departed):
            return 0
        ids = [id_ for id_, _ in entries]
        first_data = dict(reversed(entries))  # of an id that comes twice, the log took the first
        delivery = Delivery(messages, ids, appended.new, departed)
        while True:
            stored, values = yield from self._read_entries(delivery.unclear_ids)
            if not (stored or values) and not (yield from self.session.scan(limit=0)).total:
                return 0  # cleared or expired meanwhile, and must not come back
            stored_messages = {item.id: message for item, message in stored}
            renamed = delivery.renamed_messages(stored_messages, have_departed(values, messages))
            # By now, another delivery may have stored something else under an id that left.
            delivered = {item.id: (item, message) for item, message in stored if item.data == first_data[item.id]}
            returned, reordered = delivery.misplaced_positions(delivered, renamed)
            if end_id_in(values) in {ids[n] for n in reordered}:
                reordered = []  # a summary covers them where they are
            if not (returned or renamed):
                return 0
            additions = {n: self.entry(message) for n, message in renamed.items()} | {n: entries[n] for n in reordered}
            moved = [delivered[ids[n]] for n in reordered]
            removed = [delivered[ids[n]] for n in returned] + moved
            is_written = yield from self.session.try_write(
                # so that nobody removes them at their old place
                put=with_departed(values, [message for _, message in moved]) if moved else {},
                remove=[item for item, _ in removed],
                append=[additions[n] for n in sorted(additions)],
                guard=unchanged_guard(values),
            )
            if is_written:
                return len(renamed)

    def _read_entries(self, ids: Collection[str]) -> Flow[tuple[list[_LogEntry], _Values]]:
        """The entries of these ids, newest first, damaged ones empty; and the values that reveal concurrent changes."""
        page = yield from self.session.scan(limit=PAGE_SIZE if ids else 0, reverse=True, keys=WATCHED_KEYS)
        entries, values, missing_ids = [], page.values, set(ids)
        while page.items:
            entries += readable_entries((item for item in page.items if item.id in ids), keeps_damaged=True)
            missing_ids.difference_update(item.id for item in page.items)
            if not missing_ids or len(page.items) < PAGE_SIZE:
                break
            page = yield from self.session.scan(limit=PAGE_SIZE, reverse=True, before=page.items[-1].seq)
        return entries, values

    def _move_overflow(self, long_term: LongTermMemory, surplus: int) -> Flow[None]:
        """Move the oldest messages to the long-term memory: they leave here only once they are there.

        A long backlog, of a session that had no long-term memory before, is moved in parts.
        """
        while True:
            for limit in (min(surplus, _MOVE_BATCH_SIZE) + PAGE_SIZE, None):  # None: if the first read is too short
                page = yield from self.session.scan(limit=limit, keys=WATCHED_KEYS)
                surplus = page.total - self.memory_k  # by this read: another writer may have moved some by now
                min_count = min(surplus, _MOVE_BATCH_SIZE)
                oldest = readable_entries(page.items)
                messages = [message for _, message in oldest]
                positions = text.removable_positions(messages, min_count) if min_count > 0 else []
                if len(positions) >= min_count:
                    break
            if not positions:
                return
            has_left = yield from self.move(long_term, [oldest[n] for n in positions], page.values)
            if has_left and surplus <= _MOVE_BATCH_SIZE:
                return

    def move(
        self, long_term: LongTermMemory, departing: Sequence[_LogEntry], values: _Values, *, put: _Values | None = None
    ) -> Flow[bool]:
        """:meth:`leave` for the long-term memory: the messages leave here only once they are there.

        If they were deleted, archived or cleared meanwhile, they are removed there too.
        """
        marked_values = yield from self.ensure_marks([item for item, _ in departing], values)
        if marked_values is None:
            return False
        yield from long_term.add_flow([message for _, message in departing], session=self.scope.session)
        put = {**summary_after_move(values, [item.id for item, _ in departing]), **(put or {})}
        has_left = yield from self.leave(departing, marked_values, put=put)
        if not has_left:
            yield from self._undo_move(long_term, departing, marked_values)
        return has_left

    def ensure_marks(self, items: Sequence[Item], values: _Values) -> Flow[_Values | None]:
        """The values with both marks, by which others see that the session was cleared; None: it already was."""
        if not items or {GENERATION, CREATED} <= values.keys():
            return values
        put = {GENERATION: encode(self.new_id())}
        if CREATED not in values:
            first = readable_entries((yield from self.session.scan(limit=1)).items)
            put[CREATED] = encode(first[0][1].created_at if first else None)
        marked_values = {**values, **put}
        if (yield from self.session.try_write(put=put, guard=unchanged_guard(values))):
            if (yield from self.session.scan(after=items[0].seq - 1, limit=1)).items == items[:1]:
                return marked_values
            yield from self.session.try_write(delete=list(put), guard=unchanged_guard(marked_values))
        return None

    def _undo_move(self, long_term: LongTermMemory, departing: Sequence[_LogEntry], before: _Values) -> Flow[None]:
        """Remove from the long-term memory what did not leave for it; what others have moved there stays."""
        _, current = yield from self._read_entries(())
        ids, messages = [item.id for item, _ in departing], [message for _, message in departing]
        is_undone = have_been_deleted(before, current, ids)
        # An archive takes and deletes messages without a tally; a cleared session has lost its tally.
        if any(before.get(key) != current.get(key) for key in (GENERATION, ARCHIVED)):
            present, _ = yield from self._read_entries(set(ids))
            present_ids = {item.id for item, _ in present}
            _, current = yield from self._read_entries(())  # again: messages may have left since the last read
            departed = have_departed(current, messages)
            is_undone = [is_undone[n] or not (departed[n] or id_ in present_ids) for n, id_ in enumerate(ids)]
        undone = list(compress(messages, is_undone))
        undone_ids, ttl = {message.id for message in undone}, self.session.linked_ttl()
        yield from long_term.forget_flow(self.scope.session, undone_ids, said=undone, ttl=ttl)

    def leave(
        self,
        departing: Sequence[_LogEntry],
        values: _Values,
        *,
        put: _Values | None = None,
        delete: Sequence[str] = (),
        remove: bool = True,
    ) -> Flow[bool]:
        """Remove these from the log and put values in their place, all or nothing; False: other writers were first.

        Args:
            departing: The entries that leave.
            values: The values read together with them, including WATCHED_KEYS.
            put: Values that take their place.
            delete: Values that are deleted with them.
            remove: False if the entries stay in the log.
        """
        items = [item for item, _ in departing]
        marked_values = yield from self.ensure_marks(items, values)
        if marked_values is None:
            return False
        departed = with_departed(values, (message for _, message in departing)) if remove else {}
        put = {**(put or {}), **departed}
        guard = unchanged_guard(marked_values)
        return (yield from self.session.try_write(put=put, delete=delete, remove=items if remove else [], guard=guard))


def unchanged_guard(values: dict[str, bytes]) -> dict[str, bytes | None]:
    """The guard of a write that must fail if others have changed one of these values since."""
    return {key: values.get(key) for key in WATCHED_KEYS}


def readable_entries(items: Iterable[Item], *, keeps_damaged: bool = False) -> list[_LogEntry]:
    """Log entries with their messages; those damaged beyond reading are skipped, or empty, with a warning."""
    entries = ((item, salvage(item.data, f"log entry {item.seq}")) for item in items)
    return [(item, m or Message(id=item.id, role="user")) for item, m in entries if m is not None or keeps_damaged]


def entry_id(id_: str) -> str:
    """The id by which the store knows a message: its own, if every store can hold that, else a fingerprint."""
    return id_ if len(id_) <= _MAX_ID_CHARS and id_.isprintable() else fingerprint(id_)
