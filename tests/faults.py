"""Stores that fail, and many callers at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

from langmem_adapters import StoreUnavailable
from langmem_adapters.protocols import Appended, Page, Store
from langmem_adapters.stores.memory import MemoryStore

__all__ = ["CROWD", "Down", "Overtaken", "Refusing", "Slow", "Unplugged", "again_and_again", "on_threads"]

CROWD = 50
"""Callers at once."""


class Down(MemoryStore):
    """A store that cannot be reached."""

    def get(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("nobody answers")

    write = append = get


class Refusing(MemoryStore):
    """A store that takes no writes, while it has a reason."""

    reason = ""

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        self._refuse()
        return super().append(*args, **kwargs)

    def write(self, *args: Any, **kwargs: Any) -> None:
        self._refuse()
        super().write(*args, **kwargs)

    def _refuse(self) -> None:
        if self.reason:
            raise StoreUnavailable(self.reason)


class Broken(MemoryStore):
    """A store that can go away."""

    away = False

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        self._refuse()
        return super().scan(*args, **kwargs)

    def append(self, *args: Any, **kwargs: Any) -> Appended:
        self._refuse()
        return super().append(*args, **kwargs)

    def _refuse(self) -> None:
        if self.away:
            raise StoreUnavailable("the store is away")


class Slow(MemoryStore):
    """A store that takes its time, where it is asked for this."""

    def __init__(self, seconds: float = 0.05, at: Literal["get", "scan"] = "get") -> None:
        super().__init__()
        self._seconds = {at: seconds}

    def get(self, *args: Any, **kwargs: Any) -> dict[str, bytes]:
        time.sleep(self._seconds.get("get", 0))
        return super().get(*args, **kwargs)

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        time.sleep(self._seconds.get("scan", 0))
        return super().scan(*args, **kwargs)


class Overtaken:
    """A real store where somebody else is quicker, once, when something is about to be written.

    Args:
        store: The store.
        first: What somebody else does; what is put into ``first`` later is done, too, each once.
        as_is_put: The value that is about to be written; default: any, or none.
        where: Whether it is this call, by its arguments; default: whichever comes.
        at: What is about to be called, if it is not a write.
        after: Somebody else comes just after that.
    """

    def __init__(
        self,
        store: Any,
        *first: Callable[[], Any],
        as_is_put: str | None = None,
        where: Callable[..., Any] = lambda *_, **__: True,
        at: str = "write",
        after: bool = False,
    ) -> None:
        self.store, self.first, self.at, self.after = store, list(first), at, after
        self._where = where if as_is_put is None else lambda _, **changes: as_is_put in changes.get("put", {})

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)
        if name != self.at:
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            theirs = self.first.pop(0) if self.first and self._where(*args, **kwargs) else bool
            if not self.after:
                theirs()
            answer = method(*args, **kwargs)
            if self.after:
                theirs()
            return answer

        return call


class Unplugged:
    """A real store whose connection fails once, at the n-th call: before it did what it was asked, or after."""

    def __init__(self, store: Store, fail_at: int, *, after: bool) -> None:
        self.store, self.fail_at, self.after, self.calls = store, fail_at, after, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls != self.fail_at:
                return method(*args, **kwargs)
            if self.after:
                method(*args, **kwargs)
            raise StoreUnavailable("the test pulled the plug")

        return call


@contextmanager
def again_and_again(*works: Callable[[], object]) -> Iterator[None]:
    """Each work on a thread of its own, over and over beside what is done here; the end raises an error of theirs."""
    done = threading.Event()

    def repeat(work: Callable[[], object]) -> None:
        while not done.is_set():
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(repeat, work) for work in works]
        try:
            yield
        finally:
            done.set()
    for each in running:
        each.result()


def on_threads(work: Callable[[], Any], release: Callable[[], Any] = lambda: None, *, crowd: int = CROWD) -> list[Any]:
    """What comes of the work of a crowd of threads, each an answer or an error; ``release`` is called when all run."""
    got: list[Any] = []

    def attempt() -> None:
        try:
            got.append(work())
        except BaseException as error:  # noqa: BLE001 - it is what came of it
            got.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(crowd)]
    for thread in threads:
        thread.start()
    release()
    for thread in threads:
        thread.join(120)
    assert len(got) == crowd
    return got
