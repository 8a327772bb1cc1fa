"""G2, C9: a model call never fails because its cache is down, is hardly late, and the cache comes back by itself."""

from __future__ import annotations

import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.outputs import Generation

from langmem_adapters import cached
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import SearchError
from langmem_adapters.experience import simple_context
from langmem_adapters.indexes import cache_index, cache_vectors, open_index, open_vectors, shared_index, shared_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.indexes.vector_sqlite import SQLiteVectors
from langmem_adapters.langchain import CachedChatModel, ExperienceCache, ExperienceMiddleware
from langmem_adapters.langchain.caching.semantic import SemanticMode
from langmem_adapters.protocols import Document, Index
from langmem_adapters.stores import open_store, shared_store
from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer

LATE = 0.25 + 0.15  # what is promised, and what a busy machine needs on top
SOON = 2.0 + 1.0
ANSWER = [Generation(text="In the shed.")]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody else is writing to the file, and does not come to an end."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    assert server._process is not None
    server._process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server._process.send_signal(signal.SIGCONT)


@contextmanager
def killed(server: RedisServer) -> Iterator[None]:
    server.kill()
    try:
        yield
    finally:
        server.start()


def check(cache: ExperienceCache, outage: Callable[[], object]) -> None:
    cache.update("before", "model", ANSWER)
    with outage():  # type: ignore[attr-defined]
        first = seconds(lambda: cache.update("during", "model", ANSWER))
        rest = [seconds(lambda n=n: cache.update(f"during {n}", "model", ANSWER)) for n in range(20)]  # type: ignore[misc]
        rest += [seconds(lambda n=n: cache.lookup(f"during {n}", "model")) for n in range(20)]  # type: ignore[misc]
    assert first < LATE
    assert statistics.median(rest) < 0.005
    assert max(rest) < LATE
    assert cache.stats()["errors"] >= 40
    deadline = time.monotonic() + SOON
    while cache.lookup("before", "model") is None:
        assert time.monotonic() < deadline, "the cache does not come back"
        time.sleep(0.01)
    cache.update("after", "model", ANSWER)
    assert cache.lookup("after", "model") is not None


