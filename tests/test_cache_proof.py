"""C8: four processes of eight threads on one file and on one key; and a clear that keeps what is foreign."""

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
import asyncio, os, sys
from concurrent.futures import ThreadPoolExecutor
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration
from langmem_adapters import open_store
from langmem_adapters.langchain import ExperienceCache

def update(cache, number):
    for n in range(12):
        own, answer = f"{number}-{n}", [ChatGeneration(message=AIMessage(f"{number}-{n}"))]
        for prompt in ("one for all", own):
            if n % 2:
                cache.update(prompt, "model", answer)
                found = cache.lookup(prompt, "model")
            else:
                asyncio.run(cache.aupdate(prompt, "model", answer))
                found = asyncio.run(cache.alookup(prompt, "model"))
            assert found and (prompt != own or found[0].text == own)

def run(process):
    # a store that waits: all of them share what cores there are
    cache = ExperienceCache(store=open_store(sys.argv[1]), on_error="raise")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda thread: update(cache, 8 * process + thread), range(8)))

for process in range(4):
    if os.fork() == 0:
        try:
            run(process)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
sys.exit(any([os.wait()[1] for _ in range(4)]))
"""


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_c8_four_processes_of_eight_threads_update_one_key_and_their_own(
    kind: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    url = f"sqlite:///{tmp_path}/cache.db" if kind == "sqlite" else redis_server.url(db=3)
    done = subprocess.run(
        [sys.executable, "-c", UPDATES, url], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    cache = ExperienceCache(url)
    found = [cache.lookup(f"{number}-{n}", "model") for number in range(32) for n in range(12)]
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
