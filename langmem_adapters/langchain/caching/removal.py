"""What makes LangChain's cache forget, as methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, Generation

from langmem_adapters.errors import ConfigurationError
from langmem_adapters.experience.single_flight.tenants import Tenants
from langmem_adapters.flow import arun, run
from langmem_adapters.langchain.caching.kept import Kept

__all__ = ["Removal"]


class Removal:
    """The part of :class:`~langmem_adapters.langchain.ExperienceCache` that removes answers, by either mode."""

    _tenants: Tenants[Kept]

    def clear(self, **kwargs: Any) -> None:
        """Forget the entries of this tenant and tag, and nothing else."""
        _refuse(kwargs)
        run(self._tenants.named().clear())

    async def aclear(self, **kwargs: Any) -> None:
        """:meth:`clear`, without blocking the event loop."""
        _refuse(kwargs)
        await arun(self._tenants.named().clear())

    def delete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """Forget the entry that served this answer (or has this key); False, if there is none any more."""
        return run(self._tenants.named().delete(_key_of(hit)))

    async def adelete(self, hit: str | AIMessage | ChatGeneration) -> bool:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._tenants.named().delete(_key_of(hit)))

    def invalidate(self, where: Callable[[list[Generation]], bool] | None = None, *, tag: str | None = None) -> int:
        """Forget the entries whose answers make ``where`` true; returns how many.

        With ``tag``, those of this tenant under that tag, in place of the cache's own; without ``where``, all of them,
        also what the semantic mode of whichever cache has kept there.
        """
        return run(self._tenants.named().invalidate(where, tag))

    async def ainvalidate(
        self, where: Callable[[list[Generation]], bool] | None = None, *, tag: str | None = None
    ) -> int:
        """:meth:`invalidate`, without blocking the event loop."""
        return await arun(self._tenants.named().invalidate(where, tag))


def _key_of(hit: str | AIMessage | ChatGeneration) -> str:
    if isinstance(hit, str):
        return hit
    message = hit.message if isinstance(hit, ChatGeneration) else hit
    key = message.response_metadata.get("cache_key") if isinstance(message, BaseMessage) else None
    if not isinstance(key, str):
        raise ConfigurationError("this did not come from a cache: it has no cache_key in response_metadata")
    return key


def _refuse(kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise ConfigurationError(f"clear takes no arguments, not {', '.join(sorted(kwargs))}")
