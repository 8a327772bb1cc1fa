"""chromadb and what it needs, which take seconds to import: so they are imported by the first call."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any, cast

from typing_extensions import override  # Chroma refuses methods without it

from langmem_adapters.embedding import Vector
from langmem_adapters.errors import ConfigurationError, MissingDependency
from langmem_adapters.indexes.vector_folder_lock import is_same_file

try:
    import chromadb
    import httpx
    import numpy as np  # which Chroma brings
    from chromadb.api import ServerAPI
    from chromadb.api.shared_system_client import SharedSystemClient
    from chromadb.auth import ClientAuthHeaders, ClientAuthProvider
    from chromadb.config import Settings, System, get_class
except ImportError as error:
    raise MissingDependency("chromadb", "chroma") from error

_CLOUD_QUOTA = 300  # https://docs.trychroma.com/cloud/quotas-limits
_SERVER_QUOTA = 1_000_000_000  # Chroma counts in 32 bits
_WRITE_TIMEOUT = 60.0  # seconds for a change, which may be large
_READ_TIMEOUT = 10.0  # seconds for what callers wait for: connecting, reading, searching
_MIN_RESULTS = 1_000  # to ask for: the more, the fewer are missed
_MAX_EXACT_VECTORS = 5_000  # more are not read to compare them all
_engine_pids: dict[str, int] = {}
_opened_files: weakref.WeakKeyDictionary[Any, tuple[Path, os.stat_result]] = weakref.WeakKeyDictionary()


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
    """A client of a folder. Chroma keeps what it could not start, and would give it to the next: so it is dropped.

    It also keeps, for all clients of a folder, what is open while one of them is: of a folder that was removed or
    replaced, this is dropped, too. Its clients and the new ones are counted together, so both end with the last one.
    """
    systems_by_name = SharedSystemClient._identifier_to_system  # noqa: SLF001 - a folder's name is its path
    if folder in systems_by_name and _has_lost_files(systems_by_name[folder].instance(cast("Any", ServerAPI))):
        del systems_by_name[folder]
    is_new = folder not in systems_by_name
    try:
        client: Any = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
    except BaseException:
        if is_new:
            systems_by_name.pop(folder, None)
        raise
    if is_new:
        file = Path(folder, "chroma.sqlite3")
        _opened_files[client._server] = file, file.stat()  # noqa: SLF001 - which all clients of the folder share
    return client


def has_lost_files(client: Any) -> bool:
    """Whether the files of a client of a folder were removed or replaced, so that it writes to them no more."""
    return _has_lost_files(getattr(client, "_server", None))


def _has_lost_files(server: Any) -> bool:
    return server in _opened_files and not is_same_file(*_opened_files[server])


def connect(host: str, port: int, ssl: bool, owner: object) -> Any:
    """A client of a server, which ends with its owner if it is not closed before: Chroma would keep its sockets."""
    provider = f"{TimeoutsByAuth.__module__}.{TimeoutsByAuth.__qualname__}"
    settings = Settings(anonymized_telemetry=False, chroma_client_auth_provider=provider)
    try:
        client: Any = chromadb.HttpClient(host=host, port=port, ssl=ssl, settings=settings)
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


class TimeoutsByAuth(ClientAuthProvider):
    """Sets the timeouts of the client that starts it, which itself waits without end, and closes its connections.

    The client sends its first requests while it is made, and does not let others set up its connections. But before any
    request it starts the provider of its headers, and stops it at the end, even if the client could not be made. The
    headers come from Chroma's own provider, if any.
    """

    def __init__(self, system: System) -> None:
        super().__init__(system)
        provider_name = Settings().chroma_client_auth_provider
        self._provider: ClientAuthProvider | None = None
        if provider_name:
            provider_class: Any = get_class(provider_name, cast("Any", ClientAuthProvider))
            self._provider = provider_class(system)

    @override
    def authenticate(self) -> ClientAuthHeaders:
        """The headers, if there are any."""
        return {} if self._provider is None else self._provider.authenticate()

    @override
    def start(self) -> None:
        """Called before the first request."""
        super().start()
        session = self._session()
        session.timeout = _WRITE_TIMEOUT
        session.event_hooks = {"request": [_shorten_read_timeout]}

    @override
    def stop(self) -> None:
        """Called after the last request: Chroma itself leaves the sockets to the garbage collector."""
        super().stop()
        self._session().close()

    def _session(self) -> Any:
        return cast("Any", self._system.instance(cast("Any", ServerAPI)))._session  # noqa: SLF001


def _shorten_read_timeout(request: Any) -> None:
    if request.method == "GET" or request.url.path.endswith(("/query", "/get")):
        request.extensions["timeout"] = httpx.Timeout(_READ_TIMEOUT).as_dict()


def nearest(collection: Any, vector: Vector, k: int, quota: int) -> list[tuple[str, float]]:
    """The ``k`` ids with the greatest cosine, as the collection has them. Exact among up to 1,000 vectors.

    Chroma searches a graph (HNSW), which is approximate. Among many vectors that are nearly the same, such as those of
    one sentence said again and again, the graph falls into parts, and no search gets from one to another: a vector
    unlike the rest, often the one that is looked for, is never found. It shows by fewer results than there are vectors.

    No request asks for more than ``quota``; if that is less than 1,000, the result is exact up to that number.
    """
    limit = min(max(k, _MIN_RESULTS), quota)
    result = collection.query(query_embeddings=[list(vector)], n_results=limit, include=["distances"])
    ids, distances = result["ids"][0], result["distances"][0]
    is_complete = len(ids) >= max(limit, k)
    count = len(ids) if is_complete else collection.count()
    if len(ids) < count <= _MAX_EXACT_VECTORS:
        exact_cosines: dict[str, float] = {}
        for offset in range(0, count, quota):
            exact_cosines |= cosines(collection, vector, limit=min(count, quota), offset=offset)
        return sorted(exact_cosines.items(), key=lambda item: -item[1])[:k]
    return [(id_, 1 - float(distance)) for id_, distance in zip(ids[:k], distances[:k], strict=True)]


def cosines(collection: Any, vector: Vector, **filters: Any) -> dict[str, float]:
    """The cosines of the vectors that the collection gives for these arguments, by id."""
    rows = collection.get(include=["embeddings"], **filters)
    values = np.asarray(rows["embeddings"]).reshape(-1, len(vector)) @ np.asarray(vector)
    return dict(zip(rows["ids"], values.tolist(), strict=True))
