"""Policies that decide about experiences: each is a function, sync or async, or a callable object."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import ValidationError

from langmem_adapters.errors import ConfigurationError, LangmemError, ModelError
from langmem_adapters.flow import Flow, call_either, is_coroutine, within
from langmem_adapters.model import Experience, Score
from langmem_adapters.run_callbacks import call_without_callbacks
from langmem_adapters.validation import call_user_code, check_sync_function

T = TypeVar("T")

_MAX_SCORE = 10
_asked: ContextVar[tuple[list[object], ...]] = ContextVar("langmem_asked", default=())
_ASYNC_ERROR = "a policy that is a coroutine function goes with async functions only"


@runtime_checkable
class Scorer(Protocol):
    """Says how good a response to a request is; may be a coroutine function."""

    def __call__(self, req: Any, resp: Any, /) -> Any:
        """Return a Score, or a whole number from 1 to 10."""


@runtime_checkable
class Judge(Protocol):
    """Says whether an experience may be served for a request; may be a coroutine function."""

    def __call__(self, experience: Experience, req: Any, /) -> Any:
        """Return True or False."""


@runtime_checkable
class ContextBuilder(Protocol):
    """Puts experiences into a copy of a request; may be a coroutine function. It must not change its argument."""

    def __call__(self, req: Any, experiences: Sequence[Experience], /) -> Any:
        """Return the request to make instead."""


@runtime_checkable
class Serializer(Protocol):
    """Decides what the request of a call is, and how a response is kept as data."""

    def serialize_req(self, **arguments: Any) -> Any:
        """Return the request, as data, from the arguments that count. The key is made of it, and it is searched."""

    def serialize_resp(self, resp: Any, /) -> Any:
        """Return a response as data."""

    def deserialize_resp(self, data: Any, /) -> Any:
        """Return the response. Raises any error if the data is not that of a response."""


def exact_and_perfect(experience: Experience, req: Any) -> bool:
    """Judge as MetaGPT's ``SimplePerfectJudge`` does: the very same request, and a score of 10.

    >>> exact_and_perfect(Experience(req="France", resp="Paris"), "France")
    False
    """
    return bool(experience.req == req) and score_of(experience) == _MAX_SCORE


class AtLeast:
    """Judges by the score: an experience with a lower score, or none, is not served. Requests are not compared.

    >>> from langmem_adapters.model import Metric
    >>> AtLeast(7)(Experience(req="France", resp="Paris", metric=Metric(score=Score(val=8))), "France")
    True
    """

    def __init__(self, threshold: int) -> None:
        if not isinstance(threshold, int | float) or not 1 <= threshold <= _MAX_SCORE:
            raise ConfigurationError(f"a threshold is a score from 1 to 10, not {threshold!r:.50}")
        self.threshold = threshold

    def __call__(self, experience: Experience, req: Any) -> bool:  # noqa: ARG002 - the score alone counts
        """Whether the score is high enough."""
        return (score_of(experience) or 0) >= self.threshold

    def __repr__(self) -> str:
        return f"AtLeast({self.threshold})"


class RuleScorer:
    """Scores by rules: 10, minus the points of each rule that a response breaks, at least 1.

    Args:
        rules: For each reason, a function ``(req, resp)`` that returns whether the rule holds, and the points it costs.

    >>> scorer = RuleScorer({"it is too long": (lambda req, resp: len(resp) < 10, 4)})
    >>> scorer("France", "Paris is the capital of France")
    Score(val=6, reason='it is too long')
    """

    def __init__(self, rules: Mapping[str, tuple[Callable[[Any, Any], bool], int]]) -> None:
        if not (isinstance(rules, Mapping) and all(map(_is_rule, rules.values()))):
            raise ConfigurationError("rules are a dictionary from reason to a function and the points that it costs")
        for reason, (holds, _) in rules.items():
            check_sync_function(f"the rule {reason!r}", holds)
        self._rules = dict(rules)

    def __call__(self, req: Any, resp: Any) -> Score:
        """Score a response."""
        broken = {reason: points for reason, (holds, points) in self._rules.items() if not holds(req, resp)}
        return Score(val=max(1, min(_MAX_SCORE, _MAX_SCORE - sum(broken.values()))), reason="; ".join(broken))


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, tuple | list) and len(rule) == 2 and type(rule[1]) is int  # noqa: PLR2004 - as it says


def ask(policy: Callable[..., Any], *args: Any, in_run: bool = False) -> Flow[Any]:
    """Ask a policy: its flow if it has one, else by calling or awaiting it, with a run's callbacks if ``in_run``."""
    flow = getattr(policy, "flow", None)
    if flow is not None:
        return (yield from flow(*args))
    call, acall = (None, policy) if is_coroutine(policy) else (policy, None)
    call_it = call_either if in_run else call_without_callbacks
    return (yield from call_it(call, acall, _ASYNC_ERROR, *args))


