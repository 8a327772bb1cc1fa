"""The vectors of one namespace in memory, searched exactly by NumPy."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from langmem_adapters.errors import MissingDependency

try:
    import numpy as np
except ImportError as error:
    raise MissingDependency("numpy", "vectors") from error

from langmem_adapters.indexes.vector_quantized import QuantizedRows, kernels, quantize

_BLOCK_SIZE = 400_000  # numbers multiplied at a time; with more, BLAS wakes threads, which costs ms on a busy machine
_EXACT_BLOCK_SIZE = 12_000  # numbers converted to 64 bits at a time; for more, memory is requested from the system
_CACHED_SIZE = 1_500_000  # numbers that fit into a processor's caches, which takes half the time of a first pass
_MIN_REDUCTION = 8  # a first pass pays if it leaves at most one row of so many
_LENGTH_TOLERANCE = 1e-3  # of a squared length
_COSINE_TOLERANCE = 2e-5  # twice the error of a cosine in 32 bits; cosines this close are compared in 64
_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def pack_vector(vector: Sequence[float]) -> bytes:
    """A vector as it is stored: 32-bit floats, the lowest byte first."""
    return np.asarray(vector, "<f4").tobytes()


class MatrixState(NamedTuple):
    """A snapshot of a namespace, which later changes do not affect."""

    vectors: _Array
    ids: list[bytes]
    is_alive: _Array
    living_count: int
    quantized: QuantizedRows | None

    def nearest(self, vector: Sequence[float], k: int) -> list[tuple[bytes, float]]:
        """The ``k`` ids with the greatest cosine, greatest first; of equal ones the one added last comes first."""
        query = np.asarray(vector, "f4")
        quantized = None if self.vectors.size <= _CACHED_SIZE else self.quantized
        rows = None if quantized is None else self._candidate_rows(*quantized.cosines(query), k)
        if rows is None or len(rows) * _MIN_REDUCTION > len(self.vectors):
            rows = self._candidate_rows(self._cosines(query), _COSINE_TOLERANCE, k)
        cosines = _exact_cosines(self.vectors, rows, query)
        order = np.lexsort((-rows, -cosines))[:k]
        nearest = zip(rows[order].tolist(), cosines[order].tolist(), strict=True)
        return [(self.ids[row], cosine) for row, cosine in nearest]

    def _cosines(self, query: _Array) -> _Array:
        cosines = np.empty(len(self.vectors), "f4")
        step = max(_BLOCK_SIZE // len(query), 1)
        for start in range(0, len(cosines), step):
            np.matmul(self.vectors[start : start + step], query, out=cosines[start : start + step])
        return cosines

    def _candidate_rows(self, cosines: _Array, tolerance: float, k: int) -> _Array:
        """The living rows that may be among the ``k`` nearest, if two cosines may be off by ``tolerance`` together."""
        if self.living_count < len(cosines):
            cosines[~self.is_alive] = -np.inf
        kth = len(cosines) - min(k, self.living_count)
        return np.flatnonzero(cosines >= np.partition(cosines, kth)[kth] - tolerance)


def _exact_cosines(vectors: _Array, rows: _Array, query: _Array) -> _Array:
    """The cosines of some rows in 64 bits: equal ones for equal rows, which BLAS does not promise."""
    cosines = np.empty(len(rows), "f8")
    query = query.astype("f8")
    step = max(_EXACT_BLOCK_SIZE // len(query), 1)
    for start in range(0, len(rows), step):
        np.einsum("ij,j->i", vectors[rows[start : start + step]].astype("f8"), query, out=cosines[start : start + step])
    return cosines


class Matrix:
    """Rows in the order of their ever-rising numbers; changing them requires the lock.

    A buffer is only ever written beyond the end of what has been handed out.
    """

    def __init__(self) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.reset(0)

    def reset(self, namespace: int) -> None:
        """Be empty, for a namespace."""
        self.namespace = namespace
        self.last_removal: tuple[int, int] = (0, 0)  # the number of the last removal that was applied here, and its row
        self._count = 0
        self.living_count: int = 0  # rows that are not removed
        self._vectors: _Array = np.empty((0, 0), "<f4")
        self._numbers: _Array = np.empty(0, "i8")
        self._is_alive: _Array = np.empty(0, bool)
        self._quantized: QuantizedRows | None = None
        self._ids: list[bytes] = []
        self._rows: dict[bytes, int] = {}  # the last row of each id

    @property
    def size(self) -> int:
        """The size in bytes, roughly."""
        quantized = 0 if self._quantized is None else self._quantized.codes.nbytes
        return int(self._vectors.nbytes + quantized) + 200 * len(self._ids)

    @property
    def newest(self) -> tuple[int, bytes]:
        """The highest number that was ever added, and its id."""
        if not self._count:
            return 0, b""
        return int(self._numbers[self._count - 1]), self._ids[self._count - 1]

    def extend(self, rows: list[tuple[int, bytes, bytes]], expected: int) -> None:
        """Add ``(number, id, stored vector)``; the total will be ``expected``, or more.

        Raises ValueError for a damaged vector: one would be the nearest to every query, or hide all others.
        """
        start, end = self._count, self._count + len(rows)
        numbers, ids, stored_vectors = zip(*rows, strict=True)
        new_vectors = np.frombuffer(b"".join(stored_vectors), "<f4").reshape(len(rows), -1)
        squared_lengths = np.einsum("ij,ij->i", new_vectors, new_vectors)
        if not (abs(squared_lengths - 1) < _LENGTH_TOLERANCE).all():
            raise ValueError("a vector has not the length 1")
        if end > len(self._numbers):
            capacity = max(end, expected, start * 5 // 4)
            self._vectors = _resized(self._vectors.reshape(-1, new_vectors.shape[1]), capacity)
            self._numbers = _resized(self._numbers, capacity)
            self._is_alive = _resized(self._is_alive, capacity)
        self._vectors[start:end] = new_vectors
        self._numbers[start:end] = numbers
        self._is_alive[start:end] = True
        self._quantize_rows(start, end)
        self._ids.extend(ids)
        self._rows.update((id_, row) for row, id_ in enumerate(ids, start))
        self._count = end
        self.living_count += len(rows)

    def _quantize_rows(self, start: int, end: int) -> None:
        """Quantize new rows to 8 bits too, if that is of use."""
        if kernels() is None:
            return
        new_rows = quantize(self._vectors[start:end])
        codes, scale, error = self._quantized or QuantizedRows(new_rows.codes[:0], new_rows.scale[:0], 0.0)
        if len(scale) < len(self._numbers):
            codes, scale = _resized(codes, len(self._numbers)), _resized(scale, len(self._numbers))
        codes[start:end], scale[start:end] = new_rows.codes, new_rows.scale
        self._quantized = QuantizedRows(codes, scale, max(error, new_rows.error))

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove those rows of ``numbers`` that exist."""
        removed = np.fromiter(numbers, "i8")
        if len(removed):
            self._apply_mask(~np.isin(self._numbers[: self._count], removed))

    def retain(self, numbers: Iterable[int]) -> None:
        """Remove all rows except those of ``numbers``."""
        self._apply_mask(np.isin(self._numbers[: self._count], np.fromiter(numbers, "i8")))

    def snapshot(self) -> MatrixState:
        """A snapshot of the current state."""
        vectors, alive, quantized = self._vectors[: self._count], self._is_alive[: self._count], self._quantized
        if quantized is not None:
            quantized = QuantizedRows(quantized.codes[: self._count], quantized.scale[: self._count], quantized.error)
        return MatrixState(vectors, self._ids, alive, self.living_count, quantized)

    def row_numbers(self, ids: Iterable[bytes]) -> list[int]:
        """The number of the last row of each id, even if it was removed; 0 for an unknown id."""
        numbers = self._numbers
        return [0 if row is None else int(numbers.item(row)) for row in map(self._rows.get, ids)]

    def cosines(self, vector: Sequence[float], ids: Sequence[bytes]) -> list[float | None]:
        """The cosine of each id; None for one that does not exist."""
        rows: list[int | None] = list(map(self._rows.get, ids))
        if self.living_count < self._count:
            rows = [row if row is not None and self._is_alive[row] else None for row in rows]
        existing = [row for row in rows if row is not None]
        query = np.asarray(vector, "f4")
        cosines: list[float | None] = _exact_cosines(self._vectors, np.array(existing, "i8"), query).tolist()
        if len(cosines) == len(rows):
            return cosines
        cosine_by_row = dict(zip(existing, cosines, strict=True))
        return [None if row is None else cosine_by_row[row] for row in rows]

    def _apply_mask(self, mask: _Array) -> None:
        is_alive = self._is_alive[: self._count] & mask
        self.living_count = int(is_alive.sum())
        if 2 * self.living_count >= self._count:
            self._is_alive = _resized(is_alive, len(self._numbers))
            return
        self._vectors = self._vectors[: self._count][is_alive]
        self._numbers = self._numbers[: self._count][is_alive]
        if self._quantized is not None:
            codes, scale, error = self._quantized
            self._quantized = QuantizedRows(codes[: self._count][is_alive], scale[: self._count][is_alive], error)
        self._ids = [id_ for id_, alive in zip(self._ids, is_alive.tolist(), strict=True) if alive]
        self._rows = {id_: row for row, id_ in enumerate(self._ids)}
        self._count = self.living_count
        self._is_alive = np.ones(self._count, bool)


def _resized(values: _Array, capacity: int) -> _Array:
    resized = np.empty((capacity, *values.shape[1:]), values.dtype)
    resized[: len(values)] = values
    return resized
