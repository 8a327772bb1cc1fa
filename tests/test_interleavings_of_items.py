"""What processes do to one LangGraph namespace and its indexes, in every order of their calls."""

from __future__ import annotations

from typing import Any

import pytest

from langmem_adapters.codec import decode
from langmem_adapters.langgraph import LongTermStore
from tests.interleaved_world import Part, World, one_after_the_other, processes
from tests.interleavings import Outcome, explore

NS = ("notes",)


def shared(world: World, machine: int = 0) -> LongTermStore:
    return LongTermStore(store=world.store, index=world.indexes[machine], clock=world.clock, new_id=world.new_id)


def begun(world: World, *, passed: float) -> None:
    """An item that expires two minutes after it was read, of which both machines' indexes know."""
    shared(world).put(NS, "bike", {"text": "alpha"}, ttl=2)
    for machine in (0, 1):
        shared(world, machine).search(NS, query="alpha")
    world.clock.advance(passed)


def items(world: World) -> list[tuple[str, Any]]:
    return sorted((item.key, item.value["text"]) for item in shared(world).search(NS))


def check_sound(world: World) -> None:
    """The census counts the items; the namespace is listed as long as it has some; both indexes find them all."""
    kept = items(world)
    census = world.store.get(("langgraph", "", "items", *NS)).get("census")
    assert (decode(census)["count"] if census else 0) == len(kept)
    assert shared(world).list_namespaces() == [NS] * bool(kept)
    shared(world).put(NS, "later", {"text": "omega"})
    for machine in (0, 1):
        for key, text in [*kept, ("later", "omega")]:
            assert key in {hit.key for hit in shared(world, machine).search(NS, query=text)}
    assert shared(world).list_namespaces() == [NS]


PARTS: dict[str, Part] = {
    "get": lambda world: getattr(shared(world).get(NS, "bike"), "value", None),
    "search": items,
    "query": lambda world: len(shared(world, 1).search(NS, query="alpha")) and None,
    "replace": lambda world: shared(world).put(NS, "bike", {"text": "beta"}),
    "add": lambda world: shared(world).put(NS, "car", {"text": "gamma"}),
    "delete": lambda world: shared(world).delete(NS, "bike"),
    "list": lambda world: shared(world).list_namespaces(),
    "sweep": lambda world: shared(world).sweep_ttl(),
}


@pytest.mark.parametrize("passed", [60.0, 121.0], ids=["worn", "expired"])
@pytest.mark.parametrize("first", PARTS)
@pytest.mark.parametrize("second", ["get", "add", "delete"])
def test_items_that_expire_beside_another_process(passed: float, first: str, second: str) -> None:
    """What two processes see and leave is as if one had come after the other."""
    parts = [PARTS[first], PARTS[second]]

    def make() -> World:
        return World(2, begin=lambda world: begun(world, passed=passed))

    def seen(outcome: Outcome) -> Any:
        return outcome.done(), items(outcome.store)

    after = one_after_the_other(make, parts, seen)

    def check(outcome: Outcome) -> None:
        assert seen(outcome) in after
        check_sound(outcome.store)

    explore(make, processes(*parts), check, switches=1)


@pytest.mark.parametrize("first", ["replace", "delete", "list"])
@pytest.mark.parametrize("second", ["add", "delete"])
def test_the_death_of_a_process_beside_a_store_heals(first: str, second: str) -> None:
    """Whatever a killed process has left undone, the next operations find all that is kept."""

    def check(outcome: Outcome) -> None:
        assert not isinstance(outcome.results[1], BaseException)
        check_sound(outcome.store)

    make = lambda: World(2, begin=lambda world: begun(world, passed=121.0))  # noqa: E731
    explore(make, processes(PARTS[first], PARTS[second]), check, switches=1, deaths=0)


def test_a_search_finds_what_is_kept_though_its_index_is_dropped_meanwhile() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.done()[0] == ["bike"]

    def found(world: World) -> list[str]:
        return [item.key for item in shared(world).search(NS, query="alpha")]

    parts = processes(found, lambda world: world.indexes[0].clear(("langgraph", "", "items", *NS)))
    explore(lambda: World(2, begin=lambda world: begun(world, passed=1.0)), parts, check)
