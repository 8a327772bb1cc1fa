"""What an answer of a chat model cost, as far as its messages tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.model import Metric


def metric_of(generations: Sequence[Generation]) -> Metric:
    """The name of the model, and the token counts that it reported.

    >>> used = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    >>> message = AIMessage("Hi", usage_metadata=used, response_metadata={"model_name": "small"})
    >>> metric = metric_of([ChatGeneration(message=message)])
    >>> metric.model, metric.input_tokens, metric.output_tokens
    ('small', 3, 4)
    """
    messages = [generation.message for generation in generations if isinstance(generation, ChatGeneration)]
    usages = _distinct_usages([message.usage_metadata for message in messages if isinstance(message, AIMessage)])
    names = [message.response_metadata.get(name) for message in messages for name in ("model_name", "model")]
    return Metric(
        model=next((name for name in names if isinstance(name, str)), ""),
        input_tokens=sum(usage.get("input_tokens") or 0 for usage in usages),
        output_tokens=sum(usage.get("output_tokens") or 0 for usage in usages),
    )


def saved_tokens(reports: Sequence[dict[str, Any]]) -> int:
    """The tokens that a served answer took when it was made, by the metadata of its messages."""
    usages = _distinct_usages([report.get("cache_usage") for report in reports])
    return sum([usage.get("total_tokens") or 0 for usage in usages])


def _distinct_usages(usages: Sequence[Any]) -> list[Any]:
    """Each usage once: for several choices of one response, providers repeat the whole usage in each."""
    return [usage for index, usage in enumerate(usages) if usage and usage not in usages[:index]]
