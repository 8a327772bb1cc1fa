"""A run's thread as Message objects, each made on first use: threads grow, but what is new in them does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from langchain_core.messages import BaseMessage, convert_to_messages

from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.convert import role_of
from langmem_adapters.langchain.threads.exchanges import INSTRUCTION_ROLES, is_summary_or_recalled
from langmem_adapters.langchain.threads.storable import legible
from langmem_adapters.model import Message

__all__ = ["Thread", "is_made"]

_MADE = "said-"  # how ids begin that are made here


class Thread(Sequence[Message]):
    """The messages of a thread.

    Args:
        messages: As the host has them, or as a client sent them, if the host's reducer leaves them so.
        mark: Identifies the thread. A message that the host's reducer left without an id gets one made from it.
    """

    def __init__(self, messages: Sequence[Any], mark: str = "") -> None:
        self._messages: Sequence[BaseMessage] = convert_to_messages(messages)
        self._mark = mark
        self._made: dict[int, Message] = {}
        self._originals: dict[int, BaseMessage] = {}  # by id(), as these live as long as the thread

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, place: int) -> Message: ...
    @overload
    def __getitem__(self, place: slice) -> list[Message]: ...
    def __getitem__(self, place: int | slice) -> Message | list[Message]:
        if isinstance(place, slice):
            return [self[n] for n in range(*place.indices(len(self)))]
        n = range(len(self))[place]
        if n not in self._made:
            made = self._made[n] = legible(self._named(n))
            self._originals[id(made)] = self._messages[n]
        return self._made[n]

    def first(self, count: int) -> Thread:
        """The thread as it was when it had ``count`` messages."""
        return Thread(self._messages[:count], self._mark)

    def after(self, message_id: str) -> int | None:
        """How many messages there are up to and including the one with this id; None if there is none."""
        return next((n for n in range(len(self), 0, -1) if (self._named(n - 1).id or "") == message_id), None)

    def original(self, message: Message) -> BaseMessage | None:
        """The host's message that this one was made of; None if it is not of this thread."""
        return self._originals.get(id(message))

    def since(
        self, history: Sequence[Message], start: int, first: Mapping[str, str] | None = None
    ) -> tuple[list[Message], int]:
        """The messages of the thread that count beside a history, and how many of them are of the first ``start``.

        If the thread has the history's first exchange under its ids, nothing before that can be in the history, and
        only instructions count. If it has other ids, ``first`` gives the id of the first message that both have, by
        the id of the first one of the history.
        """
        begin = self._first_shared([(first or {}).get(message.id, message.id) for message in history[:1]], start)
        front = [self[n] for n in range(begin) if not self._is_said(n)]
        return front + self[begin:], len(front) + start - begin

    def until(self, message_id: str, most: int) -> list[Message]:
        """What was said in the last ``most`` messages up to the one with this id; nothing if there is none."""
        place = self.after(message_id) or 0 if message_id else 0
        return [self[n] for n in range(max(place - most, 0), place) if self._is_said(n)]

    def _first_shared(self, first: Sequence[str], start: int) -> int:
        place = self.after(first[0]) if first and first[0] else None
        if place is None or place > start or self._role(place - 1) != "user" or not self._is_said(place - 1):
            return 0
        return place - 1

    def _named(self, n: int) -> BaseMessage:
        if self._mark and not self._messages[n].id:
            self._messages, self._mark = list(_named(self._messages, self._mark)), ""
        return self._messages[n]

    def _role(self, n: int) -> str:
        return role_of(self._messages[n])

    def _is_said(self, n: int) -> bool:
        return self._role(n) not in INSTRUCTION_ROLES and not is_summary_or_recalled(
            self._messages[n].additional_kwargs
        )


def _named(messages: Sequence[BaseMessage], mark: str) -> Iterator[BaseMessage]:
    """The messages, each with an id; a new id is made of what is said and how often by now, so it stays the same."""
    times: Counter[tuple[str, str]] = Counter()
    for message in messages:
        if not message.id:
            said = message.type, str(message.content)
            times[said] += 1
            message = message.model_copy(update={"id": _MADE + fingerprint(mark, *said, times[said])})  # noqa: PLW2901
        yield message


def is_made(message_id: str | None) -> bool:
    """Whether an id was made here, for a message without one."""
    return bool(message_id) and str(message_id).startswith(_MADE)
