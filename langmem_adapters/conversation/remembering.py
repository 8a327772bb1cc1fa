"""The methods that reach beyond a session's window, and those that delete from it."""

from __future__ import annotations

from collections.abc import Sequence

from langmem_adapters.conversation.session import Conversation
from langmem_adapters.flow import Flow, arun, run
from langmem_adapters.language.dates import day_of
from langmem_adapters.longterm import RECALLED
from langmem_adapters.model import Message, Recalled
from langmem_adapters.recall.keeping import as_stored
from langmem_adapters.recall.memories import memory_line
from langmem_adapters.recall.novelty import find_news
from langmem_adapters.text import window
from langmem_adapters.tokens import TokenCounter, message_tokens
from langmem_adapters.validation import checked_list, checked_messages

_RECALL_DIVISOR = 3  # recalled memories may take at most a third of a token budget


class Remembering:
    """The part of :class:`~langmem_adapters.brain.BrainMemory` that reaches into the long-term memory."""

    memory_k: int
    max_tokens: int | None
    _flows: Conversation
    _counter: TokenCounter
    _recall_heading: str

    def recall(self, query: str, k: int | None = None) -> list[Recalled]:
        """Search the long-term memory; messages that the window still shows are not repeated."""
        return run(self._flows.recall(query, k))

    async def arecall(self, query: str, k: int | None = None) -> list[Recalled]:
        """:meth:`recall`, without blocking the event loop."""
        return await arun(self._flows.recall(query, k))

    def remembering_window(
        self, k: int | None = None, *, max_tokens: int | None = None, recall_k: int | None = None
    ) -> list[Message]:
        """:meth:`~langmem_adapters.brain.BrainMemory.window`, with memories that fit the newest question.

        If the newest message is the user's, up to ``recall_k`` memories that fit it are put in front of the window, in
        the order in which they were said (MetaGPT's ``RoleZeroLongTermMemory.get``). They are one system message,
        marked so that it is never stored again, and count towards ``max_tokens``.
        """
        return run(self._remembering_window(k, max_tokens, recall_k))

    async def aremembering_window(
        self, k: int | None = None, *, max_tokens: int | None = None, recall_k: int | None = None
    ) -> list[Message]:
        """:meth:`remembering_window`, without blocking the event loop."""
        return await arun(self._remembering_window(k, max_tokens, recall_k))

    def find_news(self, observed: Sequence[Message], k: int | None = None) -> list[Message]:
        """Which of these say what is neither in the newest ``k`` (default ``memory_k``) nor in the long-term memory.

        Case, punctuation, white space and inflection make no news; another number, name or a "not" does. Nothing is
        stored.
        """
        return run(self._find_news(observed, k))

    async def afind_news(self, observed: Sequence[Message], k: int | None = None) -> list[Message]:
        """:meth:`find_news`, without blocking the event loop."""
        return await arun(self._find_news(observed, k))

    def delete(self, message_ids: Sequence[str]) -> int:
        """Delete messages from the history, LlamaIndex's archive and the long-term memory; returns how many there were.

        The long-term memory keeps what was also said elsewhere, as said there. The summary is not updated.
        """
        return run(self._delete(message_ids))

    async def adelete(self, message_ids: Sequence[str]) -> int:
        """:meth:`delete`, without blocking the event loop."""
        return await arun(self._delete(message_ids))

    def clear(self, *, long_term: bool | None = None) -> None:
        """Delete the session: history, knowledge, summary and title.

        Args:
            long_term: Whether the long-term memory forgets what this session said, too. Default: if it is the session's
                own; a user's outlasts the session. A brain that was given none cannot reach what another has put there.
        """
        run(self._flows.clear(long_term))

    async def aclear(self, *, long_term: bool | None = None) -> None:
        """:meth:`clear`, without blocking the event loop."""
        await arun(self._flows.clear(long_term))

    # --- flows

    def _remembering_window(self, k: int | None, max_tokens: int | None, recall_k: int | None) -> Flow[list[Message]]:
        k = self.memory_k if k is None else k
        budget = self.max_tokens if max_tokens is None else max_tokens
        _, visible = yield from self._flows.context(k, budget, self._counter)
        long_term = self._flows.long_term
        if long_term is None or not visible or visible[-1].role != "user":
            return visible
        matches = yield from long_term.search_flow(visible[-1].text, recall_k, exclude=visible)
        recall_budget = None if budget is None else budget // _RECALL_DIVISOR
        recalled = recalled_message(matches, self._recall_heading, recall_budget, self._counter)
        if recalled is None:
            return visible
        if budget is not None:
            remaining = budget - message_tokens(recalled, self._counter)  # at least two thirds
            visible = window(visible, k, max_tokens=remaining, counter=self._counter)
        return [recalled, *visible]

    def _find_news(self, observed: Sequence[Message], k: int | None) -> Flow[list[Message]]:
        observed = checked_messages(observed)
        visible = yield from self._flows.messages(self.memory_k if k is None else k)
        stored = as_stored(self._flows.store, observed)
        news_messages = yield from find_news(stored, visible, self._flows.long_term)
        originals = {id(copy): message for copy, message in zip(stored, observed, strict=True)}
        return [originals[id(message)] for message in news_messages]

    def _delete(self, message_ids: Sequence[str]) -> Flow[int]:
        return (yield from self._flows.delete(set(checked_list(message_ids, "message_ids are a list of ids", str))))


def recalled_message(
    matches: Sequence[Recalled], heading: str, budget: int | None, counter: TokenCounter
) -> Message | None:
    """Memories as one message, in the order in which they were said; if too long, the best that fit the budget."""
    message = _as_message(matches, heading) if matches else None
    if message is None or budget is None or message_tokens(message, counter) <= budget:
        return message
    message = None
    fitting: list[Recalled] = []
    for match in matches:
        extended = _as_message([*fitting, match], heading)
        if message_tokens(extended, counter) <= budget:  # a long memory does not keep out shorter ones
            fitting.append(match)
            message = extended
    return message


def _as_message(matches: Sequence[Recalled], heading: str) -> Message:
    in_order = sorted(matches, key=_last_said_at)
    lines = [memory_line(match.memory, day_of(_last_said_at(match) or None)) for match in in_order]
    return Message(role="system", content="\n".join([heading, *lines]), metadata={RECALLED: True})


def _last_said_at(recalled: Recalled) -> float:
    """When it was last said; 0 if unknown, or if no calendar has that time."""
    times = (occurrence.created_at for occurrence in reversed(recalled.memory.occurrences))
    return next((time for time in times if time is not None and day_of(time)), 0.0)
