"""Turn a URL, or a ready redis-py client or pool, into a source of connections.

A blocking client's connections are borrowed. An asyncio client cannot lend one to a thread, and a client that decodes
replies has none that returns bytes: these tell where to connect and as whom, and the store makes its own connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import redis.asyncio as aio
from redis import (
    Connection,
    ConnectionPool,
    CredentialProvider,
    Redis,
    RedisCluster,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis import sentinel as blocking
from redis.asyncio import sentinel as awaited

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.urls import masked
from langmem_adapters.stores.redis_sources import Source, cluster, defaults, primary, server
from langmem_adapters.stores.redis_url import from_url

__all__ = ["Link", "link"]

_CLUSTER: Final = "the cluster of the given client"
_PLAIN: Final = {
    *(Connection, UnixDomainSocketConnection, blocking.SentinelManagedConnection),
    *(aio.Connection, aio.UnixDomainSocketConnection, awaited.SentinelManagedConnection),
}
_TLS: Final = {
    *(SSLConnection, blocking.SentinelManagedSSLConnection),
    *(aio.SSLConnection, awaited.SentinelManagedSSLConnection),
}
_SENTINELS: Final = (blocking.SentinelConnectionPool, awaited.SentinelConnectionPool)
_PLACE: Final = ("host", "port", "path")
_TAKEN: Final = {*_PLACE, "db", "username", "password", "credential_provider", "client_name"}


class Link(NamedTuple):
    """A source of connections, its address without secrets, and whether the connections are the store's own."""

    source: Source
    address: str
    owned: bool


def link(target: object, *, max_connections: int, socket_timeout: float | None) -> Link:
    """Find out how to connect. Makes no network call; raises ConfigurationError if nothing here gives connections."""
    options = defaults(max_connections, socket_timeout)
    if isinstance(target, str):
        return Link(from_url(target, options), masked(target), owned=True)
    given = target.connection_pool if isinstance(target, Redis | aio.Redis) else target
    if isinstance(given, ConnectionPool | RedisCluster) and not given.get_encoder().decode_responses:
        if isinstance(given, RedisCluster):
            return Link(lambda: given, _CLUSTER, owned=False)
        return Link(given, _address(given), owned=False)
    if isinstance(given, RedisCluster | aio.RedisCluster):
        return Link(_cluster_like(given, options), _CLUSTER, owned=True)
    if isinstance(given, ConnectionPool | aio.ConnectionPool):
        pool = _pool_like(given, options)
        return Link(pool, _address(pool), owned=True)
    raise ConfigurationError(
        f"a Redis store is made from a URL, or from a client or pool of redis-py, not from {type(target)}"
    )


def _address(pool: ConnectionPool) -> str:
    options = pool.connection_kwargs
    if "path" in options:
        return f"unix://{options['path']}?db={options.get('db', 0)}"
    if "host" not in options:
        return repr(pool)  # of a sentinel: it names the service
    return f"redis://{options['host']}:{options.get('port', 6379)}/{options.get('db', 0)}"


def _cluster_like(client: Any, options: dict[str, Any]) -> Source:
    given = client.nodes_manager.connection_kwargs
    # The client's own function is among these.
    taken = _taken(given, given.get("connection_class", Connection), getattr(client, "user_on_connect_func", None))
    if remap := client.nodes_manager.address_remap:
        taken["address_remap"] = remap
    nodes = (*client.nodes_manager.startup_nodes.values(), *client.startup_nodes)  # found by now, and given first
    return cluster(dict.fromkeys((node.host, node.port) for node in nodes), options | _without_place(taken))


def _pool_like(pool: Any, options: dict[str, Any]) -> ConnectionPool:
    given = pool.connection_kwargs
    taken = _taken(given, pool.connection_class, given.get("redis_connect_func"))
    if not isinstance(pool, _SENTINELS):
        plain = UnixDomainSocketConnection if "path" in taken else Connection
        del taken["ssl"]
        return server(options, taken | {"connection_class": SSLConnection if pool.connection_class in _TLS else plain})
    manager = pool.sentinel_manager
    sentinels = [sentinel.connection_pool for sentinel in manager.sentinels]
    return primary(
        pool.service_name,
        [(each.connection_kwargs["host"], each.connection_kwargs["port"]) for each in sentinels],
        _without_place(_taken(sentinels[0].connection_kwargs, sentinels[0].connection_class)),
        options | _without_place(taken) | {"min_other_sentinels": manager.min_other_sentinels},
    )


def _taken(given: Mapping[str, Any], kind: type, greets: object = None) -> dict[str, Any]:
    """Where to connect, and as whom. Everything else, such as timeouts and retries, is set by the store."""
    if greets:
        raise _unknown("calls a function of yours as it connects")
    if kind not in _PLAIN | _TLS:
        raise _unknown(f"has connections of a make of their own, {kind.__module__}.{kind.__qualname__}")
    taken = {k: v for k, v in given.items() if (k in _TAKEN or k.startswith("ssl_")) and v is not None}
    if getattr(type(taken.get("credential_provider")), "get_credentials", None) is CredentialProvider.get_credentials:
        raise _unknown("has a credential provider with nothing but get_credentials_async")
    return taken | {"ssl": kind in _TLS or bool(given.get("ssl"))}


def _without_place(taken: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in taken.items() if name not in _PLACE}


def _unknown(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"a Redis client of asyncio, or with decode_responses=True, that {why} does not tell a store how to connect:"
        " give it a URL, or a blocking client with decode_responses=False"
    )
