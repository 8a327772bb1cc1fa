"""SessionSearch: search the messages, archived or not, and the facts of one session."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from functools import partial

from langmem_adapters.brain import BrainMemory
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.conversation.log import ARCHIVE, brain_namespace, readable_entries
from langmem_adapters.conversation.session import KNOWLEDGE
from langmem_adapters.errors import Conflict
from langmem_adapters.flow import Flow, gather, run, step
from langmem_adapters.model import Hit, Message, salvage
from langmem_adapters.protocols import Document, Index, Item, Position
from langmem_adapters.records.filtering import FilteredReader
from langmem_adapters.records.following import Follower, IndexChange
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import check_index, check_integer, check_text

_VALUE_PREFIXES = (KNOWLEDGE, ARCHIVE)  # prefixes of what is searched beside log entries


class SessionSearch(Shared):
    """Searches the history, the archive and the knowledge of a session; the index follows the session by itself.

    An index in memory suffices, since a session is bounded.
    """

    def __init__(self, brain: BrainMemory, index: Index) -> None:
        check_index("index", index)
        self.brain = brain
        self.index = index
        self._namespace = brain_namespace(brain.scope)
        self._new_id = brain._flows.new_id  # noqa: SLF001 - the ids of the same session
        self._indexed_values: dict[str, bytes] = {}
        self._read_numbers = itertools.count()
        self._latest_read = -1
        self._follower = Follower(brain.store, index, self._namespace)
        self._values_lock = ForkSafeLock()  # held while nothing is asked of the store

    def search(self, query: str, k: int) -> list[tuple[Message, float]]:
        """The ``k`` messages or facts that fit best, with scores in [0, 1], best first.

        Those that share nothing with the query are left out; an empty query, or ``k`` of 0 or less, finds nothing.
        """
        check_text("a query", query)
        check_integer("k", k)
        if k <= 0 or not query.strip():
            return []
        store = self.brain.store
        read_number = next(self._read_numbers)
        values = store.get(self._namespace)  # without the lock: a slow store then delays nobody else

        def follow_session() -> Position | None:
            position = self._follow_log()
            with self._values_lock.held():
                # otherwise a later reader has updated the index already
                if read_number > self._latest_read or not self._indexed_values:
                    self._latest_read = max(read_number, self._latest_read)
                    self._follow_values({key: data for key, data in values.items() if key.startswith(_VALUE_PREFIXES)})
            return position

        def read_data(ids: Sequence[str]) -> dict[str, bytes]:
            seqs = [int(id_) for id_ in ids if not id_.startswith(_VALUE_PREFIXES)]
            entries = dict(zip(map(str, seqs), run(gather(map(self._entry_data, seqs))), strict=True))
            data_by_id = {id_: entries.get(id_, values.get(id_)) for id_ in ids}
            return {id_: data for id_, data in data_by_id.items() if data is not None}  # the others have left since

        def find_best() -> list[tuple[Hit, Message]]:
            reader = FilteredReader(read_data, lambda id_, data: salvage(data, f"entry {id_}"))
            return reader.best(lambda limit: self.index.search(self._namespace, query, limit), k)

        best = self._follower.search(follow_session, find_best)
        return [(message, hit.score) for hit, message in best]

    def _follow_log(self) -> Position | None:
        """Bring the index up to the log; returns its position then."""
        return self._follower.take_turn(
            partial(self._follower.advance, _log_change, new_id=self._new_id, on_start=self._forget_values)
        )

    def _forget_values(self) -> None:
        with self._values_lock.held():
            self._indexed_values = {}

    def _entry_data(self, seq: int) -> Flow[bytes | None]:
        items = (yield from step(self.brain.store.scan, self._namespace, after=seq - 1, limit=1)).items
        return items[0].data if items and items[0].seq == seq else None

    def _follow_values(self, facts: dict[str, bytes]) -> None:
        """Give the index facts that are new or changed, and remove those that are gone."""
        if facts and self.index.position(self._namespace) is None:  # no message was ever added here
            self._indexed_values.clear()
            with contextlib.suppress(Conflict):  # another process has just begun it
                self._follower.start((0, self._new_id()))
        new = {key: salvage(data, key) for key, data in facts.items() if self._indexed_values.get(key) != data}
        documents = [document for key, fact in new.items() if fact and (document := _document(key, fact))]
        removed = [key for key, fact in new.items() if fact is None]
        removed += [key for key in self._indexed_values if key not in facts]
        if documents or removed:
            self.index.apply(self._namespace, upsert=documents, delete=removed)
        self._indexed_values = facts


def _log_change(items: Sequence[Item]) -> IndexChange:
    entries = readable_entries(items)
    return IndexChange([document for item, message in entries if (document := _document(str(item.seq), message))])


def _document(id_: str, message: Message) -> Document | None:
    if id_.startswith(KNOWLEDGE):
        return Document(id_, message.text)
    if message.role not in {"user", "assistant"} or not message.text.strip():
        return None
    return Document(id_, f"{message.name} {message.text}" if message.name else message.text)
