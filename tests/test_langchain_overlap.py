"""What a history and a thread both have: exchange by exchange."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langmem_adapters.langchain.threads.exchanges import MatchBy, heaviest_alignment, is_dialogue
from langmem_adapters.langchain.threads.overlap import existing_count, existing_count_by_id, merge, shared_positions
from langmem_adapters.longterm import RECALLED
from langmem_adapters.model import Message, Summary, ToolCall

Conversation: TypeAlias = Callable[[int], tuple[list[Message], list[Message]]]


def said(lines: str, ids: str = "") -> list[Message]:
    """``Q`` a question, ``q`` its answer, ``q'`` another one; ``!`` a call and its result; each may have an id."""
    messages: list[Message] = []
    for n, word in enumerate(lines.split()):
        if word == "!":
            messages += [
                Message(role="assistant", tool_calls=[ToolCall(id=f"c{n}", name="look")]),
                Message(role="tool", tool_call_id=f"c{n}", content="found"),
            ]
        else:
            messages.append(Message(role="user" if word[0].isupper() else "assistant", content=word))
    return [m.model_copy(update={"id": f"{ids}{n}"}) for n, m in enumerate(messages)] if ids else messages


def words(messages: list[Message]) -> str:
    return " ".join(message.text or "!" for message in messages)


@pytest.mark.parametrize(
    ("history", "thread", "by", "count"),
    [
        ("", "A", "answers", 0),
        ("A", "A", "answers", 1),  # an unanswered question that is sent again
        ("A a", "A", "answers", 0),  # the same question again is a new one
        ("A a", "A a A", "answers", 2),
        ("A a", "B", "answers", 0),
        ("A a", "X x a C", "answers", 0),  # an answer alone is no proof
        ("A a B b", "B b C", "answers", 2),  # the thread begins within the history
        ("B b", "A a B b C", "answers", 4),  # the window of the history lies within the thread
        ("A ! a", "A a B", "answers", 2),  # the client does not show calls
        ("A ! a", "A ! B", "answers", 3),  # or nothing but the call
        ("A !", "A B", "answers", 1),  # nothing was said
        ("A a", "A B", "answers", 0),  # something was
        ("A !", "A", "answers", 0),  # asked again
        ("A a", "A a'", "answers", 0),  # another conversation that begins alike
        ("A a", "A a' B", "answers", 0),
        ("A a", "A a' B", "questions", 2),
        ("A a B b", "A a' B b' C", "questions", 4),
        ("A a B b", "B b' A a' C", "questions", 4),
        ("A a", "A a x B", "answers", 2),  # what was said behind an answer is new
        ("A a", "A a x a B", "answers", 2),  # though it is the same again
        ("A a", "A a' x B", "questions", 3),
        ("A", "A a", "answers", 1),  # the answer came since
        ("A a X x B b", "A a B b C", "answers", 4),  # somebody else spoke between
        ("A a B b X x Y y", "A a B b C", "answers", 4),
        ("A a", "A a A a B", "answers", 4),  # of several, the latest
        ("A a A a", "A a A a A", "answers", 4),
        ("A a B b", "A a Z z B b C", "answers", 6),  # edited in the middle
        ("A a B b", "A a C", "answers", 2),
        ("g A a", "g A a B", "answers", 3),  # a greeting
        ("a B b", "A a B b C", "answers", 4),
        ("A a B b", "a B b C", "answers", 3),
        ("A a", "a B", "answers", 1),  # both begin in the midst of an exchange
        ("g", "g B", "answers", 1),
        ("A !", "A found B", "answers", 2),  # a tool's result is what the client shows
        ("A", "A a B", "answers", 1),  # who was not answered has heard nothing else
        ("A a", "A ! B", "questions", 1),  # nor does a call stand for an answer
        ("A ! a", "A ! a' B", "questions", 3),  # after the same call, another answer is new
        ("AX a", "X a B", "questions", 2),  # whose client sent more with the question than it keeps
        ("AX !", "X ! B", "questions", 0),
        ("AX a", "X a B", "answers", 0),
        ("AX a !", "X a B", "questions", 2),  # also where a call that was broken off follows
        ("A yes", "X yes B", "questions", 0),  # many a question has the same short answer
        ("A a", "A a'", "questions", 1),  # as is the last one, which may have come since
        ("g", "h B", "questions", 0),  # without a question, nothing says that two greetings are one
    ],
)
def test_how_much_of_a_thread_is_known(history: str, thread: str, by: MatchBy, count: int) -> None:
    assert existing_count(said(history), said(thread, "new"), by=by) == count


