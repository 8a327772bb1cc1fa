"""LlamaIndex chat messages to :class:`~langmem_adapters.model.Message` and back, without loss.

Blocks become LangChain's standard content blocks, tool call blocks become the message's tool calls. What
these cannot say is kept in ``host["llama_index"]``: its ``blocks`` has one entry for each block, with the
fields that its content block lacks, and is left out where there is nothing to add.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from llama_index.core.base.llms.types import BaseContentBlock, ChatMessage, MessageRole, TextBlock
from pydantic import BaseModel, ValidationError

from langmem_adapters.conversation.storable import LEFT_OUT, UNSTORED_KEY, without_unstorable
from langmem_adapters.errors import ConfigurationError, SerializationError
from langmem_adapters.llamaindex.blocks import (
    OF_FILE,
    Fields,
    block_fields,
    build_block,
    call_fields,
    from_standard,
    plain,
    to_standard,
)
from langmem_adapters.model import Content, Message, ToolCall
from langmem_adapters.providers.content import standard_block
from langmem_adapters.validation import checked_list, invalid_fields
from langmem_adapters.warn_once import WarnOnce, warn_of_damage

_HOST_KEY: Final = "llama_index"
_ROLES: Final = {role.value: role for role in MessageRole}
_ASSISTANT_ROLES: Final = {"chatbot", "model"}  # other providers' words for "assistant"
_STORED: Final = "_langmem_adapters_stored"  # no field: where pydantic has cached properties, which it does not compare
_warn = WarnOnce()


def checked_chats(chats: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages. Raises ConfigurationError for a single message, and for anything but messages."""
    return checked_list(chats, 'messages are a list of ChatMessage(role="user", content="…")', ChatMessage)


def to_message(chat: ChatMessage) -> Message:
    """Convert a LlamaIndex message. It has no id of its own, so the memory gives it one.

    Objects in ``additional_kwargs`` become dictionaries, as LlamaIndex itself writes them. Raises ConfigurationError
    for anything but a ChatMessage, and SerializationError for one filled with values that its class does not allow.
    """
    if not isinstance(chat, ChatMessage):
        raise ConfigurationError(f"to_message converts a ChatMessage of LlamaIndex, not {type(chat).__name__}")
    host: dict[str, Any] = {}
    role = str(getattr(chat.role, "value", chat.role))
    fields: dict[str, Any] = {"role": role}
    if role in _ASSISTANT_ROLES:
        fields["role"], host["role"] = "assistant", role
    kwargs = {
        key: plain(value)
        for key, value in chat.additional_kwargs.items()
        if not (key == "images" and _are_documents(value))
    }
    for name in ("tool_call_id", "name"):
        if isinstance(kwargs.get(name), str):
            fields[name] = kwargs.pop(name)
    calls: list[Any]
    fields["content"], calls, layout = _split_blocks(chat.blocks)
    if not calls and (calls := list(_openai_calls(kwargs.get("tool_calls")))):
        layout = layout if layout is not None else [{}] * len(chat.blocks)
    if layout is not None:
        host["blocks"] = layout
    if kwargs:
        host["additional_kwargs"] = kwargs
    if host:
        fields["host"] = {_HOST_KEY: host}
    try:
        return Message(tool_calls=calls, **fields)
    except ValidationError as error:
        raise SerializationError(f"a message of {role!r} has values of a wrong type: {invalid_fields(error)}") from None


def to_storable_message(chat: ChatMessage) -> Message:
    """:func:`to_message` without the parts that no store can keep, with one warning; its metadata names them."""
    message = to_message(chat)
    storable = without_unstorable(message)
    if storable is not message:
        _warn(f"{LEFT_OUT}: {', '.join(storable.metadata[UNSTORED_KEY])}")
    return storable


def from_message(message: Message) -> ChatMessage:
    """Convert back to LlamaIndex: equal if LlamaIndex wrote it, by role and content if another host did.

    Tool calls become tool call blocks; a tool's result names its call in ``additional_kwargs["tool_call_id"]``.
    A role that LlamaIndex does not know becomes "user". A block that cannot be read is left out with a
    warning on the logger ``langmem_adapters``; the message is never lost. Raises ConfigurationError for anything but a
    :class:`~langmem_adapters.Message`.
    """
    if not isinstance(message, Message):
        raise ConfigurationError(f"from_message converts a Message of langmem_adapters, not {type(message).__name__}")
    host_fields = message.host.get(_HOST_KEY, {})
    role = host_fields.get("role", message.role)
    chat = ChatMessage(role=_ROLES.get(str(role)) or _ROLES.get(message.role, MessageRole.USER))
    has_blocks = "blocks" in host_fields or message.tool_calls
    if isinstance(message.content, str) and not has_blocks and not _invalid_calls(message):
        chat.blocks = [TextBlock(text=message.content)]
    else:
        chat.blocks = list(_load_blocks(message, host_fields))
    kwargs = host_fields.get("additional_kwargs", {})
    if not isinstance(kwargs, dict):
        _warn_unreadable(message, "additional_kwargs")
        kwargs = {}
    # Assigned, as the constructor would make blocks of images once more.
    chat.additional_kwargs = dict(kwargs)
    for name in ("tool_call_id", "name"):
        if (value := getattr(message, name)) is not None:
            chat.additional_kwargs[name] = value
    return chat


def from_stored(message: Message) -> ChatMessage:
    """:func:`from_message` for a message of a session, whose id and time :func:`stored_fields` tells."""
    chat = from_message(message)
    vars(chat)[_STORED] = {"id": message.id, "created_at": message.created_at}
    return chat


