"""Incremental indexing: an index follows a namespace's log, whoever else follows or clears it at the same time.

An index changes only if it is still where its follower read on from. An index that was cleared meanwhile must not look
like one that never began: so each beginning sets a position of its own, before the log's first entry. It has the id of
that entry, which shows whether the log was cleared since, even if the index is only half done by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import Conflict, LangmemError, SearchError
from langmem_adapters.flow import Flow, run, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import START, Document, Index, Item, Position, Store
from langmem_adapters.records.journal import COMPACTION_KEY, compacted_seq, position_after
from langmem_adapters.records.paging import PAGE_SIZE

_SEARCH_ATTEMPTS = 3  # if an index is dropped during each of them, the last result is returned
_MAX_STARTS = 10  # in one call: two embedders that share an index would replace each other's work for ever
_PACKAGE_PREFIX = f"{__name__.partition('.')[0]}."
_log = logging.getLogger("langmem_adapters")

T = TypeVar("T")


class IndexChange(NamedTuple):
    """What some entries of a log change in an index."""

    upsert: Sequence[Document]
    delete: Sequence[str] = ()


class _UnreadPage(NamedTuple):
    since: Position | None
    items: list[Item]
    compacted_to: int


class Follower:
    """An index that follows the log of its namespace, and the turns of threads that want it brought up to date.

    One turn serves all who asked before it began. ``text_format`` names what the texts are made of: an index of texts
    in another format begins anew.
    """

    def __init__(self, store: Store, index: Index, namespace: Namespace, text_format: str = "") -> None:
        self.index = index
        self.namespace = namespace
        self._store = store
        self._text_format = text_format
        self.lock = ForkSafeLock()
        """Held by the thread that has its turn."""
        self.begun = 0
        """How many turns have begun: what a thread notes as it asks."""
        self._ended = 0
        self._position: Position | None = None

    @property
    def is_following(self) -> bool:
        """Whether a thread has its turn; also after one that failed, or that a fork or an interrupt has ended."""
        return self.begun != self._ended

    def position(self) -> Position | None:
        """How far the index has followed; None: not begun."""
        return self.index.position(self.namespace)

    def take_turn(self, advance: Callable[[], Position | None]) -> Position | None:
        """Have the index followed up to now; returns its position. ``advance`` is :meth:`advance` with its arguments.

        Most searches find nothing new: those of other threads need not wait in line to learn that.
        """
        begun = self.begun
        if self.is_following:
            is_level, position = self.check_level()
            if is_level:
                return position
        with self.lock.held():
            return self.take(begun, advance)

    def take(self, begun_before: int, advance: Callable[[], Position | None]) -> Position | None:
        """Follow, unless a whole turn has passed since ``begun_before`` was noted. Call it with the lock held."""
        if self._ended > begun_before:
            return self._position
        self.begun += 1
        turn = self.begun
        self._position = advance()
        self._ended = max(self._ended, turn)  # one within another, as of an embedder that searches, ends first
        return self._position

    def check_level(self) -> tuple[bool, Position | None]:
        """Whether an index has nothing to follow, and its position. False also if only :meth:`advance` can tell.

        Changes nothing, so threads can ask this while another one follows.
        """
        with own_index_errors(self.index):
            position = self.position()
            return run(self.read_level(position)) is not None, position

    def read_level(self, position: Position | None, keys: Sequence[str] = ()) -> Flow[dict[str, bytes] | None]:
        """The values of ``keys``; None, if an index at this position has something to follow, or that is unknown."""
        after = max(position[0] - 1, 0) if position else 0
        page = yield from step(self._store.scan, self.namespace, after=after, limit=2, keys=[COMPACTION_KEY, *keys])
        ends = [self._position_after(item, compacted_seq(page.values)) for item in page.items]
        return page.values if ends == ([position] if position else []) else None

    def advance(
        self,
        change_of: Callable[[list[Item]], IndexChange],
        *,
        new_id: Callable[[], str],
        batch_length: Callable[[list[Item]], int] = len,
        report: Callable[[int], object] | None = None,
        on_start: Callable[[], None] | None = None,
        on_lost_entry: Callable[[], object] | None = None,
    ) -> Position | None:
        """Bring the index up to the store, page by page; returns its position then, or None if it has not begun.

        Args:
            change_of: Gives what a page of entries changes; it may read the store.
            new_id: Gives an id to each beginning.
            batch_length: Gives how many of a page's entries form one change of the index, which others wait for.
            report: Is called after each page with its number of entries.
            on_start: Is called just before the index begins anew, empty.
            on_lost_entry: Is called before that if the log lost the entry of the index's position for no known reason.

        Raises:
            SearchError: The index failed, or was replaced again and again.
        """
        starts = 0
        while True:
            with own_index_errors(self.index):
                unread = self._read_unread(on_lost_entry)
            if not unread.items:
                return unread.since
            try:
                if unread.since is None:
                    starts += 1
                    if starts > _MAX_STARTS:
                        raise SearchError("an index was replaced repeatedly: one with another embedder may share it")
                    beginning = (0, f"{unread.items[0].id}@{new_id()}")
                    if on_start:
                        on_start()
                    self.start(beginning)
                    unread = unread._replace(since=beginning)
                items = unread.items[: batch_length(unread.items)]
                upsert, delete = change_of(items)
                end = self._position_after(items[-1], unread.compacted_to)
                with own_index_errors(self.index):
                    self.index.apply(self.namespace, upsert=upsert, delete=delete, position=end, since=unread.since)
            except Conflict:
                continue  # another follower has cleared or advanced the index: see where it is now
            if report:
                report(len(items))
            if len(items) == len(unread.items) < PAGE_SIZE:
                return end  # nothing had come after these when they were read

    def start(self, beginning: Position) -> None:
        """Begin an index that has not begun; raises Conflict if another follower has begun it."""
        with own_index_errors(self.index):
            self.index.apply(self.namespace, position=beginning, since=START)

    def search(self, catch_up: Callable[[], Position | None], search: Callable[[], T]) -> T:
        """Search the index once it is up to date; again if somebody dropped it meanwhile: it may be half rebuilt."""
        with own_index_errors(self.index):
            for _ in range(_SEARCH_ATTEMPTS):
                position = catch_up()
                result = search()
                if position is None or self.has_remained(position):
                    break
        return result

    def has_remained(self, position: Position) -> bool:
        """Whether the index was not dropped since it was there; that it has followed on takes nothing from it."""
        position_now = self.position()
        return position_now == position or (position_now is not None and position_now[0] > position[0])

    def _position_after(self, item: Item, compacted_to: int) -> Position:
        seq, id_ = position_after(item, compacted_to)
        return (seq, f"{id_}#{self._text_format}") if self._text_format else (seq, id_)

    def _read_unread(self, on_lost_entry: Callable[[], object] | None = None) -> _UnreadPage:
        """An index's position, and a page of what came after it; the last entry that it saw is read with the page."""
        since = self.position()
        after = max(since[0] - 1, 0) if since else 0
        page = self._store.scan(self.namespace, after=after, limit=PAGE_SIZE + 1, keys=[COMPACTION_KEY])
        compacted_to = compacted_seq(page.values)
        # Without ``on_lost_entry``, entries leave the log one by one, or the index holds more than the log tells.
        if since is None:
            return _UnreadPage(since, page.items[:PAGE_SIZE], compacted_to)
        seq, id_ = since
        first = page.items[0] if page.items else None
        is_same_log = first is not None and id_.startswith(f"{first.id}@")  # else it was cleared, maybe during a change
        if seq == 0 and (on_lost_entry is None or compacted_to > 0 or is_same_log):
            return _UnreadPage(since, page.items[:PAGE_SIZE], compacted_to)
        if first is not None and since == self._position_after(first, compacted_to):
            return _UnreadPage(since, page.items[1:], compacted_to)
        if self.position() != since:
            # Another follower has advanced it meanwhile.
            return self._read_unread(on_lost_entry)
        if on_lost_entry and seq > compacted_to and (first is None or first.seq != seq):
            on_lost_entry()
        _log.info(
            "the index of %r is rebuilt: its store was cleared, replaced or tidied, or its texts are made differently",
            self.namespace[0],
        )
        self.index.clear(self.namespace)
        return self._read_unread()


@contextmanager
def own_index_errors(index: Index) -> Iterator[None]:
    """Raise whatever an index of the user's own raises, or causes by what it gives, as a SearchError."""
    try:
        yield
    except LangmemError:
        raise
    except Exception as error:
        if type(index).__module__.startswith(_PACKAGE_PREFIX):
            raise
        raise SearchError(f"the index {type(index).__name__} failed: {type(error).__name__}") from error
