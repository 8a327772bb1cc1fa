"""BrainMemory over every store: order, repeated deliveries, damage, overflow (A4, A5, A7, F2c, H1, H5)."""

from __future__ import annotations

import inspect
import itertools
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.errors import ConfigurationError, StoreUnavailable
from langmem_adapters.indexes import open_index
from langmem_adapters.keys import Namespace
from langmem_adapters.longterm import RECALLED, LongTermMemory
from langmem_adapters.model import Message, Scope, Summary, ToolCall
from langmem_adapters.protocols import Page, Store
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Overtaken, Unplugged
from tests.servers import RedisServer

SESSION = "session-1"


def user(text: str, id_: str = "", **fields: Any) -> Message:
    return Message(id=id_, role="user", content=text, **fields)


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def both(store: Store, k: int, session: str = SESSION) -> tuple[BrainMemory, LongTermMemory]:
    long_term = LongTermMemory(store, open_index("memory:"), user="ada")
    return BrainMemory(store, session, user="ada", memory_k=k, long_term=long_term), long_term


# --- order


@pytest.mark.parametrize("at_once", [True, False])
async def test_a4_a_thousand_messages_keep_their_order_under_a_frozen_clock(any_store: Store, at_once: bool) -> None:
    brain = BrainMemory(any_store, SESSION, clock=FakeClock())
    said = [user(f"number {n}") for n in range(1000)]
    if at_once:
        brain.add_messages(said)
    else:
        for message in said:
            brain.add_messages([message])
    assert texts(brain.messages()) == texts(said)
    assert texts(await brain.amessages(3)) == ["number 997", "number 998", "number 999"]
    assert {message.created_at for message in brain.messages()} == {1_800_000_000.0}
    assert brain.count() == 1000


async def test_a_count_reads_no_message() -> None:
    class Counting(MemoryStore):
        read = 0

        def scan(self, *args: Any, **kwargs: Any) -> Page:
            page = super().scan(*args, **kwargs)
            self.read += len(page.items)
            return page

    store = Counting()
    brain = BrainMemory(store, "s")
    brain.add_messages([Message(role="user", content=f"{n}") for n in range(3)])
    assert (brain.count(), await brain.acount(), store.read) == (3, 3, 0)


