"""What a store may report, and what maintenance it may offer, beyond the protocol that every store implements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from langmem_adapters.errors import StoreError
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store

__all__ = ["Dates", "Finding", "Health", "KindStats", "Maintained", "StoreStats", "health_of", "unwrap"]


class Health(NamedTuple):
    """Whether a store answers. ``problem`` is one sentence that says what to do; no field holds a secret."""

    ok: bool
    address: str
    seconds: float
    problem: str = ""


class KindStats(NamedTuple):
    """How many namespaces have the same first part, how many of them expire, and how long their logs are together."""

    namespaces: int = 0
    expiring: int = 0
    entries: int = 0


class StoreStats(NamedTuple):
    """What a store holds. The namespaces of kind "brain" are sessions.

    ``keys`` is the number of keys of a server, and None elsewhere. ``size`` is in bytes: of the file with its
    companions, of the server's whole used memory, or of the data in this process; None if the server does not tell.
    ``limit`` is the server's maxmemory; None if there is none.
    """

    address: str
    kinds: dict[str, KindStats]
    keys: int | None = None
    size: int | None = None
    limit: int | None = None


class Finding(NamedTuple):
    """One result of an examination: what was found, and what to do about it."""

    level: Literal["ok", "note", "problem"]
    subject: str
    message: str
    remedy: str = ""


class Dates(NamedTuple):
    """When a namespace was last written (Unix time), and in how many seconds it expires.

    ``updated_at`` is None if unknown, as after a server evicted its list; ``expires_in`` is None if it does not expire.
    """

    updated_at: float | None
    expires_in: float | None


@runtime_checkable
class Maintained(Protocol):
    """Optional methods of a store, beside :class:`~langmem_adapters.protocols.Store`; it may have any of them."""

    def health(self) -> Health:
        """Check that the store answers; an outage is an answer, not an error."""

    def stats(self) -> StoreStats:
        """Count what is there, page by page, while others read and write."""

    def examine(self) -> Iterator[Finding]:
        """Look for faults of the server or the file, one check after the other, and change nothing."""

    def dates(self, namespace: Namespace) -> Dates | None:
        """The times of a namespace; None if it does not exist."""

    def set_dates(self, namespace: Namespace, dates: Dates) -> None:
        """Give a namespace these times, as far as they are known; its log and its values stay as they are."""

    def discard(self, namespace: Namespace, before: float) -> bool:
        """Remove a namespace, unless it was written at or after ``before`` (Unix time) or is not there.

        What another writer adds in the same moment is not lost, except in a Redis Cluster or on a full server.
        """


def health_of(address: str, ask: Callable[[], object]) -> Health:
    """Time a call that asks a store for a sign of life; an outage is an answer, not an error."""
    start = time.perf_counter()
    problem = ""
    try:
        ask()
    except StoreError as error:
        problem = str(error)
    return Health(not problem, address, time.perf_counter() - start, problem)


def unwrap(store: Any) -> Any:
    """The store behind its wrappers, each of which has the next one as its ``store``."""
    while isinstance(getattr(store, "store", None), Store):
        store = store.store
    return store
