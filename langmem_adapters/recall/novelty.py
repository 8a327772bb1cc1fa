"""Find the news among messages that were just observed: what was said neither lately nor ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from langmem_adapters.flow import Flow
from langmem_adapters.keys import fingerprint
from langmem_adapters.language.analysis import analyze
from langmem_adapters.longterm import LongTermMemory
from langmem_adapters.model import Message
from langmem_adapters.recall.memories import SPEAKERS, is_text

_SEARCH_K = 20  # memories among which a message is looked for that is not there word for word


def find_news(
    observed: Sequence[Message], visible: Iterable[Message], long_term: LongTermMemory | None
) -> Flow[list[Message]]:
    """The observed messages whose words, in their order, are neither in ``visible`` nor in the long-term memory.

    Differences in case, punctuation, white space and inflection make no news; another number, name, picture or a "not"
    does. If a message is observed twice, the first is news.
    """
    seen = {_content_words(message) for message in visible}
    candidates = []
    for message in observed:
        words = _content_words(message)
        if words not in seen:
            seen.add(words)
            candidates.append(message)
    if long_term is None:
        return candidates
    stored = yield from _are_stored(candidates, long_term)
    news = []
    for message, is_stored in zip(candidates, stored, strict=True):
        if is_stored:
            continue
        words = _content_words(message)
        matches = yield from long_term.search_flow(message.text, _SEARCH_K, for_reader=False)
        if all(_content_words(recalled.memory.message) != words for recalled in matches):
            news.append(message)
    return news


def _are_stored(messages: Sequence[Message], long_term: LongTermMemory) -> Flow[list[bool]]:
    """For each message, whether the long-term memory has exactly it, whoever said it; no search is made."""
    variants = [
        (position, message.model_copy(update={"role": role, "name": name}))
        for position, message in enumerate(messages)
        for role in dict.fromkeys((message.role, *SPEAKERS))
        for name in dict.fromkeys((message.name, None))
    ]
    stored = yield from long_term.known_flow([variant for _, variant in variants])
    stored_positions = {position for (position, _), is_stored in zip(variants, stored, strict=True) if is_stored}
    return [position in stored_positions for position in range(len(messages))]


def _content_words(message: Message) -> tuple[str, ...]:
    """What a message says, as words; its text itself if it has none. Pictures and tool calls are included."""
    text = " ".join(message.text.split())  # "LH 1234" is one number only with one space
    words = tuple(analyze(text)) or (text,)
    blocks = [] if isinstance(message.content, str) else [block for block in message.content if not is_text(block)]
    calls = [(call.name, call.args) for call in message.tool_calls]
    return (*words, fingerprint(blocks, calls))
