"""Borrow connections from redis-py's pools, and return them ready for the next caller."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from redis import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError, WatchError

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.stores.redis_outage import LOST_CONNECTION_ERRORS, NO_FREE_CONNECTION, REPLICA_ERRORS, is_down

T = TypeVar("T")

RESP2 = (2, "2")
"""The protocol versions in which a connection receives nothing but replies to what was sent."""
_UNUSABLE_ERRORS = (*LOST_CONNECTION_ERRORS, OSError)
_STALE_POOL_ERRORS = (*LOST_CONNECTION_ERRORS, *REPLICA_ERRORS)
"""After these errors, connections made earlier may also be dead, or lead to a server that is primary no more."""


def call_with_connection(pool: ConnectionPool, exchange: Callable[[Any], T]) -> T:
    """Call ``exchange`` with a connection of a pool."""
    connection = _get_connection(pool)

    def drop(error: Exception) -> None:
        connection.disconnect()
        if not is_down(error):
            raise error

    try:
        return connection.retry.call_with_retry(lambda: exchange(connection), drop)  # type: ignore[no-any-return]
    except BaseException as error:
        _disconnect_unless_reusable(connection, error)
        raise
    finally:
        pool.release(connection)


def _get_connection(pool: ConnectionPool) -> Any:
    try:
        return pool.get_connection()
    except BaseException as error:
        if not isinstance(error, RedisError):  # an interrupt: the pool keeps a connection that may not have chosen its
            pool.disconnect(inuse_connections=False)  # database yet, or not read the answer, and would lend it as it is
        raise


def close_pool(pool: ConnectionPool) -> None:
    """Close a pool of the store's own: connections in use are closed when they come back, so no call is disturbed."""
    pool.update_active_connections_for_reconnect()
    pool.disconnect(inuse_connections=False)


def _disconnect_unless_reusable(connection: Any, error: BaseException) -> None:
    # After a refusal all replies were read. A replica is dropped, as its name may lead to the primary by now.
    if not isinstance(error, ResponseError | WatchError) or isinstance(error, REPLICA_ERRORS):
        connection.disconnect()


class LastUses:
    """Remembers when connections were last used, as one that was idle for minutes may be dead without a sign of it.

    Firewalls and load balancers forget idle connections, and drop what is sent on them: a call would wait for its whole
    timeout, and fail. A laptop that slept and a function that was frozen wake up with such connections, too.

    Args:
        clock: Gives Unix seconds; a monotonic clock may stand still while the machine sleeps.
    """

    _MAX_IDLE_SECONDS = 60.0  # Azure's load balancers forget after 240 seconds, and those of AWS after 350

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used_at: WeakKeyDictionary[Any, float] = WeakKeyDictionary()

    def was_long_ago(self, used: Any) -> bool:
        """Whether the last use was so long ago that a new connection is the surer one; this is the next use."""
        now = self._clock()
        before = self._used_at.get(used, now)
        self._used_at[used] = now
        return abs(now - before) > self._MAX_IDLE_SECONDS  # a clock that was set back says nothing


class FIFOPool:
    """Things to use one at a time, such as connections. A caller that finds none free waits: first come, first served.

    Args:
        size: How many there are. At first all are None, which stands for one that is still to be made.
        timeout_seconds: The longest wait; None: for ever.
    """

    def __init__(self, size: int, timeout_seconds: float | None) -> None:
        self._size = size
        self._timeout_seconds = timeout_seconds
        reset_in_child(self)

    def reset_state(self) -> None:
        """Have them all free: those in use are used by the parent process."""
        self._free: deque[Any] = deque([None] * self._size)
        self._waiters: deque[queue.SimpleQueue[Any]] = deque()
        self._handover_lock = threading.Lock()

    def take(self) -> Any:
        """Take the one that was used last, or wait."""
        if not self._waiters:
            with suppress(IndexError):
                return self._free.pop()
        handover: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waiters.append(handover)
        try:
            self._hand_over()  # one may have come back before this caller was seen to wait
            return handover.get(timeout=self._timeout_seconds)
        except BaseException as error:
            with self._handover_lock:
                is_handed_over = handover not in self._waiters  # it was handed over just now
                if not is_handed_over:
                    self._waiters.remove(handover)
            if not isinstance(error, queue.Empty):  # an interrupt
                if is_handed_over:
                    self.give_back(handover.get())
                raise
            if is_handed_over:
                return handover.get()
            raise RedisConnectionError(f"{NO_FREE_CONNECTION}.") from None

    def give_back(self, member: Any) -> None:
        if member is None:
            self._free.appendleft(member)  # existing ones are taken first
        else:
            self._free.append(member)
        if self._waiters:
            self._hand_over()

    def drain(self) -> Iterator[Any]:
        """Yield those that are free and not None; each is replaced by None when the next one is asked for."""
        for _ in range(self._size):
            try:
                member = self._free.pop()
            except IndexError:  # all are in use
                return
            try:
                if member is not None:
                    yield member
            finally:
                self.give_back(None)

    def _hand_over(self) -> None:
        with self._handover_lock, suppress(IndexError):  # another caller took it
            while self._waiters:
                member = self._free.pop()
                self._waiters.popleft().put(member)


