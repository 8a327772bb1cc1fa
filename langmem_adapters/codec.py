"""Values to bytes and back: JSON that loses nothing and can only build plain data.

Types that JSON has are written as JSON. Types that it lacks (bytes, tuples, sets, dates, decimals, UUIDs,
dictionaries with other keys than strings) are written as ``{"$type": name, "$value": …}``. A dictionary that has a
key ``"$type"`` itself is written as a list of pairs, so that reading never guesses. Reading only calls constructors of
the standard library: stored data never names a class.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, from_json, to_json

from langmem_adapters.errors import SerializationError

FORMAT = 1
"""The format version, stored as the first field, "v", of every object. It rises if older readers would misread new
data or take it for damaged: they refuse objects with a higher version, and leave them in place."""

UNORDERED = ("dict", "frozenset", "set")
"""The ``$type`` names of unordered values, which are written as lists."""

_VERSION_PATTERN = re.compile(rb'\{"v":(\d{1,9})\b')
_TYPE_KEY, _VALUE_KEY = "$type", "$value"
_TYPE_KEY_BYTES = _TYPE_KEY.encode()
_SCALAR_TYPES = frozenset({str, float, bool, type(None)})
_MAX_DEPTH = 200  # levels of JSON: far beyond any message, far below Python's own recursion limit
_MAX_INT = 10**4000  # Python refuses to read integers of more than 4,300 digits
_MIN_INT = -_MAX_INT


def encode(value: Any) -> bytes:
    """Encode a value. Raises SerializationError, which names the place, for what cannot be stored without loss."""
    return encode_plain(to_plain(value))


def encode_plain(value: Any) -> bytes:
    """:func:`encode` for a value that :func:`is_plain`, or is known to be."""
    try:
        return to_json(value)
    except (PydanticSerializationError, UnicodeEncodeError):
        # A lone surrogate has no UTF-8 form; JSON has an escape for it. Two that stand for a character become that.
        text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        json.loads(text, object_pairs_hook=_distinct_pairs)
        return text.encode()


def decode(data: bytes) -> Any:
    """Decode a value that :func:`encode` wrote. Raises SerializationError for anything else."""
    try:
        value = parse_json(data, bounded=True)
        return _restore(value) if is_tagged(data) else value
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"stored bytes cannot be read: {error}") from error


def parse_json(data: bytes | str, *, bounded: bool = False) -> Any:
    """Parse JSON as ``json.loads`` does, in a third of the time. Raises ValueError or RecursionError, as that does.

    If ``bounded``, deeper nesting than :func:`encode` writes is a ValueError, as recursive readers could not walk it.
    """
    try:
        return from_json(data)
    except (ValueError, TypeError):
        value = json.loads(data)  # accepts lone surrogates, and more levels
    if bounded and _is_nested_deeper(value, _MAX_DEPTH):
        raise ValueError("it is nested too deep")
    return value


def is_sealed(data: bytes) -> bool:
    """Whether the library's encryption wrote this, in this version or a later one: no JSON begins with such a byte."""
    return b"\x01" <= data[:1] < b"\t"


def is_newer(data: bytes) -> bool:
    """Whether a later version of the library wrote this, in a format that this one does not know."""
    version = _VERSION_PATTERN.match(data)
    return version is not None and int(version[1]) > FORMAT


def is_sealed_or_newer(data: bytes) -> bool:
    """Whether this is encrypted or of a later version: others can read it, so nothing must replace it."""
    return is_sealed(data) or is_newer(data)


def refuse_sealed_or_newer(data: bytes, subject: str) -> None:
    """Raise SerializationError if the data :func:`is_sealed_or_newer`."""
    if is_sealed(data):
        raise SerializationError(
            f"{subject} is encrypted, and there is no codec: use Settings(codec=…); the command line has none"
        )
    if is_newer(data):
        raise SerializationError(f"{subject} was written by a newer version of langmem_adapters; upgrade to read it")


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a stored value can be calculated with: a number but no bool, finite, and not too large for a float."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def is_tagged(data: bytes) -> bool:
    """Whether what :func:`encode` wrote may hold types that JSON lacks, so that only :func:`decode` can read it."""
    return b"$" in data and _TYPE_KEY_BYTES in data  # one character is found far sooner than a word


def to_plain(value: Any) -> Any:
    """Turn a value into JSON's own types; returns the same object if it has no others.

    Models and dataclasses become dictionaries, as LangChain and LlamaIndex dump them; list subclasses become lists.
    """
    try:
        return value if _is_plain(value, _MAX_DEPTH) else _to_plain(value, "value", _MAX_DEPTH)
    except RecursionError as error:
        raise SerializationError("value is nested too deep to be stored from this depth of calls") from error


def is_plain(value: Any, outer_levels: int = 0) -> bool:
    """Whether :func:`to_plain` would return this object, inside of so many levels of plain containers."""
    try:
        return _is_plain(value, _MAX_DEPTH - outer_levels)
    except RecursionError:
        return False


