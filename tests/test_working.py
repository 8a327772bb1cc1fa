"""Working memory: nothing that was kept is lost, whoever else writes, on every store."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import logging
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import Settings, WorkingMemory, open_store
from langmem_adapters.concurrency import turns
from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError, StoreUnavailable
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from langmem_adapters.working import TWELVE_HOURS, MemoryType
from tests.faults import Overtaken
from tests.servers import RedisServer

C = "conversation"
TYPES: tuple[MemoryType, ...] = ("SHORT_TERM", "LONG_TERM", "WORKING")


def shown(memory: WorkingMemory, **where: Any) -> list[Any]:
    return [item.data for item in memory.retrieve(C, **where)]


def plus_one(data: Any) -> dict[str, int]:
    return {"n": (data or {"n": 0})["n"] + 1}


def numbered() -> Callable[[], str]:
    ids = itertools.count(1)
    return lambda: f"id{next(ids)}"


def spoil(store: Store, *damage: bytes, memory_type: str = "SHORT_TERM") -> None:
    place = ("working", "", "", C, memory_type)
    store.append(place, [(f"damaged {n}", data) for n, data in enumerate(damage)])


# --- what is kept -------------------------------------------------------------------------------------------


def test_several_items_are_all_kept_in_their_order(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    kept = memory.store(C, "one", {"two": [2, None]}, metadata={"by": "ada"})
    kept += memory.store(C, "three")
    found = memory.retrieve(C)
    assert found == kept
    assert [item.data for item in found] == ["one", {"two": [2, None]}, "three"]
    assert [item.metadata for item in found] == [{"by": "ada"}, {"by": "ada"}, {}]
    assert shown(memory, limit=2) == [{"two": [2, None]}, "three"]
    assert shown(memory, limit=9) == shown(memory)
    assert len({item.id for item in found}) == 3


def test_conversations_types_users_and_tenants_are_apart(any_store: Store) -> None:
    places = list(itertools.product(("", "t"), ("", "u"), ("c", "c/SHORT_TERM", C), TYPES))
    for place in places:
        tenant, user, conversation, memory_type = place
        WorkingMemory(any_store, user=user, tenant=tenant).store(conversation, list(place), memory_type=memory_type)
    for place in places:
        tenant, user, conversation, memory_type = place
        memory = WorkingMemory(any_store, user=user, tenant=tenant)
        (item,) = memory.retrieve(conversation, memory_type=memory_type)
        assert item.data == list(place)
    gone = WorkingMemory(any_store, user="u", tenant="t")
    assert gone.delete(C, memory_type="WORKING")
    left = [
        WorkingMemory(any_store, user=user, tenant=tenant).retrieve(conversation, memory_type=memory_type)
        for tenant, user, conversation, memory_type in places
    ]
    assert left.count([]) == 1


def test_times_and_metadata_through_an_items_life() -> None:
    clock = FakeClock()
    memory = WorkingMemory(MemoryStore(clock=clock), clock=clock, new_id=numbered())
    (item,) = memory.store(C, "a", metadata={"k": 1})
    assert (item.id, item.created_at, item.updated_at) == ("id1", clock.now, clock.now)
    born = clock.now
    clock.advance(5)
    item = memory.update(C, "b")  # type: ignore[assignment]
    assert (item.id, item.data, item.metadata) == ("id1", "b", {"k": 1})
    assert (item.created_at, item.updated_at) == (born, clock.now)
    clock.advance(5)
    memory.update(C, str.upper, metadata={"other": 2})
    (item,) = memory.retrieve(C)
    assert (item.id, item.data, item.metadata) == ("id1", "B", {"other": 2})
    assert (item.created_at, item.updated_at) == (born, clock.now)


@pytest.mark.parametrize("ttl", [TWELVE_HOURS, 60, 0.5])
def test_it_expires_as_a_whole_after_the_last_write(ttl: float) -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    memory = WorkingMemory(store, clock=clock) if ttl == TWELVE_HOURS else WorkingMemory(store, clock=clock, ttl=ttl)
    (first,) = memory.store(C, "first")
    for write in (
        lambda: memory.store(C, "second"),
        lambda: memory.update(C, "third"),
        lambda: memory.delete(C, item_id=first.id),
    ):
        clock.advance(ttl * 0.9)
        write()
    clock.advance(ttl * 0.9)
    assert shown(memory) == ["third"]
    clock.advance(ttl * 0.1)
    assert shown(memory) == []
    assert memory.update(C, lambda data: [data])  # begins anew, from None
    assert shown(memory) == [[None]]


def test_every_key_in_redis_has_the_time_to_live(redis_server: RedisServer, key_prefix: str) -> None:
    redis = pytest.importorskip("redis")
    from langmem_adapters.stores.redis import RedisStore  # noqa: PLC0415 - needs its driver

    store = RedisStore(redis_server.url(), prefix=key_prefix)
    memory = WorkingMemory(store)
    with redis.Redis.from_url(redis_server.url()) as raw:
        for write in (lambda: memory.store(C, "a", "b"), lambda: memory.update(C, "c")):
            write()
            lives = [raw.ttl(key) for key in raw.scan_iter(f"{key_prefix}*")]
            assert len(lives) == 4
            assert min(lives) >= TWELVE_HOURS - 5
        WorkingMemory(store, ttl=None).store(C, "lasts")
        assert {raw.ttl(key) for key in raw.scan_iter(f"{key_prefix}*")} == {-1}
    store.close()


# --- changing and deleting ----------------------------------------------------------------------------------


def test_an_update_changes_the_newest_or_the_one_that_is_named(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    first, _, third = memory.store(C, "a", "b", "c")
    assert memory.update(C, lambda data: data + "!") == memory.retrieve(C, limit=1)[0]
    assert shown(memory) == ["a", "b", "c!"]
    changed = memory.update(C, {"plain": "data"}, item_id=first.id)
    assert changed is not None
    assert changed.id == first.id
    assert shown(memory) == ["b", "c!", {"plain": "data"}]
    memory.update(C, str.upper, item_id=third.id)
    assert shown(memory) == ["b", {"plain": "data"}, "C!"]


def test_an_update_begins_where_there_is_nothing(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    seen: list[Any] = []

    def begin(data: Any) -> str:
        seen.append(data)
        return "begun"

    memory.update(C, begin, metadata={"k": 1})
    assert seen == [None]
    assert [(item.data, item.metadata) for item in memory.retrieve(C)] == [("begun", {"k": 1})]
    assert memory.update(C, "x", item_id="unknown") is None
    assert memory.delete(C, item_id="unknown") is False
    assert shown(memory) == ["begun"]


def test_an_item_far_behind_the_newest_is_found(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    items = memory.store(C, *range(1, 252))
    memory.update(C, "found", item_id=items[0].id)
    assert shown(memory, limit=1) == ["found"]
    assert memory.delete(C, item_id=items[1].id)
    assert shown(memory) == [*range(3, 252), "found"]


def test_delete_forgets_what_it_names_and_says_whether_it_was_there(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    assert memory.delete(C) is False
    kept = memory.store(C, "a", "b")
    memory.store(C, "other", memory_type="WORKING")
    assert memory.delete(C, item_id=kept[0].id) is True
    assert memory.delete(C, item_id=kept[0].id) is False
    assert shown(memory) == ["b"]
    assert memory.delete(C) is True
    assert shown(memory) == []
    assert shown(memory, memory_type="WORKING") == ["other"]


def overtaken() -> Any:
    """A store in which others act between an update's look and its write."""
    return Overtaken(MemoryStore(), where=lambda _, **change: change.get("guard") is not None)


