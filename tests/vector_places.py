"""What every place for vectors must do, as tests to inherit, and an embedder that needs no model.

A place's test file is a few lines::

    class TestMyVectors(VectorsConformance):
        @pytest.fixture
        def vectors(self): return MyVectors()
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import count, pairwise
from typing import Any

import pytest

from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import Conflict, ModelError
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex, Vectors
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.protocols import START, Document, Index
from langmem_adapters.records.keyed import Records
from langmem_adapters.stores.memory import MemoryStore

__all__ = ["VectorsConformance", "cosine", "word_vectors"]

_NS = ("longterm", "tenant", "user")
_ODD = ["", "a/b", " ", "-", "%2F", "nul\0byte", "\ud800", "É", "é", "e\u0301", "🙂", "x" * 10_000]


def word_vectors(texts: Iterable[str], dimension: int = 64) -> list[list[float]]:
    """Count each text's words in as many slots; texts that share words are near to each other."""
    vectors = []
    for text in texts:
        vector = [0.0] * dimension
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(to_bytes(word)) % dimension] += 1
        vectors.append(vector)
    return vectors


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """The cosine of the angle between two vectors, as the textbook has it."""
    return math.fsum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def _score(query: str, text: str) -> float:
    return (1 + cosine(*word_vectors([query, text]))) / 2


def _documents(**texts: str) -> list[Document]:
    return [Document(id_, text) for id_, text in texts.items()]


