"""Tell texts that an embedder refuses from an embedder that is down."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from langmem_adapters.embedding import Embedder, Embedding, harmless_text
from langmem_adapters.embedding_calls import is_rate_limit
from langmem_adapters.errors import ModelError

_MAX_REFUSALS = 3


def embed_texts(embedder: Embedder, texts: Sequence[str]) -> list[Embedding | None]:
    """The embeddings of texts, in their order; None for a text that an otherwise working embedder refuses.

    Raises ModelError if it does not answer at all, or too many texts were sent to it of late.
    """
    try:
        return list(embedder.read(texts))
    except ModelError as error:
        if len(texts) == 1 and is_rate_limit(error.__cause__):
            raise
        embedder.texts([harmless_text(texts)])  # raises if the embedder is down
    if len(texts) == 1:
        return [None]
    half = len(texts) // 2
    return embed_texts(embedder, texts[:half]) + embed_texts(embedder, texts[half:])


class RefusedDocuments:
    """The documents of each namespace that were refused, as long as they are worth another try."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}

    def record(self, name: str, *, changed: AbstractSet[str], refused: Sequence[str]) -> list[str]:
        """Record which of the changed documents were refused; returns those that were not refused before."""
        old_counts = self._counts.get(name, {})
        new_counts = {id_: count for id_, count in old_counts.items() if id_ not in changed}
        counts = ((id_, old_counts.get(id_, 0) + 1) for id_ in refused)
        new_counts |= {id_: count for id_, count in counts if count < _MAX_REFUSALS}
        self.forget(name)
        if new_counts:
            self._counts[name] = new_counts
        return [id_ for id_ in refused if id_ not in old_counts]

    def ids(self, name: str) -> list[str]:
        """The ids of a namespace's refused documents."""
        return list(self._counts.get(name, ()))

    def forget(self, name: str) -> None:
        """Forget a namespace."""
        self._counts.pop(name, None)
