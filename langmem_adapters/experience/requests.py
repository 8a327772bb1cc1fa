"""Requests of experiences: the key under which each is kept, and the words by which similar ones are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langmem_adapters.codec import encode, refuse_sealed_or_newer
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Experience
from langmem_adapters.validation import check_text

_MAX_CHARS = 10_000  # characters of a request that are indexed and searched for


def key_of(req: Any, key: str | None) -> str:
    """The key of a request: its fingerprint, or the caller's own key."""
    if key is None:
        return fingerprint(req)
    check_text("a key of an experience", key)
    if "\0" in key:
        raise ConfigurationError("a key of an experience cannot have a NUL character in it")
    return key


def as_text(req: Any) -> str:
    """A request as text, for people and for models: strings as they are, and the content of messages.

    >>> as_text({"messages": [{"role": "user", "content": "Where is my bike?"}], "k": 3})
    'Where is my bike? 3'
    """
    return " ".join(part for part in _text_parts(req) if part)


def search_text(req: Any) -> str:
    """The text by which a request is found, and finds others: the beginning, if it is long."""
    return as_text(req)[:_MAX_CHARS]


def _text_parts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        values = [value["content"]] if "content" in value and "role" in value else value.values()
        for item in values:
            yield from _text_parts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _text_parts(item)
    elif value is not None:
        yield encode(value).decode()


def stored_search_text(data: bytes) -> str:
    """The text by which a stored experience is found; empty, if it is damaged."""
    try:
        return search_text(Experience.from_bytes(data).req)
    except SerializationError:
        refuse_sealed_or_newer(data, "an experience")
        return ""
