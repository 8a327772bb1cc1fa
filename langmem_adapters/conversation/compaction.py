"""Compaction: older messages become part of a summary, and leave the window."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.conversation.session import Conversation, Unsummarized
from langmem_adapters.conversation.summary import WINDOW_TOKENS, Summarizer
from langmem_adapters.errors import ConfigurationError, LangmemError
from langmem_adapters.flow import Flow
from langmem_adapters.text import removable_positions
from langmem_adapters.tokens import TokenCounter, message_tokens
from langmem_adapters.validation import check_count

__all__ = ["Compaction"]

_log = logging.getLogger("langmem_adapters")
_WINDOWS_A_PASS = 8
_SMALLEST = 8  # a summary frees at least this fraction of the budget, so that not every turn makes one


class Compaction:
    """Keeps the part of a conversation that a model is shown within a budget.

    The model reads the summary so far and the messages that will leave; then the new summary is stored and the messages
    leave, in one guarded write. If anything fails, the conversation is unchanged, and the next turn tries again. A long
    backlog is taken in passes, each complete in itself.

    Args:
        conversation: The session.
        summarize_at, archive, counter: See :class:`~langmem_adapters.brain.BrainMemory`. Beside tokens, the number of
            messages in a window is a budget, too.
        stats: Where summaries are counted.
    """

    def __init__(
        self, conversation: Conversation, *, summarize_at: int, archive: bool, counter: TokenCounter, stats: Counts
    ) -> None:
        self._conversation = conversation
        self._summarize_at = summarize_at
        self._archive = archive
        self._counter = counter
        self._stats = stats

    def when_due(self, summarizer: Summarizer) -> Flow[None]:
        """Compact if the messages have outgrown their token budget or the window.

        A failure changes nothing: it is logged and counted, and does not fail the turn.
        """
        try:
            backlog = yield from self._conversation.uncovered()
            tokens = {item.seq: message_tokens(message, self._counter) for item, message in backlog.readable}
            left: Unsummarized | None = backlog
            while left is not None:
                left = yield from self._pass(summarizer, left, tokens)
        except ConfigurationError:
            raise
        except LangmemError as failure:
            self._stats.add("failed_summaries")
            _log.warning("the messages were not summarised, and the next turn tries again: %s", failure)

    def now(self, summarizer: Summarizer, keep: int) -> Flow[str]:
        """Summarise all but the newest ``keep`` messages; returns the summary. Raises ModelError."""
        check_count("keep", keep, least=0)
        uncovered = yield from self._conversation.uncovered()
        messages = [message for _, message in uncovered.readable]
        if keep:
            places = removable_positions(messages, len(messages) - keep) if keep < len(messages) else []
        else:
            places = list(range(len(messages)))
        summary = yield from self._compact(summarizer, uncovered, self._stood_for(places))
        if summary is not None:
            return summary
        stored = yield from self._conversation.get_summary()
        return stored.text if stored else ""

    def _pass(
        self, summarizer: Summarizer, uncovered: Unsummarized, tokens: Mapping[int, int]
    ) -> Flow[Unsummarized | None]:
        """Summarise what is due, or a part of it; returns the rest if that may be due.

        ``tokens`` are those of each message, by the sequence number of its entry.
        """
        messages = [message for _, message in uncovered.readable]
        sizes = [tokens[item.seq] for item, _ in uncovered.readable]
        least = self._surplus(sizes)
        if not least:
            return None
        places = removable_positions(messages, least)
        crowded = len(messages) > self._conversation.memory_k
        if not crowded and sum(sizes[n] for n in places) * _SMALLEST < self._summarize_at:
            return None
        most = _fitting(sizes, _WINDOWS_A_PASS * WINDOW_TOKENS)
        if most < least:
            places = removable_positions(messages, most)
        places = self._stood_for(places)
        summary = yield from self._compact(summarizer, uncovered, places)
        if summary is None or most >= least:
            return None
        return (yield from self._conversation.uncovered_of(uncovered, places))

    def _surplus(self, sizes: Sequence[int]) -> int:
        """How many of the oldest messages should leave. The latest never does, see :func:`removable_positions`."""
        tokens, count = sum(sizes), len(sizes)
        window = self._conversation.memory_k
        if tokens <= self._summarize_at and count <= window:
            return 0
        most = window if count <= window else window // 2
        least = 0
        while count - least > most or tokens > self._summarize_at // 2:
            tokens -= sizes[least]
            least += 1
        return least

    def _stood_for(self, places: list[int]) -> list[int]:
        """The positions that a summary must cover, so that these can leave."""
        if places and self._archive and self._conversation.long_term is None:
            # The summary covers all messages up to a position, so none before it may be left out.
            return list(range(places[-1] + 1))
        return places

    def _compact(self, summarizer: Summarizer, uncovered: Unsummarized, places: list[int]) -> Flow[str | None]:
        """The new summary; None if there is nothing to summarise or another writer was first."""
        if not places:
            return None
        gone = [uncovered.readable[n] for n in places]
        summary = yield from summarizer.flow(uncovered.summary.text, [message for _, message in gone])
        stored = yield from self._conversation.summarized(uncovered, gone, summary, archive=self._archive)
        self._stats.add("summaries", stored)
        return summary if stored else None


def _fitting(sizes: Sequence[int], tokens: int) -> int:
    """How many of the oldest fit; at least one."""
    return max(bisect_right([*accumulate(sizes)], tokens), 1)
