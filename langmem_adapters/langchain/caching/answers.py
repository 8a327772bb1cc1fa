"""Answers of chat models as experiences: looked up before a call, kept after it, shared by those who ask at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias

from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langmem_adapters import views
from langmem_adapters.codec import plain
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import SerializationError, StoreError
from langmem_adapters.experience import ExperiencePool, FunctionCache
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.model_answers import said
from langmem_adapters.experience.single_flight.asking import KeptAnswers, SingleFlightAnswers
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.caching.chunks import Recording, as_reported, pieces
from langmem_adapters.langchain.caching.costs import count_saved, metric_of
from langmem_adapters.langchain.caching.generations import read_generations, write_generations
from langmem_adapters.langchain.caching.paraphrases import Paraphrases
from langmem_adapters.langchain.caching.prompt import messages_in
from langmem_adapters.langchain.caching.tools import Tools
from langmem_adapters.langchain.unseen import unseen
from langmem_adapters.model import Experience, Metric

__all__ = ["Answers", "Examples", "Request", "note", "noted"]

_noted: ContextVar[list[str] | None] = ContextVar("langmem_noted", default=None)

Examples: TypeAlias = Sequence[Experience]
"""What was answered to requests like this one; none, unless examples are wanted."""


class Request(NamedTuple):
    """A request as a cache of LangChain is shown it, its key, and what the user asked, to find similar ones by."""

    prompt: str
    llm_string: str
    key: str
    question: str
    examples: Examples = ()


@contextmanager
def noted() -> Iterator[list[str]]:
    """The keys of what cached models are asked meanwhile."""
    keys: list[str] = []
    token = _noted.set(keys)
    try:
        yield keys
    finally:
        _noted.reset(token)


def note(request: Request) -> Request:
    """Tell who notes it what a cached model is asked."""
    if (keys := _noted.get()) is not None:
        keys.append(request.key)
    return request


class Answers(SingleFlightAnswers):
    """The answers in a pool, around the calls of a model.

    Args:
        pool: Where they are.
        examples: How many similar experiences a model is shown on a miss. Above 0, questions are kept too, and the
            pool needs an index; else hashes alone are kept.
        tools: Which tools give the same answer tomorrow. What was made with others is never shown as an example.
        alike: The cache that finds and keeps answers to the same in other words; None: only the very same has one.
        scoring, counts: Have the answers scored, and count what was seen, for others too.
        output_version: The form of content that the model's ``output_version`` asks for.
        clock, new_id: Give Unix seconds, and ids.
        rules: What else decides: ``should_store``, ``scorer``, ``judge``, ``wait`` and ``on_error``, as in
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
        scoring: BackgroundScoring,
        counts: Counts,
        output_version: str | None,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        **rules: Any,
    ) -> None:
        self._output_version = output_version
        shown = _found if examples else None
        super().__init__(
            pool,
            _call,
            rules=Rules(metric=metric_of, context_builder=shown, request="examples", k=examples, **rules),
            responses=_Generations(clock, new_id),
            cache=_Calls,
            counts=counts,
            keep_requests=examples > 0,
            scoring=scoring,
            clock=clock,
            new_id=new_id,
        )
        self._calls.alike = alike
        self._calls.tools = tools if examples else None

    def stats(self) -> dict[str, Any]:
        """The pool's counts and what was saved, tokens by the usage of what was served; and what else was seen.

        Hits that were shared by a call in the air; refused answers, errors, requests without a key; answers scored,
        and those that the scorer failed at.
        """
        seen = self._seen("shared", "refused", "errors", "scored", "unscored")
        if self._calls.alike:
            seen |= self._calls.alike._semantic_stats()  # noqa: SLF001 - what a cache does itself for LangChain
        elif self._counts["rejected"]:
            seen |= {name: self._counts[name] for name in ("rejected", "rejected_judge")}
        return views.Figures(seen, title="Cached answers")

    def forget(self, keys: Iterable[str]) -> Flow[None]:
        """Serve these answers no more: who was given them could not use them."""
        try:
            for key in keys:
                yield from self.pool._delete(None, key, None)  # noqa: SLF001 - a part of this flow
        except StoreError as error:
            self._calls._degrade(error)  # noqa: SLF001 - by the rules of its calls

    def _served(self, turn: Invocation) -> list[ChatGeneration]:
        generations: list[ChatGeneration] = turn.value
        for generation in generations:
            metadata = generation.message.response_metadata
            metadata["cache_key"] = metadata["cache_key"] or turn.key
        count_saved(self._counts, generations)
        return generations

    def _pieces(self, served: list[ChatGeneration]) -> Iterator[ChatGenerationChunk]:
        return pieces(served[0])

    def _kept(self, answer: ChatResult) -> list[ChatGeneration]:
        return as_reported(answer, self._output_version)

    @contextmanager
    def _apart(self, key: str) -> Iterator[None]:
        with unseen(), super()._apart(key):
            yield


def _call(prompt: str, llm_string: str, key: str, question: str, examples: Examples) -> None:
    """Never called: its parameters say what a call of a model is made with."""


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
        self._counts.add("hits", turn.served)
        return turn.served

    def _reject(self) -> None:
        super()._reject()
        self._counts.add("rejected_judge")

    def _create(self, turn: Invocation, value: Any, made: Experience) -> Flow[Experience]:
        counted = turn.counted
        if self.alike is not None:
            create = self.alike._create  # noqa: SLF001 - what a cache does itself for LangChain
            return (yield from create(counted["prompt"], counted["llm_string"], turn.key, value, made))
        if self.tools is not None and not self._may_be_shown(self.tools, turn, value):
            made = made.model_copy(update={"req": None})  # found by nothing, so shown to nobody
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


class _Generations(KeptAnswers):
    """Answers as :class:`~langmem_adapters.langchain.ExperienceCache` keeps them, so that both read both."""

    def experience(self, value: Any, *, req: Any, metric: Metric) -> Experience:
        data = write_generations(value)
        plain(data)  # raises for what is no data
        return Experience(req=req, resp=data, metric=metric)

    def shown(self, experience: Experience) -> str:
        return said(experience.resp)

    def of(self, experience: Experience) -> list[ChatGeneration]:
        generations = read_generations(experience.resp, key="", age=self._age(experience), new_id=self._new_id)
        if not all(isinstance(generation, ChatGeneration) for generation in generations):
            raise SerializationError("a stored answer is not that of a chat model")
        return [generation for generation in generations if isinstance(generation, ChatGeneration)]
