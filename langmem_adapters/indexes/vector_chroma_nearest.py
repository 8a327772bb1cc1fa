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

_MIN_RESULTS = 1_000  # to ask for: the more, the fewer are missed
_MAX_EXACT_VECTORS = 5_000  # more are not read to compare them all


def nearest(collection: Any, vector: Vector, k: int, quota: int) -> list[tuple[str, float]]:
    """The ``k`` ids with the greatest cosine, as the collection has them. Exact among up to 1,000 vectors.

    No request asks for more than ``quota``; if that is less than 1,000, the result is exact up to that number.
    """
    limit = min(max(k, _MIN_RESULTS), quota)
    result = collection.query(query_embeddings=[list(vector)], n_results=limit, include=["distances"])
    ids, distances = result["ids"][0], result["distances"][0]
    is_complete = len(ids) >= max(limit, k)
    count = len(ids) if is_complete else collection.count()
    if len(ids) < count <= _MAX_EXACT_VECTORS:
        exact_cosines: dict[str, float] = {}
        for offset in range(0, count, quota):
            exact_cosines |= cosines(collection, vector, limit=min(count, quota), offset=offset)
        return sorted(exact_cosines.items(), key=lambda item: -item[1])[:k]
    return [(id_, 1 - float(distance)) for id_, distance in zip(ids[:k], distances[:k], strict=True)]


def cosines(collection: Any, vector: Vector, **filters: Any) -> dict[str, float]:
    """The cosines of the vectors that the collection gives for these arguments, by id."""
    rows = collection.get(include=["embeddings"], **filters)
    values = np.asarray(rows["embeddings"]).reshape(-1, len(vector)) @ np.asarray(vector)
    return dict(zip(rows["ids"], values.tolist(), strict=True))
