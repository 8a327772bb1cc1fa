"""Background tasks, on a few threads for which a script that has ended waits a while, not for ever."""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Literal, TypeVar

from langmem_adapters.concurrency.forks import in_child

__all__ = ["submit"]

T = TypeVar("T")

_THREADS = 8
_AT_EXIT = 10.0  # seconds
_log = logging.getLogger("langmem_adapters")


class _Background:
    """Daemon threads, which hold up no exit by themselves, and one that is none, which does it for a while."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # garbage may be collected within, and have something done in the background
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle: queue.SimpleQueue[None] = queue.SimpleQueue()  # in C, where no interrupt keeps it, as a semaphore
        self._threads = 0
        self._unfinished: set[Future[Any]] = set()
        self._ending = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self._ending:
                raise RuntimeError("the interpreter is shutting down")
            self._engage()
            self._unfinished.add(future)
            self._waiting.put((future, call))
        return future

    def _engage(self) -> None:
        with suppress(queue.Empty):
            self._idle.get_nowait()
            return
        if self._threads == _THREADS:
            return
        try:
            if not self._threads:
                # No daemon, though its maker may be one: many hosts make their threads daemons.
                threading.Thread(target=self._see_off, name="langmem-exit", daemon=False).start()
            threading.Thread(target=self._work, name=f"langmem-background-{self._threads}", daemon=True).start()
        except RuntimeError:  # no thread can be started: those that are there do the work
            if not self._threads:
                raise
            return
        self._threads += 1

    def _work(self) -> None:
        while True:
            future, call = self._waiting.get()
            _answer(future, call)
            self._unfinished.discard(future)
            del future, call  # while it waits
            self._idle.put(None)

    def _see_off(self) -> None:
        threading.main_thread().join()
        with self._lock:
            self._ending = True
            unfinished = set(self._unfinished)
        given_up = wait(unfinished, timeout=_AT_EXIT).not_done
        if given_up:
            _log.warning("background calls that were abandoned as the script ended: %d", len(given_up))


def _answer(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - whoever asks the future is told
        future.set_exception(error)
    else:
        future.set_result(result)


def submit(call: Callable[[], T], *, lane: Literal["work", "scores", "leases"] = "work") -> Future[T]:
    """Start a blocking call on a background thread, in the caller's context.

    Scorers, which nobody waits for and which may hang, have threads of their own: all else goes on. So has what gives
    leases back, for which others wait: it is soon done, and the work of a model is not.

    At the end of a script, up to ten seconds are left to what is under way; after that it is broken off. Raises
    RuntimeError, where the script has ended already.
    """
    context = contextvars.copy_context()
    # Made when it is needed: gevent may have replaced queues since the import, as in the workers of gunicorn.
    background = _lanes.get(lane) or _lanes.setdefault(lane, _Background())
    return background.submit(lambda: context.run(call))


_lanes: dict[str, _Background] = {}
in_child(_lanes.clear)  # threads do not survive a fork, and the lock may have been held by one of them
