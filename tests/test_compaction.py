"""B2, B3: what a summary stands for leaves the window, at once or not at all, and is never lost or shown twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langmem_adapters.brain import BrainMemory
from langmem_adapters.conversation import model_tasks
from langmem_adapters.conversation.log import CREATED, brain_namespace
from langmem_adapters.conversation.stored_summary import SUMMARY
from langmem_adapters.errors import ConfigurationError, Conflict, ModelError, StoreUnavailable
from langmem_adapters.indexes import open_index
from langmem_adapters.keys import Namespace
from langmem_adapters.longterm import LongTermMemory, longterm_namespace
from langmem_adapters.model import Message, Scope, ToolCall
from langmem_adapters.prompts import Prompts
from langmem_adapters.protocols import Page, Store
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.stores.sqlite import SQLiteStore
from langmem_adapters.testing import FakeClock
from langmem_adapters.tokens import approximate_tokens, message_tokens
from tests.faults import Overtaken, Unplugged

KINDS = ("long-term", "behind", "deleted")
"""What becomes of the messages that a summary stands for."""


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\bm(\d+)\b", text)]


class Accountant:
    """A model whose summary names every message that it was ever told of, in the order of telling."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return "Told of " + " ".join(f"m{number}" for number in numbers(prompt))


def memory(
    store: Store, kind: str = "behind", model: Any = None, *, session: str = "s", user: str = "ada", **arguments: Any
) -> BrainMemory:
    long_term = LongTermMemory(store, open_index("memory:"), user=user, clock=FakeClock())
    settings = {
        "summarize_in": "inline",
        "max_summary_tokens": 100_000,
        "memory_k": 1000,
        "clock": FakeClock(),
        "long_term": long_term if kind == "long-term" else None,
        "archive": kind != "deleted",
    }
    return BrainMemory(store, session, user=user, model=model, **{**settings, **arguments})


def message(number: int, role: str = "user", words: int = 10) -> Message:
    return Message(id=f"id-{number}", role=role, content=f"m{number}" + " word" * words)


def turn(number: int, words: int = 10) -> list[Message]:
    return [message(2 * number, "user", words), message(2 * number + 1, "assistant", words)]


def shown(brain: BrainMemory) -> tuple[list[int], list[int]]:
    """The numbers of the messages in the summary and in the window."""
    summary, messages = brain.context()
    return numbers(summary.text if summary else ""), [number for m in messages for number in numbers(m.text)]


def kept(brain: BrainMemory) -> list[int]:
    """The numbers of all messages that can still be had, in any order; one that is there twice is there twice."""
    found = [m.text for m in brain.messages()]
    long_term = brain.long_term
    archived = [m.message.text for m in long_term.all() for _ in m.occurrences] if long_term else []
    return sorted(number for text in found + archived for number in numbers(text))


def stored(store: Store) -> dict[Any, Any]:
    """All that a store holds."""
    return {ns: (store.scan(ns), store.get(ns)) for ns in sorted(store.namespaces())}


# --- nothing is lost, nothing is shown twice


def tools(first: int, count: int) -> list[Message]:
    """A call and its results."""
    calls = [ToolCall(id=f"call-{first}-{n}", name="look") for n in range(count)]
    asking = message(first, "assistant").model_copy(update={"tool_calls": calls})
    results = [
        message(first + 1 + n, "tool").model_copy(update={"tool_call_id": call.id}) for n, call in enumerate(calls)
    ]
    return [asking, *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Message]]:
    """Turns: a question, any number of calls with their results, and mostly an answer."""
    turns: list[list[Message]] = []
    count = 0
    for _ in range(draw(st.integers(1, 8))):
        said = [message(count)]
        for width in draw(st.lists(st.integers(1, 3), max_size=5)):
            said += tools(count + len(said), width)
        if draw(st.booleans()):
            said.append(message(count + len(said), "assistant"))
        count += len(said)
        turns.append(said)
    return turns


def assert_whole(brain: BrainMemory, said: list[Message]) -> None:
    """Each message is in the summary or in the window; in both only the question that has to stand in front."""
    told, window = shown(brain)
    everything = list(range(len(said)))
    assert len(told) == len(set(told))
    assert len(window) == len(set(window))
    assert sorted({*told, *window}) == everything
    twice = set(told) & set(window)
    assert twice <= set(window[:1])
    if twice:
        assert said[window[0]].role == "user"
        assert said[window[1]].role != "user"


@pytest.mark.parametrize("kind", KINDS)
def test_b2_b3_summary_and_window_together_show_each_message_once(any_store: Store, kind: str) -> None:
    # The stores answer alike, which their own tests say: the slower ones see fewer of the same conversations.
    @settings(max_examples=40 if isinstance(any_store, MemoryStore) else 10)
    @given(turns=conversations(), data=st.data())
    def walk(turns: list[list[Message]], data: st.DataObject) -> None:
        model = Accountant()
        automatic = data.draw(st.booleans())
        brain = memory(any_store, kind, model, summarize_at=data.draw(st.integers(20, 400)) if automatic else None)
        brain.clear()
        if brain.long_term:
            brain.long_term.clear()
        said: list[Message] = []
        for part in turns:
            at_once = data.draw(st.booleans())
            for batch in [part] if at_once else [[m] for m in part]:
                brain.add_messages(batch)
                said += batch
                if not batch[-1].tool_calls:
                    assert_whole(brain, said)
            if not automatic and data.draw(st.booleans()):
                brain.summarize(keep=data.draw(st.integers(0, 8)))
                assert_whole(brain, said)
        if kind != "deleted":
            assert kept(brain) == list(range(len(said)))
        else:
            assert sorted({*shown(brain)[0], *kept(brain)}) == list(range(len(said)))

    walk()


@pytest.mark.parametrize("kind", KINDS)
def test_the_rest_of_a_tool_run_is_shown_after_the_next_question_too(kind: str) -> None:
    brain = memory(MemoryStore(), kind, Accountant())
    said = [message(0), *tools(1, 1), *tools(3, 1), *tools(5, 1), message(7, "assistant")]
    brain.add_messages(said)
    brain.summarize(keep=4)
    brain.add_messages([message(8)])
    told = [0, 1, 2, 3, 4] if kind == "behind" else [1, 2, 3, 4]  # where it cannot leave, it is told of, too
    assert shown(brain) == (told, [0, 5, 6, 7, 8])


