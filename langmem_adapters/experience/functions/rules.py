"""The policies for the calls of one function, and the state of one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.functions.arguments import Arguments
from langmem_adapters.experience.policies import AtLeast, ContextBuilder, Judge, Scorer, is_asked, needs_event_loop
from langmem_adapters.experience.pool_flows import QueryType
from langmem_adapters.experience.shelf.invalidation import StartMark
from langmem_adapters.experience.single_flight.flights import Flight
from langmem_adapters.model import Experience, Metric
from langmem_adapters.run_callbacks import outside_run
from langmem_adapters.validation import (
    check_count,
    check_function,
    check_on_error,
    check_sync_function,
    plain_answer,
)


@dataclass(frozen=True)
class Rules:
    """The policies for the calls of one function; see :func:`langmem_adapters.cached`."""

    scorer: Scorer | None = None
    judge: Judge | None = None
    context_builder: ContextBuilder | None = None
    query_type: QueryType = "exact"
    k: int = 4
    request: str | None = None
    should_store: Callable[[Any], bool] = lambda _: True
    metric: Callable[[Any], Metric] | None = lambda _: Metric()  # None: no metric is kept
    wait: float = 60.0
    on_error: Literal["degrade", "raise"] = "degrade"

    def check(self, name: str, *, is_async: bool) -> None:
        """Raise ConfigurationError for rules that cannot go together."""
        check_on_error(self.on_error)
        for policy in ("scorer", "judge", "context_builder"):
            check_function(policy, getattr(self, policy))
        for policy in ("should_store", "metric"):
            check_sync_function(policy, getattr(self, policy))
        check_count("k", self.k, minimum=0)
        if not (isinstance(self.wait, int | float) and 0 <= self.wait < math.inf):
            raise ConfigurationError(f"wait is a number of seconds, or 0, not {self.wait!r:.50}")
        if self.query_type not in {"exact", "semantic"}:
            raise ConfigurationError(f'query_type is "exact" or "semantic", not {self.query_type!r}')
        if self.query_type == "semantic" and (self.judge is None or isinstance(self.judge, AtLeast)):
            raise ConfigurationError(
                'query_type="semantic" needs a judge that says which similar experience will do: one that compares the'
                " requests, such as LLMJudge, not only the scores, as AtLeast does"
            )
        for policy in ("scorer", "judge", "context_builder"):
            if needs_event_loop(getattr(self, policy)) and not is_async:
                raise ConfigurationError(
                    f"the {policy} is a coroutine function, but {name} is not: give it a plain one"
                )

    def is_kept(self, result: Any) -> bool:
        """What ``should_store`` says."""
        with outside_run():  # it may ask a model
            return bool(plain_answer("should_store", self.should_store(result)))  # an array has no truth value

    def measure(self, result: Any, seconds: float) -> Metric | None:
        """The metric of a result that took so many seconds; None, if none is kept."""
        if self.metric is None:
            return None
        metric = self.metric(result)
        if not isinstance(metric, Metric):
            raise LangmemError(f"metric gave no Metric, but {type(metric).__name__}")
        return metric.model_copy(update={"time_cost": seconds})

    @property
    def is_judging(self) -> bool:
        """Whether the judge makes this very call: then the cache is bypassed."""
        return self.judge is not None and is_asked(self.judge)


@dataclass
class Invocation:
    """One call of a function: its arguments, or the result that is served instead."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str = ""
    key_arguments: dict[str, Any] = field(default_factory=dict)
    served: bool = False
    value: Any = None
    keeps: bool = False
    start_mark: StartMark | None = None
    req: Any = None
    made_by: str = ""
    refused: str | None = None
    flight: Flight | None = None
    started: float = math.inf  # not known
    experience: Experience | None = None
    stored: bool = False

    @property
    def is_outdated(self) -> bool:
        """Whether results for its key were removed or refreshed since it began."""
        return self.start_mark is not None and self.start_mark.is_outdated

    @property
    def shared(self) -> bytes | None:
        """The result for those who wait for this call; None, if there is none, or one nested too deep to be written."""
        with suppress(SerializationError):
            return self.experience.to_bytes() if self.experience else None
        return None

    def with_made_by(self, experience: Experience) -> Experience:
        """The experience, with its function's fingerprint if its request is kept, as searches of others could find it.

        Raises SerializationError for a call without a key, whose arguments are not those of the signature.
        """
        if not self.key:
            raise SerializationError(
                "the call's arguments do not fit the function's signature: put @cached below the decorator"
                " that adds arguments"
            )
        if experience.req is None or not self.made_by:
            return experience
        return experience.model_copy(update={"made_by": self.made_by})

    def is_from_same_function(self, experience: Experience) -> bool:
        """Whether an experience of a similar request was made by the same function, or added to the pool by hand."""
        made_by = (experience.model_extra or {}).get("made_by")
        return not made_by or made_by == self.made_by


class Held(AbstractContextManager[None]):
    """Gives up a call if the block fails or stops. A generator would take three times as long."""

    def __init__(self, call: Invocation, let_go: Callable[[Invocation], None]) -> None:
        self._call, self._let_go = call, let_go

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self._let_go(self._call)


def request_argument(arguments: Arguments, rules: Rules) -> str:
    """The name of the argument that a context builder replaces; empty, if there is none."""
    names = [parameter for parameter in arguments.signature.parameters if parameter != arguments.owner]
    default = "req" if "req" in names else ""
    name = rules.request or (names[0] if len(names) == 1 else default)
    if name not in names and (rules.context_builder is not None or rules.request):
        raise ConfigurationError(
            f"which argument of {arguments.name} is the request? Say so with request=, one of {names}"
        )
    return name
