"""Stored messages as LangChain messages, many at a time and without a Message in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from langchain_core.messages import BaseMessage

from langmem_adapters.conversation.log import readable
from langmem_adapters.langchain.convert import from_message, role_of, to_message
from langmem_adapters.langchain.rebuild import of_bytes
from langmem_adapters.protocols import Item
from langmem_adapters.text import unreadable_calls, without_calls

__all__ = ["Seen", "read", "seen"]


def read(items: Sequence[Item]) -> list[BaseMessage]:
    """The messages of log entries, as :func:`from_message` gives them.

    One that is damaged beyond reading is passed over, with a warning.
    """
    return [message for item in items for message in _read(item)]


def _read(item: Item) -> Sequence[BaseMessage]:
    made = of_bytes(item.data)
    return (made,) if made is not None else [from_message(message) for _, message in readable([item])]


class Seen:
    """A message that was read, as :func:`langmem_adapters.text.newest` looks at it."""

    __slots__ = ("message", "role", "tool_calls")

    def __init__(self, message: BaseMessage) -> None:
        self.message = message
        self.role = role_of(message)
        fields = message.__dict__
        calls, invalid = fields.get("tool_calls"), fields.get("invalid_tool_calls")
        self.tool_calls = [Call(call["id"]) for call in calls] if calls else []
        if type(fields["content"]) is list:
            invalid = [{"id": id_} for id_ in unreadable_calls(fields["content"], invalid or ())]
        if invalid:
            self.tool_calls += [Call(one.get("id")) for one in invalid]

    @property
    def text(self) -> str:
        """The readable part."""
        return str(self.message.text)

    @property
    def tool_call_id(self) -> str | None:
        """The call that this is the result of."""
        return cast("str | None", self.message.__dict__.get("tool_call_id"))

    def without(self, ids: set[str | None]) -> Seen:
        """A copy without these tool calls, as :func:`without_calls` makes it."""
        return Seen(from_message(without_calls(to_message(self.message), ids)))


class Call(NamedTuple):
    """A tool call."""

    id: str | None


def seen(items: Sequence[Item]) -> list[Seen]:
    """:func:`read`, to be looked at."""
    return [Seen(message) for message in read(items)]
