"""What two processes do to one session, in every order of their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langmem_adapters import BrainMemory
from langmem_adapters.stores.memory import MemoryStore
from tests.interleavings import Killed, Outcome, explore

SESSION = ("brain", "", "ada", "monday")


def a_store() -> MemoryStore:
    return MemoryStore(clock=lambda: 1000.0)


def brain(store: Any, **settings: Any) -> BrainMemory:
    return BrainMemory(store, "monday", user="ada", clock=lambda: 1000.0, **settings)


# --- of the search itself


def counts(times: int) -> Callable[[Any], None]:
    def process(store: Any) -> None:
        for _ in range(times):
            store.get(SESSION)

    return process


@pytest.mark.parametrize(("switches", "orders"), [(0, 2), (1, 4), (9, 6)])
def test_every_order_is_tried_once(switches: int, orders: int) -> None:
    seen = []
    assert (
        explore(a_store, [counts(2), counts(2)], lambda outcome: seen.append(tuple(outcome.trace)), switches=switches)
        == orders
    )
    assert len(set(seen)) == orders


def adds_up(store: Any) -> None:
    value = store.get(SESSION, ["n"]).get("n", b"0")
    store.write(SESSION, put={"n": b"%d" % (int(value) + 1)})


def test_a_lost_update_is_found() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.store.get(SESSION)["n"] == b"2"

    with pytest.raises(AssertionError, match=r"in the order 0\.get 1\.get"):
        explore(a_store, [adds_up, adds_up], check)


def test_a_process_is_killed_before_each_of_its_calls() -> None:
    found = []

    def check(outcome: Outcome) -> None:
        found.append((isinstance(outcome.results[0], Killed), len(outcome.store.get(SESSION))))

    explore(a_store, [adds_up], check, deaths=0)
    assert found == [(True, 0), (True, 0), (False, 1)]
