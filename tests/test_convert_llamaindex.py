"""LlamaIndex's chat messages survive storage, damage and a changed file system."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import logging
import traceback
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.schema import ImageDocument, MediaResource, Node, NodeWithScore
from openai.types.chat.chat_completion_message_function_tool_call import (
    ChatCompletionMessageFunctionToolCall,
    Function,
)
from pydantic import AnyUrl

from langmem_adapters import codec
from langmem_adapters.errors import SerializationError
from langmem_adapters.llamaindex.convert import from_message, to_message
from langmem_adapters.model import Message, ToolCall

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
MP3 = b"ID3\x03\x00\x00\x00\x00\x00\x00" + b"\x00" * 32
MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + b"\x00" * 32
PDF = b"%PDF-1.7\n" + b"x" * 32
CALL = ToolCallBlock(tool_call_id="call_1", tool_name="search", tool_kwargs={"q": "bike", "n": [1, (2,)]})


def again(chat: ChatMessage) -> ChatMessage:
    return from_message(Message.from_bytes(to_message(chat).to_bytes()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "picture.png"
    path.write_bytes(PNG)
    return path


ROLES = [ChatMessage(role=role, content="hi") for role in MessageRole]
BLOCKS: dict[str, list[Any]] = {
    "none": [],
    "empty text": [TextBlock(text="")],
    "text": [TextBlock(text="hi")],
    "surrogate": [TextBlock(text="lone \ud800")],
    "texts": [TextBlock(text="a"), TextBlock(text=""), TextBlock(text="b")],
    "image bytes": [ImageBlock(image=PNG)],
    "image detail": [TextBlock(text="see"), ImageBlock(image=PNG, detail="low")],
    "image of a kind": [ImageBlock(image=PNG, image_mimetype="image/x-odd")],
    "image of no kind": [ImageBlock(image=b"\x01\x02\x03")],
    "image that is base64": [ImageBlock(image=base64.b64encode(PNG))],
    "image of no bytes": [ImageBlock(image=b"")],
    "image without all": [ImageBlock()],
    "image url": [ImageBlock(url="https://Example.com/a b.png?x=1#y")],
    "image url and bytes": [ImageBlock(url="https://example.com/x.png", image=PNG)],
    "image data url": [ImageBlock(url="data:image/png;base64," + base64.b64encode(PNG).decode())],
    "image bytes and data url": [ImageBlock(image=PNG, url="data:image/png;base64,AAAA")],
    "audio": [AudioBlock(audio=MP3)],
    "audio format": [AudioBlock(audio=MP3, format="mpeg"), AudioBlock(audio=MP3, format="wav")],
    "audio url": [AudioBlock(url="https://example.com/a.ogg")],
    "video": [VideoBlock(video=MP4, fps=2, detail="high")],
    "video url": [VideoBlock(url="https://example.com/a.mp4", fps=1)],
    "document": [DocumentBlock(data=PDF)],
    "document that looks like an image in base64": [DocumentBlock(data=base64.b64decode("BMAA"))],
    "document title": [DocumentBlock(data=PDF, title="Terms", document_mimetype="application/pdf")],
    "document url": [DocumentBlock(url="https://example.com/terms.pdf", title="Terms")],
    "document path": [DocumentBlock(path="gone/terms.pdf")],
    "thinking": [ThinkingBlock(content="hm", additional_information={"signature": "s"}), TextBlock(text="a")],
    "thinking tokens": [ThinkingBlock(num_tokens=7)],
    "call": [CALL],
    "text and calls": [TextBlock(text="wait"), CALL, ToolCallBlock(tool_name="f")],
    "empty text and call": [TextBlock(text=""), CALL],
    "call before text": [CALL, TextBlock(text="wait")],
    "calls between": [TextBlock(text="a"), CALL, TextBlock(text="b"), ToolCallBlock(tool_name="f")],
    "call of text": [ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs='{ "x":1}')],
    "call of empty text": [ToolCallBlock(tool_call_id="1", tool_name="f", tool_kwargs="")],
    "call of broken text": [TextBlock(text="a"), ToolCallBlock(tool_name="f", tool_kwargs='{"x":'), CALL],
    "call of a list": [ToolCallBlock(tool_name="f", tool_kwargs="[1]")],
    "call of endless text": [ToolCallBlock(tool_name="f", tool_kwargs="[" * 100_000)],
    "cache point": [TextBlock(text="a"), CachePoint(cache_control=CacheControl(type="ephemeral", ttl="1h"))],
    "citable": [
        CitableBlock(
            title="t",
            source="s",
            content=[TextBlock(text="a"), ImageBlock(image=PNG, detail="low"), DocumentBlock(data=b"BMAA")],
        )
    ],
    "citation": [
        CitationBlock(
            cited_content=ImageBlock(url="https://example.com/x"),
            source="s",
            title="t",
            additional_location_info={"page": 3},
        ),
        CitationBlock(
            cited_content=ImageBlock(image=PNG, detail="low"), source="s", title="t", additional_location_info={}
        ),
    ],
}
KWARGS: list[dict[str, Any]] = [
    {"tool_call_id": "call_1"},
    {"tool_call_id": "call_1", "name": "search"},
    {"tool_call_id": None, "name": 7},
    {"tool_call_id": "", "name": ""},
    {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]},
    {"tool_calls": [{"function": {"name": None, "arguments": "{broken"}}, {"unknown": 1}, "text"]},
    {"tool_calls": [{"id": 5, "function": {"name": ["f"], "arguments": {1: 2}}}]},
    {"tool_calls": None, "images": []},
    {"raw": b"\x00\xff", "at": dt.date(2026, 1, 1), "deep": [{1: ({2},)}]},
]


@pytest.mark.parametrize("chat", ROLES, ids=lambda chat: chat.role.value)
def test_every_role_comes_back_equal(chat: ChatMessage) -> None:
    assert again(chat) == chat


@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_comes_back_equal(name: str, caplog: pytest.LogCaptureFixture) -> None:
    chat = ChatMessage(role="assistant", blocks=BLOCKS[name])
    assert again(chat) == chat
    assert caplog.records == []
    assert from_message(to_message(chat)) == chat, "without bytes in between"


@pytest.mark.parametrize("kwargs", KWARGS, ids=str)
@pytest.mark.parametrize("blocks", ["text", "none", "text and calls", "empty text", "thinking", "thinking tokens"])
def test_additional_arguments_come_back_equal(kwargs: dict[str, Any], blocks: str) -> None:
    chat = ChatMessage(role="assistant", blocks=BLOCKS[blocks], additional_kwargs=kwargs)
    assert again(chat) == chat


def test_objects_in_additional_arguments_become_the_dictionaries_that_llama_index_writes() -> None:
    call = ChatCompletionMessageFunctionToolCall(
        id="1", type="function", function=Function(name="f", arguments='{"x": 1}')
    )
    chat = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})
    assert again(chat).model_dump() == chat.model_dump()
    assert to_message(chat).tool_calls == [ToolCall(id="1", name="f", args={"x": 1})]


class Mood(Enum):
    GOOD = "good"


def test_sources_in_additional_arguments_become_what_llama_index_writes_of_their_files_and_addresses(
    file: Path,
) -> None:
    picture = MediaResource(data=PNG, path=file, url=AnyUrl("https://example.com/picture.png"))
    found = [NodeWithScore(node=Node(text_resource=MediaResource(text="My bike."), image_resource=picture), score=0.5)]
    beside = {"sources": found, "files": [file], "pictures": {"first": ImageBlock(path=file)}, "mood": Mood.GOOD}
    chat = ChatMessage(role="assistant", content="It is in the shed.", additional_kwargs=beside)
    assert again(chat).model_dump(mode="json") == chat.model_dump(mode="json")


def test_files_come_back_even_when_they_are_gone(file: Path) -> None:
    blocks = [
        ImageBlock(path=file),
        ImageBlock(path=file, image=PNG, detail="low"),
        DocumentBlock(path=file),
        DocumentBlock(path=str(file)),
        CitableBlock(title="t", source="s", content=[ImageBlock(path=file)]),
        CitationBlock(cited_content=ImageBlock(path=file), source="s", title="t", additional_location_info={}),
    ]
    chat = ChatMessage(blocks=blocks)
    message = Message.from_bytes(to_message(chat).to_bytes())
    file.unlink()
    back = from_message(message)
    assert back == chat
    assert [type(getattr(block, "path", None)) for block in back.blocks] == [
        type(getattr(block, "path", None)) for block in blocks
    ]


def test_an_open_file_is_kept_as_its_bytes() -> None:
    chat = ChatMessage(blocks=[ImageBlock(image=io.BytesIO(PNG), image_mimetype="image/png")])
    for _ in range(2):  # also when it has been read
        assert again(chat).blocks == [ImageBlock(image=PNG)]


def test_bytes_set_after_construction_are_kept_as_base64() -> None:
    block = ImageBlock(image=PNG)
    block.image = b"raw \xff"
    (back,) = again(ChatMessage(blocks=[block])).blocks
    assert isinstance(back, ImageBlock)
    assert back.resolve_image().read() == b"raw \xff"


def test_a_type_taken_away_after_construction_is_not_guessed_again() -> None:
    block = ImageBlock(image=PNG)
    chat = ChatMessage(blocks=[block])
    block.image_mimetype = None
    assert again(chat).blocks == [block]


def test_images_in_additional_arguments_are_blocks_already() -> None:
    document = ImageDocument(image=base64.b64encode(PNG).decode())
    chat = ChatMessage(role="user", content="see", additional_kwargs={"images": [document]})
    back = again(chat)
    assert back.blocks == chat.blocks == [TextBlock(text="see"), ImageBlock(image=PNG)]
    assert back.additional_kwargs == {}


def test_the_shared_fields_are_filled_for_everyone_else() -> None:
    message = to_message(ChatMessage(role="model", blocks=[TextBlock(text="on it"), CALL]))
    assert (message.id, message.role, message.content) == ("", "assistant", "on it")
    assert message.tool_calls == [ToolCall(id="call_1", name="search", args={"q": "bike", "n": [1, (2,)]})]
    answer = ChatMessage(role="tool", content="42", additional_kwargs={"tool_call_id": "call_1", "name": "search"})
    expected = Message(role="tool", content="42", tool_call_id="call_1", name="search")
    assert to_message(answer) == expected
    assert to_message(ChatMessage(role="user", content="hi")) == Message(role="user", content="hi")
    assert to_message(ChatMessage(role="user", content="")) == Message(role="user", content="")
    assert to_message(ChatMessage(role="user", blocks=[])).content == ""
    assert to_message(ChatMessage(role="assistant", blocks=BLOCKS["text and calls"])).host == {}
    nameless = ChatMessage("", additional_kwargs={"tool_calls": [{"id": "1", "function": {"arguments": "{}"}}]})
    assert to_message(nameless).tool_calls == [ToolCall(id="1", name="", args={})]


def test_blocks_are_standard_content_blocks() -> None:
    data = base64.b64encode(PNG).decode()
    chat = ChatMessage(
        blocks=[
            TextBlock(text="a"),
            ImageBlock(image=PNG, detail="low"),
            ImageBlock(url="https://example.com/x.png"),
            AudioBlock(audio=MP3),
            DocumentBlock(data=PDF, title="Terms"),
            ThinkingBlock(content="hm"),
            CachePoint(cache_control=CacheControl(type="ephemeral")),
        ]
    )
    message = to_message(chat)
    assert message.host == {}, "what the content says is not said again"
    assert message.content == [
        {"type": "text", "text": "a"},
        {"type": "image", "base64": data, "mime_type": "image/png", "extras": {"detail": "low"}},
        {"type": "image", "url": "https://example.com/x.png", "mime_type": "image/png"},
        {"type": "audio", "base64": base64.b64encode(MP3).decode(), "mime_type": "audio/mp3"},
        {
            "type": "file",
            "base64": base64.b64encode(PDF).decode(),
            "mime_type": "application/pdf",
            "extras": {"filename": "Terms"},
        },
        {"type": "reasoning", "reasoning": "hm"},
        {
            "type": "non_standard",
            "value": {"block_type": "cache", "cache_control": {"type": "ephemeral", "ttl": "5m"}},
        },
    ]


def test_data_of_a_url_that_is_no_utf_8_comes_back() -> None:
    url = "data:text/plain,half of \ud83d"
    message = Message(role="user", content=[{"type": "file", "file": {"file_data": url, "filename": "a.txt"}}])
    (block,) = from_message(message).blocks
    assert isinstance(block, DocumentBlock)
    assert isinstance(block.data, bytes)
    assert base64.b64decode(block.data) == "half of \ud83d".encode("utf-8", "surrogatepass")


def test_a_call_whose_arguments_cannot_be_read_is_langchains_invalid_one() -> None:
    message = to_message(ChatMessage(blocks=[ToolCallBlock(tool_call_id="1", tool_name="look", tool_kwargs="{")]))
    assert message.content == [{"type": "invalid_tool_call", "id": "1", "name": "look", "args": "{", "error": None}]


def test_a_citable_block_without_files_is_read_from_its_content_alone() -> None:
    block = CitableBlock(title="a", source="b", content=[TextBlock(text="c")])
    message = to_message(ChatMessage(blocks=[block]))
    assert message.host == {}
    assert from_message(message).blocks == [block]


def test_bytes_are_stored_once() -> None:
    blocks = [CALL, ImageBlock(image=PNG, url="https://example.com/x.png"), TextBlock(text="needle")]
    data = to_message(ChatMessage(blocks=blocks)).to_bytes()
    assert data.count(base64.b64encode(PNG)) == data.count(b"needle") == data.count(b"bike") == 1


def test_a_large_message_comes_back_equal() -> None:
    chat = ChatMessage(blocks=[TextBlock(text="é" * 2_500_000), ImageBlock(image=b"\xff" * 5_000_000)])
    assert again(chat) == chat


@pytest.mark.parametrize("layout", ["text", [1], [{}], [{}, {}, {}, {}], [{"call": True}] * 4, {"a": 1}])
def test_a_damaged_layout_does_not_lose_the_message(layout: Any, caplog: pytest.LogCaptureFixture) -> None:
    message = to_message(ChatMessage(role="assistant", blocks=[CALL, TextBlock(text="secret"), CALL]))
    message.host["llama_index"]["blocks"] = layout
    with caplog.at_level(logging.WARNING, logger="langmem_adapters"):
        assert from_message(message).blocks == [TextBlock(text="secret"), CALL, CALL]
    assert "blocks" in caplog.text
    assert "secret" not in caplog.text


PATHS = ("path", "file_path")
HARMLESS = {"block_type": "text", "text": "harmless"}
OF_FILE = {"block_type": "image", "path": __file__}


def named(fields: dict[str, Any]) -> dict[str, Any]:
    """A block that names a file of this machine, as LlamaIndex would read it for its model, and anybody may write it.

    What LlamaIndex itself wrote is told by what is noted beside the content.
    """
    return {"type": "non_standard", "value": fields}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "hologram"},
        {"type": ["list"]},
        {},
        {"type": "text"},
        {"type": "image"},
        {"type": "image", "base64": "ü"},
        {"type": "image", "url": "not a url", "mime_type": 7},
        {"type": "image_url", "image_url": 7},
        {"type": "map", "url": "https://example.com/map"},
        {"type": "reasoning", "reasoning": 7},
        {"type": "non_standard", "value": {"block_type": "os.system"}},
        {"type": "non_standard", "value": {"block_type": "citable", "content": [7]}},
        {"type": "non_standard", "value": {"block_type": ["list"]}},
        *(named({"block_type": kind, name: __file__}) for kind in ("image", "document") for name in PATHS),
        named({"block_type": "citable", "title": "t", "source": "s", "content": [HARMLESS, OF_FILE]}),
        named(
            {
                "block_type": "citation",
                "title": "t",
                "source": "s",
                "additional_location_info": {},
                "cited_content": OF_FILE,
            }
        ),
        {"type": "tool_use", "name": None},
    ],
    ids=str,
)
def test_a_block_that_cannot_be_read_is_left_out_with_a_warning(
    block: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    row = codec.encode({"v": 1, "id": "m-7", "role": "user", "content": ["secret", block]})
    assert from_message(Message.from_bytes(row)) == ChatMessage(role="user", content="secret")
    (record,) = caplog.records
    assert "m-7" in record.getMessage()
    assert "secret" not in record.getMessage()


def test_damaged_host_fields_do_not_lose_the_message(caplog: pytest.LogCaptureFixture) -> None:
    host = {"llama_index": {"role": ["x"], "additional_kwargs": "text"}}
    message = Message(id="m", role="assistant", content="hi", host=host)
    assert from_message(message) == ChatMessage(role="assistant", content="hi")
    assert "additional_kwargs" in caplog.text


def test_values_that_the_classes_refuse_are_refused() -> None:
    chat = ChatMessage(role="user", content="hi")
    chat.blocks = [TextBlock.model_construct(text={"said": "what was said"})]  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="content") as caught:
        to_message(chat)
    assert "what was said" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("images", [["a.png", "b.png"], 2])
def test_images_of_ones_own_beside_a_message_are_kept(images: Any) -> None:
    chat = ChatMessage("Look.")
    chat.additional_kwargs = {"images": images}
    assert from_message(to_message(chat)) == chat


@pytest.mark.parametrize("left", [[], [{"type": "text", "text": "a"}]])
def test_a_layout_that_does_not_fit_what_is_left_of_a_message_is_not_followed(
    left: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    thoughts = [ThinkingBlock(content=text, num_tokens=1) for text in ("one", "two")]
    message = to_message(ChatMessage(role="assistant", blocks=thoughts)).model_copy(update={"content": left})
    assert from_message(message).blocks == [TextBlock(text=part["text"]) for part in left]
    assert "'blocks' cannot be read" in caplog.text


@pytest.mark.parametrize(
    ("content", "layout", "shown"),
    [
        ("hm", [{"call": True}], "hm"),
        ([{"type": "text", "text": "hm"}], [{}], "hm"),
        ([{"type": "text", "text": "hm"}, {"type": "hologram"}], [{}, {}, {"call": True}], "hm"),
        ("", [{}], None),
    ],
)
def test_a_layout_of_other_content_loses_neither_text_nor_calls(
    content: Any, layout: list[Any], shown: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    call = ToolCall(id="call_1", name="search", args={"q": "bike", "n": [1, (2,)]})
    host = {"llama_index": {"blocks": layout, "additional_kwargs": {"own": 1}}}
    message = Message(role="assistant", content=content, tool_calls=[call], host=host)
    assert from_message(message).blocks == [*([TextBlock(text=shown)] if shown else []), CALL]
    assert "'blocks' cannot be read" in caplog.text


def test_calls_that_were_taken_out_of_a_message_of_openai_are_not_looked_for() -> None:
    beside = {"tool_calls": [{"id": "call_1", "function": {"name": "search", "arguments": "{}"}}]}
    message = to_message(ChatMessage(role="assistant", blocks=BLOCKS["call before text"], additional_kwargs=beside))
    assert from_message(message.model_copy(update={"tool_calls": []})).blocks == [TextBlock(text="wait")]


def test_a_layout_fits_texts_that_are_written_short() -> None:
    message = to_message(ChatMessage(role="user", blocks=BLOCKS["document title"] + BLOCKS["thinking tokens"]))
    assert isinstance(message.content, list)
    longer = message.model_copy(update={"content": ["Look.", *message.content[1:]]})
    assert from_message(longer).blocks == [TextBlock(text="Look."), *BLOCKS["thinking tokens"]]


@pytest.mark.parametrize("args", [None, {}])
def test_a_call_without_arguments_is_one(args: Any) -> None:
    call = {"type": "tool_call", "id": "call_1", "name": "now", "args": args}
    message = Message(role="assistant", content=["Wait.", call])
    assert from_message(message).blocks[1:] == [ToolCallBlock(tool_call_id="call_1", tool_name="now", tool_kwargs={})]


@pytest.mark.parametrize("extras", [None, {}])
def test_a_thought_without_extras_is_one(extras: Any) -> None:
    thought = {"type": "reasoning", "reasoning": "Hm.", "extras": extras}
    blocks = from_message(Message(role="assistant", content=[thought, "Wait."])).blocks
    assert blocks == [ThinkingBlock(content="Hm."), TextBlock(text="Wait.")]


def test_what_cannot_be_read_is_named_by_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    audio = {"type": "non_standard", "value": {"block_type": "audio", "audio": 7}}
    hologram = {"type": "hologram", "value": {"block_type": "text", "text": "hey"}}
    odd = {"type": "non_standard", "value": {"text": "hello"}}
    assert from_message(Message(id="m", role="user", content=["hi", audio, hologram, odd])).content == "hi"
    named = [record.getMessage().partition(" field ")[2] for record in caplog.records]
    kinds = ["'audio'", "'content of type hologram'", "'content of type non_standard'"]
    assert [name.split(" cannot")[0] for name in named] == kinds


def test_a_message_is_read_without_a_change_to_it() -> None:
    message = to_message(ChatMessage("hi", additional_kwargs={"mood": "good", "name": "ada"}))
    before = message.model_copy(deep=True)
    assert from_message(message).additional_kwargs == {"mood": "good", "name": "ada"}
    assert message == before


def test_what_holds_itself_is_refused_as_what_cannot_be_stored() -> None:
    endless: dict[str, Any] = {}
    endless["within"] = [endless]
    call = ToolCallBlock(tool_name="f", tool_kwargs={})
    call.tool_kwargs = endless
    for chat in (ChatMessage("Hi.", additional_kwargs={"own": endless}), ChatMessage(blocks=[call])):
        with pytest.raises(SerializationError, match="nested too deep"):
            to_message(chat)


texts = st.text(st.characters(), max_size=8)  # lone surrogates included
data = st.binary(max_size=12)
kinds = st.none() | st.sampled_from(["image/png", "mp3", "audio/mp3", "x", ""])
urls = st.none() | st.sampled_from(["https://example.com/a.png", "gs://bucket/a b", "data:image/png;base64,AAAA"])
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | texts | data,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2) | st.tuples(inner),
    max_leaves=4,
)
objects = st.dictionaries(texts, plain, max_size=2)
details = st.none() | texts
text_blocks = st.builds(TextBlock, text=texts)
image_blocks = st.builds(ImageBlock, image=st.none() | data, url=urls, image_mimetype=kinds, detail=details)
document_blocks = st.builds(
    DocumentBlock,
    data=st.none() | data,
    url=st.none() | texts,
    path=st.none() | texts,
    title=details,
    document_mimetype=kinds,
)
any_block = st.one_of(
    text_blocks,
    image_blocks,
    document_blocks,
    st.builds(AudioBlock, audio=st.none() | data, url=urls, format=kinds),
    st.builds(VideoBlock, video=st.none() | data, url=urls, video_mimetype=kinds, fps=st.none() | st.integers()),
    st.builds(ThinkingBlock, content=details, num_tokens=st.none() | st.integers(), additional_information=objects),
    st.builds(
        ToolCallBlock,
        tool_call_id=details,
        tool_name=texts,
        tool_kwargs=objects | texts | st.dictionaries(st.text(), st.integers(), max_size=2).map(json.dumps),
    ),
    st.builds(CachePoint, cache_control=st.builds(CacheControl, type=texts)),
    st.builds(
        CitableBlock,
        title=texts,
        source=texts,
        content=st.lists(text_blocks | image_blocks | document_blocks, max_size=2),
    ),
    st.builds(
        CitationBlock,
        cited_content=text_blocks | image_blocks,
        source=texts,
        title=texts,
        additional_location_info=st.dictionaries(texts, st.integers(), max_size=2),
    ),
)
arguments = st.dictionaries(texts | st.sampled_from(["name", "tool_call_id", "tool_calls"]), plain, max_size=3)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(MessageRole), st.lists(any_block, max_size=4), arguments)
def test_any_message_comes_back_equal(role: MessageRole, blocks: list[Any], kwargs: dict[str, Any]) -> None:
    chat = ChatMessage(role=role, blocks=blocks, additional_kwargs=kwargs)
    before = chat.model_copy(deep=True)
    assert again(chat) == chat
    assert chat == before, "a conversion does not change its argument"
