"""Check what users pass in, at the boundary: a wrong value raises an error of one clear sentence."""

from __future__ import annotations

import inspect
import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from numbers import Integral
from typing import Any, TypeVar

from pydantic import ValidationError
from typing_extensions import TypedDict

from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.flow import is_coroutine
from langmem_adapters.model import Message, MessageData, Metric, Scope, ToolCall
from langmem_adapters.protocols import Index, Store

_OPTIONAL_MESSAGE_FIELDS = [name for name in Message.model_fields if name not in {"role", "content"}]
_EXPECTED_MESSAGES = (
    'messages are a list of Message(role="user", content="…"), which to_message of langmem_adapters.langchain or'
    " .llamaindex makes of a host's"
)


class MessageFields(TypedDict, total=False):
    """What a message may have beside its role and content, for type checkers."""

    id: str
    name: str | None
    tool_calls: Sequence[ToolCall]
    tool_call_id: str | None
    created_at: float | None
    metadata: Mapping[str, Any]
    host: Mapping[str, Mapping[str, Any]]


_PLAIN_ANSWERS = frozenset({bool, type(None), Metric})  # what most functions of the user give
_MAX_CHECKED_CLASSES = 256  # of stores and indexes: a history is made for each call

T = TypeVar("T")
M = TypeVar("M", Message, "Message | MessageData")


def check_store(store: object) -> None:
    """Raise ConfigurationError for anything but a store, such as a URL, a client, or a service that has a store."""
    required = ("get", "namespaces")  # a user's store may have only what is called; a Redis client has get and scan too
    if not all(hasattr(type(store), name) or hasattr(store, name) for name in required):
        kind = type(store).__name__
        raise ConfigurationError(f'a store is what open_store("sqlite:///memory.db") gives, for one, not {kind}')
    _check_plain_methods("a store", store, Store)


def has_methods_of(protocol: type, value: object) -> bool:
    """Whether a value has a protocol's methods, even by ``__getattr__``, which isinstance ignores since Python 3.12."""
    return all(hasattr(value, name) for name in _methods_of(protocol))


def _check_plain_methods(name: str, value: object, protocol: type) -> None:
    kind: type = type(value)
    if awaited := _first_coroutine(kind, protocol):
        raise ConfigurationError(f"{name} has plain methods, and {kind.__name__}.{awaited} must be awaited")


@cache
def _methods_of(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in dir(protocol) if not name.startswith("_"))


@lru_cache(_MAX_CHECKED_CLASSES)
def _first_coroutine(kind: type, protocol: type) -> str:
    """The first of a protocol's methods that a class has as a coroutine function; "" if there is none."""
    return next((name for name in _methods_of(protocol) if is_coroutine(getattr(kind, name, None))), "")


def check_settings(name: str, settings: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Raise ConfigurationError for unknown keys in a dictionary of settings, and name them."""
    if unknown := sorted(map(str, settings.keys() - set(allowed))):
        raise ConfigurationError(f"{name} has no {', '.join(unknown)}, but {', '.join(sorted(allowed))}")


def check_index(name: str, value: object) -> None:
    """Raise ConfigurationError for anything but an index, such as a URL or an embedder."""
    if not has_methods_of(Index, value):
        gives = 'open_index("memory:")' if name == "index" else 'open_vectors("memory:", embedder)'
        raise ConfigurationError(f"{name} is what {gives} gives, for one, not {type(value).__name__}")
    _check_plain_methods(name, value, Index)


def check_text(name: str, value: object) -> None:
    """Raise ConfigurationError for anything but a text."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} is a text, not {type(value).__name__}")


def check_integer(name: str, value: object) -> None:
    """Raise ConfigurationError for anything but an integer, or for one beyond what a store can count to."""
    _check_integer(name, value, "a whole number", -sys.maxsize)


def check_count(name: str, value: object, *, minimum: int = 1) -> None:
    """:func:`check_integer`, also for numbers below ``minimum``."""
    _check_integer(name, value, f"a whole number of at least {minimum}", minimum)


