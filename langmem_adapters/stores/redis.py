"""A store in Redis 6.2 or later, or Valkey: no modules, no scripts, one round trip per operation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from langmem_adapters.clocks import unix_time
from langmem_adapters.errors import ConfigurationError, MissingDependency, StoreError, StoreUnavailable
from langmem_adapters.flow import Flow, blocking, step
from langmem_adapters.inspection import Dates, Finding, Health, StoreStats, health_of
from langmem_adapters.keys import Namespace, to_bytes, to_text
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_seconds, check_text

try:
    from langmem_adapters.stores import redis_dates, redis_log, redis_report
    from langmem_adapters.stores.redis_client import make_link
    from langmem_adapters.stores.redis_directory import Directory
    from langmem_adapters.stores.redis_errors import is_full
    from langmem_adapters.stores.redis_guarded import GuardedWrites
    from langmem_adapters.stores.redis_keys import Keys, NamespaceKeys
    from langmem_adapters.stores.redis_packing import pack
    from langmem_adapters.stores.redis_trace import Trace
    from langmem_adapters.stores.redis_wire import Wire
except ImportError as error:
    raise MissingDependency("redis", "redis") from error

__all__ = ["RedisStore"]

_MAX_SMALL_READ = 100  # entries or values that a read may ask for and still be batched with those of other flows
_MAX_BATCHED_BYTES = 1 << 14  # that a write may send and still be batched with others
_MAX_TTL_SECONDS = 1e10  # the most that a server can count in milliseconds


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
        clock: Gives Unix seconds, for the times in :meth:`recent`, and to connect anew after a minute without a call.
            Expiry follows the server's own clock.
        max_connections: Size of each server's pool; a caller that finds none free waits up to ``socket_timeout``.
        socket_timeout: Seconds to wait for a connection or an answer; None: for ever. While bytes get through, a large
            request or answer may take longer.
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
        clock: Callable[[], float] = unix_time,
        max_connections: int = 64,
        socket_timeout: float | None = 5.0,
        retry_for: float = 1.0,
    ) -> None:
        check_text("prefix", prefix)
        if not isinstance(retry_for, int | float) or not 0 <= retry_for < math.inf:
            raise ConfigurationError(f"retry_for is a number of seconds, 0 or more, not {retry_for!r}")
        self._keys = Keys(prefix)
        self._clock = clock
        link = make_link(url_or_client, max_connections=max_connections, socket_timeout=socket_timeout)
        self._wire = Wire(link, retry_for=retry_for, clock=clock)
        self._guarded_writes = GuardedWrites(self._wire)
        self._removed_logs = redis_log.RemovedLogs()

    @blocking
    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> Flow[dict[str, bytes]]:
        redis_keys = self._keys.for_namespace(namespace)
        if keys is None:
            command = pack("HGETALL", redis_keys.values)
            (pairs,) = yield self._wire.send_step((redis_keys.values, command), is_large=True)
            items = pairs.items() if isinstance(pairs, dict) else zip(pairs[::2], pairs[1::2], strict=True)
            return {to_text(key): value for key, value in items}
        if not keys:
            return {}
        is_large = len(keys) > _MAX_SMALL_READ
        (values,) = yield self._wire.send_step((redis_keys.values, _get_command(redis_keys, keys)), is_large=is_large)
        return _existing_values(keys, values)

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
        redis_keys = self._keys.for_namespace(namespace)
        commands = [redis_keys.count_entries, redis_keys.count_ids]
        if keys:
            commands.append(_get_command(redis_keys, keys))
        is_large = limit is None or max(limit, len(keys)) > _MAX_SMALL_READ
        wants_entries = limit != 0 and (before is None or before > 0)
        if wants_entries:
            commands.append(redis_log.read_command(redis_keys, after, before, limit, reverse=reverse))
        repair_until = None
        for pause in redis_log.PAUSES:
            total, id_count, *rest = yield self._wire.read_step(redis_keys[:3], commands, is_large=is_large)
            if total == id_count:
                return _to_page(keys, total, rest)
            if not repair_until:
                repair_until = yield from step(redis_log.last_seq, self._wire, redis_keys)
            yield from step(time.sleep, pause)  # meanwhile the writer of a repeated id removes it
        try:
            yield from step(redis_log.repair, self._wire, redis_keys, repair_until)
        except StoreError as error:  # a full server and a replica refuse the repair, but can be read
            if not (isinstance(error, StoreUnavailable) or is_full(error)):
                raise
        # Writers may repeat ids again and again; then only the whole log tells which entry came first.
        if wants_entries:
            commands[-1] = redis_log.read_command(redis_keys, 0, before, None, reverse=False)
        _, total, *rest = yield self._wire.read_step(redis_keys[:3], commands, is_large=True)
        if wants_entries:
            entries = redis_log.drop_repeats(rest[-1], after)
            rest[-1] = (entries[::-1] if reverse else entries)[:limit]
        return _to_page(keys, total, rest)

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
        redis_keys = self._keys.for_namespace(namespace)
        first_entries = _first_of_each_id(entries)
        commands = [_get_command(redis_keys, keys)] if keys else []
        if put:
            commands.append(_put_command(redis_keys, put))
        append_start = len(commands)
        commands += redis_log.append_commands(redis_keys, first_entries)
        replies = yield from self._commit(namespace, redis_keys, commands, ttl)
        values = _existing_values(keys, replies[0]) if keys else {}
        log_replies = replies[append_start:]
        new, total = yield from redis_log.settle_append(self._wire, redis_keys, first_entries, log_replies)
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
        redis_keys = self._keys.for_namespace(namespace)
        first_entries = _first_of_each_id(append)
        commands = redis_log.remove_commands(redis_keys, remove) if remove else []
        if delete:
            commands.append(pack("HDEL", redis_keys.values, *map(to_bytes, delete)))
        if put:
            commands.append(_put_command(redis_keys, put))
        append_start = len(commands)
        if first_entries or not put:  # a namespace exists from its first write on, even if that write leaves it empty
            commands += redis_log.append_commands(redis_keys, first_entries)
        send = partial(self._guarded_writes.write, guard=guard, put=put or {}, delete=delete) if guard else None
        # If the answer is lost, another writer may replace an entry before it is sent again; its mark "…/<id>" stays.
        marks = {key: id_ for key in put or () if (id_ := key.partition("/")[2]) in first_entries}
        trace = Trace(redis_keys, marks, len(commands)) if marks else None
        replies = yield from self._commit(namespace, redis_keys, commands, ttl, send, trace=trace)
        if first_entries and replies[-1] is not None:
            yield from redis_log.settle_append(self._wire, redis_keys, first_entries, replies[append_start:])

    @blocking
    def clear(self, namespace: Namespace) -> Flow[None]:
        redis_keys = self._keys.for_namespace(namespace)
        yield redis_dates.removal_step(self._wire, redis_keys)
        self._removed_logs.add(redis_keys.log)

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        return list(Directory(self._wire, self._keys, parent).newest(limit, before))

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        return self._distinct(self._wire.scan_keys(self._keys.pattern(prefix)))

    def namespaces_naming(self, part: str) -> Iterator[Namespace]:
        """Iterate over all namespaces of which this is a part, in one look at the server's keys.

        Directories that name it lose the rows of children that are gone, which may be all that there is: the children
        have expired, or their removal in a cluster was interrupted.
        """
        keys = list(self._wire.scan_keys(self._keys.pattern((part,), anywhere=True)))
        for parent in filter(None, map(self._keys.parent, keys)):
            if part in parent:
                self.recent(parent)
        return (namespace for namespace in self._distinct(keys) if part in namespace)

    def _distinct(self, keys: Iterable[bytes]) -> Iterator[Namespace]:
        seen: set[Namespace] = set()
        for namespace in map(self._keys.namespace, keys):
            if namespace is not None and namespace not in seen:
                seen.add(namespace)
                yield namespace

    def health(self) -> Health:
        """Ask each server with PING, which needs no other right; without retries, so an outage is reported at once."""
        return health_of(self._wire.address, lambda: list(self._wire.send_to_all(pack("PING"))))

    def stats(self) -> StoreStats:
        """Count the store's keys with SCAN, never with KEYS."""
        return redis_report.stats(self._wire, self._keys)

    def examine(self) -> Iterator[Finding]:
        """Examine the server as far as its user may; needs INFO, and CONFIG GET for the snapshot schedule."""
        return redis_report.findings(self._wire)

    @blocking
    def dates(self, namespace: Namespace) -> Flow[Dates | None]:
        return (yield from redis_dates.dates(self._wire, self._keys.for_namespace(namespace)))

    @blocking
    def set_dates(self, namespace: Namespace, dates: Dates) -> Flow[None]:
        redis_keys, updated_at = self._keys.for_namespace(namespace), dates.updated_at
        if updated_at is None:  # it stays as it is
            old_dates = yield from redis_dates.dates(self._wire, redis_keys)
            updated_at = old_dates and old_dates.updated_at
        yield from self._commit(namespace, redis_keys, [], dates.expires_in, updated_at=updated_at)

    def discard(self, namespace: Namespace, before: float) -> bool:
        redis_keys = self._keys.for_namespace(namespace)
        was_removed = redis_dates.discard(self._wire, redis_keys, before)
        if was_removed:
            self._removed_logs.add(redis_keys.log)
        return was_removed

    def close(self) -> None:
        """Close the connections; the next use connects again. Connections of a client that was handed in stay open."""
        self._wire.close()

    def __repr__(self) -> str:
        return f"RedisStore({self._wire.address!r})"

    def _commit(
        self,
        namespace: Namespace,
        redis_keys: NamespaceKeys,
        commands: Sequence[bytes],
        ttl: float | None,
        send_guarded: Callable[[NamespaceKeys, Sequence[bytes]], list[Any]] | None = None,
        *,
        trace: Trace | None = None,
        updated_at: float | None = None,
    ) -> Flow[list[Any]]:
        """Apply a change with the keys' expiry and the row in the directory; return the replies to ``commands``."""
        if (seconds := self._removed_logs.seconds_left(redis_keys.log)) > 0:
            yield from step(time.sleep, seconds)
        lifetime = _to_milliseconds(ttl)
        now = self._clock() if updated_at is None else updated_at
        listing_commands = redis_keys.listing_commands(now, lifetime)
        all_commands = [*commands, *redis_keys.expiry_commands(lifetime)]
        if self._wire.one_slot:
            all_commands += listing_commands
        if send_guarded:
            replies = yield from step(send_guarded, redis_keys, all_commands)
        else:
            can_batch = sum(map(len, commands)) <= _MAX_BATCHED_BYTES
            replies = yield self._wire.transact_step(redis_keys.log, all_commands, trace, can_batch=can_batch)
        listing_replies = replies
        try:
            if listing_commands and not self._wire.one_slot:
                listing_replies = yield self._wire.transact_step(redis_keys.directory, listing_commands)
            if listing_commands and lifetime is not None:
                directory = Directory(self._wire, self._keys, namespace[:-1])
                if directory.may_expire_before(lifetime, listing_replies):
                    yield from step(directory.extend_expiry, lifetime)
                if directory.is_sweep_due(listing_replies):
                    yield from step(directory.sweep, listing_replies[-1])
        except StoreError as error:
            if send_guarded:  # it was made, so it must not be repeated as it is
                raise self._wire.lost_write() from error
            raise
        return replies[: len(commands)]


