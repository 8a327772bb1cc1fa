"""Redis out of reach: what is tried again, what fails at once, how soon all is well again, and what is said."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any

import pytest
import redis
from redis import exceptions
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from langmem_adapters import BrainMemory, Settings
from langmem_adapters.concurrency.breaker import Breaker
from langmem_adapters.erasure import delete_user
from langmem_adapters.errors import ConfigurationError, StoreError, StoreUnavailable
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.stores import redis_wire, shared_store
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.redis_outage import Retries, is_down, is_temporary
from tests.faults import again_and_again
from tests.servers import RedisServer, listening
from tests.test_store_redis import NS, answering, ids, on_threads, told
from tests.test_store_redis_faults import Crossing

DOWN = exceptions.ConnectionError("Connection refused")
REFUSED = exceptions.ResponseError("WRONGTYPE")


# --- trying again -------------------------------------------------------------------------------------------


class Time:
    """Seconds that pass by sleeping only."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def failing(*errors: Exception, then: str = "done") -> Callable[[], str]:
    left = list(errors)

    def call() -> str:
        if left:
            raise left.pop(0)
        return then

    return call


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        exceptions.TimeoutError("Timeout reading from socket"),
        exceptions.ReadOnlyError("You can't write against a read only replica."),
        exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
        exceptions.MasterDownError("Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
        exceptions.TryAgainError("Multiple keys request during rehashing of slot"),
        exceptions.ResponseError("BUSY Redis is busy running a script."),
        exceptions.ConnectionError("max number of clients reached"),
        exceptions.ConnectionError("Error 6 connecting to h:1. TLS/SSL connection has been closed (EOF) (_ssl.c:997)."),
        exceptions.MaxConnectionsError("Too many connections"),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    now = Time()
    seen: list[Exception] = []
    assert Retries(1, now, now.sleep).call(failing(error, error), before_retry=seen.append) == "done"
    assert len(now.pauses) == 2
    assert seen == [error, error]


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        exceptions.AuthenticationError("invalid username-password pair"),
        exceptions.AuthorizationError("no"),
        exceptions.NoPermissionError("no"),
        exceptions.OutOfMemoryError("used memory > 'maxmemory'"),
        exceptions.WatchError("Watched variable changed."),
        exceptions.ResponseError("BUSYGROUP Consumer Group name already exists"),
        exceptions.ConnectionError("No connection available."),
        exceptions.ConnectionError("Error 1: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate"),
        exceptions.ConnectionError("Error 1 connecting to GEOFF:1. [SSL: CERTIFICATE_VERIFY_FAILED] self-signed"),
        exceptions.RedisClusterException("Cluster mode is not enabled on this node"),
        StoreUnavailable("a guarded write's answer was lost"),
        ZeroDivisionError(),
    ],
    ids=repr,
)
def test_what_will_be_the_same_next_time_is_not(error: Exception) -> None:
    now = Time()
    with pytest.raises(type(error)):
        Retries(1, now, now.sleep).call(failing(error))
    assert now.pauses == []


def test_pauses_grow_with_jitter_and_end_in_time() -> None:
    runs = []
    for _ in range(20):
        now = Time()
        with pytest.raises(exceptions.ConnectionError):
            Retries(3, now, now.sleep).call(failing(*[DOWN] * 99))
        assert 2 < now.now - 100 <= 3
        for pause, longest in zip(now.pauses, (0.05, 0.1, 0.2, 0.4, *[0.5] * 20), strict=False):
            assert longest / 2 <= pause <= longest
        runs.append(now.pauses[0])
    assert len(set(runs)) > 10


def test_no_patience_is_one_try() -> None:
    now = Time()
    with pytest.raises(exceptions.ConnectionError):
        Retries(0, now, now.sleep).call(failing(DOWN))
    assert now.pauses == []


def test_a_slow_failure_leaves_no_time_for_another_try() -> None:
    now = Time()
    tries: list[float] = []

    def slow() -> None:
        tries.append(now.now)
        now.now += 5
        raise exceptions.TimeoutError("Timeout reading from socket")

    with pytest.raises(exceptions.TimeoutError):
        Retries(2, now, now.sleep).call(slow)
    assert len(tries) == 1


@pytest.mark.parametrize("refusal", [exceptions.ReadOnlyError("a replica"), exceptions.MovedError("7 host:6379")])
def test_a_paused_server_that_is_replaced_answers_late_and_the_other_one_is_asked(refusal: Exception) -> None:
    now = Time()

    def pause_and_refuse() -> str:
        if now.now < 105:
            now.now = 105
        elif now.now < 105.5:  # the other one takes over
            raise refusal
        else:
            return "done"
        raise refusal

    assert Retries(1, now, now.sleep).call(pause_and_refuse, lambda _: True) == "done"
    with pytest.raises(type(refusal)):
        Retries(1, now, now.sleep).call(failing(*[refusal] * 99), lambda _: True)
    assert now.now < 107.5


