"""Transactions and pipelines of the Redis store, each in one round trip, on one server or on a cluster.

redis-py's pipelines cost about as much as the round trip itself, so its connections are used without them, but with
their pools, handshakes, parsing, health checks and retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, TypeAlias
from weakref import WeakSet

from redis._parsers import BaseParser
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.exceptions import ExecAbortError, InvalidResponse, OutOfMemoryError, ResponseError, WatchError

from langmem_adapters.concurrency.breaker import GRACE_SECONDS, Breaker
from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.flow import Answer, Step
from langmem_adapters.stores.redis_client import Link
from langmem_adapters.stores.redis_connections import RESP2, LastUses, is_open
from langmem_adapters.stores.redis_errors import DRIVER_ERRORS, Translation, is_full, translate
from langmem_adapters.stores.redis_outage import LOST_CONNECTION_ERRORS, Retries, is_temporary
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_servers import Cluster, OneServer
from langmem_adapters.stores.redis_trace import Trace

_MAX_ATTEMPTS = 64  # how often a watched key may change during a write
_SCAN_COUNT = 1000  # keys that one SCAN looks at
_PART_BYTES = 1 << 16  # of a large request; each part has the whole timeout

_Request: TypeAlias = tuple[Sequence[bytes], bool, Trace | None]
"""Commands, whether they are one transaction, and the trace that this leaves."""

_MULTI, _EXEC = pack("MULTI"), pack("EXEC")
_DISCARD_PREFIX = "Transaction discarded because of: "  # before an error that came after queueing the commands


class Wire:
    """Sends commands and returns their replies as the server wrote them.

    Raises :class:`~langmem_adapters.errors.StoreError` for every failure, with a message that says what to do.
    """

    def __init__(self, link: Link, *, retry_for: float, clock: Callable[[], float]) -> None:
        retries = Retries(retry_for)

        def make_breaker(probe: Callable[[], object], is_down: Callable[[Exception], bool]) -> Breaker:
            grace = min(GRACE_SECONDS, retry_for)
            return Breaker(probe, lambda error: str(translate(error, link.address)), is_down=is_down, grace=grace)

        kind: Any = Cluster if callable(link.source) else OneServer
        self._servers: OneServer | Cluster = kind(link.source, link.owned, retries, make_breaker, LastUses(clock))
        self._transacting: WeakSet[Any] = WeakSet()  # connections whose server has taken MULTI and EXEC
        self.address: str = link.address
        self.one_slot: bool = self._servers.one_slot

    def transact(self, key: bytes, commands: Sequence[bytes], trace: Trace | None = None) -> list[Any]:
        """MULTI … EXEC on the server of ``key``. If the answer is lost, everything is sent again.

        But if it has left its trace, only the last commands are, and the others have None for replies.
        """

        def exchange(connection: Any) -> list[Any]:
            self._check_transactions(connection)
            start = 0
            if trace and trace.is_repeat() and trace.is_in(_pipeline(connection, trace.reads)):
                start = trace.start
            return [None] * start + _check_replies(self._transact(connection, commands[start:]))

        try:
            return self._servers.call(key, exchange)
        except DRIVER_ERRORS as error:
            raise translate(error, self.address) from error

    def transact_step(
        self, key: bytes, commands: Sequence[bytes], trace: Trace | None = None, *, can_batch: bool = True
    ) -> Step:
        """:meth:`transact`, as a question of a flow: several small ones may share a round trip."""
        question = self._step(lambda: self.transact(key, commands, trace), (commands, True, trace))
        return question if can_batch else question._replace(pipeline=None)

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
        read_replies: list[Any] = []

        def store_replies(replies: list[Any]) -> Sequence[bytes]:
            read_replies[:] = replies[1:]
            return ()

        self.transact_watched(keys[0], [pack("WATCH", *keys[1:]), *commands], store_replies)
        return read_replies

    def read_step(self, keys: Sequence[bytes], commands: Sequence[bytes], *, is_large: bool = False) -> Step:
        """:meth:`read`, as a question of a flow."""
        return self._step(lambda: self.read(keys, commands), (commands, True, None), is_large=is_large)

    def send_step(self, *commands: tuple[bytes, bytes], is_large: bool = False) -> Step:
        """:meth:`send`, as a question of a flow."""
        request = [command for _, command in commands], False, None
        return self._step(lambda: self.send(*commands), request, is_large=is_large)

    def _step(self, call: Callable[[], Any], request: _Request, *, is_large: bool = False) -> Step:
        return Step(call, None, self if self.one_slot else None, request, is_large)

    def ask(self, requests: Sequence[_Request]) -> list[Answer | None]:
        """Answer several of these questions, each independently, in one round trip."""
        answers: dict[int, Answer] = {}

        def exchange(connection: Any) -> None:
            unanswered = [
                (n, commands, is_transaction)
                for n, (commands, is_transaction, trace) in enumerate(requests)
                if n not in answers and not (trace and trace.is_repeat())
            ]
            if any(is_transaction for *_, is_transaction in unanswered):
                self._check_transactions(connection)
            packed = [
                _wrap_transaction(commands) if is_transaction else b"".join(commands)
                for _, commands, is_transaction in unanswered
            ]
            _send(connection, b"".join(packed))
            for position, commands, is_transaction in unanswered:
                read = _read_transaction if is_transaction else _read_replies
                try:
                    answers[position] = _check_replies(read(connection, len(commands))), None
                except ResponseError as error:
                    self._transacting.discard(connection)
                    if not (is_temporary(error) or isinstance(error, OutOfMemoryError)):
                        answers[position] = None, self._to_store_error(error)

        with suppress(StoreUnavailable, *DRIVER_ERRORS):  # those without an answer are asked again, each alone
            self._servers.call(b"", exchange)  # whatever the key, there is one server
        return [answers.get(position) for position in range(len(requests))]

    def transact_watched(
        self, key: bytes, reads: Sequence[bytes], decide: Callable[[list[Any]], Sequence[bytes] | None]
    ) -> list[Any] | None:
        """WATCH a key, read, and MULTI … EXEC what ``decide`` makes of the replies; None if it decides to do nothing.

        Once EXEC is sent, a lost answer is an error: only another read can tell whether the change was made.
        """
        replies = self.transact_watched_unchecked(key, reads, decide)
        if isinstance(checked := self.checked(replies or []), StoreError):
            raise checked
        return replies

    def checked(self, replies: list[Any]) -> list[Any] | StoreError:
        """These replies, or the error of the first that is one."""
        error = next((reply for reply in replies if isinstance(reply, Exception)), None)
        return replies if error is None else self._to_store_error(error)

    def transact_watched_unchecked(
        self, key: bytes, reads: Sequence[bytes], decide: Callable[[list[Any]], Sequence[bytes] | None]
    ) -> list[Any] | None:
        """:meth:`transact_watched`; commands that failed in the transaction have errors for replies."""

        def attempt(connection: Any) -> list[Any] | None:
            try:
                self._check_transactions(connection)
                commands = decide(_pipeline(connection, [pack("WATCH", key), *reads])[1:])
                if commands is None:
                    _pipeline(connection, [pack("UNWATCH")])
                    return None
            except BaseException:
                connection.disconnect()  # it may still watch
                raise
            if not is_open(connection):  # another thread has closed it: a new one would watch nothing
                raise WatchError
            try:
                return self._transact(connection, commands)
            except LOST_CONNECTION_ERRORS as error:
                if not commands:
                    raise
                raise self.lost_write() from error

        for _ in range(_MAX_ATTEMPTS):
            with Translation(self.address), suppress(WatchError):
                return self._servers.call(key, attempt)
        raise Conflict(f"other writers changed the same namespace {_MAX_ATTEMPTS} times in a row; try again")

    def lost_write(self) -> StoreUnavailable:
        """The error of a guarded write whose outcome the caller does not get to know."""
        return StoreUnavailable(
            f"Redis at {self.address} did not confirm a guarded write, which may have been made:"
            " read again before you write again"
        )

    def send(self, *commands: tuple[bytes, bytes]) -> list[Any]:
        """Send commands, each with its key, as they are: in one round trip to each server.

        A command refused among others is sent once more alone: its slot may have moved, and theirs not.
        """
        replies: list[Any] = [None] * len(commands)
        with Translation(self.address):
            for positions in self._servers.group_by_server([key for key, _ in commands]):
                server_commands = [commands[position][1] for position in positions]
                pipeline = _pipeline if len(server_commands) == 1 else _pipeline_unchecked
                exchange = partial(pipeline, commands=server_commands)
                answers = self._servers.call(commands[positions[0]][0], exchange)
                for position, answer in zip(positions, answers, strict=True):
                    replies[position] = self.send(commands[position])[0] if isinstance(answer, Exception) else answer
        return replies

    def are_together(self, *keys: bytes) -> bool:
        """Whether one server is known to have these keys."""
        return len([*self._servers.group_by_server(keys)]) == 1

    def scan_keys(self, pattern: bytes) -> Iterator[bytes]:
        """Yield the names of keys, on all servers, with SCAN; a name may come more than once."""
        with Translation(self.address):
            for call in self._servers.callers():
                names = call(partial(_scan_keys, pattern=pattern))
                while names:  # popped, so that yielded names are freed
                    yield names.pop()

    def send_to_all(self, command: bytes) -> Iterator[Any]:
        """Ask each server once, without retries, and even if it is known to be down."""
        with Translation(self.address):
            for call in self._servers.callers():
                yield call(partial(_pipeline, commands=[command]))[0]

    def close(self) -> None:
        """Close the connections, unless they belong to a client that was handed in."""
        self._servers.close()

    def _check_transactions(self, connection: Any) -> None:
        """See, once for each connection, whether the server takes MULTI and EXEC from this user.

        Behind a MULTI that is refused, the server makes each command of a transaction as it comes.
        """
        if connection not in self._transacting:
            _send(connection, _wrap_transaction(()))
            _read_transaction(connection, 0)
            self._transacting.add(connection)

    def _transact(self, connection: Any, commands: Sequence[bytes]) -> list[Any]:
        try:
            return _transact(connection, commands)
        except (ResponseError, *LOST_CONNECTION_ERRORS):  # the user's rights, or the server, may be others by now
            self._transacting.discard(connection)
            raise

    def _to_store_error(self, error: Exception) -> StoreError:
        store_error = translate(error, self.address)
        store_error.__cause__ = error.with_traceback(None)  # which would refer to the other answers
        return store_error


def _transact(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    _send(connection, _wrap_transaction(commands))
    return _read_transaction(connection, len(commands))


def _wrap_transaction(commands: Sequence[bytes]) -> bytes:
    return b"".join((_MULTI, *commands, _EXEC))


def _read_transaction(connection: Any, count: int) -> list[Any]:
    replies = _read_replies(connection, count + 2)
    if replies[-1] is None:
        raise WatchError
    if isinstance(replies[-1], Exception):  # one command was refused, so none was executed
        if not isinstance(replies[-1], ExecAbortError):  # else it may still watch, or queue all that follows
            connection.disconnect()
        reason = next(str(reply) for reply in replies if isinstance(reply, Exception)).partition(_DISCARD_PREFIX)[2]
        if reason:
            raise BaseParser.parse_error(reason)  # type: ignore[no-untyped-call]
        _check_replies(replies)
    if not isinstance(replies[-1], list) or len(replies[-1]) != count:  # of another request, it may be
        raise InvalidResponse("Protocol Error: EXEC has not one reply for each command")
    return replies[-1]


def _scan_keys(connection: Any, pattern: bytes) -> list[bytes]:
    """All names of a server, on one connection: a cursor is invalid after a restart or failover."""
    names: list[bytes] = []
    cursor: Any = b"0"
    while True:
        cursor, page = _pipeline(connection, [pack("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT)])[0]
        names += page
        if int(cursor) == 0:
            return names


def _pipeline(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    return _check_replies(_pipeline_unchecked(connection, commands))


def _pipeline_unchecked(connection: Any, commands: Sequence[bytes]) -> list[Any]:
    _send(connection, b"".join(commands))
    return _read_replies(connection, len(commands))


def _send(connection: Any, request: bytes) -> None:
    """Send a large request in parts, as a socket's timeout is for all that it is given at once."""
    view = memoryview(request)
    parts = [view[start : start + _PART_BYTES] for start in range(0, len(view), _PART_BYTES)]
    connection.send_packed_command(parts, check_health=False)  # it was checked as it was borrowed


def _read_replies(connection: Any, count: int) -> list[Any]:
    """Read all replies, refusals among them, so that the connection is ready for the next command."""
    replies: list[Any] = []
    while len(replies) < count:
        try:
            replies.append(connection.read_response())
        except ResponseError as error:  # the rest must still be read
            replies.append(error.with_traceback(None))  # which would refer to these replies
        if len(replies) < count:
            replies += _buffered_replies(connection, count - len(replies))
    return replies


def _buffered_replies(connection: Any, limit: int) -> Iterable[Any]:
    """Replies that came with the one that was just read; redis-py spends as long on each as the server does."""
    if connection.get_protocol() not in RESP2:  # in RESP3, push messages may come in between
        return ()
    reader = getattr(getattr(connection, "_parser", None), "_reader", None)
    return islice(iter(reader.gets, NOT_ENOUGH_DATA), limit) if reader else ()


def _check_replies(replies: list[Any]) -> list[Any]:
    """Raise the first that is an error, which no variable holds any more.

    Its traceback refers to the frames of the call: a cycle would keep a refused request until garbage is collected.
    """
    for position, reply in enumerate(replies):
        if isinstance(reply, Exception):
            del reply
            raise replies.pop(position)
    return replies
