"""Makes LangChain describe a model as it is now, not as it was, and adds what that description leaves out."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from types import BuiltinFunctionType, FrameType
from typing import Any, TypeAlias, TypeGuard, TypeVar

from langchain_core.language_models import BaseChatModel, BaseLanguageModel, BaseLLM
from langchain_core.load.serializable import Serializable
from langchain_core.runnables import Runnable
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.environment import environment_headers
from langmem_adapters.experience.functions.call_records import is_only_added_to, is_record_of_calls, is_set_while_asked
from langmem_adapters.experience.functions.equality import ATOMS
from langmem_adapters.experience.functions.naming import as_setting
from langmem_adapters.experience.functions.values import data_fingerprints, identity, name_of
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.caching.field_snapshot import FieldSnapshot, differs, is_hashable
from langmem_adapters.langchain.caching.request import CALL_SETTINGS, without_call_settings
from langmem_adapters.providers.addresses import ADDRESS_FIELDS, unstated_address

ModelT = TypeVar("ModelT", bound=BaseChatModel)
# Of the models that hold a model: without these, two that hold each other would recurse for ever.
_Ids: TypeAlias = tuple[int, ...]

_DESCRIPTION_KEY = "_serialized"  # LangChain's cached property: what it tells caches and tracers of a model
_SNAPSHOT_KEY = "_langmem_seen"
_description_lock = ForkSafeLock()
_PARTIAL_PREFIX = "[('"  # how LangChain's description begins if it is no dump of the whole model
_NOT_DUMPED_MARK = '"not_implemented"'  # LangChain's dump of an object whose contents it does not dump
_MAX_CLASSES = 256  # of models
_MAX_FRAMES = 5  # callers of the cache that are looked at: only an address could be missing from the dump of a model
# Fields that few models describe, even of those that describe their name.
_RARELY_DESCRIBED = ADDRESS_FIELDS | {"default_headers", "default_query", "output_version"}
_ADDRESS_PATTERN = re.compile(" at 0x[0-9a-fA-F]+")
_DESCRIBED_BY_NAME = (type, Enum, BuiltinFunctionType)  # classes: see with_class_fields
_IGNORED_FIELDS = (BaseChatModel.model_fields.keys() | CALL_SETTINGS) - {"output_version"}


def refresh_description(model: ModelT) -> ModelT:
    """Have LangChain describe the model again if its fields have changed.

    ``model.model_copy(update={"model_name": …})`` copies the description of the first model, and would be given its
    answers; so would a model with a field set to something else. By one thread at a time: LangChain iterates over what
    the model holds, which must not grow meanwhile, and since Python 3.12 a cached property has no lock of its own.
    """
    with no_fork, _description_lock.held():
        _take_snapshot(model)
        getattr(model, _DESCRIPTION_KEY)
    return model


@contextmanager
def tracked_call(model: BaseLanguageModel[Any]) -> Iterator[None]:
    """While the model is asked, what it changes in itself counts as its bookkeeping, not as its owner's settings."""
    try:
        yield
    finally:
        with no_fork, _description_lock.held():  # a thread that has it described needs its result a while longer
            _take_snapshot(model, was_asked=True)


def complete_llm_string(llm_string: str, *, was_asked: bool = False) -> tuple[str, FieldSnapshot | None]:
    """:func:`with_omitted_parts` for the calling model, found in the stack: LangChain shows a cache only this text.

    Also the snapshot of its fields, if one was needed.
    For a completion model, the text has neither the parameters of the call nor those that are bound to the model.
    Raises SerializationError if one of these is not data: its text might be that of another value, too.
    """
    frame: FrameType | None = sys._getframe(2).f_back  # noqa: SLF001 - the caller of the cache
    frames_left = sys.maxsize if llm_string.startswith(_PARTIAL_PREFIX) else _MAX_FRAMES
    while frame is not None and frames_left:
        code = frame.f_code
        # To read variables, Python makes a dictionary of all.
        has_self = "self" in code.co_varnames or "self" in code.co_freevars or "self" in code.co_cellvars
        if has_self and isinstance(model := frame.f_locals.get("self"), BaseLanguageModel):
            parameters = without_call_settings(frame.f_locals.get("kwargs", {}))
            llm_string = _with_omitted_fields(model, llm_string, was_asked=was_asked)
            if not isinstance(model, BaseLLM):
                llm_string = _with_parameter_values(llm_string, parameters)
            elif parameters:
                llm_string = _appended(llm_string, "given", fingerprint(identity(parameters)))
            return llm_string, model.__dict__.get(_SNAPSHOT_KEY)
        frame = frame.f_back
        frames_left -= 1
    return llm_string, None


