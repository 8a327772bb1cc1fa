"""What every store must do when a ttl runs out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langmem_adapters.errors import Conflict
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Appended, Page, Store
from langmem_adapters.testing.fakes import FakeClock
from langmem_adapters.testing.pages import ids_and_data

_NS = ("brain", "tenant", "user", "session")


class ExpiringStoreConformance:
    """The part of :class:`~langmem_adapters.testing.StoreConformance` in which time passes."""

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:
        """Make every ttl that is shorter than ``seconds`` run out."""
        raise NotImplementedError

    def test_a_namespace_expires_as_a_whole(self, store: Store, clock: FakeClock) -> None:
        store.append(_NS, [("a", b"1")], ttl=50)
        store.write(_NS, put={"k": b"v"}, ttl=50)
        store.append((*_NS[:-1], "other"), [("a", b"")])
        clock.advance(1)
        store.append((*_NS[:-1], "newest"), [("a", b"")], ttl=49)
        assert store.scan(_NS, keys=["k"]).values == store.get(_NS) == {"k": b"v"}  # reading is no write
        self.let_ttl_pass(store, clock, 51)
        assert store.scan(_NS, keys=["k"]) == Page([], 0, {})
        assert store.get(_NS) == {}
        assert [row.namespace[-1] for row in store.recent(_NS[:-1], limit=1)] == ["other"]
        assert [row.namespace[-1] for row in store.recent(_NS[:-1])] == ["other"]
        assert _NS not in set(store.namespaces())
        assert store.append(_NS, [("a", b"2")]) == Appended([True], 1, {})
        assert ids_and_data(store.scan(_NS)) == [("a", b"2")]
        assert store.get(_NS) == {}

    def test_each_write_states_the_expiry_anew(self, store: Store, clock: FakeClock) -> None:
        store.append(_NS, [("a", b"")], ttl=50)
        store.write(_NS, put={"k": b"v"}, ttl=500)
        self.let_ttl_pass(store, clock, 51)
        assert store.scan(_NS, keys=["k"]).total == 1
        store.append(_NS, [("b", b"")])
        self.let_ttl_pass(store, clock, 501)
        assert store.scan(_NS, keys=["k"]).total == 2
        assert store.get(_NS) == {"k": b"v"}
        store.append(_NS, [("c", b"")])
        store.append(_NS, [("d", b"")], ttl=50)
        self.let_ttl_pass(store, clock, 51)
        assert store.scan(_NS, keys=["k"]) == Page([], 0, {})
        store.write(_NS, put={"k": b"v"}, ttl=50, guard={"k": None})
        assert store.scan(_NS, limit=0).total == 0
        store.write(_NS, put={"k": b"w"})
        self.let_ttl_pass(store, clock, 51)
        store.append(_NS, [("a", b"")], ttl=50)
        store.append(_NS, [("a", b"known")], ttl=500)
        with pytest.raises(Conflict):
            store.write(_NS, put={"k": b"v"}, ttl=50, guard={"k": b"v"})
        self.let_ttl_pass(store, clock, 51)
        assert store.scan(_NS, keys=["k"]).values == {"k": b"w"}

    def test_a_change_of_any_kind_states_the_expiry_anew(self, store: Store, clock: FakeClock) -> None:
        changes: dict[str, Callable[[Namespace, float | None], object]] = {
            "append": lambda name, ttl: store.append(name, [("b", b"")], ttl=ttl),
            "put beside": lambda name, ttl: store.append(name, [], put={"k": b"w"}, ttl=ttl),
            "write": lambda name, ttl: store.write(name, append=[("b", b"")], ttl=ttl),
            "delete": lambda name, ttl: store.write(name, delete=["k"], ttl=ttl),
            "remove": lambda name, ttl: store.write(name, remove=store.scan(name).items, ttl=ttl),
        }
        for kind, change in changes.items():
            for name, old_ttl, new_ttl in [((kind, "goes"), None, 0.9), ((kind, "stays"), 50, None)]:
                store.append(name, [("a", b"")], put={"k": b"v"}, ttl=old_ttl)
                change(name, new_ttl)
        self.let_ttl_pass(store, clock, 51)
        assert set(store.namespaces()) == {(kind, "stays") for kind in changes}
