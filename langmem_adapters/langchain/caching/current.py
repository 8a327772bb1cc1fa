"""A chat model as it is now, as LangChain remembers what it was; and what LangChain does not tell a cache of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeAlias, TypeGuard, TypeVar

from langchain_core.language_models import BaseChatModel, BaseLanguageModel, BaseLLM
from langchain_core.load.serializable import Serializable
from langchain_core.runnables import Runnable
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.functions.equality import ATOMS
from langmem_adapters.experience.functions.naming import as_setting, stored
from langmem_adapters.experience.functions.values import identity, if_data, name_of
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.caching.request import OF_THE_CALL, lasting
from langmem_adapters.providers.addresses import ADDRESSES, unsaid_address
from langmem_adapters.sharing import apart

__all__ = ["as_it_is_now", "asking", "completed", "with_untold", "with_values"]

ModelT = TypeVar("ModelT", bound=BaseChatModel)
_Models: TypeAlias = "tuple[BaseLanguageModel[Any], ...]"

_TOLD = "_serialized"  # LangChain's name for what it tells caches and tracers of a model; a cached property
_SEEN = "_langmem_seen"
_telling = ForkSafeLock()
_UNTOLD = "[('"  # how LangChain begins what it tells where it does not dump the whole model
_UNDUMPED = '"not_implemented"'  # as LangChain dumps settings of a class, of which it tells no more than that
_NEAR = 8  # callers: it is the third, and no more than an address could be missing of what LangChain dumps
_SELDOM = ADDRESSES | {"default_headers", "default_query", "output_version"}  # told by few who tell a name
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")
_TOLD_BY_NAME = (type, Enum, BuiltinFunctionType)  # classes: see with_fields
_OWN = (BaseChatModel.model_fields.keys() | OF_THE_CALL) - {"output_version"}


def as_it_is_now(model: ModelT) -> ModelT:
    """Have LangChain tell anew what the model is, if its fields are no more what they were.

    ``model.model_copy(update={"model_name": …})`` takes along what was told of the first model, and would be given its
    answers; so would a model with a field set to something else. By one thread at a time: LangChain goes through what
    the model holds, which may not grow meanwhile, and since Python 3.12 no cached property has a lock of its own.
    """
    with no_fork, _telling.held():
        _seen(model)
        getattr(model, _TOLD)
    return model


@contextmanager
def asking(model: BaseLanguageModel[Any]) -> Iterator[None]:
    """While the model is asked: what it then changes in itself are its notes of calls, and no settings of its owner."""
    try:
        yield
    finally:
        with no_fork, _telling.held():  # who is just telling what it is may not have that forgotten too early
            _seen(model, was_asked=True)


def completed(llm_string: str, *, was_asked: bool = False) -> str:
    """:func:`with_untold` of the model that asks. LangChain shows a cache no more than this text: it is a caller's.

    Of a completion model it does not even tell a cache with which parameters it is called, or which are bound to it.
    Raises SerializationError where one of these is no data: what it says of itself may be said of another.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way
    left = sys.maxsize if llm_string.startswith(_UNTOLD) else _NEAR
    while frame is not None and (left := left - 1):
        model = frame.f_locals.get("self")
        if isinstance(model, BaseLanguageModel):
            told = with_untold(model, llm_string, was_asked=was_asked)
            given = lasting(frame.f_locals.get("kwargs", {}))
            if not isinstance(model, BaseLLM):
                return with_values(told, given)
            return f"{told[:-1]}, ('given', {fingerprint(identity(given))!r})]" if given else told
        frame = frame.f_back  # type: ignore[assignment] # None above the first
    return llm_string


def with_untold(model: BaseLanguageModel[Any], llm_string: str, *, was_asked: bool = False) -> str:
    """What LangChain tells a cache of a call, and with it where and how a model is asked; of who tells nothing, all.

    A model that is not serializable, and each of completions, tells what its author thought of: ``ChatOllama`` not even
    its name.
    """
    if not llm_string.endswith("]"):
        return llm_string
    if address := unsaid_address(model):
        llm_string = f"{llm_string[:-1]}, ('address', {address!r})]"
    hidden = _hidden(type(model)) | _sealed(model)
    if not (llm_string.startswith(_UNTOLD) or _UNDUMPED in llm_string or hidden):
        return llm_string
    seen = _seen(model, was_asked=was_asked)
    if seen.untold is None:
        names = type(model).model_fields.keys() - _OWN - (model.lc_secrets.keys() - hidden) - seen.notes
        if not llm_string.startswith(_UNTOLD):
            undumped = hidden | {name for name in names if _is_undumped(getattr(model, name))}
            seen.untold = list(_fields(model, {name for name in undumped if _is_set(model, name)}))
        elif told := _told_in_part(model):
            set_ = {name for name in names & _SELDOM if getattr(model, name) is not None}
            left_out = {name for name in names - _SELDOM - told.keys() if _is_set(model, name)}
            seen.untold = list(_fields(model, set_ | left_out))
        else:
            seen.untold = [("class", name_of(type(model))), *_fields(model, names)]
    return f"{llm_string[:-1]}, ('untold', {seen.untold!r})]" if seen.untold else llm_string


