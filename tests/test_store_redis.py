"""The Redis store: the conformance kit as a user with few rights, and what is special to a server."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
import subprocess
import sys
import threading
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import redis
import redis.asyncio
from redis.cache import CacheConfig
from redis.connection import AbstractConnection, CacheProxyConnection
from redis.crc import key_slot

from langmem_adapters import Experience, ExperiencePool, WorkingMemory
from langmem_adapters.errors import ConfigurationError, Conflict, StoreError, StoreUnavailable
from langmem_adapters.flow import arun, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Appended, Item, Listed, Page
from langmem_adapters.stores import open_store, redis_directory, redis_log, redis_packing, redis_sentinels, redis_wire
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_directory import Directory
from langmem_adapters.testing import FakeClock, StoreConformance, store_walk
from tests.interpreters import processes
from tests.servers import COMMANDS, Proxy, RedisServer, listening, redis_cluster
from tests.waiting import until

Administrator: TypeAlias = Any  # redis.Redis, which leaves some of its methods untyped

NS = ("brain", "t", "u", "s")
PARENT = NS[:-1]


@pytest.fixture
def raw(any_redis_server: RedisServer) -> Iterator[Administrator]:
    """An administrator's client on the same server."""
    with redis.Redis.from_url(any_redis_server.url()) as client:
        yield client


@pytest.fixture
def url(raw: Administrator, any_redis_server: RedisServer, key_prefix: str) -> Iterator[str]:
    """For a user who may send the commands of the list, and no other: all of the kit is run as such a one."""
    name, password = key_prefix.strip(":"), uuid.uuid4().hex
    rights = [f"+{command}" for command in COMMANDS]
    raw.execute_command("ACL", "SETUSER", name, "on", f">{password}", f"~{key_prefix}*", *rights)
    yield any_redis_server.url().replace("//", f"//{name}:{password}@")
    raw.execute_command("ACL", "DELUSER", name)


@pytest.fixture
def store(url: str, key_prefix: str, clock: FakeClock) -> Iterator[RedisStore]:
    store = RedisStore(url, prefix=key_prefix, clock=clock)
    yield store
    store.close()


def keys(store: RedisStore, namespace: Namespace = NS) -> dict[str, bytes]:
    place = store._keys.for_namespace(namespace)
    return {"log": place.log, "ids": place.ids, "val": place.values, "dir": place.directory}


def ids(store: RedisStore, namespace: Namespace = NS) -> list[str]:
    return [item.id for item in store.scan(namespace).items]


def sizes(raw: Administrator, store: RedisStore) -> tuple[int, int]:
    return raw.xlen(keys(store)["log"]), raw.scard(keys(store)["ids"])


def age(raw: Any, prefix: str, seconds: float) -> None:
    """Bring every expiry nearer, as if time had passed."""
    for key in raw.scan_iter(f"{prefix}*"):
        left = raw.pttl(key)
        if left >= 0:
            raw.pexpire(key, left - int(seconds * 1000))


# --- the conformance kit ------------------------------------------------------------------------------------


class TestRedisStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _administrator(self, raw: Administrator) -> None:
        self.raw = raw

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:
        clock.advance(seconds)
        age(self.raw, store._keys.prefix, seconds)


class TestRedisStoreOnTheThirdProtocol(TestRedisStore):
    @pytest.fixture
    def store(self, url: str, key_prefix: str, clock: FakeClock) -> Iterator[RedisStore]:
        store = RedisStore(f"{url}?protocol=3", prefix=key_prefix, clock=clock)
        yield store
        store.close()


_walked: list[str] = []


@pytest.fixture(autouse=True, scope="module")
def _server_to_walk(redis_server: RedisServer) -> None:
    _walked[:] = [redis_server.url()]


TestRedisWalk = store_walk(lambda clock: RedisStore(_walked[0], prefix=f"walk-{uuid.uuid4().hex}:", clock=clock))


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[RedisServer]]:
    with redis_cluster() as nodes:
        yield nodes


def connected(nodes: Sequence[RedisServer], name: str) -> list[bool]:
    """Whether each node has a connection of this name."""
    found = []
    for node in nodes:
        with redis.Redis(port=node.port) as client:
            found.append(any(each["name"] == name for each in client.client_list()))
    return found


class TestRedisStoreOnACluster(StoreConformance):
    @pytest.fixture
    def store(self, cluster: list[RedisServer], key_prefix: str, clock: FakeClock) -> Iterator[RedisStore]:
        self.nodes = cluster
        first = cluster[0].url().removeprefix("redis://").removesuffix("/0")
        store = RedisStore(f"redis+cluster://{first}", prefix=key_prefix, clock=clock)
        yield store
        store.close()

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:
        clock.advance(seconds)
        for node in self.nodes:
            with redis.Redis(port=node.port) as client:
                age(client, store._keys.prefix, seconds)

    def test_keys_are_on_both_nodes(self, store: RedisStore, key_prefix: str) -> None:
        for n in range(20):
            store.append(("p", str(n)), [("a", b"")], ttl=100)
        assert len(store.recent(("p",))) == 20
        counts = []
        for node in self.nodes:
            with redis.Redis(port=node.port) as client:
                counts.append(len(list(client.scan_iter(f"{key_prefix}*"))))
        assert min(counts) > 0

    def test_what_is_removed_leaves_no_name_behind(self, store: RedisStore, clock: FakeClock, key_prefix: str) -> None:
        removals: list[Callable[[Namespace], object]] = [store.clear, lambda name: store.discard(name, clock() + 1)]
        for remove in removals:
            for n in range(9):  # some parents are on the other node
                store.append((f"p{n}", "s"), [("a", b"")])
                remove((f"p{n}", "s"))
            for node in self.nodes:
                with redis.Redis(port=node.port) as client:
                    assert list(client.scan_iter(f"{key_prefix}*")) == []

    def test_a_discard_needs_one_connection_to_each_node(
        self, cluster: list[RedisServer], key_prefix: str, clock: FakeClock
    ) -> None:
        url = f"redis+cluster://127.0.0.1:{cluster[0].port}"
        options: dict[str, Any] = {"max_connections": 1, "socket_timeout": 0.5, "retry_for": 0}
        with closing(RedisStore(url, prefix=key_prefix, clock=clock, **options)) as store:
            for n in range(9):  # some are on the other node than their list
                store.append(("p", str(n)), [("a", b"")])
                assert not store.discard(("p", str(n)), clock())
                assert store.discard(("p", str(n)), clock() + 1)

    def test_a_write_in_the_middle_of_a_discard_is_not_lost(
        self, store: RedisStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        optimistic = store._wire.transact_watched
        for n in range(9):
            namespace = ("p", str(n))
            store.append(namespace, [("a", b"")])

            def overtaken(key: bytes, reads: Any, decide: Any, namespace: Namespace = namespace) -> Any:
                writes = iter([partial(store.write, namespace, put={"title": b"new"})])

                def late(replies: Any) -> Any:
                    commands = decide(replies)
                    for write in writes:  # once
                        clock.advance(100)
                        write()
                    return commands

                return optimistic(key, reads, late)

            monkeypatch.setattr(store._wire, "transact_watched", overtaken)
            assert not store.discard(namespace, clock() + 50)
            assert store.get(namespace) == {"title": b"new"}

    def test_a_discard_finds_a_row_that_has_moved(
        self, cluster: list[RedisServer], key_prefix: str, clock: FakeClock
    ) -> None:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        store = RedisStore(client, prefix=key_prefix, clock=clock, retry_for=0.1)
        slots = client.nodes_manager.slots_cache
        for n in range(9):
            namespace = ("p", str(n))
            store.append(namespace, [("a", b"")])
            log, directory = (key_slot(keys(store, namespace)[name]) for name in ("log", "dir"))
            client.nodes_manager.slots_cache = {**slots, directory: slots[log]}  # as before it was moved
            assert not store.discard(namespace, clock())
            client.nodes_manager.slots_cache = {**slots, directory: slots[log]}
            assert store.discard(namespace, clock() + 1)
        client.close()

    def test_a_guarded_write_is_not_called_unmade_where_the_node_of_its_list_is_full(
        self, cluster: list[RedisServer], store: RedisStore
    ) -> None:
        namespaces = [("p", str(n), str(m)) for n in range(9) for m in range(99)]
        places = [store._keys.for_namespace(namespace) for namespace in namespaces]
        on_first = [[key_slot(key) < 8192 for key in (place.log, place.directory)] for place in places]
        namespace = namespaces[on_first.index([True, False])]
        with redis.Redis(port=cluster[1].port) as node:
            node.config_set("maxmemory", 1)
            try:
                with pytest.raises(StoreUnavailable, match="may have been made: read again") as caught:
                    store.write(namespace, put={"k": b"v"}, guard={"k": None})
                assert "is out of memory" in str(caught.value.__cause__)
            finally:
                node.config_set("maxmemory", 0)
        assert store.get(namespace) == {"k": b"v"}

    def test_a_given_client_finds_a_slot_that_has_moved(self, cluster: list[RedisServer], key_prefix: str) -> None:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        store = RedisStore(client, prefix=key_prefix)
        # As after a resharding: every slot is thought to be on the other node.
        nodes = client.nodes_manager.slots_cache
        others = {slot: nodes[16383 if slot < 8192 else 0] for slot in nodes}
        client.nodes_manager.slots_cache = others
        assert store.append(NS, [("a", b"1")]).new == [True]
        assert ids(store) == ["a"]
        store.close()
        assert client.ping()
        client.close()

    def test_a_given_client_stays_its_owners(self, cluster: list[RedisServer], key_prefix: str) -> None:
        client: Any = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        store = RedisStore(client, prefix=key_prefix)
        store.append(NS, [("a", b"")])
        connections = client.client_id(target_nodes="primaries")
        store.close()
        del store
        gc.collect()
        assert client.client_id(target_nodes="primaries") == connections
        client.close()

    @pytest.mark.parametrize(
        "make", [redis.asyncio.RedisCluster, partial(redis.RedisCluster, decode_responses=True)], ids=["asyncio", "str"]
    )
    def test_a_client_that_lends_no_bytes_says_where_the_cluster_is(
        self, make: Callable[..., Any], cluster: list[RedisServer], key_prefix: str
    ) -> None:
        asked: list[tuple[str, int]] = []

        def as_seen_from_here(address: tuple[str, int]) -> tuple[str, int]:
            asked.append(address)
            return address

        client = make(host="127.0.0.1", port=cluster[0].port, client_name="mine", address_remap=as_seen_from_here)
        asked.clear()
        with closing(RedisStore(client, prefix=key_prefix)) as store:
            for n in range(20):
                store.append(("p", str(n)), [("a", b"1")])
            assert len(store.recent(("p",))) == 20
            if isinstance(client, redis.RedisCluster):
                client.close()
            assert connected(cluster, "mine") == [True, True]
            store.close()
            until(lambda: connected(cluster, "mine") == [False, False])
        assert asked

    def test_what_is_asked_at_once_finds_the_slots_that_have_moved(
        self, cluster: list[RedisServer], key_prefix: str
    ) -> None:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
        store = RedisStore(client, prefix=key_prefix, retry_for=0.3)
        for n in range(20):
            store.append(("p", str(n)), [("a", b"1")])
        nodes = client.nodes_manager.slots_cache
        others = {slot: nodes[16383 if slot < 8192 else 0] if slot % 2 else nodes[slot] for slot in nodes}
        client.nodes_manager.slots_cache = others
        assert len(store.recent(("p",))) == 20
        store.close()
        client.close()

    def test_many_that_ask_at_once_each_ask_their_own_node(self, cluster: list[RedisServer], key_prefix: str) -> None:
        store = RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}", prefix=key_prefix)

        async def main() -> list[Any]:
            return await asyncio.gather(*(arun(step(store.append, ("p", str(n)), [("a", b"1")])) for n in range(40)))

        assert asyncio.run(main()) == [([True], 1, {})] * 40
        store.close()

    def test_more_threads_than_connections_wait_for_one_another(
        self, cluster: list[RedisServer], key_prefix: str
    ) -> None:
        crowd(RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}", prefix=key_prefix, **_FEW))

    def test_who_finds_no_connection_free_is_told(self, cluster: list[RedisServer], key_prefix: str) -> None:
        few: Any = {"max_connections": 1, "socket_timeout": 0.5, "retry_for": 0}
        store = RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}", prefix=key_prefix, **few)
        with pytest.raises(StoreUnavailable, match="raise max_connections"):
            store._wire._servers.call(store._keys.for_namespace(NS).log, lambda _: store.get(NS))
        store.close()

    def test_closing_disturbs_no_call(self, cluster: list[RedisServer], key_prefix: str) -> None:
        close_beside_calls(RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}", prefix=key_prefix))

    def test_closing_closes_them_and_the_next_use_connects_anew(
        self, cluster: list[RedisServer], key_prefix: str
    ) -> None:
        name = key_prefix.strip(":")
        store = RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}?client_name={name}", prefix=key_prefix)
        for _ in range(2):
            for n in range(20):
                store.append(("p", str(n)), [("a", b"1")])
            assert connected(cluster, name) == [True, True]
            store.close()
            until(lambda: connected(cluster, name) == [False, False])

    def test_whoever_lets_go_of_it_leaves_no_socket(self, cluster: list[RedisServer]) -> None:
        def hang_up(_: RedisStore) -> None:
            for node in cluster:
                with redis.Redis(port=node.port) as client:
                    client.client_kill_filter(_type="normal", skipme=True)

        let_go_of(f"redis+cluster://127.0.0.1:{cluster[0].port}", hang_up)


