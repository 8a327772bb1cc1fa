"""Answers by the meaning of a request: nearest neighbours of the same partition, each checked before it is served."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from langmem_adapters.codec import decode, encode
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError, LangmemError, SerializationError
from langmem_adapters.experience.shelf.shelf import Shelf
from langmem_adapters.experience.verifier.calibration import Scale, scale_flow
from langmem_adapters.experience.verifier.verifier import Verifier
from langmem_adapters.flow import Flow, run, step, submit
from langmem_adapters.keys import Namespace
from langmem_adapters.lru import LRU
from langmem_adapters.protocols import SemanticIndex, Store

__all__ = ["Match", "VerifiedAnswers"]

_SHELVES = 256  # partitions that are kept open
_log = logging.getLogger("langmem_adapters")


class Match(NamedTuple):
    """A kept request that means the same as the one that was asked."""

    key: str
    """The key of its answer."""
    text: str
    score: float
    """How surely it means the same, by the verifier."""
    cosine: float
    """Of the two texts, as the embedder has it."""


class VerifiedAnswers:
    """Finds the keys of answers by what was asked, in any words, within a partition.

    A partition holds what may stand for each other: it is part of the namespace, so nothing of another is looked at.
    Each turn of a conversation has one of its own, so those that become empty do not stay.
    What is kept of a request is its text (in the store, so that the index can be rebuilt) and the key of its answer.
    Texts are embedded in the background, and at the latest by the next search of their partition.

    Args:
        store: Where the texts are kept.
        namespace: Under which the partitions lie.
        index: Finds them by meaning.
        verifier: Has the last word.
        candidates: How many of the nearest are checked.
        counts: Where refused candidates are counted, by guard: "rejected_numbers".
        answers: Where the answers are kept, if in the same store: requests whose answers are gone, go.
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
            raise ConfigurationError(
                "answers are found by meaning with an index of vectors, which can score: open_vectors"
            )
        self.index = index
        self.verifier = verifier
        self.counts: Counts = Counts() if counts is None else counts
        self._store = store
        self._namespace = namespace
        self._candidates = candidates
        self._answers = answers
        self._shelves: LRU[str, Shelf] = LRU(_SHELVES)
        self._lock = threading.Lock()

    def find_flow(self, partition: str, text: str) -> Flow[list[Match]]:
        """The kept requests of a partition that mean the same, the surest first."""
        found = yield from step(self._shelf(partition).search, text, self._candidates, _read)
        scale = (yield from scale_flow(self.index, self.verifier)) if found else Scale()
        matches = []
        for key, near, (_, kept) in found:
            cosine = 2 * near - 1
            verdict = yield from self.verifier.flow(text, kept, scale.of(cosine))
            if verdict.accepted:
                matches.append(Match(key, kept, verdict.score, cosine))
            else:
                self.counts.add("rejected")
                self.counts.add(f"rejected_{verdict.guard}")
        return sorted(matches, key=lambda match: match.score, reverse=True)

    def keep_flow(self, partition: str, text: str, key: str) -> Flow[None]:
        """Keep a request under the key of its answer; its vector follows in the background."""
        shelf, data = self._shelf(partition), encode([key, text, os.urandom(8).hex()])  # other bytes each time
        yield from step(shelf.put, key, data)
        with suppress(RuntimeError):  # the interpreter is shutting down; the next search embeds it
            submit(lambda: self._embed(shelf))

    def drop_flow(self, partition: str, *keys: str) -> Flow[None]:
        """Forget requests whose answers are gone, and have not come back."""
        yield from step(self._drop, self._shelf(partition), keys)

    def _drop(self, shelf: Shelf, keys: Sequence[str]) -> None:
        gone = False
        for key in keys:
            data = shelf.get(key)
            if data is not None and (self._answers is None or self._worth(data) is None):
                shelf.discard(key, data)
                gone = True
        if gone:
            shelf.leave()

    def sweep_flow(self, gone: Callable[[str], bool]) -> Flow[None]:
        """Forget the requests, in all partitions, whose keys ``gone`` is true of. Reads them all."""
        for shelf in (yield from step(self._all)):
            if (yield from step(shelf.drop, lambda data: gone(_key(data)))):
                yield from step(shelf.leave)

    def clear_flow(self) -> Flow[None]:
        """Forget everything."""
        for shelf in (yield from step(self._all)):
            yield from step(shelf.clear)

    def at(self, namespace: Namespace) -> VerifiedAnswers:
        """The same in another place."""
        return VerifiedAnswers(
            self._store, namespace, self.index, verifier=self.verifier, candidates=self._candidates, counts=self.counts
        )

    def _shelf(self, partition: str) -> Shelf:
        with self._lock:
            return self._shelves.get_or_make(partition, lambda: self._open(partition))

    def _open(self, partition: str) -> Shelf:
        namespace = (*self._namespace, partition)
        return Shelf(self._store, namespace, worth=self._worth, index=self.index, text_of=lambda data: _read(data)[1])

    def _worth(self, data: bytes) -> float | None:
        """Nothing without the answer, which may have gone with a process that was killed before it went on to this."""
        return 1.0 if self._answers is None or self._store.get(self._answers, [_key(data)]) else None

    def _all(self) -> list[Shelf]:
        depth = len(self._namespace) + 1
        found = self._store.namespaces(self._namespace)
        return [self._open(namespace[-1]) for namespace in found if len(namespace) == depth]

    def _embed(self, shelf: Shelf) -> None:
        try:
            shelf.search("", 1, _read)  # a blank query finds nothing; that the index follows is all
            run(scale_flow(self.index, self.verifier))  # so that no look-up has to wait for it
        except LangmemError as error:
            self.counts.add("behind")
            _log.info("what was asked is embedded later: %s", type(error).__name__)

    def __repr__(self) -> str:
        return f"VerifiedAnswers({self._store!r}, {self.index!r})"


def _key(data: bytes) -> str:
    return _read(data)[0]


def _read(data: bytes) -> tuple[str, str]:
    """What was kept; nothing, where that is damaged, which is found by nothing and equals nothing."""
    try:
        key, text, *_ = decode(data)
    except (SerializationError, TypeError, ValueError):
        return "", ""
    return (key, text) if isinstance(key, str) and isinstance(text, str) else ("", "")
