"""Search by meaning: an index that embeds documents and leaves their vectors to a place that keeps them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from langmem_adapters.embedding import Embedder, Embedding, Vector
from langmem_adapters.errors import ConfigurationError, Conflict, ModelError
from langmem_adapters.indexes.vector_refusals import RefusedDocuments, embed_texts
from langmem_adapters.keys import Namespace, decode_namespace, encode_namespace, to_text
from langmem_adapters.model import Hit
from langmem_adapters.protocols import START, Document, Position
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_integer, checked_list

_log = logging.getLogger("langmem_adapters")


class EmbedderSpec(NamedTuple):
    """Which embedder made vectors, and their dimension; None: not known yet."""

    embedder: str
    dimension: int | None

    def fits(self, other: EmbedderSpec) -> bool:
        """Whether vectors of both may be compared."""
        sizes = {self.dimension, other.dimension} - {None}
        return self.embedder == other.embedder and len(sizes) <= 1


class Watermark(NamedTuple):
    """Who made the vectors of a namespace, and the ``(seq, id)`` of the store's entry up to which they reach."""

    maker: EmbedderSpec
    position: Position | None

    @classmethod
    def from_row(cls, embedder: bytes, dimension: int | None, seq: int | None, entry: bytes | None) -> Watermark:
        """Read it from a row of SQLite."""
        position = None if seq is None or entry is None else (seq, to_text(entry))
        return cls(EmbedderSpec(to_text(embedder), dimension), position)


