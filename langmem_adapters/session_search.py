"""SessionSearch: finds what was said, or is known, in one session."""

from __future__ import annotations

import threading

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation import KNOWLEDGE
from langmem_adapters.flow import arun, run, step
from langmem_adapters.log import brain_namespace
from langmem_adapters.model import Message, salvage
from langmem_adapters.protocols import Document, Index, Item
from langmem_adapters.records import followed

__all__ = ["SessionSearch"]

_PAGE = 500


class SessionSearch:
    """Searches the history and the knowledge of a session; the index follows the session by itself.

    Args:
        brain: The session.
        index: Where its index is kept; one in memory will do, since a session is bounded.
    """

    def __init__(self, brain: BrainMemory, index: Index) -> None:
        self.brain = brain
        self.index = index
        self._namespace = brain_namespace(brain.scope)
        self._known: set[str] = set()
        self._following = threading.Lock()

    def search(self, query: str, k: int) -> list[tuple[Message, float]]:
        """The ``k`` messages or facts that fit best, with scores in [0, 1], best first.

        None that shares nothing with the query; an empty query, or ``k`` of 0 or less, finds nothing.
        """
        return run(step(self._search, query, k))

    async def asearch(self, query: str, k: int) -> list[tuple[Message, float]]:
        """:meth:`search`, without blocking the event loop."""
        return await arun(step(self._search, query, k))

    def _search(self, query: str, k: int) -> list[tuple[Message, float]]:
        if k <= 0 or not query.strip():
            return []
        store = self.brain.store
        values = store.get(self._namespace)
        with self._following:
            self._follow_history()
            self._follow_knowledge(values)
        ask = k
        while True:
            hits = self.index.search(self._namespace, query, ask)
            found = []
            for hit in hits:
                data = values.get(hit.id) if hit.id.startswith(KNOWLEDGE) else self._entry(int(hit.id))
                message = salvage(data, f"entry {hit.id}") if data is not None else None
                if message is not None:
                    found.append((message, hit.score))
            if len(found) >= k or len(hits) < ask:
                return found[:k]
            ask *= 2  # some of the hits have left the session since

    def _entry(self, seq: int) -> bytes | None:
        items = self.brain.store.scan(self._namespace, after=seq - 1, limit=1).items
        return items[0].data if items and items[0].seq == seq else None

    def _follow_history(self) -> None:
        after = followed(self.brain.store, self.index, self._namespace)
        if after is None:  # the last entry seen has left the session: begin anew, a session is short
            self._known.clear()
            after = 0
        while items := self.brain.store.scan(self._namespace, after=after, limit=_PAGE).items:
            documents = [document for item in items if (document := _document(item)) is not None]
            after = items[-1].seq
            self.index.apply(self._namespace, upsert=documents, position=(after, items[-1].id))

    def _follow_knowledge(self, values: dict[str, bytes]) -> None:
        new = {key: data for key, data in values.items() if key.startswith(KNOWLEDGE) and key not in self._known}
        facts = {key: salvage(data, key) for key, data in new.items()}
        documents = [Document(key, fact.text) for key, fact in facts.items() if fact is not None]
        if documents:
            self.index.apply(self._namespace, upsert=documents)
        self._known.update(new)


def _document(item: Item) -> Document | None:
    message = salvage(item.data, f"log entry {item.seq}")
    if message is None or message.role not in {"user", "assistant"} or not message.text.strip():
        return None
    return Document(str(item.seq), f"{message.name} {message.text}" if message.name else message.text)