def test_the_last_node_of_a_cluster_decides_whether_it_is_down() -> None:
    lost = exceptions.RedisClusterException("Redis Cluster cannot be connected")
    lost.__cause__ = DOWN
    assert is_down(lost)
    assert is_temporary(lost)
    lost.__cause__ = exceptions.AuthenticationError("invalid username-password pair")
    assert not is_down(lost)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (exceptions.ClusterDownError("The cluster is down"), True),
        (exceptions.ClusterDownError("The cluster is down and only accepts read commands"), False),
        (exceptions.ClusterDownError("Hash slot not served"), False),
        (exceptions.RedisClusterException("All slots are not covered after query all startup_nodes."), True),
        (exceptions.MaxConnectionsError("Too many connections"), False),
        (exceptions.ConnectionError("no certificates found for the responder"), False),  # of OCSP
    ],
    ids=repr,
)
def test_who_refuses_one_call_is_not_down(error: Exception, expected: bool) -> None:
    assert is_down(error) is expected


# --- failing at once ----------------------------------------------------------------------------------------


class Probe:
    """Answers when it is let, and as it is told."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.error: Exception | None = DOWN
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self.asked.release()
        assert self.may_answer.wait(120)
        if self.error:
            raise self.error


@pytest.fixture
def probe() -> Iterator[Probe]:
    probe = Probe()
    yield probe
    probe.may_answer.set()


def breaker(probe: Probe, now: Callable[[], float], *, grace: float = 10) -> Breaker:
    said = lambda error: f"it is down ({error})"  # noqa: E731 - two lines more would say no more
    return Breaker(probe, said, is_down=is_down, clock=now, pause=0.5, grace=grace)


def test_without_patience_nobody_waits_for_a_probe() -> None:
    waits = []
    with answering(b"") as port:
        for _ in range(3):  # the machine may be slow once
            with closing(RedisStore(f"redis://127.0.0.1:{port}", socket_timeout=0.3, retry_for=0)) as store:
                with pytest.raises(StoreUnavailable):
                    store.get(NS)
                began = time.monotonic()
                with pytest.raises(StoreUnavailable):
                    store.get(NS)
                waits.append(time.monotonic() - began)
    assert min(waits) < 0.2


def broken(probe: Probe, now: Callable[[], float], *, grace: float = 10) -> Breaker:
    subject = breaker(probe, now, grace=grace)
    with pytest.raises(exceptions.ConnectionError):
        subject.guard(failing(DOWN))
    return subject


def must_not_be_called() -> str:
    pytest.fail("the server was asked")


def test_a_server_that_is_down_is_not_asked_until_a_probe_finds_it_back(probe: Probe) -> None:
    now = Time()
    subject = broken(probe, now)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"^it is down \(Connection refused\); it is asked again"):
            subject.guard(must_not_be_called)
    assert probe.count == 1
    now.now += 0.49
    with pytest.raises(StoreUnavailable):
        subject.guard(must_not_be_called)
    assert probe.count == 1
    now.now += 0.02
    probe.error = None
    assert subject.guard(lambda: "served") == "served"
    assert probe.count == 2
    assert subject.guard(lambda: "served") == "served"
    assert probe.count == 2


def test_a_server_that_a_call_and_a_probe_find_back_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def answer() -> None:
        subject.after_call(0, None)  # of a call that began before

    subject = Breaker(answer, grace=10)
    with caplog.at_level(logging.INFO, logger="langmem_adapters"):
        with pytest.raises(exceptions.ConnectionError):
            subject.guard(failing(DOWN))
        assert subject.guard(lambda: "served") == "served"
    told = [record.getMessage() for record in caplog.records if "it answers again" in record.getMessage()]
    assert told == ["it answers again, after: Connection refused"]


def test_a_probe_that_fails_stops_nobody_once_a_call_has_succeeded() -> None:
    def fail() -> None:
        subject.after_call(0, None)  # of a call that began before
        raise DOWN

    subject = Breaker(fail, grace=10)
    with pytest.raises(exceptions.ConnectionError):
        subject.guard(failing(DOWN))
    assert [subject.guard(lambda: "served") for _ in range(2)] == ["served", "served"]


def test_each_outage_is_probed_at_once(probe: Probe) -> None:
    subject = broken(probe, Time())
    for n in range(3):
        probe.error = None
        assert subject.guard(lambda: "served") == "served"
        with pytest.raises(exceptions.ConnectionError):
            subject.guard(failing(DOWN))
        assert probe.count == n + 1


def test_the_sentence_is_that_of_the_last_probe(probe: Probe) -> None:
    subject = broken(probe, Time())
    probe.error = exceptions.BusyLoadingError("loading")
    with pytest.raises(StoreUnavailable, match=r"^it is down \(loading\)"):
        subject.guard(must_not_be_called)


def test_one_call_waits_for_a_probe_and_only_for_a_moment(probe: Probe) -> None:
    subject = broken(probe, Time(), grace=0.01)
    probe.may_answer.clear()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        subject.guard(must_not_be_called)
    subject._grace = 60
    for _ in range(100):  # a probe is on its way: nobody waits, and no other is sent
        with pytest.raises(StoreUnavailable):
            subject.guard(must_not_be_called)
    assert time.monotonic() - began < 5
    assert probe.count == 1
    thread = subject._probe_thread
    assert thread
    assert thread.daemon
    probe.error = None
    probe.may_answer.set()
    thread.join(120)
    assert subject.guard(lambda: "served") == "served"


@pytest.mark.parametrize("error", [REFUSED, exceptions.AuthenticationError("no"), exceptions.WatchError("no")])
def test_a_server_that_refuses_is_not_down(error: Exception, probe: Probe) -> None:
    subject = breaker(probe, Time())
    with pytest.raises(type(error)):
        subject.guard(failing(error))
    assert subject.guard(lambda: "served") == "served"
    assert probe.count == 0


def test_a_call_that_fails_while_others_succeed_breaks_nothing(probe: Probe) -> None:
    subject = breaker(probe, Time())

    def slow() -> None:
        assert subject.guard(lambda: "served") == "served"
        raise exceptions.TimeoutError("Timeout reading from socket")

    with pytest.raises(exceptions.TimeoutError):
        subject.guard(slow)
    assert subject.guard(lambda: "served") == "served"
    assert probe.count == 0


def test_a_call_that_was_on_its_way_mends_it(probe: Probe) -> None:
    subject = breaker(probe, Time())

    def meanwhile() -> str:
        with pytest.raises(exceptions.ConnectionError):
            subject.guard(failing(DOWN))
        return "served"

    assert subject.guard(meanwhile) == "served"
    assert subject.guard(lambda: "served") == "served"
    assert probe.count == 0


def test_an_outage_and_its_end_are_logged_once(probe: Probe, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "langmem_adapters"):
        subject = broken(probe, Time())
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                subject.guard(must_not_be_called)
        subject._next_probe_at = 0
        probe.error = None
        subject.guard(lambda: "served")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "it is down (Connection refused); calls fail at once until it answers"),
        ("INFO", "it answers again, after: it is down (Connection refused)"),
    ]


def test_no_thread_can_be_started_any_more(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = broken(probe, Time())
    probe.error = None

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert subject.guard(lambda: "served") == "served"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_its_parents_probe(probe: Probe) -> None:
    subject = broken(probe, Time(), grace=0.01)
    probe.may_answer.clear()
    with pytest.raises(StoreUnavailable):
        subject.guard(must_not_be_called)
    subject._grace = 10
    subject._lock.acquire()  # as another thread may have, at the moment of the fork
    child = os.fork()
    if child == 0:
        status = 1
        try:
            probe.error = None
            probe.may_answer.set()
            status = 0 if subject.guard(lambda: "served") == "served" else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    subject._lock.release()


# --- real servers -------------------------------------------------------------------------------------------


def until(ready: Callable[[], object], seconds: float = 30) -> float:
    """Wait for a server's event; gives how long that took."""
    began = time.monotonic()
    while not ready():
        assert time.monotonic() - began < seconds, "it does not happen"
        time.sleep(0.01)
    return time.monotonic() - began


