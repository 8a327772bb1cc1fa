"""Vectors in Chroma: in a folder of this process's own, or on a server. One collection per namespace."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock, lock_of
from langmem_adapters.embedding import Embedding, Vector
from langmem_adapters.errors import ConfigurationError, Conflict, LangmemError, MissingDependency, SearchError
from langmem_adapters.flow import is_coroutine
from langmem_adapters.indexes.vector import EmbedderSpec, Watermark, check_position
from langmem_adapters.indexes.vector_chroma_url import URL_FORMS, folder_of, server_of
from langmem_adapters.indexes.vector_folder_lock import acquire_folder, release_folder
from langmem_adapters.keys import fingerprint
from langmem_adapters.lru import LRU
from langmem_adapters.protocols import Position

T = TypeVar("T")

_MAX_NUMBERS_PER_REQUEST = 1_000_000  # which must stay below the 40 MB that a server accepts
_MAX_CACHED_COLLECTIONS = 1_000
_METADATA_KEY = "langmem"
_MIN_SQLITE_VERSION = (3, 35)  # chromadb cannot be imported with an older one
_CONFIGURATION = {"hnsw": {"space": "cosine", "ef_construction": 200, "ef_search": 200}}
_import_lock = ForkSafeLock()  # so that no child is forked during an import
_open_lock = ForkSafeLock()  # Chroma shares one system among all clients of a folder, and counts them without a lock


@cache
def _driver() -> Any:
    """Import the driver at the first call, on that call's thread: it takes seconds, and must not delay construction."""
    with no_fork, _import_lock.held():
        from langmem_adapters.indexes import vector_chroma_driver  # noqa: PLC0415

        return vector_chroma_driver


def _is_installed(package: str) -> bool:
    try:
        return sys.modules.get(package) is not None or find_spec(package) is not None
    except ImportError:
        return False


