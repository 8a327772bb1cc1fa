"""Conversations from other libraries: what is read, what is refused, and that nothing in the data names code."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.config import Settings
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage
from llama_index.core.base.llms.types import ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.storage.chat_store import SimpleChatStore

from langmem_adapters import ConfigurationError, MissingDependency, SerializationError, json_files
from langmem_adapters.experience import read_metagpt_pool
from langmem_adapters.importing import FileFormat, read_transcripts
from langmem_adapters.langchain import from_message as to_langchain
from langmem_adapters.llamaindex import from_message as to_llamaindex
from langmem_adapters.metagpt import METAGPT
from langmem_adapters.model import Message
from tests.allocations import traced
from tests.test_cli import fails, run, written


def only(path: Path, **settings: Any) -> list[Message]:
    (transcript,) = read_transcripts(path, **settings)
    return transcript.messages()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db"


# --- LangChain ----------------------------------------------------------------------------------------------

LANGCHAIN: list[BaseMessage] = [
    SystemMessage("Be kind."),
    HumanMessage([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "x"}}], id="1"),
    AIMessage("", tool_calls=[{"name": "look", "args": {"x": 1}, "id": "c", "type": "tool_call"}], id="2"),
    ToolMessage("a cat", tool_call_id="c", id="3", status="error"),
    FunctionMessage(content="old", name="f", id="4"),
    ChatMessage(content="critic's words", role="critic", id="5"),
    AIMessage("It is a cat.", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, id="6"),
]


DEEP = json.loads("[" * 600 + "]" * 600)


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: {"messages": m}], ids=["list", "object"])
@pytest.mark.parametrize("how", ["dict", "dumps", "lines"])
def test_langchain_messages_come_back_equal(tmp_path: Path, how: str, wrap: Any) -> None:
    data = json.loads(dumps(LANGCHAIN)) if how == "dumps" else messages_to_dict(LANGCHAIN)
    lines = "\n".join(json.dumps(each) for each in data)
    file = written(tmp_path / "talk.json", lines if how == "lines" else wrap(data))
    found = only(file)
    assert found == only(file, format_="langchain")
    restored = [to_langchain(message) for message in found]
    restored[0].id = None  # it got one of its place and content
    assert found[0].id
    assert restored == LANGCHAIN


def test_what_langchain_marks_so_that_it_is_not_taken_for_its_own_comes_back_unmarked(tmp_path: Path) -> None:
    own = {"lc": 1, "deep": [{"lc": 2}, {"__lc_escaped__": {"lc": 3}}]}
    messages: list[BaseMessage] = [
        HumanMessage(
            [{"type": "text", "text": "Look.", "lc": 1}], additional_kwargs={"all": [own, {"x": own}]}, id="1"
        ),
        AIMessage("", tool_calls=[{"name": "load", "args": own, "id": "c", "type": "tool_call"}], id="2"),
        ToolMessage("done", tool_call_id="c", id="3", artifact={"__lc_escaped__": 5}),
    ]
    file = written(tmp_path / "talk.json", text := dumps(messages))
    assert text.count('{"__lc_escaped__": {') >= len(messages)
    assert [to_langchain(message) for message in only(file)] == messages


def test_a_chunk_becomes_a_whole_message(tmp_path: Path) -> None:
    file = written(tmp_path / "talk.json", dumps([AIMessageChunk(content="half", id="1")]))
    assert [to_langchain(message) for message in only(file)] == [AIMessage("half", id="1")]


@pytest.mark.parametrize(
    "planted",
    [
        {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]},
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "true"}},
        {"lc": 1, "type": "constructor", "id": ["langchain", "llms", "OpenAI"], "kwargs": {}},
        {"lc": 1, "type": "not_implemented", "id": ["x", "HumanMessage"], "kwargs": {"content": "x"}},
        {"lc": 1, "type": "constructor", "id": [], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": "HumanMessage", "kwargs": {"content": "x"}},
        {"lc": 1, "type": "constructor", "id": 7, "kwargs": {"content": "x"}},
        {"lc": 1, "type": "constructor", "id": ["HumanMessage"], "kwargs": {"content": {"x": 1}}},
        {"lc": 1, "type": "constructor", "id": ["HumanMessage"]},
        {"lc": 1, "type": "constructor", "id": ["HumanMessage"], "kwargs": {"content": DEEP}},
        {"type": "remove", "data": {"id": "1"}},
        {"type": "tool", "data": {"content": "no id"}},
        {"type": "human", "data": 3},
        {"type": ["human"], "data": {"content": "x"}},
        7,
    ],
)
def test_c6_nothing_but_messages_is_built(tmp_path: Path, planted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    file = written(tmp_path / "talk.json", [*messages_to_dict([HumanMessage("hi")]), planted])
    with pytest.raises(SerializationError, match="item 2 is not a message of LangChain") as caught:
        read_transcripts(file)
    assert "sk-secret" not in str(caught.value)


def test_a_secret_within_a_message_stays_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    secret = {"lc": 1, "type": "secret", "id": ["OPENAI_API_KEY"]}
    planted = {"lc": 1, "type": "constructor", "id": ["HumanMessage"]}
    file = written(
        tmp_path / "talk.json", [{**planted, "kwargs": {"content": "x", "additional_kwargs": {"k": secret}}}]
    )
    (message,) = only(file)
    assert "sk-secret" not in message.to_bytes().decode()


# --- OpenAI -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ['{"city": ', "[1]", "Paris"])
def test_a_call_that_a_model_wrote_wrongly_is_kept_as_langchain_keeps_it(tmp_path: Path, arguments: str) -> None:
    calls = [{"id": n, "function": {"name": "look", "arguments": args}} for n, args in (("a", arguments), ("b", "{}"))]
    file = written(tmp_path / "talk.json", [{"role": "assistant", "content": "Hm.", "tool_calls": calls}])
    (message,) = only(file)
    restored = to_langchain(message)
    assert isinstance(restored, AIMessage)
    assert [call["id"] for call in restored.tool_calls] == ["b"]
    (invalid,) = restored.invalid_tool_calls
    assert (invalid["id"], invalid["name"], invalid["args"]) == ("a", "look", arguments)


@pytest.mark.parametrize(
    ("arguments", "taken"), [("", {}), (None, {}), ({}, {}), ({"city": "Paris"}, {"city": "Paris"})]
)
def test_arguments_may_be_missing_or_an_object(tmp_path: Path, arguments: object, taken: object) -> None:
    calls = [{"id": "a", "function": {"name": "look", "arguments": arguments}}]
    (message,) = only(written(tmp_path / "talk.json", [{"role": "assistant", "content": "Hm.", "tool_calls": calls}]))
    assert [(call.id, call.name, call.args) for call in message.tool_calls] == [("a", "look", taken)]


def test_a_message_that_has_a_type_is_no_line_of_an_export(tmp_path: Path) -> None:
    (message,) = only(written(tmp_path / "talk.json", [{"type": "message", "role": "user", "content": "hi"}]))
    assert (message.role, message.text) == ("user", "hi")


def test_parts_of_a_message_may_be_plain_texts(tmp_path: Path) -> None:
    (message,) = only(
        written(tmp_path / "talk.json", [{"role": "user", "content": ["Hi", {"type": "text", "text": "!"}]}])
    )
    assert message.content == ["Hi", {"type": "text", "text": "!"}]


def test_parts_beside_a_content_are_kept_beside_it(tmp_path: Path) -> None:
    said = {"role": "user", "content": "Hi!", "parts": [{"type": "text", "text": "Hi!"}]}
    (message,) = only(written(tmp_path / "talk.json", [said]))
    assert (message.content, message.metadata["parts"]) == ("Hi!", said["parts"])


def test_two_messages_of_one_id_are_two_messages(tmp_path: Path) -> None:
    file = written(tmp_path / "talk.json", [{"role": "user", "content": text, "id": "1"} for text in ("one", "two")])
    messages = only(file)
    assert [message.text for message in messages] == ["one", "two"]
    assert messages[0].id == "1" != messages[1].id
    assert only(file) == messages  # with the same ids, so that nothing is imported twice


def test_a_conversation_may_be_without_messages(tmp_path: Path) -> None:
    assert only(written(tmp_path / "talk.json", {"messages": []})) == []


# --- LlamaIndex ---------------------------------------------------------------------------------------------

LLAMA = [
    LlamaMessage(role="system", content="Be kind."),
    LlamaMessage(role="user", blocks=[TextBlock(text="What is this?"), ImageBlock(url="http://localhost/x.png")]),
    LlamaMessage(
        role="assistant",
        blocks=[TextBlock(text="a"), ToolCallBlock(tool_call_id="c", tool_name="n", tool_kwargs={"a": 1})],
    ),
    LlamaMessage(role="tool", content="a cat", additional_kwargs={"tool_call_id": "c"}),
    LlamaMessage(role="assistant", blocks=[ThinkingBlock(content="hm"), TextBlock(text="It is a cat.")]),
]


def dumped(message: LlamaMessage) -> dict[str, Any]:
    blocks = [json.loads(block.model_dump_json(exclude_none=True)) for block in message.blocks]
    return {"role": message.role.value, "additional_kwargs": message.additional_kwargs, "blocks": blocks}


def test_llamaindex_messages_come_back_equal(tmp_path: Path) -> None:
    file = written(tmp_path / "talk.json", [dumped(message) for message in LLAMA])
    found = only(file)
    assert [to_llamaindex(message) for message in found] == LLAMA
    assert all(message.id for message in found)
    assert found == only(file, format_="llama-index")


@pytest.mark.parametrize("format_", ["auto", "llama-index"])
@pytest.mark.parametrize("persisted", [json.dumps, lambda store: json.dumps(json.dumps(store))], ids=["now", "old"])
def test_a_persisted_chat_store_has_its_own_sessions(
    tmp_path: Path, persisted: Callable[[Any], str], format_: FileFormat
) -> None:
    store = {"one": [dumped(LLAMA[1])], "two": [dumped(LLAMA[4]), dumped(LLAMA[4])], "empty": []}
    file = written(tmp_path / "chat_store.json", persisted({"store": store, "class_name": "SimpleChatStore"}))
    assert SimpleChatStore.from_persist_path(str(file)).get_messages("one") == [LLAMA[1]]
    found = read_transcripts(file, format_=format_)
    assert [(each.session, len(each.messages())) for each in found] == [("one", 1), ("two", 2), ("empty", 0)]
    assert to_llamaindex(found[0].messages()[0]) == LLAMA[1]
    with pytest.raises(ConfigurationError, match="names its sessions itself"):
        read_transcripts(file, session="s")


def test_messages_of_llamaindex_before_blocks(tmp_path: Path) -> None:
    said = {"role": "user", "content": "hi", "additional_kwargs": {"name": "Ada"}}
    called: dict[str, Any] = {"role": "assistant", "content": None, "additional_kwargs": {}}
    others = [{"role": "user", "content": "bye"}, {"role": "user", "content": "bye", "additional_kwargs": None}]
    found = only(written(tmp_path / "talk.json", [said, called, *others]))
    assert [(m.role, m.text, m.name) for m in found] == [
        ("user", "hi", "Ada"), ("assistant", "", None), *[("user", "bye", None)] * 2,
    ]  # fmt: skip


def test_no_file_is_opened_for_a_picture(tmp_path: Path) -> None:
    secret = written(tmp_path / "secret.png", "planted")
    block = {"block_type": "image", "path": str(secret)}
    file = written(tmp_path / "talk.json", [{"role": "user", "blocks": [block], "additional_kwargs": {}}])
    (message,) = only(file)
    assert "planted" not in message.to_bytes().decode()
    assert "cGxhbnRlZA" not in message.to_bytes().decode()  # nor as base64


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ([dumped(LLAMA[0]), {"role": "user", "blocks": [{"block_type": "os.system"}]}], "item 2 is not a chat message"),
        ([dumped(LLAMA[0]), {"role": "nobody", "blocks": []}], "item 2 is not a chat message"),
        ([dumped(LLAMA[0]), {"role": "user", "blocks": 3}], "item 2 is not a chat message"),
        ([dumped(LLAMA[0]), 5], "item 2 is not a chat message"),
        ({"store": {"s": [dumped(LLAMA[0]), {"blocks": []}]}}, "session 's', message 2 is not a chat message"),
        ({"store": {"s": {"role": "user"}}}, "session 's' is not a list"),
        ({"store": {"": []}}, "session '' is not a list"),
    ],
)
def test_a_wrong_llamaindex_message_is_named(tmp_path: Path, wrong: Any, named: str) -> None:
    with pytest.raises(SerializationError, match=named):
        read_transcripts(written(tmp_path / "talk.json", wrong))


@pytest.mark.parametrize(("file", "session"), [("talk.2024.json", "talk"), (".json", ".json")])
def test_a_session_has_the_name_of_its_file_without_suffixes(tmp_path: Path, file: str, session: str) -> None:
    assert [each.session for each in read_transcripts(written(tmp_path / file, [ASKED]))] == [session]


def test_a_session_has_the_name_of_its_file_in_the_form_in_which_it_is_typed(tmp_path: Path) -> None:
    file = written(tmp_path / "ra\u0308der.json", [{"role": "user", "content": "hi"}])
    assert [each.session for each in read_transcripts(file)] == ["r\u00e4der"]


def test_a_gzipped_file_is_unpacked_to_a_hundred_times_its_size_and_no_further(tmp_path: Path) -> None:
    talk = json.dumps([{"role": "user", "content": "hi " * 10_000}]).encode()
    file = tmp_path / "talk.json.gz"
    file.write_bytes(gzip.compress(talk))
    assert len(talk) > 100 * file.stat().st_size  # what is small is unpacked anyway
    assert only(file)[0].text.startswith("hi hi")
    file.write_bytes(gzip.compress(talk[:9_000]) + b"\0" * 9 + gzip.compress(talk[9_000:]))  # as by cat
    assert only(file)[0].text == "hi " * 10_000
    file.write_bytes(gzip.compress(talk + b" " * 2**26))
    with pytest.raises(SerializationError, match="holds more than 100 times its size: unpack it first, if you trust"):
        read_transcripts(file)


def test_a_file_that_is_too_large_or_has_no_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_files, "_MAX_BYTES", 2**21)
    sparse, zipped = tmp_path / "talk.json", tmp_path / "talk.json.gz"
    with sparse.open("wb") as file:
        file.truncate(2**21 + 1)
    zipped.write_bytes(gzip.compress(b" " * 2**22))
    for path in (sparse, zipped, Path("/dev/zero")):
        if path.exists():  # Windows has no such file
            with pytest.raises(SerializationError, match=f"{path.name}: it is larger than 1 GB, and is"):
                read_transcripts(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes on this system")
def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    talk = json.dumps([{"role": "user", "content": "hi " * 100_000}])  # more than a pipe holds
    with ThreadPoolExecutor(1) as writer:
        written_chars = writer.submit(pipe.write_text, talk)
        assert only(pipe)[0].text == "hi " * 100_000
        assert written_chars.result() == len(talk)


SAID = "what somebody said"
UNREADABLE: list[Any] = [
    {"role": "user", "content": {"text": SAID}},
    {"role": "user", "content": "x", "name": [SAID]},
    {"type": "human", "data": {"content": {"text": SAID}}},
    {"type": "ai", "data": {"content": "x", "tool_calls": [{"name": "f", "args": SAID, "id": "1"}]}},
    {"role": SAID, "blocks": []},
    {"role": "user", "blocks": [{"block_type": "text", "text": [SAID]}]},
    {"mapping": {"a": {"message": {"id": "x", "author": {"role": "user"}, "content": {"parts": SAID}}}}},
    {"turns": [{"id": "1", "s": 1, "sp": "a", "t": [SAID], "d": SAID}], "speakers": ["a", "b"], "id": "x"},
    {"v": 1, "type": "message", "session": "s", "message": {"role": "user", "created_at": SAID}},
]


@pytest.mark.parametrize("wrong", UNREADABLE, ids=range(len(UNREADABLE)))
def test_no_traceback_of_an_import_says_what_was_said(tmp_path: Path, wrong: Any) -> None:
    file = written(tmp_path / "talk.json", [wrong])
    with pytest.raises(SerializationError) as caught:
        read_transcripts(file)
    assert SAID not in "".join(traceback.format_exception(caught.value))


# --- ChatGPT's export ---------------------------------------------------------------------------------------


def node(name: str, parent: str | None, role: str = "user", **content: Any) -> dict[str, Any]:
    said = content or {"parts": [f"says {name}"]}
    message = {"id": name, "author": {"role": role}, "create_time": 1.5, "content": {"content_type": "text", **said}}
    return {"id": name, "parent": parent, "children": [], "message": message}


def talk(*nodes: dict[str, Any], name: str = "talk-1", **fields: Any) -> dict[str, Any]:
    mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "message": None, "children": []}}
    return {"conversation_id": name, "title": "A talk", "mapping": mapping | {n["id"]: n for n in nodes}, **fields}


def test_the_branch_that_was_shown_is_taken(tmp_path: Path) -> None:
    nodes = [
        node("hidden", "root", "system", parts=[""]),
        node("q", "hidden"),
        node("a1", "q", "assistant"),
        node("a2", "q", "assistant"),
        node("code", "a1", "tool", content_type="execution_output", text="42"),
        node("picture", "code", "user", content_type="multimodal_text", parts=[{"asset_pointer": "file:1"}, "look"]),
        node("another", "picture", "user", content_type="multimodal_text", parts=[{"asset_pointer": "file:2"}]),
    ]
    untitled = talk(*nodes[:4], name="2", title=None)
    file = written(tmp_path / "conversations.json", [talk(*nodes, current_node="another"), untitled])
    first, second = read_transcripts(file)
    assert [message.text for message in first.messages()] == ["says q", "says a1", "42", "look", ""]
    assert [message.role for message in first.messages()] == ["user", "assistant", "tool", "user", "user"]
    assert first.messages()[0].id == "q"
    assert first.messages()[0].created_at == 1.5
    assert first.messages()[2].metadata == {"content_type": "execution_output"}
    assert [m.metadata["parts"][0]["asset_pointer"] for m in first.messages()[3:]] == ["file:1", "file:2"]
    assert [message.text for message in second.messages()] == ["says q", "says a2"]  # the last leaf
    assert (first.session, second.session) == ("talk-1", "2")
    assert first.lines[0]["values"] == {"title": "A talk"}
    assert [line["type"] for line in second.lines] == ["message", "message"]
    with pytest.raises(ConfigurationError, match="names its sessions itself"):
        read_transcripts(file, session="s")


def test_what_was_spoken_to_chatgpt_is_what_was_said(tmp_path: Path) -> None:
    heard = {"content_type": "audio_transcription", "text": "Where is my bike?", "direction": "in", "decoding_id": None}
    recording = {"content_type": "real_time_user_audio_video_asset_pointer", "frames_asset_pointers": []}
    nodes = [
        node("q", "root", content_type="multimodal_text", parts=[heard, recording]),
        node("a", "q", "assistant", content_type="multimodal_text", parts=[{**heard, "text": "In the shed."}]),
    ]
    (spoken,) = read_transcripts(written(tmp_path / "conversations.json", [talk(*nodes)]))
    assert [message.text for message in spoken.messages()] == ["Where is my bike?", "In the shed."]
    assert spoken.messages()[0].metadata == {"content_type": "multimodal_text", "parts": [heard, recording]}


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (talk(node("a", "b"), node("b", "a"), current_node="a"), "item 2 .*its own ancestor"),
        (talk(node("a", "nowhere"), current_node="a"), "item 2 .*'nowhere' is missing"),
        (talk(current_node="nowhere"), "item 2 .*'nowhere' is missing"),
        ({"mapping": {}}, "item 2 has no id"),
        (talk(), "item 2 has no id of its own"),
        ({"mapping": 3, "id": "x"}, "item 2 is not a conversation of ChatGPT: mapping"),
        (5, "item 2 is not a conversation of ChatGPT"),
        ({"role": "user", "content": "Hi.", "id": "m1"}, "item 2 is not a conversation of ChatGPT: mapping"),
    ],
)
def test_a_wrong_conversation_is_named(tmp_path: Path, wrong: Any, named: str) -> None:
    with pytest.raises(SerializationError, match=named):
        read_transcripts(written(tmp_path / "conversations.json", [talk(), wrong]))


# --- LoCoMo -------------------------------------------------------------------------------------------------

TURN = {"id": "D1:1", "s": 1, "sp": "Nora", "t": "I adopted a tortoise.", "d": "2024-03-01T12:00:00"}
TALK = {"id": "talk-1", "speakers": ["Nora", "Emil"], "turns": [TURN, {**TURN, "id": "D2:1", "s": 2, "sp": "Emil"}]}


@pytest.mark.parametrize("wrap", [list, lambda talks: {"conversations": talks}])
def test_each_conversation_of_two_is_a_user_with_sessions(tmp_path: Path, wrap: Any) -> None:
    transcripts = read_transcripts(written(tmp_path / "talks.json", wrap([TALK, {**TALK, "id": "talk-2"}])))
    assert [(each.user, each.session) for each in transcripts] == [
        (user, session) for user in ("talk-1", "talk-2") for session in ("1", "2")
    ]
    assert [message.role for each in transcripts for message in each.messages()] == ["user", "assistant"] * 2


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"conversations": TALK}, 'its "conversations" are not a list'),
        ({"conversations": [TALK, {**TALK, "id": 5}]}, "conversation 2 is not a LoCoMo conversation: id"),
        ([TALK, {**TALK, "turns": 5}], "item 2 is not a LoCoMo conversation: turns"),
        ([{**TALK, "turns": [{**TURN, "sp": "Zoe"}]}], "item 1: turn D1:1 is said by 'Zoe', who is not one of its"),
        ([{**TALK, "turns": [TURN, TURN]}], "item 1: there are two turns D1:1"),
    ],
)
def test_a_wrong_locomo_conversation_is_named(tmp_path: Path, wrong: Any, named: str) -> None:
    with pytest.raises(SerializationError, match=named):
        read_transcripts(written(tmp_path / "talks.json", wrong))


# --- MetaGPT's collections ----------------------------------------------------------------------------------


def item(text: str, at: float, **fields: Any) -> str:
    message = {"id": text, "content": text, "role": "user", "cause_by": "metagpt.actions.UserRequirement", **fields}
    return json.dumps({"message": message, "created_at": at})


def metadata(obj_json: str, *, nested: bool = False) -> dict[str, Any]:
    """As LlamaIndex's ChromaVectorStore writes an ObjectNode of MetaGPT."""
    own = {"is_obj": True, "obj_json": obj_json, "obj_cls_name": "system", "obj_mod_name": "os"}
    content = {"_node_content": json.dumps({"metadata": own, "text": ""}), "_node_type": "ObjectNode"}
    return content if nested else own


