"""Late interaction: how near documents come to the pieces of each word of a query (MaxSim).

After O. Khattab and M. Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT" (2020): each piece of the query is matched with the nearest piece of a document. Only the signs of each
piece's vector are kept; the share of signs that agree approximates the cosine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

_MAX_QUERY_PIECES = 64  # pieces of a query that are matched; later ones count only in the query's vector
_PREVIOUS_FACTOR = 0.8  # the factor for a piece that was said just before
_PRESENT_COSINE = 0.5  # a piece at least this near counts as present
_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def max_sim(
    query_pieces: Sequence[bytes], document_pieces: Mapping[int, bytes], documents: Sequence[tuple[int, int]]
) -> dict[int, float]:
    """By document, from 0 to 1: how near it, or the one before it, comes to the query's pieces, as a weighted mean.

    The fewer documents have a piece, the more it weighs. Documents without stored pieces are left out.

    Args:
        query_pieces: The signs of the pieces of the query.
        document_pieces: By document, the signs of all its pieces, one after the other.
        documents: The documents to score, each with what was said just before it.
    """
    size = len(query_pieces[0])
    document_pieces = {number: signs for number, signs in document_pieces.items() if signs and len(signs) % size == 0}
    scored = [(number, previous) for number, previous in documents if number in document_pieces]
    if not scored:
        return {}
    nearest = _nearest_cosines(query_pieces[:_MAX_QUERY_PIECES], list(document_pieces.values()), size)
    column = {number: index for index, number in enumerate(document_pieces)}
    own_cosines = nearest[:, [column[number] for number, _ in scored]]
    previous_cosines = nearest[:, [column.get(previous, -1) for _, previous in scored]]
    frequency = (own_cosines > _PRESENT_COSINE).sum(axis=1)
    weights = np.log(1 + (len(scored) - frequency + 0.5) / (frequency + 0.5))
    scores = weights @ np.maximum(own_cosines, _PREVIOUS_FACTOR * previous_cosines) / weights.sum()
    return dict(zip([number for number, _ in scored], scores.tolist(), strict=True))


def _nearest_cosines(query_pieces: Sequence[bytes], documents: Sequence[bytes], size: int) -> _Array:
    """By query piece and document: the greatest cosine, at least 0; the last column stands for no document."""
    starts = np.cumsum([0, *(len(signs) // size for signs in documents)])[:-1]
    query_rows = _packed_signs(query_pieces, size)
    document_columns = np.ascontiguousarray(_packed_signs(documents, size).T)
    differing_signs = np.zeros((len(query_rows), document_columns.shape[1]), "u2")
    for row, column in zip(query_rows.T, document_columns, strict=True):
        differing_signs += _popcount(row[:, None] ^ column)
    nearest = np.zeros((len(query_pieces), len(documents) + 1), "f4")
    np.maximum(1 - np.minimum.reduceat(differing_signs, starts, axis=1) / (4 * size), 0, out=nearest[:, :-1])
    return nearest


def _packed_signs(pieces: Sequence[bytes], size: int) -> _Array:
    """One row per piece, 64 signs per number."""
    return np.frombuffer(b"".join(pieces), "u8").reshape(-1, size // 8)


def _count_bits(words: _Array) -> _Array:
    """Count the bits of each number that are 1, for NumPy before 2."""
    return np.asarray(_BIT_COUNTS[words.view("u2")].reshape(*words.shape, 4).sum(axis=-1), "u1")


_BIT_COUNTS = np.unpackbits(np.arange(1 << 16, dtype="u2").view("u1").reshape(-1, 2), axis=1).sum(axis=1, dtype="u1")
_popcount: Callable[[_Array], _Array] = getattr(np, "bitwise_count", _count_bits)
