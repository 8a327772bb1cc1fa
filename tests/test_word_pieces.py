"""What a SentenceTransformer tells of the pieces of words: read, kept beside the vectors, and used by a search (E3)."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.storage.kvstore import SimpleKVStore

from langmem_adapters import ConfigurationError, Experience, LongTermMemory, Message, ModelError, signals
from langmem_adapters.embedding import Embedder
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index, open_vectors, vector_pieces
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_pieces import max_sim
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.language.word_pieces import split_text
from langmem_adapters.protocols import Document, PiecewiseIndex, Store
from langmem_adapters.signals import SIGNALS
from langmem_adapters.stores.memory import MemoryStore
from tests.sentence_models import SIZE, HuggingFaceEmbedding, HuggingFaceEmbeddings, SentenceModel, Tokenizer

NAMESPACE = ("longterm", "t", "u")
MEANINGS = ({"bike", "bicycle"}, {"shed", "hut"}, {"red", "crimson"})


def signs(model: SentenceModel, *pieces: str) -> tuple[bytes, ...]:
    """What is kept of pieces, by NumPy."""
    rows = np.array([model.piece(piece) for piece in pieces]) > 0
    return tuple(row.tobytes().ljust(16, b"\0") for row in np.packbits(rows, axis=1))


def said(**texts: str) -> list[Document]:
    return [Document(id_, text, at=1.0) for id_, text in texts.items()]


@pytest.fixture
def model() -> SentenceModel:
    return SentenceModel(*MEANINGS)


@pytest.fixture
def embedder(model: SentenceModel) -> Embedder:
    return Embedder(model, name="pieces")


@pytest.fixture
def vectors(tmp_path: Path) -> Iterator[SQLiteVectors]:
    with contextlib.closing(SQLiteVectors(tmp_path / "vectors.db")) as opened:
        yield opened


@pytest.fixture
def index(vectors: SQLiteVectors, embedder: Embedder) -> VectorIndex:
    return VectorIndex(vectors, embedder)


def rows(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM langmem_vector_pieces").fetchone()[0])


# --- what is read


def test_pieces_that_say_something_are_told_by_their_signs(model: SentenceModel, embedder: Embedder) -> None:
    long, short = embedder.read(["Is the red BIKE there? I was riding it, John's!", "the hut"])
    assert long.pieces == signs(model, "red", "bike", "rid", "##ing", "john")
    assert short.pieces == signs(model, "hut")
    assert (len(long.vector), len(short.vector)) == (SIZE, SIZE)


def test_texts_are_asked_for_as_documents_and_queries_as_queries_each_once(
    model: SentenceModel, embedder: Embedder
) -> None:
    assert embedder.texts(["a bike"]) == [embedder.read(["a bike"])[0].vector]
    assert embedder.query("a bike") == embedder.read_query("a bike").vector
    assert model.asked == [("document", ["a bike"]), ("query", ["a bike"])]


def test_a_text_without_words_has_no_pieces(embedder: Embedder) -> None:
    assert [one.pieces for one in embedder.read(["", "?!", "it is"])] == [(), (), ()]


def test_of_a_long_text_so_many_pieces_are_kept(embedder: Embedder) -> None:
    assert [len(one.pieces) for one in embedder.read(["bike " * 1000, "bike " * 1100])] == [1000, 1024]


# --- texts that are longer than a model reads


LONG_TEXT = " ".join([*(f"word{n}" for n in range(40)), "the crimson bicycle"])


def test_a_text_longer_than_the_model_reads_is_read_in_parts() -> None:
    model, reads_all = SentenceModel(*MEANINGS, max_seq_length=16), SentenceModel(*MEANINGS)
    short, long = Embedder(model, name="parts").read(["a red bike", LONG_TEXT])
    whole_short, whole_long = Embedder(reads_all, name="whole").read(["a red bike", LONG_TEXT])
    assert short == whole_short
    assert long.pieces == whole_long.pieces == signs(model, *LONG_TEXT.replace("the ", "").split())
    assert np.dot(long.vector, whole_long.vector) > 0.95
    (_, first), (_, parts) = model.asked
    assert first == ["a red bike", LONG_TEXT]
    assert "".join(parts) == LONG_TEXT
    assert all(part.endswith(" ") for part in parts[:-1])
    lengths = [len(model.tokenizer.ids_of(part)) for part in parts]
    assert max(lengths) < 16
    assert max(lengths) - min(lengths) < 5


def test_a_text_is_found_by_what_its_end_means_and_so_is_a_long_query(vectors: SQLiteVectors) -> None:
    index = VectorIndex(vectors, Embedder(SentenceModel(*MEANINGS, max_seq_length=16), name="parts"))
    texts = {"end": LONG_TEXT, "other": LONG_TEXT.replace("bicycle", "kettle"), "short": "a red bike"}
    index.apply(NAMESPACE, upsert=said(**texts))
    (nearest,) = index.search(NAMESPACE, LONG_TEXT, 1)
    assert nearest.id == "end"
    assert nearest.score == pytest.approx(1)
    nearness = index.max_sim(NAMESPACE, "red bike", dict.fromkeys(texts, ""))
    assert nearness["end"] == nearness["short"] > nearness["other"]


# --- a model in a framework's wrapper


class Subclass(HuggingFaceEmbeddings):
    """May do anything with a text."""


@pytest.mark.parametrize("wrapper", [HuggingFaceEmbeddings, HuggingFaceEmbedding])
def test_a_model_in_a_wrapper_tells_pieces_and_reads_long_texts_in_parts(wrapper: Callable[..., Any]) -> None:
    model = SentenceModel(*MEANINGS, max_seq_length=16)
    embedder = Embedder(wrapper(model))
    texts = ["a red bike", LONG_TEXT]
    assert embedder.read(texts) == Embedder(SentenceModel(*MEANINGS, max_seq_length=16), name="bare").read(texts)
    assert embedder.read_query("a red bike") == embedder.read(["a red bike"])[0]
    assert embedder.name == f"{wrapper.__name__}:words"
    assert model.asked[0] == ("text" if wrapper is HuggingFaceEmbedding else "", texts)
    assert model.asked[-1] == ("query", ["a red bike"])


def test_its_vectors_are_those_of_the_wrapper_so_that_an_older_index_stays() -> None:
    """... also where a line breaks, which LangChain's hides from the tokenizer."""
    texts = ["a red bike", "hut", "a shed\nand a bike\n"]
    for_langchain = HuggingFaceEmbeddings(SentenceModel(*MEANINGS))
    for_llamaindex = HuggingFaceEmbedding(SentenceModel(*MEANINGS))
    for wrapped, own in [
        (for_langchain, for_langchain.embed_documents(texts)),
        (for_llamaindex, for_llamaindex.get_text_embedding_batch(texts)),
    ]:
        vectors = np.array(Embedder(wrapped).texts(texts))
        assert vectors == pytest.approx(np.array(own) / np.linalg.norm(own, axis=1, keepdims=True))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: HuggingFaceEmbeddings(model, multi_process=True),
        lambda model: HuggingFaceEmbeddings(model, precision="int8"),
        lambda model: HuggingFaceEmbedding(model, parallel_process=True),
        lambda model: HuggingFaceEmbedding(model, embeddings_cache=SimpleKVStore()),
        Subclass,
    ],
    ids=["processes", "another form", "processes of LlamaIndex", "a cache", "a subclass"],
)
def test_a_wrapper_that_does_more_than_ask_is_asked_itself(wrap: Callable[[SentenceModel], Any]) -> None:
    embedder = Embedder(wrap(SentenceModel(*MEANINGS)))
    (read,) = embedder.read(["a red bike"])
    assert (read.pieces, embedder.tells_pieces, len(read.vector)) == ((), False, SIZE)


