"""The nearest vectors of a Chroma collection, even if its graph does not lead to all of them.

Chroma searches a graph (HNSW), which is approximate. Among many vectors that are nearly the same, such as those of one
sentence said again and again, the graph falls into parts, and no search gets from one to another: a vector unlike the
rest, often the one that is looked for, is never found. It shows by fewer results than there are vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from langmem_adapters.embedding import Vector

__all__ = ["cosines", "nearest"]

_ASKED = 1_000  # results that are asked for: the more, the fewer are missed
_EXACT = 5_000  # the most vectors that are read to compare them all


def nearest(collection: Any, vector: Vector, k: int, most: int) -> list[tuple[str, float]]:
    """The ``k`` ids with the greatest cosine, as the collection has them. Exact among up to 1,000 vectors.

    No request asks for more than ``most``; if that is less than 1,000, the result is exact up to that number.
    """
    asked = min(max(k, _ASKED), most)
    found = collection.query(query_embeddings=[list(vector)], n_results=asked, include=["distances"])
    ids, distances = found["ids"][0], found["distances"][0]
    if len(ids) < max(asked, k) and len(ids) < (there := collection.count()) <= _EXACT:
        compared: dict[str, float] = {}
        for n in range(0, there, most):
            compared |= cosines(collection, vector, limit=min(there, most), offset=n)
        return sorted(compared.items(), key=lambda one: -one[1])[:k]
    return [(id_, 1 - float(distance)) for id_, distance in zip(ids[:k], distances[:k], strict=True)]


def cosines(collection: Any, vector: Vector, **which: Any) -> dict[str, float]:
    """The cosines of the vectors that the collection gives for these arguments, by id."""
    rows = collection.get(include=["embeddings"], **which)
    near = np.asarray(rows["embeddings"]).reshape(-1, len(vector)) @ np.asarray(vector)
    return dict(zip(rows["ids"], near.tolist(), strict=True))
