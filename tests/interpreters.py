"""How the tests start another Python."""

from __future__ import annotations

import multiprocessing
from typing import Any

__all__ = ["STRICT", "processes"]

# Warnings are errors, but for what langsmith, LlamaIndex and Chroma do at their import since Python 3.14.
STRICT = ["-W", "error", "-W", "ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning"]
_IMPORTED = ["chromadb", "hypothesis", "langmem_adapters.testing", "pytest", "redis", "redis.asyncio"]


def processes() -> Any:
    """Processes that have nothing of this one, as new interpreters would, but find imported what takes long."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTED)
    return context
