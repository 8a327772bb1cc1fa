"""Find answers by the meaning of a request: each nearest neighbour in the partition is verified before it is served."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from langmem_adapters.codec import decode, encode
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.concurrency.forks import no_fork
from langmem_adapters.concurrency.locks import ForkSafeLock
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.shelf.shelf import Shelf
from langmem_adapters.experience.verifier.calibration import Scale, scale_flow
from langmem_adapters.flow import Flow, run, step, submit
from langmem_adapters.keys import Namespace
from langmem_adapters.lru import LRU
from langmem_adapters.protocols import SemanticIndex, Store

if TYPE_CHECKING:
    from langmem_adapters.experience.verifier.verifier import Verifier

_MAX_OPEN_PARTITIONS = 256  # partitions that are kept open
_log = logging.getLogger("langmem_adapters")


class Match(NamedTuple):
    """A kept request that means the same as the new one."""

    key: str
    """The key of its answer."""
    text: str
    score: float
    """The verifier's confidence that it means the same."""
    cosine: float
    """The cosine of the two texts' embeddings."""


class VerifiedAnswers:
    """Finds the keys of answers by the meaning of their requests, within a partition.

    A partition holds requests that may share answers. It is part of the namespace, so no other is searched.
    Each turn of a conversation has its own partition, so partitions that become empty are removed.
    The text of a request is kept (in the store, so that the index can be rebuilt) with the key of its answer.
    Texts are embedded in the background, at the latest by the next search of their partition.

    Args:
        store, namespace: Where the texts are kept, in one namespace below this for each partition.
        index, verifier: Finds texts by meaning; decides whether a candidate is accepted.
        candidates: How many of the nearest texts are verified.
        counts: Where rejected candidates are counted, by guard: "rejected_numbers".
        answers: Where the answers are kept, if in the same store: requests without an answer are removed.
    """

    def __init__(
        self,
        store: Store,
        namespace: Namespace,
        index: SemanticIndex,
        *,
        verifier: Verifier,
        candidates: int = 5,
        counts: Counts | None = None,
        answers: Namespace | None = None,
    ) -> None:
        if not isinstance(index, SemanticIndex):
            raise ConfigurationError("the search by meaning needs an index of vectors: use open_vectors")
        self.index = index
        self.verifier = verifier
        self.counts: Counts = Counts() if counts is None else counts
        self._store = store
        self._namespace = namespace
        self._candidates = candidates
        self._answers = answers
        self._shelves: LRU[str, Shelf] = LRU(_MAX_OPEN_PARTITIONS)
        self._lock = ForkSafeLock()

    def find_flow(self, partition: str, text: str) -> Flow[list[Match]]:
        """The kept requests of a partition that mean the same, highest score first."""
        hits = yield from step(self._shelf(partition).search, text, self._candidates, _decode_entry)
        scale = (yield from scale_flow(self.index, self.verifier)) if hits else Scale()
        matches = []
        for key, similarity, (_, stored_text) in hits:
            cosine = 2 * similarity - 1
            verdict = yield from self.verifier.flow(text, stored_text, scale.convert(cosine))
            if verdict.accepted:
                matches.append(Match(key, stored_text, verdict.score, cosine))
            else:
                self.counts.add("rejected")
                self.counts.add(f"rejected_{verdict.guard}")
        return sorted(matches, key=lambda match: match.score, reverse=True)

    def keep_flow(self, partition: str, text: str, key: str) -> Flow[None]:
        """Keep a request under the key of its answer; its vector follows in the background."""
        shelf, data = self._shelf(partition), encode([key, text, os.urandom(8).hex()])  # different bytes for each write
        yield from step(shelf.put, key, data)
        with suppress(RuntimeError):  # the interpreter is shutting down; the next search embeds it
            submit(lambda: self._embed(shelf))

    def drop_flow(self, partition: str, *keys: str) -> Flow[None]:
        """Remove requests whose answers are gone, unless an answer was stored again."""
        yield from step(self._drop_keys, self._shelf(partition), keys)

    def _drop_keys(self, shelf: Shelf, keys: Sequence[str]) -> None:
        has_removed = False
        for key in keys:
            data = shelf.get(key)
            if data is not None and (self._answers is None or self._worth(data) is None):
                shelf.discard(key, data)
                has_removed = True
        if has_removed:
            shelf.expire_if_empty()

    def sweep_flow(self, is_deleted: Callable[[str], bool]) -> Flow[None]:
        """Remove the requests, in all partitions, for whose keys ``is_deleted`` is true. Reads all requests."""
        for shelf in (yield from step(self._all_shelves)):
            if (yield from step(shelf.drop, lambda data: is_deleted(_entry_key(data)))):
                yield from step(shelf.expire_if_empty)

    def clear_flow(self) -> Flow[None]:
        """Remove all requests."""
        for shelf in (yield from step(self._all_shelves)):
            yield from step(shelf.clear)

    def at(self, namespace: Namespace) -> VerifiedAnswers:
        """The same store, index, verifier and counts under another namespace."""
        return VerifiedAnswers(
            self._store, namespace, self.index, verifier=self.verifier, candidates=self._candidates, counts=self.counts
        )

    def _shelf(self, partition: str) -> Shelf:
        with no_fork, self._lock.held():
            return self._shelves.get_or_make(partition, lambda: self._open_shelf(partition))

    def _open_shelf(self, partition: str) -> Shelf:
        namespace = (*self._namespace, partition)
        return Shelf(
            self._store, namespace, worth=self._worth, index=self.index, text_of=lambda data: _decode_entry(data)[1]
        )

    def _worth(self, data: bytes) -> float | None:
        """None if the answer is gone: a process may have been killed after it removed that, and before this."""
        return 1.0 if self._answers is None or self._store.get(self._answers, [_entry_key(data)]) else None

    def _all_shelves(self) -> list[Shelf]:
        depth = len(self._namespace) + 1
        namespaces = self._store.namespaces(self._namespace)
        return [self._open_shelf(namespace[-1]) for namespace in namespaces if len(namespace) == depth]

    def _embed(self, shelf: Shelf) -> None:
        try:
            shelf.search("", 1, _decode_entry)  # finds nothing; it only brings the index up to date
            run(scale_flow(self.index, self.verifier))  # so that no look-up waits for it
        except LangmemError as error:
            self.counts.add("behind")
            _log.info("new requests could not be embedded; the next search tries again: %s", type(error).__name__)

    def __repr__(self) -> str:
        return f"VerifiedAnswers({self._store!r}, {self.index!r})"


def _entry_key(data: bytes) -> str:
    return _decode_entry(data)[0]


def _decode_entry(data: bytes) -> tuple[str, str]:
    """Key and text of a kept request; both empty if it is damaged, so that no search finds it."""
    try:
        key, text, *_ = decode(data)
    except (SerializationError, TypeError, ValueError):
        return "", ""
    return (key, text) if isinstance(key, str) and isinstance(text, str) else ("", "")
