"""The protocols of stores and indexes. A class of your own may implement any of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

from langmem_adapters.keys import Namespace
from langmem_adapters.model import Hit

__all__ = [
    "START",
    "Appended",
    "ConversationIndex",
    "Document",
    "Evidence",
    "Index",
    "Item",
    "Listed",
    "Page",
    "Position",
    "SelectiveIndex",
    "SemanticIndex",
    "Store",
    "Stretch",
    "Turn",
]


class Item(NamedTuple):
    """An entry of a namespace's log. ``seq`` only ever rises; ``id`` is unique in the log."""

    seq: int
    id: str
    data: bytes


class Page(NamedTuple):
    """A part of a log, read together with the log's length (``total``) and the requested values."""

    items: list[Item]
    total: int
    values: dict[str, bytes]


class Appended(NamedTuple):
    """The result of an append: for each entry whether it was new, the log's new length, and the requested values."""

    new: list[bool]
    total: int
    values: dict[str, bytes]


class Listed(NamedTuple):
    """A namespace and the Unix time of its last write."""

    namespace: Namespace
    updated_at: float


@runtime_checkable
class Store(Protocol):
    """Ordered, namespaced bytes: the only truth. Sync; safe to share between threads and across ``fork``.

    A namespace holds a *log* (entries with an id, in the order in which they were written) and *values* (bytes by key).
    The first write creates it, and it expires as a whole: each write sets its ``ttl`` in seconds, or None for no
    expiry. The constructor touches neither disk nor network. A closed store may be used again; it then reconnects.
    Failures are raised as :class:`~langmem_adapters.errors.StoreError`.
    """

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        """Read values; those that do not exist are left out. ``keys=None`` reads all."""

    def scan(
        self,
        namespace: Namespace,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
        keys: Sequence[str] = (),
    ) -> Page:
        """Read log entries with ``after < seq < before``, and the values of ``keys``, in one consistent read.

        ``reverse`` reads from the newest entry down. The cost is that of the entries returned, not of the log.
        """

    def append(
        self,
        namespace: Namespace,
        entries: Sequence[tuple[str, bytes]],
        *,
        put: Mapping[str, bytes] | None = None,
        keys: Sequence[str] = (),
        ttl: float | None = None,
    ) -> Appended:
        """Add ``(id, data)`` entries at the end, all or none; the entry of an id that the log has already is unchanged.

        It takes one round trip at any length, and writers never conflict. ``put`` sets values in the same step,
        unguarded. The returned values of ``keys`` are those just before this step.
        """

    def write(
        self,
        namespace: Namespace,
        *,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
        append: Sequence[tuple[str, bytes]] = (),
        remove: Sequence[Item] = (),
        guard: Mapping[str, bytes | None] | None = None,
        ttl: float | None = None,
    ) -> None:
        """Change values and log entries of one namespace, all or nothing.

        ``remove`` goes by ``seq``: an entry that was removed and written again has a new one, and stays.
        With ``guard``, the change is made only if those values are exactly these (None: absent); otherwise
        :class:`~langmem_adapters.errors.Conflict` is raised and nothing has changed.
        """

    def clear(self, namespace: Namespace) -> None:
        """Remove a namespace with its log and values."""

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        """List the direct children of ``parent`` by last write, newest first.

        ``before`` is the last row of the previous page. The cost is that of the page, not of all children.
        """

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        """Iterate over all namespaces that begin with ``prefix``, in no order; for maintenance."""

    def close(self) -> None:
        """Release files and connections."""


class Document(NamedTuple):
    """A document of an index: an id, unique in its namespace, and the text by which it is found.

    A message may also have its speaker, its thread, its Unix time (``at``), the other threads in which it was said
    ``again``, and its role. Documents of one thread stand in the order in which they were first added.
    """

    id: str
    text: str
    speaker: str = ""
    thread: str = ""
    at: float | None = None
    again: tuple[str, ...] = ()
    role: str = ""


Position: TypeAlias = tuple[int, str]
"""How far an index has followed a store: the ``(seq, id)`` of a log entry; seq 0 is the beginning of the log."""

START: Position = (0, "")
"""The position of an index that has not begun to follow."""


