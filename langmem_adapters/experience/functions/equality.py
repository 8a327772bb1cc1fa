"""Whether what came back is what was kept: equal, and of the same types, all the way down."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import deque
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from langmem_adapters.views import Figures, Listing

__all__ = ["ATOMS", "class_of", "fields_of", "held", "lost", "same"]

ATOMS = frozenset({str, int, float, bool, bytes, type(None)})  # of which most values are made in the end
_BUILTIN = frozenset({dict, list, tuple, deque})  # what most values are made of, and holds nothing by name
_VIEWED: dict[type, type] = {Listing: list, Figures: dict}


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal and of the same types, all the way down.

    >>> same([1, True, (None,)], [1, True, (None,)]), same(1, True), same([1], (1,))
    (True, False, False)
    """
    return not lost(a, b)


def lost(value: Any, copy: Any, *, tuples_as_lists: bool = False) -> str:
    """The class of the first part of a value that is not the same in its copy; empty, if there is none.

    ``tuples_as_lists`` takes a list for a tuple with the same items, anywhere but in a set or as a key.

    >>> lost({"a": [1, 2.0]}, {"a": [1, 2]}), lost((1,), [1]), lost((1,), [1], tuples_as_lists=True)
    ('float', 'tuple', '')
    """
    name, kind, other = type(value).__qualname__, class_of(value), class_of(copy)
    if kind is not other and not (tuples_as_lists and kind is tuple and other is list):
        return name
    parts, others = _parts(value), _parts(copy)
    if parts is None or others is None:
        if _equal(value, copy):
            return ""
        # such as a Send of LangGraph, which may carry a tuple
        parts, others = (held(value), held(copy)) if tuples_as_lists else ({}, {})
        if not parts:
            return name
    if parts.keys() != others.keys():
        return name
    for part, own in parts.items():
        if gone := lost(own, others[part], tuples_as_lists=tuples_as_lists):
            return gone
    # a model may know better what is equal; of tuples and lists it does not
    return name if isinstance(value, BaseModel) and not tuples_as_lists and value != copy else ""


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a value is made of; None for one that is equal or not as a whole."""
    if type(value) in ATOMS:
        return None
    if isinstance(value, Mapping):
        keys, items = enumerate(value), enumerate(value.values())
        return {**{("key", n): key for n, key in keys}, **{("item", n): item for n, item in items}, **held(value)}
    if isinstance(value, list | tuple | deque):
        bound = {"maxlen": value.maxlen} if isinstance(value, deque) else {}
        return {**dict(enumerate(value)), **bound, **held(value)}
    if isinstance(value, BaseModel):
        kept = {"field": fields_of(value), "extra": value.model_extra, "private": value.__pydantic_private__}
        return {(kind, name): part for kind, parts in kept.items() for name, part in (parts or {}).items()}
    return held(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else None


def class_of(value: object) -> type:
    """The class of a value; and of what is no more than a text, a list or a dictionary, that of these.

    Such are our results, which show themselves, and LangChain's ``message.text``, which is a text that may be called;
    a ``StrOutputParser`` gives the same.
    """
    kind = type(value)
    if kind.__name__ == "TextAccessor" and kind.__module__.startswith("langchain_core."):
        return str
    return _VIEWED.get(kind, kind)


def fields_of(model: BaseModel) -> dict[str, Any]:
    """The fields of a model; not what was worked out of them and is kept beside them, as by ``cached_property``."""
    return {name: value for name, value in model.__dict__.items() if name in type(model).model_fields}


def held(value: Any) -> dict[str, Any]:
    """What an instance holds by name, its items aside, and what was worked out of them."""
    cls = class_of(value)
    if cls in _BUILTIN:
        return {}
    slots = [slot for each in cls.__mro__ for slot in _slots(each) if hasattr(value, slot)]
    held = getattr(value, "__dict__", {})
    own = {name: part for name, part in held.items() if not isinstance(getattr(cls, name, None), cached_property)}
    return {slot: getattr(value, slot) for slot in slots} | own


def _slots(cls: type) -> list[str]:
    slots = cls.__dict__.get("__slots__", ())
    return [slot for slot in ([slots] if isinstance(slots, str) else slots) if not slot.startswith("__")]


def _equal(a: Any, b: Any) -> bool:
    """Whether two values of one class are equal as a whole."""
    if type(a) in ATOMS or isinstance(a, float):
        return bool(a == b or (a != a and b != b))  # noqa: PLR0124 - NaN
    if isinstance(a, set | frozenset):
        others = {other: other for other in b}
        return len(a) == len(b) and all(item in others and same(item, others[item]) for item in a)
    if isinstance(a, dt.datetime | dt.time):
        return bool(a == b) and a.tzinfo == b.tzinfo and a.fold == b.fold
    # Arrays are equal item by item, which is no answer; and the bytes of one of objects are but their addresses.
    if hasattr(a, "dtype") and hasattr(a, "tobytes"):
        return bool(a.dtype == b.dtype and not a.dtype.hasobject and a.shape == b.shape and a.tobytes() == b.tobytes())
    try:
        return bool(a == b)
    except (TypeError, ValueError):  # so are the frames of pandas and Polars
        return bool(a.equals(b))
