"""What goes into a session's log, once for each message, and what leaves it again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from langmem_adapters import text
from langmem_adapters.codec import encode
from langmem_adapters.covers import SUMMARY, covers, moved_back, read_summary
from langmem_adapters.deliveries import Delivery
from langmem_adapters.departed import (
    DELETED,
    DEPARTED,
    have_been_deleted,
    have_departed,
    with_deleted,
    with_departed,
)
from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError
from langmem_adapters.expiry import Expiring, Refresh
from langmem_adapters.flow import Flow
from langmem_adapters.given import check_store, checked_messages
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.longterm import RECALLED, LongTermMemory, longterm_namespace
from langmem_adapters.model import Message, MessageData, Scope, salvage
from langmem_adapters.protocols import Appended, Item, Page, Store

__all__ = [
    "ARCHIVE",
    "ARCHIVED",
    "CREATED",
    "MOVES",
    "PAGE",
    "WATCHED",
    "SessionLog",
    "brain_namespace",
    "entry_id",
    "readable",
]

CREATED = "created"
"""The value that says when a session began, once its first message has left."""
ARCHIVED = "archived"
"""The value that changes as messages move to LlamaIndex's archive."""
ARCHIVE = f"{ARCHIVED}/"
"""How the keys of the values begin that the archive is made of."""
MOVES = (ARCHIVED, DEPARTED)
"""Whatever takes messages away changes one of these values, and is guarded by both."""
WATCHED = (CREATED, DELETED, *MOVES)
"""What whoever lets messages leave has to read with them, to learn what became of them meanwhile."""
PAGE = 64
_LONGEST_ID = 200
_log = logging.getLogger("langmem_adapters")
_Entry: TypeAlias = "tuple[str, bytes]"


def brain_namespace(scope: Scope) -> Namespace:
    """Where a session is kept in a store."""
    return ("brain", scope.tenant, scope.user, scope.session)


