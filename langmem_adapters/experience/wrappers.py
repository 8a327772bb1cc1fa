"""A function with its cache around it: one way for each of the four kinds of functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.cached import FunctionCache
from langmem_adapters.experience.responses import Responses
from langmem_adapters.flow import arun, run

__all__ = ["wrapped"]

F = TypeVar("F", bound=Callable[..., Any])


def wrapped(function: F, cache: FunctionCache, responses: Responses) -> F:
    """The function, which asks its cache first, and has it as its attribute ``cache``."""
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, cache)
    elif inspect.isasyncgenfunction(function):
        wrapper = _async_stream(function, cache, responses)
    elif inspect.isgeneratorfunction(function):
        wrapper = _stream(function, cache, responses)
    else:
        wrapper = _plain(function, cache)
    wrapper.cache = cache  # type: ignore[attr-defined]
    return cast(F, wrapper)


def _plain(function: Callable[..., Any], cache: FunctionCache) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        turn = run(cache.begin(args, kwargs))
        if turn.served:
            return turn.value
        try:
            with cache.led(turn):
                value = function(*turn.args, **turn.kwargs)
        except BaseException:
            cache.let_go(turn)
            raise
        run(cache.finish(turn, value))
        cache.score_later(turn)
        return value

    return call


def _coroutine(function: Callable[..., Any], cache: FunctionCache) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        turn = await arun(cache.begin(args, kwargs))
        if turn.served:
            return turn.value
        try:
            with cache.led(turn):
                value = await function(*turn.args, **turn.kwargs)
        except BaseException:
            cache.let_go(turn)
            raise
        await arun(cache.finish(turn, value))
        cache.ascore_later(turn)
        return value

    return call


def _stream(function: Callable[..., Any], cache: FunctionCache, responses: Responses) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        turn = run(cache.begin(args, kwargs))
        if turn.served:
            yield from turn.value
            return None
        items = _Items(responses if turn.keeps else None)
        returned = yield from _Recorded(function(*turn.args, **turn.kwargs), items)
        if returned is None and items.whole:
            run(cache.finish(turn, items.frozen))
            cache.score_later(turn)
        return returned

    return call


def _async_stream(function: Callable[..., Any], cache: FunctionCache, responses: Responses) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        turn = await arun(cache.begin(args, kwargs))
        if turn.served:
            for item in turn.value:
                yield item
            return
        items = _Items(responses if turn.keeps else None)
        stream = function(*turn.args, **turn.kwargs)
        try:
            item = await stream.__anext__()
            while True:
                items.add(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the stream's to deal with
                    items.spoil()
                    item = await stream.athrow(error)
                else:
                    items.note(sent)
                    item = await stream.asend(sent)
        except StopAsyncIteration:
            pass
        finally:
            await stream.aclose()
        if items.whole:
            await arun(cache.finish(turn, items.frozen))
            cache.ascore_later(turn)

    return call


class _Items:
    """What a stream has given, frozen at once, as its reader may change it."""

    def __init__(self, responses: Responses | None) -> None:
        self._responses = responses
        self.frozen: list[tuple[Any, Any]] = []
        self.whole = responses is not None

    def add(self, item: Any) -> None:
        if self.whole and self._responses is not None:
            try:
                self.frozen.append(self._responses.freeze(item))
            except SerializationError:
                self.spoil()

    def note(self, sent: Any) -> None:
        """A stream that is told something gives what the arguments do not say."""
        if sent is not None:
            self.spoil()

    def spoil(self) -> None:
        self.whole = False
        self.frozen.clear()


class _Recorded(Generator[Any, Any, Any]):
    """A generator, of which all that it gives is noted."""

    def __init__(self, stream: Generator[Any, Any, Any], items: _Items) -> None:
        self._stream = stream
        self._items = items

    def send(self, value: Any) -> Any:
        self._items.note(value)
        item = self._stream.send(value)
        self._items.add(item)
        return item

    def throw(self, *error: Any) -> Any:  # Python 3.10 and 3.11 hand over three parts of it
        self._items.spoil()
        return self._stream.throw(*error)

    def close(self) -> None:
        self._stream.close()
