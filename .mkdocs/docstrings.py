"""Reads our docstrings as the Markdown that the site is made of: roles become links, and doctests code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from typing import Any

import griffe

__all__ = ["Docstrings"]

_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_PARAMETERS = re.compile(r"^( +)(\w+(?:, \w+)+): (.*(?:\n\1 .*)*)", re.MULTILINE)
_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(~?)([\w.]+)`")


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is taken apart, and lists what a class inherits after its own members."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Make inherited members the class's own: else they come first."""
        for cls in list(_classes(pkg)):
            for name, alias in cls.inherited_members.items():
                member = copy(alias.final_target)
                member.parent, member.docstring = cls, copy(member.docstring)
                cls.members[name] = member

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or value."""
        if obj.docstring is not None:
            text = _DOCTEST.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            text = _PARAMETERS.sub(_one_by_one, text)
            obj.docstring.value = _ROLE.sub(lambda role: _link(role, obj), text)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Say what a method made blocking gives to those who call it, and not that it is a flow."""
        is_blocking = any(decorator.callable_path.endswith(".blocking") for decorator in func.decorators)
        if is_blocking and isinstance(func.returns, griffe.ExprSubscript):
            func.returns = func.returns.slice


def _classes(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Class]:
    for member in parent.members.values():
        if isinstance(member, griffe.Class):
            yield member
        if isinstance(member, griffe.Module | griffe.Class):
            yield from _classes(member)


def _one_by_one(parameters: re.Match[str]) -> str:
    """Parameters that share a description, each with it: else the site knows neither their types nor their defaults."""
    indent, names, description = parameters.groups()
    return "\n".join(f"{indent}{name}: {description}" for name in names.split(", "))


def _link(role: re.Match[str], obj: griffe.Object) -> str:
    """A link to what a role names, or plain code where the reference does not have it."""
    short, name = role.groups()
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref optional identifier="{_found(name, obj)}"><code>{shown}</code></autoref>'


def _found(name: str, obj: griffe.Object) -> str:
    """The full name of what a docstring means: a member of its object, or of the class or module around it."""
    first, dot, rest = name.partition(".")
    try:
        return f"{obj.resolve(first)}{dot}{rest}"
    except griffe.NameResolutionError:
        return name
