"""Borrow connections from redis-py's pools, and return them ready for the next caller."""

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
"""The protocol versions in which a connection receives nothing but replies to what was sent."""
_UNUSABLE = (*LOST, OSError)
_OLD = (*LOST, *REPLICA)
"""After these errors, connections made earlier may also be dead, or lead to a server that is primary no more."""


def on(pool: ConnectionPool, talk: Callable[[Any], T]) -> T:
    """Call ``talk`` with a connection of a pool."""
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
    """Close a pool of the store's own: connections in use are closed when they come back, so no call is disturbed."""
    pool.update_active_connections_for_reconnect()
    pool.disconnect(inuse_connections=False)


def _leave(connection: Any, error: BaseException) -> None:
    # After a refusal all replies were read. A replica is dropped, as its name may lead to the primary by now.
    if not isinstance(error, ResponseError | WatchError) or isinstance(error, REPLICA):
        connection.disconnect()


class FIFOPool:
    """Things to use one at a time, such as connections. A caller that finds none free waits: first come, first served.

    Args:
        size: How many there are. At first all are None, which stands for one that is still to be made.
        seconds: The longest wait; None: for ever.
    """

    def __init__(self, size: int, seconds: float | None) -> None:
        self._size = size
        self._seconds = seconds
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Have them all free: those in use are used by the parent process."""
        self._free: deque[Any] = deque([None] * self._size)
        self._waiting: deque[queue.SimpleQueue[Any]] = deque()
        self._handing = threading.Lock()

    def take(self) -> Any:
        """Take the one that was used last, or wait."""
        if not self._waiting:
            with suppress(IndexError):
                return self._free.pop()
        mine: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiting.append(mine)
        try:
            self._hand_over()  # one may have come back before this caller was seen to wait
            return mine.get(timeout=self._seconds)
        except BaseException as error:
            with self._handing:
                late = mine not in self._waiting  # it was handed over just now
                if not late:
                    self._waiting.remove(mine)
            if not isinstance(error, queue.Empty):  # an interrupt
                if late:
                    self.give_back(mine.get())
                raise
            if late:
                return mine.get()
            raise RedisConnectionError(f"{NONE_FREE}.") from None

    def give_back(self, thing: Any) -> None:
        if thing is None:
            self._free.appendleft(thing)  # existing ones are taken first
        else:
            self._free.append(thing)
        if self._waiting:
            self._hand_over()

    def empty(self) -> Iterator[Any]:
        """Yield those that are free and not None; each is replaced by None when the next one is asked for."""
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
        with self._handing, suppress(IndexError):  # another caller took it
            while self._waiting:
                thing = self._free.pop()
                self._waiting.popleft().put(thing)


class OwnConnections:
    """Connections of a pool of the store's own, lent first come, first served.

    The pool alone would refuse a caller that finds none free; here the caller waits, as long as for a reply. redis-py
    has a pool that waits, but its queue can stay locked for ever if an interrupt comes while it is released.

    A pool's work around a call takes a fifth of the call's time. So connections may be kept ``at_hand``: they stay lent
    from the pool, and skip that work if they were used a moment ago.
    """

    def __init__(self, pool: ConnectionPool, *, at_hand: bool = False) -> None:
        self._pool = pool
        self._at_hand = at_hand
        seconds = getattr(pool, "timeout", pool.connection_kwargs.get("socket_timeout"))
        self._fifo = FIFOPool(pool.max_connections, seconds)

    @staticmethod
    def may_be_at_hand(pool: ConnectionPool) -> bool:
        """Whether the pool does nothing else: a sentinel's pool looks for the primary, RESP3 for push messages."""
        return type(pool) is ConnectionPool and pool.connection_kwargs.get("protocol") in RESP2

    def on(self, talk: Callable[[Any], T]) -> T:
        """Call ``talk`` with a connection, as :func:`on` does; connections of the store's own do not retry."""
        connection = self._take()
        try:
            answer = talk(connection)
            stays = self._at_hand and not connection.should_reconnect()  # otherwise all were closed meanwhile
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
        """Close the connections that are not in use."""
        for connection in self._fifo.empty():
            connection.disconnect()
            self._pool.release(connection)
        self._pool.disconnect(inuse_connections=False)

    def _take(self) -> Any:
        connection = self._fifo.take()
        if connection is not None:
            try:
                if not connection.can_read():  # nothing is left unread, and the server has not hung up
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
        finally:  # even after an interrupt: otherwise this connection's place would be lost for ever
            self._fifo.give_back(None)
