"""The log of a namespace in Redis: a stream, and beside it a set of the ids that are in the stream.

Both change in one transaction, so their sizes differ only when something is wrong: an id was appended again (its writer
sees that in the reply, and removes its own entry), a writer died before it could do so, or the server evicted one of
the two keys. A reader that finds a difference waits, and repairs what has been wrong for a while. Recent entries are
left to their writers: if the first entry of an id has left the log, a repetition that is about to be removed may stand
before an entry that is new by then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from langmem_adapters.errors import Conflict, StoreError
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Item
from langmem_adapters.stores.redis_keys import NamespaceKeys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

__all__ = ["PAUSES", "appending", "item", "last", "reading", "removing", "repair", "settle", "without_repeats"]

_BITS = 21  # the bits of a sequence number that count the entries of one millisecond
_PAGE = 10_000  # entries that a repair reads at once
_RESTARTS = 8
PAUSES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Seconds between a reader's attempts: the time that writers have to remove their repetitions."""
_Entry: TypeAlias = "tuple[bytes, list[bytes]]"  # stream id and fields


def reading(place: NamespaceKeys, after: int, before: int | None, limit: int | None, *, reverse: bool) -> bytes:
    """Read entries with ``after < seq < before``; both bounds must leave room for one."""
    low = b"(" + _stream_id(after) if after > 0 else b"-"
    high = b"(" + _stream_id(before) if before is not None else b"+"
    count = () if limit is None else ("COUNT", limit)
    if reverse:
        return pack("XREVRANGE", place.log, high, low, *count)
    return pack("XRANGE", place.log, low, high, *count)


def item(stream_id: bytes, fields: list[bytes]) -> Item:
    """Parse one entry of the reply to :func:`reading`."""
    return Item(_seq(stream_id), to_text(fields[1]), fields[3])


def appending(place: NamespaceKeys, entries: Mapping[str, bytes]) -> list[bytes]:
    """Append entries, known or not: :func:`settle` checks the replies. Without any, create an empty log."""
    if not entries:
        create = pack("XGROUP", "CREATE", place.log, "touch", "$", "MKSTREAM")
        return [create, pack("XGROUP", "DESTROY", place.log, "touch"), place.sizes[1]]
    if len(entries) == 1:  # SADD itself tells whether the id was known
        ((id_, data),) = entries.items()
        id_bytes = to_bytes(id_)
        size = len(id_bytes)
        return [place.add_id % (size, id_bytes), place.add_entry % (size, id_bytes, len(data), data), place.sizes[1]]
    ids = [to_bytes(id_) for id_ in entries]
    added = [
        place.add_entry % (len(id_), id_, len(data), data) for id_, data in zip(ids, entries.values(), strict=True)
    ]
    return [pack("SMISMEMBER", place.ids, *ids), pack("SADD", place.ids, *ids), *added, place.sizes[1]]


def removing(place: NamespaceKeys, items: Sequence[Item]) -> list[bytes]:
    """Remove entries, with their ids."""
    return [
        pack("XDEL", place.log, *(_stream_id(item.seq) for item in items)),
        pack("SREM", place.ids, *(to_bytes(item.id) for item in items)),
    ]


def settle(
    wire: Wire, place: NamespaceKeys, entries: Mapping[str, bytes], replies: list[Any]
) -> Flow[tuple[dict[str, bool], int]]:
    """From the replies to :func:`appending`: which ids are new, and how long the log is.

    Entries whose id was there before are removed again.
    """
    total = replies[-1]
    if not entries:
        return {}, total
    known = replies[0] if len(entries) > 1 else [not replies[0]]
    if not any(known):
        return dict.fromkeys(entries, True), total
    own = list(zip(entries, replies[-1 - len(entries) : -1], known, strict=True))
    left = yield from step(_take_back, wire, place, [stream_id for _, stream_id, old in own if old])
    if left is not None:
        return {id_: not old for id_, _, old in own}, left
    kept = yield from step(repair, wire, place)
    return {id_: not old or kept.get(to_bytes(id_)) == stream_id for id_, stream_id, old in own}, len(kept)