def test_the_question_of_a_tool_run_is_found_however_far_behind_the_rest_of_it(any_store: Store) -> None:
    brain = memory(any_store, "behind", Accountant())
    brain.add_messages([message(0), *(m for n in range(40) for m in tools(2 * n + 1, 1)), message(81, "assistant")])
    brain.summarize(keep=4)
    brain.add_messages([message(82)])
    assert [m.id for m in brain.context(k=8).messages] == [f"id-{n}" for n in (0, *range(79, 83))]


def test_what_the_system_says_first_needs_no_question_that_a_summary_stands_for() -> None:
    brain = memory(MemoryStore(), "behind", Accountant())
    brain.add_messages([*turn(0), message(2), message(3, "system"), message(4)])
    brain.summarize(keep=3)
    brain.delete(["id-2"])
    assert shown(brain) == ([0, 1], [3, 4])


def test_without_an_archive_nothing_that_is_summarised_goes_to_the_long_term_memory(any_store: Store) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = memory(any_store, "deleted", Accountant(), long_term=long_term)
    brain.add_messages([m for n in range(5) for m in turn(n)])
    assert numbers(brain.summarize(keep=4)) == list(range(6))
    assert kept(brain) == list(range(6, 10))


def test_when_all_is_summarised_the_window_is_empty() -> None:
    brain = memory(MemoryStore(), "behind", Accountant())
    brain.add_messages(turn(0) + turn(1))
    assert numbers(brain.summarize()) == [0, 1, 2, 3]
    assert shown(brain) == ([0, 1, 2, 3], [])
    assert brain.summarize() == brain.history_text().splitlines()[0]
    assert brain.stats()["calls"] == 1
    assert brain.count() == 4


def test_a_smaller_window_than_the_budget_is_the_budget() -> None:
    brain = memory(MemoryStore(), "behind", Accountant(), summarize_at=100_000, max_tokens=300)
    said = []
    for n in range(60):
        said += turn(n)
        brain.add_messages(turn(n))
        assert_whole(brain, said)
        assert sum(message_tokens(m) for m in brain.context().messages) <= 300
    assert brain.stats()["summaries"] > 3


def test_a_summary_that_is_replaced_by_hand_stands_for_the_same_and_an_empty_one_for_nothing(any_store: Store) -> None:
    brain = memory(any_store, "behind", Accountant())
    brain.add_messages(turn(0) + turn(1))
    brain.summarize(keep=2)
    brain.set_summary("They met m99")
    assert shown(brain) == ([99], [2, 3])
    brain.set_summary("")
    assert shown(brain) == ([], [0, 1, 2, 3])
    brain.set_summary("They met m7")
    assert shown(brain) == ([7], [0, 1, 2, 3])


@pytest.mark.parametrize(("deleted", "covers"), [([5], "id-4"), ([1, 4, 5], "id-3"), ([5, 7], "id-4"), ([2], "id-5")])
def test_a_summary_stands_for_the_others_when_the_message_that_it_ends_at_is_deleted(
    any_store: Store, deleted: list[int], covers: str
) -> None:
    brain = memory(any_store, "behind", Accountant())
    brain.add_messages([m for n in range(4) for m in turn(n)])
    brain.summarize(keep=2)
    assert brain.delete([f"id-{n}" for n in deleted]) == len(deleted)
    summary, window = brain.context()
    assert summary is not None
    assert (summary.text, summary.covers) == ("Told of m0 m1 m2 m3 m4 m5", covers)
    assert [m.id for m in window] == [f"id-{n}" for n in (6, 7) if n not in deleted]
    brain.add_messages([message(8)])
    brain.summarize()
    assert brain.stats()["calls"] == 2
    assert all(f"m{n} " not in brain.model.prompts[-1].partition("Said next:")[2] for n in range(6))


def test_a_summary_whose_messages_are_all_deleted_stands_for_none_and_is_shown(any_store: Store) -> None:
    brain = memory(any_store, "behind", Accountant())
    brain.add_messages(turn(0) + turn(1))
    brain.summarize(keep=2)
    brain.delete(["id-0", "id-1"])
    summary = brain.get_summary()
    assert summary is not None
    assert summary.covers == ""
    assert shown(brain) == ([0, 1], [2, 3])


@pytest.mark.parametrize("kind", ["long-term", "deleted"])
def test_what_a_summary_stood_for_is_not_shown_again_by_the_next_one_that_keeps_nothing_here(
    any_store: Store, kind: str
) -> None:
    """An application that kept all it summarised got a long-term memory, or ``archive=False``."""
    before = memory(any_store, "behind", Accountant())
    before.add_messages([m for n in range(3) for m in turn(n)])
    before.summarize(keep=2)
    brain = memory(any_store, kind, Accountant())
    brain.add_messages(turn(3))
    assert shown(brain) == ([0, 1, 2, 3], [4, 5, 6, 7])
    brain.summarize(keep=2)
    assert shown(brain) == ([0, 1, 2, 3, 4, 5], [6, 7])
    assert kept(brain) == (list(range(8)) if kind == "long-term" else [6, 7])


def test_who_numbers_anew_is_shown_though_the_message_at_which_a_summary_ends_has_moved(any_store: Store) -> None:
    before = memory(any_store, "behind", Accountant())
    before.add_messages([m for n in range(3) for m in turn(n)])
    before.summarize(keep=2)
    brain = memory(any_store, "long-term", memory_k=2)
    brain.add_messages(turn(3))
    brain.add_messages([message(8).model_copy(update={"id": "id-3"})])
    assert shown(brain) == ([0, 1, 2, 3], [8])
    assert kept(brain) == list(range(9))


def test_a8_a_summary_stands_for_the_same_messages_in_another_store(any_store: Store) -> None:
    brain = memory(any_store, "behind", Accountant())
    odd = [message(n).model_copy(update={"id": id_}) for n, id_ in enumerate(["x" * 500, "a\nb", "", "é"])]
    brain.add_messages(odd)
    brain.summarize(keep=1)
    assert shown(brain) == ([0, 1, 2], [3])
    other = MemoryStore()
    lines = list(Sessions(any_store, user="ada").export("s"))
    for _ in range(2):
        Sessions(other, user="eve").import_(lines)
        assert shown(memory(other, user="eve")) == ([0, 1, 2], [3])
    brain = memory(other, "behind", Accountant(), user="eve")
    brain.add_messages([message(4)])
    brain.summarize()
    assert shown(brain) == ([0, 1, 2, 3, 4], [])
    assert brain.count() == 5


