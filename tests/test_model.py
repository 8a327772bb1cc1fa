"""The vocabulary as bytes."""

from __future__ import annotations

import logging
import math
import traceback
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langmem_adapters.codec import decode, encode, is_newer, is_sealed
from langmem_adapters.errors import SerializationError
from langmem_adapters.model import (
    Experience,
    Memory,
    Message,
    Metric,
    Occurrence,
    Score,
    SessionInfo,
    Summary,
    ToolCall,
    Trajectory,
    salvage,
)

names = st.text(max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(names, plain, max_size=3)
unknown = st.dictionaries(st.from_regex(r"x[a-z]{1,5}", fullmatch=True), plain, max_size=3)
calls = st.builds(ToolCall, id=st.none() | names, name=names, args=objects)
messages = st.builds(
    lambda extra, **fields: Message(**fields, **extra),
    unknown,
    id=names,
    role=st.sampled_from(["system", "user", "assistant", "tool", "moderator", ""]),
    content=names | st.lists(names | st.dictionaries(names, plain, max_size=3), max_size=3),
    name=st.none() | names,
    tool_calls=st.lists(calls, max_size=2),
    tool_call_id=st.none() | names,
    created_at=st.none() | st.floats(allow_nan=False),
    metadata=objects,
    host=st.dictionaries(names, objects, max_size=2),
)


@given(messages)
def test_a_message_comes_back_equal_with_the_fields_of_a_newer_version(message: Message) -> None:
    again = Message.from_bytes(message.to_bytes())
    assert again == message
    assert again.model_extra == message.model_extra


@given(plain, plain, unknown)
def test_an_experience_keeps_its_data_with_their_types(req: Any, resp: Any, extra: dict[str, Any]) -> None:
    metric = Metric(time_cost=1.5, score=Score(val=10, reason="right"))
    kept = Experience(req=req, resp=resp, metric=metric, traj=Trajectory(reward=-1), **extra)
    again = Experience.from_bytes(kept.to_bytes())
    assert again == kept
    assert (type(again.req), type(again.resp)) == (type(req), type(resp))


@pytest.mark.parametrize("resp", ["", 0, 0.0, False, None, [], {}, (), b"", set()])
def test_f2b_falsy_responses_keep_their_type(resp: Any) -> None:
    again = Experience.from_bytes(Experience(req=resp, resp=resp).to_bytes())
    assert (again.req, type(again.req)) == (again.resp, type(again.resp)) == (resp, type(resp))


def test_the_other_nouns_come_back_equal() -> None:
    said = Message(role="user", content="Hello")
    for noun in (
        Memory(id="m", message=said, occurrences=[Occurrence(session="s", message_id="1", created_at=2.0)]),
        Summary(text="", covers="m1", updated_at=1.0),
        SessionInfo(session="s", title="t", messages=3),
    ):
        assert type(noun).from_bytes(noun.to_bytes()) == noun


def test_nan_and_infinity_do_not_make_a_message_unreadable() -> None:
    again = Message.from_bytes(Message(role="user", metadata={"score": math.nan, "best": math.inf}).to_bytes())
    assert math.isnan(again.metadata["score"])
    assert again.metadata["best"] == math.inf


def test_only_what_differs_from_its_default_is_written() -> None:
    assert Message(role="user", content="Hello").to_bytes() == b'{"v":1,"role":"user","content":"Hello"}'


def test_a_field_that_would_hide_the_formats_version_is_refused() -> None:
    with pytest.raises(SerializationError, match=r'^Message cannot have a field "v"'):
        Message(role="user", v=2).to_bytes()


# --- what cannot be read


@pytest.mark.parametrize(
    "data",
    [
        encode({"v": 2, "role": "user", "content": "my-secret"}),
        encode({"v": "my-secret", "role": "user"}),
        encode({"role": "user", "content": "my-secret"}),
        encode(["my-secret"]),
        encode({"v": 1, "role": 5, "content": "my-secret"}),
        encode({"v": 1, "role": "user", "metadata": ["my-secret"]}),
        encode({"v": 1, "role": "user", "content": [{"type": "my-secret"}, 5]}),
        encode({"v": 1, "role": "user", "host": {"my-secret": 5}}),
        encode({"v": 1, "role": "user", "my-secret\ud800": 5}),
        b'{"v":1,"role":"user","content":{"$type":"datetime","$value":"my-secret"}}',
        b'{"v":1,"role":"user","content":"my-secret',
    ],
)
def test_unreadable_bytes_are_one_error_that_does_not_repeat_them(data: bytes) -> None:
    with pytest.raises(SerializationError) as refusal:
        Message.from_bytes(data)
    assert "my-secret" not in "".join(traceback.format_exception(refusal.value))  # nor its causes, as a log has them


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(SerializationError, match="a stored Message has an unknown format version 2"):
        Message.from_bytes(encode({"v": 2, "role": "user"}))


# --- salvage


def test_what_is_sound_is_read_as_it_is_and_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    message = Message(id="1", role="user", content="Hello")
    assert salvage(message.to_bytes(), "row 1") == message
    assert caplog.records == []


def test_a2_a_damaged_message_keeps_its_text_and_is_marked(caplog: pytest.LogCaptureFixture) -> None:
    row = {"v": 1, "id": "1", "role": "user", "content": "my-secret", "tool_calls": "broken"}
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        found = salvage(encode(row), "row 7")
    assert found == Message(id="1", role="user", content="my-secret", metadata={"damaged": True})
    assert [record.getMessage() for record in caplog.records] == [
        "row 7 holds a damaged message: a stored Message has wrong values in tool_calls"
    ]


def test_a2_a_field_whose_name_is_no_unicode_text_does_not_take_its_message_along() -> None:
    found = salvage(encode({"v": 1, "role": "user", "content": "Hello", "\ud800": 5}), "row 7")
    assert found == Message(role="user", content="Hello", metadata={"damaged": True})


def test_damaged_content_blocks_are_kept_as_text() -> None:
    found = salvage(encode({"v": 1, "role": "user", "content": [5, {"type": "text", "text": "Hello"}]}), "row 1")
    assert found is not None
    assert decode(found.text.encode()) == [5, {"type": "text", "text": "Hello"}]


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"5", b'{"v":1}', b'{"v":1,"role":"us'])
def test_what_is_no_message_at_all_is_passed_over_with_a_warning(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "langmem_adapters"):
        assert salvage(data, "row 7") is None
    assert [record.getMessage()[:5] for record in caplog.records] == ["row 7"]


@given(messages, st.data())
def test_no_damage_escapes_as_another_error(message: Message, data: st.DataObject) -> None:
    whole = message.to_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=2)) + whole[at + 1 :]
    looks_whole = is_sealed(damaged) or is_newer(damaged)  # which nobody can tell from what is encrypted, or newer
    with suppress(SerializationError) if looks_whole else nullcontext():
        salvage(damaged, "row 1")


def test_the_text_of_content_blocks_is_their_readable_part() -> None:
    blocks: list[str | dict[Any, Any]] = [
        "one",
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "two"},
        {"type": "text", "text": None},
    ]
    assert Message(role="user", content=blocks).text == "one\ntwo"
