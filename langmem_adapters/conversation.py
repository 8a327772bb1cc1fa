"""The flows of one session: what a conversation's operations ask of its store, once for sync and async."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langmem_adapters import text
from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, Conflict
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.longterm import RECALLED, LongTermMemory
from langmem_adapters.model import Message, Recalled, Scope, Summary, salvage
from langmem_adapters.protocols import Item, Page, Store

__all__ = ["CREATED", "KNOWLEDGE", "SUMMARY", "TITLE", "Conversation", "brain_namespace", "entry_id"]

TITLE, SUMMARY, CREATED, KNOWLEDGE = "title", "summary", "created", "knowledge/"
_PAGE = 64
_LONGEST_ID = 200


def brain_namespace(scope: Scope) -> Namespace:
    """Where a session is kept in a store."""
    return ("brain", scope.tenant, scope.user, scope.session)


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
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self.store = store
        self.scope = scope
        self.memory_k = memory_k
        self.long_term = long_term
        self.ttl = ttl
        self._namespace = brain_namespace(scope)
        self._clock = clock
        self._new_id = new_id

    def clear(self) -> Flow[None]:
        """Forget the session."""
        yield from step(self.store.clear, self._namespace)

    def add(self, messages: Sequence[Message]) -> Flow[None]:
        """Append messages; what was only recalled into a prompt is not added."""
        messages = [message for message in messages if not message.metadata.get(RECALLED)]
        if not messages:
            return
        entries = [self._entry(message) for message in messages]
        appended = yield from step(self.store.append, self._namespace, entries, ttl=self.ttl)
        total = appended.total
        if not all(appended.new):
            total += yield from self._add_replayed(messages, entries, appended.new)
        if self.long_term is not None and total > self.memory_k:
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
        return sum((yield from step(self.store.append, self._namespace, again, ttl=self.ttl)).new)

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
        yield from step(self.store.write, self._namespace, put=created, remove=removed, ttl=self.ttl)

    def scan(self, **bounds: Any) -> Flow[Page]:
        """Read the log; ``bounds`` as in :meth:`Store.scan`."""
        return (yield from step(self.store.scan, self._namespace, **bounds))

    def messages(self, limit: int | None) -> Flow[list[Message]]:
        """All messages, or the newest ``limit``; oldest first."""
        if limit is None:
            return _read((yield from self.scan()).items)
        if limit <= 0:
            return []
        return _read((yield from self.scan(limit=limit, reverse=True)).items[::-1])

    def window(self, k: int) -> Flow[list[Message]]:
        """The newest ``k`` messages as a model may be shown them."""
        if k < 1:
            raise ConfigurationError(f"a window holds at least 1 message, not {k}")
        return text.window((yield from self._newest(k)), k)

    def _newest(self, k: int) -> Flow[list[Message]]:
        """The newest ``k`` messages, and those before them back to one of the user's."""
        newest: list[Message] = []
        before: int | None = None
        while True:
            page = yield from self.scan(limit=max(k - len(newest), _PAGE if newest else 0), reverse=True, before=before)
            newest = _read(page.items[::-1]) + newest
            if not page.items or any(message.role == "user" for message in newest):
                return newest
            before = page.items[-1].seq

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
        if SUMMARY not in page.values:
            return history
        return f"{Summary.from_bytes(page.values[SUMMARY]).text}\n{history}"

    def put(self, values: dict[str, bytes]) -> Flow[None]:
        """Set values of the session."""
        yield from step(self.store.write, self._namespace, put=values, ttl=self.ttl)

    def _get(self, keys: list[str] | None) -> Flow[dict[str, bytes]]:
        return (yield from step(self.store.get, self._namespace, keys))

    def add_knowledge(self, messages: Sequence[Message | str]) -> Flow[None]:
        """Keep facts, in their order."""
        if isinstance(messages, str):
            raise ConfigurationError("add_knowledge takes a list of facts, not one text")
        facts = [Message(role="system", content=m) if isinstance(m, str) else m for m in messages]
        entries = [self._entry(fact)[1] for fact in facts]
        while entries:
            values = yield from self._get(None)
            first = 1 + max((int(key[len(KNOWLEDGE) :]) for key in values if key.startswith(KNOWLEDGE)), default=0)
            put = {f"{KNOWLEDGE}{first + n:08}": data for n, data in enumerate(entries)}
            try:
                guard = dict.fromkeys(put)
                yield from step(self.store.write, self._namespace, put=put, guard=guard, ttl=self.ttl)
            except Conflict:
                continue  # another writer took these places
            return

    def get_knowledge(self) -> Flow[list[Message]]:
        """The facts, oldest first."""
        values = yield from self._get(None)
        facts = [salvage(values[key], key) for key in sorted(values) if key.startswith(KNOWLEDGE)]
        return [fact for fact in facts if fact is not None]

    def set_summary(self, summary: str) -> Flow[None]:
        """Replace the summary."""
        yield from self.put({SUMMARY: Summary(text=summary, updated_at=self._clock()).to_bytes()})

    def set_title(self, title: str) -> Flow[None]:
        """Replace the title."""
        yield from self.put({TITLE: encode(title)})

    def get_summary(self) -> Flow[Summary | None]:
        """The summary, if there is one."""
        values = yield from self._get([SUMMARY])
        return Summary.from_bytes(values[SUMMARY]) if values else None

    def get_title(self) -> Flow[str]:
        """The title; empty, if there is none."""
        values = yield from self._get([TITLE])
        return str(decode(values[TITLE])) if values else ""

    def recall(self, query: str, k: int | None) -> Flow[list[Recalled]]:
        """Search the long-term memory for what the window does not show."""
        if self.long_term is None:
            raise ConfigurationError("this BrainMemory has no long-term memory: give it long_term=")
        shown = yield from self._newest(self.memory_k)
        return (yield from self.long_term.search_flow(query, k, shown=shown))


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
