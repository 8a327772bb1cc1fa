"""Whoever reads thousands of messages at once need not wait for the garbage collector to look at them over and over."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.indexes.lexical import LexicalIndex
from langmem_adapters.llamaindex import SyncBrainChatStore
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.stores.memory import MemoryStore

COUNT = 3000
TEXTS = [f"Sentence {n}" for n in range(COUNT)]
MESSAGES = [Message(role="user", content=text) for text in TEXTS]


def brain(_: Path) -> Callable[[], list[Any]]:
    brain = BrainMemory(MemoryStore(), "s")
    brain.add_messages(MESSAGES)
    return brain.messages


def long_term(folder: Path) -> Callable[[], list[Any]]:
    memory = LongTermMemory(MemoryStore(), user="ada", index=LexicalIndex(folder / "index.db"))
    memory.add(MESSAGES)
    return memory.all


def chat_store(_: Path) -> Callable[[], list[Any]]:
    chats = SyncBrainChatStore(store=MemoryStore(), user="ada")
    chats.set_messages("s", [ChatMessage(role="user", content=text) for text in TEXTS])
    return lambda: chats.get_messages("s")


@pytest.mark.parametrize("reader", [brain, long_term, chat_store])
def test_it_rests_while_many_are_read(reader: Callable[[Path], Callable[[], list[Any]]], tmp_path: Path) -> None:
    read = reader(tmp_path)
    starts: list[object] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            starts.append(info)

    gc.collect()
    gc.callbacks.append(note)
    try:
        found = read()
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert len(found) == COUNT
    assert len(starts) < COUNT / 300, "each message is several objects, and the collector looks every 700 to 2,000"
