"""Ids under which OpenAI's Responses API keeps the parts of an answer, in a chat message."""

from __future__ import annotations

from typing import Any, Final

from langmem_adapters.providers.finish_reasons import field

__all__ = ["without_item_ids", "without_item_ids_beside", "without_thought_ids"]

_WORK: Final = frozenset(
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
_IDS: Final = {
    "text": "msg_",
    "output_text": "msg_",
    "refusal": "msg_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
}
_OF_CALLS: Final = "__openai_function_call_ids__"  # LangChain's name for these ids, by the ids of the calls


def without_item_ids(content: list[Any]) -> list[Any]:
    """The content of an answer in a form that can be shown to a model again, by any caller and at any time.

    OpenAI looks up a part that has such an id: it finds it for a month, with keys of the same project, and refuses an
    id that occurs twice in a conversation. Without its id, a part is taken as it is. A thought that is only an id is
    removed, and then also what OpenAI's own tools did, which it refuses without the thought; thoughts that are given in
    full, encrypted, stay with all their parts.
    """
    sealed = {_thought_id(block) for block in content if _is_sealed(block)}
    kept = [block for block in content if _thought_id(block) is None or _thought_id(block) in sealed]
    if len(kept) < len(content):
        kept = [block for block in kept if not _is_work(block)]
    return list(map(_without_id, kept))


def without_item_ids_beside(kwargs: dict[str, Any]) -> dict[str, Any]:
    """:func:`without_item_ids` for what is beside the content: with ``output_version="v0"``, all but texts."""
    kept = _without(_OF_CALLS, kwargs)
    if _thought_id(thought := kept.get("reasoning")) is None or _is_sealed(thought):
        return kept
    others = [one for one in kept.pop("tool_outputs", ()) if not _is_work(one)]
    return _without("reasoning", kept) | ({"tool_outputs": others} if others else {})


def without_thought_ids(said: dict[str, Any]) -> dict[str, Any]:
    """A message's data without the ids of thoughts that it has in full; its host shows a model none without one."""
    content = said.get("content")
    return {**said, "content": list(map(_thought, content))} if isinstance(content, list) else said


def _thought(block: Any) -> Any:
    extras = block.get("extras") if isinstance(block, dict) and block.get("type") == "reasoning" else None
    if not (isinstance(extras, dict) and _begins(extras.get("id"), "rs_")):
        return block
    return {**block, "extras": _without("id", extras)}


def _without_id(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    kind, extras = block.get("type"), block.get("extras")
    if isinstance(extras, dict) and kind == "tool_call" and "item_id" in extras:
        return {**block, "extras": _without("item_id", extras)}
    begins = _IDS.get(kind) if isinstance(kind, str) else None
    if begins is None or not _begins(block.get("id"), begins):
        return block
    return _without("id", block)


def _without(left_out: str, told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name != left_out}


def _thought_id(block: Any) -> str | None:
    """The id under which OpenAI keeps a thought; each part of a thought has it."""
    is_kept = isinstance(block, dict) and block.get("type") == "reasoning" and _begins(block.get("id"), "rs_")
    return str(block["id"]) if is_kept else None


def _is_sealed(block: Any) -> bool:
    return any(isinstance(held, dict) and held.get("encrypted_content") for held in (block, field(block, "extras")))


def _is_work(block: Any) -> bool:
    kinds = (field(block, "type"), field(field(block, "value"), "type"))
    return any(isinstance(kind, str) and kind in _WORK for kind in kinds)


def _begins(id_: Any, with_: str) -> bool:
    return isinstance(id_, str) and id_.startswith(with_)
