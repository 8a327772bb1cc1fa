"""arshai's memory managers on a store of this library: the same names and inputs, without the losses.

Inputs are read by attribute (``conversation_id``, ``memory_type``, ``data``, ``metadata``, ``limit``), so arshai's
own ``IMemoryInput`` works, and so does any object like it. arshai itself is never imported.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, Field
from typing_extensions import Self

from langmem_adapters.codec import encode
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.protocols import Store
from langmem_adapters.stores import resolve_store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.validation import check_count
from langmem_adapters.working import TWELVE_HOURS, MemoryType, WorkingItem, WorkingMemory

__all__ = ["InMemoryManager", "MemoryText", "RedisWorkingMemoryManager"]

_DEFAULT_URL = "redis://localhost:6379/1"  # arshai's own
_DEFAULT_LIMIT = 5  # arshai's own
_DEFAULT_KEEP = 100
_SHORT_TERM_TYPE = "SHORT_TERM_MEMORY"
_MEMORY_TYPES: dict[str, MemoryType] = {
    _SHORT_TERM_TYPE: "SHORT_TERM",
    "LONG_TERM_MEMORY": "LONG_TERM",
    "WORKING_MEMORY": "WORKING",
}
_ARSHAI_MODULE = "arshai.core.interfaces.imemorymanager"
_log = logging.getLogger("langmem_adapters")


class MemoryText(BaseModel):
    """What is retrieved if arshai's own ``IWorkingMemory`` is not loaded: a class of the same shape."""

    working_memory: str = Field(repr=False)

    def to_dict(self) -> dict[str, str]:
        """The text, under its name."""
        return {"working_memory": self.working_memory}

    @classmethod
    def from_dict(cls, data: dict[str, str]) -> Self:
        """Read what :meth:`to_dict` gave."""
        return cls(working_memory=data["working_memory"])


class _Input(NamedTuple):
    conversation_id: str
    memory_type: MemoryType
    key: str
    texts: list[str]
    metadata: dict[str, Any] | None
    limit: int | None


def _parse_input(source: Any, operation: str = "") -> _Input:
    conversation = getattr(source, "conversation_id", None)
    kind = getattr(source, "memory_type", None) or _SHORT_TERM_TYPE
    name = str(getattr(kind, "value", kind))  # how an enum is formatted differs between versions of Python
    if name not in _MEMORY_TYPES:
        raise ConfigurationError(f"memory_type is {', '.join(_MEMORY_TYPES)}, not {name!r:.50}")
    data = getattr(source, "data", None) or ()
    texts = [getattr(entry, "working_memory", None) for entry in data] if isinstance(data, list | tuple) else [None]
    if operation and not texts:
        raise ConfigurationError(f"No data provided to {operation}")  # arshai's words
    if not all(isinstance(text, str) for text in texts):
        raise ConfigurationError("data is a list of objects with a text as working_memory")
    return _Input(
        cast("str", conversation),  # WorkingMemory refuses anything but a text
        _MEMORY_TYPES[name],
        f"memory:{name}:{conversation}",
        cast("list[str]", texts),
        getattr(source, "metadata", None),
        getattr(source, "limit", _DEFAULT_LIMIT),
    )


def _to_arshai(item: WorkingItem) -> Any:
    """The item in arshai's own class, if arshai is loaded: its models accept no other in their fields."""
    text = item.data if isinstance(item.data, str) else encode(item.data).decode()
    text_class = getattr(sys.modules.get(_ARSHAI_MODULE), "IWorkingMemory", MemoryText)
    return text_class(working_memory=text)


