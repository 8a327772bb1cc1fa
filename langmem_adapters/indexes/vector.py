"""Search by meaning: an index that embeds what it is given and leaves the vectors to a place that keeps them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from langmem_adapters.embedding import Embedder, Vector
from langmem_adapters.errors import ConfigurationError, SearchError, StoreError
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.model import Hit
from langmem_adapters.protocols import Document

__all__ = ["Maker", "Mark", "VectorIndex", "Vectors"]


class Maker(NamedTuple):
    """Which embedder made vectors, and of what dimension; None: not known yet."""

    embedder: str
    dimension: int | None

    def fits(self, other: Maker) -> bool:
        """Whether vectors of both may be compared."""
        sizes = {self.dimension, other.dimension} - {None}
        return self.embedder == other.embedder and len(sizes) <= 1


class Mark(NamedTuple):
    """Who made the vectors of a namespace, and the ``(seq, id)`` of the store's entry up to which they reach."""

    maker: Maker
    position: tuple[int, str] | None


class Vectors(Protocol):
    """A place that keeps vectors by namespace and id, and finds the nearest ones. Ids may hold any characters.

    Vectors have length 1. Those of a namespace that was begun by a maker that does not fit are never compared with
    the query: such a namespace counts as empty, and goes with the next change. Failures are SearchErrors.
    """

    def mark(self, name: str) -> Mark | None:
        """What is known of a namespace; None: not begun."""
        ...

    def change(
        self,
        name: str,
        maker: Maker,
        *,
        upsert: Mapping[str, Vector],
        delete: Sequence[str],
        position: tuple[int, str] | None,
    ) -> None:
        """Delete, then add or replace, then remember the position: in this order, where not all at once."""
        ...

    def nearest(self, name: str, maker: Maker, vector: Vector, k: int) -> list[tuple[str, float]]:
        """The ``k`` ids of a namespace with the greatest cosine, greatest first. Nothing else is looked at."""
        ...

    def cosines(self, name: str, maker: Maker, vector: Vector, ids: Sequence[str]) -> dict[str, float]:
        """The cosines of some ids; those that do not exist are left out."""
        ...

    def clear(self, name: str) -> None:
        """Forget a namespace."""
        ...

    def close(self) -> None:
        """Release files and connections. A place that was closed may be used again."""
        ...


class VectorIndex:
    """Finds texts by what they mean (implements :class:`~langmem_adapters.protocols.Index`).

    A score is ``(1 + cosine) / 2``, whichever place keeps the vectors. Blank texts are not found, and a blank query
    finds nothing. A failing embedder is a ModelError, and the index is as it was.

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
        self.embedder = Embedder.of(embedder)
        if not self.embedder.blocks:
            raise ConfigurationError("an index blocks: give it an embedder that is not a coroutine function")
        self._vectors = vectors

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: tuple[int, str] | None = None,
    ) -> None:
        """Embed, and then change vectors and position: all at once, or the position last."""
        name = encode_namespace(namespace)
        texts = {document.id: document.text for document in upsert}
        embedded = dict(zip(texts, self.embedder.texts(list(texts.values())), strict=True))
        blank = [id_ for id_, vector in embedded.items() if not vector]
        self._vectors.change(
            name,
            self._maker,
            upsert={id_: vector for id_, vector in embedded.items() if vector},
            delete=list(dict.fromkeys([*delete, *blank])),
            position=position,
        )

    def position(self, namespace: Namespace) -> tuple[int, str] | None:
        """How far this namespace follows its store; None: not begun, or begun by another embedder.

        An embedder that was never used is asked once for its dimension, if the namespace was begun in its name.
        """
        mark = self._vectors.mark(encode_namespace(namespace))
        if mark is None or mark.maker.embedder != self.embedder.name:
            return None
        if self.embedder.dimension is None and mark.maker.dimension is not None:
            self.embedder.query("dimension")
        return mark.position if self._maker.fits(mark.maker) else None

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        """The ``k`` documents nearest to the query, best first."""
        name = encode_namespace(namespace)
        vector = self.embedder.query(query) if k > 0 else None
        if not vector:
            return []
        return [Hit(id_, _score(cosine)) for id_, cosine in self._vectors.nearest(name, self._maker, vector, k)]

    def score(self, namespace: Namespace, query: str, ids: Sequence[str]) -> dict[str, float]:
        """The scores that documents have in :meth:`search`; those that the index does not hold are left out."""
        name = encode_namespace(namespace)
        wanted = list(dict.fromkeys(ids))
        vector = self.embedder.query(query) if wanted else None
        if not vector:
            return {}
        found = self._vectors.cosines(name, self._maker, vector, wanted)
        return {id_: _score(found[id_]) for id_ in wanted if id_ in found}

    def clear(self, namespace: Namespace) -> None:
        """Forget a namespace, whichever embedder made it."""
        self._vectors.clear(encode_namespace(namespace))

    def close(self) -> None:
        """Release files and connections. The index may be used again."""
        self._vectors.close()

    @property
    def _maker(self) -> Maker:
        return Maker(self.embedder.name, self.embedder.dimension)

    def __repr__(self) -> str:
        return f"VectorIndex({self._vectors!r}, {self.embedder!r})"


@contextlib.contextmanager
def search_errors() -> Iterator[None]:
    """Turn the errors of a database into those of a search."""
    try:
        yield
    except StoreError as error:
        raise SearchError(f"the vector index failed: {error}") from error


def _score(cosine: float) -> float:
    return min(max((1 + cosine) / 2, 0.0), 1.0)
