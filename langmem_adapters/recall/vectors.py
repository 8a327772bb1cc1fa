"""The vectors of a memory in its search: they follow in the background, and may fail without harm."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, Conflict, LangmemError, ModelError, SearchError
from langmem_adapters.flow import Flow, step, submit
from langmem_adapters.keys import Namespace
from langmem_adapters.model import Hit
from langmem_adapters.protocols import START, Index, PiecewiseIndex, Position, SelectiveIndex, SemanticIndex
from langmem_adapters.records.following import own_index_errors
from langmem_adapters.records.keyed import Records

T = TypeVar("T")
_RETRY_PAUSE_SECONDS = 30.0  # after a failure, before a search has it retried
_FAILURES = (SearchError, ModelError, ConfigurationError)  # ConfigurationError: another process has the vectors' folder
_log = logging.getLogger("langmem_adapters")
_warned: WeakKeyDictionary[SemanticIndex, set[str]] = WeakKeyDictionary()  # shared by all memories of an index
_warned_lock = ForkSafeLock()


class VectorRecall:
    """Recall by vectors. Blocking; meant for a flow's steps.

    If the embedder or the index fails, a search only lacks what they would have found. The failure is counted, and
    logged once per cause and index; texts that could not be embedded are embedded later. Neither this search nor others
    of the next half minute ask again. If a search finds the vectors behind, because another machine has added something
    or another embedder made them, it has them follow.

    Args:
        records, index: What the vectors follow, and what holds them.
        strict: Raise the failures of a search; and let the next search retry what failed in the background.
        counts: Where failures are counted: "degraded" searches, how often the vectors were found or fell "behind", and
            texts that the embedder "refused".
    """

    def __init__(
        self, records: Records, index: SemanticIndex, *, strict: bool, counts: Counts, clock: Callable[[], float]
    ) -> None:
        self.namespace: Namespace = records.namespace
        self._records = records
        self._index = index
        self._strict = strict
        self._counts = counts
        self._clock = clock
        self._warned: set[str] = set()
        with contextlib.suppress(TypeError), _warned_lock.held():  # an index without a hash gets its own
            self._warned = _warned.setdefault(index, self._warned)
        self._lock, self._follow_lock = ForkSafeLock(), ForkSafeLock()
        self._running_pid = 0  # a process id: a forked child does not run it
        self._is_pending = False
        self._follow_failed_at: float | None = None
        self._search_failed_at: float | None = None  # time of the last failed search, if nothing succeeded since
        self._behind_position: Position | None = None  # the log's end when a search last found the vectors behind
        self._level_position: Position | None = None  # the log's end up to which nothing is missing
        self._refused_ids: set[str] = set()

    def follow(self, report: Callable[[int], object] | None = None) -> None:
        """Embed what the vectors lack, and report how much it was. Raises what went wrong.

        Afterwards, nothing in the background is still to look at what was added before: it might open an index that was
        closed since.
        """
        with self._follow_lock.held():
            self._is_pending, behind_position = False, self._behind_position
            try:
                self._records.follow(report, index=self._index)
                if isinstance(self._index, SelectiveIndex):
                    with own_index_errors(self._index):
                        self._retry_refused(self._index)
            except BaseException:
                self._follow_failed_at, self._level_position = self._clock(), None
                raise
            self._follow_failed_at = self._search_failed_at = None
            self._level_position = behind_position

    def _retry_refused(self, index: SelectiveIndex) -> None:
        """Give the embedder again what it refused: some refusals were temporary."""
        namespace = self.namespace
        refused = index.refused(namespace)
        position = index.position(namespace) if refused else None
        if position:
            change = self._records.index_change(refused)
            with contextlib.suppress(Conflict):  # another process has changed the index: the next time will do
                index.apply(namespace, upsert=change.upsert, delete=change.delete, since=position)
        still_refused = set(index.refused(namespace))
        with self._lock.held():
            self._counts.add("refused", len(still_refused - self._refused_ids))
            self._refused_ids = still_refused

    def follow_later(self) -> None:
        """:meth:`follow` on a background thread, once for all that is added while it runs."""
        try:
            with self._lock.held():
                self._is_pending = True
                if self._running_pid == os.getpid():
                    return
                self._running_pid = os.getpid()
            submit(self._catch_up)
        except BaseException as error:  # if it runs all the same, the next addition may start another beside it
            self._running_pid = 0
            if not isinstance(error, RuntimeError):  # of an interpreter that is shutting down
                raise
            self._count("behind", error)

    def _catch_up(self) -> None:
        """Follow until nothing was added meanwhile; then the next addition starts another thread."""
        is_pending = True
        while is_pending:
            with self._follow_lock.held():
                with self._lock.held():
                    is_pending, self._is_pending = self._is_pending, False
                    if not is_pending:
                        self._running_pid = 0
                if is_pending:
                    try:
                        self.follow()
                    except BaseException as error:  # noqa: BLE001 - even a cancelled client's: counted, and retried
                        self._count("behind", error)

    def query(self) -> VectorQuery:
        """Begin a search."""
        has_failed = self._is_recent(self._search_failed_at)
        if has_failed:
            self._counts.add("degraded")
        return VectorQuery(self, None if has_failed else self._index)

    def record_failure(self, error: LangmemError) -> None:
        """Note that a search goes on without the vectors; in strict mode, raise the error."""
        if self._strict:
            raise error
        self._search_failed_at = self._clock()
        self._count("degraded", error)

    def _is_recent(self, failed_at: float | None) -> bool:
        return failed_at is not None and 0 <= self._clock() - failed_at < _RETRY_PAUSE_SECONDS

    def follow_if_behind(self, *, had_hits: bool) -> None:
        """Have the vectors follow, if they are not level with the lexical index, which each search brings up to date.

        That they are level is remembered. But without hits, their position is checked again: they may have been
        cleared, or their files removed. If another embedder has replaced them, that is a SearchError: it is still at
        work, and two would replace each other's in every search.
        """
        end = self._position_of(self._records.index)
        if end == self._level_position:
            if had_hits:
                return
            # An index of the user's own need not tell.
            is_replaced = getattr(self._index, "is_of_another_embedder", lambda _: False)
            if end != START and is_replaced(self.namespace):
                raise SearchError("another embedder has replaced the vectors: give all processes the same one")
        if self._position_of(self._index) == end:
            self._level_position = end
            return
        self._behind_position = end
        self._counts.add("behind")
        failed_at = self._follow_failed_at
        if failed_at is not None and self._strict:
            self.follow()
        elif not self._is_recent(failed_at):
            self.follow_later()

    def _position_of(self, index: Index) -> Position:
        return index.position(self.namespace) or START

    def _count(self, counter: str, error: BaseException) -> None:
        cause = f"{counter} {type(error).__name__}"
        self._counts.add(counter)
        with _warned_lock.held():
            if cause in self._warned:
                return
            self._warned.add(cause)
        reason = error if isinstance(error, LangmemError) else type(error).__name__  # foreign words may hold anything
        _log.warning("the vectors of the long-term memory failed, and it searches by words alone: %s", reason)


class VectorQuery:
    """What one search asks of the vectors. After a failure, ``index`` is None and it goes on without them."""

    def __init__(self, recall: VectorRecall, index: SemanticIndex | None) -> None:
        self._recall = recall
        self._index = index
        self._namespace = recall.namespace
        self._had_hits = False

    def embed_ahead(self, texts_to_embed: Callable[[], list[str]], count: int) -> Flow[None]:
        """Ask the embedder for the ``count`` queries that ``texts_to_embed`` gives together, before the search.

        One query is asked for ahead only if it can be awaited.
        """
        embedder = getattr(self._index, "embedder", None)
        if not (isinstance(embedder, Embedder) and embedder.gains_ahead(count)):
            return
        queries = yield from step(texts_to_embed)
        try:
            yield from embedder.ahead_flow(*queries)
        except _FAILURES as error:
            self._disable(error)

    def search(self, query: str, k: int) -> list[Hit]:
        """The ``k`` memories nearest in meaning among those embedded so far; empty if that fails."""
        hits: list[Hit] = self._try_index(lambda index: index.search(self._namespace, query, k), [])
        self._had_hits = self._had_hits or bool(hits)
        return hits

    def follow_if_behind(self) -> None:
        """Have the vectors follow after this search, if they are behind the lexical index, which is level by now."""
        self._try_index(lambda _: self._recall.follow_if_behind(had_hits=self._had_hits), None)

    def score(self, query: str, ids: Sequence[str]) -> dict[str, float]:
        """How near these memories are, as far as they are embedded; empty if that fails."""
        return self._try_index(lambda index: index.score(self._namespace, query, ids), {})

    @property
    def piecewise(self) -> bool:
        """Whether :meth:`max_sim` returns anything."""
        return bool(getattr(self._index, "piecewise", False))

    def max_sim(self, query: str, before: Mapping[str, str]) -> dict[str, float]:
        """How near these memories, or those before them, come to each word of the query; empty if that fails."""
        return self._try_index(lambda index: cast("PiecewiseIndex", index).max_sim(self._namespace, query, before), {})

    def _try_index(self, call: Callable[[SemanticIndex], T], default: T) -> T:
        if self._index is None:
            return default
        try:
            with own_index_errors(self._index):
                return call(self._index)
        except _FAILURES as error:
            self._disable(error)
            return default

    def _disable(self, error: LangmemError) -> None:
        self._recall.record_failure(error)
        self._index = None
