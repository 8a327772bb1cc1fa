"""What LangChain wrote reads well in LlamaIndex, and the other way round."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.utils import convert_to_openai_messages
from llama_index.core.base.llms.types import (
    AudioBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.base.llms.types import ChatMessage as LlamaMessage

from langmem_adapters.langchain import convert as langchain
from langmem_adapters.llamaindex import convert as llamaindex
from langmem_adapters.model import Message, ToolCall
from langmem_adapters.providers.content import standard_block
from tests.compared import Compared

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PNG_TEXT = base64.b64encode(PNG).decode()
URL = "https://example.com/x.png"


def to_llamaindex(message: BaseMessage) -> LlamaMessage:
    return llamaindex.from_message(Message.from_bytes(langchain.to_message(message).to_bytes()))


def to_langchain(chat: LlamaMessage) -> BaseMessage:
    return langchain.from_message(Message.from_bytes(llamaindex.to_message(chat).to_bytes()))


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (SystemMessage("a"), "system"),
        (SystemMessage("a", additional_kwargs={"__openai_role__": "developer"}), "developer"),
        (HumanMessage("a"), "user"),
        (AIMessage("a"), "assistant"),
        (ChatMessage(content="a", role="assistant"), "assistant"),
        (ChatMessage(content="a", role="moderator"), "user"),
    ],
)
def test_roles_and_text_from_langchain(message: BaseMessage, role: str) -> None:
    assert to_llamaindex(message) == LlamaMessage(role=role, content="a")


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("system", SystemMessage("a")),
        ("developer", SystemMessage("a", additional_kwargs={"__openai_role__": "developer"})),
        ("user", HumanMessage("a")),
        ("assistant", AIMessage("a")),
        ("chatbot", AIMessage("a")),
        ("model", AIMessage("a")),
    ],
)
def test_roles_and_text_from_llamaindex(role: str, expected: BaseMessage) -> None:
    back = to_langchain(LlamaMessage(role=role, content="a"))
    assert type(back) is type(expected)
    assert back == expected


def test_a_tool_conversation_from_langchain() -> None:
    calls = [{"name": "search", "args": {"q": "bike"}, "id": "1"}, {"name": "f", "args": {}, "id": "2"}]
    asked = to_llamaindex(AIMessage(content="", tool_calls=calls))
    assert asked == LlamaMessage(
        role="assistant",
        blocks=[
            ToolCallBlock(tool_call_id="1", tool_name="search", tool_kwargs={"q": "bike"}),
            ToolCallBlock(tool_call_id="2", tool_name="f"),
        ],
    )
    answered = to_llamaindex(ToolMessage(content="42", tool_call_id="1", name="search"))
    kwargs = {"tool_call_id": "1", "name": "search"}
    assert answered == LlamaMessage(role="tool", content="42", additional_kwargs=kwargs)


@pytest.mark.parametrize(
    "asked",
    [
        LlamaMessage(
            role="assistant",
            blocks=[
                TextBlock(text="wait"),
                ToolCallBlock(tool_call_id="1", tool_name="search", tool_kwargs={"q": "bike"}),
            ],
        ),
        LlamaMessage(
            role="assistant",
            blocks=[
                ToolCallBlock(tool_call_id="1", tool_name="search", tool_kwargs='{"q": "bike"}'),
                TextBlock(text="wait"),
            ],
        ),
        LlamaMessage(
            role="assistant",
            content="wait",
            additional_kwargs={
                "tool_calls": [{"id": "1", "function": {"name": "search", "arguments": '{"q": "bike"}'}}]
            },
        ),
    ],
    ids=["blocks", "text arguments first", "additional_kwargs"],
)
def test_a_tool_conversation_from_llamaindex(asked: LlamaMessage) -> None:
    message = to_langchain(asked)
    assert isinstance(message, AIMessage)
    assert message.text == "wait"
    call = {"name": "search", "args": {"q": "bike"}, "id": "1", "type": "tool_call"}
    assert message.tool_calls == [call]
    answer = LlamaMessage(role="tool", content="42", additional_kwargs={"tool_call_id": "1", "name": "search"})
    assert to_langchain(answer) == ToolMessage(content="42", tool_call_id="1", name="search")
    request, _ = convert_to_openai_messages([message, to_langchain(answer)])
    assert request["tool_calls"][0]["function"] == {"name": "search", "arguments": '{"q": "bike"}'}


@pytest.mark.parametrize("content", ["", "hm", [{"type": "text", "text": "hm"}]])
def test_an_invalid_call_of_langchain_is_a_call_with_broken_arguments(content: Any) -> None:
    invalid: list[Any] = [
        {"name": "f", "args": '{"x":', "id": "1", "error": "no JSON", "type": "invalid_tool_call"},
        {"name": None, "args": None, "id": "2", "error": None, "type": "invalid_tool_call"},
    ]
    good: list[Any] = [{"name": "g", "args": {}, "id": "3", "type": "tool_call"}]
    chat = to_llamaindex(AIMessage(content, tool_calls=good, invalid_tool_calls=invalid))
    text = [TextBlock(text="hm")] if content else []
    assert chat.blocks == [
        *text,
        ToolCallBlock(tool_call_id="3", tool_name="g", tool_kwargs={}),
        ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs='{"x":'),
        ToolCallBlock(tool_call_id="2", tool_name="", tool_kwargs=""),
    ]
    assert to_llamaindex(AIMessage(content, invalid_tool_calls=invalid)).blocks == [*text, *chat.blocks[-2:]]
    back = to_langchain(to_llamaindex(AIMessage(content, invalid_tool_calls=invalid[:1])))
    assert isinstance(back, AIMessage)
    assert [call["id"] for call in back.invalid_tool_calls] == ["1"]


def test_an_invalid_call_that_is_among_the_content_too_is_one_call() -> None:
    invalid: Any = {"type": "invalid_tool_call", "name": "f", "args": "{", "id": "1", "error": None}
    chat = to_llamaindex(AIMessage([invalid], invalid_tool_calls=[invalid]))
    assert chat.blocks == [ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs="{")]


@pytest.mark.parametrize("damaged", [5, "x", ["x", None], {"id": "1"}])
def test_what_is_damaged_in_place_of_invalid_calls_is_left_out(damaged: Any) -> None:
    message = Message(role="assistant", content="hm", host={"langchain": {"invalid_tool_calls": damaged}})
    assert llamaindex.from_message(message).blocks == [TextBlock(text="hm")]


def test_a_call_with_broken_arguments_is_an_invalid_call_of_langchain() -> None:
    chat = LlamaMessage(
        role="assistant",
        blocks=[TextBlock(text="a"), ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs='{"x":')],
    )
    message = to_langchain(chat)
    assert isinstance(message, AIMessage)
    assert message.content == [{"type": "text", "text": "a"}]
    assert message.tool_calls == []
    assert message.invalid_tool_calls == [
        {"name": "f", "args": '{"x":', "id": "1", "error": None, "type": "invalid_tool_call"}
    ]


IMAGE = ImageBlock(image=PNG)
IMAGES: dict[str, tuple[dict[str, Any], ImageBlock]] = {
    "openai url": (
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        ImageBlock(url=URL, detail="low"),
    ),
    "openai short": ({"type": "image_url", "image_url": URL}, ImageBlock(url=URL)),
    "openai data": ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_TEXT}"}}, IMAGE),
    "openai responses": ({"type": "input_image", "image_url": f"data:image/png;base64,{PNG_TEXT}"}, IMAGE),
    "v1 base64": ({"type": "image", "base64": PNG_TEXT, "mime_type": "image/png"}, IMAGE),
    "v1 without kind": ({"type": "image", "base64": PNG_TEXT}, IMAGE),
    "v1 url": ({"type": "image", "url": URL}, ImageBlock(url=URL)),
    "v1 data url": ({"type": "image", "url": f"data:image/png;base64,{PNG_TEXT}"}, IMAGE),
    "v0 base64": (
        {"type": "image", "source_type": "base64", "data": PNG_TEXT, "mime_type": "image/png"},
        IMAGE,
    ),
    "v0 url": ({"type": "image", "source_type": "url", "url": URL}, ImageBlock(url=URL)),
    "anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG_TEXT}},
        IMAGE,
    ),
    "anthropic url": ({"type": "image", "source": {"type": "url", "url": URL}}, ImageBlock(url=URL)),
    "google": ({"type": "media", "mime_type": "image/png", "data": PNG}, IMAGE),
    "broken lines": ({"type": "image", "base64": PNG_TEXT[:40] + "\n" + PNG_TEXT[40:]}, IMAGE),
    "url alphabet": (
        {
            "type": "image",
            "base64": base64.urlsafe_b64encode(b"\xfb\xff\xfe" * 3 + b"\xfb").decode().rstrip("="),
        },
        ImageBlock(image=b"\xfb\xff\xfe" * 3 + b"\xfb"),
    ),
    "percent-encoded": (
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}},
        ImageBlock(image=b"<svg/>", image_mimetype="image/svg+xml"),
    ),
}


@pytest.mark.parametrize("spelling", IMAGES)
def test_every_spelling_of_an_image_from_langchain(spelling: str) -> None:
    block, expected = IMAGES[spelling]
    chat = to_llamaindex(HumanMessage(content=["look", block]))
    assert chat.blocks == [TextBlock(text="look"), expected]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "wav"}},
            AudioBlock(audio=b"ID3", format="wav"),
        ),
        (
            {"type": "audio", "base64": "SUQz", "mime_type": "audio/mpeg"},
            AudioBlock(audio=b"ID3", format="mp3"),
        ),
        (
            {"type": "media", "mime_type": "video/mp4", "file_uri": "gs://b/v.mp4"},
            VideoBlock(url="gs://b/v.mp4", video_mimetype="video/mp4"),
        ),
        (
            {
                "type": "file",
                "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"},
            },
            DocumentBlock(data=b"%PDF", document_mimetype="application/pdf", title="a.pdf"),
        ),
        (
            {
                "type": "document",
                "title": "Terms",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            },
            DocumentBlock(data=b"%PDF", document_mimetype="application/pdf", title="Terms"),
        ),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "all terms"}},
            TextBlock(text="all terms"),
        ),
        ({"type": "text-plain", "text": "all terms", "mime_type": "text/plain"}, TextBlock(text="all terms")),
        (
            {"type": "file", "url": "https://example.com/a.pdf"},
            DocumentBlock(url="https://example.com/a.pdf"),
        ),
        (
            {"type": "thinking", "thinking": "hm", "signature": "s", "index": 0},
            ThinkingBlock(content="hm", additional_information={"signature": "s"}),
        ),
        (
            {"type": "thinking", "thinking": [{"type": "text", "text": "h"}, {"type": "text", "text": "m"}]},
            ThinkingBlock(content="hm"),
        ),
        (
            {"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "s"}, "index": 0},
            ThinkingBlock(content="hm", additional_information={"signature": "s"}),
        ),
        (
            {"type": "redacted_thinking", "data": "x"},
            ThinkingBlock(additional_information={"type": "redacted_thinking", "data": "x"}),
        ),
        (
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": t} for t in "ab"]},
            ThinkingBlock(content="a\n\nb", additional_information={"id": "r"}),
        ),
        ({"type": "output_text", "text": "hi"}, TextBlock(text="hi")),
        ({"type": "refusal", "refusal": "I will not."}, TextBlock(text="I will not.")),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_other_content_from_langchain(block: dict[str, Any], expected: Any) -> None:
    assert to_llamaindex(AIMessage(content=[block])).blocks == [expected]


def test_a_call_that_the_content_repeats_is_one_call() -> None:
    message = AIMessage(
        content=[
            {"type": "text", "text": "wait"},
            {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
            {"type": "tool_use", "id": "2", "name": "g", "input": {}},
        ],
        tool_calls=[{"name": "f", "args": {"x": 1}, "id": "1"}],
    )
    assert to_llamaindex(message).blocks == [
        TextBlock(text="wait"),
        ToolCallBlock(tool_call_id="2", tool_name="g"),
        ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs={"x": 1}),
    ]


def test_what_no_one_knows_stays_as_it_is() -> None:
    for block in (
        {"type": "hologram", "x": 1},
        {"type": "image"},
        {"type": "image_url", "image_url": 3},
        {"type": "image", "url": "https://example.org/a,b.png"},
        {},
    ):
        assert standard_block(block) == block
    assert standard_block("a") == standard_block({"type": "output_text", "text": "a"}) == {"type": "text", "text": "a"}


def test_media_from_llamaindex_are_blocks_that_langchain_understands() -> None:
    blocks = [
        TextBlock(text="look"),
        ImageBlock(image=PNG),
        ImageBlock(url=URL),
        DocumentBlock(data=b"%PDF", document_mimetype="application/pdf"),
    ]
    message = to_langchain(LlamaMessage(role="user", blocks=blocks))
    assert isinstance(message, HumanMessage)
    assert message.text == "look"
    assert [block["type"] for block in message.content_blocks] == ["text", "image", "image", "file"]
    assert message.content_blocks[1:3] == [
        {"type": "image", "base64": PNG_TEXT, "mime_type": "image/png"},
        {"type": "image", "url": URL, "mime_type": "image/png"},
    ]
    (request,) = convert_to_openai_messages([message])
    assert request["content"][1:3] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG_TEXT}"}},
        {"type": "image_url", "image_url": {"url": URL}},
    ]


def test_reasoning_from_llamaindex() -> None:
    chat = LlamaMessage(
        role="assistant",
        blocks=[ThinkingBlock(content="hm", additional_information={"signature": "s"}), TextBlock(text="a")],
    )
    assert to_langchain(chat).content_blocks == [
        {"type": "reasoning", "reasoning": "hm", "extras": {"signature": "s"}},
        {"type": "text", "text": "a"},
    ]


def test_an_id_that_the_memory_gave_is_seen_by_langchain() -> None:
    message = llamaindex.to_message(LlamaMessage(role="user", content="hi"))
    message.id = "given"
    assert langchain.from_message(message).id == "given"


def test_many_calls_that_a_provider_has_in_the_content_too_are_told_in_no_time() -> None:
    calls = [ToolCall.model_construct(id=Compared(f"t{n}"), name="f", args={}) for n in range(500)]
    content: list[str | dict[Any, Any]] = [{"type": "tool_use", "id": call.id, "name": "f"} for call in calls]
    before = Compared.times
    assert len(llamaindex.from_message(Message(role="assistant", content=content, tool_calls=calls)).blocks) == 500
    assert Compared.times - before < 10 * len(calls)


def test_many_calls_that_cannot_be_read_are_lifted_in_no_time() -> None:
    content: list[str | dict[Any, Any]] = [
        {"type": "invalid_tool_call", "id": Compared(f"t{n}"), "name": "f", "args": "{"} for n in range(500)
    ]
    before = Compared.times
    made: Any = langchain.from_message(
        Message(role="assistant", content=[*content, "so"], host={"llama_index": {"role": "assistant"}})
    )
    assert (len(made.invalid_tool_calls), made.content) == (500, ["so"])
    assert Compared.times - before < 10 * len(content)


def test_what_a_damaged_message_has_beside_its_fields_is_kept_in_no_time() -> None:
    extra = {f"x{n}": n for n in range(6_000)}
    message = Message(role="user", host={"langchain": {"extra": extra, "response_metadata": 5}})
    start = time.process_time()
    made: Any = langchain.from_message(message)
    assert time.process_time() - start < 1
    assert (made.model_extra, made.response_metadata) == (extra, {})
