"""Deep equality of a value and its restored copy: equal values of the same types at every level."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from langmem_adapters.views import Figures, Listing

ATOMS = frozenset({str, int, float, bool, bytes, type(None)})  # types without parts
_BUILTIN_CONTAINERS = frozenset({dict, list, tuple, deque})  # containers without attributes
_SEQUENCES = (list, tuple, deque)  # isinstance takes twice as long with a union of these
_VIEW_TYPES: dict[type, type] = {Listing: list, Figures: dict}


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are equal and of the same types, at every level.

    >>> is_same([1, True, (None,)], [1, True, (None,)]), is_same(1, True), is_same([1], (1,))
    (True, False, False)
    """
    return not first_changed_type(a, b)


def first_changed_type(value: Any, copy: Any, *, tuples_as_lists: bool = False) -> str:
    """The class name of the first part of a value that is not the same in its copy; empty, if there is none.

    With ``tuples_as_lists``, a list equals a tuple with the same items, except in a set or as a key.

    >>> first_changed_type({"a": [1, 2.0]}, {"a": [1, 2]}), first_changed_type((1,), [1])
    ('float', 'tuple')
    >>> first_changed_type((1,), [1], tuples_as_lists=True)
    ''
    """
    type_name, kind, copy_kind = type(value).__qualname__, class_of(value), class_of(copy)
    if kind is not copy_kind and not (tuples_as_lists and kind is tuple and copy_kind is list):
        return type_name
    parts, others = _parts(value), _parts(copy)
    if parts is None or others is None:
        if _is_equal(value, copy):
            return ""
        # for instance a Send of LangGraph, which may hold a tuple
        parts, others = (attributes_of(value), attributes_of(copy)) if tuples_as_lists else ({}, {})
        if not parts:
            return type_name
    if parts.keys() != others.keys():
        return type_name
    for key, part in parts.items():
        if changed := first_changed_type(part, others[key], tuples_as_lists=tuples_as_lists):
            return changed
    # a model may define equality itself, but not with tuples as lists
    return type_name if isinstance(value, BaseModel) and not tuples_as_lists and value != copy else ""


def unset_fields(value: Any, copy: Any, path: tuple[Any, ...] = ()) -> Iterator[list[Any]]:
    """For each pydantic model in a value with fields that are set in its copy only: their names, and its path.

    A path has names of fields, keys and indexes, so that it leads to no other model if its classes change meanwhile.
    """
    labels: Iterable[Any] = ()
    if isinstance(value, BaseModel):
        if names := copy.model_fields_set - value.model_fields_set:
            yield [sorted(names), *path]
        # what is excluded is not in the data: in its place may be a default that all models share
        names_in_data = (name for name, field in type(value).model_fields.items() if not field.exclude)
        labels = [*names_in_data, *(value.__pydantic_extra__ or ())]
    elif isinstance(value, Mapping):
        labels = [key for key in value if type(key) in ATOMS]
    elif isinstance(value, _SEQUENCES):
        labels = range(len(value))
    elif dataclasses.is_dataclass(value):
        labels = attributes_of(value)
    for label in labels:
        part = part_of(value, label)
        if type(part) not in ATOMS:
            yield from unset_fields(part, part_of(copy, label), (*path, label))


def part_of(value: Any, label: Any) -> Any:
    """The part of a value under a name, key or index; None, if there is none."""
    if isinstance(value, _SEQUENCES):
        return value[label] if type(label) is int and label < len(value) else None
    if isinstance(value, BaseModel):
        fields = value.__dict__
        return fields[label] if label in fields else (value.__pydantic_extra__ or {}).get(label)
    if isinstance(value, Mapping):
        return value.get(label)
    return getattr(value, label, None) if dataclasses.is_dataclass(value) else None


def _parts(value: Any) -> dict[Any, Any] | None:
    """The parts of a value; None, if it can only be compared as a whole."""
    if type(value) in ATOMS:
        return None
    if isinstance(value, Mapping):
        keys = {("key", n): key for n, key in enumerate(value)}
        items = {("item", n): item for n, item in enumerate(value.values())}
        return {**keys, **items, **attributes_of(value)}
    if isinstance(value, list | tuple | deque):
        bound = {"maxlen": value.maxlen} if isinstance(value, deque) else {}
        return {**dict(enumerate(value)), **bound, **attributes_of(value)}
    if isinstance(value, BaseModel):
        groups = {"field": fields_of(value), "extra": value.model_extra, "private": value.__pydantic_private__}
        return {(kind, name): part for kind, parts in groups.items() for name, part in (parts or {}).items()}
    return attributes_of(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else None


def class_of(value: object) -> type:
    """The class of a value; for some subclasses of str, list and dict that only add methods, the builtin class.

    These are this library's Listing and Figures, and LangChain's ``message.text``, a callable str, which a
    ``StrOutputParser`` returns, too.
    """
    kind = type(value)
    if kind.__name__ == "TextAccessor" and kind.__module__.startswith("langchain_core."):
        return str
    return _VIEW_TYPES.get(kind, kind)


def fields_of(model: BaseModel) -> dict[str, Any]:
    """The fields of a model, without values cached beside them, as by ``cached_property``."""
    return {name: value for name, value in model.__dict__.items() if name in type(model).model_fields}


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an instance, without its items and its cached properties."""
    cls = class_of(value)
    if cls in _BUILTIN_CONTAINERS:
        return {}
    slots = [slot for base in cls.__mro__ for slot in _slots(base) if hasattr(value, slot)]
    instance_dict = getattr(value, "__dict__", {})
    attributes = {
        name: part for name, part in instance_dict.items() if not isinstance(getattr(cls, name, None), cached_property)
    }
    return {slot: getattr(value, slot) for slot in slots} | attributes


def _slots(cls: type) -> list[str]:
    slots = cls.__dict__.get("__slots__", ())
    return [slot for slot in ([slots] if isinstance(slots, str) else slots) if not slot.startswith("__")]


def _is_equal(a: Any, b: Any) -> bool:
    """Whether two values of one class are equal as a whole."""
    if type(a) in ATOMS or isinstance(a, float):
        return bool(a == b or (a != a and b != b))  # noqa: PLR0124 - NaN
    if isinstance(a, set | frozenset):
        others = {other: other for other in b}
        return len(a) == len(b) and all(item in others and is_same(item, others[item]) for item in a)
    if isinstance(a, dt.datetime | dt.time):
        return bool(a == b) and a.tzinfo == b.tzinfo and a.fold == b.fold
    # == compares arrays item by item, and the bytes of an array of objects are only their addresses.
    if hasattr(a, "dtype") and hasattr(a, "tobytes"):
        return bool(a.dtype == b.dtype and not a.dtype.hasobject and a.shape == b.shape and a.tobytes() == b.tobytes())
    try:
        return bool(a == b)
    except (TypeError, ValueError):  # frames of pandas and Polars also compare item by item
        return bool(a.equals(b))
