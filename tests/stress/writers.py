"""Threads that write to a store while something happens to it, and remember what they were told.

``LANGMEM_STRESS=20`` has it happen twenty times instead of once.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from langmem_adapters.errors import StoreError
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store
from langmem_adapters.working import WorkingMemory
from tests.servers import RedisServer

TIMES = int(os.environ.get("LANGMEM_STRESS", "1"))
PATIENCE = 60.0  # seconds
WINDOW = 0.5  # seconds around a kill of which something may be lost
NAMESPACES = [("stress", str(n)) for n in range(6)]


def until(ready: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if ready():
                return
        except redis.RedisError:
            pass  # not yet
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def told(server: RedisServer, *words: Any) -> Any:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        return client.execute_command(*words)


def is_replica_in_step(server: RedisServer) -> bool:
    with redis.Redis(port=server.port) as client:
        return bool(client.info("replication").get("master_link_status") == "up")


class Writers:
    """One thread a namespace appends to its log, and counts in a working memory that all of them share."""

    def __init__(self, store: Store, namespaces: Sequence[Namespace]) -> None:
        self.namespaces = namespaces
        self.acknowledged: dict[Namespace, dict[str, float]] = {namespace: {} for namespace in namespaces}
        self.errors: Counter[str] = Counter()
        self.counted = 0
        self.uncertain = 0
        self._unknown: dict[Namespace, set[str]] = {namespace: set() for namespace in namespaces}
        self._store = store
        self._memory = WorkingMemory(store)
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def _write(self, namespace: Namespace) -> None:
        number = 0
        while not self._stop.is_set():
            id_ = f"{number:06}"
            number += 1
            if self._told(lambda id_=id_: self._store.append(namespace, [(id_, b"x")], ttl=3600)):  # type: ignore[misc]
                self.acknowledged[namespace][id_] = time.monotonic()
            else:
                self._unknown[namespace].add(id_)
            counted = self._told(lambda: self._memory.update("counter", lambda n: (n or 0) + 1))
            with self._lock:
                self.counted += counted
                self.uncertain += not counted

    def _told(self, write: Callable[[], object]) -> bool:
        try:
            write()
        except StoreError as error:
            with self._lock:
                self.errors[str(error)] += 1
            return False
        return True

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._write, args=(namespace,)) for namespace in self.namespaces]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def progress(self) -> float:
        """Wait until every writer was served again; gives the seconds that it took."""
        began = time.monotonic()
        before = {namespace: len(told) for namespace, told in self.acknowledged.items()}
        while any(len(told) < before[namespace] + 5 for namespace, told in self.acknowledged.items()):
            assert time.monotonic() - began < 60, f"writers are not served: {dict(self.errors)}"
            time.sleep(0.01)
        return time.monotonic() - began

    def check(self, killed: Sequence[float], *, window: float) -> int:
        """Nothing doubled, nothing out of order, and nothing lost but, at most, of the moment of a kill.

        Replication is asynchronous: a primary may die between its answer and its replica's copy. Gives the losses.
        """
        lost = 0
        for namespace, told in self.acknowledged.items():
            found = [item.id for item in self._store.scan(namespace).items]
            assert found == sorted(set(found)), namespace
            assert set(found) <= set(told) | self._unknown[namespace]
            missing = [told[id_] for id_ in told if id_ not in set(found)]
            assert all(any(abs(at - when) < window for at in killed) for when in missing), missing
            lost += len(missing)
        (counter,) = self._memory.retrieve("counter")
        assert self.counted - counter.data <= len(self.namespaces) * len(killed)
        assert counter.data <= self.counted + self.uncertain
        return lost
