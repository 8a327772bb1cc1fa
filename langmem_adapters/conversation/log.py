"""How messages enter a session's log, each once, and how they leave it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from langmem_adapters import text
from langmem_adapters.codec import encode
from langmem_adapters.conversation.deduplication import Delivery
from langmem_adapters.conversation.stored_summary import SUMMARY, ends_at, moved_back, read_summary
from langmem_adapters.conversation.tombstones import (
    DELETED,
    DEPARTED,
    have_been_deleted,
    have_departed,
    with_deleted,
    with_departed,
)
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.expiry import Expiring, Refresh
from langmem_adapters.flow import Flow
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.longterm import RECALLED, LongTermMemory, longterm_namespace
from langmem_adapters.model import Message, MessageData, Scope, salvage
from langmem_adapters.protocols import Appended, Item, Store
from langmem_adapters.recall.keeping import as_kept
from langmem_adapters.validation import check_sources, check_store, checked_messages

__all__ = [
    "ARCHIVE",
    "ARCHIVED",
    "CREATED",
    "GENERATION",
    "MOVES",
    "PAGE",
    "WATCHED",
    "SessionLog",
    "archived_ids",
    "brain_namespace",
    "entry_id",
    "readable",
    "unchanged",
]

CREATED = "created"
"""The value with the time when a session began, once its first message has left."""
GENERATION = "begun"
"""A value set with CREATED, different each time: a session that was cleared and begun anew is not the same."""
ARCHIVED = "archived"
"""The value that changes as messages move to LlamaIndex's archive."""
ARCHIVE = f"{ARCHIVED}/"
"""The prefix of the keys of the archive's values."""
MOVES = (ARCHIVED, DEPARTED)
"""One of these values changes whenever messages are moved away."""
WATCHED = (SUMMARY, CREATED, GENERATION, DELETED, *MOVES)
"""The values that a flow reads before messages leave, and guards its write with, to detect concurrent changes."""
PAGE = 64
_PASS = 8 * PAGE  # the most messages moved in one write, approximately
_LONGEST_ID = 200
_Entry: TypeAlias = "tuple[str, bytes]"


def archived_ids(values: Iterable[str]) -> set[str]:
    """The ids of the messages in LlamaIndex's archive, from the keys of a session's values."""
    return {key.removeprefix(ARCHIVE).partition("/")[2] for key in values if key.startswith(ARCHIVE)}


def brain_namespace(scope: Scope) -> Namespace:
    """The namespace of a session in a store."""
    return ("brain", scope.tenant, scope.user, scope.session)


