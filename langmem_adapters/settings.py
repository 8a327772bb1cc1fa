"""Settings: the one place where stores, indexes and services are put together."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from langmem_adapters.brain import BrainMemory
from langmem_adapters.database import default_url
from langmem_adapters.experience import ExperiencePool
from langmem_adapters.indexes import shared_index
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.protocols import Index, Store
from langmem_adapters.sessions import Sessions
from langmem_adapters.stores import shared_store

__all__ = ["Settings"]


class Settings(BaseModel):
    """Where memory is kept and how much of it is shown; makes the services that go with that.

    What is not given is read from the environment: ``LANGMEM_STORE_URL`` (else ``REDIS_URL``), ``LANGMEM_TENANT``,
    ``LANGMEM_MEMORY_K``, ``LANGMEM_SIMILARITY_TOP_K``, ``LANGMEM_TTL``. Raises pydantic's ValidationError, naming the
    setting that is wrong.

    >>> brain = Settings(url="memory:").brain("session-1", user="ada")
    >>> brain.add_talk("Where is my bike?")
    >>> brain.count()
    1
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    url: str = Field(default_factory=default_url, description="The store's URL; see open_store.", repr=False)
    tenant: str = Field(default_factory=lambda: os.environ.get("LANGMEM_TENANT", ""))
    memory_k: int = Field(default_factory=lambda: _number("LANGMEM_MEMORY_K", 200), ge=1)
    similarity_top_k: int = Field(default_factory=lambda: _number("LANGMEM_SIMILARITY_TOP_K", 5), ge=1)
    ttl: float | None = Field(default_factory=lambda: _number("LANGMEM_TTL", None), gt=0, description="Seconds.")

    @property
    def store(self) -> Store:
        """The store of this process for the URL."""
        return shared_store(self.url)

    @property
    def index(self) -> Index:
        """The lexical index of this process for the URL."""
        return shared_index(self.url)

    def brain(self, session: str, *, user: str = "", long_term: bool = False) -> BrainMemory:
        """The short-term memory of a session.

        With ``long_term``, what leaves its window goes to the user's long-term memory (to the session's own, where
        there is no user) instead of staying in the history.
        """
        return BrainMemory(
            self.store,
            session,
            user=user,
            tenant=self.tenant,
            memory_k=self.memory_k,
            long_term=self.long_term(user=user, session=session) if long_term else None,
            ttl=self.ttl,
        )

    def long_term(self, *, user: str = "", session: str = "") -> LongTermMemory:
        """The long-term memory of a user, or of a session where there is no user."""
        return LongTermMemory(
            self.store,
            self.index,
            user=user,
            tenant=self.tenant,
            session=session,
            similarity_top_k=self.similarity_top_k,
        )

    def experiences(self, tag: str, *, user: str = "") -> ExperiencePool:
        """The experiences under a tag."""
        return ExperiencePool(self.store, tag=tag, user=user, tenant=self.tenant, ttl=self.ttl)

    def sessions(self, *, user: str = "") -> Sessions:
        """The sessions of a user."""
        return Sessions(self.store, user=user, tenant=self.tenant, ttl=self.ttl)


def _number(name: str, default: Any) -> Any:
    return os.environ.get(name) or default  # read, and checked, by the field's own type
