"""Check a store: whether it answers, what it holds, and what is wrong with it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from langmem_adapters.codec import decode, is_newer
from langmem_adapters.conversation.export_lines import check_value
from langmem_adapters.conversation.log import ARCHIVE
from langmem_adapters.conversation.session import KNOWLEDGE, TITLE
from langmem_adapters.conversation.stored_summary import SUMMARY
from langmem_adapters.errors import Conflict, LangmemError, SerializationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.inspection import Finding, Health, KindStats, StoreStats, health_of, unwrap
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Experience, Memory, Message
from langmem_adapters.protocols import Index, Item, Store
from langmem_adapters.records.following import own_index_errors
from langmem_adapters.records.journal import keys_of
from langmem_adapters.records.paging import FIRST_PAGE_SIZE, pages, side_by_side, values_of
from langmem_adapters.validation import check_index, check_seconds, check_store, check_sync_functions
from langmem_adapters.working_items import parse_item

_Reader: TypeAlias = Callable[[bytes], object]
_ENTRY_READERS: dict[str, _Reader] = {
    "brain": Message.from_bytes,
    "longterm": decode,
    "working": parse_item,
    "langgraph": decode,
}
_RECORD_READERS: dict[str, _Reader] = {
    "longterm": Memory.from_bytes,
    "experience": Experience.from_bytes,
    "langgraph": decode,
}
_TRIAL_TTL_SECONDS = 60.0  # lifetime of the trial's namespace, in case it is interrupted


class Checkup:
    """Checks one store.

    Args:
        store: The store.
        index: The index that follows it, if any.
        ttl: Seconds after which its sessions should expire; None: they should not.
        new_id: Names the namespace of an examination's trial.

    >>> from langmem_adapters import open_store
    >>> checkup = Checkup(open_store("memory:"))
    >>> checkup.health().ok
    True
    >>> {finding.level for finding in checkup.examine()}
    {'ok'}
    """

    def __init__(
        self,
        store: Store,
        *,
        index: Index | None = None,
        ttl: float | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        check_store(store)
        if index is not None:
            check_index("index", index)
        check_seconds("ttl", ttl)
        check_sync_functions(new_id=new_id)
        self._store: Any = unwrap(store)
        self._index = index
        self._ttl = ttl
        self._new_id = new_id

    def health(self) -> Health:
        """Whether the store answers; an outage is an answer, not an error. Redis is sent only PING."""
        if hasattr(self._store, "health"):
            health: Health = self._store.health()
            return health
        return health_of(repr(self._store), lambda: self._store.get(("health",), ["asked"]))

    async def ahealth(self) -> Health:
        """:meth:`health`, without blocking the event loop."""
        return await arun(step(self.health))

    def stats(self) -> StoreStats:
        """What the store holds, counted page by page."""
        if hasattr(self._store, "stats"):
            stats: StoreStats = self._store.stats()
            return stats
        kinds: dict[str, KindStats] = {}
        for namespace in self._store.namespaces():
            kind = "".join(namespace[:1])
            namespaces, expiring, entries = kinds.get(kind, KindStats())
            total = self._store.scan(namespace, limit=0).total
            kinds[kind] = KindStats(namespaces + 1, expiring, entries + total)
        return StoreStats(repr(self._store), dict(sorted(kinds.items())))

    async def astats(self) -> StoreStats:
        """:meth:`stats`, without blocking the event loop."""
        return await arun(step(self.stats))

    def examine(self) -> list[Finding]:
        """Look for faults, and say what to do. Reads everything, and writes one temporary namespace."""
        return run(self._examine())

    async def aexamine(self) -> list[Finding]:
        """:meth:`examine`, without blocking the event loop."""
        return await arun(self._examine())

    def _examine(self) -> Flow[list[Finding]]:
        health = yield from step(self.health)
        if not health.ok:
            return [Finding("problem", "connection", health.problem)]
        findings = [Finding("ok", "connection", f"{health.address} answers in {1000 * health.seconds:.1f} ms")]
        checks = {
            "rights": self._check_rights,
            "own": getattr(self._store, "examine", lambda: iter(())),
            "expiry": self._check_expiry,
            "rows": self._check_entries,
            "follows": self._check_index,
        }
        for subject, check in checks.items():
            findings += yield from step(_collect_findings, subject, check)
        return findings

    def _check_rights(self) -> Iterator[Finding]:
        """Try everything that the library does, in a temporary namespace."""
        store, namespace = self._store, ("checkup", self._new_id())
        store.append(namespace, [("a", b"1"), ("b", b"2")], ttl=_TRIAL_TTL_SECONDS)
        items = store.scan(namespace, keys=["k"]).items
        store.write(namespace, put={"k": b"v"}, remove=items[:1], guard={"k": None}, ttl=_TRIAL_TTL_SECONDS)
        with suppress(Conflict):
            store.write(namespace, put={"k": b"w"}, guard={"k": None}, ttl=_TRIAL_TTL_SECONDS)
        store.write(namespace, delete=["k"])  # without an expiry, for a moment
        store.append(namespace, [("b", b"2")], ttl=_TRIAL_TTL_SECONDS)
        store.scan(namespace, reverse=True)
        store.get(namespace)
        store.recent(namespace[:1], limit=1)
        next(iter(store.namespaces(namespace)), None)
        store.clear(namespace)
        yield Finding("ok", "rights", "reading, writing, listing and removing are allowed")

    def _check_expiry(self) -> Iterator[Finding]:
        if self._ttl is None or not hasattr(self._store, "stats"):  # otherwise nothing tells which sessions expire
            return
        sessions = self.stats().kinds.get("brain", KindStats())
        persistent = sessions.namespaces - sessions.expiring
        if persistent:
            message = f"{persistent:,} of {sessions.namespaces:,} sessions have no expiry, though a ttl is set"
            remedy = "give ttl= where they are written, as only Settings reads LANGMEM_TTL; prune the old ones"
            yield Finding("problem", "expiry", message, remedy)
        else:
            yield Finding("ok", "expiry", f"all {sessions.namespaces:,} sessions expire")

    def _check_entries(self) -> Iterator[Finding]:
        """Read every entry and value. What a codec has sealed cannot be judged without it."""
        flaw_counts: Counter[str] = Counter()
        first_damaged = ""
        for kind in _ENTRY_READERS | _RECORD_READERS:
            for namespace, begun in side_by_side(self._store, self._begin, self._store.namespaces((kind,))):
                for read, data in self._contents(namespace, *begun):
                    flaw = _flaw(read, data)
                    flaw_counts[flaw] += 1
                    if flaw == "damaged" and not first_damaged:
                        first_damaged = f", the first in {'/'.join(namespace)}"
        if flaw_counts["damaged"]:
            message = f"{flaw_counts['damaged']:,} of {flaw_counts.total():,} entries cannot be read{first_damaged}"
            remedy = "reads leave them out; restore them from a backup, if you have one"
            yield Finding("problem", "entries", message, remedy)
        elif flaw_counts["newer"]:
            message = f"{flaw_counts['newer']:,} of {flaw_counts.total():,} entries were written by a newer version"
            yield Finding("problem", "entries", message, "upgrade langmem_adapters here; until then, they are not read")
        elif flaw_counts["sealed"] and flaw_counts[""]:
            message = f"{flaw_counts['sealed']:,} of {flaw_counts.total():,} entries are encrypted or damaged"
            yield Finding("note", "entries", message, "nothing, if a codec was added later; otherwise they are damaged")
        else:
            sealed = ", all encrypted" if flaw_counts["sealed"] else ""
            yield Finding("ok", "entries", f"{flaw_counts.total():,} were checked{sealed}")

    def _begin(self, namespace: Namespace) -> Flow[tuple[tuple[list[Item], dict[str, bytes]], int]]:
        """Read the first page of a namespace's log, and a session's values; also returns how many bytes that are."""
        items = (yield from step(self._store.scan, namespace, limit=FIRST_PAGE_SIZE)).items
        values = (yield from step(self._store.get, namespace)) if namespace[0] == "brain" else {}
        return (items, values), sum(len(item.data) for item in items) + sum(map(len, values.values()))

    def _contents(
        self, namespace: Namespace, items: list[Item], values: dict[str, bytes]
    ) -> Iterator[tuple[_Reader, bytes]]:
        """What readers of a namespace come across, each with what reads it."""
        kind = namespace[0]
        if kind in _ENTRY_READERS:
            for page in pages(self._store, namespace, items=items):
                yield from ((_ENTRY_READERS[kind], item.data) for item in page)
        if kind in _RECORD_READERS:
            records = values_of(self._store, namespace, _keys_named, items=items)
            yield from ((_RECORD_READERS[kind], data) for _, data in records)
        if kind == "brain":
            contents = (key for key in values if key in {SUMMARY, TITLE} or key.startswith((ARCHIVE, KNOWLEDGE)))
            yield from ((partial(check_value, key), values[key]) for key in contents)

    def _check_index(self) -> Iterator[Finding]:
        """Count the entries that the index has yet to read; not sealed ones of a memory that only another can read."""
        if self._index is None:
            return
        lags: list[int] = []
        for namespace in self._store.namespaces(("longterm",)):
            with own_index_errors(self._index):
                position = self._index.position(namespace)
            unread = chain.from_iterable(pages(self._store, namespace, after=position[0] if position else 0))
            lags.append(sum(bool(position) or _flaw(decode, item.data) != "sealed" for item in unread))
        if any(lags):
            message = f"it is {sum(lags):,} entries behind the store, in {sum(map(bool, lags)):,} memories"
            remedy = "nothing: it catches up by itself at the next search in each of them"
            yield Finding("note", "index", message, remedy)
        else:
            yield Finding("ok", "index", "it is up to date")


def _collect_findings(subject: str, check: Callable[[], Iterator[Finding]]) -> Sequence[Finding]:
    """The findings of a check; a failure of the check is a finding, too."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except LangmemError as error:
        findings.append(Finding("problem", subject, str(error)))
    return findings


def _keys_named(items: Sequence[Item]) -> list[str]:
    """The keys of the records that entries name; an entry without data is that of an experience, which has its key."""
    readable_items = [item for item in items if item.data and not _flaw(decode, item.data)]
    return [*(item.id for item in items if not item.data), *keys_of(readable_items)]


def _flaw(read: _Reader, data: bytes) -> str:
    """What is wrong with stored bytes, if anything. What a codec has sealed does not begin as JSON does."""
    if data[:1] not in b'{["':
        return "sealed"
    if is_newer(data):
        return "newer"
    try:
        read(data)
    except (SerializationError, ValueError):
        return "damaged"
    return ""
