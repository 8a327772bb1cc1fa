"""The flows of a pool: what is served, what is kept, and what is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from langmem_adapters import views
from langmem_adapters.codec import is_sealed_or_newer, refuse_sealed_or_newer
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.policies import score_of
from langmem_adapters.experience.requests import key_of, search_text
from langmem_adapters.experience.savings import Prices, cost
from langmem_adapters.experience.shelf.invalidation import StartMark, outdate
from langmem_adapters.experience.shelf.shelf import Shelf
from langmem_adapters.experience.switches import may_read, may_write
from langmem_adapters.experience.transfer import read_lines
from langmem_adapters.flow import Flow, Step, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.language.analysis import matching
from langmem_adapters.model import Experience, Metric, Score
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.validation import check_sync_function, plain_answer
from langmem_adapters.warn_once import warn_of_damage

QueryType = Literal["exact", "semantic"]
"""Whether to look for the very same request, or for similar ones."""

_DEFAULT_WORTH = 5.0  # the worth of an entry without a score
_IMPORT_PAGE_SIZE = 100
_ENTRY_PREFIX = b'{"v":1,'  # how entries in the current format begin


class Similar(NamedTuple):
    """An experience that a query found, and how well it fits: ``score`` lies in [0, 1]; higher is better."""

    experience: Experience
    score: float

    def __repr__(self) -> str:
        request, response = views.one_line(self.experience.req), views.one_line(self.experience.resp)
        return f"Similar({self.score:.2f}, {request!r} -> {response!r})"

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.experiences([self]))


class PoolFlows:
    """The part of :class:`~langmem_adapters.experience.ExperiencePool` that other services build on."""

    tag: str
    ttl: float | None
    enabled: bool
    enable_read: bool
    enable_write: bool
    _shelf: Shelf
    _prices: Prices
    _counts: Counts
    _clock: Callable[[], float]
    _new_id: Callable[[], str]

    @property
    def reads(self) -> bool:
        """Whether a look-up is wanted here and now."""
        return self.enabled and self.enable_read and may_read()

    @property
    def writes(self) -> bool:
        """Whether storing is wanted here and now."""
        return self.enabled and self.enable_write and may_write()

    def create_flow(
        self, experience: Experience, *, key: str | None = None, evicted: list[tuple[str, bytes]] | None = None
    ) -> Flow[Experience]:
        """:meth:`create`, as a part of a larger flow. Evicted entries are added to ``evicted``, with their keys."""
        if not isinstance(experience, Experience):
            kind = type(experience).__name__
            raise ConfigurationError(f"an experience is made as Experience(req=…, resp=…), not {kind}")
        stored = self._to_stored(experience)
        if self.writes:
            key = key_of(stored.req, key)
            has_text = stored.req is not None
            evicted_count = yield Step(partial(self._shelf.put, key, stored.to_bytes(), evicted, has_text=has_text))
            if evicted_count:
                self._counts.add("evicted", evicted_count)
            self._counts.add("stored")
        return stored

    def _to_stored(self, experience: Experience) -> Experience:
        """The experience as it is stored, with its id, tag and times."""
        now = self._clock()
        expires_at = experience.expires_at
        if not expires_at and self.ttl is not None:
            expires_at = now + self.ttl
        return experience.model_copy(
            update={
                "tag": self.tag,
                "uuid": experience.uuid or self._new_id(),
                "timestamp": now if experience.timestamp is None else experience.timestamp,
                "expires_at": expires_at,
            }
        )

    def lookup_flow(self, key: str) -> Flow[Experience | None]:
        """:meth:`lookup`, as a part of a larger flow."""
        experience = (yield from self.read_flow(key)) if self.reads else None
        self.tally(experience)
        return experience

    def read_flow(self, key: str) -> Flow[Experience | None]:
        """The experience under a key, not counted yet: pass it to :meth:`tally` once it is known whether it is served.

        Call it only if the pool :attr:`reads`. An unreadable entry is a miss, and is removed. An encrypted entry, or
        one of a newer version, is a miss too but stays, as others can read it.
        """
        data = yield Step(partial(self._shelf.get, key))
        if data is None:
            return None
        try:
            experience = self._read(data)
        except SerializationError as error:
            self._count_unreadable(error)
            return None
        if experience is None:
            yield from step(self._shelf.discard, key, data)
        return experience

    def recent(self, key: str) -> Experience | None:
        """The experience under a key, if the read cache has it: no store is asked, and nothing is counted."""
        cache = self._shelf.read_cache
        if cache is None or not self.reads:
            return None
        data = cache.get(key)
        if data is None:
            return None
        experience = Experience.from_bytes(data)
        return None if self._has_expired(experience) else experience

    def tally(self, served: Experience | None) -> None:
        """Count a hit, and what it saved; for None, a miss, unless look-ups are switched off."""
        if served is not None:
            self._counts.add("hits")
            if served.metric is not None:
                cost(served.metric, self._prices).add_to(self._counts)
        elif self.reads:
            self._counts.add("misses")

    def credit(self, served: Experience) -> None:
        """Turn a counted miss into a hit: the result of another caller was served."""
        self.tally(served)
        self._counts.add("misses", -1)

    def start_mark(self, key: str) -> StartMark:
        """Note that a result is being made for a key; within :func:`refresh`, those begun earlier are outdated."""
        if not may_read():
            outdate(self._shelf.namespace, [key])
        return StartMark(self._shelf.namespace, key, self._clock())

    def discard_flow(self, key: str, experience: Experience) -> Flow[None]:
        """Remove exactly this experience, not one that has replaced it since."""
        yield from step(self._shelf.discard, key, experience.to_bytes())

    def supersede_flow(self, key: str, start_mark: StartMark | None) -> Flow[None]:
        """Within :func:`refresh`, remove the old entry of a key, as its new result is not kept.

        An entry that only others can read stays; so does one that is newer than a result that is outdated.
        """
        if not self.writes or may_read():
            return
        data = yield from step(self._shelf.get, key)
        if data is not None and is_sealed_or_newer(data):
            return
        if start_mark is None or not start_mark.is_outdated:
            yield from step(self._shelf.delete, [key])
        elif data is not None:
            old = self._read(data)
            if old is None or (old.timestamp or 0) <= start_mark.at:
                yield from step(self._shelf.discard, key, data)

    def heal_flow(self, key: str) -> Flow[None]:
        """Count and remove an unreadable entry."""
        self._counts.add("unreadable")
        yield from step(self._shelf.delete, [key])

    def score_flow(self, experience: Experience, score: Score, *, key: str) -> Flow[bool]:
        """Give a kept experience its score; False, if it was removed or replaced."""
        old = yield from step(self._shelf.get, key)
        current = None if old is None else self._read(old)
        if old is None or current is None or current.uuid != experience.uuid:
            return False
        metric = (current.metric or Metric()).model_copy(update={"score": score})
        scored = current.model_copy(update={"metric": metric}).to_bytes()
        return (yield from step(self._shelf.replace, key, old, scored))

    def similar_flow(
        self, req: Any, k: int, where: Callable[[Experience], bool] = lambda _: True
    ) -> Flow[list[Similar]]:
        """The experiences of similar requests, best first; only those for which ``where`` is true."""
        if not isinstance(k, int):
            raise ConfigurationError(f"k is a whole number, not {k!r:.50}")
        if not self.reads or k < 1:
            return views.Listing([], views.experiences)
        matches = yield from step(
            self._shelf.search, search_text(req), k, self._read, lambda each: each.req is not None and where(each)
        )
        return _to_listing([Similar(experience, score) for _, score, experience in matches], req)

    def exact_flow(self, req: Any) -> Flow[list[Similar]]:
        """The experience of exactly this request, if there is one."""
        experience = yield from self.lookup_flow(fingerprint(req))
        return _to_listing([Similar(experience, 1.0)] if experience else [], req)

    def _delete(self, req: Any, key: str | None, uuid: str | None) -> Flow[bool]:
        if uuid is None:
            deleted = yield from step(self._shelf.delete, [key_of(req, key)])
            return any(map(self._is_unexpired, deleted))

        def has_uuid(data: bytes) -> bool:
            return (experience := self._read(data)) is not None and experience.uuid == uuid

        return bool((yield from step(self._shelf.drop, has_uuid)))

    def _import(self, lines: Iterable[bytes | str], progress: Progress) -> Flow[int]:
        entries = yield from step(read_lines, lines)
        added = 0
        with advancing(progress, "importing", len(entries), "experiences") as advance:
            for start in range(0, len(entries), _IMPORT_PAGE_SIZE):
                page = [(key, Experience.from_bytes(data)) for key, data in entries[start : start + _IMPORT_PAGE_SIZE]]
                unexpired = [(key, experience) for key, experience in page if not self._has_expired(experience)]
                if unexpired and self.writes:
                    yield from self._import_page(unexpired)
                    added += len(unexpired)
                advance(len(page))
        return added

    def _import_page(self, entries: Sequence[tuple[str, Experience]]) -> Flow[None]:
        """Put entries in one write as far as possible, and the rest one by one."""
        stored = {key: self._to_stored(experience).to_bytes() for key, experience in entries}
        remaining_keys = set((yield from step(self._shelf.put_together, stored)))
        remaining = [(key, experience) for key, experience in entries if key in remaining_keys]
        self._counts.add("stored", len(entries) - len(remaining))
        for key, experience in remaining:
            yield from self.create_flow(experience, key=key)

    def _worth(self, data: bytes) -> float | None:
        if _expiry_from_bytes(data) > self._clock() or is_sealed_or_newer(data):
            return _DEFAULT_WORTH
        experience = self._read(data)
        if experience is None:
            return None
        score = score_of(experience)
        return _DEFAULT_WORTH if score is None else float(score)

    def _read(self, data: bytes) -> Experience | None:
        try:
            experience = Experience.from_bytes(data)
        except SerializationError as error:
            refuse_sealed_or_newer(data, "an experience")
            self._count_unreadable(error)
            return None
        if self._has_expired(experience):
            self._counts.add("expired")
            return None
        return experience

    def _has_expired(self, experience: Experience) -> bool:
        return experience.expires_at is not None and experience.expires_at <= self._clock()

    def _is_unexpired(self, data: bytes) -> bool:
        """Whether an entry has not expired; True, if it cannot be read."""
        try:
            return not self._has_expired(Experience.from_bytes(data))
        except SerializationError:
            return True

    def _count_unreadable(self, error: SerializationError) -> None:
        self._counts.add("unreadable")
        warn_of_damage(self.tag, f"an experience of tag {self.tag!r} is treated as a miss: {error}")

    def _experiences(self) -> Iterator[Experience]:
        experiences = (self._read(data) for _, data in self._shelf.all())
        return (experience for experience in experiences if experience is not None)

    def _invalidate(self, where: Callable[[Experience], bool] | None) -> Flow[int]:
        if where is None:
            raise ConfigurationError(
                "invalidate needs a function that says which entries to remove; clear() removes all of this tag"
            )
        check_sync_function("where", where)

        def should_delete(data: bytes) -> bool:
            return (experience := self._read(data)) is None or plain_answer("where", where(experience))

        return (yield from step(self._shelf.drop, should_delete))


def _expiry_from_bytes(data: bytes) -> float:
    """When an unscored entry expires, judged by its first and last bytes; -inf, if it must be parsed to know.

    No text inside an entry can look like a field, as quotation marks are escaped.
    """
    if not (data.startswith(_ENTRY_PREFIX) and data.endswith(b"}")) or b'"metric":' in data:
        return -math.inf
    _, separator, tail = data.rpartition(b'"expires_at":')
    try:
        return float(tail[:-1]) if separator else math.inf
    except ValueError:  # it is not the last of the fields
        return -math.inf


def _to_listing(matches: list[Similar], req: Any) -> list[Similar]:
    return views.Listing(matches, views.experiences, query=search_text(req), matching=matching)
