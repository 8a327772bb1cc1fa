"""What processes do to one cache with a semantic mode, in every order of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.embedding import Embedder
from langmem_adapters.experience import verified
from langmem_adapters.indexes import open_vectors
from langmem_adapters.langchain import ExperienceCache, SemanticMode
from langmem_adapters.langchain.caching.request import request_key
from tests.interleaved_world import Part, World, processes
from tests.interleavings import Outcome, explore

ASKED, ALIKE = (dumps([HumanMessage(f"How {verb} I learn to speak Hindi?")]) for verb in ("do", "can"))


@pytest.fixture(autouse=True)
def _nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search embeds what is behind."""
    monkeypatch.setattr(verified, "submit", lambda _: None)


def topics(texts: Sequence[str]) -> list[list[float]]:
    return [[0.1, float("Hindi" in text)] for text in texts]


def cache(world: World) -> ExperienceCache:
    return ExperienceCache(
        store=world.store,
        semantic=SemanticMode(index=world.indexes[0]),
        clock=world.clock,
        timer=world.clock,
        new_id=world.new_id,
        on_error="raise",
    )


def content(found: list[Generation] | None) -> Any:
    return None if found is None else found[0].message.content  # type: ignore[attr-defined]


def keep(text: str) -> Part:
    return lambda world: cache(world).update(ASKED, "m", [ChatGeneration(message=AIMessage(text))])


def ask_and_keep(world: World) -> None:
    if cache(world).lookup(ASKED, "m") is None:
        keep("asked")(world)


def begun(world: World) -> None:
    world.indexes[0] = open_vectors("memory:", Embedder(topics, name="topics"))
    keep("first")(world)
    assert content(cache(world).lookup(ALIKE, "m")) == "first"


def left_behind(world: World) -> None:
    """An answer is gone, and what was asked is not: who removed it was killed in between."""
    begun(world)
    cache(world).pool.delete(key=request_key(ASKED, "m"))


REMOVALS: dict[str, Part] = {
    "clear": lambda world: cache(world).clear(),
    "invalidate": lambda world: cache(world).invalidate(lambda _: True),
    "invalidate the tag": lambda world: cache(world).invalidate(tag="langchain"),
    "delete": lambda world: cache(world).delete(request_key(ASKED, "m")),
    "ask alike": lambda world: cache(world).lookup(ALIKE, "m"),
}


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize("begin", [begun, left_behind])
@pytest.mark.parametrize("writer", [ask_and_keep, keep("second")], ids=["ask and keep", "keep"])
def test_an_answer_beside_a_removal(removal: str, begin: Part, writer: Part) -> None:
    """Whoever finds an answer by its own words finds the same by others, and nobody finds what was removed."""

    def check(outcome: Outcome) -> None:
        outcome.done()
        outcome.store.clock.advance(100)  # for which nothing stays that was left empty
        found, alike = (content(cache(outcome.store).lookup(asked, "m")) for asked in (ASKED, ALIKE))
        assert alike == found

    explore(lambda: World(begin=begin), processes(REMOVALS[removal], writer), check, switches=1)


@pytest.mark.parametrize("removal", REMOVALS)
def test_the_death_of_a_removal_heals(removal: str) -> None:
    """Nothing is served by its meaning that is not there, and what is kept from then on is."""

    def check(outcome: Outcome) -> None:
        found, alike = (content(cache(outcome.store).lookup(asked, "m")) for asked in (ASKED, ALIKE))
        assert alike in {None, found}
        keep("later")(outcome.store)
        assert content(cache(outcome.store).lookup(ALIKE, "m")) == "later"

    parts = processes(REMOVALS[removal], keep("second"))
    explore(lambda: World(begin=begun), parts, check, switches=0, deaths=0)
