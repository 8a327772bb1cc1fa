"""BrainChatStore and SyncBrainChatStore as LlamaIndex's memories and agents use them: E5."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer, ChatSummaryMemoryBuffer, Memory, SimpleComposableMemory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    JsonPickleSerializer,
    JsonSerializer,
)
from typer.testing import CliRunner
from workflows.errors import WorkflowCancelledByUser

from langmem_adapters import BrainMemory, ConfigurationError, Message, Sessions, open_store
from langmem_adapters.cli.app import app
from langmem_adapters.codec import decode, encode
from langmem_adapters.errors import SerializationError, StoreUnavailable
from langmem_adapters.expiry import EXPIRES
from langmem_adapters.flow import run
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.llamaindex import BrainChatStore, LongTermMemoryBlock, SyncBrainChatStore
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from tests.faults import Overtaken, Slow
from tests.loops import ticking
from tests.test_convert_llamaindex import BLOCKS, KWARGS

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
NAMESPACE = ("brain", "", "", "s")


def said(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role="assistant" if n % 2 else "user", content=text) for n, text in enumerate(texts)]


def texts(messages: Sequence[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


def memory(store: Store, *, token_limit: int = 10_000, **settings: Any) -> Memory:
    """A fresh Memory on a fresh chat store, as a new process has it; words are tokens."""
    return Memory.from_defaults(
        session_id="s",
        chat_store=BrainChatStore(store=store),
        token_limit=token_limit,
        tokenizer_fn=str.split,
        **settings,
    )


# --- a real agent -------------------------------------------------------------------------------------------


def place_of(thing: str) -> str:
    """Tell where a thing is."""
    return f"The {thing} is in the shed."


class Scripted:
    """Answers as a model would: a call for the first question of a turn, then words; remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[list[ChatMessage]] = []

    def __call__(self, messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        self.shown.append([message.model_copy(deep=True) for message in messages])
        last = messages[-1]
        if last.role == MessageRole.TOOL:
            return ChatMessage(role="assistant", content=f"I looked: {last.content}")
        call = ToolCallBlock(
            tool_call_id=f"call-{len(messages)}", tool_name="place_of", tool_kwargs={"thing": str(last.content)}
        )
        return ChatMessage(role="assistant", blocks=[TextBlock(text="Let me see."), call])


def agent(model: Scripted) -> FunctionAgent:
    llm = MockFunctionCallingLLM(response_generator=model)
    return FunctionAgent(tools=[place_of], llm=llm, system_prompt="Be kind.")


# LlamaIndex's workflows go through all attributes of their agents.
agents_warn = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
TURN = ["user", "assistant", "tool", "assistant"]


@agents_warn
async def test_e5_an_agent_remembers_its_tool_calls_in_the_next_turn(any_store: Store) -> None:
    await agent(Scripted()).run("bike", memory=memory(any_store))
    model = Scripted()
    await agent(model).run("key", memory=memory(any_store))

    shown = model.shown[0]
    assert [message.role.value for message in shown] == ["system", *TURN, "user"]
    (call,) = [block for block in shown[2].blocks if isinstance(block, ToolCallBlock)]
    assert call.tool_kwargs == {"thing": "bike"}
    assert shown[2].content == "Let me see."
    assert shown[3].additional_kwargs["tool_call_id"] == call.tool_call_id
    assert shown[4].content == "I looked: The bike is in the shed."
    kept = BrainMemory(any_store, "s").messages()
    assert [message.role for message in kept] == TURN * 2
    assert [message.tool_call_id for message in kept if message.role == "tool"] == [
        message.tool_calls[0].id for message in kept if message.tool_calls
    ]


@pytest.mark.own
@agents_warn
async def test_e5_an_agent_in_a_fresh_process(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    code = (
        "import asyncio, sys; from tests.test_llamaindex_chat_store import Scripted, agent, memory\n"
        "from langmem_adapters import open_store\n"
        "async def turn(): await agent(Scripted()).run('bike', memory=memory(open_store(sys.argv[1])))\n"
        "asyncio.run(turn())"
    )
    command = [sys.executable, "-c", code, url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    model = Scripted()
    await agent(model).run("key", memory=memory(open_store(url)))
    assert [message.role.value for message in model.shown[0]] == ["system", *TURN, "user"]
    assert model.shown[0][4].content == "I looked: The bike is in the shed."


@agents_warn
async def test_e5_an_agent_beyond_its_token_limit(any_store: Store) -> None:
    """Whole turns leave for the archive, and all that was said is there, in its order."""
    asked = [f"thing{n}" for n in range(8)]
    for thing in asked:
        model = Scripted()
        await agent(model).run(thing, memory=memory(any_store, token_limit=60, token_flush_size=10))
        assert [message.role.value for message in model.shown[0][:2]] == ["system", "user"]
    ours = BrainChatStore(store=any_store)
    archived, active = await ours.get_messages("s", ARCHIVED), await ours.get_messages("s")
    assert archived
    assert active
    assert [message.role.value for message in archived + active] == TURN * 8
    assert [message.content for message in archived + active if message.role == "user"] == asked
    assert await ours.get_messages("s", None) == archived + active == await memory(any_store).aget_all()
    assert len(BrainMemory(any_store, "s").messages()) == len(active)


# --- Memory -------------------------------------------------------------------------------------------------


async def test_e5_memory_awaited(any_store: Store) -> None:
    one, two, three = said("one", "two", "three")
    await memory(any_store).aput(one)
    await memory(any_store).aput_messages([two, three])
    assert await memory(any_store).aget() == [one, two, three]
    await memory(any_store).aset([three])
    assert await memory(any_store).aget_all() == [three]
    await memory(any_store).areset()
    assert await memory(any_store).aget_all() == []


def test_e5_memory_called(any_store: Store) -> None:
    one, two, three = said("one", "two", "three")
    memory(any_store).put(one)
    memory(any_store).put_messages([two, three])
    assert memory(any_store).get() == [one, two, three]
    memory(any_store).set([three])
    assert memory(any_store).get_all() == [three]
    memory(any_store).reset()
    assert memory(any_store).get_all() == []


async def test_e5_a_history_given_to_memory(any_store: Store) -> None:
    await memory(any_store).aput(said("old")[0])
    given = await asyncio.to_thread(memory, any_store, chat_history=said("new", "newer"))
    assert texts(await given.aget()) == ["new", "newer"]


async def test_e5_memory_flushes_into_the_archive_by_status(any_store: Store) -> None:
    words = [f"{n} a b c d e f g h" for n in range(10)]
    for message in said(*words):
        await memory(any_store, token_limit=60, token_flush_size=18).aput(message)
    mine = memory(any_store)
    archived, active = await mine.aget_all(ARCHIVED), await mine.aget_all(ACTIVE)
    assert texts([*archived, *active]) == words
    assert 0 < len(active) < 6
    await mine.areset(ACTIVE)
    assert await mine.aget_all() == archived
    await mine.areset(ARCHIVED)
    assert await mine.aget_all() == []


async def test_e5_twenty_concurrent_puts_lose_nothing_while_the_oldest_leave(any_store: Store) -> None:
    mine = memory(any_store, token_limit=20, token_flush_size=2)
    await asyncio.gather(*(mine.aput(message) for message in said(*map(str, range(20)))))
    assert await mine.aget_all(ARCHIVED)
    assert sorted(map(str, texts(await mine.aget_all())), key=int) == [str(n) for n in range(20)]


# --- what comes back ----------------------------------------------------------------------------------------


async def test_e5_every_block_and_argument_comes_back_equal(any_store: Store) -> None:
    chats = [ChatMessage(role="assistant", blocks=blocks) for blocks in BLOCKS.values()]
    chats += [ChatMessage(role=role, content="hi", additional_kwargs=KWARGS[0]) for role in MessageRole]
    chats += [ChatMessage(role="tool", content="x", additional_kwargs=kwargs) for kwargs in KWARGS]
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", chats)
    assert await ours.get_messages("s") == chats
    assert await ours.archive_oldest_messages("s", len(chats)) == chats
    assert await ours.get_messages("s", ARCHIVED) == chats
    await ours.set_messages("s", chats)
    assert await ours.get_messages("s", None) == chats


async def test_a_message_is_kept_without_the_parts_that_no_store_can_keep(caplog: pytest.LogCaptureFixture) -> None:
    thought = ThinkingBlock(content="Hm.", additional_information={"raw": object(), "signature": "s"})
    odd = ChatMessage(role="assistant", blocks=[thought, TextBlock(text="In the shed.")])
    odd.additional_kwargs = {"logprobs": object(), "model": "m"}
    chats = BrainChatStore(store=MemoryStore())
    await chats.add_messages("s", [*said("Where is my bike?"), odd])
    await chats.set_messages("t", [odd])
    for kept in ((await chats.get_messages("s"))[1], *await chats.get_messages("t")):
        assert [block.model_dump(exclude_none=True) for block in kept.blocks] == [
            {"block_type": "thinking", "content": "Hm.", "additional_information": {"signature": "s"}},
            {"block_type": "text", "text": "In the shed."},
        ]
        assert kept.additional_kwargs == {"model": "m"}
    assert caplog.messages == [
        "messages are stored without the parts that cannot be stored: additional_kwargs.logprobs, content"
    ]


def test_a_conversation_with_tools_is_langchains_too(any_store: Store) -> None:
    ours, theirs = SyncBrainChatStore(store=any_store), BrainChatMessageHistory("s", store=any_store)
    call = ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"x": 1})
    ours.add_message("s", ChatMessage(role="user", content="Where?"))
    ours.add_message("s", ChatMessage(role="assistant", blocks=[TextBlock(text="Hm."), call]))
    ours.add_message("s", ChatMessage(role="tool", content="there", additional_kwargs={"tool_call_id": "c1"}))
    asked, answered, found = theirs.messages
    assert asked.content == "Where?"
    assert isinstance(answered, AIMessage)
    assert answered.tool_calls == [{"name": "look", "args": {"x": 1}, "id": "c1", "type": "tool_call"}]
    assert isinstance(found, ToolMessage)
    assert (found.content, found.tool_call_id) == ("there", "c1")


async def test_b1_a_call_whose_arguments_are_no_json_keeps_its_result_here_and_in_langchain(any_store: Store) -> None:
    broken = ToolCallBlock(tool_call_id="z", tool_name="f", tool_kwargs="{not json")
    result = ChatMessage("no JSON", role="tool", additional_kwargs={"tool_call_id": "z"})
    conversation = [*said("q"), ChatMessage(role="assistant", blocks=[broken]), result, *said("q2")]
    await memory(any_store).aput_messages(conversation)
    shown = await memory(any_store).aget()
    assert [message.blocks for message in shown] == [message.blocks for message in conversation]
    (key,) = await BrainChatStore(store=any_store).get_keys()
    assert [m.role for m in BrainMemory(any_store, key).window(10)] == ["user", "assistant", "tool", "user"]
    ours = BrainChatMessageHistory(key, store=any_store, memory_k=10).messages
    assert [message.type for message in ours] == ["human", "ai", "tool", "human"]
    (call,) = AIMessage.model_validate(ours[1].model_dump()).invalid_tool_calls
    assert (call["id"], call["args"]) == ("z", "{not json")
    ours[1].id = None
    BrainChatMessageHistory("langchain's", store=any_store).add_messages(ours)
    chats = await BrainChatStore(store=any_store).get_messages("langchain's")
    assert [message.blocks for message in chats] == [message.blocks for message in conversation]


def test_a_conversation_of_langchain_is_ours_too(any_store: Store) -> None:
    call = {"name": "look", "args": {"x": 1}, "id": "c1", "type": "tool_call"}
    BrainChatMessageHistory("s", store=any_store).add_messages(
        [HumanMessage("Where?"), AIMessage("", tool_calls=[call]), ToolMessage("there", tool_call_id="c1")]
    )
    asked, answered, found = SyncBrainChatStore(store=any_store).get_messages("s")
    assert (asked.role, asked.content) == (MessageRole.USER, "Where?")
    assert answered.blocks == [ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"x": 1})]
    assert (found.content, found.additional_kwargs["tool_call_id"]) == ("there", "c1")


