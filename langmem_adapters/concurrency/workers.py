"""Who answers what flows ask, so that no event loop waits for it: worker threads of the library's own."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from langmem_adapters.concurrency.forks import in_child

__all__ = ["Answer", "Flow", "Hop", "Line", "Step", "ask", "give_up", "set_off"]

T = TypeVar("T")

_WORKERS = 64  # they wait for disks and sockets, so more than the processors
_AT_WORK = 4  # workers that compute at the same time, which is no faster with more
_TOGETHER = 64  # questions that wait for no more, and that one exchange has at the most
_PATIENCE = 0.005  # seconds after which one more is engaged, if none of them has begun anything else
_log = logging.getLogger("langmem_adapters")

Answer: TypeAlias = "tuple[Any, BaseException | None]"
"""What a question gave, or the error that it raised."""


class Line(Protocol):
    """Somebody who can be asked several things at once, such as a server at the other end of a connection."""

    def ask(self, requests: Sequence[Any]) -> Sequence[Answer | None]:
        """Answer each; None: ask it by itself, as nobody knows the answer."""


class Step(NamedTuple):
    """One question of a flow.

    Args:
        call: Answers it by blocking.
        acall: A coroutine function, where the callee has both.
        line, request: Where it may be asked together with the questions of other flows, and in what words.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]] | None = None
    line: Line | None = None
    request: Any = None


Flow = Generator[Step, Any, T]


def ask(question: Step) -> Answer:
    """Answer a question by blocking."""
    try:
        return question.call(), None
    except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
        return None, error


class Hop:
    """A part of a flow's way: up to its end, or to the next question that wants the loop."""

    def __init__(self, flow: Flow[Any], answer: Answer, context: contextvars.Context, landing: _Landing) -> None:
        self.flow = flow
        self.question: Any = None  # that was asked together with others
        self.answer: Answer | None = answer  # None: to that question there was none
        self.context = context
        self.landing = landing
        self.landed: asyncio.Future[Step | None] = landing.loop.create_future()  # None: at its end
        self.result: Any = None
        self.begun = self.over = self.given_up = False

    def end(self) -> None:
        """Close the flow, as nobody waits for it, and let go of what it gave: its owner may have to know that."""
        try:
            self.flow.close()
        except Exception:  # noqa: BLE001 - nobody waits, so a log is the only place to tell
            _log.exception("a flow that was given up failed as it ended")
        self.result = None  # now, for whoever was cancelled holds the hop by the error, until garbage is collected


