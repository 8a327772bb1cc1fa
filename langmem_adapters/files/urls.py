"""What a URL names, as far as that needs no driver: a file, or a server's database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.places import IN_MEMORY, at_home

__all__ = ["URL_VARIABLES", "database_of", "default_url", "file_of", "masked"]

URL_VARIABLES = ("LANGMEM_STORE_URL", "REDIS_URL")
_SCHEME = re.compile(r"\s*[\w+.-]*:/+")
_OPTION = re.compile(r"([?&])([^=&]*)=[^&]*")
_SHOWN = {
    *("db", "username", "protocol", "max_connections", "timeout", "health_check_interval", "client_name"),
    *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "decode_responses", "require_full_coverage"),
    *("ssl", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
}
_LOGIN = re.compile(r"(?<=//)[^/]*@|(?<=[?&])(sentinel_)?(username|password)=[^&]*")


def default_url() -> str:
    """``LANGMEM_STORE_URL``, else ``REDIS_URL``, else a file in the working directory."""
    return next(filter(None, map(os.environ.get, URL_VARIABLES)), "sqlite:///langmem.db")


def file_of(url: str) -> tuple[Path, dict[str, str]]:
    """The file and the options of a ``sqlite:///`` URL. Raises ConfigurationError for any other."""
    start, _, rest = url.strip().partition(":///")
    name, _, query = rest.partition("?")
    path = unquote(name)
    if start != "sqlite" or not path or path == IN_MEMORY or "\0" in path:
        raise ConfigurationError(
            'a file\'s URL is "sqlite:///relative.db" or "sqlite:////absolute.db"; for no file, use "memory:"'
        )
    return at_home(path), dict(parse_qsl(query, keep_blank_values=True))


def masked(url: str) -> str:
    """A URL without what a log should not show: passwords, a user name without a password (often a token), odd options.

    >>> masked("redis://ada:secret@example.org/0")
    'redis://ada:***@example.org/0'
    """
    if url.startswith(("memory:", "sqlite:")):
        return url
    scheme = _SCHEME.match(url)  # also with a slash missing
    start = scheme.end() if scheme else 0
    rest = re.sub(r"(?s)^([^:/?@]*):.*@", r"\1:***@", url[start:])  # it may end with a newline, as read from a file
    url = url[:start] + re.sub(r"^[^:/?@]+@", "***@", rest)
    url = re.sub(r"(password=)[^&]*", r"\1***", url)
    return _OPTION.sub(lambda option: option[0] if option[2] in _SHOWN else f"{option[1]}{option[2]}=***", url)


def database_of(url: str) -> str:
    """Which database of which server a URL names, whatever its spelling, login and other options.

    >>> database_of("rediss://ada:secret@Example.org?socket_timeout=3")
    'redis://example.org:6379/0'
    """
    text = _LOGIN.sub("", url.strip())
    scheme, _, rest = text.partition("://")
    place, _, query = rest.partition("?")
    hosts, _, path = place.partition("/")
    names = [name for name in path.split("/") if name]
    given = dict(parse_qsl(query)).get("db")
    try:
        if scheme == "unix":
            return f"unix://{unquote(place)}?db={int(given or 0)}"
        if scheme == "redis+sentinel":
            return f"{scheme}://{_nodes(hosts, 26379)}/{names[0]}/{int((names[1:] or ['0'])[0])}"
        return f"{scheme.replace('rediss', 'redis')}://{_nodes(hosts, 6379)}/{int(given or (names or ['0'])[0])}"
    except (ValueError, IndexError):  # the store says what is wrong with it
        return text


def _nodes(hosts: str, port: int) -> str:
    parts = [urlsplit(f"//{host}") for host in hosts.split(",")]
    return ",".join(sorted({f"{unquote(part.hostname or 'localhost')}:{part.port or port}" for part in parts}))
