"""A message that has left a session's log and is delivered again is not kept again, and never in two places."""

from __future__ import annotations

import logging
from typing import Any, Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_adapters.brain import BrainMemory
from langmem_adapters.codec import decode, encode
from langmem_adapters.conversation.log import brain_namespace
from langmem_adapters.conversation.session import Backlog
from langmem_adapters.conversation.tombstones import DELETED, DEPARTED, with_departed
from langmem_adapters.errors import SerializationError
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index
from langmem_adapters.llamaindex import BrainChatStore
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Overtaken

Kind = Literal["overflow", "summary", "deleted"]
KINDS = ("overflow", "summary", "deleted")


def said(*numbers: int) -> list[Message]:
    return [Message(id=f"id-{n}", role="user", content=f"m{n} is what was said") for n in numbers]


def brain_that_lets_go(store: Store, kind: Kind) -> BrainMemory:
    """One that keeps two messages: the others go to the long-term memory, or to a summary for good."""
    ways: dict[Kind, dict[str, Any]] = {
        "overflow": {"long_term": LongTermMemory(store, open_index("memory:"), user="ada"), "memory_k": 2},
        "summary": {"long_term": LongTermMemory(store, open_index("memory:"), user="ada"), "memory_k": 100},
        "deleted": {"archive": False, "memory_k": 100},
    }
    return BrainMemory(store, "s", user="ada", model=lambda prompt: f"A summary of {len(prompt)}.", **ways[kind])


def let_go(brain: BrainMemory, kind: Kind) -> None:
    if kind != "overflow":
        brain.summarize(keep=2)


def in_long_term(brain: BrainMemory) -> list[str]:
    kept = brain.long_term.all() if brain.long_term else []
    return [occurrence.message_id for memory in kept for occurrence in memory.occurrences]


def ids(brain: BrainMemory) -> list[str]:
    return [message.id for message in brain.messages()]


@pytest.mark.parametrize("kind", KINDS)
async def test_a3_what_left_and_is_delivered_again_is_not_added_again(any_store: Store, kind: Kind) -> None:
    brain = brain_that_lets_go(any_store, kind)
    brain.add_messages(said(0, 1, 2, 3, 4))
    let_go(brain, kind)
    assert ids(brain) == ["id-3", "id-4"]
    brain.add_messages(said(0))
    await brain.aadd_messages(said(1, 2))
    assert ids(brain) == ["id-3", "id-4"]
    brain.add_messages([*said(2, 4), *said(5)])
    let_go(brain, kind)
    assert ids(brain) == ["id-4", "id-5"]
    expected = [] if kind == "deleted" else ["id-0", "id-1", "id-2", "id-3"]
    assert sorted(in_long_term(brain)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_message_under_an_id_that_left_is_kept(any_store: Store, kind: Kind) -> None:
    brain = brain_that_lets_go(any_store, kind)
    brain.add_messages(said(0, 1, 2, 3))
    let_go(brain, kind)
    brain.add_messages([Message(id="id-0", role="user", content="something else")])
    brain.add_messages([Message(role="user", content="m0 is what was said")])  # said again, by somebody without ids
    texts = [message.text for message in brain.messages()][-2:]
    assert texts == ["something else", "m0 is what was said"]


def test_c1_an_answer_that_a_cache_replays_after_it_left_belongs_to_a_new_turn(any_store: Store) -> None:
    brain = brain_that_lets_go(any_store, "overflow")
    answer = Message(id="answer", role="assistant", content="In the shed.")
    brain.add_messages([*said(0), answer, *said(1, 2)])
    brain.add_messages([*said(3), answer])
    assert ids(brain) == ["id-3", "answer"]
    brain.add_messages([*said(3), answer])
    assert ids(brain) == ["id-3", "answer"]


def test_after_clear_the_same_messages_are_new(any_store: Store) -> None:
    brain = brain_that_lets_go(any_store, "deleted")
    brain.add_messages(said(0, 1, 2, 3))
    let_go(brain, "deleted")
    brain.clear()
    brain.add_messages(said(0, 1))
    assert ids(brain) == ["id-0", "id-1"]


@settings(max_examples=40)
@given(
    deliveries=st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=5), max_size=12),
    kind=st.sampled_from(KINDS),
)
def test_whatever_is_delivered_how_often_is_kept_once(deliveries: list[list[int]], kind: Kind) -> None:
    brain = brain_that_lets_go(MemoryStore(), kind)
    before: set[int] = set()
    for numbers in deliveries:
        again = [n for n in numbers if n in before]
        brain.add_messages(said(*again, *dict.fromkeys(n for n in numbers if n not in before)))
        before.update(numbers)
        let_go(brain, kind)
    kept = ids(brain) + in_long_term(brain)
    assert len(kept) == len(set(kept))
    delivered = {f"id-{n}" for numbers in deliveries for n in numbers}
    assert set(kept) <= delivered if kind == "deleted" else set(kept) == delivered


