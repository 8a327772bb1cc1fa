"""The tokens that an answer took, as providers tell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["fields", "sent", "unspent", "usage_of"]

_IN = ("input_tokens", "prompt_tokens", "prompt_token_count", "prompt_eval_count")
_OUT = ("output_tokens", "completion_tokens", "candidates_token_count", "eval_count")
_THOUGHT = ("thoughts_token_count",)  # Google counts these beside its candidates, and charges the same for them
_OTHERS = ("total_tokens", "total_token_count", "cache_read_input_tokens", "cache_creation_input_tokens")
_COUNTS = frozenset({*_IN, *_OUT, *_THOUGHT, *_OTHERS})
_USAGES = frozenset({"amazon-bedrock-invocationMetrics", "token_count", "token_usage", "usage", "usage_metadata"})


def unspent(told: Mapping[str, Any]) -> dict[str, Any]:
    """What is told beside an answer, with all tokens and costs set to 0, wherever a dashboard may look for them.

    >>> unspent({"usage": {"input_tokens": 3, "tier": "standard"}, "eval_count": 4, "model": "small"})
    {'usage': {'input_tokens': 0, 'tier': 'standard'}, 'eval_count': 0, 'model': 'small'}
    """
    return {
        name: 0 if name in _COUNTS else _zeroed(value) if name in _USAGES else value for name, value in told.items()
    }


def _zeroed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _zeroed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_zeroed(part) for part in value]
    return 0 if type(value) in (int, float) else value


def usage_of(response: Any) -> dict[str, int] | None:
    """The tokens that a response took, if it tells them: input, output and total."""
    raw = sent(getattr(response, "raw", None))
    beside = fields(getattr(response, "additional_kwargs", None))
    for told in (*map(fields, (raw.get("usage"), raw.get("usage_metadata"), beside.get("usage"))), beside, raw):
        used_in, used_out = _number(told, _IN), _number(told, _OUT) + _number(told, _THOUGHT)
        if used_in or used_out:
            return {"input_tokens": used_in, "output_tokens": used_out, "total_tokens": used_in + used_out}
    return None


def fields(value: Any) -> Mapping[str, Any]:
    """What a mapping, or an object of a provider's own, holds."""
    if isinstance(value, Mapping):
        return value
    own, more = (getattr(value, held, None) or {} for held in ("__dict__", "model_extra"))  # LiteLLM has usage in these
    return {**own, **more}


def sent(raw: Any) -> Mapping[str, Any]:
    """What a provider sent; in streams of MistralAI, the data of an event."""
    told = fields(raw)
    data = fields(told.get("data"))
    return data if "choices" in data else told


def _number(told: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((value for name in names if type(value := told.get(name)) is int), 0)
