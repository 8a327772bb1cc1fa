"""Transactions and pipelines of the Redis store, each in one round trip, on one server or on a cluster.

redis-py's pipelines cost about as much as the round trip itself, so its connections are used without them, but with
their pools, handshakes, parsing, health checks and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any

from redis._parsers import BaseParser
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.exceptions import OutOfMemoryError, RedisClusterException, RedisError, ResponseError, WatchError

from langmem_adapters.concurrency.breaker import GRACE, Breaker
from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.flow import Answer, Step
from langmem_adapters.stores.redis_client import Link
from langmem_adapters.stores.redis_connections import RESP2
from langmem_adapters.stores.redis_errors import is_full, translate
from langmem_adapters.stores.redis_outage import LOST, Retries, may_pass
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_servers import Cluster, OneServer

__all__ = ["Wire"]

_ATTEMPTS = 64  # how often a watched key may change during a write
_SCAN = 1000  # keys that one SCAN looks at
_DRIVER = (RedisError, RedisClusterException)

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_DISCARDED = "Transaction discarded because of: "  # before an error that the server met after queueing the commands


class Wire:
    """Sends commands and returns their replies as the server wrote them.

    Raises :class:`~langmem_adapters.errors.StoreError` for every failure, with a message that says what to do.
    """

    def __init__(self, link: Link, *, retry_for: float) -> None:
        retries = Retries(retry_for)

        def breaker(probe: Callable[[], object], broken_by: Callable[[Exception], bool]) -> Breaker:
            grace = min(GRACE, retry_for)
            return Breaker(probe, lambda error: str(translate(error, link.address)), is_down=broken_by, grace=grace)

        kind: Any = Cluster if callable(link.source) else OneServer
        self._servers: OneServer | Cluster = kind(link.source, link.owned, retries, breaker)
        self.address: str = link.address
        self.one_slot: bool = self._servers.one_slot

    def transact(self, key: bytes, commands: Sequence[bytes]) -> list[Any]:
        """MULTI … EXEC on the server of ``key``. If the answer is lost, everything is sent again."""
        try:
            return self._servers.call(key, lambda connection: _transact(connection, commands))
        except _DRIVER as error:
            raise translate(error, self.address) from error

    def asking(self, key: bytes, commands: Sequence[bytes], *, small: bool = True) -> Step:
        """:meth:`transact`, as a question of a flow: several small ones may share a round trip."""
        return self._question(lambda: self.transact(key, commands), small, (commands, True))

    def reading(self, keys: Sequence[bytes], commands: Sequence[bytes], *, small: bool = True) -> Step:
        """:meth:`read`, as a question of a flow."""
        return self._question(lambda: self.read(keys, commands), small, (commands, True))

    def read(self, keys: Sequence[bytes], commands: Sequence[bytes]) -> list[Any]:
        """:meth:`transact` for commands that only read these keys, even on a full server.

        While Redis 6.2 or 7.0 has reached its ``maxmemory``, it queues nothing after MULTI. Then the commands are sent
        without it, under WATCH: an empty transaction, which the server accepts, tells whether everything that they read
        existed at the same time. If not, they are sent again.
        """
        try:
            return self.transact(keys[0], commands)
        except StoreError as error:
            if not is_full(error):
                raise
        seen: list[Any] = []

        def keep(replies: list[Any]) -> Sequence[bytes]:
            seen[:] = replies[1:]
            return ()

        self.optimistic(keys[0], [pack("WATCH", *keys[1:]), *commands], keep)
        return seen

    def looking(self, key: bytes, command: bytes, *, small: bool) -> Step:
        """:meth:`send` of one command, as a question of a flow."""
        return self._question(lambda: self.send((key, command)), small, ([command], False))

    def _question(self, call: Callable[[], Any], small: bool, request: tuple[Sequence[bytes], bool]) -> Step:
        return Step(call, None, self if small and self.one_slot else None, request)

    def ask(self, requests: Sequence[tuple[Sequence[bytes], bool]]) -> list[Answer | None]:
        """Answer several of these questions, each independently, in one round trip."""
        answers: dict[int, Answer] = {}

        def talk(connection: Any) -> None:
            left = [n for n in range(len(requests)) if n not in answers]
            packed = [(_whole if whole else b"".join)(commands) for commands, whole in (requests[n] for n in left)]
            connection.send_packed_command((b"".join(packed),))
            for n in left:
                commands, whole = requests[n]
                try:
                    count = len(commands)
                    answers[n] = _outcome(connection, count) if whole else _checked(_replies(connection, count)), None
                except ResponseError as error:
                    if not (may_pass(error) or isinstance(error, OutOfMemoryError)):
                        answers[n] = None, self._told(error)

        with suppress(StoreUnavailable, *_DRIVER):  # those without an answer are asked again, each alone
            self._servers.call(b"", talk)  # whatever the key, there is one server
        return [answers.get(n) for n in range(len(requests))]

    def optimistic(
        self, key: bytes, reads: Sequence[bytes], decide: Callable[[list[Any]], Sequence[bytes] | None]
    ) -> list[Any] | None:
        """WATCH a key, read, and MULTI … EXEC what ``decide`` makes of the replies; None if it decides to do nothing.

        Once EXEC is sent, a lost answer is an error: only another read can tell whether the change was made.
        """

        def attempt(connection: Any) -> list[Any] | None:
            try:
                commands = decide(_pipeline(connection, [pack("WATCH", key), *reads])[1:])
                if commands is None:
                    _pipeline(connection, [pack("UNWATCH")])
                    return None
            except BaseException:
                connection.disconnect()  # it may still watch
                raise
            try:
                return _transact(connection, commands)
            except ResponseError:
                connection.disconnect()  # if MULTI itself was refused, it still watches
                raise
            except LOST as error:
                if not commands:
                    raise
                raise StoreUnavailable(
                    f"the connection to Redis at {self.address} was lost before it answered a guarded write,"
                    " which may have been made: read again before you write again"
                ) from error

        for _ in range(_ATTEMPTS):
            with suppress(WatchError), self._translated():
                return self._servers.call(key, attempt)
        raise Conflict(f"other writers changed the same namespace {_ATTEMPTS} times in a row; try again")

    def send(self, *commands: tuple[bytes, bytes]) -> list[Any]:
        """Send commands, each with its key, as they are: in one round trip to each server.

        A command refused among others is sent once more alone: its slot may have moved, and theirs not.
        """
        replies: list[Any] = [None] * len(commands)
        with self._translated():
            for places in self._servers.together([key for key, _ in commands]):
                chosen = [commands[place][1] for place in places]
                talk = partial(_pipeline if len(chosen) == 1 else _unchecked, commands=chosen)
                answers = self._servers.call(commands[places[0]][0], talk)
                for place, answer in zip(places, answers, strict=True):
                    replies[place] = self.send(commands[place])[0] if isinstance(answer, Exception) else answer
        return replies

    def keys(self, pattern: bytes) -> Iterator[bytes]:
        """Yield the names of keys, on all servers, with SCAN; a name may come more than once."""
        with self._translated():
            for on in self._servers.each():
                names = on(partial(_scanned, pattern=pattern))
                while names:  # popped, so that yielded names are freed
                    yield names.pop()

    def everywhere(self, command: bytes) -> Iterator[Any]:
        """Ask each server once, without retries, and even if it is known to be down."""
        with self._translated():
            for on in self._servers.each():
                yield on(partial(_pipeline, commands=[command]))[0]

    def close(self) -> None:
        """Close the connections, unless they belong to a client that was handed in."""
        self._servers.close()

    def _told(self, error: Exception) -> StoreError:
        told = translate(error, self.address)
        told.__cause__ = error
        return told

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except WatchError:
            raise
        except _DRIVER as error:
            raise translate(error, self.address) from error


def _transact(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    connection.send_packed_command((_whole(commands),))
    return _outcome(connection, len(commands))


def _whole(commands: Sequence[bytes]) -> bytes:
    return b"".join((_MULTI, *commands, _EXEC))


def _outcome(connection: Any, count: int) -> list[Any]:
    replies = _replies(connection, count + 2)
    answer = replies[-1]
    if answer is None:
        raise WatchError
    if isinstance(answer, Exception):  # one command was refused, so none was executed
        refusal = next(reply for reply in replies if isinstance(reply, Exception))
        reason = str(refusal).partition(_DISCARDED)[2]
        raise BaseParser.parse_error(reason) if reason else refusal  # type: ignore[no-untyped-call]
    return _checked(answer)


def _scanned(connection: Any, pattern: bytes) -> list[bytes]:
    """All names of a server, on one connection: a cursor is invalid after a restart or failover."""
    found: list[bytes] = []
    cursor: Any = b"0"
    while True:
        cursor, names = _pipeline(connection, [pack("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN)])[0]
        found += names
        if int(cursor) == 0:
            return found


def _pipeline(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    return _checked(_unchecked(connection, commands))


def _unchecked(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    connection.send_packed_command((b"".join(commands),))
    return _replies(connection, len(commands))


def _replies(connection: Any, count: int) -> list[Any]:
    """Read all replies, refusals among them, so that the connection is ready for the next command."""
    replies: list[Any] = []
    while len(replies) < count:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:  # the rest must still be read
            replies.append(error)
        if len(replies) < count:
            replies += _arrived(connection, count - len(replies))
    return replies


def _arrived(connection: Any, most: int) -> Iterable[Any]:
    """Replies that came with the one that was just read; redis-py spends as long on each as the server does."""
    if connection.protocol not in RESP2:  # in RESP3, push messages may come in between
        return ()
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    return islice(iter(reader.gets, NOT_ENOUGH_DATA), most) if reader else ()


def _checked(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
