"""Find the news among messages that were just observed: what was said neither lately nor ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langmem_adapters.flow import Flow
from langmem_adapters.keys import fingerprint
from langmem_adapters.language.analysis import analyze
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.recall.memories import SPEAKERS, is_text

__all__ = ["find_news"]

_NEAREST = 20  # memories among which a message is looked for that is not there word for word


def find_news(
    observed: Sequence[Message], shown: Iterable[Message], long_term: LongTermMemory | None
) -> Flow[list[Message]]:
    """The observed messages whose words, in their order, are neither in ``shown`` nor in the long-term memory.

    Differences in case, punctuation, white space and inflection make no news; another number, name, picture or a "not"
    does. If a message is observed twice, the first is news.
    """
    known = {_words(message) for message in shown}
    fresh = []
    for message in observed:
        words = _words(message)
        if words not in known:
            known.add(words)
            fresh.append(message)
    if long_term is None:
        return fresh
    kept = yield from _kept(fresh, long_term)
    news = []
    for message, is_kept in zip(fresh, kept, strict=True):
        if is_kept:
            continue
        words = _words(message)
        found = yield from long_term.search_flow(message.text, _NEAREST)
        if all(_words(recalled.memory.message) != words for recalled in found):
            news.append(message)
    return news


def _kept(messages: Sequence[Message], long_term: LongTermMemory) -> Flow[list[bool]]:
    """For each message, whether the long-term memory has exactly it, whoever said it; no search is made."""
    same = [
        (n, message.model_copy(update={"role": role, "name": name}))
        for n, message in enumerate(messages)
        for role in dict.fromkeys((message.role, *SPEAKERS))
        for name in dict.fromkeys((message.name, None))
    ]
    known = yield from long_term.known_flow([version for _, version in same])
    kept = {n for (n, _), is_known in zip(same, known, strict=True) if is_known}
    return [n in kept for n in range(len(messages))]


def _words(message: Message) -> tuple[str, ...]:
    """What a message says, as words; its text itself if it has none. Pictures and tool calls are included."""
    words = tuple(analyze(message.text)) or (message.text.strip(),)
    blocks = [] if isinstance(message.content, str) else [each for each in message.content if not is_text(each)]
    calls = [(call.name, call.args) for call in message.tool_calls]
    return (*words, fingerprint(blocks, calls))
