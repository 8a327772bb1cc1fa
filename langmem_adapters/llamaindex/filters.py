"""LlamaIndex's metadata filters as predicates, so that a search can apply them before it counts to k."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from langmem_adapters.errors import ConfigurationError

__all__ = ["Predicate", "metadata_predicate", "one_value"]

Predicate = Callable[[Mapping[str, Any]], bool]
"""Says whether metadata are wanted."""


def metadata_predicate(filters: MetadataFilters | None) -> Predicate:
    """Compile filters, nested ones too; no filters let everything through.

    Operators mean what they mean in LlamaIndex's own stores: a key that is missing fulfils "!=", "nin" and
    "is_empty" alone. What cannot be compared is not let through.

    Raises ConfigurationError for an operator or a condition that is not LlamaIndex's.
    """
    if not (filters is None or isinstance(filters, MetadataFilters)):
        raise ConfigurationError(f"filters are MetadataFilters of LlamaIndex, not {type(filters).__name__}")
    if filters is None or not filters.filters:
        return lambda _: True
    parts = [_part(part) for part in filters.filters]
    condition = filters.condition or FilterCondition.AND
    if condition == FilterCondition.AND:
        return lambda metadata: all(part(metadata) for part in parts)
    if condition == FilterCondition.OR:
        return lambda metadata: any(part(metadata) for part in parts)
    if condition == FilterCondition.NOT:
        return lambda metadata: not any(part(metadata) for part in parts)
    raise ConfigurationError(f"filters are combined by and, or and not, not by {condition!r:.50}")


def one_value(filters: MetadataFilters | None, key: str) -> Any:
    """The value that a key has wherever the filters let through, if they say so by an equality; else None."""
    if filters is None or (filters.condition or FilterCondition.AND) != FilterCondition.AND:
        return None
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            found = one_value(part, key)
        else:
            found = part.value if part.key == key and part.operator == FilterOperator.EQ else None
        if found is not None:
            return found
    return None


def _part(part: MetadataFilter | MetadataFilters) -> Predicate:
    if isinstance(part, MetadataFilters):
        return metadata_predicate(part)
    key, wanted = part.key, part.value
    if part.operator == FilterOperator.IS_EMPTY:
        return lambda metadata: metadata.get(key) in (None, "", [])
    if part.operator not in _OPERATORS:
        known = ", ".join(each.value for each in FilterOperator)
        raise ConfigurationError(f"a metadata filter's operator is one of {known}, not {part.operator!r:.50}")
    check, without = _OPERATORS[part.operator], part.operator in {FilterOperator.NE, FilterOperator.NIN}

    def is_wanted(metadata: Mapping[str, Any]) -> bool:
        found = metadata.get(key)
        if found is None:
            return without
        try:
            return bool(check(found, wanted))
        except TypeError:  # a number and a text have no order, and a number contains nothing
            return False

    return is_wanted


def _text_match(found: Any, wanted: Any) -> bool:
    return isinstance(found, str) and isinstance(wanted, str) and wanted in found


def _text_match_insensitive(found: Any, wanted: Any) -> bool:
    return isinstance(found, str) and isinstance(wanted, str) and wanted.lower() in found.lower()


_OPERATORS: dict[FilterOperator, Callable[[Any, Any], bool]] = {
    FilterOperator.EQ: operator.eq,
    FilterOperator.NE: operator.ne,
    FilterOperator.GT: operator.gt,
    FilterOperator.GTE: operator.ge,
    FilterOperator.LT: operator.lt,
    FilterOperator.LTE: operator.le,
    FilterOperator.IN: lambda found, wanted: found in wanted,
    FilterOperator.NIN: lambda found, wanted: found not in wanted,
    FilterOperator.ANY: lambda found, wanted: any(value in found for value in wanted),
    FilterOperator.ALL: lambda found, wanted: all(value in found for value in wanted),
    FilterOperator.CONTAINS: operator.contains,
    FilterOperator.TEXT_MATCH: _text_match,
    FilterOperator.TEXT_MATCH_INSENSITIVE: _text_match_insensitive,
}
