"""A server that evicts keys takes some of a namespace's and leaves others: what it left is found again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from langmem_adapters import BrainMemory, LongTermMemory, Message, Sessions, open_index, open_store
from langmem_adapters.errors import StoreError
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import Namespace
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.operations import Migration, Pruning
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.redis import RedisStore
from tests.servers import RedisServer

MEMORIES = ("longterm", "", "ada")
NOTES = ("notes", "ada")


class Server:
    """A store of a real server, which loses keys."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.store = RedisStore(server.url(), prefix=prefix)
        self.raw: Any = redis.Redis.from_url(server.url())

    def evict(self, namespace: Namespace, *kinds: str) -> None:
        place = self.store._keys.for_namespace(namespace)
        assert self.raw.delete(*(getattr(place, kind) for kind in kinds)) == len(kinds)

    def lives(self, namespace: Namespace) -> list[float]:
        return [self.raw.pttl(key) for key in self.store._keys.for_namespace(namespace)[:3]]


@pytest.fixture
def server(any_redis_server: RedisServer, key_prefix: str) -> Iterator[Server]:
    server = Server(any_redis_server, key_prefix)
    yield server
    server.store.close()
    server.raw.close()


def a_memory(store: Store, index: LexicalIndex) -> LongTermMemory:
    return LongTermMemory(store, index, user="ada", ttl=1000)


def notes(*numbers: int) -> list[Message]:
    return [Message(role="user", content=f"Key {'abcde'[n]} hangs at the door.", id=str(n)) for n in numbers]


def plain(store: RedisStore) -> Store:
    return store


def without_numbers(store: RedisStore) -> Store:
    """The ids of memories hold some."""
    return SealedStore(store, redactor=lambda text: "".join("#" if each.isdigit() else each for each in text))


@pytest.mark.parametrize("kinds", [("log",), ("log", "ids")], ids="+".join)
@pytest.mark.parametrize("seen_through", [plain, without_numbers])
def test_memories_are_found_whose_log_was_evicted(
    server: Server, tmp_path: Path, kinds: tuple[str, ...], seen_through: Callable[[RedisStore], Store]
) -> None:
    store = seen_through(server.store)
    with_index = a_memory(store, LexicalIndex(tmp_path / "index.db"))
    with_index.add([*notes(*range(3)), Message(role="tool", content="The door is green.")], session="s")
    assert len(with_index.search("door")) == 3
    server.evict(MEMORIES, *kinds)
    with_index.add(notes(*range(5)), session="s")
    said = {memory.message.text for memory in with_index.all()}
    assert len(with_index.search("door", 9)) == 5 == len(a_memory(store, LexicalIndex(":memory:")).search("door", 9))
    assert len(with_index.all()) == 6 > len(said)
    assert all(0 < left <= 1_000_000 for left in server.lives(MEMORIES))
    assert with_index.delete([memory.id for memory in with_index.all()]) == 6
    assert with_index.search("door") == []


def test_a_search_goes_on_where_nothing_can_be_written(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = a_memory(server.store, LexicalIndex(":memory:"))
    memory.add(notes(1), session="s")
    assert len(memory.search("door")) == 1
    server.evict(MEMORIES, "log")
    memory.add(notes(2), session="s")

    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError("is a read-only replica")

    monkeypatch.setattr(server.store, "write", refuse)
    assert [found.memory.message.id for found in memory.search("door")] == ["2"]


def test_items_are_listed_and_found_whose_place_or_log_was_evicted(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    items = LongTermStore(store=server.store, index=open_index(f"sqlite:///{tmp_path}/index.db"))
    for n in range(3):
        items.put(NOTES, f"key {n}", {"text": "It hangs at the door."})
    assert len(items.search(NOTES, query="door")) == 3
    server.evict(("langgraph", "", "items", *NOTES), "log")
    assert len(items.search(NOTES, query="door")) == 3
    assert not caplog.messages  # what lies beside the items is not told of as a damaged one
    server.evict(("langgraph", "", "tree"), "values")
    server.evict(("langgraph", "", "tree", "notes"), "values")
    for _ in range(32):
        items.put(NOTES, "key 0", {"text": "It hangs at the door."})
    assert items.list_namespaces() == [NOTES]
    assert len(items.search(NOTES[:1])) == 3


@pytest.mark.parametrize("target", ["memory", "sqlite", "redis"])
def test_sessions_whose_list_was_evicted_are_as_new_as_their_copies(
    server: Server, any_redis_server: RedisServer, key_prefix: str, tmp_path: Path, target: str
) -> None:
    for session in ("monday", "tuesday"):
        BrainMemory(server.store, session, user="ada", ttl=1000 if session == "monday" else None).add_talk("Hello.")
    server.evict(("brain", "", "ada", "monday"), "directory")
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/copy.db"}
    copy = (
        open_store(urls[target]) if target in urls else RedisStore(any_redis_server.url(), prefix=f"{key_prefix}copy:")
    )
    for _ in range(2):
        assert Migration(server.store, copy).run().differing == []
        assert Pruning(copy, older_than=3600).run().kinds == {}
        assert {info.session for info in Sessions(copy, user="ada").list_sessions()} == {"monday", "tuesday"}
    dates = [copy.dates(("brain", "", "ada", session)) for session in ("monday", "tuesday")]  # type: ignore[attr-defined]
    assert [990 < (each.expires_in or 0) <= 1000 for each in dates] == [True, False]
    copy.close()
