"""How the tests start another Python."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

__all__ = ["STRICT", "child", "processes"]

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


def child(target: object, *args: object, fork: bool = False) -> tuple[BaseProcess, Connection]:
    """A process that does this, and our end of a pipe to it, whose other end it is given last."""
    context: Any = multiprocessing.get_context("fork") if fork else processes()
    progress, child_end = context.Pipe(duplex=True)
    process = context.Process(target=target, args=(*args, child_end), daemon=True)
    process.start()
    child_end.close()
    return process, progress
