"""Makes LangChain describe a model as it is now, not as it was, and adds what that description leaves out."""

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

_TOLD = "_serialized"  # LangChain's cached property: what it tells caches and tracers of a model
_SEEN = "_langmem_seen"
_telling = ForkSafeLock()
_UNTOLD = "[('"  # how LangChain's description begins if it is no dump of the whole model
_UNDUMPED = '"not_implemented"'  # LangChain's dump of an object whose contents it does not dump
_NEAR = 8  # callers that are looked at: the model is the third, and only an address could be missing from a dump
_SELDOM = ADDRESSES | {"default_headers", "default_query", "output_version"}  # few that tell a name tell these
_ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")
_TOLD_BY_NAME = (type, Enum, BuiltinFunctionType)  # classes: see with_fields
_OWN = (BaseChatModel.model_fields.keys() | OF_THE_CALL) - {"output_version"}


def as_it_is_now(model: ModelT) -> ModelT:
    """Have LangChain describe the model anew if its fields have changed.

    ``model.model_copy(update={"model_name": …})`` copies the description of the first model, and would be given its
    answers; so would a model with a field set to something else. By one thread at a time: LangChain iterates over what
    the model holds, which must not grow meanwhile, and since Python 3.12 a cached property has no lock of its own.
    """
    with no_fork, _telling.held():
        _seen(model)
        getattr(model, _TOLD)
    return model


@contextmanager
def asking(model: BaseLanguageModel[Any]) -> Iterator[None]:
    """While the model is asked, what it changes in itself counts as its notes of calls, not as its owner's settings."""
    try:
        yield
    finally:
        with no_fork, _telling.held():  # a thread that has it described needs its result a while longer
            _seen(model, was_asked=True)


def completed(llm_string: str, *, was_asked: bool = False) -> str:
    """:func:`with_untold` for the model that asks, found among the callers: LangChain shows a cache only this text.

    For a completion model, the text has neither the parameters of the call nor those that are bound to the model.
    Raises SerializationError if one of these is not data: its text might be that of another value, too.
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
    """The ``llm_string`` of a call, with where and how the model is asked; if the model tells nothing, all its fields.

    A model that is not serializable, and each completion model, tells only what its author chose: ``ChatOllama`` not
    even its name.
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
    """The ``llm_string`` of a call, with fingerprints of the parameters that it has only as an incomplete text.

    That text is their ``repr``: of an array only its ends, of a model not the fields that it hides. Raises
    SerializationError for a tensor, and for a text that is only an address, which may be another object's by then.
    """
    if llm_string.endswith("]") and not _is_json(given) and (values := list(_shortened(lasting(given)))):
        return f"{llm_string[:-1]}, ('given', {values!r})]"
    return llm_string


def _shortened(value: Any) -> Iterator[str]:
    """Fingerprints of the values in a parameter that its text may not tell in full."""
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
                raise SerializationError(
                    f"an object of type {type(value).__qualname__} has nothing that identifies it"
                ) from None


@dataclass
class _Seen:
    """The fields of a model when it was last looked at. It is an attribute of the model, and copied with it."""

    whose: int
    held: dict[str, Any]
    fields: dict[str, Any]  # as they were
    notes: frozenset[str]  # fields that the model itself changed when it was asked
    untold: list[tuple[str, str]] | None = None

    def __reduce__(self) -> Any:
        """Pickled as None: a process that unpickles a model need not have this library."""
        return type(None), ()


def _seen(model: BaseLanguageModel[Any], *, was_asked: bool = False, above: _Models = ()) -> _Seen:
    """The model's fields as they are now; if they have changed, its cached description is dropped.

    A model that it holds, other than those ``above``, is looked at too, and has notes of its own. If several threads
    do this at once, the model is described once more than needed, and nothing else happens.
    """
    above = (*above, model)
    held = model.__dict__
    raw = {name: value for name, value in held.copy().items() if name[0] != "_"}  # other threads may add to it
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
    """A field's value to compare with later; for settings or a model, which may change in place, their hash."""
    return (_hash(value) or value) if _is_record(value) or _is_model(value) else value


def _is_record(value: Any) -> bool:
    """Whether it holds fields by name, and is neither a class nor a Runnable."""
    is_record = isinstance(value, BaseModel) or is_dataclass(value)
    return is_record and not isinstance(value, type | Runnable)


