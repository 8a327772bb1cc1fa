"""run and arun: one logic, two worlds (A5, G1, J1)."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import importlib
import inspect
import itertools
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, get_type_hints

import pytest

from langmem_adapters.brain import BrainMemory
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, blocking, run, step
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.protocols import Page
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from tests.faults import Slow
from tests.loops import ticking
from tests.waiting import auntil

who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


def _double(n: int) -> int:
    return 2 * n


async def _triple(n: int) -> int:
    await asyncio.sleep(0)
    return 3 * n


def _fail(sentence: str) -> int:
    raise KeyError(sentence)


async def _fail_later(sentence: str) -> int:
    await asyncio.sleep(0)
    raise KeyError(sentence)


def _sum() -> Flow[int]:
    first = yield from step(_double, 1)
    second = yield from step(_double, n=first)
    return first + second


def _recovering(call: Callable[[str], Any]) -> Flow[str]:
    try:
        yield from step(call, "lost")
    except KeyError as error:
        return f"recovered from {error}"
    return "nothing was wrong"


def _failing(call: Callable[[str], Any]) -> Flow[Any]:
    return (yield from step(call, "lost"))


# --- the same results


async def test_a_flow_gives_the_same_both_ways() -> None:
    assert run(_sum()) == await arun(_sum()) == 6


async def test_an_exception_travels_into_the_flow() -> None:
    assert run(_recovering(_fail)) == await arun(_recovering(_fail)) == "recovered from 'lost'"
    assert await arun(_recovering(_fail_later)) == "recovered from 'lost'"


async def test_an_exception_that_the_flow_leaves_comes_out() -> None:
    with pytest.raises(KeyError, match="lost"):
        run(_failing(_fail))
    for call in (_fail, _fail_later):
        with pytest.raises(KeyError, match="lost"):
            await arun(_failing(call))


class _FailureError(Exception):
    """To which a weak reference leads."""


@pytest.mark.parametrize("recovers", [True, False], ids=["dealt with", "raised"])
@pytest.mark.parametrize("face", ["run", "arun", "awaited"])
def test_a_failure_is_let_go_of_at_once_with_all_that_its_frames_hold(face: str, *, recovers: bool) -> None:
    """Who is cancelled as a call becomes his leaves it to nobody until it is let go of: others wait for it."""
    failures: list[weakref.ref[_FailureError]] = []

    def fail() -> None:
        failure = _FailureError()
        failures.append(weakref.ref(failure))
        try:
            raise failure
        finally:
            del failure

    async def fail_later() -> None:
        fail()

    def flow() -> Flow[None]:
        with suppress(*[_FailureError] * recovers):
            yield from step(fail_later if face == "awaited" else fail)

    async def call() -> None:
        with suppress(_FailureError):
            run(flow()) if face == "run" else await arun(flow())
        await asyncio.wait_for(auntil(lambda: failures[0]() is None), timeout=3)  # the worker's frames end soon

    gc.disable()
    try:
        asyncio.run(call())  # pytest-asyncio's tasks on Python 3.10 would keep what they have awaited
    finally:
        gc.enable()


async def test_coroutine_functions_are_awaited_on_the_callers_loop() -> None:
    async def loop_of() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def flow() -> Flow[tuple[int, int, asyncio.AbstractEventLoop]]:
        once = yield from step(_triple, 1)
        twice = yield from step(functools.partial(_triple, 2))
        return once, twice, (yield from step(loop_of))

    assert await arun(flow()) == (3, 6, asyncio.get_running_loop())


@pytest.mark.parametrize("call", [_triple, functools.partial(_triple)])
def test_run_refuses_a_coroutine_function(call: Any) -> None:
    with pytest.raises(ConfigurationError, match="is a coroutine function: call the async twin"):
        run(step(call, 1))


def test_where_no_loop_of_asyncio_runs_the_caller_is_told() -> None:
    """As under trio, which drives a coroutine in its own way."""
    with pytest.raises(ConfigurationError, match="no event loop of asyncio runs here, as none does under trio"):
        arun(_sum()).send(None)


async def test_a_sync_call_works_inside_a_running_loop() -> None:
    assert run(_sum()) == 6


# --- threads and contexts


async def test_blocking_calls_leave_the_loops_thread_and_carry_context_variables() -> None:
    who.set("ada")

    def flow() -> Flow[list[Any]]:
        seen = [(yield from step(threading.get_ident)), (yield from step(who.get))]
        yield from step(_triple, 1)
        return [*seen, (yield from step(who.get))]

    thread, before, after = await arun(flow())
    assert thread != threading.get_ident()
    assert (before, after) == ("ada", "ada")


async def test_tasks_keep_their_contexts_apart() -> None:
    async def ask(name: str) -> str:
        who.set(name)
        return await arun(step(who.get))

    names = [f"user {n}" for n in range(50)]
    assert await asyncio.gather(*map(ask, names)) == names


async def _ask_twenty_times(brain: BrainMemory) -> tuple[float, float]:
    """Seconds for all, and the ticker's worst slip meanwhile."""
    async with ticking() as late:
        started = time.perf_counter()
        await asyncio.gather(*(brain.aget_summary() for _ in range(20)))
        took = time.perf_counter() - started
    assert len(late) >= 5
    return took, max(late)


