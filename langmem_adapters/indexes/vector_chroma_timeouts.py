"""Timeouts for a Chroma server, for which its own client waits without end, and a way to close its connections.

The client sends its first requests while it is made, and does not let others set up its connections. But before any
request it starts the provider of its headers, and stops it at the end, even if the client could not be made.
"""

from __future__ import annotations

from typing import Any, cast

import httpx
from chromadb.api import ServerAPI
from chromadb.auth import ClientAuthHeaders, ClientAuthProvider
from chromadb.config import Settings, System, get_class
from typing_extensions import override  # Chroma refuses methods without it

__all__ = ["TimeoutsByAuth", "client_settings"]

_WRITE_TIMEOUT = 60.0  # seconds for a change, which may be large
_READ_TIMEOUT = 10.0  # seconds for what callers wait for: connecting, reading, searching


class TimeoutsByAuth(ClientAuthProvider):
    """Sets the timeouts of the client that starts it. Headers come from Chroma's own provider, if any."""

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


def client_settings() -> Settings:
    """The settings for the client of a server."""
    return Settings(
        anonymized_telemetry=False,
        chroma_client_auth_provider=f"{TimeoutsByAuth.__module__}.{TimeoutsByAuth.__qualname__}",
    )


def _shorten_read_timeout(request: Any) -> None:
    """Shorten the timeout of reads."""
    if request.method == "GET" or request.url.path.endswith(("/query", "/get")):
        request.extensions["timeout"] = httpx.Timeout(_READ_TIMEOUT).as_dict()
