"""What of that which was just observed is news: said neither lately nor ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langmem_adapters.analysis import analyze
from langmem_adapters.flow import Flow
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message

__all__ = ["find_news"]

_NEAREST = 5  # memories among which a message is looked for


def find_news(
    observed: Sequence[Message], shown: Iterable[Message], long_term: LongTermMemory | None
) -> Flow[list[Message]]:
    """The observed messages whose words, in their order, are neither in ``shown`` nor in the long-term memory.

    Case, punctuation, white space and inflection make no news; another number, name or a "not" does. Of what is
    observed twice, the first is news.
    """
    known = {_words(message) for message in shown}
    news = []
    for message in observed:
        words = _words(message)
        if words in known:
            continue
        known.add(words)
        found = (yield from long_term.search_flow(message.text, _NEAREST)) if long_term is not None else []
        if all(_words(recalled.memory.message) != words for recalled in found):
            news.append(message)
    return news


def _words(message: Message) -> tuple[str, ...]:
    """What a message says; its text itself, where that has no words."""
    return tuple(analyze(message.text)) or (message.text.strip(),)
