"""What processes do to a session while a backup of it is imported, in every order of their calls."""

from __future__ import annotations

from typing import Any

import pytest

from langmem_adapters import BrainMemory, Message, Sessions
from tests.interleaved_world import Part, World, one_after_the_other, processes
from tests.interleavings import Outcome, explore


def brain(world: World, **settings: Any) -> BrainMemory:
    return BrainMemory(world.store, "monday", clock=world.clock, new_id=world.new_id, **settings)


def said(text: str) -> Message:
    return Message(id=text, role="user", content=text, created_at=float(text[1]))


def begun(world: World) -> None:
    brain(world).add_messages([said("m1"), said("m2"), said("m3")])


def with_summary(world: World) -> None:
    begun(world)
    brain(world, model=lambda _: "of two").summarize(keep=1)


def exported(begin: Part) -> list[bytes]:
    return list(Sessions(World(0, begin=begin).store).export())


def summarize(world: World) -> None:
    """What a summary tells of is deleted."""
    brain(world, model=lambda _: "of two", archive=False).summarize(keep=1)


WRITERS: dict[str, Part] = {
    "add": lambda world: brain(world).add_messages([said("x4")]),
    "delete": lambda world: [brain(world).delete(["m2"])][1:],
    "summarise": summarize,
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kept", [begun, with_summary], ids=["messages", "a summary too"])
def test_a_backup_is_imported_beside_a_writer(writer: str, kept: Part) -> None:
    """What was deleted or summarised since the backup does not come back, and no summary stands for what is shown."""
    lines = exported(kept)
    parts: list[Part] = [lambda world: Sessions(world.store).import_(lines), WRITERS[writer]]

    def make() -> World:
        return World(0, begin=begun)

    def seen(outcome: Outcome) -> Any:
        context = brain(outcome.store).context()
        messages = {message.text for message in brain(outcome.store).messages()}
        return outcome.done(), messages, {message.text for message in context.messages}, context.summary is None

    after = one_after_the_other(make, parts, seen)

    def check(outcome: Outcome) -> None:
        assert seen(outcome) in after

    explore(make, processes(*parts), check)
