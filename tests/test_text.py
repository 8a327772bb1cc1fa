"""B1, B4: whatever the conversation and the window, a model is shown what every provider accepts, and what fits."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_adapters.model import Message, ToolCall
from langmem_adapters.text import as_text, removable_positions, repair, window, without_calls
from langmem_adapters.tokens import approximate_tokens, message_tokens, truncate_content

SYSTEM = {"system", "developer"}


def say(role: str, text: str | list[Any] = "hello", **fields: Any) -> Message:
    return Message(role=role, content=text, **fields)


def ask(*ids: str, text: str = "", listed: tuple[str, ...] = (), blocks: tuple[str, ...] = ()) -> Message:
    """An assistant's message with calls, as the hosts write it: the calls are in three places.

    The arguments of the last ones are no JSON, which LangChain has in a list and LlamaIndex among the content.
    """
    used: list[Any] = [{"type": "tool_use", "id": id_, "name": "look", "input": {}} for id_ in ids]
    used += [{"type": "invalid_tool_call", "id": id_, "name": "look", "args": "{", "error": None} for id_ in blocks]
    raw = [{"id": id_, "type": "function", "function": {"name": "look", "arguments": "{}"}} for id_ in ids]
    own: dict[str, Any] = {"additional_kwargs": {"tool_calls": raw}}
    if listed:
        own["invalid_tool_calls"] = [{"id": id_, "name": "look", "args": "{", "error": "no JSON"} for id_ in listed]
    return Message(
        role="assistant",
        content=[{"type": "text", "text": text}, *used] if text else [*used],
        tool_calls=[ToolCall(id=id_, name="look") for id_ in ids],
        host={"langchain": own},
    )


def asked_for(message: Message) -> list[str | None]:
    """The ids of a message's calls, also of those whose arguments are no JSON."""
    listed = message.host.get("langchain", {}).get("invalid_tool_calls", [])
    blocks = [b for b in message.content if isinstance(b, dict) and b["type"] == "invalid_tool_call"]
    return [*(call.id for call in message.tool_calls), *(call["id"] for call in [*listed, *blocks])]


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
    first, last = sorted((draw(st.integers(0, len(ids))), draw(st.integers(0, len(ids)))))
    good, listed, blocks = ids[:first], tuple(ids[first:last]), tuple(ids[last:])
    if good and not tidy and draw(st.booleans()):  # a server that gives two calls one id
        good = [*good, good[0]]
        answers += [answer(good[0])] * draw(st.integers(0, 2))
    text = draw(st.sampled_from(["", "let me look"]))
    return [ask(*good, text=text, listed=listed, blocks=blocks), *answers]


def assert_acceptable(shown: list[Message], *, has_user: bool) -> None:
    asked: set[str | None] = set()
    for message in shown:
        if message.role == "tool":
            assert message.tool_call_id in asked, "every result stands right behind the message with its call"
            asked.discard(message.tool_call_id)
        else:
            assert not asked, "every call is answered, before anything else is said"
            asked = set(asked_for(message))
            assert len(asked) == len(asked_for(message)) or message is shown[-1], "no two calls have one id"
    assert not asked or asked_for(shown[-1]), "only the last message may wait for its results"
    first = next((message for message in shown if message.role not in SYSTEM), None)
    assert first is None or first.role == "user" or not has_user


@given(conversations(), st.integers(1, 12))
@example([say("user"), ask("a"), say("user"), answer("a")], 2)
@example([say("user"), ask("a", "b"), answer("a"), answer("b")], 2)
@example([say("user"), ask("a", "a"), answer("a"), answer("a"), say("user")], 9)
@example([say("user"), ask("a", listed=("b",), blocks=("c",)), answer("c"), say("user")], 9)
def test_b1_any_window_of_any_conversation_is_acceptable(said: list[Message], k: int) -> None:
    shown = window(said, k)
    assert_acceptable(shown, has_user=any(message.role == "user" for message in said))
    assert len(shown) <= max(k, len(latest_exchange(said)))
    assert window(shown, k) == shown


def latest_exchange(said: list[Message]) -> list[Message]:
    """The newest message, or the call that it answers with all results; and the latest question before."""
    whole = repair(said)
    start = next((n for n in range(len(whole) - 1, -1, -1) if whole[n].role != "tool"), 0)
    question = [m for m in whole[:start] if m.role == "user"][-1:] if whole and whole[start].role != "user" else []
    return question + whole[start:]


@given(conversations(), st.integers(1, 12))
def test_b1_a_window_invents_nothing_and_keeps_the_order(said: list[Message], k: int) -> None:
    shown = window(said, k)
    by_id = {message.id: message for message in said}
    for message in shown:
        source = by_id[message.id]
        gone = {*asked_for(source)} - {*asked_for(message)}
        assert message == without_calls(source, gone) or (message == source and not gone)
    spoken = [int(message.id) for message in shown if message.role != "tool"]
    assert spoken == sorted(set(spoken))


