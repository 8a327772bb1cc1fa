"""How the Redis store uses a connection: taken from redis-py's pool, left ready for whoever takes it next."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from redis import BlockingConnectionPool, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ReadOnlyError, ResponseError, WatchError
from redis.exceptions import TimeoutError as RedisTimeoutError

from langmem_adapters.forks import in_child
from langmem_adapters.stores.redis_outage import is_down

__all__ = ["SECOND_VERSION", "Handy", "on"]

T = TypeVar("T")

SECOND_VERSION = (2, "2")
"""Of the protocol: a connection brings nothing but the replies to what was sent."""
_UNUSABLE = (RedisConnectionError, RedisTimeoutError, OSError)


def on(pool: ConnectionPool, talk: Callable[[Any], T]) -> T:
    """Talk on a connection of a pool."""
    connection: Any = pool.get_connection()

    def drop(error: Exception) -> None:
        connection.disconnect()
        if not is_down(error):
            raise error

    try:
        return connection.retry.call_with_retry(lambda: talk(connection), drop)  # type: ignore[no-any-return]
    except BaseException as error:
        _leave(connection, error)
        raise
    finally:
        pool.release(connection)


def _leave(connection: Any, error: BaseException) -> None:
    # After a refusal all replies were read. A replica is left, as its name may lead to the primary by now.
    if not isinstance(error, ResponseError | WatchError) or isinstance(error, ReadOnlyError):
        connection.disconnect()


class Handy:
    """Connections of a pool of our own that were used a moment ago, and so need none of its ceremony.

    What a pool does around a call takes a fifth as long as the call. They stay lent from it; whoever finds none here
    takes one from the pool, or waits there.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self.begin()
        _of_this_process.add(self)

    def begin(self) -> None:
        self._free: deque[Any] = deque()
        self._waiting: deque[None] = deque()  # one for each who may wait in the pool

    @staticmethod
    def suits(pool: ConnectionPool) -> bool:
        """Whether that is all that the pool does: a sentinel's looks for the primary, the third protocol for news."""
        version = pool.connection_kwargs.get("protocol")
        return type(pool) is BlockingConnectionPool and version in SECOND_VERSION

    def on(self, talk: Callable[[Any], T]) -> T:
        """Talk on a connection, as :func:`on` does; these are not told to try again."""
        connection = self._take()
        try:
            answer = talk(connection)
        except BaseException as error:
            _leave(connection, error)
            self._pool.release(connection)
            raise
        self._free.append(connection)
        if self._waiting:
            self._hand_over()
        return answer

    def close(self) -> None:
        """Give them back to the pool."""
        while self._hand_over():
            pass

    def _take(self) -> Any:
        try:
            connection = self._free.pop()
        except IndexError:
            return self._take_from_pool()
        try:
            if not connection.can_read():  # nothing was left unread, and the server has not hung up
                return connection
        except _UNUSABLE:
            pass
        connection.disconnect()
        self._pool.release(connection)
        return self._take_from_pool()

    def _take_from_pool(self) -> Any:
        self._waiting.append(None)
        try:
            self._hand_over()  # what came back before anybody could see that somebody waits
            return self._pool.get_connection()
        finally:
            self._waiting.pop()

    def _hand_over(self) -> bool:
        try:
            connection = self._free.pop()
        except IndexError:
            return False
        self._pool.release(connection)
        return True


_of_this_process: weakref.WeakSet[Handy] = weakref.WeakSet()


def _forget() -> None:
    """The connections are the parent's."""
    for handy in _of_this_process:
        handy.begin()


in_child(_forget)
