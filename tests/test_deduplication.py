"""What a delivery adds to a session that has a part of it: what is new, in its place, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from langmem_adapters import BrainMemory, LongTermMemory, Message, open_index
from langmem_adapters.conversation.deduplication import Delivery
from langmem_adapters.keys import Namespace
from langmem_adapters.protocols import Page, Store
from langmem_adapters.stores.memory import MemoryStore
from tests.compared import Compared

ROLES = {"q": "user", "a": "assistant"}
ASKED = ["q1 why", "a1 so"]


def messages(words: list[str]) -> list[Message]:
    """Of "q1 why" a question "why" with the id "q1"; of "q- why" one without an id."""
    parts = [word.partition(" ") for word in words]
    return [
        Message(role=ROLES[id_[0]], id="" if id_.endswith("-") else id_, content=content) for id_, _, content in parts
    ]


def texts(brain: BrainMemory) -> str:
    return " ".join(message.text for message in brain.messages(20))


@pytest.mark.parametrize(
    ("delivery", "expected"),
    [
        (["q2 how", *ASKED], "why so how"),  # a chain gives back all that it was shown
        (["q2 how", "a1 so"], "why so how so"),  # a cache replays an answer
        (["q2 how", *ASKED, "a1 no"], "why so how no"),  # and something else has an id of that
        (["q2 how", "q1 why"], "why so how why"),  # no answer is behind it: it is asked again
        (["q2 how", "q1 why", "a2 because"], "why so how why because"),
        (["q2 how", "a1 so", "q1 why"], "why so how so why"),
        (["q2 how", "q2 how"], "why so how"),
        (["q2 how", "a1 so", "q3 when", "a1 so"], "why so how so when so"),
        (["q1 why", "a1 no"], "why so no"),  # another answer has the id of the first
        (["q1 where", "q2 how"], "why so where how"),
        ([*ASKED, "q2 how", "a2 thus"], "why so how thus"),
    ],
)
def test_what_is_known_comes_again_only_where_it_is_said_again(
    any_store: Store, delivery: list[str], expected: str
) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages(messages(ASKED))
    brain.add_messages(messages(delivery))
    assert texts(brain) == expected
    if delivery[0] != "q2 how":  # else a chain's next call begins with it, and it is repeated
        brain.add_messages(messages(delivery))
        assert texts(brain) == expected


def test_what_comes_again_with_other_metadata_is_known(any_store: Store) -> None:
    """Each thread that delivers a message puts its own mark there."""
    brain = BrainMemory(any_store, "s")
    for mark in ("one", "two"):
        brain.add_messages([m.model_copy(update={"metadata": {"mark": mark}}) for m in messages(ASKED)])
    assert [message.metadata for message in brain.messages()] == [{"mark": "one"}] * 2


def test_an_answer_that_a_cache_replays_is_not_looked_for_in_the_session() -> None:
    class Counting(MemoryStore):
        read = 0

        def scan(self, namespace: Namespace, **bounds: Any) -> Page:
            page = super().scan(namespace, **bounds)
            self.read += len(page.items)
            return page

    store = Counting()
    brain = BrainMemory(store, "s", memory_k=1000)
    brain.add_messages(messages([*ASKED, *(f"q{n} why" for n in range(2, 500))]))
    brain.add_messages(messages(["q500 how", "a1 so"]))
    assert store.read < 100  # to see that the question is there
    assert brain.messages(2)[1].text == "so"


def test_what_is_delivered_again_and_adds_nothing_is_not_written() -> None:
    class Watched(MemoryStore):
        writes = 0

        def write(self, *args: Any, **change: Any) -> None:
            self.writes += 1
            super().write(*args, **change)

    store = Watched()
    brain = BrainMemory(store, "s")
    for _ in range(2):
        brain.add_messages(messages(ASKED))
    assert (store.writes, brain.count()) == (0, 2)


def test_questions_without_answers_are_given_back_too(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages(messages(["q1 why", "q2 how"]))
    brain.add_messages(messages(["q3 when", "q1 why", "q2 how"]))
    assert texts(brain) == "why how when"


def test_what_has_got_another_id_has_the_same_one_whatever_comes_behind_it(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages(messages(ASKED))
    for more in ([], ["q3 when"], ["q3 when", "a3 now"]):
        brain.add_messages(messages(["q1 where", *more]))
    assert texts(brain) == "why so where when now"


def test_behind_what_has_no_id_the_same_answer_is_given_again(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages(messages(ASKED))
    for _ in range(2):
        brain.add_messages(messages(["q- how", "a1 so"]))
    assert texts(brain) == "why so how so how so"


def test_answers_that_a_cache_replays_are_added_as_often_as_they_are_replayed(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages(messages([*ASKED, "a2 yes"]))
    for question in ("q2 how", "q3 when"):
        for _ in range(2):
            brain.add_messages(messages([question, "a1 so", "a2 yes"]))
    assert texts(brain) == "why so yes how so yes when so yes"


def test_what_left_is_known_though_another_has_its_id_by_now(any_store: Store) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "s", user="ada", memory_k=2, long_term=long_term)
    brain.add_messages(messages(["q0 hello", *ASKED]))
    for _ in range(2):
        brain.add_messages(messages(["q0 bye", "a0 thanks"]))
        brain.add_messages(messages(["q0 hello"]))
    assert texts(brain) == "bye thanks"
    assert [memory.message.text for memory in long_term.all()] == ["hello", "why", "so"]


def test_what_left_is_not_put_behind_what_says_something_new(any_store: Store) -> None:
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada")
    brain = BrainMemory(any_store, "s", user="ada", memory_k=2, long_term=long_term)
    brain.add_messages(messages(["q0 hello", *ASKED]))
    brain.add_messages(messages(["q1 where", "q0 hello"]))
    assert texts(brain) == "where"
    assert [memory.message.text for memory in long_term.all()] == ["hello", "why", "so"]


def test_what_is_new_in_front_of_it_stays_where_it_was_put() -> None:
    store = MemoryStore()
    brain = BrainMemory(store, "s")
    brain.add_messages(messages(ASKED))
    brain.add_messages(messages(["q2 how", "a1 so", "q3 when"]))
    assert texts(brain) == "why so how so when"
    entries = store.scan(("brain", "", "", "s")).items
    assert [(entry.seq, entry.id) for entry in entries][:3] == [(1, "q1"), (2, "a1"), (3, "q2")]


def test_many_questions_that_come_again_with_other_answers_are_told_in_no_time() -> None:
    said = messages(["q how", *(word for n in range(500) for word in (f"q{n} why", f"a{n} so"))])
    ids, new = (
        [Compared(message.id) for message in said],
        [not message.id[1:] or message.role != "user" for message in said],
    )
    delivery = Delivery(said, ids, new, [False] * len(said))
    before = Compared.times
    assert list(delivery.renamed_messages(dict(zip(ids, said, strict=True)), [False] * len(said))) == list(
        range(1, 1000, 2)
    )
    assert Compared.times - before < 10 * len(ids)