def with_omitted_parts(model: BaseLanguageModel[Any], llm_string: str, parameters: Mapping[str, Any]) -> str:
    """The ``llm_string`` of a call, with the fields of the model and the values of parameters that it leaves out."""
    return _with_parameter_values(_with_omitted_fields(model, llm_string), parameters)


def _with_omitted_fields(model: BaseLanguageModel[Any], llm_string: str, *, was_asked: bool = False) -> str:
    """The ``llm_string`` of a call, with where and how the model is asked; if the model tells nothing, all its fields.

    A model that is not serializable, and each completion model, tells only what its author chose: ``ChatOllama`` not
    even its name.
    """
    if not llm_string.endswith("]"):
        return llm_string
    if address := unstated_address(model):
        llm_string = _appended(llm_string, "address", address)
    if headers := environment_headers():
        llm_string = _appended(llm_string, "headers", fingerprint(headers))
    hidden = _excluded_fields(type(model)) | _masked_fields(model)
    if not (llm_string.startswith(_PARTIAL_PREFIX) or _NOT_DUMPED_MARK in llm_string or hidden):
        return llm_string
    snapshot = _take_snapshot(model, was_asked=was_asked)
    if snapshot.omitted is None:
        secrets = model.lc_secrets.keys() - hidden
        names = type(model).model_fields.keys() - _IGNORED_FIELDS - secrets - snapshot.bookkeeping
        if llm_string.startswith(_PARTIAL_PREFIX):
            snapshot.omitted = _undescribed_hashes(model, names)
        else:
            undumped = hidden | {name for name in names if _is_undumped(getattr(model, name))}
            snapshot.omitted = list(_field_hashes(model, {name for name in undumped if _is_set(model, name)}))
    return _appended(llm_string, "untold", snapshot.omitted) if snapshot.omitted else llm_string


def _undescribed_hashes(model: BaseLanguageModel[Any], names: set[str]) -> list[tuple[str, str]]:
    """Hashes of the fields that a model does not tell of itself; if it tells nothing, of its class and all fields."""
    described = _partial_description(model)
    if not described:
        return [("class", name_of(type(model))), *_field_hashes(model, {n for n in names if _is_set(model, n)})]
    set_fields = {name for name in names & _RARELY_DESCRIBED if getattr(model, name) is not None}
    omitted_fields = {name for name in names - _RARELY_DESCRIBED - described.keys() if _is_set(model, name)}
    return list(_field_hashes(model, set_fields | omitted_fields))


def _appended(llm_string: str, name: str, value: Any) -> str:
    """A text that ends with a list of parameters, with one more in the list."""
    return f"{llm_string[:-1]}, {(name, value)!r}]"


def _with_parameter_values(llm_string: str, parameters: Mapping[str, Any]) -> str:
    """The ``llm_string`` of a call, with fingerprints of the parameters that it has only as an incomplete text.

    That text is their ``repr``: of an array only its ends, of a model not the fields that it hides. Raises
    SerializationError for a tensor, and for a text that is only an address, which may be another object's by then.
    """
    if not llm_string.endswith("]") or _is_json(parameters):
        return llm_string
    values = list(_value_fingerprints(without_call_settings(parameters)))
    return _appended(llm_string, "given", values) if values else llm_string


