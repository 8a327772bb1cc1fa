"""An interrupt, as of a notebook's cell, leaves nothing half done and nobody waiting, wherever it comes (J1).

It comes where CPython looks for signals: as a function of Python's begins, and as one of C's ends. So each of these
points is tried in turn, with the traceback kept, as a notebook does.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import sqlite3
import subprocess
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from redis import Connection, ConnectionPool, Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from langmem_adapters import StoreUnavailable, cached
from langmem_adapters.concurrency import background, forks, locks
from langmem_adapters.concurrency.breaker import Breaker
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.concurrency.outcomes import Outcome
from langmem_adapters.embedding import Embedding
from langmem_adapters.experience.single_flight.flights import Flights
from langmem_adapters.files.database import Database
from langmem_adapters.flow import run
from langmem_adapters.indexes.vector import EmbedderSpec
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.protocols import Store
from langmem_adapters.stores import redis_connections
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_connections import LastUses, OwnConnections, call_with_connection
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.servers import RedisServer
from tests.waiting import until

SESSION = ("s",)

# A connection that was being borrowed as the interrupt came belongs to nobody, and is closed with the garbage: Python
# 3.13 warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
_locks_are_let_go = pytest.mark.skipif(
    sys.version_info[:2] == (3, 14),
    reason="an interrupt leaves any lock of Python 3.14's held, https://github.com/python/cpython/issues/148874",
)


@pytest.fixture(autouse=True)
def _nothing_work_depths(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(forks, "_work_depths", {})  # a fork would wait for the interrupted thread, though not for ever
    monkeypatch.setattr(background, "_gets_interrupts", lambda: True)  # those of these tests come in other threads, too
    yield
    gc.collect()


_FORGETS = weakref.WeakSet()._remove.__code__  # type: ignore[attr-defined] # of a thread that has ended


def interrupted(call: Callable[[], object], point: int) -> KeyboardInterrupt | None:
    """Interrupt a call at this point of it; None, if it was over before."""
    left = point

    def look(frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal left
        if event in {"call", "c_return"} and frame.f_code is not _FORGETS:  # Python drops what is raised there
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt
            left -= 1

    gc.disable()  # Python drops what is raised while it collects, and Hypothesis has a function called then
    try:
        sys.setprofile(look)
        call()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.setprofile(None)
        gc.enable()
    return None


def cells(prepare: Callable[[], Callable[[], object]], look: Callable[[], object]) -> int:
    """Interrupt a call at each of its points in turn, and look what it left; gives how many there are."""
    outcome: list[Any] = []

    def run() -> None:
        point = 0
        try:
            while (kept := interrupted(prepare(), point)) is not None:
                look()
                point += 1
                del kept
        except BaseException as error:  # noqa: BLE001 - told to the test
            outcome.append((point, error))
        else:
            outcome.append(point)

    thread = threading.Thread(target=run, daemon=True)  # which nobody waits for, where it hangs
    thread.start()
    thread.join(120)
    assert outcome, "it hangs"
    assert isinstance(outcome[0], int), outcome[0]
    return outcome[0]


@pytest.fixture(params=["file", "hurried"])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "t.db", timeout=0.05, fails_fast=request.param == "hurried")
    made.append(SESSION, [("first", b"1")])
    yield made
    made.close()


CALLS: dict[str, Callable[[Store], object]] = {
    "append": lambda store: store.append(SESSION, [("a", b"1"), ("b", b"2")]),
    "write": lambda store: store.write(SESSION, put={"a": b"1"}, append=[("a", b"1"), ("b", b"2")]),
    "scan": lambda store: store.scan(SESSION, keys=["a"]),
    "get": lambda store: store.get(SESSION, ["a"]),
    "clear": lambda store: store.clear(SESSION),
}


def look_at(store: Store) -> None:
    """What there is, is whole; and it takes what comes."""
    page = store.scan(SESSION, keys=["a"])
    assert [item.id for item in page.items] in (["first"], ["first", "a", "b"], [])
    assert len(page.values) <= len(page.items) == page.total
    assert store.append(SESSION, [("a", b"1"), ("b", b"2")]).total == (3 if page.total else 2)


@pytest.mark.parametrize("name", CALLS)
def test_j1_an_interrupt_leaves_a_file_to_others(on_disk: SQLiteStore, tmp_path: Path, name: str) -> None:
    def prepare() -> Callable[[], object]:
        on_disk.clear(SESSION)
        on_disk.append(SESSION, [("first", b"1")])
        return lambda: CALLS[name](on_disk)

    def look() -> None:
        with closing(sqlite3.connect(tmp_path / "t.db", timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
        look_at(on_disk)

    assert cells(prepare, look) > 15


@pytest.mark.parametrize("read", [lambda store: store.scan(SESSION, limit=3), lambda store: list(store.examine())])
def test_j1_an_interrupted_read_leaves_no_connection_at_an_old_state(
    on_disk: SQLiteStore, tmp_path: Path, read: Callable[[SQLiteStore], object]
) -> None:
    other, ids = SQLiteStore(tmp_path / "t.db"), map(str, itertools.count())
    on_disk.append(SESSION, [("second", b"2"), ("third", b"3")])

    def look() -> None:
        total = other.append(SESSION, [(next(ids), b"")]).total
        assert on_disk.scan(SESSION, limit=1).total == total
        assert on_disk.append(SESSION, [(next(ids), b"")]).total == total + 1

    assert cells(lambda: lambda: read(on_disk), look) > 15
    other.close()


@pytest.mark.parametrize("name", CALLS)
def test_j1_an_interrupt_leaves_a_store_in_memory_whole(name: str) -> None:
    store = MemoryStore()

    def prepare() -> Callable[[], object]:
        store.clear(SESSION)
        store.append(SESSION, [("first", b"1")])
        return lambda: CALLS[name](store)

    assert cells(prepare, lambda: look_at(store)) > 15


@_locks_are_let_go
@pytest.mark.parametrize("name", CALLS)
def test_j1_an_interrupt_leaves_a_store_in_memory_to_other_threads(name: str) -> None:
    store = MemoryStore()

    def look() -> None:
        other = threading.Thread(target=look_at, args=(store,), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()

    def prepare() -> Callable[[], object]:
        store.clear(SESSION)
        store.append(SESSION, [("first", b"1")])
        return lambda: CALLS[name](store)

    assert cells(prepare, look) > 15


@_locks_are_let_go
def test_j1_an_interrupt_leaves_all_of_a_write_to_memory_or_nothing() -> None:
    store = MemoryStore()
    before = ["a", "b", "c"], {"old": b"1", "same": b"1"}, False
    after = ["a", "c", "d"], {"same": b"2", "new": b"2"}, True

    def state() -> tuple[list[str], dict[str, bytes], bool]:
        dates = store.dates(SESSION)
        expires = dates is not None and dates.expires_in is not None
        return [item.id for item in store.scan(SESSION).items], store.get(SESSION), expires

    def prepare() -> Callable[[], object]:
        store.clear(SESSION)
        store.write(SESSION, put=before[1], append=[(id_, b"") for id_ in before[0]])
        gone = store.scan(SESSION).items[1]
        return lambda: store.write(SESSION, put=after[1], delete=["old"], append=[("d", b"")], remove=[gone], ttl=60)

    def look() -> None:
        assert state() in (before, after)

    assert cells(prepare, look) > 15
    assert state() == after


@_locks_are_let_go
def test_j1_an_interrupt_leaves_an_index_in_memory_what_it_knows() -> None:
    database = Database(":memory:", schema=["CREATE TABLE t (x)"], name="t")

    def write(*values: str) -> None:
        with database.writing() as connection, connection:
            for value in values:
                connection.execute("INSERT INTO t VALUES (?)", (value,))

    def prepare() -> Callable[[], object]:
        with database.writing() as connection, connection:
            connection.execute("DELETE FROM t")
        write("first")
        return lambda: write("a", "b")

    def look() -> None:
        assert database.fetch_all("SELECT x FROM t ORDER BY rowid", ()) in (
            [("first",)],
            [("first",), ("a",), ("b",)],
        )

    assert cells(prepare, look) > 10
    other = threading.Thread(target=write, args=("another thread's",), daemon=True)
    other.start()
    other.join(20)
    assert not other.is_alive()
    database.close()


@_locks_are_let_go
def test_j1_an_interrupt_leaves_an_index_in_memory_to_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_LOST_SECONDS", 0.001)
    database = Database(":memory:", schema=["CREATE TABLE t (x)"], name="t")
    select: Callable[[], object] = lambda: database.fetch_all("SELECT x FROM t", ())  # noqa: E731 - with its type

    def write() -> None:
        with database.writing() as connection, connection:
            connection.execute("INSERT INTO t VALUES (1)")

    def look() -> None:
        other = threading.Thread(target=write, daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()

    write()
    for call in (write, select):
        assert cells(lambda: call, look) > 10  # noqa: B023 - called before the next
    database.close()


@_locks_are_let_go
def test_j1_an_interrupt_leaves_vectors_in_memory_to_their_ids() -> None:
    maker, ids = EmbedderSpec("turns", 2), [str(n) for n in range(12)]
    embeddings = {id_: Embedding(array("f", (math.cos(n / 2), math.sin(n / 2)))) for n, id_ in enumerate(ids)}
    vectors = SQLiteVectors(":memory:")

    def change(upserted: list[str], deleted: list[str]) -> None:
        upsert = {id_: embeddings[id_] for id_ in upserted}
        vectors.change("n/", maker, upsert=upsert, delete=deleted, position=None)

    def nearest(id_: str) -> str:
        return vectors.nearest("n/", maker, embeddings[id_].vector, 1)[0][0]

    def prepare(deleted: list[str]) -> Callable[[], object]:
        vectors.clear("n/")
        change(ids[:6], [])
        nearest("0")
        change(ids[6:], deleted)
        return lambda: nearest("9")

    def look() -> None:
        assert [nearest(id_) for id_ in ids[8:]] == ids[8:]

    assert cells(lambda: prepare(ids[:2]), look) > 30
    assert cells(lambda: prepare(ids[:8]), look) > 30
    vectors.close()


@pytest.mark.parametrize("take", [lambda lock: lock.held(), lambda lock: lock.try_hold(-1)])
def test_j1_an_interrupt_leaves_a_lock_to_its_thread(take: Callable[[ForkSafeLock], Any]) -> None:
    lock, seen = ForkSafeLock(), []

    def use() -> None:
        with take(lock):
            seen.append("alone")

    assert cells(lambda: use, use) > 1
    other = threading.Thread(target=use, daemon=True)
    other.start()
    other.join(20)
    assert not other.is_alive()


@_locks_are_let_go
def test_j1_an_interrupt_leaves_the_background_to_what_comes_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(used: bool) -> Callable[[], object]:
        monkeypatch.setattr(background, "_lanes", {})
        if used:
            look()
        return lambda: background.submit(lambda: 1)

    def look() -> None:
        assert [background.submit(lambda: 1).result(20) for _ in range(2)] == [1, 1]
        # the end of the script would wait for what never begins
        until(lambda: not background._lanes["work"]._unfinished)

    assert cells(lambda: prepare(used=False), look) > 30
    assert cells(lambda: prepare(used=True), look) > 10


_ENDS = """
import asyncio
import sys
from langmem_adapters.concurrency.background import submit
from langmem_adapters.flow import arun, step

