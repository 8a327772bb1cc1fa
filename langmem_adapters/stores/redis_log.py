"""The log of a namespace in Redis: a stream, and beside it the set of the ids that are in the stream.

Both change in one transaction, so their sizes differ only when something is wrong: an id was appended again
(the writer sees it in the answer, and takes its own entry back), a writer died before it could do so, or the server
evicted one of the two keys. Whoever meets a difference repairs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langmem_adapters.errors import Conflict, StoreError
from langmem_adapters.flow import Flow, step
from langmem_adapters.keys import to_bytes, to_text
from langmem_adapters.protocols import Item
from langmem_adapters.stores.redis_errors import is_full
from langmem_adapters.stores.redis_keys import Place
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

__all__ = ["appending", "item", "reading", "removing", "repair", "settle"]

_BITS = 21  # of a sequence number that count the entries of one millisecond
_PAGE = 10_000  # entries that a repair reads at once
_RESTARTS = 64


def reading(place: Place, after: int, before: int | None, limit: int | None, *, reverse: bool) -> bytes:
    """Read entries with ``after < seq < before``; both bounds must leave room for one."""
    low = b"(" + _stream_id(after) if after > 0 else b"-"
    high = b"(" + _stream_id(before) if before is not None else b"+"
    count = () if limit is None else ("COUNT", limit)
    if reverse:
        return pack("XREVRANGE", place.log, high, low, *count)
    return pack("XRANGE", place.log, low, high, *count)


def item(stream_id: bytes, fields: list[bytes]) -> Item:
    """Read one entry of the reply to :func:`reading`."""
    milliseconds, _, number = stream_id.partition(b"-")
    seq = int(milliseconds) << _BITS | int(number)
    return Item(seq, to_text(fields[1]), fields[3])


def appending(place: Place, entries: Mapping[str, bytes]) -> list[bytes]:
    """Append entries, known or not: :func:`settle` looks at the replies. Without any, make an empty log."""
    if not entries:
        create = pack("XGROUP", "CREATE", place.log, "touch", "$", "MKSTREAM")
        return [create, pack("XGROUP", "DESTROY", place.log, "touch"), place.sizes[0]]
    if len(entries) == 1:  # SADD says itself whether it was known
        ((id_, data),) = entries.items()
        id_bytes = to_bytes(id_)
        size = len(id_bytes)
        return [place.add_id % (size, id_bytes), place.add_entry % (size, id_bytes, len(data), data), place.sizes[0]]
    ids = [to_bytes(id_) for id_ in entries]
    added = [
        place.add_entry % (len(id_), id_, len(data), data) for id_, data in zip(ids, entries.values(), strict=True)
    ]
    return [pack("SMISMEMBER", place.ids, *ids), pack("SADD", place.ids, *ids), *added, place.sizes[0]]


def removing(place: Place, items: Sequence[Item]) -> list[bytes]:
    """Remove entries, with their ids."""
    return [
        pack("XDEL", place.log, *(_stream_id(item.seq) for item in items)),
        pack("SREM", place.ids, *(to_bytes(item.id) for item in items)),
    ]


def settle(
    wire: Wire, place: Place, entries: Mapping[str, bytes], replies: list[Any]
) -> Flow[tuple[dict[str, bool], int]]:
    """From the replies to :func:`appending`: which ids are new, and how long the log is.

    Entries whose id was there before are taken back.
    """
    total = replies[-1]
    if not entries:
        return {}, total
    known = replies[0] if len(entries) > 1 else [not replies[0]]
    if not any(known):
        return dict.fromkeys(entries, True), total
    written = replies[-1 - len(entries) : -1]
    repeated = [stream_id for stream_id, old in zip(written, known, strict=True) if old]
    try:
        left = yield from step(_take_back, wire, place, repeated)
    except Conflict:  # too busy a log; whoever reads it next leaves each id once
        left = total - len(repeated)
    if left is not None:
        return {id_: not old for id_, old in zip(entries, known, strict=True)}, left
    kept = yield from step(repair, wire, place)
    return {id_: kept.get(to_bytes(id_)) == own for id_, own in zip(entries, written, strict=True)}, len(kept)


def _take_back(wire: Wire, place: Place, repeated: list[bytes]) -> int | None:
    """Remove the entries that were just written again, if they are all that is wrong; give the log's length.

    If they are not (None), the set of ids may know of entries that the log has lost: then one of these is the
    only copy, and the whole log must be looked at.
    """

    def decide(replies: list[Any]) -> list[bytes] | None:
        total, ids, *found = replies
        if total - ids != len(repeated) or not all(found):
            return None
        return [pack("XDEL", place.log, *repeated), *place.sizes]

    own = [pack("XRANGE", place.log, stream_id, stream_id) for stream_id in repeated]
    try:
        replies = wire.optimistic(place.log, [*place.sizes, *own], decide)
    except StoreError as error:
        if not is_full(error):
            raise
        # Our own entries are superfluous whatever others do meanwhile, so they need no transaction to be removed.
        replies = wire.send((place.log, pack("XDEL", place.log, *repeated)), (place.log, place.sizes[0]))
    return None if replies is None else int(replies[1])


def repair(wire: Wire, place: Place) -> dict[bytes, bytes]:
    """Leave each id once, where it came first, and make the set agree. Gives id -> stream id.

    The log is read page by page, unwatched; then only its growth since, watched: other writers need not stop. Where
    they leave no gap for the change itself, what is given holds all the same, and the next who meets the
    difference tries again.
    """
    for _ in range(_RESTARTS):
        census = _Census(place)
        while census.count_page(wire.send((place.log, census.rest(_PAGE)))[0]):
            pass
        (members,) = wire.send((place.ids, pack("SMEMBERS", place.ids)))
        reads = [census.rest(None), pack("XLEN", place.log), pack("PTTL", place.log)]
        try:
            cured = wire.optimistic(place.log, reads, lambda replies: census.cure(replies, members))  # noqa: B023 - called at once
        except Conflict:
            return census.first
        if cured is not None:
            return census.first
    raise Conflict("entries are removed from a log faster than it can be repaired; try again")


class _Census:
    """What the entries of a log say about its ids."""

    def __init__(self, place: Place) -> None:
        self.first: dict[bytes, bytes] = {}
        self._place = place
        self._repeats: list[bytes] = []
        self._last = (0, 0)
        self._seen = 0

    def rest(self, limit: int | None) -> bytes:
        count = () if limit is None else ("COUNT", limit)
        return pack("XRANGE", self._place.log, b"(%d-%d" % self._last, b"+", *count)

    def count_page(self, page: list[tuple[bytes, list[bytes]]]) -> bool:
        for stream_id, fields in page:
            place = _parts(stream_id)
            if place <= self._last:
                continue  # read once already, before the watch failed
            self._last = place
            self._seen += 1
            if fields[1] in self.first:
                self._repeats.append(stream_id)
            else:
                self.first[fields[1]] = stream_id
        return bool(page)

    def cure(self, replies: list[Any], members: Sequence[bytes]) -> list[bytes] | None:
        growth, total, left = replies
        self.count_page(growth)
        if total != self._seen:
            return None  # some were removed meanwhile, and nobody knows which
        log, ids = self._place.log, self._place.ids
        known = set(members)
        missing = [id_ for id_ in self.first if id_ not in known]
        lost = [id_ for id_ in known if id_ not in self.first]
        commands = [pack("XDEL", log, *self._repeats)] if self._repeats else []
        commands += [pack("SADD", ids, *missing)] if missing else []
        commands += [pack("SREM", ids, *lost)] if lost else []
        return [*commands, pack("PEXPIRE", ids, left) if left > 0 else pack("PERSIST", ids)]


def _stream_id(seq: int) -> bytes:
    return b"%d-%d" % (seq >> _BITS, seq & ((1 << _BITS) - 1))


def _parts(stream_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = stream_id.partition(b"-")
    return int(milliseconds), int(number)