@pytest.mark.parametrize(
    ("history", "thread", "count"),
    [
        ("A a", "A a B", 2),
        ("A a", "B a C", 2),  # an edited question with its answer
        ("A a", "B b C", 0),  # the ids alone
        ("A a B b", "A a B", 3),
        ("A a B b", "A a C", 2),
    ],
)
def test_ids_count_where_the_words_are_the_same(history: str, thread: str, count: int) -> None:
    assert existing_count_by_id(said(history, "m"), said(thread, "m")) == count
    assert existing_count(said(history, "m"), said(thread, "m")) == count
    assert existing_count_by_id(said(history, "m"), said(thread, "n"), Summary(text="", covers="n0")) == 1
    assert existing_count_by_id(said(history), said(thread)) == 0


def test_a_summary_is_known_by_the_message_that_it_ends_at() -> None:
    assert existing_count([], said("A a B", "m"), Summary(text="", covers="m1")) == 2
    assert existing_count([], said("A"), Summary(text="")) == 0


def test_who_gives_back_ids_gives_back_answers() -> None:
    history = said("A a X x", "m")
    assert existing_count(history, [*history[:2], *said("X x' B", "n")], by="questions") == 2


def test_answers_that_were_given_to_other_questions_are_known_by_their_ids() -> None:
    history = said("X x Y y", "m")
    assert existing_count(history, [*said("A"), history[1], history[3]], by="questions") == 3


def test_a_message_that_says_nothing_is_known_by_its_id() -> None:
    history = [*said("A", "m"), Message(id="empty", role="assistant")]
    assert existing_count(history, [*history, *said("B", "n")]) == 2


def test_white_space_blocks_and_instructions_are_no_difference() -> None:
    history = [*said("A"), Message(role="assistant", content=[{"type": "text", "text": "In  the"}, "shed. "])]
    thread = [Message(role="system", content="S"), *said("A"), Message(role="assistant", content="In the shed.")]
    assert existing_count(history, thread) == 3
    assert not is_dialogue(thread[0])
    assert not is_dialogue(Message(role="user", content="My bike is red.", metadata={RECALLED: True}))
    shown = {"langchain": {"additional_kwargs": {RECALLED: True}}}
    assert not is_dialogue(Message(role="user", content="My bike is red.", host=shown))


@pytest.mark.parametrize(
    ("history", "thread", "start", "found"),
    [
        ("A ! a", "A a B", 2, "A ! found a B"),
        ("A a", "A a' B", 2, "A a' B"),
        ("A ! a", "A a' B", 2, "A a' B"),
        ("A a X x B b", "A a B b C", 4, "A a X x B b C"),
        ("B b", "A a B b C", 4, "B b C"),
        ("A a B b", "Z z B b C", 4, "A a B b C"),  # the edited one is behind the window, or in the history
        ("b", "B b C", 2, "b C"),
        ("A a", "z a B", 2, "A z a B"),  # the thread begins in the midst of an exchange, and has more of it
        ("", "A a B", 2, "B"),
    ],
)
def test_both_in_one(history: str, thread: str, start: int, found: str) -> None:
    assert words(merge(said(history), said(thread), start)) == found


def test_calls_and_results_that_say_nothing_are_known_by_the_call_and_pictures_by_nothing() -> None:
    def exchange(ids: str) -> list[Message]:
        called = [Message(role="assistant", tool_calls=[ToolCall(id="c", name="look")])]
        called.append(Message(role="tool", tool_call_id="c"))
        picture = Message(role="assistant", content=[{"type": "image", "url": f"https://example.org/{ids}"}])
        found = [*said("A"), *called, picture]
        return [message.model_copy(update={"id": f"{ids}{n}"}) for n, message in enumerate(found)]

    new = exchange("n")
    assert merge(exchange("m")[:3], new, 4) == new
    assert [message.id for message in merge(exchange("m"), new, 4)] == ["n0", "n1", "n2", "m3", "n3"]


