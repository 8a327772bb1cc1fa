"""Ids of tool calls in a message's data: where a host and a provider repeat them, and nowhere else.

What a call was given and what it gave may hold the very same text, as a ticket's number is "1" where the call's id is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

__all__ = ["are_complete", "call_ids", "called_anew", "numbered", "renamed"]

_LISTS = frozenset({"tool_calls", "invalid_tool_calls", "tool_call_chunks", "reasoning_details"})
_REFERENCES = frozenset({"tool_call_id", "call_id", "tool_use_id"})
_CALLS = frozenset(
    {"custom_tool_call", "function", "function_call", "invalid_tool_call", "tool_call", "tool_call_chunk", "tool_use"}
)
_GIVEN = frozenset({"args", "arguments", "artifact", "input", "output", "tool_kwargs"})  # to a tool, and by it
_OF_MISTRAL: Final = re.compile(r"[a-zA-Z0-9]{9}")  # which takes no other ids
_THOUGHT: Final = "__thought__"  # behind which LiteLLM has Gemini's signature of a call, in the call's id


def call_ids(calls: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of tool calls, in their order; without those that mean something, as where a tool's name is the id."""
    return [id_ for call in calls if isinstance(id_ := call.get("id"), str) and id_ and id_ != call.get("name")]


def are_complete(args: str | None) -> bool:
    """Whether the arguments of a streamed call are all there: LangChain completes them by guessing.

    So half of a call would look like a call.
    """
    try:
        return isinstance(json.loads(args or "{}", strict=False), dict)
    except (ValueError, RecursionError):
        return False


def numbered(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages with their tool calls by order: models make up a new id each time."""
    ids = call_ids(call for message in messages for call in message.get("tool_calls", ()))
    return renamed(messages, {id_: f"call {n}" for n, id_ in enumerate(ids)}) if ids else messages


def called_anew(message: dict[str, Any], new_id: Callable[[], str]) -> dict[str, Any]:
    """A message with new ids of its tool calls, of the form that the provider gave them."""
    ids = call_ids(message.get("tool_calls") or ())
    return renamed(message, {id_: _like(id_, new_id()) for id_ in ids}) if ids else message


def _like(id_: str, new: str) -> str:
    if _OF_MISTRAL.fullmatch(id_):
        return hashlib.sha256(new.encode()).hexdigest()[:9]
    _, mark, signature = id_.partition(_THOUGHT)
    return f"call_{new}{mark}{signature}"


def renamed(value: Any, names: Mapping[str, str], *, listed: bool = False) -> Any:
    """Copy a message's data, or that of many, or of calls that are ``listed``, with other ids of tool calls."""
    if isinstance(value, list):
        return [renamed(item, names, listed=listed) for item in value]
    if not isinstance(value, dict):
        return value
    if names.keys() >= value.keys():  # what is kept of each call, as a provider's signature of it
        return {names[key]: item for key, item in value.items()}
    is_call = listed or value.get("type") in _CALLS
    copy: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, str):
            is_id = key in _REFERENCES or (is_call and key == "id")
            copy[key] = names.get(item, item) if is_id else item
        elif key in _REFERENCES and isinstance(item, list):  # as LlamaIndex' BedrockConverse has it in streams
            copy[key] = [names.get(id_, id_) if isinstance(id_, str) else id_ for id_ in item]
        elif key in _GIVEN:
            copy[key] = item
        else:
            copy[key] = renamed(item, names, listed=key in _LISTS)
    return copy
