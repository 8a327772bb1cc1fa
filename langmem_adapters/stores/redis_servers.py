"""The servers behind a Redis store: one, or the nodes of a cluster, with retries and a circuit breaker for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, finalize

from redis import ConnectionPool, RedisCluster
from redis.exceptions import AskError, AuthenticationError, ClusterDownError, ResponseError, SlotNotCoveredError
from redis.sentinel import SentinelConnectionPool

from langmem_adapters.concurrency.breaker import Breaker
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.stores.redis_connections import (
    LastUses,
    OwnConnections,
    call_with_connection,
    close_pool,
    drop_half_made,
)
from langmem_adapters.stores.redis_outage import Retries, is_down, is_temporary
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_sentinels import SentinelWatch

T = TypeVar("T")
_Exchange: TypeAlias = "Callable[[Any], T]"
_Caller: TypeAlias = "Callable[[_Exchange[Any]], Any]"
_MakeBreaker: TypeAlias = "Callable[[Callable[[], object], Callable[[Exception], bool]], Breaker]"

_MOVED_ERRORS = (AskError, ClusterDownError, SlotNotCoveredError)  # MovedError is an AskError


class OneServer:
    """The server of a pool; with a sentinel's pool, whichever is the primary when a connection is made."""

    one_slot = True
    """Whether all keys may be in one transaction; in a cluster, only keys with the same hash tag may."""

    def __init__(
        self, pool: ConnectionPool, owned: bool, retries: Retries, make_breaker: _MakeBreaker, last_uses: LastUses
    ) -> None:
        # The owner of a given client has configured its connections' retries.
        self._retries = retries if owned else Retries(0)
        call: _Caller = partial(call_with_connection, pool)
        self._own_connections: list[OwnConnections | SentinelWatch] = []
        if owned:
            connections = OwnConnections(pool, last_uses, keep_borrowed=True)
            call = connections.call
            self._own_connections.append(connections)
            _close_when_unused(self, pool.disconnect)
        if isinstance(pool, SentinelConnectionPool) and pool.is_master:
            watch = SentinelWatch(pool, call, last_uses)
            call = watch.call
            if owned:
                self._own_connections.append(watch)
                _close_when_unused(self, watch.close)
        self._call = call
        self._breaker = make_breaker(lambda: call(_ping), is_down if owned else _is_slow_failure)

    def group_by_server(self, keys: Sequence[bytes]) -> Iterable[Sequence[int]]:
        """Group keys by server, as lists of their positions."""
        return [range(len(keys))] if keys else []

    def callers(self) -> list[_Caller]:
        """For each server, a function that calls another with a connection to it."""
        return [self._call]

    def call(self, key: bytes, exchange: _Exchange[T]) -> T:  # noqa: ARG002 - a cluster uses it
        attempt: Callable[[], T] = partial(self._call, exchange)
        return self._breaker.guard(partial(self._retries.call, attempt))

    def close(self) -> None:
        for connections in self._own_connections:
            connections.close()


