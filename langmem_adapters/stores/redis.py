"""A store in Redis 6.2 or later, or Valkey: no modules, no scripts, one round trip per operation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langmem_adapters.errors import ConfigurationError, Conflict, MissingDependency, StoreError, StoreUnavailable
from langmem_adapters.flow import Flow, blocking, run, step
from langmem_adapters.inspection import Dates, Finding, Health, StoreStats, health_of
from langmem_adapters.keys import Namespace, to_bytes, to_text
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_seconds, check_text

try:
    from langmem_adapters.stores import redis_dates, redis_log, redis_report
    from langmem_adapters.stores.redis_client import link
    from langmem_adapters.stores.redis_directory import Directory
    from langmem_adapters.stores.redis_errors import is_full
    from langmem_adapters.stores.redis_keys import Keys, NamespaceKeys
    from langmem_adapters.stores.redis_packing import pack
    from langmem_adapters.stores.redis_wire import Wire
except ImportError as error:
    raise MissingDependency("redis", "redis") from error

__all__ = ["RedisStore"]

_FEW = 100  # most entries or values that a read may ask for and still be batched with reads of other callers
_SMALL = 1 << 14  # bytes: most that a write may send and still be batched with writes of other callers
_LONGEST = 1e10  # seconds: the most that a server can count in milliseconds


class RedisStore(Shared):
    """Implements :class:`~langmem_adapters.protocols.Store` on Redis.

    A namespace is three keys with one hash tag: ``log``, a stream; ``ids``, the set of the log's ids; ``val``,
    a hash. Its parent has a ``dir``, a sorted set of children by last write. Sequence numbers are stream ids.

    Args:
        url_or_client: "redis://user:password@host:6379/0", or rediss, unix, redis+cluster, redis+sentinel in
            place of redis (the query string is passed to redis-py). Or a redis-py client or pool: its connections
            are used, and its owner closes them. An asyncio client, or one with ``decode_responses=True``, only
            tells where to connect and as which user.
        prefix: The beginning of all keys.
        clock: Gives Unix seconds, for the times in :meth:`recent`. Expiry follows the server's own clock.
        max_connections: Size of each server's pool; a caller that finds none free waits up to ``socket_timeout``.
        socket_timeout: Seconds to wait for a connection or an answer; None: for ever.
        retry_for: Seconds during which a call is retried where that may help: after lost connections, timeouts,
            and answers such as LOADING and READONLY. When no retry helped, calls fail at once until Redis answers
            again. If a client's connections are used, the client's own retries apply instead.

    Raises:
        ConfigurationError: The URL, the client or the prefix is wrong.
    """

    def __init__(
        self,
        url_or_client: object,
        *,
        prefix: str = "langmem:",
        clock: Callable[[], float] = time.time,
        max_connections: int = 64,
        socket_timeout: float | None = 5.0,
        retry_for: float = 1.0,
    ) -> None:
        check_text("prefix", prefix)
        if not isinstance(retry_for, int | float) or not 0 <= retry_for < math.inf:
            raise ConfigurationError(f"retry_for is a number of seconds, 0 or more, not {retry_for!r}")
        self._keys = Keys(prefix)
        self._clock = clock
        found = link(url_or_client, max_connections=max_connections, socket_timeout=socket_timeout)
        self._wire = Wire(found, retry_for=retry_for)

    @blocking
    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> Flow[dict[str, bytes]]:
        place = self._keys.place(namespace)
        if keys is None:
            (pairs,) = yield from step(self._wire.send, (place.values, pack("HGETALL", place.values)))
            items = pairs.items() if isinstance(pairs, dict) else zip(pairs[::2], pairs[1::2], strict=True)
            return {to_text(key): value for key, value in items}
        if not keys:
            return {}
        (values,) = yield self._wire.looking(place.values, _values(place, keys), small=len(keys) <= _FEW)
        return _present(keys, values)

    @blocking
    def scan(
        self,
        namespace: Namespace,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        keys: Sequence[str] = (),
    ) -> Flow[Page]:
        place = self._keys.place(namespace)
        start = [*place.sizes, *([_values(place, keys)] if keys else [])]
        small = limit is not None and limit <= _FEW
        is_asked = limit != 0 and (before is None or max(after, 0) + 1 < before)
        read = [redis_log.reading(place, after, before, limit, reverse=reverse)] if is_asked else []
        until = None
        for pause in redis_log.PAUSES:
            total, ids, *rest = yield self._wire.reading(place[:3], [*start, *read], small=small)
            if total == ids:
                return _page(keys, total, rest)
            until = until or (yield from step(redis_log.last, self._wire, place))
            yield from step(time.sleep, pause)  # meanwhile the writer of a repeated id removes it
        try:
            yield from step(redis_log.repair, self._wire, place, until)
        except StoreError as error:  # a full server and a replica refuse the repair, but can be read
            if not (isinstance(error, StoreUnavailable) or is_full(error)):
                raise
        # Writers may repeat ids again and again; then only the whole log tells which entry came first.
        read = [redis_log.reading(place, 0, before, None, reverse=False)] if is_asked else []
        _, total, *rest = yield self._wire.reading(place[:3], [*start, *read], small=False)
        if is_asked:
            entries = redis_log.without_repeats(rest[-1], after)
            rest[-1] = (entries[::-1] if reverse else entries)[:limit]
        return _page(keys, total, rest)

    @blocking
    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        put: Mapping[str, bytes] | None = None,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Flow[Appended]:
        place = self._keys.place(namespace)
        first = _first(entries)
        beside = [*([_values(place, keys)] if keys else []), *([_putting(place, put)] if put else [])]
        replies = yield from self._commit(namespace, place, [*beside, *redis_log.appending(place, first)], ttl)
        values = _present(keys, replies[0]) if keys else {}
        new, total = yield from redis_log.settle(self._wire, place, first, replies[len(beside) :])
        return Appended([new.pop(id_, False) for id_, _ in entries], total, values)

    @blocking
    def write(
        self,
        namespace: Namespace,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        remove: Sequence[Item] = (),
        guard: Mapping[str, bytes | None] | None = None,
        ttl: float | None = None,
    ) -> Flow[None]:
        place = self._keys.place(namespace)
        first = _first(append)
        commands = redis_log.removing(place, remove) if remove else []
        if delete:
            commands.append(pack("HDEL", place.values, *map(to_bytes, delete)))
        if put:
            commands.append(_putting(place, put))
        start = len(commands)
        if first or not put:  # a namespace exists from its first write on, even if that write leaves it empty
            commands += redis_log.appending(place, first)
        replies = yield from self._commit(namespace, place, commands, ttl, guard)
        if first:
            yield from redis_log.settle(self._wire, place, first, replies[start:])

    def clear(self, namespace: Namespace) -> None:
        redis_dates.remove(self._wire, self._keys.place(namespace))

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        return list(Directory(self._wire, self._keys, parent).newest(limit, before))

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        seen: set[Namespace | None] = {None}
        for key in self._wire.keys(self._keys.pattern(prefix)):
            namespace = self._keys.namespace(key)
            if namespace is not None and namespace not in seen:
                seen.add(namespace)
                yield namespace

    def health(self) -> Health:
        """Ask each server with PING, which needs no other right; without retries, so an outage is reported at once."""
        return health_of(self._wire.address, lambda: list(self._wire.everywhere(pack("PING"))))

    def stats(self) -> StoreStats:
        """Count the store's keys with SCAN, never with KEYS."""
        return redis_report.stats(self._wire, self._keys)

    def examine(self) -> Iterator[Finding]:
        """Examine the server as far as its user may; needs INFO, and CONFIG GET for the snapshot schedule."""
        return redis_report.examined(self._wire)

    def dates(self, namespace: Namespace) -> Dates | None:
        return redis_dates.dates(self._wire, self._keys.place(namespace))

    def set_dates(self, namespace: Namespace, dates: Dates) -> None:
        run(self._commit(namespace, self._keys.place(namespace), [], dates.left, at=dates.updated_at))

    def discard(self, namespace: Namespace, before: float) -> bool:
        return redis_dates.discard(self._wire, self._keys.place(namespace), before)

    def close(self) -> None:
        """Close the connections; the next use connects again. Connections of a client that was handed in stay open."""
        self._wire.close()

    def __repr__(self) -> str:
        return f"RedisStore({self._wire.address!r})"

    def _commit(
        self,
        namespace: Namespace,
        place: NamespaceKeys,
        commands: Sequence[bytes],
        ttl: float | None,
        guard: Mapping[str, bytes | None] | None = None,
        *,
        at: float | None = None,
    ) -> Flow[list[Any]]:
        """Apply a change with the keys' expiry and the row in the directory; return the replies to ``commands``."""
        lifetime = _milliseconds(ttl)
        now = self._clock() if at is None else at
        listing = place.listing(now, lifetime)
        whole = (*commands, *place.expiring(lifetime), *(listing if self._wire.one_slot else ()))
        if guard:
            replies = yield from step(self._guarded, place, whole, guard)
        else:
            replies = yield self._wire.asking(place.log, whole, small=sum(map(len, commands)) <= _SMALL)
        if listing and not self._wire.one_slot:
            listed = yield self._wire.asking(place.directory, listing)
        else:
            listed = replies
        if listing and lifetime is not None:
            directory = Directory(self._wire, self._keys, namespace[:-1])
            if directory.may_end_before(lifetime, listed):
                yield from step(directory.outlive, place.row, lifetime)
            if directory.has_grown(listed):
                yield from step(directory.sweep, listed[-1])
        return replies[: len(commands)]

    def _guarded(self, place: NamespaceKeys, commands: Sequence[bytes], guard: Mapping[str, bytes | None]) -> list[Any]:
        found: dict[str, bytes | None] = {}

        def decide(replies: list[Any]) -> Sequence[bytes] | None:
            found.update(zip(guard, replies[0], strict=True))
            return commands if found == guard else None

        replies = self._wire.optimistic(place.values, [_values(place, list(guard))], decide)
        if replies is None:
            key = next(key for key, value in guard.items() if found[key] != value)
            raise Conflict(f"the value {key!r} was changed by another writer")
        return replies


