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

__all__ = ["Matrix", "MatrixState", "packed"]

_BLOCK = 400_000  # numbers multiplied at a time; with more, BLAS wakes threads, which costs ms on a busy machine
_SHARE = 12_000  # numbers converted to 64 bits at a time; memory for more is requested from the system each time
_NEAR = 1_500_000  # numbers that fit into a processor's caches: multiplying these takes half as long as a first pass
_FEW = 8  # a first pass pays if it leaves at most one row of so many
_ROUNDING = 2e-5  # twice the error of a cosine in 32 bits; cosines this close are compared in 64
_Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


def packed(vector: Sequence[float]) -> bytes:
    """A vector as it is stored: 32-bit floats, the lowest byte first."""
    return np.asarray(vector, "<f4").tobytes()


class MatrixState(NamedTuple):
    """A snapshot of a namespace, which later changes do not affect."""

    vectors: _Array
    ids: list[bytes]
    alive: _Array
    living: int
    quantized: QuantizedRows | None

    def nearest(self, vector: Sequence[float], k: int) -> list[tuple[bytes, float]]:
        """The ``k`` ids with the greatest cosine, greatest first; of equal ones the one added last comes first."""
        query = np.asarray(vector, "f4")
        rough = None if self.vectors.size <= _NEAR else self.quantized
        chosen = None if rough is None else self._within(*rough.cosines(query), k)
        if chosen is None or len(chosen) * _FEW > len(self.vectors):
            chosen = self._within(self._cosines(query), _ROUNDING, k)
        exact = _exact(self.vectors, chosen, query)
        order = np.lexsort((-chosen, -exact))[:k]
        return [(self.ids[n], cosine) for n, cosine in zip(chosen[order].tolist(), exact[order].tolist(), strict=True)]

    def _cosines(self, query: _Array) -> _Array:
        cosines = np.empty(len(self.vectors), "f4")
        step = max(_BLOCK // len(query), 1)
        for n in range(0, len(cosines), step):
            np.matmul(self.vectors[n : n + step], query, out=cosines[n : n + step])
        return cosines

    def _within(self, cosines: _Array, off: float, k: int) -> _Array:
        """The living rows that may be among the ``k`` nearest, if two cosines may be ``off`` together."""
        if self.living < len(cosines):
            cosines[~self.alive] = -np.inf
        last = len(cosines) - min(k, self.living)
        return np.flatnonzero(cosines >= np.partition(cosines, last)[last] - off)


def _exact(vectors: _Array, rows: _Array, query: _Array) -> _Array:
    """The cosines of some rows in 64 bits: equal ones for equal rows, which BLAS does not promise."""
    cosines = np.empty(len(rows), "f8")
    query = query.astype("f8")
    step = max(_SHARE // len(query), 1)
    for n in range(0, len(rows), step):
        np.einsum("ij,j->i", vectors[rows[n : n + step]].astype("f8"), query, out=cosines[n : n + step])
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
        self.last_gone: tuple[int, int] = (0, 0)  # the number of the last removal that was applied here, and its row
        self._count = 0
        self.living: int = 0  # rows that are not removed
        self._vectors: _Array = np.empty((0, 0), "<f4")
        self._numbers: _Array = np.empty(0, "i8")
        self._alive: _Array = np.empty(0, bool)
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
        return (int(self._numbers[self._count - 1]), self._ids[self._count - 1]) if self._count else (0, b"")

    def extend(self, rows: list[tuple[int, bytes, bytes]], expected: int) -> None:
        """Add ``(number, id, stored vector)``; the total will be ``expected``, or more."""
        start, end = self._count, self._count + len(rows)
        added = np.frombuffer(b"".join(row[2] for row in rows), "<f4").reshape(len(rows), -1)
        if end > len(self._numbers):
            room = max(end, expected, start * 5 // 4)
            self._vectors = _grown(self._vectors.reshape(-1, added.shape[1]), room)
            self._numbers = _grown(self._numbers, room)
            self._alive = _grown(self._alive, room)
        self._vectors[start:end] = added
        self._numbers[start:end] = [row[0] for row in rows]
        self._alive[start:end] = True
        self._round(start, end)
        self._ids.extend(row[1] for row in rows)
        self._rows.update((row[1], n) for n, row in enumerate(rows, start))
        self._count = end
        self.living += len(rows)

    def _round(self, start: int, end: int) -> None:
        """Quantize new rows to 8 bits too, if that is of use."""
        if kernels() is None:
            return
        new, old = quantize(self._vectors[start:end]), self._quantized
        codes, scale, error = (new.codes[:0], new.scale[:0], 0.0) if old is None else old
        if len(scale) < len(self._numbers):
            codes, scale = _grown(codes, len(self._numbers)), _grown(scale, len(self._numbers))
        codes[start:end], scale[start:end] = new.codes, new.scale
        self._quantized = QuantizedRows(codes, scale, max(error, new.error))

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove those rows of ``numbers`` that are there."""
        gone = np.fromiter(numbers, "i8")
        if len(gone):
            self._keep(~np.isin(self._numbers[: self._count], gone))

    def keep(self, numbers: Iterable[int]) -> None:
        """Remove all rows except those of ``numbers``."""
        self._keep(np.isin(self._numbers[: self._count], np.fromiter(numbers, "i8")))

    def seen(self) -> MatrixState:
        """A snapshot of the current state."""
        vectors, alive, quantized = self._vectors[: self._count], self._alive[: self._count], self._quantized
        if quantized is not None:
            quantized = QuantizedRows(quantized.codes[: self._count], quantized.scale[: self._count], quantized.error)
        return MatrixState(vectors, self._ids, alive, self.living, quantized)

    def numbers(self, ids: Iterable[bytes]) -> list[int]:
        """The number of the last row of each id, even if it was removed; 0 for an unknown id."""
        numbers = self._numbers
        return [0 if n is None else int(numbers.item(n)) for n in map(self._rows.get, ids)]

    def cosines(self, vector: Sequence[float], ids: Sequence[bytes]) -> list[float | None]:
        """The cosine of each id; None for one that is not there."""
        rows: list[int | None] = list(map(self._rows.get, ids))
        if self.living < self._count:
            rows = [n if n is not None and self._alive[n] else None for n in rows]
        there = [n for n in rows if n is not None]
        near: list[float | None] = _exact(self._vectors, np.array(there, "i8"), np.asarray(vector, "f4")).tolist()
        if len(near) == len(rows):
            return near
        found = dict(zip(there, near, strict=True))
        return [None if n is None else found[n] for n in rows]

    def _keep(self, kept: _Array) -> None:
        alive = self._alive[: self._count] & kept
        self.living = int(alive.sum())
        if 2 * self.living >= self._count:
            self._alive = _grown(alive, len(self._numbers))
            return
        self._vectors = self._vectors[: self._count][alive]
        self._numbers = self._numbers[: self._count][alive]
        if self._quantized is not None:
            codes, scale, error = self._quantized
            self._quantized = QuantizedRows(codes[: self._count][alive], scale[: self._count][alive], error)
        self._ids = [id_ for id_, lives in zip(self._ids, alive.tolist(), strict=True) if lives]
        self._rows = {id_: n for n, id_ in enumerate(self._ids)}
        self._count = self.living
        self._alive = np.ones(self._count, bool)


def _grown(values: _Array, room: int) -> _Array:
    grown = np.empty((room, *values.shape[1:]), values.dtype)
    grown[: len(values)] = values
    return grown
