"""What several processes share in tests of their orders: a store, indexes of it on some machines, and a clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from tests.interleavings import Gated, Outcome, explore, gated

__all__ = ["World", "one_after_the_other", "processes", "silently"]

Part = Callable[["World"], Any]
"""What a process does."""


class GatedIndex(Gated):
    """An index by words whose calls wait for their turn, as those of a store do."""


class GatedVectors(Gated):
    """The same by meaning."""


_BOTH = ("apply", "position", "search")
for _gate, _of, _names in (
    (GatedIndex, LexicalIndex, (*_BOTH, "nameless", "within", "gather")),
    (GatedVectors, VectorIndex, (*_BOTH, "score", "refused")),
):
    for _name in _names:
        assert hasattr(_of, _name)
        setattr(_gate, _name, gated(_name))  # as a class that is asked what index it is looks at itself alone


class World:
    """As it is, or as a process sees it, whose calls wait for their turn."""

    def __init__(self, machines: int = 1, begin: Part = lambda _: None) -> None:
        self.clock = FakeClock(1000.0)
        self.store: Any = MemoryStore(clock=self.clock)
        self.target: Any = MemoryStore(clock=self.clock)  # of a migration
        self.indexes: list[Any] = [LexicalIndex(":memory:") for _ in range(machines)]
        self.calls: list[Any] = []
        self._ids = itertools.count()
        begin(self)

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    def turn(self, name: str) -> None:
        """Let others go before."""

    def seen_by(self, turn: Callable[[str], None]) -> World:
        """The same world, through a process's eyes."""
        world = object.__new__(World)
        world.__dict__.update(self.__dict__)
        world.turn = turn  # type: ignore[method-assign, assignment]
        world.store, world.target = Gated(self.store, turn), Gated(self.target, turn)
        world.indexes = [
            GatedVectors(index, turn) if isinstance(index, VectorIndex) else GatedIndex(index, turn)
            for index in self.indexes
        ]
        return world


def processes(*parts: Part) -> list[Callable[[Any], Any]]:
    """Each part as a process of its own."""
    return [lambda gated, part=part: part(gated._store.seen_by(gated._turn)) for part in parts]  # type: ignore[misc]


def one_after_the_other(make: Callable[[], World], parts: Sequence[Part], seen: Callable[[Outcome], Any]) -> list[Any]:
    """What comes of processes that do not disturb each other, whichever is the first."""
    found: list[Any] = []
    explore(make, processes(*parts), lambda outcome: found.append(seen(outcome)), switches=0)
    return found


def silently(part: Part) -> Part:
    """What was found is not compared."""

    def silent(world: World) -> None:
        part(world)

    return silent