# --- cost


@pytest.mark.parametrize("kind", KINDS)
def test_b3_two_hundred_turns_cost_what_they_must(any_store: Store, kind: str) -> None:
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt)
        return f"Summary number {len(prompts)}"

    brain = memory(any_store, kind, model, summarize_at=2000, max_summary_tokens=100)
    tokens = 0
    for n in range(200):
        brain.add_messages(turn(n, words=20))
        tokens += sum(map(message_tokens, turn(n, words=20)))
        assert sum(message_tokens(m) for m in brain.context().messages) <= 2000
    stats = brain.stats()
    assert 3 < stats["calls"] == stats["summaries"] <= math.ceil((tokens - 2000) / 1000)
    told: list[int] = []
    for call, prompt in enumerate(prompts):
        before, said_next = prompt.split("Said next:\n")
        assert re.findall(r"Summary number \d+", before) == ([f"Summary number {call}"] if call else [])
        assert numbers(before) == []
        told += numbers(said_next)
    window = shown(brain)[1]
    assert told + window == list(range(400))
    assert kept(brain) == (window if kind == "deleted" else list(range(400)))
    assert abs(stats["tokens_in"] - sum(map(approximate_tokens, prompts))) <= 2 * len(prompts)
    assert stats["tokens_out"] == sum(approximate_tokens(f"Summary number {n + 1}") for n in range(len(prompts)))


@pytest.mark.parametrize(
    "budget",
    [{"summarize_at": 60}, {"summarize_at": 100_000, "memory_k": 6}, {"summarize_at": 60, "memory_k": 6}],
)
def test_b3_what_fits_the_budget_stays_and_of_what_does_not_half_of_the_budget(budget: dict[str, Any]) -> None:
    brain = memory(MemoryStore(), "behind", Accountant(), counter=lambda _: 6, **budget)  # and 4 for its borders
    brain.add_messages([message(n) for n in range(6)])
    assert shown(brain) == ([], [0, 1, 2, 3, 4, 5])
    brain.add_messages([message(6)])
    assert shown(brain) == ([0, 1, 2, 3], [4, 5, 6])


def test_b3_one_that_is_too_large_leaves_a_full_window_alone() -> None:
    brain = memory(MemoryStore(), "behind", Accountant(), summarize_at=200, memory_k=6)
    brain.add_messages([message(0, words=1000), *(message(n) for n in range(1, 6))])
    assert shown(brain) == ([0], [1, 2, 3, 4, 5])


def test_b3_what_is_within_the_budget_stays_also_before_the_first_question() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), "behind", model, counter=lambda _: 6, summarize_at=60)
    brain.add_messages([message(0, "assistant"), message(1)])
    assert (brain.summarize(keep=2), model.prompts) == ("", [])


def test_b3_nothing_is_read_any_more_once_all_that_was_due_is_summarised() -> None:
    class Counting(MemoryStore):
        looks = 0

        def scan(self, namespace: Namespace, **bounds: Any) -> Page:
            self.looks += bounds.get("limit") == 0
            return super().scan(namespace, **bounds)

    store = Counting()
    brain = memory(store, "behind", Accountant(), counter=lambda _: 6, summarize_at=60)
    brain.add_messages([message(n) for n in range(7)])
    assert (brain.stats()["summaries"], store.looks) == (1, 0)


def test_b3_a_question_and_an_answer_stay_however_large() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), "behind", model, summarize_at=100, memory_k=1)
    brain.add_messages(turn(0, words=100_000))
    assert (shown(brain), model.prompts) == (([], [0, 1]), [])


def test_b3_a_question_and_the_results_of_its_first_calls_stay_however_large() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), "behind", model, summarize_at=100, memory_k=2)
    brain.add_messages(turn(0))
    brain.summarize(keep=0)
    asking, *results = tools(3, 2)
    brain.add_messages([message(2), asking, *(m.model_copy(update={"content": m.text * 10_000}) for m in results)])
    assert len(model.prompts) == 1
    brain.add_messages([message(6, "assistant"), message(7)])
    assert shown(brain) == ([0, 1, 2, 3, 4, 5, 6], [7])


def test_b3_the_summary_stays_within_its_length_whatever_the_model_answers() -> None:
    brain = memory(MemoryStore(), "behind", lambda _: "far too much " * 500, summarize_at=400, max_summary_tokens=50)
    for n in range(30):
        brain.add_messages(turn(n))
        summary = brain.get_summary()
        assert approximate_tokens(summary.text if summary else "") <= 50
    assert brain.stats()["summaries"] > 2
    assert brain.stats()["calls"] == 2 * brain.stats()["summaries"]


def test_a_summary_is_made_as_its_memory_and_its_call_say() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), prompts=Prompts(summary="Sum up.", keep_language="As they speak."), counter=len)
    brain.add_messages(turn(0))
    said = brain.summarize(model, max_tokens=12, keep_language=False)
    assert "Sum up." in model.prompts[0]
    assert "As they speak." not in model.prompts[0]
    assert len(said) <= 12


def test_b3_a_window_of_few_messages_does_not_cost_a_call_each_turn() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), "behind", model, summarize_at=100_000, memory_k=20)
    for n in range(100):
        brain.add_messages(turn(n))
        assert sorted(itertools.chain(*shown(brain))) == list(range(2 * n + 2))
    assert len(model.prompts) <= math.ceil((200 - 20) / 10)


def test_b3_a_huge_question_does_not_cost_a_call_for_each_tool_behind_it() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), "long-term", model, summarize_at=1000)
    brain.add_messages([message(0, words=5000)])
    for n in range(60):
        brain.add_messages(tools(2 * n + 1, 1))
    tokens = 60 * sum(map(message_tokens, tools(1, 1)))
    assert 1 < len(model.prompts) <= tokens / (1000 / 8)
    assert kept(brain) == list(range(121))


