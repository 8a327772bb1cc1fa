"""A store of each kind with its indexes, written through every service, and all the bytes that are then at rest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from langmem_adapters.brain import BrainMemory
from langmem_adapters.embedding import Embedder
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.experience.single_flight.leases import Leases
from langmem_adapters.flow import run
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.keys import Namespace
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Experience, Message
from langmem_adapters.protocols import Index, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from langmem_adapters.working import WorkingMemory
from tests.servers import RedisServer

KINDS = ("memory", "sqlite", "redis")
UNSET = ("length.bin", "data_level0.bin")
"""Files to which Chroma writes memory that it never set, whatever was there before (chroma-core/chroma#7688)."""


def numbers(texts: Sequence[str]) -> list[list[float]]:
    """Vectors that say little of a text, and are the same for the same text."""
    return [[byte + 1.0 for byte in hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8]] for text in texts]


@dataclass
class Backend:
    """Where everything is kept; ``also`` gives the bytes of what lies in no file of the folder."""

    store: Store
    index: LexicalIndex
    vectors: VectorIndex
    folder: Path
    clock: FakeClock
    also: Callable[[], bytes] = bytes
    others: list[Index] = field(default_factory=list)

    @property
    def indexes(self) -> list[Index]:
        return [self.index, self.vectors, *self.others]

    def bytes(self) -> bytes:
        files = [
            path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file() and path.name not in UNSET
        ]
        return b"\n".join([*files, self.also()])


@contextmanager
def backend(kind: str, folder: Path, server: RedisServer | None = None, prefix: str = "") -> Iterator[Backend]:
    """Everything in one SQLite file, or in memory or Redis with the indexes in a file beside."""
    clock = FakeClock()
    index = LexicalIndex(folder / "langmem.db")
    vectors = VectorIndex(SQLiteVectors(folder / "langmem.db"), Embedder(numbers, name="numbers-1"))
    if kind == "sqlite":
        made = Backend(SQLiteStore(folder / "langmem.db", clock=clock), index, vectors, folder, clock)
    elif kind == "memory":
        memory = MemoryStore(clock=clock)
        made = Backend(memory, index, vectors, folder, clock, lambda: repr(memory._children).encode())
    else:
        assert server is not None
        url = server.url()
        store = RedisStore(url, prefix=prefix, clock=clock)
        made = Backend(store, index, vectors, folder, clock, lambda: in_redis(url, prefix))
    try:
        yield made
    finally:
        made.store.close()
        for each in made.indexes:
            each.close()


def in_redis(url: str, prefix: str) -> bytes:
    """Every key with its content. (DUMP would be compressed.)"""
    read: dict[bytes, Callable[[Any], Any]] = {}
    with redis.Redis.from_url(url) as client:
        read = {
            b"stream": client.xrange,
            b"hash": client.hgetall,
            b"set": client.smembers,
            b"zset": lambda key: client.zrange(key, 0, -1),
        }
        return b"\n".join(
            key + b" " + repr(read[client.type(key)](key)).encode() for key in client.scan_iter(f"{prefix}*")
        )


def snapshot(store: Store, without: Callable[[Namespace], bool] = lambda _: False) -> dict[Namespace, Any]:
    """All that a store holds, byte by byte."""
    return {name: (store.get(name), store.scan(name)) for name in store.namespaces() if not without(name)}


def fill(at: Backend, *, user: str, tenant: str = "", mark: str, store: Store | None = None, session: str = "") -> None:
    """Write through every service, with a mark in each thing that is written."""
    store = store or at.store
    whose: Any = {"user": user, "tenant": tenant}
    session = session or f"session {mark}"
    long_term = LongTermMemory(store, at.index, vectors=at.vectors, clock=at.clock, **whose)
    brain = BrainMemory(store, session, memory_k=2, long_term=long_term, clock=at.clock, **whose)
    brain.add_messages(
        [Message(role="user", name=mark, content=f"word {mark} n{n}", id=f"{mark}-{n}") for n in range(5)]
    )
    brain.add_knowledge([f"fact {mark}"])
    brain.set_summary(f"summary {mark}")
    brain.set_title(f"title {mark}")
    long_term.search(f"word {mark}")
    long_term.flush()
    working = WorkingMemory(store, clock=at.clock, **whose)
    for kind in ("SHORT_TERM", "LONG_TERM", "WORKING"):
        working.store(session, f"item {mark}", memory_type=kind, metadata={"from": mark})
    working.update(session, lambda text: f"{text} again")
    pool = ExperiencePool(store, tag=f"tag {mark}", index=at.index, max_entries=10, clock=at.clock, **whose)
    pool.create(Experience(req=f"question {mark}", resp=f"answer {mark}"))
    assert pool.lookup(f"question {mark}") is not None
    pool.query(f"question {mark}", k=1)
    place = ("experience", tenant, user, f"tag {mark}", "leases")
    store.write((*place[:-1], "semantic", mark), put={mark: mark.encode()})  # as a semantic cache keeps requests
    leases = Leases(store, place, seconds=60, clock=at.clock, new_id=lambda: mark)
    run(leases.take(mark))
    items = LongTermStore(store=store, index=at.index, tenant=tenant, clock=at.clock)
    for namespace in (("memories", user), ("memories", user, "deep", mark), (user, "memories")):
        if "" not in namespace:
            items.put(namespace, f"key {mark}", {"text": f"word {mark}"})
            items.search(namespace, query=mark)
