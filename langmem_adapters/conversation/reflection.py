"""The methods that ask a model about a session."""

from __future__ import annotations

from typing import Any

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.conversation.model_tasks import ModelTasks
from langmem_adapters.flow import arun, run

MODEL_COUNTERS = ("calls", "failures", "unparsed", "tokens_in", "tokens_out", "summaries", "failed_summaries")
"""The counters of what models were asked."""


class Reflection:
    """The part of :class:`~langmem_adapters.brain.BrainMemory` that needs a model.

    ``model`` is the one that the memory was made with, or the one given to the call.
    """

    _tasks: ModelTasks
    _stats: Counts

    def get_title(self, model: Any = None, *, max_words: int = 5) -> str:
        """The session's title; if it has none yet, the model gives it one. Empty without a model."""
        return run(self._tasks.title(model, max_words))

    async def aget_title(self, model: Any = None, *, max_words: int = 5) -> str:
        """:meth:`get_title`, without blocking the event loop."""
        return await arun(self._tasks.title(model, max_words))

    def summarize(
        self, model: Any = None, *, max_tokens: int | None = None, keep_language: bool = True, keep: int = 0
    ) -> str:
        """Make all but the newest ``keep`` messages part of the summary; returns it.

        Raises ModelError, and changes nothing, if the model gives no summary. If another summary is stored meanwhile,
        that one stays and is returned. After other changes it is tried again; Conflict, if three tries meet one each.
        """
        return run(self._tasks.summarize(model, max_tokens, keep, keep_language=keep_language))

    async def asummarize(
        self, model: Any = None, *, max_tokens: int | None = None, keep_language: bool = True, keep: int = 0
    ) -> str:
        """:meth:`summarize`, without blocking the event loop."""
        return await arun(self._tasks.summarize(model, max_tokens, keep, keep_language=keep_language))

    def is_related(self, text: str, context: str, model: Any = None, *, default: bool = False) -> bool:
        """Whether ``text`` continues or depends on ``context``; ``default`` if the model does not say clearly."""
        return run(self._tasks.is_related(text, context, model, default=default))

    async def ais_related(self, text: str, context: str, model: Any = None, *, default: bool = False) -> bool:
        """:meth:`is_related`, without blocking the event loop."""
        return await arun(self._tasks.is_related(text, context, model, default=default))

    def rewrite(self, sentence: str, context: str, model: Any = None) -> str:
        """The sentence, understandable without its context; unchanged without a context or if the model fails."""
        return run(self._tasks.rewrite(sentence, context, model))

    async def arewrite(self, sentence: str, context: str, model: Any = None) -> str:
        """:meth:`rewrite`, without blocking the event loop."""
        return await arun(self._tasks.rewrite(sentence, context, model))

    def refine(self, last_talk: str, model: Any = None) -> str:
        """What the user just said, rewritten to be understood by itself, if it depends on what was said before.

        Calls no model while there is no history; otherwise one or two calls, after a summary if that is due.
        Returns ``last_talk`` unchanged if they fail.
        """
        return run(self._tasks.refine(last_talk, model))

    async def arefine(self, last_talk: str, model: Any = None) -> str:
        """:meth:`refine`, without blocking the event loop."""
        return await arun(self._tasks.refine(last_talk, model))

    def stats(self) -> dict[str, int]:
        """What this object asked of models: calls, failures, unparsed answers, tokens; and summaries made or failed."""
        return {name: self._stats[name] for name in MODEL_COUNTERS}

    def flush(self) -> None:
        """Wait for a summary that is in progress in the background."""
        run(self._tasks.wait())

    async def aflush(self) -> None:
        """:meth:`flush`, without blocking the event loop."""
        await arun(self._tasks.wait())
