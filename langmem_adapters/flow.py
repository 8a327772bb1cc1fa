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
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar, cast, overload

from langmem_adapters.errors import ConfigurationError

__all__ = ["Flow", "Step", "arun", "run", "step", "submit"]

T = TypeVar("T")

# They wait for disks and sockets, so more than the processors. What runs in the background waits for models, and
# must not take the places of steps that somebody waits for.
_WORKERS = {"step": 64, "background": 8}


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
    if _is_async(call):
        question = Step(_async_only(call), lambda: cast("Awaitable[Any]", call(*args, **kwargs)))
    else:
        question = Step(lambda: call(*args, **kwargs))
    return (yield question)


def _is_async(call: Callable[..., Any]) -> bool:
    function = getattr(call, "__func__", call)
    if type(function) is types.FunctionType and not function.__dict__:  # nothing marks it as something else
        return bool(function.__code__.co_flags & inspect.CO_COROUTINE)
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _async_only(call: Callable[..., Any]) -> Callable[[], Any]:
    def refuse() -> Any:
        name = getattr(call, "__qualname__", repr(call))
        raise ConfigurationError(f"{name} is a coroutine function: use the a-prefixed twin of this method")

    return refuse


def run(flow: Flow[T]) -> T:
    """Drive a flow by blocking."""
    answer: Any = None
    failure: BaseException | None = None
    try:
        while True:
            try:
                question = flow.throw(failure) if failure is not None else flow.send(answer)
            except StopIteration as stop:
                return cast("T", stop.value)
            answer, failure = _ask(question)
    finally:
        flow.close()  # interrupted: what it holds is released now, even if somebody keeps the traceback


async def arun(flow: Flow[T]) -> T:
    """Drive a flow without blocking the event loop.

    Blocking questions run on a worker thread, as many in one hop as follow each other; coroutine
    functions are awaited on the caller's own loop. Context variables are carried along.
    """
    answer: Any = None
    failure: BaseException | None = None
    context = contextvars.copy_context()
    while True:
        hop = _workers().submit(context.run, _advance, flow, answer, failure)
        try:
            done, question = await asyncio.wrap_future(hop)
            if done:
                return cast("T", question)
            answer, failure = await _aask(question)
        except BaseException:  # cancelled: as in run, once the thread has let go of the flow
            hop.add_done_callback(lambda _: flow.close())
            raise


def _ask(question: Step) -> tuple[Any, BaseException | None]:
    try:
        return question.call(), None
    except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
        return None, error


async def _aask(question: Step) -> tuple[Any, BaseException | None]:
    try:
        return await cast("Callable[[], Awaitable[Any]]", question.acall)(), None
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
_pools: dict[str, ThreadPoolExecutor] = {}


def _workers(kind: str = "step") -> ThreadPoolExecutor:
    if kind not in _pools:
        with _lock:
            if kind not in _pools:
                _pools[kind] = ThreadPoolExecutor(_WORKERS[kind], thread_name_prefix=f"langmem-{kind}")
    return _pools[kind]


def submit(call: Callable[[], T]) -> Future[T]:
    """Start a blocking call on a background thread, in the caller's context."""
    return _workers("background").submit(contextvars.copy_context().run, call)


def _forget_pools() -> None:
    """Threads do not survive a fork, and the lock may have been held by one of them."""
    global _lock  # noqa: PLW0603 - one lock a process
    _pools.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forget_pools)