@pytest.mark.parametrize("protocol", [2, 3])
def test_closing_disturbs_no_call(url: str, key_prefix: str, protocol: int) -> None:
    close_beside_calls(RedisStore(f"{url}?protocol={protocol}", prefix=key_prefix))


def close_beside_calls(store: RedisStore) -> None:
    """Close a store again and again while others use it, as where several share one."""
    writers, count = 4, 100
    ended: list[int] = []

    def append(writer: int) -> None:
        try:
            for n in range(count):
                store.append(NS, [(f"{writer}-{n}", b"x" * 2000)])
                store.scan(NS, limit=20, reverse=True)
        finally:
            ended.append(writer)

    def close() -> None:
        while len(ended) < writers:
            store.close()

    on_threads([*(partial(append, writer) for writer in range(writers)), close])
    assert store.scan(NS, limit=0).total == writers * count
    store.clear(NS)
    store.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_whoever_lets_go_of_a_store_leaves_no_socket(redis_server: RedisServer, protocol: int) -> None:
    let_go_of(f"{redis_server.url()}?protocol={protocol}", RedisStore.close)  # which work in the background outlives


def let_go_of(url: str, disconnect: Callable[[RedisStore], None]) -> None:
    """Use a store, once more after it was disconnected, and drop it within a circle."""
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            store: Any = RedisStore(url)
            store.get(NS)
            gc.collect(0)
            disconnect(store)
            store.get(NS)  # on a socket that comes before its connection, when all is collected
            store.circle = store
            del store
            gc.collect()
    finally:
        gc.enable()


# --- what goes over the wire --------------------------------------------------------------------------------


def test_only_plain_commands_are_sent(store: RedisStore, raw: Administrator, key_prefix: str) -> None:
    sent: Counter[str] = Counter()
    with raw.monitor() as monitor:
        store.append(NS, [("a", b"1")])
        store.append(NS, [("a", b"1"), ("b", b"2")], ttl=100)
        page = store.scan(NS, keys=["k"])
        store.write(NS, put={"k": b"v"}, remove=page.items[:1], guard={"k": None})
        store.write(NS, delete=["k"])
        raw.xadd(keys(store)["log"], {"i": "b", "d": "again"})
        assert ids(store) == ["b"]
        assert len(store.recent(PARENT)) == 1
        assert list(store.namespaces()) == [NS]
        store.get(NS)
        store.clear(NS)
        raw.echo(f"end of {key_prefix}")
        for event in monitor.listen():
            if event["command"].endswith(f"end of {key_prefix}"):
                break
            sent[event["command"].split()[0].upper()] += 1
    assert {"MULTI", "XADD", "XDEL", "WATCH", "SCAN", "UNLINK", "PEXPIRE", "PERSIST"} <= set(sent)
    assert not [
        name
        for name in sent
        if name in {"EVAL", "EVALSHA", "FCALL", "KEYS", "INFO", "CONFIG", "SORT", "DEL", "FLUSHALL", "SCRIPT"}
        or "." in name
    ]


