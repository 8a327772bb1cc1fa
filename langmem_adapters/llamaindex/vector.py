"""NodeVectors: keeps the vectors of a vector index in a vector store of LlamaIndex."""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import mul
from pathlib import Path
from typing import NamedTuple, cast

from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from langmem_adapters.concurrency.locks import ForkSafeLock, lock_of
from langmem_adapters.embedding import Embedding, Vector
from langmem_adapters.errors import ConfigurationError, Conflict, SearchError
from langmem_adapters.files.damage import search_errors
from langmem_adapters.files.database import Database
from langmem_adapters.indexes.vector import EmbedderSpec, Watermark, check_position
from langmem_adapters.keys import fingerprint, to_bytes, to_text
from langmem_adapters.protocols import Position
from langmem_adapters.validation import check_count, check_sync_functions

_SCHEMA = (
    """CREATE TABLE langmem_node_namespaces (
        number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, generation TEXT NOT NULL, embedder BLOB NOT NULL,
        dimension INTEGER, seq INTEGER, entry BLOB)""",
    """CREATE TABLE langmem_nodes (
        node TEXT PRIMARY KEY, namespace INTEGER NOT NULL, id BLOB NOT NULL, vector BLOB NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX langmem_nodes_of ON langmem_nodes (namespace)",
)
_NAMES = "SELECT name FROM langmem_node_namespaces WHERE name >= ? AND name < ?"
_NODES = "SELECT node, vector FROM langmem_nodes WHERE namespace = ? LIMIT ?"
_NODE = "SELECT node, vector FROM langmem_nodes WHERE node = ?"
_NAMESPACE = "langmem_namespace"
_MAX_EXACT_VECTORS = 5_000  # vectors of the ledger that are compared where the store gives fewer than it is asked for


class NodeVectors:
    """Any vector store of LlamaIndex as the place of a :class:`~langmem_adapters.indexes.vector.VectorIndex`.

    The store proposes candidates, by whatever similarity it has, and a ledger (an SQLite file with vectors, ids and
    positions) gives them scores that are the same on every store. What the store must offer: ``add``, ``delete_nodes``
    by id, and a ``query`` with an equality filter on metadata that is applied inside of the search; its order must be
    that of cosine, inner product or Euclidean distance. LlamaIndex's own does, and those for Chroma, Qdrant and Milvus;
    those for FAISS know no filters, and that for LanceDB (0.6.0) deletes nothing by id: neither can be used.

    Nodes carry a vector and a hashed namespace, but no text: give them a store of their own, as an index of yours on
    the same one would find them. An approximate search, such as Chroma's, may miss a vector where many are nearly the
    same. That is made good if fewer come back than were asked for, and cannot be noticed if enough do.

    The threads of a process take turns. Of two processes with one ledger, the later one notices only after its change
    that it came too late, as a store makes no conditional changes; then the namespace is begun anew.

    Args:
        store: The vector store.
        ledger: The ledger's file. It must live as long as the content of the store: with the default, ":memory:", the
            store must begin empty, as each process fills it anew.
        batch: How many nodes the store is given at a time.
        new_id: Gives each namespace a new id whenever it is begun.

    >>> from llama_index.core.vector_stores import SimpleVectorStore
    >>> from langmem_adapters.embedding import Embedder
    >>> from langmem_adapters.indexes import open_vectors
    >>> from langmem_adapters.protocols import Document
    >>> embedder = Embedder(lambda texts: [[text.count("a"), text.count("b")] for text in texts], name="letters-1")
    >>> index = open_vectors(NodeVectors(SimpleVectorStore()), embedder)
    >>> index.apply(("notes",), upsert=[Document("1", "aab"), Document("2", "bbb")])
    >>> [hit.id for hit in index.search(("notes",), "abb", k=1)]
    ['2']
    """

    def __init__(
        self,
        store: BasePydanticVectorStore,
        ledger: str | Path = ":memory:",
        *,
        batch: int = 500,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        if not isinstance(store, BasePydanticVectorStore):
            raise ConfigurationError(
                "NodeVectors takes a vector store of LlamaIndex, as the vector_store of an index is one, not"
                f" {type(store).__name__}"
            )
        if type(store).delete_nodes is BasePydanticVectorStore.delete_nodes:
            raise ConfigurationError(f"{type(store).__name__} cannot delete nodes by id, which an index needs")
        check_count("batch", batch)
        check_sync_functions(new_id=new_id)
        self._store = store
        self._ledger = Database(ledger, schema=_SCHEMA, name="nodes")
        self._ledger_errors = partial(search_errors, "vector", self._ledger.location)
        self._batch = batch
        self._new_id = new_id
        location = self._ledger.location
        self._change_lock = ForkSafeLock() if location.in_memory else lock_of(location.path)
        shared_object = _unsynchronized_part(store)
        self._store_lock = contextlib.nullcontext if shared_object is None else lock_of(id(shared_object)).held

    def watermark(self, name: str) -> Watermark | None:
        """What is known of a namespace; None if it has not begun."""
        with self._ledger_errors(), self._ledger.reading() as connection, connection:
            namespace = _find_namespace(connection, name)
            return namespace and namespace.mark

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
        """Note the vectors, change the store, and then note the position; repeating it has the same result."""
        with self._change_lock.held():
            namespace = self._start_namespace(name, maker, since)
            added = {_node(namespace.generation, id_): (id_, embedding.vector) for id_, embedding in upsert.items()}
            deleted = [_node(namespace.generation, id_) for id_ in delete]
            with self._ledger_errors(), self._ledger.writing() as connection, connection:
                rows = (connection.execute(_NODE, (node,)).fetchone() for node in dict.fromkeys([*deleted, *added]))
                existing = dict(filter(None, rows))
                connection.executemany(
                    "INSERT OR REPLACE INTO langmem_nodes VALUES (?, ?, ?, ?)",
                    [
                        (node, namespace.number, to_bytes(id_), vector.tobytes())
                        for node, (id_, vector) in added.items()
                    ],
                )
            self._delete(namespace.generation, existing)
            self._add(namespace.generation, {node: vector for node, (_, vector) in added.items()})
            try:
                with self._ledger_errors(), self._ledger.writing() as connection, connection:
                    current = _find_namespace(connection, name)
                    check_position(current and current.mark, maker, since)
                    removable = [(node,) for node in deleted if node not in added]
                    connection.executemany("DELETE FROM langmem_nodes WHERE node = ?", removable)
                    if position is not None:
                        connection.execute(
                            "UPDATE langmem_node_namespaces SET seq = ?, entry = ? WHERE number = ?",
                            (position[0], to_bytes(position[1]), namespace.number),
                        )
            except Conflict:
                self._clear(name)  # by now it holds changes of both
                self._remove([*added])
                with self._ledger_errors(), self._ledger.writing() as connection, connection:
                    connection.executemany("DELETE FROM langmem_nodes WHERE node = ?", [(node,) for node in added])
                raise

    def nearest(self, name: str, maker: EmbedderSpec, vector: Vector, k: int) -> list[tuple[str, float]]:
        """The ``k`` ids that the store finds nearest, by their cosine."""
        with self._ledger_errors(), self._ledger.reading() as connection, connection:
            namespace = _find_namespace(connection, name)
            if namespace is None or not namespace.mark.maker.fits(maker):
                return []
            if connection.execute(_NODES, (namespace.number, 1)).fetchone() is None:
                return []  # the store may have no place for vectors yet
        nodes = self._query(namespace.generation, vector, k)
        with self._ledger_errors(), self._ledger.reading() as connection, connection:
            cosines = _cosines(connection, namespace.number, nodes, vector)
            if len(cosines) < k:  # some nodes may be given twice, or be deleted: Elasticsearch finds them for a second
                rows = connection.execute(_NODES, (namespace.number, _MAX_EXACT_VECTORS)).fetchall()
                cosines |= _cosines(connection, namespace.number, [node for node, _ in rows], vector)
        return sorted(cosines.items(), key=lambda pair: -pair[1])[:k]

    def cosines(self, name: str, maker: EmbedderSpec, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        """The cosines of some ids; those that do not exist are left out."""
        with self._ledger_errors(), self._ledger.reading() as connection, connection:
            namespace = _find_namespace(connection, name)
            if namespace is None or not namespace.mark.maker.fits(maker):
                return {}
            return _cosines(connection, namespace.number, [_node(namespace.generation, id_) for id_ in ids], vector)

    def namespaces(self, start: str) -> list[str]:
        """The names that begin with this."""
        with self._ledger_errors():
            return [name for (name,) in self._ledger.fetch_all(_NAMES, (start, f"{start}\x7f"))]

    def clear(self, name: str) -> None:
        """Delete a namespace, in the store first."""
        with self._change_lock.held():
            self._clear(name)

    def _clear(self, name: str) -> None:
        with self._ledger_errors(), self._ledger.writing() as connection, connection:
            namespace = _find_namespace(connection, name)
            if namespace is None:
                return
            nodes = dict(connection.execute(_NODES, (namespace.number, -1)).fetchall())
            # A position that no log has: if this is interrupted, the next one to come sees it, and clears again.
            connection.execute(
                "UPDATE langmem_node_namespaces SET seq = -1, entry = x'' WHERE number = ?", (namespace.number,)
            )
        self._delete(namespace.generation, nodes)
        with self._ledger_errors(), self._ledger.writing() as connection, connection:
            connection.execute("DELETE FROM langmem_nodes WHERE namespace = ?", (namespace.number,))
            connection.execute("DELETE FROM langmem_node_namespaces WHERE number = ?", (namespace.number,))

    def close(self) -> None:
        """Close the ledger; the store belongs to its owner."""
        self._ledger.close()

    def __repr__(self) -> str:
        return f"NodeVectors({type(self._store).__name__}, {self._ledger.path!r})"

    def _start_namespace(self, name: str, maker: EmbedderSpec, since: Position | None) -> _NodeNamespace:
        """Find the namespace, or begin it; vectors of another embedder are deleted."""
        mark = self.watermark(name)
        check_position(mark, maker, since)
        if mark is not None and not mark.maker.fits(maker):
            self._clear(name)
        with self._ledger_errors(), self._ledger.writing() as connection, connection:
            # A random number: the next one in turn might be one whose former namespace others still ask for.
            connection.execute(
                "INSERT OR IGNORE INTO langmem_node_namespaces (number, name, generation, embedder)"
                " VALUES (?, ?, ?, ?)",
                (int.from_bytes(os.urandom(6), "big"), name, self._new_id(), to_bytes(maker.embedder)),
            )
            connection.execute(
                "UPDATE langmem_node_namespaces SET dimension = coalesce(dimension, ?) WHERE name = ?",
                (maker.dimension, name),
            )
            namespace = cast(_NodeNamespace, _find_namespace(connection, name))
        if not namespace.mark.maker.fits(maker):
            raise SearchError("another embedder started to fill the same namespace meanwhile")
        return namespace

    # ---- the store

    def _delete(self, generation: str, nodes: Mapping[str, bytes]) -> None:
        """Delete nodes, given with their vectors in the ledger, whether the store has them or not."""
        try:
            self._remove([*nodes])
        except SearchError:
            # Qdrant and LanceDB create a place for nodes with the first of them. If that was interrupted, there is
            # nothing to delete from.
            self._add(generation, {node: array("f", vector) for node, vector in itertools.islice(nodes.items(), 1)})
            self._remove([*nodes])

    def _remove(self, nodes: Sequence[str]) -> None:
        for n in range(0, len(nodes), self._batch):
            with self._store_errors():
                self._store.delete_nodes(node_ids=list(nodes[n : n + self._batch]))

    def _add(self, generation: str, vectors: Mapping[str, Vector]) -> None:
        nodes = [
            TextNode(
                id_=node,
                text="",
                embedding=list(vector),
                metadata={_NAMESPACE: generation},
                excluded_embed_metadata_keys=[_NAMESPACE],
                excluded_llm_metadata_keys=[_NAMESPACE],
            )
            for node, vector in vectors.items()
        ]
        for n in range(0, len(nodes), self._batch):
            with self._store_errors():
                self._store.add(nodes[n : n + self._batch])

    def _query(self, generation: str, vector: Vector, k: int) -> list[str]:
        filters = MetadataFilters(filters=[MetadataFilter(key=_NAMESPACE, value=generation)])
        with self._store_errors():
            query = VectorStoreQuery(query_embedding=list(vector), similarity_top_k=k, filters=filters)
            result = self._store.query(query)
            return [node.node_id for node in result.nodes or ()] if result.ids is None else list(result.ids)

    @contextlib.contextmanager
    def _store_errors(self) -> Iterator[None]:
        try:
            with self._store_lock():
                yield
        except Exception as error:
            raise SearchError(f"{type(self._store).__name__} failed: {type(error).__name__}") from error


def _unsynchronized_part(store: BasePydanticVectorStore) -> object:
    """The part of a store in this process's memory that no thread may change while another iterates over it."""
    if isinstance(store, SimpleVectorStore):
        return store
    client = getattr(getattr(store, "_client", None), "_client", None)
    return client if type(client).__name__ == "QdrantLocal" else None


class _NodeNamespace(NamedTuple):
    number: int
    generation: str
    mark: Watermark


def _find_namespace(connection: sqlite3.Connection, name: str) -> _NodeNamespace | None:
    row = connection.execute(
        "SELECT number, generation, embedder, dimension, seq, entry FROM langmem_node_namespaces WHERE name = ?",
        (name,),
    ).fetchone()
    if row is None:
        return None
    number, generation, *mark = row
    return _NodeNamespace(number, generation, Watermark.from_row(*mark))


def _cosines(connection: sqlite3.Connection, namespace: int, nodes: Sequence[str], vector: Vector) -> dict[str, float]:
    """The cosines of those nodes that the ledger knows, by id."""
    find = "SELECT id, vector FROM langmem_nodes WHERE node = ? AND namespace = ?"
    rows = (connection.execute(find, (node, namespace)).fetchone() for node in nodes)
    return {to_text(row[0]): sum(map(mul, vector, array("f", row[1]))) for row in rows if row is not None}


def _node(generation: str, id_: str) -> str:
    """The same for the same id, so that a change can be repeated; a UUID, as some stores take nothing else."""
    return str(uuid.UUID(fingerprint(generation, id_)))
