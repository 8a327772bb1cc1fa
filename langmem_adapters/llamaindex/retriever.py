"""BrainRetriever and LongTermRetriever: memory as LlamaIndex retrievers."""

from __future__ import annotations

from typing import Literal

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilters

from langmem_adapters.brain import BrainMemory
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.conversation.session_search import SessionSearch
from langmem_adapters.errors import ConfigurationError
from langmem_adapters.flow import Flow, arun, run, step
from langmem_adapters.indexes import open_index
from langmem_adapters.llamaindex.filters import metadata_predicate, required_value
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message, Occurrence
from langmem_adapters.outages import Outages
from langmem_adapters.protocols import Index, Store
from langmem_adapters.recall.filtered_search import search_filtered
from langmem_adapters.recall.memories import metadata_of
from langmem_adapters.stores import resolve_store
from langmem_adapters.validation import check_at_most_one, check_on_error, check_scope


class _Retriever(BaseRetriever):
    """What both retrievers share: a search, and what an outage does to it."""

    def __init__(
        self, similarity_top_k: int, on_error: Literal["degrade", "raise"], callback_manager: CallbackManager | None
    ) -> None:
        check_on_error(on_error)
        self.similarity_top_k = similarity_top_k
        self.on_error = on_error
        self._outages = Outages("the query goes on without its memories", Counts("recalls", "errors"))
        super().__init__(callback_manager=callback_manager)

    def stats(self) -> dict[str, int]:
        """Counts since construction: ``recalls``, and ``errors``, the recalls that an outage left empty."""
        return dict(self._outages.counts)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run(self._recall(query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await arun(self._recall(query_bundle.query_str))

    def _recall(self, query: str) -> Flow[list[NodeWithScore]]:
        self._outages.counts.add("recalls")
        return (yield from self._outages.attempt(self._find(query), [], self.on_error))

    def _find(self, query: str) -> Flow[list[NodeWithScore]]:
        """Search for what fits the query."""
        raise NotImplementedError  # not abstract: LlamaIndex would make a trace span of it


class BrainRetriever(_Retriever):
    """Finds what was said, or is known, in a session (implements ``llama_index.core.BaseRetriever``).

    It also reads sessions that were written through LangChain. Its nodes are like those of
    :class:`LongTermRetriever`.

    Args:
        session_id: Any text.
        url: The store's URL; default ``LANGMEM_STORE_URL``, ``REDIS_URL``, ``sqlite:///langmem.db``.
        store: A store of your own instead of a URL.
        brain: A BrainMemory instead of both.
        user, tenant: Whose session it is; sessions of others are never seen.
        similarity_top_k: How many nodes at most.
        index: Where the session's index is kept; default: in memory, as long as this object lives.
        on_error: What an outage of the store or the index does, as in :class:`LongTermRetriever`.

    >>> from langmem_adapters import BrainMemory, open_store
    >>> from langmem_adapters.llamaindex import BrainRetriever
    >>> brain = BrainMemory(open_store("memory:"), "session-1")
    >>> brain.add_talk("My bike is in the shed.")
    >>> [found.text for found in BrainRetriever(brain=brain).retrieve("Where is the bike?")]
    ['My bike is in the shed.']
    """

    def __init__(
        self,
        session_id: str = "",
        *,
        url: str | None = None,
        store: Store | None = None,
        brain: BrainMemory | None = None,
        user: str = "",
        tenant: str = "",
        similarity_top_k: int = 5,
        index: Index | None = None,
        on_error: Literal["degrade", "raise"] = "raise",
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_at_most_one("BrainRetriever", url=url, store=store, brain=brain)
        if brain is None:
            brain = BrainMemory(resolve_store(url, store), session_id, user=user, tenant=tenant)
        elif not isinstance(brain, BrainMemory):
            raise ConfigurationError(f"brain is a BrainMemory, not {type(brain).__name__}")
        else:
            check_scope(brain.scope, session=session_id, user=user, tenant=tenant)
        self._search = SessionSearch(brain, open_index("memory:") if index is None else index)
        super().__init__(similarity_top_k, on_error, callback_manager)

    def _find(self, query: str) -> Flow[list[NodeWithScore]]:
        matches = yield from step(self._search.search, query, self.similarity_top_k)
        session = self._search.brain.scope.session
        return [
            _node(m, score, m.id, Occurrence(session=session, message_id=m.id, created_at=m.created_at))
            for m, score in matches
        ]

    def __repr__(self) -> str:
        return f"BrainRetriever({self._search.brain!r})"


class LongTermRetriever(_Retriever):
    """Finds memories of a user (implements ``llama_index.core.BaseRetriever``).

    A node's text is what was said, and its id is the memory's; its score lies in [0, 1], higher is better. Its
    metadata hold ``role``, ``name``, ``session``, ``message_id``, ``created_at`` (Unix seconds, when it was first
    said), the message's own metadata, and ``recalled``, which marks it so that it is not stored again. Of these, a
    model is shown ``role`` and ``name``. If it was said several times, the metadata are those of the first time that
    the filters let through. A QueryBundle is searched for by its query alone, by words and by meaning: what HyDE adds
    to be embedded (``custom_embedding_strs``) is ignored.

    Args:
        memory: The memory to search.
        similarity_top_k: How many nodes at most.
        filters: Which memories are searched, by the metadata above; nested filters too. The search itself applies them,
            so that the best of the wanted memories are found; it is fastest if they are of one session. An operator
            that is not LlamaIndex's is a ConfigurationError.
        on_error: What an outage of the store or the index does: "raise" raises, because an empty result would mean that
            there are no memories; "degrade" returns none, is logged once for each cause and counted in :meth:`stats`.

    >>> from langmem_adapters import LongTermMemory, Message, open_index, open_store
    >>> from langmem_adapters.llamaindex import LongTermRetriever
    >>> memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    >>> memory.add([Message(role="user", content="My bike is in the shed.")])
    >>> [found.text for found in LongTermRetriever(memory).retrieve("bike")]
    ['My bike is in the shed.']
    """

    def __init__(
        self,
        memory: LongTermMemory,
        *,
        similarity_top_k: int = 5,
        filters: MetadataFilters | None = None,
        on_error: Literal["degrade", "raise"] = "raise",
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if not isinstance(memory, LongTermMemory):
            raise ConfigurationError(f"LongTermRetriever searches a LongTermMemory, not {type(memory).__name__}")
        self._memory = memory
        self._matches_filters = metadata_predicate(filters)
        self._session = required_value(filters, "session")
        super().__init__(similarity_top_k, on_error, callback_manager)

    def _find(self, query: str) -> Flow[list[NodeWithScore]]:
        k, filters = self.similarity_top_k, [self._matches_filters]
        matches = yield from search_filtered(self._memory, query, k, filters, self._session)
        return [_node(match.memory.message, match.score, match.memory.id, occurrence) for match, occurrence in matches]

    def __repr__(self) -> str:
        return f"LongTermRetriever({self._memory!r})"


def _node(message: Message, score: float, id_: str, occurrence: Occurrence) -> NodeWithScore:
    metadata = metadata_of(message, occurrence)
    hidden_keys = [key for key, value in metadata.items() if key not in {"role", "name"} or value is None]
    node = TextNode(
        id_=id_,
        text=message.text,
        metadata=metadata,
        excluded_llm_metadata_keys=hidden_keys,
        excluded_embed_metadata_keys=list(metadata),
    )
    return NodeWithScore(node=node, score=score)