def test_another_answer_after_the_same_call_is_new() -> None:
    called = [*said("A"), Message(role="assistant", tool_calls=[ToolCall(id="c", name="look")])]
    assert existing_count([*called, *said("a")], [*called, *said("a' B")], by="questions") == 2


def test_what_the_thread_has_taken_back() -> None:
    history = said("A a B b X x", "m")
    assert words(merge(history, [*history[:2], *said("C")], 2, own_positions={0, 1, 2, 3})) == "A a X x C"
    assert words(merge(history[:4], said("Z z C", "n"), 2, own_positions={0, 1, 2, 3})) == "Z z C"
    edited = [history[0].model_copy(update={"content": "E"}), history[1]]
    assert words(merge(history[:2], [*edited, *said("C")], 2, own_positions={0, 1})) == "E a C"
    calling = [history[0], history[1].model_copy(update={"tool_calls": [ToolCall(id="c", name="look")]})]
    assert merge(calling, history[:2], 2) == calling  # a client that does not show calls
    assert merge(calling, history[:2], 2, own_positions={0, 1}) == history[:2]


def test_what_others_have_said_since_stays_where_the_thread_has_lost_what_it_knew() -> None:
    history = said("A ! a X x B b", "m")
    assert words(merge(history, [*history[6:], *said("C")], 2, shared_ids={"m0"})) == "X x B b C"


def test_a_history_is_not_read_for_a_thread_of_which_nothing_is_known() -> None:
    class Unread(list[Message]):
        def __iter__(self) -> Iterator[Message]:
            raise AssertionError("the history was read")

    assert shared_positions(Unread(said("A a B b")), []) == {}


def test_long_conversations_are_compared_soon() -> None:
    history = said(" ".join(f"Q{n} a{n}" for n in range(100)))
    thread = said(" ".join(f"Q{n - 400} b{n}" for n in range(500)))
    begin = time.process_time()
    assert existing_count(history, [*thread, *said("New")], by="questions") == 1000
    assert time.process_time() - begin < 1


def edited_at_its_end(size: int) -> tuple[list[Message], list[Message]]:
    both = " ".join(f"Q{n} a{n}" for n in range(size))
    return said(f"{both} X x"), said(f"{both} Z z")


def of_one_exchange(size: int) -> tuple[list[Message], list[Message]]:
    both = "Q " + " ".join(f"a{n}" for n in range(2 * size))
    return said(both), said(both)


def of_the_same_words(size: int) -> tuple[list[Message], list[Message]]:
    both = "Q a " * size
    return said(both), said(both)


@pytest.mark.parametrize("conversation", [edited_at_its_end, of_one_exchange, of_the_same_words])
def test_what_takes_eight_times_the_messages_takes_no_square_of_that(conversation: Conversation) -> None:
    short, long = conversation(250), conversation(2000)

    def seconds(history: list[Message], thread: list[Message]) -> float:
        begin = time.thread_time()
        assert merge(history, thread, len(thread))[: len(thread) - 2] == thread[:-2]
        return time.thread_time() - begin

    taken = [(seconds(*short), seconds(*long)) for _ in range(3)]
    assert min(much for _, much in taken) < 8 * 4 * min(little for little, _ in taken)


def in_a_table(weights: list[dict[int, int]], columns: int) -> list[tuple[int, int]]:
    """What :func:`heaviest_alignment` finds, by each row beside each column."""
    best = [[0] * (columns + 1) for _ in range(len(weights) + 1)]
    for n, row in enumerate(weights):
        for m in range(columns):
            best[n + 1][m + 1] = max(best[n][m + 1], best[n + 1][m], best[n][m] + row.get(m, 0))
    pairs, n, m = [], len(weights), columns
    while n and m:
        like = weights[n - 1].get(m - 1, 0)
        if like and best[n][m] == best[n - 1][m - 1] + like:
            n, m = n - 1, m - 1
            pairs.append((n, m))
        elif best[n][m] == best[n - 1][m]:
            n -= 1
        else:
            m -= 1
    return pairs[::-1]


@given(st.lists(st.dictionaries(st.integers(0, 9), st.integers(1, 2)), max_size=10))
@settings(max_examples=300, deadline=None)
def test_the_pairs_are_those_of_a_table_of_all(weights: list[dict[int, int]]) -> None:
    assert heaviest_alignment(weights, 10) == in_a_table(weights, 10)
