"""What writers do to a migration, and what a killed one leaves, in every order of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langmem_adapters import BrainMemory, WorkingMemory
from langmem_adapters.operations import Migrated, Migration
from tests.interleaved_world import Part, World, processes
from tests.interleavings import Killed, Outcome, explore


def brain(world: World, session: str = "monday") -> BrainMemory:
    return BrainMemory(world.store, session, user="ada", clock=world.clock)


def working(world: World) -> WorkingMemory:
    return WorkingMemory(world.store, clock=world.clock, new_id=world.new_id)


def two_namespaces(world: World) -> None:
    brain(world).add_talk("Hello.")
    working(world).store("c", {"n": 0})


def migrate(world: World) -> Migrated:
    return Migration(world.store, world.target, name="m").run()


def broken_off(world: World) -> None:
    """A migration that was killed in the middle of a namespace."""
    two_namespaces(world)
    left = iter(range(12))

    def turn(_: str) -> None:
        if next(left, None) is None:
            raise Killed

    with pytest.raises(Killed):
        migrate(world.seen_by(turn))


def clear_and_begin_anew(world: World) -> None:
    brain(world).clear()
    brain(world).add_talk("Anew.")


WRITERS: dict[str, Part] = {
    "add": lambda world: brain(world).add_talk("Later."),
    "another": lambda world: brain(world, "tuesday").add_talk("Later."),
    "clear": lambda world: brain(world).clear(),
    "anew": clear_and_begin_anew,
    "update": lambda world: working(world).update("c", lambda data: {"n": data["n"] + 1}),
    "delete": lambda world: working(world).delete("c"),
}


def everything(store: Any) -> dict[Any, Any]:
    found = {}
    for namespace in store.namespaces():
        if namespace[0] != "migration":
            log = [(item.id, item.data) for item in store.scan(namespace).items]
            found[namespace] = log, store.get(namespace), store.dates(namespace)
    return found


@pytest.mark.parametrize("begin", [two_namespaces, broken_off])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_migration_beside_a_writer(begin: Callable[[World], None], writer: str) -> None:
    """It leaves nothing behind that was deleted before it came there, and no journal."""

    def check(outcome: Outcome) -> None:
        assert outcome.done()[0].differing == []
        target = everything(outcome.store.target)
        assert all(log or values for log, values, _ in target.values())
        assert not list(outcome.store.target.namespaces(("migration",)))

    explore(lambda: World(begin=begin), processes(migrate, WRITERS[writer]), check, switches=1)


@pytest.mark.parametrize("begin", [two_namespaces, broken_off])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_killed_migration_goes_on_whatever_was_written_since(begin: Callable[[World], None], writer: str) -> None:
    """It knows what it has copied of a namespace, also where the source has that no more."""

    def check(outcome: Outcome) -> None:
        if isinstance(outcome.results[0], Killed):
            assert migrate(outcome.store).differing == []
            assert everything(outcome.store.target) == everything(outcome.store.store)

    explore(lambda: World(begin=begin), processes(migrate, WRITERS[writer]), check, switches=0, deaths=0)
