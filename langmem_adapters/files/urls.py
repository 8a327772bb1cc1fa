"""What a URL names, as far as that needs no driver: a file, or a server's database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.locations import FILE_ENCODING, IN_MEMORY, absolute_path, expand_home

SERVER_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "redis+sentinel")
URL_VARIABLES = ("LANGMEM_STORE_URL", "REDIS_URL")
_SCHEME_PATTERN = re.compile(r"\s*[\w+.-]*:/+")
_OPTION_PATTERN = re.compile(r"(&|^[^?&]*\?)([^=&]*)=[^&]*")  # of "?", the first alone: of many, each would read all
_VISIBLE_OPTIONS = {
    *("db", "username", "protocol", "max_connections", "timeout", "health_check_interval", "client_name"),
    *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "decode_responses", "require_full_coverage"),
    *("ssl", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
}
_LOGIN_PATTERN = re.compile(r"(?<=//)[^/]*@|(?<=[?&])(sentinel_)?(username|password)=[^&]*")


def default_url() -> str:
    """``LANGMEM_STORE_URL``, else ``REDIS_URL``, else a file in the working directory."""
    return next(filter(None, map(os.environ.get, URL_VARIABLES)), "sqlite:///langmem.db")


def path_of(quoted: str) -> str:
    """The path in a URL; where there are drives, that of ``////C:/file.db`` as well as of ``///C:/file.db``."""
    path = unquote(quoted, FILE_ENCODING, "surrogateescape")
    return path[1:] if path.startswith("/") and os.path.splitdrive(path[1:])[0] else path


def file_of(url: str) -> tuple[Path, dict[str, str]]:
    """The file and the options of a ``sqlite:///`` URL. Raises ConfigurationError for any other."""
    scheme, _, rest = url.strip().partition(":///")
    name, _, query = rest.partition("?")
    path = path_of(name)
    if scheme != "sqlite" or not path or path == IN_MEMORY or "\0" in path:
        raise ConfigurationError(
            'a file\'s URL is "sqlite:///relative.db" or "sqlite:////absolute.db"; for no file, use "memory:"'
        )
    return expand_home(path), dict(parse_qsl(query, keep_blank_values=True))


def anchored_url(url: str) -> str:
    """A file's or folder's URL with an absolute path, so that it stays the same when the process changes its folder."""
    head, separator, rest = url.strip().partition(":///")
    name, question_mark, query = rest.partition("?")
    path = path_of(name)
    if head not in {"sqlite", "chroma"} or not path or path.startswith(("/", "~", IN_MEMORY)) or "\0" in path:
        return url  # absolute, on a server, or refused by whatever opens it
    absolute = quote(absolute_path(Path(path)), encoding=FILE_ENCODING, errors="surrogateescape")
    return f"{head}{separator}{absolute}{question_mark}{query}"


def mask_url(url: str) -> str:
    """A URL without what a log should not show: passwords, a user name without a password (often a token), odd options.

    >>> mask_url("redis://ada:secret@example.org/0")
    'redis://ada:***@example.org/0'
    """
    if url.startswith(("memory:", "sqlite:")):
        return url
    scheme = _SCHEME_PATTERN.match(url)  # also with a slash missing
    start = scheme.end() if scheme else 0
    rest = re.sub(r"(?s)^([^:/?@]*):.*@", r"\1:***@", url[start:])  # it may end with a newline, as read from a file
    url = url[:start] + re.sub(r"^[^:/?@]+@", "***@", rest)
    url = re.sub(r"(password=)[^&]*", r"\1***", url)
    return _OPTION_PATTERN.sub(_masked_option, url)


def _masked_option(option: re.Match[str]) -> str:
    separator, name = option[1], option[2]
    return option[0] if name in _VISIBLE_OPTIONS else f"{separator}{name}=***"


def database_of(url: str) -> str:
    """Which database of which server a URL names, whatever its spelling, login and other options.

    >>> database_of("rediss://ada:secret@Example.org?socket_timeout=3")
    'redis://example.org:6379/0'
    """
    text = _LOGIN_PATTERN.sub("", url.strip())
    scheme, _, rest = text.partition("://")
    target, _, query = rest.partition("?")
    hosts, _, path = target.partition("/")
    path_parts = [name for name in path.split("/") if name]
    database = dict(parse_qsl(query)).get("db")
    try:
        if scheme == "unix":
            return f"unix://{unquote(target)}?db={int(database or 0)}"
        if scheme == "redis+sentinel":
            service, number, *_ = (*path_parts, "0")
            return f"{scheme}://{_join_hosts(hosts, 26379)}/{service}/{int(database or number)}"
        number = database or (path_parts[0] if path_parts else "0")
        return f"{scheme.replace('rediss', 'redis')}://{_join_hosts(hosts, 6379)}/{int(number)}"
    except (ValueError, IndexError):  # the store says what is wrong with it
        return text


def _join_hosts(hosts: str, port: int) -> str:
    urls = [urlsplit(f"//{host}") for host in hosts.split(",")]
    return ",".join(sorted({f"{unquote(url.hostname or 'localhost')}:{url.port or port}" for url in urls}))
