"""The first look in 8 bits: it leaves out nothing that is among the nearest, and is taken where it pays."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import random
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_adapters.embedding import Embedding, Vector
from langmem_adapters.indexes import vector_matrix, vector_quantized
from langmem_adapters.indexes.vector import EmbedderSpec
from langmem_adapters.indexes.vector_matrix import MatrixState
from langmem_adapters.indexes.vector_quantized import quantize
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors

SIZE = 48
MAKER = EmbedderSpec("test", SIZE)


class Slow:
    """What simsimd does, without it."""

    @staticmethod
    def cdist(queries: Any, rows: Any, metric: str) -> Any:
        assert (queries.dtype, rows.dtype, metric) == (np.int8, np.int8, "dot")
        return queries.astype("i8") @ rows.T.astype("i8")


INSTALLED = ["installed"] if importlib.util.find_spec("simsimd") else []


@pytest.fixture(params=["written out", *INSTALLED])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With something that multiplies 8 bits: that of the package, where it is installed, and one written out."""
    monkeypatch.setattr(vector_matrix, "_CACHED_SIZE", 0)  # however small a namespace is
    if request.param == "written out":
        for module in (vector_matrix, vector_quantized):
            monkeypatch.setattr(module, "kernels", lambda: Slow)


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[SQLiteVectors]:
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as opened:
        yield opened


def unit(numbers: list[float]) -> Vector:
    return array("f", [x / math.hypot(*numbers) for x in numbers])


def directions(chance: random.Random, count: int, spread: float, outlier: float = 0.0) -> list[Vector]:
    centre = [chance.gauss(0, 1) for _ in range(SIZE)]
    raw = [[x + spread * chance.gauss(0, 1) for x in centre] for _ in range(count)]
    return [unit([numbers[0] + outlier, *numbers[1:]]) for numbers in raw]


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def put(vectors: SQLiteVectors, upsert: dict[str, Vector], delete: list[str] | None = None) -> None:
    new = {id_: Embedding(vector) for id_, vector in upsert.items()}
    vectors.change("n/", MAKER, upsert=new, delete=delete or [], position=None)


def matrix_size(vectors: SQLiteVectors) -> int:
    return vectors._matrices["n/"].size


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("outlier", [0.0, 40.0])
@pytest.mark.parametrize("spread", [100.0, 1.0, 1e-2, 1e-4, 0.0])
def test_the_order_is_exact_however_near_the_vectors_are(vectors: SQLiteVectors, spread: float, outlier: float) -> None:
    chance = random.Random(7)
    known = {f"d{n}": vector for n, vector in enumerate(directions(chance, 1_500, spread, outlier))}
    put(vectors, known)
    for k in (1, 5, 300, 2_000):
        query = directions(chance, 1, 1.0)[0]
        found = vectors.nearest("n/", MAKER, query, k)
        expected = sorted(known, key=lambda id_: (-dot(known[id_], query), -int(id_[1:])))[:k]
        assert [cosine for _, cosine in found] == pytest.approx([dot(known[id_], query) for id_ in expected], abs=1e-12)
        assert [id_ for id_, _ in found] == expected


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("first", ["rough", "exact"])
def test_rows_may_be_as_far_off_as_the_worst_of_any_change(vectors: SQLiteVectors, first: str) -> None:
    rough = directions(random.Random(2), 1, 1.0)[0]
    known = {"rough": rough, "exact": unit([1.0] * SIZE)}
    for id_ in sorted(known, key=lambda id_: id_ != first):
        put(vectors, {id_: known[id_]})
        vectors.nearest("n/", MAKER, rough, 1)
    quantized = vectors._matrices["n/"].snapshot().quantized
    assert quantized is not None
    assert quantized.error == quantize(np.array([rough])).error > quantize(np.array([known["exact"]])).error


