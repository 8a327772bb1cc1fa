"""B1 on every surface that shows a model a conversation: whatever was said and whatever fits, it is acceptable.

`text.window` itself is tested in test_text.py, `BrainMemoryMiddleware` in test_langchain_middleware.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, LongTermMemory, Message, open_index
from langmem_adapters.langchain import BrainChatMessageHistory, to_message
from langmem_adapters.llamaindex import from_message as to_chat
from langmem_adapters.llamaindex import to_message as from_chat
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.text import repair
from tests.test_text import assert_acceptable, conversations

Kept = dict[str, Any]


def all_kept(_: MemoryStore) -> Kept:
    return {}


def overflowing(store: MemoryStore) -> Kept:
    return {"long_term": LongTermMemory(store, open_index("memory:"), user="ada")}


def summarised(store: MemoryStore) -> Kept:
    inline = {"model": lambda _: "In short.", "summarize_at": 40, "summarize_in": "inline"}
    return {**overflowing(store), **inline}


def summarised_behind(_: MemoryStore) -> Kept:
    return {"model": lambda _: "In short.", "summarize_at": 40, "summarize_in": "inline"}


def of_history(brain: BrainMemory) -> list[Message]:
    return [to_message(m) for m in BrainChatMessageHistory(brain=brain, memory_k=brain.memory_k).messages]


def marks(message: Message) -> tuple[Any, ...]:
    """By what a message is known whose text may be cut; LlamaIndex has no place for its id and for every role."""
    return message.role == "tool", message.tool_call_id, [call.id for call in message.tool_calls]


SURFACES: dict[str, Callable[[BrainMemory], list[Message]]] = {
    "window": lambda brain: brain.window(),
    "context": lambda brain: brain.context().messages,
    "history": of_history,
    "through LlamaIndex": lambda brain: [from_chat(to_chat(message)) for message in brain.window()],
}


@pytest.mark.parametrize("keep", [all_kept, overflowing, summarised, summarised_behind])
@pytest.mark.parametrize("surface", SURFACES)
@given(
    said=conversations(),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    limits=st.tuples(st.integers(1, 12), st.none() | st.integers(1, 120)),
)
def test_b1_every_surface_shows_what_every_provider_accepts(
    keep: Callable[[MemoryStore], Kept],
    surface: str,
    said: list[Message],
    cuts: list[int],
    limits: tuple[int, int | None],
) -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s", user="ada", memory_k=limits[0], max_tokens=limits[1], **keep(store))
    places = sorted({0, len(said), *(min(cut, len(said)) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        brain.add_messages(said[start:end])
        shown = SURFACES[surface](brain)
        assert_acceptable(shown, has_user=any(message.role == "user" for message in said[:end]))
        newest = repair(said[:end])[-1:] == said[end - 1 : end]  # no orphan
        assert not newest or marks(shown[-1]) == marks(said[end - 1])
