"""B1: whatever the conversation and the window, a model is shown what every provider accepts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_adapters.model import Message, ToolCall
from langmem_adapters.text import as_text, leaving, repair, replaced, window, without_calls

SYSTEM = {"system", "developer"}


def say(role: str, text: str = "hello", **fields: Any) -> Message:
    return Message(role=role, content=text, **fields)


def ask(*ids: str, text: str = "") -> Message:
    """An assistant's message with calls, as the hosts write it: the calls are in three places."""
    used = [{"type": "tool_use", "id": id_, "name": "look", "input": {}} for id_ in ids]
    raw = [{"id": id_, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id_ in ids]
    return Message(
        role="assistant",
        content=[{"type": "text", "text": text}, *used] if text else [*used],
        tool_calls=[ToolCall(id=id_, name="look") for id_ in ids],
        host={"langchain": {"additional_kwargs": {"tool_calls": raw}}},
    )


def answer(id_: str) -> Message:
    return say("tool", "found", tool_call_id=id_)


@st.composite
def conversations(draw: st.DrawFn, *, tidy: bool = False) -> list[Message]:
    """Turns with parallel calls and many steps; unless ``tidy``, with people who interrupt, and with orphans."""
    ids = (f"call-{n}" for n in itertools.count())
    said: list[Message] = [say("system", "be kind")] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 7))):
        kinds = ["user", "assistant", "tools"]
        kind = draw(st.sampled_from(kinds if tidy else [*kinds, "tools", "orphan", "system", "moderator"]))
        if kind == "orphan":
            said.append(answer("nobody-asked"))
        elif kind == "tools":
            said += draw(_tools([next(ids) for _ in range(draw(st.integers(1, 3)))], tidy=tidy))
        else:
            said.append(say(kind))
    numbered = [message.model_copy(update={"id": str(n)}) for n, message in enumerate(said)]
    return numbered[: len(numbered) - draw(st.integers(0, 2))]


@st.composite
def _tools(draw: st.DrawFn, ids: list[str], *, tidy: bool) -> list[Message]:
    answers = [answer(id_) for id_ in draw(st.permutations(ids))]
    if not tidy:
        answers = answers[: draw(st.integers(0, len(answers)))]
        for _ in range(draw(st.integers(0, 2))):
            answers.insert(draw(st.integers(0, len(answers))), say(draw(st.sampled_from(["user", "system"]))))
    return [ask(*ids, text=draw(st.sampled_from(["", "let me look"]))), *answers]


def assert_acceptable(shown: list[Message], *, has_user: bool) -> None:
    asked: set[str | None] = set()
    for message in shown:
        if message.role == "tool":
            assert message.tool_call_id in asked, "every result stands right behind the message with its call"
            asked.discard(message.tool_call_id)
        else:
            assert not asked, "every call is answered, before anything else is said"
            asked = {call.id for call in message.tool_calls}
    assert not asked or shown[-1].tool_calls, "only the last message may wait for its results"
    first = next((message for message in shown if message.role not in SYSTEM), None)
    assert first is None or first.role == "user" or not has_user


@given(conversations(), st.integers(1, 12))
@example([say("user"), ask("a"), say("user"), answer("a")], 2)
@example([say("user"), ask("a", "b"), answer("a"), answer("b")], 2)
def test_b1_any_window_of_any_conversation_is_acceptable(said: list[Message], k: int) -> None:
    shown = window(said, k)
    assert_acceptable(shown, has_user=any(message.role == "user" for message in said))
    assert len(shown) <= k
    assert window(shown, k) == shown


@given(conversations(), st.integers(1, 12))
def test_b1_a_window_invents_nothing_and_keeps_the_order(said: list[Message], k: int) -> None:
    shown = window(said, k)
    by_id = {message.id: message for message in said}
    for message in shown:
        source = by_id[message.id]
        gone = {call.id for call in source.tool_calls} - {call.id for call in message.tool_calls}
        assert message == (without_calls(source, gone) if gone else source)
    spoken = [int(message.id) for message in shown if message.role != "tool"]
    assert spoken == sorted(set(spoken))


@given(conversations(), st.integers(1, 12))
def test_b1_no_dropped_call_is_left_in_a_hosts_own_fields(said: list[Message], k: int) -> None:
    for message in window(said, k):
        raw = repr((message.content, message.host))
        for call in next(m for m in said if m.id == message.id).tool_calls:
            assert call.id is not None
            assert (f"'{call.id}'" in raw) == (call in message.tool_calls)


