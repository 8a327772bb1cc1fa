"""The thread pool for the blocking I/O of flows, so that it does not block an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from langmem_adapters.concurrency.background import DaemonThreads
from langmem_adapters.concurrency.forks import call_in_child
from langmem_adapters.errors import ConfigurationError, StoreUnavailable

T = TypeVar("T")

_MAX_WORKERS = 64  # they wait for disks and sockets, so there are more than processors
_MAX_RUNNING = 4  # workers that compute at the same time; more would not be faster
_STALL_SECONDS = 0.005  # after which one more worker is started, if none has begun a task since
_NO_LOOP = "no event loop of asyncio runs here, as none does under trio: call the sync twin of this method in a thread"
_log = logging.getLogger("langmem_adapters")

MAX_BATCH = 64
"""The most questions in one exchange; so many are sent without waiting for more."""

Answer: TypeAlias = tuple[Any, BaseException | None]
"""The result of a question, or the error that it raised."""


class Pipeline(Protocol):
    """Takes several requests in one exchange, such as a server at the other end of a connection."""

    def ask(self, requests: Sequence[Any]) -> Sequence[Answer | None]:
        """Answer each request; None: ask it alone, since its answer is unknown."""


class Step(NamedTuple):
    """One question of a flow.

    Args:
        call: Answers it by blocking.
        acall: A coroutine function that answers it, if the callee has both.
        pipeline, request: Where it may be batched with other questions, and its request there.
        is_large: Whether its answer may be so large that questions of other flows should not wait for it.
    """

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]] | None = None
    pipeline: Pipeline | None = None
    request: Any = None
    is_large: bool = False


Flow = Generator[Step, Any, T]


def ask(question: Step) -> Answer:
    """Answer a question by blocking."""
    try:
        return question.call(), None
    except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
        return None, error


class Job:
    """A worker's part of a flow: up to its end, or to the next question for the event loop."""

    def __init__(
        self, flow: Flow[Any], answer: Answer, context: contextvars.Context, completions: _Completions, depth: int
    ) -> None:
        self.flow = flow
        self.depth = depth
        self.question: Any = None  # asked in a batch
        self.answer: Answer | None = answer  # None: the batch had no answer to the question
        self.context = context
        self.completions = completions
        self.future: asyncio.Future[Step | None] = completions.loop.create_future()  # None: the flow has ended
        self.result: Any = None
        self.started = self.finished = self.abandoned = False

    def end(self) -> None:
        """Close the flow, since nobody waits for it, and drop its result, whose owner may depend on that."""
        try:
            self.flow.close()
        except Exception:  # noqa: BLE001 - nobody waits, so only a log can tell
            _log.exception("an abandoned operation failed as it was closed")
        self.result = None  # now: a cancelled caller holds the job by the error, until garbage is collected


class _Completions:
    """The completion queue of one event loop, which is woken once for all jobs that have ended meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._finished: deque[tuple[Job, Step | None, BaseException | None]] = deque()
        self._is_scheduled = self._is_watching = False

    def add(self, job: Job, question: Step | None, error: BaseException | None) -> None:
        """Pass a job's outcome to the loop; called by workers."""
        self._finished.append((job, question, error))
        if self._is_scheduled and not self.loop.is_closed():
            return
        self._is_scheduled = True
        try:
            self.loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop was closed, and nobody will ask for the result
            with contextlib.suppress(IndexError):  # raised when it is empty: other workers may empty it, too
                while True:
                    unwanted, _, _ = self._finished.popleft()
                    unwanted.end()

    def _deliver(self) -> None:
        self._is_scheduled = False  # first, so that a later job schedules another delivery
        while self._finished:
            job, question, error = self._finished.popleft()
            future = job.future
            del job.future  # an error's traceback holds the job, and the future would stay with it
            if future.done():  # cancelled
                continue
            if error is None:
                future.set_result(question)
            else:
                future.set_exception(error)

    def watch(self, pool: _WorkerPool) -> None:
        """Make sure that workers which are stalled, outside of any question, do not delay other jobs."""
        if not self._is_watching:
            self._is_watching = True
            self.loop.call_later(_STALL_SECONDS, self._check_stalled, pool, pool.started_count)

    def _check_stalled(self, pool: _WorkerPool, started_count: int) -> None:
        self._is_watching = False
        if pool.replace_stalled(started_count):
            self.watch(pool)


