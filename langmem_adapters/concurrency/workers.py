"""The thread pool on which flows do their blocking I/O, so that no event loop waits for it."""

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
from langmem_adapters.errors import ConfigurationError

__all__ = ["Answer", "Flow", "Job", "Pipeline", "Step", "abandon", "ask", "start"]

T = TypeVar("T")

_WORKERS = 64  # they wait for disks and sockets, so more than the processors
_MOST_RUNNING = 4  # workers that compute at the same time, which is no faster with more
_BATCH = 64  # questions that wait for no more, and that one exchange has at the most
_STALLED = 0.005  # seconds after which one more is started, if none of them has begun anything else
_NO_LOOP = "no event loop of asyncio runs here, as none does under trio: call the sync twin of this method in a thread"
_log = logging.getLogger("langmem_adapters")

Answer: TypeAlias = "tuple[Any, BaseException | None]"
"""What a question gave, or the error that it raised."""


class Pipeline(Protocol):
    """What takes several requests in one exchange, such as a server at the other end of a connection."""

    def ask(self, requests: Sequence[Any]) -> Sequence[Answer | None]:
        """Answer each; None: ask it by itself, as nobody knows the answer."""


class Step(NamedTuple):
    """One question of a flow.

    Args:
        call: Answers it by blocking.
        acall: A coroutine function, where the callee has both.
        pipeline, request: Where it may be batched with the questions of other flows, and as which request.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]] | None = None
    pipeline: Pipeline | None = None
    request: Any = None


Flow = Generator[Step, Any, T]


def ask(question: Step) -> Answer:
    """Answer a question by blocking."""
    try:
        return question.call(), None
    except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
        return None, error


class Job:
    """What a worker does of a flow: up to its end, or to the next question that is for the event loop."""

    def __init__(
        self, flow: Flow[Any], answer: Answer, context: contextvars.Context, completions: _Completions
    ) -> None:
        self.flow = flow
        self.question: Any = None  # that was asked together with others
        self.answer: Answer | None = answer  # None: to that question there was none
        self.context = context
        self.completions = completions
        self.future: asyncio.Future[Step | None] = completions.loop.create_future()  # None: at its end
        self.result: Any = None
        self.begun = self.over = self.abandoned = False

    def end(self) -> None:
        """Close the flow, as nobody waits for it, and let go of what it gave: its owner may have to know that."""
        try:
            self.flow.close()
        except Exception:  # noqa: BLE001 - nobody waits, so a log is the only place to tell
            _log.exception("an abandoned operation failed as it was closed")
        self.result = None  # now, for whoever was cancelled holds the job by the error, until garbage is collected


class _Completions:
    """The completion queue of one event loop, which is woken once for all jobs that have ended meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[tuple[Job, Step | None, BaseException | None]] = deque()
        self._called = False
        self._watching = False

    def add(self, job: Job, question: Step | None, error: BaseException | None) -> None:
        """Hand the loop what a job has come to; called by workers."""
        self._finished.append((job, question, error))
        if self._called and not self.loop.is_closed():
            return
        self._called = True
        try:
            self.loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop was closed, and nobody will ever ask
            while self._finished:
                self._finished.popleft()[0].end()

    def _deliver(self) -> None:
        self._called = False  # first, so that whoever is too late for this time calls again
        while self._finished:
            job, question, error = self._finished.popleft()
            future = job.future
            del job.future  # as the frames in an error's traceback hold the job, so it would stay with them
            if future.done():  # cancelled
                continue
            if error is None:
                future.set_result(question)
            else:
                future.set_exception(error)

    def watch(self, pool: _WorkerPool) -> None:
        """See to it that workers which are held up, outside of any question, do not hold up the others."""
        if not self._watching:
            self._watching = True
            self.loop.call_later(_STALLED, self._look, pool, pool.begun)

    def _look(self, pool: _WorkerPool, begun: int) -> None:
        self._watching = False
        if pool.replace_stalled(begun):
            self.watch(pool)