def _value_fingerprints(value: Any) -> Iterator[str]:
    """Fingerprints of the values in a parameter that its text may not tell in full."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            if type(item) not in ATOMS:
                yield from _value_fingerprints(item)
    elif not isinstance(value, _DESCRIBED_BY_NAME) and getattr(value, "__module__", "") != "enum":
        try:
            yield fingerprint(identity(value))
        except (SerializationError, RecursionError):
            if hasattr(value, "shape") or _ADDRESS_PATTERN.search(repr(value)):
                kind = type(value).__qualname__
                raise SerializationError(f"an object of type {kind} has nothing that identifies it") from None


def _take_snapshot(model: BaseLanguageModel[Any], *, was_asked: bool = False, enclosing: _Ids = ()) -> FieldSnapshot:
    """The model's fields as they are now; if they have changed, its cached description is dropped.

    A model that it holds, other than those ``enclosing`` it, is looked at too, and has bookkeeping of its own. If
    several threads do this at once, the model is described once more than needed, and nothing else happens.
    """
    attributes = model.__dict__
    old: FieldSnapshot | None = attributes.get(_SNAPSHOT_KEY)
    is_same_model = old is not None and old.model_id == id(model)
    if old is not None and is_same_model and old.is_current(attributes, _comparable_value):
        return old
    enclosing, attribute_names = (*enclosing, id(model)), tuple(attributes)
    values = {name: value for name, value in attributes.copy().items() if name[0] != "_"}  # other threads may add to it
    composite = {name: value for name, value in values.items() if type(value) not in ATOMS}
    for value in composite.values():
        if _is_model(value) and id(value) not in enclosing:
            _take_snapshot(value, was_asked=was_asked, enclosing=enclosing)
    comparable = values | {name: _comparable_value(value) for name, value in composite.items()}
    new = FieldSnapshot(id(model), values, comparable, frozenset() if old is None else old.bookkeeping)
    is_described = False
    if old is not None and is_same_model:
        if not differs(old.comparable, comparable):
            if not any(map(_is_model, composite.values())):  # what one holds changes by itself
                old.note(attribute_names, values, comparable)
            return old
        names = old.comparable.keys() | comparable.keys()
        changed = {name for name in names if differs(old.comparable.get(name), comparable.get(name))}
        same = {name for name in changed if values.get(name) is old.values.get(name)}
        if was_asked:
            new.bookkeeping |= {name for name in changed if _may_be_bookkeeping(model, name, is_same=name in same)}
            new.has_changed_within = not same <= new.bookkeeping
        new.replacements = old.replacements + (not changed <= same | new.bookkeeping)
        is_described = changed <= new.bookkeeping
        if is_described and new.bookkeeping == old.bookkeeping:
            new.omitted = old.omitted
    if not is_described:
        attributes.pop(_DESCRIPTION_KEY, None)
    attributes[_SNAPSHOT_KEY] = new
    return new


def _comparable_value(value: Any) -> Any:
    """A value to compare with later, at any depth; for settings, a model or a set, which may change, their hash."""
    if isinstance(value, dict):
        return [[*value], _comparable_value([*value.values()])]
    if isinstance(value, list | tuple):
        return [*value] if ATOMS.issuperset(map(type, value)) else [*map(_comparable_value, value)]
    is_changeable = not is_hashable(value) and not isinstance(value, Runnable)
    return (_hash(value) or value) if is_changeable or _is_record(value) or _is_model(value) else value


def _is_record(value: Any) -> bool:
    """Whether it holds fields by name, and is neither a class nor a Runnable."""
    return (isinstance(value, BaseModel) or is_dataclass(value)) and not isinstance(value, type | Runnable)


def _may_be_bookkeeping(model: BaseLanguageModel[Any], name: str, *, is_same: bool) -> bool:
    """Whether a field that changed while the model was asked may be its own count or list of calls.

    That is a number that began with 0, the same list or set if it began empty and the model only adds to it, or the
    same object of a class of its own; and any field that is not described, if the author describes some. Any other was
    set by its owner just then, and so was what no code of the model sets while it is asked.
    """
    field = type(model).model_fields.get(name)
    if field is None or not (is_same or is_set_while_asked(type(model), name)):
        return False
    if (described := _partial_description(model)) and name not in described.keys() | _RARELY_DESCRIBED:
        return True
    if type(field.default) is int:
        return field.default == 0
    return is_same and (is_only_added_to(model, name) or _is_record(getattr(model, name)))


def _partial_description(model: BaseLanguageModel[Any]) -> Mapping[str, Any]:
    """What a model tells of itself, if LangChain does not dump all of it for a cache."""
    is_dumped = model.is_lc_serializable() and not isinstance(model, BaseLLM)
    return {} if is_dumped else model._identifying_params  # noqa: SLF001 - the way to ask


@lru_cache(_MAX_CLASSES)
def _excluded_fields(kind: type[BaseLanguageModel[Any]]) -> set[str]:
    """Fields that say where and how a model is asked, but are excluded from a dump, such as OpenRouter's headers."""
    return {name for name in _RARELY_DESCRIBED & kind.model_fields.keys() if kind.model_fields[name].exclude}


