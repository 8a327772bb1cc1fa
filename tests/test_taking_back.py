"""What is deleted or cleared while it moves to the long-term memory stays away; what others move there stays there."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Literal, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_adapters.brain import BrainMemory
from langmem_adapters.codec import encode
from langmem_adapters.conversation.log import CREATED, GENERATION, brain_namespace
from langmem_adapters.conversation.tombstones import DELETED, have_been_deleted, with_deleted
from langmem_adapters.erasure import delete_user
from langmem_adapters.flow import run
from langmem_adapters.indexes import open_index
from langmem_adapters.llamaindex import BrainChatStore
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.protocols import Store
from langmem_adapters.sealing import SealedStore
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Overtaken

Kind = Literal["overflow", "summary"]
When = Literal["before", "after"]
KINDS: tuple[Kind, ...] = ("overflow", "summary")
WHENS: tuple[When, ...] = ("before", "after")
WHOSE = [("ada", True), ("", False)]


def said(*numbers: int) -> list[Message]:
    return [Message(id=f"id-{n}", role="user", content=f"m{n} is what was said") for n in numbers]


def brain_on(store: Store, kind: Kind = "overflow", *, user: str = "ada") -> BrainMemory:
    """One that keeps two messages, or as many as its summary leaves; the others go to the long-term memory."""
    own = {"user": user} if user else {"session": "s"}
    long_term = LongTermMemory(store, open_index("memory:"), **own)  # type: ignore[arg-type]
    return BrainMemory(
        store,
        "s",
        user=user,
        long_term=long_term,
        memory_k=2 if kind == "overflow" else 100,
        model=lambda prompt: f"A summary of {len(prompt)}.",
    )


def meanwhile(store: Store, happens: Callable[[], object], when: When = "before") -> Overtaken:
    """A real store where something happens, once, when the long-term memory is written: before that, or after it."""
    return Overtaken(store, happens, where=lambda name, **_: name[0] == "longterm", after=when == "after")


def let_go(
    store: Store, kind: Kind, happens: Callable[[], object], when: When = "before", *, user: str = "ada"
) -> None:
    """Let all but the newest two messages leave, while something happens."""
    slow = meanwhile(store, happens, when)
    brain = brain_on(cast("Store", slow), kind, user=user)
    if kind == "overflow":
        brain.add_messages(said(99))
    else:
        brain.summarize(keep=2)
    assert not slow.first


def remembered(brain: BrainMemory) -> list[str]:
    assert brain.long_term is not None
    return sorted(o.message_id for memory in brain.long_term.all() for o in memory.occurrences)


def ids(brain: BrainMemory) -> list[str]:
    return [message.id for message in brain.messages()]


def begun(store: Store, kind: Kind, *, user: str = "ada", later: bool = False) -> BrainMemory:
    """A session of which a part is about to leave, for the first time or not."""
    brain = brain_on(store, kind, user=user)
    if later:
        brain.add_messages(said(50, 51, 52))
        brain.summarize(keep=2)
        brain.delete(["id-50", "id-51", "id-52"])
    brain.add_messages(said(0, 1) if kind == "overflow" else said(0, 1, 2))
    return brain


@pytest.mark.parametrize(("user", "later"), WHOSE)
@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_deleted_while_it_moves_does_not_come_back(
    any_store: Store, kind: Kind, user: str, when: When, later: bool
) -> None:
    brain = begun(any_store, kind, user=user, later=later)
    let_go(any_store, kind, lambda: brain.delete(["id-0"]), when, user=user)
    assert "id-0" not in ids(brain) + remembered(brain)
    rest = ["id-1", "id-99"] if kind == "overflow" else ["id-1", "id-2"]
    assert ids(brain) == rest
    assert brain.long_term is not None
    assert [found.text for found in brain.long_term.search("m0")] == []


@pytest.mark.parametrize(
    ("how", "user", "later"),
    [
        *((how, *whose) for how in ("clear", "clear both", "expired") for whose in WHOSE),
        *(("delete_user", "ada", later) for later in (False, True)),
    ],
)
@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cleared_while_it_moves_does_not_come_back(
    any_store: Store, kind: Kind, user: str, *, when: When, later: bool, how: str
) -> None:
    brain = begun(any_store, kind, user=user, later=later)
    ways: dict[str, Callable[[], object]] = {
        "clear": brain.clear,
        "clear both": lambda: brain.clear(long_term=True),
        "expired": lambda: any_store.clear(brain_namespace(brain.scope)),
        "delete_user": lambda: delete_user(any_store, [open_index("memory:")], user=user),
    }
    let_go(any_store, kind, ways[how], when, user=user)
    assert ids(brain) + remembered(brain) == []
    assert any_store.get(brain_namespace(brain.scope)) == {}
    brain.add_messages(said(0, 1, 2))
    brain.summarize(keep=2)
    assert sorted(ids(brain) + remembered(brain)) == ["id-0", "id-1", "id-2"]


@pytest.mark.parametrize("when", WHENS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_another_moves_meanwhile_is_not_taken_back(any_store: Store, kind: Kind, when: When) -> None:
    brain = begun(any_store, kind)

    def quicker() -> None:
        brain.add_messages(said(3))
        if kind == "summary":
            brain.summarize(keep=2)

    let_go(any_store, kind, quicker, when)
    expected = ["id-0", "id-1", "id-3", "id-99"] if kind == "overflow" else ["id-0", "id-1", "id-2", "id-3"]
    assert sorted(ids(brain) + remembered(brain)) == expected


@pytest.mark.parametrize("when", WHENS)
def test_what_another_moves_and_a_third_deletes_stays_deleted(any_store: Store, when: When) -> None:
    brain = begun(any_store, "overflow")

    def moved_and_deleted() -> None:
        brain.add_messages(said(3))
        assert remembered(brain) == ["id-0", "id-1"]
        assert brain.delete(["id-0"]) == 1

    let_go(any_store, "overflow", moved_and_deleted, when)
    assert sorted(ids(brain) + remembered(brain)) == ["id-1", "id-3", "id-99"]


def test_an_id_that_was_deleted_long_ago_is_no_reason_to_take_its_next_message_back(any_store: Store) -> None:
    brain = brain_on(any_store)
    brain.add_messages(said(0, 1, 2))
    brain.delete(["id-1", "id-0"])
    brain.add_messages(said(3))
    brain.add_messages([Message(id="id-1", role="user", content="under an old id")])
    assert ids(brain) == ["id-3", "id-1"]
    brain.delete(["id-3"])
    brain.add_messages(said(4))

    let_go(any_store, "overflow", lambda: brain.add_messages(said(5)))
    assert sorted(ids(brain) + remembered(brain)) == ["id-1", "id-2", "id-4", "id-5", "id-99"]


def test_what_is_deleted_stays_away_though_its_id_is_used_again(any_store: Store) -> None:
    brain = begun(any_store, "overflow")

    def again() -> None:
        brain.delete(["id-0"])
        brain.add_messages([Message(id="id-0", role="user", content="something else")])

    let_go(any_store, "overflow", again)
    assert brain.long_term is not None
    texts = [memory.message.text for memory in brain.long_term.all()] + [m.text for m in brain.messages()]
    assert sorted(texts) == ["m1 is what was said", "m99 is what was said", "something else"]


def test_however_much_another_moves_nothing_is_lost() -> None:
    store = MemoryStore()
    brain = begun(store, "overflow")
    let_go(store, "overflow", lambda: brain.add_messages(said(*range(100, 900))))
    assert len(set(ids(brain) + remembered(brain))) == len(ids(brain) + remembered(brain)) == 803


@pytest.mark.parametrize("when", WHENS)
async def test_what_llamaindex_takes_meanwhile_is_where_it_put_it(any_store: Store, when: When) -> None:
    brain = begun(any_store, "overflow")
    theirs = BrainChatStore(store=any_store, user="ada")
    let_go(any_store, "overflow", lambda: run(theirs._session("s").remove_oldest(1, archive=True)), when)
    archived = [message.content for message in await theirs.get_messages("s", MessageStatus.ARCHIVED)]
    assert archived == ["m0 is what was said"]
    assert (ids(brain), remembered(brain)) == (["id-1", "id-99"], [])


async def test_of_what_llamaindex_takes_and_another_moves_each_is_where_it_went(any_store: Store) -> None:
    brain = begun(any_store, "overflow")
    theirs = BrainChatStore(store=any_store, user="ada")

    def both() -> None:
        run(theirs._session("s").remove_oldest(1, archive=True))
        brain.add_messages(said(3))

    brain_on(cast("Store", meanwhile(any_store, both))).add_messages(said(98, 99))
    archived = [message.content for message in await theirs.get_messages("s", MessageStatus.ARCHIVED)]
    assert archived == ["m0 is what was said"]
    assert (ids(brain), remembered(brain)) == (["id-99", "id-3"], ["id-1", "id-98"])


@pytest.mark.parametrize("looks", [0, 1])
async def test_what_another_moves_as_it_is_looked_whether_it_is_lost_stays_there(any_store: Store, looks: int) -> None:
    """LlamaIndex has taken another one, and the message leaves the session after it was seen that it has not left."""
    brain = begun(any_store, "overflow")
    theirs = BrainChatStore(store=any_store, user="ada")
    slow = meanwhile(any_store, lambda: run(theirs._session("s").remove_oldest(1, archive=True)))

    def is_taking_back(name: tuple[str, ...], **_: object) -> bool:
        return name[0] == "brain" and not slow.first

    later = [lambda: None] * looks + [lambda: brain.add_messages(said(3))]
    last = Overtaken(slow, *later, at="scan", where=is_taking_back, after=True)
    brain_on(cast("Store", last)).add_messages(said(98, 99))
    assert not last.first
    archived = [message.content for message in await theirs.get_messages("s", MessageStatus.ARCHIVED)]
    assert archived == ["m0 is what was said"]
    assert (ids(brain), remembered(brain)) == (["id-99", "id-3"], ["id-1", "id-98"])


def test_what_the_session_said_twice_and_what_others_said_stays(any_store: Store) -> None:
    brain = begun(any_store, "overflow")
    assert brain.long_term is not None
    again = said(0)[0].model_copy(update={"id": "other"})
    brain.long_term.add([again], session="elsewhere")
    let_go(any_store, "overflow", lambda: brain.delete(["id-0"]))
    assert remembered(brain) == ["other"]


@pytest.mark.parametrize("way", ["cleared", "begun by another"])
def test_a_session_that_is_cleared_before_anything_moves_is_left_alone(any_store: Store, way: str) -> None:
    brain = begun(any_store, "overflow")
    namespace = brain_namespace(brain.scope)

    def first() -> None:
        brain.clear() if way == "cleared" else brain.add_messages(said(3))

    brain_on(cast("Store", Overtaken(any_store, first, as_is_put=CREATED))).add_messages(said(99))
    if way == "cleared":
        assert (any_store.scan(namespace).total, any_store.get(namespace), remembered(brain)) == (0, {}, [])
    else:
        assert sorted(ids(brain) + remembered(brain)) == ["id-0", "id-1", "id-3", "id-99"]


@pytest.mark.parametrize("by", ["this version", "an older one", "one with a redactor of keys"])
def test_a_session_that_began_anew_is_not_taken_for_the_one_that_was_cleared(any_store: Store, by: str) -> None:
    """Though it begins with the same values: what moves out of the one that was cleared is not left for the other."""
    if by == "one with a redactor of keys":
        any_store = SealedStore(any_store, redactor=lambda text: re.sub("[0-9a-f]{32}", "[key]", text))
    brain = brain_on(any_store, user="")
    brain.add_messages(at_five(0, 1))
    if by == "an older one":  # which wrote CREATED alone
        any_store.write(brain_namespace(brain.scope), put={CREATED: encode(5.0)})

    def cleared_and_begun_anew() -> None:
        brain.clear()
        with pytest.raises(KeyboardInterrupt):  # who moves is there already, and not at the end
            brain_on(cast("Store", meanwhile(any_store, interrupt)), user="").add_messages(at_five(5, 6, 7))

    let_go(any_store, "overflow", cleared_and_begun_anew, user="")
    assert (ids(brain), remembered(brain)) == (["id-6", "id-7"], ["id-5"])


def test_a_session_from_which_an_older_version_took_when_it_began_tells_it_again(any_store: Store) -> None:
    brain = brain_on(any_store)
    brain.add_messages(at_five(0))
    any_store.write(brain_namespace(brain.scope), put={GENERATION: encode("some id")})  # which it leaves behind
    brain.add_messages(said(1, 2))
    (info,) = Sessions(any_store, user="ada").list_sessions()
    assert (info.messages, info.created_at) == (2, 5.0)


def test_a_session_that_came_back_from_its_export_is_not_the_one_that_was_cleared(any_store: Store) -> None:
    brain = brain_on(any_store, user="")
    brain.add_messages(said(0, 1))

    def cleared_and_imported() -> None:
        lines = list(Sessions(any_store).export())
        brain.clear()
        Sessions(any_store).import_(lines)

    let_go(any_store, "overflow", cleared_and_imported, user="")
    assert (ids(brain), remembered(brain)) == (["id-1", "id-99"], ["id-0"])


def at_five(*numbers: int) -> list[Message]:
    return [message.model_copy(update={"created_at": 5.0}) for message in said(*numbers)]


def interrupt() -> None:
    raise KeyboardInterrupt


def test_two_threads(any_store: Store) -> None:
    brain = begun(any_store, "overflow")
    there, go = threading.Event(), threading.Event()

    def hold() -> None:
        there.set()
        assert go.wait(20)

    thread = threading.Thread(target=let_go, args=(any_store, "overflow", hold))
    thread.start()
    assert there.wait(20)
    assert brain.delete(["id-0"]) == 1
    go.set()
    thread.join()
    assert (ids(brain), remembered(brain)) == (["id-1", "id-99"], [])


DEEDS = st.lists(
    st.tuples(st.sampled_from(["add", "delete", "summarize"]), st.integers(0, 9)),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(
    start=st.integers(2, 8), deeds=DEEDS, when=st.sampled_from(WHENS), kind=st.sampled_from(KINDS), user=st.booleans()
)
def test_whatever_happens_meanwhile_each_message_is_in_one_place_or_deleted(
    start: int, deeds: list[tuple[str, int]], when: When, kind: Kind, user: bool
) -> None:
    store, who = MemoryStore(), "ada" if user else ""
    brain = brain_on(store, kind, user=who)
    brain.add_messages(said(*range(start)))
    added, deleted = set(range(start)), set[int]()

    def happens() -> None:
        for deed, number in deeds:
            if deed == "add":
                brain.add_messages(said(100 + len(added)))
                added.add(100 + len(added))
            elif deed == "delete":
                brain.delete([f"id-{number}"])
                deleted.add(number)
            else:
                brain.summarize(keep=1)

    moving = brain_on(cast("Store", meanwhile(store, happens, when)), kind, user=who)
    if kind == "overflow":
        moving.add_messages(said(99))
        added.add(99)
    else:
        moving.summarize(keep=1)
    kept = {*ids(brain), *remembered(brain)}
    assert kept == {f"id-{n}" for n in added - deleted}


# --- the tally of what was deleted


def test_more_than_are_remembered_are_known_when_they_are_deleted_at_once() -> None:
    many = [f"id-{n}" for n in range(1000)]
    values = with_deleted(with_deleted({}, ["before"]), many)
    assert all(have_been_deleted(with_deleted({}, ["before"]), values, many))
    assert have_been_deleted(with_deleted({}, ["before"]), values, ["before"]) == [False]
    later = with_deleted(values, ["one"])
    assert len(later[DELETED]) < 16 * 260
    assert have_been_deleted(values, later, ["one", "id-999", "id-0"]) == [True, False, False]
    assert have_been_deleted(later, later, ["one"]) == [False]
    assert have_been_deleted(later, {}, ["one"]) == [False]


@pytest.mark.parametrize("damage", [b"{", b"7", b"[1]", b'[1,"123"]', b'["1",""]', b"[1,2]", b"\xff"])
def test_a_damaged_tally_begins_anew(any_store: Store, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    brain = brain_on(any_store)
    brain.add_messages(said(0, 1, 2))
    any_store.write(brain_namespace(brain.scope), put={DELETED: damage})
    with caplog.at_level(logging.WARNING):
        assert brain.delete(["id-0"]) == 1
    assert "are damaged, and are reset" in caplog.text
    assert (ids(brain), remembered(brain)) == (["id-1", "id-2"], [])


def test_nothing_is_written_of_what_was_never_there(any_store: Store) -> None:
    brain = brain_on(any_store)
    assert brain.delete(["nobody"]) == 0
    brain.add_messages(said(0))
    assert brain.delete(["nobody"]) == 0
    assert any_store.get(brain_namespace(brain.scope)) == {}
