"""The arguments of a call, and which of them make two calls the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from langmem_adapters.annotations import signature_of
from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.functions.naming import (
    cell_content,
    closure_contents,
    function_identity,
    has_stable_identity,
    is_complete,
)
from langmem_adapters.experience.functions.values import identities_by_name, identity, name_of
from langmem_adapters.experience.policies import Serializer
from langmem_adapters.keys import fingerprint
from langmem_adapters.validation import call_user_code

_OWNER_NAMES = ("self", "cls")


class _Identity(NamedTuple):
    """A function's fingerprint, whether it can be kept, and the closure cells with the values on which it depends."""

    fingerprint: str
    is_reusable: bool
    closure: list[tuple[Any, Any]]


class Arguments:
    """The arguments of one function, and the keys of its calls.

    Args:
        function: The function.
        key: For some arguments, by name, a function from the value to what counts of it; or one function with the
            same parameters as ``function`` that returns all that counts.
        ignore: Names of arguments that do not count. The first of a method, ``self`` or ``cls``, does not either,
            unless ``key`` names it; but results of one class are not those of its subclasses.
        trusted: Whether the user has named the place of the results, so that the function's own name identifies it.
        serializer: What it makes of the arguments counts, and is kept, in their place.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        key: Callable[..., Any] | Mapping[str, Callable[[Any], Any]] | None = None,
        ignore: Collection[str] = (),
        trusted: bool = False,
        serializer: Serializer | None = None,
    ) -> None:
        if isinstance(ignore, str) or not isinstance(ignore, Collection):
            raise ConfigurationError('ignore is a list of names, such as ["timeout"], not one text')
        if not (key is None or callable(key) or (isinstance(key, Mapping) and all(map(callable, key.values())))):
            raise ConfigurationError(
                'key is a function, or a dictionary of functions by argument: key={"user": lambda user: user.id}'
            )
        self.name: str = getattr(function, "__qualname__", type(function).__qualname__)
        self.signature: inspect.Signature = _signature(function, self.name)
        self._key_function = key if callable(key) else None
        self._part_functions: Mapping[str, Callable[[Any], Any]] = key if isinstance(key, Mapping) else {}
        parameters = self.signature.parameters.values()
        names = [parameter.name for parameter in parameters]
        for name in (*ignore, *self._part_functions):
            if name not in names:
                raise ConfigurationError(f"{self.name} has no argument {name!r}; it has {', '.join(names) or 'none'}")
        name_by_kind = {parameter.kind: parameter.name for parameter in parameters}
        self._is_plain = name_by_kind.keys() <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._defaults = {parameter.name: parameter.default for parameter in parameters}
        self._required = {name for name, default in self._defaults.items() if default is inspect.Parameter.empty}
        self._kwargs_name = name_by_kind.get(inspect.Parameter.VAR_KEYWORD, "")
        self.owner: str | None = names[0] if names and _is_method(function, names[0]) else None
        is_owner_ignored = self.owner is not None and self.owner not in self._part_functions
        ignored_names = {*ignore, self.owner} if is_owner_ignored else {*ignore}
        self._key_names = [name for name in names if name not in ignored_names]
        self.ignores_owner: bool = is_owner_ignored and self._key_function is None
        self._defining_class = name_of(function).rpartition(".")[0]
        self._function = function
        self._trusted = trusted
        self._serializer = serializer
        self._identity = self._compute_identity()

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        """Arguments by name, defaults included. Raises TypeError if the function cannot be called with these."""
        if self._is_plain and len(args) <= len(self._defaults):  # Signature.bind takes more than twice as long
            by_place = dict(zip(self._defaults, args, strict=False))
            arguments = {**self._defaults, **by_place, **kwargs}  # in the order of the parameters
            has_all = self._required.issubset((*by_place, *kwargs)) and len(arguments) == len(self._defaults)
            if has_all and by_place.keys().isdisjoint(kwargs):
                return inspect.BoundArguments(self.signature, arguments)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound

    def key_arguments(self, bound: inspect.BoundArguments) -> dict[str, Any]:
        """The arguments that make the call what it is, by name. Raises LangmemError if a function of ``key=`` fails."""
        if self._key_function is not None:
            return {"key": call_user_code("key", partial(self._key_function, *bound.args, **bound.kwargs))}
        arguments = {name: bound.arguments[name] for name in self._key_names}
        return arguments | {
            name: call_user_code("key", partial(part, arguments[name]))
            for name, part in self._part_functions.items()
            if name in arguments
        }

    def _serialized(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._serializer is None:
            return arguments
        serialize = partial(self._serializer.serialize_req, **self._flattened(arguments))
        return {"req": call_user_code("the serializer's serialize_req", serialize)}

    def _flattened(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that count, with those in ``**kwargs`` each under its own name.

        If one of these has the name of a parameter, as when ``f(*args, **kwargs)`` is called with ``args=``, they stay
        in one dictionary: otherwise an argument would be lost.
        """
        named = dict(arguments)
        extra = named.pop(self._kwargs_name, {})
        if not isinstance(extra, Mapping) or {*extra} & {*arguments}:
            return dict(arguments)
        return {**extra, **named}

    def owner_name(self, bound: inspect.BoundArguments) -> str:
        """The name of the class of a method's object; empty, if it is the class that defines the method."""
        if not self.ignores_owner:
            return ""
        owner = bound.arguments[str(self.owner)]
        if owner is None:
            return ""
        name = name_of(owner if isinstance(owner, type) else type(owner))
        return "" if name == self._defining_class else name

    def key(self, arguments: Mapping[str, Any], owner: str = "") -> str:
        """The fingerprint of the function and its arguments, which differs for any other value or type.

        Raises ConfigurationError, which names the argument, if one is not data.
        """
        arguments = self._serialized(arguments)
        try:
            return fingerprint([self._current_identity(), owner, identities_by_name(arguments)])
        except (SerializationError, RecursionError) as error:  # the latter for cyclic data
            raise self._key_error(arguments) from error

    def call_key(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """The key of a call with these arguments; of a method, without its object."""
        bound = self.bind((None, *args) if self.ignores_owner else args, kwargs)
        return self.key(self.key_arguments(bound), self.owner_name(bound))

    def function_fingerprint(self, owner: str = "") -> str:
        """The fingerprint of the function alone: only requests of one function are compared with each other."""
        return fingerprint([self._current_identity(), owner])

    def _current_identity(self) -> str:
        """The function's identity; computed anew if it is an object, or if values in its closure have changed."""
        current, is_reusable, closure = self._identity
        if is_reusable and all(value is cell_content(cell) for cell, value in closure):
            return current
        self._identity = self._compute_identity()
        return self._identity.fingerprint

    def _compute_identity(self) -> _Identity:
        function, trusted = self._function, self._trusted
        closure = [] if trusted else list(closure_contents(function))
        try:
            parts = function_identity(function, trusted=trusted)
            is_reusable = trusted or (has_stable_identity(function) and is_complete(parts))
            return _Identity(fingerprint(identity(parts)), is_reusable, closure)
        except (SerializationError, RecursionError) as error:
            raise ConfigurationError(
                f"{name_of(function)} has bound arguments, or holds values, that are not data and cannot"
                " identify it: name its cache with tag="
            ) from error

    def _key_error(self, arguments: Mapping[str, Any]) -> ConfigurationError:
        if self._key_function is not None:
            kind = type(arguments["key"]).__qualname__
            return ConfigurationError(
                f"what key= gives for the arguments of {self.name} cannot be a cache key: its type"
                f" is {kind}, or it holds what is not data"
            )
        if _can_fingerprint([[0]]):  # otherwise calls of calls have used up the stack, whatever the arguments are
            for name, value in arguments.items():
                if not _can_fingerprint(value):
                    return ConfigurationError(
                        f"the argument {name!r} of {self.name} cannot tell one call from another, as its type is"
                        f" {type(value).__qualname__}, or it holds what is not data:"
                        f' leave it out with ignore=["{name}"], or say with key={{"{name}": …}} what counts of it'
                    )
        return ConfigurationError(
            f"the arguments of {self.name}, or its calls of itself, are too many or nested too deep for a key"
        )

    def request(self, arguments: Mapping[str, Any]) -> Any:
        """A copy of the arguments as data: the value of the only one, or all by name.

        None, if an argument counts but cannot be stored, such as a class.
        """
        try:
            values = decode(encode(dict(self._serialized(arguments))))
        except SerializationError:
            return None
        return next(iter(values.values())) if len(values) == 1 else values


def _can_fingerprint(value: Any) -> bool:
    try:
        fingerprint(identity(value))
    except (SerializationError, RecursionError):
        return False
    return True


def _signature(function: Callable[..., Any], name: str) -> inspect.Signature:
    if isinstance(function, staticmethod | classmethod):
        raise ConfigurationError(f"put @{type(function).__name__} above @cached, not below it")
    if not callable(function):
        hint = ""
        if hasattr(function, "invoke"):
            hint = ": put it below the decorator that made this, or decorate its invoke method"
        raise ConfigurationError(f"cached decorates functions, not {type(function).__name__}{hint}")
    try:
        return signature_of(function)
    except ValueError as error:
        raise ConfigurationError(f"{name} does not say which arguments it takes: wrap it in a function") from error


def _is_method(function: Callable[..., Any], first: str) -> bool:
    """Whether a function is defined in the body of a class, judged by its names."""
    class_path, _, _ = getattr(function, "__qualname__", "").rpartition(".")
    return first in _OWNER_NAMES and bool(class_path) and not class_path.endswith("<locals>")
