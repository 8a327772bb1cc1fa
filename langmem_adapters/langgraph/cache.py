"""ExperienceNodeCache: a cache for the results of a graph's nodes, in SQLite or in Redis without modules."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from langchain_core.messages import AIMessage
from langgraph.cache.base import BaseCache, FullKey, Namespace
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import TypeAdapter
from typing_extensions import TypeVar

from langmem_adapters import views
from langmem_adapters.annotations import annotations_of
from langmem_adapters.codec import FORMAT, decode, encode
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.functions.equality import first_changed_type
from langmem_adapters.experience.functions.values import StableSchema
from langmem_adapters.experience.savings import Prices, Saved, check_prices, cost
from langmem_adapters.experience.switches import may_read, may_write
from langmem_adapters.flow import Flow, arun, gather, run, step
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Metric
from langmem_adapters.outages import Outages
from langmem_adapters.protocols import Store
from langmem_adapters.sharing import Shared
from langmem_adapters.stores import cache_store
from langmem_adapters.validation import check_on_error, check_sync_functions, check_text, checked_list
from langmem_adapters.warn_once import WarnOnce

ValueT = TypeVar("ValueT", default=Any)

_ENTRY = "entry"
_FORMATS = {"null", "bytes", "bytearray", "msgpack"}  # what LangGraph writes; its "json" and "pickle" are never read
_WRITES_LABEL = "__pregel_ns_writes"  # the first label of what graphs cache
# If LangGraph finds no name for a function; the node's own name follows.
_UNNAMED_LABELS = (_WRITES_LABEL, "__dynamic__")
_log = logging.getLogger("langmem_adapters")


class ExperienceNodeCache(Shared, BaseCache[ValueT]):
    """A node cache for ``compile(cache=…)`` with ``CachePolicy`` (implements ``langgraph.cache.base.BaseCache``).

    Reading builds nothing but LangGraph's own safe types (messages, documents, dates and the like) and the classes
    given as ``types``. A value that would not come back as it was is not stored: the node runs each time. Tuples come
    back as lists, as from LangGraph's checkpointers. An entry that cannot be read counts as a miss, and so does one
    with a class that has changed its fields or its module since, or is no longer given. Messages come back with their
    ids, as from LangGraph's own caches: a thread that gets one twice keeps it once. If a node only asks a model, cache
    the model instead.

    LangGraph tells a cache the name of a node and of its function; for an async function, a partial, an object, a chain
    or a subgraph only the node's name; and never what they hold, such as a prompt. So give each graph a ``tag`` of its
    own, and a new one when its nodes should run anew.

    Args:
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        tenant: The tenant whose entries these are; other tenants are never served them.
        tag: Keeps these entries apart from those of other tags: one for each graph.
        types: Classes of your own (pydantic models, dataclasses, enums) that nodes return.
        serde: A serializer of your own instead, which then has to allow ``types`` itself.
        prices: The price of a million input and output tokens, by model name, for :meth:`stats`.
        on_error: What an outage of the store does to a run: "degrade" runs the node, is logged once for each cause
            and counted in :meth:`stats`; "raise" raises.
        clock: Gives Unix seconds.

    >>> from langmem_adapters.langgraph import ExperienceNodeCache
    >>> cache = ExperienceNodeCache("memory:")
    >>> cache.set({(("node",), "key"): ({"answer": 42}, 60)})
    >>> cache.get([(("node",), "key")])
    {(('node',), 'key'): {'answer': 42}}
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: Store | None = None,
        tenant: str = "",
        tag: str = "",
        types: Iterable[type] = (),
        serde: SerializerProtocol | None = None,
        prices: Prices | None = None,
        on_error: Literal["degrade", "raise"] = "degrade",
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_text("tenant", tenant)
        check_text("tag", tag)
        check_on_error(on_error)
        check_sync_functions(clock=clock)
        if not isinstance(serde, SerializerProtocol | None):
            raise ConfigurationError(f"serde is a serializer of LangGraph, not {type(serde).__name__}")
        if getattr(serde, "pickle_fallback", False):
            raise ConfigurationError("a serializer that falls back to pickle would run code from the store")
        check_prices(prices or {})
        classes = checked_list(types, "types is a list of classes", type)
        super().__init__(serde=serde or JsonPlusSerializer(pickle_fallback=False, allowed_msgpack_modules=classes))
        self._types = {f"{cls.__module__}:{cls.__name__}": cls for cls in classes}
        self._store = cache_store(url, store)
        self._tag = tag
        self._namespace = ("nodes", tenant, "", tag) if tag else ("nodes", tenant)
        self._prices = prices or {}
        self._on_error = on_error
        self._clock = clock
        self._counts = Counts()
        self._outages = Outages("the graph goes on without its cache", self._counts)
        self._warn = WarnOnce()

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """The stored values of these keys."""
        return run(self._read_values(keys))

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, ValueT]:
        """:meth:`get`, without blocking the event loop."""
        return await arun(self._read_values(keys))

    def set(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """Store values, each with its ttl in seconds; None: for ever."""
        run(self._write_values(pairs))

    async def aset(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> None:
        """:meth:`set`, without blocking the event loop."""
        await arun(self._write_values(pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Delete the entries of these namespaces; default: all of the tag or, without a tag, all of the tenant."""
        run(self._clear(namespaces))

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(self._clear(namespaces))

    def stats(self) -> dict[str, Any]:
        """Counts since construction: hits, misses, stored and unreadable entries, refused values, and errors.

        Also what the hits have saved, by the usage in models' messages among the values: saved_tokens, and
        saved_money by the ``prices``. The time is unknown, as a cache is not told how long a node took.
        """
        names = ("hits", "misses", "stored", "unreadable", "refused", "errors")
        counts: dict[str, Any] = {name: self._counts[name] for name in names}
        saved = Saved.of(self._counts)
        return views.Figures(counts | {"saved_tokens": saved.tokens, "saved_money": saved.money}, title="Node cache")

    def __repr__(self) -> str:
        return f"ExperienceNodeCache({self._store!r})"

    # --- entries: each has a namespace of the store to itself, as a store expires whole namespaces

    def _read_values(self, keys: Sequence[FullKey]) -> Flow[dict[FullKey, ValueT]]:
        if not may_read():
            return {}
        unique_keys = list(dict.fromkeys((tuple(namespace), key) for namespace, key in keys))
        entries = yield from gather(self._read_value(namespace, key) for namespace, key in unique_keys)
        return {key: entry[0] for key, entry in zip(unique_keys, entries, strict=True) if entry is not None}

    def _read_value(self, namespace: Namespace, key: str) -> Flow[tuple[ValueT] | None]:
        try:
            data = (yield from step(self._store.get, (*self._namespace, *namespace, key), [_ENTRY])).get(_ENTRY)
        except LangmemError as error:
            self._outages.handle(error, self._on_error)
            data = None
        entry = None if data is None else self._read_entry(data, namespace)
        self._counts.add("misses" if entry is None else "hits")
        if entry is not None:
            sum((cost(metric, self._prices) for metric in _model_usage(entry[0])), Saved()).add_to(self._counts)
        return entry

    def _read_entry(self, data: bytes, namespace: Namespace) -> tuple[ValueT] | None:
        """The value of an entry, in a tuple as it may be None; None for a miss."""
        try:
            fields = decode(data)
            kind, expires_at = fields["kind"], fields["expires_at"]
            if expires_at is not None and expires_at <= self._clock():
                return None
            is_readable = fields["v"] == FORMAT and kind in _FORMATS and type(fields["data"]) is bytes
            if is_readable and all(_schema(self._types[name]) == schema for name, schema in fields["types"].items()):
                value = self.serde.loads_typed((kind, fields["data"]))
                if namespace[:1] != (_WRITES_LABEL,) or _are_writes(value):
                    return (value,)
        except Exception as error:  # noqa: BLE001 - whatever damaged bytes do to a serializer, it is a miss
            _log.debug("an entry of the node cache cannot be read: %s", type(error).__name__)
        self._counts.add("unreadable")
        return None

    def _write_values(self, pairs: Mapping[FullKey, tuple[ValueT, int | None]]) -> Flow[None]:
        if may_write():
            yield from gather(self._write_value(*key, *pair) for key, pair in pairs.items())

    def _write_value(self, namespace: Namespace, key: str, value: ValueT, ttl: int | None) -> Flow[None]:
        entry_namespace = (*self._namespace, *namespace, key)
        try:
            entry = self._to_entry(namespace, value, ttl) if ttl is None or ttl > 0 else None
        except SerializationError as error:
            entry = None
            self._counts.add("refused")
            self._warn(f"a node's answer is not cached: {error}")
        try:
            if entry is None:  # the result stored before is no longer the node's
                yield from step(self._store.clear, entry_namespace)
            else:
                yield from step(self._store.write, entry_namespace, put={_ENTRY: entry}, ttl=ttl)
                self._counts.add("stored")
        except LangmemError as error:
            self._outages.handle(error, self._on_error)

    def _to_entry(self, namespace: Namespace, value: ValueT, ttl: int | None) -> bytes:
        if tuple(namespace) == _UNNAMED_LABELS:  # all such tasks would share one namespace
            raise SerializationError("LangGraph finds no name for this task's function; define it with def")
        if tuple(namespace[:2]) == _UNNAMED_LABELS and not self._tag:
            self._warn(
                f"LangGraph identifies the node {namespace[2]!r} by its name alone: graphs on one store that have a"
                " node of this name share its answers, unless each has ExperienceNodeCache(tag=…)"
            )
        try:
            kind, data = self.serde.dumps_typed(value)
            # tuples_as_lists, since msgpack has no tuples
            changed_part = first_changed_type(value, self.serde.loads_typed((kind, data)), tuples_as_lists=True)
        except Exception as error:
            raise SerializationError(f"it holds a value that cannot be serialized ({type(error).__name__})") from error
        if kind not in _FORMATS:
            raise SerializationError(f"its serializer writes the format {kind}, which the cache does not read")
        if changed_part:
            raise SerializationError(f"{changed_part} would not come back as it was; give the cache types=[…]")
        expires_at = None if ttl is None else self._clock() + ttl
        types = {name: _schema(cls) for name, cls in self._types.items() if cls.__name__.encode() in data}
        entry = {"v": FORMAT, "kind": kind, "data": bytes(data), "expires_at": expires_at, "types": types}
        return encode(entry)

    def _clear(self, namespaces: Sequence[Namespace] | None) -> Flow[None]:
        entry_namespaces = yield from step(self._entry_namespaces, namespaces)
        yield from gather(step(self._store.clear, namespace) for namespace in entry_namespaces)

    def _entry_namespaces(self, namespaces: Sequence[Namespace] | None) -> list[Namespace]:
        if namespaces is None:
            return list(self._store.namespaces(self._namespace))
        parents = [(*self._namespace, *namespace) for namespace in namespaces]
        return [row.namespace for parent in parents for row in self._store.recent(parent)]


@lru_cache
def _schema(cls: type) -> str:
    """Fingerprint a class's fields: LangGraph would fill a class whose fields have changed, unchecked."""
    try:
        return fingerprint(TypeAdapter(cls).json_schema(schema_generator=StableSchema))
    except Exception:  # noqa: BLE001 - not every class has a schema
        return fingerprint([list(annotations_of(base)) for base in cls.__mro__])


def _model_usage(value: Any) -> Iterator[Metric]:
    """The usage that is told by the models' messages in a value."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, AIMessage):
            usage: Any = item.usage_metadata
            if usage and usage.get("total_cost") != 0:  # 0 marks a hit of a LangChain cache, perhaps without counts
                name = item.response_metadata.get("model_name") or item.response_metadata.get("model") or ""
                tokens_in, tokens_out = usage.get("input_tokens"), usage.get("output_tokens")
                if isinstance(tokens_in, int) and isinstance(tokens_out, int):
                    yield Metric(model=str(name), input_tokens=tokens_in, output_tokens=tokens_out)
        elif isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, list | tuple | deque):
            pending += item


def _are_writes(value: Any) -> bool:
    """Whether a graph can use this: pairs of a channel and what is written to it."""
    if not isinstance(value, list | tuple | deque):
        return False
    return all(isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in value)  # noqa: PLR2004 - a pair
