"""Turns of the flows of one process: one after the other, and nobody is left behind by one that goes away."""

import asyncio
import threading
import time
from collections import deque

import pytest

from langmem_adapters.concurrency import turns
from langmem_adapters.concurrency.outcomes import Outcome
from langmem_adapters.concurrency.turns import Turn, turn_for
from langmem_adapters.flow import Flow, Step, arun, run, step
from tests.test_forks import forked


class Visits:
    """Flows that take a turn each, and what they saw of each other."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.present = self.most_present = self.count = 0

    def visit(self, stay: threading.Event | None = None) -> Flow[int]:
        with turn_for(self.key) as turn:
            yield from turn.take()
            yield from turn.take()  # does nothing
            self.present += 1
            self.most_present = max(self.most_present, self.present)
            yield from step(time.sleep, 0)
            if stay:
                yield from step(stay.wait)
            self.present -= 1
            self.count = count = self.count + 1
        return count


def waiting(key: str) -> int:
    """How many are in the line, with the one whose turn it is."""
    return len(turns._lines._lines.get(key, ()))


async def until_waiting(key: str, count: int) -> None:
    while waiting(key) != count:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0.001)


def test_threads_and_tasks_of_several_loops_have_their_turns_one_by_one() -> None:
    visits = Visits("several loops")

    async def twenty() -> None:
        await asyncio.gather(*(arun(visits.visit()) for _ in range(20)))

    threads = [threading.Thread(target=lambda: run(visits.visit())) for _ in range(20)]
    threads += [threading.Thread(target=lambda: asyncio.run(twenty())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (visits.count, visits.most_present) == (80, 1)
    assert waiting("several loops") == 0
    assert "several loops" not in turns._lines._lines  # which would grow with each


async def test_who_is_cancelled_lets_the_next_one_in() -> None:
    visits, stay = Visits("cancelled"), threading.Event()
    tasks = [asyncio.create_task(arun(visits.visit(stay)))]
    await until_waiting("cancelled", 1)
    for n in range(2, 6):
        tasks.append(asyncio.create_task(arun(visits.visit())))
        await until_waiting("cancelled", n)
    for position in (3, 1):
        tasks[position].cancel()
    await until_waiting("cancelled", 3)
    stay.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(result, asyncio.CancelledError) for result in results] == [False, True, False, True, False]
    assert (visits.count, visits.most_present) == (3, 1)
    assert waiting("cancelled") == 0


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_turn_that_takes_too_long_is_over_for_the_others(
    monkeypatch: pytest.MonkeyPatch, *, is_async: bool
) -> None:
    monkeypatch.setattr(turns, "_MAX_TURN_SECONDS", 0.05)
    visits, stay = Visits("too long"), threading.Event()
    slow = asyncio.create_task(arun(visits.visit(stay)))
    await until_waiting("too long", 1)
    others = [arun(visits.visit()) if is_async else asyncio.to_thread(run, visits.visit()) for _ in range(5)]
    assert sorted(await asyncio.gather(*others)) == [1, 2, 3, 4, 5]
    assert visits.most_present == 2  # one by one, beside the slow one
    assert waiting("too long") == 0
    stay.set()
    assert await slow == 6


def test_who_fails_ends_its_turn() -> None:
    def fail(turn: Turn) -> Flow[None]:
        yield from turn.take()
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError), turn_for("failed") as turn:
            run(fail(turn))
    assert waiting("failed") == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_waits_for_nobody_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MAX_TURN_SECONDS", 60)
    with turn_for("forked") as turn:
        run(turn.take())

        def visit() -> None:
            turn.end()
            assert run(Visits("forked").visit()) == 1

        assert forked(visit) == 0
        assert waiting("forked") == 1


def test_who_joins_as_the_last_one_leaves_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = Turn("left"), Turn("left"), Turn("left")

    class Line(deque[Outcome[None]]):
        def append(self, ticket: Outcome[None], /) -> None:
            first.end()  # as if garbage collection closed its flow at this moment
            super().append(ticket)

    monkeypatch.setattr(turns, "deque", Line)
    run(first.take())
    run(second.take())
    flow = third.take()
    assert isinstance(next(flow), Step)  # it waits
    second.end()
    with pytest.raises(StopIteration):
        flow.send(None)
    third.end()
    assert waiting("left") == 0
