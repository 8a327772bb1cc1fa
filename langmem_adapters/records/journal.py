"""Compaction of a log of changes, and detection of followers that missed what it dropped.

The log of records names the keys that changed, entry by entry. Of older entries, only the first one of each record is
needed: it keeps the order in which the records were written, and a new follower reads the record itself. An index that
has not read so far would miss the dropped entries. So a value beside the log says up to which entry it is compacted: an
index before that entry begins anew, unless it has read the log after that compaction. To tell the two apart, a position
before that entry holds, after the entry's id, the number up to which the log was compacted when the index read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import NamedTuple

from langmem_adapters.codec import decode, encode, refuse_sealed_or_newer
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Position, Store
from langmem_adapters.records.paging import PAGE_SIZE, pages
from langmem_adapters.warn_once import warn_of_damage

COMPACTION_KEY = "\0tidied"
"""The key of the value that says how far a log was compacted. No record has a key with a NUL."""

_AGAIN = "again "  # how the ids of entries begin that log records again

_SLACK_ENTRIES = 64  # superfluous entries that are left, beyond as many as there are records
_REMOVE_BATCH_SIZE = 500  # entries removed in one write, for which other writers wait


class _Compaction(NamedTuple):
    seq: int = 0
    records: int = 0
    stamp: str = ""


def compacted_seq(values: Mapping[str, bytes]) -> int:
    """How far a log was compacted, from the values beside it; 0 if it never was."""
    return _read_compaction(values).seq


def compaction_mark(values: Mapping[str, bytes], removed: Sequence[Item], records: int, stamp: str) -> bytes:
    """The value of a log from which these entries are ``removed``, when there are that many ``records``.

    Each removal raises the number, even if earlier ones went further: by it, an index shows which it has missed. The
    ``stamp`` is unique to this compaction, also among earlier logs of the same namespace.
    """
    seq = compacted_seq(values)
    seq = max([seq + 1, *(item.seq for item in removed)]) if removed else seq
    return encode([*_Compaction(seq, records, stamp)])


def position_after(item: Item, compacted_to: int) -> Position:
    """The position of an index after an entry, if it missed nothing of a log compacted up to ``compacted_to``."""
    return item.seq, item.id if item.seq >= compacted_to else f"{item.id}@{compacted_to}"


def change_entries(keys: Sequence[str], new_id: Callable[[], str], *, again: bool = False) -> list[tuple[str, bytes]]:
    """The entries that name keys, each with no more keys than an index takes at once; ``again``: without a change."""
    return [
        (f"{_AGAIN if again else ''}{new_id()}", encode([*keys[n : n + PAGE_SIZE]]))
        for n in range(0, len(keys), PAGE_SIZE)
    ]


def is_logged_again(item: Item) -> bool:
    """Whether an entry names records that the log had lost, and that were not changed then."""
    return item.id.startswith(_AGAIN)


def batch_length(items: Sequence[Item]) -> int:
    """How many of these entries, at least one, together name about as many keys as an index takes at once."""
    key_count = 0
    for position, item in enumerate(items):
        key_count += item.data.count(b'","') + 1
        if key_count > PAGE_SIZE:
            return max(position, 1)
    return max(len(items), 1)


def keys_of(items: Iterable[Item]) -> list[str]:
    """The keys that entries name, without repeats."""
    return list(dict.fromkeys(key for item in items for key in _keys_in_entry(item)))


def _keys_in_entry(item: Item) -> list[str]:
    """The keys that an entry names; none, with a warning, if it is damaged, so that the other entries can be read."""
    with suppress(SerializationError):
        keys = decode(item.data)
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys
    refuse_sealed_or_newer(item.data, "an entry of a log of changes")
    warn_of_damage(item, "an entry of a log of changes is damaged, and is left out")
    return []


def stale_entries(items: Iterable[Item], live: AbstractSet[str]) -> list[Item]:
    """The entries whose keys are all deleted, or named by an earlier entry."""
    stale_items, earlier_keys = [], set[str]()
    for item in items:
        keys = set(_keys_in_entry(item))
        if not (keys & live) - earlier_keys:
            stale_items.append(item)
        earlier_keys |= keys
    return stale_items


def compact_log(store: Store, namespace: Namespace, *, new_id: Callable[[], str], ttl: float | None) -> None:
    """Remove superfluous entries, once the log has twice as many entries as there were records, and some more.

    The newest quarter stays, so that an index that is a little behind continues from its position. ``ttl`` is as in
    :meth:`Store.write`.
    """
    page = store.scan(namespace, limit=0, keys=[COMPACTION_KEY])
    if page.total <= 2 * _read_compaction(page.values).records + _SLACK_ENTRIES:
        return
    before: Mapping[str, bytes] = page.values
    try:
        if COMPACTION_KEY not in before:
            # A value that another log of the same namespace, begun after a clear, will never have.
            before = {COMPACTION_KEY: compaction_mark({}, (), 0, new_id())}
            store.write(namespace, put=before, guard={COMPACTION_KEY: None}, ttl=ttl)
        items = [item for page in pages(store, namespace) for item in page]
        keys = keys_of(items)
        live = set(keys) - _missing_keys(store, namespace, keys)
        stale_items = stale_entries(items[: len(items) - len(items) // 4], live)
        # At least one write, which records how many records there are now.
        for n in range(0, max(len(stale_items), 1), _REMOVE_BATCH_SIZE):
            batch = stale_items[n : n + _REMOVE_BATCH_SIZE]
            after = {COMPACTION_KEY: compaction_mark(before, batch, len(live), new_id())}
            store.write(namespace, put=after, remove=batch, guard=before, ttl=ttl)
            before = after
    except Conflict:
        return  # another process is compacting it, or has cleared it


def _missing_keys(store: Store, namespace: Namespace, keys: Sequence[str]) -> set[str]:
    """The keys without a record, including those that only their deletion still names."""
    missing = set(keys)
    for n in range(0, len(keys), PAGE_SIZE):
        missing -= store.get(namespace, keys[n : n + PAGE_SIZE]).keys()
    return missing


def _read_compaction(values: Mapping[str, bytes]) -> _Compaction:
    if COMPACTION_KEY not in values:
        return _Compaction()
    with suppress(SerializationError, TypeError):
        compaction = _Compaction(*decode(values[COMPACTION_KEY]))
        if [type(field) for field in compaction] == [int, int, str]:
            return compaction
    stored = values[COMPACTION_KEY]
    warn_of_damage(stored, "the mark of how far a log of changes was tidied is damaged: its indexes may be rebuilt")
    return _Compaction()