@given(conversations(), st.integers(2, 12))
def test_the_newest_message_is_shown_unless_it_is_a_result_without_its_call(said: list[Message], k: int) -> None:
    if not said:
        return
    newest = said[-1]
    shown = window(said, k)
    if newest.role != "tool":
        assert shown[-1].id == newest.id
        return
    tail = said[-k:]
    asker = max((n for n, m in enumerate(tail) if any(c.id == newest.tool_call_id for c in m.tool_calls)), default=None)
    has_user = any(message.role == "user" for message in said)
    if asker is not None and (not has_user or any(message.role == "user" for message in tail[:asker])):
        assert newest.id in {message.id for message in shown}


@given(conversations())
def test_repairing_twice_changes_nothing_more(said: list[Message]) -> None:
    once = repair(said)
    assert repair(once) == once
    assert len(once) <= len(said)


@given(conversations(tidy=True))
def test_a_conversation_that_is_in_order_is_shown_as_it_is(said: list[Message]) -> None:
    whole = [say("user", id="first"), *(message for message in said if message.role != "system")]
    while whole[-1].role == "tool":  # it may have been cut off in the middle of its results
        whole.pop()
    assert window(whole, 100) == whole


@pytest.mark.parametrize("k", [0, -1])
def test_no_window_shows_nothing(k: int) -> None:
    assert window([say("user")], k) == []


def test_the_calls_of_the_newest_message_wait_for_their_results() -> None:
    said = [say("user"), ask("a", "b")]
    assert window(said, 5) == said


def test_results_that_came_late_are_put_behind_their_call() -> None:
    said = [say("user"), ask("a"), say("user", "and?"), answer("a")]
    assert repair(said) == [said[0], said[1], said[3], said[2]]


def test_an_id_that_is_used_twice_belongs_to_the_latest_call() -> None:
    said = [say("user"), ask("a"), answer("a"), say("user"), ask("a"), answer("a")]
    assert repair(said) == said
    assert [m.role for m in repair(said[:2] + said[3:])] == ["user", "user", "assistant", "tool"]


def test_the_question_stands_in_front_of_a_long_run_of_tools() -> None:
    run = [message for n in range(10) for message in (ask(str(n)), answer(str(n)))]
    shown = window([say("user", "old"), say("user", "question"), *run], 5)
    assert [message.text for message in shown[:1]] == ["question"]
    assert shown[1:] == run[-4:]


# --- what may leave


@given(conversations(tidy=True), st.integers(1, 12))
def test_what_stays_can_stand_alone(said: list[Message], least: int) -> None:
    gone = leaving(said, least)
    stays = [message for n, message in enumerate(said) if n not in gone]
    assert gone == sorted(set(gone))
    has_user = any(message.role == "user" for message in said)
    if stays and has_user:
        assert stays[0].role == "user"
    assert {m.id for m in stays if m.role == "tool"} == {m.id for m in repair(stays) if m.role == "tool"}
    if len(gone) < least:  # a question and one message with its results: nothing more can go
        assert [message.role for message in stays if message.role != "tool"][2:] == []


@given(conversations(), st.integers(1, 12))
def test_as_many_leave_as_must_but_for_one_question_and_one_group(said: list[Message], least: int) -> None:
    stays = len(said) - len(leaving(said, least))
    groups = "".join("t" if message.role == "tool" else " x" for message in said).split()
    longest = max(map(len, groups), default=0)
    assert stays <= max(len(said) - least, 1 + longest)


def test_the_next_question_is_where_the_cut_is() -> None:
    said = [say("user"), say("assistant"), ask("a"), answer("a"), say("user"), say("assistant")]
    assert leaving(said, 1) == leaving(said, 4) == [0, 1, 2, 3]
    assert leaving(said, 5) == [0, 1, 2, 3]  # nothing but the question and its answer is left
    assert leaving([say("moderator"), say("moderator"), say("moderator")], 1) == [0]


# --- small things


def test_a_call_is_dropped_wherever_a_message_repeats_it() -> None:
    kept = without_calls(ask("a", "b", text="let me look"), {"a"})
    assert [call.id for call in kept.tool_calls] == ["b"]
    assert "'a'" not in repr((kept.content, kept.host))
    assert kept.text == "let me look"


def test_a_conversation_as_text() -> None:
    assert as_text([say("user", "Hello", name="ada"), say("assistant", "Hi")]) == "ada: Hello\nassistant: Hi"


def test_whole_strings_are_replaced_in_nested_data() -> None:
    data = {"role": "a", "list": ["a", {"x": "ab"}], "n": 1}
    assert replaced(data, {"a": "b"}) == {"role": "b", "list": ["b", {"x": "ab"}], "n": 1}
    assert data["role"] == "a"
