"""ExperiencePool over every store: exact, typed, apart, and never poisoned (C4, C5, C7, F2b, H5)."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters import open_index
from langmem_adapters.errors import ConfigurationError, SerializationError, StoreUnavailable
from langmem_adapters.experience import ExperiencePool, bypass, refresh
from langmem_adapters.experience import pool as module
from langmem_adapters.experience.savings import Saved
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Experience, Metric, Score, Trajectory
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.allocations import traced
from tests.faults import Unplugged, on_threads


@pytest.fixture
def pool(any_store: Store, clock: FakeClock) -> ExperiencePool:
    return ExperiencePool(any_store, tag="capitals", clock=clock)


def keep(pool: ExperiencePool, req: Any, resp: Any, **fields: Any) -> Experience:
    return pool.create(Experience(req=req, resp=resp, **fields))


def served(pool: ExperiencePool, req: Any) -> Any:
    found = pool.lookup(req)
    return "MISS" if found is None else found.resp


# --- what is served


@pytest.mark.parametrize("resp", ["", 0, 0.0, False, None, [], {}, (), b"", set()])
def test_f2b_a_falsy_response_is_a_hit_of_its_own_type(pool: ExperiencePool, resp: Any) -> None:
    keep(pool, "q", resp)
    found = pool.lookup("q")
    assert found is not None
    assert (found.resp, type(found.resp)) == (resp, type(resp))
    assert pool.stats()["hits"] == 1


def test_everything_of_an_experience_is_kept(pool: ExperiencePool) -> None:
    metric = Metric(time_cost=0.5, money_cost=0.001, score=Score(val=9, reason="right"))
    made = keep(pool, {"q": (1, b"x")}, ["Paris"], metric=metric, traj=Trajectory(plan="think"), entry_type="Manual")
    found = pool.lookup({"q": (1, b"x")})
    assert found == made
    assert (made.tag, made.timestamp, len(made.uuid)) == ("capitals", 1_800_000_000.0, 32)
    assert (made.metric, made.expires_at) == (metric, None)


requests = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, "", "1", "a", "A", " a", b"a"]),
    lambda inner: st.lists(inner, max_size=2) | st.tuples(inner) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(requests, requests)
def test_c4_only_exactly_the_same_request_is_a_hit(pool: ExperiencePool, req: Any, other: Any) -> None:
    pool.clear()
    keep(pool, req, "answer")
    assert served(pool, req) == "answer"
    assert (served(pool, other) == "answer") == (_typed(req) == _typed(other))


def _typed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [_typed(item) for item in value]
    return type(value), value


def test_a_later_experience_takes_the_place_of_the_earlier(pool: ExperiencePool) -> None:
    for resp in ("Lyon", "Paris"):
        keep(pool, "France", resp)
    assert (served(pool, "France"), pool.count()) == ("Paris", 1)


def test_each_experience_has_an_id_of_its_own_of_32_digits() -> None:
    pool = ExperiencePool(MemoryStore())
    ids = [pool.create(Experience(req="same", resp=n)).uuid for n in range(50)]
    assert len(set(ids)) == 50
    assert all(len(id_) == 32 and int(id_, 16) >= 0 for id_ in ids)


def test_a_key_stands_for_a_request_that_is_not_stored(pool: ExperiencePool) -> None:
    pool.create(Experience(resp="Paris"), key="k1")
    found = pool.lookup(key="k1")
    assert found is not None
    assert (found.resp, found.req) == ("Paris", None)
    assert (pool.lookup(key="k2"), pool.lookup("k1")) == (None, None)
    assert (pool.delete(key="k1"), pool.delete(key="k1")) == (True, False)


def test_h5_tags_users_and_tenants_are_apart(any_store: Store) -> None:
    places = list(itertools.product(("", "t", "t/u"), ("", "u"), ("", "acme")))
    pools = [ExperiencePool(any_store, tag=tag, user=user, tenant=tenant) for tag, user, tenant in places]
    for n, pool in enumerate(pools):
        keep(pool, "q", n)
    assert [served(pool, "q") for pool in pools] == list(range(len(pools)))
    pools[0].clear()
    assert [served(pool, "q") for pool in pools] == ["MISS", *range(1, len(pools))]


# --- what is not


def test_an_experience_expires_by_the_clock(any_store: Store, clock: FakeClock) -> None:
    pool = ExperiencePool(any_store, ttl=60, clock=clock)
    keep(pool, "short", 1)
    keep(pool, "long", 2, expires_at=clock() + 3600)
    clock.advance(59)
    assert (served(pool, "short"), pool.count()) == (1, 2)
    clock.advance(1)
    assert (served(pool, "short"), served(pool, "long"), pool.count()) == ("MISS", 2, 1)
    assert pool.stats()["expired"] == 1
    keep(pool, "short", 3)
    assert served(pool, "short") == 3


async def test_what_has_expired_is_not_there_to_be_deleted(any_store: Store, clock: FakeClock) -> None:
    pool = ExperiencePool(any_store, ttl=60, clock=clock)
    for key in ("a", "b", "c"):
        pool.create(Experience(resp=key), key=key)
    clock.advance(59)
    assert pool.delete(key="a")
    clock.advance(1)
    assert not pool.delete(key="b")
    assert not await pool.adelete(key="c")
    assert any_store.get(("experience", "", "", ""), ["a", "b", "c"]) == {}


@pytest.mark.parametrize("indexed", [True, False])
def test_what_was_asked_leaves_the_index_where_it_is_kept_no_more(any_store: Store, indexed: bool) -> None:
    """At once, or where the writer has no index as it is found."""
    index = open_index("memory:")
    pool = ExperiencePool(any_store, index=index)
    pool.create(Experience(req="where is my bike", resp=1), key="k")
    assert len(pool.query("bike")) == 1
    writer = pool if indexed else ExperiencePool(any_store)
    writer.create(Experience(resp=2), key="k")
    if not indexed:
        assert pool.query("bike") == []
    assert index.search(("experience", "", "", ""), "bike", 9) == []
    assert (kept := pool.lookup(key="k"))
    assert kept.resp == 2


def test_what_was_deleted_as_the_index_failed_leaves_it_at_the_next_try(any_store: Store) -> None:
    index = open_index("memory:")
    unplugged: Any = Unplugged(cast("Any", index), 2, after=False)  # as it applies the change
    ExperiencePool(any_store, index=index).create(Experience(req="where is my bike", resp=1), key="k")
    assert len(ExperiencePool(any_store, index=index).query("bike")) == 1
    pool = ExperiencePool(any_store, index=unplugged)
    with pytest.raises(StoreUnavailable, match="pulled the plug"):
        pool.delete(key="k")
    assert index.search(("experience", "", "", ""), "bike", 9) != []
    assert not pool.delete(key="k")
    assert index.search(("experience", "", "", ""), "bike", 9) == []


def test_c5_an_unreadable_entry_is_a_miss_and_is_healed(
    pool: ExperiencePool, any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    keep(pool, "France", "Paris")
    keep(pool, "Spain", "Madrid")
    namespace = ("experience", "", "", "capitals")
    any_store.write(
        namespace, put={fingerprint("France"): b'{"v":1,"resp":{"$type":"os.system","$value":"my-secret"}}'}
    )
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert [found.resp for found in pool.all()] == ["Madrid"]
        assert (served(pool, "France"), served(pool, "Spain")) == ("MISS", "Madrid")
    assert any_store.get(namespace, [fingerprint("France")]) == {}
    assert "an experience of tag 'capitals' is treated as a miss" in caplog.text
    assert "my-secret" not in caplog.text
    keep(pool, "France", "Paris")
    assert served(pool, "France") == "Paris"


def test_what_cannot_be_stored_is_refused_and_changes_nothing(pool: ExperiencePool) -> None:
    keep(pool, "q", "good")
    with pytest.raises(SerializationError, match=r"value\.resp is of type builtins\.object"):
        keep(pool, "q", object())
    with pytest.raises(SerializationError):
        pool.lookup(object())
    assert served(pool, "q") == "good"


@pytest.mark.parametrize("ttl", [0, -1])
def test_a_lifetime_of_nothing_is_refused(ttl: float) -> None:
    with pytest.raises(ConfigurationError, match=f"ttl is a number of seconds above 0, or None, not {ttl}"):
        ExperiencePool(MemoryStore(), ttl=ttl)


def test_all_delete_and_invalidate(pool: ExperiencePool, clock: FakeClock) -> None:
    for n in range(10):
        keep(pool, n, f"answer {n}", exp_type="failure" if n % 2 else "success")
    keep(pool, 0, "answer 0, again")
    keep(pool, "old", "x", expires_at=clock() - 1)
    assert [found.req for found in pool.all()] == list(range(10))
    assert (pool.delete(0), pool.delete(0)) == (True, False)
    assert pool.query(1, k=-1) == []
    assert pool.invalidate(lambda experience: experience.exp_type == "failure") == 5 + 1  # the expired one goes, too
    assert [found.req for found in pool.all()] == [2, 4, 6, 8]
    pool.clear()
    assert (pool.all(), pool.count()) == ([], 0)


# --- switches


def test_nothing_is_forgotten_by_a_coroutine_function(pool: ExperiencePool) -> None:
    """What it gives is no answer, and counts as True: all would go."""
    pool.create(Experience(req="France", resp="Paris"))

    async def where(experience: Experience) -> bool:
        return bool(experience.resp == "Rome")

    with pytest.raises(ConfigurationError, match="where is a coroutine function: give it a plain one"):
        pool.invalidate(where)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="where gave what must be awaited: give it a plain function"):
        pool.invalidate(lambda experience: asyncio.sleep(0, experience.resp == "Rome"))  # type: ignore[arg-type, return-value]
    assert pool.count() == 1


def test_h3_nothing_is_forgotten_by_no_function(pool: ExperiencePool) -> None:
    pool.create(Experience(req="France", resp="Paris"))
    with pytest.raises(ConfigurationError, match="invalidate needs a function that says which entries to remove"):
        pool.invalidate(None)  # type: ignore[arg-type]
    assert pool.count() == 1


def test_bypass_neither_reads_nor_writes_and_refresh_only_writes(pool: ExperiencePool) -> None:
    keep(pool, "q", "first")
    with bypass():
        assert served(pool, "q") == "MISS"
        assert keep(pool, "q", "bypassed").resp == "bypassed"
    assert served(pool, "q") == "first"
    with refresh():
        assert served(pool, "q") == "MISS"
        keep(pool, "q", "second")
        with bypass():
            keep(pool, "q", "bypassed")
        keep(pool, "r", "written")
    assert (served(pool, "q"), served(pool, "r")) == ("second", "written")


async def test_a_switch_belongs_to_its_task(pool: ExperiencePool) -> None:
    await pool.acreate(Experience(req="q", resp="kept"))
    inside, asked = asyncio.Event(), asyncio.Event()

    async def switched_off() -> Any:
        with bypass():
            inside.set()
            await asked.wait()
            return await pool.alookup("q")

    async def switched_on() -> Any:
        await inside.wait()
        found = await pool.alookup("q")
        asked.set()
        return found and found.resp

    assert tuple(await asyncio.gather(switched_off(), switched_on())) == (None, "kept")


def test_a_switch_is_put_back_after_an_error(pool: ExperiencePool) -> None:
    keep(pool, "q", "kept")
    for switch in (bypass, refresh):
        with pytest.raises(KeyError), switch():
            raise KeyError
    assert served(pool, "q") == "kept"


def test_switches_for_the_whole_pool(any_store: Store) -> None:
    keep(ExperiencePool(any_store, enable_write=False), "q", "not written")
    keep(ExperiencePool(any_store, enable_read=False), "r", "written")
    assert [served(ExperiencePool(any_store, enable_read=read), "r") for read in (True, False)] == ["written", "MISS"]
    assert served(ExperiencePool(any_store), "q") == "MISS"


# --- counting, writers, async


def test_stats_say_what_happened(pool: ExperiencePool, clock: FakeClock) -> None:
    assert set(pool.stats().values()) == {0}
    keep(pool, "q", 1)
    keep(pool, "old", 1, expires_at=clock() - 1)
    for req in ("q", "q", "none", "old"):
        served(pool, req)
    with bypass():
        served(pool, "q")
    counts = {"hits": 2, "misses": 2, "stored": 2, "unreadable": 0, "expired": 1, "evicted": 0}
    assert pool.stats() == {**counts, "saved_seconds": 0.0, "saved_tokens": 0, "saved_money": 0.0}


def test_what_one_hit_saves_is_not_lost_where_another_is_counted_in_between() -> None:
    class Prices(dict[str, tuple[float, float]]):
        def get(self, *args: Any) -> Any:
            if others:
                others.pop()()
            return super().get(*args)

    pool = ExperiencePool(MemoryStore(), prices=Prices(small=(1.0, 2.0)))
    metric = Metric(time_cost=2.0, model="small", input_tokens=1_000_000, output_tokens=1_000_000)
    kept = pool.create(Experience(req="q", resp=1, metric=metric))
    others = [lambda: on_another_thread(lambda: pool.lookup("q"))]
    pool.tally(kept)
    assert pool.stats()["hits"] == 2
    assert pool.saved() == Saved(seconds=4.0, tokens=4_000_000, money=6.0)


@pytest.mark.parametrize(
    ("figure", "wrong"),
    [
        *((cost, wrong) for cost in ("time_cost", "money_cost") for wrong in ("NaN", "Infinity", "1e999", "-5")),
        *(("input_tokens", wrong) for wrong in ("-5", f"1{'0' * 400}")),  # the others are no integers, and refused
    ],
)
def test_a_figure_that_is_none_costs_no_hit_and_takes_nothing_from_the_sum_of_all(figure: str, wrong: str) -> None:
    pool = ExperiencePool(MemoryStore(), prices={"small": (1.0, 1.0)})
    metric = {"time_cost": 2.0, "money_cost": 0.0, "model": "small", "input_tokens": 500_000, "output_tokens": 500_000}
    sound = {"type": "experience", "v": 1, "key": "k1", "experience": {"v": 1, "resp": "a", "metric": metric}}
    edited = json.dumps(sound | {"key": "k2"}).replace(f'"{figure}": {metric[figure]}', f'"{figure}": {wrong}')
    assert pool.import_([json.dumps(sound), edited]) == 2
    assert [getattr(pool.lookup(key=key), "resp", None) for key in ("k1", "k2")] == ["a", "a"]
    uncounted = {"time_cost": Saved(2.0), "input_tokens": Saved(tokens=500_000, money=0.5)}
    assert pool.saved() == Saved(4.0, 2_000_000, 2.0) - uncounted.get(figure, Saved())


def test_threads_may_ask_for_more_tags_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_TAGS", 2)
    pool, often = ExperiencePool(MemoryStore()), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        got = on_threads(lambda: len([pool.at(f"{threading.get_ident()} {n}") for n in range(2000)]))
    finally:
        sys.setswitchinterval(often)
    assert set(got) == {2000}


def on_another_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_writers_of_one_request_leave_one_whole_experience(any_store: Store) -> None:
    def write(n: int) -> None:
        pool = ExperiencePool(any_store)
        for m in range(10):
            keep(pool, "same", [n] * 100)
            keep(pool, (n, m), m)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    pool = ExperiencePool(any_store)
    assert pool.count() == 41
    assert served(pool, "same") in [[n] * 100 for n in range(4)]


async def test_a5_the_async_methods_do_the_same(any_store: Store, clock: FakeClock) -> None:
    methods = {n for n, _ in inspect.getmembers(ExperiencePool, inspect.isfunction) if not n.startswith("_")}
    sync = {n for n in methods if not inspect.iscoroutinefunction(getattr(ExperiencePool, n))}
    sync -= {
        "aexport",
        "at",
        "credit",
        "recent",
        "saved",
        "start_mark",
        "stats",
        "tally",
    }  # these others ask no store
    sync = {name for name in sync if not name.endswith("_flow")}
    assert {f"a{name.rstrip('_')}" for name in sync} <= methods

    async def walk(tag: str, mark: str) -> Any:
        ids = itertools.count()
        pool = ExperiencePool(
            any_store, user=tag, clock=clock, new_id=lambda: str(next(ids)), index=open_index("memory:")
        )

        async def call(name: str, *args: Any, **kwargs: Any) -> Any:
            done = getattr(pool, mark + (name.rstrip("_") if mark else name))(*args, **kwargs)
            return await done if mark else done

        return [
            await call("create", Experience(req="q", resp=1)),
            await call("create", Experience(resp=2), key="k"),
            await call("lookup", "q"),
            await call("lookup", key="k"),
            await call("all"),
            await call("count"),
            await call("query", "q"),
            await call("query", "q", query_type="exact"),
            [line async for line in pool.aexport()] if mark else list(pool.export()),
            await call("import_", list(pool.export())),
            await call("delete", "q"),
            await call("lookup", "q"),
            await call("invalidate", lambda experience: experience.resp == 2),
            await call("create", Experience(req="r", resp=3)),
            await call("clear", "elsewhere"),
            await call("count"),
            await call("clear"),
            await call("count"),
            pool.stats(),
        ]

    assert await walk("one", "") == await walk("other", "a")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"ttl": "5"}, "ttl is a number of seconds above 0, or None, not '5'"),
        ({"tag": None}, "tag is a text, not None"),
        ({"user": None}, "user is a text, not None"),
        ({"tenant": 7}, "tenant is a text, not int"),
        ({"prices": [1]}, "prices are a dictionary by model name"),
        *(
            ({"prices": {"m": (1.0, price)}}, "the prices of 'm' are a tuple of two numbers, none below 0")
            for price in (math.nan, math.inf, -0.5, True, 10**400, Decimal("0.15"), "0.15")
        ),
        ({"prices": {"m": (1.0,)}}, "the prices of 'm' are a tuple of two numbers"),
        ({"prices": {"m": (1.0, 2.0, 3.0)}}, "the prices of 'm' are a tuple of two numbers"),
        ({"max_entries": 0.5}, "max_entries is a number of 1 or more, or None, not 0.5"),
        ({"max_entries": "5"}, "max_entries is a number of 1 or more, or None, not '5'"),
    ],
)
def test_a_setting_of_another_type_is_one_clear_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        ExperiencePool(MemoryStore(), **settings)


@pytest.mark.parametrize("k", ["3", None, 2.5])
def test_a_number_of_experiences_is_a_whole_one(k: Any) -> None:
    pool = ExperiencePool(MemoryStore(), index=open_index("memory:"))
    with pytest.raises(ConfigurationError, match="k is a whole number, not"):
        pool.query("France", k=k)


def test_experiences_are_counted_without_being_held() -> None:
    pool = ExperiencePool(MemoryStore())
    for n in range(3_000):
        keep(pool, f"question {n}", "answer")
    pool.all()  # whose imports and caches count for neither
    count, _, counting = traced(pool.count)
    everything, _, listing = traced(pool.all)
    assert count == len(everything) == 3_000
    assert 3 * counting < listing


def test_an_import_holds_little_more_than_the_bytes_of_its_lines(tmp_path: Path) -> None:
    pool, store = ExperiencePool(MemoryStore()), SQLiteStore(tmp_path / "m.db")
    for n in range(3_000):
        keep(pool, f"question {n}", "answer")
    lines = list(pool.export())
    copy = ExperiencePool(store)
    copy.import_(lines[:1])
    added, _, peak = traced(lambda: copy.import_(lines))
    assert added == copy.count() == 3_000
    assert peak < 4 * sum(map(len, lines))  # parsed, they take more than seven times as much
    store.close()
