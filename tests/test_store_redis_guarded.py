"""Guarded writes of many threads to one namespace of Redis: in few transactions, each with its own answer."""

from __future__ import annotations

import gc
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest
import redis
from redis.exceptions import ResponseError

from langmem_adapters.concurrency.workers import MAX_BATCH
from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.stores import redis_guarded, redis_wire
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.servers import COMMANDS, RedisServer
from tests.test_forks import forked
from tests.test_store_redis import Administrator, keys, raw, url
from tests.test_store_redis_acl import grant
from tests.test_store_redis_together import store
from tests.waiting import until

__all__ = ["raw", "store", "url"]  # fixtures

NS = ("brain", "", "ada", "chat")


class Door:
    """Holds the first guarded transaction of a store until others wait for it, and counts all."""

    def __init__(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.count = 0
        self.opened = threading.Event()
        self.fail: Callable[[], None] = lambda: None
        transact = store._wire.transact_watched_unchecked

        def enter(key: bytes, reads: Sequence[bytes], decide: Any) -> list[Any] | None:
            self.count += 1
            if self.count == 1:
                assert self.opened.wait(60)
                self.fail()
            return transact(key, reads, decide)

        monkeypatch.setattr(store._wire, "transact_watched_unchecked", enter)

    @property
    def waiting(self) -> int:
        values_key = self.store._keys.for_namespace(NS).values
        return len(self.store._guarded_writes._line_of(values_key, threading.RLock).waiting)

    def _has_waiting(self, count: int) -> bool:
        return self.waiting == count

    def answers(self, writes: Sequence[dict[str, Any]], namespace: tuple[str, ...] = NS) -> list[object]:
        """What one write, and then the others at once, come to: None or an error."""
        with ThreadPoolExecutor(len(writes)) as pool:
            calls: list[Future[None]] = []
            for n, write in enumerate(writes):
                calls.append(pool.submit(self.store.write, namespace, **write))
                until(lambda: self.count)
                until(partial(self._has_waiting, n))
            self.opened.set()
            return [call.exception() for call in calls]


@pytest.fixture
def door(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door(store, monkeypatch)


def new(key: str, value: bytes = b"new", **change: Any) -> dict[str, Any]:
    return {"put": {key: value}, "guard": {key: None}, **change}


def test_writes_that_wait_for_one_go_in_one_transaction(store: RedisStore, door: Door) -> None:
    writes = [new(f"k{n}", b"%d" % n, append=[(f"e{n}", b"%d" % n)]) for n in range(41)]
    assert door.answers(writes) == [None] * 41
    assert door.count == 2
    page = store.scan(NS, keys=[f"k{n}" for n in range(41)])
    assert [item.id for item in page.items] == [f"e{n}" for n in range(41)]
    assert page.values == {f"k{n}": b"%d" % n for n in range(41)}
    assert not door.waiting


def test_no_more_go_together_than_in_other_batches(door: Door) -> None:
    writes = [new(f"k{n}") for n in range(MAX_BATCH + 2)]
    assert door.answers(writes) == [None] * len(writes)
    assert door.count == 3


def test_one_that_was_overtaken_is_made_once(
    store: RedisStore, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact, tries = redis_wire._transact, count()

    def be_overtaken(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        if next(tries) == 0:
            raw.hset(keys(store, NS)["val"], "other", "1")
        return transact(connection, commands)

    monkeypatch.setattr(redis_wire, "_transact", be_overtaken)
    store.write(NS, **new("a", append=[("e", b"")]))
    assert next(tries) == 2
    assert raw.xlen(keys(store, NS)["log"]) == 1


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("its owner closes it", "the value 'a' was changed by another writer"),
        ("a health check fails", "did not confirm a guarded write"),
    ],
)
def test_one_whose_connection_is_lost_meanwhile_overwrites_nobody(
    redis_server: RedisServer, key_prefix: str, why: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conflict, tries = redis_guarded._Write.conflict, count()
    with redis.Redis(port=redis_server.port, health_check_interval=3600) as client:
        store = RedisStore(client, prefix=key_prefix)
        store.write(NS, put={"a": b"old"})

        def be_cut_off(write: Any, values: Any) -> Conflict | None:
            if next(tries) == 0:
                RedisStore(redis_server.url(), prefix=key_prefix).write(NS, put={"a": b"theirs"})
                (connection,) = client.connection_pool._in_use_connections
                if why == "its owner closes it":
                    client.close()
                else:
                    connection.next_health_check = 0
                    connection._sock.shutdown(socket.SHUT_RDWR)
            return conflict(write, values)

        monkeypatch.setattr(redis_guarded._Write, "conflict", be_cut_off)
        with pytest.raises(StoreError, match=told):
            store.write(NS, put={"a": b"mine"}, guard={"a": b"old"})
        assert store.get(NS) == {"a": b"theirs"}


def test_who_has_the_turn_sends_until_its_own_is_sent(store: RedisStore) -> None:
    place = store._keys.for_namespace(NS)
    line = store._guarded_writes._line_of(place.values, threading.RLock)
    line.waiting.extend(redis_guarded._Write([place.count_ids], {"k": None}, {}) for _ in range(MAX_BATCH))
    store.write(NS, **new("a"))
    assert store.get(NS) == {"a": b"new"}


def test_one_that_was_interrupted_while_it_waited_is_never_sent(store: RedisStore) -> None:
    class InterruptedTurn:
        def __enter__(self) -> None:
            raise KeyboardInterrupt

        def __exit__(self, *_: object) -> None: ...

    line: Any = store._guarded_writes._line_of(store._keys.for_namespace(NS).values, threading.RLock)
    turn, line.turn = line.turn, InterruptedTurn()
    with pytest.raises(KeyboardInterrupt):
        store.write(NS, **new("a"))
    line.turn = turn
    store.write(NS, **new("b"))
    assert store.get(NS) == {"b": b"new"}


def test_each_is_held_against_what_those_before_it_leave(store: RedisStore, door: Door) -> None:
    store.write(NS, put={"old": b"1", "same": b"1"})
    writes: list[tuple[dict[str, Any], bool]] = [
        (new("first"), True),
        (new("a", b"1"), True),
        (new("a", b"2"), False),
        ({"put": {"a": b"3"}, "guard": {"a": b"1"}}, True),
        ({"put": {"a": b"4"}, "guard": {"a": b"1", "b": None}}, False),
        ({"delete": ["old"], "guard": {"old": b"1"}}, True),
        ({"delete": ["old"], "guard": {"old": b"1"}}, False),
        (new("old", b"back", delete=["old"]), True),
        ({"put": {"b": b"0"}, "guard": {"old": b"back"}}, True),
        ({"put": {"b": b"1"}, "guard": {"same": b"1", "first": b"new"}}, True),
        ({"put": {"c": b"1"}, "guard": {"same": b"2"}}, False),
    ]
    answers = door.answers([write for write, _ in writes])
    assert [answer is None for answer in answers] == [is_made for _, is_made in writes]
    assert [str(answer) for answer in answers if answer] == [
        "the value 'a' was changed by another writer",
        "the value 'a' was changed by another writer",
        "the value 'old' was changed by another writer",
        "the value 'same' was changed by another writer",
    ]
    assert all(isinstance(answer, Conflict) for answer in answers if answer)
    assert door.count == 2
    assert store.get(NS) == {"first": b"new", "a": b"3", "old": b"back", "same": b"1", "b": b"1"}


def test_an_entry_known_to_one_before_is_a_repeat(store: RedisStore, door: Door) -> None:
    writes = [new(f"k{n}", append=[("once", b"%d" % n), (f"own{n}", b"")]) for n in range(4)]
    assert door.answers(writes) == [None] * 4
    page = store.scan(NS)
    assert [item.id for item in page.items] == ["once", "own0", "own1", "own2", "own3"]
    assert (page.items[0].data, page.total) == (b"0", 5)


def test_namespaces_do_not_wait_for_each_other(store: RedisStore, door: Door) -> None:
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(store.write, NS, **new("a"))
        until(lambda: door.count)
        store.write((*NS, "other"), **new("a"))
        door.opened.set()
        held.result()
    assert store.get(NS) == store.get((*NS, "other")) == {"a": b"new"}


def test_large_writes_wait_for_another_transaction(
    store: RedisStore, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_guarded, "_MAX_BATCH_BYTES", 3000)
    assert door.answers([new(f"k{n}", b"x" * 1500) for n in range(7)]) == [None] * 7
    assert door.count == 4  # the first alone, the others by two
    assert len(store.get(NS)) == 7


def test_one_that_is_refused_takes_no_other_along(
    redis_server: RedisServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = grant(redis_server, key_prefix, tuple(command for command in COMMANDS if command != "xdel"))
    with_rights = redis_server.url().replace("//", f"//{login}@")
    store = RedisStore(with_rights, prefix=key_prefix, clock=FakeClock())
    store.append(NS, [("e", b"")])
    refused = {"remove": store.scan(NS).items, "guard": {"a": None}}
    pair = Door(store, monkeypatch).answers([new("x"), refused, new("y")])
    assert [type(answer) for answer in pair] == [type(None), StoreError, type(None)]
    door = Door(store, monkeypatch)
    answers = door.answers([new("first"), new("b"), refused, new("c"), new("c")])
    assert [type(answer) for answer in answers] == [type(None), type(None), StoreError, type(None), Conflict]
    assert "xdel" in str(answers[2]).lower()
    assert store.get(NS) == dict.fromkeys(["x", "y", "first", "b", "c"], b"new")
    store.clear(NS)
    store.close()


def test_one_that_fails_in_a_transaction_fails_alone(store: RedisStore, door: Door, raw: Administrator) -> None:
    raw.set(keys(store, NS)["log"], "somebody's")
    appending = new("a", append=[("e", b"")])
    answers = door.answers([new("first"), new("b"), appending, new("c")])
    assert [type(answer) for answer in answers] == [type(None), type(None), StoreError, type(None)]
    assert isinstance(answers[2], StoreError)
    assert isinstance(answers[2].__cause__, ResponseError)
    assert store.get(NS).keys() >= {"first", "b", "c"}


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), KeyboardInterrupt()])
def test_who_is_kept_from_sending_tells_the_others(
    store: RedisStore, door: Door, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(store.write, NS, **new("first"))
        until(lambda: door.count)
        others = [pool.submit(store.write, NS, **new(f"k{n}")) for n in range(3)]
        until(lambda: door.waiting == 3)
        transact = store._wire.transact_watched_unchecked

        def fail_second(*args: Any) -> list[Any] | None:
            if door.count == 1:
                door.count += 1
                raise error
            return transact(*args)

        monkeypatch.setattr(store._wire, "transact_watched_unchecked", fail_second)
        door.opened.set()
        first.result()
        outcomes = [other.exception() for other in others]
    if isinstance(error, StoreUnavailable):
        assert [str(outcome) for outcome in outcomes] == [str(error)] * 3
        assert len({id(outcome) for outcome in [*outcomes, error]}) == 4  # whose traceback shows no other's frames
    else:  # who was interrupted, and those whose writes it had taken
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["KeyboardInterrupt", "StoreUnavailable", "StoreUnavailable"]
        assert sum("read again" in str(outcome) for outcome in outcomes) == 2
    assert store.get(NS) == {"first": b"new"}
    store.write(NS, **new("k0"))
    assert not door.waiting


@pytest.mark.parametrize("moment", ["as it takes", "as it sends"])
def test_a_signal_s_handler_may_write_in_the_middle_of_a_write(
    store: RedisStore, door: Door, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = iter([partial(store.write, NS, **new("handled"))])
    take = redis_guarded._Line.take

    def handle_signal() -> None:
        for handle in signals:
            handle()

    def take_interrupted(line: redis_guarded._Line) -> list[redis_guarded._Write]:
        handle_signal()
        return take(line)

    door.opened.set()
    if moment == "as it takes":
        monkeypatch.setattr(redis_guarded._Line, "take", take_interrupted)
    else:
        door.fail = handle_signal
    outcomes: list[None] = []
    thread = threading.Thread(target=lambda: outcomes.append(store.write(NS, **new("own"))), daemon=True)
    thread.start()
    thread.join(30)
    assert outcomes == [None], "it hangs, or is said to be not made"
    assert store.get(NS) == {"own": b"new", "handled": b"new"}


def test_one_that_another_took_and_lost_is_not_sent_again(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(line: redis_guarded._Line) -> list[redis_guarded._Write]:
        line.waiting.clear()
        return []

    monkeypatch.setattr(redis_guarded._Line, "take", lose)
    with pytest.raises(StoreUnavailable, match="read again"):
        store.write(NS, **new("a"))
    assert store.get(NS) == {}


def test_a_line_has_the_kind_of_lock_that_gevent_has_put_in_place_since(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_lock, made = threading.RLock, count()

    def make_other_lock() -> Any:
        next(made)
        return make_lock()

    for key in ("a", "b"):
        store.write(NS, **new(key))
    monkeypatch.setattr(threading, "RLock", make_other_lock)
    for key in ("c", "d"):
        store.write(NS, **new(key))
    assert next(made) == 1


@pytest.mark.parametrize("error", [Conflict, StoreError])
def test_an_error_keeps_no_value_until_garbage_is_collected(
    store: RedisStore, raw: Administrator, error: type[StoreError]
) -> None:
    class Values(dict[str, bytes]):
        """A dictionary that can be referred to weakly."""

    if error is Conflict:
        store.write(NS, put={"a": b"1"})
    else:
        raw.set(keys(store, NS)["val"], "text")
    put = Values(a=b"a long text")
    reference = weakref.ref(put)
    gc.disable()
    try:
        with suppress(error):
            store.write(NS, put=put, guard={"a": None})
        del put
        assert reference() is None
    finally:
        gc.enable()


def test_those_who_waited_while_a_replica_refused_are_refused_too(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis()
    with redis.Redis(port=server.port) as client:
        client.replicaof("127.0.0.1", 1)
    store = RedisStore(server.url(), retry_for=0.1)
    door = Door(store, monkeypatch)
    answers = door.answers([new(f"k{n}", b"x" * 100_000) for n in range(20)])
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 20
    assert {str(answer) for answer in answers} == {str(answers[0])}
    assert "is a read-only replica" in str(answers[0])
    assert door.count == 2  # the first alone, and then some of the others for all
    store.close()


def test_what_was_refused_while_it_waited_is_sent_by_nobody(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with redis.Redis(port=server.port) as client:
        client.replicaof("127.0.0.1", 1)
    store = RedisStore(server.url(), retry_for=0.1)
    place = store._keys.for_namespace(NS)
    line = store._guarded_writes._line_of(place.values, threading.RLock)
    line.waiting.extend(redis_guarded._Write(place.persist_commands, {"k": None}, {}) for _ in range(MAX_BATCH + 3))
    with pytest.raises(StoreUnavailable, match="is a read-only replica"):
        store.write(NS, **new("a"))
    assert not line.waiting
    store.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_send_what_waits_in_its_parent(store: RedisStore, door: Door) -> None:
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(store.write, NS, **new("a"))]
        until(lambda: door.count)
        calls.append(pool.submit(store.write, NS, **new("b")))
        until(lambda: door.waiting)
        assert forked(lambda: store.write(NS, **new("of the child"))) == 0
        assert store.get(NS).keys() == {"of the child"}
        door.opened.set()
        for call in calls:
            call.result()
    assert store.get(NS).keys() == {"a", "b", "of the child"}
