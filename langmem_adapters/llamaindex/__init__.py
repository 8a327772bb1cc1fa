"""Adapters for LlamaIndex. Needs the extra ``llama-index``."""

from __future__ import annotations

from langmem_adapters.errors import MissingDependency

try:
    import llama_index.core  # noqa: F401 - only to say clearly that it is missing
except ImportError as error:
    raise MissingDependency("llama-index-core", "llama-index") from error

from langmem_adapters.llamaindex.chat_store import BrainChatStore, SyncBrainChatStore
from langmem_adapters.llamaindex.convert import from_message, to_message
from langmem_adapters.llamaindex.llm import CachedLLM
from langmem_adapters.llamaindex.memory import LongTermMemoryBlock
from langmem_adapters.llamaindex.retriever import BrainRetriever, LongTermRetriever
from langmem_adapters.llamaindex.vector import NodeVectors

__all__ = [
    "BrainChatStore",
    "BrainRetriever",
    "CachedLLM",
    "LongTermMemoryBlock",
    "LongTermRetriever",
    "NodeVectors",
    "SyncBrainChatStore",
    "from_message",
    "to_message",
]
