"""Late interaction: how near documents come to the pieces of each word of a query (MaxSim).

After O. Khattab and M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT" (2020): each piece of the query is matched with the nearest piece of a document. Only the signs of each
piece's vector are kept; the share of signs that agree approximates the cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = ["max_sim"]

_ASKED = 64  # pieces of a query that are matched; later ones count only in the query's vector
_BEFORE = 0.8  # the factor for a piece that was said just before
_MET = 0.5  # a piece at least this near counts as present
_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def max_sim(
    asked: Sequence[bytes], kept: Mapping[int, bytes], documents: Sequence[tuple[int, int]]
) -> dict[int, float]:
    """By document, from 0 to 1: how near it, or the one before it, comes to the query's pieces, as a weighted mean.

    The fewer documents have a piece, the more it weighs. Documents without stored pieces are left out.

    Args:
        asked: The signs of the pieces of the query.
        kept: The signs of all pieces of a document, one after the other.
        documents: The documents to score, each with what was said just before it.
    """
    size = len(asked[0])
    kept = {number: signs for number, signs in kept.items() if signs and len(signs) % size == 0}
    there = [(number, before) for number, before in documents if number in kept]
    if not there:
        return {}
    nearest = _nearest(asked[:_ASKED], list(kept.values()), size)
    place = {number: n for n, number in enumerate(kept)}
    own = nearest[:, [place[number] for number, _ in there]]
    past = nearest[:, [place.get(before, -1) for _, before in there]]
    having = (own > _MET).sum(axis=1)
    worth = np.log(1 + (len(there) - having + 0.5) / (having + 0.5))
    scores = worth @ np.maximum(own, _BEFORE * past) / worth.sum()
    return dict(zip([number for number, _ in there], scores.tolist(), strict=True))


def _nearest(asked: Sequence[bytes], documents: Sequence[bytes], size: int) -> _Array:
    """By query piece and document: the greatest cosine, at least 0; the last column stands for no document."""
    starts = np.cumsum([0, *(len(signs) // size for signs in documents)])[:-1]
    rows, columns = _words(asked, size), np.ascontiguousarray(_words(documents, size).T)
    differ = np.zeros((len(rows), columns.shape[1]), "u2")
    for row, column in zip(rows.T, columns, strict=True):
        differ += _ones(row[:, None] ^ column)
    nearest = np.zeros((len(asked), len(documents) + 1), "f4")
    np.maximum(1 - np.minimum.reduceat(differ, starts, axis=1) / (4 * size), 0, out=nearest[:, :-1])
    return nearest


def _words(pieces: Sequence[bytes], size: int) -> _Array:
    """One row per piece, 64 signs per number."""
    return np.frombuffer(b"".join(pieces), "u8").reshape(-1, size // 8)


def _counted(words: _Array) -> _Array:
    """Count the bits of each number that are 1, for NumPy before 2."""
    return np.asarray(_COUNTS[words.view("u2")].reshape(*words.shape, 4).sum(axis=-1), "u1")


_COUNTS = np.unpackbits(np.arange(1 << 16, dtype="u2").view("u1").reshape(-1, 2), axis=1).sum(axis=1, dtype="u1")
_ones: Callable[[_Array], _Array] = getattr(np, "bitwise_count", _counted)
