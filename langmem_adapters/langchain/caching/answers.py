"""Answers of chat models as experiences: looked up before a call, kept after it, shared by those who ask at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation

from langmem_adapters import views
from langmem_adapters.codec import plain
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience import DataSerializer, ExperiencePool, FunctionCache, Judge, Scorer
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.model_answers import said
from langmem_adapters.experience.policies import age_of
from langmem_adapters.experience.responses import Responses
from langmem_adapters.experience.single_flight.asking import RequestArguments, SingleFlightAnswers
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.langchain.caching.chunks import as_reported, copied, pieces, whole
from langmem_adapters.langchain.caching.costs import count_saved, metric_of
from langmem_adapters.langchain.caching.generations import read_generations, worth_storing, write_generations
from langmem_adapters.langchain.caching.paraphrases import Paraphrases
from langmem_adapters.langchain.caching.prompt import messages_in
from langmem_adapters.langchain.caching.tools import Tools
from langmem_adapters.langchain.unseen import unseen
from langmem_adapters.model import Experience, Metric
from langmem_adapters.warn_once import WarnOnce

__all__ = ["Answers", "Examples", "Request"]

Examples: TypeAlias = Sequence[Experience]
"""What was answered to requests like this one; none, unless examples are wanted."""


class Request(NamedTuple):
    """A request as a cache of LangChain is shown it, its key, and what the user asked, to find similar ones by."""

    prompt: str
    llm_string: str
    key: str
    question: str


class Answers(SingleFlightAnswers):
    """The answers in a pool, around the calls of a model. Each method calls the model with what is similar.

    Args:
        pool: Where they are.
        should_store: Decides which answers are worth keeping.
        scorer, judge: See :class:`~langmem_adapters.langchain.ExperienceMiddleware`.
        examples: How many similar experiences a model is shown on a miss. Above 0, questions are kept too, and the
            pool needs an index; else hashes alone are kept.
        tools: Which tools give the same answer tomorrow. What was made with others is never shown as an example.
        alike: The cache that finds and keeps answers to the same in other words; None: only the very same has one.
        scoring: Has the answers scored, for others too; None: one of its own, by the scorer.
        counts: Where it is counted what was seen, for others too; None: counts of its own.
        output_version: The form of content that the model's ``output_version`` asks for.
        wait: Seconds to wait at the most for another who asks the same; 0: everybody asks.
        on_error: What an outage of the store does to a model call: "degrade" goes on without, "raise" raises.
        clock: Gives Unix seconds. ``new_id`` gives ids.
    """

    _calls: _Calls

    def __init__(
        self,
        pool: ExperiencePool,
        *,
        should_store: Callable[[Sequence[Generation]], bool] = worth_storing,
        scorer: Scorer | None = None,
        judge: Judge | None = None,
        examples: int = 0,
        tools: Tools | None = None,
        alike: Paraphrases | None = None,
        scoring: BackgroundScoring | None = None,
        counts: Counter[str] | None = None,
        output_version: str | None = None,
        wait: float = 60.0,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self.pool = pool
        self._output_version = output_version
        self._counts: Counter[str] = Counter() if counts is None else counts
        self._warn = WarnOnce()
        rules = Rules(
            should_store=should_store,
            metric=metric_of,
            scorer=scorer,
            judge=judge,
            context_builder=_found if examples else None,
            request="examples",
            k=examples,
            wait=wait,
            on_error=on_error,
        )
        rules.check(_call.__qualname__, is_async=True)
        self._calls = _Calls(
            _call,
            lambda: pool,
            rules=rules,
            arguments=RequestArguments(_call),
            responses=_Generations(clock, new_id),
            keep_requests=examples > 0,
            scoring=scoring,
            counts=self._counts,
            clock=clock,
            new_id=new_id,
        )
        self._calls.alike = alike
        self._calls.tools = (tools or Tools()) if examples else None

    def invoke(self, request: Request, ask: Callable[[Examples], ChatResult]) -> ChatResult:
        """The answer to a request: a kept one, or the model's."""
        turn = Invocation((*request, ()), {})
        with self._calls.held(turn):
            with unseen(), self._apart(request.key):
                run(self._calls.begin(turn))
            if turn.served:
                return ChatResult(generations=self._served(turn))
            with self._calls.led(turn):
                result = ask(turn.args[-1])
                generations = as_reported(result, self._output_version)
            run(self._calls.finish(turn, generations))
        self._calls.score_later(turn)
        return result

    async def ainvoke(self, request: Request, ask: Callable[[Examples], Awaitable[ChatResult]]) -> ChatResult:
        """:meth:`invoke`, without blocking the event loop."""
        with unseen(), self._apart(request.key):
            turn = await arun(self._calls.begin(Invocation((*request, ()), {})))
        if turn.served:
            return ChatResult(generations=self._served(turn))
        with self._calls.held(turn), self._calls.led(turn):
            result = await ask(turn.args[-1])
            generations = as_reported(result, self._output_version)
        await self._calls.afinish(turn, generations)
        self._calls.ascore_later(turn)
        return result

    def stream(
        self, request: Request, ask: Callable[[Examples], Iterator[ChatGenerationChunk]]
    ) -> Iterator[ChatGenerationChunk]:
        """The answer in pieces. It is kept when the last was read."""
        turn = Invocation((*request, ()), {})
        chunks: list[ChatGenerationChunk] = []
        with self._calls.held(turn):
            with unseen(), self._apart(request.key):
                run(self._calls.begin(turn))
            if turn.served:
                yield from pieces(self._served(turn)[0])
                return
            self._read_by(turn, threading.current_thread())
            for chunk in ask(turn.args[-1]):
                chunks.append(copied(chunk))
                with self._handed_out(turn):
                    yield chunk
            generations = as_reported(whole(chunks), self._output_version)
            run(self._calls.finish(turn, generations))
        self._calls.score_later(turn)

    async def astream(
        self, request: Request, ask: Callable[[Examples], AsyncIterator[ChatGenerationChunk]]
    ) -> AsyncIterator[ChatGenerationChunk]:
        """:meth:`stream`, without blocking the event loop."""
        with unseen(), self._apart(request.key):
            turn = await arun(self._calls.begin(Invocation((*request, ()), {})))
        if turn.served:
            for piece in pieces(self._served(turn)[0]):
                yield piece
            return
        chunks: list[ChatGenerationChunk] = []
        with self._calls.held(turn):
            self._read_by(turn, None)
            async for chunk in ask(turn.args[-1]):
                chunks.append(copied(chunk))
                with self._handed_out(turn):
                    yield chunk
            generations = as_reported(whole(chunks), self._output_version)
        await self._calls.afinish(turn, generations)
        self._calls.ascore_later(turn)

    def stats(self) -> dict[str, Any]:
        """The pool's counts and what was saved, tokens by the usage of what was served; and what else was seen.

        Hits that were shared by a call in the air; refused answers, errors, requests without a key; answers scored,
        and those that the scorer failed at.
        """
        seen = self._calls.stats()
        own = {name: seen[name] for name in ("shared", "refused", "errors", "scored", "unscored")}
        own |= {name: self._counts[name] for name in ("unkeyed", "saved_tokens")}
        if self._calls.alike:
            own |= self._calls.alike._semantic_stats()  # noqa: SLF001 - what a cache does itself for LangChain
        elif seen["rejected"]:
            own |= {name: self._counts[name] for name in ("rejected", "rejected_judge")}
        counts = {**self.pool.stats(), **own}
        return views.Figures(counts, title="Cached answers")

    def _served(self, turn: Invocation) -> list[ChatGeneration]:
        generations: list[ChatGeneration] = turn.value
        for generation in generations:
            metadata = generation.message.response_metadata
            metadata["cache_key"] = metadata["cache_key"] or turn.key
        count_saved(self._counts, generations)
        return generations


