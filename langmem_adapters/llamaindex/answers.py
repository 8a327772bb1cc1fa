"""Responses of models as experiences: looked up before a call, kept after it, shared by those who ask at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Literal, NamedTuple, cast

from langmem_adapters import views
from langmem_adapters.experience import DataSerializer, ExperiencePool, FunctionCache, Judge, Scorer
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.model_answers import said
from langmem_adapters.experience.policies import age_of
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.single_flight.asking import RequestArguments, SingleFlightAnswers
from langmem_adapters.flow import arun, run
from langmem_adapters.llamaindex.responses import (
    Recording,
    Response,
    pieces,
    read_response,
    usage_of,
    worth_storing,
    write_response,
)
from langmem_adapters.model import Experience, Metric
from langmem_adapters.warn_once import WarnOnce

__all__ = ["Answers", "KeyedRequest"]


class KeyedRequest(NamedTuple):
    """A request by its key, and what the user asked, for those who score and judge."""

    key: str
    question: str


class Answers(SingleFlightAnswers):
    """The responses in a pool, around the calls of a model.

    Args:
        pool: Where they are.
        model: Gives the model's name, for what its responses cost.
        should_store: Decides which responses are worth keeping.
        scorer, judge: See :class:`~langmem_adapters.llamaindex.CachedLLM`.
        wait: Seconds to wait at the most for another who asks the same; 0: everybody asks.
        on_error: What an outage of the store does to a model call: "degrade" goes on without, "raise" raises.
        clock: Gives Unix seconds. ``new_id`` gives ids.
    """

    def __init__(
        self,
        pool: ExperiencePool,
        *,
        model: Callable[[], str],
        should_store: Callable[[Any], bool] = worth_storing,
        scorer: Scorer | None = None,
        judge: Judge | None = None,
        wait: float = 60.0,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self.pool = pool
        self._counts: Counter[str] = Counter()
        self._warn = WarnOnce()

        def metric(response: Any) -> Metric:
            used = usage_of(response) or {}
            counts = {name: used.get(name, 0) for name in ("input_tokens", "output_tokens")}
            return Metric(model=model(), **counts)

        rules = Rules(
            should_store=should_store,
            metric=metric,
            scorer=scorer,
            judge=judge,
            request="key",
            wait=wait,
            on_error=on_error,
        )
        rules.check(_call.__qualname__, is_async=True)
        self._calls = FunctionCache(
            _call,
            lambda: pool,
            rules=rules,
            arguments=RequestArguments(_call),
            responses=_Kept(clock, new_id),
            keep_requests=False,
            counts=self._counts,
            clock=clock,
            new_id=new_id,
        )

    def invoke(self, asked: KeyedRequest | None, ask: Callable[[], Any], give: Callable[[Any], Any]) -> Any:
        """The model's response to a request, or what ``give`` makes of a kept one. Without a key, the model's."""
        if asked is None:
            return ask()
        turn = Invocation(asked, {})
        with self._calls.held(turn):
            with self._apart(asked.key):
                run(self._calls.begin(turn))
            if turn.served:
                return give(self._served(turn))
            with self._calls.led(turn):
                response = ask()
            run(self._calls.finish(turn, response))
        self._calls.score_later(turn)
        return response

    async def ainvoke(
        self, asked: KeyedRequest | None, ask: Callable[[], Awaitable[Any]], give: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """:meth:`invoke`, without blocking the event loop."""
        if asked is None:
            return await ask()
        with self._apart(asked.key):
            turn = await arun(self._calls.begin(Invocation(asked, {})))
        if turn.served:
            return await give(self._served(turn))
        with self._calls.held(turn), self._calls.led(turn):
            response = await ask()
        await self._calls.afinish(turn, response)
        self._calls.ascore_later(turn)
        return response

    def stream(
        self, asked: KeyedRequest | None, ask: Callable[[], Iterator[Any]], give: Callable[[Any], Any]
    ) -> Iterator[Any]:
        """:meth:`invoke` for streams. A response is kept when the last of them was read."""
        if asked is None:
            return ask()
        turn = Invocation(asked, {})
        with self._calls.held(turn):
            with self._apart(asked.key):
                run(self._calls.begin(turn))
            if turn.served:
                return cast("Iterator[Any]", give(pieces(self._served(turn))))
            stream = ask()
            self._read_by(turn, threading.current_thread(), begun=False)
            return self._recorded(turn, stream)

    def _recorded(self, turn: Invocation, stream: Iterator[Any]) -> Iterator[Any]:
        recording = Recording()
        with self._calls.held(turn):
            self._read_by(turn, threading.current_thread())
            for response in stream:
                recording.take(response)
                with self._handed_out(turn):
                    yield response
        if (response := recording.whole()) is None:
            self._calls.let_go(turn)
        else:
            run(self._calls.finish(turn, response))
            self._calls.score_later(turn)

    async def astream(
        self, asked: KeyedRequest | None, ask: Callable[[], Awaitable[Any]], give: Callable[[Any], Awaitable[Any]]
    ) -> AsyncIterator[Any]:
        """:meth:`stream`, without blocking the event loop."""
        if asked is None:
            return cast("AsyncIterator[Any]", await ask())
        with self._apart(asked.key):
            turn = await arun(self._calls.begin(Invocation(asked, {})))
        if turn.served:
            return cast("AsyncIterator[Any]", await give(_async(pieces(self._served(turn)))))
        with self._calls.held(turn):
            stream = await ask()
            self._read_by(turn, None, begun=False)
            return self._arecorded(turn, stream)

    async def _arecorded(self, turn: Invocation, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        recording = Recording()
        with self._calls.held(turn):
            self._read_by(turn, None)
            async for response in stream:
                recording.take(response)
                with self._handed_out(turn):
                    yield response
        if (response := recording.whole()) is None:
            self._calls.let_go(turn)
        else:
            await self._calls.afinish(turn, response)
            self._calls.ascore_later(turn)

    def stats(self) -> dict[str, Any]:
        """The pool's counts and what was saved, tokens by the usage of what was served; and what else was seen.

        Hits that others had just asked for; refused responses, errors, requests without a key; those that the judge
        rejected; responses scored, and those that the scorer failed at.
        """
        seen = self._calls.stats()
        own = {name: seen[name] for name in ("shared", "rejected", "refused", "errors", "scored", "unscored")}
        own |= {name: self._counts[name] for name in ("unkeyed", "saved_tokens")}
        return views.Figures({**self.pool.stats(), **own}, title="Cached answers")

    def _served(self, turn: Invocation) -> Any:
        kwargs = turn.value.additional_kwargs
        kwargs["cache_key"] = turn.key
        saved = (kwargs["cache_usage"] or {}).get("total_tokens", 0)
        self._counts["saved_tokens"] += saved  # known before, as another thread may add its own meanwhile
        return turn.value


def _call(key: str, question: str) -> None:
    """Say what a call is made with."""


_call.__qualname__ = "the model call"  # as it is called in the log


async def _async(items: Iterator[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


class _Kept(Responses):
    """Responses as plain data."""

    def __init__(self, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        super().__init__(_call, serializer=DataSerializer(), stream=False)
        self._clock = clock
        self._new_id = new_id

    def experience(self, value: Any, *, req: Any, metric: Metric) -> Experience:
        return Experience(req=req, resp=write_response(value), metric=metric)

    def shown(self, experience: Experience) -> str:
        return said([experience.resp])

    def of(self, experience: Experience) -> Response:
        return read_response(experience.resp, age=age_of(experience, self._clock()), new_id=self._new_id)
