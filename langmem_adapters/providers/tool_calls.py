"""Ids of tool calls in a message's data: where a host and a provider repeat them, and nowhere else.

Arguments and results may hold the very same text: a ticket's number may be "1" when the call's id is "1".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

_CALL_LIST_KEYS = frozenset(
    {"ag_ui_tool_calls", "invalid_tool_calls", "reasoning_details", "tool_call_chunks", "tool_calls"}
)
_CALL_ID_KEYS = frozenset({"tool_call_id", "call_id", "tool_use_id"})
_CALL_TYPES = frozenset(
    {"custom_tool_call", "function", "function_call", "invalid_tool_call", "tool_call", "tool_call_chunk", "tool_use"}
)
_PAYLOAD_KEYS = frozenset({"args", "arguments", "artifact", "input", "output", "tool_kwargs"})  # arguments and results
_MISTRAL_ID_PATTERN: Final = re.compile(r"[a-zA-Z0-9]{9}")  # Mistral takes no other ids
_SIGNATURE_MARK: Final = "__thought__"  # in a call's id, LiteLLM puts Gemini's signature of the call after this


def call_ids(calls: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of tool calls, in their order; without ids that mean something, as when a tool's name is the id."""
    return [id_ for call in calls if isinstance(id_ := call.get("id"), str) and id_ and id_ != call.get("name")]


def are_complete(args: str | None) -> bool:
    """Whether the arguments of a streamed call are all there.

    LangChain completes them by guessing, so that half a call would look like a call.
    """
    try:
        return isinstance(json.loads(args or "{}", strict=False), dict)
    except (ValueError, RecursionError):
        return False


def with_numbered_calls(
    messages: list[dict[str, Any]], other_calls: Iterable[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Messages with their tool calls, and others that they mention, numbered in order, as models make up new ids."""
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    ids = call_ids([*calls, *other_calls])
    return replace_call_ids(messages, {id_: f"call {n}" for n, id_ in enumerate(ids)}) if ids else messages


def with_new_call_ids(message: dict[str, Any], new_id: Callable[[], str]) -> dict[str, Any]:
    """A message with new ids of its tool calls, in the form of the provider's own."""
    if not (calls := message.get("tool_calls")):
        return message
    ids = call_ids(calls)
    return replace_call_ids(message, {id_: _id_like(id_, new_id()) for id_ in ids}) if ids else message


def _id_like(id_: str, new_id: str) -> str:
    if _MISTRAL_ID_PATTERN.fullmatch(id_):
        return hashlib.sha256(new_id.encode()).hexdigest()[:9]
    _, mark, signature = id_.partition(_SIGNATURE_MARK)
    return f"call_{new_id}{mark}{signature}"


def replace_call_ids(value: Any, new_ids: Mapping[str, str], *, in_call_list: bool = False) -> Any:
    """Copy the data of one or many messages, or of calls ``in_call_list``, with other ids of tool calls."""
    if isinstance(value, list):
        return [replace_call_ids(item, new_ids, in_call_list=in_call_list) for item in value]
    if not isinstance(value, dict):
        return value
    if new_ids.keys() >= value.keys():  # data by call id, such as a provider's signatures
        return {new_ids[key]: item for key, item in value.items()}
    is_call = in_call_list or value.get("type") in _CALL_TYPES
    copy: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, str):
            is_id = key in _CALL_ID_KEYS or (is_call and key == "id")
            copy[key] = new_ids.get(item, item) if is_id else item
        elif key in _CALL_ID_KEYS and isinstance(item, list):  # as in streams of LlamaIndex's BedrockConverse
            copy[key] = [new_ids.get(id_, id_) if isinstance(id_, str) else id_ for id_ in item]
        elif key in _PAYLOAD_KEYS:
            copy[key] = item
        else:
            copy[key] = replace_call_ids(item, new_ids, in_call_list=key in _CALL_LIST_KEYS)
    return copy