def _to_page(keys: Sequence[str], total: int, replies: list[Any]) -> Page:
    """A page made of the replies for values and entries, each of which may not have been asked for."""
    values = _existing_values(keys, replies.pop(0)) if keys else {}
    entries = replies[0] if replies else []
    return Page([redis_log.to_item(*entry) for entry in entries], total, values)


def _get_command(redis_keys: NamespaceKeys, keys: Sequence[str]) -> bytes:
    return pack("HMGET", redis_keys.values, *map(to_bytes, keys))


def _put_command(redis_keys: NamespaceKeys, put: Mapping[str, bytes]) -> bytes:
    return pack("HSET", redis_keys.values, *(word for key, value in put.items() for word in (to_bytes(key), value)))


def _existing_values(keys: Sequence[str], replies: Sequence[bytes | None]) -> dict[str, bytes]:
    return {key: value for key, value in zip(keys, replies, strict=True) if value is not None}


def _first_of_each_id(entries: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
    first_entries: dict[str, bytes] = {}
    for id_, data in entries:
        first_entries.setdefault(id_, data)
    return first_entries


def _to_milliseconds(ttl: float | None) -> int | None:
    check_seconds("ttl", ttl)
    if ttl is None:
        return None
    if ttl > _MAX_TTL_SECONDS:
        raise ConfigurationError(f"ttl is a number of seconds that Redis can count to, or None, not {ttl!r}")
    return max(int(ttl * 1000), 1)
