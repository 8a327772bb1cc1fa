"""Parse Chroma's URLs: a folder, or a server."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.locations import absolute_path, expand_home
from langmem_adapters.files.urls import path_of

URL_FORMS = '"chroma:///folder", "chroma:////absolute/folder", "chroma+http://host:8000" or "chroma+https://host"'


def folder_of(url: str) -> str:
    """The folder of a "chroma:" URL; "" for a server's."""
    parts = _split_url(url, fragments=False)
    if parts.scheme != "chroma":
        return ""
    path = path_of(parts.path[1:])
    if parts.netloc or not path or parts.query:
        raise ConfigurationError(f"Chroma's URL is {URL_FORMS}")
    return absolute_path(expand_home(path))


def server_of(url: str) -> tuple[str, int, bool]:
    """Host, port and whether to use https."""
    parts = _split_url(url)
    try:
        port = parts.port
    except ValueError:
        port = 0
    ssl = parts.scheme == "chroma+https"
    has_address_only = not (parts.query or parts.path.strip("/") or parts.username or parts.password)
    if parts.scheme not in {"chroma+http", "chroma+https"} or not parts.hostname or port == 0 or not has_address_only:
        raise ConfigurationError(f"Chroma's URL is {URL_FORMS}; with a token or a tenant, give a client instead")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host, port or (443 if ssl else 8000), ssl


def _split_url(url: str, *, fragments: bool = True) -> SplitResult:
    try:
        return urlsplit(url, allow_fragments=fragments)
    except ValueError:  # its message may quote the password
        raise ConfigurationError(f"Chroma's URL is {URL_FORMS}") from None
