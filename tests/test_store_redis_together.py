"""Redis asked by many at once: in few round trips, each with its own answer; and the connections that stay at hand."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import itertools
import os
import queue
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection
from redis.retry import Retry

from langmem_adapters.brain import BrainMemory
from langmem_adapters.concurrency import workers
from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.flow import Flow, arun, step
from langmem_adapters.model import Message
from langmem_adapters.stores import redis_wire
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_connections import FIFOPool, LastUses, OwnConnections, call_with_connection
from langmem_adapters.stores.redis_packing import PLACEHOLDER, pack, pack_in_python, template
from langmem_adapters.testing import FakeClock
from langmem_adapters.working import WorkingMemory
from tests.servers import COMMANDS, RedisServer
from tests.test_store_redis import Administrator, Counting, keys, on_threads, proxy, raw, url
from tests.test_store_redis_acl import grant
from tests.test_store_redis_faults import Line
from tests.waiting import until

__all__ = ["proxy", "raw", "url"]  # fixtures

SESSIONS = [("brain", "", "ada", str(n)) for n in range(80)]


@pytest.fixture
def store(url: str, key_prefix: str) -> Iterator[RedisStore]:
    store = RedisStore(url, prefix=key_prefix, clock=FakeClock())
    yield store
    store.close()


@pytest.fixture
def asked(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many questions each shared round trip took."""
    return count_exchanges(store, monkeypatch)


