"""The flows of one session: what a conversation's operations ask of its store, once for sync and async."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langmem_adapters import text
from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError
from langmem_adapters.expiry import Expiring, Refresh
from langmem_adapters.flow import Flow
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.longterm import RECALLED, LongTermMemory, longterm_namespace
from langmem_adapters.model import Message, Recalled, Scope, Summary, salvage
from langmem_adapters.protocols import Item, Page, Store
from langmem_adapters.tokens import TokenCounter

__all__ = [
    "CREATED",
    "KNOWLEDGE",
    "SUMMARY",
    "TITLE",
    "Context",
    "Conversation",
    "Uncovered",
    "brain_namespace",
    "entry_id",
]

TITLE, SUMMARY, CREATED, KNOWLEDGE = "title", "summary", "created", "knowledge/"
_log = logging.getLogger("langmem_adapters")
_PAGE = 64
_LONGEST_ID = 200


def brain_namespace(scope: Scope) -> Namespace:
    """Where a session is kept in a store."""
    return ("brain", scope.tenant, scope.user, scope.session)


class Context(NamedTuple):
    """What a model is shown of a conversation."""

    summary: Summary | None
    messages: list[Message]


class Uncovered(NamedTuple):
    """The messages that a summary does not stand for yet, oldest first; the summary; the values it was read with."""

    readable: list[tuple[Item, Message]]
    summary: Summary
    values: dict[str, bytes]


class Conversation:
    """The log and the values of one session. :class:`~langmem_adapters.brain.BrainMemory` is its public face."""

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
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self.store = store
        self.scope = scope
        self.memory_k = memory_k
        self.long_term = long_term
        self._overflows = overflows
        self.namespace = brain_namespace(scope)
        own = long_term is not None and long_term.scope == scope and not scope.user
        along = longterm_namespace(scope) if own else None
        self._session = Expiring(store, self.namespace, ttl=ttl, refresh=refresh, clock=clock, along=along)
        self._clock = clock
        self._new_id = new_id

    def clear(self) -> Flow[None]:
        """Forget the session."""
        yield from self._session.clear()

    def add(self, messages: Sequence[Message]) -> Flow[None]:
        """Append messages; what was only recalled into a prompt is not added."""
        messages = [message for message in messages if not message.metadata.get(RECALLED)]
        if not messages:
            return
        entries = [self._entry(message) for message in messages]
        appended = yield from self._session.append(entries)
        total = appended.total
        if not all(appended.new):
            total += yield from self._add_replayed(messages, entries, appended.new)
        if self._overflows and self.long_term is not None and total > self.memory_k:
            yield from self._overflow(self.long_term, total - self.memory_k)

    def _entry(self, message: Message) -> tuple[str, bytes]:
        stamped = message.model_copy(
            update={
                "id": message.id or self._new_id(),
                "created_at": self._clock() if message.created_at is None else message.created_at,
            }
        )
        return entry_id(stamped.id), stamped.to_bytes()

    def _add_replayed(
        self, messages: Sequence[Message], entries: list[tuple[str, bytes]], new: list[bool]
    ) -> Flow[int]:
        """Add, under ids of their own, those that the store took for repeated but that say something new.

        A delivery that is repeated brings only what is stored, or that first and then the rest. A known id
        behind a new message, or with other content, comes from a cache that replays ids.
        """
        first_new = new.index(True) if any(new) else len(new)
        known = yield from self._stored({entries[n][0] for n in range(first_new)})
        others = []
        for n, (id_, _) in enumerate(entries):
            if n > first_new and not new[n]:
                others.append(messages[n].model_copy(update={"id": ""}))
            elif not new[n] and not _same(known.get(id_), messages[n]):
                others.append(messages[n].model_copy(update={"id": _other_id(messages[n])}))
        if not others:
            return 0
        again = [self._entry(message) for message in others]
        return sum((yield from self._session.append(again)).new)

    def _stored(self, ids: set[str]) -> Flow[dict[str, Message]]:
        found: dict[str, Message] = {}
        before: int | None = None
        while ids - found.keys():
            page = yield from self.scan(limit=_PAGE, reverse=True, before=before)
            if not page.items:
                break
            found.update((item.id, message) for item in page.items if item.id in ids for message in _read([item]))
            before = page.items[-1].seq
        return found

    def _overflow(self, long_term: LongTermMemory, least: int) -> Flow[None]:
        """Move the oldest messages to the long-term memory: first they are there, only then they leave here."""
        for limit in (least + _PAGE, None):
            page = yield from self.scan(limit=limit, keys=[CREATED])
            least = page.total - self.memory_k  # of this look: another writer may have moved some by now
            readable = [(item, message) for item in page.items for message in _read([item])]
            places = text.leaving([message for _, message in readable], least) if least > 0 else []
            if len(places) >= least:
                break
        if not places:
            return
        gone = [readable[n] for n in places]
        yield from long_term.add_flow([message for _, message in gone], session=self.scope.session)
        created = {} if CREATED in page.values else {CREATED: encode(readable[0][1].created_at)}
        removed = [item for item, _ in gone]
        yield from self._session.write(put=created, remove=removed)

    def scan(self, **bounds: Any) -> Flow[Page]:
        """Read the log; ``bounds`` as in :meth:`Store.scan`."""
        return (yield from self._session.scan(**bounds))

    def messages(self, limit: int | None) -> Flow[list[Message]]:
        """All messages, or the newest ``limit``; oldest first."""
        if limit is None:
            return _read((yield from self.scan()).items)
        if limit <= 0:
            return []
        return _read((yield from self.scan(limit=limit, reverse=True)).items[::-1])

    def context(self, k: int, max_tokens: int | None, counter: TokenCounter) -> Flow[Context]:
        """The summary, and the newest messages that it does not stand for, as a model may be shown them."""
        if k < 1:
            raise ConfigurationError(f"a window holds at least 1 message, not {k}")
        if max_tokens is not None and max_tokens < 1:
            raise ConfigurationError(f"a window has at least 1 token, not {max_tokens}")
        summary, newest = yield from self._newest(k)
        return Context(summary, text.window(newest, k, max_tokens=max_tokens, counter=counter))

    def _newest(self, k: int) -> Flow[tuple[Summary | None, list[Message]]]:
        """The summary, the newest ``k`` messages behind it, and those before them back to one of the user's."""
        page = yield from self.scan(limit=k, reverse=True, keys=[SUMMARY])
        summary = read_summary(page.values.get(SUMMARY))
        newest: list[Message] = []
        covered = False
        while page.items:
            for item in page.items:
                covered = covered or (summary is not None and item.id == summary.covers)
                if covered and text.stands_alone(newest[::-1]):
                    return summary, newest[::-1]
                newest += [m for m in _read([item]) if not covered or m.role == "user"]
            if not covered and any(message.role == "user" for message in newest):
                break
            page = yield from self.scan(limit=_PAGE, reverse=True, before=page.items[-1].seq)
        return summary, newest[::-1]

    def uncovered(self) -> Flow[Uncovered]:
        """What the summary does not stand for yet."""
        page = yield from self.scan(limit=_PAGE, reverse=True, keys=[SUMMARY, CREATED])
        values = page.values
        summary = read_summary(values.get(SUMMARY)) or Summary(text="")
        found: list[Item] = []
        while page.items:
            ids = [item.id for item in page.items]
            if summary.covers in ids:
                found += page.items[: ids.index(summary.covers)]
                break
            found += page.items
            page = yield from self.scan(limit=_PAGE, reverse=True, before=page.items[-1].seq)
        readable = [(item, message) for item in reversed(found) for message in _read([item])]
        return Uncovered(readable, summary, values)

    def is_still(self, covered: Uncovered, last: int) -> Flow[bool]:
        """Whether the summary is the same, and this message is in the log."""
        item = covered.readable[last][0]
        page = yield from self.scan(after=item.seq - 1, limit=1, keys=[SUMMARY])
        return page.items[:1] == [item] and page.values.get(SUMMARY) == covered.values.get(SUMMARY)

    def summarized(self, covered: Uncovered, leaving: Sequence[int], summary: str, *, remove: bool) -> Flow[bool]:
        """Store a summary of these messages and let them leave, at once; False, if there is another one by now."""
        gone = [covered.readable[n] for n in leaving]
        new = Summary(text=summary, covers=gone[-1][0].id, updated_at=self._clock())
        created = {} if CREATED in covered.values else {CREATED: encode(gone[0][1].created_at)}
        try:
            yield from self._session.write(
                put={SUMMARY: new.to_bytes(), **created},
                remove=[item for item, _ in gone] if remove else [],
                guard={SUMMARY: covered.values.get(SUMMARY)},
            )
        except Conflict:
            return False
        return True

    def exists(self, wanted: str) -> Flow[bool]:
        """Whether a message says exactly this."""
        before: int | None = None
        while True:
            page = yield from self.scan(limit=_PAGE, reverse=True, before=before)
            if any(message.text == wanted for message in _read(page.items)):
                return True
            if not page.items:
                return False
            before = page.items[-1].seq

    def history_text(self) -> Flow[str]:
        """The summary and the history as text."""
        page = yield from self.scan(keys=[SUMMARY])
        history = text.as_text(_read(page.items))
        summary = read_summary(page.values.get(SUMMARY))
        return f"{summary.text}\n{history}" if summary else history

    def put(self, values: dict[str, bytes]) -> Flow[None]:
        """Set values of the session."""
        yield from self._session.write(put=values)

    def add_knowledge(self, messages: Sequence[Message | str]) -> Flow[None]:
        """Keep facts, in their order."""
        if isinstance(messages, str):
            raise ConfigurationError("add_knowledge takes a list of facts, not one text")
        facts = [Message(role="system", content=m) if isinstance(m, str) else m for m in messages]
        entries = [self._entry(fact)[1] for fact in facts]
        while entries:
            values = yield from self._session.get(None)
            first = 1 + max((int(key[len(KNOWLEDGE) :]) for key in values if key.startswith(KNOWLEDGE)), default=0)
            put = {f"{KNOWLEDGE}{first + n:08}": data for n, data in enumerate(entries)}
            try:
                yield from self._session.write(put=put, guard=dict.fromkeys(put))
            except Conflict:
                continue  # another writer took these places
            return

    def get_knowledge(self) -> Flow[list[Message]]:
        """The facts, oldest first."""
        values = yield from self._session.get(None)
        facts = [salvage(values[key], key) for key in sorted(values) if key.startswith(KNOWLEDGE)]
        return [fact for fact in facts if fact is not None]

    def set_summary(self, summary: str) -> Flow[None]:
        """Replace the summary; the new one stands for the same messages. An empty one stands for none."""
        while True:
            values = yield from self._session.get([SUMMARY])
            old = read_summary(values.get(SUMMARY))
            covers = old.covers if old and summary else ""
            new = Summary(text=summary, covers=covers, updated_at=self._clock())
            try:
                yield from self._session.write(put={SUMMARY: new.to_bytes()}, guard={SUMMARY: values.get(SUMMARY)})
            except Conflict:
                continue  # it was replaced in this moment
            return

    def set_title(self, title: str) -> Flow[None]:
        """Replace the title."""
        yield from self.put({TITLE: encode(title)})

    def get_summary(self) -> Flow[Summary | None]:
        """The summary, if there is one."""
        values = yield from self._session.get([SUMMARY])
        return read_summary(values.get(SUMMARY))

    def get_title(self) -> Flow[str]:
        """The title; empty, if there is none."""
        values = yield from self._session.get([TITLE])
        return str(decode(values[TITLE])) if values else ""

    def recall(self, query: str, k: int | None) -> Flow[list[Recalled]]:
        """Search the long-term memory for what the window does not show."""
        if self.long_term is None:
            raise ConfigurationError("this BrainMemory has no long-term memory: give it long_term=")
        _, shown = yield from self._newest(self.memory_k)
        return (yield from self.long_term.search_flow(query, k, shown=shown))


def read_summary(data: bytes | None) -> Summary | None:
    """A stored summary; None, with a warning, where it is damaged: its messages are then shown as before."""
    if data is None:
        return None
    try:
        return Summary.from_bytes(data)
    except SerializationError as damage:
        _log.warning("a stored summary is left out: %s", damage)
        return None


def _read(items: Sequence[Item]) -> list[Message]:
    """The messages of log entries; one that is damaged beyond reading is passed over, with a warning."""
    found = (salvage(item.data, f"log entry {item.seq}") for item in items)
    return [message for message in found if message is not None]


def entry_id(id_: str) -> str:
    """The id by which the store knows a message: the message's own, where every store can hold it."""
    return id_ if len(id_) <= _LONGEST_ID and id_.isprintable() else fingerprint(id_)


def _other_id(message: Message) -> str:
    """An id for a message whose own is taken by other content; the same one when it is delivered again."""
    return fingerprint(message.model_copy(update={"created_at": None}).to_data())


def _same(stored: Message | None, message: Message) -> bool:
    unstamped = {"id": "", "created_at": None}
    return stored is not None and stored.model_copy(update=unstamped) == message.model_copy(update=unstamped)
