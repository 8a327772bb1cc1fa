"""OpenAI's chat messages, as requests and files for fine-tuning have them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from langmem_adapters.errors import SerializationError
from langmem_adapters.importing.transcript import flaw
from langmem_adapters.importing.unread import other_kind
from langmem_adapters.model import Message

__all__ = ["chat_message"]


def chat_message(place: str, value: Any) -> Message:
    """Read a message. Raises SerializationError, naming the place, for anything else."""
    try:
        return Message.model_validate(_fields(value))
    except (ValidationError, SerializationError) as error:
        raise SerializationError(f"{place} is not a chat message: {flaw(error)}") from None


def _fields(value: Any) -> dict[str, Any]:
    if other := other_kind(value):
        raise SerializationError(other)
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
    made = [_tool_call(call) for call in calls]
    invalid = [call for call in made if "type" in call]
    valid = [call for call in made if "type" not in call]
    host = {"langchain": {"invalid_tool_calls": invalid}} if invalid else {}
    return {**own, "tool_calls": valid, "metadata": rest, "host": host}


def _tool_call(call: Any) -> dict[str, Any]:
    """A tool call; if its arguments are not an object, in LangChain's form of an invalid call."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise SerializationError("a tool call has no function")
    arguments = function.get("arguments") or "{}"
    made = {"id": call.get("id"), "name": function.get("name", ""), "args": arguments}
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            made["args"] = json.loads(arguments)
        if not isinstance(made["args"], dict):
            return {**made, "type": "invalid_tool_call", "args": arguments, "error": None}
    return made