@given(conversations(), st.integers(1, 12))
def test_b1_no_dropped_call_is_left_in_a_hosts_own_fields(said: list[Message], k: int) -> None:
    for message in window(said, k):
        raw = repr((message.content, message.host))
        for id_ in asked_for(next(m for m in said if m.id == message.id)):
            assert (f"'{id_}'" in raw) == (id_ in asked_for(message))


@given(conversations(), st.integers(1, 12))
@example([say("user"), ask("a", "b", "c"), answer("a"), answer("b"), answer("c")], 1)
def test_the_latest_exchange_is_shown_whatever_the_window(said: list[Message], k: int) -> None:
    exchange = latest_exchange(said)
    shown = window(said, k)
    assert [m for m in shown if m in exchange] == exchange
    assert shown[-1:] == exchange[-1:]


# --- a budget of tokens

COUNTERS: dict[str, Callable[[str], int]] = {
    "approximate": approximate_tokens,
    "words": lambda text: len(text.split()),
    "characters": len,
}


def image(number: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"https://example.com/{number}.png"}}


@st.composite
def wordy_conversations(draw: st.DrawFn) -> list[Message]:
    """Conversations with texts of very different lengths, images between them, and calls with large arguments."""
    said = []
    for message in draw(conversations()):
        text = draw(st.sampled_from(["a", "word " * 30, "x" * 90, "床前明月光" * 9, "\n  a\tb" * 20, "  ", ""]))
        used = [b for b in message.content if isinstance(b, dict) and b["type"] != "text"]
        media = [image(n) for n in range(draw(st.integers(0, 2)))]
        blocks = [{"type": "text", "text": text}, *media, *used, *([text] if draw(st.booleans()) else [])]
        calls = [c.model_copy(update={"args": {"q": "z" * draw(st.integers(0, 40))}}) for c in message.tool_calls]
        content = blocks if used or media else text
        said.append(message.model_copy(update={"content": content, "tool_calls": calls}))
    return said


def shortest(message: Message, counter: Callable[[str], int]) -> int:
    if counter(message.text) > 1:
        message = message.model_copy(update={"content": truncate_content(message.content, 1, counter)})
    return message_tokens(message, counter)


def test_a_message_of_a_thousand_blocks_is_cut_in_few_steps() -> None:
    counts = 0

    def counter(text: str) -> int:
        nonlocal counts
        counts += 1
        return len(text.split()) + text.count("\n")  # so that a line end between two blocks is one, too

    said = [say("user", ["word " * 20] * 1000)]
    (shown,) = window(said, 20, max_tokens=1500, counter=counter)
    assert 1200 < message_tokens(shown, counter) <= 1500
    assert counts < 50_000


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
@given(said=wordy_conversations(), k=st.integers(1, 12), budget=st.integers(1, 400))
def test_b1_a_window_is_valid_and_within_its_budget(
    counter: Callable[[str], int], said: list[Message], k: int, budget: int
) -> None:
    shown = window(said, k, max_tokens=budget, counter=counter)
    assert_acceptable(shown, has_user=any(message.role == "user" for message in said))
    exchange = latest_exchange(said)
    assert len(shown) <= max(k, len(exchange))
    ids = [message.id for message in exchange]
    assert [message.id for message in shown if message.id in ids] == ids
    assert [message.id for message in shown[-1:]] == ids[-1:]
    total = sum(message_tokens(message, counter) for message in shown)
    if total > budget:  # nothing is left that could be cut
        assert [message.id for message in shown] == ids
        assert total == sum(shortest(message, counter) for message in exchange)
    for message in shown:
        source = next(m for m in repair(said) if m.id == message.id)
        assert (message.tool_calls, asked_for(message)) == (source.tool_calls, asked_for(source))
        if message.content != source.content:
            assert len(shown) == len(exchange), "only the latest exchange is ever cut"
            assert media_of(message) == media_of(source)
            assert source.text.startswith(message.text.split("\n")[0])


def media_of(message: Message) -> list[Any]:
    return [block for block in message.content if isinstance(block, dict) and block["type"] != "text"]


@given(conversations(), st.integers(1, 12))
def test_a_budget_that_holds_all_changes_nothing(said: list[Message], k: int) -> None:
    assert window(said, k, max_tokens=10_000) == window(said, k)


def test_as_many_of_the_newest_are_shown_as_fit() -> None:
    said = [say(role, "x" * 40, id=f"{n}-{role}") for n in range(5) for role in ("user", "assistant")]  # 14 tokens each
    shown = {budget: [m.id for m in window(said, 100, max_tokens=budget)] for budget in (27, 28, 41, 56, 139, 140)}
    assert shown[27] == shown[28] == shown[41] == ["4-user", "4-assistant"]
    assert shown[56] == ["3-user", "3-assistant", "4-user", "4-assistant"]
    assert (len(shown[139]), len(shown[140])) == (8, 10)


