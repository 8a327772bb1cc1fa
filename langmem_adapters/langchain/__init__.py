"""Adapters for LangChain. Needs the extra ``langchain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langmem_adapters.errors import MissingDependency
from langmem_adapters.lazy_names import lazy_attributes

try:
    import langchain_core  # noqa: F401 - only to say clearly that it is missing
except ImportError as error:
    raise MissingDependency("langchain-core", "langchain") from error

if TYPE_CHECKING:
    from langmem_adapters.langchain.cache import ExperienceCache as ExperienceCache
    from langmem_adapters.langchain.caching.semantic import SemanticMode as SemanticMode
    from langmem_adapters.langchain.chat_model import CachedChatModel as CachedChatModel
    from langmem_adapters.langchain.convert import from_message as from_message
    from langmem_adapters.langchain.convert import to_message as to_message
    from langmem_adapters.langchain.experience import ExperienceMiddleware as ExperienceMiddleware
    from langmem_adapters.langchain.history import BrainChatMessageHistory as BrainChatMessageHistory
    from langmem_adapters.langchain.middleware import BrainMemoryMiddleware as BrainMemoryMiddleware
    from langmem_adapters.langchain.refine import refine_with as refine_with
    from langmem_adapters.langchain.retriever import LongTermRetriever as LongTermRetriever
    from langmem_adapters.langchain.threads.thread import ahistory_to_thread as ahistory_to_thread
    from langmem_adapters.langchain.threads.thread import athread_to_history as athread_to_history
    from langmem_adapters.langchain.threads.thread import history_to_thread as history_to_thread
    from langmem_adapters.langchain.threads.thread import thread_to_history as thread_to_history

_MODULE_OF_NAME = {
    "BrainChatMessageHistory": "history",
    "BrainMemoryMiddleware": "middleware",
    "CachedChatModel": "chat_model",
    "ExperienceCache": "cache",
    "ExperienceMiddleware": "experience",
    "LongTermRetriever": "retriever",
    "SemanticMode": "caching.semantic",
    "ahistory_to_thread": "threads.thread",
    "athread_to_history": "threads.thread",
    "from_message": "convert",
    "history_to_thread": "threads.thread",
    "refine_with": "refine",
    "thread_to_history": "threads.thread",
    "to_message": "convert",
}

__all__ = [
    "BrainChatMessageHistory",
    "BrainMemoryMiddleware",
    "CachedChatModel",
    "ExperienceCache",
    "ExperienceMiddleware",
    "LongTermRetriever",
    "SemanticMode",
    "ahistory_to_thread",
    "athread_to_history",
    "from_message",
    "history_to_thread",
    "refine_with",
    "thread_to_history",
    "to_message",
]


if not TYPE_CHECKING:  # type checkers see the names above, and that there are no others
    # Imported at first use: langchain-core 2 drops chat histories, and the rest must go on without them.
    __getattr__, __dir__ = lazy_attributes(globals(), _MODULE_OF_NAME)