@runtime_checkable
class Vectors(Protocol):
    """A place that keeps vectors by namespace and id, and finds the nearest ones. Ids may hold any characters.

    Vectors have length 1. If a maker that does not fit began a namespace, its vectors are never compared with the
    query: the namespace counts as empty, and the next change replaces it. Failures are SearchErrors.
    """

    def watermark(self, name: str) -> Watermark | None:
        """The state of a namespace; None: not begun."""

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
        """Delete, then add or replace, then remember the position: in this order, if not all at once.

        With ``since``, only if the maker's vectors are at that position; otherwise raises Conflict. A place that
        detects this too late forgets the namespace, so that it is begun anew.
        """

    def nearest(self, name: str, maker: EmbedderSpec, vector: Vector, k: int) -> list[tuple[str, float]]:
        """The ``k`` ids of a namespace with the greatest cosine, greatest first. No other namespace is read."""

    def cosines(self, name: str, maker: EmbedderSpec, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        """The cosines of some ids; those that do not exist are left out."""

    def clear(self, name: str) -> None:
        """Forget a namespace."""

    def close(self) -> None:
        """Release files and connections. A place that was closed may be used again."""


class VectorIndex(Shared):
    """Finds texts by what they mean (implements :class:`~langmem_adapters.protocols.Index`).

    A score is ``(1 + cosine) / 2``, whichever place keeps the vectors. Blank texts are not found, and a blank query
    finds nothing. If the embedder fails, ModelError is raised and the index is unchanged, except for deletions. A text
    that a working embedder refuses is left out, and delays no other: see :meth:`refused`.

    The embedder's name and dimension are kept with the vectors: for another embedder a namespace counts as not
    begun, and is replaced when its owner next applies a change. Two embedders at work on one namespace at the same
    time would replace each other's vectors for ever, but never mix them.

    Args:
        vectors: Where vectors are kept; see :func:`~langmem_adapters.indexes.open_vectors`.
        embedder: An :class:`~langmem_adapters.embedding.Embedder`, or what one can be made of. Indexes block, so it
            must be one that can be asked without an event loop.

    >>> from langmem_adapters.embedding import Embedder
    >>> from langmem_adapters.indexes import open_vectors
    >>> from langmem_adapters.protocols import Document
    >>> def letters(texts):
    ...     return [[text.count("a"), text.count("b")] for text in texts]
    >>> index = open_vectors("memory:", Embedder(letters, name="letters-1"))
    >>> index.apply(("notes",), upsert=[Document("1", "aab"), Document("2", "bbb")])
    >>> [hit.id for hit in index.search(("notes",), "abb", k=1)]
    ['2']
    """

    def __init__(self, vectors: Vectors, embedder: Any) -> None:
        self.embedder: Embedder = Embedder.of(embedder)
        if not self.embedder.blocks:
            raise ConfigurationError(
                "an index calls its embedder synchronously: give it one that is not a coroutine function"
            )
        self._vectors = vectors
        max_sim = getattr(vectors, "max_sim", None) if self.embedder.tells_pieces else None
        self._max_sim: Callable[..., dict[str, float]] | None = max_sim  # of a place that keeps word pieces, too
        self._refused_documents = RefusedDocuments()
        self._last_query: tuple[str, Embedding] | None = None

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: Position | None = None,
        since: Position | None = None,
    ) -> None:
        """Embed, then change vectors and position: all at once, or the position last."""
        checked_list([*delete, *(document.id for document in upsert)], "the ids of documents are texts", str)
        name = encode_namespace(namespace)
        documents = {document.id: document for document in upsert}
        deleted_ids = [id_ for id_ in dict.fromkeys(delete) if id_ not in documents]
        try:
            embeddings = embed_texts(self.embedder, [document.text for document in documents.values()])
        except ModelError:
            self._delete_vectors(name, deleted_ids, since)  # deletions do not wait for an embedder
            raise
        results = dict(zip(documents, embeddings, strict=True))
        findable: dict[str, Embedding] = {}
        for id_, result in results.items():
            if result and result.vector:
                # Pieces are kept only for messages of conversations, since nobody asks for others.
                findable[id_] = Embedding(result.vector) if documents[id_].at is None else result
        self._vectors.change(
            name,
            self._maker,
            upsert=findable,
            delete=[*deleted_ids, *(id_ for id_ in results if id_ not in findable)],
            position=position,
            since=since,
        )
        self._record_refusals(name, results, deleted_ids)

    def _delete_vectors(self, name: str, ids: Sequence[str], since: Position | None) -> None:
        mark = self._vectors.watermark(name)
        if ids and mark is not None and self._maker.fits(mark.maker):
            self._vectors.change(name, self._maker, upsert={}, delete=ids, position=None, since=since)

    def _record_refusals(self, name: str, results: Mapping[str, Embedding | None], deleted_ids: Sequence[str]) -> None:
        refused = [id_ for id_, result in results.items() if result is None]
        new_refusals = self._refused_documents.record(name, changed={*deleted_ids, *results}, refused=refused)
        if new_refusals:
            _log.warning("texts that %r refused are not found by meaning: %d", self.embedder, len(new_refusals))

    def refused(self, namespace: Namespace) -> list[str]:
        """The ids of documents that the embedder refused; after the third refusal it is not asked again.

        Only this object remembers them: others do not ask again until the documents are applied again.
        """
        return self._refused_documents.ids(encode_namespace(namespace))

    def position(self, namespace: Namespace) -> Position | None:
        """How far this namespace follows its store; None: not begun, or begun by another embedder.

        An embedder that was never used is asked once for its dimension, if the namespace was begun under its name.
        """
        mark = self._vectors.watermark(encode_namespace(namespace))
        if mark is None or mark.maker.embedder != self.embedder.name:
            return None
        if self.embedder.dimension is None and mark.maker.dimension is not None:
            self.embedder.query("dimension")
        return mark.position if self._maker.fits(mark.maker) else None

    def is_of_another_embedder(self, namespace: Namespace) -> bool:
        """Whether a namespace was begun by another embedder."""
        mark = self._vectors.watermark(encode_namespace(namespace))
        return mark is not None and not self._maker.fits(mark.maker)

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        check_integer("k", k)
        name = encode_namespace(namespace)
        vector = self._embed_query(query).vector if k > 0 else None
        if not vector:
            return []
        return [Hit(id_, _to_score(cosine)) for id_, cosine in self._vectors.nearest(name, self._maker, vector, k)]

    def score(self, namespace: Namespace, query: str, ids: Sequence[str]) -> dict[str, float]:
        name = encode_namespace(namespace)
        unique_ids = list(dict.fromkeys(ids))
        vector = self._embed_query(query).vector if unique_ids else None
        if not vector:
            return {}
        cosines = self._vectors.cosines(name, self._maker, vector, unique_ids)
        return {id_: _to_score(cosines[id_]) for id_ in unique_ids if id_ in cosines}

    @property
    def piecewise(self) -> bool:
        """Whether :meth:`max_sim` returns anything: the embedder returns word pieces, and the vectors are in SQLite."""
        return self._max_sim is not None

    def max_sim(self, namespace: Namespace, query: str, before: Mapping[str, str]) -> dict[str, float]:
        if self._max_sim is None or not before:
            return {}
        query_pieces = self._embed_query(query).pieces
        if not query_pieces:
            return {}
        return self._max_sim(encode_namespace(namespace), self._maker, query_pieces, before)

    def namespaces(self, prefix: Namespace = ()) -> list[Namespace]:
        """The namespaces that begin with ``prefix`` and of which anything is kept; empty if unknown (Chroma)."""
        list_names = getattr(self._vectors, "namespaces", None)
        names = () if list_names is None else list_names(encode_namespace(prefix))
        return list(dict.fromkeys(map(decode_namespace, names)))

    def clear(self, namespace: Namespace) -> None:
        """Forget a namespace, whichever embedder made it."""
        name = encode_namespace(namespace)
        self._vectors.clear(name)
        self._refused_documents.forget(name)

    def close(self) -> None:
        """Release files and connections. The index may be used again."""
        self._last_query = None
        self._vectors.close()

    def _embed_query(self, text: str) -> Embedding:
        """The embedding of a query, cached, since one search asks for it up to three times."""
        last_query = self._last_query
        if last_query is None or last_query[0] != text:
            last_query = text, self.embedder.read_query(text)
            self._last_query = last_query
        return last_query[1]

    @property
    def _maker(self) -> EmbedderSpec:
        return EmbedderSpec(self.embedder.name, self.embedder.dimension)

    def __repr__(self) -> str:
        return f"VectorIndex({self._vectors!r}, {self.embedder!r})"


def check_position(mark: Watermark | None, maker: EmbedderSpec, since: Position | None) -> None:
    """Raise Conflict unless a maker's vectors are at ``since``; None: any position will do."""
    current = mark.position if mark is not None and mark.maker.fits(maker) else None
    if since is not None and (current or START) != since:
        raise Conflict("the vectors were changed by another follower")


def _to_score(cosine: float) -> float:
    return (1 + cosine) / 2 if -1 <= cosine <= 1 else float(cosine > 0)