def collection(path: Path, name: str, rows: dict[str, dict[str, Any] | None]) -> Path:
    client: Any = chromadb.PersistentClient(str(path), Settings(anonymized_telemetry=False))
    made = client.get_or_create_collection(name, embedding_function=None)
    for id_, row in rows.items():
        made.add(ids=[id_], embeddings=[[0.1, 0.2]], documents=["text"], metadatas=None if row is None else [row])
    client.close()
    return path


def test_metagpts_collections_are_sessions(tmp_path: Path, url: str) -> None:
    path = collection(
        tmp_path / "data",
        "role_zero",
        {
            "n2": metadata(item("second bike", 2.0, role="assistant", sent_from="Mike", send_to=["<all>"])),
            "n1": metadata(item("first bike", 1.0, id="", instruct_content={"class": "os.system"}), nested=True),
        },
    )
    collection(path, "empty", {})
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    (transcript,) = read_transcripts(path)
    assert transcript.session == "role_zero"
    first, second = transcript.messages()
    assert (first.id, first.role, first.text, first.created_at) == ("n1", "user", "first bike", 1.0)
    assert first.metadata[METAGPT]["instruct_content"] == {"class": "os.system"}
    assert (second.id, second.role) == ("second bike", "assistant")
    assert second.metadata[METAGPT]["sent_from"] == "Mike"
    assert "metagpt.actions" not in sys.modules
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before
    for new in (2, 0):
        assert run("import", path, "--url", url).stdout == f"{new} of 2 messages were new, in 1 sessions.\n"


