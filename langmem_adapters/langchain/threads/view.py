"""A run's thread as Message objects, each made on first use: threads grow, but what is new in them does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from langchain_core.messages import BaseMessage, convert_to_messages

from langmem_adapters.conversation.stored_summary import unspaced_text
from langmem_adapters.keys import fingerprint
from langmem_adapters.langchain.convert import is_notification, role_of
from langmem_adapters.langchain.threads.exchanges import TextOf, is_summary_or_recalled
from langmem_adapters.langchain.threads.storable import to_message_leniently
from langmem_adapters.model import Message
from langmem_adapters.text import INSTRUCTION_ROLES

_GENERATED_ID_PREFIX = "said-"


class Thread(Sequence[Message]):
    """The messages of a thread.

    Args:
        messages: As the host has them, or as a client sent them, if the host's reducer leaves them so.
        mark: Identifies the thread. A message that the host's reducer left without an id gets one made from it.
        state: The state of the run.
        text_of: Gives the text of a message by which it is compared.
    """

    def __init__(
        self,
        messages: Sequence[Any],
        mark: str = "",
        state: Mapping[str, Any] | None = None,
        text_of: TextOf = unspaced_text,
    ) -> None:
        self._messages: Sequence[BaseMessage] = convert_to_messages(messages)
        self._mark = mark
        self.state: Mapping[str, Any] = state or {}
        self.text_of: TextOf = text_of
        self._converted: dict[int, Message] = {}
        self._originals: dict[int, BaseMessage] = {}  # by id(), as these live as long as the thread

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        n = range(len(self))[index]
        if n not in self._converted:
            message = self._converted[n] = to_message_leniently(self._message_at(n))
            self._originals[id(message)] = self._messages[n]
        return self._converted[n]

    def prefix(self, count: int) -> Thread:
        """The thread as it was when it had ``count`` messages."""
        return Thread(self._messages[:count], self._mark, self.state, self.text_of)

    def count_through(self, message_id: str) -> int | None:
        """How many messages there are up to and including the one with this id; None if there is none."""
        return next((n for n in range(len(self), 0, -1) if (self._message_at(n - 1).id or "") == message_id), None)

    def ids(self) -> set[str | None]:
        """The ids of all messages."""
        return {self._message_at(n).id for n in range(len(self))}

    def original(self, message: Message) -> BaseMessage | None:
        """The host's message that this one was made of; None if it is not of this thread."""
        return self._originals.get(id(message))

    def originals(self, messages: Iterable[Message]) -> list[BaseMessage]:
        """The host's messages that these were made of, but for those that are not of this thread."""
        return [original for message in messages if (original := self.original(message))]

    def relevant_to(
        self, history: Sequence[Message], start: int, first_shared: Mapping[str, str] | None = None
    ) -> tuple[list[Message], int]:
        """The messages of the thread that count beside a history, and how many of them are of the first ``start``.

        If the thread has the history's first exchange under its ids, nothing before that can be in the history, and
        only instructions count. If it has other ids, ``first_shared`` gives the id of the first message that both have,
        by the id of the first one of the history.
        """
        first_id = (first_shared or {}).get(history[0].id, history[0].id) if history else ""
        first_position = self._first_shared_position(first_id, start)
        front = [self[n] for n in range(first_position) if not self._is_dialogue_at(n)]
        return front + self[first_position:], len(front) + start - first_position

    def dialogue_until(self, message_id: str, limit: int) -> list[Message]:
        """What was said in the last ``limit`` messages up to the one with this id; nothing if there is none."""
        if not message_id:
            return []
        count = self.count_through(message_id) or 0
        return [self[n] for n in range(max(count - limit, 0), count) if self._is_dialogue_at(n)]

    def _first_shared_position(self, first_id: str, start: int) -> int:
        count = self.count_through(first_id) if first_id else None
        if count is None or count > start or not self._is_dialogue_at(count - 1):
            return 0
        first = self._messages[count - 1]
        return count - 1 if role_of(first) == "user" and not is_notification(first) else 0

    def _message_at(self, n: int) -> BaseMessage:
        """A message, with an id: if it lacks one, all that lack one are given theirs, once."""
        if self._mark and not self._messages[n].id:
            self._messages, self._mark = list(_with_generated_ids(self._messages, self._mark)), ""
        return self._messages[n]

    def _is_dialogue_at(self, n: int) -> bool:
        message = self._messages[n]
        return role_of(message) not in INSTRUCTION_ROLES and not is_summary_or_recalled(message.additional_kwargs)


def _with_generated_ids(messages: Sequence[BaseMessage], mark: str) -> Iterator[BaseMessage]:
    """The messages, each with an id; a new id is made of what is said and how often by now, so it stays the same."""
    occurrences: Counter[tuple[str, str]] = Counter()
    for message in messages:
        if not message.id:
            content = message.type, str(message.content)
            occurrences[content] += 1
            id_ = _GENERATED_ID_PREFIX + fingerprint(mark, *content, occurrences[content])
            message = message.model_copy(update={"id": id_})  # noqa: PLW2901
        yield message


def is_generated_id(message_id: str | None) -> bool:
    """Whether an id was made here, for a message without one."""
    return bool(message_id) and str(message_id).startswith(_GENERATED_ID_PREFIX)
