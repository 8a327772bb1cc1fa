"""Stored messages as LangChain messages, many at a time and without a Message in between."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from langchain_core.messages import BaseMessage
from pydantic_core import from_json

from langmem_adapters.codec import is_tagged
from langmem_adapters.langchain.convert import from_message
from langmem_adapters.langchain.rebuild import rebuilt
from langmem_adapters.log import readable
from langmem_adapters.protocols import Item

__all__ = ["of_data", "read"]

_VERSION: Final = 1  # of the stored form that is known here; others go through Message
_MANY: Final = 500  # messages, from which on the garbage collector would take as long as the reading
_TEXT_OR_NONE: Final = frozenset({str, type(None)})
_TIME: Final = frozenset({float, int, type(None)})
_FIELDS: Final = frozenset(
    {"id", "role", "content", "name", "tool_calls", "tool_call_id", "created_at", "metadata", "host"}
)


def read(items: Sequence[Item]) -> list[BaseMessage]:
    """The messages of log entries, as :func:`from_message` gives them.

    One that is damaged beyond reading is passed over, with a warning.
    """
    if len(items) < _MANY:
        return [message for item in items for message in _read(item)]
    with _uncollected():
        return [message for item in items for message in _read(item)]


def _read(item: Item) -> Sequence[BaseMessage]:
    made = _of_bytes(item.data)
    return (made,) if made is not None else [from_message(message) for _, message in readable([item])]


def _of_bytes(data: bytes) -> BaseMessage | None:
    if is_tagged(data):
        return None
    try:
        fields = from_json(data)
    except ValueError:
        return None
    return of_data(fields) if type(fields) is dict and fields.pop("v", None) == _VERSION else None


def of_data(fields: Any) -> BaseMessage | None:
    """The message of what ``Message.to_data`` gave; None, unless all is as Message would have it."""
    whole = (
        type(fields) is dict
        and fields.keys() <= _FIELDS
        and type(fields.get("role")) is type(fields.get("id", "")) is str
        and type(fields.get("tool_call_id")) in _TEXT_OR_NONE
        and type(fields.get("created_at")) in _TIME
        and type(fields.get("tool_calls", [])) is list
        and type(fields.get("metadata", {})) is dict
        and type(fields.get("host", {})) is dict
        and all(type(own) is dict for own in fields.get("host", {}).values())
    )
    return rebuilt(fields) if whole else None


# --- garbage

_lock = threading.Lock()
_readers = 0
_resumes = False


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from looking again and again at what is all kept; the last reader lets it go on."""
    global _readers, _resumes  # noqa: PLW0603 - one collector a process
    with _lock:
        if _readers == 0:
            _resumes = gc.isenabled()
            gc.disable()
        _readers += 1
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if _readers == 0 and _resumes:
                gc.enable()


def _begin_anew() -> None:
    """The readers of a parent do not go on in its child, and one of them may have held the lock."""
    global _lock, _readers  # noqa: PLW0603 - one collector a process
    _lock = threading.Lock()
    if _readers and _resumes:
        gc.enable()
    _readers = 0


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_begin_anew)
