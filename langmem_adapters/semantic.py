"""What a memory's vectors add to its search: they follow in the background, and may fail without harm."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from langmem_adapters.errors import LangmemError, ModelError, SearchError
from langmem_adapters.flow import submit
from langmem_adapters.model import Hit
from langmem_adapters.protocols import SemanticIndex
from langmem_adapters.records import Records

__all__ = ["Semantic"]

T = TypeVar("T")
_log = logging.getLogger("langmem_adapters")


class Semantic:
    """Blocking; meant for a flow's steps.

    A failure of the embedder or of the index costs a search what they would have found, and nothing else: it is
    counted, logged once per cause, and what could not be embedded is embedded later.

    Args:
        records: What the vectors follow.
        index: Holds the vectors.
        strict: Raise the failures of a search.
        counts: Where failures are counted: "degraded" searches, and times that the vectors fell "behind".
    """

    def __init__(self, records: Records, index: SemanticIndex, *, strict: bool, counts: dict[str, int]) -> None:
        self._records = records
        self._index = index
        self._strict = strict
        self._counts = counts
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        self._under_way = False
        self._again = False

    def follow(self, report: Callable[[int], None] | None = None) -> None:
        """Embed what the vectors do not have yet, and tell how much it was. Raises what went wrong."""
        self._records.follow(report, index=self._index)

    def follow_later(self) -> None:
        """:meth:`follow` on a background thread, once for all that is added while it is under way."""
        with self._lock:
            self._again = True
            if self._under_way:
                return
            self._under_way = True
        submit(self._catch_up)

    def _catch_up(self) -> None:
        while True:
            with self._lock:
                if not self._again:
                    self._under_way = False
                    return
                self._again = False
            try:
                self.follow()
            except LangmemError as error:
                self._count("behind", error)

    def search(self, query: str, k: int) -> list[Hit]:
        """The ``k`` memories nearest in meaning among those embedded so far; none, where that fails."""
        return self._try(lambda: self._index.search(self._records.namespace, query, k), [])

    def score(self, query: str, ids: Sequence[str]) -> dict[str, float]:
        """How near these memories are, as far as they are embedded; none, where that fails."""
        return self._try(lambda: self._index.score(self._records.namespace, query, ids), {})

    def _try(self, call: Callable[[], T], otherwise: T) -> T:
        try:
            return call()
        except (SearchError, ModelError) as error:
            if self._strict:
                raise
            self._count("degraded", error)
            return otherwise

    def _count(self, what: str, error: LangmemError) -> None:
        with self._lock:
            self._counts[what] += 1
            cause = f"{what} {type(error).__name__}"
            if cause in self._warned:
                return
            self._warned.add(cause)
        _log.warning("the vectors of the long-term memory failed, and its search goes on by words: %s", error)