def test_a_held_lock(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    check(ExperienceCache(f"sqlite:///{path}"), lambda: locked(path))


WORDS = ("apple", "bread", "chair", "dress", "engine", "flour", "garden", "house", "iron", "juice", "kettle", "lemon")


def by_length(texts: list[str]) -> list[list[float]]:
    return [[1.0, len(text) / 100] for text in texts]


LENGTHS = Embedder(by_length, name="lengths")


def model_of(url: str, *, elsewhere: bool) -> Callable[[str], object]:
    mode = SemanticMode(index=open_vectors("memory:", LENGTHS)) if elsewhere else SemanticMode(LENGTHS)
    return FakeListChatModel(responses=["It is here."], cache=ExperienceCache(url, semantic=mode)).invoke


def wrapped_model_of(url: str, *, elsewhere: bool) -> Callable[[str], object]:
    mode = SemanticMode(index=open_vectors("memory:", LENGTHS)) if elsewhere else SemanticMode(LENGTHS)
    return CachedChatModel(FakeListChatModel(responses=["It is here."]), ExperienceCache(url, semantic=mode)).invoke


def agent_of(url: str, *, elsewhere: bool) -> Callable[[str], object]:
    index = open_index("memory:") if elsewhere else None
    examples = ExperienceMiddleware(url, examples=2, index=index, user="ada", wait=0)
    agent: Any = create_agent(FakeListChatModel(responses=["It is here."]), middleware=[examples])
    return lambda question: agent.invoke({"messages": [("user", question)]})


def function_of(url: str, *, elsewhere: bool) -> Callable[[str], object]:
    @cached(url=url, index=open_index("memory:") if elsewhere else None, context_builder=simple_context, wait=0)
    def answer(req: str) -> str:
        return f"{req} It is here."

    return answer


@pytest.mark.parametrize("ask", [model_of, wrapped_model_of, agent_of, function_of])
def test_a_held_lock_where_similar_ones_are_looked_for(
    ask: Callable[..., Callable[[str], Any]], tmp_path: Path
) -> None:
    """The index is one more that waits for the file, and it is behind: another process has kept something."""
    path = tmp_path / "cache.db"
    here, there = (ask(f"sqlite:///{path}", elsewhere=elsewhere) for elsewhere in (False, True))
    here(f"Where is the {WORDS[0]}?")
    there(f"Where is the {WORDS[1]}?")
    with locked(path):
        late = [seconds(lambda word=word: here(f"Where is the {word}?")) for word in WORDS[2:]]  # type: ignore[misc]
    assert max(late) < LATE
    assert sum(late) < 2 * LATE


def test_a_killed_redis(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis("--appendonly", "yes", "--appendfsync", "always")
    check(ExperienceCache(server.url()), lambda: killed(server))


def test_a_frozen_redis(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis()
    check(ExperienceCache(server.url()), lambda: frozen(server))


FULL = """
import resource, signal, sys
from langchain_core.outputs import Generation
from langmem_adapters.langchain import ExperienceCache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cache = ExperienceCache(sys.argv[1])
cache.update("before", "model", [Generation(text="kept")])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
for n in range(40):
    cache.update(str(n), "model", [Generation(text="x" * 50_000)])
assert cache.stats()["errors"] > 0, "the disk never was full"
assert cache.lookup("before", "model")[0].text == "kept"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
cache.update("after", "model", [Generation(text="kept")])
assert cache.lookup("after", "model")[0].text == "kept"
"""


def test_a_full_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, f"sqlite:///{tmp_path}/cache.db"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_caches_share_a_store_of_their_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    assert shared_store(url, timeout=0.2) is shared_store(url, timeout=0.2)
    assert shared_store(url) is not shared_store(url, timeout=0.2)
    assert shared_store("memory:") is shared_store("memory:", timeout=0.2)
    assert ExperienceCache(url).pool.store is ExperienceCache(url).pool.store
    with pytest.raises(ValueError, match="above 0"):
        open_store(url, timeout=0)


def test_caches_share_indexes_of_their_own(tmp_path: Path) -> None:
    url, embedder = f"sqlite:///{tmp_path}/shared.db", LENGTHS
    assert cache_index(url) is cache_index(url)
    assert cache_index(url) is not shared_index(url)
    assert cache_index("memory:") is shared_index("memory:")
    assert cache_vectors(url, embedder) is cache_vectors(url, embedder)
    assert cache_vectors(url, embedder) is not shared_vectors(url, embedder)
    assert cache_vectors("memory:", embedder) is shared_vectors("memory:", embedder)


def said_once(caplog: pytest.LogCaptureFixture) -> bool:
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    return [sentence.partition(": ")[0] for sentence in said] == ["the model call goes on without its cache"]


def test_an_outage_is_logged_once_however_many_users_there_are(caplog: pytest.LogCaptureFixture) -> None:
    store = RedisStore("redis://127.0.0.1:1", retry_for=0)
    middleware = ExperienceMiddleware(store=store)
    agent: Any = create_agent(FakeListChatModel(responses=["In the shed."]), middleware=[middleware])
    for user in ("ada", "bob", "eve"):
        agent.invoke({"messages": [("user", "Where is my bike?")]}, context={"user_id": user})
    store.close()
    assert middleware.stats()["errors"] >= 3
    assert said_once(caplog)


def test_an_outage_is_logged_once_though_a_model_is_made_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    store = RedisStore("redis://127.0.0.1:1", retry_for=0)
    cache = ExperienceCache(store=store)
    for _ in range(3):
        CachedChatModel(FakeListChatModel(responses=["In the shed."]), cache).invoke("Where is my bike?")
    store.close()
    assert cache.stats()["errors"] >= 3
    assert said_once(caplog)


@pytest.mark.parametrize("make", [LexicalIndex, lambda path, **rest: VectorIndex(SQLiteVectors(path, **rest), LENGTHS)])
def test_an_index_that_waits_for_nobody_fails_at_once(make: Callable[..., Index], tmp_path: Path) -> None:
    index = make(tmp_path / "index.db", timeout=0)
    index.apply(("notes",), upsert=[Document("1", "my bike")])
    with locked(tmp_path / "index.db"), pytest.raises(SearchError, match=r"for 0 s$"):
        index.apply(("notes",), upsert=[Document("2", "my shed")])
    index.close()
