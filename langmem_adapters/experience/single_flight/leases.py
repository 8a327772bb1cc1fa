"""Single flight across processes, by leases: one says in the store that it calls, and for how long to believe it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from langmem_adapters.codec import decode, encode, is_number
from langmem_adapters.concurrency import pauses
from langmem_adapters.errors import Conflict, SerializationError
from langmem_adapters.flow import Flow, Step, has_loop, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store

__all__ = ["Lease", "Leases", "waiting"]

_FIRST, _LONGEST = 0.01, 0.25  # seconds between two looks
_ODD = 3600.0  # seconds; a lease that ends later than so long after one of ours would is none


class Lease(NamedTuple):
    """What the holder wrote."""

    key: str
    data: bytes


class Leases:
    """Leases of a pool's keys, beside the pool. One that nobody gives back ends after ``seconds``.

    Args:
        store, namespace: Where they are, also those that last longer; it expires when nobody has taken one for long.
        seconds: How long a lease lasts.
        clock: Gives Unix seconds; the clocks of several machines should agree.
        sleep: Waits for seconds; async callers wait on their event loop unless it is another than the default.
        new_id: Gives ids.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        *,
        seconds: float,
        clock: Callable[[], float],
        sleep: Callable[[float], object] = pauses.sleep,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._seconds = seconds
        self._ttl = seconds + _ODD  # of all of them together, and so not only of those that last as long as these
        self._clock = clock
        self._sleep = sleep
        self._new_id = new_id
        self.holder: bytes | None = None  # what the one wrote who had a lease when it was last tried

    def take(self, key: str, claim: Callable[[Lease | None], object] = bool) -> Flow[Lease | None]:
        """Take the lease of a key; None, while another has it.

        ``claim`` is given it before it is written, as an interrupt may keep the answer from the caller; and None, where
        another has it.
        """
        now = self._clock()
        lease = Lease(key, encode({"by": self._new_id(), "until": now + self._seconds}))
        claim(lease)
        known: bytes | None = None
        for _ in range(2):
            try:
                put, guard = {key: lease.data}, {key: known}
                yield from step(self._store.write, self._namespace, put=put, guard=guard, ttl=self._ttl)
            except Conflict:  # noqa: PERF203 - each try may fail
                known = (yield from step(self._store.get, self._namespace, [key])).get(key)
                now = self._clock()  # the write may have waited
                if known is not None and now < _until(known) < now + self._seconds + _ODD:
                    break
            else:
                self.holder = lease.data
                return lease
        self.holder = known
        claim(None)
        return None

    def give_back(self, lease: Lease) -> Flow[None]:
        """End a lease before its time, unless it is another's by now."""
        try:
            guard: dict[str, bytes | None] = {lease.key: lease.data}
            yield from step(self._store.write, self._namespace, delete=[lease.key], guard=guard, ttl=self._ttl)
        except Conflict:
            return

    def pause(self, number: int) -> Flow[bool]:
        """Wait between the looks ``number`` and ``number + 1``; False, where nobody may wait."""
        seconds = min(_FIRST * 2 ** min(number, 8), _LONGEST)
        later = partial(asyncio.sleep, seconds) if self._sleep is pauses.sleep else None
        return (yield from waiting(partial(self._sleep, seconds), later))


def waiting(block: Callable[[], object], later: Callable[[], Awaitable[object]] | None) -> Flow[bool]:
    """Wait by blocking, or on the event loop.

    False, where nobody may block: an event loop runs on this thread, which may have to make what is waited for.
    """

    def blocked() -> bool:
        may_block = not has_loop()
        if may_block:
            block()
        return may_block

    async def awaited(later: Callable[[], Awaitable[object]]) -> bool:
        await later()
        return True

    waited: bool = yield Step(blocked, later and partial(awaited, later))
    return waited


def _until(data: bytes) -> float:
    """When a lease ends; long ago, where that cannot be read."""
    try:
        until = decode(data)["until"]
    except (SerializationError, TypeError, KeyError):
        return 0.0
    return float(until) if is_number(until) else 0.0
