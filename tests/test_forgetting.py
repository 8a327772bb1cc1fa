"""Forgetting what a session said: all of it, nothing of others, without reading what cannot be meant."""

from __future__ import annotations

import logging
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, LongTermMemory, Message, SerializationError, open_index
from langmem_adapters.flow import run
from langmem_adapters.longterm import longterm_namespace
from langmem_adapters.model import Memory
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Overtaken

NAMES = st.one_of(
    st.sampled_from(["a", "b", 'quo"te', "back\\slash", "\u00e9t\u00e9", "\U0001f642", "\ud800", "\x00", "\x7f", ""]),
    st.text(max_size=3),
)
SAYINGS = st.lists(
    st.tuples(NAMES.filter(bool), NAMES, st.sampled_from(["one", "two", "\ud800 three", "f\u00fcnf"])), max_size=8
)


def memory_on(store: Store, **options: Any) -> LongTermMemory:
    return LongTermMemory(store, open_index("memory:"), user="ada", **options)


def forget(memory: LongTermMemory, session: str, ids: set[str] | None) -> int:
    return run(memory.forget_flow(session, ids))


def places(memory: LongTermMemory) -> list[tuple[str, str, str]]:
    found = [(o.session, o.message_id, m.message.text) for m in memory.all() for o in m.occurrences]
    return sorted(found)


@settings(deadline=None)
@given(sayings=SAYINGS, session=NAMES, ids=st.none() | st.sets(NAMES, max_size=4), chosen=st.booleans())
@example(sayings=[("a", "", "one"), ("a", "b", "two")], session="a", ids={"", "b"}, chosen=False)
@example(sayings=[("\x7f\u2028", "\x01", "\ud800 three"), ("\n", "\t", "one")], session="\n", ids={"\t"}, chosen=False)
def test_of_any_texts_what_is_meant_goes_and_the_rest_stays(
    sayings: list[tuple[str, str, str]], session: str, ids: set[str] | None, chosen: bool
) -> None:
    memory = memory_on(MemoryStore())
    for name, id_, text in sayings:
        memory.add([Message(id=id_, role="user", content=text)], session=name)
    if chosen and sayings:
        session, ids = sayings[0][0], ids and {*ids, sayings[0][1]}
    before = places(memory)
    touched = forget(memory, session, ids)
    after = [place for place in before if place[0] != session or (ids is not None and place[1] not in ids)]
    assert places(memory) == after
    of = {text: [[place for place in each if place[2] == text] for each in (before, after)] for _, _, text in before}
    assert touched == sum(then != now for then, now in of.values())


def test_a_corrected_memory_is_found_and_what_others_said_stays(any_store: Store) -> None:
    memory = memory_on(any_store)
    memory.add([Message(id="1", role="user", content="My bike is red.")], session="s")
    memory.add([Message(id="1", role="user", content="my bike is red")], session="t")
    memory.add([Message(id="2", role="user", content="My bike is new.")], session="s")
    for known in memory.all():
        assert memory.update(known.id, f"{known.message.text} It is not.")
    assert forget(memory, "s", {"1", "2"}) == 2
    assert places(memory) == [("t", "1", "My bike is red. It is not.")]
    assert [found.text for found in memory.search("bike")] == ["My bike is red. It is not."]


def test_who_only_names_the_session_did_not_say_it_there(any_store: Store) -> None:
    memory = memory_on(any_store)
    memory.add([Message(id="1", role="user", content="s")], session="t")
    before = any_store.scan(longterm_namespace(memory.scope)).total
    assert forget(memory, "s", None) == forget(memory, "s", {"1"}) == 0
    assert (places(memory), any_store.scan(longterm_namespace(memory.scope)).total) == ([("t", "1", "s")], before)


