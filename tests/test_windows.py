"""B1 on every surface that shows a model a conversation: whatever was said and whatever fits, it is acceptable.

`text.window` itself is tested in test_text.py, `BrainMemoryMiddleware` in test_langchain_middleware.py.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, LongTermMemory, Message, open_index
from langmem_adapters.conversation import session
from langmem_adapters.conversation.log import readable_entries
from langmem_adapters.conversation.stored_summary import SUMMARY
from langmem_adapters.flow import run
from langmem_adapters.langchain import BrainChatMessageHistory, to_message
from langmem_adapters.llamaindex import from_message as to_chat
from langmem_adapters.llamaindex import to_message as from_chat
from langmem_adapters.model import Summary, ToolCall
from langmem_adapters.protocols import Page
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.text import is_window_full, repair, window
from langmem_adapters.tokens import approximate_tokens
from tests.test_text import asked_for, assert_acceptable, conversations, wordy_conversations

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
    return message.role == "tool", message.tool_call_id, {*asked_for(message)}


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


# --- B4: as many messages are read as the budget holds


@given(
    said=wordy_conversations(),
    summarised_up_to=st.none() | st.integers(0, 30),
    limits=st.tuples(st.integers(1, 40), st.integers(1, 300)),
    first=st.integers(1, 5),
)
def test_b4_reading_page_by_page_shows_what_reading_all_shows(
    said: list[Message], summarised_up_to: int | None, limits: tuple[int, int], first: int
) -> None:
    k, budget = limits
    brain = BrainMemory(MemoryStore(), "s", model=lambda _: "In short.", counter=approximate_tokens)
    brain.add_messages(said)
    if summarised_up_to is not None and said:
        brain.summarize(keep=max(len(said) - summarised_up_to, 0))
    summary, newest = run(brain._flows.newest(k, lambda items: [message for _, message in readable_entries(items)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_FIRST_PAGE_SIZE", first)
        shown = brain.context(k, max_tokens=budget)
    assert shown == (summary, window(newest, k, max_tokens=budget))


def test_b4_what_the_budget_holds_is_measured_by_the_memorys_own_counter() -> None:
    brain = BrainMemory(MemoryStore(), "s", counter=lambda _: 6)  # and four for each message
    brain.add_messages([Message(role="user", content="word " * 100) for _ in range(600)])
    assert len(brain.window(1000, max_tokens=4000)) == 400


@given(said=conversations(), before=conversations(), k=st.integers(1, 12), budget=st.integers(1, 120))
def test_b4_what_was_said_before_does_not_change_a_settled_window(
    said: list[Message], before: list[Message], k: int, budget: int
) -> None:
    if is_window_full(said, k, max_tokens=budget, counter=approximate_tokens):
        assert window([*before, *said], k, max_tokens=budget) == window(said, k, max_tokens=budget)


class Counted(MemoryStore):
    """Counts what is read of its logs."""

    def __init__(self) -> None:
        super().__init__()
        self.scans: list[int] = []

    def scan(self, *args: Any, **bounds: Any) -> Page:
        page = super().scan(*args, **bounds)
        self.scans.append(len(page.items))
        return page


@pytest.mark.parametrize(
    ("held", "k", "budget", "scans"),
    [
        (5000, None, 1000, [256]),
        (5000, None, 10_000, [256, 256, 512]),
        (5000, 50, 1000, [50]),
        (5000, 1000, None, [1000]),
        (5000, 300, 100_000, [256, 44]),
        (300, None, 100_000, [256, 44]),
        (40, None, 1000, [40]),
        (0, None, 1000, [0]),
    ],
)
def test_b4_a_budget_reads_what_it_holds_and_not_the_session(
    held: int, k: int | None, budget: int | None, scans: list[int]
) -> None:
    store = Counted()
    said = [Message(role="assistant" if n % 2 else "user", content=f"{n:05} " + "word " * 8) for n in range(held)]
    BrainMemory(store, "s").add_messages(said)
    store.scans.clear()
    shown = BrainChatMessageHistory("s", store=store, memory_k=k, max_tokens=budget).messages
    assert store.scans == scans
    last = said[-len(shown) :] if shown else []
    assert [message.content for message in shown] == [message.content for message in last]


def test_a_log_that_ends_before_the_window_is_full_is_read_once() -> None:
    store = Counted()
    brain = BrainMemory(store, "s")
    brain.add_messages([Message(role="assistant", content="Welcome!")])
    store.scans.clear()
    assert len(brain.window(5)) == 1
    assert store.scans == [1]


@pytest.mark.parametrize(("behind", "k", "scans"), [(100, 300, [256, 44]), (0, 1, [1]), (1, 1, [1, 64])])
def test_no_more_is_read_once_the_question_is_found(behind: int, k: int, scans: list[int]) -> None:
    store = Counted()
    said = ["assistant"] * 400 + ["user"] + ["assistant"] * behind
    brain = BrainMemory(store, "s", memory_k=k)
    brain.add_messages([Message(role=role, content=f"{n} " + "word " * 8) for n, role in enumerate(said)])
    store.scans.clear()
    brain.context(max_tokens=100_000)
    assert store.scans == scans


def test_the_question_before_a_summarised_run_is_found_however_far_back() -> None:
    said = ["user", *["assistant"] * 70, "user", "assistant"]
    brain = BrainMemory(MemoryStore(), "s")
    brain.add_messages([Message(id=str(n), role=role, content=str(n)) for n, role in enumerate(said)])
    brain.store.write(brain._flows.namespace, put={SUMMARY: Summary(text="In short.", covers="69").to_bytes()})
    assert [message.content for message in brain.context(4).messages] == ["0", "70", "71", "72"]


def test_a_window_costs_no_more_for_each_of_many_tools(tmp_path: Path) -> None:
    def calls(count: int) -> int:
        """How many calls it takes to read the window of a question that led to so many."""
        asked = [ToolCall(id=f"c{n}", name="look") for n in range(count)]
        results = [Message(role="tool", content="seen", tool_call_id=call.id) for call in asked]
        said = [Message(role="user", content="Look!"), Message(role="assistant", tool_calls=asked), *results]
        with closing(SQLiteStore(tmp_path / f"{count}.db")) as store:
            brain = BrainMemory(store, "s", memory_k=200)
            brain.add_messages([Message(role="user", content="Hello."), *said])
            made = 0

            def count_call(_: object, event: str, __: object) -> None:
                nonlocal made
                made += event == "call"

            sys.setprofile(count_call)
            try:
                shown = brain.context().messages
            finally:
                sys.setprofile(None)
            assert len(shown) >= len(said)
        return made

    assert calls(3000) < 3 * calls(1500)
