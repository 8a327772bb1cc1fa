"""Stores, by URL."""

from __future__ import annotations

import threading

from langmem_adapters.database import default_url, file_of
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore

__all__ = ["open_store", "shared_store"]

_REDIS = ("redis", "rediss", "unix", "redis+cluster", "redis+sentinel")
_FORMS = '"memory:", "sqlite:///file.db" or "redis://host:6379/0"'


def open_store(url: object = None) -> Store:
    """Make a store of your own. Nothing is opened or connected before the first use.

    Args:
        url: "memory:", "sqlite:///relative.db", "sqlite:////absolute.db" (with "?synchronous=full" for
            durability against power cuts, "&timeout=seconds"), "redis://…", "rediss://…", "unix://…",
            "redis+cluster://…", "redis+sentinel://…", a ready redis-py client, or None for
            ``LANGMEM_STORE_URL``, ``REDIS_URL`` or ``sqlite:///langmem.db``.

    >>> open_store("memory:")
    MemoryStore()
    """
    if url is None:
        url = default_url()
    if not isinstance(url, str):
        return _redis(url)
    scheme = url.partition(":")[0]
    if scheme == "memory":
        return MemoryStore()
    if scheme == "sqlite":
        return _sqlite(url)
    if scheme in _REDIS:
        return _redis(url)
    raise ConfigurationError(f"a store's URL is {_FORMS}; {scheme!r} is none of them")


def shared_store(url: str | None = None) -> Store:
    """Give the one store that everything in this process shares for a URL, so that connections are few."""
    url = url or default_url()
    with _lock:
        if url not in _shared:
            _shared[url] = open_store(url)
        return _shared[url]


_lock = threading.Lock()
_shared: dict[str, Store] = {}


def _sqlite(url: str) -> SQLiteStore:
    path, options = file_of(url)
    synchronous, timeout = options.pop("synchronous", "normal"), options.pop("timeout", "5")
    if options:
        raise ConfigurationError(f"a file's URL takes synchronous and timeout, not {', '.join(sorted(options))}")
    try:
        seconds = float(timeout)
    except ValueError:
        raise ConfigurationError(f"timeout is a number of seconds, not {timeout!r}") from None
    return SQLiteStore(path, synchronous=synchronous, timeout=seconds)


def _redis(url: object) -> Store:
    from langmem_adapters.stores.redis import RedisStore  # noqa: PLC0415 - imports its driver

    return RedisStore(url)