@pytest.mark.usefixtures("kernels")
def test_where_it_leaves_few_no_other_look_is_taken(vectors: SQLiteVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    known = {f"d{n}": vector for n, vector in enumerate(directions(chance, 2_000, 100.0))}
    looks: list[int] = []

    def look(seen: MatrixState, query: Any) -> Any:
        looks.append(1)
        return seen.vectors @ query

    monkeypatch.setattr(MatrixState, "_cosines", look)
    put(vectors, known)
    for id_ in ("d3", "d999", "d1999"):
        assert vectors.nearest("n/", MAKER, known[id_], 1)[0][0] == id_
    assert looks == []
    put(vectors, dict.fromkeys(known, known["d3"]))
    assert [id_ for id_, _ in vectors.nearest("n/", MAKER, known["d3"], 2)] == ["d1999", "d1998"]
    assert looks == [1]


def test_a_small_namespace_is_looked_at_once(vectors: SQLiteVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(zip(("a", "b", "c"), directions(random.Random(4), 3, 1.0), strict=True))
    put(vectors, known)

    def refuse(*_: Any) -> Any:
        raise AssertionError("a first look")

    monkeypatch.setattr(vector_quantized.QuantizedRows, "cosines", refuse)
    assert [id_ for id_, _ in vectors.nearest("n/", MAKER, known["b"], 1)] == ["b"]
    monkeypatch.setattr(vector_matrix, "_CACHED_SIZE", 3 * SIZE - 1)
    monkeypatch.setattr(vector_matrix, "kernels", lambda: Slow)
    vectors.close()
    with pytest.raises(AssertionError, match="a first look"):
        vectors.nearest("n/", MAKER, known["b"], 1)


@pytest.mark.usefixtures("kernels")
def test_whatever_is_added_and_removed_the_results_are_those_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(2)
    with (
        contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as quantized,
        contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as plain,
    ):
        monkeypatch.setattr(plain, "_get_matrix", _without_a_first_look(plain, monkeypatch))
        ids = [f"d{n}" for n in range(600)]
        for _ in range(40):
            fresh = dict(zip(chance.sample(ids, 60), directions(chance, 60, 100.0), strict=True))
            put(quantized, fresh, chance.sample(ids, chance.choice([0, 5, 150])))
            query = directions(chance, 1, 100.0)[0]
            for k in (1, 7):
                assert quantized.nearest("n/", MAKER, query, k) == plain.nearest("n/", MAKER, query, k)
        assert quantized._matrices["n/"].snapshot().quantized is not None
        assert plain._matrices["n/"].snapshot().quantized is None


def _without_a_first_look(vectors: SQLiteVectors, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = vectors._get_matrix

    def matrix(name: str) -> Any:
        found = made(name)
        monkeypatch.setattr(found, "_quantize_rows", lambda *_: None)
        return found

    return matrix


@pytest.mark.usefixtures("kernels")
def test_its_memory_counts(vectors: SQLiteVectors, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    put(vectors, {f"d{n}": vector for n, vector in enumerate(directions(chance, 100, 1.0))})
    query = directions(chance, 1, 1.0)[0]
    vectors.nearest("n/", MAKER, query, 1)
    size = matrix_size(vectors)
    vectors.close()
    monkeypatch.setattr(vector_matrix, "kernels", lambda: None)
    vectors.nearest("n/", MAKER, query, 1)
    assert size - matrix_size(vectors) == 100 * SIZE


NUMBERS = st.lists(st.floats(-1, 1, width=32), min_size=SIZE, max_size=SIZE).filter(lambda row: math.hypot(*row) > 1e-3)


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=2, max_size=6), NUMBERS)
def test_no_two_cosines_are_further_off_than_it_says(rows: list[list[float]], asked: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_quantized, "kernels", lambda: Slow)
        matrix = np.array([unit(row) for row in rows], "f4")
        query = np.array(unit(asked), "f4")
        roughly, off = quantize(matrix).cosines(query)
    exact = matrix.astype("f8") @ query.astype("f8")
    assert np.abs(roughly - exact).max() <= off / 2
    assert off < 0.25


@pytest.mark.parametrize("of_the_query", [True, False])
def test_what_is_left_out_of_either_may_all_be_missing(monkeypatch: pytest.MonkeyPatch, of_the_query: bool) -> None:
    monkeypatch.setattr(vector_quantized, "kernels", lambda: Slow)
    flat = np.array(unit([1.0] * SIZE), "f4")  # nothing is left out of it
    high = np.array(unit([127.0, *[5.45] * (SIZE - 1)]), "f4")  # as much as can be, and always in one direction
    rows, query = (flat, high) if of_the_query else (high, flat)
    roughly, off = quantize(rows.reshape(1, -1)).cosines(query)
    missing = abs(float(roughly[0]) - float(flat.astype("f8") @ high.astype("f8")))
    assert 0.9 * off / 2 < missing < off / 2


def test_rounding_says_what_it_leaves_out() -> None:
    rows = np.array([unit([1.0, *[0.0] * (SIZE - 1)]), unit([1.0] * SIZE)], "f4")
    codes, _, error = quantize(rows)
    assert codes.dtype == np.int8
    assert (codes[0].max(), codes[1].min()) == (127, 127)
    assert error < 1e-6
    rows[0, 1] = 0.4 / 127
    assert quantize(rows).error == pytest.approx(0.4 / 127, rel=1e-3)


def test_without_the_package_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "simsimd", None)
    vector_quantized.kernels.cache_clear()
    try:
        assert vector_quantized.kernels() is None
    finally:
        vector_quantized.kernels.cache_clear()
