"""chromadb and what it brings, which together take seconds to import: so they are imported by their first call."""

from __future__ import annotations

from langmem_adapters.errors import MissingDependency

try:
    import chromadb
    import httpx
    from chromadb.config import Settings
    from chromadb.errors import InternalError, NotFoundError

    from langmem_adapters.indexes.vector_chroma_nearest import cosines, nearest  # imports NumPy, which Chroma brings
    from langmem_adapters.indexes.vector_chroma_timeouts import settings as timeout_settings
except ImportError as error:
    raise MissingDependency("chromadb", "chroma") from error

__all__ = ["InternalError", "NotFoundError", "Settings", "chromadb", "cosines", "httpx", "nearest", "timeout_settings"]
