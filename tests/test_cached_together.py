"""cached: many who want the same at the same time, in threads, tasks and processes (C8)."""

# ruff: noqa: ARG001, ARG002, ASYNC110 - functions to be cached need their arguments

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langmem_adapters import Conflict, StoreUnavailable, cached, decorator
from langmem_adapters.codec import encode
from langmem_adapters.concurrency import background
from langmem_adapters.concurrency import workers as module
from langmem_adapters.concurrency.outcomes import Outcome
from langmem_adapters.erasure import adelete_user
from langmem_adapters.experience import ExperiencePool, refresh
from langmem_adapters.experience.functions.rules import Invocation
from langmem_adapters.experience.shelf import invalidation
from langmem_adapters.experience.shelf.invalidation import StartMark
from langmem_adapters.experience.single_flight import flights
from langmem_adapters.experience.single_flight.flights import Flight, Flights
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.protocols import Appended, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from tests.faults import CROWD, on_threads
from tests.loops import cancel_before_the_next_step, ticking
from tests.waiting import until

ROOT = Path(__file__).parent.parent


class Crowd:
    """A function that is held until everybody else is waiting for it."""

    def __init__(self, *outcomes: Any) -> None:
        self.calls = 0
        self.outcomes = list(outcomes)
        self.release = threading.Event()
        self._lock = threading.Lock()

    def __call__(self) -> Any:
        with self._lock:
            self.calls += 1
            outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        assert self.release.wait(120)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def waiting(cache: Any, crowd: Crowd, misses: int = CROWD) -> Callable[[], None]:
    """Let the crowd go when all have looked into the pool."""

    def release() -> None:
        until = time.monotonic() + 120
        while cache.pool.stats()["misses"] < misses and time.monotonic() < until:
            time.sleep(0.001)
        crowd.release.set()

    return release


