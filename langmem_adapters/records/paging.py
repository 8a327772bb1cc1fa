"""Read a log, and the values under the keys that it names, page by page from the oldest entry on.

A page is short if the one before was large in bytes: an entry may be a picture, and so many of them fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from langmem_adapters.flow import Flow, gather, is_flow, run, step
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Item, Store

PAGE_SIZE = 500
FIRST_PAGE_SIZE = 20  # before it is known how large they are
_PAGE_BYTES = 4_000_000
_FIRST_TOGETHER = 4  # namespaces that are read side by side, before it is known how much is in them
MAX_TOGETHER = 16  # as those that come may all be large, though none before them was

N = TypeVar("N")
T = TypeVar("T")


class LogReader:
    """Reads a log page by page, within a flow."""

    def __init__(self, store: Store, namespace: Namespace, *, after: int = 0, size: int = FIRST_PAGE_SIZE) -> None:
        self._store = store
        self._namespace = namespace
        self._after = after
        self._size = size  # of the next page; 0 at the end

    def next_page(self) -> Flow[list[Item]]:
        """The next page; empty at the end."""
        if not self._size:
            return []
        page = yield from step(self._store.scan, self._namespace, after=self._after, limit=self._size)
        return self.note(page.items)

    def note(self, items: list[Item]) -> list[Item]:
        """Note what has been read; returns it."""
        if len(items) < self._size:
            self._size = 0
        else:
            self._after = items[-1].seq
            self._size = _next_size(len(items), sum(len(item.data) for item in items))
        return items


def pages(
    store: Store, namespace: Namespace, *, after: int = 0, items: list[Item] | None = None
) -> Iterator[list[Item]]:
    """Yield the log's pages; ``items`` is the first one, if it has been read."""
    log = LogReader(store, namespace, after=after)
    items = run(log.next_page()) if items is None else log.note(items)
    while items:
        yield items
        items = run(log.next_page())


def side_by_side(store: Store, read: Callable[[N], Flow[tuple[T, int]]], names: Iterable[N]) -> Iterator[tuple[N, T]]:
    """Yield each name with what a flow reads of it from a store, which also returns how many bytes it has read.

    Several are read together: at most twice as many as before, and fewer if those had many bytes; but one by one from a
    store without round trips, where it would only take memory.
    """
    most = MAX_TOGETHER if is_flow(store.scan) else 1
    rest, count = iter(names), min(_FIRST_TOGETHER, most)
    while together := list(islice(rest, count)):
        found = run(gather(map(read, together)))
        count = min(most, 2 * count, _next_size(count, sum(size for _, size in found)))
        yield from zip(together, (result for result, _ in found), strict=True)


def values_of(
    store: Store,
    namespace: Namespace,
    keys_of: Callable[[Sequence[Item]], Sequence[str]],
    *,
    items: list[Item] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yield the keys that ``keys_of`` finds in the log, with their values: each once, where it is first named.

    ``items`` as in :func:`pages`.
    """
    seen: set[str] = set()

    def new_keys() -> Iterator[str]:
        for page in pages(store, namespace, items=items):
            keys = [key for key in keys_of(page) if key not in seen]
            seen.update(keys)
            yield from keys

    return values_under(lambda keys: store.get(namespace, keys), new_keys())


def values_under(get: Callable[[Sequence[str]], dict[str, bytes]], keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield those of these keys that have a value, with it, reading some at a time."""
    rest, size = iter(keys), FIRST_PAGE_SIZE
    while part := list(islice(rest, size)):
        values = get(part)
        yield from ((key, values[key]) for key in part if key in values)
        size = _next_size(len(part), sum(map(len, values.values())))


def _next_size(count: int, byte_count: int) -> int:
    """How many to read next, if so many had so many bytes."""
    return min(PAGE_SIZE, max(1, count * _PAGE_BYTES // max(1, byte_count)))
