"""LongTermRetriever: long-term memory as a LangChain retriever."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from langmem_adapters.longterm import RECALLED, LongTermMemory
from langmem_adapters.model import Recalled

__all__ = ["LongTermRetriever"]


class LongTermRetriever(BaseRetriever):
    """Finds memories of a user (implements ``langchain_core.retrievers.BaseRetriever``).

    A document's text is what was said; its id is the memory's; its metadata hold ``score`` (in [0, 1], higher is
    better), ``role``, ``name``, ``session``, ``message_id``, ``created_at`` (Unix seconds) of when it was first
    said, what the message's own metadata hold, and ``recalled``, by which it is known and not stored again.

    Args:
        memory: What is searched.
        k: How many documents at the most; also per call: ``retriever.invoke(query, k=3)``.

    >>> from langmem_adapters import LongTermMemory, Message, open_index, open_store
    >>> from langmem_adapters.langchain import LongTermRetriever
    >>> memory = LongTermMemory(open_store("memory:"), open_index("memory:"), user="ada")
    >>> memory.add([Message(role="user", content="My bike is in the shed.")])
    >>> [found.page_content for found in LongTermRetriever(memory=memory).invoke("bike")]
    ['My bike is in the shed.']
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: LongTermMemory
    k: int = Field(default=5, ge=1)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it by name
        k: int | None = None,
        **_: Any,
    ) -> list[Document]:
        return [_document(found) for found in self.memory.search(query, self.k if k is None else k)]

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it by name
        k: int | None = None,
        **_: Any,
    ) -> list[Document]:
        return [_document(found) for found in await self.memory.asearch(query, self.k if k is None else k)]


def _document(found: Recalled) -> Document:
    message, first = found.memory.message, found.memory.occurrences[0]
    return Document(
        id=found.memory.id,
        page_content=message.text,
        metadata={
            **message.metadata,
            "score": found.score,
            "role": message.role,
            "name": message.name,
            "session": first.session,
            "message_id": first.message_id,
            "created_at": first.created_at,
            RECALLED: True,
        },
    )
