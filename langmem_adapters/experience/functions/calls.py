"""The steps before and after a call of a function whose results are kept as experiences."""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from langmem_adapters.concurrency import pauses
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.background_scoring import BackgroundScoring, PendingScore
from langmem_adapters.experience.functions.arguments import Arguments
from langmem_adapters.experience.functions.rules import Held, Invocation, Rules, request_argument
from langmem_adapters.experience.policies import build_context, judge_accepts
from langmem_adapters.experience.pool import ExperiencePool, experience_namespace
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.single_flight.flights import Flight, Flights, is_led_here
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import Flow, arun, run, submit
from langmem_adapters.model import Experience
from langmem_adapters.sharing import Shared
from langmem_adapters.validation import call_user_code
from langmem_adapters.warn_once import warn_of_outage

_log = logging.getLogger("langmem_adapters")


class Calls(Shared):
    """What is done before and after each call of a function."""

    def __init__(
        self,
        make_pool: Callable[[], ExperiencePool],  # called at the first call
        *,
        rules: Rules,
        arguments: Arguments,
        responses: Responses,
        keep_requests: bool | None = None,
        scoring: BackgroundScoring,  # may be shared with others, as are its warnings
        counts: Counts | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = pauses.sleep,
        new_id: Callable[[], str],
    ) -> None:
        self._make_pool, self._rules = make_pool, rules
        self.arguments: Arguments = arguments
        self.responses: Responses = responses
        self._reads_requests = rules.judge is not None or rules.context_builder is not None
        self._stores_requests = self._reads_requests if keep_requests is None else keep_requests
        self._clock, self._timer, self._sleep, self._new_id = clock, timer, sleep, new_id
        self.flights: Flights = Flights()
        self._abandoned_leases: deque[bytes] = deque(maxlen=256)  # leases of abandoned calls, for which nobody waits
        self._pool: ExperiencePool | None = None
        self.scoring: BackgroundScoring = scoring
        self.counts: Counts = Counts() if counts is None else counts
        self._lock, self._request_argument = ForkSafeLock(), request_argument(arguments, rules)
        self._is_single_flight = rules.wait > 0 and not responses.stream

    @property
    def pool(self) -> ExperiencePool:
        """The pool with the results: to clear and export it, and to see what its hits have saved."""
        if self._pool is None:
            with self._lock.held():
                self._pool = self._pool or self._make_pool()
        return self._pool

    def _request(self, arguments: dict[str, Any]) -> Any:
        return self.arguments.request(arguments)

    # --- before the call

    def begin(self, call: Invocation) -> Flow[Invocation]:
        """Serve a call, or prepare it to be made. Blocking callers are within :meth:`held`, for interrupts."""
        reads = (pool := self.pool).reads
        if self._rules.is_judging or not (reads or pool.writes):
            return call
        try:
            bound = self.arguments.bind(call.args, call.kwargs)
        except TypeError:  # the function itself will raise it; if it returns all the same, the result is refused
            call.keeps = pool.writes
            return call
        try:
            yield from self._look_up(pool, call, bound, reads=reads)
        except LangmemError as error:  # of a serializer or a key=, so that the call has no key
            self._degrade(error)
        self.counts.add("hits" if call.served else "misses")
        call.started = self._timer()
        return call

    def _look_up(
        self, pool: ExperiencePool, call: Invocation, bound: inspect.BoundArguments, *, reads: bool
    ) -> Flow[None]:
        call.key_arguments = self.arguments.key_arguments(bound)
        owner = self.arguments.owner_name(bound)
        call.key = self.arguments.key(call.key_arguments, owner)
        if self._reads_requests or self._stores_requests:
            call.made_by = self.arguments.function_fingerprint(owner)
        if self._reads_requests:
            call.req = self._request(call.key_arguments)
        if reads and (yield from self._serve(call)):
            pool.tally(call.experience)
            return
        pool.tally(None)
        call.keeps, call.start_mark = pool.writes, pool.start_mark(call.key)
        with self.held(call):
            if self._is_single_flight and reads and pool.writes:
                yield from self._join_flight(call)
            if call.served and call.experience:
                pool.credit(call.experience)
            else:
                self.note_request(call)
                yield from self._add_context(call, bound)

    def note_request(self, call: Invocation) -> None:
        """Note the request, if it is to be kept or scored."""
        if call.req is None and (self._stores_requests or self._rules.scorer is not None):
            call.req = self._request(call.key_arguments)

    def _serve(self, call: Invocation, *, exact_only: bool = False) -> Flow[bool]:
        """Serve from the pool, if possible; with ``exact_only``, look only for an exact result that has come since."""
        try:
            experience = yield from self.pool.read_flow(call.key)
            if experience is not None and (self._rules.judge is None or (yield from self._accepts(call, experience))):
                yield from self._serve_experience(call, experience, call.key)
            if not (call.served or exact_only):
                yield from self._serve_similar(call, experience)
        except LangmemError as error:
            self._degrade(error)
        return call.served

    def _accepts(self, call: Invocation, experience: Experience) -> Flow[bool]:
        """Whether the judge accepts an experience of this very request: its key proves that, if it is not kept."""
        is_judged, call.refused = experience.uuid == call.refused, experience.uuid
        return not is_judged and (yield from self._judge_accepts(call, experience.model_copy(update={"req": call.req})))

    def _judge_accepts(self, call: Invocation, experience: Experience) -> Flow[bool]:
        """Whether the judge, if there is one, accepts an experience; a judge that fails counts as a no, and raises."""
        if self._rules.judge is None:
            return True
        is_accepted = True
        try:
            is_accepted = yield from judge_accepts(self._rules.judge, experience, call.req)
        except LangmemError:
            is_accepted = False
            raise
        finally:
            self.counts.add("rejected", not is_accepted)
            self.counts.add("rejected_judge", not is_accepted)
        return is_accepted

    def _serve_similar(self, call: Invocation, exact: Experience | None) -> Flow[None]:
        """If there is no experience of this very request, serve a similar one that the judge accepts."""
        if exact is not None or self._rules.query_type != "semantic":
            return
        for experience, _ in (yield from self.pool.similar_flow(call.req, self._rules.k, call.is_from_same_function)):
            if (yield from self._judge_accepts(call, experience)):
                yield from self._serve_experience(call, self.responses.with_form(experience))
                return

    def _serve_experience(self, call: Invocation, experience: Experience, key: str | None = None) -> Flow[None]:
        """Serve an experience; an unreadable one is removed, if its ``key`` is given."""
        try:
            call.value = self.responses.from_experience(experience)
        except SerializationError as error:
            _log.warning("a result of %s is treated as a miss: %s", self.arguments.name, error)
            if key is not None:
                yield from self.pool.heal_flow(key)
            return
        call.served, call.experience = True, experience

    def _add_context(self, call: Invocation, bound: inspect.BoundArguments) -> Flow[None]:
        builder, name = self._rules.context_builder, self._request_argument
        if builder is None:
            return
        try:
            similar = yield from self.pool.similar_flow(call.req, self._rules.k, call.is_from_same_function)
            if similar:
                bound.arguments[name] = yield from build_context(builder, bound.arguments[name], similar)
                call.args, call.kwargs = bound.args, bound.kwargs
        except LangmemError as error:
            self._degrade(error)

    # --- concurrent calls

    def _join_flight(self, call: Invocation) -> Flow[None]:
        """Wait for the same call of another caller, in this process or another; or become the leader that makes it."""
        deadline = self._timer() + self._rules.wait
        while call.flight is None:
            flight, is_leader = self.flights.join(call.key, partial(setattr, call, "flight"), call.start_mark)
            if flight is None:
                return  # this is inside that very call
            if is_leader:
                self._lead(call, flight)
            elif not (yield from flight.wait(max(deadline - self._timer(), 0.0))):
                if not flight.has_lost_reader:
                    return  # that call takes too long
                self._abandon(flight)  # one of those who wait makes it
            elif (data := flight.outcome.result) is not None:
                yield from self._serve_experience(call, Experience.from_bytes(data))
                self.counts.add("shared", call.served)
                return
            elif not flight.is_abandoned or self._timer() >= deadline:
                return  # it failed: the next leader may fail too, after one more wait
        try:
            yield from self._acquire_lease(call, call.flight, deadline)
        except LangmemError as error:
            call.flight.lease = None  # giving it back would wait for the same store again
            self._degrade(error)
        if call.served:
            self.let_go(call)

    def _lead(self, call: Invocation, flight: Flight) -> None:
        call.flight = flight
        flight.end_with(call, on_abandoned=self._abandon, give_back=lambda ended: run(self._give_back(ended)))

    def _acquire_lease(self, call: Invocation, flight: Flight, deadline: float) -> Flow[None]:
        """Wait for another process that makes the same call, if there is one, and serve its result."""
        leases = self._leases()
        awaited_lease: bytes | None = None
        for retry in itertools.count():
            yield from leases.take(call.key, partial(setattr, flight, "lease"))
            if (yield from self._serve(call, exact_only=True)) or self._timer() >= deadline:
                return
            if awaited_lease not in {None, leases.holder} and not (yield from leases.was_abandoned(awaited_lease)):
                self._lead(call, self.flights.renew(flight))  # that call failed: all followers here waited
                return
            if flight.lease is not None or is_led_here(leases.holder) or not (yield from leases.pause(retry)):
                return
            awaited_lease = None if leases.holder in self._abandoned_leases else leases.holder

    def _leases(self) -> Leases:
        namespace = (*experience_namespace(self.pool.scope, self.pool.tag), "leases")
        wait, clock, sleep = self._rules.wait, self._clock, self._sleep
        return Leases(self.pool.store, namespace, seconds=wait, clock=clock, sleep=sleep, new_id=self._new_id)

    # --- after the call

    def finish(self, call: Invocation, value: Any, *, whole: bool = True) -> Flow[None]:
        """Keep what the function returned, if it is ``whole``, and pass it to the followers."""
        with self.held(call):
            if call.keeps:
                try:
                    if not (whole and (yield from self._put(call, value))):
                        yield from self.pool.supersede_flow(call.key, call.start_mark)
                except LangmemError as error:
                    self._degrade(error)
            if call.flight is not None:
                call.flight.land(call.shared)
                yield from self._give_back(call.flight)
            elif not call.is_outdated and (slower := self.flights.get(call.key)) and (data := call.shared):
                slower.land(data)  # its followers need not wait any longer

    async def afinish(self, call: Invocation, value: Any, *, whole: bool = True) -> None:
        """:meth:`finish` for an async function, whose task may be cancelled before :meth:`finish` begins."""
        with self.held(call):
            await arun(self.finish(call, value, whole=whole))

    def _put(self, call: Invocation, value: Any) -> Flow[bool]:
        try:
            result = self.responses.as_returned(value)
            if not self._is_kept(call, result):
                self.counts.add("refused")
                return False
            seconds = max(self._timer() - call.started, 0.0)
            metric = call_user_code("metric", lambda: self._rules.measure(result, seconds))
            req = call.req if self._stores_requests else None
            call.experience = call.with_made_by(self.responses.experience(value, req=req, metric=metric))
            if not call.is_outdated:
                call.experience = yield from self._create(call, value, call.experience)
                call.stored = True
                self.counts.add("stored")
                if call.is_outdated:  # meanwhile
                    yield from self.pool.discard_flow(call.key, call.experience)
        except SerializationError as error:
            self.refuse(error)
            return False
        return not call.is_outdated

    def _is_kept(self, call: Invocation, result: Any) -> bool:  # noqa: ARG002 - for others
        """Whether a result is worth keeping."""
        return call_user_code("should_store", lambda: self._rules.is_kept(result))

    def refuse(self, error: SerializationError) -> None:
        """Count a result that cannot be kept, and log a warning."""
        self.counts.add("refused")
        self.scoring.warn(f"a result of {self.arguments.name} is not kept: {error}")

    def _degrade(self, error: LangmemError, count: str = "errors") -> None:
        if self._rules.on_error == "raise" or isinstance(error, ConfigurationError):
            raise error
        self.counts.add(count)
        warn_of_outage(f"{self.arguments.name} goes on without its cache", error)

    def _create(self, call: Invocation, value: Any, experience: Experience) -> Flow[Experience]:  # noqa: ARG002 - for others
        """Put an experience into the pool. Subclasses also store here what belongs to the value."""
        return self.pool.create_flow(experience, key=call.key)

    def _give_back(self, flight: Flight) -> Flow[None]:
        lease, flight.lease = flight.lease, None  # taken first, as a cancelled caller may do the same at this moment
        try:
            if lease is not None and not flight.is_forked_copy:
                yield from self._leases().give_back(lease, is_abandoned=flight.has_no_outcome)
        except LangmemError as error:
            self._degrade(error)
        except BaseException:  # an interrupt: who lets the call go gives it back
            flight.lease = lease
            raise

    def led(self, call: Invocation) -> AbstractContextManager[None]:
        """Mark that the call is being made, so that the same call from inside it does not wait for it."""
        return self.flights.led(call.flight)

    def held(self, call: Invocation) -> AbstractContextManager[None]:
        """Hold a call while it is made, or its stream is read; if that fails or stops, let others try."""
        return Held(call, self.let_go)

    def let_go(self, call: Invocation) -> None:
        """Give up a call that failed, was interrupted, or need not be made. Does not wait for the store."""
        if call.flight is not None:
            if call.experience or isinstance(sys.exc_info()[1], Exception):  # followers then make their own calls
                call.flight.land(call.shared)
            self._abandon(call.flight)

    def _abandon(self, flight: Flight) -> None:
        if flight.lease is not None:  # noted before another caller takes over and still finds it
            self._abandoned_leases.append(flight.lease.data)
        flight.abandon()
        if flight.lease is not None:
            try:
                submit(lambda: run(self._give_back(flight)), lane="leases")
            except RecursionError:
                pass  # tried again once the call is garbage, with more room on the stack
            except RuntimeError:  # the interpreter is shutting down
                flight.cut_off()

    def score_later(self, call: Invocation, *, on_loop: bool = False) -> None:
        """Score a stored result in the background; with ``on_loop``, on this event loop if the scorer needs one."""
        if self._rules.scorer is not None and call.experience is not None and call.stored and not call.is_outdated:
            begin = self.scoring.abegin if on_loop else self.scoring.begin
            begin(PendingScore(self.pool, call.key, call.experience, call.req, self.responses.for_scorer))
