"""Read a log, and the values under the keys that it names, page by page from the oldest entry on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Store

__all__ = ["PAGE_SIZE", "pages", "values_of"]

PAGE_SIZE = 500


def pages(store: Store, namespace: Namespace, *, after: int = 0, size: int = PAGE_SIZE) -> Iterator[list[Item]]:
    """Yield the log's pages. One that is not full is the last."""
    while items := store.scan(namespace, after=after, limit=size).items:
        yield items
        if len(items) < size:
            return
        after = items[-1].seq


def values_of(
    store: Store, namespace: Namespace, keys_of: Callable[[Sequence[Item]], Sequence[str]]
) -> Iterator[tuple[str, bytes]]:
    """Yield the keys that ``keys_of`` finds in the log, with their values: each once, where it is first named."""
    seen: set[str] = set()
    for items in pages(store, namespace):
        keys = [key for key in keys_of(items) if key not in seen]
        seen.update(keys)
        values = store.get(namespace, keys)
        yield from ((key, values[key]) for key in keys if key in values)
