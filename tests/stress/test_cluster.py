"""In a cluster, slots move and a primary is killed, in the middle of writing. The writers need not notice."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer, redis_servers
from tests.stress.writers import NAMESPACES, PATIENCE, TIMES, WINDOW, Writers, is_replica_in_step, told, until


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


def move(slot: int, source: RedisServer, target: RedisServer, primaries: list[RedisServer]) -> int:
    """Move a slot as redis-cli does it, with a moment between any two keys; gives how many keys there were."""
    here, there = (told(node, "CLUSTER", "MYID") for node in (source, target))
    told(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", here)
    told(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", there)
    moved = 0
    while keys := told(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
        told(source, "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
        moved += len(keys)
        time.sleep(0.02)  # some of a namespace's keys are here and some there
    for node in (target, source, *primaries):
        told(node, "CLUSTER", "SETSLOT", slot, "NODE", there)
    return moved


@pytest.mark.parametrize("protocol", [2, 3])
def test_slots_move_while_writing(cluster: list[RedisServer], key_prefix: str, protocol: int) -> None:
    primaries = [node for node in cluster if told(node, "ROLE")[0] == "master"]
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in primaries)
    store = RedisStore(f"redis+cluster://{hosts}?protocol={protocol}", prefix=key_prefix, retry_for=PATIENCE)
    writers = Writers(store, NAMESPACES)
    places = [store._keys.for_namespace(namespace) for namespace in NAMESPACES]
    keys = {place.log: None for place in places} | {places[0].directory: None}
    with writers.at_work():
        writers.progress()
        moved = 0
        for _ in range(TIMES):
            for key in keys:
                slot = told(primaries[0], "CLUSTER", "KEYSLOT", key)
                source = next(node for node in primaries if owns(node, slot))
                target = primaries[(primaries.index(source) + 1) % len(primaries)]
                moved += move(slot, source, target, primaries)
            writers.progress()
        until(lambda: all(is_whole(node) for node in cluster), "the cluster does not get whole")
        writers.progress()
    assert moved >= 2 * len(NAMESPACES)
    assert set(writers.errors) <= {error for error in writers.errors if "may have been made" in error}
    assert writers.check([], window=0) == 0
    assert {row.namespace for row in store.recent(("stress",))} == set(NAMESPACES)
    store.close()


def owns(node: RedisServer, slot: int) -> bool:
    """Whether a primary serves the slot, as it says itself."""
    (own,) = [line for line in told(node, "CLUSTER", "NODES").splitlines() if "myself" in line]
    ranges = [part.split("-") for part in own.split()[8:] if not part.startswith("[")]
    return any(int(bounds[0]) <= slot <= int(bounds[-1]) for bounds in ranges)


def test_a_clusters_primary_is_killed_while_writing(cluster: list[RedisServer], key_prefix: str) -> None:
    pairs = [(cluster[n], cluster[n + 3]) for n in range(3)]
    hosts = ",".join(f"127.0.0.1:{node.port}" for node in cluster[:3])
    store = RedisStore(f"redis+cluster://{hosts}", prefix=key_prefix, retry_for=PATIENCE)
    writers, killed = Writers(store, NAMESPACES), []
    with writers.at_work():
        for _, which in zip(range(TIMES), itertools.cycle(range(3)), strict=False):
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
    writers.check(killed, window=WINDOW)
    store.close()


def test_the_keys_of_a_namespace_share_a_slot(cluster: list[RedisServer], key_prefix: str) -> None:
    store = RedisStore(f"redis+cluster://127.0.0.1:{cluster[0].port}", prefix=key_prefix)
    slots = set()
    for namespace in [*NAMESPACES, (), ("{a}",), ("}{", "b")]:
        store.write(namespace, put={"k": b"v"}, append=[("a", b"")])
        own = {told(cluster[1], "CLUSTER", "KEYSLOT", key) for key in store._keys.for_namespace(namespace)[:3]}
        assert len(own) == 1
        slots |= own
    assert len(slots) > 6
    assert set(store.namespaces()) == {*NAMESPACES, (), ("{a}",), ("}{", "b")}
    store.close()
