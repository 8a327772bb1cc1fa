"""Answers of chat models as experiences: looked up before a call, kept after it, shared by concurrent callers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias, cast

from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation

from langmem_adapters.codec import plain
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import LangmemError, SerializationError
from langmem_adapters.experience import ExperiencePool, FunctionCache
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.model_answers import said
from langmem_adapters.experience.shelf.shelf import Evicted
from langmem_adapters.experience.shelf.under_way import Begun
from langmem_adapters.experience.single_flight.asking import KeptAnswers, SingleFlightAnswers
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.caching.chunks import Recording, as_reported, pieces
from langmem_adapters.langchain.caching.costs import count_saved, metric_of
from langmem_adapters.langchain.caching.generations import read_generations, write_generations
from langmem_adapters.langchain.caching.paraphrases import Paraphrases
from langmem_adapters.langchain.caching.prompt import asked_in, messages_in
from langmem_adapters.langchain.caching.tools import Tools
from langmem_adapters.langchain.unseen import unseen
from langmem_adapters.model import Experience, Metric

__all__ = ["Answers", "Examples", "Request", "note", "noted"]

_noted: ContextVar[list[str] | None] = ContextVar("langmem_noted", default=None)

_ASKED = 2_000  # entries for requests in flight, two for each

Examples: TypeAlias = Sequence[Experience]
"""The experiences of similar requests; none, unless examples are wanted."""


class Request(NamedTuple):
    """A request as LangChain shows it to a cache, and its key.

    ``call`` tells apart calls that ask the same at the same time: LangChain gives a cache the very same string object
    about the model at lookup and at update, and in another call another object, which may be equal.
    """

    prompt: str
    llm_string: str
    key: str
    call: int = 0
    examples: Examples = ()


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect the keys of the requests that cached models get in this block."""
    keys: list[str] = []
    token = _noted.set(keys)
    try:
        yield keys
    finally:
        _noted.reset(token)


def note(request: Request) -> Request:
    """Report a cached model's request to the :func:`noted` block around it, if there is one."""
    if (keys := _noted.get()) is not None:
        keys.append(request.key)
    return request


class Answers(SingleFlightAnswers):
    """The answers in a pool, around the calls of a model.

    Args:
        pool: Where they are stored.
        examples: How many similar experiences a model is shown on a miss. Above 0, questions are stored too, and the
            pool needs an index; otherwise only hashes are stored.
        tools: The tools that always give the same result. An answer made with any other is never shown as an example.
        alike: Finds and keeps answers to the same request in other words; None: only identical requests are served.
        of_chats: Whether all answers are those of chat models.
        metric: Gives what an answer cost; None: no cost is stored with it.
        scoring, counts: Have the answers scored, and count events; others may share them.
        output_version: The form of content that the model's ``output_version`` asks for.
        clock, timer, new_id: Give Unix seconds, monotonic seconds, and ids.
        rules: All other rules: ``should_store``, ``scorer``, ``judge``, ``wait`` and ``on_error``, as in
            :class:`~langmem_adapters.langchain.ExperienceMiddleware`.
    """

    _calls: _Calls
    _recording = Recording

    def __init__(
        self,
        pool: ExperiencePool,
        *,
        examples: int = 0,
        tools: Tools | None = None,
        alike: Paraphrases | None = None,
        of_chats: bool = True,
        metric: Callable[[Any], Metric] | None = metric_of,
        scoring: BackgroundScoring,
        counts: Counts,
        output_version: str | None,
        clock: Callable[[], float],
        timer: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str],
        **rules: Any,
    ) -> None:
        self._output_version = output_version
        self._asked: dict[tuple[str, int], tuple[Begun | None, float]] = {}
        shown = _found if examples else None
        super().__init__(
            pool,
            Request,
            rules=Rules(metric=metric, context_builder=shown, request="examples", k=examples, **rules),
            responses=_Generations(clock, new_id, of_chats=of_chats),
            cache=_Calls,
            counts=counts,
            keep_requests=examples > 0,
            scoring=scoring,
            clock=clock,
            timer=timer,
            new_id=new_id,
        )
        self._calls.alike = alike
        self._calls.tools = tools if examples else None

    def stats(self) -> dict[str, Any]:
        """The counts of calls and, in semantic mode, of what was found by meaning."""
        stats = super().stats()
        if self._calls.alike is not None:
            stats |= self._calls.alike.stats()
        return stats

    def forget(self, keys: Iterable[str]) -> Flow[None]:
        """Delete these answers, which their callers could not use. In a bypass, none of them was served."""
        if not self.pool.writes:
            return
        try:
            for key in keys:
                yield from self.pool._delete(None, key, None)  # noqa: SLF001 - a part of this flow
        except LangmemError as error:
            self._calls._degrade(error)  # noqa: SLF001 - by the rules of its calls

    # --- for a cache that LangChain asks before it calls the model and updates after it

    def look_up(self, asked: Request) -> Flow[list[Generation] | None]:
        """The answer to a request; None if the model must be called."""
        turn = yield from self._calls.begin(Invocation(asked, {}))
        if turn.served:
            return cast("list[Generation]", self._served(turn))
        if turn.keeps:
            if len(self._asked) >= _ASKED - 1:
                self._asked.clear()
            self._asked[asked.key, asked.call] = self._asked[asked.key, 0] = turn.begun, turn.started
        return None

    def keep(self, asked: Request, answer: Sequence[Generation]) -> Flow[Invocation]:
        """Keep the model's answer. Pass the result to :meth:`score`."""
        latest = self._asked.pop((asked.key, 0), (None, math.inf))  # if update gets another string object than lookup
        begun, started = self._asked.pop((asked.key, asked.call), latest)
        turn = Invocation(asked, {}, key=asked.key, counted=asked._asdict(), begun=begun, started=started)
        turn.keeps = self.pool.writes
        self._calls.note_request(turn)
        yield from self._calls.finish(turn, answer)
        return turn

    def score(self, turn: Invocation, *, on_loop: bool = False) -> None:
        """Have a kept answer scored in the background."""
        self._calls.score_later(turn, on_loop=on_loop)

    def recent(self, key: str) -> list[Generation] | None:
        """An answer that was read a moment ago. Neither waits nor works for long, as it may run on an event loop."""
        try:
            experience = self.pool.recent(key)
            value = None if experience is None else self._calls.responses.of(experience)
        except SerializationError:  # a read from the store heals it, or leaves it to those who can read it
            return None
        if value is None:
            return None
        self.pool.tally(experience)
        return cast("list[Generation]", self._served(Invocation((), {}, key=key, value=value)))

    def read(self, experience: Experience) -> list[Generation]:
        """The generations of a stored answer. Raises SerializationError if they cannot be read."""
        return cast("list[Generation]", self._calls.responses.of(experience))

    def _served(self, turn: Invocation) -> Any:
        for generation in turn.value:
            if isinstance(generation, ChatGeneration):
                generation.message.response_metadata.setdefault("cache_key", turn.key)
        count_saved(self._counts, turn.value)
        return turn.value

    def _pieces(self, served: list[ChatGeneration]) -> Iterator[ChatGenerationChunk]:
        return pieces(served[0])

    def _kept(self, answer: ChatResult) -> list[ChatGeneration]:
        return as_reported(answer, self._output_version)

    @contextmanager
    def _apart(self, key: str) -> Iterator[None]:
        with unseen(), super()._apart(key):
            yield


