"""What every store must do."""

from __future__ import annotations

import string
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from langmem_adapters.errors import ConfigurationError, Conflict
from langmem_adapters.protocols import Appended, Item, Page, Store
from langmem_adapters.testing.fakes import FakeClock

__all__ = ["StoreConformance", "pairs", "rises"]

_ODD = ["", "a/b", "a:b", "*", "{x}", "[a]?\\", "\0", "\ud800", "é" * 3000, "🙂", "%2F", " "]
_NS = ("brain", "tenant", "user", "session")


class StoreConformance:
    """Inherit this, and provide the fixtures ``store`` (empty) and ``clock``, and :meth:`let_ttl_pass`."""

    def let_ttl_pass(self, store: Any, clock: FakeClock, seconds: float) -> None:
        """Make every ttl that is shorter than ``seconds`` run out."""
        raise NotImplementedError

    def test_a_store_answers_the_protocol(self, store: Store) -> None:
        assert isinstance(store, Store)

    def test_what_was_never_written_is_empty(self, store: Store) -> None:
        assert store.scan(_NS, keys=["summary"]) == Page([], 0, {})
        assert store.get(_NS, ["summary"]) == {}
        assert store.get(_NS) == {}
        assert store.recent(_NS[:-1]) == []
        assert list(store.namespaces()) == []
        store.clear(_NS)

    def test_a_log_keeps_its_order_in_a_batch_and_one_by_one(self, store: Store) -> None:
        batch = [(f"a{n}", f"data {n}".encode()) for n in range(1000)]
        single = [(f"b{n}", bytes([n])) for n in range(100)]
        assert store.append(_NS, batch) == Appended([True] * 1000, 1000, {})
        for total, entry in enumerate(single, start=1001):
            assert store.append(_NS, [entry]) == Appended([True], total, {})
        items = store.scan(_NS).items
        assert [(item.id, item.data) for item in items] == batch + single
        assert rises(items)

    def test_an_id_is_kept_once_whatever_comes_with_it(self, store: Store) -> None:
        store.append(_NS, [("a", b"1"), ("b", b"2")])
        assert store.append(_NS, [("b", b"other"), ("c", b"3"), ("c", b"again")]) == Appended(
            [False, True, False], 3, {}
        )
        assert pairs(store.scan(_NS)) == [("a", b"1"), ("b", b"2"), ("c", b"3")]
        store.write(_NS, append=[("a", b"other"), ("d", b"4")])
        assert [id_ for id_, _ in pairs(store.scan(_NS))] == ["a", "b", "c", "d"]

    def test_scan_reads_the_newest_and_what_came_after(self, store: Store) -> None:
        store.append(_NS, [(str(n), b"") for n in range(10)])
        items = store.scan(_NS).items
        assert store.scan(_NS, limit=3).items == items[:3]
        assert store.scan(_NS, limit=3, reverse=True).items == items[:-4:-1]
        assert store.scan(_NS, after=items[6].seq).items == items[7:]
        assert store.scan(_NS, before=items[3].seq).items == items[:3]
        assert store.scan(_NS, after=items[2].seq, before=items[5].seq).items == items[3:5]
        assert store.scan(_NS, before=items[5].seq, limit=2, reverse=True).items == [items[4], items[3]]
        assert store.scan(_NS, after=items[9].seq) == Page([], 10, {})
        assert store.scan(_NS, limit=0) == Page([], 10, {})

    def test_a_scan_brings_values_along(self, store: Store) -> None:
        store.append(_NS, [("a", b"1")])
        store.write(_NS, put={"summary": b"s", "title": b""})
        page = store.scan(_NS, limit=1, keys=["summary", "title", "none"])
        assert page.total == 1
        assert page.values == {"summary": b"s", "title": b""}

    def test_an_append_brings_values_along(self, store: Store) -> None:
        store.write(_NS, put={"summary": b"s", "title": b""})
        keys = ["summary", "title", "none"]
        values = {"summary": b"s", "title": b""}
        assert store.append(_NS, [("a", b"1")], keys=keys) == Appended([True], 1, values)
        assert store.append(_NS, [("a", b"1"), ("b", b"2")], keys=keys) == Appended([False, True], 2, values)
        assert store.append(_NS, [], keys=keys) == Appended([], 2, values)
        assert store.append(("another", "namespace"), [("a", b"1")], keys=keys).values == {}

    def test_values_are_put_replaced_and_deleted(self, store: Store) -> None:
        store.write(_NS, put={"a": b"1", "b": b"2", "c": bytes(range(256))})
        store.write(_NS, put={"a": b"3"}, delete=["b", "none"])
        assert store.get(_NS) == {"a": b"3", "c": bytes(range(256))}
        assert store.get(_NS, ["a", "b"]) == {"a": b"3"}
        assert store.get(_NS, []) == {}

    def test_log_and_values_change_together(self, store: Store) -> None:
        store.append(_NS, [(str(n), b"") for n in range(5)])
        old = store.scan(_NS, limit=3).items
        store.write(_NS, put={"summary": b"0-2"}, remove=old, append=[("5", b"")])
        page = store.scan(_NS, keys=["summary"])
        assert [item.id for item in page.items] == ["3", "4", "5"]
        assert page.total == 3
        assert page.values == {"summary": b"0-2"}
        store.write(_NS, remove=old)
        assert store.scan(_NS, limit=0).total == 3

    def test_numbers_rise_after_the_newest_was_removed(self, store: Store) -> None:
        store.append(_NS, [("a", b""), ("b", b"")])
        removed = store.scan(_NS).items[1]
        store.write(_NS, remove=[removed])
        store.append(_NS, [("b", b"again")])
        assert store.scan(_NS).items[1].seq > removed.seq

    @pytest.mark.parametrize("guard", [{"a": None}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b"1"}])
    def test_a_guard_that_fails_changes_nothing(self, store: Store, guard: dict[str, bytes | None]) -> None:
        store.append(_NS, [("x", b"")])
        store.write(_NS, put={"a": b"1"})
        before = store.scan(_NS, keys=["a", "b"])
        with pytest.raises(Conflict):
            store.write(_NS, put={"a": b"new"}, delete=["a"], append=[("y", b"")], remove=before.items, guard=guard)
        assert store.scan(_NS, keys=["a", "b"]) == before

    def test_a_guard_that_holds_lets_the_write_through(self, store: Store) -> None:
        store.write(_NS, put={"a": b"1"}, guard={"a": None})
        store.write(_NS, put={"a": b"2"}, guard={"a": b"1", "none": None})
        assert store.get(_NS) == {"a": b"2"}

    def test_guarded_writers_on_threads_lose_no_update(self, store: Store) -> None:
        def count_up() -> None:
            for _ in range(10):
                while True:
                    old = store.get(_NS, ["n"]).get("n")
                    try:
                        store.write(_NS, put={"n": str(int(old or b"0") + 1).encode()}, guard={"n": old})
                    except Conflict:
                        continue
                    break

        _on_threads(8, count_up)
        assert store.get(_NS, ["n"]) == {"n": b"80"}

    def test_appends_on_threads_lose_nothing_and_keep_each_writers_order(self, store: Store) -> None:
        names = iter(string.ascii_lowercase)

        def writer() -> None:
            name = next(names)
            for n in range(25):
                store.append(_NS, [(f"{name}{2 * n:03}", b""), (f"{name}{2 * n + 1:03}", b"")])

        _on_threads(8, writer)
        items = store.scan(_NS).items
        assert len(items) == 400
        assert rises(items)
        for name in string.ascii_lowercase[:8]:
            assert [i.id for i in items if i.id[0] == name] == [f"{name}{n:03}" for n in range(50)]

    @pytest.mark.parametrize("odd", _ODD, ids=range(len(_ODD)))
    def test_names_of_any_characters_are_kept_apart(self, store: Store, odd: str) -> None:
        names = [("k", odd), ("k", odd, ""), ("k", "x", odd), (odd, "k"), ("k" + odd, "x")]
        for n, name in enumerate(names):
            store.append(name, [("id", str(n).encode())])
            store.write(name, put={"key": str(n).encode()})
        for n, name in enumerate(names):
            assert pairs(store.scan(name)) == [("id", str(n).encode())]
            assert store.get(name) == {"key": str(n).encode()}
        assert set(store.namespaces()) == set(names)
        assert [row.namespace for row in store.recent(("k", odd))] == [("k", odd, "")]
        store.clear(names[0])
        assert set(store.namespaces()) == set(names[1:])

    def test_namespaces_go_by_whole_parts_of_the_prefix(self, store: Store) -> None:
        for name in [("a",), ("a", "b"), ("a", "bc"), ("ab",)]:
            store.append(name, [("id", b"")])
        assert set(store.namespaces(("a",))) == {("a",), ("a", "b"), ("a", "bc")}
        assert set(store.namespaces(("a", "b"))) == {("a", "b")}

    def test_a_name_that_is_not_a_tuple_of_strings_is_refused(self, store: Store) -> None:
        for wrong in ("abc", (1,)):
            with pytest.raises(ConfigurationError):
                store.append(wrong, [("id", b"")])  # type: ignore[arg-type]

    def test_recent_lists_children_by_last_write_and_pages(self, store: Store, clock: FakeClock) -> None:
        for n in range(7):
            store.append(("p", str(n)), [("id", b"")])
            clock.advance(1 if n % 3 else 0)  # some share an instant
        store.append(("p", "0"), [("id2", b"")])
        store.append(("p", "0", "deeper"), [("id", b"")])
        whole = store.recent(("p",))
        assert sorted(row.namespace[-1] for row in whole) == [str(n) for n in range(7)]
        assert [row.updated_at for row in whole] == sorted((r.updated_at for r in whole), reverse=True)
        assert whole[0].namespace in {("p", "0"), ("p", "6")}
        paged: list[Any] = []
        while page := store.recent(("p",), limit=2, before=paged[-1] if paged else None):
            paged += page
        assert paged == whole

    def test_a_namespace_expires_as_a_whole(self, store: Store, clock: FakeClock) -> None:
        store.append(_NS, [("a", b"1")], ttl=50)
        store.write(_NS, put={"k": b"v"}, ttl=50)
        store.append((*_NS[:-1], "other"), [("a", b"")])
        self.let_ttl_pass(store, clock, 51)
        assert store.scan(_NS, keys=["k"]) == Page([], 0, {})
        assert store.get(_NS) == {}
        assert [row.namespace[-1] for row in store.recent(_NS[:-1])] == ["other"]
        assert _NS not in set(store.namespaces())
        assert store.append(_NS, [("a", b"2")]) == Appended([True], 1, {})
        assert pairs(store.scan(_NS)) == [("a", b"2")]

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

    def test_clear_removes_one_namespace_and_nothing_else(self, store: Store) -> None:
        others = [("brain", "tenant", "user"), (*_NS, "deeper"), ("brain", "tenant", "user", "sessions")]
        for name in [_NS, *others]:
            store.append(name, [("id", b"")])
            store.write(name, put={"k": b""})
        store.clear(_NS)
        assert store.scan(_NS, keys=["k"]) == Page([], 0, {})
        assert [store.scan(name).total for name in others] == [1, 1, 1]

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        store.append(_NS, [("a", b"")])
        store.close()
        store.close()
        store.append(_NS, [("b", b"")])
        assert store.scan(_NS, limit=0).total == 2

    def test_large_data_comes_back_whole(self, store: Store) -> None:
        data = bytes(range(256)) * 40_000
        store.append(_NS, [("a", data)])
        store.write(_NS, put={"k": data})
        page = store.scan(_NS, keys=["k"])
        assert page.items[0].data == data
        assert page.values["k"] == data


def pairs(page: Page) -> list[tuple[str, bytes]]:
    """Ids and data of a page, without its sequence numbers, which each store makes its own."""
    return [(item.id, item.data) for item in page.items]


def rises(items: list[Item]) -> bool:
    """Whether sequence numbers go up."""
    return all(a.seq < b.seq for a, b in pairwise(items))


def _on_threads(count: int, work: Callable[[], None]) -> None:
    """Do the same on so many threads, all of which begin together."""
    begin = threading.Barrier(count)

    def together() -> None:
        begin.wait()
        work()

    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(together) for _ in range(count)]:
            done.result()
