"""Those who answer what flows ask: together where that is possible, and so that nobody waits for another (A5, G1)."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import gc
import inspect
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from types import FrameType
from typing import Any

import pytest

from langmem_adapters.concurrency import background, workers
from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.flow import Answer, Flow, Step, arun, blocking, gather, run, step
from tests.test_flow import _double, _sum, _triple, who
from tests.waiting import auntil, until

# --- questions that are asked together


class _Server:
    """Answers many questions in one exchange: it doubles numbers, and refuses those below zero."""

    def __init__(self) -> None:
        self.exchanges: list[list[int]] = []
        self.alone: list[int] = []
        self.broken: Exception | None = None
        self.lost: set[int] = set()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def _answer(self, number: int) -> Answer:
        return (2 * number, None) if number >= 0 else (None, KeyError(str(number)))

    def ask(self, requests: Sequence[int]) -> list[Answer | None]:
        self.exchanges.append(list(requests))
        assert self.may_answer.wait(60)
        if self.broken:
            raise self.broken
        return [None if number in self.lost else self._answer(number) for number in requests]

    def ask_alone(self, number: int) -> int:
        self.alone.append(number)
        answer, failure = self._answer(number)
        if failure:
            raise failure
        return int(answer)

    def double(self, number: int) -> Flow[int]:
        doubled: int = yield Step(lambda: self.ask_alone(number), None, self, number)
        return doubled


async def _outcomes(flows: Sequence[Flow[Any]]) -> list[Any]:
    found = await asyncio.gather(*map(arun, flows), return_exceptions=True)
    return [str(each) if isinstance(each, Exception) else each for each in found]


async def test_many_flows_ask_in_few_exchanges_and_each_gets_its_own_answer() -> None:
    server = _Server()
    numbers = list(range(-20, 180))
    doubled = [2 * n if n >= 0 else f"'{n}'" for n in numbers]
    assert await _outcomes([server.double(n) for n in numbers]) == doubled
    assert sorted(itertools.chain(server.alone, *server.exchanges)) == numbers
    assert len(server.exchanges) + len(server.alone) <= 40
    assert max(map(len, server.exchanges)) <= workers.MAX_BATCH


def test_what_came_at_once_and_is_too_much_for_one_exchange_goes_into_the_next() -> None:
    pool, server = workers._WorkerPool(), _Server()
    jobs: Any = list(range(workers.MAX_BATCH + 3))
    pool._batches[server] = jobs
    assert [pool._next() for _ in range(3)] == [(server, jobs[:-3]), (server, jobs[-3:]), None]


async def test_a_question_that_is_alone_or_was_not_answered_is_asked_by_itself() -> None:
    server = _Server()
    server.lost = set(range(0, 100, 2)) | {-1}
    assert await arun(server.double(7)) == 14
    assert server.exchanges == []
    assert run(server.double(4)) == 8
    found = await _outcomes([server.double(n) for n in range(-1, 100)])
    assert found == ["'-1'", *range(0, 200, 2)]
    assert set(server.alone) >= {4, 7} | server.lost


@pytest.mark.parametrize("face", ["run", "arun"])
async def test_one_flow_asks_together_what_its_branches_ask(face: str) -> None:
    def branch(server: _Server, number: int) -> Flow[str]:
        try:
            doubled = yield from server.double((yield from step(_double, number)))
        except (KeyError, OSError) as error:
            return f"recovered: {error.args[0]}"
        return f"{yield from server.double(doubled)}"

    async def gathered(flows: list[Flow[Any]]) -> list[Any]:
        return run(gather(flows)) if face == "run" else await arun(gather(flows))

    server, other, broken = _Server(), _Server(), _Server()
    server.lost, broken.broken = {6}, OSError("the line is dead")
    found = await gathered([branch(each, n) for n in range(-1, 70) for each in (server, other)])
    assert found == [f"{8 * n}" if n >= 0 else "recovered: -2" for n in range(-1, 70) for _ in "ab"]
    assert server.exchanges[0] == [2 * n for n in range(-1, 31)]
    assert len(server.exchanges) == len(other.exchanges) == 6  # two for each 64 branches, the last 14 among them
    assert server.alone == [6]
    assert other.alone == []
    assert await gathered([branch(broken, n) for n in range(3)]) == ["recovered: the line is dead"] * 3
    assert await gathered([]) == []


def test_an_error_of_one_branch_ends_the_others() -> None:
    server, ended = _Server(), []

    def branch(number: int) -> Flow[int]:
        try:
            return (yield from server.double(number))
        finally:
            ended.append(number)

    with pytest.raises(KeyError, match="-1"):
        run(gather(branch(number) for number in (1, -1, 2)))
    assert sorted(ended) == [-1, 1, 2]
    assert server.exchanges == [[1, -1, 2]]


async def test_an_exchange_that_breaks_fails_each_of_its_questions_and_no_other() -> None:
    server, other = _Server(), _Server()
    server.broken = OSError("the line is dead")

    def recovering(number: int) -> Flow[str]:
        try:
            return f"{yield from server.double(number)}"
        except OSError as error:
            return f"recovered: {error}"

    found = await _outcomes([flow for n in range(50) for flow in (recovering(n), other.double(n))])
    assert found[1::2] == [2 * n for n in range(50)]
    alone = {str(2 * n) for n in server.alone}
    assert set(found[::2]) - alone == {"recovered: the line is dead"}


@pytest.mark.usefixtures("unwatched")
async def test_an_exchange_that_takes_its_time_holds_up_nobody_else() -> None:
    server, other = _Server(), _Server()
    server.may_answer.clear()
    waiting = [asyncio.create_task(arun(server.double(n))) for n in range(300)]
    try:
        await auntil(lambda: server.exchanges)
        assert await asyncio.wait_for(_outcomes([other.double(n) for n in range(300)]), 30) == list(range(0, 600, 2))
        assert await asyncio.wait_for(arun(_sum()), 30) == 6
    finally:
        server.may_answer.set()
    assert await asyncio.gather(*waiting) == list(range(0, 600, 2))


@pytest.mark.usefixtures("unwatched")
async def test_a_question_is_asked_though_all_that_stood_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MAX_RUNNING", 1)
    server, begun, go_on = _Server(), threading.Event(), threading.Event()

    def held_up() -> Flow[None]:
        begun.set()
        assert go_on.wait(60)
        yield from ()

    asking, held = (asyncio.create_task(arun(flow)) for flow in (server.double(1), held_up()))
    await auntil(begun.is_set)
    given_up = asyncio.create_task(arun(_sum()))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert list(await asyncio.wait_for(asyncio.gather(asking, held), 30)) == [2, None]


async def test_flows_ask_several_times_and_in_their_own_contexts() -> None:
    server = _Server()

    def flow(number: int) -> Flow[tuple[int, str]]:
        who.set(str(number))
        for _ in range(5):
            number = yield from server.double(number)
            yield from step(_double, 1)
            number = (yield from step(_triple, number)) // 3
        return number, (yield from step(who.get))

    found = await asyncio.gather(*(arun(flow(n)) for n in range(100)))
    assert found == [(32 * n, str(n)) for n in range(100)]


class _Told:
    """A request or an answer: large things, as a rule."""

    def __init__(self, gone: threading.Semaphore) -> None:
        weakref.finalize(self, gone.release)


async def test_what_was_asked_and_answered_is_let_go_of_while_the_loop_is_busy() -> None:
    requests, answers = threading.Semaphore(0), threading.Semaphore(0)
    exchanges: list[int] = []

    class Teller:
        def ask(self, asked: Sequence[_Told]) -> list[Answer | None]:
            exchanges.append(len(asked))
            return [(_Told(answers), None) for _ in asked]

    def flow() -> Flow[str]:
        yield Step(lambda: _Told(answers), None, teller, _Told(requests))
        return "told"

    teller = Teller()
    tasks = [asyncio.create_task(arun(flow())) for _ in range(100)]
    await asyncio.sleep(0)
    for _ in tasks:  # the loop does something else
        assert requests.acquire(timeout=10)
        assert answers.acquire(timeout=10)
    assert await asyncio.gather(*tasks) == ["told"] * len(tasks)
    assert max(exchanges) > 1


class _Numbers:
    """Something with a method that is a flow."""

    def __init__(self) -> None:
        self.server = _Server()

    @blocking
    def double(self, number: int, *, times: int = 1) -> Flow[int]:
        """Doubles."""
        for _ in range(times):
            number = yield from self.server.double(number)
        return number


async def test_a_method_that_is_a_flow_blocks_and_is_a_part_of_the_flow_that_asks_for_it() -> None:
    numbers = _Numbers()
    assert numbers.double(2, times=3) == 16
    assert (numbers.double.__name__, numbers.double.__doc__) == ("double", "Doubles.")
    with pytest.raises(KeyError, match="-1"):
        numbers.double(-1)
    assert run(step(numbers.double, 3, times=2)) == 12
    assert numbers.server.exchanges == []
    found = await _outcomes([step(numbers.double, n, times=2) for n in range(-1, 99)])
    assert found == ["'-1'", *range(0, 396, 4)]
    assert len(numbers.server.exchanges) >= 2


# --- workers


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is relieved because it takes long."""
    monkeypatch.setattr(workers, "_STALL_SECONDS", 1e6)


