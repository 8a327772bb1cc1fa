"""The identity of values as data: the same for equal values of one class, and for no others."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import hashlib
import sys
import types
from collections import OrderedDict, UserDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.json_schema import GenerateJsonSchema

from langmem_adapters.annotations import annotations_of
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.functions.equality import ATOMS, attributes_of, class_of, fields_of
from langmem_adapters.keys import fingerprint

# The class of pydantic's own offsets. A global offset itself would crash an interpreter in dev mode when it exits.
_PYDANTIC_ZONE = type(TypeAdapter(dt.datetime).validate_python("2000-01-01T00:00Z").tzinfo)
_PLAIN_ZONES = (type(None), dt.timezone, _PYDANTIC_ZONE)  # the encoded time holds all of these
MAIN_MODULES = {"__main__", "__mp_main__"}  # a script, and a script in a process spawned by multiprocessing
_EXTENDED_TYPES = (str, int, float, bytes, Decimal, list, tuple, set, frozenset, dict, UserDict)  # or subclasses


def name_of(function: Callable[..., Any]) -> str:
    """The module and name of a function or class; for a script, the name under which it would be imported."""
    module = getattr(function, "__module__", "") or ""
    if module in MAIN_MODULES or getattr(sys.modules.get(module), "__spec__", None) is None:
        script = _script_globals(function, module)
        if spec := script.get("__spec__"):
            module = spec.name
        elif file := script.get("__file__"):
            module = ".".join(filter(None, (script.get("__package__"), Path(file).stem)))
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _script_globals(function: Callable[..., Any], module: str) -> dict[str, Any]:
    """The globals of the script of a function, of what it wraps, or of the methods of a class.

    Only without these those of the module: Streamlit, ``runpy`` and others run several scripts under one name.
    """
    candidates = (function, *getattr(function, "__dict__", {}).values())
    spaces = (each.__globals__ for each in candidates if isinstance(each, types.FunctionType))
    own = next((space for space in spaces if space.get("__name__") == module), None)
    return own or getattr(sys.modules.get(module), "__dict__", {})


def identity(value: Any, *, nested: bool = False) -> Any:
    """A value as data, with the names of classes that the codec alone would not write.

    A class itself is identified by its module and name (for a script, as if imported) and by its fields.
    With ``nested``, the value is an attribute of another; only its own fields and items count, not its attributes.
    """
    kind = class_of(value)
    if kind in ATOMS:
        return value
    if isinstance(value, type):
        return ("class", name_of(value), _class_identity(value))
    if kind.__module__ == "builtins":
        return (*_parts(value, nested), kind.__qualname__)
    extra = {} if nested else _extra_attributes(value)
    parts = (*_parts(value, nested), name_of(kind))
    return (*parts, extra) if extra else parts


def _class_identity(cls: type) -> Any:
    """The fields of a data class, and its docstring, which may be shown to a model as their description."""
    if issubclass(cls, enum.Enum):
        return [[member.name, *data_fingerprints(member.value)] for member in cls]
    if issubclass(cls, BaseModel) or is_pydantic_dataclass(cls):
        with suppress(PydanticUserError, NameError):  # without a JSON schema: the fields with the names of their types
            return TypeAdapter(cls).json_schema(schema_generator=StableSchema)
    if issubclass(cls, BaseModel):
        return {name: str(field.annotation) for name, field in cls.model_fields.items()}
    fields = _plain_fields(cls)
    docstring = cls.__doc__ or ""
    if dataclasses.is_dataclass(cls) and docstring.startswith(f"{cls.__name__}("):  # by Python: all defaults' reprs
        docstring = ""
    return [fields, docstring] if fields else fields


def _plain_fields(cls: type) -> dict[str, Any]:
    """The fields of a class that is no model, those that it inherits too: their types, and what they are without."""
    annotations = (annotations_of(base) for base in reversed(cls.__mro__))
    fields: dict[str, Any] = {name: str(kind) for each in annotations for name, kind in each.items()}
    if dataclasses.is_dataclass(cls):
        fields |= {
            field.name: [str(field.type), *data_fingerprints(field.default)] for field in dataclasses.fields(cls)
        }
    defaults, optional_names = getattr(cls, "_field_defaults", None), getattr(cls, "__optional_keys__", None)
    if issubclass(cls, tuple) and isinstance(defaults, dict):  # a named tuple, not a class with "_fields" of its own
        fields |= {
            name: [fields.get(name), *data_fingerprints(defaults.get(name, ...))]
            for name in getattr(cls, "_fields", ())
        }
    if isinstance(optional_names, frozenset):  # of a TypedDict
        fields |= {name: [fields.get(name), "optional"] for name in optional_names}
    return fields


class StableSchema(GenerateJsonSchema):
    """JSON schemas to compare: the same in each process, whatever the order of a set that is a default."""

    def encode_default(self, dft: Any) -> Any:
        """Tell the default from others, if it is data."""
        return data_fingerprints(dft)

    def emit_warning(self, *_: object) -> None:
        """Do nothing: nobody is shown this schema."""


def _parts(value: Any, nested: bool) -> tuple[Any, ...]:
    """The kind of a value, and its parts."""
    if isinstance(value, enum.Enum):
        return "enum", value.name, *data_fingerprints(value.value)  # combined flags may have no name
    if isinstance(value, dt.date | dt.time | dt.timedelta):
        return _time_parts(value)
    if issubclass(type(value), BaseModel):  # not isinstance, which is true of a mock without fields
        fields = identities_by_name({**fields_of(value), **(value.model_extra or {})}, nested=nested)
        private = value.__pydantic_private__
        return ("model", fields, identities_by_name(private, nested=nested)) if private else ("model", fields)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        fields = identities_by_name({name: getattr(value, name) for name in names}, nested=nested)
        return "dataclass", fields, *(_container_parts(value, nested) or ())
    if isinstance(value, PurePath):  # by what it is, and by what a subclass may show, such as a URL
        return "other", *dict.fromkeys((str(value), PurePath.__str__(value)))
    return _container_parts(value, nested) or ("other", value)


def _container_parts(value: Any, nested: bool) -> tuple[Any, ...] | None:
    if isinstance(value, Mapping):
        return _mapping_parts(value, nested)
    if isinstance(value, list | tuple):
        return "sequence", [identity(item, nested=nested) for item in value]
    if isinstance(value, set | frozenset):
        return "set", sorted(fingerprint(identity(item, nested=nested)) for item in value)
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
        return "array", str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()
    return None


def _time_parts(value: Any) -> tuple[Any, ...]:
    """A date, a time or a timedelta; for pandas' subclasses, which have nanoseconds, also the repr."""
    zone, fold = getattr(value, "tzinfo", None), getattr(value, "fold", 0)
    extra = () if type(value).__module__ == "datetime" else (repr(value),)
    if not (extra or fold or type(zone) not in _PLAIN_ZONES or _has_own_name(zone)):
        return "other", value
    return "time", value, f"{type(zone)} {zone}", fold, *extra


