"""A Redis server that has reached its maxmemory answers what reads, and takes what frees memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from langmem_adapters import BrainMemory, Message, Sessions, Settings, WorkingMemory
from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.flow import arun, step
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.operations import Pruning
from langmem_adapters.protocols import Appended
from langmem_adapters.stores import redis_wire
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_directory import Directory
from langmem_adapters.testing import FakeClock
from tests.servers import RedisServer, redis_servers
from tests.test_store_redis import NS, ids, keys

FULL = "is out of memory: raise its maxmemory"


class Room:
    """Decides whether the server has room. One byte is less than an empty server takes: nothing frees enough."""

    def __init__(self, server: RedisServer) -> None:
        self.url = server.url()
        self.raw: Any = redis.Redis.from_url(self.url)

    def end(self) -> None:
        self.raw.config_set("maxmemory", 1)

    def begin(self) -> None:
        self.raw.config_set("maxmemory", 0)
        self.raw.execute_command("REPLICAOF", "NO", "ONE")


@pytest.fixture(scope="module", params=list(redis_servers()) or [""])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    path: Path = redis_servers()[request.param]
    with RedisServer(path, args=("--maxmemory-policy", "noeviction")) as server:
        yield server


@pytest.fixture
def room(server: RedisServer) -> Iterator[Room]:
    room = Room(server)
    yield room
    room.begin()
    room.raw.flushall()
    room.raw.close()


@pytest.fixture
def store(room: Room) -> Iterator[RedisStore]:
    store = RedisStore(room.url)
    yield store
    store.close()


def a_full_session(store: RedisStore, room: Room) -> BrainMemory:
    brain = BrainMemory(store, "s", user="ada")
    brain.add_messages([Message(role="user", content=f"note {n}", id=str(n)) for n in range(3)])
    WorkingMemory(store, user="ada").store("colour", "blue")
    room.end()
    return brain


def test_reads_are_answered(store: RedisStore, room: Room) -> None:
    brain = a_full_session(store, room)
    for _ in range(2):
        with pytest.raises(StoreError, match=FULL) as refused:
            brain.add_talk("another")
        assert type(refused.value) is StoreError
        assert [message.content for message in brain.messages()] == ["note 0", "note 1", "note 2"]
        assert [message.content for message in brain.window()] == ["note 0", "note 1", "note 2"]
        assert brain.get_summary() is None
        assert [item.data for item in WorkingMemory(store, user="ada").retrieve("colour")] == ["blue"]
        assert [info.session for info in Sessions(store, user="ada").list_sessions()] == ["s"]
        assert len(list(Sessions(store, user="ada").export("s"))) == 4  # and its head
        assert store.stats().kinds["brain"].entries == 3


@pytest.mark.parametrize("trouble", ["full", "a replica"])
def test_items_of_a_long_term_store_are_read(room: Room, trouble: str) -> None:
    kept, clock = RedisStore(room.url, retry_for=0), FakeClock()
    items = LongTermStore(store=kept, index=LexicalIndex(":memory:"), ttl={"default_ttl": 60}, clock=clock)
    items.put(("notes",), "bike", {"text": "It is in the shed."})
    items.put(("notes",), "lamp", {"text": "It is in the shed."}, ttl=1)
    items.put(("gone",), "key", {"text": "It is in the shed."}, ttl=1)
    clock.advance(600)
    if trouble == "full":
        room.end()
    else:
        room.raw.execute_command("REPLICAOF", "127.0.0.1", "1")
    for _ in range(2):
        assert items.get(("notes",), "bike") is not None
        assert items.get(("gone",), "key") is None
        assert [item.key for item in items.search(("notes",))] == ["bike"]
        assert [item.key for item in items.search((), query="shed")] == ["bike"]
        assert items.list_namespaces() == [("notes",)]
        with pytest.raises(StoreError, match=f"{FULL}|is a read-only replica"):
            items.put(("notes",), "door", {})
        with pytest.raises(StoreError, match=f"{FULL}|is a read-only replica"):
            items.sweep_ttl()
    room.begin()
    assert items.sweep_ttl() == 2
    kept.close()


async def test_reads_of_several_at_once_are_answered(store: RedisStore, room: Room) -> None:
    a_full_session(store, room)
    namespace = ("brain", "", "ada", "s")

    def look() -> Any:
        return (yield from step(store.scan, namespace))

    pages = await asyncio.gather(*(arun(look()) for _ in range(20)))
    assert [[item.id for item in page.items] for page in pages] == [["0", "1", "2"]] * 20


@pytest.mark.parametrize("trouble", ["maxmemory", "min-replicas-to-write"])
def test_what_was_written_is_not_called_refused_where_the_list_is_refused_a_longer_life(
    store: RedisStore, room: Room, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """As where the write itself has filled the server."""
    extend_expiry = Directory.extend_expiry

    def refused(self: Directory, lifetime: int) -> None:
        room.raw.config_set(trouble, 1)
        try:
            extend_expiry(self, lifetime)
        finally:
            room.raw.config_set(trouble, 0)

    monkeypatch.setattr(Directory, "extend_expiry", refused)
    another = ("brain", "t", "v", "s")
    assert store.append(NS, [("a", b"1")], ttl=100).new == [True]
    store.write(another, put={"k": b"v"}, guard={"k": None}, ttl=100)
    assert ids(store) == ["a"]
    monkeypatch.undo()
    if trouble != "maxmemory":  # the next write makes up for it
        store.append(NS, [("b", b"2")], ttl=100)
        store.write(another, ttl=100)
    for namespace in (NS, another):
        assert 100_000 < room.raw.pttl(keys(store, namespace)["dir"]) <= 125_000


def test_a_writer_does_not_wait_for_a_server_that_has_become_a_replica_before_its_list_may_live_longer(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    extend_expiry, transact_watched = Directory.extend_expiry, redis_wire.Wire.transact_watched
    tries: list[bytes] = []

    def demoted(self: Directory, lifetime: int) -> None:
        room.raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        extend_expiry(self, lifetime)

    def counted(self: redis_wire.Wire, key: bytes, *args: Any) -> Any:
        tries.append(key)
        return transact_watched(self, key, *args)

    monkeypatch.setattr(Directory, "extend_expiry", demoted)
    monkeypatch.setattr(redis_wire.Wire, "transact_watched", counted)
    store = RedisStore(room.url, retry_for=0)
    assert store.append(NS, [("a", b"1")], ttl=100).new == [True]
    assert len(tries) == 2
    with pytest.raises(StoreUnavailable, match="is a read-only replica"):
        store.append(NS, [("b", b"2")], ttl=100)
    store.close()


def test_a_look_that_was_torn_is_repeated(store: RedisStore, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(NS, put={"last": b"b"}, append=[("a", b""), ("b", b"")])
    room.end()
    is_torn = False
    try:
        room.raw.pipeline().ping().execute()
    except OutOfMemoryError:  # Valkey takes reads into a transaction while it is full
        is_torn = True
    transact = redis_wire._transact
    changes = iter([True])

    def overtaken(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        if not commands and next(changes, False):  # after the look, before it is known whether it was whole
            (first, _), *_ = room.raw.xrange(keys(store)["log"])
            room.raw.xdel(keys(store)["log"], first)
            room.raw.srem(keys(store)["ids"], "a")
        return transact(connection, commands)

    monkeypatch.setattr(redis_wire, "_transact", overtaken)
    page = store.scan(NS, keys=["last"])
    assert [item.id for item in page.items] == (["b"] if is_torn else ["a", "b"])
    assert page.total == len(page.items)


@pytest.mark.parametrize("name", ["clear", "delete_session", "working", "delete_user", "prune", "discard"])
def test_whole_sessions_and_kinds_can_be_removed(store: RedisStore, room: Room, name: str) -> None:
    brain = a_full_session(store, room)
    if name == "clear":
        brain.clear()
    elif name == "delete_session":
        assert Sessions(store, user="ada").delete_session("s")
    elif name == "working":
        assert WorkingMemory(store, user="ada").delete("colour")
    elif name == "delete_user":
        assert Settings(url=room.url).delete_user("ada")["messages"] == 3
    elif name == "prune":
        later = FakeClock()
        later.advance(10**10)
        assert Pruning(store, 60, clock=later).run().kinds == {"brain": 1, "working": 1}
    else:
        assert not store.discard(("brain", "", "ada", "s"), 0.0)
        assert store.discard(("brain", "", "ada", "s"), 10.0**10)
    left = {key.split(b"//")[0] for key in room.raw.keys("*")}
    expected = {"delete_user": set(), "prune": set(), "working": {b"langmem:{brain"}}
    assert left == expected.get(name, {b"langmem:{working"})


def test_what_is_written_before_a_discard_frees_memory_is_spared(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    store = RedisStore(room.url, clock=clock)
    store.append(NS, [("a", b"1")])
    clock.advance(50)
    room.end()
    transact_watched, written = store._wire.transact_watched, []

    def overtaken(*asked: Any) -> Any:
        try:
            return transact_watched(*asked)
        except StoreError:
            room.begin()
            written.append(store.append(NS, [("b", b"2")]))
            raise

    monkeypatch.setattr(store._wire, "transact_watched", overtaken)
    is_gone = store.discard(NS, clock())
    assert (is_gone, ids(store)) == ((False, ["a", "b"]) if written else (True, []))  # Valkey refuses no discard
    store.close()


def test_a_list_is_given_where_the_rows_of_what_is_gone_cannot_be_removed(store: RedisStore, room: Room) -> None:
    for name in ("here", "gone"):
        store.append((*NS[:-1], name), [("a", b"")])
    room.raw.delete(*store._keys.for_namespace((*NS[:-1], "gone"))[:3])
    room.end()
    assert [row.namespace[-1] for row in store.recent(NS[:-1])] == ["here"]


def test_an_entry_that_was_appended_again_is_taken_back(
    store: RedisStore, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2")])
    transact = redis_wire._transact

    def then_full(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        replies = transact(connection, commands)
        room.end()  # by that very write
        return replies

    with monkeypatch.context() as first:
        first.setattr(redis_wire, "_transact", then_full)
        assert store.append(NS, [("a", b"again")]) == Appended([False], 2, {})
    assert ids(store) == ["a", "b"]
    assert room.raw.xlen(keys(store)["log"]) == 2


def test_what_a_writer_has_left_is_read_past(store: RedisStore, room: Room) -> None:
    store.append(NS, [("a", b"1"), ("b", b"2"), ("c", b"3")])
    room.raw.xadd(keys(store)["log"], {"i": "b", "d": b"again"})  # it died before it took it back
    room.end()
    page = store.scan(NS, limit=2, reverse=True)
    assert [(item.id, item.data) for item in page.items] == [("c", b"3"), ("b", b"2")]
    assert page.total == 3
    after = page.items[1].seq
    assert [item.id for item in store.scan(NS, after=after).items] == ["c"]
    assert [item.id for item in store.scan(NS, before=after).items] == ["a"]
    assert store.scan(NS, limit=0).total == 3


def test_what_needs_a_guard_to_remove_a_part_is_refused_and_changes_nothing(store: RedisStore, room: Room) -> None:
    brain = a_full_session(store, room)
    with pytest.raises(StoreError, match=FULL):
        brain.delete(["1"])
    assert [message.id for message in brain.messages()] == ["0", "1", "2"]
    room.begin()
    assert brain.delete(["1"]) == 1
    assert [message.id for message in brain.messages()] == ["0", "2"]


def test_what_is_refused_for_another_reason_is_not_read_again(room: Room, store: RedisStore) -> None:
    room.raw.set(store._keys.for_namespace(NS).log, "x")
    before = room.raw.info("commandstats")
    with pytest.raises(StoreError, match="holds foreign data"):
        store.scan(NS)
    after = room.raw.info("commandstats")
    assert after["cmdstat_xlen"]["calls"] == before.get("cmdstat_xlen", {"calls": 0})["calls"] + 1
