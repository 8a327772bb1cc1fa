"""LongTermMemory over every store: recall, scopes, and an index that may be lost at any time (E2, E3, E4, H1, H5)."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langmem_adapters.codec import encode
from langmem_adapters.embedding import Embedder
from langmem_adapters.encryption import AESGCMCodec
from langmem_adapters.errors import ConfigurationError, SearchError, StoreUnavailable
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.keys import Namespace
from langmem_adapters.language.analysis import matching
from langmem_adapters.longterm import RECALLED, LongTermMemory, longterm_namespace
from langmem_adapters.model import Hit, Message, Recalled, Scope, ToolCall
from langmem_adapters.protocols import Document, Page, Store
from langmem_adapters.recall import vectors as semantic
from langmem_adapters.records import keyed
from langmem_adapters.records.journal import COMPACTION_KEY, compact_log
from langmem_adapters.records.keyed import Records
from langmem_adapters.sealing import SealedStore
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.redis import RedisStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from tests.allocations import traced
from tests.benchmarks.round_trips import RoundTrips
from tests.faults import Unplugged

POEM = ["床前明月光", "疑是地上霜", "举头望明月", "低头思故乡"]


def user(text: str, id_: str = "", **fields: Any) -> Message:
    return Message(id=id_, role="user", content=text, **fields)


def texts(found: list[Recalled]) -> list[str]:
    return [recalled.text for recalled in found]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LexicalIndex]:
    index = LexicalIndex(tmp_path / "index.db")
    yield index
    index.close()


@pytest.fixture
def memory(any_store: Store, index: LexicalIndex) -> LongTermMemory:
    return LongTermMemory(any_store, index, user="ada", clock=FakeClock())


# --- search


def test_e3_the_best_comes_first_with_scores_between_0_and_1(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red."), user("The red bike is in the shed."), user("Lunch was good.")])
    found = memory.search("red bike in the shed")
    assert texts(found) == ["The red bike is in the shed.", "My bike is red."]
    scores = [recalled.score for recalled in found]
    assert scores == sorted(scores, reverse=True)
    assert 1 >= scores[0] > scores[-1] > 0


def test_no_more_than_k_are_found(memory: LongTermMemory) -> None:
    memory.add([user(f"bike number {n}") for n in range(30)])
    assert [len(memory.search("bike", k)) for k in (1, 12, 100, 0, -1)] == [1, 12, 30, 0, 0]
    assert len(memory.search("bike")) == 5


class Watched(MemoryStore):
    """Remembers how many values each call asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def get(self, namespace: Namespace, keys: Sequence[str] | None = None) -> dict[str, bytes]:
        self.asked.append(len(keys or ()))
        return super().get(namespace, keys)

    def scan(self, namespace: Namespace, *, keys: Sequence[str] = (), **bounds: Any) -> Page:
        if records := [key for key in keys if key != COMPACTION_KEY]:  # read with the end of the log
            self.asked.append(len(records))
        return super().scan(namespace, keys=keys, **bounds)


def test_a_search_reads_k_memories_and_others_only_where_some_of_them_are_not_wanted(index: LexicalIndex) -> None:
    store = Watched()
    memory = LongTermMemory(store, index, user="ada")
    memory.add([user(f"bike number {n}") for n in range(60)])
    best = texts(memory.search("bike", 60))
    store.asked.clear()
    assert texts(memory.search("bike", 4)) == best[:4]
    assert store.asked == [4]
    store.asked.clear()
    assert texts(memory.search("bike", 4, where=lambda m: m.message.text not in best[1:9:2])) == best[0:7:2]
    assert store.asked == [4, 8]
    store.asked.clear()
    assert texts(memory.search("bike", 4, where=lambda m: m.message.text in best[20:])) == best[20:24]
    with pytest.raises(ConfigurationError, match="where is a coroutine function"):
        memory.search("bike", 4, where=asyncio.sleep)  # type: ignore[arg-type]
    assert store.asked == [4, 8, 48]  # each once, whatever was walked through
    store.asked.clear()
    assert texts(memory.search("bike", 4, where=lambda m: m.message.text == best[59])) == best[59:]
    assert store.asked == [4, 8, 48]
    with pytest.raises(ConfigurationError, match="where gave what must be awaited"):
        memory.search("bike", 4, where=lambda _: asyncio.sleep(0, False))  # type: ignore[arg-type, return-value]
    store.asked.clear()
    assert texts(memory.search("bike", 60)) == best
    assert store.asked == [60]
    store.asked.clear()
    assert len(memory.search("bike", 61)) == 60
    assert store.asked == [60]


def test_records_give_no_more_than_k_of_those_that_are_wanted(index: LexicalIndex) -> None:
    ids = map(str, itertools.count())
    kept = Records(
        MemoryStore(), ("notes",), index=index, text_of=lambda _, data: data.decode(), new_id=lambda: next(ids)
    )
    kept.put({str(n): b"bike %d" % n for n in range(12)})
    best = [hit.id for hit, _ in kept.search("bike", 12, lambda _, data: data)]
    found = kept.search("bike", 2, lambda key, data: None if key == best[0] else data)
    assert [(hit.id, data) for hit, data in found] == [(key, b"bike %d" % int(key)) for key in best[1:3]]


@pytest.mark.parametrize("query", ["", "   \n", "\x00", "?!", "\ud800", "zebra", "🚲"])
def test_what_asks_for_nothing_or_for_what_is_not_there_finds_nothing(memory: LongTermMemory, query: str) -> None:
    assert memory.search(query) == []  # also where nothing was ever added
    memory.add([user("My bike is red.")])
    assert memory.search(query) == []


