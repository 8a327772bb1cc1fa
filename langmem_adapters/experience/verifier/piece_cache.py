"""A cache of results by piece of text (between two blanks), as most pieces are words that were met before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["of_each"]

_LONGEST = 60  # characters of a cached piece
_MOST = 1 << 14  # cached pieces
_Read = TypeVar("_Read")


class _Memory(dict[str, _Read]):
    """Results by piece; all are dropped when there are too many."""

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
    """Turn a function of one piece into one of several pieces, with a cache."""
    memory = _Memory(reads)
    return lambda pieces: map(memory.__getitem__, pieces)
