"""Whether a write was made whose answer was lost, so that it is not made again over what others have done since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langmem_adapters.keys import to_bytes
from langmem_adapters.stores.redis_keys import NamespaceKeys
from langmem_adapters.stores.redis_packing import pack


class Trace:
    """What a write leaves behind: the ids that it appends, and marks, values of which each belongs to one of them.

    While all ids are there, the write may be made again. If an id is gone and a mark is there, the entry was replaced:
    a replacement keeps the mark.

    Args:
        redis_keys: The keys of the namespace.
        marks: The id of each mark, by the mark's name.
        start: Where the transaction's commands begin that may be repeated in any case.
    """

    def __init__(self, redis_keys: NamespaceKeys, marks: Mapping[str, str], start: int) -> None:
        self.reads = [
            pack("HMGET", redis_keys.values, *map(to_bytes, marks)),
            pack("SMISMEMBER", redis_keys.ids, *map(to_bytes, marks.values())),
        ]
        self.start = start
        self._was_sent = False

    def is_repeat(self) -> bool:
        """Whether this was asked before, as it is each time before the transaction is sent."""
        was_sent, self._was_sent = self._was_sent, True
        return was_sent

    @staticmethod
    def is_in(replies: list[Any]) -> bool:
        """Whether the replies to ``reads`` show that the write was made, and must not be made again."""
        marks, are_known = replies
        return any(mark is not None for mark in marks) and not all(are_known)