class Prefixed(SentenceModel):
    """A SentenceTransformer of the user's own that LangChain can ask."""

    model_name = "prefixed"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self.encode([f"passage: {text}" for text in texts]).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def test_a_sentence_transformer_with_the_methods_of_a_host_is_asked_by_them() -> None:
    """They may add a prefix, for one."""
    model = Prefixed(*MEANINGS)
    embedder = Embedder(model)
    assert embedder.texts(["hut"]) == [embedder.query("hut")]
    assert model.asked == [("", ["passage: hut"])] * 2
    assert (embedder.name, embedder.tells_pieces) == ("Prefixed:prefixed", False)


@given(text=st.text(min_size=20), count=st.integers(2, 9))
def test_the_parts_of_a_text_are_the_text(text: str, count: int) -> None:
    parts = split_text(text, count)
    assert "".join(parts) == text
    assert len(parts) == count
    assert max(map(len, parts)) <= 2 * len(text) / count


def test_a_piece_is_read_as_text_whatever_the_tokenizer_calls_it(model: SentenceModel) -> None:
    class Bytes(Tokenizer):
        """Names pieces as a byte-level BPE does."""

        def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str]:
            return [piece.encode().decode("latin-1") for piece in super().convert_ids_to_tokens(ids)]

    model.tokenizer = Bytes()
    (read,) = Embedder(model, name="bytes").read(["It\u2019s a red bike \u2014 \u201cnew\u201d\u2026"])
    assert read.pieces == signs(model, "red", "bike", "new")