async def test_a5_slow_stores_never_hold_up_the_loop() -> None:
    brain = BrainMemory(Slow(0.2), "s")  # what the test is about: a backend that takes its time
    rounds = [await _ask_twenty_times(brain) for _ in range(3)]  # a busy machine may spoil one, not all
    assert min(took for took, _ in rounds) < 1
    assert min(slip for _, slip in rounds) < 0.05


def test_j1_one_object_works_in_successive_loops() -> None:
    brain = BrainMemory(MemoryStore(), "s")
    for n in range(3):
        asyncio.run(brain.aadd_talk(str(n)))
    assert [message.text for message in brain.messages()] == ["0", "1", "2"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio.Runner came with Python 3.11")
def test_j1_a_loop_of_ones_own_is_still_the_one_that_runs() -> None:
    """Whatever the adapters and their hosts have imported."""
    for adapter in ("langchain", "langgraph", "llamaindex"):
        importlib.import_module(f"langmem_adapters.{adapter}")

    class Own(asyncio.SelectorEventLoop):
        """As uvloop's is."""

    async def talk(brain: BrainMemory) -> type[asyncio.AbstractEventLoop]:
        await brain.aadd_talk("hello")
        return type(asyncio.get_running_loop())

    runners: Any = asyncio
    with runners.Runner(loop_factory=Own) as runner:
        assert runner.run(talk(BrainMemory(MemoryStore(), "s"))) is Own
    assert asyncio.run.__module__ == "asyncio.runners"


def test_g1_one_object_works_in_threads_with_loops_of_their_own() -> None:
    brain = BrainMemory(MemoryStore(), "s")

    async def talk(name: str) -> None:
        for n in range(25):
            await brain.aadd_talk(f"{name} {n}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: asyncio.run(talk(f"thread {n}")), range(4)))
    said = [message.text for message in brain.messages()]
    assert sorted(said) == sorted(f"thread {t} {n}" for t in range(4) for n in range(25))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_g1_a_forked_child_gets_workers_of_its_own() -> None:
    assert asyncio.run(arun(_sum())) == 6
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if asyncio.run(asyncio.wait_for(arun(_sum()), 10)) == 6 else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert asyncio.run(arun(_sum())) == 6


# --- cancellation


class _HeldStore(MemoryStore):
    """Stops in the middle of the move to the long-term memory until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.removed = threading.Event()

    def write(self, namespace: Any, **change: Any) -> None:
        if change.get("remove"):
            self.reached.set()
            assert self.go_on.wait(120)
        super().write(namespace, **change)
        if change.get("remove"):
            self.removed.set()


async def test_a_cancelled_call_finishes_what_it_has_begun() -> None:
    from langmem_adapters.indexes import open_index  # noqa: PLC0415 - this test alone needs one

    store, ids = _HeldStore(), itertools.count()
    long_term = LongTermMemory(store, open_index("memory:"), user="u")
    brain = BrainMemory(store, "s", user="u", memory_k=2, long_term=long_term, new_id=lambda: f"m{next(ids)}")
    task = asyncio.create_task(brain.aadd_messages([Message(role="user", content=f"say {n}") for n in range(5)]))
    await asyncio.to_thread(store.reached.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.go_on.set()
    assert await asyncio.to_thread(store.removed.wait, 10)
    assert [message.text for message in brain.messages()] == ["say 3", "say 4"]
    assert [memory.message.text for memory in long_term.all()] == ["say 0", "say 1", "say 2"]


async def test_cancelling_at_any_moment_leaves_whole_batches_and_no_warning() -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s")
    batches = [[Message(id=f"{n}-{m}", role="user", content="x") for m in range(3)] for n in range(100)]
    tasks = [asyncio.create_task(brain.aadd_messages(batch)) for batch in batches]
    for n, task in enumerate(tasks):
        if n % 3 == 0:
            await asyncio.sleep(0)
        if n % 2:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await brain.acount()
    gc.collect()  # a coroutine that was never awaited, or a generator that runs, would be reported now
    counts: dict[str, int] = {}
    for message in brain.messages():
        batch = message.id.partition("-")[0]
        counts[batch] = counts.get(batch, 0) + 1
    assert set(counts.values()) == {3}
    assert {str(n) for n in range(0, 100, 2)} <= counts.keys()


class _Doubling:
    @blocking
    def twice(self, n: int) -> Flow[int]:
        return (yield from step(_double, (yield from step(_double, n))))


def test_a_blocking_method_that_a_flow_asks_for_is_a_part_of_it() -> None:
    assert _Doubling().twice(3) == 12
    flow = step(_Doubling().twice, 3)
    assert next(flow).call() == 6  # its own first question, not all of it
    assert flow.send(6).call() == 12


def test_a_blocking_method_says_what_it_gives() -> None:
    """What help() shows, and what a tool that reads annotations goes by."""

    def read(_: object) -> Flow[list[int]]:
        yield from ()
        return []

    read.__annotations__["return"] = Flow[list[int]]  # as in a module that reads annotations at once
    methods = (_Doubling.twice, int), (blocking(read), list[int]), (RedisStore.scan, Page), (SealedStore.scan, Page)
    for method, given in methods:
        assert inspect.signature(method, eval_str=True).return_annotation == given
        assert get_type_hints(method)["return"] == given


async def test_what_wraps_a_blocking_method_is_called_by_a_flow_too() -> None:
    """A subclass of a store may log or check each call; functools.wraps copies all that is noted on the method."""

    def plus_one(method: Callable[..., int]) -> Callable[..., int]:
        return functools.wraps(method)(lambda *arguments: method(*arguments) + 1)

    class Sub(_Doubling):
        twice = plus_one(_Doubling.twice)

    patched = _Doubling()
    patched.twice = plus_one(patched.twice)  # type: ignore[method-assign]
    for doubling in (Sub(), patched):
        assert run(step(doubling.twice, 3)) == await arun(step(doubling.twice, 3)) == doubling.twice(3) == 13


@pytest.mark.parametrize("marked", [False, True])
async def test_a_coroutine_function_is_awaited_whatever_is_written_on_it(marked: bool) -> None:
    async def triple(n: int) -> int:
        return await _triple(n)

    if marked:
        triple.note = "by a decorator"  # type: ignore[attr-defined]
    assert await arun(step(triple, 2)) == 6
    with pytest.raises(ConfigurationError, match="call the async twin"):
        run(step(triple, 2))


@pytest.mark.skipif(sys.version_info[:2] == (3, 12), reason="Python 3.12 starts no thread by then, for anybody")
@pytest.mark.parametrize("used", [True, False], ids=["used before", "never used"])
def test_a_loop_in_another_thread_goes_on_when_the_main_thread_is_over(used: bool) -> None:
    """As that of a bot whose script ends by starting a thread: Python's pools of threads take nothing any more."""
    code = f"""
import asyncio
import threading
from langmem_adapters.flow import arun, step

def flow():
    return (yield from step(lambda: "answered"))

def late():
    threading.main_thread().join()
    print(*(asyncio.run(arun(flow())) for _ in range(2)))

if {used}:
    asyncio.run(arun(flow()))
threading.Thread(target=late).start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert (done.stdout, done.stderr) == ("answered answered\n", "")
