"""Open stores by URL."""

from __future__ import annotations

import math
import os
import re
from typing import Any, NoReturn

from langmem_adapters.concurrency.breaker import PATIENCE_SECONDS
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError, MissingDependency, StoreUnavailable
from langmem_adapters.files.urls import SERVER_SCHEMES, URL_VARIABLES, anchored_url, default_url, file_of, mask_url
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.telemetry import Traced, is_wanted
from langmem_adapters.validation import check_seconds, check_store

__all__ = [
    "MissingStore",
    "cache_store",
    "has_no_password",
    "masked_url",
    "open_store",
    "pickling_error",
    "resolve_store",
    "shared_store",
]

_MAX_TIMEOUT_SECONDS = 1e6  # SQLite can count that far, and an endless wait is refused
_URL_PATTERN = re.compile(r"[a-z+]+://", re.IGNORECASE)  # a store's URL
_URL_EXAMPLES = '"memory:", "sqlite:///file.db" or "redis://host:6379/0"'
_shared: dict[tuple[str, float | None], Store] = {}  # by anchored URL and timeout
_lock = ForkSafeLock()  # held while a driver is imported


def open_store(url: object = None, *, timeout: float | None = None) -> Store:
    """Make a new, private store with each call. Nothing is opened or connected before the first use.

    Classes that are given the same URL share one store in this process; so does ``Settings``.

    Args:
        url: "memory:" (a new one each time), "sqlite:///relative.db", "sqlite:////absolute.db" (with
            "?synchronous=full" for durability against power cuts, "&timeout=seconds"), "redis://…", "rediss://…",
            "unix://…", "redis+cluster://…", "redis+sentinel://…", a ready redis-py client or pool (blocking or of
            asyncio), or None for ``LANGMEM_STORE_URL``, ``REDIS_URL`` or ``sqlite:///langmem.db``.
        timeout: For caches, which must not delay their caller: the most seconds that a call waits for a store that
            is locked or does not answer. After one such wait, calls fail at once until the store answers.
            Default: 5 seconds, and Redis is retried for one more second.

    >>> open_store("memory:")
    MemoryStore()
    """
    if url is None:
        url = default_url()
    check_seconds("timeout", timeout)
    if not isinstance(url, str):
        if isinstance(url, bytes | os.PathLike | Store):
            raise ConfigurationError(
                f"a store's URL is {_URL_EXAMPLES}, or a ready redis-py client or pool, not {type(url).__name__}"
            )
        return _open_redis(url, timeout)
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        if _URL_PATTERN.match(rest):
            raise ConfigurationError(
                '"memory:" is a store that ends with the process: it can be followed by a name, not by the URL of'
                ' another store; give that URL without "memory:"'
            )
        return MemoryStore()
    if scheme == "sqlite":
        return _open_sqlite(url, timeout)
    if scheme in SERVER_SCHEMES:
        return _open_redis(url, timeout)
    description = repr(scheme) if "://" in url else "what was given"  # the scheme may be a secret passed by mistake
    if variable := _environment_variable(url):
        description = f"what {variable} says"
    raise ConfigurationError(f"a store's URL is {_URL_EXAMPLES}; {description} is none of them")


def shared_store(url: str | None = None, *, timeout: float | None = None) -> Store:
    """Return the one store that this process shares for a URL, so that connections are few.

    A relative path is that of the working directory at this moment, as for :func:`open_store`.

    With ``LANGMEM_OTEL=1``, the store reports to OpenTelemetry; see :mod:`langmem_adapters.telemetry`.
    """
    _check_url_type(url)
    url = url or default_url()
    key = (anchored_url(url), None if url.startswith("memory:") else timeout)
    with no_fork, _lock.held():
        if key not in _shared:
            store = open_store(url, timeout=timeout)
            _shared[key] = Traced(store) if is_wanted() else store
        return _shared[key]


def resolve_store(url: str | None, store: Store | None, *, timeout: float | None = None) -> Store:
    """Return the caller's own store, or the shared store of the URL. Raises ConfigurationError if both are given."""
    if store is None:
        return shared_store(url, timeout=timeout)
    if url is not None:
        raise ConfigurationError("give a url or a store, not both")
    check_store(store)
    return store


def cache_store(url: str | None = None, store: Store | None = None) -> Store:
    """:func:`resolve_store` for caches: their shared store has a short timeout, so it delays no caller."""
    return resolve_store(url, store, timeout=PATIENCE_SECONDS)


def masked_url(url: str | None) -> str | None:
    """The URL, with its password replaced by ***."""
    _check_url_type(url)
    return None if url is None else mask_url(url)


def has_no_password(url: str | None) -> bool:
    """Whether a URL has no password, so that it can be passed to another process, as in a pickle."""
    return masked_url(url) == url


def _check_url_type(url: object) -> None:
    if not (url is None or isinstance(url, str)):
        raise ConfigurationError(
            f"url is a text such as {_URL_EXAMPLES}, not {type(url).__name__};"
            " a store of your own, such as open_store(client) gives, goes in as store="
        )


def pickling_error(subject: str) -> ConfigurationError:
    """The error for an object that another process cannot recreate from its URL."""
    return ConfigurationError(
        f"{subject}, or with a password in its URL, cannot be pickled: leave the URL to LANGMEM_STORE_URL"
    )


class MissingStore:
    """In place of a store that a pickle could not take along, in what was unpickled: each use says so.

    For what LlamaIndex pickles: where a part refuses, LlamaIndex deletes it from the object that it pickles, too.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StoreUnavailable(
            f"{self._subject} was pickled without its store, as it has one of its own, a password in its URL, or a"
            " tenant that is not a text: make a new one here, or leave the URL to LANGMEM_STORE_URL"
        )

    append = clear = get = namespaces = recent = scan = write = _refuse

    def close(self) -> None:
        """Nothing to release."""

    def __repr__(self) -> str:
        return "MissingStore()"


def _environment_variable(url: object) -> str:
    """The environment variable that holds this URL, since the caller may not have given it; "" if there is none."""
    return next((name for name in URL_VARIABLES if os.environ.get(name) == url), "")


def _open_sqlite(url: str, cache_timeout: float | None) -> SQLiteStore:
    path, options = file_of(url)
    synchronous, timeout = options.pop("synchronous", "normal"), options.pop("timeout", "5")
    if options:
        raise ConfigurationError(f"a file's URL takes synchronous and timeout, not {', '.join(sorted(options))}")
    try:
        seconds = float(timeout)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < _MAX_TIMEOUT_SECONDS:
        raise ConfigurationError(f"timeout is a number of seconds below {_MAX_TIMEOUT_SECONDS:,.0f}, not {timeout!r}")
    seconds = seconds if cache_timeout is None else cache_timeout
    return SQLiteStore(path, synchronous=synchronous, timeout=seconds, fails_fast=cache_timeout is not None)


def _open_redis(url: object, cache_timeout: float | None) -> Store:
    try:
        from langmem_adapters.stores.redis import RedisStore  # noqa: PLC0415 - imports its driver
    except MissingDependency as error:
        raise MissingDependency(error.package, error.extra, asked_for_by=_environment_variable(url)) from error

    return RedisStore(url) if cache_timeout is None else RedisStore(url, socket_timeout=cache_timeout, retry_for=0)