@pytest.fixture
def waiters(monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """The threads and tasks that wait for another's call, or have."""
    seen: set[Any] = set()
    block, later = Outcome.wait, Outcome.await_

    def blocks(self: Outcome[Any], seconds: float) -> None:
        seen.add(threading.get_ident())
        block(self, seconds)

    async def awaits(self: Outcome[Any], seconds: float) -> None:
        seen.add(asyncio.current_task())
        await later(self, seconds)

    monkeypatch.setattr(Outcome, "wait", blocks)
    monkeypatch.setattr(Outcome, "await_", awaits)
    return seen


def when(condition: Callable[[], bool], then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    def release() -> None:
        until = time.monotonic() + 120
        while not condition() and time.monotonic() < until:
            time.sleep(0.001)
        then()

    return release


def test_c8_fifty_threads_make_one_call(any_store: Store) -> None:
    crowd = Crowd([1, {"a": 2}])

    @cached(store=any_store, tag="crowd")
    def f(n: int) -> Any:
        return crowd()

    got = on_threads(lambda: f(1), waiting(f.cache, crowd))
    assert got == [[1, {"a": 2}]] * CROWD
    assert crowd.calls == 1
    assert len({id(value) for value in got}) == CROWD  # nobody has another's object
    assert f.cache.stats()["hits"] == CROWD - 1


async def test_c8_fifty_tasks_make_one_call(any_store: Store) -> None:
    calls = 0
    release = asyncio.Event()

    @cached(store=any_store)
    async def f(n: int) -> list[int]:
        nonlocal calls
        calls += 1
        await release.wait()
        return [n]

    tasks = [asyncio.create_task(f(1)) for _ in range(CROWD)]
    while f.cache.pool.stats()["misses"] < CROWD:
        await asyncio.sleep(0.001)
    release.set()
    assert await asyncio.gather(*tasks) == [[1]] * CROWD
    assert calls == 1


def test_c8_a_failed_leader_does_not_fail_its_followers() -> None:
    crowd = Crowd(KeyError("the leader's"), "fine")

    @cached(store=MemoryStore(), tag="crowd")
    def f() -> Any:
        return crowd()

    got = on_threads(f, waiting(f.cache, crowd))
    failed = [value for value in got if isinstance(value, KeyError)]
    assert (len(failed), got.count("fine")) == (1, CROWD - 1)


def test_who_waited_for_a_call_that_failed_waits_for_no_other(waiters: set[Any]) -> None:
    """A model that is away fails slowly, and one after the other everybody would wait for all before."""
    together = threading.Barrier(CROWD - 1, timeout=30)  # half of what they would wait
    crowd = Crowd(KeyError("the leader's"))
    first = threading.Lock()

    @cached(store=MemoryStore(), tag="crowd")
    def f() -> Any:
        if first.acquire(blocking=False):
            return crowd()
        together.wait()  # all the others are in here at once
        raise KeyError("their own")

    got = on_threads(f, when(lambda: len(waiters) == CROWD - 1, crowd.release.set))
    assert [type(value) for value in got] == [KeyError] * CROWD
    assert sum(str(value) == "'their own'" for value in got) == CROWD - 1


async def test_tasks_that_waited_for_a_call_that_failed_wait_for_no_other(waiters: set[Any]) -> None:
    inside, fails, go_on = 0, asyncio.Event(), asyncio.Event()

    @cached(store=MemoryStore())
    async def f() -> int:
        nonlocal inside
        inside += 1
        await (fails if inside == 1 else go_on).wait()
        raise TimeoutError

    tasks = [asyncio.create_task(f()) for _ in range(CROWD)]
    while len(waiters) < CROWD - 1:
        await asyncio.sleep(0.001)
    fails.set()
    until = time.monotonic() + 30  # half of what they would wait
    while inside < CROWD and time.monotonic() < until:
        await asyncio.sleep(0.001)
    assert inside == CROWD
    go_on.set()
    assert {type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)} == {TimeoutError}


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_the_first_success_serves_those_who_wait_for_a_slower_one(place: str, waiters: set[Any]) -> None:
    """After a failure several make the same call; who comes then waits for one of them, and any of them will do."""

    @cached(store=MemoryStore(), wait=25)
    def f() -> int:
        raise AssertionError

    slow = run(f.cache.calls.begin(Invocation((), {})))
    assert slow.flight is not None
    got: list[Any] = []
    late = threading.Thread(target=lambda: got.append(f()))
    late.start()
    when(lambda: len(waiters) == 1)()
    with f.cache.calls.led(slow) if place == "inside" else refresh():
        quick = run(f.cache.calls.begin(Invocation((), {})))
    assert quick.flight is None
    run(f.cache.calls.finish(quick, 5))
    assert slow.flight.outcome.is_settled
    late.join(20)
    assert got == [5]
    assert f.cache.stats()["shared"] == 1
    run(f.cache.calls.finish(slow, 6))  # lands a second time, which is nothing
    assert f() == (6 if place == "inside" else 5)  # asked anew, by which the slow one is out of date


REMOVALS: dict[str, Callable[[Any], Any]] = {
    "this one": lambda f: f.cache.ainvalidate("ada"),
    "by its key": lambda f: f.cache.pool.adelete(key=f.cache.calls.arguments.call_key(("ada",), {})),
    "where": lambda f: f.cache.pool.ainvalidate(lambda _: True),
    "all": lambda f: f.cache.pool.aclear(),
    "its user": lambda f: adelete_user(f.cache.pool.store, user="ada"),
}


@pytest.mark.parametrize("how", [*REMOVALS, "refresh"])
async def test_what_was_begun_before_a_removal_is_neither_kept_nor_told(any_store: Store, how: str) -> None:
    world, entered, release = ["old"], asyncio.Event(), asyncio.Event()

    @cached(store=any_store, user="ada")
    async def read(name: str) -> str:
        seen = world[0]
        if seen == "old":
            entered.set()
            await release.wait()
        return seen

    slow = asyncio.create_task(read("ada"))
    await entered.wait()
    world[0] = "new"
    if how == "refresh":
        with refresh():
            assert await read("ada") == "new"
    else:
        await REMOVALS[how](read)
    later = asyncio.create_task(read("ada"))
    await asyncio.sleep(0)
    release.set()
    assert await slow == "old"
    assert await later == "new"
    assert await read("ada") == "new"
    assert (experience := await read.cache.alookup("ada")) is not None
    assert experience.resp == "new"


@pytest.mark.parametrize("how", ["this one", "refresh"])
def test_a_stream_that_was_begun_before_a_removal_is_not_kept(any_store: Store, how: str) -> None:
    world = ["old"]

    @cached(store=any_store)
    def read(name: str) -> Iterator[str]:
        yield world[0]

    stream = read("ada")
    assert next(stream) == "old"
    world[0] = "new"
    if how == "refresh":
        with refresh():
            assert [*read("ada")] == ["new"]
    else:
        read.cache.invalidate("ada")
    assert [*stream] == []
    assert [*read("ada")] == [*read("ada")] == ["new"]


def test_what_is_begun_after_a_removal_or_for_another_key_is_kept() -> None:
    scored: list[str] = []

    def scorer(req: Any, name: str) -> int:
        scored.append(name)
        return 5

    @cached(store=MemoryStore(), scorer=scorer)
    def read(name: str) -> str:
        read.cache.invalidate("grace")
        return name

    read.cache.invalidate("ada")
    assert read("ada") == "ada"
    assert read.cache.lookup("ada") is not None
    assert read("grace") == "grace"
    assert read.cache.lookup("grace") is None
    read.cache.flush()
    assert scored == ["ada"]
    assert read.cache.stats()["stored"] == 1


def test_what_is_removed_elsewhere_or_refreshed_under_another_key_puts_nothing_out_of_date() -> None:
    pool = ExperiencePool(MemoryStore(), tag="read")
    mark = pool.start_mark("ada")
    pool.at("written").delete(key="ada")
    with refresh():
        pool.start_mark("grace")
        assert not mark.is_outdated
        pool.start_mark("ada")
    assert mark.is_outdated


def test_a_call_that_is_out_of_date_tells_nobody_who_asked_since() -> None:
    @cached(store=MemoryStore())
    def read() -> str:
        raise AssertionError

    with refresh():
        old = run(read.cache.calls.begin(Invocation((), {})))
    read.cache.invalidate()
    new = run(read.cache.calls.begin(Invocation((), {})))
    run(read.cache.calls.finish(old, "old"))
    assert new.flight is not None
    assert not new.flight.outcome.is_settled
    run(read.cache.calls.finish(new, "new"))
    assert read() == "new"


class Disturbed(MemoryStore):
    """Where something happens once, just before a call."""

    def __init__(self, before: int, happens: Callable[[], object]) -> None:
        super().__init__()
        self.left, self.happens = before, happens

    def append(self, *args: Any, **more: Any) -> Appended:
        self._count()
        return super().append(*args, **more)

    def write(self, *args: Any, **more: Any) -> None:
        self._count()
        super().write(*args, **more)

    def _count(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.happens()


@pytest.mark.parametrize("before", range(1, 6))
def test_a_removal_at_any_moment_of_a_call_is_the_last_word(before: int) -> None:
    @cached(store=Disturbed(before, lambda: removed.append(read.cache.invalidate("ada"))))
    def read(name: str) -> str:
        return "new" if removed else "old"

    removed: list[bool] = []
    read("ada")
    if removed:
        assert read("ada") == "new"
    assert bool(removed) == (before < 4)  # a lease is taken, the result is kept, the lease is given back


def test_what_is_not_kept_does_not_end_the_wait_for_another() -> None:
    @cached(store=MemoryStore(), should_store=lambda value: value != 5)
    def f() -> int:
        raise AssertionError

    slow = run(f.cache.calls.begin(Invocation((), {})))
    with refresh():
        quick = run(f.cache.calls.begin(Invocation((), {})))
    run(f.cache.calls.finish(quick, 5))
    assert slow.flight is not None
    assert not slow.flight.outcome.is_settled
    run(f.cache.calls.finish(slow, 6))
    assert slow.flight.outcome.result is not None


async def test_c8_a_cancelled_leader_does_not_cancel_its_followers_nor_a_follower_the_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f, entered, release = _gated(MemoryStore())
    joined = _counted_joins(f, monkeypatch)
    leader = asyncio.create_task(f())
    await entered.wait()
    followers = [asyncio.create_task(f()) for _ in range(3)]
    while len(joined) < 4:
        await asyncio.sleep(0.001)
    followers[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await followers[0]
    leader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leader
    while len(joined) < 6:  # the two that are left: one of them makes the call, and the other waits for it
        await asyncio.sleep(0.001)
    release.set()
    assert await asyncio.wait_for(asyncio.gather(*followers[1:]), 30) == [2, 2]


def _gated(store: MemoryStore) -> tuple[Any, asyncio.Event, asyncio.Event]:
    """A function that says how often it was called; when it was entered, and when it may go on."""
    calls = 0
    entered, release = asyncio.Event(), asyncio.Event()

    @cached(store=store)
    async def f() -> int:
        nonlocal calls
        calls += 1
        entered.set()
        await release.wait()
        return calls

    return f, entered, release


def _counted_joins(f: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the calls in the air that somebody has looked for, one for each look."""
    join = f.cache.calls.flights.join
    joined: list[str] = []

    def counted(key: str, *claim: Any) -> Any:
        joined.append(key)
        return join(key, *claim)

    monkeypatch.setattr(f.cache.calls.flights, "join", counted)
    return joined


async def test_c8_a_lease_that_is_still_to_be_given_back_lets_nobody_go(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, seen = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def write(self, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("delete"):  # in the background, for a leader that was cancelled
                assert seen.wait(30)
            try:
                super().write(*args, **kwargs)
            except Conflict:
                refused.set()
                raise

        def get(self, *args: Any) -> dict[str, bytes]:
            found = super().get(*args)
            if refused.is_set():  # the one who takes the turn has seen whose the lease is
                seen.set()
            return found

    f, entered, release = _gated(Slow())
    leader = asyncio.create_task(f())
    await entered.wait()
    joined = _counted_joins(f, monkeypatch)
    followers = [asyncio.create_task(f()) for _ in range(3)]
    while len(joined) < 3:
        await asyncio.sleep(0.001)
    entered.clear()
    leader.cancel()
    while len(joined) < 6:
        await asyncio.sleep(0.001)
    await entered.wait()
    release.set()
    assert await asyncio.wait_for(asyncio.gather(*followers), 30) == [2, 2, 2]


async def test_a_task_that_is_cancelled_as_it_gets_its_turn_leaves_nobody_waiting() -> None:
    entered, release = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def write(self, *args: Any, **kwargs: Any) -> None:
            super().write(*args, **kwargs)
            entered.set()
            assert release.wait(120)

    @cached(store=Slow(), wait=25)
    async def f(n: int) -> int:
        return n

    task = asyncio.create_task(f(1))
    await asyncio.to_thread(entered.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    release.set()
    before = time.monotonic()
    assert await f(1) == 1
    assert time.monotonic() - before < 10


async def test_a_task_that_is_cancelled_before_it_sees_that_it_has_its_turn_leaves_nobody_waiting() -> None:
    """Also while somebody holds the error, and by it all that the task knew, as until garbage is collected."""
    store = MemoryStore()

    @cached(store=store, tag="f", wait=25)
    async def f(n: int) -> int:
        return n

    task = asyncio.create_task(f(1))
    await asyncio.sleep(0)
    until = time.monotonic() + 60
    while not (module._pool().started_count and not module._pool()._running) and time.monotonic() < until:
        time.sleep(0.001)  # noqa: ASYNC251 - the loop is busy, and the task has its turn meanwhile
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    before = time.monotonic()
    assert await f(1) == 1
    assert time.monotonic() - before < 10
    assert cancelled.tb is not None


async def test_a_task_that_is_cancelled_before_its_result_is_kept_leaves_nobody_waiting() -> None:
    """Also while somebody holds the error, as who asks once more in an ``except`` does."""
    held: list[Any] = []

    @cached(store=MemoryStore(), tag="f", wait=25)
    async def f(n: int) -> int:
        held.extend([] if held else await cancel_before_the_next_step(task))
        return n

    task = asyncio.create_task(f(1))
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await task
    before = time.monotonic()
    assert await f(1) == 1
    assert time.monotonic() - before < 10
    assert cancelled.tb is not None
    await asyncio.gather(*held)


async def test_a_lease_is_given_back_at_once_though_models_are_at_work_in_the_background(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lane in ("work", "leases"):
        monkeypatch.setitem(background._lanes, lane, background.DaemonThreads(8, "langmem-background"))
    release, entered = threading.Event(), asyncio.Event()
    summaries = [background.submit(lambda: release.wait(120)) for _ in range(background._MAX_THREADS)]

    def in_a_process() -> Callable[[int], Any]:
        @cached(store=any_store, tag="f", wait=25)
        async def f(n: int) -> int:
            if not entered.is_set():
                entered.set()
                await asyncio.sleep(120)
            return n

        return f

    task = asyncio.create_task(in_a_process()(1))
    await entered.wait()
    task.cancel()
    try:
        before = time.monotonic()
        assert await in_a_process()(1) == 1
        assert time.monotonic() - before < 10
    finally:
        release.set()
    assert all(summary.result() for summary in summaries)


@pytest.mark.parametrize("where", ["flights", "background"])
def test_garbage_that_is_collected_in_the_middle_of_a_call_holds_up_nobody(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that nobody has is given up by whoever collects it, which may be the one who begins another."""
    store = MemoryStore()
    monkeypatch.setitem(background._lanes, "leases", background.DaemonThreads(8, "langmem-background"))

    @cached(store=store, tag="f")
    def f(n: int) -> int:
        return n

    turn: Any = run(f.cache.calls.begin(Invocation((1,), {})))
    assert turn.flight.lease is not None
    lock = f.cache.calls.flights._lock if where == "flights" else background._lanes["leases"]._lock

    def collect() -> None:
        nonlocal turn
        with lock:
            turn = None

    collector = threading.Thread(target=collect, daemon=True)
    collector.start()
    collector.join(30)
    assert not collector.is_alive()
    assert f(1) == 1


def test_results_that_cannot_be_kept_are_made_side_by_side() -> None:
    together = threading.Barrier(CROWD - 1, timeout=120)
    crowd = Crowd(object())
    first = threading.Lock()

    @cached(store=MemoryStore(), tag="crowd")
    def f() -> Any:
        if first.acquire(blocking=False):
            return crowd()
        together.wait()  # all the others are in here at once
        return object()

    got = on_threads(f, waiting(f.cache, crowd))
    assert len({id(value) for value in got}) == CROWD
    assert not any(isinstance(value, BaseException) for value in got)


def test_nobody_waits_longer_than_the_bound() -> None:
    crowd = Crowd("late")
    first = threading.Lock()

    @cached(store=MemoryStore(), tag="crowd", wait=0.05)
    def f() -> str:
        return crowd() if first.acquire(blocking=False) else "own"

    leader = threading.Thread(target=f)
    leader.start()
    while not crowd.calls:
        time.sleep(0.001)
    assert f() == "own"
    crowd.release.set()
    leader.join()


def test_without_waiting_everybody_makes_their_own() -> None:
    together = threading.Barrier(CROWD, timeout=120)

    @cached(store=MemoryStore(), wait=0)
    def f() -> int:
        return together.wait() and 1

    assert set(on_threads(f)) <= {0, 1}


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_call_from_inside_of_the_same_call_does_not_wait_for_itself(kind: str) -> None:
    depth = []

    @cached(store=MemoryStore())
    def f(n: int) -> int:
        depth.append(n)
        return f(n) if len(depth) < 3 else 7

    @cached(store=MemoryStore())
    async def g(n: int) -> int:
        depth.append(n)
        return await asyncio.create_task(g(n)) if len(depth) < 3 else 7

    before = time.monotonic()
    assert (f(1) if kind == "sync" else asyncio.run(g(1))) == 7
    assert time.monotonic() - before < 10
    assert len(depth) == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_inside_of_another_of_the_same_name_and_tag_does_not_wait_for_it(
    any_store: Store, *, is_async: bool
) -> None:
    clock = FakeClock()
    keep = cached(store=any_store, tag="t", timer=clock, sleep=clock.advance)

    @keep
    @keep
    def f(n: int) -> int:
        return n

    @keep
    @keep
    async def af(n: int) -> int:
        return n

    began = clock()
    assert (asyncio.run(af(1)) if is_async else f(1)) == 1
    assert clock() == began


async def test_a_task_that_a_call_has_begun_shares_calls_when_that_one_is_over() -> None:
    calls: list[int] = []
    begun: list[asyncio.Task[list[int]]] = []

    @cached(store=MemoryStore(), tag="f")
    async def f(n: int) -> int:
        calls.append(n)
        if not begun:
            begun.append(asyncio.create_task(later(n)))
        await asyncio.sleep(0)
        return n

    async def later(n: int) -> list[int]:
        await over.wait()
        return await asyncio.gather(*[f(n) for _ in range(5)])

    over = asyncio.Event()
    assert await f(1) == 1
    f.cache.pool.clear()
    over.set()
    assert await begun[0] == [1] * 5
    assert calls == [1, 1]


def test_a_call_whose_event_loop_has_ended_is_made_by_one_of_those_who_wait(waiters: set[Any]) -> None:
    calls: list[int] = []

    @cached(store=MemoryStore(), tag="f")
    async def f(n: int) -> int:
        calls.append(n)
        if len(calls) == 1:
            await asyncio.Event().wait()
        return n

    loop = asyncio.new_event_loop()
    task = loop.create_task(f(1))
    while not calls:
        loop.run_until_complete(asyncio.sleep(0.001))
    others = [threading.Thread(target=lambda: asyncio.run(f(1))) for _ in range(3)]
    for other in others:
        other.start()
    when(lambda: len(waiters) == len(others))()
    loop.close()
    del task
    gc.collect()
    for other in others:
        other.join()
    assert calls == [1, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_its_parents_calls() -> None:
    crowd = Crowd("parent")
    parent = os.getpid()

    store = MemoryStore()

    @cached(store=store, tag="f")
    def f() -> str:
        return crowd() if os.getpid() == parent else "child"

    leader = threading.Thread(target=f)
    leader.start()
    while not crowd.calls:
        time.sleep(0.001)
    store.clear(("experience", "", "", "f", "leases"))  # of which the child has a copy
    key = f.cache.calls.arguments.call_key((), {})
    assert f.cache.calls.flights.get(key) is not None
    assert in_a_fork(lambda: str(f.cache.calls.flights.get(key))) == "None"
    assert in_a_fork(f) == "child"
    crowd.release.set()
    leader.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_its_parents_scores() -> None:
    release = threading.Event()

    @cached(store=MemoryStore(), scorer=lambda *_: 9 if release.wait(120) else 1)
    def f() -> str:
        return "fine"

    def flushed() -> str:
        f.cache.flush()
        return "done"

    f()
    assert in_a_fork(flushed) == "done"
    release.set()
    f.cache.flush()
    assert f.cache.stats()["scored"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_its_parents_opening_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    opening, opened, parent = threading.Event(), threading.Event(), os.getpid()

    def opens(*_: Any) -> MemoryStore:
        opening.set()
        assert os.getpid() != parent or opened.wait(120)
        return MemoryStore()

    monkeypatch.setattr(decorator, "cache_store", opens)

    @cached
    def f() -> str:
        return "fine"

    first = threading.Thread(target=f)
    first.start()
    assert opening.wait(120)

    def in_time() -> str:
        signal.alarm(20)  # what waits for the parent's thread waits for ever
        return f()

    said = in_a_fork(in_time)
    opened.set()
    first.join()
    assert said == "fine"


def in_a_fork(function: Callable[[], str]) -> str:
    """What a forked child gets."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, function().encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


# --- across processes


_WORKER = """
import json, os, sys, threading, time
from pathlib import Path
from langmem_adapters import cached, open_store
from langmem_adapters.stores.redis import RedisStore

url, prefix, folder, mode, number = sys.argv[1:]
for _ in range(int(number) - 1):  # they share nothing but their imports
    if not os.fork():
        break
store = RedisStore(url, prefix=prefix) if url.startswith("redis") else open_store(url)
folder = Path(folder)
calls = 0

@cached(store=store, tag="f", wait=20.0)
def f(n):
    global calls
    calls += 1
    (folder / f"in-{os.getpid()}").touch()
    if mode == "die":
        os.kill(os.getpid(), 9)
    time.sleep(0.5)  # a slow model
    return {"n": n, "by": os.getpid()}

(folder / f"ready-{os.getpid()}").touch()
while not (folder / "go").exists():
    time.sleep(0.002)
got = []
threads = [threading.Thread(target=lambda: got.append(f(1))) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"got": got, "calls": calls, "stats": f.cache.stats()}))
"""


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shared.db", ""
    return request.getfixturevalue("redis_server").url(), request.getfixturevalue("key_prefix")


@contextlib.contextmanager
def workers(number: int, place: tuple[str, str], folder: Path, mode: str = "work") -> Iterator[subprocess.Popen[bytes]]:
    """The first of so many; what it says ends when all of them have ended."""
    command = [sys.executable, "-W", "error", "-c", _WORKER, *place, str(folder), mode, str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as first:
        try:
            while len(list(folder.glob("ready-*"))) < number:
                assert first.poll() is None
                time.sleep(0.005)
            yield first
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(first.pid, signal.SIGKILL)


def test_c8_four_processes_of_eight_threads_make_one_call(place: tuple[str, str], tmp_path: Path) -> None:
    with workers(4, place, tmp_path) as first:
        (tmp_path / "go").touch()
        results = [json.loads(line) for line in first.communicate(timeout=180)[0].splitlines()]
    assert sum(result["calls"] for result in results) == 1
    answers = [json.dumps(got) for result in results for got in result["got"]]
    assert (len(answers), len(set(answers))) == (32, 1)
    assert sum(result["stats"]["errors"] for result in results) == 0


def test_c8_a_killed_leaders_lease_ends(place: tuple[str, str], tmp_path: Path) -> None:
    with workers(1, place, tmp_path, "die") as worker:
        (tmp_path / "go").touch()
        assert worker.wait(120) == -9
    slept = _pauses_for_the_next(place)
    assert 10 < sum(slept) < 21
    assert max(slept) <= 0.25


_ENDS = """
import os, sys, threading, time
from langmem_adapters import cached, open_store
from langmem_adapters.stores.redis import RedisStore

url, prefix, child = sys.argv[1:]
store = RedisStore(url, prefix=prefix) if url.startswith("redis") else open_store(url)
begun = threading.Event()

@cached(store=store, tag="f", wait=20.0)
def f(n):
    begun.set()
    time.sleep(300)

threading.Thread(target=f, args=[1], daemon=True).start()
assert begun.wait(120)
if child and os.fork():
    os.wait()
    os.kill(os.getpid(), 9)
"""


def test_c8_a_process_that_ends_in_the_middle_of_a_call_gives_the_lease_back(place: tuple[str, str]) -> None:
    """As a notebook's kernel does that is restarted, in which an async function is at work."""
    done = subprocess.run(
        [sys.executable, "-c", _ENDS, *place, ""], cwd=ROOT, check=True, timeout=120, capture_output=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert _pauses_for_the_next(place) == []


def test_c8_a_call_that_fails_when_its_script_has_ended_gives_the_lease_back(place: tuple[str, str]) -> None:
    code = """
import sys, threading
from langmem_adapters import cached, open_store
from langmem_adapters.flow import submit
from langmem_adapters.stores.redis import RedisStore

url, prefix = sys.argv[1:]

@cached(store=RedisStore(url, prefix=prefix) if url.startswith("redis") else open_store(url), tag="f", wait=20.0)
def f(n):
    for thread in threading.enumerate():
        if thread.name == "langmem-exit":
            thread.join()
    sys.exit("late")

submit(bool).result()
threading.Thread(target=f, args=[1], daemon=False).start()
"""
    subprocess.run([sys.executable, "-c", code, *place], cwd=ROOT, check=True, timeout=120)
    assert _pauses_for_the_next(place) == []


def test_c8_a_process_that_ends_does_not_wait_for_a_store_once_for_each_call() -> None:
    code = """
import asyncio, time
from langmem_adapters import StoreUnavailable, cached
from langmem_adapters.stores.memory import MemoryStore

class Locked(MemoryStore):
    def write(self, *args, **kwargs):
        if over:
            print("waited for")
            time.sleep(1.5)
            raise StoreUnavailable("locked by another")
        super().write(*args, **kwargs)

@cached(store=Locked())
async def f(n):
    begun.append(n)
    await asyncio.sleep(300)

async def main():
    while len(begun) < 10:
        await asyncio.sleep(0.01)

over, begun = False, []
loop = asyncio.new_event_loop()
tasks = [loop.create_task(f(n)) for n in range(10)]
loop.run_until_complete(main())
over = True
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120, capture_output=True)
    assert 1 <= done.stdout.count(b"waited for") <= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_c8_a_forked_child_that_ends_leaves_its_parents_lease(place: tuple[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", _ENDS, *place, "child"], cwd=ROOT, check=False, timeout=120)
    assert done.returncode == -9
    assert 10 < sum(_pauses_for_the_next(place)) < 21


def _pauses_for_the_next(place: tuple[str, str]) -> list[float]:
    """The seconds of each pause that whoever makes the same call makes before."""
    store = _open(place)
    clock, slept = FakeClock(time.time()), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.advance(seconds)

    @cached(store=store, tag="f", wait=20.0, clock=clock, timer=clock, sleep=sleep)
    def f(n: int) -> str:
        return "mine"

    assert [f(1), f(1)] == ["mine", "mine"]
    assert f.cache.stats()["stored"] == 1
    store.close()
    return slept


def _open(place: tuple[str, str]) -> Store:
    from langmem_adapters import open_store  # noqa: PLC0415
    from langmem_adapters.stores.redis import RedisStore  # noqa: PLC0415

    return RedisStore(place[0], prefix=place[1]) if place[1] else open_store(place[0])


@pytest.mark.parametrize("is_inside", [False, True])
def test_what_another_process_has_made_meanwhile_is_served(any_store: Store, *, is_inside: bool) -> None:
    """Somebody has the lease; while we look again and again, the result comes in."""
    looks = []

    def answer(n: int) -> str:
        return "theirs"

    answer.__name__ = "f"  # of one tag and name: the same function in two places
    theirs = cached(store=any_store, tag="f", wait=0)(answer)  # they have the lease already

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            theirs(1)

    @cached(store=any_store, tag="f", wait=20.0, sleep=sleep)
    def f(n: int) -> str:
        raise AssertionError

    leases = f.cache.calls._leases()
    key = f.cache.calls.arguments.call_key((1,), {})
    assert run(leases.take(key)) is not None
    outer = cached(store=any_store, tag="outer")(f)  # has a lease of its own
    assert (outer if is_inside else f)(1) == "theirs"
    assert looks == [0.01, 0.02, 0.04]
    assert f.cache.pool.stats()["misses"] == 0
    assert f.cache.pool.stats()["hits"] == 1


def test_a_lease_that_nobody_gives_back_does_not_stay_for_ever() -> None:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    f = cached(store=store, tag="f", wait=20.0, clock=clock)(lambda: "mine")
    assert run(f.cache.calls._leases().take("key")) is not None
    clock.advance(20)
    assert [*store.namespaces()]
    clock.advance(3600)
    assert not [*store.namespaces()]


@pytest.mark.parametrize("goes_on", ["nobody", "a third process"])
def test_who_waited_for_another_processs_call_that_came_to_nothing_waits_for_no_other(
    goes_on: str, any_store: Store, waiters: set[Any]
) -> None:
    """The crowd here has waited as long as its leader: all go at once, though a third has the lease by then."""
    together = threading.Barrier(8, timeout=30)  # half of what they would wait
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            when(lambda: len(waiters) == 7)()
        if len(looks) == 3:
            assert theirs is not None
            run(leases.give_back(theirs))
            if goes_on == "a third process":
                run(leases.take(key))

    @cached(store=any_store, tag="f", wait=60.0, sleep=sleep)
    def f() -> int:
        together.wait()
        raise KeyError

    leases, key = f.cache.calls._leases(), f.cache.calls.arguments.call_key((), {})
    theirs = run(leases.take(key))
    assert theirs is not None
    assert [type(error) for error in on_threads(f, crowd=8)] == [KeyError] * 8
    assert len(looks) == 3


async def test_of_those_who_wait_for_another_processs_call_that_is_cancelled_one_makes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, calls, release = MemoryStore(), 0, asyncio.Event()
    pauses, pause = Counter[int](), Leases.pause

    def counted(self: Leases, retry: int) -> Flow[bool]:
        pauses[id(self)] += 1
        return pause(self, retry)

    monkeypatch.setattr(Leases, "pause", counted)

    def in_a_process() -> Any:
        @cached(store=store, tag="f")
        async def f() -> int:
            nonlocal calls
            calls += 1
            await release.wait()
            return calls

        return f

    leader = asyncio.create_task(in_a_process()())
    while not calls:
        await asyncio.sleep(0.001)
    followers = [asyncio.create_task(f()) for f in [in_a_process() for _ in range(3)] for _ in range(2)]
    while len(pauses) < 3:
        await asyncio.sleep(0.001)
    leader.cancel()
    while calls < 2:
        await asyncio.sleep(0.001)
    pauses.clear()
    while calls == 2 and (len(pauses) < 2 or min(pauses.values()) < 2):
        await asyncio.sleep(0.001)
    release.set()
    assert await asyncio.wait_for(asyncio.gather(*followers), 30) == [2] * 6


def test_who_comes_while_all_try_for_themselves_waits_for_one_of_them(any_store: Store) -> None:
    """The leader that waited for another process in vain leads on, with the lease."""
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        assert theirs is not None
        run(leases.give_back(theirs))

    @cached(store=any_store, tag="f", sleep=sleep)
    def f() -> int:
        raise AssertionError

    leases, key = f.cache.calls._leases(), f.cache.calls.arguments.call_key((), {})
    theirs = run(leases.take(key))
    assert theirs is not None
    turn = run(f.cache.calls.begin(Invocation((), {})))
    assert (len(looks), turn.flight) == (1, f.cache.calls.flights.get(key))
    assert turn.flight is not None
    assert not turn.flight.outcome.is_settled
    assert turn.flight.lease is not None
    assert run(leases.take(key)) is None
    run(f.cache.calls.finish(turn, 5))
    assert (f.cache.calls.flights.get(key), f()) == (None, 5)
    assert run(leases.take(key)) is not None


def test_leases_are_given_back(any_store: Store) -> None:
    place = ("experience", "", "", "f", "leases")
    seen = []

    @cached(store=any_store, tag="f")
    def f(n: int) -> int:
        seen.append(len(any_store.get(place)))
        if n == 2:
            raise KeyError
        return n

    assert f(1) == 1
    with pytest.raises(KeyError):
        f(2)
    until = time.monotonic() + 10
    while any_store.get(place) and time.monotonic() < until:
        time.sleep(0.005)
    assert (seen, any_store.get(place)) == ([1, 1], {})


def test_a_lease_is_one_holders_until_it_ends(any_store: Store) -> None:
    clock, ids = FakeClock(), iter("abcdefgh")
    leases = Leases(any_store, ("l",), seconds=60, clock=clock, new_id=lambda: next(ids))
    first = run(leases.take("k"))
    assert first is not None
    assert run(leases.take("k")) is None
    assert run(leases.take("other")) is not None
    clock.advance(59)
    assert run(leases.take("k")) is None
    clock.advance(1)
    second = run(leases.take("k"))
    assert second is not None
    run(leases.give_back(first))  # too late: it is another's
    assert run(leases.take("k")) is None
    run(leases.give_back(second))
    assert run(leases.take("k")) is not None


def test_of_abandoned_calls_the_latest_are_remembered(any_store: Store) -> None:
    ids = map(str, itertools.count())
    leases = Leases(any_store, ("l",), seconds=60, clock=FakeClock(), new_id=lambda: next(ids))
    taken = [run(leases.take(str(n))) for n in range(33)]
    for lease in taken:
        assert lease is not None
        run(leases.give_back(lease, is_abandoned=True))
    assert [run(leases.was_abandoned(lease and lease.data)) for lease in taken] == [False] + [True] * 32


def test_a_lease_of_a_clock_that_is_ahead_is_respected(any_store: Store) -> None:
    """It may also have been taken while our own attempt waited for the file."""
    ours, theirs, ids = FakeClock(), FakeClock(), iter("abc")
    theirs.advance(30)
    assert run(Leases(any_store, ("l",), seconds=60, clock=theirs, new_id=lambda: next(ids)).take("k")) is not None
    leases = Leases(any_store, ("l",), seconds=60, clock=ours, new_id=lambda: next(ids))
    assert run(leases.take("k")) is None


def test_a_short_lease_does_not_end_a_long_one() -> None:
    clock, ids = FakeClock(), iter("abc")
    store = MemoryStore(clock=clock)
    long, short = (Leases(store, ("l",), seconds=seconds, clock=clock, new_id=lambda: next(ids)) for seconds in (60, 1))
    assert run(long.take("k")) is not None
    assert run(short.take("other")) is not None
    clock.advance(30)
    assert run(long.take("k")) is None


@pytest.mark.parametrize(
    "nonsense", [b"", b"\xff", b"[]", b'{"until":"x"}', b'{"until":1%s}' % (b"0" * 400), encode({"until": 9e99})]
)
def test_a_lease_that_makes_no_sense_is_none(nonsense: bytes) -> None:
    store = MemoryStore()
    store.write(("l",), put={"k": nonsense})
    leases = Leases(store, ("l",), seconds=60, clock=FakeClock(), new_id=lambda: "a")
    assert run(leases.take("k")) is not None


def test_an_outage_while_waiting_is_no_reason_not_to_call() -> None:
    class Deaf(MemoryStore):
        def write(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable("read-only")

        append = write

    @cached(store=Deaf())
    def f() -> int:
        return 5

    assert (f(), f()) == (5, 5)


async def test_a5_waiting_for_another_process_does_not_block_the_loop(any_store: Store) -> None:
    @cached(store=any_store, tag="f", wait=0.5)
    async def f(n: int) -> int:
        return n

    leases = f.cache.calls._leases()
    assert run(leases.take(f.cache.calls.arguments.call_key((1,), {}))) is not None
    async with ticking() as late:
        assert await f(1) == 1
    assert max(late) < 0.2
    assert len(late) > 2  # so that there was a loop to be held up


@pytest.mark.parametrize("mine", [True, False], ids=["one object", "two objects"])
async def test_a_blocking_call_on_a_loop_does_not_hold_up_what_it_would_wait_for(mine: bool, any_store: Store) -> None:
    """It is on this very loop that the other one is being made."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    made: list[str] = []

    def name(n: int) -> str:
        made.append("blocking")
        return "mine"

    async def slow(n: int) -> str:
        begun.set()
        await go_on.wait()
        return "theirs"

    name.__name__ = slow.__name__ = "f"  # of one tag and name: the same function in two places
    theirs = cached(store=any_store, tag="f", key=str)(slow)
    ours = cached(store=any_store, tag="f", key=str)(name)
    if mine:
        ours.cache.calls.flights = theirs.cache.calls.flights
    task = asyncio.create_task(theirs(1))
    await begun.wait()
    before = time.monotonic()
    assert ours(1) == "mine"
    assert time.monotonic() - before < 20
    go_on.set()
    assert await task == "theirs"
    assert made == ["blocking"]


async def test_a_sleep_of_ones_own_does_not_hold_up_a_loop_either() -> None:
    store, slept = MemoryStore(), list[float]()

    @cached(store=store, tag="f", sleep=slept.append)
    def f(n: int) -> int:
        return n

    assert run(f.cache.calls._leases().take(f.cache.calls.arguments.call_key((1,), {}))) is not None
    assert (f(1), slept) == (1, [])


def test_who_waits_gives_a_reader_a_whole_moment_to_begin() -> None:
    flight = Flights().join("key")[0]
    assert flight is not None
    waiting = flight.wait(60)
    next(waiting)
    flight.hand_out(is_started=False)  # the stream is there by now
    waiting.send(True)
    flight.read_on()  # and somebody reads it
    waiting.send(True)
    flight.land(b"whole")
    with pytest.raises(StopIteration) as end:
        waiting.send(True)
    assert end.value.value is True


def test_a_call_that_is_garbage_while_another_joins_it_is_not_joined_for_ever() -> None:
    class Collecting(StartMark):
        @property
        def is_outdated(self) -> bool:
            gc.collect()
            return super().is_outdated

    class Call:
        def __init__(self) -> None:
            self.itself = self

    calls, mark = Flights(), Collecting(("experience",), "k", at=0.0)
    led, _ = calls.join("k", start_mark=mark)
    assert led is not None
    led.end_with(Call(), on_abandoned=Flight.abandon, give_back=Flight.abandon)
    joined, is_leader = calls.join("k", start_mark=mark)
    assert (joined, is_leader, led.is_abandoned) == (led, False, True)  # collected in the middle of it
    assert calls.join("k", start_mark=mark)[1]


async def test_who_has_waited_for_long_is_not_called_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "_POLL_SECONDS", 0.001)
    flight = Flights().join("k")[0]
    assert flight is not None
    assert not await arun(flight.wait(0.02))  # twenty moments
    called: list[Any] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *call, **_: called.append(call))
    flight.land(None)
    assert called == []


def test_who_waited_on_a_loop_that_is_closed_is_not_called_any_more(caplog: pytest.LogCaptureFixture) -> None:
    flight, own = Flights().join("k")
    assert own
    assert flight is not None
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(arun(flight.wait(30)))
    until(lambda: loop.run_until_complete(asyncio.sleep(0)) or flight.outcome._wake_ups)
    loop.close()
    flight.land(None)
    assert caplog.records == []
    assert not waiting.done()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined] # that is what the test is about


def test_a_call_that_is_older_than_all_removals_that_are_remembered_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invalidation, "_MAX_REMOVALS", 2)
    monkeypatch.setattr(invalidation, "_removals", deque(maxlen=2))

    @cached(store=MemoryStore())
    def read(name: str, others: list[str]) -> str:
        for other in others:
            read.cache.invalidate(other, [])
        return name

    read("ada", ["grace"])
    assert read.cache.lookup("ada", ["grace"]) is not None
    read("ada", ["grace", "alan"])
    assert read.cache.lookup("ada", ["grace", "alan"]) is None