def test_a_megabyte_is_a_query_like_any_other(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red.")])
    assert texts(memory.search("bike " + "word " * 200_000)) == ["My bike is red."]


def test_e4_chinese_and_japanese_are_found(memory: LongTermMemory) -> None:
    memory.add([user(line) for line in [*POEM, "自転車は車庫にあります。", "昼ご飯はおいしかった。"]])
    assert texts(memory.search("故乡"))[0] == "低头思故乡"
    assert texts(memory.search("自転車はどこ"))[0] == "自転車は車庫にあります。"


@pytest.mark.parametrize(
    ("text", "asked", "shown"),
    [
        ("A naïve idea.", "naive", "naïve"),
        ("A naive idea.", "naïve", "naive"),
        ("In İstanbul.", "istanbul", "İstanbul"),
        ("Λέω καλημέρα.", "καλημερα", "καλημέρα"),
        ("Вот за\u0301мок.", "замок", "за\u0301мок"),  # noqa: RUF001 - Russian
        ("मैं हिन्दी बोलता हूँ।", "हिन्दी", "हिन्दी"),
    ],
)
def test_e4_accents_are_no_difference(memory: LongTermMemory, text: str, asked: str, shown: str) -> None:
    memory.add([user(text)])
    assert texts(memory.search(asked)) == [text]
    assert [text[start:end] for start, end in matching(asked, text)] == [shown]


def test_what_is_shown_anyway_is_left_out(memory: LongTermMemory) -> None:
    memory.add([user(f"bike number {n}") for n in range(30)])
    shown = [user(f" bike  number {n}\n") for n in range(28)]
    assert sorted(texts(memory.search("bike", 5, exclude=shown))) == ["bike number 28", "bike number 29"]


def test_tools_and_system_prompts_are_kept_but_not_found(memory: LongTermMemory) -> None:
    call = Message(role="assistant", tool_calls=[ToolCall(id="1", name="look", args={"what": "bike"})])
    said = [Message(role="system", content="bike"), call, Message(role="tool", content="bike", tool_call_id="1")]
    memory.add([*said, user("Thanks.", name="Bikelover")])
    assert [found.message.role for found in memory.all()] == ["system", "assistant", "tool", "user"]
    assert memory.all()[1].message == call
    assert memory.search("bike") == []
    assert texts(memory.search("Bikelover")) == ["Thanks."]


def test_what_was_said_before_many_calls_is_found_once_and_takes_no_place_of_others(memory: LongTermMemory) -> None:
    def call(n: int, of: str) -> ToolCall:
        return ToolCall(id=f"call-{n}", name="price", args={"of": of})

    said, text = user("The price of the ticket is ten euros.", name="Bob"), "Let me look up the price of the ticket."
    looked = [Message(role="assistant", content=text, tool_calls=[call(n, f"ticket {n // 2}")]) for n in range(30)]
    told = [Message(role="assistant", content="Its price: ten.", tool_call_id=f"call-{n}") for n in range(30)]
    memory.add([*looked, Message(role="assistant", content=text), *told, said], session="s")
    assert memory.count() == 62
    for scope in (None, memory.scope.model_copy(update={"session": "s"})):
        found = memory.search("What is the price of the ticket?", 3, scope=scope)
        assert sorted(texts(found)) == ["Its price: ten.", text, said.text]
    calls = [call(2, "ticket 1")]
    (found_call,) = memory.search(text, 1, where=lambda found: found.message.tool_calls == calls)
    assert found_call.memory.message == looked[2]


def test_what_an_attempt_of_a_search_let_through_and_is_gone_hides_nothing_from_the_next(index: LexicalIndex) -> None:
    text, ask = "Let me look up the price of the ticket.", "What is the price of the ticket?"

    class Overtaken(MemoryStore):
        after_scan: Callable[[], Any] | None = None

        def scan(self, *args: Any, **bounds: Any) -> Page:
            page = super().scan(*args, **bounds)
            change, self.after_scan = self.after_scan, None
            if change is not None:
                change()
            return page

    def forget_first() -> None:
        assert LongTermMemory(store, open_index("memory:"), user="ada").delete([first.memory.id]) == 1
        index.clear(longterm_namespace(memory.scope))

    store = Overtaken()
    memory = LongTermMemory(store, index, user="ada")
    calls = [ToolCall(id=f"call-{n}", name="price", args={"of": f"ticket {n}"}) for n in range(2)]
    memory.add([Message(role="assistant", content=text, tool_calls=[call]) for call in calls])
    (first,) = memory.search(ask)
    store.after_scan = forget_first
    (second,) = memory.search(ask)
    assert store.after_scan is None
    assert second.text == text
    assert second.memory.id != first.memory.id


def test_a_corrected_memory_hides_none_that_says_what_it_said(memory: LongTermMemory) -> None:
    text = "The ticket costs ten euros."
    call = ToolCall(id="call-1", name="price", args={})
    memory.add([Message(role="assistant", content=text), Message(role="assistant", content=text, tool_calls=[call])])
    corrected = next(kept for kept in memory.all() if not kept.message.tool_calls)
    memory.update(corrected.id, "The ticket costs twelve euros, the ticket.")
    found = memory.search("What does the ticket cost?")
    assert sorted(texts(found)) == [text, "The ticket costs twelve euros, the ticket."]


# --- what is kept


def test_what_has_no_text_is_kept_but_not_found_by_the_name_of_who_said_it(memory: LongTermMemory) -> None:
    call = Message(role="assistant", name="Bot", tool_calls=[ToolCall(id="1", name="weather", args={"city": "Rome"})])
    blank = Message(role="user", name="Bot", content=" \n")
    memory.add([user("What is the weather in Rome?"), call, blank, user("It is sunny.", name="Bot")], session="s")
    assert memory.count() == 4
    for query in ("Bot", "weather in Rome", "What did Bot say of the weather?"):
        assert set(texts(memory.search(query))) == {"What is the weather in Rome?", "It is sunny."}


def test_a1_what_is_said_beside_the_text_is_kept_each_time_that_it_is_another(memory: LongTermMemory) -> None:
    spoken = [{"audio": {"id": id_, "data": "UklGRg=="}} for id_ in ("audio_1", "audio_2")]
    hosts = [{"langchain": {"additional_kwargs": fields}} for fields in (*spoken, spoken[0])]
    memory.add([Message(id=f"m{n}", role="assistant", host=host) for n, host in enumerate(hosts)])
    assert [each.message.host for each in memory.all()] == hosts[:2]
    assert [len(each.occurrences) for each in memory.all()] == [2, 1]


def test_h1_what_is_said_is_one_memory_whatever_a_host_tells_beside_it(memory: LongTermMemory) -> None:
    told: list[dict[str, Any]] = [{"additional_kwargs": {}}, {"other": 1}, {"additional_kwargs": {"refusal": None}}]
    hosts: list[dict[str, Any]] = [{}, *({"langchain": fields} for fields in told)]
    call = ToolCall(id="1", name="weather", args={"city": "Rome"})
    memory.add([Message(role="assistant", content="My bike is red.", host=host) for host in hosts])
    memory.add([Message(role="assistant", tool_calls=[call], host=host) for host in hosts])
    memory.add([Message(role="assistant", host=host) for host in hosts[:-1]])
    assert [len(each.occurrences) for each in memory.all()] == [4, 4, 3]


def test_what_is_known_already_is_not_written_again(memory: LongTermMemory, any_store: Store) -> None:
    for _ in range(3):
        memory.add([user("My bike is red.", "1"), user("It is in the shed.", "2")], session="s")
        assert any_store.scan(longterm_namespace(memory.scope)).total == 1
    memory.update(memory.all()[0].id, "My bike is blue.")
    memory.add([user("My bike is red.", "1")], session="s")
    assert any_store.scan(longterm_namespace(memory.scope)).total == 2


def test_a_memory_of_which_nobody_knows_when_it_was_said_is_found(memory: LongTermMemory, any_store: Store) -> None:
    message = user("My bike is red.")
    memory.add([message])
    (known,) = memory.all()
    unsaid = known.model_copy(update={"id": "by hand", "occurrences": []})
    any_store.write(
        longterm_namespace(memory.scope), put={"by hand": unsaid.to_bytes()}, append=[("e1", encode(["by hand"]))]
    )
    assert [found.memory.id for found in memory.search("bike")] == ["by hand", known.id]


def test_h1_what_is_said_again_is_kept_once_with_each_time(memory: LongTermMemory) -> None:
    for session, id_ in (("monday", "1"), ("monday", "1"), ("tuesday", "1"), ("tuesday", "2")):
        memory.add([user("My bike is red.", id_, created_at=float(id_))], session=session)
    memory.add([user(" My  bike is red.", "3"), Message(role="assistant", content="My bike is red.", id="4")])
    of_user, of_assistant = memory.all()
    places = [(o.session, o.message_id, o.created_at) for o in of_user.occurrences]
    now = 1_800_000_000.0
    assert places == [("monday", "1", 1.0), ("tuesday", "1", 1.0), ("tuesday", "2", 2.0), ("", "3", now)]
    assert [o.message_id for o in of_assistant.occurrences] == ["4"]
    assert memory.count() == 2


@pytest.mark.parametrize("at_once", [True, False])
def test_h1_near_duplicates_are_one_memory_with_the_words_of_each_time(memory: LongTermMemory, at_once: bool) -> None:
    said = ["My bike is red, Bob.", "my bike is red Bob", "My bike is red,  bob!", "My bike is red, Bob."]
    messages = [user(text, str(n)) for n, text in enumerate(said)]
    for part in [messages] if at_once else [[message] for message in messages]:
        memory.add(part, session="s")
    (kept,) = memory.all()
    assert [kept.message.text, *(o.said or kept.message.text for o in kept.occurrences)] == [said[0], *said]
    assert memory.search("bike", exclude=[user("my bike is red bob")]) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It rains.", "It rains?"),
        ("What is 5!", "What is 5"),
        ("The password is Hunter2", "The password is hunter2"),
        ("It is 5 M away", "It is 5 m away"),
        ("She lives in the US", "She lives in the us"),
        ("Use Foo.bar", "Use foo.bar"),
        ("No. I like it", "No I like it"),
        ("Rows 1, 2", "Rows 1 2"),
        (":)", ":("),
    ],
)
def test_h1_what_may_mean_another_thing_is_a_memory_of_its_own(memory: LongTermMemory, one: str, other: str) -> None:
    memory.add([user(one), user(other)])
    assert sorted(kept.message.text for kept in memory.all()) == sorted([one, other])


