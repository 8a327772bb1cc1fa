"""Stored messages as LangChain messages, many at a time, without building a Message for each."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final, NamedTuple

from langchain_core.messages import BaseMessage

from langmem_adapters.concurrency.forks import call_in_child
from langmem_adapters.conversation.log import readable_entries
from langmem_adapters.langchain.convert import from_message, role_of, to_message
from langmem_adapters.langchain.rebuild import message_from_bytes
from langmem_adapters.protocols import Item
from langmem_adapters.text import invalid_call_ids, without_calls

__all__ = ["MessageView", "message_views", "read_messages"]

_CALL_LISTS: Final = ("tool_calls", "invalid_tool_calls")
_MIN_ITEMS_TO_PAUSE_GC: Final = 500  # messages; from here on, garbage collection would take as long as the reading


def read_messages(items: Sequence[Item]) -> list[BaseMessage]:
    """The messages of log entries, as :func:`from_message` gives them.

    An unreadable message is skipped, with a warning.
    """
    with nullcontext() if len(items) < _MIN_ITEMS_TO_PAUSE_GC else _gc_paused():
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
            invalid_calls = [{"id": id_} for id_ in invalid_call_ids(fields["content"], invalid_calls or ())]
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

_lock = threading.Lock()
_readers = 0
_resumes_gc = False


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause the garbage collector, which would scan the new messages over and over; the last reader resumes it."""
    global _readers, _resumes_gc  # noqa: PLW0603 - one collector a process
    with _lock:
        if _readers == 0:
            _resumes_gc = gc.isenabled()
            gc.disable()
        _readers += 1
    try:
        yield
    finally:
        with _lock:
            _readers -= 1
            if _readers == 0 and _resumes_gc:
                gc.enable()


def _reset_after_fork() -> None:
    """In a forked child, the parent's readers do not go on, and one of them may have held the lock."""
    global _lock, _readers  # noqa: PLW0603 - one collector a process
    _lock = threading.Lock()
    if _readers and _resumes_gc:
        gc.enable()
    _readers = 0


call_in_child(_reset_after_fork)
