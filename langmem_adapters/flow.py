"""The one place where sync and async meet.

A *flow* is a generator that asks for I/O instead of doing it: ``page = yield from step(store.scan, ns)``.
:func:`run` answers by calling, :func:`arun` by awaiting; the logic between two steps exists once.
A flow never creates a loop or a task, so one object works in a script, in a notebook cell with a running
loop, in threads, after ``fork``, in successive ``asyncio.run`` calls and under uvloop.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import re
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_args, get_origin, overload

from langmem_adapters.annotations import annotations_of
from langmem_adapters.concurrency.background import submit
from langmem_adapters.concurrency.workers import MAX_BATCH, Answer, Flow, Pipeline, Step, abandon, ask, start
from langmem_adapters.errors import ConfigurationError

__all__ = [
    "Answer",
    "Flow",
    "Pipeline",
    "Step",
    "arun",
    "blocking",
    "call_either",
    "gather",
    "has_loop",
    "is_coroutine",
    "is_flow",
    "run",
    "step",
    "submit",
    "within",
]

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")

_FLOW_PATTERN = re.compile(r"(?:\w+\.)*Flow\[(.+)\]", re.DOTALL)


@overload
def step(call: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> Flow[T]: ...
@overload
def step(call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Flow[T]: ...
def step(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Flow[Any]:
    """Ask for ``call(*args, **kwargs)``; a coroutine function is awaited, anything else may block."""
    if _is_plain_function(call):
        return (yield Step(lambda: call(*args, **kwargs)))
    flow = getattr(call, "__flow__", None)
    if flow is not None and getattr(call, "__wrapped__", call) is flow:  # else functools.wraps has copied it
        return (yield from flow(call.__self__, *args, **kwargs))  # type: ignore[attr-defined]  # a cast costs a call
    if is_coroutine(call):
        name = getattr(call, "__qualname__", type(call).__qualname__)

        def refuse() -> Any:
            raise ConfigurationError(
                f"{name} is a coroutine function: call the async twin of this method, whose name begins with a"
            )

        return (yield Step(refuse, lambda: cast("Awaitable[Any]", call(*args, **kwargs))))
    return (yield Step(lambda: call(*args, **kwargs)))


def call_either(
    call: Callable[..., Any] | None, acall: Callable[..., Awaitable[Any]] | None, refusal: str, *args: Any
) -> Flow[Any]:
    """Ask by ``call`` or ``acall``, whichever there is; an awaitable that a plain function returns is awaited too.

    Raises ConfigurationError with the text ``refusal`` if a blocking caller meets something that must be awaited.
    """
    answer: Any = None

    def refuse() -> Any:
        if inspect.iscoroutine(answer):
            answer.close()  # otherwise Python warns that it was never awaited
        raise ConfigurationError(refusal)

    blocking_call = refuse if call is None else partial(call, *args)
    answer = yield Step(blocking_call, None if acall is None else partial(acall, *args))
    return (yield Step(refuse, lambda: answer)) if inspect.isawaitable(answer) else answer


def within(enter: Callable[[], AbstractContextManager[object]], flow: Flow[T]) -> Flow[T]:
    """A flow whose questions are each answered within a context, on whichever thread or event loop that is."""

    def call_within(call: Callable[[], Any]) -> Any:
        with enter():
            return call()

    async def await_within(acall: Callable[[], Awaitable[Any]]) -> Any:
        with enter():
            return await acall()

    answer, failure = None, None
    try:
        while True:
            try:
                question = flow.send(answer) if failure is None else flow.throw(failure)
            except StopIteration as stop:
                value: T = stop.value
                return value
            finally:
                failure = None  # as in run
            call, acall = partial(call_within, question.call), question.acall
            acall = None if acall is None else partial(await_within, acall)
            answer, failure = yield from _answer_to(question._replace(call=call, acall=acall))
    finally:
        flow.close()


def is_flow(call: Callable[..., Any]) -> bool:
    """Whether :func:`step` asks for this as a part of a flow, whose questions may share an exchange with others'."""
    return hasattr(call, "__flow__")


def _is_plain_function(call: object) -> bool:
    """Whether this is certainly neither a flow nor async: a fast check, which is true of most calls."""
    function = call.__func__ if type(call) is types.MethodType else call
    return type(function) is types.FunctionType and not (
        function.__dict__ or function.__code__.co_flags & inspect.CO_COROUTINE
    )


