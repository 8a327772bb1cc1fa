"""Where a measurement takes place: a folder, a Redis server of its own, and how much time there is."""

from __future__ import annotations

import importlib.util
import itertools
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from langmem_adapters.protocols import Store
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from tests.benchmarks.harness import Budget, Case, Line, line
from tests.servers import RedisServer, no_redis, redis_servers

__all__ = ["Bench", "installed"]


def installed(module: str) -> bool:
    """Whether a peer's package is here."""
    parts = module.split(".")
    names = [".".join(parts[: n + 1]) for n in range(len(parts))]
    return all(importlib.util.find_spec(name) is not None for name in names)


class Bench:
    """What the rows are handed.

    Args:
        short: Fewer sizes and rounds.
        peers: Whether others are measured too.
        budget: How long a case is measured.
    """

    def __init__(self, *, short: bool = False, peers: bool = True, budget: Budget | None = None) -> None:
        self.short = short
        self.peers = peers
        self.budget = budget or (Budget(100, 1.0) if short else Budget(400, 5.0))
        self.absent: dict[str, str] = {}
        self._number = itertools.count()
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="langmem-bench-")))
        self._server: RedisServer | None = None

    def sizes(self, *sizes: int) -> tuple[int, ...]:
        """Those that are measured: in the short form, none beyond 10,000."""
        return tuple(size for size in sizes if not self.short or size <= 10_000)

    def path(self, name: str) -> Path:
        """A file that nobody has used, in a folder of its own: a neighbour's journals come and go in theirs."""
        folder = self._folder / f"{name}-{next(self._number)}"
        folder.mkdir()
        return folder / f"{name}.db"

    def line(self, size: str, case: Case) -> Line:
        """Measure a case."""
        return line(size, case, self.budget)

    @property
    def redis_url(self) -> str:
        """The server of this bench, started when it is first asked for: no persistence, defaults otherwise."""
        if self._server is None:
            servers = redis_servers()
            if not servers:
                raise RuntimeError(no_redis())
            self._server = self._stack.enter_context(RedisServer(next(iter(servers.values()))))
        return self._server.url()

    @property
    def redis_path(self) -> Path:
        """The program that :attr:`redis_url` is served by."""
        return next(iter(redis_servers().values()))

    def connection(self, synchronous: str = "normal") -> sqlite3.Connection:
        """A file that nobody has used, open with the settings of our store."""
        opened = self._stack.enter_context(closing(sqlite3.connect(self.path("limit"), isolation_level=None)))
        opened.execute("PRAGMA page_size=8192")
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute(f"PRAGMA synchronous={synchronous}")
        return opened

    @contextmanager
    def store(self, kind: str, *, synchronous: str = "normal") -> Iterator[Store]:
        """An empty store of ours: "sqlite" or "redis"."""
        store: Store
        if kind == "sqlite":
            store = SQLiteStore(self.path("ours"), synchronous=synchronous)
        else:
            store = RedisStore(self.redis_url, prefix=f"ours-{next(self._number)}:")
        try:
            yield store
        finally:
            store.close()

    def close(self) -> None:
        """Stop the server and remove the files."""
        self._stack.close()