def _call(prompt: str, llm_string: str, key: str, question: str, examples: Examples) -> None:
    """Say what a call is made with."""


_call.__qualname__ = "the model call"  # as it is called in the log


def _found(_: Any, experiences: Examples) -> Examples:
    return experiences


class _Calls(FunctionCache):
    """Where there is no answer to the very same, one to the same in other words is looked for, once."""

    alike: Paraphrases | None = None
    tools: Tools | None = None  # by which an answer may be an example; None: no matter

    def _serve(self, turn: Invocation, *, again: bool = False) -> Flow[bool]:
        if (yield from super()._serve(turn, again=again)):
            return True
        if again or self.alike is None:
            return False
        find = self.alike._look_alike  # noqa: SLF001 - what a cache does itself for LangChain
        found = yield from find(turn.counted["prompt"], turn.counted["llm_string"])
        turn.value, turn.served = found, found is not None
        self._counts["hits"] += turn.served
        return turn.served

    def _reject(self) -> None:
        self._counts.update(("rejected", "rejected_judge"))

    def _create(self, turn: Invocation, value: Any, made: Experience) -> Flow[Experience]:
        counted = turn.counted
        if self.alike is not None:
            create = self.alike._create  # noqa: SLF001 - what a cache does itself for LangChain
            return (yield from create(counted["prompt"], counted["llm_string"], turn.key, value, made))
        if self.tools is not None and not self._may_be_shown(self.tools, turn, value):
            made = made.model_copy(update={"req": None})  # D3: found by nothing, so shown to nobody
        return (yield from super()._create(turn, value, made))

    @unseen()
    def score_later(self, turn: Invocation) -> None:
        super().score_later(turn)

    @unseen()
    def ascore_later(self, turn: Invocation) -> None:
        super().ascore_later(turn)

    @staticmethod
    def _may_be_shown(tools: Tools, turn: Invocation, value: Any) -> bool:
        """Whether no tool had a part in an answer whose results may be others tomorrow."""
        return tools.are_all_of(value) and tools.gave_all(messages_in(turn.counted["prompt"]))


class _Generations(Responses):
    """Answers as :class:`~langmem_adapters.langchain.ExperienceCache` keeps them, so that both read both."""

    def __init__(self, clock: Callable[[], float], new_id: Callable[[], str]) -> None:
        super().__init__(_call, serializer=DataSerializer(), stream=False)
        self._clock = clock
        self._new_id = new_id

    def experience(self, value: Any, *, req: Any, metric: Metric) -> Experience:
        data = write_generations(value)
        plain(data)  # raises for what is no data
        return Experience(req=req, resp=data, metric=metric)

    def shown(self, experience: Experience) -> str:
        return said(experience.resp)

    def of(self, experience: Experience) -> list[ChatGeneration]:
        age = age_of(experience, self._clock())
        generations = read_generations(experience.resp, key="", age=age, new_id=self._new_id)
        if not all(isinstance(generation, ChatGeneration) for generation in generations):
            raise SerializationError("a stored answer is not that of a chat model")
        return [generation for generation in generations if isinstance(generation, ChatGeneration)]