def interrupt(frame, event, arg):
    if event == "c_return" and arg.__name__ in {"start_new_thread", "start_joinable_thread"}:
        sys.setprofile(None)
        raise KeyboardInterrupt

loop = asyncio.new_event_loop()
sys.setprofile(interrupt)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
loop.close()
"""


@pytest.mark.parametrize("call", ["submit(list)", "loop.run_until_complete(arun(step(id, 1)))"])
def test_j1_an_interrupt_as_a_thread_starts_does_not_keep_the_script_from_its_end(call: str) -> None:
    code = _ENDS.replace("{call}", call)
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr


_HOLDS_A_LOCK = """
import sys
import threading
from langmem_adapters.concurrency import background

def interrupt(frame, event, arg):
    if event == "c_return" and frame.f_code is threading.Condition.__enter__.__code__:
        sys.setprofile(None)
        raise KeyboardInterrupt

background._EXIT_WAIT_SECONDS = 0.1
over = threading.Event()
call = background.submit(over.wait)
sys.setprofile(interrupt)
try:
    call.result()
except KeyboardInterrupt:
    over.set()
"""


def test_j1_an_interrupt_of_one_who_waits_for_a_call_does_not_keep_the_script_from_its_end() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _HOLDS_A_LOCK], check=False, capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stderr) == (0, "calls that were abandoned as the script ended: 1\n")


@_locks_are_let_go
def test_j1_an_interrupt_leaves_a_server_to_the_next_probe() -> None:
    answers: list[bool] = []

    def probe() -> None:
        if not answers:
            raise OSError("down")

    breaker = Breaker(probe)

    def prepare() -> Callable[[], object]:
        nonlocal breaker
        answers.clear()
        breaker = Breaker(probe, pause=0.0)
        with pytest.raises(OSError, match="down"):
            breaker.guard(probe)
        return call

    def call() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return breaker.guard(lambda: True)
        return False

    def look() -> None:
        answers.append(True)
        until(call)

    assert cells(prepare, look) > 20


@_locks_are_let_go
def test_c8_an_interrupted_call_keeps_nobody_waiting(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "t.db")

    @cached(store=store, wait=30)
    def f(n: int) -> int:
        return n

    def prepare() -> Callable[[], object]:
        f.cache.pool.clear()
        return lambda: f(1)

    def look() -> None:
        other = threading.Thread(target=f, args=(1,), daemon=True)
        other.start()
        other.join(20)
        assert not other.is_alive()

    assert cells(prepare, look) > 200
    store.close()


@_locks_are_let_go
def test_c8_an_interrupt_as_a_call_lands_keeps_nobody_waiting() -> None:
    flight, follower = Flights().join("k")[0], threading.Thread()

    def prepare() -> Callable[[], object]:
        nonlocal flight, follower
        flight = Flights().join("k")[0]
        assert flight is not None
        follower = threading.Thread(target=lambda one: run(one.wait(60)), args=(flight,), daemon=True)
        follower.start()
        return partial(flight.land, None)

    def look() -> None:
        assert flight is not None
        flight.abandon()  # as who lets the call go does
        collector = threading.Thread(target=flight.abandon, daemon=True)  # as any thread does with the garbage
        collector.start()
        for thread in (collector, follower):
            thread.join(20)
            assert not thread.is_alive()

    assert cells(prepare, look) > 5


@_locks_are_let_go
def test_j1_an_interrupt_of_one_who_waits_for_a_summary_does_not_stop_the_one_who_makes_it() -> None:
    outcome = Outcome[None]()

    def prepare() -> Callable[[], object]:
        nonlocal outcome
        outcome = Outcome()
        return partial(outcome.wait, 0.001)

    def look() -> None:
        maker = threading.Thread(target=outcome.settle, args=(None,), daemon=True)
        maker.start()
        maker.join(20)
        assert not maker.is_alive()
        assert outcome.is_settled

    assert cells(prepare, look) > 5


def test_c8_a_lease_is_given_back_although_an_interrupt_came_as_it_was_given_back() -> None:
    interrupts = [1]

    class Interrupting(MemoryStore):
        def write(self, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("delete") and interrupts:
                interrupts.pop()
                raise KeyboardInterrupt
            super().write(*args, **kwargs)

    store = Interrupting()

    @cached(store=store, wait=30, should_store=lambda _: False)  # so that other processes find no result
    def f() -> int:
        return 1

    with pytest.raises(KeyboardInterrupt):
        f()
    (leases,) = (namespace for namespace in store.namespaces() if namespace[-1] == "leases")
    until(lambda: not store.get(leases).keys() - {"\0abandoned"})
    assert not interrupts


_CRASHES = """
from langmem_adapters.stores.redis_client import make_link
from langmem_adapters.stores.redis_packing import pack

