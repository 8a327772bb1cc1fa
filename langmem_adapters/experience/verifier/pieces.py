"""What is read of each piece of a text between two blanks, remembered: most pieces are words that were met before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["of_each"]

_LONGEST = 60  # characters of what is remembered
_MOST = 1 << 14  # pieces that are remembered at a time
_Read = TypeVar("_Read")


class _Memory(dict[str, _Read]):
    """What was read of pieces; all of it is forgotten where it becomes too much."""

    def __init__(self, reads: Callable[[str], _Read]) -> None:
        self._reads = reads

    def __missing__(self, piece: str) -> _Read:
        found = self._reads(piece)
        if len(piece) <= _LONGEST:
            if len(self) >= _MOST:
                self.clear()
            self[piece] = found
        return found


def of_each(reads: Callable[[str], _Read]) -> Callable[[Iterable[str]], Iterator[_Read]]:
    """Make a function of one piece one of several, which remembers what it said of a piece."""
    memory = _Memory(reads)
    return lambda pieces: map(memory.__getitem__, pieces)
