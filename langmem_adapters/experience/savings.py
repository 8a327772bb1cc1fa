"""What hits have saved: the time, the tokens and the money that the answers cost when they were made."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from langmem_adapters.codec import is_number
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.model import Metric

Prices = Mapping[str, tuple[float, float]]
"""By model name: the price of a million input tokens, and of a million output tokens."""

_MILLION = 1_000_000
_VERSION_PATTERN = re.compile(r"[-@](\d{4}-\d\d-\d\d|\d{8}|\d{3,4})$")


class Saved(NamedTuple):
    """Saved seconds, tokens and money; money is in the unit of ``Metric.money_cost`` and of the prices.

    >>> Saved(tokens=100) + Saved(seconds=1.5, tokens=20)
    Saved(seconds=1.5, tokens=120, money=0.0)
    """

    seconds: float = 0.0
    tokens: int = 0
    money: float = 0.0

    def __add__(self, other: Saved) -> Saved:  # type: ignore[override]
        return Saved(self.seconds + other.seconds, self.tokens + other.tokens, self.money + other.money)

    def __sub__(self, other: Saved) -> Saved:
        return self + Saved(-other.seconds, -other.tokens, -other.money)

    def as_stats(self) -> dict[str, float]:
        """The figures as ``stats()`` has them: saved_seconds, saved_tokens, saved_money."""
        return {f"saved_{name}": value for name, value in self._asdict().items()}

    def add_to(self, counts: Counts) -> None:
        """Add these figures to counts, under the names of :meth:`as_stats`."""
        counts.add("saved_seconds", self.seconds)
        counts.add("saved_tokens", self.tokens)
        counts.add("saved_money", self.money)

    @classmethod
    def of(cls, counts: Counts) -> Saved:
        """Read the figures from counts."""
        return cls(float(counts["saved_seconds"]), counts["saved_tokens"], float(counts["saved_money"]))


def cost(metric: Metric, prices: Prices) -> Saved:
    """What an answer cost, by its metric.

    Money is the metric's own ``money_cost``, if it has one; else its ``input_tokens`` and ``output_tokens`` at the
    price of its ``model``. A model that is not in the prices, such as ``gpt-4o-mini-2024-07-18``, has the price of the
    name without the version, ``gpt-4o-mini``: providers answer by the former when asked for the latter. What is
    no finite number, or below 0, as in a file edited by hand, counts as 0: it would spoil the sum of all hits.

    >>> cost(Metric(time_cost=2.0, model="small", input_tokens=1000, output_tokens=500), {"small": (1.0, 2.0)})
    Saved(seconds=2.0, tokens=1500, money=0.002)
    """
    figures = (metric.time_cost, metric.money_cost, metric.input_tokens, metric.output_tokens)
    seconds, money, tokens_in, tokens_out = (figure if figure and _is_amount(figure) else 0 for figure in figures)
    if prices and not money:
        name = metric.model if metric.model in prices else _VERSION_PATTERN.sub("", metric.model)
        price_in, price_out = prices.get(name, (0.0, 0.0))
        money = (tokens_in * price_in + tokens_out * price_out) / _MILLION
    return Saved(float(seconds), int(tokens_in + tokens_out), float(money))


def check_prices(prices: Prices) -> None:
    """Raise ConfigurationError if this is not a table of prices."""
    if not isinstance(prices, Mapping):
        raise ConfigurationError("prices are a dictionary by model name")
    for model, pair in prices.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(_is_amount, pair))):  # noqa: PLR2004
            raise ConfigurationError(
                f"the prices of {model!r} are a tuple of two numbers, none below 0, for tokens in and out, per million"
            )


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0
