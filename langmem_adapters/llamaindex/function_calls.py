"""What a LlamaIndex model that calls functions implements beside chats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.function_calling import FunctionCallingLLM

__all__ = ["FunctionCalls"]


class FunctionCalls(FunctionCallingLLM):
    """The part of a cached model that its own model does."""

    _wrapped: FunctionCallingLLM = PrivateAttr()

    def _prepare_chat_with_tools(
        self, tools: Sequence[Any], *args: Any, tool_required: bool = False, **kwargs: Any
    ) -> dict[str, Any]:
        prepare: Any = self._wrapped._prepare_chat_with_tools_compat  # noqa: SLF001 - what such a model implements
        return cast("dict[str, Any]", prepare(tools, *args, tool_required=tool_required, **kwargs))

    def _validate_chat_with_tools_response(
        self, response: ChatResponse, tools: Sequence[Any], *args: Any, **kwargs: Any
    ) -> ChatResponse:
        validate = self._wrapped._validate_chat_with_tools_response  # noqa: SLF001 - what such a model implements
        return validate(response, tools, *args, **kwargs)

    def get_tool_calls_from_response(self, response: ChatResponse, *args: Any, **kwargs: Any) -> list[Any]:
        """The tool calls in a response, as the model reads them."""
        return self._wrapped.get_tool_calls_from_response(response, *args, **kwargs)