def stored_fields(chat: ChatMessage) -> dict[str, Any]:
    """The ``id`` and ``created_at`` of a message that was read from a session; empty for any other."""
    return dict(vars(chat).get(_STORED, {}))


def _are_documents(value: Any) -> bool:
    """Whether a value is the old form of images, of which LlamaIndex has made blocks already."""
    return isinstance(value, list) and bool(value) and all(isinstance(item, BaseModel) for item in value)


def _openai_calls(calls: Any) -> Iterator[ToolCall]:
    """Read tool calls from where older integrations put them, if they can be read."""
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict) and (args := _arguments(function.get("arguments"))) is not None:
            with suppress(ValidationError):  # what no call may be stays in the arguments alone
                yield ToolCall(id=call.get("id"), name=function.get("name") or "", args=args)


def _arguments(value: Any) -> dict[str, Any] | None:
    """Read the arguments of a call, which may be JSON text; None if they are no object."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value else {}
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def _split_blocks(blocks: Sequence[BaseContentBlock]) -> tuple[Content, list[dict[str, Any]], list[Fields] | None]:
    """Divide blocks into content and calls, and note their layout, unless a reader would guess it right."""
    if len(blocks) == 1 and type(blocks[0]) is TextBlock:
        return blocks[0].text, [], None
    content: list[str | dict[Any, Any]] = []
    calls: list[dict[str, Any]] = []
    layout: list[Fields] = []
    is_guessable = bool(blocks)
    for block in blocks:
        fields = block_fields(block)
        args = _arguments(fields["tool_kwargs"]) if fields["block_type"] == "tool_call" else None
        if args is not None:
            calls.append({"id": fields.get("tool_call_id"), "name": fields["tool_name"], "args": args})
            rest = {} if args is fields["tool_kwargs"] else {"tool_kwargs": fields["tool_kwargs"]}
            layout.append({"call": True, **rest})
        else:
            standard, rest = to_standard(fields)
            content.append(standard)
            layout.append(rest)
        is_guessable = is_guessable and not rest and (args is not None or not calls)
    only_text = blocks[0].text if len(content) == 1 and type(blocks[0]) is TextBlock else ""
    return only_text or content or "", calls, None if is_guessable else layout


def _load_blocks(message: Message, host_fields: dict[str, Any]) -> Iterator[Any]:
    in_layout = _fields_in_layout(message, host_fields)
    if in_layout is None and "blocks" in host_fields:
        _warn_unreadable(message, "blocks")
    for fields in _guess_fields(message) if in_layout is None else in_layout:
        try:
            yield build_block(fields)
        except (ValueError, TypeError, KeyError, AttributeError):  # noqa: PERF203 - what damaged fields do to a constructor
            _warn_unreadable(message, str(fields.get("block_type")))


def _fields_in_layout(message: Message, host_fields: dict[str, Any]) -> list[Fields] | None:
    """Put content and calls back in their noted order; None without a note, or if it does not fit them."""
    layout = host_fields.get("blocks")
    if not isinstance(layout, list) or not all(isinstance(entry, dict) for entry in layout):
        return None
    expected_calls = sum("call" in entry for entry in layout)
    expected = len(layout) - expected_calls
    content = message.content
    if isinstance(content, str):
        content = [{"type": "text", "text": content}] if content or expected else []
    kwargs = host_fields.get("additional_kwargs")
    in_kwargs = not expected_calls and isinstance(kwargs, dict) and "tool_calls" in kwargs
    if len(content) != expected or (len(message.tool_calls) != expected_calls and not in_kwargs):
        return None
    blocks = iter(content)
    calls = (call_fields(call.id, call.name, call.args) for call in message.tool_calls)
    ordered = []
    for entry in layout:
        of_file = entry.get(OF_FILE) is True
        fields = next(calls) if "call" in entry else from_standard(next(blocks), of_file=of_file)
        if fields is None:
            return None
        ordered.append(fields | {key: value for key, value in entry.items() if key not in {"call", OF_FILE}})
    return ordered


def _guess_fields(message: Message) -> Iterator[Fields]:
    """Read the content, then the calls, without calls that a provider has put into the content, too."""
    invalid_calls = _invalid_calls(message)
    ids = [call.id for call in message.tool_calls] + [call.get("id") for call in invalid_calls]
    call_ids = set(map(repr, ids))  # as a damaged one may be anything
    content = message.content
    if isinstance(content, str):
        content = [content] if content or not call_ids else []
    for block in content:
        standard = standard_block(block)
        if standard.get("type") in ("tool_call", "invalid_tool_call") and repr(standard.get("id")) in call_ids:
            continue
        if (fields := from_standard(standard)) is not None:
            yield fields
        else:
            _warn_unreadable(message, f"content of type {standard.get('type')}")
    yield from (call_fields(call.id, call.name, call.args) for call in message.tool_calls)
    yield from (call_fields(call.get("id"), call.get("name") or "", call.get("args") or "") for call in invalid_calls)


def _invalid_calls(message: Message) -> list[dict[str, Any]]:
    """The calls whose arguments LangChain could not read; its own blocks have them in the content."""
    calls = message.host.get("langchain", {}).get("invalid_tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _warn_unreadable(message: Message, field: str) -> None:
    warn_of_damage(message.id, f"message {message.id!r}: the stored field {field!r} cannot be read and was left out")