class _WorkerPool:
    """Runs jobs. Few threads compute at a time; one that blocks on a disk or a socket is replaced meanwhile.

    Questions of several flows to the same pipeline are one batch, which is sent when there is no other work.

    Args:
        depth: Whose jobs it runs: 0, or 1 for those that a blocking call starts which waits on a worker of depth 0, and
            so on. If they had to wait for a worker of the same pool, all of its workers might wait for each other.
    """

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self.started_count: int = 0  # the number of jobs and exchanges begun
        self._lock = threading.RLock()  # reentrant: garbage collection may abandon a job while it is held
        self._threads = DaemonThreads(_MAX_WORKERS, "langmem-step")
        self._running = 0
        self._ready: deque[Job] = deque()
        self._batches: dict[Pipeline, list[Job]] = {}

    def submit(self, job: Job) -> None:
        with self._lock:
            try:
                self._ready.append(job)
                self._start_worker()
            except RuntimeError:  # no thread can be started: shutdown, or too many threads
                if not self._running:
                    self._ready.remove(job)
                    raise
            except BaseException:  # an interrupt: the job would be begun later, by the next one's worker
                self.abandon(job)
                raise
            is_full = self._running >= _MAX_RUNNING
        if is_full:
            job.completions.watch(self)

    def abandon(self, job: Job) -> None:
        with self._lock:
            job.abandoned = True
            is_running = job.started and not job.finished
        if not is_running:
            job.end()

    def replace_stalled(self, started_count: int) -> bool:
        """Start one more worker if none has begun a task since; returns False if no job waits."""
        with self._lock:
            has_waiting = bool(self._ready or self._batches)
            if has_waiting and self.started_count == started_count:
                with contextlib.suppress(RuntimeError):
                    self._start_worker(min(self._running + 1, _MAX_WORKERS))
            return has_waiting

    def _start_worker(self, max_running: int = _MAX_RUNNING) -> None:
        if self._running < max_running and (self._ready or self._batches):
            try:
                self._threads.submit(self._work)
            except RuntimeError:
                if threading.main_thread().is_alive():
                    raise
                # A loop may go on in another thread, which keeps the process alive; these threads take no work then.
                threading.Thread(target=self._work, name="langmem-step").start()
            self._running += 1  # perhaps when one of its threads is free

    def _work(self) -> None:
        _depth_of_worker[threading.get_ident()] = self._depth
        while (task := self._next()) is not None:
            if isinstance(task, Job):
                self._run(task)
            else:
                self._ask_batch(*task)
        _depth_of_worker.pop(threading.get_ident(), None)  # the number may be another thread's later

    def _next(self) -> Job | tuple[Pipeline, list[Job]] | None:
        """Take the next task: a job, or a batch of questions to a pipeline; None ends this worker."""
        with self._lock:
            self.started_count += 1
            pipeline = next(iter(self._batches), None)
            batch_is_full = pipeline is not None and len(self._batches[pipeline]) >= MAX_BATCH
            while self._ready and not batch_is_full:
                job = self._ready.popleft()
                if job.started or not job.abandoned:
                    job.started = True
                    return job
            if pipeline is not None:
                batch = self._batches.pop(pipeline)
                if remaining := batch[MAX_BATCH:]:  # several may have been added at once
                    self._batches[pipeline] = remaining
                return pipeline, batch[:MAX_BATCH]
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
                if self._ready:  # their plain code may take a while
                    with contextlib.suppress(RuntimeError):
                        self._start_worker()

    def _advance(self, job: Job) -> Step | None:
        """Run a flow to its end, or to its next question that is not answered by blocking right here."""
        answer, failure = job.answer or self._ask(job.question)
        job.answer = job.question = None  # dropped here, not by the loop, which may be busy for a while
        while True:
            try:
                question = job.flow.send(answer) if failure is None else job.flow.throw(failure)
            except StopIteration as stop:
                job.result = stop.value
                return None
            finally:
                failure = None  # its traceback holds this frame: the cycle would stay until garbage is collected
            if question.acall is not None or (question.pipeline is not None and not question.is_large):
                return question
            answer, failure = self._ask(question)

    def _ask(self, question: Step) -> Answer:
        with self._while_blocked():
            return ask(question)

    def _ask_batch(self, pipeline: Pipeline, jobs: list[Job]) -> None:
        if len(jobs) == 1:
            self._run(jobs[0])
            return
        with self._while_blocked():
            try:
                answers = pipeline.ask([job.question.request for job in jobs])
            except Exception as error:  # noqa: BLE001 - each flow decides what the failure means
                answers = [(None, error)] * len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            job.answer = answer
        with self._lock:
            self._ready.extendleft(reversed(jobs))  # before jobs that have not begun
            with contextlib.suppress(RuntimeError):
                self._start_worker()

    @contextlib.contextmanager
    def _while_blocked(self) -> Generator[None]:
        with self._lock:
            self._running -= 1
            with contextlib.suppress(RuntimeError):  # if that fails, jobs wait until this worker is back
                self._start_worker()
        try:
            yield
        finally:
            with self._lock:
                self._running += 1

    def _finish(self, job: Job, question: Step | None, error: BaseException | None) -> None:
        with self._lock:
            job.finished = True
            abandoned = job.abandoned
        if abandoned:
            job.end()
        else:
            job.completions.add(job, question, error)


