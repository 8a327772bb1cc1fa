"""What finds a shelf's entries by their text: an index that follows the log, and forgets what has left the shelf.

A search brings the index up to the log first. Where another thread is at that, with texts to embed, it waits no more
than a moment, once: it finds what is there, and what was put meanwhile is seen to in the background.

The log tells what was put, not what went. So whoever removes entries says so to the index, which forgets them only as
long as nobody has told it of newer ones; and what went unsaid, in a process without the index or one that was killed,
is forgotten when it is found.
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

_MOMENT = 0.1  # seconds; so that what was kept just now is found, where its text is soon embedded
_TRIES = 5  # to forget, while others tell the index of new entries; then it is left to whoever finds them
_log = logging.getLogger("langmem_adapters")


class ShelfIndex:
    """The search index of a shelf. Blocking; meant for a flow's steps.

    Args:
        rows: What is kept.
        index: What finds it.
        text_of: Gives the text of an entry by which it is to be found; empty: not to be found.
    """

    def __init__(self, rows: Rows, index: Index, text_of: Callable[[bytes], str]) -> None:
        self.index = index
        self._rows = rows
        self._text_of = text_of
        self._following = ForkSafeLock()
        self._patience = _MOMENT if isinstance(index, SemanticIndex) else -1  # for ever: no model takes its time
        # Whether somebody has waited in vain for the one who follows: the next one need not, and that one looks again.
        self._is_late = False

    def search(self, query: str, k: int) -> list[Hit]:
        """The ``k`` best, of which some may be gone, from an index that was brought up to the log."""
        return steadily(self.follow, self.index, self._rows.namespace, lambda: self.more(query, k))

    def more(self, query: str, k: int) -> list[Hit]:
        """The ``k`` best of the index as it is."""
        return self.index.search(self._rows.namespace, query, k)

    def follow(self) -> Position | None:
        """Bring the index up to the log, unless another thread is at it, and not done in a moment.

        Gives where it stands then; None, if it was not begun, or was left to the other thread.
        """
        alone, stands = self._followed(0.0 if self._is_late else self._patience)
        if not alone:
            self._is_late = True
            _, stands = self._followed(0.0)  # who was at it may have gone before it could see that
        return stands

    def _followed(self, seconds: float) -> tuple[bool, Position | None]:
        """Wait so long at the most to be the one who follows; False, if another is."""
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
        except LangmemError as error:  # the next search will meet it, too
            _log.info("an index of experiences is behind: %s", type(error).__name__)

    def _follow(self) -> Position | None:
        told: list[str] = []

        def change(items: Sequence[Item]) -> IndexChange:
            data = self._rows.get([item.id for item in items])
            texts = {item.id: self._text_of(data[item.id]) if item.id in data else "" for item in items}
            told[:] = [key for key, text in texts.items() if text]
            upsert = [Document(key, text) for key, text in texts.items() if text]
            return IndexChange(upsert, [key for key, text in texts.items() if not text])

        def report(_: int) -> None:
            self.forget(told)  # what went while the index was told of it, which may take as long as a model does

        store, place = self._rows.store, self._rows.namespace
        return follow(store, self.index, place, change, new_id=lambda: os.urandom(16).hex(), report=report)

    def forget(self, keys: Sequence[str], left: Sequence[Item] = ()) -> None:
        """Forget those of these keys that are gone or have no text, and step back from items that have left the log."""
        if not keys and not left:
            return
        for _ in range(_TRIES):
            try:
                stands = self.index.position(self._rows.namespace)
            except ModelError:  # of an embedder that has to say what it makes; what is gone does not wait for it
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
        """Where to stand instead of at an item that has left: else the index would have to begin anew."""
        if stands not in {(item.seq, item.id) for item in left}:
            return None
        page = self._rows.store.scan(self._rows.namespace, before=stands[0], limit=1, reverse=True)
        return (page.items[0].seq, page.items[0].id) if page.items else None