@pytest.mark.usefixtures("unwatched")
async def test_as_many_blocking_calls_wait_at_the_same_time_as_there_are_workers() -> None:
    barrier = threading.Barrier(workers._MAX_WORKERS)
    calls = [arun(step(barrier.wait, 60)) for _ in range(barrier.parties)]
    assert sorted(await asyncio.gather(*calls)) == list(range(barrier.parties))


async def test_plain_code_that_waits_for_another_flow_is_not_waited_for() -> None:
    """It should be a question; but a host's token counter may do what it likes."""
    server, told = _Server(), threading.Event()

    def rude() -> Flow[bool]:
        yield from step(_double, 1)
        return told.wait(60)

    def last() -> Flow[int]:
        found = yield from server.double(21)
        told.set()
        return found

    flows: list[Flow[Any]] = [*(rude() for _ in range(3 * workers._MAX_RUNNING)), last(), last()]
    began = time.monotonic()
    assert await _outcomes(flows) == [True] * (len(flows) - 2) + [42, 42]
    assert time.monotonic() - began < 30


@pytest.mark.usefixtures("unwatched")
async def test_blocking_calls_may_wait_for_flows_of_their_own() -> None:
    def nested(depth: int) -> int:
        return asyncio.run(arun(step(nested, depth - 1))) + 1 if depth else 0

    found = await asyncio.gather(*(arun(step(nested, 4)) for _ in range(8)))
    assert found == [4] * 8


