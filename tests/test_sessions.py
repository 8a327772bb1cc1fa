"""Sessions over every store: listed in pages, kept apart, carried from one store to another (A8, H5)."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from langmem_adapters.brain import BrainMemory
from langmem_adapters.clocks import unix_time
from langmem_adapters.codec import decode
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.conversation.tombstones import DEPARTED, with_departed
from langmem_adapters.errors import ConfigurationError, SerializationError, StoreError
from langmem_adapters.indexes import open_index
from langmem_adapters.keys import SUBAGENT_SUFFIX
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message, Scope, SessionInfo, ToolCall
from langmem_adapters.operations import Checkup
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.allocations import traced
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Overtaken

KINDS = ["memory", "sqlite", "redis"]


def make(request: pytest.FixtureRequest, name: str, clock: Callable[[], float] = time.time) -> Store:
    if request.param == "memory":
        return MemoryStore(clock=clock)
    if request.param == "sqlite":
        return SQLiteStore(cast("Path", request.getfixturevalue("tmp_path")) / f"{name}.db", clock=clock)
    prefix = f"{request.getfixturevalue('key_prefix')}{name}:"
    return RedisStore(request.getfixturevalue("redis_server").url(), prefix=prefix, clock=clock)


@pytest.fixture(params=KINDS)
def other_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    store = make(request, "other")
    yield store
    store.close()


@pytest.fixture(params=KINDS)
def frozen_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    store = make(request, "frozen", FakeClock())
    yield store
    store.close()


class Counting:
    """A real store that is watched: how often it was asked, and how many entries and rows it gave."""

    def __init__(self, store: Store) -> None:
        self.store, self.calls, self.rows = store, 0, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            answer = method(*args, **kwargs)
            self.rows += len(answer.items if hasattr(answer, "total") else answer)
            return answer

        return call


def names(sessions: Sessions, **bounds: Any) -> list[str]:
    return [info.session for info in sessions.list_sessions(**bounds)]


# --- listing


def test_a8_the_latest_activity_comes_first(any_store: Store) -> None:
    for name in ("a", "b", "c", "a"):
        BrainMemory(any_store, name, user="ada").add_talk(f"to {name}")
    BrainMemory(any_store, "b", user="ada").set_title("Bikes")
    sessions = Sessions(any_store, user="ada")
    assert names(sessions) == ["b", "a", "c"]
    listed = sessions.list_sessions()
    assert [(info.title, info.messages) for info in listed] == [("Bikes", 1), ("", 2), ("", 1)]
    first = BrainMemory(any_store, "a", user="ada").messages()[0]
    assert listed[1].created_at == first.created_at
    assert cast("float", listed[1].updated_at) > cast("float", listed[2].updated_at)


TICKING = """
import time
from types import SimpleNamespace
time.time = lambda: 1_800_000_000.0  # within one tick of a clock, as Windows had it before Python 3.13
time.get_clock_info = lambda name: SimpleNamespace(resolution=1 / 64)

from langmem_adapters import BrainMemory, Sessions, open_store
from langmem_adapters.langgraph import LongTermStore

for url in ("memory:", "sqlite:///ticks.db"):
    store = open_store(url)
    items = LongTermStore(store=store)
    for name in "abca":
        BrainMemory(store, name).add_talk("Hello")
        items.put(("notes",), name, {"text": name})
    print(*(session.session for session in Sessions(store).list_sessions()), *(item.key for item in items.search(())))
"""


def test_a8_the_latest_comes_first_also_within_a_tick_of_the_clock(tmp_path: Path) -> None:
    assert _output_of(TICKING, tmp_path) == ["a c b a c b"] * 2


def _output_of(program: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout.splitlines()


def test_a_fine_clock_is_read_as_it_is() -> None:
    times = [unix_time() for _ in range(10_000)]  # two readings may be the same, and none is before another
    assert times == sorted(times)


STOPPED = """
import time
now = [1_800_000_000.0]
time.time = lambda: now[0]  # a test has stopped the clock

from langmem_adapters import open_store

for url in ("memory:", "sqlite:///stopped.db"):
    store = open_store(url)
    for name in "ab":
        store.write(("notes", name), put={"key": b"value"}, ttl=60)
    now[0] += 60
    print(store.get(("notes", "b")))