@dataclass(eq=False, repr=False)
class Cluster:
    """The nodes of a cluster. A node that is down does not block the calls to the others."""

    one_slot = False

    make_client: Callable[[], RedisCluster]
    owned: bool
    retries: Retries
    make_breaker: _MakeBreaker
    last_uses: LastUses

    def __post_init__(self) -> None:
        self._breakers: dict[str, Breaker] = {}  # by node, or by slot that no node serves; "" at first
        self._lock = ForkSafeLock()
        self._own_connections: WeakKeyDictionary[ConnectionPool, OwnConnections] = WeakKeyDictionary()
        self._client: RedisCluster | None = None
        self._failure: tuple[float, Exception] | None = None  # of the last failed attempt to make a client

    def group_by_server(self, keys: Sequence[bytes]) -> Iterable[Sequence[int]]:
        if len(keys) == 1:
            return [(0,)]
        positions: dict[str | int, list[int]] = {}
        for position, key in enumerate(keys):
            name, _ = self._breaker_name(key)
            positions.setdefault(name or position, []).append(position)  # before the first call, each alone
        return positions.values()

    def callers(self) -> list[_Caller]:
        client = self._refresh_nodes()  # a node that has joined since has keys of the others
        nodes = client.get_primaries()  # type: ignore[no-untyped-call]
        return [self._caller(client.get_redis_connection(node).connection_pool) for node in nodes]

    def call(self, key: bytes, exchange: _Exchange[T]) -> T:
        attempt: Callable[[], T] = lambda: self._caller(self._pool(key))(exchange)  # noqa: E731 - with its type
        return self._breaker_of(key).guard(
            lambda: self.retries.call(attempt, _is_temporary_in_cluster, self._try_refresh)
        )

    def close(self) -> None:
        with self._lock.held():
            client = self._client
        if client is not None and self.owned:
            for pool in _pools(client):
                close_pool(pool)

    def _pool(self, key: bytes) -> ConnectionPool:
        client = self._connected_client()
        node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
        return client.get_redis_connection(node).connection_pool

    def _caller(self, pool: ConnectionPool) -> _Caller:
        """As :func:`call_with_connection`; for a pool of the store's own, first come, first served."""
        if not self.owned:
            return partial(call_with_connection, pool)
        connections = self._own_connections.get(pool)
        if connections is None:  # another thread may be first
            connections = self._own_connections.setdefault(pool, OwnConnections(pool, self.last_uses))
        return connections.call

    def _connected_client(self) -> RedisCluster:
        started = time.monotonic()
        with self._lock.held():
            if self._client is None:
                if self._failure is not None and self._failure[0] > started:  # all who waited get the same error
                    raise self._failure[1].with_traceback(None)  # in no variable: its traceback will hold this frame
                try:
                    self._client = self.make_client()
                except Exception as error:
                    self._failure = time.monotonic(), error
                    raise
                self.last_uses.was_long_ago(self._client)  # its first use
                if self.owned:
                    _close_when_unused(self, self._client.close)
            return self._client

    def _breaker_of(self, key: bytes) -> Breaker:
        name, is_node = self._breaker_name(key)

        def probe() -> None:
            self._try_refresh()  # another node may have taken over
            command = pack("EXISTS", key)  # not PING, which the nodes of a cluster that is down answer
            self._caller(self._pool(key))(partial(_check_answer, command=command))

        if breaker := self._breakers.get(name):
            return breaker
        return self._breakers.setdefault(name, self.make_breaker(probe, _is_node_down if is_node else is_down))

    def _breaker_name(self, key: bytes) -> tuple[str, bool]:
        """The name of a node, or of a slot that no node serves, and whether it is a node."""
        client = self._client
        if client is None:
            return "", False
        try:
            return str(client.get_node_from_key(key).name), True  # type: ignore[no-untyped-call]
        except SlotNotCoveredError:  # the call itself raises it
            return f"slot {client.keyslot(key)}", False  # type: ignore[no-untyped-call]

    def _try_refresh(self, _: Exception | None = None) -> None:
        try:
            self._refresh_nodes()
        except Exception as error:
            if not is_down(error):  # otherwise the next attempt raises it
                raise

    def _refresh_nodes(self) -> RedisCluster:
        """Ask the nodes who serves which slots; if none of the known nodes is left, ask those given at first."""
        client = self._connected_client()
        if self.owned and self.last_uses.was_long_ago(client):
            for pool in _pools(client):
                pool.disconnect(inuse_connections=False)
        startup_nodes = client.nodes_manager.startup_nodes
        missing_nodes = [(node.host, node.port) for node in client.startup_nodes if node.name not in startup_nodes]
        try:
            client.nodes_manager.initialize(additional_startup_nodes_info=missing_nodes)
        except BaseException as error:
            drop_half_made(_pools(client), error)
            raise
        return client


def _pools(client: RedisCluster) -> list[ConnectionPool]:
    nodes = client.get_nodes()  # type: ignore[no-untyped-call]
    return [node.redis_connection.connection_pool for node in nodes if node.redis_connection]


def _close_when_unused(servers: OneServer | Cluster, close: Callable[[], None]) -> None:
    """Close connections once nothing refers to these servers any more.

    They would be closed then anyway. But the garbage collector may take a socket of a reference cycle before its
    connection, and Python warns of that. This also covers work in the background that came after ``close()``.
    """
    finalize(servers, close).atexit = False


def _is_slow_failure(error: Exception) -> bool:
    """Whether a given client retries after this for seconds, as after a refused login: each call would be so late."""
    return is_down(error) or isinstance(error, AuthenticationError)


def _is_temporary_in_cluster(error: Exception) -> bool:
    return is_temporary(error) or isinstance(error, _MOVED_ERRORS)


def _is_node_down(error: Exception) -> bool:
    return is_down(error) and not isinstance(error, SlotNotCoveredError)  # its other slots can still be used


def _check_answer(connection: Any, command: bytes) -> None:
    """Check that a server answers; one that refuses is not down, as one that cannot save its data refuses a PING."""
    connection.send_packed_command((command,))
    try:
        connection.read_response()
    except ResponseError as error:
        if is_down(error):
            raise


_ping = partial(_check_answer, command=pack("PING"))
