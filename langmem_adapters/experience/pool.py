"""ExperiencePool: what was asked before and what came of it."""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.switches import may_read, may_write
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Experience, Scope
from langmem_adapters.protocols import Store
from langmem_adapters.records import Records

__all__ = ["ExperiencePool"]

_log = logging.getLogger("langmem_adapters")


class ExperiencePool:
    """Experiences of a tenant (or of one user) under one tag (MetaGPT's ``ExperienceManager``).

    An experience is found by its request, which is compared as a whole: same data, same types. The request's
    fingerprint is the key; a later experience of the same request takes the place of the earlier. Tenant, user
    and tag are part of the place where it is kept, so nothing of another is ever looked at. Every method has an
    async twin with an ``a`` in front. Constructing one reads nothing.

    Args:
        store: Where the experiences are kept.
        tag: What they are experiences of, a function's name for one.
        user, tenant: Whose they are.
        ttl: Seconds for which an experience may be served; None: for ever.
        enable_read, enable_write: False switches looking up, or storing, off.
        clock: Gives Unix seconds.
        new_id: Gives ids.

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
        ttl: float | None = None,
        enable_read: bool = True,
        enable_write: bool = True,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if ttl is not None and ttl <= 0:
            raise ConfigurationError(f"ttl is a number of seconds above 0, not {ttl}")
        self.tag = tag
        self.scope = Scope(tenant=tenant, user=user)
        self.ttl = ttl
        self.enable_read = enable_read
        self.enable_write = enable_write
        self._clock = clock
        self._new_id = new_id
        self._counts: Counter[str] = Counter()
        self._records = Records(
            store, ("experience", tenant, user, tag), index=None, text_of=lambda _: None, new_id=new_id
        )

    def create(self, experience: Experience, *, key: str | None = None) -> Experience:
        """Keep an experience; returns it as it was kept, with its id, tag and time.

        ``key`` replaces the request's fingerprint, so that the request itself need not be stored.
        """
        return run(self.create_flow(experience, key=key))

    async def acreate(self, experience: Experience, *, key: str | None = None) -> Experience:
        """:meth:`create`, without blocking the event loop."""
        return await arun(self.create_flow(experience, key=key))

    def lookup(self, req: Any = None, *, key: str | None = None) -> Experience | None:
        """The experience of exactly this request; None, if there is none (a falsy response is not none)."""
        return run(self.lookup_flow(fingerprint(req) if key is None else key))

    async def alookup(self, req: Any = None, *, key: str | None = None) -> Experience | None:
        """:meth:`lookup`, without blocking the event loop."""
        return await arun(self.lookup_flow(fingerprint(req) if key is None else key))

    def delete(self, req: Any = None, *, key: str | None = None) -> bool:
        """Forget the experience of this request; False, if there was none."""
        return bool(run(step(self._records.delete, [fingerprint(req) if key is None else key])))

    async def adelete(self, req: Any = None, *, key: str | None = None) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return bool(await arun(step(self._records.delete, [fingerprint(req) if key is None else key])))

    def invalidate(self, where: Callable[[Experience], bool]) -> int:
        """Forget the experiences for which ``where`` is true, and those that cannot be read; returns how many."""
        return run(step(self._invalidate, where))

    async def ainvalidate(self, where: Callable[[Experience], bool]) -> int:
        """:meth:`invalidate`, without blocking the event loop."""
        return await arun(step(self._invalidate, where))

    def all(self) -> list[Experience]:
        """Every experience that can be served, in the order of their first writing."""
        return run(step(self._all))

    async def aall(self) -> list[Experience]:
        """:meth:`all`, without blocking the event loop."""
        return await arun(step(self._all))

    def count(self) -> int:
        """How many experiences can be served. Reads them all."""
        return len(run(step(self._all)))

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return len(await arun(step(self._all)))

    def clear(self) -> None:
        """Forget all experiences of this tag, and no others."""
        run(step(self._records.clear))

    async def aclear(self) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(step(self._records.clear))

    def stats(self) -> dict[str, int]:
        """What this object has seen: hits, misses, stored, unreadable, expired."""
        return {name: self._counts[name] for name in ("hits", "misses", "stored", "unreadable", "expired")}

    def __repr__(self) -> str:
        return f"ExperiencePool({self._records.store!r}, tag={self.tag!r})"

    # --- flows

    def create_flow(self, experience: Experience, *, key: str | None = None) -> Flow[Experience]:
        """:meth:`create`, as a part of a larger flow."""
        now = self._clock()
        kept = experience.model_copy(
            update={
                "tag": self.tag,
                "uuid": experience.uuid or self._new_id(),
                "timestamp": now if experience.timestamp is None else experience.timestamp,
                "expires_at": experience.expires_at if self.ttl is None or experience.expires_at else now + self.ttl,
            }
        )
        if self.enable_write and may_write():
            records = {fingerprint(kept.req) if key is None else key: kept.to_bytes()}
            yield from step(self._records.put, records)
            self._counts["stored"] += 1
        return kept

    def lookup_flow(self, key: str) -> Flow[Experience | None]:
        """:meth:`lookup`, as a part of a larger flow. An entry that cannot be read is a miss, and is removed."""
        if not (self.enable_read and may_read()):
            return None
        found = yield from step(self._records.get, [key])
        experience = self._read(found[key]) if found else None
        if found and experience is None:
            yield from step(self._records.delete, [key])
        self._counts["misses" if experience is None else "hits"] += 1
        return experience

    def _read(self, data: bytes) -> Experience | None:
        try:
            experience = Experience.from_bytes(data)
        except SerializationError as damage:
            self._counts["unreadable"] += 1
            _log.warning("an experience of tag %r is treated as a miss: %s", self.tag, damage)
            return None
        if experience.expires_at is not None and experience.expires_at <= self._clock():
            self._counts["expired"] += 1
            return None
        return experience

    def _all(self) -> list[Experience]:
        found = (self._read(data) for _, data in self._records.all())
        return [experience for experience in found if experience is not None]

    def _invalidate(self, where: Callable[[Experience], bool]) -> int:
        gone = []
        for key, data in self._records.all():
            experience = self._read(data)
            if experience is None or where(experience):
                gone.append(key)
        return self._records.delete(gone)