class _WorkerPool:
    """Runs jobs. Few threads compute at a time; one that blocks on a disk or a socket is replaced meanwhile.

    What several flows ask of the same pipeline is one batch, sent when there is nothing else to do.
    """

    def __init__(self) -> None:
        self.begun: int = 0  # so many jobs and exchanges
        self._lock = threading.RLock()  # garbage collection may abandon a job wherever it is held
        self._workers: ThreadPoolExecutor | None = None  # once they were needed
        self._running = 0
        self._ready: deque[Job] = deque()
        self._batches: dict[Pipeline, list[Job]] = {}

    def submit(self, job: Job) -> None:
        with self._lock:
            self._ready.append(job)
            try:
                self._start_worker()
            except RuntimeError:  # no thread can be started: the interpreter is ending, or there are too many
                if not self._running:
                    self._ready.remove(job)
                    raise
            busy = self._running >= _MOST_RUNNING
        if busy:
            job.completions.watch(self)

    def abandon(self, job: Job) -> None:
        with self._lock:
            job.abandoned = True
            under_way = job.begun and not job.over
        if not under_way:
            job.end()

    def replace_stalled(self, begun: int) -> bool:
        """Start one more worker, if none has begun anything since; False: nothing waits."""
        with self._lock:
            waits = bool(self._ready or self._batches)
            if waits and self.begun == begun:
                with contextlib.suppress(RuntimeError):
                    self._start_worker(min(self._running + 1, _WORKERS))
            return waits

    def _start_worker(self, most: int = _MOST_RUNNING) -> None:
        if self._running < most and (self._ready or self._batches):
            if self._workers is None:
                self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="langmem-step")
            try:
                self._workers.submit(self._work)
            except RuntimeError:
                if threading.main_thread().is_alive():
                    raise
                # A loop may run on in another thread, for which the process waits; pools take nothing from here on.
                threading.Thread(target=self._work, name="langmem-step").start()
            self._running += 1

    def _work(self) -> None:
        while (task := self._next()) is not None:
            if isinstance(task, Job):
                self._run(task)
            else:
                self._ask_batch(*task)

    def _next(self) -> Job | tuple[Pipeline, list[Job]] | None:
        with self._lock:
            self.begun += 1
            pipeline = next(iter(self._batches), None)
            enough = pipeline is not None and len(self._batches[pipeline]) >= _BATCH
            while self._ready and not enough:
                job = self._ready.popleft()
                if job.begun or not job.abandoned:
                    job.begun = True
                    return job
            if pipeline is not None:
                jobs = self._batches.pop(pipeline)
                if more := jobs[_BATCH:]:  # several may have come at once
                    self._batches[pipeline] = more
                return pipeline, jobs[:_BATCH]
            self._running -= 1
            return None

    def _run(self, job: Job) -> None:
        try:
            question = job.context.run(self._advance, job)
        except BaseException as error:  # noqa: BLE001 - whoever awaits it is told
            self._finish(job, None, error)
            return
        if question is None or question.pipeline is None:
            self._finish(job, question, None)
        else:
            job.question = question
            with self._lock:
                self._batches.setdefault(question.pipeline, []).append(job)
                if self._ready:  # whose plain code may take its time
                    with contextlib.suppress(RuntimeError):
                        self._start_worker()

    def _advance(self, job: Job) -> Step | None:
        """Run a flow up to its end, or to its next question that is not answered by blocking right here."""
        answer, failure = job.answer or self._ask(job.question)
        job.answer = job.question = None  # let go of here, not by the loop, which may be busy for a while
        while True:
            try:
                question = job.flow.send(answer) if failure is None else job.flow.throw(failure)
            except StopIteration as stop:
                job.result = stop.value
                return None
            finally:
                failure = None  # its traceback has this frame: together they would stay until garbage is collected
            if question.acall is not None or question.pipeline is not None:
                return question
            answer, failure = self._ask(question)

    def _ask(self, question: Step) -> Answer:
        with self._blocked():
            return ask(question)

    def _ask_batch(self, pipeline: Pipeline, jobs: list[Job]) -> None:
        if len(jobs) == 1:
            self._run(jobs[0])
            return
        with self._blocked():
            try:
                answers = pipeline.ask([job.question.request for job in jobs])
            except Exception as error:  # noqa: BLE001 - each flow decides what the failure means
                answers = [(None, error)] * len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            job.answer = answer
        with self._lock:
            self._ready.extendleft(reversed(jobs))  # before those that have not begun
            with contextlib.suppress(RuntimeError):
                self._start_worker()

    @contextlib.contextmanager
    def _blocked(self) -> Generator[None]:
        with self._lock:
            self._running -= 1
            with contextlib.suppress(RuntimeError):  # then they wait until this one is back
                self._start_worker()
        try:
            yield
        finally:
            with self._lock:
                self._running += 1

    def _finish(self, job: Job, question: Step | None, error: BaseException | None) -> None:
        with self._lock:
            job.over = True
            abandoned = job.abandoned
        if abandoned:
            job.end()
        else:
            job.completions.add(job, question, error)


def start(flow: Flow[Any], answer: Answer, context: contextvars.Context) -> Job:
    """Have a flow go on, on a worker, with the answer to its last question."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(_NO_LOOP) from None
    completions: _Completions | None = getattr(_here, "completions", None)
    if completions is None or completions.loop is not loop:
        completions = _here.completions = _Completions(loop)
    job = Job(flow, answer, context, completions)
    _pool().submit(job)
    return job


def abandon(job: Job) -> None:
    """Nobody waits for a job any more: what has begun ends when it is over."""
    _pool().abandon(job)


def _pool() -> _WorkerPool:
    """Made when it is needed: gevent may have replaced locks since the import, as in the workers of gunicorn."""
    return _one.get("pool") or _one.setdefault("pool", _WorkerPool())


_one: dict[str, _WorkerPool] = {}
_here = threading.local()  # what belongs to a thread: the completions of the loop that runs on it


def _begin_again() -> None:
    """Threads do not survive a fork, and the lock may have been held by one of them."""
    global _here  # noqa: PLW0603 - one a process
    _one.clear()
    _here = threading.local()


in_child(_begin_again)