def test_words_that_only_a_forgotten_session_said_go_with_it(memory: LongTermMemory) -> None:
    memory.add([user("Secret word: Plum.", "1")], session="mine")
    memory.add([user("secret word: plum", "2"), user("Secret word: plum", "3")], session="yours")
    run(memory.forget_flow("mine", None))
    (left,) = memory.all()
    assert left.message.text == "secret word: plum"
    assert [(o.session, o.said) for o in left.occurrences] == [("yours", ""), ("yours", "Secret word: plum")]
    assert [found.text for found in memory.search("plum")] == ["secret word: plum"]


@pytest.mark.parametrize("corrected", [False, True])
def test_what_only_the_message_of_a_forgotten_session_had_goes_with_it(memory: LongTermMemory, corrected: bool) -> None:
    own: dict[str, Any] = {"metadata": {"place": "clinic"}, "host": {"langchain": {"additional_kwargs": {"a": "mine"}}}}
    memory.add([user("I am well.", "1", created_at=1.0, **own)], session="mine")
    memory.add([user("I am well.", "2", created_at=2.0, metadata={"place": "home"})], session="yours")
    (both,) = memory.all()
    if corrected:
        memory.update(both.id, "I am well again.")
    run(memory.forget_flow("mine", None))
    (left,) = memory.all()
    expected = user("I am well again." if corrected else "I am well.", "2", created_at=2.0)
    assert (left.id, left.message) == (both.id, expected)


def test_what_a_message_had_stays_while_its_own_session_does(memory: LongTermMemory) -> None:
    first = user("I am well.", "1", created_at=1.0, metadata={"place": "clinic"})
    memory.add([first], session="mine")
    memory.add([user("I am well.", "2")], session="yours")
    memory.add([user("I am well.", "3")], session="theirs")
    run(memory.forget_flow("yours", None))
    assert [(left.message, len(left.occurrences)) for left in memory.all()] == [(first, 2)]