class OwnConnections:
    """Connections of a pool of the store's own, lent first come, first served.

    The pool alone would refuse a caller that finds none free; here the caller waits, as long as for a reply. redis-py
    has a pool that waits, but its queue can stay locked for ever if an interrupt comes while it is released.

    A pool's work around a call takes a fifth of the call's time. With ``keep_borrowed``, connections stay lent from
    the pool, and skip that work if they were used a moment ago.
    """

    def __init__(self, pool: ConnectionPool, last_uses: LastUses, *, keep_borrowed: bool = False) -> None:
        self._pool = pool
        self._last_uses = last_uses
        self._keep_borrowed = keep_borrowed
        timeout_seconds = getattr(pool, "timeout", pool.connection_kwargs.get("socket_timeout"))
        self._fifo = FIFOPool(pool.max_connections, timeout_seconds)

    @staticmethod
    def can_keep_borrowed(pool: ConnectionPool) -> bool:
        """Whether the pool does nothing else: a sentinel's pool looks for the primary, RESP3 for push messages."""
        return type(pool) is ConnectionPool and pool.connection_kwargs.get("protocol") in RESP2

    def call(self, exchange: Callable[[Any], T]) -> T:
        """As :func:`call_with_connection`; connections of the store's own do not retry."""
        connection = self._borrow()
        try:
            answer = exchange(connection)
            stays_borrowed = self._keep_borrowed and not connection.should_reconnect()  # else all were closed meanwhile
        except BaseException as error:
            _disconnect_unless_reusable(connection, error)
            self._release(connection)
            if isinstance(error, _STALE_POOL_ERRORS):
                self._close_idle()
            raise
        if stays_borrowed:
            self._fifo.give_back(connection)
        else:
            self._release(connection)
        return answer

    def close(self) -> None:
        """Close them, as :func:`close_pool` does."""
        self._close_idle()
        close_pool(self._pool)

    def _close_idle(self) -> None:
        for connection in self._fifo.drain():
            connection.disconnect()
            self._pool.release(connection)
        self._pool.disconnect(inuse_connections=False)

    def _borrow(self) -> Any:
        connection = self._fifo.take()
        if connection is not None:
            try:
                # Nothing is left unread, and the server has not hung up.
                if not self._last_uses.was_long_ago(connection) and not connection.can_read():
                    return connection
            except _UNUSABLE_ERRORS:
                pass
            except BaseException:  # an interrupt
                self._fifo.give_back(connection)
                raise
            connection.disconnect()
            self._pool.release(connection)
        try:
            return self._connect()
        except BaseException as error:
            if not isinstance(error, RedisError):  # the pool has counted one that it did not make, and would for ever
                self._pool.max_connections += 1
            self._fifo.give_back(None)
            raise

    def _connect(self) -> Any:
        connection = _get_connection(self._pool)
        try:
            if self._last_uses.was_long_ago(connection):
                connection.disconnect()
                connection.connect()
        except BaseException:
            connection.disconnect()
            self._pool.release(connection)
            raise
        return connection

    def _release(self, connection: Any) -> None:
        try:
            self._pool.release(connection)
        finally:  # even after an interrupt: otherwise this connection's place would be lost for ever
            self._fifo.give_back(None)