def with_values(llm_string: str, given: Mapping[str, Any]) -> str:
    """What LangChain tells a cache of a call, and with it those parameters of which it tells a text that is not all.

    That is their ``repr``: of an array its ends, of a model not the fields that it hides. Raises SerializationError
    for a tensor, and for what tells no more than its address, which may be another's by then.
    """
    if llm_string.endswith("]") and not _is_json(given) and (values := list(_shortened(lasting(given)))):
        return f"{llm_string[:-1]}, ('given', {values!r})]"
    return llm_string


def _shortened(value: Any) -> Iterator[str]:
    """The fingerprints of what a parameter holds and its text may not tell."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            if type(item) not in ATOMS:
                yield from _shortened(item)
    elif not isinstance(value, _TOLD_BY_NAME) and getattr(value, "__module__", "") != "enum":
        try:
            yield fingerprint(identity(value))
        except (SerializationError, RecursionError):
            if hasattr(value, "shape") or _ADDRESS.search(repr(value)):
                raise SerializationError(f"one {type(value).__qualname__} cannot be told from another") from None


@dataclass
class _Seen:
    """What a model was when it was last looked at. It lies in the model, and lives as long; copies take it along."""

    whose: int
    held: dict[str, Any]
    fields: dict[str, Any]  # as they were
    notes: frozenset[str]  # fields that it changed itself when it was asked
    untold: list[tuple[str, str]] | None = None

    def __reduce__(self) -> Any:
        """Nothing: who unpickles a model need not have this library."""
        return type(None), ()


def _seen(model: BaseLanguageModel[Any], *, was_asked: bool = False, above: _Models = ()) -> _Seen:
    """The model's fields as they are; where they are others, what was remembered of it is forgotten.

    A model that it asks, below those ``above``, has notes of its own. Threads that do this at once have it told once
    more than need be, and no more.
    """
    above = (*above, model)
    held = model.__dict__
    raw = {name: value for name, value in held.copy().items() if name[0] != "_"}  # others may be adding to it
    for value in raw.values():
        if _is_model(value) and not _is_in(value, above):
            _seen(value, was_asked=was_asked, above=above)
    now = {name: value if type(value) in ATOMS else _now(value) for name, value in raw.items()}
    seen: _Seen | None = held.get(_SEEN)
    notes: frozenset[str] = frozenset() if seen is None else seen.notes
    if seen is not None and seen.whose == id(model):
        if not _differs(seen.fields, now):
            return seen
        changed = {name for name in now.keys() | seen.fields.keys() if _differs(seen.fields.get(name), now.get(name))}
        if was_asked:
            before = seen.held
            notes |= {n for n in changed if _may_be_notes(model, n, is_same=raw.get(n) is before.get(n))}
        if changed <= notes:
            held[_SEEN] = new = _Seen(id(model), raw, apart(now), notes, seen.untold if notes == seen.notes else None)
            return new
    held.pop(_TOLD, None)
    held[_SEEN] = new = _Seen(id(model), raw, apart(now), notes)
    return new


def _now(value: Any) -> Any:
    """A field as it can be compared with later: of settings or a model, which may change in themselves, their hash."""
    return (_hash(value) or value) if _is_record(value) or _is_model(value) else value


def _is_record(value: Any) -> bool:
    """Whether it holds fields by name, and is neither a class nor a model of its own."""
    is_record = isinstance(value, BaseModel) or is_dataclass(value)
    return is_record and not isinstance(value, type | Runnable)


def _may_be_notes(model: BaseLanguageModel[Any], name: str, *, is_same: bool) -> bool:
    """Whether a model that changed a field while it was asked may have counted its calls in it, or listed them.

    That is a number that begins with 0, the same list as before that began empty, and the same object of a class of
    its own; and where its author tells some fields, any of the others. Else it was its owner who set a field just then.
    """
    own = type(model).model_fields.get(name)
    if own is None:
        return False
    if (told := _told_in_part(model)) and name not in told.keys() | _SELDOM:
        return True
    if type(own.default) is int:
        return own.default == 0
    began_empty = own.default_factory is list or (type(own.default) is list and not own.default)
    return is_same and (began_empty or _is_record(getattr(model, name)))


def _told_in_part(model: BaseLanguageModel[Any]) -> Mapping[str, Any]:
    """What a model tells of itself, where LangChain does not dump all of it for a cache."""
    whole = model.is_lc_serializable() and not isinstance(model, BaseLLM)
    return {} if whole else model._identifying_params  # noqa: SLF001 - the way to ask


def _hidden(kind: type[BaseLanguageModel[Any]]) -> set[str]:
    """Fields that say where and how a model is asked, and are excluded from a dump, as OpenRouter's headers."""
    return {name for name in _SELDOM & kind.model_fields.keys() if kind.model_fields[name].exclude}


