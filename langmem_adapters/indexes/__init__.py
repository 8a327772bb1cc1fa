"""Indexes, by the URL of the store that they follow."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langmem_adapters.database import default_url, file_of
from langmem_adapters.embedding import Embedder
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import fingerprint
from langmem_adapters.protocols import Index

if TYPE_CHECKING:
    from langmem_adapters.indexes.vector import VectorIndex

__all__ = ["open_index", "open_vectors", "shared_index", "shared_vectors"]


def open_index(url: str | None = None) -> Index:
    """Make the lexical index that goes with a store's URL. Nothing is opened before the first use.

    A file's index lies in that file, a memory's in memory. A server's index lies in a file of this machine's
    working directory, named after the URL, and is brought up to date from the server by itself.

    >>> open_index("memory:")
    LexicalIndex(':memory:')
    """
    return LexicalIndex(_file(url or default_url()))


def open_vectors(url: Any, embedder: Any) -> VectorIndex:
    """Make a vector index. Nothing is opened or connected before the first use.

    Args:
        url: The URL of the store that it goes with: its vectors then lie where :func:`open_index` has its words
            (needs the extra ``vectors``, which is NumPy). Or a Chroma of its own (extra ``chroma``):
            "chroma:///folder", "chroma+http://host:8000", "chroma+https://host", or a client of chromadb.
            None: the URL of the default store.
        embedder: A LangChain or LlamaIndex embedding model, or an :class:`~langmem_adapters.embedding.Embedder`.

    >>> from langmem_adapters.embedding import Embedder
    >>> open_vectors("memory:", Embedder(lambda texts: [[1.0] for text in texts], name="ones"))
    VectorIndex(SQLiteVectors(':memory:'), Embedder('ones'))
    """
    from langmem_adapters.indexes.vector import VectorIndex  # noqa: PLC0415 - few need it

    url = default_url() if url is None else url
    if not isinstance(url, str) or url.startswith("chroma"):
        from langmem_adapters.indexes.vector_chroma import ChromaVectors  # noqa: PLC0415 - imports its driver

        return VectorIndex(ChromaVectors(url), embedder)

    from langmem_adapters.indexes.vector_sqlite import SQLiteVectors  # noqa: PLC0415 - imports NumPy

    return VectorIndex(SQLiteVectors(_file(url)), embedder)


def _file(url: str) -> str | Path:
    if url.startswith("memory:"):
        return ":memory:"
    if url.startswith("sqlite:"):
        return file_of(url)[0]
    return f"langmem-{fingerprint(url)[:12]}-index.db"


def shared_index(url: str | None = None) -> Index:
    """Give the one index that everything in this process shares for a URL."""
    url = url or default_url()
    with _lock:
        if url not in _shared:
            _shared[url] = open_index(url)
        return _shared[url]


def shared_vectors(url: str | None, embedder: Any) -> VectorIndex:
    """Give the one vector index that everything in this process shares for a URL and an embedder's name."""
    url, embedder = url or default_url(), Embedder.of(embedder)
    key = (url, embedder.name)
    with _lock:
        if key not in _shared_vectors:
            _shared_vectors[key] = open_vectors(url, embedder)
        return _shared_vectors[key]


_lock = threading.Lock()
_shared: dict[str, Index] = {}
_shared_vectors: dict[tuple[str, str], VectorIndex] = {}
