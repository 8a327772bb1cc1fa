"""How the Redis store borrows connections of redis-py's pools, and leaves them ready for whoever is next."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from redis import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError, WatchError

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.stores.redis_outage import LOST, NONE_FREE, REPLICA, is_down

__all__ = ["RESP2", "FIFOPool", "OwnConnections", "hang_up", "on"]

T = TypeVar("T")

RESP2 = (2, "2")
"""Of the protocol: a connection brings nothing but the replies to what was sent."""
_UNUSABLE = (*LOST, OSError)
_OLD = (*LOST, *REPLICA)
"""After these, so may other connections lead nowhere that were made before, or to the primary of then."""


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


def hang_up(pool: ConnectionPool) -> None:
    """Close the connections of a pool of our own: those in use when they come back, so that no call is disturbed."""
    pool.update_active_connections_for_reconnect()
    pool.disconnect(inuse_connections=False)


def _leave(connection: Any, error: BaseException) -> None:
    # After a refusal all replies were read. A replica is left, as its name may lead to the primary by now.
    if not isinstance(error, ResponseError | WatchError) or isinstance(error, REPLICA):
        connection.disconnect()


class FIFOPool:
    """Things to use one at a time, such as connections. Whoever finds none free waits: first come, first served.

    Args:
        size: How many there are. At first they are all None, for what is still to be made.
        seconds: To wait at the most; None: for ever.
    """

    def __init__(self, size: int, seconds: float | None) -> None:
        self._size = size
        self._seconds = seconds
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Have them all free: what is in use is used by the parent."""
        self._free: deque[Any] = deque([None] * self._size)
        self._waiting: deque[queue.SimpleQueue[Any]] = deque()
        self._handing = threading.Lock()

    def take(self) -> Any:
        """Take what was used last, or wait."""
        if not self._waiting:
            with suppress(IndexError):
                return self._free.pop()
        mine: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting.append(mine)
        try:
            self._hand_over()  # what came back before anybody could see that somebody waits
            return mine.get(timeout=self._seconds)
        except BaseException as error:
            with self._handing:
                late = mine not in self._waiting  # it came in this very moment
                if not late:
                    self._waiting.remove(mine)
            if not isinstance(error, queue.Empty):  # interrupted
                if late:
                    self.give_back(mine.get())
                raise
            if late:
                return mine.get()
            raise RedisConnectionError(f"{NONE_FREE}.") from None

    def give_back(self, thing: Any) -> None:
        if thing is None:
            self._free.appendleft(thing)  # what is there already is taken first
        else:
            self._free.append(thing)
        if self._waiting:
            self._hand_over()

    def empty(self) -> Iterator[Any]:
        """Give what is free and not None; when the next is asked for, None is in its place."""
        for _ in range(self._size):
            try:
                thing = self._free.pop()
            except IndexError:  # all are in use
                return
            try:
                if thing is not None:
                    yield thing
            finally:
                self.give_back(None)

    def _hand_over(self) -> None:
        with self._handing, suppress(IndexError):  # somebody was quicker
            while self._waiting:
                thing = self._free.pop()
                self._waiting.popleft().put(thing)


class OwnConnections:
    """Connections of a pool of our own, lent first come, first served.

    The pool alone would refuse who finds none free: he waits here, as long as for an answer. redis-py has one that
    waits. Its queue stays locked for ever, where an interrupt comes as it is let go of.

    What a pool does around a call takes a fifth as long as the call. So connections may be kept ``at_hand``: these stay
    lent from the pool, and need none of its ceremony where they were used a moment ago.
    """

    def __init__(self, pool: ConnectionPool, *, at_hand: bool = False) -> None:
        self._pool = pool
        self._at_hand = at_hand
        seconds = getattr(pool, "timeout", pool.connection_kwargs.get("socket_timeout"))
        self._fifo = FIFOPool(pool.max_connections, seconds)

    @staticmethod
    def may_be_at_hand(pool: ConnectionPool) -> bool:
        """Whether that is all that the pool does: a sentinel's looks for the primary, the third protocol for news."""
        return type(pool) is ConnectionPool and pool.connection_kwargs.get("protocol") in RESP2

    def on(self, talk: Callable[[Any], T]) -> T:
        """Talk on a connection, as :func:`on` does; none of a pool of our own is told to try again."""
        connection = self._take()
        try:
            answer = talk(connection)
            stays = self._at_hand and not connection.should_reconnect()  # else all were closed meanwhile
        except BaseException as error:
            _leave(connection, error)
            self._release(connection)
            if isinstance(error, _OLD):
                self._let_go()
            raise
        if stays:
            self._fifo.give_back(connection)
        else:
            self._release(connection)
        return answer

    def close(self) -> None:
        """Close them, as :func:`hang_up` does."""
        self._let_go()
        hang_up(self._pool)

    def _let_go(self) -> None:
        """Have none open that nobody uses."""
        for connection in self._fifo.empty():
            connection.disconnect()
            self._pool.release(connection)
        self._pool.disconnect(inuse_connections=False)

    def _take(self) -> Any:
        connection = self._fifo.take()
        if connection is not None:
            try:
                if not connection.can_read():  # nothing was left unread, and the server has not hung up
                    return connection
            except _UNUSABLE:
                pass
            except BaseException:  # an interrupt
                self._fifo.give_back(connection)
                raise
            connection.disconnect()
            self._pool.release(connection)
        try:
            return self._pool.get_connection()
        except BaseException:
            self._fifo.give_back(None)
            raise

    def _release(self, connection: Any) -> None:
        try:
            self._pool.release(connection)
        finally:  # also where that is interrupted: else nobody would ever have this one's place again
            self._fifo.give_back(None)
