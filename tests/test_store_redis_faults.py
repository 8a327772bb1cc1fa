"""The Redis store behind a line that delays, cuts and half-delivers; without room; and killed with its log on disk."""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.stores import redis_wire
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.working import WorkingMemory
from tests.faults import again_and_again
from tests.servers import Proxy, RedisServer
from tests.waiting import until

NS = ("brain", "t", "u", "s")
_TIMEOUT, _RETRY = 0.25, 0.5
_CONNECTIONS = 5
_LINK_BYTES = 1 << 16
_DEADLINE = 4 * (_TIMEOUT + _RETRY) + 1  # a try and its retries, and a busy machine


class Line(Proxy):
    """Stands between a client and a server; ``fault`` says what becomes of each packet of answers.

    Faults: "" delivers; "delay" waits longer than the client does, and then delivers; "half" delivers half of the
    answer, and cuts; "byte" delivers it in pieces of one byte; "stall" delivers half, and nothing ever after; "cut"
    delivers nothing, and cuts. Of questions that write, "lose" cuts before the server has one, and "late" gives it to
    the server when the client has long given up. ``faults`` counts what has happened.
    """

    def __init__(self, port: int) -> None:
        self.fault: Callable[[], str] = lambda: ""
        self.faults: Counter[str] = Counter()
        self._closing = threading.Event()
        super().__init__(port)

    def ask(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(65536):
            fault = self._next("lose", "late") if b"XADD" in data else ""
            if fault == "lose":
                break
            if fault == "late":
                self._closing.wait(2 * _TIMEOUT)
            server.sendall(data)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(65536):
            fault = self._next("delay", "half", "byte", "stall", "cut")
            if fault in {"half", "stall"}:
                client.sendall(data[: len(data) // 2])
            elif fault == "byte":
                for byte in data:
                    client.sendall(bytes([byte]))
            elif fault != "cut":
                if fault == "delay":
                    self._closing.wait(2 * _TIMEOUT)
                client.sendall(data)
            if fault == "stall":
                self._closing.wait(4 * _TIMEOUT)
            if fault in {"half", "stall", "cut"}:
                break

    def _next(self, *mine: str) -> str:
        fault = self.fault()
        self.faults[fault] += fault in mine
        return fault if fault in mine else ""

    def close(self) -> None:
        self._closing.set()
        super().close()


class SlowLink(Proxy):
    """Lets some megabytes through in a second, and holds few bytes itself."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LINK_BYTES)

    def ask(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(_LINK_BYTES):
            server.sendall(data)
            time.sleep(0.02)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(_LINK_BYTES):
            client.sendall(data)


class NarrowConnection(redis.Connection):
    """Hands few bytes at once to the system, as over a slow link; it takes megabytes at once for this machine."""

    def _connect(self) -> Any:
        sock: Any = super()._connect()  # type: ignore[no-untyped-call]
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LINK_BYTES)
        return sock


class Crossing(Proxy):
    """Stands where an address leads to another server from some moment on: who is connected stays where he is.

    With ``forget``, nobody knows any more of those who are connected, and nobody tells them.
    """

    def __init__(self, port: int) -> None:
        self._forgotten: set[socket.socket] = set()
        super().__init__(port)

    def ask(self, client: socket.socket, server: socket.socket) -> None:
        self._carry_known(client, server)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        self._carry_known(server, client)

    def _carry_known(self, source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            if source not in self._forgotten:
                target.sendall(data)

    def forget(self) -> None:
        self._forgotten.update(self._sockets)

    def count(self) -> int:
        """How many connections there have been."""
        return len(self._sockets) // 2

    def lead_to(self, port: int) -> None:
        self._server_port = port


@pytest.fixture
def crossing(redis_server: RedisServer) -> Iterator[Crossing]:
    crossing = Crossing(redis_server.port)
    yield crossing
    crossing.close()


def all_connected(store: RedisStore) -> None:
    """Have the store use as many connections at once as it may."""
    together = threading.Barrier(_CONNECTIONS)

    def talk(connection: Any) -> Any:
        together.wait(10)
        connection.send_command("PING")
        return connection.read_response()

    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        servers = store._wire._servers
        assert set(threads.map(lambda _: servers.call(b"", talk), range(_CONNECTIONS))) == {b"PONG"}


@pytest.fixture
def line(redis_server: RedisServer) -> Iterator[Line]:
    line = Line(redis_server.port)
    yield line
    line.close()


def store_on(line: Line, key_prefix: str, protocol: int) -> RedisStore:
    url = f"redis://127.0.0.1:{line.port}?protocol={protocol}"
    return RedisStore(url, prefix=key_prefix, socket_timeout=_TIMEOUT, retry_for=_RETRY)


class Told:
    """What a writer was told of each append: made, or not known."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.unknown: list[str] = []
        self.slowest = 0.0

    def append(self, store: RedisStore, id_: str) -> None:
        began = time.monotonic()
        try:
            store.append(NS, [(id_, id_.encode())], ttl=600)
        except StoreUnavailable as error:
            assert "\n" not in str(error)  # noqa: PT017 - the class is what is tested
            self.unknown.append(id_)
        else:
            self.made.append(id_)
        self.slowest = max(self.slowest, time.monotonic() - began)

    def check(self, store: RedisStore) -> None:
        items = store.scan(NS).items
        found = [item.id for item in items]
        assert len(found) == len(set(found)), "doubled"
        assert [id_ for id_ in found if id_ in set(self.made)] == self.made, "lost, or out of order"
        assert set(found) <= set(self.made) | set(self.unknown)
        assert all(item.data == item.id.encode() for item in items)
        assert self.slowest < _DEADLINE


@pytest.mark.parametrize(
    ("fault", "protocol"),
    [*itertools.product(["delay", "half", "byte", "stall", "cut"], [2, 3]), ("lose", 2), ("late", 3)],
)  # what becomes of a question is the same with both
def test_each_fault_loses_and_doubles_nothing(
    line: Line, redis_server: RedisServer, key_prefix: str, fault: str, protocol: int
) -> None:
    store, told = store_on(line, key_prefix, protocol), Told()
    told.append(store, "000")
    for number in range(1, 5):
        left = [1 if number % 2 else 3]

        def next_fault(left: list[int] = left) -> str:
            left[0] -= 1
            return fault if left[0] >= 0 else ""

        line.fault = next_fault
        told.append(store, f"{number:03}")
        line.fault = lambda: ""
        _until_it_works(store)
    told.append(store, "999")
    assert len(told.made) >= 2
    assert line.faults[fault] >= 2
    store.close()
    direct = RedisStore(redis_server.url(), prefix=key_prefix)
    told.check(direct)
    assert [item.id for item in direct.scan(NS).items][-1] == "999"
    direct.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_of_connections_that_lead_nowhere_one_is_waited_for(crossing: Crossing, key_prefix: str, protocol: int) -> None:
    url = f"redis://127.0.0.1:{crossing.port}?protocol={protocol}&max_connections={_CONNECTIONS}"
    store = RedisStore(url, prefix=key_prefix, socket_timeout=_TIMEOUT, retry_for=_RETRY)
    all_connected(store)
    crossing.forget()  # as a firewall does after a while, or the host of a server as it dies
    assert store.append(NS, [("a", b"1")], ttl=600).new == [True]
    all_connected(store)  # none of them waits in vain
    store.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_who_has_met_one_replica_reads_from_none(
    crossing: Crossing, start_redis: Callable[..., RedisServer], key_prefix: str, protocol: int
) -> None:
    primary = start_redis()
    url = f"redis://127.0.0.1:{crossing.port}?protocol={protocol}&max_connections={_CONNECTIONS}"
    crossing.lead_to(primary.port)
    store = RedisStore(url, prefix=key_prefix, retry_for=_RETRY)
    all_connected(store)
    with start_redis() as other, redis.Redis(port=primary.port) as raw:
        raw.execute_command("REPLICAOF", "127.0.0.1", "1")  # it goes on, and hears of nothing new
        crossing.lead_to(other.port)
        store.append(NS, [("a", b"1")], ttl=600)
        together = threading.Barrier(_CONNECTIONS)

        def read(_: int) -> int:
            together.wait(10)
            return store.scan(NS, limit=0).total

        with ThreadPoolExecutor(_CONNECTIONS) as threads:
            assert [*threads.map(read, range(_CONNECTIONS))] == [1] * _CONNECTIONS
    store.close()


def test_faults_at_random_under_several_writers(line: Line, redis_server: RedisServer, key_prefix: str) -> None:
    chance = random.Random(20_261_121)
    odds = ["delay", "half", "byte", "stall", "cut", "lose", "late"] + [""] * 70
    line.fault = lambda: chance.choice(odds)
    store = store_on(line, key_prefix, 2)
    memory = WorkingMemory(store)
    logs = [("stress", str(n)) for n in range(3)]
    made: dict[Any, list[str]] = {log: [] for log in logs}
    counted, uncertain = [0], [0]
    lock = threading.Lock()
    end = time.monotonic() + 4

    def write(log: Any) -> None:
        number = 0
        while time.monotonic() < end:
            id_ = f"{number:05}"
            number += 1
            began = time.monotonic()
            with suppress(StoreUnavailable):
                store.append(log, [(id_, b"x")])
                made[log].append(id_)
            done = False
            with suppress(StoreError):
                memory.update("counter", lambda n: (n or 0) + 1)
                done = True
            with lock:
                counted[0] += done
                uncertain[0] += not done
            assert time.monotonic() - began < 4 * _DEADLINE

    with ThreadPoolExecutor(len(logs)) as threads:
        list(threads.map(write, logs))
    store.close()
    direct = RedisStore(redis_server.url(), prefix=key_prefix)
    for log in logs:
        found = [item.id for item in direct.scan(log).items]
        assert len(found) == len(set(found))
        assert [id_ for id_ in found if id_ in set(made[log])] == made[log]
        assert len(made[log]) > 10
    assert sum(line.faults.values()) > 10
    (counter,) = WorkingMemory(direct).retrieve("counter")
    assert counted[0] <= counter.data <= counted[0] + uncertain[0]
    direct.close()


def _until_it_works(store: RedisStore) -> None:
    until(lambda: _works(store))


def _works(store: RedisStore) -> bool:
    try:
        store.get(NS, ["k"])
    except StoreUnavailable:
        return False
    return True


def test_maxmemory_reached_in_the_middle_of_writing(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--maxmemory-policy", "noeviction")
    store = RedisStore(server.url())
    with redis.Redis.from_url(server.url()) as raw:
        used: Any = raw.info("memory")["used_memory"]
        raw.config_set("maxmemory", used + 3_000_000)
        made: list[str] = []

        def write_on() -> None:
            for number in range(2000):
                store.write(NS, put={"last": f"{number:05}".encode()}, append=[(f"{number:05}", b"x" * 10_000)])
                made.append(f"{number:05}")

        with pytest.raises(StoreError, match="is out of memory: raise its maxmemory") as caught:
            write_on()
        assert type(caught.value) is StoreError
        assert len(made) > 50
        raw.config_set("maxmemory", 1)  # the refused write may have given back what it lacked
        page = store.scan(NS, keys=["last"])  # reading goes on
        assert [item.id for item in page.items] == made
        assert page.values == {"last": made[-1].encode()}
        raw.config_set("maxmemory", used + 30_000_000)
        store.append(NS, [("99999", b"")])
        store.clear(NS)
    store.close()


@pytest.mark.parametrize("fsync", ["always", "no"])
def test_aof_with_kill_9(start_redis: Callable[..., RedisServer], fsync: str) -> None:
    """A killed process has handed its writes to the kernel before it answered; a power cut would need "always".

    With "everysec", it answers before that while the disk is slow.
    """
    server = start_redis("--appendonly", "yes", "--appendfsync", fsync)
    store, told = RedisStore(server.url(), socket_timeout=_TIMEOUT, retry_for=0.2), Told()
    numbers = itertools.count()
    with again_and_again(lambda: told.append(store, f"{next(numbers):06}")):
        for _ in range(2):
            before = len(told.made)
            until(lambda: len(told.made) > before + 200)  # noqa: B023
            unknown = len(told.unknown)
            server.kill()
            until(lambda: len(told.unknown) > unknown)  # noqa: B023
            server.start()
        before = len(told.made)
        until(lambda: len(told.made) > before + 20)
    told.check(store)
    left: Any = store.dates(NS)
    assert 500 < left.expires_in <= 600
    store.close()


@pytest.mark.parametrize("size", [n * redis_wire._PART_BYTES + rest for n in (1, 2) for rest in (-1, 0, 1)])
def test_a_large_request_goes_in_parts_and_whole(size: int) -> None:
    class Recorder:
        def send_packed_command(self, parts: Sequence[bytes], *, check_health: bool) -> None:  # noqa: ARG002 - not its concern
            self.parts = list(map(bytes, parts))

    recorder, request = Recorder(), os.urandom(size)
    redis_wire._send(recorder, request)
    assert b"".join(recorder.parts) == request
    assert max(map(len, recorder.parts)) <= redis_wire._PART_BYTES


def test_a_large_write_may_take_longer_than_the_timeout_while_its_bytes_get_through(
    redis_server: RedisServer, key_prefix: str
) -> None:
    link = SlowLink(redis_server.port)
    timeout, data = 1.0, b"x" * 4_000_000
    pool = redis.ConnectionPool(NarrowConnection, port=link.port, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))
    store = RedisStore(pool, prefix=key_prefix)
    began = time.monotonic()
    assert store.append(NS, [("a", data)]).new == [True]
    assert time.monotonic() - began > timeout
    assert [len(item.data) for item in store.scan(NS).items] == [len(data)]
    pool.disconnect()
    link.close()
