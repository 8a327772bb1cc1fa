"""What processes do to one long-term memory and its indexes on two machines, in every order of their calls."""

from __future__ import annotations

import pytest

from langmem_adapters import LongTermMemory, Message
from langmem_adapters.flow import run
from langmem_adapters.recall.memories import memory_id
from langmem_adapters.records import journal, keyed
from tests.interleaved_world import Part, World, one_after_the_other, processes, silently
from tests.interleavings import Killed, Outcome, explore

ADA = ("longterm", "", "ada")


def memory(world: World, machine: int = 0) -> LongTermMemory:
    return LongTermMemory(world.store, world.indexes[machine], user="ada", clock=world.clock, new_id=world.new_id)


def message(text: str, id_: str = "") -> Message:
    return Message(role="user", content=text, id=id_)


ALPHA = memory_id(message("alpha"))


def begun(world: World) -> None:
    """Two memories, whose log has grown long, and of which both machines' indexes know."""
    memory(world).add([message("alpha", "m1"), message("beta", "m2")], session="s1")
    for text in ("one", "two", "three", "gamma"):
        memory(world).update(memory_id(message("beta")), text)
    for machine in (0, 1):
        memory(world, machine).search("alpha")


def begun_here(world: World) -> None:
    memory(world).add([message("alpha", "m1"), message("beta", "m2")])
    memory(world).search("alpha")


def kept(world: World) -> dict[str, list[str]]:
    return {each.message.text: [said.session for said in each.occurrences] for each in memory(world).all()}


def check_sound(world: World) -> None:
    """The log tells of every memory, and both indexes find each, and nothing else."""
    memories = memory(world).all()
    assert {each.id for each in memories} == {key for key in world.store.get(ADA) if "\0" not in key}
    for machine in (0, 1):
        memory(world, machine).flush()
        hits = world.indexes[machine].search(ADA, "alpha beta gamma delta epsilon", 9)
        assert {hit.id for hit in hits} == {each.id for each in memories}
    memory(world, 1).add([message("omega")])
    for machine in (0, 1):
        assert [found.text for found in memory(world, machine).search("omega", 1)] == ["omega"]


MEMORIES: dict[str, Part] = {
    "add": lambda world: memory(world).add([message("delta", "m3")], session="s1"),
    "say again": lambda world: memory(world).add([message("alpha", "m9")], session="s2"),
    "correct": lambda world: memory(world).update(ALPHA, "epsilon"),
    "delete": lambda world: memory(world).delete([ALPHA]),
    "forget": lambda world: run(memory(world).forget_flow("s1", ["m1"])),
    "clear": lambda world: memory(world).clear(),
    "search": silently(lambda world: memory(world).search("alpha")),
    "search there": silently(lambda world: memory(world, 1).search("alpha")),
    "rebuild": lambda world: memory(world).rebuild(),
}


def test_a_search_beside_a_rebuild_finds_all_that_is_kept() -> None:
    """Also where the index is dropped once it was brought up to the store."""

    def check(outcome: Outcome) -> None:
        assert outcome.done()[0] == ["alpha"]

    parts = processes(lambda world: [found.text for found in memory(world).search("alpha")], MEMORIES["rebuild"])
    explore(lambda: World(begin=begun_here), parts, check)


@pytest.mark.parametrize("first", MEMORIES)
@pytest.mark.parametrize("second", ["say again", "correct", "forget", "clear"])
def test_memories_beside_another_process(first: str, second: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No update is lost, and what a killed process leaves is sound, also where every write tidies the log."""
    monkeypatch.setattr(keyed, "_WRITES_PER_CHECK", 1)
    monkeypatch.setattr(journal, "_SLACK_ENTRIES", 0)
    parts = [MEMORIES[first], MEMORIES[second]]

    def make() -> World:
        return World(2, begin=begun)

    after = one_after_the_other(make, parts, lambda outcome: (outcome.done(), kept(outcome.store)))

    def check(outcome: Outcome) -> None:
        if not any(isinstance(result, Killed) for result in outcome.results):
            assert (outcome.done(), kept(outcome.store)) in after
        check_sound(outcome.store)

    explore(make, processes(*parts), check, switches=1)
    explore(make, processes(*parts), check, switches=0, deaths=0)