def _has_own_name(zone: dt.tzinfo | None) -> bool:
    """Whether a fixed offset has a name, as one of ``astimezone()`` has: neither == nor the encoded time tells it."""
    return type(zone) is dt.timezone and str(zone) != str(dt.timezone(zone.utcoffset(None)))


def _extra_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an instance beside its fields or items, as far as they are data.

    For a str subclass, only plain values: a string of an HTML parser refers to its neighbours in the page.
    """
    if isinstance(value, enum.Enum) or not (dataclasses.is_dataclass(value) or isinstance(value, _EXTENDED_TYPES)):
        return {}
    fields = getattr(value, "__dataclass_fields__", {})
    parts = {name: part for name, part in attributes_of(value).items() if name not in fields}
    if isinstance(value, str):
        return {name: part for name, part in parts.items() if type(part) in ATOMS}
    return {name: data for name, part in parts.items() for data in data_fingerprints(part)}


def data_fingerprints(value: Any) -> list[str]:
    """The fingerprint of a value, in a list; an empty list, if it is not data."""
    with suppress(SerializationError, RecursionError):
        return [fingerprint(identity(value, nested=True))]
    return []


def _mapping_parts(value: Mapping[Any, Any], nested: bool) -> tuple[Any, ...]:
    pairs = _pairs(value)
    if isinstance(value, OrderedDict) or len({key for key, _ in pairs}) < len(pairs):
        return "in order", [[identity(part, nested=nested) for part in pair] for pair in pairs]
    if all(type(key) is str for key, _ in pairs):
        return "mapping", identities_by_name(dict(pairs), nested=nested)
    return "pairs", sorted([fingerprint(identity(part, nested=nested)) for part in pair] for pair in pairs)


def _pairs(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """All items of a mapping, also of a multi-dict that has several values for a key, such as the query of a URL."""
    if isinstance(value, dict) and not isinstance(value, OrderedDict):
        return list(dict.items(value))  # the items() of Django's and Werkzeug's returns only one value for each key
    kind = type(value)
    return list(getattr(kind, "multi_items", kind.items)(value))  # so does that of Starlette's and HTTPX's


def identities_by_name(fields: Mapping[str, Any], *, nested: bool = False) -> dict[str, Any]:
    """The identity of each value, by name."""
    return {name: identity(value, nested=nested) for name, value in fields.items()}
