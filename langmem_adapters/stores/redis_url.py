"""Turn a URL into a source of connections."""

from __future__ import annotations

import re
import socket
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from redis import ConnectionPool, RedisCluster
from redis.cluster import REDIS_ALLOWED_KEYS
from redis.connection import parse_url
from redis.exceptions import RedisError

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.urls import mask_url
from langmem_adapters.stores.redis_sources import Address, Source, cluster_factory, primary_pool, server_pool

_URL_EXAMPLES = '"redis://user:password@host:6379/0", or rediss, unix, redis+cluster, redis+sentinel in place of redis'
_DATABASE_PATTERN = re.compile(r"/?\d*/?")
_TRUE_VALUES, _FALSE_VALUES = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}
# The last has no effect, and need have none: a store itself renews connections that were idle for long.
_CLUSTER_OPTIONS = {*REDIS_ALLOWED_KEYS, *signature(RedisCluster).parameters, "health_check_interval"}
_FILE_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OBJECT_OPTIONS = frozenset(
    ("retry", "retry_on_error", "socket_keepalive_options", "credential_provider", "cache", "cache_config")
)


def from_url(url: str, options: dict[str, Any]) -> Source:
    """Return the source of a URL's connections; the URL overrides these options. Makes no network call."""
    if "***" in url and mask_url(url) == url:  # the server's error would show every password as this
        raise ConfigurationError(
            f"{url} is a URL as it is printed and dumped, with *** for its password: give the URL itself, or leave it"
            " to LANGMEM_STORE_URL"
        )
    _check_options(url)
    try:
        return _from_url(url, options)
    except (ValueError, TypeError, RedisError) as error:
        reason = str(error).removeprefix("AbstractConnection.__init__() ")
        raise ConfigurationError(f"{mask_url(url)} is not a Redis URL ({_URL_EXAMPLES}): {reason}") from error


def _from_url(url: str, options: dict[str, Any]) -> Source:
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ValueError("what follows the scheme begins with ://")
    if scheme == "unix" and not hasattr(socket, "AF_UNIX"):
        raise ValueError("Python has no Unix sockets on this system")  # it has none on Windows
    if scheme in {"redis", "rediss", "unix"}:
        return _server_source(url, scheme, options)
    if scheme == "redis+cluster":
        return _cluster_source(rest, options)
    if scheme == "redis+sentinel":
        return _sentinel_source(rest, options)
    raise ValueError(f"{scheme!r} is no scheme of Redis")


def _check_options(url: str) -> None:
    """Name a file that cannot be read: the connection error would not tell which one, or that it is a file.

    Also refuse options that are not text: redis-py would take the text for an object, and fail at the first use.
    """
    for name, value in parse_qsl(url.partition("?")[2]):
        option = name.removeprefix("sentinel_")
        if option in _OBJECT_OPTIONS:
            raise ConfigurationError(
                f"{name} in the URL of a Redis store wants an object, which no URL holds: give a client of redis-py"
            )
        if option in _FILE_OPTIONS:
            try:
                Path(value).open("rb").close()
            except OSError as error:
                message = f"{name}={value} in the URL of a Redis store cannot be read: {error.strerror}"
                raise ConfigurationError(message) from error


def _server_source(url: str, scheme: str, options: dict[str, Any]) -> ConnectionPool:
    parts, _ = _split_url(url, 6379)
    if scheme != "unix" and not _DATABASE_PATTERN.fullmatch(parts.path):
        raise ValueError("what follows the host is the number of a database")
    return server_pool(options, parse_url(url))  # type: ignore[no-untyped-call]


def _cluster_source(rest: str, options: dict[str, Any]) -> Source:
    nodes, path, url_options = _parse_nodes(rest, 6379)
    if path not in {"", "0"}:
        raise ValueError("a cluster has the database 0 only")
    if unknown_options := url_options.keys() - _CLUSTER_OPTIONS:  # redis-py would ignore them, such as tls=true
        raise TypeError(f"unexpected keyword argument {min(unknown_options)!r}")
    return cluster_factory(nodes, options | url_options)


def _sentinel_source(rest: str, options: dict[str, Any]) -> ConnectionPool:
    nodes, path, url_options = _parse_nodes(rest, 26379)
    service, _, database = path.partition("/")
    if not service or not re.fullmatch(r"\d*", database):
        raise ValueError("the form is redis+sentinel://host:26379,host2:26379/service/0")
    options = options | {"db": int(database or 0)} | url_options
    sentinel_names = [name for name in url_options if name.startswith("sentinel_")]
    texts = {name.removeprefix("sentinel_"): options.pop(name) for name in sentinel_names}
    values = _parse_options(f"redis://?{urlencode(texts)}")
    sentinel_options = texts | {name: value for name, value in values.items() if not isinstance(value, str)}
    return primary_pool(service, nodes, sentinel_options, options)


def _parse_nodes(rest: str, default_port: int) -> tuple[list[Address], str, dict[str, Any]]:
    """Parse what redis-py has no URL for: ``user:password@host:port,host:port/path?options``."""
    address, _, query = rest.partition("?")
    address, _, path = address.partition("/")
    login, separator, hosts = address.rpartition("@")
    url = f"redis://{login}{separator}host?{query}"
    _split_url(url, 0)
    url_options = _parse_options(url)
    del url_options["host"]
    parsed_hosts = [_split_url(f"//{host}", default_port) for host in hosts.split(",")]
    nodes = [(parts.hostname or "localhost", host_port) for parts, host_port in parsed_hosts]
    return nodes, path.strip("/"), url_options


def _parse_options(url: str) -> dict[str, Any]:
    """The options of a URL of redis-py, and ``ssl``, as values of their types."""
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    if "ssl" in options:
        value = options["ssl"].lower()
        if value not in _TRUE_VALUES | _FALSE_VALUES:  # taken for false, it would send the password in clear text
            raise ValueError("ssl is true or false")
        options["ssl"] = value in _TRUE_VALUES
    return options


def _split_url(url: str, default_port: int) -> tuple[SplitResult, int]:
    """The parts of a URL, and its port. Raises ValueError, which quotes no secret."""
    try:
        parts = urlsplit(url)
        port = parts.port or default_port
    except ValueError:  # its message may quote a part of the password
        raise ValueError("a port is a number, and / ? # @ in a password are written %2F %3F %23 %40") from None
    try:
        unquote(parts.hostname or "").encode("idna")  # else connecting fails, with no Redis error
    except UnicodeError:
        raise ValueError("a part of the host's name is empty, or longer than 63 characters") from None
    return parts, port
