"""Indexes, by the URL of the store that they follow."""

from __future__ import annotations

import threading

from langmem_adapters.database import default_url, file_of
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import fingerprint
from langmem_adapters.protocols import Index

__all__ = ["open_index", "shared_index"]


def open_index(url: str | None = None) -> Index:
    """Make the lexical index that goes with a store's URL. Nothing is opened before the first use.

    A file's index lies in that file, a memory's in memory. A server's index lies in a file of this machine's
    working directory, named after the URL, and is brought up to date from the server by itself.

    >>> open_index("memory:")
    LexicalIndex(':memory:')
    """
    url = url or default_url()
    if url.startswith("memory:"):
        return LexicalIndex(":memory:")
    if url.startswith("sqlite:"):
        return LexicalIndex(file_of(url)[0])
    return LexicalIndex(f"langmem-{fingerprint(url)[:12]}-index.db")


def shared_index(url: str | None = None) -> Index:
    """Give the one index that everything in this process shares for a URL."""
    url = url or default_url()
    with _lock:
        if url not in _shared:
            _shared[url] = open_index(url)
        return _shared[url]


_lock = threading.Lock()
_shared: dict[str, Index] = {}
