"""Which operations are valid, and what filters and conditions match: pure functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.keys import Namespace
from langmem_adapters.validation import check_count, check_integer, check_text


def checked_operations(ops: Iterable[Op]) -> list[Op]:
    """Return the operations. Refuses one that LangGraph's own methods would refuse, or an invalid offset or limit.

    Raises LangGraph's InvalidNamespaceError (a ValueError) for labels, ConfigurationError for everything else.
    """
    operations = list(ops)
    for op in operations:
        _check_operation(op)
    return operations


def _check_operation(op: Op) -> None:
    if isinstance(op, SearchOp | ListNamespacesOp):
        for name in ("offset", "limit"):
            check_count(name, getattr(op, name), minimum=0)
    if isinstance(op, SearchOp) and op.query is not None:
        check_text("a query", op.query)
    if isinstance(op, ListNamespacesOp) and op.max_depth is not None:
        check_integer("max_depth", op.max_depth)
    if isinstance(op, GetOp | PutOp):
        check_text("the key of an item", op.key)
        paths = [op.namespace]
    elif isinstance(op, SearchOp):
        paths = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        paths = [condition.path for condition in op.match_conditions or ()]
    else:
        operations = "GetOp, SearchOp, PutOp and ListNamespacesOp"
        raise ConfigurationError(f"a store knows {operations}, not {type(op).__name__}")
    for path in paths:
        _check_labels(path)
    if isinstance(op, PutOp) and not op.namespace:
        raise InvalidNamespaceError("an item cannot be put into the empty namespace")


def _check_labels(path: Namespace) -> None:
    if isinstance(path, str):
        raise InvalidNamespaceError("a namespace is a tuple of labels, not one text, which would be cut into letters")
    for label in path:
        if not isinstance(label, str) or not label or "." in label or "\x00" in label:
            raise InvalidNamespaceError(
                f"a label is a text without periods and NULs, and not empty: not {label!r:.100}"
            )


_COMBINING = frozenset({"$and", "$nor", "$not", "$or"})  # operators elsewhere; here, fields that nothing has


def item_filter(filter_: Mapping[str, Any] | None) -> Callable[[Mapping[str, Any]], bool]:
    """Compile a search's filter: a predicate of an item's value.

    A field is compared by ``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt`` and ``$lte``, or with a value that it must
    equal; in an object, only the named fields are compared. A missing field is None, and has no order.

    Raises ConfigurationError for another operator, before anything is searched.
    """
    fields = filter_ or {}
    if not isinstance(fields, Mapping):
        raise ConfigurationError(f"a filter is a dictionary, not {type(fields).__name__}")
    if combining := _COMBINING & fields.keys():
        raise ConfigurationError(
            f"a filter names fields, all of which must match; it has no operator {min(combining)!r}"
        )
    conditions = {field: _condition(value) for field, value in fields.items()}
    return lambda value: all(condition(value.get(field)) for field, condition in conditions.items())


def _condition(expected: Any) -> Callable[[Any], bool]:
    if isinstance(expected, Mapping):
        if any(str(name).startswith("$") for name in expected):
            return _comparison(expected)
        fields = {name: _condition(value) for name, value in expected.items()}
        return lambda value: isinstance(value, Mapping) and all(ok(value.get(name)) for name, ok in fields.items())
    if isinstance(expected, list | tuple):
        parts = [_condition(value) for value in expected]
        return lambda value: (
            isinstance(value, list | tuple)
            and len(value) == len(parts)
            and all(ok(part) for ok, part in zip(parts, value, strict=True))
        )
    return lambda value: bool(value == expected)


def _comparison(comparisons: Mapping[str, Any]) -> Callable[[Any], bool]:
    for name, value in comparisons.items():
        if name not in _OPERATORS:
            raise ConfigurationError(f"a filter compares with {', '.join(_OPERATORS)}, not {name!r:.50}")
        if name in _ORDERS and _number(value) is None:
            raise ConfigurationError(f"a filter compares {name} with a number, not {type(value).__name__}")
    return lambda field_value: all(_matches(name, field_value, value) for name, value in comparisons.items())


def _matches(name: str, value: Any, expected: Any) -> bool:
    if name not in _ORDERS:
        return bool(_OPERATORS[name](value, expected))
    number, bound = _number(value), _number(expected)
    return number is not None and bound is not None and _ORDERS[name](number, bound)


def _number(value: Any) -> float | None:
    """The value as a number, also if it is written as text: so do LangGraph's own stores compare."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


_ORDERS: dict[str, Callable[[float, float], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"$eq": operator.eq, "$ne": operator.ne, **_ORDERS}


def matches_conditions(namespace: Namespace, op: ListNamespacesOp) -> bool:
    """Whether a namespace fulfils all conditions of a listing. Raises ConfigurationError for an unknown one."""
    return all(_fulfils(namespace, condition) for condition in op.match_conditions or ())


def _fulfils(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if condition.match_type not in {"prefix", "suffix"}:
        raise ConfigurationError(f"namespaces are matched by prefix and suffix, not by {condition.match_type!r:.50}")
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(pattern in ("*", label) for label, pattern in zip(part, path, strict=True))


def common_prefix(op: ListNamespacesOp) -> Namespace:
    """The longest prefix that the conditions require of every namespace, up to a wildcard."""
    longest: Namespace = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            literal = path[: path.index("*")] if "*" in path else path
            longest = max(longest, literal, key=len)
    return longest
