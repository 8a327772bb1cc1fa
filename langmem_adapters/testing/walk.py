"""Random operations on a store, and the same ones on a MemoryStore beside it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from langmem_adapters.errors import Conflict
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing.fakes import FakeClock
from langmem_adapters.testing.pages import ids_and_data, is_rising

_ids = st.sampled_from([f"id{n}" for n in range(12)])
_keys = st.sampled_from(["summary", "title", "k\0", "", "id1", "id2"])
_data = st.binary(max_size=8)
_entries = st.lists(st.tuples(_ids, _data), max_size=4)
_names: st.SearchStrategy[Namespace] = st.sampled_from([("b", "s"), ("b", "t"), ("b", ""), ("c", "s", "x")])
_ttls = st.none() | st.just(3600.0)


def store_walk(make: Callable[[FakeClock], Store]) -> type:  # noqa: C901 - a class of small rules
    """A Hypothesis state machine: random operations on a new store, and on a MemoryStore beside it."""

    class Walk(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.clock = FakeClock()
            self.store = make(self.clock)
            self.oracle = MemoryStore(clock=self.clock)
            self.stores = (self.store, self.oracle)

        @rule(name=_names, entries=_entries, put=st.dictionaries(_keys, _data, max_size=2), ttl=_ttls)
        def append(
            self, name: Namespace, entries: list[tuple[str, bytes]], put: dict[str, bytes], ttl: float | None
        ) -> None:
            self.clock.advance(1)
            keys = ["title", "", "id1"]
            ours, theirs = (store.append(name, entries, put=put, keys=keys, ttl=ttl) for store in self.stores)
            assert ours == theirs

        @rule(
            name=_names,
            put=st.dictionaries(_keys, _data, max_size=2),
            delete=st.lists(_keys, max_size=2),
            append=_entries,
            remove=st.sets(st.integers(0, 11), max_size=3),
            guard=st.none() | st.tuples(_keys, st.booleans()),
            ttl=_ttls,
        )
        def write(  # noqa: PLR0917 - Hypothesis gives them by name
            self,
            name: Namespace,
            put: dict[str, bytes],
            delete: list[str],
            append: list[tuple[str, bytes]],
            remove: set[int],
            guard: tuple[str, bool] | None,
            ttl: float | None,
        ) -> None:
            self.clock.advance(1)
            outcomes = []
            for store in self.stores:
                items = store.scan(name).items
                chosen = [items[n] for n in remove if n < len(items)]
                expected = None
                if guard is not None:
                    key, right = guard
                    value = store.get(name, [key]).get(key)
                    expected = {key: value if right else b"a wrong guess"}
                try:
                    store.write(name, put=put, delete=delete, append=append, remove=chosen, guard=expected, ttl=ttl)
                    outcomes.append("written")
                except Conflict:
                    outcomes.append("conflict")
            assert outcomes[0] == outcomes[1]

        @precondition(lambda self: any(True for _ in self.oracle.namespaces()))
        @rule(name=_names)
        def clear(self, name: Namespace) -> None:
            self.store.clear(name)
            self.oracle.clear(name)

        @rule(name=_names, n=st.integers(0, 11), limit=st.none() | st.integers(0, 5), reverse=st.booleans())
        def scan(self, name: Namespace, n: int, limit: int | None, reverse: bool) -> None:
            pages = []
            for store in self.stores:
                items = store.scan(name).items
                after = items[n].seq if n < len(items) else 0
                pages.append(store.scan(name, after=after, limit=limit, reverse=reverse, keys=["title"]))
            ours, theirs = pages
            assert ids_and_data(ours) == ids_and_data(theirs)
            assert ours[1:] == theirs[1:]
            assert is_rising(ours.items[::-1] if reverse else ours.items)

        @invariant()
        def same_everywhere(self) -> None:
            assert set(self.store.namespaces()) == set(self.oracle.namespaces())
            assert self.store.recent(("b",)) == self.oracle.recent(("b",))
            for name in self.oracle.namespaces():
                assert self.store.get(name) == self.oracle.get(name)

        def teardown(self) -> None:
            for name in list(self.store.namespaces()):
                self.store.clear(name)
            self.store.close()

    case: type = Walk.TestCase
    case.settings = settings(  # type: ignore[attr-defined]
        max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return case