def connecting(url):
    return make_link(url, max_connections=1, socket_timeout=1.0).source.make_connection().pack_command

class Interrupted(int):
    def __str__(self):
        raise KeyboardInterrupt

try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(
    "call",
    [
        'pack("XRANGE", b"log", "COUNT", Interrupted(12))',
        'connecting("redis://localhost/12")("SELECT", Interrupted(12))',
        'connecting("redis+sentinel://localhost/main/12")("SELECT", Interrupted(12))',
    ],
)
def test_j1_an_interrupt_while_a_command_is_packed_does_not_crash_the_process(call: str) -> None:
    code = _CRASHES.replace("{call}", call)
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "interrupted\n"), ended.stderr


# The socket of redis-py that no connection has yet as the interrupt comes, too: Python 3.10 warns of that one.
@pytest.mark.filterwarnings(f"{'ignore' if sys.version_info < (3, 11) else 'error'}:unclosed <socket:ResourceWarning")
@_locks_are_let_go
@pytest.mark.parametrize("query", ["", "?protocol=3"])
def test_j1_an_interrupt_leaves_a_server_s_answers_to_whom_they_are_for(
    redis_server: RedisServer, key_prefix: str, query: str
) -> None:
    # With one connection, the next call would wait in vain for one that was lost.
    store = RedisStore(redis_server.url() + query, prefix=key_prefix, socket_timeout=5, max_connections=1, retry_for=0)

    def prepare() -> Callable[[], object]:
        store.clear(SESSION)
        store.append(SESSION, [("first", b"1")])
        return lambda: CALLS["append"](store)

    assert cells(prepare, lambda: look_at(store)) > 15
    store.close()


