"""How providers say that an answer is not whole: that it was cut off, held back or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from langmem_adapters.providers.usage import fields, sent

__all__ = ["Ending", "ending_of", "field", "is_broken_off", "is_cut", "refuses"]

# In the words of OpenAI, Anthropic, Google, Cohere, Mistral, Bedrock, DeepSeek, Z.ai, vLLM and Ollama.
_SPOILED = tuple(
    """length max_tokens model_length model_context_window_exceeded error_limit pause_turn timeout user_cancel load
    unload content_filter content_filtered safety image_safety recitation image_recitation language blocklist
    prohibited_content image_prohibited_content spii refusal guardrail_intervened error error_toxic other image_other
    no_image malformed_function_call malformed_model_output malformed_tool_use unexpected_tool_call
    too_many_tool_calls missing_thought_signature incomplete malformed_response model_armor escalation
    pup_limited_disabled continuation compaction insufficient_system_resource sensitive abort repetition""".split()  # noqa: SIM905 - one line a word, otherwise
)
_REASONS = frozenset({"finish_reason", "normalized_finish_reason", "stop_reason", "done_reason", "stopReason"})
_TOLD = (*_REASONS, "refusal", "incomplete_details", "status")
_ENDING = frozenset(
    {"anthropic", "deepseek", "fireworks", "google_genai", "groq", "mistralai", "openai", "openrouter", "xai"}
)
_UNDER_WAY = ("in_progress", "queued")
_UNFINISHED = (*_UNDER_WAY, "cancelled", "failed", "incomplete")


def is_cut(told: Any) -> bool:
    """Whether what a provider tells beside its answer, in a mapping or in attributes, says that it is not whole."""
    found: Mapping[str, Any] = told if isinstance(told, dict) else {name: field(told, name) for name in _TOLD}
    for name in _REASONS.intersection(found):
        reason = found[name]
        # By its end: chunks that repeat it, as OpenRouter's do, add up to "lengthlength".
        if str(getattr(reason, "name", reason)).rpartition(".")[2].lower().endswith(_SPOILED):
            return True
    return bool(found.get("refusal") or found.get("incomplete_details")) or found.get("status") in _UNFINISHED


class Ending(NamedTuple):
    """What a response of LlamaIndex, or a piece of one, says of its end."""

    cut: bool
    """Whether there should be more, or something else: see :func:`is_cut`."""
    said: frozenset[bool]
    """Whether it is the last piece; empty if it has no field that could say so."""


def ending_of(response: Any) -> Ending:
    """Look for the end in all places in which providers tell it."""
    whole = sent(field(response, "raw"))
    told = _told(response, whole)
    event = fields(whole.get("response"))  # of OpenAI's Responses, whose streams all begin under way
    cut = any(map(is_cut, told)) or (event.get("status") not in _UNDER_WAY and is_cut(event))
    return Ending(cut, frozenset(said for one in (*told, event) if (said := _is_last(one)) is not None))


def _told(response: Any, whole: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is told beside a response, in its message, and in each choice of the ``whole`` that was sent."""
    beside = [fields(field(holder, "additional_kwargs")) for holder in (response, field(response, "message"))]
    told = [*beside, whole, fields(whole.get("delta"))]  # the last one is Anthropic's
    choices = whole.get("choices") or whole.get("candidates")
    for choice in map(fields, choices if isinstance(choices, list | tuple) else ()):
        told += [choice, fields(choice.get("message"))]
    return told


def refuses(content: Any) -> bool:
    """Whether a block of a message is a refusal, as OpenAI's and LangChain's are; there may be text beside it."""
    blocks = content if isinstance(content, list) else []
    return any("refusal" in (field(block, "type"), field(field(block, "value"), "type")) for block in blocks)


def is_broken_off(*told: Mapping[str, Any]) -> bool:
    """Whether a provider that always tells why an answer ends did not: its stream did not come to the end."""
    ends = any(one.get(name) for one in told for name in (*_REASONS, "status"))
    return not ends and any(one.get("model_provider") in _ENDING for one in told)


def _is_last(told: Mapping[str, Any]) -> bool | None:
    if "contentBlockDelta" in told:  # Bedrock's, whose last piece has the usage
        return False
    if isinstance(last := told.get("metadata"), Mapping) and "usage" in last:
        return True
    said = [told[name] for name in _REASONS.intersection(told)]
    if isinstance(status := told.get("status"), str):
        said.append(status)
    if not said and isinstance(event := told.get("event_type"), str):  # Cohere's
        return event == "stream-end"
    return any(reason and reason not in _UNDER_WAY for reason in said) if said else None


def field(holder: Any, name: str) -> Any:
    """The value of a mapping or an object under a name; None if it has none."""
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
