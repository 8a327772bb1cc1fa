"""Adapters for LangGraph. Needs the extra ``langgraph``."""

from __future__ import annotations

from langmem_adapters.errors import MissingDependency

try:
    import langgraph.store.base  # noqa: F401 - only to say clearly that it is missing
except ImportError as error:
    raise MissingDependency("langgraph", "langgraph") from error

from langmem_adapters.langgraph.cache import ExperienceNodeCache
from langmem_adapters.langgraph.store import LongTermStore

__all__ = ["ExperienceNodeCache", "LongTermStore"]
