"""What a user's own processes do while the user is deleted, in every order of their calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from langmem_adapters import (
    BrainMemory,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    WorkingMemory,
    open_store,
)
from langmem_adapters.erasure import delete_user
from langmem_adapters.langgraph import LongTermStore
from langmem_adapters.llamaindex import BrainChatStore
from langmem_adapters.sessions import Sessions
from tests.interleaved_world import Part, World, one_after_the_other, processes, silently
from tests.interleavings import Outcome, explore

USERS = ("ada", "bob")
OLD = ("m1", "m2", "q1", "w1", "g1")


def memory(world: World, user: str = "ada") -> LongTermMemory:
    return LongTermMemory(world.store, world.indexes[0], user=user, clock=world.clock, new_id=world.new_id)


def brain(world: World, user: str = "ada") -> BrainMemory:
    times: dict[str, Any] = {"clock": world.clock, "new_id": world.new_id}
    return BrainMemory(world.store, "monday", user=user, long_term=memory(world, user), memory_k=1, **times)


def pool(world: World, user: str = "ada") -> ExperiencePool:
    times: dict[str, Any] = {"clock": world.clock, "new_id": world.new_id}
    return ExperiencePool(world.store, tag="t", user=user, index=world.indexes[0], **times)


def working(world: World, user: str = "ada") -> WorkingMemory:
    times: dict[str, Any] = {"clock": world.clock, "new_id": world.new_id, "sleep": lambda _: None}
    return WorkingMemory(world.store, user=user, **times)


def shared(world: World) -> LongTermStore:
    return LongTermStore(store=world.store, index=world.indexes[0], clock=world.clock, new_id=world.new_id)


def sessions(world: World) -> Sessions:
    return Sessions(world.store, user="ada", clock=world.clock)


def chats(world: World) -> BrainChatStore:
    return BrainChatStore(store=world.store, user="ada")


def exported() -> list[bytes]:
    """A session of this name elsewhere: a title, a message, and a summary."""
    elsewhere = BrainMemory(open_store("memory:"), "monday", user="ada")
    elsewhere.set_title("x1")
    elsewhere.set_summary("x2")
    elsewhere.add_messages([said("x3")])
    return list(Sessions(elsewhere.store, user="ada").export())


def said(text: str) -> Message:
    return Message(id=text, role="user", content=text, created_at=float(text[1]))


def talk(world: World, user: str = "ada") -> None:
    brain(world, user).add_messages([said("m1"), said("m2")])
    memory(world, user).search("m1")


def experience(world: World, user: str = "ada") -> None:
    pool(world, user).create(Experience(req="q1", resp="q1"), key="q1")
    pool(world, user).query("q1")


def note(world: World, user: str = "ada") -> None:
    working(world, user).store("c", {"n": "w1"})


def item(world: World, user: str = "ada") -> None:
    shared(world).put(("memories", user), "i1", {"text": "g1"})
    shared(world).search(("memories", user), query="g1")


PARTS: dict[str, tuple[Any, Part]] = {
    "search memories": (talk, silently(lambda world: memory(world).search("m1"))),
    "overflow": (talk, lambda world: brain(world).add_messages([said("x3")])),
    "hear again": (talk, lambda world: memory(world).add([said("m1")], session="tuesday")),
    "search experiences": (experience, silently(lambda world: pool(world).query("q1"))),
    "change an experience": (
        experience,
        silently(lambda world: pool(world).create(Experience(req="q2", resp="q2"), key="q1")),
    ),
    "count up": (note, silently(lambda world: working(world).update("c", lambda old: {"n": f"{old}x"}))),
    "search items": (item, silently(lambda world: shared(world).search(("memories", "ada"), query="g1"))),
    "archive": (talk, silently(lambda world: asyncio.run(chats(world).archive_oldest_messages("monday", 1)))),
    "import": (talk, silently(lambda world: sessions(world).import_(exported()))),
    "rename": (talk, silently(lambda world: sessions(world).rename_session("monday", "x3"))),
}


def traces(world: World) -> set[str]:
    """Which of the old texts are still there, and what an index finds."""
    found = set()
    for namespace in world.store.namespaces():
        if "ada" in namespace:
            data = [each.data for each in world.store.scan(namespace).items]
            written = b" ".join([*data, *world.store.get(namespace).values()])
            found |= {text for text in OLD if text.encode() in written}
    for namespace in (("longterm", "", "ada"), ("experience", "", "ada", "t"), ("langgraph", "", "items", *_ITEMS)):
        found |= {f"{namespace[0]} {hit.id}" for hit in world.indexes[0].search(namespace, " ".join(OLD), 9)}
    return found


_ITEMS = ("memories", "ada")


def others(world: World) -> Any:
    kept = [(name, world.store.scan(name), world.store.get(name)) for name in world.store.namespaces() if "bob" in name]
    return kept, [world.indexes[0].search(("longterm", "", "bob"), "m1 m2", 9)]


@pytest.mark.parametrize("part", PARTS)
def test_a_user_who_is_deleted_beside_another_process(part: str) -> None:
    """Whatever was there is gone everywhere, from the indexes too, unless it was said again; and nothing of others.

    What the other process may have left of its own, such as a session without a message, goes with a second call.
    """
    begin, beside = PARTS[part]

    def make() -> World:
        return World(begin=lambda world: [begin(world, user) for user in USERS])

    parts: list[Part] = [silently(lambda world: delete_user(world.store, world.indexes, user="ada")), beside]
    after = one_after_the_other(make, parts, lambda outcome: (outcome.done(), traces(outcome.store)))
    untouched = others(make())

    def check(outcome: Outcome) -> None:
        assert (outcome.done(), traces(outcome.store)) in after
        delete_user(outcome.store.store, outcome.store.indexes, user="ada")
        assert not traces(outcome.store)
        assert not [name for name in outcome.store.store.namespaces() if "ada" in name]
        assert others(outcome.store) == untouched

    explore(make, processes(*parts), check, switches=1)


@pytest.mark.parametrize("namespace", [_ITEMS, (*_ITEMS, "deeper")], ids="/".join)
def test_what_is_put_while_its_user_is_deleted_is_listed_or_gone(namespace: tuple[str, ...]) -> None:
    """No item is left that no listing names, and no name of the user's whose items have gone."""

    def check(outcome: Outcome) -> None:
        outcome.done()
        store = outcome.store.store
        nodes = store.namespaces(("langgraph", "", "tree", "memories"))
        named = [key for node in nodes for key in store.get(node) if {*_ITEMS} <= {*node} or "ada" in key]
        listed = shared(outcome.store).list_namespaces(prefix=_ITEMS)
        there = store.get(("langgraph", "", "items", *namespace)).keys() & {"x1/"}
        assert (listed, bool(named)) == (([namespace], True) if there else ([], False))

    parts: list[Part] = [
        lambda world: delete_user(world.store, world.indexes, user="ada"),
        lambda world: shared(world).put(namespace, "x1", {"text": "t"}),
    ]
    explore(World, processes(*parts), check, switches=1)


@pytest.mark.parametrize("namespace", [("memories", "bob"), ("memories", "bob", "deeper")], ids="/".join)
def test_others_are_listed_who_begin_while_a_user_is_deleted(namespace: tuple[str, ...]) -> None:
    """A branch of the tree that has become bare is removed only as long as nothing grows there again."""

    def check(outcome: Outcome) -> None:
        outcome.done()
        assert shared(outcome.store).list_namespaces() == [namespace]
        assert [found.key for found in shared(outcome.store).search(("memories",))] == ["b1"]

    parts: list[Part] = [
        lambda world: delete_user(world.store, world.indexes, user="ada"),
        lambda world: shared(world).put(namespace, "b1", {"text": "t"}),
    ]
    explore(lambda: World(begin=item), processes(*parts), check, switches=1)
