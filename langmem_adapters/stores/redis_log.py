"""The log of a namespace in Redis: a stream, and beside it a set of the ids that are in the stream.

Both change in one transaction, so their sizes differ only when something is wrong: an id was appended again (its writer
sees that in the reply, and removes its own entry), a writer died before it could do so, or the server evicted one of
the two keys. A reader that finds a difference waits, and repairs what has been wrong for a while. Recent entries are
left to their writers: if the first entry of an id has left the log, a repetition that is about to be removed may stand
before an entry that is new by then.
"""

from __future__ import annotations

import math
import time
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

_COUNTER_BITS = 21  # the bits of a sequence number that count the entries of one millisecond
_PAGE_SIZE = 10_000  # entries that a repair reads at once
_MAX_RESTARTS = 8
PAUSES = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Seconds between a reader's attempts: the time that writers have to remove their repetitions."""
_TICK_SECONDS = 0.001  # of the server's clock, from which stream ids are made
_Entry: TypeAlias = "tuple[bytes, list[bytes]]"  # stream id and fields


def read_command(
    redis_keys: NamespaceKeys, after: int, before: int | None, limit: int | None, *, reverse: bool
) -> bytes:
    """Read entries with ``after < seq < before``, which is above 0: the server reads nothing before an id of 0."""
    low = b"(" + _to_stream_id(after) if after > 0 else b"-"
    high = b"(" + _to_stream_id(before) if before is not None else b"+"
    count = () if limit is None else ("COUNT", limit)
    if reverse:
        return pack("XREVRANGE", redis_keys.log, high, low, *count)
    return pack("XRANGE", redis_keys.log, low, high, *count)


def to_item(stream_id: bytes, fields: list[bytes]) -> Item:
    """Parse one entry of the reply to :func:`read_command`; one that is not ours has no data, as if damaged."""
    return Item(_to_seq(stream_id), to_text(fields[1]), b"".join(fields[3:4]))


def append_commands(redis_keys: NamespaceKeys, entries: Mapping[str, bytes]) -> list[bytes]:
    """Append entries, new or not: :func:`settle_append` checks the replies. Without any, create an empty log."""
    if not entries:
        create = pack("XGROUP", "CREATE", redis_keys.log, "touch", "$", "MKSTREAM")
        return [create, pack("XGROUP", "DESTROY", redis_keys.log, "touch"), redis_keys.count_ids]
    if len(entries) == 1:  # SADD itself tells whether the id was known
        ((id_, data),) = entries.items()
        id_bytes = to_bytes(id_)
        size = len(id_bytes)
        add_entry = redis_keys.add_entry % (size, id_bytes, len(data), data)
        return [redis_keys.add_id % (size, id_bytes), add_entry, redis_keys.count_ids]
    ids = [to_bytes(id_) for id_ in entries]
    commands = [pack("SMISMEMBER", redis_keys.ids, *ids), pack("SADD", redis_keys.ids, *ids)]
    for id_bytes, data in zip(ids, entries.values(), strict=True):
        commands.append(redis_keys.add_entry % (len(id_bytes), id_bytes, len(data), data))
    return [*commands, redis_keys.count_ids]


def remove_commands(redis_keys: NamespaceKeys, items: Sequence[Item]) -> list[bytes]:
    """Remove entries, with their ids."""
    return [
        pack("XDEL", redis_keys.log, *(_to_stream_id(item.seq) for item in items)),
        pack("SREM", redis_keys.ids, *(to_bytes(item.id) for item in items)),
    ]


def settle_append(
    wire: Wire, redis_keys: NamespaceKeys, entries: Mapping[str, bytes], replies: list[Any]
) -> Flow[tuple[dict[str, bool], int]]:
    """From the replies to :func:`append_commands`: which ids are new, and how long the log is.

    Entries whose id was there before are removed again.
    """
    total = replies[-1]
    if not entries:
        return {}, total
    existed = replies[0] if len(entries) > 1 else [not replies[0]]
    if not any(existed):
        return dict.fromkeys(entries, True), total
    appended = list(zip(entries, replies[-1 - len(entries) : -1], existed, strict=True))
    repeats = [stream_id for _, stream_id, is_repeat in appended if is_repeat]
    length = yield from step(_remove_repeats, wire, redis_keys, repeats)
    if length is not None:
        return {id_: not is_repeat for id_, _, is_repeat in appended}, length
    stream_ids = yield from step(repair, wire, redis_keys)
    new = {id_: not is_repeat or stream_ids.get(to_bytes(id_)) == stream_id for id_, stream_id, is_repeat in appended}
    return new, len(stream_ids)


def _remove_repeats(wire: Wire, redis_keys: NamespaceKeys, stream_ids: list[bytes]) -> int | None:
    """Remove entries that were just written again; returns the log's length.

    None if the set knows ids of entries that the log has lost: then one of these may be the only copy.
    """
    removal = pack("XDEL", redis_keys.log, *stream_ids)

    def decide(replies: list[Any]) -> list[bytes] | None:
        total, id_count, *copies = replies
        return None if total - id_count < sum(map(bool, copies)) else [removal, redis_keys.count_ids]

    reads = [redis_keys.count_entries, redis_keys.count_ids]
    reads += [pack("XRANGE", redis_keys.log, stream_id, stream_id) for stream_id in stream_ids]
    try:
        replies = wire.transact_watched(redis_keys.log, reads, decide)
    except StoreError:
        # Others were faster each time, the server is full, or the answer was lost. These entries are superfluous
        # whatever others do, so they can be removed without a transaction, and more than once.
        replies = wire.send((redis_keys.log, removal), (redis_keys.ids, redis_keys.count_ids))
    return None if replies is None else int(replies[1])


