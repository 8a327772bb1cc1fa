"""The items of a LangGraph namespace, whose log is tidied: an index that is behind, elsewhere, misses nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import Namespace
from langmem_adapters.langgraph import items as stored_items
from langmem_adapters.langgraph.items import NamespaceItems
from langmem_adapters.langgraph.stored_items import StoredItem
from langmem_adapters.protocols import Store
from langmem_adapters.records.journal import COMPACTION_KEY
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock

PLACE = ("langgraph", "", "items", "notes")


def item(text: str, clock: FakeClock, ttl: float | None = None) -> StoredItem:
    now = clock()
    return StoredItem({"text": text}, now, now, ttl, None if ttl is None else now + ttl)


class Machine:
    """One of several that share a store, with an index of its own."""

    def __init__(self, store: Store, clock: FakeClock, new_id: Callable[[], str]) -> None:
        self.clock = clock
        self.index = LexicalIndex(":memory:")
        self.items = NamespaceItems(
            store,
            PLACE,
            index=self.index,
            text_of=lambda kept: str(kept.value["text"]),
            register=lambda: None,
            confirm_registered=lambda: None,
            clock=clock,
            new_id=new_id,
        )

    def put(self, key: str, text: str | None, ttl: float | None = None) -> None:
        self.items.put({key: None if text is None else item(text, self.clock, ttl)})

    def found(self, query: str) -> list[str]:
        return sorted(key for key, _, _ in self.items.find(query, 100, lambda _: True))

    def indexed(self, query: str) -> int:
        """How many documents the index has, whether the store has them or not."""
        return len(self.index.search(PLACE, query, 100))


def machines(store: Store) -> tuple[Machine, Machine, FakeClock]:
    clock, ids = FakeClock(), itertools.count()
    here, there = (Machine(store, clock, lambda: f"e{next(ids)}") for _ in range(2))
    return here, there, clock


def busy(machine: Machine, store: Store) -> None:
    """So many changes that the log is tidied, once."""
    for n in range(160):
        if COMPACTION_KEY in store.get(PLACE):
            return
        machine.put("often", f"a walk in the rain, number {n}")
    raise AssertionError


def test_an_index_that_is_far_behind_does_not_keep_what_was_removed_and_tidied(any_store: Store) -> None:
    here, there, _ = machines(any_store)
    here.put("secret", "The code of the safe is zebra.")
    here.put("stays", "The safe is behind the painting.")
    assert there.found("safe") == ["secret", "stays"]
    here.put("secret", None)
    busy(here, any_store)
    assert there.found("safe") == ["stays"]
    assert there.indexed("zebra") == 0
    assert there.found("walk") == ["often"]


def test_an_index_that_is_behind_two_tidyings_does_not_keep_what_the_first_removed() -> None:
    store = MemoryStore()
    here, there, _ = machines(store)
    here.put("early", "a walk")
    here.put("secret", "The code of the safe is zebra.")
    here.put("stays", "The safe is behind the painting.")
    assert there.found("safe") == ["secret", "stays"]
    here.put("secret", None)
    for n in range(5):
        here.put(f"late {n}", "in the rain")
    here.items.tidy()
    here.put("early", "a longer walk")
    here.items.tidy()  # removes an entry from before the one that told of the secret's removal
    assert there.found("safe") == ["stays"]
    assert there.indexed("zebra") == 0


def test_an_index_that_is_a_little_behind_goes_on_from_where_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    here, there, _ = machines(store)
    while COMPACTION_KEY not in store.get(PLACE):
        assert there.found("walk") == here.found("walk")
        here.put("often", "a walk in the rain")
    with caplog.at_level(logging.INFO):
        assert there.found("walk") == here.found("walk") == ["often"]
    assert "is rebuilt" not in caplog.text


def test_the_mark_is_no_item(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    here, there, clock = machines(any_store)
    here.put("soon gone", "a walk", ttl=5)
    busy(here, any_store)
    assert set(there.items.all()) == {"soon gone", "often"}
    clock.advance(6)
    assert set(there.items.all()) == {"often"}
    there.items.tidy()
    assert "damaged" not in caplog.text
    here.put("often", None)
    assert here.items.is_empty()
    assert there.items.close()
    assert there.found("walk") == []


def test_the_log_stays_short_though_it_is_seldom_tidied(monkeypatch: pytest.MonkeyPatch) -> None:
    store, tidied = MemoryStore(), []
    monkeypatch.setattr(NamespaceItems, "_tidy", lambda items, tidy=NamespaceItems._tidy: tidied.append(tidy(items)))
    here, _, _ = machines(store)
    for n in range(600):
        here.put(f"key {n % 5}", f"a walk, number {n}")
        assert store.scan(PLACE, limit=0).total <= 2 * 5 + 64 + 1
    assert 1 < len(tidied) < 600 / 30


_DEEDS = st.tuples(
    st.sampled_from("HT"), st.sampled_from(["put", "put", "remove", "find", "tidy"]), st.sampled_from("abcd")
)


@given(st.lists(_DEEDS, max_size=40))
def test_whatever_two_machines_do_their_indexes_hold_what_is_there(deeds: list[tuple[str, str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_items, "_MAX_EXTRA_ENTRIES", 2)
        here, there, _ = machines(MemoryStore())
        numbers, there_are = itertools.count(), dict[str, str]()
        for who, deed, key in deeds:
            machine = here if who == "H" else there
            if deed == "put":
                there_are[key] = f"walk v{next(numbers)}"
                machine.put(key, there_are[key])
            elif deed == "remove":
                there_are.pop(key, None)
                machine.put(key, None)
            elif deed == "tidy":
                machine.items.tidy()
            else:
                machine.found("walk")
        for machine in (here, there):
            assert machine.found("walk") == sorted(there_are)
            assert machine.indexed("walk") == len(there_are)
            assert all(machine.indexed(text.split()[1]) == 1 for text in there_are.values())
            machine.index.close()


class Name(str):
    """A key that counts how often one is compared with another."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_what_expired_is_removed_without_comparing_all_of_it_with_all() -> None:
    class Named(MemoryStore):
        def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
            return {Name(key): data for key, data in super().get(namespace, keys).items()}

    clock = FakeClock()
    store = Named(clock=clock)
    machine = Machine(store, clock, map("e{}".format, itertools.count()).__next__)
    for n in range(20):
        machine.items.put({f"{n}-{m}": item("a walk", clock, 60) for m in range(50)})
    machine.put("stays", "in the rain")
    clock.advance(61)
    Name.compared = 0
    assert list(machine.items.all()) == ["stays"]
    assert Name.compared < 20 * 1000
    assert store.get(PLACE).keys() == {"census", COMPACTION_KEY, "stays/"}
