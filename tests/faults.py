"""Stores that fail, and many callers at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from langmem_adapters import StoreUnavailable
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore

__all__ = ["CROWD", "Down", "Overtaken", "Refusing", "Slow", "Unplugged", "on_threads"]

CROWD = 50
"""Callers at once."""


class Down(MemoryStore):
    """A store that cannot be reached."""

    def get(self, *_: Any, **__: Any) -> Any:
        raise StoreUnavailable("nobody answers")

    write = get


class Refusing(MemoryStore):
    """A store that takes no writes, while it has a reason."""

    reason = ""

    def write(self, *args: Any, **kwargs: Any) -> None:
        if self.reason:
            raise StoreUnavailable(self.reason)
        super().write(*args, **kwargs)


class Slow(MemoryStore):
    """A store that takes its time to read values."""

    def __init__(self, seconds: float = 0.05) -> None:
        super().__init__()
        self.seconds = seconds

    def get(self, *args: Any, **kwargs: Any) -> dict[str, bytes]:
        time.sleep(self.seconds)
        return super().get(*args, **kwargs)


class Overtaken:
    """A real store in front of which somebody else is quicker, once, when something is about to be written.

    Args:
        store: The store.
        first: What somebody else does.
        as_is_put: The value that is about to be written; default: any, or none.
    """

    def __init__(self, store: Store, first: Callable[[], Any], *, as_is_put: str | None = None) -> None:
        self.store, self.first, self.as_is_put = store, [first], as_is_put

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def write(self, namespace: tuple[str, ...], **changes: Any) -> None:
        if self.first and (self.as_is_put is None or self.as_is_put in changes.get("put", {})):
            self.first.pop()()
        self.store.write(namespace, **changes)


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


def on_threads(work: Callable[[], Any], release: Callable[[], Any]) -> list[Any]:
    """What comes of the work of a crowd of threads, each an answer or an error; ``release`` is called when all run."""
    got: list[Any] = []

    def attempt() -> None:
        try:
            got.append(work())
        except BaseException as error:  # noqa: BLE001 - it is what came of it
            got.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(CROWD)]
    for thread in threads:
        thread.start()
    release()
    for thread in threads:
        thread.join(120)
    assert len(got) == CROWD
    return got