@_locks_are_let_go
def test_j1_an_interrupted_guarded_write_is_not_sent_by_others_later(
    redis_server: RedisServer, key_prefix: str
) -> None:
    store, names = RedisStore(redis_server.url(), prefix=key_prefix), map(str, itertools.count())

    def prepare() -> Callable[[], object]:
        name = next(names)
        return lambda: store.write(SESSION, put={name: b""}, guard={name: None})

    def look() -> None:
        before, name = store.get(SESSION), next(names)
        store.write(SESSION, put={name: b""}, guard={name: None})
        assert store.get(SESSION).keys() == before.keys() | {name}

    assert cells(prepare, look) > 15
    store.close()


def test_j1_an_answer_that_nobody_waited_for_is_not_the_next_one_s(redis_server: RedisServer, key_prefix: str) -> None:
    interrupts: list[str] = []

    class Late(Connection):
        def can_read(self, *_: Any, **__: Any) -> bool:
            return False  # an answer that is still on its way

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            if interrupts:
                interrupts.pop()
                raise KeyboardInterrupt
            return super().read_response(*args, **kwargs)

    pool = ConnectionPool.from_url(redis_server.url(), connection_class=Late)
    store = RedisStore(pool, prefix=key_prefix)
    store.write(SESSION, put={"a": b"1", "b": b"2"})
    interrupts.append("a")
    with pytest.raises(KeyboardInterrupt):
        store.get(SESSION, ["a"])
    assert store.get(SESSION, ["b"]) == {"b": b"2"}
    store.close()
    pool.disconnect()


