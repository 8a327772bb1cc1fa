"""What processes do to one working memory, and to what each of them would call, in every order of their calls."""

from __future__ import annotations

from typing import Any

import pytest

from langmem_adapters import WorkingMemory, cached
from langmem_adapters.experience.functions import calls
from tests.interleaved_world import Part, World, one_after_the_other, processes
from tests.interleavings import Killed, Outcome, explore


def working(world: World) -> WorkingMemory:
    return WorkingMemory(world.store, clock=world.clock, new_id=world.new_id, sleep=lambda _: None)


def counted(data: Any) -> dict[str, int]:
    return {"n": (data or {"n": 0})["n"] + 1}


def count_one(world: World) -> Any:
    item = working(world).update("c", counted, item_id="id0")
    return item and item.data


WORKING: dict[str, Part] = {
    "update": lambda world: getattr(working(world).update("c", counted), "data", None),
    "update one": count_one,
    "store": lambda world: [item.data for item in working(world).store("c", {"n": 10})],
    "delete one": lambda world: working(world).delete("c", item_id="id0"),
    "delete": lambda world: [working(world).delete("c")][1:],  # two at once may both have found something
}


@pytest.mark.parametrize("first", WORKING)
@pytest.mark.parametrize("second", WORKING)
def test_working_memories_beside_another_process(first: str, second: str) -> None:
    """Each change counts once, and nothing is left beside the items."""
    parts = [WORKING[first], WORKING[second], WORKING["update one"]]

    def make() -> World:
        return World(0, begin=lambda world: working(world).store("c", {"n": 0}, {"n": 5}))

    def seen(outcome: Outcome) -> Any:
        return outcome.done(), [item.data for item in working(outcome.store).retrieve("c")]

    after = one_after_the_other(make, parts, seen)

    def check(outcome: Outcome) -> None:
        assert seen(outcome) in after
        own = {f"revision/{item.id}" for item in working(outcome.store).retrieve("c")}
        values = outcome.store.store.get(("working", "", "", "c", "SHORT_TERM"))
        assert {*values} - {"revision"} <= own

    explore(make, processes(*parts), check, switches=1)


# --- one call for many

WAIT = 1.0


def call(key: str, *, seconds: float = 0.0, fails: bool = False) -> Part:
    """Call a cached function that takes its time; so do those who wait for it."""

    def part(world: World) -> str:
        def pause(length: float) -> None:
            world.turn("pause")
            world.clock.advance(length)

        def work(asked: str) -> str:
            world.calls.append(asked)
            pause(seconds)
            if fails:
                raise KeyError(asked)
            return f"{asked} {len(world.calls)}"

        settings = {"clock": world.clock, "timer": world.clock, "sleep": pause, "new_id": world.new_id}
        return cached(store=world.store, tag="work", wait=WAIT, on_error="raise", **settings)(work)(key)  # type: ignore[call-overload, no-any-return]

    return part


@pytest.mark.parametrize(
    ("parts", "deaths"),
    [
        ([call("a"), call("a")], None),
        ([call("a"), call("a")], 0),
        ([call("a"), call("b"), call("a")], None),
        ([call("a"), call("a"), call("a")], 0),
        ([call("a", seconds=1.6), call("a"), call("a")], None),
        ([call("a", fails=True), call("a"), call("a")], None),
    ],
    ids=["two", "two, one dies", "two keys", "three, one dies", "slower than its lease", "one fails"],
)
def test_one_call_for_many_processes(parts: list[Part], deaths: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has an answer to its own question, once for all that wait; a dead or slow holder holds nobody for long."""

    monkeypatch.setattr(calls, "submit", lambda give_back, **_: give_back())

    def check(outcome: Outcome) -> None:
        world: Any = outcome.store
        ended = [result for result in outcome.results if isinstance(result, BaseException)]
        assert all(isinstance(error, Killed | KeyError) for error in ended)
        answers = [result for result in outcome.results if isinstance(result, str)]
        assert {answer.split()[0] for answer in answers} <= {*world.calls}
        passed = world.clock() - 1000.0
        assert passed <= (len(parts) - 1) * (WAIT + 0.3) + 1.6
        if not ended:
            assert passed >= WAIT or len(world.calls) == len({*world.calls})
            assert not world.store.get(("experience", "", "", "work", "leases"))
        made = len(world.calls)
        for answer in answers:
            assert call(answer.split()[0])(world).split()[0] == answer.split()[0]
        assert len(world.calls) == made

    switches = 1 if deaths is None else 3 - len(parts)
    explore(lambda: World(0), processes(*parts), check, switches=switches, deaths=deaths)