def _may_be_notes(model: BaseLanguageModel[Any], name: str, *, is_same: bool) -> bool:
    """Whether a field that changed while the model was asked may be its own count or list of calls.

    That is a number that began with 0, the same list as before if it began empty, or the same object of a class of its
    own; and any field that is not told, if the model's author tells some. Any other was set by its owner just then.
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
    """What a model tells of itself, if LangChain does not dump all of it for a cache."""
    whole = model.is_lc_serializable() and not isinstance(model, BaseLLM)
    return {} if whole else model._identifying_params  # noqa: SLF001 - the way to ask


def _hidden(kind: type[BaseLanguageModel[Any]]) -> set[str]:
    """Fields that say where and how a model is asked, but are excluded from a dump, such as OpenRouter's headers."""
    return {name for name in _SELDOM & kind.model_fields.keys() if kind.model_fields[name].exclude}


def _sealed(model: BaseLanguageModel[Any]) -> set[str]:
    """Fields that LangChain dumps as secrets although they are no keys, such as the tool servers of a ChatAnthropic."""
    return {name for name in model.lc_secrets if isinstance(getattr(model, name, None), list | dict)}


def _is_undumped(value: Any) -> bool:
    """Whether LangChain does not dump the value of a field, such as an enum, a set, or an object with settings.

    Nor does it dump a model that is not serializable, such as the endpoint in a ChatHuggingFace, or the latter itself.
    """
    return _is_model(value) or not (isinstance(value, Serializable | Runnable) or _is_json(value))


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _is_set(model: BaseLanguageModel[Any], name: str) -> bool:
    """Whether a field differs from that of a model made without arguments, and is not the model's count of calls."""
    default = _default(type(model).model_fields[name])
    # also for a model from a pickle, whose notes are lost
    counts = type(default) is int and default == 0 and _sets_itself(type(model), name)
    return not counts and _differs(getattr(model, name), default)


def _sets_itself(kind: type, name: str) -> bool:
    """Whether a method of a class sets an attribute of this name."""
    methods = [each for cls in kind.__mro__ for each in vars(cls).values() if isinstance(each, FunctionType)]
    return any(name in stored(method, "STORE_ATTR") for method in methods if name in method.__code__.co_names)


def _fields(model: BaseLanguageModel[Any], names: set[str], above: _Models = ()) -> Iterator[tuple[str, str]]:
    """The name and the hash of each field that is data and differs from its default."""
    for name in sorted(names):
        own, value = type(model).model_fields[name], getattr(model, name)
        excluded = own.exclude and name not in _SELDOM and not _is_model(value)
        if excluded or isinstance(value, SecretStr) or name.endswith(("api_key", "api_token", "token_provider")):
            continue
        if _differs(value, _default(own)) and (told := _hash(value, (*above, model))):
            yield name, told


def _of_model(model: BaseLanguageModel[Any], above: _Models) -> list[Any]:
    """A model in a field of another: its class, its address and the hashes of its fields."""
    seen: _Seen | None = model.__dict__.get(_SEEN)
    secret = model.lc_secrets.keys() - _sealed(model)
    names = type(model).model_fields.keys() - _OWN - secret - (seen.notes if seen else frozenset())
    own = list(_fields(model, {name for name in names if _is_set(model, name)}, above))
    return [name_of(type(model)), unsaid_address(model), own]


def _default(own: FieldInfo) -> Any:
    """The default of a field; a function that makes it is not called, as it may read the environment."""
    if not isinstance(own.default_factory, type):
        return own.default
    return own.get_default(call_default_factory=True, validated_data={})


def _is_model(value: Any) -> TypeGuard[BaseLanguageModel[Any]]:
    """Whether it is a model; a mock that claims to be one has no fields."""
    return issubclass(type(value), BaseLanguageModel)


def _is_in(model: Any, models: _Models) -> bool:
    """Whether a model is one of these; without this check, two that hold each other would recurse for ever."""
    return any(model is one for one in models)


def _hash(value: Any, above: _Models = ()) -> str:
    """A hash of a field, "" if it is no data. Of settings or a model with a client in them: of all else they hold."""
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
