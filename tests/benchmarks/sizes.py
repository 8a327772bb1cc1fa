"""How many bytes a kept message takes: ``python -m tests.benchmarks.sizes [sqlite:///file.db | redis://host:6379/9]``.

Without a URL in a file that is removed at the end. The store must be empty: of a server, used memory is compared.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from langmem_adapters import BrainMemory, Message, open_store
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.inspection import unwrap
from langmem_adapters.operations import Checkup
from langmem_adapters.protocols import Store

_SHAPES = ((1, 20_000), (1000, 20), (10, 2000))  # sessions, messages in each
_LENGTHS = (100, 700, 4000)  # characters of a message
_REST = 100_000  # bytes by which a server's memory changes all the time


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each shape and length."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments:
        measure(open_store(arguments[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(open_store(f"sqlite:///{Path(folder, 'sizes.db')}"))


def measure(store: Store, shapes: tuple[tuple[int, int], ...] = _SHAPES) -> None:
    """Fill the store, read its size, and empty it again."""
    if any(True for _ in store.namespaces()):
        raise ConfigurationError(f"{store!r} is not empty")
    for sessions, messages in shapes:
        for length in _LENGTHS:
            before = _size(store)
            _fill(store, sessions, messages, "x" * length)
            each = (_size(store) - before) / (sessions * messages)
            shape = f"{sessions:>6,} sessions of {messages:>6,} messages of {length:>5,} characters"
            sys.stdout.write(f"{shape}: {each:>6,.0f} bytes each\n")
            for namespace in list(store.namespaces()):
                store.clear(namespace)
    store.close()


def _fill(store: Store, sessions: int, messages: int, content: str) -> None:
    for session in range(sessions):
        brain = BrainMemory(store, f"session-{session}", user="ada", ttl=86_400)
        for start in range(0, messages, 2):
            pair = [Message(role=role, content=content) for role in ("user", "assistant")]
            brain.add_messages(pair[: messages - start])


def _size(store: Store) -> int:
    """The size when it has come to rest: a server frees memory beside its work."""
    vacuum = getattr(unwrap(store), "vacuum", None)
    if vacuum is not None:
        vacuum()
    last, now = 0, Checkup(store).stats().size or 0
    while abs(now - last) > _REST:
        time.sleep(0.1)
        last, now = now, Checkup(store).stats().size or 0
    return now


if __name__ == "__main__":
    main()
