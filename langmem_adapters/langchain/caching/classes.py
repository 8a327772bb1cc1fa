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

__all__ = ["classes_in", "with_fields"]

_CLASS = re.compile(r"<(?:class|enum|flag) '[^'<>]*(?:<locals>[^'<>]*)*'>")


def with_fields(llm_string: str, among: Any = None) -> str:
    """The ``llm_string`` of a call, with a fingerprint of each class's fields in the place of the class's name.

    If the schema made from a class stands beside it, as ``with_structured_output`` puts it there, nothing is changed.
    Raises SerializationError if several classes with different fields have that name, or if none has it any more.

    Args:
        llm_string: LangChain's text about the model and the parameters.
        among: Parameters that hold classes; a class that is not among them is looked for in the whole process.
    """
    if "<" not in llm_string or not _CLASS.search(llm_string) or "ls_structured_output_format" in llm_string:
        return llm_string
    _, start = dumped_model(llm_string)
    parameters = llm_string[start:]
    if _is_literal(parameters):  # the class is quoted in a string
        return llm_string
    found = set(_CLASS.findall(parameters))
    told = {text: _told(text, among) for text in found}
    return llm_string[:start] + _CLASS.sub(lambda match: told[match[0]], parameters)


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


def _told(text: str, among: Any) -> str:
    name = text.split("'")[1].rpartition(".")[2]
    identities = _identities(classes_in(among), name, text) or _identities(_everywhere(), name, text)
    if len(identities) != 1:
        raise SerializationError(
            f"the request refers to the class {name}, and {len(identities)} classes have this name" if identities
            else f"the request refers to the class {name}, whose fields cannot be found"
        )  # fmt: skip
    return f"'class {name} {identities.pop()}'"


def _identities(classes: Iterable[type], name: str, text: str) -> set[str]:
    return {fingerprint(identity(cls)) for cls in classes if cls.__name__ == name and repr(cls) == text}


def _everywhere() -> Iterator[type]:
    """All classes of this process."""
    seen: dict[int, type] = {}  # by id, as a metaclass may redefine equality
    waiting: list[type] = [object]
    while waiting:
        below: list[type] = type.__subclasses__(waiting.pop())
        for cls in below:
            if id(cls) not in seen:
                seen[id(cls)] = cls
                waiting.append(cls)
                yield cls
