"""The times of a namespace in Redis, and its removal by age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.exceptions import AskError

from langmem_adapters.errors import Conflict, StoreError, StoreUnavailable
from langmem_adapters.flow import Flow, Step
from langmem_adapters.inspection import Dates
from langmem_adapters.stores.redis_errors import is_full
from langmem_adapters.stores.redis_keys import NO_EXPIRY, NO_KEY, NamespaceKeys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire


def dates(wire: Wire, redis_keys: NamespaceKeys) -> Flow[Dates | None]:
    """The last write, from the directory, and the seconds that the longest-lived of the keys has left."""
    reads = [(key, pack("PTTL", key)) for key in redis_keys[:3]]
    if redis_keys.directory:
        reads.append((redis_keys.directory, _row_command(redis_keys)))
    replies = yield wire.send_step(*reads)
    ttls = replies[:3]
    if max(ttls) == NO_KEY:
        return None
    remaining = None if NO_EXPIRY in ttls else max(*ttls, 1) / 1000
    return Dates(_first_score(replies[3]) if redis_keys.directory else None, remaining)


def discard(wire: Wire, redis_keys: NamespaceKeys, before: float) -> bool:
    """Remove the keys and the row, if the row is older; a concurrent writer touches a watched key.

    In a cluster the row lies on another node and is written a moment after the keys: what is written to a namespace of
    that age at that very moment may be lost there. The same goes for a full server, which takes no transactions: the
    commands that free its memory are sent without one.
    """
    reads_row = bool(redis_keys.directory) and wire.are_together(redis_keys.log, redis_keys.directory)
    try:
        return _discard(wire, redis_keys, before, reads_row=reads_row)
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, AskError):
            raise
        return _discard(wire, redis_keys, before, reads_row=False)  # the row has moved to another node


def _discard(wire: Wire, redis_keys: NamespaceKeys, before: float, *, reads_row: bool) -> bool:
    """With ``reads_row`` from the node of the keys, by the connection that watches them; else by another one."""
    key_removal, row_removal = _removal_commands(redis_keys)
    row_reads = [_row_command(redis_keys)] if reads_row else []
    reads = [pack("WATCH", redis_keys.values), *row_reads]

    def is_old(last_write: float | None) -> bool:
        return last_write is not None and last_write < before

    def decide(replies: Sequence[Any]) -> list[bytes] | None:
        last_write = _first_score(replies[-1]) if reads_row else _last_write(wire, redis_keys)
        if not is_old(last_write):
            return None
        return [key_removal, row_removal] if wire.one_slot else [key_removal]

    try:
        if wire.transact_watched(redis_keys.log, reads, decide) is None:
            return False
    except Conflict:  # others write to it all the time
        return False
    except StoreError as error:
        if not is_full(error):
            raise
        if not is_old(_last_write(wire, redis_keys)):
            return False
        removal_step(wire, redis_keys).call()
        return True
    if not wire.one_slot:
        wire.send((redis_keys.directory, row_removal))
    return True


def removal_step(wire: Wire, redis_keys: NamespaceKeys) -> Step:
    """Remove the keys and the row, by commands that a full server takes, since it takes no such transaction.

    On one server the row goes first: an entry written in between is removed too, and is never there unlisted. In a
    cluster the row's node may be out of reach: it goes last, since a row without keys does no harm.
    """
    key_removal, row_removal = _removal_commands(redis_keys)
    removals = [(redis_keys.log, key_removal)]
    if redis_keys.directory:
        removals.insert(0 if wire.one_slot else 1, (redis_keys.directory, row_removal))
    return wire.send_step(*removals)


def _removal_commands(redis_keys: NamespaceKeys) -> tuple[bytes, bytes]:
    return pack("UNLINK", *redis_keys[:3]), pack("ZREM", redis_keys.directory, redis_keys.row)


def _last_write(wire: Wire, redis_keys: NamespaceKeys) -> float | None:
    if not redis_keys.directory:
        return None
    return _first_score(wire.send((redis_keys.directory, _row_command(redis_keys)))[0])


def _row_command(redis_keys: NamespaceKeys) -> bytes:
    return pack("ZMSCORE", redis_keys.directory, redis_keys.row)


def _first_score(reply: list[Any]) -> float | None:
    return None if reply[0] is None else float(reply[0])
