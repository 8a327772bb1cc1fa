"""Identify a function, so that no result is served for another one; the same in each process that has the function."""

from __future__ import annotations

import asyncio
import dataclasses
import dis
import functools
import logging
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.functions.values import MAIN_MODULES, data_fingerprints, identity, name_of
from langmem_adapters.keys import fingerprint

_LAMBDA = "<lambda>"
_MARIMO_PREFIX = "_cell_"  # of what is private in a cell, whose name tells the cell's place: another's after a move
_NO_VALUE = "no value yet"
_WRAPS_ATTRIBUTES = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"}
_IRRELEVANT_TYPES = (  # values that do not affect results: iterators, which calls use up, and locks
    Iterator,
    *(type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore),
    *(threading.Event, threading.Barrier, asyncio.Lock, asyncio.Condition, asyncio.Semaphore, asyncio.Event),
)


def function_identity(function: Callable[..., Any], *, trusted: bool = False) -> Any:
    """The identity of a function, as data and classes of data.

    It has the function's module and name. A closure adds the current values of its variables: data by value, and
    functions (with their closures), classes, modules and loggers by name. A lambda, and a function typed in at a prompt
    or in a notebook, adds its code. A partial adds its arguments; a bound method or a callable object, its object as
    data; a wrapper object, such as that of functools.lru_cache, the data in its attributes.

    If ``trusted``, the user has named the place of the results, and may use it from modules with other names: then only
    the function's own name counts, with that of its class, or the code of a lambda. Raises ConfigurationError for an
    object that is not data.
    """
    if isinstance(function, functools.partial):
        inner = function_identity(function.func, trusted=trusted)
        return inner if trusted else ["partial", inner, list(function.args), function.keywords]
    if trusted:
        return _own_name(function)
    if isinstance(function, types.MethodType):
        return [function_identity(function.__func__), _owner_identity(function.__self__, name_of(function))]
    if isinstance(function, types.FunctionType):
        return _plain_identity(function, frozenset())
    if isinstance(function, types.BuiltinFunctionType):
        owner = function.__self__
        return [name_of(function), *([] if isinstance(owner, types.ModuleType | None) else [owner])]
    inner = getattr(function, "__wrapped__", None)  # by functools.lru_cache, for one
    return _callable_identity(function) if inner is None else [*function_identity(inner), *_data_attributes(function)]


def as_setting(value: Any) -> str:
    """The hashed identity of a model's function, or of its name if it holds what is not data. "" for anything else."""
    if not isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        return ""
    with suppress(ConfigurationError, SerializationError, RecursionError):
        return fingerprint(identity(function_identity(value)))
    return fingerprint(name_of(value))


def has_stable_identity(function: Callable[..., Any]) -> bool:
    """Whether a function's identity changes only with its closure: not for partials, methods and callable objects."""
    if isinstance(function, functools.partial | types.MethodType):
        return False
    return isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__")


def closure_contents(function: Callable[..., Any]) -> Iterator[tuple[types.CellType, Any]]:
    """The closure cells that are part of a function's identity, with their current contents.

    A cell for the function or its class itself is left out, as it is still empty when the function is decorated.
    """
    pending, seen = [function], set[int]()
    while pending:
        candidate = pending.pop()
        if not isinstance(candidate, types.FunctionType) or id(candidate) in seen:
            continue
        seen.add(id(candidate))
        for variable, cell in _cells(candidate):
            value = cell_content(cell)
            if value is not _NO_VALUE or variable not in _self_names(candidate):
                yield cell, value
                pending.append(value)


def is_complete(parts: Any) -> bool:
    """Whether all closure variables in an identity had a value: one assigned below the function has none yet."""
    if isinstance(parts, dict):
        return all(map(is_complete, parts.values()))
    if isinstance(parts, list | tuple):
        return all(map(is_complete, parts))
    return parts is not _NO_VALUE


def _own_name(function: Callable[..., Any]) -> Any:
    name = getattr(function, "__name__", type(function).__name__)
    if name == _LAMBDA and isinstance(function, types.FunctionType):
        return [name, _code_identity(function.__code__)]
    cls, dot, _ = getattr(function, "__qualname__", "").rpartition("<locals>.")[2].rpartition(".")
    return f"{cls}{dot}{name}"


def _callable_identity(function: Callable[..., Any]) -> list[Any]:
    call: Any = type(function).__call__
    code = _distinguishing_code(call) if isinstance(call, types.FunctionType) else []
    return ["called", *code, _owner_identity(function, name_of(type(function)))]


def _owner_identity(owner: object, name: str) -> Any:
    if isinstance(owner, type):
        return name_of(owner)
    if isinstance(owner, BaseModel) or dataclasses.is_dataclass(owner):
        return owner
    raise ConfigurationError(
        f"nothing identifies the {type(owner).__qualname__} of {name} among others of its type: name its cache with"
        " tag="
    )