def test_b3_a_long_backlog_is_taken_in_passes_that_each_are_kept() -> None:
    store = MemoryStore()
    said = [message(n, words=40) for n in range(3000)]
    memory(store).add_messages(said)

    class Fails(Accountant):
        def __call__(self, prompt: str) -> str:
            if len(self.prompts) == 20:
                raise TimeoutError
            return super().__call__(prompt)

    failing = memory(store, "behind", Fails(), summarize_at=2000, memory_k=200)
    failing.add_messages([message(3000, words=40)])
    told = shown(failing)[0]
    assert 500 < len(set(told)) < 2000
    model = Accountant()
    brain = memory(store, "behind", model, summarize_at=2000, memory_k=200)
    brain.add_messages([message(3001, words=40)])
    told, window = shown(brain)
    assert sorted({*told, *window}) == list(range(3002))
    assert len(model.prompts) < 60


@pytest.mark.parametrize("kind", KINDS)
def test_b3_a_long_backlog_is_read_once_however_many_passes_it_takes(kind: str) -> None:
    class Counting(MemoryStore):
        read = 0

        def scan(self, namespace: Namespace, **bounds: Any) -> Page:
            page = super().scan(namespace, **bounds)
            self.read += len(page.items) if namespace[0] == "brain" else 0
            return page

    store, model, counted = Counting(), Accountant(), list[str]()

    def counter(text: str) -> int:
        counted.append(text)
        return approximate_tokens(text)

    memory(store).add_messages([message(n, words=40) for n in range(3000)])
    brain = memory(store, kind, model, summarize_at=2000, memory_k=3000, counter=counter)
    brain.add_messages([message(3000, words=40)])
    assert len(model.prompts) > 40
    assert store.read < 2.5 * 3001  # once to see what there is, and a part with each pass to see that it is there
    assert len([text for text in counted if text.startswith("m")]) < 2.5 * 3001
    told, window = shown(brain)
    assert sorted({*told, *window}) == list(range(3001))
    counts = [message_tokens(message(n, words=40)) for n in window]
    assert 1000 - counts[0] < sum(counts) <= 1000  # half of the budget stays, as where there is no backlog


def test_a_summary_that_another_makes_between_two_passes_is_gone_on_with_by_the_next_turn() -> None:
    class Overtaking(MemoryStore):
        """Another process summarises more, just before it is looked what the first pass has left."""

        others: list[BrainMemory]

        def scan(self, namespace: Namespace, **bounds: Any) -> Page:
            if bounds.get("limit") == 0 and self.others and SUMMARY in self.get(namespace):
                self.others.pop().summarize(keep=500)
            return super().scan(namespace, **bounds)

    store, model = Overtaking(), Accountant()
    store.others = []
    memory(store).add_messages([message(n, words=40) for n in range(1500)])
    store.others.append(memory(store, "behind", model))
    brain = memory(store, "behind", model, summarize_at=2000, memory_k=2000)
    brain.add_messages([message(1500, words=40)])
    assert not store.others
    told, window = shown(brain)
    assert sorted(told + window) == list(range(1501))  # and none is told of twice
    brain.add_messages([message(1501, words=40)])
    told, window = shown(brain)
    assert (sorted(told + window), len(window) < 50) == (list(range(1502)), True)


def test_what_is_deleted_between_two_passes_is_in_no_summary(any_store: Store) -> None:
    memory(any_store).add_messages([message(n, words=40) for n in range(1500)])
    other = memory(any_store)

    class Deletes(Accountant):
        def __call__(self, prompt: str) -> str:
            if len(self.prompts) == 12:
                assert other.delete(["id-1200"]) == 1
            return super().__call__(prompt)

    deleting, again = Deletes(), Accountant()
    memory(any_store, "behind", deleting, summarize_at=2000, memory_k=200).add_messages([message(1500, words=40)])
    brain = memory(any_store, "behind", again, summarize_at=2000, memory_k=200)
    brain.add_messages([message(1501, words=40)])
    told, window = shown(brain)
    assert sorted({*told, *window}) == [n for n in range(1502) if n != 1200]


def test_a_session_that_is_forgotten_between_two_passes_does_not_come_back(any_store: Store) -> None:
    def is_between(namespace: Namespace, **bounds: Any) -> bool:
        return bounds.get("limit") == 0 and SUMMARY in any_store.get(namespace)

    other = memory(any_store)
    other.add_messages([message(n, words=40) for n in range(1500)])
    store = Overtaken(any_store, other.clear, at="scan", where=is_between)
    brain = memory(cast("Store", store), "behind", Accountant(), summarize_at=2000, memory_k=2000)
    brain.add_messages([message(1500, words=40)])
    assert (store.first, brain.stats()["failed_summaries"]) == ([], 0)
    assert (brain.get_summary(), brain.messages()) == (None, [])


# --- nothing on the hot path, one at a time