async def test_an_archive_leaves_what_others_keep_in_the_session(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s", clock=iter([1.0, 2.0, 3.0]).__next__)
    brain.add_talk("one")
    brain.add_answer("two")
    brain.add_knowledge(["a fact"])
    brain.set_title("A title")
    await BrainChatStore(store=any_store).archive_oldest_messages("s", 1)
    assert [message.text for message in brain.messages()] == ["two"]
    assert [fact.text for fact in brain.get_knowledge()] == ["a fact"]
    (info,) = Sessions(any_store).list_sessions()
    assert (info.title, info.messages, info.created_at) == ("A title", 1, 1.0)


async def test_an_archive_is_exported_and_deleted_with_its_session(any_store: Store) -> None:
    ours, elsewhere = BrainChatStore(store=any_store), MemoryStore()
    await ours.add_messages("s", said("one", "two", "three"))
    await ours.archive_oldest_messages("s", 2)
    lines = list(Sessions(any_store).export("s"))
    for _ in range(2):
        Sessions(elsewhere).import_(lines)
    assert texts(await BrainChatStore(store=elsewhere).get_messages("s", None)) == ["one", "two", "three"]
    assert Sessions(any_store).delete_session("s")
    assert await ours.get_messages("s", None) == []
    assert any_store.get(NAMESPACE) == {}


def test_a_session_whose_messages_have_all_been_archived_is_there_for_the_command_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    asyncio.run(BrainChatStore(url).add_message("chat", said("My bike is in the shed.")[0], ARCHIVED))
    for command, expected in (("sessions", "chat"), ("export chat", "My bike is in the shed."), ("show chat", "")):
        done = CliRunner().invoke(app, [*command.split(), "--url", url])
        assert done.exit_code == 0
        assert expected in done.stdout


async def test_imported_archives_do_not_overwrite_each_other() -> None:
    here, there = MemoryStore(), MemoryStore()
    for store, text in ((here, "here"), (there, "there")):
        await BrainChatStore(store=store).add_message("s", said(text)[0], ARCHIVED)
    Sessions(here).import_(Sessions(there).export("s"))
    assert sorted(map(str, texts(await BrainChatStore(store=here).get_messages("s", ARCHIVED)))) == ["here", "there"]


# --- what LlamaIndex checks of its own stores ---------------------------------------------------------------


async def test_messages_are_added_by_key_in_order(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_message("a", said("one")[0])
    await ours.add_message("b", said("other")[0])
    await ours.add_messages("a", said("two", "three"))
    await ours.add_messages("a", [])
    assert texts(await ours.get_messages("a")) == ["one", "two", "three"]
    assert texts(await ours.get_messages("b")) == ["other"]
    assert await ours.get_messages("unknown") == []
    assert await ours.get_keys() == ["a", "b"]


async def test_a_page_of_messages(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", said(*"abcdef"))
    await ours.archive_oldest_messages("s", 2)
    assert texts(await ours.get_messages("s", limit=2)) == ["c", "d"]
    assert texts(await ours.get_messages("s", offset=1)) == ["d", "e", "f"]
    assert texts(await ours.get_messages("s", limit=2, offset=1)) == ["d", "e"]
    assert texts(await ours.get_messages("s", limit=9, offset=3)) == ["f"]
    assert texts(await ours.get_messages("s", limit=0)) == []
    assert texts(await ours.get_messages("s", ARCHIVED, limit=1, offset=1)) == ["b"]
    assert texts(await ours.get_messages("s", None, limit=3, offset=1)) == ["b", "c", "d"]


@pytest.mark.parametrize("idx", [0, 1, 2, -1])
async def test_a_summary_ends_at_a_message_that_stays(any_store: Store, idx: int) -> None:
    brain = BrainMemory(any_store, "s", model=lambda _: "They counted.")
    brain.add_messages([Message(role="user", content=str(n)) for n in range(4)])
    brain.summarize(keep=2)
    await BrainChatStore(store=any_store).delete_message("s", idx)
    left = [str(n) for n in range(4) if n != range(4)[idx]]
    assert texts(await BrainChatStore(store=any_store).get_messages("s")) == left
    assert [message.text for message in brain.context().messages] == [text for text in left if text in {"2", "3"}]


@pytest.mark.parametrize("n", range(4))
async def test_what_a_summary_stands_for_is_not_shown_again_as_the_oldest_are_archived(
    any_store: Store, n: int
) -> None:
    brain = BrainMemory(any_store, "s", model=lambda _: "They counted.")
    brain.add_messages([Message(role="user", content=str(n)) for n in range(4)])
    brain.summarize(keep=2)
    await BrainChatStore(store=any_store).archive_oldest_messages("s", n)
    context = brain.context()
    assert context.summary is not None
    assert context.summary.text == "They counted."
    assert [message.text for message in context.messages] == ["2", "3"][max(n - 2, 0) :]


async def test_what_comes_again_after_its_place_was_archived_is_none_of_what_a_summary_stands_for(
    any_store: Store,
) -> None:
    brain = BrainMemory(any_store, "s", model=lambda _: "They counted.")
    said = [Message(role="user", content=str(n), id=str(n)) for n in range(4)]
    brain.add_messages(said)
    brain.summarize(keep=2)
    await BrainChatStore(store=any_store).archive_oldest_messages("s", 2)
    brain.add_messages([said[1]])
    assert [message.text for message in brain.context().messages] == ["2", "3", "1"]


async def test_messages_are_counted_by_status(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", said(*"abcde"))
    await ours.archive_oldest_messages("s", 2)
    assert [await ours.count_messages("s", status) for status in (ACTIVE, ARCHIVED, None)] == [3, 2, 5]
    assert [await ours.count_messages("unknown", status) for status in (ACTIVE, ARCHIVED, None)] == [0, 0, 0]


async def test_set_messages_replaces_all_of_a_key(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("other", said("untouched"))
    await ours.add_messages("s", said(*"abc"))
    await ours.archive_oldest_messages("s", 1)
    await ours.set_messages("s", said("new", "newer"))
    assert texts(await ours.get_messages("s", None)) == ["new", "newer"]
    await ours.set_messages("s", said("old"), ARCHIVED)
    assert await ours.get_messages("s") == []
    assert texts(await ours.get_messages("s", ARCHIVED)) == ["old"]
    await ours.set_messages("s", [])
    assert await ours.get_messages("s", None) == []
    assert texts(await ours.get_messages("other")) == ["untouched"]


async def test_one_message_is_deleted_by_its_position(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", said(*"abcd"))
    deleted = [await ours.delete_message("s", idx) for idx in (1, -1, 2, -3, sys.maxsize, 0)]
    assert [message and message.content for message in deleted] == ["b", "d", None, None, None, "a"]
    assert texts(await ours.get_messages("s", None)) == ["c"]
    assert await ours.delete_message("unknown", 0) is None
    assert await ours.get_keys() == ["s"]


@pytest.mark.parametrize(("idx", "content"), [(0, "message 0"), (-1, "message 99"), (2, "message 2")])
async def test_to_delete_a_message_no_others_are_parsed_beyond_it(
    idx: int, content: str, any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", said(*(f"message {n}" for n in range(100))))
    parsed, parse = list[bytes](), Message.from_bytes

    def counted(data: bytes) -> Message:
        parsed.append(data)
        return parse(data)

    monkeypatch.setattr(Message, "from_bytes", counted)
    deleted = await ours.delete_message("s", idx)
    assert deleted is not None
    assert deleted.content == content
    assert len(parsed) <= 10
    assert await ours.count_messages("s") == 99


async def test_all_messages_are_deleted_by_status(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("other", said("untouched"))
    await ours.add_messages("s", said(*"abcd"))
    await ours.archive_oldest_messages("s", 2)
    await ours.delete_messages("s", ARCHIVED)
    assert texts(await ours.get_messages("s", None)) == ["c", "d"]
    await ours.delete_messages("s", ACTIVE)
    assert await ours.get_messages("s", None) == []
    await ours.add_messages("s", said("e"))
    await ours.delete_messages("s")
    await ours.delete_messages("unknown", ACTIVE)
    assert await ours.get_keys() == ["other"]


async def test_the_oldest_messages_are_deleted(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", said(*"abc"))
    assert texts(await ours.delete_oldest_messages("s", 2)) == ["a", "b"]
    assert texts(await ours.delete_oldest_messages("s", 0)) == []
    assert texts(await ours.get_messages("s", None)) == ["c"]
    assert texts(await ours.delete_oldest_messages("s", 9)) == ["c"]
    assert await ours.delete_oldest_messages("s", 1) == []


async def test_the_archive_keeps_its_order_over_many_writes(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages("s", said(*map(str, range(30))))
    assert texts(await ours.archive_oldest_messages("s", 9)) == [str(n) for n in range(9)]
    await ours.add_message("s", said("in between")[0], ARCHIVED)
    for n in range(9, 20):
        assert texts(await ours.archive_oldest_messages("s", 1)) == [str(n)]
    expected = [*map(str, range(9)), "in between", *map(str, range(9, 20))]
    assert texts(await ours.get_messages("s", ARCHIVED)) == expected
    assert texts(await ours.get_messages("s")) == [str(n) for n in range(20, 30)]


def test_the_older_interface(any_store: Store) -> None:
    ours = SyncBrainChatStore(store=any_store)
    for message in said("one", "two", "three"):
        ours.add_message("a", message)
    ours.set_messages("b", said("x", "y"))
    assert texts(ours.get_messages("a")) == ["one", "two", "three"]
    assert texts(ours.get_messages("b")) == ["x", "y"]
    assert ours.get_messages("unknown") == []
    assert ours.get_keys() == ["b", "a"]
    last, middle = ours.delete_last_message("a"), ours.delete_message("a", 1)
    assert last is not None
    assert middle is not None
    assert texts([last, middle]) == ["three", "two"]
    assert ours.delete_message("a", -2) is None
    assert ours.delete_messages("a") == said("one")
    assert ours.delete_messages("a") is None
    assert ours.delete_last_message("a") is None
    assert ours.get_keys() == ["b"]


async def test_the_older_interface_awaited(any_store: Store) -> None:
    ours = SyncBrainChatStore(store=any_store)
    for message in said("one", "two", "three"):
        await ours.async_add_message("a", message)
    await ours.aset_messages("b", said("x", "y"))
    assert texts(await ours.aget_messages("a")) == ["one", "two", "three"]
    assert await ours.aget_keys() == ["b", "a"]
    assert await ours.adelete_last_message("a") == said("", "", "three")[2]
    assert await ours.adelete_message("a", 1) == said("", "two")[1]
    assert await ours.adelete_messages("a") == said("one")
    assert await ours.adelete_messages("a") is None


def test_the_older_memory(any_store: Store) -> None:
    """What LlamaIndex's RedisChatStore once lost: issue 12313."""
    call = ToolCallBlock(tool_call_id="c1", tool_name="look", tool_kwargs={"x": 1})
    chats = [
        ChatMessage(role="user", content="Where?"),
        ChatMessage(role="assistant", blocks=[call], additional_kwargs={"tool_calls": [{"id": "c1"}]}),
        ChatMessage(role="tool", content="there", additional_kwargs={"tool_call_id": "c1", "name": "look"}),
    ]
    for chat in chats:
        buffer(any_store).put(chat)
    assert buffer(any_store).get() == chats
    buffer(any_store).reset()
    assert buffer(any_store).get_all() == []


def buffer(store: Store) -> ChatMemoryBuffer:
    return buffer_on(SyncBrainChatStore(store=store))


def buffer_on(chat_store: SyncBrainChatStore) -> ChatMemoryBuffer:
    return ChatMemoryBuffer.from_defaults(
        chat_store=chat_store, chat_store_key="s", token_limit=1000, tokenizer_fn=str.split
    )


@agents_warn
@pytest.mark.parametrize("serializer", [JsonSerializer(), JsonPickleSerializer()])
async def test_a_context_that_is_resumed_has_its_older_memory_again(tmp_path: Path, serializer: JsonSerializer) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    before, after = agent(Scripted()), agent(model := Scripted())
    await before.run("bike", ctx=(context := Context(before)), memory=buffer_on(SyncBrainChatStore(url, user="ada")))
    written = json.dumps(context.to_dict(serializer=serializer))
    await after.run("key", ctx=Context.from_dict(after, json.loads(written), serializer=serializer))
    assert [message.role.value for message in model.shown[0]] == ["system", *TURN, "user"]
    assert len(SyncBrainChatStore(url, user="ada").get_messages("s")) == 2 * len(TURN)


@agents_warn
@pytest.mark.filterwarnings("ignore:Skipping serialization of known unserializable key")
@pytest.mark.parametrize("kind", ["buffer", "summary", "composable"])
async def test_a_context_that_goes_on_takes_the_older_memory_that_it_is_given(any_store: Store, kind: str) -> None:
    chats: Any = buffer(any_store)
    if kind == "summary":
        chats = ChatSummaryMemoryBuffer.from_defaults(
            chat_store=SyncBrainChatStore(store=any_store), chat_store_key="s", tokenizer_fn=str.split
        )
    elif kind == "composable":
        chats = SimpleComposableMemory.from_defaults(primary_memory=chats)
    assert "SyncBrainChatStore" in chats.model_dump_json()  # as states of a class of one's own are saved
    one = agent(model := Scripted())
    context = Context(one)
    for question in ("bike", "key"):
        await one.run(question, ctx=context, memory=chats)
    assert [message.role.value for message in model.shown[-1]][: len(TURN) + 2] == ["system", *TURN, "user"]
    assert [message.role for message in BrainMemory(any_store, "s").messages()] == TURN * 2


async def move(ctx: Context, thing: str) -> str:
    """Move a thing, if its owner agrees."""
    asked = InputRequiredEvent(prefix=f"Move the {thing}?")
    answer = await ctx.wait_for_event(HumanResponseEvent, waiter_id="move", waiter_event=asked)
    return f"The {thing} is moved: {answer.response}."


move.__annotations__["ctx"] = Context  # by which LlamaIndex knows it, and not by its name in a text


def moves(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    call = ToolCallBlock(tool_call_id="c", tool_name="move", tool_kwargs={"thing": "bike"})
    done = messages[-1].role == MessageRole.TOOL
    return ChatMessage(role="assistant", blocks=[TextBlock(text="Done.") if done else call])


def mover() -> FunctionAgent:
    return FunctionAgent(tools=[move], llm=MockFunctionCallingLLM(response_generator=moves))


@agents_warn
@pytest.mark.filterwarnings("ignore:Skipping serialization of known unserializable key")
async def test_an_agent_that_waits_for_its_user_goes_on_elsewhere_with_the_memory_that_it_is_given(
    any_store: Store,
) -> None:
    run = mover().run("Move my bike!", memory=memory(any_store))
    async for event in run.stream_events():
        if isinstance(event, InputRequiredEvent):
            written = json.dumps(run.ctx.to_dict(serializer=JsonSerializer()))
            break
    await run.cancel_run()
    with pytest.raises(WorkflowCancelledByUser):
        await run
    again = mover()
    run = again.run(ctx=Context.from_dict(again, json.loads(written), serializer=JsonSerializer()))
    await run.ctx.store.set("memory", memory(any_store))
    run.ctx.send_event(HumanResponseEvent(response="gladly"))
    assert str(await run) == "Done."
    kept = await memory(any_store).aget()
    assert [message.role.value for message in kept] == TURN
    assert kept[2].content == "The bike is moved: gladly."


@agents_warn
async def test_an_agent_whose_context_is_pickled_while_it_waits_goes_on_here_and_loses_nothing_elsewhere(
    any_store: Store,
) -> None:
    """LlamaIndex deletes from a memory that it pickles whatever refuses to be pickled."""
    block = LongTermMemoryBlock(store=any_store, user="ada")
    run = mover().run("Move my bike!", memory=memory(any_store, memory_blocks=[block]))
    async for event in run.stream_events():
        if isinstance(event, InputRequiredEvent):
            written = json.dumps(run.ctx.to_dict(serializer=JsonPickleSerializer()))
            run.ctx.send_event(HumanResponseEvent(response="gladly"))
    assert str(await run) == "Done."
    assert [message.role.value for message in await memory(any_store).aget()] == TURN
    again = mover()
    context = Context[Any].from_dict(again, json.loads(written), serializer=JsonPickleSerializer())
    resumed: Memory = await context.store.get("memory")
    assert [type(part) for part in (resumed.sql_store, *resumed.memory_blocks)] == [BrainChatStore, LongTermMemoryBlock]
    with pytest.raises(StoreUnavailable, match="was pickled without its store"):
        await resumed.aput(ChatMessage("and my key"))


# --- nothing is lost, doubled or seen by others -------------------------------------------------------------


class Interrupted(MemoryStore):
    """Lets somebody else act, or the connection fail, just before or after a write."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Callable[[], object]] = []
        self.after: list[Callable[[], object]] = []

    def write(self, *args: Any, **kwargs: Any) -> None:
        while self.before:
            self.before.pop()()
        super().write(*args, **kwargs)
        while self.after:
            self.after.pop()()


def lose() -> None:
    raise StoreUnavailable("the connection was lost")


async def three_of(store: Store) -> BrainChatStore:
    ours = BrainChatStore(store=store)
    await ours.add_messages("s", said("a", "b", "c"))
    return ours


async def test_a_write_that_fails_changes_nothing() -> None:
    store = Interrupted()
    ours = await three_of(store)
    for operation in (
        lambda: ours.archive_oldest_messages("s", 2),
        lambda: ours.delete_oldest_messages("s", 2),
        lambda: ours.set_messages("s", said("new")),
        lambda: ours.delete_message("s", 0),
    ):
        store.before.append(lose)
        with pytest.raises(StoreUnavailable):
            await operation()
        assert texts(await ours.get_messages("s", None)) == ["a", "b", "c"]
        assert await ours.count_messages("s", ARCHIVED) == 0


async def test_an_answer_that_is_lost_leaves_each_message_in_one_place() -> None:
    store = Interrupted()
    ours = await three_of(store)
    store.after.append(lose)  # that of the write by which a session begins to let messages leave
    with pytest.raises(StoreUnavailable):
        await ours.archive_oldest_messages("s", 2)
    assert texts(await ours.get_messages("s", None)) == texts(await ours.get_messages("s")) == ["a", "b", "c"]
    store.after.append(lose)
    with pytest.raises(StoreUnavailable):
        await ours.archive_oldest_messages("s", 2)
    assert texts(await ours.get_messages("s", ARCHIVED)) == ["a", "b"]
    assert texts(await ours.get_messages("s")) == ["c"]


async def test_what_is_deleted_meanwhile_does_not_come_back_from_the_archive() -> None:
    store = Interrupted()
    ours = await three_of(store)
    for deleted, archived in (("a", "b"), ("c", "d")):
        await ours.add_messages("s", said("d", "e"))
        store.before.append(lambda: SyncBrainChatStore(store=store).delete_message("s", 0))
        assert texts(await ours.archive_oldest_messages("s", 1)) == [archived]
        assert deleted not in texts(await ours.get_messages("s", None))


@pytest.mark.parametrize(
    ("take_away", "archived"),
    [
        (lambda ours: ours.delete_messages("s", ACTIVE), ["d", "e"]),
        (lambda ours: ours.delete_messages("s"), ["d", "e"]),
        (lambda ours: ours.delete_oldest_messages("s", 3), ["d", "e"]),
        (lambda ours: ours.set_messages("s", []), ["d", "e"]),
        (lambda ours: ours.delete_message("s", 0), ["b", "c"]),
    ],
)
async def test_what_one_has_read_and_then_deleted_is_not_counted_as_archived(
    take_away: Callable[[BrainChatStore], Awaitable[object]], archived: list[str]
) -> None:
    ours = await three_of(MemoryStore())
    assert texts(await ours.get_messages("s")) == ["a", "b", "c"]
    await take_away(ours)
    await ours.add_messages("s", said("d", "e"))
    assert texts(await ours.archive_oldest_messages("s", 2)) == archived


async def test_each_of_the_oldest_is_archived_once_if_more_are_asked_for_than_were_read(any_store: Store) -> None:
    ours = await three_of(any_store)
    assert texts(await ours.get_messages("s")) == ["a", "b", "c"]
    await ours.add_messages("s", said("d", "e"))
    assert texts(await ours.archive_oldest_messages("s", 4)) == ["a", "b", "c", "d"]
    assert texts(await ours.get_messages("s", None)) == ["a", "b", "c", "d", "e"]


async def test_what_others_have_removed_since_it_was_read_counts_as_archived(any_store: Store) -> None:
    ours = await three_of(any_store)
    assert texts(await ours.get_messages("s")) == ["a", "b", "c"]
    SyncBrainChatStore(store=any_store).delete_message("s", 0)
    assert texts(await ours.archive_oldest_messages("s", 2)) == ["b"]
    assert texts(await ours.archive_oldest_messages("s", 1)) == ["c"]


async def test_what_is_damaged_goes_along_and_does_not_count(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    any_store.append(("brain", "", "", "s"), [("x", b"damaged")])
    await ours.add_messages("s", said("a", "b"))
    assert texts(await ours.get_messages("s")) == ["a", "b"]
    assert texts(await ours.archive_oldest_messages("s", 1)) == ["a"]
    assert await ours.count_messages("s") == 1
    any_store.append(("brain", "", "", "s"), [("y", b"damaged")])
    await ours.add_messages("s", said("c"))
    assert texts(await ours.get_messages("s")) == ["b", "c"]
    assert texts(await ours.archive_oldest_messages("s", 2)) == ["b", "c"]


async def test_what_is_archived_meanwhile_is_replaced_too() -> None:
    store = Interrupted()
    ours = await three_of(store)
    store.before.append(lambda: asyncio.run(ours.archive_oldest_messages("s", 2)))
    await ours.set_messages("s", said("new"))
    assert texts(await ours.get_messages("s", None)) == ["new"]


async def test_what_is_added_meanwhile_stays() -> None:
    store = Interrupted()
    ours = await three_of(store)
    for operation in (lambda: ours.archive_oldest_messages("s", 3), lambda: ours.set_messages("s", said("new"))):
        store.before.append(lambda: SyncBrainChatStore(store=store).add_message("s", said("late")[0]))
        await operation()
        assert "late" in texts(await ours.get_messages("s"))


async def test_a_look_at_all_sees_each_message_once_while_they_are_archived() -> None:
    class Moving(MemoryStore):
        moved = False

        def get(self, *args: Any, **kwargs: Any) -> dict[str, bytes]:
            if not self.moved:
                self.moved = True
                asyncio.run(BrainChatStore(store=self).archive_oldest_messages("s", 2))
            return super().get(*args, **kwargs)

    ours = await three_of(Moving())
    assert texts(await ours.get_messages("s", None)) == ["a", "b", "c"]
    assert texts(await ours.get_messages("s")) == ["c"]


def test_threads_that_archive_and_add_lose_and_double_nothing(any_store: Store) -> None:
    ours = SyncBrainChatStore(store=any_store)
    barrier = threading.Barrier(4)

    def work(worker: int) -> None:
        barrier.wait()
        for n in range(10):
            ours.add_message("s", said(f"{worker}-{n}")[0])
            asyncio.run(BrainChatStore(store=any_store).archive_oldest_messages("s", 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = asyncio.run(BrainChatStore(store=any_store).get_messages("s", None))
    assert sorted(map(str, texts(found))) == sorted(f"{worker}-{n}" for worker in range(4) for n in range(10))
    assert asyncio.run(BrainChatStore(store=any_store).count_messages("s", ARCHIVED)) == 40


async def test_a_status_that_is_none_is_told_and_changes_nothing(any_store: Store) -> None:
    ours = await three_of(any_store)
    await ours.archive_oldest_messages("s", 1)
    wrong: Any = "activ"
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: ours.get_messages("s", wrong),
        lambda: ours.count_messages("s", wrong),
        lambda: ours.add_message("s", said("d")[0], wrong),
        lambda: ours.set_messages("s", said("d"), wrong),
        lambda: ours.delete_messages("s", wrong),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=r"ACTIVE or MessageStatus\.ARCHIVED, not 'activ'"):
            await call()
    assert texts(await ours.get_messages("s", None)) == ["a", "b", "c"]


async def test_a_damaged_entry_does_not_take_the_session_along(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    any_store.append(NAMESPACE, [("bad", b"\x00")])
    ours = await three_of(any_store)
    assert texts(await ours.get_messages("s")) == ["a", "b", "c"]
    assert await ours.delete_message("s", 1) == said("a", "b")[1]
    await ours.archive_oldest_messages("s", 2)
    assert texts(await ours.get_messages("s", None)) == ["a", "c"]
    assert [data for key, data in any_store.get(NAMESPACE).items() if key.endswith("/bad")] == [b"\x00"]
    assert "damaged" in caplog.text


@pytest.mark.parametrize("damage", [b'"x"', b"", b"1.0", b"\xff"])
async def test_a_damaged_number_is_taken_from_the_archive(
    any_store: Store, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    ours = await three_of(any_store)
    for _ in range(2):
        any_store.write(NAMESPACE, put={"archived": damage})
        await ours.archive_oldest_messages("s", 1)
        assert texts(await ours.get_messages("s", None)) == ["a", "b", "c"]
    assert texts(await ours.get_messages("s")) == ["c"]
    assert any_store.get(NAMESPACE, ["archived"]) == {"archived": b"2"}
    assert caplog.text.count("is taken from the archive") == 1


async def test_a_number_that_others_can_read_stays(any_store: Store) -> None:
    ours = await three_of(any_store)
    any_store.write(NAMESPACE, put={"archived": b"\x02 encrypted"})
    with pytest.raises(SerializationError, match="is encrypted"):
        await ours.archive_oldest_messages("s", 1)
    assert any_store.get(NAMESPACE) == {"archived": b"\x02 encrypted"}
    assert texts(await ours.get_messages("s", None)) == ["a", "b", "c"]


async def test_h5_users_and_tenants_see_their_own(any_store: Store) -> None:
    scopes: list[dict[str, Any]] = [{}, {"user": "ada"}, {"user": "bob"}, {"tenant": "ada"}]
    stores = [BrainChatStore(store=any_store, **scope) for scope in scopes]
    for n, ours in enumerate(stores):
        await ours.add_messages("s", said(f"{n}", "x"))
        await ours.archive_oldest_messages("s", 1)
    await stores[0].delete_messages("s")
    assert [texts(await ours.get_messages("s", None)) for ours in stores] == [[], ["1", "x"], ["2", "x"], ["3", "x"]]
    assert [await ours.get_keys() for ours in stores] == [[], ["s"], ["s"], ["s"]]
    older = [SyncBrainChatStore(store=any_store, **scope) for scope in scopes]
    assert [texts(ours.get_messages("s")) for ours in older] == [[], ["x"], ["x"], ["x"]]


@pytest.mark.parametrize("key", ["a/b:c*?[]{}", "故乡 🙂\n", "k" * 10_000])
async def test_a_key_is_any_text(any_store: Store, key: str) -> None:
    ours = BrainChatStore(store=any_store)
    await ours.add_messages(key, said("one", "two"))
    await ours.archive_oldest_messages(key, 1)
    assert texts(await ours.get_messages(key, None)) == ["one", "two"]
    assert await ours.get_keys() == [key]


async def test_what_was_read_of_another_session_keeps_nothing_from_being_archived(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store)
    for key in ("a", "b"):
        await ours.add_messages(key, said("one", "two"))
    await ours.get_messages("a")
    assert texts(await ours.archive_oldest_messages("b", 1)) == ["one"]


async def test_a7_a_rule_for_the_ttl_holds_for_all_that_the_store_does() -> None:
    store = MemoryStore()

    def deadline() -> float:
        return float(decode(store.get(NAMESPACE)[EXPIRES]))

    never = BrainChatStore(store=store, ttl=1000, refresh="never")
    await never.add_messages("s", said("one", "two", "three"))
    began = deadline()
    assert began == pytest.approx(time.time() + 1000, abs=60)
    await never.archive_oldest_messages("s", 1)
    await SyncBrainChatStore(store=store, ttl=1000, refresh="never").async_add_message("s", said("four")[0])
    await never.get_messages("s", None)
    assert deadline() == began
    read = BrainChatStore(store=store, ttl=5000, refresh="read")
    await read.get_messages("s")
    assert deadline() == pytest.approx(time.time() + 5000, abs=60)
    SyncBrainChatStore(store=store, ttl=9000, refresh="read").get_messages("s")
    assert deadline() == pytest.approx(time.time() + 9000, abs=60)
    for look in (lambda: read.get_messages("s", None), lambda: read.count_messages("s")):
        store.write(NAMESPACE, put={EXPIRES: encode(time.time() + 1)})
        await look()
        assert deadline() == pytest.approx(time.time() + 5000, abs=60)


async def test_a7_a_session_expires_as_a_whole() -> None:
    now = [0.0]
    ours = BrainChatStore(store=MemoryStore(clock=lambda: now[0]), ttl=10)
    await ours.add_messages("s", said("one", "two"))
    now[0] = 9
    await ours.archive_oldest_messages("s", 1)
    now[0] = 18
    assert texts(await ours.get_messages("s", None)) == ["one", "two"]
    now[0] = 20
    assert await ours.get_messages("s", None) == []
    assert await ours.get_keys() == []


async def test_a5_the_loop_is_never_blocked() -> None:
    store = Slow(0.1, "scan")
    ours, older = BrainChatStore(store=store), SyncBrainChatStore(store=store)
    async with ticking() as late:
        await asyncio.gather(ours.get_messages("a"), ours.set_messages("b", said("x")), older.aget_messages("c"))
        await asyncio.gather(
            ours.delete_message("b", 0), ours.count_messages("b", None), older.adelete_last_message("b")
        )
    assert max(late) < 0.09


async def test_a5_the_older_memories_wait_for_nobody_on_the_threads_of_the_loop(any_store: Store) -> None:
    """Where there are two processors, a loop has six threads; here one, which is taken."""
    ours, release = SyncBrainChatStore(store=any_store), threading.Event()

    async def use() -> list[list[ChatMessage]]:
        await ours.aset_messages("t", said("e"))
        for message in said("a", "b", "c", "d"):
            await ours.async_add_message("s", message)
        assert await ours.adelete_last_message("s") == said("a", "b", "c", "d")[3]
        assert await ours.adelete_message("s", 0) == said("a")[0]
        assert await ours.adelete_messages("t") == said("e")
        assert await ours.aget_keys() == ["s"]
        return await asyncio.gather(*(ours.aget_messages("s") for _ in range(20)))

    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        taken = asyncio.ensure_future(asyncio.to_thread(release.wait, 60))
        try:
            found = await asyncio.wait_for(use(), 20)
        finally:
            release.set()
        await taken
    assert found == [said("a", "b", "c")[1:]] * 20


# --- how it is made and dumped ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BrainChatStore, SyncBrainChatStore])
def test_f2_no_dump_holds_a_password(kind: type[BrainChatStore | SyncBrainChatStore]) -> None:
    ours = kind("redis://ada:hunter2@127.0.0.1:1/0", user="ada", ttl=5, refresh="read")
    dumps = [repr(ours), str(ours), repr(ours.model_dump()), ours.model_dump_json()]
    assert not [dump for dump in dumps if "hunter2" in dump]
    assert "redis://ada:***@127.0.0.1:1/0" in dumps[0]
    with pytest.raises(ConfigurationError, match=r"with \*{3} for its password: give the URL itself"):
        kind(**{name: value for name, value in json.loads(ours.model_dump_json()).items() if name != "class_name"})


@pytest.mark.parametrize("kind", [BrainChatStore, SyncBrainChatStore])
@pytest.mark.parametrize("made", [{"url": "redis://ada:hunter2@127.0.0.1:1/0"}, {"store": MemoryStore()}])
async def test_f2_what_cannot_be_opened_again_is_pickled_without_its_store(kind: Any, made: dict[str, Any]) -> None:
    data = pickle.dumps(pickle.loads(pickle.dumps(kind(user="ada", ttl=5, **made))))
    assert b"hunter2" not in data
    loaded = pickle.loads(data)
    assert (type(loaded), loaded.user, loaded.ttl) == (kind, "ada", 5)
    with pytest.raises(StoreUnavailable, match=f"a {kind.__name__} was pickled without its store") as refused:
        await (loaded.aget_messages("s") if kind is SyncBrainChatStore else loaded.get_messages("s"))
    assert "hunter2" not in str(refused.value)


async def test_a_copy_has_the_same_store(any_store: Store) -> None:
    ours = BrainChatStore(store=any_store, user="ada", ttl=5)
    chats = Memory.from_defaults("s", chat_store=ours, tokenizer_fn=str.split)
    await ours.add_messages("s", said("one"))
    copies: list[Any] = [copy.copy(ours), copy.deepcopy(ours), ours.model_copy(deep=True)]
    for again in [*copies, copy.deepcopy(chats).sql_store]:
        assert texts(await again.get_messages("s")) == ["one"]
        assert (again.user, again.ttl) == ("ada", 5)
    older = copy.deepcopy(SyncBrainChatStore(store=any_store, user="ada"))
    assert texts(older.get_messages("s")) == ["one"]


def test_a_dump_makes_the_same_store_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    older = SyncBrainChatStore(url, user="ada")
    older.add_message("s", said("one")[0])
    for load in (SyncBrainChatStore.from_dict, SyncBrainChatStore.model_validate):
        assert texts(load(older.to_dict()).get_messages("s")) == ["one"]
    assert texts(pickle.loads(pickle.dumps(older)).get_messages("s")) == ["one"]
    ours = BrainChatStore(url, user="ada")
    for again in (BrainChatStore.model_validate(ours.model_dump()), pickle.loads(pickle.dumps(ours))):
        assert texts(asyncio.run(again.get_messages("s"))) == ["one"]


async def both(store: Store, user: str = "") -> list[list[str | None]]:
    """What a session has archived, and what is active."""
    chats = BrainChatStore(store=store, user=user)
    return [texts(await chats.get_messages("s", status=status)) for status in (ARCHIVED, ACTIVE)]


async def test_a8_what_was_archived_since_an_export_is_not_imported_again(any_store: Store) -> None:
    chats, sessions = BrainChatStore(store=any_store), Sessions(any_store)
    await chats.set_messages("s", said("one", "two", "three"))
    lines = list(sessions.export())
    await chats.archive_oldest_messages("s", 2)
    later = list(sessions.export())
    for _ in range(2):
        assert (sessions.import_(lines), sessions.import_(later)) == (0, 0)
        assert await both(any_store) == [["one", "two"], ["three"]]
    assert list(sessions.export()) == later


async def test_a8_what_is_archived_while_a_session_is_exported_is_in_the_export(any_store: Store) -> None:
    chats, sessions = BrainChatStore(store=any_store), Sessions(any_store)
    texts = [str(n) for n in range(25)]  # more than are read with the first line
    await chats.set_messages("s", said(*texts))
    lines = sessions.export()
    begun = next(lines)
    await chats.archive_oldest_messages("s", 2)
    Sessions(any_store, user="ada").import_([begun, *lines])
    assert await both(any_store, "ada") == [texts[:2], texts[2:]]


async def test_what_is_deleted_goes_from_the_archive_too_and_is_not_imported_again(any_store: Store) -> None:
    chats, sessions, brain = BrainChatStore(store=any_store), Sessions(any_store), BrainMemory(any_store, "s")
    await chats.set_messages("s", said("one", "two", "three", "four"))
    ids = [message.id for message in brain.messages()]
    lines = list(sessions.export())
    await chats.archive_oldest_messages("s", 2)
    later = list(sessions.export())
    assert brain.delete([ids[0], ids[2]]) == 2
    assert await both(any_store) == [["two"], ["four"]]
    for exported in (lines, later):
        assert sessions.import_(exported) == 0
        assert await both(any_store) == [["two"], ["four"]]
    assert brain.delete([ids[0]]) == 0
    Sessions(any_store, user="ada").import_(sessions.export())
    assert await both(any_store, "ada") == [["two"], ["four"]]


@pytest.mark.parametrize("way", ["active", "archived", "both", "replaced"])
async def test_what_is_deleted_together_is_not_imported_again(any_store: Store, way: str) -> None:
    chats, sessions = BrainChatStore(store=any_store), Sessions(any_store)
    await chats.set_messages("s", said("one", "two", "three"))
    lines = list(sessions.export())
    await chats.archive_oldest_messages("s", 1)
    later = list(sessions.export())
    if way in {"active", "both"}:
        await chats.delete_messages("s", status=ACTIVE)
    if way in {"archived", "both"}:
        await chats.delete_messages("s", status=ARCHIVED)
    if way == "replaced":
        await chats.set_messages("s", said("four"))
    left = {"active": [["one"], []], "archived": [[], ["two", "three"]], "both": [[], []], "replaced": [[], ["four"]]}
    for exported in (lines, later):
        assert sessions.import_(exported) == 0
        assert await both(any_store) == left[way]


async def test_what_is_deleted_from_the_archive_at_this_moment_is_not_imported_into_it(any_store: Store) -> None:
    elsewhere = MemoryStore()
    await BrainChatStore(store=elsewhere).set_messages("s", said("one", "two"))
    (first, _) = BrainMemory(elsewhere, "s").messages()
    await BrainChatStore(store=elsewhere).archive_oldest_messages("s", 1)
    lines = list(Sessions(elsewhere).export())
    await BrainChatStore(store=any_store).set_messages("s", said("own", "here"))
    await BrainChatStore(store=any_store).archive_oldest_messages("s", 1)

    def others() -> None:
        Sessions(any_store).import_(lines)
        BrainMemory(any_store, "s").delete([first.id])

    Sessions(cast("Store", Overtaken(any_store, others))).import_(lines)
    assert await both(any_store) == [["own"], ["here", "two"]]


async def test_what_is_archived_here_at_this_moment_is_not_imported_into_the_archive_again(any_store: Store) -> None:
    elsewhere = MemoryStore()
    await BrainChatStore(store=elsewhere).set_messages("s", said("one", "two"))
    (first, _) = BrainMemory(elsewhere, "s").messages()
    await BrainChatStore(store=elsewhere).archive_oldest_messages("s", 1)
    here = BrainChatStore(store=any_store)
    await here.set_messages("s", said("own", "here"))
    await here.archive_oldest_messages("s", 1)

    def others() -> None:
        BrainMemory(any_store, "s").add_messages([first])
        run(here._session("s").remove_oldest(2, archive=True))

    Sessions(cast("Store", Overtaken(any_store, others))).import_(Sessions(elsewhere).export())
    assert await both(any_store) == [["own", "here", "one"], ["two"]]


async def test_a8_what_was_archived_elsewhere_stays_where_it_is_here(any_store: Store) -> None:
    elsewhere = MemoryStore()
    chats = BrainChatStore(store=elsewhere)
    await chats.set_messages("s", said("one", "two", "three"))
    sessions = Sessions(any_store)
    sessions.import_(Sessions(elsewhere).export())
    await chats.archive_oldest_messages("s", 2)
    lines = list(Sessions(elsewhere).export())
    assert sessions.import_(line for line in lines if b'"type":"session"' in line) == 0
    assert sessions.import_(lines) == 0
    assert await both(any_store) == [[], ["one", "two", "three"]]
    Sessions(any_store, user="ada").import_(lines)
    assert await both(any_store, "ada") == [["one", "two"], ["three"]]


def test_a_dump_of_a_store_of_ones_own_makes_no_other() -> None:
    older = SyncBrainChatStore(store=MemoryStore())
    with pytest.raises(ConfigurationError, match=r"a store's URL is .* what was given is none of them"):
        SyncBrainChatStore.from_json(older.model_dump_json())
    with pytest.raises(ConfigurationError, match=r"url is a text .*, not bytes"):
        SyncBrainChatStore.from_dict(older.to_dict())
    with pytest.raises(ConfigurationError, match=r"a store's URL is .* what was given is none of them"):
        BrainChatStore(**BrainChatStore(store=MemoryStore()).model_dump())


def test_the_default_is_that_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGMEM_STORE_URL", f"sqlite:///{tmp_path}/default.db")
    SyncBrainChatStore().add_message("s", said("one")[0])
    assert (tmp_path / "default.db").is_file()
    assert SyncBrainChatStore().url is None


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigurationError, match="a url or a store, not both"):
        BrainChatStore("memory:", store=MemoryStore())
    with pytest.raises(ConfigurationError, match="ttl"):
        BrainChatStore("memory:", ttl=0)
    with pytest.raises(ConfigurationError, match="session id"):
        SyncBrainChatStore(store=MemoryStore()).get_messages("")


async def test_the_largest_numbers_mean_all(any_store: Store) -> None:
    ours = await three_of(any_store)
    assert len(await ours.get_messages("s", limit=sys.maxsize, offset=1)) == 2
    assert await ours.get_messages("s", limit=sys.maxsize, offset=sys.maxsize) == []


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"offset": -1}, {"limit": 2.5}])
async def test_wrong_numbers_are_named(wrong: dict[str, Any]) -> None:
    ours = await three_of(MemoryStore())
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        await ours.get_messages("s", **wrong)
    with pytest.raises(ConfigurationError, match="n is a whole number"):
        await ours.delete_oldest_messages("s", -1)
    assert await ours.count_messages("s") == 3


# --- any order of calls, of both stores and of whoever else has the session

_deeds = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "archived", "set", "pop", "oldest", "archive", "delete", "forget", "brain"]),
        st.sampled_from("st"),
        st.integers(-2, 3),
    ),
    max_size=25,
)


class _Walk:
    """Sessions of a user, and two lists beside each: what is archived, and what is active."""

    def __init__(self, store: Store) -> None:
        self.user = uuid.uuid4().hex
        self.store = store
        self.lists: dict[str, tuple[list[ChatMessage], list[ChatMessage]]] = {"s": ([], []), "t": ([], [])}
        self.said = 0

    def some(self, n: int) -> list[ChatMessage]:
        """New messages, of which the first is that of the call before: what is said twice is kept twice."""
        self.said += abs(n)
        return said(*(str(number) for number in range(self.said - abs(n), self.said + 1)))

    async def do(self, deed: str, key: str, n: int) -> None:
        ours = BrainChatStore(store=self.store, user=self.user)
        sync = SyncBrainChatStore(store=self.store, user=self.user)
        archived, active = self.lists[key]
        some, oldest = self.some(n), active[: abs(n)]
        if deed in {"add", "archived"}:
            await ours.add_messages(key, some, ARCHIVED if deed == "archived" else ACTIVE)
            (archived if deed == "archived" else active).extend(some)
        elif deed == "set":
            await ours.set_messages(key, some) if n > 0 else sync.set_messages(key, some)
            archived[:], active[:] = [], some
        elif deed == "pop":
            gone = await ours.delete_message(key, n) if n != -1 else sync.delete_last_message(key)
            assert gone == (active.pop(n) if -len(active) <= n < len(active) else None)
        elif deed in {"oldest", "archive"}:
            take = ours.delete_oldest_messages if deed == "oldest" else ours.archive_oldest_messages
            assert await take(key, abs(n)) == oldest
            archived += oldest if deed == "archive" else []
            del active[: abs(n)]
        elif deed == "delete":
            status = None if n < 0 else ACTIVE if n else ARCHIVED
            await ours.delete_messages(key, status)
            archived[:] = archived if status == ACTIVE else []
            active[:] = active if status == ARCHIVED else []
        elif deed == "forget":
            assert sync.delete_messages(key) == (active or None)
            archived[:], active[:] = [], []
        elif messages := self.brain(key).messages()[n : n + 1]:
            assert self.brain(key).delete([messages[0].id]) == 1
            del active[n]

    def brain(self, key: str) -> BrainMemory:
        return BrainMemory(self.store, key, user=self.user)

    async def check(self, store: Store, limit: int) -> None:
        ours = BrainChatStore(store=store, user=self.user)
        for key, (archived, active) in self.lists.items():
            for status, expected in ((ARCHIVED, archived), (ACTIVE, active), (None, archived + active)):
                assert await ours.get_messages(key, status) == expected
                assert await ours.get_messages(key, status, limit, 1) == expected[1:][:limit]
                assert await ours.count_messages(key, status) == len(expected)
        listed = {info.session: info.messages for info in Sessions(store, user=self.user).list_sessions()}
        assert {key: listed.get(key, 0) for key in self.lists} == {key: len(one[1]) for key, one in self.lists.items()}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deeds=_deeds, limit=st.integers(0, 3))
def test_any_sequence_of_calls_behaves_like_two_lists(
    any_store: Store, deeds: list[tuple[str, str, int]], limit: int
) -> None:
    async def walk() -> None:
        world = _Walk(any_store)
        for deed in deeds:
            await world.do(*deed)
            await world.check(any_store, limit)
        lines = list(Sessions(any_store, user=world.user).export())
        other = MemoryStore()
        for _ in range(2):
            Sessions(other, user=world.user).import_(lines)
            await world.check(other, limit)
        assert Sessions(any_store, user=world.user).import_(lines) == 0

    asyncio.run(walk())