def _masked_fields(model: BaseLanguageModel[Any]) -> set[str]:
    """Fields that LangChain dumps as secrets although they are no keys, such as the tool servers of a ChatAnthropic."""
    return {name for name in model.lc_secrets if isinstance(getattr(model, name, None), list | dict)}


def _is_undumped(value: Any) -> bool:
    """Whether LangChain does not dump a value: an enum, a set, settings, a model such as that in a ChatHuggingFace."""
    return _is_model(value) or not (isinstance(value, Serializable | Runnable) or _is_json(value))


def _is_json(value: Any) -> bool:
    with suppress(TypeError, ValueError, RecursionError):
        json.dumps(value)
        return True
    return False


def _is_set(model: BaseLanguageModel[Any], name: str) -> bool:
    """Whether a field differs from that of a model made without arguments, and is not its record of calls."""
    default = _default_value(type(model).model_fields[name])
    return differs(getattr(model, name), default) and not is_record_of_calls(model, name)


def _field_hashes(model: BaseLanguageModel[Any], names: set[str], enclosing: _Ids = ()) -> Iterator[tuple[str, str]]:
    """The name and the hash of each field that is data and differs from its default."""
    for name in sorted(names):
        field, value = type(model).model_fields[name], getattr(model, name)
        excluded = field.exclude and name not in _RARELY_DESCRIBED and not _is_model(value)
        if excluded or isinstance(value, SecretStr) or name.endswith(("api_key", "api_token", "token_provider")):
            continue
        if differs(value, _default_value(field)) and (hash_ := _hash(value, (*enclosing, id(model)))):
            yield name, hash_


def _model_parts(model: BaseLanguageModel[Any], enclosing: _Ids) -> list[Any]:
    """A model in a field of another: its class, its address and the hashes of its fields."""
    snapshot: FieldSnapshot | None = model.__dict__.get(_SNAPSHOT_KEY)
    secrets = model.lc_secrets.keys() - _masked_fields(model)
    bookkeeping = snapshot.bookkeeping if snapshot else frozenset()
    names = type(model).model_fields.keys() - _IGNORED_FIELDS - secrets - bookkeeping
    hashes = list(_field_hashes(model, {name for name in names if _is_set(model, name)}, enclosing))
    return [name_of(type(model)), unstated_address(model), hashes]


def _default_value(field: FieldInfo) -> Any:
    """The default of a field; a function that makes it is not called, as it may read the environment."""
    if not isinstance(field.default_factory, type):
        return field.default
    return field.get_default(call_default_factory=True, validated_data={})


def _is_model(value: Any) -> TypeGuard[BaseLanguageModel[Any]]:
    """Whether it is a model; a mock that claims to be one has no fields."""
    return issubclass(type(value), BaseLanguageModel)


def _hash(value: Any, enclosing: _Ids = ()) -> str:
    """A hash of a field, "" if it is no data. Of settings or a model with a client in them: of all else they hold."""
    if _is_model(value):
        return "" if id(value) in enclosing else fingerprint(_model_parts(value, enclosing))
    with suppress(SerializationError):
        return fingerprint(value)
    with suppress(SerializationError, RecursionError):  # of a path, an array
        return fingerprint(identity(value))
    if _is_record(value):
        parts = [[name, *data_fingerprints(part)] for name, part in vars(value).items()]
        return fingerprint(name_of(type(value)), parts)
    return as_setting(value)
