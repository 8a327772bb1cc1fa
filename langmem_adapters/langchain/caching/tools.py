"""Tools that always give the same result, and checks that an answer was made with no others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.langchain.caching.prompt import class_name
from langmem_adapters.providers.content import THOUGHT_TYPES
from langmem_adapters.validation import checked_list

_TOOL_CLASSES = frozenset({"ToolMessage", "FunctionMessage"})
# Block types of an answer: what a model says and thinks, and calls that are among its tool_calls.
_ANSWER_BLOCK_TYPES = THOUGHT_TYPES | {"text", "output_text", "tool_call", "tool_use", "function_call"}
_CALL_KEYS = frozenset({"tool_calls", "function_call"})  # of additional_kwargs, in an answer whose calls were not read
_PROVIDER_TOOL_KEYS = frozenset({"tool_outputs", "executed_tools", "search_results", "citations"})
# Parameters, a tool and models with which OpenAI, OpenRouter and Google look something up, as LangChain writes them
# for a cache: its messages do not show what was looked up.
_HIDDEN_SEARCH_PATTERN = re.compile(
    r"""\b(?:(web_search_options(?=['"](?:, |: )\{)|plugins(?=['"](?:, |: )\[\{)"""
    r"""|url_context(?=['"]: \{\}|=UrlContext\())"""
    r"""|model(?:_name)?['"](?:, |: )['"]([^'"]*(?:-search-(?:api|preview)[^'"]*|:online))['"])"""
)


class DeterministicTools:
    """Which tools are declared deterministic, by their names.

    >>> DeterministicTools(["add"]).is_tool_exchange([{"id": ["ToolMessage"], "kwargs": {"name": "weather"}}])
    False
    """

    def __init__(self, deterministic: Collection[str] = ()) -> None:
        self.deterministic: frozenset[str] = frozenset(
            checked_list(deterministic, "deterministic_tools is a list of names", str)
        )

    def cover_answer(self, generations: Sequence[Generation]) -> bool:
        """Whether an answer calls only these tools.

        Nor may it be made with a tool of the provider's, such as a web search, which its blocks or metadata show.
        """
        return all(
            isinstance(generation, ChatGeneration)
            and isinstance(generation.message, AIMessage)
            and self._cover_message(generation.message)
            for generation in generations
        )

    def _cover_message(self, message: AIMessage) -> bool:
        if message.invalid_tool_calls or not self._cover_names(call["name"] for call in message.tool_calls):
            return False
        return not (_CALL_KEYS.intersection(message.additional_kwargs) or _shows_provider_tool(message.__dict__))

    def cover_request(self, llm_string: str) -> bool:
        """Whether a request offers no other tool of the provider's whose use its answer would not show."""
        return self._cover_names(name or model for name, model in _HIDDEN_SEARCH_PATTERN.findall(llm_string))

    def is_tool_exchange(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Whether dumped messages are nothing but calls of these tools and their results."""
        classes = set(map(class_name, messages))
        return classes <= _TOOL_CLASSES | {"AIMessage"} and self.cover_messages(messages)

    def cover_messages(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Whether all tool calls and tool results among dumped messages are of these tools, none a provider's."""
        calls = [call for message in messages for call in message["kwargs"].get("tool_calls") or ()]
        results = [message["kwargs"] for message in messages if class_name(message) in _TOOL_CLASSES]
        if any(class_name(message) == "AIMessage" and _shows_provider_tool(message["kwargs"]) for message in messages):
            return False
        name_of_call = {repr(call.get("id")): call.get("name") for call in reversed(calls)}
        return self._cover_names(call.get("name") for call in calls) and self._cover_names(
            result.get("name") or name_of_call.get(repr(result.get("tool_call_id"))) for result in results
        )

    def _cover_names(self, names: Iterable[Any]) -> bool:
        return self.deterministic.issuperset(names)


def _shows_provider_tool(fields: Mapping[str, Any]) -> bool:
    """Whether the fields of a model's message tell of a tool that ran at its provider, such as a web search."""
    if _PROVIDER_TOOL_KEYS.intersection(fields.get("additional_kwargs") or ()):
        return True
    metadata = fields.get("response_metadata")
    if isinstance(metadata, dict) and metadata.get("grounding_metadata"):
        return True
    content = fields.get("content")
    return isinstance(content, list) and not _ANSWER_BLOCK_TYPES.issuperset(map(_block_type, content))


def _block_type(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else "text"
