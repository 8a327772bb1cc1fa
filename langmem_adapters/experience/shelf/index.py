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

from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import Conflict, LangmemError, ModelError
from langmem_adapters.experience.shelf.rows import Rows
from langmem_adapters.flow import submit
from langmem_adapters.model import Hit
from langmem_adapters.protocols import Document, Index, Item, Position, SemanticIndex
from langmem_adapters.records.following import IndexChange, follow, steadily

__all__ = ["ShelfIndex"]

_MOMENT = 0.1  # seconds; so that an entry put just now is found, if its text is embedded quickly
_TRIES = 5  # attempts to forget entries while others change the index; after these, a search forgets them
_log = logging.getLogger("langmem_adapters")


class ShelfIndex:
    """The search index of a shelf. Blocking; meant for a flow's steps.

    Args:
        rows: The entries.
        index: The index that finds them.
        text_of: Returns the text by which an entry is found; empty: it is not searchable.
    """

    def __init__(self, rows: Rows, index: Index, text_of: Callable[[bytes], str]) -> None:
        self.index = index
        self._rows = rows
        self._text_of = text_of
        self._following = ForkSafeLock()
        self._patience = _MOMENT if isinstance(index, SemanticIndex) else -1  # -1: wait for ever, as no model is asked
        # Whether a thread has waited in vain for the one that follows: then others do not wait, and that one goes on.
        self._is_late = False

    def search(self, query: str, k: int) -> list[Hit]:
        """The ``k`` best hits, some of which may be removed entries, after the index has caught up with the log."""
        return steadily(self.follow, self.index, self._rows.namespace, lambda: self.more(query, k))

    def more(self, query: str, k: int) -> list[Hit]:
        """The ``k`` best hits of the index as it is."""
        return self.index.search(self._rows.namespace, query, k)

    def follow(self) -> Position | None:
        """Bring the index up to date with the log, unless another thread is doing so and takes more than a moment.

        Returns the new position; None, if the index was not begun, or was left to the other thread.
        """
        alone, stands = self._followed(0.0 if self._is_late else self._patience)
        if not alone:
            self._is_late = True
            _, stands = self._followed(0.0)  # the other thread may have ended before it saw the flag
        return stands

    def _followed(self, seconds: float) -> tuple[bool, Position | None]:
        """Follow the log, once no other thread does; False, if one still does after these seconds."""
        stands = None
        with self._following.taken(seconds) as alone:
            if alone:
                self._is_late = False
                stands = self._follow()
        if alone and self._is_late:
            with suppress(RuntimeError):  # the interpreter is shutting down
                submit(self._catch_up)
        return alone, stands

    def _catch_up(self) -> None:
        try:
            self.follow()
        except LangmemError as error:  # the next search will raise it, too
            _log.info(
                "an index of experiences could not catch up; the next search tries again: %s", type(error).__name__
            )

    def _follow(self) -> Position | None:
        told: list[str] = []

        def change(items: Sequence[Item]) -> IndexChange:
            data = self._rows.get([item.id for item in items])
            texts = {item.id: self._text_of(data[item.id]) if item.id in data else "" for item in items}
            told[:] = [key for key, text in texts.items() if text]
            upsert = [Document(key, text) for key, text in texts.items() if text]
            return IndexChange(upsert, [key for key, text in texts.items() if not text])

        def report(_: int) -> None:
            self.forget(told)  # entries removed while they were indexed, which may take as long as a model

        store, place = self._rows.store, self._rows.namespace
        return follow(store, self.index, place, change, new_id=lambda: os.urandom(16).hex(), report=report)

    def forget(self, keys: Sequence[str], left: Sequence[Item] = ()) -> None:
        """Forget those keys that are gone or have no text, and move the position back from items that left the log."""
        if not keys and not left:
            return
        for _ in range(_TRIES):
            try:
                stands = self.index.position(self._rows.namespace)
            except ModelError:  # of the embedder, asked for its dimension; removals do not need that
                self.index.apply(self._rows.namespace, delete=self._gone(keys))
                return
            if stands is None:
                return
            gone, place = self._gone(keys), self._before(stands, left)
            if not gone and place is None:
                return
            try:
                self.index.apply(self._rows.namespace, delete=gone, position=place, since=stands)
            except Conflict:
                continue
            return

    def _gone(self, keys: Sequence[str]) -> list[str]:
        there = self._rows.get(keys) if keys else {}
        return [key for key in keys if key not in there or not self._text_of(there[key])]

    def _before(self, stands: Position, left: Sequence[Item]) -> Position | None:
        """The position before an item that has left the log: otherwise the index would have to begin anew."""
        if stands not in {(item.seq, item.id) for item in left}:
            return None
        page = self._rows.store.scan(self._rows.namespace, before=stands[0], limit=1, reverse=True)
        return (page.items[0].seq, page.items[0].id) if page.items else None
