"""What processes do to one pool of experiences and its index, in every order of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langmem_adapters import Experience, ExperiencePool
from tests.interleaved_world import Part, World, one_after_the_other, processes
from tests.interleavings import Killed, Outcome, explore

POOL = ("experience", "", "", "t")
KEY = "key"
UNFOUND = "of no request"
BOUNDS: dict[str, dict[str, Any]] = {"any": {}, "entries": {"max_entries": 2}, "bytes": {"max_bytes": 250}}


def pool(world: World, bounds: str = "any", *, found: bool = True) -> ExperiencePool:
    index = world.indexes[0] if found else None
    return ExperiencePool(world.store, tag="t", index=index, clock=world.clock, new_id=world.new_id, **BOUNDS[bounds])


def keep(text: str, bounds: str = "any", key: str = KEY) -> Part:
    def part(world: World) -> None:
        pool(world, bounds).create(Experience(req=text, resp=text), key=key)

    return part


def keep_unfound(bounds: str = "any") -> Part:
    def part(world: World) -> None:
        pool(world, bounds, found=False).create(Experience(resp=UNFOUND), key=KEY)

    return part


def delete(bounds: str = "any", key: str = KEY) -> Part:
    return lambda world: pool(world, bounds).delete(key=key)


def forget_all(bounds: str = "any") -> Part:
    def part(world: World) -> None:
        pool(world, bounds).invalidate(lambda _: True)

    return part


def clear(bounds: str = "any") -> Part:
    return lambda world: pool(world, bounds).clear()


def search(bounds: str = "any") -> Part:
    def part(world: World) -> None:
        pool(world, bounds).query("alpha", k=9)

    return part


def use(bounds: str = "any") -> Part:
    def part(world: World) -> None:
        pool(world, bounds).lookup(key=KEY)

    return part


def together(*parts: Part) -> Part:
    def part(world: World) -> None:
        for each in parts:
            each(world)

    return part


def begun(bounds: str) -> Part:
    return together(keep("alpha", bounds), keep("gamma", bounds, "other"), search(bounds))


def contents(world: World) -> dict[str, str]:
    values = world.store.get(POOL)
    return {key: str(Experience.from_bytes(data).resp) for key, data in values.items() if "\0" not in key}


def check_sound(world: World, bounds: str) -> None:
    """Each entry has its place in the log, and is found; no other is; the bytes are counted; the next one is found."""
    kept, values = contents(world), world.store.get(POOL)
    places = [item.id for item in world.store.scan(POOL).items]
    assert len(places) == len({*places})
    assert {*kept} <= {*places}
    assert all(f"gone\0{key}" in values for key in {*places} - {*kept}), "an item without an entry has no grave"
    if bounds == "bytes":
        assert int(values.get("bytes\0", b"0")) == sum(len(values[key]) for key in kept) <= BOUNDS[bounds]["max_bytes"]
    if bounds == "entries":
        assert len(kept) <= BOUNDS[bounds]["max_entries"]
    own = pool(world, bounds)
    for text in {*kept.values()} - {UNFOUND}:
        assert text in {found.experience.resp for found in own.query(text, k=9)}
    assert UNFOUND not in {found.experience.resp for found in own.query("alpha beta gamma delta", k=9)}
    hits = world.indexes[0].search(POOL, "alpha beta gamma delta", 9)
    assert {hit.id for hit in hits} <= {key for key, text in kept.items() if text != UNFOUND}
    keep("epsilon", bounds)(world)
    assert [found.experience.resp for found in own.query("epsilon")] == ["epsilon"]


PARTS: dict[str, Callable[[str], Part]] = {
    "keep": keep,
    "keep unfound": keep_unfound,
    "delete": delete,
    "forget": forget_all,
    "clear": clear,
    "search": search,
    "use": use,
}


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("buried", [False, True], ids=["kept", "buried"])
@pytest.mark.parametrize("second", ["keep the same", "keep unfound", "delete", "forget", "clear", "use"])
def test_a_text_that_changes_beside_another_process(bounds: str, buried: bool, second: str) -> None:
    """An entry that moves in the log stays one with its place there."""
    beside = keep("alpha", bounds) if second == "keep the same" else PARTS[second](bounds)
    parts = [keep("beta", bounds), beside]

    def make() -> World:
        return World(begin=together(begun(bounds), *[delete(bounds)] * buried))

    after = one_after_the_other(make, parts, lambda outcome: contents(outcome.store))

    def check(outcome: Outcome) -> None:
        outcome.done()
        if bounds == "any":  # else those that are used at one moment stay at another
            assert contents(outcome.store) in after
        check_sound(outcome.store, bounds)

    explore(make, processes(*parts), check, switches=1)


@pytest.mark.parametrize("removal", ["keep", "forget"])
def test_what_is_used_and_spared_while_it_was_to_go_leaves_as_a_whole_or_stays(removal: str) -> None:
    """Its value is the same as before, and no mark of use is left; but its place is another one."""
    first = keep("beta", "entries", "third") if removal == "keep" else forget_all("entries")
    spared = together(use("entries"), keep("delta", "entries", "fourth"))

    def check(outcome: Outcome) -> None:
        outcome.done()
        check_sound(outcome.store, "entries")

    explore(lambda: World(begin=begun("entries")), processes(first, spared), check)


@pytest.mark.parametrize("buried", [False, True], ids=["kept", "buried"])
@pytest.mark.parametrize("second", ["keep", "keep unfound", "delete", "forget", "search"])
def test_an_entry_of_no_request_takes_the_place_of_one_beside_another_process(buried: bool, second: str) -> None:
    parts = [keep_unfound(), keep("beta") if second == "keep" else PARTS[second]("any")]

    def make() -> World:
        return World(begin=together(begun("any"), *[delete()] * buried))

    after = one_after_the_other(make, parts, lambda outcome: contents(outcome.store))

    def check(outcome: Outcome) -> None:
        outcome.done()
        assert contents(outcome.store) in after
        check_sound(outcome.store, "any")

    explore(make, processes(*parts), check)


@pytest.mark.parametrize("first", ["delete", "forget"])
def test_what_is_kept_and_deleted_beside_a_removal(first: str) -> None:
    """No removal takes the grave of a later entry for that of an earlier one."""
    again = together(keep("beta"), delete())

    def check(outcome: Outcome) -> None:
        outcome.done()
        assert KEY not in contents(outcome.store)
        check_sound(outcome.store, "any")

    explore(lambda: World(begin=begun("any")), processes(PARTS[first]("any"), again), check)


@pytest.mark.parametrize("first", ["keep", "keep unfound", "delete", "forget"])
@pytest.mark.parametrize("second", ["keep", "search"])
def test_the_death_of_a_process_heals(first: str, second: str) -> None:
    """What a killed process has left undone is never served, and the next operations do it."""

    def part(name: str, text: str) -> Part:
        return keep(text) if name == "keep" else PARTS[name]("any")

    def check(outcome: Outcome) -> None:
        killed, other = outcome.results
        assert killed is None or isinstance(killed, bool | Killed)
        assert not isinstance(other, BaseException)
        world: Any = outcome.store
        for text in ("alpha", "beta", "gamma", "delta"):
            pool(world).query(text, k=9)
        check_sound(world, "any")

    parts = processes(part(first, "beta"), part(second, "delta"))
    explore(lambda: World(begin=begun("any")), parts, check, switches=1, deaths=0)


def test_a_search_finds_what_is_kept_though_its_index_is_dropped_meanwhile() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.done()[0] == ["alpha"]

    def found(world: World) -> list[Any]:
        return [each.experience.resp for each in pool(world).query("alpha", k=9)]

    parts = processes(found, lambda world: world.indexes[0].clear(POOL))
    explore(lambda: World(begin=begun("any")), parts, check)
