"""What of a delivery a session had before, and what says something new. Pure rules; nothing here reads a store.

A delivery that is repeated brings only what was stored, or that first and then the rest. Or a chain gives back all that
it was shown, behind a question that is new. Any other known id comes from a cache that replays ids, or from a client
that numbers the messages of each request anew: what has it is added under another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from langmem_adapters.departed import content_id
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
        behind = [n for n in range(self._first + 1, len(ids)) if not new[n]]
        self._behind = behind
        self._given_back = behind if any(messages[n].role == "user" for n in behind) else []

    @property
    def unclear(self) -> set[str]:
        """The ids of which it takes what the log has under them to tell what they are."""
        return {self._ids[n] for n in (*range(self._first), *self._given_back)}

    def returned(self, known: Mapping[str, Message]) -> list[str]:
        """The ids of messages that had left, and were appended again; ``known`` is what the log has by now."""
        return [self._ids[n] for n in range(self._first) if self._new[n] and self._ids[n] in known]

    def others(self, known: Mapping[str, Message], left: Sequence[bool]) -> dict[int, Message]:
        """What says something new under a known id, by its place, under another id.

        Args:
            known: What the log has under the unclear ids.
            left: Of each message, whether it has left the log by now.
        """
        others = {
            n: self._messages[n].model_copy(update={"id": content_id(self._messages[n])})
            for n in range(self._first)
            if not (self._new[n] or self._is_same(n, known) or left[n])
        }
        repeated: set[int] = set()
        for n in self._behind:
            if self._is_given_back(n, repeated) and self._is_same(n, known):
                repeated.add(n)
            else:
                others[n] = self._messages[n].model_copy(update={"id": ""})
        return others

    def later(self, others: Mapping[int, Message]) -> list[int]:
        """The places of what was appended already, and belongs behind the first of those others."""
        return [n for n in range(max(self._first, min(others)), len(self._ids)) if self._new[n]]

    def _is_given_back(self, n: int, repeated: set[int]) -> bool:
        """Whether this stands among what was said before: a question, and what follows that."""
        if n - 1 in repeated:
            return True
        asked_before = self._ids.index(self._ids[n]) < n or n + 1 in self._given_back
        return self._messages[n].role == "user" and asked_before

    def _is_same(self, n: int, known: Mapping[str, Message]) -> bool:
        """Whether the log has it; as it is stored, where a parsed answer is a dictionary and no model any more."""
        old, message = known.get(self._ids[n]), self._messages[n]
        return old is not None and content_id(old.model_copy(update={"id": message.id})) == content_id(message)