def _take_back(wire: Wire, place: NamespaceKeys, repeated: list[bytes]) -> int | None:
    """Remove entries that were just written again; returns the log's length.

    None if the set knows ids of entries that the log has lost: then one of these may be the only copy.
    """
    removal = pack("XDEL", place.log, *repeated)

    def decide(replies: list[Any]) -> list[bytes] | None:
        total, ids, *found = replies
        return None if total - ids < sum(map(bool, found)) else [removal, place.sizes[1]]

    own = [pack("XRANGE", place.log, stream_id, stream_id) for stream_id in repeated]
    try:
        replies = wire.optimistic(place.log, [*place.sizes, *own], decide)
    except StoreError:
        # Others were faster each time, the server is full, or the answer was lost. These entries are superfluous
        # whatever others do, so they can be removed without a transaction, and more than once.
        replies = wire.send((place.log, removal), (place.ids, place.sizes[1]))
    return None if replies is None else int(replies[1])


def last(wire: Wire, place: NamespaceKeys) -> int:
    """The newest entry's sequence number."""
    (newest,) = wire.send((place.log, pack("XREVRANGE", place.log, b"+", b"-", "COUNT", 1)))
    return _seq(newest[0][0]) if newest else 0


def repair(wire: Wire, place: NamespaceKeys, until: float = math.inf) -> dict[bytes, bytes]:
    """Leave each id once, where it came first, and make the set agree; leave entries after ``until`` as they are.

    Returns stream ids by id. The log is read page by page, unwatched; then only its growth since, watched, so that
    other writers need not stop. If they leave no gap for the change itself, the result is valid all the same, and the
    next reader that finds the difference tries again.
    """
    with suppress(Conflict):
        for _ in range(_RESTARTS):
            occurrences = _IdOccurrences(place, until)
            while occurrences.count_page(wire.send((place.log, occurrences.rest(_PAGE)))[0]):
                pass
            (members,) = wire.send((place.ids, pack("SMEMBERS", place.ids)))
            reads = [occurrences.rest(None), pack("XLEN", place.log), pack("PTTL", place.log)]
            if wire.optimistic(place.log, reads, partial(occurrences.cure, members)) is not None:
                break
    return occurrences.first


def without_repeats(entries: Sequence[_Entry], after: int) -> list[_Entry]:
    """From entries that begin with the log's first: those ``after`` a sequence number that do not repeat an id."""
    first: dict[bytes, _Entry] = {}
    for entry in entries:
        first.setdefault(entry[1][1], entry)
    return [entry for entry in first.values() if _seq(entry[0]) > after]


class _IdOccurrences:
    """The first occurrence of each id in a log, and the entries that repeat one."""

    def __init__(self, place: NamespaceKeys, until: float) -> None:
        self.first: dict[bytes, bytes] = {}
        self._repeats: list[bytes] = []  # entries that may be removed
        self._place = place
        self._until = until
        self._last = 0
        self._seen = 0

    def rest(self, limit: int | None) -> bytes:
        count = () if limit is None else ("COUNT", limit)
        return pack("XRANGE", self._place.log, b"(" + _stream_id(self._last), b"+", *count)

    def count_page(self, page: list[_Entry]) -> bool:
        for stream_id, fields in page:
            seq = _seq(stream_id)
            if seq <= self._last:
                continue  # read already, before the watch failed
            self._last = seq
            self._seen += 1
            if self.first.setdefault(fields[1], stream_id) != stream_id and seq <= self._until:
                self._repeats.append(stream_id)
        return bool(page)

    def cure(self, members: Sequence[bytes], replies: list[Any]) -> list[bytes] | None:
        growth, total, left = replies
        self.count_page(growth)
        if total != self._seen:
            return None  # some were removed meanwhile, and it is unknown which
        log, ids = self._place.log, self._place.ids
        known = set(members)
        missing = [id_ for id_, first in self.first.items() if id_ not in known and _seq(first) <= self._until]
        lost = [id_ for id_ in known if id_ not in self.first]
        commands = [pack("XDEL", log, *self._repeats)] if self._repeats else []
        commands += [pack("SADD", ids, *missing)] if missing else []
        commands += [pack("SREM", ids, *lost)] if lost else []
        return [*commands, pack("PEXPIRE", ids, left) if left > 0 else pack("PERSIST", ids)]


def _stream_id(seq: int) -> bytes:
    return b"%d-%d" % (seq >> _BITS, seq & ((1 << _BITS) - 1))


def _seq(stream_id: bytes) -> int:
    milliseconds, _, number = stream_id.partition(b"-")
    return int(milliseconds) << _BITS | int(number)
