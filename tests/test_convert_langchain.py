"""LangChain's messages survive storage (A1), damage (A2) and foreign classes (C6)."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import logging
import math
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
    message_chunk_to_message,
    message_to_dict,
    messages_from_dict,
)

from langmem_adapters import codec
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.langchain.convert import from_message, to_message, to_stored_message
from langmem_adapters.model import Message, MessageData, ToolCall


def stored(message: BaseMessage) -> Message:
    return Message.from_bytes(to_message(message).to_bytes())


def again(message: BaseMessage) -> BaseMessage:
    return from_message(stored(message))


CALLS = [
    {"name": "search", "args": {"q": "bike", "n": [1, 2.5, None]}, "id": "call_1", "type": "tool_call"},
    {"name": "book", "args": {}, "id": None, "type": "tool_call"},
]
INVALID = [{"name": "f", "args": '{"x":', "id": "call_3", "error": "cut off", "type": "invalid_tool_call"}]
USAGE = {
    "input_tokens": 10,
    "output_tokens": 5,
    "total_tokens": 15,
    "input_token_details": {"cache_read": 3},
    "total_cost": 0.25,
}
BLOCKS: list[str | dict[str, Any]] = [
    "look",
    {"type": "text", "text": "at this", "cache_control": {"type": "ephemeral"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}},
    {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    {"type": "invalid_tool_call", "name": "f", "args": "{", "id": "x", "error": None},
]
BEYOND_JSON = {
    1: "integer key",
    (2, 3): "tuple key",
    "bytes": b"\x00\xff",
    "tuple": (1, (2,)),
    "set": {1, 2},
    "datetime": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone.utc),
    "date": dt.date(2026, 1, 2),
    "decimal": decimal.Decimal("1.10"),
    "uuid": uuid.UUID(int=7),
    "infinity": math.inf,
    "$type": "bytes",
    "surrogate \ud800": "\udfff",
}

FALSY: list[Any] = [0, "", False, [], {}]

A1 = [
    HumanMessage(content="hi"),
    HumanMessage(content="", id=""),
    HumanMessage(content="hi", id="h1", name="bob", likes=["tea"], example=False, nothing=None),
    HumanMessage(content=BLOCKS, id="h2", additional_kwargs=BEYOND_JSON, response_metadata=BEYOND_JSON),
    HumanMessage(content=[{"type": "odd", 1: 2, b"k": (3,)}]),
    HumanMessage(content=[]),
    HumanMessage(content="x", name="", tool_calls="an extra", role="extra", usage_metadata=3, type="human"),
    AIMessage(content="", tool_calls=CALLS),
    AIMessage(content=[]),
    AIMessage(
        content="two calls",
        id="run-1",
        name="helper",
        tool_calls=CALLS,
        invalid_tool_calls=INVALID,
        usage_metadata=USAGE,
        response_metadata={"model_name": "m", "logprobs": {"content": [{"token": "a", "logprob": -0.5}]}},
        additional_kwargs={"refusal": None, "tool_calls": [{"id": "call_1", "function": {"name": "search"}}]},
    ),
    AIMessage(content=BLOCKS, invalid_tool_calls=INVALID, response_metadata={"output_version": "v1"}),
    AIMessage(content="x").model_copy(
        update={"additional_kwargs": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}]}}
    ),
    SystemMessage(content="be kind"),
    SystemMessage(content="be kind", additional_kwargs={"__openai_role__": "developer"}, id="s"),
    ToolMessage(content="42", tool_call_id="call_1"),
    ToolMessage(content="", tool_call_id=""),
    ToolMessage(
        content=[{"type": "text", "text": "no"}],
        tool_call_id="call_2",
        name="book",
        artifact={"rows": [(1, b"a")], "at": dt.date(2026, 1, 1)},
        status="error",
    ),
    *(ToolMessage(content="x", tool_call_id="c", artifact=artifact) for artifact in FALSY),
    FunctionMessage(content="42", name="add", id="f"),
    ChatMessage(content="order!", role="moderator"),
    ChatMessage(content="hi", role="user", id="c"),
    ChatMessage(content="hi", role="tool"),
    ChatMessage(content="hi", role=""),
    HumanMessage(content="lone \ud800 surrogate", id="\udcff"),
]


@pytest.mark.parametrize("message", A1, ids=lambda message: f"{message.type}-{A1.index(message)}")
def test_a1_every_message_comes_back_equal(message: BaseMessage) -> None:
    back = again(message)
    assert type(back) is type(message)
    assert back == message
    assert from_message(to_message(message)) == message, "without bytes in between"


def test_a1_an_id_is_handed_out_by_the_memory_and_hidden_from_langchain() -> None:
    without, empty = to_message(HumanMessage(content="hi")), to_message(HumanMessage(content="hi", id=""))
    assert without.id == empty.id == ""
    without.id, empty.id = "given-1", "given-2"
    assert from_message(Message.from_bytes(without.to_bytes())).id is None
    assert from_message(Message.from_bytes(empty.to_bytes())).id == ""
    assert to_message(HumanMessage(content="hi", id="mine")).id == "mine"


def test_values_beyond_json_keep_their_types() -> None:
    message = HumanMessage(content="x", additional_kwargs=BEYOND_JSON, response_metadata={"nan": math.nan})
    back = again(message)
    for key, value in BEYOND_JSON.items():
        assert type(back.additional_kwargs[key]) is type(value)
    assert math.isnan(back.response_metadata["nan"])


def test_a_large_message_comes_back_equal() -> None:
    message = AIMessage(content="é" * 5_000_000, id="big")
    assert again(message) == message


def test_nothing_is_stored_twice_and_defaults_not_at_all() -> None:
    assert to_message(HumanMessage(content="hi", id="h")) == Message(id="h", role="user", content="hi")
    assert to_message(ToolMessage(content="a", tool_call_id="c", id="t")).host == {}
    data = to_message(AIMessage(content="needle", tool_calls=[{"name": "f", "args": {"x": "thread"}, "id": "1"}]))
    assert data.to_bytes().count(b"needle") == data.to_bytes().count(b"thread") == 1


def test_the_shared_fields_are_filled_for_everyone_else() -> None:
    message = to_message(AIMessage(content="on it", tool_calls=CALLS, name="helper"))
    assert (message.role, message.content, message.name) == ("assistant", "on it", "helper")
    assert message.tool_calls[0] == ToolCall(id="call_1", name="search", args={"q": "bike", "n": [1, 2.5, None]})
    roles = [to_message(m).role for m in (SystemMessage("a"), HumanMessage("a"), ChatMessage(content="a", role="x"))]
    assert roles == ["system", "user", "x"]
    assert to_message(FunctionMessage(content="1", name="add")).role == "function"
    assert to_message(ToolMessage(content="1", tool_call_id="c")).tool_call_id == "c"
    assert to_message(SystemMessage("a", additional_kwargs={"__openai_role__": "developer"})).role == "developer"


CHUNKS: list[BaseMessageChunk] = [
    HumanMessageChunk(content="hi"),
    SystemMessageChunk(content="hi", id="s"),
    ToolMessageChunk(content="42", tool_call_id="c", artifact=(1, 2), status="error"),
    FunctionMessageChunk(content="42", name="add"),
    ChatMessageChunk(content="hi", role="moderator"),
    AIMessageChunk(content="hi", id="run-1", usage_metadata=USAGE, chunk_position="last"),
    AIMessageChunk(
        content="",
        tool_call_chunks=[
            {"name": "search", "args": '{"q": "bi', "id": "1", "index": 0, "type": "tool_call_chunk"},
            {"name": "f", "args": "[oops", "id": "2", "index": 1, "type": "tool_call_chunk"},
        ],
    )
    + AIMessageChunk(
        content="",
        tool_call_chunks=[{"name": None, "args": 'ke"}', "id": None, "index": 0, "type": "tool_call_chunk"}],
    ),
]


@pytest.mark.parametrize("chunk", CHUNKS, ids=lambda chunk: f"{chunk.type}-{CHUNKS.index(chunk)}")
def test_a1_a_chunk_comes_back_as_the_whole_message(chunk: BaseMessageChunk) -> None:
    whole = message_chunk_to_message(chunk)
    back = again(chunk)
    assert type(back) is type(whole)
    assert back == whole


def test_the_calls_of_a_streamed_answer_are_read() -> None:
    message = stored(CHUNKS[-1])
    assert [(call.name, call.args) for call in message.tool_calls] == [("search", {"q": "bike"})]


def test_a_request_to_remove_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="RemoveMessage"):
        to_message(RemoveMessage(id="x"))


def test_c6_a_class_of_the_users_own_comes_back_as_the_nearest_one() -> None:
    class Question(HumanMessage):
        urgency: int = 1

    class Streamed(AIMessageChunk):
        pass

    class Alien(BaseMessage):
        type: str = "alien"

    back = again(Question(content="where?", urgency=3, id="q"))
    assert type(back) is HumanMessage
    assert back == HumanMessage(content="where?", urgency=3, id="q")
    assert again(Streamed(content="a")) == AIMessage(content="a")
    assert again(Alien(content="ack")) == ChatMessage(content="ack", role="alien")


def test_c6_a_planted_class_name_is_data() -> None:
    message = Message(role="user", content="x", host={"langchain": {"type": "os.system", "id": None}})
    assert from_message(message) == HumanMessage(content="x")
    message.host["langchain"]["type"] = ["human"]
    assert from_message(message) == HumanMessage(content="x")


def test_what_was_set_after_construction_stays_as_it_was_set() -> None:
    raw = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    message = AIMessage(content="x", additional_kwargs={"tool_calls": raw})
    message.tool_calls = []
    assert again(message) == message
    message.tool_calls = [{"name": "f", "args": {}, "id": "1", "type": "tool_call", "extras": {"sig": b"s"}}]  # type: ignore[typeddict-unknown-key]
    assert again(message) == message
    message.tool_calls = [{"name": "f", "args": "no object", "id": "1"}]  # type: ignore[typeddict-item]
    with pytest.raises(SerializationError, match="tool_calls"):
        to_message(message)


@pytest.mark.parametrize(
    ("usage", "complete"),
    [
        ({"total_cost": 0}, {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, "total_cost": 0}),
        ({"input_tokens": 3, "output_tokens": 4}, {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}),
    ],
)
@pytest.mark.parametrize("cls", [AIMessage, AIMessageChunk])
def test_a2_incomplete_usage_is_completed_on_write(
    cls: type[AIMessage], usage: dict[str, Any], complete: dict[str, Any]
) -> None:
    message = cls(content="from a cache")
    message.usage_metadata = usage  # type: ignore[assignment] # as langchain_core itself does on a hit
    back = again(message)
    assert isinstance(back, AIMessage)
    assert back.usage_metadata == complete
    assert messages_from_dict(json.loads(json.dumps([message_to_dict(back)]))) == [back]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("usage_metadata", {"total_cost": 0}),
        ("usage_metadata", "many"),
        ("invalid_tool_calls", [{"unknown": 1}]),
        ("invalid_tool_calls", ["text"]),
        ("additional_kwargs", [1]),
        ("response_metadata", "text"),
        ("id", {"a": 1}),
    ],
)
def test_a2_a_damaged_field_is_left_out_with_a_warning(
    field: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    host = {"response_metadata": {"kept": 1}, "extra": {"kept_too": 2}} | {field: value}
    row = codec.encode({"v": 1, "id": "m-7", "role": "assistant", "content": "secret", "host": {"langchain": host}})
    with caplog.at_level(logging.WARNING, logger="langmem_adapters"):
        back = from_message(Message.from_bytes(row))
    assert isinstance(back, AIMessage)
    assert back.content == "secret"
    assert back.model_extra == {"kept_too": 2}
    assert back.response_metadata == ({} if field == "response_metadata" else {"kept": 1})
    (record,) = caplog.records
    assert "m-7" in record.getMessage()
    assert field in record.getMessage()
    assert "secret" not in record.getMessage()


def test_a2_a_damaged_tool_message_keeps_what_is_whole(caplog: pytest.LogCaptureFixture) -> None:
    host = {"status": "maybe", "artifact": (1,), "extra": "no object", "type": "tool"}
    message = Message(id="t", role="tool", content="42", tool_call_id="c", host={"langchain": host})
    assert from_message(message) == ToolMessage(content="42", tool_call_id="c", artifact=(1,), id="t")
    assert "status" in caplog.text


def test_a2_malformed_tool_calls_do_not_lose_the_message(caplog: pytest.LogCaptureFixture) -> None:
    damaged: list[Any] = [{"bad": 1}, ToolCall(id="1", name="f")]
    message = Message.model_construct(id="m", role="assistant", content="x", tool_calls=damaged, host={})
    expected = AIMessage(content="x", id="m", tool_calls=[{"name": "f", "args": {}, "id": "1"}])
    assert from_message(message) == expected
    assert "tool_calls" in caplog.text


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(id="1", role="user", content="a", name="bob"), HumanMessage("a", id="1", name="bob")),
        (Message(role="assistant", content="a"), AIMessage("a")),
        (Message(role="system", content="a"), SystemMessage("a")),
        (
            Message(role="developer", content="a"),
            SystemMessage("a", additional_kwargs={"__openai_role__": "developer"}),
        ),
        (Message(role="tool", content="a", tool_call_id="c"), ToolMessage(content="a", tool_call_id="c")),
        (Message(role="tool", content="a"), ToolMessage(content="a", tool_call_id="")),
        (Message(role="function", content="a"), FunctionMessage(content="a", name="")),
        (Message(role="planner", content="a"), ChatMessage(content="a", role="planner")),
    ],
)
def test_a_message_of_another_framework_is_read_by_its_role(message: Message, expected: BaseMessage) -> None:
    back = from_message(message)
    assert type(back) is type(expected)
    assert back == expected


texts = st.text(st.characters(), max_size=8)  # lone surrogates included
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(max_size=5)
keys = texts | st.integers() | st.tuples(st.integers())
values = st.recursive(
    scalars | st.dates() | st.decimals(allow_nan=False) | st.uuids(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
        | st.tuples(inner)
        | st.frozensets(st.integers(), max_size=2)
    ),
    max_leaves=5,
)
mappings = st.dictionaries(texts | keys, values, max_size=3)
contents = texts | st.lists(texts | st.dictionaries(keys, values, max_size=3), max_size=3)
ids = st.none() | texts
tool_calls = st.lists(
    st.fixed_dictionaries({"name": texts, "args": st.dictionaries(texts, values, max_size=3), "id": ids}),
    max_size=3,
)
invalid_calls = st.lists(
    st.fixed_dictionaries({"name": ids, "args": ids, "id": ids, "error": ids}), min_size=1, max_size=2
)
counts = st.integers(0, 10**9)
usages = st.fixed_dictionaries(
    {"input_tokens": counts, "output_tokens": counts, "total_tokens": counts},
    optional={
        "input_token_details": st.fixed_dictionaries({}, optional={"audio": counts}),
        "cost": st.floats(0, 9),
    },
)
extras = {"note": values, "content_id": values, "tags": values}


def messages(cls: type[BaseMessage], **required: st.SearchStrategy[Any]) -> st.SearchStrategy[BaseMessage]:
    shared = {"id": ids, "name": ids, "additional_kwargs": mappings, "response_metadata": mappings}
    optional: dict[str, st.SearchStrategy[Any]] = shared | extras
    if cls is AIMessage:
        optional |= {"tool_calls": tool_calls, "invalid_tool_calls": invalid_calls, "usage_metadata": usages}
    if cls is ToolMessage:
        optional |= {"artifact": values, "status": st.sampled_from(["success", "error"])}
    for name in required:
        optional.pop(name, None)
    fields = st.fixed_dictionaries({"content": contents} | required, optional=optional)
    return fields.map(lambda values: cls(**values))


any_message = st.one_of(
    messages(HumanMessage),
    messages(AIMessage),
    messages(SystemMessage),
    messages(ToolMessage, tool_call_id=texts),
    messages(FunctionMessage, name=texts),
    messages(ChatMessage, role=texts | st.sampled_from(["user", "assistant", "tool", "system", "developer"])),
)


@settings(max_examples=300, deadline=None)
@given(any_message)
def test_a1_any_message_comes_back_equal(message: BaseMessage) -> None:
    before = message.model_copy(deep=True)
    back = again(message)
    assert type(back) is type(message)
    assert back == message
    assert message == before, "a conversion does not change its argument"


# --- written without a Message


@given(any_message)
def test_what_is_written_without_a_message_is_what_the_message_would_have_written(message: BaseMessage) -> None:
    written = to_stored_message(message)
    whole = written if isinstance(written, Message) else written.message()
    assert whole == to_message(message)
    assert Message.from_bytes(written.to_bytes()) == stored(message)
    assert from_message(Message.from_bytes(written.to_bytes())) == again(message)
    assert (written.id, written.created_at, written.metadata) == (whole.id, None, {})


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("a", id="1", name="ada"),
        SystemMessage([{"type": "text", "text": "a"}, "b"]),
        AIMessage("", tool_calls=[{"name": "f", "args": {"x": [1, 2]}, "id": "c"}]),
        ToolMessage("r", tool_call_id="c", artifact={"x": [1]}),
        ChatMessage(content="a", role="moderator"),
    ],
)
def test_an_ordinary_message_is_written_without_one(message: BaseMessage) -> None:
    assert isinstance(to_stored_message(message), MessageData)


class Text(str):
    """No plain text, as Message would make it one."""

    __slots__ = ()


def changed(message: BaseMessage, **values: Any) -> BaseMessage:
    message.__dict__.update(values)
    return message


@pytest.mark.parametrize(
    "message",
    [
        changed(HumanMessage("a"), content=Text("a")),
        changed(HumanMessage("a"), id=Text("a")),
        changed(HumanMessage("a"), name=Text("a")),
        changed(ToolMessage("a", tool_call_id="c"), tool_call_id=Text("c")),
        changed(AIMessage("a"), tool_calls=[{"name": Text("f"), "args": {}, "id": "c"}]),
        changed(AIMessage("a"), tool_calls=[{"name": "f", "args": {Text("x"): 1}, "id": "c"}]),
        changed(AIMessage("a"), tool_calls=[{"name": "f", "args": {}, "id": None}]),
        changed(AIMessage("a"), tool_calls=[{"name": "f", "args": {}, "id": "c", "extras": {}}]),
        AIMessage("a", tool_calls=[{"name": "f", "args": {"x": (1, 2)}, "id": "c"}]),
        HumanMessage([{"type": "file", "data": b"pixels"}]),
        HumanMessage("a", additional_kwargs={"at": dt.date(2026, 7, 1)}),
        HumanMessage("a", response_metadata={"$type": "tuple"}),
        HumanMessage("a", sent_by={Text("x"): 1}),
        ToolMessage("r", tool_call_id="c", artifact=[{1: 2}]),
        ToolMessage("r", tool_call_id="c", artifact=Text("a")),
    ],
)
def test_what_a_message_would_make_something_else_of_goes_through_one(message: BaseMessage) -> None:
    assert to_stored_message(message) == to_message(message)
    assert Message.from_bytes(to_stored_message(message).to_bytes()) == stored(message)


@pytest.mark.parametrize("place", ["content", "args", "additional_kwargs", "extra"])
@pytest.mark.parametrize("levels", range(193, 202))
def test_what_is_nested_too_deep_is_refused_in_every_part(place: str, levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    makers: dict[str, Callable[[], BaseMessage]] = {
        "content": lambda: HumanMessage([{"type": "t", "x": value}]),
        "args": lambda: AIMessage("a", tool_calls=[{"name": "f", "args": {"x": value}, "id": "c"}]),
        "additional_kwargs": lambda: HumanMessage("a", additional_kwargs={"x": value}),
        "extra": lambda: HumanMessage("a", x=value),
    }
    message = makers[place]()
    outer_levels = 3 if place == "content" else 4
    if outer_levels + levels <= 200:
        assert again(message) == message
        assert Message.from_bytes(to_stored_message(message).to_bytes()) == to_message(message)
    else:
        with pytest.raises(SerializationError, match="200 levels"):
            to_stored_message(message).to_bytes()


@pytest.mark.parametrize("usage", [(1, 2, 3), (0, 0, 0), (1, None, None), (None, 2, 5), (1, 0, 1)])
def test_missing_counts_of_tokens_are_added_and_those_given_stay(usage: tuple[int | None, ...]) -> None:
    names = ("input_tokens", "output_tokens", "total_tokens")
    counts = {name: count for name, count in zip(names, usage, strict=True) if count is not None}
    given, found, total = ({**dict.fromkeys(names, 0), **counts}[name] for name in names)
    message = changed(AIMessage("a"), usage_metadata={**counts, "input_token_details": {"audio": 1}})
    written = to_message(message).host["langchain"]["usage_metadata"]
    expected = (given, found, total if "total_tokens" in counts else given + found)
    assert written == {**dict(zip(names, expected, strict=True)), "input_token_details": {"audio": 1}}


@pytest.mark.parametrize(
    "values",
    [
        {"content": 4},
        {"content": [4]},
        {"content": {"text": "what was said"}},
        {"id": 4},
        {"name": 4},
        {"tool_calls": [{"name": 4, "args": {}, "id": "c"}]},
        {"tool_calls": [{"name": "f", "args": [], "id": "c"}]},
        {"tool_calls": [{"name": "f", "args": {1: 2}, "id": "c"}]},
    ],
)
def test_what_a_message_refuses_is_not_written_either(values: dict[str, Any]) -> None:
    with pytest.raises(SerializationError, match="values of a wrong type") as caught:
        to_stored_message(changed(AIMessage("a"), **values))
    assert "what was said" not in "".join(traceback.format_exception(caught.value))