@pytest.mark.parametrize("counted", [5, 6], ids=["up to the colon", "and a space, which goes into the first word"])
def test_what_a_model_wants_before_each_text_is_no_word_of_it(model: SentenceModel, counted: int) -> None:
    def filled_up_before(answer: dict[str, Any]) -> dict[str, Any]:
        filled = int((answer["attention_mask"] == 0).sum())
        return {name: v if name == "sentence_embedding" else np.roll(v, filled, axis=0) for name, v in answer.items()}

    class Prompted(SentenceModel):
        def encode_document(self, texts: list[str], **how: Any) -> Any:
            answers = super().encode_document([f"passage for you: {text}" for text in texts], **how)
            return [{**filled_up_before(answer), "prompt_length": counted} for answer in answers]

    long, short = Embedder(Prompted(*MEANINGS), name="prompted").read(["passage to the red hut", "bike"])
    assert (long.pieces, short.pieces) == (signs(model, "passage", "red", "hut"), signs(model, "bike"))


def test_a_model_that_does_not_cut_texts_up_is_asked_for_vectors(model: SentenceModel) -> None:
    class Whole:
        tokenizer = object()
        truncate_dim = None

        def encode_document(self, texts: list[str], *, show_progress_bar: bool) -> Any:
            return model.encode_document(texts, show_progress_bar=show_progress_bar)

        encode_query = encode_document

    whole = Embedder(Whole(), name="pieces")
    assert whole.read(["a red bike"])[0].pieces == ()
    assert whole.texts(["a red bike"]) == Embedder(model, name="pieces").texts(["a red bike"])


def test_a_batch_that_was_laid_in_a_row_tells_no_pieces(model: SentenceModel) -> None:
    class Flat(SentenceModel):
        def encode_document(self, texts: list[str], **how: Any) -> Any:
            answers = super().encode_document(texts, **how)
            row = np.concatenate([answer["input_ids"] for answer in answers])[None]
            return [{**answer, "input_ids": row} for answer in answers]

    flat, plain = Embedder(Flat(*MEANINGS), name="flat"), Embedder(model, name="pieces")
    assert [one.pieces for one in flat.read(["red bike", "hut"])] == [(), ()]
    assert flat.texts(["red bike", "hut"]) == plain.texts(["red bike", "hut"])


def test_it_needs_a_name(model: SentenceModel) -> None:
    with pytest.raises(ConfigurationError, match="SentenceModel that embeds needs a name"):
        Embedder(model)


@pytest.mark.parametrize("lacks", ["encode_query", "truncate_dim"], ids=["older than 5", "sparse, or of many vectors"])
def test_a_model_of_another_kind_is_refused_at_once(lacks: str) -> None:
    attributes = {"encode_query": None, "encode_document": None, "truncate_dim": None, "forward": None}
    del attributes[lacks]
    other = type("SentenceTransformer", (), {**attributes, "__call__": lambda _, features: features.items()})()
    with pytest.raises(ConfigurationError, match=r"of sentence-transformers 5 or later, or a function.*, not Sentence"):
        Embedder(other, name="other")