def _found(_: Any, experiences: Examples) -> Examples:
    return experiences


class _Calls(FunctionCache):
    """Looks once for an answer to the same request in other words, if there is none to the very same one."""

    alike: Paraphrases | None = None
    tools: Tools | None = None  # decides which answers may be examples; None: no check

    def _request(self, counted: dict[str, Any]) -> str:
        return asked_in(counted["prompt"])

    def _serve_similar(self, turn: Invocation, own: Experience | None) -> Flow[None]:
        if self.alike is None:
            return
        try:
            place, matches = yield from self.alike.find(turn.counted["prompt"], turn.counted["llm_string"])
            for match in matches:
                if own is not None and match.key == turn.key:
                    continue  # was examined already
                experience = yield from self.alike.answer(place, match)
                if experience is not None and (yield from self._is_good(turn, experience)):
                    yield from self._read(turn, experience, match.key)
                if turn.served and self.alike.may_serve(turn.value, match):
                    return
                turn.served, turn.kept = False, None
        except LangmemError as error:
            self._degrade(error, "semantic_errors")

    def _create(self, turn: Invocation, value: Any, made: Experience) -> Flow[Experience]:
        if self.alike is not None:
            return (yield from self._create_alike(self.alike, turn, value, made))
        if self.tools is not None and not self._may_be_shown(self.tools, turn, value):
            made = made.model_copy(update={"req": None})  # no search finds it, so nobody is shown it
        return (yield from super()._create(turn, value, made))

    def _create_alike(self, alike: Paraphrases, turn: Invocation, value: Any, made: Experience) -> Flow[Experience]:
        """Put an answer into the pool, and its question into the semantic index, if other words may match it."""
        question = alike.question(turn.counted["prompt"], turn.counted["llm_string"], value)
        if question is not None:
            made = made.model_copy(update={"partition": question.partition})
        evicted: Evicted = []
        kept = yield from self.pool.create_flow(made, key=turn.key, evicted=evicted)
        try:
            yield from alike.keep(question, turn.key, evicted)
        except LangmemError as error:
            self._degrade(error, "semantic_errors")
        return kept

    def score_later(self, turn: Invocation, *, on_loop: bool = False) -> None:
        if self._rules.scorer is not None:
            with unseen():
                super().score_later(turn, on_loop=on_loop)

    @staticmethod
    def _may_be_shown(tools: Tools, turn: Invocation, value: Any) -> bool:
        """Whether every tool that had a part in an answer always gives the same result."""
        prompt, llm_string = turn.counted["prompt"], turn.counted["llm_string"]
        return tools.are_all_in(llm_string) and tools.are_all_of(value) and tools.gave_all(messages_in(prompt))


class _Generations(KeptAnswers):
    """Writes answers as data, and reads them back."""

    def __init__(self, clock: Callable[[], float], new_id: Callable[[], str], *, of_chats: bool) -> None:
        super().__init__(clock, new_id)
        self._of_chats = of_chats

    def experience(self, value: Any, *, req: Any, metric: Metric | None) -> Experience:
        data = write_generations(value)
        plain(data)  # raises for anything but data
        return Experience(req=req, resp=data, metric=metric)

    def shown(self, experience: Experience) -> str:
        return said(experience.resp)

    def of(self, experience: Experience) -> list[Generation]:
        generations = read_generations(experience.resp, age=self._age(experience), new_id=self._new_id)
        if self._of_chats and not all(isinstance(generation, ChatGeneration) for generation in generations):
            raise SerializationError("a stored answer is not that of a chat model")
        return generations