def count_exchanges(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    ask = store._wire.ask

    def counted(requests: Sequence[Any]) -> list[Any]:
        counts.append(len(requests))
        return ask(requests)

    monkeypatch.setattr(store._wire, "ask", counted)
    return counts


def at_once(calls: Sequence[Flow[Any]]) -> list[Any]:
    """Results, or errors, of flows that ask at the same time: no worker begins before all are there."""

    async def main() -> list[Any]:
        held = threading.Event()
        doors = [asyncio.ensure_future(arun(_closed(held))) for _ in range(workers._MAX_RUNNING)]
        flows = [asyncio.ensure_future(arun(call)) for call in calls]
        await asyncio.sleep(0)
        held.set()
        await asyncio.gather(*doors)
        return await asyncio.gather(*flows, return_exceptions=True)

    return asyncio.run(main())


def _closed(held: threading.Event) -> Flow[None]:
    held.wait(0.004)  # plain code: less than what is taken for a hold-up
    yield from step(int)


# --- together -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
def test_many_share_few_round_trips_and_each_gets_its_own_answer(
    url: str, key_prefix: str, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    store = RedisStore(f"{url}?protocol={protocol}", prefix=key_prefix)
    counts = count_exchanges(store, monkeypatch)
    for n, session in enumerate(SESSIONS):
        store.write(session, put={"n": str(n).encode()}, append=[("first", str(n).encode())])
    assert counts == []  # nobody else was there
    found = at_once(
        [
            flow
            for n, session in enumerate(SESSIONS)
            for flow in (
                step(store.append, session, [(f"x{n}", b"x"), (f"y{n}", b"y" * n)], keys=["n"], ttl=60 + n),
                step(store.get, session, ["n", "none"]),
                step(store.scan, session, limit=1, keys=["n"]),
                step(store.write, session, put={"m": str(n).encode()}, delete=["no"], ttl=60 + n),
            )
        ]
    )
    for n, (appended, values, page, written) in enumerate(zip(*[iter(found)] * 4, strict=True)):
        known = {"n": str(n).encode()}
        assert appended == ([True, True], 3, known)
        assert values == known
        assert [(item.id, item.data) for item in page.items] == [("first", known["n"])]
        assert page.values == known
        assert written is None
    assert sum(counts) > 2 * len(SESSIONS)
    assert max(counts) <= workers.MAX_BATCH
    for n, session in enumerate(SESSIONS):
        page = store.scan(session, keys=["m"])
        assert [item.id for item in page.items] == ["first", f"x{n}", f"y{n}"]
        assert page.values == {"m": str(n).encode()}
        dates = store.dates(session)
        assert dates
        assert dates.expires_in
        assert 50 + n < dates.expires_in <= 60 + n
    assert len(store.recent(SESSIONS[0][:-1])) == len(SESSIONS)
    counts.clear()
    assert at_once([step(store.clear, session) for session in SESSIONS]) == [None] * len(SESSIONS)
    assert sum(counts) > len(SESSIONS) / 2
    assert list(store.namespaces()) == []
    store.close()


def test_a_round_trip_is_shared(raw: Administrator, proxy: Counting, key_prefix: str) -> None:
    store = RedisStore(f"redis://127.0.0.1:{proxy.port}", prefix=key_prefix, max_connections=1)
    store.append(SESSIONS[0], [("warm", b"")])
    proxy.trips = 0
    before = raw.info("commandstats")["cmdstat_exec"]["calls"]
    found = at_once([step(store.append, session, [("a", b"")]) for session in SESSIONS])
    assert [appended.new for appended in found] == [[True]] * len(SESSIONS)
    assert raw.info("commandstats")["cmdstat_exec"]["calls"] - before == len(SESSIONS)  # each is a transaction
    assert proxy.trips < len(SESSIONS) / 2
    store.close()


def test_one_that_is_refused_fails_alone(store: RedisStore, raw: Administrator, asked: list[int]) -> None:
    for n in (3, 40):
        raw.set(keys(store, SESSIONS[n])["log"], "text")
    for n in (7, 41):
        raw.set(keys(store, SESSIONS[n])["val"], "text")
    found = at_once(
        [flow for s in SESSIONS for flow in (step(store.append, s, [("a", b"")]), step(store.get, s, ["k"]))]
    )
    assert sum(asked) > len(SESSIONS)
    for n, (appended, values) in enumerate(zip(found[::2], found[1::2], strict=True)):
        wrong, right = (appended, values) if n in {3, 40} else (values, appended)
        if n in {3, 40, 7, 41}:
            assert type(wrong) is StoreError
            assert "give the store a prefix of its own" in str(wrong)
            assert isinstance(wrong.__cause__, redis.ResponseError)
        else:
            assert wrong == {}
        assert right == ({} if n in {3, 40} else ([True], 1, {}))


def test_a_lost_answer_is_settled_for_each(
    proxy: Counting, key_prefix: str, raw: Administrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(f"redis://127.0.0.1:{proxy.port}", prefix=key_prefix, max_connections=1)
    counts = count_exchanges(store, monkeypatch)
    store.append(SESSIONS[0], [("warm", b"")])
    proxy.cut = True
    found = at_once([step(store.append, session, [("a", b"1"), ("b", b"2")]) for session in SESSIONS])
    assert not proxy.cut
    assert max(counts) > 1
    assert {tuple(appended.new) for appended in found} == {
        (False, False),
        (True, True),
    }  # those that were cut, and others
    for session in SESSIONS:
        assert [item.id for item in store.scan(session).items][-2:] == ["a", "b"]
        assert raw.scard(keys(store, session)["ids"]) == store.scan(session).total
    store.close()


def test_of_many_that_store_at_once_none_is_stored_again_over_an_update(
    store: RedisStore, proxy: Counting, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = RedisStore(f"redis://127.0.0.1:{proxy.port}", prefix=key_prefix, max_connections=1)
    counts = count_exchanges(far, monkeypatch)
    mine, other = WorkingMemory(far), WorkingMemory(store)
    mine.store("warm", "")
    conversations = [f"c{n}" for n in range(60)]
    changed: list[str] = []

    def change_all() -> None:
        for conversation in conversations:
            if other.retrieve(conversation):
                other.update(conversation, "changed")
                changed.append(conversation)

    proxy.cut, proxy.meanwhile = True, change_all
    at_once([mine.store_flow(conversation, ["first"], "SHORT_TERM", None) for conversation in conversations])
    assert max(counts) > 1
    assert changed
    for conversation in conversations:
        data = [item.data for item in other.retrieve(conversation)]
        assert data == (["changed"] if conversation in changed else ["first"])
    far.close()


def test_what_was_answered_before_the_connection_was_lost_is_not_asked_again(
    redis_server: RedisServer, key_prefix: str
) -> None:
    line = Line(redis_server.port)
    store = RedisStore(f"redis://127.0.0.1:{line.port}", prefix=key_prefix, max_connections=1)
    store.append(SESSIONS[0], [("warm", b"")])
    asking: Any = store.append
    requests = [next(asking.__flow__(store, session, [("a", b"1")])).request for session in SESSIONS[:40]]
    line.fault = lambda: "" if line.faults["half"] else "half"
    answers = store._wire.ask(requests)
    line.close()
    assert line.faults["half"] == 1
    added = [answer[0][0] for answer in answers if answer and not answer[1]]
    assert len(added) == len(requests)
    assert 10 < sum(added) < 30  # the others were made at the first try, too, but nobody was told
    assert added == sorted(added, reverse=True)
    store.close()


def test_news_between_the_answers_are_no_answers(any_redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(f"{any_redis_server.url()}?protocol=3&max_connections=1", prefix=key_prefix)
    store._wire.send((b"", pack("CLIENT", "TRACKING", "ON", "BCAST")))  # the server tells of each change
    for n in range(5):
        assert store.append(SESSIONS[0], [(str(n), b"1"), (f"x{n}", b"2")]) == ([True, True], 2 * n + 2, {})
        store.write(SESSIONS[0], put={"k": b"%d" % n}, guard={"k": b"%d" % (n - 1) if n else None})
    found = at_once([step(store.append, session, [("a", b"")]) for session in SESSIONS])
    assert [appended.new for appended in found] == [[True]] * len(SESSIONS)
    for session in SESSIONS:
        store.clear(session)
    store.close()


def test_what_comes_after_a_refusal_is_no_answer_of_the_next(store: RedisStore, raw: Administrator) -> None:
    log, values = (keys(store, SESSIONS[0])[kind] for kind in ("log", "val"))
    raw.set(log, "text")
    refused = [pack("XLEN", log), pack("EXISTS", log)]
    first, second = store._wire.ask([(refused, False, None), ([pack("EXISTS", values)], False, None)])
    assert first is not None
    assert isinstance(first[1], StoreError)
    assert second == ([0], None)


def test_transactions_that_are_forbidden_in_use_are_noticed_by_one_exchange(
    redis_server: RedisServer, key_prefix: str
) -> None:
    login = grant(redis_server, key_prefix, COMMANDS)
    url = redis_server.url().replace("//", f"//{login}@")
    with redis.Redis(port=redis_server.port) as raw:
        store = RedisStore(url, prefix=key_prefix, max_connections=1)
        store.append(SESSIONS[0], [])
        raw.execute_command("ACL", "SETUSER", login.partition(":")[0], "-multi")
        for session in SESSIONS[:2]:
            answers = at_once([step(store.write, session, put={str(n): b""}) for n in range(20)])
            assert {type(answer) for answer in answers} == {StoreError}
        store.close()
        assert raw.exists(keys(store, SESSIONS[1])["val"]) == 0


@pytest.mark.parametrize("is_queued", [True, False])
def test_a_refusal_is_not_kept_until_garbage_is_collected(
    store: RedisStore, raw: Administrator, is_queued: bool
) -> None:
    log = keys(store, SESSIONS[0])["log"]
    raw.set(log, "text")
    refused = [pack("XLEN", log) if is_queued else pack("XLEN")]

    def send(*commands: bytes) -> None:
        store._wire.send(*((log, command) for command in commands))

    def cause_of(call: Callable[[], Any]) -> Any:
        try:
            call()
        except StoreError as error:
            return weakref.ref(error.__cause__)
        raise AssertionError

    def causes_together() -> list[Any]:
        answers = store._wire.ask([(refused, True, None), (refused, False, None)])
        return [weakref.ref(answer[1].__cause__) for answer in answers if answer and answer[1] and answer[1].__cause__]

    gc.disable()
    try:
        causes = [cause_of(partial(store._wire.transact, log, refused)), cause_of(partial(send, *refused, *refused))]
        causes += causes_together()
        assert [cause() for cause in causes] == [None] * 4
    finally:
        gc.enable()


def test_a_watched_transaction_fails_with_one_of_its_commands(store: RedisStore, raw: Administrator) -> None:
    log = keys(store, SESSIONS[0])["log"]
    raw.set(log, "text")
    with pytest.raises(StoreError, match="give the store a prefix of its own"):
        store._wire.transact_watched(log, [pack("EXISTS", log)], lambda _: [pack("XLEN", log)])


def test_of_equal_ids_one_is_new(store: RedisStore, raw: Administrator) -> None:
    found = at_once([step(store.append, SESSIONS[0], [("same", str(n).encode())]) for n in range(60)])
    assert sorted(appended.new for appended in found) == [[False]] * 59 + [[True]]
    (item,) = store.scan(SESSIONS[0]).items
    winner = next(n for n, appended in enumerate(found) if appended.new == [True])
    assert item.data == str(winner).encode()
    assert (raw.xlen(keys(store, SESSIONS[0])["log"]), raw.scard(keys(store, SESSIONS[0])["ids"])) == (1, 1)


def test_a_repeat_is_taken_back_by_its_writer(store: RedisStore, raw: Administrator) -> None:
    for n in range(2):
        store.write(SESSIONS[0], put={"n": b"%d" % n}, append=[("a", b"%d" % n)])
    names = keys(store, SESSIONS[0])
    assert (raw.xlen(names["log"]), raw.scard(names["ids"])) == (1, 1)
    assert [item.data for item in store.scan(SESSIONS[0]).items] == [b"0"]


def test_of_equal_guards_one_holds(store: RedisStore) -> None:
    found = at_once([step(store.write, SESSIONS[0], put={"k": b"%d" % n}, guard={"k": None}) for n in range(20)])
    assert [each for each in found if each is None] == [None]
    assert sum(isinstance(each, Conflict) for each in found) == 19


def test_what_is_large_goes_by_itself(store: RedisStore, asked: list[int]) -> None:
    large = b"x" * 20_000
    for n, session in enumerate(SESSIONS[:20]):
        store.append(session, [(f"{m}", b"%d" % n) for m in range(200)])
    flows = [
        flow
        for session in SESSIONS[:20]
        for flow in (
            step(store.append, session, [("large", large)]),
            step(store.scan, session, limit=150),
            step(store.scan, session),
            step(store.get, session, [str(m) for m in range(150)]),
            step(store.get, session),
        )
    ]
    found = at_once(flows)
    assert asked == []
    assert all(appended.new == [True] for appended in found[::5])
    assert all(len(page.items) == 150 for page in found[1::5])
    assert all(len(page.items) >= 200 for page in found[2::5])


def test_an_outage_is_told_to_each_and_ends_for_all(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--appendonly", "yes")
    store = RedisStore(server.url(), retry_for=0.2)
    store.append(SESSIONS[0], [("a", b"")])
    server.kill()
    began = time.monotonic()
    for _ in range(2):
        found = at_once([step(store.append, session, [("b", b"")]) for session in SESSIONS])
        assert {type(error) for error in found} == {StoreUnavailable}
        assert len({id(error) for error in found}) == len(found)  # each has a traceback of its own
    assert time.monotonic() - began < 10
    server.start()
    deadline = time.monotonic() + 30
    while isinstance(at_once([step(store.get, SESSIONS[0], ["k"])])[0], StoreUnavailable):
        assert time.monotonic() < deadline
    found = at_once([step(store.append, session, [("b", b"")]) for session in SESSIONS])
    assert [appended.new for appended in found] == [[True]] * len(SESSIONS)
    store.close()


def test_a_replica_that_becomes_the_primary_is_waited_for_by_all(
    start_redis: Callable[..., RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis()
    store = RedisStore(server.url(), retry_for=20)
    counts = count_exchanges(store, monkeypatch)
    store.append(SESSIONS[0], [("a", b"")])
    with redis.Redis.from_url(server.url()) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        promoting = threading.Timer(0.3, client.execute_command, ("REPLICAOF", "NO", "ONE"))
        promoting.start()
        flows = [step(store.append, session, [("b", b"")]) for session in SESSIONS]
        found = at_once([*flows, *(step(store.get, session, ["k"]) for session in SESSIONS)])
        promoting.join()
    assert [appended.new for appended in found[: len(SESSIONS)]] == [[True]] * len(SESSIONS)
    assert found[len(SESSIONS) :] == [{}] * len(SESSIONS)
    assert max(counts) > 1
    assert [store.scan(session).total for session in SESSIONS] == [2] + [1] * (len(SESSIONS) - 1)
    store.close()


def test_a_given_client_is_shared_too(any_redis_server: RedisServer, key_prefix: str) -> None:
    with redis.Redis.from_url(any_redis_server.url()) as client:
        store = RedisStore(client, prefix=key_prefix)
        found = at_once([step(store.append, session, [("a", b"")]) for session in SESSIONS])
        assert [appended.new for appended in found] == [[True]] * len(SESSIONS)
        for session in SESSIONS:
            store.clear(session)


def test_a_talk_of_many_in_tasks_threads_and_loops(store: RedisStore, asked: list[int]) -> None:
    numbers = itertools.count()

    async def talk(session: str) -> None:
        brain = BrainMemory(store, session, user="ada", memory_k=4, new_id=lambda: f"m{next(numbers):05}")
        for n in range(10):
            await brain.aadd_messages([Message(role="user", content=f"{session} {n}")])
            assert (await brain.amessages(1))[0].text == f"{session} {n}"

    def loop(first: int) -> Callable[[], None]:
        async def talks() -> None:
            await asyncio.gather(*(talk(str(n)) for n in range(first, first + 15)))

        return lambda: asyncio.run(talks())

    def blocking_talk() -> None:
        brain = BrainMemory(store, "blocking", user="ada", new_id=lambda: f"b{next(numbers):05}")
        for n in range(30):
            brain.add_talk(str(n))

    on_threads([loop(0), loop(15), loop(30), blocking_talk])
    for n in range(45):
        brain = BrainMemory(store, str(n), user="ada")
        assert [message.text for message in brain.messages()] == [f"{n} {m}" for m in range(10)]
    assert [message.text for message in BrainMemory(store, "blocking", user="ada").messages()] == [*map(str, range(30))]
    assert max(asked) > 1


# --- connections at hand ------------------------------------------------------------------------------------


@pytest.fixture
def one(url: str, key_prefix: str) -> Iterator[RedisStore]:
    """A store with one connection, and little patience."""
    store = RedisStore(url, prefix=key_prefix, max_connections=1, socket_timeout=2, retry_for=0)
    yield store
    store.close()


def warm(store: RedisStore) -> OwnConnections:
    servers: Any = store._wire._servers
    (found,) = servers._own_connections
    assert isinstance(found, OwnConnections)
    return found


def at_hand(store: RedisStore) -> list[Any]:
    return [connection for connection in warm(store)._fifo._free if connection is not None]


def mine(raw: Administrator, prefix: str) -> list[Any]:
    return [client for client in raw.client_list() if client["user"] == prefix.strip(":")]


def test_one_connection_serves_all_kinds_of_calls(one: RedisStore, raw: Administrator, key_prefix: str) -> None:
    for n in range(20):
        one.append(SESSIONS[0], [(str(n), b"")], ttl=100)
        one.write(SESSIONS[0], put={"k": b"v"}, guard={"k": b"v" if n else None})
        assert one.scan(SESSIONS[0], limit=2).total == n + 1
        assert list(one.namespaces()) == [SESSIONS[0]]
        assert one.health().ok
        assert one.stats().kinds["brain"].entries == n + 1
        assert len(one.recent(SESSIONS[0][:-1])) == 1
    assert len(mine(raw, key_prefix)) == 1


def test_a_refusal_and_a_conflict_give_the_connection_back(one: RedisStore, raw: Administrator) -> None:
    raw.set(keys(one, SESSIONS[1])["log"], "text")
    for _ in range(3):
        with pytest.raises(StoreError, match="a prefix of its own"):
            one.append(SESSIONS[1], [("a", b"")])
        with pytest.raises(Conflict):
            one.write(SESSIONS[0], put={"k": b"v"}, guard={"k": b"other"})
    assert one.append(SESSIONS[0], [("a", b"")]).new == [True]


def test_a_lost_race_costs_no_connection(one: RedisStore, raw: Administrator) -> None:
    key, tries = keys(one, SESSIONS[0])["val"], itertools.count()

    def lose_first(_: object) -> list[bytes]:
        if next(tries) == 0:
            raw.hset(key, "k", "1")
        return [pack("EXISTS", key)]

    one.get(SESSIONS[0], ["k"])
    (connection,) = at_hand(one)
    sock = connection._sock
    assert one._wire.transact_watched(key, [pack("EXISTS", key)], lose_first) == [1]
    assert next(tries) == 2
    assert connection._sock is sock


def test_a_watched_read_is_made_again_if_its_answer_is_lost(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    transact, tries = redis_wire._transact, itertools.count()

    def lose_first(connection: Any, commands: Sequence[bytes]) -> list[Any]:
        if next(tries) == 0:
            raise redis.ConnectionError("Connection closed by server.")
        return transact(connection, commands)

    monkeypatch.setattr(redis_wire, "_transact", lose_first)
    log = keys(store, SESSIONS[0])["log"]
    assert store._wire.transact_watched(log, [pack("EXISTS", log)], lambda _: ()) == []
    assert next(tries) == 2


def test_a_refused_read_leaves_nothing_watched(one: RedisStore, raw: Administrator) -> None:
    log = keys(one, SESSIONS[0])["log"]
    raw.set(log, "text")
    with pytest.raises(StoreError):
        one._wire.transact_watched(log, [pack("XLEN", log)], lambda _: None)
    raw.set(log, "another")
    assert one.append(SESSIONS[1], [("a", b"")]).new == [True]


def test_a_refused_transaction_leaves_nothing_watched(one: RedisStore, raw: Administrator, key_prefix: str) -> None:
    log, user = keys(one, SESSIONS[0])["log"], key_prefix.strip(":")
    raw.execute_command("ACL", "SETUSER", user, "-multi")
    with pytest.raises(StoreError, match="forbids this"):
        one._wire.transact_watched(log, [pack("EXISTS", log)], lambda _: [pack("XLEN", log)])
    raw.execute_command("ACL", "SETUSER", user, "+multi")
    raw.set(log, "text")
    assert one.append(SESSIONS[1], [("a", b"")]).new == [True]


def test_a_connection_that_the_server_has_closed_is_noticed_before_it_is_used(
    one: RedisStore, raw: Administrator, key_prefix: str
) -> None:
    one.append(SESSIONS[0], [("a", b"")])
    for n in range(3):
        (client,) = mine(raw, key_prefix)
        raw.client_kill_filter(_id=client["id"])
        one.write(SESSIONS[0], put={"k": b"%d" % n}, guard={"k": b"%d" % (n - 1) if n else None})
    assert one.get(SESSIONS[0], ["k"]) == {"k": b"2"}


def test_what_was_left_unread_on_a_connection_is_nobodys_answer(one: RedisStore) -> None:
    one.append(SESSIONS[0], [("a", b"")])
    (connection,) = at_hand(one)
    connection.send_command("ECHO", "left")
    while not connection.can_read():
        pass
    assert one.append(SESSIONS[0], [("b", b"")]).total == 2


def test_an_interrupted_call_leaves_no_connection_behind(one: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one.append(SESSIONS[0], [("a", b"")])
    (connection,) = at_hand(one)

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.append(SESSIONS[0], [("b", b"")])
    assert connection._sock is None  # its answer may come at any time
    assert one.append(SESSIONS[0], [("c", b"")]).total == 3


class TimeLimitExceededError(Exception):
    """As Celery raises from a signal, wherever a task is."""


@pytest.mark.parametrize("owner", ["store", "client"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeLimitExceededError])
def test_a_connection_that_was_interrupted_before_it_chose_its_database_is_never_used(
    owner: str, error: type[BaseException], redis_server: RedisServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = redis_server.url(1)
    store = RedisStore(url if owner == "store" else redis.Redis.from_url(url), prefix=key_prefix)
    send: Any = AbstractConnection.send_command

    def interrupted(connection: Any, *args: Any, **kwargs: Any) -> None:
        if args[0] == "SELECT":
            raise error
        send(connection, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(AbstractConnection, "send_command", interrupted)
        with pytest.raises(error):
            store.get(SESSIONS[0])
    store.write(SESSIONS[0], put={"key": b"data"})
    with closing(RedisStore(url, prefix=key_prefix)) as other:
        assert other.get(SESSIONS[0]) == {"key": b"data"}
    with closing(RedisStore(redis_server.url(0), prefix=key_prefix)) as another:
        assert another.get(SESSIONS[0]) == {}
    store.clear(SESSIONS[0])
    store.close()


def test_who_is_interrupted_as_it_connects_cuts_off_nobody_else(
    redis_server: RedisServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with redis.Redis.from_url(redis_server.url()) as client:
        in_use = client.connection_pool.get_connection()
        in_use.send_command("PING")
        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "connect", interrupted)
            with pytest.raises(KeyboardInterrupt):
                RedisStore(client, prefix=key_prefix).get(SESSIONS[0])
        assert in_use.read_response() == b"PONG"
        client.connection_pool.release(in_use)


def test_nobody_waits_for_a_connection_that_is_at_hand(url: str, key_prefix: str) -> None:
    store = RedisStore(url, prefix=key_prefix, max_connections=2, socket_timeout=5, retry_for=0)
    numbers = itertools.count()
    slowest = [0.0]

    def write() -> None:
        for _ in range(300):
            began = time.monotonic()
            store.append(SESSIONS[0], [(f"{next(numbers):05}", b"")])
            slowest[0] = max(slowest[0], time.monotonic() - began)

    on_threads([write] * 8)
    assert store.scan(SESSIONS[0], limit=0).total == 2400
    assert slowest[0] < 4  # a lost wake-up would cost the whole timeout
    store.close()


def test_an_idle_minute_is_a_long_time_and_so_is_a_clock_set_back() -> None:
    clock, connection = FakeClock(), type("Connection", (), {})()
    uses = LastUses(clock)
    found = [uses.was_long_ago(connection)]
    for seconds in (60, 60, 61, 1, -61, 1):
        clock.advance(seconds)
        found.append(uses.was_long_ago(connection))
    assert found == [False, False, False, True, False, True, False]


def taken(pool: FIFOPool) -> Any:
    hand: list[Any] = []
    pool.take(hand)
    return hand[0]


def test_what_exists_is_taken_before_another_is_made() -> None:
    pool = FIFOPool(2, 1)
    assert [taken(pool), taken(pool)] == [None, None]
    pool.give_back(["connection"])
    pool.give_back([None])
    assert [taken(pool), taken(pool)] == ["connection", None]


def test_who_waits_is_served_in_turn_and_before_who_comes_later() -> None:
    turns = FIFOPool(1, 60)
    thing = taken(turns)
    served: list[int] = []

    def wait(number: int) -> None:
        got = taken(turns)
        served.append(number)
        turns.give_back([got])

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    for number, thread in enumerate(threads, 1):
        thread.start()
        until(lambda: len(turns._waiters) == number)  # noqa: B023 - called at once
    turns.give_back([thing])
    assert taken(turns) is None  # after all of them
    assert served == list(range(8))
    for thread in threads:
        thread.join()


def test_nobody_takes_the_place_of_what_is_being_closed() -> None:
    turns = FIFOPool(1, 0.01)
    taken(turns)
    turns.give_back(["connection"])
    emptied = turns.drain()
    assert next(emptied) == "connection"
    with pytest.raises(redis.ConnectionError, match="No connection available"):
        taken(turns)  # its pool would have none for him, as long as it has not got this one back
    assert list(emptied) == []
    assert taken(turns) is None


def test_who_waits_in_vain_is_told_and_takes_nobodys_turn() -> None:
    turns = FIFOPool(1, 0.01)
    taken(turns)
    for _ in range(2):
        with pytest.raises(redis.ConnectionError, match="No connection available"):
            taken(turns)
    turns.give_back(["used"])
    assert taken(turns) == "used"


@pytest.mark.parametrize("end", [Empty, KeyboardInterrupt])
def test_what_comes_as_the_wait_ends_is_not_lost(end: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    turns = FIFOPool(1, 0.01)
    taken(turns)

    class InThisMoment(SimpleQueue):  # type: ignore[type-arg]
        def get(self, **_: Any) -> Any:  # type: ignore[override]
            turns.give_back(["late"])
            raise end

    monkeypatch.setattr(queue, "SimpleQueue", InThisMoment)
    hand: list[Any] = []
    with pytest.raises(end) if end is KeyboardInterrupt else nullcontext():
        turns.take(hand)
    assert hand == ["late"]
    turns.give_back(hand)
    monkeypatch.undo()
    assert taken(turns) == "late"


def test_who_is_interrupted_in_the_wait_does_not_wait_for_what_came_with_the_interrupt() -> None:
    turns = FIFOPool(1, 60)
    given = taken(turns)
    hands: list[list[Any]] = []

    def wait() -> None:
        hand: list[Any] = []
        with suppress(TimeLimitExceededError):
            turns.take(hand)
        hands.append(hand)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    until(lambda: bool(turns._waiters))
    # As Dramatiq limits a task's time: the thread gets it once its wait, which is in C, is over.
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeLimitExceededError)
    )
    turns.give_back([given])
    thread.join(20)
    assert not thread.is_alive()
    turns.give_back(hands[0])
    assert not turns._waiters
    assert taken(turns) is None


def test_a_waiter_is_handed_what_came_back_as_it_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = FIFOPool(1, 0.01)
    taken(turns)
    hand_over = turns._hand_over

    def too_late() -> None:
        turns._free.append("back")  # somebody is done, and saw nobody wait
        hand_over()

    monkeypatch.setattr(turns, "_hand_over", too_late)
    assert taken(turns) == "back"


def test_a_probe_needs_no_connection_of_its_own(one: RedisStore) -> None:
    one.append(SESSIONS[0], [("a", b"")])
    servers: Any = one._wire._servers
    servers._breaker._open(redis.ConnectionError("it was down"))
    deadline = time.monotonic() + 30
    while isinstance(at_once([step(one.get, SESSIONS[0], ["k"])])[0], StoreUnavailable):
        assert time.monotonic() < deadline


def test_closing_closes_them_and_the_next_use_connects_anew(
    one: RedisStore, raw: Administrator, key_prefix: str
) -> None:
    for n in range(3):
        one.append(SESSIONS[0], [(str(n), b"")])
        assert len(mine(raw, key_prefix)) == 1
        one.close()
        assert at_hand(one) == []
        deadline = time.monotonic() + 30
        while mine(raw, key_prefix):
            assert time.monotonic() < deadline
    assert one.scan(SESSIONS[0]).total == 3


def test_closing_in_the_middle_of_a_call_closes_its_connection_after_it(one: RedisStore) -> None:
    def close_and_ask(connection: Any) -> list[Any]:
        one.close()
        connection.send_command("PING")
        return [connection, connection.read_response()]

    connection, answer = one._wire._servers.call(b"", close_and_ask)
    assert answer == b"PONG"
    assert connection._sock is None


def test_who_loses_a_connection_cuts_off_nobody_else(url: str, key_prefix: str) -> None:
    mine = RedisStore(url, prefix=key_prefix, retry_for=0)

    def be_hung_up_on(_: Any) -> None:
        raise redis.ConnectionError("hung up")

    def ask_beside_it(connection: Any) -> Any:
        connection.send_command("PING")
        with pytest.raises(redis.ConnectionError):
            mine._wire._servers.call(b"", be_hung_up_on)
        return connection.read_response()

    assert mine._wire._servers.call(b"", ask_beside_it) == b"PONG"
    mine.close()


@pytest.mark.parametrize("option", ["socket_timeout", "timeout"])
def test_who_finds_no_connection_free_waits_as_long_as_the_url_says(url: str, key_prefix: str, option: str) -> None:
    store = RedisStore(f"{url}?{option}=0.3", prefix=key_prefix, max_connections=1, retry_for=0)
    store.append(SESSIONS[0], [])
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="raise max_connections"):
        store._wire._servers.call(b"", lambda _: store.get(SESSIONS[0]))
    assert 0.3 <= time.monotonic() - began < 4  # five seconds without the option
    store.close()


def test_who_finds_no_connection_of_a_given_client_free_is_told(redis_server: RedisServer, key_prefix: str) -> None:
    with redis.Redis(port=redis_server.port, max_connections=1) as client:
        store = RedisStore(client, prefix=key_prefix)
        with pytest.raises(StoreUnavailable, match="raise max_connections"):
            store._wire._servers.call(b"", lambda _: store.get(SESSIONS[0]))
        assert store.get(SESSIONS[0]) == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_takes_a_connection_of_its_own(one: RedisStore, raw: Administrator, key_prefix: str) -> None:
    one.append(SESSIONS[0], [("parent", b"")])
    warm(one)._fifo._waiters.append(([], SimpleQueue()))  # as of a thread of the parent
    child = os.fork()
    if child == 0:
        status = 1
        try:
            one.append(SESSIONS[0], [("child", b"")])
            status = 0 if len(at_hand(one)) == 1 and len(mine(raw, key_prefix)) == 2 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    warm(one)._fifo._waiters.pop()
    assert one.append(SESSIONS[0], [("parent again", b"")]).total == 3


@pytest.mark.parametrize(
    ("query", "kept"), [("", True), ("?protocol=2", True), ("?protocol=3", False), ("?health_check_interval=1", True)]
)
def test_connections_stay_at_hand_where_nothing_is_lost_by_it(
    url: str, key_prefix: str, query: str, kept: bool
) -> None:
    store = RedisStore(url + query, prefix=key_prefix)
    store.append(SESSIONS[0], [("a", b"")])
    assert bool(at_hand(store)) is kept
    store.close()


@pytest.fixture
def given_pool(any_redis_server: RedisServer) -> Iterator[redis.ConnectionPool]:
    """Of a client that tries once more."""
    pool = redis.ConnectionPool(port=any_redis_server.port, retry=Retry(NoBackoff(), 1))
    yield pool
    pool.disconnect()


def test_a_given_client_tries_again_on_a_connection_without_old_answers(given_pool: redis.ConnectionPool) -> None:
    tries = itertools.count()

    def ask_twice(connection: Any) -> list[bytes]:
        number = next(tries)
        connection.send_packed_command([pack("PING", f"{number} a"), pack("PING", f"{number} b")])
        answer = connection.read_response()
        if number == 0:  # as in a batch of transactions, where redis-py does not see it
            raise redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory")
        return [answer, connection.read_response()]

    assert call_with_connection(given_pool, ask_twice) == [b"1 a", b"1 b"]


def test_a_given_client_does_not_try_again_what_will_be_refused_again(given_pool: redis.ConnectionPool) -> None:
    refusals = itertools.count()

    def refuse(_: object) -> None:
        next(refusals)
        raise redis.AuthenticationError("invalid username-password pair")  # a ConnectionError of redis-py

    with pytest.raises(redis.AuthenticationError):
        call_with_connection(given_pool, refuse)
    assert next(refusals) == 1


def test_connections_of_a_given_client_go_back_to_it(any_redis_server: RedisServer, key_prefix: str) -> None:
    pool = redis.BlockingConnectionPool.from_url(any_redis_server.url(), max_connections=1, timeout=1, protocol=2)
    with redis.Redis(connection_pool=pool) as client:
        store = RedisStore(client, prefix=key_prefix)
        for n in range(3):
            store.append(SESSIONS[0], [(str(n), b"")])
            assert client.ping()
        store.clear(SESSIONS[0])


# --- commands -----------------------------------------------------------------------------------------------

words = st.one_of(st.binary(max_size=40), st.text("%sdb\r\n$é1", max_size=20))


@given(given_words=st.lists(st.tuples(words, st.booleans()), min_size=1, max_size=6))
def test_a_form_that_is_filled_is_the_command(given_words: list[tuple[bytes | str, bool]]) -> None:
    plain = [word for word, _ in given_words]
    filled = template(*(PLACEHOLDER if hole else word for word, hole in given_words))
    fillings = [word if isinstance(word, bytes) else word.encode() for word, hole in given_words if hole]
    assert filled % tuple(itertools.chain.from_iterable((len(word), word) for word in fillings)) == pack(*plain)
    assert pack_in_python(tuple(plain)) == pack(*plain)


def test_names_may_look_like_holes(raw: Administrator) -> None:
    name = f"%d%b%%-{uuid.uuid4().hex}:"
    store = RedisStore(raw, prefix=name)
    namespace = ("%s", "%b %d", "%")
    assert store.append(namespace, [("%d", b"%b"), ("%", b"%%")], ttl=50).new == [True, True]
    assert store.append(namespace, [("%b", b"%d")]).new == [True]
    assert [(item.id, item.data) for item in store.scan(namespace).items] == [
        ("%d", b"%b"),
        ("%", b"%%"),
        ("%b", b"%d"),
    ]
    assert [row.namespace for row in store.recent(namespace[:-1])] == [namespace]
    store.clear(namespace)
    assert list(raw.scan_iter(match=f"*{name[7:]}*")) == []
