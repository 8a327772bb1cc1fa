"""H3: a user is deleted everywhere, without a trace, and nobody else is touched."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
import redis
from llama_index.core.llms import ChatMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.concurrency import pauses
from langmem_adapters.embedding import Embedder
from langmem_adapters.encryption import AESGCMCodec
from langmem_adapters.erasure import PLACES, adelete_user, delete_user
from langmem_adapters.errors import ConfigurationError, LangmemError, SearchError, StoreError, StoreUnavailable
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.files import scrubbing
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.indexes.vector import VectorIndex
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.llamaindex import BrainChatStore
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Experience, Message
from langmem_adapters.protocols import Document, Index, Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.settings import Settings
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.working import WorkingMemory
from tests.at_rest import KINDS, Backend, backend, fill, numbers, snapshot
from tests.benchmarks.round_trips import RoundTrips
from tests.servers import RedisServer
from tests.vector_places import word_vectors

MARK = "zq71"  # in all that is written for Ada, but her name
ADA = "user-ada/5"
ENCODED = quote(ADA, safe="").encode()
OTHERS = [("bob", ""), ("", ""), (f"{ADA}/", ""), (ADA[:-1], ""), (f"{ADA}x", ""), ("memories", ""), (ADA, "acme")]


@pytest.fixture(params=KINDS)
def at(request: pytest.FixtureRequest, tmp_path: Path, key_prefix: str) -> Iterator[Backend]:
    server = request.getfixturevalue("redis_server") if request.param == "redis" else None
    with backend(request.param, tmp_path, server, key_prefix) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Backend]:
    with backend("sqlite", tmp_path) as made:
        yield made


def adas(namespace: Namespace) -> bool:
    return namespace[1:3] == ("", ADA) or (namespace[0] == "langgraph" and ADA in namespace and namespace[1] == "")


def found(at: Backend) -> dict[str, Any]:
    """What the others find."""
    read: dict[str, Any] = {}
    for n, (user, tenant) in enumerate(OTHERS):
        items = LongTermStore(store=at.store, index=at.index, tenant=tenant, clock=at.clock)
        read[f"items {n}"] = [(item.namespace, item.key, item.score) for item in items.search((), query=f"other{n}")]
        read[f"names {n}"] = [name for name in items.list_namespaces() if ADA not in name or tenant]
        if user:
            memory = LongTermMemory(at.store, at.index, vectors=at.vectors, user=user, tenant=tenant)
            read[f"memory {n}"] = [(hit.text, hit.score) for hit in memory.search(f"word other{n}")]
        pool = ExperiencePool(at.store, tag=f"tag other{n}", user=user, tenant=tenant, index=at.index)
        read[f"pool {n}"] = [similar.score for similar in pool.query(f"question other{n}")]
    return read


def test_everything_of_a_user_goes_and_nothing_of_others(at: Backend) -> None:
    for n, (user, tenant) in enumerate(OTHERS):
        if user:
            fill(at, user=user, tenant=tenant, mark=f"other{n}")
    fill(at, user=ADA, mark=MARK)
    LongTermStore(store=at.store, index=at.index).put(("team", "x"), "k", {"text": "word"})
    before, read = snapshot(at.store, without=adas), found(at)
    assert MARK.encode() in at.bytes()
    told: list[tuple[str, int]] = []
    counts = delete_user(at.store, at.indexes, user=ADA, report=lambda *it: told.append(it))
    del counts["indexed"]
    assert counts == {
        "sessions": 1,
        "messages": 2,
        "knowledge": 1,
        "summaries": 1,
        "working": 3,
        "memories": 3,
        "experiences": 1,
        "leases": 1,
        "items": 3,
    }
    assert {place: sum(n for name, n in told if name == place) for place in counts} == counts
    assert MARK.encode() not in at.bytes()
    assert not any(adas(name) for name in at.store.namespaces())
    for name, (values, _) in before.items():
        if name[2:3] == ("tree",) and name[1] == "":
            for kind in ("items", "below"):
                values.pop(f"{kind} {quote(ADA, safe='')}/", None)
    assert snapshot(at.store, without=adas) == before
    assert found(at) == read


def test_a_user_who_is_not_there_and_one_deleted_twice(at: Backend) -> None:
    fill(at, user="bob", mark="bob1")
    before = snapshot(at.store)
    assert delete_user(at.store, at.indexes, user=ADA) == dict.fromkeys(PLACES, 0)
    assert snapshot(at.store) == before
    fill(at, user=ADA, mark=MARK)
    assert ENCODED in at.bytes()
    assert delete_user(at.store, at.indexes, user=ADA)["sessions"] == 1
    assert ENCODED not in at.bytes()
    assert ADA.encode() not in at.bytes()
    assert delete_user(at.store, at.indexes, user=ADA) == dict.fromkeys(PLACES, 0)


def test_an_index_that_is_given_twice_is_cleared_once(at: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[Namespace] = []
    clear = type(at.index).clear

    def counted(index: Any, namespace: Namespace) -> None:
        cleared.append(namespace)
        clear(index, namespace)

    monkeypatch.setattr(type(at.index), "clear", counted)
    times = []
    for indexes in (at.indexes, [*at.indexes, *at.indexes]):
        fill(at, user=ADA, mark=MARK)
        cleared.clear()
        delete_user(at.store, indexes, user=ADA)
        times.append(len(cleared))
    assert times[0] == times[1] > 0


def test_a_deleted_user_begins_anew(at: Backend) -> None:
    fill(at, user=ADA, mark=MARK)
    delete_user(at.store, at.indexes, user=ADA)
    fill(at, user=ADA, mark="new1")
    memory = LongTermMemory(at.store, at.index, vectors=at.vectors, user=ADA)
    assert {hit.text for hit in memory.search("word new1", k=9)} == {"word new1 n0", "word new1 n1", "word new1 n2"}
    items = LongTermStore(store=at.store, index=at.index, clock=at.clock)
    assert items.list_namespaces(prefix=("memories",)) == [("memories", ADA), ("memories", ADA, "deep", "new1")]


def test_h3_an_answer_that_is_held_in_memory_goes_too(at: Backend) -> None:
    pool = ExperiencePool(at.store, user=ADA, keep=1000)
    pool.create(Experience(req="Where is my bike?", resp="In the shed."))
    assert pool.query("Where is my bike?", query_type="exact")
    delete_user(at.store, at.indexes, user=ADA)
    assert pool.query("Where is my bike?", query_type="exact") == []


@pytest.mark.parametrize("user", ["", None, 5, ["ada"]])
def test_no_user_is_no_wildcard(at: Backend, user: Any) -> None:
    fill(at, user="bob", mark="bob1")
    before = snapshot(at.store)
    with pytest.raises(ConfigurationError, match="a user"):
        delete_user(at.store, at.indexes, user=user)
    with pytest.raises(ValueError, match="a tenant"):
        delete_user(at.store, at.indexes, user="bob", tenant=None)  # type: ignore[arg-type]
    assert snapshot(at.store) == before


# --- traces -------------------------------------------------------------------------------------------------


def test_what_has_expired_or_was_replaced_leaves_no_trace_either(at: Backend) -> None:
    working = WorkingMemory(at.store, user=ADA, ttl=50, clock=at.clock)
    working.store("c", f"expires {MARK}")
    BrainMemory(at.store, f"old {MARK}", user=ADA, ttl=50, clock=at.clock).add_talk(f"expires {MARK}")
    brain = BrainMemory(at.store, "new", user=ADA, clock=at.clock)
    for n in range(200):
        brain.set_summary(f"{MARK} " * (200 - n))
    brain.set_summary("short")
    at.clock.advance(51)
    delete_user(at.store, at.indexes, user=ADA)
    assert MARK.encode() not in at.bytes()


def test_the_journal_of_a_migration_that_broke_off_forgets_them_too(at: Backend) -> None:
    ours = [("brain", "", ADA, MARK), ("longterm", "", ADA), ("langgraph", "", "tree", "memories", ADA, MARK)]
    others = [("brain", "", "bob", "s"), ("brain", "", f"{ADA}x", "s"), ("longterm", "acme", ADA)]
    journal = {encode_namespace(name): b"0" for name in (*ours, *others)}
    at.store.write(("migration", "to here"), put=journal)
    at.store.write(("migration", "nothing of theirs"), put={"x": b""})
    delete_user(at.store, at.indexes, user=ADA)
    assert set(at.store.get(("migration", "to here"))) == {encode_namespace(name) for name in others}
    assert MARK.encode() not in at.bytes()


def test_an_index_that_its_store_has_forgotten(at: Backend) -> None:
    memory = LongTermMemory(at.store, at.index, vectors=at.vectors, user=ADA)
    memory.add([Message(role="user", content=f"word {MARK}")])
    memory.flush()
    for namespace in [("longterm", "", ADA), ("working", "", ADA, "c"), ("langgraph", "", "items", "memories", ADA)]:
        at.index.apply(namespace, upsert=[Document(MARK, MARK)])
        at.vectors.apply(namespace, upsert=[Document(MARK, MARK)])
    at.index.apply(("longterm", "", "bob"), upsert=[Document("b", "bike")])
    at.store.clear(("longterm", "", ADA))
    assert delete_user(at.store, at.indexes, user=ADA)["indexed"] == 3
    assert MARK.encode() not in at.bytes()
    assert [hit.id for hit in at.index.search(("longterm", "", "bob"), "bike", 1)] == ["b"]


def test_indexes_in_memory_are_cleared_too(at: Backend) -> None:
    words = LexicalIndex(":memory:")
    vectors = open_vectors("memory:", Embedder(numbers, name="numbers-1"))
    memory = LongTermMemory(at.store, words, vectors=vectors, user=ADA)
    memory.add([Message(role="user", content="My bike")])
    memory.flush()
    assert vectors.position(("longterm", "", ADA))
    items = ("langgraph", "", "items", "memories", ADA)
    words.apply(items, upsert=[Document("a", "bike")])  # which has expired in the store
    once = (each for each in (words, vectors))
    delete_user(at.store, once, user=ADA)  # type: ignore[arg-type] # though they can be gone through but once
    assert words.position(("longterm", "", ADA)) is vectors.position(("longterm", "", ADA)) is None
    assert words.search(("longterm", "", ADA), "bike", 1) == words.search(items, "bike", 1) == []


def with_chroma(file: Backend) -> VectorIndex:
    """Vectors in a Chroma folder beside the file."""
    chroma = open_vectors(f"chroma:///{file.folder}/chroma", Embedder(numbers, name="numbers-1"))
    file.others.append(chroma)
    return chroma


def test_chroma_keeps_neither_ids_nor_vectors(file: Backend) -> None:
    chroma = with_chroma(file)
    texts = [Document(f"{MARK}-{n}", f"text {n}") for n in range(1500)]
    chroma.apply(("longterm", "", ADA), upsert=texts, position=(1, MARK))
    chroma.apply(("longterm", "", "bob"), upsert=[Document(f"b{n}", f"b {n}") for n in range(50)])
    folders = [path for path in (file.folder / "chroma").iterdir() if path.is_dir()]
    (file.folder / "chroma" / "mine").mkdir()
    assert MARK.encode() in file.bytes()
    delete_user(file.store, file.indexes, user=ADA)
    assert MARK.encode() not in file.bytes()
    assert len([path for path in folders if path.exists()]) == 1
    assert (file.folder / "chroma" / "mine").is_dir()
    assert [hit.id for hit in chroma.search(("longterm", "", "bob"), "b 7", 1)] == ["b7"]


def test_files_that_cannot_be_removed_as_chroma_has_them_open_are_reported_and_the_same_call_goes_on(
    file: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    chroma = with_chroma(file)
    chroma.apply(("longterm", "", "bob"), upsert=[Document("b", "b")])
    dropped = file.folder / "chroma" / str(uuid.uuid4())
    dropped.mkdir()

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "it is being used", str(path))  # as Windows does

    with monkeypatch.context() as windows:
        windows.setattr(shutil, "rmtree", refuse)
        with pytest.raises(
            StoreUnavailable, match=r"call delete_user again: traces failed \(.*\(it is being used\): end"
        ):
            delete_user(file.store, file.indexes, user=ADA)
    assert delete_user(file.store, file.indexes, user=ADA) == dict.fromkeys(PLACES, 0)
    assert not dropped.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_a_process_beside_chroma_that_fails_is_reported_in_whatever_encoding_it_speaks(
    file: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    chroma = with_chroma(file)
    chroma.apply(("longterm", "", "bob"), upsert=[Document("b", "b")])
    program = file.folder / "python"
    program.write_text(
        "#!/bin/sh\nprintf 'no m\\374del' >&2\nexit 3\n", encoding="ascii"
    )  # as in a code page of Windows
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(StoreError, match=r"another process of .*/python failed: no m\ufffddel"):
        scrubbing.scrub(chroma)


def test_a_reader_who_holds_the_log_is_reported_and_the_same_call_goes_on(
    file: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "_TIMEOUT_SECONDS", 0.05)
    fill(file, user=ADA, mark=MARK)
    with closing(sqlite3.connect(file.folder / "langmem.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM langmem_log").fetchone()
        with pytest.raises(StoreUnavailable, match=r"call delete_user again: traces failed \(.*without a pause"):
            delete_user(file.store, file.indexes, user=ADA)
    assert not any(adas(name) for name in file.store.namespaces())
    assert delete_user(file.store, file.indexes, user=ADA) == dict.fromkeys(PLACES, 0)
    assert MARK.encode() not in file.bytes()


HOLD = """
import fcntl, sys
with open(sys.argv[1], "r+b") as shm:
    fcntl.lockf(shm, fcntl.LOCK_EX, 1, 121)  # SQLite's own lock of who moves a log into its file
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SQLite locks otherwise there")
@pytest.mark.parametrize("act", ["delete_user", "vacuum"])
def test_who_else_moves_the_log_into_the_file_is_waited_for(
    file: Backend, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(file, user=ADA, mark=MARK)
    shm, paused = file.folder / "langmem.db-shm", []
    with subprocess.Popen([sys.executable, "-c", HOLD, shm], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"

        def let_go(seconds: float) -> None:
            paused.append(seconds)
            other.communicate()

        monkeypatch.setattr(pauses, "sleep", let_go)
        if act == "vacuum":
            file.store.clear(("brain", "", ADA, f"session {MARK}"))
            file.store.vacuum()  # type: ignore[attr-defined]
        else:
            delete_user(file.store, file.indexes, user=ADA)
    assert paused
    assert (file.folder / "langmem.db-wal").stat().st_size == 0
    assert f"title {MARK}".encode() not in file.bytes()


# --- failures -----------------------------------------------------------------------------------------------


class Breaking(LexicalIndex):
    """Fails at the n-th clear."""

    def __init__(self, path: Path | str, n: int) -> None:
        super().__init__(path)
        self.left = n

    def clear(self, namespace: Namespace) -> None:
        self.left -= 1
        if self.left == 0:
            raise SearchError("the index is out of order")
        super().clear(namespace)


@pytest.mark.parametrize("n", range(1, 6))
def test_a_failing_index_is_reported_and_the_same_call_goes_on(at: Backend, n: int) -> None:
    fill(at, user=ADA, mark=MARK)
    indexes: list[Index] = [at.vectors, Breaking(at.folder / "langmem.db", n)]
    whole = 2 + 3 + 3 + 1 + 3
    told: list[tuple[str, int]] = []
    with pytest.raises(
        SearchError, match=r"call delete_user again: \w+ failed \(the index is out of order\)"
    ) as raised:
        delete_user(at.store, indexes, user=ADA, report=lambda *it: told.append(it))
    assert MARK not in str(raised.value)
    again = delete_user(at.store, indexes, user=ADA, report=lambda *it: told.append(it))
    kinds = ("messages", "working", "memories", "experiences", "items")
    assert sum(number for place, number in told if place in kinds) == whole
    assert 0 < sum(again[kind] for kind in (*kinds, "leases", "indexed")) < whole
    assert MARK.encode() not in at.bytes()


class Away(LexicalIndex):
    """Fails until it is back."""

    is_back = False

    def clear(self, namespace: Namespace) -> None:
        if not self.is_back:
            raise SearchError("the index is away")
        super().clear(namespace)


def test_what_only_the_store_can_name_in_an_index_stays_until_the_index_forgets_it() -> None:
    store, index = MemoryStore(), Away(":memory:")
    memory = LongTermMemory(store, index, user=ADA)
    memory.add([Message(role="user", content="My bike is in the shed.")])
    memory.flush()
    with pytest.raises(SearchError, match=r"longterm, .* failed \(the index is away\)"):
        delete_user(store, [index], user=ADA)
    (namespace,) = store.namespaces()
    index.is_back = True
    assert delete_user(store, [index], user=ADA)["memories"] == 1
    assert (list(store.namespaces()), index.search(namespace, "bike", 1)) == ([], [])


def test_what_was_deleted_beside_a_failure_is_reported(redis_server: RedisServer, key_prefix: str) -> None:
    with closing(RedisStore(redis_server.url(), prefix=key_prefix)) as store:
        for n in range(40):
            BrainMemory(store, f"s{n}", user=ADA).add_talk("Hello.")
        told: list[tuple[str, int]] = []
        index = Breaking(":memory:", 16 + 3)  # cannot list what it holds, so each namespace is cleared before and after
        with pytest.raises(SearchError, match="brain failed"):
            delete_user(store, [index], user=ADA, report=lambda *it: told.append(it))
        deleted = 40 - len(list(store.namespaces(("brain", "", ADA))))
        assert sum(number for place, number in told if place == "sessions") == deleted == 16


class Faulty(MemoryStore):
    """Fails at the n-th clear."""

    left = 0

    def clear(self, namespace: Namespace) -> None:
        self.left -= 1
        if self.left == 0:
            raise StoreError("the store is out of order")
        super().clear(namespace)


def test_an_index_that_was_not_given_is_noticed_in_the_stores_own_file(file: Backend) -> None:
    fill(file, user=ADA, mark=MARK)
    for given in ([], [file.index]):
        with pytest.raises(
            StoreError, match=r"longterm.* failed .its data comes back: an index that holds it was not given"
        ):
            delete_user(file.store, given, user=ADA)
    delete_user(file.store, file.indexes, user=ADA)
    assert MARK.encode() not in file.bytes()


def test_chromas_folder_is_rewritten_beside_threads_that_use_it(tmp_path: Path) -> None:
    """Chroma has an SQLite of its own: two in one process do not see each other's locks, and damaged the file."""
    vectors = open_vectors(f"chroma:///{tmp_path}/chroma", Embedder(word_vectors, name="words"))
    is_over, failures = threading.Event(), list[Exception]()

    def use(name: str) -> None:
        namespace = ("longterm", "", name)
        for n in itertools.count():
            if is_over.is_set():
                return
            try:
                vectors.apply(namespace, upsert=[Document(str(n), f"a red kite {n}")])
                vectors.search(namespace, "kite", 3)
            except Exception as error:  # noqa: BLE001 - whatever it is
                failures.append(error)

    with ThreadPoolExecutor(3) as threads:
        for name in ("ada", "bob", "eve"):
            threads.submit(use, name)
        for _ in range(12):
            vectors.clear(("longterm", "", "ada"))
            scrubbing.scrub(vectors)
        is_over.set()
    assert not failures
    vectors.close()
    with closing(sqlite3.connect(tmp_path / "chroma" / "chroma.sqlite3")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Busy(LexicalIndex):
    """A search under way indexes again what was just deleted, some times."""

    times = 0

    def clear(self, namespace: Namespace) -> None:
        super().clear(namespace)
        if self.times > 0 and namespace[0] == "longterm":
            self.times -= 1
            self.apply(namespace, upsert=[Document(MARK, MARK)])


def test_what_a_search_under_way_indexes_again_goes_too_or_is_told_of(at: Backend) -> None:
    fill(at, user=ADA, mark=MARK)
    at.index.close()
    at.index = busy = Busy(at.folder / "langmem.db")
    busy.times = 2
    delete_user(at.store, at.indexes, user=ADA)
    assert MARK.encode() not in at.bytes()
    busy.apply(("longterm", "", ADA), upsert=[Document(MARK, MARK)])
    busy.times = 10
    with pytest.raises(StoreError, match=r"longterm failed .its data comes back: .* a writer goes on"):
        delete_user(at.store, at.indexes, user=ADA)


@pytest.mark.parametrize("n", range(1, 16))
def test_a_failing_store_is_reported_and_the_same_call_goes_on(tmp_path: Path, n: int) -> None:
    with backend("memory", tmp_path) as at:
        store = at.store = Faulty(clock=at.clock)
        fill(at, user="bob", mark="bob1")
        fill(at, user=ADA, mark=MARK)
        store.left = n
        with pytest.raises(StoreError, match="out of order"):
            delete_user(store, at.indexes, user=ADA)
        delete_user(store, at.indexes, user=ADA)
        assert not any(ADA in name for name in store.namespaces())
        items = LongTermStore(store=store, index=at.index, clock=at.clock)
        assert items.list_namespaces() == [
            ("bob", "memories"),
            ("memories", "bob"),
            ("memories", "bob", "deep", "bob1"),
        ]
        assert MARK not in repr(store._children)


def test_other_places_go_on_after_one_has_failed(at: Backend) -> None:
    fill(at, user=ADA, mark=MARK)
    with pytest.raises(SearchError, match="longterm failed"):
        delete_user(at.store, [Refusing(at.folder / "langmem.db")], user=ADA)
    assert not any(adas(name) for name in at.store.namespaces())
    assert delete_user(at.store, at.indexes, user=ADA)["indexed"] > 0
    assert MARK.encode() not in at.bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_folder_that_may_not_be_entered_is_reported_and_the_same_call_goes_on() -> None:
    me = os.geteuid()
    with tempfile.TemporaryDirectory(dir=None if me else "/tmp") as folder:
        store, index = MemoryStore(), LexicalIndex(Path(folder, "index.db"))
        memory = LongTermMemory(store, index, user=ADA)
        memory.add([Message(role="user", content=MARK)])
        memory.flush()
        Path(folder).chmod(0)
        os.seteuid(me or 65_534)  # the system's own user may enter
        try:
            with pytest.raises(SearchError, match=r"longterm.* failed .*index\.db is not a file that can be opened"):
                delete_user(store, [index], user=ADA)
            with pytest.raises(StoreError, match="not a file that can be opened"):
                Settings(url=f"sqlite:///{folder}/index.db").delete_user(ADA)
        finally:
            os.seteuid(me)
            Path(folder).chmod(0o700)
        delete_user(store, [index], user=ADA)
        assert not list(store.namespaces())
        assert MARK.encode() not in Path(folder, "index.db").read_bytes()


def test_a_file_on_a_disk_that_does_not_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = LexicalIndex(tmp_path / "index.db")
    memory = LongTermMemory(MemoryStore(), index, user=ADA)
    memory.add([Message(role="user", content=MARK)])
    memory.flush()
    stat = os.stat

    def fail(path: Any, **options: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path)):
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(SearchError, match=r"longterm failed .*index\.db"):
        delete_user(MemoryStore(), [index], user=ADA)  # the store has lost it, by an earlier call


@pytest.mark.parametrize("damaged", ["the beginning", "the rest"])
@pytest.mark.parametrize("disposable", [False, True])
def test_where_the_file_of_an_index_is_damaged_all_else_goes(
    any_store: Store, tmp_path: Path, disposable: bool, damaged: str
) -> None:
    path = tmp_path / "index.db"
    index = LexicalIndex(path, disposable=disposable)
    memory = LongTermMemory(any_store, index, user=ADA)
    memory.add([Message(role="user", content=f"{MARK} {n} {n * n}") for n in range(200)])
    memory.flush()
    BrainMemory(any_store, "s", user=ADA).add_talk(MARK)
    index.close()
    whole = path.read_bytes()
    start = 0 if damaged == "the beginning" else len(whole) // 3
    path.write_bytes(whole[:start] + b"damage" * ((len(whole) - start) // 6))
    told: Any = nullcontext() if disposable else pytest.raises(LangmemError, match=r"longterm.* failed .*index\.db")
    with told:
        delete_user(any_store, [index], user=ADA)
    assert not list(any_store.namespaces())
    path.unlink(missing_ok=disposable)
    assert delete_user(any_store, [index], user=ADA)["memories"] == 0


@pytest.mark.parametrize("damaged", ["the beginning", "the rest"])
def test_where_a_chroma_folder_is_damaged_all_else_goes(any_store: Store, tmp_path: Path, damaged: str) -> None:
    folder = tmp_path / "vectors"

    def memory() -> tuple[LongTermMemory, VectorIndex]:
        vectors = open_vectors(f"chroma:///{folder}", Embedder(lambda texts: [[1.0] for _ in texts], name="ones"))
        return LongTermMemory(any_store, open_index("memory:"), vectors=vectors, user=ADA), vectors

    kept, vectors = memory()
    kept.add([Message(role="user", content=f"{MARK} {n}") for n in range(3)])
    kept.flush()
    LongTermStore(store=any_store).put(("memories", ADA), "k", {"text": MARK})
    vectors.close()
    path = folder / "chroma.sqlite3"
    whole = path.read_bytes()
    path.write_bytes((b"" if damaged == "the beginning" else whole[:4096]) + b"damage" * 9_000)
    kept, vectors = memory()
    for _ in range(2):
        with pytest.raises(SearchError, match=r"longterm.* failed .*vectors failed"):
            delete_user(any_store, [vectors], user=ADA)
        assert not [name for name in any_store.namespaces() if adas(name)]
    shutil.rmtree(folder)
    vectors.close()
    assert delete_user(any_store, [vectors], user=ADA)["memories"] == 0
    vectors.close()


def test_what_a_redis_cannot_read_goes_too(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    with redis.Redis.from_url(redis_server.url()) as raw:
        for session in ("a", "b"):
            BrainMemory(store, session, user=ADA).add_talk(MARK)
        raw.set(store._keys.for_namespace(("brain", "", ADA, "a")).log, MARK)  # as another program might
        delete_user(store, user=ADA)
        assert not list(raw.scan_iter(f"{key_prefix}*"))
    store.close()


def test_what_a_file_cannot_read_goes_too(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "store.db")
    for session in ("a", "b"):
        BrainMemory(store, session, user=ADA).set_title(MARK)
    with closing(sqlite3.connect(tmp_path / "store.db")) as raw:
        raw.execute("UPDATE langmem_values SET key = CAST(x'fffe' AS TEXT) WHERE rowid = 1")
        raw.commit()
    delete_user(store, user=ADA)
    assert not list(store.namespaces())
    assert MARK.encode() not in (tmp_path / "store.db").read_bytes()
    store.close()


class Refusing(LexicalIndex):
    def clear(self, namespace: Namespace) -> None:
        if namespace[0] == "longterm":
            raise SearchError("no")
        super().clear(namespace)


# --- LangGraph ----------------------------------------------------------------------------------------------


def test_items_elsewhere_stay_and_are_told_of(at: Backend, caplog: pytest.LogCaptureFixture) -> None:
    items = LongTermStore(store=at.store, index=at.index, clock=at.clock)
    for namespace in [("docs", ADA), (ADA, "notes"), (ADA, "notes", "deep"), ("docs", "bob"), (ADA, "memories")]:
        items.put(namespace, "k", {"text": "bike"})
    with caplog.at_level(logging.WARNING, logger="langmem_adapters"):
        assert delete_user(at.store, at.indexes, user=ADA)["items"] == 1
    assert caplog.messages == [
        "3 LangGraph namespaces were kept: they name a deleted user outside of the prefixes of items="
    ]
    assert sorted(items.list_namespaces()) == sorted(
        [("docs", "bob"), ("docs", ADA), (ADA, "notes"), (ADA, "notes", "deep")]
    )
    caplog.clear()
    own = [("docs", ADA), (ADA,)]
    assert delete_user(at.store, at.indexes, user=ADA, items=own)["items"] == 3
    assert items.list_namespaces() == [("docs", "bob")]
    assert caplog.messages == []
    assert ENCODED not in at.bytes()


def test_prefixes_without_the_user_are_refused(at: Backend) -> None:
    LongTermStore(store=at.store).put(("memories", "bob"), "k", {"a": "b"})
    for items in ([("memories",)], [()], [("memories", ADA), ("docs",)]):
        with pytest.raises(ConfigurationError, match="others would lose their data"):
            delete_user(at.store, user=ADA, items=items)
    for one in (("memories", "bob"), "bob"):
        with pytest.raises(ConfigurationError, match=r"^items are a list of prefixes, .*, not one prefix$"):
            delete_user(at.store, user="b.o.b", items=cast("Any", one))
    own = (["memories", name] for name in ["bob"])  # as it must be written
    assert delete_user(at.store, user="b.o.b", items=cast("Any", own))["items"] == 1
    with pytest.raises(ConfigurationError, match="others would lose their data"):
        delete_user(at.store, user="b.o.b", items=[()])


# --- Redis, size, faces -------------------------------------------------------------------------------------


def test_redis_looks_through_its_keys_three_times(start_redis: Callable[..., RedisServer], tmp_path: Path) -> None:
    server = start_redis()
    with backend("redis", tmp_path, server, "p:") as at:
        fill(at, user=ADA, mark=MARK)
        with redis.Redis(port=server.port) as client:
            client.config_resetstat()
            delete_user(at.store, at.indexes, user=ADA)
            used = client.info("commandstats")
            # for what there is, whether there is more, and for migrations: each goes through few keys with one SCAN
            assert used["cmdstat_scan"]["calls"] == 3
            assert not used.keys() & {"cmdstat_keys", "cmdstat_flushdb", "cmdstat_flushall", "cmdstat_del"}
            assert {key for key in client.scan_iter("*") if b"{langgraph//tree/" not in key} <= {b"p:{langgraph//}:dir"}
            assert ENCODED not in at.bytes()


def test_the_sessions_of_a_user_are_counted_and_deleted_side_by_side(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant

    def trips(sessions: int) -> int:
        for n in range(sessions):
            BrainMemory(store, f"s{n}", user=ADA).add_talk("Hello.")
        before = door.count
        assert delete_user(store, user=ADA)["messages"] == sessions
        return door.count - before

    assert trips(16) == trips(2)
    assert trips(40) - trips(2) == 2 * 3  # for every 16, what their values and logs are, and their removal


def test_an_index_that_is_no_database_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "i.db").write_bytes(b"no database " * 100)
    with pytest.raises(SearchError, match=r"not deleted completely.* traces failed .*i\.db is not an SQLite database"):
        delete_user(MemoryStore(), [LexicalIndex(tmp_path / "i.db")], user=ADA)


def test_words_in_a_server_s_index_go_however_its_url_is_spelled(
    start_redis: Callable[..., RedisServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    port = start_redis().port
    remembering = Settings(url=f"redis://127.0.0.1:{port}/0?socket_timeout=5").long_term(user=ADA)
    remembering.add([Message(role="user", content=f"My bike is {MARK}.")])
    assert remembering.search(MARK)
    assert Settings(url=f"redis://127.0.0.1:{port}").delete_user(ADA)["indexed"] == 1
    assert MARK.encode() not in b"".join(file.read_bytes() for file in tmp_path.glob("langmem-*"))


def test_rows_of_what_had_expired_leave_the_lists_of_redis(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = start_redis()
    with backend("redis", tmp_path, server, "p:") as at, redis.Redis(port=server.port) as client:
        for session in (f"one {MARK}", f"two {MARK}"):
            BrainMemory(at.store, session, user=ADA, ttl=500).add_talk("Hello")
            WorkingMemory(at.store, user=ADA, ttl=500).store(session, "item")
        WorkingMemory(at.store, user=ADA).store(f"two {MARK}", "item", memory_type="WORKING")
        for key in client.scan_iter("*"):
            if b":dir" not in key and (b"one" in key or b"SHORT" in key or b"brain" in key):
                client.delete(key)
        assert f"two%20{MARK}".encode() in at.bytes()
        delete_user(at.store, at.indexes, user=ADA)
        assert list(client.scan_iter("*")) == []


@pytest.mark.parametrize(("user", "items"), [(ADA, None), ("ada@example.org", [("docs", "ada")])])
def test_lists_go_though_all_that_they_listed_is_gone(
    start_redis: Callable[..., RedisServer], user: str, items: list[Namespace] | None
) -> None:
    url = start_redis().url()
    with redis.Redis.from_url(url) as client, closing(RedisStore(url)) as store:
        for each in (user, "bob"):
            WorkingMemory(store, user=each, ttl=None).store(f"talk {MARK}", "item")
            store.write(("experience", "", each, "tag", "leases"), put={"key": b"1"})
        lists = {key: client.zrange(key, 0, -1) for key in client.scan_iter("*:dir")}
        gone = [key for key in client.scan_iter("*") if key not in lists and b"bob" not in key]
        client.delete(*gone)  # as where a client of a cluster was killed before it removed their rows
        delete_user(store, user=user, items=items)
        assert {key: client.zrange(key, 0, -1) for key in client.scan_iter("*:dir")} == {
            key: rows for key, rows in lists.items() if b"bob" in key
        }


def test_rows_of_items_that_had_expired_leave_the_lists_that_users_share(
    start_redis: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = start_redis()
    with backend("redis", tmp_path, server, "p:") as at, redis.Redis(port=server.port) as client:
        items = LongTermStore(store=at.store)
        for name, ttl in ((("memories", "bob"), None), (("memories", ADA), 10), (("memories", ADA, "x"), 10)):
            items.put(name, "bike", {"is": "red"}, ttl=ttl)
        for key in client.scan_iter("*items/memories/user-ada*"):
            client.delete(key)
        assert delete_user(at.store, at.indexes, user=ADA)["items"] == 0
        rows = {row for key in client.scan_iter("*:dir") for row in client.zrange(key, 0, -1)}
        assert rows == {b"tree/", b"memories/", b"bob/"}


def test_ten_thousand_records_take_less_than_five_seconds(at: Backend) -> None:
    for n in range(200):
        at.store.append(("brain", "", ADA, f"s{n}"), [(f"m{m}", b"x" * 300) for m in range(25)])
        at.store.write(("working", "", ADA, f"c{n}", "WORKING"), append=[(f"m{m}", b"x" * 300) for m in range(10)])
    memory = LongTermMemory(at.store, at.index, vectors=at.vectors, user=ADA)
    memory.add([Message(role="user", content=f"My bike number {n}") for n in range(3000)])
    memory.flush()
    began = time.perf_counter()
    counts = delete_user(at.store, at.indexes, user=ADA)
    assert time.perf_counter() - began < 5
    assert (counts["messages"], counts["working"], counts["memories"]) == (5000, 2000, 3000)


async def test_archived_messages_are_counted(at: Backend) -> None:
    chats = BrainChatStore(store=at.store, user=ADA)
    await chats.set_messages("s", [ChatMessage(role="user", content=f"m{n}") for n in range(12)])
    await chats.archive_oldest_messages("s", 10)
    assert (await adelete_user(at.store, at.indexes, user=ADA))["messages"] == 12


async def test_the_async_twin_and_a_sealed_store_whose_key_is_lost(at: Backend) -> None:
    sealed = SealedStore(at.store, codec=AESGCMCodec({"lost": bytes(32)}))
    fill(at, user=ADA, mark=MARK, store=sealed)
    fill(at, user="bob", mark="bob1", store=sealed)
    counts = await adelete_user(SealedStore(at.store, codec=AESGCMCodec({"other": bytes(32)})), at.indexes, user=ADA)
    assert (counts["messages"], counts["items"]) == (2, 3)
    assert MARK.encode() not in await asyncio.to_thread(at.bytes)
    assert BrainMemory(sealed, "session bob1", user="bob").count() == 2


async def test_the_async_twin_is_told_as_much(at: Backend) -> None:
    fill(at, user=ADA, mark=MARK)
    fill(at, user=ADA, tenant="acme", mark="acme1")
    told: list[tuple[str, int]] = []
    counts = await adelete_user(
        at.store, at.indexes, user=ADA, tenant="acme", items=[], report=lambda *it: told.append(it)
    )
    assert (counts["messages"], counts["items"]) == (2, 0)
    assert ("messages", 2) in told
    assert BrainMemory(at.store, f"session {MARK}", user=ADA).count() == 2


class TestSettings:
    def test_the_file_of_the_settings(self, file: Backend) -> None:
        fill(file, user=ADA, mark=MARK)
        fill(file, user="bob", mark="bob1")
        before = snapshot(file.store, without=adas)
        counts = Settings(url=f"sqlite:///{file.folder}/langmem.db").delete_user(ADA)
        assert (counts["messages"], counts["memories"], counts["items"]) == (2, 3, 3)
        assert MARK.encode() not in file.bytes()
        assert {name: it for name, it in snapshot(file.store).items() if "tree" not in name} == {
            name: it for name, it in before.items() if "tree" not in name
        }
        assert file.vectors.search(("longterm", "", "bob"), "word bob1", 1)

    def test_a_file_that_the_process_has_gone_away_from(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        settings = Settings(url="sqlite:///gone-away.db")
        settings.brain("s", user=ADA).add_talk(MARK)
        memory = settings.long_term(user=ADA)
        memory.add([Message(role="user", content=MARK)])
        assert memory.search(MARK)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir("elsewhere")
        assert settings.delete_user(ADA)["messages"] == 1
        assert not any(MARK.encode() in path.read_bytes() for path in tmp_path.glob("gone-away.db*"))

    async def test_vectors_elsewhere_and_a_tenant(self, tmp_path: Path) -> None:
        url, vectors = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
        embedder = Embedder(numbers, name="numbers-1")
        settings = Settings(url=url, vectors_url=vectors, embedder=embedder, tenant="acme")
        for user in (ADA, "bob"):
            memory = settings.long_term(user=user)
            memory.add([Message(role="user", content="My bike")])
            memory.flush()
        assert ENCODED in (tmp_path / "b.db").read_bytes() + (tmp_path / "b.db-wal").read_bytes()
        assert (await Settings(url=url, vectors_url=vectors).adelete_user(ADA))["memories"] == 0
        places: list[str] = []
        settings = Settings(url=url, vectors_url=vectors, tenant="acme")
        counts = await settings.adelete_user(ADA, report=lambda place, _: places.append(place))
        assert "memories" in places
        assert (counts["memories"], counts["indexed"]) == (1, 1)
        assert ENCODED not in (tmp_path / "b.db").read_bytes() + (tmp_path / "b.db-wal").read_bytes()
        assert settings.long_term(user="bob").search("bike")

    def test_in_memory(self) -> None:
        settings = Settings(url="memory:", tenant="of this test", embedder=Embedder(numbers, name="numbers-1"))
        memory = settings.long_term(user=ADA)
        memory.add([Message(role="user", content="My bike")])
        memory.flush()
        pool = settings.experiences("tag", user=ADA)
        pool.create(Experience(req="a", resp="b"))
        counts = settings.delete_user(ADA)
        assert (counts["memories"], counts["experiences"]) == (1, 1)
        assert memory.search("bike") == []
        with pytest.raises(ConfigurationError):
            settings.delete_user("")


def test_an_index_of_another_machine_is_not_made_here(tmp_path: Path) -> None:
    store: Store = SQLiteStore(tmp_path / "a.db")
    delete_user(store, [LexicalIndex(tmp_path / "missing.db")], user=ADA)
    assert not (tmp_path / "missing.db").exists()
    assert not (tmp_path / "a.db").exists() or store.recent(("brain",)) == []
