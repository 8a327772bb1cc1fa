"""Remove conversations that nobody has written to for long."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

from langmem_adapters import validation
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.inspection import Dates, unwrap
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Experience
from langmem_adapters.protocols import Index, Listed, Store
from langmem_adapters.records.following import own_index_errors
from langmem_adapters.records.paging import values_of

_PAGE_SIZE = 500
# What may be removed, by kind and length of the name: sessions, their own long-term memories, working memories, and
# pools whose experiences have all expired: those go one by one with later writes, which no longer come.
_PRUNABLE_LENGTHS = {"brain": 4, "longterm": 4, "working": 5, "experience": 4}  # a session before its memory
_SESSION_KIND = "brain"
_POOL_KIND = "experience"
_MEMORY_KIND = "longterm"  # of a session or a user: the index's namespace has the same name


class Pruned(NamedTuple):
    """How many namespaces of each kind were removed, or would be: those of kind "brain" are sessions.

    Those of kind "experience" are pools in which everything had expired.
    Those of kind "indexed" had expired in the store, but an index still held something of them.
    """

    kinds: dict[str, int]
    dry_run: bool


class Pruning:
    """Removes sessions, their own long-term memories and working memories without a write for so many seconds.

    It also removes pools of experiences and caches in which everything has expired, as far as that can be read: an
    encrypted store needs its codec. Other pools stay, and so do users' long-term memories, and that of a session as
    long as the session is written to. A session that is written to at that moment stays whole (in a Redis Cluster: see
    ``docs/operate.md``). After an interrupt, another run continues.

    Args:
        store: A store whose namespaces have dates, as all of this library's stores do.
        older_than: Seconds since the last write.
        user, tenant: Only theirs; None: everybody's. "" means data written without a user, or a tenant.
        indexes: All that follow the store. They forget what was removed, and also long-term memories that have expired
            in the store, as far as an index can list what it holds.
        dry_run: Only count.
        clock: Gives Unix seconds.
        report: Is called after each page with its number of namespaces.

    Raises:
        ConfigurationError: ``older_than`` is not above 0, or the store has no dates.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> store = open_store("memory:")
    >>> BrainMemory(store, "monday", user="ada").add_talk("Good morning.")
    >>> Pruning(store, 30 * 86_400).run().kinds
    {}
    """

    def __init__(
        self,
        store: Store,
        older_than: float,
        *,
        user: str | None = None,
        tenant: str | None = None,
        indexes: Sequence[Index] = (),
        dry_run: bool = False,
        clock: Callable[[], float] = time.time,
        report: Callable[[int], object] | None = None,
    ) -> None:
        validation.check_store(store)
        validation.check_seconds("older_than", older_than, or_none=False)
        for name, owner in (("user", user), ("tenant", tenant)):
            if owner is not None:
                validation.check_text(name, owner)
        if isinstance(indexes, str) or not isinstance(indexes, Collection):
            raise ConfigurationError(f"indexes are a list, such as [open_index(url)], not one {type(indexes).__name__}")
        validation.check_sync_functions(clock=clock)
        validation.check_sync_function("report", report)
        self._readable = store
        self._store: Any = unwrap(store)
        if not (hasattr(self._store, "dates") and hasattr(self._store, "discard")):
            raise ConfigurationError(f"{self._store!r} cannot remove by age, as it has no methods dates and discard")
        self._older_than = older_than
        self._user = user
        self._tenant = tenant
        self._indexes = indexes
        self._dry_run = dry_run
        self._clock = clock
        self._report = report or (lambda _: None)

    def run(self) -> Pruned:
        """Remove, and return what was removed."""
        return run(self._prune())

    async def arun(self) -> Pruned:
        """:meth:`run`, without blocking the event loop."""
        return await arun(self._prune())

    def _prune(self) -> Flow[Pruned]:
        before = self._clock() - self._older_than
        kinds: Counter[str] = Counter()
        for parent in (yield from step(self._parents)):
            pages = self._pages(parent, before)
            while rows := (yield from step(next, pages, None)):
                for row in rows:
                    if row.updated_at < before and not (yield from self._is_retained(row.namespace, before)):
                        kinds[row.namespace[0]] += yield from self._discard(row.namespace, before)
                self._report(len(rows))
        if orphaned := (yield from self._clear_orphaned()):
            kinds["indexed"] = len(orphaned)
        return Pruned(dict(sorted(kinds.items())), self._dry_run)

    def _is_retained(self, namespace: Namespace, before: float) -> Flow[bool]:
        """Whether a namespace stays, however old it is: a pool that is in use, or the memory of a session that is."""
        if namespace[0] == _MEMORY_KIND:
            session: Dates | None = yield from step(self._store.dates, (_SESSION_KIND, *namespace[1:]))
            return session is not None and (session.updated_at is None or session.updated_at >= before)
        return namespace[0] == _POOL_KIND and not (yield from step(self._has_expired, namespace))

    def _has_expired(self, pool: Namespace) -> bool:
        """Whether no entry of a pool may be served any more."""
        entries = values_of(self._readable, pool, lambda items: [item.id for item in items])
        expiries = (Experience.from_bytes(data).expires_at for _, data in entries)
        try:
            return all(expires_at is not None and expires_at <= self._clock() for expires_at in expiries)
        except SerializationError:
            return False

    def _clear_orphaned(self) -> Flow[set[Namespace]]:
        """Clear what an index holds of memories that the store no longer has; a running follower then begins anew."""
        orphaned = set[Namespace]()
        for index in self._indexes:
            listing: Any = getattr(index, "namespaces", None)
            if listing is None:
                continue
            with own_index_errors(index):
                listed = yield from step(listing, (_MEMORY_KIND, *self._scope_parts()))
            for namespace in listed:
                if self._user not in {None, namespace[2]}:
                    continue
                if not (yield from step(self._store.scan, namespace, limit=0)).total:
                    orphaned.add(namespace)
                    if not self._dry_run:
                        yield from self._clear_indexes([index], namespace)
        return orphaned

    def _discard(self, namespace: Namespace, before: float) -> Flow[int]:
        if self._dry_run:
            return 1
        is_removed = yield from self._discard_namespace(namespace, before)
        if is_removed and namespace[0] == _POOL_KIND:  # the namespaces below a pool serve it
            for below in (yield from step(lambda: list(self._store.namespaces(namespace)))):
                yield from self._discard_namespace(below, before)
        return int(is_removed)

    def _discard_namespace(self, namespace: Namespace, before: float) -> Flow[bool]:
        yield from self._clear_indexes(self._indexes, namespace)  # if this fails, another run finds it again
        is_removed: bool = yield from step(self._store.discard, namespace, before)
        if is_removed:
            yield from self._clear_indexes(self._indexes, namespace)  # a search may have indexed it in between
        return is_removed

    def _clear_indexes(self, indexes: Sequence[Index], namespace: Namespace) -> Flow[None]:
        for index in indexes:
            with own_index_errors(index):
                yield from step(index.clear, namespace)

    def _scope_parts(self) -> Namespace:
        """The beginning of the names after the kind, as far as it is given."""
        if self._tenant is None:
            return ()
        return (self._tenant,) if self._user is None else (self._tenant, self._user)

    def _parents(self) -> list[Namespace]:
        """The parents of namespaces that may be removed; without a tenant, those of all tenants."""
        scope_parts = self._scope_parts()
        parents: dict[Namespace, None] = {}  # each once, in order
        for kind, length in _PRUNABLE_LENGTHS.items():
            for namespace in self._store.namespaces((kind, *scope_parts)):
                if len(namespace) == length and self._user in {None, namespace[2]}:
                    parents[namespace[:-1]] = None
        return list(parents)

    def _pages(self, parent: Namespace, before: float) -> Iterator[list[Listed]]:
        """Pages of children whose last write was before a time: nothing newer is read."""
        last_row = Listed((*parent, ""), before)
        while rows := self._store.recent(parent, limit=_PAGE_SIZE, before=last_row):
            yield rows
            if len(rows) < _PAGE_SIZE:
                return
            last_row = rows[-1]