def test_an_exchange_that_just_fits_is_not_said_to_be_cut(caplog: pytest.LogCaptureFixture) -> None:
    said = [say("user", "x" * 40), say("assistant", "x" * 40)]
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert window(said, 2, max_tokens=28) == said
    assert not caplog.records


def test_a_question_and_a_result_that_are_too_long_are_cut_to_the_same_length(caplog: pytest.LogCaptureFixture) -> None:
    said = [say("user", "question " * 1000), ask("a"), answer("a").model_copy(update={"content": "result " * 1000})]
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        question, call, result = window(said, 10, max_tokens=200)
    assert sum(map(message_tokens, (question, call, result))) <= 200
    assert 300 < len(question.text) < 400
    assert 300 < len(result.text) < 400
    assert call == said[1]
    assert "more than the budget of 200, and is cut" in caplog.text
    assert "question question" not in caplog.text


def test_a_question_behind_what_was_pasted_is_shown() -> None:
    pasted, question = "invoice " * 1000, "Where is my bike?"
    in_one_block = say("user", f"{pasted}\n\n{question}")
    in_two_blocks = Message(role="user", content=[{"type": "text", "text": pasted}, {"type": "text", "text": question}])
    for message in (in_one_block, in_two_blocks):
        (shown,) = window([message], 10, max_tokens=100)
        assert shown.text.startswith("invoice")
        assert shown.text.endswith(question)


def test_thoughts_count_for_what_is_shown_and_no_text_is_cut_for_them(caplog: pytest.LogCaptureFixture) -> None:
    def answer(text: str, thoughts: int) -> Message:
        blocks: list[Any] = [{"type": "thinking", "thinking": "hm " * thoughts}, {"type": "text", "text": text}]
        return Message(role="assistant", content=blocks)

    question = Message(role="user", content="where is my bike")
    said = [question, answer("in the shed", 100), question, answer("in the shed", 3)]
    counter = lambda text: len(text.split())  # noqa: E731 - words are tokens
    assert window(said, 9, max_tokens=200, counter=counter) == said
    assert window(said, 9, max_tokens=100, counter=counter) == said[2:]
    assert window(said[:2], 9, max_tokens=20, counter=counter) == said[:2]
    assert caplog.messages == []
    cut = window(said[:2], 9, max_tokens=12, counter=counter)
    assert [message.text for message in cut] == ["where is", "in the"]


def test_what_cannot_be_cut_is_shown_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    said = [say("user", [{"type": "text", "text": "What is this?"}, image(1), image(2)])]
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        (shown,) = window(said, 10, max_tokens=50)
    assert shown.content == [{"type": "text", "text": "What"}, image(1), image(2)]
    assert "and is cut" in caplog.text


def test_b4_ten_thousand_messages_are_windowed_quickly_once_they_are_counted() -> None:
    counted = 0

    def slow(text: str) -> int:
        nonlocal counted
        counted += 1
        return len(text.split())

    said = [
        message
        for n in range(2500)
        for message in (say("user", f"question {n}"), ask(str(n)), answer(str(n)), say("assistant", f"answer {n} " * 9))
    ]
    shown = window(said, 10_000, max_tokens=30_000, counter=slow)
    assert 500 < len(shown) < 4_000
    assert counted <= len(shown)  # those that do not fit anyway are not counted
    window(said, 10_000, max_tokens=1_000_000, counter=slow)
    first = counted

    def seconds(function: Callable[[], Any]) -> float:
        start = time.thread_time()
        function()
        return time.thread_time() - start

    def ratio() -> float:
        """To a mere look at each message, which takes 3 ms on an idle machine: 50 ms are 16 of these."""
        windowing = seconds(lambda: window(said, 10_000, max_tokens=30_000, counter=slow))
        return windowing / seconds(lambda: [(m.role, hash(m.text), m.tool_calls) for m in said])

    assert min(ratio() for _ in range(20)) < 16
    assert counted == first


@pytest.mark.parametrize(
    "text", ["x" * 10_000_000, "word " * 2_000_000, "床" * 3_000_000], ids=["run", "words", "wide"]
)
def test_ten_megabytes_are_cut_to_the_budget(text: str) -> None:
    (shown,) = window([say("user", text)], 10, max_tokens=1000)
    assert 900 < message_tokens(shown) <= 1000
    beginning, end = shown.text.split("\n[…]\n")
    assert (text.startswith(beginning), text.endswith(end)) == (True, True)


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