@pytest.mark.parametrize("given", [True, False])
def test_j1_a_second_interrupt_leaves_no_answer_to_the_next_one_either(
    redis_server: RedisServer, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a supervisor sends SIGTERM with a terminal's Ctrl-C: one comes at once in what handles the other."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    administrator = Redis(port=redis_server.port)

    def late(connection: Any) -> None:
        administrator.client_pause(200)  # the answer comes after the next call has looked for what was left unread
        connection.send_command("ECHO", "secret")
        raise KeyboardInterrupt

    pool = ConnectionPool.from_url(redis_server.url(), max_connections=1, socket_timeout=5)
    own = OwnConnections(pool, LastUses(FakeClock()), keep_borrowed=True)
    call: Callable[[Callable[[Any], Any]], Any] = partial(call_with_connection, pool) if given else own.call
    call(ping)
    with monkeypatch.context() as patch:
        patch.setattr(redis_connections, "_disconnect_unless_reusable", interrupt)
        with pytest.raises(KeyboardInterrupt):
            call(late)
    assert call(ping) == b"PONG"
    pool.disconnect()
    administrator.close()


def ping(connection: Any) -> Any:
    connection.send_command("PING")
    return connection.read_response()


@pytest.mark.parametrize(
    ("method", "at_hand"), [("release", False), ("release", True), ("can_read", True), ("should_reconnect", True)]
)
def test_j1_an_interrupt_beside_the_talk_leaves_the_connection_to_others(
    redis_server: RedisServer, method: str, at_hand: bool
) -> None:
    interrupts: list[str] = []

    def interrupt(name: str) -> None:
        if name in interrupts:
            interrupts.remove(name)
            raise KeyboardInterrupt

    class Interruptible(Connection):
        def can_read(self, *args: Any, **kwargs: Any) -> bool:
            interrupt("can_read")
            return bool(super().can_read(*args, **kwargs))

        def should_reconnect(self) -> bool:
            interrupt("should_reconnect")
            return bool(super().should_reconnect())  # type: ignore[no-untyped-call]

    class Pool(ConnectionPool):
        def release(self, connection: Any) -> None:
            super().release(connection)
            interrupt("release")

    pool = Pool.from_url(redis_server.url(), connection_class=Interruptible, max_connections=1, socket_timeout=5)
    own = OwnConnections(pool, LastUses(FakeClock()), keep_borrowed=at_hand)

    def ping(connection: Any) -> Any:
        connection.send_command("PING")
        if method == "release" and at_hand and interrupts:
            raise RedisConnectionError  # what is at hand is given back to its pool where it is lost
        return connection.read_response()

    own.call(ping)
    interrupts.append(method)
    with pytest.raises(KeyboardInterrupt):
        own.call(ping)
    assert (own.call(ping), interrupts) == (b"PONG", [])
    own.close()
