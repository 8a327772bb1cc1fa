"""Responses as data, and back: as an equal value of the same type, or not at all.

Data is restored by the declared return type of the function, if there is one; stored data never names a class.
"""

from __future__ import annotations

import enum
import types
import typing
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from functools import partial, reduce
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, TypeAdapter

from langmem_adapters.annotations import annotations_of
from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.experience.functions.equality import first_changed_type, is_same, part_of, unset_fields
from langmem_adapters.experience.policies import Serializer
from langmem_adapters.experience.serializers import DataSerializer
from langmem_adapters.model import Experience, Metric

Form = Literal["plain", "typed", "loose"]
_FORMS: Final[tuple[Form, ...]] = ("plain", "typed", "loose")
_SERIALIZER_REMEDY = "let the serializer's deserialize_resp give back what serialize_resp was given"
_STREAM_TYPES = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)
_TYPING_MODULES = {"typing", "types", "typing_extensions", "annotationlib"}  # Any, a NewType, int | None, …


class Frozen(NamedTuple):
    """A response as data, and in which form.

    ``unset`` has, for each pydantic model in it with fields that were not set, these and the path to it: a client that
    sends a model on, as OpenAI's does, leaves these out.
    """

    form: Form
    data: Any
    unset: list[list[Any]]


class Responses:
    """Converts the responses, or yielded items, of one function to data and back.

    A response is kept in one of three forms: "plain" data that is of the declared type, "typed" data from which
    pydantic makes that type, or "loose": plain data that is not of the declared type. The first form that restores an
    equal value is taken.

    Args:
        function: The function.
        returns: The type of a response (for generators: of an item); default: the return annotation.
        serializer: Turns responses into data before this conversion, and back after it.
    """

    def __init__(
        self, function: Callable[..., Any], *, returns: Any = None, serializer: Serializer, stream: bool
    ) -> None:
        is_alias = typing.get_origin(returns) or type(returns).__module__ in _TYPING_MODULES
        if not (returns is None or isinstance(returns, type | str) or is_alias):
            raise ConfigurationError(f"returns is a type, such as int or list[str], not {returns!r:.50}")
        self._function = function
        self._returns = returns
        self._serializer = serializer
        self.stream = stream
        self._resolved_adapter: TypeAdapter[Any] | None = None
        self._is_resolved = False

    def experience(self, value: Any, *, req: Any, metric: Metric | None) -> Experience:
        """Make an experience of a response, or of a stream's frozen items. Raises as :meth:`freeze` does."""
        extra: dict[str, Any]
        if self.stream:
            forms, items, unset = [[getattr(each, name) for each in value] for name in Frozen._fields]
            extra = {"unset_fields": unset} if any(unset) else {}
            return Experience(req=req, resp=items, metric=metric, form=forms, **extra)
        form, data, names = self.freeze(value)
        extra = {name: each for name, each in (("none", data is None), ("unset_fields", names)) if each}
        return Experience(req=req, resp=data, metric=metric, form=form, **extra)

    def from_experience(self, experience: Experience) -> Any:
        """The response of an experience; for a stream, the list of its items. Raises as :meth:`restore` does."""
        extra = experience.model_extra or {}
        form, data, unset = extra.get("form"), experience.resp, extra.get("unset_fields")
        if self.stream:
            columns = [form, data] if unset is None else [form, data, unset]
            if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
                raise SerializationError("a stored response is not what the function returns")
            return list(map(self.restore, *columns))
        if data is None and not extra.get("none"):  # a lost field would look like None
            raise SerializationError("a stored experience has no response")
        return self.restore(form, data, unset)

    def with_form(self, experience: Experience) -> Experience:
        """The experience with a form: one added by hand has none, and holds data for pydantic."""
        if "form" in (experience.model_extra or {}):
            return experience
        form: Any = "plain" if self._type_adapter is None else "typed"
        if self.stream and isinstance(experience.resp, list):
            form = [form] * len(experience.resp)
        return experience.model_copy(update={"form": form, "none": True})

    def for_scorer(self, experience: Experience) -> Any:
        """The response of an experience as a scorer is shown it. Raises as :meth:`restore` does."""
        return self.from_experience(experience)

    def as_returned(self, value: Any) -> Any:
        """What the caller of the function sees: the value; for a stream, the list of its items."""
        return [self.restore(*frozen) for frozen in value] if self.stream else value

    def freeze(self, value: Any) -> Frozen:
        """A response as data. Raises SerializationError if it would not come back equal."""
        cause: Exception | None = None
        lost_type = kind = type(value).__qualname__
        serialized = self._serialize(value)
        is_plain = type(self._serializer) is DataSerializer
        for form in _FORMS:
            try:
                data = self._to_data(form, serialized)
                copy = self._from_data(form, data)
                changed_type = first_changed_type(value, copy)
                if not changed_type:
                    holds_models = form == "typed" or not is_plain
                    return Frozen(form, data, list(unset_fields(value, copy)) if holds_models else [])
                lost_type = changed_type
            except Exception as error:  # noqa: BLE001, PERF203 - another form may do
                cause = error
        message = f"a response of {kind} would not come back equal"
        if lost_type != kind:
            message += f", as it holds a value of type {lost_type}"
        elif self._type_adapter is not None and is_plain and _make_adapter(type(value)) is not None:
            # an AIMessage, for a BaseMessage
            message += " as what its annotation or returns= says: name its exact class, and those inside of it"
            raise SerializationError(message) from cause
        remedy = self._remedy(type(value)) if is_plain else _SERIALIZER_REMEDY
        raise SerializationError(f"{message}; {remedy}") from cause

    def _remedy(self, kind: type) -> str:
        """How to have responses of a class kept: declare their type, unless it is declared or unknown to pydantic."""
        if issubclass(kind, types.CoroutineType | types.GeneratorType | types.AsyncGeneratorType):
            return "put @cached directly above the function that awaits or yields"
        if self._declared_type is not Any or _make_adapter(kind) is None:
            return "return plain data, or give a serializer="
        return "declare its type with returns= or an annotation"

    def restore(self, form: Any, data: Any, unset: Any = None) -> Any:
        """Restore a response. Raises SerializationError if the data is not what the function returns."""
        try:
            return _with_unset(self._from_data(form, data), unset)
        except Exception as error:
            raise SerializationError("a stored response is not what the function returns") from error

    def _serialize(self, value: Any) -> Any:
        try:
            return self._serializer.serialize_resp(value)
        except SerializationError:
            raise
        except Exception as error:
            raise SerializationError(f"the serializer's serialize_resp failed: {type(error).__name__}") from error

    def _to_data(self, form: Form, value: Any) -> Any:
        """A serialized response as data that shares nothing with it."""
        if form != "typed" or self._type_adapter is None:
            return decode(encode(value))
        dump = partial(self._type_adapter.dump_python, value, by_alias=True, round_trip=True, warnings=False)
        try:
            return decode(encode(_replace_enums(dump())))
        except SerializationError:
            return decode(encode(dump(mode="json")))  # of paths and URLs, for instance

    def _from_data(self, form: Any, data: Any) -> Any:
        adapter = self._type_adapter
        if form == "loose" or (form == "plain" and adapter is None):
            value = data
        elif form == "plain" and adapter is not None:
            value = adapter.validate_python(data, strict=True)
            if not is_same(value, data):
                raise ValueError("pydantic makes something else of it")
        elif form == "typed" and adapter is not None:
            value = adapter.validate_python(data)
        else:
            raise ValueError("it has no such form")
        return self._serializer.deserialize_resp(value)

    @property
    def _type_adapter(self) -> TypeAdapter[Any] | None:
        if not self._is_resolved:
            self._resolved_adapter = _make_adapter(self._declared_type)
            self._is_resolved = True
        return self._resolved_adapter

    @property
    def _declared_type(self) -> Any:
        """The declared type of a response: ``returns``, or else the annotation; Any, if none can be read."""
        if self._returns is not None:
            return self._returns

        def stub() -> None: ...

        function = getattr(self._function, "__func__", self._function)
        try:
            stub.__annotations__ = {"return": annotations_of(function)["return"]}
            declared = typing.get_type_hints(stub, getattr(function, "__globals__", {}), include_extras=True)["return"]
        except Exception:  # noqa: BLE001 - whatever an annotation raises, its function can be called
            return Any
        if not self.stream:
            return declared
        item_types = typing.get_args(declared)
        return item_types[0] if item_types and typing.get_origin(declared) in _STREAM_TYPES else Any


