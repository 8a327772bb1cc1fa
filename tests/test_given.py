"""What is something else than is meant is told at the entrance, in one sentence, and nothing is stored of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langmem_adapters import (
    BrainMemory,
    ConfigurationError,
    Experience,
    ExperiencePool,
    LongTermMemory,
    Message,
    Sessions,
    WorkingMemory,
    open_index,
)
from langmem_adapters.stores.memory import MemoryStore

SECRET = "my secret words"


@pytest.mark.parametrize(
    "make",
    [
        lambda store: BrainMemory(store, "s"),
        lambda store: LongTermMemory(store, open_index("memory:"), user="ada"),
        lambda store: ExperiencePool(store, tag="t"),
        Sessions,
        WorkingMemory,
    ],
    ids=["brain", "long-term", "pool", "sessions", "working"],
)
def test_a_url_is_no_store(make: Callable[[Any], object]) -> None:
    for wrong, kind in (("sqlite:///x.db", "str"), (Path("x.db"), ".*Path"), (None, "NoneType")):
        with pytest.raises(ConfigurationError, match=rf'a store is what open_store\("sqlite.* not {kind}$'):
            make(wrong)


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        (SECRET, "one str"),
        (Message(role="user", content=SECRET), "one Message"),
        ({"role": "user", "content": SECRET}, "one dict"),
        (None, "one NoneType"),
        ([SECRET], "of str"),
        ([Message(role="user", content="a"), {"role": "user", "content": SECRET}], "of dict"),
        ([("user", SECRET)], "of tuple"),
    ],
)
async def test_messages_are_a_list_of_messages(messages: Any, kind: str) -> None:
    store = MemoryStore()
    brain, memory = BrainMemory(store, "s"), LongTermMemory(store, open_index("memory:"), user="ada")
    for add in (brain.add_messages, memory.add):
        with pytest.raises(ConfigurationError, match=rf"messages are a list of Message\(.*, not {kind}$") as caught:
            add(messages)
        assert SECRET not in str(caught.value)
    for aadd in (brain.aadd_messages, memory.aadd):
        with pytest.raises(ConfigurationError, match=f"not {kind}$"):
            await aadd(messages)
    assert (brain.messages(), memory.count()) == ([], 0)


@pytest.mark.parametrize(
    ("fields", "names"),
    [({"text": None}, "content"), ({"text": 5}, "content"), ({"text": SECRET, "name": {"a": SECRET}}, "name")],
)
async def test_what_is_said_is_a_text(fields: dict[str, Any], names: str) -> None:
    brain = BrainMemory(MemoryStore(), "s")
    for add in (brain.add_talk, brain.add_answer):
        with pytest.raises(
            ConfigurationError, match=f"a message cannot have a value of this type as {names}$"
        ) as caught:
            add(**fields)
        assert caught.value.__context__ is None or SECRET not in str(caught.value.__cause__)
    for aadd in (brain.aadd_talk, brain.aadd_answer):
        with pytest.raises(ConfigurationError, match=f"as {names}$"):
            await aadd(**fields)
    assert brain.messages() == []


def test_a_scope_is_a_scope() -> None:
    memory = LongTermMemory(MemoryStore(), open_index("memory:"), user="ada")
    with pytest.raises(ConfigurationError, match="the scope of a search is a Scope, not str"):
        memory.search("bike", scope="monday")  # type: ignore[arg-type]


@pytest.mark.parametrize("experience", [SECRET, None, {"req": SECRET}])
async def test_an_experience_is_an_experience(experience: Any) -> None:
    pool = ExperiencePool(MemoryStore(), tag="t")
    with pytest.raises(ConfigurationError, match=rf"Experience\(req=.*, not {type(experience).__name__}$"):
        pool.create(experience)
    with pytest.raises(ConfigurationError, match="not "):
        await pool.acreate(experience)
    assert pool.count() == 0


def test_an_export_may_come_as_one_text() -> None:
    source, there = MemoryStore(), MemoryStore()
    BrainMemory(source, "s").add_talk("Where is my bike?")
    ExperiencePool(source, tag="t").create(Experience(req="a", resp="b"))
    assert Sessions(there).import_(b"".join(Sessions(source).export()).decode()) == 1
    lines = b"\n".join(bytes(line) for line in ExperiencePool(source, tag="t").export())
    assert ExperiencePool(there, tag="t").import_(lines.decode()) == 1
