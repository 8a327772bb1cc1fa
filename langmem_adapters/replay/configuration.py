"""Settings of a memory that can be compared, and the memories that are made by them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langmem_adapters.brain import BrainMemory
from langmem_adapters.embedding import Embedder
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.indexes import open_index, open_vectors
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.protocols import Store
from langmem_adapters.stores import open_store
from langmem_adapters.tokens import TokenCounter
from langmem_adapters.validation import check_count


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The settings of a memory, under the names that they have in BrainMemory and LongTermMemory.

    Args:
        memory_k: How many of the newest messages the window shows.
        max_tokens: Tokens of the window at most; None: ``memory_k`` alone limits it.
        summarize_at: Tokens of messages beyond which the oldest become part of a summary; None: no summary.
        max_summary_tokens: Tokens of a summary at most.
        recall_k: How many long-term memories are shown with a question at most; 0: there is no long-term memory.
        embedder: Finds them by meaning, too: a LangChain or LlamaIndex embedding model or an Embedder. None: by
            words.
        weights: Other weights of the signals of the search; see :data:`langmem_adapters.signals.SIGNALS`.
        serve_above: Serve an earlier answer without a call if the same was said before the question, and a Verifier
            with this threshold takes both questions for one. Needs an embedder. None: every answer is a call.

    >>> Configuration(memory_k=20, recall_k=3).recall_k
    3
    """

    memory_k: int = 200
    max_tokens: int | None = None
    summarize_at: int | None = None
    max_summary_tokens: int = 400
    recall_k: int = 0
    embedder: Any = field(default=None, repr=False)
    weights: Mapping[str, float] | None = None
    serve_above: float | None = None

    def __post_init__(self) -> None:
        check_count("recall_k", self.recall_k, minimum=0)
        if self.weights is not None and not self.recall_k:
            raise ConfigurationError("weights are those of a search: give recall_k, too")
        if self.serve_above is not None and self.embedder is None:
            raise ConfigurationError("serve_above compares by meaning: give an embedder, too")
        if self.embedder is not None and not self.recall_k and self.serve_above is None:
            raise ConfigurationError("an embedder is for a search: give recall_k or serve_above, too")


class Memories:
    """The memories of one replay, all in this process: nothing of the user's own is touched."""

    def __init__(
        self, configuration: Configuration, *, model: Any, counter: TokenCounter, clock: Callable[[], float]
    ) -> None:
        self.configuration = configuration
        self.store: Store = open_store("memory:")
        self.vectors: Any = None
        if configuration.embedder is not None:
            self.vectors = open_vectors("memory:", Embedder.of(configuration.embedder))
        self._index = open_index("memory:")
        self._model = model
        self._counter = counter
        id_numbers = itertools.count(1)
        self._shared_arguments: dict[str, Any] = {"clock": clock, "new_id": lambda: f"replayed-{next(id_numbers)}"}
        self._long_term: dict[str, LongTermMemory] = {}

    def long_term(self, user: str) -> LongTermMemory | None:
        """The long-term memory of a user, if there is one."""
        if not self.configuration.recall_k:
            return None
        if user not in self._long_term:
            self._long_term[user] = LongTermMemory(
                self.store,
                self._index,
                vectors=self.vectors,
                strict=True,
                user=user,
                weights=self.configuration.weights,
                **self._shared_arguments,
            )
        return self._long_term[user]

    def brain(self, user: str, session: str, *, with_summaries: bool = True) -> BrainMemory:
        """The memory of a session; without ``with_summaries``, one that never asks a model."""
        configuration = self.configuration
        summarize_at = configuration.summarize_at if with_summaries else None
        return BrainMemory(
            self.store,
            session,
            user=user,
            memory_k=configuration.memory_k,
            max_tokens=configuration.max_tokens,
            long_term=self.long_term(user),
            model=None if summarize_at is None else self._model,
            summarize_at=summarize_at,
            summarize_in="inline",  # in the background, what a call is shown would depend on how quick the model is
            max_summary_tokens=configuration.max_summary_tokens,
            counter=self._counter,
            **self._shared_arguments,
        )
