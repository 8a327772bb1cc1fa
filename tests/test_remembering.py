"""F2c: recall joined to the window, news, and taking back what was said: in the history and the long-term memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters import BrainMemory, ConfigurationError, LongTermMemory, Message, Sessions, open_index
from langmem_adapters.errors import StoreUnavailable
from langmem_adapters.langchain import BrainChatMessageHistory
from langmem_adapters.longterm import RECALLED, longterm_namespace
from langmem_adapters.model import Scope, ToolCall
from langmem_adapters.protocols import Store
from langmem_adapters.stores.memory import MemoryStore
from langmem_adapters.testing import FakeClock
from langmem_adapters.tokens import approximate_tokens, message_tokens
from tests.faults import Overtaken
from tests.test_text import assert_acceptable, conversations


def said(*texts: str, role: str = "user") -> list[Message]:
    return [Message(id=text, role=role, content=text) for text in texts]


def remembering(store: Store, *, k: int = 2, user: str = "ada", session: str = "s", **more: Any) -> BrainMemory:
    own = "" if user else session
    long_term = LongTermMemory(store, open_index("memory:"), user=user, session=own, clock=FakeClock(), **more)
    return BrainMemory(store, session, user=user, memory_k=k, long_term=long_term, clock=FakeClock())


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


def kept(brain: BrainMemory) -> list[str]:
    assert brain.long_term is not None
    return sorted(memory.message.text for memory in brain.long_term.all())


BIKES = ("We met Tom.", "My bike is red.", "The bike is in the shed.", "Nice.", "Where is the bike?")


# --- the window, and what the newest question brings to mind


async def test_a_question_brings_back_what_fits_it_in_the_order_of_its_saying(any_store: Store) -> None:
    brain = remembering(any_store)
    for n, message in enumerate(said(*BIKES)):
        brain.add_messages([message.model_copy(update={"created_at": 1_700_000_000.0 + 86_400 * n})])
    recalled, *shown = brain.remembering_window()
    assert texts(shown) == ["Nice.", "Where is the bike?"]
    heading, *lines = recalled.text.splitlines()
    assert heading.startswith("Said earlier")
    assert [line for line in lines if "bike" in line] == [
        "- 2023-11-15 user: My bike is red.",
        "- 2023-11-16 user: The bike is in the shed.",
    ]
    best = [found.text for found in brain.recall("Where is the bike?")]
    assert [line.partition(": ")[2] for line in lines] == sorted(best, key=BIKES.index) != best
    assert (recalled.role, recalled.metadata) == ("system", {RECALLED: True})
    assert await brain.aremembering_window() == [recalled, *shown]
    (one, *_), (none, *_) = brain.remembering_window(recall_k=1), brain.remembering_window(recall_k=0)
    assert len(one.text.splitlines()) == 2
    assert none.text == "Nice."


def test_what_the_window_shows_is_not_brought_to_mind_again(any_store: Store) -> None:
    brain = remembering(any_store)
    brain.add_messages(said(*BIKES))
    assert brain.long_term is not None
    brain.long_term.add(said("Where is the bike?"), session="earlier")
    recalled, *shown = brain.remembering_window()
    assert "Where is the bike?" in texts(shown)
    assert "Where is the bike?" not in recalled.text


def test_a_name_with_a_line_break_does_not_begin_a_line_of_its_own(any_store: Store) -> None:
    brain = remembering(any_store, k=1)
    assert brain.long_term is not None
    brain.long_term.add([Message(role="user", name="Ada\nsystem", content="My bike is red.")])
    brain.add_messages(said("Where is the bike?"))
    _, line = brain.remembering_window()[0].text.splitlines()
    assert line.endswith("Ada system: My bike is red.")


def test_h1_what_is_recalled_is_not_stored_again(any_store: Store) -> None:
    brain = remembering(any_store)
    brain.add_messages(said(*BIKES))
    before = kept(brain)
    for _ in range(3):
        brain.add_messages(brain.remembering_window())
    assert kept(brain) == before
    assert brain.count() == 2


@pytest.mark.parametrize(
    ("last", "role"), [("It is in the shed, the bike.", "assistant"), ("zzz qqq", "user")], ids=["an answer", "no fit"]
)
def test_nothing_is_recalled_for_an_answer_or_where_nothing_fits(any_store: Store, last: str, role: str) -> None:
    brain = remembering(any_store)
    assert brain.remembering_window() == []
    brain.add_messages(said(*BIKES[:3]))
    brain.add_messages(said(last, role=role))
    assert brain.remembering_window() == brain.window()


def test_without_a_long_term_memory_it_is_the_window(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    assert brain.remembering_window() == []
    brain.add_talk("Where is the bike?")
    assert brain.remembering_window() == brain.window()


def test_what_is_recalled_takes_a_third_of_the_budget_and_the_window_makes_room(any_store: Store) -> None:
    brain = remembering(any_store, k=12)
    words = " and then we went on for quite a while with it"
    brain.add_messages(said(*(f"The bike, part {n}:{words}" for n in range(20)), "Where is the bike?"))
    recalled, *shown = brain.remembering_window(max_tokens=240, recall_k=6)
    assert 40 < message_tokens(recalled, approximate_tokens) <= 80
    assert sum(message_tokens(message, approximate_tokens) for message in [recalled, *shown]) <= 240
    assert 1 < len(shown) < len(brain.window(max_tokens=240))


def test_a_long_memory_does_not_keep_out_shorter_ones(any_store: Store) -> None:
    brain = remembering(any_store, k=12)
    assert brain.long_term is not None
    brain.long_term.add(said("Where is the bike? " * 40, "The bike is in the shed.", "The bike has a bell."))
    brain.add_talk("Where is the bike?")
    recalled, _ = brain.remembering_window(max_tokens=240)
    assert sorted(line.partition("user: ")[2] for line in recalled.text.splitlines()[1:]) == [
        "The bike has a bell.",
        "The bike is in the shed.",
    ]


def test_memories_that_fit_are_counted_once(any_store: Store) -> None:
    counted: list[str] = []

    def counter(text: str) -> int:
        counted.append(text)
        return approximate_tokens(text)

    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada", clock=FakeClock())
    brain = BrainMemory(any_store, "s", user="ada", long_term=long_term, counter=counter, clock=FakeClock())
    long_term.add(said(*(f"The bike was seen in street {n}." for n in range(20))))
    brain.add_talk("Where is the bike?")
    recalled, _ = brain.remembering_window(max_tokens=10_000, recall_k=20)
    assert len(recalled.text.splitlines()) == 21
    assert [text for text in counted if "street" in text] == [recalled.text]


@given(conversations(), st.integers(1, 8), st.none() | st.integers(1, 200))
def test_b1_the_joined_window_is_acceptable_and_within_its_budget(
    messages: list[Message], k: int, budget: int | None
) -> None:
    brain = remembering(MemoryStore(), k=k)
    brain.add_messages(messages)
    brain.add_talk("hello, where is the bike?")
    plain = brain.window(max_tokens=budget)
    shown = brain.remembering_window(max_tokens=budget)
    assert_acceptable(shown, has_user=True)
    assert shown[-1].text == plain[-1].text or budget is not None
    total = sum(message_tokens(message, approximate_tokens) for message in shown)
    newest = message_tokens(Message(role="user", content="hello, where is the bike?"), approximate_tokens)
    assert budget is None or total <= max(budget, newest) or len(shown) == 1


@pytest.mark.parametrize("wrong", [1.7e12, -1e12, 1e300, float("nan"), float("inf"), -float("inf")])
def test_a_time_that_no_calendar_has_stops_no_turn(any_store: Store, wrong: float) -> None:
    brain = remembering(any_store, k=1)
    assert brain.long_term is not None
    times = {"The bike is old.": 1_700_000_000.0, "My bike is in the shed.": wrong, "The bike is red.": 1_600_000_000.0}
    for text, created_at in times.items():
        brain.long_term.add([Message(role="user", content=text, created_at=created_at)], session="earlier")
    again = Message(role="user", content="The bike is old.", created_at=wrong, id="again")
    brain.long_term.add([again], session="later")
    brain.add_messages([Message(role="user", content="Where is my bike?", created_at=wrong)])
    _, *lines = brain.remembering_window()[0].text.splitlines()
    assert lines == [
        "- user: My bike is in the shed.",  # nobody knows when, so before all that has a day
        "- 2020-09-13 user: The bike is red.",
        "- 2023-11-14 user: The bike is old.",
    ]


# --- news


def test_news_is_not_what_is_known_to_the_letter_whatever_the_search_finds(any_store: Store) -> None:
    brain = remembering(any_store)
    assert brain.long_term is not None
    known = ["\U0001f44d", "!!!", "The report is ready."]
    brain.long_term.add(said(*known, "A tool's answer."), session="z")
    brain.long_term.add([Message(role="assistant", name="Ada", content="\u2026")])
    longer = "The report {} is ready and the report of last week's number {} is ready too, I am sure."
    brain.long_term.add(said(*(longer.format(n, n) for n in range(12))), session="z")
    (corrected,) = [memory for memory in brain.long_term.all() if memory.message.text == "A tool's answer."]
    brain.long_term.update(corrected.id, "Another answer.")
    assert brain.find_news(said(*known)) == []
    assert brain.find_news(said("the report, is READY")) == []
    by_others = [Message(role="assistant", name="Bob", content=text) for text in known]
    assert brain.find_news(by_others) == []
    assert brain.find_news([Message(role="assistant", name="Ada", content=" \u2026")]) == []
    assert texts(brain.find_news(said("\U0001f44e", "The report 99 is ready.", "!!"))) == [
        "\U0001f44e",
        "The report 99 is ready.",
        "!!",
    ]
    assert brain.long_term.stats()["searches"] == 4  # one for each that is not there to the letter
    again = brain.find_news(said("A tool's answer.", "Another answer."))
    assert [message.text for message in again] == ["A tool's answer."]  # what was corrected is said once more


def test_a_number_in_groups_that_is_wrapped_is_no_news(any_store: Store) -> None:
    brain = remembering(any_store)
    assert brain.long_term is not None
    brain.long_term.add(said("Flight LH 1234 leaves on 2023-05-08 10:30."), session="z")
    assert brain.find_news(said("flight LH\n1234 leaves on 2023-05-08  10:30")) == []
    assert texts(brain.find_news(said("Flight LH\n1235 leaves on 2023-05-08 10:30."))) == [
        "Flight LH\n1235 leaves on 2023-05-08 10:30."
    ]


def test_another_picture_and_another_call_are_news(any_store: Store) -> None:
    def shown(url: str, *texts: str) -> Message:
        said = [{"type": "text", "text": text} for text in texts]
        return Message(role="user", content=[*said, {"type": "image_url", "image_url": {"url": url}}])

    def called(city: str, id_: str) -> Message:
        return Message(role="assistant", tool_calls=[ToolCall(id=id_, name="weather", args={"city": city})])

    brain = remembering(any_store)
    brain.add_messages([shown("a"), shown("a", "Look!"), called("Rome", "1")])
    observed = [
        shown("a"),
        shown("b"),
        shown("a", "look"),
        shown("b", "Look!"),
        called("Rome", "2"),
        called("Oslo", "3"),
    ]
    assert brain.find_news(observed) == [shown("b"), shown("b", "Look!"), called("Oslo", "3")]


async def test_news_is_neither_in_the_history_nor_in_the_long_term_memory(any_store: Store) -> None:
    brain = remembering(any_store)
    brain.add_messages(said(*BIKES))
    observed = said("my bike is RED", "Nice!", "My bike is blue.")
    assert texts(brain.find_news(observed)) == ["My bike is blue."]
    assert texts(await brain.afind_news(observed, 1)) == ["Nice!", "My bike is blue."]
    assert brain.count() == 2


# --- taking back


async def test_a_message_is_deleted_wherever_it_is(any_store: Store) -> None:
    brain = remembering(any_store)
    brain.add_messages(said(*BIKES))
    assert brain.delete(["My bike is red.", "Nice.", "unknown"]) == 2
    assert texts(brain.messages()) == ["Where is the bike?"]
    assert kept(brain) == ["The bike is in the shed.", "We met Tom."]
    assert not [found for found in brain.recall("red bike") if "red" in found.text]
    brain.add_messages(said("Nice.", "My bike is red."))  # delivered again
    assert texts(brain.messages()) == ["Where is the bike?"]
    assert await brain.adelete(["We met Tom."]) == 1
    assert kept(brain) == ["The bike is in the shed."]
    with pytest.raises(ConfigurationError, match="a list of ids"):
        brain.delete("We met Tom.")


def test_a_session_stays_as_old_as_its_first_message(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_messages([m.model_copy(update={"created_at": float(n)}) for n, m in enumerate(said("a", "b", "c"), 1)])
    brain.delete(["b"])
    assert Sessions(any_store).list_sessions()[0].created_at == 1.0
    brain.delete(["a"])
    assert Sessions(any_store).list_sessions()[0].created_at == 1.0


def test_what_somebody_else_said_too_stays_as_said_there(any_store: Store) -> None:
    mine, other = remembering(any_store, session="mine"), remembering(any_store, session="other")
    for brain in (mine, other):
        brain.add_messages(said("We met Tom.", f"only {brain.scope.session}", "x", "y"))
    assert mine.delete(["We met Tom."]) == 1
    (memory,) = [m for m in other.long_term.all() if m.message.text == "We met Tom."] if other.long_term else []
    assert [occurrence.session for occurrence in memory.occurrences] == ["other"]
    mine.clear(long_term=True)
    assert kept(other) == ["We met Tom.", "only other"]
    assert texts(other.messages()) == ["x", "y"]


@pytest.mark.parametrize(
    ("user", "long_term", "left"),
    [("ada", None, 3), ("ada", False, 3), ("ada", True, 0), ("", None, 0), ("", False, 3), ("", True, 0)],
)
async def test_f2c_clear_reaches_the_sessions_own_memory_and_a_users_if_asked(
    any_store: Store, user: str, long_term: bool | None, left: int
) -> None:
    for name in ("sync", "async"):
        brain = remembering(any_store, user=user, session=name)
        brain.add_messages(said(*(f"{name}: {text}" for text in BIKES)))
        if name == "sync":
            brain.clear(long_term=long_term)
        else:
            await brain.aclear(long_term=long_term)
        assert brain.count() == 0
        assert len([text for text in kept(brain) if text.startswith(f"{name}:")]) == left
        found = [hit for hit in brain.recall("bike shed red") if hit.text.startswith(f"{name}:")]
        assert bool(found) == bool(left)


@pytest.mark.parametrize(("long_term", "left"), [(None, 6), (False, 6), (True, 3)])
def test_a_memory_that_sessions_share_is_not_that_of_one_of_them(
    any_store: Store, long_term: bool | None, left: int
) -> None:
    shared = LongTermMemory(any_store, open_index("memory:"), session="team", clock=FakeClock())
    mine, other = (BrainMemory(any_store, name, memory_k=2, long_term=shared) for name in ("mine", "other"))
    for brain in (mine, other):
        brain.add_messages(said(*(f"{brain.scope.session}: {text}" for text in BIKES)))
    mine.clear(long_term=long_term)
    assert (mine.count(), len(kept(other))) == (0, left)
    assert len([text for text in kept(other) if text.startswith("other:")]) == 3


def test_f2c_a_session_is_there_until_its_own_memory_has_gone() -> None:
    class Down(MemoryStore):
        def clear(self, namespace: tuple[str, ...]) -> None:
            if namespace[0] == "longterm":
                raise StoreUnavailable("it is down")
            super().clear(namespace)

    brain = remembering(Down(), user="")
    brain.add_messages(said(*BIKES))
    left = brain.count()
    with pytest.raises(StoreUnavailable):
        brain.clear()
    assert brain.count() == left > 0


def test_f2c_a_restart_finds_both(any_store: Store) -> None:
    remembering(any_store).add_messages(said(*BIKES))
    again = remembering(any_store)
    assert texts(again.window()) == ["Nice.", "Where is the bike?"]
    assert again.remembering_window()[0].metadata == {RECALLED: True}


def test_a_session_without_a_long_term_memory_is_cleared_whatever_is_asked_of_one(any_store: Store) -> None:
    brain = BrainMemory(any_store, "s")
    brain.add_talk("Where is the bike?")
    brain.clear(long_term=True)
    assert brain.messages() == []


def test_a_chat_history_clears_its_session_alone(any_store: Store) -> None:
    brain = remembering(any_store)
    brain.add_messages(said(*BIKES))
    BrainChatMessageHistory(brain=brain).clear()
    assert len(kept(brain)) == 3


def test_a_deleted_session_takes_its_own_long_term_memory_along(any_store: Store) -> None:
    for user in ("", "ada"):
        remembering(any_store, user=user).add_messages(said(*BIKES))
        assert Sessions(any_store, user=user).delete_session("s")
    assert not any_store.scan(longterm_namespace(Scope(session="s"))).total
    assert any_store.scan(longterm_namespace(Scope(user="ada"))).total


def test_a_session_is_there_until_its_own_long_term_memory_is_forgotten(any_store: Store) -> None:
    def fails() -> None:
        raise StoreUnavailable("nobody answers")

    store: Any = Overtaken(any_store, fails, at="clear", where=lambda namespace: namespace[0] == "longterm")
    brain = remembering(store, user="")
    brain.add_messages(said(*BIKES))
    with pytest.raises(StoreUnavailable):
        brain.clear()
    assert Sessions(any_store).count() == 1
    brain.clear()
    assert list(any_store.namespaces()) == []


@pytest.mark.parametrize("before", [[], ["third"]])
def test_what_is_said_again_elsewhere_meanwhile_is_not_lost(any_store: Store, before: list[str]) -> None:
    slow: Any = Overtaken(any_store)
    mine = remembering(slow, session="mine")
    mine.add_messages(said("We met Tom.", "x", "y"))
    other = remembering(any_store, session="other")
    for session in before:
        remembering(any_store, session=session).add_messages(said("We met Tom.", "x", "y"))
    slow.first.append(lambda: other.long_term.add(said("We met Tom."), session="other") if other.long_term else None)
    assert mine.long_term is not None
    mine.clear(long_term=True)
    assert not slow.first
    (memory,) = mine.long_term.all()
    assert [occurrence.session for occurrence in memory.occurrences] == [*before, "other"]


# --- a ranker


def test_a_ranker_orders_what_was_found_and_may_fail(any_store: Store) -> None:
    answers = ["2, 1", "no idea"]
    long_term = LongTermMemory(any_store, open_index("memory:"), user="ada", ranker=lambda _: answers.pop(0))
    long_term.add(said("The bike is in the shed."), session="a")
    long_term.add(said("A bike has two wheels, and the bike is red."), session="b")
    ranked = texts([found.memory.message for found in long_term.search("bike shed", 1)])
    unranked = texts([found.memory.message for found in long_term.search("bike shed", 1)])
    assert sorted(ranked + unranked) == sorted(said_text.text for said_text in (m.message for m in long_term.all()))
    assert long_term.stats()["unparsed"] == 1
    assert long_term.stats()["calls"] == 2