def test_an_update_brings_nothing_back_that_was_deleted_meanwhile() -> None:
    store = overtaken()
    memory = WorkingMemory(store)
    seen: list[Any] = []

    def change(data: Any) -> str:
        seen.append(data)
        return f"after {data}"

    memory.store(C, "secret")
    store.first = [lambda: memory.delete(C)]
    memory.update(C, change)
    assert seen == ["secret", None]
    assert shown(memory) == ["after None"]
    (item,) = memory.retrieve(C)
    store.first = [lambda: memory.delete(C)]
    assert memory.update(C, "plain", item_id=item.id) is None
    assert shown(memory) == []


@pytest.mark.parametrize("first", [False, True])
def test_an_update_sees_what_was_stored_or_changed_meanwhile(first: bool) -> None:
    store = overtaken()
    memory = WorkingMemory(store)
    if first:
        memory.store(C, "old")
    store.first = [lambda: memory.store(C, "new"), lambda: memory.update(C, "newer")]
    memory.update(C, lambda data: f"{data}, changed")
    assert shown(memory) == ["old"] * first + ["newer, changed"]


@pytest.mark.parametrize("act", ["update", "delete"])
def test_an_item_is_found_though_others_change_it_while_it_is_looked_for(any_store: Store, act: str) -> None:
    def is_next_page(_: object, **bounds: Any) -> bool:
        return bounds.get("before") is not None

    def rewrite() -> None:
        other.update(C, plus_one, item_id=item.id)
        other.store(C, *range(150))

    store = Overtaken(any_store, rewrite, rewrite, at="scan", where=is_next_page)
    memory, other = WorkingMemory(cast("Store", store)), WorkingMemory(any_store)
    item, *_ = other.store(C, {"n": 0}, *range(150))
    if act == "update":
        assert memory.update(C, plus_one, item_id=item.id) is not None
        assert shown(other, limit=1) == [{"n": 3}]
    else:
        assert memory.delete(C, item_id=item.id)
        assert len(shown(other)) == 450
    assert store.first == []
    assert memory.update(C, plus_one, item_id="unknown") is None