def test_of_what_a_session_said_twice_one_time_is_forgotten_alone(memory: LongTermMemory) -> None:
    memory.add([user("yes", "1"), user("yes", "2")], session="mine")
    run(memory.forget_flow("mine", ["1"]))
    assert [[o.message_id for o in left.occurrences] for left in memory.all()] == [["2"]]


def test_what_a_host_alone_knows_was_said_stays_with_those_who_said_it_too(memory: LongTermMemory) -> None:
    spoken = {"langchain": {"additional_kwargs": {"audio": {"transcript": "It is in the shed."}}}}
    memory.add([user("", "1", host=spoken)], session="mine")
    memory.add([user("", "2", host=spoken, metadata={"place": "home"})], session="yours")
    run(memory.forget_flow("mine", None))
    (left,) = memory.all()
    assert (left.message.id, left.message.host) == ("2", spoken)


def test_h1_what_is_delivered_twice_at_once_was_said_once(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red.", "1"), user("Yes."), user("My bike is red.", "1"), user("Yes.")], session="s")
    memory.add([user("My bike is red.", "2"), user("My bike is red.", "2")], session="s")
    assert [[o.message_id for o in each.occurrences] for each in memory.all()] == [["1", "2"], ["", ""]]


@pytest.mark.parametrize("at_once", [150, 300])
def test_a_memory_remembers_its_first_and_its_latest_hundred_times(memory: LongTermMemory, at_once: int) -> None:
    for start in range(0, 300, at_once):
        memory.add([user("yes", str(n)) for n in range(start, start + at_once)])
    (yes,) = memory.all()
    assert [o.message_id for o in yes.occurrences] == ["0", *(str(n) for n in range(200, 300))]


def test_writers_who_say_the_same_lose_no_occurrence(any_store: Store, index: LexicalIndex) -> None:
    def say(writer: int) -> None:
        memory = LongTermMemory(any_store, index, user="ada")
        for n in range(5):
            memory.add([user("yes", f"{writer}-{n}")])

    with ThreadPoolExecutor(8) as writers:
        list(writers.map(say, range(8)))
    (yes,) = LongTermMemory(any_store, index, user="ada").all()
    assert sorted(o.message_id for o in yes.occurrences) == sorted(f"{w}-{n}" for w in range(8) for n in range(5))


def test_h1_what_was_recalled_is_not_kept(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red.", metadata={RECALLED: True})])
    assert memory.all() == []


@pytest.mark.parametrize("after", [True, False])
def test_a_deletion_whose_answer_was_lost_was_made_or_is_an_error(
    any_store: Store, index: LexicalIndex, after: bool
) -> None:
    memory = LongTermMemory(any_store, index, user="ada")
    memory.add([user("The bike is in the shed.", "a")])
    (kept,) = memory.all()
    unplugged = LongTermMemory(Unplugged(any_store, 2, after=after), index, user="ada")
    if after:
        assert unplugged.delete([kept.id]) == 1
    else:
        with pytest.raises(StoreUnavailable):
            unplugged.delete([kept.id])
    assert (memory.count(), unplugged.delete([kept.id])) == ((0, 0) if after else (1, 1))


def test_get_update_and_delete_reach_the_index(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red.", "1"), user("Lunch was good.", "2")])
    bike = memory.search("bike")[0].memory
    assert memory.get(bike.id) == bike
    assert memory.update(bike.id, "My tricycle is blue.") is True
    assert (texts(memory.search("bike")), texts(memory.search("tricycle"))) == ([], ["My tricycle is blue."])
    assert memory.delete([bike.id, "none"]) == 1
    assert (memory.search("tricycle"), memory.get(bike.id), memory.delete([bike.id])) == ([], None, 0)
    assert memory.update("none", "x") is False
    memory.clear()
    assert (memory.all(), memory.search("lunch")) == ([], [])
    memory.add([user("Lunch was bad.")])
    assert texts(memory.search("lunch")) == ["Lunch was bad."]


@pytest.mark.parametrize("text", [None, 5, ["list"], {}, b"bytes"])
def test_a_memory_is_corrected_by_a_text_and_by_nothing_else(memory: LongTermMemory, text: Any) -> None:
    memory.add([user("My bike is red.", "1")])
    before = memory.all()
    with pytest.raises(ConfigurationError, match=f"the text of a memory is a text, not {type(text).__name__}$"):
        memory.update(before[0].id, text)
    with pytest.raises(ConfigurationError, match="the id of a memory is a text"):
        memory.update(text, "My bike is blue.")
    assert memory.all() == before
    assert texts(memory.search("bike")) == ["My bike is red."]


def test_a_correction_of_a_text_leaves_the_picture_beside_it(memory: LongTermMemory) -> None:
    picture = {"type": "image", "url": "https://example.org/bike.png"}
    shed, sure = {"type": "text", "text": "My bike is in the shed."}, {"type": "text", "text": "I am sure."}
    memory.add([Message(role="user", content=[picture, shed, sure])])
    (kept,) = memory.all()
    garage = {"type": "text", "text": "My bike is in the garage."}
    for text, content in [(kept.message.text, [picture, shed, sure]), (garage["text"], [picture, garage])]:
        assert memory.update(kept.id, text) is True
        assert [(m.message.content, m.corrected) for m in memory.all()] == [(content, content[1] != shed)]
    assert (texts(memory.search("garage")), memory.search("shed")) == ([garage["text"]], [])
    memory.add([Message(role="user", content=[picture])])
    picture_alone = next(m.id for m in memory.all() if m.id != kept.id)
    assert memory.update(picture_alone, "My tricycle.") is True
    assert memory.get(picture_alone).message.content == [{"type": "text", "text": "My tricycle."}, picture]  # type: ignore[union-attr]
    memory.add([Message(role="user", content=[picture, "My scooter.", "Surely."])])  # as LangChain has text, too
    said_plainly = next(m.id for m in memory.all() if m.id not in {kept.id, picture_alone})
    assert memory.update(said_plainly, "My sledge.") is True
    assert memory.get(said_plainly).message.content == [picture, {"type": "text", "text": "My sledge."}]  # type: ignore[union-attr]


def said(memory: LongTermMemory) -> list[tuple[str, list[str]]]:
    return [(m.message.text, [f"{o.session} {o.message_id}" for o in m.occurrences]) for m in memory.all()]


def test_a_corrected_memory_stays_corrected_when_the_same_message_comes_again(memory: LongTermMemory) -> None:
    memory.add([user("My bike is in the shed.", "1")], session="monday")
    memory.update(memory.all()[0].id, "My bike is in the garage.")
    for _ in range(2):
        memory.add([user("My bike is in the shed.", "1")], session="monday")
    assert said(memory) == [("My bike is in the garage.", ["monday 1"])]
    assert texts(memory.search("shed")) == []


def test_what_is_said_again_after_a_correction_is_a_memory_of_its_own(memory: LongTermMemory) -> None:
    memory.add([user("My bike is in the shed.", "1")], session="monday")
    memory.update(memory.all()[0].id, "My bike is in the garage.")
    for session, id_ in [("friday", "1"), ("monday", "9"), ("friday", "1"), ("monday", "1")]:
        memory.add([user("My bike  is in the shed.", id_), user("Yes.", id_)], session=session)
    yes = ("Yes.", ["friday 1", "monday 9", "monday 1"])
    again = ("My bike  is in the shed.", ["friday 1", "monday 9"])
    assert said(memory) == [("My bike is in the garage.", ["monday 1"]), again, yes]
    assert texts(memory.search("shed", 1)) == ["My bike  is in the shed."]
    for n, memory_ in enumerate(memory.all()[:2]):
        memory.update(memory_.id, f"My bike was stolen {n} times.")
        assert memory.get(memory_.id) == memory.all()[n]
    memory.add([user("My bike is in the shed.", "1")], session="friday")
    memory.add([user("My bike is in the shed.", "2")], session="sunday")
    assert said(memory)[:2] == [
        ("My bike was stolen 0 times.", ["monday 1"]),
        ("My bike was stolen 1 times.", again[1]),
    ]
    assert said(memory)[3:] == [("My bike is in the shed.", ["sunday 2"])]


def test_a_correction_that_is_taken_back_leaves_no_second_memory(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red.", "1")])
    for text in ("My bike is blue.", "My bike is red."):
        memory.update(memory.all()[0].id, text)
    memory.add([user("My bike is red.", "2")])
    assert said(memory) == [("My bike is red.", [" 1", " 2"])]


def test_what_is_said_again_without_an_id_after_a_correction_is_not_lost(memory: LongTermMemory) -> None:
    memory.add([user("My bike is red.")])
    memory.update(memory.all()[0].id, "My bike is blue.")
    memory.add([user("My bike is red.")])
    assert [m.message.text for m in memory.all()] == ["My bike is blue.", "My bike is red."]


def test_what_a_session_said_again_after_a_correction_is_known_and_is_taken_back(memory: LongTermMemory) -> None:
    first, again = user("My bike is red.", "1"), user("My bike is red.", "2")
    memory.add([first], session="monday")
    memory.update(memory.all()[0].id, "My bike is blue.")
    assert run(memory.known_flow([first])) == [False]
    memory.add([again], session="friday")
    assert run(memory.known_flow([again])) == [True]
    assert run(memory.forget_flow("friday", {"2"}, said=[again])) == 1
    assert said(memory) == [("My bike is blue.", ["monday 1"])]
    assert run(memory.forget_flow("monday", {"1"}, said=[first])) == 1
    assert memory.all() == []


@pytest.mark.parametrize("change", ["taken back", "deleted"])
def test_what_was_said_again_stays_known_when_the_correction_before_it_goes(
    memory: LongTermMemory, change: str
) -> None:
    again = user("My bike is red.", "2")
    memory.add([user("My bike is red.", "1")], session="monday")
    corrected = memory.all()[0].id
    memory.update(corrected, "My bike is blue.")
    memory.add([again], session="friday")
    if change == "deleted":
        memory.delete([corrected])
    else:
        memory.update(corrected, "My bike is red.")
    left = said(memory)
    memory.add([again], session="friday")
    assert said(memory) == left
    assert run(memory.known_flow([again])) == [True]
    memory.add([user("My bike is red.", "3")], session="sunday")
    assert said(memory) == [*left[:-1], ("My bike is red.", ["friday 2", "sunday 3"])]
    assert run(memory.forget_flow("friday", {"2"}, said=[again])) == 1
    assert said(memory) == [*left[:-1], ("My bike is red.", ["sunday 3"])]


@pytest.mark.parametrize("through", ["My bike is red.", "My bike is old."])
def test_what_was_said_again_is_corrected_by_other_words_alone(memory: LongTermMemory, through: str) -> None:
    memory.add([user("My bike is red.", "1")], session="monday")
    memory.update(memory.all()[0].id, "My bike is blue.")
    memory.add([user("My bike is red.", "2")], session="friday")
    (blue, red) = memory.all()
    memory.update(blue.id, blue.message.text)  # which changes nothing
    for text in (through, "My bike is red."):
        memory.update(red.id, text)
    memory.add([user("My bike is red.", "3")], session="sunday")
    assert said(memory) == [("My bike is blue.", ["monday 1"]), ("My bike is red.", ["friday 2", "sunday 3"])]


def test_a_memory_that_says_the_same_with_another_sign_was_not_corrected(memory: LongTermMemory) -> None:
    for n, other in enumerate(["My bike is blue.", "My bike is green.", "My bike is red!"]):
        memory.add([user("My bike is red.", f"{n}")])
        memory.update(memory.all()[-1].id, other)
    memory.add([user("My bike is red.", "3")])
    assert said(memory)[2:] == [("My bike is red!", [" 2", " 3"])]


def test_a_damaged_memory_before_what_was_said_again_is_passed_over(memory: LongTermMemory, any_store: Store) -> None:
    memory.add([user("My bike is red.", "1")])
    damaged = memory.all()[0].id
    memory.update(damaged, "My bike is blue.")
    memory.add([user("My bike is red.", "2")])
    any_store.write(longterm_namespace(memory.scope), put={damaged: b"{broken"})
    memory.add([user("My bike is red.", "3")])
    assert said(memory) == [("My bike is red.", [" 2", " 3"])]


def test_a_damaged_memory_is_taken_for_no_corrected_one(memory: LongTermMemory, any_store: Store) -> None:
    memory.add([user("My bike is red.", "1")])
    damaged = memory.all()[0].id
    any_store.write(longterm_namespace(memory.scope), put={damaged: b'{"corrected": true, broken'})
    memory.add([user("My bike is red.", "2")])
    assert [(kept.id, kept.message.text) for kept in memory.all()] == [(damaged, "My bike is red.")]


@pytest.mark.parametrize("damage", [b"\xff my-secret", b"[1]", b"5", b'[["a"]]', b'{"$type": "x"}'])
def test_one_damaged_entry_of_the_log_does_not_take_the_memory_along(
    memory: LongTermMemory, any_store: Store, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    place = longterm_namespace(memory.scope)
    memory.add([user("My bike is red.")])
    any_store.write(place, append=[("damaged", damage)], put={COMPACTION_KEY: damage})
    memory.add([user("Your bike is blue.")])
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        for _ in range(2):
            assert sorted(texts(memory.search("bike"))) == ["My bike is red.", "Your bike is blue."]
            assert (len(memory.all()), memory.count()) == (2, 2)
            memory.rebuild()
    assert "a log of changes" in caplog.text
    assert "my-secret" not in caplog.text
    for n in range(99):  # until there is enough to tidy
        memory.update(memory.all()[0].id, f"My bike is number {n}.")
    compact_log(any_store, place, new_id=lambda: "the last", ttl=None)
    assert len(memory.search("bike")) == 2
    assert any_store.get(place, [COMPACTION_KEY])[COMPACTION_KEY] != damage


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("first", ["all", "search", "rebuild"])
def test_memories_that_only_a_damaged_entry_of_the_log_named_are_found(
    any_store: Store, index: LexicalIndex, first: str, sealed: bool
) -> None:
    store = SealedStore(any_store, codec=AESGCMCodec({"k": bytes(32)})) if sealed else any_store
    memory = LongTermMemory(store, index, user="ada")
    memory.add([user("My bike is red."), user("Your bike is blue."), user("Our bike is broken.")])
    memory.search("bike")
    place = longterm_namespace(memory.scope)
    red, _, broken = (each.id for each in memory.all())
    any_store.write(place, put={broken: any_store.get(place)[broken][:-1]})
    items = any_store.scan(place).items
    any_store.write(place, remove=items, append=[(item.id, item.data[:-1]) for item in items])
    before = any_store.get(place)
    if first == "all":
        assert sorted(each.message.text for each in memory.all()) == ["My bike is red.", "Your bike is blue."]
    elif first == "rebuild":
        memory.rebuild()
    assert sorted(texts(memory.search("bike"))) == ["My bike is red.", "Your bike is blue."]
    assert sorted(each.message.text for each in memory.all()) == ["My bike is red.", "Your bike is blue."]
    assert any_store.get(place) == before
    memory.add([user("My bike is green.")])
    assert memory.delete([red]) == 1
    assert sorted(texts(memory.search("bike"))) == ["My bike is green.", "Your bike is blue."]


def test_a_damaged_entry_that_stays_in_the_log_is_dealt_with_once(distant: tuple[RedisStore, RoundTrips]) -> None:
    store, door = distant
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    memory.add([user("My bike is red.")])
    place = longterm_namespace(memory.scope)
    (item,) = store.scan(place).items
    store.write(place, remove=[item], append=[(item.id, item.data[:-1])])
    assert memory.count() == 1
    before = door.count
    assert memory.count() == 1
    assert door.count - before == 2  # the log, and the memory


def test_one_damaged_memory_does_not_take_the_others_along(
    memory: LongTermMemory, any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    memory.add([user("My bike is red."), user("Your bike is blue.")])
    damaged = memory.search("red")[0].memory.id
    any_store.write(longterm_namespace(memory.scope), put={damaged: b"\xff my-secret"})
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert texts(memory.search("bike")) == ["Your bike is blue."]
        memory.rebuild()
        assert (len(memory.all()), memory.get(damaged), memory.update(damaged, "x")) == (1, None, False)
        assert texts(memory.search("bike")) == ["Your bike is blue."]
    assert "damaged memory" in caplog.text
    assert "my-secret" not in caplog.text
    memory.add([user("My bike is red.")])
    assert sorted(texts(memory.search("bike"))) == ["My bike is red.", "Your bike is blue."]


# --- whose memory


def test_h5_without_a_scope_there_is_no_memory(any_store: Store, index: LexicalIndex) -> None:
    with pytest.raises(ConfigurationError, match="a long-term memory needs a scope: give it user=, or session="):
        LongTermMemory(any_store, index, tenant="acme")
    with pytest.raises(ConfigurationError, match="memory_ids are a list of ids, not one str"):
        LongTermMemory(any_store, index, user="ada").delete("id")


parts = st.sampled_from(["", "a", "b", "a/b", "a%2Fb", "ab"])
scopes = st.builds(Scope, tenant=parts, user=parts, session=parts).filter(lambda scope: scope.user or scope.session)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(st.lists(st.tuples(scopes, st.sampled_from(["bike", "hat", "bike hat"])), max_size=12), st.integers(1, 4))
def test_h5_e2_nothing_of_another_scope_is_ever_found(
    any_store: Store, index: LexicalIndex, said: list[tuple[Scope, str]], k: int
) -> None:
    memories = {scope: LongTermMemory(any_store, index, **scope.model_dump()) for scope, _ in said}
    for memory in memories.values():
        memory.clear()
    for n, (scope, text) in enumerate(said):
        memories[scope].add([user(f"{text} {n}")])
    for scope, memory in memories.items():
        own = {
            f"{text} {n}" for n, (of, text) in enumerate(said) if longterm_namespace(of) == longterm_namespace(scope)
        }
        assert {m.message.text for m in memory.all()} == own
        found = texts(memory.search("bike", k))
        assert set(found) <= own  # in a session, also what was said beside a bike
        assert len(set(found)) == len(found) >= min(k, sum("bike" in text for text in own))
        only = texts(memory.search("bike", k, where=lambda m: "bike" in m.message.text))
        assert set(only) <= {text for text in own if "bike" in text}
        assert len(only) == min(k, sum("bike" in text for text in own))


def test_a_users_memory_is_the_same_in_every_session(any_store: Store, index: LexicalIndex) -> None:
    LongTermMemory(any_store, index, user="ada", session="monday").add([user("My bike is red.")])
    tuesday = LongTermMemory(any_store, index, user="ada", session="tuesday")
    assert texts(tuesday.search("bike")) == ["My bike is red."]
    assert tuesday.all()[0].occurrences[0].session == "monday"


# --- an index that is behind, lost, or somewhere else


@pytest.mark.parametrize("damaged", ["the beginning", "the rest"])
def test_rebuild_makes_a_damaged_index_file_of_a_server_anew(
    damaged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(semantic, "submit", lambda call: call())
    url, store = "redis://127.0.0.1:1/0", MemoryStore()
    ones = Embedder(lambda texts: [[1.0] for _ in texts], name="ones")

    def opened() -> LongTermMemory:
        return LongTermMemory(store, open_index(url), vectors=open_vectors(url, ones), user="ada", strict=True)

    def close(memory: LongTermMemory) -> None:
        for index in (memory._records.index, memory._records.vectors):
            assert index is not None
            index.close()

    memory = opened()
    memory.add([user(f"My bike number {n} is in the shed.") for n in range(200)])
    memory.flush()
    close(memory)
    (file,) = tmp_path.glob("langmem-*-index.db")
    data = file.read_bytes()
    half = 4096 if damaged == "the rest" else 0
    file.write_bytes(data[:half] + b"\xff" * (len(data) - half))
    memory, other = opened(), opened()
    for each in (memory, other):
        with pytest.raises(SearchError, match=r"malformed|not an SQLite database|unsupported file format|too big"):
            each.search("bike")
    memory.rebuild()
    assert len(memory.search("bike", 500)) == len(other.search("bike", 500)) == 200
    close(memory)
    close(other)


def test_rebuild_and_flush_report_what_they_did(memory: LongTermMemory, index: LexicalIndex) -> None:
    for n in range(3):
        memory.add([user(f"bike {n}")])
    steps: list[int] = []
    memory.flush(progress=lambda done, _: steps.append(done))
    memory.flush(progress=lambda done, _: steps.append(done))
    assert steps == [3]
    namespace = longterm_namespace(memory.scope)
    index.apply(namespace, upsert=[Document("ghost", "bike")])
    memory.rebuild(progress=lambda done, _: steps.append(done))
    assert steps == [3, 3]
    assert len(index.search(namespace, "bike", 10)) == 3


def test_an_index_follows_a_store_that_was_cleared_elsewhere(
    memory: LongTermMemory, any_store: Store, index: LexicalIndex
) -> None:
    memory.add([user("My bike is red."), user("My hat is red.")])
    assert len(memory.search("red")) == 2
    any_store.clear(longterm_namespace(memory.scope))
    assert memory.search("red") == []
    memory.add([user("My dog is red.")])
    assert texts(memory.search("red")) == ["My dog is red."]
    assert len(index.search(longterm_namespace(memory.scope), "red", 10)) == 1  # nothing is left of the others


def test_an_index_begins_anew_for_a_store_that_was_replaced(index: LexicalIndex) -> None:
    for text in ("My bike is red.", "My hat is red."):  # both have the same numbers in their logs
        memory = LongTermMemory(MemoryStore(), index, user="ada")
        memory.add([user(text)])
        assert texts(memory.search("red")) == [text]


def test_two_machines_follow_one_store(any_store: Store, tmp_path: Path) -> None:
    here, there = (
        LongTermMemory(any_store, LexicalIndex(tmp_path / f"{name}.db"), user="ada") for name in ("here", "there")
    )
    here.add([user("My bike is red.")])
    assert texts(there.search("bike")) == ["My bike is red."]
    there.delete([there.all()[0].id])
    there.add([user("My bike is blue.")])
    assert texts(here.search("bike")) == ["My bike is blue."]


class _DeadIndex(LexicalIndex):
    def apply(self, *args: Any, **kwargs: Any) -> None:
        super().apply(*args, **kwargs)
        raise AssertionError("an index is brought up to date by searching, not by adding")


def test_h2_adding_does_not_wait_for_the_index(any_store: Store) -> None:
    LongTermMemory(any_store, _DeadIndex(":memory:"), user="ada").add([user("My bike is red.")])


KILLED = """
import os, signal, sys
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.stores.sqlite import SQLiteStore

class Killer(LexicalIndex):
    def apply(self, *args, **kwargs):
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        super().apply(*args, **kwargs)

index = Killer(sys.argv[1])
index.deadly = False
memory = LongTermMemory(SQLiteStore(sys.argv[1]), index, user="ada")
memory.add([Message(role="user", content=f"bike {n}") for n in range(10)])
memory.search("bike")
memory.add([Message(role="user", content=f"hat {n}") for n in range(10)])
memory.delete([memory.search("bike", 1)[0].memory.id])
index.deadly = True
memory.search("hat")
"""


def test_e4_kill_9_between_the_store_and_the_index_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], env={**os.environ}, check=False)
    assert killed.returncode == -signal.SIGKILL
    memory = LongTermMemory(SQLiteStore(path), LexicalIndex(path), user="ada")
    assert (len(memory.search("bike", 100)), len(memory.search("hat", 100))) == (9, 10)


RANDOMLY_KILLED = """
import os, random, signal, sys, threading, time
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.stores.sqlite import SQLiteStore

chance = random.Random(int(sys.argv[2]))
memory = LongTermMemory(SQLiteStore(sys.argv[1]), LexicalIndex(sys.argv[1]), user="ada")
steps = chance.randint(1, 120)
real, counted = LexicalIndex._to_row, [0]

def row(self, document):  # an index dies in the middle of a change, too
    counted[0] += 1
    if counted[0] == steps:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, document)

LexicalIndex._to_row = row
n = 0
while True:
    n += 1
    session = chance.choice("ab")
    memory.add([Message(role="user", content=f"bike n{sys.argv[2]}-{n}-{i}") for i in range(3)], session=session)
    if chance.random() < 0.5:
        everything = memory.all()
        memory.update(chance.choice(everything).id, f"tricycle n{n}")
        memory.delete([chance.choice(everything).id])
    memory.search("bike")
"""


def test_e4_after_kill_9_at_random_points_memory_and_index_are_equal(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    for seed in range(4):
        killed = subprocess.run([sys.executable, "-c", RANDOMLY_KILLED, str(path), str(seed)], check=False)
        assert killed.returncode == -signal.SIGKILL
        memory = LongTermMemory(SQLiteStore(path), LexicalIndex(path), user="ada")
        for word in ("bike", "tricycle"):
            kept = {m.id for m in memory.all() if word in m.message.text}
            where = lambda m, word=word: word in m.message.text  # noqa: E731 - two lines more would say no more
            assert {r.memory.id for r in memory.search(word, 10_000, where=where)} == kept
        anew = LexicalIndex(":memory:")
        LongTermMemory(SQLiteStore(path), anew, user="ada").flush()
        scores = [dict(i.search(longterm_namespace(memory.scope), "bike", 10_000)) for i in (LexicalIndex(path), anew)]
        assert scores[0] == pytest.approx(scores[1])


class _Forgetful(LexicalIndex):
    """Names a document that the store does not have, as an index may in the middle of another's deletion."""

    def search(self, namespace: tuple[str, ...], query: str, k: int) -> list[Hit]:
        return [Hit("gone", 1.0), *super().search(namespace, query, k)][:k]


def test_a_hit_that_the_store_no_longer_has_is_passed_over(any_store: Store) -> None:
    memory = LongTermMemory(any_store, _Forgetful(":memory:"), user="ada")
    memory.add([user("My bike is red.")])
    assert texts(memory.search("bike", 1)) == ["My bike is red."]


# --- sync and async


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("add", ([user("My bike is red.", "1"), user("My hat is red.", "2"), user("My dog is red.", "3")],)),
    ("search", ("red bike", 2)),
    ("all", ()),
    ("count", ()),
    ("get", ("<first>",)),
    ("update", ("<first>", "My bike is blue.")),
    ("flush", ()),
    ("search", ("blue",)),
    ("delete", (["<first>"],)),
    ("rebuild", ()),
    ("search", ("red",)),
    ("clear", ()),
    ("all", ()),
]


async def test_a5_the_async_methods_do_the_same(any_store: Store) -> None:
    methods = {n for n, _ in inspect.getmembers(LongTermMemory, inspect.isfunction) if not n.startswith("_")}
    public = {name for name in methods if not name.endswith("_flow")} - {"stats"}
    assert public == {name for call, _ in CALLS for name in (call, f"a{call}")}
    memories = []
    for name in ("one", "other"):
        ids = itertools.count()
        new_id = lambda ids=ids: str(next(ids))  # noqa: E731 - two lines more would say no more
        index = open_index("memory:")
        memories.append(LongTermMemory(any_store, index, user=name, clock=FakeClock(), new_id=new_id))
    one, other = memories
    first = ""
    for name, given_ in CALLS:
        arguments = [[first] if a == ["<first>"] else first if a == "<first>" else a for a in given_]
        assert getattr(one, name)(*arguments) == await getattr(other, f"a{name}")(*arguments), name
        first = first or one.all()[0].id


@pytest.mark.parametrize(
    "narrowed",
    [
        {"exclude": [user("My bike is red.")]},
        {"where": lambda memory: "hat" in memory.message.text},
        {"scope": Scope(user="ada", session="s")},
        {"explain": True},
    ],
    ids=lambda narrowed: next(iter(narrowed)),
)
async def test_a5_the_async_search_is_told_as_much(narrowed: dict[str, Any]) -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([user("My bike is red.")], session="s")
    memory.add([user("My hat is red.")])
    assert memory.search("red") != memory.search("red", **narrowed) == await memory.asearch("red", **narrowed)


@pytest.mark.parametrize("call", [LongTermMemory.count, LongTermMemory.flush, LongTermMemory.rebuild])
def test_of_memories_that_are_pictures_few_are_held_at_a_time(
    call: Callable[[LongTermMemory], object], tmp_path: Path
) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    memory = LongTermMemory(store, open_index("memory:"), user="ada")
    pictures = [{"type": "image_url", "image_url": {"url": f"data:,{n}".ljust(200_000, "x")}} for n in range(120)]
    memory.add([Message(role="user", content=[{"type": "text", "text": "Look!"}, picture]) for picture in pictures])
    _, _, peak = traced(lambda: call(memory))
    assert peak < 12_000_000  # of 24,000,000
    assert memory.count() == 120
    store.close()


def test_memories_are_counted_without_being_held() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([user(f"Note {n}.") for n in range(3_000)])
    memory.all()  # whose imports and caches count for neither
    count, _, counting = traced(memory.count)
    everything, _, listing = traced(memory.all)
    assert count == len(everything) == 3_000
    assert 3 * counting < listing


def test_a_search_that_waits_for_its_index_for_long_says_why_and_one_after_flush_has_nothing_to_say(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "_WARN_RECORDS", 1000)
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    memory.add([user(f"bike {n}") for n in range(2100)])
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert texts(memory.search("bike 2000", 1)) == ["bike 2000"]
        told = [record.getMessage() for record in caplog.records]
        assert [" ".join(line.split()[:14]) for line in told] == [
            f"a search waits for the index of 'longterm', which has taken some {taken} records"
            for taken in ("1,000", "2,000")
        ]
        caplog.clear()
        memory.add([user(f"boat {n}") for n in range(1500)])
        memory.flush()
        assert texts(memory.search("boat 7", 1)) == ["boat 7"]
    assert caplog.records == []
