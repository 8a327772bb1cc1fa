"""Structured output of a wrapped model: by the model's own means if it has any, and through the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llama_index.core.llms import LLM
from llama_index.core.types import PydanticProgramMode

__all__ = ["SAME", "StructuredPrediction"]

SAME = (
    "callback_manager",
    "completion_to_prompt",
    "messages_to_prompt",
    "output_parser",
    "pydantic_program_mode",
    "query_wrapper_prompt",
    "system_prompt",
)
"""Fields of every model, which a wrapper takes from its model."""
_PAST_ALL = ("Anthropic.", "OpenAIResponses.structured_", "OpenAIResponses.astructured_")
"""Prefixes of the methods that ask their client directly, whatever the ``pydantic_program_mode`` of the model."""
_WAYS = ("achat", "acomplete", "astream_chat", "astream_complete", "chat", "complete", "stream_chat", "stream_complete")


class StructuredPrediction:
    """The methods of ``LLM`` that give objects of a class, for a wrapped model."""

    _wrapped: LLM

    def structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """An object of a class; see ``LLM.structured_predict``."""
        return self._structuring("structured_predict")(*args, **kwargs)

    def astructured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`structured_predict`, without blocking the event loop."""
        return self._structuring("astructured_predict")(*args, **kwargs)

    def stream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """An object of a class, in a stream in which it grows."""
        return self._structuring("stream_structured_predict")(*args, **kwargs)

    def astream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """:meth:`stream_structured_predict`, without blocking the event loop."""
        return self._structuring("astream_structured_predict")(*args, **kwargs)

    def _structuring(self, name: str) -> Callable[..., Any]:
        """A method of a copy of the model, whose calls go through the cache; LLM's own, if the model has no other."""
        own = next(cls for cls in type(self._wrapped).__mro__ if name in vars(cls))
        by_program = self._wrapped.pydantic_program_mode != PydanticProgramMode.DEFAULT
        if own is LLM or (by_program and f"{own.__name__}.{name}".startswith(_PAST_ALL)):
            return cast("Callable[..., Any]", getattr(super(), name))
        twin = self._wrapped.model_copy()
        twin.__dict__.update({name: getattr(self, name) for name in _WAYS})
        return cast("Callable[..., Any]", getattr(twin, name))
