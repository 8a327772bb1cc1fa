"""Compaction of a log of changes, and which followers have missed what it dropped.

The log of records names the keys that changed, entry by entry. Of entries that are not new, only the first one of
each record is needed: it says in which order the records were written, and whoever begins anew reads the record
itself. An index that has not read so far would miss what the others told. So a value beside the log says how far it
was tidied: an index that stands before that entry begins anew, unless it has read the log as it was tidied. To tell
these apart, a position before that entry has, behind the entry's id, the number up to which the log was tidied then.
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
"""The value that says how far a log was tidied. No record has a key with a NUL."""

_SLACK = 64  # entries without meaning that are left until there are more of them than records
_PART = 500  # entries removed in one write, which others wait for
_log = logging.getLogger("langmem_adapters")


class _Tidied(NamedTuple):
    seq: int = 0
    records: int = 0
    stamp: str = ""


def tidied(values: Mapping[str, bytes]) -> int:
    """How far a log was tidied, from the values beside it; 0: not at all."""
    return _read(values).seq


def mark(seq: int, records: int, stamp: str) -> bytes:
    """The value of a log that was tidied up to an entry, when there were so many records.

    No other tidying has the ``stamp``, nor one of a log that was here before.
    """
    return encode([*_Tidied(seq, records, stamp)])


def place(item: Item, tidied_to: int) -> Position:
    """Where an index stands after an entry, if it has missed nothing of a log that was tidied so far."""
    return item.seq, item.id if item.seq >= tidied_to else f"{item.id}@{tidied_to}"


def telling(keys: Sequence[str], new_id: Callable[[], str]) -> list[tuple[str, bytes]]:
    """The entries that name keys, each of them no more than an index is told of at once."""
    return [(new_id(), encode([*keys[n : n + PAGE]])) for n in range(0, len(keys), PAGE)]


def few_keys(items: Sequence[Item]) -> int:
    """How many of these entries, one at the least, name no more keys than an index is told of at once, roughly."""
    named = accumulate(item.data.count(b'","') + 1 for item in items)
    return max(sum(1 for _ in takewhile(lambda keys: keys <= PAGE, named)), 1)


def keys_of(items: Iterable[Item]) -> list[str]:
    """The keys that entries name, each once."""
    return list(dict.fromkeys(key for item in items for key in _named(item)))


def _named(item: Item) -> list[str]:
    """The keys that an entry names; none, with a warning, where it is damaged: one must not take the others along."""
    with suppress(SerializationError):
        keys = decode(item.data)
        if isinstance(keys, list) and all(isinstance(key, str) for key in keys):
            return keys
    refuse_undamaged(item.data, "an entry of a log of changes")
    _log.warning("an entry of a log of changes is damaged, and is left out")
    return []


def stale(items: Iterable[Item], live: AbstractSet[str]) -> list[Item]:
    """The entries of which each key is gone, or named by one before it."""
    found, named = [], set[str]()
    for item in items:
        names = set(_named(item))
        if not (names & live) - named:
            found.append(item)
        named |= names
    return found


def tidy(store: Store, namespace: Namespace, *, new_id: Callable[[], str], ttl: float | None) -> None:
    """Remove what the log need not tell, once it has twice as many entries as there were records, and some more.

    The newest quarter stays as it is, so that an index that is a little behind goes on from where it stands. ``ttl``
    as in :meth:`Store.write`.
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
        return  # another process tidies it, or has cleared it


def _stamped(
    store: Store, namespace: Namespace, values: Mapping[str, bytes], *, new_id: Callable[[], str], ttl: float | None
) -> Mapping[str, bytes]:
    """The value of this log, which another one of the same namespace, begun after a clear, will never have."""
    if TIDIED in values:
        return values
    stamped = {TIDIED: mark(0, 0, new_id())}
    store.write(namespace, put=stamped, guard={TIDIED: None}, ttl=ttl)
    return stamped


def _gone(store: Store, namespace: Namespace, named: Sequence[str]) -> set[str]:
    """The keys without a record, also those that only their removal still names."""
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