def test_a_deletion_of_one_item_is_tried_again() -> None:
    store = overtaken()
    memory = WorkingMemory(store)
    item, _ = memory.store(C, "a", "b")
    store.first = [lambda: memory.update(C, "c", item_id=item.id)]
    assert memory.delete(C, item_id=item.id) is True
    assert shown(memory) == ["b"]


def test_who_changes_another_item_is_no_hindrance(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    plan, log, other = memory.store(C, {"n": 0}, "log", "other")
    seen: list[Any] = []

    def change(data: Any) -> dict[str, int]:
        seen.append(data)
        assert seen == [{"n": 0}]
        memory.update(C, "log, longer", item_id=log.id)
        memory.store(C, "new")
        memory.delete(C, item_id=other.id)
        return plus_one(data)

    assert memory.update(C, change, item_id=plan.id) is not None
    assert shown(memory) == ["log, longer", "new", {"n": 1}]


@pytest.mark.parametrize("known", [True, False], ids=["", "from before items had a revision of their own"])
@pytest.mark.parametrize("act", ["update", "update of the newest", "delete", "delete all"])
def test_who_changes_the_same_item_is_seen(any_store: Store, act: str, known: bool) -> None:
    memory = WorkingMemory(any_store)
    (item,) = memory.store(C, "old")
    if not known:
        any_store.write(("working", "", "", C, "SHORT_TERM"), delete=[f"revision/{item.id}"])
    acts: dict[str, Callable[[], object]] = {
        "update": lambda: memory.update(C, "other", item_id=item.id),
        "update of the newest": lambda: memory.update(C, "other"),
        "delete": lambda: memory.delete(C, item_id=item.id),
        "delete all": lambda: memory.delete(C),
    }
    left = [acts[act]]

    def change(data: str) -> str:
        if left:
            left.pop()()
        return f"{data}, changed"

    changed = memory.update(C, change, item_id=item.id)
    gone = act.startswith("delete")
    assert (changed is None) == gone
    assert shown(memory) == ([] if gone else ["other, changed"])


@pytest.mark.parametrize("named", [True, False])
def test_a_change_that_others_always_overtake_is_given_up(named: bool) -> None:
    store, pauses = MemoryStore(), list[float]()
    memory, quick = WorkingMemory(store, sleep=pauses.append), WorkingMemory(store)
    (item,) = memory.store(C, 0)
    calls = 0

    def change(_: int) -> int:
        nonlocal calls
        calls += 1
        assert calls <= 40
        quick.update(C, calls, item_id=item.id)
        return -1

    with pytest.raises(
        Conflict, match=r"^other writers came first 40 times in a row, and nothing was changed: try again$"
    ):
        memory.update(C, change, item_id=item.id if named else None)
    assert calls == 40
    assert shown(memory) == [40]
    assert len(pauses) == 39
    assert 0 < max(pauses[:3]) <= 0.008 < max(pauses) <= 0.2


async def test_async_callers_wait_by_the_sleep_that_was_given() -> None:
    store, pauses = overtaken(), list[float]()
    memory = WorkingMemory(store, sleep=pauses.append)
    store.first = [lambda: memory.store(C, "quicker")]
    await memory.aupdate(C, "changed")
    assert (shown(memory), len(pauses)) == (["changed"], 1)


async def test_async_callers_wait_on_their_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    store, pauses = overtaken(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    memory = WorkingMemory(store)
    store.first = [lambda: memory.store(C, "quicker")]
    await memory.aupdate(C, "changed")
    assert (shown(memory), len(pauses)) == (["changed"], 1)


def test_a_deletion_that_others_always_overtake_is_given_up() -> None:
    class Overtaken(MemoryStore):
        def write(self, *args: Any, **change: Any) -> None:
            if change.get("delete"):
                quick.update(C, 1, item_id=item.id)
            super().write(*args, **change)

    store = Overtaken()
    memory, quick = WorkingMemory(store, sleep=lambda _: None), WorkingMemory(store)
    (item,) = memory.store(C, 0)
    with pytest.raises(Conflict, match="nothing was changed"):
        memory.delete(C, item_id=item.id)
    assert shown(memory) == [1]


def test_a_failing_change_changes_nothing(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    memory.store(C, {"n": 1})
    with pytest.raises(ZeroDivisionError):
        memory.update(C, lambda _: 1 // 0)
    with pytest.raises(ConfigurationError, match="must return the new data"):
        memory.update(C, lambda data: data.update(n=2))  # dict.update returns None
    with pytest.raises(SerializationError, match="cannot be stored"):
        memory.update(C, lambda _: object())
    assert shown(memory) == [{"n": 1}]


def test_an_outage_in_an_update_is_raised_not_retried() -> None:
    class Failing(MemoryStore):
        def write(self, *_: Any, **__: Any) -> None:
            raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable, match="gone"):
        WorkingMemory(Failing()).update(C, "x")


async def test_a_change_may_be_a_coroutine_function(any_store: Store) -> None:
    memory = WorkingMemory(any_store)

    async def change(data: Any) -> dict[str, int]:
        await asyncio.sleep(0)
        return plus_one(data)

    await asyncio.gather(*(memory.aupdate(C, change) for _ in range(20)))
    assert await memory.aretrieve(C) == memory.retrieve(C)
    assert shown(memory) == [{"n": 20}]
    with pytest.raises(ConfigurationError, match="call the async twin"):
        memory.update(C, change)


# --- many writers -------------------------------------------------------------------------------------------


def test_g4_a_hundred_updates_on_threads_lose_none(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    with ThreadPoolExecutor(100) as pool:
        list(pool.map(lambda _: memory.update(C, plus_one), range(100)))
    assert shown(memory) == [{"n": 100}]


async def test_g4_a_hundred_updates_in_tasks_lose_none(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    await asyncio.gather(*(memory.aupdate(C, plus_one) for _ in range(100)))
    assert shown(memory) == [{"n": 100}]


async def test_a_thousand_updates_in_tasks_try_a_few_times_each(redis_server: RedisServer, key_prefix: str) -> None:
    changed = 0

    def change(data: Any) -> dict[str, int]:
        nonlocal changed
        changed += 1
        return plus_one(data)

    memory = WorkingMemory(open_store(redis_server.url()), user=key_prefix)
    await asyncio.gather(*(memory.aupdate(C, change) for _ in range(1000)))
    assert shown(memory) == [{"n": 1000}]
    assert await memory.adelete(C)
    assert changed < 4000  # they wait in line; without, each tries until it is the fastest, or gives up


def test_items_of_two_stores_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MAX_TURN_SECONDS", 0.05)
    memories = [WorkingMemory(MemoryStore()) for _ in range(2)]
    line_counts: list[int] = []

    def update(depth: int) -> None:
        """Have it overtaken once, so that it takes its turn, and another store's item changed meanwhile."""
        tries = itertools.count()

        def change(data: Any) -> dict[str, int]:
            if next(tries) == 0:
                memories[depth].update(C, plus_one)
            elif depth == 0:
                update(1)
            else:
                line_counts.append(len(turns._lines._lines))
            return plus_one(data)

        memories[depth].update(C, change)

    update(0)
    assert line_counts == [2]
    assert [shown(memory) for memory in memories] == [[{"n": 2}]] * 2


# Eight processes, which share nothing but their imports.
_PROCESSES = """
import os, sys
from langmem_adapters import WorkingMemory, open_store
from langmem_adapters.stores.redis import RedisStore

for _ in range(8):
    if not os.fork():
        store = open_store(sys.argv[1])
        memory = WorkingMemory(store, user=sys.argv[2])
        for n in range(25):
            memory.update("conversation", lambda data: {"n": (data or {"n": 0})["n"] + 1})
            memory.store("conversation", n, memory_type="WORKING")
        store.close()
        os._exit(0)
sys.exit(any([os.wait()[1] for _ in range(8)]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_g4_updates_of_eight_processes_lose_none(
    kind: str, tmp_path: Path, redis_server: RedisServer, key_prefix: str
) -> None:
    url = redis_server.url() if kind == "redis" else f"sqlite:///{tmp_path / 'store.db'}?timeout=60"
    command = [sys.executable, "-W", "error", "-c", _PROCESSES, url, key_prefix]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    store = open_store(url)
    memory = WorkingMemory(store, user=key_prefix)
    assert shown(memory) == [{"n": 200}]
    assert sorted(shown(memory, memory_type="WORKING")) == sorted(list(range(25)) * 8)
    for memory_type in TYPES:
        memory.delete(C, memory_type=memory_type)
    store.close()


# --- damage -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff not json",
        b"[1]",
        b"{}",
        b'{"v":0,"id":"x","data":"secret","metadata":{},"created_at":1,"updated_at":1}',
        b'{"v":1,"id":7,"data":"secret","metadata":{},"created_at":1,"updated_at":1}',
        b'{"v":1,"id":"x","data":"secret","metadata":"m","created_at":1,"updated_at":1}',
        b'{"v":1,"id":"x","data":"secret","metadata":{},"created_at":"1","updated_at":1}',
        b'{"v":1,"id":"x","data":"secret","metadata":{},"created_at":1,"updated_at":true}',
        b'{"v":1,"id":"x","data":"secret","metadata":{},"created_at":NaN,"updated_at":1}',
        b'{"v":1,"id":"x","data":"secret","metadata":{},"created_at":1,"updated_at":1%s}' % (b"0" * 400),
        b'{"v":1,"id":"x","data":"secret","metadata":{},"created_at":1}',
        b'{"v":1,"id":"x","data":"secret","metadata":{},"created_at":1,"updated_at":1,"more":1}',
    ],
)
def test_a_damaged_item_takes_no_other_along(any_store: Store, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    memory = WorkingMemory(any_store)
    memory.store(C, "a", "b")
    spoil(any_store, damage)
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert shown(memory) == ["a", "b"]
    (record,) = caplog.records
    assert record.getMessage() == "a working memory of type SHORT_TERM holds a damaged item, which is left out"
    assert shown(memory, limit=1) == ["b"]
    memory.update(C, "c")
    memory.store(C, "d")
    assert shown(memory) == ["a", "c", "d"]
    assert memory.delete(C)
    assert any_store.scan(("working", "", "", C, "SHORT_TERM")).total == 0


def test_many_damaged_items_hide_no_good_one(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    (first, _) = memory.store(C, "a", "b")
    spoil(any_store, *[b"x"] * 250)
    assert shown(memory, limit=1) == ["b"]
    assert shown(memory, limit=2) == ["a", "b"]
    memory.update(C, lambda data: data * 2)
    assert memory.update(C, "A", item_id=first.id)
    assert shown(memory) == ["bb", "A"]


# --- arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: m.store("", "x"), "a conversation id is a text that is not empty"),
        (lambda m: m.retrieve(None), "a conversation id is a text that is not empty"),
        (lambda m: m.update(7, "x"), "a conversation id is a text that is not empty"),
        (lambda m: m.delete(b"c"), "a conversation id is a text that is not empty"),
        (lambda m: m.retrieve(C, memory_type="SHORT"), "a memory type is SHORT_TERM, LONG_TERM, WORKING"),
        (lambda m: m.store(C), "there is no data to store"),
        (lambda m: m.store(C, "x", None), "None is no data"),
        (lambda m: m.update(C, None), "None is no data"),
        (lambda m: m.store(C, "x", metadata=["k"]), "metadata is a dictionary, not list"),
        (lambda m: m.update(C, "x", metadata="k"), "metadata is a dictionary, not str"),
        (lambda m: m.retrieve(C, limit=0), "limit is a whole number of at least 1"),
        (lambda m: m.retrieve(C, limit="5"), "limit is a whole number of at least 1"),
        (lambda m: m.retrieve(C, limit=True), "limit is a whole number of at least 1"),
        *((lambda m, ttl=ttl: WorkingMemory(m._store, ttl=ttl), "ttl is") for ttl in (0, -1, "60", True)),
        *((lambda m, ttl=ttl: WorkingMemory(m._store, ttl=ttl), "ttl is") for ttl in (float("nan"), float("inf"))),
        (lambda m: WorkingMemory(m._store, user=cast("Any", None)), "user is a text, not NoneType"),
        (lambda m: WorkingMemory(m._store, tenant=cast("Any", 3)), "tenant is a text, not int"),
        (lambda m: WorkingMemory(m._store, sleep=cast("Any", 3)), "sleep is a function"),
        (lambda _: WorkingMemory(cast("Any", "memory:")), "open_store"),
    ],
)
def test_wrong_arguments_are_one_clear_sentence(call: Callable[[Any], object], sentence: str) -> None:
    memory = WorkingMemory(MemoryStore())
    with pytest.raises(ConfigurationError, match=sentence):
        call(memory)
    assert shown(memory) == []


def test_nothing_of_several_is_kept_if_one_cannot_be(any_store: Store) -> None:
    memory = WorkingMemory(any_store)
    with pytest.raises(SerializationError):
        memory.store(C, "good", object())
    assert shown(memory) == []


def test_no_repr_shows_content() -> None:
    store = open_store("redis://user:S3cret@127.0.0.1:1")
    memory = WorkingMemory(MemoryStore())
    (item,) = memory.store(C, "private", metadata={"who": "private"})
    assert "private" not in repr(item) + repr(memory)
    assert item.id in repr(item)
    assert repr(WorkingMemory(store)) == "WorkingMemory(RedisStore('redis://user:***@127.0.0.1:1'), ttl=43200.0)"


def test_constructing_reads_nothing_and_failures_are_typed(tmp_path: Path) -> None:
    memory = WorkingMemory(open_store(f"sqlite:///{tmp_path}/none/store.db"))
    for call in (memory.retrieve, memory.delete, lambda c: memory.store(c, "x"), lambda c: memory.update(c, "x")):
        with pytest.raises(StoreUnavailable):
            call(C)


def test_settings_make_it(monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer, key_prefix: str) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.url())
    memory = Settings(tenant=key_prefix).working(user="ada")
    assert memory.ttl == TWELVE_HOURS
    memory.store(C, "kept")
    assert shown(WorkingMemory(open_store(redis_server.url()), user="ada", tenant=key_prefix)) == ["kept"]
    assert memory.delete(C)
    assert Settings(url="memory:", ttl=60).working().ttl == 60


# --- any order of calls -------------------------------------------------------------------------------------

_actions = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.lists(st.text(max_size=3), min_size=1, max_size=3)),
        st.tuples(st.just("update"), st.integers(-1, 5)),
        st.tuples(st.just("delete"), st.integers(-1, 5)),
    ),
    max_size=20,
)


@given(_actions)
def test_any_sequence_of_calls_behaves_like_a_list(actions: list[tuple[str, Any]]) -> None:
    memory = WorkingMemory(MemoryStore())
    model: list[tuple[str, Any]] = []
    for action, argument in actions:
        if action == "store":
            model += [(item.id, item.data) for item in memory.store(C, *argument)]
        elif argument < 0:
            if action == "delete":
                assert memory.delete(C) is bool(model)
                model = []
            else:
                item = memory.update(C, lambda data: [data])
                assert item is not None
                model = [*model[:-1], (item.id, [model[-1][1] if model else None])]
        elif argument < len(model):
            id_, data = model.pop(argument)
            if action == "delete":
                assert memory.delete(C, item_id=id_)
            else:
                memory.update(C, lambda data: [data], item_id=id_)
                model.append((id_, [data]))
        assert [(item.id, item.data) for item in memory.retrieve(C)] == model


# --- one object anywhere (G1) -------------------------------------------------------------------------------

_LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") else [])]
_ANYWHERE = """
import asyncio, importlib, os, sys, threading
from langmem_adapters import WorkingMemory, open_store

url, user, loops = sys.argv[1:]
store = open_store(url)
memory = WorkingMemory(store, user=user)

def add(data):
    return (data or 0) + 1

def run_in_a_new_loop(work):
    loop = importlib.import_module(loops).new_event_loop()
    loop.run_until_complete(work)
    loop.close()

async def cell():
    memory.update("c", add)  # a sync call while a loop runs
    await memory.aupdate("c", add)

for _ in range(3):
    run_in_a_new_loop(cell())
threads = [threading.Thread(target=lambda: run_in_a_new_loop(cell())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
child = os.fork() if hasattr(os, "fork") else None
run_in_a_new_loop(cell())
if child == 0:
    os._exit(0)
if child is None:
    run_in_a_new_loop(cell())
else:
    assert os.waitpid(child, 0)[1] == 0
print(memory.retrieve("c")[0].data)
memory.delete("c")
store.close()
"""


@pytest.mark.parametrize("loops", _LOOPS)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_g1_one_object_works_in_loops_threads_and_forks(
    loops: str, kind: str, tmp_path: Path, redis_server: RedisServer, key_prefix: str
) -> None:
    url = redis_server.url() if kind == "redis" else f"sqlite:///{tmp_path / 'store.db'}"
    # Python 3.12 and later warn of any fork while threads run; that it works all the same is what is shown here.
    options = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *options, "-c", _ANYWHERE, url, key_prefix, loops]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("18", "")