def start(flow: Flow[Any], answer: Answer, context: contextvars.Context) -> Job:
    """Continue a flow on a worker, with the answer to its last question. Raises StoreUnavailable if there is none."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(_NO_LOOP) from None
    completions: _Completions | None = getattr(_thread_state, "completions", lambda: None)()
    if completions is None or completions.loop is not loop:
        _thread_state.completions = weakref.ref(completions := _Completions(loop))  # held by jobs: garbage with them
    job = Job(flow, answer, context, completions, _depth_of_worker.get(threading.get_ident(), -1) + 1)
    try:
        _pool(job.depth).submit(job)
    except RuntimeError as error:
        has_limit = "can't start" in str(error)  # or the interpreter ends, or is one that has no such threads
        advice = ": raise the limit (ulimit -u, or pids)" if has_limit else ""
        raise StoreUnavailable(f"no thread can be started ({error}){advice}") from error
    return job


def abandon(job: Job) -> None:
    """Give up a job that nobody waits for any more; if it is running, it is closed when it stops."""
    if (pool := _pools.get(job.depth)) is not None:
        pool.abandon(job)
    elif job.finished or not job.started:  # this is a forked child, and the job is its parent's
        job.end()


def _pool(depth: int = 0) -> _WorkerPool:
    """A pool, made when it is needed: gevent may have replaced locks since the import, as in gunicorn's workers."""
    return _pools.get(depth) or _pools.setdefault(depth, _WorkerPool(depth))


_pools: dict[int, _WorkerPool] = {}
_depth_of_worker: dict[int, int] = {}  # by thread, while it works: gevent may have made threads greenlets since
_thread_state = threading.local()  # per thread: a reference to the completion queue of the loop that runs on it


def _reset_in_child() -> None:
    """Reset in a forked child: threads are not copied, and one of them may have held the lock."""
    global _thread_state  # noqa: PLW0603 - one per process
    _pools.clear()
    _depth_of_worker.clear()
    _thread_state = threading.local()


call_in_child(_reset_in_child)
