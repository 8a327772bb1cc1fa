"""A log, and what is kept under the keys that it names, a page at a time from the old end to the new."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Store

__all__ = ["PAGE", "pages", "values_of"]

PAGE = 500


def pages(store: Store, namespace: Namespace, *, after: int = 0, size: int = PAGE) -> Iterator[list[Item]]:
    """Go through the log."""
    while items := store.scan(namespace, after=after, limit=size).items:
        yield items
        after = items[-1].seq


def values_of(
    store: Store, namespace: Namespace, keys_of: Callable[[Sequence[Item]], Sequence[str]]
) -> Iterator[tuple[str, bytes]]:
    """Go through the keys that ``keys_of`` finds in the log, and their values: each once, where it is named first."""
    seen: set[str] = set()
    for items in pages(store, namespace):
        keys = [key for key in keys_of(items) if key not in seen]
        seen.update(keys)
        found = store.get(namespace, keys)
        yield from ((key, found[key]) for key in keys if key in found)
