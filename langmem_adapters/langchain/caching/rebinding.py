"""Putting another chat model into what was made from one: bound tools, a chain with a parser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.runnables.configurable import RunnableConfigurableFields
from pydantic import BaseModel

__all__ = ["replaced_models"]


def replaced_models(runnable: Any, replace: Callable[[BaseChatModel], BaseChatModel]) -> Any:
    """A runnable with other chat models in it; the same object, where it has none. The given one is left alone."""
    if isinstance(runnable, BaseChatModel):
        return replace(runnable)
    if isinstance(runnable, RunnableConfigurableFields):  # makes another model of the class of its own
        return runnable
    if not (isinstance(runnable, Runnable) and isinstance(runnable, BaseModel)):
        return runnable
    changed = {}
    for name in type(runnable).model_fields:
        value = getattr(runnable, name)
        new = _inside(value, replace)
        if new is not value:
            changed[name] = new
    return runnable.model_copy(update=changed) if changed else runnable


def _inside(value: Any, replace: Callable[[BaseChatModel], BaseChatModel]) -> Any:
    """A runnable, or a list or mapping of runnables; anything else stays as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Runnable) for item in value):
        return [replaced_models(item, replace) for item in value]
    if isinstance(value, Mapping) and value and all(isinstance(item, Runnable) for item in value.values()):
        return {name: replaced_models(item, replace) for name, item in value.items()}
    return replaced_models(value, replace) if isinstance(value, Runnable) else value
