"""LlamaIndex's metadata filters as predicates, so that a search can apply them before it counts to k."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from langmem_adapters.errors import ConfigurationError

Predicate = Callable[[Mapping[str, Any]], bool]
"""Says whether metadata match."""


def metadata_predicate(filters: MetadataFilters | None) -> Predicate:
    """Compile filters, nested ones too; no filters let everything through.

    Operators mean what they mean in LlamaIndex's own stores: a missing key matches only "!=", "nin" and
    "is_empty". A value that cannot be compared does not match.

    Raises ConfigurationError for an operator or a condition that is not LlamaIndex's.
    """
    if not (filters is None or isinstance(filters, MetadataFilters)):
        raise ConfigurationError(f"filters are MetadataFilters of LlamaIndex, not {type(filters).__name__}")
    if filters is None or not filters.filters:
        return lambda _: True
    predicates = [_predicate(part) for part in filters.filters]
    condition = filters.condition or FilterCondition.AND
    if condition == FilterCondition.AND:
        return lambda metadata: all(matches(metadata) for matches in predicates)
    if condition == FilterCondition.OR:
        return lambda metadata: any(matches(metadata) for matches in predicates)
    if condition == FilterCondition.NOT:
        return lambda metadata: not any(matches(metadata) for matches in predicates)
    raise ConfigurationError(f"filters are combined by and, or and not, not by {condition!r:.50}")


def required_value(filters: MetadataFilters | None, key: str) -> Any:
    """The value that the filters require a key to have, if they say so by an equality; else None."""
    if filters is None or (filters.condition or FilterCondition.AND) != FilterCondition.AND:
        return None
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            value = required_value(part, key)
        else:
            value = part.value if part.key == key and part.operator == FilterOperator.EQ else None
        if value is not None:
            return value
    return None


def _predicate(part: MetadataFilter | MetadataFilters) -> Predicate:
    if isinstance(part, MetadataFilters):
        return metadata_predicate(part)
    if part.operator not in list(FilterOperator):
        operators = ", ".join(operator.value for operator in FilterOperator)
        raise ConfigurationError(f"a metadata filter's operator is one of {operators}, not {part.operator!r:.50}")
    # LlamaIndex's function looks up a node's metadata by its id; here it is given the metadata as the id.
    single_filter = MetadataFilters(filters=[part])
    matches: Any = build_metadata_filter_fn(cast("Any", lambda metadata: metadata), single_filter)

    def predicate(metadata: Mapping[str, Any]) -> bool:
        try:
            return bool(matches(metadata))
        except (TypeError, ValueError, ArithmeticError):  # a number and a text have no order, nor have arrays
            return False

    return predicate
