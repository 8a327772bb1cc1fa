"""A primary is killed in the middle of writing: under sentinels, and in a cluster. The writers need not notice.

``LANGMEM_STRESS=20`` has it killed twenty times instead of once.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer, free_port, redis_servers
from tests.stress.writers import Writers

_KILLS = int(os.environ.get("LANGMEM_STRESS", "1"))
_PATIENCE = 60.0  # seconds
_WINDOW = 0.5  # seconds around a kill of which something may be lost
NAMESPACES = [("stress", str(n)) for n in range(6)]


def until(ready: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
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


# --- sentinels ----------------------------------------------------------------------------------------------


@contextmanager
def sentinels(primary: RedisServer, folder: Path, count: int = 3) -> Iterator[list[int]]:
    ports, processes = [free_port() for _ in range(count)], []
    for port in ports:
        config = folder / f"sentinel-{port}.conf"
        config.write_text(
            f'port {port}\nbind 127.0.0.1\ndir "{folder}"\nlogfile "{folder}/{port}.log"\n'
            f"sentinel monitor mine 127.0.0.1 {primary.port} 2\n"
            "sentinel down-after-milliseconds mine 500\nsentinel failover-timeout mine 3000\n",
            encoding="utf-8",
        )
        processes.append(subprocess.Popen([primary.path, config, "--sentinel"]))
    try:
        until(lambda: all(knows(port, replicas=1, others=count - 1) for port in ports), "the sentinels do not meet")
        yield ports
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)


def knows(port: int, *, replicas: int, others: int) -> bool:
    with redis.Redis(port=port) as client:
        state: Any = client.sentinel_master("mine")
        names: Any = client.sentinel_slaves("mine")
    alive = [name for name in names if not name["is_disconnected"] and name["master-link-status"] == "ok"]
    return bool(not state["is_odown"] and state["num-other-sentinels"] == others and len(alive) == replicas)


def test_a_sentinels_primary_is_killed_while_writing(start_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    primary = start_redis()
    replica = start_redis("--replicaof", "127.0.0.1", str(primary.port))
    until(lambda: is_replica_in_step(replica), "the replica does not follow")
    with sentinels(primary, tmp_path) as ports:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        store = RedisStore(f"redis+sentinel://{hosts}/mine", retry_for=_PATIENCE)
        writers, killed = Writers(store, NAMESPACES), []
        with writers.at_work():
            for kill in range(_KILLS):
                if kill:
                    primary.args = ()  # it comes back as it is told by the sentinels
                    primary.start()
                    primary, replica = replica, primary
                    until(
                        lambda: is_replica_in_step(replica) and all(knows(p, replicas=1, others=2) for p in ports),  # noqa: B023
                        "the old primary does not follow",
                    )
                writers.progress()
                killed.append(time.monotonic())
                primary.kill()
                writers.progress()
        assert told(replica, "ROLE")[0] == "master"
        assert set(writers.errors) <= {error for error in writers.errors if "may have been made" in error}
        writers.check(killed, window=_WINDOW)
        store.close()


# --- cluster ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[list[RedisServer]]:
    """Three primaries, then their replicas."""
    path = next(iter(redis_servers().values()))
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0")
    with ExitStack() as stack:
        nodes = [stack.enter_context(RedisServer(path, args=options)) for _ in range(6)]
        for node, (first, last) in zip(nodes, ((0, 5460), (5461, 10921), (10922, 16383)), strict=False):
            told(node, "CLUSTER", "ADDSLOTS", *range(first, last + 1))
        for number, node in enumerate(nodes):
            told(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            told(nodes[0], "CLUSTER", "MEET", "127.0.0.1", node.port)
        until(lambda: all(know_all(node) for node in nodes), "the nodes do not meet")
        for primary, replica in zip(nodes[:3], nodes[3:], strict=True):
            id_ = told(primary, "CLUSTER", "MYID")
            until(lambda: told(replica, "CLUSTER", "REPLICATE", id_) == "OK", "a replica is refused")  # noqa: B023
        until(lambda: all(map(is_replica_in_step, nodes[3:])), "the replicas do not follow")
        until(lambda: all(is_whole(node) for node in nodes), "the cluster does not get ready")
        yield nodes


def know_all(node: RedisServer) -> bool:
    lines = told(node, "CLUSTER", "NODES").splitlines()
    return len(lines) == 6 and not [line for line in lines if "handshake" in line]


def is_whole(node: RedisServer) -> bool:
    return "cluster_state:ok" in told(node, "CLUSTER", "INFO")


def test_a_clusters_primary_is_killed_while_writing(cluster: list[RedisServer], key_prefix: str) -> None:
    pairs = [(cluster[n], cluster[n + 3]) for n in range(3)]
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster[:3])
    store = RedisStore(f"redis+cluster://{hosts}", prefix=key_prefix, retry_for=_PATIENCE)
    writers, killed = Writers(store, NAMESPACES), []
    with writers.at_work():
        for _, which in zip(range(_KILLS), itertools.cycle(range(3)), strict=False):
            writers.progress()
            primary, replica = pairs[which]
            killed.append(time.monotonic())
            primary.kill()
            writers.progress()
            primary.start()
            pairs[which] = (replica, primary)
            until(lambda: is_replica_in_step(primary) and is_whole(primary), "the old primary does not follow")  # noqa: B023
        writers.progress()
    assert set(writers.errors) <= {error for error in writers.errors if "may have been made" in error}
    writers.check(killed, window=_WINDOW)
    store.close()


def test_the_keys_of_a_namespace_share_a_slot(cluster: list[RedisServer], key_prefix: str) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}", prefix=key_prefix)
    slots = set()
    for namespace in [*NAMESPACES, (), ("{a}",), ("}{", "b")]:
        store.write(namespace, put={"k": b"v"}, append=[("a", b"")])
        own = {told(cluster[1], "CLUSTER", "KEYSLOT", key) for key in store._keys.place(namespace)[:3]}
        assert len(own) == 1
        slots |= own
    assert len(slots) > 6
    assert set(store.namespaces()) == {*NAMESPACES, (), ("{a}",), ("}{", "b")}
    store.close()
