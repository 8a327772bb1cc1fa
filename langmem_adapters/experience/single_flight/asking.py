"""Models with a cache: answers are looked up before a call, kept after it, and shared by concurrent callers."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from langmem_adapters import views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import LangmemError, SerializationError
from langmem_adapters.experience.functions.calls import Calls
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.policies import age_of
from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.serializers import DataSerializer
from langmem_adapters.experience.single_flight.flights import Flight
from langmem_adapters.experience.single_flight.request_arguments import CALL_NAME, RequestArguments
from langmem_adapters.experience.single_flight.tenants import Tenants
from langmem_adapters.experience.switches import bypass, refresh
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.model import Experience
from langmem_adapters.sharing import Shared

A = TypeVar("A")
M = TypeVar("M", bound="CachedModel")

_COUNT_NAMES = ("shared", "rejected", "refused", "errors", "unkeyed", "bypassed", "saved_tokens")
_MAX_PIECES_AT_ONCE = 100  # that an event loop is given before anything else may run on it
_open_streams: ContextVar[tuple[Flight, ...]] = ContextVar("langmem_reading", default=())


class StoredAnswers(Responses):
    """The answers of a host's models, in the form in which its caches keep them."""

    def __init__(self, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        super().__init__(type(self), serializer=DataSerializer(), stream=False)
        self._clock = clock
        self._new_id = new_id

    def _age(self, experience: Experience) -> float:
        return age_of(experience, self._clock())


class Recording(Protocol):
    """Gathers the pieces of a stream into an answer."""

    def take(self, piece: Any, /) -> None:
        """Note the next piece in its current state."""

    def answer(self) -> Any:
        """The answer; None, if no piece came."""


async def _await_if_needed(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _to_async(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    for count, piece in enumerate(pieces, 1):
        yield piece
        if not count % _MAX_PIECES_AT_ONCE:
            await asyncio.sleep(0)  # let others run: a model's own stream waits for each piece


class SingleFlightAnswers(Shared):
    """Serves and keeps the answers of a host's model in a pool, with single flight.

    ``request`` is the class of requests: a named tuple with a ``key``. ``options`` are further arguments of ``calls``.
    """

    _recording: type[Recording]

    def __init__(
        self,
        pool: ExperiencePool,
        request: type[tuple[Any, ...]],
        *,
        rules: Rules,
        responses: StoredAnswers,
        calls: type[Calls],
        counts: Counts,
        **options: Any,
    ) -> None:
        rules.check(CALL_NAME, is_async=True)
        self.pool = pool
        self._counts = counts
        arguments = RequestArguments(request)
        self._calls = calls(
            lambda: pool, rules=rules, arguments=arguments, responses=responses, counts=self._counts, **options
        )
        self.scoring = self._calls.scoring

    def invoke(self, request: Any, ask: Callable[[Any], A], convert: Callable[[Any], A]) -> A:
        """The model's answer to a request, or what ``convert`` returns for a kept answer.

        Args:
            request: A named tuple with its ``key``; None, if it has no key: then the model is always asked.
            ask: Asks the model. It is given the call; its ``args`` are the request, into which similar experiences may
                have been put. Without a key, it is given None.
            convert: Converts a kept answer.
        """
        if request is None:
            return ask(None)
        call = Invocation(request, {})
        with self._calls.held(call):
            with self._avoiding_self_wait(request.key):
                run(self._calls.begin(call))
            if call.served:
                return convert(self._mark_served(call.key, call.value))
            with self._calls.led(call):
                answer = ask(call)
                storable = self._storable(answer)
            run(self._calls.finish(call, storable))
        self._calls.score_later(call)
        return answer

    async def ainvoke(self, request: Any, ask: Callable[[Any], Awaitable[A]], convert: Callable[[Any], Any]) -> A:
        """:meth:`invoke`, without blocking the event loop; ``convert`` may return an awaitable."""
        if request is None:
            return await ask(None)
        with self._avoiding_self_wait(request.key):
            call = await arun(self._calls.begin(Invocation(request, {})))
        if call.served:
            return cast("A", await _await_if_needed(convert(self._mark_served(call.key, call.value))))
        with self._calls.held(call), self._calls.led(call):
            answer = await ask(call)
            storable = self._storable(answer)
        await self._calls.afinish(call, storable)
        self._calls.score_later(call, on_loop=True)
        return answer

    def stream(
        self, request: Any, ask: Callable[[Any], Iterator[A]], convert: Callable[[Any], Any] = lambda pieces: pieces
    ) -> Iterator[A]:
        """:meth:`invoke` for streams; ``convert`` converts the pieces. A stream is kept once it was read to its end."""
        if request is None:
            return ask(None)
        call = Invocation(request, {})
        with self._calls.held(call):
            with self._avoiding_self_wait(request.key):
                run(self._calls.begin(call))
            if call.served:
                return cast("Iterator[A]", convert(self._pieces(self._mark_served(call.key, call.value))))
            stream = ask(call)
            self._note_reader(call, threading.current_thread(), is_started=False)
            return self._record(call, stream)

    def _record(self, call: Invocation, stream: Iterator[A]) -> Iterator[A]:
        recording = self._recording()
        with self._calls.held(call):
            self._note_reader(call, threading.current_thread())
            try:
                for piece in stream:
                    recording.take(piece)
                    with self._handing_out(call):
                        yield piece
            finally:
                del stream  # else the traceback of an error here would keep it open, and its connection
            answer = recording.answer()
            storable = None if answer is None else self._storable(answer)
        if answer is None:
            self._calls.let_go(call)
        else:
            run(self._calls.finish(call, storable))
            self._calls.score_later(call)

    async def astream(
        self, request: Any, ask: Callable[[Any], Any], convert: Callable[[Any], Any] = lambda pieces: pieces
    ) -> AsyncIterator[Any]:
        """:meth:`stream`, without blocking the event loop; ``ask`` and ``convert`` may return awaitables."""
        if request is None:
            return cast("AsyncIterator[Any]", await _await_if_needed(ask(None)))
        with self._avoiding_self_wait(request.key):
            call = await arun(self._calls.begin(Invocation(request, {})))
        if call.served:
            pieces = _to_async(self._pieces(self._mark_served(call.key, call.value)))
            return cast("AsyncIterator[Any]", await _await_if_needed(convert(pieces)))
        with self._calls.held(call):
            stream = await _await_if_needed(ask(call))
            self._note_reader(call, None, is_started=False)
            return self._arecord(call, stream)

    async def _arecord(self, call: Invocation, stream: AsyncIterator[A]) -> AsyncIterator[A]:
        recording = self._recording()
        with self._calls.held(call):
            self._note_reader(call, None)
            try:
                async for piece in stream:
                    recording.take(piece)
                    with self._handing_out(call):
                        yield piece
            finally:
                del stream  # as in _record
            answer = recording.answer()
            storable = None if answer is None else self._storable(answer)
        if answer is None:
            self._calls.let_go(call)
        else:
            await self._calls.afinish(call, storable)
            self._calls.score_later(call, on_loop=True)

    def _mark_served(self, key: str, answer: Any) -> Any:
        """Mark the answer of a hit as served, and count it."""
        raise NotImplementedError

    def _pieces(self, served: Any) -> Iterator[Any]:
        """The served answer as the pieces of a stream."""
        raise NotImplementedError

    def _storable(self, answer: Any) -> Any:
        """The part of an answer that is kept."""
        return answer

    def stats(self) -> dict[str, Any]:
        """The pool's counts and savings (tokens by the usage of the served answers), and those of the calls.

        shared: hits from a concurrent call; rejected: by the judge; refused: answers not kept; errors; unkeyed:
        requests without a key; bypassed: calls without a tenant; scored; unscored: the scorer failed or was too slow.
        """
        counts: dict[str, Any] = {name: self._counts[name] for name in _COUNT_NAMES}
        return views.Figures({**self.pool.stats(), **counts, **self.scoring.stats()}, title="Cached answers")

    def forget(self, keys: Iterable[str]) -> Flow[None]:
        """Delete these answers, which their callers could not use. In a bypass, none of them was served."""
        if not self.pool.writes:
            return
        try:
            for key in keys:
                yield from self.pool._delete(None, key, None)  # noqa: SLF001 - a part of this flow
        except LangmemError as error:
            self._calls._degrade(error)  # noqa: SLF001 - by the rules of its calls

    def refuse(self, call: Invocation) -> None:
        """Do not keep the answer of a call, nor pass it to those who wait: it was asked otherwise than its key says."""
        self._counts.add("refused", call.keeps)
        call.keeps = False

    def count_unkeyed(self, error: SerializationError) -> None:
        """Count a request that can have no key, and log a warning."""
        self._counts.add("unkeyed")
        self.scoring.warn("requests without a key bypass the cache", error)

    @staticmethod
    def _note_reader(call: Invocation, thread: threading.Thread | None, *, is_started: bool = True) -> None:
        """Note the reader of a stream, who must not wait for it when asking for the same key again."""
        flight = call.flight
        if flight is not None:
            flight.reader = thread
            if is_started:
                flight.read_on()
            else:
                flight.hand_out(is_started=False)
            others = (other for other in _open_streams.get() if other is not flight and not other.outcome.is_settled)
            _open_streams.set((*others, flight))

    @staticmethod
    @contextmanager
    def _handing_out(call: Invocation) -> Iterator[None]:
        """Mark that the reader has a piece of a stream, and may never ask for the next."""
        flight = call.flight
        if flight is None:
            yield
            return
        flight.hand_out()
        try:
            yield
        finally:
            flight.read_on()

    def _avoiding_self_wait(self, key: str) -> AbstractContextManager[None]:
        """Keep a call from waiting for a stream of the same key that its own task or thread reads, or will read."""
        flight = self._calls.flights.get(key)
        is_own = flight is not None and (flight in _open_streams.get() or flight.reader is threading.current_thread())
        return self._calls.flights.led(flight if is_own else None)


class CachedModel:
    """The methods that a host's answer cache, and every model with one, offers about the cache."""

    bypass = staticmethod(bypass)
    refresh = staticmethod(refresh)
    _tenants: Tenants[Any]  # of SingleFlightAnswers; each host has a subclass

    @property
    def _answers(self) -> Any:
        """The answers of the current tenant."""
        return self._tenants.current() or self._tenants.default

    def stats(self) -> dict[str, Any]:
        """Hits, misses, shared (hits from a concurrent call), stored, refused, errors, scored, bypassed and more.

        Also what the hits have saved: saved_tokens, saved_seconds, and saved_money by the ``prices`` of the cache.
        """
        stats: dict[str, Any] = self._answers.stats()
        return stats

    def flush(self) -> None:
        """Wait for the scores that are being made in the background."""
        self._answers.scoring.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also waits for scores that are made on it."""
        await self._answers.scoring.aflush()

    def _model_html(self, wrapped: object) -> str:
        return views.render_safely(
            self, lambda: views.statistics(self.stats(), title=f"Cached {type(wrapped).__name__}")
        )


def opened_again(kind: type[M], make: partial[None], fields: Mapping[str, Any]) -> M:
    """Unpickle a cached model, also of a subclass, whose constructor may differ."""
    model = kind.__new__(kind, **make.keywords)
    make(model)
    for name, value in fields.items():
        setattr(model, name, value)
    return model