def _check_integer(name: str, value: object, expected: str, minimum: int) -> None:
    if not isinstance(value, int | Integral) or isinstance(value, bool) or int(value) < minimum:  # int: found sooner
        raise ConfigurationError(f"{name} is {expected}, not {value!r:.50}")
    if int(value) > sys.maxsize:
        raise ConfigurationError(f"{name} is {expected}, and {sys.maxsize} at the most")


def check_function(name: str, value: object) -> None:
    """Raise ConfigurationError for a value that is neither None nor callable, and for a class of callable objects."""
    if isinstance(value, type) and any("__call__" in vars(kind) for kind in value.__mro__):
        raise ConfigurationError(f"{name} is an object, {value.__name__}(…), and not its class")
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} is a function, or an object that is called like one, not {value!r:.50}")


def check_at_most_one(who: str, **options: object) -> None:
    """Raise ConfigurationError if more than one of these is given."""
    if sum(value is not None for value in options.values()) > 1:
        *names, last = options
        raise ConfigurationError(f"give {who} one of {', '.join(names)} and {last}")


def check_on_error(value: object) -> None:
    """Raise ConfigurationError for an unknown policy for outages."""
    if value not in ("degrade", "raise"):
        raise ConfigurationError(f'on_error is "degrade" or "raise", not {value!r}')


def check_sync_function(name: str, value: object) -> None:
    """:func:`check_function`, also for a coroutine function, whose unawaited result would count as True."""
    check_function(name, value)
    if is_coroutine(value):
        raise ConfigurationError(f"{name} is a coroutine function: give it a plain one")


def check_sync_functions(**functions: object) -> None:
    """Raise ConfigurationError for anything but a plain function: for clocks, id sources and sleeps.

    None is called, as it may count: ``datetime.now`` and ``uuid.uuid4``, whose values no store can hold, are known.
    """
    for name, value in functions.items():
        if value is None:
            raise ConfigurationError(f"{name} is a function, or is left out, and not None")
        check_sync_function(name, value)
        owner = getattr(value, "__self__", None)
        if name == "clock" and isinstance(owner, type) and issubclass(owner, datetime):
            raise ConfigurationError("a clock gives Unix seconds as a number, as time.time does, and not a datetime")
        if name == "new_id" and getattr(value, "__module__", None) == "uuid":
            raise ConfigurationError("new_id gives a text, as lambda: uuid.uuid4().hex does, and not a UUID")


def check_seconds(name: str, value: object, *, or_none: bool = True) -> None:
    """Raise ConfigurationError for anything but a finite number above 0, or None if ``or_none``."""
    if value is None and or_none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        expected = "a number of seconds above 0" + (", or None" if or_none else "")
        raise ConfigurationError(f"{name} is {expected}, not {value!r:.50}")


def checked_scope(*, tenant: str = "", user: str = "", session: str = "") -> Scope:
    """Return the scope. Raises ConfigurationError, which names the part, for a part that is no text."""
    for name, value in (("tenant", tenant), ("user", user), ("session", session)):
        check_text(name, value)
    return Scope(tenant=tenant, user=user, session=session)


def id_text(name: str, value: object) -> str:
    """Return an id as text, "" for None. Raises ConfigurationError for a type that is no id."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | uuid.UUID):
        raise ConfigurationError(f"a {name} id is a text, not {type(value).__name__}")
    if isinstance(value, str):
        return str.__str__(value)  # what an enum member or a masked text is, not what it shows
    return str(value if isinstance(value, uuid.UUID) else int(value))


def check_scope(scope: Scope, *, tenant: str, user: str, session: str) -> None:
    """Raise ConfigurationError if a brain's session, user or tenant differs from the one given beside it."""
    for name, value in (("session", session), ("user", user), ("tenant", tenant)):
        if value not in ("", getattr(scope, name)):
            raise ConfigurationError(f"this brain is {name} {getattr(scope, name)!r}, not {value!r}")


def checked_list(values: Any, expected: str, *kinds: type[T]) -> list[T]:
    """Return the items of an iterable as a list. Raises ConfigurationError for a single item or a wrong type.

    Args:
        values: What was given.
        expected: What is expected, as the beginning of a sentence.
        kinds: The types that are expected.
    """
    is_list = type(values) is list  # nearly always, and quick to test
    if not is_list and (isinstance(values, (str, bytes, Mapping, *kinds)) or not isinstance(values, Iterable)):
        raise ConfigurationError(f"{expected}, not one {type(values).__name__}")
    items = list(values)
    for item in items:
        if not isinstance(item, kinds):
            raise ConfigurationError(f"{expected}, not of {type(item).__name__}")
    return items


