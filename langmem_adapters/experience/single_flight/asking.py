"""Models with a cache: answers looked up before a call, kept after it, and shared by those who ask at once."""

from __future__ import annotations

import inspect
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast

from langmem_adapters import views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.cached import FunctionCache
from langmem_adapters.experience.functions.arguments import Arguments
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.policies import age_of
from langmem_adapters.experience.pool import ExperiencePool
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.serializers import DataSerializer
from langmem_adapters.experience.single_flight.flights import Flight
from langmem_adapters.experience.single_flight.tenants import Tenants
from langmem_adapters.experience.switches import Switches
from langmem_adapters.flow import arun, run
from langmem_adapters.model import Experience
from langmem_adapters.sharing import Shared

__all__ = ["CachedModel", "KeptAnswers", "Recording", "SingleFlightAnswers", "opened_again"]

A = TypeVar("A")
M = TypeVar("M", bound="CachedModel")

_NAME = "the model call"  # as it is called in the log
_SEEN = ("shared", "rejected", "refused", "errors", "scored", "unscored")
_OWN = ("unkeyed", "bypassed", "saved_tokens")
_reading: ContextVar[tuple[Flight, ...]] = ContextVar("langmem_reading", default=())


class _RequestArguments(Arguments):
    """A request in the place of the arguments of a function: it comes whole, and with its key."""

    def __init__(self, request: type[tuple[Any, ...]]) -> None:
        super().__init__(request, trusted=True)
        self.name = _NAME

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:  # noqa: ARG002 - none
        """As they are given, by name: Python's own way takes a third of the time of a hit."""
        return inspect.BoundArguments(self.signature, OrderedDict(zip(self.signature.parameters, args, strict=True)))

    def counted(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """All of them."""
        return dict(bound.arguments)

    def key(self, counted: Mapping[str, Any], owner: str = "") -> str:  # noqa: ARG002 - of no method
        """What the request is known by."""
        return str(counted["key"])

    def made_by(self, owner: str = "") -> str:  # noqa: ARG002 - same
        """Nothing: all that is asked may be compared."""
        return ""

    def request(self, counted: Mapping[str, Any]) -> Any:
        """What was asked."""
        return counted["question"]


class KeptAnswers(Responses):
    """Answers of a host's models as its caches keep them."""

    def __init__(self, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        super().__init__(type(self), serializer=DataSerializer(), stream=False)
        self._clock = clock
        self._new_id = new_id

    def _age(self, experience: Experience) -> float:
        return age_of(experience, self._clock())


class Recording(Protocol):
    """What a stream comes to, while it is read."""

    def take(self, piece: Any, /) -> None:
        """Note the next piece of it, as it is now."""

    def whole(self) -> Any:
        """The answer; None, if nothing came."""


def _same(pieces: Any) -> Any:
    return pieces


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _async(pieces: Iterator[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        yield piece


class SingleFlightAnswers(Shared):
    """The answers in a pool, around the calls of a host's model.

    Args:
        pool: Where they are.
        request: What a call is made with, as a class of named tuples; they have a ``key``.
        rules: What decides about the calls.
        responses: Makes experiences of answers, and answers of experiences.
        cache: The kind of cache of such a call.
        counts: Where it is counted what was seen, for others too; None: counts of its own.
        more: Of the cache.
    """

    _recording: type[Recording]

    def __init__(
        self,
        pool: ExperiencePool,
        request: type[tuple[Any, ...]],
        *,
        rules: Rules,
        responses: KeptAnswers,
        cache: type[FunctionCache] = FunctionCache,
        counts: Counts | None = None,
        **more: Any,
    ) -> None:
        rules.check(_NAME, is_async=True)
        self.pool = pool
        self._counts = Counts() if counts is None else counts
        arguments = _RequestArguments(request)
        self._calls = cache(
            lambda: pool, rules=rules, arguments=arguments, responses=responses, counts=self._counts, **more
        )

    def invoke(self, asked: Any, ask: Callable[[Any], A], give: Callable[[Any], A]) -> A:
        """The model's answer to a request, or what ``give`` makes of a kept one.

        Args:
            asked: The request, as a named tuple with its ``key``; None, where it has no key: then the model is asked.
            ask: Asks the model. It is told the request, into which similar experiences may have been put.
            give: Is told what is kept.
        """
        if asked is None:
            return ask(None)
        turn = Invocation(asked, {})
        with self._calls.held(turn):
            with self._apart(asked.key):
                run(self._calls.begin(turn))
            if turn.served:
                return give(self._served(turn))
            with self._calls.led(turn):
                answer = ask(turn.args)
                kept = self._kept(answer)
            run(self._calls.finish(turn, kept))
        self._calls.score_later(turn)
        return answer

    async def ainvoke(self, asked: Any, ask: Callable[[Any], Awaitable[A]], give: Callable[[Any], Any]) -> A:
        """:meth:`invoke`, without blocking the event loop; what ``give`` gives may have to be awaited."""
        if asked is None:
            return await ask(None)
        with self._apart(asked.key):
            turn = await arun(self._calls.begin(Invocation(asked, {})))
        if turn.served:
            return cast("A", await _settled(give(self._served(turn))))
        with self._calls.held(turn), self._calls.led(turn):
            answer = await ask(turn.args)
            kept = self._kept(answer)
        await self._calls.afinish(turn, kept)
        self._calls.score_later(turn, on_loop=True)
        return answer

    def stream(self, asked: Any, ask: Callable[[Any], Iterator[A]], give: Callable[[Any], Any] = _same) -> Iterator[A]:
        """:meth:`invoke` for streams, of which ``give`` is told the pieces. One is kept when the last was read."""
        if asked is None:
            return ask(None)
        turn = Invocation(asked, {})
        with self._calls.held(turn):
            with self._apart(asked.key):
                run(self._calls.begin(turn))
            if turn.served:
                return cast("Iterator[A]", give(self._pieces(self._served(turn))))
            stream = ask(turn.args)
            self._read_by(turn, threading.current_thread(), begun=False)
            return self._recorded(turn, stream)

    def _recorded(self, turn: Invocation, stream: Iterator[A]) -> Iterator[A]:
        recording = self._recording()
        with self._calls.held(turn):
            self._read_by(turn, threading.current_thread())
            for piece in stream:
                recording.take(piece)
                with self._handed_out(turn):
                    yield piece
            answer = recording.whole()
            kept = None if answer is None else self._kept(answer)
        if answer is None:
            self._calls.let_go(turn)
        else:
            run(self._calls.finish(turn, kept))
            self._calls.score_later(turn)

    async def astream(
        self, asked: Any, ask: Callable[[Any], Any], give: Callable[[Any], Any] = _same
    ) -> AsyncIterator[Any]:
        """:meth:`stream`, without blocking the event loop; what ``ask`` and ``give`` give may have to be awaited."""
        if asked is None:
            return cast("AsyncIterator[Any]", await _settled(ask(None)))
        with self._apart(asked.key):
            turn = await arun(self._calls.begin(Invocation(asked, {})))
        if turn.served:
            return cast("AsyncIterator[Any]", await _settled(give(_async(self._pieces(self._served(turn))))))
        with self._calls.held(turn):
            stream = await _settled(ask(turn.args))
            self._read_by(turn, None, begun=False)
            return self._arecorded(turn, stream)

    async def _arecorded(self, turn: Invocation, stream: AsyncIterator[A]) -> AsyncIterator[A]:
        recording = self._recording()
        with self._calls.held(turn):
            self._read_by(turn, None)
            async for piece in stream:
                recording.take(piece)
                with self._handed_out(turn):
                    yield piece
            answer = recording.whole()
            kept = None if answer is None else self._kept(answer)
        if answer is None:
            self._calls.let_go(turn)
        else:
            await self._calls.afinish(turn, kept)
            self._calls.score_later(turn, on_loop=True)

    def _served(self, turn: Invocation) -> Any:
        """Mark and count what a hit is served with."""
        raise NotImplementedError

    def _pieces(self, served: Any) -> Iterator[Any]:
        """What is served, as a stream gives it."""
        raise NotImplementedError

    def _kept(self, answer: Any) -> Any:
        """What is kept of an answer."""
        return answer

    def stats(self) -> dict[str, Any]:
        """The pool's counts and what was saved, tokens by the usage of what was served; and what else was seen.

        Hits that were shared by a call in the air; answers that the judge rejected; refused answers, errors, requests
        without a key, calls bypassed for want of a tenant; answers scored, and those that the scorer failed at.
        """
        seen = self._calls.stats()
        own = {name: seen[name] for name in _SEEN} | {name: self._counts[name] for name in _OWN}
        return views.Figures({**self.pool.stats(), **own}, title="Cached answers")

    def flush(self) -> None:
        """Wait for the scores that are being made in the background."""
        self._calls.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also for those that are made on it."""
        await self._calls.aflush()

    def pass_by(self, error: SerializationError) -> None:
        """Count and tell a request that has no key, as it cannot be told from another."""
        self._counts.add("unkeyed")
        self._calls.warn("requests without a key bypass the cache", error)

    @staticmethod
    def _read_by(turn: Invocation, thread: threading.Thread | None, *, begun: bool = True) -> None:
        """Note who reads a stream, or is about to: they must not wait for themselves, if they ask the same again."""
        own = turn.flight
        if own is not None:
            own.reader = thread
            if begun:
                own.read_on()
            else:
                own.hand_out(begun=False)
            others = (flight for flight in _reading.get() if flight is not own and not flight.landed.done())
            _reading.set((*others, own))

    @staticmethod
    @contextmanager
    def _handed_out(turn: Invocation) -> Iterator[None]:
        """While a reader has a piece of a stream, who may never ask for the next."""
        flight = turn.flight
        if flight is None:
            yield
            return
        flight.hand_out()
        try:
            yield
        finally:
            flight.read_on()

    def _apart(self, key: str) -> AbstractContextManager[None]:
        """Apart from a stream of the same that is read here, or about to be."""
        flight = self._calls.flights.of(key)
        own = flight is not None and (flight in _reading.get() or flight.reader is threading.current_thread())
        return self._calls.led(Invocation((), {}, flight=flight if own else None))


class CachedModel(Switches):
    """What a host's cache of answers, and every model that has one, can be asked about it."""

    _tenants: Tenants[Any]  # of SingleFlightAnswers, of each host its own kind

    @property
    def _answers(self) -> Any:
        """The answers of who is being served."""
        return self._tenants.here() or self._tenants.nobody

    def stats(self) -> dict[str, Any]:
        """Hits, misses, shared (hits for which somebody else had just asked), stored, refused, errors, scored.

        And what the hits have saved: saved_tokens, saved_seconds, and saved_money by the ``prices`` of the cache.
        """
        stats: dict[str, Any] = self._answers.stats()
        return stats

    def flush(self) -> None:
        """Wait for the scores that are being made in the background."""
        self._answers.flush()

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop; also for those that are made on it."""
        await self._answers.aflush()

    def _of_model(self, wrapped: object) -> str:
        return views.attempt(self, lambda: views.statistics(self.stats(), title=f"Cached {type(wrapped).__name__}"))


def opened_again(kind: type[M], make: Callable[[M], None], fields: Mapping[str, Any]) -> M:
    """A cached model out of a pickle, also of a class of the user's own, which may be made in another way."""
    model = kind.__new__(kind)
    make(model)
    for name, value in fields.items():
        setattr(model, name, value)
    return model
