"""The protocols between the floors of the library. You can implement each of them with a class of your own."""

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
    """An entry of a namespace's log. ``seq`` rises for ever; ``id`` is unique in the log."""

    seq: int
    id: str
    data: bytes


class Page(NamedTuple):
    """Part of a log, read together with the log's length and the values that were asked for."""

    items: list[Item]
    total: int
    values: dict[str, bytes]


class Appended(NamedTuple):
    """Which entries of an append were new, in their order, how long the log is now, and the values asked for."""

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

    A namespace holds a *log* (entries with an id, in the order of their writing) and *values* (bytes by key).
    It comes into being with its first write and expires as a whole: each write states its ``ttl`` in seconds,
    or None for no expiry. Constructing a store touches neither disk nor network. A store that was closed may
    be used again and then connects again. Failures are raised as :class:`~langmem_adapters.errors.StoreError`.
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
        """Read log entries with ``after < seq < before``, and values with them, in one consistent read.

        ``reverse`` reads from the newest down. The cost is that of the entries returned, not of the log.
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
        """Add ``(id, data)`` entries at the end, all or none; an id that the log holds already is left as it is.

        One round trip at any length, and no conflict between writers. ``put`` writes values with them, whatever was
        there. The values of ``keys`` are read in the same moment, before the change.
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

        An entry that was removed and written again has another ``seq``, so ``remove`` does not touch it.
        With ``guard``, only if these values are exactly as given (None: absent); otherwise
        :class:`~langmem_adapters.errors.Conflict` is raised and nothing has changed.
        """

    def clear(self, namespace: Namespace) -> None:
        """Remove a namespace with all it holds."""

    def recent(self, parent: Namespace, *, limit: int | None = None, before: Listed | None = None) -> list[Listed]:
        """List the direct children of ``parent`` by last write, newest first.

        ``before`` is the last row of the previous page. The cost is that of the page, not of all children.
        """

    def namespaces(self, prefix: Namespace = ()) -> Iterator[Namespace]:
        """Go through all namespaces that begin with ``prefix``, in no order; for maintenance."""

    def close(self) -> None:
        """Release files and connections."""


class Document(NamedTuple):
    """What an index is given: an id within its namespace, and the text by which it is found.

    A message may also have its speaker, its thread, its time (Unix), the other threads in which it was said ``again``,
    and its role. Documents of one thread are ordered as they were first added.
    """

    id: str
    text: str
    speaker: str = ""
    thread: str = ""
    at: float | None = None
    again: tuple[str, ...] = ()
    role: str = ""


Position: TypeAlias = tuple[int, str]
"""How far an index follows a store: the ``(seq, id)`` of a log entry, or of the mark at its start, whose seq is 0."""

START: Position = (0, "")
"""The position of an index that has not begun."""


@runtime_checkable
class Index(Protocol):
    """Finds ids by text. It can be dropped at any time and rebuilt from the store that it follows.

    Partition, then search: nothing outside the namespace is ever looked at. Scores lie in [0, 1], higher is
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
        """Add, replace and remove documents and remember how far the store was followed, all or nothing.

        ``position`` is the ``(seq, id)`` of the store's last log entry that this change reflects. With ``since``,
        only if the namespace is at that position (``START``: not begun); otherwise
        :class:`~langmem_adapters.errors.Conflict` is raised and nothing has changed.
        """

    def position(self, namespace: Namespace) -> Position | None:
        """How far this namespace follows its store; None: not begun."""

    def search(self, namespace: Namespace, query: str, k: int) -> list[Hit]:
        """The ``k`` best documents, best first; those that share nothing with the query are left out."""

    def clear(self, namespace: Namespace) -> None:
        """Forget a namespace."""

    def close(self) -> None:
        """Release files and connections."""


@runtime_checkable
class SemanticIndex(Index, Protocol):
    """An index that finds by meaning: a score is ``(1 + cosine) / 2``, and every document has one."""

    def score(self, namespace: Namespace, query: str, ids: Sequence[str]) -> dict[str, float]:
        """The scores of these documents; those that the index does not have are left out."""


@runtime_checkable
class PiecewiseIndex(SemanticIndex, Protocol):
    """A semantic index that may also compare word by word."""

    @property
    def piecewise(self) -> bool:
        """Whether it does: not every embedder returns the meaning of word pieces."""

    def max_sim(self, namespace: Namespace, query: str, before: Mapping[str, str]) -> dict[str, float]:
        """How near these documents, or what was said just before each, come to the pieces of the query's words.

        From 0 to 1; documents of which nothing is known are left out.
        """


@runtime_checkable
class SelectiveIndex(Index, Protocol):
    """An index that skips documents that its embedder refuses."""

    def refused(self, namespace: Namespace) -> list[str]:
        """The ids of the refused documents, as long as they are worth another try."""


class Turn(NamedTuple):
    """A document as it stands in its conversation. ``marks`` are those of :mod:`langmem_adapters.language.features`."""

    id: str
    length: int
    speaker: str
    at: float | None
    marks: int


class Stretch(NamedTuple):
    """A thread, or a part of a long one: how many documents, how long together, and whether they follow each other."""

    documents: int
    length: int
    ordered: bool


class Evidence(NamedTuple):
    """All that an index knows of the documents that a query may mean.

    A place is a number; the neighbours of a document have the places before and after it in the same stretch.
    """

    query: str
    """The query without the names of speakers."""
    named: frozenset[str]
    """The speakers whom it names."""
    idf: list[float]
    """The inverse document frequency of each term of the query."""
    stretch_idf: list[float]
    """The same, with stretches for documents."""
    found: float
    """The share of the query, by weight, that the namespace has at all."""
    candidates: list[int]
    """Places of the candidate documents."""
    turns: dict[int, Turn]
    """By place: the candidates and their neighbours."""
    postings: Sequence[Mapping[int, tuple[Sequence[int], Sequence[int], Sequence[int]]]]
    """Of each term, by stretch: the places that have it, how often each does, and the length of each."""
    stretches: dict[int, Stretch]
    """By number."""
    average: float
    """The mean length of a document."""
    average_stretch: float
    """The mean length of a stretch."""

    @staticmethod
    def stretch_of(place: int) -> int:
        """The stretch in which a place is."""
        return place >> 8


@runtime_checkable
class ConversationIndex(Index, Protocol):
    """An index that knows of each document who said it, when, and what was said beside it."""

    def nameless(self, namespace: Namespace, query: str) -> str:
        """The query without the names of those who speak in the namespace, unless nothing else is in it."""

    def within(self, namespace: Namespace, query: str, thread: str) -> list[Hit]:
        """All documents that were said in a thread, there first or again: the best of :meth:`search` first.

        Those that share nothing with the query come last, with a score of 0.
        """

    def gather(self, namespace: Namespace, query: str, k: int, also: Sequence[str] = ()) -> Evidence | None:
        """The evidence of the ``k`` best documents, of those ``also`` named by their ids, and of their neighbours.

        None if there is none.
        """