def test_what_is_limited_to_nothing_is_nothing(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    brain.add_messages([])
    assert (brain.messages(), brain.messages(0), brain.messages(-1), brain.window(), brain.count()) == (
        [],
        [],
        [],
        [],
        0,
    )
    brain.add_talk("Hello")
    assert (brain.messages(0), brain.messages(-1), texts(brain.messages(5))) == ([], [], ["Hello"])


# --- repeated deliveries


def test_a_repeated_delivery_adds_nothing(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    batch = [user("one", "1"), user("two", "2", metadata={"n": (1, b"x")})]
    for _ in range(3):
        brain.add_messages(batch)
    assert texts(brain.messages()) == ["one", "two"]


@pytest.mark.parametrize("parsed", [Summary(text="They spoke of bikes."), float("nan")])
def test_what_is_stored_in_another_form_is_a_repeated_delivery_too(any_store: Store, parsed: Any) -> None:
    brain = BrainMemory(any_store, SESSION)
    for _ in range(2):
        brain.add_messages([user("one", "1", host={"langchain": {"additional_kwargs": {"parsed": parsed}}})])
    assert texts(brain.messages()) == ["one"]


def test_a_batch_that_begins_with_what_is_stored_adds_the_rest(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    brain.add_messages([user("one", "1"), user("two", "2")])
    brain.add_messages([user("two", "2"), user("three", "3")])
    assert texts(brain.messages()) == ["one", "two", "three"]


def test_other_content_under_a_known_id_is_kept_under_its_own_once(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    brain.add_messages([user("one", "1")])
    for _ in range(2):
        brain.add_messages([user("another", "1")])
    found = brain.messages()
    assert texts(found) == ["one", "another"]
    assert len({message.id for message in found}) == 2


def test_c1_a_replayed_id_behind_a_new_message_is_a_new_turn(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    for n in range(3):
        brain.add_messages([user("again?", f"q{n}"), Message(id="cached", role="assistant", content="yes")])
    assert texts(brain.messages()) == ["again?", "yes"] * 3
    assert len({message.id for message in brain.messages()}) == 6


@pytest.mark.parametrize("numbered", ["1212", "1 1 ", "12 1", "1112", " 111"])
def test_a4_who_numbers_each_delivery_anew_keeps_its_order(any_store: Store, numbered: str) -> None:
    """A question does not come behind its answer, whichever of their ids are known."""
    brain = BrainMemory(any_store, SESSION)
    deliveries = [[user(f"{turn}.{n}", id_.strip()) for n, id_ in enumerate(numbered)] for turn in range(3)]
    for delivery in deliveries:
        brain.add_messages(delivery)
    assert texts(brain.messages()) == [message.text for delivery in deliveries for message in delivery]
    assert len({message.id for message in brain.messages()}) == 12


@given(st.lists(st.lists(st.sampled_from("12345"), min_size=1, unique=True), max_size=6), st.integers(1, 3))
def test_a4_what_is_numbered_anew_is_kept_once_however_often_it_comes(numbers: list[list[str]], times: int) -> None:
    brain = BrainMemory(MemoryStore(), SESSION)
    deliveries = [[user(f"{turn}.{id_}", id_) for id_ in ids] for turn, ids in enumerate(numbers)]
    for delivery in deliveries:
        for _ in range(times):
            brain.add_messages(delivery)
    assert texts(brain.messages()) == [message.text for delivery in deliveries for message in delivery]


def test_b1_calls_that_a_cache_replays_stay_in_front_of_their_results(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    call = Message(id="cached", role="assistant", tool_calls=[ToolCall(id="c", name="look")])
    for _ in range(2):
        brain.add_messages([user("Look."), call, Message(role="tool", content="a bike", tool_call_id="c")])
    assert [message.role for message in brain.window()] == ["user", "assistant", "tool"] * 2


def test_what_a_chain_gives_back_behind_its_question_is_known(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    shown: list[Message] = []
    for n in range(4):
        asked = user(f"question {n}", f"q{n}")
        shown += [asked, Message(id=f"a{n}", role="assistant", content=f"answer {n}")]
        brain.add_messages([asked, *shown])
    assert texts(brain.messages()) == texts(shown)


def test_what_a_chain_gives_back_is_known_though_it_begins_with_an_answer(any_store: Store) -> None:
    """As where an assistant greets first, or the window begins behind a question."""
    brain = BrainMemory(any_store, SESSION)
    shown = [Message(id="g", role="assistant", content="Welcome."), Message(id="h", role="assistant", content="Ask.")]
    brain.add_messages(shown)
    for n in range(3):
        asked = user(f"question {n}", f"q{n}")
        shown += [asked, Message(id=f"a{n}", role="assistant", content=f"answer {n}")]
        brain.add_messages([asked, *shown])
    assert texts(brain.messages()) == texts(shown)


@pytest.mark.parametrize("meanwhile", ["deleted", "summarised", "both stay"])
def test_what_left_before_it_was_put_in_order_does_not_come_again(any_store: Store, meanwhile: str) -> None:
    other = BrainMemory(any_store, SESSION, model=lambda _: "They spoke of one and two.")
    ways = {"deleted": lambda: other.delete(["2"]), "summarised": lambda: other.summarize(keep=0)}
    overtaken = Overtaken(any_store, ways.get(meanwhile, lambda: other.set_summary("nothing")))
    other.add_messages([user("one", "1")])
    BrainMemory(cast("Store", overtaken), SESSION).add_messages([user("another", "1"), user("two", "2")])
    stay = {"deleted": ["one", "another"], "summarised": ["one", "two", "another"]}
    assert texts(other.messages()) == stay.get(meanwhile, ["one", "another", "two"])
    if meanwhile == "summarised":
        assert texts(other.context().messages) == ["another"]


def test_what_another_delivery_has_under_an_id_that_left_stays_as_messages_are_put_in_order(any_store: Store) -> None:
    other = BrainMemory(any_store, SESSION)

    def first() -> None:
        other.delete(["2"])
        other.add_messages([user("theirs", "2")])

    other.add_messages([user("one", "1")])
    overtaken = cast("Store", Overtaken(any_store, first))
    BrainMemory(overtaken, SESSION).add_messages([user("another", "1"), user("two", "2")])
    assert texts(other.messages()) == ["one", "theirs", "another"]


def test_what_is_put_in_order_while_it_is_deleted_is_deleted_where_it_is_then(any_store: Store) -> None:
    looked, moved = threading.Event(), threading.Event()

    def wait() -> None:
        looked.set()
        assert moved.wait(60)

    def first() -> None:
        deleting.start()
        assert looked.wait(60)

    brain, deleter = BrainMemory(any_store, SESSION), cast("Store", Overtaken(any_store, wait))
    deleting = threading.Thread(target=lambda: BrainMemory(deleter, SESSION).delete(["2"]))
    brain.add_messages([user("one", "1")])
    overtaken = cast("Store", Overtaken(any_store, first))
    BrainMemory(overtaken, SESSION).add_messages([user("another", "1"), user("two", "2")])
    moved.set()
    deleting.join()
    assert texts(brain.messages()) == ["one", "another"]


def test_a_summary_does_not_take_what_was_put_in_order_while_it_was_made(any_store: Store) -> None:
    asked, goes_on = threading.Event(), threading.Event()

    def model(prompt: str) -> str:
        asked.set()
        assert goes_on.wait(60)
        return " ".join(re.findall("one|two|three|another", prompt.partition("Said next:")[2]))

    other = BrainMemory(any_store, SESSION, model=model, archive=False)
    summarising = threading.Thread(target=lambda: other.summarize(keep=0))

    def first() -> None:
        other.add_messages([user("three", "3")])
        summarising.start()
        assert asked.wait(60)

    other.add_messages([user("one", "1")])
    overtaken = cast("Store", Overtaken(any_store, first))
    BrainMemory(overtaken, SESSION).add_messages([user("another", "1"), user("two", "2")])
    goes_on.set()
    summarising.join()
    summary = other.get_summary()  # of another try
    assert summary is not None
    assert (summary.text, texts(other.messages())) == ("one three another two", [])


def test_the_same_words_without_an_id_are_said_again(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    for _ in range(2):
        brain.add_talk("yes")
    assert texts(brain.messages()) == ["yes", "yes"]


# --- what else a session holds


def test_knowledge_summary_title_and_text(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION, clock=FakeClock())
    assert (brain.get_summary(), brain.get_title(), brain.get_knowledge(), brain.history_text()) == (None, "", [], "")
    brain.add_talk("Where is my bike?", name="ada")
    brain.add_answer("In the shed.")
    assert brain.history_text() == "ada: Where is my bike?\nassistant: In the shed."
    brain.set_summary("They spoke of Ada's bike.")
    brain.set_title("Bikes")
    brain.add_knowledge(["Ada has a bike.", user("It is blue.")])
    brain.add_knowledge([f"fact {n}" for n in range(20)])
    assert brain.get_summary() == Summary(text="They spoke of Ada's bike.", updated_at=1_800_000_000.0)
    assert brain.get_title() == "Bikes"
    assert texts(brain.get_knowledge()) == ["Ada has a bike.", "It is blue.", *(f"fact {n}" for n in range(20))]
    assert brain.history_text().startswith("They spoke of Ada's bike.\nada: Where")
    assert (brain.exists("In the shed."), brain.exists("in the shed.")) == (True, False)
    brain.set_summary("")
    assert (brain.get_summary(), brain.context().summary) == (None, None)
    assert brain.history_text().startswith("ada: Where")
    brain.clear()
    assert (brain.get_summary(), brain.get_title(), brain.get_knowledge(), brain.messages()) == (None, "", [], [])


def test_a_message_exists_however_long_ago_it_was_said(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    brain.add_messages([user(f"message {n}") for n in range(200)])
    assert [brain.exists(f"message {n}") for n in (199, 100, 0, 200)] == [True, True, True, False]


def test_a_log_is_read_no_further_than_its_first_entry(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    brain = BrainMemory(store, SESSION, model=lambda _: "A summary.")
    brain.add_messages([user("hello"), user("there")])

    def trips(call: Callable[[], Any]) -> int:
        before = door.count
        call()
        return door.count - before

    assert trips(lambda: brain.exists("unknown")) == 1
    assert trips(lambda: brain.delete(["unknown"])) == 1
    # the messages, whether they are still there, two marks of a session that loses messages, whether it was cleared
    # meanwhile, and the summary (a guarded write takes two), and that it is there
    assert trips(brain.summarize) == 1 + 1 + 2 + 1 + 2 + 1


def test_writers_of_knowledge_do_not_lose_each_others(any_store: Store) -> None:
    def write(name: int) -> None:
        for n in range(5):
            BrainMemory(any_store, SESSION).add_knowledge([f"{name}-{n}"])

    in_threads(write, 4)
    found = texts(BrainMemory(any_store, SESSION).get_knowledge())
    assert sorted(found) == sorted(f"{t}-{n}" for t in range(4) for n in range(5))


def in_threads(work: Any, count: int) -> None:
    with ThreadPoolExecutor(count) as threads:
        list(threads.map(work, range(count)))


def test_h5_sessions_users_and_tenants_never_see_each_other(any_store: Store) -> None:
    places = list(itertools.product(("s", "s/t", "s%2Ft"), ("", "ada", "ada/s"), ("", "acme")))
    brains = [BrainMemory(any_store, session, user=who, tenant=tenant) for session, who, tenant in places]
    for n, brain in enumerate(brains):
        brain.add_talk(f"secret {n}")
        brain.set_title(f"title {n}")
    for n, brain in enumerate(brains):
        assert (texts(brain.messages()), brain.get_title()) == ([f"secret {n}"], f"title {n}")
    brains[0].clear()
    assert [brain.count() for brain in brains] == [0] + [1] * (len(brains) - 1)


@pytest.mark.parametrize("session", ["s" * 10_000, "\x00\n/%:*{}[]?", "日本語 🚲", "\ud800", " ", "..", "$type"])
def test_any_text_is_a_session_id(any_store: Store, session: str) -> None:
    brain = BrainMemory(any_store, session, user=session, tenant=session)
    brain.add_messages([user("Hello", session)])
    assert [(m.id, m.text) for m in brain.messages()] == [(session, "Hello")]
    assert [info.session for info in Sessions(any_store, user=session, tenant=session).list_sessions()] == [session]


def test_lone_surrogates_and_ten_megabytes_come_back(any_store: Store) -> None:
    brain = BrainMemory(any_store, SESSION)
    said = [user("\ud800 and \udfff", "id \udc00"), user("x" * 10_000_000, "large")]
    brain.add_messages(said)
    brain.set_title("\ud800")
    assert [(m.id, m.text) for m in brain.messages()] == [(m.id, m.text) for m in said]
    assert (brain.get_title(), brain.exists("\ud800 and \udfff")) == ("\ud800", True)


def test_a2_a_damaged_row_does_not_take_the_session_along(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    brain = BrainMemory(any_store, SESSION)
    brain.add_talk("before")
    rows = [
        ("bad-1", b"\xff my-secret"),
        ("bad-2", b'{"v":1,"id":"bad-2","role":"user","content":"kept","tool_calls":5}'),
    ]
    any_store.append(brain_namespace(Scope(session=SESSION)), rows)
    brain.add_talk("after")
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert texts(brain.messages()) == texts(brain.window()) == ["before", "kept", "after"]
        assert len(caplog.records) == 2  # one for each row
        any_store.append(brain_namespace(Scope(session=SESSION)), [("bad-3", b"{")])
        assert len(BrainMemory(any_store, SESSION).messages()) == len(brain.messages()) == 3
        assert len(caplog.records) == 3
    assert "my-secret" not in caplog.text


def test_a_message_that_is_damaged_beyond_reading_can_be_deleted(any_store: Store) -> None:
    namespace = brain_namespace(Scope(session=SESSION))
    any_store.append(namespace, [("bad", b"\xff my-secret")])
    assert BrainMemory(any_store, SESSION).delete(["bad"]) == 1
    assert any_store.scan(namespace).items == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"session": ""}, "a session id is a text that is not empty, not ''"),
        ({"session": None}, "a session id is a text that is not empty, not None"),
        ({"memory_k": 0}, "memory_k is a whole number of at least 1, not 0"),
        ({"ttl": 0}, "ttl is a number of seconds above 0, or None, not 0"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        BrainMemory(MemoryStore(), **({"session": "s"} | arguments))


def test_wrong_calls_are_one_sentence() -> None:
    brain = BrainMemory(MemoryStore(), SESSION)
    with pytest.raises(ConfigurationError, match="k is a whole number of at least 1, not 0"):
        brain.window(0)
    with pytest.raises(ConfigurationError, match="knowledge is a list of facts, not one str"):
        brain.add_knowledge("Ada has a bike.")
    with pytest.raises(ConfigurationError, match="has no long-term memory: give it long_term="):
        brain.recall("bike")


# --- sync and async


def test_every_method_has_an_async_twin() -> None:
    methods = {name: m for name, m in inspect.getmembers(BrainMemory, inspect.isfunction) if not name.startswith("_")}
    for both_at_once in ("record_turn", "stats"):  # a context manager of either kind; and what does not wait
        del methods[both_at_once]
    sync = {name for name, method in methods.items() if not inspect.iscoroutinefunction(method)}
    assert methods.keys() == sync | {f"a{name}" for name in sync}


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("add_talk", ("Where is my bike?",)),
    ("add_answer", ("In the shed.",)),
    ("add_messages", ([user("And my hat?"), user("And my dog?"), user("And my cat?")],)),
    *((name, ()) for name in ("messages", "window", "count", "history_text", "get_summary", "get_title")),
    ("exists", ("And my dog?",)),
    ("add_knowledge", (["Ada has a bike."],)),
    ("set_summary", ("Lost things.",)),
    ("set_title", ("Things",)),
    *((name, ()) for name in ("get_knowledge", "get_summary", "get_title", "history_text")),
    ("recall", ("bike",)),
    ("remembering_window", ()),
    ("find_news", ([user("And my CAT"), user("And my dog?"), user("And my bird?")],)),
    ("delete", (["1"],)),
    *((name, ()) for name in ("context", "flush")),
    ("is_related", ("And the bike?", "A bike is in the shed.")),
    ("rewrite", ("And it?", "A bike is in the shed.")),
    ("refine", ("Is it there?",)),
    ("summarize", ()),
    ("set_title", ("",)),
    ("get_title", (lambda prompt: f"Lost {len(prompt)} things",)),
    *((name, ()) for name in ("context", "get_summary", "messages")),
    ("clear", ()),
    ("messages", ()),
]


async def test_a5_the_async_methods_do_the_same(any_store: Store) -> None:
    def brain(name: str) -> BrainMemory:
        ids, clock = itertools.count(), FakeClock()
        long_term = LongTermMemory(any_store, open_index("memory:"), user=name, clock=clock)
        new_id = lambda: str(next(ids))  # noqa: E731 - two lines more would say no more
        return BrainMemory(
            any_store, "s", user=name, memory_k=2, long_term=long_term, model=answer, clock=clock, new_id=new_id
        )

    def answer(prompt: str) -> str:
        return "TRUE" if "TRUE or FALSE" in prompt else f"An answer to {len(prompt)} characters."

    one, other = brain("one"), brain("other")
    twins = {n for n in dir(one) if f"a{n}" in dir(one)} - {"from_metagpt"}  # a constructor, tested in test_metagpt.py
    assert {name for name, _ in CALLS} == twins
    for name, arguments in CALLS:
        assert getattr(one, name)(*arguments) == await getattr(other, f"a{name}")(*arguments), name
        assert one.stats() == other.stats(), name


# --- overflow


def tool_group(n: int) -> list[Message]:
    call = Message(id=f"{n}-call", role="assistant", tool_calls=[ToolCall(id=str(n), name="look")])
    return [call, Message(id=f"{n}-result", role="tool", content=f"result {n}", tool_call_id=str(n))]


@st.composite
def batches(draw: st.DrawFn) -> list[list[Message]]:
    said: list[Message] = []
    for n in range(draw(st.integers(1, 20))):
        kind = draw(st.sampled_from(["user", "assistant", "system", "moderator", "tools"]))
        one = [Message(id=str(n), role=kind, content=f"{kind} {n}")]
        said += tool_group(n) if kind == "tools" else one
    cuts = sorted(draw(st.lists(st.integers(0, len(said)), max_size=6)))
    return [said[a:b] for a, b in zip([0, *cuts], [*cuts, len(said)], strict=True)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(batches(), st.integers(1, 6))
def test_f2c_the_short_term_holds_k_and_both_together_hold_all(
    any_store: Store, said: list[list[Message]], k: int
) -> None:
    brain, long_term = both(any_store, k)
    brain.clear()
    long_term.clear()
    for batch in said:
        brain.add_messages(batch)
        held = brain.messages()
        # a question stays with the tools that were called for it, where k is too small for both
        assert len(held) <= max(k, 3 if any(m.role == "tool" for m in held) else 2)
    every = [message.id for batch in said for message in batch]
    kept = [occurrence.message_id for memory in long_term.all() for occurrence in memory.occurrences]
    assert sorted(texts_ids(brain) + kept) == sorted(every)
    assert texts_ids(brain) == [id_ for id_ in every if id_ not in kept]
    shown = brain.window()
    if any(message.role == "user" for batch in said for message in batch):
        assert shown == [] or next(m.role for m in shown if m.role != "system") == "user"
    assert not {found.text for found in brain.recall("user assistant")} & set(texts(shown))


def texts_ids(brain: BrainMemory) -> list[str]:
    return [message.id for message in brain.messages()]


class Measured(MemoryStore):
    """A store that knows how much was asked of it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.written = 0

    def scan(self, namespace: Namespace, **bounds: Any) -> Page:
        page = super().scan(namespace, **bounds)
        self.read = max(self.read, len(page.items))
        return page

    def write(self, namespace: Namespace, **changes: Any) -> None:
        self.written = max(self.written, *map(len, (changes.get("put") or (), changes.get("remove") or ())))
        super().write(namespace, **changes)


@pytest.mark.parametrize("tools", [False, True])
def test_what_a_session_had_before_its_long_term_memory_moves_there_a_part_at_a_time(*, tools: bool) -> None:
    store = Measured()
    said = [user(f"say {n}", f"{n}") for n in range(3000)]
    if tools:
        said[1500:1500] = [message for n in range(400) for message in tool_group(n)]
    BrainMemory(store, SESSION, user="ada").add_messages(said)
    brain, long_term = both(store, 5)
    brain.add_talk("and now")
    assert (brain.count(), texts(brain.messages())[-1]) == (5, "and now")
    kept = [occurrence.message_id for memory in long_term.all() for occurrence in memory.occurrences]
    assert sorted(kept) == sorted(message.id for message in said[:-4])
    assert max(store.read, store.written) < 1000


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.usefixtures("no_log_is_tidied")  # a failure of that is only logged
def test_f2c_a_failure_at_any_step_loses_and_doubles_nothing(any_store: Store, after: bool) -> None:
    said = [[user(f"{n}-{m} said", f"{n}-{m}") for m in range(2)] for n in range(4)]
    failed = 0
    for fail_at in itertools.count(1):
        store = Unplugged(any_store, fail_at, after=after)
        brain, long_term = both(any_store, 3)
        brain.clear()
        long_term.clear()
        failing, _ = both(cast("Store", store), 3)
        for batch in said:
            try:
                failing.add_messages(batch)
            except StoreUnavailable:  # noqa: PERF203 - each batch is tried for itself
                failed += 1
                failing.add_messages(batch)
        if store.calls < fail_at:
            break
        kept = [occurrence.message_id for memory in long_term.all() for occurrence in memory.occurrences]
        assert texts_ids(brain) == ["2-1", "3-0", "3-1"]
        assert sorted(kept) == ["0-0", "0-1", "1-0", "1-1", "2-0"]
    assert failed == fail_at - 1 > 8


def test_eight_threads_that_overflow_one_session_lose_nothing(any_store: Store) -> None:
    def talk(thread: int) -> None:
        brain, _ = both(any_store, 5)
        for n in range(12):
            brain.add_messages([user(f"{thread}-{n}", f"{thread}-{n}")])

    in_threads(talk, 8)
    brain, long_term = both(any_store, 5)
    kept = [occurrence.message_id for memory in long_term.all() for occurrence in memory.occurrences]
    assert brain.count() == 5
    assert sorted(texts_ids(brain) + kept) == sorted(f"{t}-{n}" for t in range(8) for n in range(12))


def test_two_writers_who_overflow_at_once_move_no_more_than_one_would(any_store: Store) -> None:
    other, long_term = both(any_store, 4)
    other.add_messages([user(f"say {n}") for n in range(4)])
    slow, _ = both(cast("Store", Overtaken(any_store, lambda: other.add_talk("the other's"), at="scan")), 4)
    slow.add_talk("mine")
    assert texts(other.messages()) == ["say 2", "say 3", "mine", "the other's"]
    assert [memory.message.text for memory in long_term.all()] == ["say 0", "say 1"]


def test_h1_what_was_recalled_is_never_stored_again(any_store: Store) -> None:
    brain, long_term = both(any_store, 4)
    questions = ["Where is my bike?", "Who fed the dog?", "What is for lunch?"]
    for n in range(50):
        question = questions[n % 3]
        recalled = [found.text for found in brain.recall(question, 2)]
        brain.add_messages([Message(role="system", content=f"Earlier: {recalled}", metadata={RECALLED: True})])
        brain.add_talk(question)
        brain.add_answer(f"You asked: {question}")
    assert long_term.count() <= 2 * len(questions)
    assert not any(memory.message.text.startswith("Earlier") for memory in long_term.all())


def test_recall_does_not_repeat_the_question_that_stands_in_front_of_a_long_run_of_tools(any_store: Store) -> None:
    brain, long_term = both(any_store, 3)
    long_term.add([user("Find my bike"), user("Find my hat")])
    calls = [ToolCall(id=str(n), name="look") for n in range(4)]
    results = [Message(role="tool", content="nothing", tool_call_id=call.id) for call in calls]
    brain.add_messages([user("Find my bike"), Message(role="assistant", tool_calls=calls), *results])
    assert texts(brain.window()) == ["Find my bike", "", *["nothing"] * 4]
    assert [found.text for found in brain.recall("find my bike")] == ["Find my hat"]


# --- expiry


@pytest.fixture(params=["memory", "sqlite"])
def clocked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, FakeClock]]:
    clock = FakeClock()
    store = MemoryStore(clock=clock) if request.param == "memory" else SQLiteStore(tmp_path / "ttl.db", clock=clock)
    yield store, clock
    store.close()


def test_a7_a_session_expires_as_a_whole_after_its_last_write(clocked: tuple[Store, FakeClock]) -> None:
    store, clock = clocked
    brain = BrainMemory(store, SESSION, ttl=60, clock=clock)
    brain.add_talk("first")
    brain.set_title("Title")
    clock.advance(59)
    brain.add_talk("second")
    clock.advance(59)
    assert (texts(brain.messages()), brain.get_title()) == (["first", "second"], "Title")
    clock.advance(1)
    assert (brain.messages(), brain.get_title(), brain.count()) == ([], "", 0)
    assert Sessions(store).list_sessions() == []


def test_a7_no_key_in_redis_is_without_an_expiry(redis_server: RedisServer, key_prefix: str) -> None:
    store = RedisStore(redis_server.url(), prefix=key_prefix)
    brain = BrainMemory(store, SESSION, ttl=60)
    with redis.Redis.from_url(redis_server.url()) as raw:
        for write in (
            lambda: brain.add_talk("Hello"),
            lambda: brain.set_title("Title"),
            lambda: brain.add_knowledge(["a fact"]),
            lambda: brain.set_summary("a summary"),
            lambda: Sessions(store, ttl=60).rename_session(SESSION, "Other"),
        ):
            write()
            keys = cast("list[bytes]", raw.keys(f"{key_prefix}*"))
            lifetimes = {cast("int", raw.ttl(key)) for key in keys if not key.endswith(b":dir")}
            assert lifetimes
            assert lifetimes <= {59, 60}
            assert all(cast("int", raw.ttl(key)) >= 59 for key in keys)  # the list of sessions outlives each of them
    store.close()