def _page(keys: Sequence[str], total: int, replies: list[Any]) -> Page:
    """A page made of the replies for values and entries, each of which may not have been asked for."""
    values = _present(keys, replies.pop(0)) if keys else {}
    return Page([redis_log.item(*entry) for entry in replies[0]] if replies else [], total, values)


def _values(place: NamespaceKeys, keys: Sequence[str]) -> bytes:
    return pack("HMGET", place.values, *map(to_bytes, keys))


def _putting(place: NamespaceKeys, put: Mapping[str, bytes]) -> bytes:
    return pack("HSET", place.values, *(word for key, value in put.items() for word in (to_bytes(key), value)))


def _present(keys: Sequence[str], found: Sequence[bytes | None]) -> dict[str, bytes]:
    return {key: value for key, value in zip(keys, found, strict=True) if value is not None}


def _first(entries: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
    first: dict[str, bytes] = {}
    for id_, data in entries:
        first.setdefault(id_, data)
    return first


def _milliseconds(ttl: float | None) -> int | None:
    check_seconds("ttl", ttl)
    if ttl is None:
        return None
    if ttl > _LONGEST:
        raise ConfigurationError(f"ttl is a number of seconds that Redis can count to, or None, not {ttl!r}")
    return max(int(ttl * 1000), 1)