# --- how documents are met


def plain(asked: list[bytes], kept: Mapping[int, bytes], documents: list[tuple[int, int]]) -> dict[int, float]:
    """The same, number by number."""

    def cosine(a: bytes, b: bytes) -> float:
        return 1 - (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).bit_count() / (4 * len(a))

    def nearest(piece: bytes, number: int) -> float:
        pieces = [kept.get(number, b"")[n : n + 8] for n in range(0, len(kept.get(number, b"")), 8)]
        return max([0.0, *(cosine(piece, other) for other in pieces)])

    there = [(number, before) for number, before in documents if kept.get(number)]
    having = [sum(nearest(piece, number) > 0.5 for number, _ in there) for piece in asked]
    worth = [np.log(1 + (len(there) - count + 0.5) / (count + 0.5)) for count in having]
    near = {
        number: [max(nearest(piece, number), 0.8 * nearest(piece, before)) for piece in asked]
        for number, before in there
    }
    return {number: sum(map(float, np.multiply(worth, values))) / sum(worth) for number, values in near.items()}


# Of a few, some are in several documents, and two are as near as one must be to count as present.
PIECE = st.sampled_from([bytes(8), b"\xff\xff" + bytes(6), b"\xff" * 8]) | st.binary(min_size=8, max_size=8)
KEPT = st.dictionaries(st.integers(1, 9), st.lists(PIECE, max_size=4).map(b"".join), max_size=6)


@given(st.lists(PIECE, min_size=1, max_size=5), KEPT, st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9))))
def test_it_is_the_mean_of_the_nearest_pieces(
    asked: list[bytes], kept: dict[int, bytes], documents: list[tuple[int, int]]
) -> None:
    documents = list(dict(documents).items())
    found = max_sim(asked, kept, documents)
    assert found == pytest.approx(plain(asked, kept, documents), abs=1e-6)
    assert all(0 <= value <= 1 + 1e-6 for value in found.values())


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_before_numpy_2_bits_are_counted_all_the_same(numbers: list[int]) -> None:
    words = np.array([numbers, numbers], "u8")
    assert vector_pieces._count_bits(words).tolist() == [[number.bit_count() for number in numbers]] * 2


def test_a_rare_piece_counts_more(model: SentenceModel) -> None:
    red, bike, hut = signs(model, "red", "bike", "hut")
    found = max_sim([red, hut], {1: red + bike, 2: red + hut, 3: hut, 4: red}, [(1, 0), (2, 0), (3, 0), (4, 0)])
    assert found[2] > found[3] > found[1] == pytest.approx(found[4], abs=0.1)


def test_what_is_damaged_is_left_out(model: SentenceModel) -> None:
    (red,) = signs(model, "red")
    assert max_sim([red], {1: red[:-1], 2: b"", 3: red}, [(1, 3), (2, 3), (3, 1), (7, 3)]) == {3: pytest.approx(1)}
    assert max_sim([red], {1: red[:-1]}, [(1, 0)]) == {}


# --- what is kept


def test_pieces_lie_beside_the_vectors_and_go_with_them(index: VectorIndex, tmp_path: Path) -> None:
    assert isinstance(index, PiecewiseIndex)
    assert index.piecewise
    file = tmp_path / "vectors.db"
    index.apply(NAMESPACE, upsert=said(a="a red bike", b="the hut", c="it is"))
    other = VectorIndex(SQLiteVectors(file), Embedder(SentenceModel(*MEANINGS), name="pieces"))
    asked = {"a": "", "b": "a", "c": "", "nobody": "b"}
    found = other.max_sim(NAMESPACE, "Where is my crimson bicycle?", asked)
    assert found == {"a": pytest.approx(1), "b": pytest.approx(0.8)}
    assert other.max_sim(NAMESPACE, "bicycle", {"b": "a"}) == {"b": pytest.approx(0.8)}
    index.apply(NAMESPACE, upsert=said(a="the hut"))
    assert other.max_sim(NAMESPACE, "crimson bicycle", {"a": ""})["a"] < 0.5
    assert rows(file) == 2
    index.apply(NAMESPACE, delete=["a"])
    assert other.max_sim(NAMESPACE, "hut", {"a": "", "b": ""}) == {"b": pytest.approx(1)}
    assert rows(file) == 1
    index.clear(NAMESPACE)
    assert (other.max_sim(NAMESPACE, "hut", {"b": ""}), rows(file)) == ({}, 0)
    other.close()


