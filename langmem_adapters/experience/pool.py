"""ExperiencePool: earlier requests with their responses, found again by request."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from itertools import islice
from typing import Any

from langmem_adapters import views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.pool_flows import PoolFlows, QueryType, Similar
from langmem_adapters.experience.requests import key_of, stored_search_text
from langmem_adapters.experience.savings import Prices, Saved, check_prices
from langmem_adapters.experience.shelf.read_cache import ReadCache
from langmem_adapters.experience.shelf.shelf import Shelf
from langmem_adapters.experience.transfer import write_line
from langmem_adapters.experience.verifier.tuning import Tuned, tune_flow
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Experience, Scope
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.protocols import Index, Store
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import (
    check_index,
    check_seconds,
    check_store,
    check_sync_functions,
    check_text,
    checked_scope,
)

_COUNT_NAMES = ("hits", "misses", "stored", "unreadable", "expired", "evicted")
_PAGE_SIZE = 20  # lines that a worker thread reads at once
_MAX_TAGS = 256  # the newest tags, whose counts are kept


def experience_namespace(scope: Scope, tag: str) -> Namespace:
    """Where a scope's experiences under a tag are kept."""
    return ("experience", scope.tenant, scope.user, tag)


class ExperiencePool(Shared, PoolFlows):
    """Experiences of a tenant (or of one user) under one tag (MetaGPT's ``ExperienceManager``).

    An experience is found by its request, which is compared as a whole: same data, same types. The request's
    fingerprint is the key; a later experience of the same request replaces the earlier one. Tenant, user and tag
    are part of the namespace, so nothing of another owner is ever looked at. Every method has an async twin whose
    name begins with ``a``. The constructor reads nothing.

    Args:
        store: Where the experiences are kept.
        tag: What they are experiences of, such as a function's name.
        user, tenant: The owner of the experiences.
        index: Finds similar requests; :func:`~langmem_adapters.open_index` makes one.
        ttl: Seconds for which an experience may be served; None: for ever. An expired one is removed when it is met,
            and a few are removed on later writes.
        max_entries, max_bytes: The bounds of the pool; None: unbounded. Beyond them, the least recently used are
            evicted, worst score first, a few on each write. All writers of a tag must use the same bounds.
        keep: Seconds for which this process serves what it has read from its own memory, without asking the store;
            None: not at all. Changes by this process take effect at once, those by others after that time.
        prices: The price of a million tokens in and out, by model name, for :meth:`stats` and :meth:`saved`.
        enabled: False switches off both look-ups and storing.
        enable_read, enable_write: False switches off look-ups, or storing.
        clock: Returns Unix seconds.
        new_id: Returns ids.

    >>> from langmem_adapters import Experience, ExperiencePool, open_store
    >>> pool = ExperiencePool(open_store("memory:"), tag="capitals")
    >>> _ = pool.create(Experience(req="France", resp="Paris"))
    >>> pool.lookup("France").resp
    'Paris'
    >>> pool.lookup("france") is None
    True
    """

    def __init__(
        self,
        store: Store,
        *,
        tag: str = "",
        user: str = "",
        tenant: str = "",
        index: Index | None = None,
        ttl: float | None = None,
        max_entries: int | None = None,
        max_bytes: int | None = None,
        keep: float | None = None,
        prices: Prices | None = None,
        enabled: bool = True,
        enable_read: bool = True,
        enable_write: bool = True,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        check_sync_functions(clock=clock, new_id=new_id)
        check_seconds("ttl", ttl)
        check_store(store)
        if index is not None:
            check_index("index", index)
        check_prices(prices or {})
        self.scope: Scope = checked_scope(tenant=tenant, user=user)
        self.ttl = ttl
        self.max_bytes = max_bytes
        self.enabled = enabled
        self.enable_read = enable_read
        self.enable_write = enable_write
        self._prices = prices or {}
        self._clock = clock
        self._new_id = new_id
        self._counts_by_tag: dict[str, Counts] = {}
        self._counts_lock = ForkSafeLock()
        # It is monotonic, unless the caller gave a clock.
        read_cache_clock = time.monotonic if clock is time.time else clock

        def make_shelf(pool: ExperiencePool) -> Shelf:
            namespace = experience_namespace(pool.scope, pool.tag)
            return Shelf(
                store,
                namespace,
                max_entries=max_entries,
                max_bytes=max_bytes,
                worth=pool._worth,
                index=index,
                text_of=stored_search_text,
                read_cache=None if keep is None else ReadCache(namespace, keep, clock=read_cache_clock),
            )

        self._make_shelf = make_shelf
        self._set_tag(tag)

    def _set_tag(self, tag: str) -> None:
        """Use this tag; its counts live beside those of the other tags of this pool."""
        check_text("tag", tag)
        self.tag = tag
        self._shelf = self._make_shelf(self)
        with self._counts_lock.held():
            self._counts = self._counts_by_tag.setdefault(tag, Counts())
            if len(self._counts_by_tag) > _MAX_TAGS:
                del self._counts_by_tag[next(iter(self._counts_by_tag))]

    def _of(self, *, user: str = "", tenant: str = "") -> ExperiencePool:
        """The same pool of another owner; both add up their counts."""
        pool = copy.copy(self)
        pool.scope = checked_scope(tenant=tenant, user=user)
        pool._shelf = pool._make_shelf(pool)  # noqa: SLF001 - a pool like this one
        return pool

    @property
    def store(self) -> Store:
        """Where the experiences are kept."""
        return self._shelf.store

    def create(self, experience: Experience, *, key: str | None = None) -> Experience:
        """Store an experience; returns it as stored, with its id, tag and time.

        ``key`` replaces the fingerprint of the request, so that the request itself need not be stored.
        """
        return run(self.create_flow(experience, key=key))

    async def acreate(self, experience: Experience, *, key: str | None = None) -> Experience:
        """:meth:`create`, without blocking the event loop."""
        return await arun(self.create_flow(experience, key=key))

    def lookup(self, req: Any = None, *, key: str | None = None) -> Experience | None:
        """The experience of exactly this request; None, if there is none. A falsy response is a hit."""
        return run(self.lookup_flow(key_of(req, key)))

    async def alookup(self, req: Any = None, *, key: str | None = None) -> Experience | None:
        """:meth:`lookup`, without blocking the event loop."""
        return await arun(self.lookup_flow(key_of(req, key)))

    def query(
        self, req: Any, *, k: int = 4, query_type: QueryType = "semantic", tag: str | None = None
    ) -> list[Similar]:
        """The ``k`` experiences that fit a request best, best first; with "exact", only that of this very request.

        Only the pool's own tag (or ``tag``) is searched. Raises ConfigurationError if similar experiences are asked
        for and the pool has no index.
        """
        return run(self._query(req, k, query_type, tag))

    async def aquery(
        self, req: Any, *, k: int = 4, query_type: QueryType = "semantic", tag: str | None = None
    ) -> list[Similar]:
        """:meth:`query`, without blocking the event loop."""
        return await arun(self._query(req, k, query_type, tag))

    def delete(self, req: Any = None, *, key: str | None = None, uuid: str | None = None) -> bool:
        """Delete the experience of this request, key or id; False, if there was none. An id reads all experiences."""
        return run(self._delete(req, key, uuid))

    async def adelete(self, req: Any = None, *, key: str | None = None, uuid: str | None = None) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._delete(req, key, uuid))

    def invalidate(self, where: Callable[[Experience], bool]) -> int:
        """Delete the experiences for which ``where`` is true, and unreadable ones; returns how many."""
        return run(self._invalidate(where))

    async def ainvalidate(self, where: Callable[[Experience], bool]) -> int:
        """:meth:`invalidate`, without blocking the event loop."""
        return await arun(self._invalidate(where))

    def all(self) -> list[Experience]:
        """Every experience that can be served, in the order of first writes; in a bounded pool, roughly of last use."""
        return run(step(lambda: list(self._experiences())))

    async def aall(self) -> list[Experience]:
        """:meth:`all`, without blocking the event loop."""
        return await arun(step(lambda: list(self._experiences())))

    def count(self) -> int:
        """How many experiences can be served. Reads every one of them."""
        return run(step(lambda: sum(1 for _ in self._experiences())))

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return await arun(step(lambda: sum(1 for _ in self._experiences())))

    def clear(self, tag: str | None = None) -> None:
        """Delete all experiences of this tag (or of ``tag``), and no others."""
        run(step(self.at(tag)._shelf.clear))  # noqa: SLF001 - a pool like this one

    async def aclear(self, tag: str | None = None) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(step(self.at(tag)._shelf.clear))  # noqa: SLF001 - a pool like this one

    def export(self, *, progress: Progress = False) -> Generator[bytes, None, None]:
        """Export all experiences that can be served as JSON Lines. Reads a page at a time.

        ``progress`` shows them; see :data:`~langmem_adapters.progress.Progress`.
        """
        with advancing(progress, "exporting", None, "experiences") as advance:
            for key, data in self._shelf.all():
                if self._read(data) is not None:
                    advance(1)
                    yield write_line(key, data) + b"\n"

    async def aexport(self, *, progress: Progress = False) -> AsyncGenerator[bytes, None]:
        """:meth:`export`, without blocking the event loop."""
        lines = self.export(progress=progress)
        while page := await arun(step(lambda: list(islice(lines, _PAGE_SIZE)))):
            for line in page:
                yield line

    def import_(self, lines: Iterable[bytes | str], *, progress: Progress = False) -> int:
        """Add exported experiences; returns how many were added: none, if storing is switched off.

        All lines are read before the first is written, so a malformed line changes nothing. An experience replaces
        the one of the same request.
        """
        return run(self._import(lines, progress))

    async def aimport(self, lines: Iterable[bytes | str], *, progress: Progress = False) -> int:
        """:meth:`import_`, without blocking the event loop."""
        return await arun(self._import(lines, progress))

    def tune(
        self, pairs: Sequence[tuple[str, str, bool]], *, precision: float = 0.95, progress: Progress = False
    ) -> Tuned:
        """Choose a threshold for the scores of :meth:`query` by pairs of two requests and whether they mean the same.

        Returns the lowest score at which results have this precision, and the whole curve; the pool is not changed.
        Raises ConfigurationError if no score has that precision, or if the pool's index has no embedder: scores of
        word matches depend on all entries of the pool, and so have no threshold. ``progress`` shows the pairs.

        >>> from langmem_adapters import Embedder, ExperiencePool, open_store, open_vectors
        >>> letters = Embedder(lambda texts: [[text.count("a"), text.count("b")] for text in texts], name="letters")
        >>> pool = ExperiencePool(open_store("memory:"), index=open_vectors("memory:", letters))
        >>> pool.tune([("aab", "aaab", True), ("aab", "bbbb", False)]).threshold > 0.9
        True
        """
        return run(tune_flow(self._shelf.index, pairs, precision, progress=progress))

    async def atune(
        self, pairs: Sequence[tuple[str, str, bool]], *, precision: float = 0.95, progress: Progress = False
    ) -> Tuned:
        """:meth:`tune`, without blocking the event loop."""
        return await arun(tune_flow(self._shelf.index, pairs, precision, progress=progress))

    def at(self, tag: str | None) -> ExperiencePool:
        """The same pool under another tag; the pool itself, for its own tag or None."""
        if tag is None or tag == self.tag:
            return self
        pool = copy.copy(self)
        pool._set_tag(tag)  # noqa: SLF001 - a pool like this one
        return pool

    def stats(self, tag: str | None = None) -> dict[str, Any]:
        """Counts of this object, and of those that :meth:`at` made of it, for its tag (or ``tag``).

        hits, misses, stored, unreadable, expired, evicted; and what the hits have saved: saved_seconds, saved_tokens,
        and saved_money, in the unit of the prices. Counts of the newest 256 tags are kept.
        """
        tag_counts = self._counts_of(tag)
        counts: dict[str, Any] = {name: tag_counts[name] for name in _COUNT_NAMES}
        title = f"Experiences {self.tag if tag is None else tag}".rstrip()
        return views.Figures(counts | Saved.of(tag_counts).as_stats(), title=title)

    def saved(self, tag: str | None = None) -> Saved:
        """What the hits counted by :meth:`stats` have saved: seconds, tokens, money."""
        return Saved.of(self._counts_of(tag))

    def _counts_of(self, tag: str | None) -> Counts:
        return self._counts if tag is None or tag == self.tag else self._counts_by_tag.get(tag, Counts())

    def __repr__(self) -> str:
        return f"ExperiencePool({self._shelf.store!r}, tag={self.tag!r})"

    def _repr_html_(self) -> str:
        return views.render_safely(self, self._html)

    def _html(self) -> str:
        """The counts, and the number of log entries, which includes expired experiences."""
        total = self._shelf.store.scan(self._shelf.namespace, limit=0).total
        title = f"Experience pool {self.tag}".rstrip()
        details = [f"{total:,} kept", f"user {self.scope.user}" if self.scope.user else ""]
        return views.statistics(self.stats(), title=title, details=details)

    def _query(self, req: Any, k: int, query_type: QueryType, tag: str | None) -> Flow[list[Similar]]:
        if query_type not in {"exact", "semantic"}:
            raise ConfigurationError(f'query_type is "exact" or "semantic", not {query_type!r}')
        pool = self.at(tag)
        return pool.similar_flow(req, k) if query_type == "semantic" else pool.exact_flow(req)
