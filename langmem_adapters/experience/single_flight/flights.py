"""Single flight in one process: of those that want the same at the same time, one calls, and the others wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError, wait
from contextvars import ContextVar
from functools import partial
from typing import Any

from langmem_adapters.concurrency.forks import anew_in_child
from langmem_adapters.errors import LangmemError
from langmem_adapters.experience.shelf.under_way import Begun
from langmem_adapters.experience.single_flight.leases import Lease, waiting
from langmem_adapters.flow import Flow

__all__ = ["Flight", "Flights"]

_MOMENT = 0.25  # seconds; so long nobody need begin to read a stream for which others wait
_AT_EXIT = 2.0  # seconds; when so many have passed, a process that ends leaves the rest as it is
_PATIENCE = 3.0  # seconds; so long a reader may take between two pieces of it
_ends: list[float] = []  # when calls were cut off by the end of the process
_leading: ContextVar[frozenset[tuple[int, str]]] = ContextVar("langmem_leading", default=frozenset())


class Flight:
    """One call, the lease under which it is made, and what its followers are told: bytes, or why there are none."""

    def __init__(self, flights: Flights, key: str, begun: Begun | None) -> None:
        self._flights = flights
        self.key = key
        self.begun = begun
        self.landed: Future[bytes | None] = Future()
        self.landed.set_running_or_notify_cancel()  # so that a follower that is cancelled does not cancel it
        self.broken_off: bool = False
        self.lease: Lease | None = None
        self._made_in = os.getpid()
        self.reader: threading.Thread | None = None  # the thread on which it is read as a stream
        self.read_on_by: float = math.inf  # when a reader with a piece of the stream should have asked for the next

    def land(self, data: bytes | None) -> None:
        """Tell the result; None, where there is none to share, and each makes a call of their own at once."""
        self._flights.remove(self)
        with contextlib.suppress(InvalidStateError):  # it has landed already
            self.landed.set_result(data)

    def break_off(self) -> None:
        """Say that nobody goes on with the call: one of the followers makes it. Nothing, after it has landed."""
        if not self.landed.done():
            self.broken_off = True
            self.land(None)

    def end_with(
        self, turn: object, *, left: Callable[[Flight], object], give_back: Callable[[Flight], object]
    ) -> None:
        """Have one of these called, when nobody has the turn any more, or when the process ends in the middle of it.

        A task may be cancelled in the very moment in which it gets its turn, and then nobody has it.
        """
        self._give_back = give_back
        its = weakref.ref(turn)
        weakref.finalize(turn, lambda: left(self) if its() is None else self.cut_off())

    def cut_off(self) -> None:
        """Give the lease back as the process ends, or leave it to end by itself."""
        _ends.append(time.monotonic())
        if _ends[-1] - _ends[0] >= _AT_EXIT:  # the store may be locked, and there may be hundreds of calls
            self.lease = None
        with contextlib.suppress(LangmemError):
            self._give_back(self)

    def hand_out(self, *, begun: bool = True) -> None:
        """Note that its reader has the stream, or a piece of it, and may never come back, as a client may have left."""
        self.read_on_by = time.monotonic() + (_PATIENCE if begun else _MOMENT)

    def read_on(self) -> None:
        """Note that its reader waits for the next piece, which may take its time."""
        self.read_on_by = math.inf

    @property
    def is_copy(self) -> bool:
        """Whether this is a forked child, and the call its parent's."""
        return os.getpid() != self._made_in

    @property
    def is_left(self) -> bool:
        """Whether it is a stream, and the thread on which it was read has ended."""
        return self.reader is not None and self.reader not in threading.enumerate()

    def wait(self, seconds: float) -> Flow[bool]:
        """Until it has landed, or for so many seconds; False, if it is still in the air.

        That may be at once, where nobody may wait, and soon, where it is a stream that nobody reads on: its reader may
        be the one who waits here, or a server's whose client has left.
        """
        waited, told = True, list[asyncio.Future[Any]]()
        while waited and seconds > 0 and not self.landed.done() and not self.is_left:
            moment = min(seconds, _MOMENT)
            waited = yield from waiting(partial(self._block, moment), partial(self._await, moment, told))
            waited = waited and time.monotonic() < self.read_on_by
            seconds -= moment
        return self.landed.done()

    def _block(self, seconds: float) -> None:
        wait([self.landed], seconds)

    async def _await(self, seconds: float, told: list[asyncio.Future[Any]]) -> None:
        if not told:
            told.append(asyncio.wrap_future(self.landed))  # once: hundreds may look at it four times a second
        await asyncio.wait(told, timeout=seconds)


class Flights:
    """The calls of one function that are in the air, by key. Safe to share between threads, and across ``fork``."""

    def __init__(self) -> None:
        anew_in_child(self)

    def begin_anew(self) -> None:
        """Have none: those who lead the others are on the other side of a fork."""
        self._lock = threading.RLock()  # garbage may be collected within, and with it a call that nobody has
        self._flights: dict[str, Flight] = {}

    def join(
        self, key: str, claim: Callable[[Flight | None], object] = bool, begun: Begun | None = None
    ) -> tuple[Flight | None, bool]:
        """The call for this key, and whether it is the caller's own to make; none, for one inside of that call.

        Nobody joins one whose result was removed, or asked for anew, since it was ``begun``. ``claim`` is given what
        may be the caller's own before anybody can wait for it, as an interrupt may keep the answer from the caller; and
        None, where it is another's.
        """
        if (id(self), key) in _leading.get():
            return None, False
        with self._lock:
            fresh = Flight(self, key, begun)
            claim(fresh)
            flight = self._flights.get(key, fresh)
            if flight.begun is not None and flight.begun.is_outdated:
                flight = fresh
            self._flights[key] = flight
        if flight is not fresh:
            claim(None)
        return flight, flight is fresh

    def of(self, key: str) -> Flight | None:
        """The call for this key that is in the air."""
        return self._flights.get(key)

    def renew(self, flight: Flight) -> Flight:
        """Let those go who wait for this call: who comes from now on waits for the one that takes its place."""
        fresh = Flight(self, flight.key, flight.begun)
        fresh.lease, flight.lease = flight.lease, None
        with self._lock:
            if self._flights.get(flight.key) is flight:
                self._flights[flight.key] = fresh
        flight.land(None)
        return fresh

    def remove(self, flight: Flight) -> None:
        """Let the next caller make a call of its own."""
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]

    @contextlib.contextmanager
    def led(self, flight: Flight | None) -> Iterator[None]:
        """While the call is made: a call for the same key from inside does not wait for itself."""
        if flight is None:
            yield
            return
        token = _leading.set(_leading.get() | {(id(self), flight.key)})
        try:
            yield
        finally:
            _leading.reset(token)
