"""Looking after a store: health, figures, examinations, pruning, and moving everything into another store."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import FakeListChatModel

from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    LongTermMemory,
    Message,
    SearchError,
    Sessions,
    open_index,
    open_store,
    open_vectors,
)
from langmem_adapters.embedding import Embedder
from langmem_adapters.encryption import AESGCMCodec
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.inspection import Dates, Finding, KindStats
from langmem_adapters.langchain import ExperienceCache, SemanticMode
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.model import Experience
from langmem_adapters.operations import Checkup, Migrated, Migration, Pruning, migration
from langmem_adapters.protocols import Document, Index, Page, Store
from langmem_adapters.records import paging
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores import redis_errors, sqlite_report
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from langmem_adapters.working import WorkingMemory
from tests.allocations import traced
from tests.benchmarks import sizes
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Down
from tests.servers import CLUSTER_COMMANDS, COMMANDS, RedisServer, listening
from tests.vector_places import word_vectors

NS = ("brain", "t", "u", "s")
DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[[str], Any]]:
    """Makes stores of one kind, which share a clock."""
    with contextlib.ExitStack() as stack:

        def build(name: str) -> Store:
            if request.param == "memory":
                return MemoryStore(clock=clock)
            if request.param == "sqlite":
                store: Store = SQLiteStore(tmp_path / f"{name}.db", clock=clock)
            else:
                prefix = request.getfixturevalue("key_prefix") + name + ":"
                store = RedisStore(request.getfixturevalue("redis_server").url(), prefix=prefix, clock=clock)
            stack.callback(store.close)
            return store

        yield build


make_target = make  # once more, for stores of each kind beside those of each other


@pytest.fixture
def store(make: Callable[[str], Any]) -> Any:
    return make("one")


def said(findings: list[Finding], subject: str) -> list[str]:
    return [f"{found.level}: {found.message}" for found in findings if found.subject == subject]


def everything(store: Any) -> dict[Any, Any]:
    """All that a store holds, but for its sequence numbers."""
    return {
        namespace: (
            [(item.id, item.data) for item in store.scan(namespace).items],
            store.get(namespace),
            store.dates(namespace).updated_at,
            None if (left := store.dates(namespace).expires_in) is None else round(left, -1),
        )
        for namespace in store.namespaces()
    }


# --- health and figures -------------------------------------------------------------------------------------


async def test_a_store_that_answers_is_healthy(store: Any) -> None:
    store.append(NS, [("a", b"1")])
    for health in (Checkup(store).health(), await Checkup(store).ahealth()):
        assert (health.ok, health.problem) == (True, "")
        assert 0 <= health.seconds < 5


def test_the_health_of_a_file_makes_none(tmp_path: Path) -> None:
    file = tmp_path / "absent.db"
    health = SQLiteStore(file).health()
    assert (health.ok, health.problem) == (False, f"there is no file {file} yet")
    assert not file.exists()
    file.write_bytes(b"this is no database, but long enough to be one" * 100)
    assert "is not an SQLite database" in SQLiteStore(file).health().problem
    assert SQLiteStore(":memory:").health().ok


def test_a_file_is_looked_at_where_it_is_wherever_the_process_and_a_link_to_it_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.db").symlink_to("elsewhere/file.db")
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("link.db")
    store.append(NS, [("a", b"1")])
    monkeypatch.chdir("elsewhere")
    assert Checkup(store).health().ok
    beside = [tmp_path / "elsewhere" / f"file.db{ending}" for ending in ("", "-wal", "-shm")]
    assert Checkup(store).stats().size == sum(path.stat().st_size for path in beside)
    assert [(found.level, found.subject) for found in store.examine()] == [("ok", "file"), ("ok", "disk")]


def test_an_outage_is_an_answer_without_the_password(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--requirepass", "S3cret")
    store = RedisStore(server.url().replace("//", "//:S3cret@"), retry_for=30)
    assert store.health().ok
    server.kill()
    health = store.health()  # asks once, whatever retry_for is
    assert not health.ok
    assert health.seconds < 5
    assert "cannot be reached" in health.problem
    assert "S3cret" not in str(health)
    server.start()
    assert store.health().ok
    store.close()
    health = RedisStore(server.url()).health()
    assert "refuses the user name or password" in health.problem


async def test_figures_are_the_same_everywhere(store: Any, clock: FakeClock) -> None:
    assert store.stats().kinds == {}
    for n in range(5):
        store.append(("brain", "t", "u", str(n)), [("a", b"12345678"), ("b", b"")], ttl=100 if n % 2 else None)
    store.write(("working", "x"), put={"k": b"v"}, ttl=1000)
    store.write(("lasting",), put={"k": b""})
    stats = Checkup(store).stats()
    again = await Checkup(store).astats()
    assert again._replace(size=stats.size) == stats  # a server's memory changes by itself
    assert stats.kinds == {
        "brain": KindStats(namespaces=5, expiring=2, entries=10),
        "lasting": KindStats(1, 0, 0),
        "working": KindStats(1, 1, 0),
    }
    assert list(stats.kinds) == sorted(stats.kinds)
    assert stats.size is not None
    assert stats.size > 0
    if isinstance(store, RedisStore):
        # a log and its ids five times, two hashes, directories of ("brain", "t", "u"), ("working",) and ()
        assert (stats.keys, stats.limit) == (15, None)
    else:
        assert stats.keys is None
        clock.advance(500)
        assert store.stats().kinds["brain"] == KindStats(3, 0, 6)


def test_figures_of_many_keys(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    for n in range(1200):
        store.write(("working", str(n)), put={"k": b"v"}, ttl=None if n % 3 else 100)
    assert store.stats().kinds == {"working": KindStats(1200, 400, 0)}
    with redis.Redis.from_url(redis_server.url()) as raw:
        raw.execute_command("CONFIG", "RESETSTAT")
        store.stats()
        called = set(raw.info("commandstats"))
    assert "cmdstat_keys" not in called
    assert "cmdstat_scan" in called
    store.close()


def test_a_scan_may_name_a_key_twice_or_one_that_has_gone(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    store.append(NS, [("a", b"1"), ("b", b"2")])
    found = list(store._wire.scan_keys(store._keys.pattern(())))
    gone = store._keys.for_namespace(("brain", "gone"))
    store._wire.scan_keys = lambda _: iter([*found, *gone[:3]] * 600)  # type: ignore[method-assign, assignment]
    assert store.stats().kinds == {"brain": KindStats(1, 0, 2)}
    store.close()


def test_a_store_of_ones_own_is_counted_too() -> None:
    class Plain:
        def __init__(self, store: Store) -> None:
            for name in ("append", "clear", "get", "namespaces", "recent", "scan", "write"):
                setattr(self, name, getattr(store, name))

    inner = MemoryStore()
    inner.append(NS, [("a", b""), ("b", b"")])
    inner.append(("brain", "t", "u", "other"), [("a", b"")])
    plain: Any = Plain(inner)
    health = Checkup(plain).health()
    assert (health.ok, health.address) == (True, repr(plain))
    health = Checkup(cast("Store", Plain(Down()))).health()
    assert (health.ok, health.problem) == (False, "nobody answers")
    assert Checkup(plain).stats().kinds == {"brain": KindStats(2, 0, 3)}
    assert said(Checkup(plain, ttl=100).examine(), "expiry") == []  # it does not tell which of them expire
    for wrong in (lambda: Pruning(plain, 1), lambda: Migration(plain, inner), lambda: Migration(inner, plain)):
        with pytest.raises(ConfigurationError, match="cannot"):
            wrong()


# --- dates --------------------------------------------------------------------------------------------------


def test_dates_are_told_and_set(store: Any, clock: FakeClock) -> None:
    assert store.dates(NS) is None
    store.append(NS, [("a", b"")], ttl=100)
    store.write((*NS[:-1], "other"), put={"k": b"v"})
    updated_at, left = store.dates(NS)
    assert updated_at == clock()
    assert left == pytest.approx(100, abs=2)
    assert store.dates((*NS[:-1], "other")) == Dates(clock(), None)
    store.set_dates(NS, Dates(5.5, 1000.0))
    assert store.dates(NS).updated_at == 5.5
    assert store.dates(NS).expires_in == pytest.approx(1000, abs=2)
    assert [row.namespace[-1] for row in store.recent(NS[:-1])] == ["other", "s"]
    store.set_dates(NS, Dates(clock() + 1, None))
    assert store.dates(NS) == Dates(clock() + 1, None)
    assert [row.namespace[-1] for row in store.recent(NS[:-1])] == ["s", "other"]
    assert store.scan(NS).items[0].id == "a"
    store.set_dates(NS, Dates(None, 50.0))
    assert store.dates(NS).updated_at == clock() + 1  # as it was
    for dates in (Dates(1.0, None), Dates(None, 50.0)):
        store.set_dates(("no", "such"), dates)
    assert ("no", "such") not in set(store.namespaces())
    assert store.recent(("no",)) == []


def test_what_has_expired_has_no_dates(tmp_path: Path, clock: FakeClock) -> None:
    for store in (MemoryStore(clock=clock), SQLiteStore(tmp_path / "one.db", clock=clock)):
        store.append(NS, [("a", b"")], ttl=10)
        clock.advance(10)
        assert store.dates(NS) is None
        store.set_dates(NS, Dates(clock(), None))  # nor does it come back with new ones
        assert store.dates(NS) is None
        assert store.scan(NS).total == 0


def test_the_root_is_no_child_of_itself(store: Any) -> None:
    store.append((), [("a", b"")])
    store.append(("brain",), [("a", b"")])
    assert [row.namespace for row in store.recent(())] == [("brain",)]
    assert set(store.namespaces()) == {(), ("brain",)}


def test_a_name_that_is_no_namespace_is_refused_and_not_only_not_found(store: Any) -> None:
    for look in (
        lambda: store.recent("brain"),
        lambda: list(store.namespaces("brain")),
        lambda: store.dates("brain"),
        lambda: store.set_dates("brain", Dates(None, None)),
        lambda: store.discard("brain", 0.0),
    ):
        with pytest.raises(ConfigurationError, match="a namespace is a tuple of strings, not 'brain'"):
            look()


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, "5", True])
def test_nothing_is_written_with_a_ttl_that_is_no_number_of_seconds_above_0(store: Any, ttl: Any) -> None:
    with pytest.raises(ConfigurationError, match="ttl is a number of seconds above 0, or None, not "):
        store.append(NS, [("a", b"")], ttl=ttl)
    with pytest.raises(ConfigurationError, match="ttl is a number of seconds above 0, or None, not "):
        store.write(NS, put={"k": b"v"}, ttl=ttl)
    assert store.scan(NS, keys=["k"]) == Page([], 0, {})
    assert list(store.namespaces()) == []


def test_discard_spares_what_is_younger(store: Any, clock: FakeClock) -> None:
    store.append(NS, [("a", b"")])
    store.write((*NS[:-1], "other"), put={"k": b"v"})
    assert not store.discard(NS, clock())
    assert store.scan(NS).total == 1
    assert store.discard(NS, clock() + 0.001)
    assert not store.discard(NS, clock() + 0.001)
    assert set(store.namespaces()) == {(*NS[:-1], "other")}
    assert [row.namespace[-1] for row in store.recent(NS[:-1])] == ["other"]


def test_numbers_rise_after_a_namespace_was_discarded(store: Any, clock: FakeClock) -> None:
    seqs = []
    for _ in range(20):
        store.append(NS, [("a", b"")])
        seqs.append(store.scan(NS).items[0].seq)
        assert store.discard(NS, clock() + 0.001)
    assert seqs == sorted(set(seqs))


def test_a_write_in_the_middle_of_a_discard_is_not_lost(redis_server: RedisServer, key_prefix: str) -> None:
    clock = FakeClock()
    for n, write in enumerate(
        [
            lambda other, ns: other.append(ns, [("b", b"")], ttl=100),
            lambda other, ns: other.write(ns, put={"title": b"new"}),
        ]
    ):
        namespace = ("brain", "t", "u", str(n))
        store, other = (RedisStore(redis_server.url(), prefix=key_prefix, clock=clock) for _ in range(2))
        store.append(namespace, [("a", b"")])
        store.write(namespace, put={"title": b"old"})
        optimistic = store._wire.transact_watched
        written = False

        def overtaken(key: bytes, reads: Any, decide: Any) -> Any:
            def late(replies: Any) -> Any:
                nonlocal written
                commands = decide(replies)
                if not written:
                    written = True
                    clock.advance(100)
                    write(other, namespace)  # type: ignore[no-untyped-call]  # noqa: B023
                return commands

            return optimistic(key, reads, late)  # noqa: B023

        store._wire.transact_watched = overtaken  # type: ignore[method-assign]
        assert not store.discard(namespace, clock() + 50)
        assert store.scan(namespace).items[0].id == "a"
        store.close()
        other.close()


def test_a_discard_needs_one_connection(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix, clock=FakeClock(), max_connections=1, socket_timeout=5)
    store.append(NS, [("a", b"")])
    assert store.discard(NS, FakeClock()() + 1)
    store.append((), [("a", b"")])
    assert not store.discard((), FakeClock()() + 1)  # has no last write that could be too old
    store.clear(())
    store.close()


# --- pruning ------------------------------------------------------------------------------------------------


@pytest.fixture
def aged(store: Any, clock: FakeClock) -> Any:
    """Old and new sessions of several users, and what must stay however old it is."""
    for user in ("ada", ""):
        BrainMemory(store, "old", user=user, clock=clock).add_talk("Hello.")
        WorkingMemory(store, user=user, ttl=None, clock=clock).store("old", 1)
    BrainMemory(store, "old", user="bo", tenant="t", clock=clock).add_talk("Hello.")
    LongTermMemory(store, open_index("memory:"), user="ada").add([Message(role="user", content="A kite.")])
    LongTermMemory(store, open_index("memory:"), session="old").add([Message(role="user", content="A kite.")])
    ExperiencePool(store, tag="capitals").create(Experience(req="France", resp="Paris"))
    clock.advance(31 * DAY)
    BrainMemory(store, "new", user="ada", clock=clock).add_talk("Hello.")
    return store


def names(store: Any) -> set[str]:
    return {"/".join(namespace[:1] + namespace[2:]) for namespace in store.namespaces()}


STAYS = {"brain/ada/new", "longterm/ada", "experience//capitals"}


async def test_pruning_removes_what_is_old_and_no_more(aged: Any, clock: FakeClock) -> None:
    before = everything(aged)
    dry = Pruning(aged, 30 * DAY, clock=clock, dry_run=True).run()
    assert (dry.kinds, dry.dry_run) == ({"brain": 3, "longterm": 1, "working": 2}, True)
    assert everything(aged) == before
    assert Pruning(aged, 32 * DAY, clock=clock).run().kinds == {}
    pages: list[int] = []
    pruned = await Pruning(aged, 30 * DAY, clock=clock, report=pages.append).arun()
    assert (pruned.kinds, pruned.dry_run) == (dry.kinds, False)
    assert sum(pages) >= 6
    assert names(aged) == STAYS
    assert Pruning(aged, 30 * DAY, clock=clock).run().kinds == {}


@pytest.mark.parametrize(
    ("scope", "gone"),
    [
        ({"user": "ada"}, {"brain/ada/old", "working/ada/old/SHORT_TERM"}),
        ({"user": ""}, {"brain//old", "working//old/SHORT_TERM", "longterm//old"}),
        ({"tenant": "t"}, {"brain/bo/old"}),
        ({"tenant": "t", "user": "ada"}, set()),
        ({"tenant": "", "user": "ada"}, {"brain/ada/old", "working/ada/old/SHORT_TERM"}),
    ],
)
def test_pruning_is_narrowed(aged: Any, clock: FakeClock, scope: dict[str, str], gone: set[str]) -> None:
    before = names(aged)
    Pruning(aged, 30 * DAY, clock=clock, **scope).run()  # type: ignore[arg-type]
    assert before - names(aged) == gone


def test_a_session_that_is_written_to_keeps_its_own_memory(store: Any, clock: FakeClock) -> None:
    for session in ("live", "old"):
        memory = LongTermMemory(store, open_index("memory:"), session=session)
        brain = BrainMemory(store, session, memory_k=1, long_term=memory, clock=clock)
        brain.add_messages([Message(role="user", content=text) for text in ("A kite.", "It is red.")])
    LongTermMemory(store, open_index("memory:"), session="none").add([Message(role="user", content="A kite.")])
    clock.advance(31 * DAY)
    BrainMemory(store, "live", clock=clock).set_title("Kites")
    for dry_run in (True, False):
        pruned = Pruning(store, 30 * DAY, clock=clock, dry_run=dry_run).run()
        assert pruned.kinds == {"brain": 1, "longterm": 2}
    assert names(store) == {"brain//live", "longterm//live"}


def test_pruning_goes_through_many_pages(store: Any, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langmem_adapters.operations.pruning._PAGE_SIZE", 3)
    for n in range(20):
        store.append(("brain", "", "u", str(n)), [("a", b"")])
        clock.advance(n % 2)
    for dry_run in (True, False):
        assert Pruning(store, 1, clock=lambda: clock() + 1.5, dry_run=dry_run).run().kinds == {"brain": 20}
    assert set(store.namespaces()) == set()


def test_a_page_that_is_not_full_is_the_last_that_pruning_reads(distant: tuple[RedisStore, RoundTrips]) -> None:
    redis_store, door = distant
    redis_store.append(("brain", "", "u", "s"), [("a", b"")])

    def trips(older_than: float) -> int:
        before = door.count
        Pruning(redis_store, older_than, clock=lambda: time.time() + 10).run()
        return door.count - before

    nothing_old = trips(1000)  # the keys are scanned, and one page of rows is empty
    assert trips(1) - nothing_old == 1 + 2  # there is a row: its child is looked at, and removed under a watch


def test_short_sessions_are_examined_side_by_side(distant: tuple[RedisStore, RoundTrips]) -> None:
    redis_store, door = distant

    def trips(sessions: int) -> int:
        for n in range(sessions):
            BrainMemory(redis_store, f"s{n}").add_talk("Hello.")
        before = door.count
        findings = Checkup(redis_store).examine()
        count = door.count - before
        entries = sum(redis_store.scan(namespace, limit=0).total for namespace in redis_store.namespaces())
        assert Finding("ok", "entries", f"{entries} were checked") in findings
        return count

    assert trips(1) == (few := trips(4))
    assert trips(4 + 8 + 2 * 16) == few + 3 * 2  # the logs and the values of each group after the first four


@pytest.mark.parametrize(("is_target", "each_group"), [(True, 10), (False, 8)], ids=["into it", "from it"])
def test_short_sessions_are_migrated_side_by_side(
    distant: tuple[RedisStore, RoundTrips], is_target: bool, each_group: int
) -> None:
    redis_store, door = distant

    def trips(sessions: int) -> int:
        source, target = MemoryStore(), redis_store
        if not is_target:
            source, target = target, source  # type: ignore[assignment]
        for n in range(sessions):
            BrainMemory(source, f"s{n}").add_talk("Hello.")
        before = door.count
        assert Migration(source, target).run().copied == sessions
        count = door.count - before
        for n in range(sessions):
            redis_store.clear(("brain", "", "", f"s{n}"))
        return count

    assert trips(2) == (few := trips(16))
    assert trips(3 * 16) == few + 2 * each_group


def test_of_pictures_that_are_migrated_side_by_side_few_are_held_at_a_time(
    distant: tuple[RedisStore, RoundTrips], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "_PAGE_BYTES", 100_000)
    redis_store, _ = distant
    for n in range(16):
        pictures = [Message(role="user", content="x" * 50_000) for _ in range(20)]
        BrainMemory(redis_store, f"s{n}").add_messages(pictures)
    with contextlib.closing(SQLiteStore(tmp_path / "s.db")) as target:
        migrated, _, peak = traced(lambda: Migration(redis_store, target).run())
    assert migrated.copied == 16
    assert peak < 10_000_000  # of 16,000,000


@pytest.mark.parametrize("dry_run", [True, False])
def test_what_is_exactly_that_old_stays(store: Any, clock: FakeClock, dry_run: bool) -> None:
    for session in ("", "-", "s", "~"):
        store.append(("brain", "", "u", session), [("a", b"")])
    assert Pruning(store, 10, clock=lambda: clock() + 10, dry_run=dry_run).run().kinds == {}


def test_indexes_forget_what_was_pruned(clock: FakeClock) -> None:
    store, index = MemoryStore(clock=clock), open_index("memory:")
    memory = LongTermMemory(store, index, session="s")
    memory.add([Message(role="user", content="A red kite.")])
    assert memory.search("kite")
    namespace = ("longterm", "", "", "s")
    clock.advance(10)
    Pruning(store, 5, clock=clock, indexes=[index], dry_run=True).run()
    assert index.search(namespace, "kite", 1)
    Pruning(store, 5, clock=clock, indexes=[index]).run()
    assert index.search(namespace, "kite", 1) == []


def test_an_index_that_fails_beside_a_pruning_forgets_in_the_next(clock: FakeClock) -> None:
    store, index = MemoryStore(clock=clock), open_index("memory:")
    memory = LongTermMemory(store, index, session="s")
    memory.add([Message(role="user", content="A red kite.")])
    assert memory.search("kite")

    class Away:
        """A server of an index, which cannot say what it has."""

        away = True

        def clear(self, namespace: tuple[str, ...]) -> None:
            if self.away:
                raise SearchError("it cannot be reached")
            index.clear(namespace)

    server = Away()
    clock.advance(10)
    with pytest.raises(SearchError):
        Pruning(store, 5, clock=clock, indexes=[cast("Index", server)]).run()
    server.away = False
    assert Pruning(store, 5, clock=clock, indexes=[cast("Index", server)]).run().kinds == {"longterm": 1}
    assert index.search(("longterm", "", "", "s"), "kite", 1) == []


EXPIRED = [("longterm", "", "", "old"), ("longterm", "", "eve"), ("longterm", "t", "", "old")]


def begun(index: Any, clock: FakeClock) -> MemoryStore:
    """A store in which some memories have expired, beside what an index has of them and of others."""
    store = MemoryStore(clock=clock)
    scopes: list[dict[str, Any]] = [{"session": "old"}, {"user": "eve"}, {"tenant": "t", "session": "old"}]
    lasting: list[dict[str, Any]] = [{"session": "new"}, {"user": "ada"}]
    for scope in scopes:
        memory = LongTermMemory(store, index, ttl=5, **scope)
        memory.add([Message(role="user", content="A red kite.")])
        memory.flush()
    for scope in lasting:
        memory = LongTermMemory(store, index, **scope)
        memory.add([Message(role="user", content="A red kite.")])
        memory.flush()
    index.apply(("notes", "", "", "x"), upsert=[Document("1", "A red kite, which no store knows.")])
    clock.advance(6)
    return store


@pytest.mark.parametrize("kind", ["words", "keyed words", "vectors"])
def test_indexes_forget_what_has_expired(clock: FakeClock, tmp_path: Path, kind: str) -> None:
    made: dict[str, Callable[[], Any]] = {
        "words": lambda: LexicalIndex(tmp_path / "index.db"),
        "keyed words": lambda: KeyedLexicalIndex(tmp_path / "index.db", key=bytes(32)),
        "vectors": lambda: VectorIndex(SQLiteVectors(tmp_path / "index.db"), Embedder(word_vectors, name="words")),
    }
    index = made[kind]()
    store = begun(index, clock)
    before = index.namespaces()
    assert set(before) > set(EXPIRED)
    assert index.namespaces(("longterm", "t")) == [("longterm", "t", "", "old")]
    dry = Pruning(store, 30 * DAY, clock=clock, indexes=[index], dry_run=True).run()
    assert (dry.kinds, index.namespaces()) == ({"indexed": 3}, before)
    assert Pruning(store, 30 * DAY, clock=clock, indexes=[index], user="ada").run().kinds == {}
    assert Pruning(store, 30 * DAY, clock=clock, indexes=[index], tenant="t", user="").run().kinds == {"indexed": 1}
    assert Pruning(store, 30 * DAY, clock=clock, indexes=[index]).run().kinds == {"indexed": 2}
    assert set(index.namespaces()) == set(before) - set(EXPIRED)
    assert index.search(("notes", "", "", "x"), "kite", 1)
    assert index.search(("longterm", "", "ada"), "kite", 1)
    assert all(index.position(namespace) is None for namespace in EXPIRED)
    index.close()


def test_an_index_that_cannot_say_what_it_has_is_left_alone(clock: FakeClock) -> None:
    class Silent:
        def clear(self, namespace: tuple[str, ...]) -> None:
            raise AssertionError(namespace)

    store = begun(open_index("memory:"), clock)
    assert Pruning(store, 30 * DAY, clock=clock, indexes=[cast("Index", Silent())]).run().kinds == {}


def test_what_a_search_indexes_beside_a_pruning_is_forgotten(clock: FakeClock) -> None:
    store, index = MemoryStore(clock=clock), LexicalIndex(":memory:")
    memory = LongTermMemory(store, index, session="old", clock=clock)
    memory.add([Message(role="user", content="A red kite.")])
    clock.advance(40 * DAY)
    cleared: list[tuple[str, ...]] = []

    class Searched:
        """Is searched between two clearings, and cannot say what it has."""

        def clear(self, namespace: tuple[str, ...]) -> None:
            index.clear(namespace)
            if not cleared:
                assert memory.search("kite")
            cleared.append(namespace)

    assert Pruning(store, 30 * DAY, clock=clock, indexes=[cast("Index", Searched())]).run().kinds == {"longterm": 1}
    assert index.namespaces() == []
    index.close()


def test_a_memory_that_begins_again_beside_a_pruning_is_found(clock: FakeClock) -> None:
    index = LexicalIndex(":memory:")
    store = begun(index, clock)
    memory = LongTermMemory(store, index, user="eve")

    class Quick:
        """Where a memory begins anew after the store was asked for it."""

        def namespaces(self, prefix: tuple[str, ...]) -> list[tuple[str, ...]]:
            return index.namespaces(prefix)

        def clear(self, namespace: tuple[str, ...]) -> None:
            if namespace == ("longterm", "", "eve"):
                memory.add([Message(role="user", content="A blue kite.")])
                assert memory.search("blue")
            index.clear(namespace)

    assert Pruning(store, 30 * DAY, clock=clock, indexes=[cast("Index", Quick())]).run().kinds == {"indexed": 3}
    assert [found.text for found in memory.search("kite")] == ["A blue kite."]
    index.close()


def test_a_pool_goes_once_all_in_it_has_expired(store: Any, clock: FakeClock) -> None:
    index = open_index("memory:")

    def put(tag: str, *requests: str, ttl: float | None) -> ExperiencePool:
        pool = ExperiencePool(store, tag=tag, user="ada", ttl=ttl, index=index, clock=clock)
        for request in requests:
            pool.create(Experience(req=request, resp="Paris"))
        return pool

    gone = put("gone", "France", "the capital of France", ttl=5)
    assert gone.query("the capital", k=1)
    assert gone.delete("France")
    put("lasting", "France", ttl=5)
    put("lasting", "Italy", ttl=None)
    put("long", "France", ttl=90 * DAY)
    store.write(("experience", "", "ada", "damaged"), put={"a": b"{"}, append=[("a", b"")])
    clock.advance(20 * DAY)
    put("young", "France", ttl=5)
    clock.advance(20 * DAY)
    before = everything(store)
    assert Pruning(store, 30 * DAY, clock=clock, indexes=[index], dry_run=True).run().kinds == {"experience": 1}
    assert everything(store) == before
    assert Pruning(store, 30 * DAY, clock=clock, indexes=[index]).run().kinds == {"experience": 1}
    assert names(store) == {f"experience/ada/{tag}" for tag in ("damaged", "lasting", "long", "young")}
    assert index.search(("experience", "", "ada", "gone"), "capital", 1) == []
    assert Pruning(store, 15 * DAY, clock=clock, user="bob").run().kinds == {}
    assert Pruning(store, 15 * DAY, clock=clock, user="ada").run().kinds == {"experience": 1}


def test_what_serves_a_pool_goes_with_it(store: Any, clock: FakeClock) -> None:
    index = open_vectors("memory:", Embedder(word_vectors, name="words"))
    cache = ExperienceCache(store=store, ttl=5, semantic=SemanticMode(index=index), clock=clock)
    model = FakeListChatModel(responses=["In the shed."], cache=cache)
    model.invoke("Where is the red kite?")
    clock.advance(10)
    pools = ("experience", "", "", "langchain")
    assert len(list(store.namespaces(pools))) == 2
    Pruning(store, 60, clock=clock, indexes=[index]).run()
    assert len(list(store.namespaces(pools))) == 2
    assert Pruning(store, 5, clock=clock, indexes=[index]).run().kinds == {"experience": 1}
    assert list(store.namespaces(pools)) == index.namespaces(pools) == []


def test_an_encrypted_pool_goes_where_it_can_be_read(store: Any, clock: FakeClock) -> None:
    sealed = SealedStore(store, codec=AESGCMCodec({"1": bytes(32)}))
    ExperiencePool(sealed, tag="capitals", ttl=5, clock=clock).create(Experience(req="France", resp="Paris"))
    clock.advance(10)
    for other in (store, SealedStore(store, codec=AESGCMCodec({"2": bytes(32)}))):
        assert Pruning(other, 6, clock=clock).run().kinds == {}
    assert Pruning(sealed, 6, clock=clock).run().kinds == {"experience": 1}
    assert names(store) == set()


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), None])
def test_an_age_is_above_zero(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="older_than is a number of seconds above 0, not "):
        Pruning(MemoryStore(), wrong)


def test_pruning_beside_writers_loses_no_message(make: Callable[[str], Any], clock: FakeClock) -> None:
    """Each writer finds its session gone, or whole: never without what it was told is there."""
    store = make("busy")
    told: dict[int, list[str]] = {n: [] for n in range(4)}
    for n in told:
        store.append(("brain", "", "u", str(n)), [("first", b"")])
    clock.advance(100)
    stop = threading.Event()

    def write(n: int) -> None:
        number = 0
        while not stop.is_set() and number < 200:
            store.append(("brain", "", "u", str(n)), [(f"{number:04}", b"")])
            told[n].append(f"{number:04}")
            number += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in told]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            Pruning(store, 50, clock=clock).run()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for n, ids in told.items():
        assert [item.id for item in store.scan(("brain", "", "u", str(n))).items if item.id != "first"] == ids


# --- moving house -------------------------------------------------------------------------------------------


def fill(store: Any, clock: FakeClock) -> None:
    for n in range(4):
        brain = BrainMemory(store, f"s{n}", user="ada", ttl=1000.0 * (n + 1) if n % 2 else None, clock=clock)
        brain.add_messages([Message(role="user", content=f"note {n}", id=f"{n}-{m}") for m in range(n * 3)])
        brain.set_title(f"title {n}")
        clock.advance(7)
    store.append(("odd", "/:%\ud800\0", ""), [("é\0", b"\xff\0"), ("", b"")])
    store.write(("odd", "values"), put={"é": b"\0" * 100, "": b""}, ttl=5000)
    store.write(("odd", "empty"))
    WorkingMemory(store, ttl=None, clock=clock).store("c", {"k": 1})


@pytest.fixture
def target(make_target: Callable[[str], Any]) -> Any:
    return make_target("target")


async def test_all_is_moved(make: Callable[[str], Any], target: Any, clock: FakeClock) -> None:
    source = make("source")
    fill(source, clock)
    before = everything(source)
    clock.advance(50)
    visits: list[tuple[int, int | None]] = []
    migrated = Migration(source, target, progress=lambda *visit: visits.append(visit)).run()
    assert migrated == Migrated(namespaces=8, entries=18 + 2 + 1, copied=7, removed=0, differing=[])
    assert visits == 2 * [(n, 8) for n in range(1, 9)]  # once to copy, and once to compare
    assert everything(source).keys() == before.keys()
    assert everything(target) == everything(source)
    sessions = [info.session for info in Sessions(target, user="ada").list_sessions()]
    assert (
        sessions == [info.session for info in Sessions(source, user="ada").list_sessions()] == ["s3", "s2", "s1", "s0"]
    )
    again = await Migration(source, target).arun()
    assert (again.copied, again.differing) == (0, [])


def test_one_store_by_two_names_is_not_copied_onto_itself(
    tmp_path: Path, redis_server: RedisServer, key_prefix: str
) -> None:
    url = redis_server.url()
    memory = MemoryStore()
    same: list[tuple[Store, Store]] = [
        (memory, memory),
        (SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "a.db")),
        (RedisStore(url, prefix=key_prefix), RedisStore(url.replace("127.0.0.1", "localhost"), prefix=key_prefix)),
    ]
    for source, target in same:
        source.append(NS, [("a", b"1")])
        before = everything(source)
        with pytest.raises(ConfigurationError, match="into itself"):
            Migration(source, target).run()
        assert everything(source) == before
        assert [*source.namespaces()] == [NS]


def interrupted_at(number: int) -> Callable[[int, int | None], None]:
    """What breaks a migration off at the n-th namespace."""
    left = iter(range(1, number))

    def break_off(_done: int, _total: int | None) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    return break_off


class Failing:
    """A store that fails in the n-th of its writes, before or after it was made."""

    def __init__(self, store: Any, after: int, *, made: bool) -> None:
        self._store = store
        self._left = after
        self._made = made
        self.appended: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in {"append", "write", "set_dates", "clear"}:
            return method

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._made:
                raise KeyboardInterrupt
            result = method(*args, **kwargs)
            if name == "append":
                self.appended += [id_ for id_, _ in args[1]]
            if self._left == 0:
                raise KeyboardInterrupt
            return result

        return counted


def ends(store: Any, namespace: tuple[str, ...]) -> bool:
    dates = store.dates(namespace)
    return dates is not None and dates.expires_in is not None


@pytest.mark.parametrize("made", [False, True])
def test_an_interrupted_migration_goes_on(made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    monkeypatch.setattr(migration, "FIRST_PAGE_SIZE", 2)
    clock = FakeClock()
    source = MemoryStore(clock=clock)
    fill(source, clock)
    after = interrupted = 0
    while True:
        after += 1
        target = MemoryStore(clock=clock)
        failing: Any = Failing(target, after, made=made)
        try:
            Migration(source, failing).run()
        except KeyboardInterrupt:
            interrupted += 1
        else:
            break
        assert all(ends(target, name) for name in target.namespaces() if ends(source, name))
        rest: Any = Failing(target, 10_000, made=True)
        assert Migration(source, rest).run().differing == []
        assert everything(target) == everything(source)
        assert not set(failing.appended) & set(rest.appended)  # it went on, even in the middle of a log
    assert interrupted > 20


def interrupt(done: int, total: int | None) -> None:
    """Progress of a migration that is interrupted once everything is copied."""
    if done == total:
        raise KeyboardInterrupt


def test_a_copy_that_expires_just_before_it_is_added_to_is_made_anew(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.append(NS, [("a", b"1"), ("b", b"2")], ttl=10)
    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupt).run()
    source.append(NS, [("c", b"3")])
    append: Any = target.append

    def expire_first(namespace: tuple[str, ...], *args: Any, **options: Any) -> Any:
        if namespace == NS and ends(target, NS):
            clock.advance(11)
        return append(namespace, *args, **options)

    target.append = expire_first  # type: ignore[method-assign]
    assert Migration(source, target).run().differing == []
    assert everything(target) == everything(source)


def test_a_copy_that_expires_just_before_its_values_are_put_goes_as_the_source_has_lost_it(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.append(NS, [("a", b"1")], ttl=10)
    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupt).run()
    source.write(NS, put={"title": b"t"})
    write: Any = target.write

    def expire_first(namespace: tuple[str, ...], **options: Any) -> None:
        clock.advance(11 * (namespace == NS))
        write(namespace, **options)

    target.write = expire_first  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupt).run()
    assert target.get(NS) == {"title": b"t"}
    source.clear(NS)
    assert Migration(source, target).run().removed == 1
    assert not target.get(NS)


def test_a_copy_of_values_that_expires_just_before_entries_are_added_goes_as_the_source_has_lost_it(
    clock: FakeClock,
) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.write(NS, put={"title": b"t"}, ttl=10)
    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupt).run()
    source.append(NS, [("a", b"1")])
    append: Any = target.append

    def expire_first(namespace: tuple[str, ...], *args: Any, **options: Any) -> Any:
        clock.advance(11 * (namespace == NS))
        appended = append(namespace, *args, **options)
        source.clear(NS)
        return appended

    target.append = expire_first  # type: ignore[method-assign]
    assert Migration(source, target).run().removed == 1
    assert not ends(target, NS)


@pytest.mark.parametrize("filled_by", [{"put": {"title": b"t"}}, {}])
def test_a_copy_that_has_expired_in_both_stores_does_not_count_as_removed(
    filled_by: dict[str, Any], clock: FakeClock
) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.write(NS, **filled_by, ttl=10)
    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupt).run()
    clock.advance(11)
    assert Migration(source, target).run().removed == 0


def test_what_has_grown_since_it_was_copied_is_added_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE_SIZE", 2)
    monkeypatch.setattr(migration, "FIRST_PAGE_SIZE", 2)
    source, target = MemoryStore(), MemoryStore()
    log = [(id_, b"data") for id_ in "abcdefg"]
    source.append(NS, log)
    target.append(NS, log[:3])  # which is no whole number of pages
    watched: Any = Failing(target, 10_000, made=True)
    assert Migration(source, watched).run().differing == []
    assert watched.appended == ["d", "e", "f", "g"]


class Read(MemoryStore):
    """Notes how many entries each read of a log gave."""

    def __init__(self) -> None:
        super().__init__()
        self.page_sizes: list[int] = []

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        page = super().scan(*args, **kwargs)
        self.page_sizes += [len(page.items)] if page.items else []
        return page


def test_a_source_is_read_once_to_copy_and_once_to_compare() -> None:
    source = Read()
    source.append(NS, [(str(n), b"data") for n in range(700)])
    assert Migration(source, MemoryStore()).run().entries == 700
    assert sum(source.page_sizes) == 2 * 700


def test_a_short_log_is_one_page_where_no_other_is_in_memory_meanwhile() -> None:
    source = Read()
    source.append(NS, [(str(n), b"data") for n in range(19)])
    assert Migration(source, MemoryStore()).run().copied == 1
    assert source.page_sizes == 2 * [19]


@pytest.mark.parametrize("when", range(1, 7))
def test_what_is_deleted_while_a_migration_goes_through_stays_in_neither(any_store: Store, when: int) -> None:
    target = MemoryStore()
    brains = [BrainMemory(any_store, session, user="ada") for session in ("a", "b", "c")]
    for brain in brains:
        brain.add_talk("My pin is 4711.")
    looks = itertools.count(1)

    def delete(_done: int, _total: int | None) -> None:
        if next(looks) == when:  # in the first pass, or as both are compared
            brains[0].clear()
            brains[1].clear()

    assert Migration(any_store, target, progress=delete).run().differing == []
    assert {namespace[-1] for namespace in target.namespaces()} == {"c"}


def test_an_empty_session_that_was_copied_before_an_interrupt_goes_as_the_source_has_lost_it(any_store: Store) -> None:
    target = MemoryStore()
    any_store.append(NS, [("a", b"1")])
    any_store.write(NS, remove=any_store.scan(NS).items)
    others = ("brain", "t", "u", "others")
    target.write(others)  # just as empty
    any_store.write(others)
    with pytest.raises(KeyboardInterrupt):
        Migration(any_store, target, progress=interrupt).run()
    assert NS in set(target.namespaces())
    any_store.clear(NS)
    any_store.clear(others)
    assert Migration(any_store, target).run().removed == 1
    assert list(target.namespaces()) == [others]


def test_what_the_target_holds_of_others_stays(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    fill(source, clock)
    target.append(("brain", "", "bo", "own"), [("x", b"1")])
    source.write(("migration", "from an older one"), put={"x": b"1"})
    assert Migration(source, target).run().differing == []
    assert not target.get(("migration", "from an older one"))  # what tells of its target tells of no other
    again: Any = Failing(target, 10_000, made=True)
    assert Migration(source, again).run().copied == 0
    assert again._left == 9_997  # nothing is written, but the probe, which goes as the journal does
    assert [item.id for item in target.scan(("brain", "", "bo", "own")).items] == ["x"]


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.append(NS, [("z", b"other")]),
        lambda store: store.write(NS, put={"title": b"other"}),
        lambda store: store.append(NS, [("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4")]),
        lambda store: store.append(NS, [("a", b"changed")]),
        lambda store: store.append(NS, [("a1", b"")]),  # the same bytes, cut elsewhere
        lambda store: store.append(NS, [("a", b"1"), ("b", b"2"), ("c", b"3"), ("title", b"t")]),  # with no value
    ],
)
def test_another_namespace_of_the_same_name_is_never_overwritten(
    change: Callable[[Any], Any], clock: FakeClock
) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.append(NS, [("a", b"1"), ("b", b"2"), ("c", b"3")])
    source.write(NS, put={"title": b"t"})
    change(target)
    before = everything(target)
    with pytest.raises(ConfigurationError, match="holds something else under 'brain/t/u/s'"):
        Migration(source, target).run()
    assert everything(target) == before


def test_what_changes_between_two_runs_is_carried_over(make: Callable[[str], Any], clock: FakeClock) -> None:
    source, target = make("source"), make("target")
    fill(source, clock)
    brain = BrainMemory(source, "s3", user="ada", ttl=9000, clock=clock)

    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupted_at(8)).run()
    brain.clear()
    brain.add_talk("Anew.")
    Sessions(source, user="ada").delete_session("s1")
    BrainMemory(source, "s2", user="ada", clock=clock).set_title("changed")
    clock.advance(5)
    migrated = Migration(source, target).run()
    assert (migrated.removed, migrated.differing) == (1, [])
    assert everything(target) == everything(source)


class Changing:
    """A store in which something is written just before the n-th read of a log."""

    def __init__(self, store: Any, reads: int, change: Callable[[Any], Any]) -> None:
        self._store = store
        self._left = reads
        self._change = change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def scan(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if not self._left:
            self._change(self._store)
        return self._store.scan(*args, **kwargs)


def test_what_was_written_while_it_was_copied_may_be_replaced_later(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.append(NS, [("a", b"1")])
    changing: Any = Changing(source, 2, lambda store: store.append(NS, [("b", b"2")]))

    with pytest.raises(KeyboardInterrupt):
        Migration(changing, target, progress=interrupted_at(1)).run()
    assert [item.id for item in target.scan(NS).items] == ["a", "b"]
    source.write(NS, remove=source.scan(NS).items[:1])
    assert Migration(source, target).run().differing == []
    assert everything(target) == everything(source)


def test_what_the_source_has_lost_stays_if_somebody_writes_to_it_in_the_target(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    for name in ("own", "gone"):
        source.append(("brain", name), [("a", b"1")])

    with pytest.raises(KeyboardInterrupt):
        Migration(source, target, progress=interrupted_at(2)).run()
    target.append(("brain", "own"), [("b", b"2")])
    source.clear(("brain", "own"))
    source.clear(("brain", "gone"))
    assert Migration(source, target).run().removed == 1
    assert set(target.namespaces()) == {("brain", "own")}


def test_a_writer_that_never_stops_is_named(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.append(NS, [("0", b"")])
    numbers = iter(range(1, 1000))

    def busy(_done: int, _total: int | None) -> None:
        source.append(NS, [(str(next(numbers)), b"")])

    migrated = Migration(source, target, progress=busy).run()
    assert migrated.differing == [NS]
    assert next(numbers) < 10
    assert Migration(source, target).run().differing == []
    assert everything(target) == everything(source)


def test_an_expiry_that_moved_is_carried_over(clock: FakeClock) -> None:
    source, target = MemoryStore(clock=clock), MemoryStore(clock=clock)
    source.append(NS, [("a", b"")], ttl=100)
    Migration(source, target).run()
    for left in (200.0, None, 50.0):
        source.set_dates(NS, Dates(clock() - 7, left))
        Migration(source, target).run()
        assert target.dates(NS) == source.dates(NS)


@given(
    st.dictionaries(
        st.tuples(st.text(max_size=3), st.text(max_size=3)),
        st.tuples(
            st.dictionaries(st.text(max_size=3), st.binary(max_size=5), max_size=6),
            st.dictionaries(st.text(max_size=3), st.binary(max_size=5), max_size=3),
            st.none() | st.integers(10, 10_000),
        ),
        max_size=5,
    )
)
def test_any_content_is_moved(content: dict[Any, Any]) -> None:
    clock = FakeClock()
    source, target = MemoryStore(clock=clock), SQLiteStore(":memory:", clock=clock)
    for namespace, (log, values, ttl) in content.items():
        source.write(namespace, put=values, append=list(log.items()), ttl=ttl)
        clock.advance(1)
    assert Migration(source, target).run().differing == []
    assert everything(target) == everything(source)
    target.close()


# --- examinations -------------------------------------------------------------------------------------------


async def test_nothing_is_wrong(store: Any) -> None:
    BrainMemory(store, "s", ttl=100).add_talk("Hello.")
    found = Checkup(store, ttl=100).examine()
    assert len(found) == len(await Checkup(store, ttl=100).aexamine()) >= 4
    assert {finding.level for finding in found if finding.subject != "server"} == {"ok"}
    assert said(found, "rights") == ["ok: reading, writing, listing and removing are allowed"]
    assert said(found, "entries") == ["ok: 1 were checked"]
    assert said(found, "expiry") == ["ok: all 1 sessions expire"]
    assert set(store.namespaces()) == {("brain", "", "", "s")}
    assert store.recent(("checkup",)) == []


def test_sessions_without_expiry(store: Any) -> None:
    BrainMemory(store, "s").add_talk("Hello.")
    BrainMemory(store, "t", ttl=100).add_talk("Hello.")
    assert said(Checkup(store, ttl=100).examine(), "expiry") == [
        "problem: 1 of 2 sessions have no expiry, though a ttl is set"
    ]
    assert said(Checkup(store).examine(), "expiry") == []


def test_damaged_rows(store: Any) -> None:
    BrainMemory(store, "s", user="ada").add_talk("Hello.")
    store.append(("brain", "", "ada", "s"), [("x", b'{"v": 1, "role"'), ("y", b'{"v": 1, "rule": 2}')])
    store.append(("working", "", "", "tag", "SHORT_TERM"), [("x", b"[")])
    store.append(("nodes", "", "x"), [("x", b"\0 of somebody else")])
    assert said(Checkup(store).examine(), "entries") == [
        "problem: 3 of 4 entries cannot be read, the first in brain//ada/s"
    ]


def test_experiences_are_values_whose_entries_are_empty(store: Any) -> None:
    pool = ExperiencePool(store)
    for n in range(3):
        pool.create(Experience(req=f"question {n}", resp="answer"))
    assert said(Checkup(store).examine(), "entries") == ["ok: 3 were checked"]
    (place,) = store.namespaces(("experience",))
    first, second, _ = (item.id for item in store.scan(place).items)
    store.write(place, put={first: b'{"v": 1, "req'}, delete=[second])
    (line,) = said(Checkup(store).examine(), "entries")
    assert line.startswith("problem: 1 of 2 entries cannot be read")


@pytest.mark.parametrize("damage", [b'{"v":1,"', b'{"v":"1"}'])
def test_damaged_values_are_counted(damage: bytes) -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s")
    brain.add_talk("Hello.")
    brain.add_knowledge(["The kite is red."])
    brain.set_summary("A talk about kites.")
    brain.set_title("Kites")
    LongTermMemory(store, open_index("memory:"), user="ada").add([Message(role="user", content="A red kite.")])
    ExperiencePool(store).create(Experience(req="question", resp="answer"))
    WorkingMemory(store).store("talk", {"goal": "a kite"})
    store.write(("brain", "", "", "s"), put={"created": b"1.5", "archived": b"2"})  # numbers look like what is sealed
    assert said(Checkup(store).examine(), "entries") == ["ok: 8 were checked"]  # two in the long-term memory
    damaged = 0
    for namespace in store.namespaces():
        for key, data in store.get(namespace).items():
            if data[:1] in b'{["':
                store.write(namespace, put={key: damage})
                damaged += 1
                (line,) = said(Checkup(store).examine(), "entries")
                assert line.startswith(f"problem: {damaged} of 8 entries cannot be read, the first in ")
    assert damaged == 5
    (entry,) = store.scan(("working", "", "", "talk", "SHORT_TERM")).items
    store.write(("working", "", "", "talk", "SHORT_TERM"), remove=[entry], append=[("x", damage)])
    (line,) = said(Checkup(store).examine(), "entries")
    assert line.startswith("problem: 6 of 8 entries")


def test_damaged_items_of_a_graph_are_counted() -> None:
    store = MemoryStore()
    LongTermStore(store=store).put(("notes",), "a", {"text": "A red kite."})
    (place,) = store.namespaces(("langgraph", "", "items"))
    store.write(place, put={"a/": b'{"v":1,"'})
    (line,) = said(Checkup(store).examine(), "entries")
    assert line == "problem: 1 of 2 entries cannot be read, the first in langgraph//items/notes"


def test_what_a_newer_version_wrote_is_not_called_damaged() -> None:
    store = MemoryStore()
    BrainMemory(store, "s").add_talk("Hello.")
    store.append(("brain", "", "", "s"), [("x", b'{"v":2}')])
    (finding,) = (each for each in Checkup(store).examine() if each.subject == "entries")
    assert (finding.level, finding.message) == ("problem", "1 of 2 entries were written by a newer version")
    assert "upgrade" in finding.remedy


def test_an_encrypted_store_with_memories_is_sound() -> None:
    store = SealedStore(MemoryStore(), codec=AESGCMCodec({"1": bytes(32)}))
    LongTermMemory(store, open_index("memory:"), user="ada").add([Message(role="user", content="A red kite.")])
    BrainMemory(store, "s").set_title("Kites")
    findings = Checkup(store).examine()
    assert said(findings, "entries") == ["ok: 2 were checked, all encrypted"]
    assert {(each.level, each.subject == "index") for each in findings} == {("ok", False)}  # there is none


def test_what_a_codec_has_sealed_is_not_called_damaged(store: Any) -> None:
    store.append(("brain", "", "", "s"), [("x", b"\1sealed"), ("y", b"")])
    store.write(("brain", "", "", "s"), remove=store.scan(("brain", "", "", "s")).items[1:])
    assert said(Checkup(store).examine(), "entries") == ["ok: 1 were checked, all encrypted"]
    BrainMemory(store, "t").add_talk("Hello.")
    assert said(Checkup(store).examine(), "entries") == ["note: 1 of 2 entries are encrypted or damaged"]


def test_an_index_that_fails_is_a_finding() -> None:
    class Failing(LexicalIndex):
        def position(self, _: object) -> Any:
            raise SearchError("the index is away")

    store = MemoryStore()
    store.append(("longterm", "", "ada"), [("a", b"[]")])
    assert said(Checkup(store, index=Failing(":memory:")).examine(), "follows") == ["problem: the index is away"]


def test_an_embedder_that_fails_in_an_examination_is_a_finding(tmp_path: Path) -> None:
    store, folder = MemoryStore(), SQLiteVectors(tmp_path / "vectors.db")
    vectors = VectorIndex(folder, Embedder(word_vectors, name="words"))
    memory = LongTermMemory(store, open_index("memory:"), vectors=vectors, user="ada")
    memory.add([Message(role="user", content="A red kite.")])
    memory.flush()

    def refuse(_: object) -> list[list[float]]:
        raise ConnectionError("the model is away")

    other = VectorIndex(folder, Embedder(refuse, name="words"))  # asked for its dimension
    findings = said(Checkup(store, index=other).examine(), "follows")
    assert findings == ["problem: the embedder words failed: ConnectionError"]


def test_an_index_behind_its_store(store: Any) -> None:
    index = open_index("memory:")
    memory = LongTermMemory(store, index, user="ada")
    memory.add([Message(role="user", content="A red kite.")])
    (line,) = said(Checkup(store, index=index).examine(), "index")
    assert line.startswith("note: it is 1 entries behind")
    memory.search("kite")
    assert said(Checkup(store, index=index).examine(), "index") == ["ok: it is up to date"]
    LongTermMemory(store, open_index("memory:"), user="ada").add([Message(role="user", content="A blue whale.")])
    (line,) = said(Checkup(store, index=index).examine(), "index")
    assert line == "note: it is 1 entries behind the store, in 1 memories"


def test_an_index_without_the_key_is_not_behind_an_encrypted_store() -> None:
    store, index = MemoryStore(), open_index("memory:")
    sealed = SealedStore(store, codec=AESGCMCodec({"1": bytes(32)}))
    own = KeyedLexicalIndex(":memory:", key=bytes(32))
    memory = LongTermMemory(sealed, own, user="ada")
    memory.add([Message(role="user", content="A red kite.")])
    memory.search("kite")
    assert said(Checkup(store, index=index).examine(), "index") == ["ok: it is up to date"]
    memory.add([Message(role="user", content="A blue whale.")])
    (line,) = said(Checkup(store, index=own).examine(), "index")
    assert line == "note: it is 1 entries behind the store, in 1 memories"


def test_a_store_out_of_reach_is_one_finding() -> None:
    (finding,) = Checkup(RedisStore("redis://:S3cret@127.0.0.1:1", retry_for=0)).examine()
    assert (finding.level, finding.subject) == ("problem", "connection")
    assert "cannot be reached" in finding.message
    assert "S3cret" not in str(finding)


def test_missing_rights_are_a_finding(redis_server: RedisServer, key_prefix: str) -> None:
    with redis.Redis.from_url(redis_server.url()) as raw:
        raw.execute_command("ACL", "SETUSER", "reader", "on", ">pw", f"~{key_prefix}*", "+@read", "+@connection")
        store = RedisStore(redis_server.url().replace("//", "//reader:pw@"), prefix=key_prefix)
        (line,) = said(Checkup(store).examine(), "rights")
        assert line.startswith("problem: Redis at")
        assert "grant +@read +@write" in line
        raw.execute_command("ACL", "DELUSER", "reader")
    store.close()


_UNTRIED = {"ping", "select", "smembers", "zmscore"}  # the first two are for connecting, these for repairs and dates


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in _UNTRIED])
def test_one_right_that_is_missing_is_a_finding_too(redis_server: RedisServer, key_prefix: str, command: str) -> None:
    others = [f"+{name}" for name in COMMANDS if name != command]
    with redis.Redis.from_url(redis_server.url()) as raw:
        raw.execute_command("ACL", "SETUSER", "most", "reset", "on", ">pw", f"~{key_prefix}*", *others)
        store = RedisStore(redis_server.url().replace("//", "//most:pw@"), prefix=key_prefix)
        (line,) = said(Checkup(store).examine(), "rights")
        assert line.startswith("problem: Redis at")
        raw.execute_command("ACL", "DELUSER", "most")
    store.close()


def test_a_server_is_examined(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    store = RedisStore(server.url())
    with redis.Redis.from_url(server.url()) as raw:
        found = list(store.examine())
        assert "problem: nothing is kept on disk: a restart loses everything" in said(found, "server")
        assert "ok: nothing is evicted" in said(found, "server")
        assert any(line.startswith("ok: version ") for line in said(found, "server"))
        assert any("without a limit" in line for line in said(found, "server"))
        raw.config_set("save", "60 1")
        raw.config_set("maxmemory-policy", "allkeys-lru")
        raw.config_set("maxmemory", "1gb")
        lines = said(list(store.examine()), "server")
        assert "note: only snapshots are kept: a crash loses what was written since the last" in lines
        assert "problem: maxmemory-policy allkeys-lru may remove any conversation when memory is short" in lines
        assert any(line.startswith("ok:") and line.endswith("of 1,073,741,824") for line in lines)
        assert store.stats().limit == 1 << 30
        raw.config_set("appendonly", "yes")
        raw.config_set("maxmemory-policy", "volatile-ttl")
        used: Any = raw.info("memory")["used_memory"]
        raw.config_set("maxmemory", int(used * 1.05))
        lines = said(list(store.examine()), "server")
        assert "ok: an append-only file is kept" in lines
        assert any(line.startswith("note: maxmemory-policy volatile-ttl") for line in lines)
        assert any(line.startswith("problem:") and line.endswith("bytes are used") for line in lines)
    server.kill()
    (finding,) = store.examine()
    assert (finding.level, "cannot be reached" in finding.message) == ("problem", True)
    store.close()


def test_a_server_that_does_not_tell_of_snapshots_is_not_said_to_make_any(
    start_redis: Callable[..., RedisServer],
) -> None:
    with contextlib.closing(RedisStore(start_redis("--rename-command", "CONFIG", "").url())) as store:
        found = next(finding for finding in store.examine() if "append-only" in finding.message)
    assert (found.level, "nor are snapshots reported" in found.message) == ("note", True)


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (b"", ["note: INFO says nothing of redis_version, maxmemory_policy, used_memory, aof_enabled: that was not"]),
        (
            b"redis_version:7.1.0\r\nused_memory:5000\r\naof_enabled:1\r\n",
            [
                *("ok: version 7.1.0", "ok: 5,000 bytes are used, without a limit", "ok: an append-only file is kept"),
                "note: INFO says nothing of maxmemory_policy: that was not",
            ],
        ),
        (
            (
                b"cluster_enabled:1\r\nredis_version:7.1.0\r\nmaxmemory_policy:noeviction\r\nused_memory:950\r\n"
                b"maxmemory:1000\r\naof_enabled:1\r\nrdb_last_bgsave_status:err\r\naof_last_write_status:err\r\n"
            ),
            [
                *("problem: it is a node of a cluster: writes fail", "ok: version 7.1.0", "ok: nothing is evicted"),
                "problem: 950 of 1,000 bytes are used",
                *(f"problem: the last write of the {file} failed" for file in ("snapshot", "append-only file")),
                "ok: an append-only file is kept",
            ],
        ),
    ],
)
def test_a_service_is_examined_as_far_as_it_tells(info: bytes, found: list[str]) -> None:
    def handle(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            greetings = data.count(b"SETINFO")
            connection.sendall(b"+OK\r\n" * greetings + (b"$%d\r\n%b\r\n" % (len(info), info)) * (not greetings))

    with listening(handle) as port, contextlib.closing(RedisStore(f"redis://127.0.0.1:{port}")) as store:
        assert [line.partition(" looked at")[0] for line in said(list(store.examine()), "server")] == found


@pytest.mark.parametrize(
    ("info", "size", "limit"),
    [(b"used_memory:5000\r\n", 5000, None), (b"maxmemory:9000\r\n", None, 9000), (b"", None, None)],
)
def test_the_memory_of_a_service_is_told_as_far_as_it_tells(info: bytes, size: int | None, limit: int | None) -> None:
    def handle(connection: socket.socket) -> None:
        while data := connection.recv(65536):
            reply = b"*2\r\n$1\r\n0\r\n*0\r\n" if b"SCAN" in data else b"$%d\r\n%b\r\n" % (len(info), info)
            connection.sendall(b"+OK\r\n" * data.count(b"SETINFO") or reply)

    with listening(handle) as port, contextlib.closing(RedisStore(f"redis://127.0.0.1:{port}")) as store:
        stats = store.stats()
    assert (stats.keys, stats.size, stats.limit) == (0, size, limit)


@pytest.mark.parametrize(("version", "level"), [("6.0.16", "problem"), ("6.2.0", "ok"), ("10.0.1", "ok")])
def test_the_oldest_version(version: str, level: str) -> None:
    from langmem_adapters.stores.redis_report import _version_finding  # noqa: PLC0415

    assert _version_finding("server", {"redis_version": version}).level == level


def test_a_damaged_file_is_a_finding(tmp_path: Path) -> None:
    file = tmp_path / "one.db"
    store = SQLiteStore(file)
    for n in range(300):
        store.append(("brain", "", "", str(n)), [(str(m), b'{"v":1,"role":"user"}' * 20) for m in range(10)])
    assert said(list(store.examine()), "file") == ["ok: its structure is sound"]
    assert said(list(store.examine()), "disk")[0].startswith("ok: ")
    store.close()
    with sqlite3.connect(file) as raw:
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    raw.close()
    data = bytearray(file.read_bytes())
    data[8192 * 20 : 8192 * 21] = b"\x55" * 8192
    file.write_bytes(data)
    found = list(store.examine())
    (line,) = [line for line in said(found, "file") if line.startswith("problem")]
    assert "it is damaged: " in line
    store.close()


def test_empty_space_and_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "one.db")
    store.append(NS, [(str(n), b"x" * 10_000) for n in range(100)])
    store.clear(NS)
    (note,) = [line for line in said(list(store.examine()), "file") if line.startswith("note")]
    assert note.endswith("of it is empty")
    store.vacuum()
    assert said(list(store.examine()), "file") == ["ok: its structure is sound"]
    assert sqlite_report._disk_space(tmp_path, 1 << 60).level == "note"
    monkeypatch.setattr(sqlite_report, "_MIN_FREE_BYTES", 1 << 60)
    assert sqlite_report._disk_space(tmp_path, 1 << 60).level == "problem"
    monkeypatch.setattr(sqlite_report, "_MAX_WAL_BYTES", -1)
    store.append(NS, [("a", b"")])
    assert any("write-ahead log" in line for line in said(list(store.examine()), "file"))
    store.close()


# --- the guide ----------------------------------------------------------------------------------------------

GUIDE = (Path(__file__).parent.parent / "docs" / "operate.md").read_text(encoding="utf-8")


def test_the_guides_rights_are_those_that_are_tested() -> None:
    (line,) = [line for line in GUIDE.splitlines() if line.startswith("ACL SETUSER")]
    assert line.split()[6:] == [f"+{command}" for command in COMMANDS]
    extra = [f"+{command}" for command in CLUSTER_COMMANDS[len(COMMANDS) :]]
    assert f"add `{' '.join(extra)}`, on every node" in GUIDE


def test_every_sentence_of_a_server_is_in_the_guide() -> None:
    told = [row.split("|")[1].strip(" `") for row in GUIDE.partition("## Troubleshooting")[2].splitlines()[6:]]
    sentences = {sentence for *_, sentence in redis_errors._SENTENCES if sentence != "failed"}
    assert [sentence for sentence in sentences if not any(words in sentence for words in told)] == []
    code = "".join(path.read_text() for path in (Path(__file__).parent.parent / "langmem_adapters").rglob("*.py"))
    joined = re.sub(r'"\s+f?"', "", code)  # sentences go over several lines
    others = ("[redis]", "malformed", "disk I/O error", "5 s")  # said by pip and SQLite, or with a figure
    own = [words for words in told if not any(other in words for other in others)]
    assert [words for words in own if words not in joined] == []


def test_sizes_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "time", SimpleNamespace(sleep=lambda _: None))  # for which a file needs no rest
    sizes.measure(open_store(f"sqlite:///{tmp_path}/sizes.db"), shapes=((2, 200),))
    figures = [int(line.split()[-3].replace(",", "")) for line in capsys.readouterr().out.splitlines()]
    assert len(figures) == 3
    assert 700 < figures[1] < 2000
    store = MemoryStore()
    store.write(NS)
    with pytest.raises(ConfigurationError, match="is not empty"):
        sizes.measure(store)