class _Landing:
    """Where the hops of a loop land: it is woken once for all that have landed meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._landed: deque[tuple[Hop, Step | None, BaseException | None]] = deque()
        self._called = False
        self._watching = False

    def land(self, hop: Hop, question: Step | None, error: BaseException | None) -> None:
        """Tell the loop where a hop ended; called by workers."""
        self._landed.append((hop, question, error))
        if self._called and not self.loop.is_closed():
            return
        self._called = True
        try:
            self.loop.call_soon_threadsafe(self._tell)
        except RuntimeError:  # the loop was closed, and nobody will ever ask
            while self._landed:
                self._landed.popleft()[0].end()

    def _tell(self) -> None:
        self._called = False  # first, so that whoever is too late for this time calls again
        while self._landed:
            hop, question, error = self._landed.popleft()
            if hop.landed.done():  # cancelled
                continue
            if error is None:
                hop.landed.set_result(question)
            else:
                hop.landed.set_exception(error)

    def watch(self, crew: _Crew) -> None:
        """See to it that workers which are held up, outside of any question, do not hold up the others."""
        if not self._watching:
            self._watching = True
            self.loop.call_later(_PATIENCE, self._look, crew, crew.begun)

    def _look(self, crew: _Crew, begun: int) -> None:
        self._watching = False
        if crew.relieve(begun):
            self.watch(crew)


class _Crew:
    """Those who carry hops. Few of them compute at a time; who waits for a disk or a socket is replaced meanwhile.

    What several flows ask on the same line is asked together, by whoever has nothing else to do.
    """

    def __init__(self) -> None:
        self.begun = 0  # so many hops and exchanges
        self._lock = threading.Lock()
        self._workers: ThreadPoolExecutor | None = None  # once they were needed
        self._at_work = 0
        self._ready: deque[Hop] = deque()
        self._asking: dict[Line, list[Hop]] = {}

    def take_on(self, hop: Hop) -> None:
        with self._lock:
            self._ready.append(hop)
            try:
                self._engage()
            except RuntimeError:  # no thread can be started: the interpreter is ending, or there are too many
                if not self._at_work:
                    self._ready.remove(hop)
                    raise
            busy = self._at_work >= _AT_WORK
        if busy:
            hop.landing.watch(self)

    def give_up(self, hop: Hop) -> None:
        with self._lock:
            hop.given_up = True
            under_way = hop.begun and not hop.over
        if not under_way:
            hop.end()

    def relieve(self, begun: int) -> bool:
        """Engage one more, if none of them has begun anything since; False: nothing waits."""
        with self._lock:
            waits = bool(self._ready or self._asking)
            if waits and self.begun == begun:
                with contextlib.suppress(RuntimeError):
                    self._engage(min(self._at_work + 1, _WORKERS))
            return waits

    def _engage(self, most: int = _AT_WORK) -> None:
        if self._at_work < most and (self._ready or self._asking):
            if self._workers is None:
                self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="langmem-step")
            self._workers.submit(self._work)
            self._at_work += 1

    def _work(self) -> None:
        while (task := self._next()) is not None:
            if isinstance(task, Hop):
                self._carry(task)
            else:
                self._ask_together(*task)

    def _next(self) -> Hop | tuple[Line, list[Hop]] | None:
        with self._lock:
            self.begun += 1
            line = next(iter(self._asking), None)
            enough = line is not None and len(self._asking[line]) >= _TOGETHER
            while self._ready and not enough:
                hop = self._ready.popleft()
                if hop.begun or not hop.given_up:
                    hop.begun = True
                    return hop
            if line is not None:
                hops = self._asking.pop(line)
                if more := hops[_TOGETHER:]:  # several may have come at once
                    self._asking[line] = more
                return line, hops[:_TOGETHER]
            self._at_work -= 1
            return None

    def _carry(self, hop: Hop) -> None:
        try:
            question = hop.context.run(self._advance, hop)
        except BaseException as error:  # noqa: BLE001 - whoever awaits it is told
            self._land(hop, None, error)
            return
        if question is None or question.line is None:
            self._land(hop, question, None)
        else:
            hop.question = question
            with self._lock:
                self._asking.setdefault(question.line, []).append(hop)
                if self._ready:  # whose plain code may take its time
                    with contextlib.suppress(RuntimeError):
                        self._engage()

    def _advance(self, hop: Hop) -> Step | None:
        """Run a flow up to its end, or to its next question that is not answered by blocking right here."""
        answer, failure = hop.answer or self._ask(hop.question)
        hop.answer = hop.question = None  # let go of here, not by the loop, which may be busy for a while
        while True:
            try:
                question = hop.flow.send(answer) if failure is None else hop.flow.throw(failure)
            except StopIteration as stop:
                hop.result = stop.value
                return None
            if question.acall is not None or question.line is not None:
                return question
            answer, failure = self._ask(question)

    def _ask(self, question: Step) -> Answer:
        with self._away():
            return ask(question)

    def _ask_together(self, line: Line, hops: list[Hop]) -> None:
        if len(hops) == 1:
            self._carry(hops[0])
            return
        with self._away():
            try:
                answers = line.ask([hop.question.request for hop in hops])
            except Exception as error:  # noqa: BLE001 - each flow decides what the failure means
                answers = [(None, error)] * len(hops)
        for hop, answer in zip(hops, answers, strict=True):
            hop.answer = answer
        with self._lock:
            self._ready.extendleft(reversed(hops))  # before those that have not begun
            with contextlib.suppress(RuntimeError):
                self._engage()

    @contextlib.contextmanager
    def _away(self) -> Generator[None]:
        with self._lock:
            self._at_work -= 1
            with contextlib.suppress(RuntimeError):  # then they wait until this one is back
                self._engage()
        try:
            yield
        finally:
            with self._lock:
                self._at_work += 1

    def _land(self, hop: Hop, question: Step | None, error: BaseException | None) -> None:
        with self._lock:
            hop.over = True
            given_up = hop.given_up
        if given_up:
            hop.end()
        else:
            hop.landing.land(hop, question, error)


def set_off(flow: Flow[Any], answer: Answer, context: contextvars.Context) -> Hop:
    """Send a flow on its way, with the answer to its last question."""
    loop = asyncio.get_running_loop()
    landing: _Landing | None = getattr(_here, "landing", None)
    if landing is None or landing.loop is not loop:
        landing = _here.landing = _Landing(loop)
    hop = Hop(flow, answer, context, landing)
    _crew().take_on(hop)
    return hop


def give_up(hop: Hop) -> None:
    """Nobody waits for a hop any more: what has begun ends when it is over."""
    _crew().give_up(hop)


def _crew() -> _Crew:
    """Made when it is needed: gevent may have replaced locks since the import, as in the workers of gunicorn."""
    return _one.get("crew") or _one.setdefault("crew", _Crew())


_one: dict[str, _Crew] = {}
_here = threading.local()  # what belongs to a thread: the landing of the loop that runs on it


def _begin_again() -> None:
    """Threads do not survive a fork, and the lock may have been held by one of them."""
    global _here  # noqa: PLW0603 - one a process
    _one.clear()
    _here = threading.local()


in_child(_begin_again)
