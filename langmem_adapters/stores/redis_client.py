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
from redis import sentinel as sync_sentinel
from redis.asyncio import sentinel as aio_sentinel

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.urls import mask_url
from langmem_adapters.stores.redis_sources import Source, cluster_factory, default_options, primary_pool, server_pool
from langmem_adapters.stores.redis_url import from_url

_CLUSTER_ADDRESS: Final = "the cluster of the given client"
_PLAIN_CLASSES: Final = {
    *(Connection, UnixDomainSocketConnection, sync_sentinel.SentinelManagedConnection),
    *(aio.Connection, aio.UnixDomainSocketConnection, aio_sentinel.SentinelManagedConnection),
}
_TLS_CLASSES: Final = {
    *(SSLConnection, sync_sentinel.SentinelManagedSSLConnection),
    *(aio.SSLConnection, aio_sentinel.SentinelManagedSSLConnection),
}
_SENTINEL_POOLS: Final = (sync_sentinel.SentinelConnectionPool, aio_sentinel.SentinelConnectionPool)
_LOCATION_OPTIONS: Final = ("host", "port", "path")
_COPIED_OPTIONS: Final = {*_LOCATION_OPTIONS, "db", "username", "password", "credential_provider", "client_name"}


class Link(NamedTuple):
    """A source of connections, its address without secrets, and whether the connections are the store's own."""

    source: Source
    address: str
    owned: bool


def make_link(target: object, *, max_connections: int, socket_timeout: float | None) -> Link:
    """Find out how to connect. Makes no network call; raises ConfigurationError if nothing here gives connections."""
    options = default_options(max_connections, socket_timeout)
    if isinstance(target, str):
        return Link(from_url(target, options), mask_url(target), owned=True)
    client = target.connection_pool if isinstance(target, Redis | aio.Redis) else target
    if isinstance(client, ConnectionPool | RedisCluster) and not client.get_encoder().decode_responses:
        if isinstance(client, RedisCluster):
            return Link(lambda: client, _CLUSTER_ADDRESS, owned=False)
        return Link(client, _address(client), owned=False)
    if isinstance(client, RedisCluster | aio.RedisCluster):
        return Link(_cluster_from(client, options), _CLUSTER_ADDRESS, owned=True)
    if isinstance(client, ConnectionPool | aio.ConnectionPool):
        pool = _pool_from(client, options)
        return Link(pool, _address(pool), owned=True)
    raise ConfigurationError(
        f"a Redis store is made from a URL, or from a client or pool of redis-py, not from {type(target)}"
    )


def _address(pool: ConnectionPool) -> str:
    options = pool.connection_kwargs
    if "path" in options:
        return f"unix://{options['path']}?db={options.get('db', 0)}"
    if isinstance(pool, _SENTINEL_POOLS):
        return repr(pool)  # it names the service
    return f"redis://{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db', 0)}"


def _cluster_from(client: Any, options: dict[str, Any]) -> Source:
    client_options = client.nodes_manager.connection_kwargs  # with the client's own function in place of the user's
    connect_function = getattr(client, "user_on_connect_func", None)
    copied = _copied_options(client_options, client_options.get("connection_class", Connection), connect_function)
    if remap := client.nodes_manager.address_remap:
        copied["address_remap"] = remap
    nodes = (*client.nodes_manager.startup_nodes.values(), *client.startup_nodes)  # found by now, and given first
    return cluster_factory(dict.fromkeys((node.host, node.port) for node in nodes), options | _without_location(copied))


def _pool_from(pool: Any, options: dict[str, Any]) -> ConnectionPool:
    pool_options = pool.connection_kwargs
    copied = _copied_options(pool_options, pool.connection_class, pool_options.get("redis_connect_func"))
    if not isinstance(pool, _SENTINEL_POOLS):
        plain = UnixDomainSocketConnection if "path" in copied else Connection
        copied["connection_class"] = SSLConnection if pool.connection_class in _TLS_CLASSES else plain
        del copied["ssl"]
        return server_pool(options, copied)
    manager = pool.sentinel_manager
    sentinel_pools = [sentinel.connection_pool for sentinel in manager.sentinels]
    return primary_pool(
        pool.service_name,
        [(each.connection_kwargs["host"], each.connection_kwargs["port"]) for each in sentinel_pools],
        _without_location(_copied_options(sentinel_pools[0].connection_kwargs, sentinel_pools[0].connection_class)),
        options | _without_location(copied) | {"min_other_sentinels": manager.min_other_sentinels},
    )


def _copied_options(
    options: Mapping[str, Any], connection_class: type, connect_function: object = None
) -> dict[str, Any]:
    """Where to connect, and as whom. Everything else, such as timeouts and retries, is set by the store."""
    if connect_function:
        raise _unusable_client_error("calls a function of yours as it connects")
    if connection_class not in _PLAIN_CLASSES | _TLS_CLASSES:
        class_name = f"{connection_class.__module__}.{connection_class.__qualname__}"
        raise _unusable_client_error(f"has connections of a make of their own, {class_name}")
    copied = {k: v for k, v in options.items() if (k in _COPIED_OPTIONS or k.startswith("ssl_")) and v is not None}
    if getattr(type(copied.get("credential_provider")), "get_credentials", None) is CredentialProvider.get_credentials:
        raise _unusable_client_error("has a credential provider with nothing but get_credentials_async")
    return copied | {"ssl": connection_class in _TLS_CLASSES or bool(options.get("ssl"))}


def _without_location(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _LOCATION_OPTIONS}


def _unusable_client_error(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"a Redis client of asyncio, or with decode_responses=True, that {reason} does not tell a store how to connect:"
        " give it a URL, or a blocking client with decode_responses=False"
    )
