"""chromadb and what it needs, which take seconds to import: so they are imported by the first call."""

from __future__ import annotations

import os
import weakref
from typing import Any

from langmem_adapters.errors import ConfigurationError, MissingDependency

try:
    import chromadb
    import httpx
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.config import Settings, System
    from chromadb.errors import ChromaError, NotFoundError

    from langmem_adapters.indexes.vector_chroma_nearest import cosines, nearest  # imports NumPy, which Chroma brings
    from langmem_adapters.indexes.vector_chroma_timeouts import client_settings
except ImportError as error:
    raise MissingDependency("chromadb", "chroma") from error

__all__ = [
    "ChromaError",
    "NotFoundError",
    "check_engine",
    "connect",
    "cosines",
    "httpx",
    "nearest",
    "open_folder",
    "quota",
]

_CLOUD_QUOTA = 300  # https://docs.trychroma.com/cloud/quotas-limits
_SERVER_QUOTA = 1_000_000_000  # Chroma counts in 32 bits
_engine_pids: dict[str, int] = {}


def quota(client: Any) -> int:
    """How many records a request may have or ask for: Chroma Cloud refuses more, and does not tell its limit."""
    host = str(client.get_settings().chroma_server_host)
    return _CLOUD_QUOTA if host.endswith(".trychroma.com") else _SERVER_QUOTA


def check_engine(name: str, pid: int) -> None:
    """Note that Chroma's engine runs in a process; raise ConfigurationError if it, or the first one, forked this one.

    The engine's threads are not copied, and calls would wait for them for ever, also in a folder of their own.
    """
    if {pid, _engine_pids.setdefault("first", pid)} != {os.getpid()}:
        raise ConfigurationError(
            f"{name} cannot be used in this process, as the process that forked it has used Chroma before, which would "
            'hang here: start this process by "spawn", or run `chroma run` and give every process '
            "chroma+http://localhost:8000"
        )


def open_folder(folder: str) -> Any:
    """A client of a folder. Chroma keeps what it could not start, and would give it to the next: so it is dropped."""
    systems_by_name = SharedSystemClient._identifier_to_system  # noqa: SLF001 - a folder's name is its path
    is_new = folder not in systems_by_name
    try:
        return chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    except BaseException:
        if is_new:
            systems_by_name.pop(folder, None)
        raise


def connect(host: str, port: int, ssl: bool, owner: object) -> Any:
    """A client of a server, which ends with its owner if it is not closed before: Chroma would keep its sockets."""
    try:
        client: Any = chromadb.HttpClient(host=host, port=port, ssl=ssl, settings=client_settings())
    except ValueError as error:  # into which Chroma turns whatever keeps it from a server
        if isinstance(cause := error.__context__, httpx.TransportError):
            raise cause from None
        raise
    systems = [client._system, client._admin_client._system]  # noqa: SLF001 - each has a socket
    weakref.finalize(owner, _stop_systems, systems, os.getpid()).atexit = False
    return client


def _stop_systems(systems: list[System], pid: int) -> None:
    """Unlike the client's own close, take no lock: the thread that collects garbage may hold it."""
    if pid == os.getpid():
        systems_by_name = SharedSystemClient._identifier_to_system  # noqa: SLF001 - each is there under up to two names
        for name in [name for name, system in list(systems_by_name.items()) if system in systems]:
            systems_by_name.pop(name, None)
        for system in systems:
            system.stop()
