"""Check a store: whether it answers, what it holds, and what is wrong with it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from langmem_adapters.codec import decode, is_newer
from langmem_adapters.errors import Conflict, SearchError, SerializationError, StoreError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.inspection import Finding, Health, KindStats, StoreStats, bare, health_of
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Message
from langmem_adapters.protocols import Index, Store
from langmem_adapters.records.paging import pages
from langmem_adapters.validation import check_store

__all__ = ["Checkup"]

_READABLE = ("brain", "longterm", "working", "experience")
_MINUTE = 60.0  # lifetime of the trial's namespace, in case it is interrupted


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
        self._store: Any = bare(store)
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
            old = kinds.get(kind, KindStats())
            total = self._store.scan(namespace, limit=0).total
            kinds[kind] = KindStats(old.namespaces + 1, old.expiring, old.entries + total)
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
        found = [Finding("ok", "connection", f"{health.address} answers in {1000 * health.seconds:.1f} ms")]
        for look in (self._rights, self._own, self._expiry, self._rows, self._follows):
            found += yield from step(_told, look)
        return found

    def _rights(self) -> Iterator[Finding]:
        """Try everything that the library does, in a temporary namespace."""
        store, place = self._store, ("checkup", self._new_id())
        store.append(place, [("a", b"1"), ("b", b"2")], ttl=_MINUTE)
        items = store.scan(place, keys=["k"]).items
        store.write(place, put={"k": b"v"}, remove=items[:1], guard={"k": None}, ttl=_MINUTE)
        with suppress(Conflict):
            store.write(place, put={"k": b"w"}, guard={"k": None}, ttl=_MINUTE)
        store.write(place, delete=["k"])  # without an expiry, for a moment
        store.append(place, [("b", b"2")], ttl=_MINUTE)
        store.scan(place, reverse=True)
        store.get(place)
        store.recent(place[:1], limit=1)
        next(iter(store.namespaces(place)), None)
        store.clear(place)
        yield Finding("ok", "rights", "reading, writing, listing and removing are allowed")

    def _own(self) -> Iterator[Finding]:
        if hasattr(self._store, "examine"):
            yield from self._store.examine()

    def _expiry(self) -> Iterator[Finding]:
        if self._ttl is None:
            return
        sessions = self.stats().kinds.get("brain", KindStats())
        for_ever = sessions.namespaces - sessions.expiring
        if for_ever:
            said = f"{for_ever:,} of {sessions.namespaces:,} sessions have no expiry, though a ttl is set"
            remedy = "give ttl= where they are written, as only Settings reads LANGMEM_TTL; prune the old ones"
            yield Finding("problem", "expiry", said, remedy)
        else:
            yield Finding("ok", "expiry", f"all {sessions.namespaces:,} sessions expire")

    def _rows(self) -> Iterator[Finding]:
        """Read every entry. Entries sealed by a codec cannot be judged without it."""
        counted: Counter[str] = Counter()
        first = ""
        for kind in _READABLE:
            for namespace in self._store.namespaces((kind,)):
                for data in self._entries(namespace):
                    flaw = _flaw(namespace, data)
                    counted[flaw] += 1
                    if flaw == "damaged" and not first:
                        first = f", the first in {'/'.join(namespace)}"
        if counted["damaged"]:
            said = f"{counted['damaged']:,} of {counted.total():,} entries cannot be read{first}"
            yield Finding(
                "problem", "entries", said, "reads leave them out; restore them from a backup, if you have one"
            )
        elif counted["newer"]:
            said = f"{counted['newer']:,} of {counted.total():,} entries were written by a newer version"
            yield Finding("problem", "entries", said, "upgrade langmem_adapters here; until then, they are not read")
        elif counted["sealed"] and counted[""]:
            said = f"{counted['sealed']:,} of {counted.total():,} entries are encrypted or damaged"
            yield Finding("note", "entries", said, "nothing, if a codec was added later; otherwise they are damaged")
        else:
            sealed = ", all encrypted" if counted["sealed"] else ""
            yield Finding("ok", "entries", f"{counted.total():,} were checked{sealed}")

    def _entries(self, namespace: Namespace) -> Iterator[bytes]:
        for items in pages(self._store, namespace):
            kept = self._store.get(namespace, [item.id for item in items if not item.data])  # as experiences are
            yield from (kept.get(item.id, item.data) for item in items)

    def _follows(self) -> Iterator[Finding]:
        """Count the entries that the index has yet to read."""
        if self._index is None:
            return
        behind: list[int] = []
        for namespace in self._store.namespaces(("longterm",)):
            seq = (self._index.position(namespace) or (0, ""))[0]
            behind.append(sum(map(len, pages(self._store, namespace, after=seq))))
        if any(behind):
            said = f"it is {sum(behind):,} entries behind the store, in {sum(map(bool, behind)):,} memories"
            yield Finding("note", "index", said, "nothing: it catches up by itself at the next search in each of them")
        else:
            yield Finding("ok", "index", "it is up to date")


def _told(look: Callable[[], Iterator[Finding]]) -> Sequence[Finding]:
    """The findings of a check; a failure of the check is a finding, too."""
    found: list[Finding] = []
    try:
        found.extend(look())
    except (StoreError, SearchError) as error:
        found.append(Finding("problem", look.__name__.strip("_"), str(error)))
    return found


def _flaw(namespace: Namespace, data: bytes) -> str:
    """What is wrong with an entry, if anything. Entries sealed by a codec do not begin as JSON does."""
    if not data and namespace[0] == "experience":
        return ""  # it was removed; its entry goes when somebody comes across it
    if data[:1] not in b'{["':
        return "sealed"
    if is_newer(data):
        return "newer"
    try:
        if namespace[0] == "brain":
            Message.from_bytes(data)
        else:
            decode(data)
    except SerializationError:
        return "damaged"
    return ""
