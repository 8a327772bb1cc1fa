"""Stored messages as LangChain messages, many at a time, without building a Message for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from langchain_core.messages import BaseMessage

from langmem_adapters.concurrency.garbage import build_many
from langmem_adapters.conversation.log import readable_entries
from langmem_adapters.langchain.convert import from_message, role_of, to_message
from langmem_adapters.langchain.rebuild import message_from_bytes
from langmem_adapters.protocols import Item
from langmem_adapters.text import unlisted_call_ids, without_calls

_CALL_LISTS: Final = ("tool_calls", "invalid_tool_calls")


def read_messages(items: Sequence[Item]) -> list[BaseMessage]:
    """The messages of log entries, as :func:`from_message` gives them.

    An unreadable message is skipped, with a warning.
    """
    return build_many(len(items), partial(_read_items, items))


def _read_items(items: Sequence[Item]) -> list[BaseMessage]:
    messages: list[BaseMessage] = []
    for item in items:
        rebuilt = message_from_bytes(item.data)
        if rebuilt is not None:
            messages.append(rebuilt)
        else:
            messages += [from_message(message) for _, message in readable_entries([item])]
    return messages


class MessageView:
    """A message in the form that :func:`langmem_adapters.text.newest_window` reads (a ``MessageLike``)."""

    __slots__ = ("message", "role", "tool_call_id", "tool_calls")

    def __init__(self, message: BaseMessage) -> None:
        self.message: BaseMessage = message
        self.role: str = role_of(message)
        fields = message.__dict__
        self.tool_call_id: str | None = fields.get("tool_call_id")  # the call that this is the result of
        calls, invalid_calls = fields.get("tool_calls"), fields.get("invalid_tool_calls")
        self.tool_calls: list[CallView] = [CallView(call["id"]) for call in calls] if calls else []
        if type(fields["content"]) is list:
            invalid_calls = [{"id": id_} for id_ in unlisted_call_ids(fields["content"], invalid_calls or ())]
        if invalid_calls:
            self.tool_calls += [CallView(call.get("id")) for call in invalid_calls]

    @property
    def text(self) -> str:
        """The readable part."""
        return str(self.message.text)

    def without_calls(self, ids: set[str | None]) -> MessageView:
        """A copy without these tool calls, as :func:`without_calls` makes it, mostly without building a Message."""
        fields = self.message.__dict__
        repeats_calls = len(set(self.tool_calls)) < len(self.tool_calls)
        if type(fields["content"]) is not str or "tool_calls" in fields["additional_kwargs"] or repeats_calls:
            return MessageView(from_message(without_calls(to_message(self.message), ids)))
        remaining = {name: [call for call in fields[name] if call.get("id") not in ids] for name in _CALL_LISTS}
        return MessageView(self.message.model_copy(update=remaining))


class CallView(NamedTuple):
    """A tool call."""

    id: str | None


def message_views(items: Sequence[Item]) -> list[MessageView]:
    """:func:`read_messages`, as views."""
    return [MessageView(message) for message in read_messages(items)]
