"""Handle an outage by the declared policy: raise it, or count and log it, so that a host can go on."""

from __future__ import annotations

from typing import TypeVar

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import LangmemError, SearchError, SerializationError, StoreError
from langmem_adapters.flow import Flow
from langmem_adapters.sharing import SharedByCopies
from langmem_adapters.warn_once import warn_of_outage

T = TypeVar("T")


class Outages(SharedByCopies):
    """Outages in spite of which a host goes on: counted as ``errors``, and each cause logged once in a process.

    Args:
        sentence: What the log says: who goes on without what.
        counts: Where they are counted.

    >>> from langmem_adapters.errors import StoreUnavailable
    >>> outages = Outages("the agent goes on without its memory", Counts())
    >>> outages.handle(StoreUnavailable("nobody answers"), "degrade")
    >>> outages.counts["errors"]
    1
    """

    def __init__(self, sentence: str, counts: Counts) -> None:
        self.counts = counts
        self._sentence = sentence

    def handle(self, error: LangmemError, on_error: str) -> None:
        """Raise the error, or count and log it if ``on_error`` is "degrade"."""
        if on_error == "raise":
            raise error
        self.counts.add("errors")
        warn_of_outage(self._sentence, error)

    def attempt(self, flow: Flow[T], fallback: T, on_error: str) -> Flow[T]:
        """A flow's result; or ``fallback``, if a store or an index fails and ``on_error`` is "degrade"."""
        try:
            return (yield from flow)
        except (StoreError, SearchError, SerializationError) as error:
            self.handle(error, on_error)
            return fallback
