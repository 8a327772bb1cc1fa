"""What a store may tell of itself, and let maintenance do, beyond the protocol that every store answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

from langmem_adapters.errors import StoreError
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store

__all__ = ["Dates", "Finding", "Health", "KindStats", "Maintained", "StoreStats", "bare", "health_of"]


class Health(NamedTuple):
    """Whether a store answers. ``problem`` is one sentence that says what to do; no field holds a secret."""

    ok: bool
    address: str
    seconds: float
    problem: str = ""


class KindStats(NamedTuple):
    """How many namespaces begin with the same name, how many of them expire, and how long their logs are together."""

    namespaces: int = 0
    expiring: int = 0
    entries: int = 0


class StoreStats(NamedTuple):
    """What a store holds. The namespaces of kind "brain" are sessions.

    ``keys`` are those of a server, and None elsewhere. ``size`` is in bytes: of the file with what belongs to it, of
    the server's used memory (all that is in it), or of the data in this process; None, where the server does not
    say. ``limit`` is the server's maxmemory, None where there is none.
    """

    address: str
    kinds: dict[str, KindStats]
    keys: int | None = None
    size: int | None = None
    limit: int | None = None


class Finding(NamedTuple):
    """One thing that an examination has looked at: what it found, and what to do about it."""

    level: Literal["ok", "note", "problem"]
    subject: str
    said: str
    remedy: str = ""


class Dates(NamedTuple):
    """When a namespace was last written (Unix time), and how many seconds it has left.

    None: nobody knows, as where a server has evicted its list; it does not expire.
    """

    updated_at: float | None
    left: float | None


class Maintained(Protocol):
    """What a store may have beside the methods of :class:`~langmem_adapters.protocols.Store`, each by itself."""

    def health(self) -> Health:
        """Ask for a sign of life; an outage is an answer, not an error."""

    def stats(self) -> StoreStats:
        """Count what is there, a page at a time, beside running readers and writers."""

    def examine(self) -> Iterator[Finding]:
        """Look for what is wrong with its server or its file, at one thing after the other, and change nothing."""

    def dates(self, namespace: Namespace) -> Dates | None:
        """The times of a namespace; None, if there is none of this name."""

    def set_dates(self, namespace: Namespace, dates: Dates) -> None:
        """Give a namespace these times, as far as they are known; its log and its values stay as they are."""

    def discard(self, namespace: Namespace, before: float) -> bool:
        """Remove a namespace, unless it was written at or after ``before`` (Unix time) or is not there.

        What another writer adds in the same moment is never lost.
        """


def health_of(address: str, ask: Callable[[], object]) -> Health:
    """How a store is that is asked so; an outage is an answer."""
    began = time.perf_counter()
    problem = ""
    try:
        ask()
    except StoreError as error:
        problem = str(error)
    return Health(not problem, address, time.perf_counter() - began, problem)


def bare(store: Any) -> Any:
    """The store behind those that stand in front of it, which have it as their ``store``."""
    while isinstance(getattr(store, "store", None), Store):
        store = store.store
    return store