def _plain_identity(function: types.FunctionType, enclosing: frozenset[types.FunctionType]) -> list[Any]:
    parts: list[Any] = [name_of(function)]
    if function in enclosing:
        return parts
    parts += _distinguishing_code(function)
    if enclosing or hasattr(function, "__wrapped__"):  # the defaults of the called function itself count as arguments
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        parts += [_value_identity(value, function, enclosing) for value in defaults]
    cache = getattr(function, "cache", function)  # if it is decorated already
    cache = getattr(cache, "calls", cache)  # by us: the wrapper holds these
    for variable, cell in _cells(function):
        value = cell_content(cell)
        if value is _NO_VALUE:
            parts.append(None if variable in _self_names(function) else _NO_VALUE)
        elif value is not cache:
            parts.append(_value_identity(value, function, enclosing | {function}))
    return parts


def _cells(function: types.FunctionType) -> Iterator[tuple[str, types.CellType]]:
    """The closure variables of a function with their cells, without those that it assigns itself."""
    if not function.__code__.co_freevars:
        return iter(())
    instructions = dis.get_instructions(function.__code__)
    assigned = {each.argval for each in instructions if each.opname == "STORE_DEREF"}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return ((variable, cell) for variable, cell in cells if variable not in assigned)


def cell_content(cell: types.CellType) -> Any:
    """The current content of a closure cell, or a marker that it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _NO_VALUE


def _self_names(function: types.FunctionType) -> set[str]:
    """The variables for the function and its class themselves, which have no value when it is decorated."""
    return {function.__name__, "__class__"}


def _data_attributes(wrapper: Any) -> list[Any]:
    """The attributes of a wrapper object, as far as they are data."""
    attributes = getattr(wrapper, "__dict__", {})
    names = sorted(attributes.keys() - _WRAPS_ATTRIBUTES)
    return [[name, data] for name in names for data in data_fingerprints(attributes[name])]


def _distinguishing_code(function: types.FunctionType) -> list[Any]:
    """The code of a lambda, or of a function that was typed in, whose name may be used for another one later.

    Code of a script names the script's file, unlike typed-in code; VS Code's interactive window has a ``__file__``.
    """
    module_globals, code = function.__globals__, function.__code__
    is_script = code.co_filename == module_globals.get("__file__") != "<stdin>"  # <stdin> is another script next time
    was_typed = module_globals.get("__name__") in MAIN_MODULES and not is_script
    has_passing_name = function.__name__ == _LAMBDA or function.__qualname__.startswith(_MARIMO_PREFIX)
    return [_code_identity(code)] if was_typed or has_passing_name else []


def _value_identity(value: Any, holder: types.FunctionType, enclosing: frozenset[types.FunctionType]) -> Any:
    """The identity of a value in a closure, as data."""
    if (name := _identifying_name(value)) is not None:
        return name
    if isinstance(value, types.FunctionType):
        return _plain_identity(value, enclosing)
    kind = type(value).__qualname__
    if isinstance(value, dict):
        return [kind, {key: _value_identity(item, holder, enclosing) for key, item in value.items()}]
    parts = _parts(value)
    if parts is None:
        return _checked_data(value, holder)
    return [kind, *(_value_identity(part, holder, enclosing) for part in parts)]


def _identifying_name(value: Any) -> str | None:
    """The name of a value that is identified by it, or that does not affect results; None for other values."""
    if isinstance(value, type):
        return name_of(value)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, logging.Logger):
        return value.name
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType | None):
        return name_of(value)
    return name_of(type(value)) if isinstance(value, _IRRELEVANT_TYPES) else None


def _parts(value: Any) -> Sequence[Any] | None:
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        return [value.__name__, value.__self__]
    if "__wrapped__" in getattr(value, "__dict__", {}):  # by functools.lru_cache, for one
        return [value.__wrapped__, *_data_attributes(value)]
    if isinstance(value, BaseException):
        return list(value.args)
    return list(value) if isinstance(value, list | tuple | deque) else None


def _checked_data(value: Any, holder: types.FunctionType) -> Any:
    try:
        fingerprint(identity(value))
    except SerializationError as error:
        kind = type(value).__qualname__
        lower = "put @cached below its other decorators, or " if hasattr(holder, "__wrapped__") else ""
        raise ConfigurationError(
            f"{name_of(holder)} holds a value of type {kind} of the function that made it, and nothing identifies that"
            f" value: {lower}name its cache with tag="
        ) from error
    return value


def _code_identity(code: types.CodeType) -> list[Any]:
    names = [code.co_names, code.co_varnames]
    constants = list(map(_constant_identity, code.co_consts))
    exceptions = getattr(code, "co_exceptiontable", b"")  # of Python 3.11 and later
    return [code.co_code, exceptions, code.co_flags, names, constants]


def _constant_identity(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code_identity(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