def test_they_are_those_of_one_embedder(index: VectorIndex, vectors: SQLiteVectors, tmp_path: Path) -> None:
    index.apply(NAMESPACE, upsert=said(a="a red bike"))
    newer = VectorIndex(vectors, Embedder(SentenceModel(*MEANINGS), name="newer"))
    assert newer.max_sim(NAMESPACE, "bike", {"a": ""}) == {}
    newer.apply(NAMESPACE, upsert=said(b="bike"))
    assert (index.max_sim(NAMESPACE, "bike", {"a": "", "b": ""}), rows(tmp_path / "vectors.db")) == ({}, 1)


def test_only_of_conversations(index: VectorIndex, embedder: Embedder, tmp_path: Path) -> None:
    index.apply(NAMESPACE, upsert=[Document("a", "a red bike")])
    assert [hit.id for hit in index.search(NAMESPACE, "bike", 1)] == ["a"]
    url = f"sqlite:///{tmp_path / 'pool.db'}"
    with contextlib.closing(open_vectors(url, embedder)) as questions:
        pool = ExperiencePool(MemoryStore(), tag="t", index=questions)
        pool.create(Experience(req="Where is the red bike?", resp="In the hut.", tag="t"))
        found = pool.query("the bicycle", query_type="semantic")
        assert [one.experience.resp for one in found] == ["In the hut."]
    assert (rows(tmp_path / "vectors.db"), rows(tmp_path / "pool.db")) == (0, 0)


def test_an_embedder_without_pieces_meets_nothing(vectors: SQLiteVectors, model: SentenceModel) -> None:
    def plain(texts: list[str]) -> Any:
        return model.encode_document(texts)

    index = VectorIndex(vectors, Embedder(plain, name="pieces"))
    index.apply(NAMESPACE, upsert=said(a="a red bike"))
    asked = len(model.asked)
    assert (index.piecewise, index.max_sim(NAMESPACE, "bike", {"a": ""})) == (False, {})
    assert len(model.asked) == asked
    whole = VectorIndex(vectors, Embedder(model, name="pieces"))
    assert whole.max_sim(NAMESPACE, "bike", {"a": ""}) == {}
    whole.apply(NAMESPACE, upsert=said(b="a bike"))
    assert whole.max_sim(NAMESPACE, "bike", {"a": "", "b": "a"}) == {"b": pytest.approx(1)}
    assert whole.max_sim(NAMESPACE, "bike", {}) == {}


# --- what a search makes of it

FIRST = "A crimson bicycle stood for many years near a hut."
TALK = [(FIRST, "Nobody uses that any more, do they?"), ("My bike, my bike.",), ("The fence is old.", "It rained.")]
QUERY = "red bike shed"


@pytest.fixture
def remembered() -> Iterator[Callable[..., LongTermMemory]]:
    """A memory of the talk."""
    opened: list[Any] = []

    def make(store: Store, vectors: Any, **settings: Any) -> LongTermMemory:
        opened.append(open_index("memory:"))
        memory = LongTermMemory(store, opened[-1], vectors=vectors, user="ada", **settings)
        for n, turns in enumerate(TALK):
            memory.add([Message(role="user", content=text, created_at=float(n)) for text in turns], session=str(n))
        memory.flush()
        return memory

    yield make
    for index in opened:
        index.close()


def test_a_search_weighs_every_word_by_itself(
    remembered: Callable[..., LongTermMemory], any_store: Store, index: VectorIndex
) -> None:
    memory = remembered(any_store, index)
    found = memory.search(QUERY, explain=True)
    assert found[0].text == FIRST
    for recalled in found:
        assert sum(recalled.signals.values()) == pytest.approx(recalled.score)
        assert 0 <= recalled.score <= 1
    without = remembered(MemoryStore(), index, weights={"pieces": 0.0}).search(QUERY, explain=True)
    assert without[0].text != FIRST
    assert all("pieces" not in recalled.signals for recalled in without)


