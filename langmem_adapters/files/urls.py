"""Which store is meant where none is named, and which file a URL names."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.files.places import IN_MEMORY

__all__ = ["URL_VARIABLES", "default_url", "file_of"]

URL_VARIABLES = ("LANGMEM_STORE_URL", "REDIS_URL")


def default_url() -> str:
    """``LANGMEM_STORE_URL``, else ``REDIS_URL``, else a file in the working directory."""
    return next(filter(None, map(os.environ.get, URL_VARIABLES)), "sqlite:///langmem.db")


def file_of(url: str) -> tuple[Path, dict[str, str]]:
    """The file and the options of a ``sqlite:///`` URL. Raises ConfigurationError for any other."""
    start, mark, rest = url.strip().partition(":///")
    name, _, query = rest.partition("?")
    path = unquote(name)
    if start != "sqlite" or not mark or not path or path == IN_MEMORY or "\0" in path:
        raise ConfigurationError(
            'a file\'s URL is "sqlite:///relative.db" or "sqlite:////absolute.db"; for no file, use "memory:"'
        )
    return Path(path).expanduser(), dict(parse_qsl(query, keep_blank_values=True))
