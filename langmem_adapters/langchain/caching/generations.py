"""LangChain generations as plain data: written for a cache, read back as new answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.errors import SerializationError
from langmem_adapters.langchain.convert import from_message, to_stored_message
from langmem_adapters.langchain.rebuild import message_from_data, rebuild_generation
from langmem_adapters.model import Message
from langmem_adapters.providers.content import THOUGHT_TYPES, standard_block, without_thoughts
from langmem_adapters.providers.finish_reasons import is_broken_off, is_cut, refuses, tells_of_call
from langmem_adapters.providers.item_ids import kwargs_without_item_ids, without_item_ids
from langmem_adapters.providers.tool_calls import with_new_call_ids
from langmem_adapters.providers.usage import with_zero_usage

_CALL_KEYS = frozenset({"function_call", "tool_calls"})  # of additional_kwargs, if LangChain does not read the calls
_OPENAI_CALL_TYPES = ("apply_patch_call", "computer_call", "mcp_approval_request")  # not taken without their thought
# In what the models tell that do not say in their answers who gave them.
_TYPE_MARK = "('_type', '"
_OLLAMA_MARKS = (f"{_TYPE_MARK}chat-ollama')", f"{_TYPE_MARK}ollama-llm')")
_REASON_MARKS = (f"{_TYPE_MARK}perplexitychat')", f"{_TYPE_MARK}chat-nvidia-ai-playground')")
_REPORTING = {"model_provider": "perplexity"}  # as of any provider that always tells
_BEDROCK_MARK = '"ChatBedrock"'
_CLAUDE_MARKS = (_BEDROCK_MARK, "anthropic.")  # other models give this class no reason, or under other names
_CONTAINER_KEY = "container"  # Anthropic's sandbox, which belongs to the first caller and has that caller's files


def worth_storing(generations: Sequence[Generation]) -> bool:
    """Whether an answer is whole: none of its parts was cut off, filtered, refused or left empty."""
    return bool(generations) and all(map(_is_whole, generations))


def is_broken_off_silently(llm_string: str, generations: Sequence[Generation]) -> bool:
    """Whether an answer that does not tell its provider lacks its end: :func:`worth_storing` knows no model.

    One of Ollama always tells that it is done. A stream of Perplexity, NVIDIA or, by ``ChatBedrock``, Claude tells its
    reason. An answer of Perplexity that was not streamed has a model name, no ``generation_info`` and no reason.
    """
    if _TYPE_MARK not in llm_string and _BEDROCK_MARK not in llm_string:
        return False
    infos = [generation.generation_info or {} for generation in generations]
    metadata = [one.message.response_metadata for one in generations if isinstance(one, ChatGeneration)]
    if any(mark in llm_string for mark in _OLLAMA_MARKS):
        return not any(report.get("done") for report in [*infos, *metadata])
    is_streamed = any(infos) or not all("model_name" in report for report in metadata)
    tells_reason = any(mark in llm_string for mark in _REASON_MARKS) or all(
        mark in llm_string for mark in _CLAUDE_MARKS
    )
    return tells_reason and is_streamed and is_broken_off(_REPORTING, *infos, *metadata)


def _is_whole(generation: Generation) -> bool:
    metadata = [generation.generation_info] if generation.generation_info else []
    if isinstance(generation, ChatGeneration):
        message = generation.message
        metadata += filter(None, (message.response_metadata, message.additional_kwargs))
        if getattr(message, "invalid_tool_calls", None):
            return False
        content = message.content if isinstance(message.content, list) else []
        if any(map(_is_awaited_call, [*content, *(message.additional_kwargs.get("tool_outputs") or ())])):
            return False
        has_calls = getattr(message, "tool_calls", None) or _CALL_KEYS & message.additional_kwargs.keys()
        if not has_calls and any(map(tells_of_call, metadata)):
            return False
        if not (_has_content(message.content) or getattr(message, "tool_calls", None)):
            return False
    elif not without_thoughts(generation.text):
        return False
    return not (any(map(is_cut, metadata)) or is_broken_off(*metadata))


def _has_content(content: str | list[Any]) -> bool:
    """Whether there is any text, or anything other than text and thoughts; a refusal says nothing."""
    if isinstance(content, str):
        return bool(without_thoughts(content))
    blocks = [standard_block(block) for block in content]
    types = set(map(_block_type, blocks))
    text = "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")
    return not refuses(content) and bool(without_thoughts(text) or types - THOUGHT_TYPES - {"text"})


def _is_awaited_call(block: Any) -> bool:
    """Whether the provider awaits the call's result, and holds what belongs to it: a container, or OpenAI's thought."""
    if not isinstance(block, dict):
        return False
    caller = block.get("caller")
    is_of_code = isinstance(caller, dict) and str(caller.get("type")).startswith("code_execution")
    return is_of_code or _block_type(block) in _OPENAI_CALL_TYPES


def _block_type(block: dict[str, Any]) -> Any:
    """The type of a standard block, or of a provider's own that it holds."""
    if block.get("type") == "non_standard" and isinstance(block.get("value"), dict):
        return block["value"].get("type")
    return block.get("type")


def write_generations(generations: Sequence[Generation]) -> list[dict[str, Any]]:
    """Turn generations into plain data. Raises SerializationError for what data cannot hold."""
    return [_write_generation(generation) for generation in generations]


def _write_generation(generation: Generation) -> dict[str, Any]:
    info = {} if generation.generation_info is None else {"info": generation.generation_info}
    if isinstance(generation, ChatGeneration):
        return {"message": to_stored_message(generation.message).to_data(), **info}
    return {"text": generation.text, **info}


def read_generations(data: Any, *, age: float, new_id: Callable[[], str]) -> list[Generation]:
    """Make new generations of stored data: each message has ids of its own and is marked as a hit, without a key yet.

    Raises SerializationError for anything that :func:`write_generations` did not write.
    """
    if not isinstance(data, list) or not data:
        raise SerializationError("a stored answer is not a list of generations")
    try:
        return [_read_generation(entry, age, new_id) for entry in data]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SerializationError(f"a stored answer cannot be read: {type(error).__name__}") from error


def _read_generation(entry: dict[str, Any], age: float, new_id: Callable[[], str]) -> Generation:
    info = entry.get("info")
    info = with_zero_usage(info) if isinstance(info, dict) else info
    if "message" not in entry:
        return Generation(text=entry["text"], generation_info=info)
    fields = with_new_call_ids(entry["message"], new_id)
    message = message_from_data(fields) or from_message(Message.from_data(fields))
    hit_metadata = {"cache": "hit", "cache_age": age, "cache_score": 1.0}
    new_fields: dict[str, Any] = {"id": f"lc_run--{new_id()}"}
    if isinstance(message, AIMessage):
        hit_metadata["cache_usage"] = message.usage_metadata
        new_fields["usage_metadata"] = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    new_fields["response_metadata"] = with_zero_usage(message.response_metadata) | hit_metadata
    new_fields["response_metadata"].pop(_CONTAINER_KEY, None)
    if isinstance(message.content, list):
        new_fields["content"] = without_item_ids(message.content)
    if message.additional_kwargs:
        new_fields["additional_kwargs"] = kwargs_without_item_ids(message.additional_kwargs)
    # The same as setting each attribute, which in pydantic would cost more than all the rest.
    message.__dict__.update(new_fields)
    message.__pydantic_fields_set__.update(new_fields)
    return rebuild_generation(message, info)
