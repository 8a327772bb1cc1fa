"""Under sentinels, a primary is killed in the middle of writing. The writers need not notice."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer, free_port
from tests.stress.writers import NAMESPACES, PATIENCE, TIMES, WINDOW, Writers, is_replica_in_step, told, until


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
        store = RedisStore(f"redis+sentinel://{hosts}/mine", retry_for=PATIENCE)
        writers, killed = Writers(store, NAMESPACES), []
        with writers.at_work():
            for kill in range(TIMES):
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
        writers.check(killed, window=WINDOW)
        store.close()