class Blocked(Accountant):
    """Answers when it is let go; knows how many asked at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, prompt: str) -> str:
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.asked.set()
        assert self.go_on.wait(120)
        with self.lock:
            self.inside -= 1
        return super().__call__(prompt)


async def test_h2_by_default_a_turn_does_not_wait_for_the_model(any_store: Store) -> None:
    model = Blocked()
    brain = memory(any_store, "long-term", model, summarize_at=300, summarize_in="background")
    for n in range(20):
        brain.add_messages(turn(n))
    assert model.asked.wait(120)
    await brain.aadd_messages(turn(20))
    assert shown(brain) == ([], list(range(42)))
    assert brain.stats()["summaries"] == 0
    flushed = asyncio.create_task(brain.aflush())
    done, _ = await asyncio.wait([flushed], timeout=0.05)
    assert not done
    model.go_on.set()
    await flushed
    told, window = shown(brain)
    assert told + window == kept(brain) == list(range(42))
    assert brain.stats()["summaries"] in {1, 2}  # a second look is due where turns came after the first


def test_b3_one_summary_at_a_time_is_made_of_a_session() -> None:
    store, model = MemoryStore(), Blocked()
    brains = [memory(store, "long-term", model, summarize_at=300, summarize_in="background") for _ in range(20)]
    count = itertools.count()

    def talk(brain: BrainMemory) -> None:
        for _ in range(5):
            brain.add_messages([message(next(count))])

    threads = [threading.Thread(target=talk, args=(brain,)) for brain in brains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.asked.wait(120)
    model.go_on.set()
    for brain in brains:
        brain.flush()
    assert model.most == 1
    told, window = shown(brains[0])
    assert sorted(told + window) == kept(brains[0]) == list(range(100))
    assert sum(brain.stats()["summaries"] for brain in brains) == len(model.prompts) >= 1


def test_b3_who_begins_before_another_has_quite_ended_makes_the_only_summary_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[Callable[[], None]] = []
    monkeypatch.setattr(model_tasks, "submit", begun.append)
    brain = memory(MemoryStore(), "behind", Accountant(), summarize_at=100, summarize_in="background")

    class Overtaken:
        """The lock of what is pending, behind which others are quicker once the last look was taken."""

        lock, first = threading.Lock(), [lambda: brain.add_messages(turn(1))]

        def held(self) -> Overtaken:
            return self

        def __enter__(self) -> None:
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()
            if self.first and not model_tasks._pending:
                self.first.pop()()

    monkeypatch.setattr(model_tasks, "_lock", Overtaken())
    brain.add_messages(turn(0))
    begun.pop()()
    brain.add_messages(turn(2))
    (other,) = begun
    other()
    told, window = shown(brain)
    assert told + window == list(range(6))


async def test_h2_slow_summaries_of_many_sessions_hold_up_nobody() -> None:
    store, model = MemoryStore(), Blocked()
    brains = [
        memory(store, "behind", model, session=f"s{n}", summarize_at=50, summarize_in="background") for n in range(70)
    ]
    for brain in brains:
        brain.add_messages(turn(0) + turn(1))
    assert await asyncio.to_thread(model.asked.wait, 10)
    try:
        await asyncio.wait_for(memory(store, session="other").aadd_messages(turn(0)), 5)
    finally:
        model.go_on.set()
        for brain in brains:
            brain.flush()
    assert all(brain.stats()["summaries"] == 1 for brain in brains)


def test_twenty_threads_that_summarise_inline_lose_nothing(any_store: Store) -> None:
    count = itertools.count()
    model = Accountant()

    def talk() -> None:
        brain = memory(any_store, "long-term", model, summarize_at=200)
        for _ in range(6):
            brain.add_messages([message(next(count))])

    threads = [threading.Thread(target=talk) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    brain = memory(any_store, "long-term", model)
    told, window = shown(brain)
    assert sorted(told + window) == kept(brain) == list(range(120))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_process_summarises_though_its_parent_was_at_it_when_it_forked() -> None:
    script = """
import os, threading
from langmem_adapters import BrainMemory, open_store
go_on, asked = threading.Event(), threading.Event()
def model(prompt):
    asked.set()
    assert go_on.wait(120)
    return "a summary"
brain = BrainMemory(open_store("memory:"), "s", model=model, summarize_at=50)
brain.add_talk("word " * 60)
brain.add_talk("word " * 60)
assert asked.wait(120)
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
child = os.fork()
if not child:
    go_on.set()
    brain.flush()
    brain.add_talk("word " * 60)
    brain.flush()
    os._exit(0 if brain.context().summary is not None else 1)
status = os.waitpid(child, 0)[1]
go_on.set()
brain.flush()
raise SystemExit(0 if status == 0 and brain.context().summary.text == "a summary" else 1)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# --- failures


def refuse(_: str) -> str:
    return "I'm sorry, I can't help with that."


def fail(_: str) -> str:
    raise TimeoutError("my-secret")


def ended(reason: str) -> Callable[[str], Any]:
    return lambda _: AIMessage("They spoke of", response_metadata={"finish_reason": reason})


class Says:
    """A chat model that says one thing."""

    def __init__(self, text: str) -> None:
        self.text = text

    def invoke(self, *_: Any) -> str:
        return self.text

    async def ainvoke(self, *_: Any) -> str:
        return self.text


