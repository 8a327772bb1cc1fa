"""Compaction of a log of changes, and detection of followers that missed what it dropped.

The log of records names the keys that changed, entry by entry. Of older entries, only the first one of each record is
needed: it keeps the order in which the records were written, and a new follower reads the record itself. An index that
has not read so far would miss the dropped entries. So a value beside the log says up to which entry it was tidied: an
index before that entry begins anew, unless it has read the log after that tidying. To tell the two apart, a position
before that entry holds, after the entry's id, the number up to which the log was tidied when the index read it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import accumulate, takewhile
from typing import NamedTuple

from langmem_adapters.codec import decode, encode, refuse_undamaged
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Position, Store
from langmem_adapters.records.paging import PAGE, pages

__all__ = ["TIDIED", "few_keys", "keys_of", "mark", "place", "stale", "telling", "tidied", "tidy"]

TIDIED = "\0tidied"
"""The key of the value that says how far a log was tidied. No record has a key with a NUL."""

_SLACK = 64  # superfluous entries that are left, beyond as many as there are records
_PART = 500  # entries removed in one write, for which other writers wait
_log = logging.getLogger("langmem_adapters")


class _Tidied(NamedTuple):
    seq: int = 0
    records: int = 0
    stamp: str = ""


def tidied(values: Mapping[str, bytes]) -> int:
    """How far a log was tidied, from the values beside it; 0 if it never was."""
    return _read(values).seq


def mark(seq: int, records: int, stamp: str) -> bytes:
    """The value of a log that was tidied up to the entry ``seq``, when there were that many ``records``.

    The ``stamp`` is unique to this tidying, also among earlier logs of the same namespace.
    """
    return encode([*_Tidied(seq, records, stamp)])


def place(item: Item, tidied_to: int) -> Position:
    """The position of an index after an entry, if it missed nothing of a log that was tidied up to ``tidied_to``."""
    return item.seq, item.id if item.seq >= tidied_to else f"{item.id}@{tidied_to}"


def telling(keys: Sequence[str], new_id: Callable[[], str]) -> list[tuple[str, bytes]]:
    """The entries that name keys, each with no more keys than an index takes at once."""
    return [(new_id(), encode([*keys[n : n + PAGE]])) for n in range(0, len(keys), PAGE)]


def few_keys(items: Sequence[Item]) -> int:
    """How many of these entries, at least one, together name about as many keys as an index takes at once."""
    named = accumulate(item.data.count(b'","') + 1 for item in items)
    return max(sum(1 for _ in takewhile(lambda keys: keys <= PAGE, named)), 1)


def keys_of(items: Iterable[Item]) -> list[str]:
    """The keys that entries name, without repeats."""
    return list(dict.fromkeys(key for item in items for key in _named(item)))


def _named(item: Item) -> list[str]:
    """The keys that an entry names; none, with a warning, if it is damaged, so that the other entries can be read."""
    with suppress(SerializationError):
        keys = decode(item.data)
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys
    refuse_undamaged(item.data, "an entry of a log of changes")
    _log.warning("an entry of a log of changes is damaged, and is left out")
    return []


def stale(items: Iterable[Item], live: AbstractSet[str]) -> list[Item]:
    """The entries whose keys are all deleted, or named by an earlier entry."""
    found, named = [], set[str]()
    for item in items:
        names = set(_named(item))
        if not (names & live) - named:
            found.append(item)
        named |= names
    return found


def tidy(store: Store, namespace: Namespace, *, new_id: Callable[[], str], ttl: float | None) -> None:
    """Remove superfluous entries, once the log has twice as many entries as there were records, and some more.

    The newest quarter stays, so that an index that is a little behind continues from its position. ``ttl`` is as in
    :meth:`Store.write`.
    """
    page = store.scan(namespace, limit=0, keys=[TIDIED])
    if page.total <= 2 * _read(page.values).records + _SLACK:
        return
    try:
        before = _stamped(store, namespace, page.values, new_id=new_id, ttl=ttl)
        items = [item for page in pages(store, namespace) for item in page]
        named = keys_of(items)
        live = set(named) - _gone(store, namespace, named)
        remove = stale(items[: len(items) - len(items) // 4], live)
        for n in range(0, max(len(remove), 1), _PART):
            part = remove[n : n + _PART]
            seq = part[-1].seq if part else _read(before).seq
            after = {TIDIED: mark(seq, len(live), new_id())}
            store.write(namespace, put=after, remove=part, guard=before, ttl=ttl)
            before = after
    except Conflict:
        return  # another process is tidying it, or has cleared it


def _stamped(
    store: Store, namespace: Namespace, values: Mapping[str, bytes], *, new_id: Callable[[], str], ttl: float | None
) -> Mapping[str, bytes]:
    """A value of this log that another log of the same namespace, begun after a clear, will never have."""
    if TIDIED in values:
        return values
    stamped = {TIDIED: mark(0, 0, new_id())}
    store.write(namespace, put=stamped, guard={TIDIED: None}, ttl=ttl)
    return stamped


def _gone(store: Store, namespace: Namespace, named: Sequence[str]) -> set[str]:
    """The keys without a record, including those that only their deletion still names."""
    gone = set(named)
    for n in range(0, len(named), PAGE):
        gone -= store.get(namespace, named[n : n + PAGE]).keys()
    return gone


def _read(values: Mapping[str, bytes]) -> _Tidied:
    if TIDIED not in values:
        return _Tidied()
    with suppress(SerializationError, TypeError):
        found = _Tidied(*decode(values[TIDIED]))
        if [type(each) for each in found] == [int, int, str]:
            return found
    _log.warning("the mark of how far a log of changes was tidied is damaged: its indexes may be rebuilt")
    return _Tidied()
