"""LangGraph's own setting for how a store finds items: ``{"embed": …, "dims": …, "fields": […]}``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.store.base import IndexConfig, ensure_embeddings

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.indexes import index_of, vectors_of
from langmem_adapters.protocols import Index, Store
from langmem_adapters.validation import check_settings, checked_list, has_methods_of


def index_and_fields(
    index: Index | IndexConfig | None, fields: Sequence[str] | None, url: str | None, store: Store | None
) -> tuple[Index, list[str] | None]:
    """The index for items, and the paths of the fields by which it finds them; None: all texts and numbers.

    Raises ConfigurationError for anything but an index or such a dictionary.
    """
    if isinstance(index, Mapping):
        if fields is not None and "fields" in index:
            raise ConfigurationError("give the fields of a store once, in its index= or as its fields=")
        fields = index.get("fields") or None if fields is None else fields  # none are all, as for LangGraph's stores
        resolved: Index | None = vectors_of(url, store, _embed(index))
    elif index is None or has_methods_of(Index, index):
        resolved = index
    else:
        raise ConfigurationError(
            'the index of a LongTermStore is what open_vectors(url, embedder) gives, or a dictionary with "embed", not'
            f" {type(index).__name__}"
        )
    paths = None if fields is None else checked_list(fields, "fields are a list of paths", str)
    return (index_of(url, store) if resolved is None else resolved), paths


def _embed(config: Mapping[str, Any]) -> Any:
    """The embedding model of such a dictionary; ``dims`` is not needed, as vectors show their dimension."""
    check_settings("the index of a LongTermStore", config, IndexConfig.__optional_keys__)
    embed = config.get("embed")
    if embed is None:
        raise ConfigurationError('the index of a LongTermStore needs an embedding model: {"embed": model}')
    return ensure_embeddings(embed) if isinstance(embed, str) else embed
