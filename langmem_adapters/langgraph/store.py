"""LongTermStore: the memory that LangGraph's threads share, in SQLite or in Redis without modules."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import lru_cache, partial
from itertools import chain, compress
from typing import Any, Literal, NamedTuple

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
)

from langmem_adapters.clocks import unix_time
from langmem_adapters.codec import is_number
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError, StoreError
from langmem_adapters.flow import Flow, arun, gather, run, step
from langmem_adapters.keys import Namespace, fingerprint
from langmem_adapters.langgraph.index_config import index_and_fields
from langmem_adapters.langgraph.items import NamespaceItems
from langmem_adapters.langgraph.matching import checked_operations, common_prefix, item_filter, matches_conditions
from langmem_adapters.langgraph.stored_items import StoredItem
from langmem_adapters.protocols import Index, Store
from langmem_adapters.records.namespace_tree import NamespaceTree
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import resolve_store
from langmem_adapters.validation import check_settings, check_sync_functions, check_text, checked_list
from langmem_adapters.warn_once import WarnOnce

_MAX_OPEN_NAMESPACES = 1024  # namespaces that are kept ready, so that one thread at a time updates the index of each
_SECONDS_PER_MINUTE = 60.0
_warn = WarnOnce()


class _Hit(NamedTuple):
    score: float | None
    namespace: Namespace
    key: str
    item: StoredItem


class LongTermStore(Shared, BaseStore):
    """Items by namespace and key, found by words (implements ``langgraph.store.base.BaseStore``).

    It answers as ``InMemoryStore`` does, with these differences: a search without a query gives the last updated
    items first; a ``query`` finds only items that share a word with it or, in other languages than English, a part of
    a word; by meaning, an item has one vector of all its fields, not one of each; a namespace is listed as long as it
    has items; ``created_at`` stays when an item is replaced; models, messages and dataclasses in a value come back as
    dictionaries, and members of a ``StrEnum`` or ``IntEnum`` as their values.

    All changes of a batch in one namespace are made together or not at all; the namespaces of a batch are written
    one after the other. Of several changes of one key in a batch the last one counts, and a batch reads what was
    there before it. A search or a listing reads nothing outside of its prefix.

    A ttl (minutes, as everywhere in LangGraph) restarts with each write of the item and, unless
    ``refresh_on_read`` or ``refresh_ttl`` is False, with a read once a tenth of it has passed. An expired item is never
    seen; it is removed by the next search or listing that meets it, by :meth:`sweep_ttl`, or together with its
    namespace.

    The store is the truth. Only a ``query`` needs the index, so everything else goes on while an embedder or a vector
    server is unavailable; what was written meanwhile is indexed by the next query.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        index: Finds items by text. By their meaning: LangGraph's own ``{"embed": model, "dims": …, "fields": […]}``
            (vectors are stored beside the index of words), or :func:`~langmem_adapters.open_vectors`, for a place of
            its own. Default: the lexical index of the URL, or one in memory.
        tenant: The tenant whose items these are; other tenants never see them.
        fields: Paths of the fields by which items are found, as ``["title", "messages[*].content"]``; default: all
            texts and numbers. ``put(…, index=…)`` overrides them for an item. If they change, all items are indexed
            anew; two stores with different fields that share items and an index do this in turn.
        ttl: ``default_ttl`` (minutes) and ``refresh_on_read``, as for LangGraph's own stores; its other settings have
            no effect, as expired items are never seen.
        clock: Gives Unix seconds.
        new_id: Gives ids that never repeat.

    >>> from langmem_adapters.langgraph import LongTermStore
    >>> store = LongTermStore("memory:")
    >>> store.put(("memories", "ada"), "bike", {"text": "My bike is in the shed."})
    >>> [item.key for item in store.search(("memories", "ada"), query="Where is the bike?")]
    ['bike']
    """

    supports_ttl = True

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        index: Index | IndexConfig | None = None,
        tenant: str = "",
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
        clock: Callable[[], float] = unix_time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        check_text("tenant", tenant)
        check_sync_functions(clock=clock, new_id=new_id)
        _check_ttl(ttl)
        self.ttl_config = ttl
        self._store = resolve_store(url, store)
        self._index, self._fields = index_and_fields(index, fields, url, store)
        self._namespace = ("langgraph", tenant, "items")
        self._clock = clock
        self._new_id = new_id
        self._tree = NamespaceTree(self._store, ("langgraph", tenant, "tree"), new_id=new_id)
        self._items = lru_cache(_MAX_OPEN_NAMESPACES)(self._make_items)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Answer operations in their order."""
        return run(step(self._answer, checked_operations(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """:meth:`batch`, without blocking the event loop."""
        return await arun(self._answer_flow(checked_operations(ops)))

    def _answer_flow(self, ops: Sequence[Op]) -> Flow[list[Result]]:
        embedder = getattr(self._index, "embedder", None)
        if isinstance(embedder, Embedder) and embedder.gains_ahead(1):
            for query in {op.query for op in ops if isinstance(op, SearchOp) and isinstance(op.query, str)}:
                yield from embedder.ahead_flow(query)
        return (yield from step(self._answer, ops))

    def sweep_ttl(self) -> int:
        """Remove expired items in all namespaces; returns how many were removed."""
        return run(step(self._sweep_all))

    async def asweep_ttl(self) -> int:
        """:meth:`sweep_ttl`, without blocking the event loop."""
        return await arun(step(self._sweep_all))

    def __repr__(self) -> str:
        return f"LongTermStore({self._store!r})"

    def _make_items(self, namespace: Namespace) -> NamespaceItems:
        return NamespaceItems(
            self._store,
            (*self._namespace, *namespace),
            index=self._index,
            text_of=self._item_text,
            register=partial(self._tree.add, namespace),
            confirm_registered=partial(self._ensure_registered, namespace),
            clock=self._clock,
            new_id=self._new_id,
            form="" if self._fields is None else fingerprint(*self._fields)[:16],
        )

    def _ensure_registered(self, namespace: Namespace) -> None:
        """Add a namespace again if it was removed while its first item was written, as when a user is deleted."""
        if not self._tree.has(namespace):
            self._tree.add(namespace)
            self._remove_empty([namespace])  # if the item was deleted, too

    def _item_text(self, item: StoredItem) -> str:
        paths = item.fields if isinstance(item.fields, list) else self._fields
        return "\n".join(_leaves(item.value) if paths is None else _texts_at(item.value, paths))

    def _answer(self, ops: Sequence[Op]) -> list[Result]:
        changes_by_namespace = self._changes([op for op in ops if isinstance(op, PutOp)])
        items = self._get([op for op in ops if isinstance(op, GetOp)])
        results = [self._result(op, items) for op in ops]
        for namespace, changes in changes_by_namespace.items():
            self._items(namespace).put(changes)
        return results

    def _result(self, op: Op, items: Mapping[tuple[Namespace, str], Item]) -> Result:
        if isinstance(op, GetOp):
            return items.get((tuple(op.namespace), op.key))
        if isinstance(op, SearchOp):
            return self._search(op)
        return self._list(op) if isinstance(op, ListNamespacesOp) else None

    # --- reading

    def _get(self, ops: Sequence[GetOp]) -> dict[tuple[Namespace, str], Item]:
        """The items of all gets, read with one look at each namespace, all of them together."""
        refresh_by_namespace: dict[Namespace, dict[str, bool]] = {}
        for op in ops:
            refresh_by_key = refresh_by_namespace.setdefault(tuple(op.namespace), {})
            refresh_by_key[op.key] = op.refresh_ttl or refresh_by_key.get(op.key, False)
        items: dict[tuple[Namespace, str], Item] = {}
        reads = run(gather(step(self._items(name).get, [*keys]) for name, keys in refresh_by_namespace.items()))
        for (namespace, refresh_by_key), existing in zip(refresh_by_namespace.items(), reads, strict=True):
            with _best_effort_write():
                self._items(namespace).refresh({key: item for key, item in existing.items() if refresh_by_key[key]})
            items |= {(namespace, key): _to_host_item(Item, namespace, key, item) for key, item in existing.items()}
        return items

    def _search(self, op: SearchOp) -> list[SearchItem]:
        stop = op.offset + op.limit
        is_match = item_filter(op.filter)
        prefix = tuple(op.namespace_prefix)
        search = partial(self._found, op.query) if op.query else self._newest
        find = partial(search, count=stop, is_match=is_match)
        found = run(gather([self._found_below(prefix, find), *([find(prefix)] if prefix else [])]))
        hits = [*chain.from_iterable(found)]
        if op.query:  # equal scores of one namespace keep the order in which it finds them, whatever the limit
            hits.sort(key=lambda hit: (-(hit.score or 0.0), hit.namespace))
        else:
            hits.sort(key=lambda hit: (-hit.item.updated_at, hit.namespace, hit.key))
        page = hits[op.offset : stop]
        if op.refresh_ttl:
            self._refresh(page)
        return [_to_host_item(SearchItem, hit.namespace, hit.key, hit.item, score=hit.score) for hit in page]

    def _found_below(self, prefix: Namespace, find: Callable[[Namespace], Flow[list[_Hit]]]) -> Flow[list[_Hit]]:
        namespaces = yield from self._tree.below(prefix)
        return [*chain.from_iterable((yield from gather(map(find, namespaces))))]

    def _found(self, query: str, namespace: Namespace, count: int, is_match: Callable[[Any], bool]) -> Flow[list[_Hit]]:
        matches = yield from step(self._items(namespace).find, query, count, lambda item: is_match(item.value))
        return [_Hit(score, namespace, key, item) for key, score, item in matches]

    def _newest(self, namespace: Namespace, count: int, is_match: Callable[[Any], bool]) -> Flow[list[_Hit]]:
        items = yield from step(self._items(namespace).newest, count, lambda item: is_match(item.value))
        if items is None:
            with _best_effort_write():
                self._tree.remove(namespace, only_if=self._items(namespace).close)
        return [_Hit(None, namespace, key, item) for key, item in (items or {}).items()]

    def _refresh(self, hits: Iterable[_Hit]) -> None:
        items_by_namespace: dict[Namespace, dict[str, StoredItem]] = {}
        for hit in hits:
            items_by_namespace.setdefault(hit.namespace, {})[hit.key] = hit.item
        for namespace, items in items_by_namespace.items():
            with _best_effort_write():
                self._items(namespace).refresh(items)

    def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        existing = chain([prefix] if (prefix := common_prefix(op)) else [], run(self._tree.below(prefix)))
        matching = [each for each in existing if matches_conditions(each, op)]
        namespaces = {namespace[: op.max_depth] for namespace in self._remove_empty(matching)}
        return sorted(namespaces)[op.offset : op.offset + op.limit]

    def _remove_empty(self, namespaces: Sequence[Namespace]) -> list[Namespace]:
        """Remove those without items from the tree; returns the others."""
        are_empty = run(gather(step(self._items(namespace).is_empty) for namespace in namespaces))
        for namespace in compress(namespaces, are_empty):
            with _best_effort_write():
                self._tree.remove(namespace, only_if=self._items(namespace).close)
        return [namespace for namespace, is_empty in zip(namespaces, are_empty, strict=True) if not is_empty]

    def _sweep_all(self) -> int:
        namespaces = run(self._tree.below(()))
        removed = sum(run(gather(step(self._items(namespace).sweep) for namespace in namespaces)))
        self._remove_empty(namespaces)
        return removed

    # --- writing

    def _changes(self, ops: Iterable[PutOp]) -> dict[Namespace, dict[str, StoredItem | None]]:
        """The changes that take effect, by namespace; all are checked before anything is written."""
        now = self._clock()
        changes: dict[Namespace, dict[str, StoredItem | None]] = {}
        for op in ops:
            changes.setdefault(tuple(op.namespace), {})[op.key] = None if op.value is None else _stored_item(op, now)
        for items in changes.values():
            for item in items.values():
                if item is not None:
                    item.to_bytes()
        return changes


@contextmanager
def _best_effort_write() -> Iterator[None]:
    """A write that a read entails does not fail the read: full servers and replicas still answer reads."""
    try:
        yield
    except StoreError as error:
        _warn("items were read, but the update after the read could not be written", error)


def _stored_item(op: PutOp, now: float) -> StoredItem:
    ttl = _seconds(op.ttl)
    if not isinstance(op.value, Mapping):
        raise ConfigurationError(f"an item's value is a dictionary, not {type(op.value).__name__}")
    fields: list[str] | Literal[False] | None = op.index
    if fields is not None and fields is not False:
        fields = checked_list(fields, "the index of an item is a list of paths, or False", str)
    return StoredItem(dict(op.value), now, now, ttl, None if ttl is None else now + ttl, fields)


def _check_ttl(ttl: TTLConfig | None) -> None:
    if not (ttl is None or isinstance(ttl, Mapping)):
        raise ConfigurationError(f'the ttl of a store is a dictionary: {{"default_ttl": minutes}}, not {ttl!r:.50}')
    check_settings("the ttl of a store", ttl or {}, TTLConfig.__optional_keys__)
    _seconds((ttl or {}).get("default_ttl"))


def _seconds(minutes: float | None) -> float | None:
    if minutes is None:
        return None
    if not (is_number(minutes) and minutes > 0 and is_number(seconds := minutes * _SECONDS_PER_MINUTE)):
        raise ConfigurationError(f"a ttl is a number of minutes above 0, not {minutes!r:.50}")
    return seconds


def _to_host_item(kind: Callable[..., Any], namespace: Namespace, key: str, item: StoredItem, **more: Any) -> Any:
    return kind(
        namespace=namespace,
        key=key,
        value=item.value,
        created_at=datetime.fromtimestamp(item.created_at, tz=timezone.utc),
        updated_at=datetime.fromtimestamp(item.updated_at, tz=timezone.utc),
        **more,
    )


def _texts_at(value: dict[str, Any], paths: Iterable[str]) -> list[str]:
    data = _as_json(value)
    return [text for path in paths for text in (_leaves(value) if path == "$" else get_text_at_path(data, path))]


def _as_json(value: Any) -> Any:
    """A value in types of JSON, which is what LangGraph makes of an object or a list at the end of a path."""
    if isinstance(value, Mapping):
        return {str(name): _as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_as_json(part) for part in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers in a value, at any depth; names of fields are not among them."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
