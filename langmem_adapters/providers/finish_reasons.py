"""How providers say that an answer is not whole: that it was cut off, held back or refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from langmem_adapters.providers.usage import as_mapping, sent_data

# In the words of OpenAI, Anthropic, Google, Cohere, Mistral, Bedrock, DeepSeek, Z.ai, watsonx, vLLM and Ollama.
_INCOMPLETE_REASONS = tuple(
    """length max_tokens model_length model_context_window_exceeded error_limit pause_turn timeout user_cancel load
    unload content_filter content_filtered safety image_safety recitation image_recitation language blocklist
    prohibited_content image_prohibited_content spii refusal guardrail_intervened error error_toxic other image_other
    no_image malformed_function_call malformed_model_output malformed_tool_use unexpected_tool_call
    too_many_tool_calls missing_thought_signature incomplete malformed_response model_armor escalation
    pup_limited_disabled continuation compaction insufficient_system_resource sensitive abort repetition cancelled
    time_limit token_limit not_finished""".split()  # noqa: SIM905 - one line a word, otherwise
)
_CALL_REASONS = ("tool_calls", "tool_call", "tool_use", "function_call")
_REASON_FIELDS = frozenset({"finish_reason", "normalized_finish_reason", "stop_reason", "done_reason", "stopReason"})
_ENDING_FIELDS = (*_REASON_FIELDS, "status")
_REPORTED_FIELDS = (*_ENDING_FIELDS, "refusal", "incomplete_details")
_REPORTING_PROVIDERS = frozenset(
    """anthropic deepseek fireworks google_genai groq mistralai openai openrouter
    perplexity xai""".split()  # noqa: SIM905 - one line a word, otherwise
)
_RUNNING_STATUSES = ("in_progress", "queued")
_UNFINISHED_STATUSES = (*_RUNNING_STATUSES, "cancelled", "failed", "incomplete")


def is_cut(report: Any) -> bool:
    """Whether what a provider tells beside its answer, in a mapping or in attributes, says that it is not whole."""
    if not isinstance(report, dict):
        report = {name: field(report, name) for name in _REPORTED_FIELDS}
    # By its end: chunks that repeat it, as OpenRouter's do, add up to "lengthlength".
    for reason in _reasons(report):
        if reason.endswith(_INCOMPLETE_REASONS):
            return True
    is_unfinished = report.get("status") in _UNFINISHED_STATUSES
    return is_unfinished or bool(report.get("refusal") or report.get("incomplete_details"))


def tells_of_call(report: Mapping[str, Any]) -> bool:
    """Whether it says that the answer ends with a call of a tool; vLLM says so also where it could not read one."""
    return any(reason.endswith(_CALL_REASONS) for reason in _reasons(report))


def _reasons(report: Mapping[str, Any]) -> list[str]:
    values = [report[name] for name in _REASON_FIELDS.intersection(report)]
    return [str(getattr(value, "name", value)).rpartition(".")[2].lower() for value in values]


class Ending(NamedTuple):
    """What a response of LlamaIndex, or a piece of one, says of its end."""

    cut: bool
    """Whether there should be more, or something else: see :func:`is_cut`."""
    last_flags: frozenset[bool]
    """Whether it is the last piece; empty if it has no field that could say so."""

    calls: bool
    """Whether it should end with a call: see :func:`tells_of_call`."""


def ending_of(response: Any) -> Ending:
    """Look for the end in all places in which providers tell it."""
    raw = sent_data(field(response, "raw"))
    reports = _reports(response, raw)
    event = as_mapping(raw.get("response"))  # of OpenAI's Responses, whose streams all begin under way
    items = _as_list(event.get("output") or raw.get("output"))  # of OpenAI's Responses too: LlamaIndex drops refusals
    cut = any(map(is_cut, reports)) or (event.get("status") not in _RUNNING_STATUSES and is_cut(event))
    cut = cut or any(refuses(field(item, "content")) for item in items)
    flags = map(_is_last, (*reports, event))
    calls = any(map(tells_of_call, reports)) or any(str(field(item, "type")).endswith(_CALL_REASONS) for item in items)
    return Ending(cut, frozenset(flag for flag in flags if flag is not None), calls)


def _reports(response: Any, raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is told beside a response, in its message, and in each choice of the ``raw`` that was sent."""
    extras = [as_mapping(field(holder, "additional_kwargs")) for holder in (response, field(response, "message"))]
    reports = [*extras, raw, as_mapping(raw.get("delta"))]  # the last one is Anthropic's
    for choice in map(as_mapping, _as_list(raw.get("choices") or raw.get("candidates"))):
        reports += [choice, as_mapping(choice.get("message")), as_mapping(choice.get("delta"))]
    return reports


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def refuses(content: Any) -> bool:
    """Whether a block of a message is a refusal, as OpenAI's and LangChain's are; there may be text beside it."""
    blocks = content if isinstance(content, list) else []
    return any("refusal" in (field(block, "type"), field(field(block, "value"), "type")) for block in blocks)


def is_broken_off(*reports: Mapping[str, Any]) -> bool:
    """Whether a provider that always tells why an answer ends did not: its stream did not come to the end."""
    for report in reports:
        for name in _ENDING_FIELDS:
            if report.get(name):
                return False
    return any(report.get("model_provider") in _REPORTING_PROVIDERS for report in reports)


def _is_last(report: Mapping[str, Any]) -> bool | None:
    """Whether a report says that its piece is the last one; None if it has no field for that."""
    if "contentBlockDelta" in report:  # Bedrock's, whose last piece has the usage
        return False
    if str(report.get("type")).startswith("content_block_"):  # Anthropic's, whose last piece has the reason
        return False
    if isinstance(metadata := report.get("metadata"), Mapping) and "usage" in metadata:
        return True
    reasons = [report[name] for name in _REASON_FIELDS.intersection(report)]
    if isinstance(status := report.get("status"), str):
        reasons.append(status)
    if not reasons and isinstance(event := report.get("event_type"), str):  # Cohere's
        return event == "stream-end"
    return any(reason and reason not in _RUNNING_STATUSES for reason in reasons) if reasons else None


def field(holder: Any, name: str) -> Any:
    """The value of a mapping or an object under a name; None if it has none."""
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