def works(store: RedisStore) -> bool:
    try:
        store.get(NS)
    except StoreUnavailable:
        return False
    return True


def fails_at_once(
    store: RedisStore, calls: int = 200, *, said: str = r"cannot be reached|did not answer in time"
) -> None:
    began = time.perf_counter()
    for _ in range(calls):
        with pytest.raises(StoreUnavailable, match=said):
            store.get(NS)
    each = (time.perf_counter() - began) / calls
    assert each < 0.005, f"{each * 1e6:.0f} µs a call"


def test_a_server_that_stopped_costs_little_and_is_back_at_once(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--appendonly", "yes")
    store = RedisStore(server.url(), retry_for=0.2)
    store.append(NS, [("a", b"1")])
    server.kill()
    assert not works(store)
    fails_at_once(store)
    server.start()
    assert until(lambda: works(store)) < 2
    assert store.append(NS, [("b", b"2")]).total == 2
    assert ids(store) == ["a", "b"]
    store.close()


def test_a_server_that_is_back_and_cannot_save_is_read(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    store = RedisStore(server.url(), retry_for=0.1)
    assert works(store)
    server.kill()
    assert not works(store)
    server.start()
    with redis.Redis.from_url(server.url()) as raw:
        raw.config_set("save", "3600 1")
        shutil.rmtree(server.directory)
        raw.bgsave()
        until(lambda: raw.info("persistence")["rdb_last_bgsave_status"] == "err")
    server.directory.mkdir()
    until(lambda: works(store), 5)
    with pytest.raises(StoreError, match="cannot save its data, and so takes no writes"):
        store.append(NS, [("a", b"")])
    assert works(store)
    store.close()
    server.kill()  # as it does not end by itself without having saved


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel"])
def test_one_that_was_never_there_costs_little_either(scheme: str) -> None:
    store = RedisStore(f"{scheme}://127.0.0.1:1/{'mine' if scheme == 'redis+sentinel' else ''}", retry_for=0.1)
    assert not works(store)
    fails_at_once(store)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.append(NS, [("a", b"")])
    store.close()


def test_a_server_that_hangs_costs_one_timeout_not_one_each(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    store = RedisStore(server.url(), socket_timeout=0.5, retry_for=0.2)
    store.append(NS, [("a", b"1")])
    assert server._process
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            store.append(NS, [("b", b"2")])
        fails_at_once(store)
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    assert until(lambda: works(store)) < 2
    store.append(NS, [("b", b"2"), ("c", b"3")])  # the first try may have been made, or not
    assert ids(store) == ["a", "b", "c"]
    store.close()


def test_a_restart_is_waited_for(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--appendonly", "yes")
    store = RedisStore(server.url(), retry_for=20)
    store.append(NS, [("a", b"1")])
    server.kill()
    starting = threading.Thread(target=server.start)
    starting.start()
    assert store.append(NS, [("b", b"2")]).new == [True]
    starting.join()
    assert ids(store) == ["a", "b"]
    store.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_restart_while_namespaces_are_gone_through_leaves_none_out(
    start_redis: Callable[..., RedisServer], protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys lie in another order then, in which a cursor of before leads past some."""
    monkeypatch.setattr(redis_wire, "_SCAN_COUNT", 10)
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store = RedisStore(f"{server.url()}?protocol={protocol}")
    names = {("talks", str(n)) for n in range(400)}
    for name in names:
        store.append(name, [("a", b"1")])
    found = store.namespaces(("talks",))
    given = {next(found) for _ in range(200)}
    server.kill()
    server.start()
    assert given | set(found) == names
    store.close()


@pytest.mark.parametrize("stale", ["yes", "no"])
def test_a_replica_that_becomes_the_primary_is_waited_for(start_redis: Callable[..., RedisServer], stale: str) -> None:
    server = start_redis("--replica-serve-stale-data", stale)
    with redis.Redis.from_url(server.url()) as raw:
        raw.execute_command("REPLICAOF", "127.0.0.1", "1")
        store = RedisStore(server.url(), retry_for=20)
        promoting = threading.Timer(0.2, raw.execute_command, ("REPLICAOF", "NO", "ONE"))
        promoting.start()
        assert store.get(NS) == {}
        assert store.append(NS, [("a", b"1")]).new == [True]
        store.write(NS, put={"k": b"v"}, guard={"k": None})
        promoting.join()
    store.close()


def test_a_script_of_others_that_takes_long_is_waited_for(any_redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(any_redis_server.url(), prefix=key_prefix, retry_for=20)
    with ThreadPoolExecutor(5) as threads, redis.Redis.from_url(any_redis_server.url()) as raw:
        limit = raw.config_get("lua-time-limit")["lua-time-limit"]
        raw.config_set("lua-time-limit", 1)
        script = threads.submit(raw.eval, "while true do end", 0)

        def is_busy() -> bool:
            with redis.Redis.from_url(any_redis_server.url()) as other:
                try:
                    return not other.ping()
                except redis.ResponseError as error:
                    return str(error).startswith("BUSY ")

        try:
            until(is_busy)
            appended = threads.submit(store.append, NS, [("a", b"1")])
            guarded = threads.submit(store.write, NS, put={"k": b"v"}, guard={"k": None})
            page = threads.submit(store.scan, ("another",))
            calls: list[Future[Any]] = [appended, guarded, page]
            assert not wait(calls, timeout=0.2).done  # each was refused by now
        finally:
            raw.script_kill()
        assert isinstance(script.exception(20), redis.ResponseError)
        assert appended.result(20).new == [True]
        guarded.result(20)
        assert page.result(20).total == 0
        raw.config_set("lua-time-limit", limit)
    assert store.get(NS) == {"k": b"v"}
    assert ids(store) == ["a"]
    store.close()


@pytest.mark.parametrize(
    ("begin", "end", "sentence"),
    [
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", None),  # is waited for
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "is out of memory: raise its maxmemory"),
    ],
    ids=["replica", "full"],
)
def test_what_befalls_a_server_that_has_queued_a_transaction_is_told_as_ever(
    start_redis: Callable[..., RedisServer],
    monkeypatch: pytest.MonkeyPatch,
    begin: str,
    end: str,
    sentence: str | None,
) -> None:
    server = start_redis()
    store = RedisStore(server.url(), retry_for=20)
    with redis.Redis.from_url(server.url()) as raw:
        tries = iter([begin])

        def in_between(connection: Any, commands: Sequence[bytes]) -> list[Any]:
            connection.send_packed_command((redis_wire._MULTI, *commands))
            assert connection.can_read(timeout=20)
            raw.execute_command(*next(tries, end).split())
            connection.send_packed_command((redis_wire._EXEC,))
            return redis_wire._read_transaction(connection, len(commands))

        monkeypatch.setattr(redis_wire, "_transact", in_between)
        if sentence:
            with pytest.raises(StoreError, match=sentence):
                store.append(NS, [("a", b"1")])
            raw.execute_command(*end.split())
        assert store.append(NS, [("a", b"1")]).new == [True]
    store.close()


def test_a_given_clients_owner_decides_how_often_to_try(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    client = redis.Redis(port=server.port, retry=Retry(ConstantBackoff(0.2), 1))
    store = RedisStore(client, retry_for=60)
    server.stop()
    began = time.monotonic()
    assert not works(store)
    fails_at_once(store)
    assert time.monotonic() - began < 10
    client.close()


def test_a_refused_login_costs_what_a_given_client_tries_once(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--requirepass", "new")
    client = redis.Redis(port=server.port, password="old", retry=Retry(ConstantBackoff(0.2), 3))
    store = RedisStore(client)
    assert not works(store)
    fails_at_once(store, said="refuses the user name or password")
    with redis.Redis(port=server.port, password="new") as raw:
        raw.config_set("requirepass", "old")
    until(lambda: works(store))
    client.close()


def test_writers_lose_and_double_nothing_over_a_restart(start_redis: Callable[..., RedisServer]) -> None:
    """With ``appendfsync always``, what was acknowledged is there; what was not may be, once."""
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    store = RedisStore(server.url(), retry_for=0.2)
    acknowledged: list[list[str]] = [[] for _ in range(4)]
    unknown: set[str] = set()

    def write(writer: int, numbers: Iterator[int]) -> None:
        id_ = f"{writer}-{next(numbers):06}"
        try:
            store.append(NS, [(id_, b"x")])
        except StoreUnavailable:
            unknown.add(id_)
            time.sleep(0.001)
        else:
            acknowledged[writer].append(id_)

    with again_and_again(*(partial(write, writer, count()) for writer in range(4))):
        for _ in range(2):
            before = [len(own) for own in acknowledged]
            until(lambda: all(len(own) > n + 20 for own, n in zip(acknowledged, before, strict=True)))  # noqa: B023
            server.kill()
            until(lambda: unknown)
            server.start()
        before = [len(own) for own in acknowledged]
        until(lambda: all(len(own) > n for own, n in zip(acknowledged, before, strict=True)))
    found = ids(store)
    assert len(found) == len(set(found))
    for writer, own in enumerate(acknowledged):
        mine = [id_ for id_ in found if id_.startswith(f"{writer}-")]
        assert mine == sorted(mine)
        assert [id_ for id_ in mine if id_ not in unknown] == own
    store.close()


def test_a10_a_thousand_objects_on_one_url_share_few_connections(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    with redis.Redis.from_url(server.url()) as raw:
        settings = Settings(url=server.url())
        memories = [settings.working(user=str(n)) for n in range(1000)]
        histories = [BrainChatMessageHistory(str(n), url=server.url()) for n in range(1000)]
        assert len(raw.client_list()) == 1  # the administrator's: constructing makes none
        calls = [partial(memory.update, "c", "x") for memory in memories]
        work: Iterator[Callable[[], Any]] = iter([*calls, *(partial(h.add_user_message, "x") for h in histories)])

        def use() -> None:
            for call in work:
                call()

        on_threads([use] * 100)
        assert len(raw.client_list()) <= 64 + 1
        assert raw.dbsize() == 1000 * 4 + 1000 * 2 + 1  # the list of sessions
        shared_store(server.url()).close()
        until(lambda: len(raw.client_list()) == 1)


# --- what is said -------------------------------------------------------------------------------------------


def refusing(answer: bytes) -> AbstractContextManager[int]:
    """A server that has one answer to every command."""

    def handle(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            connection.sendall(answer * len(re.findall(rb"(?:^|\r\n)\*\d+\r\n", data)))

    return listening(handle)


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", StoreError, "look at its log and its disk"),
        (b"-NOREPLICAS Not enough good replicas to write.\r\n", StoreError, "lower its min-replicas-to-write"),
        (b"-DENIED Redis is running in protected mode\r\n", StoreUnavailable, "has no password: set one"),
        (b"-ERR max number of clients reached\r\n", StoreUnavailable, "raise its maxclients"),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", StoreError, "raise its maxmemory"),
        (b"-NOAUTH Authentication required.\r\n", StoreUnavailable, "refuses the user name or password"),
        (b"-WRONGPASS invalid username-password pair\r\n", StoreUnavailable, "correct them in the URL"),
        (b"-NOPERM this user has no permissions\r\n", StoreError, r"grant \+@read \+@write"),
        (b"-MOVED 1 127.0.0.1:1\r\n", StoreUnavailable, r"use a redis\+cluster:// URL"),
        (b"<!DOCTYPE HTML>\r\n", StoreError, "does not answer as a Redis does: see whether the address is right"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", StoreUnavailable, "is a read-only replica: use the address"),
        (b"-TRYAGAIN Multiple keys\r\n", StoreUnavailable, "whose slots are moving: try again"),
        (b"-BUSY Redis is busy running a script.\r\n", StoreUnavailable, "try again when it has ended"),
    ],
)
def test_each_refusal_is_one_sentence_that_says_what_to_do(
    answer: bytes, kind: type[StoreError], sentence: str
) -> None:
    with refusing(answer) as port:
        store = RedisStore(f"redis://127.0.0.1:{port}", retry_for=0)
        with pytest.raises(kind, match=sentence) as caught:
            store.get(NS)
        assert type(caught.value) is kind
        assert "\n" not in str(caught.value)
        store.close()


@pytest.mark.parametrize("answer", [b"+OK\r\n", b":1\r\n", b"*0\r\n", b"*1\r\n:1\r\n"])
def test_what_is_no_answer_to_the_whole_transaction_is_told_and_its_connection_is_not_used_again(
    answer: bytes,
) -> None:
    """It may be that to another request: the results of others would be taken for one's own."""
    connections: list[socket.socket] = []

    def handle(connection: socket.socket) -> None:
        connections.append(connection)
        while data := connection.recv(65536):
            names = re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)", data)
            connection.sendall(b"".join(answer if name == b"EXEC" else b"+QUEUED\r\n" for name in names))

    with listening(handle) as port:
        store = RedisStore(f"redis://127.0.0.1:{port}", retry_for=0)
        for attempt in (1, 2):
            with pytest.raises(StoreError, match="does not answer as a Redis does: see whether the address is right"):
                store.append(NS, [("a", b"")])
            assert len(connections) == attempt
        store.close()


async def test_an_unknown_command_is_told_without_what_was_sent_with_it(
    start_redis: Callable[..., RedisServer],
) -> None:
    store = RedisStore(start_redis("--rename-command", "XADD", "").url())
    brain = BrainMemory(store, "s", user="ada")
    with pytest.raises(StoreError, match="or Valkey, with no command renamed") as called:
        brain.add_talk("My word is kumquat.")
    with pytest.raises(StoreError, match=r"\(unknown command 'XADD'\)$") as awaited:
        await brain.aadd_talk("My word is kumquat.")
    assert "kumquat" not in "".join([*told(called.value), *told(awaited.value)])
    store.close()


def test_a_server_without_replicas(start_redis: Callable[..., RedisServer]) -> None:
    store = RedisStore(start_redis("--min-replicas-to-write", "1").url())
    with pytest.raises(StoreError, match="has too few replicas to take writes"):
        store.append(NS, [("a", b"")])
    assert ids(store) == []
    store.close()


def test_a_server_without_room(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--maxclients", "1")
    with redis.Redis.from_url(server.url()) as raw:
        assert raw.ping()
        store = RedisStore(server.url(), retry_for=0)
        with pytest.raises(StoreUnavailable, match="has no room for another connection: raise its maxclients"):
            store.get(NS)
    until(lambda: works(store))
    store.close()


def test_sentinels_that_name_no_primary() -> None:
    store = RedisStore("redis+sentinel://127.0.0.1:1/mine", retry_for=0)
    with pytest.raises(StoreUnavailable, match=r"none of its sentinels .* \(sentinel_password=, .* URL\)$"):
        store.get(NS)
    store.close()


def test_a_broken_breaker_shows_no_password(caplog: pytest.LogCaptureFixture) -> None:
    store = RedisStore("redis://user:S3cret@127.0.0.1:1", retry_for=0)
    with caplog.at_level(logging.DEBUG):
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"user:\*\*\*@127\.0\.0\.1:1 cannot be reached") as caught:
                store.get(NS)
            assert not [text for text in told(caught.value) if "S3cret" in text]
    assert caplog.records
    assert "S3cret" not in caplog.text
    store.close()


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1"])
def test_patience_is_a_number_of_seconds(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="retry_for is a number of seconds"):
        RedisStore("redis://h", retry_for=wrong)
    with pytest.raises(ConfigurationError, match="socket_timeout is a number of seconds above 0, or None, not"):
        RedisStore("redis://h", socket_timeout=wrong)


def test_a_ready_client_leaves_a_primary_that_has_become_a_replica(start_redis: Callable[..., RedisServer]) -> None:
    with redis.Redis(port=start_redis().port) as client:
        store = RedisStore(client)
        store.append(NS, [("a", b"1")])
        connection = client.client_id()
        client.replicaof("127.0.0.1", 1)
        with pytest.raises(StoreUnavailable, match="read-only replica"):
            store.append(NS, [("b", b"2")])
        assert client.client_id() != connection  # the same name may lead to the new primary


# --- clusters -----------------------------------------------------------------------------------------------


def cluster_of_one(start_redis: Callable[..., RedisServer], *args: str) -> RedisServer:
    server = start_redis("--cluster-enabled", "yes", *args)
    with redis.Redis(port=server.port) as node:
        node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: node.cluster("info")["cluster_state"] == "ok")
    return server


def test_a_cluster_is_told_from_a_server_also_where_one_node_has_all_slots(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = cluster_of_one(start_redis)
    store = RedisStore(server.url())
    for guard in (None, {"k": None}):
        with pytest.raises(StoreError, match=r"is a cluster: use a redis\+cluster:// URL; or its keys are in parts"):
            store.write(NS, put={"k": b"v"}, guard=guard)
    assert [found.remedy for found in store.examine() if "cluster" in found.message] == ["use a redis+cluster:// URL"]
    store.close()
    store = in_cluster(server)
    store.write(NS, put={"k": b"v"}, guard={"k": None})
    assert [found.message for found in store.examine() if "cluster" in found.message] == []
    store.close()


def test_a_cluster_that_let_nobody_in_at_first_is_used_once_it_does(start_redis: Callable[..., RedisServer]) -> None:
    server = cluster_of_one(start_redis)
    store = in_cluster(server)
    with redis.Redis(port=server.port) as node:
        node.config_set("requirepass", "hidden")
        with pytest.raises(StoreUnavailable):
            store.get(NS)
        node.config_set("requirepass", "")

    def answers() -> bool:
        with suppress(StoreUnavailable):
            return store.get(NS) == {}
        return False

    until(answers)
    store.close()


@pytest.mark.parametrize("given", [None, {}, {"decode_responses": True}], ids=["url", "client", "str client"])
@pytest.mark.parametrize("looks", [False, True], ids=["used", "looked at"])
def test_a_cluster_whose_nodes_all_have_other_addresses_is_found_where_it_was_first(
    start_redis: Callable[..., RedisServer], given: dict[str, Any] | None, looks: bool
) -> None:
    server = cluster_of_one(start_redis, "--cluster-announce-ip", "127.0.0.1")
    with closing(Crossing(server.port)) as before, closing(Crossing(server.port)) as after:
        with redis.Redis(port=server.port) as node:
            node.config_set("cluster-announce-port", before.port)
            client: Any = None if given is None else redis.RedisCluster(host="127.0.0.1", port=server.port, **given)
            store = in_cluster(server) if client is None else RedisStore(client)
            assert store.append(NS, [("a", b"1")]).new == [True]
            node.config_set("cluster-announce-port", after.port)
        before.close()
        if looks:
            until(lambda: store.health().ok)
            assert list(store.namespaces()) == [NS]
        until(lambda: works(store))
        assert ids(store) == ["a"]
        store.close()
        if client:
            client.close()


def ids_of_nodes(node: Any) -> set[str]:
    return {each["node_id"] for each in node.cluster("nodes").values()}


def test_a_user_is_deleted_from_a_node_that_has_joined_the_cluster_since(
    start_redis: Callable[..., RedisServer],
) -> None:
    server, joining = cluster_of_one(start_redis), start_redis("--cluster-enabled", "yes")
    store = in_cluster(server)
    BrainMemory(store, "monday", user="ada").add_talk("Where is my bike?")
    with redis.Redis(port=server.port) as old, redis.Redis(port=joining.port) as new:
        new.execute_command("CLUSTER", "MEET", "127.0.0.1", server.port)
        old_id, new_id = (node.execute_command("CLUSTER", "MYID").decode() for node in (old, new))
        until(lambda: all({old_id, new_id} <= ids_of_nodes(node) for node in (old, new)))
        until(lambda: new.cluster("info")["cluster_state"] == "ok")
        slot = old.execute_command("CLUSTER", "KEYSLOT", store._keys.for_namespace(("brain", "", "ada", "monday")).log)
        new.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
        old.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", new_id)
        moved = old.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100)
        old.execute_command("MIGRATE", "127.0.0.1", joining.port, "", 0, 5000, "KEYS", *moved)
        for node in (new, old):
            node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", new_id)
        assert new.dbsize() == len(moved) > 0
        assert delete_user(store, user="ada")["messages"] == 1
        assert (old.dbsize(), new.dbsize()) == (0, 0)
    store.close()


def in_cluster(server: RedisServer) -> RedisStore:
    return RedisStore(f"redis+cluster://127.0.0.1:{server.port}", retry_for=0.2)


def is_refused_at_once(store: RedisStore) -> None:
    for _ in range(2):  # the first finds out that no node serves the slot any more
        with pytest.raises(StoreUnavailable, match="does not serve all of its slots"):
            store.get(NS)
    began = time.perf_counter()
    for _ in range(50):
        with pytest.raises(StoreUnavailable, match=r"does not serve all of its slots.*until it answers calls fail"):
            store.get(NS)
    assert (time.perf_counter() - began) / 50 < 0.02


def test_a_cluster_that_has_lost_slots_costs_little_and_is_back_at_once(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = cluster_of_one(start_redis)
    store = in_cluster(server)
    store.append(NS, [("a", b"1")])
    with redis.Redis(port=server.port) as node:
        slot = node.execute_command("CLUSTER", "KEYSLOT", store._keys.for_namespace(NS).log)
        lost = (slot + 1) % 16384
        node.execute_command("CLUSTER", "DELSLOTS", lost)
        until(lambda: node.cluster("info")["cluster_state"] == "fail")
        is_refused_at_once(store)
        node.execute_command("CLUSTER", "ADDSLOTS", lost)
        until(lambda: node.cluster("info")["cluster_state"] == "ok")
    assert until(lambda: works(store)) < 2
    assert ids(store) == ["a"]
    store.close()


def test_a_slot_that_nobody_serves_costs_little_and_takes_no_other_along(
    start_redis: Callable[..., RedisServer],
) -> None:
    server = cluster_of_one(start_redis, "--cluster-require-full-coverage", "no")
    store = in_cluster(server)
    other = (*NS[:-1], "other")
    assert store.get(NS) == store.get(NS) == {}  # by what is asked first of a node, it is asked whether it is back
    store.append(NS, [("a", b"1")])
    store.append(other, [("b", b"2")])
    with redis.Redis(port=server.port) as node:
        slot = node.execute_command("CLUSTER", "KEYSLOT", store._keys.for_namespace(NS).log)
        node.execute_command("CLUSTER", "DELSLOTS", slot)
        is_refused_at_once(store)
        assert ids(store, other) == ["b"]
        is_refused_at_once(store)
        node.execute_command("CLUSTER", "ADDSLOTS", slot)
    assert until(lambda: works(store)) < 2
    assert ids(store, other) == ["b"]
    store.close()


def test_a_session_is_cleared_in_a_slot_that_nobody_served_before(start_redis: Callable[..., RedisServer]) -> None:
    server = cluster_of_one(start_redis, "--cluster-require-full-coverage", "no")
    store = in_cluster(server)
    with redis.Redis(port=server.port) as node:
        slot = node.execute_command("CLUSTER", "KEYSLOT", store._keys.for_namespace(NS).log)
        node.execute_command("CLUSTER", "DELSLOTS", slot)
        assert ids(store, (*NS[:-1], "other")) == []  # it looks who serves which slot
        node.execute_command("CLUSTER", "ADDSLOTS", slot)
    store.clear(NS)
    assert store.dates(NS) is None
    store.close()


@contextmanager
def a_frozen_server() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield listener.getsockname()[1]


def test_a_cluster_that_is_known_to_be_frozen_is_not_waited_for() -> None:
    with a_frozen_server() as port:
        store = RedisStore(f"redis+cluster://127.0.0.1:{port}", socket_timeout=1, retry_for=0)
        assert not works(store)
        for call in (store.clear, store.dates):
            with pytest.raises(StoreUnavailable, match="until it answers calls fail at once"):
                call(NS)
        store.close()


def test_threads_that_first_use_a_frozen_cluster_wait_for_it_together() -> None:
    with a_frozen_server() as port:
        store = RedisStore(f"redis+cluster://127.0.0.1:{port}", socket_timeout=1, retry_for=0)
        waited: list[float] = []

        def call() -> None:
            began = time.monotonic()
            assert not works(store)
            waited.append(time.monotonic() - began)

        on_threads([call] * 6)
        assert max(waited) < 3  # not 6
        store.close()


def test_the_error_of_threads_that_waited_together_is_in_no_frame_that_it_holds() -> None:
    """Otherwise it stays, with all that its frames hold, until garbage is collected."""
    with a_frozen_server() as port:
        store = RedisStore(f"redis+cluster://127.0.0.1:{port}", socket_timeout=1, retry_for=0)
        causes: list[BaseException | None] = []

        def call() -> None:
            with pytest.raises(StoreUnavailable) as caught:
                store.get(NS, ["k"])
            causes.append(caught.value.__cause__)

        on_threads([call] * 2)
        shared, other = causes
        assert shared is not None
        assert shared is other
        frames = [frame for frame, _ in traceback.walk_tb(shared.__traceback__)]
        assert "_connected_client" in {frame.f_code.co_name for frame in frames}
        assert [frame for frame in frames if any(value is shared for value in frame.f_locals.values())] == []
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_forked_while_a_frozen_cluster_is_first_used_waits_for_nobody() -> None:
    with a_frozen_server() as port:
        store = RedisStore(f"redis+cluster://127.0.0.1:{port}", socket_timeout=1, retry_for=0)
        servers: Any = store._wire._servers
        thread = threading.Thread(target=works, args=(store,))
        with servers._lock.held():  # as the thread has it a moment later
            thread.start()
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(works(store))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        thread.join()
        store.close()
