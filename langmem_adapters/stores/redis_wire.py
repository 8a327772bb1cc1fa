"""How the Redis store talks: whole transactions in one round trip, again after a lost connection.

redis-py's pipelines cost about as much as the trip itself, so its connections are used without them: their pools,
handshakes, parsing, health checks and retries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import redis
from redis import ConnectionPool, RedisCluster
from redis.backoff import EqualJitterBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
    TryAgainError,
    WatchError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from langmem_adapters.errors import Conflict, StoreUnavailable
from langmem_adapters.stores.redis_errors import translate

__all__ = ["Wire", "pack"]

T = TypeVar("T")
_Talk: TypeAlias = "Callable[[Any], T]"

_ATTEMPTS = 64  # how often a watched key may change under a writer
_BACKOFF = EqualJitterBackoff(cap=1.0, base=0.05)  # seconds
_RETRIES = 2
_SCAN = 1000  # keys that one SCAN looks at
_MOVED = (AskError, TryAgainError, ClusterDownError, SlotNotCoveredError)  # MovedError is an AskError
_LOST = (RedisConnectionError, RedisTimeoutError)
_DRIVER = (RedisError, RedisClusterException)
# Pools take no argument since 5.3, and warn about one.
_NAMED: tuple[str, ...] = () if redis.VERSION >= (5, 3) else ("MULTI",)


def _packed(words: tuple[bytes | str | float, ...]) -> bytes:
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    strings = [b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded]
    return b"*%d\r\n%b" % (len(words), b"".join(strings))


try:
    from hiredis import pack_command
except ImportError:  # redis-py does without it, too
    _pack: Callable[[Any], bytes] = _packed
else:
    _pack = pack_command


def pack(*words: bytes | str | float) -> bytes:
    """Write a command as the server reads it: an array of strings."""
    return _pack(words)


_MULTI, _EXEC = pack("MULTI"), pack("EXEC")


class _Servers(Protocol):
    one_slot: bool

    def pool(self, key: bytes) -> ConnectionPool: ...

    def pools(self) -> list[ConnectionPool]: ...

    def call(self, key: bytes, talk: _Talk[T]) -> T: ...

    def close(self) -> None: ...


class Wire:
    """Sends commands and gives their replies as the server wrote them.

    Raises :class:`~langmem_adapters.errors.StoreError` for whatever goes wrong, in words that say what to do.
    """

    def __init__(self, source: ConnectionPool | Callable[[], RedisCluster], address: str, *, owned: bool) -> None:
        self._servers: _Servers = _Cluster(source, owned) if callable(source) else _Server(source, owned)
        self._address = address

    @property
    def one_slot(self) -> bool:
        """Whether all keys may be in one transaction; in a cluster, only those with the same hash tag."""
        return self._servers.one_slot

    def transact(self, key: bytes, commands: Sequence[bytes]) -> list[Any]:
        """MULTI … EXEC, where ``key`` lives. After a lost answer all is sent again."""
        try:
            return self._servers.call(key, lambda connection: _transact(connection, commands))
        except _DRIVER as error:
            raise translate(error, self._address) from error

    def optimistic(
        self,
        key: bytes,
        reads: Sequence[bytes],
        decide: Callable[[list[Any]], Sequence[bytes] | None],
    ) -> list[Any] | None:
        """WATCH a key, read, and MULTI … EXEC what ``decide`` makes of the replies; None: it wants nothing.

        Once EXEC is sent, a lost answer is an error: whether it was made, only another look can tell.
        """

        def attempt(connection: Any) -> list[Any] | None:
            try:
                commands = decide(_pipeline(connection, [pack("WATCH", key), *reads])[1:])
                if commands is None:
                    _pipeline(connection, [pack("UNWATCH")])
                    return None
            except BaseException:
                connection.disconnect()  # it may watch still
                raise
            try:
                return _transact(connection, commands)
            except _LOST as error:
                raise StoreUnavailable(
                    f"the connection to Redis at {self._address} was lost before it answered a guarded write,"
                    " which may have been made: read again before you write again"
                ) from error

        for _ in range(_ATTEMPTS):
            with suppress(WatchError), self._translated():
                return self._servers.call(key, attempt)
        raise Conflict(f"other writers changed the same namespace {_ATTEMPTS} times in a row; try again")

    def send(self, *commands: tuple[bytes, bytes]) -> list[Any]:
        """Send commands, each with its key, as they are: in one round trip to each server that is concerned."""
        replies: list[Any] = [None] * len(commands)
        with self._translated():
            for places in self._by_server([key for key, _ in commands]):
                chosen = [commands[place][1] for place in places]
                answers = self._servers.call(commands[places[0]][0], partial(_pipeline, commands=chosen))
                for place, answer in zip(places, answers, strict=True):
                    replies[place] = answer
        return replies

    def keys(self, pattern: bytes) -> Iterator[bytes]:
        """Go through the names of keys, on all servers, with SCAN; a name may come more than once."""
        with self._translated():
            pools = self._servers.pools()
        for pool in pools:
            cursor: Any = b"0"
            while True:
                command = pack("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN)
                with self._translated():
                    cursor, names = _on(pool, partial(_pipeline, commands=[command]))[0]
                yield from names
                if int(cursor) == 0:
                    break

    def close(self) -> None:
        """Close the connections, unless they are those of a client that was handed in."""
        self._servers.close()

    def _by_server(self, keys: Sequence[bytes]) -> Iterable[list[int]]:
        places: dict[ConnectionPool, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(self._servers.pool(key), []).append(place)
        return places.values()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except WatchError:
            raise
        except _DRIVER as error:
            raise translate(error, self._address) from error


class _Server:
    one_slot = True

    def __init__(self, pool: ConnectionPool, owned: bool) -> None:
        self._pool = pool
        self._owned = owned
        # Connections of a given client have been told by its owner how to try again.
        self._retry = Retry(_BACKOFF, _RETRIES if owned else 0)

    def pool(self, key: bytes) -> ConnectionPool:  # noqa: ARG002 - as in a cluster
        return self._pool

    def pools(self) -> list[ConnectionPool]:
        return [self._pool]

    def call(self, key: bytes, talk: _Talk[T]) -> T:  # noqa: ARG002 - as in a cluster
        return self._retry.call_with_retry(lambda: _on(self._pool, talk), _give_up)

    def close(self) -> None:
        if self._owned:
            self._pool.disconnect()


class _Cluster:
    one_slot = False

    def __init__(self, make: Callable[[], RedisCluster], owned: bool) -> None:
        self._make = make
        self._owned = owned
        self._lock = threading.Lock()
        self._client: RedisCluster | None = None
        self._retry = Retry(_BACKOFF, _RETRIES, (*_LOST, *_MOVED))

    def pool(self, key: bytes) -> ConnectionPool:
        client = self._connected()
        node = client.get_node_from_key(key)  # type: ignore[no-untyped-call]
        if node is None:
            raise SlotNotCoveredError(f"no node serves the slot of {key!r}")
        return client.get_redis_connection(node).connection_pool

    def pools(self) -> list[ConnectionPool]:
        client = self._connected()
        nodes = client.get_primaries()  # type: ignore[no-untyped-call]
        return [client.get_redis_connection(node).connection_pool for node in nodes]

    def call(self, key: bytes, talk: _Talk[T]) -> T:
        return self._retry.call_with_retry(lambda: _on(self.pool(key), talk), self._look_again)

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None and self._owned:
            client.close()

    def _connected(self) -> RedisCluster:
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    def _look_again(self, error: Exception) -> None:
        _give_up(error)
        self._connected().nodes_manager.initialize()


def _give_up(error: Exception) -> None:
    """Raise what will be the same next time."""
    if isinstance(error, AuthenticationError) or "No connection available" in str(error):
        raise error


def _on(pool: ConnectionPool, talk: _Talk[T]) -> T:
    connection: Any = pool.get_connection(*_NAMED)

    def drop(error: Exception) -> None:
        connection.disconnect()
        _give_up(error)

    try:
        return connection.retry.call_with_retry(lambda: talk(connection), drop)  # type: ignore[no-any-return]
    except (ResponseError, WatchError):
        raise  # all replies were read
    except BaseException:
        connection.disconnect()
        raise
    finally:
        pool.release(connection)


def _transact(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    connection.send_packed_command([b"".join((_MULTI, *commands, _EXEC))])
    *queued, answer = _replies(connection, len(commands) + 2)
    if answer is None:
        raise WatchError
    if isinstance(answer, ResponseError):  # one of the commands was refused; the others were not made either
        raise next((reply for reply in queued if isinstance(reply, ResponseError)), answer)
    return _checked(answer)


def _pipeline(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    connection.send_packed_command([b"".join(commands)])
    return _checked(_replies(connection, len(commands)))


def _replies(connection: Any, count: int) -> list[Any]:
    """Read all replies, refusals among them, so that the connection is ready for the next command."""
    read = connection.read_response
    replies = []
    for _ in range(count):
        try:
            replies.append(read())
        except ResponseError as error:  # noqa: PERF203 - the rest must be read all the same
            replies.append(error)
    return replies


def _checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