@pytest.mark.parametrize("broken", [ask(listed=("x",)), ask(blocks=("x",))], ids=["listed", "among the content"])
def test_a_call_whose_arguments_are_no_json_keeps_its_result_and_goes_without_one(broken: Message) -> None:
    said = [say("user"), broken, answer("x"), say("assistant"), say("user")]
    assert window(said, 50) == said
    assert [message.role for message in repair([*said[:2], *said[3:]])] == ["user", "assistant", "user"]
    assert repair(said[:2]) == said[:2]


def test_a_call_that_two_hosts_have_noted_is_one_call() -> None:
    noted = ask("x", listed=("x",), blocks=("x", "x"))
    said = [say("user"), noted, answer("x"), answer("x"), say("user")]
    assert repair(said) == [*said[:3], said[4]]
    assert repair(said)[1] is noted


def test_of_two_calls_with_one_id_the_first_stays_with_the_first_result() -> None:
    results = [say("tool", text, tool_call_id="a") for text in ("first", "second")]
    asking = ask("a", "b", "a")
    asking.tool_calls[0].args["number"] = 1
    shown = repair([say("user"), asking, *results, answer("b"), say("user")])
    assert [message.text for message in shown] == ["hello", "", "first", "found", "hello"]
    assert [(call.id, call.args) for call in shown[1].tool_calls] == [("a", {"number": 1}), ("b", {})]
    assert (shown[1].content, shown[1].host) == (ask("a", "b").content, ask("a", "b").host)


def test_what_a_damaged_host_has_in_place_of_calls_is_no_call() -> None:
    odd: dict[str, Any] = {"a": {"invalid_tool_calls": 5}, "b": {"invalid_tool_calls": ["x", {"id": ["y"]}]}}
    blocks = [{"type": "tool_use", "id": ["z"]}, {"type": "tool_use", "id": "a"}]
    said = [say("user"), ask("a").model_copy(update={"host": odd, "content": blocks}), say("user", "next")]
    assert [message.text for message in repair(said)] == ["hello", "next"]


def test_a_call_without_an_id_goes_and_what_the_user_says_next_is_no_result_of_it() -> None:
    call = {"type": "invalid_tool_call", "id": None, "name": "look", "args": "{"}
    shown = repair([say("user"), say("assistant", ["I did look", call]), say("user", "and?")])
    assert [message.content for message in shown] == ["hello", ["I did look"], "and?"]


def test_a_call_of_openais_computer_without_a_screenshot_goes_with_its_thought() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "computer_call", "id": "cu_1", "call_id": "c1"}
    shown = repair([say("user"), say("assistant", [thought, call]), say("user", "and?")])
    assert [message.text for message in shown] == ["hello", "and?"]


def test_the_question_stands_in_front_of_a_long_run_of_tools() -> None:
    run = [message for n in range(10) for message in (ask(str(n)), answer(str(n)))]
    shown = window([say("user", "old"), say("user", "question"), *run], 5)
    assert [message.text for message in shown[:1]] == ["question"]
    assert shown[1:] == run[-4:]


# --- what may leave


@given(conversations(tidy=True), st.integers(1, 12))
def test_what_stays_can_stand_alone(said: list[Message], least: int) -> None:
    gone = removable_positions(said, least)
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
    stays = len(said) - len(removable_positions(said, least))
    groups = "".join("t" if message.role == "tool" else " x" for message in said).split()
    longest = max(map(len, groups), default=0)
    assert stays <= max(len(said) - least, 1 + longest)


def test_the_next_question_is_where_the_cut_is() -> None:
    said = [say("user"), say("assistant"), ask("a"), answer("a"), say("user"), say("assistant")]
    assert removable_positions(said, 1) == removable_positions(said, 4) == [0, 1, 2, 3]
    assert removable_positions(said, 5) == [0, 1, 2, 3]  # nothing but the question and its answer is left
    assert removable_positions([say("moderator"), say("moderator"), say("moderator")], 1) == [0]


# --- small things


def test_a_call_is_dropped_wherever_a_message_repeats_it() -> None:
    kept = without_calls(ask("a", "b", text="let me look"), {"a"})
    assert [call.id for call in kept.tool_calls] == ["b"]
    assert "'a'" not in repr((kept.content, kept.host))
    assert kept.text == "let me look"
    cited = [{"type": "citation", "id": "c"}, {"type": "citation", "id": "c"}]
    assert without_calls(say("assistant", cited), {"a"}).content == cited
    kept = without_calls(ask("a", listed=("b", "c"), blocks=("d", "e")), {"c", "d"})
    assert asked_for(kept) == ["a", "b", "e"]


def test_a_conversation_as_text() -> None:
    assert as_text([say("user", "Hello", name="ada"), say("assistant", "Hi")]) == "ada: Hello\nassistant: Hi"
