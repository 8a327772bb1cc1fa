"""Content blocks: the spellings of the providers, read into LangChain's standard ones.

A standard block is a dictionary with a ``type``: ``text``, ``image``, ``audio``, ``video``, ``file`` (bytes
as ``base64``, or a ``url``, and a ``mime_type``), ``reasoning``, ``tool_call``. Nothing is fetched or opened.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

THOUGHT_TYPES: Final = frozenset({"reasoning", "reasoning_content", "redacted_thinking", "thinking"})
"""The types of blocks with a model's thoughts: as LangChain and OpenAI, Bedrock and Anthropic call them."""

_THOUGHT_PATTERN = re.compile(r"<think>.*?</think>", re.DOTALL)
_Block = Mapping[str, Any]
_Standard = dict[str, Any]


def without_thoughts(text: str) -> str:
    """An answer's text without the thoughts that some servers write out in it; "" if it was cut off among them."""
    if "</think>" in text:
        thoughts, end_tag, rest = text.partition("</think>\n")
        if end_tag and "<think>" not in thoughts:  # some servers put the opening <think> into the prompt
            text = rest
        before, last_tag, after = text.rpartition("</think>")  # behind the last end tag, no thought is searched for
        text = _THOUGHT_PATTERN.sub("", before + last_tag) + after
    answer = text.strip()
    return "" if answer.startswith("<think>") else answer


def standard_block(block: str | _Block) -> _Standard:
    """Read a text or a block of LangChain (v0 or v1), OpenAI, Anthropic or Google into a standard block.

    A block in no known spelling comes back as it is.
    """
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = block.get("type")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    standard = None if reader is None else reader(block)
    return standard or dict(block)


def _text(block: _Block) -> _Standard | None:
    text = block.get("text")
    return {"type": "text", "text": text} if isinstance(text, str) else None


def _media(kind: str, *, data: Any = None, url: Any = None, mime: Any = None, **extras: Any) -> _Standard | None:
    """Write a standard block of bytes or a URL; None if there is neither."""
    if isinstance(url, str) and url.startswith("data:"):
        data, mime = _data_url(url, mime)
    standard: _Standard = {"type": kind}
    if isinstance(data, bytes):
        standard["base64"] = base64.b64encode(data).decode()
    elif isinstance(data, str):
        standard["base64"] = _canonical(data)
    elif isinstance(url, str):
        standard["url"] = url
    else:
        return None
    if isinstance(mime, str) and mime:
        standard["mime_type"] = mime
    if text_extras := {name: value for name, value in extras.items() if isinstance(value, str)}:
        standard["extras"] = text_extras
    return standard


def _data_url(url: str, mime: Any) -> tuple[str | bytes | None, Any]:
    """Split ``data:image/png;base64,…``; the data is None if the URL has none."""
    head, comma, data = url[5:].partition(",")
    if not comma:
        return None, mime
    kind, *parameters = head.split(";")
    if "base64" in parameters:
        return data, kind or mime
    # Given a text, it would encode that strictly, and a lone surrogate can be in any.
    return unquote_to_bytes(data.encode("utf-8", "surrogatepass")), kind or mime


def _canonical(text: str) -> str:
    """Write base64 as LlamaIndex recognises it: one line, the standard alphabet, padded."""
    text = "".join(text.split()).rstrip("=").replace("-", "+").replace("_", "/")
    return text + "=" * (-len(text) % 4)


def _openai_image(block: _Block) -> _Standard | None:
    image = block.get("image_url")
    if isinstance(image, Mapping):
        return _media("image", url=image.get("url"), detail=image.get("detail"))
    return _media("image", url=image, detail=block.get("detail"))


def _openai_audio(block: _Block) -> _Standard | None:
    audio = block.get("input_audio")
    if not isinstance(audio, Mapping):
        return None
    return _media("audio", data=audio.get("data"), mime=f"audio/{audio.get('format') or 'wav'}")


def _source(block: _Block) -> _Standard | None:
    """Read an image, audio, video or file of LangChain or OpenAI, and an image or document of Anthropic."""
    kind = "file" if block["type"] in {"document", "input_file"} else block["type"]
    source, file = block.get("source"), block.get("file")
    if isinstance(source, Mapping):
        return _anthropic_source(kind, source, block.get("title"))
    if not isinstance(file, Mapping):
        file = block
    extras = block.get("extras")
    extras = extras if isinstance(extras, Mapping) else {}
    filename = file.get("filename") or extras.get("filename") or block.get("title")
    data = next((block[key] for key in ("base64", "data") if block.get(key) is not None), None)
    url = next((file[key] for key in ("url", "file_data", "file_url") if file.get(key) is not None), None)
    mime, detail = block.get("mime_type"), block.get("detail") or extras.get("detail")
    return _media(kind, data=data, url=url, mime=mime, filename=filename, detail=detail)


def _anthropic_source(kind: str, source: _Block, title: Any) -> _Standard | None:
    data, mime = source.get("data"), source.get("media_type")
    if source.get("type") == "text":
        return {"type": "text", "text": data} if isinstance(data, str) else None
    return _media(kind, data=data, url=source.get("url"), mime=mime, filename=title)


def _google_media(block: _Block) -> _Standard | None:
    mime = block.get("mime_type")
    kind = mime.partition("/")[0] if isinstance(mime, str) else ""
    kind = kind if kind in {"image", "audio", "video"} else "file"
    return _media(kind, data=block.get("data"), url=block.get("file_uri"), mime=mime)


def _thinking(block: _Block) -> _Standard:
    """Read a thought of Anthropic or Google, or of Mistral, whose thoughts hold texts."""
    thought = block.get("thinking")
    return _thought(_joined(thought, "") if isinstance(thought, list) else thought, block, "thinking")


def _bedrock_thinking(block: _Block) -> _Standard | None:
    thought = block.get("reasoning_content")
    return _thought(thought.get("text"), thought, "text") if isinstance(thought, Mapping) else None


def _thought(text: Any, block: _Block, text_key: str) -> _Standard:
    """Write a standard block of a thought; what else its own block holds, such as a signature, goes into the extras."""
    omitted = {"type", text_key, "index"}
    extras = {key: value for key, value in block.items() if key not in omitted}
    return {"type": "reasoning", "reasoning": text, "extras": extras}


def _joined(parts: list[Any], separator: str) -> str:
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return separator.join(text for text in texts if isinstance(text, str))


def _redacted_thinking(block: _Block) -> _Standard:
    return {"type": "reasoning", "extras": dict(block)}


def _reasoning(block: _Block) -> _Standard | None:
    """Join the parts of OpenAI's summary; a standard block stays as it is."""
    summary = block.get("summary")
    return _thought(_joined(summary, "\n\n"), block, "summary") if isinstance(summary, list) else None


def _tool_use(block: _Block) -> _Standard:
    return {"type": "tool_call", "id": block.get("id"), "name": block.get("name"), "args": block.get("input")}


_READERS: Final[Mapping[str, Callable[[_Block], _Standard | None]]] = {
    "input_text": _text,
    "output_text": _text,
    "text-plain": _text,
    "image_url": _openai_image,
    "input_image": _openai_image,
    "input_audio": _openai_audio,
    "image": _source,
    "audio": _source,
    "video": _source,
    "file": _source,
    "input_file": _source,
    "document": _source,
    "media": _google_media,
    "thinking": _thinking,
    "reasoning_content": _bedrock_thinking,
    "redacted_thinking": _redacted_thinking,
    "reasoning": _reasoning,
    "tool_use": _tool_use,
}
