"""Replaces the chat model in what was made from it: bound tools, a chain with a parser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import ConfigurableFieldSpec, Runnable, RunnableConfig
from langchain_core.runnables.configurable import DynamicRunnable, RunnableConfigurableFields
from pydantic import BaseModel

_FIELDS = ("callbacks", "disable_streaming", "metadata", "name", "output_version", "profile", "tags", "verbose")


class FieldsOfTheModel(RunnableConfigurableFields[Any, Any]):
    """A model with its cache; the fields that a run's configuration sets belong to the model inside."""

    default: Any

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """What a configuration may set."""
        return self._inner_fields.config_specs

    @property
    def _inner_fields(self) -> DynamicRunnable[Any, Any]:
        fields: DynamicRunnable[Any, Any] = self.default.wrapped.configurable_fields(**self.fields)
        return fields

    def _prepare(self, config: RunnableConfig | None = None) -> tuple[Runnable[Any, Any], RunnableConfig]:
        configured, config = self._inner_fields._prepare(config)  # noqa: SLF001 - what its own class implements
        return self.default._rebind_cache(configured), config  # noqa: SLF001 - what every model with a cache has


def fields_of(model: BaseChatModel) -> dict[str, Any]:
    """The fields that a cached model has from the model that it wraps."""
    fields = {name: getattr(model, name) for name in _FIELDS}
    if "streaming" in model.model_fields_set:
        fields["streaming"] = getattr(model, "streaming", None)
    if not (model.disable_streaming or implements(model, "_stream") or implements(model, "_astream")):
        fields["disable_streaming"] = "tool_calling"  # LangChain would mend a cut-off call in chunks
    return fields


def implements(model: BaseChatModel, method: str) -> bool:
    """Whether a model has a method of its own, and not only that of LangChain's class."""
    return getattr(type(model), method) is not getattr(BaseChatModel, method)


def replace_models(runnable: Any, replace: Callable[[BaseChatModel], BaseChatModel]) -> Any:
    """A runnable with its chat models replaced; the same object if it has none. The given one is not changed."""
    if isinstance(runnable, BaseChatModel):
        return replace(runnable)
    if isinstance(runnable, RunnableConfigurableFields):  # it makes models of its own default's class
        return runnable
    if not (isinstance(runnable, Runnable) and isinstance(runnable, BaseModel)):
        return runnable
    update = {}
    for name in type(runnable).model_fields:
        value = getattr(runnable, name)
        new = _replace_nested(value, replace)
        if new is not value:
            update[name] = new
    return runnable.model_copy(update=update) if update else runnable


def _replace_nested(value: Any, replace: Callable[[BaseChatModel], BaseChatModel]) -> Any:
    """A runnable, or a list or mapping of runnables; anything else stays as it is."""
    if isinstance(value, list) and value and all(isinstance(item, Runnable) for item in value):
        return [replace_models(item, replace) for item in value]
    if isinstance(value, Mapping) and value and all(isinstance(item, Runnable) for item in value.values()):
        return {name: replace_models(item, replace) for name, item in value.items()}
    return replace_models(value, replace)