def test_the_marks_are_bounded_and_the_latest_are_known() -> None:
    store = MemoryStore()
    brain = brain_that_lets_go(store, "overflow")
    for start in range(0, 400, 40):
        brain.add_messages(said(*range(start, start + 40)))
    assert len(store.get(brain_namespace(brain.scope), [DEPARTED])[DEPARTED]) <= 16 * 256 + 2
    brain.add_messages(said(*range(143, 398)))
    assert ids(brain) == ["id-398", "id-399"]


def test_a_mark_is_found_at_its_place_alone() -> None:
    messages = said(0, 1)
    marks = decode(with_departed({}, messages)[DEPARTED])
    shifted = {DEPARTED: encode(marks[16:24] + marks[:16] + marks[24:])}
    store = MemoryStore()
    store.write(("brain", "", "ada", "s"), put=shifted)
    brain = brain_that_lets_go(store, "overflow")
    brain.add_messages(messages)
    assert ids(brain) == ["id-0", "id-1"]


@pytest.mark.parametrize("damage", [b"{", b"7", b'"123"', b"\xff"])
def test_damaged_marks_lose_nothing(any_store: Store, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    brain = brain_that_lets_go(any_store, "overflow")
    brain.add_messages(said(0, 1, 2))
    any_store.write(brain_namespace(brain.scope), put={DEPARTED: damage})
    with caplog.at_level(logging.WARNING):
        brain.add_messages(said(3))
    assert "are damaged, and are reset" in caplog.text
    assert ids(brain) == ["id-2", "id-3"]
    brain.add_messages(said(1))
    assert ids(brain) == ["id-2", "id-3"]
    assert sorted(in_long_term(brain)) == ["id-0", "id-1"]


@pytest.mark.parametrize(
    ("theirs", "said_so"), [(b'{"v":2}', "a newer version"), (b"\x02\x01k" + bytes(40), "encrypted")]
)
@pytest.mark.parametrize("key", [DEPARTED, DELETED])
def test_marks_that_others_can_read_are_never_reset(any_store: Store, key: str, theirs: bytes, said_so: str) -> None:
    brain = brain_that_lets_go(any_store, "overflow")
    brain.add_messages(said(0, 1, 2))
    any_store.write(brain_namespace(brain.scope), put={key: theirs})
    with pytest.raises(SerializationError, match=said_so):
        brain.delete(["id-2"])
    if key == DEPARTED:
        with pytest.raises(SerializationError, match=said_so):
            brain.add_messages(said(3))
    assert any_store.get(brain_namespace(brain.scope), [key]) == {key: theirs}


def test_a_deletion_of_what_is_not_there_leaves_no_mark(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages(said(0, 1))
    brain.delete(["id-0"])
    before = any_store.get(brain_namespace(brain.scope))
    assert brain.delete(["id-2"]) == 0
    assert any_store.get(brain_namespace(brain.scope)) == before


def test_a_session_from_which_nothing_leaves_asks_for_no_marks() -> None:
    asked: list[Any] = []

    class Watched(MemoryStore):
        def append(self, *args: Any, **options: Any) -> Any:
            asked.append(options["keys"])
            return super().append(*args, **options)

    BrainMemory(Watched(), "s").add_talk("Good morning.")
    assert [list(keys) for keys in asked] == [[]]


def test_what_is_added_beside_counts_as_ever_and_what_is_new_costs_no_look() -> None:
    looks: list[Any] = []

    class Watched(MemoryStore):
        def scan(self, *args: Any, **options: Any) -> Any:
            looks.append(options)
            return super().scan(*args, **options)

    brain = brain_that_lets_go(Watched(), "overflow")
    brain.add_messages(said(0, 1, 2))
    brain.add_messages([Message(id="id-2", role="user", content="something else")])
    assert [message.text for message in brain.messages()] == ["m2 is what was said", "something else"]
    brain.delete(["id-2"])
    looks.clear()
    brain.add_messages(said(3))
    assert looks == []


def test_nothing_moves_where_others_have_made_room_meanwhile(any_store: Store) -> None:
    overtaken = Overtaken(any_store, at="scan")
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(cast("Store", overtaken), "s", user="ada", memory_k=2, long_term=long_term)
    brain.add_messages([Message(id="id-0", role="assistant", content="Good morning."), *said(1)])
    overtaken.first.append(lambda: BrainMemory(any_store, "s", user="ada").delete(["id-2"]))
    brain.add_messages(said(2))
    assert ([message.id for message in brain.messages()], long_term.count()) == (["id-0", "id-1"], 0)


def test_what_leaves_while_it_is_delivered_again_is_not_added_again(any_store: Store) -> None:
    brain = brain_that_lets_go(any_store, "deleted")
    brain.add_messages(said(0, 1, 2))
    slow = Overtaken(any_store, lambda: let_go(brain, "deleted"), at="scan")
    brain_that_lets_go(cast("Store", slow), "deleted").add_messages(said(0, 1))
    assert not slow.first
    assert ids(brain) == ["id-1", "id-2"]


@pytest.mark.parametrize("kind", ["summary", "deleted"])
def test_what_was_deleted_and_is_delivered_again_is_not_summarised_meanwhile(any_store: Store, kind: Kind) -> None:
    brain = brain_that_lets_go(any_store, kind)
    brain.add_messages(said(0, 1, 2))
    brain.delete(["id-1"])
    looks: list[Backlog] = []
    slow = Overtaken(any_store, lambda: looks.append(run(brain._flows.backlog())), at="scan")
    brain_that_lets_go(cast("Store", slow), kind).add_messages(said(1))
    (look,) = looks
    assert [message.id for _, message in look.entries] == ["id-0", "id-2", "id-1"]
    assert not run(brain._flows.store_summary(look, look.entries, "m1 and all the rest.", archive=kind == "summary"))
    assert ids(brain) == ["id-0", "id-2"]
    assert brain.get_summary() is None
    assert in_long_term(brain) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_delivered_again_as_a_session_is_cleared_does_not_come_back(any_store: Store, kind: Kind) -> None:
    brain = brain_that_lets_go(any_store, kind)
    brain.add_messages(said(0, 1))
    slow = Overtaken(any_store, brain.clear, at="scan")
    brain_that_lets_go(cast("Store", slow), kind).add_messages(said(0, 1, 2))
    assert not slow.first
    assert ids(brain) == []


# --- LlamaIndex's archive at the same time


@pytest.mark.parametrize("kind", KINDS)
async def test_beside_an_archive_messages_leave_as_ever(any_store: Store, kind: Kind) -> None:
    brain = brain_that_lets_go(any_store, kind)
    theirs = BrainChatStore(store=any_store, user="ada")
    brain.add_messages(said(0, 1))
    await theirs.archive_oldest_messages("s", 1)
    brain.add_messages(said(2, 3, 4))
    let_go(brain, kind)
    assert ids(brain) == ["id-3", "id-4"]


@pytest.mark.parametrize("kind", KINDS)
async def test_what_llamaindex_archives_meanwhile_is_in_one_place(any_store: Store, kind: Kind) -> None:
    slow = Overtaken(any_store)
    theirs = BrainChatStore(store=any_store, user="ada")
    brain = brain_that_lets_go(cast("Store", slow), kind)
    brain.add_messages(said(0, 1))
    brain.add_messages(said(2, 3) if kind != "overflow" else [])

    slow.first.append(lambda: run(theirs._session("s").remove_oldest(1, archive=True)))
    brain.add_messages(said(4) if kind == "overflow" else [])
    let_go(brain, kind)
    assert not slow.first
    archived = [message.content for message in await theirs.get_messages("s", MessageStatus.ARCHIVED)]
    assert archived == ["m0 is what was said"]
    assert ids(brain) == (["id-1", "id-4"] if kind == "overflow" else ["id-2", "id-3"])  # a summary is tried again


@pytest.mark.parametrize("kind", ["summary", "deleted"])
def test_b2_a_summary_that_was_set_meanwhile_is_not_overwritten(any_store: Store, kind: Kind) -> None:
    slow = Overtaken(any_store)
    brain = brain_that_lets_go(cast("Store", slow), kind)
    brain.add_messages(said(0, 1, 2, 3))
    slow.first.append(lambda: brain.set_summary("Set by somebody."))
    let_go(brain, kind)
    summary = brain.get_summary()
    assert summary is not None
    assert summary.text == "Set by somebody."
    assert len(brain.messages()) == 4


async def test_what_is_summarised_meanwhile_does_not_come_to_the_archive(any_store: Store) -> None:
    slow = Overtaken(any_store)
    brain = brain_that_lets_go(any_store, "deleted")
    brain.add_messages(said(0, 1, 2, 3))
    slow.first.append(lambda: let_go(brain, "deleted"))
    theirs = BrainChatStore(store=cast("Store", slow), user="ada")
    moved = await theirs.archive_oldest_messages("s", 1)
    assert [message.content for message in moved] == ["m2 is what was said"]
    assert ids(brain) == ["id-3"]
    archived = await theirs.get_messages("s", MessageStatus.ARCHIVED)
    assert [message.content for message in archived] == ["m2 is what was said"]
