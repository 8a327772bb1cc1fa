"""Classes among the parameters of a call: LangChain tells a cache their names, but not their fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.functions.values import identity
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.caching.request import dumped_model

_CLASS_PATTERN = re.compile(r"<(?:class|enum|flag) '[^'<>]*(?:<locals>[^'<>]*)*'>")


def with_class_fields(llm_string: str, parameters: Any = None) -> str:
    """The ``llm_string`` of a call, with a fingerprint of each class's fields in the place of the class's name.

    If the schema made from a class stands beside it, as ``with_structured_output`` puts it there, nothing is changed.
    Raises SerializationError if several classes with different fields have that name, or if none has it any more.

    Args:
        llm_string: LangChain's text about the model and the parameters.
        parameters: Those that hold classes; a class that is not among them is looked for in the whole process.
    """
    if "<" not in llm_string or not _CLASS_PATTERN.search(llm_string) or "ls_structured_output_format" in llm_string:
        return llm_string
    _, end_of_model = dumped_model(llm_string)
    parameter_text = llm_string[end_of_model:]
    if _is_literal(parameter_text):  # the class is quoted in a string
        return llm_string
    class_reprs = set(_CLASS_PATTERN.findall(parameter_text))
    descriptions = {class_repr: _describe_class(class_repr, parameters) for class_repr in class_reprs}
    return llm_string[:end_of_model] + _CLASS_PATTERN.sub(lambda match: descriptions[match[0]], parameter_text)


def classes_in(value: Any) -> Iterator[type]:
    """The classes among the values of parameters, lists and mappings of them included."""
    if isinstance(value, type):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from classes_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from classes_in(item)


def _is_literal(parameters: str) -> bool:
    try:
        ast.literal_eval(parameters.removeprefix("---"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _describe_class(class_repr: str, parameters: Any) -> str:
    name = class_repr.split("'")[1].rpartition(".")[2]
    identities = _class_identities(classes_in(parameters), name, class_repr)
    if not identities:
        identities = _class_identities(_all_classes(), name, class_repr)
    if len(identities) != 1:
        raise SerializationError(
            f"the request refers to the class {name}, and {len(identities)} classes have this name" if identities
            else f"the request refers to the class {name}, whose fields cannot be found"
        )  # fmt: skip
    return f"'class {name} {identities.pop()}'"


def _class_identities(classes: Iterable[type], name: str, class_repr: str) -> set[str]:
    return {fingerprint(identity(cls)) for cls in classes if cls.__name__ == name and repr(cls) == class_repr}


def _all_classes() -> Iterator[type]:
    seen: dict[int, type] = {}  # by id, as a metaclass may redefine equality
    pending: list[type] = [object]
    while pending:
        subclasses: list[type] = type.__subclasses__(pending.pop())
        for cls in subclasses:
            if id(cls) not in seen:
                seen[id(cls)] = cls
                pending.append(cls)
                yield cls
