"""C8: eight processes on one file and on one key; and a clear that keeps what is foreign."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration

from langmem_adapters.codec import encode
from langmem_adapters.langchain import ExperienceCache
from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer

UPDATES = """
import os, sys
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration
from langmem_adapters import open_store
from langmem_adapters.langchain import ExperienceCache

def update(number):
    # a store that waits: eight share what cores there are
    cache = ExperienceCache(store=open_store(sys.argv[1]), on_error="raise")
    for n in range(50):
        answer = [ChatGeneration(message=AIMessage(f"{number}-{n}"))]
        cache.update("one for all", "model", answer)
        cache.update(f"{number}-{n}", "model", answer)
        assert cache.lookup("one for all", "model")
        assert cache.lookup(f"{number}-{n}", "model")[0].text == f"{number}-{n}"

for number in range(8):
    if os.fork() == 0:
        update(number)
        os._exit(0)
sys.exit(any(os.wait()[1] for _ in range(8)))
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_c8_eight_processes_update_one_key_and_their_own(kind: str, tmp_path: Path, redis_server: RedisServer) -> None:
    url = f"sqlite:///{tmp_path}/cache.db" if kind == "sqlite" else redis_server.url(db=3)
    done = subprocess.run(
        [sys.executable, "-c", UPDATES, url], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    cache = ExperienceCache(url)
    found = [cache.lookup(f"{number}-{n}", "model") for number in range(8) for n in range(50)]
    assert all(found)
    cache.clear()


def healthy() -> list[ChatGeneration]:
    return [ChatGeneration(message=AIMessage("In the shed."))]


def test_clear_touches_only_what_is_ours(redis_server: RedisServer, key_prefix: str) -> None:
    client = redis.Redis.from_url(redis_server.url())
    foreign = f"foreign-{key_prefix}"
    client.set(foreign, "stays")
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    places = (("a", "x"), ("a", "y"), ("b", "x"))
    caches = [ExperienceCache(store=store, tenant=tenant, tag=tag) for tenant, tag in places]
    for cache in caches:
        cache.update("question", "model", healthy())
    store.write(("brain", "", "", "s"), put={"title": encode("stays")})
    caches[0].clear()
    assert [bool(cache.lookup("question", "model")) for cache in caches] == [False, True, True]
    assert client.get(foreign) == b"stays"
    assert store.get(("brain", "", "", "s"))
    client.delete(foreign)
    client.close()
    store.close()
