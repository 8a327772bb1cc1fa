"""Filters in the form of LangChain's vector stores, as predicates that a search applies before it counts to k."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.validation import check_sync_function, check_text

MetadataFilter: TypeAlias = Mapping[str, Any] | Callable[[dict[str, Any]], bool]
"""``{"session": "monday", "created_at": {"$gte": 0}}``, or a function of a document's metadata."""

Predicate = Callable[[dict[str, Any]], bool]


def metadata_predicate(filter_: MetadataFilter | None) -> Predicate:
    """Compile a filter; none lets everything through.

    A key is compared with a value, or by ``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$in``, ``$nin``;
    ``$and``, ``$or`` (lists of filters) and ``$not`` (a filter) combine. A missing key has the value None. A value
    that cannot be compared does not match.

    Raises ConfigurationError for anything else.
    """
    if filter_ is None:
        return lambda _: True
    if callable(filter_):
        check_sync_function("a filter", filter_)
        return filter_
    if not isinstance(filter_, Mapping):
        raise ConfigurationError(f"a filter is a dictionary or a function, not {type(filter_).__name__}")
    predicates = [_key_predicate(key, condition) for key, condition in filter_.items()]
    return lambda metadata: all(predicate(metadata) for predicate in predicates)


def required_value(filter_: MetadataFilter | None, key: str) -> Any:
    """The value that the filter requires a key to have, if it says so by an equality; else None."""
    conditions = filter_.items() if isinstance(filter_, Mapping) else ()
    for name, condition in conditions:
        required = None
        if name == "$and":
            values = (required_value(inner, key) for inner in condition)
            required = next((value for value in values if value is not None), None)
        elif name == key:
            required = condition.get("$eq") if isinstance(condition, Mapping) else condition
        if required is not None:
            return required
    return None


def _key_predicate(key: str, condition: Any) -> Predicate:
    check_text("a filter's key", key)
    if key in {"$and", "$or"}:
        if not isinstance(condition, list | tuple):
            raise ConfigurationError(f"a filter's {key} is a list of filters, not {type(condition).__name__}")
        predicates = [metadata_predicate(inner) for inner in condition]
        combine = all if key == "$and" else any
        return lambda metadata: combine(predicate(metadata) for predicate in predicates)
    if key == "$not":
        negated = metadata_predicate(condition)
        return lambda metadata: not negated(metadata)
    if key.startswith("$"):
        raise ConfigurationError(f"filters are combined by $and, $or and $not, not by {key!r:.50}")
    comparisons = _comparisons(condition)
    return lambda metadata: all(comparison(metadata.get(key)) for comparison in comparisons)


def _comparisons(condition: Any) -> list[Callable[[Any], bool]]:
    if not isinstance(condition, Mapping) or not any(str(name).startswith("$") for name in condition):
        return [_comparison(operator.eq, condition)]
    for name, value in condition.items():
        if name not in _OPERATORS:
            raise ConfigurationError(f"a filter compares with {', '.join(_OPERATORS)}, not {name!r:.50}")
        if name in {"$in", "$nin"} and not isinstance(value, list | tuple | set | frozenset):
            raise ConfigurationError(f"a filter compares {name} with a list, not {type(value).__name__}")
    return [_comparison(_OPERATORS[name], value) for name, value in condition.items()]


def _comparison(compare: Callable[[Any, Any], bool], expected: Any) -> Callable[[Any], bool]:
    def matches(actual: Any) -> bool:
        try:
            return bool(compare(actual, expected))
        except (TypeError, ValueError, ArithmeticError):  # None, or a number and a text, have no order, nor have arrays
            return False

    return matches


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda actual, allowed: any(actual == value for value in allowed),
    "$nin": lambda actual, excluded: all(actual != value for value in excluded),
}
