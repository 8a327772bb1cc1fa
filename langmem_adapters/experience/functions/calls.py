"""The steps before and after a call of a function whose results are kept as experiences."""

from __future__ import annotations

import copy
import inspect
import itertools
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from langmem_adapters.concurrency import pauses
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.background_scoring import BackgroundScoring, Unscored
from langmem_adapters.experience.functions.arguments import Arguments
from langmem_adapters.experience.functions.rules import Invocation, Rules, replaced
from langmem_adapters.experience.policies import attempt, decision
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.single_flight.flights import Flight, Flights, is_led_here
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import Flow, run, submit
from langmem_adapters.model import Experience
from langmem_adapters.warn_once import WarnOnce

__all__ = ["Calls"]

_log = logging.getLogger("langmem_adapters")


class Calls:
    """The part of :class:`~langmem_adapters.experience.FunctionCache` that surrounds each call."""

    def __init__(
        self,
        make_pool: Callable[[], ExperiencePool],  # called at the first call
        *,
        rules: Rules,
        arguments: Arguments,
        responses: Responses,
        keep_requests: bool | None = None,
        scoring: BackgroundScoring | None = None,  # shared with others, as are its warnings; None: its own
        counts: Counts | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = pauses.sleep,
        new_id: Callable[[], str],
    ) -> None:
        self._make_pool, self._rules, self._arguments, self._name = make_pool, rules, arguments, arguments.name
        self.responses: Responses = responses
        self._keeps_requests = rules.reads_requests if keep_requests is None else keep_requests
        self._clock, self._timer, self._sleep, self._new_id = clock, timer, sleep, new_id
        self.flights: Flights = Flights()
        self._returned: deque[bytes] = deque(maxlen=256)  # leases of abandoned calls, for which nobody waits
        self._pool: ExperiencePool | None = None
        self._scoring = scoring or BackgroundScoring(rules.scorer, f"a result of {self._name}", WarnOnce())
        self._lock, self._counts = ForkSafeLock(), Counts() if counts is None else counts
        self.warn: WarnOnce = self._scoring.warn
        self._replaced, self._shares = replaced(arguments, rules), rules.wait > 0 and not responses.stream

    @property
    def pool(self) -> ExperiencePool:
        """The pool with the results: to clear and export it, and to see what its hits have saved."""
        if self._pool is None:
            with self._lock.held():
                self._pool = self._pool or self._make_pool()
        return self._pool

    def _identify(self, bound: inspect.BoundArguments, counted: dict[str, Any]) -> str:
        return self._arguments.key(self._serialized(counted), self._arguments.owner_of(bound))

    def _request(self, counted: dict[str, Any]) -> Any:
        return self._arguments.request(self._serialized(counted))

    def _serialized(self, counted: dict[str, Any]) -> dict[str, Any]:
        own = self._rules.serializer
        return counted if own is None else {"req": own.serialize_req(**self._arguments.as_given(counted))}

    # --- before the call

    def begin(self, turn: Invocation) -> Flow[Invocation]:
        """Serve a call, or prepare it to be made. Blocking callers are within :meth:`held`, for interrupts."""
        if not (self.pool.reads or self.pool.writes):
            return turn
        try:
            bound = self._arguments.bind(turn.args, turn.kwargs)
        except TypeError:  # the function itself will raise it; if it returns all the same, the result is refused
            turn.keeps = self.pool.writes
            return turn
        yield from self._find(turn, bound)
        self._counts.add("hits" if turn.served else "misses")
        turn.started = self._timer()
        return turn

    def _find(self, turn: Invocation, bound: inspect.BoundArguments) -> Flow[None]:
        pool = self.pool
        turn.counted = self._arguments.counted(bound)
        turn.key = self._identify(bound, turn.counted)
        if self._rules.reads_requests or self._keeps_requests:
            turn.made_by = self._arguments.made_by(self._arguments.owner_of(bound))
        if self._rules.reads_requests:
            turn.req = self._request(turn.counted)
        if pool.reads and (yield from self._serve(turn)):
            pool.tally(turn.kept)
            return
        pool.tally(None)
        turn.keeps, turn.begun = pool.writes, pool.begun(turn.key)
        with self.held(turn):
            if self._shares and pool.reads and pool.writes:
                yield from self._board(turn)
            if turn.served and turn.kept:
                pool.credit(turn.kept)
            else:
                self.note_request(turn)
                yield from self._add_context(turn, bound)

    def note_request(self, turn: Invocation) -> None:
        """Note the request, if it is to be kept or scored."""
        if turn.req is None and (self._keeps_requests or self._rules.scorer is not None):
            turn.req = self._request(turn.counted)

    def _serve(self, turn: Invocation, *, again: bool = False) -> Flow[bool]:
        """Serve from the pool, if possible; with ``again``, look only for an exact result that has come since."""
        try:
            experience = yield from self.pool.read_flow(turn.key)
            if experience is not None and (yield from self._accepts(turn, experience)):
                yield from self._read(turn, experience, turn.key)
            if not (turn.served or again):
                yield from self._serve_similar(turn, experience)
        except LangmemError as error:
            self._degrade(error)
        return turn.served

    def _accepts(self, turn: Invocation, experience: Experience) -> Flow[bool]:
        """Whether an experience of this very request may be served. Its key proves the request, if that is not kept."""
        if self._rules.judge is None:
            return True
        is_judged, turn.refused = experience.uuid == turn.refused, experience.uuid
        return not is_judged and (yield from self._is_good(turn, experience.model_copy(update={"req": turn.req})))

    def _is_good(self, turn: Invocation, experience: Experience) -> Flow[bool]:
        """Whether the judge, if there is one, accepts an experience; a judge that fails counts as a no, and raises."""
        if self._rules.judge is None:
            return True
        good = True
        try:
            good = bool((yield from attempt("the judge", self._rules.judge, experience, turn.req)))
        except LangmemError:
            good = False
            raise
        finally:
            self._counts.add("rejected", not good)
            self._counts.add("rejected_judge", not good)
        return good

    def _serve_similar(self, turn: Invocation, own: Experience | None) -> Flow[None]:
        """If there is no experience of this very request, serve a similar one that the judge accepts."""
        if own is not None or self._rules.query_type != "semantic":
            return
        for experience, _ in (yield from self.pool.similar_flow(turn.req, self._rules.k, turn.may_have)):
            if (yield from self._is_good(turn, experience)):
                yield from self._read(turn, self.responses.formed(experience))
                return

    def _read(self, turn: Invocation, experience: Experience, key: str | None = None) -> Flow[None]:
        """Serve an experience; an unreadable one is removed, if its ``key`` is given."""
        try:
            turn.value = self.responses.of(experience)
        except SerializationError as damage:
            _log.warning("a result of %s is treated as a miss: %s", self._name, damage)
            if key is not None:
                yield from self.pool.heal_flow(key)
            return
        turn.served, turn.kept = True, experience

    def _add_context(self, turn: Invocation, bound: inspect.BoundArguments) -> Flow[None]:
        builder, name = self._rules.context_builder, self._replaced
        if builder is None:
            return
        try:
            similar = yield from self.pool.similar_flow(turn.req, self._rules.k, turn.may_have)
            if similar:
                found, given = [each.experience for each in similar], bound.arguments[name]
                if isinstance(given, list | dict):
                    given = decision("a copy of the request", lambda: copy.deepcopy(bound.arguments[name]))
                bound.arguments[name] = yield from attempt("the context builder", builder, given, found)
                turn.args, turn.kwargs = bound.args, bound.kwargs
        except LangmemError as error:
            self._degrade(error)

    # --- concurrent calls

    def _board(self, turn: Invocation) -> Flow[None]:
        """Wait for the same call of another caller, in this process or another; or become the leader that makes it."""
        until = self._timer() + self._rules.wait
        while turn.flight is None:
            flight, own = self.flights.join(turn.key, partial(setattr, turn, "flight"), turn.begun)
            if own and flight is not None:
                self._lead(turn, flight)
            elif flight is None or not (yield from flight.wait(max(until - self._timer(), 0.0))):
                if flight is None or not flight.is_left:
                    return  # this is inside that very call, or that call takes too long
                self._abandon(flight)  # the thread that read its stream has ended
            elif (data := flight.landed.result()) is not None:
                yield from self._read(turn, Experience.from_bytes(data))
                self._counts.add("shared", turn.served)
                return
            elif not flight.broken_off or self._timer() >= until:
                return  # it failed: the next leader may fail too, after one more wait
        try:
            yield from self._lease(turn, turn.flight, until)
        except LangmemError as error:
            turn.flight.lease = None  # giving it back would wait for the same store again
            self._degrade(error)
        if turn.served:
            self.let_go(turn)

    def _lead(self, turn: Invocation, flight: Flight) -> None:
        turn.flight = flight
        flight.end_with(turn, left=self._abandon, give_back=lambda own: run(self._give_back(own)))

    def _lease(self, turn: Invocation, flight: Flight, until: float) -> Flow[None]:
        """Wait for another process that makes the same call, if there is one, and serve its result."""
        leases = self._leases()
        awaited: bytes | None = None
        for number in itertools.count():
            yield from leases.take(turn.key, partial(setattr, flight, "lease"))
            if (yield from self._serve(turn, again=True)) or self._timer() >= until:
                return
            if awaited not in {None, leases.holder}:  # that call left no result, after all followers here waited for it
                self._lead(turn, self.flights.renew(flight))
                return
            if flight.lease is not None or is_led_here(leases.holder) or not (yield from leases.pause(number)):
                return
            awaited = None if leases.holder in self._returned else leases.holder

    def _leases(self) -> Leases:
        place = (*experience_namespace(self.pool.scope, self.pool.tag), "leases")
        return Leases(
            self.pool.store, place, seconds=self._rules.wait, clock=self._clock, sleep=self._sleep, new_id=self._new_id
        )

    # --- after the call

    def finish(self, turn: Invocation, value: Any, *, whole: bool = True) -> Flow[None]:
        """Keep what the function returned, if it is ``whole``, and pass it to the followers."""
        with self.held(turn):
            if turn.keeps:
                yield from self._keep(turn, value, whole)
            if turn.flight is not None:
                turn.flight.land(turn.kept.to_bytes() if turn.kept else None)
                yield from self._give_back(turn.flight)
            elif turn.kept and not turn.is_outdated and (slower := self.flights.of(turn.key)) is not None:
                slower.land(turn.kept.to_bytes())  # its followers need not wait any longer

    def _keep(self, turn: Invocation, value: Any, whole: bool) -> Flow[None]:
        try:
            if not (whole and (yield from self._put(turn, value))):
                yield from self.pool.supersede_flow(turn.key)
        except LangmemError as error:
            self._degrade(error)

    def _put(self, turn: Invocation, value: Any) -> Flow[bool]:
        try:
            seen = self.responses.seen(value)
            if decision("should_store", lambda: self._rules.should_store(seen)):
                cost, took = self._rules.metric, max(self._timer() - turn.started, 0.0)
                metric = cost and decision("metric", lambda: cost(seen).model_copy(update={"time_cost": took}))
                req = turn.req if self._keeps_requests else None
                turn.kept = turn.signed(self.responses.experience(value, req=req, metric=metric))
                if not turn.is_outdated:
                    turn.kept, turn.stored = (yield from self._create(turn, value, turn.kept)), True
                    self._counts.add("stored")
                    if turn.is_outdated:  # meanwhile
                        yield from self.pool.discard_flow(turn.key, turn.kept)
                return True
            self._counts.add("refused")
        except SerializationError as error:
            self.refuse(error)
        return False

    def refuse(self, error: SerializationError) -> None:
        """Count a result that cannot be kept, and log a warning."""
        self._counts.add("refused")
        self.warn(f"a result of {self._name} is not kept: {error}")

    def _degrade(self, error: LangmemError, count: str = "errors") -> None:
        if self._rules.on_error == "raise" or isinstance(error, ConfigurationError):
            raise error
        self._counts.add(count)
        self.warn(f"{self._name} goes on without its cache", error)

    def _create(self, turn: Invocation, value: Any, made: Experience) -> Flow[Experience]:  # noqa: ARG002 - for others
        """Put an experience into the pool. Subclasses also store here what belongs to the value."""
        return (yield from self.pool.create_flow(made, key=turn.key))

    def _give_back(self, flight: Flight) -> Flow[None]:
        lease, flight.lease = flight.lease, None  # taken first, as a cancelled caller may do the same at this moment
        if lease is not None and not flight.is_copy:
            try:
                yield from self._leases().give_back(lease)
            except LangmemError as error:
                self._degrade(error)

    def led(self, turn: Invocation) -> AbstractContextManager[None]:
        """Mark that the call is being made, so that the same call from inside it does not wait for it."""
        return self.flights.led(turn.flight)

    @contextmanager
    def held(self, turn: Invocation) -> Iterator[None]:
        """Hold a call while it is made, or its stream is read; if that fails or stops, let others try."""
        try:
            yield
        except BaseException:
            self.let_go(turn)
            raise

    def let_go(self, turn: Invocation) -> None:
        """Give up a call that failed, was interrupted, or need not be made. Does not wait for the store.

        After a failure (an Exception is being handled), all followers make calls of their own.
        """
        if turn.flight is not None:
            if turn.kept or isinstance(sys.exc_info()[1], Exception):
                turn.flight.land(turn.kept.to_bytes() if turn.kept else None)
            self._abandon(turn.flight)

    def _abandon(self, flight: Flight) -> None:
        if flight.lease is not None:
            self._returned.append(flight.lease.data)  # before another caller takes over and still finds the lease
        flight.break_off()
        if flight.lease is not None:
            try:
                submit(lambda: run(self._give_back(flight)), lane="leases")
            except RuntimeError:  # the interpreter is shutting down
                flight.cut_off()

    def score_later(self, turn: Invocation, *, on_loop: bool = False) -> None:
        """Score a stored result in the background; with ``on_loop``, on this event loop if the scorer needs one."""
        if turn.kept is not None and turn.stored and not turn.is_outdated:
            begin = self._scoring.abegin if on_loop else self._scoring.begin
            begin(Unscored(self.pool, turn.key, turn.kept, turn.req, self.responses.shown))
