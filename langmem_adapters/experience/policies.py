"""What decides about experiences: each a plain function, sync or async, or an object that is called like one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from langmem_adapters.errors import ConfigurationError, LangmemError, ModelError
from langmem_adapters.flow import Flow, is_coroutine, settled, step
from langmem_adapters.model import Experience, Score
from langmem_adapters.validation import check_plain

__all__ = [
    "AtLeast",
    "ContextBuilder",
    "Judge",
    "RuleScorer",
    "Scorer",
    "Serializer",
    "age_of",
    "ask",
    "asks_async",
    "attempt",
    "decision",
    "exact_and_perfect",
    "score_of",
]

T = TypeVar("T")

_PERFECT = 10
_ASYNC = "a policy that is a coroutine function goes with async functions only"


class Scorer(Protocol):
    """Says how good a response to a request is; may be a coroutine function."""

    def __call__(self, req: Any, resp: Any, /) -> Any:
        """Give a Score, or a number from 1 to 10."""


class Judge(Protocol):
    """Says whether an experience may be served for a request; may be a coroutine function."""

    def __call__(self, experience: Experience, req: Any, /) -> Any:
        """Give True or False."""


class ContextBuilder(Protocol):
    """Puts experiences into a request; may be a coroutine function. It leaves the request that it is given alone."""

    def __call__(self, req: Any, experiences: Sequence[Experience], /) -> Any:
        """Give the request that is made instead."""


@runtime_checkable
class Serializer(Protocol):
    """Says what of a call is its request, and how a response is kept as data."""

    def serialize_req(self, **arguments: Any) -> Any:
        """Give the request, as data, from the arguments that count. It is the key, and what is searched."""

    def serialize_resp(self, resp: Any, /) -> Any:
        """Give a response as data."""

    def deserialize_resp(self, data: Any, /) -> Any:
        """Give the response back. Raises where the data is none."""


def exact_and_perfect(experience: Experience, req: Any) -> bool:
    """Judge as MetaGPT's ``SimplePerfectJudge`` does: the very same request, and a score of 10.

    >>> exact_and_perfect(Experience(req="France", resp="Paris"), "France")
    False
    """
    return bool(experience.req == req) and score_of(experience) == _PERFECT


class AtLeast:
    """Judges by the score: what has none, or a lower one, is not served. It does not compare requests.

    >>> from langmem_adapters.model import Metric
    >>> AtLeast(7)(Experience(req="France", resp="Paris", metric=Metric(score=Score(val=8))), "France")
    True
    """

    def __init__(self, threshold: int) -> None:
        if not isinstance(threshold, int | float) or not 1 <= threshold <= _PERFECT:
            raise ConfigurationError(f"a threshold is a score from 1 to 10, not {threshold!r:.50}")
        self.threshold = threshold

    def __call__(self, experience: Experience, req: Any) -> bool:  # noqa: ARG002 - the score alone counts
        """Judge."""
        return (score_of(experience) or 0) >= self.threshold

    def __repr__(self) -> str:
        return f"AtLeast({self.threshold})"


class RuleScorer:
    """Scores by rules: 10, less the points of each rule that a response breaks, 1 at the least.

    Args:
        rules: By its reason: what says of a request and a response whether the rule holds, and the points it costs.

    >>> scorer = RuleScorer({"it is too long": (lambda req, resp: len(resp) < 10, 4)})
    >>> scorer("France", "Paris is the capital of France")
    Score(val=6, reason='it is too long')
    """

    def __init__(self, rules: Mapping[str, tuple[Callable[[Any, Any], bool], int]]) -> None:
        if not (isinstance(rules, Mapping) and all(map(_is_rule, rules.values()))):
            raise ConfigurationError("rules are a table by their reasons: of each a function, and the points it costs")
        for reason, (holds, _) in rules.items():
            check_plain(f"the rule {reason!r}", holds)
        self._rules = dict(rules)

    def __call__(self, req: Any, resp: Any) -> Score:
        """Score."""
        broken = {reason: points for reason, (holds, points) in self._rules.items() if not holds(req, resp)}
        return Score(val=max(1, min(_PERFECT, _PERFECT - sum(broken.values()))), reason="; ".join(broken))


def _is_rule(rule: Any) -> bool:
    return isinstance(rule, tuple | list) and len(rule) == 2 and type(rule[1]) is int  # noqa: PLR2004 - as it says


def ask(policy: Callable[..., Any], *args: Any) -> Flow[Any]:
    """Ask a policy, in whichever way it can be asked."""
    flow = getattr(policy, "flow", None)
    if flow is not None:
        return (yield from flow(*args))
    answer = yield from step(policy, *args)
    return (yield from settled(answer, _ASYNC))


def attempt(what: str, policy: Callable[..., Any], *args: Any) -> Flow[Any]:
    """:func:`ask`. Raises ModelError for a policy that fails, whatever its own error is."""
    try:
        return (yield from ask(policy, *args))
    except LangmemError:
        raise
    except Exception as error:
        raise ModelError(f"{what} failed: {type(error).__name__}") from error


def decision(what: str, decide: Callable[[], T]) -> T:
    """What a function of the user's decides. Raises LangmemError for one that fails, whatever its own error is."""
    try:
        return decide()
    except LangmemError:
        raise
    except Exception as error:
        raise LangmemError(f"{what} failed: {type(error).__name__}") from error


def asks_async(policy: Any) -> bool:
    """Whether a policy can be asked on an event loop only."""
    return is_coroutine(policy) or not getattr(policy, "blocks", True)


def age_of(experience: Experience, now: float) -> float:
    """How many seconds ago an experience was kept; 0, where nothing says when."""
    return 0.0 if experience.timestamp is None else max(0.0, now - experience.timestamp)


def score_of(experience: Experience) -> int | None:
    """The score of an experience; None, where nobody has scored it."""
    return experience.metric.score.val if experience.metric and experience.metric.score else None
