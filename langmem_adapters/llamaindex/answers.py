"""Responses of models as experiences: looked up before a call, kept after it, shared by concurrent callers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.experience.background_scoring import BackgroundScoring
from langmem_adapters.experience.functions.calls import Calls
from langmem_adapters.experience.functions.rules import Invocation, Rules
from langmem_adapters.experience.model_answers import answer_text
from langmem_adapters.experience.single_flight.asking import SingleFlightAnswers, StoredAnswers
from langmem_adapters.llamaindex.request import KeyedRequest
from langmem_adapters.llamaindex.responses import (
    Recording,
    Response,
    pieces,
    reached_limit,
    read_response,
    worth_storing,
    write_response,
)
from langmem_adapters.model import Experience, Metric
from langmem_adapters.providers.usage import usage_of

A = TypeVar("A")


class Answers(SingleFlightAnswers):
    """The responses in a pool, around the calls of a model; ``model`` gives its name, for the cost of its responses.

    The ``rules`` are those of a :class:`~langmem_adapters.llamaindex.CachedLLM`: ``should_store``, ``scorer``,
    ``judge``, ``wait`` and ``on_error``.
    """

    _recording = Recording

    def __init__(
        self,
        pool: ExperiencePool,
        *,
        model: Callable[[], str],
        counts: Counts,
        scoring: BackgroundScoring,
        clock: Callable[[], float],
        new_id: Callable[[], str],
        **rules: Any,
    ) -> None:

        def metric(response: Any) -> Metric:
            usage = usage_of(response) or {}
            counts = {name: usage.get(name, 0) for name in ("input_tokens", "output_tokens")}
            return Metric(model=model(), **counts)

        super().__init__(
            pool,
            KeyedRequest,
            rules=Rules(metric=metric, **rules),
            responses=_ResponseConverter(clock, new_id),
            calls=_ResponseCalls,
            counts=counts,
            keep_requests=False,
            scoring=scoring,
            clock=clock,
            new_id=new_id,
        )

    def asking(self, ask: Callable[..., A], *args: Any, **kwargs: Any) -> Callable[[Invocation | None], A]:
        """A function that asks the model. Somebody may have changed its settings while the call waited for others."""

        def ask_model(call: Invocation | None) -> A:
            if call is not None and not KeyedRequest(*call.args).is_current():
                self.refuse(call)
            return ask(*args, **kwargs)

        return ask_model

    def _mark_served(self, key: str, answer: Any) -> Any:
        kwargs = answer.additional_kwargs
        kwargs["cache_key"] = key
        saved = (kwargs["cache_usage"] or {}).get("total_tokens", 0)
        self._counts.add("saved_tokens", saved)
        return answer

    def _pieces(self, served: Response) -> Iterator[Response]:
        return pieces(served)


class _ResponseCalls(Calls):
    """Refuses responses that took all tokens they were allowed, as they were cut off, if ``should_store`` is ours."""

    def _is_kept(self, call: Invocation, result: Any) -> bool:
        if self._rules.should_store is worth_storing and reached_limit(result, call.key_arguments["limit"]):
            return False
        return super()._is_kept(call, result)


class _ResponseConverter(StoredAnswers):
    """Writes responses as plain data, and reads them back."""

    def experience(self, value: Any, *, req: Any, metric: Metric | None) -> Experience:
        return Experience(req=req, resp=write_response(value), metric=metric)

    def for_scorer(self, experience: Experience) -> str:
        return answer_text([experience.resp])

    def from_experience(self, experience: Experience) -> Response:
        return read_response(experience.resp, age=self._age(experience), new_id=self._new_id)