class SessionLog:
    """The messages of one session, in its store.

    Args:
        store, scope: Where they are, and whose.
        memory_k: How many stay, where the rest goes to the long-term memory.
        long_term: Takes what leaves.
        overflows: Whether messages beyond ``memory_k`` leave for the long-term memory as soon as there are some.
        removes: Whether anything ever leaves.
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
        self.namespace = brain_namespace(scope)
        own = long_term is not None and long_term.scope == scope and not scope.user
        along = longterm_namespace(scope) if own else None
        self.session = Expiring(store, self.namespace, ttl=ttl, refresh=refresh, clock=clock, along=along)
        self._redacted: Callable[[bytes], bytes] | None = getattr(store, "redacted", None)
        self._clock = clock
        self._new_id = new_id

    def clear(self, long_term: bool | None) -> Flow[None]:
        """Forget the session; and what of it is in the long-term memory, by default where that is the session's own."""
        yield from self.session.clear()
        if self.long_term is None or long_term is False:
            return
        if not self.long_term.scope.user:
            yield from self.long_term.clear_flow()
        elif long_term:
            yield from self.long_term.forget_flow(self.scope.session, None)

    def delete(self, message_ids: set[str]) -> Flow[int]:
        """Remove messages here and in the long-term memory; gives how many there were."""
        while True:
            page = yield from self.scan(limit=1, keys=[SUMMARY, *WATCHED])
            ids = {entry_id(id_) for id_ in message_ids}
            gone = yield from self._stored(ids)
            first = next((message.created_at for _, message in readable(page.items)), None)
            moved = self.long_term is not None and (gone or CREATED in page.values)  # or may be on the way there
            put = with_deleted(page.values, ids) if moved else {}
            put |= yield from self._with_cover(page.values, gone)
            if not (gone or put):
                break
            if (yield from self.leave(gone, page.values, put=put, began=first, unless=[SUMMARY])):
                break
        if self.long_term is None:
            return len(gone)
        # Where nothing has left yet, nothing else can have been moved under these ids.
        here = len(gone) == len(ids) and CREATED not in page.values
        said = [message for _, message in gone] if here else None
        return len(gone) + (yield from self.long_term.forget_flow(self.scope.session, message_ids, said=said))

    def _with_cover(self, values: dict[str, bytes], gone: Sequence[tuple[Item, Message]]) -> Flow[dict[str, bytes]]:
        """The summary to be written as these are deleted: it ends at a message that stays, if that was one of them."""
        summary = read_summary(values.get(SUMMARY))
        last = next((item for item, _ in gone if summary and item.id == summary.covers), None)
        if summary is None or last is None:
            return {}
        before = yield from self.scan(limit=len(gone), reverse=True, before=last.seq)
        return moved_back(summary, {item.id for item, _ in gone}, (item.id for item in before.items))

    def add(self, messages: Sequence[Message | MessageData]) -> Flow[None]:
        """Append messages; what was only recalled into a prompt is not added."""
        messages = [message for message in checked_messages(messages) if not message.metadata.get(RECALLED)]
        if not messages:
            return
        if self._redacted is not None:  # else a message would not be known again by what is kept of it
            messages = [Message.from_bytes(self._redacted(message.to_bytes())) for message in messages]
        entries = [self._entry(message) for message in messages]
        appended = yield from self.session.append(entries, keys=self._moves)
        total = appended.total
        if not all(appended.new) or appended.values:
            whole = [message if isinstance(message, Message) else message.message() for message in messages]
            total += yield from self._sort_out(whole, entries, appended)
        if self._overflows and self.long_term is not None and total > self.memory_k:
            yield from self._overflow(self.long_term, total - self.memory_k)

    def _entry(self, message: Message | MessageData) -> _Entry:
        id_ = message.id or self._new_id()
        created_at = self._clock() if message.created_at is None else message.created_at
        return entry_id(id_), message.to_bytes(id=id_, created_at=created_at)

    def _sort_out(self, messages: Sequence[Message], entries: Sequence[_Entry], appended: Appended) -> Flow[int]:
        """Tell repeated deliveries from what says something new; gives how many were added beside."""
        departed = have_departed(appended.values, messages)
        delivery = Delivery(messages, [id_ for id_, _ in entries], appended.new, departed)
        unclear = delivery.unclear
        stored = yield from self._stored(unclear)
        items = {item.id: item for item, _ in stored}
        known = {item.id: message for item, message in stored}
        missing = len(known) < len(unclear)  # they have left since they were appended
        left = have_departed((yield from self.session.get(self._moves)) if missing else {}, messages)
        others = delivery.others(known, left)
        own = dict(reversed(entries))  # by now, another delivery may have something else under an id that left
        if back := [items[id_] for id_ in delivery.returned(known) if items[id_].data == own[id_]]:
            yield from self.session.write(remove=back)
        if not others:
            return 0
        new = {n: self._entry(message) for n, message in others.items()}
        later = {n: entries[n] for n in delivery.later(others)}
        if later and (yield from self._in_order(new, later)):
            return len(new)
        again = yield from self.session.append([new[n] for n in sorted(new)])
        return sum(again.new)

    def _in_order(self, new: dict[int, _Entry], later: dict[int, _Entry]) -> Flow[bool]:
        """Append the new entries, by their places; the later ones, which are there, leave and come again behind them.

        False: some of these have left by now, and what has their ids is of another delivery.
        """
        own, keys = dict(later.values()), [SUMMARY, *WATCHED]
        entries = [entry for _, entry in sorted({**new, **later}.items())]
        while True:
            values = yield from self.session.get(keys)
            found = [each for each in (yield from self._stored(set(own))) if each[0].data == own[each[0].id]]
            items = [item for item, _ in found]
            if len(items) < len(own) or covers(read_summary(values.get(SUMMARY))) in own:
                return False
            put = with_departed(values, [message for _, message in found])  # so nobody removes them where they were
            guard = dict.fromkeys(keys) | values
            try:
                yield from self.session.write(put=put, remove=items, append=entries, guard=guard)
            except Conflict:
                continue
            return True

    def _stored(self, ids: set[str]) -> Flow[list[tuple[Item, Message]]]:
        found: list[tuple[Item, Message]] = []
        missing = set(ids)
        before: int | None = None
        while missing:
            page = yield from self.scan(limit=PAGE, reverse=True, before=before)
            if not page.items:
                break
            found += readable(item for item in page.items if item.id in ids)
            missing.difference_update(item.id for item in page.items)
            before = page.items[-1].seq
        return found

    def _overflow(self, long_term: LongTermMemory, least: int) -> Flow[None]:
        """Move the oldest messages to the long-term memory: first they are there, only then they leave here."""
        while True:
            for limit in (least + PAGE, None):
                page = yield from self.scan(limit=limit, keys=WATCHED)
                least = page.total - self.memory_k  # of this look: another writer may have moved some by now
                oldest = readable(page.items)
                places = text.leaving([message for _, message in oldest], least) if least > 0 else []
                if len(places) >= least:
                    break
            if not places:
                return
            if (yield from self.move(long_term, [oldest[n] for n in places], page.values)):
                return

    def move(
        self,
        long_term: LongTermMemory,
        gone: Sequence[tuple[Item, Message]],
        values: dict[str, bytes],
        *,
        put: dict[str, bytes] | None = None,
    ) -> Flow[bool]:
        """:meth:`leave` for the long-term memory: first they are there, only then they leave here.

        What was deleted, archived or cleared meanwhile does not stay there either.
        """
        begun = yield from self._begun(gone, values)
        if begun is None:
            return False
        said, ttl = [message for _, message in gone], self.session.ttl_along
        yield from long_term.add_flow(said, session=self.scope.session, ttl=ttl)
        left = yield from self.leave(gone, begun, put=put)
        if not left:
            yield from self._take_back(long_term, gone, begun)
        return left

    def _begun(self, gone: Sequence[tuple[Item, Message]], values: dict[str, bytes]) -> Flow[dict[str, bytes] | None]:
        """The values with CREATED, without which nobody sees that the session was cleared; None: it already was."""
        if CREATED in values:
            return values
        item, message = gone[0]
        created = {CREATED: encode(message.created_at)}
        guard = {key: values.get(key) for key in MOVES}
        try:
            yield from self.session.write(put=created, guard={**guard, CREATED: None})
            page = yield from self.scan(after=item.seq - 1, limit=1)
            if page.items[:1] == [item]:
                return {**values, **created}
            yield from self.session.write(delete=[CREATED], guard={**guard, **created})
        except Conflict:
            pass  # others were quicker
        return None

    def _take_back(
        self, long_term: LongTermMemory, gone: Sequence[tuple[Item, Message]], before: dict[str, bytes]
    ) -> Flow[None]:
        """Forget there what did not leave for there; what others have moved there is theirs, and stays."""
        now = (yield from self.scan(limit=0, keys=WATCHED)).values
        messages = [message for _, message in gone]
        deleted = have_been_deleted(before, now, [item.id for item, _ in gone])
        # An archive takes and deletes without a tally; a cleared session has lost its own.
        elsewhere = any(before.get(key) != now.get(key) for key in (CREATED, ARCHIVED))
        departed = have_departed(now, messages)
        lost = {item.id for n, (item, _) in enumerate(gone) if elsewhere and not departed[n]}
        if lost:
            lost -= {item.id for item, _ in (yield from self._stored(lost))}
        taken = [message for n, (item, message) in enumerate(gone) if deleted[n] or item.id in lost]
        if taken:
            yield from long_term.forget_flow(self.scope.session, {message.id for message in taken}, said=taken)

    def leave(
        self,
        gone: Sequence[tuple[Item, Message]],
        values: dict[str, bytes],
        *,
        put: dict[str, bytes] | None = None,
        began: float | None = None,
        unless: Sequence[str] = (),
    ) -> Flow[bool]:
        """Remove these from the log, and put values in their place, all or nothing; False: others were quicker.

        Args:
            gone: What leaves, oldest first.
            values: Those of the look that it was read with; WATCHED among them.
            put: Values that take its place. They must not have changed since then, either.
            began: When the session's first message was said; default: it is the first to leave.
            unless: Values that must not have changed either, though they stay.
        """
        put = put or {}
        guard = {key: values.get(key) for key in (CREATED, *MOVES, *put, *unless)}
        created = {} if CREATED in values else {CREATED: encode(began or gone[0][1].created_at)}
        departed = with_departed(values, (message for _, message in gone))
        try:
            removed = [item for item, _ in gone]
            yield from self.session.write(put={**put, **created, **departed}, remove=removed, guard=guard)
        except Conflict:
            return False
        return True

    def scan(self, **bounds: Any) -> Flow[Page]:
        """Read the log; ``bounds`` as in :meth:`Store.scan`."""
        return (yield from self.session.scan(**bounds))


def readable(items: Iterable[Item]) -> list[tuple[Item, Message]]:
    """Log entries and their messages; one that is damaged beyond reading is passed over, with a warning."""
    found = ((item, _read(item)) for item in items)
    return [(item, message) for item, message in found if message is not None]


def _read(item: Item) -> Message | None:
    try:
        return Message.from_bytes(item.data)
    except SerializationError:
        return salvage(item.data, f"log entry {item.seq}")


def entry_id(id_: str) -> str:
    """The id by which the store knows a message: the message's own, where every store can hold it."""
    return id_ if len(id_) <= _LONGEST_ID and id_.isprintable() else fingerprint(id_)
