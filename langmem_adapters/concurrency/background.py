"""Threads for which a script that has ended waits a while, but not for ever; background tasks run on a few of them."""

from __future__ import annotations

import _thread
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, TypeVar

from langmem_adapters.concurrency.forks import call_in_child

T = TypeVar("T")

_MAX_THREADS = 8
_EXIT_WAIT_SECONDS = 10.0
_log = logging.getLogger("langmem_adapters")


class DaemonThreads:
    """Daemon threads, which do not delay the exit, and one that is not a daemon, which delays it for a while.

    An interrupt may come anywhere in :meth:`submit`, which a ThreadPoolExecutor does not bear: it might never end.
    Raises RuntimeError if no thread can be started.
    """

    def __init__(self, max_threads: int, name: str) -> None:
        self._max_threads = max_threads
        self._name = name
        self._lock = threading.RLock()  # reentrant: garbage collection may submit work while it is held
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle: queue.SimpleQueue[None] = queue.SimpleQueue()  # in C: no interrupt leaves it locked, as a semaphore
        self._threads = 0
        self._unfinished: set[Future[Any]] = set()
        self._is_shutting_down = False
        # Not a daemon, though its maker may be one: many hosts make their threads daemons.
        start_thread(threading.Thread(target=self._wait_at_exit, name="langmem-exit", daemon=False))

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Start a call, or queue it. Raises RuntimeError if there is no thread, or the script has ended."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_shutting_down:
                raise RuntimeError("the interpreter is shutting down")
            self._ensure_thread()
            try:
                self._unfinished.add(future)
                self._queue.put((future, call))
            except BaseException:  # an interrupt: the end of the script would wait for what never begins
                self._unfinished.discard(future)
                raise
        return future

    def _ensure_thread(self) -> None:
        with suppress(queue.Empty):
            self._idle.get_nowait()
            return
        if self._threads == self._max_threads:
            return
        thread = threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True)
        try:
            # Not waited for, as by Thread.start: it may collect garbage, which may need a lock that is held here.
            _thread.start_new_thread(_start_or_run, (thread,))
        except RuntimeError:  # no thread can be started: the existing ones do the work
            if not self._threads:
                raise
            return
        self._threads += 1

    def _work(self) -> None:
        while True:
            future, call = self._queue.get()
            _resolve(future, call)
            self._unfinished.discard(future)
            del future, call  # held by nothing while it waits
            self._idle.put(None)

    def _wait_at_exit(self) -> None:
        threading.main_thread().join()
        with self._lock:
            self._is_shutting_down = True
        deadline = time.monotonic() + _EXIT_WAIT_SECONDS
        while self._unfinished and (seconds := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._idle.get(timeout=seconds)  # comes with each call's end; an interrupt may hold a future's lock
        if self._unfinished:
            _log.warning("calls that were abandoned as the script ended: %d", len(self._unfinished))


def start_thread(thread: threading.Thread) -> None:
    """Start a thread, from one that gets no interrupts. Raises RuntimeError or MemoryError if none can be started.

    An interrupt in ``Thread.start`` may leave the new thread hanging, for which the exit waits, or be a RuntimeError.
    """
    if not _gets_interrupts():
        thread.start()
        return
    outcome: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def start() -> None:
        try:
            thread.start()
        except BaseException as error:  # noqa: BLE001 - raised by who waits for it, and would wait for ever
            outcome.put(error)
        else:
            outcome.put(None)

    _thread.start_new_thread(start, ())
    if (error := outcome.get()) is not None:
        raise error


def _start_or_run(thread: threading.Thread) -> None:
    try:
        thread.start()
    except (RuntimeError, MemoryError):  # no other thread can be started: this one does the work
        thread.run()


def _gets_interrupts() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _resolve(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - whoever awaits the future is told
        future.set_exception(error)
    else:
        future.set_result(result)


def submit(call: Callable[[], T], *, lane: Literal["work", "scores", "leases"] = "work") -> Future[T]:
    """Start a blocking call on a background thread, in the caller's context.

    Scorers have threads of their own: nobody waits for them, and they may hang, which then delays nothing else. Leases
    have threads of their own too: others wait for their release, which is quick, while a model's work is not.

    At the end of a script, running calls have up to ten seconds; after that they are abandoned. Raises RuntimeError if
    the script has ended already.
    """
    context = contextvars.copy_context()
    # Made when it is needed: gevent may have replaced queues since the import, as in gunicorn's workers.
    background = _lanes.get(lane) or _lanes.setdefault(lane, DaemonThreads(_MAX_THREADS, "langmem-background"))
    return background.submit(lambda: context.run(call))


_lanes: dict[str, DaemonThreads] = {}
call_in_child(_lanes.clear)  # threads do not survive a fork, and the lock may have been held by one of them
