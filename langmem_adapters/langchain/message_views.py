"""Stored messages as LangChain messages, many at a time, without building a Message for each."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Final, NamedTuple

from langchain_core.messages import BaseMessage

from langmem_adapters.concurrency.forks import call_in_child
from langmem_adapters.conversation.log import readable_entries
from langmem_adapters.langchain.convert import from_message, role_of, to_message
from langmem_adapters.langchain.rebuild import message_from_bytes
from langmem_adapters.protocols import Item
from langmem_adapters.text import unlisted_call_ids, without_calls

__all__ = ["MessageView", "message_views", "read_messages"]

_CALL_LISTS: Final = ("tool_calls", "invalid_tool_calls")
_MIN_ITEMS_TO_PAUSE_GC: Final = 500  # messages; from here on, garbage collection would take as long as the reading


def read_messages(items: Sequence[Item]) -> list[BaseMessage]:
    """The messages of log entries, as :func:`from_message` gives them.

    An unreadable message is skipped, with a warning.
    """
    global _is_paused  # noqa: PLW0603 - one collector a process
    if len(items) < _MIN_ITEMS_TO_PAUSE_GC or not gc.isenabled():
        return _read_all(items)
    # Garbage collection would scan the new messages over and over. The first of several readers resumes it. These are
    # no functions of ours, as an interrupt is raised where one begins, and the collector would rest for ever.
    try:
        _is_paused = True
        gc.disable()
        return _read_all(items)
    finally:
        _is_paused = False
        gc.enable()


def _read_all(items: Sequence[Item]) -> list[BaseMessage]:
    return [message for item in items for message in _read_item(item)]


def _read_item(item: Item) -> Sequence[BaseMessage]:
    rebuilt = message_from_bytes(item.data)
    return (rebuilt,) if rebuilt is not None else [from_message(message) for _, message in readable_entries([item])]


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
        if type(fields["content"]) is not str or "tool_calls" in fields["additional_kwargs"] or self._repeats_calls():
            return MessageView(from_message(without_calls(to_message(self.message), ids)))
        remaining = {name: [call for call in fields[name] if call.get("id") not in ids] for name in _CALL_LISTS}
        return MessageView(self.message.model_copy(update=remaining))

    def _repeats_calls(self) -> bool:
        return len(set(self.tool_calls)) < len(self.tool_calls)


class CallView(NamedTuple):
    """A tool call."""

    id: str | None


def message_views(items: Sequence[Item]) -> list[MessageView]:
    """:func:`read_messages`, as views."""
    return [MessageView(message) for message in read_messages(items)]


# --- garbage

_is_paused = False


def _reset_after_fork() -> None:
    """In a forked child, no other thread goes on reading."""
    global _is_paused  # noqa: PLW0603 - one collector a process
    if _is_paused:
        gc.enable()
        _is_paused = False


call_in_child(_reset_after_fork)
