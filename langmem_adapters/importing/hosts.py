"""Message lists as LangChain and LlamaIndex write them. Classes are picked from fixed tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langmem_adapters.errors import LangmemError, MissingDependency, SerializationError
from langmem_adapters.importing.transcript import Transcript, to_transcript
from langmem_adapters.json_files import LocatedValue
from langmem_adapters.model import Message

_TYPES_BY_CLASS = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}
_TYPES_BY_CLASS |= {f"{name}Chunk": f"{name}Chunk" for name in _TYPES_BY_CLASS}
_ESCAPED = "__lc_escaped__"  # the one key of what ``dumps`` puts around a dictionary of the user's with the key "lc"
# what hosts make of damaged fields
_HOST_ERRORS = (ValueError, TypeError, KeyError, AttributeError, RecursionError, LangmemError)


def read_langchain_message(location: str, value: Any) -> Message:
    """Read a message that ``messages_to_dict`` or ``dumps`` wrote, with ``langchain-core``.

    Raises SerializationError, naming the place, for anything else; nothing but messages is ever built.
    """
    try:
        from langchain_core.messages import messages_from_dict  # noqa: PLC0415 - an optional package

        from langmem_adapters.langchain.convert import to_message  # noqa: PLC0415 - needs it too
    except ImportError as error:
        raise MissingDependency("langchain-core", "langchain") from error
    try:
        type_name, data = _langchain_fields(value)
        return to_message(messages_from_dict([{"type": type_name, "data": data}])[0])
    except _HOST_ERRORS:  # whose errors quote what was said
        raise SerializationError(f"{location} is not a message of LangChain: its fields are wrong") from None


def _langchain_fields(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, dict):
        return None, None
    if "lc" not in value:
        return value.get("type"), value.get("data")
    path = value.get("id")
    if value.get("type") != "constructor" or not isinstance(path, list) or not path:
        return None, None
    return _TYPES_BY_CLASS.get(str(path[-1])), _unescaped(value.get("kwargs"))


def _unescaped(value: Any) -> Any:
    """What was dumped, without the marks around dictionaries of the user's, in which nothing is marked again."""
    if isinstance(value, list):
        return [_unescaped(part) for part in value]
    if not isinstance(value, dict):
        return value
    return value[_ESCAPED] if value.keys() == {_ESCAPED} else {name: _unescaped(part) for name, part in value.items()}


def read_llamaindex_message(location: str, value: Any) -> Message:
    """Read a dumped ``ChatMessage``, with ``llama-index-core``; no file is opened, and nothing is fetched.

    Raises SerializationError, naming the place, for anything else.
    """
    try:
        from llama_index.core.base.llms.types import ChatMessage, TextBlock  # noqa: PLC0415 - an optional package

        from langmem_adapters.llamaindex.blocks import build_block  # noqa: PLC0415 - needs it too
        from langmem_adapters.llamaindex.convert import to_message  # noqa: PLC0415 - needs it too
    except ImportError as error:
        raise MissingDependency("llama-index-core", "llama-index") from error
    try:
        chat = ChatMessage(role=value["role"])
        blocks: list[Any] = [build_block(fields) for fields in value.get("blocks") or []]
        # "content" is what versions before 0.12 wrote
        chat.blocks = blocks if "blocks" in value else [TextBlock(text=value.get("content") or "")]
        chat.additional_kwargs = dict(value.get("additional_kwargs") or {})
        return to_message(chat)
    except _HOST_ERRORS:  # whose errors quote what was said
        raise SerializationError(f"{location} is not a chat message of LlamaIndex: its fields are wrong") from None


def read_llamaindex_sessions(values: Sequence[LocatedValue]) -> list[Transcript] | None:
    """The sessions of a persisted ``SimpleChatStore``; None if this is not one."""
    document = values[0].value if len(values) == 1 else None
    store = document.get("store") if isinstance(document, Mapping) else None
    if not isinstance(store, dict):
        return None
    transcripts = []
    for session, messages in store.items():
        if not session or not isinstance(messages, list):
            raise SerializationError(f"the session {session!r:.60} is not a list of messages")
        prefix = f"session {session!r:.60}, message"
        numbered = [LocatedValue(f"{prefix} {n}", message) for n, message in enumerate(messages, start=1)]
        transcripts.append(to_transcript(numbered, session, read_llamaindex_message))
    return transcripts