def last_seq(wire: Wire, redis_keys: NamespaceKeys) -> int:
    """The newest entry's sequence number."""
    (newest,) = wire.send((redis_keys.log, read_command(redis_keys, 0, None, 1, reverse=True)))
    return _to_seq(newest[0][0]) if newest else 0


def repair(wire: Wire, redis_keys: NamespaceKeys, until: float = math.inf) -> dict[bytes, bytes]:
    """Leave each id once, where it came first, and make the set agree; leave entries after ``until`` as they are.

    Returns stream ids by id. The log is read page by page, unwatched; then only its growth since, watched, so that
    other writers need not stop. If they leave no gap for the change itself, the result is valid all the same, and the
    next reader that finds the difference tries again.
    """
    with suppress(Conflict):
        for _ in range(_MAX_RESTARTS):
            occurrences = _IdOccurrences(redis_keys, until)
            while page := wire.send((redis_keys.log, occurrences.remaining_command(_PAGE_SIZE)))[0]:
                occurrences.count_page(page)
            (members,) = wire.send((redis_keys.ids, pack("SMEMBERS", redis_keys.ids)))
            reads = [occurrences.remaining_command(None), pack("XLEN", redis_keys.log), pack("PTTL", redis_keys.log)]
            if wire.transact_watched(redis_keys.log, reads, partial(occurrences.repair_commands, members)) is not None:
                break
    return occurrences.stream_ids


def drop_repeats(entries: Sequence[_Entry], after: int) -> list[_Entry]:
    """From entries that begin with the log's first: those ``after`` a sequence number that do not repeat an id."""
    first: dict[bytes, _Entry] = {}
    for entry in entries:
        first.setdefault(entry[1][1], entry)
    return [entry for entry in first.values() if _to_seq(entry[0]) > after]


class RemovedLogs:
    """The logs that this process has just removed.

    A stream that is made again counts from 0 within its millisecond: an entry would get the number of a removed one of
    the same millisecond, and whoever still holds that one would take it for the same. Removals by other processes are
    not known here.
    """

    def __init__(self) -> None:
        self._removed_at: dict[bytes, float] = {}  # by key, of the last millisecond or so

    def add(self, log: bytes) -> None:
        now = time.perf_counter()
        for key, removed_at in list(self._removed_at.items()):
            if now - removed_at > _TICK_SECONDS:
                self._removed_at.pop(key, None)
        self._removed_at[log] = now

    def seconds_left(self, log: bytes) -> float:
        """Until the server counts from another millisecond; 0 or less if it does."""
        removed_at = self._removed_at.get(log)
        return 0.0 if removed_at is None else removed_at + _TICK_SECONDS - time.perf_counter()


class _IdOccurrences:
    """The first occurrence of each id in a log, and the entries that repeat one."""

    def __init__(self, redis_keys: NamespaceKeys, until: float) -> None:
        self.stream_ids: dict[bytes, bytes] = {}
        self._repeats: list[bytes] = []  # entries that may be removed
        self._redis_keys = redis_keys
        self._until = until
        self._last_seq = 0
        self._entry_count = 0

    def remaining_command(self, limit: int | None) -> bytes:
        """Read the entries after those that were counted."""
        return read_command(self._redis_keys, self._last_seq, None, limit, reverse=False)

    def count_page(self, page: list[_Entry]) -> None:
        for stream_id, fields in page:
            seq = _to_seq(stream_id)
            if seq <= self._last_seq:
                continue  # read already, before the watch failed
            self._last_seq = seq
            self._entry_count += 1
            if self.stream_ids.setdefault(fields[1], stream_id) != stream_id and seq <= self._until:
                self._repeats.append(stream_id)

    def repair_commands(self, members: Sequence[bytes], replies: list[Any]) -> list[bytes] | None:
        """Remove the repeats, and make the set agree; None if it is unknown what is in the log by now."""
        growth, total, ttl_ms = replies
        self.count_page(growth)
        if total != self._entry_count:
            return None  # some were removed meanwhile, and it is unknown which
        log, ids = self._redis_keys.log, self._redis_keys.ids
        known_ids = set(members)
        unknown_ids = [id_ for id_ in self.stream_ids if id_ not in known_ids]
        missing_ids = [id_ for id_ in unknown_ids if _to_seq(self.stream_ids[id_]) <= self._until]
        lost_ids = [id_ for id_ in known_ids if id_ not in self.stream_ids]
        commands: list[bytes] = []
        if self._repeats:
            commands.append(pack("XDEL", log, *self._repeats))
        if missing_ids:
            commands.append(pack("SADD", ids, *missing_ids))
        if lost_ids:
            commands.append(pack("SREM", ids, *lost_ids))
        commands.append(pack("PEXPIRE", ids, ttl_ms) if ttl_ms > 0 else pack("PERSIST", ids))
        return commands


def _to_stream_id(seq: int) -> bytes:
    return b"%d-%d" % (seq >> _COUNTER_BITS, seq & ((1 << _COUNTER_BITS) - 1))


def _to_seq(stream_id: bytes) -> int:
    milliseconds, _, number = stream_id.partition(b"-")
    return int(milliseconds) << _COUNTER_BITS | int(number)
