"""A cache of results by piece of text (between two blanks), as most pieces are words that were met before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_MAX_PIECE_CHARS = 60
_MAX_PIECES = 1 << 14
_Result = TypeVar("_Result")


class _Cache(dict[str, _Result]):
    """Results by piece; all are dropped when there are too many."""

    def __init__(self, compute: Callable[[str], _Result]) -> None:
        self._compute = compute

    def __missing__(self, piece: str) -> _Result:
        result = self._compute(piece)
        if len(piece) <= _MAX_PIECE_CHARS:
            if len(self) >= _MAX_PIECES:
                self.clear()
            self[piece] = result
        return result


def cached_per_piece(compute: Callable[[str], _Result]) -> Callable[[Iterable[str]], Iterator[_Result]]:
    """Turn a function of one piece into one of several pieces, with a cache."""
    cache = _Cache(compute)
    return lambda pieces: map(cache.__getitem__, pieces)
