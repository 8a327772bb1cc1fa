"""Files of indexes in which values are damaged, not their structure: SQLite sees no harm, and what reads them does."""

from __future__ import annotations

import math
import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from langmem_adapters.embedding import Embedder, Embedding
from langmem_adapters.errors import ConfigurationError, SearchError, StoreError, StoreUnavailable
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.protocols import Document
from langmem_adapters.stores.sqlite import SQLiteStore

NOTES, OTHERS = ("notes",), ("others",)
BIKE = "My bike is in the shed."
SAID = r"index failed: .*t\.db( holds damaged values: clear or rebuild the index|: \w+ constraint failed)"


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def vector_index(path: Path) -> VectorIndex:
    def directions(texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] if "bike" in text else [0.0, 1.0] for text in texts]

    return VectorIndex(SQLiteVectors(path, disposable=True), Embedder(directions, name="directions"))


def search(index: LexicalIndex | VectorIndex) -> list[str]:
    return [hit.id for hit in index.search(NOTES, "bike", 2)]


def replace(index: LexicalIndex | VectorIndex) -> None:
    index.apply(NOTES, upsert=[Document("1", BIKE)])


def add(index: LexicalIndex | VectorIndex) -> None:
    index.apply(NOTES, upsert=[Document("3", BIKE)])


def read_position(index: LexicalIndex | VectorIndex) -> object:
    return index.position(NOTES)


LEXICAL, VECTOR = "UPDATE langmem_lexical_", "UPDATE langmem_vector_"


@pytest.mark.parametrize(
    ("make", "statement", "call"),
    [
        (LexicalIndex, LEXICAL + "documents SET terms = '[\"bike'", replace),
        (LexicalIndex, LEXICAL + "documents SET terms = CAST(x'5b2262696b65ff225d' AS TEXT)", replace),
        (LexicalIndex, LEXICAL + "documents SET number = number + 7", search),
        (LexicalIndex, LEXICAL + "postings SET tf = 'bike'", search),
        (LexicalIndex, LEXICAL + "postings SET tf = -1", search),
        (LexicalIndex, LEXICAL + "stretches SET number = number + 7", replace),
        (LexicalIndex, LEXICAL + "stretches SET used = 0", add),
        (vector_index, VECTOR + "rows SET vector = x'0000'", search),
        (vector_index, VECTOR + "rows SET vector = x'00000000'", search),
        (vector_index, VECTOR + "rows SET id = CAST(id AS TEXT)", search),
        (vector_index, VECTOR + "namespaces SET embedder = CAST(embedder AS TEXT)", read_position),
    ],
)
def test_they_are_told_in_a_sentence_without_a_text_and_the_file_is_made_anew(
    tmp_path: Path,
    make: Callable[[Path], LexicalIndex | VectorIndex],
    statement: str,
    call: Callable[[LexicalIndex | VectorIndex], object],
) -> None:
    path = tmp_path / "t.db"
    index = LexicalIndex(path, disposable=True) if make is LexicalIndex else make(path)
    index.apply(NOTES, upsert=[Document("1", BIKE)], position=(1, "e"))
    index.apply(OTHERS, upsert=[Document("2", "A garden")])
    index.close()
    damage(path, statement)
    with pytest.raises(SearchError, match=SAID) as refused:
        call(index)
    assert "bike" not in f"{refused.value} {refused.value.__cause__} {refused.value.__context__}"
    index.clear(OTHERS)  # which meets no damage
    assert not path.exists()
    assert search(index) == []
    replace(index)
    assert search(index) == ["1"]
    index.clear(OTHERS)
    assert search(index) == ["1"]  # it is whole by now
    index.close()


@pytest.mark.parametrize("factor", [2.0**64, math.nan, math.inf, 0.5])
def test_a_damaged_vector_is_not_the_nearest_one_and_hides_no_other(tmp_path: Path, factor: float) -> None:
    index = vector_index(tmp_path / "t.db")
    index.apply(NOTES, upsert=[Document("1", BIKE), Document("2", "A garden")])
    index.close()
    vector = array("f", [0.0, factor]).tobytes()
    damage(tmp_path / "t.db", VECTOR + "rows SET vector = ? WHERE id = x'32'", vector)
    for call in (search, lambda index: index.score(NOTES, "bike", ["1"])):
        with pytest.raises(SearchError, match=SAID):
            call(index)
    index.close()


def test_a_damaged_piece_is_told_in_a_sentence(tmp_path: Path) -> None:
    vectors = SQLiteVectors(tmp_path / "t.db")
    index = vector_index(tmp_path / "t.db")
    index.apply(NOTES, upsert=[Document("1", BIKE)])
    maker = index._maker
    embedding = Embedding(array("f", [1.0, 0.0]), (b"\0" * 8,))
    vectors.change("notes/", maker, upsert={"1": embedding}, delete=[], position=None)
    assert list(vectors.max_sim("notes/", maker, [b"\0" * 8], {"1": ""})) == ["1"]
    damage(tmp_path / "t.db", VECTOR + "pieces SET signs = CAST(x'6161616161616161' AS TEXT)")
    with pytest.raises(SearchError, match=SAID):
        vectors.max_sim("notes/", maker, [b"\0" * 8], {"1": ""})
    vectors.close()
    index.close()


def test_what_fails_in_memory_is_no_damage() -> None:
    index = LexicalIndex(":memory:")
    with pytest.raises(AttributeError):
        index.apply(NOTES, position=(1, 7))  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [partial(LexicalIndex, disposable=True), vector_index])
@pytest.mark.parametrize(
    "call",
    [
        lambda index: index.apply(NOTES, delete=[7]),
        lambda index: index.apply(NOTES, upsert=[Document(7, BIKE)]),  # type: ignore[arg-type]
        lambda index: index.search(NOTES, "bike", 1.5),
    ],
)
def test_wrong_arguments_are_no_damage_for_which_a_file_is_removed(
    tmp_path: Path,
    make: Callable[[Path], LexicalIndex | VectorIndex],
    call: Callable[[LexicalIndex | VectorIndex], object],
) -> None:
    index = make(tmp_path / "t.db")
    index.apply(NOTES, upsert=[Document("1", BIKE), Document("2", "A garden")])
    index.apply(OTHERS, upsert=[Document("1", BIKE)])
    with pytest.raises(ConfigurationError):
        call(index)
    index.clear(NOTES)
    assert [hit.id for hit in index.search(OTHERS, "bike", 1)] == ["1"]
    index.close()


def test_a_store_whose_names_are_damaged_quotes_none_of_them(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "t.db")
    store.append(("notes", "ada"), [("1", b"x")])
    store.close()
    damage(tmp_path / "t.db", "UPDATE langmem_namespaces SET name = CAST(x'6e6f7465732fff6c6f636b65642f' AS TEXT)")
    with pytest.raises(StoreError, match=r"t\.db holds a damaged text$") as refused:
        list(store.namespaces())
    assert not isinstance(refused.value, StoreUnavailable)  # the text says "locked"
    store.close()
