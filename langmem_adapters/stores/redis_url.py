"""From a URL, or from a ready redis-py client, to what connections are taken from."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast
from urllib.parse import SplitResult, urlsplit

from redis import ConnectionPool, DriverInfo, Redis, RedisCluster, __version__
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import parse_url
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel

from langmem_adapters.errors import ConfigurationError

__all__ = ["Source", "connect", "masked"]

Source: TypeAlias = "ConnectionPool | Callable[[], RedisCluster]"
"""A pool of one server's connections, or what makes a cluster's client (which connects when it is made)."""

_FORMS = '"redis://user:password@host:6379/0", or rediss, unix, redis+cluster, redis+sentinel in place of redis'
_SCHEME = re.compile(r"\s*[\w+.-]*:/+")
_DATABASE = re.compile(r"/?\d*/?")
_OPTION = re.compile(r"([?&])([^=&]*)=[^&]*")
_SHOWN = {
    *("db", "username", "protocol", "max_connections", "timeout", "health_check_interval", "client_name"),
    *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "decode_responses", "require_full_coverage"),
    *("ssl", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
}
_DRIVER = {"driver_info": DriverInfo(lib_version=__version__)}  # which redis-py would look for on the disk
_TRUE = {"1", "true", "yes", "on"}


def connect(target: object, *, max_connections: int, socket_timeout: float | None) -> tuple[Source, str]:
    """Give the source of connections, and its address without secrets. Makes no network call."""
    if isinstance(target, Redis | RedisCluster):
        if target.get_encoder().decode_responses:
            raise ConfigurationError("the Redis client must be made with decode_responses=False: a store holds bytes")
        if isinstance(target, RedisCluster):
            return (lambda: target), "the cluster of the given client"
        return target.connection_pool, _address(target.connection_pool)
    if not isinstance(target, str):
        raise ConfigurationError(
            f"a Redis store is made from a URL, a Redis or a RedisCluster client, not from {type(target)}"
        )
    try:
        source = _from_url(target, max_connections, socket_timeout)
    except (ValueError, TypeError, RedisError) as error:
        reason = str(error).removeprefix("AbstractConnection.__init__() ")
        raise ConfigurationError(f"{masked(target)} is not a Redis URL ({_FORMS}): {reason}") from error
    return source, masked(target)


def masked(url: str) -> str:
    """Hide what a log should not show: the password, a user name that stands alone, as tokens do, and odd options."""
    scheme = _SCHEME.match(url)  # also where a slash is missing
    start = scheme.end() if scheme else 0
    rest = re.sub(r"^([^:/?@]*):.*@", r"\1:***@", url[start:])
    url = url[:start] + re.sub(r"^[^:/?@]+@", "***@", rest)
    url = re.sub(r"(password=)[^&]*", r"\1***", url)
    return _OPTION.sub(lambda option: option[0] if option[2] in _SHOWN else f"{option[1]}{option[2]}=***", url)


def _address(pool: ConnectionPool) -> str:
    options = pool.connection_kwargs
    if "path" in options:
        return f"unix://{options['path']}?db={options.get('db', 0)}"
    if "host" not in options:
        return repr(pool)  # of a sentinel: names the service
    return f"redis://{options['host']}:{options.get('port', 6379)}/{options.get('db', 0)}"


def _from_url(url: str, max_connections: int, socket_timeout: float | None) -> Source:
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise ValueError("what follows the scheme begins with ://")
    options = {
        "socket_timeout": socket_timeout,
        "socket_connect_timeout": socket_timeout,
        "socket_keepalive": True,
        "max_connections": max_connections,
        "retry": Retry(NoBackoff(), 0),  # whole exchanges are tried again, in redis_wire
        "protocol": 2,  # a handshake of fewer trips, and nothing here needs the third version
    }
    if scheme in {"redis", "rediss", "unix"}:
        return _server(url, scheme, options)
    if scheme == "redis+cluster":
        return _cluster(rest, options)
    if scheme == "redis+sentinel":
        return _sentinel(rest, options)
    raise ValueError(f"{scheme!r} is no scheme of Redis")


def _server(url: str, scheme: str, options: dict[str, Any]) -> ConnectionPool:
    parts = _port(url, 6379)[0]
    if scheme == "unix":
        del options["socket_connect_timeout"], options["socket_keepalive"]
    elif not _DATABASE.fullmatch(parts.path):
        raise ValueError("what follows the host is the number of a database")
    options.update(parse_url(url))  # type: ignore[no-untyped-call]
    pool: Any = ConnectionPool(**{name: value for name, value in options.items() if name != "timeout"})
    pool.timeout = options.get("timeout", options["socket_timeout"])  # for those who wait until a connection is free
    _try_options(pool)
    return cast("ConnectionPool", pool)


def _cluster(rest: str, options: dict[str, Any]) -> Callable[[], RedisCluster]:
    nodes, path, given = _split(rest)
    if path not in {"", "0"}:
        raise ValueError("a cluster has the database 0 only")
    options.update({"require_full_coverage": False, **given})  # the servers say themselves what they do not serve
    startup = [ClusterNode(host, port) for host, port in nodes(6379)]  # type: ignore[no-untyped-call]
    return lambda: RedisCluster(startup_nodes=startup, **options)


def _sentinel(rest: str, options: dict[str, Any]) -> ConnectionPool:
    nodes, path, given = _split(rest)
    service, _, database = path.partition("/")
    if not service or not re.fullmatch(r"\d*", database):
        raise ValueError("the form is redis+sentinel://host:26379,host2:26379/service/0")
    options.update(given, db=int(database or 0))
    of_both = ("socket_timeout", "socket_connect_timeout", "socket_keepalive", "retry")
    own = _DRIVER | {name: options[name] for name in of_both}
    for name in [name for name in options if name.startswith("sentinel_")]:
        own[name.removeprefix("sentinel_")] = options.pop(name)
    sentinel = Sentinel(nodes(26379), sentinel_kwargs=own, **options)  # type: ignore[no-untyped-call]
    pool: ConnectionPool = sentinel.master_for(service).connection_pool  # type: ignore[no-untyped-call]
    _try_options(pool)
    return pool


def _split(rest: str) -> tuple[Callable[[int], list[tuple[str, int]]], str, dict[str, Any]]:
    """Take apart what redis-py has no URL for: ``user:password@host:port,host:port/path?options``."""
    place, _, query = rest.partition("?")
    place, _, path = place.partition("/")
    login, at, hosts = place.rpartition("@")
    url = f"redis://{login}{at}host?{query}"
    _port(url, 0)
    given: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    del given["host"]
    if "ssl" in given:
        given["ssl"] = given["ssl"].lower() in _TRUE

    def nodes(port: int) -> list[tuple[str, int]]:
        found = [_port(f"//{host}", port) for host in hosts.split(",")]
        return [(parts.hostname or "localhost", number) for parts, number in found]

    return nodes, path.strip("/"), given


def _port(url: str, default: int) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port or default
    except ValueError:  # its words may be a part of the password
        raise ValueError("a port is a number, and / ? # @ in a password are written %2F %3F %23 %40") from None
    return parts, port


def _try_options(pool: ConnectionPool) -> None:
    """Make a connection object, which connects nowhere, to meet an option that redis-py does not know."""
    if pool.connection_kwargs.get("decode_responses"):
        raise ValueError("decode_responses cannot be set, as a store holds bytes")
    pool.connection_class(**_DRIVER | pool.connection_kwargs)
