"""LlamaIndex content blocks as plain fields, and those fields as LangChain's standard content blocks.

Bytes are base64 text, URLs and paths are text; nothing is fetched, and no file is opened.
"""

from __future__ import annotations

import base64
import binascii
from enum import Enum
from io import IOBase
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from llama_index.core.base.llms.types import BaseContentBlock, ContentBlock
from pydantic import AnyUrl, BaseModel

from langmem_adapters.errors import SerializationError
from langmem_adapters.experience.functions.equality import ATOMS

Fields = dict[str, Any]
"""A block as plain data, beginning with its ``block_type``."""

OF_FILE: Final = "of_file"
"""The mark of a block that LlamaIndex reads from a file: without it, content alone cannot have a file read."""

_PATHS: Final = frozenset({"file_path", "path"})
_BLOCKS: Final[dict[str, type[BaseContentBlock]]] = {
    cls.model_fields["block_type"].default: cls for cls in get_args(get_args(ContentBlock)[0])
}


class _Medium(NamedTuple):
    """LlamaIndex's field names for a block of bytes, and the type of the standard block."""

    standard: str
    data: str
    mime: str


_MEDIA: Final = {
    "image": _Medium("image", "image", "image_mimetype"),
    "audio": _Medium("audio", "audio", "format"),
    "video": _Medium("video", "video", "video_mimetype"),
    "document": _Medium("file", "data", "document_mimetype"),
}
_BLOCK_TYPES: Final = {medium.standard: name for name, medium in _MEDIA.items()}
_EXTRAS: Final = {"detail": "detail", "title": "filename"}  # fields that have a place in a block's extras
_FORMATS: Final = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "x-m4a": "m4a"}


def plain(value: Any) -> Any:
    """Write models as dictionaries, paths and URLs as text, and enums as their values, as LlamaIndex itself does.

    Raises SerializationError for a value that contains itself, or is nested too deep.
    """
    try:
        return _to_plain(value)
    except RecursionError as error:
        raise SerializationError("a value is nested too deep to be stored from this depth of calls") from error


def _to_plain(value: Any) -> Any:
    if type(value) in ATOMS:  # as most are, such as each number of an embedding
        return value
    if isinstance(value, BaseModel):
        return _to_plain(value.model_dump())
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    if isinstance(value, Enum):
        return _to_plain(value.value)
    return str(value) if isinstance(value, (Path, AnyUrl)) else value


def block_fields(model: BaseModel) -> Fields:
    """Write a block as plain data: what is not None, and always the MIME type of a medium, even if unknown."""
    fields: Fields = {}
    for name, value in model.__dict__.items():
        if isinstance(value, bytes | IOBase):
            fields[name] = _base64(value)
        elif isinstance(value, Path):
            fields["file_path"] = str(value)
        elif isinstance(value, BaseModel):
            fields[name] = block_fields(value)
        elif isinstance(value, list):
            fields[name] = [block_fields(item) if isinstance(item, BaseModel) else plain(item) for item in value]
        elif value is not None:
            fields[name] = plain(value)
    medium = _MEDIA.get(fields.get("block_type", ""))
    if medium is not None:
        fields.setdefault(medium.mime, None)
    return fields


def _base64(value: bytes | IOBase) -> str:
    if isinstance(value, bytes):
        data = value
    else:
        value.seek(0)
        data = value.read()
    try:
        base64.b64decode(data, validate=True)
    except binascii.Error:  # assigned after the block's own conversion
        data = base64.b64encode(data)
    return data.decode()


def build_block(fields: Fields) -> BaseContentBlock:
    """Build a block from its fields. Damaged fields raise whatever its class raises for them."""
    block_type = fields["block_type"]
    arguments = {key: value for key, value in fields.items() if key != "file_path"}
    if block_type == "citable":
        arguments["content"] = [build_block(item) for item in fields["content"]]
    elif block_type == "citation":
        arguments["cited_content"] = build_block(fields["cited_content"])
    medium = _MEDIA.get(block_type)
    if medium is not None and isinstance(data := arguments.get(medium.data), str):
        arguments[medium.data] = data.encode("ascii")
    block = _BLOCKS[block_type](**arguments)
    # These two are assigned, as a constructor requires that the file still exists, and guesses the MIME type.
    if "file_path" in fields:
        setattr(block, "path", Path(fields["file_path"]))  # noqa: B010 - no field of the common class
    if medium is not None and not fields.get(medium.mime, "unknown"):
        setattr(block, medium.mime, fields[medium.mime])
    return block


