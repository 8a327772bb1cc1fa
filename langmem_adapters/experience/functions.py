"""Which function a result is of, so that none is served for another: the same in each process that has the function."""

from __future__ import annotations

import dataclasses
import dis
import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from langmem_adapters.errors import ConfigurationError

__all__ = ["name_of", "told_apart"]

_FIXED = (str, int, float, complex, bool, bytes, type(None))


def name_of(function: Callable[..., Any]) -> str:
    """A function's module and name; of a script, the name under which others import it."""
    module = getattr(function, "__module__", "") or ""
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec else Path(file).stem if file else module
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def told_apart(function: Callable[..., Any], *, trusted: bool = False) -> Any:
    """What tells a function from others, as data and classes of data.

    That is its module and name; of one that another function has made, also the texts, numbers and other unchangeable
    values that it holds of it; of a lambda, and of what was typed in at a prompt or in a notebook, also its code. A
    partial has its arguments; a method of an object, and an object that is called, what that object is as data.

    Where it is ``trusted`` that its user has said where its results are, and has them in other places under the same
    name, its own name is all. Raises ConfigurationError for an object that is no data, and that nobody told about.
    """
    if isinstance(function, functools.partial):
        inner = told_apart(function.func, trusted=trusted)
        return inner if trusted else ["partial", inner, list(function.args), function.keywords]
    if trusted:
        return getattr(function, "__name__", type(function).__name__)
    if isinstance(function, types.MethodType):
        return [told_apart(function.__func__), _owner(function.__self__, name_of(function))]
    if isinstance(function, types.FunctionType):
        return _plain(function, frozenset())
    if isinstance(function, types.BuiltinFunctionType) or hasattr(function, "__wrapped__"):
        return [name_of(function)]
    return ["called", _owner(function, name_of(type(function)))]


def _owner(owner: object, name: str) -> Any:
    if isinstance(owner, type):
        return name_of(owner)
    if isinstance(owner, BaseModel) or dataclasses.is_dataclass(owner):
        return owner
    raise ConfigurationError(
        f"nothing tells the {type(owner).__qualname__} of {name} from another of its kind: say with tag= where the"
        " results of this one are"
    )


def _plain(function: types.FunctionType, within: frozenset[types.FunctionType]) -> list[Any]:
    told: list[Any] = [name_of(function)]
    if function in within:
        return told
    if function.__name__ == "<lambda>" or told[0].startswith("__main__."):
        told.append(_code(function.__code__))
    own = {found.argval for found in dis.get_instructions(function.__code__) if found.opname == "STORE_DEREF"}
    held = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    # what a function changes itself is no part of what it is
    return told + [_held(cell, within | {function}) for variable, cell in held if variable not in own]


def _held(cell: types.CellType, within: frozenset[types.FunctionType]) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # of a function that calls itself, when it is decorated
        return None
    if isinstance(value, types.FunctionType):
        return _plain(value, within)
    return value if _is_fixed(value) else name_of(value if isinstance(value, type) else type(value))


def _is_fixed(value: Any) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_fixed, value))
    return isinstance(value, _FIXED)


def _code(code: types.CodeType) -> list[Any]:
    return [code.co_code, list(code.co_names), [_constant(value) for value in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
