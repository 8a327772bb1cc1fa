"""Recognizes values of kinds that are not read, and says what to do with each."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["unsupported_advice"]

_CHAT_FORM: Final = 'write each message as {"role": "user", "content": "…"}, with "id" and "created_at" (Unix seconds)'
_RESPONSES_ADVICE: Final = f"it is of OpenAI's Responses API: {_CHAT_FORM}"

_ADVICE_BY_FIELD: Final = (
    ("chat_messages", list, f"it is of Claude's export: {_CHAT_FORM}"),
    ("sample_id", str, "it is LoCoMo as its authors have it: write each conversation with id, speakers and turns"),
    ("chat_store", dict, 'it is a memory of LlamaIndex: take the object under "chat_store" out of it'),
    ("memory_blocks", list, "it is a memory of LlamaIndex without its messages: dump those of its get_all()"),
    ("chat_memory", dict, "it is a memory of LangChain: have messages_to_dict write its messages"),
    ("custom_id", str, 'it is of a batch of OpenAI: take the "messages" out of the request, and add the answer'),
    ("choices", list, 'it is an answer of OpenAI: take the "message" out of it, and put it behind the question'),
    ("data", list, 'it is a page of an API: take the list under "data" out of it, the oldest message first'),
    ("input", list, _RESPONSES_ADVICE),
    ("output", list, _RESPONSES_ADVICE),
)
_LANGCHAIN_TYPES: Final = frozenset({"human", "ai", "system", "tool", "function", "chat"})


def unsupported_advice(value: Any) -> str | None:
    """Say what a value is and what to do with it; None if it is read, or of no known kind."""
    if not isinstance(value, dict):
        return None
    if "role" in value:
        return _unsupported_message_advice(value)
    type_name = str(value.get("type"))
    if type_name in _LANGCHAIN_TYPES and "content" in value:
        return "it is what model_dump makes of a message of LangChain: have messages_to_dict write it"
    if type_name.endswith(("reasoning", "_call", "_call_output")):
        return _RESPONSES_ADVICE
    for field, field_type, advice in _ADVICE_BY_FIELD:
        if isinstance(value.get(field), field_type):
            return advice
    return None


def _unsupported_message_advice(value: dict[str, Any]) -> str | None:
    """:func:`unsupported_advice` for messages with a role: kinds whose content would be lost, or refused by a model."""
    if value.get("object") == "thread.message":
        return f"it is of OpenAI's Assistants API: {_CHAT_FORM}, the oldest first"
    content = value.get("content")
    for block in content if isinstance(content, list) else ():
        block_type = block.get("type") if isinstance(block, dict) else None
        if block_type in ("tool_use", "tool_result"):
            return 'it has blocks of Anthropic: write calls as "tool_calls", and what a tool gave with the role "tool"'
        if block_type in ("input_text", "output_text"):
            return _RESPONSES_ADVICE
    return None