def test_it_may_be_all_that_weighs(
    remembered: Callable[..., LongTermMemory], any_store: Store, index: VectorIndex
) -> None:
    only = dict.fromkeys(SIGNALS, 0.0) | {"pieces": 1.0}
    found = remembered(any_store, index, weights=only).search(QUERY, explain=True)
    assert [found[0].text, *found[0].signals] == [FIRST, "pieces"]
    without = remembered(MemoryStore(), None, weights=only).search(QUERY)
    assert {recalled.score for recalled in without} == {0.0}


def test_a_model_that_fails_costs_a_search_nothing_else(
    remembered: Callable[..., LongTermMemory], any_store: Store, index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = remembered(any_store, index)

    def down(*_: Any) -> Any:
        raise ModelError("down")

    whole = [recalled.text for recalled in memory.search(QUERY)]
    monkeypatch.setattr(index, "max_sim", down)
    found = memory.search(QUERY, explain=True)
    assert {recalled.text for recalled in found} <= set(whole)
    assert found
    assert all("pieces" not in recalled.signals for recalled in found)
    assert memory.stats()["degraded"] == 1


def test_what_a_fit_sees_is_what_a_search_adds_up(
    remembered: Callable[..., LongTermMemory], index: VectorIndex
) -> None:
    memory = remembered(MemoryStore(), index)
    candidates = run(memory.candidates_flow(QUERY, 20))
    assert max(parts.get("pieces", 0.0) for parts in candidates.values()) == 1
    found = memory.search(QUERY, explain=True)
    totals = {id_: sum(SIGNALS[name].both * v for name, v in parts.items()) for id_, parts in candidates.items()}
    ratio = found[0].score / totals[found[0].memory.id]
    assert [r.score for r in found] == pytest.approx([ratio * totals[r.memory.id] for r in found])


def test_only_the_best_are_looked_at_word_by_word(
    remembered: Callable[..., LongTermMemory], index: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = remembered(MemoryStore(), index)
    assert sum("pieces" in recalled.signals for recalled in memory.search(QUERY, explain=True)) > 2
    monkeypatch.setattr(signals, "_MAX_SIM_CANDIDATES", 2)
    found = memory.search(QUERY, explain=True)
    assert len(found) > 2
    assert ["pieces" in recalled.signals for recalled in found] == [True, True] + [False] * (len(found) - 2)


def test_vectors_of_an_older_file_stay(tmp_path: Path, model: SentenceModel) -> None:
    file = tmp_path / "vectors.db"
    with contextlib.closing(VectorIndex(SQLiteVectors(file), Embedder(model, name="pieces"))) as index:
        index.apply(NAMESPACE, upsert=said(a="a red bike"), position=(1, "a"))
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.executescript(
            "DROP TRIGGER langmem_vector_pieces_gone; DROP TABLE langmem_vector_pieces;"
            "UPDATE langmem_schema SET version = version - 2 WHERE name = 'vectors';"
        )
    with contextlib.closing(VectorIndex(SQLiteVectors(file), Embedder(model, name="pieces"))) as index:
        assert (index.position(NAMESPACE), index.max_sim(NAMESPACE, "bike", {"a": ""})) == ((1, "a"), {})
        assert [hit.id for hit in index.search(NAMESPACE, "bicycle", 1)] == ["a"]
        index.apply(NAMESPACE, upsert=said(b="a bike"))
        assert index.max_sim(NAMESPACE, "bike", {"b": "a"}) == {"b": pytest.approx(1)}


def test_what_a_process_of_an_older_version_deletes_takes_its_pieces_along(index: VectorIndex, tmp_path: Path) -> None:
    index.apply(NAMESPACE, upsert=said(a="a red bike", b="the hut"))
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as older, older:
        older.execute("DELETE FROM langmem_vector_rows WHERE id = CAST('a' AS BLOB)")
    assert rows(tmp_path / "vectors.db") == 1
