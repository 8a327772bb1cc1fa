"""The items of a working memory, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langmem_adapters import views
from langmem_adapters.codec import FORMAT, decode, encode, is_number, refuse_sealed_or_newer
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.protocols import Item
from langmem_adapters.warn_once import warn_of_damage


@dataclass(frozen=True)
class WorkingItem:
    """One item of a working memory. ``data`` is text or any plain data; times are Unix times in seconds."""

    id: str
    data: Any = field(repr=False)
    metadata: dict[str, Any] = field(repr=False)
    created_at: float
    updated_at: float

    def _repr_html_(self) -> str:
        return views.render_safely(self, lambda: views.items([self]))


class StoredItem(NamedTuple):
    """An item, and the entry of the log that holds it."""

    entry: Item
    item: WorkingItem


def require_data(data: Any) -> Any:
    """Return the data of an item. Raises ConfigurationError for None."""
    if data is None:
        raise ConfigurationError("None is no data: a change must return the new data, even if it changes it in place")
    return data


def metadata_dict(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Copy an item's metadata. Raises ConfigurationError for anything but a dictionary or None."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ConfigurationError(f"metadata is a dictionary, not {type(metadata).__name__}")
    return dict(metadata or {})


def write_item(item: WorkingItem) -> bytes:
    """Encode an item for the store."""
    return encode({"v": FORMAT, **item.__dict__})


def parse_item(data: bytes) -> WorkingItem:
    """Decode a stored item. Raises SerializationError if it is damaged."""
    with suppress(AttributeError, KeyError, TypeError):
        fields = decode(data)
        version = fields.pop("v")
        item = WorkingItem(**fields)
        has_valid_types = isinstance(item.id, str) and isinstance(item.metadata, dict)
        if version == FORMAT and has_valid_types and is_number(item.created_at) and is_number(item.updated_at):
            return item
    raise SerializationError("a stored item of a working memory has another form")


def read_item(entry: Item, memory_type: str) -> WorkingItem | None:
    """Decode a stored item; None, with a warning, if it is damaged, so that the others can still be read."""
    with suppress(SerializationError):
        return parse_item(entry.data)
    refuse_sealed_or_newer(entry.data, "a working memory")
    warn_of_damage(entry, f"a working memory of type {memory_type} holds a damaged item, which is left out")
    return None