def test_an_id_that_was_used_twice_is_deleted_in_both_places(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s", user="ada", memory_k=2, long_term=memory_on(any_store))
    brain.add_messages([Message(id=f"{n}", role="user", content=f"m{n}") for n in range(3)])
    brain.add_messages([Message(id="0", role="user", content="another")])
    assert brain.delete(["0"]) == 2
    assert brain.long_term is not None
    assert [id_ for _, id_, _ in places(brain.long_term)] == ["1"]


def test_what_was_put_there_by_hand_is_deleted_too(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s", user="ada", long_term=memory_on(any_store))
    assert brain.long_term is not None
    brain.long_term.add([Message(id="hand", role="user", content="by hand")], session="s")
    brain.add_messages([Message(id="x", role="user", content="m")])
    assert brain.delete(["hand", "x"]) == 2
    assert places(brain.long_term) == []


def test_what_the_log_keeps_beside_the_memories_is_left_alone(any_store: Store) -> None:
    memory = memory_on(any_store)
    memory.add([Message(role="user", content="m")])
    any_store.write(longterm_namespace(memory.scope), put={"\0beside": b"[]"})
    assert forget(memory, "", None) == 1
    assert memory.delete(["\0beside"]) == 0
    assert memory.get("\0beside") is None
    assert not memory.update("\0beside", "a memory")
    assert memory.stats()["damaged"] == 0
    assert list(any_store.get(longterm_namespace(memory.scope))) == ["\0beside"]


def test_many_are_forgotten_in_few_writes_and_one_that_nothing_has_left_reads_no_other(any_store: Store) -> None:
    asked: list[tuple[str, Any]] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(any_store, name)

        def get(self, namespace: tuple[str, ...], keys: Any = None) -> dict[str, bytes]:
            asked.extend([("get", keys)] if namespace[0] == "longterm" else [])
            return any_store.get(namespace, keys)

        def write(self, namespace: tuple[str, ...], **changes: Any) -> None:
            asked.extend([("write", len(changes.get("delete", ())))] if namespace[0] == "longterm" else [])
            any_store.write(namespace, **changes)

    store = cast("Store", Watched())
    memory = memory_on(store)
    memory.add([Message(id=f"{n}", role="user", content=f"m{n}") for n in range(250)], session="s")
    memory.add([Message(role="user", content="m7")], session="t")
    asked.clear()
    assert forget(memory, "s", None) == 250
    deleted = [number for what, number in asked if what == "write" and number]
    assert (len(deleted), sum(deleted)) == (3, 249)
    assert places(memory) == [("t", "", "m7")]

    memory.add([Message(id="7", role="user", content="m7")], session="s")
    asked.clear()
    assert forget(memory, "s", {"7"}) == 1
    assert [what for what, _ in asked if what == "write"] == ["write"]

    brain = BrainMemory(store, "fresh", user="ada", long_term=memory)
    brain.add_messages([Message(id="x", role="user", content="m8")])
    memory.add([Message(id="x", role="user", content="m8")], session="fresh")
    asked.clear()
    assert brain.delete(["x"]) == 2
    assert None not in [keys for what, keys in asked if what == "get"]
    assert places(memory) == [("t", "", "m7")]


def test_what_is_said_again_in_this_moment_stays(any_store: Store) -> None:
    def first() -> None:
        memory_on(any_store).add([Message(id="9", role="user", content="m1")], session="t")

    memory_on(any_store).add([Message(id=f"{n}", role="user", content=f"m{n}") for n in range(3)], session="s")
    assert forget(memory_on(cast("Store", Overtaken(any_store, first))), "s", None) == 3
    assert places(memory_on(any_store)) == [("t", "9", "m1")]


def test_what_others_have_said_and_say_again_in_this_moment_stays(any_store: Store) -> None:
    def first() -> None:
        memory_on(any_store).add([Message(id="9", role="user", content="m")], session="u")

    for session in ("s", "t"):
        memory_on(any_store).add([Message(id="1", role="user", content="m")], session=session)
    assert forget(memory_on(cast("Store", Overtaken(any_store, first))), "s", None) == 1
    assert places(memory_on(any_store)) == [("t", "1", "m"), ("u", "9", "m")]


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_damaged_does_not_keep_the_others(
    any_store: Store, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    memory = memory_on(any_store, strict=strict)
    memory.add([Message(id=f"{n}", role="user", content=f"m{n}") for n in range(3)], session="s")
    damaged = memory.all()[0].id
    any_store.write(longterm_namespace(memory.scope), put={damaged: b'{"session":"s"'})
    with caplog.at_level(logging.WARNING):
        if strict:
            with pytest.raises(SerializationError, match=damaged):
                forget(memory, "s", None)
        else:
            assert forget(memory, "s", None) == 2
    assert memory.stats()["damaged"] == 1
    assert f"damaged memory, {damaged!r}" in caplog.text
    assert list(any_store.get(longterm_namespace(memory.scope), [damaged])) == [damaged]
    assert memory.delete([damaged]) == 1
    assert memory.all() == []


def test_what_is_damaged_and_cannot_be_meant_is_not_looked_at(any_store: Store) -> None:
    memory = memory_on(any_store, strict=True)
    for name, id_ in [("s", "1"), ("t", "2")]:
        memory.add([Message(id=id_, role="user", content=f"m{id_}")], session=name)
    damaged = memory.all()[1].id
    any_store.write(longterm_namespace(memory.scope), put={damaged: b'{"session":"t","message_id":"2"'})
    assert forget(memory, "s", None) == 1
    assert forget(memory, "t", {"1"}) == 0
    assert memory.stats()["damaged"] == 0


@pytest.mark.parametrize("strict", [False, True])
def test_f2c_a_damaged_memory_is_counted_and_raised_when_strict(any_store: Store, strict: bool) -> None:
    memory = memory_on(any_store, strict=strict)
    memory.add([Message(role="user", content="The bike is in the shed.")])
    memory.add([Message(role="user", content="The bike is red.")])
    assert len(memory.search("bike")) == 2
    (damaged, _) = memory.all()
    any_store.write(longterm_namespace(memory.scope), put={damaged.id: b"{broken"})

    def rebuilt() -> Any:
        memory.rebuild()
        return memory.search("bike")

    asked: list[Any] = [
        lambda: memory.search("bike"),
        memory.all,
        lambda: memory.get(damaged.id),
        lambda: memory.update(damaged.id, "new"),
        rebuilt,
    ]
    for n, ask in enumerate(asked):
        before = memory.stats()["damaged"]
        if strict:
            with pytest.raises(SerializationError, match=damaged.id) as raised:
                ask()
            assert "broken" not in str(raised.value)
        else:
            expected: Any = [1, 1, None, False, 1][n]
            found = ask()
            assert (len(found) if isinstance(found, list) else found) == expected
        assert memory.stats()["damaged"] > before
    if strict:
        with pytest.raises(SerializationError, match=damaged.id):
            memory.add([damaged.message])
    else:
        memory.add([damaged.message])
        assert isinstance(memory.get(damaged.id), Memory)