def attempt(label: str, policy: Callable[..., Any], *args: Any, in_run: bool = False) -> Flow[Any]:
    """:func:`ask`, with errors of the policy raised as ModelError; a LangmemError is raised as it is."""
    try:
        return (yield from within(partial(_asking, policy), ask(policy, *args, in_run=in_run)))
    except LangmemError:
        raise
    except Exception as error:
        raise ModelError(f"{label} failed: {type(error).__name__}") from error


def is_asked(policy: object) -> bool:
    """Whether this is a part of what a policy does: a cache with a judge would ask it about what it asks, endlessly."""
    return any(policy is each for asked in _asked.get() for each in asked)


@contextmanager
def _asking(policy: object) -> Iterator[None]:
    asked = [policy]
    token = _asked.set((*_asked.get(), asked))
    try:
        yield
    finally:
        asked.clear()  # tasks that it began may go on
        _asked.reset(token)


def judge_accepts(judge: Judge, experience: Experience, req: Any) -> Flow[bool]:
    """Ask a judge. Raises ModelError if it fails, or answers neither True nor False: a text "no" would count as yes."""
    answer = yield from attempt("the judge", judge, experience, req)
    if type(answer).__name__ not in {"bool", "bool_"}:  # NumPy's has either name, depending on its version
        raise ModelError(f"the judge gave neither True nor False, but {type(answer).__name__}")
    return bool(answer)


def build_context(builder: ContextBuilder, request: Any, similar: Sequence[tuple[Experience, float]]) -> Flow[Any]:
    """The request to make instead. Raises ModelError if the builder fails, or gives None for a request."""
    if isinstance(request, list | dict):
        request = call_user_code("a copy of the request", lambda: copy.deepcopy(request))
    experiences = [experience for experience, _ in similar]
    context = yield from attempt("the context builder", builder, request, experiences, in_run=True)
    if context is None and request is not None:  # a builder that changes its argument, or forgets to return
        raise ModelError("the context builder gave None in place of a request")
    return context


def to_score(answer: Any) -> Score:
    """What a scorer gave, as a score. Raises ModelError for anything but a Score or a whole number from 1 to 10."""
    if isinstance(answer, Score):
        return answer
    with suppress(ValidationError):
        if not isinstance(answer, bool):
            return Score(val=answer)
    raise ModelError("the scorer gave neither a Score nor a whole number from 1 to 10")


def needs_event_loop(policy: Any) -> bool:
    """Whether a policy can only be asked on an event loop."""
    return is_coroutine(policy) or not getattr(policy, "blocks", True)


def age_of(experience: Experience, now: float) -> float:
    """How many seconds ago an experience was kept; 0, if it has no timestamp."""
    return 0.0 if experience.timestamp is None else max(0.0, now - experience.timestamp)


def score_of(experience: Experience) -> int | None:
    """The score of an experience; None, if it has none."""
    return experience.metric.score.val if experience.metric and experience.metric.score else None
