"""The servers behind a Redis store: one, or the nodes of a cluster, with retries and a circuit breaker for each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary, finalize

from redis import ConnectionPool, RedisCluster
from redis.exceptions import AskError, AuthenticationError, ClusterDownError, ResponseError, SlotNotCoveredError
from redis.sentinel import SentinelConnectionPool

from langmem_adapters.concurrency.breaker import Breaker
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.stores.redis_connections import OwnConnections, hang_up, on
from langmem_adapters.stores.redis_outage import Retries, is_down, may_pass
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_sentinels import SentinelWatch

__all__ = ["Cluster", "OneServer"]

T = TypeVar("T")
_Talk: TypeAlias = "Callable[[Any], T]"
_On: TypeAlias = "Callable[[_Talk[Any]], Any]"
_MakeBreaker: TypeAlias = "Callable[[Callable[[], object], Callable[[Exception], bool]], Breaker]"

_MOVED = (AskError, ClusterDownError, SlotNotCoveredError)  # MovedError is an AskError


class OneServer:
    """The server of a pool; with a sentinel's pool, whichever is the primary when a connection is made."""

    one_slot = True
    """Whether all keys may be in one transaction; in a cluster, only keys with the same hash tag may."""

    def __init__(self, pool: ConnectionPool, owned: bool, retries: Retries, breaker: _MakeBreaker) -> None:
        # The owner of a given client has configured its connections' retries.
        self._retries = retries if owned else Retries(0)
        talk_on: _On = partial(on, pool)
        self._own: list[OwnConnections | SentinelWatch] = []
        if owned:
            connections = OwnConnections(pool, at_hand=OwnConnections.may_be_at_hand(pool))
            talk_on = connections.on
            self._own.append(connections)
            _at_the_end_of(self, pool.disconnect)
        if isinstance(pool, SentinelConnectionPool) and pool.is_master:
            watch = SentinelWatch(pool, talk_on)
            talk_on = watch.on
            if owned:
                self._own.append(watch)
                _at_the_end_of(self, watch.close)
        self._on = talk_on
        self._breaker = breaker(lambda: talk_on(_ping), is_down if owned else _is_costly)

    def together(self, keys: Sequence[bytes]) -> Iterable[Sequence[int]]:
        """Group keys by server, as lists of their positions."""
        return [range(len(keys))] if keys else []

    def each(self) -> list[_On]:
        return [self._on]

    def call(self, key: bytes, talk: _Talk[T]) -> T:  # noqa: ARG002 - a cluster uses it
        attempt: Callable[[], T] = partial(self._on, talk)
        return self._breaker.guard(lambda: self._retries.call(attempt))

    def close(self) -> None:
        for own in self._own:
            own.close()


