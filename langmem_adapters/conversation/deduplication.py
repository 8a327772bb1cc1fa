"""What of a delivery a session had before, and what says something new. Pure rules; nothing here reads a store.

A delivery that is repeated brings only what was stored, or that first and then the rest. Or a chain gives back all that
it was shown, behind a question that is new. Any other known id comes from a cache that replays ids, or from a client
that numbers the messages of each request anew: what has it is added under another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langmem_adapters.conversation.tombstones import content_id
from langmem_adapters.keys import fingerprint
from langmem_adapters.model import Message

__all__ = ["Delivery"]


class Delivery:
    """Messages that were appended to a log, which knew some of their ids.

    Args:
        messages: In their order.
        ids: Those by which the store knows them.
        new: Of each, whether it was appended.
        gone: Of each, whether it was in the log before, and has left it.
    """

    def __init__(
        self, messages: Sequence[Message], ids: Sequence[str], new: Sequence[bool], gone: Sequence[bool]
    ) -> None:
        self._messages = messages
        self._ids = ids
        self._new = new
        self._first = next((n for n in range(len(ids)) if new[n] and not gone[n]), len(ids))
        self._places = {ids[n]: n for n in reversed(range(len(ids)))}  # where each id is for the first time

    @property
    def unclear(self) -> set[str]:
        """The ids of which it takes what the log has under them to tell what they are, or to take them out again."""
        behind = range(self._first, len(self._ids))
        asks_again = any(self._messages[n].role == "user" for n in behind if not self._new[n])
        return {self._ids[n] for n in range(len(self._ids)) if n < self._first or self._new[n] or asks_again}

    def others(self, known: Mapping[str, Message], left: Sequence[bool]) -> dict[int, Message]:
        """What says something new under a known id, by its place, under another id.

        Args:
            known: What the log has under the unclear ids.
            left: Of each message, whether it has left the log by now.
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
        """The places of what was appended, though it had left before; and of what belongs behind the first other."""
        appended = [n for n, new in enumerate(self._new) if new]
        start = max(self._first, min(others, default=len(self._ids)))
        return [n for n in appended if n < self._first], [n for n in appended if n >= start]

    def _is_same(self, n: int, known: Mapping[str, Message]) -> bool:
        """Whether the log has it; as it is stored, where a parsed answer is a dictionary and no model any more."""
        old, message = known.get(self._ids[n]), self._messages[n]
        return old is not None and content_id(old.model_copy(update={"id": message.id})) == content_id(message)

    def _is_asked_again(self, n: int) -> bool:
        """Whether it is a question that has its answer already, or is the new one: no cache replays that."""
        answered = n + 1 < len(self._ids) and not self._new[n + 1]
        return self._messages[n].role == "user" and (answered or self._places[self._ids[n]] < n)

    def _other_id(self, n: int, others: Mapping[int, Message]) -> str:
        """The same one when it is delivered again, and not when it is said again, behind something else.

        Empty, so that it is given one, behind a message that will have another id itself.
        """
        own = content_id(self._messages[n])
        before = others.get(n - 1, self._messages[n - 1]).id if n else ""
        return fingerprint(before, own) if before else "" if n else own
