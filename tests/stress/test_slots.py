"""Slots of a cluster move to another node in the middle of writing, key by key. The writers need not notice.

``LANGMEM_STRESS=20`` moves them twenty times instead of once.
"""

from __future__ import annotations

import os
import time

import pytest

from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer
from tests.stress.test_failover import NAMESPACES, cluster, is_whole, told, until
from tests.stress.writers import Writers

__all__ = ["cluster"]  # the fixture: six nodes, of which three are replicas

_MOVES = int(os.environ.get("LANGMEM_STRESS", "1"))


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
    store = RedisStore(f"redis+cluster://{hosts}?protocol={protocol}", prefix=key_prefix, retry_for=60)
    writers = Writers(store, NAMESPACES)
    places = [store._keys.place(namespace) for namespace in NAMESPACES]
    keys = {place.log: None for place in places} | {places[0].directory: None}
    with writers.at_work():
        writers.progress()
        moved = 0
        for _ in range(_MOVES):
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
