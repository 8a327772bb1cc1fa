"""What every store must do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from langmem_adapters.errors import ConfigurationError, Conflict, SerializationError
from langmem_adapters.keys import Namespace, to_bytes
from langmem_adapters.protocols import Appended, Item, Page, Store
from langmem_adapters.testing.expiring import ExpiringStoreConformance
from langmem_adapters.testing.fakes import FakeClock
from langmem_adapters.testing.pages import ids_and_data, is_rising
from langmem_adapters.testing.threads import ConcurrentStoreConformance

_ODD_TEXTS = ["", "a/b", "a:b", "*", "_", "{x}", "[a]?\\", "\0", "\ud800", "é" * 3000, "🙂", "%2F", " "]
# The same for some databases.
_SIMILAR_TEXTS = [
    "key",
    "KEY",
    "key ",
    "key\0",
    "k\u00e9y",
    "ke\u0301y",
    "k\uff45y",
    "1",
    "01",
    "1.0",
    "x" * 3000,
    "x" * 3001,
]
_NS = ("brain", "tenant", "user", "session")


class StoreConformance(ConcurrentStoreConformance, ExpiringStoreConformance):
    """Inherit this, and provide the fixtures ``store`` (empty) and ``clock``, and :meth:`let_ttl_pass`."""

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
        assert is_rising(items)

    def test_an_id_is_kept_once_whatever_comes_with_it(self, store: Store) -> None:
        store.append(_NS, [("a", b"1"), ("b", b"2")])
        assert store.append(_NS, [("b", b"other"), ("c", b"3"), ("c", b"again")]) == Appended(
            [False, True, False], 3, {}
        )
        assert ids_and_data(store.scan(_NS)) == [("a", b"1"), ("b", b"2"), ("c", b"3")]
        store.write(_NS, append=[("a", b"other"), ("d", b"4")])
        assert [id_ for id_, _ in ids_and_data(store.scan(_NS))] == ["a", "b", "c", "d"]

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
        assert store.scan(_NS, after=items[5].seq, limit=2).items == items[6:8]
        assert store.scan(_NS, after=items[5].seq, reverse=True).items == items[:5:-1]
        assert store.scan(_NS, after=items[2].seq, before=items[8].seq, limit=2, reverse=True).items == items[7:5:-1]
        assert store.scan(_NS, before=0) == Page([], 10, {})

    def test_bounds_may_be_those_of_removed_entries_and_bound_the_entries_alone(self, store: Store) -> None:
        store.append(_NS, [(str(n), b"") for n in range(8)], put={"k": b"v"})
        items = store.scan(_NS).items
        store.write(_NS, remove=[items[2], items[6]])
        after, before = items[2].seq, items[6].seq
        left: list[tuple[dict[str, Any], list[Item]]] = [
            ({"after": after}, [*items[3:6], items[7]]),
            ({"before": before}, [*items[:2], *items[3:6]]),
            ({"after": after, "before": before}, items[3:6]),
        ]
        for bounds, entries in left:
            assert store.scan(_NS, keys=["k"], **bounds) == Page(entries, 6, {"k": b"v"})
            assert store.scan(_NS, keys=["k"], reverse=True, **bounds) == Page(entries[::-1], 6, {"k": b"v"})

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

    def test_an_append_puts_values_and_brings_along_those_from_before(self, store: Store) -> None:
        keys = ["a", "title"]
        assert store.append(_NS, [("a", b"1")], put={"a": b"v", "title": b"t"}, keys=keys) == Appended([True], 1, {})
        both = {"a": b"v", "title": b"t"}
        assert store.append(_NS, [("b", b"2")], put={"b": b""}, keys=keys) == Appended([True], 2, both)
        assert store.append(_NS, [("a", b"again")], put={"a": b"w"}, keys=keys) == Appended([False], 2, both)
        assert store.append(_NS, [], put={"title": b"u"}, keys=["title"]) == Appended([], 2, {"title": b"t"})
        assert store.get(_NS) == {"a": b"w", "b": b"", "title": b"u"}
        assert [(item.id, item.data) for item in store.scan(_NS).items] == [("a", b"1"), ("b", b"2")]

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
        again = store.scan(_NS).items[1]
        assert again.seq > removed.seq
        store.write(_NS, remove=[again])
        store.close()
        store.append(_NS, [("c", b"")])
        assert store.scan(_NS).items[1].seq > again.seq

    def test_numbers_rise_after_the_namespace_was_removed(self, store: Store) -> None:
        removed: list[Item] = []
        for _ in range(20):
            store.append(_NS, [("a", b"")])
            removed += store.scan(_NS).items
            store.clear(_NS)
        assert is_rising(removed)

    def test_what_was_written_again_is_not_what_was_to_be_removed(self, store: Store) -> None:
        store.append(_NS, [("a", b"")])
        old = store.scan(_NS).items
        store.write(_NS, remove=old)
        store.append(_NS, [("a", b"again")])
        store.write(_NS, remove=old)
        assert ids_and_data(store.scan(_NS)) == [("a", b"again")]

    @pytest.mark.parametrize(
        "guard", [{"a": None}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b"1"}, {"b": b""}, {"empty": None}]
    )
    def test_a_guard_that_fails_changes_nothing(self, store: Store, guard: dict[str, bytes | None]) -> None:
        store.append(_NS, [("x", b"")])
        store.write(_NS, put={"a": b"1", "empty": b""})
        before = store.scan(_NS, keys=["a", "b", "empty"])
        with pytest.raises(Conflict):
            store.write(_NS, put={"a": b"new"}, delete=["a"], append=[("y", b"")], remove=before.items, guard=guard)
        assert store.scan(_NS, keys=["a", "b", "empty"]) == before

    def test_a_guard_that_holds_lets_the_write_through(self, store: Store) -> None:
        store.write(_NS, put={"a": b"1"}, guard={"a": None})
        store.write(_NS, put={"a": b"2"}, guard={"a": b"1", "none": None})
        assert store.get(_NS) == {"a": b"2"}

    @pytest.mark.parametrize("odd", _ODD_TEXTS, ids=range(len(_ODD_TEXTS)))
    def test_names_of_any_characters_are_kept_apart(self, store: Store, odd: str) -> None:
        names = [("k", odd), ("k", odd, ""), ("k", "x", odd), (odd, "k"), ("k" + odd, "x")]
        for n, name in enumerate(names):
            store.append(name, [("id", str(n).encode())])
            store.write(name, put={"key": str(n).encode()})
        for n, name in enumerate(names):
            assert ids_and_data(store.scan(name)) == [("id", str(n).encode())]
            assert store.get(name) == {"key": str(n).encode()}
        assert set(store.namespaces()) == set(names)
        assert set(store.namespaces(("k", odd))) == {("k", odd), ("k", odd, "")}
        assert [row.namespace for row in store.recent(("k", odd))] == [("k", odd, "")]
        store.clear(names[0])
        assert set(store.namespaces()) == set(names[1:])

    def test_names_ids_and_keys_that_look_alike_are_others(self, store: Store) -> None:
        for text in _SIMILAR_TEXTS:
            store.append(("k", text), [("id", to_bytes(text))])
        assert [ids_and_data(store.scan(("k", text))) for text in _SIMILAR_TEXTS] == [
            [("id", to_bytes(text))] for text in _SIMILAR_TEXTS
        ]
        assert {row.namespace for row in store.recent(("k",))} == {("k", text) for text in _SIMILAR_TEXTS}
        texts = [*_SIMILAR_TEXTS, *(odd for odd in _ODD_TEXTS if odd != "\ud800")]
        store.append(_NS, [(text, to_bytes(text)) for text in texts])
        store.write(_NS, put={text: to_bytes(text) for text in texts})
        assert ids_and_data(store.scan(_NS)) == [(text, to_bytes(text)) for text in texts]
        assert store.get(_NS) == store.get(_NS, texts) == {text: to_bytes(text) for text in texts}

    def test_what_is_half_a_character_is_kept_or_refused(self, store: Store) -> None:
        entries, entries_with_half = [("a", b"")], [("a", b""), ("\ud800", b"")]
        changes: list[Callable[[Namespace], object]] = [
            lambda name: store.append(name, entries_with_half, put={"k": b""}),
            lambda name: store.write(name, append=entries_with_half, put={"k": b""}),
            lambda name: store.write(name, append=entries, put={"k": b"", "\ud800": b""}),
        ]
        for n, change in enumerate(changes):
            name = (*_NS, str(n))
            with suppress(SerializationError):
                change(name)
            written = {item.id for item in store.scan(name).items} | store.get(name).keys()
            assert written in ({"a", "k", "\ud800"}, set())  # with all that comes with it

    def test_namespaces_go_by_whole_parts_of_the_prefix(self, store: Store) -> None:
        for name in [("a",), ("a", "b"), ("a", "bc"), ("ab",)]:
            store.append(name, [("id", b"")])
        assert set(store.namespaces(("a",))) == {("a",), ("a", "b"), ("a", "bc")}
        assert set(store.namespaces(("a", "b"))) == {("a", "b")}
        assert {row.namespace for row in store.recent(())} == {("a",), ("ab",)}
        for name in store.namespaces():  # and may be cleared on the way
            store.clear(name)
        assert list(store.namespaces()) == []

    def test_more_namespaces_are_listed_than_go_onto_a_page(self, store: Store) -> None:
        names = {("p", str(n)) for n in range(1100)}
        for name in names:
            store.append(name, [("id", b"")])
        assert set(store.namespaces(("p",))) == {row.namespace for row in store.recent(("p",))} == names

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
        store.append(("p", "none", "deeper"), [("id", b"")])
        rows = store.recent(("p",))
        assert sorted(row.namespace[-1] for row in rows) == [str(n) for n in range(7)]
        assert [row.updated_at for row in rows] == sorted((row.updated_at for row in rows), reverse=True)
        assert rows[0].namespace in {("p", "0"), ("p", "6")}
        paged: list[Any] = []
        while page := store.recent(("p",), limit=2, before=paged[-1] if paged else None):
            paged += page
        assert paged == rows
        assert store.recent(("p",), limit=0) == []
        store.clear(rows[3].namespace)
        assert store.recent(("p",), before=rows[3]) == rows[4:]

    def test_clear_removes_one_namespace_and_nothing_else(self, store: Store) -> None:
        other_names = [("brain", "tenant", "user"), (*_NS, "deeper"), ("brain", "tenant", "user", "sessions")]
        for name in [_NS, *other_names]:
            store.append(name, [("id", b"")])
            store.write(name, put={"k": b""})
        store.clear(_NS)
        assert store.scan(_NS, keys=["k"]) == Page([], 0, {})
        assert [store.scan(name).total for name in other_names] == [1, 1, 1]
        assert [row.namespace[-1] for row in store.recent(_NS[:-1])] == ["sessions"]
        assert store.append(_NS, [("id", b"again")]) == Appended([True], 1, {})

    def test_a_closed_store_can_be_used_again(self, store: Store) -> None:
        store.append(_NS, [("a", b"1")], put={"k": b"v"})
        store.close()
        store.close()
        assert store.append(_NS, [("b", b"2")], keys=["k"]) == Appended([True], 2, {"k": b"v"})
        assert ids_and_data(store.scan(_NS)) == [("a", b"1"), ("b", b"2")]

    def test_large_data_comes_back_whole(self, store: Store) -> None:
        data = bytes(range(256)) * 40_000
        store.append(_NS, [("a", data)])
        store.write(_NS, put={"k": data})
        page = store.scan(_NS, keys=["k"])
        values = [page.values, store.get(_NS), store.append(_NS, [], keys=["k"]).values]
        for part in [page.items[0].data, *(each["k"] for each in values)]:
            assert type(part) is bytes
            assert part == data

    def test_many_are_read_and_changed_at_once(self, store: Store) -> None:
        texts = [str(n) for n in range(3000)]  # more than some databases take in a statement
        store.write(_NS, put=dict.fromkeys(texts, b"v"), append=[(text, b"") for text in texts])
        page = store.scan(_NS, keys=texts)
        assert [len(found) for found in (page.items, page.values, store.get(_NS, texts))] == [3000] * 3
        store.write(_NS, delete=texts, remove=page.items, guard=dict.fromkeys(texts, b"v"))
        assert store.scan(_NS, keys=texts) == Page([], 0, {})

    def test_what_a_store_gave_is_the_callers(self, store: Store) -> None:
        entries, put = [("a", b"1")], {"k": b"v"}
        store.append(_NS, entries)
        store.write(_NS, put=put)
        results: list[Any] = [entries, put, store.scan(_NS, keys=["k"]).items, store.get(_NS)]
        results += [store.scan(_NS, keys=["k"]).values, store.append(_NS, [], keys=["k"]).values]
        for result in results:
            result.clear()
        assert (ids_and_data(store.scan(_NS)), store.get(_NS)) == ([("a", b"1")], {"k": b"v"})