FAILURES = {
    "raises": fail,
    "empty": lambda _: " ",
    "refuses": refuse,
    "cut off": ended("length"),
    "filtered": ended("content_filter"),
    "is only half done": Says("<summary>They spoke of"),
    "is cut off while it thinks": lambda _: "<think>They spoke of",
}


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", FAILURES.values(), ids=FAILURES)
async def test_b2_a_model_that_fails_changes_nothing_and_the_next_turn_tries_again(
    kind: str, mode: Any, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plain, store = MemoryStore(clock=FakeClock()), MemoryStore(clock=FakeClock())
    failing = memory(store, kind, model, summarize_at=60, summarize_in=mode)
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        for n in range(4):
            memory(plain).add_messages(turn(n))
            if n % 2:
                failing.add_messages(turn(n))
                failing.flush()
            else:
                await failing.aadd_messages(turn(n))
                await failing.aflush()
    assert stored(store) == stored(plain)
    stats = failing.stats()
    assert stats["failed_summaries"] == stats["failures"] == stats["calls"] == 3
    assert stats["summaries"] == 0
    assert caplog.text.count("the messages were not summarised, and the next turn tries again") == 3
    assert "my-secret" not in caplog.text
    with pytest.raises(ModelError):
        failing.summarize()
    assert stored(store) == stored(plain)
    brain = memory(store, kind, Accountant(), summarize_at=100)
    brain.add_messages(turn(4))
    told, window = shown(brain)
    assert told + window == list(range(10))
    assert brain.stats()["summaries"] == 1


@pytest.mark.parametrize("mode", ["inline", "background"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", ["long-term", "behind"])
@pytest.mark.usefixtures("no_log_is_tidied")  # a failure of that is only logged
def test_b2_a_store_that_fails_at_any_step_loses_and_doubles_nothing(
    any_store: Store, kind: str, after: bool, mode: Any, caplog: pytest.LogCaptureFixture
) -> None:
    first = [m for n in range(3) for m in turn(n)]
    failed = 0
    for fail_at in itertools.count(1):
        brain = memory(any_store, kind, Accountant(), session=str(fail_at), user=f"user-{fail_at}", summarize_at=120)
        memory(any_store, session=str(fail_at), user=f"user-{fail_at}").add_messages(first)
        before = stored_of(brain)
        store = Unplugged(any_store, fail_at, after=after)
        failing = memory(
            cast("Store", store),
            kind,
            Accountant(),
            session=str(fail_at),
            user=f"user-{fail_at}",
            summarize_at=120,
            summarize_in=mode,
        )
        caplog.clear()
        with caplog.at_level(logging.WARNING, "langmem_adapters"):
            try:
                failing.add_messages(turn(3))
            except StoreUnavailable:
                assert store.calls == 1  # of the messages themselves: the caller knows, and may repeat it
            failing.flush()
        if store.calls < fail_at:
            break
        failed += 1
        if store.calls > 1 and fail_at > 1:
            assert failing.stats()["failed_summaries"] == 1
            assert "the next turn tries again: the test pulled the plug" in caplog.text
        now = stored_of(brain)
        assert now[0][: len(before[0])] == before[0] or numbers(brain.get_summary().text)  # type: ignore[union-attr]
        brain.add_messages(turn(3))
        brain.add_messages(turn(4))
        told, window = shown(brain)
        assert told + window == kept(brain) == list(range(10))
    assert failed == fail_at - 1 >= (4 if kind == "behind" else 6)


def stored_of(brain: BrainMemory) -> tuple[list[Any], dict[str, bytes]]:
    namespace = brain_namespace(brain.scope)
    return brain.store.scan(namespace).items, brain.store.get(namespace)


KILLED = """
import os, signal, sys, json
from langmem_adapters import BrainMemory, LongTermMemory, Message, open_index
from langmem_adapters.stores.sqlite import SQLiteStore

class Killer:
    def __init__(self, store, at, after):
        self.store, self.at, self.after, self.calls = store, at, after, 0
    def __getattr__(self, name):
        method = getattr(self.store, name)
        def call(*args, **kwargs):
            self.calls += 1
            if self.calls == self.at and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = method(*args, **kwargs)
            if self.calls == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            return done
        return call

def talk(path, at, after, kind):
    store = Killer(SQLiteStore(path), at, after)
    long_term = LongTermMemory(store, open_index("memory:"), user="ada") if kind == "long-term" else None
    model = lambda prompt: "Told of " + " ".join(w for w in prompt.split() if w[0] == "m" and w[1:].isdigit())
    brain = BrainMemory(store, "s", user="ada", long_term=long_term, model=model, summarize_at=120,
                        summarize_in="inline", max_summary_tokens=1000)
    brain.add_messages([Message(id=f"id-{n}", role="user", content=f"m{n}" + " word" * 10) for n in range(8)])
    os._exit(7)

folder, kind = sys.argv[1:]
for after in (False, True):
    at = 1
    while True:
        path = f"{folder}/{int(after)}-{at}.db"
        child = os.fork()
        if not child:
            talk(path, at, after, kind)
        status = os.waitpid(child, 0)[1]
        print(json.dumps([path, os.WIFSIGNALED(status), status]), flush=True)
        if not os.WIFSIGNALED(status):
            break
        at += 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("kind", ["long-term", "behind"])
def test_b2_kill_9_between_any_two_steps_leaves_all_as_before_or_all_done(tmp_path: Path, kind: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), kind], check=True, capture_output=True, text=True, timeout=120
    )
    killed = [path for path, signalled, status in map(json.loads, ran.stdout.splitlines()) if signalled]
    assert len(killed) >= 2 * (4 if kind == "behind" else 6)
    for path in killed:
        with closing(SQLiteStore(path)) as store:
            brain = memory(store, kind, Accountant(), summarize_at=120)
            told, window = shown(brain)
            assert told + window in ([], list(range(8)))
            assert (brain.get_summary() is None) == (told == [])
            if not told:
                brain.add_messages([message(n) for n in range(8)])
            brain.add_messages([message(8)])
            told, window = shown(brain)
            assert told + window == kept(brain) == list(range(9))
            assert told


@pytest.mark.parametrize("kind", KINDS)
async def test_b2_a_cancelled_turn_leaves_all_as_before_and_the_next_one_tries_again(kind: str) -> None:
    store = MemoryStore(clock=FakeClock())
    asked = asyncio.Event()

    async def never(_: str) -> str:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    brain = memory(store, kind, never, summarize_at=100)
    plain = MemoryStore(clock=FakeClock())
    memory(plain).add_messages(turn(0) + turn(1) + turn(2))
    adding = asyncio.create_task(brain.aadd_messages(turn(0) + turn(1) + turn(2)))
    await asked.wait()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:  # kept, as a tracer keeps it: it holds the turn's frames
        await adding
    assert stored(store) == stored(plain)
    again = memory(store, kind, Accountant(), summarize_at=100)
    await again.aadd_messages(turn(3))
    told, window = shown(again)
    assert told + window == list(range(8))
    assert told
    assert cancelled.value.args == ()


def test_b2_an_interrupted_turn_leaves_all_as_before_and_the_next_one_tries_again() -> None:
    def interrupt(_: str) -> str:
        raise KeyboardInterrupt

    store = MemoryStore()
    with pytest.raises(KeyboardInterrupt) as interrupted:  # kept, as a notebook keeps the last traceback
        memory(store, "long-term", interrupt, summarize_at=100).add_messages(turn(0) + turn(1) + turn(2))
    again = memory(store, "long-term", Accountant(), summarize_at=100)
    assert shown(again) == ([], list(range(6)))
    again.add_messages(turn(3))
    told, window = shown(again)
    assert told + window == kept(again) == list(range(8))
    assert told
    assert interrupted.value.args == ()


async def test_b2_a_cancelled_turn_whose_model_blocks_a_thread_ends_all_done(any_store: Store) -> None:
    model = Blocked()
    brain = memory(any_store, "long-term", model, summarize_at=100)
    adding = asyncio.create_task(brain.aadd_messages(turn(0) + turn(1) + turn(2)))
    assert await asyncio.to_thread(model.asked.wait, 10)
    adding.cancel()
    await asyncio.wait([adding])
    assert shown(brain) == ([], list(range(6)))
    model.go_on.set()
    await brain.aflush()
    told, window = shown(brain)
    assert told + window == kept(brain) == list(range(6))
    assert told


def test_a_failure_of_the_code_itself_is_logged_in_the_background(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryStore):
        def write(self, *_: object, **__: object) -> None:
            raise ZeroDivisionError

    brain = memory(Broken(), "behind", Accountant(), summarize_at=20, summarize_in="background")
    brain.add_messages(turn(0) + turn(1) + turn(2))
    brain.flush()
    assert "a summary in the background failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("failure", [asyncio.CancelledError, SystemExit])
async def test_a_summary_that_is_broken_off_in_the_background_is_told_and_the_next_turn_makes_it(
    failure: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def break_off() -> None:
        raise failure("the client was closed")

    brain = memory(MemoryStore(), "behind", Meanwhile(break_off), summarize_at=100, summarize_in="background")
    brain.add_messages(turn(0) + turn(1) + turn(2))
    await asyncio.wait_for(brain.aflush(), 10)
    assert (brain.stats()["failed_summaries"], brain.stats()["summaries"]) == (1, 0)
    assert "a summary in the background failed" in caplog.text
    brain.add_messages(turn(3))
    await asyncio.wait_for(brain.aflush(), 10)
    assert (brain.stats()["failed_summaries"], brain.stats()["summaries"]) == (1, 1)
    told, window = shown(brain)
    assert told + window == list(range(8))


# --- what others do meanwhile


class Meanwhile(Accountant):
    """A model during whose first call something else happens."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__()
        self.happens = [happens]

    def __call__(self, prompt: str) -> str:
        while self.happens:
            self.happens.pop()()
        return super().__call__(prompt)


@pytest.mark.parametrize("kind", KINDS)
def test_b2_who_comes_second_with_a_summary_changes_nothing(any_store: Store, kind: str) -> None:
    other = memory(any_store, kind, Accountant())
    other.add_messages([m for n in range(5) for m in turn(n)])
    brain = memory(any_store, kind, Meanwhile(lambda: other.summarize(keep=4)))
    assert numbers(brain.summarize(keep=2)) == list(range(6))
    assert (other.stats()["summaries"], brain.stats()["summaries"]) == (1, 0)
    told, window = shown(brain)
    assert told + window == list(range(10))
    assert kept(brain) == (window if kind == "deleted" else list(range(10)))


def test_a_summary_tells_when_it_was_made(any_store: Store) -> None:
    clock = FakeClock()
    brain = memory(any_store, "behind", Accountant(), clock=clock)
    brain.add_messages(turn(0))
    clock.advance(60)
    brain.summarize()
    summary = brain.get_summary()
    assert summary is not None
    assert summary.updated_at == clock()


@pytest.mark.parametrize("kind", KINDS)
def test_b2_who_is_overtaken_in_the_last_moment_changes_nothing(any_store: Store, kind: str) -> None:
    other = memory(any_store, kind, Accountant())
    other.add_messages([m for n in range(5) for m in turn(n)])
    store = cast("Store", Overtaken(any_store, lambda: other.summarize(keep=4), as_is_put=SUMMARY))
    brain = memory(store, kind, Accountant())
    assert numbers(brain.summarize(keep=2)) == list(range(6))
    assert brain.stats()["summaries"] == 0
    told, window = shown(brain)
    assert told + window == list(range(10))
    brain.summarize()
    assert kept(brain) == ([] if kind == "deleted" else list(range(10)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_during_a_summary_is_kept(any_store: Store, kind: str) -> None:
    other = memory(any_store, kind)
    other.add_messages(turn(0) + turn(1))
    brain = memory(any_store, kind, Meanwhile(lambda: other.add_messages(turn(2))))
    brain.summarize()
    assert shown(brain) == ([0, 1, 2, 3], [4, 5])


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_is_forgotten_during_a_summary_does_not_come_back(any_store: Store, kind: str) -> None:
    other = memory(any_store, kind)
    other.add_messages(turn(0) + turn(1))
    brain = memory(any_store, kind, Meanwhile(other.clear))
    assert brain.summarize() == ""
    assert (brain.get_summary(), brain.messages(), kept(brain)) == (None, [], [])
    assert brain.stats()["summaries"] == 0


@pytest.mark.parametrize("put", [SUMMARY, CREATED])
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_is_forgotten_in_the_last_moment_does_not_come_back(
    any_store: Store, kind: str, put: str
) -> None:
    other = memory(any_store, kind)
    other.add_messages(turn(0) + turn(1))
    brain = memory(cast("Store", Overtaken(any_store, other.clear, as_is_put=put)), kind, Accountant())
    assert brain.summarize() == ""
    assert any_store.get(brain_namespace(brain.scope)) == {}
    assert kept(brain) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_summary_does_not_end_at_a_message_that_is_deleted_in_the_last_moment(any_store: Store, kind: str) -> None:
    other = memory(any_store, kind, Accountant())
    other.add_messages([m for n in range(5) for m in turn(n)])
    brain = memory(
        cast("Store", Overtaken(any_store, lambda: other.delete(["id-5"]), as_is_put=SUMMARY)), kind, Accountant()
    )
    assert numbers(brain.summarize(keep=4)) == [0, 1, 2, 3, 4]
    assert brain.stats()["summaries"] == 1
    told, window = shown(brain)
    assert (told, window) == ([0, 1, 2, 3, 4], [6, 7, 8, 9])


def test_a_message_at_which_a_summary_ends_in_this_moment_is_deleted_with_care(any_store: Store) -> None:
    other = memory(any_store, "behind", Accountant())
    other.add_messages([m for n in range(5) for m in turn(n)])
    brain = memory(
        cast(
            "Store",
            Overtaken(any_store, lambda: other.summarize(keep=4), where=lambda _, **changes: changes.get("remove")),
        )
    )
    assert brain.delete(["id-5"]) == 1
    assert shown(brain) == ([0, 1, 2, 3, 4, 5], [6, 7, 8, 9])


def test_a_summary_that_is_set_by_hand_during_another_wins(any_store: Store) -> None:
    other = memory(any_store)
    other.add_messages(turn(0) + turn(1))
    brain = memory(any_store, "behind", Meanwhile(lambda: other.set_summary("By hand")))
    assert brain.summarize() == "By hand"
    assert shown(brain) == ([], [0, 1, 2, 3])


def test_a_summary_is_made_again_when_the_session_has_changed_meanwhile_but_not_for_ever(any_store: Store) -> None:
    other = memory(any_store)
    other.add_messages([m for n in range(5) for m in turn(n)])
    model = Meanwhile(lambda: other.get_title(lambda _: "A title"))  # marks the session, as whatever watches it does
    assert numbers(memory(any_store, "behind", model).summarize(keep=6)) == [0, 1, 2, 3]
    assert len(model.prompts) == 2

    def delete_one(prompt: str) -> str:
        other.delete([f"id-{numbers(prompt)[-1]}"])
        return "Told of too many"

    with pytest.raises(Conflict, match=r"^the session changed during each of 3 summaries; none was kept: try again$"):
        memory(any_store, "behind", delete_one).summarize()
    assert shown(other) == ([0, 1, 2, 3], [4, 5, 6])


def test_what_another_summary_keeps_here_was_at_no_time_in_the_long_term_memory(any_store: Store) -> None:
    def changes() -> int:
        return any_store.scan(longterm_namespace(Scope(user="ada")), limit=0).total

    other = memory(any_store, "long-term", Accountant())
    other.add_messages(turn(0) + turn(1) + turn(2))
    other.summarize(keep=4)
    before = changes()
    brain = memory(any_store, "long-term", Meanwhile(lambda: other.set_summary("By hand")))
    assert (brain.summarize(), changes()) == ("By hand", before)


# --- bad input


def test_a_damaged_summary_is_left_out_and_replaced(any_store: Store, caplog: pytest.LogCaptureFixture) -> None:
    brain = memory(any_store, "behind", Accountant(), summarize_at=100_000)
    brain.add_messages(turn(0) + turn(1))
    brain.summarize(keep=2)
    any_store.write(brain_namespace(brain.scope), put={SUMMARY: b"\xff my-secret"})
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert shown(brain) == ([], [0, 1, 2, 3])
        assert brain.get_summary() is None
        assert brain.history_text().startswith("user: m0")
        brain.add_messages(turn(2))
    assert "a stored summary is left out" in caplog.text
    assert "my-secret" not in caplog.text
    brain.summarize(keep=2)
    assert shown(brain) == ([0, 1, 2, 3], [4, 5])


def test_a_damaged_row_does_not_stop_a_summary(any_store: Store) -> None:
    brain = memory(any_store, "behind", Accountant())
    brain.add_messages(turn(0))
    any_store.append(brain_namespace(brain.scope), [("bad", b"\xff")])
    brain.add_messages(turn(1))
    brain.summarize(keep=2)
    assert shown(brain) == ([0, 1], [2, 3])


@pytest.mark.parametrize("session", ["s" * 10_000, "\ud800", "a/b:{c}\x00"])
def test_a_summary_of_any_session_and_any_text(any_store: Store, session: str) -> None:
    prompts: list[str] = []

    def model(prompt: str) -> str:
        prompts.append(prompt.encode().decode())  # as any client would
        return "a summary \udfff"

    brain = memory(any_store, "long-term", model, session=session, summarize_at=100)
    brain.add_messages([Message(role="user", content=f"m{n} \ud800 {'word ' * 30}") for n in range(5)])
    summary, messages = brain.context()
    assert summary is not None
    assert summary.text == "a summary \udfff"
    assert len(messages) < 5
    assert "m0 \ufffd word" in prompts[0]
    assert kept(brain) == [0, 1, 2, 3, 4]


def test_ten_megabytes_fit_the_window_and_cost_few_calls() -> None:
    model = Accountant()
    brain = memory(MemoryStore(), "long-term", model, summarize_at=1000, max_tokens=1000)
    brain.add_messages([message(0), message(1, words=2_000_000)])
    assert sum(message_tokens(m) for m in brain.context().messages) <= 1000
    brain.add_messages([message(2, "assistant"), message(3), message(4, "assistant")])
    told, window = shown(brain)
    assert sorted({*told, *window}) == [0, 1, 2, 3, 4]
    assert len(model.prompts) <= 12
    assert kept(brain) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"summarize_at": 100}, "summarize_at needs a model= to summarise with"),
        ({"summarize_at": 0, "model": refuse}, "summarize_at is a whole number of at least 1, not 0"),
        ({"summarize_in": "later"}, 'summarize_in is "background" or "inline", not \'later\''),
        ({"max_tokens": 0}, "max_tokens is a whole number of at least 1, not 0"),
        ({"max_summary_tokens": 0}, "max_summary_tokens is a whole number of at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        BrainMemory(MemoryStore(), "s", **arguments)


def test_wrong_calls_are_one_sentence() -> None:
    brain = memory(MemoryStore(), "behind", Accountant())
    with pytest.raises(ConfigurationError, match="max_tokens is a whole number of at least 1, not 0"):
        brain.window(max_tokens=0)
    with pytest.raises(ConfigurationError, match="keep is a whole number of at least 0, not -1"):
        brain.summarize(keep=-1)

    async def model(_: str) -> str:
        await asyncio.sleep(0)
        return ""

    with pytest.raises(ConfigurationError, match="a model that is a coroutine function needs summarize_in="):
        BrainMemory(MemoryStore(), "s", model=model, summarize_at=100)


async def test_a_model_that_is_a_coroutine_function_is_asked_inline_or_refused_before_anything_is_stored() -> None:
    async def model(_: str) -> str:
        await asyncio.sleep(0)
        return "In short."

    brain = memory(MemoryStore(), "behind", model, summarize_at=100)
    with pytest.raises(ConfigurationError, match="add them with an async method"):
        brain.add_messages(turn(0))
    assert brain.messages() == []
    for n in range(9):
        await brain.aadd_messages(turn(n))
    assert brain.stats()["summaries"] > 0


def test_a_function_that_hands_on_a_coroutine_is_refused_when_it_is_asked() -> None:
    async def model(_: str) -> str:
        await asyncio.sleep(0)
        return "In short."

    def hands_on(prompt: str) -> Any:
        return model(prompt)

    brain = memory(MemoryStore(), "behind", hands_on, summarize_at=20)
    with pytest.raises(ConfigurationError, match="call the async twin"):
        brain.add_messages(turn(0) + turn(1))
    assert (brain.count(), brain.stats()["failed_summaries"]) == (4, 0)
