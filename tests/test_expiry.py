"""A7: a session expires as a whole, by the rule that was asked for; nothing of it is left without an expiry."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from llama_index.core.llms import ChatMessage

from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    LongTermMemory,
    Message,
    Sessions,
    Settings,
    open_index,
)
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.conversation.session import TITLE
from langmem_adapters.errors import StoreError
from langmem_adapters.expiry import EXPIRES, Refresh
from langmem_adapters.keys import Namespace, encode_namespace
from langmem_adapters.langchain import BrainChatMessageHistory, BrainMemoryMiddleware
from langmem_adapters.llamaindex import LongTermMemoryBlock
from langmem_adapters.longterm import longterm_namespace
from langmem_adapters.model import Scope
from langmem_adapters.protocols import Appended, Page, Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.faults import Overtaken
from tests.servers import RedisServer

TTL = 1000.0
SCOPE = Scope(session="session")
OWN = brain_namespace(SCOPE)
MEMORIES = longterm_namespace(SCOPE)
REFRESH: list[Refresh] = ["write", "read", "never"]

Deadlines = Callable[[], dict[Namespace, float | None]]


class Kept(NamedTuple):
    """A store that tells when each of its namespaces expires."""

    store: Store
    clock: FakeClock
    deadlines: Deadlines


def in_memory() -> Kept:
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    return Kept(store, clock, lambda: {n: store._children[n[:-1]][n].expires_at for n in store.namespaces()})


def in_file(path: Path) -> Kept:
    clock = FakeClock()
    store = SQLiteStore(path, clock=clock)

    def deadlines() -> dict[Namespace, float | None]:
        there = list(store.namespaces())
        with closing(sqlite3.connect(path)) as connection:
            rows = dict(connection.execute("SELECT name, expires_at FROM langmem_namespaces").fetchall())
        return {namespace: rows[encode_namespace(namespace)] for namespace in there}

    return Kept(store, clock, deadlines)


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    kept = in_memory() if request.param == "memory" else in_file(tmp_path / "store.db")
    yield kept
    kept.store.close()


def user(text: str) -> Message:
    return Message(role="user", content=text)


def brain_of(store: Store, refresh: Refresh, clock: Callable[[], float] = time.time, **more: Any) -> BrainMemory:
    return BrainMemory(store, SCOPE.session, ttl=TTL, refresh=refresh, clock=clock, **more)


# --- the rules, one by one


@pytest.mark.parametrize("refresh", REFRESH[1:])
def test_of_two_who_begin_a_session_at_once_both_are_heard(kept: Kept, refresh: Refresh) -> None:
    other = brain_of(kept.store, refresh, kept.clock)
    overtaken = Overtaken(kept.store, lambda: other.add_talk("theirs"))
    brain_of(cast("Store", overtaken), refresh, kept.clock).add_talk("ours")
    assert sorted(message.text for message in other.messages()) == ["ours", "theirs"]
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


def test_who_begins_a_session_a_moment_later_keeps_to_the_deadline_of_the_first(kept: Kept) -> None:
    def begin_earlier() -> None:
        brain_of(kept.store, "never", kept.clock).add_talk("theirs")
        kept.clock.advance(10)

    store = cast("Store", Overtaken(kept.store, begin_earlier))
    brain_of(store, "never", kept.clock).set_title("Ours")
    assert kept.deadlines() == {OWN: kept.clock() - 10 + TTL}


def test_read_what_is_deleted_starts_the_time_of_the_memories_anew_too(kept: Kept) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session)
    brain = brain_of(kept.store, "read", kept.clock, memory_k=1, long_term=long_term)
    brain.add_messages([Message(role="user", content=text, id=text) for text in ("bike", "shed", "key")])
    kept.clock.advance(50)  # so little that a read writes nothing
    assert brain.delete(["bike"]) == 1
    assert kept.deadlines() == {OWN: kept.clock() + TTL, MEMORIES: kept.clock() + TTL}


def test_write_each_write_starts_the_time_anew(kept: Kept) -> None:
    brain = brain_of(kept.store, "write", kept.clock)
    start = kept.clock()
    for write, argument in (("add_talk", "a"), ("set_title", "b"), ("add_knowledge", ["c"])):
        kept.clock.advance(600)
        getattr(brain, write)(argument)
    brain.messages()
    kept.clock.advance(600)
    brain.messages()
    assert kept.deadlines() == {OWN: start + 1800 + TTL}
    assert EXPIRES not in kept.store.get(OWN)  # which the store itself knows
    kept.clock.advance(400)
    assert (brain.messages(), brain.get_title(), brain.get_knowledge()) == ([], "", [])
    assert Sessions(kept.store).list_sessions() == []


def test_read_keeps_a_session_that_is_looked_at(kept: Kept) -> None:
    brain_of(kept.store, "read", kept.clock).add_talk("a")
    for look in READS * 2:
        kept.clock.advance(900)
        getattr(brain_of(kept.store, "read", kept.clock), look)()
        assert kept.deadlines() == {OWN: kept.clock() + TTL}
    kept.clock.advance(1000)
    assert brain_of(kept.store, "read", kept.clock).messages() == []
    assert kept.deadlines() == {}


def test_read_a_session_without_messages_is_kept_too(kept: Kept) -> None:
    brain_of(kept.store, "read", kept.clock).set_title("a")
    kept.clock.advance(900)
    assert brain_of(kept.store, "read", kept.clock).messages() == []
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


@pytest.mark.parametrize("before", ["write", "never"])
def test_read_a_session_that_was_written_by_another_rule_is_kept_too(kept: Kept, before: Refresh) -> None:
    brain_of(kept.store, before, kept.clock).add_talk("a")
    kept.clock.advance(900)
    assert brain_of(kept.store, "read", kept.clock).count() == 1
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


@pytest.mark.parametrize("refresh", REFRESH)
def test_a_session_without_a_ttl_stays_by_any_rule(kept: Kept, refresh: Refresh) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session)
    brain = BrainMemory(kept.store, SCOPE.session, refresh=refresh, clock=kept.clock, memory_k=1, long_term=long_term)
    brain.add_messages([user("a"), user("b")])
    brain.set_title("c")
    assert (brain.count(), brain.get_title()) == (1, "c")
    assert kept.deadlines() == dict.fromkeys((OWN, MEMORIES))
    assert EXPIRES not in kept.store.get(OWN)


def test_a_write_that_takes_longer_than_the_ttl_ends() -> None:
    times = iter(n * TTL for n in range(100))
    brain = BrainMemory(MemoryStore(clock=lambda: 0.0), "s", ttl=TTL, refresh="never", clock=lambda: next(times))
    for text in "ab":
        brain.add_talk(text)
    assert [message.text for message in brain.messages()] == ["a", "b"]


def test_read_listing_sessions_is_no_read(kept: Kept) -> None:
    brain_of(kept.store, "read", kept.clock).add_talk("a")
    deadlines = kept.deadlines()
    kept.clock.advance(900)
    assert len(Sessions(kept.store, ttl=TTL, refresh="read", clock=kept.clock).list_sessions()) == 1
    assert kept.deadlines() == deadlines


class _Counted(MemoryStore):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock=clock)
        self.writes = self.reads = 0

    def write(self, *args: Any, **kwargs: Any) -> None:
        self.writes += 1
        super().write(*args, **kwargs)

    def scan(self, *args: Any, **kwargs: Any) -> Page:
        self.reads += 1
        return super().scan(*args, **kwargs)

    def get(self, *args: Any, **kwargs: Any) -> dict[str, bytes]:
        self.reads += 1
        return super().get(*args, **kwargs)


def test_read_costs_at_most_one_write_for_each_tenth_of_the_ttl() -> None:
    clock = FakeClock()
    store = _Counted(clock)
    brain_of(store, "read", clock).add_talk("a")
    store.writes = 0
    for _ in range(200):
        clock.advance(10)
        brain_of(store, "read", clock).messages()  # a new object each time, as in a web server
    assert store.writes <= 2000 / (TTL / 10)
    assert brain_of(store, "read", clock).count() == 1
    empty = BrainMemory(store, "empty", ttl=TTL, refresh="read", clock=clock)
    assert (empty.messages(), empty.get_title()) == ([], "")
    assert len(Sessions(store).list_sessions()) == 1


def test_read_what_was_cleared_meanwhile_does_not_come_back() -> None:
    class Cleared(MemoryStore):
        def scan(self, *args: Any, **kwargs: Any) -> Page:
            page = super().scan(*args, **kwargs)
            self.clear(OWN)
            return page

    clock = FakeClock()
    store = Cleared(clock=clock)
    brain = brain_of(store, "read", clock)
    brain.add_talk("a")
    clock.advance(500)
    assert len(brain.messages()) == 1
    assert list(store.namespaces()) == []


@pytest.mark.parametrize("along", [False, True])
def test_read_what_was_read_is_given_where_its_time_cannot_be_started_anew(
    caplog: pytest.LogCaptureFixture, *, along: bool
) -> None:
    class Full(MemoryStore):
        full = False

        def write(self, namespace: Namespace, *args: Any, **kwargs: Any) -> None:
            if self.full and namespace == (MEMORIES if along else OWN):
                raise StoreError("it is full")
            super().write(namespace, *args, **kwargs)

    clock = FakeClock()
    store = Full(clock=clock)
    memories = LongTermMemory(store, open_index("memory:"), session="session")
    brain = brain_of(store, "read", clock, long_term=memories)
    brain.add_talk("a")
    memories.add([user("b")])
    store.full = True
    clock.advance(500)
    for _ in range(2):
        assert [message.content for message in brain.messages()] == ["a"]
        assert brain.get_title() == ""
        clock.advance(150)
    said = "a session was read, but its expiry could not be renewed: StoreError: it is full"
    assert [record.getMessage() for record in caplog.records] == [said]
    with pytest.raises(StoreError, match="it is full"):
        brain.set_title("what is written is not")


def test_never_the_first_write_decides(kept: Kept) -> None:
    start = kept.clock()
    for _ in range(4):  # objects of several requests
        brain = brain_of(kept.store, "never", kept.clock)
        for _ in range(2):
            brain.add_talk("a")
            brain.set_title("b")
            brain.messages()
            assert kept.deadlines() == {OWN: start + TTL}
            kept.clock.advance(120)
    kept.clock.advance(40)
    assert brain.messages() == []
    brain.add_talk("a new session")
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


def test_never_costs_one_read_an_object() -> None:
    clock = FakeClock()
    store = _Counted(clock)
    brain_of(store, "never", clock).add_talk("a")
    store.reads = 0
    brain = brain_of(store, "never", clock)
    for _ in range(20):
        brain.add_talk("a")
    assert store.reads == 1


def test_never_a_session_that_another_object_cleared_begins_anew(kept: Kept) -> None:
    brain, other = (brain_of(kept.store, "never", kept.clock) for _ in range(2))
    brain.add_talk("a")
    kept.clock.advance(600)
    other.clear()
    brain.add_talk("b")
    assert kept.deadlines() == {OWN: kept.clock() + TTL}
    other.clear()
    kept.clock.advance(100)
    other.add_talk("c")
    assert len(brain.messages()) == 1
    brain.add_talk("d")
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


def test_never_an_object_that_knows_the_session_of_before_does_not_end_the_next_one_with_it(kept: Kept) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session)
    brain, other = (brain_of(kept.store, "never", kept.clock, memory_k=9, long_term=long_term) for _ in range(2))
    brain.add_talk("a")
    kept.clock.advance(900)
    other.clear()
    other.add_talk("b")
    kept.store.append(MEMORIES, [("a", b"[]")])  # by one that knows of no session
    start = kept.clock()
    for text in ("c", "d"):
        kept.clock.advance(90)
        brain.add_talk(text)
        assert kept.deadlines() == {OWN: start + TTL, MEMORIES: start + TTL}
    assert other.count() == 3


def test_never_a_slow_append_as_a_session_ends_does_not_end_the_next_one_with_it() -> None:
    class Slow(MemoryStore):
        def append(self, *args: Any, **kwargs: Any) -> Appended:
            appended = super().append(*args, **kwargs)
            clock.advance(1)
            return appended

    clock = FakeClock()
    store = Slow(clock=clock)
    brain, other = (brain_of(store, "never", clock) for _ in range(2))
    brain.add_talk("a")
    clock.advance(TTL - 3)
    other.clear()
    other.add_talk("b")
    brain.add_talk("c")
    assert [message.text for message in other.messages()] == ["b", "c"]


def test_never_memories_that_outlast_a_session_live_as_long_as_the_next_one(kept: Kept) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session)
    brain, other = (brain_of(kept.store, "never", kept.clock, memory_k=1, long_term=long_term) for _ in range(2))
    brain.add_messages([user("a"), user("b")])
    kept.clock.advance(600)
    other.clear(long_term=False)
    brain.add_talk("c")
    assert kept.deadlines() == dict.fromkeys((OWN, MEMORIES), kept.clock() + TTL)


def test_never_a_session_that_another_has_begun_anew_keeps_its_time_whatever_is_written(kept: Kept) -> None:
    brain, other = (brain_of(kept.store, "never", kept.clock) for _ in range(2))
    brain.add_talk("a")
    kept.clock.advance(600)
    other.clear()
    other.add_talk("b")
    brain.set_title("c")
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


def test_never_a_machine_whose_clock_is_behind_does_not_end_what_another_has_begun_anew(kept: Kept) -> None:
    behind = brain_of(kept.store, "never", lambda: kept.clock() - 300)
    other = brain_of(kept.store, "never", kept.clock)
    behind.add_talk("a")
    kept.clock.advance(600)
    other.clear()
    other.add_talk("b")
    behind.add_talk("c")
    kept.clock.advance(TTL - 300)
    assert [message.text for message in other.messages()] == ["b", "c"]
    for _ in range(3):  # and yet it ends, however often both write
        behind.add_talk("d")
        other.add_talk("e")
    kept.clock.advance(TTL)
    assert other.messages() == []


def test_never_the_deadline_is_read_once() -> None:
    class Watched(MemoryStore):
        calls = 0

        def get(self, *args: Any, **options: Any) -> dict[str, bytes]:
            self.calls += 1
            return super().get(*args, **options)

        def write(self, *args: Any, **change: Any) -> None:
            self.calls += 1
            super().write(*args, **change)

    store = Watched()
    for calls in (2, 3):  # to read it, and once to set it
        brain = brain_of(store, "never")
        for _ in range(3):
            brain.add_talk("bike")
        assert store.calls == calls


def test_never_what_is_cleared_as_its_time_is_set_right_does_not_come_back(kept: Kept) -> None:
    overtaken = Overtaken(kept.store, where=lambda _, **change: not change.get("put"))
    brain, other = (brain_of(cast("Store", store), "never", kept.clock) for store in (overtaken, kept.store))
    brain.add_talk("a")
    kept.clock.advance(600)
    other.clear()
    other.add_talk("b")
    overtaken.first.append(other.clear)
    brain.add_talk("c")
    assert (overtaken.first, kept.deadlines()) == ([], {})


def test_never_memories_of_a_user_outlast_the_session_of_which_one_is_deleted(kept: Kept) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), user="ada")
    brain = brain_of(kept.store, "never", kept.clock, user="ada", memory_k=1, long_term=long_term)
    brain.add_messages([Message(id=text, role="user", content=text) for text in ("bike", "shed", "lock")])
    assert brain.delete(["bike"]) == 1
    kept.clock.advance(TTL)
    assert [memory.message.text for memory in long_term.all()] == ["shed"]


@pytest.mark.parametrize("person", ["", "ada"])
def test_a_session_that_is_renamed_takes_its_own_memories_along_and_no_user_s(kept: Kept, person: str) -> None:
    scope = SCOPE.model_copy(update={"user": person})
    long_term = LongTermMemory(kept.store, open_index("memory:"), user=person, session="" if person else scope.session)
    brain_of(kept.store, "write", kept.clock, user=person, memory_k=1, long_term=long_term).add_messages(
        [user("a"), user("b")]
    )
    kept.clock.advance(600)
    assert Sessions(kept.store, user=person, ttl=TTL, clock=kept.clock).rename_session(scope.session, "title")
    memories = longterm_namespace(long_term.scope)
    deadline = kept.clock() + TTL
    assert kept.deadlines() == {brain_namespace(scope): deadline, memories: None if person else deadline}


def test_a_deadline_of_elsewhere_is_not_imported(kept: Kept) -> None:
    line = {"v": 1, "type": "session", "session": SCOPE.session, "values": {TITLE: "Bikes", EXPIRES: 5.0}}
    Sessions(kept.store, clock=kept.clock).import_([json.dumps(line)])
    assert kept.store.get(OWN).keys() == {TITLE}


def test_never_a_session_that_was_cleared_begins_with_any_write(kept: Kept) -> None:
    brain = brain_of(kept.store, "never", kept.clock)
    brain.add_talk("a")
    kept.clock.advance(600)
    brain.clear()
    brain.set_title("b")
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


def test_never_a_deadline_that_another_rule_left_behind_or_that_is_damaged_is_replaced(kept: Kept) -> None:
    for planted in (b"\x00", b'"soon"', b"1.0", b"1e300", b"NaN", b"1" + 400 * b"0"):
        kept.store.write(OWN, put={EXPIRES: planted})
        brain_of(kept.store, "never", kept.clock).add_talk("a")
        assert kept.deadlines() == {OWN: kept.clock() + TTL}
    assert brain_of(kept.store, "never", kept.clock).count() == 6


def test_an_export_carries_no_deadline(kept: Kept) -> None:
    brain_of(kept.store, "never", kept.clock).add_talk("a")
    lines = list(Sessions(kept.store).export())
    assert b"expires" not in b"".join(lines)
    kept.clock.advance(TTL)
    later = Sessions(kept.store, user="ada", ttl=TTL, refresh="never", clock=kept.clock)
    assert later.import_(lines) == 1
    assert list(kept.deadlines().values()) == [kept.clock() + TTL]
    kept.clock.advance(10)
    assert later.rename_session("session", "title")
    assert list(kept.deadlines().values()) == [kept.clock() + TTL - 10]


@pytest.mark.parametrize("refresh", REFRESH)
async def test_the_rule_reaches_the_session_from_every_entry_point(kept: Kept, refresh: Refresh) -> None:
    start = kept.clock()
    brain = brain_of(kept.store, refresh, kept.clock)
    history = BrainChatMessageHistory(brain=brain)
    async with history.record_turn("a") as turn:
        turn.add("b")
    kept.clock.advance(500)
    assert len(await history.aget_messages()) == 2
    extended = {"write": 0, "read": 500, "never": 0}[refresh]
    assert kept.deadlines() == {OWN: start + TTL + extended}
    configured = Settings(url="memory:", ttl=TTL, refresh=refresh)
    shared = BrainChatMessageHistory("s", url="memory:", ttl=TTL, refresh=refresh).brain
    assert [b.refresh for b in (configured.brain("s"), configured.sessions(), shared)] == [refresh] * 3


@pytest.mark.parametrize(("refresh", "extended"), [("write", (0, 0)), ("read", (500, 0)), ("never", (0, -700))])
def test_the_rule_holds_for_the_sessions_of_an_agent(
    kept: Kept, refresh: Refresh, extended: tuple[float, float]
) -> None:
    memory = BrainMemoryMiddleware(
        store=kept.store, user="", session="session", long_term=False, ttl=TTL, refresh=refresh, clock=kept.clock
    )
    agent = create_agent(FakeListChatModel(responses=["In the shed."]), middleware=[memory])
    start = kept.clock()
    agent.invoke({"messages": [("user", "Where is my bike?")]})
    kept.clock.advance(500)
    memory.brain("session").messages()
    assert kept.deadlines() == {OWN: start + TTL + extended[0]}
    kept.clock.advance(200)
    agent.invoke({"messages": [("user", "And my car?")]})
    assert kept.deadlines() == {OWN: start + 700 + TTL + extended[1]}
    assert memory.brain("session").count() == 4


@pytest.mark.parametrize("name", ["", "ada"])
async def test_the_memories_of_a_block_expire_after_their_last_write(kept: Kept, name: str) -> None:
    block = LongTermMemoryBlock(store=kept.store, user=name, ttl=TTL)
    question = [ChatMessage("Where is my bike?")]
    start = kept.clock()
    await block.aput([ChatMessage("My bike is in the shed.")], session_id="session")
    kept.clock.advance(500)
    await block.aput([ChatMessage("My car is on the street.")], session_id="session")
    assert set(kept.deadlines().values()) == {start + 500 + TTL}
    kept.clock.advance(TTL - 1)
    assert "in the shed" in await block.aget(question, session_id="session")
    kept.clock.advance(1)
    assert await block.aget(question, session_id="session") == ""
    with pytest.raises(ConfigurationError, match="ttl is a number of seconds above 0"):
        LongTermMemoryBlock(store=kept.store, ttl=0)


def test_a_wrong_rule_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match='refresh is "write", "read" or "never", not \'always\''):
        BrainMemory(MemoryStore(), "s", refresh="always")  # type: ignore[arg-type]
    for ttl in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="ttl is a number of seconds above 0"):
            BrainMemory(MemoryStore(), "s", ttl=ttl)
        with pytest.raises(ConfigurationError, match="ttl is a number of seconds above 0"):
            LongTermMemory(MemoryStore(), open_index("memory:"), user="ada", ttl=ttl)
    monkeypatch.setenv("LANGMEM_REFRESH", "read")
    assert Settings().refresh == "read"
    monkeypatch.setenv("LANGMEM_REFRESH", "always")
    with pytest.raises(ValueError, match="REFRESH"):
        Settings()


# --- the long-term memory of a session


@pytest.mark.parametrize("ttl", [TTL, None])
def test_the_memories_of_a_session_live_and_expire_with_it(kept: Kept, ttl: float | None) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session, ttl=ttl)
    brain = brain_of(kept.store, "write", kept.clock, memory_k=1, long_term=long_term)
    for n in range(3):
        brain.add_talk(f"bike {n}")
    for _ in range(3):
        kept.clock.advance(900)
        brain.set_title("x")  # nothing overflows, and the memories stay as the session does
    assert kept.deadlines() == dict.fromkeys((OWN, MEMORIES), kept.clock() + TTL)
    assert len(brain.recall("bike")) == 2
    kept.clock.advance(TTL)
    assert kept.deadlines() == {}
    assert brain.recall("bike") == []


@pytest.mark.parametrize("ttl", [10 * TTL, None])
@pytest.mark.parametrize("refresh", REFRESH)
def test_what_is_deleted_in_a_session_leaves_no_memory_of_it_for_longer(
    kept: Kept, refresh: Refresh, ttl: float | None
) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session, ttl=ttl)
    brain = brain_of(kept.store, refresh, kept.clock, memory_k=1, long_term=long_term)
    brain.add_messages([user("bike"), user("shed"), user("lock")])
    long_term.add([user("bike")], session="elsewhere")
    brain.add_messages([user("bell")])
    for text, touched in (("shed", 1), ("bike", 1), ("bell", 1)):  # moved; said elsewhere too; still in the session
        kept.clock.advance(300)
        (id_,) = {
            *(o.message_id for m in long_term.all() for o in m.occurrences if m.message.text == text and o.message_id),
            *(message.id for message in brain.messages() if message.text == text),
        }
        assert brain.delete([id_]) == touched
        deadlines = kept.deadlines()
        assert deadlines[MEMORIES] == pytest.approx(deadlines[OWN], abs=1e-3)
    kept.clock.advance(TTL)
    assert kept.deadlines() == {}


@pytest.mark.parametrize("refresh", REFRESH)
def test_what_moves_while_its_session_is_cleared_leaves_nothing_for_ever(kept: Kept, refresh: Refresh) -> None:
    def cleared() -> None:
        kept.store.clear(OWN)

    store = cast("Store", Overtaken(kept.store, cleared, where=lambda name, **_: name == MEMORIES, after=True))
    long_term = LongTermMemory(store, open_index("memory:"), session=SCOPE.session)
    brain_of(store, refresh, kept.clock, memory_k=1, long_term=long_term).add_messages([user("bike"), user("shed")])
    assert long_term.all() == []
    assert None not in kept.deadlines().values()


def test_never_who_clears_a_session_gives_the_next_one_its_whole_time_at_once(kept: Kept) -> None:
    overtaken, given = Overtaken(kept.store, at="append", after=True), list[float | None]()
    brain = brain_of(cast("Store", overtaken), "never", kept.clock)
    brain.add_talk("bike")
    kept.clock.advance(TTL / 2)
    brain.clear()
    overtaken.first.append(lambda: given.append(kept.deadlines()[OWN]))
    brain.add_talk("shed")
    assert given == [pytest.approx(kept.clock() + TTL, abs=1e-3)]


@pytest.mark.parametrize("ttl", [10 * TTL, None])
def test_a_memory_that_is_changed_by_itself_stays_no_longer_than_its_session(kept: Kept, ttl: float | None) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session, ttl=ttl)
    brain = brain_of(kept.store, "write", kept.clock, memory_k=1, long_term=long_term)
    brain.add_messages([user("bike"), user("shed"), user("lock")])
    kept.clock.advance(300)
    for change in (
        lambda: long_term.update(long_term.all()[0].id, "The bike is blue."),
        lambda: long_term.add([user("bell")]),
        lambda: long_term.delete([long_term.all()[0].id]),
    ):
        change()
        assert kept.deadlines()[MEMORIES] == pytest.approx(kept.clock() + TTL, abs=1e-3)


def test_a_session_that_has_remembered_nothing_leaves_no_trace_of_memories(kept: Kept) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), session=SCOPE.session)
    brain = brain_of(kept.store, "write", kept.clock, long_term=long_term)
    brain.add_talk("bike")
    assert kept.deadlines() == {OWN: kept.clock() + TTL}


def test_the_memories_of_a_user_and_of_other_sessions_do_not_expire_with_a_session(kept: Kept) -> None:
    for n, scope in enumerate((Scope(user="ada"), Scope(session="team"), Scope(user="bob", session="s2"))):
        index = open_index("memory:")
        long_term = LongTermMemory(kept.store, index, user=scope.user, session=scope.session)
        brain = BrainMemory(
            kept.store, f"s{n}", user=scope.user, memory_k=1, long_term=long_term, ttl=TTL, clock=kept.clock
        )
        brain.add_messages([user("bike"), user("thanks")])
        kept.clock.advance(TTL)
        assert [memory.message.text for memory in long_term.all()] == ["bike"]


def test_a_long_term_memory_with_a_ttl_of_its_own(kept: Kept) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), user="ada", ttl=TTL)
    long_term.add([user("bike"), user("shed")])
    memory, other = long_term.all()
    for change in (
        lambda: long_term.update(memory.id, "bicycle"),
        lambda: long_term.add([user("lock")]),
        lambda: long_term.delete([other.id]),
    ):
        kept.clock.advance(900)
        change()
        assert list(kept.deadlines().values()) == [kept.clock() + TTL]
    kept.clock.advance(TTL)
    assert (long_term.all(), long_term.search("bicycle")) == ([], [])


@pytest.mark.parametrize("ttl", [None, 9 * TTL])
def test_memories_of_a_user_keep_a_ttl_of_their_own_beside_a_session(kept: Kept, ttl: float | None) -> None:
    long_term = LongTermMemory(kept.store, open_index("memory:"), user="ada", ttl=TTL)
    brain = BrainMemory(kept.store, "s", user="ada", memory_k=1, long_term=long_term, ttl=ttl, clock=kept.clock)
    brain.add_messages([user("bike"), user("thanks")])
    assert [memory.message.text for memory in long_term.all()] == ["bike"]
    kept.clock.advance(TTL)
    assert long_term.all() == []


def test_settings_give_a_ttl_to_the_memories_of_a_session_only() -> None:
    settings = Settings(url="memory:", ttl=TTL)
    assert (settings.long_term(session="s").ttl, settings.long_term(user="ada", session="s").ttl) == (TTL, None)


# --- any sequence of operations

READS = ["messages", "window", "context", "count", "history_text", "get_summary", "get_title", "get_knowledge"]
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["title", "summary", "knowledge", "turn", "clear", "rename", "recall", "renew"])),
        st.tuples(st.just("read"), st.sampled_from(READS)),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 50.0, 300.0, 999.0, 1000.0, 1500.0])),
    ),
    max_size=12,
)


class _Session:
    """Does what it is told, through objects that come and go."""

    def __init__(self, store: Store, refresh: Refresh, clock: Callable[[], float]) -> None:
        self._store, self._refresh, self._clock = store, refresh, clock
        self._index = open_index("memory:")
        self.renew()

    def renew(self) -> None:
        long_term = LongTermMemory(self._store, self._index, session=SCOPE.session, ttl=TTL)
        self.brain = brain_of(self._store, self._refresh, self._clock, memory_k=3, long_term=long_term)
        self.sessions = Sessions(self._store, ttl=TTL, refresh=self._refresh, clock=self._clock)

    def do(self, name: str, argument: Any = None) -> None:
        brain = self.brain
        operations: dict[str, Callable[[], Any]] = {
            "add": lambda: brain.add_messages([user(f"bike {n}") for n in range(argument)]),
            "title": lambda: brain.set_title("title"),
            "summary": lambda: brain.set_summary("summary"),
            "knowledge": lambda: brain.add_knowledge(["fact"]),
            "turn": lambda: self._turn(brain),
            "clear": brain.clear,
            "rename": lambda: self.sessions.rename_session(SCOPE.session, "renamed"),
            "recall": lambda: brain.recall("bike"),
            "renew": self.renew,
            "read": getattr(brain, str(argument), brain.count),
        }
        operations[name]()

    @staticmethod
    def _turn(brain: BrainMemory) -> None:
        with brain.record_turn("bike") as turn:
            turn.add("yes")


def _check(kept: Kept, session: _Session, refresh: Refresh, operations: list[tuple[Any, ...]]) -> None:
    began: float | None = None  # of this session
    for name, *arguments in operations:
        if name == "wait":
            kept.clock.advance(arguments[0])
        before = kept.deadlines().get(OWN)
        if name != "wait":
            session.do(name, *arguments)
        now, deadlines = kept.clock(), kept.deadlines()
        assert None not in deadlines.values()
        deadline = deadlines.get(OWN)
        assert [info.session for info in session.sessions.list_sessions()] == ([] if deadline is None else ["session"])
        if deadline is None:
            began = None
            assert session.brain.messages() == []
            continue
        began = now if before is None else began
        assert deadlines.get(MEMORIES, deadline) == deadline or name == "wait"
        wrote = name in {"add", "title", "summary", "knowledge", "turn", "rename"}
        if refresh == "never":
            assert began is not None
            assert deadline == pytest.approx(began + TTL, abs=1e-3)
        elif wrote or (refresh == "read" and name in {"read", "recall"}):
            least = TTL if wrote else TTL * 0.9
            assert least - 1e-3 <= deadline - now <= TTL
        else:
            assert deadline == before


@pytest.mark.parametrize("refresh", REFRESH)
@given(operations=OPERATIONS)
@settings(max_examples=60)
def test_a7_any_operations_in_memory(refresh: Refresh, operations: list[tuple[Any, ...]]) -> None:
    kept = in_memory()
    _check(kept, _Session(kept.store, refresh, kept.clock), refresh, operations)


@pytest.mark.parametrize("refresh", REFRESH)
@given(operations=OPERATIONS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a7_any_operations_in_sqlite(
    refresh: Refresh, operations: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = in_file(tmp_path_factory.mktemp("expiry") / "store.db")
    _check(kept, _Session(kept.store, refresh, kept.clock), refresh, operations)
    kept.store.close()


def _lives(client: redis.Redis, prefix: str) -> dict[bytes, int]:
    """Milliseconds that each key has; -1: for ever."""
    names = sorted(client.scan_iter(match=f"{prefix}*"))
    pipeline = client.pipeline(transaction=True)
    for name in names:
        pipeline.pttl(name)
    return {name: life for name, life in zip(names, pipeline.execute(), strict=True) if life != -2}


@pytest.mark.parametrize("refresh", REFRESH)
@given(operations=OPERATIONS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a7_any_operations_in_redis(
    redis_server: RedisServer, key_prefix: str, refresh: Refresh, operations: list[tuple[Any, ...]]
) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    with closing(redis.Redis.from_url(redis_server.url())) as client:
        try:
            session = _Session(store, refresh, time.time)
            for name, *arguments in operations:
                if name == "wait":
                    continue
                session.do(name, *arguments)
                lives = _lives(client, key_prefix)
                assert all(0 < life <= 1000 * TTL * 1.25 for life in lives.values())
                own = [life for key, life in lives.items() if not key.endswith(b":dir") and b"brain/" in key]
                also = [life for key, life in lives.items() if not key.endswith(b":dir") and b"longterm/" in key]
                assert not own or max(own + also) - min(own + also) <= (50 if name != "recall" else 5000)
                directories = [life for key, life in lives.items() if key.endswith(b":dir")]
                assert all(life >= max(own + also) - 50 for life in directories if own + also)
        finally:
            if names := list(client.scan_iter(match=f"{key_prefix}*")):
                client.delete(*names)
            store.close()


@pytest.mark.parametrize("refresh", REFRESH)
def test_a7_in_redis_the_server_counts_what_the_rule_says(
    redis_server: RedisServer, key_prefix: str, refresh: Refresh
) -> None:
    store, clock = RedisStore(redis_server.url(), prefix=key_prefix), FakeClock()
    client = redis.Redis.from_url(redis_server.url())
    brain = brain_of(store, refresh, clock)
    brain.add_talk("a")
    clock.advance(400)
    brain_of(store, refresh, clock).add_talk("b")
    expected = 1000 * (TTL - 400 if refresh == "never" else TTL)
    lives = _lives(client, key_prefix)
    assert lives
    assert all(expected - 5000 < life <= expected for key, life in lives.items() if not key.endswith(b":dir"))
    for key in lives:
        if not key.endswith(b":dir"):
            client.pexpire(key, -1)  # as if its time were over
    assert Sessions(store).list_sessions() == []
    assert brain.messages() == []
    client.close()
    store.close()


@pytest.mark.parametrize("refresh", REFRESH)
def test_a7_no_key_of_sessions_with_memories_of_their_own_stays_for_ever(
    redis_server: RedisServer, key_prefix: str, refresh: Refresh
) -> None:
    store, clock = RedisStore(redis_server.url(), prefix=key_prefix), FakeClock()
    client = redis.Redis.from_url(redis_server.url())
    for name in ("a", "b", "c"):
        memory = LongTermMemory(store, open_index("memory:"), session=name)
        brain = BrainMemory(store, name, memory_k=2, long_term=memory, ttl=TTL, refresh=refresh, clock=clock)
        for n in range(4):
            brain.add_talk(f"question {n}")
            brain.add_answer(f"answer {n}")
        assert memory.count() == 6
    lives = _lives(client, key_prefix)
    assert len([key for key in lives if key.endswith(b":dir")]) == 2
    assert all(life > 0 for life in lives.values())
    client.close()
    store.close()
