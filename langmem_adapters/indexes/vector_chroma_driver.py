"""chromadb and what it brings, which together take seconds to import: so they are imported by their first call."""

from __future__ import annotations

import sqlite3

from langmem_adapters.errors import ConfigurationError, MissingDependency

try:
    import chromadb
    import httpx
    from chromadb.config import Settings
    from chromadb.errors import InternalError, NotFoundError

    from langmem_adapters.indexes.vector_chroma_nearest import cosines, nearest  # imports NumPy, which Chroma brings
except ImportError as error:
    raise MissingDependency("chromadb", "chroma") from error
except RuntimeError as error:  # of chromadb itself, which speaks of SQLite in several coloured lines
    raise ConfigurationError(
        f"chromadb cannot be used here: it needs SQLite 3.35, and this Python has {sqlite3.sqlite_version}"
    ) from error

__all__ = ["InternalError", "NotFoundError", "Settings", "chromadb", "cosines", "httpx", "nearest"]
