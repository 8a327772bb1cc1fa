"""Rows about experiences: keep one, and find those that are like a request."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from langmem_adapters import Experience, ExperiencePool
from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from tests.benchmarks.bench import Bench, installed
from tests.benchmarks.goals import within
from tests.benchmarks.harness import Case, Line, Row
from tests.benchmarks.payloads import DIMENSION, answer, sentences, vector
from tests.benchmarks.search_peers import Search, by_meaning, by_words

__all__ = ["ROWS"]

_REQUEST, _QUERY = 30, 8  # words
_RESPONSE = answer(1).text


def _requests(size: int) -> list[str]:
    return list(itertools.islice(sentences(_REQUEST), size))


class _FullText:
    """The limit of keeping: the row and a full-text entry in one transaction of SQLite."""

    def __init__(self, bench: Bench) -> None:
        self._connection = bench.connection()
        self._connection.execute("CREATE TABLE experiences (key BLOB PRIMARY KEY, data BLOB NOT NULL)")
        self._connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='', tokenize=porter)")

    def fill(self, texts: Sequence[str]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for text in texts:
            self._insert(text)
        self._connection.execute("COMMIT")

    def add(self, text: str) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._insert(text)
        self._connection.execute("COMMIT")

    def _insert(self, text: str) -> None:
        data = (text + _RESPONSE).encode()
        self._connection.execute("INSERT OR REPLACE INTO experiences VALUES (?, ?)", (text.encode(), data))
        self._connection.execute("INSERT INTO words (text) VALUES (?)", (text,))

    def search(self, query: str) -> list[Any]:
        wanted = " OR ".join(query.split())
        statement = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT 4"
        return self._connection.execute(statement, (wanted,)).fetchall()


def _add(bench: Bench, *, finds: bool) -> Iterator[Line]:
    """Keep an experience; with ``finds``, also look for one like it, which is when the words are indexed."""
    size = 10_000
    requests = _requests(size)
    with bench.store("sqlite") as store:
        index = LexicalIndex(bench.path("words"))
        pool = ExperiencePool(store, tag="bench", index=index)
        limit = _FullText(bench)
        limit.fill(requests)
        _fill(pool, requests)
        peers = by_words(bench, requests) if bench.peers else {}
        fresh = sentences(_REQUEST, seed=3)

        def bare(text: str) -> object:
            limit.add(text)
            return limit.search(text[:80]) if finds else None

        def ours(text: str) -> object:
            pool.create(Experience(req=text, resp=_RESPONSE))
            return pool.query(text[:80], k=4) if finds else None

        def theirs(peer: Search, text: str) -> object:
            peer.add(text)
            return peer.find(text[:80]) if finds else None

        case = Case(
            bare,
            ours,
            {name: partial(theirs, peer) for name, peer in peers.items()},
            given=lambda: next(fresh),
        )
        yield bench.line(f"{size:,}", case)
        index.close()


def _fill(pool: ExperiencePool, requests: Sequence[str]) -> None:
    for text in requests:
        pool.create(Experience(req=text, resp=_RESPONSE))
    assert pool.query(requests[7], k=4)[0].experience.req == requests[7]


def _words(bench: Bench) -> Iterator[Line]:
    for size in bench.sizes(10_000, 100_000):
        requests = _requests(size)
        with bench.store("sqlite") as store:
            index = LexicalIndex(bench.path("words"))
            pool = ExperiencePool(store, tag="bench", index=index)
            _fill(pool, requests)
            peers = by_words(bench, requests) if bench.peers else {}
            yield _searched(bench, size, _best_words(bench, requests), pool, peers)
            index.close()


def _best_words(bench: Bench, requests: Sequence[str]) -> Callable[[str], object]:
    """The limit: tantivy, ids only; without it, FTS5."""
    if not installed("tantivy"):
        table = _FullText(bench)
        table.fill(requests)
        return table.search
    tantivy: Any = importlib.import_module("tantivy")
    schema = tantivy.SchemaBuilder().add_text_field("text", tokenizer_name="en_stem").build()
    index = tantivy.Index(schema)
    writer = index.writer()
    for text in requests:
        writer.add_document(tantivy.Document(text=text))
    writer.commit()
    index.reload()
    searcher = index.searcher()
    return lambda query: searcher.search(index.parse_query(query, ["text"]), 4).hits


def _meaning(bench: Bench) -> Iterator[Line]:
    embedder = Embedder(lambda texts: [vector(text) for text in texts], name="directions", remembered=4096)
    for size in bench.sizes(10_000, 100_000):
        requests = _requests(size)
        vectors = {text: vector(text) for text in requests}
        with bench.store("sqlite") as store:
            index = VectorIndex(SQLiteVectors(bench.path("vectors")), embedder)
            pool = ExperiencePool(store, tag="bench", index=index)
            _fill(pool, requests)
            peers = by_meaning(bench, vectors, slow=size <= 10_000) if bench.peers else {}
            yield _searched(bench, size, _best_vectors(list(vectors.values())), pool, peers, embedder=embedder)
            index.close()


def _best_vectors(vectors: Sequence[Sequence[float]]) -> Callable[[str], object]:
    """The limit: a graph of neighbours by hnswlib; without it, one product with NumPy."""
    numpy: Any = importlib.import_module("numpy")
    matrix = numpy.array(vectors, dtype="f4")
    if not installed("hnswlib"):
        matrix /= numpy.linalg.norm(matrix, axis=1, keepdims=True)
        return lambda query: numpy.argpartition(matrix @ numpy.array(vector(query), dtype="f4"), -4)[-4:]
    index: Any = importlib.import_module("hnswlib").Index(space="cosine", dim=DIMENSION)
    index.init_index(max_elements=len(vectors), ef_construction=100, M=16)
    index.add_items(matrix)
    return lambda query: index.knn_query([vector(query)], k=4)


def _searched(
    bench: Bench,
    size: int,
    limit: Callable[[str], object],
    pool: ExperiencePool,
    peers: dict[str, Search],
    *,
    embedder: Embedder | None = None,
) -> Line:
    queries = list(itertools.islice(sentences(_QUERY, seed=2), 200))
    if embedder is not None:
        for query in queries:
            embedder.query(query)  # both remember it from here on
    asked = itertools.cycle(queries)
    case = Case(
        limit,
        lambda query: pool.query(query, k=4),
        {name: peer.find for name, peer in peers.items()},
        given=lambda: next(asked),
    )
    return bench.line(f"{size:,}", case)


_FTS = "the row and an FTS5 entry in one transaction of SQLite"

ROWS = (
    Row("experience-add", "Keep an experience", _FTS, partial(_add, finds=False), (within(1e-3),)),
    Row(
        "experience-add-find",
        "Keep an experience and find it",
        f"{_FTS}, and an FTS5 query",
        partial(_add, finds=True),
        (),
    ),
    Row(
        "similar-words",
        "Similar experiences by words",
        "tantivy in memory, ids only",
        _words,
        (within(1e-3, size="10,000"), within(5e-3, size="100,000")),
    ),
    Row(
        "similar-meaning",
        "Similar experiences by meaning, beside the embedding",
        "hnswlib in memory, ids only",
        _meaning,
        (within(1e-3, size="10,000"), within(5e-3, size="100,000")),
    ),
)
