"""What LlamaIndex offers for the same task, behind the part of LongTermMemory's interface that is measured."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from langmem_adapters.flow import Flow, step
from langmem_adapters.model import Memory, Message, Occurrence, Recalled

DEPTH = 20
Search = Callable[[str], list[str]]


class Peer:
    """Messages, and a search that gives the ids of some."""

    def __init__(self, messages: Sequence[Message], search: Search) -> None:
        self._memories = {
            message.id: Memory(id=message.id, message=message, occurrences=[Occurrence(message_id=message.id)])
            for message in messages
        }
        self._search = search

    def all(self) -> list[Memory]:
        return list(self._memories.values())

    def search_flow(self, query: str, k: int) -> Flow[list[Recalled]]:
        found = yield from step(self._search, query)
        return [Recalled(self._memories[id_], 0.0) for id_ in found[:k]]


def installed(embed: Callable[[Sequence[str]], list[Any]] | None) -> Iterator[tuple[str, Callable[..., Peer]]]:
    """Those whose packages are there, with what makes one of a user's messages."""
    bm25 = find_spec("llama_index") is not None and find_spec("llama_index.retrievers.bm25") is not None
    chroma = find_spec("llama_index") is not None and find_spec("llama_index.vector_stores.chroma") is not None
    if bm25:
        yield "LlamaIndex BM25Retriever", lambda messages: Peer(messages, _retrieved(_bm25(messages)))
    if embed is None or not chroma:
        return
    model = _embedding(embed)
    yield "LlamaIndex ChromaVectorStore", lambda messages: Peer(messages, _retrieved(_chroma(messages, model)))
    if bm25:
        yield "LlamaIndex QueryFusionRetriever", lambda messages: Peer(messages, _retrieved(_fusion(messages, model)))
    yield "LlamaIndex VectorMemory", lambda messages: Peer(messages, _vector_memory(messages, model))


def _text(message: Message) -> str:
    return f"{message.name}: {message.text}"


def _retrieved(retriever: Any) -> Search:
    return lambda query: [found.node.node_id for found in retriever.retrieve(query)]


def _nodes(messages: Sequence[Message]) -> list[Any]:
    node = importlib.import_module("llama_index.core.schema").TextNode
    return [node(id_=message.id, text=_text(message)) for message in messages]


def _bm25(messages: Sequence[Message]) -> Any:
    retriever = importlib.import_module("llama_index.retrievers.bm25").BM25Retriever
    return retriever.from_defaults(nodes=_nodes(messages), similarity_top_k=DEPTH)


def _chroma(messages: Sequence[Message], model: Any) -> Any:
    client = importlib.import_module("chromadb").EphemeralClient()
    collection = client.create_collection(uuid.uuid4().hex, metadata={"hnsw:space": "cosine"})
    store = importlib.import_module("llama_index.vector_stores.chroma").ChromaVectorStore(chroma_collection=collection)
    core = importlib.import_module("llama_index.core")
    context = core.StorageContext.from_defaults(vector_store=store)
    index = core.VectorStoreIndex(_nodes(messages), storage_context=context, embed_model=model)
    return index.as_retriever(similarity_top_k=DEPTH)


def _fusion(messages: Sequence[Message], model: Any) -> Any:
    retrievers = importlib.import_module("llama_index.core.retrievers")
    return retrievers.QueryFusionRetriever(
        [_chroma(messages, model), _bm25(messages)],
        llm=importlib.import_module("llama_index.core.llms").MockLLM(),
        mode="relative_score",
        num_queries=1,
        similarity_top_k=DEPTH,
        use_async=False,
    )


def _vector_memory(messages: Sequence[Message], model: Any) -> Search:
    memory = importlib.import_module("llama_index.core.memory").VectorMemory.from_defaults(
        embed_model=model, retriever_kwargs={"similarity_top_k": DEPTH}
    )
    chat_message = importlib.import_module("llama_index.core.llms").ChatMessage
    for message in messages:
        memory.put(chat_message(role=message.role, content=_text(message), additional_kwargs={"id": message.id}))
    return lambda query: [found.additional_kwargs["id"] for found in memory.get(query)]


def _embedding(embed: Callable[[Sequence[str]], list[Any]]) -> Any:
    base: Any = importlib.import_module("llama_index.core.base.embeddings.base").BaseEmbedding

    class Shared(base):  # type: ignore[misc]  # as far as mypy knows, anything
        def _get_query_embedding(self, query: str) -> list[float]:
            return [float(number) for number in embed([query])[0]]

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

        def _get_text_embedding(self, text: str) -> list[float]:
            return self._get_query_embedding(text)

    return Shared(model_name="all-MiniLM-L6-v2", embed_batch_size=64)
