"""Single flight across processes, by leases: the leader notes in the store that it calls, and until when that holds."""

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

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.01, 0.25  # between two tries
_ABANDONED_KEY = "\0abandoned"  # of a value beside the leases, with a lease in each line
_MAX_ABANDONED = 32  # the latest, as their followers look within a moment
_MAX_EXCESS_SECONDS = 3600.0  # a lease that ends more than this after one of ours would is invalid


class Lease(NamedTuple):
    """A lease of a key, and the bytes that its holder wrote."""

    key: str
    data: bytes


class Leases:
    """Leases of a pool's keys, kept beside the pool. A lease that is not given back ends after ``seconds``.

    The namespace expires when no lease has been taken for long. ``clock`` returns Unix seconds; the clocks of several
    machines should agree. With the default ``sleep``, async callers wait on their event loop instead.
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
        # of the whole namespace, in which other processes' leases may last longer
        self._ttl = seconds + _MAX_EXCESS_SECONDS
        self._clock = clock
        self._sleep = sleep
        self._new_id = new_id
        self.holder: bytes | None = None  # the lease found or written by the latest take

    def take(self, key: str, claim: Callable[[Lease | None], object] = bool) -> Flow[Lease | None]:
        """Take the lease of a key; None, while another holds it.

        ``claim`` gets the lease before it is written, as an interrupt may keep the return value from the caller; then
        None, if another holds it.
        """
        now = self._clock()
        lease = Lease(key, encode({"by": self._new_id(), "until": now + self._seconds}))
        claim(lease)
        existing: bytes | None = None
        for _ in range(2):
            try:
                put, guard = {key: lease.data}, {key: existing}
                yield from step(self._store.write, self._namespace, put=put, guard=guard, ttl=self._ttl)
            except Conflict:  # noqa: PERF203 - each try may fail
                existing = (yield from step(self._store.get, self._namespace, [key])).get(key)
                now = self._clock()  # the write may have waited
                if existing is not None and now < _lease_end(existing) < now + self._seconds + _MAX_EXCESS_SECONDS:
                    break
            else:
                self.holder = lease.data
                return lease
        self.holder = existing
        claim(None)
        return None

    def give_back(self, lease: Lease, *, is_abandoned: bool = False) -> Flow[None]:
        """End a lease early, unless another holds the key by now; note whether its call :meth:`was_abandoned`."""
        guard: dict[str, bytes | None] = {lease.key: lease.data}
        put = {}
        if is_abandoned:
            latest = (yield from self._abandoned())[1 - _MAX_ABANDONED :]
            put[_ABANDONED_KEY] = b"\n".join([*latest, lease.data])
        try:
            yield from step(self._store.write, self._namespace, put=put, delete=[lease.key], guard=guard, ttl=self._ttl)
        except Conflict:
            return

    def was_abandoned(self, holder: bytes | None) -> Flow[bool]:
        """Whether the call under this lease was cancelled or interrupted, so that the next one may well succeed."""
        return holder in (yield from self._abandoned())

    def _abandoned(self) -> Flow[list[bytes]]:
        values = yield from step(self._store.get, self._namespace, [_ABANDONED_KEY])
        return values.get(_ABANDONED_KEY, b"").split(b"\n")

    def pause(self, retry: int) -> Flow[bool]:
        """Wait between the tries ``retry`` and ``retry + 1``; False, if this caller may not block."""
        seconds = min(_FIRST_PAUSE_SECONDS * 2 ** min(retry, 8), _MAX_PAUSE_SECONDS)
        async_pause = partial(asyncio.sleep, seconds) if self._sleep is pauses.sleep else None
        return (yield from block_or_await(partial(self._sleep, seconds), async_pause))


def block_or_await(block: Callable[[], object], wait_async: Callable[[], Awaitable[object]] | None) -> Flow[bool]:
    """Wait by blocking, or on the event loop.

    False, if this caller may not block: an event loop runs on its thread, which may have to produce the result.
    """

    def wait_blocking() -> bool:
        may_block = not has_loop()
        if may_block:
            block()
        return may_block

    async def await_it(wait_async: Callable[[], Awaitable[object]]) -> bool:
        await wait_async()
        return True

    acall = None if wait_async is None else partial(await_it, wait_async)
    has_waited: bool = yield Step(wait_blocking, acall)
    return has_waited


def _lease_end(data: bytes) -> float:
    """When a lease ends, in Unix seconds; 0, if it cannot be read."""
    try:
        until = decode(data)["until"]
    except (SerializationError, TypeError, KeyError):
        return 0.0
    return float(until) if is_number(until) else 0.0
