"""The search index of a shelf: it follows the log, and forgets entries that have left the shelf.

A search first brings the index up to date with the log. If another thread is doing that, and has texts to embed, the
search waits once, for a moment; then it searches the index as it is, and newer entries are indexed in the background.

The log shows which entries were put, not which were removed. So whoever removes entries tells the index, guarded by its
position, so that newer entries stay. An entry whose removal was not told, as by a process without the index or by
one that was killed, is forgotten when a search finds it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from langmem_adapters.errors import Conflict, LangmemError, ModelError, SearchError
from langmem_adapters.experience.shelf.rows import Rows
from langmem_adapters.flow import Flow, run, step, submit
from langmem_adapters.model import Hit
from langmem_adapters.protocols import Document, Index, Item, Position, SemanticIndex
from langmem_adapters.records.following import Follower, IndexChange, own_index_errors
from langmem_adapters.records.level_search import LevelSearches, Read

_WAIT_SECONDS = 0.1  # so that an entry put just now is found, if its text is embedded quickly
_MAX_ATTEMPTS = 5  # attempts to forget entries while others change the index; after these, a search forgets them
_log = logging.getLogger("langmem_adapters")


class ShelfIndex:
    """The search index of a shelf. Blocking; meant for a flow's steps. An entry without a text is not searchable."""

    def __init__(self, rows: Rows, index: Index, text_of: Callable[[bytes], str]) -> None:
        self.index = index
        self._rows = rows
        self._text_of = text_of
        self._follower = Follower(rows.store, index, rows.namespace)
        # -1: wait for ever, as no model is asked
        self._wait_seconds = _WAIT_SECONDS if isinstance(index, SemanticIndex) else -1
        self.searches: LevelSearches = LevelSearches(self._follower, read=rows.get)
        # Whether a thread has waited in vain for the one that follows: then others do not wait, and that one goes on.
        self._needs_catch_up = False

    def search(self, query: str, k: int) -> tuple[list[Hit], dict[str, bytes]]:
        """The ``k`` best hits of an index that has caught up with the log, and the entries of those not yet removed."""

        def find(read: Read) -> Flow[tuple[list[Hit], dict[str, bytes]]]:
            hits = self._search(query, k)
            return hits, (yield from step(read, [hit.id for hit in hits]))

        return run(self.searches.flow(find, self.follow))

    def _search(self, query: str, k: int) -> list[Hit]:
        hits = self.index.search(self._rows.namespace, query, k)
        if not (isinstance(hits, list) and all(isinstance(hit, Hit) for hit in hits)):
            raise SearchError(f"the index {type(self.index).__name__} gave no list of hits")
        return hits

    def follow(self) -> Position | None:
        """Bring the index up to date with the log, unless another thread is doing so and takes more than a moment.

        Returns the new position; None, if the index was not begun, or was left to the other thread.
        """
        begun = self._follower.begun
        if self._follower.is_following and not self._needs_catch_up:
            is_level, position = self._follower.check_level()
            if is_level:  # as for most searches, which need not wait in line to learn that
                return position
        has_lock, position = self._follow_within(0.0 if self._needs_catch_up else self._wait_seconds, begun)
        if not has_lock:
            self._needs_catch_up = True
            _, position = self._follow_within(0.0, begun)  # the other thread may have ended before it saw the flag
        return position

    def _follow_within(self, seconds: float, begun: int) -> tuple[bool, Position | None]:
        """Have a turn at following the log, once no other thread has one; False, if one has after these seconds."""
        position = None
        with self._follower.lock.try_hold(seconds) as has_lock:
            if has_lock:
                position = self._follower.take(begun, self._follow)
        if has_lock and self._needs_catch_up:
            with suppress(RuntimeError):  # the interpreter is shutting down
                submit(self._catch_up)
        return has_lock, position

    def _catch_up(self) -> None:
        try:
            self.follow()
        except LangmemError as error:  # the next search will raise it, too
            _log.info(
                "an index of experiences could not catch up; the next search tries again: %s", type(error).__name__
            )

    def _follow(self) -> Position | None:
        self._needs_catch_up = self.searches.wrote_since_followed = False
        indexed_keys: list[str] = []

        def change(items: Sequence[Item]) -> IndexChange:
            values = self._rows.get([item.id for item in items])
            texts = {item.id: self._text_of(values[item.id]) if item.id in values else "" for item in items}
            indexed_keys[:] = [key for key, text in texts.items() if text]
            upsert = [Document(key, text) for key, text in texts.items() if text]
            return IndexChange(upsert, [key for key, text in texts.items() if not text])

        def report(_: int) -> None:
            self.forget(indexed_keys)  # entries removed while they were indexed, which may take as long as a model

        return self._follower.advance(change, new_id=lambda: os.urandom(16).hex(), report=report)

    def forget(self, keys: Sequence[str], removed: Sequence[Item] = ()) -> None:
        """Forget those keys that are gone or have no text, and move the position back from their ``removed`` items."""
        if keys:
            with own_index_errors(self.index):
                self._forget(keys, removed)

    def clear(self) -> None:
        """Forget all keys."""
        with own_index_errors(self.index):
            self.index.clear(self._rows.namespace)

    def _forget(self, keys: Sequence[str], removed: Sequence[Item]) -> None:
        for _ in range(_MAX_ATTEMPTS):
            try:
                position = self.index.position(self._rows.namespace)
            except ModelError:  # of the embedder, asked for its dimension; removals do not need that
                self.index.apply(self._rows.namespace, delete=self._unsearchable_keys(keys))
                return
            if position is None:
                return
            unsearchable, earlier = self._unsearchable_keys(keys), self._position_before(position, removed)
            if not unsearchable and earlier is None:
                return
            try:
                self.index.apply(self._rows.namespace, delete=unsearchable, position=earlier, since=position)
            except Conflict:
                continue
            return

    def _unsearchable_keys(self, keys: Sequence[str]) -> list[str]:
        values = self._rows.get(keys)
        return [key for key in keys if key not in values or not self._text_of(values[key])]

    def _position_before(self, position: Position, removed: Sequence[Item]) -> Position | None:
        """The position before an item that has left the log: otherwise the index would have to begin anew."""
        if position not in {(item.seq, item.id) for item in removed}:
            return None
        page = self._rows.store.scan(self._rows.namespace, before=position[0], limit=1, reverse=True)
        return (page.items[0].seq, page.items[0].id) if page.items else None
