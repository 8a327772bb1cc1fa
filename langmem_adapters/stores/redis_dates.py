"""The times of a namespace in Redis, and its removal by age."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langmem_adapters.errors import Conflict, StoreError
from langmem_adapters.inspection import Dates
from langmem_adapters.stores.redis_errors import is_full
from langmem_adapters.stores.redis_keys import FOR_EVER, GONE, NamespaceKeys
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

__all__ = ["dates", "discard", "remove"]


def dates(wire: Wire, place: NamespaceKeys) -> Dates | None:
    """The last write, from the directory, and the seconds that the longest-lived of the keys has left."""
    lives = wire.send(*((key, pack("PTTL", key)) for key in place[:3]))
    if max(lives) == GONE:
        return None
    return Dates(_listed(wire, place), None if FOR_EVER in lives else max(*lives, 1) / 1000)


def discard(wire: Wire, place: NamespaceKeys, before: float) -> bool:
    """Remove the keys and the row, if the row is older; a concurrent writer touches a watched key.

    In a cluster the row lies on another node and is written a moment after the keys: what is written to a namespace of
    that age at that very moment may be lost there. The same goes for a full server, which takes no transactions: the
    commands that free its memory are sent without one.
    """
    removal, unlisting = _removing(place)
    here = wire.one_slot and bool(place.directory)  # for the row, so that reading it needs no second connection

    def is_old(row: float | None) -> bool:
        return row is not None and row < before

    def decide(replies: Sequence[Any]) -> list[bytes] | None:
        if not is_old(_score(replies[-1]) if here else _listed(wire, place)):
            return None
        return [removal, unlisting] if wire.one_slot else [removal]

    try:
        if wire.optimistic(place.log, [pack("WATCH", place.values), *([_row(place)] if here else [])], decide) is None:
            return False
    except Conflict:  # others write to it all the time
        return False
    except StoreError as error:
        if not is_full(error):
            raise
        if not is_old(_listed(wire, place)):
            return False
        remove(wire, place)
        return True
    if not wire.one_slot:
        wire.send((place.directory, unlisting))
    return True


def remove(wire: Wire, place: NamespaceKeys) -> None:
    """Remove the keys and the row, by commands that a full server takes, since it takes no such transaction.

    On one server the row goes first: an entry written in between is removed too, and is never there unlisted. In a
    cluster the row's node may be out of reach: it goes last, since a row without keys does no harm.
    """
    removal, unlisting = _removing(place)
    if not place.directory:
        wire.send((place.log, removal))
    elif wire.one_slot:
        wire.send((place.directory, unlisting), (place.log, removal))
    else:
        wire.send((place.log, removal), (place.directory, unlisting))


def _removing(place: NamespaceKeys) -> tuple[bytes, bytes]:
    return pack("UNLINK", *place[:3]), pack("ZREM", place.directory, place.row)


def _listed(wire: Wire, place: NamespaceKeys) -> float | None:
    if not place.directory:
        return None
    return _score(wire.send((place.directory, _row(place)))[0])


def _row(place: NamespaceKeys) -> bytes:
    return pack("ZMSCORE", place.directory, place.row)


def _score(reply: list[Any]) -> float | None:
    return None if reply[0] is None else float(reply[0])
