"""The times of a namespace in Redis, and its removal by age."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from langmem_adapters.errors import Conflict
from langmem_adapters.inspection import Dates
from langmem_adapters.stores.redis_keys import Place
from langmem_adapters.stores.redis_packing import pack
from langmem_adapters.stores.redis_wire import Wire

__all__ = ["dates", "discard", "removing"]

_FOR_EVER, _GONE = -1, -2  # as PTTL says it


def dates(wire: Wire, place: Place) -> Dates | None:
    """The last write, as the directory has it, and what the longest-lived of the keys has left."""
    lives = wire.send(*((key, pack("PTTL", key)) for key in place[:3]))
    if max(lives) == _GONE:
        return None
    return Dates(_listed(wire, place) or 0.0, None if _FOR_EVER in lives else max(*lives, 1) / 1000)


def discard(wire: Wire, place: Place, before: float) -> bool:
    """Remove the keys and the row, if the row is older; whoever writes meanwhile touches a watched key.

    In a cluster the row lies elsewhere and is written a moment after the keys; there, what is written to a namespace
    of that age in the very moment may be lost.
    """
    removal, unlisting = removing(place)

    def decide(_: Sequence[Any]) -> list[bytes] | None:
        at = _listed(wire, place)
        if at is None or at >= before:
            return None
        return [removal, unlisting] if wire.one_slot else [removal]

    with suppress(Conflict):  # somebody writes to it all the time
        if wire.optimistic(place.log, [pack("WATCH", place.values)], decide) is not None:
            if not wire.one_slot:
                wire.send((place.directory, unlisting))
            return True
    return False


def removing(place: Place) -> tuple[bytes, bytes]:
    """Remove a namespace's keys, and its row from the directory."""
    return pack("UNLINK", *place[:3]), pack("ZREM", place.directory, place.row)


def _listed(wire: Wire, place: Place) -> float | None:
    if not place.directory:
        return None
    ((score,),) = wire.send((place.directory, pack("ZMSCORE", place.directory, place.row)))
    return None if score is None else float(score)
