"""What the semantic mode of an ExperienceCache adds to the calls of a model: answers to the same in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from langchain_core.outputs import Generation

from langmem_adapters.errors import LangmemError
from langmem_adapters.flow import Flow
from langmem_adapters.langchain.cache import ExperienceCache

__all__ = ["Alike"]


class Alike(NamedTuple):
    """Finds and keeps answers by the meaning of a prompt. Neither raises where an outage is to be borne."""

    find: Callable[[str, str], Flow[list[Generation] | None]]
    keep: Callable[[str, str, str, Sequence[Generation]], Flow[None]]
    stats: Callable[[], dict[str, int]]

    @classmethod
    def of(cls, cache: ExperienceCache) -> Alike | None:
        """That of a cache; None, if it has no semantic mode."""
        mode, verified = cache._semantic, cache._verified  # noqa: SLF001 - what it does itself for LangChain
        if mode is None or verified is None:
            return None

        def keep(prompt: str, llm_string: str, key: str, generations: Sequence[Generation]) -> Flow[None]:
            question = mode.question(prompt, llm_string) if mode.may_serve(generations) else None
            if question is None or not cache.pool.writes:
                return
            try:
                yield from verified.keep_flow(question.partition, question.text, key)
            except LangmemError as error:
                cache._degrade(error, "semantic_errors")  # noqa: SLF001 - same

        return cls(cache._look_alike, keep, cache.stats)  # noqa: SLF001 - same