def has_loop() -> bool:
    """Whether an asyncio event loop runs on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def is_coroutine(value: object) -> bool:
    """Whether this is a coroutine function, or an object whose ``__call__`` is one."""
    if _is_plain_function(value) or type(value) is types.BuiltinFunctionType:  # inspect takes five times as long
        return False
    call = None if isinstance(value, type) else getattr(value, "__call__", None)  # noqa: B004 - asked what it is
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def blocking(flow: Callable[Concatenate[S, P], Flow[T]]) -> Callable[Concatenate[S, P], T]:
    """Turn a flow method into a blocking method. When :func:`step` asks for it, it becomes a part of that flow."""
    annotations = annotations_of(flow)  # of the flow itself too, since help() and inspect read them there
    flow.__annotations__ = annotations | {"return": _result_of(annotations.get("return", Any))}

    @functools.wraps(flow)
    def method(self: S, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(flow(self, *args, **kwargs))

    method.__annotations__ = flow.__annotations__  # from Python 3.14 on, wraps copies only what would make them
    method.__flow__ = flow  # type: ignore[attr-defined]
    return cast("Callable[Concatenate[S, P], T]", method)


def _result_of(annotation: Any) -> Any:
    """What a flow with this annotation returns in the end."""
    if isinstance(annotation, str):
        return _FLOW_PATTERN.sub(r"\1", annotation)
    return get_args(annotation)[-1] if get_origin(annotation) is Generator else annotation


def gather(flows: Iterable[Flow[T]], *, at_once: int = MAX_BATCH) -> Flow[list[T]]:
    """The results of independent flows, whose questions to one pipeline go there together, 64 in one exchange.

    ``at_once`` allows fewer, where answers are large. An error of one of them is raised immediately; then those that
    have not ended do not go on.
    """
    remaining, results = iter(flows), list[T]()
    while branches := [_Branch(flow) for flow in islice(remaining, at_once)]:
        try:
            for branch in branches:
                yield from branch.advance()
            while asking := [branch for branch in branches if branch.question is not None]:
                yield from _ask_together(asking)
                for branch in asking:
                    yield from branch.advance()
        finally:
            for branch in branches:
                branch.flow.close()
        results += [branch.result for branch in branches]
    return results


class _Branch(Generic[T]):
    """One of several flows, and where it is: at a question to a pipeline, or at its end."""

    def __init__(self, flow: Flow[T]) -> None:
        self.flow = flow
        self.question: Step | None = None
        self.answer: Answer = (None, None)
        self.result: T

    def advance(self) -> Flow[None]:
        """Go on with the answer, to the next question that may be asked together with others."""
        while True:
            (answer, failure), self.answer = self.answer, (None, None)
            try:
                question = self.flow.send(answer) if failure is None else self.flow.throw(failure)
            except StopIteration as stop:
                self.question, self.result = None, stop.value
                return
            finally:
                failure = None  # as in run
            if question.pipeline is not None:
                self.question = question
                return
            self.answer = yield from _answer_to(question)


def _ask_together(branches: Sequence[_Branch[Any]]) -> Flow[None]:
    """Answer the questions of all branches, those to one pipeline in one exchange."""
    by_pipeline: dict[Pipeline, list[tuple[_Branch[Any], Step]]] = {}
    for branch in branches:
        if branch.question is not None and branch.question.pipeline is not None:
            by_pipeline.setdefault(branch.question.pipeline, []).append((branch, branch.question))
    for pipeline, pairs in by_pipeline.items():
        answers: Sequence[Answer | None] = [None]
        if len(pairs) > 1:
            ask_all = partial(pipeline.ask, [question.request for _, question in pairs])
            answers, failure = yield from _answer_to(Step(ask_all))
            if failure is not None:
                answers = [(None, failure)] * len(pairs)
        for (branch, question), answer in zip(pairs, answers, strict=True):
            branch.answer = answer or (yield from _answer_to(question))


def _answer_to(question: Step) -> Flow[Answer]:
    try:
        return (yield question), None
    except Exception as error:  # noqa: BLE001 - the flow that asked decides what the failure means
        return None, error


def run(flow: Flow[T]) -> T:
    """Drive a flow by blocking."""
    answer: Any = None
    failure: BaseException | None = None
    try:
        while True:
            try:
                question = flow.throw(failure) if failure is not None else flow.send(answer)
            except StopIteration as stop:
                value: T = stop.value
                return value
            finally:
                failure = None  # its traceback refers to this frame: the cycle would stay until garbage collection
            answer, failure = ask(question)
    finally:
        flow.close()  # after an interrupt, release what it holds now, even if the traceback is kept


async def arun(flow: Flow[T]) -> T:
    """Drive a flow without blocking the event loop.

    Blocking steps run on worker threads, consecutive ones in one job; coroutine functions are awaited on the
    caller's own loop, which must be one of asyncio: otherwise ConfigurationError is raised. Context variables are
    carried along.
    """
    answer: Answer = (None, None)
    context = contextvars.copy_context()
    while True:
        job = start(flow, answer, context)
        del answer  # it may hold a failure, whose traceback refers to this frame
        try:
            question = await job.future
            if question is None:
                result: T = job.result
                return result
            answer = await _ask_async(question)
        except BaseException:  # cancelled: close the flow as run does, once the thread has let go of it
            abandon(job)
            raise


async def _ask_async(question: Step) -> Answer:
    try:
        return await cast("Callable[[], Awaitable[Any]]", question.acall)(), None
    except Exception as error:  # noqa: BLE001 - the flow decides what the failure means
        return None, error
