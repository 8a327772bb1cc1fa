"""Messages that are made without their constructors are those that the constructors would have made."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import sys
import threading
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration

from langmem_adapters import warn_once
from langmem_adapters.codec import encode
from langmem_adapters.concurrency import garbage
from langmem_adapters.conversation.log import readable_entries
from langmem_adapters.langchain import BrainChatMessageHistory, convert, message_views, rebuild
from langmem_adapters.langchain.convert import from_message, to_message
from langmem_adapters.langchain.message_views import read_messages
from langmem_adapters.langchain.rebuild import message_from_bytes, message_from_data, rebuild_generation
from langmem_adapters.model import Message
from langmem_adapters.protocols import Item
from langmem_adapters.stores.memory import MemoryStore

CLASSES = [HumanMessage, AIMessage, SystemMessage, ToolMessage]
names = st.text(max_size=6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, plain, max_size=3)
blocks = st.lists(names | st.fixed_dictionaries({"type": st.just("text"), "text": names}), max_size=3)
counts = st.integers(0, 10**9)
usage = st.fixed_dictionaries(
    dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), counts),
    optional={
        "input_token_details": st.dictionaries(st.sampled_from(["audio", "cache_read", "cache_creation"]), counts),
        "output_token_details": st.dictionaries(st.sampled_from(["audio", "reasoning"]), counts),
    },
)
calls = st.fixed_dictionaries({"name": names, "args": objects, "id": st.none() | names})
invalid = st.fixed_dictionaries({name: st.none() | names for name in ("name", "args", "id", "error")})
shared: dict[str, Any] = {"name": names, "id": names, "additional_kwargs": objects, "response_metadata": objects}


def built(cls: type[BaseMessage], optional: dict[str, Any], **required: Any) -> st.SearchStrategy[BaseMessage]:
    fields = st.fixed_dictionaries({"content": names | blocks, **required}, optional={**shared, **optional})
    return fields.map(lambda fields: cls(**fields))


messages = st.one_of(
    built(HumanMessage, {}),
    built(SystemMessage, {}),
    built(ToolMessage, {"artifact": plain, "status": st.sampled_from(["success", "error"])}, tool_call_id=names),
    built(
        AIMessage,
        {
            "tool_calls": st.lists(calls, max_size=2),
            "invalid_tool_calls": st.lists(invalid, max_size=2),
            "usage_metadata": usage,
        },
    ),
)


def state(message: BaseMessage) -> tuple[Any, ...]:
    return (
        type(message),
        message.__dict__,
        list(message.__dict__),
        message.__pydantic_fields_set__,
        message.__pydantic_extra__,
        message.__pydantic_private__,
    )


def item(data: bytes, seq: int = 1) -> Item:
    return Item(seq, str(seq), data)


def full(cls: type[BaseMessage] = AIMessage) -> BaseMessage:
    fields: dict[str, Any] = {"id": "m", "name": "n", "additional_kwargs": {"a": [1]}, "response_metadata": {"b": {}}}
    if cls is ToolMessage:
        fields |= {"tool_call_id": "c", "artifact": {"x": [1]}, "status": "error"}
    if cls is AIMessage:
        fields["tool_calls"] = [{"name": "f", "args": {"x": [1]}, "id": "c"}]
        fields["invalid_tool_calls"] = [{"name": "f", "args": "{", "id": "d", "error": "no"}]
        fields["usage_metadata"] = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        fields["usage_metadata"]["input_token_details"] = {"cache_read": 1}
    return cls([{"type": "text", "text": "t"}], **fields)


@given(messages)
def test_it_is_what_the_constructor_makes_in_every_field(message: BaseMessage) -> None:
    data = to_message(message).to_bytes()
    stored = Message.from_bytes(data)
    expected = state(convert._construct_message(stored))
    for made in (message_from_bytes(data), message_from_data(Message.from_bytes(data).to_data())):
        assert made is None or state(made) == expected
    assert state(from_message(stored)) == expected
    (again,) = read_messages([item(data)])
    assert state(again) == expected
    assert again == message


@pytest.mark.parametrize("cls", CLASSES)
def test_no_constructor_is_asked(cls: type[BaseMessage], monkeypatch: pytest.MonkeyPatch) -> None:
    """What all of this is for; with a release of langchain-core that is not known, this is the test that fails."""
    message = full(cls)
    data = to_message(message).to_bytes()
    stored = Message.from_bytes(data)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("constructed")

    monkeypatch.setattr(BaseMessage, "__init__", refuse)
    monkeypatch.setattr(cls, "__init__", refuse)
    assert from_message(stored) == message
    monkeypatch.setattr(Message, "from_bytes", refuse)
    assert read_messages([item(data)]) == [message]


@pytest.mark.parametrize("cls", CLASSES)
def test_nothing_is_shared_with_what_it_was_made_of(cls: type[BaseMessage]) -> None:
    stored = Message.from_bytes(to_message(full(cls)).to_bytes())
    before = stored.model_copy(deep=True)
    made: Any = from_message(stored)
    made.content.append("more")
    made.content[0]["text"] = "other"
    made.additional_kwargs["a"] = 2
    made.response_metadata["b"] = 2
    if cls is AIMessage:
        made.tool_calls[0]["args"]["x"] = 2
        made.tool_calls.clear()
        made.invalid_tool_calls[0]["name"] = "g"
        made.usage_metadata["input_tokens"] = 9
        made.usage_metadata["input_token_details"]["cache_read"] = 9
    assert stored == before


def test_each_has_a_set_of_given_fields_of_its_own() -> None:
    data = to_message(HumanMessage("a")).to_bytes()
    one, other = read_messages([item(data), item(data, 2)])
    one.name = "n"
    assert "name" not in other.model_fields_set
    one.extra_of_my_own = 1  # type: ignore[attr-defined]
    assert other.model_extra == {}


def changed(cls: type[BaseMessage] = AIMessage, **own: Any) -> dict[str, Any]:
    data = to_message(full(cls)).to_data()
    return {**data, "host": {"langchain": {**data["host"]["langchain"], **own}}}


USAGE = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}


@pytest.mark.parametrize(
    "fields",
    [
        {**changed(), "content": [1]},
        {**changed(), "content": {"a": 1}},
        {**changed(), "name": 1},
        {**changed(), "role": "moderator"},
        {**changed(), "host": {"llamaindex": {"a": 1}}},
        {**changed(), "tool_calls": [{"name": "f", "args": {}, "id": "c", "extras": {"s": 1}}]},
        {**changed(), "tool_calls": [{"name": "f", "args": {1: 2}, "id": "c"}]},
        {**changed(), "tool_calls": [{"name": None, "args": {}, "id": "c"}]},
        {**changed(), "tool_calls": [{"name": "f", "args": {}, "id": 4}]},
        {**changed(), "tool_calls": [5]},
        changed(additional_kwargs={"tool_calls": []}),
        changed(additional_kwargs=[]),
        changed(response_metadata=None),
        changed(id=4),
        changed(type="chat"),
        changed(extra={"x": 1}),
        changed(unheard_of=1),
        changed(invalid_tool_calls=[{"name": 4}]),
        changed(invalid_tool_calls=[{"type": "tool_call"}]),
        changed(invalid_tool_calls=[{"index": 1}]),
        changed(invalid_tool_calls=[None]),
        changed(usage_metadata=[]),
        changed(usage_metadata={"input_tokens": 1}),
        changed(usage_metadata={**USAGE, "total_cost": 0}),
        changed(usage_metadata={**USAGE, "total_tokens": 3.0}),
        changed(usage_metadata={**USAGE, "input_token_details": {"reasoning": 1}}),
        changed(usage_metadata={**USAGE, "output_token_details": {"reasoning": "1"}}),
        changed(usage_metadata={**USAGE, "output_token_details": 1}),
        changed(ToolMessage, status="unknown"),
        changed(ToolMessage, usage_metadata=USAGE),
        {**changed(ToolMessage), "tool_call_id": 4},
        {"role": "user", "content": "cut", "metadata": {"interrupted": True}},
    ],
)
def test_what_the_class_would_change_or_refuse_is_left_to_it(fields: dict[str, Any]) -> None:
    assert message_from_data(fields) is None
    assert message_from_bytes(encode({"v": 1, **fields})) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"created_at": "noon"},
        {"id": 4},
        {"tool_call_id": 4},
        {"tool_calls": {}},
        {"metadata": []},
        {"host": []},
        {"host": {"langchain": 4}},
        {"role": 4},
        {"content": 4},
        {"v": 2},
        {"v": None},
        {"tool_calls": [{"args": 4}]},
        {"newer": 1},
        {"metadata": {"at": {"$type": "tuple", "$value": [1]}}},
    ],
)
def test_what_is_damaged_or_newer_is_read_as_before_with_the_same_warning(
    damage: dict[str, Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"v": 1, **to_message(full()).to_data(), **damage}
    data = json.dumps(fields).encode()
    expected = [from_message(message) for _, message in readable_entries([item(data)])]
    said = [record.getMessage() for record in caplog.records]
    caplog.clear()
    monkeypatch.setattr(warn_once, "_warn_of_damage", warn_once.WarnOnce())  # so that it is said again
    assert read_messages([item(data)]) == expected
    assert [record.getMessage() for record in caplog.records] == said


@pytest.mark.parametrize("data", [b"", b"[]", b"4", b"{", b'{"v":1}', b"\xff", b'"v"'])
def test_what_is_beyond_reading_is_passed_over_with_a_warning(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    good = to_message(HumanMessage("a")).to_bytes()
    with caplog.at_level(logging.WARNING):
        assert [message.content for message in read_messages([item(data), item(good, 2)])] == ["a"]
    assert "log entry 1" in caplog.text


@pytest.mark.parametrize("value", [(1, (2,)), b"2", {1: 2}, float("inf"), "\ud800", {"$type": "tuple"}, 2**70])
def test_what_json_lacks_comes_back(value: Any) -> None:
    message = HumanMessage("a", additional_kwargs={"value": value})
    assert read_messages([item(to_message(message).to_bytes())]) == [message]


class Newer(HumanMessage):
    """As a later release might have it."""

    importance: int = 0


class Stricter(HumanMessage):
    def __init__(self, content: Any = None, **fields: Any) -> None:
        super().__init__(content, **{**fields, "name": "always"})


@pytest.mark.parametrize("cls", [Newer, Stricter])
def test_a_class_that_makes_something_else_is_noticed(cls: type[BaseMessage]) -> None:
    _, type_, add = rebuild._ALL_KINDS["user"]
    assert rebuild._is_built_alike("user", (HumanMessage, type_, add), {"content": "a"})
    assert not rebuild._is_built_alike("user", (cls, type_, add), {"content": "a"})


# --- many at a time


@pytest.fixture
def many() -> list[Item]:
    return [item(to_message(HumanMessage(str(n), id=str(n))).to_bytes(), n) for n in range(garbage.MIN_COUNT)]


@pytest.mark.parametrize("was_on", [True, False])
def test_the_garbage_collector_rests_meanwhile_and_is_as_it_was_afterwards(
    was_on: bool, many: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[bool] = []

    def watched(data: bytes) -> BaseMessage | None:
        states.append(gc.isenabled())
        return message_from_bytes(data)

    monkeypatch.setattr(message_views, "message_from_bytes", watched)
    if not was_on:
        gc.disable()
    try:
        assert [message.content for message in read_messages(many)] == [str(n) for n in range(len(many))]
        assert gc.isenabled() is was_on
    finally:
        gc.enable()
    assert set(states) == {False}


def test_it_goes_on_after_the_last_of_several_readers_and_after_an_error(
    many: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(data: bytes) -> BaseMessage | None:
        inside.set()
        go_on.wait(10)
        return message_from_bytes(data)

    monkeypatch.setattr(message_views, "message_from_bytes", slow)
    thread = threading.Thread(target=read_messages, args=(many,))
    thread.start()
    inside.wait(10)

    def fail(_: bytes) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(message_views, "message_from_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        read_messages(many)
    assert not gc.isenabled()  # for the other one
    go_on.set()
    monkeypatch.undo()
    thread.join(10)
    assert gc.isenabled()


def test_no_interrupt_leaves_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts are raised where a Python function begins, and where one in C has ended."""
    monkeypatch.setattr(garbage, "MIN_COUNT", 2)
    few = [item(to_message(HumanMessage("a")).to_bytes())] * 2
    remaining = 0
    error: KeyboardInterrupt | None

    def interrupt(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal remaining
        if event in {"call", "c_return"}:
            remaining -= 1
            if remaining < 0:
                raise KeyboardInterrupt

    for calls in itertools.count():
        remaining, error = calls, None
        profiler = sys.getprofile()
        try:
            sys.setprofile(interrupt)
            read_messages(few)
        except KeyboardInterrupt as interrupted:
            error = interrupted  # a notebook keeps the last error, too, with all that its traceback holds
        finally:
            sys.setprofile(profiler)
        was_enabled = gc.isenabled()
        gc.enable()
        assert was_enabled, f"after {calls} calls"
        if error is None:
            break
    assert calls > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_it_goes_on_in_a_forked_child_which_has_no_reader(many: list[Item], monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[int] = []

    def forking(data: bytes) -> BaseMessage | None:
        if not children:
            children.append(os.fork())
            if children[0] == 0:
                os._exit(0 if gc.isenabled() else 1)
        return message_from_bytes(data)

    monkeypatch.setattr(message_views, "message_from_bytes", forking)
    read_messages(many)
    assert os.waitpid(children[0], 0)[1] == 0
    assert gc.isenabled()


def test_a_few_do_not_touch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "disable", lambda: pytest.fail("disabled"))
    assert len(read_messages([item(to_message(HumanMessage("a")).to_bytes())] * 3)) == 3


async def test_a_history_reads_the_same_with_a_window_and_without() -> None:
    url = "memory:rebuild"
    said = [HumanMessage("q", id="1"), full(), ToolMessage("r", tool_call_id="c", id="3"), AIMessage("a", id="4")]
    history = BrainChatMessageHistory("s", url=url)
    history.add_messages(said)
    assert history.messages == await history.aget_messages() == said
    window = BrainChatMessageHistory("s", url=url, memory_k=10)
    assert window.messages == await window.aget_messages()
    assert [type(message) for message in window.messages] == [type(message) for message in said]


turns = st.lists(
    st.one_of(
        st.builds(HumanMessage, names),
        st.builds(AIMessage, names),
        st.builds(SystemMessage, names),
        st.builds(
            lambda text, ids: AIMessage(text, tool_calls=[{"name": "f", "args": {}, "id": id_} for id_ in ids]),
            names,
            st.sets(st.sampled_from("abc"), min_size=1),
        ),
        st.builds(lambda id_: ToolMessage("r", tool_call_id=id_), st.sampled_from("abc")),
    ),
    max_size=12,
)


@given(turns, st.integers(1, 6))
def test_a_window_is_the_one_that_the_memory_itself_shows(said: list[BaseMessage], k: int) -> None:
    history = BrainChatMessageHistory("s", store=MemoryStore(), memory_k=k)
    history.add_messages(said)
    assert history.messages == [from_message(message) for message in history.brain.context(k).messages]


def test_a_window_of_tokens_holds_no_more_than_these() -> None:
    history = BrainChatMessageHistory("s", store=MemoryStore(), max_tokens=40, memory_k=10)
    history.add_messages([HumanMessage("word " * 10 + str(n)) for n in range(6)])
    assert [message.content[-1] for message in history.messages] == ["4", "5"]


def test_what_says_no_version_is_not_ours_and_an_empty_id_is_none() -> None:
    assert message_from_bytes(b'{"role":"user","content":"a"}') is None
    made = message_from_bytes(b'{"v":1,"id":"","role":"user","content":"a"}')
    assert made is not None
    assert state(made) == state(HumanMessage("a"))


# --- generations


@pytest.mark.parametrize("content", ["text", ["a", {"type": "text", "text": "b"}], [{"text": "old"}]])
@pytest.mark.parametrize("info", [None, {}, {"finish_reason": "stop"}])
def test_a_generation_is_what_its_constructor_makes(content: Any, info: dict[str, Any] | None) -> None:
    made = rebuild_generation(AIMessage(content, id="m"), info)
    expected = ChatGeneration(message=AIMessage(content, id="m"), generation_info=info)
    assert (made, made.text, made.model_fields_set) == (expected, expected.text, expected.model_fields_set)
    assert rebuild._pydantic_state(made) == rebuild._pydantic_state(expected)


def test_no_constructor_of_a_generation_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild, "ChatGeneration", type("Refused", (ChatGeneration,), {"__init__": None}))
    assert rebuild_generation(AIMessage("a"), None).text == "a"
    with pytest.raises(TypeError):
        rebuild_generation(AIMessage(["a"]), None)
