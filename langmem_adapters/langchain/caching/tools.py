"""Tools that always give the same result, and checks that an answer was made with no others."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.langchain.caching.prompt import class_of
from langmem_adapters.providers.content import THOUGHTS
from langmem_adapters.validation import checked_list

__all__ = ["Tools"]

_AI = frozenset({"AIMessage", "AIMessageChunk"})
_TOOL = frozenset({"ToolMessage", "ToolMessageChunk", "FunctionMessage", "FunctionMessageChunk"})
# Block types of an answer: what a model says and thinks, and calls that are among its tool_calls.
_OWN = THOUGHTS | {"text", "output_text", "tool_call", "tool_use", "function_call"}
_BESIDE = frozenset({"tool_calls", "function_call", "tool_outputs", "executed_tools", "search_results", "citations"})
# Parameters, a tool and models with which OpenAI, OpenRouter and Google look something up, as LangChain writes them
# for a cache: its messages do not show what was looked up.
_UNTOLD = re.compile(
    r"""\b(?:(web_search_options(?=['"](?:, |: )\{)|plugins(?=['"](?:, |: )\[\{)"""
    r"""|url_context(?=['"]: \{\}|=UrlContext\())"""
    r"""|model(?:_name)?['"](?:, |: )['"]([^'"]*(?:-search-(?:api|preview)[^'"]*|:online))['"])"""
)


class Tools:
    """Which tools are declared deterministic.

    Args:
        deterministic: Their names.

    >>> Tools(["add"]).made([{"id": ["ToolMessage"], "kwargs": {"name": "weather"}}])
    False
    """

    def __init__(self, deterministic: Collection[str] = ()) -> None:
        self.deterministic: frozenset[str] = frozenset(
            checked_list(deterministic, "deterministic_tools is a list of names", str)
        )

    def are_all_of(self, generations: Sequence[Generation]) -> bool:
        """Whether an answer calls only these tools.

        Nor may it be made with a tool of the provider's, such as a web search, which its blocks or metadata show.
        """
        return all(
            isinstance(generation, ChatGeneration)
            and isinstance(generation.message, AIMessage)
            and self._know(call["name"] for call in generation.message.tool_calls)
            and not generation.message.invalid_tool_calls
            and not _BESIDE.intersection(generation.message.additional_kwargs)
            and not generation.message.response_metadata.get("grounding_metadata")
            and (isinstance(generation.message.content, str) or _OWN.issuperset(map(_kind, generation.message.content)))
            for generation in generations
        )

    def are_all_in(self, llm_string: str) -> bool:
        """Whether a request offers no other tool of the provider's whose use its answer would not show."""
        return self._know(name or model for name, model in _UNTOLD.findall(llm_string))

    def made(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Whether dumped messages are nothing but calls of these tools and their results."""
        return all(class_of(message) in _AI | _TOOL for message in messages) and self.gave_all(messages)

    def gave_all(self, messages: Sequence[dict[str, Any]]) -> bool:
        """Whether all tool calls and tool results among dumped messages are of these tools."""
        calls = [call for message in messages for call in message["kwargs"].get("tool_calls") or ()]
        results = [message["kwargs"] for message in messages if class_of(message) in _TOOL]
        called = {repr(call.get("id")): call.get("name") for call in reversed(calls)}
        return self._know(call.get("name") for call in calls) and self._know(
            result.get("name") or called.get(repr(result.get("tool_call_id"))) for result in results
        )

    def _know(self, names: Iterable[Any]) -> bool:
        return self.deterministic.issuperset(names)


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else "text"