def _distinct_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs of an object. Raises SerializationError if two keys, or members of a set, have become equal."""
    fields = dict(pairs)
    members = fields.get(_VALUE_KEY) if fields.get(_TYPE_KEY) in UNORDERED else []
    keys = [json.dumps(member[0] if fields[_TYPE_KEY] == "dict" else member) for member in members or ()]
    if len(fields) < len(pairs) or len({*keys}) < len(keys):
        raise SerializationError("two keys, one of them with a character in two halves, are one text when stored")
    return fields


def _is_nested_deeper(value: Any, levels: int) -> bool:
    parts = [value]
    for _ in range(levels + 1):
        containers = (part for part in parts if isinstance(part, dict | list))
        parts = [inner for part in containers for inner in (part.values() if isinstance(part, dict) else part)]
        if not parts:
            return False
    return True


def _is_plain(value: Any, depth: int) -> bool:
    value_type = type(value)
    if value_type is dict:
        if depth == 0 or _TYPE_KEY in value:
            return False
        for key in value:  # takes half the time of all()
            if type(key) is not str:
                return False
        value = value.values()
    elif value_type is not list:
        return bool(_MIN_INT < value < _MAX_INT) if value_type is int else value_type in _SCALAR_TYPES
    elif depth == 0:
        return False
    for item in value:
        item_type = type(item)
        if item_type not in _SCALAR_TYPES and not (
            _MIN_INT < item < _MAX_INT if item_type is int else _is_plain(item, depth - 1)
        ):
            return False
    return True


def _to_plain(value: Any, path: str, depth: int) -> Any:
    scalar = _is_plain(value, 0)
    if depth < (0 if scalar else 1):
        raise SerializationError(f"{path:.200}… is nested more than {_MAX_DEPTH} levels deep")
    if scalar:
        return value
    if isinstance(value, list):
        return [_to_plain(item, f"{path}[{n}]", depth - 1) for n, item in enumerate(value)]
    if isinstance(value, BaseModel):
        return _to_plain(value.model_dump(), path, depth - 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return _to_plain(fields, path, depth - 1)
    if isinstance(value, Mapping):
        return _mapping_to_plain(value, path, depth)
    return _to_tagged(value, path, depth)


def _to_tagged(value: Any, path: str, depth: int) -> Any:
    for name, (type_, convert, _) in _TAGGED_TYPES.items():
        if isinstance(value, type_):
            content = _to_plain(convert(value), path, depth - 1)
            if name in UNORDERED:  # a set, whose order differs between processes
                content.sort(key=repr)
            return {_TYPE_KEY: name, _VALUE_KEY: content}
    value_type = type(value)
    if value_type is int:
        raise SerializationError(f"{path:.200} is an integer of more than 4,000 digits, which cannot be stored")
    for base_type, to_base in _BASE_TYPES.items():  # an enum member or a subclass: the plain value, as in any JSON
        if isinstance(value, base_type):
            return to_base(value)
    type_name = f"{value_type.__module__}.{value_type.__qualname__}"
    raise SerializationError(f"{path:.200} is of type {type_name}, which cannot be stored as data")


def _mapping_to_plain(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    if _TYPE_KEY not in value and all(type(key) is str for key in value):
        return {key: _to_plain(item, f"{path}.{key}", depth - 1) for key, item in value.items()}
    inner_depth = depth - 3  # an object, a list of pairs, a pair
    pairs = [
        [_to_plain(key, path, inner_depth), _to_plain(item, f"{path}[{key!r:.50}]", inner_depth)]
        for key, item in value.items()
    ]
    return {_TYPE_KEY: "dict", _VALUE_KEY: pairs}


def _restore(value: Any) -> Any:
    if type(value) is list:
        return [_restore(item) for item in value]
    if type(value) is not dict:
        return value
    if _TYPE_KEY not in value:
        return {key: _restore(item) for key, item in value.items()}
    name, content = value[_TYPE_KEY], _restore(value.get(_VALUE_KEY))
    if name != "dict" and (type(name) is not str or name not in _TAGGED_TYPES):
        raise SerializationError("stored bytes hold a value of an unknown type")
    try:
        if name == "dict":
            return {key: item for key, item in content}  # noqa: C416 - pairs only
        _, _, from_plain = _TAGGED_TYPES[name]
        return from_plain(content)
    except (ValueError, TypeError, AttributeError, ArithmeticError):
        raise SerializationError(f"stored bytes hold a damaged {name}") from None  # the error itself quotes the value


# By the base type's own methods: str() of a subclass is what that class shows, such as *** for all passwords.
_BASE_TYPES: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}

# name: (type, to plain, from plain); a subclass stands before its base
_TAGGED_TYPES: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), lambda v: base64.b64decode(v, validate=True)),
    "tuple": (tuple, list, tuple),
    "frozenset": (frozenset, list, frozenset),
    "set": (set, list, set),
    "datetime": (dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    "date": (dt.date, dt.date.isoformat, dt.date.fromisoformat),
    "time": (dt.time, dt.time.isoformat, dt.time.fromisoformat),
    "timedelta": (dt.timedelta, lambda v: [v.days, v.seconds, v.microseconds], lambda v: dt.timedelta(*v)),
    "decimal": (decimal.Decimal, decimal.Decimal.__str__, decimal.Decimal),
    "uuid": (uuid.UUID, uuid.UUID.__str__, uuid.UUID),
}
