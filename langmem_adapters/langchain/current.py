"""A chat model as it is now: LangChain remembers what it, or that of which it is a copy, was at its first call."""

from __future__ import annotations

from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

__all__ = ["as_it_is_now"]

ModelT = TypeVar("ModelT", bound=BaseChatModel)

_TOLD = "_serialized"  # LangChain's name for what it tells caches and tracers of a model; a cached property
_SEEN = "_langmem_seen"


def as_it_is_now(model: ModelT) -> ModelT:
    """Have LangChain tell anew what the model is, if its fields are no more what they were.

    ``model.model_copy(update={"model_name": …})`` takes along what was told of the first model, and would be given its
    answers; so would a model with a field set to something else.
    """
    held = model.__dict__
    seen = held.get(_SEEN)
    if seen is None or any(_differs(seen.get(name), value) for name, value in held.items() if name[0] != "_"):
        held.pop(_TOLD, None)
        held[_SEEN] = {name: _kept(value) for name, value in held.items() if name[0] != "_"}
    return model


def _kept(value: Any) -> Any:
    """A value that stays as it is, whatever is done to a list or mapping of the model."""
    return value.copy() if isinstance(value, dict | list) else value


def _differs(one: Any, other: Any) -> bool:
    return one is not other and not (isinstance(one, dict | list) and bool(one == other))
