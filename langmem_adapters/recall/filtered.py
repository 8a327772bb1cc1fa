"""Search for a host's retriever: memories, filtered by the metadata that the host gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langmem_adapters.flow import Flow
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Memory, Occurrence, Recalled
from langmem_adapters.recall.memories import metadata_of

__all__ = ["search_filtered"]


def search_filtered(
    memory: LongTermMemory, query: str, k: int, filters: Sequence[Callable[[dict[str, Any]], bool]], session: object
) -> Flow[list[tuple[Recalled, Occurrence]]]:
    """The ``k`` best memories that pass all filters, each with the first occurrence that passes them.

    ``session`` is the one that the filters require by an equality, if they do: then no other session is searched.
    """

    def wanted(found: Memory) -> Occurrence | None:
        said = found.occurrences or [Occurrence()]
        return next((one for one in said if all(lets(metadata_of(found.message, one)) for lets in filters)), None)

    own = memory.scope
    scope = own.model_copy(update={"session": session}) if own.user and isinstance(session, str) else None
    found = yield from memory.search_flow(query, k, where=lambda one: wanted(one) is not None, scope=scope)
    said = ((recalled, wanted(recalled.memory)) for recalled in found)
    return [(recalled, occurrence) for recalled, occurrence in said if occurrence is not None]