class ChromaVectors:
    """Vectors in Chroma; ids and vectors only, no texts.

    The search is exact among the first 1,000 vectors of a namespace (300 in Chroma Cloud), and approximate (HNSW) among
    more: the more there are, and the more of them are nearly the same, the more it may miss.

    Chroma has no transactions: a search may see half of a change, and a crash leaves the old position, so that the
    change is applied again. The threads of a process take turns. Of two processes that follow one store on a server,
    the later one may notice that only after its change; then the namespace is begun anew. A folder belongs to one
    process at a time: Chroma would give a second one stale results, and can damage the files. A child forked after its
    parent used any folder can use none: Chroma would hang. Chroma is never given an embedding function, which would
    download a model.

    Args:
        url_or_client: "chroma:///folder", "chroma+http://host:port", "chroma+https://host:port", or a ready client
            of chromadb (with a token, for a tenant), whose folder is not guarded.
    """

    def __init__(self, url_or_client: Any) -> None:
        get_collection = getattr(url_or_client, "get_or_create_collection", None)
        if not isinstance(url_or_client, str) and (get_collection is None or is_coroutine(get_collection)):
            raise ConfigurationError(
                f"vectors are kept in Chroma, given as {URL_FORMS} or as a synchronous client, or in"
                f" NodeVectors(store) of langmem_adapters.llamaindex, and not in {type(url_or_client).__name__}"
            )
        if not (_is_installed("chromadb") and _is_installed("numpy")):
            raise MissingDependency("chromadb", "chroma")
        self._given_client = None if isinstance(url_or_client, str) else url_or_client
        self._given_pid = os.getpid()
        self._folder, self._name = "", "the given client"
        self._server: tuple[str, int, bool] | None = None
        if isinstance(url_or_client, str):
            if sqlite3.sqlite_version_info < _MIN_SQLITE_VERSION:
                raise ConfigurationError(
                    f"chromadb cannot be used here: it needs SQLite 3.35, and this Python has {sqlite3.sqlite_version};"
                    " give open_vectors the URL of the store, beside which vectors need no Chroma"
                )
            self._name = self._folder = folder_of(url_or_client)
            if not self._folder:
                self._server = server_of(url_or_client)
                self._name = f"{self._server[0]}:{self._server[1]}"
        self._change_lock = lock_of(self._name if self._given_client is None else id(url_or_client))
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._running_calls = 0
        self._closing = False
        self._client: Any = None
        self._collections: LRU[str, Any] = LRU(_MAX_CACHED_COLLECTIONS)

    def watermark(self, name: str) -> Watermark | None:
        with self._search_errors():
            collection = self._fetch_collection(name)
            return None if collection is None else _read_watermark(collection)

    def change(
        self,
        name: str,
        maker: EmbedderSpec,
        *,
        upsert: Mapping[str, Embedding],
        delete: Sequence[str],
        position: Position | None,
        since: Position | None = None,
    ) -> None:
        with self._search_errors(), self._change_lock.held(), self._conflict_if_cleared(since):
            collection = self._ensure_collection(name, maker, since)
            batch_size = self._batch_size(maker.dimension)
            for batch in _batches([_encode_id(id_) for id_ in delete], batch_size):
                collection.delete(ids=batch)
            for ids in _batches(list(upsert), batch_size):
                collection.upsert(
                    ids=[_encode_id(id_) for id_ in ids], embeddings=[list(upsert[id_].vector) for id_ in ids]
                )
            old = _read_watermark(collection)
            new_maker = EmbedderSpec(maker.embedder, maker.dimension or old.maker.dimension)
            metadata = _to_metadata(new_maker, old.position if position is None else position)
            if since is not None and (delete or upsert):
                self._check_position(name, maker, since)
            if metadata != collection.metadata:
                collection.modify(metadata=metadata)

    def nearest(self, name: str, maker: EmbedderSpec, vector: Vector, k: int) -> list[tuple[str, float]]:
        def read(collection: Any) -> list[tuple[str, float]]:
            quota = _driver().quota(self._get_client())
            return list(_driver().nearest(collection, vector, k, quota))

        neighbours = self._query_collection(name, maker, read) or []
        return [(unquote(id_[1:], errors="surrogatepass"), cosine) for id_, cosine in neighbours]

    def cosines(self, name: str, maker: EmbedderSpec, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        def read(collection: Any) -> dict[str, float]:
            cosines: dict[str, float] = {}
            for batch in _batches([_encode_id(id_) for id_ in ids], self._batch_size(maker.dimension)):
                cosines |= _driver().cosines(collection, vector, ids=batch)
            return cosines

        cosines = self._query_collection(name, maker, read) or {}
        return {id_: cosines[key] for id_ in ids if (key := _encode_id(id_)) in cosines}

    def clear(self, name: str) -> None:
        with self._search_errors(), self._change_lock.held():
            self._delete_collection(name)

    def close(self) -> None:
        """Close the client, unless it was given, and release the folder, once no call is running."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closing = True
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._running_calls or not self._closing:
            return
        client, self._client, self._closing = self._client, None, False
        self._collections.clear()
        if client is None or self._given_client is not None:
            return
        with no_fork, _open_lock.held():
            client.close()
            if self._folder:
                release_folder(self._opened_folder)

    def __repr__(self) -> str:
        return f"ChromaVectors({self._name!r})"

    # ---- collections

    def _query_collection(self, name: str, maker: EmbedderSpec, ask: Callable[[Any], T]) -> T | None:
        """A collection's answer; None if there is no collection with vectors that fit this maker's."""

        def answer(collection: Any) -> T | None:
            return ask(collection) if collection is not None and _read_watermark(collection).maker.fits(maker) else None

        with self._search_errors():
            with self._lock:
                cached = self._collections.get(name)
            with contextlib.suppress(_driver().chromadb.errors.ChromaError, ValueError):
                result = answer(cached)
                return answer(self._fetch_collection(name)) if result is None else result
            # Chroma may fail in any way, or give ids without their vectors, if it was changed or cleared meanwhile.
            with self._change_lock.held(), contextlib.suppress(_driver().chromadb.errors.NotFoundError):
                return answer(self._fetch_collection(name))
            return None

    def _fetch_collection(self, name: str) -> Any:
        try:
            collection = self._get_client().get_collection(_collection_name(name), embedding_function=None)
        except _driver().chromadb.errors.NotFoundError:
            collection = None
        self._cache_collection(name, collection)
        return collection

    def _check_position(self, name: str, maker: EmbedderSpec, since: Position) -> None:
        """Chroma has no conditional changes: if another machine was first, the collection now mixes both changes."""
        collection = self._fetch_collection(name)
        try:
            check_position(None if collection is None else _read_watermark(collection), maker, since)
        except Conflict:
            self._delete_collection(name)
            raise

    @contextlib.contextmanager
    def _conflict_if_cleared(self, since: Position | None) -> Iterator[None]:
        try:
            yield
        except _driver().chromadb.errors.NotFoundError as error:  # cleared by another machine just now
            if since is None:
                raise
            raise Conflict("the vectors were cleared by another follower") from error

    def _ensure_collection(self, name: str, maker: EmbedderSpec, since: Position | None) -> Any:
        """Fetch the namespace's collection, or make it; one of another maker is dropped."""
        collection = self._fetch_collection(name)
        check_position(None if collection is None else _read_watermark(collection), maker, since)
        if collection is not None and not _read_watermark(collection).maker.fits(maker):
            self._delete_collection(name)
            collection = None
        if collection is None:
            metadata = _to_metadata(maker, None)
            collection = self._get_client().get_or_create_collection(
                _collection_name(name), metadata=metadata, configuration=_CONFIGURATION, embedding_function=None
            )
            if not _read_watermark(collection).maker.fits(maker):
                raise SearchError(f"{self._name}: another embedder has begun the same namespace meanwhile")
            self._cache_collection(name, collection)
        return collection

    def _delete_collection(self, name: str) -> None:
        self._cache_collection(name, None)
        with contextlib.suppress(_driver().chromadb.errors.NotFoundError):
            self._get_client().delete_collection(_collection_name(name))

    def _cache_collection(self, name: str, collection: Any) -> None:
        with self._lock:
            if collection is None:
                self._collections.drop(name)
            else:
                self._collections.put(name, collection)

    # ---- the client

    def _get_client(self) -> Any:
        # A server is not waited for under the lock, where callers would wait one after the other.
        connected = _driver().connect(*self._server, self) if self._client is None and self._server else None
        with self._lock:
            if self._client is None:
                if self._given_client is not None and not self._given_client.get_settings().chroma_server_host:
                    _driver().check_engine(self._name, self._given_pid)
                self._client = self._given_client or connected or self._open_client()
            elif connected is not None:  # another thread was first
                connected.close()
            return self._client

    def _open_client(self) -> Any:
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        folder = self._opened_folder = os.path.realpath(self._folder)  # which a link may change meanwhile
        with no_fork, _open_lock.held():
            _driver().check_engine(self._name, os.getpid())
            if not acquire_folder(folder):
                raise ConfigurationError(
                    f"another process uses {self._name}, and only one may at a time: run `chroma run --path "
                    f"{self._folder}` and give every process chroma+http://localhost:8000"
                )
            try:
                return _driver().open_folder(folder)
            except BaseException:
                release_folder(folder)
                raise

    def _batch_size(self, dimension: int | None) -> int:
        client = self._get_client()
        max_records = min(int(client.get_max_batch_size()), int(_driver().quota(client)))
        return max(min(max_records, _MAX_NUMBERS_PER_REQUEST // (dimension or 1)), 1)

    @contextlib.contextmanager
    def _search_errors(self) -> Iterator[None]:
        if self._pid != os.getpid():  # Chroma's threads are the parent's, and one of them may hold the lock for ever
            self._reset()
        with self._lock:
            self._running_calls += 1
        try:
            yield
        except LangmemError:
            raise
        except _driver().httpx.TransportError as error:
            raise SearchError(f"{self._name} cannot be reached: {type(error).__name__}") from error
        except Exception as error:
            # Chroma's own sentences may quote ids, but not those about its connection.
            cause = type(error).__name__ if self._client else str(error).strip().partition("\n")[0]
            if _driver().has_lost_files(self._client):  # the next call opens what is there now
                self._closing, cause = True, "its files were removed or replaced"
            raise SearchError(f"{self._name} failed: {cause}") from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of Rust, and not an Exception
                raise
            raise SearchError(f"{self._name} failed: its files may be damaged") from error
        finally:
            with self._lock:
                self._running_calls -= 1
                self._close_when_idle()


# ---- what Chroma is given


def _collection_name(name: str) -> str:
    """A name that Chroma accepts, whatever the namespace holds."""
    return f"langmem-{fingerprint(name)}"


def _encode_id(id_: str) -> str:
    """An id that Chroma accepts: not empty, and without lone surrogates."""
    return "-" + quote(id_, safe=" ", errors="surrogatepass")


def _to_metadata(maker: EmbedderSpec, position: Position | None) -> dict[str, str]:
    return {_METADATA_KEY: json.dumps({"embedder": maker.embedder, "dimension": maker.dimension, "position": position})}


def _read_watermark(collection: Any) -> Watermark:
    metadata = json.loads((collection.metadata or {}).get(_METADATA_KEY, "{}"))
    position = metadata.get("position")
    maker = EmbedderSpec(metadata.get("embedder", ""), metadata.get("dimension"))
    return Watermark(maker, None if position is None else (position[0], position[1]))


def _batches(values: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(values), size):
        yield list(values[start : start + size])