"""


def test_what_lives_a_minute_is_gone_where_a_stopped_clock_is_put_on_by_a_minute(tmp_path: Path) -> None:
    assert _output_of(STOPPED, tmp_path) == ["{}"] * 2


def test_a8_pages_follow_each_other_even_where_all_times_are_equal(frozen_store: Store) -> None:
    for n in range(25):
        BrainMemory(frozen_store, f"s{n}").add_talk("Hello")
    sessions = Sessions(frozen_store)
    pages = [sessions.list_sessions(10)]
    while pages[-1]:
        pages.append(sessions.list_sessions(10, cursor=pages[-1][-1].cursor))
    assert [len(page) for page in pages] == [10, 10, 5, 0]
    assert sorted(info.session for page in pages for info in page) == sorted(f"s{n}" for n in range(25))


@pytest.mark.parametrize("name", ["a b", " ", "ä/\n%20&", "1.5 x"])
def test_a8_a_cursor_is_a_text_that_any_process_may_go_on_from(any_store: Store, name: str) -> None:
    for session in ("old", name, "new"):
        BrainMemory(any_store, session, user="ada").add_talk("Hello")
    sent = SessionInfo.model_validate_json(Sessions(any_store, user="ada").list_sessions(2)[1].model_dump_json())
    BrainMemory(any_store, name, user="ada").delete([BrainMemory(any_store, name, user="ada").messages()[0].id])
    assert names(Sessions(any_store, user="ada"), cursor=sent.cursor) == ["old"]


def test_a8_a_page_costs_what_is_on_it(any_store: Store) -> None:
    for n in range(200):
        BrainMemory(any_store, f"s{n}").add_messages([Message(role="user", content=str(m)) for m in range(3)])
    counting = Counting(any_store)
    sessions = Sessions(cast("Store", counting))
    last = sessions.list_sessions(10)[-1]
    assert names(sessions, limit=10, cursor=last.cursor) == [f"s{n}" for n in range(189, 179, -1)]
    assert counting.calls <= 2 * (1 + 10)
    assert counting.rows <= 2 * (10 + 10)


def test_a8_the_sessions_of_a_page_share_round_trips(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    for n in range(30):
        BrainMemory(store, f"s{n}").add_messages([Message(role="user", content=str(m)) for m in range(n + 1)])
    before = door.count
    sessions = Sessions(store).list_sessions()
    assert door.count - before == 3  # the rows, which of them are still there, and what is in these
    assert [(info.session, info.messages) for info in sessions] == [(f"s{n}", n + 1) for n in range(29, 9, -1)]


@pytest.mark.parametrize(("user", "trips"), [("ada", 3), ("", 7)])  # without a user, each has a memory of its own
def test_a_session_and_those_of_its_subagents_are_deleted_together(
    distant: tuple[RedisStore, RoundTrips], user: str, trips: int
) -> None:
    store, door = distant
    names = ["s", *(f"s{depth * SUBAGENT_SUFFIX}" for depth in (1, 2, 3, 8))]
    for name in ["other", *names]:
        BrainMemory(store, name, user=user).add_talk("Hello")
    before = door.count
    assert Sessions(store, user=user).delete_session("s")
    assert door.count - before == trips  # whether they exist, the subagents', and the session itself
    assert [info.session for info in Sessions(store, user=user).list_sessions()] == ["other"]
    before = door.count
    assert not Sessions(store, user="nobody").delete_session("s")
    assert door.count - before == 4  # whether they have messages, or values; then as above, as one may come meanwhile


def test_an_imported_session_is_read_once_before_it_is_written(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    brain = BrainMemory(MemoryStore(), "s", user="ada", model=lambda _: "They spoke of a bike.", archive=False)
    brain.add_talk("Hello")
    brain.set_title("Greetings")

    def trips() -> int:
        lines = list(Sessions(brain.store, user="ada").export())
        before = door.count
        assert Sessions(store, user="ada").import_(lines) == 1
        count = door.count - before
        assert list(Sessions(store, user="ada").export()) == lines
        return count

    # its values and its log, then the title and the message (each write reads its guard), and the message's place
    assert trips() == 1 + 2 + 2 + 1
    brain.add_talk("Where is my bike?")
    brain.summarize(keep=1)
    store.clear(brain_namespace(brain.scope))
    # also what has left by now, and for the summary whether there is one, what it would hide, and the write
    assert trips() == 1 + 2 + 1 + 2 + 1 + 1 + 1 + 2


def test_limits(any_store: Store) -> None:
    for n in range(25):
        BrainMemory(any_store, f"s{n}").add_talk("Hello")
    sessions = Sessions(any_store)
    lengths = [len(sessions.list_sessions(limit)) for limit in (None, 20, 1, 0, -1, 1000)]
    assert lengths == [25, 20, 1, 0, 0, 25]
    assert (len(sessions.list_sessions()), sessions.count()) == (20, 25)


def test_the_time_of_the_first_message_outlives_it(any_store: Store) -> None:
    clock = FakeClock()
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "s", user="ada", memory_k=2, long_term=long_term, clock=clock)
    for _ in range(5):
        brain.add_talk("Hello")
        clock.advance(60)
    (info,) = Sessions(any_store, user="ada").list_sessions()
    assert (info.messages, info.created_at) == (2, 1_800_000_000.0)


def test_h5_users_and_tenants_have_their_own_lists(any_store: Store) -> None:
    scopes = [("", ""), ("ada", ""), ("", "acme"), ("ada", "acme"), ("ada/acme", "")]
    for n, (user, tenant) in enumerate(scopes):
        BrainMemory(any_store, f"s{n}", user=user, tenant=tenant).add_talk("Hello")
    of = [Sessions(any_store, user=user, tenant=tenant) for user, tenant in scopes]
    assert [names(sessions) for sessions in of] == [[f"s{n}"] for n in range(5)]
    assert [sessions.delete_session("s0") for sessions in of[1:]] == [False] * 4
    assert b"s0" not in b"".join(of[1].export())
    assert of[0].count() == 1


# --- renaming and deleting


def test_rename_and_delete(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_knowledge(["a fact"])  # a session without messages is one, too
    sessions = Sessions(any_store)
    assert (sessions.rename_session("s", "Title"), brain.get_title()) == (True, "Title")
    assert (sessions.rename_session("none", "Title"), sessions.delete_session("none")) == (False, False)
    assert names(sessions) == ["s"]
    assert (sessions.delete_session("s"), sessions.delete_session("s")) == (True, False)
    assert (names(sessions), brain.get_knowledge(), brain.get_title()) == ([], [], "")


def test_of_two_titles_given_at_once_the_later_stays(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("a")
    store = cast("Store", Overtaken(any_store, lambda: brain.set_title("Theirs"), as_is_put="title"))
    assert (Sessions(store).rename_session("s", "Mine"), brain.get_title()) == (True, "Mine")


@pytest.mark.parametrize("way", [lambda s: Sessions(s.store).delete_session("s"), lambda s: s.clear()])
def test_a_session_whose_memories_cannot_be_deleted_is_still_there(any_store: Store, way: Any) -> None:
    def fail() -> None:
        raise StoreError("no")

    store = cast("Store", Overtaken(any_store, fail, at="clear", where=lambda name: name == ("longterm", "", "", "s")))
    brain = BrainMemory(store, "s", long_term=LongTermMemory(store, open_index("memory:"), session="s"))
    brain.add_talk("A bike.")
    with pytest.raises(StoreError, match="no"):
        way(brain)
    assert names(Sessions(any_store)) == ["s"]


@pytest.mark.parametrize("user", ["", "ada"])
def test_h3_with_a_session_go_those_of_agents_that_its_tools_called(any_store: Store, user: str) -> None:
    others = ["s", "s2", "s2|tools", "s|notes", "s|notes|tools", "t|s|tools", "stools"]
    gone = ["s|tools", "s|tools|tools|tools"]  # the one between them has no memory
    bike = Message(role="user", content="A bike.")
    for name in others + gone:
        LongTermMemory(any_store, open_index("memory:"), user=user, session="" if user else name).add([bike])
        BrainMemory(any_store, name, user=user).add_talk("A bike.")
    BrainMemory(any_store, "s|tools", user="bob").add_talk("A bike.")
    sessions = Sessions(any_store, user=user)
    assert sessions.delete_session("s")
    assert set(names(sessions)) == {*others[1:]}
    left = {namespace[-1] for namespace in any_store.namespaces(("longterm", "", user)) if not user}
    assert left == ({*others[1:]} if not user else set())
    assert names(Sessions(any_store, user="bob")) == ["s|tools"]
    assert not sessions.delete_session("s")


@pytest.mark.parametrize("title", [None, 5, b"bytes", ["a"]])
def test_a_title_is_a_text(title: Any, any_store: Store) -> None:
    brain, sessions = BrainMemory(any_store, "s"), Sessions(any_store)
    brain.add_talk("a")
    with pytest.raises(ConfigurationError, match=f"a title is a text, not {type(title).__name__}"):
        brain.set_title(title)
    with pytest.raises(ConfigurationError, match="a title is a text"):
        sessions.rename_session("s", title)
    assert (brain.get_title(), [info.title for info in sessions.list_sessions()]) == ("", [""])


@pytest.mark.parametrize("stored", [b"null", b"5", b"{", b"\xff"])
def test_a8_a_title_that_is_none_does_not_take_the_list_along(
    stored: bytes, any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    brain, sessions = BrainMemory(any_store, "s"), Sessions(any_store)
    brain.add_talk("a")
    any_store.write(brain_namespace(brain.scope), put={"title": stored})
    assert [(info.session, info.title) for info in sessions.list_sessions()] == [("s", "")]
    assert brain.get_title() == ""
    assert "a stored title is left out" in caplog.text


@pytest.mark.parametrize(
    "stored", [b"{", b'"yesterday"', b"true", b"\xff", b"[" * 20_000, b"9" * 400, b"Infinity"], ids=range(7)
)
def test_a_damaged_value_takes_neither_list_nor_export_along(
    stored: bytes, any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    brain, sessions = BrainMemory(any_store, "s", clock=FakeClock()), Sessions(any_store)
    brain.add_messages([Message(role="user", content="a", id="a"), Message(role="user", content="b", created_at=5.0)])
    brain.delete(["a"])
    brain.set_title("Title")
    BrainMemory(any_store, "other").add_talk("hello")
    damaged = dict.fromkeys(["created", "departed", "knowledge/00000001", "summary", "newer"], stored)
    any_store.write(brain_namespace(brain.scope), put=damaged)
    found = {info.session: info for info in sessions.list_sessions()}
    assert (found["s"].created_at, found["s"].title, found["s"].messages, len(found)) == (5.0, "Title", 1, 2)
    there = Sessions(MemoryStore())
    assert there.import_(sessions.export()) == 2
    assert held(BrainMemory(there.store, "s"))[3] == "Title"
    assert ("newer" in there.store.get(brain_namespace(brain.scope))) == (stored[:1] in b'"t9I')
    for name in ("created", "departed", "knowledge", "summary"):
        assert f"the stored value {name!r} of a session is left out" in caplog.text


# --- export and import


def test_all_sessions_are_exported_however_many_there_are() -> None:
    store, other = MemoryStore(), MemoryStore()
    for n in range(25):
        BrainMemory(store, f"session {n}").add_talk("Hello")
    assert Sessions(other).import_(Sessions(store).export()) == 25
    assert Sessions(other).count() == 25


def test_an_export_reads_each_session_once(any_store: Store) -> None:
    for n in range(25):
        BrainMemory(any_store, f"session {n}").add_talk("Hello")
    counting = Counting(any_store)
    lines = list(Sessions(cast("Store", counting)).export())
    assert len(lines) == 50
    assert counting.calls == 1 + 25 * 3  # the list; then the values, the log, and the values after it


def test_short_sessions_are_exported_side_by_side(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    for n in range(24):
        BrainMemory(store, f"s{n}").add_messages([Message(role="user", content=str(m)) for m in range(n + 1)])
    before = door.count
    lines = [json.loads(line) for line in Sessions(store).export()]
    # the list; of 4, 8 and 12, the values, the log and again the values; of five, more of the log
    assert door.count - before == 2 + 3 * 3 + 5 * 2
    assert [line["session"] for line in lines] == [f"s{n}" for n in range(24) for _ in range(n + 2)]


@pytest.mark.parametrize("face", ["export", "aexport"])
async def test_of_a_session_of_pictures_an_export_holds_few_at_a_time(face: str, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    brain, sessions = BrainMemory(store, "s"), Sessions(store)
    brain.add_messages([Message(role="user", content=f"{n}".ljust(200_000, "x")) for n in range(120)])
    count = 0
    tracemalloc.start()
    try:
        if face == "export":
            count = sum(1 for _ in sessions.export())
        else:
            async for _ in sessions.aexport():
                count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 121
    assert peak < 16_000_000  # of 24,000,000
    store.close()


@pytest.mark.parametrize(
    "read",
    [lambda store: sum(1 for _ in Sessions(store).export()), lambda store: Checkup(store).examine()],
    ids=["export", "examine"],
)
@pytest.mark.parametrize(("at", "max_peak"), [("sqlite", 3_000_000), ("redis", 14_000_000)])
def test_of_sessions_of_pictures_after_small_ones_few_are_held_at_a_time(
    read: Callable[[Store], object], at: str, max_peak: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if at == "sqlite":  # which reads one session at a time, as side by side would be no faster
        store: Store = SQLiteStore(tmp_path / "s.db")
    else:
        store, _ = request.getfixturevalue("distant")
    for n in range(44):
        pictures = ["x" * 50_000] * 10 if n >= 4 else ["Hello."]
        BrainMemory(store, f"s{n:02}").add_messages([Message(role="user", content=picture) for picture in pictures])
    _, _, peak = traced(lambda: read(store))
    assert peak < max_peak  # of 20,000,000
    store.close()


def test_an_import_holds_little_more_than_the_bytes_of_its_lines(tmp_path: Path) -> None:
    fields = {"v": 1, "role": "user", "created_at": 1.5, "content": "My bike is in the shed behind the house."}
    lines = [
        json.dumps({"v": 1, "type": "message", "session": "s", "message": {"id": f"{n:032}", **fields}}).encode()
        for n in range(5_000)
    ]
    store = SQLiteStore(tmp_path / "s.db")
    sessions = Sessions(store)
    sessions.import_(lines[:1])
    added, _, peak = traced(lambda: sessions.import_(lines))
    assert added == 4_999
    assert peak < 5 * sum(map(len, lines))  # parsed, they take more than seven times as much
    store.close()


def test_what_is_exported_can_be_imported_in_the_middle_of_many_calls() -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s")
    brain.add_talk("hello")
    store.write(brain_namespace(brain.scope), put={"newer": b"[" * 700 + b"]" * 700})
    lines = list(Sessions(store).export())

    def called(times: int) -> int:
        return called(times - 1) if times else Sessions(MemoryStore()).import_(lines)

    assert called(400) == 1


def fill(store: Store, session: str) -> BrainMemory:
    brain = BrainMemory(store, session, user="ada", clock=FakeClock())
    call = ToolCall(id="c1", name="look", args={"where": ("shed", b"\x00\xff"), "$type": "bytes"})
    brain.add_messages(
        [
            Message(
                role="user", content=[{"type": "image", "data": b"\x89PNG"}, "What is this? \ud800"], id="\n" * 300
            ),
            Message(role="assistant", tool_calls=[call], metadata={"odd": {1: "one"}}),
            Message(role="tool", content="a bike", tool_call_id="c1", host={"langchain": {"artifact": {1, 2}}}),
        ]
    )
    brain.add_messages([Message(role="user", content=f"number {n}") for n in range(600)])
    brain.add_knowledge(["Ada has a bike.", Message(role="system", content="It is blue.", id="k")])
    brain.set_summary("A bike was found. \udfff")
    brain.set_title("Bikes 日本")
    return brain


def held(brain: BrainMemory) -> tuple[Any, ...]:
    return brain.messages(), brain.get_knowledge(), brain.get_summary(), brain.get_title()


def test_a8_export_and_import_give_equal_sessions_on_every_pair_of_stores(any_store: Store, other_store: Store) -> None:
    originals = [fill(any_store, name) for name in ("monday/morning", "\ud800")]
    lines = list(Sessions(any_store, user="ada").export())
    there = Sessions(other_store, user="bob", tenant="acme")
    assert there.import_(lines) == 2 * 603
    for original in originals:
        copy = BrainMemory(other_store, original.scope.session, user="bob", tenant="acme")
        assert held(copy) == held(original)
    again = there.list_sessions()
    assert {(info.session, info.title, info.created_at) for info in again} == {
        (info.session, info.title, info.created_at) for info in Sessions(any_store, user="ada").list_sessions()
    }
    assert there.import_(lines) == 0
    assert sorted(there.export()) == sorted(lines)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


@pytest.mark.parametrize("archive", [True, False])
def test_a8_what_has_left_since_an_import_is_not_imported_again(any_store: Store, archive: bool) -> None:
    source = BrainMemory(MemoryStore(), "s")
    for n in range(20):
        source.add_messages([Message(role="user", content=f"q{n}"), Message(role="assistant", content=f"a{n}")])
    lines = list(Sessions(source.store).export())
    there = Sessions(any_store)
    assert there.import_(lines) == 40
    brain = BrainMemory(any_store, "s", model=lambda _: "In short.", archive=archive)
    brain.summarize(keep=4)
    before = held(brain)
    assert there.import_(lines) == 0
    assert there.import_(line for line in lines if b'"type":"session"' not in line) == 0
    assert held(brain) == before
    assert [message.text for message in brain.context().messages] == ["q18", "a18", "q19", "a19"]


def test_a8_what_has_left_for_the_long_term_memory_is_not_imported_again(any_store: Store) -> None:
    source = BrainMemory(MemoryStore(), "s")
    source.add_messages([Message(role="user", content=f"q{n}") for n in range(20)])
    lines = list(Sessions(source.store).export())
    there = Sessions(any_store)
    there.import_(lines)
    memory = LongTermMemory(any_store, open_index("memory:"), session="s")
    brain = BrainMemory(any_store, "s", memory_k=10, long_term=memory)
    brain.add_talk("new")
    before = held(brain)
    assert (there.import_(lines), held(brain), memory.count()) == (0, before, 11)
    assert brain.messages()[-1].text == "new"


def test_a8_what_had_left_before_an_export_is_known_where_it_is_imported(any_store: Store, other_store: Store) -> None:
    def session(store: Store) -> BrainMemory:
        long_term = LongTermMemory(store, open_index("memory:"), session="s")
        return BrainMemory(store, "s", memory_k=2, long_term=long_term)

    said = [Message(role="user", content=f"q{n}", id=f"q{n}") for n in range(4)]
    session(any_store).add_messages(said)
    assert Sessions(other_store).import_(Sessions(any_store).export("s")) == 2
    brain = session(other_store)
    brain.add_messages(said[:1])
    assert [message.text for message in brain.messages()] == ["q2", "q3"]


def test_a8_what_was_deleted_since_an_export_is_not_imported_again(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages([Message(role="user", content=f"m{n}", id=f"m{n}") for n in range(4)])
    sessions = Sessions(any_store)
    lines = list(sessions.export())
    brain.delete(["m1"])
    brain.delete(["m2"])
    assert (sessions.import_(lines), [message.text for message in brain.messages()]) == (0, ["m0", "m3"])
    assert "2 imported messages are left out: they were deleted" in caplog.text
    brain.clear()
    assert (sessions.import_(lines), len(brain.messages())) == (4, 4), "a session that was deleted whole is restored"


def test_a8_what_is_new_is_imported_beside_what_has_left(any_store: Store) -> None:
    other, brain = numbered(MemoryStore(), "one", "two", "three"), numbered(any_store, "one", "two")
    brain.delete(["1"])
    lines = list(Sessions(other.store).export())
    assert [Sessions(any_store).import_(lines) for _ in range(2)] == [1, 0]
    assert said(brain) == ["two", "three"]


def test_a8_what_was_deleted_elsewhere_and_said_again_is_imported(any_store: Store, other_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages([Message(role="user", content=f"m{n}", id=f"m{n}") for n in range(3)])
    brain.delete(["m1"])
    brain.add_messages([Message(role="user", content="m1", id="m1")])
    there = Sessions(other_store)
    there.import_(Sessions(any_store).export())
    assert BrainMemory(other_store, "s").messages() == brain.messages()
    assert [message.text for message in brain.messages()] == ["m0", "m2", "m1"]


async def test_a5_an_export_is_the_same_without_blocking_the_loop(any_store: Store) -> None:
    fill(any_store, "monday")
    BrainMemory(any_store, "tuesday", user="ada").add_talk("Good morning.")
    sessions = Sessions(any_store, user="ada")
    assert [line async for line in sessions.aexport()] == list(sessions.export())
    assert [line async for line in sessions.aexport("tuesday")] == list(sessions.export("tuesday"))
    assert [line async for line in Sessions(any_store, user="bob").aexport()] == []


def test_what_is_summarised_while_a_session_is_exported_is_told_in_the_export(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s", model=lambda _: "They spoke of a bike.", archive=False)
    brain.add_messages([Message(role="user", content=f"number {n}") for n in range(25)])
    sessions = Sessions(any_store)
    lines = sessions.export()
    begun = next(lines)
    brain.summarize(keep=1)
    whole = [begun, *lines]
    Sessions(any_store, user="ada").import_(whole)
    there = BrainMemory(any_store, "s", user="ada")
    assert (summary := there.get_summary()) is not None
    assert (summary.text, there.messages()[-1].text) == ("They spoke of a bike.", "number 24")
    assert [json.loads(line)["type"] for line in sessions.export()] == ["session", "message"]  # where nothing changes


def test_one_session_is_exported_alone_and_continues_where_it_is_imported(any_store: Store) -> None:
    for name in ("a", "b"):
        BrainMemory(any_store, name).add_talk(f"to {name}")
    lines = [line.decode() for line in Sessions(any_store).export("a")]
    assert [json.loads(line)["session"] for line in lines] == ["a", "a"]
    Sessions(any_store, user="ada").import_(["\n", *lines, "  \n"])
    copy = BrainMemory(any_store, "a", user="ada")
    copy.add_answer("Hello.")
    assert [message.text for message in copy.messages()] == ["to a", "Hello."]
    assert BrainMemory(any_store, "a").count() == 1


def test_lines_without_ids_are_added_once(any_store: Store) -> None:
    line = {"v": 1, "type": "message", "session": "s", "message": {"v": 1, "role": "user", "content": "yes"}}
    lines = [json.dumps(line)] * 2
    sessions = Sessions(any_store)
    assert (sessions.import_(lines), sessions.import_(lines)) == (2, 0)
    assert [message.text for message in BrainMemory(any_store, "s").messages()] == ["yes", "yes"]


def test_a_damaged_row_is_exported_as_far_as_it_can_be_read(any_store: Store) -> None:
    rows = [("1", b"\xff"), ("2", b'{"v":1,"id":"2","role":"user","content":"kept","tool_calls":5}')]
    any_store.append(brain_namespace(Scope(session="s")), rows)
    there = Sessions(MemoryStore())
    assert there.import_(Sessions(any_store).export()) == 1
    assert [message.text for message in BrainMemory(there.store, "s").messages()] == ["kept"]
    assert names(Sessions(any_store)) == ["s"]


# --- into sessions that have something already


def said(brain: BrainMemory) -> list[str]:
    return [message.text for message in brain.messages()]


def numbered(store: Store, *texts: str, session: str = "s") -> BrainMemory:
    """A session whose messages have the ids "1", "2" and so on."""
    brain = BrainMemory(store, session, model=lambda _: "They counted.")
    brain.add_messages([Message(role="user", content=text, id=str(n)) for n, text in enumerate(texts, start=1)])
    return brain


def everything(store: Store) -> dict[Any, Any]:
    return {namespace: (store.scan(namespace), store.get(namespace)) for namespace in sorted(store.namespaces())}


def test_another_message_of_the_same_id_is_imported_in_its_place_and_once(any_store: Store) -> None:
    brain, other = numbered(any_store, "one", "two"), numbered(MemoryStore(), "uno", "two", "tre")
    lines = list(Sessions(other.store).export())
    assert Sessions(any_store).import_(lines) == 2
    assert said(brain) == ["one", "two", "uno", "tre"]
    before = everything(any_store)
    assert Sessions(any_store).import_(lines) == 0
    assert everything(any_store) == before


def test_what_was_imported_beside_another_of_its_id_is_known_when_that_has_left(any_store: Store) -> None:
    numbered(any_store, "one", "two")
    lines = list(Sessions(numbered(MemoryStore(), "uno", "due").store).export())
    assert Sessions(any_store).import_(lines) == 2
    brain = BrainMemory(any_store, "s", archive=False, model=lambda _: "They counted.")
    brain.summarize(keep=2)
    assert said(brain) == ["uno", "due"]
    assert Sessions(any_store).import_(lines) == 0
    assert said(brain) == ["uno", "due"]


def test_a_session_keeps_the_time_at_which_it_began_when_a_later_one_is_imported_into_it(any_store: Store) -> None:
    BrainMemory(any_store, "s", clock=lambda: 1.0).add_talk("one")
    other = BrainMemory(MemoryStore(), "s", archive=False, model=lambda _: "They counted.", clock=lambda: 5.0)
    other.add_messages([Message(role="user", content=text) for text in ("uno", "due")])
    other.summarize(keep=1)
    assert Sessions(any_store).import_(Sessions(other.store).export()) == 1
    assert [info.created_at for info in Sessions(any_store).list_sessions()] == [1.0]


def test_what_was_said_before_there_was_a_redactor_is_not_imported_again(any_store: Store) -> None:
    BrainMemory(any_store, "s").add_talk("My pin is 4711.", id="1")
    lines = list(Sessions(any_store).export())
    redacting = SealedStore(any_store, redactor=lambda text: text.replace("4711", "[pin]"))
    assert (Sessions(redacting).import_(lines), BrainMemory(any_store, "s").count()) == (0, 1)


def test_a_message_is_imported_beside_another_of_its_id_that_comes_in_the_same_moment(any_store: Store) -> None:
    lines = list(Sessions(numbered(MemoryStore(), "uno", "due", "tre").store).export())
    theirs = Message(id="2", role="user", content="two")
    first = lambda: BrainMemory(any_store, "s").add_messages([theirs])  # noqa: E731
    overtaken = Overtaken(any_store, first, where=lambda _, **changes: changes.get("append"))
    assert Sessions(overtaken).import_(lines) == 3
    assert said(BrainMemory(any_store, "s")) == ["two", "uno", "tre", "due"]
    assert Sessions(any_store).import_(lines) == 0


def test_a_message_is_imported_beside_another_of_its_id_that_comes_while_those_before_it_are_written(
    any_store: Store,
) -> None:
    lines = list(Sessions(numbered(MemoryStore(), *map(str, range(501))).store).export())
    theirs = Message(id="501", role="user", content="theirs")
    first = lambda: BrainMemory(any_store, "s").add_messages([theirs])  # noqa: E731
    overtaken = Overtaken(any_store, first, where=lambda _, **changes: changes.get("append"))
    assert Sessions(overtaken).import_(lines) == 501
    assert said(BrainMemory(any_store, "s")) == ["theirs", *map(str, range(501))]
    assert Sessions(any_store).import_(lines) == 0


def test_two_messages_of_one_id_in_one_file_are_both_imported_in_their_order(any_store: Store) -> None:
    lines = [json.dumps(message_line(content=text)) for text in ("one", "two", "one", "three")]
    assert Sessions(any_store).import_(lines) == 3
    assert said(BrainMemory(any_store, "s")) == ["one", "two", "three"]
    assert Sessions(any_store).import_(lines) == 0


def test_another_message_of_the_same_id_that_left_is_not_imported_again(any_store: Store) -> None:
    numbered(any_store, "one", "two")
    lines = list(Sessions(numbered(MemoryStore(), "uno", "due").store).export())
    assert Sessions(any_store).import_(lines) == 2
    index = open_index("memory:")
    short = BrainMemory(any_store, "s", memory_k=1, long_term=LongTermMemory(any_store, index, session="s"))
    short.add_talk("five")
    short.add_talk("six")
    assert said(short) == ["six"]
    assert Sessions(any_store).import_(lines) == 0
    assert said(short) == ["six"]


def test_a_message_that_is_damaged_comes_back_from_a_backup(any_store: Store) -> None:
    brain = numbered(MemoryStore(), "one", "two")
    any_store.append(brain_namespace(brain.scope), [("1", b"{"), ("2", brain.messages()[1].to_bytes())])
    assert Sessions(any_store).import_(Sessions(brain.store).export()) == 1
    assert said(BrainMemory(any_store, "s")) == ["two", "one"]
    assert Sessions(any_store).import_(Sessions(brain.store).export()) == 0


def test_facts_of_both_sides_are_kept_each_once(any_store: Store) -> None:
    brain, other = numbered(any_store, "one"), numbered(MemoryStore(), "one")
    brain.add_knowledge(["Ada has a bike.", "It is blue."])
    other.add_knowledge(["It is blue.", "It is in the shed.", "It is old.", "It is old."])
    lines = list(Sessions(other.store).export())
    for _ in range(2):
        Sessions(any_store).import_(lines)
        facts = [fact.text for fact in brain.get_knowledge()]
        assert facts == ["Ada has a bike.", "It is blue.", "It is in the shed.", "It is old.", "It is old."]


def test_a_fact_is_added_once_whatever_its_number_elsewhere(any_store: Store) -> None:
    brain = numbered(any_store, "one")
    brain.add_knowledge(["Ada has a bike."])
    fact = {"v": 1, "role": "system", "content": "It is blue."}
    for _ in range(2):
        Sessions(any_store).import_([json.dumps(session_line(**{"knowledge/00000009": fact}))])
        assert [fact.text for fact in brain.get_knowledge()] == ["Ada has a bike.", "It is blue."]


def test_a_message_is_imported_whose_id_is_the_number_of_a_fact(any_store: Store) -> None:
    archived = message_line(id="a", content="zero")["message"]
    Sessions(any_store).import_([json.dumps(session_line(**{"archived": 1, "archived/00000001/a": archived}))])
    numbered(any_store, "one").add_knowledge(["Ada has a bike."])
    assert Sessions(any_store).import_([json.dumps(message_line(id="00000001", content="two"))]) == 1
    assert said(BrainMemory(any_store, "s")) == ["one", "two"]


@pytest.mark.parametrize(
    "own", [["mine"], ["one", "mine"], ["one", "two", "three", "mine"], ["another one"], ["three"]]
)
def test_an_imported_summary_hides_nothing_of_which_it_does_not_tell(
    any_store: Store, own: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    other = numbered(MemoryStore(), "one", "two", "three")
    other.summarize(keep=1)
    brain = numbered(any_store)
    ids = {"one": "1", "two": "2", "three": "3", "another one": "1"}
    brain.add_messages([Message(role="user", content=text, id=ids.get(text, "")) for text in own])
    lines = list(Sessions(other.store).export())
    taken = own[:3] == ["one", "two", "three"]
    for _ in range(2):
        Sessions(any_store).import_(lines)
        summary, shown = brain.context()
        assert {message.text for message in shown} == ({*own, "three"} - {"one", "two"} if taken else {*said(brain)})
        assert (summary is not None) == taken
    assert ("an imported summary is left out" in caplog.text) != taken


def test_an_imported_summary_that_comes_without_its_messages_hides_none(any_store: Store) -> None:
    brain = numbered(any_store, "mine")
    summary = {"v": 1, "text": "They counted.", "covers": "another"}
    Sessions(any_store).import_([json.dumps(session_line(summary=summary))])
    assert brain.context() == (None, brain.messages())
    assert brain.get_summary() is None
    assert said(brain) == ["mine"]


def test_an_import_that_was_broken_off_anywhere_is_finished_by_the_next(any_store: Store) -> None:
    other = numbered(MemoryStore(), "one", "two", "three")
    other.add_knowledge(["A fact."])
    other.set_title("Title")
    other.summarize(keep=1)
    lines = list(Sessions(other.store).export())
    writes = 0
    while True:
        any_store.clear(brain_namespace(other.scope))
        writes += 1
        try:
            Sessions(cast("Store", BrokenOff(any_store, writes))).import_(lines)
        except InterruptedError:
            Sessions(any_store).import_(lines)
        else:
            break
        brain = BrainMemory(any_store, "s")
        assert held(brain) == held(other)
        assert brain.context() == other.context()
    assert writes == 4


class BrokenOff:
    """A real store; the one who writes does not live to see the write of this number."""

    def __init__(self, store: Store, number: int) -> None:
        self.store, self.left = store, number

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.store, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.left -= name in {"write", "append"}
            if not self.left:
                raise InterruptedError
            return method(*args, **kwargs)

        return watched


def test_a_value_that_comes_in_the_same_moment_stays(any_store: Store) -> None:
    other = numbered(MemoryStore(), "one")
    other.set_title("Title")
    other.add_knowledge(["A fact."])
    brain = BrainMemory(any_store, "s")

    def write_first() -> None:
        brain.set_title("Mine")
        brain.add_knowledge(["My fact."])

    meanwhile = Overtaken(any_store, write_first)
    Sessions(cast("Store", meanwhile)).import_(Sessions(other.store).export())
    assert brain.get_title() == "Mine"
    assert [fact.text for fact in brain.get_knowledge()] == ["My fact.", "A fact."]


async def test_an_import_reads_its_lines_beside_the_event_loop(any_store: Store) -> None:
    exported = list(Sessions(numbered(MemoryStore(), "one").store).export())
    threads = set[int]()

    def lines() -> Iterator[bytes]:
        threads.add(threading.get_ident())
        yield from exported

    assert await Sessions(any_store).aimport(lines()) == 1
    assert threads
    assert threading.get_ident() not in threads


def session_line(**values: Any) -> dict[str, Any]:
    return {"v": 1, "type": "session", "session": "s", "values": values}


def message_line(**fields: Any) -> dict[str, Any]:
    return {"v": 1, "type": "message", "session": "s", "message": {"v": 1, "id": "1", "role": "user", **fields}}


def test_a_summary_is_not_imported_where_it_would_hide_another_message_of_the_same_id(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("Something else", id="1")
    summary = {"v": 1, "text": "They said hello.", "covers": "1"}
    lines = [session_line(summary=summary), message_line(content="Hello")]
    assert Sessions(any_store).import_(map(json.dumps, lines)) == 1
    assert (brain.get_summary(), [message.text for message in brain.window()]) == (None, ["Something else", "Hello"])


def test_what_left_there_while_it_was_exported_is_imported_though_something_leaves_here_meanwhile(
    any_store: Store,
) -> None:
    def meanwhile() -> None:
        memory = LongTermMemory(any_store, open_index("memory:"), session="s")
        brain = BrainMemory(any_store, "s", memory_k=1, long_term=memory)
        brain.add_messages([Message(role="user", content=text) for text in ("Good morning.", "Good evening.")])
        assert (memory.count(), brain.count()) == (1, 1)

    line = message_line(content="Hello")
    marks = decode(with_departed({}, [Message.from_bytes(json.dumps(line["message"]).encode())])[DEPARTED])
    store = cast("Store", Overtaken(any_store, meanwhile, as_is_put=DEPARTED, after=True))
    assert Sessions(store).import_([json.dumps(session_line(departed=marks)), json.dumps(line)]) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "[]",
        "5",
        "null",
        b"\xff\xfe",
        "[" * 100_000,
        {"v": 1},
        {**message_line(), "v": 2},
        {**message_line(), "type": "other"},
        {**message_line(), "session": ""},
        {**message_line(), "session": 5},
        {**message_line(), "message": "my text"},
        message_line(role=None),
        message_line(v=2),
        message_line(content={"$type": "os.system", "$value": "true"}),
        {**session_line(), "values": []},
        {**session_line(), "values": None},
        session_line(title=5),
        session_line(summary="my summary"),
        session_line(created="yesterday"),
        session_line(**{"knowledge/first": {"v": 1, "role": "system"}}),
        session_line(**{"knowledge/00000001": "a fact"}),
        session_line(archived="3"),
        session_line(archived=True),
        session_line(**{"archived/00000001/a": "a message"}),
        session_line(departed=5),
        session_line(departed="0123"),
    ],
    ids=lambda wrong: str(wrong)[:60],
)
def test_a_malformed_line_is_named_and_nothing_is_written(any_store: Store, wrong: Any) -> None:
    raw = json.dumps(wrong) if isinstance(wrong, dict) else wrong
    lines = [json.dumps(session_line(title="Title")), json.dumps(message_line(content="Hello")), raw]
    with pytest.raises(SerializationError, match="line 3 is not a session or a message") as refusal:
        Sessions(any_store).import_(lines)
    assert len(str(refusal.value)) < 300
    assert not re.search("' object|indices|NoneType", str(refusal.value))  # Python's own words
    assert list(any_store.namespaces()) == []


def test_the_reason_is_told_after_even_a_long_place() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"key": deep}
    line = message_line(id=None, content="Hello", metadata=deep)
    with pytest.raises(SerializationError, match=r"line 1 is not a session or a message: .* levels deep$"):
        Sessions(MemoryStore()).import_([json.dumps(line)])


@pytest.mark.parametrize("wrong", [None, 5, session_line(), [session_line()], [None]], ids=str)
def test_what_is_no_export_is_one_clear_sentence(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="export"):
        Sessions(MemoryStore()).import_(wrong)


@pytest.mark.parametrize("whole", [b"".join, lambda lines: b"".join(lines).decode(), b"\r\n".join])
def test_an_export_comes_back_as_one_text_whatever_was_said(whole: Callable[[list[bytes]], Any]) -> None:
    said = "one\u2028two\x85three\x0bfour\rfive\nsix"
    brain = BrainMemory(MemoryStore(), "s")
    brain.add_talk(said)
    other = Sessions(MemoryStore())
    assert other.import_(whole(list(Sessions(brain.store).export()))) == 1
    assert BrainMemory(other.store, "s").messages()[0].text == said


def test_a_session_of_which_there_is_nothing_is_not_made() -> None:
    other = Sessions(MemoryStore())
    assert other.import_(Sessions(MemoryStore()).export("nowhere")) == 0
    assert other.list_sessions() == []


# --- sync and async


async def test_the_async_methods_do_the_same(any_store: Store, other_store: Store) -> None:
    methods = {name for name, _ in inspect.getmembers(Sessions, inspect.isfunction) if not name.startswith("_")}
    methods = {name for name in methods if not name.endswith("_flow")}
    functions = {name: getattr(Sessions, name) for name in methods}
    awaited = {n for n, f in functions.items() if inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f)}
    assert awaited == {f"a{name.rstrip('_')}" for name in methods - awaited}
    fill(any_store, "s")
    lines = list(Sessions(any_store, user="ada").export())
    sessions = Sessions(other_store)
    assert await sessions.aimport(lines) == 603
    assert await sessions.alist_sessions() == sessions.list_sessions()
    assert await sessions.acount() == 1
    assert (await sessions.arename_session("s", "New"), await sessions.arename_session("x", "New")) == (True, False)
    assert [info.title for info in await sessions.alist_sessions(1)] == ["New"]
    assert (await sessions.adelete_session("s"), await sessions.adelete_session("s")) == (True, False)


def test_an_import_keeps_the_order_of_activity_and_what_a_session_has_already(any_store: Store) -> None:
    for name in ("first", "second", "third"):
        BrainMemory(any_store, name, user="ada").add_talk("hello")
    lines = list(Sessions(any_store, user="ada").export())
    BrainMemory(any_store, "second", user="bob").set_title("mine")
    Sessions(any_store, user="ada").rename_session("second", "hers")
    Sessions(any_store, user="bob").import_([*lines, *Sessions(any_store, user="ada").export("second")])
    found = Sessions(any_store, user="bob").list_sessions()
    assert [(info.session, info.title) for info in found] == [("third", ""), ("second", "mine"), ("first", "")]
