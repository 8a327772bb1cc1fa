"""Splits an answer into the chunks of a stream, and joins chunks into an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from langmem_adapters.experience.model_answers import split_words
from langmem_adapters.providers.tool_calls import are_complete
from langmem_adapters.sharing import independent_copy

_REASONING_KEY = "reasoning_content"  # LangChain's own name for reasoning that is no block of the content
# Fields that the last chunk has as the message has them.
_COPIED_FIELDS = AIMessageChunk.model_fields.keys() - {
    "additional_kwargs", "content", "id", "invalid_tool_calls", "tool_calls", "type"
}  # fmt: skip
_TRACE_METADATA_KEY = "lc_gateway_metadata"  # LangChain's own name for metadata that it keeps out of messages


def answer_chunks(generation: ChatGeneration) -> Iterator[ChatGenerationChunk]:
    """Chunks that add up to an answer: thoughts, text by words, and everything else with the last one.

    They have no id: LangChain gives them the id of the run.
    """
    message = generation.message
    content = message.content
    *first_words, last = split_words(content) if isinstance(content, str) else [content]
    kwargs = dict(message.additional_kwargs)
    if first_words and _REASONING_KEY in kwargs:  # before the text, as in the provider's own streams
        reasoning = {_REASONING_KEY: kwargs.pop(_REASONING_KEY)}
        yield ChatGenerationChunk(message=AIMessageChunk(content="", additional_kwargs=reasoning))
    for word in first_words:
        yield ChatGenerationChunk(message=AIMessageChunk(content=word))
    fields: dict[str, Any] = {name: value for name, value in message.__dict__.items() if name in _COPIED_FIELDS}
    fields |= {"additional_kwargs": kwargs, "tool_call_chunks": list(_call_chunks(message)), "chunk_position": "last"}
    chunk = AIMessageChunk(content=last, **fields)
    yield ChatGenerationChunk(message=chunk, generation_info=generation.generation_info)


def _call_chunks(message: Any) -> Iterator[ToolCallChunk]:
    if not isinstance(message, AIMessage):
        return
    for index, call in enumerate([*message.tool_calls, *message.invalid_tool_calls]):
        args = call["args"]  # of an invalid one, the text that could not be read
        text = json.dumps(args, default=str) if isinstance(args, dict) else args or ""  # chunks hold JSON alone
        yield tool_call_chunk(name=call["name"], args=text, id=call["id"], index=index)


class Recording:
    """Records the chunks of a stream as they arrive, whatever its reader does to them afterwards."""

    def __init__(self) -> None:
        self._chunks: list[ChatGenerationChunk] = []

    def take(self, chunk: ChatGenerationChunk) -> None:
        """Record the next chunk."""
        fields = chunk.message.__dict__.items()
        containers = {name: value for name, value in fields if isinstance(value, list | dict) and value}
        message = chunk.message.model_copy(update=independent_copy(containers))
        info = independent_copy(chunk.generation_info)
        self._chunks.append(ChatGenerationChunk(message=message, generation_info=info))

    def answer(self) -> ChatResult:
        """The answer that they add up to."""
        return join_chunks(self._chunks)


def join_chunks(chunks: Sequence[ChatGenerationChunk]) -> ChatResult:
    """The answer that chunks add up to, if there are any; a call with half of its arguments is an invalid one."""
    if not chunks:
        return ChatResult(generations=[])
    first, *rest = chunks
    joined = first + rest
    message = message_chunk_to_message(joined.message)
    if isinstance(message, AIMessage) and isinstance(joined.message, AIMessageChunk):
        incomplete_calls = [call for call in joined.message.tool_call_chunks if not are_complete(call["args"])]
        ids = {call["id"] for call in incomplete_calls}
        message.tool_calls = [call for call in message.tool_calls if call["id"] not in ids]
        message.invalid_tool_calls = [
            invalid_tool_call(name=call["name"], args=call["args"], id=call["id"], error=None)
            for call in incomplete_calls
        ]
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=joined.generation_info)])


def as_cached(result: ChatResult, output_version: str | None) -> list[ChatGeneration]:
    """New generations, with the metadata and the form of content in which LangChain would give them to a cache."""
    llm_output = (result.llm_output or {}) if len(result.generations) == 1 else {}
    return [_as_cached(generation, llm_output, output_version) for generation in result.generations]


def _as_cached(generation: ChatGeneration, llm_output: dict[str, Any], output_version: str | None) -> ChatGeneration:
    message = generation.message
    info = {name: value for name, value in (generation.generation_info or {}).items() if name != _TRACE_METADATA_KEY}
    metadata = {**llm_output, **info, **message.response_metadata}
    update: dict[str, Any] = {"response_metadata": metadata}
    if output_version == "v1":
        update = {"content": message.content_blocks, "response_metadata": {**metadata, "output_version": "v1"}}
    return ChatGeneration(message=message.model_copy(update=update), generation_info=info or None)
