"""Wrap a function with its cache: one wrapper for each of the four kinds of functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

from langmem_adapters.codec import encode
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.cached import FunctionCache
from langmem_adapters.experience.functions.calls import Calls
from langmem_adapters.experience.functions.rules import Invocation
from langmem_adapters.experience.responses import Frozen
from langmem_adapters.flow import arun, is_coroutine, run

_MAX_STREAM_BYTES = 16_000_000  # bytes of a stream that are collected, if the pool has no max_bytes

F = TypeVar("F", bound=Callable[..., Any])


def wrap_function(function: F, calls: Calls) -> F:
    """The function, wrapped to ask its cache first; the cache is its attribute ``cache``."""
    if is_coroutine(function):
        wrapper = _wrap_coroutine(function, calls)
    elif inspect.isasyncgenfunction(function):
        wrapper = _wrap_async_stream(function, calls)
    elif inspect.isgeneratorfunction(function):
        wrapper = _wrap_stream(function, calls)
    else:
        wrapper = _wrap_plain(function, calls)
    wrapper.cache = FunctionCache(calls)  # type: ignore[attr-defined]
    return cast(F, wrapper)


# The code of a lambda's wrapper, names included, is part of the identity of functions that hold the lambda in a closure
# (see naming): renaming something inside of a wrapper would make their stored results unfindable.


def _wrap_plain(function: Callable[..., Any], cache: Calls) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        turn = Invocation(args, kwargs)
        with cache.held(turn):
            run(cache.begin(turn))
            if turn.served:
                return turn.value
            with cache.led(turn):
                value = function(*turn.args, **turn.kwargs)
            run(cache.finish(turn, value))
        cache.score_later(turn)
        return value

    return call


def _wrap_coroutine(function: Callable[..., Any], cache: Calls) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        turn = await arun(cache.begin(Invocation(args, kwargs)))
        if turn.served:
            return turn.value
        with cache.held(turn), cache.led(turn):
            value = await function(*turn.args, **turn.kwargs)
        await cache.afinish(turn, value)
        cache.score_later(turn, on_loop=True)
        return value

    return call


def _wrap_stream(function: Callable[..., Any], cache: Calls) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        turn = run(cache.begin(Invocation(args, kwargs)))
        if turn.served:
            for item in turn.value:
                _hears_nothing((yield item))
            return None
        items = _Items(cache, keeps=turn.keeps)
        stream = function(*turn.args, **turn.kwargs)
        returned = None
        try:
            item = next(stream)
            while True:
                items.add(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - it is the stream's to deal with
                    items.spoil()
                    item = stream.throw(error)
                else:
                    items.note(sent)
                    item = stream.send(sent)
        except StopIteration as end:
            returned = end.value
        finally:
            stream.close()
        items.end(returned)
        if items.whole or items.refused:
            run(cache.finish(turn, items.frozen, whole=items.whole))
            cache.score_later(turn)
        return returned

    return call


def _wrap_async_stream(function: Callable[..., Any], cache: Calls) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        turn = await arun(cache.begin(Invocation(args, kwargs)))
        if turn.served:
            for item in turn.value:
                _hears_nothing((yield item))
            return
        items = _Items(cache, keeps=turn.keeps)
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
        if items.whole or items.refused:
            await cache.afinish(turn, items.frozen, whole=items.whole)
            cache.score_later(turn, on_loop=True)

    return call


def _hears_nothing(sent: Any) -> None:
    """Refuse a value sent to a cached stream: it could change what the function yields, but not what was kept."""
    if sent is not None:
        raise ConfigurationError("a cached stream cannot be sent a value: call the function in a bypass()")


class _Items:
    """The items of a stream, frozen as they come, as the reader may change them; empty, once it cannot be kept."""

    def __init__(self, calls: Calls, *, keeps: bool) -> None:
        self._calls = calls
        self._max_bytes = _MAX_STREAM_BYTES if calls.pool.max_bytes is None else calls.pool.max_bytes
        self._size = 0
        self.frozen: list[Frozen] = []
        self.whole = keeps
        self.refused = False

    def add(self, item: Any) -> None:
        if not self.whole:
            return
        try:
            frozen = self._calls.responses.freeze(item)
        except SerializationError as error:
            self.refuse(error)
            return
        self._size += len(encode(frozen.data))
        self.frozen.append(frozen)
        if self._size > self._max_bytes:
            self.refuse(SerializationError(f"a stream of more than {self._max_bytes:,} bytes is too long"))

    def note(self, sent: Any) -> None:
        """Note what was sent: a stream that receives a value depends on more than its arguments, so is not kept."""
        if sent is not None:
            self.spoil()

    def end(self, returned: Any) -> None:
        """Refuse a stream with a return value, which is not kept."""
        if self.whole and returned is not None:
            self.refuse(SerializationError(f"what a stream returns ({type(returned).__qualname__}) is not kept"))

    def refuse(self, error: SerializationError) -> None:
        self._calls.refuse(error)
        self.refused = True
        self.spoil()

    def spoil(self) -> None:
        self.whole = False
        self.frozen.clear()
