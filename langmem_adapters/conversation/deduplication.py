"""Which messages of a delivery a session had before, and which say something new. Pure rules; no store is read.

A repeated delivery brings only what was stored, or first that and then the rest. Or a chain returns everything that it
was shown, after a new question. Any other known id comes from a cache that replays ids, or from a client that numbers
the messages of each request from the start: such a message is added under another id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langmem_adapters.conversation.tombstones import content_id
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message

__all__ = ["Delivery"]


class Delivery:
    """Messages that were appended to a log which knew some of their ids.

    Args:
        messages: In their order.
        ids: Their ids in the store.
        new: For each, whether it was appended.
        gone: For each, whether it was in the log before, and has left it.
    """

    def __init__(
        self, messages: Sequence[Message], ids: Sequence[str], new: Sequence[bool], gone: Sequence[bool]
    ) -> None:
        self._messages = messages
        self._ids = ids
        self._new = new
        self._first = next((n for n in range(len(ids)) if new[n] and not gone[n]), len(ids))
        self._places = {ids[n]: n for n in reversed(range(len(ids)))}  # the first position of each id

    @property
    def unclear(self) -> set[str]:
        """The ids whose log entries are needed to judge these messages, or to remove them again."""
        behind = range(self._first, len(self._ids))
        asks_again = any(self._messages[n].role == "user" for n in behind if not self._new[n])
        return {self._ids[n] for n in range(len(self._ids)) if n < self._first or self._new[n] or asks_again}

    def others(self, known: Mapping[str, Message], left: Sequence[bool]) -> dict[int, Message]:
        """The messages that say something new under a known id, by position, with another id.

        Args:
            known: The log's messages with the unclear ids.
            left: For each message, whether it has left the log by now.
        """
        same = [not new and self._is_same(n, known) for n, new in enumerate(self._new)]
        gives_back = any(same[n] and self._is_asked_again(n) for n in range(self._first, len(same)))
        others: dict[int, Message] = {}
        for n, message in enumerate(self._messages):
            repeated = same[n] or left[n] if n < self._first else same[n] and gives_back
            if not (self._new[n] or repeated):
                others[n] = message.model_copy(update={"id": self._other_id(n, others)})
        return others

    def misplaced(self, others: Mapping[int, Message]) -> tuple[list[int], list[int]]:
        """The positions of messages appended though they had left; and of those that belong after the first other."""
        appended = [n for n, new in enumerate(self._new) if new]
        start = max(self._first, min(others, default=len(self._ids)))
        return [n for n in appended if n < self._first], [n for n in appended if n >= start]

    def _is_same(self, n: int, known: Mapping[str, Message]) -> bool:
        """Whether the log has this message, compared as stored: there, a parsed answer is a dictionary and no model."""
        old, message = known.get(self._ids[n]), self._messages[n]
        return old is not None and content_id(old.model_copy(update={"id": message.id})) == content_id(message)

    def _is_asked_again(self, n: int) -> bool:
        """Whether this is a question that is answered already, or is the new one: no cache replays questions."""
        answered = n + 1 < len(self._ids) and not self._new[n + 1]
        return self._messages[n].role == "user" and (answered or self._places[self._ids[n]] < n)

    def _other_id(self, n: int, others: Mapping[int, Message]) -> str:
        """An id that is the same when the message is delivered again, but not when said again after something else.

        Empty, so that a new id is given, after a message that will itself get another id.
        """
        own = content_id(self._messages[n])
        before = others.get(n - 1, self._messages[n - 1]).id if n else ""
        return fingerprint(before, own) if before else "" if n else own
