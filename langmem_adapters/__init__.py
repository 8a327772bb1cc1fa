"""Conversation memory, long-term recall and cached answers for LangChain, LangGraph and LlamaIndex.

The names below are loaded when they are first used; importing the package loads nothing but pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from langmem_adapters.lazy_names import lazy_attributes

if TYPE_CHECKING:
    from langmem_adapters.brain import BrainMemory as BrainMemory
    from langmem_adapters.decorator import cached as cached
    from langmem_adapters.decorator import exp_cache as exp_cache
    from langmem_adapters.embedding import Embedder as Embedder
    from langmem_adapters.errors import ConfigurationError as ConfigurationError
    from langmem_adapters.errors import Conflict as Conflict
    from langmem_adapters.errors import LangmemError as LangmemError
    from langmem_adapters.errors import MissingDependency as MissingDependency
    from langmem_adapters.errors import ModelError as ModelError
    from langmem_adapters.errors import SearchError as SearchError
    from langmem_adapters.errors import SerializationError as SerializationError
    from langmem_adapters.errors import StoreError as StoreError
    from langmem_adapters.errors import StoreUnavailable as StoreUnavailable
    from langmem_adapters.experience import ExperiencePool as ExperiencePool
    from langmem_adapters.indexes import open_index as open_index
    from langmem_adapters.indexes import open_vectors as open_vectors
    from langmem_adapters.longterm import LongTermMemory as LongTermMemory
    from langmem_adapters.model import Experience as Experience
    from langmem_adapters.model import Message as Message
    from langmem_adapters.model import Scope as Scope
    from langmem_adapters.sessions import Sessions as Sessions
    from langmem_adapters.settings import Settings as Settings
    from langmem_adapters.stores import open_store as open_store
    from langmem_adapters.working import WorkingMemory as WorkingMemory

_MODULE_OF_NAME = {
    "BrainMemory": "brain",
    "ConfigurationError": "errors",
    "Conflict": "errors",
    "Embedder": "embedding",
    "Experience": "model",
    "ExperiencePool": "experience",
    "LangmemError": "errors",
    "LongTermMemory": "longterm",
    "Message": "model",
    "MissingDependency": "errors",
    "Scope": "model",
    "ModelError": "errors",
    "SearchError": "errors",
    "SerializationError": "errors",
    "Sessions": "sessions",
    "Settings": "settings",
    "StoreError": "errors",
    "StoreUnavailable": "errors",
    "WorkingMemory": "working",
    "cached": "decorator",
    "exp_cache": "decorator",
    "open_index": "indexes",
    "open_store": "stores",
    "open_vectors": "indexes",
}

__all__ = [
    "BrainMemory",
    "ConfigurationError",
    "Conflict",
    "Embedder",
    "Experience",
    "ExperiencePool",
    "LangmemError",
    "LongTermMemory",
    "Message",
    "MissingDependency",
    "ModelError",
    "Scope",
    "SearchError",
    "SerializationError",
    "Sessions",
    "Settings",
    "StoreError",
    "StoreUnavailable",
    "WorkingMemory",
    "cached",
    "exp_cache",
    "open_index",
    "open_store",
    "open_vectors",
]
__version__ = "0.1.0"


if not TYPE_CHECKING:  # type checkers see the names above, and that there are no others
    __getattr__, __dir__ = lazy_attributes(globals(), _MODULE_OF_NAME)


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the magic ``%langmem``: what ``%load_ext langmem_adapters`` calls."""
    importlib.import_module(f"{__name__}.magics").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take it back: what ``%unload_ext langmem_adapters`` calls."""
    importlib.import_module(f"{__name__}.magics").unload(shell)
