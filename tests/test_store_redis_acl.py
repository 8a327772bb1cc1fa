"""The least rights: a user with the commands of the list, and no other, can use all of the library; and needs all."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import redis

from langmem_adapters import BrainMemory, LongTermMemory, Message, Sessions, WorkingMemory, open_index
from langmem_adapters.errors import StoreError, StoreUnavailable
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.flow import gather, run, step
from langmem_adapters.inspection import Dates
from langmem_adapters.model import Experience
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.benchmarks.round_trips import RoundTrips
from tests.servers import CLUSTER_COMMANDS, COMMANDS, RedisServer, redis_cluster
from tests.waiting import until

NS = ("brain", "t", "u", "s")
NAME = "who-asks-for-the-cluster"
DB = 3


KINDS = ("@read", "@write", "@connection", "@transaction")  # as the error says, for whom each command is too much


def grant(server: RedisServer, prefix: str, commands: tuple[str, ...]) -> str:
    """Make a user who may send these commands, on the keys of the prefix; gives name and password."""
    name, password = f"u-{uuid.uuid4().hex}", uuid.uuid4().hex
    rights = [command if command.startswith("-") else f"+{command}" for command in commands]
    with redis.Redis(port=server.port) as raw:
        raw.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", f"~{prefix}*", *rights)
    return f"{name}:{password}"


@pytest.fixture
def store(any_redis_server: RedisServer, key_prefix: str, clock: FakeClock) -> Iterator[RedisStore]:
    login = grant(any_redis_server, key_prefix, COMMANDS)
    store = RedisStore(any_redis_server.url(DB).replace("//", f"//{login}@"), prefix=key_prefix, clock=clock)
    yield store
    store.close()


def test_the_services_as_a_user_with_the_least_rights(store: RedisStore, clock: FakeClock) -> None:
    brain = BrainMemory(store, "s", user="ada", ttl=100, clock=clock)
    brain.add_messages([Message(role="user", content=f"note {n}", id=str(n)) for n in range(5)])
    brain.set_summary("Notes.")
    brain.set_title("notes")
    assert [info.title for info in Sessions(store, user="ada").list_sessions()] == ["notes"]
    assert [message.content for message in brain.messages(2)] == ["note 3", "note 4"]
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    assert [found.text for found in memory.search("bike")] == ["My bike is in the shed."]
    pool = ExperiencePool(store, tag="capitals", ttl=50)
    pool.create(Experience(req="France", resp="Paris"))
    assert pool.count() == 1
    working = WorkingMemory(store, user="ada")
    working.update("c", lambda n: (n or 0) + 1)
    assert [item.data for item in working.retrieve("c")] == [1]
    assert Sessions(store, user="ada").delete_session("s")
    assert store.health().ok
    stats = store.stats()
    assert (stats.size, stats.limit) == (None, None)  # INFO is not among them
    assert {"longterm", "working", "experience"} <= set(stats.kinds)
    assert [finding.level for finding in store.examine()] == ["note"]


def walk(store: RedisStore, raw: redis.Redis) -> None:
    """Do whatever makes the store send a command of its own."""
    place = store._keys.for_namespace(NS)
    assert store.health().ok
    store.append(NS, [("a", b"1")], ttl=100)
    store.append(NS, [("a", b"1"), ("b", b"2")], ttl=1000)
    store.append((*NS[:-1], "other"), [("a", b"")], ttl=10_000)
    page = store.scan(NS, keys=["k"])
    store.scan(NS, limit=1, reverse=True)
    store.write(NS, put={"k": b"v"}, remove=page.items[:1], guard={"k": None})
    store.write(NS, delete=["k"])
    with pytest.raises(StoreError, match="was changed by another"):
        store.write(NS, put={"k": b"v"}, guard={"k": b"w"})
    store.write(("lasting",), put={"k": b"v"})
    raw.xadd(place.log, {"i": "b", "d": "again"})
    assert [item.id for item in store.scan(NS).items] == ["b"]
    raw.srem(place.ids, "b")
    assert store.scan(NS).total == 1
    raw.sadd(place.ids, "c")
    assert store.scan(NS).total == 1
    raw.delete(*store._keys.for_namespace((*NS[:-1], "other"))[:3])
    assert len(store.recent(NS[:-1])) == 1
    assert len(list(store.namespaces())) == 2
    assert store.get(NS) == {}
    assert store.stats().kinds["brain"].entries == 1
    store.set_dates(NS, Dates(5.0, 60.0))
    dates = store.dates(NS)
    assert dates
    assert dates.updated_at == 5.0
    assert store.discard(NS, 6.0)
    store.clear(("lasting",))


def test_the_kinds_that_the_error_names_let_nobody_remove_what_is_of_others(
    any_redis_server: RedisServer, key_prefix: str
) -> None:
    def login(*commands: str) -> str:
        return any_redis_server.url().replace("//", f"//{grant(any_redis_server, key_prefix, commands)}@")

    with closing(RedisStore(login("ping"), prefix=key_prefix)) as nobody, pytest.raises(StoreError) as refused:
        nobody.get(NS)
    named = [kind.removeprefix("+") for kind in re.findall(r"[+-]@\w+", str(refused.value))]
    url = login(*named)
    with closing(RedisStore(url, prefix=key_prefix)) as store, redis.Redis.from_url(url) as raw:
        assert store.append(NS, [("a", b"1")]).total == 1
        for command in ("FLUSHALL", "FLUSHDB"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                raw.execute_command(command)


@pytest.mark.parametrize(
    ("granted", "db"),
    [(COMMANDS, DB), ((*KINDS, "-@dangerous", "-@scripting"), 0)],  # "select" was of another kind before Redis 7
    ids=["commands", "kinds"],
)
def test_the_list_is_all_that_is_needed_and_so_are_the_kinds_that_the_error_names(
    any_redis_server: RedisServer, key_prefix: str, granted: tuple[str, ...], db: int
) -> None:
    login = grant(any_redis_server, key_prefix, granted)
    store = RedisStore(any_redis_server.url(db).replace("//", f"//{login}@"), prefix=key_prefix, retry_for=0)
    with redis.Redis.from_url(any_redis_server.url(db)) as raw:
        walk(store, raw)
    store.close()


@pytest.mark.parametrize("missing", COMMANDS)
def test_every_command_of_the_list_is_needed(redis_server: RedisServer, key_prefix: str, missing: str) -> None:
    login = grant(redis_server, key_prefix, tuple(command for command in COMMANDS if command != missing))
    store = RedisStore(redis_server.url(DB).replace("//", f"//{login}@"), prefix=key_prefix, retry_for=0)
    with redis.Redis.from_url(redis_server.url(DB)) as raw, pytest.raises((StoreError, AssertionError)) as caught:
        walk(store, raw)
    said = store.health().problem if missing in {"ping", "select"} else str(caught.value)
    assert missing.partition("|")[0] in said.lower()
    assert "no permissions" in said
    store.close()


@pytest.mark.parametrize("missing", ["multi", "exec", "watch", "unwatch"])
def test_a_command_that_is_granted_later_finds_no_transaction_half_made(
    any_redis_server: RedisServer, key_prefix: str, missing: str
) -> None:
    login = grant(any_redis_server, key_prefix, tuple(command for command in COMMANDS if command != missing))
    store = RedisStore(any_redis_server.url(DB).replace("//", f"//{login}@"), prefix=key_prefix)
    with pytest.raises(StoreError, match="no permissions"):
        store.write(NS, put={"k": b"v"}, guard={"k": None if missing != "unwatch" else b"w"})
    with redis.Redis(port=any_redis_server.port) as raw:
        raw.execute_command("ACL", "SETUSER", login.partition(":")[0], f"+{missing}")
    assert store.append((*NS[:-1], "other"), [("a", b"1")], keys=["k"]) == ([True], 1, {})
    store.close()


WRITES = pytest.mark.parametrize("guard", [None, {"k": None}], ids=["", "guarded"])
LENT = pytest.mark.parametrize("lent", [False, True], ids=["", "lent"])


def write_is_refused(store: RedisStore, why: str, guard: dict[str, None] | None) -> None:
    for _ in range(2):
        with pytest.raises(StoreError, match=why):
            store.write(NS, append=[("a", b"1")], put={"k": b"v"}, guard=guard)


@WRITES
@LENT
@pytest.mark.parametrize("missing", [("multi",), ("multi", "sadd")], ids="+".join)
def test_without_transactions_nothing_is_half_made(
    any_redis_server: RedisServer, key_prefix: str, missing: tuple[str, ...], lent: bool, guard: dict[str, None] | None
) -> None:
    login = grant(any_redis_server, key_prefix, tuple(command for command in COMMANDS if command not in missing))
    url = any_redis_server.url().replace("//", f"//{login}@")
    with (
        redis.Redis(port=any_redis_server.port) as raw,
        redis.Redis.from_url(url) as client,
        closing(RedisStore(client if lent else url, prefix=key_prefix)) as store,
    ):
        write_is_refused(store, "forbids this to the user", guard)
        with pytest.raises(StoreError, match="forbids this to the user"):
            run(gather(step(store.append, (*NS, name), [("a", b"")]) for name in "ab"))
        assert not raw.keys(f"{key_prefix}*")


def test_a_discard_that_is_refused_removes_nothing(redis_server: RedisServer, key_prefix: str) -> None:
    login = grant(redis_server, key_prefix, tuple(command for command in COMMANDS if command != "watch"))
    with closing(RedisStore(redis_server.url().replace("//", f"//{login}@"), prefix=key_prefix)) as store:
        store.append(NS, [("a", b"1")])
        with pytest.raises(StoreError, match="forbids this to the user"):
            store.discard(NS, math.inf)
        assert store.scan(NS).total == 1


def test_a_session_that_is_cleared_leaves_its_list_first(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    store.append(NS, [("a", b"1")])
    door.sent.clear()
    store.clear(NS)
    assert 0 < door.sent.index(b"ZREM") < door.sent.index(b"UNLINK")  # else one who writes in between may be unlisted


def test_a_write_is_not_refused_for_a_look_at_other_rows_that_is(redis_server: RedisServer, key_prefix: str) -> None:
    login = grant(redis_server, key_prefix, tuple(command for command in COMMANDS if command != "exists"))
    with closing(RedisStore(redis_server.url().replace("//", f"//{login}@"), prefix=key_prefix)) as store:
        for n in range(128):  # so many that such a look comes
            assert store.append((*NS, str(n)), [("a", b"1")], ttl=60).new == [True]
        with pytest.raises(StoreError, match="forbids this to the user"):
            store.recent(NS)


def test_a_connection_asks_only_once_whether_there_are_transactions(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    before = door.count, door.sent.count(b"MULTI")
    for n in range(3):
        store.append(NS, [(str(n), b"")])
    assert (door.count, door.sent.count(b"MULTI")) == (before[0] + 3, before[1] + 3)


@WRITES
def test_transactions_that_are_forbidden_in_use_are_noticed_by_one_write(
    redis_server: RedisServer, key_prefix: str, guard: dict[str, None] | None
) -> None:
    login = grant(redis_server, key_prefix, COMMANDS)
    url = redis_server.url().replace("//", f"//{login}@")
    with redis.Redis(port=redis_server.port) as raw, closing(RedisStore(url, prefix=key_prefix)) as store:
        store.write(NS, put={"before": b""}, guard=guard)
        raw.execute_command("ACL", "SETUSER", login.partition(":")[0], "-multi")
        with pytest.raises(StoreError, match="forbids this to the user"):
            store.write(NS, put={"first": b""}, guard=guard)
        kept = raw.hgetall(store._keys.for_namespace(NS).values)
        write_is_refused(store, "forbids this to the user", guard)
        assert raw.hgetall(store._keys.for_namespace(NS).values) == kept


@WRITES
@LENT
@pytest.mark.parametrize("renamed", ["MULTI", "EXEC"])
def test_a_server_that_knows_no_transactions_by_their_names_makes_nothing(
    start_redis: Callable[..., RedisServer], renamed: str, lent: bool, guard: dict[str, None] | None
) -> None:
    server = start_redis("--rename-command", renamed, "other")
    with (
        redis.Redis(port=server.port, max_connections=1) as client,
        closing(RedisStore(client if lent else server.url(), max_connections=1)) as store,
    ):
        write_is_refused(store, f"command '{renamed}'", guard)
        assert client.set("own", "1") is True  # the lent connection is in no transaction
        assert client.keys() == [b"own"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[RedisServer]]:
    with redis_cluster() as nodes:
        yield nodes


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_cluster_needs_two_more(cluster: list[RedisServer], key_prefix: str, protocol: int) -> None:
    logins = {}
    for commands in (CLUSTER_COMMANDS, COMMANDS):
        name, password = f"u-{len(commands)}", uuid.uuid4().hex
        for node in cluster:
            with redis.Redis(port=node.port) as raw:
                rights = [f"+{command}" for command in commands]
                raw.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", f"~{key_prefix}*", *rights)
        logins[commands] = f"redis+cluster://{name}:{password}@127.0.0.1:{cluster[0].port}?protocol={protocol}"
    store = RedisStore(logins[CLUSTER_COMMANDS], prefix=key_prefix)
    client: Any = redis.RedisCluster(host="127.0.0.1", port=cluster[0].port)
    walk(store, client)
    store.close()
    client.close()
    short = RedisStore(logins[COMMANDS], prefix=key_prefix, retry_for=0)
    assert "forbids this to the user: grant" in short.health().problem
    assert "in a cluster +cluster|slots +command" in short.health().problem
    short.close()


@pytest.mark.parametrize("guard", [None, {"k": None}], ids=["", "guarded"])
def test_what_cannot_be_listed_in_a_cluster_is_no_success(
    cluster: list[RedisServer], key_prefix: str, guard: dict[str, None] | None
) -> None:
    commands = tuple(command for command in CLUSTER_COMMANDS if command != "zadd")
    name, password = grant(cluster[0], key_prefix, commands).split(":")
    with redis.Redis(port=cluster[1].port) as raw:
        rights = [f"+{command}" for command in commands]
        raw.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", f"~{key_prefix}*", *rights)
    store = RedisStore(f"redis+cluster://{name}:{password}@127.0.0.1:{cluster[0].port}", prefix=key_prefix)
    with pytest.raises(StoreError, match="may have been made" if guard else "forbids this to the user"):
        store.write(NS, put={"k": b"v"}, guard=guard)
    store.close()


def test_what_a_node_says_to_who_asks_for_the_cluster(cluster: list[RedisServer], redis_server: RedisServer) -> None:
    for place, why in (
        (f"nobody:wrong@127.0.0.1:{cluster[0].port}", "refuses the user name or password: correct them in the URL"),
        (f"127.0.0.1:{redis_server.port}?client_name={NAME}", "is no cluster: use a redis:// URL"),
        ("127.0.0.1:1", "cannot be reached as a cluster: see whether its nodes run and form one"),
    ):
        store = RedisStore(f"redis+cluster://{place}", retry_for=0)
        with pytest.raises(StoreUnavailable, match=why):
            store.get(NS)
        assert why in store.health().problem
        with redis.Redis(port=redis_server.port) as raw:
            until(lambda: NAME not in [client["name"] for client in raw.client_list()])
        store.close()
