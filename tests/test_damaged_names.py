"""SQLite files whose own tables have damaged names: what SQLite says of them may be no UTF-8, or more than a line."""

from __future__ import annotations

from array import array
from itertools import islice
from pathlib import Path

import pytest

from langmem_adapters.embedding import Embedding
from langmem_adapters.errors import SearchError, StoreError, StoreUnavailable
from langmem_adapters.files.scrubbing import namespaces_in, scrub
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import EmbedderSpec
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.protocols import Document
from langmem_adapters.stores.sqlite import SQLiteStore

NOTES = ("notes",)
MAKER = EmbedderSpec("letters", 2)
EAST = array("f", [1.0, 0.0])


def replace(path: Path, old: bytes, new: bytes) -> bytes:
    content = path.read_bytes()
    assert old in content
    changed = content.replace(old, new)
    path.write_bytes(changed)
    return changed


@pytest.mark.parametrize("damaged", [b"CREATE\xffTABLE ", b"CREATE\x1bTABLE ", b"CREATE TABLE`"])
def test_a_store_is_refused_in_a_sentence_and_stays_as_it_is(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "t.db"
    store = SQLiteStore(path)
    store.append(NOTES, [("1", b"x")])
    store.close()
    content = replace(path, b"CREATE TABLE langmem_namespaces", damaged + b"langmem_namespaces")
    for call in (
        lambda: store.get(NOTES),
        lambda: store.get(NOTES, ["k"]),
        lambda: store.append(NOTES, [("2", b"y")]),
        lambda: store.clear(NOTES),
        lambda: [*store.namespaces()],
        store.vacuum,
        lambda: scrub(store),
        lambda: namespaces_in(store, NOTES, kind="store"),
    ):
        with pytest.raises(StoreError, match=r"t\.db: malformed database schema") as refused:
            call()
        assert not isinstance(refused.value, StoreUnavailable)
        assert str(refused.value).isprintable()
    (problem,) = (finding.message for finding in store.examine() if finding.level == "problem")
    assert f"it is damaged: {str(refused.value).partition(': ')[2]}" == problem
    assert path.read_bytes() == content
    replace(path, damaged + b"langmem_namespaces", b"CREATE TABLE langmem_namespaces")
    assert [item.id for item in store.scan(NOTES).items] == ["1"]
    store.close()


def test_names_out_of_order_are_not_listed_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = SQLiteStore(path)
    for user in ("ada", "bob", "zoe"):
        store.append(("notes", user), [("1", b"x")])
    store.close()
    replace(path, b"notes/zoe/", b"notes/0oe/")
    names = islice(store.namespaces(("notes",)), 10)
    assert [next(names)[1] for _ in range(3)] == ["ada", "bob", "0oe"]
    with pytest.raises(StoreError, match=r"t\.db is damaged: its names are out of order"):
        next(names)
    store.close()


def test_what_is_written_among_names_out_of_order_is_found_again_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = SQLiteStore(path)
    for n in range(12):
        store.append((f"{n:02}",), [("1", b"x")])
    store.close()
    replace(path, b"06/", b"zz/")
    refusals: set[str] = set()
    for n in (11, 10, 9, 8, *range(8)):
        namespace = (f"{n:02}x",)
        try:
            store.append(namespace, [("1", b"x")])
        except StoreError as error:
            refusals.add(str(error))
        else:
            assert [item.id for item in store.scan(namespace).items] == ["1"]
    assert refusals == {f"{path}: database disk image is malformed"}
    store.close()


# A damaged name may also be a sound one: then the table is missing, and SQLite finds no damage.
@pytest.mark.parametrize("damaged", [b"CREATE\xffTABLE langmem_lexical_terms", b"CREATE TABLE langmem_lexical_tErXs"])
def test_a_disposable_index_of_words_is_made_anew_once_it_is_cleared(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "t.db"
    index = LexicalIndex(path, disposable=True)
    index.apply(NOTES, upsert=[Document("1", "My bike is in the shed.")])
    index.close()
    replace(path, b"CREATE TABLE langmem_lexical_terms", damaged)
    if b"X" in damaged:
        replace(path, b"langmem_lexical_terms", b"langmem_lexical_tErXs")
    with pytest.raises(SearchError, match=r"t\.db: (malformed|no such table)"):
        index.search(NOTES, "bikes", 1)
    index.clear(NOTES)
    index.apply(NOTES, upsert=[Document("2", "A bike")])
    assert [hit.id for hit in index.search(NOTES, "bikes", 1)] == ["2"]
    index.close()


@pytest.mark.parametrize("damaged", [b"langm\xe5m_vector_rows", b"langmEm_vector_rowX"])
def test_a_disposable_index_of_vectors_is_made_anew_once_it_is_cleared(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "t.db"
    vectors = SQLiteVectors(path, disposable=True)
    vectors.change("notes/", MAKER, upsert={"1": Embedding(EAST)}, delete=[], position=None)
    vectors.close()
    replace(path, b"langmem_vector_rows", damaged)
    with pytest.raises(SearchError, match=r"t\.db: (malformed|no such table)"):
        vectors.nearest("notes/", MAKER, EAST, 1)
    vectors.clear("notes/")
    vectors.change("notes/", MAKER, upsert={"2": Embedding(EAST)}, delete=[], position=None)
    assert [id_ for id_, _ in vectors.nearest("notes/", MAKER, EAST, 1)] == ["2"]
    vectors.close()
