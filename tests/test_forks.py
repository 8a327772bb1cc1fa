"""A child that was forked beside writers in other threads writes, too: no transaction is under way at a fork (G1)."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from langmem_adapters import BrainMemory, LongTermMemory, Message, indexes, stores
from langmem_adapters.concurrency import forks
from langmem_adapters.embedding import Embedder
from langmem_adapters.experience.verified import VerifiedAnswers
from langmem_adapters.experience.verifier.verifier import Verifier
from langmem_adapters.files.database import Database
from langmem_adapters.indexes import open_vectors, shared_index
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import Namespace
from langmem_adapters.langchain import BrainMemoryMiddleware, ExperienceMiddleware
from langmem_adapters.model import Scope
from langmem_adapters.protocols import Store
from langmem_adapters.stores import shared_store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore

SCHEMA = ("CREATE TABLE notes (text TEXT)",)


def write(database: Database) -> None:
    with database.writing() as connection:
        connection.execute("INSERT INTO notes VALUES ('a note')")


def _questions(store: Store) -> VerifiedAnswers:
    index = open_vectors("memory:", Embedder(lambda texts: [[1.0] for _ in texts], name="one"))
    return VerifiedAnswers(store, ("questions",), index, verifier=Verifier())


def forked(work: Callable[[], object]) -> int:
    """The exit code of a child that does this; negative, where it hung."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent is told
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_g1_a_child_forked_beside_a_writer_writes(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", schema=SCHEMA, name="notes")
    write(database)
    inside, finish = threading.Event(), threading.Event()

    def slow() -> None:
        with database.writing() as connection:
            connection.execute("INSERT INTO notes VALUES ('slow')")
            inside.set()
            assert finish.wait(20)

    thread = threading.Thread(target=slow)
    thread.start()
    assert inside.wait(20)
    threading.Timer(0.05, finish.set).start()  # the fork waits for it
    assert forked(lambda: write(database)) == 0
    thread.join()
    assert forks._work_depths == {}
    write(database)
    assert database.fetch_all("SELECT count(*) FROM notes", ()) == [(4,)]
    database.close()


def test_g1_who_is_within_something_is_so_until_the_end_of_all_of_it() -> None:
    with forks.no_fork:
        with forks.no_fork:
            pass
        assert forks._work_depths == {threading.get_ident(): 1}
    assert forks._work_depths == {}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_g1_what_begins_anew_does_so_in_each_child() -> None:
    class Begun:
        times = 0

        def reset_state(self) -> None:
            self.times += 1

    def look() -> None:
        assert begun.times == 2

    begun = Begun()
    forks.reset_in_child(begun)
    assert (begun.times, forked(look), begun.times) == (1, 0, 1)


def test_g1_nobody_begins_to_write_while_a_fork_is_work_depths(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", schema=SCHEMA, name="notes")
    write(database)
    thread = threading.Thread(target=write, args=(database,))
    forks._before_fork()
    try:
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()
    finally:
        forks._after_fork_in_parent()
    thread.join()
    assert database.fetch_all("SELECT count(*) FROM notes", ()) == [(2,)]
    database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # threads of other tests
def test_g1_who_forks_within_a_transaction_waits_for_nobody(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db", schema=SCHEMA, name="notes")
    with database.writing() as connection:
        connection.execute("INSERT INTO notes VALUES ('mine')")
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    write(database)
    database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_a_child_writes_after_all_others_have_closed_the_file_outlives_it(tmp_path: Path) -> None:
    store, index = (Database(tmp_path / "a.db", schema=SCHEMA, name="notes") for _ in range(2))
    write(store)
    write(index)
    (of_child, to_parent), (of_parent, to_child) = os.pipe(), os.pipe()

    def killed_at_its_end() -> None:
        write(store)
        os.write(to_parent, b"!")
        os.read(of_parent, 1)
        write(store)
        os._exit(0)

    def close() -> None:
        os.read(of_child, 1)
        store.close()
        index.close()
        os.write(to_child, b"!")

    closing = threading.Thread(target=close)
    closing.start()
    assert forked(killed_at_its_end) == 0
    closing.join()
    assert store.fetch_all("SELECT count(*) FROM notes", ()) == [(4,)]
    store.close()


class Pause:
    """Holds a thread in the middle of something, until it may go on."""

    def __init__(self) -> None:
        self.inside, self.finish = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.inside.set()
        assert self.finish.wait(20)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_no_child_is_forked_while_a_database_that_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    """For then SQLite holds a lock of its own, and in the child nobody would let it go."""
    databases, pause, closed = [Database(tmp_path / "a.db", schema=SCHEMA, name="notes")], Pause(), list[str]()
    write(databases[0])

    def hold(_frame: FrameType, event: str, what: Any) -> None:
        if event.startswith("c_") and what.__name__ == "close":
            closed.append(event)
            if event == "c_call":
                pause()

    def let_go() -> None:
        sys.setprofile(hold)
        databases.clear()

    thread = threading.Thread(target=let_go)
    thread.start()
    assert pause.inside.wait(20)
    threading.Timer(0.05, pause.finish.set).start()
    assert forked(lambda: closed.index("c_return")) == 0
    thread.join()


def test_who_waits_for_a_fork_waits_for_the_next_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may begin before who waited is awake, and would not wait for what is not under way yet."""

    class TwoForks(threading.Event):
        over = 0

        def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - as an event's
            self.over += 1
            if self.over == 2:
                self.set()
            return True

    door = TwoForks()
    monkeypatch.setattr(forks, "_work_allowed", door)
    with forks.no_fork:
        assert door.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_one_thread_forks_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the end of one fork would let others begin something in the middle of the next."""
    pause, said = Pause(), list[str]()

    def slowly() -> None:
        if threading.current_thread() is thread:
            pause()
        said.append(threading.current_thread().name)

    monkeypatch.setattr(forks, "_calls_before_fork", [slowly])
    thread = threading.Thread(target=lambda: forked(bool), name="first")
    thread.start()
    assert pause.inside.wait(20)
    threading.Timer(0.05, pause.finish.set).start()
    assert forked(lambda: said.index("first")) == 0
    thread.join()
    assert forked(lambda: forked(bool)) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("module", "slow", "opens"), [(stores, "open_store", shared_store), (indexes, "_index_file", shared_index)]
)
def test_a_child_forked_beside_one_who_opens_opens_too(
    monkeypatch: pytest.MonkeyPatch, module: Any, slow: str, opens: Callable[[str], object], *, waits: bool
) -> None:
    pause, original = Pause(), getattr(module, slow)

    def importing(url: str, **options: Any) -> Any:
        if url.endswith("/slow.db"):
            pause()
        return original(url, **options)

    monkeypatch.setattr(module, "_shared", {})
    monkeypatch.setattr(module, slow, importing)
    thread = threading.Thread(target=opens, args=("sqlite:///slow.db",))
    thread.start()
    assert pause.inside.wait(20)
    if waits:
        threading.Timer(0.05, pause.finish.set).start()
    else:  # it takes longer than any fork waits
        monkeypatch.setattr(forks, "_MAX_WAIT_SECONDS", 0.05)
    assert forked(lambda: opens("memory:")) == 0
    pause.finish.set()
    thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.parametrize("used", [False, True])
def test_a_child_that_lets_go_of_a_database_closes_none_of_its_parents_connections(
    used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_calls_before_fork", [])  # as a thread may give one back in the very moment of the fork
    databases = [Database(tmp_path / "a.db", schema=SCHEMA, name="notes")]
    write(databases[0])

    def let_go() -> None:
        theirs = weakref.ref(databases[0]._idle[0])
        if used:
            write(databases[0])
        databases.clear()
        gc.collect()
        connection = theirs()
        assert connection is not None
        connection.interrupt()  # which a closed one refuses

    assert forked(let_go) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_beside_a_change_in_memory_has_all_of_it() -> None:
    store, pause = MemoryStore(), Pause()

    class Slowly(list[tuple[str, bytes]]):
        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            yield "a", b""
            pause()
            yield "b", b""

    entries: Sequence[tuple[str, bytes]] = Slowly()
    thread = threading.Thread(target=store.append, args=(("n",), entries))
    thread.start()
    assert pause.inside.wait(20)
    threading.Timer(0.05, pause.finish.set).start()

    def look() -> None:
        assert [item.id for item in store.scan(("n",)).items] == ["a", "b"]
        assert store.append(("n",), [("c", b"")]).total == 3

    assert forked(look) == 0
    thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "maker", "ask"),
    [
        (BrainMemoryMiddleware, "_make_brain", lambda ours, user: ours.brain("s", user=user)),
        (ExperienceMiddleware, "_make_answers", lambda ours, user: ours._answers_of(Scope(user=user), None)),
        (_questions, "_open_shelf", lambda ours, user: ours._shelf(user)),
    ],
)
def test_g1_a_child_forked_beside_an_agent_has_the_memory_of_others(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Any], maker: str, ask: Callable[[Any, str], object]
) -> None:
    ours, pause = make(store=MemoryStore()), Pause()
    original = getattr(ours, maker)

    def slowly(scope: Any, *more: Any) -> Any:
        if getattr(scope, "user", scope) == "slow":
            pause()
        return original(scope, *more)

    monkeypatch.setattr(ours, maker, slowly)
    thread = threading.Thread(target=ask, args=(ours, "slow"))
    thread.start()
    assert pause.inside.wait(20)
    threading.Timer(0.05, pause.finish.set).start()
    assert forked(lambda: ask(ours, "ada")) == 0
    thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_g1_a_child_forked_beside_a_search_by_meaning_searches() -> None:
    pause = Pause()

    class Slow(LexicalIndex):
        def nameless(self, namespace: Namespace, query: str) -> str:
            if query == "Slowly?":
                pause()
            return super().nameless(namespace, query)

    vectors = open_vectors("memory:", Embedder(lambda texts: [[1.0] for _ in texts], name="one"))
    memory = LongTermMemory(MemoryStore(), Slow(":memory:"), vectors=vectors, user="ada")
    memory.add([Message(role="user", content="My bike is in the shed.")])
    memory.flush()
    thread = threading.Thread(target=memory.search, args=("Slowly?",))
    thread.start()
    assert pause.inside.wait(20)
    exit_code = forked(lambda: memory.search("Where is my bike?"))
    pause.finish.set()
    thread.join()
    assert exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a9_a_forked_child_leaves_a_turn_to_its_parent(tmp_path: Path) -> None:
    """As where a client has left a plain generator, and a pool of processes was started before it was collected."""
    brain = BrainMemory(SQLiteStore(tmp_path / "a.db"), "session")

    def answer() -> Iterator[str]:
        with brain.record_turn("Go on?") as turn:
            yield from turn.watch(["a", "b"])

    pieces = [answer()]
    assert next(pieces[0]) == "a"
    assert forked(pieces.clear) == 0
    assert brain.messages() == []
    pieces.clear()
    assert [message.text for message in brain.messages()] == ["Go on?", "a"]
