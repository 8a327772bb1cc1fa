"""Values as data, together with their classes: the same for equal values of one class, and for no others."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter

from langmem_adapters.annotations import annotations_of
from langmem_adapters.experience.functions.equality import class_of, fields_of
from langmem_adapters.keys import fingerprint

__all__ = ["by_name", "identity", "name_of"]

# The class of pydantic's own offsets; an offset itself, kept here, would crash an interpreter in dev mode as it ends.
_PYDANTICS = type(TypeAdapter(dt.datetime).validate_python("2000-01-01T00:00Z").tzinfo)
_PLAIN_ZONES = (type(None), dt.timezone, _PYDANTICS)  # what is written of a time says all of these
_MAIN = {"__main__", "__mp_main__"}  # a script, and the same in a process that multiprocessing has spawned
_SCALARS = (str, int, float, bool, bytes, type(None))


def name_of(function: Callable[..., Any]) -> str:
    """A function's module and name; of a script, the name under which others import it."""
    module = getattr(function, "__module__", "") or ""
    if module in _MAIN:
        main = sys.modules.get(module)
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def identity(value: Any) -> Any:
    """A value as data, together with the class of what the codec would write as a plain value.

    A class counts by its module and name, those of a script as of its import, and by what its instances hold.
    """
    kind = class_of(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, type):
        return ("class", name_of(value), _held_by(value))
    return (*_parts(value), kind.__qualname__ if kind.__module__ == "builtins" else name_of(kind))


def _held_by(cls: type) -> Any:
    """The fields, of a class of data."""
    if issubclass(cls, enum.Enum):
        return [member.name for member in cls]
    if issubclass(cls, BaseModel):
        with suppress(PydanticUserError):  # of what JSON does not know, the fields by their types' names
            return cls.model_json_schema()
        return {name: str(field.annotation) for name, field in cls.model_fields.items()}
    return {name: str(kind) for name, kind in annotations_of(cls).items()}


def _parts(value: Any) -> tuple[Any, ...]:  # noqa: PLR0911 - a line for each kind
    """What kind of thing it is, and what it is made of."""
    if isinstance(value, enum.Enum):
        return "enum", value.value if value.name is None else value.name  # flags together may have no name
    if isinstance(value, dt.datetime | dt.time) and (value.fold or type(value.tzinfo) not in _PLAIN_ZONES):
        return "time", value, f"{type(value.tzinfo)} {value.tzinfo}", value.fold
    if isinstance(value, BaseModel):
        own = by_name({**fields_of(value), **(value.model_extra or {})})
        return ("model", own, by_name(value.__pydantic_private__)) if value.__pydantic_private__ else ("model", own)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        return "dataclass", by_name({name: getattr(value, name) for name in names})
    if isinstance(value, Mapping):
        return _entries(value)
    if isinstance(value, list | tuple):
        return "sequence", [identity(item) for item in value]
    if isinstance(value, set | frozenset):
        return "set", sorted(fingerprint(identity(item)) for item in value)
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
        return "array", str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()
    return "other", str(value) if isinstance(value, PurePath) else value


def _entries(value: Mapping[Any, Any]) -> tuple[Any, ...]:
    pairs = _pairs(value)
    if isinstance(value, OrderedDict) or len({key for key, _ in pairs}) < len(pairs):
        return "in order", [[identity(key), identity(item)] for key, item in pairs]
    if all(type(key) is str for key, _ in pairs):
        return "mapping", by_name(dict(pairs))
    return "pairs", sorted([fingerprint(identity(key)), fingerprint(identity(item))] for key, item in pairs)


def _pairs(value: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    """All that a mapping holds, also of one that has several values by one name, as the query of a URL does."""
    if isinstance(value, dict) and not isinstance(value, OrderedDict):
        return list(dict.items(value))  # the items() of Django's and Werkzeug's gives but one of them
    kind = type(value)
    return list(getattr(kind, "multi_items", kind.items)(value))  # that of Starlette's and HTTPX's, too


def by_name(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Each by its name."""
    return {name: identity(value) for name, value in fields.items()}
