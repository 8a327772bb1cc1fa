"""Open indexes by the URL of the store that they follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langmem_adapters.concurrency.breaker import PATIENCE_SECONDS
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.urls import SERVER_SCHEMES, anchored_url, database_of, default_url, file_of
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex, Vectors
from langmem_adapters.keys import fingerprint
from langmem_adapters.lru import LRU
from langmem_adapters.protocols import Index, Store
from langmem_adapters.validation import check_text

__all__ = [
    "cache_index",
    "cache_vectors",
    "index_of",
    "open_index",
    "open_vectors",
    "shared_index",
    "shared_vectors",
    "vectors_of",
]

_MAX_VECTOR_INDEXES = 64  # those that were asked for last
_lock = ForkSafeLock()  # held while a driver is imported
_shared: dict[tuple[str, float | None], Index] = {}
_shared_backends: dict[tuple[str, float | None], Vectors] = {}
_shared_vector_indexes: LRU[tuple[str, float | None, int], tuple[Any, VectorIndex]] = LRU(_MAX_VECTOR_INDEXES)


def open_index(url: str | None = None) -> Index:
    """Make the lexical index that goes with a store's URL. Nothing is opened before the first use.

    A file's index lies in that file, a memory's in memory. A server's index lies in a file of this machine's working
    directory, named after the server and its database, and follows the server's content.

    >>> open_index("memory:")
    LexicalIndex(':memory:')
    """
    if url is not None:
        check_text("a store's URL", url)
    return _make_index(default_url() if url is None else url)


def open_vectors(url: Any, embedder: Any) -> VectorIndex:
    """Make a vector index. Nothing is opened or connected before the first use.

    Args:
        url: The URL of the store that it goes with: its vectors are then where :func:`open_index` has its words
            (needs the extra ``vectors``, which is NumPy). Or a Chroma of its own (extra ``chroma``):
            "chroma:///folder", "chroma+http://host:8000", "chroma+https://host", or a client of chromadb. Or a place
            of another kind: :class:`~langmem_adapters.llamaindex.NodeVectors` makes one of any vector store of
            LlamaIndex. None: the URL of the default store.
        embedder: A LangChain or LlamaIndex embedding model, or an :class:`~langmem_adapters.embedding.Embedder`.

    >>> from langmem_adapters.embedding import Embedder
    >>> open_vectors("memory:", Embedder(lambda texts: [[1.0] for text in texts], name="ones"))
    VectorIndex(SQLiteVectors(':memory:'), Embedder('ones'))
    """
    backend = default_url() if url is None else url
    return VectorIndex(backend if isinstance(backend, Vectors) else _make_vectors(backend), embedder)


def _make_vectors(url: Any, timeout: float | None = None) -> Vectors:
    if not isinstance(url, str) or url.startswith("chroma"):
        from langmem_adapters.indexes.vector_chroma import ChromaVectors  # noqa: PLC0415 - few need it

        return ChromaVectors(url)

    from langmem_adapters.indexes.vector_sqlite import SQLiteVectors  # noqa: PLC0415 - imports NumPy

    return SQLiteVectors(_index_file(url), timeout=timeout, disposable=_is_server_url(url))


def _make_index(url: str, timeout: float | None = None) -> LexicalIndex:
    return LexicalIndex(_index_file(url), timeout=timeout, disposable=_is_server_url(url))


def _is_server_url(url: str) -> bool:
    """Whether the store is on a server, and not in the file of the index."""
    return not url.startswith(("memory:", "sqlite:"))


def _index_file(url: str) -> str | Path:
    if url.startswith("memory:"):
        return ":memory:"
    if url.startswith("sqlite:"):
        return file_of(url)[0]
    if url.partition("://")[0] not in SERVER_SCHEMES:
        raise ConfigurationError(
            'an index is opened with the URL of a store: "memory:", "sqlite:///file.db" or "redis://…"; vectors also'
            ' with that of a Chroma, such as "chroma+http://host:8000"'
        )
    # Passwords and options are not in the name: a second file would keep words that are deleted from the first.
    return f"langmem-{fingerprint(database_of(url))[:12]}-index.db"


def shared_index(url: str | None = None, timeout: float | None = None) -> Index:
    """Return the one index that this process shares for a URL; ``timeout`` as for a LexicalIndex."""
    key = _shared_key(url, timeout)
    with no_fork, _lock.held():
        if key not in _shared:
            _shared[key] = _make_index(*key)
        return _shared[key]


def shared_vectors(url: str | None, embedder: Any, timeout: float | None = None) -> VectorIndex:
    """Return the one vector index that this process shares for a URL and an embedder.

    It asks only this embedder: another one of the same name may belong to another account, so it embeds its own texts,
    though the vectors of both are kept in one place.
    """
    backend_key = _shared_key(url, timeout)
    key = (*backend_key, id(embedder))
    with no_fork, _lock.held():
        # The embedder is kept too, so that no other object gets its id.
        entry = _shared_vector_indexes.get(key)
        if entry is None:
            own_embedder = Embedder.of(embedder)
            if backend_key not in _shared_backends:
                _shared_backends[backend_key] = _make_vectors(*backend_key)
            entry = embedder, VectorIndex(_shared_backends[backend_key], own_embedder)
            _shared_vector_indexes.put(key, entry)
        return entry[1]


def _shared_key(url: str | None, timeout: float | None) -> tuple[str, float | None]:
    """The key of a shared index, of which it is made: one in memory needs no timeout, so there is only one."""
    url = anchored_url(url or default_url())
    return url, None if url.startswith("memory:") else timeout


def index_of(url: str | None, store: Store | None, timeout: float | None = None) -> Index:
    """Return the shared index of the URL, or a new one in memory for a caller's own store."""
    return shared_index(url, timeout) if store is None else open_index("memory:")


def cache_index(url: str | None = None, store: Store | None = None) -> Index:
    """:func:`index_of` for caches: their shared index has a short timeout, so it delays no caller."""
    return index_of(url, store, PATIENCE_SECONDS)


def vectors_of(url: str | None, store: Store | None, embedder: Any) -> VectorIndex | None:
    """:func:`index_of` for vectors; None without an embedder."""
    if embedder is None:
        return None
    return shared_vectors(url, embedder) if store is None else open_vectors("memory:", embedder)


def cache_vectors(url: str | None, embedder: Any) -> VectorIndex:
    """Return the one vector index that all caches in this process share for a URL and an embedder."""
    return shared_vectors(url, embedder, PATIENCE_SECONDS)
