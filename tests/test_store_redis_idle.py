"""A Redis store that was not used for a while, behind something that forgets idle connections and tells nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import redis

from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.testing import FakeClock
from tests.servers import RedisServer
from tests.test_store_redis import sentinel
from tests.test_store_redis_faults import NS, Crossing, all_connected
from tests.test_store_redis_outage import cluster_of_one


@pytest.mark.parametrize("behind", ["redis", "redis, RESP3", "sentinel", "cluster"])
def test_after_a_minute_without_a_call_no_connection_is_trusted(
    start_redis: Callable[..., RedisServer], tmp_path: Path, behind: str
) -> None:
    clock = FakeClock()
    with ExitStack() as lines:

        def line_to(port: int) -> Crossing:
            return lines.enter_context(closing(Crossing(port)))

        if behind == "cluster":
            server = cluster_of_one(start_redis, "--cluster-announce-ip", "127.0.0.1")
            crossing = line_to(server.port)
            with redis.Redis(port=server.port) as node:
                node.config_set("cluster-announce-port", crossing.port)
            crossings, url = [crossing], f"redis+cluster://127.0.0.1:{crossing.port}"
        elif behind == "sentinel":
            server = start_redis()
            crossing = line_to(server.port)
            crossings = [crossing, line_to(lines.enter_context(sentinel(server, tmp_path, names=crossing.port)))]
            url = f"redis+sentinel://127.0.0.1:{crossings[1].port}/mine"
        else:
            crossings = [line_to(start_redis().port)]
            url = f"redis://127.0.0.1:{crossings[0].port}?protocol={3 if 'RESP3' in behind else 2}"
        store = RedisStore(url, clock=clock)
        all_connected(store)
        connected = [crossing.count() for crossing in crossings]
        for _ in range(3):
            clock.advance(50)
            all_connected(store)
        assert [crossing.count() for crossing in crossings] == connected
        for crossing in crossings:
            crossing.forget()
        clock.advance(3600)
        began = time.monotonic()
        assert list(store.namespaces()) == []
        all_connected(store)
        assert store.append(NS, [("a", b"1")]).new == [True]
        assert time.monotonic() - began < 4  # one that is trusted is waited for five seconds
        store.close()
