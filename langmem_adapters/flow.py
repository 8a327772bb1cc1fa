"""The one place where sync and async meet.

A *flow* is a generator that asks for I/O instead of doing it: ``page = yield from step(store.scan, ns)``.
:func:`run` answers by calling, :func:`arun` by awaiting; the logic between two questions exists once.
A flow never creates a loop or a task, so one object works in a script, in a notebook cell with a running
loop, in threads, after ``fork``, in successive ``asyncio.run`` calls and under uvloop.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar, cast, overload

from langmem_adapters.errors import ConfigurationError

__all__ = ["Flow", "Step", "arun", "run", "step"]

T = TypeVar("T")

_WORKERS = 64  # they wait for disks and sockets, so more than the processors


class Step(NamedTuple):
    """One question of a flow: a blocking call, and its coroutine function where the callee has both."""

    call: Callable[[], Any]
    acall: Callable[[], Awaitable[Any]] | None = None


Flow = Generator[Step, Any, T]


@overload
def step(call: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> Flow[T]: ...
@overload
def step(call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Flow[T]: ...
def step(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """Ask for ``call(*args, **kwargs)``; a coroutine function is awaited, anything else may block."""
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004
        question = Step(_async_only(call), lambda: cast("Awaitable[Any]", call(*args, **kwargs)))
    else:
        question = Step(lambda: call(*args, **kwargs))
    return (yield question)


def _async_only(call: Callable[..., Any]) -> Callable[[], Any]:
    def refuse() -> Any:
        name = getattr(call, "__qualname__", repr(call))
        raise ConfigurationError(f"{name} is a coroutine function: use the a-prefixed twin of this method")

    return refuse


def run(flow: Flow[T]) -> T:
    """Drive a flow by blocking."""
    answer: Any = None
    failure: BaseException | None = None
    while True:
        try:
            question = flow.throw(failure) if failure is not None else flow.send(answer)
        except StopIteration as stop:
            return cast("T", stop.value)
        answer, failure = _ask(question)


async def arun(flow: Flow[T]) -> T:
    """Drive a flow without blocking the event loop.

    Blocking questions run on a worker thread, as many in one hop as follow each other; coroutine
    functions are awaited on the caller's own loop. Context variables are carried along.
    """
    answer: Any = None
    failure: BaseException | None = None
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    while True:
        hop = loop.run_in_executor(_workers(), context.run, _advance, flow, answer, failure)
        done, question = await hop
        if done:
            return cast("T", question)
        try:
            answer, failure = await question.acall(), None
        except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
            answer, failure = None, error


def _ask(question: Step) -> tuple[Any, BaseException | None]:
    try:
        return question.call(), None
    except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
        return None, error


def _advance(flow: Flow[Any], answer: Any, failure: BaseException | None) -> tuple[bool, Any]:
    """Run a flow on this thread up to its end or to its next question that wants the loop."""
    while True:
        try:
            question = flow.throw(failure) if failure is not None else flow.send(answer)
        except StopIteration as stop:
            return True, stop.value
        if question.acall is not None:
            return False, question
        answer, failure = _ask(question)


_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None


def _workers() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603 - one pool a process, made on first use
    if _pool is None:
        with _lock:
            if _pool is None:
                _pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="langmem")
    return _pool


def _forget_pool() -> None:
    """Threads do not survive a fork, and the lock may have been held by one of them."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_pool)