def to_standard(fields: Fields) -> tuple[dict[str, Any], Fields]:
    """Write a block's fields as a standard content block; also returns the fields that have no place in it."""
    block_type = fields["block_type"]
    rest = {key: value for key, value in fields.items() if key != "block_type"}
    if block_type == "text":
        return {"type": "text", "text": fields["text"]}, {}
    if block_type == "thinking":
        standard = {"type": "reasoning"}
        if "content" in rest:
            standard["reasoning"] = rest.pop("content")
        if extras := rest.pop("additional_information", None):
            standard["extras"] = extras
        return standard, rest
    if block_type == "tool_call":  # with arguments that are not JSON
        call = {"id": fields.get("tool_call_id"), "name": fields["tool_name"], "args": fields["tool_kwargs"]}
        return {"type": "invalid_tool_call", **call, "error": None}, {"block_type": block_type}
    if block_type in _MEDIA and (_MEDIA[block_type].data in rest or "url" in rest):
        return _standard_medium(block_type, rest)
    return {"type": "non_standard", "value": fields}, {OF_FILE: True} if _mentions_file(fields) else {}


def _mentions_file(value: Any) -> bool:
    """Whether LlamaIndex would read a file of this machine for a block, or for one inside of it."""
    if isinstance(value, dict):
        return any(value.get(name) for name in _PATHS) or any(map(_mentions_file, value.values()))
    return isinstance(value, list) and any(map(_mentions_file, value))


def _standard_medium(block_type: str, rest: Fields) -> tuple[dict[str, Any], Fields]:
    medium = _MEDIA[block_type]
    standard: dict[str, Any] = {"type": medium.standard}
    if medium.data in rest:
        standard["base64"] = rest.pop(medium.data)
    else:
        standard["url"] = rest.pop("url")
        if standard["url"].startswith("data:"):  # without a layout it would be read as bytes
            rest["block_type"] = block_type
    if mime := rest[medium.mime]:
        standard["mime_type"] = f"audio/{mime}" if block_type == "audio" else mime
        if block_type != "audio" or _audio_format(standard["mime_type"]) == mime:
            del rest[medium.mime]
    extras = {other: rest.pop(name) for name, other in _EXTRAS.items() if name in rest}
    return (standard | {"extras": extras} if extras else standard), rest


def _audio_format(mime: str) -> str:
    """Turn ``audio/mpeg`` into the ``mp3`` by which LlamaIndex and OpenAI call it."""
    name = mime.partition(";")[0].rpartition("/")[2]
    return _FORMATS.get(name, name)


def from_standard(standard: str | dict[Any, Any], *, of_file: bool = False) -> Fields | None:
    """Read a standard content block; None if LlamaIndex has none for it, or if it names a file without ``of_file``."""
    if isinstance(standard, str):
        return {"block_type": "text", "text": standard}
    kind = str(standard.get("type"))
    if kind in _BLOCK_TYPES and ("base64" in standard or "url" in standard):
        return _medium_fields(_BLOCK_TYPES[kind], standard)
    if kind == "reasoning":
        extras, content = standard.get("extras") or {}, standard.get("reasoning")
        return {"block_type": "thinking", "content": content, "additional_information": extras}
    if kind in {"tool_call", "invalid_tool_call"}:
        return call_fields(standard.get("id"), standard.get("name"), standard.get("args") or {})
    if kind == "non_standard" and isinstance(value := standard.get("value"), dict) and "block_type" in value:
        return value if of_file or not _mentions_file(value) else None
    text = standard.get("refusal" if kind == "refusal" else "text")
    return {"block_type": "text", "text": text} if isinstance(text, str) else None


def call_fields(id_: Any, name: Any, arguments: Any) -> Fields:
    """The fields of a tool call block."""
    return {"block_type": "tool_call", "tool_call_id": id_, "tool_name": name, "tool_kwargs": arguments}


def _medium_fields(block_type: str, standard: dict[str, Any]) -> Fields:
    medium = _MEDIA[block_type]
    fields: Fields = {"block_type": block_type, medium.data: standard.get("base64"), "url": standard.get("url")}
    if isinstance(mime := standard.get("mime_type"), str):
        fields[medium.mime] = _audio_format(mime) if block_type == "audio" else mime
    if isinstance(extras := standard.get("extras"), dict):
        fields.update((name, extras[other]) for name, other in _EXTRAS.items() if other in extras)
    return fields
