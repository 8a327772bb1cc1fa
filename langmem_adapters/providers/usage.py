"""The tokens that an answer took, as providers tell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_INPUT_FIELDS = ("input_tokens", "prompt_tokens", "prompt_token_count", "prompt_eval_count")
_OUTPUT_FIELDS = ("output_tokens", "completion_tokens", "candidates_token_count", "eval_count")
_THOUGHT_FIELDS = ("thoughts_token_count",)  # Google counts these beside its candidates, and charges the same for them
_OTHER_FIELDS = ("total_tokens", "total_token_count", "cache_read_input_tokens", "cache_creation_input_tokens")
_COUNT_FIELDS = frozenset({*_INPUT_FIELDS, *_OUTPUT_FIELDS, *_THOUGHT_FIELDS, *_OTHER_FIELDS})
_USAGE_FIELDS = frozenset({"amazon-bedrock-invocationMetrics", "token_count", "token_usage", "usage", "usage_metadata"})
_ZEROED_FIELDS = _USAGE_FIELDS | _COUNT_FIELDS


def with_zero_usage(report: Mapping[str, Any]) -> dict[str, Any]:
    """What is told beside an answer, with all tokens and costs set to 0, wherever a dashboard may look for them.

    >>> with_zero_usage({"usage": {"input_tokens": 3, "tier": "standard"}, "eval_count": 4, "model": "small"})
    {'usage': {'input_tokens': 0, 'tier': 'standard'}, 'eval_count': 0, 'model': 'small'}
    """
    if _ZEROED_FIELDS.isdisjoint(report):
        return {**report}
    return {
        name: _zeroed(value) if name in _USAGE_FIELDS else 0 if name in _COUNT_FIELDS else value
        for name, value in report.items()
    }


def _zeroed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _zeroed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_zeroed(part) for part in value]
    return 0 if type(value) in (int, float) else value


def usage_of(response: Any) -> dict[str, int] | None:
    """The tokens that a response took, if it tells them: input, output and total."""
    raw = sent_data(getattr(response, "raw", None))
    extras = as_mapping(getattr(response, "additional_kwargs", None))
    for report in (*map(as_mapping, (raw.get("usage"), raw.get("usage_metadata"), extras.get("usage"))), extras, raw):
        used_in = _first_count(report, _INPUT_FIELDS)
        used_out = _first_count(report, _OUTPUT_FIELDS) + _first_count(report, _THOUGHT_FIELDS)
        if used_in or used_out:
            return {"input_tokens": used_in, "output_tokens": used_out, "total_tokens": used_in + used_out}
    return None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """What a mapping, or an object of a provider's own, holds."""
    if isinstance(value, Mapping):
        return value
    extra = getattr(value, "model_extra", None) or {}  # LiteLLM has usage in it
    return {**(getattr(value, "__dict__", None) or {}), **extra}


def sent_data(raw: Any) -> Mapping[str, Any]:
    """What a provider sent; in streams of MistralAI, the data of an event."""
    sent_fields = as_mapping(raw)
    data = as_mapping(sent_fields.get("data"))
    return data if "choices" in data else sent_fields


def _first_count(report: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((value for name in names if type(value := report.get(name)) is int), 0)
