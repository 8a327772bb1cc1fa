"""The store, the index and the place for vectors of a URL, when a codec or a redactor protects the data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from langmem_adapters.embedding import Embedder, Vector
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.scrubbing import can_list_namespaces, has_vectors
from langmem_adapters.indexes import open_index, shared_index, shared_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.lexical_keyed import KeyedLexicalIndex
from langmem_adapters.protocols import Index, Store
from langmem_adapters.sealing import BindingCodec, Codec, Redactor, SealedStore
from langmem_adapters.stores import shared_store

_MAX_CACHED_INDEXES = 64


def protected_store(url: str, codec: Codec | BindingCodec | None, redactor: Redactor | None) -> Store:
    """The store of this process for a URL, sealed if there is a codec or a redactor."""
    store = shared_store(url)
    return store if codec is None and redactor is None else SealedStore(store, codec=codec, redactor=redactor)


def protected_index(url: str, codec: Codec | BindingCodec | None) -> Index:
    """The lexical index of this process for a URL; with a codec, it stores no readable words.

    With a codec that has an ``index_key``, the index is keyed and in its usual place; with another codec, it is in
    memory.
    """
    if codec is None:
        return shared_index(url)
    index_key = getattr(codec, "index_key", None)
    return _private_index(url, None if index_key is None else index_key())


@lru_cache(_MAX_CACHED_INDEXES)
def _private_index(url: str, key: bytes | None) -> Index:
    if key is None:
        return open_index("memory:")
    return KeyedLexicalIndex.in_file_of(cast("LexicalIndex", shared_index(url)), key=key)


def vectors_url(url: str, codec: Codec | BindingCodec | None) -> str:
    """Where the vectors of a URL's store are: in memory if there is a codec, since texts can be guessed from them."""
    return url if codec is None else f"memory:{url}"


def every_index(url: str, *, codec: Codec | BindingCodec | None, vectors: str | None, embedder: Any) -> list[Index]:
    """All indexes of a URL's store that this machine can know of, including those made under other settings."""
    index = shared_index(url)
    indexes = {index}
    # With an index key it is in the same file, and opening it may need a lost key.
    if not (can_list_namespaces(index) and hasattr(codec, "index_key")):
        indexes.add(protected_index(url, codec))
    if embedder is not None:
        indexes.add(shared_vectors(vectors or vectors_url(url, codec), embedder))
    elif vectors is not None:
        indexes.add(shared_vectors(vectors, _REFUSING_EMBEDDER))
    if has_vectors(index):
        indexes.add(shared_vectors(url, _REFUSING_EMBEDDER))
    return list(indexes)


def _refuse(_texts: list[str]) -> list[Vector]:
    raise ConfigurationError("this index is there to be cleared")


_REFUSING_EMBEDDER = Embedder(_refuse, name="none")
