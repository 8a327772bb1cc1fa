"""Filters in the form of LangChain's vector stores, as predicates that a search applies before it counts to k."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.validation import check_plain, check_text

__all__ = ["MetadataFilter", "Predicate", "metadata_predicate", "one_value"]

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
        check_plain("a filter", filter_)
        return filter_
    if not isinstance(filter_, Mapping):
        raise ConfigurationError(f"a filter is a dictionary or a function, not {type(filter_).__name__}")
    parts = [_part(key, wanted) for key, wanted in filter_.items()]
    return lambda metadata: all(part(metadata) for part in parts)


def one_value(filter_: MetadataFilter | None, key: str) -> Any:
    """The value that the filter requires a key to have, if it says so by an equality; else None."""
    parts = filter_.items() if isinstance(filter_, Mapping) else ()
    for name, wanted in parts:
        if name == "$and":
            values = (one_value(each, key) for each in wanted)
            found = next((value for value in values if value is not None), None)
        elif name == key:
            found = wanted.get("$eq") if isinstance(wanted, Mapping) else wanted
        else:
            continue
        if found is not None:
            return found
    return None


def _part(key: str, wanted: Any) -> Predicate:
    check_text("a filter's key", key)
    if key in {"$and", "$or"}:
        if not isinstance(wanted, list | tuple):
            raise ConfigurationError(f"a filter's {key} is a list of filters, not {type(wanted).__name__}")
        inner = [metadata_predicate(each) for each in wanted]
        combine = all if key == "$and" else any
        return lambda metadata: combine(each(metadata) for each in inner)
    if key == "$not":
        negated = metadata_predicate(wanted)
        return lambda metadata: not negated(metadata)
    if key.startswith("$"):
        raise ConfigurationError(f"filters are combined by $and, $or and $not, not by {key!r:.50}")
    checks = _checks(wanted)
    return lambda metadata: all(check(metadata.get(key)) for check in checks)


def _checks(wanted: Any) -> list[Callable[[Any], bool]]:
    if not isinstance(wanted, Mapping) or not any(str(name).startswith("$") for name in wanted):
        return [lambda found: bool(found == wanted)]
    for name, value in wanted.items():
        if name not in _OPERATORS:
            raise ConfigurationError(f"a filter compares with {', '.join(_OPERATORS)}, not {name!r:.50}")
        if name in {"$in", "$nin"} and not isinstance(value, list | tuple | set | frozenset):
            raise ConfigurationError(f"a filter compares {name} with a list, not {type(value).__name__}")
    return [_check(_OPERATORS[name], value) for name, value in wanted.items()]


def _check(compare: Callable[[Any, Any], bool], wanted: Any) -> Callable[[Any], bool]:
    def check(found: Any) -> bool:
        try:
            return bool(compare(found, wanted))
        except TypeError:  # None, or a number and a text, have no order
            return False

    return check


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
    "$in": lambda found, wanted: any(found == value for value in wanted),
    "$nin": lambda found, wanted: all(found != value for value in wanted),
}
