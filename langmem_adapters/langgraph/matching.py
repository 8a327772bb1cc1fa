"""Which operations are valid, and what filters and conditions match: pure functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, Op, PutOp, SearchOp

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.keys import Namespace
from langmem_adapters.validation import check_count, check_text, check_whole

__all__ = ["check", "common_prefix", "item_filter", "matches"]


def check(op: Op) -> None:
    """Refuse an operation that LangGraph's own methods would refuse, or whose offset or limit is invalid.

    Raises LangGraph's InvalidNamespaceError (a ValueError) for labels, ConfigurationError for everything else.
    """
    if isinstance(op, SearchOp | ListNamespacesOp):
        for name in ("offset", "limit"):
            check_count(name, getattr(op, name), least=0)
    if isinstance(op, SearchOp) and op.query is not None:
        check_text("a query", op.query)
    if isinstance(op, ListNamespacesOp) and op.max_depth is not None:
        check_whole("max_depth", op.max_depth)
    if isinstance(op, GetOp | PutOp):
        check_text("the key of an item", op.key)
        paths = [op.namespace]
    elif isinstance(op, SearchOp):
        paths = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        paths = [condition.path for condition in op.match_conditions or ()]
    else:
        known = "GetOp, SearchOp, PutOp and ListNamespacesOp"
        raise ConfigurationError(f"a store knows {known}, not {type(op).__name__}")
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


def item_filter(wanted: Mapping[str, Any] | None) -> Callable[[Mapping[str, Any]], bool]:
    """Compile a search's filter: a predicate of an item's value.

    A field is compared by ``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt`` and ``$lte``, or with a value that it must
    equal; in an object, only the named fields are compared. A missing field is None, and has no order.

    Raises ConfigurationError for another operator, before anything is searched.
    """
    if not isinstance(wanted or {}, Mapping):
        raise ConfigurationError(f"a filter is a dictionary, not {type(wanted).__name__}")
    for name in sorted(_COMBINING & (wanted or {}).keys()):
        raise ConfigurationError(f"a filter names fields, all of which must match; it has no operator {name!r}")
    conditions = {field: _condition(value) for field, value in (wanted or {}).items()}
    return lambda value: all(condition(value.get(field)) for field, condition in conditions.items())


def _condition(wanted: Any) -> Callable[[Any], bool]:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return _operators(wanted)
        fields = {name: _condition(value) for name, value in wanted.items()}
        return lambda found: isinstance(found, Mapping) and all(ok(found.get(name)) for name, ok in fields.items())
    if isinstance(wanted, list | tuple):
        parts = [_condition(value) for value in wanted]
        return lambda found: (
            isinstance(found, list | tuple)
            and len(found) == len(parts)
            and all(ok(value) for ok, value in zip(parts, found, strict=True))
        )
    return lambda found: bool(found == wanted)


def _operators(wanted: Mapping[str, Any]) -> Callable[[Any], bool]:
    for name, value in wanted.items():
        if name not in _OPERATORS:
            raise ConfigurationError(f"a filter compares with {', '.join(_OPERATORS)}, not {name!r:.50}")
        if name in _ORDERS and _number(value) is None:
            raise ConfigurationError(f"a filter compares {name} with a number, not {type(value).__name__}")
    return lambda found: all(_OPERATORS[name](found, value) for name, value in wanted.items())


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    def check(found: Any, wanted: Any) -> bool:
        left, right = _number(found), _number(wanted)
        return left is not None and right is not None and compare(left, right)

    return check


def _number(value: Any) -> float | None:
    """The value as a number, also if it is written as text: so do LangGraph's own stores compare."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": _ordered(operator.gt),
    "$gte": _ordered(operator.ge),
    "$lt": _ordered(operator.lt),
    "$lte": _ordered(operator.le),
}
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, wanted: bool(found == wanted),
    "$ne": lambda found, wanted: bool(found != wanted),
    **_ORDERS,
}


def matches(namespace: Namespace, op: ListNamespacesOp) -> bool:
    """Whether a namespace fulfils all conditions of a listing. Raises ConfigurationError for an unknown one."""
    return all(_fulfils(namespace, condition) for condition in op.match_conditions or ())


def _fulfils(namespace: Namespace, condition: MatchCondition) -> bool:
    path = condition.path
    if condition.match_type not in {"prefix", "suffix"}:
        raise ConfigurationError(f"namespaces are matched by prefix and suffix, not by {condition.match_type!r:.50}")
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))


def common_prefix(op: ListNamespacesOp) -> Namespace:
    """The longest prefix that the conditions require of every namespace, up to a wildcard."""
    found: Namespace = ()
    for condition in op.match_conditions or ():
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            fixed = path[: path.index("*")] if "*" in path else path
            found = max(found, fixed, key=len)
    return found
