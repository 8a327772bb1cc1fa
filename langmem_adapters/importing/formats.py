"""The formats of a source: which one it has, and its values with their places."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.importing.chatgpt import read_chatgpt
from langmem_adapters.importing.hosts import read_langchain_message, read_llamaindex_message, read_llamaindex_sessions
from langmem_adapters.importing.locomo import read_locomo
from langmem_adapters.importing.metagpt import read_collections
from langmem_adapters.importing.openai import read_chat_message
from langmem_adapters.importing.transcript import Transcript, to_transcripts
from langmem_adapters.json_files import LocatedValue, read_all, text_of, values_of
from langmem_adapters.sessions import Line, parse_lines
from langmem_adapters.text import decode_escaped_utf8
from langmem_adapters.validation import check_text

FileFormat = Literal["auto", "jsonl", "openai", "langchain", "llama-index", "chatgpt", "locomo", "metagpt"]

_UNKNOWN_FORMAT = (
    "is neither an export, nor a list of chat messages, nor a LoCoMo file: name its format with --format, or write each"
    ' message as {"role": "user", "content": "…"}, with "id" and "created_at" (Unix seconds)'
)
_MESSAGE_READERS = {
    "openai": read_chat_message,
    "langchain": read_langchain_message,
    "llama-index": read_llamaindex_message,
}


def read_transcripts(
    path: str | os.PathLike[str], *, format_: FileFormat = "auto", session: str = ""
) -> list[Transcript]:
    """Read the sessions of a file, or of the folder in which MetaGPT keeps its long-term memory.

    Args:
        path: The file. Gzip is recognised by its content.
        format_: How it is written; "auto" detects it from the first value, and takes a folder with a Chroma database
            for MetaGPT's.
        session: Names the session of chat messages; default: the file's name without its suffixes.

    Raises SerializationError, naming the first wrong place, OSError if the file cannot be read, ConfigurationError
    for an unknown format, and MissingDependency if a format needs an extra that is not installed.
    """
    if format_ not in get_args(FileFormat):
        raise ConfigurationError(f"format_ is {', '.join(get_args(FileFormat))}, not {format_!r:.50}")
    check_text("session", session)
    path = Path(path)
    try:
        if format_ == "metagpt" or (format_ == "auto" and (path / "chroma.sqlite3").is_file()):
            _refuse_session(session, "metagpt")
            return read_collections(path)
        with path.open("rb") as file:
            text = text_of(read_all(file))
        values = values_of(text, lines=format_ == "jsonl" or ".jsonl" in path.suffixes)
        if len(values) == 1 and text.lstrip().startswith('"'):  # LlamaIndex persisted its chat stores so at first
            values = values_of(values[0].value)
        format_ = _detect_format(values) if format_ == "auto" else format_
        if format_ == "llama-index" and (transcripts := read_llamaindex_sessions(values)) is not None:
            _refuse_session(session, format_)
            return transcripts
        if format_ in _MESSAGE_READERS:
            # as it is typed: macOS may write a letter and its accent apart
            name = unicodedata.normalize("NFC", decode_escaped_utf8(path.name))
            return to_transcripts(values, session or name.split(".")[0] or name, _MESSAGE_READERS[format_])
        _refuse_session(session, format_)
        if format_ == "jsonl":
            del values  # frees them before the lines are parsed
            return _read_export(text)
        return read_chatgpt(values) if format_ == "chatgpt" else read_locomo(values)
    except SerializationError as error:
        raise SerializationError(f"{path}: {error}") from error


def _refuse_session(session: str, format_: FileFormat) -> None:
    if session:
        raise ConfigurationError(f"a file of the format {format_} names its sessions itself: leave --session out")


def _detect_format(values: Sequence[LocatedValue]) -> FileFormat:
    if not values:
        raise SerializationError("it is empty")
    first = values[0].value if isinstance(values[0].value, dict) else {}
    if "conversations" in first or "turns" in first:
        return "locomo"
    if "mapping" in first:
        return "chatgpt"
    if "session" in first and first.get("type") in ("session", "message"):
        return "jsonl"
    if isinstance(first.get("store"), dict):
        return "llama-index"
    messages = first.get("messages")
    if format_ := _message_format(messages[0] if isinstance(messages, list) and messages else first):
        return format_
    if "messages" in first:
        return "openai"
    raise SerializationError(f"{values[0].location} {_UNKNOWN_FORMAT}")


def _message_format(message: Any) -> FileFormat | None:
    if not isinstance(message, dict):
        return None
    if "lc" in message or isinstance(message.get("data"), dict):
        return "langchain"
    if "role" in message:
        return "llama-index" if "blocks" in message or "additional_kwargs" in message else "openai"
    return None


def _read_export(text: str) -> list[Transcript]:
    lines_by_session: dict[str, list[Line]] = {}
    for line in parse_lines(text):
        lines_by_session.setdefault(line["session"], []).append(line)
    return [Transcript(None, session, lines) for session, lines in lines_by_session.items()]
