"""LongTermMemory: messages that have left the window, kept for good and found again by search."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from langmem_adapters import validation, views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.keys import Namespace
from langmem_adapters.language.analysis import matching
from langmem_adapters.model import Memory, Message, Recalled, Scope
from langmem_adapters.progress import Progress, advancing
from langmem_adapters.protocols import Index, SemanticIndex, Store
from langmem_adapters.recall.forgetting import forget
from langmem_adapters.recall.keeping import are_stored, correct_memory, remember
from langmem_adapters.recall.memories import RECALLED, MemoryReader, memory_filter, narrowed_session
from langmem_adapters.recall.reranking import Reranker
from langmem_adapters.recall.search import Search, queries_of
from langmem_adapters.recall.vectors import VectorRecall
from langmem_adapters.records.keyed import Records
from langmem_adapters.sharing import Shared
from langmem_adapters.signals import meaning_of, weights_of
from langmem_adapters.text import both_ends

__all__ = ["RECALLED", "LongTermMemory", "longterm_namespace"]

_QUERY_END_CHARS = 5_000  # read at the beginning and at the end of a longer query: the question may be there


def longterm_namespace(scope: Scope) -> Namespace:
    """Where a scope's memories are kept: all of a user's together, or without a user those of the session."""
    if scope.user:
        return ("longterm", scope.tenant, scope.user)
    if scope.session:
        return ("longterm", scope.tenant, "", scope.session)
    raise ConfigurationError("a long-term memory needs a scope: give it user=, or session= where there is no user")


class LongTermMemory(Shared):
    """The long-term memory of a user, or of one session (MetaGPT's ``RoleZeroLongTermMemory``).

    Messages are kept unchanged. Repeats that differ only in white space, commas, initial capitals and a final mark (but
    not "?") are one memory, with its first occurrence and the latest hundred; one from between counts as new again.
    Search finds what users and assistants said. Tool results, system prompts, messages without text and what an agent's
    harness added (LangChain's ``lc_source``) are kept, not searched. Recalled messages are not kept again. Methods have
    async twins (``a…``). The constructor reads nothing.

    Args:
        store: Where the memories are kept: the only truth.
        index: Finds memories by words; :func:`~langmem_adapters.open_index` makes one. It can be dropped at any time.
        vectors: A second index, which finds memories by meaning. Adding does not wait for it, and a search goes on
            without it if it fails.
        strict: Raise if ``vectors`` or ``ranker`` fails in a search, or if a stored memory is damaged.
        weights: Weights that replace the defaults, by signal; see :data:`langmem_adapters.signals.SIGNALS`.
        ranker: A model that reorders the results of a search: any LangChain or LlamaIndex model, or a function from
            prompt to text; scores are then given by rank. If it fails, order and scores stay as they were.
        user, tenant: The owner of the memories; those of other owners are never searched.
        session: Limits the memories to one session, where there is no user.
        similarity_top_k: How many memories :meth:`search` returns by default.
        ttl: Seconds after the last write at which all memories of the scope expire; None: never. The memories of
            one session expire with it if they are the ``long_term`` of a BrainMemory that has a ttl.
        clock, new_id: Functions that return Unix seconds, and ids for log entries.

    >>> from langmem_adapters import LongTermMemory, Message, open_index, open_store
    >>> memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    >>> memory.add([Message(role="user", content="My bike is in the shed.")])
    >>> [found.text for found in memory.search("Where is the bike?")]
    ['My bike is in the shed.']
    """

    def __init__(
        self,
        store: Store,
        index: Index,
        *,
        vectors: SemanticIndex | None = None,
        user: str = "",
        tenant: str = "",
        session: str = "",
        similarity_top_k: int = 5,
        strict: bool = False,
        weights: Mapping[str, float] | None = None,
        ranker: Any = None,
        ttl: float | None = None,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        validation.check_sync_functions(clock=clock, new_id=new_id)
        validation.check_seconds("ttl", ttl)
        validation.check_count("similarity_top_k", similarity_top_k, minimum=0)
        self.scope: Scope = validation.checked_scope(tenant=tenant, user=user, session=session)
        self.ttl = ttl
        self.similarity_top_k = similarity_top_k
        self._clock = clock
        namespace = longterm_namespace(self.scope)
        self._counts = counts = Counts("searches", "degraded", "behind", "refused", "damaged")
        self._reader = reader = MemoryReader(counts, strict=strict)
        self._records = Records(store, namespace, index=index, vectors=vectors, text_of=reader.document, new_id=new_id)
        self._reranker = None if ranker is None else Reranker(ranker, stats=counts, strict=strict)
        self._weighted_signals = weights_of(weights)
        self._vector_recall = (
            None if vectors is None else VectorRecall(self._records, vectors, strict=strict, counts=counts, clock=clock)
        )

    def add(self, messages: Sequence[Message], *, session: str = "") -> None:
        """Keep messages that were said in ``session``; adding the same ones again changes nothing."""
        run(self.add_flow(validation.checked_messages(messages), session=session))

    async def aadd(self, messages: Sequence[Message], *, session: str = "") -> None:
        """:meth:`add`, without blocking the event loop."""
        await arun(self.add_flow(validation.checked_messages(messages), session=session))

    def search(
        self,
        query: str,
        k: int | None = None,
        *,
        exclude: Sequence[Message] = (),
        where: Callable[[Memory], bool] | None = None,
        scope: Scope | None = None,
        explain: bool = False,
    ) -> list[Recalled]:
        """The ``k`` memories that fit the query best, best first; those that share nothing with it are left out.

        The speaker, the time and the neighbouring messages of the session count too, so that an answer is found by
        the words of its question. See :mod:`langmem_adapters.signals`.

        Args:
            query: What to look for. An empty query finds nothing.
            k: The most memories to return; 0 or less finds nothing.
            exclude: Messages that the reader sees anyway, in order: memories with the same words are left out. A
                question that refers to what was said before is searched with the user's question before it.
            where: Returns whether a memory is wanted; the ``k`` best wanted ones are returned.
            scope: Narrows a user's memories to one session; that of another user or tenant raises ConfigurationError.
            explain: Fill ``signals`` of each result with what each signal added to its score.
        """
        return run(self.search_flow(query, k, exclude=exclude, where=where, scope=scope, explain=explain))

    async def asearch(
        self,
        query: str,
        k: int | None = None,
        *,
        exclude: Sequence[Message] = (),
        where: Callable[[Memory], bool] | None = None,
        scope: Scope | None = None,
        explain: bool = False,
    ) -> list[Recalled]:
        """:meth:`search`, without blocking the event loop."""
        return await arun(self.search_flow(query, k, exclude=exclude, where=where, scope=scope, explain=explain))

    def get(self, memory_id: str) -> Memory | None:
        """The memory of this id; None, if there is none."""
        return run(self._get(memory_id))

    async def aget(self, memory_id: str) -> Memory | None:
        """:meth:`get`, without blocking the event loop."""
        return await arun(self._get(memory_id))

    def update(self, memory_id: str, text: str) -> bool:
        """Replace the text of a memory; False, if there is none of this id. Pictures beside its text stay.

        If the old text is said again later, it becomes a new memory, unless it is the same message (session and id).
        """
        return run(self._update(memory_id, text))

    async def aupdate(self, memory_id: str, text: str) -> bool:
        """:meth:`update`, without blocking the event loop."""
        return await arun(self._update(memory_id, text))

    def delete(self, memory_ids: Sequence[str]) -> int:
        """Delete memories; returns how many there were."""
        return run(self._delete(memory_ids))

    async def adelete(self, memory_ids: Sequence[str]) -> int:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._delete(memory_ids))

    def all(self) -> list[Memory]:
        """Every memory of the scope, oldest first."""
        return run(step(lambda: self._reader.memories(self._records.all())))

    async def aall(self) -> list[Memory]:
        """:meth:`all`, without blocking the event loop."""
        return await arun(step(lambda: self._reader.memories(self._records.all())))

    def count(self) -> int:
        """How many memories there are. Reads every one of them."""
        return run(step(lambda: sum(1 for _ in self._read_all())))

    async def acount(self) -> int:
        """:meth:`count`, without blocking the event loop."""
        return await arun(step(lambda: sum(1 for _ in self._read_all())))

    def clear(self) -> None:
        """Delete all memories of the scope."""
        run(self.clear_flow())

    async def aclear(self) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(self.clear_flow())

    def flush(self, *, progress: Progress = False) -> None:
        """Index and embed now what was added since the last search, instead of leaving it to the next search.

        ``progress`` shows both steps; see :data:`~langmem_adapters.progress.Progress`.
        """
        run(self._flush(progress))

    async def aflush(self, *, progress: Progress = False) -> None:
        """:meth:`flush`, without blocking the event loop."""
        await arun(self._flush(progress))

    def rebuild(self, *, progress: Progress = False) -> None:
        """Drop the index of this scope and rebuild it from the store, also where a server's index file is damaged."""
        run(self._rebuild(progress))

    async def arebuild(self, *, progress: Progress = False) -> None:
        """:meth:`rebuild`, without blocking the event loop."""
        await arun(self._rebuild(progress))

    def stats(self) -> dict[str, int]:
        """Counts since construction.

        ``searches``; searches ``degraded`` to words alone; times that the vectors were ``behind``; ``damaged`` memories
        left out; texts that the embedder ``refused``; what the ``ranker`` was asked.
        """
        return views.Figures(self._counts, title="Searches")

    def __repr__(self) -> str:
        return f"LongTermMemory({self._records.store!r}, {self.scope!r})"

    # --- flows

    def add_flow(self, messages: Sequence[Message], *, session: str) -> Flow[None]:
        """:meth:`add`, as a part of a larger flow; ``messages`` have been checked already."""
        validation.check_text("session", session)
        new_messages = [message for message in messages if not message.metadata.get(RECALLED)]
        if new_messages:
            session = session or self.scope.session
            yield from remember(self._records, new_messages, session, self._reader, clock=self._clock, ttl=self.ttl)
            self._follow_vectors()

    def search_flow(
        self,
        query: str,
        k: int | None = None,
        *,
        exclude: Sequence[Message] = (),
        where: Callable[[Memory], bool] | None = None,
        scope: Scope | None = None,
        explain: bool = False,
        for_reader: bool = True,
    ) -> Flow[list[Recalled]]:
        """:meth:`search`, as a part of a larger flow; if not ``for_reader``, unranked and with what says the same."""
        session = narrowed_session(self.scope, scope)
        k = self.similarity_top_k if k is None else k
        validation.check_text("a query", query)
        validation.check_sync_function("where", where)
        validation.check_integer("k", k)
        if k <= 0 or not query.strip():
            return views.Listing([], views.memories, query=query)
        self._counts.add("searches")
        excluded_messages = validation.checked_list(exclude, "exclude is a list of messages", Message)
        new_filter = partial(memory_filter, self._reader, excluded_messages, session, where, distinct=for_reader)
        candidate_count = k if self._reranker is None or not for_reader else self._reranker.candidate_count(k)
        query = both_ends(query, _QUERY_END_CHARS)
        search = yield from self._start_search(queries_of(query, excluded_messages))
        matches = yield from step(search.best, candidate_count, new_filter, session, explain=explain)
        recalled = [Recalled(memory, match.score, match.signals if explain else {}) for match, memory in matches]
        if self._reranker is not None and for_reader:
            recalled = yield from self._reranker.rerank(query, recalled)
        return views.Listing(recalled[:k], views.memories, query=query, matching=matching, meaning_of=meaning_of)

    def candidates_flow(self, query: str, k: int) -> Flow[dict[str, dict[str, float]]]:
        """The candidates of a search for ``k``, by id, with their signals before weighting, each from 0 to 1."""
        search = yield from self._start_search([both_ends(query, _QUERY_END_CHARS)])
        return (yield from step(search.candidates, k))

    def _start_search(self, queries: Sequence[str]) -> Flow[Search]:
        search = Search(self._records, self._vector_recall, self._weighted_signals, queries=queries, now=self._clock())
        yield from search.embed_ahead()
        return search

    def known_flow(self, messages: Sequence[Message]) -> Flow[list[bool]]:
        """For each of these messages, whether it is remembered according to the store; the index is not asked."""
        return (yield from are_stored(self._records, messages))

    def forget_flow(
        self, session: str, ids: Collection[str] | None, said: Sequence[Message] | None = None, ttl: float | None = None
    ) -> Flow[int]:
        """Remove what a session said, or only these messages of it; returns how many memories changed.

        ``said`` are the messages themselves, if only they can be concerned, which saves reading all memories.
        ``ttl`` is that of the session with which all these memories expire, in seconds.
        """
        changed_count = yield from forget(self._records, session, ids, self._reader, messages=said, ttl=ttl or self.ttl)
        self._follow_vectors()
        return changed_count

    def clear_flow(self) -> Flow[None]:
        """:meth:`clear`, as a part of a larger flow."""
        yield from step(self._records.clear)

    def _get(self, memory_id: str) -> Flow[Memory | None]:
        validation.check_text("the id of a memory", memory_id)
        stored = yield from step(self._records.get, [memory_id])
        return self._reader.memory(memory_id, stored[memory_id]) if stored else None

    def _update(self, memory_id: str, text: str) -> Flow[bool]:
        corrected = yield from correct_memory(self._records, memory_id, text, self._reader, ttl=self.ttl)
        self._follow_vectors()
        return corrected

    def _delete(self, memory_ids: Sequence[str]) -> Flow[int]:
        ids = validation.checked_list(memory_ids, "memory_ids are a list of ids", str)
        deleted_count = yield from step(self._records.delete, ids, ttl=self.ttl)
        self._follow_vectors()
        return deleted_count

    def _follow_vectors(self) -> None:
        if self._vector_recall is not None:
            self._vector_recall.follow_later()

    def _read_all(self) -> Iterator[Memory]:
        return filter(None, (self._reader.memory(id_, data) for id_, data in self._records.all()))

    def _flush(self, progress: Progress, total: int | None = None) -> Flow[None]:
        with advancing(progress, "indexing", total, "changes") as advance:
            yield from step(self._records.follow, advance)
        if self._vector_recall is not None:
            with advancing(progress, "embedding", total, "changes") as advance:
                yield from step(self._vector_recall.follow, advance)

    def _rebuild(self, progress: Progress) -> Flow[None]:
        yield from step(self._records.clear_indexes)
        scan = step(self._records.store.scan, self._records.namespace, limit=0)
        yield from self._flush(progress, None if progress is False else (yield from scan).total)
