"""What a cached model leaves to its own model: objects of a class, and what belongs to calls of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.output_parsers.base import OutputParserException
from llama_index.core.types import PydanticProgramMode

from langmem_adapters.experience.single_flight.request_keys import collect_request_keys
from langmem_adapters.flow import arun, run

SHARED_FIELDS = (
    "callback_manager",
    "completion_to_prompt",
    "messages_to_prompt",
    "output_parser",
    "pydantic_program_mode",
    "query_wrapper_prompt",
    "system_prompt",
)
"""Fields of every model, which a wrapper takes from its model."""
_DIRECT_METHODS = ("Anthropic.", "OpenAIResponses.structured_", "OpenAIResponses.astructured_")
"""Prefixes of the methods that ask their client directly, whatever the ``pydantic_program_mode`` of the model."""
_SYNC_METHODS = ("chat", "complete", "stream_chat", "stream_complete")
_CALL_METHODS = (*_SYNC_METHODS, *(f"a{name}" for name in _SYNC_METHODS))

_MISFITS = (ValueError, TypeError, KeyError, OutputParserException)
"""What is raised for an answer that is no object of the class."""


class StructuredPrediction:
    """The methods of ``LLM`` that give objects of a class: by the model's own means, if any, and through the cache.

    Those that are no streams delete an answer that is no such object: it would be served for ever, also to a retry.
    """

    _wrapped: LLM
    _answers: Any

    def structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """An object of a class; see ``LLM.structured_predict``."""
        with collect_request_keys() as keys:
            try:
                return self._structured_method("structured_predict")(*args, **kwargs)
            except _MISFITS:
                run(self._answers.forget(keys))
                raise

    async def astructured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`structured_predict`, without blocking the event loop."""
        with collect_request_keys() as keys:
            try:
                return await self._structured_method("astructured_predict")(*args, **kwargs)
            except _MISFITS:
                await arun(self._answers.forget(keys))
                raise

    def stream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """An object of a class, in a stream in which it grows."""
        return self._structured_method("stream_structured_predict")(*args, **kwargs)

    def astream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`stream_structured_predict`, without blocking the event loop."""
        return self._structured_method("astream_structured_predict")(*args, **kwargs)

    def _structured_method(self, name: str) -> Callable[..., Any]:
        """A method of a copy of the model, whose calls go through the cache; LLM's own, if the model has no other."""
        owner = next(cls for cls in type(self._wrapped).__mro__ if name in vars(cls))
        uses_program = self._wrapped.pydantic_program_mode != PydanticProgramMode.DEFAULT
        if owner is LLM or (uses_program and f"{owner.__name__}.{name}".startswith(_DIRECT_METHODS)):
            return cast("Callable[..., Any]", getattr(super(), name))
        routed_model = self._wrapped.model_copy()
        routed_model.__dict__.update({name: getattr(self, name) for name in _CALL_METHODS})
        return cast("Callable[..., Any]", getattr(routed_model, name))


class FunctionCalls(FunctionCallingLLM):
    """What a model that calls functions implements beside chats."""

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
