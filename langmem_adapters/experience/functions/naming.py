"""Which function a result is of, so that none is served for another: the same in each process that has the function."""

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
from langmem_adapters.experience.functions.values import MAIN, identity, if_data, name_of
from langmem_adapters.keys import fingerprint

__all__ = ["as_setting", "content", "held_in", "is_whole", "stays", "stored", "told_apart"]

_LAMBDA = "<lambda>"
_NO_VALUE = "no value yet"
_OF_WRAPS = {*functools.WRAPPER_ASSIGNMENTS, "__wrapped__"}
_SAY_NOTHING = (  # of a result: what the calls themselves use up, and what lets one wait for another
    Iterator,
    *(type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore),
    *(threading.Event, threading.Barrier, asyncio.Lock, asyncio.Condition, asyncio.Semaphore, asyncio.Event),
)


def told_apart(function: Callable[..., Any], *, trusted: bool = False) -> Any:
    """What tells a function from others, as data and classes of data.

    That is its module and name; of one that another function has made, also what it holds of it, as that is now: data
    by value, and functions, classes, modules and loggers by name, as what they hold; of a lambda, and of what was typed
    in at a prompt or in a notebook, also its code. A partial has its arguments; a method of an object, and an object
    that is called, what that object is as data; and an object around a function, what it holds of data.

    Where it is ``trusted`` that its user has said where its results are, and has them in other modules under the same
    name, its own name is all, with that of its class; and of a lambda, which has none, its code. Raises
    ConfigurationError for an object that is no data, and that nobody told about.
    """
    if isinstance(function, functools.partial):
        inner = told_apart(function.func, trusted=trusted)
        return inner if trusted else ["partial", inner, list(function.args), function.keywords]
    if trusted:
        return _own_name(function)
    if isinstance(function, types.MethodType):
        return [told_apart(function.__func__), _owner(function.__self__, name_of(function))]
    if isinstance(function, types.FunctionType):
        return _plain(function, frozenset())
    if isinstance(function, types.BuiltinFunctionType):
        own = function.__self__
        return [name_of(function), *([] if isinstance(own, types.ModuleType | None) else [own])]
    inner = getattr(function, "__wrapped__", None)  # by functools.lru_cache, for one
    return _called(function) if inner is None else [*told_apart(inner), *_set_in(function)]


def as_setting(value: Any) -> str:
    """What tells a model's function from others, hashed: its name, where it holds what is no data. "" of all else."""
    if not isinstance(value, types.FunctionType | types.MethodType | functools.partial):
        return ""
    with suppress(ConfigurationError, SerializationError, RecursionError):
        return fingerprint(identity(told_apart(value)))
    return fingerprint(name_of(value))


def stays(function: Callable[..., Any]) -> bool:
    """Whether a function is the same at each call, but for what it holds: no partial, and nothing of an object."""
    if isinstance(function, functools.partial | types.MethodType):
        return False
    return isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__")


