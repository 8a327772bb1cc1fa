"""Timeouts for a Chroma server, which its own client waits for without end, and an end for its connections.

It asks its first questions while it is made, and lets nobody else choose its connections. But it starts whatever gives
it the headers of its requests before it asks anything, and stops that in the end, also where it could not be made.
"""

from __future__ import annotations

from typing import Any, cast

import httpx
from chromadb.api import ServerAPI
from chromadb.auth import ClientAuthHeaders, ClientAuthProvider
from chromadb.config import Settings, System, get_class
from typing_extensions import override  # without which Chroma refuses it

__all__ = ["TimeoutsByAuth", "settings"]

_WRITE_TIMEOUT = 60.0  # seconds, for what may be a large change
_READ_TIMEOUT = 10.0  # seconds, for what somebody waits for: to connect, to look up, to search


class TimeoutsByAuth(ClientAuthProvider):
    """Sets the timeouts of the client that starts it. Headers are those of Chroma's own provider, if any."""

    def __init__(self, system: System) -> None:
        super().__init__(system)
        named = Settings().chroma_client_auth_provider
        kind: Any = get_class(named, cast("Any", ClientAuthProvider)) if named else None
        self._named: ClientAuthProvider | None = kind and kind(system)

    @override
    def authenticate(self) -> ClientAuthHeaders:
        """The headers, if there are any."""
        return {} if self._named is None else self._named.authenticate()

    @override
    def start(self) -> None:
        """Before the first request."""
        super().start()
        session = self._session()
        session.timeout = _WRITE_TIMEOUT
        session.event_hooks = {"request": [_shorten]}

    @override
    def stop(self) -> None:
        """Behind the last request: Chroma itself leaves the sockets to the garbage collector."""
        super().stop()
        self._session().close()

    def _session(self) -> Any:
        return cast("Any", self._system.instance(cast("Any", ServerAPI)))._session  # noqa: SLF001


def settings() -> Settings:
    """The settings of a client of a server."""
    return Settings(
        anonymized_telemetry=False,
        chroma_client_auth_provider=f"{TimeoutsByAuth.__module__}.{TimeoutsByAuth.__qualname__}",
    )


def _shorten(request: Any) -> None:
    """Wait less for what reads."""
    if request.method == "GET" or request.url.path.endswith(("/query", "/get")):
        request.extensions["timeout"] = httpx.Timeout(_READ_TIMEOUT).as_dict()
