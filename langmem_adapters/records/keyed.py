"""Keyed records of a namespace, and the indexes that follow them.

Each change of a record adds an entry to the namespace's log that names the record's key, in the same transaction.
Each index remembers the last entry that it has seen, and reads on from there: after a crash, on another machine, or
from the beginning if its own data was cleared.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from langmem_adapters.errors import Conflict, LangmemError, StoreError, StoreUnavailable
from langmem_adapters.flow import Flow, blocking, step
from langmem_adapters.inspection import unwrap
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.model import Hit
from langmem_adapters.protocols import Document, Index, Item, Position, Store
from langmem_adapters.records.filtering import FilteredReader
from langmem_adapters.records.following import Follower, IndexChange, own_index_errors
from langmem_adapters.records.journal import COMPACTION_KEY, batch_length, change_entries, compact_log, keys_of
from langmem_adapters.records.level_search import LevelSearches, Read, without_nul
from langmem_adapters.records.paging import PAGE_SIZE, pages, values_of, values_under
from langmem_adapters.validation import check_index, check_store

_WRITES_PER_CHECK = 32  # one in so many writes checks whether the log has grown long
_WARN_RECORDS = 10_000  # records after which a search that waits for its index has waited for seconds
_log = logging.getLogger("langmem_adapters")

V = TypeVar("V")


class Records:
    """The records of a namespace. Blocking; meant for a flow's steps.

    Args:
        store, namespace: Where the records are.
        index, vectors: Find them by text; the second may be behind the first.
        text_of: Gives the text, or a document with the key as its id, by which a record is found, from its key and
            bytes; None: it is not found.
        new_id: Gives ids to entries of the log.
        text_format: Names what ``text_of`` makes its texts of; for another format, the indexes begin anew.
        other_keys: Keys of values in the namespace that are not records.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        *,
        index: Index,
        vectors: Index | None = None,
        text_of: Callable[[str, bytes], str | Document | None],
        new_id: Callable[[], str],
        text_format: str = "",
        other_keys: Sequence[str] = (COMPACTION_KEY,),
    ) -> None:
        check_store(store)
        check_index("index", index)
        if vectors is not None:
            check_index("vectors", vectors)
        self.store = store
        self.namespace = namespace
        self.index = index
        self.vectors = vectors
        self._text_of = text_of
        self._new_id = new_id
        self._other_keys = other_keys
        self._followers = {
            id(each): Follower(store, each, namespace, text_format) for each in (index, vectors) if each is not None
        }
        self._replaced_ids: set[str] = set()  # of damaged entries, whose records are named by others by now
        self.searches: LevelSearches = LevelSearches(self._followers[id(index)], read=self.get)
        """Those of the first index."""

    @blocking
    def get(self, keys: Sequence[str]) -> Flow[dict[str, bytes]]:
        """Read records; missing ones are left out, and so are values beside the records, whose keys have a NUL."""
        return (yield from step(self.store.get, self.namespace, without_nul(keys)))

    def put(
        self, records: Mapping[str, bytes], *, guard: Mapping[str, bytes | None] | None = None, ttl: float | None = None
    ) -> None:
        """Add or replace records, all or none. ``guard`` as in :meth:`Store.write`."""
        if records:
            self._write(list(records), put=records, guard=guard, ttl=ttl)

    def delete(self, keys: Sequence[str], *, ttl: float | None = None) -> int:
        """Remove records; returns how many there were. If several callers remove one, one of them counts it."""
        while existing := self.get(keys):
            try:
                self.remove(existing, ttl=ttl)
            except Conflict:
                continue
            except StoreUnavailable:  # whether the write was made, only another read can tell
                if self.get(list(existing)):
                    raise
            return len(existing)
        return 0

    def remove(self, records: Mapping[str, bytes], *, ttl: float | None = None) -> None:
        """Remove exactly these records; raises Conflict if one of them has changed or is gone."""
        keys = list(records)
        self._write(keys, delete=keys, guard=records, ttl=ttl)

    def _write(self, keys: Sequence[str], *, ttl: float | None, **change: Any) -> None:
        """Change these records and log it; some writes also compact the log, chosen by the entry's id."""
        entries = change_entries(keys, self._new_id)
        self.searches.wrote_since_followed = True
        self.store.write(self.namespace, append=entries, ttl=ttl, **change)
        if zlib.crc32(to_bytes(entries[0][0])) % _WRITES_PER_CHECK == 0:
            try:
                compact_log(self.store, self.namespace, new_id=self._new_id, ttl=ttl)
            except LangmemError as error:  # the write itself was made
                _log.warning("a log of changes could not be tidied; a later write tries again: %s", error)

    def clear(self) -> None:
        """Remove all records, and what the indexes hold of them."""
        self.store.clear(self.namespace)
        self.clear_indexes()

    def clear_indexes(self) -> None:
        """Remove what the indexes hold of the records. This waits for nobody: a running follower begins anew."""
        for index in (self.index, self.vectors):
            if index is not None:
                with own_index_errors(index):
                    index.clear(self.namespace)

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Yield the records in the order in which they were first written, reading a page at a time."""
        return values_of(self.store, self.namespace, self._keys_named)

    def follow(self, report: Callable[[int], object] | None = None, *, index: Index | None = None) -> Position | None:
        """Bring one of the indexes up to the store, by default the first; returns its position then.

        ``report`` is called after each page with its number of entries.
        """
        index = self.index if index is None else index
        if index is self.index:
            self.searches.wrote_since_followed = False
        follower = self._followers[id(index)]
        return follower.take_turn(
            partial(
                follower.advance,
                lambda items: self.index_change(self._keys_named(items)),
                new_id=self._new_id,
                batch_length=batch_length,
                report=report,
                on_lost_entry=lambda: self._log_again(self._lost_keys()),
            )
        )

    def catch_up(self) -> Position | None:
        """:meth:`follow` for a search; if it takes long, a warning says why, and how far it is."""
        indexed, next_warning = 0, _WARN_RECORDS

        def warn_if_slow(_: int) -> None:
            nonlocal indexed, next_warning
            indexed += PAGE_SIZE
            if indexed >= next_warning:
                next_warning *= 2
                _log.warning(
                    "a search waits for the index of %r, which has taken some %s records so far that are new since the"
                    " last search: call flush() of a long-term memory before, which shows it with progress=True",
                    self.namespace[0],
                    f"{indexed:,}",
                )

        return self.follow(warn_if_slow)

    def _keys_named(self, items: Sequence[Item]) -> list[str]:
        """The keys that entries name. Where one is damaged, also those that no entry names any more."""
        keys_by_entry = [keys_of([item]) for item in items]
        damaged_ids = {item.id for item, keys in zip(items, keys_by_entry, strict=True) if not keys}
        if not damaged_ids <= self._replaced_ids:
            lost_keys = self._lost_keys()
            keys_by_entry.append(lost_keys)
            if self._log_again(lost_keys):
                self._replaced_ids |= damaged_ids
        return list(dict.fromkeys(chain.from_iterable(keys_by_entry)))

    def _lost_keys(self) -> list[str]:
        """The keys of records that the log lost: a server that evicts keys may have evicted the log alone."""
        # Read before the log, which tells of what comes meanwhile.
        stored_keys = unwrap(self.store).get(self.namespace).keys() - {*self._other_keys}
        logged_keys = {key for items in pages(self.store, self.namespace) for key in keys_of(items)}
        return sorted(key for key in stored_keys - logged_keys if "\0" not in key)

    def _log_again(self, lost_keys: Sequence[str]) -> bool:
        """Log records again, without a change to them; returns whether that was possible."""
        store, remaining = unwrap(self.store), [*lost_keys]
        if not hasattr(store, "dates"):
            return False
        try:
            while remaining and (dates := store.dates(self.namespace)):
                records = self.get(remaining[:PAGE_SIZE])
                with suppress(Conflict):  # they have changed just now
                    if records:
                        entries = change_entries([*records], self._new_id, again=True)
                        self.store.write(self.namespace, append=entries, guard=records, ttl=dates.expires_in)
                    del remaining[:PAGE_SIZE]
        except StoreError as error:  # whatever can still be found, is
            _log.warning(
                "records that the log of %r has lost could not be written to it again: %s", self.namespace[0], error
            )
            return False
        return True

    def index_change(self, keys: Sequence[str]) -> IndexChange:
        """What an index must change so that it holds these records as they are now."""
        records = values_under(self.get, keys)
        documents = {key: _to_document(key, self._text_of(key, data)) for key, data in records}
        ordered = [documents.get(key) for key in keys]
        return IndexChange(
            upsert=[document for document in ordered if document is not None],
            delete=[key for key, document in zip(keys, ordered, strict=True) if document is None],
        )

    @blocking
    def search(self, query: str, k: int, value_of: Callable[[str, bytes], V | None]) -> Flow[list[tuple[Hit, V]]]:
        """The ``k`` best records that have a value, by a :class:`FilteredReader`, from an index that is up to date."""
        if k <= 0:
            return []

        def find_best(get: Read) -> Flow[list[tuple[Hit, V]]]:
            ranked = partial(self.index.search, self.namespace, query)
            return step(FilteredReader(get, value_of).best, ranked, k)

        return (yield from self.searches.flow(find_best, self.catch_up))


def _to_document(key: str, text: str | Document | None) -> Document | None:
    if isinstance(text, Document):
        return text if text.text.strip() else None
    return Document(key, text) if text else None