def checked_messages(messages: Iterable[M]) -> list[M]:
    """Return the messages. Raises ConfigurationError for a single one, a wrong type, or ``text`` without content."""
    checked: list[Any] = checked_list(messages, _EXPECTED_MESSAGES, Message, MessageData)
    for message in checked:
        if isinstance(message, Message) and not message.content and "text" in (message.model_extra or ()):
            raise ConfigurationError('a message takes content="…", not text=: its text is read from its content')
    return checked


def make_message(role: str, content: Any, fields: Mapping[str, Any]) -> Message:
    """Make a message of this role. Raises ConfigurationError for unknown fields or wrong types, and names them."""
    if unknown := sorted(name for name in fields if name not in _OPTIONAL_MESSAGE_FIELDS):
        names, allowed = ", ".join(unknown), ", ".join(_OPTIONAL_MESSAGE_FIELDS)
        raise ConfigurationError(f"a message has no field {names}; besides its text, it can have {allowed}")
    try:
        return Message(role=role, content=content, **fields)
    except ValidationError as error:
        invalid = invalid_fields(error, 1)
    # Outside the except, as pydantic's error holds the values.
    hint = "; whole messages go to add_messages, a host's through to_message" if "content" in invalid else ""
    raise ConfigurationError(f"a message cannot have a value of this type as {invalid}{hint}")


def invalid_fields(error: ValidationError, depth: int = 2) -> str:
    """The places of wrong values, by names down to a depth, without the values."""
    details = error.errors(include_input=False)
    return ", ".join(sorted({".".join(map(str, detail["loc"][:depth])) for detail in details}))


def lines_of(text: Iterable[bytes | str]) -> Iterable[bytes | str]:
    """Return the lines of an export, which may also be one text. Raises ConfigurationError for anything but text."""
    if isinstance(text, str):
        return text.split("\n")  # splitlines() would split at U+2028 inside of a text
    if isinstance(text, bytes):
        return text.splitlines()
    if isinstance(text, os.PathLike):
        raise ConfigurationError("an import takes the lines of an export, as open(path, 'rb') gives them, not a path")
    if isinstance(text, Mapping) or not isinstance(text, Iterable):
        raise ConfigurationError(f"an import takes the lines of an export, or its text, not {type(text).__name__}")
    return map(_check_line, text)


def _check_line(line: bytes | str) -> bytes | str:
    if not isinstance(line, str | bytes | bytearray):
        raise ConfigurationError(f"a line of an export is text or bytes, not {type(line).__name__}")
    return line


def call_user_code(label: str, decide: Callable[[], T]) -> T:
    """Call a function of the user, with its errors raised as LangmemError; what must be awaited is refused."""
    try:
        answer = decide()
    except LangmemError:
        raise
    except Exception as error:
        raise LangmemError(f"{label} failed: {type(error).__name__}") from error
    return plain_answer(label, answer)


def plain_answer(label: str, answer: T) -> T:
    """What a function of the user gave; what must be awaited, which would count as True, is a ConfigurationError."""
    if type(answer) in _PLAIN_ANSWERS:
        return answer
    if inspect.isawaitable(answer):  # from a lambda around a coroutine function, say
        if inspect.iscoroutine(answer):
            answer.close()  # otherwise Python warns that it was never awaited
        raise ConfigurationError(f"{label} gave what must be awaited: give it a plain function")
    return answer


def converted(what: str, kind: type[T], convert: Callable[..., T], *args: Any) -> T:
    """What a codec or redactor returns. Its own errors are raised as SerializationError, which callers expect."""
    try:
        result = convert(*args)
    except LangmemError:
        raise
    except Exception as error:
        raise SerializationError(f"the {what} failed: {type(error).__name__}") from error
    if not isinstance(result, kind):
        raise ConfigurationError(f"a {what} returns {kind.__name__}, not {type(result).__name__}")
    return result
