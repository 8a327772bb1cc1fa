"""Finds the fields in which a model keeps a record of its own calls, which say nothing of what it will answer."""

from __future__ import annotations

import dis
import inspect
import itertools
import types
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from langmem_adapters.experience.functions.naming import assigned_names, closure_contents

__all__ = ["begins_empty", "is_record_of_calls"]

# The methods in which a model of LangChain is asked, then those of LlamaIndex.
_ASKING_METHODS = (
    *("_generate", "_agenerate", "_stream", "_astream", "_call", "_acall"),
    *("chat", "achat", "stream_chat", "astream_chat", "complete", "acomplete", "stream_complete", "astream_complete"),
)
_ADDING_METHODS = {"add", "append", "extend", "insert", "update"}


def is_record_of_calls(model: BaseModel, name: str) -> bool:
    """Whether a model counts its calls in a field, or keeps them in one that its owner left empty.

    That is a number that begins with 0, or a list or set that begins empty, if the code that runs while the model is
    asked assigns the number or adds to the list.
    """
    field = type(model).model_fields[name]
    if begins_empty(field) and name not in model.model_fields_set:
        return any(_adds_to(code, name) for code in _asking_code(type(model)) if name in code.co_names)
    if type(field.default) is int and field.default == 0:
        return any(name in assigned_names(code, "STORE_ATTR") for code in _asking_code(type(model)))
    return False


def begins_empty(field: FieldInfo) -> bool:
    """Whether a field is an empty list or set in a model that was made without it."""
    return field.default_factory in (list, set) or (type(field.default) in (list, set) and not field.default)


def _adds_to(code: types.CodeType, name: str) -> bool:
    pairs = itertools.pairwise(dis.get_instructions(code))
    return any(one.argval == name and following.argval in _ADDING_METHODS for one, following in pairs)


def _asking_code(kind: type) -> Iterator[types.CodeType]:
    """The code of the methods in which a model is asked, of what they are wrapped around, and of what stands in them.

    LlamaIndex's decorators leave nothing of a method but a variable of their closure.
    """
    methods = (vars(cls).get(name) for cls in kind.__mro__ for name in _ASKING_METHODS)
    for method in methods:
        if isinstance(method, types.FunctionType):
            wrapper = inspect.unwrap(method)
            functions = [wrapper, *(value for _, value in closure_contents(wrapper))]
            pending = [function.__code__ for function in functions if isinstance(function, types.FunctionType)]
            while pending:
                yield (code := pending.pop())
                pending += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
