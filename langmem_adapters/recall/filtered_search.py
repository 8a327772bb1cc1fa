"""Search for a host's retriever: memories, filtered by the metadata that the host gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langmem_adapters.flow import Flow
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Memory, Occurrence, Recalled
from langmem_adapters.recall.memories import metadata_of


def search_filtered(
    memory: LongTermMemory, query: str, k: int, filters: Sequence[Callable[[dict[str, Any]], bool]], session: object
) -> Flow[list[tuple[Recalled, Occurrence]]]:
    """The ``k`` best memories that pass all filters, each with the first occurrence that passes them.

    ``session`` is the one that the filters require by an equality, if they do: then no other session is searched.
    """

    def first_match(candidate: Memory) -> Occurrence | None:
        for occurrence in candidate.occurrences or [Occurrence()]:
            if all(passes(metadata_of(candidate.message, occurrence)) for passes in filters):
                return occurrence
        return None

    owner = memory.scope
    scope = owner.model_copy(update={"session": session}) if owner.user and isinstance(session, str) else None
    matches = yield from memory.search_flow(
        query, k, where=lambda candidate: first_match(candidate) is not None, scope=scope
    )
    pairs = ((recalled, first_match(recalled.memory)) for recalled in matches)
    return [(recalled, occurrence) for recalled, occurrence in pairs if occurrence is not None]
