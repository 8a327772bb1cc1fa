"""Single flight in one process: of concurrent calls with one key, the leader's is made, and its followers wait."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial

from langmem_adapters.concurrency.forks import reset_in_child
from langmem_adapters.concurrency.outcomes import Outcome
from langmem_adapters.errors import LangmemError
from langmem_adapters.experience.shelf.invalidation import StartMark
from langmem_adapters.experience.single_flight.leases import Lease, block_or_await
from langmem_adapters.flow import Flow

_POLL_SECONDS = 0.25  # between two looks at a call; in this time, a stream's reader must begin to read it
_EXIT_RELEASE_SECONDS = 2.0  # after these, a process that exits no longer gives leases back
_MAX_READ_GAP_SECONDS = 3.0  # that a reader may take between two pieces of a stream
_cut_off_times: list[float] = []  # when calls were cut off by the exit of the process
_led_calls: ContextVar[tuple[_LedCall, ...]] = ContextVar("langmem_leading", default=())


class Flight:
    """One call, the lease under which it is made, and the result for its followers: bytes, or None and the reason."""

    def __init__(self, flights: Flights, key: str, start_mark: StartMark | None) -> None:
        self._flights = flights
        self.key = key
        self.start_mark = start_mark
        self.outcome = Outcome[bytes | None]()
        self.is_abandoned: bool = False
        self.lease: Lease | None = None
        self._process_id = os.getpid()
        self.reader: threading.Thread | None = None  # the thread on which it is read as a stream
        self.read_deadline: float = math.inf  # when a reader with a piece of the stream should have asked for the next

    def land(self, data: bytes | None) -> None:
        """Give followers the result; None, if there is none to share: then each makes a call of its own at once."""
        self._flights.remove(self)
        self.outcome.settle(data)

    def abandon(self) -> None:
        """Abandon the call, so that one of the followers makes it. Does nothing after the call has landed."""
        if not self.outcome.is_settled:
            self.is_abandoned = True
            self.land(None)

    def end_with(
        self, call: object, *, on_abandoned: Callable[[Flight], object], give_back: Callable[[Flight], object]
    ) -> None:
        """Call ``on_abandoned`` once the call is garbage; if the process exits first, call :meth:`cut_off`.

        A task may be cancelled at the moment in which it gets its call; then no code holds the call to end it.
        """
        self._give_back = give_back
        call_reference = weakref.ref(call)
        weakref.finalize(call, lambda: on_abandoned(self) if call_reference() is None else self.cut_off())

    def cut_off(self) -> None:
        """Give the lease back as the process exits, or leave it to expire."""
        _cut_off_times.append(time.monotonic())
        if _cut_off_times[-1] - _cut_off_times[0] >= _EXIT_RELEASE_SECONDS:
            self.lease = None  # the store may be locked, and there may be hundreds of calls
        with contextlib.suppress(LangmemError):
            self._give_back(self)

    def hand_out(self, *, is_started: bool = True) -> None:
        """Note that the reader has the stream, or a piece, and may never ask for more, as its client may have left."""
        self.read_deadline = time.monotonic() + (_MAX_READ_GAP_SECONDS if is_started else _POLL_SECONDS)

    def read_on(self) -> None:
        """Note that the reader waits for the next piece, which may take any time."""
        self.read_deadline = math.inf

    @property
    def has_no_outcome(self) -> bool:
        """Whether the call came to no end: it was abandoned, or the process exits in its midst."""
        return self.is_abandoned or not self.outcome.is_settled

    @property
    def is_forked_copy(self) -> bool:
        """Whether this process is a forked child, and the call is its parent's."""
        return os.getpid() != self._process_id

    @property
    def has_lost_reader(self) -> bool:
        """Whether this is a stream whose reading thread has ended, or that nobody has read on for too long."""
        is_dead = self.reader is not None and self.reader not in threading.enumerate()
        return is_dead or time.monotonic() >= self.read_deadline

    def wait(self, seconds: float) -> Flow[bool]:
        """Wait until the call has landed, for so many seconds at most; False, if it is still in the air.

        It returns at once if this caller may not block, and soon if the call is a stream that nobody reads on: its
        reader may be the caller that waits here, or a server whose client has left.
        """
        waited = True
        while waited and seconds > 0 and not self.outcome.is_settled and not self.has_lost_reader:
            pause = min(seconds, _POLL_SECONDS)
            waited = yield from block_or_await(partial(self.outcome.wait, pause), partial(self.outcome.await_, pause))
            seconds -= pause
        return self.outcome.is_settled


class _LedCall:
    """A call that is made in this context, or was: tasks that it began may go on after it."""

    def __init__(self, flights: Flights, flight: Flight) -> None:
        self.flight_key = flights, flight.key
        self.lease = flight.lease
        self.is_over = False


class Flights:
    """The calls of one function that are under way, by key. Safe to share between threads, and across ``fork``."""

    def __init__(self) -> None:
        reset_in_child(self)

    def reset_state(self) -> None:
        """Forget all calls: after a fork, their leaders are in the parent."""
        self._lock = threading.RLock()  # garbage collection within it may end an abandoned call, which takes the lock
        self._flights: dict[str, Flight] = {}

    def join(
        self, key: str, claim: Callable[[Flight | None], object] = bool, start_mark: StartMark | None = None
    ) -> tuple[Flight | None, bool]:
        """The call for this key, and whether the caller is to make it; (None, False), inside of that very call.

        A call whose result was removed or refreshed since its ``start_mark`` is not joined. ``claim`` gets the caller's
        new call before others can wait for it, as an interrupt may keep the return value from the caller; then None,
        if the call is another's.
        """
        if any(led.flight_key == (self, key) and not led.is_over for led in _led_calls.get()):
            return None, False
        with self._lock:
            new_flight = Flight(self, key, start_mark)
            claim(new_flight)
            flight = self._flights.get(key)
            if flight is None or (flight.start_mark is not None and flight.start_mark.is_outdated):
                flight = self._flights[key] = new_flight  # only a new one: garbage collection may have removed the old
        if flight is not new_flight:
            claim(None)
        return flight, flight is new_flight

    def get(self, key: str) -> Flight | None:
        """The call for this key that is under way; None, if there is none."""
        return self._flights.get(key)

    def renew(self, flight: Flight) -> Flight:
        """Release the followers of this call, and replace it by a new one, for which later callers wait."""
        new_flight = Flight(self, flight.key, flight.start_mark)
        new_flight.lease, flight.lease = flight.lease, None
        with self._lock:
            if self._flights.get(flight.key) is flight:
                self._flights[flight.key] = new_flight
        flight.land(None)
        return new_flight

    def remove(self, flight: Flight) -> None:
        """Remove a call, so that the next caller makes a new one."""
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]

    @contextlib.contextmanager
    def led(self, flight: Flight | None) -> Iterator[None]:
        """Mark that the call is being made, so that a call for the same key from inside it does not wait for it."""
        if flight is None:
            yield
            return
        led_call = _LedCall(self, flight)
        token = _led_calls.set((*(led for led in _led_calls.get() if not led.is_over), led_call))
        try:
            yield
        finally:
            led_call.is_over = True
            with contextlib.suppress(ValueError):  # in another context, as after its event loop has ended
                _led_calls.reset(token)


def is_led_here(holder: bytes | None) -> bool:
    """Whether a lease is held by a call that this one is inside of, as of a function with the same name and tag."""
    return any(led.lease is not None and led.lease.data == holder and not led.is_over for led in _led_calls.get())