def _with_unset(value: Any, unset: list[list[Any]] | None) -> Any:
    """A restored value, with the fields of its models marked as not set that were not."""
    for names, *path in unset or ():
        model = reduce(part_of, path, value)
        if isinstance(model, BaseModel):  # in the place of one that its class has no more, there is none
            model.__pydantic_fields_set__.difference_update(names)
    return value


def _make_adapter(annotation: Any) -> TypeAdapter[Any] | None:
    if annotation is Any or isinstance(annotation, typing.TypeVar):
        return None
    try:
        return TypeAdapter(annotation)
    except Exception:  # noqa: BLE001 - a class that pydantic does not know, or a pattern; each in its own way
        return None


def _replace_enums(dumped: Any) -> Any:
    """What pydantic dumped, with enum members replaced by their values. Raises TypeError for an iterator."""
    if isinstance(dumped, Iterator):  # the caller is to read it; a dump to JSON would use it up
        raise TypeError("an iterator cannot be kept")
    if isinstance(dumped, enum.Enum):
        return dumped.value
    if isinstance(dumped, dict):
        return {_replace_enums(key): _replace_enums(item) for key, item in dumped.items()}
    if type(dumped) in {list, tuple, set, frozenset, deque}:
        return type(dumped)(map(_replace_enums, dumped))
    return dumped