class Cluster:
    """The nodes of a cluster. A node that is down does not block the calls to the others."""

    one_slot = False

    def __init__(self, make: Callable[[], RedisCluster], owned: bool, retries: Retries, breaker: _MakeBreaker) -> None:
        self._make = make
        self._owned = owned
        self._retries = retries
        self._breaker = breaker
        self._breakers: dict[str, Breaker] = {}  # by node, or by slot that no node serves; "" at first
        self._lock = ForkSafeLock()
        self._own: WeakKeyDictionary[ConnectionPool, OwnConnections] = WeakKeyDictionary()
        self._client: RedisCluster | None = None
        self._failure: tuple[float, Exception] | None = None  # of the last failed attempt to make a client

    def together(self, keys: Sequence[bytes]) -> Iterable[Sequence[int]]:
        if len(keys) == 1:
            return [(0,)]  # without asking the servers, which may be out of reach
        places: dict[ConnectionPool, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(self._pool(key), []).append(place)
        return places.values()

    def each(self) -> list[_On]:
        client = self._told_anew()  # a node that has joined since has keys of the others
        nodes = client.get_primaries()  # type: ignore[no-untyped-call]
        return [self._on(client.get_redis_connection(node).connection_pool) for node in nodes]

    def call(self, key: bytes, talk: _Talk[T]) -> T:
        attempt: Callable[[], T] = lambda: self._on(self._pool(key))(talk)  # noqa: E731 - with its type
        return self._breaker_of(key).guard(
            lambda: self._retries.call(attempt, _may_pass_in_a_cluster, self._look_again)
        )

    def close(self) -> None:
        with self._lock.held():
            client = self._client
        if client is not None and self._owned:
            for node in client.get_nodes():  # type: ignore[no-untyped-call]
                if node.redis_connection:
                    hang_up(node.redis_connection.connection_pool)

    def _pool(self, key: bytes) -> ConnectionPool:
        client = self._connected()
        node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
        return client.get_redis_connection(node).connection_pool

    def _on(self, pool: ConnectionPool) -> _On:
        """As :func:`on` a pool; for a pool of the store's own, first come, first served."""
        if not self._owned:
            return partial(on, pool)
        return (self._own.get(pool) or self._own.setdefault(pool, OwnConnections(pool))).on

    def _connected(self) -> RedisCluster:
        began = time.monotonic()
        with self._lock.held():
            if self._client is None:
                if self._failure is not None and self._failure[0] > began:  # all who waited get the same error
                    raise self._failure[1].with_traceback(None)
                try:
                    self._client = self._make()
                except Exception as error:
                    self._failure = time.monotonic(), error
                    raise
                if self._owned:
                    _at_the_end_of(self, self._client.close)
            return self._client

    def _breaker_of(self, key: bytes) -> Breaker:
        name, is_node = self._asked_for(key)

        def probe() -> None:
            self._look_again()  # another node may have taken over
            look = pack("EXISTS", key)  # not PING, which the nodes of a cluster that is down answer
            self._on(self._pool(key))(partial(_answers, command=look))

        return self._breakers.get(name) or self._breakers.setdefault(
            name, self._breaker(probe, _is_node_down if is_node else is_down)
        )

    def _asked_for(self, key: bytes) -> tuple[str, bool]:
        """The name of a node, or of a slot that no node serves, and whether it is a node."""
        client = self._client
        if client is None:
            return "", False
        try:
            return str(client.get_node_from_key(key).name), True  # type: ignore[no-untyped-call]
        except SlotNotCoveredError:  # the call itself raises it
            return f"slot {client.keyslot(key)}", False  # type: ignore[no-untyped-call]

    def _look_again(self, _: Exception | None = None) -> None:
        try:
            self._told_anew()
        except Exception as error:
            if not is_down(error):  # otherwise the next attempt raises it
                raise

    def _told_anew(self) -> RedisCluster:
        """Ask the nodes who serves which slots; if none of the known nodes is left, ask those given at first."""
        client = self._connected()
        told = client.nodes_manager.startup_nodes
        given = [(node.host, node.port) for node in client.startup_nodes if node.name not in told]
        client.nodes_manager.initialize(additional_startup_nodes_info=given)
        return client


def _at_the_end_of(servers: OneServer | Cluster, close: Callable[[], None]) -> None:
    """Close connections once nothing refers to these servers any more.

    They would be closed then anyway. But the garbage collector may take a socket of a reference cycle before its
    connection, and Python warns of that. This also covers work in the background that came after ``close()``.
    """
    finalize(servers, close).atexit = False


def _is_costly(error: Exception) -> bool:
    """Whether a given client retries after this for seconds, as after a refused login: each call would be so late."""
    return is_down(error) or isinstance(error, AuthenticationError)


def _may_pass_in_a_cluster(error: Exception) -> bool:
    return may_pass(error) or isinstance(error, _MOVED)


def _is_node_down(error: Exception) -> bool:
    return is_down(error) and not isinstance(error, SlotNotCoveredError)  # its other slots can still be used


def _answers(connection: Any, command: bytes) -> None:
    """Check that a server answers; one that refuses is not down, as one that cannot save its data refuses a PING."""
    connection.send_packed_command((command,))
    try:
        connection.read_response()
    except ResponseError as error:
        if is_down(error):
            raise


_ping = partial(_answers, command=pack("PING"))