class VectorsConformance:
    """Inherit this, and provide the fixture ``vectors``: an empty place."""

    @pytest.fixture
    def indexed(self, vectors: Vectors) -> Callable[..., VectorIndex]:
        """Make an index of that place, with another embedder if asked."""

        def make(embed: Callable[[list[str]], list[list[float]]] = word_vectors, name: str = "words-64") -> VectorIndex:
            return VectorIndex(vectors, Embedder(embed, name=name))

        return make

    @pytest.fixture
    def index(self, indexed: Callable[..., VectorIndex]) -> VectorIndex:
        return indexed()

    def found(self, index: VectorIndex, query: str, namespace: Namespace = _NS, k: int = 10) -> list[str]:
        """The ids of a search."""
        return [hit.id for hit in index.search(namespace, query, k)]

    def test_it_makes_an_index(self, index: VectorIndex) -> None:
        assert isinstance(index, Index)

    def test_what_was_never_written_is_empty(self, index: VectorIndex) -> None:
        assert index.position(_NS) is None
        assert index.search(_NS, "words", 3) == []
        assert index.score(_NS, "words", ["a"]) == {}
        index.clear(_NS)

    def test_the_nearest_come_first_and_scores_are_those_of_cosines(self, index: VectorIndex) -> None:
        texts = {"a": "red bike", "b": "red car", "c": "blue boat", "d": "red red red bike bike bike", "e": "bike"}
        index.apply(_NS, upsert=_documents(**texts))
        hits = index.search(_NS, "a red bike", 10)
        assert {hit.id for hit in hits[:2]} == {"a", "d"}
        assert {hit.id for hit in hits} == set(texts)
        assert {hit.id: hit.score for hit in hits} == pytest.approx(
            {id_: _score("a red bike", text) for id_, text in texts.items()}, abs=1e-5
        )
        assert all(0 <= hit.score <= 1 for hit in hits)
        assert all(one.score >= other.score for one, other in pairwise(hits))

    def test_large_and_small_vectors_do_not_overflow_nor_vanish(self, indexed: Callable[..., VectorIndex]) -> None:
        def scaled(texts: list[str]) -> list[list[float]]:
            sizes = {"small": 1e-30, "large": 1e200}
            return [[x * sizes.get(text.split()[-1], 1) for x in word_vectors([text])[0]] for text in texts]

        index = indexed(scaled, "scaled")
        index.apply(_NS, upsert=_documents(a="bike small", b="bike large", c="boat"))
        assert set(self.found(index, "bike", k=2)) == {"a", "b"}
        assert all(hit.score > 0.5 for hit in index.search(_NS, "bike", 2))

    def test_opposite_vectors_score_zero(self, indexed: Callable[..., VectorIndex]) -> None:
        signs: Callable[[list[str]], list[list[float]]] = lambda texts: [[float(text), 0.0] for text in texts]  # noqa: E731
        index = indexed(signs, "signs")
        index.apply(_NS, upsert=_documents(up="1", down="-2"))
        hits = index.search(_NS, "3", 5)
        assert [hit.id for hit in hits] == ["up", "down"]
        assert [hit.score for hit in hits] == pytest.approx([1, 0], abs=1e-6)

    def test_scores_of_given_ids(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=_documents(a="red bike", b="red car", c="blue boat"))
        expected = {"c": _score("red bike", "blue boat"), "a": 1.0}
        scores = index.score(_NS, "red bike", ["c", "nobody", "a", "c"])
        assert scores == pytest.approx(expected, abs=1e-5)
        assert list(scores) == ["c", "a"]
        assert index.score(_NS, "", ["a"]) == {}
        assert index.score(_NS, "red bike", []) == {}

    def test_adding_an_id_again_replaces_its_text(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=_documents(a="red bike", b="blue boat"))
        index.apply(_NS, upsert=_documents(a="green car"))
        assert self.found(index, "green car", k=1) == ["a"]
        assert sorted(self.found(index, "red bike")) == ["a", "b"]
        assert index.score(_NS, "red bike", ["a"])["a"] == pytest.approx(_score("red bike", "green car"), abs=1e-5)

    def test_deleting(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=_documents(a="red bike", b="blue boat"))
        index.apply(_NS, delete=["a", "never there", "a"])
        assert self.found(index, "red bike") == ["b"]
        assert index.score(_NS, "red bike", ["a", "b"]).keys() == {"b"}
        index.apply(_NS, delete=["b"])
        assert self.found(index, "red bike") == []
        index.apply(_NS, upsert=_documents(a="red bike"))
        assert self.found(index, "red bike") == ["a"]

    def test_within_one_change_deletions_come_first_and_the_last_text_of_an_id_stays(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=[Document("a", "old words"), Document("a", "new thing")], delete=["a"])
        assert index.score(_NS, "new thing", ["a"]) == pytest.approx({"a": 1.0}, abs=1e-5)
        assert self.found(index, "old words") == ["a"]

    def test_a_text_that_says_nothing_is_not_found(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=_documents(a="red bike", b="", c=" \n", d="?!"), position=(1, "a"))
        assert self.found(index, "red bike") == ["a"]
        index.apply(_NS, upsert=_documents(a="   "))
        assert self.found(index, "red bike") == []
        assert index.position(_NS) == (1, "a")

    @pytest.mark.parametrize("query", ["", "  \t", "?!"])
    def test_a_query_that_says_nothing_finds_nothing(self, index: VectorIndex, query: str) -> None:
        index.apply(_NS, upsert=_documents(a="red bike"))
        assert index.search(_NS, query, 3) == []

    def test_k_is_how_many_at_the_most(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=[Document(str(n), f"bike {n}") for n in range(30)])
        assert [len(self.found(index, "bike", k=k)) for k in (-1, 0, 1, 7, 30, 1000)] == [0, 0, 1, 7, 30, 30]

    def test_ids_may_hold_any_characters(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=[Document(id_, f"word{n}") for n, id_ in enumerate(_ODD)], position=(3, "\ud800"))
        assert sorted(self.found(index, "word3", k=50)) == sorted(_ODD)
        assert list(index.score(_NS, "word3", _ODD)) == _ODD
        index.apply(_NS, upsert=[Document(_ODD[6], "other")], delete=_ODD[1:6] + _ODD[7:])
        assert sorted(self.found(index, "other", k=50)) == ["", "\ud800"]
        assert index.position(_NS) == (3, "\ud800")

    def test_texts_may_hold_any_characters(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=_documents(a="\ud800 bike", b="nul\0", c="词 " * 50_000))
        assert self.found(index, "bike \udfff", k=1) == ["a"]

    def test_a_namespace_sees_its_own_only(self, index: VectorIndex) -> None:
        others: list[Namespace] = [(), ("longterm",), (*_NS, ""), (*_NS[:2], "\ud800/%"), ("longterm", "tenant/user")]
        for other in others:
            index.apply(other, upsert=[Document(f"{other!r}{n}", "red bike") for n in range(20)])
        index.apply(_NS, upsert=_documents(own="green boat", other="blue car"))
        assert sorted(self.found(index, "red bike", k=500)) == ["other", "own"]
        assert self.found(index, "green boat", k=1) == ["own"]
        assert index.score(_NS, "red bike", [f"{others[0]!r}1"]) == {}
        index.apply(_NS, delete=[f"{others[1]!r}1"])
        assert len(self.found(index, "red bike", others[1], k=500)) == 20
        index.clear(_NS)
        assert [len(self.found(index, "red bike", other, k=500)) for other in others] == [20] * len(others)

    def test_the_position_is_remembered(self, index: VectorIndex, indexed: Callable[..., VectorIndex]) -> None:
        index.apply(_NS, upsert=_documents(a="bike"))
        assert index.position(_NS) is None
        index.apply(_NS, position=(7, "seven"))
        index.apply(_NS, upsert=_documents(b="boat"), delete=["a"])
        assert indexed().position(_NS) == (7, "seven")
        index.apply(_NS, position=(2**53, ""))
        assert index.position(_NS) == (2**53, "")
        assert index.position((*_NS, "other")) is None

    def test_a_change_is_made_only_where_it_begins(self, index: VectorIndex) -> None:
        for since in ((7, "seven"), (0, "begun")):
            with pytest.raises(Conflict):
                index.apply(_NS, upsert=_documents(a="bike"), position=(9, "nine"), since=since)
        assert (index.position(_NS), self.found(index, "bike")) == (None, [])
        index.apply(_NS, position=(0, "begun"), since=START)
        index.apply(_NS, upsert=_documents(a="bike"), position=(7, "seven"), since=(0, "begun"))
        for since in (START, (0, "begun"), (7, "other"), (8, "seven")):
            with pytest.raises(Conflict):
                index.apply(_NS, upsert=_documents(b="bike"), delete=["a"], position=(9, "nine"), since=since)
        assert (index.position(_NS), self.found(index, "bike")) == ((7, "seven"), ["a"])
        index.apply(_NS, upsert=_documents(b="bike"), delete=["a"], since=(7, "seven"))
        assert (index.position(_NS), self.found(index, "bike")) == ((7, "seven"), ["b"])
        index.clear(_NS)
        with pytest.raises(Conflict):
            index.apply(_NS, upsert=_documents(a="bike"), position=(8, "eight"), since=(7, "seven"))
        assert (index.position(_NS), self.found(index, "bike")) == (None, [])

    def test_a_change_that_comes_too_late_is_dropped(self, indexed: Callable[..., VectorIndex]) -> None:
        index = indexed()

        def cleared_meanwhile(texts: list[str]) -> list[list[float]]:
            index.clear(_NS)
            return word_vectors(texts)

        index.apply(_NS, upsert=_documents(a="bike"), position=(1, "a"))
        with pytest.raises(Conflict):
            indexed(cleared_meanwhile).apply(_NS, upsert=_documents(b="boat"), position=(2, "b"), since=(1, "a"))
        assert (index.position(_NS), self.found(index, "boat")) == (None, [])

    def test_for_another_embedder_nothing_was_begun(
        self, index: VectorIndex, indexed: Callable[..., VectorIndex]
    ) -> None:
        index.apply(_NS, upsert=_documents(a="bike", old="boat"), position=(2, "old"))
        newer = indexed(lambda texts: [vector[::-1] for vector in word_vectors(texts)], "words-reversed")
        with pytest.raises(Conflict):
            newer.apply(_NS, upsert=_documents(b="boat"), position=(3, "b"), since=(2, "old"))
        assert (index.position(_NS), sorted(self.found(index, "bike"))) == ((2, "old"), ["a", "old"])
        newer.apply(_NS, upsert=_documents(b="boat"), position=(3, "b"), since=START)
        assert (newer.position(_NS), self.found(newer, "boat")) == ((3, "b"), ["b"])

    def test_clearing_forgets_one_namespace(self, index: VectorIndex) -> None:
        for namespace in (_NS, (*_NS, "sub")):
            index.apply(namespace, upsert=_documents(a="bike"), position=(1, "m1"))
        index.clear(_NS)
        assert (index.position(_NS), self.found(index, "bike"), index.score(_NS, "bike", ["a"])) == (None, [], {})
        assert (index.position((*_NS, "sub")), self.found(index, "bike", (*_NS, "sub"))) == ((1, "m1"), ["a"])
        index.apply(_NS, upsert=_documents(b="boat"))
        assert self.found(index, "bike") == ["b"]

    @pytest.mark.parametrize("then", [[], ["new"]])
    def test_what_a_first_change_has_left_half_done_goes_with_what_the_store_has_lost(
        self, index: VectorIndex, monkeypatch: pytest.MonkeyPatch, then: list[str]
    ) -> None:
        """Of a process that was killed before the position was written; meanwhile the memories expired."""

        def killed(namespace: Namespace, *, upsert: Sequence[Document] = (), **change: Any) -> None:
            VectorIndex.apply(index, namespace, upsert=upsert, **({} if upsert else change))
            if upsert:
                raise InterruptedError

        store, ids = MemoryStore(), map(str, count())
        words = LexicalIndex(":memory:")
        kept = Records(
            store, _NS, index=words, vectors=index, text_of=lambda _, data: data.decode(), new_id=lambda: next(ids)
        )
        kept.put({"old": b"red bike"})
        with monkeypatch.context() as patch:
            patch.setattr(index, "apply", killed)
            with pytest.raises(InterruptedError):
                kept.follow(index=index)
        store.clear(_NS)
        for key in then:
            kept.put({key: b"green bike"})
        kept.follow(index=index)
        assert (self.found(index, "red bike"), index.position(_NS) is not None) == (then, bool(then))

    def test_a_closed_index_can_be_used_again(self, index: VectorIndex) -> None:
        index.apply(_NS, upsert=_documents(a="bike"))
        index.close()
        index.close()
        index.apply(_NS, upsert=_documents(b="boat"))
        assert self.found(index, "boat", k=1) == ["b"]

    def test_another_embedder_begins_anew(self, index: VectorIndex, indexed: Callable[..., VectorIndex]) -> None:
        index.apply(_NS, upsert=_documents(a="bike", old="boat"), position=(2, "old"))
        index.apply((*_NS, "kept"), upsert=_documents(a="bike"), position=(1, "a"))
        newer = indexed(lambda texts: [vector[::-1] for vector in word_vectors(texts)], "words-reversed")
        assert (newer.position(_NS), self.found(newer, "bike"), newer.score(_NS, "bike", ["a"])) == (None, [], {})
        assert (index.position(_NS), self.found(index, "bike", k=1)) == ((2, "old"), ["a"])
        newer.apply(_NS, upsert=_documents(a="bike"), position=(1, "a"))
        assert (newer.position(_NS), self.found(newer, "bike")) == ((1, "a"), ["a"])
        assert (index.position(_NS), self.found(index, "bike"), index.score(_NS, "bike", ["a"])) == (None, [], {})
        assert index.position((*_NS, "kept")) == (1, "a")

    def test_another_dimension_begins_anew(self, index: VectorIndex, indexed: Callable[..., VectorIndex]) -> None:
        index.apply(_NS, upsert=_documents(a="bike", old="boat"), position=(2, "old"))
        shorter = indexed(lambda texts: word_vectors(texts, 32))
        assert shorter.position(_NS) is None
        assert self.found(shorter, "bike") == []
        shorter.apply(_NS, upsert=_documents(a="bike"), position=(1, "a"))
        assert (shorter.position(_NS), self.found(shorter, "bike")) == ((1, "a"), ["a"])
        assert indexed().position(_NS) is None

    def test_an_embedder_that_is_down_leaves_all_but_the_deleted_as_it_was(
        self, indexed: Callable[..., VectorIndex]
    ) -> None:
        down = False

        def brittle(texts: list[str]) -> list[list[float]]:
            if down:
                raise RuntimeError("bad")
            return word_vectors(texts)

        index = indexed(brittle)
        index.apply(_NS, upsert=_documents(a="bike", b="boat", c="red bike"), position=(2, "b"))
        many = [Document(str(n), f"text {n}") for n in range(100)]
        down = True
        with pytest.raises(ModelError, match="words-64 failed: RuntimeError"):
            index.apply(_NS, upsert=[*many, Document("b", "bad")], delete=["a", "b"], position=(3, "b"), since=(2, "b"))
        with pytest.raises(ModelError):
            index.search(_NS, "bad", 3)
        down = False
        assert (index.position(_NS), self.found(index, "bike"), index.refused(_NS)) == ((2, "b"), ["c", "b"], [])
        down = True
        with pytest.raises(Conflict):
            index.apply(_NS, upsert=many, delete=["c"], position=(3, "b"), since=(1, "b"))
        down = False
        assert self.found(index, "bike") == ["c", "b"]

    def test_an_embedder_that_is_down_deletes_nothing_of_another_one(
        self, index: VectorIndex, indexed: Callable[..., VectorIndex]
    ) -> None:
        def down(_: list[str]) -> list[list[float]]:
            raise RuntimeError("bad")

        index.apply(_NS, upsert=_documents(a="bike"), position=(1, "a"))
        with pytest.raises(ModelError):
            indexed(down, "other").apply(_NS, upsert=_documents(b="boat"), delete=["a"], position=(2, "b"))
        assert (index.position(_NS), self.found(index, "bike")) == ((1, "a"), ["a"])

    def test_a_text_that_is_refused_is_left_out(self, indexed: Callable[..., VectorIndex]) -> None:
        def choosy(texts: list[str]) -> list[list[float]]:
            if "bad" in texts:
                raise RuntimeError("bad")
            return word_vectors(texts)

        index = indexed(choosy)
        index.apply(_NS, upsert=_documents(a="bike", b="boat"), position=(1, "a"))
        many = [Document(str(n), f"text {n}") for n in range(100)]
        index.apply(_NS, upsert=[*many, Document("a", "bad"), Document("c", "bad")], delete=["b"], position=(3, "b"))
        assert (index.position(_NS), index.refused(_NS)) == ((3, "b"), ["a", "c"])
        assert len(index.score(_NS, "bike", ["a", "b", "c", *map(str, range(100))])) == 100
        index.apply(_NS, upsert=_documents(a="red bike"), delete=["c"])
        assert (list(index.score(_NS, "bike", ["a", "c"])), index.refused(_NS)) == (["a"], [])

    def test_a_large_change_goes_in_one_piece(self, indexed: Callable[..., VectorIndex]) -> None:
        def embed(texts: list[str]) -> list[list[float]]:  # spread out: an approximate search may miss an outlier
            return [
                [1.5, math.sin(n), math.cos(1.7 * n), math.sin(2.3 * n), math.cos(3.1 * n)] for n in map(int, texts)
            ]

        index = indexed(embed, "numbers")
        count = 6_000  # beyond the 5,461 that Chroma takes at a time
        index.apply(_NS, upsert=[Document(f"d{n}", str(n)) for n in range(count)], position=(count, "last"))
        assert len(index.score(_NS, "1", [f"d{n}" for n in range(count)])) == count
        assert self.found(index, "0", k=1) == ["d0"]
        index.apply(_NS, delete=[f"d{n}" for n in range(count - 1)])
        assert self.found(index, "0") == [f"d{count - 1}"]
