"""What two processes do to one session, in every order of their calls, and what one leaves that is killed.

What must hold: a message that was added is in the window, in the long-term memory, in the archive or in the summary,
unless it was deleted or cleared behind that; what was deleted or cleared does not come back; what a summary does not
tell of is shown. Where two processes act at once, whatever comes of one after the other is right.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from langmem_adapters import BrainMemory, LongTermMemory, Message, Sessions, open_index
from langmem_adapters.conversation.log import ARCHIVE
from langmem_adapters.flow import run
from langmem_adapters.llamaindex.session import ChatSession
from langmem_adapters.model import salvage
from langmem_adapters.operations import Migration
from langmem_adapters.stores.memory import MemoryStore
from tests.interleavings import Gated, Killed, Outcome, explore, fits_an_order

SESSION = ("brain", "", "ada", "monday")


def a_store() -> MemoryStore:
    return MemoryStore(clock=lambda: 1000.0)


def brain(store: Any, **settings: Any) -> BrainMemory:
    return BrainMemory(store, "monday", user="ada", clock=lambda: 1000.0, **settings)


# --- of the search itself


def counts(times: int) -> Callable[[Any], None]:
    def process(store: Any) -> None:
        for _ in range(times):
            store.get(SESSION)

    return process


@pytest.mark.parametrize(("switches", "orders"), [(0, 2), (1, 4), (9, 6)])
def test_every_order_is_tried_once(switches: int, orders: int) -> None:
    seen = []
    assert (
        explore(a_store, [counts(2), counts(2)], lambda outcome: seen.append(tuple(outcome.trace)), switches=switches)
        == orders
    )
    assert len(set(seen)) == orders


def adds_up(store: Any) -> None:
    value = store.get(SESSION, ["n"]).get("n", b"0")
    store.write(SESSION, put={"n": b"%d" % (int(value) + 1)})


def test_a_lost_update_is_found() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.store.get(SESSION)["n"] == b"2"

    with pytest.raises(AssertionError, match=r"in the order 0\.get 1\.get"):
        explore(a_store, [adds_up, adds_up], check)


def test_a_process_is_killed_before_each_of_its_calls() -> None:
    found = []

    def check(outcome: Outcome) -> None:
        found.append((isinstance(outcome.results[0], Killed), len(outcome.store.get(SESSION))))

    explore(a_store, [adds_up], check, deaths=0)
    assert found == [(True, 0), (True, 0), (False, 1)]


# --- conversations

Deed = Callable[[BrainMemory], Any]


def told_of(prompt: str) -> str:
    """A summary that names each message that it is made of."""
    return "Said: " + " ".join(dict.fromkeys(re.findall(r"\b[a-z]\d\b", prompt)))


KINDS: dict[str, dict[str, Any]] = {
    "overflow": {"memory_k": 2, "remembers": True},
    "summary": {"memory_k": 2, "summarize_at": 10_000, "summarize_in": "inline"},
    "summary alone": {"memory_k": 2, "summarize_at": 10_000, "summarize_in": "inline", "archive": False},
    "summary and memory": {"memory_k": 2, "summarize_at": 10_000, "summarize_in": "inline", "remembers": True},
}


def conversation(store: Any, kind: str) -> BrainMemory:
    """A session, with a long-term memory of its own where its kind has one."""
    settings = dict(KINDS[kind])
    where: dict[str, Any] = {"session": "monday", "clock": lambda: 1000.0, "new_id": lambda: str(next(store.numbers))}
    long_term = LongTermMemory(store, open_index("memory:"), **where) if settings.pop("remembers", False) else None
    return BrainMemory(store, "monday", long_term=long_term, model=told_of, clock=lambda: 1000.0, **settings)


def begun(kind: str, *names: str) -> MemoryStore:
    store = a_store()
    store.numbers = itertools.count()  # type: ignore[attr-defined] # else nobody makes the same calls again
    for name in names:
        add(name)(conversation(store, kind))
    return store


def said(name: str) -> Message:
    return Message(id=name, role="user", content=name, created_at=float(name[1]))


def add(*names: str) -> Deed:
    return lambda brain: brain.add_messages([said(name) for name in names])


def delete(name: str) -> Deed:
    return lambda brain: brain.delete([name])


def archive(n: int) -> Deed:
    return lambda brain: run(ChatSession(brain).remove_oldest(n, archive=True))


def clear(brain: BrainMemory) -> None:
    brain.clear()


def summarize(brain: BrainMemory) -> None:
    brain.summarize(keep=1)


def delete_newest(brain: BrainMemory) -> None:
    run(ChatSession(brain).remove_at(-1))


def delete_session(brain: BrainMemory) -> None:
    Sessions(brain.store).delete_session("monday")


def on(kind: str, deed: Deed) -> Callable[[Any], Any]:
    return lambda store: deed(conversation(store, kind))


def kept(brain: BrainMemory) -> set[str]:
    """Whatever is kept of what was said, wherever it is."""
    memories = brain.long_term.all() if brain.long_term else []
    messages = [*brain.messages(), *(memory.message for memory in memories)]
    return {message.text for message in messages} | archived(brain) | in_summary(brain)


def archived(brain: BrainMemory) -> set[str]:
    values = brain.store.get(("brain", "", "", "monday"))
    found = [salvage(data, key) for key, data in values.items() if key.startswith(f"{ARCHIVE}")]
    return {message.text for message in filter(None, found)}


def in_summary(brain: BrainMemory) -> set[str]:
    summary = brain.get_summary()
    return set(summary.text.split()[1:]) if summary else set()


def hidden(brain: BrainMemory) -> set[str]:
    """What no model is shown any more, and no summary tells of."""
    return {message.text for message in brain.messages()} - shown(brain) - in_summary(brain)


def shown(brain: BrainMemory) -> set[str]:
    return {message.text for message in brain.context(100).messages}


def fits_as_told(kind: str, *deeds: Deed, switches: int = 2, by_chance: int | None = None) -> None:
    def view(store: Any) -> Any:
        brain = conversation(store, kind)
        return kept(brain), hidden(brain), shown(brain) & in_summary(brain)

    processes = [on(kind, deed) for deed in deeds]
    make = partial(begun, kind, "m1", "m2", "m3")
    fits_an_order(make, processes, view, switches=switches, by_chance=by_chance)


DEEDS: dict[str, tuple[Deed, Deed]] = {  # as the one process and as the other does it
    "adds": (add("x1", "x2"), add("y1")),
    "adds again": (add("m1", "m2"), add("m2", "y3")),
    "deletes": (delete("m1"), delete("m2")),
    "archives": (archive(1), archive(2)),
    "deletes the newest": (delete_newest, delete_newest),
    "clears": (clear, clear),
    "summarises": (summarize, summarize),
}
# The newest may be what has just come again, and is about to be taken out.
PAIRS = [*{*itertools.combinations_with_replacement(DEEDS, 2)} - {("adds again", "deletes the newest")}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", sorted(PAIRS), ids=" and ".join)
def test_nothing_is_lost_hidden_shown_twice_or_comes_back(kind: str, pair: tuple[str, str]) -> None:
    fits_as_told(kind, DEEDS[pair[0]][0], DEEDS[pair[1]][1])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_behind_another_of_a_known_id_leaves_once(kind: str) -> None:
    another = said("m1").model_copy(update={"content": "z1"})
    fits_as_told(kind, lambda brain: brain.add_messages([another, said("x1"), said("x2")]), summarize, switches=3)


THREE: dict[str, tuple[Deed, Deed, Deed]] = {
    "two add and one archives": (add("x1", "x2"), add("y1"), archive(1)),
    "one of each": (add("x1", "x2"), summarize, archive(1)),
}


@pytest.mark.parametrize("kind", ["overflow", "summary and memory"])
@pytest.mark.parametrize("deeds", THREE)
def test_of_three_none_loses_what_another_moves(kind: str, deeds: str) -> None:
    fits_as_told(kind, *THREE[deeds], by_chance=100)


def test_an_archive_does_not_bring_back_a_session_that_was_deleted() -> None:
    processes = [on("summary", archive(2)), on("summary", delete_session)]
    fits_an_order(
        lambda: begun("summary", "m1", "m2", "m3"), processes, lambda store: store.get(("brain", "", "", "monday"))
    )


def rename_session(brain: BrainMemory) -> bool:
    return Sessions(brain.store).rename_session("monday", "Title")


def test_a_session_that_was_deleted_is_not_renamed_either() -> None:
    def check(outcome: Outcome) -> None:
        assert outcome.store.get(("brain", "", "", "monday")) == {}
        assert outcome.done()

    processes = [on("summary", rename_session), on("summary", delete_session)]
    explore(lambda: begun("summary", "m1"), processes, check)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("deed", ["adds", "adds again", "archives", "deletes", "summarises"])
def test_whoever_is_killed_leaves_nothing_that_the_next_message_does_not_mend(kind: str, deed: str) -> None:
    """A message that came again may stay, once more than it should, where nobody took it out."""

    def view(store: Any) -> Any:
        brain = conversation(store, kind)
        add("h1", "h2")(brain)
        return kept(brain), hidden(brain)

    fits_an_order(lambda: begun(kind, "m1", "m2", "m3"), [on(kind, DEEDS[deed][0])], view, deaths=0)


@pytest.mark.parametrize("deed", [clear, delete_session])
def test_a_session_is_there_until_all_of_it_has_gone(deed: Deed) -> None:
    """Else nobody would know that there is more of it to delete."""

    def check(outcome: Outcome) -> None:
        brain = conversation(outcome.store, "overflow")
        assert not kept(brain) or Sessions(outcome.store).list_sessions()

    explore(lambda: begun("overflow", "m1", "m2", "m3"), [on("overflow", deed)], check, deaths=0)


def test_a_message_that_takes_the_id_of_a_summarised_one_is_shown() -> None:
    brain = conversation(begun("summary and memory", "m1", "m2", "m3"), "summary and memory")
    brain.add_messages([said("m2").model_copy(update={"content": "x7"})])
    assert [message.text for message in brain.context().messages] == ["m3", "x7"]


def test_an_imported_summary_hides_nothing_that_is_said_meanwhile() -> None:
    old = conversation(begun("summary", "m1", "m2", "m3"), "summary")
    lines = list(Sessions(old.store).export())

    def view(store: Any) -> Any:
        brain = conversation(store, "overflow")
        return kept(brain) - in_summary(brain), hidden(brain)

    def imports(store: Any) -> None:
        Sessions(store).import_(lines)

    def adds(store: Any) -> None:
        BrainMemory(store, "monday").add_messages([said("x1")])

    fits_an_order(lambda: begun("overflow"), [imports, adds], view)


@pytest.mark.parametrize("count", [3, 21], ids=["read at once", "read by pages"])
@pytest.mark.parametrize("deed", ["adds", "archives", "summarises"])
def test_what_moves_while_a_session_is_exported_is_in_the_export_once(deed: str, count: int) -> None:
    kind, names = "summary alone", [f"{'mno'[n // 10]}{n % 10}" for n in range(count)]

    def exports(store: Any) -> list[bytes]:
        return list(Sessions(store).export())

    def check(outcome: Outcome) -> None:
        store = begun(kind)
        Sessions(store).import_(outcome.done()[0])
        brain = conversation(store, kind)
        assert kept(brain) - {"x1", "x2"} == {*names}
        assert hidden(brain) == set()
        assert archived(brain).isdisjoint(message.text for message in brain.messages())

    explore(lambda: begun(kind, *names), [exports, on(kind, DEEDS[deed][0])], check)


# --- the long-term memory of a user, and other places


def of_user(store: Any) -> LongTermMemory:
    return LongTermMemory(store, store.index, user="ada", clock=lambda: 1000.0, new_id=lambda: str(next(store.numbers)))


def matching(memory: LongTermMemory, text: str) -> list[str]:
    return [found.id for found in memory.all() if found.message.text == text]


MEMORIES: dict[str, Callable[[LongTermMemory], Any]] = {
    "adds": lambda memory: memory.add([said("x1"), said("x2")], session="monday"),
    "hears it elsewhere": lambda memory: memory.add([said("m1")], session="tuesday"),
    "forgets a session": lambda memory: run(memory.forget_flow("monday", None)),
    "corrects": lambda memory: [memory.update(id_, "c1") for id_ in matching(memory, "m1")],
    "deletes": lambda memory: memory.delete(matching(memory, "m1")),
    "searches": lambda memory: memory.search("m1 m2", 9),
    "rebuilds": lambda memory: memory.rebuild(),
}


@pytest.mark.parametrize("pair", [*itertools.combinations_with_replacement(MEMORIES, 2)], ids=" and ".join)
def test_memories_are_kept_once_and_found_as_they_are(pair: tuple[str, str]) -> None:
    def make() -> MemoryStore:
        store = begun("overflow")
        store.index = open_index("memory:")  # type: ignore[attr-defined] # of all processes
        of_user(store).add([said("m1"), said("m2")], session="monday")
        of_user(store).search("m1", 1)
        return store

    def view(store: Any) -> set[Any]:
        memory = of_user(store)
        texts = sorted(found.message.text for found in memory.all())
        assert texts == sorted(found.text for found in memory.search("m1 m2 x1 x2 c1", 9))
        return {(found.message.text, said.session) for found in memory.all() for said in found.occurrences}

    one, other = (MEMORIES[name] for name in pair)
    fits_an_order(make, [lambda store: one(of_user(store)), lambda store: other(of_user(store))], view)


@pytest.mark.parametrize("deed", ["archives", "clears", "deletes"])
def test_a_migration_that_is_killed_is_resumed_whatever_happens_meanwhile(deed: str) -> None:
    def make() -> MemoryStore:
        store = begun("summary", "m1", "m2", "m3")
        store.target = a_store()  # type: ignore[attr-defined]
        return store

    def migrate(store: Gated) -> None:
        Migration(store, store.target).run()

    def check(outcome: Outcome) -> None:
        if isinstance(outcome.results[0], Killed):
            Migration(outcome.store, outcome.store.target).run()
            assert content(outcome.store.target) == content(outcome.store)

    explore(make, [migrate, on("summary", DEEDS[deed][0])], check, deaths=0, switches=1)


def content(store: MemoryStore) -> dict[Any, Any]:
    found = {}
    for namespace in store.namespaces():
        log, values = store.scan(namespace).items, store.get(namespace)
        if log or values:
            found[namespace] = [(item.id, item.data) for item in log], values
    return found