class Counting(Proxy):
    """Counts round trips, and can cut a connection instead of answering."""

    def __init__(self, port: int) -> None:
        self.trips = 0
        self.cut = False
        self.meanwhile: Callable[[], object] = lambda: None  # between the answer that is lost and the hanging up
        self._asked = False
        super().__init__(port)

    def ask(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(65536):
            self.trips += not self._asked
            self._asked = True
            server.sendall(data)

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        while data := server.recv(65536):
            self._asked = False
            if self.cut:
                self.cut = False
                self.meanwhile()
                break
            client.sendall(data)


@pytest.fixture
def proxy(any_redis_server: RedisServer) -> Iterator[Counting]:
    proxy = Counting(any_redis_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def far(proxy: Counting, key_prefix: str) -> Iterator[RedisStore]:
    store = RedisStore(f"redis://127.0.0.1:{proxy.port}", prefix=key_prefix)
    yield store
    store.close()


def test_an_operation_is_one_round_trip_at_any_length(far: RedisStore, proxy: Counting) -> None:
    def trips(call: Callable[[], Any]) -> int:
        proxy.trips = 0
        call()
        return proxy.trips

    numbers = itertools.count()
    far.append(("p", "q"), [("a", b"")], ttl=100)
    for length in (1, 2000):
        far.append(NS, [(f"x{length}-{n}", b"data") for n in range(length)])
        (item,) = far.scan(NS, limit=1).items
        assert trips(lambda: far.append(NS, [(f"y{next(numbers)}", b"")])) == 1
        assert trips(lambda: far.append(NS, [(f"y{next(numbers)}", b""), (f"y{next(numbers)}", b"")])) == 1
        assert trips(lambda: far.append(("p", "q"), [(f"y{next(numbers)}", b"")], ttl=100)) == 1
        assert trips(lambda: far.append(NS, [(f"y{next(numbers)}", b"")], put={"a": b"0"}, keys=["a", "b"])) == 1
        assert trips(lambda: far.scan(NS, limit=20, reverse=True, keys=["a"])) == 1
        assert trips(partial(far.scan, NS, after=item.seq, keys=["a"])) == 1
        assert trips(lambda: far.get(NS, ["a", "b"])) == 1
        assert trips(lambda: far.get(NS)) == 1
        assert trips(lambda: far.get(NS, [])) == 0
        change = partial(far.write, NS, put={"a": b"1"}, delete=["b"], append=[("z", b"")], remove=[item])
        assert trips(change) == 1
        assert trips(lambda: far.write(NS, put={"a": b"2"}, guard={"a": b"1"})) == 2
        assert trips(lambda: far.clear(NS)) == 1
        assert trips(lambda: far.dates(("p", "q"))) == 1
    assert trips(lambda: far.recent(("p",), limit=1)) == 2


def test_a_new_answer_is_kept_in_one_round_trip(far: RedisStore, proxy: Counting) -> None:
    pool, trips = ExperiencePool(far), []
    for n in range(9):
        proxy.trips = 0
        pool.create(Experience(resp=n), key=str(n))
        trips.append(proxy.trips)
    assert sorted(trips)[4] == 1  # of four writes one looks for what is spent
    assert [found.resp for n in range(9) if (found := pool.lookup(key=str(n)))] == [*range(9)]


def test_a_retry_after_a_lost_answer_appends_once(far: RedisStore, proxy: Counting) -> None:
    far.append(NS, [("a", b"1")])
    for batch in ([("b", b"2")], [("c", b"3"), ("d", b"4")]):
        proxy.cut = True
        assert far.append(NS, batch).new == [False] * len(batch)  # the first try was made
        assert not proxy.cut
    proxy.cut = True
    far.write(NS, put={"k": b"v"}, append=[("e", b"5")])
    assert [(item.id, item.data) for item in far.scan(NS).items] == [
        ("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4"), ("e", b"5"),
    ]  # fmt: skip
    assert far.get(NS) == {"k": b"v"}


def test_a_retry_after_a_lost_answer_stores_no_item_over_its_update(
    far: RedisStore, store: RedisStore, proxy: Counting
) -> None:
    mine, other = WorkingMemory(far), WorkingMemory(store)

    def told(change: Callable[[], object]) -> list[Any]:
        other.delete("c")
        mine.store("c", "warm")
        proxy.cut, proxy.meanwhile = True, change
        assert [item.data for item in mine.store("c", "a", "b")] == ["a", "b"]
        assert not proxy.cut
        return [item.data for item in other.retrieve("c")]

    assert told(lambda: None) == ["warm", "a", "b"]
    assert told(lambda: other.store("c", "c")) == ["warm", "a", "b", "c"]
    assert told(lambda: other.update("c", lambda data: f"{data} changed")) == ["warm", "a", "b changed"]

    def first() -> str:
        return other.retrieve("c")[1].id

    assert told(lambda: other.update("c", str.upper, item_id=first())) == ["warm", "b", "A"]
    assert told(lambda: other.delete("c", item_id=first())) == ["warm", "b"]
    namespace = other._namespace("c", "SHORT_TERM")
    assert len(store.get(namespace)) == 3  # the revisions of two items, and of the memory


def test_an_item_that_was_not_stored_at_first_is_stored_by_the_retry(
    far: RedisStore, proxy: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, transact, tries = WorkingMemory(far), redis_wire._transact, itertools.count()

    def losing(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        if next(tries) < 2:
            raise redis.ConnectionError("Connection closed by server.")
        return transact(connection, commands)

    memory.store("c", "warm")
    proxy.trips = 0
    memory.store("c", "a")
    assert proxy.trips == 1
    monkeypatch.setattr(redis_wire, "_transact", losing)
    memory.store("c", "b")
    assert next(tries) == 3
    assert [item.data for item in memory.retrieve("c")] == ["warm", "a", "b"]
    far.write(NS, append=[("a", b"")], put={"mark/a": b""})
    tries = itertools.count()
    far.write(NS, append=[("a", b"")], put={"mark/a": b"", "k": b""})  # beside an entry and a mark of before
    assert "k" in far.get(NS)


def test_an_append_is_answered_though_the_answer_to_taking_it_back_is_lost(
    far: RedisStore, proxy: Counting, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.append(NS, [("a", b"1"), ("b", b"2")])
    optimistic = far._wire.transact_watched

    def cutting(*args: Any) -> list[Any] | None:
        transact = redis_wire._transact

        def cut(connection: Any, commands: Sequence[bytes]) -> list[Any]:
            proxy.cut = True
            return transact(connection, commands)

        with monkeypatch.context() as once:
            once.setattr(redis_wire, "_transact", cut)
            return optimistic(*args)

    monkeypatch.setattr(far._wire, "transact_watched", cutting)
    assert far.append(NS, [("a", b"again"), ("c", b"3")]) == Appended([False, True], 3, {})
    assert sizes(raw, far) == (3, 3)
    # So is a reader who repairs what a writer has left, and a writer whose list of sessions has to outlive it.
    raw.xadd(keys(far)["log"], {"i": "a", "d": b"again"})
    assert ids(far) == ["a", "b", "c"]
    assert far.append(("brain", "t", "v", "s"), [("a", b"1")], ttl=100).new == [True]
    assert 100_000 < raw.pttl(keys(far, ("brain", "t", "v", "s"))["dir"]) <= 125_000


def test_a_lost_answer_to_a_guarded_write_is_told(
    far: RedisStore, proxy: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    far.write(NS, put={"n": b"1"})
    transact = redis_wire._transact

    def cutting(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        proxy.cut = True
        return transact(connection, commands)

    monkeypatch.setattr(redis_wire, "_transact", cutting)
    with pytest.raises(StoreUnavailable, match="may have been made: read again"):
        far.write(NS, put={"n": b"2"}, guard={"n": b"1"})
    assert far.get(NS) == {"n": b"2"}


def test_a_guarded_write_is_not_called_unmade_where_the_server_goes_before_it_is_listed(
    store: RedisStore, proxy: Counting, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = RedisStore(f"redis://127.0.0.1:{proxy.port}", prefix=key_prefix, retry_for=0)
    transact = redis_wire._transact

    def going(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        replies = transact(connection, commands)
        proxy.cut = True
        return replies

    with monkeypatch.context() as once, closing(far):
        once.setattr(redis_wire, "_transact", going)
        with pytest.raises(StoreUnavailable, match="may have been made: read again"):
            far.write(NS, put={"n": b"1"}, guard={"n": None}, ttl=60)
    assert store.get(NS) == {"n": b"1"}


def test_both_ways_of_packing_a_command_are_the_same() -> None:
    words = ("XADD", b"\0\r\n", "é", 12, -1, b"")
    assert redis_packing.pack(*words) == redis_packing.pack_in_python(words)


def test_a_command_of_redis_py_may_have_several_words() -> None:
    assert redis_packing.Packer.pack("CLIENT SETINFO", "a b") == [redis_packing.pack("CLIENT", "SETINFO", "a b")]


# --- damage and repair --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [1, 3, 10_000])
def test_a_repeated_entry_is_never_seen(
    store: RedisStore, raw: Administrator, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_log, "_PAGE_SIZE", page)
    store.append(NS, [(str(n), b"first") for n in range(5)])
    for id_ in ("1", "4", "1"):
        raw.xadd(keys(store)["log"], {"i": id_, "d": b"again"})
    page_ = store.scan(NS, limit=3, reverse=True)
    assert [(item.id, item.data) for item in page_.items] == [("4", b"first"), ("3", b"first"), ("2", b"first")]
    assert page_.total == 5
    assert ids(store) == ["0", "1", "2", "3", "4"]
    assert sizes(raw, store) == (5, 5)


@pytest.mark.parametrize("planted", [{"by": "hand"}, {"i": b"\xff\xfe", "d": "by hand"}])
def test_an_entry_that_is_not_ours_takes_no_other_along(
    store: RedisStore, raw: Administrator, planted: dict[Any, Any], key_prefix: str
) -> None:
    store.append(NS, [("a", b"1")])
    raw.xadd(keys(store)["log"], planted)
    store.append(NS, [("b", b"2")])
    for _ in range(2):
        first, _, last = store.scan(NS).items
        assert [(item.id, item.data) for item in (first, last)] == [("a", b"1"), ("b", b"2")]
    raw.hset(keys(store)["val"], mapping={b"\xff": "by hand", "c": "3"})
    assert store.get(NS)["c"] == b"3"
    store.clear(NS)
    assert not list(raw.scan_iter(f"{key_prefix}*"))


@pytest.mark.parametrize("planted", [b"\xff\xfe/", b"%ff/", b"x", b""])
def test_a_row_of_the_list_that_names_nothing_takes_no_other_along(
    store: RedisStore, raw: Administrator, planted: bytes
) -> None:
    store.append(NS, [("a", b"1")])
    raw.zadd(keys(store)["dir"], {planted: 1.0})
    assert [row.namespace for row in store.recent(PARENT)] == [NS]
    assert list(store.namespaces(PARENT)) == [NS]
    assert raw.zcard(keys(store)["dir"]) == 1  # as for one whose namespace has expired


@pytest.mark.parametrize("lost", ["log", "ids"])
@pytest.mark.parametrize("batch", [["a"], ["c"], ["a", "c"], ["c", "b", "d"]], ids="".join)
def test_losing_one_key_loses_no_append(
    store: RedisStore, raw: Administrator, key_prefix: str, lost: str, batch: list[str]
) -> None:
    store.append(NS, [("a", b"old"), ("b", b"old")], ttl=100)
    raw.delete(keys(store)[lost])
    store.append(NS, [(id_, b"new") for id_ in batch], ttl=100)
    kept = ["a", "b"] if lost == "ids" else []
    assert ids(store) == kept + [id_ for id_ in batch if id_ not in kept]
    assert sizes(raw, store) == (len(ids(store)), len(ids(store)))
    assert store.append(NS, [("z", b"")], ttl=100).new == [True]
    assert all(raw.pttl(key) > 0 for key in raw.scan_iter(f"{key_prefix}*"))


def test_a_repeated_entry_leaves_a_log_that_others_change_all_the_time(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2")])
    with monkeypatch.context() as busy:
        busy.setattr(redis_wire, "_MAX_ATTEMPTS", 0)  # somebody else is always quicker
        assert store.append(NS, [("a", b"again")]) == Appended([False], 2, {})
        assert store.append(NS, [("b", b"again"), ("c", b"3")]).new == [False, True]
    assert sizes(raw, store) == (3, 3)
    assert [(item.id, item.data) for item in store.scan(NS).items] == [("a", b"1"), ("b", b"2"), ("c", b"3")]


def test_where_a_log_is_too_busy_to_repair_a_writer_is_answered_and_the_next_reader_repairs(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2")])
    raw.xdel(keys(store)["log"], raw.xrange(keys(store)["log"])[0][0])
    optimistic = store._wire.transact_watched
    look = iter([optimistic])

    def overtaken(*args: Any) -> list[Any] | None:
        if first := next(look, None):
            return first(*args)
        monkeypatch.setattr(redis_wire, "_MAX_ATTEMPTS", 0)  # from now on somebody else is always quicker
        return optimistic(*args)

    with monkeypatch.context() as busy:
        busy.setattr(store._wire, "transact_watched", overtaken)
        assert store.append(NS, [("b", b"again"), ("a", b"3")])[:2] == ([False, True], 2)
    monkeypatch.undo()
    assert [(item.id, item.data) for item in store.scan(NS).items] == [("b", b"2"), ("a", b"3")]
    assert sizes(raw, store) == (2, 2)


def test_a_repeated_entry_that_its_writer_still_has_to_take_back_costs_no_new_one(
    store: RedisStore, raw: Administrator
) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2")])
    first = store.scan(NS).items[0]
    again = raw.xadd(keys(store)["log"], {"i": "a", "d": b"again"})  # by a writer who learns next that it is known
    store.write(NS, remove=[first])
    assert store.append(NS, [("a", b"3")]).new == [True]
    assert store.append(NS, [("b", b"again")]).new == [False]
    assert redis_log._remove_repeats(store._wire, store._keys.for_namespace(NS), [again]) == 2
    assert [(item.id, item.data) for item in store.scan(NS).items] == [("b", b"2"), ("a", b"3")]


def test_a_reader_among_writers_who_repeat_ids_all_the_time_sees_each_once(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2"), ("c", b"3")])
    first = store.scan(NS, limit=1).items[0].seq

    class Busy:
        def __iter__(self) -> Iterator[float]:
            for id_ in ("a", "c", "b", "c"):
                raw.xadd(keys(store)["log"], {"i": id_, "d": b"again"})
                yield 0.0

    monkeypatch.setattr(redis_log, "PAUSES", Busy())
    page = store.scan(NS, limit=2, reverse=True)
    assert [(item.id, item.data) for item in page.items] == [("c", b"3"), ("b", b"2")]
    assert page.total == 3
    assert [item.id for item in store.scan(NS, after=first).items] == ["b", "c"]
    assert raw.xlen(keys(store)["log"]) > 3  # what came lately is left to its writers


def test_what_was_lost_can_be_appended_again(store: RedisStore, raw: Administrator) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2")])
    raw.delete(keys(store)["log"])
    assert store.append(NS, [("b", b"3")])[:2] == ([True], 1)
    assert store.append(NS, [("b", b"4"), ("a", b"5")])[:2] == ([False, True], 2)
    assert [(item.id, item.data) for item in store.scan(NS).items] == [("b", b"3"), ("a", b"5")]


def test_a_repair_keeps_the_expiry(store: RedisStore, raw: Administrator) -> None:
    store.append(NS, [("a", b"1")], ttl=100)
    raw.delete(keys(store)["ids"])
    assert ids(store) == ["a"]
    assert 0 < raw.pttl(keys(store)["ids"]) <= 100_000


def test_a_repair_is_overtaken_by_an_append(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b""), ("b", b"")])
    raw.xadd(keys(store)["log"], {"i": "a", "d": ""})
    transact = redis_wire._transact
    others = iter(["c", "d"])

    def overtaken(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        if id_ := next(others, None):
            with raw.pipeline() as pipe:
                pipe.sadd(keys(store)["ids"], id_).xadd(keys(store)["log"], {"i": id_, "d": ""}).execute()
        return transact(connection, commands)

    monkeypatch.setattr(redis_wire, "_transact", overtaken)
    read: list[Any] = []
    send = store._wire.send

    def counted(*commands: tuple[bytes, bytes]) -> list[Any]:
        read.append(commands)
        return send(*commands)

    monkeypatch.setattr(store._wire, "send", counted)
    assert list(redis_log.repair(store._wire, store._keys.for_namespace(NS))) == [b"a", b"b", b"c", b"d"]
    assert len(read) == 3  # a page, its end, the ids: a busy log is not read anew
    assert ids(store) == ["a", "b", "c", "d"]


def test_a_repair_is_overtaken_by_a_removal(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b""), ("b", b"")])
    first = raw.xrange(keys(store)["log"])[0][0]
    raw.xadd(keys(store)["log"], {"i": "b", "d": ""})
    send = store._wire.send

    def overtaken(*commands: tuple[bytes, bytes]) -> list[Any]:
        if b"SMEMBERS" in commands[0][1]:
            raw.xdel(keys(store)["log"], first)
            raw.srem(keys(store)["ids"], "a")
        return send(*commands)

    monkeypatch.setattr(store._wire, "send", overtaken)
    assert list(redis_log.repair(store._wire, store._keys.for_namespace(NS))) == [b"b"]
    assert sizes(raw, store) == (1, 1)


def test_a_log_that_entries_leave_all_the_time_is_read_and_written_all_the_same(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2")])
    raw.xadd(keys(store)["log"], {"i": "a", "d": b"again"})  # by a writer who died before it took it back
    send = store._wire.send

    def overtaken(*commands: tuple[bytes, bytes]) -> list[Any]:
        replies = send(*commands)
        if b"SMEMBERS" in commands[0][1]:  # of what was counted, something leaves before it can be changed
            raw.xdel(keys(store)["log"], leaving.pop())
            leaving.append(raw.xadd(keys(store)["log"], {"i": "c", "d": b""}))
        return replies

    leaving = [raw.xadd(keys(store)["log"], {"i": "c", "d": b""})]
    raw.sadd(keys(store)["ids"], "c")
    monkeypatch.setattr(store._wire, "send", overtaken)
    assert [item.id for item in store.scan(NS, limit=2).items] == ["a", "b"]
    assert store.append(NS, [("b", b"again")]).new == [False]
    monkeypatch.undo()
    raw.xdel(keys(store)["log"], leaving.pop())
    raw.srem(keys(store)["ids"], "c")
    assert [(item.id, item.data) for item in store.scan(NS).items] == [("a", b"1"), ("b", b"2")]


def test_no_reader_sees_an_id_twice_while_writers_repeat_them(store: RedisStore, raw: Administrator) -> None:
    names = [str(n) for n in range(30)]
    seen: list[list[str]] = []
    new: Counter[str] = Counter()

    def write() -> None:
        for name in names:
            new.update([name] * store.append(NS, [(name, b"")]).new[0])

    def read() -> None:
        seen.extend(ids(store) for _ in range(30))

    on_threads([write] * 4 + [read] * 2)
    assert all(len(look) == len(set(look)) for look in seen)
    assert sorted(ids(store)) == sorted(names)
    assert set(new) == set(names)
    assert set(new.values()) == {1}
    assert sizes(raw, store) == (30, 30)


def on_threads(work: Sequence[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(call) for call in work]:
            future.result()


# --- expiry and directory -----------------------------------------------------------------------------------


def test_the_keys_of_a_namespace_expire_together(store: RedisStore, raw: Administrator) -> None:
    def lives() -> list[int]:
        with raw.pipeline() as pipe:
            _ = [pipe.pttl(key) for key in keys(store).values()]
            return [int(life) for life in pipe.execute()]

    store.append(NS, [("a", b"")], ttl=500)
    for ttl in (100, 1000, 100):
        store.write(NS, put={"k": b"v"}, ttl=ttl)
        *own, directory = lives()
        assert max(own) - min(own) <= 2
        assert 0.9 * ttl < own[0] / 1000 <= ttl
        assert directory >= own[0]
    store.write(NS, delete=["k"], ttl=100)
    store.append(NS, [("b", b"")])
    assert lives() == [-1, -1, -2, -1]


def test_no_key_stays_for_ever_when_all_expire(store: RedisStore, raw: Administrator, key_prefix: str) -> None:
    sessions = iter(range(16))

    def write() -> None:
        session = str(next(sessions))
        store.append(("p", session), [("a", b"")], ttl=100 + int(session))
        store.write(("p", session), put={"k": b""}, ttl=100 + int(session))

    on_threads([write] * 16)
    lives = {key: raw.pttl(key) for key in raw.scan_iter(f"{key_prefix}*")}
    assert len(lives) == 49
    assert min(lives.values()) > 0
    assert lives[store._keys.directory(("p",))] == max(lives.values())


def test_a_directory_stays_for_a_child_that_stays(store: RedisStore, raw: Administrator, clock: FakeClock) -> None:
    directory = store._keys.directory(PARENT)
    store.append(NS, [("a", b"")], ttl=100)
    assert raw.pttl(directory) > 0
    store.append((*PARENT, "lasting"), [("a", b"")])
    clock.advance(1)
    store.append(NS, [("b", b"")], ttl=100)
    assert raw.pttl(directory) == -1
    age(raw, store._keys.prefix, 101)
    assert [row.namespace[-1] for row in store.recent(PARENT)] == ["lasting"]


def test_a_directory_stays_for_its_child_that_another_writer_lets_stay(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend_expiry = Directory.extend_expiry

    def overtaken(directory: Directory, lifetime: int) -> None:
        store.append(NS, [("b", b"")])
        extend_expiry(directory, lifetime)

    monkeypatch.setattr(Directory, "extend_expiry", overtaken)
    store.append(NS, [("a", b"")], ttl=100)
    assert [raw.pttl(keys(store)[kind]) for kind in ("log", "dir")] == [-1, -1]


def overtaking(
    monkeypatch: pytest.MonkeyPatch, store: RedisStore, count: int, ttl: float | None, clock: FakeClock | None = None
) -> list[str]:
    """Have so many others written, one each time that somebody has looked for the longest-lived child; who is left."""
    longest, others = Directory._max_lifetime, [str(n) for n in range(count)]

    def overtaken(directory: Directory, *args: Any) -> int | None:
        found = longest(directory, *args)
        if others:
            if clock is not None:
                clock.advance(1)
            store.append((*PARENT, others.pop()), [("a", b"")], ttl=ttl)
        return found

    monkeypatch.setattr(Directory, "_max_lifetime", overtaken)
    return others


@pytest.mark.parametrize(("ttl", "left"), [(10, 125_000), (1000, 1_250_000), (None, -1)])
def test_two_sessions_make_a_directory_at_once(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch, ttl: float | None, left: int
) -> None:
    overtaking(monkeypatch, store, 1, ttl)
    store.append(NS, [("a", b"")], ttl=100)
    assert abs(raw.pttl(keys(store)["dir"]) - left) < 5000


def test_who_makes_a_directory_lets_it_expire_however_many_others_write_meanwhile(
    store: RedisStore, raw: Administrator, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = overtaking(monkeypatch, store, 40, 100, clock)
    store.append(NS, [("a", b"")], ttl=100)
    assert not others
    assert abs(raw.pttl(keys(store)["dir"]) - 125_000) < 5000


@pytest.mark.parametrize(("ttl", "left"), [(None, -1), (10_000, 12_500_000)])
def test_a_directory_is_not_shortened_for_a_child_that_lasts(
    store: RedisStore,
    raw: Administrator,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ttl: float | None,
    left: int,
) -> None:
    store.append(NS, [("a", b"")], ttl=100)
    monkeypatch.setattr(redis_directory, "_MAX_NEIGHBOURS", 0)  # as in a large directory, the other is not compared
    overtaking(monkeypatch, store, 1, ttl, clock)
    store.append(NS, [("b", b"")], ttl=1000)
    assert abs(raw.pttl(keys(store)["dir"]) - left) < 5000


def test_a_ttl_is_a_positive_number(store: RedisStore) -> None:
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="ttl is a number of seconds above 0"):
            store.append(NS, [("a", b"")], ttl=wrong)
    with pytest.raises(ConfigurationError, match="that Redis can count to, or None, not 100000"):
        store.append(NS, [("a", b"")], ttl=1e11)
    assert store.scan(NS).items == []


def test_recent_pages_through_ties_exactly(store: RedisStore, clock: FakeClock) -> None:
    names = ["a", "a-b", "a.b", "a/b", "B", "é", "z", "0", ""]
    for name in ["first", *names]:
        store.append(("p", name), [("id", b"")])
        clock.advance(name == "first")
    clock.advance(1)
    store.append(("p", "last"), [("id", b"")])
    whole = store.recent(("p",))
    assert {row.namespace[-1] for row in whole[1:-1]} == set(names)
    for limit in (1, 2, 4, 20):
        paged: list[Listed] = []
        while page := store.recent(("p",), limit=limit, before=paged[-1] if paged else None):
            assert len(page) <= limit
            paged += page
        assert paged == whole
    assert store.recent(("p",), limit=0) == []


def test_sessions_that_expired_vanish_and_pages_are_filled(
    store: RedisStore, raw: Administrator, clock: FakeClock
) -> None:
    for n in range(10):
        store.append(("p", str(n)), [("id", b"")], ttl=1000)
        clock.advance(1)
    for n in (9, 8, 6):
        for key in list(keys(store, ("p", str(n))).values())[:3]:
            raw.pexpireat(key, 1)
    page = store.recent(("p",), limit=3)
    assert [row.namespace[-1] for row in page] == ["7", "5", "4"]
    assert raw.zcard(store._keys.directory(("p",))) == 7
    assert [row.namespace[-1] for row in store.recent(("p",), limit=9, before=page[-1])] == ["3", "2", "1", "0"]


def test_the_last_session_that_stays_is_found_behind_many_that_expired_in_few_round_trips(
    far: RedisStore, proxy: Counting, raw: Administrator
) -> None:
    far.append(("p", "stays"), [("a", b"")])
    raw.zadd(far._keys.directory(("p",)), {f"{n}/": 1e10 + n for n in range(500)})  # whose keys have expired
    proxy.trips = 0
    assert [row.namespace[-1] for row in far.recent(("p",), limit=1)] == ["stays"]
    assert proxy.trips < 50


def test_the_list_of_sessions_that_expire_does_not_grow_for_ever(store: RedisStore, raw: Administrator) -> None:
    for n in range(10):
        store.append(("p", f"stays {n}"), [("a", b"")])
    for n in range(1000):  # which nobody lists
        store.append(("p", str(n)), [("a", b"")], ttl=100)
        raw.unlink(*store._keys.for_namespace(("p", str(n)))[:3])  # as it expires
    assert raw.zcard(store._keys.directory(("p",))) <= 64
    assert len(store.recent(("p",))) == 10


def test_a_session_that_came_back_stays_listed(store: RedisStore, raw: Administrator, clock: FakeClock) -> None:
    store.append(NS, [("id", b"")])
    (row,) = store.recent(PARENT)
    raw.delete(*list(keys(store).values())[:3])
    clock.advance(1)
    store.append(NS, [("id", b"")])
    directory = redis_directory.Directory(store._wire, store._keys, PARENT)
    directory._remove_rows([(row.updated_at, store._keys.for_namespace(NS).row)])  # seen gone before it came back
    assert [row.namespace for row in store.recent(PARENT)] == [NS]


# --- many writers -------------------------------------------------------------------------------------------


def _write_on_threads(url: str, prefix: str, writer: int) -> None:
    store = RedisStore(url, prefix=prefix)

    def write(thread: int) -> None:
        for n in range(40):
            store.append(NS, [(f"{writer}.{thread}.{n:03}", b"x")])

    on_threads([lambda thread=thread: write(thread) for thread in range(3)])  # type: ignore[misc]
    store.close()


def test_processes_and_threads_append_to_one_log(store: RedisStore, url: str, key_prefix: str) -> None:
    context = processes()
    writers = [context.Process(target=_write_on_threads, args=(url, key_prefix, n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    items = store.scan(NS).items
    assert len(items) == 3 * 3 * 40
    assert all(a.seq < b.seq for a, b in itertools.pairwise(items))
    for name in {item.id[:4] for item in items}:
        own = [item.id for item in items if item.id.startswith(name)]
        assert own == [f"{name}{n:03}" for n in range(40)]


_FORK = """
import os, sys
from langmem_adapters.stores.redis import RedisStore
store = RedisStore(sys.argv[1], prefix=sys.argv[2])
store.append(("n",), [("before", b"")])
child = os.fork()
for n in range(50):
    store.append(("n",), [(f"{child > 0}{n}", b"")])
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ids = [item.id for item in store.scan(("n",)).items]
assert len(ids) == len(set(ids)) == 101, ids
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on this system")
def test_a_store_works_on_both_sides_of_a_fork(url: str, key_prefix: str) -> None:
    subprocess.run([sys.executable, "-c", _FORK, url, key_prefix], check=True, timeout=60)


_FEW: Any = {"max_connections": 2, "retry_for": 0}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_too_many_open_files_are_told_apart_and_take_no_connection_for_ever(
    redis_server: RedisServer, key_prefix: str
) -> None:
    import resource  # noqa: PLC0415 - not on Windows

    store = RedisStore(redis_server.url(), prefix=key_prefix, **_FEW)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        for _ in range(5):
            with pytest.raises(StoreUnavailable, match=r"too many files are open: raise the limit"):
                store.get(NS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    crowd(store)


def crowd(store: RedisStore) -> None:
    numbers = itertools.count()

    def append() -> None:
        for _ in range(20):
            store.append(NS, [(str(next(numbers)), b"")], ttl=100)

    on_threads([append] * 12)
    assert store.scan(NS).total == 240
    store.clear(NS)
    store.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_more_threads_than_connections_wait_for_one_another(url: str, key_prefix: str, protocol: int) -> None:
    crowd(RedisStore(f"{url}?protocol={protocol}", prefix=key_prefix, **_FEW))


def test_a_writer_that_lost_a_race_keeps_its_connection(store: RedisStore, raw: Administrator) -> None:
    key, rivals = keys(store)["val"], ["a", "b"]

    def decide(_: list[Any]) -> list[bytes]:
        if rivals:
            raw.hset(key, rivals.pop(), b"")
        return [redis_packing.pack("HSET", key, "mine", b"")]

    store.get(NS)
    connections = raw.info("stats")["total_connections_received"]
    assert store._wire.transact_watched(key, [], decide) == [1]
    assert raw.info("stats")["total_connections_received"] == connections


def test_what_an_earlier_version_has_stored_is_read(store: RedisStore, raw: Administrator, key_prefix: str) -> None:
    """The names and the form of the keys never change."""
    namespace, name = ("brain", "", "a/b", "s"), f"{key_prefix}{{brain//a%2Fb/s/}}"
    directory = f"{key_prefix}{{brain//a%2Fb/}}:dir"
    raw.xadd(f"{name}:log", {"i": "a", "d": b"1"}, id="1700000000000-2")
    raw.sadd(f"{name}:ids", "a")
    raw.hset(f"{name}:val", "k", b"v")
    raw.zadd(directory, {"s/": 12.5})
    assert store.scan(namespace, keys=["k"]) == Page([Item((1700000000000 << 21) + 2, "a", b"1")], 1, {"k": b"v"})
    assert store.recent(namespace[:-1]) == [Listed(namespace, 12.5)]
    assert store.append(namespace, [("a", b"again"), ("b", b"2")], put={"k": b"w"}).new == [False, True]
    assert [fields for _, fields in raw.xrange(f"{name}:log")] == [{b"i": b"a", b"d": b"1"}, {b"i": b"b", b"d": b"2"}]
    assert (raw.smembers(f"{name}:ids"), raw.hgetall(f"{name}:val")) == ({b"a", b"b"}, {b"k": b"w"})
    store.append((), [("c", b"")])
    written = {*(f"{name}:{kind}" for kind in ("log", "ids", "val")), directory}
    written |= {f"{key_prefix}{{.}}:{kind}" for kind in ("log", "ids")}
    assert {key.decode() for key in raw.scan_iter(f"{key_prefix}*")} == written


def test_foreign_keys_stay(store: RedisStore, raw: Administrator, key_prefix: str) -> None:
    foreign = [f"{key_prefix}other", f"{key_prefix}{{brain}}:log", f"other:{key_prefix}"]
    for key in foreign:
        raw.set(key, "x")
    store.append(NS, [("a", b"")])
    store.write(NS, put={"k": b""})
    assert list(store.namespaces()) == [NS]
    store.clear(NS)
    assert sorted(raw.scan_iter(f"*{key_prefix}*")) == sorted(key.encode() for key in foreign)
    raw.delete(*foreign)


def test_the_root_and_a_prefix_of_glob_characters_are_like_any_other(raw: Administrator, key_prefix: str) -> None:
    stores = [RedisStore(raw, prefix=f"{key_prefix}{end}") for end in ("[ab]*?\\:", "a:")]
    for store in stores:
        store.append((), [("root", b"")])
        store.append(("a",), [("id", b"")])
    for store in stores:
        assert set(store.namespaces()) == {(), ("a",)}
        assert [row.namespace for row in store.recent(())] == [("a",)]
        assert ids(store, ()) == ["root"]
    for store in stores:
        store.clear(())
        store.clear(("a",))
    assert list(raw.scan_iter(f"{key_prefix}*")) == []


# --- connecting ---------------------------------------------------------------------------------------------


def test_constructing_connects_nowhere() -> None:
    query = "health_check_interval=30"  # means nothing to a cluster of redis-py, and is in many URLs
    redis_urls = ("redis://127.0.0.1:1", "rediss://127.0.0.1:1", "unix:///no/such.sock", "redis+cluster://127.0.0.1:1")
    for url in (*redis_urls, *(f"{url}?{query}" for url in redis_urls)):
        store = RedisStore(url, retry_for=0)
        assert repr(store) == repr(open_store(url)) == f"RedisStore('{url}')"
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            store.get(NS)
        store.close()


def test_a_unix_socket(start_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    start_redis("--unixsocket", str(path))
    store = RedisStore(f"unix://{path}?db=3")
    assert store.append(NS, [("a", b"")], ttl=50).new == [True]
    store.close()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def sentinel(server: RedisServer, folder: Path, *, names: int | None = None) -> Iterator[int]:
    """A sentinel's port; it names ``server``, or the port on this machine that leads there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = folder / "sentinel.conf"
    config.write_text(
        f'port {port}\nbind 127.0.0.1\ndir "{folder}"\nsentinel monitor mine 127.0.0.1 {names or server.port} 1\n',
        encoding="utf-8",
    )
    process = subprocess.Popen([server.path, config, "--sentinel"], stdout=subprocess.DEVNULL)
    try:
        until(lambda: _accepts(port))
        yield port
    finally:
        process.terminate()
        process.wait(120)


@pytest.mark.parametrize(
    ("scheme", "service", "said"),
    [("rediss", "", "TLS"), ("redis+sentinel", "/mine", "is no sentinel: give the address of the sentinels")],
)
def test_a_plain_server_in_the_place_of_another(
    any_redis_server: RedisServer, scheme: str, service: str, said: str
) -> None:
    store = RedisStore(f"{scheme}://127.0.0.1:{any_redis_server.port}{service}", socket_timeout=0.2, retry_for=0)
    with pytest.raises(StoreError, match=said):
        store.get(NS)
    store.close()


def test_a_part_is_named_as_a_whole(redis_server: RedisServer, key_prefix: str) -> None:
    with closing(RedisStore(redis_server.url(), prefix=key_prefix)) as store:
        for user in ("ada", "bada", "ada/x", "x/ada", "Ada", ""):
            store.append(("brain", user, "chat"), [("a", b"")])
        assert list(store.namespaces_naming("ada")) == [("brain", "ada", "chat")]


def test_a_sentinel_names_the_server(redis_server: RedisServer, key_prefix: str, tmp_path: Path) -> None:
    with sentinel(redis_server, tmp_path) as port:
        for place in ("mine/2", "mine?db=2", "mine/2?sentinel_socket_timeout=5&sentinel_health_check_interval=9"):
            store = RedisStore(f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/{place}", prefix=key_prefix)
            assert store.append(NS, [("a", b"")]).new == [True]
            with redis.Redis(port=redis_server.port, db=2) as client:
                assert client.exists(keys(store)["log"])
            store.clear(NS)
            store.close()
        crowd(RedisStore(f"redis+sentinel://127.0.0.1:{port}/mine/2", prefix=key_prefix, **_FEW))
        unknown = RedisStore(f"redis+sentinel://127.0.0.1:{port}/other", prefix=key_prefix)
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            unknown.get(NS)
        unknown.close()


@contextmanager
def interrupted_before(command: str) -> Iterator[None]:
    """Interrupt what happens here, as it connects and is about to send this."""
    send: Callable[..., None] = AbstractConnection.send_command

    def interrupted(connection: Any, *args: Any, **kwargs: Any) -> None:
        if args[0] == command:
            raise KeyboardInterrupt
        send(connection, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AbstractConnection, "send_command", interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.skipif(redis.__version__ < "8", reason="redis-py 7 speaks RESP2 to sentinels, which needs no HELLO")
def test_a_connection_to_a_sentinel_that_was_interrupted_as_it_was_made_is_never_used(
    redis_server: RedisServer, key_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_sentinels, "start_thread", lambda _: None)  # which would ask as well, and connect first
    with sentinel(redis_server, tmp_path) as port:
        store = RedisStore(f"redis+sentinel://127.0.0.1:{port}/mine", prefix=key_prefix)
        with interrupted_before("HELLO"):
            store.get(NS)
        assert store.get(NS) == {}
        store.close()


def test_a_connection_that_was_interrupted_as_a_cluster_was_asked_for_its_nodes_is_never_used(
    cluster: list[RedisServer], key_prefix: str
) -> None:
    user = key_prefix.strip(":")
    for node in cluster:
        with redis.Redis(port=node.port) as client:
            client.acl_setuser(user, enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all"])

    def name_user(connection: Any) -> Any:
        connection.send_command("ACL", "WHOAMI")
        return connection.read_response()

    with closing(RedisStore(f"redis+cluster://{user}:pw@127.0.0.1:{cluster[0].port}", prefix=key_prefix)) as store:
        store.get(NS)
        store.close()
        with interrupted_before("AUTH"):
            list(store.namespaces())
        for key in (b"b", b"a"):  # one on each node
            assert store._wire._servers.call(key, name_user) == user.encode()


def test_no_sentinel_is_forgotten_where_two_threads_find_another_at_once(
    redis_server: RedisServer, key_prefix: str, tmp_path: Path
) -> None:
    both_ask = threading.Barrier(2)  # the call, and what watches beside it

    def hang_up_on_both(_: socket.socket) -> None:
        with suppress(threading.BrokenBarrierError):
            both_ask.wait(5)

    with sentinel(redis_server, tmp_path) as port, listening(hang_up_on_both) as first_port:
        store = RedisStore(f"redis+sentinel://127.0.0.1:{first_port},127.0.0.1:{port}/mine", prefix=key_prefix)
        assert store.append(NS, [("a", b"")]).new == [True]
        until(no_sentinel_is_asked)
        servers: Any = store._wire._servers
        _, watch = servers._own_connections
        asked = [each.connection_pool.connection_kwargs["port"] for each in watch._pool.sentinel_manager.sentinels]
        assert asked == [port, first_port]
        store.clear(NS)
        store.close()


def test_a_sentinel_that_is_asked_while_all_is_closed_is_left_too(
    redis_server: RedisServer, key_prefix: str, tmp_path: Path
) -> None:
    with sentinel(redis_server, tmp_path) as port, redis.Redis(port=port) as told:
        store = RedisStore(f"redis+sentinel://127.0.0.1:{port}/mine", prefix=key_prefix)
        store.append(NS, [("a", b"")])
        until(no_sentinel_is_asked)
        servers: Any = store._wire._servers
        _, watch = servers._own_connections
        address, closed = watch._pool.get_master_address, threading.Event()
        watch._pool.get_master_address = lambda: closed.wait(60) and address()
        watch._next_poll = 0.0
        store.clear(NS)  # on a connection that is there already
        assert not no_sentinel_is_asked()
        store.close()
        closed.set()
        until(no_sentinel_is_asked)
        assert len(told.client_list()) == 1


def no_sentinel_is_asked() -> bool:
    return all(thread.name != "langmem-sentinels" for thread in threading.enumerate())


@pytest.mark.parametrize("given", [False, True])
def test_a_primary_is_left_that_goes_on_after_the_sentinels_have_named_another(
    redis_server: RedisServer, start_redis: Callable[..., RedisServer], key_prefix: str, tmp_path: Path, given: bool
) -> None:
    other = start_redis()
    with sentinel(redis_server, tmp_path) as port, redis.Redis(port=port) as told:
        sentinels: Any = redis.sentinel.Sentinel
        client = sentinels([("127.0.0.1", port)]).master_for("mine")
        store = RedisStore(client if given else f"redis+sentinel://127.0.0.1:{port}/mine", prefix=key_prefix)
        assert store.append(NS, [("a", b"")]).new == [True]
        told.execute_command("SENTINEL", "REMOVE", "mine")
        told.execute_command("SENTINEL", "MONITOR", "mine", "127.0.0.1", other.port, 1)
        until(lambda: store.append(NS, [("b", b"")]).total == 1)  # there, where the first is not
        until(no_sentinel_is_asked)
        store.close()
        client.close()
        for asked in client.connection_pool.sentinel_manager.sentinels:
            asked.close()


@pytest.mark.parametrize("given", ["client", "pool"])
def test_a_ready_client_or_pool_stays_its_owners(any_redis_server: RedisServer, key_prefix: str, given: str) -> None:
    with redis.Redis.from_url(any_redis_server.url()) as client:
        ready = client if given == "client" else client.connection_pool
        store = open_store(ready)
        assert repr(store) == f"RedisStore('{any_redis_server.url()}')"
        mine = RedisStore(ready, prefix=key_prefix)
        mine.append(NS, [("a", b"")])
        connection = client.client_id()
        mine.close()
        assert client.client_id() == connection
        mine.clear(NS)


def test_the_sentinels_of_a_ready_client_stay_its_owners(
    redis_server: RedisServer, key_prefix: str, tmp_path: Path
) -> None:
    sentinels: Any = redis.sentinel.Sentinel
    with sentinel(redis_server, tmp_path) as port:
        manager = sentinels([("127.0.0.1", port)])
        with manager.master_for("mine") as client, manager.sentinels[0] as asked:
            store = RedisStore(client, prefix=key_prefix)
            store.append(NS, [("a", b"")])
            until(no_sentinel_is_asked)
            connection = asked.client_id()
            store.close()
            del store
            gc.collect()
            assert asked.client_id() == connection


def test_a_client_that_caches_lends_its_connections(
    redis_server: RedisServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # redis-py wants Redis 7.4 for this; these servers do as well
    monkeypatch.setattr(CacheProxyConnection, "connect", lambda self: self._conn.connect())
    with redis.Redis(port=redis_server.port, protocol=3, cache_config=CacheConfig()) as client:
        store = RedisStore(client, prefix=key_prefix)
        for value in (b"old", b"new"):
            store.write(NS, put={"k": value})
            assert store.get(NS) == {"k": value}
        store.append(NS, [("a", b"1"), ("b", b"2")])
        assert [item.id for item in store.scan(NS).items] == ["a", "b"]


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (6379, "from a URL, or from a client or pool of redis-py, not from <class 'int'>"),
        ("redis://h/zero", "the number of a database"),
        ("redis://h:port", "a port is a number"),
        ("redis://h?decode_responses=1", "a store holds bytes"),
        ("redis+cluster://h?decode_responses=1", "a store holds bytes"),
        ("redis://h?socket_timeout=soon", "Invalid value for 'socket_timeout'"),
        ("redis://h?colour=red", "unexpected keyword argument 'colour'"),
        ("redis+cluster://h:1/3", "the database 0 only"),
        ("redis+cluster://h:1?tls=true", "unexpected keyword argument 'tls'"),
        ("redis+cluster://h:1?ssl=true&ssl_colour=red", "unexpected keyword argument 'ssl_colour'"),
        ("redis+sentinel://h:1", "redis\\+sentinel://host:26379"),
        ("redis+sentinel://h:1/mine/x", "redis\\+sentinel://host:26379"),
        ("redis+sentinel://h:1/mine?colour=red", "unexpected keyword argument 'colour'"),
        ("redis://.namespace.svc:6379/0", "a part of the host's name is empty"),  # as of a variable that is not set
        (f"rediss://{'h' * 64}", "longer than 63 characters"),
        ("redis+cluster://h:1,.h:2", "a part of the host's name is empty"),
        ("redis+sentinel://h..h:1/mine", "a part of the host's name is empty"),
        ("redis+x://h", "no scheme of Redis"),
        ("redis+cluster://h?ssl=ture", "ssl is true or false"),
        ("redis+sentinel://h/mine?ssl=y", "ssl is true or false"),
        ("redis+sentinel://h/mine?sentinel_ssl=ture", "ssl is true or false"),
    ],
)
def test_a_wrong_target_is_one_clear_sentence(target: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        RedisStore(target)


@pytest.mark.parametrize(
    "host", ["", "h.", "[::1]", "[fe80::1%25lo]", "my_redis", "b\u00fccher.example", "%D1%8F" * 11]
)
def test_every_name_of_a_host_may_be_looked_for(host: str) -> None:
    RedisStore(f"redis://user:word@{host}:1/0").close()


@pytest.mark.parametrize("wrong", [b"app:", None, 5])
def test_a_prefix_is_a_text(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"prefix is a text, not {type(wrong).__name__}"):
        RedisStore("redis://h", prefix=wrong)


@pytest.mark.parametrize("seconds", ["-1", "0", "nan"])
@pytest.mark.parametrize(
    "url",
    [
        "redis://h?socket_timeout",
        "redis://h?socket_connect_timeout",
        "redis+sentinel://h/service?sentinel_socket_timeout",
        "unix:///s?socket_timeout",
        "redis+cluster://h?socket_timeout",
        "redis+sentinel://h/service?socket_connect_timeout",
    ],
)
def test_seconds_in_a_url_are_above_0(url: str, seconds: str) -> None:
    option = url.partition("?")[2].removeprefix("sentinel_")
    with pytest.raises(ConfigurationError, match=f"{option} is a number of seconds above 0, or None, not "):
        RedisStore(f"{url}={seconds}")


def test_a_unix_socket_is_refused_where_python_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")  # as on Windows
    with pytest.raises(ConfigurationError, match=r"^unix:///r\.sock .*: Python has no Unix sockets on this system$"):
        open_store("unix:///r.sock")


@pytest.mark.parametrize("scheme", ["redis://h", "unix:///s", "redis+cluster://h", "redis+sentinel://h/service"])
def test_a_store_wants_one_connection_at_least(scheme: str) -> None:
    wanted = "max_connections is a whole number of at least 1, not 0"
    with pytest.raises(ConfigurationError, match=wanted):
        RedisStore(f"{scheme}?max_connections=0")
    with pytest.raises(ConfigurationError, match=f"^{wanted}"):
        RedisStore(scheme, max_connections=0)


@pytest.mark.parametrize("prefix", ["{app}:", "{app:", "app}:"])
def test_a_prefix_has_no_braces(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="braces"):
        RedisStore("redis://h", prefix=prefix)


def test_the_value_of_an_option_that_is_not_known_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisStore("redis://127.0.0.1:1/0?credential=S3cret&db=1")
    assert "redis://127.0.0.1:1/0?credential=***&db=1 is not a Redis URL" in str(caught.value)
    assert not [text for text in told(caught.value) if "S3cret" in text]


@pytest.mark.parametrize(
    "option",
    [
        *("retry=3", "socket_keepalive_options=60", "sentinel_retry=3", "retry_on_error=timeout"),
        *("credential_provider=vault", "cache=1&protocol=3", "cache_config=1&protocol=3"),
    ],
)
def test_an_option_that_wants_an_object_is_refused_where_it_is_given_as_text(option: str) -> None:
    scheme = "redis+sentinel://h/service" if option.startswith("sentinel") else "redis://h"
    with pytest.raises(ConfigurationError, match=f"{option.partition('=')[0]} in the URL .* wants an object"):
        open_store(f"{scheme}?{option}")


@pytest.mark.parametrize(
    "url",
    [
        "redis://ada:S3cret@127.0.0.1:1/0",
        "rediss://:S3cret@127.0.0.1:1",
        "redis://S3cret@127.0.0.1:1",
        "redis+cluster://ada:S3cret@127.0.0.1:1",
        "unix:///tmp/none.sock?password=S3cret",
    ],
)
def test_a_url_as_it_is_shown_is_none_to_connect_to(url: str) -> None:
    """The server would find the password wrong, and what it says shows the right one in the same way."""
    shown = url.replace("S3cret", "***")
    assert shown in repr(RedisStore(url))
    with pytest.raises(ConfigurationError, match="as it is printed and dumped") as caught:
        RedisStore(shown)
    assert shown in str(caught.value)


def test_a_password_of_asterisks_is_written_as_a_url_writes_them() -> None:
    for password in ("%2A%2A%2A", "S3***cret"):  # three that are not all of it may stand as they are
        assert "redis://:***@127.0.0.1:1" in repr(RedisStore(f"redis://:{password}@127.0.0.1:1"))


@pytest.mark.parametrize("given", ["S3cret", "S3cret:6379", "u:S3cret@h"])
def test_what_is_no_url_is_not_quoted_as_it_may_be_a_secret(given: str) -> None:
    with pytest.raises(ConfigurationError, match="what was given is none of them") as caught:
        open_store(given)
    assert "S3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:S3cret@127.0.0.1:1/0", "redis://user:***@127.0.0.1:1/0"),
        ("redis://:S3cret@127.0.0.1:1", "redis://:***@127.0.0.1:1"),
        ("redis://S3cret@127.0.0.1:1", "redis://***@127.0.0.1:1"),
        ("redis://:S3cret\n@127.0.0.1:1", "redis://:***@127.0.0.1:1"),  # as it was read from a file
        ("redis://127.0.0.1:1?username=u&password=S3cret&db=1", "redis://127.0.0.1:1?username=u&password=***&db=1"),
        ("redis+cluster://u:S3cret@127.0.0.1:1,127.0.0.1:2", "redis+cluster://u:***@127.0.0.1:1,127.0.0.1:2"),
        (
            "redis+sentinel://u:S3cret@127.0.0.1:1/mine?sentinel_password=S3cret",
            "redis+sentinel://u:***@127.0.0.1:1/mine?sentinel_password=***",
        ),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str) -> None:
    store = RedisStore(url, retry_for=0)
    assert repr(store) == f"RedisStore('{shown}')"
    with pytest.raises(StoreUnavailable) as caught:
        store.get(NS)
    assert shown in str(caught.value)
    assert not [text for text in told(caught.value) if "S3cret" in text]
    store.close()


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel"])
@pytest.mark.parametrize("password", ["S3cret#x", "S3cret/x", "S3cret?x", "S3/cr@et"])
def test_an_unescaped_password_is_not_shown_either(scheme: str, password: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        RedisStore(f"{scheme}://user:{password}@h:6379/0")
    assert not [text for text in told(caught.value) if "S3" in text]


@pytest.mark.parametrize(
    "url", ["redis:/user:S3cret@h", "redis:user:S3cret@h", "user:S3cret@h", " redis:/S3cret@h", "redis:/:S3cret@h:1/0"]
)
def test_a_password_is_not_shown_where_a_slash_is_missing(url: str) -> None:
    with pytest.raises(ConfigurationError, match="begins with ://") as caught:
        RedisStore(url)
    assert not [text for text in told(caught.value) if "S3" in text]


def told(error: BaseException | None) -> Iterator[str]:
    """What a traceback says of an error and of those that led to it."""
    while error is not None:
        yield f"{error!r} {error}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


# --- errors -------------------------------------------------------------------------------------------------


def test_wrong_password(url: str) -> None:
    user, _, place = url.partition("@")
    store = RedisStore(f"{user}wrong@{place}")
    with pytest.raises(StoreUnavailable, match="refuses the user name or password: correct them in the URL") as caught:
        store.append(NS, [("a", b"")])
    assert user.rpartition(":")[2] not in str(caught.value)
    assert isinstance(caught.value.__cause__, redis.AuthenticationError)
    store.close()


def test_no_password_where_one_is_needed(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--requirepass", "throwaway")
    store = RedisStore(server.url())
    with pytest.raises(StoreUnavailable, match="refuses the user name or password"):
        store.append(NS, [("a", b"")])
    store.close()


def test_wrong_database(any_redis_server: RedisServer) -> None:
    store = RedisStore(any_redis_server.url(99))
    with pytest.raises(StoreUnavailable, match="has no database of this number"):
        store.append(NS, [("a", b"")])
    store.close()


def test_missing_rights(store: RedisStore, raw: Administrator, key_prefix: str) -> None:
    store.append(NS, [("a", b"")])
    raw.execute_command("ACL", "SETUSER", key_prefix.strip(":"), "-@write")
    with pytest.raises(StoreError, match=r"grant \+@read \+@write"):
        store.append(NS, [("b", b"")])
    assert ids(store) == ["a"]
    raw.execute_command("ACL", "SETUSER", key_prefix.strip(":"), "-multi")
    with pytest.raises(StoreError, match=r"grant \+@read \+@write.*multi"):
        store.scan(NS)
    assert store.get(NS) == {}  # the connection is usable


def test_foreign_data_under_our_key(store: RedisStore, raw: Administrator) -> None:
    raw.set(keys(store)["log"], "text")
    with pytest.raises(StoreError, match="give the store a prefix of its own"):
        store.append(NS, [("a", b"")])
    with pytest.raises(StoreError, match="give the store a prefix of its own"):
        store.scan(NS)


def test_out_of_memory_changes_nothing(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    store = RedisStore(server.url())
    store.append(NS, [("a", b"")])
    with redis.Redis.from_url(server.url()) as raw:
        raw.config_set("maxmemory", 1)
        with pytest.raises(StoreError, match="is out of memory: raise its maxmemory"):
            store.write(NS, put={"k": b"v"}, append=[("b", b"")])
        raw.config_set("maxmemory", 0)
    assert ids(store) == ["a"]
    assert store.get(NS) == {}
    store.close()


def test_a_replica_and_a_restart(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--appendonly", "yes")
    store = RedisStore(server.url(), retry_for=0.2)
    store.append(NS, [("a", b"")])
    with redis.Redis.from_url(server.url()) as raw:
        raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable, match="is a read-only replica: use the address of the primary"):
            store.append(NS, [("b", b"")])
        assert ids(store) == ["a"]
        raw.execute_command("REPLICAOF", "NO", "ONE")
        store.append((*NS[:-1], "gone"), [("a", b"")])
        raw.delete(*list(keys(store, (*NS[:-1], "gone")).values())[:3])
        raw.xadd(keys(store)["log"], {"i": "a", "d": b"again"})  # by a writer who died before it took it back
        raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        assert ids(store) == ["a"]  # which cannot be repaired here
        assert [row.namespace for row in store.recent(NS[:-1])] == [NS]  # nor can the list
        raw.execute_command("REPLICAOF", "NO", "ONE")
    server.restart()
    assert store.append(NS, [("b", b"")]).total == 2
    server.stop()
    with pytest.raises(StoreUnavailable, match="cannot be reached: see whether it runs"):
        store.append(NS, [("c", b"")])
    server.start()
    assert ids(store) == ["a", "b"]
    store.close()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that says one thing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve() -> None:
            connections = []
            while not done.is_set():
                connection, _ = listener.accept()
                connections.append(connection)
                if answer:
                    connection.recv(65536)
                    connection.sendall(answer)
            for connection in connections:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield port
        finally:
            done.set()
            with socket.create_connection(("127.0.0.1", port)) as last:
                last.sendall(b"\n")
            thread.join()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", "is loading its data: try again in a moment"),
        (b"", "did not answer in time.*raise socket_timeout"),
    ],
)
def test_a_server_that_is_not_ready(answer: bytes, sentence: str) -> None:
    with answering(answer) as port:
        store = RedisStore(f"redis://127.0.0.1:{port}?lib_name=&lib_version=", socket_timeout=0.1, retry_for=0)
        with pytest.raises(StoreUnavailable, match=sentence):
            store.get(NS)
        store.close()


def test_a_guard_that_failed_watches_no_longer(url: str, key_prefix: str, raw: Administrator) -> None:
    store = RedisStore(url, prefix=key_prefix, max_connections=1)
    store.write(NS, put={"k": b"v"})
    with pytest.raises(Conflict, match="'k' was changed by another writer"):
        store.write(NS, put={"k": b"w"}, guard={"k": b"x"})
    raw.hset(keys(store)["val"], "other", "1")
    assert store.append(NS, [("a", b"")]).new == [True]
    store.close()


def test_a_busy_guard_ends_in_a_conflict(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(NS, put={"k": b"v"})
    transact = redis_wire._transact

    def overtaken(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        raw.hset(keys(store)["val"], "other", uuid.uuid4().hex)
        return transact(connection, commands)

    monkeypatch.setattr(redis_wire, "_transact", overtaken)
    with pytest.raises(Conflict, match="64 times"):
        store.write(NS, put={"k": b"w"}, guard={"k": b"v"})
    assert store.get(NS, ["k"]) == {"k": b"v"}