def test_messages_of_a_collection_are_in_order_beside_those_with_times_that_are_none(tmp_path: Path) -> None:
    times = (3.0, math.nan, 2.0, math.inf, 1.0, 10**400)
    rows: dict[str, Any] = {f"n{n}": metadata(item(str(n), at)) for n, at in enumerate(times)}
    messages = only(collection(tmp_path / "data", "role_zero", rows))
    assert [message.created_at for message in messages] == [None, None, None, 1.0, 2.0, 3.0]


def test_messages_of_one_time_are_in_the_order_in_which_they_were_stored(tmp_path: Path) -> None:
    rows: dict[str, Any] = {f"n{n}": metadata(item(str(n), 5.0)) for n in (9, 10, 1, 2)}
    messages = only(collection(tmp_path / "data", "role_zero", rows))
    assert [message.text for message in messages] == ["9", "10", "1", "2"]


def test_collections_are_read_without_chromadb(tmp_path: Path) -> None:
    """Also what was changed in them; in a process of its own, as what is loaded here cannot be made missing."""
    path = collection(tmp_path / "data", "role_zero", {f"n{n}": metadata(item(f"m{n}", float(n))) for n in range(3)})
    client: Any = chromadb.PersistentClient(str(path), Settings(anonymized_telemetry=False))
    made = client.get_collection("role_zero", embedding_function=None)
    made.delete(ids=["n0"])
    made.update(ids=["n1"], metadatas=[metadata(item("told anew", 1.0))])
    client.close()
    code = (
        "import sys\n"
        "sys.modules['chromadb'] = None\n"
        "from langmem_adapters.importing import read_transcripts\n"
        f"(transcript,) = read_transcripts({str(path)!r})\n"
        "print([message.text for message in transcript.messages()])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['told anew', 'm2']"


def test_what_a_killed_process_left_half_done_is_undone_in_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the files may only be read."""
    rows: dict[str, Any] = {f"n{n}": metadata(item(f"m{n}" + "x" * 500, float(n))) for n in range(100)}
    code = (
        "import os, signal, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA cache_size = 5')\n"
        "connection.execute('BEGIN')\n"
        "connection.execute('DELETE FROM embedding_metadata')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ids = [json.loads(row["obj_json"])["message"]["id"] for row in rows.values()]
    me = os.geteuid()
    # Not tmp_path, nor TMPDIR, which may lie in a folder that lets nobody else in.
    with tempfile.TemporaryDirectory(dir=None if me else "/tmp") as folder:
        path = collection(Path(folder, "data"), "role_zero", rows)
        subprocess.run([sys.executable, "-c", code, str(path / "chroma.sqlite3")], check=False)
        assert (path / "chroma.sqlite3-journal").stat().st_size
        assert [message.id for message in only(path)] == ids
        for each, mode in ((Path(folder), 0o777), (path, 0o777), *((file, 0o444) for file in path.glob("chroma.*"))):
            each.chmod(mode)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        os.seteuid(me or 65_534)  # the system's own user may do all
        try:
            assert [message.id for message in only(path)] == ids
        finally:
            os.seteuid(me)


def test_what_is_read_while_somebody_writes_is_as_it_was_before(tmp_path: Path) -> None:
    path = collection(
        tmp_path / "data", "role_zero", {f"n{n}": metadata(item("m" + "x" * 500, 1.0)) for n in range(100)}
    )
    with contextlib.closing(sqlite3.connect(path / "chroma.sqlite3", isolation_level=None)) as writer:
        writer.execute("BEGIN")
        writer.execute("DELETE FROM embedding_metadata")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shutil, "copyfile", pytest.fail)  # a copy could have the half of it
            assert len(only(path)) == 100


def test_what_chroma_has_yet_to_carry_out_is_said_and_not_left_out(tmp_path: Path) -> None:
    """As Chroma 1 leaves it, where its process is killed in the middle of an ``add``."""
    path = collection(tmp_path / "data", "role_zero", {f"n{n}": metadata(item(f"m{n}", float(n))) for n in range(2)})
    with contextlib.closing(sqlite3.connect(path / "chroma.sqlite3")) as connection, connection:
        for table, id_ in (("embeddings", "id"), ("embedding_metadata", "id"), ("embedding_fulltext_search", "rowid")):
            connection.execute(f"DELETE FROM {table} WHERE {id_} = 2")
        connection.execute("UPDATE max_seq_id SET seq_id = seq_id - 1")
    with pytest.raises(SerializationError, match="open it once with Chroma"):
        read_transcripts(path)
    client: Any = chromadb.PersistentClient(str(path), Settings(anonymized_telemetry=False))
    assert client.get_collection("role_zero", embedding_function=None).count() == 2
    client.close()
    assert [message.text for message in only(path)] == ["m0", "m1"]


@pytest.mark.parametrize(
    "changes",
    [
        [  # a view, which could be without end
            "PRAGMA legacy_alter_table = ON",
            "ALTER TABLE embeddings RENAME TO stored",
            "CREATE VIEW embeddings AS SELECT id, segment_id, embedding_id FROM stored",
        ],
        [  # a column that is larger than its file
            "ALTER TABLE embedding_metadata RENAME COLUMN string_value TO stored",
            "ALTER TABLE embedding_metadata ADD COLUMN string_value TEXT AS (stored || hex(zeroblob(9)))",
        ],
    ],
)
def test_nothing_that_a_database_computes_is_read(tmp_path: Path, changes: list[str]) -> None:
    path = collection(tmp_path / "data", "role_zero", {"n": metadata(item("a", 1.0))})
    with contextlib.closing(sqlite3.connect(path / "chroma.sqlite3", isolation_level=None)) as connection:
        for change in changes:
            connection.execute(change)
        assert connection.execute("SELECT * FROM embeddings JOIN embedding_metadata USING (id)").fetchone()
    with pytest.raises(SerializationError, match="is not a database of Chroma"):
        read_transcripts(path)


def test_a_database_whose_own_names_are_damaged_is_refused(tmp_path: Path) -> None:
    path = collection(tmp_path / "data", "role_zero", {"n": metadata(item("a", 1.0))})
    file = path / "chroma.sqlite3"
    file.write_bytes(
        file.read_bytes().replace(b"CREATE TABLE embeddings ", b"CREATE TABLE \xff\xff\xff\xff\xff\xff \xff\xff\xff ")
    )
    with pytest.raises(SerializationError, match="is not a database of Chroma"):
        read_transcripts(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such files")
@pytest.mark.parametrize("name", ["chroma.sqlite3", "chroma.sqlite3-journal"])
def test_a_pipe_in_place_of_a_database_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = collection(tmp_path / "data", "role_zero", {"n": metadata(item("a", 1.0))})
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    pipe = os.open(path / name, os.O_RDWR)  # so that a wrong reader fails here, instead of waiting
    try:
        with pytest.raises(SerializationError, match=r"no Chroma database|is not a file"):
            read_transcripts(path, format_="metagpt")
        with pytest.raises(SerializationError, match=r"has neither a|is not a file"):
            read_metagpt_pool(path)
    finally:
        os.close(pipe)


def test_a_link_to_itself_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "chroma.sqlite3").symlink_to("chroma.sqlite3")
    with pytest.raises(SerializationError, match="there is no Chroma database in this folder"):
        read_transcripts(tmp_path, format_="metagpt")


def test_a_database_in_use_is_said_to_be_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = collection(tmp_path / "data", "role_zero", {"n": metadata(item("a", 1.0))})
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with contextlib.closing(sqlite3.connect(path / "chroma.sqlite3", isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SerializationError, match=r"chroma\.sqlite3 cannot be read, as it is in use"):
            read_transcripts(path)


def test_a_collection_whose_name_is_no_text_is_imported_by_that_name(tmp_path: Path, url: str) -> None:
    path = collection(tmp_path / "data", "role_zero", {"n": metadata(item("a", 1.0))})
    with contextlib.closing(sqlite3.connect(path / "chroma.sqlite3", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE renamed AS SELECT * FROM collections")
        connection.execute("DROP TABLE collections")
        connection.execute("CREATE TABLE collections AS SELECT * FROM renamed")
        connection.execute("UPDATE collections SET name = x'41'")
    assert run("import", path, "--url", url).stdout == "1 of 1 messages were new, in 1 sessions.\n"


def test_a_large_collection_is_read_whole(tmp_path: Path) -> None:
    client: Any = chromadb.PersistentClient(str(tmp_path / "data"), Settings(anonymized_telemetry=False))
    made = client.create_collection("role_zero", embedding_function=None)
    rows: list[Any] = [metadata(item(f"m{n}", float(n))) for n in range(1001)]
    made.add(ids=[f"n{n}" for n in range(1001)], embeddings=[[0.1]] * 1001, metadatas=rows)
    client.close()
    assert [message.text for message in only(tmp_path / "data")] == [f"m{n}" for n in range(1001)]


@pytest.mark.parametrize(
    "row",
    [
        None,
        {"other": 1},
        {"obj_json": "{"},
        {"obj_json": "[]"},
        {"obj_json": '{"message": {"content": 5}}'},
        {"_node_content": "nonsense"},
        {"_node_content": "[]"},
        {"_node_content": '{"metadata": null}'},
    ],
)
def test_a_wrong_entry_is_named_and_nothing_is_given(tmp_path: Path, row: dict[str, Any] | None) -> None:
    path = collection(tmp_path / "data", "role_zero", {"good": metadata(item("a", 1.0)), "bad": row})
    with pytest.raises(SerializationError, match="entry 'bad' of the collection 'role_zero'"):
        read_transcripts(path)


@pytest.mark.parametrize("wrong", ["llamaindex", "", None])
def test_a_format_that_there_is_none_of_is_refused(tmp_path: Path, wrong: Any) -> None:
    file = written(tmp_path / "chat.json", [{"role": "user", "content": "Hello."}])
    with pytest.raises(ConfigurationError, match=f"format_ is auto, jsonl, .*, not {wrong!r}"):
        only(file, format_=wrong)
    with pytest.raises(ConfigurationError, match="session is a text, not int"):
        only(file, session=5)


def test_a_folder_that_is_no_database_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SerializationError, match="no Chroma database"):
        read_transcripts(tmp_path, format_="metagpt")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "chroma.sqlite3").write_bytes(b"not a database")
    with pytest.raises(SerializationError, match="is not a database of Chroma"):
        read_transcripts(tmp_path / "broken")
    with pytest.raises(SerializationError, match="read the dump of a BrainMemory"):
        read_transcripts(written(tmp_path / "dump.json", {"history": []}), format_="metagpt")
    assert "No such file" in fails("import", tmp_path / "absent", "--format", "metagpt", "--url", url)
    with pytest.raises(ConfigurationError, match="names its sessions itself"):
        read_transcripts(tmp_path / "broken", session="s")


@pytest.mark.parametrize(
    ("package", "format_", "extra"),
    [
        ("langchain_core", "langchain", "langchain"),
        ("llama_index", "llama-index", "llama-index"),
    ],
)
def test_a_missing_package_is_named(tmp_path: Path, package: str, format_: FileFormat, extra: str) -> None:
    """In a process of its own: what is loaded here cannot be made missing."""
    file = written(tmp_path / "talk.json", [{"role": "user", "type": "human", "data": {}, "blocks": []}])
    code = (
        "import sys, pathlib\n"
        f"sys.modules[{package!r}] = None\n"
        "from langmem_adapters.importing import read_transcripts\n"
        f"read_transcripts(pathlib.Path({str(file)!r}), format_={format_!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith(f'Install it with: pip install "langmem_adapters[{extra}]"')
    assert MissingDependency.__name__ in done.stderr


# --- what is not read ---------------------------------------------------------------------------------------

ASKED = {"role": "user", "content": "Where is my bike?"}
SAID_IN_THREAD = {
    "id": "msg_2",
    "object": "thread.message",
    "created_at": 1699017615,
    "role": "assistant",
    "content": [{"type": "text", "text": {"value": "In the shed.", "annotations": []}}],
}
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
USES = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
GIVES = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "found"}]}
TYPED = {"role": "user", "content": [{"type": "input_text", "text": "Hi."}]}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([SAID_IN_THREAD, SAID_IN_THREAD], "item 1 .* blocks of another API"),
        ([ASKED, SAID_IN_THREAD], 'item 2 .* blocks of another API: write texts as "content"'),
        ([ASKED, TYPED], "item 2 .* blocks of another API"),
        ([ASKED, USES], 'item 2 .* calls as "tool_calls"'),
        ([{**USES, "content": [{"type": "text", "text": "Hm."}, *USES["content"]]}], 'item 1 .* calls as "tool_calls"'),
        ({"messages": [ASKED, GIVES]}, "message 2 .* with the role"),
        ([ASKED, {"role": "model", "parts": [{"text": "Hi."}]}], "item 2 .* blocks of another API"),
        ([ASKED, CALL], "item 2 .* it has no role"),
        ([{**ASKED, "tool_calls": 5}], "item 1 .* its tool_calls are not a list"),
        ([{**ASKED, "tool_calls": [5]}], "item 1 .* a tool call has no function"),
        ([ASKED, {**ASKED, "tool_calls": [{"id": "c", "function": "look"}]}], "item 2 .* a tool call has no function"),
        ({"messages": [AIMessage("Hi.").model_dump()]}, "message 1 .* it has no role"),
        ({"messages": [["user", "Hi."], ASKED]}, "message 1 .* it has no role"),
        ([CALL], "item 1 is neither an export, .* write each message as"),
        ([HumanMessage("Hi.").model_dump()], "item 1 is neither an export"),
        ({"object": "response", "output": [CALL]}, "is neither an export"),
        ({"object": "list", "data": [SAID_IN_THREAD]}, "is neither an export"),
        ({"choices": [{"message": {"role": "assistant"}}]}, "is neither an export"),
        ({"custom_id": "r", "url": "/v1/chat/completions", "body": {"messages": [ASKED]}}, "is neither an export"),
        ({"chat_memory": {"messages": []}, "output_key": None}, "is neither an export"),
        ({"chat_store": {"store": {}}, "token_limit": 300}, "is neither an export"),
        ([{"sample_id": "conv-26", "conversation": {}}], "is neither an export"),
    ],
)
def test_what_would_lose_what_was_said_is_refused(tmp_path: Path, value: Any, sentence: str) -> None:
    with pytest.raises(SerializationError, match=sentence):
        read_transcripts(written(tmp_path / "talk.json", value))


def test_a_block_may_say_that_it_has_no_text(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://h/shed.png"}, "text": None}
    said = {"role": "user", "content": [picture, {"type": "text", "text": "Where is this?"}]}
    [transcript] = read_transcripts(written(tmp_path / "talk.json", [said]))
    assert [(message.content, message.text) for message in transcript.messages()] == [
        (said["content"], "Where is this?")
    ]


@pytest.mark.parametrize("node", ["a\r\nb", "x" * 5_000], ids=["line break", "long"])
def test_an_error_is_one_sentence_whatever_a_node_is_called(tmp_path: Path, node: str) -> None:
    conversation = {"id": "c", "mapping": {node: {"message": {"id": 5}}}}
    with pytest.raises(SerializationError, match=r"mapping\..*\.message\.id: Input should be") as refusal:
        read_transcripts(written(tmp_path / "talk.json", [conversation]))
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 200 + len(str(tmp_path))


@pytest.mark.parametrize("type_", [None, 5, ["text"], {"text": 1}], ids=repr)
def test_a_block_of_an_unknown_type_is_read_as_it_is(tmp_path: Path, type_: Any) -> None:
    said = {"role": "user", "content": [{"type": type_, "text": "Hi."}]}
    [transcript] = read_transcripts(written(tmp_path / "talk.json", [said]))
    assert [message.content for message in transcript.messages()] == [said["content"]]


# --- all formats --------------------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["role", "content", "messages", "mapping", "store", "lc", "type", "data", "blocks", "id", "object"]
                )
                | st.text(max_size=3),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(["auto", "jsonl", "openai", "langchain", "llama-index", "chatgpt", "locomo"]),
)
def test_any_json_is_read_or_refused_in_one_sentence(tmp_path_factory: Any, value: Any, format_: FileFormat) -> None:
    file = written(tmp_path_factory.mktemp("any") / "x.json", value)
    refusal = str(file)
    try:
        for transcript in read_transcripts(file, format_=format_):
            transcript.messages()
    except SerializationError as error:
        refusal = str(error)
    assert refusal.startswith(str(file))
    assert "\n" not in refusal


def test_chroma_is_read_in_another_thread_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = collection(tmp_path / "data", "role_zero", {"n": metadata(item("a", 1.0))})
    with ThreadPoolExecutor(1) as pool:
        (transcript,) = pool.submit(read_transcripts, path).result()
    assert [message.text for message in transcript.messages()] == ["a"]
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


DEEP = json.loads("[" * 300 + "]" * 300)


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"role": "user", "content": "b", "SECRET": DEEP}, "item 2"),
        ({"role": "user", "content": "b", "id": "b", "SECRET": DEEP}, "item 2"),
        (talk(node("b", None, parts=[{"text": "b", "SECRET": DEEP}]), name="b"), "item 2"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_place(tmp_path: Path, wrong: Any, place: str) -> None:
    right = talk(node("a", None, parts=["a"]), name="a") if "mapping" in wrong else {"role": "user", "content": "a"}
    with pytest.raises(SerializationError, match=f": {place} cannot be stored: it is nested too deep") as refusal:
        read_transcripts(written(tmp_path / "chat.json", [right, wrong]))
    assert "SECRET" not in str(refusal.value)


def test_the_lines_of_an_export_are_held_once(tmp_path: Path) -> None:
    lines = [
        {"v": 1, "type": "message", "session": "s", "message": {"v": 1, "role": "user", "content": f"{n} " + 300 * "x"}}
        for n in range(3_000)
    ]
    file = tmp_path / "export.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    read_transcripts(file)  # whose imports do not count
    (transcript,), held, peak = traced(lambda: read_transcripts(file))
    assert len(transcript.lines) == 3_000
    assert peak < 2.3 * held
