"""Compaction: older messages become part of a summary, and leave the window."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

from langmem_adapters.concurrency.counts import Counts
from langmem_adapters.conversation.session import Backlog, Conversation
from langmem_adapters.conversation.summary import WINDOW_TOKENS, Summarizer
from langmem_adapters.errors import ConfigurationError, Conflict, LangmemError
from langmem_adapters.flow import Flow
from langmem_adapters.model import Summary
from langmem_adapters.text import removable_positions
from langmem_adapters.tokens import TokenCounter, message_tokens
from langmem_adapters.validation import check_count

_log = logging.getLogger("langmem_adapters")
_WINDOWS_PER_PASS = 8
_SUMMARY_ATTEMPTS = 3  # of a summary that was asked for, while other writers are faster
_MIN_FREED_DIVISOR = 8  # a summary frees at least an eighth of the budget, so that not every turn makes one


class Compaction:
    """Keeps the part of a conversation that a model is shown within a budget.

    The model reads the summary so far and the messages that will leave; then the new summary is stored and the messages
    leave, in one guarded write. If anything fails, the conversation is unchanged, and the next turn tries again. A long
    backlog is taken in passes, each complete in itself.
    Arguments as in :class:`~langmem_adapters.brain.BrainMemory`. Beside tokens, the number of messages in a window is a
    budget, too.
    """

    def __init__(
        self, conversation: Conversation, *, summarize_at: int, archive: bool, counter: TokenCounter, stats: Counts
    ) -> None:
        self._conversation = conversation
        self._summarize_at = summarize_at
        self._archive = archive
        self._counter = counter
        self._stats = stats

    def compact_if_due(self, summarizer: Summarizer) -> Flow[None]:
        """Compact if the messages have outgrown their token budget or the window.

        A failure changes nothing: it is logged and counted, and does not fail the turn.
        """
        try:
            backlog = yield from self._conversation.backlog()
            tokens = {item.seq: message_tokens(message, self._counter) for item, message in backlog.entries}
            remaining: Backlog | None = backlog
            while remaining is not None:
                remaining = yield from self._compact_part(summarizer, remaining, tokens)
        except ConfigurationError:
            raise
        except LangmemError as failure:
            self._stats.add("failed_summaries")
            _log.warning("the messages were not summarised, and the next turn tries again: %s", failure)

    def summarize(self, summarizer: Summarizer, keep: int) -> Flow[str]:
        """Summarise all but the newest ``keep`` messages; returns the summary, or that of a writer who was faster.

        Raises ModelError and Conflict.
        """
        check_count("keep", keep, minimum=0)
        for _ in range(_SUMMARY_ATTEMPTS):
            backlog = yield from self._conversation.backlog()
            messages = [message for _, message in backlog.entries]
            if keep:
                positions = removable_positions(messages, len(messages) - keep) if keep < len(messages) else []
            else:
                positions = list(range(len(messages)))
            summary = yield from self._summarize_positions(summarizer, backlog, self._covered_positions(positions))
            if summary is not None:
                return summary
            stored = (yield from self._conversation.get_summary()) or Summary(text="")
            if not positions or stored != backlog.summary:  # otherwise something else has changed, such as the title
                return stored.text
        raise Conflict(f"the session changed during each of {_SUMMARY_ATTEMPTS} summaries; none was kept: try again")

    def _compact_part(
        self, summarizer: Summarizer, backlog: Backlog, tokens: Mapping[int, int]
    ) -> Flow[Backlog | None]:
        """Summarise what is due, or a part of it; returns the rest if that may be due.

        ``tokens`` are those of each message, by the sequence number of its entry.
        """
        messages = [message for _, message in backlog.entries]
        sizes = [tokens[item.seq] for item, _ in backlog.entries]
        min_count = self._surplus_count(sizes)
        if not min_count:
            return None
        positions = removable_positions(messages, min_count)
        is_crowded = len(messages) > self._conversation.memory_k
        freed = sum(sizes[position] for position in positions)
        if not is_crowded and freed * _MIN_FREED_DIVISOR < self._summarize_at:
            return None
        max_count = max(bisect_right([*accumulate(sizes)], _WINDOWS_PER_PASS * WINDOW_TOKENS), 1)  # what a pass takes
        if max_count < min_count:
            positions = removable_positions(messages, max_count)
        positions = self._covered_positions(positions)
        summary = yield from self._summarize_positions(summarizer, backlog, positions)
        if summary is None or max_count >= min_count:
            return None
        return (yield from self._conversation.remaining_backlog(backlog, positions))

    def _surplus_count(self, sizes: Sequence[int]) -> int:
        """How many of the oldest messages should leave. The latest never does, see :func:`removable_positions`."""
        tokens, count = sum(sizes), len(sizes)
        window = self._conversation.memory_k
        if tokens <= self._summarize_at and count <= window:
            return 0
        max_count = window if count <= window else window // 2
        surplus = 0
        while count - surplus > max_count or tokens > self._summarize_at // 2:
            tokens -= sizes[surplus]
            surplus += 1
        return surplus

    def _covered_positions(self, positions: list[int]) -> list[int]:
        """The positions that a summary must cover, so that these can leave."""
        if positions and self._archive and self._conversation.long_term is None:
            # The summary covers all messages up to a position, so none before it may be left out.
            return list(range(positions[-1] + 1))
        return positions

    def _summarize_positions(self, summarizer: Summarizer, backlog: Backlog, positions: list[int]) -> Flow[str | None]:
        """The new summary; None if there is nothing to summarise or another writer was first."""
        if not positions:
            return None
        entries = [backlog.entries[position] for position in positions]
        summary = yield from summarizer.summarize(backlog.summary.text, [message for _, message in entries])
        is_stored = yield from self._conversation.store_summary(backlog, entries, summary, archive=self._archive)
        if not is_stored:
            return None
        self._stats.add("summaries")
        return summary