class _Manager:
    """The four methods of arshai's ``IMemoryManager``, each with an async twin."""

    def __init__(self, store: Store, ttl: float | None, clock: Callable[[], float], keep: int = _DEFAULT_KEEP) -> None:
        check_count("keep", keep)
        self._memory = WorkingMemory(store, ttl=ttl, clock=clock)
        self.ttl = ttl
        self._keep = keep

    def store(self, input: Any) -> str:  # noqa: A002 - arshai's name
        """Keep every text of ``input.data``; returns the key that arshai would use. ValueError without data."""
        return run(self._store(input))

    async def astore(self, input: Any) -> str:  # noqa: A002
        """:meth:`store`, without blocking the event loop."""
        return await arun(self._store(input))

    def retrieve(self, input: Any) -> list[Any]:  # noqa: A002
        """The newest ``input.limit`` texts (5; None: all), newest first, so that arshai's own answer is the first."""
        return run(self._retrieve(input))

    async def aretrieve(self, input: Any) -> list[Any]:  # noqa: A002
        """:meth:`retrieve`, without blocking the event loop."""
        return await arun(self._retrieve(input))

    def update(self, input: Any) -> None:  # noqa: A002
        """Replace the newest text by the first of ``input.data``, and append the others.

        Metadata and time of storing stay. If there is no text yet, nothing changes. ValueError without data.
        """
        run(self._update(input))

    async def aupdate(self, input: Any) -> None:  # noqa: A002
        """:meth:`update`, without blocking the event loop."""
        await arun(self._update(input))

    def delete(self, input: Any) -> None:  # noqa: A002
        """Delete all texts of this conversation and memory type."""
        request = _parse_input(input)
        self._memory.delete(request.conversation_id, memory_type=request.memory_type)

    async def adelete(self, input: Any) -> None:  # noqa: A002
        """:meth:`delete`, without blocking the event loop."""
        request = _parse_input(input)
        await self._memory.adelete(request.conversation_id, memory_type=request.memory_type)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._memory!r})"

    # --- flows

    def _store(self, source: Any) -> Flow[str]:
        request = _parse_input(source, operation="store")
        newest, keep = request.texts[-self._keep :], self._keep
        yield from self._memory.store_flow(
            request.conversation_id, newest, request.memory_type, request.metadata, keep=keep
        )
        return request.key

    def _retrieve(self, source: Any) -> Flow[list[Any]]:
        request = _parse_input(source)
        items = yield from self._memory.retrieve_flow(request.conversation_id, request.memory_type, request.limit)
        return [_to_arshai(item) for item in reversed(items)]

    def _update(self, source: Any) -> Flow[None]:
        request = _parse_input(source, operation="update")
        conversation_id, memory_type = request.conversation_id, request.memory_type
        newest = yield from self._memory.retrieve_flow(conversation_id, memory_type, 1)
        if not newest:
            _log.warning("there is no memory of type %s to update in this conversation", memory_type)
            return
        text, *following = request.texts
        keep, item_id = self._keep, newest[0].id
        yield from self._memory.update_flow(
            conversation_id, text, memory_type, item_id, None, followed_by=following[-keep:], keep=keep
        )


class RedisWorkingMemoryManager(_Manager):
    """arshai's class of this name, on any store; texts are kept for ``ttl`` seconds after the last write.

    Args:
        storage_url: "redis://…" or any other URL of :func:`~langmem_adapters.open_store`; default
            ``LANGMEM_STORE_URL``, ``REDIS_URL``, then arshai's own "redis://localhost:6379/1".
        store: A store of your own in its place, such as an encrypted one.
        ttl: Seconds; default 12 hours.
        keep: How many of the newest texts of a conversation and memory type are kept: arshai's code stores one with
            each turn, and each restarts the time.
        clock: Gives Unix seconds.
        ignored: arshai accepts any further setting, and none has an effect there either.

    >>> from types import SimpleNamespace
    >>> manager = RedisWorkingMemoryManager("memory:", ttl=60)
    >>> manager.store(SimpleNamespace(conversation_id="c1", data=[MemoryText(working_memory="looks for a bike")]))
    'memory:SHORT_TERM_MEMORY:c1'
    """

    def __init__(
        self,
        storage_url: str | None = None,
        *,
        store: Store | None = None,
        ttl: float | None = TWELVE_HOURS,
        keep: int = _DEFAULT_KEEP,
        clock: Callable[[], float] = time.time,
        **ignored: Any,  # noqa: ARG002
    ) -> None:
        if store is None:
            variables = os.environ.get("LANGMEM_STORE_URL"), os.environ.get("REDIS_URL")
            storage_url = next(filter(None, (storage_url, *variables)), _DEFAULT_URL)
        super().__init__(resolve_store(storage_url, store), ttl, clock, keep)


class InMemoryManager(_Manager):
    """arshai's class of this name: texts of this object only, in this process's memory; arguments as above.

    >>> from types import SimpleNamespace
    >>> manager = InMemoryManager(ttl=60)
    >>> given = SimpleNamespace(conversation_id="c1", data=[MemoryText(working_memory="looks for a bike")])
    >>> key = manager.store(given)
    >>> manager.retrieve(given)[0].working_memory
    'looks for a bike'
    """

    def __init__(
        self,
        *,
        ttl: float | None = TWELVE_HOURS,
        keep: int = _DEFAULT_KEEP,
        clock: Callable[[], float] = time.time,
        **ignored: Any,  # noqa: ARG002
    ) -> None:
        super().__init__(MemoryStore(clock=clock), ttl, clock, keep)
