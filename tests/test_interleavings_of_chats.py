"""What two processes do to one session by LlamaIndex's Memory, in every order of their calls."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus

from langmem_adapters import LongTermMemory
from langmem_adapters.llamaindex import BrainChatStore, LongTermMemoryBlock
from tests.interleaved_world import Part, World, processes
from tests.interleavings import Outcome, explore

OLD = ["m0", "m1", "m2", "m3"]


def remembered(world: World) -> LongTermMemory:
    return LongTermMemory(world.store, world.indexes[0], user="ada", clock=world.clock, new_id=world.new_id)


def memory(world: World) -> Memory:
    """Of which a third message is too much."""
    return Memory.from_defaults(
        "monday",
        chat_store=BrainChatStore(store=world.store, user="ada"),
        memory_blocks=[LongTermMemoryBlock(remembered(world))],
        tokenizer_fn=str.split,
        token_limit=4,
        chat_history_token_ratio=0.5,
        token_flush_size=1,
    )


def chats(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=text) for text in texts]


def begun(world: World) -> None:
    asyncio.run(BrainChatStore(store=world.store, user="ada").add_messages("monday", chats(*OLD)))


def say(text: str) -> Part:
    return lambda world: asyncio.run(memory(world).aput_messages(chats(text)))


def reset(world: World) -> None:
    asyncio.run(memory(world).areset())


def texts(world: World, status: MessageStatus) -> set[str | None]:
    found = asyncio.run(BrainChatStore(store=world.store, user="ada").get_messages("monday", status))
    return {chat.content for chat in found}


@pytest.mark.parametrize("other", ["say", "reset"])
def test_what_leaves_a_memory_is_in_its_block(other: str) -> None:
    """Two that find the same queue too long do not archive twice as much, of which only one half was kept."""

    def check(outcome: Outcome) -> None:
        outcome.done()
        active, archived = (texts(outcome.store, status) for status in (MessageStatus.ACTIVE, MessageStatus.ARCHIVED))
        kept = {each.message.text for each in remembered(outcome.store).all()}
        assert archived <= kept
        assert not active & archived
        assert active | archived <= {*OLD, "x", "y"}
        if other == "say":
            assert active | kept == {*OLD, "x", "y"}

    explore(lambda: World(begin=begun), processes(say("x"), say("y") if other == "say" else reset), check, switches=1)


async def test_the_oldest_are_archived_of_what_was_read_last() -> None:
    world = World(begin=lambda _: None)
    store = BrainChatStore(store=world.store)
    await store.add_messages("monday", chats(*OLD))
    assert len(await store.get_messages("monday")) == 4
    await asyncio.create_task(store.archive_oldest_messages("monday", 1))  # another one's
    assert [chat.content for chat in await store.archive_oldest_messages("monday", 2)] == ["m1"]
    await store.add_messages("monday", chats("m4"))
    assert [chat.content for chat in await store.archive_oldest_messages("monday", 3)] == ["m2", "m3", "m4"]
    await store.set_messages("monday", chats("new"))
    assert [chat.content for chat in await store.archive_oldest_messages("monday", 1)] == ["new"]
