"""What the semantic mode of an ExperienceCache adds to the calls of a model: answers to the same in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langchain_core.outputs import Generation

from langmem_adapters.experience.shelf import Evicted
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.cache import ExperienceCache
from langmem_adapters.model import Experience

__all__ = ["Alike"]


class Alike(NamedTuple):
    """Finds and keeps answers by the meaning of a prompt. Neither raises where an outage is to be borne."""

    find: Callable[[str, str], Flow[list[Generation] | None]]
    create: Callable[[str, str, str, Sequence[Generation], Experience], Flow[Experience]]
    stats: Callable[[], dict[str, Any]]

    @classmethod
    def of(cls, cache: ExperienceCache) -> Alike | None:
        """That of a cache; None, if it has no semantic mode."""
        if cache._semantic is None or cache._verified is None:  # noqa: SLF001 - what it does itself for LangChain
            return None

        def create(
            prompt: str, llm_string: str, key: str, generations: Sequence[Generation], made: Experience
        ) -> Flow[Experience]:
            question = cache._question(prompt, llm_string, generations)  # noqa: SLF001 - same
            evicted: Evicted = []
            named = made if question is None else made.model_copy(update={"partition": question.partition})
            kept = yield from cache.pool.create_flow(named, key=key, evicted=evicted, has_text=False)
            yield from cache._keep_question(question, key, evicted)  # noqa: SLF001 - same
            return kept

        return cls(cache._look_alike, create, cache.stats)  # noqa: SLF001 - same
