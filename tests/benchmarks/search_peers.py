"""Other ways to find similar texts, each behind two operations: add a text, and find the nearest four."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from tests.benchmarks.bench import Bench, installed
from tests.benchmarks.payloads import vector

__all__ = ["Search", "by_meaning", "by_words"]

_K = 4
_CHUNK = 2000


class Search(NamedTuple):
    """Texts that somebody keeps."""

    add: Callable[[str], object]
    find: Callable[[str], object]


def by_words(bench: Bench, texts: Sequence[str]) -> dict[str, Search]:
    """LlamaIndex's BM25Retriever, which is made anew for each text that is added."""
    if not installed("llama_index.retrievers.bm25"):
        bench.absent["BM25Retriever"] = "not installed"
        return {}
    made: Any = importlib.import_module("llama_index.retrievers.bm25").BM25Retriever
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells of every index that it makes
    nodes = _nodes(texts)
    current = [made.from_defaults(nodes=nodes, similarity_top_k=_K)]

    def add(text: str) -> None:
        nodes.extend(_nodes([text]))
        current[0] = made.from_defaults(nodes=nodes, similarity_top_k=_K)

    return {"BM25Retriever": Search(add, lambda query: list(current[0].retrieve(query)))}


def by_meaning(bench: Bench, vectors: Mapping[str, list[float]], *, slow: bool) -> dict[str, Search]:
    """Chroma through LlamaIndex; with ``slow`` also those that compare with every vector in Python."""
    found: dict[str, Search] = {}
    if installed("llama_index.vector_stores.chroma"):
        found["Chroma by LlamaIndex"] = _chroma(bench, vectors)
    else:
        bench.absent["Chroma by LlamaIndex"] = "not installed"
    if slow:
        found["SimpleVectorStore"] = _simple(vectors)
        found["InMemoryVectorStore"] = _in_memory(vectors)
    return found


def _nodes(texts: Sequence[str], vectors: Mapping[str, list[float]] | None = None) -> list[Any]:
    node: Any = importlib.import_module("llama_index.core.schema").TextNode
    return [node(text=text, embedding=vectors[text] if vectors else None) for text in texts]


def _query(text: str) -> Any:
    types: Any = importlib.import_module("llama_index.core.vector_stores.types")
    return types.VectorStoreQuery(query_embedding=vector(text), similarity_top_k=_K)


def _chroma(bench: Bench, vectors: Mapping[str, list[float]]) -> Search:
    chromadb: Any = importlib.import_module("chromadb")
    settings = importlib.import_module("chromadb.config").Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(str(bench.path("chroma").with_suffix("")), settings=settings)
    collection = client.create_collection("bench", metadata={"hnsw:space": "cosine"})
    stores: Any = importlib.import_module("llama_index.vector_stores.chroma")
    return _of_store(stores.ChromaVectorStore(chroma_collection=collection), vectors)


def _simple(vectors: Mapping[str, list[float]]) -> Search:
    return _of_store(importlib.import_module("llama_index.core.vector_stores").SimpleVectorStore(), vectors)


def _of_store(store: Any, vectors: Mapping[str, list[float]]) -> Search:
    texts = list(vectors)
    for start in range(0, len(texts), _CHUNK):
        store.add(_nodes(texts[start : start + _CHUNK], vectors))
    return Search(lambda text: store.add(_nodes([text], {text: vector(text)})), lambda text: store.query(_query(text)))


class _Directions(Embeddings):
    def __init__(self, vectors: Mapping[str, list[float]]) -> None:
        self._vectors = vectors

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self._vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return vector(text)


def _in_memory(vectors: Mapping[str, list[float]]) -> Search:
    store = InMemoryVectorStore(_Directions(vectors))
    store.add_texts(list(vectors))
    return Search(lambda text: store.add_texts([text]), lambda text: store.similarity_search(text, k=_K))
