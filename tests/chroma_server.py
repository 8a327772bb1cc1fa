"""A real Chroma server for the tests, on a free loopback port."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.servers import free_port

_PATIENCE = 60.0  # seconds until a start or a stop counts as failed
_COLLECTIONS = "/tenants/default_tenant/databases/default_database/collections"
_RUN = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; app()"


class ChromaServer:
    """One process of ``chroma run``; ``start`` after ``kill`` finds what it had written, at the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"chroma+http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, and wait until it answers. Does nothing to a server that runs."""
        if self._process is not None and self._process.poll() is None:
            return
        options = ["run", "--path", str(self.folder), "--host", "127.0.0.1", "--port", str(self.port)]
        with (self.folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _RUN, *options], cwd=self.folder, stdout=log, stderr=log
            )
        deadline = time.monotonic() + _PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self._ask("/heartbeat")
            except (urllib.error.URLError, OSError):  # noqa: PERF203 - each try may fail
                time.sleep(0.02)
            else:
                return
        self.kill()
        raise RuntimeError(f"chroma does not start: {(self.folder / 'server.log').read_text(errors='replace')[-300:]}")

    def freeze(self) -> None:
        """Let it answer nobody, and refuse nobody, until it thaws."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._send(signal.SIGCONT)

    def renew(self) -> None:
        """Let it run and know nothing, whatever a test did to it."""
        if self._process is not None:
            self.thaw()
        self.start()
        for collection in self._ask(_COLLECTIONS):
            self._ask(f"{_COLLECTIONS}/{urllib.parse.quote(collection['name'])}", method="DELETE")

    def _ask(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/v2{path}", method=method)
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            return json.load(answer)

    def _send(self, signal_: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(signal_)

    def kill(self) -> None:
        """End it as a power cut would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(_PATIENCE)
