"""Borrow connections from redis-py's pools, and return them ready for the next caller."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from traceback import walk_tb
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from redis import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError, WatchError

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.stores.redis_outage import (
    LOST_CONNECTION_ERRORS,
    NO_FREE_CONNECTION,
    REPLICA_ERRORS,
    ClosedInUseError,
    CredentialsError,
    is_down,
)

T = TypeVar("T")

RESP2 = (2, "2")
"""The protocol versions in which a connection receives nothing but replies to what was sent."""
_NOTHING = object()
_UNUSABLE_ERRORS = (*LOST_CONNECTION_ERRORS, OSError)
_STALE_POOL_ERRORS = (*LOST_CONNECTION_ERRORS, *REPLICA_ERRORS)
"""After these errors, connections made earlier may also be dead, or lead to a server that is primary no more."""


def call_with_connection(pool: ConnectionPool, exchange: Callable[[Any], T]) -> T:
    """Call ``exchange`` with a connection of a pool."""
    connection = _connected(pool, pool.get_connection)

    def attempt() -> T:
        connection.check_health()  # here alone: it may connect anew, and so end a transaction
        return exchange(connection)

    def drop(error: Exception) -> None:
        connection.disconnect()
        if not is_down(error):
            raise error

    try:
        return connection.retry.call_with_retry(attempt, drop)  # type: ignore[no-any-return]
    except BaseException as error:
        try:
            _disconnect_unless_reusable(connection, error)
        except BaseException:  # a second interrupt: the answer to the first one's command may still come
            connection.disconnect()
            raise
        _raise_as_driver_error(error)
        raise
    finally:
        pool.release(connection)


def is_open(connection: Any) -> bool:
    """Whether redis-py would send something over the connection that there is, and not over a new one."""
    plain_connection = getattr(connection, "_conn", connection)  # of a client with a cache
    return getattr(plain_connection, "_sock", connection) is not None  # redis-py 7 has no public name for it


def _connected(pool: ConnectionPool, connect: Callable[[], Any]) -> Any:
    """What ``connect`` returns, after which a connection of this pool can be used."""
    try:
        return connect()
    except BaseException as error:
        drop_half_made((pool,), error)
        _raise_as_driver_error(error)
        raise


def _raise_as_driver_error(error: BaseException) -> None:
    """Raise an error of redis-py's in place of one of a credential provider, or of Python's in redis-py's own code.

    The latter come where one thread uses a connection that another one closes, as the owner of a client may.
    """
    if not isinstance(error, Exception):
        return
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    is_of_provider = any(frame.f_code.co_name == "get_credentials" for frame in frames)
    if is_of_provider and not isinstance(error, CredentialsError):
        raise CredentialsError(type(error).__name__) from error  # its text may hold a secret
    is_of_driver = frames[-1].f_globals.get("__name__", "").startswith("redis.")
    if is_of_driver and isinstance(error, (TypeError, AttributeError, ValueError)):
        raise ClosedInUseError(type(error).__name__) from error


def drop_half_made(pools: Iterable[ConnectionPool], error: BaseException) -> None:
    """Close the idle connections of these pools, if the error is an interrupt, which may have come as one connected.

    A pool keeps such a connection, and would lend it as it is: it may not have named its user, not have chosen its
    database, or not have read an answer.
    """
    if not isinstance(error, RedisError):
        for pool in pools:
            pool.disconnect(inuse_connections=False)


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

    Each is either free or in the hand of a caller, which is a list. It moves in one step of C's, in which no interrupt
    comes: what a function returns, an interrupt may drop.

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
        self._waiters: deque[tuple[list[Any], queue.SimpleQueue[None]]] = deque()  # their hands, and what wakes them
        self._handover_lock = threading.Lock()

    def take(self, hand: list[Any]) -> None:
        """Take the one that was used last into an empty hand, or wait. After an interrupt, give back what is in it."""
        if not self._waiters:
            try:
                hand += _moved(self._free)
            except IndexError:
                pass
            else:
                return
        waiter = hand, queue.SimpleQueue[None]()
        try:
            self._waiters.append(waiter)
            self._hand_over()  # one may have come back before this caller was seen to wait
            with suppress(queue.Empty):
                waiter[1].get(timeout=self._timeout_seconds)
        finally:
            with self._handover_lock, suppress(ValueError):  # it was handed over
                self._waiters.remove(waiter)
        if not hand:
            raise RedisConnectionError(f"{NO_FREE_CONNECTION}.")

    def give_back(self, hand: list[Any]) -> None:
        """Give back what is in a hand, if anything is."""
        if hand:
            put = self._free.extendleft if hand[0] is None else self._free.extend  # existing ones are taken first
            put(_moved(hand))
        if self._waiters:
            self._hand_over()

    def drain(self) -> Iterator[Any]:
        """Yield those that are free and not None; each is replaced by None when the next one is asked for."""
        for _ in range(self._size):
            hand: list[Any] = []
            try:
                with suppress(IndexError):
                    hand += _moved(self._free)
                if not hand:  # all are in use
                    return
                if hand[0] is not None:
                    yield hand[0]
            finally:
                if hand:
                    hand[0] = None
                self.give_back(hand)

    def _hand_over(self) -> None:
        with self._handover_lock, suppress(IndexError):  # another caller took it
            while self._waiters:
                hand, wake = self._waiters[0]
                if not hand:  # else an interrupt came before it was woken
                    hand += _moved(self._free)
                wake.put(None)
                self._waiters.popleft()


def _moved(things: Any) -> Iterator[Any]:
    """The last of these, which is taken out as it is put elsewhere."""
    return islice(iter(things.pop, _NOTHING), 1)


class OwnConnections:
    """Connections of a pool of the store's own, lent first come, first served.

    The pool alone would refuse a caller that finds none free; here the caller waits, as long as for a reply. redis-py
    has a pool that waits, but its queue can stay locked for ever if an interrupt comes while it is released.

    A pool's work around a call takes a fifth of the call's time. With ``keep_borrowed``, connections stay lent from
    a plain pool, and skip that work if they were used a moment ago.
    """

    def __init__(self, pool: ConnectionPool, last_uses: LastUses, *, keep_borrowed: bool = False) -> None:
        self._pool = pool
        self._last_uses = last_uses
        # A sentinel's pool also looks for the primary, and RESP3 has push messages.
        is_plain = type(pool) is ConnectionPool and pool.connection_kwargs.get("protocol") in RESP2
        self._keep_borrowed = keep_borrowed and is_plain
        timeout_seconds = getattr(pool, "timeout", pool.connection_kwargs.get("socket_timeout"))
        self._fifo = FIFOPool(pool.max_connections, timeout_seconds)

    def call(self, exchange: Callable[[Any], T]) -> T:
        """As :func:`call_with_connection`; connections of the store's own do not retry."""
        hand: list[Any] = []
        try:
            connection = self._borrow(hand)
            connection.check_health()
            answer = exchange(connection)
            if not self._keep_borrowed or connection.should_reconnect():  # the latter if all were closed meanwhile
                hand[0] = None
                self._pool.release(connection)
            self._fifo.give_back(hand)
        except BaseException as error:
            failed = None
            if hand:
                failed, hand[0] = hand[0], None  # before any call, so that even a second interrupt leaves it to nobody
            try:
                self._put_away(failed, error)
            finally:
                self._fifo.give_back(hand)
            if failed is not None and isinstance(error, _STALE_POOL_ERRORS):
                self._close_idle()
            _raise_as_driver_error(error)
            raise
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

    def _borrow(self, hand: list[Any]) -> Any:
        self._fifo.take(hand)
        connection = hand[0]
        if connection is not None:
            try:
                # Nothing is left unread, and the server has not hung up.
                if not self._last_uses.was_long_ago(connection) and not connection.can_read():
                    return connection
            except _UNUSABLE_ERRORS:
                pass
            connection.disconnect()
            hand[0] = None
            self._pool.release(connection)
        connection = hand[0] = _connected(self._pool, self._pool.get_connection)
        if self._last_uses.was_long_ago(connection):
            connection.disconnect()
            _connected(self._pool, connection.connect)
        return connection

    def _put_away(self, failed: Any, error: BaseException) -> None:
        # After an interrupt, which redis-py may tell as an error of its own, the pool may count one for ever that it
        # did not make or get back. How many there are at most is this object's concern.
        self._pool.max_connections += 1
        if failed is not None:
            _disconnect_unless_reusable(failed, error)
            self._pool.release(failed)
