"""OpenAI's chat messages, as requests and files for fine-tuning have them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from langmem_adapters.errors import SerializationError
from langmem_adapters.importing.transcript import first_error
from langmem_adapters.model import Message

_OTHER_BLOCK_TYPES = ("tool_use", "tool_result", "input_text", "output_text")  # a type may be no hashable value
_OTHER_BLOCKS = (
    'it has blocks of another API: write texts as "content", calls as "tool_calls", and what a tool gave with the role'
    ' "tool"'
)


def read_chat_message(location: str, value: Any) -> Message:
    """Read a message. Raises SerializationError, naming the place, for anything else."""
    try:
        return Message.model_validate(_message_fields(value))
    except (ValidationError, SerializationError) as error:
        raise SerializationError(f"{location} is not a chat message: {first_error(error)}") from None


def _message_fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value.get("role"):
        raise SerializationError("it has no role")
    content = value.get("content")
    has_parts = content is None and isinstance(value.get("parts"), list)  # of Gemini or Vercel
    if has_parts or (isinstance(content, list) and any(map(_is_of_another_api, content))):
        raise SerializationError(_OTHER_BLOCKS)
    rest = {name: field for name, field in value.items() if field is not None}
    fields = {name: rest.pop(name) for name in ("role", "content", "name", "tool_call_id") if name in rest}
    for name, field_type in (("id", str), ("created_at", (int, float))):
        if isinstance(rest.get(name), field_type):
            fields[name] = rest.pop(name)
    calls = rest.pop("tool_calls", [])
    if not isinstance(calls, list):
        raise SerializationError("its tool_calls are not a list")
    tool_calls = [_tool_call(call) for call in calls]
    invalid_calls = [call for call in tool_calls if "type" in call]
    valid_calls = [call for call in tool_calls if "type" not in call]
    host = {"langchain": {"invalid_tool_calls": invalid_calls}} if invalid_calls else {}
    return {**fields, "tool_calls": valid_calls, "metadata": rest, "host": host}


def _is_of_another_api(block: Any) -> bool:
    """Whether a block is of Anthropic or of another API of OpenAI, and would be lost, or refused by a model."""
    if not isinstance(block, dict):
        return False
    return block.get("type") in _OTHER_BLOCK_TYPES or isinstance(block.get("text"), dict)


def _tool_call(call: Any) -> dict[str, Any]:
    """A tool call; if its arguments are not an object, in LangChain's form of an invalid call."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise SerializationError("a tool call has no function")
    arguments = function.get("arguments") or "{}"
    tool_call = {"id": call.get("id"), "name": function.get("name", ""), "args": arguments}
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            tool_call["args"] = json.loads(arguments)
        if not isinstance(tool_call["args"], dict):
            return {**tool_call, "type": "invalid_tool_call", "args": arguments, "error": None}
    return tool_call
