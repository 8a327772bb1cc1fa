"""Counts round trips where they happen: on the socket between a client and its server."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from typing_extensions import Self

__all__ = ["RoundTrips"]


class RoundTrips:
    """A door on a loopback port, behind which the server is; a question after an answer is one more round trip.

    Args:
        port: The server's own port.

    ``count`` is how many there were, ``sent`` all that clients have sent.
    """

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.count = 0
        self.sent = bytearray()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self._listener, *self._sockets):
            opened.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
            except OSError:  # closed
                return
            self._sockets += [client, server]
            asked = threading.Event()
            threading.Thread(target=self._questions, args=(client, server, asked), daemon=True).start()
            threading.Thread(target=self._answers, args=(server, client, asked), daemon=True).start()

    def _questions(self, client: socket.socket, server: socket.socket, asked: threading.Event) -> None:
        while data := _read(client):
            if not asked.is_set():
                asked.set()
                self.count += 1
            self.sent += data
            server.sendall(data)

    def _answers(self, server: socket.socket, client: socket.socket, asked: threading.Event) -> None:
        while data := _read(server):
            asked.clear()
            client.sendall(data)


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 20)
    except OSError:
        return b""