def _sealed(model: BaseLanguageModel[Any]) -> set[str]:
    """Fields that LangChain dumps as secrets and that are no keys, as the servers of tools in a ChatAnthropic."""
    return {name for name in model.lc_secrets if isinstance(getattr(model, name, None), list | dict)}


def _is_undumped(value: Any) -> bool:
    """Whether LangChain does not dump what is in a field, as in an enum, a set, or settings of a class of their own.

    Nor does it dump a model that is not serializable, as the endpoint in a ChatHuggingFace, or that one in another.
    """
    return _is_model(value) or not (isinstance(value, Serializable | Runnable) or _is_json(value))


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_set(model: BaseLanguageModel[Any], name: str) -> bool:
    """Whether a field is another than one of a model that was told nothing would have, and no count of calls."""
    default = _default(type(model).model_fields[name])
    # in a pickle, too, where nobody knows of its notes
    counts = type(default) is int and default == 0 and _sets_itself(type(model), name)
    return not counts and _differs(getattr(model, name), default)


def _sets_itself(kind: type, name: str) -> bool:
    """Whether a method of a class sets an attribute of this name."""
    methods = [each for cls in kind.__mro__ for each in vars(cls).values() if isinstance(each, FunctionType)]
    return any(name in stored(method, "STORE_ATTR") for method in methods if name in method.__code__.co_names)


def _fields(model: BaseLanguageModel[Any], names: set[str], above: _Models = ()) -> Iterator[tuple[str, str]]:
    """The fields of a model that are data and not what they are by default, by their hashes."""
    for name in sorted(names):
        own, value = type(model).model_fields[name], getattr(model, name)
        excluded = own.exclude and name not in _SELDOM and not _is_model(value)
        if excluded or isinstance(value, SecretStr) or name.endswith(("api_key", "api_token", "token_provider")):
            continue
        if _differs(value, _default(own)) and (told := _hash(value, (*above, model))):
            yield name, told


def _of_model(model: BaseLanguageModel[Any], above: _Models) -> list[Any]:
    """A model in a field of another: what it is, where it asks, and how."""
    seen: _Seen | None = model.__dict__.get(_SEEN)
    secret = model.lc_secrets.keys() - _sealed(model)
    names = type(model).model_fields.keys() - _OWN - secret - (seen.notes if seen else frozenset())
    own = list(_fields(model, {name for name in names if _is_set(model, name)}, above))
    return [name_of(type(model)), unsaid_address(model), own]


def _default(own: FieldInfo) -> Any:
    """What a field is that nobody set; not what a function gives, which may look into the environment."""
    if not isinstance(own.default_factory, type):
        return own.default
    return own.get_default(call_default_factory=True, validated_data={})


def _is_model(value: Any) -> TypeGuard[BaseLanguageModel[Any]]:
    """Whether it is one, and no mock that only says so, which has no fields."""
    return issubclass(type(value), BaseLanguageModel)


def _is_in(model: Any, models: _Models) -> bool:
    """Whether a model is one of these: two that hold each other go round in a circle."""
    return any(model is one for one in models)


def _hash(value: Any, above: _Models = ()) -> str:
    """That of a field, of settings or a model that hold a client of what else they hold; "" of what is no data."""
    if _is_model(value):
        return "" if _is_in(value, above) else fingerprint(_of_model(value, above))
    with suppress(SerializationError):
        return fingerprint(value)
    with suppress(SerializationError, RecursionError):  # of a path, an array
        return fingerprint(identity(value))
    if _is_record(value):
        told = [[name, *if_data(part)] for name, part in vars(value).items()]
        return fingerprint(name_of(type(value)), told)
    return as_setting(value)


def _differs(one: Any, other: Any) -> bool:
    try:
        return one is not other and bool(one != other)
    except Exception:  # noqa: BLE001 - arrays, for instance, are equal item by item, which is no answer
        return True
