"""Counting and cutting texts by tokens (B1, B3, B4)."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langmem_adapters.errors import ConfigurationError, LangmemError
from langmem_adapters.model import Message, ToolCall
from langmem_adapters.text import window
from langmem_adapters.tokens import (
    approximate_tokens,
    message_tokens,
    truncate,
    truncate_content,
    truncate_middle,
    truncate_start,
)

TEXTS = st.text(st.sampled_from("ab \n\t床é🙂\ud800"), max_size=200)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("低头思故乡", 5), ("漢字 and more", 5), ("한국", 2), ("\ud800", 1)],
)
def test_an_estimate(text: str, tokens: int) -> None:
    assert approximate_tokens(text) == tokens


def test_a_message_counts_with_its_borders_calls_and_images() -> None:
    plain = Message(role="user", content="abcd")
    assert message_tokens(plain) == 5
    called = plain.model_copy(update={"tool_calls": [ToolCall(name="look", args={"q": "x" * 100})]})
    assert message_tokens(called) > 25
    image = {"type": "image", "base64": "A" * 100_000, "mime_type": "image/png"}
    assert message_tokens(Message(role="user", content=["abcd", image])) == 5 + 85
    unreadable = {"langchain": {"invalid_tool_calls": [{"name": "look", "args": "{" * 76, "id": "1", "error": "e"}]}}
    assert message_tokens(Message(role="assistant", host=unreadable)) == 4 + 20


def test_a_counter_may_be_an_object_without_a_hash() -> None:
    @dataclass
    class Letters:
        per_token: int

        def __call__(self, text: str) -> int:
            return len(text) // self.per_token

    message = Message(role="user", content="abcdefgh")
    assert [message_tokens(message, Letters(2)), message_tokens(message, Letters(4))] == [4 + 4, 4 + 2]


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"type": "thinking", "thinking": "one two", "signature": "s"}, "one two"),
        ({"type": "reasoning", "reasoning": "one two", "id": "r", "extras": {"format": "f"}}, "one two"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "one"}], "encrypted_content": "e"}, "one"),
        ({"type": "reasoning_content", "reasoning_content": {"text": "one two"}}, "one two"),
        (
            {"type": "search_result", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            "onetwo",
        ),
        ({"type": "json", "json": {"found": ["one", 2]}}, "one"),
        ({"type": "image_generation_call", "result": "A" * 100_000}, ""),
        ({"type": "computer_call_output", "output": {"image_url": "data:image/png;base64, one two"}}, ""),
        ({"type": "redacted_thinking", "data": "A" * 400}, ""),
        ({"type": "tool_use", "name": "look", "input": {"place": "one two"}}, ""),  # is among the tool calls
        ({"type": "text", "text": "one two", "citations": [{"cited_text": "three"}]}, "one two"),
    ],
)
def test_a_message_counts_with_what_it_says_beside_its_text(block: dict[str, Any], said: str) -> None:
    assert message_tokens(Message(role="assistant", content=[block]), len) == 4 + len(said)


def test_a_text_is_counted_once_by_each_counter() -> None:
    asked = []

    def counter(text: str) -> int:
        asked.append(text)
        return 7

    message = Message(role="user", content="counted once")
    assert [message_tokens(message, counter) for _ in range(3)] == [11, 11, 11]
    assert asked == ["counted once"]
    assert message_tokens(message) == 7


@pytest.mark.parametrize("kind", [["image"], {"a": 1}, None, 1])
def test_a_block_may_have_anything_as_its_type(kind: Any) -> None:
    said = Message(role="user", content=[{"type": kind, "text": "two words"}, {"type": kind, "of": "its own"}])
    assert message_tokens(said, lambda text: len(text.split())) == 4 + 3


@pytest.mark.parametrize("count", [2.5, None, "5"])
def test_a_counter_gives_whole_numbers(count: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"^a counter gives a whole number of tokens, not {count!r}$"):
        message_tokens(Message(role="user", content="Hello."), lambda _: count)


def test_what_a_counter_raises_is_an_error_of_the_library_that_quotes_nothing() -> None:
    def counter(text: str) -> int:
        raise KeyError(text)

    message = Message(role="user", content="a secret")
    for act in (
        lambda: message_tokens(message, counter),
        lambda: truncate("a secret", 1, counter),
        lambda: window([message], 1, max_tokens=1, counter=counter),
    ):
        with pytest.raises(LangmemError, match=r"^the counter of tokens failed: KeyError$"):
            act()


def test_the_remembered_counts_hold_no_texts() -> None:
    class Text(str):
        """One whose end can be seen."""

        __slots__ = ("__weakref__",)

    text = Text("a text that would be large")
    gone = weakref.ref(text)
    message = Message.model_construct(role="user", content=text, tool_calls=[])
    message_tokens(message)
    del message, text
    assert gone() is None


@given(TEXTS, st.integers(1, 60))
@example("    abcdefgh", 1)
@example(" abc def", 1)
@example("abcdefghijkl", 2)  # Hypothesis finds none without a space that is too long
def test_what_is_kept_is_a_beginning_that_fits(text: str, tokens: int) -> None:
    kept = truncate(text, tokens)
    assert text.startswith(kept)
    assert approximate_tokens(kept) <= tokens
    if approximate_tokens(text) <= tokens:
        assert kept == text
    elif not any(character.isspace() for character in text):
        assert approximate_tokens(text[: len(kept) + 1]) > tokens


def test_a_cut_is_between_words_where_there_are_any() -> None:
    assert truncate("one two three", 2) == "one two"
    assert truncate("one two, three", 2) == "one two,"
    assert truncate("one twofold", 2) == "one"
    assert truncate("x" * 100, 2) == "x" * 8
    assert truncate("data: " + "x" * 1000, 20) == "data: " + "x" * 74
    assert truncate("床前明月光", 3) == "床前明"
    assert truncate("anything", 0) == ""


def test_a_long_text_is_not_counted_as_a_whole_to_be_cut() -> None:
    longest = 0

    def counter(text: str) -> int:
        nonlocal longest
        longest = max(longest, len(text))
        return len(text) // 4

    assert len(truncate("word " * 2_000_000, 1000, counter)) == 3999
    assert longest < 20_000


@given(TEXTS, st.integers(1, 60))
def test_a_middle_is_left_out_only_where_it_must(text: str, tokens: int) -> None:
    kept = truncate_middle(text, tokens)
    assert approximate_tokens(kept) <= tokens
    assert (kept == text) == (approximate_tokens(text) <= tokens)


def test_the_beginning_and_the_end_stay() -> None:
    kept = truncate_middle("begin " + "x " * 1000 + "end", 20)
    assert kept.startswith("begin x")
    assert kept.endswith("x end")
    assert "\n[…]\n" in kept


def test_the_end_is_counted_as_it_is_read() -> None:
    def counter(text: str) -> int:
        words = text.split()
        return sum(1 if word in "where is the bike" else len(word) for word in words)

    text = "where is the bike " * 100
    assert truncate_start(text.strip(), 4, counter) == "where is the bike"
    kept = truncate_middle(text, 44, counter)
    assert 42 <= counter(kept) <= 44


def counted_bytes(text: str) -> int:
    return len(text.encode())


def test_a_mark_of_a_cut_does_not_stand_alone() -> None:
    assert truncate_middle("🚲🚲🚲🚲", 12, counted_bytes) == "🚲🚲🚲"


def test_a_text_stays_where_the_longest_has_too_long_characters() -> None:
    assert truncate_content([{"type": "text", "text": "🚲🚲🚲"}, "bell"], 1, counted_bytes) == ["b"]


def test_the_longest_end_stays_that_fits() -> None:
    assert truncate_start("one two three", 2) == "three"
    assert truncate_start("one twofold", 2) == "twofold"
    assert truncate_start("x" * 100, 2) == "x" * 8
    assert truncate_start("床前明月光", 3) == "明月光"
    assert truncate_start("anything", 0) == ""
    assert truncate_start("any", 1) == "any"


@pytest.mark.parametrize(
    ("content", "cut"),
    [
        ("one two three", "one two"),
        (["one two three"], ["one two"]),
        (["one", {"type": "image"}, "two three"], ["one", {"type": "image"}, "two"]),
        ([{"type": "text", "text": "one two three", "x": 1}], [{"type": "text", "text": "one two", "x": 1}]),
        (["one two three", {"type": "thinking"}, "four"], ["one", {"type": "thinking"}, "four"]),
        (["one", "two", "four"], ["one", "two"]),
    ],
)
def test_the_texts_of_blocks_are_cut_and_the_other_blocks_stay(content: Any, cut: Any) -> None:
    assert truncate_content(content, 2) == cut


def test_a_question_behind_a_long_text_is_not_cut_off() -> None:
    pasted, question = "invoice " * 1000, "Where is my bike?"
    kept = truncate_content(f"{pasted}\n\n{question}", 60)
    assert isinstance(kept, str)
    assert kept.startswith("invoice")
    assert kept.endswith(question)
    blocks = truncate_content([{"type": "text", "text": pasted}, question], 60)
    assert isinstance(blocks, list)
    long, short = blocks
    assert isinstance(long, dict)
    assert 40 < approximate_tokens(long["text"]) <= 60 - approximate_tokens(question)
    assert short == question