def held_in(function: Callable[..., Any]) -> Iterator[tuple[types.CellType, Any]]:
    """The variables of other functions that tell a function from others, and what they hold now.

    The function or class itself is none, which is not there yet when it is decorated.
    """
    inside, seen = [function], set[int]()
    while inside:
        one = inside.pop()
        if not isinstance(one, types.FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        for variable, cell in _cells(one):
            held = content(cell)
            if held is not _NO_VALUE or variable not in _itself(one):
                yield cell, held
                inside.append(held)


def is_whole(told: Any) -> bool:
    """Whether all of which a function was told had its value: what stands below it, where it is made, has none yet."""
    if isinstance(told, dict):
        return all(map(is_whole, told.values()))
    return all(map(is_whole, told)) if isinstance(told, list | tuple) else told is not _NO_VALUE


def _own_name(function: Callable[..., Any]) -> Any:
    name = getattr(function, "__name__", type(function).__name__)
    if name == _LAMBDA and isinstance(function, types.FunctionType):
        return [name, _code(function.__code__)]
    cls, dot, _ = getattr(function, "__qualname__", "").rpartition("<locals>.")[2].rpartition(".")
    return f"{cls}{dot}{name}"


def _called(function: Callable[..., Any]) -> list[Any]:
    call: Any = type(function).__call__
    typed = _typed_in(call) if isinstance(call, types.FunctionType) else []
    return ["called", *typed, _owner(function, name_of(type(function)))]


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
    told += _typed_in(function)
    if within or hasattr(function, "__wrapped__"):  # of the one that is called, defaults are arguments
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        told += [_told(value, function, within) for value in defaults]
    cache = getattr(function, "cache", function)  # of one that is decorated already
    for variable, cell in _cells(function):
        held = content(cell)
        if held is _NO_VALUE:
            told.append(None if variable in _itself(function) else _NO_VALUE)
        elif held is not cache:
            told.append(_told(held, function, within | {function}))
    return told


def _cells(function: types.FunctionType) -> Iterator[tuple[str, types.CellType]]:
    """The variables of other functions that a function uses; not those that it changes itself."""
    if not function.__code__.co_freevars:
        return iter(())
    own = stored(function, "STORE_DEREF")
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return ((variable, cell) for variable, cell in cells if variable not in own)


def stored(function: types.FunctionType, opname: str) -> set[Any]:
    """The names that a function's code sets by this operation."""
    return {found.argval for found in dis.get_instructions(function.__code__) if found.opname == opname}


def content(cell: types.CellType) -> Any:
    """What a variable of another function holds now, or what says that it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return _NO_VALUE


def _itself(function: types.FunctionType) -> set[str]:
    """What calls itself, and the class in which it stands, have no value when it is decorated."""
    return {function.__name__, "__class__"}


def _set_in(wrapper: Any) -> list[Any]:
    """What an object that stands around a function holds, as far as that is data."""
    held = getattr(wrapper, "__dict__", {})
    return [[name, data] for name in sorted(held) if name not in _OF_WRAPS for data in if_data(held[name])]


def _typed_in(function: types.FunctionType) -> list[Any]:
    """The code of what has no name, or was typed in, where the same name may be another function's by now.

    A script's own code says the file that the script is; the interactive window of VS Code has such a file, too.
    """
    place, code = function.__globals__, function.__code__
    is_script = code.co_filename == place.get("__file__") != "<stdin>"  # where the next one is another's
    was_typed = place.get("__name__") in MAIN and not is_script
    return [_code(code)] if was_typed or function.__name__ == _LAMBDA else []


def _told(value: Any, holder: types.FunctionType, within: frozenset[types.FunctionType]) -> Any:
    """What tells a value that a function holds from others, as data."""
    if (name := _name_alone(value)) is not None:
        return name
    if isinstance(value, types.FunctionType):
        return _plain(value, within)
    kind = type(value).__qualname__
    if isinstance(value, dict):
        return [kind, {key: _told(item, holder, within) for key, item in value.items()}]
    parts = _parts(value)
    return _data(value, holder) if parts is None else [kind, *(_told(part, holder, within) for part in parts)]


def _name_alone(value: Any) -> str | None:
    """The name of what is known by that, and of what says nothing of a result."""
    if isinstance(value, type):
        return name_of(value)
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, logging.Logger):
        return value.name
    if isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType | None):
        return name_of(value)
    return name_of(type(value)) if isinstance(value, _SAY_NOTHING) else None


def _parts(value: Any) -> Sequence[Any] | None:
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        return [value.__name__, value.__self__]
    if "__wrapped__" in getattr(value, "__dict__", {}):  # by functools.lru_cache, for one
        return [value.__wrapped__, *_set_in(value)]
    if isinstance(value, BaseException):
        return list(value.args)
    return list(value) if isinstance(value, list | tuple | deque) else None


def _data(value: Any, holder: types.FunctionType) -> Any:
    try:
        fingerprint(identity(value))
    except SerializationError as error:
        kind = type(value).__qualname__
        lower = "put @cached below its other decorators, or " if hasattr(holder, "__wrapped__") else ""
        raise ConfigurationError(
            f"{name_of(holder)} holds a value of type {kind} of the function that made it, and nothing tells that from"
            f" another: {lower}say with tag= where the results of this one are"
        ) from error
    return value


def _code(code: types.CodeType) -> list[Any]:
    names = [code.co_names, code.co_varnames]
    caught = getattr(code, "co_exceptiontable", b"")  # of Python 3.11 and later
    return [code.co_code, caught, code.co_flags, names, [_constant(value) for value in code.co_consts]]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)
