"""LongTermRetriever: long-term memory as a LangChain retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, PrivateAttr

from langmem_adapters import views
from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.langchain.filters import MetadataFilter, metadata_predicate, required_value
from langmem_adapters.language.analysis import matching
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Memory, Message, Occurrence, Recalled
from langmem_adapters.outages import Outages
from langmem_adapters.recall.filtered_search import search_filtered
from langmem_adapters.recall.memories import metadata_of


class LongTermRetriever(BaseRetriever):
    """Finds memories of a user (implements ``langchain_core.retrievers.BaseRetriever``).

    A document's text is what was said, and its id is the memory's. Its metadata hold ``score`` (in [0, 1], higher is
    better), ``role``, ``name``, ``session``, ``message_id``, ``created_at`` (Unix seconds, when it was first said),
    the message's own metadata, and ``recalled``, which marks it so that it is not stored again. If it was said several
    times, the metadata are those of the first time that the filter lets through.

    Args:
        memory: The memory to search.
        k: How many documents at most; also per call: ``retriever.invoke(query, k=3)``.
        filter: Which memories are searched, by the metadata above without the score: ``{"session": "monday"}``,
            ``{"created_at": {"$gte": 0}}`` with ``$eq``, ``$ne``, ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$in``,
            ``$nin``, ``$and``, ``$or`` and ``$not``, or a function of the metadata. The search itself applies it, so
            that the best of the wanted memories are found; it is fastest if they are of one session. Also per call:
            ``retriever.invoke(query, filter={…})``, which narrows the retriever's own filter and never widens it.
        on_error: What an outage of the store or the index does: "raise" raises, because an empty result would mean that
            there are no memories; "degrade" returns none, is logged once for each cause and counted in :meth:`stats`.

    >>> from langmem_adapters import LongTermMemory, Message, open_index, open_store
    >>> from langmem_adapters.langchain import LongTermRetriever
    >>> memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    >>> memory.add([Message(role="user", content="My bike is in the shed.")])
    >>> [found.page_content for found in LongTermRetriever(memory=memory).invoke("bike")]
    ['My bike is in the shed.']
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", hide_input_in_errors=True
    )

    memory: LongTermMemory
    k: int = Field(default=5, ge=1)
    filter: MetadataFilter | None = None
    on_error: Literal["degrade", "raise"] = "raise"

    _outages: Outages = PrivateAttr(
        default_factory=lambda: Outages("the chain goes on without its memories", Counts("recalls", "errors"))
    )

    def stats(self) -> dict[str, int]:
        """Counts since construction: ``recalls``, and ``errors``, the recalls that an outage left empty."""
        return dict(self._outages.counts)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it by name
        k: int | None = None,
        filter: MetadataFilter | None = None,  # noqa: A002 - as LangChain's vector stores call it
    ) -> list[Document]:
        return run(self._search(query, k, filter))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it by name
        k: int | None = None,
        filter: MetadataFilter | None = None,  # noqa: A002 - as LangChain's vector stores call it
    ) -> list[Document]:
        return await arun(self._search(query, k, filter))

    def _search(self, query: str, k: int | None, narrowing_filter: MetadataFilter | None) -> Flow[list[Document]]:
        filters = [metadata_predicate(self.filter), metadata_predicate(narrowing_filter)]
        session = required_value(self.filter, "session") or required_value(narrowing_filter, "session")
        self._outages.counts.add("recalls")
        search = search_filtered(self.memory, query, self.k if k is None else k, filters, session)
        results = yield from self._outages.attempt(search, [], self.on_error)
        return views.Listing([_to_document(*result) for result in results], _view, query=query)


def _to_document(recalled: Recalled, occurrence: Occurrence) -> Document:
    metadata = {**metadata_of(recalled.memory.message, occurrence), "score": recalled.score}
    return Document(id=recalled.memory.id, page_content=recalled.text, metadata=metadata)


def _view(documents: Sequence[Document], query: str) -> str:
    return views.memories([_to_recalled(document) for document in documents], query=query, matching=matching)


def _to_recalled(document: Document) -> Recalled:
    """The memory that a document was made of, as far as a view shows it."""
    metadata = document.metadata
    message = Message(role=metadata["role"], name=metadata["name"], content=document.page_content)
    occurrence = Occurrence(session=metadata["session"], created_at=metadata["created_at"])
    return Recalled(Memory(message=message, occurrences=[occurrence]), metadata["score"])
