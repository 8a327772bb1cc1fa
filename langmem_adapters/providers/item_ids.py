"""Ids under which OpenAI's Responses API keeps the parts of an answer, in a chat message."""

from __future__ import annotations

from typing import Any, Final

from langmem_adapters.providers.finish_reasons import field

_SERVER_TOOL_TYPES: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "mcp_call",
        "mcp_list_tools",
        "server_tool_call",
        "server_tool_result",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
    }
)
_ID_PREFIXES: Final = {
    "text": "msg_",
    "output_text": "msg_",
    "refusal": "msg_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
}
_CALL_IDS_KEY: Final = "__openai_function_call_ids__"  # LangChain's name for these ids, by the ids of the calls


def without_item_ids(content: list[Any]) -> list[Any]:
    """The content of an answer in a form that can be shown to a model again, by any caller and at any time.

    OpenAI looks up a part that has such an id: it finds it for a month, with keys of the same project, and refuses an
    id that occurs twice in a conversation. Without its id, a part is taken as it is. A thought that is only an id is
    removed, and then also what OpenAI's own tools did, which it refuses without the thought; thoughts that are given in
    full, encrypted, stay with all their parts. Otherwise an image that OpenAI made, which LangChain sends again as
    nothing but its id, becomes LangChain's own block of an image, which it does not send again.
    """
    encrypted_ids = {_thought_id(block) for block in content if _is_encrypted(block)}
    remaining = [block for block in content if _thought_id(block) is None or _thought_id(block) in encrypted_ids]
    if len(remaining) < len(content):
        remaining = [block for block in remaining if not _is_server_tool_block(block)]
    return [_without_id(block if encrypted_ids else _plain_image(block)) for block in remaining]


def kwargs_without_item_ids(kwargs: dict[str, Any]) -> dict[str, Any]:
    """:func:`without_item_ids` for what is beside the content: with ``output_version="v0"``, all but texts."""
    remaining = _without_key(_CALL_IDS_KEY, kwargs) if _CALL_IDS_KEY in kwargs else kwargs
    thought = remaining.get("reasoning")
    if thought is None or _thought_id(thought) is None or _is_encrypted(thought):
        return remaining
    tool_outputs = [output for output in remaining.get("tool_outputs", ()) if not _is_server_tool_block(output)]
    remaining = _without_key("tool_outputs", _without_key("reasoning", remaining))
    return remaining | ({"tool_outputs": tool_outputs} if tool_outputs else {})


def without_thought_ids(data: dict[str, Any]) -> dict[str, Any]:
    """A message's data without the ids of thoughts that it has in full; its host shows a model none without one."""
    content = data.get("content")
    return {**data, "content": list(map(_without_thought_id, content))} if isinstance(content, list) else data


def _without_thought_id(block: Any) -> Any:
    extras = block.get("extras") if isinstance(block, dict) and block.get("type") == "reasoning" else None
    if not (isinstance(extras, dict) and _has_prefix(extras.get("id"), "rs_")):
        return block
    return {**block, "extras": _without_key("id", extras)}


def _plain_image(block: Any) -> Any:
    """An image that OpenAI made as LangChain's own block, without its id; any other block as it is."""
    if not (isinstance(block, dict) and _has_prefix(block.get("id"), "ig_")):
        return block
    if block.get("type") == "image_generation_call" and block.get("result"):
        return {"type": "image", "base64": block["result"], "mime_type": f"image/{block.get('output_format', 'png')}"}
    return _without_key("id", block) if block.get("type") == "image" else block


def _without_id(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    kind, extras = block.get("type"), block.get("extras")
    if isinstance(extras, dict) and kind == "tool_call" and "item_id" in extras:
        return {**block, "extras": _without_key("item_id", extras)}
    prefix = _ID_PREFIXES.get(kind) if isinstance(kind, str) else None
    if prefix is None or not _has_prefix(block.get("id"), prefix):
        return block
    return _without_key("id", block)


def _without_key(key: str, mapping: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _thought_id(block: Any) -> str | None:
    """The id under which OpenAI keeps a thought; each part of a thought has it."""
    has_id = isinstance(block, dict) and block.get("type") == "reasoning" and _has_prefix(block.get("id"), "rs_")
    return str(block["id"]) if has_id else None


def _is_encrypted(block: Any) -> bool:
    return any(isinstance(part, dict) and part.get("encrypted_content") for part in (block, field(block, "extras")))


def _is_server_tool_block(block: Any) -> bool:
    kinds = (field(block, "type"), field(field(block, "value"), "type"))
    return any(isinstance(kind, str) and kind in _SERVER_TOOL_TYPES for kind in kinds)


def _has_prefix(id_: Any, prefix: str) -> bool:
    return isinstance(id_, str) and id_.startswith(prefix)