class SessionLog:
    """The messages of one session, in its store.

    Args:
        store, scope: Where the messages are, and whose they are.
        memory_k: How many messages stay, if the rest goes to the long-term memory.
        long_term: Takes the messages that leave.
        overflows: Whether messages beyond ``memory_k`` leave for the long-term memory at once.
        removes: Whether any messages ever leave.
        ttl, refresh, clock, new_id: See :class:`~langmem_adapters.brain.BrainMemory`.
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
        overflows: bool,
        removes: bool,
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        check_store(store)
        check_sources(clock=clock, new_id=new_id)
        if not (long_term is None or isinstance(long_term, LongTermMemory)):
            kind = type(long_term).__name__
            raise ConfigurationError(
                f"long_term is a LongTermMemory, such as Settings().long_term(…) gives, not {kind}"
            )
        self.store = store
        self.scope = scope
        self.memory_k = memory_k
        self.long_term = long_term
        self._overflows = overflows
        self._moves = [DEPARTED] if removes else []
        self.namespace: Namespace = brain_namespace(scope)
        is_own = long_term is not None and long_term.scope == scope and not scope.user
        linked_namespace = longterm_namespace(scope) if is_own else None
        self.session: Expiring = Expiring(
            store, self.namespace, ttl=ttl, refresh=refresh, clock=clock, linked_namespace=linked_namespace
        )
        if long_term is not None and linked_namespace is not None and ttl is not None:
            long_term.ttl = ttl  # otherwise whoever changes a memory would remove their expiry
        self._clock = clock
        self.new_id = new_id

    def clear(self, long_term: bool | None) -> Flow[None]:
        """Clear the session; and its part of the long-term memory, by default if that is the session's own."""
        memory = None if long_term is False else self.long_term
        own = None if memory is None or memory.scope.user else memory
        if own is not None:  # first, so that the session exists until all of it is gone
            yield from own.clear_flow()
        yield from self.session.clear()
        if own is not None:  # again, for what moved there meanwhile
            yield from own.clear_flow()
        elif memory is not None and long_term:
            yield from memory.forget_flow(self.scope.session, None)

    def delete(self, message_ids: set[str]) -> Flow[int]:
        """Remove messages here, in LlamaIndex's archive and in the long-term memory; returns how many there were."""
        ids = {entry_id(id_) for id_ in message_ids}
        while True:
            gone, values = yield from self._look(ids)
            archive = (yield from self.session.get(None)) if ARCHIVED in values else {}
            archived = [key for key in archive if ids & archived_ids([key])]
            moved = self.long_term is not None and CREATED in values  # or may be moving there now
            put = with_deleted(values, ids) if gone or archived or moved else {}
            put |= yield from self._with_cover(values, gone)
            if not put or (yield from self.leave(gone, values, put=put, delete=archived)):
                break
        if self.long_term is None:
            return len(gone) + len(archived)
        # If nothing has left yet, no other messages can have been moved under these ids.
        here = len(gone) == len(ids) and CREATED not in values
        said = [message for _, message in gone] if here else None
        ttl, session = self.session.linked_ttl(), self.scope.session
        taken = yield from self.long_term.forget_flow(session, message_ids, said=said, ttl=ttl)
        return len(gone) + len(archived) + taken

    def _with_cover(self, values: dict[str, bytes], gone: Sequence[tuple[Item, Message]]) -> Flow[dict[str, bytes]]:
        """The summary to write if its last covered message is deleted: it then ends at an earlier one that stays."""
        end = ends_at(read_summary(values.get(SUMMARY)))
        last = next((item for item, _ in gone if item.id == end), None)
        if last is None:
            return {}
        before = yield from self.session.scan(limit=len(gone), reverse=True, before=last.seq)
        ids = [item.id for item in (last, *before.items)]
        return moved_back(values, {item.id for item, _ in gone}, ids[::-1])

    def add(self, messages: Sequence[Message | MessageData]) -> Flow[None]:
        """Append messages, except those that were only recalled into a prompt."""
        messages = [message for message in checked_messages(messages) if not message.metadata.get(RECALLED)]
        if not messages:
            return
        messages = as_kept(self.store, messages)
        entries = [self.entry(message) for message in messages]
        appended = yield from self.session.append(entries, keys=self._moves)
        total = appended.total
        if not all(appended.new) or appended.values:
            whole = [message if isinstance(message, Message) else message.message() for message in messages]
            total += yield from self._sort_out(whole, entries, appended)
        if self._overflows and self.long_term is not None and total > self.memory_k:
            yield from self._overflow(self.long_term, total - self.memory_k)

    def entry(self, message: Message | MessageData) -> _Entry:
        """A message as it is stored: with an id and a time."""
        id_ = message.id or self.new_id()
        created_at = self._clock() if message.created_at is None else message.created_at
        return entry_id(id_), message.to_bytes(id=id_, created_at=created_at)

    def _sort_out(self, messages: Sequence[Message], entries: Sequence[_Entry], appended: Appended) -> Flow[int]:
        """Remove again what had left before, and add messages with a known id but new content under another id.

        Messages appended after such a one are moved after it in the same write, to keep their order. Returns at most
        how many are added.
        """
        gone = have_departed(appended.values, messages)
        if all(appended.new) and not any(gone):
            return 0
        ids, own = [id_ for id_, _ in entries], dict(reversed(entries))
        delivery = Delivery(messages, ids, appended.new, gone)
        while True:
            found, values = yield from self._look(delivery.unclear)
            if not (found or values) and not (yield from self.session.scan(limit=0)).total:
                return 0  # cleared or expired meanwhile, and must not come back
            others = delivery.others({item.id: message for item, message in found}, have_departed(values, messages))
            # By now, another delivery may have stored something else under an id that left.
            there = {item.id: (item, message) for item, message in found if item.data == own[item.id]}
            back, later = ([n for n in places if ids[n] in there] for places in delivery.misplaced(others))
            if ends_at(read_summary(values.get(SUMMARY))) in {ids[n] for n in later}:
                later = []  # a summary covers them where they are
            if not (back or others):
                return 0
            again = {n: self.entry(message) for n, message in others.items()} | {n: entries[n] for n in later}
            done = yield from self.session.try_write(
                # so that nobody removes them at their old place
                put=with_departed(values, [there[ids[n]][1] for n in later]) if later else {},
                remove=[there[ids[n]][0] for n in back + later],
                append=[again[n] for n in sorted(again)],
                guard=unchanged(values),
            )
            if done:
                return len(others)

    def _look(self, ids: Collection[str]) -> Flow[tuple[list[tuple[Item, Message]], dict[str, bytes]]]:
        """The entries of these ids, newest first, and the values that reveal concurrent changes."""
        page = yield from self.session.scan(limit=PAGE if ids else 0, reverse=True, keys=WATCHED)
        found, values, missing = [], page.values, set(ids)
        while page.items:
            found += readable(item for item in page.items if item.id in ids)
            missing.difference_update(item.id for item in page.items)
            if not missing:
                break
            page = yield from self.session.scan(limit=PAGE, reverse=True, before=page.items[-1].seq)
        return found, values

    def _overflow(self, long_term: LongTermMemory, least: int) -> Flow[None]:
        """Move the oldest messages to the long-term memory: they leave here only once they are there.

        A long backlog, of a session that had no long-term memory before, is moved in parts.
        """
        surplus = least
        while True:
            for limit in (min(surplus, _PASS) + PAGE, None):
                page = yield from self.session.scan(limit=limit, keys=WATCHED)
                surplus = page.total - self.memory_k  # by this read: another writer may have moved some by now
                least = min(surplus, _PASS)
                oldest = readable(page.items)
                places = text.removable_positions([message for _, message in oldest], least) if least > 0 else []
                if len(places) >= least:
                    break
            if not places:
                return
            if (yield from self.move(long_term, [oldest[n] for n in places], page.values)) and least == surplus:
                return

    def move(
        self,
        long_term: LongTermMemory,
        gone: Sequence[tuple[Item, Message]],
        values: dict[str, bytes],
        *,
        put: dict[str, bytes] | None = None,
    ) -> Flow[bool]:
        """:meth:`leave` for the long-term memory: the messages leave here only once they are there.

        If they were deleted, archived or cleared meanwhile, they are removed there too.
        """
        begun = yield from self.begun([item for item, _ in gone], values)
        if begun is None:
            return False
        yield from long_term.add_flow([message for _, message in gone], session=self.scope.session)
        left = yield from self.leave(gone, begun, put=put)
        if not left:
            yield from self._take_back(long_term, gone, begun)
        return left

    def begun(self, items: Sequence[Item], values: dict[str, bytes]) -> Flow[dict[str, bytes] | None]:
        """The values with both marks, by which others see that the session was cleared; None: it already was."""
        if not items or {GENERATION, CREATED} <= values.keys():
            return values
        put = {GENERATION: encode(self.new_id())}
        if CREATED not in values:
            first = readable((yield from self.session.scan(limit=1)).items)
            put[CREATED] = encode(first[0][1].created_at if first else None)
        begun = {**values, **put}
        if (yield from self.session.try_write(put=put, guard=unchanged(values))):
            if (yield from self.session.scan(after=items[0].seq - 1, limit=1)).items == items[:1]:
                return begun
            yield from self.session.try_write(delete=list(put), guard=unchanged(begun))
        return None

    def _take_back(
        self, long_term: LongTermMemory, gone: Sequence[tuple[Item, Message]], before: dict[str, bytes]
    ) -> Flow[None]:
        """Remove from the long-term memory what did not leave for it; what others have moved there stays."""
        _, now = yield from self._look(())
        messages = [message for _, message in gone]
        deleted = have_been_deleted(before, now, [item.id for item, _ in gone])
        lost: set[str] = set()
        # An archive takes and deletes messages without a tally; a cleared session has lost its tally.
        if any(before.get(key) != now.get(key) for key in (GENERATION, ARCHIVED)):
            ids = {item.id for item, _ in gone}
            here = {item.id for item, _ in (yield from self._look(ids))[0]}
            _, now = yield from self._look(())  # later: messages that left since the last read have departed
            departed = have_departed(now, messages)
            lost = {item.id for n, (item, _) in enumerate(gone) if not departed[n]} - here
        taken = [message for n, (item, message) in enumerate(gone) if deleted[n] or item.id in lost]
        ids, ttl = {message.id for message in taken}, self.session.linked_ttl()
        yield from long_term.forget_flow(self.scope.session, ids, said=taken, ttl=ttl)

    def leave(
        self,
        gone: Sequence[tuple[Item, Message]],
        values: dict[str, bytes],
        *,
        put: dict[str, bytes] | None = None,
        delete: Sequence[str] = (),
        remove: bool = True,
    ) -> Flow[bool]:
        """Remove these from the log and put values in their place, all or nothing; False: other writers were first.

        Args:
            gone: The entries that leave.
            values: The values read together with them, including WATCHED.
            put: Values that take their place.
            delete: Values that are deleted with them.
            remove: False if the entries stay in the log.
        """
        items = [item for item, _ in gone]
        begun = yield from self.begun(items, values)
        if begun is None:
            return False
        put = {**(put or {}), **(with_departed(values, (message for _, message in gone)) if remove else {})}
        removed = items if remove else []
        return (yield from self.session.try_write(put=put, delete=delete, remove=removed, guard=unchanged(begun)))


def unchanged(values: dict[str, bytes]) -> dict[str, bytes | None]:
    """The guard of a write that must fail if others have changed one of these values since."""
    return {key: values.get(key) for key in WATCHED}


def readable(items: Iterable[Item]) -> list[tuple[Item, Message]]:
    """Log entries with their messages; entries that are damaged beyond reading are skipped, with a warning."""
    found = ((item, salvage(item.data, f"log entry {item.seq}")) for item in items)
    return [(item, message) for item, message in found if message is not None]


def entry_id(id_: str) -> str:
    """The id by which the store knows a message: its own, if every store can hold that, else a fingerprint."""
    return id_ if len(id_) <= _LONGEST_ID and id_.isprintable() else fingerprint(id_)
