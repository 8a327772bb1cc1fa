"""Which messages of a delivery a session had before, and which say something new. Pure rules; no store is read.

A repeated delivery brings only what was stored, or first that and then the rest. Or a chain returns everything that it
was shown, after a new question. Any other known id comes from a cache that replays ids, or from a client that numbers
the messages of each request from the start: such a message is added under another id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from langmem_adapters.conversation.tombstones import content_id, delivery_id
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message


class Delivery:
    """Messages that were appended to a log which knew some of their ids.

    Args:
        messages: In their order.
        ids: Their ids in the store.
        is_new: For each, whether it was appended.
        departed: For each, whether it was in the log before, and has left it.
    """

    def __init__(
        self, messages: Sequence[Message], ids: Sequence[str], is_new: Sequence[bool], departed: Sequence[bool]
    ) -> None:
        self._messages = messages
        self._ids = ids
        self._is_new = is_new
        self._first_new = next((i for i in range(len(ids)) if is_new[i] and not departed[i]), len(ids))
        self._first_positions = {ids[i]: i for i in reversed(range(len(ids)))}

    @property
    def unclear_ids(self) -> set[str]:
        """The ids whose log entries are needed to judge these messages, or to remove them again."""
        from_first_new = range(self._first_new, len(self._ids))
        asks_again = any(self._messages[i].role == "user" for i in from_first_new if not self._is_new[i])
        return {id_ for i, id_ in enumerate(self._ids) if i < self._first_new or self._is_new[i] or asks_again}

    def renamed_messages(self, stored: Mapping[str, Message], departed: Sequence[bool]) -> dict[int, Message]:
        """The messages that say something new under a known id, by position, with another id.

        Args:
            stored: The log's messages with the unclear ids.
            departed: For each message, whether it has left the log by now.
        """
        is_stored = [not new and self._is_same(position, stored) for position, new in enumerate(self._is_new)]
        from_first_new = range(self._first_new, len(is_stored))
        is_echo = any(is_stored[i] and self._is_repeated_question(i) for i in from_first_new)
        renamed: dict[int, Message] = {}
        for position, message in enumerate(self._messages):
            if position < self._first_new:
                is_repeated = is_stored[position] or departed[position]
            else:
                is_repeated = is_stored[position] and is_echo
            if not (self._is_new[position] or is_repeated):
                renamed[position] = message.model_copy(update={"id": self._new_id(position, renamed)})
        return renamed

    def misplaced_positions(
        self, delivered: Collection[str], renamed: Mapping[int, Message]
    ) -> tuple[list[int], list[int]]:
        """The positions of messages appended though they had left; and of those after the first renamed one.

        ``delivered`` are the ids under which the log still has what was appended.
        """
        appended = [i for i, id_ in enumerate(self._ids) if self._is_new[i] and id_ in delivered]
        start = max(self._first_new, min(renamed, default=len(self._ids)))
        return [i for i in appended if i < self._first_new], [i for i in appended if i >= start]

    def _is_same(self, position: int, stored: Mapping[str, Message]) -> bool:
        """Whether the log has this message, compared as stored: there, a parsed answer is a dictionary and no model."""
        old, message = stored.get(self._ids[position]), self._messages[position]
        return old is not None and delivery_id(old.model_copy(update={"id": message.id})) == delivery_id(message)

    def _is_repeated_question(self, position: int) -> bool:
        """Whether this is a question that is answered already, or is the new one: no cache replays questions."""
        is_answered = position + 1 < len(self._ids) and not self._is_new[position + 1]
        is_second = self._first_positions[self._ids[position]] < position
        return self._messages[position].role == "user" and (is_answered or is_second)

    def _new_id(self, position: int, renamed: Mapping[int, Message]) -> str:
        """An id that is the same when the message is delivered again, but not when said again after something else.

        Empty, so that a new id is given, after a message that will itself get another id.
        """
        own_id = content_id(self._messages[position])
        if not position:
            return own_id
        previous_id = renamed.get(position - 1, self._messages[position - 1]).id
        return fingerprint(previous_id, own_id) if previous_id else ""
