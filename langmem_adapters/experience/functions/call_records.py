"""Finds the fields in which a model keeps a record of its own calls, which say nothing of what it will answer."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from langmem_adapters.experience.functions.naming import closure_contents

# The methods in which a model of LangChain is asked, then those of LlamaIndex.
_ASKING_METHODS = (
    *("_generate", "_agenerate", "_stream", "_astream", "_call", "_acall"),
    *("chat", "achat", "stream_chat", "astream_chat", "complete", "acomplete", "stream_complete", "astream_complete"),
)
_ADDING_METHODS = {"add", "append", "extend", "insert", "update"}
_SETTING_NAMES = {"setattr", "__setattr__", "__dict__"}  # ways to set an attribute whose name is a text
_FRAMEWORKS = {"abc", "builtins", "langchain_core", "pydantic", "typing"}  # these set nothing of a class made with them
_COPYING_OPERATIONS = ("COPY", "DUP_TOP")  # of the object on top, which only += of an attribute needs twice
_ATTRIBUTE_OPERATIONS = ("ATTR", "METHOD", *_COPYING_OPERATIONS)  # in the names of those that use one of an object
_LOOKING_FUNCTIONS = ("isinstance", "len")  # these tell nothing of what is in a list


class _Use(NamedTuple):
    """How code uses an attribute of the object whose method it is: from what stands around its name."""

    changes: bool  # as in ``self.count += 1``
    adds: bool  # as in ``self.calls.append(…)``
    looks: bool  # as in ``len(self.calls)``


_UNKNOWN_USE = _Use(changes=False, adds=False, looks=False)


def is_record_of_calls(model: BaseModel, name: str) -> bool:
    """Whether a model counts its calls in a field, or keeps them in one that its owner left empty.

    That is a number that begins with 0, or a list or set that begins empty, if the code that runs while the model is
    asked adds to it: ``self.count += 1``, ``self.calls.append(…)``. A list that this code also reads is none: what the
    model was asked before, it may send again.
    """
    field = type(model).model_fields[name]
    if type(field.default) is int and field.default == 0:
        return any(use.changes for use in _uses(type(model), name))
    if name in model.model_fields_set:
        return False
    return is_only_added_to(model, name) and any(use.adds for use in _uses(type(model), name))


def is_only_added_to(model: BaseModel, name: str) -> bool:
    """Whether a list or set begins empty, and the code that runs while a model is asked does no more than add to it."""
    uses = _uses(type(model), name)
    return _begins_empty(type(model).model_fields[name]) and all(use.adds or use.looks or use.changes for use in uses)


@lru_cache(maxsize=256)
def is_set_while_asked(kind: type, name: str) -> bool:
    """Whether the code that runs while a model of this class is asked sets an attribute of this name.

    That is also the code of decorators, functions and classes of the same packages, which may be given the model.
    """
    return any(_sets(code, name) for _, code in _asking_code(kind, beyond_methods=True))


def _sets(code: types.CodeType, name: str) -> bool:
    if name in _texts(code) and not _SETTING_NAMES.isdisjoint(code.co_names):
        return True
    steps = dis.get_instructions(code) if name in code.co_names else ()
    return any((step.opname, step.argval) == ("STORE_ATTR", name) for step in steps)


def _texts(code: types.CodeType) -> set[str]:
    """The texts that stand in code, and the names of its keyword arguments."""
    groups = (constant if isinstance(constant, tuple) else (constant,) for constant in code.co_consts)
    return {text for group in groups for text in group if isinstance(text, str)}


def _begins_empty(field: FieldInfo) -> bool:
    """Whether a field is an empty list or set in a model that was made without it."""
    return field.default_factory in (list, set) or (type(field.default) in (list, set) and not field.default)


@lru_cache(maxsize=256)  # reading all of this code takes many times as long as the rest of a key
def _uses(kind: type, name: str) -> tuple[_Use, ...]:
    """Each place in which the code that runs while a model is asked reads its attribute of this name.

    A variable of this name, or what another object has under it, such as a request, says nothing of the model.
    """
    uses: list[_Use] = []
    for owner, code in _asking_code(kind):
        if name not in code.co_names:
            continue
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for position in (n for n, step in enumerate(steps) if (step.opname, step.argval) == ("LOAD_ATTR", name)):
            changes = steps[position - 1].opname in _COPYING_OPERATIONS
            before, holder = steps[position - 2 - changes], steps[position - 1 - changes]
            if _loads(holder, owner):
                adds = steps[position + 1].argval in _ADDING_METHODS
                uses.append(_Use(changes, adds, before.argval in _LOOKING_FUNCTIONS))
        if _gives_away(steps, owner, is_cell=owner in (*code.co_cellvars, *code.co_freevars)):
            uses.append(_UNKNOWN_USE)
    return tuple(uses)


def _loads(step: dis.Instruction, variable: str) -> bool:
    """Whether an instruction ends with a variable on top."""
    return _variables(step)[-1:] == (variable,)


def _variables(step: dis.Instruction) -> tuple[Any, ...]:
    """The variables of an instruction that loads some; since Python 3.13, it may be two."""
    return step.argval if isinstance(step.argval, tuple) else (step.argval,)


def _gives_away(steps: Sequence[dis.Instruction], variable: str, *, is_cell: bool) -> bool:
    """Whether code uses an object otherwise than by its attributes, as in ``prompt_of(self)`` or ``me = self``."""
    loading = "LOAD_DEREF" if is_cell else "LOAD_FAST"  # a cell itself is loaded for the code within
    uses = [pair for pair in pairwise(steps) if loading in pair[0].opname and variable in _variables(pair[0])]
    return not all(
        _loads(step, variable) and any(part in following.opname for part in _ATTRIBUTE_OPERATIONS)
        for step, following in uses
    )


def _asking_code(kind: type, *, beyond_methods: bool = False) -> Iterator[tuple[str, types.CodeType]]:
    """The code of the methods in which a model is asked, of those that these name, and of what stands in them.

    Each with the name that it gives the model. With ``beyond_methods``, also what else of the model's packages is
    named there, what methods are wrapped in, and methods that are found by a text.
    """
    packages = {_package(cls) for cls in kind.__mro__} - _FRAMEWORKS
    pending = [member for name in _ASKING_METHODS for member in _members(kind, name)]
    seen_names, seen_functions = {*_ASKING_METHODS}, set[types.FunctionType]()
    while pending:
        functions = {*_functions_of(pending.pop(), kind, beyond_methods=beyond_methods)} - seen_functions
        seen_functions |= functions
        for function in functions:
            owner = next(iter(function.__code__.co_varnames), "")
            pending_code = [function.__code__] if beyond_methods or function.__code__.co_argcount else []
            while pending_code:
                code = pending_code.pop()
                yield owner, code
                pending_code += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
                names = {*code.co_names, *(_texts(code) if beyond_methods else ())} - seen_names
                seen_names |= names
                pending += [member for name in names for member in _members(kind, name)]
                if beyond_methods:
                    named = map(function.__globals__.get, code.co_names)
                    pending += [value for value in named if _package(value) in packages]


def _members(kind: type, name: str) -> Iterator[Any]:
    return (vars(cls)[name] for cls in kind.__mro__ if name in vars(cls))


def _package(value: Any) -> str:
    """The package of a function or class; "" of anything else."""
    return str(value.__module__).partition(".")[0] if isinstance(value, types.FunctionType | type) else ""


def _functions_of(member: Any, kind: type, *, beyond_methods: bool) -> Iterator[types.FunctionType]:
    """The functions of a method, a property or another class than the model's, and what these are wrapped around.

    LlamaIndex's decorators leave nothing of a method but a variable of their closure.
    """
    pending = [member.fget if isinstance(member, property) else getattr(member, "func", member)]
    if beyond_methods:
        pending += [getattr(member, "fset", None), getattr(member, "__func__", None)]
        pending += _members_of_other(member, kind)
    seen = dict[int, types.FunctionType]()  # by identity: LlamaIndex's wrappers are equal to what they wrap
    while pending:
        function = pending.pop()
        if not isinstance(function, types.FunctionType) or id(function) in seen:
            continue
        seen[id(function)] = function
        wrapped = getattr(function, "__wrapped__", None)
        pending.append(wrapped)
        if beyond_methods or wrapped is None:
            yield function
            values = [value for _, value in closure_contents(function)]
            yield from (value for value in values if isinstance(value, types.FunctionType))
            for value in values if beyond_methods else ():
                pending += _members_of_other(value, kind)


def _members_of_other(value: Any, kind: type) -> list[Any]:
    """What stands in a class and in those that it extends, if they are none of the model's."""
    classes = (cls for cls in (value.__mro__ if isinstance(value, type) else ()) if not issubclass(kind, cls))
    return [getattr(member, "__func__", member) for cls in classes for member in vars(cls).values()]
