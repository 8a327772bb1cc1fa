"""OpenAI's chat messages, as requests and files for fine-tuning have them."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from langmem_adapters.errors import SerializationError
from langmem_adapters.importing.transcript import flaw
from langmem_adapters.model import Message

__all__ = ["chat_message"]


def chat_message(place: str, value: Any) -> Message:
    """Read a message. Raises SerializationError, naming the place, for anything else."""
    try:
        return Message.model_validate(_fields(value))
    except (ValidationError, SerializationError) as error:
        raise SerializationError(f"{place} is not a chat message: {flaw(error)}") from error


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value.get("role"):
        raise SerializationError("it has no role")
    rest = {name: field for name, field in value.items() if field is not None}
    own = {name: rest.pop(name) for name in ("role", "content", "name", "tool_call_id") if name in rest}
    for name, type_ in (("id", str), ("created_at", (int, float))):
        if isinstance(rest.get(name), type_):
            own[name] = rest.pop(name)
    calls = rest.pop("tool_calls", [])
    if not isinstance(calls, list):
        raise SerializationError("its tool_calls are not a list")
    return {**own, "tool_calls": [_tool_call(call) for call in calls], "metadata": rest}


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise SerializationError("a tool call has no function")
    arguments = function.get("arguments") or "{}"
    try:
        args = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError) as error:
        raise SerializationError("the arguments of a tool call are not JSON") from error
    return {"id": call.get("id"), "name": function.get("name", ""), "args": args}