@runtime_checkable
class Index(Protocol):
    """Finds ids by text. It can be dropped at any time and rebuilt from the store that it follows.

    Only the given namespace is searched; nothing outside it is ever looked at. Scores lie in [0, 1]; higher is
    better. Failures are raised as :class:`~langmem_adapters.errors.SearchError`.
    """

    def apply(
        self,
        namespace: Namespace,
        *,
        upsert: Sequence[Document] = (),
        delete: Sequence[str] = (),
        position: Position | None = None,
        since: Position | None = None,
    ) -> None:
        """Add, replace and remove documents and record how far the store was followed, all or nothing.

        ``position`` is the ``(seq, id)`` of the store's last log entry that this change reflects. With ``since``,
        the change is made only if the namespace is at that position (``START``: not begun); otherwise
        :class:`~langmem_adapters.errors.Conflict` is raised and nothing has changed.
        """

    def position(self, namespace: Namespace) -> Position | None:
        """How far this namespace has followed its store; None: not begun."""

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        """The ``k`` best documents, best first; those that share nothing with the query are left out."""

    def clear(self, namespace: Namespace) -> None:
        """Remove a namespace."""

    def close(self) -> None:
        """Release files and connections."""


@runtime_checkable
class SemanticIndex(Index, Protocol):
    """An index that finds by meaning: a score is ``(1 + cosine) / 2``, and every document has one."""

    def score(self, namespace: Namespace, query: str, ids: Sequence[str]) -> dict[str, float]:
        """The scores of these documents; those that the index does not have are left out."""


@runtime_checkable
class PiecewiseIndex(SemanticIndex, Protocol):
    """A semantic index that may also compare the word pieces of texts."""

    @property
    def piecewise(self) -> bool:
        """Whether it does: not every embedder returns vectors of word pieces."""

    def max_sim(self, namespace: Namespace, query: str, before: Mapping[str, str]) -> dict[str, float]:
        """How well documents match the query's word pieces, each by itself or by the one said just before it.

        ``before`` has their ids, each with that other id or "". From 0 to 1; those without known pieces are left out.
        """


@runtime_checkable
class SelectiveIndex(Index, Protocol):
    """An index that skips documents which its backend, such as an embedder, refuses."""

    def refused(self, namespace: Namespace) -> list[str]:
        """The ids of the skipped documents, as long as they are worth another try."""


class Turn(NamedTuple):
    """A document in its conversation. ``marks`` are those of :mod:`langmem_adapters.language.features`."""

    id: str
    length: int
    speaker: str
    at: float | None
    marks: int


class Stretch(NamedTuple):
    """A thread, or a part of a long one: number of documents, their total length, and whether they have an order."""

    documents: int
    length: int
    ordered: bool


class Evidence(NamedTuple):
    """All that an index knows about the candidates of a query.

    A place is a number; the neighbours of a document have the places before and after it in the same stretch.
    """

    query: str
    """The query without the names of speakers."""
    named: frozenset[str]
    """The speakers whom the query names."""
    idf: list[float]
    """The weight of each term of the query: its count there times its inverse document frequency."""
    stretch_idf: list[float]
    """The inverse frequency of each term among stretches, as if documents were spread at random."""
    found: float
    """The share of the query, by weight, that occurs anywhere in the namespace."""
    candidates: list[int]
    """The places of the candidates."""
    turns: dict[int, Turn]
    """The candidates and their neighbours, by place."""
    postings: Sequence[Mapping[int, tuple[Sequence[int], Sequence[int], Sequence[int]]]]
    """For each term, by stretch: the places that have it, how often each does, and the length of each."""
    stretches: dict[int, Stretch]
    """By number."""
    average: float
    """The mean length of a document."""
    average_stretch: float
    """The mean length of a stretch."""

    @staticmethod
    def stretch_of(place: int) -> int:
        """The number of the stretch of a place."""
        return place >> 8


@runtime_checkable
class ConversationIndex(Index, Protocol):
    """An index that knows the speaker, the time and the neighbours of each document."""

    def nameless(self, namespace: Namespace, query: str) -> str:
        """The query without the names of the namespace's speakers, unless it holds nothing else."""

    def within(self, namespace: Namespace, query: str, thread: str) -> list[Hit]:
        """All documents of a thread, whether first said there or said again there, best first as in :meth:`search`.

        Those that share nothing with the query come last, with a score of 0.
        """

    def gather(self, namespace: Namespace, query: str, k: int, also: Sequence[str] = ()) -> Evidence | None:
        """What is known of the ``k`` best documents, of those with the ids ``also``, and of their neighbours.

        None, if nothing is known.
        """
