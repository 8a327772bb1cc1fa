"""What the store's own connections are taken from: redis-py's pools and cluster clients. Nothing connects here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from redis import ConnectionPool, DriverInfo, RedisCluster, __version__
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry
from redis.sentinel import Sentinel

from langmem_adapters.stores.redis_packing import Packer
from langmem_adapters.validation import check_count, check_seconds

Source: TypeAlias = "ConnectionPool | Callable[[], RedisCluster]"
"""A pool of one server's connections, or a function that makes a cluster's client, which connects when it is made."""
Address: TypeAlias = tuple[str, int]

_TCP_OPTIONS = ("socket_connect_timeout", "socket_keepalive")
# Without this, redis-py looks for its version on the disk.
_DRIVER_INFO = {"driver_info": DriverInfo(lib_version=__version__)}
_PACKER_OPTION = {"command_packer": Packer()}


def default_options(max_connections: int, socket_timeout: float | None) -> dict[str, Any]:
    """The options of redis-py that a store sets by default."""
    options = {
        "socket_timeout": socket_timeout,
        "socket_connect_timeout": socket_timeout,
        "socket_keepalive": True,
        "max_connections": max_connections,
        "retry": Retry(NoBackoff(), 0),  # redis_servers retries whole exchanges
        "protocol": 2,  # its handshake takes fewer round trips, and nothing here needs RESP3
    }
    _check_options(options)
    return options


def server_pool(options: dict[str, Any], overrides: dict[str, Any]) -> ConnectionPool:
    """A pool for one server, at the given ``host`` and ``port``, or ``path``."""
    if "path" in overrides:
        options = {name: value for name, value in options.items() if name not in _TCP_OPTIONS}
    options = {**options, **overrides, **_PACKER_OPTION}
    _check_options(options)
    pool: Any = ConnectionPool(**{name: value for name, value in options.items() if name != "timeout"})
    pool.timeout = options.get("timeout", options["socket_timeout"])  # for callers that wait until a connection is free
    _try_options(pool)
    return cast("ConnectionPool", pool)


def cluster_factory(nodes: Iterable[Address], options: dict[str, Any]) -> Callable[[], RedisCluster]:
    """A function that makes a client of the cluster to which these nodes belong."""
    options = {"require_full_coverage": False, **options}  # the servers tell themselves what they do not serve
    _check_options(options)
    startup_nodes = [ClusterNode(host, port) for host, port in nodes]  # type: ignore[no-untyped-call]

    def make() -> RedisCluster:
        try:
            return RedisCluster(startup_nodes=startup_nodes, **options)
        except BaseException:  # the connections to those that answered, such as a server that is no cluster, stay open
            for node in startup_nodes:
                if node.redis_connection is not None:
                    node.redis_connection.close()
            raise

    return make


def primary_pool(
    service: str, sentinels: Iterable[Address], sentinel_options: dict[str, Any], options: dict[str, Any]
) -> ConnectionPool:
    """A pool for the primary that sentinels name for a service."""
    for each in (options, options | sentinel_options):
        _check_options(each)
    shared_options = ("socket_timeout", "socket_connect_timeout", "socket_keepalive", "retry")
    sentinel_kwargs = _DRIVER_INFO | {name: options[name] for name in shared_options} | sentinel_options
    sentinel = Sentinel(list(sentinels), sentinel_kwargs=sentinel_kwargs, **options | _PACKER_OPTION)  # type: ignore[no-untyped-call]
    pool: ConnectionPool = sentinel.master_for(service).connection_pool  # type: ignore[no-untyped-call]
    _try_options(pool)
    return pool


def _try_options(pool: ConnectionPool) -> None:
    """Make a connection object, which connects nowhere, to detect options that redis-py does not know."""
    pool.connection_class(**_DRIVER_INFO | pool.connection_kwargs)


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse text for bytes, seconds that a socket would refuse at first use, and a limit that redis-py misreads."""
    if options.get("decode_responses"):
        raise ValueError("decode_responses cannot be set, as a store holds bytes")
    check_count("max_connections", options["max_connections"])
    for name in ("socket_timeout", "socket_connect_timeout"):
        check_seconds(name, options.get(name))
