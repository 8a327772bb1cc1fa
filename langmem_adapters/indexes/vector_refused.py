"""Tell texts that an embedder refuses from an embedder that is down."""

from __future__ import annotations

from collections.abc import Sequence

from langmem_adapters.embedding import Embedder, Embedding
from langmem_adapters.errors import ModelError
from langmem_adapters.keys import fingerprint

__all__ = ["RefusedDocuments", "embedded"]

_TRIES = 3


def embedded(embedder: Embedder, texts: Sequence[str]) -> list[Embedding | None]:
    """The embeddings of texts, in their order; None for a text that an otherwise working embedder refuses.

    Raises ModelError if it does not answer at all.
    """
    try:
        return list(embedder.read(texts))
    except ModelError:
        # A harmless text, which differs with the given ones, so that no cache of the host answers it.
        embedder.texts([f"text {fingerprint(list(texts))[:8]}"])
    if len(texts) == 1:
        return [None]
    half = len(texts) // 2
    return embedded(embedder, texts[:half]) + embedded(embedder, texts[half:])


class RefusedDocuments:
    """The documents of each namespace that were refused, as long as they are worth another try."""

    def __init__(self) -> None:
        self._tries: dict[str, dict[str, int]] = {}

    def note(self, name: str, *, gone: Sequence[str], refused: Sequence[str]) -> list[str]:
        """Record refused documents, and those settled otherwise; returns those that were not refused before."""
        before, told = self._tries.get(name, {}), {*gone, *refused}
        tries = {id_: tried for id_, tried in before.items() if id_ not in told}
        tries |= {id_: tried for id_ in refused if (tried := before.get(id_, 0) + 1) < _TRIES}
        self.forget(name)
        if tries:
            self._tries[name] = tries
        return [id_ for id_ in refused if id_ not in before]

    def of(self, name: str) -> list[str]:
        """The ids of a namespace's refused documents."""
        return list(self._tries.get(name, ()))

    def forget(self, name: str) -> None:
        """Forget a namespace."""
        self._tries.pop(name, None)
