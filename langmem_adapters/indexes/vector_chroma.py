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
from langmem_adapters.indexes.vector import EmbedderSpec, Watermark, check
from langmem_adapters.indexes.vector_chroma_url import FORMS, folder_of, server_of
from langmem_adapters.indexes.vector_lock import hold, let_go
from langmem_adapters.keys import fingerprint
from langmem_adapters.lru import LRU
from langmem_adapters.protocols import Position

__all__ = ["ChromaVectors"]

T = TypeVar("T")

_NUMBERS = 1_000_000  # numbers in one request, which must stay below the 40 MB that a server accepts
_COLLECTIONS = 1_000  # collections that are cached
_ABOUT = "langmem"
_SQLITE = (3, 35)  # chromadb cannot be imported with an older one
_INDEX = {"hnsw": {"space": "cosine", "ef_construction": 200, "ef_search": 200}}
_importing = ForkSafeLock()  # so that no child is forked during an import
_opening = ForkSafeLock()  # Chroma shares one system among all clients of a folder, and counts them without a lock


@cache
def _driver() -> Any:
    """Import the driver at the first call, on that call's thread: it takes seconds, and must not delay construction."""
    with no_fork, _importing.held():
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
    process at a time: Chroma would give a second one stale results, and can damage the files. Chroma is never given an
    embedding function, which would download a model.

    Args:
        place: "chroma:///folder", "chroma+http://host:port", "chroma+https://host:port", or a ready client of
            chromadb (with a token, for a tenant), whose folder is not guarded.
    """

    def __init__(self, place: Any) -> None:
        begin = getattr(place, "get_or_create_collection", None)
        if not isinstance(place, str) and (begin is None or is_coroutine(begin)):
            raise ConfigurationError(
                f"vectors are kept in Chroma, given as {FORMS} or as a synchronous client, or in"
                f" NodeVectors(store) of langmem_adapters.llamaindex, and not in {type(place).__name__}"
            )
        if not (_is_installed("chromadb") and _is_installed("numpy")):
            raise MissingDependency("chromadb", "chroma")
        self._given = None if isinstance(place, str) else place
        if self._given is None and sqlite3.sqlite_version_info < _SQLITE:
            has = sqlite3.sqlite_version
            raise ConfigurationError(
                f"chromadb cannot be used here: it needs SQLite 3.35, and this Python has {has};"
                " give open_vectors the URL of the store, beside which vectors need no Chroma"
            )
        self._folder = folder_of(place) if isinstance(place, str) else ""
        self._server = server_of(place) if isinstance(place, str) and not self._folder else None
        self._name = self._folder or ("{}:{}".format(*self._server) if self._server else "the given client")
        self._changing = lock_of(self._name if self._given is None else id(place))
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._calls = 0  # running calls
        self._leaving = False
        self._client: Any = None
        self._collections: LRU[str, Any] = LRU(_COLLECTIONS)

    def mark(self, name: str) -> Watermark | None:
        with self._failures():
            collection = self._fetched(name)
            return None if collection is None else _mark(collection)

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
        with self._failures(), self._changing.held(), self._conflicts(since):
            collection = self._begun(name, maker, since)
            size = self._batch(maker.dimension)
            for part in _parts([_encoded(id_) for id_ in delete], size):
                collection.delete(ids=part)
            for ids in _parts(list(upsert), size):
                collection.upsert(
                    ids=[_encoded(id_) for id_ in ids], embeddings=[list(upsert[id_].vector) for id_ in ids]
                )
            old = _mark(collection)
            kept = old.position if position is None else position
            about = _about(EmbedderSpec(maker.embedder, maker.dimension or old.maker.dimension), kept)
            if since is not None and (delete or upsert):
                self._look_again(name, maker, since)
            if about != collection.metadata:
                collection.modify(metadata=about)

    def nearest(self, name: str, maker: EmbedderSpec, vector: Vector, k: int) -> list[tuple[str, float]]:
        def read(collection: Any) -> list[tuple[str, float]]:
            most = _driver().quota(self._connected())
            return list(_driver().nearest(collection, vector, k, most))

        found = self._read(name, maker, read) or []
        return [(unquote(id_[1:], errors="surrogatepass"), cosine) for id_, cosine in found]

    def cosines(self, name: str, maker: EmbedderSpec, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        def read(collection: Any) -> dict[str, float]:
            found: dict[str, float] = {}
            for part in _parts([_encoded(id_) for id_ in ids], self._batch(maker.dimension)):
                found |= _driver().cosines(collection, vector, ids=part)
            return found

        found = self._read(name, maker, read) or {}
        return {id_: found[code] for id_ in ids if (code := _encoded(id_)) in found}

    def clear(self, name: str) -> None:
        with self._failures(), self._changing.held():
            self._drop(name)

    def close(self) -> None:
        """Close the client, unless it was given, and release the folder, once no call is running."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._leaving = True
            self._leave()

    def _leave(self) -> None:
        if self._calls or not self._leaving:
            return
        client, self._client, self._leaving = self._client, None, False
        self._collections.clear()
        if client is None or self._given is not None:
            return
        with no_fork, _opening.held():
            client.close()
            if self._folder:
                let_go(os.path.realpath(self._folder))

    def __repr__(self) -> str:
        return f"ChromaVectors({self._name!r})"

    # ---- collections

    def _read(self, name: str, maker: EmbedderSpec, ask: Callable[[Any], T]) -> T | None:
        """A collection's answer; None if there is no collection with vectors that fit this maker's."""

        def answer(collection: Any) -> T | None:
            if collection is not None and _mark(collection).maker.fits(maker):
                with contextlib.suppress(_driver().NotFoundError):  # it was cleared just now, or begun anew
                    return _answered(collection, ask)
            return None

        with self._failures():
            with self._lock:
                known = self._collections.get(name)
            found = answer(known)
            return answer(self._fetched(name)) if found is None else found

    def _fetched(self, name: str) -> Any:
        try:
            collection = self._connected().get_collection(_collection(name), embedding_function=None)
        except _driver().NotFoundError:
            collection = None
        self._remember(name, collection)
        return collection

    def _look_again(self, name: str, maker: EmbedderSpec, since: Position) -> None:
        """Chroma has no conditional changes: if another machine was first, the collection now mixes both changes."""
        collection = self._fetched(name)
        try:
            check(None if collection is None else _mark(collection), maker, since)
        except Conflict:
            self._drop(name)
            raise

    @contextlib.contextmanager
    def _conflicts(self, since: Position | None) -> Iterator[None]:
        try:
            yield
        except _driver().NotFoundError as error:  # cleared by another machine just now
            if since is None:
                raise
            raise Conflict("the vectors were cleared by another follower") from error

    def _begun(self, name: str, maker: EmbedderSpec, since: Position | None) -> Any:
        """Fetch the namespace's collection, or make it; one of another maker is dropped."""
        collection = self._fetched(name)
        check(None if collection is None else _mark(collection), maker, since)
        if collection is not None and not _mark(collection).maker.fits(maker):
            self._drop(name)
            collection = None
        if collection is None:
            collection = self._connected().get_or_create_collection(
                _collection(name), metadata=_about(maker, None), configuration=_INDEX, embedding_function=None
            )
            if not _mark(collection).maker.fits(maker):
                raise SearchError(f"{self._name}: another embedder has begun the same namespace meanwhile")
            self._remember(name, collection)
        return collection

    def _drop(self, name: str) -> None:
        self._remember(name, None)
        with contextlib.suppress(_driver().NotFoundError):
            self._connected().delete_collection(_collection(name))

    def _remember(self, name: str, collection: Any) -> None:
        with self._lock:
            if collection is None:
                self._collections.drop(name)
            else:
                self._collections.keep(name, collection)

    # ---- the client

    def _connected(self) -> Any:
        # A server is not waited for under the lock, where callers would wait one after the other.
        reached = _driver().reached(*self._server, self) if self._client is None and self._server else None
        with self._lock:
            if self._client is None:
                self._client = self._given or reached or self._opened()
            elif reached is not None:  # another thread was first
                reached.close()
            return self._client

    def _opened(self) -> Any:
        Path(self._folder).mkdir(parents=True, exist_ok=True)
        folder = os.path.realpath(self._folder)
        with no_fork, _opening.held():
            if not hold(folder):
                raise ConfigurationError(
                    f"another process uses {self._name}, and only one may at a time: run `chroma run --path "
                    f"{self._folder}` and give every process chroma+http://localhost:8000"
                )
            try:
                settings = _driver().Settings(anonymized_telemetry=False)
                return _driver().chromadb.PersistentClient(folder, settings=settings)
            except BaseException:
                let_go(folder)
                raise

    def _batch(self, dimension: int | None) -> int:
        client = self._connected()
        most = min(int(client.get_max_batch_size()), int(_driver().quota(client)))
        return max(min(most, _NUMBERS // (dimension or 1)), 1)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        if self._pid != os.getpid():  # Chroma's threads are the parent's, and one of them may hold the lock for ever
            self._start()
        with self._lock:
            self._calls += 1
        try:
            yield
        except LangmemError:
            raise
        except _driver().httpx.TransportError as error:
            raise SearchError(f"{self._name} cannot be reached: {type(error).__name__}") from error
        except Exception as error:
            # Chroma's own sentences may quote ids, but not those about its connection.
            why = type(error).__name__ if self._client else str(error).strip().partition("\n")[0]
            raise SearchError(f"{self._name} failed: {why}") from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of Rust, and not an Exception
                raise
            raise SearchError(f"{self._name} failed: its files may be damaged") from error
        finally:
            with self._lock:
                self._calls -= 1
                self._leave()


# ---- what Chroma is given


def _collection(name: str) -> str:
    """A name that Chroma accepts, whatever the namespace holds."""
    return f"langmem-{fingerprint(name)}"


def _encoded(id_: str) -> str:
    """An id that Chroma accepts: not empty, and without lone surrogates."""
    return "-" + quote(id_, safe=" ", errors="surrogatepass")


def _about(maker: EmbedderSpec, position: Position | None) -> dict[str, str]:
    return {_ABOUT: json.dumps({"embedder": maker.embedder, "dimension": maker.dimension, "position": position})}


def _mark(collection: Any) -> Watermark:
    about = json.loads((collection.metadata or {}).get(_ABOUT, "{}"))
    position = about.get("position")
    maker = EmbedderSpec(about.get("embedder", ""), about.get("dimension"))
    return Watermark(maker, position and (position[0], position[1]))


def _parts(values: Sequence[T], size: int) -> Iterator[list[T]]:
    for n in range(0, len(values), size):
        yield list(values[n : n + size])


def _answered(collection: Any, ask: Callable[[Any], T]) -> T:
    try:
        return ask(collection)
    except _driver().InternalError:
        return ask(collection)  # during a write, a server may look for data that it has only half of; a retry finds all
