"""What every store must do for several threads at once."""

from __future__ import annotations

import string
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from langmem_adapters.errors import Conflict
from langmem_adapters.protocols import Store
from langmem_adapters.testing.pages import is_rising

_NS = ("brain", "tenant", "user", "session")


class ConcurrentStoreConformance:
    """The part of :class:`~langmem_adapters.testing.StoreConformance` that runs on threads."""

    def test_writers_on_threads_lose_no_update(self, store: Store) -> None:
        taken: list[int] = []

        def count_up() -> None:
            for _ in range(10):
                while True:
                    old = store.get(_NS, ["n"]).get("n")
                    with suppress(Conflict):
                        store.write(_NS, put={"n": str(int(old or b"0") + 1).encode()}, guard={"n": old})
                        break

        def take() -> None:
            values = store.append(_NS, [], put={"n": b"0"}, keys=["n"]).values.values()
            taken.extend(map(int, values))

        _run_beside(take, *[count_up] * 8)
        assert sum(taken) + int(store.get(_NS, ["n"])["n"]) == 80

    def test_appends_on_threads_lose_nothing_and_keep_each_writers_order(self, store: Store) -> None:
        names = iter(string.ascii_lowercase)

        def writer() -> None:
            name = next(names)
            for n in range(25):
                store.append(_NS, [(f"{name}{2 * n:03}", b""), (f"{name}{2 * n + 1:03}", b"")])

        _run_on_threads(*[writer] * 8)
        items = store.scan(_NS).items
        assert len(items) == 400
        assert is_rising(items)
        for name in string.ascii_lowercase[:8]:
            assert [i.id for i in items if i.id[0] == name] == [f"{name}{n:03}" for n in range(50)]

    def test_an_id_that_threads_append_at_once_is_new_to_one_of_them(self, store: Store) -> None:
        new: list[bool] = []

        def writer() -> None:
            for n in range(25):
                new.extend(store.append(_NS, [(str(n), b"")]).new)

        _run_on_threads(*[writer] * 8)
        assert (sum(new), store.scan(_NS).total) == (25, 25)
        assert [item.id for item in store.scan(_NS).items] == [str(n) for n in range(25)]

    def test_a_value_that_threads_replace_with_an_append_is_told_to_one_of_them(self, store: Store) -> None:
        names = iter(string.ascii_lowercase)
        replaced: list[bytes] = []

        def writer() -> None:
            name = next(names)
            for n in range(10):
                values = store.append(_NS, [("a", b"")], put={"a": f"{name}{n}".encode()}, keys=["a"]).values
                replaced.extend(values.values())

        _run_on_threads(*[writer] * 8)
        replaced.extend(store.get(_NS).values())
        assert sorted(replaced) == [f"{name}{n}".encode() for name in string.ascii_lowercase[:8] for n in range(10)]

    def test_a_reader_sees_no_half_of_a_change(self, store: Store) -> None:
        def write() -> None:
            for n in range(25):
                store.append(_NS, [(f"{n}a", b""), (f"{n}b", b"")])
                store.write(_NS, append=[(f"{n}c", b""), (f"{n}d", b"")], put={"last": f"{n}d".encode()})

        def read() -> None:
            page = store.scan(_NS, keys=["last"])
            ids = [item.id for item in page.items]
            assert page.total == len(ids)
            assert not ids or ids[-1][-1] in "bd"
            assert [page.values[key].decode() for key in page.values] == [id_ for id_ in ids if id_[-1] == "d"][-1:]

        _run_beside(read, write)

    def test_a_reader_sees_no_half_of_a_removal(self, store: Store) -> None:
        store.append(_NS, [(str(n), b"") for n in range(25)], put={"removed": b"0"})
        items = store.scan(_NS).items

        def remove() -> None:
            for n, item in enumerate(items, start=1):
                store.write(_NS, remove=[item], put={"removed": str(n).encode()})

        def read() -> None:
            page = store.scan(_NS, keys=["removed"])
            assert page.items == items[int(page.values["removed"]) :]

        _run_beside(read, remove)

    def test_a_removal_loses_nothing_that_is_appended_meanwhile(self, store: Store) -> None:
        appended: list[str] = []
        removed: list[str] = []

        def append() -> None:
            appended.append(str(len(appended)))
            store.append(_NS, [(appended[-1], b"")])

        def remove() -> None:
            while len(removed) < 50:
                oldest = store.scan(_NS, limit=3).items
                store.write(_NS, remove=oldest)
                removed.extend(item.id for item in oldest)

        _run_beside(append, remove)
        assert [*removed, *(item.id for item in store.scan(_NS).items)] == appended


def _run_beside(meanwhile: Callable[[], None], *calls: Callable[[], None]) -> None:
    """Do each on a thread of its own, and ``meanwhile`` on one more, again and again until they have ended."""
    running = list(calls)

    def call_and_end(call: Callable[[], None]) -> None:
        try:
            call()
        finally:
            running.remove(call)

    def repeat() -> None:
        while running:
            meanwhile()

    _run_on_threads(*(partial(call_and_end, call) for call in calls), repeat)


def _run_on_threads(*calls: Callable[[], None]) -> None:
    """Do each on a thread of its own; all begin together."""
    barrier = threading.Barrier(len(calls))

    def call_together(call: Callable[[], None]) -> None:
        barrier.wait()
        call()

    with ThreadPoolExecutor(len(calls)) as threads:
        for future in [threads.submit(call_together, call) for call in calls]:
            future.result()