async def test_blocking_calls_on_all_workers_may_wait_for_flows_of_their_own() -> None:
    """Such as a scorer, a redactor or an embedder that calls asyncio.run."""
    barrier = threading.Barrier(workers._MAX_WORKERS)

    def bridge() -> int:
        barrier.wait(60)
        return asyncio.run(arun(step(_double, 21)))

    found = await asyncio.wait_for(asyncio.gather(*(arun(step(bridge)) for _ in range(barrier.parties))), 60)
    assert found == [42] * barrier.parties


async def test_a_loop_is_woken_once_for_all_that_was_done_while_it_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    woken: list[Any] = []
    call = loop.call_soon_threadsafe

    def counted(*args: Any) -> Any:
        woken.append(args)
        return call(*args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    done = threading.Semaphore(0)
    tasks = [asyncio.create_task(arun(step(done.release))) for _ in range(100)]
    await asyncio.sleep(0)
    for _ in tasks:
        assert done.acquire(timeout=60)  # the loop does something else
    await asyncio.gather(*tasks)
    assert len(woken) <= 10


@pytest.fixture
def thread_limit(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many more threads a new pool may start, as in a container with few."""
    limit, start = [0], _thread.start_new_thread

    def start_if_allowed(call: Any, arguments: Any) -> int:
        if not limit[0]:
            raise RuntimeError("can't start new thread")
        limit[0] -= 1
        return start(call, arguments)

    monkeypatch.setitem(workers._pools, 0, workers._WorkerPool())
    monkeypatch.setattr(_thread, "start_new_thread", start_if_allowed)
    return limit


async def test_where_no_thread_can_be_started_the_caller_is_told(thread_limit: list[int]) -> None:
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match=r"no thread can be started \(can't start new thread\): raise"):
            await arun(_sum())
    thread_limit[0] = 100
    assert await arun(_sum()) == 6
    await auntil(lambda: workers._pool()._running == 0)  # and not below, which would let more compute at a time


@pytest.mark.usefixtures("thread_limit")
async def test_where_the_interpreter_starts_no_thread_the_caller_is_not_told_of_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(*_: Any) -> int:  # as Python 3.12 at its end
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(_thread, "start_new_thread", start)
    with pytest.raises(StoreUnavailable) as caught:
        await arun(_sum())
    assert str(caught.value) == "no thread can be started (can't create new thread at interpreter shutdown)"


@pytest.mark.parametrize("where", ["plain code", "a blocking call"])
async def test_where_no_other_thread_can_be_started_those_that_are_there_do_the_work(
    where: str, thread_limit: list[int]
) -> None:
    reached, held = threading.Event(), threading.Event()

    def wait() -> bool:
        reached.set()
        return held.wait(60)

    def waiting() -> Flow[bool]:
        yield from step(_double, 1)
        return (yield from step(wait)) if where == "a blocking call" else wait()

    thread_limit[0] = 1
    first = asyncio.create_task(arun(waiting()))
    assert await asyncio.to_thread(reached.wait, 60)
    others = [asyncio.create_task(arun(_sum())) for _ in range(2 * workers._MAX_RUNNING)]
    await asyncio.sleep(0)
    held.set()
    assert await first
    assert await asyncio.gather(*others) == [6] * len(others)
    await auntil(lambda: workers._pool()._running == 0)


def test_under_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not here, as on Windows")
    server = _Server()

    async def main() -> list[Any]:
        return await _outcomes([server.double(n) for n in range(100)])

    for _ in range(2):
        assert uvloop.run(main()) == list(range(0, 200, 2))


def test_a_loop_that_was_closed_meanwhile_is_not_missed() -> None:
    held, ended = threading.Event(), threading.Event()

    def flow() -> Flow[None]:
        try:
            yield from step(held.wait, 60)
            yield from step(_triple, 1)  # nobody will await it
        finally:
            ended.set()

    loop = asyncio.new_event_loop()
    task = loop.create_task(arun(flow()))
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    held.set()
    assert ended.wait(60)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # that is what the test is about
    assert asyncio.run(arun(_sum())) == 6


def test_what_ended_just_before_its_loop_was_closed_is_garbage_with_that_loop() -> None:
    """The thread of the loop must not know it: what it led, others would wait for."""
    free, closed = threading.Event(), list[bool]()

    def flow() -> Flow[None]:
        try:
            yield Step(free.wait)
            yield Step(int, partial(asyncio.sleep, 0))  # the loop has this question, and asks it no more
        finally:
            closed.append(True)

    loop = asyncio.new_event_loop()
    task = loop.create_task(arun(flow()))
    loop.run_until_complete(asyncio.sleep(0))
    free.set()
    until(lambda: not workers._pool()._running)
    loop.close()
    assert closed == []
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # that is what the test is about
    del task, loop
    gc.collect()
    assert closed == [True]


@pytest.mark.parametrize("line", range(12))
def test_workers_that_find_their_loop_closed_together_end_what_each_of_them_had(line: int) -> None:
    """At some line of one, another comes by, as without a GIL: an error there would cost the pool a worker."""
    loop = asyncio.new_event_loop()
    loop.close()
    completions = workers._Completions(loop)
    flows: list[Flow[int]] = []
    lines = itertools.count()

    def add() -> None:
        flows.append(_sum())
        completions.add(workers.Job(flows[-1], (None, None), contextvars.copy_context(), completions, 0), None, None)

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is not workers._Completions.add.__code__:
            return None
        if event == "line" and next(lines) == line:
            other = threading.Thread(target=add)
            other.start()
            other.join()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        add()
    finally:
        sys.settrace(before)
    assert len(flows) == 1 + (next(lines) > line)
    assert {inspect.getgeneratorstate(flow) for flow in flows} == {inspect.GEN_CLOSED}


@pytest.mark.usefixtures("unwatched")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
async def test_a_forked_child_has_nothing_to_do_with_what_its_parent_waits_for() -> None:
    held, reached = threading.Event(), threading.Semaphore(0)

    def waiting() -> Flow[bool]:
        yield from step(reached.release)
        return held.wait(60)

    tasks = [asyncio.create_task(arun(waiting())) for _ in range(2 * workers._MAX_RUNNING)]
    for _ in range(workers._MAX_RUNNING):
        assert await asyncio.to_thread(reached.acquire, timeout=60)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            thread = threading.Thread(target=lambda: results.append(asyncio.run(arun(_sum()))))
            results: list[int] = []
            thread.start()
            thread.join(30)
            status = 0 if results == [6] else 2
        finally:
            os._exit(status)
    assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
    held.set()
    assert await asyncio.gather(*tasks) == [True] * len(tasks)


# --- cancellation


async def test_a_cancelled_flow_finishes_what_it_asks_together_with_others_and_ends() -> None:
    server, ended = _Server(), []

    def flow(number: int) -> Flow[int]:
        try:
            found = yield from server.double(number)
            return (yield from server.double(found))
        finally:
            ended.append(number)

    server.may_answer.clear()
    tasks = [asyncio.create_task(arun(flow(n))) for n in range(1, 101)]
    await auntil(lambda: server.exchanges)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.sleep(0)
    server.may_answer.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found[1::2] == [4 * n for n in range(2, 101, 2)]
    assert all(isinstance(each, asyncio.CancelledError) for each in found[::2])
    asked = set(itertools.chain(server.alone, *server.exchanges))
    begun = {n for n in range(1, 101, 2) if n in asked}
    assert begun
    await auntil(lambda: begun <= set(ended))  # those that had begun go on to their end
    assert {2 * n for n in begun} <= set(itertools.chain(server.alone, *server.exchanges))


async def test_a_flow_that_is_cancelled_on_the_loop_ends_at_once() -> None:
    reached, ended = asyncio.Event(), []

    async def for_ever() -> None:
        reached.set()
        await asyncio.Event().wait()

    def flow() -> Flow[None]:
        try:
            yield from step(_double, 1)
            yield from step(for_ever)
        finally:
            ended.append("ended")

    held = flow()  # so that it does not end for want of references
    task = asyncio.create_task(arun(held))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["ended"]
    held.close()


async def test_a_flow_that_was_cancelled_before_it_began_never_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers.Job, "end", lambda _: None)  # else a closed flow could not begin anyway
    begun: list[int] = []

    def flow(number: int) -> Flow[None]:
        begun.append(number)
        yield from step(_double, 1)

    tasks = [asyncio.create_task(arun(flow(n))) for n in range(200)]
    held = threading.Event()
    busy = [asyncio.create_task(arun(step(held.wait, 60))) for _ in range(workers._MAX_WORKERS)]
    await asyncio.gather(*tasks)
    late = [asyncio.create_task(arun(flow(n))) for n in range(200, 300)]
    await asyncio.sleep(0)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    held.set()
    assert await asyncio.gather(*busy) == [True] * len(busy)
    assert await arun(_sum()) == 6
    assert max(begun) == 199


async def test_a_flow_that_fails_as_it_ends_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    held, reached = threading.Event(), threading.Event()

    def flow() -> Flow[None]:
        try:
            yield from step(reached.set)
            yield from step(held.wait, 60)
            yield from step(_triple, 1)
        finally:
            raise ValueError("no way out")

    task = asyncio.create_task(arun(flow()))
    assert await asyncio.to_thread(reached.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    held.set()
    await auntil(lambda: "no way out" in caplog.text)
    assert await arun(_sum()) == 6


@pytest.fixture
def forgotten() -> Iterator[None]:
    """A call whose loop was closed before it was over, for garbage collection to end."""
    free = threading.Event()

    async def begin() -> None:
        call = arun(step(free.wait))
        call.send(None)
        known: list[Any] = [call]
        known.append(known)  # nobody else knows it

    gc.disable()
    try:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        loop.close()
        yield
    finally:
        gc.enable()
        free.set()


@pytest.mark.usefixtures("forgotten")
def test_a_call_that_garbage_collection_ends_holds_up_no_worker() -> None:
    """Whatever a worker makes may start the collection, under the lock too."""

    def collect() -> None:
        with workers._pool()._lock:
            gc.collect()

    worker = threading.Thread(target=collect, daemon=True)
    worker.start()
    worker.join(5)
    assert not worker.is_alive()


@pytest.mark.usefixtures("forgotten")
def test_a_call_that_garbage_collection_ends_as_a_worker_is_started_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collected, begin = threading.Event(), threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def collect_and_begin(thread: threading.Thread) -> None:
        if thread.name.startswith("langmem-step"):
            gc.collect()
            collected.set()
        begin(thread)

    monkeypatch.setattr(threading.Thread, "_bootstrap_inner", collect_and_begin)
    monkeypatch.setattr(workers._pool(), "_threads", background.DaemonThreads(1, "langmem-step"))
    caller = threading.Thread(target=lambda: asyncio.run(arun(_sum())), daemon=True)
    caller.start()
    caller.join(5)
    assert not caller.is_alive()
    assert collected.wait(5)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_no_thread_is_started_as_a_forked_child_forgets_a_call_of_its_parent() -> None:
    child = os.fork()
    if child == 0:
        gc.collect()
        os._exit(threading.active_count() - 1)
    assert os.waitpid(child, 0)[1] == 0


async def test_who_is_cancelled_when_the_answer_is_there_holds_up_nobody_else() -> None:
    def answer(number: int) -> Flow[int]:
        return (yield from step(lambda: number))

    first, second = (asyncio.create_task(arun(answer(number))) for number in (1, 2))
    await asyncio.sleep(0)
    until = time.monotonic() + 30
    while len(workers._thread_state.completions()._finished) < 2:  # the loop is busy, so nobody is told
        assert time.monotonic() < until
        time.sleep(0.001)  # noqa: ASYNC251 - same
    first.cancel()
    assert await asyncio.wait_for(second, 30) == 2
    assert first.cancelled()
